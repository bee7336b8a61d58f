"""Emission statistics and symbols as PyTorch tensors, on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch

from sojourn.families.base import EmissionRows
from sojourn.families.table import SMALLEST_SCALE, DecayedTable, HeldStates, RowSums
from sojourn.kernels import cuda
from sojourn.kernels.arrays import namespace, to_device, to_host
from sojourn.kernels.interface import Floats, padded_states

if TYPE_CHECKING:
    from sojourn.families.categorical import Categorical
    from sojourn.families.symbol_prior import SymbolPrior
    from sojourn.families.symbol_rows import SymbolsPresent

Tensor = Any

_NUMBERS = 2**22  # numbers in a temporary array with one row per symbol


class PieceSums(RowSums):
    """Sums by symbol, of which the sums of pieces are there: they are added to a table at once.

    Parameters
    ----------
    pieces : Pieces
    totals : function, optional
        As in `RowSums`.
    """

    def __init__(self, pieces: cuda.Pieces, totals: Callable[[], Tensor] | None) -> None:
        super().__init__(pieces.segments.symbols, cast(Any, pieces), pieces.n_symbols, totals)

    @property
    def pieces(self) -> cuda.Pieces | None:
        """Sums of pieces, as long as no other sums have been added."""
        own: Any = self._values
        return own if isinstance(own, cuda.Pieces) else None

    def join(self, *, n_threads: int = 1) -> Tensor:
        """Return the sums; made each time, since a recorded step replaces the pieces."""
        return self._values if self.pieces is None else cuda.sum_of_pieces(self.pieces)


class TensorTable:
    """A `DecayedTable` of tensors.

    Its scale is a tensor too, so that no step waits until the host has read it.

    Parameters
    ----------
    rows : (S, W) tensor
        Padded like those of a `DecayedTable`.
    scale : () float64 tensor
    totals : (K,) float64 tensor
    prior : SymbolPrior, optional
        Learned prior counts, as tensors.
    """

    def __init__(
        self, rows: Tensor, scale: Tensor, totals: Tensor, prior: SymbolPrior | None = None
    ) -> None:
        self.rows, self.scale, self.totals, self.prior = rows, scale, totals, prior
        self.n_states = len(totals)
        self.held: HeldStates | None = None
        self.dtype = np.dtype(str(rows.dtype).removeprefix("torch."))

    @classmethod
    def of(cls, table: DecayedTable, device: Any) -> TensorTable:
        """Copy a table to tensors on a device."""
        rows = torch.tensor(table.rows, device=device)
        if table.numbers is not None:
            # An extract becomes a table up to its last row; later rows are not needed.
            own, shape = rows, (int(table.numbers[-1]) + 1, table.rows.shape[1])
            rows = torch.zeros(shape, dtype=own.dtype, device=device)
            rows[torch.as_tensor(table.numbers, device=device).long()] = own
        scale = torch.tensor(table.scale, dtype=torch.float64, device=device)
        prior = None if table.prior is None else table.prior.to_device(device)
        made = cls(rows, scale, torch.tensor(table.totals, device=device), prior)
        if table.held is not None:
            made.held = HeldStates(*(torch.tensor(part, device=device) for part in table.held))
        return made

    def to_host(self) -> DecayedTable:
        """Return the same as a `DecayedTable`."""
        rows = to_host(self.rows[:, : self.n_states])
        table = DecayedTable.from_parts(rows, float(self.scale), to_host(self.totals).copy())
        table.prior = None if self.prior is None else self.prior.to_host()
        if self.held is not None:
            table.hold(to_host(self.held.states))
        return table

    def dense(self) -> Tensor:
        """Return the statistics as a new (K, S) tensor."""
        scaled = self.rows[:, : self.n_states] * self.scale.to(self.rows.dtype)
        return scaled.T.contiguous()

    def blend(self, sums: RowSums, *, keep: Any, weight: Any, n_threads: int = 1) -> None:
        """Replace the statistics E by ``keep * E + weight * sums``, eq (3), in place."""
        rates = cuda.as_rates(keep, weight, self.scale)
        if self.held is None:
            self._decay_and_add(sums, self._added(sums), rates)
            return
        self.totals.mul_(rates[0]).add_(rates[1] * self._added(sums))
        self.rows.mul_(rates[0].to(self.rows.dtype))
        cuda.add_rows(self.rows, sums.rows, sums.values, rates[1])
        self.rows[:, self.held.states] = self.held.rows
        self.totals[self.held.states] = self.held.totals

    def blend_with(
        self,
        counts: tuple[Tensor, Tensor],
        own: tuple[Tensor, Tensor],
        sums: RowSums,
        *,
        keep: Any,
        weight: Any,
        logs: cuda.LogNormalizers | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Do so, and return start and transitions blended likewise, all in two launches.

        Counts of recorded steps are replaced where they are, as in `cuda.blend_counts`.  Where
        `logs` are given they are summed, too.
        """
        if self.held is not None:
            if logs is not None:
                cuda.collect_failures(logs)
            self.blend(sums, keep=keep, weight=weight)
            return cuda.blend_counts(counts, own, keep, weight)
        rates, out = cuda.as_rates(keep, weight, self.scale), cuda.blended_into(counts, keep)
        # The masses of states follow from their transitions.
        added = None if callable(sums.totals) else self._added(sums)
        self._decay_and_add(sums, added, rates, (counts, own, out), logs)
        return out

    def _added(self, sums: RowSums) -> Tensor:
        """Return the sums over all rows."""
        if sums.totals is None:
            return cuda.sum_columns(sums.values, sums.rows, len(self.rows))
        return sums.totals() if callable(sums.totals) else sums.totals

    def _decay_and_add(
        self,
        sums: RowSums,
        added: Tensor | None,
        rates: Tensor,
        beside: Any = None,
        logs: Any = None,
    ) -> None:
        factor, scale = cuda.decay(
            self.rows, self.totals, added, self.scale, rates, SMALLEST_SCALE, beside, logs
        )
        if isinstance(sums, PieceSums) and sums.pieces is not None:
            cuda.add_pieces(self.rows, sums.pieces, factor, (self.scale, scale))
        else:
            cuda.add_rows(self.rows, sums.rows, sums.values, factor, (self.scale, scale))

    def expected_tables(self, prior: Tensor, *, n_threads: int = 1) -> Tensor:
        """Return the expected tables of every row, eq (17): see `symbols.expected_tables`."""
        size = max(1, _NUMBERS // self.n_states)
        at_prior = torch.digamma(prior)
        parts = []
        for begin in range(0, len(self.rows), size):
            n = self.rows[begin : begin + size, : self.n_states].double() * self.scale
            whole = n.sum(1, keepdim=True)
            counts = n > (1e-4 * whole).clamp(max=1e-3)
            certain = torch.where(counts, n * n / whole, 1.0)
            occurs = -torch.expm1(-certain)
            grown = torch.digamma(prior + certain / occurs) - at_prior
            cells = occurs * grown + torch.log1p((n - certain) / (prior + certain))
            parts.append(prior * torch.where(counts, cells, 0.0).sum(1))
        return torch.cat(parts)

    def regrouped(self, weights: Floats) -> TensorTable:
        """Return a table of new states, each a weighted sum of these; `weights` is (K', K)."""
        own = to_device(weights, self.rows.device)
        # In double precision, regardless of `torch.set_float32_matmul_precision`.
        rows = self.rows[:, : self.n_states].double() @ own.T
        if self.held is not None:
            raise NotImplementedError("states whose emissions are held are not regrouped here")
        return TensorTable(self._padded(rows), self.scale.clone(), own @ self.totals, self.prior)

    def fill(self, statistics: Tensor) -> None:
        """Replace the statistics (K, S), in place: recorded steps refer to these tensors."""
        self.rows[:, : self.n_states] = statistics.T.to(self.rows.dtype)
        self.scale.fill_(1.0)
        self.totals.copy_(self.rows[:, : self.n_states].sum(0, dtype=torch.float64))
        if self.held is not None:
            self.rows[:, self.held.states] = self.held.rows
            self.totals[self.held.states] = self.held.totals

    def refilled(self, statistics: Tensor) -> TensorTable:
        """Return a table of other statistics (K', S), in this one's precision, with its prior."""
        rows = self._padded(statistics.T)
        totals = rows[:, : len(statistics)].sum(0, dtype=torch.float64)
        return TensorTable(rows, torch.ones_like(self.scale), totals, self.prior)

    def _padded(self, rows: Tensor) -> Tensor:
        extra = padded_states(rows.shape[1]) - rows.shape[1]
        return torch.nn.functional.pad(rows.to(self.rows.dtype), (0, extra)).contiguous()


class TensorSymbols(NamedTuple):
    """The symbols of a batch as tensors.

    Attributes
    ----------
    index : (T,) int32 tensor
        Symbol of each step; V for a missing one.
    segments : Segments
        The steps sorted by symbol.
    is_complete : bool
        Whether it is known that no symbol is missing.
    """

    index: Tensor
    segments: cuda.Segments
    is_complete: bool = False

    def places(self) -> Tensor:
        """Return where the symbol of each step is among the distinct ones, which are sorted."""
        return torch.searchsorted(self.segments.symbols, self.index, out_int32=True)

    @classmethod
    def of(cls, present: SymbolsPresent, n_symbols: int) -> TensorSymbols:
        """Sort the steps of a batch of which the distinct symbols are known."""
        index = present.places if present.rows is None else _symbols_of(present, n_symbols)
        batches = torch.tensor([0, len(index)], device=index.device)
        sorted_steps = cuda.find_segments(index, batches, n_symbols)
        return cls(index, sorted_steps.batch(0))


def _sorted_symbols(family: Categorical, encoded: Any) -> TensorSymbols:
    """Return an encoded batch with its steps sorted by symbol, if they are not yet."""
    if isinstance(encoded, TensorSymbols):
        return encoded
    return TensorSymbols.of(encoded, family.n_statistics)


def _symbols_of(present: Any, n_symbols: int) -> Tensor:
    missing = present.rows.new_tensor([n_symbols])
    return torch.cat([present.rows, missing])[present.places.long()].int()


def emission_rows(
    family: Categorical, encoded: Any, table: Any, *, collapsed: bool, dtype: Any
) -> EmissionRows:
    """Return the potentials of `Categorical.emission_rows` for a `TensorTable`.

    With one prior count for all symbols the posterior mean is an affine function of the statistic:
    the kernel computes it when it reads the symbol's row.
    """
    encoded = _sorted_symbols(family, encoded)
    prior = np.asarray(family.concentration, dtype=np.float64)
    kind = torch.float32 if np.dtype(dtype) == np.float32 else torch.float64
    n_symbols, learned = family.n_statistics, table.prior
    xp = namespace(table.totals)
    prior_totals = prior * n_symbols if prior.ndim == 0 else prior.sum(axis=-1)
    if learned is None and collapsed and prior.ndim == 0 and table.rows.dtype == kind:
        means = cuda.means_of_symbols(
            table.totals, table.scale, float(prior), float(prior_totals), kind
        )
        affine: Any = cuda.AffineTable(table.rows, *means)
        return EmissionRows(affine, None, encoded.index)
    symbols = encoded.segments.symbols.long()
    is_missing = symbols >= n_symbols
    symbols = symbols.clamp(0, n_symbols - 1)
    counts = table.rows[symbols, : table.n_states].double() * table.scale
    if learned is not None:
        totals = learned.total + table.totals
        counts += learned.of(symbols)[:, None]
    else:
        totals = xp.asarray(prior_totals, like=table.totals) + table.totals
        own = xp.asarray(np.ascontiguousarray(prior.T), like=table.totals)
        counts += own if prior.ndim == 0 else own[symbols].reshape(len(symbols), -1)
    if collapsed:
        rows = counts / totals
    else:
        rows = torch.exp(torch.digamma(counts) - torch.digamma(totals))
    rows = rows.masked_fill_(is_missing[:, None], 1.0).to(kind)
    return EmissionRows(rows, None, encoded.places())


def sum_statistics(
    family: Categorical,
    encoded: Any,
    responsibilities: Tensor,
    masses: Callable[[], Tensor] | None,
) -> RowSums:
    """Return the responsibilities summed by symbol; `cuda.SUMS` says in which order."""
    encoded, n_symbols = _sorted_symbols(family, encoded), family.n_statistics
    totals = masses if encoded.is_complete else None
    if cuda.SUMS == "atomic":
        return RowSums(encoded.index, responsibilities, n_symbols, totals)
    return PieceSums(cuda.sum_pieces(encoded.segments, responsibilities, n_symbols), totals)
