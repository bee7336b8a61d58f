"""Estimators from model files and from hmmlearn models."""

from __future__ import annotations

from os import PathLike
from typing import Any

from sojourn.interop import read_hmmlearn
from sojourn.models.base import BaseHMM
from sojourn.models.deprecated import OLD_NAMES, restore
from sojourn.models.durations import restored_duration
from sojourn.models.hdp_hmm import HDPHMM
from sojourn.models.hmm import HMM
from sojourn.models.parameters import check_parameters
from sojourn.persist import read, refusing
from sojourn.prediction import FittedModel

_ESTIMATORS: dict[str, type[HMM] | type[HDPHMM]] = {"HMM": HMM, "HDPHMM": HDPHMM}


def load(path: str | PathLike[str]) -> BaseHMM:
    """Load a model that `save` wrote.

    Raises
    ------
    ModelFileError
        If the file is truncated, was altered, is not a model file, or does not describe a model:
        sizes, types, signs and values are checked before there is one.

    Examples
    --------
    >>> import sojourn as sj, tempfile, pathlib
    >>> model = sj.HMM(2, sj.Categorical(), random_state=0).fit([[0, 1, 1], [1, 0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "m.sojourn"
    ...     model.save(path)
    ...     same = sj.load(path)
    >>> same.score([[0, 1]]) == model.score([[0, 1]])
    True
    """
    fitted, _ = read(path)
    with refusing(path):
        model = estimator_of(fitted)
        check_parameters(model)
        return model


def from_hmmlearn(model: Any, *, weight: float = 1e8) -> HMM:
    """Make an `HMM` with the parameters of a fitted hmmlearn model.

    A Bayesian model consists of expected counts.  They are chosen such that the posterior means
    equal hmmlearn's parameters, as if `weight` steps had been seen in each state.

    Parameters
    ----------
    model : CategoricalHMM, MultinomialHMM, PoissonHMM or GaussianHMM
        Fitted.
    weight : float
        Weight of the given parameters against new data.  The default reproduces hmmlearn's
        scores and paths; a smaller one, about the number of steps in the data divided by the
        number of states, lets `partial_fit` change them.

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
    ours = estimator_of(read_hmmlearn(model, weight=weight))
    assert isinstance(ours, HMM)
    return ours.set_params(random_state=model.random_state)


def estimator_of(fitted: FittedModel) -> BaseHMM:
    """Return an estimator that holds a fitted model, with the parameters it was fitted with."""
    kind = _ESTIMATORS[fitted.estimator.name]
    parameters = restore(fitted.estimator.parameters, kind._values)
    if "duration" in parameters:
        parameters["duration"] = restored_duration(parameters["duration"])
    for name in OLD_NAMES.keys() & parameters.keys():
        raise KeyError(OLD_NAMES[name][0])  # a field without the parameter that it belongs to
    model: BaseHMM = kind(emission=fitted.family, **parameters)
    model._fitted = fitted
    return model
