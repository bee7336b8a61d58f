"""Families whose states share parameters, so that a_g is one number for all states."""

from __future__ import annotations

from functools import singledispatch

from sojourn.families.base import Family
from sojourn.families.draws import naturals_of
from sojourn.families.product import Product
from sojourn.families.tied_gaussian import TiedGaussian
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats, Integers


def couples_states(family: Family) -> bool:
    """Return whether `log_normalizer` depends on all rows of λ, and only its sum means something.

    Examples
    --------
    >>> import sojourn as sj
    >>> couples_states(sj.Gaussian()), couples_states(sj.Product(sj.TiedGaussian(2), sj.Poisson()))
    (False, True)
    """
    if isinstance(family, Product):
        return any(map(couples_states, family.parts))
    return isinstance(family, TiedGaussian)


@singledispatch
def merge_gains(family: Family, statistics: Floats, first: Integers, second: Integers) -> Floats:
    """Return what merging pairs of states adds to the log evidence, Σ_k a_g(λ_k) − a_g(λ°).

    Parameters
    ----------
    family : Family
    statistics : (K, S) array
        E[t] of every state.
    first, second : (P,) integer arrays
        The states of every pair.
    """
    xp = namespace(statistics)
    prior = xp.placed(family.prior(), like=statistics)
    own = family.log_normalizer(prior + statistics)
    both = family.log_normalizer(prior + statistics[first] + statistics[second])
    nothing = family.log_normalizer(prior + 0.0 * statistics[:1])
    return both + nothing - own[first] - own[second]


@merge_gains.register
def _(family: TiedGaussian, statistics: Floats, first: Integers, second: Integers) -> Floats:
    return family.merge_gains(statistics, first, second)


@merge_gains.register
def _(family: Product, statistics: Floats, first: Integers, second: Integers) -> Floats:
    parts = zip(family.parts, naturals_of(family, statistics), strict=True)
    each = [merge_gains(part, own, first, second) for part, own in parts]
    return namespace(statistics).zeros_like(each[0]) + sum(each)
