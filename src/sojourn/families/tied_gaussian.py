"""Real vectors with one covariance matrix that all states share."""

from __future__ import annotations

import numpy as np

from sojourn.families.base import POINT_STEPS
from sojourn.families.gaussian import Gaussian
from sojourn.families.matrix_factors import (
    Factors,
    joint_matrices,
    own_log_normalizer,
    pack_joint,
    scale_log_normalizer,
    stable_cholesky,
)
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats, Integers


class TiedGaussian(Gaussian):
    r"""Real vectors whose states have means of their own and one covariance matrix together.

    .. math::

        \Sigma \sim \mathcal{W}^{-1}(\nu^\circ, \Psi^\circ), \quad
        \mu_k \mid \Sigma \sim \mathcal{N}(m^\circ, \Sigma / \kappa^\circ), \quad
        x_t \mid z_t = k \sim \mathcal{N}(\mu_k, \Sigma)

    Every state keeps the statistics of `Gaussian`.  Parameters are made of all of them: with Ψ_k
    the scale that state k would have alone, Ψ = Ψ° + Σ_k (Ψ_k − Ψ°) and ν = ν° + Σ_k (ν_k − ν°),
    eq (57).  The collapsed potential (2) is exact, a multivariate t whose degrees of freedom are
    those of all the data.  It suits many states with little data each, or noise of a device that
    does not depend on the state.  Only whole steps may be missing (all NaN).

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    mean : float or (D,) array, optional
        m°; this and what follows as in `Gaussian`.
    mean_strength : float
        κ°.
    degrees_of_freedom : float, optional
        ν°.
    scale : float, (D,) or (D, D) array, optional
        Ψ°.
    location : float or (D,) array, optional
        c.

    Examples
    --------
    >>> import sojourn as sj
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(1, 1, (50, 2)), rng.normal(9, 1, (50, 2))])
    >>> model = sj.HMM(2, sj.TiedGaussian(), random_state=0).fit(X, [25] * 4)
    >>> model.means_.shape, model.covars_.shape
    ((2, 2), (2, 2))
    """

    def factors(self, natural: Floats) -> Factors:
        """Return the factors of every state, with the shared ν and Ψ."""
        xp = namespace(natural)
        dof, kappa, means, scales = self._parts(natural)
        scale = self._shared(natural, scales)
        root = stable_cholesky(scale[None])
        lower = xp.zeros(
            (len(natural), 1 + self.features, 1 + self.features), "float64", like=natural
        )
        lower[:, 0, 0] = xp.sqrt(kappa)
        lower[:, 1:, 0] = xp.sqrt(kappa)[:, None] * means
        lower[:, 1:, 1:] = root
        logs = 2.0 * xp.log(xp.diagonal(root)).sum(axis=1)
        nothing = xp.zeros_like(kappa)
        return Factors(dof + nothing, lower, xp.log(kappa), logs + nothing)

    def log_normalizer(self, natural: Floats) -> Floats:
        """Return an equal share of what belongs to Σ for every state, and its own: (K,).

        The sum is a_g of all states, eq (58).
        """
        factors, n = self.factors(natural), self.features
        shared = scale_log_normalizer(factors, n)
        return shared / len(natural) + own_log_normalizer(factors, 1, n)

    def merge_gains(self, statistics: Floats, first: Integers, second: Integers) -> Floats:
        """Return what merging pairs of states adds to a_g, eq (59)."""
        xp = namespace(statistics)
        prior = xp.placed(self.prior(), like=statistics)
        dof, kappa, _, scales = self._parts(prior + statistics)
        _, merged, _, both = self._parts(prior + statistics[first] + statistics[second])
        nothing = xp.placed(np.asarray(self.scale), like=statistics)
        shared = self._shared(prior + statistics, scales)
        changed = shared + (both + nothing) - (scales[first] + scales[second])
        before, after = (
            2.0 * xp.log(xp.diagonal(stable_cholesky(part))).sum(axis=1)
            for part in (shared[None], changed)
        )
        strengths = xp.log(merged) - xp.log(kappa[first]) - xp.log(kappa[second])
        strengths = strengths + float(np.log(self.mean_strength))
        return -0.5 * dof * (after - before) - 0.5 * self.features * strengths

    def point(self, natural: Floats) -> Floats:
        """Return λ of many steps, whose covariance is Ψ divided by the number of all steps."""
        xp = namespace(natural)
        _, kappa, means, scales = self._parts(natural)
        steps = xp.clip(natural[:, 0] - self.prior()[0], 1e-3, None)
        scale = self._shared(natural, scales) / steps.sum()
        sums = kappa[:, None] * means
        squares = steps[:, None, None] * scale + sums[:, :, None] * means[:, None, :]
        return POINT_STEPS * pack_joint(steps, kappa[:, None, None], sums[:, :, None], squares)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``means_``, shape (K, D), and ``covars_``, shape (D, D)."""
        found = super().parameters(natural)
        return {"means_": found["means_"], "covars_": found["covars_"][0]}

    def _parts(self, natural: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the shared ν, and κ (K,), means (K, D) and Ψ_k (K, D, D) of every state."""
        joint = joint_matrices(natural)
        kappa, sums = joint[:, 0, 0], joint[:, 0, 1:]
        means = sums / kappa[:, None]
        prior = self.degrees_of_freedom
        assert prior is not None
        dof = prior + (natural[:, 0] - prior).sum()
        return dof, kappa, means, joint[:, 1:, 1:] - sums[:, :, None] * means[:, None, :]

    def _shared(self, natural: Floats, scales: Floats) -> Floats:
        """Return Ψ, shape (D, D), from Ψ_k of every state."""
        prior = namespace(natural).placed(np.asarray(self.scale), like=natural)
        return prior + (scales - prior).sum(axis=0)
