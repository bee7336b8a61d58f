"""The entropy of fewer states on much data, estimated from a sample without a look at the data."""

from __future__ import annotations

import numpy as np
from scipy.special import xlogy

from sojourn.families import Family
from sojourn.inference.occupancy import state_masses
from sojourn.inference.posterior import Posterior, regrouped_counts
from sojourn.kernels import cpu
from sojourn.kernels.interface import Floats, Potentials
from sojourn.sequences import Sequences

_State = tuple[int, ...]  # which of the present states it is made of


class EntropyEstimate:
    """H(q(z)) of all the data, if states are sums of the present ones, eq (70).

    Parameters
    ----------
    parameters : Posterior
        By whose means states are inferred.
    counts : Posterior
        With the counts of all the data that this gives, nearly.
    family : Family
        A `Categorical`.
    data : Sequences
        The sample.
    """

    def __init__(
        self,
        parameters: Posterior,
        counts: Posterior,
        family: Family,
        data: Sequences,
        *,
        n_threads: int,
    ) -> None:
        self._parameters, self._counts = parameters.fetched(), counts.fetched()
        prior = self._parameters.learned(family).prior()
        self._prior = np.broadcast_to(prior, (1, family.n_statistics))[0]
        self._own = self._parameters.emissions.dense()
        self._expected = self._counts.emissions.dense()
        self._offsets, self._n_threads = data.offsets, n_threads
        self._symbols, place = np.unique(data.values, return_inverse=True)
        self._index = place.astype(np.int32)
        self._copies = float(state_masses(self._counts.counts).sum()) / data.n_steps
        self._states: dict[_State, tuple[Floats, float]] = {}

    def __call__(self, weights: Floats) -> float:
        """Return the entropy of states that are sums of the present ones, each in one of them."""
        constraints = self._parameters.transitions.constraints
        transitions = self._parameters.transitions.regrouped(weights)
        own, expected = (
            regrouped_counts(posterior.counts, weights, constraints)
            for posterior in (self._parameters, self._counts)
        )
        start, rows = transitions.means(own)
        states = [self._state(tuple(np.flatnonzero(row).tolist())) for row in weights]
        table = np.ascontiguousarray(np.stack([shares for shares, _ in states], axis=1))
        log_z = cpu.log_normalizers(
            Potentials(start, rows, table), self._index, self._offsets, n_threads=self._n_threads
        )
        of_counts = xlogy(expected.start, start).sum() + xlogy(expected.transitions, rows).sum()
        of_symbols = sum(expected_log for _, expected_log in states)
        return float(self._copies * log_z.sum() - of_counts - of_symbols)

    def _state(self, members: _State) -> tuple[Floats, float]:
        """Return a state's shares of the sample's symbols, and Σ_w E[t_w] log φ_w."""
        if members not in self._states:
            shares = self._prior + self._own[list(members)].sum(axis=0, dtype=np.float64)
            shares /= shares.sum()
            expected = self._expected[list(members)].sum(axis=0, dtype=np.float64)
            own = np.where(self._symbols < 0, 1.0, shares[self._symbols])  # -1 is missing
            self._states[members] = own, float(xlogy(expected, shares).sum())
        return self._states[members]
