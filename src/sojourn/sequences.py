"""Ragged data in one container.

`Sequences` has Arrow's list layout: the steps of all sequences concatenated in ``values``, and
``offsets`` where each begins.  All other modules use data in this form only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from numbers import Number
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.kernels.ragged import checked_offsets, flat_steps
from sojourn.labels import Labels


class Sequences:
    """Sequences of different lengths, concatenated.

    Parameters
    ----------
    values : (T, ...) array
        The steps of all sequences, in order.
    offsets : (N + 1,) integer array
        Sequence n is ``values[offsets[n]:offsets[n + 1]]``; ``offsets[0]`` is 0 and the last
        offset is T.
    counted : (N, 4) integer array, optional
        For tiles of longer sequences: the first step of each that counts, the first after it that
        does not, and how many steps its sequence has before all of these and after.  The steps
        around the tile are buffers, from which the states at its edges are estimated; a tile that
        does not begin its sequence has a step before it at least.  None if everything counts.
    labels : Labels, optional
        What is known about the states of steps.
    weights : (N,) array, optional
        What each sequence counts for; None for one.

    Examples
    --------
    >>> data = Sequences.from_list([[3, 1, 4], [1, 5]])
    >>> len(data), data.n_steps
    (2, 5)
    >>> data[1]
    array([1, 5])
    >>> data[1:].lengths
    array([2])
    """

    __slots__ = ("counted", "labels", "offsets", "values", "weights")

    def __init__(
        self,
        values: ArrayLike,
        offsets: ArrayLike,
        counted: NDArray[np.int64] | None = None,
        labels: Labels | None = None,
        weights: NDArray[np.float64] | None = None,
    ) -> None:
        self.values: NDArray[Any] = np.asarray(values)
        self.counted, self.labels, self.weights = counted, labels, weights
        if self.values.ndim == 0:
            raise ValueError("values must be an array of steps, not a single value")
        self.offsets: NDArray[np.int64] = checked_offsets(offsets, len(self.values))

    @classmethod
    def _sound(
        cls,
        values: NDArray[Any],
        offsets: NDArray[np.int64],
        counted: NDArray[np.int64] | None = None,
        labels: Labels | None = None,
        weights: NDArray[np.float64] | None = None,
    ) -> Sequences:
        """Make sequences without checks, from parts of other sequences."""
        sequences = object.__new__(cls)
        sequences.values, sequences.offsets, sequences.counted = values, offsets, counted
        sequences.labels, sequences.weights = labels, weights
        return sequences

    @classmethod
    def from_lengths(cls, values: ArrayLike, lengths: ArrayLike | None = None) -> Sequences:
        """Make sequences from concatenated steps and the length of each sequence, as in hmmlearn.

        Parameters
        ----------
        values : (T, ...) array
            The steps of all sequences.
        lengths : (N,) integer array, optional
            Their lengths, which add up to T.  None for one sequence.

        Examples
        --------
        >>> Sequences.from_lengths([3, 1, 4, 1, 5], [3, 2])[0]
        array([3, 1, 4])
        """
        values = as_array(values)
        if lengths is None:
            return cls(values, [0, len(values)])
        lengths = np.asarray(lengths)
        if lengths.ndim != 1 or (len(lengths) and not np.issubdtype(lengths.dtype, np.integer)):
            raise ValueError("lengths must be a one-dimensional array of integers")
        if (lengths < 0).any():
            at = int(np.flatnonzero(lengths < 0)[0])
            raise ValueError(f"sequence {at} has the negative length {lengths[at]}")
        # Python's integers do not overflow, but many take long to add.
        is_small = lengths.sum(dtype=np.float64) < 2.0**62
        total = int(lengths.sum()) if is_small else sum(lengths.tolist())
        if total != len(values):
            raise ValueError(f"lengths add up to {total}, but there are {len(values)} steps")
        return cls(values, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    @classmethod
    def from_list(cls, sequences: Iterable[ArrayLike]) -> Sequences:
        """Make sequences from a list of arrays or lists.

        Examples
        --------
        >>> Sequences.from_list([["a", "b"], ["c"]]).values
        array(['a', 'b', 'c'], dtype='<U1')
        """
        arrays = [_one_sequence(n, sequence) for n, sequence in enumerate(sequences)]
        filled = [n for n, array in enumerate(arrays) if len(array)]  # an empty list has no dtype
        if not filled:
            return cls(arrays[0] if arrays else np.empty(0), np.zeros(len(arrays) + 1, np.int64))
        first = filled[0]
        shape, kind = arrays[first].shape[1:], _kind(arrays[first])
        for n in filled:
            other_shape, other_kind = arrays[n].shape[1:], _kind(arrays[n])
            if other_shape != shape:
                raise ValueError(
                    f"sequence {n} has steps of shape {other_shape}, sequence {first} of {shape}"
                )
            if other_kind != kind:
                raise ValueError(f"sequence {n} holds {other_kind}, sequence {first} holds {kind}")
        offsets = np.concatenate([[0], np.cumsum([len(array) for array in arrays])])
        return cls(np.concatenate([arrays[n] for n in filled]), offsets.astype(np.int64))

    @classmethod
    def from_arrow(cls, array: Any) -> Sequences:
        """Make sequences from a PyArrow list array; numbers without nulls are not copied.

        Parameters
        ----------
        array : pyarrow.ListArray, LargeListArray or ChunkedArray of these
            One list per sequence.

        Examples
        --------
        >>> import pyarrow as pa
        >>> Sequences.from_arrow(pa.array([[3, 1, 4], [1, 5]])).lengths
        array([3, 2])
        """
        import pyarrow as pa

        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
        if not isinstance(array, pa.ListArray | pa.LargeListArray):
            got = getattr(array, "type", type(array).__name__)
            raise TypeError(f"expected a PyArrow list array, got {got}")
        if array.null_count:
            at = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
            raise ValueError(f"sequence {at} is null")
        check_arrow(array)
        offsets = array.offsets.to_numpy().astype(np.int64)
        steps = array.values.slice(offsets[0], offsets[-1] - offsets[0])
        offsets = offsets - offsets[0]
        if pa.types.is_nested(steps.type):
            raise TypeError(f"a step must be a number or a string, not {steps.type}")
        if steps.null_count:
            nulls = steps.is_null().to_numpy(zero_copy_only=False)
            raise ValueError(f"{position(int(np.flatnonzero(nulls)[0]), offsets)}: null")
        is_number = pa.types.is_integer(steps.type) or pa.types.is_floating(steps.type)
        return cls(steps.to_numpy(zero_copy_only=is_number), offsets)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of each sequence, shape (N,)."""
        return np.diff(self.offsets)

    @property
    def n_steps(self) -> int:
        """Total number of steps."""
        return len(self.values)

    @property
    def n_counted(self) -> int:
        """Number of steps that count: all, but for tiles."""
        return self.n_steps if self.counted is None else int(self.counted_lengths.sum())

    @property
    def counted_lengths(self) -> NDArray[np.int64]:
        """Number of steps of each sequence that count."""
        return self.lengths if self.counted is None else self.counted[:, 1] - self.counted[:, 0]

    @property
    def n_starts(self) -> int:
        """Number of sequences that begin here: all, but for tiles."""
        return len(self) if self.counted is None else int((self.counted[:, 0] == 0).sum())

    @property
    def counted_steps(self) -> NDArray[np.int64] | slice:
        """Flat positions of the steps that count."""
        if self.counted is None:
            return slice(None)
        return flat_steps(self.offsets[:-1] + self.counted[:, 0], self.counted_lengths)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, key: int) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, key: slice) -> Sequences: ...
    def __getitem__(self, key: int | slice) -> NDArray[Any] | Sequences:
        """Sequence n as an array, or a run of sequences; both are views of ``values``."""
        if isinstance(key, slice):
            begin, end, stride = key.indices(len(self))
            if stride != 1:
                raise ValueError("a slice of sequences must have step 1; use take() otherwise")
            offsets = self.offsets[begin : max(begin, end) + 1]
            own, steps = slice(begin, max(begin, end)), slice(offsets[0], offsets[-1])
            return Sequences._sound(
                self.values[steps],
                offsets - offsets[0],
                None if self.counted is None else self.counted[own],
                None if self.labels is None else self.labels[steps],
                None if self.weights is None else self.weights[own],
            )
        n = key + len(self) if key < 0 else key
        if not 0 <= n < len(self):
            raise IndexError(f"sequence {key} of {len(self)}")
        return self.values[self.offsets[n] : self.offsets[n + 1]]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[n] for n in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the steps of all sequences, one after another: hmmlearn's ``X``.

        Examples
        --------
        >>> np.asarray(Sequences.from_list([[1, 2], [3]]))
        array([1, 2, 3])
        """
        found = self.values if dtype is None else self.values.astype(dtype, copy=bool(copy))
        return found.copy() if copy and found is self.values else found

    def take(self, indices: ArrayLike) -> Sequences:
        """Return the sequences with the given indices, in that order, in a new container.

        Examples
        --------
        >>> Sequences.from_list([[3, 1, 4], [1, 5]]).take([1, 0]).values
        array([1, 5, 3, 1, 4])
        """
        indices = np.asarray(indices)
        if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
            raise IndexError("take needs a one-dimensional array of integers")
        indices = indices.astype(np.int64)
        # Not with `lengths`, which would visit all sequences for every minibatch.
        begins = self.offsets[:-1][indices]
        counted = None if self.counted is None else self.counted[indices]
        taken = self.spans(begins, self.offsets[1:][indices] - begins, counted)
        if self.weights is not None:
            taken.weights = self.weights[indices]
        return taken

    def spans(
        self,
        begins: NDArray[np.int64],
        lengths: NDArray[np.int64],
        counted: NDArray[np.int64] | None = None,
    ) -> Sequences:
        """Return runs of steps, each as a sequence of its own, in a new container.

        Parameters
        ----------
        begins, lengths : (M,) integer arrays
            Flat positions of the first steps, and the lengths.
        counted : (M, 4) integer array, optional
            Which of them count.

        Examples
        --------
        >>> data = Sequences.from_list([[3, 1, 4, 1, 5]])
        >>> data.spans(np.array([1, 0]), np.array([3, 2])).values
        array([1, 4, 1, 3, 1])
        """
        offsets = np.zeros(len(begins) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        found = Sequences._sound(_runs(self.values, begins, lengths, offsets), offsets, counted)
        if self.labels is not None:
            codes = _runs(self.labels.codes, begins, lengths, offsets)
            found.labels = Labels(codes, self.labels.table)
        if self.weights is not None:
            found.weights = self.weights[np.searchsorted(self.offsets, begins, side="right") - 1]
        return found

    def chunks(self, max_steps: int) -> Iterator[Sequences]:
        """Cut into runs of complete sequences with at most `max_steps` steps, or one sequence each.

        Examples
        --------
        >>> data = Sequences.from_list([[1, 2], [3], [4, 5, 6, 7]])
        >>> [chunk.n_steps for chunk in data.chunks(3)]
        [3, 4]
        """
        if self.n_steps <= max_steps and len(self):
            yield self
            return
        begin = 0
        while begin < len(self):
            limit = self.offsets[begin] + max_steps
            end = int(np.searchsorted(self.offsets, limit, side="right")) - 1
            end = min(max(end, begin + 1), len(self))
            yield self[begin:end]
            begin = end

    def with_values(self, values: ArrayLike) -> Sequences:
        """Return the same sequences with other values, one for each step."""
        return Sequences(values, self.offsets, self.counted, self.labels, self.weights)

    def with_known(
        self, labels: Labels | None = None, weights: NDArray[np.float64] | None = None
    ) -> Sequences:
        """Return the same sequences with these labels and weights."""
        return Sequences._sound(self.values, self.offsets, self.counted, labels, weights)

    def with_offsets(self, offsets: NDArray[np.int64]) -> Sequences:
        """Return the same steps, cut at other places into sequences that all count."""
        weights = self.weights
        if weights is not None:
            weights = weights[np.searchsorted(self.offsets, offsets[:-1], side="right") - 1]
        return Sequences(self.values, offsets, None, self.labels, weights)

    def check(self) -> Sequences:
        """Return itself, or raise an error if there are no sequences or empty ones."""
        if len(self) == 0:
            raise ValueError("there is no data: not one sequence")
        empty = np.flatnonzero(self.lengths == 0)
        if len(empty):
            raise ValueError(f"sequence {empty[0]} is empty ({len(empty)} empty in all)")
        return self

    def __repr__(self) -> str:
        return (
            f"Sequences({len(self)} sequences, {self.n_steps} steps, "
            f"{self.values.dtype} of shape {self.values.shape})"
        )


def check_arrow(array: Any) -> None:
    """Check the buffers of a PyArrow array or batch: those of a file may point anywhere."""
    import pyarrow as pa

    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise ValueError(f"the lists are damaged: {error}") from error


def position(step: int, offsets: NDArray[np.int64]) -> str:
    """Describe a flat position by sequence and position in it.

    Examples
    --------
    >>> position(4, np.array([0, 3, 5]))
    'sequence 1, position 1'
    """
    n = int(np.searchsorted(offsets, step, side="right")) - 1
    return f"sequence {n}, position {step - offsets[n]}"


def as_array(data: Any) -> NDArray[Any]:
    """Return data as an array of numbers or strings."""
    try:
        array = np.asarray(data)
    except ValueError:
        raise ValueError(
            "steps have different shapes: pass flat steps with lengths, or a list of sequences"
        ) from None
    if array.ndim == 0:
        raise TypeError(f"expected sequences, got {type(data).__name__}")
    refuse_dtype(array.dtype)
    if array.dtype.kind == "U" and not hasattr(data, "__array__"):
        objects = np.asarray(data, dtype=object)
        if not all(isinstance(item, str) for item in objects.flat):
            return objects  # NumPy would convert numbers among strings to strings
    return array


def refuse_dtype(dtype: np.dtype[Any]) -> None:
    """Refuse what is neither a number nor a string, before NumPy converts or fails to."""
    if dtype.kind == "c":
        raise ValueError("Complex data not supported: pass real and imaginary parts as columns")
    if dtype.kind not in "biufUTO":
        raise TypeError(f"the data must be numbers or strings, got {dtype}: convert them first")


def _one_sequence(n: int, sequence: ArrayLike) -> NDArray[Any]:
    if isinstance(sequence, str | bytes):
        raise TypeError(f"sequence {n} is the string {sequence[:40]!r}: split it into symbols")
    try:
        array = np.asarray(sequence)
    except ValueError:
        raise ValueError(f"sequence {n} has steps of different shapes") from None
    if array.ndim == 0:
        raise TypeError(f"sequence {n} is a single value, not a sequence")
    refuse_dtype(array.dtype)
    if array.dtype.kind == "U" and not all(isinstance(item, str) for item in sequence):  # type: ignore[union-attr]
        odd = next(i for i, item in enumerate(sequence) if not isinstance(item, str))  # type: ignore[arg-type]
        raise ValueError(f"sequence {n}, position {odd}: a number among strings")
    found = odd_object(array)
    if found is not None:
        raise ValueError(f"sequence {n}, position {found[0]}: {found[1]}")
    return array


def _kind(array: NDArray[Any]) -> str:
    return "strings" if array.dtype.kind in "UTO" else "numbers"


def _runs(
    values: NDArray[Any],
    begins: NDArray[np.int64],
    lengths: NDArray[np.int64],
    offsets: NDArray[np.int64],
) -> NDArray[Any]:
    """Return the runs of some values one after another."""
    if values.ndim == 1 and values.flags.c_contiguous and _is_compiled(values.dtype):
        from sojourn.kernels.cpu.symbols import take_ragged  # compiled, so loaded on first use

        taken: NDArray[Any] = take_ragged(values, begins, offsets)
        return taken
    return values[flat_steps(begins, lengths)]


def _is_compiled(dtype: np.dtype[Any]) -> bool:
    """Whether numba supports the dtype: no half or extended precision, native byte order."""
    return dtype.isnative and (dtype.kind == "i" or dtype in (np.float32, np.float64))


def odd_object(values: NDArray[Any]) -> tuple[int, str] | None:
    """Find an object that is not a string: its position, and what is wrong with it."""
    if values.dtype != object:
        return None
    for allowed, problem in (
        (str | Number, "is neither a number nor a string"),
        (str, "is a number among objects, which may only be strings"),
    ):
        for step, item in enumerate(values):
            if not isinstance(item, allowed):
                return step, f"{item!r} {problem}"
    return None
