"""The CPU benchmark: against sgemm, against other libraries, end to end.

    make bench

Every figure is a ratio of two rates from the same run, because machines differ and are noisy; each
rate is the best of several repetitions that take turns with what it is compared with.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import sojourn as sj
from benchmarks.bar import done, print_table, shown
from benchmarks.readme import main as update_readme
from benchmarks.results import environment, machine, write_result, write_table
from sojourn.backends.cpu import CpuBackend
from sojourn.inference import COLLAPSED, Posterior, Problem, Schedule
from sojourn.inference.local import expected_statistics, prepare
from sojourn.inference.step import step
from sojourn.kernels import Potentials, cpu
from sojourn.kernels.threads import available_cores
from sojourn.sources import MemorySource
from sojourn.transitions import Dirichlet

HERE = Path(__file__).parent
ROOT = HERE.parent
PEERS_VENV = ROOT / ".venv-peers"
STATES = (8, 16, 45, 100, 256)
PART_SECONDS = {"sgemm": 5, "fit": 6, "vocabulary": 3, "start": 6, "peers": 120}
"""About how long a row, or a part without rows, takes on two quiet cores, for the bar."""
SECONDS = 5 * PART_SECONDS["sgemm"] + sum(
    PART_SECONDS[part] for part in ("fit", "vocabulary", "start", "peers")
)
BACKEND = CpuBackend(cpu, available_cores())
SPELL = 0.05  # seconds for which a function is called again and again


def best(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Time functions in turns, and keep the shortest time of each, in seconds."""
    times = dict.fromkeys(functions, np.inf)
    for function in functions.values():
        function()  # compilation and caches
    for _ in range(repeats):
        for name, function in functions.items():
            time.sleep(0.1)  # BLAS threads spin for a while after a product
            until = time.perf_counter() + SPELL  # a pause cools caches and clocks down
            while (before := time.perf_counter()) < until:
                function()
                times[name] = min(times[name], time.perf_counter() - before)
    return times


def random_posterior(n_states: int, n_symbols: int, seed: int = 0) -> Posterior:
    """Draw expected counts like those of a fitted model."""
    rng = np.random.default_rng(seed)
    statistics = sj.Statistics(
        rng.exponential(10.0, n_states),
        rng.exponential(10.0, (n_states, n_states)),
        rng.standard_exponential((n_symbols, n_states), dtype=np.float32).T,
    )
    return Posterior.from_statistics(statistics, Dirichlet.make(n_states, 0.1, 0.1), "float32")


def equal_lengths(n_sequences: int, length: int, n_symbols: int) -> sj.Sequences:
    """Draw uniform symbols in sequences of one length."""
    symbols = np.random.default_rng(1).integers(n_symbols, size=n_sequences * length)
    offsets = np.arange(n_sequences + 1) * length
    return sj.Sequences(symbols.astype(np.int32), offsets)


def sentences(n_sequences: int, n_symbols: int, seed: int = 2) -> sj.Sequences:
    """Draw sequences with the lengths of English sentences (mean 22) and Zipf's frequencies."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.negative_binomial(3, 3 / (3 + 21), n_sequences) + 1, 1, 120)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ranks = np.exp(rng.random(offsets[-1]) * np.log(n_symbols)) - 1
    return sj.Sequences(np.minimum(ranks, n_symbols - 1).astype(np.int32), offsets)


def e_step(posterior: Posterior, family: sj.Categorical, batch: sj.Sequences) -> None:
    """Compute potentials, forward-backward and statistics of a batch."""
    expected_statistics(posterior, family, COLLAPSED, prepare(family, batch), BACKEND)


def against_sgemm(repeats: int) -> list[dict[str, float]]:
    """Share of sgemm's rate that an E-step reaches, counting 6 K² operations a time step."""
    square = np.random.default_rng(0).random((2048, 2048), dtype=np.float32)
    rows = []
    for n_states in STATES:
        batch = equal_lengths(2000 if n_states < 200 else 800, 20, 1000)
        posterior = random_posterior(n_states, 1000)
        family = sj.Categorical(1000)
        factors = Potentials(
            np.full(n_states, 1 / n_states, np.float32),
            np.full((n_states, n_states), 1 / n_states, np.float32),
            np.random.default_rng(0).random((1000, n_states), dtype=np.float32),
        )
        functions = {
            "sgemm": lambda: square @ square,
            "kernel": partial(
                cpu.forward_backward,
                factors,
                batch.values,
                batch.offsets,
                n_threads=BACKEND.n_threads,
            ),
            "e_step": partial(e_step, posterior, family, batch),
        }
        times = best(functions, repeats)
        sgemm = 2 * 2048**3 / times["sgemm"]
        work = 6 * n_states**2 * batch.n_steps
        rows.append(
            {
                "states": n_states,
                "sgemm_gflops": round(sgemm / 1e9, 1),
                "kernel_million_steps": round(batch.n_steps / times["kernel"] / 1e6, 3),
                "kernel_share": round(work / times["kernel"] / sgemm, 3),
                "e_step_million_steps": round(batch.n_steps / times["e_step"] / 1e6, 3),
                "e_step_share": round(work / times["e_step"] / sgemm, 3),
            }
        )
        print(rows[-1])
        done(PART_SECONDS["sgemm"], f"against sgemm, K = {n_states}")
    return rows


def against_peers(repeats: int, ours_beside_sgemm: float) -> dict[str, Any]:
    """One E-step at K = 45, V = 1000, sequences of 20, here and in other libraries."""
    python = PEERS_VENV / "bin" / "python"
    if not python.exists():
        print("setting up the environment of the other libraries ...")
        subprocess.run([sys.executable, "-m", "venv", str(PEERS_VENV)], check=True)
        requirements = HERE / "peers-requirements.txt"
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True)
    batch = equal_lengths(2000, 20, 1000)
    posterior, family = random_posterior(45, 1000), sj.Categorical(1000)

    def ours() -> float:
        times = best({"ours": partial(e_step, posterior, family, batch)}, repeats)
        return batch.n_steps / times["ours"]

    before = ours()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "peers.json"
        command = [python, HERE / "peers.py", "--states", 45, "--symbols", 1000, "--length", 20]
        command += ["--sequences", 2000, "--repeats", max(3, repeats // 4), "--out", out]
        _run_shown([str(part) for part in command])
        peers = json.loads(out.read_text())["peers"]
    # Ours is measured on both sides of the others and beside sgemm; as with them, the best
    # repetition of the run counts.
    rate = max(before, ours(), ours_beside_sgemm)
    table = {"sojourn": {"steps_per_second": round(rate), "version": sj.__version__}}
    for name, peer in peers.items():
        if "error" in peer:
            table[name] = {"error": peer["error"]}
            continue
        table[name] = {
            "version": peer["version"],
            "steps_per_second": round(peer["steps_per_second"]),
            "timed": peer["timed"],
            "ours_is_faster_by": round(rate / peer["steps_per_second"], 1),
        }
        print(name, table[name])
    done(PART_SECONDS["peers"], "other libraries")
    return table


def _run_shown(command: list[str]) -> None:
    """Run a command, and print what it says line by line: a bar may be there."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line.rstrip())
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def end_to_end(repeats: int) -> dict[str, float]:
    """One pass of `fit`, M = 1000, V = 50,000, beside the bare kernel on the same batches."""
    data = sentences(20_000, 50_000)
    model = sj.HMM(45, sj.Categorical(50_000), batch_size=1000, n_passes=1, random_state=0)
    model.fit(data[:2000])
    posterior = model.fitted_.posterior
    batches = list(MemorySource(data, 1000, 0).batches(0))
    prepared = []
    for batch in batches:
        rows = model.emission_.emission_rows(
            model.emission_.encode(batch),
            posterior.emissions,
            collapsed=True,
            dtype=np.float32,
            n_threads=BACKEND.n_threads,
        )
        start, matrix = (part.astype(np.float32) for part in posterior.counts)
        factors = Potentials(start / start.sum(), matrix / matrix.sum(1, keepdims=True), rows.table)
        prepared.append((factors, rows.index, batch.offsets))

    def bare() -> None:
        for arguments in prepared:
            cpu.forward_backward(*arguments, n_threads=BACKEND.n_threads)

    seconds = []
    kernel = np.inf
    bare()
    for _ in range(repeats):
        seconds.append(model.fit(data).history_[-1]["seconds"])
        kernel = min(kernel, best({"bare": bare}, 1)["bare"])
    done(PART_SECONDS["fit"], "fit end to end")
    return {
        "fit_million_steps": round(data.n_steps / min(seconds) / 1e6, 3),
        "kernel_million_steps": round(data.n_steps / kernel / 1e6, 3),
        "ratio": round(kernel / min(seconds), 3),
    }


def vocabulary_cost(repeats: int) -> dict[str, float]:
    """Time of a step at V = 1,000,000 over one at V = 1,000, on the same tokens."""
    data = sentences(5000, 1000)
    batches = list(MemorySource(data, 1000, 0).batches(0))
    schedule = Schedule(0.5, 1.0)

    def stepper(n_symbols: int) -> Callable[[], None]:
        posterior, family = random_posterior(45, n_symbols), sj.Categorical(n_symbols)

        problem = Problem(family, COLLAPSED, schedule, len(data))

        def run() -> None:
            for batch in batches:
                step(problem, posterior, prepare(family, batch), BACKEND)

        return run

    times = best({"small": stepper(1000), "large": stepper(1_000_000)}, repeats)
    done(PART_SECONDS["vocabulary"], "a large vocabulary")
    return {
        "milliseconds_at_1000": round(1e3 * times["small"] / len(batches), 3),
        "milliseconds_at_1000000": round(1e3 * times["large"] / len(batches), 3),
        "ratio": round(times["large"] / times["small"], 3),
    }


def start_up(repeats: int) -> dict[str, float]:
    """Seconds in a new process to import the package, to get an estimator, to make a first fit."""
    code = """
import time; begin = time.perf_counter()
import sojourn as sj; imported = time.perf_counter()
model = sj.HMM(2, sj.Categorical(2)); ready = time.perf_counter()
model.fit([[0, 1], [1, 0]]); fitted = time.perf_counter()
print(imported - begin, ready - imported, fitted - ready)
"""
    command, own = [sys.executable, "-c", code], environment()
    runs = [
        [float(x) for x in subprocess.check_output(command, env=own).split()]
        for _ in range(repeats)
    ]
    done(PART_SECONDS["start"], "a new process")
    names = ("import_sojourn", "first_estimator", "first_fit_with_cached_kernels")
    return {
        name: round(min(column), 3) for name, column in zip(names, np.transpose(runs), strict=True)
    }


def readme_table(result: dict[str, Any]) -> str:
    """Format the results for README.md."""
    where = machine()
    lines = [
        f"Measured on {where['processor']}, {where['cores']} cores, by `make bench`; "
        "the file is [results/cpu.json](results/cpu.json).",
        "",
        "| states K | sgemm, GFLOP/s | kernel, million steps/s | share of sgemm "
        "| E-step, million steps/s | share of sgemm |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['states']} | {row['sgemm_gflops']} | {row['kernel_million_steps']} "
        f"| {row['kernel_share']:.2f} | {row['e_step_million_steps']} | {row['e_step_share']:.2f} |"
        for row in result["against_sgemm"]
    ]
    lines += [
        "",
        "| library | steps/s | sojourn is faster by | what was timed |",
        "|---|---|---|---|",
    ]
    for name, row in result["against_peers"].items():
        if "error" in row:
            lines.append(f"| {name} | failed | | {row['error']} |")
        else:
            factor = row.get("ours_is_faster_by", "")
            timed = row.get("timed", "One E-step: potentials, forward-backward, statistics.")
            lines.append(
                f"| {name} {row['version']} | {row['steps_per_second']:,} | {factor} | {timed} |"
            )
    fit, vocabulary, start = (result[k] for k in ("end_to_end", "vocabulary_cost", "start_up"))
    lines += [
        "",
        f"- `fit`, one pass, M = 1000, V = 50,000: {fit['fit_million_steps']} million steps/s, "
        f"{fit['ratio']:.2f} of the bare kernel's {fit['kernel_million_steps']}.",
        f"- A step at V = 1,000,000 costs {vocabulary['ratio']:.2f} times one at V = 1,000 on the "
        f"same tokens ({vocabulary['milliseconds_at_1000000']} and "
        f"{vocabulary['milliseconds_at_1000']} ms).",
        f"- A new process: `import sojourn` {start['import_sojourn']} s, the first estimator "
        f"{start['first_estimator']} s more (scikit-learn, SciPy, numba), a first small fit with "
        f"cached kernels {start['first_fit_with_cached_kernels']} s.",
    ]
    return "\n".join(lines)


def measure(arguments: list[str] | None = None) -> str:
    """Run everything, write results/cpu.json and the table in README.md; return the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--no-peers", action="store_true", help="leave other libraries out")
    options = parser.parse_args(arguments)
    result = {
        "command": "make bench",
        "against_sgemm": against_sgemm(options.repeats),
        "end_to_end": end_to_end(options.repeats),
        "vocabulary_cost": vocabulary_cost(options.repeats),
        "start_up": start_up(3),
        "against_peers": {},
    }
    if options.no_peers:
        return readme_table(result)
    same_work = next(row for row in result["against_sgemm"] if row["states"] == 45)
    result["against_peers"] = against_peers(
        options.repeats, 1e6 * same_work["e_step_million_steps"]
    )
    write_result(HERE / "results" / "cpu.json", result)
    table = readme_table(result)
    write_table("cpu", table)
    update_readme()
    return table


def main() -> None:
    """Measure, with a bar, and print the table."""
    with shown(SECONDS):
        table = measure()
    print_table(table)


if __name__ == "__main__":
    main()
