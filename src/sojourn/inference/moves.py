"""Merge, delete and split states, judged by the collapsed bound, eqs (21), (22) and (25).

A phase takes a sample of sequences and a budget of work.  A proposal is a posterior with other
states; it gets local steps on the sample, and so does the present one, equally many: otherwise the
progress of training would be taken for a gain of the move.  The sample only judges: states that
are merged or deleted are so in the statistics of the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from sojourn.families import Family
from sojourn.inference.bound import COLLAPSED_BOUND
from sojourn.inference.local import (
    Chunk,
    Engine,
    chunk_potentials,
    expected_statistics,
    transition_potentials,
)
from sojourn.inference.objective import COLLAPSED
from sojourn.inference.occupancy import USED_SHARE, state_masses, state_shares
from sojourn.inference.posterior import MOVE_SHARE, MoveState, Posterior, fetched, sent, work
from sojourn.inference.statistics import BatchSums
from sojourn.kernels.arrays import is_tensor, namespace, to_host
from sojourn.kernels.interface import Floats, Integers
from sojourn.sequences import Sequences
from sojourn.sources.base import Minibatches, joined
from sojourn.transitions import Rows, Transitions
from sojourn.transitions.merging import merge_gains

Kind = Literal["merge", "delete", "split", "restart"]
Pair = tuple[int, int]
Batches = Iterable[Sequences | Iterable[Sequences]]

HARM = 0.0015
"""Nats a step that one merge, deletion or split may cost in the likelihood of fresh sequences."""

MOST_COPIES = 4.0
"""How often a sample may stand for itself, of more data than that."""

_MOST_STEPS = 2**18  # a sample needs no more
_STATE_STEPS = 2**9  # steps a state that are enough, where the data have them more than once
_ALONE_STEPS = 2**13  # steps of a minibatch that `partial_fit` may judge on
_CHECK_EVERY = 4  # one sequence in so many is only for checking
_PROPOSALS = 18  # local steps on the sample that a phase must be able to pay
_MORE_STEPS = 4  # local steps for a merge or a deletion that one is not enough for, or a restart
_LAST_STEP = 2  # local steps that it takes about as long as to evaluate the bound
_PRUNINGS = 2  # times that states are merged after a split, before it is judged
_PATIENCE = 3  # refusals in a row that end a round
_FIRST_PHASE = (0.15, 0.35)  # shares of the passes before the first phase: of many, of few
_FIRST_PASSES = 4  # passes that are enough before it, where there are not many
_FEW_PASSES, _MANY_PASSES = 8, 40  # in between, moves that succeed spend as if there were many
_ENOUGH_STEPS = 2**12  # steps of data from which they do
_SETTLING = 10  # passes that make good what many merges cost
_SEEN = 0.1  # share of what a state has in the stream that a sample must have of it
_SMALL = 0.02  # share of the mass below which a state may be deleted
_MANY_STATISTICS = 1000  # from here on pairs are first sifted by the overlap of their counts


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


# ---- proposals ----------------------------------------------------------------------------------


def merge_weights(n_states: int, pairs: Iterable[Pair]) -> Floats:
    """Weights that add the second state of each pair to the first.

    Examples
    --------
    >>> merge_weights(3, [(0, 2)])
    array([[1., 0., 1.],
           [0., 1., 0.]])
    """
    weights, gone = np.eye(n_states), []
    for keep, other in pairs:
        weights[keep] += weights[other]
        gone.append(other)
    return np.delete(weights, gone, axis=0)


def rank_pairs(family: Family, posterior: Posterior, shared: Floats) -> list[tuple[float, Pair]]:
    """Pairs of states with the gain that a merge is sure to have, the largest first, eq (22).

    It is the change of the evidence of emissions and transitions, less the entropy `shared` by
    the two states.
    """
    family = posterior.learned(family)
    emissions = posterior.emissions.dense()
    xp = namespace(emissions)
    emissions = xp.astype(emissions, "float64")
    first, second = np.triu_indices(len(emissions), 1)
    gains = -shared[first, second]
    gains += to_host(merge_gains(posterior.transitions, posterior.counts, first, second))
    if family.statistics_are_counts and emissions.shape[1] > _MANY_STATISTICS:
        overlap = to_host(_overlaps(emissions))[first, second]
        likely = np.sort(np.argsort(-overlap, kind="stable")[: 2 * len(emissions)])
        first, second, gains = first[likely], second[likely], gains[likely]
    alone = _log_normalizers(family, emissions)
    nothing = _log_normalizers(family, 0.0 * emissions[:1])
    gains -= alone[first] + alone[second] - nothing
    for at in _blocks(len(first), emissions.shape[1]):
        one, other = (xp.placed(part[at], like=emissions) for part in (first, second))
        gains[at] += _log_normalizers(family, emissions[one] + emissions[other])
    order = np.argsort(-gains, kind="stable")
    return [(float(gains[n]), (int(first[n]), int(second[n]))) for n in order]


def _log_normalizers(family: Family, emissions: Floats) -> Floats:
    xp = namespace(emissions)
    return to_host(family.log_normalizer(xp.placed(family.prior(), like=emissions) + emissions))


def _overlaps(counts: Floats) -> Floats:
    """Bhattacharyya coefficients of the states' shares."""
    xp = namespace(counts)
    shares = xp.sqrt(xp.clip(counts, 0.0, None))
    shares /= xp.sqrt(xp.clip((shares * shares).sum(axis=1), 1e-300, None))[:, None]
    return shares @ shares.T


def _blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Cut rows into blocks of some megabytes."""
    size = max(1, 2**20 // max(n_columns, 1))
    return (slice(begin, begin + size) for begin in range(0, n_rows, size))


def disjoint(ranked: list[tuple[float, Pair]], size: int) -> list[Pair]:
    """Take the best pairs, so many of them at most, that share no state.

    Examples
    --------
    >>> disjoint([(5.0, (0, 1)), (4.0, (1, 2)), (3.0, (2, 3)), (-1.0, (4, 5))], 2)
    [(0, 1), (2, 3)]
    """
    used: set[int] = set()
    chosen: list[Pair] = []
    for _, pair in ranked:
        if len(chosen) == size:
            break
        if used.isdisjoint(pair):
            used.update(pair)
            chosen.append(pair)
    return chosen


class SplitPlan(NamedTuple):
    """How states are split.

    Attributes
    ----------
    n_parts : int
        States that one is split into at most.
    n_steps : int
        Local steps that the parts get to become different.
    """

    n_parts: int
    n_steps: int

    @classmethod
    def of(cls, family: Family) -> SplitPlan:
        """Return the plan for a family: parts of a state of symbols begin at random."""
        return cls(3, 10) if family.statistics_are_counts else cls(2, 5)

    def room(self, n_states: int, most_states: int) -> int:
        """States to add: every state is split, as far as there may be so many."""
        return max(0, min((self.n_parts - 1) * n_states, most_states - n_states))

    def work(self, n_states: int, room: int) -> float:
        """Work for each step of the sample to split so many states off, and for its baseline."""
        return _pruned_work(self.n_steps, n_states, n_states + room)


def _pruned_work(n_steps: int, n_states: int, n_proposed: int) -> float:
    """Work for each step of the sample, of local steps and merges after them, and a baseline."""
    first = work(1 + _LAST_STEP, n_states)
    proposal = work(n_steps + _LAST_STEP + _PRUNINGS * (1 + _LAST_STEP), n_proposed)
    return first + proposal + work(n_steps + _PRUNINGS + _LAST_STEP, n_states)


def split_posterior(
    posterior: Posterior,
    family: Family,
    runs: Callable[[int], Sequences | None],
    groups: list[list[int]],
    rng: np.random.Generator,
) -> Posterior:
    """Split states: emissions as a start with so many states has them, transitions alike.

    Symbols that occur together are a start, "segments", that some states cannot be told apart by;
    so half of the times each symbol is shared among the parts at random, as "exponential" does.

    Parameters
    ----------
    runs : callable
        Gives the steps that are in a state, as sequences; None for none.
    groups : list of lists of int
        A state, and the numbers of those to be split off from it.
    """
    n_states = posterior.n_states
    weights = np.eye(n_states + sum(len(group) - 1 for group in groups), n_states)
    for group in groups:
        weights[group] = 0.0
        weights[group, group[0]] = 1.0 / len(group)
    split = posterior.regrouped(weights)
    emissions = split.emissions.dense().astype(np.float64)
    mass = state_masses(posterior.counts)
    by_chance = family.statistics_are_counts and rng.random() < 0.5
    for group in groups:
        if by_chance:
            shares = rng.exponential(size=emissions[group].shape)
            emissions[group] *= len(group) * shares / shares.sum(axis=0)
        elif (own := runs(group[0])) is not None:
            parts = family.segment_statistics(own, len(group), float(mass[group[0]]), rng)
            emissions[group] = np.asarray(parts, dtype=np.float64)
    # A little noise tells the parts from one another where only their neighbours differ.
    start, transitions = (part * rng.uniform(0.8, 1.2, part.shape) for part in split.counts)
    return replace(
        split,
        counts=Rows(start, transitions),
        emissions=posterior.emissions.refilled(emissions),
    )


def _refitted(transitions: Transitions, counts: Rows) -> Transitions:
    """Fit the prior to counts, on the host: small arrays take a device longer to launch things."""
    if not is_tensor(counts.start):
        return transitions.refitted(counts)
    device = cast(Any, counts.start).device
    fitted = transitions.converted(fetched).refitted(Rows(*map(fetched, counts)))
    return fitted.converted(lambda part: sent(part, device))


# ---- a phase ------------------------------------------------------------------------------------


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
    n_sequences, n_steps, check_steps : int
    total_sequences : int
        N.
    """

    fitted: list[Chunk]
    check: list[Chunk]
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
        engine: Engine,
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
    check : float
        Log likelihood a step of the check's sequences under a model fitted to the others.
    shared : (K, K) array or None
        Entropies that pairs of states share, eq (22).
    """

    posterior: Posterior
    bound: float
    check: float
    shared: Floats | None


@dataclass
class Phase:
    """Proposals on one sample, within a budget of work.

    Attributes
    ----------
    start : Posterior
        That of the stream, which is first fitted to the sample.
    most_states : int
        Splits do not go beyond this.
    grows : bool
        Whether splits come first.
    stage : {0, 1, 2}
        What is proposed: merges and small deletions; a split; a restart and large deletions.
    settles : bool
        Whether many passes are to come.
    present : Fit
        The model as it is now.
    groups : (K, K0) array or None
        What share of each state at the beginning the present ones have; None after a split.
    moves : list of Move
        Every proposal so far.
    """

    start: InitVar[Posterior]
    family: Family
    sample: Sample
    engine: Engine
    rng: np.random.Generator
    budget: float
    most_states: int
    grows: bool = False
    stage: int = 0
    settles: bool = False
    present: Fit = field(init=False)
    groups: Floats | None = field(init=False)
    moves: list[Move] = field(default_factory=list, init=False)
    _baselines: dict[int, Fit] = field(default_factory=dict, init=False)
    _stream: Floats = field(init=False)

    def __post_init__(self, start: Posterior) -> None:
        self.present = self.fit(start, 1, shared=True)
        self.groups = np.eye(start.n_states)
        self._stream = state_shares(start.counts)

    def run(self) -> None:
        """Make proposals of the stage's kind as long as the budget lasts.

        A model that began small splits as long as that gains something.
        """
        if self.grows:
            while self._split():
                pass
            if self.changed:
                return
        if self.stage == 0:
            self._merge()
            self._delete()
        elif self.stage == 2:
            if not self._restart():
                self._dissolve()
        elif not self.grows:
            self._split()

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
        for n in range(n_times):
            last = n == n_times - 1
            parts = [
                expected_statistics(
                    posterior,
                    self.family,
                    COLLAPSED,
                    chunks,
                    self.engine,
                    entropy=last,
                    shared=last and shared,
                )
                for chunks in (self.sample.fitted, self.sample.check)
                if chunks
            ]
            own = self._posterior(parts[0], posterior) if last and self.sample.check else None
            sums = parts[0]
            for part in parts[1:]:
                sums += part
            posterior = self._posterior(sums, posterior)
        copies = self.sample.copies
        bound = COLLAPSED_BOUND.compute(posterior, self.family, sums, copies)
        check = 0.0 if own is None else self._check(own)
        pairs = None if sums.shared is None else copies * to_host(sums.shared)
        return Fit(posterior, bound, check, pairs)

    def _posterior(self, sums: BatchSums, before: Posterior) -> Posterior:
        """Return the posterior with the statistics of the sample alone, times its copies."""
        copies = self.sample.copies
        counts = Rows(copies * sums.start, copies * sums.transitions)
        statistics = sums.emissions.dense().T
        emissions = copies * namespace(statistics).astype(statistics, "float64")
        return replace(
            before,
            counts=counts,
            emissions=before.emissions.refilled(emissions),
            transitions=_refitted(before.transitions, counts),
        )

    def _check(self, posterior: Posterior) -> float:
        """Log likelihood a step of the check's sequences."""
        potentials = posterior.transitions.means(posterior.counts)
        chunks = chunk_potentials(
            posterior, self.family, self.sample.check, potentials, self.engine, collapsed=True
        )
        total = sum(
            float(
                self.engine.kernel.log_normalizers(
                    factors, index, chunk.sequences.offsets, n_threads=self.engine.n_threads
                ).sum()
            )
            for chunk, factors, index in chunks
        )
        return total / self.sample.check_steps

    def cost(self, n_states: int, n_times: int) -> float:
        """Work of so many local steps, with the bound at the last of them."""
        return work((n_times + _LAST_STEP) * self.sample.n_steps, n_states)

    def affords(self, n_states: int, n_times: int) -> bool:
        """Whether the budget lasts for a proposal of so many states, and its baseline."""
        cost = self.cost(n_states, n_times)
        if n_times not in self._baselines:
            cost += self.cost(self.n_states, n_times - max(self._before(n_times), default=0))
        return cost <= self.budget

    def baseline(self, n_times: int) -> Fit:
        """Return the present model after as many local steps as a proposal gets."""
        if n_times not in self._baselines:
            done = max(self._before(n_times), default=0)
            begin = self._baselines[done] if done else self.present
            self._baselines[n_times] = self.fit(begin.posterior, n_times - done)
        return self._baselines[n_times]

    def _before(self, n_times: int) -> list[int]:
        """Numbers of steps below this one after which the present model is known."""
        return [n for n in self._baselines if n < n_times]

    def judge(
        self,
        kind: Kind,
        states: list[list[int]],
        proposed: Fit,
        n_times: int,
        weights: Floats | None,
        least: float = 0.0,
    ) -> bool:
        """Compare a proposal with the present model, both after equally many local steps.

        It is accepted if the bound rises and fresh sequences do not become less likely: a bound
        from expected counts prefers few states where the model has not learned enough yet.  What
        many merges cost together, passes to come make good, if there are enough of them.
        """
        base = self.baseline(n_times)
        gain, fresh = proposed.bound - base.bound, proposed.check - base.check
        harm = HARM * (np.sqrt(max(1, len(states))) if self.settles else 1.0)
        accepted = bool(gain > least and fresh >= -harm)
        if accepted:
            self.present = proposed
            if self.groups is not None:
                self.groups = None if weights is None else weights @ self.groups
            self._baselines.clear()
        self.moves.append(Move(kind, states, gain, fresh, accepted, self.n_states))
        return accepted

    # ---- kinds of moves ---------------------------------------------------------------------

    def _regroup(
        self,
        kind: Kind,
        states: list[list[int]],
        weights: Floats,
        n_times: int,
        least: float = 0.0,
        *,
        in_stream: bool = True,
    ) -> bool:
        """Propose other states, each a sum of present ones, if the budget lasts.

        In the stream they are the same sums, or else what the sample has of them.
        """
        if not self.affords(len(weights), n_times):
            return False
        proposed = self.fit(self.present.posterior.regrouped(weights), n_times, shared=True)
        return self.judge(kind, states, proposed, n_times, weights if in_stream else None, least)

    def _merge(self) -> None:
        """Merge pairs, several at a time: twice as many after a success, half after a refusal.

        Several must gain, each on average, half of what the last ones did: a few that lose much
        would otherwise pass among many that gain.
        """
        refused: set[Pair] = set()
        ranked: list[tuple[float, Pair]] | None = None
        misses, size, usual = 0, 0, 0.0
        while misses < _PATIENCE and self.n_states > 1 and self.affords(self.n_states - 1, 1):
            if ranked is None:
                assert self.present.shared is not None
                ranked = rank_pairs(self.family, self.present.posterior, self.present.shared)
                missed = self.missed
                ranked = [entry for entry in ranked if missed.isdisjoint(entry[1])]
                sure = disjoint([entry for entry in ranked if entry[0] > 0.0], self.n_states)
                size = len(sure) or max(size, self.n_states // 4, 1)
            left = [entry for entry in ranked if entry[1] not in refused]
            pairs = disjoint(left, min(size, max(1, self.n_states // 3)))
            if not pairs:
                return
            weights = merge_weights(self.n_states, pairs)
            states = [list(pair) for pair in pairs]
            least = 0.0 if len(pairs) <= max(1, len(sure)) else 0.5 * usual * len(pairs)
            accepted = self._regroup("merge", states, weights, 1, least)
            hopeless = self.moves[-1].fresh < -10.0 * HARM
            if not accepted and len(pairs) == 1 and not hopeless:
                # States that take turns need time to become one.
                accepted = self._regroup("merge", states, weights, _MORE_STEPS)
            if accepted:
                ranked, misses, size = None, 0, 2 * len(pairs)
                usual = self.moves[-1].gain / len(pairs)
                refused.clear()
            elif len(pairs) > 1:
                size = len(pairs) // 2
            else:
                refused.add(pairs[0])
                # Those ranked below lose more: after a clear loss no other is tried.
                misses += _PATIENCE if hopeless else 1

    def _delete(self) -> None:
        """Leave small states out, whose steps then go to the others."""
        refused: set[int] = set()
        while len(refused) < _PATIENCE and self.affords(self.n_states - 1, 1):
            shares = state_shares(self.present.posterior.counts)
            kept = refused | self.missed
            by_mass = [int(k) for k in np.argsort(shares, kind="stable") if k not in kept]
            small = [k for k in by_mass if shares[k] < _SMALL]
            if not small or self.n_states == 1:
                return
            weights = np.delete(np.eye(self.n_states), small[0], axis=0)
            if self._regroup("delete", [[small[0]]], weights, 1):
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
            own = [[int(state)]]
            if self._regroup("delete", own, weights, _MORE_STEPS, in_stream=False):
                return

    def _restart(self) -> bool:
        """Forget which state follows which, eq (25), and merge what does not differ without that.

        Several states may stand for one by taking turns: no two of them can be merged without a
        loss, because the others' rows expect the turns.
        """
        if self.missed or not self.affords(self.n_states, _MORE_STEPS + _PRUNINGS):
            return False
        before = self.present.posterior.to_host()
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
        of states need not grow: other states may be better ones.
        """
        n_states = self.n_states
        plan = SplitPlan.of(self.family)
        n_steps, room = plan.n_steps, plan.room(n_states, self.most_states)
        while room > 0 and not self.affords(n_states + room, n_steps + _PRUNINGS):
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
        whole = self.present.posterior.to_host()
        parts = self._placed(split_posterior(whole, self.family, self._runs(), groups, self.rng))
        proposed, n_times = self._pruned(self.fit(parts, n_steps, shared=True), n_steps)
        return self.judge("split", [[group[0]] for group in groups], proposed, n_times, None)

    def _placed(self, posterior: Posterior) -> Posterior:
        """Put a posterior where the sample is."""
        device = self.engine.device
        return posterior if device is None else posterior.to_device(device)

    def _pruned(self, proposed: Fit, n_times: int) -> tuple[Fit, int]:
        """Merge states of a proposal that do not differ, or hardly; count its local steps."""
        least = -HARM * self.sample.copies * self.sample.n_steps
        for _ in range(_PRUNINGS):
            assert proposed.shared is not None
            ranked = rank_pairs(self.family, proposed.posterior, proposed.shared)
            alike = disjoint([entry for entry in ranked if entry[0] > least], self.n_states)
            if not alike:
                break
            weights = merge_weights(proposed.posterior.n_states, alike)
            proposed = self.fit(proposed.posterior.regrouped(weights), 1, shared=True)
            n_times += 1
        return proposed, n_times

    def _runs(self) -> Callable[[int], Sequences | None]:
        """Return a function that gives the steps of a state, each unbroken run a sequence."""
        posterior = self.present.posterior
        chunk = max(self.sample.fitted, key=lambda c: c.sequences.n_steps)
        potentials = transition_potentials(posterior, COLLAPSED, self.engine)
        _, factors, index = next(
            chunk_potentials(
                posterior, self.family, [chunk], potentials, self.engine, collapsed=True
            )
        )
        smoothed = self.engine.kernel.forward_backward(
            factors, index, chunk.sequences.offsets, n_threads=self.engine.n_threads
        )
        path = to_host(smoothed.responsibilities.argmax(1))
        sequences = chunk.sequences if self.engine.device is None else chunk.sequences.host()
        return lambda state: _runs_of(sequences, path, state)


def _runs_of(sequences: Sequences, path: Integers, state: int) -> Sequences | None:
    """Steps in a state, each unbroken run a sequence; None for less than four steps."""
    inside = path == state
    if inside.sum() < 4:
        return None
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    begins[sequences.offsets[:-1]] |= inside[sequences.offsets[:-1]]
    starts = np.flatnonzero(begins[inside])
    return Sequences(sequences.values[inside], np.append(starts, int(inside.sum())))


def by_size(posterior: Posterior) -> Posterior:
    """Return the posterior with the largest state first."""
    order = np.argsort(-state_masses(posterior.counts), kind="stable")
    return posterior.regrouped(np.eye(posterior.n_states)[order])


# ---- in the stream ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moves:
    """Whether and how the number of states may change.

    Attributes
    ----------
    most_states : int
        Upper bound on the number of states.
    seed : int
    engine : Engine
        Proposals are judged in this process, wherever training runs.
    source : Minibatches, optional
        The data that training sees, to take samples from.
    grows : bool
        Whether training began with fewer states than that.
    """

    most_states: int
    seed: int
    engine: Engine
    source: Minibatches | None = None
    grows: bool = False

    def after_pass(
        self, posterior: Posterior, family: Family, n_pass: int, n_passes: int
    ) -> list[dict[str, Any]]:
        """Make proposals after pass `n_pass`, counted from 0, if it is time; see `phase`."""
        if not self.in_pass(n_pass, n_passes):
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
            spends=max(1.0, _MANY_PASSES / n_passes) if n_passes >= _FEW_PASSES else 1.0,
        )

    def in_pass(self, n_pass: int, n_passes: int) -> bool:
        """Whether states may change at the end of pass `n_pass`, counted from 0.

        At first they have yet to become different, and at last the model is to settle.  A start
        with fewer states than there may be grows from the first pass on.
        """
        early, late = (int(np.ceil(share * n_passes)) for share in _FIRST_PHASE)
        first = 1 if self.grows else max(early, min(late, _FIRST_PASSES))
        return first <= n_pass + 1 <= n_passes - max(1, n_passes // 10)

    def takes(self, n_steps: int, posterior: Posterior) -> bool:
        """Whether a minibatch that comes alone is large enough to judge on."""
        return n_steps >= min(_ALONE_STEPS, float(state_masses(posterior.counts).sum()) / 8)

    def phase(
        self,
        posterior: Posterior,
        family: Family,
        batches: Batches,
        total_sequences: int,
        *,
        passes_to_come: float = 0.0,
        spends: float = 1.0,
    ) -> list[dict[str, Any]]:
        """Make proposals on a sample from `batches`, if it is time; move the posterior in place.

        There is a phase a pass at most, and fewer where the budget does not last for more.

        Parameters
        ----------
        passes_to_come : float
            Passes that training will yet take.  A model that grows spends their share ahead: they
            will be taken with the states that there are, or more.
        spends : float
            What is spent for each unit of work that was earned, as long as moves succeed and there
            are enough data.

        Returns
        -------
        list of dict
            Every proposal, as `Move`.
        """
        state, n_states = posterior.moves, posterior.n_states
        if state.sequences < total_sequences:
            return []
        total_steps = float(state_masses(posterior.counts).sum())
        grows = self.grows and state.quiet < 2
        later = min(self.most_states, 2 * n_states)
        ahead = 0.4 * MOVE_SHARE * passes_to_come * work(total_steps, later) if grows else 0.0
        spends = spends if state.quiet == 0 and total_steps >= _ENOUGH_STEPS else 1.0
        budget = spends * state.budget + ahead
        # Where one kind of moves was refused, another is what is left to try.
        stage = state.quiet % 3
        plan = SplitPlan.of(family)
        room = plan.room(n_states, self.most_states)
        if (grows or stage == 1) and room > 0:
            cost = plan.work(n_states, room)
        elif stage == 2:
            cost = _pruned_work(_MORE_STEPS, n_states, n_states)
        else:
            cost = _PROPOSALS * work(1.0, n_states)
        least = min(_MOST_STEPS, total_steps / MOST_COPIES)
        if grows and budget < cost * least:
            # To stay small for want of a budget would be worse than to exceed it.
            ahead += cost * least - budget
            budget = cost * least
        if budget < cost * least:
            return []
        # A model that grows is soon another one: a small sample is good enough for it.
        enough = least if grows else max(least, _STATE_STEPS * n_states)
        n_steps = min(_MOST_STEPS, enough, max(least, budget / cost))
        sample = Sample.draw(
            batches, family, n_steps, total_sequences, self.engine, self.most_states
        )
        phase = Phase(
            posterior,
            family,
            sample,
            self.engine,
            np.random.default_rng([self.seed, 2**33, state.n_phases]),
            budget,
            self.most_states,
            grows,
            stage,
            passes_to_come >= _SETTLING,
        )
        phase.run()
        self.engine.check()
        if phase.changed:
            posterior.become(self._outcome(posterior, phase, total_sequences))
        posterior.moves = MoveState(
            budget=(phase.budget - ahead) / spends,
            sequences=0,
            n_phases=state.n_phases + 1,
            quiet=0 if phase.changed else state.quiet + 1,
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
