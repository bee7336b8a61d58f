"""Agreement with other libraries at the same parameters: filtering, passage times, labels.

make agreement

dynamax filters and smooths with a fixed lag, deeptime has passage times and time scales, hmmlearn
has "map" decoding and stationary distributions, pomegranate soft labels (its `priors`).  Each is
compared at the parameters of random models; the largest differences are recorded.  The tests of
the library hold the same functions to enumeration, without other libraries.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sojourn as sj
from benchmarks.results import write_result
from sojourn.analysis import markov
from sojourn.backends.compute import Compute
from sojourn.families.draws import MASS
from sojourn.inference import Posterior, Statistics
from sojourn.prediction import FittedModel
from sojourn.transitions import Dirichlet

N_MODELS = 10
N_STEPS = 500
LAG = 5


def random_model(seed: int) -> tuple[FittedModel, np.ndarray]:
    """Draw a model of symbols, and a sequence from it."""
    rng = np.random.default_rng(seed)
    n_states, n_symbols = 2 + seed % 5, 6
    start = rng.dirichlet(np.ones(n_states))
    matrix = 0.8 * np.eye(n_states) + 0.2 * rng.dirichlet(np.ones(n_states), n_states)
    symbols = rng.dirichlet(np.full(n_symbols, 0.5), n_states)
    statistics = Statistics(MASS * start, MASS * matrix, MASS * symbols)
    # Hardly any prior: the posterior means are the parameters to 1e-18.
    prior = Dirichlet.make(n_states, 1e-9, 1e-9)
    posterior = Posterior.from_statistics(statistics, prior, "float64")
    family = sj.Categorical(n_symbols, 1e-9)
    model = FittedModel(family, posterior, 1, compute=Compute(dtype="float64"))
    return model, model.sample(1, N_STEPS, random_state=seed)[0].values


def from_dynamax(model: FittedModel, x: np.ndarray) -> dict[str, float]:
    """Compare filtered and fixed-lag probabilities, and the log likelihood."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from dynamax.hidden_markov_model.inference import hmm_filter, hmm_fixed_lag_smoother

    logs = np.log(model.parameters["emissionprob_"][:, x].T)
    peer = hmm_filter(model.startprob, model.transmat, logs)
    lagged = hmm_fixed_lag_smoother(model.startprob, model.transmat, logs, window_size=LAG)
    # Its rows are the steps t − window + 1, ..., t at every t: the first is the lagged one.
    window = np.asarray(lagged.smoothed_probs)[LAG - 1 :, 0]
    own = model.filter(x, lag=LAG - 1)[: len(window)]
    return {
        "filter, dynamax": _distance(model.filter(x), peer.filtered_probs),
        "log likelihood, dynamax": _distance(model.score(x), float(peer.marginal_loglik)),
        "fixed-lag smoother, dynamax": _distance(own, window),
    }


def from_deeptime(model: FittedModel) -> dict[str, float]:
    """Compare passage times, time scales and the stationary distribution."""
    from deeptime.markov import tools

    matrix, k = model.transmat, len(model.startprob)
    times = np.array([tools.analysis.mfpt(matrix, target) for target in range(k)]).T
    both = tools.analysis.mfpt(matrix, [k - 1], origin=[0, 1]) if k > 2 else None
    scales = np.sort(np.abs(tools.analysis.timescales(matrix)[1:]))[::-1]
    found = {
        "passage times, deeptime": _relative(markov.all_passage_times(matrix), times),
        "time scales, deeptime": _relative(model.timescales, scales),
        "stationary distribution, deeptime": _distance(
            model.stationary, tools.analysis.stationary_distribution(matrix)
        ),
    }
    if both is not None:
        own = model.mean_first_passage([0, 1], k - 1)
        found["passage time from two states, deeptime"] = _relative(own, both)
    return found


def from_hmmlearn(model: FittedModel, x: np.ndarray) -> dict[str, float]:
    """Compare "map" decoding, probabilities and the stationary distribution."""
    from hmmlearn.hmm import CategoricalHMM

    peer = CategoricalHMM(len(model.startprob), algorithm="map")
    peer.startprob_, peer.transmat_ = model.startprob, model.transmat
    peer.emissionprob_ = model.parameters["emissionprob_"]
    score, path = model.decode(x, algorithm="map")
    expected, states = peer.decode(x[:, None])
    total, probabilities = model.score_samples(x)
    likelihood, posteriors = peer.score_samples(x[:, None])
    return {
        "map score, hmmlearn": _relative(score, expected),
        "map path, hmmlearn: steps that differ": float((path != states).sum()),
        "log likelihood, hmmlearn": _relative(total, likelihood),
        "probabilities, hmmlearn": _distance(probabilities, posteriors),
        "stationary distribution, hmmlearn": _distance(
            model.stationary, peer.get_stationary_distribution()
        ),
    }


def from_pomegranate(model: FittedModel, x: np.ndarray, seed: int) -> dict[str, float]:
    """Compare the likelihood and the probabilities with weights of states at every step."""
    import torch
    from pomegranate.distributions import Categorical
    from pomegranate.hmm import DenseHMM

    k, symbols = len(model.startprob), model.parameters["emissionprob_"]
    # Its end probabilities are of one: sequences may end in every state.
    peer = DenseHMM(
        [Categorical(torch.tensor(own[None]), check_data=False) for own in symbols],
        edges=torch.tensor(model.transmat),
        starts=torch.tensor(model.startprob),
        ends=torch.ones(k, dtype=torch.float64),
        check_data=False,
    ).double()
    weights = np.random.default_rng(seed).dirichlet(np.ones(k), len(x))
    given, priors = torch.tensor(x)[None, :, None], torch.tensor(weights)[None]
    likelihood = float(peer.log_probability(given, priors=priors)[0])
    probabilities = peer.predict_proba(given, priors=priors)[0].numpy()
    return {
        "log likelihood with soft labels, pomegranate": _relative(
            model.score(x, y=weights), likelihood
        ),
        "probabilities with soft labels, pomegranate": _distance(
            model.predict_proba(x, y=weights), probabilities
        ),
    }


def _distance(one: Any, other: Any) -> float:
    return float(np.abs(np.asarray(one) - np.asarray(other)).max())


def _relative(one: Any, other: Any) -> float:
    one, other = np.asarray(one), np.asarray(other)
    return float((np.abs(one - other) / np.maximum(np.abs(other), 1.0)).max())


def main() -> None:
    """Compare, and record the largest differences."""
    largest: dict[str, float] = {}
    for seed in range(N_MODELS):
        model, x = random_model(seed)
        found = from_dynamax(model, x) | from_deeptime(model) | from_hmmlearn(model, x)
        found |= from_pomegranate(model, x, seed)
        for name, value in found.items():
            largest[name] = max(largest.get(name, 0.0), value)
    for name, value in largest.items():
        print(f"{name:45} {value:.1e}")
    too_far = [name for name, value in largest.items() if not value < 1e-8]
    write_result(
        Path(__file__).parent / "results" / "agreement.json",
        {
            "command": "python -m benchmarks.agreement",
            "models": N_MODELS,
            "steps": N_STEPS,
            "lag": LAG - 1,
            "largest_difference": largest,
        },
        packages=("dynamax", "deeptime", "hmmlearn", "pomegranate"),
    )
    if too_far:
        raise SystemExit(f"further than 1e-8: {', '.join(too_far)}")


if __name__ == "__main__":
    main()
