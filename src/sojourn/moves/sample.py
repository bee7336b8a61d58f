"""The sample of sequences on which proposals are judged, and models fitted to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from sojourn.families import Family
from sojourn.inference.backend import Chunk
from sojourn.inference.bound import COLLAPSED_BOUND
from sojourn.inference.posterior import Posterior
from sojourn.inference.statistics import BatchSums
from sojourn.kernels.arrays import namespace, to_host
from sojourn.kernels.interface import Floats
from sojourn.moves.budget import step_work
from sojourn.moves.settings import MoveSettings
from sojourn.moves.workbench import Workbench, refitted
from sojourn.sequences import Sequences
from sojourn.sources.base import first_steps
from sojourn.transitions import Rows

SHARED_STEPS = 2**11  # used for the entropies that pairs of states share; of large samples
_SHARED_EVERY = 2**5  # one step in so many

Batches = Iterable[Sequences | Iterable[Sequences]]


@dataclass(frozen=True)
class Sample:
    """Sequences on which proposals are judged.

    Attributes
    ----------
    fitted : list of Chunk
        Sequences that models are fitted to.
    held_out : list of Chunk
        Sequences that the bound counts too, but whose likelihood is that under a model fitted to
        the others.  Empty where there are too few sequences.
    data : Sequences
        All of them.
    n_sequences, n_steps, held_out_steps : int
    copies : float
        How many copies of itself the sample stands for: N/B, but at most `max_copies`.  What fits
        a sample by chance counts once per copy.  So a small sample of much data would be judged as
        a smaller data set, in which fewer states can be distinguished.
    stands_for_all : bool
        Whether its copies are all the data.  Otherwise merges are judged by the evidence of the
        stream, and other proposals must predict fresh sequences better than the model at hand.
    is_all : bool
        Whether it is all the data itself.
    """

    fitted: list[Chunk]
    held_out: list[Chunk]
    data: Sequences
    n_sequences: int
    n_steps: int
    held_out_steps: int
    copies: float
    stands_for_all: bool
    is_all: bool = False

    @classmethod
    def draw(
        cls,
        batches: Batches,
        n_steps: float,
        total_sequences: int,
        bench: Workbench,
        most_states: int,
        settings: MoveSettings,
        *,
        stands_for_all: bool = True,
    ) -> Sample:
        """Take sequences from minibatches until they have about `n_steps` steps.

        They are placed on the workbench for models of at most `most_states` states.
        """
        data = first_steps(batches, n_steps)
        every = settings.held_out_every
        is_held_out = np.arange(len(data)) % every == every - 1
        fitted, held_out = (data.take(np.flatnonzero(p)) for p in (~is_held_out, is_held_out))
        return cls(
            bench.chunks(fitted, most_states),
            bench.chunks(held_out, most_states) if len(held_out) else [],
            data,
            len(data),
            data.n_steps,
            held_out.n_steps if len(held_out) else 0,
            min(settings.max_copies, total_sequences / len(data)),
            stands_for_all,
        )

    @property
    def shared_every(self) -> int:
        """One step in so many is used for the entropies that pairs of states share."""
        return min(max(1, self.n_steps // SHARED_STEPS), _SHARED_EVERY)


class Fit(NamedTuple):
    """A posterior after local steps on a sample.

    Attributes
    ----------
    posterior : Posterior
        Expected counts of the sample.
    bound : float
        L(q), eq (13), as if the copies of the sample were all the data.
    held_out : array
        Log likelihood of each held-out sequence under a model fitted to the others.
    shared : (K, K) array or None
        Entropies that pairs of states share, eq (22).
    uncertain : (C, K, U) array or None
        How far E[t] may be from the statistics of the states, eq (27), by state: of all the data,
        not of a sample.
    """

    posterior: Posterior
    bound: float
    held_out: Floats
    shared: Floats | None
    uncertain: Floats | None = None


@dataclass
class SampleFitter:
    """Fits models to a sample by local steps, and pays for them from a budget.

    Attributes
    ----------
    sample : Sample
    bench : Workbench
    settings : MoveSettings
    budget : float
        Work that may yet be spent.
    most_states : int
        Most states that a model may have.
    overhead_steps : float
        Steps that would take as long as what a local step does beside those of the sample.
    """

    sample: Sample
    bench: Workbench
    settings: MoveSettings
    budget: float
    most_states: int
    overhead_steps: float = 0.0

    @property
    def family(self) -> Family:
        """What is observed."""
        return self.bench.family

    def fit(self, posterior: Posterior, n_local: int, *, shared: bool = False) -> Fit:
        """Take `n_local` local steps on the sample, and evaluate the bound at the last of them."""
        self.spend(self.cost(posterior.n_states, n_local))
        bench, sample = self.bench, self.sample
        posterior = bench.with_shapes(posterior, sample.data)
        for _ in range(n_local - 1):
            sums = bench.statistics(posterior, self._whole)
            posterior = self.with_statistics(posterior, sums, refit=True)
        every = sample.shared_every if shared else 0
        sums = bench.statistics(posterior, sample.fitted, entropy=True, shared=every)
        own = self.with_statistics(posterior, sums) if sample.held_out else None
        if own is not None:
            sums += bench.statistics(posterior, sample.held_out, entropy=True, shared=every)
        posterior = self.with_statistics(posterior, sums, refit=True)
        bound = COLLAPSED_BOUND.compute(posterior, self.family, sums, sample.copies)
        held_out = bench.left_out(posterior)
        if own is not None:
            # The prior fitted to the complete sample reveals almost nothing of its held-out part.
            own = replace(own, transitions=posterior.transitions)
            held_out = bench.log_likelihoods(own, sample.held_out)
        pairs = None if sums.shared is None else sample.copies * to_host(sums.shared)
        return Fit(posterior, bound, held_out, pairs, bench.uncertain(sums))

    def spend(self, work: float) -> None:
        """Pay for something else from the budget."""
        self.budget -= work

    def cost(self, n_states: int, n_local: int) -> float:
        """Work of `n_local` local steps, including the bound after the last."""
        steps = self.sample.n_steps + self.overhead_steps
        n_times = n_local + self.settings.cost_bound_steps
        return n_times * steps * step_work(n_states, self.settings)

    @cached_property
    def _whole(self) -> list[Chunk]:
        """All of the sample, for steps after which nothing is judged."""
        return self.bench.chunks(self.sample.data, self.most_states)

    def with_statistics(
        self, posterior: Posterior, sums: BatchSums, *, refit: bool = False
    ) -> Posterior:
        """Return the posterior with the statistics of the sample alone, times its copies."""
        copies = self.sample.copies
        counts = Rows(copies * sums.start, copies * sums.transitions)
        statistics = sums.emissions.dense().T
        emissions = copies * namespace(statistics).astype(statistics, "float64")
        transitions, durations = posterior.transitions, posterior.durations
        if durations is not None:
            assert sums.durations is not None
            durations = durations.blended(sums.durations, 0.0, copies)
        return replace(
            posterior,
            counts=counts,
            durations=durations,
            emissions=posterior.emissions.refilled(emissions),
            transitions=refitted(transitions, counts) if refit else transitions,
        )
