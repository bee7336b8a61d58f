"""Rows of potentials of families side by side: the products of their own rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from sojourn.families.base import EmissionRows, Family
from sojourn.families.blocks import LogPotentials, potential_rows
from sojourn.families.dense import DenseFamily
from sojourn.kernels.cpu.counts import product_rows
from sojourn.kernels.cpu.symbols import consecutive
from sojourn.kernels.interface import Floats, padded_states


def part_potentials(part: Family, natural: Floats, *, collapsed: bool) -> LogPotentials:
    """Return eq (2) or (2') of a family as a function of x; what λ alone decides comes first."""
    if isinstance(part, DenseFamily):
        return part.potentials(natural, collapsed=collapsed)
    return partial(
        part.log_predictive if collapsed else part.expected_log_likelihood, natural=natural
    )


def joint_rows(
    potentials: Sequence[LogPotentials],
    symbols: Sequence[int | None],
    x: Sequence[Any],
    n_states: int,
    dtype: Any,
    n_threads: int,
) -> EmissionRows:
    """Return rows for the kernel, each the product of one row of every part.

    Parameters
    ----------
    potentials : sequence of LogPotentials
        Those of the parts.
    symbols : sequence of int or None
        Number of symbols of a part that has symbols; −1 is a missing one.
    x : sequence of arrays
        Observations of the parts.
    """
    n_steps, found = len(x[0]), []
    for function, n_symbols, own in zip(potentials, symbols, x, strict=True):
        n_columns = 1 if own.ndim == 1 else own.shape[1]
        if n_symbols is not None and n_symbols < n_steps:
            every = potential_rows(
                function, np.arange(n_symbols + 1) - 1, n_columns, n_states, np.float64, n_threads
            )
            found.append(replace(every, index=np.asarray(own) + 1))
        else:
            found.append(potential_rows(function, own, n_columns, n_states, np.float64, n_threads))
    ends = np.cumsum([0, *(len(rows.table) for rows in found)])
    table = np.zeros((ends[-1], padded_states(n_states)))
    log_scale, index = np.empty(ends[-1]), np.empty((n_steps, len(found)), np.int32)
    for g, rows in enumerate(found):
        own = slice(ends[g], ends[g + 1])
        table[own, :n_states] = rows.table[:, :n_states]
        log_scale[own] = 0.0 if rows.log_scale is None else rows.log_scale
        index[:, g] = ends[g] + rows.index
    joint, scales = product_rows(index, table, log_scale, n_states, dtype, n_threads=n_threads)
    # Parts that rule out each other's states entirely leave nothing of a product.
    nothing = np.flatnonzero(~(joint[:, :n_states].max(axis=1) > 0.0))
    if len(nothing):
        pairs = zip(potentials, x, strict=True)
        logs = np.sum([function(own[nothing]) for function, own in pairs], axis=0)
        scales[nothing] = logs.max(axis=1)
        joint[nothing, :n_states] = np.exp(logs - scales[nothing, None])
    return EmissionRows(joint, scales, consecutive(n_steps))
