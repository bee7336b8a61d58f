"""States that last: rows of copies that share emissions, entered at one and left at the last.

Copy j of state k is followed by itself (`stay`) or by copy j + 1 (`advance`); after the last copy,
``advance`` leads to another state by the transition potentials, whose diagonal is zero, and
``entry`` says at which copy that state is entered.  A negative binomial duration of shape r is
entered r copies before the end; an explicit duration d is entered d copies before the end and never
stays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sojourn.kernels.arrays import namespace, to_host
from sojourn.kernels.heads import multiplied
from sojourn.kernels.interface import (
    CopyEdges,
    DurationCounts,
    DurationPotentials,
    Floats,
    Integers,
    Potentials,
    Smoothed,
)


class Folding(NamedTuple):
    """How K states of J copies are written as K·J states; copy j of state k is state k·J + j."""

    n_states: int
    n_copies: int

    @classmethod
    def of(cls, potentials: Potentials) -> Folding:
        """Return the sizes of a model with durations."""
        assert potentials.durations is not None
        return cls(*potentials.durations.entry.shape)

    def states(self, values: Floats) -> Floats:
        """Sum the copies of every state, along the last axis."""
        summed: Floats = values.reshape(*values.shape[:-1], *self).sum(axis=-1)
        return summed

    def pairs(self, pairs: Floats) -> tuple[Floats, DurationCounts]:
        """Sum what follows what: of states (K, K), and within them.

        Parameters
        ----------
        pairs : (K·J, K·J) array
        """
        xp = namespace(pairs)
        blocks = pairs.reshape(*self, *self)
        same, following = (xp.asarray(np.eye(self.n_copies, k=k), like=pairs) for k in (0, 1))
        other = xp.asarray(1.0 - np.eye(self.n_states), like=pairs)
        # The copies of a state among themselves, (J, J, K).
        within = xp.diagonal(xp.transpose(blocks, (1, 3, 0, 2)))
        left = blocks[:, -1] * other[:, :, None]
        leaves = left.sum(axis=2)
        stays = (within * same[:, :, None]).sum(axis=0).sum(axis=0)
        inner = (within * following[:, :, None]).sum(axis=0).sum(axis=0)
        return leaves, DurationCounts(left.sum(axis=0), stays, inner + leaves.sum(axis=1))


def log_visits(
    durations: DurationPotentials, states: Integers, lengths: Integers, whole: Any
) -> Floats:
    """Return the log probability of the best path through the copies of visits, (V,).

    Parameters
    ----------
    durations : DurationPotentials
    states, lengths : (V,) integer arrays
    whole : (V,) array of bool
        Whether the state is left after the visit; otherwise it may go on.

    Examples
    --------
    >>> from sojourn.kernels.interface import DurationPotentials
    >>> two = DurationPotentials(np.array([[1.0, 0.0]]), np.array([0.8]), np.array([0.2]))
    >>> visits = np.array([0, 0]), np.array([3, 3]), np.array([True, False])
    >>> np.exp(log_visits(two, *visits)).round(3)
    array([0.032, 0.64 ])
    """
    with np.errstate(divide="ignore"):
        entry, stay, advance = (np.log(to_host(part).astype(np.float64)) for part in durations)
    entry, stay, advance = entry[states], stay[states, None], advance[states, None]
    ahead = np.arange(entry.shape[1], 0, -1)  # copies up to the end, the one that is entered first
    n_steps, ends = lengths[:, None], whole[:, None]
    found = np.full(entry.shape, -np.inf)
    # Of a visit that may go on, no step advances or as many as can: between, it is linear.
    for most in (ahead, np.where(ends, ahead, 0)):
        advances = np.where(ends, most, np.minimum(most, np.minimum(n_steps, ahead) - 1))
        stays = n_steps - ~ends - advances
        with np.errstate(invalid="ignore"):
            moved = np.where(stays > 0, stays * stay, 0.0)
            moved = moved + np.where(advances > 0, advances * advance, 0.0)
        found = np.maximum(found, np.where(stays < 0, -np.inf, entry + moved))
    best: Floats = found.max(axis=1)
    return best


def n_copies(potentials: Potentials) -> int:
    """Return how many copies states have: one where they do not last."""
    return 1 if potentials.durations is None else Folding.of(potentials).n_copies


def expanded(potentials: Potentials) -> Potentials:
    """Write a model with durations as one of K·J states without.

    Examples
    --------
    >>> from sojourn.kernels.interface import DurationPotentials
    >>> two = DurationPotentials(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.9, 0.5]),
    ...                          np.array([0.1, 0.5]))
    >>> leave = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> expanded(Potentials(np.array([0.5, 0.5]), leave, np.ones((1, 2)), None, two)).transitions
    array([[0.9, 0.1, 0. , 0. ],
           [0. , 0.9, 0. , 0.1],
           [0. , 0. , 0.5, 0.5],
           [0.5, 0. , 0. , 0.5]])
    """
    assert potentials.durations is not None
    xp, (start, transitions, emissions) = namespace(potentials.start), potentials[:3]
    dtype = str(transitions.dtype).rpartition(".")[2]
    entry, stay, advance = (xp.astype(part, dtype) for part in potentials.durations)
    n_states, n_copies = entry.shape
    n_all = n_states * n_copies

    def placed(array: Floats) -> Floats:
        found: Floats = xp.astype(xp.asarray(array, like=entry), dtype)
        return found

    own = placed(np.eye(n_states))[:, None, :, None]
    same, following = (placed(np.eye(n_copies, k=k))[:, None, :] for k in (0, 1))
    within = stay[:, None, None, None] * same + advance[:, None, None, None] * following
    leaving = placed(np.arange(n_copies) == n_copies - 1)[:, None, None]
    between = (advance[:, None] * transitions)[:, None, :, None] * entry
    return Potentials(
        (start[:, None] * entry).reshape(n_all),
        (own * within + leaving * between).reshape(n_all, n_all),
        (emissions[:, :n_states, None] * xp.ones_like(entry[0])).reshape(-1, n_all),
        potentials.log_scale,
    )


def with_edges(potentials: Potentials, index: Any, offsets: Any) -> tuple[Potentials, Any]:
    """Write a model with durations as `expanded` does, with what lies around its sequences.

    Returns
    -------
    potentials, index
        Of K·J states, with rows of their own for the ends of sequences.
    """
    plain, edges = expanded(potentials), potentials.edges
    if edges is None:
        return plain, index
    before, after = (part.reshape(len(part), -1) for part in (edges.before, edges.after))
    heads = namespace(before).where(edges.inner[:, None], before, plain.start)
    return multiplied(plain, index, offsets, heads, after)


def folded(smoothed: Smoothed, potentials: Potentials, offsets: Any) -> Smoothed:
    """Return what a kernel computed for the K·J states, for K states; without squares."""
    folding, rows = Folding.of(potentials), smoothed.responsibilities
    xp, ends = namespace(rows), None
    start = smoothed.start
    if potentials.edges is not None:
        firsts, lasts = rows[offsets[:-1]], rows[offsets[1:] - 1]
        ends = xp.concatenate([firsts, lasts]).reshape(2, len(firsts), *folding)
        whole = xp.astype(firsts, "float64")
        start = xp.where(potentials.edges.inner[:, None], 0.0 * whole, whole).sum(axis=0)
    transitions, counts = folding.pairs(smoothed.transitions)
    return smoothed._replace(
        start=folding.states(start),
        transitions=transitions,
        responsibilities=folding.states(rows),
        squares=None,
        durations=counts._replace(entries=counts.entries + start.reshape(folding)),
        ends=ends,
    )


def of_sequence(potentials: Potentials, n: int) -> Potentials:
    """Return the potentials of one sequence of a batch."""
    edges = potentials.edges
    if edges is None:
        return potentials
    own = slice(n, n + 1)
    edges = CopyEdges(edges.inner[own], edges.before[own], edges.after[own])
    return potentials._replace(edges=edges)
