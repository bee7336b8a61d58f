"""The parts of the local step, computed by a kernel in this process on arrays or tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from sojourn.families import Family
from sojourn.inference.backend import Chunk
from sojourn.inference.local import expected_statistics
from sojourn.inference.objective import Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.statistics import BatchSums
from sojourn.kernels.arrays import namespace, to_host
from sojourn.kernels.edges import TileKernel
from sojourn.kernels.interface import Floats, Integers, Kernel, Potentials, Smoothed
from sojourn.kernels.tiles import Tiles
from sojourn.sequences import Sequences
from sojourn.transitions import Rows


class KernelPieces(ABC):
    """Base class of backends in this process: everything that a `Kernel` computes.

    Attributes
    ----------
    kernel : Kernel
    n_threads : int
    dtype : str or None
        Precision of the potentials; None for that of the emission table.
    """

    kernel: Kernel
    n_threads: int
    dtype: str | None

    @abstractmethod
    def total(self, chunk: Chunk, log_normalizers: Any) -> Any:
        """Return Σ log Z; a sequence without a possible path becomes an error, now or later."""

    @abstractmethod
    def log_base(self, family: Family, chunk: Chunk) -> float:
        """Return Σ log h(x) of a chunk."""

    def statistics(
        self,
        posterior: Posterior,
        family: Family,
        objective: Objective,
        batch: Iterable[Chunk],
        *,
        squares: bool = False,
        entropy: bool = False,
        shared: int = 0,
    ) -> BatchSums:
        """Compute the expected counts of chunks; the sums are not fetched."""
        return expected_statistics(
            posterior,
            family,
            objective,
            batch,
            self,
            squares=squares,
            entropy=entropy,
            shared=shared,
        )

    @property
    def reads_counts(self) -> bool:
        """Whether `forward_backward` takes emission potentials as counts."""
        return self.kernel.reads_counts

    def transition_potentials(self, posterior: Posterior, objective: Objective) -> Rows:
        """Return the potentials of start and transitions, eq (1) or its mean-field form."""
        if not objective.collapsed:
            concentrations = posterior.transitions.concentrations(posterior.counts)
            return objective.transition_potentials(concentrations)
        prior, total, constraints = posterior.transitions.prior_counts()
        counts, dtype = posterior.between, self.dtype or posterior.emissions.dtype
        if constraints is not None and constraints.fixes:
            prior = constraints.probabilities(
                Rows(prior.start + counts.start, prior.transitions + counts.transitions)
            )
            # They are final: the kernel has only to divide by one.
            xp = namespace(prior.start)
            total = xp.ones_like(prior.start.sum())
            counts = Rows(*(xp.zeros_like(part) for part in counts))
        return Rows(*self.kernel.transition_potentials(prior, total, counts, dtype))

    def forward_backward(
        self,
        chunk: Chunk,
        potentials: Potentials,
        index: Integers,
        *,
        squares: int = False,
        summed: bool = False,
    ) -> Smoothed:
        """Compute posterior expectations of every sequence of a chunk, or of its tiles."""
        tiles = self.tiles(chunk)
        if tiles is not None:
            return tiles.forward_backward(potentials, index, squares=squares)
        return self.kernel.forward_backward(
            potentials,
            index,
            chunk.sequences.offsets,
            squares=squares,
            summed=summed,
            order=self._order(chunk),
            n_threads=self.n_threads,
        )

    def sweep(
        self, chunk: Chunk, transitions: Rows, numbers: Any, *, squares: int = False
    ) -> tuple[Smoothed, Floats] | None:
        """Compute potentials, expectations and sums of numbers at once; None if only apart."""
        return None

    def exact_for(self, smoothed: Smoothed) -> KernelPieces | None:
        """Return what computes a chunk again in which a sequence underflowed; None if none did.

        A GPU is not waited for, and counts such sequences instead.
        """
        return None

    def tiles(self, chunk: Chunk) -> TileKernel | None:
        """Return the kernel for tiles, if the chunk has tiles."""
        if chunk.sequences.counted is None:
            return None
        host = self.host_sequences(chunk)
        assert host.counted is not None
        tiles = Tiles.of(host.offsets, host.counted)
        return TileKernel(self.kernel, tiles, self.n_threads)

    @abstractmethod
    def host_sequences(self, chunk: Chunk) -> Sequences:
        """Return the sequences of a chunk as arrays in memory."""

    def _order(self, chunk: Chunk) -> Any:
        """Return the order of the sequences of a chunk, longest first, if it is known."""
        return chunk.order

    def log_normalizers(self, chunk: Chunk, potentials: Potentials, index: Integers) -> Floats:
        """Compute log Z of every sequence of a chunk, as an array in memory."""
        tiles = self.tiles(chunk)
        if tiles is not None:
            return to_host(tiles.log_normalizers(potentials, index))
        offsets = chunk.sequences.offsets
        return to_host(
            self.kernel.log_normalizers(potentials, index, offsets, n_threads=self.n_threads)
        )

    def viterbi(
        self, chunk: Chunk, potentials: Potentials, index: Integers
    ) -> tuple[Floats, Integers]:
        """Find the best path of every sequence of a chunk, as arrays in memory."""
        offsets = chunk.sequences.offsets
        scores, path = self.kernel.viterbi(potentials, index, offsets, n_threads=self.n_threads)
        return to_host(scores), to_host(path)

    def log_potential(
        self, chunk: Chunk, smoothed: Smoothed, potentials: Potentials, index: Integers
    ) -> Any:
        """Return E_q of the logarithm of the product of potentials along the path."""
        total = self.kernel.log_potential(smoothed, potentials, index)
        if chunk.sequences.counted is None or potentials.log_scale is None:
            return total
        own = smoothed.responsibilities.sum(axis=1)  # zero at the steps of buffers
        return total - ((1.0 - own) * potentials.log_scale[index]).sum()

    def state_masses(self, start: Any, transitions: Any) -> Any:
        """Return the expected number of steps in each state."""
        return self.kernel.state_masses(start, transitions)
