"""Room that compiled functions work in.

numba compiles several functions for every kind of array that a function allocates: `empty` does
without.  Where Python makes the room, references need not be counted either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numpy.typing import NDArray

from sojourn.kernels.interface import LINE

_UNIT = 16  # numbers; every array begins at a multiple of it


@intrinsic
def part(typing_context, array, ends, number):
    """Return ``array[ends[number] : ends[number + 1]]``, which is there as long as `array` is."""
    signature = array(array, ends, types.intp)

    def generate(context, builder, signature, args):
        whole = context.make_array(signature.args[0])(context, builder, args[0])
        places = context.make_array(signature.args[1])(context, builder, args[1]).data
        next_number = builder.add(args[2], ir.Constant(args[2].type, 1))
        begin, end = (builder.load(builder.gep(places, [at])) for at in (args[2], next_number))
        length = builder.sub(end, begin)
        own = context.make_array(signature.return_type)(context, builder)
        own.meminfo, own.parent = whole.meminfo, whole.parent
        own.itemsize, own.strides = whole.itemsize, whole.strides
        own.data, own.nitems = builder.gep(whole.data, [begin]), length
        own.shape = builder.insert_value(whole.shape, length, 0)
        return own._getvalue()

    return signature, generate


@intrinsic
def empty(typing_context, dtype, n):
    """Return ``numpy.empty(n, dtype)``."""
    signature = types.Array(dtype.dtype, 1, "C")(dtype, types.intp)

    def generate(context, builder, signature, args):
        return _allocated(context, builder, signature.return_type, args[1:])

    return signature, generate


@intrinsic
def empty_rows(typing_context, dtype, n, width):
    """Return ``numpy.empty((n, width), dtype)``."""
    signature = types.Array(dtype.dtype, 2, "C")(dtype, types.intp, types.intp)

    def generate(context, builder, signature, args):
        return _allocated(context, builder, signature.return_type, args[1:])

    return signature, generate


def _allocated(context: Any, builder: Any, kind: Any, shape: Any) -> Any:
    """Emit a new array of one row or several; where there is no memory, it raises an error."""
    itemsize = ir.Constant(shape[0].type, kind.dtype.bitwidth // 8)
    size: Any = itemsize
    strides: list[Any] = []
    for length in reversed(shape):
        strides.insert(0, size)
        size = builder.mul(size, length)
    meminfo = context.nrt.meminfo_alloc_aligned(builder, size=size, align=LINE)
    data = context.nrt.meminfo_data(builder, meminfo)
    array = context.make_array(kind)(context, builder)
    populate_array(
        array,
        data=builder.bitcast(data, context.get_data_type(kind.dtype).as_pointer()),
        shape=shape,
        strides=strides,
        itemsize=itemsize,
        meminfo=meminfo,
    )
    return array._getvalue()


class Arrays:
    """Arrays of one type, one behind the other.

    Parameters
    ----------
    dtype : dtype
    free, zeros, ones : sequence of int
        Lengths of arrays of any numbers, of those of zeros, and of those of ones, in this order.
    """

    def __init__(
        self, dtype: Any, free: Sequence[int], zeros: Sequence[int] = (), ones: Sequence[int] = ()
    ) -> None:
        self._dtype = np.dtype(dtype)
        lengths = [-(-n // _UNIT) * _UNIT for n in (*free, *zeros, *ones)]
        self.ends = [0, *accumulate(lengths)]
        self._zeros, self._ones = self.ends[len(free)], self.ends[len(free) + len(zeros)]

    def make(self) -> NDArray[Any]:
        """Make them all."""
        length = self.ends[-1]
        if self._dtype.kind == "i":  # they are never vectors
            return np.empty(length, self._dtype)
        raw = np.empty(length * self._dtype.itemsize + LINE, np.uint8)
        begin = -raw.__array_interface__["data"][0] % LINE
        whole: NDArray[Any] = np.ndarray(length, self._dtype, raw, begin)
        if self._zeros < self._ones:
            whole[self._zeros : self._ones] = 0
        if self._ones < length:
            whole[self._ones :] = 1
        return whole


class Room:
    """Arrays of several types.  Every thread needs its own."""

    def __init__(self, *kinds: Arrays) -> None:
        self._kinds = kinds
        self._ends = np.array([end for kind in kinds for end in kind.ends], np.int64)

    def units(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of units, for `run_units`, that has room made for another."""

        def run(counter: Any, n_units: int, *args: Any) -> None:
            own = [kind.make() for kind in self._kinds]
            function(counter, n_units, *own, self._ends, *args)

        return run
