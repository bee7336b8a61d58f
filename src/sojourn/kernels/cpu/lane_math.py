"""Logarithms and exponentials of vectors, as values in numba code: see `lanes`.

They are written out in LLVM's terms, so that neither branches nor calls stop the vectors.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sojourn.kernels.cpu.lanes import LANES, Lanes

_I64 = ir.VectorType(ir.IntType(64), LANES)
_F64 = ir.VectorType(ir.DoubleType(), LANES)
_F32 = ir.VectorType(ir.FloatType(), LANES)
_LOG = [  # fdlibm's coefficients of log m = 2 artanh s, without the first
    1.479819860511658591e-01,
    1.531383769920937332e-01,
    1.818357216161805012e-01,
    2.222219843214978396e-01,
    2.857142874366239149e-01,
    3.999999999940941908e-01,
    6.666666666666735130e-01,
]
_FACTORIALS = [1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800, 39916800]
_LOWEST = {4: -87.0, 8: -700.0}  # below this an exponential is zero


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
    """Return log(1 + x) for x ≥ 0, in double precision.

    1 + x = 2^e m with m near one, and log m = 2 artanh((m − 1)/(m + 1)) by its series.
    """
    signature = x(x)

    def generate(context, builder, signature, args):
        one = _all(_F64, 1.0)
        above = builder.fadd(one, args[0])
        raw = builder.bitcast(above, _I64)
        near_one = _all(_I64, 0x3FF0000000000000 - 0x3FE6A09E667F3BCD)
        exponent = builder.lshr(builder.add(raw, near_one), _all(_I64, 52))
        exponent = builder.sub(exponent, _all(_I64, 1023))
        m = builder.bitcast(builder.sub(raw, builder.shl(exponent, _all(_I64, 52))), _F64)
        # Near one x itself has more digits than 1 + x.
        is_small = builder.icmp_signed("==", exponent, _all(_I64, 0))
        over = builder.select(is_small, args[0], builder.fsub(m, one))
        s = builder.fdiv(over, builder.fadd(m, one))
        square = builder.fmul(s, s)
        series = builder.fmul(square, _polynomial(builder, square, _LOG))
        log_m = builder.fmul(s, builder.fadd(series, _all(_F64, 2.0)))
        e = builder.sitofp(exponent, _F64)
        return _multiply_add(builder, e, _all(_F64, 0.6931471805599453), log_m)

    return signature, generate


@intrinsic
def exponential(typing_context, x, like):
    """Return exp(x) for x ≤ 0 in double precision, rounded to the type of an array's elements."""
    signature = Lanes(like.dtype)(x, like)

    def generate(context, builder, signature, args):
        itemsize = signature.args[1].dtype.bitwidth // 8
        lowest = _all(_F64, _LOWEST[itemsize])
        is_zero = builder.not_(builder.fcmp_ordered(">", args[0], lowest))
        value = builder.select(is_zero, lowest, args[0])
        kind = ir.FunctionType(_F64, [_F64])
        name = f"llvm.floor.v{LANES}f64"
        floor = cgutils.get_or_insert_function(builder.module, kind, name)
        halves = _multiply_add(builder, value, _all(_F64, 1.4426950408889634), _all(_F64, 0.5))
        n = builder.call(floor, [halves])
        r = _multiply_add(builder, n, _all(_F64, -0.693145751953125), value)
        r = _multiply_add(builder, n, _all(_F64, -1.42860682030941723212e-6), r)
        exponent = builder.fptosi(n, _I64)
        if itemsize == 8:
            power = builder.shl(builder.add(exponent, _all(_I64, 1023)), _all(_I64, 52))
            scale, kind, order = builder.bitcast(power, _F64), _F64, 12
        else:
            i32 = ir.VectorType(ir.IntType(32), LANES)
            power = builder.trunc(builder.add(exponent, _all(_I64, 127)), i32)
            scale = builder.bitcast(builder.shl(power, _all(i32, 23)), _F32)
            r, kind, order = builder.fptrunc(r, _F32), _F32, 8
        series = _polynomial(builder, r, [1.0 / f for f in reversed(_FACTORIALS[:order])])
        return builder.select(is_zero, _all(kind, 0.0), builder.fmul(series, scale))

    return signature, generate


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
def every(typing_context, value):
    """Return a number in all lanes."""
    signature = Lanes(types.float64)(types.float64)
    return signature, lambda context, builder, signature, args: _splat(builder, args[0])


def _splat(builder: Any, scalar: Any) -> Any:
    nothing = ir.Constant(_F64, ir.Undefined)
    zero = ir.Constant(ir.IntType(32), 0)
    first = builder.insert_element(nothing, scalar, zero)
    return builder.shuffle_vector(
        first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    )
