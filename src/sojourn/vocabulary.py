"""Conversion of strings to symbols and back."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sojourn.kernels.ragged import checked_offsets
from sojourn.sequences import Sequences, position

if TYPE_CHECKING:
    from sojourn.kernels.cpu.words import WordList


class Vocabulary:
    """A list of strings, whose symbols are their positions in it.

    Parameters
    ----------
    words : sequence of str
        Distinct words.
    unknown : str or None
        The word that replaces every string not in `words`; it must be one of them.  With None,
        such a string is an error.

    Examples
    --------
    >>> vocabulary = Vocabulary.from_sequences([["the", "cat"], ["the", "dog"]])
    >>> vocabulary.words
    ('<unk>', 'the', 'cat', 'dog')
    >>> vocabulary.encode([["the", "bird"]]).values
    array([1, 0], dtype=int32)
    >>> vocabulary.decode([1, 2])
    ['the', 'cat']
    """

    def __init__(self, words: Iterable[str], unknown: str | None = None) -> None:
        words = tuple(words)
        for word in words:
            if not isinstance(word, str):
                raise TypeError(f"a vocabulary consists of strings, not {word!r}")
        self.words: tuple[str, ...] = tuple(map(str, words))  # NumPy's strings become plain ones
        self.unknown = unknown
        self._symbols = {word: symbol for symbol, word in enumerate(self.words)}
        if len(self._symbols) != len(self.words):
            twice = next(word for word, n in Counter(self.words).items() if n > 1)
            raise ValueError(f"the word {twice!r} is in the vocabulary twice")
        if unknown is not None and unknown not in self._symbols:
            raise ValueError(f"the unknown word {unknown!r} is not in the vocabulary")

    @classmethod
    def from_sequences(
        cls,
        sequences: Iterable[Iterable[str]],
        *,
        min_count: int = 1,
        max_size: int | None = None,
        unknown: str | None = "<unk>",
    ) -> Vocabulary:
        """Collect the words of sequences, most frequent first.

        Parameters
        ----------
        sequences : iterable of iterables of str
            The data.
        min_count : int
            Words that occur less often are left out.
        max_size : int, optional
            Maximum number of words, including the unknown word.
        unknown : str or None
            The word for everything left out or not seen, with symbol 0.
        """
        counts = Counter(word for sequence in sequences for word in sequence)
        return cls.from_counts(counts, min_count=min_count, max_size=max_size, unknown=unknown)

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, int],
        *,
        min_count: int = 1,
        max_size: int | None = None,
        unknown: str | None = "<unk>",
    ) -> Vocabulary:
        """Make a vocabulary from words and their counts, most frequent first.

        Examples
        --------
        >>> Vocabulary.from_counts({"the": 5, "a": 3, "zebra": 1}, min_count=2).words
        ('<unk>', 'the', 'a')
        """
        reserved = [] if unknown is None else [unknown]
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        kept = [word for word, n in ranked if n >= min_count and word != unknown]
        if max_size is not None:
            kept = kept[: max(0, max_size - len(reserved))]
        return cls([*reserved, *kept], unknown)

    def encode(self, sequences: Sequences | Iterable[Sequence[str]]) -> Sequences:
        """Turn sequences of strings into sequences of symbols (int32)."""
        if not isinstance(sequences, Sequences):
            sequences = Sequences.from_list(map(_as_objects, sequences))
        words = sequences.values.tolist()
        if words and sequences.values.dtype.kind not in "UTO":
            raise TypeError(f"expected strings, got {sequences.values.dtype}")
        symbols = self._symbols_of(words)
        self._refuse_unknown(symbols, sequences, lambda at: words[at])
        return sequences.with_values(symbols)

    def coded_encoder(self) -> Callable[[Sequences, WordList], Sequences]:
        """Return what turns sequences of numbers of words in a list into symbols (int32).

        Examples
        --------
        >>> from sojourn.kernels.cpu.words import WordList
        >>> codes = Sequences.from_list([[0, 1, 0]])
        >>> Vocabulary(["a", "b"]).coded_encoder()(codes, WordList.of(["b", "a"])).values
        array([1, 0, 1], dtype=int32)
        """
        from sojourn.kernels.cpu.words import WordList, WordTable  # compiled: loaded when needed

        table = WordTable()
        table.numbers(WordList.of(self.words), add=True)
        default = -1 if self.unknown is None else self._symbols[self.unknown]

        def encode(codes: Sequences, words: WordList) -> Sequences:
            known = table.numbers(words)
            symbols = np.where(known < 0, np.int32(default), known)[codes.values]
            self._refuse_unknown(symbols, codes, lambda at: words.string(codes.values[at]))
            return codes.with_values(symbols)

        return encode

    def _symbols_of(self, words: Sequence[str]) -> NDArray[np.int32]:
        """Return the symbol of every word, -1 for one that is not in the vocabulary."""
        default = -1 if self.unknown is None else self._symbols[self.unknown]
        lookup = self._symbols.get
        return np.fromiter((lookup(word, default) for word in words), np.int32, len(words))

    def _refuse_unknown(
        self, symbols: NDArray[np.int32], sequences: Sequences, word: Callable[[int], str]
    ) -> None:
        missing = np.flatnonzero(symbols < 0)
        if len(missing):
            at = int(missing[0])
            raise ValueError(
                f"{position(at, sequences.offsets)}: {word(at)!r} is not in the vocabulary, which "
                "has no unknown word"
            )

    def decode(self, symbols: Any) -> Any:
        """Turn symbols into strings: one sequence into a list, `Sequences` into lists of them."""
        if isinstance(symbols, Sequences):
            return [self.decode(sequence) for sequence in symbols]
        symbols = np.asarray(symbols)
        outside = symbols[(symbols < 0) | (symbols >= len(self))]
        if outside.size:
            raise IndexError(f"symbol {outside[0]} is not one of the {len(self)} in the vocabulary")
        return [self.words[symbol] for symbol in symbols]

    def to_arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the words as UTF-8 bytes and the offsets between them, for model files."""
        encoded = [word.encode(errors="surrogatepass") for word in self.words]
        offsets = np.concatenate([[0], np.cumsum([len(word) for word in encoded])])
        return np.frombuffer(b"".join(encoded), np.uint8), offsets.astype(np.int64)

    @classmethod
    def from_arrays(
        cls, text: NDArray[np.uint8], offsets: NDArray[np.int64], unknown: str | None
    ) -> Vocabulary:
        """Undo `to_arrays`."""
        if text.dtype != np.uint8 or text.ndim != 1:
            raise ValueError("the text of a vocabulary must be bytes")
        raw = text.tobytes()
        spans = itertools.pairwise(checked_offsets(offsets, len(raw)).tolist())
        words = [raw[begin:end].decode(errors="surrogatepass") for begin, end in spans]
        return cls(words, unknown)

    def __getitem__(self, word: str) -> int:
        """Return the symbol of a word, or of the unknown word."""
        if word in self._symbols:
            return self._symbols[word]
        if self.unknown is None:
            raise KeyError(word)
        return self._symbols[self.unknown]

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._symbols

    def __len__(self) -> int:
        return len(self.words)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return (self.words, self.unknown) == (other.words, other.unknown)

    def __hash__(self) -> int:
        return hash((self.words, self.unknown))

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} words, unknown={self.unknown!r})"


def _as_objects(sequence: Sequence[str]) -> Any:
    """Return strings as objects: NumPy's string type would drop NULs at the end."""
    return sequence if isinstance(sequence, str | bytes) else np.array(list(sequence), object)
