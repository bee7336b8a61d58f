"""Sums along rows in a fixed order.

A compiler may vectorise a sum only where it may reorder it, and then the order depends on what the
loop was inlined into: the same source gave other last bits when it was loaded from numba's cache
than when it had just been compiled.  Here the lanes are written out, so that the order is part of
the source.  Rows are pieces of C-ordered matrices, `PAD` numbers or a multiple of that.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sojourn.kernels.interface import PAD


def _row_pointer(context: Any, builder: Any, array_type: Any, array: Any, row: Any) -> Any:
    """Address of the first element of a row."""
    view = context.make_array(array_type)(context, builder, array)
    columns = cgutils.unpack_tuple(builder, view.shape, 2)[1]
    return builder.gep(view.data, [builder.mul(row, columns)])


def _emit_row_sum(
    context: Any, builder: Any, signature: Any, args: Any, *, keep_product: bool
) -> Any:
    """Emit Σ_j a[i, j] b[k, j] in `PAD` lanes; `keep_product` writes a[i] ∘ b[k] back to a[i]."""
    element = context.get_data_type(signature.args[0].dtype)
    itemsize = signature.args[0].dtype.bitwidth // 8
    lanes = ir.VectorType(element, PAD)
    a = _row_pointer(context, builder, signature.args[0], args[0], args[1])
    b = _row_pointer(context, builder, signature.args[2], args[2], args[3])
    total = cgutils.alloca_once_value(builder, ir.Constant(lanes, [0.0] * PAD))
    n_pads = builder.udiv(args[4], ir.Constant(args[4].type, PAD))
    with cgutils.for_range(builder, n_pads) as loop:
        at = builder.mul(loop.index, ir.Constant(loop.index.type, PAD))
        a_at, b_at = (builder.bitcast(builder.gep(row, [at]), lanes.as_pointer()) for row in (a, b))
        product = builder.fmul(
            builder.load(a_at, align=itemsize), builder.load(b_at, align=itemsize)
        )
        if keep_product:
            builder.store(product, a_at, align=itemsize)
        builder.store(builder.fadd(builder.load(total), product), total)
    # Halve the lanes until one is left.
    vector, width = builder.load(total), PAD
    while width > 1:
        width //= 2
        index = ir.VectorType(ir.IntType(32), width)
        low, high = (
            builder.shuffle_vector(
                vector,
                ir.Constant(vector.type, ir.Undefined),
                ir.Constant(index, list(range(first, first + width))),
            )
            for first in (0, width)
        )
        vector = builder.fadd(low, high)
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


@intrinsic
def multiply_and_sum(typing_context, a, a_row, b, b_row, width):
    """``a[a_row] *= b[b_row]; return a[a_row].sum()``."""
    signature = a.dtype(a, types.intp, b, types.intp, types.intp)

    def generate(context, builder, signature, args):
        return _emit_row_sum(context, builder, signature, args, keep_product=True)

    return signature, generate


@intrinsic
def dot(typing_context, a, a_row, b, b_row, width):
    """``return (a[a_row] * b[b_row]).sum()``."""
    signature = a.dtype(a, types.intp, b, types.intp, types.intp)

    def generate(context, builder, signature, args):
        return _emit_row_sum(context, builder, signature, args, keep_product=False)

    return signature, generate
