"""The evidence of counts of symbols under a Dirichlet prior, certain or not."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from sojourn.families.base import EmissionRows, Family
from sojourn.families.table import DecayedTable, RowSums
from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.expectations import Spread, expected_log_gamma
from sojourn.kernels.interface import Floats

_LARGEST = 1.0 - 1e-7  # responsibilities are clipped by this, so that log(1 − r) is finite


class DirichletFamily(Family):
    """A family whose statistics are counts of symbols, one per step that is not missing."""

    def log_normalizer(self, natural: Floats) -> Floats:
        """Return Σ_w log Γ(λ_w) − log Γ(Σ_w λ_w)."""
        xp = namespace(natural)
        return xp.gammaln(natural).sum(axis=1) - xp.gammaln(natural.sum(axis=1))

    def divergence(self, natural: Floats) -> Floats:
        """Return KL(Dirichlet(λ) || Dirichlet(λ°)) of every state."""
        prior = np.broadcast_to(self.prior(), natural.shape)
        expected_log = digamma(natural) - digamma(natural.sum(axis=1))[:, None]
        slope = ((natural - prior) * expected_log).sum(axis=1)
        return slope - self.log_normalizer(natural) + self.log_normalizer(prior)

    def uncertainty(
        self,
        encoded: Any,
        responsibilities: Floats,
        rows: EmissionRows,
        table: DecayedTable,
        masses: Floats,
        *,
        n_threads: int,
    ) -> RowSums:
        """Return Σ log(1 − r) of every symbol in the first K columns, Σ r (1 − r) in the others."""
        xp = namespace(responsibilities)
        log_absent = xp.log1p(-xp.clip(responsibilities, None, _LARGEST))
        variances = responsibilities * (1.0 - responsibilities)
        # One after the other: on a GPU they are sums of the same form as those of training.
        sums, others = (
            self.sum_statistics(encoded, weights, n_threads=n_threads)
            for weights in (log_absent, variances)
        )
        return RowSums(sums.rows, xp.concatenate([sums.values, others.values], axis=1), sums.n_rows)

    def pooled_uncertainty(
        self, first: Floats, second: Floats, statistics: tuple[Floats, Floats], totals: Floats
    ) -> Floats:
        """Return about Σ log(1 − r) and Σ r (1 − r) of the two states together, eq (67).

        Exact for symbols whose steps are all alike, such as those that occur once.
        """
        one, other = statistics
        xp = namespace(one)
        occurs = xp.clip(totals, 1e-30, None)

        def log_absent(counts: Floats) -> Floats:
            return occurs * xp.log1p(-xp.clip(counts / occurs, None, _LARGEST))

        within = log_absent(one + other) - log_absent(one) - log_absent(other)
        variances = first[1] + second[1] - 2.0 * one * other / occurs
        pooled = first[0] + second[0] + within, xp.clip(variances, 0.0, None)
        return xp.concatenate([part[None] for part in pooled], axis=0)

    def expected_log_normalizer(
        self, statistics: Floats, uncertainty: Floats, masses: Floats
    ) -> Floats:
        """Return E[Σ_w log Γ(λ_w) − log Γ(Σ_w λ_w)] of uncertain counts, eq (27)."""
        n_states, xp = len(statistics), namespace(statistics)
        prior = xp.placed(self.prior(), like=statistics)
        totals = prior.sum(axis=-1) + xp.zeros_like(statistics[:, 0])
        unseen = 0.0
        if not is_tensor(statistics):
            # Of a large alphabet, small data have few symbols: of the others nothing is uncertain.
            seen = np.flatnonzero(statistics.any(axis=0))
            unseen = gammaln(np.delete(prior, seen, axis=-1)).sum(axis=-1)
            prior, statistics = prior[..., seen], statistics[:, seen]
            uncertainty = uncertainty[seen]
        spread = Spread(uncertainty[:, :n_states].T, uncertainty[:, n_states:].T)
        cells = expected_log_gamma(prior, statistics, spread).sum(axis=1) + unseen
        whole = Spread(*(part.sum(axis=1) for part in spread))
        return cells - expected_log_gamma(totals, statistics.sum(axis=1), whole)
