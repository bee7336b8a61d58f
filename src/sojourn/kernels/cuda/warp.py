"""What the threads of a warp do together, in Triton: building blocks of the recursions.

Each function has a plain form for Triton's interpreter, which has no warps.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sojourn.kernels.cuda.access import assembled


@triton.jit
def from_any_lane(x, lane, INTERPRET: tl.constexpr):
    """Give every thread what a thread of its warp has, of a number that it says."""
    if INTERPRET:
        return tl.gather(x, tl.arange(0, x.shape[0]) // 32 * 32 + lane, 0)
    return tl.inline_asm_elementwise(
        "shfl.sync.idx.b32 $0, $1, $2, 0x1f, 0xffffffff;",
        "=f,f,r" if x.dtype == tl.float32 else "=r,r,r",
        [x, lane],
        dtype=x.dtype,
        is_pure=True,
        pack=1,
    )


def _sums_of_lanes(n_sums: int, n_lanes: int) -> str:
    """Write down what `add_from_lanes` does."""
    x, lane, columns = n_sums, n_sums + 1, n_sums + 2
    before = columns + n_sums * n_lanes
    lines = []
    for i in range(n_lanes):
        lines += [f"add.u32 lane, ${lane}, {i};"]
        lines += [f"shfl.sync.idx.b32 m, ${x}, lane, 0x101f, 0xffffffff;"]
        for g in range(n_sums):
            added = f"${g}" if i else f"${before + g}"
            lines += [f"fma.rn.f32 ${g}, m, ${columns + i * n_sums + g}, {added};"]
    return "{ .reg .f32 m; .reg .b32 lane; " + " ".join(lines) + " }"


_ONE, _TWO, _THREE = (tl.constexpr(_sums_of_lanes(n, 1)) for n in (1, 2, 3))
_FOUR_ONE, _FOUR_TWO, _FOUR_THREE = (tl.constexpr(_sums_of_lanes(n, 4)) for n in (1, 2, 3))


@triton.jit
def add_from_lanes(v, x, LANE: tl.constexpr, columns, INTERPRET: tl.constexpr):
    """Add to every number of V what one or four threads of half a warp have in x, times columns.

    One instruction of Triton's for each four, as there are many of them, and compiling takes long.
    """
    n: tl.constexpr = len(v)
    is_four: tl.constexpr = len(columns) == 4 * n
    if INTERPRET:
        sums = v
        for i in tl.static_range(4 if is_four else 1):
            message = from_any_lane(x, tl.arange(0, 32) // 16 * 16 + LANE + i, INTERPRET)
            longer = ()
            for g in tl.static_range(n):
                longer = longer + (sums[g] + message * columns[i * n + g],)
            sums = longer
    elif is_four:
        four: tl.constexpr = _FOUR_THREE if n == 3 else (_FOUR_TWO if n == 2 else _FOUR_ONE)
        sums = assembled(four, "f,r" + ",f" * (5 * n), (x, LANE) + columns + v, n, True)
    else:
        one: tl.constexpr = _THREE if n == 3 else (_TWO if n == 2 else _ONE)
        sums = assembled(one, "f,r" + ",f" * (2 * n), (x, LANE) + columns + v, n, True)
    return sums


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
        a + b + d,
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
    if INTERPRET:
        d = add_product(d, small_a, large_b, INTERPRET)
        d = add_product(d, large_a, small_b, INTERPRET)
        return add_product(d, large_a, large_b, INTERPRET)
    return tl.inline_asm_elementwise(
        """
        {
            .reg .f32 a, b, c, d;
            mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
                {a, b, c, d}, {$8, $9, $10, $11}, {$12, $13}, {$16, $17, $18, $19};
            mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
                {a, b, c, d}, {$4, $5, $6, $7}, {$14, $15}, {a, b, c, d};
            mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
                {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$12, $13}, {a, b, c, d};
        }
        """,
        "=f,=f,=f,=f,r,r,r,r,r,r,r,r,r,r,r,r,f,f,f,f",
        large_a + small_a + large_b + small_b + d,
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
        is_pure=True,
        pack=1,
    )


@triton.jit
def add_products(sums, matrix, b, k: tl.constexpr, n_tiles: tl.constexpr, INTERPRET: tl.constexpr):
    """Add the products of a column of the matrix's tiles, one below the other, with one of B."""
    longer = ()
    for n in tl.static_range(n_tiles):
        a = matrix[4 * (k * n_tiles + n) : 4 * (k * n_tiles + n) + 4]
        longer = longer + add_product(sums[4 * n : 4 * n + 4], a, b, INTERPRET)
    return longer


@triton.jit
def transposed(two, INTERPRET: tl.constexpr):
    """Transpose an 8 × 8 tile, of which thread 4 g + c has columns 2 c and 2 c + 1 of row g."""
    if INTERPRET:
        n: tl.constexpr = two[0].shape[0]  # threads, of one warp or more
        tile = tl.reshape(tl.join(two[0], two[1]), (n // 32, 8, 8))
        turned = tl.split(tl.reshape(tl.permute(tile, (0, 2, 1)), (n, 2)))
    else:  # upper and lower halves of the numbers, as the instruction takes sixteen bits
        turned = tl.inline_asm_elementwise(
            """
            {
                .reg .b32 low, high;
                prmt.b32 low, $2, $3, 0x5410;
                prmt.b32 high, $2, $3, 0x7632;
                movmatrix.sync.aligned.m8n8.trans.b16 low, low;
                movmatrix.sync.aligned.m8n8.trans.b16 high, high;
                prmt.b32 $0, low, high, 0x5410;
                prmt.b32 $1, low, high, 0x7632;
            }
            """,
            "=f,=f,r,r",
            [two[0].to(tl.int32, bitcast=True), two[1].to(tl.int32, bitcast=True)],
            dtype=(tl.float32, tl.float32),
            is_pure=True,
            pack=1,
        )
    return turned
