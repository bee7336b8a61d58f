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
def add_from_lane(v, x, LANE: tl.constexpr, column, INTERPRET: tl.constexpr):
    """Add to every number of V what a thread of half a warp has in x, times a number of a column.

    One instruction of Triton's, as there are many of them, and compiling takes long.
    """
    if INTERPRET:
        message = from_lane(x, LANE, INTERPRET)
        sums = ()
        for g in tl.static_range(len(v)):
            sums = sums + (v[g] + message * column[g],)
    elif len(v) == 1:
        sums = (
            tl.inline_asm_elementwise(
                """
                {
                    .reg .f32 m;
                    shfl.sync.idx.b32 m, $1, $2, 0x101f, 0xffffffff;
                    fma.rn.f32 $0, m, $3, $4;
                }
                """,
                "=f,f,r,f,f",
                [x, LANE, column[0], v[0]],
                dtype=tl.float32,
                is_pure=True,
                pack=1,
            ),
        )
    elif len(v) == 2:
        sums = tl.inline_asm_elementwise(
            """
            {
                .reg .f32 m;
                shfl.sync.idx.b32 m, $2, $3, 0x101f, 0xffffffff;
                fma.rn.f32 $0, m, $4, $6;
                fma.rn.f32 $1, m, $5, $7;
            }
            """,
            "=&f,=f,f,r,f,f,f,f",
            [x, LANE, column[0], column[1], v[0], v[1]],
            dtype=(tl.float32, tl.float32),
            is_pure=True,
            pack=1,
        )
    else:
        sums = tl.inline_asm_elementwise(
            """
            {
                .reg .f32 m;
                shfl.sync.idx.b32 m, $3, $4, 0x101f, 0xffffffff;
                fma.rn.f32 $0, m, $5, $8;
                fma.rn.f32 $1, m, $6, $9;
                fma.rn.f32 $2, m, $7, $10;
            }
            """,
            "=&f,=&f,=f,f,r,f,f,f,f,f,f",
            [x, LANE, column[0], column[1], column[2], v[0], v[1], v[2]],
            dtype=(tl.float32, tl.float32, tl.float32),
            is_pure=True,
            pack=1,
        )
    return sums


@triton.jit
def from_any_lane(x, lane, INTERPRET: tl.constexpr):
    """Give every thread what a thread of its warp has, of a number that it says."""
    if INTERPRET:
        return tl.gather(x, tl.arange(0, x.shape[0]) // 32 * 32 + lane, 0)
    return tl.inline_asm_elementwise(
        "shfl.sync.idx.b32 $0, $1, $2, 0x1f, 0xffffffff;",
        "=f,f,r",
        [x, lane],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def whole_from_lane(x, LANE: tl.constexpr, INTERPRET: tl.constexpr):
    """Give every thread of a warp a whole number that one of them has."""
    if INTERPRET:
        return tl.sum(tl.where(tl.arange(0, 32) == LANE, x, 0), axis=0) + 0 * x
    return tl.inline_asm_elementwise(
        "shfl.sync.idx.b32 $0, $1, $2, 0x1f, 0xffffffff;",
        "=r,r,r",
        [x, LANE],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def sum_over(x, FIRST: tl.constexpr, LAST: tl.constexpr, INTERPRET: tl.constexpr):
    """Sum over the threads of a warp whose numbers differ in the bits from FIRST to LAST."""
    if INTERPRET:
        parts = tl.reshape(x, (x.shape[0] // (2 * LAST), 2 * LAST // FIRST, FIRST))
        sums = tl.sum(parts, axis=1)[:, None, :]
        return tl.reshape(tl.broadcast_to(sums, parts.shape), x.shape)
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
def quotient(x, y, INTERPRET: tl.constexpr):
    """Return x / y to about the last bit; zero where y is too small to have a reciprocal."""
    if INTERPRET:
        inverse = 1.0 / y
    else:
        inverse = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [y], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.where(y > 1.2e-38, x * inverse, 0.0)


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
def two_parts_here(values, INTERPRET: tl.constexpr):
    """Do the same where it stands: outside of a loop the parts would take twice the registers."""
    large = ()
    small = ()
    for i in tl.static_range(len(values)):
        if INTERPRET:
            one, other = two_parts(values[i : i + 1])
            large = large + one
            small = small + other
        else:
            one, other = tl.inline_asm_elementwise(
                "and.b32 $0, $2, 0xffffe000; sub.f32 $1, $2, $0;",
                "=&r,=r,r",
                [values[i]],
                dtype=(tl.float32, tl.float32),
                is_pure=False,
                pack=1,
            )
            large = large + (one,)
            small = small + (other,)
    return large, small


@triton.jit
def add_product(d, a, b, INTERPRET: tl.constexpr):
    """Return D + A B, of which a thread has 4, 4 and 2 numbers."""
    if INTERPRET:
        n: tl.constexpr = a[0].shape[0]  # threads, of one warp or more
        left, right = tl.reshape(b[0], (n // 32, 1, 8, 4)), tl.reshape(b[1], (n // 32, 1, 8, 4))
        upper = tl.sum(tl.reshape(a[0], (n // 32, 8, 1, 4)) * left, axis=3)
        upper += tl.sum(tl.reshape(a[2], (n // 32, 8, 1, 4)) * right, axis=3)
        lower = tl.sum(tl.reshape(a[1], (n // 32, 8, 1, 4)) * left, axis=3)
        lower += tl.sum(tl.reshape(a[3], (n // 32, 8, 1, 4)) * right, axis=3)
        d0, d1 = tl.split(tl.reshape(upper, (n, 2)))
        d2, d3 = tl.split(tl.reshape(lower, (n, 2)))
        return d[0] + d0, d[1] + d1, d[2] + d2, d[3] + d3
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
def add_double_product(d, a, b, INTERPRET: tl.constexpr):
    """Return D + A B in double precision, 8 × 4 by 4 × 8, of which a thread has 2, 1 and 1 numbers.

    Thread 4 g + c has row g of A, column g of B, and of D columns 2 c and 2 c + 1 of row g.
    """
    if INTERPRET:
        n: tl.constexpr = a.shape[0]  # threads, of one warp or more
        products = tl.reshape(a, (n // 32, 8, 1, 4)) * tl.reshape(b, (n // 32, 1, 8, 4))
        d0, d1 = tl.split(tl.reshape(tl.sum(products, axis=3), (n, 2)))
        return d[0] + d0, d[1] + d1
    return tl.inline_asm_elementwise(
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {$0, $1}, {$2}, {$3}, {$4, $5};",
        "=d,=d,d,d,d,d",
        [a, b, d[0], d[1]],
        dtype=(tl.float64, tl.float64),
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
