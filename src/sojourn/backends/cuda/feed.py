"""Minibatches of a source on a GPU: gathered from data on the device, or copied ahead."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sojourn.backends.cuda.windows import (
    RowStore,
    Window,
    chunks_on_device,
    most_steps,
    place_symbols,
    uploaded,
)
from sojourn.families import Categorical, Family
from sojourn.families.dense import DenseFamily
from sojourn.inference.backend import Chunk
from sojourn.kernels import cuda
from sojourn.kernels.arrays import to_device
from sojourn.kernels.threads import Background
from sojourn.sequences import Sequences
from sojourn.sources import MemorySource, Minibatches
from sojourn.sources.base import joined, pieces_of

Tensor = Any

WINDOW_STEPS = 2**24
"""Steps of minibatches that are sorted together, if the data are on the device."""

STREAM_STEPS = 2**20
"""The same if minibatches are copied to the device."""

_ORDERS = 4
"""Passes that are shuffled ahead at the same time: the device may be faster than shuffling."""


class _Order(NamedTuple):
    """The order of a pass: indices of sequences, and where each ends when concatenated."""

    numbers: NDArray[np.int64]
    ends: NDArray[np.int64]


class Feed:
    """The minibatches of a source, on the device; all data are copied there if they fit.

    Parameters
    ----------
    family : Family
    source : Minibatches
    device : torch.device
    """

    def __init__(self, family: Family, source: Minibatches, device: Any) -> None:
        self.source = source
        self._family = family
        self._device = device
        self._values: Tensor | RowStore | None = None
        self._coming: dict[int, Background] = {}
        self._is_compiled = False
        self._order_of: tuple[int, _Order, Tensor] | None = None
        self._ahead: tuple[tuple[int, int, int], Window] | None = None
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if isinstance(source, MemorySource) and self._fits(source.data):
            self._offsets = to_device(source.data.offsets, device)
            self._is_complete = False
            if isinstance(family, Categorical):
                self._values, self._is_complete = place_symbols(family, source.data.values, device)
            else:
                assert isinstance(family, DenseFamily)
                self._values = RowStore.of(family, source.data, device)
            self._longest = int(source.data.lengths.max())
            self._lengths = source.data.lengths.astype(np.int32)
            # Pinned memory, for orders that are made in parallel.
            rooms = (torch.empty(len(source.data), dtype=torch.int64) for _ in range(_ORDERS))
            is_cuda = device.type == "cuda"
            self._rooms = [room.pin_memory() if is_cuda else room for room in rooms]
            if self._stream is not None:
                self._stream.wait_stream(torch.cuda.current_stream(device))

    def _fits(self, data: Sequences) -> bool:
        # Others have several arrays.
        if not isinstance(self._family, Categorical | DenseFamily) or _is_known(data):
            return False
        if self._device.type != "cuda":
            return True
        size = data.values.nbytes
        if isinstance(self._family, DenseFamily):
            size = 8 * data.n_steps * self._family.encode(data[:1]).shape[1]
        free, _ = torch.cuda.mem_get_info(self._device)
        return size + data.offsets.nbytes < free // 2

    def batches(
        self, n_states: int, n_pass: int, start: int, n_more: int = 0
    ) -> Iterator[Iterable[Chunk]]:
        """Yield the minibatches of a pass as chunks, without the first `start`.

        Parameters
        ----------
        n_states : int
            Current number of states of the model.
        n_pass, start : int
        n_more : int
            Number of passes after this one.
        """
        if self._values is not None:
            assert isinstance(self.source, MemorySource)
            yield from self._resident(self.source, n_states, n_pass, start, n_more)
            return
        family, device = self._family, self._device
        most = most_steps(n_states)
        window: list[Sequences] = []
        for batch in self.source.batches(n_pass, start):
            if not isinstance(batch, Sequences) or batch.n_steps > most or _is_known(batch):
                yield from self._windows(window)
                window = []
                yield (
                    chunk
                    for piece in pieces_of(batch)
                    for chunk in chunks_on_device(family, piece, n_states, device)
                )
                continue
            window.append(batch)
            several = isinstance(family, Categorical)
            if not several or sum(part.n_steps for part in window) >= STREAM_STEPS:
                yield from self._windows(window)
                window = []
        yield from self._windows(window)

    def pieces(self, n_states: int, n_pass: int) -> Iterator[Iterable[Chunk]]:
        """Yield all the data of a pass as chunks, several minibatches together."""
        most, source = min(most_steps(n_states), WINDOW_STEPS) // 4, self.source
        if self._values is not None:
            assert isinstance(source, MemorySource)
            size = max(1, int(most * len(source.data) / source.data.n_steps))
            ends = np.asarray(source.data.offsets, np.int64)
            for begin in range(0, len(source.data), size):
                own = np.arange(begin, min(begin + size, len(source.data)))
                yield from self._window(source, own, ends[begin : begin + len(own) + 1], size)
            return
        waiting: list[Sequences] = []
        n_waiting = 0
        for piece in (piece for batch in source.batches(n_pass) for piece in pieces_of(batch)):
            if waiting and n_waiting + piece.n_steps > most:
                yield self._together(waiting, n_states)
                waiting, n_waiting = [], 0
            waiting.append(piece)
            n_waiting += piece.n_steps
        yield self._together(waiting, n_states)

    def _together(self, parts: list[Sequences], n_states: int) -> Iterable[Chunk]:
        return chunks_on_device(self._family, joined(parts), n_states, self._device)

    def _windows(self, batches: list[Sequences]) -> Iterator[Iterable[Chunk]]:
        """Copy minibatches to the device; the last of them may be smaller."""
        if batches:
            yield from self._beside(lambda: uploaded(self._family, batches, self._device))

    def _beside(self, make: Callable[[], Window]) -> Window:
        """Make a window while the device computes the steps of the previous one."""
        if self._stream is None or not isinstance(self._family, Categorical | DenseFamily):
            return make()
        main = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._stream):
            if not self._is_compiled:
                with cuda.compiled_together():
                    make()
                self._is_compiled = True
            window = make()
        window.lend(main)
        main.wait_stream(self._stream)
        return window

    def _make_order(self, source: MemorySource, n_pass: int) -> _Order:
        """Shuffle without using the device, where a step may be being recorded."""
        numbers = source.draw_order(n_pass)
        self._rooms[n_pass % _ORDERS].numpy()[:] = numbers
        ends = np.zeros(len(numbers) + 1, dtype=np.int64)
        np.cumsum(self._lengths.take(numbers), out=ends[1:])
        return _Order(numbers, ends)

    def _order(self, source: MemorySource, n_pass: int, n_more: int) -> tuple[_Order, Tensor]:
        """Return the order of a pass, on host and device, and start on the next one."""
        if self._order_of is None or self._order_of[0] != n_pass:
            coming = self._coming.pop(n_pass, None)
            made = self._make_order(source, n_pass) if coming is None else coming.result()
            numbers = self._rooms[n_pass % _ORDERS].to(self._device, non_blocking=True, copy=True)
            self._order_of = (n_pass, made, numbers)
            for later in range(n_pass + 1, n_pass + min(n_more + 1, _ORDERS)):
                if later not in self._coming:
                    make = functools.partial(self._make_order, source, later)
                    self._coming[later] = Background(make)
        return self._order_of[1:]

    def _resident(
        self, source: MemorySource, n_states: int, n_pass: int, start: int, n_more: int
    ) -> Iterator[Iterable[Chunk]]:
        """Gather minibatches from the data on the device."""
        data = source.data
        size = len(data) if source.is_whole else source.batch_size
        assert size is not None
        steps_of_one = max(1.0, size * data.n_steps / len(data))
        if steps_of_one > most_steps(n_states):
            order = source.order(n_pass)
            for begin in range(start * size, len(data), size):
                own = data.take(order[begin : begin + size])
                yield chunks_on_device(self._family, own, n_states, self._device)
            return
        at_a_time = size * max(1, int(WINDOW_STEPS / steps_of_one))
        for begin in range(start * size, len(data), at_a_time):
            part = slice(begin, begin + at_a_time)
            yield from self._gathered(source, n_pass, n_more, part, size)
            # Prepare the next while the device is busy; at the end of a pass the host waits for it.
            if part.stop < len(data):
                coming = slice(part.stop, part.stop + at_a_time)
                self._make_ahead(source, n_pass, n_more, coming, size)
            elif n_more:
                self._make_ahead(source, n_pass + 1, n_more - 1, slice(0, at_a_time), size)

    @property
    def coming(self) -> Window | None:
        """The first window of the next pass, if it has been made."""
        return None if self._ahead is None else self._ahead[1]

    def _make_ahead(
        self, source: MemorySource, n_pass: int, n_more: int, part: slice, size: int
    ) -> None:
        window = self._gathered(source, n_pass, n_more, part, size)
        self._ahead = ((n_pass, part.start, size), window)

    def _gathered(
        self, source: MemorySource, n_pass: int, n_more: int, part: slice, size: int
    ) -> Window:
        """Return minibatches of a pass, made ahead of time or now."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == (n_pass, part.start, size):
            return ahead[1]

        def make() -> Window:
            order, numbers = self._order(source, n_pass, n_more)
            own = order.numbers[part]
            ends = order.ends[part.start : part.start + len(own) + 1]
            return self._window(source, own, ends, size, numbers[part])

        return self._beside(make)

    def _window(
        self,
        source: MemorySource,
        own: NDArray[np.int64],
        ends: NDArray[np.int64],
        size: int,
        numbers: Tensor | None = None,
    ) -> Window:
        """Return minibatches of `size` of these sequences; `numbers` are theirs on the device."""
        numbers = to_device(own, self._device) if numbers is None else numbers
        begins = self._offsets[numbers]
        lengths = self._offsets[numbers + 1] - begins
        values = self._values
        if isinstance(values, RowStore):
            encoded: Any = values._replace(begins=begins, is_shared=True)
        else:
            encoded = cuda.gather_sequences(values, begins, lengths, int(ends[-1] - ends[0]))
        return Window(
            self._family,
            encoded,
            lengths,
            self._longest,
            (np.append(ends[:-1:size], ends[-1]) - ends[0]).tolist(),
            size,
            lambda b: source.data.take(own[b * size : (b + 1) * size]),
            self._is_complete,
        )


def _is_known(data: Sequences) -> bool:
    """Whether steps have labels, or sequences weights: then steps are not recorded."""
    return data.labels is not None or data.weights is not None
