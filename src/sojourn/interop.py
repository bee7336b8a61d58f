"""Models to and from hmmlearn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sojourn.families import (
    Categorical,
    DiagonalGaussian,
    Family,
    Gaussian,
    Multinomial,
    Poisson,
    SphericalGaussian,
)
from sojourn.inference import Posterior, Statistics
from sojourn.kernels.interface import Floats
from sojourn.models import HMM
from sojourn.models.base import BaseHMM
from sojourn.sequences import Sequences

_NO_PRIOR = 1e-12  # a concentration that leaves probabilities as they are


def from_hmmlearn(model: Any, *, weight: float = 1e8) -> HMM:
    """Make a model of sojourn with the parameters of a fitted model of hmmlearn.

    A Bayesian model is made of expected counts.  They are chosen such that its posterior means are
    hmmlearn's parameters, as if `weight` steps had been seen in each state.

    Parameters
    ----------
    model : CategoricalHMM, MultinomialHMM, PoissonHMM or GaussianHMM
        Fitted.  A tied covariance becomes one for each state.
    weight : float
        How firmly to hold to the parameters.  The default gives hmmlearn's scores and paths; a
        smaller one, about the number of steps in the data divided by the number of states, lets
        `partial_fit` move them.

    Returns
    -------
    HMM

    Examples
    --------
    >>> import numpy as np, sojourn as sj
    >>> from hmmlearn.hmm import CategoricalHMM
    >>> X = np.array([[0], [1], [0], [1], [2], [2]])
    >>> theirs = CategoricalHMM(2, random_state=0).fit(X)
    >>> ours = sj.from_hmmlearn(theirs)
    >>> bool(np.isclose(ours.score(X), theirs.score(X)))
    True
    """
    from sklearn.utils.validation import check_is_fitted

    if not weight > 0:
        raise ValueError(f"weight must be positive, got {weight}")
    family, points = _read(model)
    check_is_fitted(model, "transmat_")
    n_states = len(model.startprob_)
    emissions = np.stack([points(k, weight) for k in range(n_states)])
    statistics = Statistics(model.startprob_ * weight, model.transmat_ * weight, emissions)
    ours = HMM(
        n_states, family, transition_concentration=_NO_PRIOR, dtype="float64",
        random_state=model.random_state,
    )  # fmt: skip
    posterior = Posterior.from_statistics(statistics, ours._make_transitions(), "float64")
    ours._begin(family, posterior, max(1, round(weight)))
    ours.provenance_ = {"data": f"hmmlearn's {type(model).__name__}"}
    return ours


Points = Callable[[int, float], Floats]
"""Emission statistics of a state that has seen so many steps with its own parameters."""


def _read(model: Any) -> tuple[Family, Points]:
    from hmmlearn import hmm, vhmm

    if isinstance(model, hmm.MultinomialHMM):
        family: Family = Multinomial(model.emissionprob_.shape[1], concentration=_NO_PRIOR)
        return family, lambda k, weight: model.emissionprob_[k] * weight
    if isinstance(model, hmm.CategoricalHMM | vhmm.VariationalCategoricalHMM):
        family = Categorical(model.emissionprob_.shape[1], concentration=_NO_PRIOR)
        return family, lambda k, weight: model.emissionprob_[k] * weight
    if isinstance(model, hmm.PoissonHMM):
        family = Poisson().resolve(Sequences.from_lengths(np.ceil(model.lambdas_)), 1)
        return family, lambda k, weight: weight * family.statistics(model.lambdas_[k : k + 1])[0]
    if isinstance(model, hmm.GaussianHMM | vhmm.VariationalGaussianHMM):
        return _read_gaussian(model)
    raise TypeError(
        f"{type(model).__name__} has no counterpart in sojourn: CategoricalHMM, MultinomialHMM, "
        "PoissonHMM and GaussianHMM have"
    )


def _read_gaussian(model: Any) -> tuple[Family, Points]:
    """Points at mean ± √D L, with L Lᵀ the covariance, have just this mean and covariance."""
    means, covars = np.asarray(model.means_), np.asarray(model.covars_)
    n = means.shape[1]
    # hmmlearn gives full matrices for every type but those with a variance a column.
    full = covars if covars.ndim == 3 else np.einsum("kd,de->kde", covars, np.eye(n))
    roots = np.sqrt(n) * np.linalg.cholesky(full)
    points = np.concatenate([means[:, None] + roots.mT, means[:, None] - roots.mT], axis=1)
    plain = {"spherical": SphericalGaussian, "diag": DiagonalGaussian}
    made = plain.get(model.covariance_type, Gaussian)()
    family = made.resolve(Sequences.from_lengths(points.reshape(-1, n)), len(means))

    def of_state(k: int, weight: float) -> Floats:
        return family.statistics(points[k]).mean(axis=0) * weight

    return family, of_state


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
}


def to_hmmlearn(model: BaseHMM) -> Any:
    """Make a model of hmmlearn with the posterior means of a fitted model.

    Parameters
    ----------
    model : HMM or HDPHMM
        With `Categorical`, `Multinomial`, `Poisson` or one of the Gaussian emissions.

    Returns
    -------
    hmmlearn model
        Ready to score and to predict; `fit` with ``init_params=""`` goes on from it.
    """
    family = type(model.emission_)
    if family not in _TARGETS:
        known = ", ".join(sorted(of.__name__ for of in _TARGETS))
        raise TypeError(f"hmmlearn has no {family.__name__} emissions: it has {known}")
    try:
        from hmmlearn import hmm
    except ImportError as error:
        raise ImportError("to_hmmlearn needs hmmlearn: pip install hmmlearn") from error
    name, arguments, parameters = _TARGETS[family]
    start = model.startprob_
    theirs = getattr(hmm, name)(len(start), init_params="", **arguments)
    theirs.n_features = model.emission_.n_statistics
    if "emissionprob_" not in parameters:
        theirs.n_features = model.n_features_in_
    theirs.startprob_, theirs.transmat_ = start, model.transmat_
    for parameter in parameters:
        setattr(theirs, parameter, getattr(model, parameter))
    return theirs
