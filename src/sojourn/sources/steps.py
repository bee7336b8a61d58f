"""Files of which runs of steps are read, without the sequences that they belong to."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.labels import Labels
from sojourn.sequences import Sequences
from sojourn.sources.base import DataFileError, Source, reading
from sojourn.sources.npy import NpySource, NpyValues

Validate = Callable[[Sequences], Sequences]


class FileSteps:
    """Sequences in a ``.npy`` file, of which runs of steps are read.

    Parameters
    ----------
    source : NpySource
    validate : callable, optional
        Converts sequences to the form that the model expects.
    folder : path, optional
        Where the file is, if it is to be deleted after use.

    Attributes
    ----------
    is_temporary : bool
        Whether it is deleted after use, and thus this process's own.
    known : Sequences, optional
        The same sequences with nothing for values: their labels, a mapped file, and weights.
    """

    def __init__(
        self,
        source: NpySource,
        validate: Validate | None = None,
        folder: str | None = None,
        known: Sequences | None = None,
    ) -> None:
        self.source = source
        self.validate = validate
        self.is_temporary = folder is not None
        self.known = known
        if folder is not None:
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each sequence begins, and the total number of steps."""
        return np.array(self.source.offsets, dtype=np.int64)

    @cached_property
    def _values(self) -> NpyValues:
        return NpyValues(self.source.paths[0])

    def spans(
        self,
        begins: NDArray[np.int64],
        lengths: NDArray[np.int64],
        counted: NDArray[np.int64] | None = None,
    ) -> Sequences:
        """Read runs of steps, each as a sequence of its own."""
        self.source.check_unchanged()
        with reading(self.source.name):
            values = self._values.read(begins, lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        known = None if self.known is None else self.known.spans(begins, lengths)
        sequences = Sequences(values, offsets, counted)
        if known is not None:
            sequences = sequences.with_known(known.labels, known.weights)
        if self.validate is None:
            return sequences
        try:
            return self.validate(sequences)
        except (ValueError, TypeError):
            self._find_error(sequences, begins)
            raise

    def _find_error(self, sequences: Sequences, begins: NDArray[np.int64]) -> None:
        """Raise an error that says where in the file it is."""
        assert self.validate is not None
        for n, begin in enumerate(begins):
            of = int(np.searchsorted(self.offsets, begin, side="right")) - 1
            where = f"{self.source.name}, from step {begin - self.offsets[of]} of sequence {of}"
            with reading(where):
                self.validate(sequences[n : n + 1])


def file_steps(source: Source, validate: Validate) -> FileSteps:
    """Return a source as a file of steps; one that is none is converted once, into a temporary one.

    Parameters
    ----------
    source : Source
    validate : callable
        Converts sequences to the form that the model expects.
    """
    if isinstance(source, NpySource):
        return FileSteps(source, validate)
    folder = tempfile.mkdtemp(prefix="sojourn-")
    try:
        converted, known = _converted(source, validate, Path(folder) / "steps.npy")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return FileSteps(converted, None, folder, known)


def _converted(
    source: Source, validate: Validate, path: Path
) -> tuple[NpySource, Sequences | None]:
    """Write the validated steps of a source to a file, a part at a time, and their labels."""
    ends, n_steps, summary = [0], 0, source.summary
    dtype: Any = None
    codes, weights = path.with_suffix(".codes"), list[float]()
    table: NDArray[np.float64] | None = None
    with path.open("wb") as file, codes.open("wb") as labels:
        for block, goes_on in source.stretches():
            with reading(block.place):
                own = validate(block.sequences)
            values = np.ascontiguousarray(own.values)
            if dtype is None:
                dtype = values.dtype
                header = {
                    "descr": np.lib.format.dtype_to_descr(dtype),
                    "fortran_order": False,
                    "shape": (summary.n_steps, *values.shape[1:]),
                }
                np.lib.format.write_array_header_1_0(file, header)
            values.astype(dtype, copy=False).tofile(file)
            if own.labels is not None:
                table = own.labels.table
                own.labels.codes.astype(np.int32, copy=False).tofile(labels)
            if own.weights is not None:
                weights.extend(own.weights[int(goes_on) :].tolist())
            if goes_on:
                ends.pop()
            ends.extend((n_steps + own.offsets[1:]).tolist())
            n_steps += own.n_steps
    if n_steps != summary.n_steps:
        raise DataFileError(f"{source.name} has {n_steps} steps, and had {summary.n_steps} before")
    offsets = np.array(ends, dtype=np.int64)
    np.save(path.with_suffix(".offsets.npy"), offsets)
    if table is None and not weights:
        return NpySource(path), None
    nothing = np.broadcast_to(np.int8(0), n_steps)
    found = None if table is None else Labels(np.memmap(codes, np.int32, "r"), table)
    own_weights = np.array(weights) if weights else None
    return NpySource(path), Sequences(nothing, offsets, None, found, own_weights)
