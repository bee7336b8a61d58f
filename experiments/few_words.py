"""Few words, in full batches or in minibatches, with a prior that is given or learned.

python -m experiments.few_words [--seeds 3] [--first-seed 430]

Sentences of at most 32,768 words are drawn from known states, as `sojourn generate` does.  Models
learn them in three ways: in full batches with a prior of 0.1 for every word (`tuned=()`), in
minibatches with a learned prior (`tuned=("concentration", "base")`), and by the defaults.  `HMM` is
given the true number of states, `HDPHMM` twice as many.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import sojourn as sj
from benchmarks.results import write_result
from experiments.defaults_tables import PAGE, between_marks
from sojourn.sources.base import joined
from sojourn.sources.generate import draw_sentences, draw_truth

RESULT = Path(__file__).parent / "results" / "few_words.json"
MARK = "few words"
N_HELD_OUT, WORDS_PER_SENTENCE = 1000, 22
CELLS = ((10_000, 5, 300), (25_000, 10, 1000), (2000, 5, 500), (5000, 10, 2000), (25_000, 20, 5000))
"""Words of the data, states and words of the vocabulary."""

WAYS: dict[str, Any] = {
    "full batches": (),
    "minibatches": ("concentration", "base"),
    "defaults": "auto",
}


def measure(n_words: int, n_states: int, n_symbols: int, seed: int) -> dict[str, Any]:
    """Fit both models in all ways; return states and held-out nats per word."""
    truth = draw_truth(n_states, n_symbols, seed)
    n_sentences = n_words // WORDS_PER_SENTENCE
    drawn = joined(list(draw_sentences(truth, n_sentences + N_HELD_OUT, seed + 1)))
    train, test = drawn[:n_sentences], drawn[n_sentences:]
    found: dict[str, Any] = {
        "n_words": n_words,
        "n_states": n_states,
        "n_symbols": n_symbols,
        "seed": seed,
        "probabilities_per_word": round(n_states * n_symbols / n_words, 2),
    }
    for (kind, most), (way, tuned) in product(
        ((sj.HMM, n_states), (sj.HDPHMM, 2 * n_states)), WAYS.items()
    ):
        model = kind(most, sj.Categorical(n_symbols), random_state=seed, tuned=tuned)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(train)
        found[f"{kind.__name__} {way}"] = {
            "states": int(model.n_states_),
            "score": round(float(model.score(test, per_step=True)), 4),
            "seconds": round(time.perf_counter() - began, 2),
        }
    print(found, flush=True)
    return found


def table(result: dict[str, Any]) -> str:
    """Write means over seeds, and the states of each seed."""
    each = result["each"]
    lines = [
        "| words | states | vocabulary | K V / words | model "
        "| full batches | minibatches | defaults |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cell, kind in product(CELLS, ("HMM", "HDPHMM")):
        own = [run for run in each if (run["n_words"], run["n_states"], run["n_symbols"]) == cell]
        columns = []
        for way in WAYS:
            runs = [run[f"{kind} {way}"] for run in own]
            states = ", ".join(str(run["states"]) for run in runs)
            columns.append(f"{fmean(run['score'] for run in runs):.4f} ({states})")
        n_words, n_states, n_symbols = cell
        share = n_states * n_symbols / n_words
        first = [f"{n_words:,}", n_states, f"{n_symbols:,}", f"{share:.2g}", kind]
        lines.append("| " + " | ".join(map(str, [*first, *columns])) + " |")
    rows = "\n".join(lines).replace("-", "−").replace("|−−−", "|---")
    where, seeds = result["machine"], sorted({run["seed"] for run in each})
    place = f"{where['cores']} cores ({where['processor']}), {result['date']}"
    return f"{rows}\n\n({place}; seeds {seeds[0]} to {seeds[-1]}; `{result['command']}`)"


def main() -> None:
    """Measure all cells, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=430)
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    seeds = np.arange(arguments.first_seed, arguments.first_seed + arguments.seeds).tolist()
    each = [measure(*cell, seed) for cell, seed in product(CELLS, seeds)]
    write_result(arguments.out, {"command": "python -m experiments.few_words", "each": each})
    result = json.loads(arguments.out.read_text())
    print(table(result))
    if arguments.out == RESULT:
        PAGE.write_text(between_marks(PAGE.read_text(), MARK, table(result)))


if __name__ == "__main__":
    main()
