"""Rounds of proposals: when there is one, of what kind, on how large a sample, and its outcome.

The sample of a round only judges: states that are merged or deleted are so in the statistics of the
stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from sojourn.families import Family
from sojourn.inference.backend import LocalBackend
from sojourn.inference.occupancy import state_masses
from sojourn.inference.posterior import Posterior
from sojourn.inference.survey import Survey
from sojourn.moves.budget import MoveState, overhead_steps, step_work, training_work
from sojourn.moves.delete import delete_small, dissolve
from sojourn.moves.judge import Judge
from sojourn.moves.merge import merge_states
from sojourn.moves.restart import restart_transitions, restart_work
from sojourn.moves.sample import Batches, Sample, SampleFitter
from sojourn.moves.settings import MoveSettings
from sojourn.moves.split import SplitPlan, split_states
from sojourn.moves.stream import merge_in_stream, merge_in_survey
from sojourn.moves.workbench import Workbench, refitted
from sojourn.sources.base import Minibatches
from sojourn.transitions import Rows, Transitions


class RoundKind(Enum):
    """What a round proposes; where one kind was refused, the next is what is left to try."""

    MERGE = "merges, and deletions of small states"
    SPLIT = "a split"
    RESTART = "a restart, and deletions of states between others"
    GROW = "splits, one after another, of a start with few states"

    @property
    def splits(self) -> bool:
        """Whether states are split."""
        return self in (RoundKind.SPLIT, RoundKind.GROW)


IN_TURN = (RoundKind.MERGE, RoundKind.SPLIT, RoundKind.RESTART)


class RoundPlan(NamedTuple):
    """A round of proposals that can be paid for.

    Attributes
    ----------
    kind : RoundKind
    budget : float
        Work that it may spend.
    advance : float
        Part of that which passes to come have yet to earn.
    n_steps : float
        Steps of the sample.
    overhead_steps : float
        Steps that would take as long as what a local step does beside those of the sample.
    stands_for_all : bool
        Whether the sample and its copies are all the data, as far as judgement goes.
    surveys : bool
        Whether merges are judged by all the data.
    """

    kind: RoundKind
    budget: float
    advance: float
    n_steps: float
    overhead_steps: float
    stands_for_all: bool
    surveys: bool


@dataclass
class Moves:
    """Whether and how the number of states may change.

    Attributes
    ----------
    most_states : int
        Upper bound on the number of states.
    seed : int
    backend : LocalBackend
        Proposals are judged in this process, wherever training runs.
    source : Minibatches, optional
        The data that training sees, to take samples from.
    grows : bool
        Whether training began with fewer states than that.
    state : MoveState
        What moves carry from one round to the next; changed in place.
    settings : MoveSettings
        Every threshold.
    validate : callable, optional
        Returns the score of a posterior on data that the user held out: proposals that lower it
        are refused.
    """

    most_states: int
    seed: int
    backend: LocalBackend
    source: Minibatches | None = None
    grows: bool = False
    state: MoveState = field(default_factory=MoveState)
    settings: MoveSettings = field(default_factory=MoveSettings)
    validate: Callable[[Posterior], float] | None = None

    def observe(self, n_steps: int, n_sequences: int, n_states: int, step_size: float) -> None:
        """Take in a minibatch: a share of its work may go into moves."""
        self.state.earn(n_steps, n_sequences, n_states, step_size, self.settings)

    def after_pass(
        self, posterior: Posterior, family: Family, n_pass: int, n_passes: int, of_all: Survey
    ) -> list[dict[str, Any]]:
        """Make proposals after pass `n_pass`, counted from 0, if it is time; see `run_round`."""
        settings, total_steps = self.settings, _total_steps(posterior)
        slow = (
            family.statistics_are_counts
            and total_steps > settings.symbols_steps_per_state * self.most_states
        )
        ready = self.grows or (self.state.warmed_up and not self.exceeds_sample(total_steps))
        if not self.in_pass(n_pass, n_passes, slow=slow, ready=ready):
            return []
        assert self.source is not None
        # The first minibatches of the pass are those that the running statistics have seen longest
        # ago, and almost forgotten: nearly fresh.
        batches = self.source.batches(n_pass)
        return self.run_round(
            posterior,
            family,
            batches,
            self.source.n_sequences,
            passes_to_come=n_passes - n_pass - 1,
            early=n_pass + 1 < settings.early_share * n_passes,
            of_all=of_all,
        )

    def exceeds_sample(self, total_steps: float) -> bool:
        """Whether there are more data than a sample and its copies can stand for."""
        return total_steps > self.settings.max_copies * self.settings.sample_max_steps

    def _knows_enough(self, total_steps: float) -> bool:
        """Whether the running statistics are as good as those of a sample would be.

        With large step sizes they are those of a few minibatches, in which states look alike.
        """
        if not self.exceeds_sample(total_steps):
            return True
        return self.state.effective_steps >= self.settings.sample_max_steps

    def in_pass(
        self, n_pass: int, n_passes: int, *, slow: bool = False, ready: bool = False
    ) -> bool:
        """Whether states may change at the end of pass `n_pass`, counted from 0.

        Before that they have yet to differentiate, and in the end the model is to settle.

        Parameters
        ----------
        slow : bool
            Whether states are those of symbols, which take longer to differentiate.
        ready : bool
            Whether there is nothing to wait for: after a warm-up, or with few states that are to
            grow.
        """
        settings = self.settings
        many, few = settings.first_round_share, settings.first_round_share_few
        if slow:
            many, few = settings.first_round_share_symbols, settings.first_round_share_few_symbols
        early, late = (int(np.ceil(share * n_passes)) for share in (many, few))
        first = max(
            settings.first_round_min_passes, early, min(late, settings.first_round_few_passes)
        )
        last = n_passes - max(1, int(settings.settling_share * n_passes))
        return (1 if ready else first) <= n_pass + 1 <= last

    def can_judge_on(self, n_steps: int, posterior: Posterior) -> bool:
        """Whether a minibatch that comes alone is large enough to judge on."""
        settings = self.settings
        share = settings.minibatch_min_share * _total_steps(posterior)
        return n_steps >= min(settings.minibatch_min_steps, share)

    def run_round(
        self,
        posterior: Posterior,
        family: Family,
        batches: Batches,
        total_sequences: int,
        *,
        passes_to_come: float = 0.0,
        early: bool = False,
        of_all: Survey | None = None,
    ) -> list[dict[str, Any]]:
        """Make proposals on a sample from `batches`, if it is time; change the posterior in place.

        There is at most one round per pass, and fewer where the budget does not last for more.

        Parameters
        ----------
        passes_to_come : float
            Passes that training will yet take.  What they are sure to earn is spent ahead, until
            a round changes nothing; and where a model grows, what more states will earn.
        early : bool
            Whether there is time to wait until the budget lasts for more merges: states that have
            become more different need fewer proposals.
        of_all : Survey, optional
            Takes a local step on all the data, by which merges of much data are judged.

        Returns
        -------
        list of dict
            Every proposal, as `Move`.
        """
        state = self.state
        # What changes nothing is tried less and less often.
        if state.n_sequences < total_sequences * (1 + state.rounds_without_change // len(IN_TURN)):
            return []
        bench = Workbench(family, self.backend)
        plan = self._plan(
            posterior,
            bench,
            total_sequences,
            passes_to_come,
            early=early,
            surveys=of_all is not None,
        )
        if plan is None:
            return []
        judge = self._judge(plan, posterior, bench, batches, total_sequences)
        if plan.surveys:
            assert of_all is not None
            judge = merge_in_survey(judge, of_all, total_sequences)
        else:
            propose(plan.kind, judge, np.random.default_rng([self.seed, 2**33, state.n_rounds]))
        bench.check()
        changed = judge.changed
        if changed:
            outcome = _outcome(posterior, judge, total_sequences)
            changed = self.validate is None or self.validate(outcome) >= self.validate(posterior)
            if changed:
                posterior.become(outcome)
            else:
                judge.refuse_all()
        left = judge.fitter.budget - plan.advance
        state.end_round(
            budget=max(left, 0.0) if plan.surveys else left,
            changed=changed,
            growing=plan.kind is RoundKind.GROW,
            finished=not judge.ran_out,
            held_out_change=judge.held_out_change,
            held_out_variance=judge.held_out_variance,
        )
        return [move._asdict() for move in judge.moves]

    def _plan(
        self,
        posterior: Posterior,
        bench: Workbench,
        total_sequences: int,
        passes_to_come: float,
        *,
        early: bool,
        surveys: bool,
    ) -> RoundPlan | None:
        """Say what is proposed next, and on how large a sample; None while it costs too much."""
        settings, n_states = self.settings, posterior.n_states
        total_steps = _total_steps(posterior)
        kind = self._kind(n_states, bench.family, posterior.transitions)
        if kind is RoundKind.MERGE and not self._knows_enough(total_steps):
            return None
        advance = self._advance(kind, n_states, total_steps, passes_to_come)
        budget = self.state.budget + advance
        cost = self._cost(kind, n_states, bench.family, early=early)
        copies = settings.max_copies
        if kind.splits:
            copies /= settings.split_sample_ratio
        # A few long sequences may not have all states.
        share = max(1.0 / copies, min(1.0, settings.sample_min_sequences / total_sequences))
        least = min(settings.sample_max_steps, share * total_steps)
        n_statistics = bench.family.n_statistics
        other = overhead_steps(
            n_statistics, total_steps, settings, slow_launches=bench.slow_launches
        )
        needed = cost * (least + other)
        growing = kind is RoundKind.GROW
        looks = 0.0
        if surveys and kind is RoundKind.MERGE and self.exceeds_sample(total_steps):
            n_local = settings.surveys * (1 + settings.cost_bound_steps)
            looks = n_local * total_steps * step_work(n_states, settings)
        changing = self.state.rounds_without_change == 0
        if (growing or (looks and changing)) and budget < needed + looks:
            # To stay small for want of a budget would be worse than to exceed it.  So would it be
            # to keep states to spare: passes to come cost less without them.
            advance, budget = advance + needed + looks - budget, needed + looks
        needed += looks
        if budget < needed:
            return None
        enough = least if growing else max(least, settings.sample_steps_per_state * n_states)
        n_steps = min(settings.sample_max_steps, enough, max(least, budget / cost - other))
        is_much = self.exceeds_sample(total_steps)
        stands_for_all = not (is_much and (surveys or bench.family.statistics_are_counts))
        return RoundPlan(kind, budget, advance, n_steps, other, stands_for_all, looks > 0.0)

    def _kind(self, n_states: int, family: Family, transitions: Transitions) -> RoundKind:
        """Return what to propose: where one kind was refused, another is left to try.

        States with constraints are not split: it is not known what would follow their parts.
        """
        if self.grows and not self.state.grown:
            return RoundKind.GROW
        kind = IN_TURN[self.state.rounds_without_change % len(IN_TURN)]
        room = SplitPlan.of(family, self.settings).room(n_states, self.most_states)
        constraints = transitions.constraints
        if constraints is not None and not constraints.lasting:
            room = 0
        return RoundKind.RESTART if kind is RoundKind.SPLIT and room == 0 else kind

    def _advance(
        self, kind: RoundKind, n_states: int, total_steps: float, passes_to_come: float
    ) -> float:
        """Return the work that may be spent before passes to come have earned it."""
        settings = self.settings
        if kind is RoundKind.GROW:
            later = min(self.most_states, settings.growth_factor * n_states)
            work = training_work(total_steps, later, settings)
            return settings.growth_advance * settings.move_share * passes_to_come * work
        if self.state.rounds_without_change == 0:
            work = training_work(total_steps, 1, settings)
            return settings.move_share * passes_to_come * work
        return 0.0

    def _cost(self, kind: RoundKind, n_states: int, family: Family, *, early: bool) -> float:
        """Return the work per step of the sample that a round must be able to spend."""
        settings = self.settings
        if kind.splits:
            plan = SplitPlan.of(family, settings)
            return plan.work(n_states, plan.room(n_states, self.most_states), settings)
        if kind is RoundKind.RESTART:
            return restart_work(n_states, settings)
        n_local = settings.early_proposals if early else settings.late_proposals
        return n_local * step_work(n_states, settings)

    def _judge(
        self,
        plan: RoundPlan,
        posterior: Posterior,
        bench: Workbench,
        batches: Batches,
        total_sequences: int,
    ) -> Judge:
        """Draw the sample of a round, and fit the present model to it."""
        state, settings, most_states = self.state, self.settings, self.most_states
        bench = bench.for_states(most_states if plan.kind.splits else posterior.n_states)
        sample = Sample.draw(
            batches,
            plan.n_steps,
            total_sequences,
            bench,
            most_states,
            settings,
            stands_for_all=plan.stands_for_all,
        )
        # Training makes good some of what moves have cost.
        kept = settings.held_out_decay ** (state.n_sequences / total_sequences)
        fitter = SampleFitter(
            sample, bench, settings, plan.budget, most_states, plan.overhead_steps
        )
        return Judge.begin(
            fitter, posterior, kept * state.held_out_change, kept**2 * state.held_out_variance
        )


def propose(kind: RoundKind, judge: Judge, rng: np.random.Generator) -> None:
    """Make proposals of one kind as long as the budget lasts.

    A model that began small splits as long as that gains something.  After merges training is to
    settle before anything else is tried: states may yet become different.
    """
    if kind is RoundKind.GROW:
        while split_states(judge, rng, growing=True):
            pass
    elif kind is RoundKind.MERGE and not judge.sample.stands_for_all:
        merge_in_stream(judge)
    elif kind is RoundKind.MERGE:
        merge_states(judge)
        if not judge.changed:
            delete_small(judge)
    elif kind is RoundKind.SPLIT:
        split_states(judge, rng)
    elif not restart_transitions(judge):
        dissolve(judge)


def _outcome(before: Posterior, judge: Judge, total_sequences: int) -> Posterior:
    """Return the statistics of the stream regrouped; after a split those of the sample.

    Where all the data were looked at, they are theirs.
    """
    if judge.sample.is_all:
        return judge.present.posterior
    if judge.groups is None:
        found, sample = judge.present.posterior, judge.sample
        copies = total_sequences / sample.n_sequences / sample.copies
        counts = Rows(*(copies * part for part in found.counts))
        emissions = found.emissions.regrouped(copies * np.eye(found.n_states))
        durations = None if found.durations is None else found.durations.scaled(copies)
        found = replace(found, counts=counts, emissions=emissions, durations=durations)
    else:
        found = before.regrouped(judge.groups)
    return replace(found, transitions=refitted(found.transitions, found.counts))


def _total_steps(posterior: Posterior) -> float:
    """Steps of all the data, as far as the posterior knows."""
    return float(state_masses(posterior.counts).sum())


def by_size(posterior: Posterior) -> Posterior:
    """Return the posterior with the largest state first; some states keep their places.

    Those with labels come first, and constraints keep all of them.
    """
    constraints = posterior.transitions.constraints
    if constraints is not None and not constraints.lasting:
        return posterior
    masses = state_masses(posterior.counts)
    masses[: posterior.held] = np.inf
    order = np.argsort(-masses, kind="stable")
    return posterior.regrouped(np.eye(posterior.n_states)[order])
