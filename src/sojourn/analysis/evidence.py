"""Potentials of data under posterior means, in double precision, and the past that they need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn import memory as memory_left
from sojourn.families import Family
from sojourn.families.base import EmissionRows
from sojourn.families.draws import memory
from sojourn.inference import Posterior
from sojourn.inference.local import CHUNK_STEPS
from sojourn.kernels.durations import expanded
from sojourn.kernels.interface import DurationPotentials, Floats, Integers, Potentials
from sojourn.sequences import Sequences
from sojourn.transitions import Rows


class Evidence:
    """The model as the forward recursion sees it: θ̂ and the emission potentials, eq (2).

    Where states last, it sees their copies: copy j of state k is number k·J + j, and `folded` sums
    what copies have.  Otherwise a state is its only copy.

    Parameters
    ----------
    posterior : Posterior
        In memory.
    family : Family
    n_threads : int
    """

    def __init__(self, posterior: Posterior, family: Family, n_threads: int = 1) -> None:
        self.posterior, self.family, self.n_threads = posterior, family, n_threads
        means, durations = posterior.transitions.means(posterior.counts), None
        if posterior.durations is not None:
            durations = posterior.duration_potentials()
        self.n_states = len(means.start)
        self.start, self.transitions, self.n_copies = inner_chain(means, durations)

    @property
    def n_inner(self) -> int:
        """Number of copies of all states together."""
        return len(self.start)

    def folded(self, values: Floats) -> Floats:
        """Sum the copies of each state, along the last axis."""
        if self.n_copies == 1:
            return values
        shape = (*values.shape[:-1], self.n_states, self.n_copies)
        summed: Floats = values.reshape(shape).sum(axis=-1)
        return summed

    def spread(self, rows: Floats) -> Floats:
        """Give every copy what its state has, along the last axis."""
        return rows if self.n_copies == 1 else np.repeat(rows, self.n_copies, axis=-1)

    @property
    def natural(self) -> Floats:
        """λ of every state, with the learned prior if there is one, shape (K, S)."""
        learned = self.posterior.learned(self.family)
        natural: Floats = learned.prior() + self.posterior.emissions.dense()
        return natural

    def rows(self, data: Sequences) -> EmissionRows:
        """Return the emission potentials of validated data."""
        rows = self.family.emission_rows(
            self.family.encode(data),
            self.posterior.emissions,
            collapsed=True,
            dtype=np.float64,
            n_threads=self.n_threads,
        )
        if self.n_copies == 1:
            return rows
        return replace(rows, table=self.spread(rows.table[:, : self.n_states]))

    def potentials(self, data: Sequences) -> tuple[Potentials, Integers]:
        """Return the factors of q(z) for validated data, and the index of its steps into them."""
        rows = self.rows(data)
        return Potentials(self.start, self.transitions, rows.table, rows.log_scale), rows.index

    def chunks(self, data: Sequences) -> Iterator[tuple[Sequences, Potentials, Integers]]:
        """Yield runs of complete sequences with their potentials."""
        for chunk in data.chunks(CHUNK_STEPS):
            yield chunk, *self.potentials(chunk)


def inner_chain(rows: Rows, durations: DurationPotentials | None) -> tuple[Floats, Floats, int]:
    """Return start and transitions of the copies of states, and how many each state has.

    Raises
    ------
    ValueError
        If a matrix of so many copies does not fit in memory.
    """
    start, matrix = (np.ascontiguousarray(part, np.float64) for part in rows)
    if durations is None:
        return start, matrix, 1
    n_copies = durations.entry.shape[1]
    n_inner = len(start) * n_copies
    if not memory_left.fits(n_inner**2):
        size = memory_left.gigabytes(n_inner**2)
        raise ValueError(f"{n_copies} copies of {len(start)} states need a matrix of {size}")
    found = expanded(Potentials(start, matrix, np.ones((1, len(start))), None, durations))
    return np.ascontiguousarray(found.start), np.ascontiguousarray(found.transitions), n_copies


class Past:
    """What the observations to come depend on: the last steps of a sequence, and its first.

    Only `AutoregressiveGaussian` has a memory; for the others this is empty.  A step whose past
    would reach back beyond the first observation has that observation in place of earlier ones.

    Parameters
    ----------
    family : Family
    n_streams : int
        Number of sequences side by side.

    Attributes
    ----------
    rows : (n_streams, 1 + L, D) array
        The first observation, and the last L steps; NaN for what there is not.
    """

    def __init__(self, family: Family, n_streams: int = 1) -> None:
        self.family, self.length = family, memory(family)
        columns = 0
        if self.length:
            known = getattr(family, "columns", None)
            columns = int(family.n_features) if known is None else sum(known)
        self.rows = np.full((n_streams, 1 + self.length, columns), np.nan)

    def window(self, values: NDArray[Any]) -> tuple[Sequences, int]:
        """Return steps (n_streams, n, ...) after their past, and how many steps that past has."""
        n_streams, n = values.shape[:2]
        lengths = np.full(n_streams, n)
        if not self.length:
            return Sequences.from_lengths(values.reshape(-1, *values.shape[2:]), lengths), 0
        whole = np.concatenate([self.rows, values], axis=1)
        before = 1 + self.length
        return Sequences.from_lengths(whole.reshape(-1, whole.shape[2]), lengths + before), before

    def advance(self, values: NDArray[Any]) -> None:
        """Go on by steps (n_streams, n, D)."""
        if not self.length:
            return
        first = self.rows[:, :1]
        steps = np.concatenate([self.rows[:, 1:], values], axis=1)
        known = ~np.isnan(steps)
        found = np.take_along_axis(steps, known.argmax(axis=1)[:, None], axis=1)
        first = np.where(np.isnan(first), found, first)
        earlier = ~np.logical_or.accumulate(known, axis=1) & np.isnan(self.rows[:, :1])
        # Steps before the first observation have it in their place.
        steps = np.where(earlier, first, steps)
        self.rows = np.concatenate([first, steps[:, -self.length :]], axis=1)

    def observed(self) -> Floats | None:
        """Return the last L steps without missing values, for `sample_after`; None without any."""
        if not self.length or np.isnan(self.rows[:, 0]).any():
            return None
        filled = self.rows.copy()
        for t in range(1, filled.shape[1]):
            now = filled[:, t]
            filled[:, t] = np.where(np.isnan(now), filled[:, t - 1], now)
        return filled[:, 1:]
