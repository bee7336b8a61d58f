"""Vectors of `LANES` numbers as values in numba code.

numba has no vector type of its own, and LLVM does not find the vectors in loops like those of
`strips`: the sums of several states must stay in registers.  `Lanes` is such a type, and the
functions here are all that `strips` does with it.  A vector has one number of each of `LANES`
pieces of the data; LLVM maps it to whatever registers the processor has.

Arrays are flat and C-ordered.  Places are not checked.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from sojourn.kernels.interface import PAD

LANES = 16
ZIPPED = range(2, 7)
"""Columns for which `zip_rows` and `unzip_rows` are; with more, squares are as fast.

n columns take n (n − 1) shuffles, a square 64.  On an AMD EPYC, one core, densities of a step of
one column, ns before and after: 2 states 4.2 and 3.7, 5 states 6.7 and 5.4.
"""

_I32 = ir.IntType(32)


class Lanes(types.Type):
    """The type of a vector of `LANES` floating-point numbers."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Lanes) -> None:
        element = ir.FloatType() if kind.dtype == types.float32 else ir.DoubleType()
        super().__init__(manager, kind, ir.VectorType(element, LANES))


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


def _place(builder: Any, data: Any, at: Any, lanes: Any) -> Any:
    return builder.bitcast(builder.gep(data, [at]), lanes.as_pointer())


def shuffled(builder: Any, left: Any, right: Any, order: list[int]) -> Any:
    """Emit a vector of numbers of two others, in some order."""
    return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(_I32, len(order)), order))


def splatted(builder: Any, scalar: Any, n_lanes: int = LANES) -> Any:
    """Emit a vector with a number in all lanes."""
    nothing = ir.Constant(ir.VectorType(scalar.type, n_lanes), ir.Undefined)
    first = builder.insert_element(nothing, scalar, ir.Constant(_I32, 0))
    return shuffled(builder, first, nothing, [0] * n_lanes)


def _chosen(builder: Any, bits: Any, yes: Any, no: Any) -> Any:
    narrow = builder.trunc(bits, ir.IntType(LANES))
    return builder.select(builder.bitcast(narrow, ir.VectorType(ir.IntType(1), LANES)), yes, no)


@intrinsic
def load(typing_context, array, at):
    """Return ``array[at : at + LANES]``."""
    signature = Lanes(array.dtype)(array, types.intp)

    def generate(context, builder, signature, args):
        data = _data(context, builder, signature.args[0], args[0])
        lanes = context.get_value_type(signature.return_type)
        itemsize = signature.args[0].dtype.bitwidth // 8
        return builder.load(_place(builder, data, args[1], lanes), align=itemsize)

    return signature, generate


@intrinsic
def store(typing_context, array, at, vector):
    """``array[at : at + LANES] = vector``."""
    signature = types.void(array, types.intp, vector)

    def generate(context, builder, signature, args):
        data = _data(context, builder, signature.args[0], args[0])
        itemsize = signature.args[0].dtype.bitwidth // 8
        builder.store(args[2], _place(builder, data, args[1], args[2].type), align=itemsize)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def splat(typing_context, array, at):
    """Return ``array[at]`` in all lanes."""
    signature = Lanes(array.dtype)(array, types.intp)

    def generate(context, builder, signature, args):
        data = _data(context, builder, signature.args[0], args[0])
        return splatted(builder, builder.load(builder.gep(data, [args[1]])))

    return signature, generate


@intrinsic
def get(typing_context, array, at):
    """Return ``array.flat[at]`` of a C-ordered array."""
    signature = array.dtype(array, types.intp)

    def generate(context, builder, signature, args):
        data = _data(context, builder, signature.args[0], args[0])
        return builder.load(builder.gep(data, [args[1]]))

    return signature, generate


@intrinsic
def put(typing_context, array, at, value):
    """``array.flat[at] = value`` of a C-ordered array."""
    signature = types.void(array, types.intp, array.dtype)

    def generate(context, builder, signature, args):
        data = _data(context, builder, signature.args[0], args[0])
        builder.store(args[2], builder.gep(data, [args[1]]))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def zeros_of(typing_context, array):
    """Return zeros of the type of an array's elements."""
    signature = Lanes(array.dtype)(array)

    def generate(context, builder, signature, args):
        return ir.Constant(context.get_value_type(signature.return_type), [0.0] * LANES)

    return signature, generate


@intrinsic
def multiply_add(typing_context, x, y, z):
    """Return ``x * y + z``."""
    signature = x(x, x, x)

    def generate(context, builder, signature, args):
        lanes = args[0].type
        name = f"llvm.fmuladd.v{LANES}f{signature.args[0].dtype.bitwidth}"
        kind = ir.FunctionType(lanes, [lanes] * 3)
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)

    return signature, generate


@intrinsic
def multiply(typing_context, x, y):
    """Return ``x * y``."""
    return x(x, x), lambda context, builder, signature, args: builder.fmul(*args)


@intrinsic
def add(typing_context, x, y):
    """Return ``x + y``."""
    return x(x, x), lambda context, builder, signature, args: builder.fadd(*args)


@intrinsic
def inverse(typing_context, x):
    """Return ``1 / x``."""

    def generate(context, builder, signature, args):
        return builder.fdiv(ir.Constant(args[0].type, [1.0] * LANES), args[0])

    return x(x), generate


@intrinsic
def widened(typing_context, x):
    """Return the same numbers in double precision."""
    signature = Lanes(types.float64)(x)

    def generate(context, builder, signature, args):
        if signature.args[0].dtype == types.float64:
            return args[0]
        return builder.fpext(args[0], context.get_value_type(signature.return_type))

    return signature, generate


@intrinsic
def narrowed(typing_context, x):
    """Return numbers in double precision, rounded to single precision."""
    signature = Lanes(types.float32)(x)

    def generate(context, builder, signature, args):
        return builder.fptrunc(args[0], context.get_value_type(signature.return_type))

    return signature, generate


@intrinsic
def least(typing_context, x, y):
    """Return the smaller of two numbers in every lane."""

    def generate(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered("<", *args), *args)

    return x(x, x), generate


@intrinsic
def choose(typing_context, bits, yes, no):
    """Return `yes` in the lanes whose bit is set, and `no` in the others."""
    signature = yes(types.intp, yes, yes)
    return signature, lambda context, builder, signature, args: _chosen(builder, *args)


@intrinsic
def lanes_not_above(typing_context, x, bound):
    """Return the lanes, as bits, in which x is not above a bound, or is not a number."""
    signature = types.intp(x, x)

    def generate(context, builder, signature, args):
        found = builder.not_(builder.fcmp_ordered(">", *args))
        bits = builder.bitcast(found, ir.IntType(LANES))
        return builder.zext(bits, context.get_value_type(types.intp))

    return signature, generate


@intrinsic
def copy_pad(typing_context, source, at, out, out_at):
    """``out[out_at : out_at + PAD] = source[at : at + PAD]``."""
    n = types.intp
    signature = types.void(source, n, out, n)

    def generate(context, builder, signature, args):
        data, target = (_data(context, builder, signature.args[k], args[k]) for k in (0, 2))
        pad = ir.VectorType(context.get_data_type(signature.args[0].dtype), PAD)
        itemsize = signature.args[0].dtype.bitwidth // 8
        values = builder.load(_place(builder, data, args[1], pad), align=itemsize)
        builder.store(values, _place(builder, target, args[3], pad), align=itemsize)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def copy_run(typing_context, source, at, out, out_at, length):
    """``out[out_at : out_at + length] = source[at : at + length]``, of arrays of the same type."""
    n = types.intp
    signature = types.void(source, n, out, n, n)

    def generate(context, builder, signature, args):
        data, target = (_data(context, builder, signature.args[k], args[k]) for k in (0, 2))
        itemsize = signature.args[0].dtype.bitwidth // 8
        source_at, target_at = builder.gep(data, [args[1]]), builder.gep(target, [args[3]])
        cgutils.raw_memcpy(builder, target_at, source_at, args[4], itemsize)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def multiply_pad(typing_context, array, at, factors, factors_at, bound):
    """``array[at : at + PAD] *= factors[factors_at : factors_at + PAD]``.

    Returns as bits which products are not below a bound.
    """
    n = types.intp
    signature = n(array, n, factors, n, array.dtype)

    def generate(context, builder, signature, args):
        data, other = (_data(context, builder, signature.args[k], args[k]) for k in (0, 2))
        pad = ir.VectorType(context.get_data_type(signature.args[0].dtype), PAD)
        itemsize = signature.args[0].dtype.bitwidth // 8
        place = _place(builder, data, args[1], pad)
        values = builder.load(place, align=itemsize)
        own = builder.load(_place(builder, other, args[3], pad), align=itemsize)
        product = builder.fmul(values, own)
        builder.store(product, place, align=itemsize)
        found = builder.fcmp_ordered(">=", product, splatted(builder, args[4], PAD))
        bits = builder.bitcast(found, ir.IntType(PAD))
        return builder.zext(bits, context.get_value_type(types.intp))

    return signature, generate


@intrinsic
def transpose(typing_context, source, places, first, stride, out, out_at, out_stride):
    """Move `LANES` runs of `LANES` numbers to columns, or columns to runs.

    ``out[out_at + j * out_stride + i] = source[places[first + i] + stride + j]`` for all i and j.
    """
    n = types.intp
    signature = types.void(source, places, n, n, out, n, n)

    def generate(context, builder, signature, args):
        data, where, target = (
            _data(context, builder, signature.args[k], args[k]) for k in (0, 1, 4)
        )
        rows = _loaded_runs(context, builder, signature, data, where, args)
        rows = transposed(builder, rows)
        itemsize = signature.args[0].dtype.bitwidth // 8
        for j, row in enumerate(rows):
            at = builder.add(args[5], builder.mul(args[6], ir.Constant(args[6].type, j)))
            builder.store(row, _place(builder, target, at, row.type), align=itemsize)
        return context.get_dummy_value()

    return signature, generate


def _loaded_runs(
    context: Any, builder: Any, signature: Any, data: Any, where: Any, args: Any
) -> list[Any]:
    lanes = context.get_value_type(Lanes(signature.args[0].dtype))
    itemsize = signature.args[0].dtype.bitwidth // 8
    rows = []
    for i in range(LANES):
        place = builder.gep(where, [builder.add(args[2], ir.Constant(args[2].type, i))])
        at = builder.add(builder.load(place), args[3])
        rows.append(builder.load(_place(builder, data, at, lanes), align=itemsize))
    return rows


@intrinsic
def transpose_back(typing_context, source, at, stride, out, places, first, shift):
    """Move columns to runs: the inverse of `transpose`.

    ``out[places[first + i] + shift + j] = source[at + j * stride + i]`` for all i and j.
    """
    n = types.intp
    signature = types.void(source, n, n, out, places, n, n)

    def generate(context, builder, signature, args):
        data, target, where = (
            _data(context, builder, signature.args[k], args[k]) for k in (0, 3, 4)
        )
        lanes = context.get_value_type(Lanes(signature.args[0].dtype))
        itemsize = signature.args[0].dtype.bitwidth // 8
        rows = []
        for j in range(LANES):
            begin = builder.add(args[1], builder.mul(args[2], ir.Constant(args[2].type, j)))
            rows.append(builder.load(_place(builder, data, begin, lanes), align=itemsize))
        for i, row in enumerate(transposed(builder, rows)):
            place = builder.gep(where, [builder.add(args[5], ir.Constant(args[5].type, i))])
            begin = builder.add(builder.load(place), args[6])
            builder.store(row, _place(builder, target, begin, lanes), align=itemsize)
        return context.get_dummy_value()

    return signature, generate


def transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose a square of vectors, or two beside each other: exchange ever smaller blocks."""
    size = len(rows) // 2
    columns = range(LANES)
    while size:
        upper = [c if not c & size else LANES + c - size for c in columns]
        lower = [c + size if not c & size else LANES + c for c in columns]
        for i in range(len(rows)):
            if not i & size:
                a, b = rows[i], rows[i | size]
                rows[i] = shuffled(builder, a, b, upper)
                rows[i | size] = shuffled(builder, a, b, lower)
        size //= 2
    return rows


@intrinsic
def zip_rows(typing_context, source, at, stride, n, out, out_at):
    """Write vectors of `LANES` steps, one for each of n columns, as rows, for n in `ZIPPED`.

    ``out.flat[out_at + i * n + k] = source[at + k * stride + i]`` for all i and k.
    """
    m = types.intp
    signature = types.void(source, m, m, m, out, m)

    def generate(context, builder, signature, args):
        data, target = (_data(context, builder, signature.args[k], args[k]) for k in (0, 4))
        for n in _cases(builder, args[3]):
            begins = [builder.add(args[1], _times(builder, args[2], k)) for k in range(n)]
            order = [divmod(place, n)[::-1] for place in range(n * LANES)]
            ends = [builder.add(args[5], ir.Constant(args[5].type, k * LANES)) for k in range(n)]
            _move_picked(builder, data, begins, order, target, ends)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def unzip_rows(typing_context, source, at, n, out, out_at, stride):
    """Read `LANES` rows of n columns as a vector for each column: the inverse of `zip_rows`.

    ``out[out_at + k * stride + i] = source.flat[at + i * n + k]`` for all i and k.
    """
    m = types.intp
    signature = types.void(source, m, m, out, m, m)

    def generate(context, builder, signature, args):
        data, target = (_data(context, builder, signature.args[k], args[k]) for k in (0, 3))
        for n in _cases(builder, args[2]):
            begins = [builder.add(args[1], ir.Constant(args[1].type, k * LANES)) for k in range(n)]
            order = [divmod(i * n + k, LANES) for k in range(n) for i in range(LANES)]
            ends = [builder.add(args[4], _times(builder, args[5], k)) for k in range(n)]
            _move_picked(builder, data, begins, order, target, ends)
        return context.get_dummy_value()

    return signature, generate


def _times(builder: Any, x: Any, factor: int) -> Any:
    return builder.mul(x, ir.Constant(x.type, factor))


def _cases(builder: Any, n: Any) -> Any:
    """Emit a branch for each number in `ZIPPED`: what is emitted between two of them goes there."""
    end = builder.append_basic_block("zipped")
    branches = [builder.append_basic_block(f"zip{number}") for number in ZIPPED]
    switch = builder.switch(n, end)
    for number, branch in zip(ZIPPED, branches, strict=True):
        switch.add_case(ir.Constant(n.type, number), branch)
        builder.position_at_end(branch)
        yield number
        builder.branch(end)
    builder.position_at_end(end)


def _move_picked(
    builder: Any,
    data: Any,
    begins: list[Any],
    order: list[tuple[int, int]],
    target: Any,
    ends: list[Any],
) -> None:
    """Emit vectors at some places whose numbers are those of vectors at others, in some order.

    `order` has the vector and the lane that each number comes from.
    """
    kinds = [ir.VectorType(part.type.pointee, LANES) for part in (data, target)]
    sizes = [8 if kind.element == ir.DoubleType() else 4 for kind in kinds]
    rows = [builder.load(_place(builder, data, at, kinds[0]), align=sizes[0]) for at in begins]
    for j, at in enumerate(ends):
        picks = order[j * LANES : (j + 1) * LANES]
        value = rows[0]
        for number, row in enumerate(rows[1:], 1):
            # What is not of this row stays in its lane; the first row is put in order beside.
            mask = [
                LANES + lane if of == number else lane if of == 0 and number == 1 else i
                for i, (of, lane) in enumerate(picks)
            ]
            value = shuffled(builder, value, row, mask)
        if sizes[1] > sizes[0]:
            value = builder.fpext(value, kinds[1])
        builder.store(value, _place(builder, target, at, kinds[1]), align=sizes[1])
