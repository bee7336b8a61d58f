"""NumPy files, mapped into memory, with offsets in a separate file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sojourn.kernels.ragged import checked_offsets
from sojourn.sequences import Sequences
from sojourn.sources.base import (
    PIECE_SEQUENCES,
    PIECE_STEPS,
    Block,
    DataFileError,
    Reader,
    Source,
    Summary,
    reading,
    scan,
)

_LONG = 512  # steps of a part of a long sequence in a sample


class NpySource(Source):
    """Steps of all sequences in one ``.npy`` file, and offsets in another.

    Parameters
    ----------
    path : Path
        Array of shape (T,) or (T, D).
    offsets : Path, optional
        Array of N + 1 integers: sequence n is ``values[offsets[n]:offsets[n + 1]]``.  By default
        ``x.offsets.npy`` next to ``x.npy``.
    sequence : False, optional
        All steps of the file are one sequence, and there are no offsets.
    """

    def __init__(
        self,
        path: Path,
        offsets: Path | None = None,
        *,
        sequence: Literal[False] | None = None,
    ) -> None:
        self._is_one = sequence is False
        if self._is_one:
            super().__init__([path])
            values = _mapped(path)
            if values.ndim == 0 or len(values) == 0:
                raise DataFileError(f"{path} has an array of shape {values.shape}: no steps")
            self.offsets = np.array([0, len(values)])
            self._size = 1
            return
        if offsets is None:
            offsets = path.with_suffix(".offsets.npy")
            if not offsets.exists():
                raise DataFileError(
                    f"{path} has no offsets next to it: {offsets.name} with the N + 1 positions "
                    "where sequences begin and end, or another file given as offsets=; with "
                    "sequence=False all steps are one sequence"
                )
        super().__init__([path, offsets])
        values = _mapped(path)
        self.offsets = _mapped(offsets)
        if values.ndim == 0:
            raise DataFileError(f"{path} has a single value, not an array of steps")
        with reading(f"{offsets}, for {path} with an array of shape {values.shape}"):
            checked_offsets(self.offsets, len(values))
        per_sequence = max(1, len(values) // max(1, len(self.offsets) - 1))
        self._size = max(1, min(PIECE_SEQUENCES // 4, PIECE_STEPS // per_sequence))

    def __reduce__(self) -> Any:
        """Pickle only how to open the files; another process opens them itself."""
        opener = partial(NpySource, sequence=False) if self._is_one else NpySource
        return opener, tuple(path.absolute() for path in self.paths)

    @cached_property
    def summary(self) -> Summary:
        """Sizes from the offsets; symbols from a pass over the file, a part at a time."""
        values, n_steps = NpyValues(self.paths[0]), int(self.offsets[-1])
        largest = None
        if values.dtype.kind in "iu" and not values.shape[1:]:
            parts = (values.slice(at, PIECE_STEPS) for at in range(0, n_steps, PIECE_STEPS))
            largest = max((int(part.max()) for part in parts), default=-1) + 1
        elif values.dtype.kind in "UTO":
            return scan(self)
        if len(self.offsets) == 1:
            raise DataFileError(f"{self.name}: there is no data: not one sequence")
        return Summary(len(self.offsets) - 1, n_steps, largest, None)

    def sample(self) -> list[Block]:
        """Return some blocks, or parts of long sequences, always the same."""
        n_steps = int(self.offsets[-1])
        if n_steps <= _LONG * (len(self.offsets) - 1) or n_steps <= PIECE_STEPS:
            return super().sample()
        rng, n = np.random.default_rng(0), PIECE_STEPS // _LONG
        begins = np.sort(rng.integers(n_steps, size=n))
        ends = np.array(self.offsets, dtype=np.int64)
        last = ends[np.searchsorted(ends, begins, side="right")]  # of the sequence
        lengths = np.minimum(last - begins, _LONG)
        with reading(self.name):
            values = NpyValues(self.paths[0]).read(begins, lengths)
        drawn = Sequences(values, np.concatenate([[0], np.cumsum(lengths)]))
        return [Block(drawn, f"{self.paths[0]}, parts of its sequences")]

    @property
    def n_blocks(self) -> int:
        """Number of runs of sequences."""
        return -(-(len(self.offsets) - 1) // self._size)

    def opened(self) -> Reader:
        """Map the file."""
        values = _mapped(self.paths[0])

        def read(block: int) -> Iterator[Block]:
            begin = block * self._size
            place = f"{self.paths[0]}, from sequence {begin}"
            offsets = np.array(self.offsets[begin : begin + self._size + 1], np.int64)
            with reading(place):
                # A copy, so that mapped pages do not accumulate in memory.
                steps = np.array(values[offsets[0] : offsets[-1]])
                sequences = Sequences(steps, offsets - offsets[0])
            yield Block(sequences, place)

        return read


class NpyValues:
    """The array of a ``.npy`` file, of which parts are read.

    They are read, not mapped: mapped pages count as memory of the process.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        mapped = _mapped(path)
        self.shape, self.dtype = mapped.shape, mapped.dtype
        self._begin = int(getattr(mapped, "offset", 0))
        self._row = int(mapped.dtype.itemsize * np.prod(mapped.shape[1:], dtype=np.int64))
        self._columns = None if mapped.flags.c_contiguous else mapped
        self._file = path.open("rb", buffering=0)

    def slice(self, begin: int, length: int) -> NDArray[Any]:
        """Return steps ``begin:begin + length``."""
        length = min(length, self.shape[0] - begin)
        return self.read(np.array([begin]), np.array([length]))

    def read(self, begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[Any]:
        """Return runs of steps, one after another."""
        out = np.empty((int(lengths.sum()), *self.shape[1:]), self.dtype)
        at = 0
        for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True):
            if self._columns is not None:
                out[at : at + length] = self._columns[begin : begin + length]
            else:
                place: Any = out[at : at + length].reshape(-1).view(np.uint8)
                self._file.seek(self._begin + begin * self._row)
                if self._file.readinto(place) != length * self._row:
                    raise ValueError("the file ends before its array")
            at += length
        return out

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


def _mapped(path: Path) -> NDArray[Any]:
    # A size that overflows is an error, and not a warning and another size.
    with reading(str(path)), np.errstate(over="raise"):
        return np.load(path, mmap_mode="r", allow_pickle=False)
