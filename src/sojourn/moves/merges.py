"""Which states to merge: pairs with the gain that is sure, one after another, eq (22)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sojourn.families import Family
from sojourn.inference.posterior import Posterior, fetched, regrouped_counts
from sojourn.kernels.arrays import is_tensor, namespace, to_host
from sojourn.kernels.interface import Floats, Integers
from sojourn.transitions import Rows, Transitions
from sojourn.transitions.merging import choice_entropies, merge_gains

Pair = tuple[int, int]

_FEW_NUMBERS = 2**18  # emission statistics of all states that the host is quicker with
_MANY_STATISTICS = 1000  # from here on pairs are first sifted by the overlap of their counts


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
    """One of several merges, each of states that those before it left.

    Attributes
    ----------
    gain : float
        What it is sure to add to the bound, eq (22).
    doubt : float
        Most that the entropy can be that this takes off.  So what the merge adds, before any local
        step, is at most the sum of both.
    groups : (K', K) array
        The states after it, as sums of those at first.
    """

    gain: float
    doubt: float
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
    counts : Rows
    transitions : Transitions
    emissions : (K, S) array
        E[t].
    shared : (K, K) array
        Entropy of which of two states steps are in, at most; symmetric.
    log_normalizers : (K,) array
        Of the emissions of each state.
    gains : (K, K) array
        Sure gains of pairs, the smaller number first; -inf where there is none.
    doubts : (K, K) array
        Entropies that are taken off in these.
    """

    family: Family
    counts: Rows
    transitions: Transitions
    emissions: Floats
    shared: Floats
    log_normalizers: Floats = field(init=False)
    gains: Floats = field(init=False)
    doubts: Floats = field(init=False)

    def __post_init__(self) -> None:
        n_states = len(self.emissions)
        self.log_normalizers = _log_normalizers(self.family, self.emissions)
        self.gains = np.full((n_states, n_states), -np.inf)
        self.doubts = np.zeros((n_states, n_states))
        first, second = np.triu_indices(n_states, 1)
        if self.family.statistics_are_counts and self.emissions.shape[1] > _MANY_STATISTICS:
            overlap = to_host(_overlaps(self.emissions))[first, second]
            likely = np.sort(np.argsort(-overlap, kind="stable")[: 2 * n_states])
            first, second = first[likely], second[likely]
        self._update(first, second)

    @classmethod
    def of(cls, family: Family, posterior: Posterior, shared: Floats) -> MergedStates:
        """Begin with the states of a posterior.

        Small arrays are brought from a device: there it takes longer to launch things.
        """
        emissions, counts = posterior.emissions.dense(), posterior.counts
        emissions = namespace(emissions).astype(emissions, "float64")
        transitions = posterior.transitions
        if is_tensor(emissions) and emissions.numel() <= _FEW_NUMBERS:
            emissions, counts = fetched(emissions), Rows(*map(fetched, counts))
            transitions = transitions.converted(fetched)
        return cls(posterior.learned(family), counts, transitions, emissions, shared + shared.T)

    def best(self, *, open_only: bool = False) -> Pair | None:
        """Return the pair with the largest gain, of all or of those that may gain something."""
        gains = self.gains
        if open_only:
            gains = np.where(gains + self.doubts >= 0.0, gains, -np.inf)
        first, second = np.unravel_index(int(np.argmax(gains)), gains.shape)
        return (int(first), int(second)) if gains[first, second] > -np.inf else None

    def keep(self, states: Iterable[int]) -> None:
        """Merge these states with no other."""
        for state in states:
            self.gains[state] = self.gains[:, state] = -np.inf

    def merge(self, pair: Pair) -> Floats:
        """Make one state of two; return the weights that do."""
        one, other = pair
        weights = merge_weights(len(self.emissions), [pair])
        self.counts = regrouped_counts(self.counts, weights)
        self.transitions = self.transitions.regrouped(weights)
        stay = np.delete(np.arange(len(self.emissions)), other)
        both = self.emissions[one] + self.emissions[other]
        self.emissions = self.emissions[namespace(both).placed(stay, like=both)]
        self.emissions[one] = both
        self.log_normalizers = self.log_normalizers[stay]
        self.log_normalizers[one : one + 1] = _log_normalizers(self.family, both[None])
        # Which of three it is has at most the entropies of which of the first two and of the
        # last two it is: entropies add up.
        self.shared = weights @ self.shared @ weights.T
        known = np.maximum(self.gains, self.gains.T) > -np.inf
        partners = np.flatnonzero((known[one] | known[other])[stay])
        partners = partners[partners != one]
        self.gains, self.doubts = (m[np.ix_(stay, stay)] for m in (self.gains, self.doubts))
        self._update(np.minimum(one, partners), np.maximum(one, partners))
        return weights

    def _update(self, first: Integers, second: Integers) -> None:
        """Compute the gains of pairs."""
        if not len(first):
            return
        choices = to_host(choice_entropies(self.counts, first, second))
        doubts = np.minimum(self.shared[first, second], choices)
        self.doubts[first, second] = doubts
        gains = -doubts + to_host(merge_gains(self.transitions, self.counts, first, second))
        gains -= self.log_normalizers[first] + self.log_normalizers[second]
        gains += _log_normalizers(self.family, 0.0 * self.emissions[:1])
        xp = namespace(self.emissions)
        for at in _blocks(len(first), self.emissions.shape[1]):
            one, other = (xp.placed(part[at], like=self.emissions) for part in (first, second))
            both = self.emissions[one] + self.emissions[other]
            gains[at] += _log_normalizers(self.family, both)
        self.gains[first, second] = gains


def merge_chain(
    family: Family,
    posterior: Posterior,
    shared: Floats,
    kept: Iterable[int] = (),
    *,
    open_only: bool = False,
) -> Iterator[Merge]:
    """Merge pairs of states, always that with the largest sure gain, as long as there is one.

    Parameters
    ----------
    shared : (K, K) array
        Entropies that pairs share, as `Fit` has them.
    kept : iterable of int
        States that stay as they are.
    open_only : bool
        Only pairs that may gain something, without the doubt; the best where there is none.
    """
    states = MergedStates.of(family, posterior, shared)
    states.keep(kept)
    groups = np.eye(posterior.n_states)
    while len(groups) > 1:
        pair = states.best(open_only=open_only)
        if pair is None and len(groups) == posterior.n_states:
            pair = states.best()
        if pair is None:
            return
        gain, doubt = float(states.gains[pair]), float(states.doubts[pair])
        groups = states.merge(pair) @ groups
        yield Merge(gain, doubt, groups)


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
