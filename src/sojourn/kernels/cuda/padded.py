"""The GPU's kernels for models whose number of states changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from sojourn.kernels.cuda import decoding, recursions, updates
from sojourn.kernels.cuda.potentials import AffineTable, log_potential, with_transpose
from sojourn.kernels.interface import (
    CopyEdges,
    DurationCounts,
    DurationPotentials,
    Potentials,
    Smoothed,
    Squares,
    padded_states,
)

Tensor = Any


@dataclass(frozen=True)
class PaddedKernel:
    """The functions of `sojourn.kernels.cuda`, with states rounded up to a multiple of `PAD`.

    A kernel is compiled for each number of states, which takes seconds.  With states added that
    nothing leads to, a model that goes from 30 states to 8 needs two of them, not twenty-three.

    Attributes
    ----------
    exact : int
        The number of states that training begins with, which is not rounded.
    least : int
        Models of fewer states are rounded up to this number.
    """

    exact: int
    least: int = 0

    reads_counts = False
    is_narrow = staticmethod(recursions.is_narrow)
    log_potential = staticmethod(log_potential)
    transition_potentials = staticmethod(updates.transition_potentials)
    row_potentials = staticmethod(updates.row_potentials)
    blend_counts = staticmethod(updates.blend_counts)
    state_masses = staticmethod(updates.state_masses)
    collect_failures = staticmethod(updates.collect_failures)

    def at_least(self, n_states: int) -> PaddedKernel:
        """Return the functions with smaller models rounded up to this number of states."""
        return replace(self, least=n_states)

    def forward_backward(
        self,
        potentials: Potentials,
        index: Tensor,
        offsets: Tensor,
        *,
        squares: int = False,
        summed: bool = False,
        order: Tensor | None = None,
        n_threads: int = 1,
    ) -> Smoothed:
        """Compute posterior expectations of every sequence."""
        found = recursions.forward_backward(
            self._padded(potentials), index, offsets, squares=squares, order=order
        )
        k = len(potentials.start)
        if len(found.start) == k:
            return found
        squared = found.squares
        if squared is not None:
            squared = Squares(*(_cut(part, k) for part in squared))
        return Smoothed(
            found.log_normalizers,
            _cut(found.start, k),
            _cut(found.transitions, k),
            found.responsibilities[:, :k],
            squared,
            None if found.durations is None else DurationCounts(*(x[:k] for x in found.durations)),
            None if found.ends is None else found.ends[:, :, :k],
        )

    def log_normalizers(
        self, potentials: Potentials, index: Tensor, offsets: Tensor, *, n_threads: int = 1
    ) -> Tensor:
        """Compute log Z of every sequence."""
        return recursions.log_normalizers(self._padded(potentials), index, offsets)

    def viterbi(
        self, potentials: Potentials, index: Tensor, offsets: Tensor, *, n_threads: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Find the best path of every sequence; ties go to the lower state."""
        return decoding.viterbi(self._padded(potentials), index, offsets)

    def last_scores(
        self, potentials: Potentials, index: Tensor, offsets: Tensor, *, n_threads: int = 1
    ) -> Tensor:
        """Return the score of the best path to each state of the last step of sequences."""
        scores = decoding.last_scores(self._padded(potentials), index, offsets)
        return scores[:, : len(potentials.start)]

    def _padded(self, potentials: Potentials) -> Potentials:
        n_states = max(len(potentials.start), self.least)
        return _padded(potentials, n_states if n_states == self.exact else padded_states(n_states))


def _padded(potentials: Potentials, width: int) -> Potentials:
    """Add states of potential zero, which no state leads to or comes from."""
    start, matrix, table, log_scale = potentials[:4]
    n_states = len(start)
    extra = width - n_states
    if extra == 0:
        return potentials
    pad = torch.nn.functional.pad
    both = with_transpose(matrix)
    if isinstance(table, AffineTable):
        rows, gain, shift, missing = table
        table = AffineTable(
            _columns(rows, width),
            pad(gain, (0, extra)),
            pad(shift, (0, extra)),
            _columns(missing, width),
        )
    else:
        table = _columns(table, width)
    durations = potentials.durations
    if durations is not None:
        entry, stay, advance = durations
        durations = DurationPotentials(
            pad(entry, (0, 0, 0, extra)), pad(stay, (0, extra)), pad(advance, (0, extra))
        )
    edges = potentials.edges
    if edges is not None:
        before, after = (pad(part, (0, 0, 0, extra)) for part in edges[1:])
        edges = CopyEdges(edges.inner, before, after)
    matrix = pad(both, (0, extra, 0, extra))[0]
    return Potentials(pad(start, (0, extra)), matrix, table, log_scale, durations, edges)


def _columns(rows: Tensor, width: int) -> Tensor:
    """Return rows of that width or more; a table has it already."""
    missing = width - rows.shape[-1]
    return torch.nn.functional.pad(rows, (0, missing)) if missing > 0 else rows


def _cut(part: Tensor, n_states: int) -> Tensor:
    """Leave the added states out."""
    return part[(slice(n_states),) * part.ndim].contiguous()
