"""Words of a text as numbers, compiled: one walk over its bytes, and tables of those seen.

Two words are the same if their lengths and hashes are, and their bytes; up to seven bytes are in
the hash as they are, so that only longer words are compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from sojourn.kernels.cpu.inner import inner

_WORD, _BLANK, _END, _PERHAPS = 0, 1, 2, 3
_SPARE = 8  # bytes after a text, since it is read eight at a time
_SHORT = 7  # bytes of a word that is its own hash
_FEWEST_SLOTS = 2**14
_ODD = 0x9E3779B97F4A7C15


class WordList(NamedTuple):
    """Distinct words, as places in a text.

    Attributes
    ----------
    text : uint8 array
        UTF-8, with some spare bytes at the end.
    begins, lengths : (W,) int64 arrays
    hashes : (W,) uint64 array
    """

    text: NDArray[np.uint8]
    begins: NDArray[np.int64]
    lengths: NDArray[np.int64]
    hashes: NDArray[np.uint64]

    @classmethod
    def of(cls, words: Iterable[str]) -> WordList:
        """Make a list of distinct words.

        Examples
        --------
        >>> WordList.of(["a", "dog"]).strings()
        ['a', 'dog']
        """
        encoded = [word.encode(errors="surrogatepass") for word in words]
        lengths = np.array([len(word) for word in encoded], np.int64)
        begins = np.cumsum(lengths) - lengths
        text, hashes = _with_spare(b"".join(encoded)), np.empty(len(encoded), np.uint64)
        _hash_all(text, begins, lengths, hashes)
        return cls(text, begins, lengths, hashes)

    def chosen(self, which: NDArray[Any]) -> WordList:
        """Return some of the words."""
        return WordList(self.text, *(part[which] for part in self[1:]))

    def strings(self) -> list[str]:
        """Return the words as strings."""
        raw = self.text.tobytes()
        spans = zip(self.begins.tolist(), self.lengths.tolist(), strict=True)
        return [raw[at : at + n].decode(errors="surrogatepass") for at, n in spans]

    def string(self, number: int) -> str:
        """Return one word as a string."""
        return self.chosen(np.array([number])).strings()[0]


def split_words(text: bytes) -> tuple[NDArray[np.int32], NDArray[np.int64], WordList]:
    r"""Split the lines of a text in UTF-8 at whitespace, which is that of `str.split`.

    Returns
    -------
    codes : (T,) int32 array
        The number of each word in the list.
    ends : (N,) int64 array
        How many words there are up to the end of each line that has any.
    words : WordList
        The distinct words in the order in which they first occur.

    Examples
    --------
    >>> codes, ends, words = split_words(b"the cat\n\n the dog\n")
    >>> codes, ends, words.strings()
    (array([0, 1, 0, 2], dtype=int32), array([2, 4]), ['the', 'cat', 'dog'])
    """
    raw = _with_spare(text)
    most = len(text) // 2 + 1  # words, and lines with words
    codes, ends = np.empty(most, np.int32), np.empty(most, np.int64)
    (begins, lengths), hashes = np.empty((2, most), np.int64), np.empty(most, np.uint64)
    found = _split(raw, len(text), _KINDS, codes, ends, begins, lengths, hashes)
    n_codes, n_lines, n = found
    # Copies, so that what was set aside for the most possible is given back.
    words = WordList(raw, begins[:n].copy(), lengths[:n].copy(), hashes[:n].copy())
    return codes[:n_codes].copy(), ends[:n_lines].copy(), words


class WordTable:
    """Words with numbers, in the order in which they were added.

    Examples
    --------
    >>> table = WordTable()
    >>> table.numbers(WordList.of(["a", "dog"]), add=True)
    array([0, 1], dtype=int32)
    >>> table.numbers(WordList.of(["dog", "cat"]))
    array([ 1, -1], dtype=int32)
    """

    def __init__(self) -> None:
        self.n_words = self._n_bytes = 0
        self._text: NDArray[np.uint8] = np.empty(_SPARE, np.uint8)
        self._begins: NDArray[np.int64] = np.empty(0, np.int64)
        self._lengths: NDArray[np.int64] = np.empty(0, np.int64)
        self._hashes: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._slots = np.full(_FEWEST_SLOTS, -1, np.int32)

    def numbers(self, words: WordList, *, add: bool = False) -> NDArray[np.int32]:
        """Return the number of every word; of one that is not there -1, or a new one."""
        if add:
            self._make_room(len(words.begins), int(words.lengths.sum()))
        found = np.empty(len(words.begins), np.int32)
        self.n_words, self._n_bytes = _number(
            *words,
            self._slots,
            self._text,
            self._begins,
            self._lengths,
            self._hashes,
            self.n_words,
            self._n_bytes,
            add,
            found,
        )
        return found

    def _make_room(self, n_words: int, n_bytes: int) -> None:
        n_words, n_bytes = n_words + self.n_words, n_bytes + self._n_bytes + _SPARE
        if n_bytes > len(self._text):
            self._text = _longer(self._text, 2 * n_bytes)
        if n_words > len(self._begins):
            self._begins, self._lengths = (
                _longer(part, 2 * n_words) for part in (self._begins, self._lengths)
            )
            self._hashes = _longer(self._hashes, 2 * n_words)
        if 2 * n_words > len(self._slots):
            self._slots = np.full(2 ** int(4 * n_words - 1).bit_length(), -1, np.int32)
            _fill(self._slots, self._hashes, self.n_words)

    def words(self) -> WordList:
        """Return all words."""
        n = self.n_words
        return WordList(self._text, self._begins[:n], self._lengths[:n], self._hashes[:n])


def _longer(part: NDArray[Any], length: int) -> NDArray[Any]:
    longer = np.zeros(length, part.dtype)
    longer[: len(part)] = part
    return longer


def _with_spare(text: bytes) -> NDArray[np.uint8]:
    raw = np.empty(len(text) + _SPARE, np.uint8)
    raw[: len(text)] = np.frombuffer(text, np.uint8)
    raw[len(text) :] = 0
    return raw


def _kinds() -> NDArray[np.uint8]:
    """Return what each byte is: of a word, a blank, the end of a line, or perhaps of a blank."""
    kinds = np.full(256, _WORD, np.uint8)
    kinds[[byte for byte in range(128) if chr(byte).isspace()]] = _BLANK
    kinds[ord("\n")] = _END
    kinds[[0xC2, 0xE1, 0xE2, 0xE3]] = _PERHAPS
    return kinds


_KINDS = _kinds()


@intrinsic
def _eight_bytes(typing_context, text, at):
    """Return eight bytes as a number."""
    signature = types.uint64(text, types.intp)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return signature, generate


@inner
def _hashed(text, begin, length):
    if length == 0:
        return np.uint64(0)
    mixed = np.uint64(length) << np.uint64(56)
    while length > 8:
        mixed = (mixed ^ _eight_bytes(text, begin)) * np.uint64(_ODD)
        mixed ^= mixed >> np.uint64(29)
        begin += 8
        length -= 8
    last = _eight_bytes(text, begin) << np.uint64(8 * (8 - length))
    mixed = (mixed ^ (last >> np.uint64(8 * (8 - length)))) * np.uint64(_ODD)
    return mixed ^ (mixed >> np.uint64(32))


@inner
def _same(text, begin, other, other_begin, length):
    """Whether two words of a length have the same bytes."""
    while length > 8:
        if _eight_bytes(text, begin) != _eight_bytes(other, other_begin):
            return False
        begin += 8
        other_begin += 8
        length -= 8
    differing = _eight_bytes(text, begin) ^ _eight_bytes(other, other_begin)
    return (differing << np.uint64(8 * (8 - length))) == 0


@inner
def _slot(slots, stored, begins, lengths, hashes, text, begin, length, mixed):
    """Return the slot of a word, or the empty one where it belongs."""
    mask = slots.shape[0] - 1
    slot = np.int64(mixed) & mask
    while True:
        word = slots[slot]
        if word < 0:
            return slot
        if (
            hashes[word] == mixed
            and lengths[word] == length
            and (length <= _SHORT or _same(stored, begins[word], text, begin, length))
        ):
            return slot
        slot = (slot + 1) & mask


@inner
def _fill_slots(slots, hashes, n_words):
    mask = slots.shape[0] - 1
    for word in range(n_words):
        slot = np.int64(hashes[word]) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = word


@inner
def _blank_bytes(text, at):
    """Return how many bytes a blank beyond ASCII has that begins here; 0 if none does."""
    first, second, third = text[at], text[at + 1], text[at + 2]  # at the end, spare bytes
    if first == 0xC2:
        return 2 if second == 0x85 or second == 0xA0 else 0
    if first == 0xE1:
        return 3 if second == 0x9A and third == 0x80 else 0
    if first == 0xE3:
        return 3 if second == 0x80 and third == 0x80 else 0
    if second == 0x80:
        is_blank = (0x80 <= third <= 0x8A) or third == 0xA8 or third == 0xA9 or third == 0xAF
        return 3 if is_blank else 0
    return 3 if second == 0x81 and third == 0x9F else 0


@inner
def _word_end(text, n_bytes, kinds, at):
    """Return where a word ends that begins here; here if it is a blank beyond ASCII."""
    while at < n_bytes:
        kind = kinds[text[at]]
        if kind != _WORD and (kind != _PERHAPS or _blank_bytes(text, at) > 0):
            break
        at += 1
    return at


@njit(nogil=True, cache=True)
def _split(text, n_bytes, kinds, codes, ends, begins, lengths, hashes):
    slots = np.full(_FEWEST_SLOTS, -1, np.int32)
    n_words = n_codes = n_lines = begun = at = 0
    while at < n_bytes:
        kind = kinds[text[at]]
        if kind == _BLANK:
            at += 1
            continue
        if kind == _END:
            if n_codes > begun:
                ends[n_lines] = n_codes
                n_lines += 1
                begun = n_codes
            at += 1
            continue
        begin = at
        at = _word_end(text, n_bytes, kinds, at)
        length = at - begin
        if length == 0:
            at += _blank_bytes(text, at)
            continue
        mixed = _hashed(text, begin, length)
        slot = _slot(slots, text, begins, lengths, hashes, text, begin, length, mixed)
        word = slots[slot]
        if word < 0:
            word = n_words
            slots[slot] = word
            begins[word] = begin
            lengths[word] = length
            hashes[word] = mixed
            n_words += 1
            if 2 * n_words > slots.shape[0]:
                slots = np.full(2 * slots.shape[0], -1, np.int32)
                _fill_slots(slots, hashes, n_words)
        codes[n_codes] = word
        n_codes += 1
    if n_codes > begun:
        ends[n_lines] = n_codes
        n_lines += 1
    return n_codes, n_lines, n_words


@njit(nogil=True, cache=True)
def _hash_all(text, begins, lengths, hashes):
    for word in range(begins.shape[0]):
        hashes[word] = _hashed(text, begins[word], lengths[word])


@njit(nogil=True, cache=True)
def _fill(slots, hashes, n_words):
    _fill_slots(slots, hashes, n_words)


@njit(nogil=True, cache=True)
def _number(
    text,
    text_begins,
    text_lengths,
    text_hashes,
    slots,
    stored,
    begins,
    lengths,
    hashes,
    n_words,
    n_bytes,
    add,
    found,
):
    for i in range(found.shape[0]):
        begin, length, mixed = text_begins[i], text_lengths[i], text_hashes[i]
        slot = _slot(slots, stored, begins, lengths, hashes, text, begin, length, mixed)
        if add and slots[slot] < 0:
            slots[slot] = n_words
            begins[n_words] = n_bytes
            lengths[n_words] = length
            hashes[n_words] = mixed
            for j in range(length):
                stored[n_bytes + j] = text[begin + j]
            n_words += 1
            n_bytes += length
        found[i] = slots[slot]
    return n_words, n_bytes
