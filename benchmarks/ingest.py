"""How fast text becomes symbols: the rate of `ingest`, and of splitting words in Python.

python -m benchmarks.ingest [--tokens 20000000]

A text of random words, with frequencies as in a language, is written to a temporary folder and
ingested several times.  The best rate counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import write_result
from sojourn.sources.ingest import ingest

RESULT = Path(__file__).parent / "results" / "ingest.json"
N_WORDS = 60_000
LINE = 20  # words per line on average


def write_text(path: Path, n_tokens: int, rng: np.random.Generator) -> None:
    """Write lines of random words whose n-th has a share of about 1/n."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, n)) for n in rng.integers(2, 12, N_WORDS)]
    shares = 1.0 / np.arange(1, N_WORDS + 1)
    shares /= shares.sum()
    with path.open("w") as file:
        for begin in range(0, n_tokens, 2**20):
            drawn = rng.choice(N_WORDS, min(2**20, n_tokens - begin), p=shares)
            ends = np.where(rng.random(len(drawn)) < 1 / LINE, "\n", " ")
            ends[-1] = "\n"
            file.writelines(words[word] + end for word, end in zip(drawn, ends, strict=True))


def rate(n_tokens: int, run: Callable[[], Any], repeats: int) -> float:
    """Return the best of several rates in million tokens per second."""
    best = np.inf
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
    return round(n_tokens / best / 1e6, 2)


def main() -> None:
    """Measure, print and write the rates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=20_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text, out = folder / "text.txt", folder / "text.parquet"
        write_text(text, arguments.tokens, np.random.default_rng(0))
        rates = {
            "whitespace": rate(
                arguments.tokens, lambda: ingest(text, out, overwrite=True), arguments.repeats
            ),
            "whitespace, lower case": rate(
                arguments.tokens,
                lambda: ingest(text, out, overwrite=True, lower=True),
                arguments.repeats,
            ),
            "a pattern, in Python": rate(
                arguments.tokens, lambda: ingest(text, out, overwrite=True, pattern=r"\S+"), 1
            ),
        }
        size = round(text.stat().st_size / 2**20, 1)
    measured = {
        "command": "python -m benchmarks.ingest",
        "tokens": arguments.tokens,
        "mebibytes": size,
        "million_tokens_per_second": rates,
    }
    print(measured)
    write_result(RESULT, measured)


if __name__ == "__main__":
    main()
