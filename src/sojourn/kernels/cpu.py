"""Forward-backward and Viterbi on blocks of sequences, in numba.

A block is a few dozen sequences of similar length, the longest first, so that the ones still
running at a step are the first rows.  One matrix product a step then moves the whole block
forward or backward, and one more collects its transition counts:

    forward    α_t = (α_{t−1} Θ) ∘ φ_t / c_t            c_t makes each row sum to one
    backward   β_{t−1} = ε_t Θᵀ,   ε_t = φ_t ∘ β_t / c_t
    counts     Θ ∘ Σ_t α_{t−1}ᵀ ε_t

Blocks are shared out to at most `_MAX_UNITS` units.  A unit has its own sums, threads take units
as they get free, and the sums are added in the order of the units: the number of threads does not
change a bit.  States are padded with zeros to a multiple of `PAD`.

Memory for a thread: one chunk of forward vectors, at most `chunk_elements` numbers, or one step
of a block if that is more.  Longer sequences keep the vectors at chunk boundaries alone and
compute a chunk again on the way back, which adds a third to the work.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from sojourn.kernels import reference
from sojourn.kernels.gemm import gemm
from sojourn.kernels.interface import (
    Absences,
    Floats,
    Integers,
    Potentials,
    Smoothed,
    padded_states,
)
from sojourn.kernels.rows import dot, multiply_and_sum
from sojourn.kernels.threads import prefetch_row, run_units, take_unit

_MAX_UNITS = 64
_UNIT_ELEMENTS = 2**25  # numbers in all units' transition counts together
_MIN_BLOCKS = 8
_PRODUCT_STEPS = 2**9  # outer products summed in single precision before they are moved out
_NEAR_BYTES = 2**19  # a larger emission table is out of the near caches, and rows are prefetched
_ABSENCE_STEPS = 32  # factors multiplied before a look at how small the products have become
_SMALLEST_ABSENCE = reference.SMALLEST_ABSENCE


def forward_backward(
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
    *,
    absences: bool = False,
    n_threads: int = 1,
    block_rows: int | None = None,
    chunk_elements: int = 2**22,
) -> Smoothed:
    """Compute posterior expectations of every sequence.

    Equals `reference.forward_backward` to the rounding of ``potentials.emissions.dtype``;
    `n_threads` changes nothing, `block_rows` (sequences in a block) the last bits alone, and
    `chunk_elements` (numbers of forward vectors that a thread keeps) the memory alone.
    """
    work = _Work(potentials, index, offsets, block_rows, chunk_elements)
    n_states, width, n_units = work.n_states, work.width, work.n_units
    transitions = np.zeros((n_units, width, width))
    start = np.zeros((n_units, width))
    side = width if absences else 0
    pair_squares, log_pairs = np.zeros((2, n_units, side, side))
    log_rows = np.zeros((n_units, side))
    responsibilities = np.empty((len(index), width), work.dtype)
    run_units(
        _smooth_units,
        n_units,
        n_threads,
        *work.arguments,
        True,
        responsibilities,
        start,
        transitions,
        pair_squares,
        log_pairs,
        log_rows,
    )
    failed = np.flatnonzero(np.isnan(work.log_z))
    never = None
    if absences:
        begins = np.delete(offsets[:-1], failed)
        first = responsibilities[begins, :n_states].astype(np.float64)
        never = Absences(
            np.log(np.maximum(1.0 - first, _SMALLEST_ABSENCE)).sum(axis=0),
            log_pairs.sum(axis=0)[:n_states, :n_states],
            log_rows.sum(axis=0)[:n_states],
            (first**2).sum(axis=0),
            pair_squares.sum(axis=0)[:n_states, :n_states],
        )
    smoothed = Smoothed(
        work.log_z,
        start.sum(axis=0)[:n_states],
        work.counts(transitions),
        responsibilities[:, :n_states],
        never,
    )
    return _mend(smoothed, failed, potentials, index, offsets) if len(failed) else smoothed


def log_normalizers(
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
    *,
    n_threads: int = 1,
    block_rows: int | None = None,
    chunk_elements: int = 2**22,
) -> Floats:
    """Compute log Z of every sequence by the forward recursion alone."""
    work = _Work(potentials, index, offsets, block_rows, chunk_elements)
    vectors, matrices = np.empty((1, 0)), np.empty((1, 0, 0))
    run_units(
        _smooth_units,
        work.n_units,
        n_threads,
        *work.arguments,
        False,
        vectors.astype(work.dtype),
        vectors,
        matrices,
        matrices,
        matrices,
        vectors,
    )
    for n in np.flatnonzero(np.isnan(work.log_z)):
        steps = slice(offsets[n], offsets[n + 1])
        alone = np.array([0, offsets[n + 1] - offsets[n]])
        work.log_z[n] = reference.log_normalizers(potentials, index[steps], alone)[0]
    return work.log_z


def viterbi(
    potentials: Potentials, index: Integers, offsets: Integers, *, n_threads: int = 1
) -> tuple[Floats, Integers]:
    """Find the best path of every sequence, in float64; ties go to the lower state.

    Memory for a thread: two bytes a state and step of the longest sequence.
    """
    n_states = len(potentials.start)
    width = padded_states(n_states)
    start, transitions, emissions = reference.logarithms(potentials)
    best = np.empty(len(offsets) - 1)
    path = np.empty(len(index), dtype=np.int32)
    pad = width - n_states
    run_units(
        _viterbi_units,
        len(best),
        n_threads,
        _longest_first(offsets),
        np.asarray(offsets, dtype=np.int64),
        np.asarray(index, dtype=np.int32),
        np.pad(start, (0, pad), constant_values=-np.inf),
        np.pad(transitions, ((0, pad), (0, pad)), constant_values=-np.inf),
        np.pad(emissions, ((0, 0), (0, pad)), constant_values=-np.inf),
        best,
        path,
    )
    return best, path


class _Work:
    """The padded potentials of a batch, and how it is cut into blocks and units."""

    def __init__(
        self,
        potentials: Potentials,
        index: Integers,
        offsets: Integers,
        block_rows: int | None,
        chunk_elements: int,
    ) -> None:
        n_sequences = len(offsets) - 1
        self.n_states = len(potentials.start)
        self.width = width = padded_states(self.n_states)
        self.dtype = potentials.emissions.dtype
        if block_rows is None:
            # A deeper block amortises the traffic of a large transition matrix.
            most = 32 if width <= 128 else 64
            block_rows = max(1, min(most, n_sequences // _MIN_BLOCKS))
        n_blocks = -(-n_sequences // block_rows)
        # Every unit has sums to clear and to add up: two blocks a unit where there are many.
        n_units = n_blocks if n_blocks < _MAX_UNITS // 2 else n_blocks // 2
        self.n_units = max(1, min(n_units, _MAX_UNITS, _UNIT_ELEMENTS // width**2))
        self.log_z = np.empty(n_sequences)
        start = np.zeros(width, self.dtype)
        start[: self.n_states] = potentials.start
        self.transitions = np.zeros((width, width), self.dtype)
        self.transitions[: self.n_states, : self.n_states] = potentials.transitions
        emissions = potentials.emissions
        if emissions.shape[1] != width:
            emissions = np.zeros((len(emissions), width), self.dtype)
            emissions[:, : self.n_states] = potentials.emissions
        log_scale = potentials.log_scale
        self.arguments = (
            _longest_first(offsets),
            np.asarray(offsets, dtype=np.int64),
            np.asarray(index, dtype=np.int32),
            block_rows,
            max(1, chunk_elements // (block_rows * width)),
            start,
            self.transitions,
            np.ascontiguousarray(self.transitions.T),
            np.ascontiguousarray(emissions),
            np.zeros(0) if log_scale is None else np.asarray(log_scale, dtype=np.float64),
            self.log_z,
        )

    def counts(self, products: Floats) -> Floats:
        """Σ of the units' Σ_t α_{t−1}ᵀ ε_t, times Θ: expected transition counts."""
        return (products.sum(axis=0) * self.transitions)[: self.n_states, : self.n_states]


def _mend(
    smoothed: Smoothed,
    failed: Integers,
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
) -> Smoothed:
    """Redo the sequences whose arithmetic underflowed in the log domain, and add them."""
    for n in failed:
        steps = slice(offsets[n], offsets[n + 1])
        alone = np.array([0, offsets[n + 1] - offsets[n]])
        exact = reference.forward_backward(potentials, index[steps], alone, absences=True)
        smoothed.log_normalizers[n] = exact.log_normalizers[0]
        smoothed.start[:] += exact.start
        smoothed.transitions[:] += exact.transitions
        smoothed.responsibilities[steps] = exact.responsibilities
        if smoothed.absences is not None and exact.absences is not None:
            for total, part in zip(smoothed.absences, exact.absences, strict=True):
                total += part
    return smoothed


def _longest_first(offsets: Integers) -> Integers:
    lengths = np.diff(offsets)
    if lengths.max() < 2**15:
        lengths = lengths.astype(np.int16)  # NumPy sorts these by radix, several times as fast
    return np.argsort(-lengths, kind="stable")


@njit(nogil=True)
def _add_matrix(part, total):
    for i in range(part.shape[0]):
        for j in range(part.shape[1]):
            total[i, j] += part[i, j]


@njit(nogil=True, cache=True)
def _smooth_units(
    counter,
    n_units,
    order,
    offsets,
    index,
    block_rows,
    chunk,
    start,
    transitions,
    transposed,
    emissions,
    log_scale,
    log_z,
    backward,
    responsibilities,
    start_counts,
    transition_counts,
    pair_squares,
    log_pairs,
    log_rows,
):
    """Smooth blocks u, u + n_units, ... of every unit u taken; NaN log_z marks a failed block."""
    width = start.shape[0]
    n_sequences = order.shape[0]
    longest = offsets[order[0] + 1] - offsets[order[0]]
    chunk = min(longest, chunk)
    # Slot 0 holds the step before the chunk, slot 1 its first step; a slot is a row a sequence.
    alpha = np.empty(((chunk + 1) * block_rows, width), start.dtype)
    inverse_scale = np.empty((chunk + 1) * block_rows, start.dtype)
    checkpoints = np.empty((-(-longest // chunk) * block_rows, width), start.dtype)
    beta = np.empty((block_rows, width), start.dtype)
    epsilon = np.empty((block_rows, width), start.dtype)
    products = np.empty((width, width), start.dtype)
    first = np.empty(block_rows, np.int64)
    length = np.empty(block_rows, np.int64)
    log_norm = np.empty(block_rows)
    pair_factors = np.ones(log_pairs.shape[1:])
    row_factors = np.ones((1, log_rows.shape[1]))
    n_blocks = -(-n_sequences // block_rows)
    unit = take_unit(counter)
    while unit < n_units:
        for block in range(unit, n_blocks, n_units):
            low = block * block_rows
            n_rows = min(block_rows, n_sequences - low)
            for i in range(n_rows):
                first[i] = offsets[order[low + i]]
                length[i] = offsets[order[low + i] + 1] - first[i]
                log_norm[i] = 0.0
            last = length[0]
            n_chunks = -(-last // chunk)
            sound = True
            for c in range(n_chunks):
                end = min(last, (c + 1) * chunk)
                sound = sound and _forward(
                    c * chunk, end, n_rows, first, length, index, block_rows, start, transitions,
                    emissions, log_scale, alpha, inverse_scale, log_norm, True,
                )  # fmt: skip
                if c + 1 < n_chunks:
                    carried = alpha[chunk * block_rows :]
                    checkpoints[c * block_rows : (c + 1) * block_rows] = carried
                    alpha[:block_rows] = carried
            for i in range(n_rows):
                log_z[order[low + i]] = log_norm[i] if sound else np.nan
            if not (sound and backward):
                continue
            for c in range(n_chunks - 1, -1, -1):
                end = min(last, (c + 1) * chunk)
                if c < n_chunks - 1:
                    if c > 0:
                        alpha[:block_rows] = checkpoints[(c - 1) * block_rows : c * block_rows]
                    _forward(
                        c * chunk, end, n_rows, first, length, index, block_rows, start,
                        transitions, emissions, log_scale, alpha, inverse_scale, log_norm, False,
                    )  # fmt: skip
                _backward(
                    c * chunk, end, n_rows, first, length, index, block_rows, transitions,
                    transposed, emissions, alpha, inverse_scale, beta, epsilon, responsibilities,
                    start_counts[unit], products, transition_counts[unit], pair_factors,
                    pair_squares[unit], log_pairs[unit], row_factors, log_rows[unit : unit + 1],
                )  # fmt: skip
        if pair_factors.size > 0:
            _flush(pair_factors, log_pairs[unit], 1.0)
            _flush(row_factors, log_rows[unit : unit + 1], 1.0)
        unit = take_unit(counter)


@njit(nogil=True)
def _forward(
    begin,
    end,
    n_rows,
    first,
    length,
    index,
    block_rows,
    start,
    transitions,
    emissions,
    log_scale,
    alpha,
    inverse_scale,
    log_norm,
    collect,
):
    """Forward vectors of the steps begin..end−1 in slots 1.. of alpha; slot 0 holds step begin−1.

    Returns False when a step's total underflows.  With `collect`, adds log Z to `log_norm`.
    """
    width = start.shape[0]
    smallest = np.finfo(alpha.dtype).tiny * 1e6
    is_far = emissions.nbytes > _NEAR_BYTES
    product = np.ones(n_rows)
    active = n_rows
    for t in range(begin, end):
        while length[active - 1] <= t:
            active -= 1
        slot = (t - begin + 1) * block_rows
        if t == 0:
            for i in range(active):
                alpha[slot + i] = start
        else:
            gemm(
                alpha, (slot - block_rows) * width, width, 1, transitions, 0, width,
                alpha, slot * width, width, active, width, width, False,
            )  # fmt: skip
        for i in range(active):
            row = slot + i
            symbol = index[first[i] + t]
            if is_far and t + 1 < length[i]:
                prefetch_row(emissions, index[first[i] + t + 1])
            total = multiply_and_sum(alpha, row, emissions, symbol, width)
            if not total > smallest:
                return False
            scale = alpha.dtype.type(1.0) / total
            inverse_scale[row] = scale
            for j in range(width):
                alpha[row, j] *= scale
            if collect:
                if log_scale.shape[0] > 0:
                    log_norm[i] += log_scale[symbol]
                # One logarithm for many steps: the product of scales is kept within range.
                product[i] *= total
                if product[i] < 1e-200 or product[i] > 1e200:
                    log_norm[i] += np.log(product[i])
                    product[i] = 1.0
    if collect:
        for i in range(n_rows):
            log_norm[i] += np.log(product[i])
    return True


@njit(nogil=True)
def _backward(
    begin,
    end,
    n_rows,
    first,
    length,
    index,
    block_rows,
    transitions,
    transposed,
    emissions,
    alpha,
    inverse_scale,
    beta,
    epsilon,
    responsibilities,
    start_counts,
    products,
    transition_counts,
    pair_factors,
    pair_squares,
    log_pairs,
    row_factors,
    log_rows,
):
    """Smooth the steps end−1..begin given beta for the sequences that go on after them."""
    width = start_counts.shape[0]
    one = alpha.dtype.type(1.0)
    is_far = emissions.nbytes > _NEAR_BYTES
    n_factors = n_products = 0
    active = 0
    while active < n_rows and length[active] > end:
        active += 1
    for t in range(end - 1, begin - 1, -1):
        while active < n_rows and length[active] > t:
            beta[active] = one
            active += 1
        slot = (t - begin + 1) * block_rows
        for i in range(active):
            row = slot + i
            token = first[i] + t
            symbol = index[token]
            if is_far and t > 0:
                prefetch_row(emissions, index[token - 1])
            total = dot(alpha, row, beta, i, width)
            # The total is one but for rounding; dividing by it keeps long sequences from drifting.
            norm = one / total
            scale = norm * inverse_scale[row]
            for j in range(width):
                responsibilities[token, j] = alpha[row, j] * beta[i, j] * norm
                epsilon[i, j] = emissions[symbol, j] * beta[i, j] * scale
            if t == 0:
                for j in range(width):
                    start_counts[j] += responsibilities[token, j]
        if t > 0:
            before = slot - block_rows
            gemm(
                alpha, before * width, 1, width, epsilon, 0, width,
                products, 0, width, width, width, active, n_products > 0,
            )  # fmt: skip
            # Long sums in single precision are biased: short ones go into double precision.
            n_products += active
            if n_products >= _PRODUCT_STEPS:
                _add_matrix(products, transition_counts)
                n_products = 0
            gemm(
                epsilon, 0, width, 1, transposed, 0, width,
                beta, 0, width, active, width, width, False,
            )  # fmt: skip
            if pair_factors.size > 0:
                for i in range(active):
                    _multiply_absences(
                        alpha[before + i], transitions, epsilon[i], beta[i],
                        pair_factors, pair_squares, row_factors[0],
                    )  # fmt: skip
                    n_factors += 1
                    if n_factors % _ABSENCE_STEPS == 0:
                        _flush(pair_factors, log_pairs, 1e-40)
                        _flush(row_factors, log_rows, 1e-40)
    if n_products > 0:
        _add_matrix(products, transition_counts)
    if pair_factors.size > 0:
        _flush(pair_factors, log_pairs, 1e-40)
        _flush(row_factors, log_rows, 1e-40)


@njit(nogil=True)
def _multiply_absences(alpha, transitions, epsilon, beta, pair_factors, pair_squares, row_factors):
    """Multiply the factors 1 − q(z_{t−1}, z_t) and 1 − q(z_{t−1}) of one step, eqs (4) and (6)."""
    for k in range(alpha.shape[0]):
        weight = np.float64(alpha[k])
        row_factors[k] *= max(1.0 - weight * np.float64(beta[k]), _SMALLEST_ABSENCE)
        for j in range(alpha.shape[0]):
            pair = weight * np.float64(transitions[k, j]) * np.float64(epsilon[j])
            pair_factors[k, j] *= max(1.0 - pair, _SMALLEST_ABSENCE)
            pair_squares[k, j] += pair * pair


@njit(nogil=True)
def _flush(factors, logs, below):
    """Move the logarithm of products under `below` into `logs`: few logarithms, no underflow."""
    for i in range(factors.shape[0]):
        for j in range(factors.shape[1]):
            if factors[i, j] < below:
                logs[i, j] += np.log(factors[i, j])
                factors[i, j] = 1.0


@njit(nogil=True, cache=True)
def _viterbi_units(
    counter, n_units, order, offsets, index, start, transitions, emissions, best, path
):
    """Viterbi for one sequence a unit."""
    width = start.shape[0]
    longest = offsets[order[0] + 1] - offsets[order[0]]
    came_from = np.empty((longest, width), np.uint16)
    score = np.empty(width)
    best_score = np.empty(width)
    best_state = np.empty(width, np.int64)
    unit = take_unit(counter)
    while unit < n_units:
        n = order[unit]
        begin = offsets[n]
        steps = offsets[n + 1] - begin
        for j in range(width):
            score[j] = start[j] + emissions[index[begin], j]
        for t in range(1, steps):
            for j in range(width):
                best_score[j] = score[0] + transitions[0, j]
                best_state[j] = 0
            for k in range(1, width):
                for j in range(width):
                    candidate = score[k] + transitions[k, j]
                    better = candidate > best_score[j]
                    best_score[j] = candidate if better else best_score[j]
                    best_state[j] = k if better else best_state[j]
            symbol = index[begin + t]
            for j in range(width):
                score[j] = best_score[j] + emissions[symbol, j]
                came_from[t, j] = best_state[j]
        state = np.argmax(score)
        best[n] = score[state]
        for t in range(steps - 1, -1, -1):
            path[begin + t] = state
            state = np.int64(came_from[t, state])
        unit = take_unit(counter)
