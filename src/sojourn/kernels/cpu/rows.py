"""Sums along rows in a fixed order.

A compiler may vectorise a sum only where it may reorder it, and then the order depends on what the
loop was inlined into: the same source gave other last bits when it was loaded from numba's cache
than when it had just been compiled.  Here the lanes are written out, so that the order is part of
the source.  Rows are pieces of C-ordered matrices, `PAD` numbers or a multiple of that.

`copy_row`, `add_row`, `add_scaled_row` and `potential_row` are for rows of any width, which do not
overlap: a compiler that cannot know this tests it for every row, which takes longer than the row.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    lanes = ir.VectorType(element, PAD)
    a = _row_pointer(context, builder, signature.args[0], args[0], args[1])
    b = _row_pointer(context, builder, signature.args[2], args[2], args[3])
    total = cgutils.alloca_once_value(builder, ir.Constant(lanes, [0.0] * PAD))
    for at, n_lanes in _pieces(builder, args[4], (2 * PAD, PAD)):
        own = _Piece(builder, a, at, n_lanes)
        product = builder.fmul(own.load(), _Piece(builder, b, at, n_lanes).load())
        if keep_product:
            own.store(product)
        _add_pads(builder, total, product)
    return _across(builder, builder.load(total))


def _across(builder: Any, vector: Any) -> Any:
    """Emit the sum of `PAD` lanes: halve them until one is left."""
    width = PAD
    while width > 1:
        width //= 2
        vector = builder.fadd(*(_part(builder, vector, first, width) for first in (0, width)))
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


@intrinsic
def multiply_and_sum(typing_context, a, a_row, b, b_row, width):
    """``a[a_row] *= b[b_row]; return a[a_row].sum()``."""
    signature = a.dtype(a, types.intp, b, types.intp, types.intp)

    def generate(context, builder, signature, args):
        return _emit_row_sum(context, builder, signature, args, keep_product=True)

    return signature, generate


@intrinsic
def weigh_row(typing_context, a, phi, at, table, row, prior, scale, factor, width):
    """``phi[at] = (prior + scale * table[row]) * factor; a[at] *= phi[at]; return a[at].sum()``."""
    n, x = types.intp, a.dtype
    signature = x(a, phi, n, table, n, x, x, factor, n)

    def generate(context, builder, signature, args):
        kinds = signature.args
        a, phi, table = (
            _row_pointer(context, builder, kinds[k], args[k], args[row])
            for k, row in ((0, 2), (1, 2), (3, 4))
        )
        factors = context.make_array(kinds[7])(context, builder, args[7]).data
        lanes = ir.VectorType(a.type.pointee, PAD)
        total = cgutils.alloca_once_value(builder, ir.Constant(lanes, [0.0] * PAD))
        for column, n_lanes in _pieces(builder, args[8], (2 * PAD, PAD)):
            place = _Piece(builder, phi, column, n_lanes)
            value = builder.fmul(
                place.splat(args[6]), _Piece(builder, table, column, n_lanes).load()
            )
            value = builder.fadd(place.splat(args[5]), value)
            value = builder.fmul(value, _Piece(builder, factors, column, n_lanes).load())
            place.store(value)
            own = _Piece(builder, a, column, n_lanes)
            product = builder.fmul(own.load(), value)
            own.store(product)
            _add_pads(builder, total, product)
        return _across(builder, builder.load(total))

    return signature, generate


@intrinsic
def product_of_rows(typing_context, out, table, index, index_row, n_factors, width):
    """``out[0] = table[index[index_row, :n_factors]].prod(axis=0); return out[0].sum()``."""
    n = types.intp
    signature = out.dtype(out, table, index, n, n, n)

    def generate(context, builder, signature, args):
        element = context.get_data_type(signature.args[0].dtype)
        lanes, kinds = ir.VectorType(element, PAD), signature.args
        numbers = _row_pointer(context, builder, kinds[2], args[2], args[3])
        row = _row_pointer(context, builder, kinds[0], args[0], ir.Constant(args[3].type, 0))
        total = cgutils.alloca_once_value(builder, ir.Constant(lanes, [0.0] * PAD))
        product = cgutils.alloca_once(builder, lanes)
        for at, n_lanes in _pieces(builder, args[5], (PAD,)):
            builder.store(ir.Constant(lanes, [1.0] * PAD), product)
            with cgutils.for_range(builder, args[4]) as loop:
                number = builder.load(builder.gep(numbers, [loop.index]))
                number = builder.sext(number, args[3].type)
                factor = _row_pointer(context, builder, kinds[1], args[1], number)
                value = _Piece(builder, factor, at, n_lanes).load()
                builder.store(builder.fmul(builder.load(product), value), product)
            _Piece(builder, row, at, n_lanes).store(builder.load(product))
            _add_pads(builder, total, builder.load(product))
        return _across(builder, builder.load(total))

    return signature, generate


@intrinsic
def dot(typing_context, a, a_row, b, b_row, width):
    """``return (a[a_row] * b[b_row]).sum()``."""
    signature = a.dtype(a, types.intp, b, types.intp, types.intp)

    def generate(context, builder, signature, args):
        return _emit_row_sum(context, builder, signature, args, keep_product=False)

    return signature, generate


@intrinsic
def dot_and_likeliest(typing_context, a, a_row, b, b_row, width):
    """Return what `dot` does, and a column of the largest product, which are not negative.

    The number of a column takes the place of the last bits of a product, so that a maximum of whole
    numbers finds it: products that agree in the other bits are alike.
    """
    result = types.Tuple((a.dtype, types.intp))
    signature = result(a, types.intp, b, types.intp, types.intp)

    def generate(context, builder, signature, args):
        element = context.get_data_type(signature.args[0].dtype)
        bits = signature.args[0].dtype.bitwidth
        whole = ir.IntType(bits)
        pad, pad_numbers = ir.VectorType(element, PAD), ir.VectorType(whole, PAD)
        rows = [
            _row_pointer(context, builder, signature.args[k], args[k], args[k + 1]) for k in (0, 2)
        ]

        def short(number: Any) -> Any:
            return number if bits == 64 else builder.trunc(number, whole)

        def larger(x: Any, y: Any) -> Any:
            return builder.select(builder.icmp_signed(">", x, y), x, y)

        # As many ones as a number below the width has bits, at least.
        n_zeros = builder.ctlz(short(args[4]), ir.Constant(ir.IntType(1), 1))
        mask = builder.lshr(ir.Constant(whole, -1), n_zeros)
        total = cgutils.alloca_once(builder, pad)
        builder.store(ir.Constant(pad, [0.0] * PAD), total)
        most = None
        for n_lanes in (2 * PAD, PAD):
            numbers = ir.VectorType(whole, n_lanes)
            kept = _splat(builder, builder.not_(mask), numbers)
            columns = ir.Constant(numbers, list(range(n_lanes)))
            here = cgutils.alloca_once(builder, numbers)
            nothing = ir.Constant(numbers, [0] * n_lanes)
            builder.store(nothing if most is None else most, here)
            begin = builder.and_(args[4], ir.Constant(args[4].type, -2 * PAD))
            end = begin if n_lanes > PAD else args[4]
            begin = ir.Constant(begin.type, 0) if n_lanes > PAD else begin
            step = ir.Constant(begin.type, n_lanes)
            with cgutils.for_range_slice(builder, begin, end, step) as (at, _):
                products = builder.fmul(*(_Piece(builder, row, at, n_lanes).load() for row in rows))
                _add_pads(builder, total, products)
                number = builder.add(_splat(builder, short(at), numbers), columns)
                found = builder.and_(builder.bitcast(products, numbers), kept)
                found = builder.or_(found, number)
                builder.store(larger(found, builder.load(here)), here)
            most = builder.load(here)
            if n_lanes > PAD:
                most = larger(*(_part(builder, most, first, PAD) for first in (0, PAD)))
        name = f"llvm.vector.reduce.smax.v{PAD}i{bits}"
        kind = ir.FunctionType(whole, [pad_numbers])
        across = cgutils.get_or_insert_function(builder.module, kind, name)
        place = builder.and_(builder.call(across, [most]), mask)
        if bits < 64:
            place = builder.zext(place, context.get_value_type(types.intp))
        return context.make_tuple(
            builder, signature.return_type, (_across(builder, builder.load(total)), place)
        )

    return signature, generate


def _add_pads(builder: Any, total: Any, vector: Any) -> None:
    """Emit ``total += vector``, pad after pad: in an order that no size of pieces changes."""
    for first in range(0, vector.type.count, PAD):
        part = _part(builder, vector, first, PAD)
        builder.store(builder.fadd(builder.load(total), part), total)


def _part(builder: Any, vector: Any, first: int, length: int) -> Any:
    """Return some lanes of a vector."""
    index = ir.Constant(ir.VectorType(ir.IntType(32), length), list(range(first, first + length)))
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), index)


@intrinsic
def lowest_bit(typing_context, bits):
    """Return the place of the lowest bit that is set, of a number that is not zero."""

    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.intp(types.intp), generate


@intrinsic
def scale_row(typing_context, a, row, factor, width):
    """``a[row] *= factor``."""
    signature = types.void(a, types.intp, a.dtype, types.intp)

    def generate(context, builder, signature, args):
        a = _row_pointer(context, builder, signature.args[0], args[0], args[1])
        for at, n_lanes in _pieces(builder, args[3], (2 * PAD, PAD)):
            place = _Piece(builder, a, at, n_lanes)
            place.store(builder.fmul(place.load(), place.splat(args[2])))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def smooth_row(
    typing_context, a, a_row, b, b_row, norm, out, out_row, phi, phi_row, scale, e, width
):
    """``out[out_row] = a[a_row] * b[b_row] * norm; e[b_row] = phi[phi_row] * b[b_row] * scale``."""
    n, x = types.intp, a.dtype
    signature = types.void(a, n, b, n, x, out, n, phi, n, x, e, n)

    def generate(context, builder, signature, args):
        a, b, out, phi = (
            _row_pointer(context, builder, signature.args[k], args[k], args[k + 1])
            for k in (0, 2, 5, 7)
        )
        e = _row_pointer(context, builder, signature.args[10], args[10], args[3])
        for at, n_lanes in _pieces(builder, args[11], (2 * PAD, PAD)):
            own = _Piece(builder, b, at, n_lanes).load()
            for source, target, factor in ((a, out, args[4]), (phi, e, args[9])):
                product = builder.fmul(_Piece(builder, source, at, n_lanes).load(), own)
                place = _Piece(builder, target, at, n_lanes)
                place.store(builder.fmul(product, place.splat(factor)))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_squares(typing_context, values, first, shift, n_rows, total, width):
    """``total += (values[first[:n_rows] + shift] ** 2).sum(axis=0)``, of the same precision."""
    n = types.intp
    signature = types.void(values, first, n, n, total, n)

    def generate(context, builder, signature, args):
        kinds = signature.args
        first, total = (
            context.make_array(kinds[k])(context, builder, args[k]).data for k in (1, 4)
        )
        for at, n_lanes in _pieces(builder, args[5], (2 * PAD, PAD)):
            place = _Piece(builder, total, at, n_lanes)
            so_far = cgutils.alloca_once(builder, place.kind)
            builder.store(place.load(), so_far)
            with cgutils.for_range(builder, args[3]) as loop:
                row = builder.add(builder.load(builder.gep(first, [loop.index])), args[2])
                row = _row_pointer(context, builder, kinds[0], args[0], row)
                value = _Piece(builder, row, at, n_lanes).load()
                squares = builder.fmul(value, value)
                builder.store(builder.fadd(builder.load(so_far), squares), so_far)
            place.store(builder.load(so_far))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def square_row(typing_context, a, a_row, factor, largest, out, out_row, width):
    """``out[out_row] = (factor * minimum(a[a_row], largest)) ** 2``."""
    signature = types.void(a, types.intp, a.dtype, a.dtype, out, types.intp, types.intp)

    def generate(context, builder, signature, args):
        a = _row_pointer(context, builder, signature.args[0], args[0], args[1])
        out = _row_pointer(context, builder, signature.args[4], args[4], args[5])
        for at, n_lanes in _pieces(builder, args[6], (2 * PAD, PAD)):
            place = _Piece(builder, out, at, n_lanes)
            value, bound = _Piece(builder, a, at, n_lanes).load(), place.splat(args[3])
            value = builder.select(builder.fcmp_ordered("<", value, bound), value, bound)
            value = builder.fmul(value, place.splat(args[2]))
            place.store(builder.fmul(value, value))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def copy_row(typing_context, out, out_row, values, row, width):
    """``out[out_row] = values[row]``, rounded where that has less precision."""
    signature = types.void(out, types.intp, values, types.intp, types.intp)

    def generate(context, builder, signature, args):
        out, values = (
            _row_pointer(context, builder, signature.args[k], args[k], args[k + 1]) for k in (0, 2)
        )
        for at, n_lanes in _pieces(builder, args[4]):
            place = _Piece(builder, out, at, n_lanes)
            place.store(place.like(_Piece(builder, values, at, n_lanes).load()))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_row(typing_context, out, out_row, values, row, width):
    """``out[out_row] += values[row]``; `out` may be of double precision where values are not."""
    signature = types.void(out, types.intp, values, types.intp, types.intp)

    def generate(context, builder, signature, args):
        out, values = (
            _row_pointer(context, builder, signature.args[k], args[k], args[k + 1]) for k in (0, 2)
        )
        for at, n_lanes in _pieces(builder, args[4]):
            place = _Piece(builder, out, at, n_lanes)
            value = _Piece(builder, values, at, n_lanes).load()
            place.store(builder.fadd(place.load(), place.like(value)))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_to_row(typing_context, out, out_row, has_sum, values, row, width):
    """``out[out_row] = (out[out_row] if has_sum else 0) + values[row]``."""
    n = types.intp
    signature = types.void(out, n, has_sum, values, n, n)

    def generate(context, builder, signature, args):
        out, values = (
            _row_pointer(context, builder, signature.args[k], args[k], args[row])
            for k, row in ((0, 1), (3, 4))
        )
        for at, n_lanes in _pieces(builder, args[5], (2 * PAD, PAD)):
            place = _Piece(builder, out, at, n_lanes)
            value = _Piece(builder, values, at, n_lanes).load()
            place.store(builder.fadd(place.load_if(args[2]), value))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_scaled_row(typing_context, out, out_row, values, row, weight, totals, width):
    """``out[out_row] += weight * values[row]; totals += values[row]``, the latter float64."""
    n = types.intp
    signature = types.void(out, n, values, n, out.dtype, totals, n)

    def generate(context, builder, signature, args):
        out, values = (
            _row_pointer(context, builder, signature.args[k], args[k], args[k + 1]) for k in (0, 2)
        )
        sums = context.make_array(signature.args[5])(context, builder, args[5]).data
        for at, n_lanes in _pieces(builder, args[6]):
            place, total = _Piece(builder, out, at, n_lanes), _Piece(builder, sums, at, n_lanes)
            value = _Piece(builder, values, at, n_lanes).load()
            product = builder.fmul(place.splat(args[4]), place.like(value))
            place.store(builder.fadd(place.load(), product))
            total.store(builder.fadd(total.load(), total.like(value)))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_scaled_sum(
    typing_context, out, out_row, values, row, other, has_other, weight, totals, width
):
    """Do as `add_scaled_row` with the sum of two rows, or with the first alone: whole pads."""
    n = types.intp
    signature = types.void(out, n, values, n, n, has_other, out.dtype, totals, n)

    def generate(context, builder, signature, args):
        kinds = signature.args
        out, first, second = (
            _row_pointer(context, builder, kinds[k], args[k], args[row])
            for k, row in ((0, 1), (2, 3), (2, 4))
        )
        sums = context.make_array(kinds[7])(context, builder, args[7]).data
        for at, n_lanes in _pieces(builder, args[8], (2 * PAD, PAD)):
            place, total = _Piece(builder, out, at, n_lanes), _Piece(builder, sums, at, n_lanes)
            own, more = (_Piece(builder, part, at, n_lanes) for part in (first, second))
            value = builder.fadd(own.load(), more.load_if(args[5]))
            product = builder.fmul(place.splat(args[6]), place.like(value))
            place.store(builder.fadd(place.load(), product))
            total.store(builder.fadd(total.load(), total.like(value)))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def potential_row(typing_context, out, out_row, table, row, prior, scale, factor, width):
    """``out[out_row] = (prior + scale * table[row]) * factor``."""
    n = types.intp
    signature = types.void(out, n, table, n, out.dtype, out.dtype, factor, n)

    def generate(context, builder, signature, args):
        out, table = (
            _row_pointer(context, builder, signature.args[k], args[k], args[k + 1]) for k in (0, 2)
        )
        factors = context.make_array(signature.args[6])(context, builder, args[6]).data
        for at, n_lanes in _pieces(builder, args[7]):
            place = _Piece(builder, out, at, n_lanes)
            value = builder.fmul(place.splat(args[5]), _Piece(builder, table, at, n_lanes).load())
            value = builder.fadd(place.splat(args[4]), value)
            place.store(builder.fmul(value, _Piece(builder, factors, at, n_lanes).load()))
        return context.get_dummy_value()

    return signature, generate


def _pieces(
    builder: Any, width: Any, sizes: tuple[int, ...] = (PAD, 1)
) -> Iterator[tuple[Any, int]]:
    """Emit loops over the pads of a row and over its rest: what is emitted between goes there.

    Yields the place of a piece in the row, and how many numbers it has.
    """
    begin = ir.Constant(width.type, 0)
    for size in sizes:
        length = ir.Constant(width.type, size)
        n_pieces = builder.udiv(builder.sub(width, begin), length)
        with cgutils.for_range(builder, n_pieces) as loop:
            yield builder.add(begin, builder.mul(loop.index, length)), size
        begin = builder.add(begin, builder.mul(n_pieces, length))


class _Piece:
    """Some numbers of a row, as a vector."""

    def __init__(self, builder: Any, row: Any, at: Any, n_lanes: int) -> None:
        self._builder = builder
        self.kind = ir.VectorType(row.type.pointee, n_lanes)
        self._align = 8 if self.kind.element == ir.DoubleType() else 4
        self._place = builder.bitcast(builder.gep(row, [at]), self.kind.as_pointer())

    def load(self) -> Any:
        return self._builder.load(self._place, align=self._align)

    def load_if(self, is_there: Any) -> Any:
        """Return zeros unless a byte is one: a mask, as nobody can foresee a branch."""
        builder, lane = self._builder, ir.IntType(8 * self._align)
        numbers = ir.VectorType(lane, self.kind.count)
        mask = builder.neg(builder.zext(is_there, lane))
        kept = builder.and_(builder.bitcast(self.load(), numbers), _splat(builder, mask, numbers))
        return builder.bitcast(kept, self.kind)

    def store(self, values: Any) -> None:
        self._builder.store(values, self._place, align=self._align)

    def like(self, values: Any) -> Any:
        """Convert other numbers to the precision of these."""
        if values.type == self.kind:
            return values
        wider = self.kind.element == ir.DoubleType()
        convert = self._builder.fpext if wider else self._builder.fptrunc
        return convert(values, self.kind)

    def splat(self, scalar: Any) -> Any:
        return _splat(self._builder, scalar, self.kind)


def _splat(builder: Any, scalar: Any, lanes: Any) -> Any:
    """Return a vector with the same number in all lanes."""
    nothing = ir.Constant(lanes, ir.Undefined)
    lane = builder.insert_element(nothing, scalar, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes.count), [0] * lanes.count)
    return builder.shuffle_vector(lane, nothing, zeros)
