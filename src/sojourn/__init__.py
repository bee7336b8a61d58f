"""Bayesian hidden Markov models from more sequences than fit in memory.

The public names load on first use: importing the package itself costs next to nothing, though
the estimators stand on scikit-learn, SciPy and numba.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sojourn.cluster import ClusterError
    from sojourn.families import (
        AutoregressiveGaussian,
        Bernoulli,
        Categorical,
        DiagonalGaussian,
        Exponential,
        Gamma,
        Gaussian,
        Geometric,
        LinearGaussian,
        LogNormal,
        Multinomial,
        NegativeBinomial,
        Poisson,
        Product,
        SphericalGaussian,
        ZeroMeanGaussian,
    )
    from sojourn.inference import Progress, Statistics
    from sojourn.matching import dwell_summary, match_states
    from sojourn.models import HDPHMM, HMM
    from sojourn.persist import ModelFileError, load
    from sojourn.sequences import Sequences
    from sojourn.sources import DataFileError, Source, open
    from sojourn.vocabulary import Vocabulary

__version__ = "0.1.0"

_FAMILIES = [
    "AutoregressiveGaussian",
    "Bernoulli",
    "Categorical",
    "DiagonalGaussian",
    "Exponential",
    "Gamma",
    "Gaussian",
    "Geometric",
    "LinearGaussian",
    "LogNormal",
    "Multinomial",
    "NegativeBinomial",
    "Poisson",
    "Product",
    "SphericalGaussian",
    "ZeroMeanGaussian",
]

_HOMES = {
    **dict.fromkeys(_FAMILIES, "sojourn.families"),
    "ClusterError": "sojourn.cluster",
    "DataFileError": "sojourn.sources",
    "HDPHMM": "sojourn.models",
    "HMM": "sojourn.models",
    "ModelFileError": "sojourn.persist",
    "Progress": "sojourn.inference",
    "Sequences": "sojourn.sequences",
    "Source": "sojourn.sources",
    "Statistics": "sojourn.inference",
    "Vocabulary": "sojourn.vocabulary",
    "dwell_summary": "sojourn.matching",
    "load": "sojourn.persist",
    "match_states": "sojourn.matching",
    "open": "sojourn.sources",
}

__all__ = [
    "HDPHMM",
    "HMM",
    "AutoregressiveGaussian",
    "Bernoulli",
    "Categorical",
    "ClusterError",
    "DataFileError",
    "DiagonalGaussian",
    "Exponential",
    "Gamma",
    "Gaussian",
    "Geometric",
    "LinearGaussian",
    "LogNormal",
    "ModelFileError",
    "Multinomial",
    "NegativeBinomial",
    "Poisson",
    "Product",
    "Progress",
    "Sequences",
    "Source",
    "SphericalGaussian",
    "Statistics",
    "Vocabulary",
    "ZeroMeanGaussian",
    "dwell_summary",
    "load",
    "match_states",
    "open",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sojourn' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
