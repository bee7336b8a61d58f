"""Data sets for `experiments.defaults`: their sizes, how they are drawn, and real ones."""

from __future__ import annotations

import zlib
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray
from scipy import stats

import sojourn as sj
from experiments.corpus import read_corpus
from experiments.number_of_states import (
    Density,
    Draw,
    bernoulli,
    categorical,
    with_truth,
)
from sojourn.demo import EARTHQUAKES
from sojourn.inference.occupancy import USED_SHARE
from sojourn.kernels import cpu
from sojourn.kernels.interface import Potentials
from sojourn.sources import generate
from sojourn.sources.base import joined
from sojourn.sources.generate import draw_truth

Floats = NDArray[np.float64]

# What is held out, in steps of one series and in sequences.
LEAST_HELD_OUT, MOST_HELD_OUT = 1000, 20_000
HELD_OUT_SEQUENCES = 400
HELD_OUT_SENTENCES = 10_000
WORDS_PER_SENTENCE = 22


class Problem(NamedTuple):
    """Data to learn from, and what is known about them.

    Attributes
    ----------
    family : Family
    train : Sequences
    test : Sequences or None
        Drawn from the same parameters; None where nothing is held out.
    true_states : int or None
        True states with more than half a per cent of the steps, which is what `n_states_` counts.
    truth_score : float or None
        Held-out log likelihood per step of the true parameters.
    """

    family: Any
    train: sj.Sequences
    test: sj.Sequences | None
    true_states: int | None
    truth_score: float | None


class Cell(NamedTuple):
    """One data set of the experiment; with the seed it is what is drawn.

    Attributes
    ----------
    kind : str
        A key of `KINDS`, or "earthquakes", "corpus" or "sentences".
    true_states : int or None
    n_sequences : int
    lengths : (int, int)
        Shortest and longest sequence.
    even : bool
        Whether all states have the same share of the steps.
    n_states : int or None
        Given to `HDPHMM`; None for twice the truth.
    most_seeds : int or None
    accepted : tuple of int
        Numbers of states that count as right; empty for those near the truth.
    n_symbols : int
        Of sentences.
    """

    kind: str
    true_states: int | None
    n_sequences: int = 1
    lengths: tuple[int, int] = (1000, 1000)
    even: bool = True
    n_states: int | None = None
    most_seeds: int | None = None
    accepted: tuple[int, ...] = ()
    n_symbols: int = 0

    @property
    def truncation(self) -> int:
        """Return the number of states that the model is given."""
        if self.n_states is not None:
            return self.n_states
        assert self.true_states is not None
        return 2 * self.true_states

    @property
    def n_steps(self) -> float:
        """Return about how many steps there are to learn from."""
        mean = WORDS_PER_SENTENCE if self.kind == "sentences" else sum(self.lengths) / 2
        return self.n_sequences * mean


def series(kind: str, n_steps: int, true_states: int, *, even: bool = True, **options: Any) -> Cell:
    """Describe one series."""
    return Cell(kind, true_states, 1, (n_steps, n_steps), even, **options)


def several(
    kind: str, n_sequences: int, true_states: int, *, even: bool = True, **options: Any
) -> Cell:
    """Describe sequences: of 200 steps if there are few of them, else of 10 to 60."""
    lengths = (200, 200) if n_sequences < 500 else (10, 60)
    return Cell(kind, true_states, n_sequences, lengths, even, **options)


def sentences(n_tokens: int, true_states: int, n_symbols: int) -> Cell:
    """Describe a corpus with the look of English."""
    n_sequences = n_tokens // WORDS_PER_SENTENCE
    return Cell("sentences", true_states, n_sequences, n_symbols=n_symbols, most_seeds=3)


# ---- emissions ----------------------------------------------------------------------------------


def gaussian(
    n_states: int, rng: np.random.Generator, apart: float
) -> tuple[sj.Gaussian, Draw, Density]:
    """Make round Gaussian states on a triangular lattice, neighbours `apart` sigma apart."""
    size = int(np.ceil(np.sqrt(n_states))) + 2
    row, column = np.indices((2 * size + 1, 2 * size + 1)).reshape(2, -1) - float(size)
    points = apart * np.stack([column + row / 2, row * np.sqrt(0.75)], axis=1)
    near = np.argsort(np.linalg.norm(points, axis=1), kind="stable")[: n_states + n_states // 2]
    means = points[rng.permutation(near)[:n_states]]

    def draw(rng: np.random.Generator, z: NDArray[Any]) -> NDArray[Any]:
        return means[z] + rng.normal(size=(len(z), 2))

    def density(x: NDArray[Any]) -> NDArray[Any]:
        squares = ((x[:, None] - means) ** 2).sum(axis=2)
        return -0.5 * squares - np.log(2 * np.pi)

    return sj.Gaussian(), draw, density


def poisson(n_states: int, rng: np.random.Generator) -> tuple[sj.Poisson, Draw, Density]:
    """Make counts, whose roots have neighbouring means about three standard deviations apart."""
    rates = (1.0 + 1.5 * rng.permutation(n_states)) ** 2

    def draw(rng: np.random.Generator, z: NDArray[Any]) -> NDArray[Any]:
        return rng.poisson(rates[z])

    return sj.Poisson(), draw, lambda x: stats.poisson(rates).logpmf(x.reshape(-1, 1))


KINDS: dict[str, Any] = {
    "Gaussian, 5 sigma": partial(gaussian, apart=5.0),
    "Gaussian, 3 sigma": partial(gaussian, apart=3.0),
    "Poisson": poisson,
    "Bernoulli": bernoulli,
    "categorical": categorical,
}


# ---- states -------------------------------------------------------------------------------------


def state_shares(n_states: int, rng: np.random.Generator, *, even: bool) -> Floats:
    """Draw shares of the steps; the smallest of uneven ones is 2%, or less beyond 20 states."""
    if even:
        return np.full(n_states, 1.0 / n_states)
    smallest = min(0.02, 0.4 / n_states)
    rest = rng.dirichlet(np.ones(n_states))
    rest -= rest.min()
    return smallest + (1.0 - smallest * n_states) * rest / rest.sum()


def transition_rows(shares: Floats, rng: np.random.Generator) -> Floats:
    """Draw transitions under which states have the given shares in the long run.

    A state stays with a probability between 0.5 and 0.9; jumps are random, and balanced so that
    every state is left as often as it is entered.
    """
    jumps = rng.gamma(0.5, size=(len(shares), len(shares))) + 0.01
    for _ in range(500):
        jumps *= (shares / jumps.sum(axis=0))[None, :]
        jumps *= (shares / jumps.sum(axis=1))[:, None]
    stay = rng.uniform(0.5, 0.9)
    return stay * np.eye(len(shares)) + (1.0 - stay) * jumps / shares[:, None]


@numba.njit(cache=True)
def walk(start: Floats, rows: Floats, offsets: NDArray[np.int64], u: Floats) -> NDArray[np.int64]:
    """Draw states by inverting cumulative sums, sequence by sequence."""
    states = np.empty(len(u), dtype=np.int64)
    last = len(start) - 1
    for n in range(len(offsets) - 1):
        sums = start
        for t in range(offsets[n], offsets[n + 1]):
            states[t] = min(np.searchsorted(sums, u[t], side="right"), last)
            sums = rows[states[t]]
    return states


# ---- problems -----------------------------------------------------------------------------------


def draw_problem(name: str, cell: Cell, seed: int, corpus: Path | None = None) -> Problem:
    """Draw the data of a cell, or read them."""
    if cell.kind == "earthquakes":
        return Problem(sj.Poisson(), one_series(EARTHQUAKES), None, cell.true_states, None)
    if cell.kind == "corpus":
        assert corpus is not None
        vocabulary, train, test = read_corpus(corpus)
        return Problem(sj.Categorical(len(vocabulary)), train, test, None, None)
    if cell.kind == "sentences":
        return draw_sentences(cell, seed)
    return draw_sequences(name, cell, seed)


def one_series(values: NDArray[Any]) -> sj.Sequences:
    """Make data of a single sequence."""
    return sj.Sequences.from_lengths(values, np.array([len(values)]))


def draw_sequences(name: str, cell: Cell, seed: int) -> Problem:
    """Draw sequences, and as many from the same parameters as are held out."""
    assert cell.true_states is not None
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    family, draw, density = KINDS[cell.kind](cell.true_states, rng)
    shares = state_shares(cell.true_states, rng, even=cell.even)
    rows = transition_rows(shares, rng)
    low, high = cell.lengths
    if cell.n_sequences == 1:
        held_out = np.array([min(max(high, LEAST_HELD_OUT), MOST_HELD_OUT)])
    else:
        held_out = rng.integers(low, high + 1, HELD_OUT_SEQUENCES)
    lengths = np.concatenate([rng.integers(low, high + 1, cell.n_sequences), held_out])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    u = rng.random(int(offsets[-1]))
    states = walk(np.cumsum(shares), np.cumsum(rows, axis=1), offsets, u)
    data = sj.Sequences.from_lengths(draw(rng, states), lengths)
    drawn = with_truth(data, states, cell.n_sequences, shares, rows, density)
    return Problem(family, drawn.train, drawn.test, cell.true_states, drawn.truth_score)


def draw_sentences(cell: Cell, seed: int) -> Problem:
    """Draw sentences, as `sojourn generate` does."""
    assert cell.true_states is not None
    truth = draw_truth(cell.true_states, cell.n_symbols, seed)
    n_sequences = cell.n_sequences + HELD_OUT_SENTENCES
    drawn = joined(list(generate.draw_sentences(truth, n_sequences, seed + 1)))
    train, test = drawn[: cell.n_sequences], drawn[cell.n_sequences :]
    potentials = Potentials(
        truth.start, truth.transitions, np.ascontiguousarray(truth.emissions.T, dtype=np.float64)
    )
    values = np.asarray(test.values, dtype=np.int32)
    score = cpu.log_normalizers(potentials, values, test.offsets, n_threads=1).sum() / test.n_steps
    shares = np.linalg.matrix_power(truth.transitions, 4096)[0]
    used = int((shares > USED_SHARE).sum())
    return Problem(sj.Categorical(cell.n_symbols), train, test, used, float(score))


# ---- the cells ----------------------------------------------------------------------------------

SIZES: dict[str, Cell] = {
    "100 steps, Gaussian 2": series("Gaussian, 5 sigma", 100, 2),
    "100 steps, Poisson 2": series("Poisson", 100, 2),
    "300 steps, Gaussian 3, uneven": series("Gaussian, 5 sigma", 300, 3, even=False),
    "300 steps, Poisson 3": series("Poisson", 300, 3),
    "300 steps, Bernoulli 4": series("Bernoulli", 300, 4),
    "1,000 steps, close Gaussian 4": series("Gaussian, 3 sigma", 1000, 4),
    "1,000 steps, Gaussian 8, uneven": series("Gaussian, 5 sigma", 1000, 8, even=False),
    "1,000 steps, Poisson 3, uneven": series("Poisson", 1000, 3, even=False),
    "1,000 steps, Bernoulli 8": series("Bernoulli", 1000, 8),
    "1,000 steps, categorical 4": series("categorical", 1000, 4),
    "1,000 steps, Gaussian 20": series("Gaussian, 5 sigma", 1000, 20),
    "10,000 steps, Gaussian 20": series("Gaussian, 5 sigma", 10_000, 20),
    "10,000 steps, close Gaussian 8, uneven": series("Gaussian, 3 sigma", 10_000, 8, even=False),
    "10,000 steps, Poisson 4, uneven": series("Poisson", 10_000, 4, even=False),
    "10,000 steps, Bernoulli 8": series("Bernoulli", 10_000, 8),
    "10,000 steps, categorical 8": series("categorical", 10_000, 8),
    "100,000 steps, Gaussian 40, uneven": series("Gaussian, 5 sigma", 100_000, 40, even=False),
    "100,000 steps, Poisson 8": series("Poisson", 100_000, 8),
    "100,000 steps, Bernoulli 20, uneven": series("Bernoulli", 100_000, 20, even=False),
    "100,000 steps, categorical 100": series("categorical", 100_000, 100, most_seeds=3),
    "2,000,000 steps, Gaussian 4": series("Gaussian, 5 sigma", 2_000_000, 4, most_seeds=3),
    "5 sequences, Gaussian 4, uneven": several("Gaussian, 5 sigma", 5, 4, even=False),
    "5 sequences, Poisson 3": several("Poisson", 5, 3),
    "5 sequences, categorical 4": several("categorical", 5, 4),
    "50 sequences, close Gaussian 8": several("Gaussian, 3 sigma", 50, 8),
    "50 sequences, Bernoulli 4, uneven": several("Bernoulli", 50, 4, even=False),
    "50 sequences, categorical 20": several("categorical", 50, 20),
    "500 sequences, Gaussian 8, uneven": several("Gaussian, 5 sigma", 500, 8, even=False),
    "500 sequences, Poisson 4": several("Poisson", 500, 4),
    "500 sequences, categorical 8, uneven": several("categorical", 500, 8, even=False),
    "5,000 sequences, close Gaussian 20": several("Gaussian, 3 sigma", 5000, 20),
    "5,000 sequences, Poisson 3, uneven": several("Poisson", 5000, 3, even=False),
    "5,000 sequences, Bernoulli 8, uneven": several("Bernoulli", 5000, 8, even=False),
    "5,000 sequences, categorical 40": several("categorical", 5000, 40),
}
"""One series of 100 to 2 million steps, and 5 to 5,000 sequences."""

KNOWN: dict[str, Cell] = {
    "one series of 1,000 steps, 4 Gaussian states": series(
        "Gaussian, 5 sigma", 1000, 4, n_states=10
    ),
    "one series of 1,236 counts, 3 Poisson states": series("Poisson", 1236, 3, n_states=10),
    "5 x 200 steps, 3 Gaussians 5 sigma apart": several("Gaussian, 5 sigma", 5, 3, n_states=10),
    "earthquakes, HDPHMM(20)": Cell(
        "earthquakes", 3, lengths=(107, 107), n_states=20, accepted=(2, 3)
    ),
    "2 million steps, 2 states, HDPHMM(10)": series(
        "Gaussian, 3 sigma", 2_000_000, 2, n_states=10, most_seeds=3
    ),
}
"""Cases on which earlier defaults failed."""

CORPUS: dict[str, Cell] = {"corpus": Cell("corpus", None, n_states=45, most_seeds=3)}

LARGE: dict[str, Cell] = {
    "2 million tokens, 45 states, V = 50,000": sentences(2_000_000, 45, 50_000),
    "2 million tokens, 100 states, V = 10,000": sentences(2_000_000, 100, 10_000),
    "20 million tokens, 45 states, V = 50,000": sentences(20_000_000, 45, 50_000),
    "20 million tokens, 100 states, V = 10,000": sentences(20_000_000, 100, 10_000),
    "100 million tokens, 45 states, V = 50,000": sentences(100_000_000, 45, 50_000),
    "100 million tokens, 100 states, V = 10,000": sentences(100_000_000, 100, 10_000),
}
"""Sentences: minutes on a GPU, up to hours on few cores."""

GROUPS = {"sizes": SIZES, "known": KNOWN, "corpus": CORPUS, "large": LARGE}
