"""The number of states of small data: after convergence, the one best move, again and again.

Where all the data fit into a local step of milliseconds, nothing needs to be sampled, budgeted or
waited for.  States without a step of the data are merged first, at once.  Then each merge is tried
with local steps of its own on all the data, and the model without it gets as many; the one with the
highest bound is kept if it gains, and the search begins anew from there.  Where no merge gains,
splits are tried in the same way: a rare state may have shared another one from the start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sojourn.families import Family
from sojourn.inference.occupancy import is_idle
from sojourn.inference.posterior import Posterior
from sojourn.inference.starts import SAME_OPTIMUM
from sojourn.kernels.arrays import to_host
from sojourn.kernels.interface import Floats
from sojourn.moves.judge import Move
from sojourn.moves.pairs import MergedStates, Pair, merge_weights
from sojourn.moves.sample import Fit, Sample, SampleFitter
from sojourn.moves.settings import MoveSettings
from sojourn.moves.split import runs_of
from sojourn.moves.workbench import Workbench, longest
from sojourn.random_state import SPLIT_STREAM
from sojourn.sequences import Sequences
from sojourn.transitions import Dirichlet, Rows


@dataclass(frozen=True)
class StateSearch:
    """Merges and splits of a converged model, judged on all the data.

    Attributes
    ----------
    fitter : SampleFitter
        With all the data as its sample.
    tol : float
        Gain of the bound, in nats per step of the data and local step, below which a model counts
        as converged.
    seed : int
        Of the parts that states are split into.
    validate : callable, optional
        Returns the score of a posterior, and of a family with its prior, on data that the user held
        out: moves that lower it are refused.
    rescaled : callable, optional
        Returns the family with the prior that suits emission statistics best, eq (69).
    """

    fitter: SampleFitter
    tol: float
    seed: int = 0
    validate: Callable[[Posterior, Family], float] | None = None
    rescaled: Callable[[Floats], Family] | None = None

    @classmethod
    def on(
        cls,
        data: Sequences,
        bench: Workbench,
        n_states: int,
        tol: float,
        settings: MoveSettings,
        seed: int = 0,
        validate: Callable[[Posterior, Family], float] | None = None,
        rescaled: Callable[[Floats], Family] | None = None,
    ) -> StateSearch:
        """Search on these data, with models of at most so many states."""
        chunks = bench.chunks(data, n_states)
        sample = Sample(chunks, [], data, len(data), data.n_steps, 0, 1.0, stands_for_all=True)
        fitter = SampleFitter(sample, bench, settings, np.inf, n_states)
        return cls(fitter, tol, seed, validate, rescaled)

    def run(self, posterior: Posterior) -> tuple[Fit, list[Move]]:
        """Merge and split states as long as that raises the bound.

        Returns
        -------
        fit : Fit
            With the statistics of all the data.
        moves : list of Move
            Every move that was tried with all its local steps.
        """
        moves: list[Move] = []
        rng = np.random.default_rng([self.seed, SPLIT_STREAM])
        present, highest = self.converged(posterior), -np.inf
        while True:
            present = self._without_idle(present, moves)
            highest = max(highest, present.bound)
            best = self._best_merge(present, moves)
            if best is None:  # a split must raise the bound beyond all before: merges come again
                best = self._best_split(present, highest, moves, rng)
            if best is None:
                return present, moves
            present = self.converged(best.posterior, best.family)

    @property
    def least(self) -> float:
        """Gain of the bound by `search_steps` local steps below which a model is converged."""
        return self.tol * self.fitter.sample.n_steps * self.fitter.settings.search_steps

    @property
    def least_of_another(self) -> float:
        """Gain of the bound above which two models count as different optima."""
        return max(self.least, SAME_OPTIMUM)

    def converged(self, posterior: Posterior, family: Family | None = None) -> Fit:
        """Take local steps until the bound rises no more, in turn with the prior on emissions.

        The prior is a part of the model that is learned: what it is fitted to only raises the
        bound, and the two models that a move compares have the same one at first.
        """
        settings, before = self.fitter.settings, -np.inf
        for _ in range(settings.search_max_rounds):
            found = self.stepped(posterior, settings.search_steps, family)
            if found.bound - before < self.least:
                break
            posterior, before = found.posterior.with_prior_learned(), found.bound
            if self.rescaled is not None:
                family = self.rescaled(to_host(posterior.emissions.dense()))
        return found

    def _without_idle(self, present: Fit, moves: list[Move]) -> Fit:
        """Merge all states without a step of the data into others, at once.

        They cost next to nothing, so that rounding decides what a merge of them gains, and every
        one with any other state gains the same: there would be no end of candidates before those of
        states in use.  They go unless the bound falls by more than it may yet rise.  Each goes
        where its gain is the surest, eq (22).
        """
        posterior = present.posterior
        idle = np.flatnonzero(is_idle(posterior.counts))
        if not len(idle):
            return present
        gains = self._merged_states(present).gains
        gains = np.maximum(gains, gains.T)
        gains[:, idle] = -np.inf
        pairs = [(int(gains[k].argmax()), int(k)) for k in idle if gains[k].max() > -np.inf]
        if not pairs:
            return present
        constraints = posterior.transitions.constraints
        if constraints is not None and not constraints.lasting:
            pairs = pairs[:1]  # a merge decides what others there are
        merged = posterior.regrouped(merge_weights(posterior.n_states, pairs))
        n_local, family = self.fitter.settings.search_screen_steps, present.family
        found = self.stepped(merged, n_local, family)
        gain = found.bound - self.stepped(posterior, n_local, family).bound
        accepted = gain > -self.least and not self._is_worse(found, present)
        n_states = (merged if accepted else posterior).n_states
        moves.append(Move("merge", _groups(pairs), gain, 0.0, accepted, n_states))
        return self.converged(found.posterior, found.family) if accepted else present

    def _best_merge(self, present: Fit, moves: list[Move]) -> Fit | None:
        """Return the best merge of two states, or None if none gains."""
        settings, n_states = self.fitter.settings, present.posterior.n_states
        if n_states == 1:
            return None
        family = present.family
        before = self.stepped(present.posterior, settings.search_screen_steps, family)
        later: Fit | None = None
        trials = []
        for pair in self.candidates(present):
            merged = present.posterior.regrouped(merge_weights(n_states, [pair]))
            try:
                trials.append((self.stepped(merged, settings.search_screen_steps, family), pair))
            except FloatingPointError:  # under constraints fewer states may leave data without path
                if merged.transitions.constraints is None:
                    raise
        trials.sort(key=lambda trial: -trial[0].bound)
        for found, pair in trials[: settings.search_finalists]:
            other = before
            if found.bound <= before.bound:
                # States need some time to take over from those that are gone.
                found = self.stepped(found.posterior, settings.search_steps, family)
                if later is None:
                    later = self.stepped(before.posterior, settings.search_steps, family)
                other = later
            gain = found.bound - other.bound
            accepted = gain > 0.0 and not self._is_worse(found, present)
            moves.append(Move("merge", [list(pair)], gain, 0.0, accepted, n_states - accepted))
            if accepted:
                return found
        return None

    def _best_split(
        self, present: Fit, highest: float, moves: list[Move], rng: np.random.Generator
    ) -> Fit | None:
        """Return the best split of a state in two, or None if none is above the highest bound."""
        settings, n_states = self.fitter.settings, present.posterior.n_states
        if n_states >= self.fitter.most_states:
            return None
        for found, state in self.splits(present, rng)[: settings.search_finalists]:
            if found.bound <= highest:
                found = self.converged(found.posterior, found.family)
            gain = found.bound - highest
            accepted = gain > 0.0 and not self._is_worse(found, present)
            moves.append(Move("split", [[state]], gain, 0.0, accepted, n_states + accepted))
            if accepted:
                return found
        return None

    def splits(self, present: Fit, rng: np.random.Generator) -> list[tuple[Fit, int]]:
        """Return splits in two after some local steps, and of which states, the best first."""
        fitter = self._fitter(present.family)
        settings, bench = fitter.settings, fitter.bench
        whole = bench.fetch(present.posterior)
        sequences, path = bench.likely_states(present.posterior, longest(fitter.sample.fitted))
        trials = []
        for state in range(whole.held, whole.n_states):  # the first are those that labels name
            own = runs_of(sequences, path, state, 2 * settings.split_min_steps)
            if own is not None:
                parts = bench.place(split_by_runs(fitter, whole, state, own, rng))
                found = self.stepped(parts, settings.search_screen_steps, present.family)
                trials.append((found, state))
        return sorted(trials, key=lambda trial: -trial[0].bound)

    def _is_worse(self, found: Fit, present: Fit) -> bool:
        """Whether the score on data that the user held out is lower."""
        if self.validate is None:
            return False
        after = self.validate(found.posterior, found.family)
        return after < self.validate(present.posterior, present.family)

    def candidates(self, present: Fit) -> list[Pair]:
        """Return the pairs that may gain most: by the sure gain, eq (22), and at best."""
        settings, states = self.fitter.settings, self._merged_states(present)
        first, second = np.nonzero(states.gains > -np.inf)
        sure = states.gains[first, second]
        at_best = sure + states.entropy_bounds[first, second]
        ranked = [np.argsort(-g, kind="stable")[: settings.search_pairs] for g in (at_best, sure)]
        numbers = dict.fromkeys(int(n) for order in ranked for n in order)
        return [(int(first[n]), int(second[n])) for n in numbers]

    def _merged_states(self, present: Fit) -> MergedStates:
        """Return what merges of two states would gain."""
        assert present.shared is not None
        own = present.posterior, present.shared
        return MergedStates.of(present.family, *own, self.fitter.settings)

    def stepped(self, posterior: Posterior, n_local: int, family: Family | None = None) -> Fit:
        """Take local steps; the prior on transitions is fitted to the counts after the last."""
        fitter = self._fitter(family)
        bench = fitter.bench
        for _ in range(n_local - 1):
            sums = bench.statistics(posterior, fitter.sample.fitted)
            posterior = fitter.with_statistics(posterior, sums)
        return fitter.fit(posterior, 1, shared=True)

    def _fitter(self, family: Family | None) -> SampleFitter:
        """Return what fits models with the prior of a family; by default as the search began."""
        if family is None:
            return self.fitter
        return replace(self.fitter, bench=replace(self.fitter.bench, family=family))


def split_by_runs(
    fitter: SampleFitter, whole: Posterior, state: int, own: Sequences, rng: np.random.Generator
) -> Posterior:
    """Split a state into the two of a model of its runs, which costs little to learn.

    At first they follow each other as rarely as the state is left.  Runs are entered and left as
    that model begins.
    """
    n_states, n_steps = whole.n_states, float(own.n_steps)
    row = whole.counts.transitions[state]
    leave = 1.0 - row[state] / max(row.sum(), 1e-300)
    changes = np.array([[1.0 - leave, leave], [leave, 1.0 - leave]])
    parts = fitter.family.segment_statistics(own, 2, n_steps, rng)
    two = Posterior(
        Rows(np.full(2, len(own) / 2.0), n_steps / 2.0 * changes),
        whole.emissions.refilled(np.asarray(parts, dtype=np.float64)),
        Dirichlet.make(2, None, 1.0),
    )
    bench, settings = fitter.bench, fitter.settings
    alone = StateSearch.on(own, bench, 2, 0.0, settings)
    two = bench.fetch(alone.stepped(bench.place(two), settings.search_steps).posterior)
    group = [state, n_states]
    weights = np.eye(n_states + 1, n_states)
    weights[group, state] = 0.5
    split = whole.regrouped(weights)
    emissions = split.emissions.dense().astype(np.float64)
    mass = whole.counts.start[state] + whole.counts.transitions[:, state].sum()
    emissions[group] = mass / n_steps * two.emissions.dense()
    begins = two.counts.start / two.counts.start.sum()
    start, transitions = (np.array(part, dtype=np.float64) for part in split.counts)
    start[group] = start[group].sum() * begins
    within = transitions[np.ix_(group, group)].sum()
    transitions[:, group] = transitions[:, group].sum(axis=1, keepdims=True) * begins
    transitions[group] = begins[:, None] * transitions[group].sum(axis=0)
    own_changes = two.counts.transitions + 1.0
    transitions[np.ix_(group, group)] = within * own_changes / own_changes.sum()
    return replace(
        split,
        counts=Rows(start, transitions),
        emissions=whole.emissions.refilled(emissions),
    )


def _groups(pairs: list[Pair]) -> list[list[int]]:
    """Return which states become one, from pairs of a state that stays and one that goes."""
    stay = sorted({keep for keep, _ in pairs})
    return [[keep, *(gone for kept, gone in pairs if kept == keep)] for keep in stay]
