"""Examples of decoded data: words in context, and the stretches of numbers where most happens."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.analysis.segments import Segment
from sojourn.families import Categorical
from sojourn.kernels.interface import Floats, Integers
from sojourn.prediction import FittedModel
from sojourn.report.states import column_names, symbol_names
from sojourn.sequences import Sequences

_CONTEXT = 4  # words on either side
_CONTEXTS = 4  # per state
_STEPS = 400  # of a sequence of numbers that are drawn
_SEQUENCES = 8  # to choose from
_SEGMENTS = 40


class Context(NamedTuple):
    """A word of a state among its neighbours."""

    before: str
    word: str
    after: str


class Example(NamedTuple):
    """A stretch of a sequence of numbers, and its states.

    Attributes
    ----------
    sequence : int
        Number of the sequence.
    begin : int
        First step of the stretch.
    length : int
        Of the whole sequence.
    values : (n, D) array
    path : (n,) integer array
    columns : list of str
    segments : list of Segment
        The first ones that the stretch touches.
    n_segments : int
        How many there are.
    """

    sequence: int
    begin: int
    length: int
    values: Floats
    path: Integers
    columns: list[str]
    segments: list[Segment]
    n_segments: int

    @property
    def n_changes(self) -> int:
        """Number of changes of state."""
        return int(np.count_nonzero(np.diff(self.path)))

    @property
    def title(self) -> str:
        """Which sequence and steps these are."""
        end = self.begin + len(self.path)
        steps = f"{self.length:,} steps"
        if len(self.path) < self.length:
            steps = f"steps {self.begin:,} to {end - 1:,} of {self.length:,}"
        return f"sequence {self.sequence}: {steps}, {self.n_changes} changes"


def contexts(
    fitted: FittedModel, sequences: Sequences, paths: list[Integers]
) -> list[list[Context]]:
    """Pick a few places of each state: different words, in sequences from all over the data."""
    assert isinstance(fitted.family, Categorical)
    names = symbol_names(fitted.family)
    found: list[list[Context]] = [[] for _ in range(len(fitted.state_shares))]
    seen: list[set[str]] = [set() for _ in found]
    for i in np.random.default_rng(0).permutation(len(paths)).tolist():
        words = _words(sequences[i], names)
        taken = set()
        for t, k in enumerate(paths[i].tolist()):
            if k in taken or len(found[k]) == _CONTEXTS or words[t] in seen[k]:
                continue
            before = " ".join(words[max(0, t - _CONTEXT) : t])
            found[k].append(Context(before, words[t], " ".join(words[t + 1 : t + 1 + _CONTEXT])))
            taken.add(k)
            seen[k].add(words[t])
        if all(len(contexts) == _CONTEXTS for contexts in found):
            break
    return found


def _words(values: NDArray[Any], names: list[str]) -> list[str]:
    if values.dtype.kind in "UTO":
        return [str(value) for value in values]
    return [names[value] if value >= 0 else "·" for value in values]


def examples(fitted: FittedModel, valid: Sequences, paths: list[Integers]) -> list[Example]:
    """Return the stretch with the most changes of each of some sequences, the liveliest first.

    Of a single long sequence also its beginning and its end.
    """
    places = [(i, *busiest(path, _STEPS)) for i, path in enumerate(paths)]
    places.sort(key=lambda place: -place[2])
    chosen = [(i, begin) for i, begin, _ in places[:_SEQUENCES]]
    if len(paths) == 1 and len(paths[0]) > _STEPS:
        ends = [(0, 0), (0, len(paths[0]) - _STEPS)]
        chosen += [place for place in ends if place not in chosen]
    tables = {i: fitted.segments(Sequences.from_lengths(valid[i])) for i, _ in chosen}
    columns = column_names(fitted) or ["value"]
    found = []
    for i, begin in chosen:
        end = min(begin + _STEPS, len(paths[i]))
        table = tables[i]
        touched = np.flatnonzero((table.start < end) & (table.end > begin))
        values = np.asarray(valid[i][begin:end], np.float64).reshape(end - begin, -1)
        found.append(
            Example(
                i,
                begin,
                len(paths[i]),
                values,
                paths[i][begin:end],
                columns,
                [table[int(row)] for row in touched[:_SEGMENTS]],
                len(touched),
            )
        )
    return found


def busiest(path: Integers, n_steps: int) -> tuple[int, int]:
    """Return where the stretch with the most changes of state begins, and how many it has.

    Examples
    --------
    >>> busiest(np.array([0, 0, 0, 1, 0, 1, 1, 1]), 3)
    (2, 2)
    """
    changes = np.concatenate([[0], np.cumsum(path[1:] != path[:-1])])
    last = max(0, len(path) - n_steps)
    within = changes[n_steps - 1 : n_steps + last] - changes[: last + 1] if last else changes[-1:]
    begin = int(np.argmax(within))
    return begin, int(within[begin])
