"""How to learn from one long sequence: tiles, full batches, or pieces cut by hand.

python -m experiments.long_sequences DATA [--seeds 2] [--only NAME ...]

DATA is an .npy file with one sequence of marks (T, D), 0 or 1; the published figures are those of
ten marks in 672,261 bins of a chromosome.  Every model is scored on the uncut sequence, in nats per
step.  The thresholds of `sojourn.models.plan` for long sequences come from the rows that change
one of them.  Rows that are in the result file are replaced, others are kept.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import sojourn as sj
from benchmarks.results import write_result
from sojourn.models import plan, run
from sojourn.moves.narrow import Narrow

RESULT = Path(__file__).parent / "results" / "long_sequences.json"
MODELS = {
    "HMM(10)": lambda **options: sj.HMM(10, sj.Bernoulli(), **options),
    "HDPHMM(10)": lambda **options: sj.HDPHMM(10, sj.Bernoulli(), **options),
    "HDPHMM(30)": lambda **options: sj.HDPHMM(30, sj.Bernoulli(), **options),
    "HMM(11)": lambda **options: sj.HMM(11, sj.Bernoulli(), **options),
    "HMM(12)": lambda **options: sj.HMM(12, sj.Bernoulli(), **options),
}
DEFAULTS = ["HMM(10)", "HDPHMM(10)", "HDPHMM(30)"]
CUT = 500
KEY = ("row", "model", "seed")  # what a row of the file is replaced by

ROWS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "defaults": (DEFAULTS, {}),
    "the same, cut into pieces of 500": (DEFAULTS, {"cut": True}),
    "one state more, or two": (["HMM(11)", "HMM(12)"], {}),
    "full batches, uncut": (["HMM(10)", "HDPHMM(30)"], {"tile_length": None}),
    "no staying at first": (DEFAULTS, {"STAYING": (0.0,)}),
    "no more states at first than asked for": (["HMM(10)"], {"WIDE_FACTOR": 1}),
    "14 states at first": (["HMM(10)"], {"WIDE_MOST": 14}),
    "18 states at first": (["HMM(10)"], {"WIDE_MOST": 18}),
    "22 states at first": (["HMM(10)"], {"WIDE_MOST": 22}),
    "no exchanges": (DEFAULTS, {"exchanges": 0}),
    "no more full batches": (DEFAULTS, {"tol": 1.0}),
    "tiles of 256 steps": (["HMM(10)"], {"TILE_LENGTH": 256}),
    "tiles of 1,024 steps": (["HMM(10)"], {"TILE_LENGTH": 1024}),
    "edges to 0.001": (["HMM(10)"], {"EDGE_TOLERANCE": 1e-3}),
    "400 updates": (["HMM(10)"], {"TILE_UPDATES": 400}),
}
"""Names of rows: which models, and what is changed."""


def measure(name: str, values: Any, seed: int, changes: dict[str, Any]) -> dict[str, Any]:
    """Fit a model with some thresholds or parameters changed, and score it on the uncut data."""
    changes = dict(changes)
    lengths = [len(values)]
    if changes.pop("cut", False):
        rest = len(values) % CUT
        lengths = [CUT] * (len(values) // CUT) + ([rest] if rest else [])
    rounds = changes.pop("exchanges", None)
    swap = nullcontext() if rounds is None else patch.object(Narrow, "n_exchanges", rounds)
    options = {key: changes.pop(key) for key in list(changes) if key.islower()}
    before = {key: getattr(plan, key) for key in changes}
    for key, value in changes.items():
        setattr(plan, key, value)
    run.EDGE_TOLERANCE = plan.EDGE_TOLERANCE
    began, cpu = time.perf_counter(), time.process_time()
    try:
        with swap:
            model = MODELS[name](random_state=seed, **options).fit(values, lengths)
    finally:
        for key, value in before.items():
            setattr(plan, key, value)
        run.EDGE_TOLERANCE = plan.EDGE_TOLERANCE
    return {
        "model": name,
        "seed": seed,
        "score": round(float(model.score(values)) / len(values), 4),
        "states": len(model.transmat_),
        "states_in_use": int(model.n_states_),
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }


def main() -> None:
    """Measure the rows that are asked for, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=list(ROWS))
    arguments = parser.parse_args()
    values = np.load(arguments.data).astype(np.float64)
    rows = json.loads(RESULT.read_text())["rows"] if RESULT.exists() else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sj.FitWarning)
        for title in arguments.only:
            names, changes = ROWS[title]
            for name in names:
                for seed in range(arguments.seeds):
                    row = {"row": title} | measure(name, values, seed, changes)
                    rows = [old for old in rows if any(old[key] != row[key] for key in KEY)]
                    rows.append(row)
                    print(row, flush=True)
                    shape, command = list(values.shape), "python -m experiments.long_sequences DATA"
                    write_result(RESULT, {"command": command, "shape": shape, "rows": rows})


if __name__ == "__main__":
    main()
