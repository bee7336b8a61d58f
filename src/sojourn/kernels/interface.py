"""What a kernel is: its functions, and what they take and give back."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Integers = NDArray[np.integer]


PAD = 8
"""Kernels compute with the number of states rounded up to a multiple of this."""


def padded_states(n_states: int) -> int:
    """Round up to a multiple of `PAD`.

    Examples
    --------
    >>> padded_states(45)
    48
    """
    return -(-n_states // PAD) * PAD


LINE = 64
"""Bytes that memory gives at a time."""


def aligned(shape: tuple[int, int], dtype: Any, *, zeros: bool = False) -> Floats:
    """Return a new matrix that begins where a line of memory does, of zeros or not initialised.

    Rows picked at random then need as few lines as possible: one of 48 floats needs 3, not 4.

    Examples
    --------
    >>> aligned((2, 3), "float32", zeros=True)
    array([[0., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    """
    n_bytes = shape[0] * shape[1] * np.dtype(dtype).itemsize
    raw = (np.zeros if zeros else np.empty)(n_bytes + LINE, np.uint8)
    begin = -raw.__array_interface__["data"][0] % LINE
    return np.ndarray(shape, dtype, raw, begin)


NARROW = 16
"""Number of states up to which rows need no padding on the CPU."""


SQUARE_EVERY = 8
"""Steps of which one has the sums of q² of improbable events, where estimates are enough."""


def row_width(n_states: int) -> int:
    """Return the numbers of a row of emission potentials that spares the CPU's kernel a copy.

    Examples
    --------
    >>> row_width(3), row_width(45)
    (3, 48)
    """
    return n_states if n_states <= NARROW else padded_states(n_states)


class DurationPotentials(NamedTuple):
    """The factors of q(z) within states that last; see `sojourn.kernels.durations`.

    Attributes
    ----------
    entry : (K, J) array
        Potential of beginning state k at its copy j.
    stay, advance : (K,) arrays
        Potential of staying in a copy, and of going on to the next one or, after the last, to
        another state.
    """

    entry: Floats
    stay: Floats
    advance: Floats


class DurationCounts(NamedTuple):
    """Expected counts within states that last, of a batch.

    Attributes
    ----------
    entries : (K, J) array
        How often state k begins at its copy j, at the start of a sequence too.
    stays, advances : (K,) arrays
        How often a copy of state k is followed by itself, and by the next copy or another state.
    """

    entries: Floats
    stays: Floats
    advances: Floats


class CopyEdges(NamedTuple):
    """What lies around sequences that are parts of longer ones, where states last.

    Attributes
    ----------
    inner : (N,) boolean array
        Whether a sequence begins inside a longer one, so that its first step begins nothing.
    before : (N, K, J) array
        Potentials of the copies at the first step of these; they stand in place of start and entry.
    after : (N, K, J) array
        Factors of the copies at the last step: ones where nothing comes after it.
    """

    inner: NDArray[np.bool_]
    before: Floats
    after: Floats


class CountRows(NamedTuple):
    """Emission potentials to be computed: row u is ``(prior + scale * table[rows[u]]) * factor``.

    A kernel that reads them from the counts spares a table of their own: it comes to a row of
    either from far, and has little else to do with it.

    Attributes
    ----------
    table : (S, W) array
        Counts, W being `padded_states` of K; its dtype is the precision of the computation.
    rows : (U,) int32 array
        Which rows; empty for all.
    prior : (1 or U, 1) array
        Prior count of all, or of each of these rows.
    scale : float
    factor : (W,) array
        Zero beyond column K.
    """

    table: Floats
    rows: Integers
    prior: Floats
    scale: float
    factor: Floats

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the computation."""
        return self.table.dtype


class Potentials(NamedTuple):
    """The factors of q(z) for a batch: non-negative, rows need not sum to one.

    The emission potential of a step is a row of a table, so that symbols share rows: the step at
    flat position ``i`` has the potential ``exp(log_scale[index[i]]) * emissions[index[i]]``.

    Attributes
    ----------
    start : (K,) array
        Potential of the first state.
    transitions : (K, K) array
        ``transitions[k, l]`` is the potential of going from state k to state l.
    emissions : (U, K) array, or (U, padded_states(K)) with zeros beyond column K
        Table of emission potentials; its dtype is the precision of the computation.  The padded
        form spares a kernel a copy.  Or what it is to be computed from: `CountRows` for
        `forward_backward` of a kernel that `reads_counts`, and another kind on a GPU.
    log_scale : (U,) array or None
        Logarithm of the factor taken out of each row of the table, None for none.
    durations : DurationPotentials or None
        Given where states last; then `transitions` has a zero diagonal.
    edges : CopyEdges or None
        Given where states last and sequences are parts of longer ones.
    """

    start: Floats
    transitions: Floats
    emissions: Floats
    log_scale: Floats | None = None
    durations: DurationPotentials | None = None
    edges: CopyEdges | None = None


class Squares(NamedTuple):
    """Sums of squared probabilities over a batch, eqs (4), (6) and (19).

    With the sums of the probabilities themselves they say how certain the events are: a sum of q²
    equals that of q if every event is certain, and is far below it if all are improbable.

    Attributes
    ----------
    start : (K,) array
        ``Σ_n q(z_1=k)²``.
    pairs : (K, K) array
        ``Σ_n Σ_t q(z_{t−1}=k, z_t=l)²``.
    rows : (K,) array
        ``Σ_n Σ_t q(z_{t−1}=k)²``; where states last, ``Σ_n Σ_t q(k is left after t−1)²``.
    """

    start: Floats
    pairs: Floats
    rows: Floats


class Smoothed(NamedTuple):
    """Posterior expectations of a batch under its potentials.

    Attributes
    ----------
    log_normalizers : (N,) float64 array
        log Z of each sequence; its log likelihood when the potentials are probabilities.
    start : (K,) float64 array
        ``Σ_n q(z_1 = k)``.
    transitions : (K, K) float64 array
        ``Σ_n Σ_t q(z_{t−1} = k, z_t = l)``.
    responsibilities : (T, K) array
        ``q(z_t = k)`` for every step of the flat batch.
    squares : Squares or None
        Present when asked for.
    durations : DurationCounts or None
        Present where states last; then `transitions` are those between different states.
    ends : (2, N, K, J) array or None
        Probabilities of the copies at the first and the last step of every sequence; present where
        edges were given.
    row_sums : (U, K) array, StrandSums of the CPU's kernel, or None
        Responsibilities summed by row of the emission table, where they were asked for so and the
        kernel summed them; then there are no `responsibilities`, shape (0, K).
    """

    log_normalizers: Floats
    start: Floats
    transitions: Floats
    responsibilities: Floats
    squares: Squares | None
    durations: DurationCounts | None = None
    ends: Floats | None = None
    row_sums: Any = None


class Kernel(Protocol):
    """The functions of a kernel: a module, or an object, that has all of them.

    `sojourn.kernels.reference`, `sojourn.kernels.cpu`, `sojourn.kernels.cuda` and
    `sojourn.kernels.cuda.PaddedKernel` are kernels.  Arrays are NumPy's, or PyTorch's where the
    kernel is that of a GPU; no function changes its arguments.
    """

    reads_counts: bool
    """Whether `forward_backward` takes emission potentials as `CountRows`."""

    def forward_backward(
        self,
        potentials: Potentials,
        index: Any,
        offsets: Any,
        *,
        squares: int = False,
        summed: bool = False,
        order: Any = None,
        n_threads: int = 1,
    ) -> Smoothed:
        """Compute posterior expectations of every sequence.

        Parameters
        ----------
        potentials : Potentials
            The factors of q(z).
        index : (T,) integer array
            Row of the emission table for each step of the flat batch.
        offsets : (N + 1,) integer array
            Sequence n is the steps ``offsets[n]:offsets[n + 1]``; none is empty.
        squares : int
            Whether to collect the sums of q² of eqs (4), (6) and (19).  With more than one, those
            of improbable events may be estimates, from one step in `SQUARE_EVERY`.
        summed : bool
            Whether responsibilities are needed summed by row of the emission table alone: a kernel
            may then give `Smoothed.row_sums` in their place.
        order : (N,) integer array, optional
            The sequences, longest first, if the caller knows that order.
        n_threads : int
            Threads that the CPU may use; the number does not change a bit.
        """

    def log_normalizers(
        self, potentials: Potentials, index: Any, offsets: Any, *, n_threads: int = 1
    ) -> Any:
        """Compute log Z of every sequence, (N,) in float64; arguments as above."""

    def viterbi(
        self, potentials: Potentials, index: Any, offsets: Any, *, n_threads: int = 1
    ) -> tuple[Any, Any]:
        """Find the best path of every sequence; ties go to the lower state.

        Returns
        -------
        log_potential : (N,) float64 array
            Log of the product of potentials along the best path.
        path : (T,) int32 array
            The states, flat.
        """

    def last_scores(
        self, potentials: Potentials, index: Any, offsets: Any, *, n_threads: int = 1
    ) -> Any:
        """Return the score of the best path to each state of the last step of sequences, (N, K).

        Those of a sequence are known up to a number that all of them share.
        """

    def log_potential(self, smoothed: Smoothed, potentials: Potentials, index: Any) -> Any:
        """E_q of the logarithm of the product of potentials along the path."""

    def transition_potentials(
        self, prior: tuple[Any, Any], total: Any, counts: tuple[Any, Any], dtype: Any
    ) -> tuple[Any, Any]:
        """Return prior counts plus expected counts of start and transitions, normalised, eq (1).

        Parameters
        ----------
        prior, counts : pairs of arrays, (K,) and (K, K)
            Of the start and of the transitions; those of the prior may be one row for all, (K,).
        total : number, pair of numbers, or None
            What rows are normalised by in addition to their counts, the start by another number
            than the others if it is a pair; None to normalise by the sums of prior and counts.
        dtype : dtype
            Of the result; sums and quotients are in the precision of the counts.
        """

    def blend_counts(
        self, counts: tuple[Any, Any], sums: tuple[Any, Any], keep: Any, weight: Any
    ) -> tuple[Any, Any]:
        """Return ``keep * counts + weight * sums`` for start and transitions, eq (3)."""

    def state_masses(self, start: Any, transitions: Any) -> Any:
        """Return how many steps are expected in each state: those that start there or go there."""
