"""Prior scales of the families of real numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from sojourn.kernels.interface import Floats


def within_states(variance: Floats, n_states: int, n_features: int) -> Floats:
    """Guess the variance within a state: the data's, divided by K^(2/D).

    K boxes that fill a box of D dimensions have sides K^(1/D) times shorter.  This is Fraley and
    Raftery's (2007) default for mixtures.

    Examples
    --------
    >>> within_states(np.array([9.0]), 3, 1)
    array([1.])
    """
    return variance / n_states ** (2.0 / n_features)


def scale_matrix(scale: Any, n_features: int) -> Floats:
    """Return Ψ° as a matrix, or say that it is not positive definite."""
    scale = np.asarray(scale, dtype=np.float64)
    if scale.ndim < 2:
        scale = np.diag(np.broadcast_to(scale, n_features))
    if scale.shape != (n_features, n_features):
        raise ValueError(f"scale has the shape {scale.shape}, not ({n_features}, {n_features})")
    if not np.isfinite(scale).all() or not np.allclose(scale, scale.T, rtol=1e-10, atol=0):
        raise ValueError("scale must be finite and symmetric")
    size = np.sqrt(np.abs(np.diag(scale)))
    size[size == 0] = 1.0
    try:
        np.linalg.cholesky(scale / (size * size[:, None]))
    except np.linalg.LinAlgError:
        raise ValueError("scale must be positive definite") from None
    return scale


def check_dof(value: Any, least: float) -> float:
    """Return degrees of freedom above `least`, below which the prior is improper."""
    if not (np.isfinite(value) and value > least):
        raise ValueError(f"degrees_of_freedom must be above {least}, got {value!r}")
    return float(value)
