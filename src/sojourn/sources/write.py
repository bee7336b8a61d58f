"""Writing sequences to a Parquet file, piece by piece but atomically."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sojourn.sequences import Sequences
from sojourn.sources.base import joined
from sojourn.sources.write_npy import NpySink
from sojourn.whole_files import check_target, naming, part_file

GROUP_SEQUENCES = 1024
GROUP_STEPS = 2**16
"""Maximum sequences and steps per row group; small, because row groups are shuffled."""


class ParquetSink:
    """Write sequences to one list column of a Parquet file.

    The file gets its name when it is complete; after an error there is no file.

    Parameters
    ----------
    path : Path
    column : str
        Name of the column.
    metadata : dict of bytes, optional
        Written to the metadata of the file.
    overwrite : bool
        Whether an existing file may be replaced.
    inputs : iterable of Path
        Files that are being read, which must not be replaced.

    Examples
    --------
    >>> import sojourn as sj, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "x.parquet"
    ...     with ParquetSink(path, "symbols") as sink:
    ...         sink.write(Sequences.from_list([[3, 1, 4], [1]]))
    ...     sj.open(path).n_sequences
    2
    """

    def __init__(
        self,
        path: Path,
        column: str,
        *,
        metadata: dict[bytes, bytes] | None = None,
        overwrite: bool = False,
        inputs: Iterable[Path] = (),
    ) -> None:
        check_target(path, overwrite, inputs)
        self.path = path
        self.column = column
        self.metadata = metadata or {}
        self._waiting: list[Sequences] = []
        self._n_waiting = 0
        self._writer: Any = None
        self._part: Path | None = None
        self._steps: list[NDArray[Any]] = []
        self._n_steps = self._n_rows = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._part = self._stack.enter_context(part_file(self.path))
        return self

    def write(self, sequences: Sequences) -> None:
        """Write some sequences."""
        self._waiting.append(sequences)
        self._n_waiting += len(sequences)
        steps = sum(piece.n_steps for piece in self._waiting)
        if self._n_waiting >= 8 * GROUP_SEQUENCES or steps >= 8 * GROUP_STEPS:
            self._flush(last=False)

    def write_steps(self, values: NDArray[Any], offsets: NDArray[np.int64]) -> None:
        """Write some more steps of sequences with these offsets; a row needs all of a sequence."""
        self._steps.append(values)
        self._n_steps += len(values)
        done = int(np.searchsorted(offsets, self._n_steps, side="right")) - 1
        if done > self._n_rows:
            own, begin = np.concatenate(self._steps), self._n_steps - sum(map(len, self._steps))
            ends = offsets[self._n_rows : done + 1] - begin
            self.write(Sequences(own[: ends[-1]], ends))
            self._steps, self._n_rows = [own[ends[-1] :]], done

    def _flush(self, last: bool) -> None:
        if not self._waiting:
            return
        groups = list(_groups(joined(self._waiting)))
        kept = [] if last or len(groups) == 1 else [groups.pop()]
        for group in groups:
            self._write_group(group)
        self._waiting, self._n_waiting = kept, sum(map(len, kept))

    def _write_group(self, group: Sequences) -> None:
        import pyarrow as pa

        if group.n_steps >= 2**31:
            raise ValueError(f"{self.path}: a sequence of {group.n_steps} steps is too long")
        offsets = pa.array(group.offsets.astype(np.int32))
        lists = pa.ListArray.from_arrays(offsets, _arrow_steps(group.values))
        table = pa.table({self.column: lists})
        if self._writer is None:
            self._writer = self._open(table.schema)
        with naming(self.path):
            self._writer.write_table(table)

    def _open(self, schema: Any) -> Any:
        import pyarrow.parquet as pq

        # No dictionaries: symbols are written and read faster without.
        writer = pq.ParquetWriter(self._part, schema, compression="zstd", use_dictionary=False)
        if self.metadata:
            writer.add_key_value_metadata(self.metadata)
        return writer

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
            self._close()
            self._stack.__exit__(type(failed), failed, failed.__traceback__)
            raise
        self._close()
        self._stack.__exit__(kind, error, trace)

    def _finish(self) -> None:
        self._flush(last=True)
        if self._writer is None:
            raise ValueError(f"{self.path}: there is no data to write")
        with naming(self.path):
            self._writer.close()

    def _close(self) -> None:
        """Close the file after an error, of which the first is the most informative."""
        if self._writer is not None and self._writer.is_open:
            with suppress(OSError):
                self._writer.close()


def write_table(table: Any, path: Path, *, overwrite: bool = False) -> None:
    """Write a PyArrow table to a Parquet file, atomically."""
    import pyarrow.parquet as pq

    check_target(path, overwrite)
    with part_file(path) as part, naming(path):
        pq.write_table(table, part, compression="zstd")


class SequenceNpySink:
    """Write sequences to a ``.npy`` file, with the offsets in another; memory stays small.

    The files get their names when they are complete; after an error there are none.

    Parameters
    ----------
    path : Path
        The offsets of ``x.npy`` go to ``x.offsets.npy``.
    column : str
        Not used: the file has one array.
    overwrite : bool
        Whether existing files may be replaced.
    inputs : iterable of Path
        Files that are read meanwhile, and must not be written over.

    Examples
    --------
    >>> import sojourn as sj, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "x.npy"
    ...     with SequenceNpySink(path, "states") as sink:
    ...         sink.write(Sequences.from_list([[3, 1, 4], [1]]))
    ...     sj.open(path).n_sequences, np.load(path)
    (2, array([3, 1, 4, 1]))
    """

    def __init__(
        self,
        path: Path,
        column: str,
        *,
        overwrite: bool = False,
        inputs: Iterable[Path] = (),
    ) -> None:
        self.offsets_path = path.with_suffix(".offsets.npy")
        check_target(self.offsets_path, overwrite, inputs)
        self._rows = NpySink(path, overwrite=overwrite, inputs=inputs)
        self._ends: list[NDArray[np.int64]] = [np.zeros(1, dtype=np.int64)]

    def __enter__(self) -> Self:
        self._rows.__enter__()
        return self

    def write(self, sequences: Sequences) -> None:
        """Write some sequences."""
        self._ends.append(self._rows.n_rows + sequences.offsets[1:])
        self._rows.write(sequences.values)

    def write_steps(self, values: NDArray[Any], offsets: NDArray[np.int64]) -> None:
        """Write some more steps of sequences with these offsets."""
        self._ends = [offsets]
        self._rows.write(values)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._rows.__exit__(kind, error, trace)
        if error is None:
            with part_file(self.offsets_path) as part, part.open("wb") as file:
                np.save(file, np.concatenate(self._ends).astype(np.int64))


def _groups(sequences: Sequences) -> Iterator[Sequences]:
    for chunk in sequences.chunks(GROUP_STEPS):
        for begin in range(0, len(chunk), GROUP_SEQUENCES):
            yield chunk[begin : begin + GROUP_SEQUENCES]


def _arrow_steps(values: NDArray[Any]) -> Any:
    import pyarrow as pa

    if values.ndim == 1:
        return pa.array(values)
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
