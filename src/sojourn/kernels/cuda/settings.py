"""How the kernels run: module switches, which are set here and read where they are used.

`sojourn.kernels.cuda` shows `INTERPRETED` and `SUMS` too, for reading; to change one, set it here.
"""

from __future__ import annotations

import os

import torch

SUMS = "sorted"
"""How responsibilities are summed by symbol.  "sorted": steps of a symbol in a fixed order, the
same bits every time.  "atomic": in the order in which they are done, other last bits every time."""

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether kernels run on the CPU, by Triton's interpreter."""

BY_ROW = not INTERPRETED
"""Whether a warp adds what it sums row by row, in unrolled loops.  They take the interpreter long,
which adds in whole tiles instead; tests of small data have it add by row, too."""


def precision() -> str:
    """How Triton multiplies: as exactly as `torch.set_float32_matmul_precision` asks for."""
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"
