"""What the Gaussian families share: prior location and scale, and input of compiled kernels."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sojourn.families.checks import LARGEST, Moments, as_given, column_vector
from sojourn.kernels.arrays import namespace
from sojourn.kernels.cpu.densities import sum_products
from sojourn.kernels.cpu.moments import FEW_COLUMNS, sum_moments
from sojourn.kernels.interface import Floats

MOST_COLUMNS = 64
"""Number of columns up to which the compiled form of independent columns is small."""


def within_states(variance: Floats, n_states: int, n_features: int) -> Floats:
    """Return a guess of the variance within a state: that of the data divided by K^(2/D).

    K boxes that fill a box of D dimensions have sides K^(1/D) times shorter.  Fraley and Raftery
    (2007) use this default for mixtures.

    Examples
    --------
    >>> within_states(np.array([9.0]), 3, 1)
    array([1.])
    """
    return variance / n_states ** (2.0 / n_features)


PRIOR_STEPS = 0.1
"""Steps that the prior covariance counts for, where neither its scale nor its degrees of freedom
are given.  Source: `python -m experiments.defaults`: with one step four Gaussians of 125 steps each
are 4 nats below the highest likelihood, with a tenth 0.6, and no cell of up to 1,000 steps has
other states."""


def spread_prior(dof: float | None, scale: Any, guess: Any, step: float, most: float) -> Any:
    """Return ν° and Ψ°: by default of a tenth of a step with the covariance guessed.

    Parameters
    ----------
    dof, scale : number, or array, or None
        As given; with one of them, the other is that of a whole step.
    guess : array or float
        Ψ° of a step.
    step : float
        Degrees of freedom that a step adds.
    most : float
        Those up to which the covariance has no mean.

    Examples
    --------
    >>> spread_prior(None, None, 5.0, 1.0, 2.0), spread_prior(None, 7.0, 5.0, 1.0, 2.0)
    ((2.1, 0.5), (3.0, 7.0))
    """
    if dof is None and scale is None:
        return most + PRIOR_STEPS * step, PRIOR_STEPS * guess
    return as_given(dof, most + step), as_given(scale, guess)


class HasMean(Protocol):
    """A Gaussian family with a prior mean m°, its strength κ° and a location c."""

    mean: Any
    mean_strength: float
    location: Any


def located(family: HasMean, moments: Moments) -> dict[str, Any]:
    """Return the number of columns, m°, κ° and c of a family, by default from the data's mean."""
    n_features = len(moments.mean)
    mean, location = as_given(family.mean, moments.mean), as_given(family.location, moments.mean)
    return {
        "n_features": n_features,
        "mean": column_vector("mean", mean, n_features, positive=False),
        "mean_strength": float(column_vector("mean_strength", family.mean_strength, 1)[0]),
        "location": column_vector("location", location, n_features, positive=False),
    }


def scale_matrix(scale: Any, n_features: int) -> Floats:
    """Return Ψ° as a matrix; raise an error if it is not positive definite."""
    scale = np.asarray(scale, dtype=np.float64)
    if scale.ndim < 2:
        scale = np.diag(column_vector("scale", scale, n_features))
    if scale.shape != (n_features, n_features):
        raise ValueError(f"scale has the shape {scale.shape}, not ({n_features}, {n_features})")
    if not (np.abs(scale) <= LARGEST**2).all():
        raise ValueError(f"scale must be finite, and at most {LARGEST**2:g}")
    if not np.allclose(scale, scale.T, rtol=1e-10, atol=0):
        raise ValueError("scale must be finite and symmetric")
    size = np.sqrt(np.abs(np.diag(scale)))
    size[size == 0] = 1.0
    try:
        np.linalg.cholesky(scale / (size * size[:, None]))
    except np.linalg.LinAlgError:
        raise ValueError("scale must be positive definite") from None
    return scale


def reach(scale: Any) -> float:
    """Return how large data may be under a prior scale Ψ°: (x / Ψ°^½)² must not overflow.

    Data only add to Ψ°, so that this holds for the posterior too.

    Examples
    --------
    >>> reach(np.eye(2)), reach([1.0, 1e-200])
    (1e+120, 1e+50)
    """
    scale = np.asarray(scale, dtype=np.float64)
    least = np.linalg.eigvalsh(scale)[0] if scale.ndim == 2 else scale.min()
    return float(min(LARGEST, np.sqrt(max(least, 0.0)) * 1e150))


def check_dof(value: Any, least: float) -> float:
    """Return the degrees of freedom; raise an error if they are not above `least`."""
    if not (np.isfinite(value) and value > least):
        raise ValueError(f"degrees_of_freedom must be above {least}, got {value!r}")
    return float(value)


def check_spread(kappa: Floats, nu: Floats, sums: Floats, squares: Floats) -> None:
    """Raise a ValueError unless κ, ν and Ψ = squares − sums²/κ are positive, up to rounding."""
    if min(kappa.min(), nu.min(), squares.min()) <= 0.0:
        raise ValueError("counts or sums of squares are not positive")
    if (sums * (sums / kappa) > squares * (1.0 + 1e-6)).any():
        raise ValueError("sums of squares are smaller than the sums allow")


def column_weights(
    mean: Floats, squared: Floats, *, one_group: bool
) -> tuple[Floats, NDArray[np.int64]]:
    """Return weights and spans of `student_rows` for ``squared * (y - mean) ** 2``, (K, D) both."""
    n_states, n = mean.shape
    columns = np.arange(n)
    weights = np.zeros((1 + n, n, n_states))
    weights[0] = -(mean * np.sqrt(squared)).T
    weights[1 + columns, columns] = np.sqrt(squared).T
    ends = columns == n - 1 if one_group else np.ones(n)
    return weights, np.column_stack([1 + columns, 2 + columns, ends]).astype(np.int64)


def with_one(x: Floats, location: Any) -> Floats:
    """Return (1, x − c)."""
    xp = namespace(x)
    z = xp.empty((len(x), 1 + x.shape[1]), "float64", like=x)
    z[:, 0] = 1.0
    xp.subtract(x, xp.asarray(location, like=x), out=z[:, 1:])
    return z


def column_sums(
    x: Floats, location: Any, weights: Floats, n_threads: int
) -> tuple[Floats, Floats, Floats] | None:
    """Return the weighted sums of 1 (1, K), of x − c (D, K) and of its squares (D, K).

    None if an entry is missing.
    """
    if x.shape[1] > FEW_COLUMNS:
        where = np.asarray(location)
        return sum_moments(x, where, weights, squares=True, n_threads=n_threads)
    n = x.shape[1]
    pairs = column_pairs(n)
    sums, n_missing = sum_products(x, np.asarray(location), pairs, weights, n_threads=n_threads)
    return None if n_missing else (sums[:1], sums[1 : 1 + n], sums[1 + n :])


def column_pairs(n_columns: int) -> NDArray[np.int64]:
    """Return the pairs of columns of (1, y) whose products are 1, y and y².

    Examples
    --------
    >>> column_pairs(2).tolist()
    [[0, 0], [0, 1], [0, 2], [1, 1], [2, 2]]
    """
    columns = np.arange(1, n_columns + 1)
    first = np.concatenate([np.zeros(1 + n_columns, np.int64), columns])
    return np.column_stack([first, np.concatenate([[0], columns, columns])])


def first_moments(x: Floats, weights: Floats, n_threads: int) -> tuple[Floats, Floats] | None:
    """Return the weighted sums of 1 (1, K) and of the columns (D, K); None if one is missing."""
    n = x.shape[1]
    if n > FEW_COLUMNS:
        found = sum_moments(x, np.zeros(n), weights, squares=False, n_threads=n_threads)
        return None if found is None else found[:2]
    pairs = np.column_stack([np.zeros(n + 1, np.int64), np.arange(n + 1)])
    sums, n_missing = sum_products(x, np.zeros(n), pairs, weights, n_threads=n_threads)
    return None if n_missing else (sums[:1], sums[1:])
