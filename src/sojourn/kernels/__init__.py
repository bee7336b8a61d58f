"""Forward-backward and Viterbi: one signature, several implementations.

`reference` is NumPy in float64 and the log domain, written to be read.  `cpu` is numba on blocks
of sequences.  `cuda` is Triton on PyTorch tensors, and is loaded only where it is asked for.  All
offer the functions of `interface.Kernel`, with the arguments and results declared there.

Words: a *block* is a number of sequences that are worked on together; a *chunk*, some steps of a
block whose forward vectors are kept at a time; a *unit*, what a thread of the CPU takes at a time;
a *tile*, a part of a matrix; a *span*, steps that are summed together before the sums of spans are
added; *segments*, on a GPU, steps of a batch sorted into runs of equal symbols, which are cut into
*pieces*.
"""

from sojourn.kernels import cpu, reference
from sojourn.kernels.interface import Kernel, Potentials, Smoothed, Squares

__all__ = ["Kernel", "Potentials", "Smoothed", "Squares", "cpu", "reference"]
