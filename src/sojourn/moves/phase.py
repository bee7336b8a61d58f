"""Proposals of other states on a sample, judged by the collapsed bound, eqs (21), (22) and (25).

A phase takes a sample of sequences and a budget of work.  A proposal is a posterior with other
states; it gets local steps on the sample, and so does the present one, equally many: otherwise the
progress of training would be taken for a gain of the move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from sojourn.families import Family
from sojourn.inference.backend import Chunk, LocalBackend
from sojourn.inference.bound import COLLAPSED_BOUND
from sojourn.inference.local import chunk_potentials, expected_statistics
from sojourn.inference.objective import COLLAPSED
from sojourn.inference.occupancy import USED_SHARE, state_masses, state_shares
from sojourn.inference.posterior import Posterior, fetched
from sojourn.inference.statistics import BatchSums
from sojourn.kernels.arrays import is_tensor, namespace, to_host
from sojourn.kernels.interface import Floats
from sojourn.moves.budget import LAST_STEP, chain_work, step_work
from sojourn.moves.merges import Merge, merge_chain
from sojourn.moves.splits import SplitPlan, runs_of, split_posterior
from sojourn.sequences import Sequences
from sojourn.sources.base import joined
from sojourn.transitions import Rows, Transitions

Kind = Literal["merge", "delete", "split", "restart"]
Batches = Iterable[Sequences | Iterable[Sequences]]

HARM = 0.001
"""Nats a step that all moves together may cost in the likelihood of fresh sequences."""

MOST_COPIES = 4.0
"""How often a sample may stand for itself, of more data than that."""

_ERRORS = 3.0  # standard errors within which a change of that likelihood may be chance
_ENOUGH_SEQUENCES = 8  # that tell its standard error; of fewer, it is taken to be `HARM`
_CHECK_EVERY = 4  # one sequence in so many is only for checking
_MORE_STEPS = 4  # local steps for a merge or a deletion that one is not enough for, or a restart
_PRUNINGS = 2  # times that states are merged after a split, before it is judged
_PATIENCE = 3  # refusals in a row that end a round
_SEEN = 0.1  # share of what a state has in the stream that a sample must have of it
_SMALL = 0.02  # share of the mass below which a state may be deleted


class Move(NamedTuple):
    """A proposal and what came of it.

    Attributes
    ----------
    kind : {"merge", "delete", "split", "restart"}
    states : list of lists of int
        Pairs that were merged together, or single states, in the numbering of that moment; none
        for a restart, which is of all.
    gain : float
        Change of the bound over an equally refreshed present model, in nats of the sample.
    fresh : float
        Change of the log likelihood a step of sequences that neither model was fitted to.
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


@dataclass(frozen=True)
class Sample:
    """Sequences on which proposals are judged.

    Attributes
    ----------
    fitted : list of Chunk
        Sequences that a model is fitted to.
    check : list of Chunk
        Sequences that the bound counts too, but whose likelihood is that under a model fitted to
        the others.  Empty where there are too few sequences.
    data : Sequences
        All of them.
    n_sequences, n_steps, check_steps : int
    total_sequences : int
        N.
    """

    fitted: list[Chunk]
    check: list[Chunk]
    data: Sequences
    n_sequences: int
    n_steps: int
    check_steps: int
    total_sequences: int

    @property
    def copies(self) -> float:
        """How often the sample stands for itself: N/B, but at most `MOST_COPIES` times.

        What fits a sample by chance counts once a copy.  So a small sample of much data is judged
        as a smaller data set, in which fewer states can be told apart.
        """
        return min(MOST_COPIES, self.total_sequences / self.n_sequences)

    @classmethod
    def draw(
        cls,
        batches: Batches,
        family: Family,
        n_steps: float,
        total_sequences: int,
        engine: LocalBackend,
        most_states: int,
    ) -> Sample:
        """Take sequences from minibatches until there are about so many steps.

        They are put where the engine computes, for models of at most so many states.
        """
        taken: list[Sequences] = []
        missing = n_steps
        for part in (p for b in batches for p in ([b] if isinstance(b, Sequences) else b)):
            enough = int(np.searchsorted(part.offsets, missing))
            taken.append(part[: max(1, enough)] if enough < len(part) else part)
            missing -= taken[-1].n_steps
            if missing <= 0:
                break
        data = joined(taken)
        is_check = np.arange(len(data)) % _CHECK_EVERY == _CHECK_EVERY - 1
        fitted, check = (data.take(np.flatnonzero(part)) for part in (~is_check, is_check))
        return cls(
            list(engine.chunks(family, fitted, most_states)),
            list(engine.chunks(family, check, most_states)) if len(check) else [],
            data,
            len(data),
            data.n_steps,
            check.n_steps if len(check) else 0,
            total_sequences,
        )


class Fit(NamedTuple):
    """A posterior after local steps on a sample.

    Attributes
    ----------
    posterior : Posterior
        Expected counts of the sample.
    bound : float
        L(q), eq (13), as if the copies of the sample were all the data.
    check : array
        Log likelihood of each of the check's sequences under a model fitted to the others.
    shared : (K, K) array or None
        Entropies that pairs of states share, eq (22).
    """

    posterior: Posterior
    bound: float
    check: Floats
    shared: Floats | None


class Verdict(NamedTuple):
    """A proposal beside the present model.

    Attributes
    ----------
    gain, fresh : float
        As `Move` has them.
    variance : float
        Of all losses of fresh sequences, if this one is accepted.
    harmless : bool
        Whether fresh sequences would not have become less likely by moves: a bound from expected
        counts prefers few states where the model has not learned enough yet.  What may be chance
        is no harm.
    """

    gain: float
    fresh: float
    variance: float
    harmless: bool


class Trial(NamedTuple):
    """A proposal that may yet be accepted.

    Attributes
    ----------
    fit : Fit
    verdict : Verdict
    number : int
        Where it is recorded.
    """

    fit: Fit
    verdict: Verdict
    number: int

    def is_better_than(self, other: Trial | None) -> bool:
        """Whether it does no harm and gains more, or something if there is no other."""
        highest = 0.0 if other is None else other.verdict.gain
        return self.verdict.harmless and self.verdict.gain > highest


@dataclass
class Phase:
    """Proposals on one sample, within a budget of work.

    Attributes
    ----------
    start : Posterior
        That of the stream, which is first fitted to the sample.
    budget : float
        Work that may yet be spent.
    most_states : int
        Splits do not go beyond this.
    other_steps : float
        Steps that would take as long as what a local step does beside those of the sample.
    grows : bool
        Whether states are split, again and again.
    stage : {0, 1, 2}
        What is proposed otherwise: merges and small deletions; a split; a restart and large
        deletions.
    lost, variance : float
        What moves have cost so far, as `MoveState` has it.
    unfinished : bool
        Whether the budget ended a search for the best merges.
    present : Fit
        The model as it is now.
    groups : (K, K0) array or None
        What share of each state at the beginning the present ones have; None after a split.
    moves : list of Move
        Every proposal so far.
    """

    start: Posterior
    family: Family
    sample: Sample
    engine: LocalBackend
    rng: np.random.Generator
    budget: float
    most_states: int
    other_steps: float = 0.0
    grows: bool = False
    stage: int = 0
    lost: float = 0.0
    variance: float = 0.0
    unfinished: bool = field(default=False, init=False)
    present: Fit = field(init=False)
    groups: Floats | None = field(init=False)
    moves: list[Move] = field(default_factory=list, init=False)
    _baselines: dict[int, Fit] = field(init=False)
    _stream: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.present = self.fit(self.start, 1, shared=True)
        self.groups = np.eye(self.start.n_states)
        self._baselines = {0: self.present}
        self._stream = state_shares(self.start.counts)

    def run(self) -> None:
        """Make proposals of the stage's kind as long as the budget lasts.

        A model that began small splits as long as that gains something.  After merges training is
        to settle before anything else is tried: states may yet become different.
        """
        if self.grows:
            while self._split():
                pass
        elif self.stage == 0:
            self._merge()
            if not self.changed:
                self._delete()
        elif self.stage == 1:
            self._split()
        elif not self._restart():
            self._dissolve()

    @property
    def changed(self) -> bool:
        """Whether any proposal was accepted."""
        return any(move.accepted for move in self.moves)

    @property
    def n_states(self) -> int:
        """States of the present model."""
        return self.present.posterior.n_states

    @property
    def missed(self) -> set[int]:
        """States in use that the sample hardly has, and so cannot judge.

        Proposals after which the statistics are the sample's are not made then.
        """
        if self.groups is None:
            return set()
        expected = self.groups @ self._stream
        found = state_shares(self.present.posterior.counts)
        missing = (expected > USED_SHARE) & (found < _SEEN * expected)
        return {int(k) for k in np.flatnonzero(missing)}

    # ---- judging ----------------------------------------------------------------------------

    def fit(self, posterior: Posterior, n_times: int, *, shared: bool = False) -> Fit:
        """Take local steps on the sample, and evaluate the bound at the last of them."""
        self.budget -= self.cost(posterior.n_states, n_times)
        for _ in range(n_times - 1):
            sums = self._sums(posterior, self._whole)
            posterior = self._with(sums, posterior, refit=True)
        sums = self._sums(posterior, self.sample.fitted, entropy=True, shared=shared)
        own = self._with(sums, posterior) if self.sample.check else None
        if own is not None:
            sums += self._sums(posterior, self.sample.check, entropy=True, shared=shared)
        posterior = self._with(sums, posterior, refit=True)
        copies = self.sample.copies
        bound = COLLAPSED_BOUND.compute(posterior, self.family, sums, copies)
        check: Floats = np.zeros(0)
        if own is not None:
            # A prior that is fitted to all of the sample says next to nothing of the check.
            check = self._check(replace(own, transitions=posterior.transitions))
        pairs = None if sums.shared is None else copies * to_host(sums.shared)
        return Fit(posterior, bound, check, pairs)

    def _sums(self, posterior: Posterior, chunks: list[Chunk], **options: bool) -> BatchSums:
        return expected_statistics(
            posterior, self.family, COLLAPSED, chunks, self.engine, **options
        )

    @cached_property
    def _whole(self) -> list[Chunk]:
        """All of the sample, for steps after which nothing is judged."""
        data = self.sample.data
        return list(self.engine.chunks(self.family, data, self.most_states))

    def _with(self, sums: BatchSums, before: Posterior, *, refit: bool = False) -> Posterior:
        """Return the posterior with statistics of the sample alone, times its copies."""
        copies = self.sample.copies
        counts = Rows(copies * sums.start, copies * sums.transitions)
        statistics = sums.emissions.dense().T
        emissions = copies * namespace(statistics).astype(statistics, "float64")
        return replace(
            before,
            counts=counts,
            emissions=before.emissions.refilled(emissions),
            transitions=_refitted(before.transitions, counts) if refit else before.transitions,
        )

    def _check(self, posterior: Posterior) -> Floats:
        """Log likelihood of each of the check's sequences."""
        potentials = posterior.transitions.means(posterior.counts)
        chunks = chunk_potentials(
            posterior, self.family, self.sample.check, potentials, self.engine, collapsed=True
        )
        parts = [self.engine.log_normalizers(*part) for part in chunks]
        return np.concatenate([to_host(part).astype(np.float64) for part in parts])

    def cost(self, n_states: int, n_times: int) -> float:
        """Work of so many local steps, with the bound at the last of them."""
        steps = self.sample.n_steps + self.other_steps
        return (n_times + LAST_STEP) * steps * step_work(n_states)

    def affords(self, n_states: int, n_steps: int, n_more: int) -> bool:
        """Whether a proposal of so many steps can be paid, and a baseline of `n_more` steps."""
        cost, missing = self.cost(n_states, n_steps), n_more - self._known(n_more)
        return cost + (self.cost(self.n_states, missing) if missing else 0.0) <= self.budget

    def baseline(self, n_times: int) -> Fit:
        """Return the present model after so many local steps more."""
        known = self._known(n_times)
        if known < n_times:
            begin = self._baselines[known].posterior
            self._baselines[n_times] = self.fit(begin, n_times - known)
        return self._baselines[n_times]

    def _known(self, n_times: int) -> int:
        """Most steps, up to so many, after which the present model is known."""
        return max(n for n in self._baselines if n <= n_times)

    def judge(
        self,
        kind: Kind,
        states: list[list[int]],
        proposed: Fit,
        n_times: int,
        weights: Floats | None,
        *,
        wanted: bool = True,
    ) -> bool:
        """Accept a proposal, or not; record it."""
        verdict = self.compare(proposed, n_times)
        accepted = wanted and verdict.gain > 0.0 and verdict.harmless
        if accepted:
            self._accept(proposed, verdict, weights)
        self.moves.append(Move(kind, states, verdict.gain, verdict.fresh, accepted, self.n_states))
        return accepted

    def compare(self, proposed: Fit, n_times: int) -> Verdict:
        """Compare a proposal with the present model, both after equally many local steps."""
        base = self.baseline(n_times)
        differences = (proposed.check - base.check) / max(1, self.sample.check_steps)
        lost, variance = self.lost + float(differences.sum()), self.variance
        enough = len(differences) >= _ENOUGH_SEQUENCES
        variance += float(len(differences) * differences.var()) if enough else HARM**2
        harmless = lost + _ERRORS * np.sqrt(variance) >= -HARM
        return Verdict(proposed.bound - base.bound, lost - self.lost, variance, bool(harmless))

    def _accept(self, proposed: Fit, verdict: Verdict, weights: Floats | None) -> None:
        self.present = proposed
        self.lost, self.variance = min(0.0, self.lost + verdict.fresh), verdict.variance
        if self.groups is not None:
            self.groups = None if weights is None else weights @ self.groups
        self._baselines = {0: proposed}

    # ---- kinds of moves ---------------------------------------------------------------------

    def _regrouped(self, weights: Floats, n_more: int = 0) -> tuple[Fit, int] | None:
        """Fit other states, each a sum of present ones; say how many steps more they have had.

        They begin in the stream, as the present ones did, and then need no step more; or else
        with what the sample has of the present ones.  None where the budget does not last.
        """
        from_sample = self.groups is None
        if not self.affords(len(weights), n_more + 1, n_more + from_sample):
            return None
        if self.groups is None:
            begin = self.present.posterior.regrouped(weights)
        else:
            begin = self.start.regrouped(weights @ self.groups)
        return self.fit(begin, n_more + 1, shared=True), n_more + from_sample

    def _merge(self) -> None:
        """Merge states, as many together as the bound wants.

        First all are that may gain something, or else the pair that loses least.
        """
        while self.n_states > 1:
            shared = self.present.shared
            assert shared is not None
            self.budget -= chain_work(self.n_states, self.family.n_statistics)
            present, kept = self.present.posterior, self.missed
            chain = list(merge_chain(self.family, present, shared, kept, open_only=True))
            if not chain:
                return
            if not self._merge_along(chain):
                # States that take turns need time to become one.
                hopeless = self.unfinished or self.moves[-1].fresh < -10.0 * HARM
                if hopeless or self.changed or not self._merge_slowly(chain[0]):
                    return

    def _merge_along(self, chain: list[Merge]) -> bool:
        """Make the first merges of a chain, so many that the bound is highest.

        It rises slowly with them, and falls fast from where states differ.
        """
        fewest, most, size = 0, len(chain) + 1, len(chain)
        best: Trial | None = None
        while most - fewest > 1 and (trial := self._try_merges(chain[size - 1])):
            if trial.is_better_than(best):
                fewest, best = size, trial
            else:
                most = size
            size = (fewest + most) // 2
        # All of them may be one too many.
        while best is not None and 1 < fewest == len(chain):
            fewer = self._try_merges(chain[fewest - 2])
            if fewer is None or not fewer.is_better_than(best):
                break
            chain, fewest, best = chain[:-1], fewest - 1, fewer
        if best is None:
            return False
        self._accept(best.fit, best.verdict, chain[fewest - 1].groups)
        made = self.moves[best.number]
        self.moves[best.number] = made._replace(accepted=True, n_states=self.n_states)
        return True

    def _try_merges(self, merge: Merge) -> Trial | None:
        """Compare a model after merges with the present one, and record that, as refused."""
        tried = self._regrouped(merge.groups)
        if tried is None:
            self.unfinished = True
            return None
        verdict = self.compare(*tried)
        self.moves.append(
            Move("merge", merge.states, verdict.gain, verdict.fresh, False, self.n_states)
        )
        return Trial(tried[0], verdict, len(self.moves) - 1)

    def _merge_slowly(self, merge: Merge) -> bool:
        """Propose a merge with more local steps."""
        tried = self._regrouped(merge.groups, _MORE_STEPS - 1)
        return tried is not None and self.judge("merge", merge.states, *tried, merge.groups)

    def _delete(self) -> None:
        """Leave small states out, whose steps then go to the others."""
        refused: set[int] = set()
        while len(refused) < _PATIENCE:
            shares = state_shares(self.present.posterior.counts)
            kept = refused | self.missed
            by_mass = [int(k) for k in np.argsort(shares, kind="stable") if k not in kept]
            small = [k for k in by_mass if shares[k] < _SMALL]
            if not small or self.n_states == 1:
                return
            weights = np.delete(np.eye(self.n_states), small[0], axis=0)
            if (tried := self._regrouped(weights)) is None:
                return
            if self.judge("delete", [[small[0]]], *tried, weights):
                refused.clear()
            else:
                refused.add(small[0])

    def _dissolve(self) -> None:
        """Leave a state out that is between others, and has steps of theirs.

        It is one of which most is uncertain.  The sample says where its steps go.
        """
        shared = self.present.shared
        assert shared is not None
        if self.missed or self.n_states == 1:
            return
        masses = np.maximum(state_masses(self.present.posterior.counts), 1e-300)
        doubt = (shared + shared.T).sum(axis=1) / masses
        for state in np.argsort(-doubt, kind="stable")[:_PATIENCE]:
            weights = np.delete(np.eye(self.n_states), state, axis=0)
            if not self.affords(len(weights), _MORE_STEPS, _MORE_STEPS):
                return
            begin = self.present.posterior.regrouped(weights)
            proposed = self.fit(begin, _MORE_STEPS, shared=True)
            if self.judge("delete", [[int(state)]], proposed, _MORE_STEPS, None):
                return

    def _restart(self) -> bool:
        """Forget which state follows which, eq (25), and merge what does not differ without that.

        Several states may stand for one by taking turns: no two of them can be merged without a
        loss, because the others' rows expect the turns.
        """
        n_steps = _MORE_STEPS + _PRUNINGS
        if self.missed or not self.affords(self.n_states, n_steps, n_steps):
            return False
        before = self.present.posterior.fetched()
        start, transitions = before.counts
        shares = state_shares(before.counts)
        counts = Rows(start.sum() * shares, np.outer(transitions.sum(axis=1), shares))
        fresh = replace(before, counts=counts, transitions=before.transitions.refitted(counts))
        fresh = self._placed(fresh)
        proposed, n_times = self._pruned(self.fit(fresh, _MORE_STEPS, shared=True), _MORE_STEPS)
        return self.judge("restart", [], proposed, n_times, None)

    def _split(self) -> bool:
        """Split states, large ones more likely, and merge again what does not differ.

        What a merge is sure to gain, or nearly, says which of the states then differ.  The number
        of states need not grow, but for a model that grows: other states may be better ones.
        """
        n_states = self.n_states
        plan = SplitPlan.of(self.family)
        n_steps, room = plan.n_steps, plan.room(n_states, self.most_states)
        while room > 0 and not self.affords(
            n_states + room, n_steps + _PRUNINGS, n_steps + _PRUNINGS
        ):
            room //= 2
        if room <= 0 or self.missed:
            return False
        # Empty states cannot be chosen, and are not worth it.
        shares = state_shares(self.present.posterior.counts)
        n_split = min(room, int((shares > 0.0).sum()))
        chosen = self.rng.choice(n_states, n_split, replace=False, p=shares)
        groups = [[int(k)] for k in chosen]
        for n in range(room):
            groups[n % n_split].append(n_states + n)
        # New parts are drawn from data in memory, whatever else runs on a device.
        whole = self.present.posterior.fetched()
        parts = self._placed(split_posterior(whole, self.family, self._runs(), groups, self.rng))
        proposed, n_times = self._pruned(self.fit(parts, n_steps, shared=True), n_steps)
        wanted = not self.grows or proposed.posterior.n_states > n_states
        states = [[group[0]] for group in groups]
        return self.judge("split", states, proposed, n_times, None, wanted=wanted)

    def _placed(self, posterior: Posterior) -> Posterior:
        """Put a posterior where the sample is."""
        return self.engine.place(posterior)

    def _pruned(self, proposed: Fit, n_times: int) -> tuple[Fit, int]:
        """Merge states of a proposal that do not differ, or hardly; count its local steps."""
        least = -HARM * self.sample.copies * self.sample.n_steps
        for _ in range(_PRUNINGS):
            assert proposed.shared is not None
            groups = None
            for merge in merge_chain(self.family, proposed.posterior, proposed.shared):
                if merge.gain <= least:
                    break
                groups = merge.groups
            if groups is None:
                break
            proposed = self.fit(proposed.posterior.regrouped(groups), 1, shared=True)
            n_times += 1
        return proposed, n_times

    def _runs(self) -> Callable[[int], Sequences | None]:
        """Return a function that gives the steps of a state, each unbroken run a sequence."""
        posterior = self.present.posterior
        chunk = max(self.sample.fitted, key=lambda c: c.sequences.n_steps)
        potentials = self.engine.transition_potentials(posterior, COLLAPSED)
        _, factors, index = next(
            chunk_potentials(
                posterior, self.family, [chunk], potentials, self.engine, collapsed=True
            )
        )
        smoothed = self.engine.forward_backward(chunk, factors, index)
        path = to_host(smoothed.responsibilities.argmax(1))
        sequences = self.engine.host_sequences(chunk)
        return lambda state: runs_of(sequences, path, state)


def _refitted(transitions: Transitions, counts: Rows) -> Transitions:
    """Fit the prior to counts, on the host: small arrays take a device longer to launch things."""
    if not is_tensor(counts.start):
        return transitions.refitted(counts)
    xp, like = namespace(counts.start), counts.start
    fitted = transitions.converted(fetched).refitted(Rows(*map(fetched, counts)))
    return fitted.converted(lambda part: xp.placed(np.asarray(part, dtype=np.float64), like=like))


# ---- what it costs ------------------------------------------------------------------------------


def split_work(n_states: int, room: int, plan: SplitPlan) -> float:
    """Work for each step of the sample to split so many states off, and for its baseline."""
    return _pruned_work(plan.n_steps, n_states, n_states + room)


def restart_work(n_states: int) -> float:
    """Work for each step of the sample to restart, and for its baseline."""
    return _pruned_work(_MORE_STEPS, n_states, n_states)


def _pruned_work(n_steps: int, n_states: int, n_proposed: int) -> float:
    """Work for each step of the sample, of local steps and merges after them, and a baseline."""
    steps = 1 + LAST_STEP + n_steps + _PRUNINGS + LAST_STEP
    proposed = n_steps + LAST_STEP + _PRUNINGS * (1 + LAST_STEP)
    return steps * step_work(n_states) + proposed * step_work(n_proposed)
