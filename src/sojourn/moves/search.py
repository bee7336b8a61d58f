"""The number of states of small data: after convergence, the one best merge, again and again.

Where all the data fit into a local step of milliseconds, nothing needs to be sampled, budgeted or
waited for.  Each merge is tried with local steps of its own on all the data, the one with the
highest bound is kept if it gains, and the search begins anew from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sojourn.inference.posterior import Posterior
from sojourn.moves.judge import Move
from sojourn.moves.merge import MergedStates, Pair, merge_weights
from sojourn.moves.sample import Fit, Sample, SampleFitter
from sojourn.moves.settings import MoveSettings
from sojourn.moves.workbench import Workbench
from sojourn.sequences import Sequences


@dataclass(frozen=True)
class MergeSearch:
    """Merges of a converged model, judged on all the data.

    Attributes
    ----------
    fitter : SampleFitter
        With all the data as its sample.
    tol : float
        Gain of the bound, in nats per step of the data and local step, below which a model counts
        as converged.
    validate : callable, optional
        Returns the score of a posterior on data that the user held out: merges that lower it are
        refused.
    """

    fitter: SampleFitter
    tol: float
    validate: Callable[[Posterior], float] | None = None

    @classmethod
    def on(
        cls,
        data: Sequences,
        bench: Workbench,
        n_states: int,
        tol: float,
        settings: MoveSettings,
        validate: Callable[[Posterior], float] | None = None,
    ) -> MergeSearch:
        """Search on these data, with models of at most so many states."""
        chunks = bench.chunks(data, n_states)
        sample = Sample(chunks, [], data, len(data), data.n_steps, 0, 1.0, stands_for_all=True)
        return cls(SampleFitter(sample, bench, settings, np.inf, n_states), tol, validate)

    def run(self, posterior: Posterior) -> tuple[Posterior, float, list[Move]]:
        """Merge states as long as that raises the bound.

        Returns
        -------
        posterior : Posterior
            With the statistics of all the data.
        bound : float
        moves : list of Move
            Every merge that was tried with all its local steps.
        """
        moves: list[Move] = []
        present = self.converged(posterior)
        while present.posterior.n_states > 1:
            best = self._best_merge(present, moves)
            if best is None:
                break
            present = self.converged(best.posterior)
        return present.posterior, present.bound, moves

    def converged(self, posterior: Posterior) -> Fit:
        """Take local steps until the bound rises no more."""
        settings, before = self.fitter.settings, -np.inf
        least = self.tol * self.fitter.sample.n_steps * settings.search_steps
        for _ in range(settings.search_max_rounds):
            found = self._stepped(posterior, settings.search_steps)
            if found.bound - before < least:
                break
            posterior, before = found.posterior, found.bound
        return found

    def _best_merge(self, present: Fit, moves: list[Move]) -> Fit | None:
        """Return the best merge of two states, or None if none gains."""
        settings, n_states = self.fitter.settings, present.posterior.n_states
        trials = []
        for pair in self._candidates(present):
            merged = present.posterior.regrouped(merge_weights(n_states, [pair]))
            trials.append((self._stepped(merged, settings.search_screen_steps), pair))
        trials.sort(key=lambda trial: -trial[0].bound)
        for found, pair in trials[: settings.search_finalists]:
            if found.bound <= present.bound:
                # States need some time to take over from those that are gone.
                found = self._stepped(found.posterior, settings.search_steps)
            gain = found.bound - present.bound
            accepted = gain > 0.0 and not self._is_worse(found, present)
            moves.append(Move("merge", [list(pair)], gain, 0.0, accepted, n_states - accepted))
            if accepted:
                return found
        return None

    def _is_worse(self, found: Fit, present: Fit) -> bool:
        """Whether the score on data that the user held out is lower."""
        if self.validate is None:
            return False
        return self.validate(found.posterior) < self.validate(present.posterior)

    def _candidates(self, present: Fit) -> list[Pair]:
        """Return the pairs that may gain most: by the sure gain, eq (22), and at best."""
        assert present.shared is not None
        settings = self.fitter.settings
        states = MergedStates.of(self.fitter.family, present.posterior, present.shared, settings)
        first, second = np.nonzero(states.gains > -np.inf)
        sure = states.gains[first, second]
        at_best = sure + states.entropy_bounds[first, second]
        ranked = [np.argsort(-g, kind="stable")[: settings.search_pairs] for g in (at_best, sure)]
        numbers = dict.fromkeys(int(n) for order in ranked for n in order)
        return [(int(first[n]), int(second[n])) for n in numbers]

    def _stepped(self, posterior: Posterior, n_local: int) -> Fit:
        """Take local steps; the prior on transitions is fitted to the counts after the last."""
        bench, fitter = self.fitter.bench, self.fitter
        for _ in range(n_local - 1):
            sums = bench.statistics(posterior, fitter.sample.fitted)
            posterior = fitter.with_statistics(posterior, sums)
        return fitter.fit(posterior, 1, shared=True)
