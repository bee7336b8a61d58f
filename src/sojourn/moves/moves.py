"""Merge, delete and split states in the stream.

The sample of a phase only judges: states that are merged or deleted are so in the statistics of the
stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sojourn.families import Family
from sojourn.inference.backend import LocalBackend
from sojourn.inference.occupancy import state_masses
from sojourn.inference.posterior import Posterior
from sojourn.moves.budget import MOVE_SHARE, MoveState, other_steps, step_work, training_work
from sojourn.moves.phase import (
    MOST_COPIES,
    Batches,
    Phase,
    Sample,
    restart_work,
    split_work,
)
from sojourn.moves.splits import SplitPlan
from sojourn.sources.base import Minibatches
from sojourn.transitions import Rows

_MOST_STEPS = 2**18  # a sample needs no more
_FEWEST_SEQUENCES = 8  # and no fewer, where they are not very long
_STATE_STEPS = 2**9  # steps a state that are enough, where the data have them more than once
_ALONE_STEPS = 2**13  # steps of a minibatch that `partial_fit` may judge on
_PROPOSALS = (6, 10)  # local steps on the sample that a phase must be able to pay: late, early
_FIRST_PHASE = (0.15, 0.35)  # shares of the passes before the first phase: of many, of few
_FIRST_SLOW = (0.4, 0.4)  # the same for states of symbols, which part slowly
_SLOW_STEPS = 2**10  # steps a state; on fewer, many states soon fit what is chance
_FEWEST_PASSES, _FIRST_PASSES = 3, 4  # before it; that many are enough, where there are few
_KEPT_LOSS = 0.9  # share of what moves have cost that is left after a pass
_EARLY = 0.65  # share of the passes up to which a phase is early


@dataclass
class Moves:
    """Whether and how the number of states may change.

    Attributes
    ----------
    most_states : int
        Upper bound on the number of states.
    seed : int
    engine : LocalBackend
        Proposals are judged in this process, wherever training runs.
    source : Minibatches, optional
        The data that training sees, to take samples from.
    grows : bool
        Whether training began with fewer states than that.
    state : MoveState
        What moves carry from one phase to the next; changed in place.
    """

    most_states: int
    seed: int
    engine: LocalBackend
    source: Minibatches | None = None
    grows: bool = False
    state: MoveState = field(default_factory=MoveState)

    def observe(self, n_steps: int, n_sequences: int, n_states: int) -> None:
        """Take in a minibatch: a share of its work may go into moves."""
        self.state.earn(n_steps, n_sequences, n_states)

    def after_pass(
        self, posterior: Posterior, family: Family, n_pass: int, n_passes: int
    ) -> list[dict[str, Any]]:
        """Make proposals after pass `n_pass`, counted from 0, if it is time; see `phase`."""
        total_steps = _total_steps(posterior)
        slow = family.statistics_are_counts and total_steps > _SLOW_STEPS * self.most_states
        parted = self.grows or self.state.parted
        if not self.in_pass(n_pass, n_passes, slow=slow, parted=parted):
            return []
        assert self.source is not None
        # The next pass's first minibatches are as good a sample as any, and repeatable.
        batches = self.source.batches(n_pass + 1)
        return self.phase(
            posterior,
            family,
            batches,
            self.source.n_sequences,
            passes_to_come=n_passes - n_pass - 1,
            early=n_pass + 1 < _EARLY * n_passes,
        )

    @staticmethod
    def in_pass(n_pass: int, n_passes: int, *, slow: bool = False, parted: bool = False) -> bool:
        """Whether states may change at the end of pass `n_pass`, counted from 0.

        At first they have yet to become different, and at last the model is to settle.  States of
        symbols part slowly.  After a warm-up, or with few states that are to grow, there is nothing
        to wait for.
        """
        many, few = _FIRST_SLOW if slow else _FIRST_PHASE
        early, late = (int(np.ceil(share * n_passes)) for share in (many, few))
        first = 1 if parted else max(_FEWEST_PASSES, early, min(late, _FIRST_PASSES))
        return first <= n_pass + 1 <= n_passes - max(1, n_passes // 10)

    def takes(self, n_steps: int, posterior: Posterior) -> bool:
        """Whether a minibatch that comes alone is large enough to judge on."""
        return n_steps >= min(_ALONE_STEPS, _total_steps(posterior) / 8)

    def phase(
        self,
        posterior: Posterior,
        family: Family,
        batches: Batches,
        total_sequences: int,
        *,
        passes_to_come: float = 0.0,
        early: bool = False,
    ) -> list[dict[str, Any]]:
        """Make proposals on a sample from `batches`, if it is time; move the posterior in place.

        There is a phase a pass at most, and fewer where the budget does not last for more.

        Parameters
        ----------
        passes_to_come : float
            Passes that training will yet take.  What they are sure to earn is spent ahead, until
            a phase changes nothing; and where a model grows more, what more states will earn.
        early : bool
            Whether there is time to wait until the budget lasts for more merges: states that have
            become more different need fewer proposals.

        Returns
        -------
        list of dict
            Every proposal, as `Move`.
        """
        state, n_states = self.state, posterior.n_states
        # What changes nothing is tried less and less often.
        if state.sequences < total_sequences * (1 + state.quiet // 3):
            return []
        total_steps = _total_steps(posterior)
        grows = self.grows and not state.grown
        ahead = 0.0
        if grows:
            later = min(self.most_states, 2 * n_states)
            ahead = 0.4 * MOVE_SHARE * passes_to_come * training_work(total_steps, later)
        elif state.quiet == 0:
            ahead = MOVE_SHARE * passes_to_come * training_work(total_steps, 1)
        budget = state.budget + ahead
        # Where one kind of moves was refused, another is what is left to try.
        stage = state.quiet % 3
        plan = SplitPlan.of(family)
        room = plan.room(n_states, self.most_states)
        if stage == 1 and room == 0:
            stage = 2
        if grows or stage == 1:
            cost = split_work(n_states, room, plan)
        elif stage == 2:
            cost = restart_work(n_states)
        else:
            cost = _PROPOSALS[early] * step_work(n_states)
        # A split is tried again with other parts, so that many on half the sample do more than few.
        # A few long sequences may not have all states.
        copies = 2.0 * MOST_COPIES if grows or stage == 1 else MOST_COPIES
        share = max(1.0 / copies, min(1.0, _FEWEST_SEQUENCES / total_sequences))
        least = min(_MOST_STEPS, share * total_steps)
        slow = self.engine.slow_launches
        other = other_steps(family.n_statistics, total_steps, on_device=slow)
        needed = cost * (least + other)
        if grows and budget < needed:
            # To stay small for want of a budget would be worse than to exceed it.
            ahead, budget = ahead + needed - budget, needed
        if budget < needed:
            return []
        enough = least if grows else max(least, _STATE_STEPS * n_states)
        n_steps = min(_MOST_STEPS, enough, max(least, budget / cost - other))
        engine = self.engine.sized_for(self.most_states if grows or stage == 1 else n_states)
        sample = Sample.draw(batches, family, n_steps, total_sequences, engine, self.most_states)
        # Training makes good some of what moves have cost.
        kept = _KEPT_LOSS ** (state.sequences / total_sequences)
        phase = Phase(
            posterior,
            family,
            sample,
            engine,
            np.random.default_rng([self.seed, 2**33, state.n_phases]),
            budget,
            self.most_states,
            other,
            grows,
            stage,
            kept * state.lost,
            kept**2 * state.variance,
        )
        phase.run()
        self.engine.finish_pass()
        if phase.changed:
            posterior.become(self._outcome(posterior, phase, total_sequences))
        self.state.__dict__.update(
            budget=phase.budget - ahead,
            sequences=0,
            n_phases=state.n_phases + 1,
            quiet=0 if phase.changed or grows else state.quiet + (not phase.unfinished),
            grown=state.grown or (grows and not phase.changed),
            lost=phase.lost,
            variance=phase.variance,
        )
        return [move._asdict() for move in phase.moves]

    def _outcome(self, before: Posterior, phase: Phase, total_sequences: int) -> Posterior:
        """Return the statistics of the stream regrouped; after a split those of the sample."""
        if phase.groups is None:
            found = phase.present.posterior
            copies = total_sequences / phase.sample.n_sequences / phase.sample.copies
            counts = Rows(*(copies * part for part in found.counts))
            emissions = found.emissions.regrouped(copies * np.eye(found.n_states))
            found = replace(found, counts=counts, emissions=emissions)
        else:
            found = before.regrouped(phase.groups)
        return replace(found, transitions=found.transitions.refitted(found.counts))


def _total_steps(posterior: Posterior) -> float:
    """Steps of all the data, as far as the posterior knows."""
    return float(state_masses(posterior.counts).sum())


def by_size(posterior: Posterior) -> Posterior:
    """Return the posterior with the largest state first."""
    order = np.argsort(-state_masses(posterior.counts), kind="stable")
    return posterior.regrouped(np.eye(posterior.n_states)[order])
