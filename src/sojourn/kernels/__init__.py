"""Forward-backward and Viterbi: one signature, several implementations.

`reference` is NumPy in float64 and the log domain, written to be read.  `cpu` is numba on blocks
of sequences.  Both offer `forward_backward`, `log_normalizers` and `viterbi` with the arguments
and results declared in `interface`.
"""

from sojourn.kernels import cpu, reference
from sojourn.kernels.interface import Absences, Potentials, Smoothed

__all__ = ["Absences", "Potentials", "Smoothed", "cpu", "reference"]
