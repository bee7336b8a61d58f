"""Conversion of models to and from hmmlearn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sojourn.backends.compute import Compute
from sojourn.families import (
    Categorical,
    DiagonalGaussian,
    Family,
    Gaussian,
    Multinomial,
    Poisson,
    SphericalGaussian,
    TiedGaussian,
)
from sojourn.families.given import given_statistics
from sojourn.inference import Posterior, Statistics
from sojourn.prediction import EstimatorRecord, FittedModel, as_fitted
from sojourn.transitions import Dirichlet

_NO_PRIOR = 1e-12  # a concentration that does not change probabilities


def read_hmmlearn(model: Any, *, weight: float = 1e8) -> FittedModel:
    """Convert a fitted hmmlearn model; see `sojourn.from_hmmlearn`.

    The expected counts are such that the posterior means equal hmmlearn's parameters.
    """
    from sklearn.utils.validation import check_is_fitted

    if not weight > 0:
        raise ValueError(f"weight must be positive, got {weight}")
    family, parameters = _read(model)
    check_is_fitted(model, "transmat_")
    n_states = len(model.startprob_)
    family, emissions = given_statistics(family, parameters(), n_states, weight)
    statistics = Statistics(model.startprob_ * weight, model.transmat_ * weight, emissions)
    prior = Dirichlet.make(n_states, None, _NO_PRIOR)
    options = {
        "n_states": n_states,
        "transition_concentration": _NO_PRIOR,
        "dtype": "float64",
    }
    return FittedModel(
        family,
        Posterior.from_statistics(statistics, prior, "float64"),
        max(1, round(weight)),
        provenance={"data": f"hmmlearn's {type(model).__name__}"},
        estimator=EstimatorRecord("HMM", options),
        compute=Compute(dtype="float64"),
    )


def _read(model: Any) -> tuple[Family, Callable[[], dict[str, Any]]]:
    """Return the family of an hmmlearn model, and what returns its parameters."""
    try:
        from hmmlearn import hmm, vhmm
    except ImportError as error:
        raise ImportError("from_hmmlearn needs hmmlearn: pip install hmmlearn") from error

    def named(*names: str) -> Callable[[], dict[str, Any]]:
        return lambda: {name: np.asarray(getattr(model, name)) for name in names}

    if isinstance(model, hmm.MultinomialHMM):
        return Multinomial(concentration=_NO_PRIOR), named("emissionprob_")
    if isinstance(model, hmm.CategoricalHMM | vhmm.VariationalCategoricalHMM):
        return Categorical(concentration=_NO_PRIOR), named("emissionprob_")
    if isinstance(model, hmm.PoissonHMM):
        return Poisson(), named("lambdas_")
    if isinstance(model, hmm.GaussianHMM | vhmm.VariationalGaussianHMM):
        kinds = {
            "spherical": SphericalGaussian,
            "diag": DiagonalGaussian,
            "tied": TiedGaussian,
            "full": Gaussian,
        }
        return kinds[model.covariance_type](), named("means_", "covars_")
    raise TypeError(
        f"{type(model).__name__} has no counterpart in sojourn; supported are CategoricalHMM, "
        "MultinomialHMM, PoissonHMM and GaussianHMM"
    )


class _Target(NamedTuple):
    """A class of hmmlearn, arguments for it, and the parameters to copy."""

    name: str
    arguments: dict[str, Any]
    parameters: tuple[str, ...]


_TARGETS: dict[type[Family], _Target] = {
    Categorical: _Target("CategoricalHMM", {}, ("emissionprob_",)),
    Multinomial: _Target("MultinomialHMM", {}, ("emissionprob_",)),
    Poisson: _Target("PoissonHMM", {}, ("lambdas_",)),
    Gaussian: _Target("GaussianHMM", {"covariance_type": "full"}, ("means_", "covars_")),
    DiagonalGaussian: _Target("GaussianHMM", {"covariance_type": "diag"}, ("means_", "covars_")),
    SphericalGaussian: _Target(
        "GaussianHMM", {"covariance_type": "spherical"}, ("means_", "covars_")
    ),
    TiedGaussian: _Target("GaussianHMM", {"covariance_type": "tied"}, ("means_", "covars_")),
}


def to_hmmlearn(model: Any) -> Any:
    """Make an hmmlearn model with the posterior means of a fitted model.

    Parameters
    ----------
    model : estimator that was fitted, or FittedModel
        With `Categorical`, `Multinomial`, `Poisson` or one of the Gaussian emissions.

    Returns
    -------
    hmmlearn model
        Can score and predict; `fit` with ``init_params=""`` starts from its parameters.
    """
    fitted = as_fitted(model)
    fitted.posterior.refuse_durations("models of hmmlearn are")
    family = type(fitted.family)
    if family not in _TARGETS:
        known = ", ".join(sorted(of.__name__ for of in _TARGETS))
        raise TypeError(f"hmmlearn has no {family.__name__} emissions, only {known}")
    try:
        from hmmlearn import hmm
    except ImportError as error:
        raise ImportError("to_hmmlearn needs hmmlearn: pip install hmmlearn") from error
    name, arguments, parameters = _TARGETS[family]
    start = fitted.startprob
    theirs = getattr(hmm, name)(len(start), init_params="", **arguments)
    theirs.n_features = fitted.family.n_statistics
    if "emissionprob_" not in parameters:
        theirs.n_features = fitted.n_features
    theirs.startprob_, theirs.transmat_ = start, fitted.transmat
    learned = fitted.parameters
    for parameter in parameters:
        setattr(theirs, parameter, learned[parameter])
    return theirs
