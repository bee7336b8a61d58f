"""How much memory there is, and the refusal of what would take too much of it."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np

SHARE = 0.25
"""Share of the memory that one table may take: training has up to three of its size at a time."""

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_LARGEST_KEPT = 31 * 2**20  # glibc does not learn from blocks of more than 32 MiB
_UNKNOWN = 2**34  # where neither the system nor a container says


@cache
def total_memory() -> int:
    """Return the bytes of memory that this process may use: the machine's, or its container's."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        found = _UNKNOWN
    for path in _LIMITS:
        try:
            found = min(found, int(Path(path).read_text()))
        except (OSError, ValueError):
            continue  # no such limit
    return max(found, 1)


def fits(n_numbers: float, itemsize: int = 8) -> bool:
    """Whether an array takes no more than a share of the memory.

    Examples
    --------
    >>> fits(1000), fits(1e18)
    (True, False)
    """
    return n_numbers * itemsize <= SHARE * total_memory()


def gigabytes(n_numbers: float, itemsize: int = 8) -> str:
    """Describe the size of an array.

    Examples
    --------
    >>> gigabytes(2.5e9)
    '20.0 GB'
    """
    return f"{n_numbers * itemsize / 1e9:,.1f} GB"


@cache
def keep_freed_memory() -> None:
    """Have the C library keep the memory that a minibatch frees for the next one.

    glibc returns memory to the system when more is free than twice the largest block that was ever
    freed.  Taken again for every minibatch, its pages are cleared again, which took two thirds of
    the time of an E-step (16 states, 40,000 steps, 2 cores of an AMD EPYC: `benchmarks.cpu`).  From
    a large block, of which no page is touched, it learns to keep 62 MiB.
    """
    np.empty(_LARGEST_KEPT, dtype=np.uint8)
