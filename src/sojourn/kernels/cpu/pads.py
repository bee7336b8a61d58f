"""Rows of tables as vectors of `LANES` steps, and vectors of steps added to rows of tables.

The row of a step is one of a table, `PAD` numbers of it at a time.  Two rows fill a vector, and
squares of `PAD` numbers are transposed in registers: what goes between a table and `strips` is
never written anywhere else.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from sojourn.kernels.cpu.lanes import LANES, shuffled, transposed
from sojourn.kernels.interface import PAD


def _rows(context: Any, builder: Any, kinds: Any, args: Any) -> list[Any]:
    """Emit the places of the rows of `LANES` steps in a table.

    `args` are the table, the column, the numbers of the rows of steps, a list of places in it,
    where that begins, the step after each of these places, and the width of the table.
    """
    table, index, steps = (
        context.make_array(kinds[k])(context, builder, args[k]).data for k in (0, 2, 3)
    )
    places = []
    for i in range(LANES):
        first = builder.load(
            builder.gep(steps, [builder.add(args[4], ir.Constant(args[4].type, i))])
        )
        number = builder.load(builder.gep(index, [builder.add(first, args[5])]))
        row = builder.mul(builder.sext(number, args[6].type), args[6])
        places.append(builder.gep(table, [builder.add(row, args[1])]))
    return places


@intrinsic
def take_rows(
    typing_context, table, column, index, steps, first, shift, width, n, out, out_at, stride
):
    """Read n ≤ `PAD` columns of the rows of `LANES` steps, as a vector each.

    ``out[out_at + k * stride + i] = table[index[steps[first + i] + shift] * width + column + k]``
    for all i and k < n.
    """
    m = types.intp
    signature = types.void(table, m, index, steps, m, m, m, m, out, m, m)

    def generate(context, builder, signature, args):
        element = context.get_data_type(signature.args[0].dtype)
        itemsize = signature.args[0].dtype.bitwidth // 8
        pad, lanes = ir.VectorType(element, PAD), ir.VectorType(element, LANES)
        halves = [
            builder.load(builder.bitcast(place, pad.as_pointer()), align=itemsize)
            for place in _rows(context, builder, signature.args, args)
        ]
        rows = [
            shuffled(builder, halves[i], halves[i + PAD], list(range(LANES))) for i in range(PAD)
        ]
        data = context.make_array(signature.args[8])(context, builder, args[8]).data
        at = args[9]
        end = builder.append_basic_block("taken")
        for k, row in enumerate(transposed(builder, rows)):
            if k:
                more = builder.append_basic_block("more")
                is_one = builder.icmp_signed(">", args[7], ir.Constant(args[7].type, k))
                builder.cbranch(is_one, more, end)
                builder.position_at_end(more)
                at = builder.add(at, args[10])
            place = builder.bitcast(builder.gep(data, [at]), lanes.as_pointer())
            builder.store(row, place, align=itemsize)
        builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_to_rows(
    typing_context, table, column, index, steps, first, shift, width, source, at, stride
):
    """Add `PAD` vectors of `LANES` steps to columns of their rows, in double precision.

    ``table[index[steps[first + i] + shift] * width + column + k] += source[at + k * stride + i]``
    for all i, one after another, and k < `PAD`.
    """
    m = types.intp
    signature = types.void(table, m, index, steps, m, m, m, source, m, m)

    def generate(context, builder, signature, args):
        element = context.get_data_type(signature.args[7].dtype)
        itemsize = signature.args[7].dtype.bitwidth // 8
        lanes, wide = ir.VectorType(element, LANES), ir.VectorType(ir.DoubleType(), PAD)
        data = context.make_array(signature.args[7])(context, builder, args[7]).data
        columns = []
        for k in range(PAD):
            begin = builder.add(args[8], builder.mul(args[9], ir.Constant(args[9].type, k)))
            place = builder.bitcast(builder.gep(data, [begin]), lanes.as_pointer())
            columns.append(builder.load(place, align=itemsize))
        rows = transposed(builder, columns)
        for i, place in enumerate(_rows(context, builder, signature.args, args)):
            own = list(range(i // PAD * PAD, i // PAD * PAD + PAD))
            value = shuffled(builder, rows[i % PAD], rows[i % PAD], own)
            if itemsize < 8:
                value = builder.fpext(value, wide)
            target = builder.bitcast(place, wide.as_pointer())
            builder.store(builder.fadd(builder.load(target, align=8), value), target, align=8)
        return context.get_dummy_value()

    return signature, generate
