"""What moves, stickiness and a learned prior cost on a GPU.

    python -m benchmarks.gpu_moves

Moves find the number of states of sentences drawn from 20 of them, on the GPU and beside it on the
CPU.  For the rest sentences and settings are those of `benchmarks.gpu`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

import sojourn as sj
from benchmarks.gpu import STATES, SYMBOLS, draw, fit, steady
from benchmarks.results import write_result
from sojourn.sources.generate import draw_truth

RESULT = Path(__file__).parent / "results" / "gpu_moves.json"
WAYS: dict[str, dict[str, Any]] = {
    "HMM": {},
    "HMM, tuned": {"tuned": True},
    "HMM, learned stickiness": {"stickiness": "learned"},
    "HDPHMM": {"kind": sj.HDPHMM},
    "HDPHMM, tuned": {"kind": sj.HDPHMM, "tuned": True},
    "HDPHMM, learned stickiness": {"kind": sj.HDPHMM, "stickiness": "learned"},
}


def find_states(n_sentences: int) -> dict[str, Any]:
    """Find the number of states with kernels that are to be compiled, again, and on the CPU."""
    truth = draw_truth(20, 2000, 0)
    data, held_out = draw(truth, n_sentences, 1), draw(truth, 5000, 1000)
    found: dict[str, Any] = {"sentences": len(data), "true_states": 20, "most_states": 40}
    emission = sj.Categorical(n_symbols=2000, concentration=0.1)
    for name, device in (("compiling", "cuda"), ("gpu", "cuda"), ("cpu", "cpu")):
        options = {"batch_size": 1000, "n_passes": 20, "random_state": 0}
        model = sj.HDPHMM(40, emission, device=device, **options)
        entries = model.fit(data, validation=held_out).history_
        in_moves, seconds = sum(e["move_seconds"] for e in entries), entries[-1]["seconds"]
        proposals = [move for entry in entries for move in entry["moves"]]
        found[name] = {
            "states": model.n_states_,
            "held_out": entries[-1]["score"],
            "seconds": seconds,
            "share_in_moves": in_moves / seconds,
            "proposals": len(proposals),
            "accepted": sum(move["accepted"] for move in proposals),
        }
        print(name, found[name], flush=True)
    return found


def rates(n_sentences: int) -> list[dict[str, Any]]:
    """Measure steps a second of what is learned beside the states."""
    data = draw(draw_truth(STATES, SYMBOLS, 0), n_sentences, 1)
    rows = []
    for name, options in WAYS.items():
        _, passes, _ = fit(data, n_passes=5, **options)
        rows.append({"model": name, "million_steps": data.n_steps / steady(passes) / 1e6})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure, and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    found: dict[str, Any] = {"device": torch.cuda.get_device_name()}
    found["states"] = find_states(200_000)
    write_result(given.out, found, ("torch", "triton"))
    found["rates"] = rates(500_000)
    write_result(given.out, found, ("torch", "triton"))


if __name__ == "__main__":
    main()
