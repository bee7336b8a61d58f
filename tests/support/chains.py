"""Small hidden Markov models at known parameters, and every path of them by enumeration."""

from itertools import product

import numpy as np

import sojourn as sj
from sojourn.backends.compute import Compute
from sojourn.families.draws import MASS
from sojourn.inference import Posterior, Statistics
from sojourn.prediction import FittedModel
from sojourn.transitions import Dirichlet

START = np.array([0.5, 0.3, 0.2])
MATRIX = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.25, 0.25, 0.5]])
SYMBOLS = np.array([[0.6, 0.2, 0.1, 0.1], [0.1, 0.1, 0.2, 0.6], [0.25, 0.25, 0.4, 0.1]])


def fitted_at(family, emissions, start=START, matrix=MATRIX, mass=MASS):
    """A model with given parameters: counts of many steps, under hardly any prior."""
    prior = Dirichlet.make(len(start), 1e-9, 1e-9)
    statistics = Statistics(mass * start, mass * matrix, np.asarray(emissions))
    posterior = Posterior.from_statistics(statistics, prior, "float64")
    return FittedModel(family, posterior, 1, compute=Compute(dtype="float64"))


def symbol_model():
    """Three states of four symbols."""
    return fitted_at(sj.Categorical(4, 1e-9), MASS * SYMBOLS)


def every_path(log_emissions, start=START, matrix=MATRIX):
    """All K^T paths, and the probability of each together with the observations."""
    n_steps, n_states = log_emissions.shape
    paths = np.array(list(product(range(n_states), repeat=n_steps)))
    logs = np.log(start)[paths[:, 0]] + log_emissions[0, paths[:, 0]]
    for t in range(1, n_steps):
        logs += np.log(matrix)[paths[:, t - 1], paths[:, t]] + log_emissions[t, paths[:, t]]
    return paths, np.exp(logs)


def marginals(paths, weights, n_states=3):
    """p(z_t = k | x) by summing over paths."""
    shares = weights / weights.sum()
    return np.array([[shares[paths[:, t] == k].sum() for k in range(n_states)]
                     for t in range(paths.shape[1])])  # fmt: skip
