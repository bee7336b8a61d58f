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

from typing import Any

import numpy as np

from sojourn.kernels import lasting
from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.durations import expanded, n_copies
from sojourn.kernels.heads import multiplied
from sojourn.kernels.interface import Floats, Integers, Potentials, Smoothed, Squares
from sojourn.kernels.tiles import Edges, KernelOnTiles, Runs, dtype_of, inside, placed, quotients

_APART = 12.0  # logarithm of the ratio of the largest and the smallest number that is probed with


class TileKernel(KernelOnTiles):
    """A kernel, applied to the tiles of a batch."""

    def forward_backward(
        self, potentials: Potentials, index: Any, *, squares: int = False
    ) -> Smoothed:
        """Compute posterior expectations of what counts.

        As `Kernel.forward_backward`, but log Z of a tile is the log likelihood of its steps given
        those before, and responsibilities are zero at steps that do not count.
        """
        potentials, tiles = written_out(potentials), self.tiles
        if potentials.durations is not None:
            return lasting.forward_backward(self, potentials, index, squares=squares)
        edges = self.edges(potentials, index)
        factors, own = self._folded(potentials, index, edges)
        found = self.kernel.forward_backward(
            factors,
            own,
            placed(index)(tiles.offsets),
            squares=squares,
            n_threads=self.n_threads,
        )
        xp, like = namespace(found.responsibilities), found.responsibilities
        place = placed(like)
        heads = like[place(tiles.offsets[:-1])]
        begins = np.setdiff1d(np.arange(len(heads)), tiles.inner)
        starts = xp.astype(heads[place(begins)], "float64")
        counts, squared = found.transitions, found.squares
        if len(tiles.inner):
            ratios = quotients(heads[place(tiles.inner)], edges.predicted)
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
        whole = xp.zeros((len(index), like.shape[1]), dtype_of(like), like=like)
        whole[tiles.steps.on(like)] = like
        log_z = found.log_normalizers
        if len(tiles.cut):
            tails = like[place(tiles.offsets[tiles.cut + 1] - 1)]
            numbers = place(tiles.cut)
            log_z[numbers] = log_z[numbers] + xp.log(quotients(tails, edges.after).sum(axis=1))
        return Smoothed(log_z, starts.sum(axis=0), counts, whole, squared)

    def log_normalizers(self, potentials: Potentials, index: Any) -> Any:
        """Compute the log likelihood of every tile given what its buffer has before it."""
        potentials = written_out(potentials)
        if potentials.durations is not None:
            return lasting.log_normalizers(self, potentials, index)
        edges = self.edges(potentials, index, after=False)
        factors, own = self._folded(potentials, index, edges)
        offsets = placed(index)(self.tiles.offsets)
        return self.kernel.log_normalizers(factors, own, offsets, n_threads=self.n_threads)

    def best_copies(self, potentials: Potentials, index: Any) -> Any:
        """Find the part of the best path of each sequence that is in each tile, flat.

        Where states last it is one of copies, and copy j of state k is number k·J + j.
        """
        potentials = copies_of(potentials)
        edges = self.edges(potentials, index, best=True)
        factors, own = self._folded(potentials, index, edges)
        offsets = placed(index)(self.tiles.offsets)
        return self.kernel.viterbi(factors, own, offsets, n_threads=self.n_threads)[1]

    def are_settled(
        self, potentials: Potentials, index: Any, tolerance: float, *, best: bool = False
    ) -> bool:
        """Whether the edges of tiles do not depend on what lies beyond their buffers.

        The recursions over the buffers are run from two vectors that are far apart.  Where both
        end in the same one, any other does: a product of matrices that maps two vectors in general
        position to the same direction has rank one, to rounding.
        """
        potentials = copies_of(potentials) if best else written_out(potentials)
        xp, n_states = namespace(potentials.start), len(potentials.start)
        n_states *= n_copies(potentials)
        rng = np.random.default_rng(n_states)
        apart = np.exp(-_APART * rng.random(n_states))
        probe = xp.astype(placed(potentials.start)(apart), dtype_of(potentials.start))
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
            What to begin with inside a sequence, in place of its stationary distribution; of all
            copies, (K·J,), where states last.
        """
        if potentials.durations is not None:
            return lasting.edges(self, potentials, index, after=after, probe=probe)
        tiles, theta = self.tiles, potentials.transitions
        xp, place = namespace(theta), placed(theta)
        begin = xp.astype(inside(theta), dtype_of(theta)) if probe is None else probe
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
        place, offsets = placed(index), runs.offsets
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

        The largest probability is one.
        """
        xp, place, offsets = namespace(heads), placed(index), runs.offsets
        if len(offsets) == 1:
            return heads[:0]
        factors, own = _alone(potentials, heads, index, runs)
        logs = self.kernel.last_scores(factors, own, place(offsets), n_threads=self.n_threads)
        return xp.astype(xp.exp(logs - xp.amax(logs, axis=1)[:, None]), dtype_of(heads))

    def _folded(
        self, potentials: Potentials, index: Any, edges: Edges
    ) -> tuple[Potentials, Integers]:
        """Multiply what the buffers say into the potentials of the edges of tiles."""
        tiles, table = self.tiles, potentials.emissions
        xp, place = namespace(table), placed(table)
        shape = (len(tiles.offsets) - 1, len(potentials.start))
        heads = xp.zeros(shape, dtype_of(table), like=table) + potentials.start
        heads[place(tiles.inner)] = edges.predicted
        tails = xp.zeros(shape, dtype_of(table), like=table) + 1.0
        if len(edges.after):
            tails[place(tiles.cut)] = edges.after
        own = index[tiles.steps.on(index)]
        return multiplied(potentials, own, placed(index)(tiles.offsets), heads, tails)


def written_out(potentials: Potentials) -> Potentials:
    """Return potentials with an emission table that rows can be taken from.

    On a device it may be computed as it is read, and the row after its last is that of a missing
    observation.
    """
    if not is_tensor(potentials.start):
        return potentials
    from sojourn.kernels.cuda.potentials import written_out as on_device  # needs PyTorch

    return on_device(potentials)


def copies_of(potentials: Potentials) -> Potentials:
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
    xp, place = namespace(potentials.emissions), placed(index)
    ones, firsts = xp.ones_like(potentials.start), place(runs.offsets[:-1])
    table = potentials.emissions[index[runs.on(index)]]
    table[firsts, : len(ones)] = table[firsts, : len(ones)] * heads
    own = xp.arange(len(table), dtype=dtype_of(index), like=index)
    return Potentials(ones, potentials.transitions, table), own


def _maxima(rows: Floats, matrix: Floats) -> Floats:
    """Return the largest of ``rows[n, k] * matrix[k, l]`` over k, (N, K)."""
    xp = namespace(rows)
    if len(rows) == 0:
        return rows
    return xp.amax(rows[:, :, None] * matrix[None], axis=1)
