"""Interface of the backends that training and prediction compute on.

`Backend` is all that the training loop needs: it may be the CPU of this machine, a GPU or a
cluster.  `LocalBackend` is one in this process, which computes each part of the local step itself;
moves and prediction need one.  The implementations are in `sojourn.backends`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, Self

from sojourn.families import Family
from sojourn.inference.objective import Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.problem import Problem
from sojourn.inference.statistics import BatchSums
from sojourn.kernels.edges import TileKernel
from sojourn.kernels.interface import Floats, Integers, Potentials, Smoothed
from sojourn.sequences import Sequences
from sojourn.sources import Minibatches
from sojourn.transitions import Rows


class Chunk(NamedTuple):
    """A run of sequences that fits in memory with its responsibilities.

    Attributes
    ----------
    sequences : Sequences, or the backend's counterpart
        Has `offsets`, `n_steps`, `counted` and a length.
    encoded : object
        The values as encoded by the family's `encode`.
    order : (M,) integer array or None
        The sequences, longest first, if that is known already.
    """

    sequences: Any
    encoded: Any
    order: Any = None


class Backend(Protocol):
    """What computes the steps of training.

    The form of a prepared minibatch is private to the backend: `batches` yields what `statistics`
    and `step` accept.
    """

    @property
    def n_threads(self) -> int:
        """Number of threads of this process that a step may use."""

    def place(self, posterior: Posterior) -> Posterior:
        """Return the posterior placed where the backend computes; itself if it is there already."""

    def batches(
        self,
        problem: Problem,
        source: Minibatches,
        n_states: int,
        n_pass: int,
        start: int,
        n_more: int,
    ) -> Iterator[Any]:
        """Yield the prepared minibatches of a pass, without the first `start`.

        Parameters
        ----------
        n_states : int
            Number of states of the model.
        n_pass, start : int
            Number of the pass, from 0, and number of its minibatches to skip.
        n_more : int
            Number of passes after this one, for reading ahead.
        """

    def pieces(
        self, problem: Problem, source: Minibatches, n_states: int, n_pass: int
    ) -> Iterator[Any]:
        """Yield all the data of a pass for `statistics`, in pieces of a size that is quick."""

    def statistics(
        self,
        posterior: Posterior,
        family: Family,
        objective: Objective,
        batch: Any,
        *,
        squares: bool = False,
        entropy: bool = False,
        shared: int = 0,
    ) -> BatchSums:
        """Compute the expected counts of a prepared minibatch: the local step, eqs (1) and (2)."""

    def step(
        self,
        problem: Problem,
        posterior: Posterior,
        batch: Any,
        *,
        rates: tuple[float, float] | None = None,
        squares: bool = False,
        entropy: bool = False,
    ) -> BatchSums:
        """Run the local step and blend its sums into the expected counts, eq (3).

        Everything that can fail happens before the posterior changes.

        Parameters
        ----------
        rates : (float, float), optional
            Weight of the old statistics and of the minibatch; by default those of the schedule.
        """

    def updated(self, transitions: Any, total_sequences: int) -> Any:
        """Return a prior on transitions, updated from its complete large batch."""

    def finish_pass(self) -> None:
        """Wait until everything is computed; raise an error if a sequence had no possible path."""

    def sized_for(self, n_states: int) -> Self:
        """Return the backend for trying many models of at most `n_states` states."""

    def resized(self) -> Backend:
        """Return the backend for a model whose number of states has changed."""

    def running(self) -> AbstractContextManager[None]:
        """Return a context in which errors of the backend say what the user can change."""


class LocalPieces(Protocol):
    """The parts of a local step, computed in this process."""

    @property
    def n_threads(self) -> int:
        """Number of threads of this process to use."""

    @property
    def dtype(self) -> str | None:
        """Precision of the potentials; None for that of the emission table."""

    @property
    def reads_counts(self) -> bool:
        """Whether `forward_backward` takes emission potentials as counts."""

    def transition_potentials(self, posterior: Posterior, objective: Objective) -> Rows:
        """Return the potentials of start and transitions, eq (1)."""

    def tiles(self, chunk: Chunk) -> TileKernel | None:
        """Return what computes the tiles of a chunk; None if it has sequences."""

    def forward_backward(
        self,
        chunk: Chunk,
        potentials: Potentials,
        index: Integers,
        *,
        squares: int = False,
        summed: bool = False,
    ) -> Smoothed:
        """Compute posterior expectations of every sequence of a chunk.

        Where they are needed `summed`, responsibilities may be summed by row of the potentials.
        """

    def sweep(
        self, chunk: Chunk, transitions: Rows, numbers: Any, *, squares: int = False
    ) -> tuple[Smoothed, Floats] | None:
        """Compute potentials, expectations and sums of numbers at once; None if only apart."""

    def exact_for(self, smoothed: Smoothed) -> LocalPieces | None:
        """Return what computes a chunk again in which a sequence underflowed; None if none did."""

    def log_normalizers(self, chunk: Chunk, potentials: Potentials, index: Integers) -> Floats:
        """Compute log Z of every sequence of a chunk, as an array in memory."""

    def viterbi(
        self, chunk: Chunk, potentials: Potentials, index: Integers
    ) -> tuple[Floats, Integers]:
        """Find the best path of every sequence of a chunk, as arrays in memory."""

    def total(self, chunk: Chunk, log_normalizers: Any) -> Any:
        """Return Σ log Z; a sequence without a possible path becomes an error, now or later."""

    def log_potential(
        self, chunk: Chunk, smoothed: Smoothed, potentials: Potentials, index: Integers
    ) -> Any:
        """Return E_q of the logarithm of the product of potentials along the path."""

    def log_base(self, family: Family, chunk: Chunk) -> float:
        """Return Σ log h(x) of a chunk."""

    def state_masses(self, start: Any, transitions: Any) -> Any:
        """Return the expected number of steps in each state."""


class LocalBackend(Backend, LocalPieces, Protocol):
    """A backend in this process, which computes every part of the local step itself."""

    def chunks(self, family: Family, data: Sequences, n_states: int) -> Iterable[Chunk]:
        """Cut validated data into encoded chunks for a model of at most `n_states` states."""

    def as_chunk(self, family: Family, data: Sequences) -> Chunk:
        """Encode validated data, whatever their size, as one chunk."""

    def host_sequences(self, chunk: Chunk) -> Sequences:
        """Return the sequences of a chunk as arrays in memory."""

    def host_statistics(
        self,
        posterior: Posterior,
        family: Family,
        objective: Objective,
        chunks: Iterable[Chunk],
        **wanted: bool,
    ) -> BatchSums:
        """Run the local step for a posterior and chunks in memory, and return sums in memory."""

    @property
    def slow_launches(self) -> bool:
        """Whether starting a local step takes as long as computing many steps of the data."""

    @property
    def exact(self) -> LocalBackend | None:
        """Kernel for sequences whose probability underflows; None if none does."""
