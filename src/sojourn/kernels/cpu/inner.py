"""The decorator of compiled functions that only compiled functions call."""

from __future__ import annotations

from typing import Any

from numba import njit

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,  # see below
}

inner = njit(**_OPTIONS)
"""Without the forms that Python and C would call, which take a tenth of the time to compile.

Python must not call such a function: it would crash.

Nor does such a function count references to arrays: an atomic addition at every call and every
branch that assigns an array took two fifths of the time of Gaussian densities with two states.  It
must therefore neither allocate an array nor return one; what is passed in is kept by its caller.
"""

inlined = njit(**_OPTIONS, forceinline=True)
"""The same for functions called for every few numbers: passing their arguments takes long."""
