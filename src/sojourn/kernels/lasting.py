"""Tiles of sequences whose states last: messages at edges are those of copies.

A tile that begins inside a sequence is computed with the step before it, whose copies have the
probabilities α_{b−1} that the buffer leaves, so that the kernel counts what follows that step as
anywhere else: a stay, an advance or an exit, and an entry only where a segment begins.  The factors
after a tile come from the buffer behind it, computed from its first step on with equal potentials
for all copies: what is then known of that step is γ_e up to a factor, and β_{e−1} one step back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sojourn.kernels.arrays import namespace
from sojourn.kernels.durations import Folding
from sojourn.kernels.interface import CopyEdges, Floats, Potentials, Smoothed
from sojourn.kernels.tiles import (
    Edges,
    KernelOnTiles,
    Runs,
    Tiles,
    dtype_of,
    inside,
    placed,
    quotients,
)


def forward_backward(
    own: KernelOnTiles, potentials: Potentials, index: Any, *, squares: int = False
) -> Smoothed:
    """Compute posterior expectations of what counts, as `TileKernel.forward_backward` does."""
    tiles, found_edges = own.tiles, edges(own, potentials, index)
    batch = _Batch.of(tiles, potentials, index, found_edges)
    found = own.kernel.forward_backward(*batch.arguments, squares=squares, n_threads=own.n_threads)
    like = found.responsibilities
    xp, place = namespace(like), placed(like)
    whole = xp.zeros((len(index), like.shape[1]), dtype_of(like), like=like)
    whole[tiles.steps.on(like)] = like[place(batch.counted)]
    log_z, ends = found.log_normalizers, found.ends
    assert ends is not None
    if len(tiles.cut):
        numbers = place(tiles.cut)
        without = quotients(ends[1][numbers], found_edges.after)
        log_z[numbers] = log_z[numbers] + xp.log(without.reshape(len(tiles.cut), -1).sum(axis=1))
    return found._replace(responsibilities=whole, log_normalizers=log_z, ends=None)


def log_normalizers(own: KernelOnTiles, potentials: Potentials, index: Any) -> Any:
    """Compute the log likelihood of every tile given what its buffer has before it."""
    batch = _Batch.of(own.tiles, potentials, index, edges(own, potentials, index, after=False))
    return own.kernel.log_normalizers(*batch.arguments, n_threads=own.n_threads)


class _Batch(NamedTuple):
    """Tiles, with the step before those that begin inside a sequence.

    Attributes
    ----------
    arguments : tuple
        Potentials, index and offsets.
    counted : integer array
        The steps of tiles among those of the batch.
    """

    arguments: tuple[Potentials, Any, Any]
    counted: Any

    @classmethod
    def of(cls, tiles: Tiles, potentials: Potentials, index: Any, edges: Edges) -> _Batch:
        """Add what the buffers say to the potentials."""
        table, scale = potentials.emissions, potentials.log_scale
        xp, place = namespace(table), placed(table)
        n, shape = len(tiles.offsets) - 1, Folding.of(potentials)
        inner = np.zeros(n, np.bool_)
        inner[tiles.inner] = True
        runs = Runs(tiles.steps.begins - inner, tiles.steps.lengths + inner)
        offsets, own = runs.offsets, index[runs.on(index)]
        # Nothing is known of the step before a tile but its copies.
        own[placed(index)(offsets[tiles.inner])] = len(table)
        table = xp.concatenate([table, xp.ones_like(table[:1])])
        if scale is not None:
            scale = xp.concatenate([scale, xp.zeros_like(scale[:1])])
        before, after = (
            xp.zeros((n, *shape), dtype_of(table), like=table) + value for value in (0.0, 1.0)
        )
        before[place(tiles.inner)] = edges.filtered
        if len(edges.after):
            after[place(tiles.cut)] = edges.after
        factors = potentials._replace(
            emissions=table, log_scale=scale, edges=CopyEdges(place(inner), before, after)
        )
        counted = np.delete(np.arange(offsets[-1]), offsets[tiles.inner])
        return cls((factors, own, placed(index)(offsets)), counted)


def edges(
    own: KernelOnTiles,
    potentials: Potentials,
    index: Any,
    *,
    after: bool = True,
    probe: Floats | None = None,
) -> Edges:
    """Run the recursions over the buffers; see `TileKernel.edges`.

    Returns
    -------
    Edges
        Of copies, (M, K, J) and (M', K, J); nothing is predicted.
    """
    tiles = own.tiles
    assert potentials.durations is not None
    like, shape = potentials.start, Folding.of(potentials)
    xp, place = namespace(like), placed(like)
    start = potentials.start[:, None] * potentials.durations.entry
    far = None if probe is None else probe.reshape(shape)
    begin = xp.astype(_inside(potentials), dtype_of(like)) if far is None else far
    heads = xp.where(place(tiles.reaching)[:, None, None], start, begin)
    ones = xp.ones_like(begin)
    filtered = _ends(own, potentials, index, tiles.before, heads, xp.ones_like(heads))[1]
    if not after:
        return Edges(filtered, filtered[:0], filtered[:0])
    behind = tiles.after
    assert behind.mirrored is not None
    runs = Runs(behind.mirrored - behind.begins - behind.lengths, behind.lengths)
    tails = xp.where(place(tiles.ending)[:, None, None], ones, ones if far is None else far)
    coming = _back(potentials, _ends(own, potentials, index, runs, xp.ones_like(tails), tails)[0])
    largest = xp.amax(coming.reshape(len(coming), shape.n_states * shape.n_copies), axis=1)
    return Edges(filtered, filtered[:0], coming / largest[:, None, None])


def _ends(
    own: KernelOnTiles,
    potentials: Potentials,
    index: Any,
    runs: Runs,
    before: Floats,
    after: Floats,
) -> Floats:
    """Return what is known of the copies at the ends of some runs of steps, (2, N, K, J)."""
    xp = namespace(before)
    if len(before) == 0:
        return xp.zeros((2, *before.shape), dtype_of(before), like=before)
    inner = placed(before)(np.ones(len(before), np.bool_))
    factors = potentials._replace(edges=CopyEdges(inner, before, after))
    found = own.kernel.forward_backward(
        factors, index[runs.on(index)], placed(index)(runs.offsets), n_threads=own.n_threads
    )
    assert found.ends is not None
    ends: Floats = xp.astype(found.ends, dtype_of(before))
    return ends


def _back(potentials: Potentials, gamma: Floats) -> Floats:
    """Return β_{t−1} from γ_t = φ_t ∘ β_t, of copies, (N, K, J)."""
    assert potentials.durations is not None
    entry, stay, advance = potentials.durations
    exits = (entry * gamma).sum(axis=2) @ potentials.transitions.T
    following = namespace(gamma).concatenate([gamma[:, :, 1:], exits[:, :, None]], axis=2)
    back: Floats = stay[:, None] * gamma + advance[:, None] * following
    return back


def _inside(potentials: Potentials) -> Floats:
    """Return what is known of the copies inside a sequence, (K, J), as `tiles.inside` does.

    What enters a copy leaves it again, after 1 / (1 − stay) steps in the mean.
    """
    assert potentials.durations is not None
    theta = potentials.transitions
    xp = namespace(theta)
    entry, stay, advance = (xp.astype(part, "float64") for part in potentials.durations)
    # A diagonal of zeros does not mean that a path may not come back.
    entered = inside(theta + xp.astype(xp.eye(len(theta), like=theta), dtype_of(theta)))
    tiny = 1e-12
    flow = xp.transpose(xp.cumsum(xp.transpose(entry, (1, 0))), (1, 0))
    flow = flow / xp.maximum(flow[:, -1:], xp.full_like(flow[:, -1:], tiny))
    both = stay + advance
    share = xp.maximum(advance / xp.where(both > 0.0, both, 1.0), xp.full_like(stay, tiny))
    return entered[:, None] * flow / share[:, None]
