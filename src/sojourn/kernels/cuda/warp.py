"""What the threads of a warp do together, in Triton: building blocks of the recursions.

Each function has a plain form for Triton's interpreter, which has no warps.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def from_lane(x, LANE: tl.constexpr, INTERPRET: tl.constexpr):
    """Give every thread of half a warp what one of them has."""
    if INTERPRET:
        halves = tl.reshape(x, (2, 16))
        chosen = tl.sum(tl.where(tl.arange(0, 16)[None, :] == LANE, halves, 0.0), axis=1)
        return tl.reshape(tl.broadcast_to(chosen[:, None], (2, 16)), (32,))
    return tl.inline_asm_elementwise(
        "shfl.sync.idx.b32 $0, $1, $2, 0x101f, 0xffffffff;",
        "=f,f,r",
        [x, LANE],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def sum_over(x, FIRST: tl.constexpr, LAST: tl.constexpr, INTERPRET: tl.constexpr):
    """Sum over the threads of a warp whose numbers differ in the bits from FIRST to LAST."""
    if INTERPRET:
        parts = tl.reshape(x, (16 // LAST, 2 * LAST // FIRST, FIRST))
        sums = tl.sum(parts, axis=1)[:, None, :]
        return tl.reshape(tl.broadcast_to(sums, parts.shape), (32,))
    for i in tl.static_range(5):
        if FIRST <= (16 >> i) and (16 >> i) <= LAST:
            x += tl.inline_asm_elementwise(
                "shfl.sync.bfly.b32 $0, $1, $2, 0x1f, 0xffffffff;",
                "=f,f,r",
                [x, 16 >> i],
                dtype=tl.float32,
                is_pure=True,
                pack=1,
            )
    return x


@triton.jit
def row_of(table, missing, symbol, n_rows, stride):
    """Point at a row of the emission table, or at the one for a missing observation."""
    return tl.where(symbol < n_rows, table + symbol.to(tl.int64) * stride, missing + symbol * 0)


@triton.jit
def load_one(pointer, mask, INTERPRET: tl.constexpr):
    """Load a number; zero where masked.

    What `tl.load` does.  But for each of those the compiler looks through most of a kernel for how
    threads are best laid out, which is known here: with a hundred of them it took most of its time.
    """
    if INTERPRET:
        return tl.load(pointer, mask=mask, other=0.0)
    return tl.inline_asm_elementwise(
        """
        {
            .reg .pred p;
            setp.ne.s32 p, $2, 0;
            mov.b32 $0, 0;
            @p ld.global.b32 $0, [$1];
        }
        """,
        "=f,l,r",
        [pointer.to(tl.int64), mask.to(tl.int32)],
        dtype=tl.float32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def store_one(pointer, value, mask, INTERPRET: tl.constexpr):
    """Store a number; see `load_one`."""
    if INTERPRET:
        tl.store(pointer, value, mask=mask)
    else:
        tl.inline_asm_elementwise(
            """
            {
                .reg .pred p;
                setp.ne.s32 p, $3, 0;
                @p st.global.f32 [$1], $2;
                mov.b32 $0, 0;
            }
            """,
            "=r,l,f,r",
            [pointer.to(tl.int64), value, mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def load_four(pointer, mask, INTERPRET: tl.constexpr):
    """Load four numbers that lie side by side, at a multiple of four; zero where masked."""
    if INTERPRET:
        return (
            tl.load(pointer, mask=mask, other=0.0),
            tl.load(pointer + 1, mask=mask, other=0.0),
            tl.load(pointer + 2, mask=mask, other=0.0),
            tl.load(pointer + 3, mask=mask, other=0.0),
        )
    return tl.inline_asm_elementwise(
        """
        {
            .reg .pred p;
            setp.ne.s32 p, $5, 0;
            mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0;
            @p ld.global.v4.b32 {$0, $1, $2, $3}, [$4];
        }
        """,
        "=r,=r,=r,=r,l,r",
        [pointer.to(tl.int64), mask.to(tl.int32)],
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
        is_pure=False,
        pack=1,
    )


@triton.jit
def store_four(pointer, values, mask, INTERPRET: tl.constexpr):
    """Store four numbers side by side, at a multiple of four."""
    if INTERPRET:
        for i in tl.static_range(4):
            tl.store(pointer + i, values[i], mask=mask)
    else:
        tl.inline_asm_elementwise(
            """
            {
                .reg .pred p;
                setp.ne.s32 p, $6, 0;
                @p st.global.v4.f32 [$1], {$2, $3, $4, $5};
                mov.b32 $0, 0;
            }
            """,
            "=r,l,f,f,f,f,r",
            [pointer.to(tl.int64), values[0], values[1], values[2], values[3], mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def load_two(pointer, INTERPRET: tl.constexpr):
    """Load two numbers that lie side by side, at a multiple of two."""
    if INTERPRET:
        return tl.load(pointer), tl.load(pointer + 1)
    return tl.inline_asm_elementwise(
        "ld.global.v2.f32 {$0, $1}, [$2];",
        "=f,=f,l",
        [pointer.to(tl.int64)],
        dtype=(tl.float32, tl.float32),
        is_pure=False,
        pack=1,
    )


@triton.jit
def store_two(pointer, values, mask, INTERPRET: tl.constexpr):
    """Store two numbers side by side, at a multiple of two."""
    if INTERPRET:
        for i in tl.static_range(2):
            tl.store(pointer + i, values[i], mask=mask)
    else:
        tl.inline_asm_elementwise(
            """
            {
                .reg .pred p;
                setp.ne.s32 p, $4, 0;
                @p st.global.v2.f32 [$1], {$2, $3};
                mov.b32 $0, 0;
            }
            """,
            "=r,l,f,f,r",
            [pointer.to(tl.int64), values[0], values[1], mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def two_parts(values):
    """Cut numbers into what the instruction takes, eleven of their bits, and what is left."""
    large = ()
    small = ()
    for i in tl.static_range(len(values)):
        part = (values[i].to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
        large = large + (part,)
        small = small + (values[i] - part,)
    return large, small


@triton.jit
def add_product(d, a, b, INTERPRET: tl.constexpr):
    """Return D + A B, of which a thread has 4, 4 and 2 numbers."""
    if INTERPRET:
        left, right = tl.reshape(b[0], (1, 8, 4)), tl.reshape(b[1], (1, 8, 4))
        upper = tl.sum(tl.reshape(a[0], (8, 1, 4)) * left, axis=2)
        upper += tl.sum(tl.reshape(a[2], (8, 1, 4)) * right, axis=2)
        lower = tl.sum(tl.reshape(a[1], (8, 1, 4)) * left, axis=2)
        lower += tl.sum(tl.reshape(a[3], (8, 1, 4)) * right, axis=2)
        d0, d1 = tl.split(tl.reshape(upper, (8, 4, 2)))
        d2, d3 = tl.split(tl.reshape(lower, (8, 4, 2)))
        return (
            d[0] + tl.reshape(d0, (32,)),
            d[1] + tl.reshape(d1, (32,)),
            d[2] + tl.reshape(d2, (32,)),
            d[3] + tl.reshape(d3, (32,)),
        )
    return tl.inline_asm_elementwise(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};",
        "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f",
        [
            a[0].to(tl.int32, bitcast=True),
            a[1].to(tl.int32, bitcast=True),
            a[2].to(tl.int32, bitcast=True),
            a[3].to(tl.int32, bitcast=True),
            b[0].to(tl.int32, bitcast=True),
            b[1].to(tl.int32, bitcast=True),
            d[0],
            d[1],
            d[2],
            d[3],
        ],
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
        is_pure=True,
        pack=1,
    )


@triton.jit
def add_exact_product(d, large_a, small_a, large_b, small_b, INTERPRET: tl.constexpr):
    """Return D + A B without the product of the small parts."""
    d = add_product(d, small_a, large_b, INTERPRET)
    d = add_product(d, large_a, small_b, INTERPRET)
    return add_product(d, large_a, large_b, INTERPRET)


@triton.jit
def add_products(sums, a, matrix, k: tl.constexpr, n_tiles: tl.constexpr, INTERPRET: tl.constexpr):
    """Add the products of one tile of A with a row of tiles of the matrix."""
    longer = ()
    for n in tl.static_range(n_tiles):
        b = matrix[2 * (k * n_tiles + n) : 2 * (k * n_tiles + n) + 2]
        longer = longer + add_product(sums[4 * n : 4 * n + 4], a, b, INTERPRET)
    return longer
