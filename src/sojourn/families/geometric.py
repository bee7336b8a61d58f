"""Positive counts: how often until it happens."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.columns import ColumnFamily, log_beta, log_rising
from sojourn.families.dense import (
    as_given,
    assign_steps,
    check_columns,
    check_counts,
    column_moments,
    column_vector,
)
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class Geometric(ColumnFamily):
    r"""Vectors of positive counts, with an independent Beta prior on each column.

    .. math::

        \phi_{kd} \sim \mathrm{Beta}(\alpha^\circ_d, \beta^\circ_d), \qquad
        p(x_{td} = x \mid z_t = k) = \phi_{kd} (1 - \phi_{kd})^{x - 1}, \quad x = 1, 2, \dots

    t(x) = (1, x − 1) for each column and a_g(α, β) = log B(α, β), so that the collapsed potential
    (2) is a beta-geometric (Waring) distribution.  NaN is a missing entry.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    alpha, beta : float or (D,) array, optional
        Parameters of the Beta prior; by default those of a tenth of a step at the column's mean.

    Examples
    --------
    >>> family = Geometric(n_features=1, alpha=1.0, beta=1.0)
    >>> np.exp(family.log_predictive(np.array([[1.0]]), np.array([[1.0, 1.0]])))
    array([[0.5]])
    """

    def __init__(
        self,
        n_features: int | None = None,
        alpha: float | ArrayLike | None = None,
        beta: float | ArrayLike | None = None,
    ) -> None:
        self.n_features = n_features
        self.alpha = alpha
        self.beta = beta

    @property
    def coordinates(self) -> int:
        """Steps and failures."""
        return 2

    @property
    def discrete(self) -> bool:
        """Counts are."""
        return True

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of what `parameters` returns."""
        return ("probs_",)

    def resolve(self, data: Sequences, n_states: int) -> Geometric:
        """Take columns and prior mean from the data."""
        n_features = check_columns(data, self.n_features, "Geometric")
        mean = column_moments(check_counts(data, n_features, least=1).values).mean
        alpha = column_vector("alpha", as_given(self.alpha, 0.1), n_features)
        failures = 0.1 * np.maximum(mean - 1.0, 0.1)
        beta = column_vector("beta", as_given(self.beta, failures), n_features)
        return Geometric(n_features, alpha, beta)

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are positive counts."""
        return check_counts(data, self.features, least=1)

    def prior(self) -> Floats:
        """Return λ° = (α°, β°)."""
        alpha = column_vector("alpha", self.alpha, self.features)
        return np.concatenate([alpha, column_vector("beta", self.beta, self.features)])

    def assign(
        self, data: Sequences, n_states: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Cluster steps by log x."""
        return assign_steps(data, np.log, n_states, rng)

    def entry_statistics(self, x: Floats) -> tuple[Floats | float, ...]:
        """Return (1, x − 1)."""
        return 1.0, x - 1.0

    def entry_log_base(self, x: Floats) -> Floats:
        """Return zeros."""
        return namespace(x).zeros_like(x)

    def entry_log_normalizer(self, *parts: Floats) -> Floats:
        """Return log B(α, β)."""
        return log_beta(*parts)

    def entry_log_predictive(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return log B(α + 1, β + x − 1) − log B(α, β)."""
        alpha, beta = parts
        xp = namespace(alpha)
        return xp.log(alpha) + log_rising(beta, x - 1.0) - log_rising(alpha + beta, x)

    def entry_expected(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return E[log φ] + (x − 1) E[log(1 − φ)]."""
        alpha, beta = parts
        xp = namespace(alpha)
        total = xp.digamma(alpha + beta)
        return xp.digamma(alpha) - total + (x - 1.0) * (xp.digamma(beta) - total)

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw counts at the posterior mean parameters."""
        return rng.geometric(self.parameters(natural)["probs_"][states.values])

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``probs_``, the mean of φ, shape (K, D)."""
        alpha, beta = self.parts(natural)
        return {"probs_": alpha / (alpha + beta)}
