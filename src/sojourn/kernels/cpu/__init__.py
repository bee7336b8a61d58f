"""The kernel on the CPU, in numba: recursions on blocks of sequences, and sums over symbols.

`sojourn.kernels.interface.Kernel` declares the functions.
"""

from sojourn.kernels.cpu import notice  # noqa: F401  says when something is compiled
from sojourn.kernels.cpu.decoding import last_scores, viterbi
from sojourn.kernels.cpu.recursions import forward_backward, log_normalizers, sweep
from sojourn.kernels.updates import (
    blend_counts,
    log_potential,
    state_masses,
    transition_potentials,
)

reads_counts = True

__all__ = [
    "blend_counts",
    "forward_backward",
    "last_scores",
    "log_normalizers",
    "log_potential",
    "reads_counts",
    "state_masses",
    "sweep",
    "transition_potentials",
    "viterbi",
]
