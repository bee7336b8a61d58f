"""Which defaults the HDP's options deserve: each one switched, on a corpus and on simulated data.

python -m experiments.hdp_options FOLDER
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sojourn as sj
from benchmarks.results import write_result
from experiments.corpus import corpus_argument, read_corpus

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "first-order tables": {"second_order_tables": False},
    "unsorted sticks": {"sort_states": False},
    "exact row normaliser": {"normalize_rows": False},
    "fast occupancy": {"occupancy": "fast"},
    "paper": {"second_order_tables": False, "sort_states": False},
}


def simulated(seed: int) -> tuple[sj.Sequences, sj.Sequences, int, float]:
    """Draw sequences from ten states of very different sizes; also the truth's own score."""
    rng = np.random.default_rng(seed)
    n_states, n_symbols = 10, 60
    weights = rng.dirichlet(np.full(n_states, 0.7))
    truth = sj.Statistics(
        1e9 * weights,
        1e9 * rng.dirichlet(4.0 * weights + 1e-3, n_states),
        1e9 * rng.dirichlet(np.full(n_symbols, 0.2), n_states),
    )
    model = sj.HMM(n_states, sj.Categorical(n_symbols), init=truth, delay=1e12, forgetting_rate=1.0)
    model.partial_fit([[0]], total_sequences=1)
    drawn, _ = model.sample(2200, rng.integers(5, 30, 2200), random_state=seed)
    train, test = drawn[:2000], drawn[2000:]
    return train, test, n_symbols, model.score(test, per_step=True)


def measure(
    train: sj.Sequences, test: sj.Sequences, n_symbols: int, n_states: int, seeds: int, passes: int
) -> dict[str, Any]:
    """Fit every variant with every seed."""
    table = {}
    for name, options in VARIANTS.items():
        fits = [
            sj.HDPHMM(
                n_states,
                sj.Categorical(n_symbols),
                batch_size=100,
                n_passes=passes,
                hdp_batch_size=2000,
                random_state=seed,
                moves=None,
                **options,
            ).fit(train)
            for seed in range(seeds)
        ]
        scores = [fit.score(test, per_step=True) for fit in fits]
        table[name] = {
            "score": round(float(np.mean(scores)), 5),
            "spread": round(float(np.std(scores)), 5),
            "alpha": round(float(np.mean([fit.hdp_.alpha for fit in fits])), 3),
            "effective_states": round(
                float(np.mean([fit.hdp_.effective_states for fit in fits])), 2
            ),
            "seconds": round(float(np.mean([fit.history_[-1]["seconds"] for fit in fits])), 2),
        }
        print(f"{name:22}", table[name])
    symmetric = [
        sj.HMM(
            n_states, sj.Categorical(n_symbols), batch_size=100, n_passes=passes, random_state=seed
        )
        .fit(train)
        .score(test, per_step=True)
        for seed in range(seeds)
    ]
    table["symmetric Dirichlet(0.1)"] = {
        "score": round(float(np.mean(symmetric)), 5),
        "spread": round(float(np.std(symmetric)), 5),
    }
    print(f"{'symmetric':22}", table["symmetric Dirichlet(0.1)"])
    return table


def main() -> None:
    """Measure on both kinds of data and write the result."""
    arguments = corpus_argument(__doc__ or "").parse_args()
    vocabulary, train, test = read_corpus(arguments.corpus)
    print("corpus")
    corpus = measure(train, test, len(vocabulary), 45, arguments.seeds, arguments.passes)
    train, test, n_symbols, bound = simulated(0)
    print("simulated, truth", bound)
    drawn = measure(train, test, n_symbols, 20, arguments.seeds, arguments.passes)
    write_result(
        Path(__file__).parent / "results" / "hdp_options.json",
        {
            "command": "python -m experiments.hdp_options FOLDER",
            "corpus": corpus,
            "simulated": {"truth": round(bound, 5), **drawn},
        },
    )


if __name__ == "__main__":
    main()
