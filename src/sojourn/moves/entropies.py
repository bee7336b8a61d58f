"""The entropy that merges take away on much data, estimated from a sample."""

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
    """H(q(z)) of all the data, if states are sums of the present ones, without a look, eq (70).

    Parameters
    ----------
    posterior : Posterior
        With the statistics of all the data.
    family : Family
        A `Categorical`.
    data : Sequences
        The sample.

    Attributes
    ----------
    present : float
        The entropy of the present states.
    """

    def __init__(
        self,
        posterior: Posterior,
        family: Family,
        data: Sequences,
        *,
        n_threads: int,
    ) -> None:
        self._posterior = posterior.fetched()
        prior = self._posterior.learned(family).prior()
        self._prior = np.broadcast_to(prior, (1, family.n_statistics))[0]
        self._emissions = self._posterior.emissions.dense()
        self._offsets, self._n_threads = data.offsets, n_threads
        self._symbols, place = np.unique(data.values, return_inverse=True)
        self._index = place.astype(np.int32)
        self._copies = float(state_masses(self._posterior.counts).sum()) / data.n_steps
        self._states: dict[_State, tuple[Floats, float]] = {}

        self.present, self._log_z = self._entropy(np.eye(self._posterior.n_states))

    def change(self, weights: Floats) -> tuple[float, float]:
        """Return the change of the entropy by merges, and its standard error."""
        entropy, log_z = self._entropy(weights)
        differences = log_z - self._log_z
        error = self._copies * float(np.sqrt(len(differences) * differences.var()))
        return entropy - self.present, error

    def _entropy(self, weights: Floats) -> tuple[float, Floats]:
        """Return the entropy of states, each a sum of some; and log Z of the sample's sequences."""
        transitions = self._posterior.transitions.regrouped(weights)
        counts = regrouped_counts(self._posterior.counts, weights, transitions.constraints)
        start, rows = transitions.means(counts)
        states = [self._state(tuple(np.flatnonzero(row).tolist())) for row in weights]
        table = np.ascontiguousarray(np.stack([shares for shares, _ in states], axis=1))
        log_z = cpu.log_normalizers(
            Potentials(start, rows, table), self._index, self._offsets, n_threads=self._n_threads
        )
        of_counts = xlogy(counts.start, start).sum() + xlogy(counts.transitions, rows).sum()
        of_symbols = sum(expected_log for _, expected_log in states)
        return float(self._copies * log_z.sum() - of_counts - of_symbols), log_z

    def _state(self, members: _State) -> tuple[Floats, float]:
        """Return a state's shares of the sample's symbols, and Σ_w E[t_w] log φ_w."""
        if members not in self._states:
            expected = self._emissions[list(members)].sum(axis=0, dtype=np.float64)
            shares = self._prior + expected
            shares /= shares.sum()
            own = np.where(self._symbols < 0, 1.0, shares[self._symbols])  # -1 is missing
            self._states[members] = own, float(xlogy(expected, shares).sum())
        return self._states[members]
