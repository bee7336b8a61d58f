"""States that last: rows of copies that share emissions, entered at one and left at the last.

Copy j of state k is followed by itself (`stay`) or by copy j + 1 (`advance`); after the last copy,
``advance`` leads to another state by the transition potentials, whose diagonal is zero, and
``entry`` says at which copy that state is entered.  A negative binomial duration of shape r is
entered r copies before the end; an explicit duration d is entered d copies before the end and never
stays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sojourn.kernels.interface import DurationCounts, Floats, Potentials, Smoothed


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
        states, copies = np.arange(self.n_states), np.arange(self.n_copies)
        blocks = pairs.reshape(*self, *self)
        stays = blocks[states[:, None], copies, states[:, None], copies].sum(axis=1)
        inner = blocks[states[:, None], copies[:-1], states[:, None], copies[1:]].sum(axis=1)
        left = blocks[:, -1].copy()
        left[states, states] = 0.0
        leaves = left.sum(axis=2)
        return leaves, DurationCounts(left.sum(axis=0), stays, inner + leaves.sum(axis=1))


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
    entry, stay, advance = potentials.durations
    n_states, n_copies = entry.shape
    n_all = n_states * n_copies
    matrix = np.zeros((n_states, n_copies, n_states, n_copies), dtype=potentials.transitions.dtype)
    matrix[:, -1] = (advance[:, None] * potentials.transitions)[:, :, None] * entry
    copies = np.arange(n_copies)
    for k in range(n_states):
        matrix[k, copies, k, copies] += stay[k]
        matrix[k, copies[:-1], k, copies[1:]] += advance[k]
    return Potentials(
        (potentials.start[:, None] * entry).reshape(n_all),
        matrix.reshape(n_all, n_all),
        np.repeat(potentials.emissions[:, :n_states], n_copies, axis=1),
        potentials.log_scale,
    )


def folded(smoothed: Smoothed, folding: Folding) -> Smoothed:
    """Return what a kernel computed for the K·J states, for K states; without squares."""
    transitions, counts = folding.pairs(smoothed.transitions)
    entries = counts.entries + smoothed.start.reshape(folding)
    return smoothed._replace(
        start=folding.states(smoothed.start),
        transitions=transitions,
        responsibilities=folding.states(smoothed.responsibilities),
        squares=None,
        durations=counts._replace(entries=entries),
    )
