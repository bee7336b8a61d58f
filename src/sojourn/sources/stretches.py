"""Sequences that are read in stretches, for what goes through them once in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.sources.arrow import ArrowSource
from sojourn.sources.base import DataFileError, Source, reading
from sojourn.sources.npy import NpySource

STRETCH_STEPS = 2**16
"""Maximum number of steps that are read at a time where a file allows it."""


class Stretch(NamedTuple):
    """Some steps of a sequence.

    Attributes
    ----------
    values : (n, ...) array
    begins : bool
        Whether they are its first.
    place : str
        For error messages.
    """

    values: NDArray[Any]
    begins: bool
    place: str


def stretches_of(source: Source) -> Iterator[Stretch]:
    """Yield the steps of all sequences in order, in stretches of at most `STRETCH_STEPS` steps.

    ``.npy`` files, and tables with one row per step, are read stretch by stretch, so that memory
    does not grow with a sequence.  Other files are read by whole sequences, and then cut.

    Examples
    --------
    >>> import sojourn as sj
    >>> source = sj.open([[3, 1, 4], [1, 5]], total_sequences=2)
    >>> [(stretch.values.tolist(), stretch.begins) for stretch in stretches_of(source)]
    [([3, 1, 4], True), ([1, 5], True)]
    """
    source.check_unchanged()
    for file in source.files():
        if isinstance(file, NpySource):
            yield from _of_array(file)
        elif isinstance(file, ArrowSource) and file.is_long:
            yield from _of_rows(file)
        else:
            for block in file.blocks():
                for values in block.sequences:
                    yield from _cut(values, block.place)
    source.check_unchanged()


def _cut(values: NDArray[Any], place: str) -> Iterator[Stretch]:
    for at in range(0, len(values), STRETCH_STEPS):
        yield Stretch(values[at : at + STRETCH_STEPS], at == 0, place)


def _of_array(source: NpySource) -> Iterator[Stretch]:
    path = source.paths[0]
    for n in range(len(source.offsets) - 1):
        begin, end = int(source.offsets[n]), int(source.offsets[n + 1])
        if end <= begin:
            raise DataFileError(f"{path}, from sequence {n}: sequence {n} is empty")
        for at in range(begin, end, STRETCH_STEPS):
            place = f"{path}, sequence {n}, from position {at - begin}"
            with reading(place):
                # Mapped anew each time, so that pages that were read do not accumulate.
                mapped = np.load(path, mmap_mode="r", allow_pickle=False)
                values = np.array(mapped[at : min(end, at + STRETCH_STEPS)])
                del mapped
            yield Stretch(values, at == begin, place)


def _of_rows(source: ArrowSource) -> Iterator[Stretch]:
    last: Any = None
    for batch, place in source.batches():
        with reading(place):
            ids, values = source.steps_of(batch)
        cuts = [0, *(np.flatnonzero(ids[1:] != ids[:-1]) + 1).tolist(), len(ids)]
        for begin, end in pairwise(cuts):
            is_new = begin > 0 or last is None or ids[0] != last
            for stretch in _cut(values[begin:end], place):
                yield stretch._replace(begins=stretch.begins and is_new)
        last = ids[-1]
