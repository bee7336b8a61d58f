"""A warm-up with smaller minibatches, where the passes of training would have too few updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from sojourn.families import Family
from sojourn.inference.objective import COLLAPSED
from sojourn.inference.posterior import Posterior
from sojourn.inference.problem import Problem
from sojourn.inference.progress import Position, Progress
from sojourn.inference.schedule import LinearDecay
from sojourn.inference.trainer import train
from sojourn.moves.budget import MoveState
from sojourn.moves.rounds import Moves
from sojourn.moves.settings import MoveSettings
from sojourn.sequences import Sequences
from sojourn.sources import MemorySource, Minibatches
from sojourn.transitions import Rows, Transitions

Monitor = Callable[[int], AbstractContextManager[Callable[[Progress], None] | None]]


class WarmUp(NamedTuple):
    """How long a warm-up lasts, and the size of its minibatches.

    A warm-up with smaller minibatches lets states differentiate: with minibatches of 1,000 a pass
    over 2,000 sequences has two updates.

    Attributes
    ----------
    n_passes, batch_size : int
    n_batches : int
        Minibatches of a pass, which need not see all the data.
    """

    n_passes: int
    batch_size: int
    n_batches: int

    @classmethod
    def plan(
        cls,
        family: Family,
        n_states: int,
        n_sequences: int,
        n_steps: float,
        n_batches: int,
        *,
        grows: bool,
        settings: MoveSettings,
    ) -> WarmUp | None:
        """Plan a warm-up for the given data; None if they need none.

        The plan does not depend on the number of passes to come, so that a training that is
        continued with more passes equals one that was started with all of them.

        Parameters
        ----------
        n_sequences, n_steps : int
            Size of the data, with long sequences in pieces.
        n_batches : int
            Minibatches per pass of the training itself.
        grows : bool
            Whether it begins with few states.

        Examples
        --------
        >>> from sojourn.families import Categorical
        >>> settings = MoveSettings()
        >>> WarmUp.plan(Categorical(100), 16, 2000, 70_000, 2, grows=False, settings=settings)
        WarmUp(n_passes=20, batch_size=14, n_batches=143)
        """
        if n_steps < settings.warmup_min_steps:
            return None
        if n_steps > settings.warmup_max_steps:
            # Some of the data are enough for states to differentiate.
            n_sequences = int(np.ceil(n_sequences * (settings.warmup_max_steps / n_steps)))
            n_steps = settings.warmup_max_steps
        if family.statistics_are_counts:
            n_updates, most = settings.warmup_updates_symbols, settings.warmup_max_passes_symbols
            batch_steps = settings.warmup_batch_steps_symbols
        else:
            n_updates, most = settings.warmup_updates, settings.warmup_max_passes
            batch_steps = settings.warmup_batch_steps
        if grows:
            n_updates = n_updates * settings.warmup_growth_passes // most
            most = settings.warmup_growth_passes
        fewest = max(
            settings.warmup_steps_per_state * n_states,
            family.n_statistics / settings.warmup_statistics_per_step,
        )
        steps = max(batch_steps, fewest)
        passes = min(most, int(np.ceil(n_updates * steps / n_steps)))
        share = max(passes / n_updates, fewest / n_steps)
        batch_size = max(1, int(np.ceil(share * n_sequences)))
        if passes * n_sequences <= settings.warmup_usual_passes * n_batches * batch_size:
            return None
        return cls(passes, batch_size, -(-n_sequences // batch_size))


class WarmStart(NamedTuple):
    """What training goes on with after a warm-up.

    Attributes
    ----------
    posterior : Posterior
    position : Position
        The beginning, with the proposals and the time of the warm-up.
    state : MoveState
    """

    posterior: Posterior
    position: Position
    state: MoveState


def warm_up(
    posterior: Posterior,
    family: Family,
    moves: Moves,
    prior: Transitions,
    *,
    sequences: Sequences | None,
    minibatches: Callable[[int], Minibatches],
    n_sequences: int,
    n_steps: int,
    n_batches: int,
    seed: int,
    monitor: Monitor,
    with_moves: bool = True,
) -> WarmStart | None:
    """Train in small minibatches, where training itself would have too few updates.

    Parameters
    ----------
    posterior : Posterior
        Where training begins; may be changed in place.
    moves : Moves
        How states may change; the warm-up runs on its backend.
    prior : Transitions
        The initial prior on transitions for `moves.most_states` states; after the warm-up its
        posterior is fitted again to the counts.
    sequences : Sequences, optional
        The data, if they are in memory: long sequences are cut into pieces.
    minibatches : callable
        Returns the data as minibatches of a given size, where they are not in memory.
    n_sequences, n_steps : int
        Size of the data.
    n_batches : int
        Minibatches per pass of the training itself.
    monitor : callable
        Returns, for a number of passes, a context manager whose value is called with the progress
        of each update, or None.
    with_moves : bool
        Whether states may change in the warm-up; otherwise `moves` only says where it runs.

    Returns
    -------
    WarmStart, or None where no warm-up is needed
    """
    settings, most_states = moves.settings, moves.most_states
    pieces = None if sequences is None else in_pieces(sequences, settings.warmup_piece_steps)
    n_pieces = n_sequences if pieces is None else len(pieces)
    plan = WarmUp.plan(
        family, most_states, n_pieces, n_steps, n_batches, grows=moves.grows, settings=settings
    )
    if plan is None:
        return None
    backend, (n_passes, size, n_own) = moves.backend, plan
    source = minibatches(size) if pieces is None else MemorySource(pieces, size, seed)
    if n_own * size < n_pieces:
        source = FirstMinibatches(source, n_own, n_own * size)
    # Of much data, a few minibatches tell states apart, but not whether they are the same.
    may_merge = with_moves and not moves.exceeds_sample(n_steps)
    with monitor(n_passes) as callback:
        own_steps = n_steps * min(1.0, n_own * size / n_pieces)
        schedule = LinearDecay.plan(
            most_states, n_passes, size, min(n_pieces, n_own * size), own_steps
        )
        with backend.running():
            placed = backend.place(posterior)
            ended = train(
                Problem(family, COLLAPSED, schedule, n_pieces),
                placed,
                source,
                backend,
                n_passes=n_passes,
                moves=replace(moves, source=source) if may_merge else None,
                callback=callback,
            )
    posterior = placed.fetched()
    start, transitions = posterior.counts
    counts = Rows(start * (n_sequences / n_pieces), transitions)
    prior = prior.constrained(None).regrouped(np.eye(posterior.n_states, most_states))
    prior = prior.constrained(posterior.transitions.constraints)
    begun = replace(posterior, counts=counts, transitions=prior.refitted(counts), n_updates=0)
    return WarmStart(begun, Position.warmed_up(ended.history), moves.state.after_warm_up())


@dataclass(frozen=True)
class FirstMinibatches(Minibatches):
    """The first minibatches of every pass over a source.

    Attributes
    ----------
    source : Minibatches
    n_batches : int
    n_own : int
        Sequences in them.
    """

    source: Minibatches
    n_batches: int
    n_own: int

    @property
    def n_sequences(self) -> int:
        """Number of sequences per pass."""
        return self.n_own

    def batches(self, n_pass: int, start: int = 0) -> Iterator[Sequences | Iterable[Sequences]]:
        """Yield the first minibatches of a pass, without the first `start`."""
        return islice(self.source.batches(n_pass, start), self.n_batches - start)


def in_pieces(data: Sequences, length: int) -> Sequences:
    """Cut sequences that are longer than this.

    Examples
    --------
    >>> in_pieces(Sequences.from_list([[1, 2, 3, 4, 5], [6]]), 2).lengths
    array([2, 2, 1, 1])
    """
    lengths = data.lengths
    if lengths.max() <= length:
        return data
    counts = -(-lengths // length)
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = np.repeat(data.offsets[:-1], counts) + length * within
    return data.with_offsets(np.append(begins, data.offsets[-1]))
