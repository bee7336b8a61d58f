"""Proposals beside the present model, judged by the collapsed bound and by held-out sequences.

A proposal is a posterior with other states.  It gets local steps on a sample, and the present model
gets equally many: otherwise the progress of training would be taken for a gain of the move.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from sojourn.families import Family
from sojourn.inference.occupancy import USED_SHARE, state_shares
from sojourn.inference.posterior import Posterior
from sojourn.kernels.interface import Floats
from sojourn.moves.sample import Fit, Sample, SampleFitter
from sojourn.moves.settings import MoveSettings

Kind = Literal["merge", "delete", "split", "restart", "exchange"]


class Move(NamedTuple):
    """A proposal and what came of it.

    Attributes
    ----------
    kind : {"merge", "delete", "split", "restart", "exchange"}
    states : list of lists of int
        States that were merged together, or single states, in the numbering of that moment; none
        for a restart, which concerns all of them; for an exchange the one that was split, and the
        two that were merged.
    gain : float
        Change of the bound over an equally refreshed present model, in nats of the sample.
    fresh : float
        Change of the log likelihood per step of sequences that neither model was fitted to; of
        fewer states without what more of them fit by chance, as training has seen the sequences.
    accepted : bool
    n_states : int
        Number of states afterwards.
    """

    kind: Kind
    states: list[list[int]]
    gain: float
    fresh: float
    accepted: bool
    n_states: int


class Verdict(NamedTuple):
    """A proposal beside the present model.

    Attributes
    ----------
    gain, fresh : float
        As `Move` has them.
    variance : float
        Variance of the change on held-out sequences by all moves, if this one is accepted.
    is_safe : bool
        Whether held-out sequences do not become less likely by more than may be chance: the bound
        prefers few states where the model has not learned enough yet, or its prior is wrong.
    """

    gain: float
    fresh: float
    variance: float
    is_safe: bool


@dataclass
class Judge:
    """The present model, and what becomes of it by proposals on one sample within a budget.

    `Judge.begin` makes one: the present model must first be fitted to the sample.

    Attributes
    ----------
    fitter : SampleFitter
        Fits models to the sample, as long as the budget lasts.
    start : Posterior
        The posterior of the stream, with which the round began.
    present : Fit
        The current model.
    groups : (K, K0) array or None
        What share of each state at the beginning the present ones have; None once the statistics
        are those of the sample.
    held_out_change, held_out_variance : float
        What moves have cost so far, as `MoveState` has it.
    ran_out : bool
        Whether the budget ended a search for the best merges.
    moves : list of Move
        Every proposal so far.
    """

    fitter: SampleFitter
    start: Posterior
    present: Fit
    groups: Floats | None
    held_out_change: float = 0.0
    held_out_variance: float = 0.0
    ran_out: bool = field(default=False, init=False)
    moves: list[Move] = field(default_factory=list, init=False)
    _baselines: dict[int, Fit] = field(init=False)
    _stream_shares: Floats = field(init=False)

    def __post_init__(self) -> None:
        self._baselines = {0: self.present}
        self._stream_shares = state_shares(self.start.counts)

    @classmethod
    def begin(
        cls,
        fitter: SampleFitter,
        start: Posterior,
        held_out_change: float = 0.0,
        held_out_variance: float = 0.0,
    ) -> Judge:
        """Fit the posterior of the stream to the sample."""
        present = fitter.fit(start, 1, shared=True)
        groups = np.eye(start.n_states)
        return cls(fitter, start, present, groups, held_out_change, held_out_variance)

    @property
    def settings(self) -> MoveSettings:
        """Thresholds of moves."""
        return self.fitter.settings

    @property
    def family(self) -> Family:
        """What is observed."""
        return self.fitter.family

    @property
    def sample(self) -> Sample:
        """Sequences on which proposals are judged."""
        return self.fitter.sample

    @property
    def n_states(self) -> int:
        """States of the present model."""
        return self.present.posterior.n_states

    @property
    def held(self) -> int:
        """The first states, which labels name, and which no move touches."""
        return self.start.held

    @property
    def changed(self) -> bool:
        """Whether any proposal was accepted."""
        return any(move.accepted for move in self.moves)

    def unseen_states(self) -> set[int]:
        """Return the states in use that the sample hardly has, and so cannot judge.

        Proposals after which the statistics are the sample's are not made then.
        """
        if self.groups is None:
            return set()
        expected = self.groups @ self._stream_shares
        found = state_shares(self.present.posterior.counts)
        missing = (expected > USED_SHARE) & (found < self.settings.seen_share * expected)
        return {int(k) for k in np.flatnonzero(missing)}

    # ---- fits -------------------------------------------------------------------------------

    def affords(self, n_states: int, n_local: int, n_baseline: int) -> bool:
        """Whether the budget lasts for a proposal of `n_local` local steps and its baseline."""
        cost, missing = self.fitter.cost(n_states, n_local), n_baseline - self._known(n_baseline)
        if missing:
            cost += self.fitter.cost(self.n_states, missing)
        return cost <= self.fitter.budget

    def baseline(self, n_local: int) -> Fit:
        """Return the present model after `n_local` more local steps."""
        known = self._known(n_local)
        if known < n_local:
            begin = self._baselines[known].posterior
            self._baselines[n_local] = self.fitter.fit(begin, n_local - known)
        return self._baselines[n_local]

    def _known(self, n_local: int) -> int:
        """Largest number of local steps up to `n_local` after which the present model is known."""
        return max(n for n in self._baselines if n <= n_local)

    def fit_regrouped(self, weights: Floats, n_more: int = 0) -> tuple[Fit, int] | None:
        """Fit other states, each a sum of present ones; return also the steps of their baseline.

        They begin with the statistics of the stream, as the present ones did, and then the baseline
        needs no step more; or else with what the sample has of the present ones.  None where the
        budget does not last, or where constraints leave data without a path.
        """
        from_sample = self.groups is None
        if not self.affords(len(weights), n_more + 1, n_more + from_sample):
            return None
        begin = self._regrouped(weights)
        try:
            return self.fitter.fit(begin, n_more + 1, shared=True), n_more + from_sample
        except FloatingPointError:
            if begin.transitions.constraints is None:
                raise
            return None

    def _regrouped(self, weights: Floats) -> Posterior:
        if self.groups is None:
            return self.present.posterior.regrouped(weights)
        return self.start.regrouped(weights @ self.groups)

    # ---- verdicts ---------------------------------------------------------------------------

    def compare(self, proposed: Fit, n_baseline: int) -> Verdict:
        """Compare a proposal with the present model after `n_baseline` more steps, eq (26)."""
        base, stands_for_all = self.baseline(n_baseline), self.sample.stands_for_all
        if self.sample.is_all:
            return self._on_all_the_data(proposed, base)
        gain = proposed.bound - base.bound
        if stands_for_all:
            optimism = _optimism(proposed, base, self.sample.copies * self.sample.n_steps)
            fresh, variance, is_safe = self._held_out(proposed.held_out, base.held_out, optimism)
        else:
            # Whatever the sample says, all the data must not lose: the model at hand has their
            # statistics, and the proposal is to be better on sequences that it has not seen.
            fresh, variance, _ = self._held_out(proposed.held_out, self.at_hand)
            is_safe = bool(fresh > self.settings.held_out_errors * np.sqrt(variance))
        return Verdict(gain, fresh, variance, is_safe)

    def _on_all_the_data(self, proposed: Fit, base: Fit) -> Verdict:
        """Compare by the bound, unless much of what states tell of new sequences would be lost."""
        fresh, is_safe = self._keeps_enough(proposed.held_out, base.held_out)
        return Verdict(proposed.bound - base.bound, fresh, self.held_out_variance, is_safe)

    def _keeps_enough(self, proposed: Floats, base: Floats) -> tuple[float, bool]:
        """Return the change of the likelihood of left-out sequences, and whether that is little.

        Training makes good what a merge costs at first, but not what it takes to learn states anew.
        """
        settings = self.settings
        fresh, variance, _ = self._held_out(proposed, base)
        learned = float((base - self.alone).sum()) / max(1, self.sample.held_out_steps)
        allowed = max(settings.held_out_tolerance, settings.survey_loss * learned)
        return fresh, bool(fresh + settings.held_out_errors * np.sqrt(variance) >= -allowed)

    def may_merge(self, weights: Floats) -> bool:
        """Whether states that are sums of the present ones would keep enough of what is learned.

        As far as can be said before a look at all the data.
        """
        own = weights if self.groups is None else weights @ self.groups
        proposed = self.fitter.bench.left_out(self.start, own)
        return self._keeps_enough(proposed, self.present.held_out)[1]

    @cached_property
    def alone(self) -> Floats:
        """Log likelihood of each left-out sequence if all states were one."""
        if self.start.transitions.constraints is not None:
            return self.present.held_out
        return self.fitter.bench.left_out(self.start, np.ones((1, self.start.n_states)))

    def _held_out(
        self, proposed: Floats, present: Floats, optimism: float = 0.0
    ) -> tuple[float, float, bool]:
        """Compare the log likelihoods of held-out sequences under two models, eq (26)."""
        settings, tolerance = self.settings, self.settings.held_out_tolerance
        differences = (proposed - present) / max(1, self.sample.held_out_steps)
        change = float(differences.sum()) + optimism
        enough = len(differences) >= settings.held_out_min_sequences
        variance = float(len(differences) * differences.var()) if enough else tolerance**2
        variance += self.held_out_variance
        lowest = self.held_out_change + change + settings.held_out_errors * np.sqrt(variance)
        return change, variance, bool(lowest >= -tolerance)

    @cached_property
    def at_hand(self) -> Floats:
        """Log likelihood of each held-out sequence under the posterior of the stream."""
        chunks = self.sample.held_out
        return self.fitter.bench.log_likelihoods(self.start, chunks) if chunks else np.zeros(0)

    def decide(
        self,
        kind: Kind,
        states: list[list[int]],
        proposed: Fit,
        n_baseline: int,
        weights: Floats | None,
        *,
        wanted: bool = True,
    ) -> bool:
        """Accept a proposal, or not, and record it.

        Parameters
        ----------
        kind, states
            As `Move` has them.
        n_baseline : int
            Local steps that the present model gets before it is compared with `proposed`.
        weights : (K', K) array or None
            The proposed states as sums of the present ones; None if they are the sample's.
        wanted : bool
            False refuses the proposal whatever its gain.
        """
        verdict = self.compare(proposed, n_baseline)
        accepted = wanted and verdict.gain > 0.0 and verdict.is_safe
        if accepted:
            self.accept(proposed, verdict, weights)
        self.record(kind, states, verdict, accepted=accepted)
        return accepted

    def accept(self, proposed: Fit, verdict: Verdict, weights: Floats | None) -> None:
        """Make a proposal the present model."""
        self.present = proposed
        self.held_out_change = min(0.0, self.held_out_change + verdict.fresh)
        self.held_out_variance = verdict.variance
        if self.groups is not None:
            self.groups = None if weights is None else weights @ self.groups
        self._baselines = {0: proposed}

    def refuse_all(self) -> None:
        """Take back what was accepted, as on data that the user held out it is worse."""
        n_states = self.start.n_states
        self.moves = [move._replace(accepted=False, n_states=n_states) for move in self.moves]

    def record(
        self, kind: Kind, states: list[list[int]], verdict: Verdict, *, accepted: bool
    ) -> None:
        """List a proposal."""
        self.moves.append(Move(kind, states, verdict.gain, verdict.fresh, accepted, self.n_states))


def _optimism(proposed: Fit, base: Fit, n_steps: float) -> float:
    """Return what more states fit by chance of held-out sequences, in nats per step.

    Training has seen these.  P parameters of states of n steps each, which the data do not need,
    gain P/2 nats by chance; the bound is P/2 (log n - 1) higher without them, eq (26).
    """
    if proposed.posterior.n_states >= base.posterior.n_states:
        return 0.0
    steps_per_state = max(n_steps / base.posterior.n_states, np.e**2)
    return max(0.0, proposed.bound - base.bound) / (np.log(steps_per_state) - 1.0) / n_steps
