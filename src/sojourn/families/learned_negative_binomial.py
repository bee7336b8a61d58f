"""Counts with a dispersion that is learned."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.families.checks import (
    check_counts,
)
from sojourn.families.columns import log_rising
from sojourn.families.integrated import log_normal
from sojourn.families.interpolated import CHEBYSHEV, SmoothIn
from sojourn.families.prior_mean import PriorMeanFamily
from sojourn.kernels.arrays import maybe_any, namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences

_MEAN, _DEVIATION = 1.0, 2.0  # of the logarithm of the dispersion
_LOW, _HIGH = -3.0, 6.0  # its range: from 0.05 to 400
_LARGE = 1e4  # counts from which terms of the order of x log x are left out, which would cancel
_KNOTS = 20  # values of r for which log Γ(x + r) is summed


class LearnedNegativeBinomial(PriorMeanFamily):
    r"""Vectors of counts; every state learns the dispersion r and the mean of each column.

    .. math::

        \log r_{kd} \sim \mathcal{N}(1, 2^2), \quad
        \phi_{kd} \mid r_{kd} \sim \mathrm{Beta}(n^\circ r_{kd}, n^\circ m_d), \quad
        p(x_{td} = x \mid z_t = k) =
        \frac{\Gamma(x + r_{kd})}{\Gamma(r_{kd})\, x!}\, \phi_{kd}^{r_{kd}} (1 - \phi_{kd})^{x}

    r is between 0.05 and 400; with the latter the distribution is close to a Poisson distribution.
    No fixed number of sums determines the likelihood for all r.  But f(x, r) = log Γ(x + r) −
    log Γ(r) − log x! is a smooth function of log r, so that its sums at 20 values of r (Chebyshev's
    nodes) give its sum at all others, by a polynomial: t(x) = (1, x, f(x, r_1), …, f(x, r_20)) for
    each column, h(x) = 1, and

    .. math:: a_g(\lambda \mid r) = \log B(r \lambda_1, \lambda_2)
              + \textstyle\sum_j \ell_j(\log r)\, \lambda_{2 + j}

    with Lagrange's polynomials ℓ_j.  r is integrated numerically, eq (50).  NaN is a missing entry.
    ``NegativeBinomial(dispersion=None)`` becomes this family.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    prior_steps : float or (D,) array
        n°: number of steps that the prior counts for.
    prior_mean : float or (D,) array, optional
        m: the prior mean; by default the column's.

    Examples
    --------
    >>> import sojourn as sj
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.negative_binomial(2, 0.1, 600), rng.poisson(2.0, 600)])
    >>> family = sj.NegativeBinomial(dispersion=None)
    >>> model = sj.HMM(2, family, random_state=0).fit(X, [600, 600])
    >>> float(np.sort(model.dispersions_[:, 0])[0].round())
    2.0
    """

    coordinates = 2 + _KNOTS
    discrete = True
    ranges = ((_LOW, _HIGH),)
    smooth_in = SmoothIn(CHEBYSHEV, np.log1p, np.expm1)
    parameter_names = ("dispersions_", "probs_")

    def check(self, data: Sequences, n_features: int) -> Sequences:
        """Check that the data are counts."""
        return check_counts(data, n_features)

    def usual_mean(self, mean: Floats) -> Floats:
        """Return them, or a little where all counts are zero."""
        return np.maximum(mean, 1e-3)

    def points(self, x: Floats) -> Floats:
        """Return log(1 + x)."""
        return np.log1p(x)

    def entry_statistics(self, x: Floats) -> tuple[Floats | float, ...]:
        """Return (1, x, f(x, r_j))."""
        return (1.0, x, *(risings(x, float(r)) for r in np.exp(KNOTS)))

    def entry_log_base(self, x: Floats) -> Floats:
        """Return zero."""
        return namespace(x).zeros_like(x)

    def compiled_sums(self, x: Floats, weights: Floats, n_threads: int) -> Floats | None:
        """Return the weighted sums of counts with few distinct values, by value."""
        if np.isnan(x).any() or not x.max() < 4096:
            return None
        parts = np.empty((self.coordinates, self.features, weights.shape[1]))
        wide = weights.astype(np.float64, copy=False)
        for d in range(self.features):
            values, places = np.unique(x[:, d], return_inverse=True)
            mass = np.zeros((len(values), wide.shape[1]))
            np.add.at(mass, places, wide)
            found = self.entry_statistics(values[:, None])
            each = np.column_stack([np.broadcast_to(f, (len(values), 1)) for f in found])
            parts[:, d] = each.T @ mass
        return parts.reshape(-1, weights.shape[1])

    def log_joint(self, at: tuple[Floats, ...], *parts: Floats) -> Floats:
        """Return log p(r) + a_g(λ | r)."""
        n, total, *sums = parts
        xp = namespace(n)
        r = xp.exp(at[0])
        risen = sum(c * part for c, part in zip(lagrange(at[0]), sums, strict=True))
        # log B(rn, Σx), without differences of large numbers where the sum is large.
        beta = xp.gammaln(r * n) - log_rising(total + xp.zeros_like(r), r * n)
        return risen + beta + log_normal(at[0], _MEAN, _DEVIATION)

    def log_given(self, x: Floats, at: tuple[Floats, ...], *parts: Floats) -> Floats:
        """Return the log probability of a beta negative binomial."""
        n, total = parts[:2]
        xp = namespace(x)
        r = xp.exp(at[0])
        total, failures = total + xp.zeros_like(r), r * n
        grown = log_rising(failures, r) + risings(x + 0.0 * r, r)
        few = log_rising(total, x) - log_rising(failures + total, r + x)
        if not maybe_any(x > _LARGE):
            return grown + few
        # The same with Γ(Σx + x) / Γ(Σx + x + rn + r), which is small where the count is large.
        many = log_rising(total, failures) - log_rising(total + x, failures + r)
        return grown + xp.where(x > failures, many, few)

    def slopes(self, at: tuple[Floats, ...], *parts: Floats) -> tuple[Floats, ...]:
        """Return the derivatives of a_g(λ | r)."""
        n, total = parts[:2]
        xp = namespace(n)
        r = xp.exp(at[0])
        both = xp.digamma(r * n + total)
        return r * (xp.digamma(r * n) - both), xp.digamma(total) - both, *lagrange(at[0])

    def check_natural(self, natural: Floats) -> None:
        """Raise a ValueError unless counts and sums are positive."""
        parts = self.parts(natural)
        if min(parts[0].min(), parts[1].min()) <= 0.0:
            raise ValueError("counts or sums are not positive")

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw counts at the posterior mean parameters."""
        sizes, chances = (part[states.values] for part in self.parameters(natural).values())
        return rng.negative_binomial(sizes, chances)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``dispersions_`` and ``probs_``, shape (K, D) both."""
        n, total, *_ = parts = self.parts(natural)
        nodes = self.integrate(*parts)
        sizes = np.exp(nodes.mean(nodes.at[0]))
        return {"dispersions_": sizes, "probs_": sizes * n / (sizes * n + total)}


_ANGLES = (np.arange(_KNOTS) + 0.5) * np.pi / _KNOTS

KNOTS = 0.5 * (_LOW + _HIGH) - 0.5 * (_HIGH - _LOW) * np.cos(_ANGLES)
"""Logarithms of the dispersions r_j."""

_BARYCENTRIC = (-1.0) ** np.arange(_KNOTS) * np.sin(_ANGLES)


def risings(x: Floats, r: float | Floats) -> Floats:
    """Return f(x, r) = log Γ(x + r) − log Γ(r) − log x!, to full precision for large x.

    Examples
    --------
    >>> risings(np.array([2.0, 1e15]), 3.0).round(4)
    array([ 1.7918, 68.3844])
    """
    xp = namespace(x)
    shapes: Floats = xp.zeros_like(x) + r
    return log_rising(x + 1.0 + xp.zeros_like(shapes), shapes - 1.0) - xp.gammaln(shapes)


def lagrange(s: Floats) -> list[Floats]:
    """Return Lagrange's polynomials at log r, one array for each knot.

    Examples
    --------
    >>> at = np.array([0.3])
    >>> round(float(sum(c * k**3 for c, k in zip(lagrange(at), KNOTS))[0]), 6)
    0.027
    """
    xp = namespace(s)
    away = []
    for knot in KNOTS:
        off = s - float(knot)
        # A point at a knot is moved by less than any function that is interpolated can tell.
        away.append(xp.where(abs(off) < 1e-12, 1e-12, off))
    terms = [float(w) / off for w, off in zip(_BARYCENTRIC, away, strict=True)]
    total = sum(terms)
    return [term / total for term in terms]
