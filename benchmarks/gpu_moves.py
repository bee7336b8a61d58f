"""What moves, stickiness and a learned prior cost on a GPU.

    python -m benchmarks.gpu_moves

Sentences and settings are those of `benchmarks.gpu`.  Rates are of the quickest pass; the time of
moves is that of all passes, kernels compiled beforehand.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

import sojourn as sj
from benchmarks.gpu import STATES, SYMBOLS, draw, fit
from benchmarks.results import write_result
from sojourn.sequences import Sequences
from sojourn.sources.generate import draw_truth

RESULT = Path(__file__).parent / "results" / "gpu_moves.json"
WAYS: dict[str, dict[str, Any]] = {
    "HMM": {},
    "HMM, tuned": {"tuned": True},
    "HMM, learned stickiness": {"stickiness": "learned"},
    "HDPHMM": {"kind": sj.HDPHMM},
    "HDPHMM, tuned": {"kind": sj.HDPHMM, "tuned": True},
    "HDPHMM, learned stickiness": {"kind": sj.HDPHMM, "stickiness": "learned"},
    "HDPHMM, moves": {"kind": sj.HDPHMM, "moves": "auto"},
}


def measure(data: Sequences, held_out: Sequences, n_passes: int) -> list[dict[str, Any]]:
    """Fit in each way, twice: the first time compiles."""
    rows = []
    for name, options in WAYS.items():
        for _ in range(2):
            model, passes, whole = fit(data, n_passes=n_passes, validation=held_out, **options)
        in_moves = [entry["move_seconds"] for entry in model.history_]
        training = [seconds - moves for seconds, moves in zip(passes, in_moves, strict=True)]
        proposals = [move for entry in model.history_ for move in entry["moves"]]
        rows.append(
            {
                "model": name,
                "million_steps": data.n_steps / min(training) / 1e6,
                "seconds": sum(passes),
                "whole_call_seconds": whole,
                "share_in_moves": sum(in_moves) / sum(passes),
                "proposals": len(proposals),
                "accepted": sum(move["accepted"] for move in proposals),
                "states": len(model.transmat_),
                "held_out": model.history_[-1]["score"],
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure, and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1_000_000, help="sentences")
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    truth = draw_truth(STATES, SYMBOLS, 0)
    data, held_out = draw(truth, given.size, 1), draw(truth, 5000, 1000)
    found = {
        "device": torch.cuda.get_device_name(),
        "sentences": len(data),
        "tokens": data.n_steps,
        "states": STATES,
        "ways": measure(data, held_out, given.passes),
    }
    write_result(given.out, found, ("torch", "triton"))


if __name__ == "__main__":
    main()
