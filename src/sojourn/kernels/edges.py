"""Forward-backward on tiles: stretches of longer sequences, between buffers.

A tile of the steps b..e−1 needs two vectors of what lies around it: the filtered states of step
b−1, from the buffer before it, and the backward message of step e−1, from the buffer after it:

    before   α_{b−1}, by the forward recursion from the stationary distribution, or from the start
             where the buffer reaches it, eq (28)
    after    β_{e−1} = Θ γ_e,   γ_t = φ_t ∘ Θ γ_{t+1}: the same recursion, backwards and with Θᵀ

Both are factors of single steps, so that they are multiplied into the emission potentials of the
tile's first and last step, and any kernel does the rest:

    φ'_b = (α_{b−1} Θ) ∘ φ_b,   φ'_{e−1} = φ_{e−1} ∘ β_{e−1}

The transition into the tile is counted here, that out of it by the next tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.durations import Folding, expanded, folded
from sojourn.kernels.interface import Floats, Integers, Kernel, Potentials, Smoothed, Squares

_APART = 12.0  # logarithm of the ratio of the largest and the smallest number that is probed with
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
        xp, place = namespace(like), _placed(like)
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
    """

    filtered: Floats
    predicted: Floats
    after: Floats


@dataclass(frozen=True)
class TileKernel:
    """A kernel, applied to the tiles of a batch.

    Attributes
    ----------
    kernel : Kernel
    tiles : Tiles
    n_threads : int
    """

    kernel: Kernel
    tiles: Tiles
    n_threads: int

    def forward_backward(
        self, potentials: Potentials, index: Any, *, squares: bool = False
    ) -> Smoothed:
        """Compute posterior expectations of what counts.

        As `Kernel.forward_backward`, but log Z of a tile is the log likelihood of its steps given
        those before, and responsibilities are zero at steps that do not count.
        """
        potentials, tiles = written_out(potentials), self.tiles
        if potentials.durations is not None:
            if squares:
                raise NotImplementedError("sums of squares of tiles of states that last")
            copies = self.forward_backward(expanded(potentials), index)
            return folded(copies, Folding.of(potentials))
        edges = self.edges(potentials, index)
        factors, own = self._folded(potentials, index, edges)
        found = self.kernel.forward_backward(
            factors,
            own,
            _placed(index)(tiles.offsets),
            squares=squares,
            n_threads=self.n_threads,
        )
        xp, like = namespace(found.responsibilities), found.responsibilities
        place = _placed(like)
        heads = like[place(tiles.offsets[:-1])]
        begins = np.setdiff1d(np.arange(len(heads)), tiles.inner)
        starts = xp.astype(heads[place(begins)], "float64")
        counts, squared = found.transitions, found.squares
        if len(tiles.inner):
            ratios = _quotients(heads[place(tiles.inner)], edges.predicted)
            left, theta = (
                xp.astype(part, "float64") for part in (edges.filtered, potentials.transitions)
            )
            counts = counts + theta * (left.T @ ratios)
            if squared is not None:
                pairs = squared.pairs + theta**2 * ((left**2).T @ ratios**2)
                rows = squared.rows + ((left * (ratios @ theta.T)) ** 2).sum(axis=0)
                squared = Squares(squared.start, pairs, rows)
        if squared is not None:
            squared = squared._replace(start=(starts**2).sum(axis=0))
        whole = xp.zeros((len(index), like.shape[1]), _dtype(like), like=like)
        whole[tiles.steps.on(like)] = like
        log_z = found.log_normalizers
        if len(tiles.cut):
            tails = like[place(tiles.offsets[tiles.cut + 1] - 1)]
            numbers = place(tiles.cut)
            log_z[numbers] = log_z[numbers] + xp.log(_quotients(tails, edges.after).sum(axis=1))
        return Smoothed(log_z, starts.sum(axis=0), counts, whole, squared)

    def log_normalizers(self, potentials: Potentials, index: Any) -> Any:
        """Compute the log likelihood of every tile given what its buffer has before it."""
        potentials = _copies(potentials)
        edges = self.edges(potentials, index, after=False)
        factors, own = self._folded(potentials, index, edges)
        offsets = _placed(index)(self.tiles.offsets)
        return self.kernel.log_normalizers(factors, own, offsets, n_threads=self.n_threads)

    def best_paths(self, potentials: Potentials, index: Any) -> Any:
        """Find the part of the best path of each sequence that is in each tile, flat."""
        n_copies = 1 if potentials.durations is None else Folding.of(potentials).n_copies
        potentials = _copies(potentials)
        edges = self.edges(potentials, index, best=True)
        factors, own = self._folded(potentials, index, edges)
        offsets = _placed(index)(self.tiles.offsets)
        path = self.kernel.viterbi(factors, own, offsets, n_threads=self.n_threads)[1]
        return path if n_copies == 1 else path // n_copies

    def are_settled(
        self, potentials: Potentials, index: Any, tolerance: float, *, best: bool = False
    ) -> bool:
        """Whether the edges of tiles do not depend on what lies beyond their buffers.

        The recursions over the buffers are run from two vectors that are far apart.  Where both
        end in the same one, any other does: a product of matrices that maps two vectors in general
        position to the same direction has rank one, to rounding.
        """
        potentials = _copies(potentials)
        xp, n_states = namespace(potentials.start), len(potentials.start)
        rng = np.random.default_rng(n_states)
        apart = np.exp(-_APART * rng.random(n_states))
        probe = xp.astype(_placed(potentials.start)(apart), _dtype(potentials.start))
        one, other = (
            self.edges(potentials, index, best=best, probe=given) for given in (None, probe)
        )
        return all(
            float(abs(getattr(one, name) - getattr(other, name)).max()) <= tolerance
            for name in ("filtered", "after")
            if len(getattr(one, name))
        )

    def edges(
        self,
        potentials: Potentials,
        index: Any,
        *,
        after: bool = True,
        best: bool = False,
        probe: Floats | None = None,
    ) -> Edges:
        """Run the recursions over the buffers.

        Parameters
        ----------
        after : bool
            Whether those after the tiles are wanted.
        best : bool
            Whether maxima over paths are wanted in place of sums.
        probe : (K,) array, optional
            What to begin with inside a sequence, in place of its stationary distribution.
        """
        tiles, theta = self.tiles, potentials.transitions
        xp, place = namespace(theta), _placed(theta)
        begin = xp.astype(inside(theta), _dtype(theta)) if probe is None else probe
        heads = xp.where(place(tiles.reaching)[:, None], potentials.start, begin)
        last = self._last_best if best else self._last
        filtered = last(potentials, heads, index, tiles.before)
        predicted = _maxima(filtered, theta) if best else filtered @ theta
        if not after:
            return Edges(filtered, predicted, filtered[:0])
        ones = xp.ones_like(potentials.start)
        heads = xp.where(place(tiles.ending)[:, None], ones, ones if probe is None else probe)
        backwards = potentials._replace(transitions=xp.ascontiguousarray(theta.T))
        coming = last(backwards, heads, index, tiles.after)
        coming = _maxima(coming, theta.T) if best else coming @ theta.T
        return Edges(filtered, predicted, coming / xp.amax(coming, axis=1)[:, None])

    def _last(
        self,
        potentials: Potentials,
        heads: Floats,
        index: Any,
        runs: Runs,
    ) -> Floats:
        """Return the filtered states of the last step of every buffer, (N, K).

        Nothing comes after that step, so that they are its responsibilities.

        Parameters
        ----------
        heads : (N, K) array
            Potentials of the first state of each.
        """
        place, offsets = _placed(index), runs.offsets
        if len(offsets) == 1:
            return heads[:0]
        factors, own = _alone(potentials, heads, index, runs)
        found = self.kernel.forward_backward(factors, own, place(offsets), n_threads=self.n_threads)
        last: Floats = found.responsibilities[place(offsets[1:] - 1)]
        return last

    def _last_best(
        self,
        potentials: Potentials,
        heads: Floats,
        index: Any,
        runs: Runs,
    ) -> Floats:
        """Return the probability of the best path to each state of the last step, (N, K).

        One run of Viterbi's algorithm per state, which is the only one possible at that step; the
        largest probability is one.
        """
        xp, place, n_states = namespace(heads), _placed(index), heads.shape[1]
        offsets = runs.offsets
        n, length = len(offsets) - 1, int(offsets[-1])
        if n == 0:
            return heads[:0]
        factors, own = _alone(potentials, heads, index, runs)
        lasts, table = place(offsets[1:] - 1), factors.emissions
        only = xp.zeros((n, n_states, table.shape[1]), _dtype(table), like=table)
        states = np.arange(n_states)
        only[:, place(states), place(states)] = table[lasts, :n_states]
        numbers = place(length + n_states * np.arange(n))
        several = [own + 0 * own for _ in states]
        for k in states:
            several[k][lasts] = xp.astype(numbers + int(k), _dtype(own))
        starts = np.concatenate([offsets[:-1] + k * length for k in states] + [[n_states * length]])
        factors = factors._replace(
            emissions=xp.concatenate([table, only.reshape(n * n_states, -1)])
        )
        scores, _ = self.kernel.viterbi(
            factors, xp.concatenate(several), place(starts), n_threads=self.n_threads
        )
        logs = scores.reshape(n_states, n).T
        return xp.astype(xp.exp(logs - xp.amax(logs, axis=1)[:, None]), _dtype(heads))

    def _folded(
        self, potentials: Potentials, index: Any, edges: Edges
    ) -> tuple[Potentials, Integers]:
        """Multiply what the buffers say into the potentials of the edges of tiles."""
        tiles, table = self.tiles, potentials.emissions
        xp, place = namespace(table), _placed(table)
        n_tiles, n_states = len(tiles.offsets) - 1, len(potentials.start)
        own = index[tiles.steps.on(index)]
        firsts, lasts = place(tiles.offsets[:-1]), place(tiles.offsets[1:] - 1)
        heads = xp.zeros((n_tiles, n_states), _dtype(table), like=table) + potentials.start
        heads[place(tiles.inner)] = edges.predicted
        rows = table[own[firsts]]
        rows[:, :n_states] *= heads
        tails = table[own[lasts]]
        single = np.diff(tiles.offsets)[tiles.cut] == 1  # both edges are the same step
        if len(edges.after):
            tails[place(tiles.cut), :n_states] *= edges.after
            rows[place(tiles.cut[single]), :n_states] *= edges.after[place(np.flatnonzero(single))]
        scale = potentials.log_scale
        if scale is not None:
            scale = xp.concatenate([scale, scale[own[firsts]], scale[own[lasts]]])
        numbers = place(np.arange(len(table), len(table) + n_tiles))
        own[lasts] = xp.astype(numbers + n_tiles, _dtype(own))
        own[firsts] = xp.astype(numbers, _dtype(own))
        together = xp.concatenate([table, rows, tails])
        ones = xp.ones_like(potentials.start)
        return Potentials(ones, potentials.transitions, together, scale), own


def written_out(potentials: Potentials) -> Potentials:
    """Return potentials with an emission table that rows can be taken from.

    On a device it may be computed as it is read, and the row after its last is that of a missing
    observation.
    """
    if not is_tensor(potentials.start):
        return potentials
    from sojourn.kernels.cuda.potentials import plain  # needs PyTorch, which is there

    written, n_states = plain(potentials), len(potentials.start)
    table, scale = written.emissions[:, :n_states], written.log_scale
    xp = namespace(table)
    table = xp.concatenate([table, xp.ones_like(table[:1])])
    if scale is not None:
        scale = xp.concatenate([scale, xp.zeros_like(scale[:1])])
    return written._replace(emissions=table, log_scale=scale)


def _copies(potentials: Potentials) -> Potentials:
    """Return potentials as `written_out` does, those of the copies of states that last."""
    written = written_out(potentials)
    return written if potentials.durations is None else expanded(written)


def _alone(
    potentials: Potentials,
    heads: Floats,
    index: Any,
    runs: Runs,
) -> tuple[Potentials, Any]:
    """Return the potentials of some runs of steps alone, a row for each, without scales."""
    xp, place = namespace(potentials.emissions), _placed(index)
    ones, firsts = xp.ones_like(potentials.start), place(runs.offsets[:-1])
    table = potentials.emissions[index[runs.on(index)]]
    table[firsts, : len(ones)] = table[firsts, : len(ones)] * heads
    own = xp.arange(len(table), dtype=_dtype(index), like=index)
    return Potentials(ones, potentials.transitions, table), own


def _maxima(rows: Floats, matrix: Floats) -> Floats:
    """Return the largest of ``rows[n, k] * matrix[k, l]`` over k, (N, K)."""
    xp = namespace(rows)
    if len(rows) == 0:
        return rows
    return xp.amax(rows[:, :, None] * matrix[None], axis=1)


def _quotients(numerators: Floats, denominators: Floats) -> Floats:
    """Divide in double precision; what is impossible has no probability either."""
    xp = namespace(numerators)
    above, below = (xp.astype(part, "float64") for part in (numerators, denominators))
    possible = below > 0.0
    return xp.where(possible, above / xp.where(possible, below, 1.0), 0.0)


def _placed(like: Any) -> Any:
    """Return a function that puts an array where another is."""
    xp = namespace(like)
    return lambda array: xp.placed(array, like=like)


def _dtype(array: Any) -> str:
    return str(array.dtype).rpartition(".")[2]
