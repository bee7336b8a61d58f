"""Real vectors with mean zero, whose covariance depends on the state."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.checks import (
    Booleans,
    check_columns,
    check_real,
    plain_values,
    present_rows,
)
from sojourn.families.matrix_factors import pack_prior
from sojourn.families.matrix_normal import MatrixNormalFamily, assign_windows
from sojourn.families.scales import check_dof, reach, scale_matrix, spread_prior, within_states
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class ZeroMeanGaussian(MatrixNormalFamily):
    r"""Real vectors with mean zero and an inverse-Wishart prior on the covariance.

    .. math::

        \Sigma_k \sim \mathcal{W}^{-1}(\nu^\circ, \Psi^\circ), \qquad
        x_t \mid z_t = k \sim \mathcal{N}(0, \Sigma_k)

    t(x) = (1, x xᵀ), and the collapsed potential (2) is a multivariate t around zero.  It suits
    returns, vibrations and other signals whose scale changes.  Only whole steps may be missing.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    degrees_of_freedom : float, optional
        ν°, as in `Gaussian`.
    scale : float, (D,) or (D, D) array, optional
        Ψ°, as in `Gaussian`; by default from the mean squares of the columns.

    Examples
    --------
    >>> import sojourn as sj
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, 200), rng.normal(0, 30, 200)])
    >>> model = sj.HMM(2, sj.ZeroMeanGaussian(), random_state=0).fit(X, [100] * 4)
    >>> bool(model.covars_.max() > 100 * model.covars_.min())
    True
    """

    parameter_names = ("covars_",)

    def __init__(
        self,
        n_features: int | None = None,
        degrees_of_freedom: float | None = None,
        scale: float | ArrayLike | None = None,
    ) -> None:
        self.n_features = n_features
        self.degrees_of_freedom = degrees_of_freedom
        self.scale = scale

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of regressors, zero, and of targets, the columns."""
        return 0, self.features

    def resolve(self, data: Sequences, n_states: int) -> ZeroMeanGaussian:
        """Take columns and scale from the data."""
        n_features = check_columns(data, self.n_features, "ZeroMeanGaussian")
        values = plain_values(check_real(data, n_features))
        squares = np.nansum(values**2, axis=0) / np.maximum((~np.isnan(values)).sum(axis=0), 1)
        squares = np.where(squares > 0, squares, 1.0)
        guess = within_states(squares, n_states, n_features)
        given = self.degrees_of_freedom, self.scale
        dof, scale = spread_prior(*given, guess, 1.0, n_features + 1.0)
        return ZeroMeanGaussian(
            n_features,
            check_dof(dof, n_features - 1.0),
            scale_matrix(scale, n_features),
        )

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are finite, and that rows are complete or missing."""
        return check_real(data, self.features, largest=reach(self.scale), whole_rows=True)

    def prior(self) -> Floats:
        """Return λ°."""
        assert self.degrees_of_freedom is not None
        nothing = np.empty((self.features, 0))
        return pack_prior(self.degrees_of_freedom, nothing, np.empty(0), np.asarray(self.scale))

    def assign(
        self, data: Sequences, n_states: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Cluster windows of steps by their covariances."""
        return assign_windows(self, data, n_states, rng)

    def design(self, x: Floats) -> tuple[Floats, Booleans]:
        """Return z = x."""
        return present_rows(x)

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw vectors with the posterior mean covariances."""
        return self.draw(natural, states.values, np.empty((states.n_steps, 0)), rng)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``covars_``, shape (K, D, D)."""
        return {"covars_": self.means(natural)[1]}
