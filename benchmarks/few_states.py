"""One iteration with few states, here and in hmmlearn, and rates of all families of numbers.

    python -m benchmarks.few_states

An iteration is an update from all the data in one batch here (potentials, forward-backward,
statistics, blend), and an EM iteration of hmmlearn with ``implementation="scaling"``, each from a
model that has been fitted to a part of the data.  hmmlearn is timed on at most 100,000 steps of the
same data, or 20,000 of short sequences: its rate does not grow with more of them.  The result file
is written after every row.  On two quiet cores all of it takes about four minutes.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hmmlearn
import numpy as np
from hmmlearn import hmm
from threadpoolctl import threadpool_limits

import sojourn as sj
from benchmarks.bar import done, print_table, shown
from benchmarks.results import machine, write_result, write_table
from sojourn.inference import Problem, step
from sojourn.inference.local import prepare
from sojourn.inference.method import METHODS
from sojourn.inference.schedule import Schedule
from sojourn.kernels.threads import available_cores

HERE = Path(__file__).parent
RESULT = HERE / "results" / "few_states.json"
STATES = (2, 3, 5, 8, 10, 16)
FAMILIES = (
    ("full", 1),
    ("full", 2),
    ("full", 10),
    ("diag", 1),
    ("diag", 2),
    ("diag", 10),
    ("Poisson", 4),
    ("categorical", 1),
)
SHAPES = ((1, 1_000_000), (1000, 1000), (50_000, 20))
THEIR_STEPS, THEIR_SHORT_STEPS = 100_000, 20_000
MANY_FAMILIES = (
    ("Bernoulli", 10),
    ("Poisson", 4),
    ("negative binomial", 4),
    ("multinomial", 10),
    ("diag", 10),
    ("full", 10),
    ("AR(1)", 10),
)
FIGURE_SECONDS = 0.3  # for the repeats of one figure, after the first call
ROW_SECONDS, FAMILY_SECONDS = 1.4, 3.0  # about, on two quiet cores, for the bar
N_SYMBOLS = 20
SECONDS = (
    len(MANY_FAMILIES) * FAMILY_SECONDS + len(FAMILIES) * len(STATES) * len(SHAPES) * ROW_SECONDS
)


def draw(kind: str, n_columns: int, n_states: int, n_steps: int) -> np.ndarray:
    """Draw steps that stay in a state for ten steps each."""
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(n_states, size=-(-n_steps // 10)), 10)[:n_steps]
    if kind == "categorical":
        sums = rng.dirichlet(np.full(N_SYMBOLS, 0.3), n_states).cumsum(axis=1)
        drawn = (rng.random(n_steps)[:, None] > sums[states]).sum(axis=1)
        return np.minimum(drawn, N_SYMBOLS - 1)[:, None]
    if kind in ("full", "diag", "AR(1)"):
        means = rng.normal(0.0, 2.0, (n_states, n_columns))
        return means[states] + rng.normal(size=(n_steps, n_columns))
    if kind == "Bernoulli":
        chances = rng.beta(0.5, 0.5, (n_states, n_columns))
        return (rng.random((n_steps, n_columns)) < chances[states]).astype(np.int64)
    rates = rng.gamma(2.0, 2.0, (n_states, n_columns))
    return rng.poisson(rates[states])


OURS: dict[str, Callable[[], Any]] = {
    "full": sj.Gaussian,
    "diag": sj.DiagonalGaussian,
    "Poisson": sj.Poisson,
    "categorical": lambda: sj.Categorical(N_SYMBOLS),
    "Bernoulli": sj.Bernoulli,
    "negative binomial": sj.NegativeBinomial,
    "multinomial": sj.Multinomial,
    "AR(1)": sj.AutoregressiveGaussian,
}


def our_iteration(
    kind: str, n_states: int, X: np.ndarray, lengths: list[int], n_jobs: int
) -> Callable[[], None]:
    """Return an update from all the data in one batch."""
    values = X[:, 0] if kind == "categorical" else X
    model = sj.HMM(n_states, OURS[kind](), batch_size=None, n_passes=2, n_jobs=n_jobs)
    part = min(len(X), 10_000)
    model.set_params(random_state=0, moves=None).fit(values[:part], [part])
    data = model.emission_.validate(sj.Sequences.from_lengths(values, lengths))
    problem = Problem(model.emission_, METHODS["scvi"].objective, Schedule(0.0, 1.0), len(data))
    posterior, backend = model.fitted_.posterior, model.fitted_.compute.backend()

    def run() -> None:
        step(problem, posterior, prepare(model.emission_, data, n_states), backend)

    return run


def their_iteration(
    kind: str, n_states: int, X: np.ndarray, lengths: list[int]
) -> Callable[[], None]:
    """Return one iteration of hmmlearn's EM, from where it has come after two."""
    common = {"n_iter": 2, "tol": -np.inf, "random_state": 0, "implementation": "scaling"}
    if kind == "categorical":
        model = hmm.CategoricalHMM(n_states, n_features=N_SYMBOLS, **common)
    elif kind == "Poisson":
        model = hmm.PoissonHMM(n_states, **common)
    else:
        model = hmm.GaussianHMM(n_states, kind, **common)
    part = min(len(X), 10_000)
    model.fit(X[:part], [part])
    model.init_params, model.n_iter = "", 1

    def run() -> None:
        model.fit(X, lengths)

    return run


def seconds(
    function: Callable[[], None], repeats: int, most: float, *, one_core: bool = False
) -> float:
    """Return the shortest time of several calls, as long as they have not taken too long.

    On one core that is the time of the processor: others may use the machine meanwhile.
    """
    function()  # caches
    clock = time.process_time if one_core else time.perf_counter
    shortest, total = np.inf, 0.0
    for _ in range(repeats):
        before = clock()
        function()
        passed = clock() - before
        shortest, total = min(shortest, passed), total + passed
        if total > most:
            break
    return shortest


def compare(arguments: argparse.Namespace, result: dict[str, Any]) -> None:
    """Measure every family, number of states and shape of the data, and write each."""
    cores = available_cores()
    rows = result["one_iteration"]
    n_rows = len(FAMILIES) * len(arguments.states) * len(SHAPES)
    for kind, n_columns in FAMILIES:
        for n_states in arguments.states:
            X = draw(kind, n_columns, n_states, 1_000_000)
            for n_sequences, length in SHAPES:
                most = THEIR_STEPS if length >= 1000 else THEIR_SHORT_STEPS
                theirs = max(1, min(n_sequences, most // length))
                part = min(length, most)
                their_lengths = [part] * theirs
                row: dict[str, Any] = {
                    "family": kind,
                    "columns": n_columns,
                    "states": n_states,
                    "sequences": n_sequences,
                    "length": length,
                }
                run = their_iteration(kind, n_states, X[: sum(their_lengths)], their_lengths)
                for n_jobs in sorted({1, cores}):
                    with threadpool_limits(n_jobs):
                        slow = seconds(run, arguments.repeats, FIGURE_SECONDS, one_core=n_jobs == 1)
                        ours = our_iteration(kind, n_states, X, [length] * n_sequences, n_jobs)
                        fast = seconds(
                            ours, 2 * arguments.repeats, FIGURE_SECONDS, one_core=n_jobs == 1
                        )
                    rates = len(X) / fast, sum(their_lengths) / slow
                    row[f"million_steps_{n_jobs}"] = round(rates[0] / 1e6, 2)
                    row[f"hmmlearn_million_steps_{n_jobs}"] = round(rates[1] / 1e6, 3)
                    row[f"faster_{n_jobs}"] = round(rates[0] / rates[1], 1)
                rows.append(row)
                print(f"{len(rows)}/{n_rows}", *row.values(), flush=True)
                write_result(RESULT, result, quiet=True)
                done(ROW_SECONDS, f"{n_states} states, {kind}")


def many_families(repeats: int) -> list[dict[str, Any]]:
    """Million steps a second on all cores, K = 20, for families of numbers."""
    rows = []
    for kind, n_columns in MANY_FAMILIES:
        X = draw(kind, n_columns, 20, 200_000)
        run = our_iteration(kind, 20, X, [100] * 2000, available_cores())
        rate = len(X) / seconds(run, 2 * repeats, 2.0)
        rows.append({"family": kind, "columns": n_columns, "million_steps": round(rate / 1e6, 2)})
        print(rows[-1])
        done(FAMILY_SECONDS, f"K = 20, {kind}")
    return rows


def readme_table(result: dict[str, Any]) -> str:
    """Format the results for README.md."""
    where, rows = machine(), result["one_iteration"]
    cores = sorted({1, where["cores"]})
    lines = [
        f"Measured on {where['processor']}, {where['cores']} cores, by `{result['command']}`; the "
        "file is [results/few_states.json](results/few_states.json).",
        "",
        f"| family, columns | sequences × steps | {' | '.join(f'K = {k}' for k in STATES)} |",
        "|---|---|" + "---|" * len(STATES),
    ]
    for kind, n_columns in FAMILIES:
        for n_sequences, length in SHAPES:
            cells = []
            for n_states in STATES:
                key = (kind, n_columns, n_states, n_sequences)
                names = ("family", "columns", "states", "sequences")
                row = next((r for r in rows if tuple(r[n] for n in names) == key), None)
                cells.append(
                    "" if row is None else ", ".join(f"{row[f'faster_{n}']:.0f}" for n in cores)
                )
            lines.append(
                f"| {kind}, {n_columns} | {n_sequences:,} × {length:,} | {' | '.join(cells)} |"
            )
    for n in cores:
        ratios = [row[f"faster_{n}"] for row in rows]
        lines += [
            "",
            f"On {n} core{'s' * (n > 1)}: {np.median(ratios):.0f} times in the median, "
            f"{min(ratios):.1f} at least.",
        ]
    families = ", ".join(
        f"{row['family']} ({row['columns']}) {row['million_steps']}" for row in result["families"]
    )
    lines += ["", f"K = 20, 2,000 sequences of 100, million steps/s: {families}."]
    return "\n".join(lines)


def measure(arguments: list[str] | None = None) -> str:
    """Run everything, write results/few_states.json and the table in README.md; return it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--states", type=int, nargs="+", default=STATES)
    options = parser.parse_args(arguments)
    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    warnings.simplefilter("ignore", sj.FitWarning)
    result: dict[str, Any] = {
        "command": "python -m benchmarks.few_states",
        "hmmlearn": hmmlearn.__version__,
        "families": many_families(options.repeats),
        "one_iteration": [],
    }
    compare(options, result)
    table = readme_table(result)
    write_table("few states", table)
    return table


def main() -> None:
    """Measure, with a bar, and print the table."""
    with shown(SECONDS):
        table = measure()
    print_table(table)


if __name__ == "__main__":
    main()
