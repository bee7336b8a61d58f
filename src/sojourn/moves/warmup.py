"""Passes in small minibatches before those asked for, where these would have too few updates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sojourn.families import Family
from sojourn.sequences import Sequences

ENOUGH_BATCHES = 100
"""Minibatches of a pass with which states part without a warm-up."""

PIECE = 2**8
"""Steps of a long sequence that stay together in a warm-up."""

_UPDATES = (400, 3000)  # that a warm-up has: of numbers, of symbols
_BATCH_STEPS = (2**11, 2**9)  # of minibatches that are small enough to do without more passes
_MOST_PASSES = (10, 20)  # of little data
_FEWEST_STEPS, _MOST_STEPS = 2**8, 2**23  # of data that say enough, and of which a pass is cheap
_PASSES_TO_GROW = 40  # with as many updates each
_STATE_STEPS = 8  # steps a state that a minibatch has at least
_STATISTICS_A_STEP = 16  # symbols of the alphabet for each of its steps, at most
_USUAL_PASSES = 10  # of a training, whose number of updates a warm-up must exceed


class WarmUp(NamedTuple):
    """How long states part, and in minibatches of what size.

    Many small steps part states sooner than few large ones: with minibatches of 1,000 a pass over
    2,000 sequences has two updates.

    Attributes
    ----------
    n_passes, batch_size : int
    """

    n_passes: int
    batch_size: int

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
    ) -> WarmUp | None:
        """Say what so many sequences need; None where they need nothing.

        The passes to come do not count: a training that goes on from its end with more of them is
        as if it had begun with so many.

        Parameters
        ----------
        n_sequences, n_steps : int
            Of the data, long sequences in pieces.
        n_batches : int
            Minibatches of a pass, of the training itself.
        grows : bool
            Whether it begins with few states.

        Examples
        --------
        >>> from sojourn.families import Categorical
        >>> WarmUp.plan(Categorical(100), 16, 2000, 70_000, n_batches=2, grows=False)
        WarmUp(n_passes=20, batch_size=14)
        """
        if n_batches >= ENOUGH_BATCHES or not _FEWEST_STEPS <= n_steps <= _MOST_STEPS:
            return None
        kind = int(family.statistics_are_counts)
        wanted, most = _UPDATES[kind], _MOST_PASSES[kind]
        if grows:
            wanted, most = wanted * _PASSES_TO_GROW // most, _PASSES_TO_GROW
        fewest = max(_STATE_STEPS * n_states, family.n_statistics / _STATISTICS_A_STEP)
        steps = max(_BATCH_STEPS[kind], fewest)
        passes = min(most, int(np.ceil(wanted * steps / n_steps)))
        share = max(passes / wanted, fewest / n_steps)
        batch_size = max(1, int(np.ceil(share * n_sequences)))
        if passes * n_sequences <= _USUAL_PASSES * n_batches * batch_size:
            return None
        return cls(passes, batch_size)


def in_pieces(data: Sequences, length: int = PIECE) -> Sequences:
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
    return Sequences(data.values, np.append(begins, data.offsets[-1]))
