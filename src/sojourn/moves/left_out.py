"""How likely sequences are by the statistics of all others: what they say of new data.

Sequences that were trained on are fitted better by states to spare, where new ones are not: words
that occur once have their state from themselves.  Without a sequence's own counts they have not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sojourn.families import Categorical, Family
from sojourn.inference.posterior import Posterior, fetched, regrouped_counts
from sojourn.kernels import cpu
from sojourn.kernels.arrays import namespace, to_host
from sojourn.kernels.cpu.symbols import sum_by_row
from sojourn.kernels.interface import Floats, Integers, Potentials
from sojourn.sequences import Sequences
from sojourn.transitions import Rows

_PIECE_STEPS = 2**12


def can_leave_out(family: Family, posterior: Posterior, data: Sequences) -> bool:
    """Whether it is worthwhile, and known, to leave the counts of a sequence out.

    A sequence has little influence on statistics other than counts of symbols.
    """
    known = data.counted is not None or data.labels is not None or data.weights is not None
    return isinstance(family, Categorical) and posterior.durations is None and not known


def left_out_likelihoods(
    posterior: Posterior,
    family: Family,
    data: Sequences,
    *,
    n_threads: int,
    weights: Floats | None = None,
) -> Floats:
    """Return the log likelihood of each sequence without its own counts of symbols, eq (68).

    Parameters
    ----------
    posterior : Posterior
        Whose statistics include the sequences.
    family : Family
        A `Categorical`.
    data : Sequences
    weights : (K', K) array, optional
        The states as sums of those of the posterior.
    """
    table, place = _Table.of(posterior, family, data, weights)
    index = Sequences(place, data.offsets)
    parts = [_left_out(table, piece, n_threads) for piece in index.chunks(_PIECE_STEPS)]
    return np.concatenate(parts)


class _Table(NamedTuple):
    """Means of start and transitions; prior counts and E[t] of the symbols that occur; their sums.

    A symbol is a number among those that occur in the data; a missing one is the first of them.
    """

    start: Floats
    transitions: Floats
    prior: Floats
    counts: Floats
    prior_sum: float
    totals: Floats
    has_missing: bool

    @classmethod
    def of(
        cls, posterior: Posterior, family: Family, data: Sequences, weights: Floats | None
    ) -> tuple[_Table, Integers]:
        """Return the table for some data, and the number of the symbol of every step."""
        if weights is None:
            weights = np.eye(posterior.n_states)
        symbols, place = np.unique(data.values, return_inverse=True)
        known = np.maximum(symbols, 0)
        prior = np.broadcast_to(posterior.learned(family).prior(), (1, family.n_statistics))[0]
        emissions = posterior.emissions.dense()
        chosen = namespace(emissions).placed(known, like=emissions)
        counts, totals = (
            np.ascontiguousarray((weights @ to_host(part).astype(np.float64)).T)
            for part in (emissions[:, chosen], emissions.sum(axis=1)[:, None])
        )
        transitions = posterior.transitions.converted(fetched).regrouped(weights)
        rows = Rows(*map(fetched, posterior.counts))
        means = transitions.means(regrouped_counts(rows, weights, transitions.constraints))
        prior_sum, has_missing = float(prior.sum()), bool(symbols[0] < 0)
        table = cls(*means, prior[known], counts, prior_sum, totals[0], has_missing)
        return table, place.astype(np.int32)

    def rows(self, place: Integers, own: Floats, own_totals: Floats) -> Potentials:
        """Return the predictive probabilities of every step without some of the counts."""
        shares = self.prior[place, None] + np.maximum(self.counts[place] - own, 0.0)
        totals = np.maximum(self.totals - own_totals, 0.0)
        shares /= self.prior_sum + totals
        if self.has_missing:
            shares[place == 0] = 1.0
        return Potentials(self.start, self.transitions, shares)


def _left_out(table: _Table, piece: Sequences, n_threads: int) -> Floats:
    place, nothing = piece.values, np.zeros((1, 1))
    every = table.rows(np.arange(len(table.prior)), nothing, nothing)
    found = cpu.forward_backward(every, place, piece.offsets, n_threads=n_threads)
    r = found.responsibilities
    if table.has_missing:
        r = r * (place > 0)[:, None]
    number = np.repeat(np.arange(len(piece)), piece.lengths)
    distinct, one = np.unique(number * len(table.prior) + place, return_inverse=True)
    own = sum_by_row(one, r, len(distinct), n_threads=n_threads)
    of_all = np.add.reduceat(r, piece.offsets[:-1], axis=0)
    left = table.rows(place, own[one], of_all[number])
    index = np.arange(len(place), dtype=np.int32)
    likelihoods: Floats = cpu.log_normalizers(left, index, piece.offsets, n_threads=n_threads)
    return likelihoods
