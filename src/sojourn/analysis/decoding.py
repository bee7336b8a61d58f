"""The k best paths."""

from __future__ import annotations

import numpy as np

from sojourn.analysis.evidence import Evidence
from sojourn.kernels.cpu.filtering import best_paths
from sojourn.kernels.interface import Floats, Integers
from sojourn.sequences import Sequences

ALGORITHMS = ("viterbi", "map")


def check_algorithm(algorithm: str, k: int) -> None:
    """Raise an error if there is no such algorithm, or not for that many paths."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm={algorithm!r} is not one of {list(ALGORITHMS)}")
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k must be a whole number of at least 1, got {k!r}")
    if k > 1 and algorithm == "map":
        raise ValueError('k best paths are found by algorithm="viterbi" only')


def k_best(evidence: Evidence, data: Sequences, k: int) -> tuple[Floats, list[Integers]]:
    """Return log joint probabilities (N, k), and the paths of each sequence, (k, T_n) each.

    Where a sequence has fewer than k paths, the others have the probability zero and states −1.
    """
    scores, paths = [], []
    for chunk, potentials, index in evidence.chunks(data):
        found, flat = best_paths(potentials, index, chunk.offsets, k, n_threads=evidence.n_threads)
        scores.append(found)
        for begin, end in zip(chunk.offsets[:-1], chunk.offsets[1:], strict=True):
            paths.append(np.ascontiguousarray(flat[:, begin:end]))
    return np.concatenate(scores), paths
