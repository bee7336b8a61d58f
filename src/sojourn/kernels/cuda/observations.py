"""Numbers on a GPU: log densities of a step in every state, and weighted sums of statistics.

A row of numbers goes in, a row of potentials or sums come out, and nothing with a number per step,
state and column is written in between.  Computed in double precision: sums of squares cancel.  The
device side follows the host side.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from sojourn.kernels.cuda.launch import Launched, in_turn
from sojourn.kernels.cuda.symbols import sum_columns
from sojourn.kernels.interface import padded_states

_TILE = 32  # steps of a program at a time

Tensor = Any


def tabled_rows(x: Tensor, logs: Tensor, dtype: Any) -> tuple[Tensor, Tensor]:
    """Add up the log potentials of columns of whole numbers.

    Parameters
    ----------
    x : (T, D) float64 tensor
        NaN is a missing number.
    logs : (D, V + 1, K) float64 tensor
        Log potentials of the numbers below V of every column, and of a missing one.
    dtype : torch.dtype

    Returns
    -------
    table : (T, K) tensor
        Potentials, the largest of each row one.
    log_scale : (T,) float64 tensor
        Logarithms of the factors.
    """
    n_columns, n_values, n_states = logs.shape
    table, log_scale = _empty_rows(x, n_states, dtype)
    _tabled_rows_kernel[(triton.cdiv(len(x), _TILE),)](
        x, logs, table, log_scale, len(x), n_columns, n_values, n_states, table.stride(0),
        TILE=_TILE, LANES=_lanes(n_states), num_warps=4,
    )  # fmt: skip
    return table[:, :n_states], log_scale


def squared_rows(
    x: Tensor,
    columns: Tensor,
    location: Tensor,
    weights: Tensor,
    spans: Tensor,
    powers: Tensor,
    constants: Tensor,
    dtype: Any,
    *,
    collapsed: bool,
    n_leverage: int = 0,
    half: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Compute potentials from sums of squares of linear forms.

    With ``y = x[:, columns] - location``, forms ``weights[0, e] + y @ weights[1:, e]``, ``l`` the
    sum of the squares of the first `n_leverage` of them, and ``q[g]`` that of the others of a
    group g, log potentials are the sum over groups of ``constants[g] - powers[g] *
    log1p(q[g] / (1 + l))`` less ``half * log1p(l)`` (collapsed), or of ``constants[g] - powers[g] *
    q[g]`` less ``half * l``.  A group with a missing number adds nothing.

    Parameters
    ----------
    x : (T, C) float64 tensor
    columns : (side,) int32 tensor
    location : (side,) float64 tensor
    weights : (1 + side, E, K) float64 tensor
    spans : (E, 3) int32 tensor
        First and last of the y that count in form e (the last is exclusive), and whether a group
        ends with it.
    powers, constants : (G, K) float64 tensors
    dtype : torch.dtype
    collapsed : bool
    n_leverage : int
    half : float

    Returns
    -------
    table : (T, K) tensor
    log_scale : (T,) float64 tensor
    """
    _, n_forms, n_states = weights.shape
    table, log_scale = _empty_rows(x, n_states, dtype)
    _squared_rows_kernel[(triton.cdiv(len(x), _TILE),)](
        x, columns, location, weights, spans, powers, constants, table, log_scale,
        len(x), x.shape[1], n_forms, len(powers), n_states, table.stride(0), n_leverage, half,
        COLLAPSED=collapsed, LEVERAGE=n_leverage > 0,
        TILE=_TILE, LANES=_lanes(n_states), num_warps=4,
    )  # fmt: skip
    return table[:, :n_states], log_scale


def quadratic_sums(
    x: Tensor, location: Tensor, places: Tensor, factors: Tensor, weights: Tensor, n_sequences: int
) -> Tensor:
    """Sum statistics of at most second order over steps, in a fixed order: (S, K).

    With ``y = x - location`` statistic s of a step is ``a + b y[i] + c y[i] y[j]``; it is zero
    where one of its numbers, or number g, is missing.

    Parameters
    ----------
    x : (T, C) float64 tensor
    location : (C,) float64 tensor
    places : (3, S) int32 tensor
        i, j and g.
    factors : (3, S) float64 tensor
        a, b and c.
    weights : (T, K) tensor
        Steps at the end without a weight change no bit.
    n_sequences : int
        Sequences of the batch, which say how long the spans are that are summed apart.
    """
    n_statistics, n_states = places.shape[1], weights.shape[1]
    span = min(max(128, triton.next_power_of_2(n_sequences) // 8), 1024)
    n_spans = max(1, triton.cdiv(len(x), span))
    block = min(32, max(16, triton.next_power_of_2(n_statistics)))
    lanes = min(_lanes(n_states), 64)
    partial = torch.empty(
        (n_spans, n_statistics, n_states), dtype=torch.float64, device=weights.device
    )
    grid = (n_spans, triton.cdiv(n_statistics, block), triton.cdiv(n_states, lanes))
    _quadratic_sums_kernel[grid](
        x, location, places, factors, weights, weights.stride(0), partial,
        len(x), x.shape[1], n_statistics, n_states, span,
        BLOCK=block, LANES=lanes, TILE=_TILE, num_warps=4,
    )  # fmt: skip
    return sum_columns(partial.reshape(n_spans, -1), None, 0).reshape(n_statistics, n_states)


def _lanes(n_states: int) -> int:
    return max(16, triton.next_power_of_2(n_states))


def _empty_rows(x: Tensor, n_states: int, dtype: Any) -> tuple[Tensor, Tensor]:
    width = padded_states(n_states)
    table = torch.empty((len(x), width), dtype=dtype, device=x.device)
    return table, torch.empty(len(x), dtype=torch.float64, device=x.device)


# ---- device side ---------------------------------------------------------------------------------


@triton.jit
def _write_rows(total, table, log_scale, step, state, n_steps, n_states, stride):
    """Write potentials with the largest of each row one, and the logarithms of the factors."""
    total = tl.where((state < n_states)[None, :], total, float("-inf"))
    largest = tl.max(total, axis=1)
    kind = table.dtype.element_ty
    # Of a log potential below single precision's range nothing is left in any precision.
    rows = tl.exp((total - largest[:, None]).to(kind))
    where = step.to(tl.int64)[:, None] * stride + state[None, :]
    tl.store(table + where, rows, mask=(step < n_steps)[:, None] & (state < stride)[None, :])
    tl.store(log_scale + step, largest, mask=step < n_steps)


@Launched
@triton.jit(do_not_specialize=["n_steps", "n_columns", "n_values", "n_states"])
def _tabled_rows_kernel(
    x, logs, table, log_scale, n_steps, n_columns, n_values, n_states, stride,
    TILE: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Look up the log potentials of every column, and add them."""
    in_turn()
    step = tl.program_id(0) * TILE + tl.arange(0, TILE)
    state = tl.arange(0, LANES)
    there = step < n_steps
    inside = there[:, None] & (state < n_states)[None, :]
    total = tl.zeros((TILE, LANES), tl.float64)
    for d in range(n_columns):
        value = tl.load(x + step.to(tl.int64) * n_columns + d, mask=there, other=0.0)
        is_missing = value != value
        code = tl.where(is_missing, 0.0, value).to(tl.int32)
        row = d * n_values + tl.where(is_missing, n_values - 1, code)
        total += tl.load(
            logs + row.to(tl.int64)[:, None] * n_states + state[None, :], mask=inside, other=0.0
        )
    _write_rows(total, table, log_scale, step, state, n_steps, n_states, stride)


@triton.jit
def _squared_form(e, row, there, columns, location, weights, spans, state, n_forms, n_states):
    """Return the square of form e, of some steps in every state."""
    inside = state < n_states
    own = weights + e * n_states + state
    constant = tl.load(own, mask=inside, other=0.0)[None, :]
    form = constant + tl.zeros((there.shape[0], 1), tl.float64)
    for j in range(tl.load(spans + 3 * e), tl.load(spans + 3 * e + 1)):
        y = tl.load(row + tl.load(columns + j), mask=there, other=0.0) - tl.load(location + j)
        weight = tl.load(own + (1 + j) * n_forms * n_states, mask=inside, other=0.0)
        form += y[:, None] * weight[None, :]
    return form * form


@triton.jit
def _log_one_plus(x):
    """Return log(1 + x) with the digits of a small x."""
    one = 1.0 + x
    # Of what rounding took away few digits are needed.
    return tl.log(one) - ((one - 1.0) - x) * (1.0 / one.to(tl.float32)).to(tl.float64)


@Launched
@triton.jit(
    do_not_specialize=[
        *("n_steps", "n_columns", "n_forms", "n_groups", "n_states", "n_leverage", "half"),
    ]
)
def _squared_rows_kernel(
    x, columns, location, weights, spans, powers, constants, table, log_scale,
    n_steps, n_columns, n_forms, n_groups, n_states, stride, n_leverage, half,
    COLLAPSED: tl.constexpr, LEVERAGE: tl.constexpr, TILE: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Evaluate the forms one after another; what they are multiplied with stays in the cache."""
    in_turn()
    step = tl.program_id(0) * TILE + tl.arange(0, TILE)
    state = tl.arange(0, LANES)
    there = step < n_steps
    inside = state < n_states
    row = x + step.to(tl.int64) * n_columns
    leverage = tl.zeros((TILE, LANES), tl.float64)
    for e in range(n_leverage):
        leverage += _squared_form(
            e, row, there, columns, location, weights, spans, state, n_forms, n_states
        )
    total = tl.zeros((TILE, LANES), tl.float64)
    square = tl.zeros((TILE, LANES), tl.float64)
    # Groups with the same power are multiplied, less one, before a logarithm is taken.
    factors = tl.zeros((TILE, LANES), tl.float64)
    first = tl.load(powers + state, mask=inside, other=0.0)
    apart = tl.zeros((), tl.float64)
    for g in range(1, n_groups):
        power = tl.load(powers + g * n_states + state, mask=inside, other=0.0)
        apart = tl.maximum(apart, tl.max(tl.abs(power - first), axis=0))
    group = 0
    for e in range(n_leverage, n_forms):
        square += _squared_form(
            e, row, there, columns, location, weights, spans, state, n_forms, n_states
        )
        if tl.load(spans + 3 * e + 2) > 0:
            known = square == square
            added = tl.load(constants + group * n_states + state, mask=inside, other=0.0)[None, :]
            if LEVERAGE:
                added -= half * (_log_one_plus(leverage) if COLLAPSED else leverage)
            if COLLAPSED:
                if LEVERAGE:
                    square /= 1.0 + leverage
                # As on the CPU a square is cut off where the product of eight would overflow.
                square = tl.where(known, tl.minimum(square, 1e37), 0.0)
                factors += square + factors * square
                if (apart > 0.0) | (group % 8 == 7):
                    power = tl.load(powers + group * n_states + state, mask=inside, other=0.0)
                    total -= power[None, :] * _log_one_plus(factors)
                    factors = tl.zeros((TILE, LANES), tl.float64)
            else:
                power = tl.load(powers + group * n_states + state, mask=inside, other=0.0)
                added -= power[None, :] * square
            total += tl.where(known, added, 0.0)
            square = tl.zeros((TILE, LANES), tl.float64)
            group += 1
    if COLLAPSED:
        total -= first[None, :] * _log_one_plus(factors)
    _write_rows(total, table, log_scale, step, state, n_steps, n_states, stride)


@Launched
@triton.jit(do_not_specialize=["n_steps", "n_columns", "n_statistics", "n_states", "span"])
def _quadratic_sums_kernel(
    x, location, places, factors, weights, stride, partial,
    n_steps, n_columns, n_statistics, n_states, span,
    BLOCK: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Sum some statistics of some states over a span of steps."""
    in_turn()
    program = tl.program_id(0)
    statistic = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    state = tl.program_id(2) * LANES + tl.arange(0, LANES)
    known = statistic < n_statistics
    i = tl.load(places + statistic, mask=known, other=0)
    j = tl.load(places + n_statistics + statistic, mask=known, other=0)
    guard = tl.load(places + 2 * n_statistics + statistic, mask=known, other=0)
    a = tl.load(factors + statistic, mask=known, other=0.0)[None, :]
    b = tl.load(factors + n_statistics + statistic, mask=known, other=0.0)[None, :]
    c = tl.load(factors + 2 * n_statistics + statistic, mask=known, other=0.0)[None, :]
    zero_i = tl.load(location + i)[None, :]
    zero_j = tl.load(location + j)[None, :]
    total = tl.zeros((BLOCK, LANES), tl.float64)
    end = tl.minimum((program + 1) * span, n_steps)
    for begin in range(program * span, end, TILE):
        step = begin + tl.arange(0, TILE)
        there = (step < end)[:, None]
        row = x + step.to(tl.int64)[:, None] * n_columns
        first = tl.load(row + i[None, :], mask=there, other=0.0) - zero_i
        second = tl.load(row + j[None, :], mask=there, other=0.0) - zero_j
        seen = tl.load(row + guard[None, :], mask=there, other=0.0)
        value = a + first * (b + c * second)
        value = tl.where((value == value) & (seen == seen), value, 0.0)
        where = step.to(tl.int64)[:, None] * stride + state[None, :]
        weight = tl.load(weights + where, mask=there & (state < n_states)[None, :], other=0.0)
        total = tl.dot(
            tl.trans(value), weight.to(tl.float64), total, out_dtype=tl.float64,
            input_precision="ieee",
        )  # fmt: skip
    where = program.to(tl.int64) * n_statistics * n_states
    where += statistic[:, None] * n_states + state[None, :]
    tl.store(partial + where, total, mask=known[:, None] & (state < n_states)[None, :])
