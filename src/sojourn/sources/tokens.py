"""Words of a text as numbers of a list of them, and counts of such words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sojourn.sequences import Sequences

if TYPE_CHECKING:
    from sojourn.kernels.cpu.words import WordList, WordTable


def coded_words(text: str) -> tuple[Sequences, WordList]:
    r"""Split the lines of a text at whitespace; lines without words are left out.

    Returns
    -------
    codes : Sequences
        The number of each word in the list, int32.
    words : WordList
        The distinct words, in the order in which they first occur.

    Notes
    -----
    Whitespace is that of `str.split`; a test compares all characters.

    Examples
    --------
    >>> codes, words = coded_words("the cat\n\n the dog\n")
    >>> codes.values, codes.lengths, words.strings()
    (array([0, 1, 0, 2], dtype=int32), array([2, 2]), ['the', 'cat', 'dog'])
    """
    from sojourn.kernels.cpu.words import split_words  # compiled, so loaded on first use

    codes, ends, words = split_words(text.encode(errors="surrogatepass"))
    return Sequences(codes, np.concatenate([[0], ends])), words


class CodedCounter:
    """Counts of words that come as lists, in bounded memory.

    Beyond `max_words` distinct words the rarest are dropped, starting with those seen once.
    """

    def __init__(self, max_words: int) -> None:
        self.max_words = max_words
        self.forgotten = 0
        """Upper bound on the count of any word when it was dropped."""
        self._table: WordTable | None = None
        self._counts: NDArray[np.int64] = np.zeros(0, np.int64)

    def update(self, codes: NDArray[np.int32], words: WordList) -> None:
        """Count some more words, given by their numbers in a list."""
        self._add(words, np.bincount(codes, minlength=len(words.begins)))
        while len(self._counts) > self.max_words:
            self.forgotten += 1
            assert self._table is not None
            kept = self._counts > self.forgotten
            every, counts = self._table.words(), self._counts[kept]
            self._table, self._counts = None, np.zeros(0, np.int64)
            self._add(every.chosen(kept), counts)

    def _add(self, words: WordList, counts: NDArray[np.int64]) -> None:
        from sojourn.kernels.cpu.words import WordTable

        self._table = self._table or WordTable()
        numbers = self._table.numbers(words, add=True)
        n_new = self._table.n_words - len(self._counts)
        self._counts = np.concatenate([self._counts, np.zeros(n_new, np.int64)])
        self._counts[numbers] += counts

    @property
    def counts(self) -> dict[str, int]:
        """The words and how often they occur."""
        if self._table is None:
            return {}
        return dict(zip(self._table.words().strings(), self._counts.tolist(), strict=True))
