"""The decorator of compiled functions that only compiled functions call."""

from __future__ import annotations

from typing import Any

from numba import njit

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}

inner = njit(**_OPTIONS)
"""Without the forms that Python and C would call, which take a tenth of the time to compile.

Python must not call such a function: it would crash.
"""
