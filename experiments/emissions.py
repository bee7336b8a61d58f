"""Robust and inflated emissions: how many states are found, and how well the parameters.

python -m experiments.emissions
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import sojourn as sj
from benchmarks.results import write_result

N_STEPS, LENGTH, STAY = 20_000, 200, 0.9


def path(n_states: int, rng: np.random.Generator) -> Any:
    """Draw sequences of states that stay with probability 0.9."""
    states = np.empty(N_STEPS, int)
    moves, others = rng.random(N_STEPS) > STAY, rng.integers(1, n_states, N_STEPS)
    for t in range(N_STEPS):
        if t % LENGTH == 0:
            states[t] = rng.integers(n_states)
        else:
            states[t] = (states[t - 1] + moves[t] * others[t]) % n_states
    return states


def heavy_tails(seed: int) -> dict[str, Any]:
    """Count the states that HDPHMM finds in eight of four degrees of freedom."""
    rng = np.random.default_rng(seed)
    states = path(8, rng)
    angles = 2.0 * np.pi * np.arange(8) / 8
    means = 9.0 * np.column_stack([np.cos(angles), np.sin(angles)])
    spread = np.sqrt(4.0 / rng.chisquare(4.0, N_STEPS))
    x = means[states] + spread[:, None] * rng.standard_normal((N_STEPS, 2))
    lengths = [LENGTH] * (N_STEPS // LENGTH)
    found: dict[str, Any] = {}
    for family in (sj.StudentT(), sj.Gaussian()):
        model = sj.HDPHMM(30, family, n_passes=30, random_state=seed).fit(x, lengths)
        found[type(family).__name__] = int(model.n_states_)
        if isinstance(family, sj.StudentT):
            found["degrees of freedom"] = [round(float(df), 2) for df in np.sort(model.dfs_)]
    return found


def counts(seed: int) -> dict[str, Any]:
    """Recover the parameters of three states of zero-inflated and of overdispersed counts."""
    rng = np.random.default_rng(seed)
    states = path(3, rng)
    lengths = [LENGTH] * (N_STEPS // LENGTH)
    means, zeros = np.array([2.0, 8.0, 20.0]), np.array([0.6, 0.3, 0.1])
    x = rng.poisson(means[states]) * (rng.random(N_STEPS) >= zeros[states])
    model = sj.HMM(3, sj.ZeroInflated(sj.Poisson()), n_passes=30, n_init=5, random_state=seed)
    model.fit(x[:, None], lengths)
    order = np.argsort(model.lambdas_[:, 0])
    found: dict[str, Any] = {
        "rates": model.lambdas_[order, 0].round(2).tolist(),
        "zeros": model.zero_probs_[order, 0].round(3).tolist(),
    }
    dispersions, sizes = np.array([0.8, 3.0, 10.0]), np.array([3.0, 20.0, 90.0])
    chances = dispersions / (dispersions + sizes)
    x = rng.negative_binomial(dispersions[states], chances[states])
    family = sj.NegativeBinomial(dispersion=None)
    model = sj.HMM(3, family, n_passes=30, n_init=5, random_state=seed).fit(x[:, None], lengths)
    mean = model.dispersions_ * (1.0 - model.probs_) / model.probs_
    order = np.argsort(mean[:, 0])
    found["dispersions"] = model.dispersions_[order, 0].round(2).tolist()
    found["means"] = mean[order, 0].round(2).tolist()
    return found


def main() -> None:
    """Run with several seeds and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    tails, inflated = [], []
    for seed in seeds:
        tails.append(heavy_tails(seed))
        print(f"seed {seed}: {tails[-1]}", flush=True)
        inflated.append(counts(seed))
        print(f"seed {seed}: {inflated[-1]}", flush=True)
    write_result(
        Path(__file__).parent / "results" / "emissions.json",
        {
            "command": "python -m experiments.emissions",
            "settings": {"steps": N_STEPS, "length": LENGTH, "stay": STAY, "states": 8, "df": 4},
            "truth": {
                "rates": [2.0, 8.0, 20.0],
                "zeros": [0.6, 0.3, 0.1],
                "dispersions": [0.8, 3.0, 10.0],
                "means": [3.0, 20.0, 90.0],
            },
            "heavy_tails": tails,
            "counts": inflated,
        },
    )


if __name__ == "__main__":
    main()
