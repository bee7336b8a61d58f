"""Text files with one sequence per line, plain or compressed with gzip or zstd."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sojourn.kernels.threads import available_cores
from sojourn.sequences import Sequences
from sojourn.sources.ahead import map_ahead
from sojourn.sources.base import Block, CodedBlock, DataFileError, Reader, Source, reading
from sojourn.sources.csv_text import remedy
from sojourn.sources.tokens import coded_words

BLOCK_BYTES = 2**18
CODED_BYTES = 2**22
"""Bytes whose words are listed at a time; the larger, the fewer lists a frequent word is in."""
MAX_LINE = 2**26
"""Bytes of the longest line that is read unless another limit is given: a line is a sequence."""

_BOM = b"\xef\xbb\xbf"


class _Lines(NamedTuple):
    """Complete lines, where they begin, and the number of the first if it is known."""

    raw: bytes
    begin: int
    number: int | None
    done: float


class TextSource(Source):
    """Lines of a text file as sequences of words; lines without words are left out.

    Parameters
    ----------
    path : Path
    compression : {"gzip", "zstd"} or None
        A compressed file can be read only from its beginning, so it is one block.
    pattern : str, optional
        Regular expression whose matches are the words; by default separated by whitespace.
    lower : bool
        Convert words to lower case.
    encoding : str, optional
        By default UTF-8; one in which a line ends with the byte 10.
    max_bytes : int, optional
        Length of the longest line in bytes; by default `MAX_LINE`.
    """

    def __init__(
        self,
        path: Path,
        compression: str | None = None,
        *,
        pattern: str | None = None,
        lower: bool = False,
        encoding: str | None = None,
        max_bytes: int | None = None,
    ) -> None:
        super().__init__([path])
        self.path = path
        self.max_bytes = max_bytes
        self.compression = compression
        self.lower = lower
        self.encoding = _checked_encoding(encoding)
        self.pattern = pattern
        self._find = None if pattern is None else _compiled(pattern).findall

    def __reduce__(self) -> Any:
        """Pickle only how to open the file; another process opens it itself."""
        opener = partial(
            TextSource,
            pattern=self.pattern,
            lower=self.lower,
            encoding=self.encoding,
            max_bytes=self.max_bytes,
        )
        return opener, (self.path.absolute(), self.compression)

    @property
    def n_blocks(self) -> int:
        """Number of runs of lines of about `BLOCK_BYTES`; one if the file is compressed."""
        if self.compression is not None:
            return 1
        return max(1, -(-self.path.stat().st_size // BLOCK_BYTES))

    def opened(self) -> Reader:
        """Open the file."""
        return self._read

    def _read(self, block: int) -> Iterator[Block]:
        for lines in self._lines(block, BLOCK_BYTES):
            yield from self._split(lines)

    def coded_blocks(self) -> Iterator[CodedBlock] | None:
        """Yield the data with the words of each block in a list; by a pattern they are not."""
        return self._coded_blocks() if self._find is None else None

    def _coded_blocks(self) -> Iterator[CodedBlock]:
        self.check_unchanged()
        n_blocks = 1
        if self.compression is None:
            n_blocks = max(1, -(-self.path.stat().st_size // CODED_BYTES))
        pieces = (
            lines._replace(done=(block + lines.done) / n_blocks)
            for block in range(n_blocks)
            for lines in self._lines(block, CODED_BYTES)
        )
        for coded in map_ahead(self._coded, pieces, available_cores()):
            self.check_unchanged()
            if len(coded.codes):
                yield coded

    def _coded(self, lines: _Lines) -> CodedBlock:
        codes, words = coded_words(self._decoded(lines))
        return CodedBlock(codes, words, self._place(lines), lines.done)

    def _lines(self, block: int, n_bytes: int) -> Iterator[_Lines]:
        """Read the lines of a block of so many bytes; all of a compressed file, piece by piece."""
        return self._plain(block, n_bytes) if self.compression is None else self._stream(n_bytes)

    def _plain(self, block: int, n_bytes: int) -> Iterator[_Lines]:
        """Read the lines that start in a block."""
        with reading(str(self.path)), self.path.open("rb") as file:
            begin, end = block * n_bytes, (block + 1) * n_bytes
            if begin:
                file.seek(begin - 1)
                begin += _skipped_line(file) - 1
            raw = file.read(end - begin) if begin < end else b""
            if raw and not raw.endswith(b"\n"):
                rest = file.readline(self._longest + 1)
                self._check_length(len(raw) - raw.rfind(b"\n") - 1 + len(rest), begin)
                raw += rest
        if raw:
            yield _Lines(raw, begin, None, 1.0)

    def _stream(self, n_bytes: int) -> Iterator[_Lines]:
        """Read a compressed file from its beginning."""
        import pyarrow as pa

        rest: list[bytes] = []  # of a line that is not complete: joined once, when it is
        at, line = 0, 1
        with reading(str(self.path)), pa.OSFile(str(self.path), "rb") as file:
            size = file.size()
            stream = pa.CompressedInputStream(file, self.compression)
            while True:
                with reading(f"{self.path}, after byte {at + sum(map(len, rest))} of the text"):
                    raw = stream.read(n_bytes)
                if raw and b"\n" not in raw:
                    rest.append(raw)
                    self._check_length(sum(map(len, rest)), at)
                    continue
                whole, newline, last = raw.rpartition(b"\n")
                whole = b"".join([*rest, whole])
                yield _Lines(whole + newline, at, line, file.tell() / size)
                at, line = at + len(whole) + len(newline), line + whole.count(b"\n") + len(newline)
                rest = [last] if last else []
                if not raw:
                    return

    @property
    def _longest(self) -> int:
        return MAX_LINE if self.max_bytes is None else self.max_bytes

    def _check_length(self, n_bytes: int, begin: int) -> None:
        """Refuse a line that is too long, before it fills the memory."""
        if n_bytes > self._longest:
            raise DataFileError(
                f"{self.path}, after byte {begin} of the text: a line of more than "
                f"{self._longest} bytes; every line is a sequence, and max_bytes= allows longer"
            )

    def _decoded(self, lines: _Lines) -> str:
        raw, begin, number, _ = lines
        text_bytes = raw.removeprefix(_BOM) if begin == 0 else raw
        try:
            text = text_bytes.decode(self.encoding)
        except UnicodeDecodeError as error:
            raise self._undecodable(text_bytes, error, begin, len(raw), number) from None
        return text.lower() if self.lower else text

    def _place(self, lines: _Lines) -> str:
        number = lines.number
        where = f"from byte {lines.begin}" if number is None else f"from line {number}"
        return f"{self.path}, {where}"

    def _split(self, found: _Lines) -> Iterator[Block]:
        """Split complete lines into words."""
        split = str.split if self._find is None else self._find
        lines = [words for words in map(split, self._decoded(found).split("\n")) if words]
        if not lines:
            return
        offsets = np.zeros(len(lines) + 1, np.int64)
        np.cumsum([len(words) for words in lines], out=offsets[1:])
        values: Any = np.empty(offsets[-1], object)
        values[:] = list(chain.from_iterable(lines))
        yield Block(Sequences(values, offsets), self._place(found), found.done)

    def _undecodable(
        self, text: bytes, error: UnicodeDecodeError, begin: int, length: int, line: int | None
    ) -> DataFileError:
        at = begin + length - len(text) + error.start
        before = text[: error.start].count(b"\n")
        if line is None:
            line = 1
            with self.path.open("rb") as file:
                for start in range(0, begin, BLOCK_BYTES):
                    line += file.read(min(BLOCK_BYTES, begin - start)).count(b"\n")
        bad = text[error.start : error.start + 1].hex()
        return DataFileError(
            f"{self.path}, line {line + before}, byte {at}: 0x{bad} is not "
            f"{remedy(self.encoding, error.reason)}"
        )


def _checked_encoding(encoding: str | None) -> str:
    """Refuse an encoding in which lines cannot be found without decoding what is before them."""
    try:
        ends = "a\n".encode(encoding or "utf-8")
    except LookupError:
        raise ValueError(f"there is no encoding {encoding!r}") from None
    if ends != b"a\n":
        raise ValueError(f"a text in {encoding} cannot be read in blocks: convert it to UTF-8")
    return encoding or "utf-8"


def _skipped_line(file: Any) -> int:
    """Read to the end of a line of any length; return how many bytes that were."""
    n_bytes = 0
    while part := file.readline(BLOCK_BYTES):
        n_bytes += len(part)
        if part.endswith(b"\n"):
            break
    return n_bytes


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    if compiled.groups > 1:
        raise ValueError(f"the pattern {pattern!r} has more than one group: which is the word?")
    return compiled
