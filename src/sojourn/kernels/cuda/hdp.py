"""An update of the hierarchical Dirichlet process on a GPU, as `kernels.cpu.tables` has it.

As PyTorch's operations it is some hundred launches, each of which takes longer than its work.  Here
it is four: the prior of all cells before and after, the expected tables of each row, and the
posteriors.  All of it is in double precision.  The device side follows the host side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from sojourn.kernels.arrays import namespace
from sojourn.kernels.cuda.launch import Launched, in_turn

Tensor = Any

_LANES = 64  # at least, so that few states need no kernels of their own

_SMALLEST_SUM = tl.constexpr(1e-200)  # of an event that may occur
_LARGEST_PROBABILITY = tl.constexpr(1.0 - 1e-8)


class HdpPosterior(NamedTuple):
    """What an update of the HDP changes, as tensors in double precision.

    Attributes
    ----------
    tables : (K,) tensor
        Blended expected tables of the states.
    stick_gamma : () tensor
        Blended E[γ] of the sticks.
    alpha, gamma : pairs of () tensors
        Shape and rate of α and of γ.
    """

    tables: Tensor
    stick_gamma: Tensor
    alpha: tuple[Tensor, Tensor]
    gamma: tuple[Tensor, Tensor]

    def tensors(self) -> tuple[Tensor, ...]:
        """Return all tensors in one tuple."""
        return (self.tables, self.stick_gamma, *self.alpha, *self.gamma)


def geometric_prior(
    tables: Tensor, stick_gamma: Tensor, alpha: tuple[Tensor, Tensor], by_size: bool
) -> Tensor:
    """Return G[α π] of every state, eq (8), with `alpha` shape and rate of α."""
    out, room = torch.empty_like(tables), torch.empty_like(tables)
    _prior_kernel[(1,)](
        tables, stick_gamma, *alpha, out, room, len(tables),
        BY_SIZE=by_size, LANES=_lanes(tables), num_warps=4,
    )  # fmt: skip
    return out


def update_posteriors(
    sums: dict[str, Tensor],
    copies: float,
    prior: Tensor,
    before: HdpPosterior,
    priors: tuple[float, float, float, float],
    step_size: Tensor,
    *,
    by_size: bool,
    second_order: bool,
) -> tuple[HdpPosterior, Tensor]:
    """Blend the posteriors with those of a large batch, eqs (5) to (8) and (19).

    Parameters
    ----------
    sums : dict of tensors
        Start and transitions, and the sums of q²; without these, in the fast form of eq (4).
    copies : float
        The data set is so many copies of the large batch.
    prior : (K,) tensor
        G[α π] before the update.
    before : HdpPosterior
    priors : four floats
        Shape and rate of the priors on α and on γ.
    step_size : () tensor
    by_size, second_order : bool
        As `sort_states` and `second_order` of `HDP`.

    Returns
    -------
    after : HdpPosterior
    weights : (K,) tensor
        G[α π] after the update.
    """
    n_states, exact = len(prior), "squares_pairs" in sums
    squares: tuple[Any, ...] = (None, None, None)
    if exact:
        squares = tuple(sums[f"squares_{name}"].contiguous() for name in ("start", "pairs", "rows"))
    # In double precision, which a number given to a kernel does not have.
    known = namespace(prior).asarray([copies, *priors], like=prior)
    like: Any = {"dtype": torch.float64, "device": prior.device}
    cells = torch.empty((n_states + 1, n_states), **like)
    log_eta = torch.empty(n_states + 1, **like)
    _tables_kernel[(n_states + 1,)](
        sums["start"], sums["transitions"], *squares, known, prior, *before.alpha, cells, log_eta,
        n_states, EXACT=exact, SECOND=second_order, LANES=_lanes(prior), num_warps=1,
    )  # fmt: skip
    tables, room, shared = torch.empty_like(prior), torch.empty_like(prior), torch.empty(5, **like)
    _posteriors_kernel[(1,)](
        cells, log_eta, known, step_size, *before.tensors(), tables, shared, room,
        n_states, BY_SIZE=by_size, LANES=_lanes(prior), num_warps=4,
    )  # fmt: skip
    stick_gamma, a, b, c, d = shared
    after = HdpPosterior(tables, stick_gamma, (a, b), (c, d))
    return after, geometric_prior(tables, stick_gamma, after.alpha, by_size)


def _lanes(prior: Tensor) -> int:
    return int(triton.next_power_of_2(max(_LANES, len(prior))))


# ---- device side ---------------------------------------------------------------------------------


@triton.jit
def _log_one_plus(x):
    """log(1 + x), also for small x."""
    whole = 1.0 + x
    is_none = whole == 1.0
    return tl.where(is_none, x, tl.log(whole) * (x / tl.where(is_none, 1.0, whole - 1.0)))


@triton.jit
def _one_less_exponential(x):
    """1 − exp(x) for x ≤ 0, also for small x."""
    power = tl.exp(x)
    less = 1.0 - power
    is_plain = (power < 0.5) | (power == 1.0)
    near = less * (x / tl.where(is_plain, 1.0, tl.log(power)))
    return tl.where(power == 1.0, -x, tl.where(is_plain, less, near))


@triton.jit
def _digamma(x):
    """ψ(x) for x > 0, by recurrence to x ≥ 6 and the asymptotic series from there."""
    low = x < 6.0
    u = x * (x + 5.0)
    v = u + 4.0
    w = u + 6.0
    shift = tl.where(low, (2.0 * x + 5.0) * (v * w + u * (v + w)) / (u * v * w), 0.0)
    y = tl.where(low, x + 6.0, x)
    inverse = 1.0 / y
    square = inverse * inverse
    series = 691.0 / 32760.0 - square * (1.0 / 12.0)
    series = 1.0 / 132.0 - square * series
    series = 1.0 / 240.0 - square * series
    series = 1.0 / 252.0 - square * series
    series = 1.0 / 120.0 - square * series
    series = 1.0 / 12.0 - square * series
    return tl.log(y) - 0.5 * inverse - square * series - shift


@triton.jit
def _tetragamma(x):
    """ψ″(x) for x > 0, by recurrence to x + 10 and the asymptotic series from there."""
    total = 0.0 * x
    for n in tl.static_range(10):
        inverse = 1.0 / (x + n)
        total += 2.0 * inverse * inverse * inverse
    inverse = 1.0 / (x + 10.0)
    square = inverse * inverse
    series = 5.0 / 6.0 - square * (691.0 / 210.0)
    series = 3.0 / 10.0 - square * series
    series = 1.0 / 6.0 - square * series
    series = 1.0 / 6.0 - square * series
    series = 0.5 - square * series
    return -total - square * (1.0 + inverse + square * series)


@triton.jit
def _absence(sums, squares, POWER: tl.constexpr):
    """Σ log(1 − q^POWER) of as many events as have these sums, all of them the same, eq (4)."""
    p = tl.minimum(tl.maximum(squares / tl.maximum(sums, _SMALLEST_SUM), 0.0), _LARGEST_PROBABILITY)
    probable = p > 1e-12
    p = tl.where(probable, p, 0.5)
    by_logarithm = sums / p * _log_one_plus(-(p if POWER == 1 else p * p))
    return tl.where(probable, by_logarithm, -(sums if POWER == 1 else squares))


@triton.jit
def _settled(prior, counts, log_absent, variances, SECOND: tl.constexpr):
    """Return E[s] of cells, eq (5)."""
    seen = counts > _SMALLEST_SUM
    occurs = tl.where(seen, _one_less_exponential(log_absent), 1.0)
    given = tl.where(seen, counts, 1.0) / occurs
    excess = _digamma(prior + given) - _digamma(prior)
    if SECOND:
        spread = tl.maximum(variances / occurs - (1.0 - occurs) * given * given, 0.0)
        excess += 0.5 * spread * _tetragamma(prior + given)
    return tl.where(seen, prior * occurs * tl.maximum(excess, 0.0), 0.0)


@Launched
@triton.jit(
    do_not_specialize=["K"],
    do_not_specialize_on_alignment=["start", "start_squares", "row_squares", "shape", "rate"],
)
def _tables_kernel(
    start,
    transitions,
    start_squares,
    pair_squares,
    row_squares,
    known,
    prior,
    shape,
    rate,
    cells,
    log_eta,
    K,
    EXACT: tl.constexpr,
    SECOND: tl.constexpr,
    LANES: tl.constexpr,
):
    """Write E[s] of a row's cells, eq (5) or (19), and E[log η] of it, eq (6); the start is first.

    The start certainly occurs.
    """
    in_turn()
    row = tl.program_id(0)
    state = tl.arange(0, LANES)
    inside = state < K
    copies = tl.load(known)
    is_start = state * 0 + row == 0
    before = (row - 1) * K + state
    counts = tl.load(start + state, mask=inside & is_start, other=0.0)
    counts += tl.load(transitions + before, mask=inside & ~is_start, other=0.0)
    counts *= copies
    own = tl.load(prior + state, mask=inside, other=1.0)
    total = tl.sum(counts, axis=0)
    row_square = 0.0 * total
    if EXACT:
        squares = tl.load(start_squares + state, mask=inside & is_start, other=0.0)
        squares += tl.load(pair_squares + before, mask=inside & ~is_start, other=0.0)
        certain = tl.minimum(squares * copies, counts)
        none = tl.minimum(_absence(counts, certain, 2), -certain)
        tables = _settled(own, certain, none, certain, False)
        tables += own * _log_one_plus((counts - certain) / (own + certain))
        row_square = tl.load(row_squares + tl.maximum(row - 1, 0)) * copies
    else:
        tables = _settled(own, counts, -counts, counts, SECOND)
    tl.store(cells + row * K + state, tables, mask=inside)
    absent = tl.minimum(_absence(total, row_square, 1), -total)
    seen = total > _SMALLEST_SUM
    occurs = tl.where(seen & (row > 0), _one_less_exponential(absent), 1.0)
    alpha = tl.load(shape) / tl.load(rate)
    grown = _digamma(alpha) - _digamma(alpha + tl.where(seen, total, 1.0) / occurs)
    tl.store(log_eta + row, tl.where(seen, occurs * grown, 0.0))


@triton.jit
def _sum_of_later(numbers, tables, own, state, K, BY_SIZE: tl.constexpr, LATER: tl.constexpr):
    """Sum numbers of the sticks after each state's, or of those before it.

    The largest state has the first stick, or the first one; of equals the first is first.
    """
    total = tl.zeros(own.shape, tl.float64)
    for begin in range(0, K, 16):
        other = begin + tl.arange(0, 16)
        there = other < K
        number = tl.load(numbers + other, mask=there, other=0.0)
        is_later = other[None, :] > state[:, None]
        if BY_SIZE:
            size = tl.load(tables + other, mask=there, other=0.0)[None, :]
            is_later = (size < own[:, None]) | ((size == own[:, None]) & is_later)
        is_other = there[None, :] & (other[None, :] != state[:, None])
        wanted = is_other & (is_later if LATER else ~is_later)
        total += tl.sum(tl.where(wanted, number[None, :], 0.0), axis=1)
    return total


@Launched
@triton.jit(
    do_not_specialize=["K"],
    do_not_specialize_on_alignment=["tables", "stick_gamma", "shape", "rate"],
)
def _prior_kernel(
    tables, stick_gamma, shape, rate, out, room, K, BY_SIZE: tl.constexpr, LANES: tl.constexpr
):
    """Write G[α π] of every state, eq (8)."""
    in_turn()
    state = tl.arange(0, LANES)
    inside = state < K
    own = tl.load(tables + state, mask=inside, other=0.0)
    rest = tl.load(stick_gamma) + _sum_of_later(tables, tables, own, state, K, BY_SIZE, True)
    whole = _digamma(1.0 + own + rest)
    tl.store(room + state, _digamma(rest) - whole, mask=inside)
    tl.debug_barrier()  # all of it is read
    before = _sum_of_later(room, tables, own, state, K, BY_SIZE, False)
    log_weight = _digamma(1.0 + own) - whole + before
    scale = tl.exp(_digamma(tl.load(shape))) / tl.load(rate)
    # The weight of a stick without observations underflows; the rows must stay positive.
    tl.store(out + state, tl.maximum(scale * tl.exp(log_weight), 1e-30), mask=inside)


@Launched
@triton.jit(
    do_not_specialize=["K"],
    do_not_specialize_on_alignment=[
        *("step_size", "tables", "stick_gamma"),
        *("alpha_shape", "alpha_rate", "gamma_shape", "gamma_rate"),
    ],
)
def _posteriors_kernel(
    cells,
    log_eta,
    known,
    step_size,
    tables,
    stick_gamma,
    alpha_shape,
    alpha_rate,
    gamma_shape,
    gamma_rate,
    new_tables,
    shared,
    room,
    K,
    BY_SIZE: tl.constexpr,
    LANES: tl.constexpr,
):
    """Blend tables, sticks, α and γ, eq (7)."""
    in_turn()
    state = tl.arange(0, LANES)
    inside = state < K
    step = tl.load(step_size)
    keep = 1.0 - step
    found = tl.zeros((LANES,), tl.float64)
    log_etas = tl.zeros((16,), tl.float64)
    for begin in range(0, K + 1, 16):
        row = begin + tl.arange(0, 16)
        mask = (row <= K)[:, None] & inside[None, :]
        part = tl.load(cells + row[:, None] * K + state[None, :], mask=mask, other=0.0)
        found += tl.sum(part, axis=0)
        log_etas += tl.load(log_eta + row, mask=row <= K, other=0.0)
    # The new sticks, in the order of their own tables.
    tl.store(room + state, found, mask=inside)
    tl.debug_barrier()  # all of it is read
    gamma = tl.load(gamma_shape) / tl.load(gamma_rate)
    rest = gamma + _sum_of_later(room, room, found, state, K, BY_SIZE, True)
    log_rest = _digamma(rest) - _digamma(1.0 + found + rest)
    all_rest = tl.sum(tl.where(inside, log_rest, 0.0), axis=0)
    blended = keep * tl.load(tables + state, mask=inside, other=0.0) + step * found
    tl.store(new_tables + state, blended, mask=inside)
    shape = tl.load(known + 1) + tl.sum(found, axis=0)
    rate = tl.load(known + 2) - tl.sum(log_etas, axis=0)
    tl.store(shared, keep * tl.load(stick_gamma) + step * gamma)
    tl.store(shared + 1, keep * tl.load(alpha_shape) + step * shape)
    tl.store(shared + 2, keep * tl.load(alpha_rate) + step * rate)
    tl.store(shared + 3, keep * tl.load(gamma_shape) + step * (tl.load(known + 3) + K))
    tl.store(shared + 4, keep * tl.load(gamma_rate) + step * (tl.load(known + 4) - all_rest))
