"""What collapsing buys: SCVI against SVI on a corpus, K = 45, M = 100, κ = 0.5.

python -m experiments.collapsing FOLDER
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sojourn as sj
from benchmarks.results import write_result
from experiments.corpus import corpus_argument, read_corpus

SETTINGS = {"n_states": 45, "batch_size": 100, "forgetting_rate": 0.5}
METHODS = {"scvi": (sj.HMM, "scvi"), "svi": (sj.HMM, "svi"), "scvi-hdp": (sj.HDPHMM, "scvi")}


def main() -> None:
    """Fit every method with every seed and write the held-out curves."""
    arguments = corpus_argument(__doc__ or "").parse_args()
    vocabulary, train, test = read_corpus(arguments.corpus)
    print(f"{len(train)} sentences, {train.n_steps} tokens, {len(vocabulary)} words")
    curves: dict[str, list[list[float]]] = {}
    for name, (model, inference) in METHODS.items():
        curves[name] = []
        for seed in range(arguments.seeds):
            fitted = model(
                emission=sj.Categorical(len(vocabulary), concentration=0.1),
                inference=inference,
                n_passes=arguments.passes,
                random_state=seed,
                moves=None,
                **SETTINGS,
            ).fit(train, validation=test)
            curves[name].append([round(entry["score"], 5) for entry in fitted.history_])
            last = fitted.history_[-1]
            print(
                f"{name:9} seed {seed}: {last['score']:.4f} nats per token, {last['seconds']:.1f} s"
            )
    final = {name: float(np.mean([c[-1] for c in runs])) for name, runs in curves.items()}
    margin = final["scvi"] - final["svi"]
    print(f"SCVI above SVI by {margin:.4f} nats per token")
    write_result(
        Path(__file__).parent / "results" / "collapsing.json",
        {
            "command": "python -m experiments.collapsing FOLDER",
            "data": {
                "sentences": len(train),
                "tokens": train.n_steps,
                "held_out_tokens": test.n_steps,
                "words": len(vocabulary),
            },
            "settings": {**SETTINGS, "passes": arguments.passes, "concentration": 0.1},
            "final": {name: round(score, 4) for name, score in final.items()},
            "scvi_above_svi": round(margin, 4),
            "curves": curves,
        },
    )


if __name__ == "__main__":
    main()
