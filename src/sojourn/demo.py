"""The demonstration: word classes from Python's own documentation, and files to try things on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sojourn.families import Categorical
from sojourn.models import HDPHMM, HMM
from sojourn.progress import LiveProgress
from sojourn.sequences import Sequences
from sojourn.vocabulary import Vocabulary

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z\"“(])")
_TOKEN = re.compile(r"[A-Za-z_]\w*(?:'[a-z]+)?|\d+(?:\.\d+)*|[^\w\s]")
_NO_PROSE = re.compile(r"::=|>>>|\*\*\*\*|====|----")


EARTHQUAKES = np.array([
    13, 14, 8, 10, 16, 26, 32, 27, 18, 32, 36, 24, 22, 23, 22, 18, 25, 21, 21, 14, 8, 11, 14,
    23, 18, 17, 19, 20, 22, 19, 13, 26, 13, 14, 22, 24, 21, 22, 26, 21, 23, 24, 27, 41, 31, 27,
    35, 26, 28, 36, 39, 21, 17, 22, 17, 19, 15, 34, 10, 15, 22, 18, 15, 20, 15, 22, 19, 16, 30,
    27, 29, 23, 20, 16, 21, 21, 25, 16, 18, 15, 18, 14, 10, 15, 8, 15, 6, 11, 8, 7, 18, 16,
    13, 12, 13, 20, 15, 16, 12, 18, 15, 16, 13, 15, 16, 11, 11,
])  # fmt: skip
"""Major earthquakes (magnitude 7 or more) in the world per year, 1900 to 2006: W. Zucchini and
I. L. MacDonald, Hidden Markov Models for Time Series, 2009, table 1.1."""

FIRST_YEAR = 1900


def demo_files() -> dict[str, tuple[str, str]]:
    """Return files to try things on: what is in them, and their text, by name.

    Examples
    --------
    >>> {name: what for name, (what, _) in demo_files().items()}["earthquakes.csv"]
    'major earthquakes in the world per year, 1900 to 2006'
    """
    sentences = [" ".join(sentence) for sentence in documentation_sentences()]
    held_out = sentences[::10]
    train = [sentence for i, sentence in enumerate(sentences) if i % 10]
    years = [f"{FIRST_YEAR + i},{count}" for i, count in enumerate(EARTHQUAKES.tolist())]
    return {
        "corpus.txt": (f"{len(train):,} sentences of Python's documentation", "\n".join(train)),
        "held-out.txt": (f"{len(held_out):,} other sentences", "\n".join(held_out)),
        "earthquakes.csv": (
            "major earthquakes in the world per year, 1900 to 2006",
            "\n".join(["year,count", *years]),
        ),
        "walk.csv": ("ten walks, made up", "\n".join(["walk,x,y", *_walks()])),
    }


def _walks() -> list[str]:
    """Draw ten walks that go through three places."""
    rng = np.random.default_rng(0)
    rows = []
    for walk in range(10):
        for t in range(30):
            x, y = rng.normal(t // 10 * 4.0, 1.0, 2)
            rows.append(f"{walk},{x:.4f},{y:.4f}")
    return rows


def documentation_sentences() -> list[list[str]]:
    """Return the sentences of Python's language documentation as lists of lower-case tokens.

    Grammar rules, console sessions and underlines are left out, and so are repetitions: topics
    quote one another, and a sentence in both training and held-out data would inflate the score.

    Examples
    --------
    >>> sentences = documentation_sentences()
    >>> len(sentences) > 1000
    True
    """
    from pydoc_data.topics import topics

    sentences: dict[tuple[str, ...], None] = {}
    for name in sorted(topics):
        for paragraph in re.split(r"\n\s*\n", topics[name]):
            if _NO_PROSE.search(paragraph):
                continue
            for sentence in _SENTENCE_END.split(paragraph):
                tokens = tuple(token.lower() for token in _TOKEN.findall(sentence))
                if len(tokens) > 1:
                    sentences[tokens] = None
    return [list(tokens) for tokens in sentences]


def unigram_score(train: Sequences, held_out: Sequences, n_symbols: int, prior: float) -> float:
    """Held-out log likelihood per token if tokens are independent, with a Dirichlet prior."""
    counts = np.bincount(train.values, minlength=n_symbols) + prior
    return float(np.log(counts / counts.sum())[held_out.values].mean())


def run_demo(
    console: Console, out: Path, *, n_states: int = 30, n_passes: int = 30, seed: int = 0
) -> None:
    """Learn word classes from the documentation, show them, and save the model."""
    sentences = documentation_sentences()
    order = np.random.default_rng(seed).permutation(len(sentences))
    n_held_out = len(sentences) // 10
    train = [sentences[i] for i in order[n_held_out:]]
    held_out = [sentences[i] for i in order[:n_held_out]]
    vocabulary = Vocabulary.from_sequences(train, min_count=2)
    train_data, held_out_data = vocabulary.encode(train), vocabulary.encode(held_out)
    console.print(
        f"Python's language documentation: [bold]{len(sentences):,}[/] different sentences, "
        f"{train_data.n_steps + held_out_data.n_steps:,} tokens, {len(vocabulary):,} words; "
        f"{n_held_out:,} sentences held out.\n",
        highlight=False,
    )
    emission = Categorical(vocabulary=vocabulary)
    hdp = HDPHMM(n_states, emission, batch_size=100, n_passes=n_passes, random_state=seed)
    svi = HMM(n_states, emission, inference="svi", batch_size=100, n_passes=n_passes,
              random_state=seed)  # fmt: skip
    for model, title in ((hdp, "HDP-HMM by SCVI"), (svi, "HMM by SVI")):
        console.print(f"[dim]{title}: {n_states} states, {n_passes} passes[/]", highlight=False)
        with LiveProgress(n_passes, title, console) as live:
            model.fit(train_data, validation=held_out_data, callback=live)
    hdp.save(out)
    console.print(word_classes(hdp))
    console.print(
        scores(
            {
                "unigram": unigram_score(train_data, held_out_data, len(vocabulary), 0.1),
                "HMM by SVI": svi.history_[-1]["score"],
                "HDP-HMM by SCVI": hdp.history_[-1]["score"],
            }
        )
    )
    summary = hdp.hdp_
    console.print(
        f"The HDP has E[α] = {summary.alpha:.2f}, E[γ] = {summary.gamma:.2f} and "
        f"{summary.effective_states:.1f} effective states.\n"
        f"The model is saved in [bold]{out}[/]: "
        f'[cyan]sojourn.load("{out}")[/] reads it.',
        highlight=False,
    )


def word_classes(model: HDPHMM, n_classes: int = 15, n_words: int = 8) -> Table:
    """Tabulate the largest states: share of the tokens, most probable words and next state."""
    from rich.table import Table

    statistics = model.statistics_
    sizes = statistics.emissions.sum(axis=1)
    words = model.emission_.vocabulary.words
    table = Table(title="Learned word classes, largest first", title_justify="left")
    table.add_column("state", justify="right")
    table.add_column("share", justify="right")
    table.add_column("most probable words", ratio=1)
    table.add_column("next", justify="right")
    following = model.transmat_.argmax(axis=1)
    for k in np.argsort(-sizes)[:n_classes]:
        top = np.argsort(-statistics.emissions[k])[:n_words]
        table.add_row(
            str(k),
            f"{sizes[k] / sizes.sum():.1%}",
            " ".join(words[w] for w in top),
            str(following[k]),
        )
    return table


def scores(held_out: dict[str, float]) -> Table:
    """Tabulate held-out scores."""
    from rich.table import Table

    table = Table(title="Held-out log likelihood per token (nats)", title_justify="left")
    table.add_column("model")
    table.add_column("score", justify="right")
    table.add_column("perplexity", justify="right")
    for name, score in held_out.items():
        table.add_row(name, f"{score:.4f}", f"{np.exp(-score):.1f}")
    return table
