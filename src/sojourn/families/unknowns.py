"""Statistics of given paths, with the unknowns of single steps drawn given the parameters."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from sojourn.families.base import Family
from sojourn.families.draws import naturals_of
from sojourn.families.mixture import Mixture
from sojourn.families.product import Product
from sojourn.families.student_t import StudentT
from sojourn.families.zero_inflated import ZeroInflated
from sojourn.kernels.interface import Floats, Integers


def one_hot(states: Integers, n_states: int) -> Floats:
    """Return one for the state of every step, and zero for the others: (T, K).

    Examples
    --------
    >>> one_hot(np.array([1, 0]), 3)
    array([[0., 1., 0.],
           [1., 0., 0.]])
    """
    chosen = np.zeros((len(states), n_states))
    chosen[np.arange(len(states)), states] = 1.0
    return chosen


@singledispatch
def path_statistics(
    family: Family, encoded: Any, states: Integers, natural: Floats, rng: np.random.Generator
) -> Floats:
    """Return the statistics (K, S) of a path, with unknowns of steps drawn, eq (33).

    Parameters
    ----------
    family : Family
        One whose steps have unknowns, which are drawn given the path and the parameters.
    encoded : object
        What the family's `encode` returned.
    states : (T,) integer array
    natural : (K, S) array
        λ that stands for the parameters, as `draw_parameters` returns it.
    rng : Generator
    """
    raise NotImplementedError(f"unknowns of {type(family).__name__} cannot be drawn")


@path_statistics.register
def _(
    family: Mixture, encoded: Any, states: Integers, natural: Floats, rng: np.random.Generator
) -> Floats:
    n, n_states = family.n_components, len(natural)
    function = family.components(natural, collapsed=True)
    counts = np.zeros(n_states * n)
    sums = np.zeros((family.family.n_statistics, n_states * n))
    for x, r in family.blocks(encoded, one_hot(states, n_states)):
        own = r.argmax(axis=1)
        logs = function(x).reshape(len(x), n_states, n)[np.arange(len(x)), own]
        component = (logs + rng.gumbel(size=logs.shape)).argmax(axis=1)
        chosen = one_hot(own * n + component, n_states * n) * family.present(x)[:, None]
        counts += chosen.sum(axis=0)
        sums += family.family.sum_statistics(x, chosen, n_threads=1).dense()
    return family.packed(counts, sums, n_states).T


@path_statistics.register
def _(
    family: ZeroInflated, encoded: Any, states: Integers, natural: Floats, rng: np.random.Generator
) -> Floats:
    chosen = one_hot(states, len(natural))
    # Zeros of a state do not differ: only how many are of the point mass matters.
    zeros = np.rint(((encoded == 0.0).T @ chosen).T)
    share = np.exp(family.at_zero(natural, collapsed=True)[1])
    drawn = rng.binomial(zeros.astype(np.int64), np.minimum(share, 1.0))
    with np.errstate(divide="ignore"):
        log_share = np.log(drawn / np.maximum(zeros, 1.0))
    return family.sums_at(encoded, chosen, log_share, 1, bound=False)[0].values.T


@path_statistics.register
def _(
    family: StudentT, encoded: Any, states: Integers, natural: Floats, rng: np.random.Generator
) -> Floats:
    chosen, found = one_hot(states, len(natural)), family.posterior(natural)
    at = np.arange(len(states))
    rates = family.weights(found, encoded)[2][at, states]
    u = rng.standard_gamma(0.5 * (found.df[states] + family.features)) / rates
    _, present = family.gaussian.design(encoded)
    chosen *= present[:, None]
    sums = family.gaussian.sum_statistics(encoded, u[:, None] * chosen, n_threads=1).dense()
    counted, logs = chosen.sum(axis=0)[None], (np.log(u) - u)[None] @ chosen
    return np.concatenate([counted, logs, counted, sums[1:]]).T


@path_statistics.register
def _(
    family: Product, encoded: Any, states: Integers, natural: Floats, rng: np.random.Generator
) -> Floats:
    parts = zip(family.parts, encoded, naturals_of(family, natural), strict=True)
    return np.concatenate(
        [
            path_statistics(part, own, states, given, rng)
            if part.latent
            else np.asarray(part.statistics(own).T @ one_hot(states, len(natural))).T
            for part, own, given in parts
        ],
        axis=1,
    )
