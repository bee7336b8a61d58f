"""Does a state mean anything?  Viterbi states against part-of-speech tags, K = 45.

python -m experiments.tags FOLDER

The folder has the tags beside the words: test.upos, one line a sentence.  Models learn from train
and dev without tags; the states of the test set are compared with its tags.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import v_measure_score
from sklearn.metrics.cluster import contingency_matrix

import sojourn as sj
from benchmarks.results import write_result
from experiments.corpus import corpus_argument, read_corpus
from experiments.reproduce.figure2 import Cell

PAPER = {"batch_size": 100, "forgetting_rate": 0.5, "n_states": 45}


def agreement(tags: NDArray[Any], states: NDArray[Any]) -> dict[str, float]:
    """Compare a state for every token with its tag.

    Many-to-one: every state stands for the tag that it has most often.  One-to-one: every tag has
    at most one state, and states without a tag are wrong, so that 45 states for 17 tags are held
    back.  V-measure needs no map.
    """
    together = contingency_matrix(tags, states)
    rows, columns = linear_sum_assignment(together, maximize=True)
    return {
        "many_to_one": float(together.max(axis=0).sum() / together.sum()),
        "one_to_one": float(together[rows, columns].sum() / together.sum()),
        "v_measure": float(v_measure_score(tags, states)),
    }


def models(seed: int, n_symbols: int, n_passes: int) -> dict[str, Any]:
    """Make the three methods of the paper, and this library's own settings."""
    made: dict[str, Any] = {
        method: Cell(method=method, n_passes=n_passes, seed=seed, **PAPER).model(n_symbols, 1)
        for method in ("SVI", "SCVI", "SCVI-HDP")
    }
    common = {"batch_size": 100, "n_passes": n_passes, "random_state": seed, "n_jobs": 1}
    emission = sj.Categorical(n_symbols)
    made["SCVI, tuned"] = sj.HMM(45, emission, tuned=True, **common)
    made["SCVI-HDP, tuned"] = sj.HDPHMM(45, emission, tuned=True, **common)
    return made


def main() -> None:
    """Fit every method with every seed and write means and spreads."""
    arguments = corpus_argument(__doc__ or "").parse_args()
    vocabulary, train, test = read_corpus(arguments.corpus)
    lines = (arguments.corpus / "test.upos").read_text(encoding="utf-8").splitlines()
    tags = np.array([tag for line in lines for tag in line.split()])
    if len(tags) != test.n_steps:
        raise ValueError(f"{len(tags)} tags for {test.n_steps} tokens")
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(arguments.seeds):
        for name, model in models(seed, len(vocabulary), arguments.passes).items():
            states = model.fit(train).predict(test).values
            row = agreement(tags, states) | {"score": model.score(test, per_step=True)}
            found.setdefault(name, []).append(row)
            print(seed, f"{name:16}", {key: round(value, 4) for key, value in row.items()})
    table = {
        name: {
            key: {
                "mean": round(float(np.mean([row[key] for row in rows])), 4),
                "spread": round(float(np.std([row[key] for row in rows])), 4),
            }
            for key in rows[0]
        }
        for name, rows in found.items()
    }
    write_result(
        Path(__file__).parent / "results" / "tags.json",
        {
            "command": "python -m experiments.tags FOLDER",
            "data": {"held_out_tokens": test.n_steps, "tags": len(set(tags))},
            "seeds": arguments.seeds,
            "methods": table,
        },
    )


if __name__ == "__main__":
    main()
