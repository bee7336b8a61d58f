"""The few array functions that the maths of the model needs, for the kind of array at hand.

The closed forms are written once against `namespace(array)`.  NumPy and SciPy serve NumPy arrays;
PyTorch, loaded only where a tensor is passed, serves tensors.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import digamma, expit, gammaln, polygamma


def namespace(array: Any) -> Any:
    """Return log, exp, gammaln, digamma, einsum and so on for arrays of this kind.

    Examples
    --------
    >>> namespace(np.ones(2)).gammaln(np.array([1.0, 3.0])).round(3)
    array([0.   , 0.693])
    """
    return _torch() if is_tensor(array) else _NUMPY


def is_tensor(array: Any) -> bool:
    """Whether an array is PyTorch's."""
    return type(array).__module__.partition(".")[0] == "torch"


def to_host(array: Any) -> NDArray[Any]:
    """Return an array as NumPy's, also one that is on a device."""
    return np.asarray(array.cpu() if is_tensor(array) else array)


def to_device(array: Any, device: Any) -> Any:
    """Return an array, or a tuple of arrays, as tensors on a device; the host does not wait."""
    import torch

    if array is None or isinstance(array, bool):
        return array
    if isinstance(array, tuple):
        parts = (to_device(part, device) for part in array)
        return type(array)(*parts) if hasattr(array, "_fields") else tuple(parts)
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if torch.device(device).type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def like(array: NDArray[Any], other: Any) -> Any:
    """Return an array of the kind of another, where that is."""
    if not is_tensor(other):
        return array
    import torch

    return torch.as_tensor(array, device=other.device)


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
    polygamma=polygamma,
    cumsum=np.cumsum,
    cumprod=np.cumprod,
    expm1=np.expm1,
    expit=expit,
    flip=np.flip,
    full_like=np.full_like,
    empty_like=np.empty_like,
    at_least=np.maximum,
    at_most=np.minimum,
    arange_like=lambda array: np.arange(len(array)),
    largest_first=lambda array: np.argsort(-array, kind="stable"),
    astype=lambda array, dtype: array.astype(dtype),
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
        polygamma=torch.polygamma,
        cumsum=lambda array: torch.cumsum(array, 0),
        cumprod=lambda array: torch.cumprod(array, 0),
        expm1=torch.expm1,
        expit=torch.sigmoid,
        flip=lambda array: torch.flip(array, (0,)),
        full_like=torch.full_like,
        empty_like=torch.empty_like,
        at_least=lambda array, least: torch.clamp(array, min=least),
        at_most=torch.minimum,
        arange_like=lambda array: torch.arange(len(array), device=array.device),
        largest_first=lambda array: torch.argsort(array, descending=True, stable=True),
        astype=lambda array, dtype: array.to(getattr(torch, np.dtype(dtype).name)),
    )
