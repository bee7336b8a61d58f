"""Training on a GPU: data, minibatches and steps that stay there.

The host only says what comes next.  It looks at a number of the device twice: at the sizes of a
window of many minibatches, and at the end of a pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from sojourn.families import Categorical, Family
from sojourn.families.tensors import TensorSymbols as DeviceSymbols
from sojourn.inference.local import Chunk, Engine, sum_log_base
from sojourn.inference.objective import Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.schedule import StepSizes, rates
from sojourn.inference.statistics import BatchSums
from sojourn.kernels import gpu
from sojourn.kernels.arrays import is_tensor, to_device
from sojourn.kernels.threads import Background
from sojourn.sequences import Sequences
from sojourn.sources import MemorySource, Minibatches
from sojourn.sources.base import joined
from sojourn.transitions import Concentrations, PriorCounts, Rows

Tensor = Any

WINDOW_STEPS = 2**24
"""Steps of minibatches that are sorted together, where the data are on the device."""

STREAM_STEPS = 2**20
"""The same where they are copied there."""

_ORDERS = 3
"""Passes whose sequences are shuffled at a time: the device may be faster than that is."""

CHUNK_NUMBERS = 2**28
"""Numbers in an array of one row a step that is on the device at a time; a larger minibatch goes
in several chunks."""


def find_device() -> Any:
    """Return the device to compute on, or say why there is none."""
    if gpu.INTERPRETED:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError(
            f"device='cuda', but PyTorch {torch.__version__} finds no CUDA device here: use "
            "device='cpu', or install a build of PyTorch for the GPU of this machine"
        )
    return torch.device("cuda", torch.cuda.current_device())


@dataclass(frozen=True, eq=False)
class DeviceBatch:
    """Some sequences on the device: what `Sequences` is elsewhere.

    Attributes
    ----------
    offsets : (N + 1,) int64 tensor
    order : (N,) int64 tensor
        The sequences, longest first.
    n_sequences, n_steps : int
    family : Family
    host : callable
        Returns the same sequences on the host.
    """

    offsets: Tensor
    order: Tensor
    n_sequences: int
    n_steps: int
    family: Family
    host: Callable[[], Sequences]

    def __len__(self) -> int:
        return self.n_sequences

    @functools.cached_property
    def log_base(self) -> float:
        """Σ log h(x), which the host finds once."""
        return sum_log_base(self.family, self.host())


@dataclass(frozen=True, eq=False)
class WindowBatch:
    """A minibatch of a window: a chunk, or what a recorded step goes by.

    Attributes
    ----------
    window : Window
    number : int
        Its number there.
    n_sequences, n_steps : int
    """

    window: Window
    number: int
    n_sequences: int
    n_steps: int

    def __iter__(self) -> Iterator[Chunk]:
        yield self.window.chunk(self.number)


class Window:
    """Several minibatches on the device, ready for the kernels.

    Parameters
    ----------
    family : Family
    encoded : tensor, or what `Family.encode` gives with tensors
        Of all steps in a row.
    lengths : (N,) int64 tensor
        Lengths of all sequences.
    longest : int
        At least the largest of them.
    edges : list of int
        Where minibatches begin, and the number of steps.
    batch_size : int
        Sequences a minibatch; the last may have fewer.
    host : callable
        Returns minibatch b on the host.
    is_complete : bool
        Whether no symbol is missing for certain.
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
    ) -> None:
        n, device = len(lengths), lengths.device
        self.family = family
        self.batch_size = batch_size
        self.n_batches = -(-n // batch_size)
        self._encoded = encoded
        self._host = host
        self.is_complete = is_complete
        self._edges = edges
        begins = to_device(np.array(edges), device)
        number = torch.arange(n, device=device)
        batch = number // batch_size
        self._offsets = torch.zeros(n + self.n_batches, dtype=torch.int64, device=device)
        self._offsets[number + batch + 1] = torch.cumsum(lengths, 0) - begins[batch]
        order = torch.argsort(batch * (longest + 1) + (longest - lengths), stable=True)
        self._order = order - batch * batch_size
        self._sorted = None
        if isinstance(family, Categorical):
            largest = int(np.diff(edges).max())
            self._sorted = gpu.find_segments(encoded, begins, family.n_statistics, largest)

    @property
    def is_sorted(self) -> bool:
        """Whether the data are symbols, sorted."""
        return self._sorted is not None

    @property
    def begins(self) -> Tensor:
        """Where minibatches begin, for `gpu.load_minibatch`."""
        assert self._sorted is not None
        return self._sorted.begins

    def lend(self, stream: Any) -> None:
        """Keep the memory, when it is given up, until a stream is done with it."""
        assert self._sorted is not None
        segments, places, begins, _ = self._sorted
        for tensor in (self._encoded, self._offsets, self._order, *segments, places, begins):
            tensor.record_stream(stream)

    def sizes(self, b: int) -> tuple[int, int]:
        """Return the number of sequences and of steps of a minibatch."""
        last = len(self._order) - b * self.batch_size
        return min(self.batch_size, last), self._edges[b + 1] - self._edges[b]

    def capacity(self) -> tuple[int, int, int]:
        """Return the largest number of steps, pieces and symbols that a minibatch has."""
        assert self._sorted is not None
        _, _, _, *sizes = zip(*self._sorted.layout, strict=True)
        return max(sizes[0]), max(sizes[1]), max(sizes[2])

    def all(self, rates: Tensor) -> gpu.Minibatch:
        """Return everything, one minibatch after another."""
        assert self._sorted is not None
        return gpu.Minibatch(
            self._encoded,
            self._sorted.places,
            self._sorted.segments,
            self._offsets,
            self._order,
            rates,
        )

    def __iter__(self) -> Iterator[WindowBatch]:
        """Yield the minibatches, of which nothing is cut out before it is needed."""
        for b in range(self.n_batches):
            yield WindowBatch(self, b, *self.sizes(b))

    def chunk(self, b: int) -> Chunk:
        """Return one minibatch."""
        n, n_steps = self.sizes(b)
        begin = b * self.batch_size
        steps = slice(self._edges[b], self._edges[b] + n_steps)
        encoded = self._encoded
        if self._sorted is not None:
            encoded = DeviceSymbols(
                encoded[steps],
                self._sorted.places[steps],
                self._sorted.batch(b),
                self.is_complete,
            )
        elif self.n_batches > 1:
            encoded = encoded[steps]
        batch = DeviceBatch(
            self._offsets[begin + b : begin + b + n + 1],
            self._order[begin : begin + n],
            n,
            n_steps,
            self.family,
            lambda: self._host(b),
        )
        return Chunk(batch, encoded)


def chunks_on_device(
    family: Family, data: Sequences, n_states: int, device: Any
) -> Iterator[Chunk]:
    """Cut sequences into chunks that fit, and put each on the device."""
    for part in data.chunks(_most_steps(n_states)):
        yield _uploaded(family, [part], device).chunk(0)


def _most_steps(n_states: int) -> int:
    """Return the steps of a chunk that fits."""
    return max(1, CHUNK_NUMBERS // n_states)


def statistics_of_chunks(
    engine: Engine,
    posterior: Posterior,
    family: Family,
    objective: Objective,
    chunks: Iterable[Chunk],
    **wanted: bool,
) -> BatchSums:
    """Run the local step for chunks on the host, and bring the sums back there."""
    posterior = posterior.to_device(engine.device)
    n_states = posterior.emissions.n_states
    moved = (
        on_device
        for chunk in chunks
        for on_device in chunks_on_device(family, chunk.sequences, n_states, engine.device)
    )
    sums = engine.expected_statistics(posterior, family, objective, moved, **wanted).to_host()
    check_failures(engine.failures)
    return sums


def _uploaded(family: Family, batches: list[Sequences], device: Any) -> Window:
    """Copy minibatches of equal size, but for the last, to the device."""
    data = joined(batches)
    if isinstance(family, Categorical):
        encoded, is_complete = _symbols(family, data.values, device)
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
    )


def _symbols(family: Categorical, values: NDArray[Any], device: Any) -> tuple[Tensor, bool]:
    """Copy symbols, the missing one as the number after the last; and say whether none is."""
    moved = to_device(values, device)
    return torch.where(moved < 0, family.n_statistics, moved).int(), bool(values.min() >= 0)


def check_failures(failures: Tensor) -> None:
    """Wait for the device, and raise an error if a sequence had no possible path."""
    n_failures = int(failures)
    if n_failures:
        failures.zero_()
        raise FloatingPointError(
            f"{n_failures} times a sequence had no possible state path in the model's precision, "
            "and was left out: use dtype='float64', or device='cpu', which names it"
        )


class _Order(NamedTuple):
    """The order of a pass: numbers of sequences, and where each ends when they stand in a row."""

    numbers: NDArray[np.int64]
    ends: NDArray[np.int64]


class DeviceBatches:
    """The minibatches of a source, on the device: all data are there if they fit.

    Parameters
    ----------
    family : Family
    source : Minibatches
    n_states : int
    engine : Engine
        The device's.
    """

    def __init__(self, family: Family, source: Minibatches, n_states: int, engine: Engine) -> None:
        self.n_states = n_states  # which moves may change
        self._family = family
        self._source = source
        self._failures = engine.failures
        self._device = device = engine.device
        self._values: Tensor | None = None
        self._coming: dict[int, Background] = {}
        self._order_of: tuple[int, _Order, Tensor] | None = None
        self._ahead: tuple[tuple[int, int], Window] | None = None
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if isinstance(source, MemorySource) and self._fits(source.data):
            assert isinstance(family, Categorical)
            self._offsets = to_device(source.data.offsets, device)
            self._values, self._is_complete = _symbols(family, source.data.values, device)
            self._longest = int(source.data.lengths.max())
            self._lengths = source.data.lengths.astype(np.int32)
            # Memory that is copied from without the host, for orders that are made side by side.
            rooms = (torch.empty(len(source.data), dtype=torch.int64) for _ in range(_ORDERS))
            is_cuda = device.type == "cuda"
            self._rooms = [room.pin_memory() if is_cuda else room for room in rooms]
            if self._stream is not None:
                self._stream.wait_stream(torch.cuda.current_stream(device))

    def _fits(self, data: Sequences) -> bool:
        # Other families than these look at more than one step at a time, or at the host's arrays.
        if not isinstance(self._family, Categorical):
            return False
        if self._device.type != "cuda":
            return True
        free, _ = torch.cuda.mem_get_info(self._device)
        return data.values.nbytes + data.offsets.nbytes < free // 2

    def check(self) -> None:
        """Wait for the device, and refuse to go on if a sequence had no possible path."""
        check_failures(self._failures)

    def batches(self, n_pass: int, start: int, n_more: int = 0) -> Iterator[Iterable[Chunk]]:
        """Yield the minibatches of a pass as chunks, without the first `start`.

        So many passes come after it.
        """
        if self._values is not None:
            assert isinstance(self._source, MemorySource)
            yield from self._resident(self._source, n_pass, start, n_more)
            return
        family, device = self._family, self._device
        most = _most_steps(self.n_states)
        window: list[Sequences] = []
        for batch in self._source.batches(n_pass, start):
            if not isinstance(batch, Sequences) or batch.n_steps > most:
                yield from self._windows(window)
                window = []
                pieces = [batch] if isinstance(batch, Sequences) else batch
                yield (
                    chunk
                    for piece in pieces
                    for chunk in chunks_on_device(family, piece, self.n_states, device)
                )
                continue
            window.append(batch)
            several = isinstance(family, Categorical)
            if not several or sum(part.n_steps for part in window) >= STREAM_STEPS:
                yield from self._windows(window)
                window = []
        yield from self._windows(window)

    def _windows(self, batches: list[Sequences]) -> Iterator[Iterable[Chunk]]:
        """Copy minibatches to the device; the last of them may be smaller."""
        if batches:
            yield from self._beside(lambda: _uploaded(self._family, batches, self._device))

    def _beside(self, make: Callable[[], Window]) -> Window:
        """Make a window while the device is busy with the steps of the one before."""
        if self._stream is None or not isinstance(self._family, Categorical):
            return make()
        main = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._stream):
            window = make()
        window.lend(main)
        main.wait_stream(self._stream)
        return window

    def _make_order(self, source: MemorySource, n_pass: int) -> _Order:
        """Shuffle; of the device nothing is touched: a step may be recorded at that moment."""
        numbers = source.draw_order(n_pass)
        self._rooms[n_pass % _ORDERS].numpy()[:] = numbers
        ends = np.zeros(len(numbers) + 1, dtype=np.int64)
        np.cumsum(self._lengths.take(numbers), out=ends[1:])
        return _Order(numbers, ends)

    def _order(self, source: MemorySource, n_pass: int, n_more: int) -> tuple[_Order, Tensor]:
        """Return the order of a pass, on the host and on the device, and begin with the next."""
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
        self, source: MemorySource, n_pass: int, start: int, n_more: int
    ) -> Iterator[Iterable[Chunk]]:
        """Gather minibatches from the data on the device."""
        data = source.data
        size = len(data) if source.is_whole else source.batch_size
        assert size is not None
        steps_of_one = max(1.0, size * data.n_steps / len(data))
        if steps_of_one > _most_steps(self.n_states):
            order = source.order(n_pass)
            for begin in range(start * size, len(data), size):
                own = data.take(order[begin : begin + size])
                yield chunks_on_device(self._family, own, self.n_states, self._device)
            return
        at_a_time = size * max(1, int(WINDOW_STEPS / steps_of_one))
        for begin in range(start * size, len(data), at_a_time):
            part = slice(begin, begin + at_a_time)
            yield from self._gathered(source, n_pass, n_more, part, size)
            # While the device is busy, what comes next; at the end of a pass it is waited for.
            if part.stop < len(data):
                coming = slice(part.stop, part.stop + at_a_time)
                self._make_ahead(source, n_pass, n_more, coming, size)
            elif n_more:
                self._make_ahead(source, n_pass + 1, n_more - 1, slice(0, at_a_time), size)

    def _make_ahead(
        self, source: MemorySource, n_pass: int, n_more: int, part: slice, size: int
    ) -> None:
        window = self._gathered(source, n_pass, n_more, part, size)
        self._ahead = ((n_pass, part.start), window)

    def _gathered(
        self, source: MemorySource, n_pass: int, n_more: int, part: slice, size: int
    ) -> Window:
        """Return some minibatches of a pass, made ahead of time or now."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == (n_pass, part.start):
            return ahead[1]

        def make() -> Window:
            order, numbers = self._order(source, n_pass, n_more)
            numbers, own = numbers[part], order.numbers[part]
            ends = order.ends[part.start : part.start + len(own) + 1]
            begins = self._offsets[numbers]
            lengths = self._offsets[numbers + 1] - begins
            return Window(
                self._family,
                gpu.gather_sequences(self._values, begins, lengths, int(ends[-1] - ends[0])),
                lengths,
                self._longest,
                (np.append(ends[:-1:size], ends[-1]) - ends[0]).tolist(),
                size,
                lambda b: source.data.take(own[b * size : (b + 1) * size]),
                self._is_complete,
            )

        return self._beside(make)


Move = Callable[[Posterior, list[Chunk], Any, Any], BatchSums]
"""``move(posterior, chunks, keep, weight)``: the local step, and the blend of what it gives."""


def can_record(device: Any) -> bool:
    """Whether a device replays what it did; the interpreter does not."""
    return bool(device.type == "cuda")


def recording(
    engine: Engine, posterior: Posterior, schedule: StepSizes, total_sequences: int
) -> Engine:
    """Return the engine with a recorder for the states that there are, where it can record.

    What is recorded has the sizes of its moment: after a move it begins anew.
    """
    if not can_record(engine.device):
        return engine
    dtype = engine.dtype or posterior.emissions.dtype
    is_able = engine.kernel.is_narrow(posterior.n_states, dtype)
    return replace(engine, recorder=Recorder(schedule, total_sequences, is_able=is_able))


class Recorder:
    """A step that is recorded once, as a CUDA graph, and then replayed.

    What the step of a minibatch launches is always the same.  Where the minibatch is, its rates and
    the prior differ: they are read from places on the device that stay the same.  A replay costs
    the host a few microseconds, where launches one by one would cost it more than the device takes
    to carry them out.

    Parameters
    ----------
    schedule : callable
        Step sizes.
    total_sequences : int
    is_able : bool
        Whether steps can be recorded: with many states the host takes part in them.
    """

    def __init__(self, schedule: StepSizes, total_sequences: int, *, is_able: bool = True) -> None:
        self._is_able = is_able
        self._schedule = schedule
        self._total = total_sequences
        self._window: Window | None = None
        self._place: _Place | None = None
        self._recording: _Recording | None = None
        self._update: _RecordedUpdate | None = None
        self._next = -1

    def takes(self, batch: Any) -> bool:
        """Whether a batch is one of a window of equal ones, of symbols, and not too small."""
        if not isinstance(batch, WindowBatch) or batch.window.n_batches == 1 or not self._is_able:
            return False
        return batch.window.is_sorted and batch.n_sequences == batch.window.batch_size

    def replay(self, move: Move, posterior: Posterior, batch: WindowBatch) -> BatchSums:
        """Do what ``move`` would do to the posterior, and return the sums.

        The sums are overwritten by the next replay.
        """
        if batch.window is not self._window:
            self._load(batch.window, posterior.n_updates - batch.number)
        assert self._place is not None
        if batch.number != self._next:
            self._place.number.fill_(batch.number)
        known = None if self._update is None else self._update.prior
        if self._recording is None or not self._recording.serves(posterior, known):
            # It is tried out on this minibatch: the one after may not be there.
            chunk = self._place.chunk(batch.window)
            self._recording = _Recording(move, posterior, chunk, self._place)
        self._next = batch.number + 1
        return self._recording.replay(posterior, batch)

    def update(self, transitions: Any, total_sequences: int) -> Any:
        """Do what ``transitions.updated(total_sequences)`` would do."""
        key = (total_sequences, transitions.n_pending)
        if transitions.n_updates == 0:
            return transitions.updated(total_sequences)
        if self._update is None or self._update.key != key:
            self._update = _RecordedUpdate(transitions, total_sequences)
        return self._update.replay(transitions)

    def _load(self, window: Window, n_updates: int) -> None:
        """Copy a window to the place that the recorded step reads, or make a larger one."""
        own = [
            rates(self._schedule, n_updates + 1 + b, self._total / window.batch_size)
            for b in range(window.n_batches)
        ]
        source = window.all(to_device(np.array(own).reshape(-1), window.begins.device))
        if self._place is None or not self._place.holds(source, window):
            self._place, self._recording = _Place(source, window), None
        self._place.load(source, window.begins)
        self._window, self._next = window, -1


class _Place:
    """Where a recorded step finds its minibatch: a window, and one minibatch taken out of it."""

    def __init__(self, source: gpu.Minibatch, window: Window) -> None:
        self._n_symbols = window.family.n_statistics
        self._batch_size = n = window.batch_size
        self._is_complete = window.is_complete
        # A tenth more than needed: the next window may be a little larger.
        roomy = [len(tensor) + len(tensor) // 10 + 16 for tensor in source.tensors()]
        steps, pieces, symbols = (size + size // 10 + 16 for size in window.capacity())
        one = [steps, steps, steps, pieces + 1, symbols, symbols + 1, 2, n + 1, n, 2]
        self._window, self.batch = (
            gpu.Minibatch.of(
                torch.zeros(size, dtype=tensor.dtype, device=tensor.device)
                for tensor, size in zip(source.tensors(), sizes, strict=True)
            )
            for sizes in (roomy, one)
        )
        begins = window.begins
        self._begins = torch.zeros(
            (len(begins) + len(begins) // 10 + 16, begins.shape[1]),
            dtype=begins.dtype,
            device=begins.device,
        )
        self.number = torch.zeros(1, dtype=torch.int64, device=begins.device)

    def holds(self, source: gpu.Minibatch, window: Window) -> bool:
        """Whether a window and each of its minibatches fits in."""
        steps, pieces, symbols = window.capacity()
        return (
            window.batch_size == self._batch_size
            and window.is_complete == self._is_complete
            and all(
                len(tensor) <= len(room)
                for tensor, room in zip(source.tensors(), self._window.tensors(), strict=True)
            )
            and len(window.begins) <= len(self._begins)
            and steps <= len(self.batch.index)
            and pieces < len(self.batch.segments.pieces)
            and symbols <= len(self.batch.segments.symbols)
        )

    def load(self, source: gpu.Minibatch, begins: Tensor) -> None:
        """Put a window in."""
        for tensor, room in zip(source.tensors(), self._window.tensors(), strict=True):
            room[: len(tensor)] = tensor
        self._begins[: len(begins)] = begins

    def take_out(self) -> None:
        """Take out the next minibatch."""
        gpu.load_minibatch(self.batch, self._window, self._begins, self.number, self._n_symbols)
        self.number += 1

    def chunk(self, window: Window) -> Chunk:
        """Return the minibatch that is taken out, with room to spare, as a chunk."""
        batch = self.batch
        encoded = DeviceSymbols(batch.index, batch.places, batch.segments, window.is_complete)
        sequences = DeviceBatch(
            batch.offsets,
            batch.order,
            window.batch_size,
            len(batch.index),
            window.family,
            _not_on_the_host,
        )
        return Chunk(sequences, encoded)


def _not_on_the_host() -> Sequences:
    raise AssertionError("a recorded step looks at the device only")


class _Still(NamedTuple):
    """A prior that stays where it is in memory, while the numbers in it change."""

    prior: PriorCounts

    def prior_counts(self) -> PriorCounts:
        """Return the prior, as `Transitions` does."""
        return self.prior

    def concentrations(self, counts: Rows) -> Concentrations:
        """Return the parameters of the update, as `Transitions` does."""
        return self.prior.plus(counts)


class _Recording:
    """The recorded step, and the numbers that it reads and changes.

    Parameters
    ----------
    move : callable
    posterior : Posterior
        Left as it is.
    chunk : Chunk
        The minibatch that `place` takes out.
    place : _Place
    """

    def __init__(self, move: Move, posterior: Posterior, chunk: Chunk, place: _Place) -> None:
        self._emissions, self._place = posterior.emissions, place
        self._counts = Rows(*(torch.clone(cast(Any, part)) for part in posterior.counts))
        self._prior = posterior.transitions.prior_counts()
        self._n_updates = posterior.transitions.n_updates
        still = Posterior(self._counts, posterior.emissions, cast(Any, _Still(self._prior)))
        keep, weight = place.batch.rates

        def run() -> BatchSums:
            place.take_out()
            still.counts = self._counts
            sums = move(still, [chunk], keep, weight)
            _copy(still.counts, self._counts)
            return sums

        before = [tensor.clone() for tensor in self._changed()]
        self._graph, self._sums = _recorded(run, lambda: _copy(before, self._changed()))

    def _changed(self) -> tuple[Tensor, ...]:
        table = self._emissions
        return (*self._counts, table.rows, table.scale, table.totals, self._place.number)

    def serves(self, posterior: Posterior, known: PriorCounts | None) -> bool:
        """Whether it is this posterior that the recorded step changes; take in its new prior.

        `known` is the prior that a recorded update has found.
        """
        if posterior.emissions is not self._emissions:
            return False
        if posterior.transitions.n_updates != self._n_updates:
            rows, total = posterior.transitions.prior_counts() if known is None else known
            if (total is None) != (self._prior.total is None):
                return False
            _copy(rows, self._prior.rows)
            for one, other in zip(_totals(total), _totals(self._prior.total), strict=True):
                if is_tensor(one):
                    other.copy_(one)
            self._n_updates = posterior.transitions.n_updates
        return True

    def replay(self, posterior: Posterior, batch: WindowBatch) -> BatchSums:
        """Run the step on the device."""
        if posterior.counts is not self._counts:
            _copy(posterior.counts, self._counts)
            posterior.counts = self._counts
        self._graph.replay()
        return replace(self._sums, n_sequences=batch.n_sequences, n_steps=batch.n_steps)


class _RecordedUpdate:
    """The recorded update of what a prior on transitions keeps beside the counts.

    Parameters
    ----------
    transitions : Transitions
        With a large batch that is full; its ``updated(total_sequences, step_size)`` is recorded.
    total_sequences : int
    """

    def __init__(self, transitions: Any, total_sequences: int) -> None:
        self.key = (total_sequences, transitions.n_pending)
        self._inputs: list[Tensor] = []

        def own(tensor: Tensor) -> Tensor:
            self._inputs.append(tensor.clone())
            return self._inputs[-1]

        still = transitions.converted(own)
        self._step_size = torch.zeros((), dtype=torch.float64, device=self._inputs[0].device)

        def run() -> tuple[Any, PriorCounts]:
            updated = still.updated(total_sequences, self._step_size)
            return updated, updated.prior_counts()

        self._graph, (self._updated, self.prior) = _recorded(run, lambda: None)

    def replay(self, transitions: Any) -> Any:
        """Run the update on the device.  What it gives is overwritten by the next."""
        tensors: list[Tensor] = []
        transitions.converted(tensors.append)
        _copy(tensors, self._inputs)
        self._step_size.fill_(transitions.step_size)
        self._graph.replay()
        return replace(self._updated, n_updates=transitions.n_updates + 1)


def _recorded(run: Callable[[], Any], restore: Callable[[], None]) -> tuple[Any, Any]:
    """Run something once, which compiles what it launches, put things back, and record it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    restore()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = run()
    return graph, result


def _totals(total: Any) -> Iterable[Any]:
    """Return what normalises the start and what the rows, or what both."""
    return total if isinstance(total, Rows) else (total,)


def _copy(source: Iterable[Tensor], target: Iterable[Tensor]) -> None:
    for one, other in zip(source, target, strict=True):
        other.copy_(one)
