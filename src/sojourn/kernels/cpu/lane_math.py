"""Logarithms and exponentials of vectors, as values in numba code: see `lanes`.

They are written out in LLVM's terms, so that neither branches nor calls stop the vectors.
"""

from __future__ import annotations

from math import factorial
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sojourn.kernels.cpu.lanes import LANES, Lanes, splatted

_I64 = ir.VectorType(ir.IntType(64), LANES)
_F64 = ir.VectorType(ir.DoubleType(), LANES)
_F32 = ir.VectorType(ir.FloatType(), LANES)
_I32 = ir.VectorType(ir.IntType(32), LANES)
_LOG_2 = 0.6931471805599453
_LOG = [  # fdlibm's coefficients of log m = 2 artanh s, without the first
    1.479819860511658591e-01,
    1.531383769920937332e-01,
    1.818357216161805012e-01,
    2.222219843214978396e-01,
    2.857142874366239149e-01,
    3.999999999940941908e-01,
    6.666666666666735130e-01,
]
_LOG_SINGLE = _LOG[-4:]  # s² ≤ 0.03: what is left out is below rounding
SMALL = 1.0 / 64.0
_TERMS = {4: 5, 8: 8}  # the first term that is left out is 64⁻⁵ / 6, or 64⁻⁸ / 9, of the first
_LOWEST = {4: -126.0, 8: -1010.0}  # binary logarithms: an exponential as small as this is zero
_ORDER = {4: 7, 8: 13}  # of the polynomial that is 2^f
_FORMATS = {  # whole numbers of the same size, bits of the mantissa, bias, from √½ to one
    _F64: (_F64, _I64, 52, 1023, 0x3FF0000000000000 - 0x3FE6A09E667F3BCD, _LOG),
    _F32: (_F32, _I32, 23, 127, 0x3F800000 - 0x3F3504F3, _LOG_SINGLE),
}


def _all(kind: Any, value: float) -> Any:
    return ir.Constant(kind, [value] * LANES)


def _multiply_add(builder: Any, x: Any, y: Any, z: Any) -> Any:
    bits = 64 if x.type.element == ir.DoubleType() else 32
    kind = ir.FunctionType(x.type, [x.type] * 3)
    name = f"llvm.fmuladd.v{LANES}f{bits}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [x, y, z])


def _polynomial(builder: Any, x: Any, coefficients: list[float]) -> Any:
    """Emit a polynomial, the highest power first."""
    value = _all(x.type, coefficients[0])
    for coefficient in coefficients[1:]:
        value = _multiply_add(builder, value, x, _all(x.type, coefficient))
    return value


@intrinsic
def log_one_plus(typing_context, x):
    """Return log(1 + x) for x > −1, in the precision of x.

    1 + x = 2^e m with m near one, and log m = 2 artanh((m − 1)/(m + 1)) by its series.
    """
    signature = x(x)

    def generate(context, builder, signature, args):
        kind, whole, mantissa, bias, near, series_of = _FORMATS[args[0].type]
        one = _all(kind, 1.0)
        above = builder.fadd(one, args[0])
        raw = builder.bitcast(above, whole)
        exponent = builder.lshr(builder.add(raw, _all(whole, near)), _all(whole, mantissa))
        exponent = builder.sub(exponent, _all(whole, bias))
        shifted = builder.shl(exponent, _all(whole, mantissa))
        m = builder.bitcast(builder.sub(raw, shifted), kind)
        # Near one x itself has more digits than 1 + x.
        is_small = builder.icmp_signed("==", exponent, _all(whole, 0))
        over = builder.select(is_small, args[0], builder.fsub(m, one))
        s = builder.fdiv(over, builder.fadd(m, one))
        square = builder.fmul(s, s)
        series = builder.fmul(square, _polynomial(builder, square, series_of))
        log_m = builder.fmul(s, builder.fadd(series, _all(kind, 2.0)))
        e = builder.sitofp(exponent, kind)
        return _multiply_add(builder, e, _all(kind, _LOG_2), log_m)

    return signature, generate


@intrinsic
def log_one_plus_small(typing_context, x):
    """Return log(1 + x) for 0 ≤ x ≤ `SMALL` by its series, in the precision of x."""
    signature = x(x)

    def generate(context, builder, signature, args):
        n_terms = _TERMS[signature.args[0].dtype.bitwidth // 8]
        terms = [(-1.0) ** (n + 1) / n for n in range(n_terms, 0, -1)]
        return builder.fmul(args[0], _polynomial(builder, args[0], terms))

    return signature, generate


@intrinsic
def power_of_two(typing_context, x):
    """Return 2^x for x ≤ 0, in single precision."""
    signature = x(x)

    def generate(context, builder, signature, args):
        y = _above(builder, args[0], _all(_F32, _LOWEST[4]))
        n = _nearest(builder, y)
        return _raised(builder, builder.fsub(y, n), n)

    return signature, generate


@intrinsic
def exponential(typing_context, x, like):
    """Return exp(x) for x ≤ 0 in double precision, rounded to the type of an array's elements.

    exp(x) = 2^n 2^f with y = x / log 2, n the nearest integer and f = y − n.
    """
    signature = Lanes(like.dtype)(x, like)

    def generate(context, builder, signature, args):
        itemsize = signature.args[1].dtype.bitwidth // 8
        y = builder.fmul(args[0], _all(_F64, 1.0 / _LOG_2))
        y = _above(builder, y, _all(_F64, _LOWEST[itemsize]))
        n = _nearest(builder, y)
        f = builder.fsub(y, n)
        if itemsize == 4:
            f = builder.fptrunc(f, _F32)
        return _raised(builder, f, n)

    return signature, generate


@intrinsic
def one_less_exponential(typing_context, x):
    """Return 1 − exp(x) for x ≤ 0 in double precision, to as many digits where it is small.

    With the numbers of `exponential`, it is (1 − 2^n) − 2^n (2^f − 1).
    """

    def generate(context, builder, signature, args):
        y = builder.fmul(args[0], _all(_F64, 1.0 / _LOG_2))
        y = _above(builder, y, _all(_F64, _LOWEST[8]))
        n = _nearest(builder, y)
        f = builder.fsub(y, n)
        powers = range(_ORDER[8], 0, -1)
        series = _polynomial(builder, f, [_LOG_2**k / factorial(k) for k in powers])
        whole = builder.add(builder.fptosi(n, _I64), _all(_I64, 1023))
        power = builder.bitcast(builder.shl(whole, _all(_I64, 52)), _F64)
        grown = builder.fmul(power, builder.fmul(f, series))
        return builder.fsub(builder.fsub(_all(_F64, 1.0), power), grown)

    return x(x), generate


def _above(builder: Any, x: Any, lowest: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", x, lowest), x, lowest)


def _nearest(builder: Any, x: Any) -> Any:
    name = f"llvm.nearbyint.v{LANES}f{64 if x.type == _F64 else 32}"
    kind = ir.FunctionType(x.type, [x.type])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [x])


def _raised(builder: Any, f: Any, n: Any) -> Any:
    """Emit 2^n 2^f in the precision of f, for |f| ≤ ½ and a whole number n."""
    kind, whole, mantissa, *_ = _FORMATS[f.type]
    itemsize = 8 if kind == _F64 else 4
    n = builder.fptosi(n, whole)
    powers = range(_ORDER[itemsize], -1, -1)
    series = _polynomial(builder, f, [_LOG_2**k / factorial(k) for k in powers])
    # The exponent of a number near one is raised by n.
    shifted = builder.shl(n, _all(whole, mantissa))
    value = builder.bitcast(builder.add(builder.bitcast(series, whole), shifted), kind)
    is_zero = builder.icmp_signed("<=", n, _all(whole, int(_LOWEST[itemsize])))
    return builder.select(is_zero, _all(kind, 0.0), value)


@intrinsic
def largest(typing_context, x, y):
    """Return the larger of two numbers in every lane."""

    def generate(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return x(x, x), generate


@intrinsic
def subtract(typing_context, x, y):
    """Return ``x - y``."""
    return x(x, x), lambda context, builder, signature, args: builder.fsub(*args)


@intrinsic
def divide(typing_context, x, y):
    """Return ``x / y``."""
    return x(x, x), lambda context, builder, signature, args: builder.fdiv(*args)


@intrinsic
def every(typing_context, value):
    """Return a number in all lanes."""
    signature = Lanes(types.float64)(types.float64)
    return signature, lambda context, builder, signature, args: splatted(builder, args[0])


@intrinsic
def every_like(typing_context, x, value):
    """Return a number in all lanes, in the precision of x."""

    def generate(context, builder, signature, args):
        scalar, element = args[1], args[0].type.element
        if element != scalar.type:
            scalar = builder.fptrunc(scalar, element)
        return splatted(builder, scalar)

    return x(x, types.float64), generate
