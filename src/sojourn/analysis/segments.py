"""Segments: the runs of one state in a decoded path, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.analysis.evidence import Evidence
from sojourn.kernels.cpu.filtering import filter_steps, path_probabilities
from sojourn.kernels.interface import Floats, Integers, Potentials
from sojourn.sequences import Sequences
from sojourn.sources.write import write_table


class Segment(NamedTuple):
    """One run of a state.

    Attributes
    ----------
    sequence : int
        Number of the sequence.
    state : int
    name : str
    start, end : int
        First step, and the step after the last, in the sequence.
    length : int
    probability : float
        That all of these steps are in this state, given the whole sequence.
    mean : (D,) array or None
        Mean of the observations; None for symbols.
    """

    sequence: int
    state: int
    name: str
    start: int
    end: int
    length: int
    probability: float
    mean: Floats | None


@dataclass(frozen=True, eq=False)
class SegmentTable:
    """A table of segments: one array per column, and rows by iteration.

    Attributes
    ----------
    sequence, state, name, start, end, length, probability : (n,) arrays
        See `Segment`.
    mean : (n, D) array or None
        Means of the observations that are present; None for symbols.

    Examples
    --------
    >>> import sojourn as sj
    >>> model = sj.HMM(2, sj.Categorical(2), random_state=0).fit([[0] * 9 + [1] * 9] * 9)
    >>> table = model.segments([0, 0, 0, 1, 1])
    >>> table.start, table.end
    (array([0, 3]), array([3, 5]))
    >>> [segment.length for segment in table]
    [3, 2]
    """

    sequence: Integers
    state: Integers
    name: NDArray[Any]
    start: Integers
    end: Integers
    length: Integers
    probability: Floats
    mean: Floats | None

    def __len__(self) -> int:
        return len(self.state)

    def __getitem__(self, row: int) -> Segment:
        return Segment(
            int(self.sequence[row]),
            int(self.state[row]),
            str(self.name[row]),
            int(self.start[row]),
            int(self.end[row]),
            int(self.length[row]),
            float(self.probability[row]),
            None if self.mean is None else self.mean[row],
        )

    def __iter__(self) -> Iterator[Segment]:
        return (self[row] for row in range(len(self)))

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name; means are one column each: ``mean_0``, ``mean_1``, ..."""
        found = {part.name: getattr(self, part.name) for part in fields(self)[:-1]}
        if self.mean is not None:
            found |= {f"mean_{d}": self.mean[:, d] for d in range(self.mean.shape[1])}
        return found

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        return pd.DataFrame(self.columns())

    def to_arrow(self) -> Any:
        """Return a PyArrow table."""
        import pyarrow as pa

        return pa.table({name: pa.array(column) for name, column in self.columns().items()})

    def to_parquet(self, path: str | PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the table to a Parquet file, atomically."""
        target = Path(path)
        write_table(self.to_arrow(), target, overwrite=overwrite)
        return target


def segments_of(
    evidence: Evidence,
    pieces: Iterator[Sequences],
    decode: Callable[[Sequences], Integers],
    names: Sequence[str] | None = None,
) -> SegmentTable:
    """Cut decoded sequences into segments.

    Parameters
    ----------
    evidence : Evidence
    pieces : iterator of Sequences
        Validated data, piece by piece.
    decode : callable
        Returns the state of every step.
    names : sequence of str, optional
        Of the states; by default "state 0" and so on.
    """
    names = check_names(names, evidence.n_states)
    parts: list[tuple[Any, ...]] = []
    n_sequences = 0
    for piece in pieces:
        for chunk, potentials, index in evidence.chunks(piece):
            path = decode(chunk)
            begins = _begins(path, chunk.offsets)
            ends = np.append(begins[1:], len(path))
            if evidence.n_copies == 1:
                found = _probabilities(evidence, chunk, potentials, index, path, begins)
            else:
                found = _of_copies(evidence, chunk, potentials, index, path, begins)
            inside = np.searchsorted(chunk.offsets, begins, side="right") - 1
            parts.append(
                (
                    inside + n_sequences,
                    path[begins],
                    begins - chunk.offsets[inside],
                    ends - chunk.offsets[inside],
                    found,
                    _means(chunk, begins),
                )
            )
            n_sequences += len(chunk)
    sequence, state, start, end, probability = (
        np.concatenate([part[column] for part in parts]) for column in range(5)
    )
    means = None if parts[0][5] is None else np.concatenate([part[5] for part in parts])
    named = np.array(names, dtype=object)[state]
    return SegmentTable(sequence, state, named, start, end, end - start, probability, means)


def _probabilities(
    evidence: Evidence,
    chunk: Sequences,
    potentials: Potentials,
    index: Integers,
    path: Integers,
    begins: Integers,
) -> Floats:
    """Return the probability of each segment: that all its steps are in the state of the path.

    log p(z_a = ... = z_b = k) = log p(z_a = k) + Σ log p(z_t = k | z_{t−1} = k).
    """
    alone, given = path_probabilities(
        potentials, index, chunk.offsets, path, n_threads=evidence.n_threads
    )
    with np.errstate(divide="ignore"):
        logs = np.log(given)
        logs[begins] = np.log(alone[begins])
    found: Floats = np.exp(np.add.reduceat(logs, begins))
    return found


def _of_copies(
    evidence: Evidence,
    chunk: Sequences,
    potentials: Potentials,
    index: Integers,
    path: Integers,
    begins: Integers,
) -> Floats:
    """Return the same where states last: forward to the segment, within its copies, and back."""
    forward, densities, _ = filter_steps(potentials, index, chunk.offsets)
    matrix, n_copies = evidence.transitions, evidence.n_copies
    rows = potentials.emissions[index]
    if potentials.log_scale is not None:
        densities = densities - potentials.log_scale[index]
    rows = rows / np.exp(densities)[:, None]
    starts, backward = np.zeros(len(path), np.bool_), np.ones(rows.shape)
    starts[chunk.offsets[:-1]] = True
    for t in range(len(path) - 1, 0, -1):
        if not starts[t]:
            backward[t - 1] = matrix @ (rows[t] * backward[t])
    new, found = np.zeros(len(path), np.bool_), []
    new[begins] = True
    inside = forward[0, :n_copies]
    for t, state in enumerate(path):
        own = slice(state * n_copies, (state + 1) * n_copies)
        inside = forward[t, own] if new[t] else (inside @ matrix[own, own]) * rows[t, own]
        if t + 1 == len(path) or new[t + 1]:
            found.append(float(inside @ backward[t, own]))
    return np.minimum(np.array(found), 1.0)


def _begins(path: Integers, offsets: Integers) -> Integers:
    """Return the steps at which a segment begins."""
    change = np.ones(len(path), np.bool_)
    change[1:] = path[1:] != path[:-1]
    change[offsets[:-1]] = True
    return np.flatnonzero(change)


def _means(chunk: Sequences, begins: Integers) -> Floats | None:
    """Return the means of the observations of each segment that are present."""
    values = chunk.values
    if values.ndim == 1:
        return None
    known = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(values.shape, np.bool_)
    sums = np.add.reduceat(np.where(known, values, 0.0), begins, axis=0)
    counts = np.add.reduceat(known.astype(np.float64), begins, axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1.0), np.nan)


def check_names(names: Sequence[str] | None, n_states: int) -> list[str]:
    """Return a name for each state; raise an error if there are too few or too many."""
    if names is None:
        return [f"state {k}" for k in range(n_states)]
    if len(names) != n_states:
        raise ValueError(f"{len(names)} names for {n_states} states")
    return [str(name) for name in names]
