"""When does the HDP prior help?  Every option against the best symmetric prior of a grid.

python -m experiments.hdp_question FOLDER

On text; on words spelled as letters, few and many; on data drawn from an HDP-HMM, few and many.
The best symmetric prior is chosen by the same held-out score that it is then judged by: the HDP,
which learns its own, has to stand up to a grid that was helped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

import sojourn as sj
from benchmarks.results import write_result
from experiments.corpus import corpus_argument, read_corpus, read_sentences
from sojourn.kernels.interface import Floats, Squares
from sojourn.transitions import HDP, Rows, Transitions

RESULT = Path(__file__).parent / "results" / "hdp_question.json"
SYMMETRIC = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
PAPER = sj.HDPOptions(second_order_tables=False, sort_states=False, exchangeable_tables=False)


class MeanHDP(HDP):
    """E[α]E[π] in the updates, in place of G[απ]."""

    @property
    def update_prior(self) -> Floats:
        """E[α] E[π_k]."""
        return self.mean_prior


class RunningHDP(HDP):
    """Table counts from running statistics, blended as E[C] is, in place of those of the batch."""

    def observe(
        self,
        counts: Rows,
        squares: Squares | None,
        n_sequences: int,
        total_sequences: int,
        *,
        update: Callable[[Any, int], Any] | None = None,
    ) -> Self:
        """Blend a minibatch into what is kept, and update when the large batch is full."""
        parts = {"start": counts.start, "transitions": counts.transitions}
        if squares is not None:
            parts |= {f"squares_{name}": value for name, value in squares._asdict().items()}
        copies = total_sequences / n_sequences
        seen = float(self.pending.get("seen", np.zeros(())))
        n = float(self.pending.get("updates", np.zeros(()))) + 1.0
        rate = (self.delay + n) ** -self.forgetting_rate if self.pending else 1.0
        kept = {
            name: (1.0 - rate) * self.pending.get(name, 0.0) + rate * copies * value
            for name, value in parts.items()
        }
        seen += n_sequences
        pending = {**kept, "updates": np.asarray(n), "seen": np.asarray(seen)}
        if seen < min(self.batch_size, total_sequences):
            return replace(self, pending=pending)
        updated = replace(self, pending=kept, n_pending=total_sequences).updated(total_sequences)
        return replace(updated, pending={**pending, "seen": np.zeros(())})


class Variant(NamedTuple):
    """Options of the HDP, and what keeps its prior."""

    options: sj.HDPOptions
    prior: type[HDP] = HDP


VARIANTS = {
    "paper": Variant(PAPER),
    "second-order tables": Variant(replace(PAPER, second_order_tables=True)),
    "sorted sticks": Variant(replace(PAPER, sort_states=True)),
    "exact row normaliser": Variant(replace(PAPER, normalize_rows=False)),
    "running statistics": Variant(PAPER, RunningHDP),
    "E in place of G": Variant(PAPER, MeanHDP),
    "Gamma(1, 1) on α and γ": Variant(
        replace(PAPER, alpha_prior=(1.0, 1.0), gamma_prior=(1.0, 1.0))
    ),
    "exchangeable tables": Variant(replace(PAPER, exchangeable_tables=True)),
    "exchangeable, sorted": Variant(replace(PAPER, exchangeable_tables=True, sort_states=True)),
}


class Problem(NamedTuple):
    """Data to learn from and to score, and how to learn."""

    train: sj.Sequences
    test: sj.Sequences
    n_symbols: int
    n_states: int
    n_passes: int
    true_score: float | None = None


class OptionHMM(sj.HDPHMM):
    """An HDP-HMM whose prior may be of another class."""

    prior_class: type[HDP] = HDP

    def _make_transitions(self) -> Transitions:
        made = super()._make_transitions()
        return self.prior_class(**vars(made))


def spelled(folder: Path, n_words: int) -> tuple[sj.Sequences, sj.Sequences]:
    """Take distinct words as sequences of letters: `n_words` to learn from, 2,000 to score."""
    tokens = {word for sentence in read_sentences(folder / "train.txt") for word in sentence}
    words = sorted(word for word in tokens if word.isascii() and word.isalpha())
    order = np.random.default_rng(0).permutation(len(words))
    letters = [np.frombuffer(words[i].encode(), np.uint8) - 97 for i in order]
    parts = letters[2000 : 2000 + n_words], letters[:2000]
    train, test = (sj.Sequences.from_list(part) for part in parts)
    return train, test


def drawn(n_sequences: int, seed: int = 0, n_true: int = 40) -> Problem:
    """Draw data from an HDP-HMM with α = 3, γ = 5 and 60 symbols, cut off at 40 states."""
    rng = np.random.default_rng(seed)
    sticks = np.append(rng.beta(1.0, 5.0, n_true - 1), 1.0)
    weights = sticks * np.concatenate([[1.0], np.cumprod(1.0 - sticks)[:-1]])
    rows = rng.gamma(np.maximum(3.0 * weights, 1e-12), size=(n_true + 1, n_true)) + 1e-300
    rows /= rows.sum(axis=1, keepdims=True)
    symbols = rng.dirichlet(np.full(60, 0.1), n_true)
    truth = sj.Statistics(1e12 * rows[0], 1e12 * rows[1:], 1e12 * symbols)
    model = sj.HMM(
        n_true,
        sj.Categorical(60, concentration=1e-6),
        transition_concentration=1e-6,
        init=truth,
        delay=1e15,
        forgetting_rate=1.0,
        dtype="float64",
    ).partial_fit([[0]], total_sequences=1)
    data, _ = model.sample(n_sequences + 2000, 20, random_state=seed)
    train, test = data[:n_sequences], data[n_sequences:]
    return Problem(train, test, 60, 40, 30, model.score(test, per_step=True))


def problems(folder: Path, n_passes: int) -> dict[str, Callable[[], Problem]]:
    """Name every data set, made when it is asked for."""

    def text() -> Problem:
        vocabulary, train, test = read_corpus(folder)
        return Problem(train, test, len(vocabulary), 45, n_passes)

    def letters(n_words: int, n_states: int, passes: int) -> Callable[[], Problem]:
        return lambda: Problem(*spelled(folder, n_words), 26, n_states, passes)

    return {
        "text, K = 45": text,
        "1,000 words, K = 50": letters(1000, 50, 30),
        "5,000 words, K = 50": letters(5000, 50, 10),
        "HDP-HMM, 100 sequences": lambda: drawn(100),
        "HDP-HMM, 300 sequences": lambda: drawn(300),
        "HDP-HMM, 1,000 sequences": lambda: drawn(1000),
    }


def measure(problem: Problem, seeds: int) -> dict[str, Any]:
    """Fit every variant and every symmetric prior with every seed."""
    batch_size = max(10, min(100, len(problem.train) // 10))
    common = {"batch_size": batch_size, "n_passes": problem.n_passes, "n_jobs": 1}
    emission = sj.Categorical(problem.n_symbols)
    table: dict[str, Any] = {}

    def row(name: str, make: Callable[[int], Any]) -> None:
        fits = [make(seed).fit(problem.train) for seed in range(seeds)]
        scores = [fit.score(problem.test, per_step=True) for fit in fits]
        table[name] = {
            "score": round(float(np.mean(scores)), 4),
            "spread": round(float(np.std(scores)), 4),
        }
        if isinstance(fits[0], sj.HDPHMM):
            table[name]["alpha"] = round(float(np.mean([fit.hdp_.alpha for fit in fits])), 2)
            table[name]["effective_states"] = round(
                float(np.mean([fit.hdp_.effective_states for fit in fits])), 1
            )
        print(f"  {name:24}", table[name], flush=True)

    for a in SYMMETRIC:
        row(
            f"symmetric {a:g}",
            lambda seed, a=a: sj.HMM(
                problem.n_states,
                emission,
                transition_concentration=a,
                random_state=seed,
                **common,
            ),
        )
    for name, variant in VARIANTS.items():

        def make(seed: int, variant: Variant = variant) -> OptionHMM:
            model = OptionHMM(
                problem.n_states,
                emission,
                random_state=seed,
                hdp=variant.options,
                moves=None,
                **common,
            )
            model.prior_class = variant.prior
            return model

        row(name, make)
    return table


def main() -> None:
    """Measure on all data sets, or on those that are named, and write the result."""
    parser = corpus_argument(__doc__ or "")
    parser.add_argument("--only", nargs="*", help="names of data sets; others stay as they are")
    arguments = parser.parse_args()
    makers = problems(arguments.corpus, arguments.passes)
    for name in arguments.only or makers:
        problem = makers[name]()
        print(f"{name}: {len(problem.train)} sequences, {problem.train.n_steps} steps", flush=True)
        measured = {
            "sequences": len(problem.train),
            "steps": problem.train.n_steps,
            "n_states": problem.n_states,
            "passes": problem.n_passes,
            "seeds": arguments.seeds,
            "rows": measure(problem, arguments.seeds),
        }
        if problem.true_score is not None:
            measured["true_score"] = round(problem.true_score, 4)
        known = json.loads(RESULT.read_text())["problems"] if RESULT.exists() else {}
        known[name] = measured
        ordered = {name: known[name] for name in makers if name in known}
        write_result(
            RESULT,
            {
                "command": "python -m experiments.hdp_question FOLDER",
                "problems": ordered,
            },
        )


if __name__ == "__main__":
    main()
