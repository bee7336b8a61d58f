"""Numbers between zero and one."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from sojourn.families.checks import (
    as_given,
    check_columns,
    check_unit,
    column_moments,
    column_vector,
)
from sojourn.families.columns import log_beta
from sojourn.families.integrated import IntegratedFamily, Nodes, log_normal, log_sum_exp
from sojourn.families.interpolated import CHEBYSHEV, SmoothIn
from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences

_LOG_SIZE = 2.0  # prior mean of the logarithm of the precision
_STEPS = 30  # of Fisher scoring, at most
_CLOSE = 1e-9  # distance of two steps after which there are no more
_REACH = 5.4  # standard deviations on each side
_MOST = 12.0  # logit of the most extreme mean
_DEVIATION = 1.5  # of the logit of the mean, and of the logarithm of the precision


class Beta(IntegratedFamily):
    r"""Vectors of numbers between zero and one, with an unknown mean and precision per column.

    .. math::

        \operatorname{logit} m_{kd} \sim \mathcal{N}(\eta^\circ_d, 1.5^2), \quad
        \log s_{kd} \sim \mathcal{N}(2, 1.5^2), \quad
        x_{td} \mid z_t = k \sim \mathrm{Beta}(m_{kd} s_{kd}, (1 - m_{kd}) s_{kd})

    t(x) = (1, log x, log(1 − x)) for each column, and log h(x) = −log x − log(1 − x), so that
    a_g(λ | a, b) = a λ_2 + b λ_3 − λ_1 log B(a, b) with a = m s and b = (1 − m) s.  Mean and
    precision are integrated numerically, eq (50).  NaN is a missing entry; zero and one are not in
    the support.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    prior_logit : float or (D,) array, optional
        η°, the prior mean of the logit of the mean; by default that of the column's mean.

    Examples
    --------
    >>> import sojourn as sj
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.beta(2.0, 8.0, 300), rng.beta(9.0, 1.0, 300)])
    >>> model = sj.HMM(2, sj.Beta(), random_state=0).fit(X, [300, 300])
    >>> np.sort(model.means_[:, 0]).round(1)
    array([0.2, 0.9])
    """

    coordinates = 3
    discrete = False
    filler = 0.5
    ranges = ((-_MOST, _MOST), (-6.0, 18.0))
    n_nodes = 13
    smooth_in = SmoothIn(CHEBYSHEV, lambda x: np.log(x) - np.log1p(-x), expit)
    parameter_names = ("means_", "precisions_")

    def __init__(
        self, n_features: int | None = None, prior_logit: float | ArrayLike | None = None
    ) -> None:
        self.n_features = n_features
        self.prior_logit = prior_logit

    def resolve(self, data: Sequences, n_states: int) -> Self:
        """Take columns and prior mean from the data."""
        n_features = check_columns(data, self.n_features, "Beta")
        if self.prior_logit is None:
            mean = column_moments(check_unit(data, n_features).values).mean
            mean = np.clip(np.where(mean > 0.0, mean, 0.5), 1e-3, 1.0 - 1e-3)
        else:
            mean = np.full(n_features, 0.5)
        logit = as_given(self.prior_logit, np.log(mean) - np.log1p(-mean))
        logit = column_vector("prior_logit", logit, n_features, positive=False)
        if np.abs(logit).max() > _MOST:
            raise ValueError(f"prior_logit must be between -{_MOST:g} and {_MOST:g}, got {logit}")
        return self.changed(n_features=n_features, prior_logit=logit)

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are between zero and one."""
        return check_unit(data, self.features)

    def prior(self) -> Floats:
        """Return λ° = (0, 0, 0) for each column: the prior is on mean and precision."""
        return np.zeros(self.n_statistics)

    def points(self, x: Floats) -> Floats:
        """Return log x − log(1 − x)."""
        return np.log(x) - np.log1p(-x)

    def entry_statistics(self, x: Floats) -> tuple[Floats | float, ...]:
        """Return (1, log x, log(1 − x))."""
        xp = namespace(x)
        return 1.0, xp.log(x), xp.log1p(-x)

    def entry_log_base(self, x: Floats) -> Floats:
        """Return −log x − log(1 − x)."""
        xp = namespace(x)
        return -xp.log(x) - xp.log1p(-x)

    def integrate(self, *parts: Floats) -> Nodes:
        """Return nodes around the mode of mean and precision, along the axes of the posterior.

        The mode is found by Fisher scoring.  In two dimensions a grid that is narrowed step by
        step, as for other families, would take a hundred times longer.
        """
        n, logs, others = parts
        xp = namespace(n)
        centre = xp.asarray(self.prior_logit, like=n)
        weight = _DEVIATION**-2.0
        logit, log_size = centre + 0.0 * n, 0.0 * n + _LOG_SIZE
        for _ in range(_STEPS):
            a, b = shapes_at((logit, log_size))
            both = xp.digamma(a + b)
            of_a, of_b = logs - n * (xp.digamma(a) - both), others - n * (xp.digamma(b) - both)
            mean = a / (a + b)
            # The derivatives of a and b with respect to the logit are ±a (1 − m).
            slope = a * (1.0 - mean) * (of_a - of_b) - weight * (logit - centre)
            other = a * of_a + b * of_b - weight * (log_size - _LOG_SIZE)
            one, cross, two = _information(n, a, b, weight)
            determinant = one * two - cross**2
            before = logit, log_size
            logit = logit + xp.clip((two * slope - cross * other) / determinant, -1.0, 1.0)
            log_size = log_size + xp.clip((one * other - cross * slope) / determinant, -1.0, 1.0)
            logit = xp.clip(logit, *self.ranges[0])
            log_size = xp.clip(log_size, *self.ranges[1])
            # Looking at tensors takes longer than a step.
            if not is_tensor(n) and _are_close(before, (logit, log_size)):
                break
        one, cross, two = _information(n, *shapes_at((logit, log_size)), weight)
        # (logit, log size) = mode + L⁻ᵀ z with the information L Lᵀ.
        first = xp.sqrt(one)
        side = cross / first
        last = xp.sqrt(xp.clip(two - side**2, 1e-300, None))
        line = np.linspace(-_REACH, _REACH, self.n_nodes)
        z, w = (xp.asarray(part.ravel(), like=n) for part in np.meshgrid(line, line, indexing="ij"))
        second = w / last[..., None]
        at = (
            logit[..., None] + (z - side[..., None] * second) / first[..., None],
            log_size[..., None] + second,
        )
        values = self.log_joint(at, *(part[..., None] for part in parts))
        total = log_sum_exp(values)
        width = 2.0 * _REACH / (self.n_nodes - 1.0)
        widths = (width / first, width / last)
        return Nodes(at, values - total[..., None], total + xp.log(widths[0] * widths[1]), widths)

    def log_joint(self, at: tuple[Floats, ...], *parts: Floats) -> Floats:
        """Return the log prior and a λ₂ + b λ₃ − λ₁ log B(a, b)."""
        n, logs, others = parts
        a, b = shapes_at(at)
        centre = namespace(n).asarray(self.prior_logit, like=n)[:, None]  # λ is (K, D, 1) here
        prior = log_normal(at[0], centre, _DEVIATION) + log_normal(at[1], _LOG_SIZE, _DEVIATION)
        return a * logs + b * others - n * log_beta(a, b) + prior

    def log_given(self, x: Floats, at: tuple[Floats, ...], *parts: Floats) -> Floats:
        """Return the log density of Beta(a, b)."""
        xp = namespace(x)
        a, b = shapes_at(at)
        return (a - 1.0) * xp.log(x) + (b - 1.0) * xp.log1p(-x) - log_beta(a, b)

    def slopes(self, at: tuple[Floats, ...], *parts: Floats) -> tuple[Floats, ...]:
        """Return (−log B(a, b), a, b)."""
        a, b = shapes_at(at)
        return -log_beta(a, b), a, b

    def check_natural(self, natural: Floats) -> None:
        """Raise a ValueError unless counts are not negative and logarithms not positive."""
        n, logs, others = self.parts(natural)
        if n.min() < 0.0 or max(logs.max(), others.max()) > 1e-9:
            raise ValueError("sums of logarithms of numbers below one are positive")

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw numbers at the posterior mean parameters."""
        means, sizes = (part[states.values] for part in self.parameters(natural).values())
        drawn = rng.beta(means * sizes, (1.0 - means) * sizes)
        return np.clip(drawn, 1e-12, 1.0 - 1e-12)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``means_`` and ``precisions_`` (a + b), shape (K, D) both."""
        nodes = self.integrate(*self.parts(natural))
        a, b = shapes_at(nodes.at)
        return {"means_": nodes.mean(a / (a + b)), "precisions_": np.exp(nodes.mean(nodes.at[1]))}


def _are_close(before: tuple[Floats, ...], after: tuple[Floats, ...]) -> bool:
    return all(bool((abs(a - b) <= _CLOSE).all()) for a, b in zip(before, after, strict=True))


def _information(n: Floats, a: Floats, b: Floats, weight: float) -> tuple[Floats, Floats, Floats]:
    """Return the information about logit of the mean and log precision, of data and prior."""
    xp = namespace(n)
    both = xp.polygamma(1, a + b)
    aa, bb = xp.polygamma(1, a) - both, xp.polygamma(1, b) - both
    along = a * b / (a + b)  # ∂a and −∂b, with respect to the logit
    one = along**2 * (aa + bb + 2.0 * both)
    cross = along * (a * (aa + both) - b * (bb + both))
    two = a**2 * aa + b**2 * bb - 2.0 * a * b * both
    return n * one + weight, n * cross, n * two + weight


def shapes_at(at: tuple[Floats, ...]) -> tuple[Floats, Floats]:
    """Return a and b from the logit of the mean and the logarithm of the precision."""
    xp = namespace(at[0])
    size = xp.exp(at[1])
    return size * xp.expit(at[0]), size * xp.expit(-at[0])
