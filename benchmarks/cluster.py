"""What a step costs on a cluster, and what a pass over more data would.

    make bench-cluster

Steps are timed on a cluster of this machine's own: a scheduler and one worker a core, over TCP on
loopback, with a vocabulary of 200,000 words.  A cost model is fitted to them and asked about 5
billion tokens on more workers than there are: a prediction, with the assumptions in
`docs/cluster.md`.  Held-out curves at equal data come from a single process, because the model does
not depend on the number of workers (`tests/backends/dask` holds it to that).
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

import sojourn as sj
from benchmarks.results import machine, write_result
from sojourn.backends.dask import work
from sojourn.backends.dask.batches import GROUP_BYTES, PART_STEPS
from sojourn.backends.dask.client import FAN_IN, Cluster
from sojourn.kernels.interface import padded_states
from sojourn.sources.generate import generate

HERE = Path(__file__).parent
RESULT = HERE / "results" / "cluster.json"
DOCS = HERE.parent / "docs" / "cluster.md"
N_SYMBOLS = 200_000
N_SEQUENCES = 2**18
MEAN_LENGTH = 22.0
N_HELD_OUT = 2_000
STATES = {45: (1024, 4096, 16384, 65536), 100: (1024, 4096, 16384, 65536), 256: (1024, 4096, 16384)}
SKIPPED, COUNTED = 1, 4  # steps of a fit that are not timed, and those that are
TOKENS = 5e9
WORKERS = (10, 100, 1000)
GIGABIT = 1e9 / 8
ASSUMED_NETWORK = 10 * GIGABIT  # bytes a second on every link
WORK = ("load", "take", "rows_needed", "part_statistics")


class Enough(Exception):  # noqa: N818
    """Ends a fit when there are enough steps."""


# ---- the cost model -----------------------------------------------------------------------------


def words_present(n_tokens: float) -> float:
    """Expect so many different words in a sample of the corpus: Zipf's law, as it was drawn."""
    frequencies = 1.0 / (np.arange(N_SYMBOLS) + 2.7)
    return float(-np.expm1(-n_tokens * frequencies / frequencies.sum()).sum())


def row_bytes(n_tokens: float, n_states: int) -> float:
    """Bytes of the emission rows of the words present, in single precision."""
    return 4.0 * padded_states(n_states) * words_present(n_tokens)


def n_parts(n_tokens: float) -> int:
    """Parts of a minibatch."""
    return max(1, math.ceil(n_tokens / PART_STEPS))


def tree_sizes(n: int) -> list[int]:
    """How many sums each level of the tree makes."""
    sizes = []
    while n > 1:
        n = -(-n // FAN_IN)
        sizes.append(n)
    return sizes


def n_tasks(n_tokens: float) -> float:
    """Tasks of a step: loading, gathering, symbols, the local step, and two trees."""
    parts = n_parts(n_tokens)
    loads = n_tokens * (4 + 8 / MEAN_LENGTH) / GROUP_BYTES
    return loads + 3 * parts + 2 * sum(tree_sizes(parts))


def critical_bytes(n_tokens: float, n_states: int, n_workers: int) -> float:
    """Bytes of a step that must pass through some link one after another.

    The potentials go to a first worker, and are then known to twice as many each time.  In the
    tree a worker takes in the other children of its sum, level by level.
    """
    out = row_bytes(n_tokens, n_states) * (1 + math.ceil(math.log2(max(1, n_workers))))
    back, covered = row_bytes(n_tokens, n_states), n_tokens
    for _ in tree_sizes(n_parts(n_tokens)):
        covered /= FAN_IN
        back += (FAN_IN - 1) * row_bytes(max(covered, PART_STEPS), n_states)
    return out + back


def compute_seconds(model: dict[str, Any], n_tokens: float, n_states: int, n_workers: int) -> float:
    """Time of the workers' own work, when it is shared among them."""
    busy = min(n_workers, n_parts(n_tokens))
    return float(model["token_seconds"][str(n_states)] * n_tokens / busy)


def step_seconds(
    model: dict[str, Any], n_tokens: float, n_states: int, n_workers: int
) -> dict[str, float]:
    """Predict the parts of a step's time."""
    link = critical_bytes(n_tokens, n_states, n_workers)
    return {
        "compute": compute_seconds(model, n_tokens, n_states, n_workers),
        "tasks": model["step_seconds"] + model["task_seconds"] * n_tasks(n_tokens),
        "moving": model["byte_seconds"] * link,
        "network": link / ASSUMED_NETWORK,
    }


def fit_cost_model(
    steps: list[dict[str, Any]], task_seconds: float, n_workers: int
) -> dict[str, Any]:
    """Fit seconds a step and a byte to what is left beside the measured work and tasks.

    None is below zero, and errors count as shares, because steps differ a hundredfold.
    """
    model: dict[str, Any] = {"token_seconds": {}, "task_seconds": float(f"{task_seconds:.4g}")}
    for n_states in STATES:
        own = [step for step in steps if step["states"] == n_states]
        seconds, tokens = (sum(step[key] for step in own) for key in ("work_seconds", "tokens"))
        model["token_seconds"][str(n_states)] = float(f"{seconds / tokens:.4g}")
    seconds = np.array([step["seconds"] for step in steps])
    sizes = [(step["tokens"], step["states"], n_workers) for step in steps]
    compute = np.array([compute_seconds(model, *size) for size in sizes])
    known = compute + np.array([task_seconds * n_tasks(size[0]) for size in sizes])
    columns = np.array([[1.0, critical_bytes(*size)] for size in sizes])
    coefficients, _ = nnls(columns / seconds[:, None], np.maximum(1 - known / seconds, 0.0))
    for name, value in zip(("step_seconds", "byte_seconds"), coefficients, strict=True):
        model[name] = float(f"{value:.4g}")
    errors = np.abs((known + columns @ coefficients) / seconds - 1)
    model["mean_error"] = round(float(errors.mean()), 3)
    model["largest_error"] = round(float(errors.max()), 3)
    return model


def predictions(model: dict[str, Any]) -> list[dict[str, Any]]:
    """Predict a pass over `TOKENS` tokens, with four parts a worker in each minibatch."""
    rows = []
    for n_states in STATES:
        for n_workers in WORKERS:
            n_tokens = 4.0 * PART_STEPS * n_workers
            parts = step_seconds(model, n_tokens, n_states, n_workers)
            n_steps = math.ceil(TOKENS / n_tokens)
            rows.append(
                {
                    "states": n_states,
                    "workers": n_workers,
                    "tokens_a_step": round(n_tokens),
                    "steps": n_steps,
                    "hours": float(f"{n_steps * sum(parts.values()) / 3600:.3g}"),
                    "shares": {
                        name: round(value / sum(parts.values()), 3) for name, value in parts.items()
                    },
                }
            )
    return rows


def quiet_network(model: dict[str, Any]) -> list[dict[str, Any]]:
    """Find the minibatch from which the network takes less than a tenth of the computation.

    It has at least a part for every worker.
    """
    rows = []
    for n_states in STATES:
        for n_workers in WORKERS[:2]:
            found: dict[str, Any] = {"states": n_states, "workers": n_workers}
            for gigabits in (1, 10):
                n_tokens = float(PART_STEPS * n_workers)  # a part for each of them
                while n_tokens < TOKENS:
                    link = critical_bytes(n_tokens, n_states, n_workers) / (gigabits * GIGABIT)
                    parts = step_seconds(model, n_tokens, n_states, n_workers)
                    if link < 0.1 * parts["compute"]:
                        break
                    n_tokens *= 2**0.25
                found[f"tokens_at_{gigabits}_gbit"] = round(n_tokens, -3)
            rows.append(found)
    return rows


# ---- measuring ----------------------------------------------------------------------------------


def loopback_bytes() -> int | None:
    """Bytes that went over the loopback interface so far."""
    path = Path("/proc/net/dev")
    if not path.exists():
        return None
    for line in path.read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[0])
    return None


def measure_task(client: Any, n: int = 1000) -> float:
    """Time tasks that do nothing: what client, scheduler and workers need for each."""
    cluster = Cluster(client)
    best = math.inf
    for _ in range(3):
        before = time.perf_counter()
        futures = [cluster.call(work.union, [None]) for _ in range(n)]
        cluster.results(futures)
        best = min(best, time.perf_counter() - before)
    return best / n


def seconds_by_task(client: Any, begin: float) -> tuple[Counter[str], Counter[str]]:
    """Return the seconds that tasks took since, by function, and what workers did besides."""
    seconds: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for task in client.get_task_stream(start=begin):
        name = str(task["key"]).rpartition("-")[0]
        name = next((kind for kind in (*WORK, "add", "union") if name.startswith(kind)), name)
        for part in task["startstops"]:
            where = seconds if part["action"] == "compute" else others
            where[name if part["action"] == "compute" else part["action"]] += (
                part["stop"] - part["start"]
            )
    return seconds, others


def measure_steps(client: Any, corpus: Path, n_states: int, batch_size: int) -> dict[str, Any]:
    """Time some steps of a fit on the cluster."""
    marks: list[tuple[float, int, int | None, float]] = []

    def callback(progress: sj.Progress) -> None:
        if marks and progress.steps == marks[-1][1]:
            return  # the end of a pass
        marks.append((progress.seconds, progress.steps, loopback_bytes(), time.time()))
        if len(marks) > SKIPPED + COUNTED:
            raise Enough

    model = sj.HMM(
        n_states, sj.Categorical(N_SYMBOLS), batch_size=batch_size, n_passes=4, random_state=0
    )
    with suppress(Enough):
        model.fit(corpus, client=client, callback=callback)
    counted = marks[SKIPPED:]
    n = len(counted) - 1
    seconds = np.diff([mark[0] for mark in counted])
    tokens = (counted[-1][1] - counted[0][1]) / n
    done, others = seconds_by_task(client, counted[0][3])
    sent = None
    if counted[0][2] is not None and counted[-1][2] is not None:
        sent = round((counted[-1][2] - counted[0][2]) / n)
    step = {
        "states": n_states,
        "batch_size": batch_size,
        "tokens": round(tokens),
        "parts": n_parts(tokens),
        "tasks": round(n_tasks(tokens), 1),
        "seconds": round(float(np.median(seconds)), 4),
        "work_seconds": round(sum(done[name] for name in WORK) / n, 4),
        "sum_seconds": round((done["add"] + done["union"]) / n, 4),
        "transfer_seconds": round(others["transfer"] / n, 4),
        "bytes": sent,
        "row_bytes": round(row_bytes(tokens, n_states)),
    }
    print(step, flush=True)
    return step


def measure_curves(corpus: Path, held_out: Path, n_passes: int) -> list[dict[str, Any]]:
    """Learn with several batch sizes and rates, and score held-out data at equal data."""
    validation = sj.open(held_out).read_all()
    data = sj.open(corpus).read_all()
    rows = []
    for batch_size in (1024, 4096, 16384, 65536):
        for rate in (0.5, 0.7, 0.9):
            model = sj.HMM(
                45,
                sj.Categorical(N_SYMBOLS),
                batch_size=batch_size,
                n_passes=n_passes,
                forgetting_rate=rate,
                random_state=0,
            )
            every = max(1, math.ceil(len(data) / 4 / batch_size))
            model.fit(data, validation=validation, validation_every=every)
            rows.append(
                {
                    "batch_size": batch_size,
                    "forgetting_rate": rate,
                    "curve": [
                        [round(entry["passes"], 3), round(entry["score"], 4)]
                        for entry in model.history_
                    ],
                    "after_one_pass": _score_at(model, 1.0),
                    "at_the_end": round(model.history_[-1]["score"], 4),
                }
            )
            print({key: value for key, value in rows[-1].items() if key != "curve"}, flush=True)
    return rows


def _score_at(model: Any, passes: float) -> float:
    scores = [entry["score"] for entry in model.history_ if entry["passes"] <= passes + 1e-9]
    return round(scores[-1], 4)


def measure(folder: Path, n_sequences: int, n_passes: int) -> dict[str, Any]:
    """Draw a corpus, time the steps, fit the model, and learn the curves."""
    from distributed import Client, LocalCluster

    corpus = generate(folder / "corpus.parquet", n_sequences=n_sequences, n_held_out=N_HELD_OUT)
    cores = machine()["cores"]
    with (
        LocalCluster(n_workers=cores, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.get_task_stream()  # the scheduler takes notes from now on
        measure_steps(client, corpus, 45, 4096)  # workers load their kernels
        a_task = measure_task(client)
        steps = [
            measure_steps(client, corpus, n_states, batch_size)
            for n_states, sizes in STATES.items()
            for batch_size in sizes
        ]
    model = fit_cost_model(steps, a_task, cores)
    return {
        "symbols": N_SYMBOLS,
        "sentences": n_sequences,
        "workers": cores,
        "steps": steps,
        "model": model,
        "prediction": {
            "tokens": TOKENS,
            "network_bytes_a_second": ASSUMED_NETWORK,
            "passes": predictions(model),
        },
        "quiet_network": quiet_network(model),
        "curves": measure_curves(corpus, corpus.with_suffix(".held-out.parquet"), n_passes),
    }


# ---- the tables in the documentation ------------------------------------------------------------


def tables(result: dict[str, Any]) -> str:
    """Say in Markdown what was measured and what is predicted."""
    m, model = result["machine"], result["model"]
    lines = [
        f"Measured on {m['processor']}, {m['cores']} cores, {result['date']}: {result['workers']} "
        f"workers with one thread, V = {result['symbols']:,}, by `make bench-cluster` "
        "([file](../benchmarks/results/cluster.json)).",
        "",
        "| K | batch size | tokens per step | parts | seconds per step | of which work, per worker "
        "| MB over the wire | MB of rows |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for step in result["steps"]:
        wire = "" if step["bytes"] is None else f"{step['bytes'] / 1e6:.1f}"
        lines.append(
            f"| {step['states']} | {step['batch_size']:,} | {step['tokens']:,} | {step['parts']} "
            f"| {step['seconds']:.3f} | {step['work_seconds'] / result['workers']:.3f} | {wire} "
            f"| {step['row_bytes'] / 1e6:.1f} |"
        )
    shares = [
        f"{1e3 * model['step_seconds']:.2f} ms per step",
        f"{1e9 * model['byte_seconds']:.2f} ns per byte on the longest path",
    ]
    lines += [
        "",
        f"An empty task takes {1e3 * model['task_seconds']:.2f} ms. Fitted to the time "
        f"that work and tasks leave: {' and '.join(shares)}. The model is off by "
        f"{model['mean_error']:.0%} on average and by {model['largest_error']:.0%} at most on "
        "these steps.",
        "",
        f"**Prediction** for one pass over {result['prediction']['tokens'] / 1e9:.0f} billion "
        "tokens, with one core per worker as above, 10 Gbit/s links and minibatches of four "
        "parts per worker:",
        "",
        "| K | workers | tokens per step | steps | hours | compute | tasks | copying | network |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in result["prediction"]["passes"]:
        share = " | ".join(f"{value:.0%}" for value in row["shares"].values())
        lines.append(
            f"| {row['states']} | {row['workers']:,} | {row['tokens_a_step']:,} | {row['steps']:,} "
            f"| {row['hours']:g} | {share} |"
        )
    lines += [
        "",
        "Tokens per minibatch from which on the links take less than a tenth of the computing "
        "time:",
        "",
        "| K | workers | 1 Gbit/s | 10 Gbit/s |",
        "|---:|---:|---:|---:|",
    ]
    for row in result["quiet_network"]:
        ends = [
            "never" if row[key] >= TOKENS else f"{row[key] / 1e6:,.1f} million"
            for key in ("tokens_at_1_gbit", "tokens_at_10_gbit")
        ]
        lines.append(f"| {row['states']} | {row['workers']} | {ends[0]} | {ends[1]} |")
    return "\n".join(lines)


def curve_table(result: dict[str, Any]) -> str:
    """Say in Markdown how well batch sizes and rates learn at equal data."""
    curves = result["curves"]
    rates = sorted({row["forgetting_rate"] for row in curves})
    last = curves[0]["curve"][-1][0]
    lines = [
        f"Held-out log likelihood per token, K = 45, {result['sentences']:,} sentences, after one "
        f"pass and after {last:g}:",
        "",
        "| batch size | " + " | ".join(f"rate {rate:g}" for rate in rates) + " |",
        "|---:|" + "---:|" * len(rates),
    ]
    for batch_size in sorted({row["batch_size"] for row in curves}):
        own = {row["forgetting_rate"]: row for row in curves if row["batch_size"] == batch_size}
        cells = (f"{own[r]['after_one_pass']:.3f}, {own[r]['at_the_end']:.3f}" for r in rates)
        lines.append(f"| {batch_size:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


REGIONS = {"costs": tables, "curves": curve_table}


def fill(text: str, result: dict[str, Any]) -> str:
    """Put the tables between their markers."""
    for name, make in REGIONS.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{make(result)}\n{end}{after}"
    return text


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=N_SEQUENCES, help="sentences")
    parser.add_argument("--passes", type=int, default=3, help="passes of the held-out curves")
    parser.add_argument("--out", type=Path, default=RESULT, help="result file")
    options = parser.parse_args()
    before = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(Path(folder), options.size, options.passes)
    measured["benchmark_seconds"] = round(time.perf_counter() - before)
    write_result(options.out, measured)
    if options.out == RESULT:
        DOCS.write_text(fill(DOCS.read_text(), json.loads(options.out.read_text())))


if __name__ == "__main__":
    main()
