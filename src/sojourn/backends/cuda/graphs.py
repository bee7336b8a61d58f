"""Training steps, recorded once as CUDA graphs and then replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from sojourn.backends.cuda.windows import DeviceBatch, Window, WindowBatch
from sojourn.families.tensors import TensorSymbols
from sojourn.inference.backend import Chunk
from sojourn.inference.posterior import Posterior
from sojourn.inference.problem import Problem
from sojourn.inference.statistics import BatchSums
from sojourn.kernels import cuda
from sojourn.kernels.arrays import is_tensor, keeping, to_device
from sojourn.sequences import Sequences
from sojourn.transitions import Concentrations, PriorCounts, RowConstraints, Rows

Tensor = Any

_MANY = 4096
"""Sequences of a minibatch that leave nothing of the device for the next window to be made, if they
come first.  With 3,000 steps are faster first, with 10,000 slower (45 states, on an H200)."""

Advance = Callable[[Posterior, list[Chunk], Callable[[BatchSums], Any]], BatchSums]
"""``advance(posterior, chunks, rates)``: the local step, and the blend of its sums.

``rates(sums)`` returns the weights of the old statistics and of the minibatch.
"""


def can_record(device: Any) -> bool:
    """Whether a device can replay recorded work; Triton's interpreter cannot."""
    return bool(device.type == "cuda")


class Recorder:
    """A training step, recorded once as a CUDA graph and then replayed.

    The steps of all minibatches launch the same kernels.  The minibatch, its rates and the prior
    differ, and are read from fixed locations on the device.  A replay takes a few microseconds of
    the host's time; launching the kernels one by one would take longer than running them.

    Parameters
    ----------
    problem : Problem
    is_able : bool
        Whether steps can be recorded; with many states, parts of them run on the host.
    may_move : bool
        Whether states may move: what moves need is compiled with the first step.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        is_able: bool = True,
        may_move: bool = False,
    ) -> None:
        self._is_able, self._may_move = is_able, may_move
        self._problem = problem
        self._window: Window | None = None
        self._place: _Place | _RowPlace | None = None
        self._recording: _Recording | None = None
        self._update: _RecordedUpdate | None = None
        self._next, self._n_before = -1, 0

    def takes(self, batch: Any) -> bool:
        """Whether a batch belongs to a window of equal batches on the device, and is not small."""
        if not isinstance(batch, WindowBatch) or not self._takes_window(batch.window):
            return False
        return batch.n_sequences == batch.window.batch_size

    def _takes_window(self, window: Window) -> bool:
        is_resident = window.store is not None and window.store.is_shared
        is_plain = (window.is_sorted or is_resident) and not window.is_tiled
        return is_plain and window.n_batches > 1 and self._is_able

    def prepare(self, window: Window) -> None:
        """Load the window that follows, while the device is at the steps of the current one."""
        if self._window is not None and self._takes_window(window):
            self._load(window, self._n_before + self._window.n_batches)

    def replay(self, advance: Advance, posterior: Posterior, batch: WindowBatch) -> BatchSums:
        """Replay ``advance`` on the posterior, and return the sums.

        The sums are overwritten by the next replay.
        """
        n_before = posterior.n_updates - batch.number
        if batch.window is not self._window or n_before != self._n_before:
            self._load(batch.window, n_before)
        assert self._place is not None
        if batch.number != self._next:
            self._place.number.copy_(torch.tensor([batch.number, 0]), non_blocking=True)
        known = None if self._update is None else self._update.prior
        if self._recording is None or not self._recording.serves(posterior, known):
            # It is tried out on this minibatch, as there may be no next one.
            chunk = self._place.chunk(batch.window)
            total = self._problem.total_sequences
            self._recording = _Recording(
                advance, posterior, chunk, self._place, total, self._may_move
            )
        self._next = batch.number + 1
        return self._recording.replay(posterior, batch)

    def update(self, transitions: Any, total_sequences: int) -> Any:
        """Replay ``transitions.updated(total_sequences)``."""
        key = (total_sequences, transitions.n_pending)
        if transitions.n_updates == 0:
            return transitions.updated(total_sequences)
        if self._update is None or self._update.key != key:
            self._update = _RecordedUpdate(transitions, total_sequences)
        return self._update.replay(transitions)

    def _load(self, window: Window, n_before: int) -> None:
        """Have the recorded step read a window, or make more room for its minibatches."""
        own = [
            self._problem.rates(n_before + 1 + b, window.batch_size)
            for b in range(window.n_batches)
        ]
        if self._place is None or not self._place.holds(window):
            kind = _Place if window.store is None else _RowPlace
            self._place, self._recording = kind(window), None
        rates = to_device(np.array(own).reshape(-1), window.device)
        self._place.source.read(window.tensors(rates))
        self._window, self._next, self._n_before = window, -1, n_before


class _Source:
    """Where the tensors of a window are, in memory that a recorded step reads.

    So it reads one window after another, none of which is copied.
    """

    def __init__(self, n_tensors: int, device: Any) -> None:
        self.addresses = torch.zeros(n_tensors, dtype=torch.int64, device=device)
        self._tensors: tuple[Tensor, ...] = ()

    def read(self, tensors: tuple[Tensor, ...]) -> None:
        """Read other tensors, once the steps before are done."""
        self.addresses.copy_(to_device(cuda.addresses(tensors), self.addresses.device))
        self._tensors = tensors  # they are freed when the device is done with them


class _Place:
    """Memory that a recorded step reads: the current minibatch, and where the window is."""

    def __init__(self, window: Window) -> None:
        self._n_symbols = window.family.n_statistics
        self._batch_size = n = window.batch_size
        self._is_complete = window.is_complete
        # A tenth more than needed, as the next window may be a little larger.
        steps, symbols = (size + size // 10 + 16 for size in window.capacity())
        whole = [steps, steps, cuda.most_spans(steps), symbols, symbols + 1, 2]
        sizes = [(size, torch.int32) for size in whole]
        sizes += [(n + 1, torch.int64), (n, torch.int64), (2, torch.float64)]
        self.batch = cuda.Minibatch.of(
            torch.zeros(size, dtype=kind, device=window.device) for size, kind in sizes
        )
        self.source = _Source(len(sizes) + 1, window.device)
        self.number = torch.zeros(2, dtype=torch.int32, device=window.device)

    def holds(self, window: Window) -> bool:
        """Whether each minibatch of a window fits."""
        steps, symbols = window.capacity()
        return (
            window.batch_size == self._batch_size
            and window.is_complete == self._is_complete
            and steps <= len(self.batch.index)
            and symbols <= len(self.batch.segments.symbols)
        )

    def take_out(self) -> None:
        """Load the next minibatch."""
        cuda.load_minibatch(self.batch, self.source.addresses, self.number, self._n_symbols)

    def chunk(self, window: Window) -> Chunk:
        """Return the current minibatch, padded, as a chunk."""
        batch = self.batch
        encoded = TensorSymbols(batch.index, batch.segments, window.is_complete)
        sequences = DeviceBatch(
            batch.offsets,
            batch.order,
            window.batch_size,
            len(batch.index),
            window.family,
            _not_on_the_host,
        )
        return Chunk(sequences, encoded)


class _RowPlace:
    """The same for rows of numbers, which are gathered from all data as they are needed."""

    def __init__(self, window: Window) -> None:
        assert window.store is not None
        self._store, n = window.store, window.batch_size
        sizes = ((n + 1, torch.int64), (n, torch.int64), (2, torch.float64))
        self.batch = cuda.RowBatch(
            *(torch.zeros(size, dtype=kind, device=window.device) for size, kind in sizes)
        )
        self.source = _Source(len(sizes) + 1, window.device)
        # Beyond the steps of a minibatch stand those of others, and before that a possible one.
        room = window.largest + window.largest // 10 + 16
        self._values = self._store.values[:1].repeat(room, 1)
        self.number = torch.zeros(2, dtype=torch.int32, device=window.device)

    def holds(self, window: Window) -> bool:
        """Whether each minibatch of a window fits, and the data are the same."""
        assert window.store is not None
        return (
            window.store.values is self._store.values
            and window.batch_size == len(self.batch.order)
            and window.largest <= len(self._values)
        )

    def take_out(self) -> None:
        """Gather the next minibatch."""
        values = self._store.values
        cuda.load_rows(self.batch, self._values, self.source.addresses, values, self.number)

    def chunk(self, window: Window) -> Chunk:
        """Return the current minibatch, padded, as a chunk."""
        n = window.batch_size
        sequences = DeviceBatch(
            self.batch.offsets,
            self.batch.order,
            n,
            len(self._values),
            window.family,
            _not_on_the_host,
            is_padded=True,
        )
        return Chunk(sequences, self._store.encoded(self._values, n))


def _not_on_the_host() -> Sequences:
    raise AssertionError("a recorded step looks at the device only")


class _Still(NamedTuple):
    """A prior at a fixed location in memory, whose values change."""

    prior: PriorCounts

    @property
    def constraints(self) -> RowConstraints | None:
        """What is known of start and transitions."""
        return self.prior.constraints

    def prior_counts(self) -> PriorCounts:
        """Return the prior, as `Transitions` does."""
        return self.prior

    def concentrations(self, counts: Rows) -> Concentrations:
        """Return the parameters of the update, as `Transitions` does."""
        return self.prior.plus(counts)


class _Recording:
    """The recorded step, and the arrays that it reads and changes.

    Parameters
    ----------
    advance : callable
    posterior : Posterior
        Not changed.
    chunk : Chunk
        The current minibatch of `place`.
    place : _Place or _RowPlace
    total_sequences : int
    may_move : bool
        As in `Recorder`.
    """

    def __init__(
        self,
        advance: Advance,
        posterior: Posterior,
        chunk: Chunk,
        place: _Place | _RowPlace,
        total_sequences: int,
        may_move: bool,
    ) -> None:
        self._emissions, self._place = posterior.emissions, place
        self._counts = Rows(*(torch.clone(cast(Any, part)) for part in posterior.counts))
        self._prior = posterior.transitions.prior_counts()
        self._n_updates = posterior.transitions.n_updates
        still = Posterior(self._counts, posterior.emissions, cast(Any, _Still(self._prior)))
        rates = tuple(place.batch.rates)

        def run() -> BatchSums:
            place.take_out()
            still.counts = self._counts
            # Counts and statistics are replaced where they are.
            return advance(still, [chunk], lambda sums: rates)

        def rehearse() -> None:
            # An update of the prior, which is compiled with the step; recorded ones begin with what
            # follows from the posterior alone.
            sums, prior = run(), posterior.transitions
            own = (Rows(sums.start, sums.transitions), sums.squares)
            prior = prior.observe(*own, total_sequences, total_sequences)
            prior.converted(lambda part: part).observe(*own, total_sequences, total_sequences)
            if may_move:  # the bound takes sums by symbol and of log Z by themselves
                sums.emissions.values  # noqa: B018
                cuda.collect_failures(cuda.LogNormalizers(*logs))

        # It takes log Γ of counts, too.
        device = self._prior.rows.start.device
        kinds = ((1, torch.float64), ((), torch.int64), ((), torch.float64))
        logs = [torch.zeros(size, dtype=kind, device=device) for size, kind in kinds]
        beside = [partial(cuda.compile_gammas, device)] if may_move else []
        before = [tensor.clone() for tensor in self._changed()]
        # A large minibatch would leave nothing of the device for the next window to be made.
        is_small = len(place.batch.order) < _MANY
        with keeping() as self._constants:
            self._graph, self._sums = _recorded(
                run, lambda: _copy(before, self._changed()), rehearse, beside, is_first=is_small
            )

    def _changed(self) -> tuple[Tensor, ...]:
        table = self._emissions
        return (*self._counts, table.rows, table.scale, table.totals, self._place.number)

    def serves(self, posterior: Posterior, known: PriorCounts | None) -> bool:
        """Whether the recorded step changes this posterior; copy its new prior if so.

        `known` is the prior from a recorded update.
        """
        if posterior.emissions is not self._emissions:
            return False
        if posterior.transitions.n_updates != self._n_updates:
            rows, total, _ = posterior.transitions.prior_counts() if known is None else known
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
    """The recorded update of the posterior of a transition prior.

    Parameters
    ----------
    transitions : Transitions
        With a complete large batch; its ``updated(total_sequences, step_size)`` is recorded.
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

        with keeping() as self._constants:
            self._graph, (self._updated, self.prior) = _recorded(run, lambda: None)

    def replay(self, transitions: Any) -> Any:
        """Run the update on the device.  The next one overwrites its result."""
        tensors: list[Tensor] = []
        transitions.converted(tensors.append)
        _copy(tensors, self._inputs)
        self._step_size.fill_(transitions.step_size)
        self._graph.replay()
        return replace(self._updated, n_updates=transitions.n_updates + 1)


def _recorded(
    run: Callable[[], Any],
    restore: Callable[[], None],
    rehearse: Callable[[], Any] | None = None,
    beside: Iterable[Callable[[], None]] = (),
    *,
    is_first: bool = True,
) -> tuple[Any, Any]:
    """Compile a function's kernels, run it once, restore the arrays, and record it.

    What is compiled is what `rehearse` launches, where that is given.  It runs before what other
    streams have to do, if it `is_first`.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        with cuda.compiled_together(beside):
            (rehearse or run)()
        restore()
        run()
    torch.cuda.current_stream().wait_stream(stream)
    restore()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream(priority=-1 if is_first else 0)):
        result = run()
    return graph, result


def _totals(total: Any) -> Iterable[Any]:
    """Return the normalizers of the start and of the rows, or a common one."""
    return total if isinstance(total, Rows) else (total,)


def _copy(source: Iterable[Tensor], target: Iterable[Tensor]) -> None:
    """Copy tensors to others, in one launch."""
    torch._foreach_copy_(list(target), list(source))
