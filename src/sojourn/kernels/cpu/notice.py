"""Says in one line that kernels are compiled, the first time on a machine, and has it done soon."""

from __future__ import annotations

import gc
import sys
from typing import Any

from numba.core import event

from sojourn.kernels.cpu import aside

_LINE = "sojourn: compiling for this processor, which takes some seconds; it is done once, and kept"


class _Notice(event.Listener):
    """Prints the line when the first of the package's functions is compiled, not loaded.

    While one is, nothing is collected as garbage: the many small objects that the compiler keeps
    would be gone through again and again, an eighth of the time.
    """

    def __init__(self) -> None:
        self.said = False
        self._depth = 0
        self._collects = False

    def on_start(self, event: Any) -> None:
        """Print the line, once a process, and say what is compiled."""
        dispatcher = event.data.get("dispatcher")
        module = getattr(getattr(dispatcher, "py_func", None), "__module__", None)
        is_own = (module or "").startswith("sojourn.")  # of code made at run time it is None
        if not (is_own or self._depth):
            return
        self._depth += 1
        if self._depth > 1:
            return
        self._collects = gc.isenabled()
        gc.disable()
        if not self.said:
            self.said = True
            print(_LINE, file=sys.stderr, flush=True)
        if "args" in event.data:
            aside.need(dispatcher, event.data["args"])

    def on_end(self, event: Any) -> None:
        """Collect garbage again."""
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and self._collects:
            self._collects = False
            gc.enable()


notice = _Notice()
"""The listener; `said` can be set to keep it quiet."""

event.register("numba:compile", notice)
