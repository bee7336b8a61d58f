"""Held-out data of ``sojourn fit``: a file of its own, or a part of the training data."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sojourn.cli.data import Opened
    from sojourn.sequences import Sequences
    from sojourn.sources import Source

_IN_MEMORY = 2**25  # bytes: files up to this size are read once instead of in every pass
_MOST_HELD_OUT = 10_000  # sequences held out of a large file
_MOST_STEPS = 2**20  # steps held out of a long sequence: they are kept in memory
_TOO_SHORT = "too short to hold anything out"


class Parts(NamedTuple):
    """The training data and the held-out data.

    Attributes
    ----------
    train : Sequences or Source
    held_out : Sequences, Source or None
    n_sequences, n_steps : int
        Size of the training data.
    how : str
        Description of what was held out, for people.
    """

    train: Sequences | Source
    held_out: Sequences | Source | None
    n_sequences: int
    n_steps: int
    how: str


def hold_out(opened: Opened, held_out: str, seed: int, *, remote: bool) -> Parts:
    """Read the held-out data from a file, or split it off the training data.

    Parameters
    ----------
    opened : Opened
        The training data.
    held_out : str
        Fraction of the sequences, or the path of a data file.
    seed : int
    remote : bool
        Whether workers of a cluster read the data, which then stays in its file.
    """
    from sojourn.cli.data import open_data

    source = opened.source
    small = not remote and sum(path.stat().st_size for path in source.paths) <= _IN_MEMORY
    try:
        share = float(held_out)
    except ValueError:
        other = open_data(held_out, {}, usual=opened.reading).source.encoded_by(source.words)
        whole = source.read_all() if small else source
        n_sequences, n_steps = _size(whole)
        return Parts(whole, other, n_sequences, n_steps, f"held out: {held_out}")
    if not 0.0 <= share < 1.0:
        raise ValueError(f"--held-out is a fraction from 0 to 1, or a file, not {held_out}")
    return _split_memory(source.read_all(), share, seed) if small else _split(source, share, seed)


def count(n_sequences: int) -> str:
    """Write a number of sequences in words.

    Examples
    --------
    >>> count(1), count(1200)
    ('1 sequence', '1,200 sequences')
    """
    return "1 sequence" if n_sequences == 1 else f"{n_sequences:,} sequences"


def _size(data: Sequences | Source) -> tuple[int, int]:
    from sojourn.sources import Source

    return (data.n_sequences if isinstance(data, Source) else len(data)), data.n_steps


def _split_memory(data: Sequences, share: float, seed: int) -> Parts:
    """Hold out some of the sequences, or the end of a single one."""
    import numpy as np

    if len(data) == 1 and share:
        cut = round(data.n_steps * (1.0 - share))
        if not 0 < cut < data.n_steps:
            return Parts(data, None, 1, data.n_steps, _TOO_SHORT)
        n_out = data.n_steps - cut
        first = data.spans(np.array([0]), np.array([cut]))
        last = data.spans(np.array([cut]), np.array([n_out]))
        return Parts(first, last, 1, cut, f"its last {n_out:,} steps held out")
    n_out = min(_MOST_HELD_OUT, len(data) - 1, max(1, round(share * len(data)))) if share else 0
    if n_out == 0:
        return Parts(data, None, len(data), data.n_steps, "none held out")
    order = np.random.default_rng([seed, 10]).permutation(len(data))
    rest = data.take(np.sort(order[:n_out]))
    train = data.take(np.sort(order[n_out:]))
    return Parts(train, rest, len(train), train.n_steps, f"{count(n_out)} held out")


def _split(source: Source, share: float, seed: int) -> Parts:
    """Hold out some sequences of a file that is read in every pass."""
    from sojourn.sources.split import split, split_end

    if not share:
        return Parts(source, None, source.n_sequences, source.n_steps, "none held out")
    if source.n_sequences == 1:
        n_out = min(_MOST_STEPS, round(share * source.n_steps))
        if n_out == 0:
            return Parts(source, None, 1, source.n_steps, _TOO_SHORT)
        first, last = split_end(source, n_out)
        how = f"its last {n_out:,} steps held out"
        return Parts(first, last.read_all(), 1, first.n_steps, how)
    share = min(share, _MOST_HELD_OUT / source.n_sequences)
    train, rest = split(source, share, seed)
    held_out = rest.read_all()
    how = f"{count(len(held_out))} held out"
    return Parts(train, held_out, train.n_sequences, train.n_steps, how)
