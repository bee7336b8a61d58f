"""Potentials of data under posterior means, in double precision, and the past that they need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.families import Family
from sojourn.families.base import EmissionRows
from sojourn.families.draws import memory
from sojourn.inference import Posterior
from sojourn.inference.local import CHUNK_STEPS
from sojourn.kernels.interface import Floats, Integers, Potentials
from sojourn.sequences import Sequences


class Evidence:
    """The model as the forward recursion sees it: θ̂ and the emission potentials, eq (2).

    Parameters
    ----------
    posterior : Posterior
        In memory.
    family : Family
    n_threads : int
    """

    def __init__(self, posterior: Posterior, family: Family, n_threads: int = 1) -> None:
        self.posterior, self.family, self.n_threads = posterior, family, n_threads
        means = posterior.transitions.means(posterior.counts)
        self.start = np.ascontiguousarray(means.start, np.float64)
        self.transitions = np.ascontiguousarray(means.transitions, np.float64)

    @property
    def n_states(self) -> int:
        """Number of states."""
        return len(self.start)

    @property
    def natural(self) -> Floats:
        """λ of every state, with the learned prior if there is one, shape (K, S)."""
        learned = self.posterior.learned(self.family)
        natural: Floats = learned.prior() + self.posterior.emissions.dense()
        return natural

    def rows(self, data: Sequences) -> EmissionRows:
        """Return the emission potentials of validated data."""
        return self.family.emission_rows(
            self.family.encode(data),
            self.posterior.emissions,
            collapsed=True,
            dtype=np.float64,
            n_threads=self.n_threads,
        )

    def potentials(self, data: Sequences) -> tuple[Potentials, Integers]:
        """Return the factors of q(z) for validated data, and the index of its steps into them."""
        rows = self.rows(data)
        return Potentials(self.start, self.transitions, rows.table, rows.log_scale), rows.index

    def chunks(self, data: Sequences) -> Iterator[tuple[Sequences, Potentials, Integers]]:
        """Yield runs of complete sequences with their potentials."""
        for chunk in data.chunks(CHUNK_STEPS):
            yield chunk, *self.potentials(chunk)


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
