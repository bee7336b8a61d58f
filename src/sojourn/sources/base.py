"""Interfaces of data sources, and of the minibatches that the training loop takes.

A `Source` is data that is read in blocks, in any order, any number of times.  `Minibatches` is what
the training loop uses: a size, and the minibatches of a pass.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from sojourn.labels import Labels
from sojourn.sequences import Sequences
from sojourn.sources.tokens import CodedCounter
from sojourn.vocabulary import Vocabulary

if TYPE_CHECKING:
    from sojourn.kernels.cpu.words import WordList

PIECE_SEQUENCES = 8192
PIECE_STEPS = 2**19
"""Approximate number of bytes read at a time; memory use does not grow with the data."""

MAX_WORDS = 4_000_000  # distinct words that are counted at a time
_WORTH_COMPILING = 2**20  # bytes of text from which it is split by compiled functions

_EDGE = 2**16  # bytes at each end of a file that its fingerprint depends on


class DataFileError(ValueError):
    """A data file that cannot be used; the message names the file and the place in it."""


class Block(NamedTuple):
    """Some sequences, and where they are in the source.

    Attributes
    ----------
    sequences : Sequences
    place : str
        For error messages, such as ``corpus.parquet, row group 3``.
    done : float
        Share read so far, this included: of its block by a reader, of all by `Source.blocks`.
    """

    sequences: Sequences
    place: str
    done: float = 1.0

    @property
    def n_steps(self) -> int:
        """Number of steps in the block."""
        return self.sequences.n_steps


class CodedBlock(NamedTuple):
    """Sequences of words, as numbers of a list of the words in them.

    Attributes
    ----------
    codes : Sequences
    words : WordList
    place, done
        As for `Block`.
    """

    codes: Sequences
    words: WordList
    place: str
    done: float


class Summary(NamedTuple):
    """Total size of a source, and its symbols.

    Attributes
    ----------
    n_sequences, n_steps : int
    n_symbols : int or None
        One more than the largest symbol, or the number of words; None for other numbers.
    vocabulary : Vocabulary or None
        All words, most frequent first, or the words of the file's symbols.
    """

    n_sequences: int
    n_steps: int
    n_symbols: int | None
    vocabulary: Vocabulary | None


Reader = Callable[[int], Iterator[Block]]


class Minibatches(ABC):
    """Minibatches for the training loop, in an order that depends on the pass only."""

    may_read_ahead: ClassVar[bool] = True
    """Whether the next minibatch may be requested before the last one has been used."""

    @property
    @abstractmethod
    def n_sequences(self) -> int:
        """Number of sequences per pass."""

    @abstractmethod
    def batches(self, n_pass: int, start: int = 0) -> Iterator[Sequences | Iterable[Sequences]]:
        """Yield the minibatches of pass `n_pass` (from 0), without the first `start`.

        A minibatch that is too large for memory is an iterable of pieces.
        """


class Source(ABC):
    """Data in files or elsewhere that is read in blocks.

    Parameters
    ----------
    paths : sequence of Path
        The files with the data; it is an error if they change.
    """

    def __init__(self, paths: Sequence[Path] = ()) -> None:
        self.paths = tuple(paths)
        self._stamps = [_stamp(path) for path in self.paths]

    @property
    @abstractmethod
    def n_blocks(self) -> int:
        """Number of parts that can be read in any order."""

    @abstractmethod
    def opened(self) -> Reader:
        """Open the data, and return a function that reads a block, piece by piece."""

    @property
    def name(self) -> str:
        """Name of the source in messages."""
        return str(self.paths[0]) if self.paths else type(self).__name__

    @property
    def is_repeatable(self) -> bool:
        """Whether it can be read more than once."""
        return True

    @property
    def n_sequences(self) -> int:
        """Total number of sequences."""
        return self.summary.n_sequences

    @property
    def n_steps(self) -> int:
        """Total number of steps."""
        return self.summary.n_steps

    @cached_property
    def summary(self) -> Summary:
        """Sizes, and symbols or words; if not stored in the file, from a pass over the data."""
        return scan(self)

    @property
    def has_labels(self) -> bool:
        """Whether steps have labels, as names or numbers."""
        return False

    @property
    def has_weights(self) -> bool:
        """Whether sequences have weights."""
        return False

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The words of the symbols, if the file contains them."""
        return None

    @property
    def words(self) -> Mapping[int, Vocabulary]:
        """Words of the symbols in columns of vectors, by the number of the column."""
        return {}

    def encoded_by(self, words: Mapping[int, Vocabulary]) -> Source:
        """Return the same data with other words for the symbols in columns of vectors."""
        return self

    def blocks(self, order: Iterable[int] | None = None) -> Iterator[Block]:
        """Yield the data block by block, in the given order or that of the file."""
        self.check_unchanged()
        read = self.opened()
        for n_done, block in enumerate(range(self.n_blocks) if order is None else order):
            self.check_unchanged()
            for piece in read(int(block)):
                yield _checked(piece)._replace(done=(n_done + piece.done) / self.n_blocks)
        self.check_unchanged()

    def coded_blocks(self) -> Iterator[CodedBlock] | None:
        """Yield words block by block as numbers of a list of them, in order; None if it cannot."""
        return None

    def stretches(self) -> Iterator[tuple[Block, bool]]:
        """Yield the data in order, and whether each part goes on with the last sequence before it.

        Where it can, a source gives parts of a sequence that is too long for memory.
        """
        return ((block, False) for block in self.blocks())

    def __iter__(self) -> Iterator[Sequences]:
        return (block.sequences for block in self.blocks())

    def sample(self) -> list[Block]:
        """Return some blocks, chosen at random but always the same, for initial values."""
        order = np.random.default_rng(0).permutation(self.n_blocks)
        taken: list[Block] = []
        n_sequences = n_steps = 0
        for block in self.blocks(order):
            if len(block.sequences) == 0:
                continue
            taken.append(block)
            n_sequences, n_steps = n_sequences + len(block.sequences), n_steps + block.n_steps
            if n_sequences >= PIECE_SEQUENCES or n_steps >= PIECE_STEPS:
                break
        if not taken:
            raise DataFileError(f"{self.name}: there is no data: not one sequence")
        return taken

    def read_all(self) -> Sequences:
        """Return all data, if it fits in memory."""
        pieces = list(self)
        if not pieces:
            raise DataFileError(f"{self.name}: there is no data: not one sequence")
        return joined(pieces)

    def check_unchanged(self) -> None:
        """Raise an error if files have changed since the source was opened."""
        for path, stamp in zip(self.paths, self._stamps, strict=True):
            if not path.exists():
                raise DataFileError(f"{path} was removed after it was opened")
            if _stamp(path) != stamp:
                raise DataFileError(f"{path} has changed since it was opened")

    def files(self) -> list[Source]:
        """Return the sources that this one consists of, in the order of their blocks."""
        return [self]

    def fingerprint(self) -> str:
        """Return a digest of sizes and of both ends of every file, which is the same for a copy."""
        digest = hashlib.sha256()
        for path in self.paths:
            size = path.stat().st_size
            with path.open("rb") as file:
                digest.update(size.to_bytes(8, "little") + file.read(_EDGE))
                file.seek(max(0, size - _EDGE))
                digest.update(file.read(_EDGE))
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def pieces_of(batch: Sequences | Iterable[Sequences]) -> Iterable[Sequences]:
    """Return the pieces that a minibatch comes in: one, where it fits in memory.

    Examples
    --------
    >>> [len(piece) for piece in pieces_of(Sequences.from_list([[3, 1], [4]]))]
    [2]
    """
    return [batch] if isinstance(batch, Sequences) else batch


def first_steps(batches: Iterable[Sequences | Iterable[Sequences]], n_steps: float) -> Sequences:
    """Return the first sequences of minibatches that have `n_steps` steps together, or all.

    Examples
    --------
    >>> batches = [Sequences.from_list(lists) for lists in ([[3, 1], [4]], [[1], [5]])]
    >>> first_steps(batches, 4).lengths
    array([2, 1, 1])
    """
    taken: list[Sequences] = []
    missing = n_steps
    for part in (piece for batch in batches for piece in pieces_of(batch)):
        enough = int(np.searchsorted(part.offsets, missing))
        taken.append(part[: max(1, enough)] if enough < len(part) else part)
        missing -= taken[-1].n_steps
        if missing <= 0:
            break
    return joined(taken)


def joined(pieces: Sequence[Sequences]) -> Sequences:
    """Concatenate sequences into one container.

    Examples
    --------
    >>> joined([Sequences.from_list([[3, 1]]), Sequences.from_list([[4], [1]])]).lengths
    array([2, 1, 1])
    """
    if len(pieces) == 1:
        return pieces[0]
    begins = np.cumsum([0, *(piece.n_steps for piece in pieces)])
    offsets = [piece.offsets[1:] + begin for piece, begin in zip(pieces, begins, strict=False)]
    values = np.concatenate([piece.values for piece in pieces])
    counted = [piece.counted for piece in pieces if piece.counted is not None]
    together = np.concatenate(counted) if counted else None  # all of them have tiles, or none
    known = [piece.labels for piece in pieces if piece.labels is not None]
    weights = [piece.weights for piece in pieces if piece.weights is not None]
    return Sequences(
        values,
        np.concatenate([[0], *offsets]),
        together,
        Labels.joined(known) if known else None,
        np.concatenate(weights) if weights else None,
    )


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Add the place to the message of any error while data is read.

    Whatever the parsers of others raise for a damaged file becomes one documented error.
    """
    try:
        yield
    except (DataFileError, FileNotFoundError, BrokenPipeError):
        raise
    except Exception as error:
        text = str(error) or type(error).__name__
        raise DataFileError(f"{place}: {text}") from error


class WordCounter:
    """Counts of words in bounded memory.

    Beyond `MAX_WORDS` distinct words the rarest are dropped, starting with those seen once.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.forgotten = 0
        """Upper bound on the count of any word when it was dropped."""

    def update(self, words: list[str]) -> None:
        """Count some more words."""
        self.counts.update(words)
        while len(self.counts) > MAX_WORDS:
            self.forgotten += 1
            self.counts = Counter({w: n for w, n in self.counts.items() if n > self.forgotten})


def scan(
    source: Source,
    *,
    report: Callable[[Block], None] | None = None,
    **vocabulary_options: Any,
) -> Summary:
    """Count sequences, steps and symbols or words in a pass over a source.

    Parameters
    ----------
    report : callable, optional
        Called with each block.
    vocabulary_options
        As for `Vocabulary.from_counts`.
    """
    n_sequences = n_steps = 0
    largest = -1
    counter, coded = WordCounter(), CodedCounter(MAX_WORDS)
    kind = ""
    for block, goes_on, words in _scanned(source):
        values = block.sequences.values
        is_words = words is not None or values.dtype.kind in "UTO"
        now = "words" if is_words else values.dtype.kind.replace("u", "i")
        if kind and now != kind and "words" in (now, kind):
            raise DataFileError(f"{block.place}: {_describe(now)} after {_describe(kind)}")
        kind = now
        n_sequences, n_steps = n_sequences + len(block.sequences), n_steps + len(values)
        n_sequences -= goes_on
        if words is not None:
            coded.update(values, words)
        elif is_words:
            counter.update(values.tolist())
        elif kind == "i":
            largest = max(largest, int(values.max()))
        if report is not None:
            report(block)
    if n_sequences == 0:
        raise DataFileError(f"{source.name}: there is no data: not one sequence")
    if kind == "words":
        counts = counter.counts or coded.counts
        vocabulary = Vocabulary.from_counts(counts, **vocabulary_options)
        return Summary(n_sequences, n_steps, len(vocabulary), vocabulary)
    return Summary(n_sequences, n_steps, largest + 1 if kind == "i" else None, None)


def _scanned(source: Source) -> Iterator[tuple[Block, bool, WordList | None]]:
    """Yield a source in order, whether each part goes on, and its list of words if it is coded."""
    coded = coded_blocks(source)
    if coded is None:
        yield from ((block, goes_on, None) for block, goes_on in source.stretches())
    else:
        yield from (
            (Block(codes, place, done), False, words) for codes, words, place, done in coded
        )


def coded_blocks(source: Source) -> Iterator[CodedBlock] | None:
    """Yield the words of a source as numbers; None if it cannot, or is small."""
    # A little text is split by Python before the compiled functions are loaded.
    is_large = sum(path.stat().st_size for path in source.paths) >= _WORTH_COMPILING
    return source.coded_blocks() if is_large else None


def _describe(kind: str) -> str:
    return "words" if kind == "words" else "numbers"


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _checked(block: Block) -> Block:
    if len(block.sequences):
        with reading(block.place):
            block.sequences.check()
    return block
