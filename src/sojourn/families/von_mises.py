"""Angles."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sojourn.families.checks import check_columns, check_real
from sojourn.families.integrated import IntegratedFamily, log_normal
from sojourn.families.interpolated import FOURIER, SmoothIn
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences

_LOG_2PI = float(np.log(2.0 * np.pi))

LARGEST_ANGLE = 1e9
"""Largest angle in magnitude: beyond it, double precision knows the direction poorly."""


class VonMises(IntegratedFamily):
    r"""Vectors of angles in radians, with an unknown direction and concentration per column.

    .. math::

        \mu_{kd} \sim \mathrm{Uniform}, \qquad \log \kappa_{kd} \sim \mathcal{N}(1, 1.5^2), \qquad
        p(x_{td} \mid z_t = k) = \frac{\exp\{\kappa_{kd} \cos(x_{td} - \mu_{kd})\}}
        {2 \pi I_0(\kappa_{kd})}

    t(x) = (1, cos x, sin x) for each column.  Given κ the direction integrates out: with
    R = √(λ_2² + λ_3²),

    .. math:: a_g(\lambda \mid \kappa) = \log I_0(\kappa R) - \lambda_1 \log 2 \pi I_0(\kappa)

    and κ is integrated numerically, eq (50).  Angles need not be between −π and π.  NaN is a
    missing entry.  For movement data use a `Product` of a family for step lengths and this one.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    log_concentration : float
        Prior mean of log κ.
    log_concentration_scale : float
        Its standard deviation.

    Examples
    --------
    >>> import sojourn as sj
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.vonmises(0.0, 9.0, 200), rng.vonmises(3.0, 2.0, 200)])
    >>> model = sj.HMM(2, sj.VonMises(), random_state=0).fit(X, [200, 200])
    >>> np.sort(model.directions_[:, 0]).round(), np.sort(model.concentrations_[:, 0]).round()
    (array([0., 3.]), array([2., 8.]))
    """

    coordinates = 3
    discrete = False
    ranges = ((-9.0, 18.0),)
    smooth_in = SmoothIn(FOURIER, lambda x: x, lambda u: u, (-np.pi, np.pi))
    parameter_names = ("directions_", "concentrations_")

    def __init__(
        self,
        n_features: int | None = None,
        log_concentration: float = 1.0,
        log_concentration_scale: float = 1.5,
    ) -> None:
        self.n_features = n_features
        self.log_concentration = log_concentration
        self.log_concentration_scale = log_concentration_scale

    def resolve(self, data: Sequences, n_states: int) -> Self:
        """Take the number of columns from the data."""
        n_features = check_columns(data, self.n_features, "VonMises")
        check_real(data, n_features, largest=LARGEST_ANGLE)
        location, scale = float(self.log_concentration), float(self.log_concentration_scale)
        if not abs(location) <= 9.0 or not 0.01 <= scale <= 100.0:
            raise ValueError(
                "log_concentration must be between -9 and 9, and its scale between 0.01 and 100"
            )
        return self.changed(
            n_features=n_features, log_concentration=location, log_concentration_scale=scale
        )

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are finite."""
        return check_real(data, self.features, largest=LARGEST_ANGLE)

    def prior(self) -> Floats:
        """Return λ° = 0: the directions are uniform, and κ has a prior of its own."""
        return np.zeros(self.n_statistics)

    def points(self, x: Floats) -> Floats:
        """Return the points on the circle."""
        return np.concatenate([np.cos(x), np.sin(x)], axis=1)

    def entry_statistics(self, x: Floats) -> tuple[Floats | float, ...]:
        """Return (1, cos x, sin x)."""
        xp = namespace(x)
        return 1.0, xp.cos(x), xp.sin(x)

    def entry_log_base(self, x: Floats) -> Floats:
        """Return zero."""
        return namespace(x).zeros_like(x)

    def log_joint(self, at: tuple[Floats, ...], *parts: Floats) -> Floats:
        """Return log p(κ) + log I₀(κR) − λ₁ log 2πI₀(κ)."""
        n, cosines, sines = parts
        xp = namespace(n)
        kappa, length = xp.exp(at[0]), _length(cosines, sines)
        given = xp.log(xp.i0e(kappa * length)) - kappa * (n - length)
        given = given - n * (_LOG_2PI + xp.log(xp.i0e(kappa)))
        return given + log_normal(at[0], self.log_concentration, self.log_concentration_scale)

    def log_given(self, x: Floats, at: tuple[Floats, ...], *parts: Floats) -> Floats:
        """Return log I₀(κR') − log I₀(κR) − log 2πI₀(κ), R' with the new angle."""
        _, cosines, sines = parts
        xp = namespace(x)
        kappa, length = xp.exp(at[0]), _length(cosines, sines)
        # R'² − R², so that nothing cancels for large R.
        gained = 1.0 + 2.0 * (cosines * xp.cos(x) + sines * xp.sin(x))
        after = xp.sqrt(xp.clip(length**2 + gained, 0.0, None))
        gained = gained / (after + length + 1e-300)
        constant = xp.log(xp.i0e(kappa * length)) + _LOG_2PI + xp.log(xp.i0e(kappa))
        return xp.log(xp.i0e(kappa * after)) + kappa * (gained - 1.0) - constant

    def slopes(self, at: tuple[Floats, ...], *parts: Floats) -> tuple[Floats, ...]:
        """Return the derivatives of a_g(λ | κ)."""
        n, cosines, sines = parts
        xp = namespace(n)
        kappa, length = xp.exp(at[0]), _length(cosines, sines)
        inner = kappa * xp.i1e(kappa * length) / xp.i0e(kappa * length) / (length + 1e-300)
        return -(_LOG_2PI + xp.log(xp.i0e(kappa)) + kappa), inner * cosines, inner * sines

    def check_natural(self, natural: Floats) -> None:
        """Raise a ValueError unless the resultant is at most the number of angles."""
        n, cosines, sines = self.parts(natural)
        if n.min() < 0.0 or (np.hypot(cosines, sines) > n * (1.0 + 1e-6) + 1e-9).any():
            raise ValueError("sums of cosines and sines are larger than the number of angles")

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw angles between −π and π at the posterior mean parameters."""
        found = self.parameters(natural)
        directions, kappas = (found[name][states.values] for name in self.parameter_names)
        drawn = rng.vonmises(directions, kappas)
        return np.arctan2(np.sin(drawn), np.cos(drawn))

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``directions_``, between −π and π, and ``concentrations_``, shape (K, D) both."""
        parts = self.parts(natural)
        nodes = self.integrate(*parts)
        return {
            "directions_": np.arctan2(parts[2], parts[1]),
            "concentrations_": np.exp(nodes.mean(nodes.at[0])),
        }


def _length(cosines: Floats, sines: Floats) -> Floats:
    return namespace(cosines).sqrt(cosines**2 + sines**2)
