"""A start with more states than asked for, which are merged on the way to that number.

From a random start some of K states end between two true ones, and others share one.  With three
times as many most true states have one of their own, and those that are alike are merged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from sojourn.families import Family
from sojourn.inference.backend import LocalBackend
from sojourn.inference.occupancy import state_masses
from sojourn.inference.posterior import Posterior
from sojourn.inference.survey import Survey
from sojourn.inference.trainer import StateMoves
from sojourn.moves.exchange import exchange_on
from sojourn.moves.judge import Move
from sojourn.moves.pairs import MergedStates, merge_weights
from sojourn.moves.sample import Sample, SampleFitter
from sojourn.moves.settings import MoveSettings
from sojourn.moves.workbench import Workbench, refitted
from sojourn.sources import Minibatches
from sojourn.sources.base import first_steps

SAMPLE_STEPS = 2**16
"""Steps of the sample that tells which states to merge.  No experiment: some seconds."""


class Narrow(NamedTuple):
    """How many states there are in each pass.

    Attributes
    ----------
    wide, n_states : int
        At first, and in the end.
    first : int
        Number of passes with all of them.
    n_stages : int
        Passes after which states are merged, an equal share of them each time.
    moves_first : bool
        Whether other moves may merge states before; they do it if the evidence is for it.

    Examples
    --------
    >>> narrow = Narrow(wide=30, n_states=10, first=6, n_stages=3)
    >>> [narrow.after(n_pass) for n_pass in range(4, 10)]
    [30, 21, 14, 10, 10, 10]
    >>> narrow.last, narrow.n_exchanges
    (7, 3)
    """

    wide: int
    n_states: int
    first: int
    n_stages: int
    moves_first: bool = False

    @property
    def last(self) -> int:
        """The last pass with more states than in the end, counted from 0."""
        return self.first + self.n_stages - 2

    @property
    def n_exchanges(self) -> int:
        """Exchanges of states at most: as many as there were states at first for each of these."""
        return self.wide // self.n_states

    def after(self, n_pass: int) -> int:
        """Return the number of states after pass `n_pass`, counted from 0."""
        stage = min(max(0, n_pass + 2 - self.first), self.n_stages)
        return round(self.wide * (self.n_states / self.wide) ** (stage / self.n_stages))


@dataclass
class Narrowing:
    """Merges states until there are as many as asked for; other moves come after it, or before.

    Merges are judged on a sample: always the pair that loses least at best, eq (22), with a local
    step after each.  A pass later states are exchanged, see `exchange_states`.

    Attributes
    ----------
    plan : Narrow
    backend : LocalBackend
    source : Minibatches
        The data that training sees.
    moves : StateMoves or None
        Other moves.
    settings : MoveSettings
    tol : float
        As in `StateSearch`, of exchanges.
    validate : callable, optional
        As in `Moves`: exchanges that lower the score are refused.
    """

    plan: Narrow
    backend: LocalBackend
    source: Minibatches
    moves: StateMoves | None
    settings: MoveSettings
    tol: float
    validate: Callable[[Posterior], float] | None = None

    def observe(self, n_steps: int, n_sequences: int, n_states: int, step_size: float) -> None:
        """Let the other moves take in a minibatch."""
        if self.moves is not None:
            self.moves.observe(n_steps, n_sequences, n_states, step_size)

    def after_pass(
        self, posterior: Posterior, family: Family, n_pass: int, n_passes: int, of_all: Survey
    ) -> list[dict[str, Any]]:
        """Merge states after pass `n_pass`, or let other moves change them."""
        target, n_states = self.plan.after(n_pass), posterior.n_states
        if n_pass == self.plan.last + 1 and n_states <= self.plan.n_states:
            return self._exchange(posterior, family, n_pass)
        is_open = n_states <= target and (self.plan.moves_first or target == self.plan.n_states)
        if is_open and self.moves is not None:
            return self.moves.after_pass(posterior, family, n_pass, n_passes, of_all)
        if n_states <= target:
            return []
        made: list[dict[str, Any]] = []
        groups = self._groups(posterior, family, n_pass, target, made)
        found = posterior.regrouped(groups)
        posterior.become(replace(found, transitions=refitted(found.transitions, found.counts)))
        return made

    def _exchange(self, posterior: Posterior, family: Family, n_pass: int) -> list[dict[str, Any]]:
        """Exchange states, or split some if there are fewer, where the bound of a sample rises."""
        n_states, most_states = posterior.n_states, self.plan.n_states
        if posterior.held or posterior.durations is not None or most_states == 1:
            return []
        data = first_steps(self.source.batches(n_pass + 1), SAMPLE_STEPS)
        rules = self.plan.n_exchanges, self.tol, self.settings, n_states
        found, moves = exchange_on(
            data, posterior, family, self.backend, *rules, most_states=most_states
        )
        if found is not None:
            total, own = (float(state_masses(p.counts).sum()) for p in (posterior, found))
            found = found.regrouped(total / own * np.eye(found.n_states))
            found = replace(found, transitions=refitted(found.transitions, found.counts))
            if self.validate is None or self.validate(found) >= self.validate(posterior):
                posterior.become(found)
            else:
                moves = [move._replace(accepted=False, n_states=n_states) for move in moves]
        return [move._asdict() for move in moves]

    def _groups(
        self,
        posterior: Posterior,
        family: Family,
        n_pass: int,
        target: int,
        made: list[dict[str, Any]],
    ) -> Any:
        """Return the remaining states as sums of the present ones."""
        settings, n_states = self.settings, posterior.n_states
        bench = Workbench(family, self.backend).for_states(n_states)
        total = self.source.n_sequences
        sample = Sample.draw(
            self.source.batches(n_pass + 1), SAMPLE_STEPS, total, bench, n_states, settings
        )
        fitter = SampleFitter(sample, bench, settings, np.inf, n_states)
        fit = fitter.fit(bench.place(posterior), 1, shared=True)
        groups = np.eye(n_states)
        while len(groups) > target:
            assert fit.shared is not None
            states = MergedStates.of(family, fit.posterior, fit.shared, settings)
            pair = states.best(at_best=True)
            assert pair is not None
            weights = merge_weights(len(groups), [pair])
            before, fit = fit, fitter.fit(fit.posterior.regrouped(weights), 1, shared=True)
            groups = weights @ groups
            move = Move("merge", [list(pair)], fit.bound - before.bound, 0.0, True, len(groups))
            made.append(move._asdict())
        bench.check()
        return groups
