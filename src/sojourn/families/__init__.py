"""Emission families, one per module; `base` has their interface."""

from sojourn.families.autoregressive_gaussian import AutoregressiveGaussian
from sojourn.families.base import EmissionRows, Family
from sojourn.families.bernoulli import Bernoulli
from sojourn.families.beta import Beta
from sojourn.families.binomial import Binomial
from sojourn.families.categorical import Categorical
from sojourn.families.diagonal_gaussian import DiagonalGaussian
from sojourn.families.exponential import Exponential
from sojourn.families.gamma import Gamma
from sojourn.families.gaussian import Gaussian
from sojourn.families.geometric import Geometric
from sojourn.families.learned_gamma import LearnedGamma
from sojourn.families.learned_negative_binomial import LearnedNegativeBinomial
from sojourn.families.linear_gaussian import LinearGaussian
from sojourn.families.log_normal import LogNormal
from sojourn.families.mixture import Mixture
from sojourn.families.multinomial import Multinomial
from sojourn.families.negative_binomial import NegativeBinomial
from sojourn.families.parts import PART_FAMILIES
from sojourn.families.poisson import Poisson
from sojourn.families.product import Product
from sojourn.families.spherical_gaussian import SphericalGaussian
from sojourn.families.student_t import StudentT
from sojourn.families.table import DecayedTable, RowSums
from sojourn.families.tied_gaussian import TiedGaussian
from sojourn.families.von_mises import VonMises
from sojourn.families.zero_inflated import ZeroInflated
from sojourn.families.zero_mean_gaussian import ZeroMeanGaussian

__all__ = [
    "FAMILIES",
    "AutoregressiveGaussian",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "DecayedTable",
    "DiagonalGaussian",
    "EmissionRows",
    "Exponential",
    "Family",
    "Gamma",
    "Gaussian",
    "Geometric",
    "LearnedGamma",
    "LearnedNegativeBinomial",
    "LinearGaussian",
    "LogNormal",
    "Mixture",
    "Multinomial",
    "NegativeBinomial",
    "Poisson",
    "Product",
    "RowSums",
    "SphericalGaussian",
    "StudentT",
    "TiedGaussian",
    "VonMises",
    "ZeroInflated",
    "ZeroMeanGaussian",
]

FAMILIES: dict[str, type[Family]] = dict(sorted([*PART_FAMILIES.items(), ("Product", Product)]))
"""Every family by its name, for model files."""
