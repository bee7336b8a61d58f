"""The evidence of counts of symbols under a Dirichlet prior, certain or not."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import digamma

from sojourn.families.base import EmissionRows, Family
from sojourn.families.table import DecayedTable, RowSums
from sojourn.kernels.arrays import namespace
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
        weights = xp.concatenate([log_absent, variances], axis=1)
        return self.sum_statistics(encoded, weights, n_threads=n_threads)

    def expected_log_normalizer(
        self, statistics: Floats, uncertainty: Floats, masses: Floats
    ) -> Floats:
        """Return E[Σ_w log Γ(λ_w) − log Γ(Σ_w λ_w)] of uncertain counts, eq (27)."""
        n_states, xp = len(statistics), namespace(statistics)
        prior = xp.placed(self.prior(), like=statistics)
        spread = Spread(uncertainty[:, :n_states].T, uncertainty[:, n_states:].T)
        cells = expected_log_gamma(prior, statistics, spread).sum(axis=1)
        totals = prior.sum(axis=-1) + xp.zeros_like(cells)
        whole = Spread(*(part.sum(axis=1) for part in spread))
        return cells - expected_log_gamma(totals, statistics.sum(axis=1), whole)
