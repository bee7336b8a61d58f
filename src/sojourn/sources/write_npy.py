"""Writing rows to a NumPy file, part by part but atomically."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from sojourn.whole_files import check_target, naming, part_file

_HEADER = 128  # bytes, with room for the number of rows, which is known at the end


class NpySink:
    """Write rows of numbers to an ``.npy`` file whose length is not known before.

    The file gets its name when it is complete; after an error there is no file.

    Parameters
    ----------
    path : Path
    overwrite : bool
        Whether an existing file may be replaced.
    inputs : iterable of Path
        Files that are being read, which must not be replaced.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "x.npy"
    ...     with NpySink(path) as sink:
    ...         sink.write(np.zeros((2, 3)))
    ...         sink.write(np.ones((1, 3)))
    ...     np.load(path).sum(axis=1)
    array([0., 0., 3.])
    """

    def __init__(self, path: Path, *, overwrite: bool = False, inputs: Iterable[Path] = ()) -> None:
        check_target(path, overwrite, inputs)
        self.path = path
        self.n_rows = 0
        self._shape: tuple[int, ...] | None = None
        self._dtype: np.dtype[Any] | None = None

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        part = self._stack.enter_context(part_file(self.path))
        self._file: BinaryIO = self._stack.enter_context(part.open("wb"))
        self._file.write(b" " * _HEADER)
        return self

    def write(self, rows: NDArray[Any]) -> None:
        """Write some rows."""
        if self._dtype is None:
            self._shape, self._dtype = rows.shape[1:], rows.dtype
        assert rows.shape[1:] == self._shape
        self.n_rows += len(rows)
        with naming(self.path):
            self._file.write(np.ascontiguousarray(rows, self._dtype).data)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._finish()
        except BaseException as failed:
            self._stack.__exit__(type(failed), failed, failed.__traceback__)
            raise
        self._stack.__exit__(kind, error, trace)

    def _finish(self) -> None:
        if self._dtype is None or self._shape is None:
            raise ValueError(f"{self.path}: there is no data to write")
        shape = (self.n_rows, *self._shape)
        kind = np.lib.format.dtype_to_descr(self._dtype)
        text = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
        magic = np.lib.format.magic(1, 0) + (_HEADER - 10).to_bytes(2, "little")
        with naming(self.path):
            self._file.seek(0)
            self._file.write(magic + text.encode().ljust(_HEADER - 11) + b"\n")
            self._file.flush()
