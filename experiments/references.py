"""Every inference method on one corpus: held-out nats per token, and seconds, K = 45.

python -m experiments.references FOLDER

Variational methods learn from the whole corpus.  Samplers learn from a part of it that they can
handle, beside SCVI on the same part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sojourn as sj
from benchmarks.results import write_result
from experiments.corpus import corpus_argument, read_corpus
from experiments.reference_tables import write_tables

N_STATES = 45
BATCH = {"batch_size": 100, "forgetting_rate": 0.5}
WHOLE_PASSES = 10  # times as many passes where a pass is a single update
SWEEPS = {"burn_in": 300, "n_samples": 40, "thin": 5}
PART = 1000
SAMPLERS = (
    (sj.HMM, "gibbs"),
    (sj.HMM, "blocked-gibbs"),
    (sj.HDPHMM, "gibbs"),
    (sj.HDPHMM, "beam"),
)


def measure(
    model: Any,
    inference: str,
    train: sj.Sequences,
    test: sj.Sequences,
    n_symbols: int,
    **options: Any,
) -> dict[str, Any]:
    """Fit with every seed; the time is that of training alone."""
    seeds, sweeps = options.pop("seeds"), options.pop("sweeps", None)
    rows = []
    for seed in range(seeds):
        fitted = model(
            N_STATES,
            sj.Categorical(n_symbols, concentration=0.1),
            inference=inference if sweeps is None else sj.Sampling(inference, **sweeps),
            moves=None,
            random_state=seed,
            **options,
        ).fit(train, track_bound=False)
        score = fitted.score(test, per_step=True)
        last = fitted.history_[-1]
        rows.append((score, last["seconds"]))
        print(f"{model.__name__:7}{inference:14} seed {seed}: {score:.4f}, {last['seconds']:.1f} s")
    found = {
        "score": round(float(np.mean([row[0] for row in rows])), 4),
        "spread": round(float(np.std([row[0] for row in rows])), 4),
        "seconds": round(float(np.mean([row[1] for row in rows])), 2),
        "passes": int(last["passes"]),
    }
    if model is sj.HDPHMM and inference in ("gibbs", "beam"):
        found["states"] = [int(fitted.samples_.trace("n_states").min())]
        found["states"].append(int(fitted.samples_.trace("n_states").max()))
    return found


def main() -> None:
    """Measure every method and write the result."""
    parser = corpus_argument(__doc__ or "")
    arguments = parser.parse_args()
    vocabulary, train, test = read_corpus(arguments.corpus)
    data = (train, test, len(vocabulary))
    # Compilation is no part of the times.
    for inference in ("scvi", "svi", "cvb0"):
        sj.HMM(N_STATES, sj.Categorical(), inference=inference, n_passes=1).fit(train[:200])
    for model, inference in SAMPLERS:
        short = sj.Sampling(inference, n_samples=1, burn_in=1)
        model(3, sj.Categorical(), inference=short).fit(train[:5])
    whole: dict[str, Any] = {}
    for model in (sj.HMM, sj.HDPHMM):
        for inference in ("em", "vb", "cvb0", "svi", "scvi"):
            if model is sj.HDPHMM and inference == "em":
                continue
            options: dict[str, Any] = {"seeds": arguments.seeds, "n_passes": arguments.passes}
            if inference in ("em", "vb"):
                options["n_passes"] *= WHOLE_PASSES
            else:
                options |= BATCH
            if inference == "cvb0":
                options["seeds"] = 1
            name = f"{model.__name__} {inference}"
            whole[name] = measure(model, inference, *data, **options)
    part = train.take(np.random.default_rng(0).permutation(len(train))[:PART])
    data = (part, test, len(vocabulary))
    few: dict[str, Any] = {}
    for model in (sj.HMM, sj.HDPHMM):
        few[f"{model.__name__} scvi"] = measure(
            model, "scvi", *data, seeds=arguments.seeds, n_passes=10 * arguments.passes, **BATCH
        )
    for model, inference in SAMPLERS:
        few[f"{model.__name__} {inference}"] = measure(
            model, inference, *data, seeds=1, sweeps=SWEEPS
        )
    write_result(
        Path(__file__).parent / "results" / "references.json",
        {
            "command": "python -m experiments.references FOLDER",
            "data": {
                "sentences": len(train),
                "tokens": train.n_steps,
                "held_out_tokens": test.n_steps,
                "words": len(vocabulary),
                "part_sentences": len(part),
                "part_tokens": part.n_steps,
            },
            "settings": {"n_states": N_STATES, "concentration": 0.1, **BATCH, **SWEEPS},
            "whole": whole,
            "part": few,
        },
    )
    write_tables()


if __name__ == "__main__":
    main()
