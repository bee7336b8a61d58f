"""Binary vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.blocks import LogPotentials
from sojourn.families.checks import check_columns, check_counts, column_vector
from sojourn.families.columns import log_beta
from sojourn.families.dense import DenseFamily
from sojourn.families.fused import QuadraticStatistics
from sojourn.families.rates import concatenated
from sojourn.families.scales import first_moments
from sojourn.families.tabled import TabledPotentials
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class Bernoulli(DenseFamily):
    r"""Binary vectors, with an independent Beta prior on each column.

    .. math::

        \phi_{kd} \sim \mathrm{Beta}(\alpha^\circ_d, \beta^\circ_d), \qquad
        x_{td} \mid z_t = k \sim \mathrm{Bernoulli}(\phi_{kd})

    t(x) = (x, 1 − x) for each column and a_g(α, β) = log B(α, β), so that the collapsed potential
    (2) is the posterior mean, and both potentials are one matrix product.  NaN is a missing entry.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    alpha : float or (D,) array
        α°, the prior count of ones.
    beta : float or (D,) array
        β°, the prior count of zeros.

    Examples
    --------
    >>> family = Bernoulli(n_features=1)
    >>> np.exp(family.log_predictive(np.array([[1.0]]), np.array([[3.0, 1.0]])))
    array([[0.75]])
    """

    fused = True
    parameter_names = ("emissionprob_",)

    def __init__(
        self,
        n_features: int | None = None,
        alpha: float | ArrayLike = 0.5,
        beta: float | ArrayLike = 0.5,
    ) -> None:
        self.n_features = n_features
        self.alpha = alpha
        self.beta = beta

    @property
    def n_statistics(self) -> int:
        """Number of statistics S: ones and zeros of each column."""
        return 2 * self.features

    def resolve(self, data: Sequences, n_states: int) -> Bernoulli:
        """Take the number of columns from the data."""
        n_features = check_columns(data, self.n_features, "Bernoulli")
        alpha = column_vector("alpha", self.alpha, n_features)
        return Bernoulli(n_features, alpha, column_vector("beta", self.beta, n_features))

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are zeros and ones."""
        return check_counts(data, self.features, most=1)

    def prior(self) -> Floats:
        """Return λ° = (α°, β°)."""
        return concatenated(self, "alpha", "beta")

    def log_base_measure(self, x: Floats) -> Floats:
        """Return zeros."""
        return namespace(x).zeros_like(x[:, 0])

    def statistics(self, x: Floats) -> Floats:
        """Return (x, 1 − x), zeros for missing entries."""
        xp = namespace(x)
        return xp.nan_to_num(xp.concatenate([x, 1.0 - x], axis=1), nan=0.0)

    def log_normalizer(self, natural: Floats) -> Floats:
        """Return Σ_d log B(α_d, β_d)."""
        return log_beta(*self._parts(natural)).sum(axis=1)

    def potentials(self, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return log(α/(α+β)) or ψ(α) − ψ(α+β) for ones, the same of β for zeros."""
        alpha, beta = self._parts(natural)
        xp = namespace(natural)
        log = xp.log if collapsed else xp.digamma
        total = log(alpha + beta)
        weights = xp.concatenate([log(alpha) - total, log(beta) - total], axis=1).T

        def plain(x: Floats) -> Floats:
            return self.statistics(x) @ weights

        ones, zeros = weights[: self.features].T, weights[self.features :].T
        return TabledPotentials(
            plain,
            lambda values, d: xp.where(values > 0.0, ones[:, d], zeros[:, d]),
            len(natural),
        )

    def quadratics(self) -> QuadraticStatistics:
        """Return (x, 1 − x)."""
        one, nothing = np.ones(self.features), np.zeros(self.features)
        return QuadraticStatistics.by_column(
            nothing, np.stack([nothing, one]), np.stack([one, -one]), np.stack([nothing, nothing])
        )

    def compiled_sums(self, x: Floats, weights: Floats, n_threads: int) -> Floats | None:
        """Return the weighted sums of data without missing entries."""
        found = first_moments(x, weights, n_threads)
        return None if found is None else np.concatenate([found[1], found[0] - found[1]])

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw zeros and ones with the posterior mean probabilities."""
        chances = self.parameters(natural)["emissionprob_"][states.values]
        return (rng.random(chances.shape) < chances).astype(np.int8)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``emissionprob_``, the mean probability of a one, shape (K, D)."""
        alpha, beta = self._parts(natural)
        return {"emissionprob_": alpha / (alpha + beta)}

    def _parts(self, natural: Floats) -> tuple[Floats, Floats]:
        return natural[:, : self.features], natural[:, self.features :]
