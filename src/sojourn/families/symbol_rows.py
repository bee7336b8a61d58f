"""The potentials of symbols: rows of a table of counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sojourn.families.base import EmissionRows
from sojourn.families.dirichlet import DirichletFamily
from sojourn.families.table import DecayedTable
from sojourn.kernels.interface import Floats, Integers


class SymbolsPresent(NamedTuple):
    """The symbols of a batch.

    Attributes
    ----------
    rows : (U,) integer array or None
        The distinct symbols; None for the whole alphabet.
    places : (T,) integer array
        Index of each step's symbol among them; U for a missing symbol.
    has_missing : bool
        Whether a symbol is missing.
    """

    rows: Integers | None
    places: Integers
    has_missing: bool


class SymbolRows(DirichletFamily):
    """A family of symbols: each has a row of the table of statistics.

    Attributes
    ----------
    concentration : float or array
        Prior count of every symbol; see `Categorical`.
    """

    concentration: float | ArrayLike

    def rows_needed(self, encoded: SymbolsPresent) -> Integers | None:
        """Return the distinct symbols; None for the whole alphabet."""
        return encoded.rows

    def emission_rows(
        self,
        encoded: Any,
        table: DecayedTable,
        *,
        collapsed: bool,
        dtype: Any,
        n_threads: int,
    ) -> EmissionRows:
        """Return one row of potentials per distinct symbol, and a row of ones for a missing one."""
        if not isinstance(table, DecayedTable):
            from sojourn.families import tensors

            return tensors.emission_rows(self, encoded, table, collapsed=collapsed, dtype=dtype)
        prior, totals = self._prior_of(encoded.rows, table)
        potentials = table.potentials(
            encoded.rows, prior, totals, collapsed=collapsed, n_threads=n_threads
        )
        if encoded.has_missing:
            ones = np.zeros((1, potentials.shape[1]), potentials.dtype)
            ones[:, : table.n_states] = 1.0
            potentials = np.concatenate([potentials, ones])
        return EmissionRows(potentials.astype(dtype, copy=False), None, encoded.places)

    def count_rows(self, encoded: SymbolsPresent, table: DecayedTable) -> EmissionRows | None:
        """Return one row of counts per distinct symbol."""
        if encoded.has_missing:
            return None
        prior, totals = self._prior_of(encoded.rows, table)
        if prior.shape[1] > 1:
            return None
        counts: Any = table.count_rows(encoded.rows, prior, totals)
        return EmissionRows(counts, None, encoded.places)

    def _prior_of(self, rows: Integers | None, table: DecayedTable) -> tuple[Floats, Floats]:
        """Return the prior counts of some symbols, (1 or U, 1 or K), and their totals."""
        if table.prior is not None:
            prior, totals = table.prior.of(rows), np.asarray(table.prior.total)
        else:
            prior = np.asarray(self.concentration, dtype=np.float64)
            totals = prior * self.n_statistics if prior.ndim == 0 else prior.sum(axis=-1)
            if prior.ndim > 0 and rows is not None:
                prior = prior[..., rows]
        # (), (U,) and (K, U) become (1, 1), (U, 1) and (U, K).
        return prior.T.reshape(len(prior.T) if prior.ndim else 1, -1), totals
