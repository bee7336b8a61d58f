"""Emission statistics and symbols on a GPU, as PyTorch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from sojourn.families.table import SMALLEST_SCALE, DecayedTable, RowSums
from sojourn.kernels import gpu
from sojourn.kernels.arrays import namespace, to_host

if TYPE_CHECKING:
    from sojourn.families.categorical import Categorical, SymbolsPresent

Tensor = Any


class DeviceTable:
    """A `DecayedTable` on a device.

    Its scale is on the device too, so that no step waits for the host to look at it.

    Parameters
    ----------
    table : DecayedTable
    device : torch.device
    """

    def __init__(self, table: DecayedTable, device: Any) -> None:
        self.n_states = table.n_states
        self.dtype = table.dtype
        self.prior = table.prior  # learned on the host
        self.rows: Tensor = torch.as_tensor(table.rows, device=device)
        if table.numbers is not None:
            # An extract becomes a table again, up to its last row; the others are not asked for.
            shape = (int(table.numbers[-1]) + 1, table.rows.shape[1])
            rows = torch.zeros(shape, dtype=self.rows.dtype, device=device)
            rows[torch.as_tensor(table.numbers, device=device).long()] = self.rows
            self.rows = rows
        self.scale: Tensor = torch.tensor(table.scale, dtype=torch.float64, device=device)
        self.totals: Tensor = torch.as_tensor(table.totals, device=device)

    def to_host(self) -> DecayedTable:
        """Return the same as a `DecayedTable`."""
        rows = to_host(self.rows[:, : self.n_states])
        table = DecayedTable.from_parts(rows, float(self.scale), to_host(self.totals).copy())
        table.prior = self.prior
        return table

    def dense(self) -> Tensor:
        """Return the statistics as a new (K, S) tensor."""
        scaled = self.rows[:, : self.n_states] * self.scale.to(self.rows.dtype)
        return scaled.T.contiguous()

    def blend(self, sums: RowSums, *, keep: Any, weight: Any, n_threads: int = 1) -> None:
        """Replace the statistics E by ``keep * E + weight * sums``, eq (3), in place."""
        added = sums.totals
        if added is None:
            added = gpu.sum_columns(sums.values, sums.rows, len(self.rows))
        rates = gpu.as_rates(keep, weight, self.scale)
        factors = gpu.decay(self.totals, added, self.scale, rates, SMALLEST_SCALE)
        gpu.rescale_rows(self.rows, factors[1])
        gpu.add_rows(self.rows, sums.rows, sums.values, factors[0])


class DeviceSymbols(NamedTuple):
    """The symbols of a batch on a device.

    Attributes
    ----------
    index : (T,) int32 tensor
        Symbol of each step; a missing one is as large as the alphabet.
    places : (T,) int32 tensor
        Its place among the distinct symbols.
    segments : Segments
        The steps sorted by symbol.
    is_complete : bool
        Whether no symbol is missing for certain.
    """

    index: Tensor
    places: Tensor
    segments: gpu.Segments
    is_complete: bool = False

    @classmethod
    def of(cls, present: SymbolsPresent, n_symbols: int) -> DeviceSymbols:
        """Sort the steps of a batch of which the distinct symbols are known."""
        index = present.places if present.rows is None else _symbols_of(present, n_symbols)
        batches = torch.tensor([0, len(index)], device=index.device)
        sorted_steps = gpu.find_segments(index, batches, n_symbols)
        return cls(index, sorted_steps.places, sorted_steps.batch(0))


def _symbols_of(present: Any, n_symbols: int) -> Tensor:
    missing = present.rows.new_tensor([n_symbols])
    return torch.cat([present.rows, missing])[present.places.long()].int()


def emission_rows(
    family: Categorical, encoded: DeviceSymbols, table: DeviceTable, *, collapsed: bool, dtype: Any
) -> tuple[Any, Tensor]:
    """Return a table of emission potentials for the kernel, and the index of the steps into it.

    With one prior count for all symbols the posterior mean is an affine function of the statistic:
    the kernel computes it as it reads the symbol's row.
    """
    learned = table.prior
    prior = np.asarray(
        family.concentration if learned is None else learned.of(None), dtype=np.float64
    )
    kind = torch.float32 if np.dtype(dtype) == np.float32 else torch.float64
    n_symbols = family.n_statistics
    xp = namespace(table.totals)
    prior_totals = prior * n_symbols if prior.ndim == 0 else prior.sum(axis=-1)
    if collapsed and prior.ndim == 0 and table.rows.dtype == kind:
        means = gpu.means_of_symbols(
            table.totals, table.scale, float(prior), float(prior_totals), kind
        )
        return gpu.AffineTable(table.rows, *means), encoded.index
    totals = xp.asarray(prior_totals, like=table.totals) + table.totals
    symbols = encoded.segments.symbols.long()
    is_missing = symbols >= n_symbols
    symbols = symbols.clamp(0, n_symbols - 1)
    counts = table.rows[symbols, : table.n_states].double() * table.scale
    own = xp.asarray(np.ascontiguousarray(prior.T), like=table.totals)
    counts += own if prior.ndim == 0 else own[symbols].reshape(len(symbols), -1)
    if collapsed:
        rows = counts / totals
    else:
        rows = torch.exp(torch.digamma(counts) - torch.digamma(totals))
    return rows.masked_fill_(is_missing[:, None], 1.0).to(kind), encoded.places


def sum_statistics(
    family: Categorical, encoded: DeviceSymbols, responsibilities: Tensor
) -> RowSums:
    """Return the responsibilities summed by symbol; `gpu.SUMS` says in which order."""
    n_symbols = family.n_statistics
    if gpu.SUMS == "atomic":
        return RowSums(encoded.index, responsibilities, n_symbols)
    sums = gpu.sum_by_symbol(encoded.segments, responsibilities, n_symbols)
    return RowSums(encoded.segments.symbols, sums, n_symbols)
