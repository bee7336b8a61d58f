"""How many steps around a tile its edges depend on: measured before each pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sojourn.families import Family
from sojourn.inference.backend import LocalBackend
from sojourn.inference.local import chunk_potentials
from sojourn.inference.objective import Objective
from sojourn.inference.posterior import Posterior
from sojourn.kernels.arrays import to_host
from sojourn.kernels.interface import Floats
from sojourn.sources.tiles import Cuts, TiledSource

_SAMPLE = 32  # tiles that are looked at
_FIRST = 8  # steps of the smallest buffer


@dataclass
class GrowingBuffers:
    """Buffers that grow until the edges of tiles no longer depend on them (Foti et al., 2014).

    Before each pass the states at both edges of some tiles are computed with buffers of 8 steps,
    of 16, and so on, until doubling them changes the probabilities by less than `tolerance`, in
    total variation on average.

    Attributes
    ----------
    source : TiledSource
        Whose buffers are set.
    family : Family
    objective : Objective
    backend : LocalBackend
        Where it is computed.
    least : int
        Smallest buffer: one more than the past steps that the family looks at.
    tolerance : float
    fixed : int or None
        The size, where it is given.
    """

    source: TiledSource
    family: Family
    objective: Objective
    backend: LocalBackend
    least: int
    tolerance: float
    fixed: int | None = None

    def resume(self, buffer: int) -> None:
        """Let the source use the size of a pass that has begun."""
        self.source.buffer = buffer

    def before_pass(self, posterior: Posterior, n_pass: int) -> int:
        """Find the size for pass `n_pass`, and let the source use it."""
        size = self.fixed
        if size is None:
            size = self.measured(posterior, n_pass)
        self.source.buffer = max(self.least, size)
        return self.source.buffer

    def measured(self, posterior: Posterior, n_pass: int) -> int:
        """Return the smallest buffer of 8, 16, ... steps that is large enough."""
        cuts, longest = self.source.cuts(n_pass), self.source.longest
        inside = np.flatnonzero((cuts.begins > cuts.low) | (cuts.ends < cuts.high))
        if len(inside) == 0:
            return _FIRST
        chosen = inside[np.linspace(0, len(inside) - 1, min(_SAMPLE, len(inside))).astype(int)]
        posterior = self.backend.place(posterior)
        size = max(_FIRST, self.least)
        now = self._edges(posterior, cuts, chosen, size)
        while size < longest:
            then = self._edges(posterior, cuts, chosen, 2 * size)
            if 0.5 * np.abs(now - then).sum(axis=1).mean() < self.tolerance:
                break
            size, now = 2 * size, then
        return size

    def _edges(self, posterior: Posterior, cuts: Cuts, chosen: np.ndarray, buffer: int) -> Floats:
        """Return the probabilities of the states at the edges of tiles, first and last step."""
        pieces = cuts.pieces(chosen, buffer, self.source.data)
        assert pieces.counted is not None
        chunks = self.backend.chunks(self.family, pieces, posterior.n_states)
        potentials = self.backend.transition_potentials(posterior, self.objective)
        found = []
        for part in chunk_potentials(
            posterior,
            self.family,
            chunks,
            potentials,
            self.backend,
            collapsed=self.objective.collapsed,
        ):
            sequences = self.backend.host_sequences(part[0])
            assert sequences.counted is not None
            rows = to_host(self.backend.forward_backward(*part).responsibilities)
            edges = sequences.offsets[:-1, None] + sequences.counted[:, :2] - [[0, 1]]
            found.append(rows[edges.ravel()])
        return np.concatenate(found).astype(np.float64)
