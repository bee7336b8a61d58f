"""The device side of `sojourn.kernels.cuda.durations`."""

from __future__ import annotations

import triton
import triton.language as tl

from sojourn.kernels.cuda.launch import Launched, in_turn


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "stride"],
    do_not_specialize_on_alignment=["index", "offsets", "order", "inner"],
)
def copy_chains(
    matrix,
    start,
    entry,
    stay,
    advance,
    table,
    log_scale,
    index,
    offsets,
    order,
    inner,
    before,
    after,
    messages,
    scales,
    last,
    flows,
    leaving,
    responsibilities,
    stays,
    advances,
    entries,
    ends,
    log_z,
    n_sequences,
    stride,
    K: tl.constexpr,
    J: tl.constexpr,
    STATES: tl.constexpr,
    COPIES: tl.constexpr,
    BOTH: tl.constexpr,
    EDGES: tl.constexpr,
    SCALED: tl.constexpr,
    LEAVING: tl.constexpr,
):
    """Sequences p, p + programs, ... forward, and back again with their sums.

    θ stays in registers, with the chances of advancing in it.  A step's copies are a (K, J) tile,
    which goes through memory because the copies beside one's own belong to other threads:

        forward    a_t[j] = (stay a_{t−1}[j] + advance a_{t−1}[j−1] + entry[j] f_t) φ_t / c_t,
                   f_t = a_{t−1}[J] θ, and the start at the first step
        backward   g_t[j] = φ_t b_t[j] / (c_t Σ a_t b_t),   e_t = Σ_j entry[j] g_t[j]
                   b_{t−1}[j] = stay g_t[j] + advance g_t[j+1],   θ e_t after the last copy

    On the way back g_t takes the place of a_t, and e_t that of f_t.
    """
    in_turn()
    program = tl.program_id(0)
    kind = messages.dtype.element_ty
    state = tl.arange(0, STATES)
    copy = tl.arange(0, COPIES)
    exists = state < K
    cell = state[:, None] * J + copy[None, :]
    there = exists[:, None] & (copy < J)[None, :]
    is_last = (state * 0)[:, None] + copy[None, :] == J - 1
    square = exists[:, None] & exists[None, :]
    theta = tl.load(matrix + state[:, None] * K + state[None, :], mask=square, other=0.0)
    own = tl.load(stay + state, mask=exists, other=0.0)[:, None]
    further = tl.load(advance + state, mask=exists, other=0.0)[:, None]
    into = tl.load(entry + cell, mask=there, other=0.0)
    begun = tl.load(start + state, mask=exists, other=0.0)
    stay_sum = tl.zeros((STATES,), tl.float64)
    advance_sum = tl.zeros((STATES,), tl.float64)
    entry_sum = tl.zeros((STATES, COPIES), tl.float64)
    for place in range(program, n_sequences, tl.num_programs(0)):
        sequence = tl.load(order + place).to(tl.int64)
        begin = tl.load(offsets + sequence)
        end = tl.load(offsets + sequence + 1)
        x = begun[:, None] * into
        f = begun
        b = tl.where(there, 1.0, 0.0).to(kind)
        if EDGES:
            is_inner = tl.load(inner + sequence)
            around = sequence * K * J + cell
            x = tl.where(
                cell * 0 + is_inner != 0, tl.load(before + around, mask=there, other=0.0), x
            )
            f = tl.where(state * 0 + is_inner != 0, 0.0, f)
            b = tl.load(after + around, mask=there, other=0.0)
        log_total = tl.zeros((), tl.float64)
        a = x
        for t in range(begin, end):
            symbol = tl.load(index + t).to(tl.int64)
            phi = tl.load(table + symbol * stride + state, mask=exists, other=0.0)
            a = x * phi[:, None]
            total = tl.sum(tl.sum(a, axis=1), axis=0)
            scale = tl.where(total > 0.0, 1.0 / total, 0.0).to(kind)
            a = a * scale
            log_total += tl.log(total).to(tl.float64)
            if SCALED:
                log_total += tl.load(log_scale + symbol)
            here = messages + (t if BOTH else program.to(tl.int64) * 2 + t % 2) * (K * J)
            tl.store(here + cell, a, mask=there)
            leave = tl.sum(tl.where(is_last, a, 0.0), axis=1)
            if BOTH:
                tl.store(scales + t, scale)
                tl.store(flows + t * K + state, f, mask=exists)
                tl.store(last + t * K + state, leave, mask=exists)
            tl.debug_barrier()
            f = tl.sum(theta * leave[:, None], axis=0)
            behind = tl.load(here + cell - 1, mask=there & (copy > 0)[None, :], other=0.0)
            x = own * a + further * behind + into * f[:, None]
        if EDGES:
            log_total += tl.log(tl.sum(tl.sum(a * b, axis=1), axis=0)).to(tl.float64)
        tl.store(log_z + sequence, log_total)
        if BOTH:
            for i in range(begin, end):
                t = end - 1 - (i - begin)
                joint = a * b
                q = tl.sum(joint, axis=1)
                total = tl.sum(q, axis=0)
                norm = tl.where(total > 0.0, 1.0 / total, 0.0).to(kind)
                tl.store(responsibilities + t * K + state, q * norm, mask=exists)
                if EDGES:
                    joint = joint * norm
                    at_end = ends + (n_sequences + sequence) * K * J + cell
                    tl.store(at_end, joint, mask=there & (cell * 0 + t == end - 1))
                    tl.store(
                        ends + sequence * K * J + cell, joint, mask=there & (cell * 0 + t == begin)
                    )
                symbol = tl.load(index + t).to(tl.int64)
                phi = tl.load(table + symbol * stride + state, mask=exists, other=0.0)
                g = b * phi[:, None] * (norm * tl.load(scales + t))
                here = messages + t * (K * J)
                tl.store(here + cell, g, mask=there)
                f = tl.load(flows + t * K + state, mask=exists, other=0.0)
                entry_sum += (f[:, None] * g).to(tl.float64)
                e = tl.sum(into * g, axis=1)
                e = tl.where(state * 0 + t == begin, 0.0, e)
                tl.debug_barrier()
                tl.store(flows + t * K + state, e, mask=exists)
                a = tl.load(here - K * J + cell, mask=there & (cell * 0 + t > begin), other=0.0)
                ahead = tl.load(here + cell + 1, mask=there & (copy < J - 1)[None, :], other=0.0)
                stay_sum += tl.sum(a * g, axis=1).to(tl.float64)
                advance_sum += tl.sum(a * ahead, axis=1).to(tl.float64)
                out = tl.sum(theta * e[None, :], axis=1)
                if LEAVING:
                    leave = tl.sum(tl.where(is_last, a, 0.0), axis=1) * out
                    tl.store(leaving + t * K + state, leave, mask=exists)
                b = own * g + further * ahead + tl.where(is_last, out[:, None], 0.0)
    if BOTH:
        tl.store(stays + program * K + state, stay_sum, mask=exists)
        tl.store(advances + program * K + state, advance_sum, mask=exists)
        tl.store(entries + program * K * J + cell, entry_sum, mask=there)
