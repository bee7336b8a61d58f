"""Conversion to the format that is read fastest: symbols in Parquet, words in its metadata."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sojourn.sequences import Sequences
from sojourn.sources.arrow import METADATA, WORDS, ArrowSource
from sojourn.sources.base import Block, DataFileError, Source, Summary, coded_blocks, reading, scan
from sojourn.sources.open import open as open_source
from sojourn.sources.shuffle import validated
from sojourn.sources.write import ParquetSink
from sojourn.vocabulary import Vocabulary
from sojourn.whole_files import check_target

COLUMN = "symbols"


class Ingested(NamedTuple):
    """Result of `ingest`.

    Attributes
    ----------
    path : Path
    n_sequences, n_steps : int
    vocabulary : Vocabulary or None
    """

    path: Path
    n_sequences: int
    n_steps: int
    vocabulary: Vocabulary | None


Report = Callable[[str, float, int], None]
"""Called with the name of a task, the share of it that is done, and the number of sequences."""


def ingest(
    data: Any,
    out: str | PathLike[str],
    *,
    min_count: int = 1,
    max_size: int | None = None,
    unknown: str | None = "<unk>",
    vocabulary: Vocabulary | None = None,
    overwrite: bool = False,
    report: Report | None = None,
    **options: Any,
) -> Ingested:
    r"""Write data as Parquet, with small row groups for shuffling.

    Words are counted in one pass and encoded in a second.  Numbers are copied unchanged.

    Parameters
    ----------
    data : Source or path
        Data as for `sojourn.open`.
    out : path
        File to write.  It is an error if it exists, unless `overwrite`.
    min_count, max_size, unknown
        Which words the vocabulary keeps; see `Vocabulary.from_counts`.
    vocabulary : Vocabulary, optional
        Vocabulary to use, for example that of the training text for held-out text.
    report : callable, optional
        Called with "counting" or "encoding", the share done, and the number of sequences so far.
    options
        As for `sojourn.open`.

    Examples
    --------
    >>> import sojourn as sj, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text = Path(folder) / "text.txt"
    ...     _ = text.write_text("the cat sleeps\nthe dog barks\n")
    ...     done = ingest(text, Path(folder) / "text.parquet", min_count=2)
    ...     (done.n_sequences, done.vocabulary.words, next(iter(sj.open(done.path))).values)
    (2, ('<unk>', 'the'), array([1, 0, 0, 1, 0, 0], dtype=int32))
    """
    out = Path(out)
    source = open_source(data, **options)
    check_target(out, overwrite, source.paths)
    is_words = _first(source).values.dtype.kind in "UTO"
    if is_words:
        if vocabulary is None:
            vocabulary = _count(source, report, min_count, max_size, unknown).vocabulary
    elif vocabulary is not None:
        raise DataFileError(f"{source.name} contains numbers: a vocabulary is for words")
    else:
        vocabulary = source.vocabulary
    metadata = _metadata(vocabulary)
    n_sequences = n_steps = 0
    with ParquetSink(out, COLUMN, metadata=metadata, overwrite=overwrite) as sink:
        for sequences, done in _encoded(source, vocabulary if is_words else None):
            sink.write(sequences)
            n_sequences, n_steps = n_sequences + len(sequences), n_steps + sequences.n_steps
            if report is not None:
                report("encoding", done, n_sequences)
    return Ingested(out, n_sequences, n_steps, vocabulary)


def vocabulary_of(path: str | PathLike[str]) -> Vocabulary:
    """Return the vocabulary of a file that `ingest` wrote."""
    source = open_source(path)
    if not isinstance(source, ArrowSource) or source.vocabulary is None:
        raise DataFileError(f"{path} has no vocabulary: it was not ingested from words")
    return source.vocabulary


def _encoded(source: Source, vocabulary: Vocabulary | None) -> Iterator[tuple[Sequences, float]]:
    """Yield the data as they are written, and the share of them done; words by a vocabulary."""
    coded = None if vocabulary is None else coded_blocks(source)
    if vocabulary is not None and coded is not None:
        encode_coded = vocabulary.coded_encoder()
        for codes, words, place, done in coded:
            with reading(place):
                encoded = encode_coded(codes, words)
            yield encoded, done
        return
    encode = _plain if vocabulary is None else vocabulary.encode
    for block in source.blocks():
        for sequences in validated([block], encode):
            yield sequences, block.done


def _first(source: Source) -> Sequences:
    for sequences in source:
        if len(sequences):
            return sequences
    raise DataFileError(f"{source.name}: there is no data: not one sequence")


def _count(
    source: Source,
    report: Report | None,
    min_count: int,
    max_size: int | None,
    unknown: str | None,
) -> Summary:
    n_counted = 0

    def counted(block: Block) -> None:
        nonlocal n_counted
        n_counted += len(block.sequences)
        if report is not None:
            report("counting", block.done, n_counted)

    return scan(source, report=counted, min_count=min_count, max_size=max_size, unknown=unknown)


def _plain(sequences: Sequences) -> Sequences:
    """Convert integers to int32 if they fit, the type that `Categorical` uses."""
    values = sequences.values
    if values.dtype.kind == "b" or (
        values.dtype.kind in "iu"
        and values.ndim == 1
        and values.min() >= -(2**31)
        and values.max() < 2**31
    ):
        values = values.astype(np.int32)
    return sequences.with_values(values)


def _metadata(vocabulary: Vocabulary | None) -> dict[bytes, bytes]:
    described: dict[str, Any] = {"format": 1}
    if vocabulary is None:
        return {METADATA: json.dumps(described).encode()}
    described["unknown"] = vocabulary.unknown
    words = json.dumps(vocabulary.words)  # in ASCII, which preserves lone surrogates too
    return {METADATA: json.dumps(described).encode(), WORDS: words.encode()}
