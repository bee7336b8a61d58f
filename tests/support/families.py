"""One example of each family, for the contract that all of them keep."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import sojourn as sj
from sojourn.families import DecayedTable
from sojourn.families.coupled import couples_states

N_STATES = 3


@dataclass(frozen=True)
class Example:
    """A family, and how to draw data for it."""

    given: Any  # the family as a user writes it
    draw_data: Any  # (rng, n) -> (n, D) values, or (n,) symbols
    support: Any = None  # every x, where there are finitely many
    missing: str = "entries"  # what may be missing: "entries", "rows" or "symbols"
    error: float = 1e-9  # of a_g, where it is an integral that is computed numerically
    inside: int = 3  # from how many steps on λ is far from the border of where a_g is finite

    def resolve(self, n_states=N_STATES):
        values = self.draw_data(np.random.default_rng(99), 200)
        return self.given.resolve(sj.Sequences(values, [0, len(values)]), n_states)

    def draw_natural(self, family, rng, n_states, fewest=3):
        """The prior with the statistics of some weighted data: λ as training meets it."""
        n = int(rng.integers(fewest, 40))
        data = sj.Sequences(self.draw_data(rng, n), [0, n])
        weights = rng.gamma(0.7, 1.0, (n_states, n))
        if family.latent:
            start = family.initial_statistics(data, n_states, 3.0, rng)
            table = DecayedTable(start, "float64")
            encoded = family.encode(family.validate(data))
            sums, _ = family.sum_given(encoded, weights.T, table, collapsed=True, n_threads=1)
            return family.prior() + sums.dense().T
        return family.prior() + weights @ family.statistics(family.observations(data))


def increases(family, natural, t):
    """a_g(λ + t) − a_g(λ) for t in each state: of its own, or of what all states share."""
    if not couples_states(family):
        return family.log_normalizer(natural + t) - family.log_normalizer(natural)
    states = np.eye(len(natural))[:, :, None]
    return np.array([sum_of(family, natural + own * t) for own in states]) - sum_of(family, natural)


def sum_of(family, natural):
    return family.log_normalizer(natural).sum()


def _categorical(concentration):
    return Example(
        sj.Categorical(6, concentration),
        lambda rng, n: rng.integers(6, size=n).astype(np.int32),
        np.arange(6, dtype=np.int32),
        "symbols",
    )


def _mixture(rng, n, d):
    """Vectors from two clusters, far from zero."""
    return 7.0 + rng.normal(size=(n, d)) * [0.1, 3.0, 1.0][:d] + 4.0 * rng.integers(2, size=(n, 1))


def _walk(rng, n, d):
    return np.cumsum(rng.normal(size=(n, d)), axis=0) * 0.3 + 5.0


def _regression(rng, n):
    covariates = rng.normal(2.0, 1.5, (n, 2))
    return np.hstack([covariates @ [[1.0, -1.0], [0.5, 2.0]] + rng.normal(size=(n, 2)), covariates])


def _trials(rng, n):
    trials = rng.integers(1, 30, n)
    return np.column_stack([rng.binomial(trials, 0.2), rng.binomial(trials, 0.7), trials]) * 1.0


def _mixed(rng, n):
    return np.column_stack(
        [_mixture(rng, n, 2), rng.poisson(4.0, n), rng.integers(3, size=n), rng.gamma(2.0, 1.0, n)]
    )


EXAMPLES = {
    "categorical": _categorical(0.3),
    "categorical, a concentration a symbol": _categorical(np.linspace(0.1, 2.0, 6)),
    "categorical, a concentration a state and symbol": _categorical(
        np.linspace(0.1, 2.0, 18).reshape(3, 6)
    ),
    "Bernoulli": Example(
        sj.Bernoulli(),
        lambda rng, n: (rng.random((n, 3)) < [0.1, 0.5, 0.8]).astype(float),
        np.array(np.meshgrid([0.0, 1.0], [0.0, 1.0], [0.0, 1.0])).reshape(3, -1).T,
    ),
    "multinomial": Example(
        sj.Multinomial(),
        lambda rng, n: rng.multinomial(rng.integers(0, 9, n), [0.2, 0.3, 0.5]).astype(float),
        missing="rows",
    ),
    "Poisson": Example(sj.Poisson(), lambda rng, n: rng.poisson([0.3, 20.0], (n, 2)).astype(float)),
    "negative binomial": Example(
        sj.NegativeBinomial(dispersion=[0.7, 3.0]),
        lambda rng, n: rng.negative_binomial([0.7, 3.0], [0.4, 0.2], (n, 2)).astype(float),
    ),
    "geometric": Example(
        sj.Geometric(), lambda rng, n: rng.geometric([0.7, 0.1], (n, 2)).astype(float)
    ),
    "exponential": Example(sj.Exponential(), lambda rng, n: rng.exponential([0.01, 50.0], (n, 2))),
    "gamma": Example(
        sj.Gamma(shape=[0.6, 4.0]), lambda rng, n: rng.gamma([0.6, 4.0], [3.0, 0.1], (n, 2)) + 1e-9
    ),
    "Gaussian": Example(sj.Gaussian(), lambda rng, n: _mixture(rng, n, 3), missing="rows"),
    "Gaussian of one column": Example(
        sj.Gaussian(), lambda rng, n: _mixture(rng, n, 1), missing="rows"
    ),
    "tied Gaussian": Example(sj.TiedGaussian(), lambda rng, n: _mixture(rng, n, 3), missing="rows"),
    "product with a tied part": Example(
        sj.Product(sj.TiedGaussian(2), sj.Poisson()),
        lambda rng, n: np.column_stack([_mixture(rng, n, 2), rng.poisson(4.0, n)]),
        missing="rows",
    ),
    "diagonal Gaussian": Example(sj.DiagonalGaussian(), lambda rng, n: _mixture(rng, n, 3)),
    "spherical Gaussian": Example(sj.SphericalGaussian(), lambda rng, n: _mixture(rng, n, 3)),
    "log-normal": Example(sj.LogNormal(), lambda rng, n: np.exp(_mixture(rng, n, 2) / 3.0)),
    "zero-mean Gaussian": Example(
        sj.ZeroMeanGaussian(),
        lambda rng, n: rng.normal(size=(n, 2)) * rng.choice([1.0, 5.0], (n, 1)),
        missing="rows",
    ),
    "autoregressive Gaussian": Example(
        sj.AutoregressiveGaussian(order=2), lambda rng, n: _walk(rng, n, 2), missing="rows"
    ),
    "linear Gaussian": Example(sj.LinearGaussian(n_targets=2), _regression, missing="rows"),
    "binomial": Example(sj.Binomial(), _trials, missing="rows"),
    "binomial, known trials": Example(
        sj.Binomial(n_trials=9), lambda rng, n: 1.0 * rng.binomial(9, [0.2, 0.7], (n, 2))
    ),
    "von Mises": Example(
        sj.VonMises(),
        lambda rng, n: rng.vonmises([0.0, 3.0], [0.5, 20.0], (n, 2)),
        error=1e-3,
        inside=20,
    ),
    "beta": Example(
        sj.Beta(),
        lambda rng, n: rng.beta([2.0, 9.0], [5.0, 0.7], (n, 2)),
        error=0.3,
        inside=20,
    ),
    "gamma, learned shape": Example(
        sj.LearnedGamma(),
        lambda rng, n: rng.gamma([0.6, 4.0], [3.0, 0.1], (n, 2)) + 1e-9,
        error=1e-3,
    ),
    "negative binomial, learned dispersion": Example(
        sj.LearnedNegativeBinomial(),
        lambda rng, n: rng.negative_binomial([0.7, 3.0], [0.4, 0.2], (n, 2)).astype(float),
        error=3e-3,
    ),
    "product": Example(
        sj.Product(sj.DiagonalGaussian(2), sj.Poisson(), sj.Categorical(3), sj.Gamma(shape=2.0)),
        _mixed,
    ),
}

LATENT = {
    "mixture of diagonal Gaussians": Example(
        sj.Mixture(sj.DiagonalGaussian(), 3), lambda rng, n: _mixture(rng, n, 3)
    ),
    "mixture of Gaussians": Example(
        sj.Mixture(sj.Gaussian(), 2), lambda rng, n: _mixture(rng, n, 2), missing="rows"
    ),
    "mixture of Poissons": Example(
        sj.Mixture(sj.Poisson(), 2),
        lambda rng, n: rng.poisson(rng.choice([1.0, 20.0], (n, 1))).astype(float),
    ),
    "zero-inflated Poisson": Example(
        sj.ZeroInflated(sj.Poisson()),
        lambda rng, n: 1.0 * rng.poisson([0.6, 9.0], (n, 2)) * (rng.random((n, 2)) < 0.6),
    ),
    "zero-inflated gamma": Example(
        sj.ZeroInflated(sj.Gamma(shape=2.0)),
        lambda rng, n: (rng.gamma(2.0, 3.0, (n, 2)) + 1e-9) * (rng.random((n, 2)) < 0.6),
    ),
    "Student t": Example(
        sj.StudentT(),
        lambda rng, n: _mixture(rng, n, 2) + rng.standard_t(2, (n, 2)),
        missing="rows",
    ),
    "Student t, known degrees of freedom": Example(
        sj.StudentT(df=4.0), lambda rng, n: _mixture(rng, n, 1), missing="rows"
    ),
    "product with a mixture": Example(
        sj.Product(
            sj.Mixture(sj.DiagonalGaussian(2), 2), sj.ZeroInflated(sj.Poisson()), sj.Gamma()
        ),
        lambda rng, n: np.column_stack(
            [
                _mixture(rng, n, 2),
                rng.poisson(4.0, n) * rng.integers(2, size=n),
                rng.gamma(2.0, 1, n),
            ]
        ),
    ),
}
"""Families whose steps have unknowns of their own, so that statistics depend on λ."""

EVERY = EXAMPLES | LATENT
