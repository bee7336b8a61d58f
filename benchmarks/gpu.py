"""The GPU benchmark: rates end to end, the paper's size, many states, and where the time goes.

    make bench-gpu

Sentences are drawn from a hidden Markov model with the look of English (22 words on average, words
distributed as Zipf says).  Rates count whole steps: gather, kernels and updates.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sojourn as sj
from benchmarks.results import write_result
from sojourn.backends.cuda import graphs
from sojourn.kernels import Potentials, cuda, reference
from sojourn.kernels.cuda import recursions, settings
from sojourn.kernels.threads import available_cores
from sojourn.sequences import Sequences
from sojourn.sources.base import joined
from sojourn.sources.generate import Truth, draw_sentences, draw_truth

RESULT = Path(__file__).parent / "results" / "gpu.json"
STATES, SYMBOLS = 45, 50_000
GROUPS = {
    "minibatch": ("load_minibatch",),
    "potentials": ("row_potentials", "means_of_symbols"),
    "recursions": ("_chains",),
    "responsibilities and pairs": ("combine",),
    "sum of pairs": ("sum_pairs", "gather_tiles", "gather_spans", "gemm"),
    "sums of pieces": ("sum_pieces",),
    "counts, masses, log Z, decay": ("decay", "collect"),
    "sums by symbol, table": ("sum_segments", "sum_columns", "add_rows"),
}
REST = "others"
# What makes a window, while the device is at work on the one before; and copies of the whole run.
PLANNING = (
    *("gather_sequences", "make_keys", "mark_", "write_steps"),
    *("sort", "Sort", "scan", "Scan", "Memcpy", "Memset", "at::native"),
)


def _draw(job: tuple[Truth, int, int]) -> Sequences:
    return joined(list(draw_sentences(*job)))


def draw(truth: Truth, n_sequences: int, seed: int) -> Sequences:
    """Draw sentences on all cores."""
    n_jobs = available_cores()
    jobs = [(truth, -(-n_sequences // n_jobs), seed + job) for job in range(n_jobs)]
    with ProcessPoolExecutor(n_jobs) as pool:
        return joined(list(pool.map(_draw, jobs)))[:n_sequences]


def seconds(run: Callable[[], Any], repeats: int = 5) -> float:
    """Time something on the device, the best of several."""
    run()
    shortest = np.inf
    for _ in range(repeats):
        torch.cuda.synchronize()
        before = time.perf_counter()
        run()
        torch.cuda.synchronize()
        shortest = min(shortest, time.perf_counter() - before)
    return shortest


def replayed(run: Callable[[], Any]) -> float:
    """Time something on the device, recorded and replayed as steps of training are."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()  # compiles
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return seconds(graph.replay)


def steady(passes: list[float]) -> float:
    """Return the seconds of a pass in the middle.

    The first may compile, and the last has no next one to prepare.
    """
    return float(np.median(passes[1:-1]))


def fit(
    data: Sequences, *, kind: Any = sj.HMM, validation: Any = None, **options: Any
) -> tuple[Any, list[float], float]:
    """Fit a model; seconds of each pass, and of the whole call."""
    settings = {"n_states": STATES, "batch_size": 1000, "device": "cuda", "random_state": 0}
    settings |= {"moves": None}  # the algorithm of the paper
    model = kind(
        emission=sj.Categorical(n_symbols=SYMBOLS, concentration=0.1), **(settings | options)
    )
    before = time.perf_counter()
    model.fit(data, validation=validation)
    whole = time.perf_counter() - before
    passes = np.diff([0.0, *(entry["seconds"] for entry in model.history_)])
    return model, passes.tolist(), whole


def exactness() -> dict[str, float]:
    """Compare expected counts of a minibatch with the float64 reference, the worst of all ways."""
    worst: dict[str, float] = {}
    usual = recursions.TILED
    # As many sequences are worked on, and as few; and more states.
    for n_states, recursions.TILED in ((STATES, 0), (STATES, usual), (100, usual), (256, usual)):
        truth = draw_truth(n_states, SYMBOLS, 1)
        data = joined(list(draw_sentences(truth, 200, 1)))
        table = np.ascontiguousarray(truth.emissions.T)
        exact = reference.forward_backward(
            Potentials(truth.start, truth.transitions, table), data.values, data.offsets
        )
        tensors = (truth.start.astype(np.float32), truth.transitions.astype(np.float32), table)
        found = cuda.forward_backward(
            Potentials(*(torch.from_numpy(part).cuda() for part in tensors)),
            torch.from_numpy(data.values).cuda(),
            torch.from_numpy(data.offsets).cuda(),
        )
        for name, a, b in zip(found._fields[:4], found[:4], exact[:4], strict=True):
            error = float(np.abs(a.cpu().numpy() - b).max() / np.abs(b).max())
            worst[name] = max(error, worst.get(name, 0.0))
    return worst


def rates(data: Sequences) -> list[dict[str, Any]]:
    """Measure steps a second, updates included, for several minibatches and states.

    Five hundred updates are a pass, as the device waits for the host between passes.
    """
    rows = []
    sizes = ((STATES, 1000), (STATES, 10_000), (20, 1000), (100, 1000), (256, 1000))
    for n_states, batch_size in sizes:
        own = data[: 500 * batch_size]
        _, passes, _ = fit(own, n_states=n_states, batch_size=batch_size, n_passes=9)
        rows.append(
            {
                "states": n_states,
                "batch_size": batch_size,
                "sentences": len(own),
                "million_steps": own.n_steps / steady(passes) / 1e6,
            }
        )
        print(rows[-1], flush=True)
    return rows


def alternatives(data: Sequences) -> dict[str, float]:
    """Measure what single decisions are worth, K=45 and M=1000, in million steps a second."""
    found = {}
    takes = graphs.Recorder.takes
    graphs.Recorder.takes = lambda self, batch: False  # type: ignore[method-assign]
    _, passes, _ = fit(data[:50_000], n_passes=3)
    found["launched one by one"] = data[:50_000].n_steps / steady(passes) / 1e6
    graphs.Recorder.takes = takes  # type: ignore[method-assign]
    settings.SUMS = "atomic"
    for batch_size in (1000, 10_000):
        _, passes, _ = fit(data, n_passes=6, batch_size=batch_size)
        found[f"atomic sums, M={batch_size}"] = data.n_steps / steady(passes) / 1e6
    settings.SUMS = "sorted"
    print(found, flush=True)
    return found


def time_of_a_step(data: Sequences, batch_size: int) -> dict[str, Any]:
    """Say where the time of a step goes: kernels by group, and gaps between them."""
    fit(data, batch_size=batch_size, n_passes=1)
    n_steps = len(data) // batch_size
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        fit(data, batch_size=batch_size, n_passes=4)
    ranges = sorted(
        (event.time_range.end, event.time_range.start, event.name)
        for event in profile.events()
        if event.device_type == torch.autograd.DeviceType.CUDA  # others are of the host
    )
    # The second and third pass: the first waits for its window, and the last makes no next one.
    begins = sorted(start for _, start, name in ranges if "load_minibatch" in name)
    first, last = begins[n_steps + 1], begins[3 * n_steps + 1]
    groups = dict.fromkeys((*GROUPS, REST), 0.0)
    planning, done = 0.0, first
    for end, start, name in ranges:
        if not first <= start < last:
            continue
        if any(key in name for key in PLANNING):
            planning += end - start
            continue
        group = next((own for own, keys in GROUPS.items() if any(k in name for k in keys)), REST)
        # A kernel is launched while the one before runs, and recursions run beside each other.
        groups[group] += max(0.0, end - max(start, done))
        done = max(end, done)
    groups = {name: time / (2 * n_steps) for name, time in groups.items()}
    _, passes, _ = fit(data, batch_size=batch_size, n_passes=9)
    whole = steady(passes) / n_steps * 1e6
    row_bytes = 4 * 48 * data.n_steps / n_steps
    print(batch_size, groups, whole, flush=True)
    return {
        "batch_size": batch_size,
        "microseconds": groups,
        "whole_step_microseconds": whole,
        "gaps_microseconds": max(0.0, whole - sum(groups.values())),
        "planning_beside_microseconds": planning / (2 * n_steps),
        # α, e and v written and read, responsibilities written and read, potentials read twice.
        "bytes_of_messages": 10 * row_bytes,
    }


def many_states() -> list[dict[str, Any]]:
    """Measure forward-backward for many states against the device's own matrix products."""
    side = 8192
    a, b = torch.randn(2, side, side, device="cuda")
    rows = []
    for precision in ("highest", "high"):
        torch.set_float32_matmul_precision(precision)
        peak = 2 * side**3 / seconds(lambda: a @ b) / 1e12
        for n_states, n_sequences in itertools.product((256, 512, 1024), (1000, 10_000)):
            truth = draw_truth(n_states, 2000, 0)
            data = joined(list(draw_sentences(truth, n_sequences, 0)))
            arrays = (truth.start, truth.transitions, np.ascontiguousarray(truth.emissions.T))
            potentials = Potentials(*(torch.from_numpy(p.astype("f4")).cuda() for p in arrays))
            index, offsets = (torch.from_numpy(p).cuda() for p in (data.values, data.offsets))
            order = torch.argsort(offsets.diff(), descending=True, stable=True)
            step = partial(cuda.forward_backward, potentials, index, offsets, order=order)
            taken = replayed(step)
            rate = 6 * n_states**2 * data.n_steps / taken / 1e12
            rows.append(
                {
                    "states": n_states,
                    "sequences": n_sequences,
                    "precision": "single" if precision == "highest" else "tf32",
                    "teraflops": rate,
                    "matrix_product_teraflops": peak,
                    "share": rate / peak,
                    "million_steps": data.n_steps / taken / 1e6,
                }
            )
            print(rows[-1], flush=True)
    torch.set_float32_matmul_precision("highest")
    return rows


def precision_effect(data: Sequences, held_out: Sequences) -> list[dict[str, Any]]:
    """Compare held-out likelihood with products in single precision and in tf32."""
    rows = []
    for n_states in (100, 200):
        for precision in ("highest", "high"):
            torch.set_float32_matmul_precision(precision)
            model, passes, _ = fit(data, n_states=n_states, n_passes=2, validation=held_out)
            torch.set_float32_matmul_precision("highest")
            rows.append(
                {
                    "states": n_states,
                    "precision": "single" if precision == "highest" else "tf32",
                    "held_out": model.history_[-1]["score"],
                    "million_steps": data.n_steps / min(passes) / 1e6,
                }
            )
            print(rows[-1], flush=True)
    return rows


def long_sequences() -> list[dict[str, Any]]:
    """Run sequences of 100,000 steps."""
    rows = []
    rng = np.random.default_rng(0)
    for n_states in (45, 512):
        data = Sequences.from_lengths(rng.integers(0, 500, 400_000), [100_000] * 4)
        options = {"n_states": n_states, "batch_size": 4, "n_passes": 2}
        _, passes, _ = fit(data, **options)
        rows.append(
            {
                "states": n_states,
                "length": 100_000,
                "million_steps": data.n_steps / min(passes) / 1e6,
                "gigabytes": torch.cuda.max_memory_allocated() / 1e9,
            }
        )
        print(rows[-1], flush=True)
    return rows


def paper_size(data: Sequences, held_out: Sequences, n_passes: int) -> dict[str, Any]:
    """Learn from the paper's number of sentences, SCVI and SCVI-HDP, and beside it on the CPU."""
    for kind in (sj.HMM, sj.HDPHMM):
        fit(data[:300_000], kind=kind, n_passes=2, validation=held_out)  # compiles
    _, passes, whole = fit(data, n_passes=3)
    found: dict[str, Any] = {
        "sentences": len(data),
        "tokens": data.n_steps,
        "scvi_pass_seconds": passes,
        "scvi_whole_call_seconds": whole,
    }
    print(found, flush=True)
    model, passes, whole = fit(data, kind=sj.HDPHMM, n_passes=n_passes, validation=held_out)
    found |= {
        "hdp_pass_seconds": passes,
        "hdp_seconds": sum(passes),
        "hdp_whole_call_seconds": whole,
        "hdp_held_out": [entry["score"] for entry in model.history_],
    }
    print(found, flush=True)
    model, passes, _ = fit(data, kind=sj.HDPHMM, n_passes=2, validation=held_out, device="cpu")
    found |= {
        "cpu_hdp_pass_seconds": passes,
        "cpu_hdp_held_out": [entry["score"] for entry in model.history_],
    }
    print(found, flush=True)
    return found


def paper_size_moves(data: Sequences) -> dict[str, Any]:
    """Learn from as much data with moves on the number of states, once all is compiled."""
    options: dict[str, Any] = {"kind": sj.HDPHMM, "n_passes": 10, "moves": "auto"}
    fit(data[:300_000], **options)  # compiles
    model, passes, whole = fit(data, **options)
    found = {
        "sentences": len(data),
        "states": model.n_states_,
        "pass_seconds": passes,
        "move_seconds": sum(entry["move_seconds"] for entry in model.history_),
        "whole_call_seconds": whole,
    }
    print(found, flush=True)
    return found


def learned(data: Sequences) -> dict[str, float]:
    """Measure what it costs to learn priors and stickiness, in million steps a second."""
    ways: dict[str, dict[str, Any]] = {
        "HMM, tuned": {"tuned": True},
        "HMM, learned stickiness": {"stickiness": "learned"},
        "HDPHMM": {"kind": sj.HDPHMM},
        "HDPHMM, tuned": {"kind": sj.HDPHMM, "tuned": True},
        "HDPHMM, learned stickiness": {"kind": sj.HDPHMM, "stickiness": "learned"},
    }
    found = {}
    for name, options in ways.items():
        _, passes, _ = fit(data, n_passes=5, **options)
        found[name] = data.n_steps / steady(passes) / 1e6
        print(name, found[name], flush=True)
    return found


def families(n_sequences: int) -> list[dict[str, Any]]:
    """Measure steps a second, updates included, for families of numbers.

    Sequences of 100 steps, 20 states.
    """
    rng, length, n_states = np.random.default_rng(0), 100, 20
    states = np.repeat(rng.integers(0, n_states, n_sequences), length)
    level = rng.normal(size=(n_states, 10))
    reals = level[states] + rng.normal(size=(len(states), 10))
    data = {
        "Categorical": (sj.Categorical(1000), rng.integers(0, 1000, len(states))),
        "Poisson": (sj.Poisson(), rng.poisson(np.exp(0.5 * level + 1.0)[states, :4])),
        "Bernoulli": (sj.Bernoulli(), reals > 0.0),
        "DiagonalGaussian": (sj.DiagonalGaussian(), reals),
        "Gaussian": (sj.Gaussian(), reals),
        "AutoregressiveGaussian": (sj.AutoregressiveGaussian(), reals),
    }
    rows = []
    for name, (emission, values) in data.items():
        sequences = Sequences.from_lengths(
            values if name == "Categorical" else values.astype(np.float64), [length] * n_sequences
        )
        for batch_size in (1000, 10_000):
            model = sj.HMM(
                n_states, emission, batch_size=batch_size, n_passes=6, random_state=0, moves=None,
                device="cuda", init="segments",
            )  # fmt: skip
            entries = model.fit(sequences).history_
            passes = np.diff([0.0, *(entry["seconds"] for entry in entries)])
            rate = sequences.n_steps / steady(passes.tolist())
            columns = 1 if values.ndim == 1 else values.shape[1]
            rows.append(
                {
                    "family": name,
                    "columns": columns,
                    "states": n_states,
                    "batch_size": batch_size,
                    "million_steps": rate / 1e6,
                }
            )
            print(rows[-1], flush=True)
    return rows


FIRST_FIT = """
import sys, warnings
import torch
import sojourn as sj
from benchmarks.gpu import STATES, SYMBOLS, draw_sentences, draw_truth, fit, joined

warnings.simplefilter("ignore")
data = joined(list(draw_sentences(draw_truth(STATES, SYMBOLS, 0), 20_000, 1)))
torch.zeros(1, device="cuda")
moves = "auto" if sys.argv[2] == "moves" else None
print(fit(data, kind=getattr(sj, sys.argv[1]), n_passes=10, moves=moves)[2])
"""


def first_fits() -> dict[str, float]:
    """Time a first fit in a new process without any compiled code, K=45, seconds of `fit`."""
    found = {}
    for kind, moves in (("HMM", "none"), ("HDPHMM", "none"), ("HDPHMM", "moves")):
        with tempfile.TemporaryDirectory() as folder:
            own = {"TRITON_CACHE_DIR": f"{folder}/triton", "NUMBA_CACHE_DIR": f"{folder}/numba"}
            run = subprocess.run(
                [sys.executable, "-c", FIRST_FIT, kind, moves],
                env=os.environ | own,
                stdout=subprocess.PIPE,
                check=True,
                text=True,
            )
        name = kind if moves == "none" else f"{kind} with moves"
        found[name] = float(run.stdout.split()[-1])
        print("first fit", name, found[name], flush=True)
    return found


def moves(n_few: int, n_many: int) -> dict[str, Any]:
    """Find the number of states on the device and on the CPU, and say what it costs."""
    truth = draw_truth(20, 2000, 0)
    few, many, held_out = draw(truth, n_few, 1), draw(truth, n_many, 1), draw(truth, 5000, 1000)
    found: dict[str, Any] = {"true_states": 20, "n_states": 40}
    emission = sj.Categorical(n_symbols=2000, concentration=0.1)
    options = {"batch_size": 1000, "n_passes": 20, "random_state": 0}
    # What comes up for the first time is compiled.
    runs = {"cuda": few, "again": few, "many": many, "many_again": many, "cpu": few}
    for name, data in runs.items():
        device = "cpu" if name == "cpu" else "cuda"
        model = sj.HDPHMM(40, emission, device=device, **options)
        entries = model.fit(data, validation=held_out).history_
        found[name] = {
            "sentences": len(data),
            "states": model.n_states_,
            "held_out": entries[-1]["score"],
            "seconds": entries[-1]["seconds"],
            "move_seconds": sum(entry["move_seconds"] for entry in entries),
            "proposals": sum(len(entry["moves"]) for entry in entries),
        }
        print(name, found[name], flush=True)
    return found


def main() -> None:
    """Measure everything, and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=5_000_000, help="sentences of the long run")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--only", nargs="+", help="parts to measure again, in the file there is")
    given = parser.parse_args()

    @cache
    def data() -> Sequences:
        return draw(draw_truth(STATES, SYMBOLS, 0), given.size, 1)

    @cache
    def held_out() -> Sequences:
        return draw(draw_truth(STATES, SYMBOLS, 0), 5000, 1000)

    def small(n: int = 500_000) -> Sequences:
        return data()[: min(given.size, n)]

    sections: dict[str, Callable[[], Any]] = {
        "first_fit_seconds": first_fits,
        "relative_error": exactness,
        "end_to_end": lambda: rates(data()),
        "paper_size": lambda: paper_size(data(), held_out(), 10),
        "paper_size_moves": lambda: paper_size_moves(data()),
        "time_of_a_step": lambda: [time_of_a_step(small(200 * m), m) for m in (1000, 10_000)],
        "many_states": many_states,
        "long_sequences": long_sequences,
        "alternatives_million_steps": lambda: alternatives(small()),
        "precision": lambda: precision_effect(small(100_000), held_out()),
        "families": lambda: families(min(given.size, 100_000)),
        "moves": lambda: moves(200_000, 2_000_000),
        "learned_million_steps": lambda: learned(small()),
    }
    measured: dict[str, Any] = {"device": torch.cuda.get_device_name(), "symbols": SYMBOLS}
    if given.only:
        before = json.loads(given.out.read_text())
        kept = ("date", "measured_again", *sections)  # most of it is as old as it was
        measured |= {name: before[name] for name in kept if name in before}
    for name in given.only or sections:
        measured[name] = sections[name]()
        if given.only:
            again = measured.get("measured_again", {}) | {name: date.today().isoformat()}
            measured["measured_again"] = again
            if set(again) == set(sections):  # nothing is older
                measured["date"] = min(measured.pop("measured_again").values())
        write_result(given.out, measured, ("torch", "triton"))


if __name__ == "__main__":
    main()
