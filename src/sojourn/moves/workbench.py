"""Where proposals are computed: all that moves ask of a backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sojourn.families import Family
from sojourn.inference.backend import Chunk, LocalBackend
from sojourn.inference.local import chunk_potentials, expected_statistics
from sojourn.inference.objective import COLLAPSED
from sojourn.inference.posterior import Posterior, fetched
from sojourn.inference.shapes import learn_shapes
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
    backend : LocalBackend
        Where it is computed.
    """

    family: Family
    backend: LocalBackend

    @property
    def slow_launches(self) -> bool:
        """Whether starting a local step takes as long as computing many steps of the data."""
        return self.backend.slow_launches

    def for_states(self, n_states: int) -> Workbench:
        """Return the workbench for trying many models of at most `n_states` states."""
        return replace(self, backend=self.backend.sized_for(n_states))

    def chunks(self, data: Sequences, n_states: int) -> list[Chunk]:
        """Prepare validated sequences for models of at most `n_states` states."""
        return list(self.backend.chunks(self.family, data, n_states))

    def statistics(
        self,
        posterior: Posterior,
        chunks: list[Chunk],
        *,
        entropy: bool = False,
        shared: int = 0,
    ) -> BatchSums:
        """Compute expected statistics by one local step, eqs (1) and (2).

        Parameters
        ----------
        entropy : bool
            Whether the entropy of the states is wanted, for the bound.
        shared : int
            One step in so many is used for the entropies that pairs of states share, eq (22); none
            by default.
        """
        return expected_statistics(
            posterior, self.family, COLLAPSED, chunks, self.backend, entropy=entropy, shared=shared
        )

    def uncertain(self, sums: BatchSums) -> Floats | None:
        """Return how far the emission statistics may be from E[t], for merges on paper."""
        return None

    def left_out(self, posterior: Posterior, weights: Floats | None = None) -> Floats:
        """Return log likelihoods that tell of new data, where the sample is all the data.

        With `weights` states are sums of those of the posterior.
        """
        return np.zeros(0)

    def entropies(
        self, parameters: Posterior, counts: Posterior
    ) -> Callable[[Floats], float] | None:
        """Return what estimates H(q(z)) of sums of states without a local step, if anything."""
        return None

    def with_shapes(self, posterior: Posterior, data: Sequences) -> Posterior:
        """Return a posterior whose durations have the shapes that suit the data best."""
        own = replace(posterior)
        learn_shapes(own, self.family, data, 0, one_by_one=False, n_threads=self.backend.n_threads)
        return own

    def log_likelihoods(self, posterior: Posterior, chunks: list[Chunk]) -> Floats:
        """Compute the log likelihood of each sequence under posterior means."""
        potentials = posterior.transitions.means(posterior.counts)
        parts = [
            self.backend.log_normalizers(*part)
            for part in chunk_potentials(
                posterior, self.family, chunks, potentials, self.backend, collapsed=True
            )
        ]
        return np.concatenate([part.astype(np.float64) for part in parts])

    def likely_states(self, posterior: Posterior, chunk: Chunk) -> tuple[Sequences, Integers]:
        """Return the sequences of a chunk in memory, and the most likely state of every step."""
        potentials = self.backend.transition_potentials(posterior, COLLAPSED)
        part = next(
            chunk_potentials(
                posterior, self.family, [chunk], potentials, self.backend, collapsed=True
            )
        )
        smoothed = self.backend.forward_backward(*part)
        path = to_host(smoothed.responsibilities.argmax(1))
        sequences = self.backend.host_sequences(chunk)
        if sequences.counted is None:
            return sequences, path
        steps, ends = sequences.counted_steps, np.cumsum(sequences.counted_lengths)
        return Sequences(sequences.values[steps], np.concatenate([[0], ends])), path[steps]

    def place(self, posterior: Posterior) -> Posterior:
        """Put a posterior where it is computed with."""
        return self.backend.place(posterior)

    def fetch(self, posterior: Posterior) -> Posterior:
        """Bring a posterior into memory."""
        return posterior.fetched()

    def check(self) -> None:
        """Wait for what is still computed, and raise if a sequence had no possible path."""
        self.backend.finish_pass()


def longest(chunks: Sequence[Chunk]) -> Chunk:
    """Return the chunk with the most steps."""
    return max(chunks, key=lambda chunk: chunk.sequences.n_steps)


def refitted(transitions: Transitions, counts: Rows) -> Transitions:
    """Fit the prior on transitions to counts, in memory: a GPU is slow with small arrays."""
    if not is_tensor(counts.start):
        return transitions.refitted(counts)
    xp, like = namespace(counts.start), counts.start
    fitted = transitions.converted(fetched).refitted(Rows(*map(fetched, counts)))
    return fitted.converted(lambda part: xp.placed(np.asarray(part, dtype=np.float64), like=like))


def fetched_if_small(posterior: Posterior, most_numbers: int) -> tuple[Floats, Rows, Transitions]:
    """Return E[t] in double precision, counts and prior; in memory if E[t] has few numbers."""
    emissions, counts = posterior.emissions.dense(), posterior.counts
    emissions = namespace(emissions).astype(emissions, "float64")
    transitions = posterior.transitions
    if is_tensor(emissions) and emissions.numel() <= most_numbers:
        emissions, counts = fetched(emissions), Rows(*map(fetched, counts))
        transitions = transitions.converted(fetched)
    return emissions, counts, transitions
