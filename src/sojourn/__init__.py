"""Bayesian hidden Markov models from more sequences than fit in memory.

The public names load on first use, so that importing the package is fast although the estimators
need scikit-learn, SciPy and numba.
"""

import typing as _typing
from importlib import import_module as _import_module
from pkgutil import get_data as _get_data

if _typing.TYPE_CHECKING:
    from sojourn import plot as plot
    from sojourn.analysis.forecast import Forecast
    from sojourn.analysis.residuals import Residuals
    from sojourn.analysis.segments import SegmentTable
    from sojourn.analysis.stream import Stream
    from sojourn.analysis.uncertainty import PosteriorSamples
    from sojourn.backends.dask import ClusterError
    from sojourn.durations import (
        CategoricalDuration,
        GeometricDuration,
        NegativeBinomialDuration,
        StateDuration,
    )
    from sojourn.families import (
        AutoregressiveGaussian,
        Bernoulli,
        Beta,
        Binomial,
        Categorical,
        DiagonalGaussian,
        Exponential,
        Gamma,
        Gaussian,
        Geometric,
        LearnedGamma,
        LearnedNegativeBinomial,
        LinearGaussian,
        LogNormal,
        Mixture,
        Multinomial,
        NegativeBinomial,
        Poisson,
        Product,
        SphericalGaussian,
        StudentT,
        TiedGaussian,
        VonMises,
        ZeroInflated,
        ZeroMeanGaussian,
    )
    from sojourn.inference import Progress, Statistics
    from sojourn.matching import dwell_summary, match_states
    from sojourn.model_selection import PerStep, SequenceKFold, select_n_states
    from sojourn.models import HDPHMM, HMM, from_hmmlearn, load
    from sojourn.moves.settings import MoveSettings
    from sojourn.persist import ModelFileError
    from sojourn.prediction import FittedModel
    from sojourn.report.page import write_report
    from sojourn.sampling.settings import Sampling
    from sojourn.sequences import Sequences
    from sojourn.sources import DataFileError, Source, open
    from sojourn.transitions.options import HDPOptions
    from sojourn.vocabulary import Vocabulary
    from sojourn.warnings import FitWarning

try:  # The build writes this file, from the git tag.
    __version__ = (_get_data("sojourn", "VERSION") or b"").decode().strip()
except OSError:  # Source code that was never built or installed.
    __version__ = "0.1.dev0"

_FAMILIES = [
    "AutoregressiveGaussian",
    "Bernoulli",
    "Binomial",
    "Categorical",
    "DiagonalGaussian",
    "Exponential",
    "Gamma",
    "Gaussian",
    "Geometric",
    "HDPOptions",
    "LinearGaussian",
    "LogNormal",
    "Beta",
    "LearnedGamma",
    "LearnedNegativeBinomial",
    "VonMises",
    "Mixture",
    "StudentT",
    "ZeroInflated",
    "Multinomial",
    "NegativeBinomial",
    "Poisson",
    "Product",
    "SphericalGaussian",
    "TiedGaussian",
    "ZeroMeanGaussian",
]

_HOMES = {
    **dict.fromkeys(_FAMILIES, "sojourn.families"),
    "CategoricalDuration": "sojourn.durations",
    "ClusterError": "sojourn.backends.dask",
    "DataFileError": "sojourn.sources",
    "FitWarning": "sojourn.warnings",
    "FittedModel": "sojourn.prediction",
    "Forecast": "sojourn.analysis.forecast",
    "GeometricDuration": "sojourn.durations",
    "HDPHMM": "sojourn.models",
    "HDPOptions": "sojourn.transitions.options",
    "HMM": "sojourn.models",
    "ModelFileError": "sojourn.persist",
    "MoveSettings": "sojourn.moves.settings",
    "NegativeBinomialDuration": "sojourn.durations",
    "PerStep": "sojourn.model_selection",
    "PosteriorSamples": "sojourn.analysis.uncertainty",
    "Progress": "sojourn.inference",
    "Residuals": "sojourn.analysis.residuals",
    "Sampling": "sojourn.sampling.settings",
    "SegmentTable": "sojourn.analysis.segments",
    "SequenceKFold": "sojourn.model_selection",
    "Sequences": "sojourn.sequences",
    "Source": "sojourn.sources",
    "StateDuration": "sojourn.durations",
    "Statistics": "sojourn.inference",
    "Stream": "sojourn.analysis.stream",
    "Vocabulary": "sojourn.vocabulary",
    "dwell_summary": "sojourn.matching",
    "from_hmmlearn": "sojourn.models",
    "load": "sojourn.models",
    "match_states": "sojourn.matching",
    "open": "sojourn.sources",
    "select_n_states": "sojourn.model_selection",
    "write_report": "sojourn.report.page",
}

__all__ = [
    "HDPHMM",
    "HMM",
    "AutoregressiveGaussian",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "CategoricalDuration",
    "ClusterError",
    "DataFileError",
    "DiagonalGaussian",
    "Exponential",
    "FitWarning",
    "FittedModel",
    "Forecast",
    "Gamma",
    "Gaussian",
    "Geometric",
    "GeometricDuration",
    "HDPOptions",
    "LearnedGamma",
    "LearnedNegativeBinomial",
    "LinearGaussian",
    "LogNormal",
    "Mixture",
    "ModelFileError",
    "MoveSettings",
    "Multinomial",
    "NegativeBinomial",
    "NegativeBinomialDuration",
    "PerStep",
    "Poisson",
    "PosteriorSamples",
    "Product",
    "Progress",
    "Residuals",
    "Sampling",
    "SegmentTable",
    "SequenceKFold",
    "Sequences",
    "Source",
    "SphericalGaussian",
    "StateDuration",
    "Statistics",
    "Stream",
    "StudentT",
    "TiedGaussian",
    "Vocabulary",
    "VonMises",
    "ZeroInflated",
    "ZeroMeanGaussian",
    "dwell_summary",
    "from_hmmlearn",
    "load",
    "match_states",
    "open",
    "select_n_states",
    "write_report",
]


def __getattr__(name: str) -> _typing.Any:
    if name == "plot":  # a module, which importing it puts here
        return _import_module("sojourn.plot")
    if name not in _HOMES:
        raise AttributeError(f"module 'sojourn' has no attribute {name!r}")
    value = getattr(_import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    special = (name for name in globals() if name.startswith("__"))
    return sorted({*special, *__all__, "plot"})
