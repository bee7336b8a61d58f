"""One very long sequence: a pass of training and of prediction, in seconds and MiB.

python -m benchmarks.long [--steps 100000000] [--folder FOLDER]       # from an .npy file
python -m benchmarks.long --device cuda [--steps 10000000]            # in memory, on a GPU

The sequence is drawn from a known HMM: in a file, with 8 states and four channels; on a GPU, with
45 states and 1,000 symbols.  Each measurement from a file runs in a process of its own, so that its
memory can be told from that of the others, and also on a tenth of the steps: it must not grow.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import sojourn as sj
from benchmarks.results import write_result
from benchmarks.scale import resident

HERE = Path(__file__).parent
RESULT, GPU_RESULT = HERE / "results" / "long.json", HERE / "results" / "long_gpu.json"
N_STATES, N_CHANNELS, PART = 8, 4, 2**20
GPU_STATES, GPU_SYMBOLS, GPU_TILES = 45, 1000, 4096


def states(rng: np.random.Generator, n_steps: int, n_states: int, stay: float) -> Any:
    """Draw states that last 1 / (1 − stay) steps on average."""
    changes = np.flatnonzero(rng.random(n_steps) > stay)
    runs = np.diff(np.concatenate([[0], changes, [n_steps]]))
    return np.repeat(rng.integers(n_states, size=len(runs)), runs)


def draw_file(path: Path, n_steps: int) -> None:
    """Write a sequence of Gaussian steps, a part at a time."""
    rng = np.random.default_rng(0)
    means = rng.normal(0.0, 2.0, (N_STATES, N_CHANNELS)).astype(np.float32)
    header = {"descr": "<f4", "fortran_order": False, "shape": (n_steps, N_CHANNELS)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for begin in range(0, n_steps, PART):
            z = states(rng, min(PART, n_steps - begin), N_STATES, 0.95)
            noise = rng.standard_normal((len(z), N_CHANNELS), dtype=np.float32)
            (means[z] + noise).tofile(file)


def make_model(**options: Any) -> Any:
    """Make the model that is timed: one pass in minibatches of tiles."""
    usual = {"tile_length": 512, "batch_size": 32, "n_passes": 1, "random_state": 0}
    return sj.HMM(N_STATES, sj.DiagonalGaussian(), **usual | options)


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Train on a file and predict its states into another; called in a process of its own."""
    rng = np.random.default_rng(1)
    small = rng.normal(size=(40_000, N_CHANNELS)).astype(np.float32)
    make_model().fit(small).predict(small)  # so that compiled kernels are below the base line
    base = resident("VmRSS")
    source = sj.open(task["data"], sequence=False)
    before = time.perf_counter()
    model = make_model().fit(source)
    trained, after_training = time.perf_counter() - before, resident("VmHWM")
    before = time.perf_counter()
    model.predict(source, out=task["out"], overwrite=True)
    predicted = time.perf_counter() - before
    n_steps = source.n_steps
    return {
        "steps": n_steps,
        "states": N_STATES,
        "channels": N_CHANNELS,
        "training_seconds": round(trained, 1),
        "training_million_steps_per_second": round(n_steps / trained / 1e6, 2),
        "training_mib_above_base": round(after_training - base, 1),
        "predict_seconds": round(predicted, 1),
        "predict_million_steps_per_second": round(n_steps / predicted / 1e6, 2),
        "mib_above_base": round(resident("VmHWM") - base, 1),
        "file_mib": round(Path(task["data"]).stat().st_size / 2**20, 1),
        "buffer": model.history_[-1]["buffer"],
    }


def from_file(n_steps: int, folder: Path) -> None:
    """Measure training and prediction from a file, and on a tenth of it."""
    rows = []
    for n in (n_steps // 10, n_steps):
        path = folder / f"long-{n}.npy"
        if not path.exists():
            draw_file(path, n)
        task = json.dumps({"data": str(path), "out": str(folder / "states.npy")})
        command = [sys.executable, "-m", "benchmarks.long", "--task", task]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    write_result(RESULT, {"command": "python -m benchmarks.long", "rows": rows})


def on_gpu(n_steps: int) -> None:
    """Measure training on one sequence of symbols on a GPU, without the first pass."""
    import torch

    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.full(GPU_SYMBOLS, 0.05), GPU_STATES).cumsum(axis=1)
    z = states(rng, n_steps, GPU_STATES, 0.9)
    x = np.empty(n_steps, dtype=np.int32)
    for k in range(GPU_STATES):
        own = np.flatnonzero(z == k)
        x[own] = np.minimum(np.searchsorted(rows[k], rng.random(len(own))), GPU_SYMBOLS - 1)
    found = []
    for batch_size in (GPU_TILES // 4, GPU_TILES):
        model = sj.HMM(
            GPU_STATES,
            sj.Categorical(GPU_SYMBOLS),
            tile_length=512,
            batch_size=batch_size,
            buffer=32,
            n_passes=4,
            device="cuda",
            random_state=0,
        )
        seconds = [0.0] + [entry["seconds"] for entry in model.fit(x).history_]
        best = min(np.diff(seconds)[1:])
        rate = round(n_steps / best / 1e6, 1)
        found.append({"tiles_per_minibatch": batch_size, "million_steps_per_second": rate})
        print(found[-1], flush=True)
    measured = {"device": torch.cuda.get_device_name(), "steps": n_steps, "states": GPU_STATES}
    write_result(
        GPU_RESULT,
        {"command": "python -m benchmarks.long --device cuda"} | measured | {"rows": found},
    )


def main() -> None:
    """Draw the data, measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int)
    parser.add_argument("--folder", type=Path, help="where the files go; deleted if not given")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task is not None:
        print(json.dumps(run(json.loads(arguments.task))))
    elif arguments.device == "cuda":
        on_gpu(arguments.steps or 10_000_000)
    elif arguments.folder is not None:
        from_file(arguments.steps or 100_000_000, arguments.folder)
    else:
        with tempfile.TemporaryDirectory() as folder:
            from_file(arguments.steps or 100_000_000, Path(folder))


if __name__ == "__main__":
    main()
