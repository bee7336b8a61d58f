"""Potentials as tensors: emission tables that are computed as they are read, and logarithms."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from sojourn.kernels.interface import Potentials, Smoothed

_LOG_STEPS = 2**20  # steps whose logarithms are there at a time

Tensor = Any


class AffineTable(NamedTuple):
    """Emission potentials ``rows * gain + shift``, computed as they are read.

    Attributes
    ----------
    rows : (S, W) tensor
        One row per symbol; columns beyond K are not read.
    gain, shift : (K,) tensors
        ``shift / gain`` is the same number for all states.
    missing : tensor
        A row of at least K numbers whose potentials are one.
    """

    rows: Tensor
    gain: Tensor
    shift: Tensor
    missing: Tensor


def affine_parts(potentials: Potentials) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return rows, gain and shift of the emission table; a plain one has the rows alone."""
    table = potentials.emissions
    return table[:3] if isinstance(table, AffineTable) else (table, None, None)


def plain(potentials: Potentials) -> Potentials:
    """Return potentials with the emission table written out."""
    rows, gain, shift = affine_parts(potentials)
    if gain is None:
        return potentials
    return potentials._replace(emissions=rows[:, : len(gain)] * gain + shift)


def written_out(potentials: Potentials) -> Potentials:
    """Return the same with a row of ones after the last, that of a missing observation."""
    written, n_states = plain(potentials), len(potentials.start)
    table, scale = written.emissions[:, :n_states], written.log_scale
    table = torch.cat([table, torch.ones_like(table[:1])])
    if scale is not None:
        scale = torch.cat([scale, torch.zeros_like(scale[:1])])
    return written._replace(emissions=table, log_scale=scale)


def pad_matrix(matrix: Tensor, n_rows: int, n_columns: int) -> Tensor:
    """Add rows and columns of zeros."""
    rows, columns = matrix.shape
    return torch.nn.functional.pad(matrix, (0, n_columns - columns, 0, n_rows - rows)).contiguous()


def with_transpose(matrix: Tensor) -> Tensor:
    """Return a matrix and its transpose, (2, K, K).

    The transpose may lie behind the matrix already: `transition_potentials` puts it there.
    """
    if matrix._base is not None and matrix._base.shape == (2, *matrix.shape):
        return matrix._base
    return torch.stack([matrix, matrix.T])


def log_potential(smoothed: Smoothed, potentials: Potentials, index: Tensor) -> Tensor:
    """E_q of the logarithm of the product of potentials along the path."""
    start, matrix, rows, log_scale = plain(potentials)[:4]
    n_states = len(start)
    # A potential of zero has no responsibility: the clamp only avoids 0 · log 0.
    logs = rows[:, :n_states].clamp(min=torch.finfo(rows.dtype).tiny).log()
    # A row beyond the table is a missing observation, whose potential is one.
    logs = torch.nn.functional.pad(logs, (0, 0, 0, 1))
    total = torch.xlogy(smoothed.start, start).sum()
    total += torch.xlogy(smoothed.transitions, matrix).sum()
    if potentials.durations is not None:
        assert smoothed.durations is not None
        for counts, values in zip(smoothed.durations, potentials.durations, strict=True):
            total += torch.xlogy(counts, values).sum()
    for begin in range(0, len(index), _LOG_STEPS):
        steps = slice(begin, begin + _LOG_STEPS)
        logs_here = logs[index[steps]]
        total += (smoothed.responsibilities[steps] * logs_here).sum(dtype=torch.float64)
    if log_scale is not None:
        scales = torch.nn.functional.pad(log_scale.double(), (0, 1))
        total += scales[index].sum()
    return total
