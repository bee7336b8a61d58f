"""Minibatches on a GPU: sequences, and windows of several minibatches sorted together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sojourn.families import Bernoulli, Categorical, Family
from sojourn.families.dense import DenseFamily
from sojourn.families.fused import TensorRows
from sojourn.families.tabled import MOST_VALUES
from sojourn.families.tensors import TensorSymbols
from sojourn.inference.backend import Chunk
from sojourn.inference.known import of_equal_weight
from sojourn.inference.local import sum_log_base
from sojourn.kernels import cuda
from sojourn.kernels.arrays import to_device
from sojourn.kernels.cpu.counts import extremes
from sojourn.labels import Labels
from sojourn.sequences import Sequences
from sojourn.sources.base import joined

Tensor = Any

CHUNK_NUMBERS = 2**28
"""Maximum size of an array with one row per step; a larger minibatch is split into chunks."""


@dataclass(frozen=True, eq=False)
class DeviceBatch:
    """Sequences on the device, the counterpart of `Sequences`.

    Attributes
    ----------
    offsets : (N + 1,) int64 tensor
    order : (N,) int64 tensor
        The sequences, longest first.
    n_sequences, n_steps : int
    family : Family
    host : callable
        Returns the same sequences on the host.
    is_padded : bool
        Whether there may be more steps than the sequences have, whose responsibilities are zero.
    counted : (N, 4) array or None
        For tiles: which steps count, on the host.
    labels : Labels or None
        What is known about the states of steps, on the host.
    weights : (N,) array or None
        What each sequence counts for: all of them the same.
    """

    offsets: Tensor
    order: Tensor
    n_sequences: int
    n_steps: int
    family: Family
    host: Callable[[], Sequences]
    is_padded: bool = False
    counted: NDArray[np.int64] | None = None
    labels: Labels | None = None
    weights: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return self.n_sequences

    @property
    def n_counted(self) -> int:
        """Number of steps that count."""
        return self.n_steps if self.counted is None else self.host().n_counted

    @property
    def n_starts(self) -> int:
        """Number of sequences that begin here."""
        return self.n_sequences if self.counted is None else self.host().n_starts

    @functools.cached_property
    def log_base(self) -> float:
        """Σ log h(x), which the host computes once; of symbols it is zero."""
        return (
            0.0 if isinstance(self.family, Categorical) else sum_log_base(self.family, self.host())
        )


@dataclass(frozen=True, eq=False)
class WindowBatch:
    """A minibatch of a window, for use as a chunk or by a recorded step.

    Attributes
    ----------
    window : Window
    number : int
        Its number in the window.
    n_sequences, n_steps : int
    """

    window: Window
    number: int
    n_sequences: int
    n_steps: int

    @property
    def is_plain(self) -> bool:
        """Whether all steps count, and all sequences the same."""
        return not (self.window.is_tiled or self.window.is_known)

    def __iter__(self) -> Iterator[Chunk]:
        yield self.window.chunk(self.number)


class RowStore(NamedTuple):
    """Rows of numbers on the device, and the sequences of a window among them.

    Attributes
    ----------
    values : (S, C) float64 tensor
        All data.
    begins : (N,) int64 tensor
        First step of each sequence.
    is_fused : bool
        Whether the family has kernels of its own for them.
    range : (2, C) array or None
        As in `TensorRows`.
    is_shared : bool
        Whether all windows have the same values.
    """

    values: Tensor
    begins: Tensor
    is_fused: bool
    range: NDArray[Any] | None
    is_shared: bool = False

    @classmethod
    def of(cls, family: DenseFamily, data: Sequences, device: Any) -> RowStore:
        """Encode sequences and copy them to the device, one after another."""
        encoded = np.ascontiguousarray(family.encode(data), dtype=np.float64)
        found = None
        if family.fused and getattr(family, "discrete", isinstance(family, Bernoulli)):
            lows, tops, _ = extremes(encoded, n_threads=1)
            known = tops >= lows  # unless all are missing
            lows, tops = np.where(known, lows, 0.0), np.where(known, tops, 0.0)
            found = np.stack([lows, tops]) if tops.max() < MOST_VALUES else None
        begins = to_device(data.offsets[:-1], device)
        return cls(to_device(encoded, device), begins, family.fused, found)

    def encoded(self, values: Tensor, n_sequences: int) -> Any:
        """Return rows as the family takes them."""
        return TensorRows(values, n_sequences, self.range) if self.is_fused else values


class Window:
    """Several minibatches on the device, ready for the kernels.

    Parameters
    ----------
    family : Family
    encoded : tensor, `RowStore`, or what `Family.encode` gives with tensors
        Encoded values of all steps, concatenated; or where they are.
    lengths : (N,) int64 tensor
        Lengths of all sequences.
    longest : int
        Upper bound on the lengths.
    edges : list of int
        First step of each minibatch, and the total number of steps.
    batch_size : int
        Sequences per minibatch; the last may have fewer.
    host : callable
        Returns minibatch b on the host.
    is_complete : bool
        Whether it is known that no symbol is missing.
    is_tiled : bool
        Whether minibatches consist of tiles.
    is_known : bool
        Whether steps have labels, or sequences weights.
    """

    def __init__(
        self,
        family: Family,
        encoded: Any,
        lengths: Tensor,
        longest: int,
        edges: list[int],
        batch_size: int,
        host: Callable[[int], Sequences],
        is_complete: bool,
        *,
        is_tiled: bool = False,
        is_known: bool = False,
    ) -> None:
        n, self.device = len(lengths), lengths.device
        device = self.device
        self.family = family
        self.batch_size = batch_size
        self.n_batches = -(-n // batch_size)
        self._encoded, self._lengths = encoded, lengths
        self._host = host
        self.is_complete = is_complete
        self.is_tiled = is_tiled
        self.is_known = is_known
        self._edges = edges
        begins = to_device(np.array(edges), device)
        number = torch.arange(n, device=device)
        batch = number // batch_size
        self._offsets = torch.zeros(n + self.n_batches, dtype=torch.int64, device=device)
        self._offsets[number + batch + 1] = torch.cumsum(lengths, 0) - begins[batch]
        keys = batch * (longest + 1) + (longest - lengths)
        if self.n_batches * (longest + 1) < 2**31:
            keys = keys.int()  # half the work to sort
        self._order = torch.argsort(keys, stable=True) - batch * batch_size
        self._sorted = None
        if isinstance(family, Categorical):
            n_symbols = family.n_statistics
            self._sorted = cuda.find_segments(encoded, begins, n_symbols, self.largest)

    @property
    def is_sorted(self) -> bool:
        """Whether the data are symbols, sorted."""
        return self._sorted is not None

    @property
    def store(self) -> RowStore | None:
        """The data of a window of rows of numbers."""
        return self._encoded if isinstance(self._encoded, RowStore) else None

    def lend(self, stream: Any) -> None:
        """Keep freed memory from being reused until a stream is done with it."""
        own = [self._offsets, self._order]
        if self._sorted is not None:
            segments, begins, _ = self._sorted
            own += [self._encoded, *segments, begins]
        if self.store is not None:
            own += self.store[:2]
        for tensor in own:
            tensor.record_stream(stream)

    def sizes(self, b: int) -> tuple[int, int]:
        """Return the number of sequences and of steps of a minibatch."""
        last = len(self._order) - b * self.batch_size
        return min(self.batch_size, last), self._edges[b + 1] - self._edges[b]

    @property
    def largest(self) -> int:
        """Largest number of steps that a minibatch has."""
        return int(np.diff(self._edges).max())

    def capacity(self) -> tuple[int, int]:
        """Return the largest number of steps and of symbols that a minibatch has."""
        assert self._sorted is not None
        *_, n_steps, n_symbols = zip(*self._sorted.layout, strict=True)
        return max(n_steps), max(n_symbols)

    def tensors(self, rates: Tensor) -> tuple[Tensor, ...]:
        """Return what `cuda.load_minibatch` or `cuda.load_rows` takes the minibatches from."""
        own = (self._offsets, self._order, rates)
        if self.store is not None:
            return (self.store.begins, *own)
        assert self._sorted is not None
        return (self._encoded, *self._sorted.segments, *own, self._sorted.begins)

    def __iter__(self) -> Iterator[WindowBatch]:
        """Yield the minibatches, each cut out only when it is needed."""
        for b in range(self.n_batches):
            yield WindowBatch(self, b, *self.sizes(b))

    def _gathered(self, store: RowStore, begin: int, n: int, n_steps: int) -> Any:
        """Return the rows of some sequences, one after another."""
        if n_steps == len(store.values):
            return store.encoded(store.values, n)
        own = slice(begin, begin + n)
        rows = cuda.gather_sequences(store.values, store.begins[own], self._lengths[own], n_steps)
        return store.encoded(rows, n)

    def chunk(self, b: int) -> Chunk:
        """Return one minibatch."""
        n, n_steps = self.sizes(b)
        begin = b * self.batch_size
        steps = slice(self._edges[b], self._edges[b] + n_steps)
        encoded = self._encoded
        if self._sorted is not None:
            encoded = TensorSymbols(
                encoded[steps],
                self._sorted.batch(b),
                self.is_complete,
            )
        elif self.store is not None:
            encoded = self._gathered(self.store, begin, n, n_steps)
        own = self._host(b) if self.is_tiled or self.is_known else None
        batch = DeviceBatch(
            self._offsets[begin + b : begin + b + n + 1],
            self._order[begin : begin + n],
            n,
            n_steps,
            self.family,
            lambda: self._host(b),
            False,
            None if own is None else own.counted,
            None if own is None else own.labels,
            None if own is None else own.weights,
        )
        return Chunk(batch, encoded)


def chunks_on_device(
    family: Family, data: Sequences, n_states: int, device: Any
) -> Iterator[Chunk]:
    """Cut sequences into chunks that fit, and place each on the device."""
    for same in of_equal_weight(data):
        for part in same.chunks(most_steps(n_states)):
            yield uploaded(family, [part], device).chunk(0)


def most_steps(n_states: int) -> int:
    """Return the number of steps of a chunk that fits."""
    return max(1, CHUNK_NUMBERS // n_states)


def uploaded(family: Family, batches: list[Sequences], device: Any) -> Window:
    """Copy minibatches to the device, equal in size except for the last."""
    data = joined(batches)
    if isinstance(family, Categorical):
        encoded, is_complete = place_symbols(family, data.values, device)
    elif isinstance(family, DenseFamily):
        encoded, is_complete = RowStore.of(family, data, device), False
    else:
        encoded, is_complete = to_device(family.encode(data), device), False
    edges = np.cumsum([0, *(batch.n_steps for batch in batches)]).tolist()
    return Window(
        family,
        encoded,
        to_device(data.lengths, device),
        int(data.lengths.max()),
        edges,
        len(batches[0]),
        batches.__getitem__,
        is_complete,
        is_tiled=data.counted is not None,
        is_known=data.labels is not None or data.weights is not None,
    )


def place_symbols(family: Categorical, values: NDArray[Any], device: Any) -> tuple[Tensor, bool]:
    """Copy symbols, missing ones as V; return them, and whether none is missing."""
    moved = to_device(values, device)
    return torch.where(moved < 0, family.n_statistics, moved).int(), bool(values.min() >= 0)
