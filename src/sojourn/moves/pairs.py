"""Which pairs of states to merge, by the gain that is sure, eq (22)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sojourn.families import Family
from sojourn.families.coupled import couples_states
from sojourn.families.coupled import merge_gains as emission_gains
from sojourn.inference.posterior import Posterior, regrouped_counts
from sojourn.kernels.arrays import is_tensor, namespace, to_host
from sojourn.kernels.interface import Floats, Integers
from sojourn.kernels.updates import state_masses
from sojourn.moves.settings import MoveSettings
from sojourn.moves.workbench import fetched_if_small
from sojourn.transitions import Rows, Transitions
from sojourn.transitions.durations import StateDurations
from sojourn.transitions.merging import choice_entropies, merge_gains

Pair = tuple[int, int]


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


class Merge(NamedTuple):
    """One of several successive merges, each of states that those before it left.

    Attributes
    ----------
    gain : float
        What it is sure to add to the bound, eq (22).
    entropy_bound : float
        Upper bound on the entropy that the merge takes away, which `gain` has subtracted.  So what
        the merge adds, before any local step, is at most the sum of both.
    groups : (K', K) array
        The states after it, as sums of the original ones.
    """

    gain: float
    entropy_bound: float
    groups: Floats

    @property
    def states(self) -> list[list[int]]:
        """Which states have become one."""
        members = [np.flatnonzero(row).tolist() for row in self.groups]
        return [group for group in members if len(group) > 1]


@dataclass
class MergedStates:
    """States that are merged, one pair after another: what eq (22) is computed from.

    Attributes
    ----------
    family : Family
    settings : MoveSettings
    counts : Rows
    transitions : Transitions
    emissions : (K, S) array
        E[t].
    shared : (K, K) array
        Upper bound on the entropy of which of two states the steps are in; symmetric.
    durations : StateDurations or None
        How long states last, where that is not geometric.
    uncertain : (C, K, U) array or None
        How far E[t] may be from the statistics of the states, eq (27), by state; None for the
        evidence at E[t].
    log_normalizers : (K,) array
        Those of the emissions of each state; none if states share parameters.
    gains : (K, K) array
        Sure gains of pairs, the smaller number first; -inf where there is none.
    entropy_bounds : (K, K) array
        Upper bounds on the entropy that merges take away, which the gains have subtracted.
    """

    family: Family
    settings: MoveSettings
    counts: Rows
    transitions: Transitions
    emissions: Floats
    shared: Floats
    durations: StateDurations | None = None
    uncertain: Floats | None = None
    _totals: Floats = field(init=False)
    log_normalizers: Floats = field(init=False)
    gains: Floats = field(init=False)
    entropy_bounds: Floats = field(init=False)

    def __post_init__(self) -> None:
        n_states = len(self.emissions)
        self._totals = self.emissions.sum(axis=0)
        if not couples_states(self.family):
            every = np.arange(n_states)
            self.log_normalizers = self._log_normalizers(self.emissions, self.uncertain, every)
        self.gains = np.full((n_states, n_states), -np.inf)
        self.entropy_bounds = np.zeros((n_states, n_states))
        first, second = self._allowed(*np.triu_indices(n_states, 1))
        many = self.emissions.shape[1] > self.settings.sifting_statistics
        if self.family.statistics_are_counts and many:
            overlap = to_host(_overlaps(self.emissions))[first, second]
            n_pairs = self.settings.sifted_pairs_per_state * n_states
            likely = np.sort(np.argsort(-overlap, kind="stable")[:n_pairs])
            first, second = first[likely], second[likely]
        self._update(first, second)

    @classmethod
    def of(
        cls,
        family: Family,
        posterior: Posterior,
        shared: Floats,
        settings: MoveSettings,
        uncertain: Floats | None = None,
    ) -> MergedStates:
        """Begin with the states of a posterior, in memory where that is quicker."""
        emissions, counts, transitions = fetched_if_small(posterior, settings.host_statistics)
        own = posterior.learned(family)
        both, lasting = shared + shared.T, posterior.durations
        if uncertain is not None and couples_states(own):
            uncertain = None
        if uncertain is not None:
            uncertain = namespace(emissions).placed(
                uncertain if is_tensor(emissions) else to_host(uncertain), like=emissions
            )
        states = cls(own, settings, counts, transitions, emissions, both, lasting, uncertain)
        states.keep(range(posterior.held))
        return states

    def best(self, *, promising_only: bool = False, at_best: bool = False) -> Pair | None:
        """Return the pair with the largest gain, of all or of those that may gain something.

        `at_best` goes by the largest gain that is possible, and not by that which is sure.
        """
        gains, most = self.gains, self.gains + self.entropy_bounds
        if at_best:
            gains = most
        elif promising_only:
            gains = np.where(most >= 0.0, gains, -np.inf)
        first, second = np.unravel_index(int(np.argmax(gains)), gains.shape)
        return (int(first), int(second)) if gains[first, second] > -np.inf else None

    def keep(self, states: Iterable[int]) -> None:
        """Merge these states with no other."""
        for state in states:
            self.gains[state] = self.gains[:, state] = -np.inf

    def merge(self, pair: Pair) -> Floats:
        """Make one state of two; return the weights that do it."""
        one, other = pair
        weights = merge_weights(len(self.emissions), [pair])
        self.transitions = self.transitions.regrouped(weights)
        self.counts = regrouped_counts(self.counts, weights, self.transitions.constraints)
        if self.durations is not None:
            alone = len(weights) == 1
            self.durations = None if alone else self.durations.regrouped(weights, self.counts)
        stay = np.delete(np.arange(len(self.emissions)), other)
        both, pooled = self._pooled(np.array([one]), np.array([other]))
        placed = namespace(both).placed(stay, like=both)
        self.emissions = self.emissions[placed]
        self.emissions[one] = both[0]
        if pooled is not None and self.uncertain is not None:
            self.uncertain = self.uncertain[:, placed]
            self.uncertain[:, one] = pooled[:, 0]
        if not couples_states(self.family):
            self.log_normalizers = self.log_normalizers[stay]
            own = self._log_normalizers(both, pooled, np.array([one]))
            self.log_normalizers[one : one + 1] = own
        # Which of three it is has at most the entropies of which of the first two and of the
        # last two it is: entropies add up.
        self.shared = weights @ self.shared @ weights.T
        known = np.maximum(self.gains, self.gains.T) > -np.inf
        partners = np.flatnonzero((known[one] | known[other])[stay])
        partners = partners[partners != one]
        kept = np.ix_(stay, stay)
        self.gains, self.entropy_bounds = self.gains[kept], self.entropy_bounds[kept]
        self.gains[one] = self.gains[:, one] = -np.inf
        first, second = self._allowed(np.minimum(one, partners), np.maximum(one, partners))
        if couples_states(self.family):  # a merge changes what every other one gains
            self.gains[first, second] = 0.0
            first, second = np.nonzero(self.gains > -np.inf)
        self._update(first, second)
        return weights

    def _allowed(self, first: Integers, second: Integers) -> tuple[Integers, Integers]:
        """Return the pairs that constraints on the transitions let become one state.

        Where no state follows itself, they are pairs that do not follow each other: not once, by
        the expected counts.  Else the steps in both, one after the other, would have no path.
        """
        constraints = self.transitions.constraints
        if constraints is None:
            return first, second
        rows, stays = to_host(self.counts.transitions), to_host(constraints.allowed.transitions)
        may = constraints.may_merge(first, second)
        apart = rows[first, second] + rows[second, first] < 1.0
        may &= stays[first, first] | apart | constraints.lasting
        return first[may], second[may]

    def _update(self, first: Integers, second: Integers) -> None:
        """Compute the gains of pairs."""
        if not len(first):
            return
        choices = to_host(choice_entropies(self.counts, first, second))
        bounds = np.minimum(self.shared[first, second], choices)
        self.entropy_bounds[first, second] = bounds
        gains = -bounds + to_host(merge_gains(self.transitions, self.counts, first, second))
        if self.durations is not None:
            gains += self.durations.merge_gains(self.transitions, self.counts, first, second)
        if not couples_states(self.family):
            gains -= self.log_normalizers[first] + self.log_normalizers[second]
            gains += _log_normalizers(self.family, 0.0 * self.emissions[:1])
        xp = namespace(self.emissions)
        for at in _blocks(len(first), self.emissions.shape[1]):
            if couples_states(self.family):
                one, other = (xp.placed(part[at], like=self.emissions) for part in (first, second))
                gains[at] += to_host(emission_gains(self.family, self.emissions, one, other))
            else:
                pooled = self._pooled(first[at], second[at])
                gains[at] += self._log_normalizers(*pooled, first[at], second[at])
        self.gains[first, second] = gains

    def _pooled(self, first: Integers, second: Integers) -> tuple[Floats, Floats | None]:
        """Return the statistics of pairs, and how uncertain they are."""
        xp = namespace(self.emissions)
        one, other = (xp.placed(part, like=self.emissions) for part in (first, second))
        own = self.emissions[one], self.emissions[other]
        if self.uncertain is None:
            return own[0] + own[1], None
        pooled = self.family.pooled_uncertainty(
            self.uncertain[:, one], self.uncertain[:, other], own, self._totals
        )
        return own[0] + own[1], pooled

    def _log_normalizers(
        self, emissions: Floats, uncertain: Floats | None, *members: Integers
    ) -> Floats:
        """Return the evidence of rows of statistics, each of some of the states, eq (27)."""
        if uncertain is None:
            return _log_normalizers(self.family, emissions)
        xp = namespace(emissions)
        every = to_host(state_masses(*self.counts))
        masses = xp.placed(sum(every[part] for part in members), like=emissions)
        flat = xp.concatenate(list(uncertain), axis=0).T
        return to_host(self.family.expected_log_normalizer(emissions, flat, masses))


def successive_merges(
    family: Family,
    posterior: Posterior,
    shared: Floats,
    settings: MoveSettings,
    kept: Iterable[int] = (),
    *,
    promising_only: bool = False,
    at_best: bool = False,
    uncertain: Floats | None = None,
) -> Iterator[Merge]:
    """Merge pairs of states on paper, always that with the largest sure gain, while there is one.

    Parameters
    ----------
    shared : (K, K) array
        Entropies that pairs share, as `Fit` has them.
    kept : iterable of int
        States that stay as they are.
    promising_only : bool
        Only pairs that may gain something: the upper bound of what they add is not negative.  The
        best pair where there is none.
    at_best : bool
        Always the pair with the largest gain that is possible, whatever entropy its states share.
    uncertain : (C, K, U) array or None
        As `Fit` has it.
    """
    states = MergedStates.of(family, posterior, shared, settings, uncertain)
    states.keep(kept)
    groups = np.eye(posterior.n_states)
    while len(groups) > 1:
        pair = states.best(promising_only=promising_only, at_best=at_best)
        if pair is None and len(groups) == posterior.n_states:
            pair = states.best()
        if pair is None:
            return
        gain, bound = float(states.gains[pair]), float(states.entropy_bounds[pair])
        groups = states.merge(pair) @ groups
        yield Merge(gain, bound, groups)


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
