"""Results per sequence or per step: in memory, in files, or from the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sojourn import __version__
from sojourn.backends.compute import Compute
from sojourn.backends.dask import Cluster, RemoteFiles, Setup
from sojourn.data import Data
from sojourn.families import Family
from sojourn.forms import Layout
from sojourn.inference.local import CHUNK_STEPS
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences
from sojourn.sources.frames import Output, as_output
from sojourn.sources.write import ParquetSink, SequenceNpySink
from sojourn.whole_files import check_target, part_folder

StepFunction = Callable[[Sequences], tuple[Any, float]]
"""Computes one result per step, and a score."""

SequenceFunction = Callable[[Any], Floats]
"""Computes one number per sequence, of `Sequences` or of a file of steps."""

Groups = Callable[[Any], Iterator[tuple[NDArray[Any], float]]]
"""Computes results of the steps of a file, group by group, and a score of each group."""


def connect(client: Any, data: Data) -> Cluster | None:
    """Check a client, and that its workers can open the data themselves."""
    if client is None:
        return None
    if data.source is None:
        raise ValueError("client= needs files, which the workers open themselves; X is in memory")
    return Cluster(client)


def remote_files(cluster: Cluster, data: Data, family: Family, compute: Compute) -> RemoteFiles:
    """Return the data as the workers of a cluster read it, in the form that a family expects."""
    assert data.source is not None
    return RemoteFiles(
        cluster, data.source, Setup(__version__, family, compute.on_worker().backend)
    )


def total_score(data: Data, family: Family, per_sequence: SequenceFunction) -> tuple[float, int]:
    """Return the sum of a function of each sequence, and the number of steps."""
    total, n_steps = 0.0, 0
    steps = data.long_steps(family)
    if steps is not None:
        return float(per_sequence(steps).sum()), int(steps.offsets[-1])
    for piece in data.pieces(family):
        total += float(per_sequence(piece).sum())
        n_steps += piece.n_steps
    return total, n_steps


OUTPUTS = (None, "pandas", "polars")
_COLUMNS = {"states": "state", "probabilities": "probability"}


def in_memory(
    data: Data, per_step: StepFunction, output: Output | None = None, column: str = "states"
) -> tuple[float, Any]:
    """Return the total score, and one result per step in the same form as the data.

    `output` is a library of data frames in which they are returned instead.
    """
    assert data.sequences is not None
    if output not in OUTPUTS:
        raise ValueError(f"output={output!r} is neither None, 'pandas' nor 'polars'")
    values, total = per_step(data.sequences)
    return total, restored(values, data, output, column)


def check_in_memory(output: Output | None) -> None:
    """Refuse a data frame where results go to a file."""
    if output is not None:
        raise ValueError(f"output={output!r} is for results in memory, not for a file")


def restored(
    values: NDArray[Any], data: Data, output: Output | None = None, column: str = "states"
) -> Any:
    """Return results of every step in the form of the data, or as a data frame."""
    assert data.sequences is not None
    assert data.layout is not None
    frame = data.frame
    if frame is not None:
        values = frame.in_rows(values)
    if output is not None:
        index = None if frame is None else frame.index
        return as_output(values, output, _COLUMNS[column], index, data.sequences)
    if frame is not None:
        return values
    return restore_layout(values, data.sequences, data.layout)


def to_file(
    data: Data,
    family: Family,
    per_step: StepFunction,
    groups: Groups | None,
    column: str,
    target: Path,
    *,
    overwrite: bool,
) -> float:
    """Write one result per step to a file, piece by piece; return the total score.

    `groups` goes through long sequences without reading one whole; None where nothing does.
    """
    total = 0.0
    inputs = () if data.source is None else data.source.paths
    sink_type = SequenceNpySink if target.suffix == ".npy" else ParquetSink
    with sink_type(target, column, overwrite=overwrite, inputs=inputs) as sink:
        steps = None if groups is None else data.long_steps(family)
        if groups is not None and steps is not None:
            for values, score in groups(steps):
                sink.write_steps(values, steps.offsets)
                total += score
            return total
        for piece in data.pieces(family):
            for part in piece.chunks(4 * CHUNK_STEPS):
                values, score = per_step(part)
                sink.write(part.with_values(values))
                total += score
    return total


def to_folder(
    files: RemoteFiles, per_step: StepFunction, column: str, target: Path, *, overwrite: bool
) -> float:
    """Let the workers of a cluster write one result per step to files in a folder."""
    check_target(target, overwrite, files.source.paths)
    with part_folder(target) as folder:
        return files.write(per_step, column, folder)


def restore_layout(values: NDArray[Any], sequences: Sequences, layout: Layout) -> Any:
    """Return results of every step in the form of the input data.

    Parameters
    ----------
    values : (T, ...) array
        One result per step.
    sequences : Sequences
        The data that the results belong to.
    layout : {"flat", "list", "rows", "sequences"}
        What `as_sequences` returned with it.
    """
    if layout == "flat":
        return values
    if layout == "rows":
        return values.reshape(len(sequences), -1, *values.shape[1:])
    results = sequences.with_values(values)
    return results if layout == "sequences" else list(results)
