"""Best paths: how fast `decode` is, and hmmlearn beside it in the same process.

    python -m benchmarks.decoding

Symbols and numbers, as sentences, a hundred recordings and one, on all cores; the quickest of
several runs counts.  hmmlearn decodes a part of them, with the same parameters, and to the same
paths.  Takes a minute.
"""

from __future__ import annotations

import argparse
import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from hmmlearn import hmm

import sojourn as sj
from benchmarks.few_states import seconds
from benchmarks.results import place, write_result, write_table

RESULT = Path(__file__).parent / "results/decoding.json"
STATES = (3, 10, 45, 100)
N_STEPS, N_SYMBOLS, N_COLUMNS, LENGTH = 220_000, 1000, 2, 22
SHAPES = (N_STEPS // LENGTH, 100, 1)  # sequences
THEIR_STEPS = 5_500  # a hmmlearn with 100 states takes a second for them
MOST_SECONDS = 10.0  # for the repeats of one figure


def models(kind: str, n_states: int) -> tuple[Any, Any, np.ndarray]:
    """Return a model that has been fitted here, hmmlearn's with its parameters, and the data."""
    rng = np.random.default_rng(0)
    options: dict[str, Any] = {"batch_size": 1000, "n_passes": 1, "moves": None, "n_init": 1}
    lengths = [LENGTH] * (N_STEPS // LENGTH)
    if kind == "symbols":
        X = (rng.zipf(1.3, N_STEPS) % N_SYMBOLS)[:, None]
        ours = sj.HMM(n_states, sj.Categorical(N_SYMBOLS), random_state=0, **options)
        ours.fit(X[:, 0], lengths)
        theirs = hmm.CategoricalHMM(n_states, n_features=N_SYMBOLS)
        theirs.emissionprob_ = ours.emissionprob_
    else:
        X = rng.normal(size=(N_STEPS, N_COLUMNS))
        ours = sj.HMM(n_states, sj.DiagonalGaussian(), random_state=0, **options).fit(X, lengths)
        theirs = hmm.GaussianHMM(n_states, "diag")
        theirs.n_features = N_COLUMNS
        theirs.means_, theirs.covars_ = ours.means_, ours.covars_
    theirs.startprob_, theirs.transmat_ = ours.startprob_, ours.transmat_
    return ours, theirs, X


def measure(kind: str, n_states: int, repeats: int) -> list[dict[str, Any]]:
    """Time both on data cut into fewer and fewer sequences."""
    ours, theirs, X = models(kind, n_states)
    values = X[:, 0] if kind == "symbols" else X
    found = []
    for n_sequences in SHAPES:
        length = N_STEPS // n_sequences
        lengths = [length] * n_sequences
        part = min(THEIR_STEPS, N_STEPS)
        own = [min(length, part)] * max(1, part // length)
        passed = seconds(partial(ours.decode, values, lengths), repeats, MOST_SECONDS)
        other = seconds(partial(theirs.decode, X[: sum(own)], own), 1, MOST_SECONDS)
        found.append(
            {
                "data": kind,
                "states": n_states,
                "sequences": n_sequences,
                "million_steps": round(N_STEPS / passed / 1e6, 3),
                "hmmlearn_million_steps": round(sum(own) / other / 1e6, 4),
            }
        )
        print(found[-1], flush=True)
    return found


def table(found: dict[str, Any]) -> str:
    """Tabulate the result for the README of the benchmarks."""
    cells = {(c["data"], c["sequences"], c["states"]): c for c in found["cells"]}
    rows = dict.fromkeys(key[:2] for key in cells)
    return "\n".join(
        [
            f"Measured on {place(found['machine'])}, {found['date']}, by `{found['command']}`; the "
            "file is [results/decoding.json](results/decoding.json). Million steps/s of `decode`, "
            f"and how many times those of hmmlearn {found['versions']['hmmlearn']} these are:",
            "",
            "| data | sequences | " + " | ".join(f"{k} states" for k in STATES) + " |",
            "|---|---|" + "---|" * len(STATES),
            *(
                f"| {kind} | {n:,} | "
                + " | ".join(
                    f"{cells[kind, n, k]['million_steps']:.1f}, "
                    f"{cells[kind, n, k]['million_steps'] / theirs:.0f}×"
                    for k in STATES
                    if (theirs := cells[kind, n, k]["hmmlearn_million_steps"])
                )
                + " |"
                for kind, n in rows
            ),
        ]
    )


def main() -> None:
    """Measure, print and write the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    cells = [
        one
        for kind in ("symbols", "numbers")
        for k in STATES
        for one in measure(kind, k, args.repeats)
    ]
    found = {"command": "python -m benchmarks.decoding", "cells": cells}
    write_result(args.out, found, ("hmmlearn",))
    write_table("decoding", table(json.loads(args.out.read_text())))


if __name__ == "__main__":
    main()
