"""The kernel on a GPU, in Triton, on PyTorch tensors; loaded only where it is asked for.

The functions of `sojourn.kernels.interface.Kernel`, with tensors for arrays, and what families and
backends need beside them on a device.  Host and device side of a subject lie side by side: in one
module, or in ``x.py`` and ``x_triton.py`` where Triton's code is long.

With ``TRITON_INTERPRET=1`` the same code runs on the CPU, slowly, for tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.kernels.cuda import settings
from sojourn.kernels.cuda.decoding import last_scores, viterbi
from sojourn.kernels.cuda.launch import begin, compile_gammas, compiled_together
from sojourn.kernels.cuda.minibatches import (
    Minibatch,
    RowBatch,
    SortedSteps,
    addresses,
    find_segments,
    gather_sequences,
    load_minibatch,
    load_rows,
)
from sojourn.kernels.cuda.padded import PaddedKernel
from sojourn.kernels.cuda.potentials import AffineTable, log_potential, plain
from sojourn.kernels.cuda.recursions import forward_backward, is_narrow, log_normalizers
from sojourn.kernels.cuda.symbols import (
    Pieces,
    Segments,
    add_pieces,
    add_rows,
    means_of_symbols,
    most_spans,
    sum_by_symbol,
    sum_columns,
    sum_of_pieces,
    sum_pieces,
)
from sojourn.kernels.cuda.updates import (
    LogNormalizers,
    as_rates,
    blend_counts,
    blended_into,
    collect_failures,
    decay,
    row_potentials,
    state_masses,
    transition_potentials,
)

if TYPE_CHECKING:
    from sojourn.kernels.cuda.settings import INTERPRETED, SUMS
else:

    def __getattr__(name: str) -> Any:
        """Show the switches as they are now; they are set in `settings`."""
        if name in ("INTERPRETED", "SUMS"):
            return getattr(settings, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


reads_counts = False  # it has a kind of its own: `AffineTable`

__all__ = [
    "INTERPRETED",
    "SUMS",
    "AffineTable",
    "LogNormalizers",
    "Minibatch",
    "PaddedKernel",
    "Pieces",
    "RowBatch",
    "Segments",
    "SortedSteps",
    "add_pieces",
    "add_rows",
    "addresses",
    "as_rates",
    "begin",
    "blend_counts",
    "blended_into",
    "collect_failures",
    "compile_gammas",
    "compiled_together",
    "decay",
    "find_segments",
    "forward_backward",
    "gather_sequences",
    "is_narrow",
    "last_scores",
    "load_minibatch",
    "load_rows",
    "log_normalizers",
    "log_potential",
    "means_of_symbols",
    "most_spans",
    "plain",
    "reads_counts",
    "row_potentials",
    "settings",
    "state_masses",
    "sum_by_symbol",
    "sum_columns",
    "sum_of_pieces",
    "sum_pieces",
    "transition_potentials",
    "viterbi",
]
