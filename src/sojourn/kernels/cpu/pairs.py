"""What the expectations of pairs of states need, in every lane: see `lanes`.

Sums of products are written out in LLVM's terms: as numba code those of four states by four, in
registers, are a hundred lines for each of their forms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sojourn.kernels.cpu.lanes import LANES, splatted

_SIZES = {1: ((4, 1), (4, 2, 1)), 2: ((2, 1), (4, 2, 1))}  # of tiles, by sums of a product
_CHAINS = 4  # sums that must be under way: an addition takes so many cycles


@intrinsic
def add_outer(
    typing_context, left, left_at, right, right_at, n_states, n_steps, stride, sums, squares
):
    """``sums[k, l] += left[s, k] * right[s, l]``, and ``squares[k, l]`` the squares of these.

    Steps are `stride` numbers apart, and a state has two vectors, the sums of which are added up.
    `sums` and `squares` are (K, K, `LANES`), and flat; None where they are not wanted.
    """
    n = types.intp
    signature = types.void(left, n, right, n, n, n, n, sums, squares)

    def generate(context, builder, signature, args):
        kinds = signature.args

        def data(k: int) -> Any:
            if isinstance(kinds[k], types.NoneType):
                return None
            return context.make_array(kinds[k])(context, builder, args[k]).data

        left, right = (builder.gep(data(k), [args[k + 1]]) for k in (0, 2))
        n_states, n_steps, stride = args[4:7]
        outs = [data(7), data(8)]
        n_sums = sum(out is not None for out in outs)
        rows, columns = _SIZES[n_sums]
        for k, n_left in _runs(builder, n_states, rows):
            for j, n_right in _runs(builder, n_states, columns):
                a, b = (
                    builder.gep(source, [_times(builder, first, 2 * LANES)])
                    for source, first in ((left, k), (right, j))
                )
                at = _times(builder, builder.add(builder.mul(k, n_states), j), LANES)
                tile = _Tile(builder, outs, at, _times(builder, n_states, LANES), n_left, n_right)
                with cgutils.for_range(builder, n_steps) as loop:
                    step = builder.mul(loop.index, stride)
                    tile.add(builder.gep(a, [step]), builder.gep(b, [step]))
                tile.store()
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def store_likeliest(typing_context, q, at, n_states, out, out_at):
    """Write which state has the largest q in each of two vectors of lanes.

    The number of a state takes the place of the last bits of q, which is not negative, so that a
    maximum of whole numbers finds it: states whose q agree in the other bits are alike.
    """
    n = types.intp
    signature = types.void(q, n, n, out, n)

    def generate(context, builder, signature, args):
        kinds = signature.args
        bits = kinds[0].dtype.bitwidth
        lanes = ir.VectorType(ir.IntType(bits), LANES)
        source, out = (context.make_array(kinds[k])(context, builder, args[k]).data for k in (0, 3))

        def short(number: Any) -> Any:
            return number if bits == 64 else builder.trunc(number, lanes.element)

        # As many ones as the number of states has bits.
        n_zeros = builder.ctlz(short(args[2]), ir.Constant(ir.IntType(1), 1))
        mask = splatted(builder, builder.lshr(ir.Constant(lanes.element, -1), n_zeros))
        kept = builder.not_(mask)
        for half in range(2):
            shift = ir.Constant(args[1].type, half * LANES)
            first = builder.gep(source, [builder.add(args[1], shift)])
            most = cgutils.alloca_once(builder, lanes)
            builder.store(ir.Constant(lanes, [0] * LANES), most)
            with cgutils.for_range(builder, args[2]) as loop:
                place = builder.gep(first, [_times(builder, loop.index, 2 * LANES)])
                place = builder.bitcast(place, lanes.as_pointer())
                value = builder.and_(builder.load(place, align=bits // 8), kept)
                value = builder.or_(value, splatted(builder, short(loop.index)))
                before = builder.load(most)
                above = builder.icmp_signed(">", value, before)
                builder.store(builder.select(above, value, before), most)
            found = builder.and_(builder.load(most), mask)
            kind = ir.VectorType(ir.IntType(kinds[3].dtype.bitwidth), LANES)
            if kind != lanes:
                found = builder.zext(found, kind)
            place = builder.gep(out, [builder.add(args[4], shift)])
            builder.store(found, builder.bitcast(place, kind.as_pointer()), align=8)
        return context.get_dummy_value()

    return signature, generate


def _times(builder: Any, x: Any, factor: int) -> Any:
    return builder.mul(x, ir.Constant(x.type, factor))


def _runs(builder: Any, n: Any, sizes: tuple[int, ...]) -> Iterator[tuple[Any, int]]:
    """Emit loops over runs of states, ever smaller ones: what is emitted between goes there."""
    begin = ir.Constant(n.type, 0)
    for size in sizes:
        n_runs = builder.udiv(builder.sub(n, begin), ir.Constant(n.type, size))
        with cgutils.for_range(builder, n_runs) as loop:
            yield builder.add(begin, _times(builder, loop.index, size)), size
        begin = builder.add(begin, _times(builder, n_runs, size))


class _Tile:
    """The sums of some states by some others, in registers."""

    def __init__(
        self, builder: Any, outs: list[Any], at: Any, down: Any, n_left: int, n_right: int
    ) -> None:
        self._builder, self._n_left, self._n_right = builder, n_left, n_right
        kind = next(out for out in outs if out is not None).type.pointee
        self._lanes, self._align = ir.VectorType(kind, LANES), 8 if kind == ir.DoubleType() else 4
        zero = ir.Constant(self._lanes, [0.0] * LANES)
        self._cells = [(i, j) for i in range(n_left) for j in range(n_right)]
        # Few sums are split in two: one would wait for the other.
        self._n_parts = 1 if len(self._cells) >= _CHAINS else 2
        self._sums: list[Any] = []
        for out in outs:
            places = [
                builder.gep(out, [builder.add(at, builder.add(_times(builder, down, i), columns))])
                for i, j in self._cells
                for columns in [ir.Constant(at.type, j * LANES)]
            ] if out is not None else []  # fmt: skip
            parts = [
                [cgutils.alloca_once(builder, self._lanes) for _ in range(self._n_parts)]
                for _ in places
            ]
            for place, (first, *others) in zip(places, parts, strict=True):
                builder.store(self._load(place, 0), first)
                for other in others:
                    builder.store(zero, other)
            self._sums.append((places, parts))

    def _load(self, row: Any, at: int) -> Any:
        builder = self._builder
        place = builder.gep(row, [ir.Constant(ir.IntType(64), at)])
        return builder.load(builder.bitcast(place, self._lanes.as_pointer()), align=self._align)

    def add(self, left: Any, right: Any) -> None:
        """Emit the products of a step."""
        builder = self._builder
        (sums, squares) = (parts for _, parts in self._sums)
        for half in range(2):
            xs = [self._load(left, (2 * i + half) * LANES) for i in range(self._n_left)]
            ys = [self._load(right, (2 * j + half) * LANES) for j in range(self._n_right)]
            part = half % self._n_parts
            for cell, (i, j) in enumerate(self._cells):
                if sums and not squares:
                    self._grow(sums[cell][part], xs[i], ys[j])
                    continue
                product = builder.fmul(xs[i], ys[j])
                if sums:
                    place = sums[cell][part]
                    builder.store(builder.fadd(builder.load(place), product), place)
                self._grow(squares[cell][part], product, product)

    def _grow(self, place: Any, x: Any, y: Any) -> None:
        builder = self._builder
        bits = 8 * self._align
        kind = ir.FunctionType(self._lanes, [self._lanes] * 3)
        function = cgutils.get_or_insert_function(
            builder.module, kind, f"llvm.fmuladd.v{LANES}f{bits}"
        )
        builder.store(builder.call(function, [x, y, builder.load(place)]), place)

    def store(self) -> None:
        """Emit what writes the sums."""
        builder = self._builder
        for places, parts in self._sums:
            for place, own in zip(places, parts, strict=True):
                value = builder.load(own[0])
                for other in own[1:]:
                    value = builder.fadd(value, builder.load(other))
                at = builder.bitcast(place, self._lanes.as_pointer())
                builder.store(value, at, align=self._align)
