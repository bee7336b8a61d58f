"""What the linear regressions share: an intercept, coefficients, and the prior on both."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from sojourn.families.checks import Booleans, Moments, as_given, column_vector, present_rows
from sojourn.families.matrix_factors import pack_prior
from sojourn.families.matrix_normal import MatrixNormalFamily, assign_windows
from sojourn.families.scales import check_dof, scale_matrix, with_one, within_states
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class RegressionFamily(MatrixNormalFamily):
    """Linear regression on an intercept and on columns of x, after the targets, in every state.

    Subclasses say which columns are regressors, and store the parameters that are named here.
    """

    parameter_names = ("coefs_", "intercepts_", "covars_")

    mean: float | ArrayLike | None
    mean_strength: float
    coef_strength: float
    degrees_of_freedom: float | None
    scale: float | ArrayLike | None
    location: float | ArrayLike | None
    spread: float | ArrayLike | None

    @abstractmethod
    def of_regressors(self, columns: Floats) -> Floats:
        """Return one number per regressor, without the intercept, from one per data column."""

    def filled(
        self, n_features: int, n_targets: int, moments: Moments, variance: Floats, n_states: int
    ) -> Self:
        """Return the family with its defaults filled in.

        Parameters
        ----------
        n_features : int
        n_targets : int
        moments : Moments
            Of the columns of the data.
        variance : (n_targets,) array
            Variance of the targets over all states.
        n_states : int
        """
        mean = as_given(self.mean, moments.mean[:n_targets])
        location = as_given(self.location, moments.mean)
        spread = as_given(self.spread, np.sqrt(moments.variance))
        dof = as_given(self.degrees_of_freedom, n_targets + 2.0)
        scale = as_given(self.scale, within_states(variance, n_states, n_targets))
        return self.changed(
            n_features=n_features,
            mean=column_vector("mean", mean, n_targets, positive=False),
            mean_strength=float(column_vector("mean_strength", self.mean_strength, 1)[0]),
            coef_strength=float(column_vector("coef_strength", self.coef_strength, 1)[0]),
            degrees_of_freedom=check_dof(dof, n_targets - 1.0),
            scale=scale_matrix(scale, n_targets),
            location=column_vector("location", location, n_features, positive=False),
            spread=column_vector("spread", spread, n_features),
        )

    def prior(self) -> Floats:
        """Return λ°."""
        n_targets = self.sizes[1]
        squares = self.of_regressors(np.asarray(self.spread) ** 2)
        precision = np.concatenate([[self.mean_strength], self.coef_strength * squares])
        coefficients = np.zeros((n_targets, len(precision)))
        coefficients[:, 0] = np.asarray(self.mean) - np.asarray(self.location)[:n_targets]
        assert self.degrees_of_freedom is not None
        return pack_prior(self.degrees_of_freedom, coefficients, precision, np.asarray(self.scale))

    def assign(
        self, data: Sequences, n_states: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Cluster windows of steps by their regressions."""
        return assign_windows(self, data, n_states, rng)

    def design(self, x: Floats) -> tuple[Floats, Booleans]:
        """Return z = (1, regressors, targets), with the location subtracted."""
        x, present = present_rows(x)
        n = self.sizes[1]
        z = with_one(x, self.center())
        return namespace(z).concatenate([z[:, :1], z[:, 1 + n :], z[:, 1 : 1 + n]], axis=1), present

    def center(self) -> Floats:
        """Return c of the targets, and of the regressors after them."""
        location = np.asarray(self.location)
        return np.concatenate([location[: self.sizes[1]], self.of_regressors(location)])

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``coefs_`` (K, D, R − 1), ``intercepts_`` (K, D) and ``covars_`` (K, D, D).

        There are D targets and R regressors, including the intercept.
        """
        coefficients, covariances = self.means(natural)
        location, slopes = np.asarray(self.location), coefficients[:, :, 1:]
        shift = slopes @ self.of_regressors(location)
        return {
            "coefs_": slopes,
            "intercepts_": coefficients[:, :, 0] + location[: self.sizes[1]] - shift,
            "covars_": covariances,
        }
