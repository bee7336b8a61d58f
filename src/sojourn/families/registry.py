"""The families by name, except for those that are made of others."""

from sojourn.families.autoregressive_gaussian import AutoregressiveGaussian
from sojourn.families.base import Family
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
from sojourn.families.multinomial import Multinomial
from sojourn.families.negative_binomial import NegativeBinomial
from sojourn.families.poisson import Poisson
from sojourn.families.spherical_gaussian import SphericalGaussian
from sojourn.families.student_t import StudentT
from sojourn.families.tied_gaussian import TiedGaussian
from sojourn.families.von_mises import VonMises
from sojourn.families.zero_mean_gaussian import ZeroMeanGaussian

SINGLE_FAMILIES: dict[str, type[Family]] = {
    family.__name__: family
    for family in (
        AutoregressiveGaussian,
        Bernoulli,
        Binomial,
        Categorical,
        DiagonalGaussian,
        Exponential,
        Gamma,
        Gaussian,
        Geometric,
        LinearGaussian,
        LogNormal,
        Beta,
        LearnedGamma,
        LearnedNegativeBinomial,
        VonMises,
        Multinomial,
        NegativeBinomial,
        Poisson,
        SphericalGaussian,
        StudentT,
        TiedGaussian,
        ZeroMeanGaussian,
    )
}
"""Every family that is not made of others, by its name."""
