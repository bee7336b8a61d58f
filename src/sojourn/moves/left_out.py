"""How likely sequences are by the statistics of all others: what they say of new data.

Sequences that were trained on are fitted better by states to spare, where new ones are not: words
that occur once have their state from themselves.  Without a sequence's own counts they have not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sojourn.families import Categorical, Family
from sojourn.inference.posterior import Posterior
from sojourn.kernels import cpu
from sojourn.kernels.cpu.symbols import sum_by_row
from sojourn.kernels.interface import Floats, Integers, Potentials
from sojourn.sequences import Sequences

_PIECE_STEPS = 2**12


def can_leave_out(family: Family, posterior: Posterior, data: Sequences) -> bool:
    """Whether it is worthwhile, and known, to leave the counts of a sequence out.

    A sequence has little influence on statistics other than counts of symbols.
    """
    known = data.counted is not None or data.labels is not None or data.weights is not None
    return isinstance(family, Categorical) and posterior.durations is None and not known


def left_out_likelihoods(
    posterior: Posterior, family: Family, data: Sequences, *, n_threads: int
) -> Floats:
    """Return the log likelihood of each sequence without its own counts of symbols, eq (68).

    Parameters
    ----------
    posterior : Posterior
        Whose statistics include the sequences.
    family : Family
        A `Categorical`.
    data : Sequences
    """
    posterior = posterior.fetched()
    prior = np.broadcast_to(posterior.learned(family).prior(), (1, family.n_statistics))[0]
    counts = np.ascontiguousarray(posterior.emissions.dense().T, dtype=np.float64)
    table = _Table(
        *posterior.transitions.means(posterior.counts), prior, counts, counts.sum(axis=0)
    )
    parts = [_left_out(table, piece, n_threads) for piece in data.chunks(_PIECE_STEPS)]
    return np.concatenate(parts)


class _Table(NamedTuple):
    """Means of start and transitions, prior counts of symbols, E[t] by symbol, and its sums."""

    start: Floats
    transitions: Floats
    prior: Floats
    counts: Floats
    totals: Floats

    def rows(self, symbols: Integers, own: Floats, own_totals: Floats) -> Potentials:
        """Return the predictive probabilities of every step without some of the counts."""
        known = np.maximum(symbols, 0)
        shares = self.prior[known, None] + np.maximum(self.counts[known] - own, 0.0)
        totals = np.maximum(self.totals - own_totals, 0.0)
        shares /= self.prior.sum() + totals
        shares[symbols < 0] = 1.0  # missing
        return Potentials(self.start, self.transitions, shares)


def _left_out(table: _Table, piece: Sequences, n_threads: int) -> Floats:
    symbols, nothing = piece.values, np.zeros((1, 1))
    index = np.arange(len(symbols), dtype=np.int32)
    whole = table.rows(symbols, nothing, nothing)
    found = cpu.forward_backward(whole, index, piece.offsets, n_threads=n_threads)
    r = found.responsibilities * (symbols >= 0)[:, None]
    number = np.repeat(np.arange(len(piece)), piece.lengths)
    distinct, place = np.unique(number * len(table.prior) + symbols, return_inverse=True)
    own = sum_by_row(place, r, len(distinct), n_threads=n_threads)
    of_all = np.add.reduceat(r, piece.offsets[:-1], axis=0)
    left = table.rows(symbols, own[place], of_all[number])
    likelihoods: Floats = cpu.log_normalizers(left, index, piece.offsets, n_threads=n_threads)
    return likelihoods
