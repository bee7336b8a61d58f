"""How far each method is from the exact posterior, on data small enough to enumerate.

python -m experiments.exact_posterior

Fifty random data sets of two or three sequences and at most twelve steps.  For each pair of
neighbouring steps the exact p(z_{t−1}, z_t | x) comes from the sum over all paths of the collapsed
joint probability; the distance is ½ Σ |q − p|.  Variational methods start from random statistics,
as `fit` does, and from the exact expected counts: the second leaves the error of the approximation
alone, without that of a poor start.
"""

from __future__ import annotations

import argparse
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import gammaln

import sojourn as sj
from benchmarks.results import write_result
from experiments.reference_tables import write_tables
from sojourn.backends.cpu import CpuBackend
from sojourn.inference import METHODS, Posterior, Problem, train
from sojourn.inference.local import chunk_potentials, prepare
from sojourn.inference.posterior import initial_counts
from sojourn.kernels import cpu
from sojourn.sources import MemorySource, RememberingSource
from sojourn.transitions import Dirichlet

N_SYMBOLS = 3
CONCENTRATION = 0.5
PASSES = 400
DRAWS = 5000
VARIATIONAL = ("vb", "svi", "scvi", "cvb0")


def draw_problem(seed: int) -> tuple[sj.Sequences, int, np.ndarray]:
    """Draw lengths, a model and its data; each state prefers a symbol, which names the states."""
    rng = np.random.default_rng(seed)
    n_states = 2 + seed % 2
    steps = 12 if n_states == 2 else 10
    n_sequences = int(rng.integers(2, 4))
    cuts = np.sort(rng.choice(np.arange(1, steps), n_sequences - 1, replace=False))
    lengths = np.diff([0, *cuts, steps])
    prior = 0.5 + 1.0 * np.eye(n_states, N_SYMBOLS)
    rows = rng.dirichlet(np.full(n_states, CONCENTRATION), n_states + 1)
    emissions = np.array([rng.dirichlet(row) for row in prior])
    data = []
    for length in lengths:
        row, symbols = 0, []
        for _ in range(length):
            k = rng.choice(n_states, p=rows[row])
            symbols.append(rng.choice(N_SYMBOLS, p=emissions[k]))
            row = k + 1
        data.append(symbols)
    return sj.Sequences.from_list(data), n_states, prior


def exact_posterior(
    data: sj.Sequences, n_states: int, prior: np.ndarray
) -> tuple[np.ndarray, sj.Statistics]:
    """Sum over every path of all sequences together: pair marginals and expected counts."""
    paths = np.array(list(product(range(n_states), repeat=data.n_steps)), dtype=np.int64)
    first = np.zeros(data.n_steps, dtype=bool)
    first[data.offsets[:-1]] = True
    rows = np.zeros_like(paths)
    rows[:, 1:] = paths[:, :-1] + 1
    rows[:, first] = 0
    log_joint = np.zeros(len(paths))
    for row in range(n_states + 1):
        total = np.zeros(len(paths))
        for k in range(n_states):
            n = ((rows == row) & (paths == k)).sum(axis=1)
            log_joint += gammaln(CONCENTRATION + n) - gammaln(CONCENTRATION)
            total += n
        log_joint -= gammaln(n_states * CONCENTRATION + total)
    for k in range(n_states):
        total = np.zeros(len(paths))
        for w in range(N_SYMBOLS):
            n = (paths[:, data.values == w] == k).sum(axis=1)
            log_joint += gammaln(prior[k, w] + n) - gammaln(prior[k, w])
            total += n
        log_joint -= gammaln(prior[k].sum() + total)
    weights = np.exp(log_joint - log_joint.max())
    weights /= weights.sum()
    pairs = pairs_of_paths(paths, weights, first, n_states)
    shares = np.array([weights @ (paths == k) for k in range(n_states)])  # (K, T)
    emissions = np.array([shares[:, data.values == w].sum(axis=1) for w in range(N_SYMBOLS)]).T
    return pairs, sj.Statistics(shares[:, first].sum(axis=1), pairs.sum(axis=0), emissions)


def pairs_of_paths(
    paths: np.ndarray, weights: np.ndarray, first: np.ndarray, n_states: int
) -> np.ndarray:
    """Weigh the pairs of neighbours of given paths, shape (pairs, K, K)."""
    tables = np.zeros((int((~first).sum()), n_states, n_states))
    for table, t in zip(tables, np.flatnonzero(~first), strict=True):
        np.add.at(table, (paths[:, t - 1], paths[:, t]), weights)
    return tables


def chain_pairs(start: np.ndarray, transitions: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Pair marginals of one sequence under potentials, by forward and backward sums."""
    forward = [start * rows[0]]
    for row in rows[1:]:
        forward.append(forward[-1] @ transitions * row)
    backward = [np.ones(len(start))]
    for row in rows[:0:-1]:
        backward.append(transitions @ (row * backward[-1]))
    backward.reverse()
    pairs = [
        forward[t - 1][:, None] * transitions * rows[t] * backward[t] for t in range(1, len(rows))
    ]
    return np.array([pair / pair.sum() for pair in pairs]).reshape(-1, len(start), len(start))


def random_statistics(data: sj.Sequences, n_states: int, seed: int) -> sj.Statistics:
    """Draw what `fit` would start from."""
    rng = np.random.default_rng([seed, 1])
    counts = initial_counts(n_states, len(data), data.n_steps, rng)
    emissions = sj.Categorical(N_SYMBOLS).initial_statistics(data, n_states, data.n_steps, rng)
    return sj.Statistics(*counts, emissions.astype(np.float64))


def variational_pairs(
    name: str, data: sj.Sequences, init: sj.Statistics, prior: np.ndarray, seed: int
) -> np.ndarray:
    """Train, and take the pair marginals of q(z); cvb0's leave the sequence's own counts out."""
    method, backend = METHODS[name], CpuBackend(cpu, 1)
    family = sj.Categorical(N_SYMBOLS, prior)
    data = family.validate(data)
    n_states = len(init.start)
    transitions = Dirichlet.make(n_states, None, CONCENTRATION)
    posterior = Posterior.from_statistics(init, transitions, "float64")
    source: Any = MemorySource(data, None if method.whole else 1, seed)
    if method.remembers:
        source = RememberingSource(data, seed)
    schedule = method.schedule(0.9, 1.0)
    problem = Problem(family, method.objective, schedule, len(data))
    train(problem, posterior, source, backend, n_passes=PASSES)
    remembered = source.remembered if method.remembers else [None] * len(data)
    tables = []
    for n, own in enumerate(remembered):
        posterior.exchange(own, None)
        potentials = method.objective.transition_potentials(
            posterior.transitions.concentrations(posterior.counts)
        )
        chunks = prepare(family, data[n : n + 1])
        collapsed = method.objective.collapsed
        for _, factors, index in chunk_potentials(
            posterior, family, chunks, potentials, backend, collapsed=collapsed
        ):
            rows = factors.emissions[index][:, :n_states]
            tables.append(chain_pairs(factors.start, factors.transitions, rows))
        posterior.exchange(None, own)
    return np.concatenate(tables)


def sampled_pairs(data: sj.Sequences, n_states: int, prior: np.ndarray, seed: int) -> np.ndarray:
    """Take the pair marginals of collapsed Gibbs draws: the size of Monte Carlo error."""
    model = sj.HMM(
        n_states,
        sj.Categorical(N_SYMBOLS, prior),
        inference=sj.Sampling("gibbs", n_samples=DRAWS),
        transition_concentration=CONCENTRATION,
        random_state=seed,
    ).fit(data)
    paths = np.array([draw.states for draw in model.samples_])
    weights = np.full(len(paths), 1.0 / len(paths))
    return pairs_of_paths(paths, weights, model.samples_.data.first, n_states)


def main() -> None:
    """Measure every method on every data set and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=50)
    arguments = parser.parse_args()
    starts = ("random start", "exact start")
    distances: dict[str, list[float]] = {
        **{f"{name}, {start}": [] for name in VARIATIONAL for start in starts},
        "gibbs, random start": [],
    }
    for seed in range(arguments.problems):
        data, n_states, prior = draw_problem(seed)
        exact, counts = exact_posterior(data, n_states, prior)
        inits = {"random start": random_statistics(data, n_states, seed), "exact start": counts}
        for row, values in distances.items():
            name, start = row.split(", ")
            if name == "gibbs":
                found = sampled_pairs(data, n_states, prior, seed)
            else:
                found = variational_pairs(name, data, inits[start], prior, seed)
            values.append(float(0.5 * np.abs(found - exact).sum(axis=(1, 2)).mean()))
    closer = {
        f"`{a}` closer than `{b}` ({start})": int(
            np.sum(np.less(distances[f"{a}, {start}"], distances[f"{b}, {start}"]))
        )
        for start in starts
        for a, b in pairwise(("cvb0", "scvi", "svi"))
    }
    table = {
        name: {
            "mean": round(float(np.mean(values)), 4),
            "standard_error": round(float(np.std(values) / np.sqrt(len(values))), 4),
            "largest": round(float(np.max(values)), 4),
        }
        for name, values in distances.items()
    }
    for name, row in table.items():
        print(f"{name:19}", row)
    print(closer)
    write_result(
        Path(__file__).parent / "results" / "exact_posterior.json",
        {
            "command": "python -m experiments.exact_posterior",
            "problems": arguments.problems,
            "settings": {"passes": PASSES, "forgetting_rate": 0.9, "gibbs_draws": DRAWS},
            "total_variation": table,
            "counts": closer,
        },
    )
    write_tables()


if __name__ == "__main__":
    main()
