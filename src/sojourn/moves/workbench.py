"""Where proposals are computed: all that moves ask of the engine of inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from sojourn.families import Family
from sojourn.inference.local import (
    Chunk,
    Engine,
    chunk_potentials,
    expected_statistics,
    transition_potentials,
)
from sojourn.inference.objective import COLLAPSED
from sojourn.inference.posterior import Posterior, fetched, sent
from sojourn.inference.statistics import BatchSums
from sojourn.kernels.arrays import is_tensor, namespace, to_host
from sojourn.kernels.interface import Floats, Integers
from sojourn.sequences import Sequences
from sojourn.transitions import Rows, Transitions


@dataclass(frozen=True)
class Workbench:
    """Computes what moves need of a posterior and some sequences.

    Attributes
    ----------
    family : Family
    engine : Engine
        How it is computed, and where.
    """

    family: Family
    engine: Engine

    @property
    def on_device(self) -> bool:
        """Whether arrays are tensors on a device, which takes time to launch kernels."""
        return self.engine.device is not None

    def for_states(self, n_states: int) -> Workbench:
        """Return the workbench for models of at most so many states, of which many are tried."""
        return replace(self, engine=self.engine.for_states(n_states))

    def chunks(self, data: Sequences, n_states: int) -> list[Chunk]:
        """Prepare validated sequences for models of at most so many states."""
        return list(self.engine.chunks(self.family, data, n_states))

    def statistics(
        self,
        posterior: Posterior,
        chunks: list[Chunk],
        *,
        entropy: bool = False,
        shared: bool = False,
    ) -> BatchSums:
        """Compute expected statistics by one local step, eqs (1) and (2).

        Parameters
        ----------
        entropy : bool
            Whether the entropy of the states is wanted, for the bound.
        shared : bool
            Whether the entropies that pairs of states share are wanted, eq (22).
        """
        return expected_statistics(
            posterior, self.family, COLLAPSED, chunks, self.engine, entropy=entropy, shared=shared
        )

    def log_likelihoods(self, posterior: Posterior, chunks: list[Chunk]) -> Floats:
        """Compute the log likelihood of each sequence under posterior means."""
        potentials = posterior.transitions.means(posterior.counts)
        parts = [
            self.engine.kernel.log_normalizers(
                factors, index, chunk.sequences.offsets, n_threads=self.engine.n_threads
            )
            for chunk, factors, index in chunk_potentials(
                posterior, self.family, chunks, potentials, self.engine, collapsed=True
            )
        ]
        return np.concatenate([to_host(part).astype(np.float64) for part in parts])

    def likely_states(self, posterior: Posterior, chunk: Chunk) -> tuple[Sequences, Integers]:
        """Return the sequences of a chunk in memory, and the most likely state of every step."""
        potentials = transition_potentials(posterior, COLLAPSED, self.engine)
        _, factors, index = next(
            chunk_potentials(
                posterior, self.family, [chunk], potentials, self.engine, collapsed=True
            )
        )
        smoothed = self.engine.kernel.forward_backward(
            factors, index, chunk.sequences.offsets, n_threads=self.engine.n_threads
        )
        path = to_host(smoothed.responsibilities.argmax(1))
        return chunk.sequences.host() if self.on_device else chunk.sequences, path

    def place(self, posterior: Posterior) -> Posterior:
        """Put a posterior where it is computed with."""
        return posterior.to_device(self.engine.device) if self.on_device else posterior

    def fetch(self, posterior: Posterior) -> Posterior:
        """Bring a posterior into memory."""
        return posterior.to_host()

    def check(self) -> None:
        """Wait for what is still computed, and raise if a sequence had no possible path."""
        self.engine.check()


def longest(chunks: Sequence[Chunk]) -> Chunk:
    """Return the chunk with the most steps."""
    return max(chunks, key=lambda chunk: chunk.sequences.n_steps)


def refitted(transitions: Transitions, counts: Rows) -> Transitions:
    """Fit the prior on transitions to counts, in memory: a device is slow with small arrays."""
    if not is_tensor(counts.start):
        return transitions.refitted(counts)
    device = cast(Any, counts.start).device
    fitted = transitions.converted(fetched).refitted(Rows(*map(fetched, counts)))
    return fitted.converted(lambda part: sent(part, device))


def fetched_if_small(posterior: Posterior, most_numbers: int) -> tuple[Floats, Rows, Transitions]:
    """Return E[t] in double precision, counts and prior; in memory if E[t] has few numbers."""
    emissions, counts = posterior.emissions.dense(), posterior.counts
    emissions = namespace(emissions).astype(emissions, "float64")
    transitions = posterior.transitions
    if is_tensor(emissions) and emissions.numel() <= most_numbers:
        emissions, counts = fetched(emissions), Rows(*map(fetched, counts))
        transitions = transitions.converted(fetched)
    return emissions, counts, transitions
