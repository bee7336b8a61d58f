"""NumPy files, mapped into memory, with offsets in a separate file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.sequences import Sequences, checked_offsets
from sojourn.sources.base import (
    PIECE_SEQUENCES,
    PIECE_STEPS,
    Block,
    DataFileError,
    Reader,
    Source,
    reading,
)


class NpySource(Source):
    """Steps of all sequences in one ``.npy`` file, and offsets in another.

    Parameters
    ----------
    path : Path
        Array of shape (T,) or (T, D).
    offsets : Path, optional
        Array of N + 1 integers: sequence n is ``values[offsets[n]:offsets[n + 1]]``.  By default
        ``x.offsets.npy`` next to ``x.npy``.
    """

    def __init__(self, path: Path, offsets: Path | None = None) -> None:
        if offsets is None:
            offsets = path.with_suffix(".offsets.npy")
            if not offsets.exists():
                raise DataFileError(
                    f"{path} has no offsets next to it: {offsets.name} with the N + 1 positions "
                    "where sequences begin and end, or another file given as offsets="
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
        return NpySource, tuple(path.absolute() for path in self.paths)

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


def _mapped(path: Path) -> NDArray[Any]:
    # A size that overflows is an error, and not a warning and another size.
    with reading(str(path)), np.errstate(over="raise"):
        return np.load(path, mmap_mode="r", allow_pickle=False)
