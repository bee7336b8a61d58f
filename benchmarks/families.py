"""One iteration with Gaussian emissions, here and in hmmlearn: `make bench-families`."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hmmlearn
import numpy as np
from hmmlearn.hmm import GaussianHMM

import sojourn as sj
from benchmarks.bar import done, print_table, shown
from benchmarks.results import machine, write_result, write_table
from sojourn.inference import Problem, step
from sojourn.inference.local import prepare
from sojourn.inference.method import METHODS
from sojourn.inference.schedule import Schedule

HERE = Path(__file__).parent
SECONDS = 45  # about, on two quiet cores, for the bar
N_STATES, N_FEATURES, N_SEQUENCES, LENGTH = 20, 10, 400, 100
FAMILIES = {
    "full": sj.Gaussian(),
    "diag": sj.DiagonalGaussian(),
    "spherical": sj.SphericalGaussian(),
}


def vectors() -> tuple[np.ndarray, list[int]]:
    """Draw steps from twenty clusters in ten dimensions."""
    rng = np.random.default_rng(0)
    means = rng.normal(0.0, 2.0, (N_STATES, N_FEATURES))
    states = np.repeat(rng.integers(N_STATES, size=N_SEQUENCES * LENGTH // 10), 10)
    return means[states] + rng.normal(size=(len(states), N_FEATURES)), [LENGTH] * N_SEQUENCES


def our_iteration(family: Any, inference: str, X: np.ndarray, lengths: list[int]) -> Callable:
    """Return an update from all the data in one batch: potentials, forward-backward, blend."""
    model = sj.HMM(N_STATES, family, inference=inference, batch_size=None, random_state=0)
    model.set_params(n_passes=2).fit(X, lengths)
    data = model.emission_.validate(sj.Sequences.from_lengths(X, lengths))
    problem = Problem(model.emission_, METHODS[inference].objective, Schedule(0.0, 1.0), len(data))
    fitted = model.fitted_

    def run() -> None:
        chunks = prepare(model.emission_, data)
        step(problem, fitted.posterior, chunks, fitted.compute.backend())

    return run


def their_iteration(kind: str, implementation: str, X: np.ndarray, lengths: list[int]) -> Callable:
    """Return one iteration of hmmlearn's EM, from where it has come after two."""
    model = GaussianHMM(
        N_STATES, kind, n_iter=2, tol=-np.inf, random_state=0, implementation=implementation
    )
    model.fit(X, lengths)
    model.init_params, model.n_iter = "", 1

    def run() -> None:
        model.fit(X, lengths)

    return run


def best(functions: dict[str, Callable], repeats: int) -> dict[str, float]:
    """Time every function in turn, several times, and keep the best of each."""
    times = dict.fromkeys(functions, np.inf)
    for _ in range(repeats):
        for name, function in functions.items():
            before = time.perf_counter()
            function()
            times[name] = min(times[name], time.perf_counter() - before)
    return times


def compare(repeats: int) -> list[dict[str, Any]]:
    """Measure all covariance types."""
    X, lengths = vectors()
    rows = []
    for kind, family in FAMILIES.items():
        functions = {name: our_iteration(family, name, X, lengths) for name in ("scvi", "svi")}
        for implementation in ("log", "scaling"):
            functions[implementation] = their_iteration(kind, implementation, X, lengths)
        times = best(functions, repeats)
        rates = {name: len(X) / seconds for name, seconds in times.items()}
        rows.append(
            {
                "covariance": kind,
                "family": type(family).__name__,
                **{f"{name}_steps_per_second": round(rate) for name, rate in rates.items()},
                "scvi_over_hmmlearn": round(rates["scvi"] / rates["log"], 1),
                "svi_over_hmmlearn": round(rates["svi"] / rates["log"], 1),
                "scvi_over_hmmlearn_scaling": round(rates["scvi"] / rates["scaling"], 1),
            }
        )
        print(rows[-1])
        done(SECONDS / len(FAMILIES), f"Gaussians, {kind}")
    return rows


def readme_table(rows: list[dict[str, Any]]) -> str:
    """Format the results for README.md."""
    where = machine()
    lines = [
        f"Measured on {where['processor']}, {where['cores']} cores, by `make bench-families`; the "
        "file is [results/families.json](results/families.json).",
        "",
        "| family | SCVI, steps/s | SVI, steps/s | hmmlearn, steps/s | SCVI is faster by "
        '| hmmlearn, `implementation="scaling"` | SCVI is faster by |',
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{row['family']}` | {row['scvi_steps_per_second']:,} | {row['svi_steps_per_second']:,} "
        f"| {row['log_steps_per_second']:,} | {row['scvi_over_hmmlearn']} "
        f"| {row['scaling_steps_per_second']:,} | {row['scvi_over_hmmlearn_scaling']} |"
        for row in rows
    ]
    return "\n".join(lines)


def measure(arguments: list[str] | None = None) -> str:
    """Run everything, write results/families.json and the table in README.md; return the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args(arguments)
    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    rows = compare(options.repeats)
    setting = {"states": N_STATES, "features": N_FEATURES, "steps": N_SEQUENCES * LENGTH}
    result = {"command": "make bench-families", "hmmlearn": hmmlearn.__version__, **setting}
    write_result(HERE / "results" / "families.json", {**result, "one_iteration": rows})
    table = readme_table(rows)
    write_table("families", table)
    return table


def main() -> None:
    """Measure, with a bar, and print the table."""
    with shown(SECONDS):
        table = measure()
    print_table(table)


if __name__ == "__main__":
    main()
