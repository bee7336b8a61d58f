"""Compressed tables, which are unpacked into memory up to a limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

UNPACKED_BYTES = 2**27
UNPACKED_RATIO = 100
"""A compressed table may unpack to so many bytes, or to so many times its own: tables of numbers
and words are seldom a tenth of that, and a few kilobytes of zeros are a thousand times as many."""

_GZIP = b"\x1f\x8b"


def unpacked(path: Path, max_bytes: int | None = None) -> Any:
    """Return a file as PyArrow reads it: its path, or the content of a compressed one.

    Parameters
    ----------
    path : Path
    max_bytes : int, optional
        Most bytes of the content, in place of the limits above.
    """
    import pyarrow as pa

    with path.open("rb") as file:
        if file.read(2) != _GZIP:
            return path
    size = path.stat().st_size
    most = max(UNPACKED_BYTES, UNPACKED_RATIO * size) if max_bytes is None else max_bytes
    parts, n_bytes = [], 0
    with pa.OSFile(str(path), "rb") as packed:
        stream = pa.CompressedInputStream(packed, "gzip")
        while part := stream.read(2**20):
            n_bytes += len(part)
            if n_bytes > most:
                raise ValueError(
                    f"its {size} bytes unpack to more than {most}: a table is read into memory "
                    "as a whole, and max_bytes= allows larger ones"
                )
            parts.append(part)
    return pa.BufferReader(b"".join(parts))
