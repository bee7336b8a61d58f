"""Streams, and filtering of one long series from a file.

make bench-live

Updates per second of one stream and of a thousand side by side, and the memory that a filter takes
for one series of a million and of ten million steps in a file.
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

N_STATES = 10
SIDE_BY_SIDE = 1000


def models(rng: np.random.Generator) -> dict[str, tuple[Any, Any]]:
    """Fit small models of ten states, with a function that draws n steps for each."""
    made = {
        "Categorical": (sj.Categorical(20), lambda n: rng.integers(20, size=n)),
        "Poisson": (sj.Poisson(), lambda n: rng.poisson(5.0, n)),
        "DiagonalGaussian": (sj.DiagonalGaussian(), lambda n: rng.normal(size=n)),
        "Gaussian, two columns": (sj.Gaussian(), lambda n: rng.normal(size=(n, 2))),
    }
    return {
        name: (
            sj.HMM(N_STATES, family, n_init=1, n_passes=3, random_state=0).fit(
                [draw(200) for _ in range(5)]
            ),
            draw,
        )
        for name, (family, draw) in made.items()
    }


def updates_per_second(model: Any, draw: Any, n_updates: int, repeats: int = 5) -> dict[str, float]:
    """Time updates of one stream, and of many side by side; the best of several."""
    steps = draw(n_updates)
    plain = steps.tolist() if steps.ndim == 1 else list(steps)
    batches = [draw(SIDE_BY_SIDE) for _ in range(100)]
    best = {"one": 0.0, "many": 0.0}
    for _ in range(repeats):
        stream = model.stream()
        begin = time.perf_counter()
        for x in plain:
            stream.update(x)
        best["one"] = max(best["one"], len(plain) / (time.perf_counter() - begin))
        many = model.stream(SIDE_BY_SIDE)
        begin = time.perf_counter()
        for batch in batches:
            many.update(batch)
        rate = SIDE_BY_SIDE * len(batches) / (time.perf_counter() - begin)
        best["many"] = max(best["many"], rate)
    return {name: round(value) for name, value in best.items()}


def write_series(path: Path, n_steps: int, rng: np.random.Generator) -> None:
    """Write one series to an .npy file, in pieces."""
    from sojourn.sources.write_npy import NpySink

    with NpySink(path, overwrite=True) as sink:
        for at in range(0, n_steps, 2**20):
            n = min(2**20, n_steps - at)
            level = 3.0 * ((np.arange(at, at + n) // 500) % 3)
            sink.write((level + rng.normal(size=n))[:, None])
    np.save(path.with_suffix(".offsets.npy"), np.array([0, n_steps]))


def filter_in_a_process(model: Path, data: Path, out: Path) -> dict[str, float]:
    """Filter a file in a process of its own; return its seconds and the peak of its memory."""
    code = (
        "import json, resource, sys, time\n"
        "import sojourn as sj\n"
        "model, data, out = sys.argv[1:]\n"
        "fitted = sj.load(model)\n"
        "fitted.filter([[0.0], [1.0]])\n"
        "begin = time.perf_counter()\n"
        "fitted.filter(data, out=out, overwrite=True)\n"
        "seconds = time.perf_counter() - begin\n"
        "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
        "print(json.dumps({'seconds': round(seconds, 2), 'peak_mib': round(peak)}))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(model), str(data), str(out)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--updates", type=int, default=20_000)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    streams = {}
    for name, (model, draw) in models(rng).items():
        streams[name] = updates_per_second(model, draw, arguments.updates)
        print(name, streams[name], flush=True)
    filters = {}
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        write_series(here / "small.npy", 20_000, rng)
        model = sj.HMM(3, sj.DiagonalGaussian(), n_init=1, random_state=0)
        model.fit(np.load(here / "small.npy")).save(here / "m.sojourn")
        for n_steps in arguments.steps:
            write_series(here / "x.npy", n_steps, rng)
            found = filter_in_a_process(here / "m.sojourn", here / "x.npy", here / "out.npy")
            shape = np.load(here / "out.npy", mmap_mode="r").shape
            assert shape == (n_steps, 3)
            filters[f"{n_steps:,}"] = found
            print(n_steps, found, flush=True)
    write_result(
        Path(__file__).parent / "results" / "live.json",
        {
            "command": "python -m benchmarks.live",
            "states": N_STATES,
            "side_by_side": SIDE_BY_SIDE,
            "updates_per_second": streams,
            "filter_one_series_from_a_file": filters,
        },
    )


if __name__ == "__main__":
    main()
