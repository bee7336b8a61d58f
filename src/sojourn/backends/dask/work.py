"""Functions that run on the workers of a cluster, which open files themselves and return sums.

All of them are pure functions.  A task may run twice, on any worker, and its inputs may be shared
with other tasks, so nothing is changed in place.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from socket import gethostname
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from sojourn import __version__
from sojourn.families import Family
from sojourn.inference import Chunk, LocalBackend, Objective, Posterior
from sojourn.inference.local import CHUNK_STEPS, prepare
from sojourn.inference.statistics import BatchSums
from sojourn.kernels.interface import Floats, Integers
from sojourn.sequences import Sequences
from sojourn.sources import DataFileError, Source
from sojourn.sources.base import Block, joined
from sojourn.sources.npy import NpySource
from sojourn.sources.shuffle import size_in_buffer, validated
from sojourn.sources.steps import FileSteps
from sojourn.sources.tiles import Spans
from sojourn.sources.write import ParquetSink

_OPEN_FILES = 16


class RemoteFile(NamedTuple):
    """A file, as a worker opens it.

    Attributes
    ----------
    name : str
        For messages.
    recipe : bytes
        The pickled source: how to open it, without its content.
    fingerprint : str
        Fingerprint of the client's file, which the worker's must match.
    times : tuple of int
        Modification times of the client's files; after a change they are opened again.
    """

    name: str
    recipe: bytes
    fingerprint: str
    times: tuple[int, ...]

    @classmethod
    def of(cls, source: Source) -> RemoteFile:
        """Describe a source of one file."""
        times = tuple(path.stat().st_mtime_ns for path in source.paths)
        return cls(source.name, pickle.dumps(source), source.fingerprint(), times)


Blocks = Sequence[tuple[RemoteFile, int]]
"""Blocks of files, read one after another."""


class FileTiles(NamedTuple):
    """Tiles of the sequences in a ``.npy`` file.

    Attributes
    ----------
    file : RemoteFile
    spans : Spans
        Where they are.
    """

    file: RemoteFile
    spans: Spans


class Setup(NamedTuple):
    """What all tasks of a fit need, sent to the cluster once.

    Attributes
    ----------
    version : str
        The package's version on the client.
    family : Family
    make_backend : callable
        Creates the backend of the worker, with the model's device.
    """

    version: str
    family: Family
    make_backend: Callable[[], LocalBackend]

    def check(self) -> None:
        """Reject a client that has a different version of the package."""
        if self.version != __version__:
            raise RuntimeError(
                f"the worker on {gethostname()} has sojourn {__version__}, the client "
                f"{self.version}: install the same version everywhere"
            )


class Sizes(NamedTuple):
    """Sizes of blocks, without empty pieces.

    Attributes
    ----------
    n_pieces : (B,) array
        Number of pieces of each block.
    sequences, n_bytes : (P,) arrays
        Number of sequences of each piece, and its bytes in a shuffle buffer.
    """

    n_pieces: NDArray[np.int64]
    sequences: NDArray[np.int64]
    n_bytes: NDArray[np.int64]


Part = list[Chunk]


def version() -> str:
    """Return the version of the package on this worker."""
    return __version__


def measure(setup: Setup, blocks: Blocks) -> Sizes:
    """Read and check blocks, and return their sizes."""
    setup.check()
    counts, sequences, n_bytes = [], [], []
    for block in blocks:
        pieces = list(_validated(setup, [block]))
        counts.append(len(pieces))
        sequences += [len(piece) for piece in pieces]
        n_bytes += [size_in_buffer(piece) for piece in pieces]
    return Sizes(*(np.array(part, np.int64) for part in (counts, sequences, n_bytes)))


def load(setup: Setup, blocks: Blocks) -> Sequences:
    """Read blocks into the worker's memory."""
    return joined(list(_validated(setup, blocks)))


def take(setup: Setup, loaded: Sequence[Sequences], rows: Sequence[Integers]) -> Part:
    """Gather and encode a part of a minibatch: some rows of what is loaded."""
    pairs = zip(loaded, rows, strict=True)
    return list(prepare(setup.family, joined([data.take(chosen) for data, chosen in pairs])))


def rows_needed(setup: Setup, part: Part) -> Integers | None:
    """Return the emission statistics that a part needs, in increasing order; None for all."""
    return union([setup.family.rows_needed(chunk.encoded) for chunk in part])


def union(parts: Sequence[Integers | None]) -> Integers | None:
    """Return the union of the parts; None means all indices.

    Examples
    --------
    >>> union([np.array([5, 2]), np.array([2, 3])])
    array([2, 3, 5])
    """
    numbers = [part for part in parts if part is not None]
    return np.unique(np.concatenate(numbers)) if len(numbers) == len(parts) else None


def part_statistics(
    part: Part, setup: Setup, posterior: Posterior, objective: Objective, **wanted: bool
) -> BatchSums:
    """Run the local step on a part of a minibatch."""
    return setup.make_backend().host_statistics(posterior, setup.family, objective, part, **wanted)


def block_statistics(
    blocks: Blocks, setup: Setup, posterior: Posterior, objective: Objective, **wanted: bool
) -> BatchSums | None:
    """Run the local step on complete blocks, piece by piece; None if they are empty."""
    pieces = _validated(setup, blocks)
    first = next(pieces, None)
    if first is None:
        return None
    chunks = prepare(setup.family, chain([first], pieces))
    return setup.make_backend().host_statistics(
        posterior, setup.family, objective, chunks, **wanted
    )


def take_tiles(setup: Setup, tiles: FileTiles | Sequences) -> Part:
    """Read and encode tiles of a file; others come with their steps."""
    setup.check()
    if isinstance(tiles, FileTiles):
        # A file of its own for each task: threads of a worker must not move one another's place.
        steps = FileSteps(cast(NpySource, _opened(tiles.file)), setup.family.accept)
        tiles = steps.spans(*tiles.spans)
    return list(prepare(setup.family, tiles))


def tile_statistics(
    tiles: FileTiles | Sequences,
    setup: Setup,
    posterior: Posterior,
    objective: Objective,
    **wanted: bool,
) -> BatchSums:
    """Run the local step on tiles that are used once."""
    return part_statistics(take_tiles(setup, tiles), setup, posterior, objective, **wanted)


def add(sums: Sequence[BatchSums | None]) -> BatchSums | None:
    """Add sums, first to last; None counts as zero."""
    there = [part for part in sums if part is not None]
    return BatchSums.total(there) if there else None


def block_scores(
    blocks: Blocks, setup: Setup, log_likelihoods: Callable[[Sequences], Floats]
) -> tuple[float, int]:
    """Return the log likelihood of blocks and their number of steps."""
    total, n_steps = 0.0, 0
    for piece in _validated(setup, blocks):
        total += float(log_likelihoods(piece).sum())
        n_steps += piece.n_steps
    return total, n_steps


def write_results(
    blocks: Blocks,
    path: Path,
    setup: Setup,
    compute: Callable[[Sequences], tuple[Any, float]],
    column: str,
) -> float:
    """Compute one result per step of blocks, write them to a file, and return the score."""
    total = 0.0
    pieces = _validated(setup, blocks)
    first = next(pieces, None)
    if first is None:
        return total  # no sequences, no file
    with ParquetSink(path, column, overwrite=True) as sink:
        for piece in chain([first], pieces):
            for part in piece.chunks(4 * CHUNK_STEPS):
                values, score = compute(part)
                sink.write(part.with_values(values))
                total += score
    return total


def _validated(setup: Setup, blocks: Blocks) -> Iterator[Sequences]:
    """Read blocks piece by piece, in the form that the model expects."""
    setup.check()
    return validated(_read(blocks), setup.family.accept)


def _read(blocks: Blocks) -> Iterator[Block]:
    for file, block in blocks:
        yield from _opened(file).blocks([block])


@lru_cache(_OPEN_FILES)
def _opened(file: RemoteFile) -> Source:
    try:
        source: Source = pickle.loads(file.recipe)
        fingerprint = source.fingerprint()
    except FileNotFoundError as error:
        raise DataFileError(
            f"{file.name} does not exist for the worker: every worker opens the files itself, "
            "under the same path as the client"
        ) from error
    if fingerprint != file.fingerprint:
        raise DataFileError(f"{file.name} is not the same file for the worker as for the client")
    return source
