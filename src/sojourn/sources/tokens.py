"""Words of a text by Arrow, as numbers of a list of them."""

from __future__ import annotations

import numpy as np

from sojourn.sequences import Sequences


def coded_words(text: str) -> tuple[Sequences, list[str]]:
    r"""Split the lines of a text at whitespace; lines without words are left out.

    Returns
    -------
    codes : Sequences
        The number of each word in the list, int32.
    words : list of str
        The distinct words, in the order in which they first occur.

    Notes
    -----
    Whitespace is that of `str.split`; a test compares all characters.

    Examples
    --------
    >>> codes, words = coded_words("the cat\n\n the dog\n")
    >>> codes.values, codes.lengths, words
    (array([0, 1, 0, 2], dtype=int32), array([2, 2]), ['the', 'cat', 'dog'])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        lines = pc.split_pattern(pa.array([text], pa.large_string()), "\n").values
    except UnicodeEncodeError:  # lone surrogates, which only rare encodings have
        return _by_python(text)
    # Two functions of Arrow: the faster one knows fewer blanks.
    is_plain = text.isascii() and not any(blank in text for blank in _ASCII_SEPARATORS)
    split = pc.ascii_split_whitespace(lines) if is_plain else pc.utf8_split_whitespace(lines)
    found, offsets = split.values.dictionary_encode(), split.offsets.to_numpy()
    codes, words = found.indices.to_numpy(), found.dictionary.to_pylist()
    if "" in words:  # of blanks at the ends of a line, and of an empty one
        empty = words.index("")
        kept = codes != empty
        offsets = np.concatenate([[0], np.cumsum(kept)])[offsets]
        codes = codes[kept]
        codes, words = codes - (codes > empty), words[:empty] + words[empty + 1 :]
    starts = np.flatnonzero(np.diff(offsets, prepend=-1))
    return Sequences(codes, offsets[starts].astype(np.int64)), words


_ASCII_SEPARATORS = "\x1c\x1d\x1e\x1f"


def _by_python(text: str) -> tuple[Sequences, list[str]]:
    numbers: dict[str, int] = {}
    split = [line.split() for line in text.split("\n")]
    lines = [[numbers.setdefault(word, len(numbers)) for word in words] for words in split]
    offsets = np.unique(np.cumsum([0, *map(len, lines)]))
    codes = np.fromiter((code for line in lines for code in line), np.int32, offsets[-1])
    return Sequences(codes, offsets), list(numbers)
