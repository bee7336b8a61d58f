"""Small matrix products at full speed inside numba code.

Forward-backward on a block of sequences is three chains of small matrix products, too small for
a BLAS call to pay off.  The micro-kernel below holds an (8 rows × a few vectors) tile of the
result in registers and runs over the depth once; it is emitted as LLVM vector code, so LLVM maps
it to whatever the processor has (AVX-512, AVX2, NEON).  On the benchmark machine it runs at the
rate of a large ``sgemm`` from 16 columns on.

All matrices are flat arrays with an offset and strides, because the caller multiplies pieces of
larger buffers and numba's slices cost more than the smallest products.

numba's on-disk cache looks at the file of the compiled function only: after an edit here, remove
``__pycache__`` (``make clean``).
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sojourn.kernels.cpu.inner import inner
from sojourn.kernels.interface import PAD

_FEATURES = llvm.get_host_cpu_features()
_VECTOR_BYTES = 64 if _FEATURES.get("avx512f") else 32 if _FEATURES.get("avx2") else 16
_REGISTERS = 16 if _VECTOR_BYTES == 32 else 32
_TILE_ROWS = 8 if _REGISTERS == 32 else 4


def _tile(n_rows: int, n_pads: int) -> Any:
    """Emit the product of ``n_rows`` rows with ``n_pads * PAD`` columns as one intrinsic.

    ``c[r, j] (+)= Σ_d a[a_at + r * a_row + d * a_depth] * b[b_at + d * b_depth + j]``
    """

    @intrinsic
    def tile(typing_context, a, a_at, a_row, a_depth, b, b_at, b_depth, c, c_at, c_row, depth, add):
        n = types.intp
        signature = types.void(a, n, n, n, b, n, n, c, n, n, n, types.boolean)

        def generate(context, builder, signature, args):
            def data(position: int) -> Any:
                array = context.make_array(signature.args[position])
                return array(context, builder, args[position]).data

            a, b, c = data(0), data(4), data(7)
            a_at, a_row, a_depth = args[1:4]
            b_at, b_depth = args[5:7]
            c_at, c_row, depth, add = args[8:12]
            element = context.get_data_type(signature.args[0].dtype)
            itemsize = signature.args[0].dtype.bitwidth // 8
            lanes = _VECTOR_BYTES // itemsize
            n_columns = n_pads * PAD
            segments = [(j, min(lanes, n_columns - j)) for j in range(0, n_columns, lanes)]

            def integer(value: int) -> Any:
                return ir.Constant(a_at.type, value)

            def vector(width: int) -> Any:
                return ir.VectorType(element, width)

            def pointer(base: Any, at: Any, width: int) -> Any:
                return builder.bitcast(builder.gep(base, [at]), vector(width).as_pointer())

            def load(base: Any, at: Any, width: int) -> Any:
                return builder.load(pointer(base, at, width), align=itemsize)

            def splat(scalar: Any, width: int) -> Any:
                undefined = ir.Constant(vector(width), ir.Undefined)
                lane = builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
                lanes_zero = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
                return builder.shuffle_vector(lane, undefined, lanes_zero)

            def multiply_add(x: Any, y: Any, z: Any, width: int) -> Any:
                kind = ir.FunctionType(vector(width), [vector(width)] * 3)
                name = f"llvm.fmuladd.v{width}f{itemsize * 8}"
                function = cgutils.get_or_insert_function(builder.module, kind, name)
                return builder.call(function, [x, y, z])

            def c_position(row: int, column: int) -> Any:
                row_at = builder.add(c_at, builder.mul(c_row, integer(row)))
                return builder.add(row_at, integer(column))

            cells = [
                (row, column, width, cgutils.alloca_once(builder, vector(width)))
                for row in range(n_rows)
                for column, width in segments
            ]
            with builder.if_else(add) as (accumulate, start_fresh):
                with accumulate:
                    for row, column, width, cell in cells:
                        builder.store(load(c, c_position(row, column), width), cell)
                with start_fresh:
                    for _, _, width, cell in cells:
                        builder.store(ir.Constant(vector(width), [0.0] * width), cell)
            with cgutils.for_range(builder, depth) as loop:
                b_row = builder.add(b_at, builder.mul(b_depth, loop.index))
                a_column = builder.add(a_at, builder.mul(a_depth, loop.index))
                b_values = {
                    column: load(b, builder.add(b_row, integer(column)), width)
                    for column, width in segments
                }
                a_values = [
                    builder.load(
                        builder.gep(a, [builder.add(a_column, builder.mul(a_row, integer(row)))])
                    )
                    for row in range(n_rows)
                ]
                for row, column, width, cell in cells:
                    product = multiply_add(
                        splat(a_values[row], width), b_values[column], builder.load(cell), width
                    )
                    builder.store(product, cell)
            for row, column, width, cell in cells:
                at = pointer(c, c_position(row, column), width)
                builder.store(builder.load(cell), at, align=itemsize)
            return context.get_dummy_value()

        return signature, generate

    return tile


# Tiles of 1, 2, 3 and 6 pads of columns cover every width; wider ones would spill registers.
_tile_1, _tile_2, _tile_3, _tile_6 = (_tile(_TILE_ROWS, n) for n in (1, 2, 3, 6))
_line_1, _line_2, _line_3, _line_6 = (_tile(1, n) for n in (1, 2, 3, 6))
_WIDEST = {
    np.dtype(dtype): min(6, (_REGISTERS - 5) // _TILE_ROWS * _VECTOR_BYTES // (8 * itemsize))
    for dtype, itemsize in (("float32", 4), ("float64", 8))
}


@intrinsic
def _widest(typing_context, array):
    """Pads of columns in the widest tile that fits the registers, for the array's type."""
    value = max(1, _WIDEST[np.dtype(str(array.dtype))])

    def generate(context, builder, signature, args):
        return context.get_constant(types.intp, value)

    return types.intp(array), generate


@inner
def gemm(a, a_at, a_row, a_depth, b, b_at, b_depth, c, c_at, c_row, n_rows, n_columns, depth, add):
    """Multiply ``c (+)= a @ b`` on pieces of flat arrays.

    Equals, with ``A[r, d] = a[a_at + r * a_row + d * a_depth]`` and so on,
    ``C[:n_rows] = A @ B + add * C``.  ``n_columns`` is a multiple of `PAD`.
    """
    widest = _widest(a)
    column = 0
    while column < n_columns:
        left = (n_columns - column) // PAD
        pads = 6 if left >= 6 and widest >= 6 else 3 if left >= 3 and widest >= 3 else min(left, 2)
        pads = min(pads, max(widest, 1))
        row = 0
        while row + _TILE_ROWS <= n_rows:
            ai = a_at + row * a_row
            bi = b_at + column
            ci = c_at + row * c_row + column
            if pads == 6:
                _tile_6(a, ai, a_row, a_depth, b, bi, b_depth, c, ci, c_row, depth, add)
            elif pads == 3:
                _tile_3(a, ai, a_row, a_depth, b, bi, b_depth, c, ci, c_row, depth, add)
            elif pads == 2:
                _tile_2(a, ai, a_row, a_depth, b, bi, b_depth, c, ci, c_row, depth, add)
            else:
                _tile_1(a, ai, a_row, a_depth, b, bi, b_depth, c, ci, c_row, depth, add)
            row += _TILE_ROWS
        while row < n_rows:
            ai = a_at + row * a_row
            bi = b_at + column
            ci = c_at + row * c_row + column
            if pads == 6:
                _line_6(a, ai, a_row, a_depth, b, bi, b_depth, c, ci, c_row, depth, add)
            elif pads == 3:
                _line_3(a, ai, a_row, a_depth, b, bi, b_depth, c, ci, c_row, depth, add)
            elif pads == 2:
                _line_2(a, ai, a_row, a_depth, b, bi, b_depth, c, ci, c_row, depth, add)
            else:
                _line_1(a, ai, a_row, a_depth, b, bi, b_depth, c, ci, c_row, depth, add)
            row += 1
        column += pads * PAD
