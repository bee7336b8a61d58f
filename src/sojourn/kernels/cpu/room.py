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
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from sojourn.kernels.interface import LINE

_UNIT = 16  # numbers; every array begins at a multiple of it


@intrinsic
def part(typing_context, array, ends, number):
    """Return numbers ``ends[number]`` to ``ends[number + 1]`` of an array of `Arrays`.

    They are there as long as the array is.
    """
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
        address = builder.ptrtoint(whole.data, begin.type)
        address = builder.add(address, ir.Constant(begin.type, LINE - 1))
        address = builder.and_(address, ir.Constant(begin.type, -LINE))
        line = builder.inttoptr(address, whole.data.type)
        own.data, own.nitems = builder.gep(line, [begin]), length
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
    n, itemsize = (ir.Constant(shape[0].type, x) for x in (1, kind.dtype.bitwidth // 8))
    strides: list[Any] = []
    for length in reversed(shape):
        strides.insert(0, builder.mul(n, itemsize))
        n = builder.mul(n, length)
    size = builder.mul(n, itemsize)
    array = context.make_array(kind)(context, builder)  # with no parent
    array.meminfo = context.nrt.meminfo_alloc_aligned(builder, size=size, align=LINE)
    data = context.nrt.meminfo_data(builder, array.meminfo)
    array.data = builder.bitcast(data, array.data.type)
    array.itemsize, array.nitems = itemsize, n
    array.shape, array.strides = (cgutils.pack_array(builder, own) for own in (shape, strides))
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
        free, zeros, ones = ([-(-n // _UNIT) * _UNIT for n in part] for part in (free, zeros, ones))
        if zeros and ones:
            zeros[-1] += _UNIT  # for the line to begin in: see `make`
        self.ends = [0, *accumulate((*free, *zeros, *ones))]
        n_free, n_ones = sum(free), sum(ones)
        self._length = self.ends[-1] + _UNIT
        self._zeros = slice(n_free, self._length - n_ones) if zeros else None
        self._ones = slice(self.ends[-1] - n_ones, None) if ones else None

    def make(self) -> NDArray[Any]:
        """Make them all.  They begin with a line of memory, which is found by `part`.

        It begins within the first unit.  To ask where would take longer here than all the rest.
        """
        whole = np.empty(self._length, self._dtype)
        if self._zeros is not None:
            whole[self._zeros] = 0
        if self._ones is not None:
            whole[self._ones] = 1
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
