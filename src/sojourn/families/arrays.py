"""The few array functions that the families' maths needs, for the kind of array at hand.

The closed forms are written once against `namespace(array)`.  NumPy and SciPy serve NumPy arrays;
PyTorch, loaded only where a tensor is passed, serves tensors.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.linalg
from scipy.special import digamma, gammaln


def namespace(array: Any) -> Any:
    """Return log, exp, gammaln, digamma, einsum and so on for arrays of this kind.

    Examples
    --------
    >>> namespace(np.ones(2)).gammaln(np.array([1.0, 3.0])).round(3)
    array([0.   , 0.693])
    """
    if type(array).__module__.partition(".")[0] == "torch":
        return _torch()
    return _NUMPY


def _solve_triangular(lower: Any, right: Any) -> Any:
    """Solve ``lower @ x = right`` for a stack of lower triangular matrices."""
    out = np.empty(np.broadcast_shapes(lower.shape[:-2], right.shape[:-2]) + right.shape[-2:])
    for at in np.ndindex(*out.shape[:-2]):
        out[at] = scipy.linalg.solve_triangular(
            lower[at], right[at], lower=True, check_finite=False
        )
    return out


_NUMPY = SimpleNamespace(
    log=np.log,
    log1p=np.log1p,
    exp=np.exp,
    sqrt=np.sqrt,
    where=np.where,
    isnan=np.isnan,
    nan_to_num=np.nan_to_num,
    zeros_like=np.zeros_like,
    stack=np.stack,
    concatenate=np.concatenate,
    einsum=np.einsum,
    diagonal=lambda matrix: np.diagonal(matrix, axis1=-2, axis2=-1),
    transpose=lambda matrix: np.swapaxes(matrix, -1, -2),
    cholesky=np.linalg.cholesky,
    solve_triangular=_solve_triangular,
    gammaln=gammaln,
    digamma=digamma,
)


@cache
def _torch() -> SimpleNamespace:
    """Return the same names from PyTorch."""
    import torch  # type: ignore[import-not-found, unused-ignore]

    return SimpleNamespace(
        **{
            name: getattr(torch, name)
            for name in ("log", "log1p", "exp", "sqrt", "where", "isnan", "nan_to_num")
        },
        zeros_like=torch.zeros_like,
        stack=torch.stack,
        concatenate=torch.cat,
        einsum=torch.einsum,
        diagonal=lambda matrix: torch.diagonal(matrix, dim1=-2, dim2=-1),
        transpose=lambda matrix: torch.swapaxes(matrix, -1, -2),
        cholesky=torch.linalg.cholesky,
        solve_triangular=lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
        gammaln=torch.lgamma,
        digamma=torch.digamma,
    )
