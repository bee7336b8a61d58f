"""The decorators of compiled functions: of large ones, of loops, and of their parts.

They leave out what numba does for functions of any kind, and these have no use for.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import njit

TESTED = ("0.68.",)
"""Versions of numba that compile as `compilers` says; any other compiles as it does by itself.

That takes half as long again, and gives the same bits.  But what `compilers` and `passes` replace
is private to numba, and may fail in another version or compile to something else.  To add a
version, install it, add it here, and run all tests.
"""

_CALLED: dict[str, Any] = {"nogil": True, "cache": True, "no_cfunc_wrapper": True}
_BARE: dict[str, Any] = {"_nrt": False, "error_model": "numpy"}  # see below
_WHOLE, _LOOP = dict(_CALLED), dict(_CALLED)
_PART: dict[str, Any] = {
    **_BARE,
    "nogil": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
if numba.__version__.startswith(TESTED):
    from sojourn.kernels.cpu.compilers import Compiler, LoopCompiler, PartCompiler

    _WHOLE["pipeline_class"] = Compiler
    _LOOP["pipeline_class"] = LoopCompiler
    _PART["pipeline_class"] = PartCompiler

outer = njit(**_WHOLE)
"""For large functions of vectors that Python calls, which take seconds to compile.

Not for loops over single numbers, which are faster unrolled: numbering symbols took 1.9 times as
long, products of regressions 1.1 times, and initial clusters up to a quarter of a short fit more.
"""

bare = njit(**_WHOLE, **_BARE)
"""As `outer`, for functions that allocate nothing: see `room`.

No references are counted in them either, which is an eighth of the time that `strip_units` took.
"""

loops = njit(**_LOOP)
"""For loops over single numbers that Python calls: optimised as by numba itself, but once.

On an AMD EPYC these take a tenth to a third less time to compile.  Some loops become slower, those
of `clusters` by up to two thirds: these and their like are left to numba.
"""

inner = njit(**_PART)
"""Without the forms that Python and C would call, and optimised only with what calls it.

Python must not call such a function: it would crash.

Nor does such a function count references to arrays: an atomic addition at every call and every
branch that assigns an array took two fifths of the time of Gaussian densities with two states.  It
must therefore neither allocate an array nor return one; what is passed in is kept by its caller.
"""

inlined = njit(**_PART, forceinline=True)
"""The same for functions called for every few numbers: passing their arguments takes long."""
