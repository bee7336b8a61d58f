"""Tiles of longer sequences: where they lie, and what is known at their edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats, Kernel

_SQUARINGS = 10  # Θ to the power of 2 to this: states that take longer to mix are rare


_PASSING = 1e-6  # share of the long run below which a state may be one that is left for good


def stationary(transitions: Floats) -> Floats:
    """Return the distribution that the transitions keep, (K,); rows need not sum to one.

    Examples
    --------
    >>> stationary(np.array([[0.9, 0.1], [0.3, 0.7]])).round(3)
    array([0.75, 0.25])
    """
    xp = namespace(transitions)
    power = xp.astype(transitions, "float64")
    power = power + xp.eye(len(power), like=power)  # so that nothing alternates for ever
    for _ in range(_SQUARINGS):
        power = power / power.sum()
        power = power @ power
    weights = power.sum(axis=0)
    return weights / weights.sum()


def inside(transitions: Floats) -> Floats:
    """Return what is known of the states inside a sequence, up to a factor, (K,).

    That is their stationary distribution, except where transitions that never happen keep a path
    from coming back: there it would be that of the end, and states that will not last are taken to
    be as probable as any.

    Examples
    --------
    >>> inside(np.array([[0.5, 0.5], [0.0, 1.0]]))
    array([0.5, 1. ])
    """
    xp, weights = namespace(transitions), stationary(transitions)
    passing = (transitions == 0.0).any() & (weights < _PASSING)
    return xp.where(passing, xp.full_like(weights, 1.0 / len(weights)), weights)


class Runs(NamedTuple):
    """Runs of steps in a flat array, a few numbers for each.

    Attributes
    ----------
    begins, lengths : (N,) integer arrays
    mirrored : int or None
        Length of the array, if positions are counted from its end.
    """

    begins: NDArray[np.int64]
    lengths: NDArray[np.int64]
    mirrored: int | None = None

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each run begins when they are put one after another."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    def on(self, like: Any) -> Any:
        """Return the flat positions of all steps, where another array is."""
        xp, place = namespace(like), placed(like)
        total = int(self.lengths.sum())
        flat = xp.flat_steps(place(self.begins), place(self.lengths), total)
        return flat if self.mirrored is None else self.mirrored - 1 - flat


@dataclass(frozen=True)
class Tiles:
    """Which steps of a batch are in its tiles, and which in the buffers before and after them.

    Attributes
    ----------
    steps : Runs
        The steps of each tile.
    offsets : (N + 1,) integer array
        Where each begins when they are put one after another.
    inner : (M,) integer array
        Numbers of the tiles that begin inside a sequence; the others begin one.
    before : Runs
        The buffers before these.
    reaching : (M,) boolean array
        Whether such a buffer reaches the start of the sequence.
    cut : (M',) integer array
        Numbers of the tiles after which their sequence goes on.
    after : Runs
        The buffers after these, the last step first.
    ending : (M',) boolean array
        Whether such a buffer reaches the end of the sequence.
    """

    steps: Runs
    offsets: NDArray[np.int64]
    inner: NDArray[np.int64]
    before: Runs
    reaching: NDArray[np.bool_]
    cut: NDArray[np.int64]
    after: Runs
    ending: NDArray[np.bool_]

    @classmethod
    def of(cls, offsets: NDArray[np.int64], counted: NDArray[np.int64]) -> Tiles:
        """Find them in a batch of pieces, of each of which only some steps count.

        Examples
        --------
        >>> tiles = Tiles.of(np.array([0, 4, 9]), np.array([[0, 3, 0, 9], [2, 4, 7, 0]]))
        >>> tuple(runs.on(tiles.offsets) for runs in (tiles.steps, tiles.before, tiles.after))
        (array([0, 1, 2, 6, 7]), array([4, 5]), array([3, 8]))
        """
        begins, ends = offsets[:-1], offsets[1:]
        first, last, earlier, later = counted.T
        inner, cut = np.flatnonzero(first > 0), np.flatnonzero(begins + last < ends)
        steps = Runs(begins + first, last - first)
        # Backwards: the positions of reversed runs are those of runs in reversed data.
        length = int(offsets[-1])
        after = Runs(length - ends[cut], (ends - begins - last)[cut], mirrored=length)
        before = Runs(begins[inner], first[inner])
        reaching, ending = earlier[inner] == 0, later[cut] == 0
        return cls(steps, steps.offsets, inner, before, reaching, cut, after, ending)


@dataclass(frozen=True)
class Edges:
    """What the buffers say about the edges of tiles.

    Attributes
    ----------
    filtered : (M, K) array
        α_{b−1} of the tiles that begin inside a sequence.
    predicted : (M, K) array
        α_{b−1} Θ.
    after : (M', K) array
        β_{e−1} of the tiles after which their sequence goes on; the largest number is one.

    Where states last, they are of copies, (M, K, J), and nothing is predicted.
    """

    filtered: Floats
    predicted: Floats
    after: Floats


@dataclass(frozen=True)
class KernelOnTiles:
    """A kernel and the tiles of a batch.

    Attributes
    ----------
    kernel : Kernel
    tiles : Tiles
    n_threads : int
    """

    kernel: Kernel
    tiles: Tiles
    n_threads: int


def quotients(numerators: Floats, denominators: Floats) -> Floats:
    """Divide in double precision; what is impossible has no probability either."""
    xp = namespace(numerators)
    above, below = (xp.astype(part, "float64") for part in (numerators, denominators))
    possible = below > 0.0
    return xp.where(possible, above / xp.where(possible, below, 1.0), 0.0)


def placed(like: Any) -> Any:
    """Return a function that puts an array where another is."""
    xp = namespace(like)
    return lambda array: xp.placed(array, like=like)


def dtype_of(array: Any) -> str:
    """Return the name of the type of an array's elements."""
    return str(array.dtype).rpartition(".")[2]
