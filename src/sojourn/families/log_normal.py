"""Positive vectors whose logarithms are Gaussian."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.blocks import LogPotentials
from sojourn.families.checks import check_columns, check_positive, plain_values
from sojourn.families.dense import DenseFamily
from sojourn.families.diagonal_gaussian import DiagonalGaussian
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class LogNormal(DenseFamily):
    r"""Positive vectors: the logarithm of each column is Gaussian given the state.

    .. math::

        (\mu_{kd}, \sigma^2_{kd}) \sim \text{normal–inverse-gamma}, \qquad
        \log x_{td} \mid z_t = k \sim \mathcal{N}(\mu_{kd}, \sigma^2_{kd})

    It is `DiagonalGaussian` on log x, with 1/x in the base measure; the collapsed potential (2) is
    a log-t for each column.  NaN is a missing entry.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    mean : float or (D,) array, optional
        Prior mean of the logarithms; by default their mean.
    mean_strength : float
        Number of steps that the prior mean counts for.
    degrees_of_freedom : float, optional
        ν° of the logarithms, as in `DiagonalGaussian`.
    scale : float or (D,) array, optional
        Ψ° of the logarithms, as in `DiagonalGaussian`.
    location : float or (D,) array, optional
        Subtracted from the logarithms, as in `DiagonalGaussian`.

    Examples
    --------
    >>> import sojourn as sj
    >>> X = np.exp([0.1, -0.2, 0.3, 9.1, 8.9, 9.0, 9.2, 0.2, 0.0, -0.1])
    >>> model = sj.HMM(2, sj.LogNormal(), random_state=0).fit(X, [5, 5])
    >>> np.sort(model.means_[:, 0]).round()
    array([0., 9.])
    """

    parameter_names = DiagonalGaussian.parameter_names

    def __init__(
        self,
        n_features: int | None = None,
        mean: float | ArrayLike | None = None,
        mean_strength: float = 0.01,
        degrees_of_freedom: float | None = None,
        scale: float | ArrayLike | None = None,
        location: float | ArrayLike | None = None,
    ) -> None:
        self.n_features = n_features
        self.mean = mean
        self.mean_strength = mean_strength
        self.degrees_of_freedom = degrees_of_freedom
        self.scale = scale
        self.location = location

    @property
    def logarithms(self) -> DiagonalGaussian:
        """The family of log x."""
        return DiagonalGaussian(**self.get_params(deep=False))

    @property
    def n_statistics(self) -> int:
        """Number of statistics S."""
        return self.logarithms.n_statistics

    def resolve(self, data: Sequences, n_states: int) -> LogNormal:
        """Take columns, location and scale from the logarithms of the data."""
        n_features = check_columns(data, self.n_features, "LogNormal")
        positive = check_positive(data, n_features)
        logs = positive.with_values(np.log(plain_values(positive)))
        return LogNormal(**self.logarithms.resolve(logs, n_states).get_params(deep=False))

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are positive."""
        return check_positive(data, self.features)

    def prior(self) -> Floats:
        """Return λ° of the logarithms."""
        return self.logarithms.prior()

    def assign(
        self, data: Sequences, n_states: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Cluster steps by their logarithms."""
        logs, weights = self.logarithms.assign(
            data.with_values(np.log(plain_values(data))), n_states, rng
        )
        return np.exp(logs), weights

    def log_base_measure(self, x: Floats) -> Floats:
        """Return that of the logarithms minus Σ_d log x_d."""
        xp = namespace(x)
        logs = xp.log(x)
        return self.logarithms.log_base_measure(logs) - xp.nansum(logs, axis=1)

    def statistics(self, x: Floats) -> Floats:
        """Return the statistics of the logarithms."""
        return self.logarithms.statistics(namespace(x).log(x))

    def log_normalizer(self, natural: Floats) -> Floats:
        """Return a_g of the logarithms."""
        return self.logarithms.log_normalizer(natural)

    def potentials(self, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return those of the logarithms minus Σ_d log x_d."""
        of_logs = self.logarithms.potentials(natural, collapsed=collapsed)

        def potentials(x: Floats) -> Floats:
            xp = namespace(x)
            logs = xp.log(x)
            return of_logs(logs) - xp.nansum(logs, axis=1)[:, None]

        return potentials

    def check_natural(self, natural: Floats) -> None:
        """Raise a ValueError unless κ, ν and Ψ of the logarithms are positive."""
        self.logarithms.check_natural(natural)

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw positive vectors with the posterior mean parameters of the logarithms."""
        return np.exp(self.logarithms.sample(natural, states, rng))

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``means_`` and ``covars_`` (variances) of the logarithms, shape (K, D) both."""
        return self.logarithms.parameters(natural)
