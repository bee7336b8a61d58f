"""Says in one line that kernels are compiled, the first time on a machine."""

from __future__ import annotations

import sys
from typing import Any

from numba.core import event

_LINE = "sojourn: compiling for this processor, which takes some seconds; it is done once, and kept"


class _Notice(event.Listener):
    """Prints the line when the first of the package's functions is compiled, not loaded."""

    def __init__(self) -> None:
        self.said = False

    def on_start(self, event: Any) -> None:
        """Print the line, once a process."""
        function = getattr(event.data.get("dispatcher"), "py_func", None)
        module = getattr(function, "__module__", None) or ""  # of code made at run time it is None
        if not self.said and module.startswith("sojourn."):
            self.said = True
            print(_LINE, file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        """Do nothing."""


notice = _Notice()
"""The listener; `said` can be set to keep it quiet."""

event.register("numba:compile", notice)
