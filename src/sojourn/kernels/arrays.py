"""The few array functions that the mathematics of the model needs, for NumPy and PyTorch.

The closed forms are written once against `namespace(array)`.  NumPy and SciPy serve NumPy arrays;
PyTorch, loaded only where a tensor is passed, serves tensors, on the device where they are.  The
host never waits for a device: no value of a tensor is looked at, so that what NumPy skips because
it is not needed (`maybe_any`), a device computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, digamma, expit, gammaln, i0e, i1e, polygamma, xlogy

from sojourn.kernels.ragged import flat_steps


def is_tensor(array: Any) -> bool:
    """Say whether an array is PyTorch's, without loading PyTorch.

    Examples
    --------
    >>> is_tensor(np.ones(2))
    False
    """
    if isinstance(array, np.ndarray):  # the usual case, and quick to check
        return False
    return type(array).__module__.partition(".")[0] == "torch"


def namespace(array: Any) -> Any:
    """Return log, exp, gammaln, digamma and so on for arrays of this kind.

    The names and arguments are NumPy's.  ``like`` says which kind of array is made, and on which
    device.

    Examples
    --------
    >>> xp = namespace(np.ones(2))
    >>> xp.gammaln(xp.asarray([1.0, 3.0], like=np.ones(2))).round(3)
    array([0.   , 0.693])
    """
    return _torch() if is_tensor(array) else _NUMPY


def maybe_any(condition: Any) -> bool:
    """Say whether a condition holds anywhere; of a tensor, which is not looked at, that it may.

    Examples
    --------
    >>> maybe_any(np.array([False, False]))
    False
    """
    return is_tensor(condition) or bool(condition.any())


_PINNED = 2**16  # bytes below which a copy takes less time than to pin memory for it


def to_device(encoded: Any, device: Any) -> Any:
    """Return what a family's `encode` made, with tensors on a device in place of NumPy arrays.

    Tuples (named or not), lists and dictionaries keep their form, arrays their dtype, and numbers
    and None stay.  On the host a tensor shares its memory with the array.
    """
    import torch  # type: ignore[import-not-found, unused-ignore]

    if isinstance(encoded, np.ndarray):
        # PyTorch takes no strides below zero, and warns of an array that may not be written to.
        own = np.require(encoded, requirements=["C", "W"])
        tensor = torch.from_numpy(own)
        if torch.device(device).type == "cuda" and own.nbytes >= _PINNED:
            tensor = tensor.pin_memory()  # else the host would wait for the copy
        return tensor.to(device, non_blocking=True)
    if isinstance(encoded, dict):
        return {key: to_device(value, device) for key, value in encoded.items()}
    if isinstance(encoded, list | tuple):
        moved = [to_device(value, device) for value in encoded]
        return type(encoded)(moved) if type(encoded) in (list, tuple) else type(encoded)(*moved)
    return encoded


def to_host(array: Any) -> NDArray[Any]:
    """Return an array as NumPy's; the host waits for one that is on a device.

    Examples
    --------
    >>> to_host([1.0, 2.0])
    array([1., 2.])
    """
    return array.cpu().numpy() if is_tensor(array) else np.asarray(array)


# ---- NumPy --------------------------------------------------------------------------------------


def _cholesky(matrices: Any) -> Any:
    """Factorise a stack of matrices with a unit diagonal, those made indefinite by rounding too.

    To the diagonal of these the least of 1e-14, 1e-13, ... is added that helps.
    """
    try:
        return np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        pass
    out = np.empty_like(matrices)
    for k, matrix in enumerate(matrices):
        added = 0.0
        while True:
            try:
                out[k] = np.linalg.cholesky(matrix + added * np.eye(len(matrix)))
                break
            except np.linalg.LinAlgError:
                if not np.isfinite(matrix).all() or added > 1.0:
                    raise
                added = max(10.0 * added, 1e-14)
    return out


def _each_plus(arrays: list[Any], others: Any) -> list[Any]:
    """Return the sums of arrays with others, or with a number."""
    if not isinstance(others, list):
        return [array + others for array in arrays]
    return [array + other for array, other in zip(arrays, others, strict=True)]


_NUMPY = SimpleNamespace(
    each_plus=_each_plus,
    log=np.log,
    log1p=np.log1p,
    exp=np.exp,
    sqrt=np.sqrt,
    gammaln=gammaln,
    betaln=betaln,
    digamma=digamma,
    xlogy=xlogy,
    i0e=i0e,
    i1e=i1e,
    cos=np.cos,
    sin=np.sin,
    polygamma=polygamma,
    expm1=np.expm1,
    round=np.rint,
    expit=expit,
    cumsum=lambda array: np.cumsum(array, axis=0),
    cumprod=np.cumprod,
    flip=np.flip,
    argsort=np.argsort,
    minimum=np.minimum,
    empty_like=np.empty_like,
    subtract=np.subtract,
    maximum=np.maximum,
    clip=np.clip,
    where=np.where,
    isnan=np.isnan,
    nan_to_num=np.nan_to_num,
    nansum=np.nansum,
    amax=np.amax,
    zeros_like=np.zeros_like,
    ones_like=np.ones_like,
    full_like=np.full_like,
    concatenate=np.concatenate,
    diagonal=lambda matrices: np.diagonal(matrices, axis1=-2, axis2=-1),
    transpose=np.transpose,
    triu=np.triu,
    take=np.take,
    flat_steps=lambda begins, lengths, total: flat_steps(begins, lengths),
    ascontiguousarray=np.ascontiguousarray,
    asarray=np.asarray,
    placed=lambda array, like: array,
    empty=np.empty,
    zeros=np.zeros,
    eye=lambda n, like: np.eye(n),
    arange=np.arange,
    astype=lambda array, dtype: array.astype(dtype, copy=False),
    dtype_of=np.dtype,
    padded_row=lambda array: np.pad(array, ((0, 0), (0, 1), (0, 0))),
    cholesky=_cholesky,
    inv_lower=np.linalg.inv,
)


# ---- PyTorch ------------------------------------------------------------------------------------

_ADDED = (1.0, 1e-4, 1e-8, 1e-10, 1e-12, 1e-14, 0.0)
"""What may be added to a diagonal, as in `_cholesky`, where none is looked at: all are tried."""


_KEPT: list[list[Any]] = []


@contextmanager
def keeping() -> Iterator[list[Any]]:
    """Collect the constants that `asarray` gives out, for work that is recorded and runs again.

    Examples
    --------
    >>> with keeping() as constants:
    ...     pass
    >>> constants
    []
    """
    kept: list[Any] = []
    _KEPT.append(kept)
    try:
        yield kept
    finally:
        _KEPT.remove(kept)


def _flat_steps(begins: Any, lengths: Any, total: int) -> Any:
    """Return what `ragged.flat_steps` does; the host does not wait, for it knows the size."""
    import torch

    before = torch.cumsum(lengths, 0) - lengths
    steps = torch.repeat_interleave(begins - before, lengths, output_size=total)
    return steps + torch.arange(total, device=steps.device)


@lru_cache(maxsize=256)
def _moved(content: bytes, dtype: str, shape: tuple[int, ...], device: Any) -> Any:
    import torch

    values = np.frombuffer(content, dtype).reshape(shape)
    return torch.tensor(values.copy(), device=device)


def _constant(value: Any, *, like: Any) -> Any:
    """Return a parameter on a device; the tensor is kept for the next time."""
    values = np.asarray(value)
    found = _moved(values.tobytes(), values.dtype.str, values.shape, like.device)
    for kept in _KEPT:
        kept.append(found)
    return found


@cache
def _torch() -> SimpleNamespace:
    """Return the same names from PyTorch.

    A tensor made by `asarray` of a parameter is kept for the next time, so that the host moves it
    once and not at every step: it must not be written to.  `placed` moves an array each time.
    """
    import torch

    def dtype_of(dtype: Any) -> Any:
        return getattr(torch, np.dtype(dtype).name)

    asarray = _constant

    def cholesky(matrices: Any) -> Any:
        added = asarray(_ADDED, like=matrices)[:, None, None, None]
        eye = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
        lower, info = torch.linalg.cholesky_ex(matrices + added * eye)
        out = torch.full_like(matrices, np.nan)
        for i in range(len(_ADDED)):  # the least that helps comes last
            out = torch.where((info[i] == 0)[:, None, None], lower[i], out)
        return out

    def inv_lower(matrices: Any) -> Any:
        eye = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
        return torch.linalg.solve_triangular(matrices, eye, upper=False)

    same = (
        *("log", "log1p", "exp", "sqrt", "digamma", "subtract", "maximum", "clip", "where"),
        *("polygamma", "expm1", "round", "minimum", "empty_like", "cos", "sin"),
        *("xlogy", "concatenate"),
        *("isnan", "nan_to_num", "nansum", "amax", "zeros_like", "ones_like", "full_like"),
    )
    return SimpleNamespace(
        **{name: getattr(torch, name) for name in same},
        each_plus=torch._foreach_add,  # one launch for all
        gammaln=torch.lgamma,
        betaln=lambda a, b: torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b),
        **{name: getattr(torch.special, name) for name in ("i0e", "i1e")},
        expit=torch.sigmoid,
        cumsum=lambda array: torch.cumsum(array, 0),
        cumprod=lambda array: torch.cumprod(array, 0),
        flip=lambda array: torch.flip(array, (0,)),
        argsort=lambda array, kind: torch.argsort(array, stable=kind == "stable"),
        diagonal=lambda matrices: torch.diagonal(matrices, dim1=-2, dim2=-1),
        transpose=torch.permute,
        triu=torch.triu,
        take=lambda array, places, axis: array.index_select(axis, asarray(places, like=array)),
        flat_steps=_flat_steps,
        ascontiguousarray=torch.Tensor.contiguous,
        asarray=asarray,
        placed=lambda array, like: to_device(array, like.device),
        empty=lambda shape, dtype, *, like: like.new_empty(shape, dtype=dtype_of(dtype)),
        zeros=lambda shape, dtype, *, like: like.new_zeros(shape, dtype=dtype_of(dtype)),
        eye=lambda n, like: torch.eye(n, dtype=like.dtype, device=like.device),
        arange=lambda n, *, dtype, like: torch.arange(n, dtype=dtype_of(dtype), device=like.device),
        astype=lambda array, dtype: array.to(dtype_of(dtype)),
        dtype_of=dtype_of,
        padded_row=lambda array: torch.nn.functional.pad(array, (0, 0, 0, 1)),
        cholesky=cholesky,
        inv_lower=inv_lower,
    )
