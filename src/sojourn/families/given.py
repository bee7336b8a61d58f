"""Emission statistics that stand for given parameters, as if many steps had shown them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sojourn.families.base import Family
from sojourn.families.bernoulli import Bernoulli
from sojourn.families.categorical import Categorical
from sojourn.families.diagonal_gaussian import DiagonalGaussian
from sojourn.families.exponential import Exponential
from sojourn.families.gamma import Gamma
from sojourn.families.gaussian import Gaussian
from sojourn.families.geometric import Geometric
from sojourn.families.log_normal import LogNormal
from sojourn.families.multinomial import Multinomial
from sojourn.families.negative_binomial import NegativeBinomial
from sojourn.families.poisson import Poisson
from sojourn.families.product import Product, part_names
from sojourn.families.spherical_gaussian import SphericalGaussian
from sojourn.families.tied_gaussian import TiedGaussian
from sojourn.families.zero_mean_gaussian import ZeroMeanGaussian
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences

Parameters = Mapping[str, Any]

_MEANS: dict[type[Family], Callable[[Any, Floats], Floats]] = {
    Poisson: lambda family, rates: rates,
    Exponential: lambda family, rates: 1.0 / rates,
    Gamma: lambda family, rates: np.asarray(family.shape) / rates,
    Geometric: lambda family, chances: 1.0 / chances,
    NegativeBinomial: lambda family, chances: np.asarray(family.dispersion) * (1 / chances - 1),
    Bernoulli: lambda family, chances: chances,
}
"""Families whose statistics are linear in x: the mean of x under their parameter."""

_WHOLE = (Poisson, Geometric, NegativeBinomial, Bernoulli)


def given_statistics(
    family: Family, parameters: Parameters, n_states: int, weight: float
) -> tuple[Family, Floats]:
    """Return a family, complete, and statistics (K, S) by which it has the given parameters.

    Parameters
    ----------
    family : Family
        What it lacks, such as a number of columns and a prior, is taken from the parameters.
    parameters : mapping
        Arrays under the names of ``family.parameter_names``.
    weight : float
        Number of steps in each state that the parameters are worth; the prior changes them by
        about its share of that.

    Examples
    --------
    >>> family, statistics = given_statistics(Poisson(), {"lambdas_": [2.0, 9.0]}, 2, 1e6)
    >>> family.parameters(family.prior() + statistics)["lambdas_"].round(3).ravel()
    array([2., 9.])
    """
    _check_names(family, parameters)
    if isinstance(family, TiedGaussian):
        parameters = dict(parameters) | {"covars_": _for_each(parameters["covars_"], n_states)}
    arrays = {name: _array(name, value, n_states) for name, value in parameters.items()}
    if isinstance(family, Product):
        return _of_product(family, arrays, n_states, weight)
    if isinstance(family, Categorical | Multinomial):
        chances = _chances(arrays["emissionprob_"])
        size = chances.shape[1]
        if isinstance(family, Categorical):
            known = family.n_symbols
            own: Family = Categorical(size, family.concentration) if known is None else family
        else:
            known, own = family.n_features, Multinomial(size, family.concentration)
        if known is not None and known != size:
            raise ValueError(f"emissionprob has {size} columns for {known} symbols")
        return own, chances * weight
    for kind, mean_of in _MEANS.items():
        if isinstance(family, kind):
            values = _columns(arrays[family.parameter_names[0]])
            means = np.asarray(mean_of(family, values), dtype=np.float64)
            seen = np.ceil(means) if isinstance(family, _WHOLE) else means
            own = family.resolve(Sequences.from_lengths(seen), n_states)
            return own, own.statistics(means) * weight
    points = _points(family, arrays)
    own = family.resolve(Sequences.from_lengths(points.reshape(-1, points.shape[2])), n_states)
    return own, np.stack([own.statistics(each).mean(axis=0) for each in points]) * weight


def _of_product(
    family: Product, arrays: dict[str, Floats], n_states: int, weight: float
) -> tuple[Family, Floats]:
    """Return the statistics of all parts side by side."""
    made = []
    for part, names in zip(family.parts, part_names(family.parts), strict=True):
        own = {name: arrays[outer] for name, outer in names.items()}
        made.append(given_statistics(part, own, n_states, weight))
    parts = [part for part, _ in made]
    columns = [
        1 if isinstance(part, Categorical) else int(getattr(part, "n_features", 1))
        for part in parts
    ]
    return Product(*parts, columns=columns), np.hstack([own for _, own in made])


def _points(family: Family, arrays: dict[str, Floats]) -> Floats:
    """Return points (K, 2D, D) with the given means and covariances: mean ± √D L."""
    if not isinstance(
        family, Gaussian | DiagonalGaussian | SphericalGaussian | ZeroMeanGaussian | LogNormal
    ):
        raise TypeError(
            f"{type(family).__name__} cannot be given by its parameters; fit it, or begin with "
            "init=Statistics(...)"
        )
    covars = arrays["covars_"]
    means = _columns(arrays["means_"]) if "means_" in arrays else np.zeros(covars.shape[:2])
    n = means.shape[1]
    full = covars
    if covars.ndim == 1:
        full = covars[:, None, None] * np.eye(n)
    elif covars.ndim == 2:
        full = np.einsum("kd,de->kde", covars, np.eye(n))
    if full.shape != (len(means), n, n):
        raise ValueError(f"covars has the shape {covars.shape} for means {means.shape}")
    try:
        roots = np.sqrt(n) * np.linalg.cholesky(full)
    except np.linalg.LinAlgError:
        raise ValueError("covars are not covariances: they must be positive definite") from None
    steps = roots.transpose(0, 2, 1)
    points = np.concatenate([means[:, None] + steps, means[:, None] - steps], axis=1)
    return np.exp(points) if isinstance(family, LogNormal) else points


def _for_each(covars: Any, n_states: int) -> Floats:
    """Return a covariance that all states share once for each; it may already be so."""
    given = np.asarray(covars, dtype=np.float64)
    if given.ndim != 3:
        return np.repeat(given[None], n_states, axis=0)
    if (given != given[:1]).any():
        raise ValueError("covars of TiedGaussian must be one matrix, or the same for every state")
    return given


def _check_names(family: Family, parameters: Parameters) -> None:
    needed, found = set(family.parameter_names), set(parameters)
    if needed != found:
        names = ", ".join(name.removesuffix("_") for name in family.parameter_names)
        raise ValueError(f"{type(family).__name__} is given by {names}")


def _array(name: str, value: Any, n_states: int) -> Floats:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 0 or len(array) != n_states:
        raise ValueError(f"{name.removesuffix('_')} must have {n_states} rows, one per state")
    if not np.isfinite(array).all():
        raise ValueError(f"{name.removesuffix('_')} has values that are not finite")
    return array


def _columns(values: Floats) -> Floats:
    """Return one row per state; a number per state is one column."""
    return values[:, None] if values.ndim == 1 else values


def _chances(values: Floats) -> Floats:
    if values.ndim != 2 or (values < 0).any() or (abs(values.sum(axis=1) - 1.0) > 1e-6).any():
        raise ValueError("emissionprob must have rows of probabilities that sum to one")
    return values
