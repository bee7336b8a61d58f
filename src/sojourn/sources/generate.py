"""Synthetic corpora of any size from a known hidden Markov model, similar to English."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.kernels.threads import ahead
from sojourn.sequences import Sequences
from sojourn.sources.ingest import COLUMN, Report
from sojourn.sources.write import ParquetSink
from sojourn.whole_files import check_target, write_whole

_PIECE = 8192
_MEAN_LENGTH = 22.0
_LONGEST = 120
_ZIPF = 1.0
_ZIPF_SHIFT = 2.7
_SPREAD = 2.5  # standard deviation of the log preference of a state for a word

Floats = NDArray[np.float64]


class Truth(NamedTuple):
    """Parameters of a hidden Markov model.

    Attributes
    ----------
    start : (K,) array
    transitions : (K, K) array
    emissions : (K, V) float32 array
    """

    start: Floats
    transitions: Floats
    emissions: NDArray[np.float32]

    def save(self, path: Path) -> None:
        """Write the parameters to a safetensors file, atomically."""
        import safetensors.numpy

        write_whole(path, safetensors.numpy.save(self._asdict()))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Truth:
        """Read what `save` wrote."""
        import safetensors.numpy

        return cls(**safetensors.numpy.load_file(path))


def draw_truth(n_states: int, n_symbols: int, seed: int) -> Truth:
    """Draw a hidden Markov model whose words follow Zipf's law.

    The frequency of word w is about 1 / (w + 2.7), and each state prefers different words:
    frequencies are multiplied by log-normal weights.  Rows of transitions are Dirichlet(0.2).

    Examples
    --------
    >>> truth = draw_truth(n_states=3, n_symbols=1000, seed=0)
    >>> truth.emissions.shape, bool((truth.emissions > 0).all())
    ((3, 1000), True)
    """
    rng = np.random.default_rng([seed, 0])
    frequencies = (np.arange(n_symbols) + _ZIPF_SHIFT) ** -_ZIPF
    emissions = np.empty((n_states, n_symbols), np.float32)
    for k in range(n_states):
        weights = frequencies * np.exp(_SPREAD * rng.standard_normal(n_symbols))
        emissions[k] = weights / weights.sum()
    start = rng.dirichlet(np.full(n_states, 0.5))
    return Truth(start, rng.dirichlet(np.full(n_states, 0.2), n_states), emissions)


def draw_sentences(truth: Truth, n_sequences: int, seed: int) -> Iterator[Sequences]:
    """Yield sentences of words 0..V−1, piece by piece.

    Lengths are negative binomial with mean 22, from 1 to 120, roughly those of sentences in
    English newspapers.

    Examples
    --------
    >>> truth = draw_truth(n_states=3, n_symbols=1000, seed=0)
    >>> pieces = list(draw_sentences(truth, 10_000, seed=1))
    >>> sum(map(len, pieces)), round(sum(piece.n_steps for piece in pieces) / 10_000)
    (10000, 22)
    """
    sampler = _Sampler(truth)

    def draw(number: int) -> Sequences:
        rng = np.random.default_rng([seed, 1, number])
        return sampler.draw(min(_PIECE, n_sequences - number * _PIECE), rng)

    yield from ahead(draw, -(-n_sequences // _PIECE))


class _Sampler:
    """Inversion of cumulative sums, for many sentences at a time."""

    def __init__(self, truth: Truth) -> None:
        self.start = np.cumsum(truth.start)
        self.transitions = np.cumsum(truth.transitions, axis=1)
        # Single precision is too coarse for rare words, so double precision, one state at a time.
        self.words = [np.cumsum(row, dtype=np.float64) for row in truth.emissions]

    def draw(self, n_sequences: int, rng: np.random.Generator) -> Sequences:
        shape = 3.0
        lengths = rng.negative_binomial(shape, shape / (shape + _MEAN_LENGTH - 1), n_sequences) + 1
        lengths = -np.sort(-np.minimum(lengths, _LONGEST))  # longest first: the rest are a prefix
        # Step by step, with the sentences that have not ended at the front.
        active = np.searchsorted(-lengths, -np.arange(lengths[0]), side="left")
        columns = [self._states(None, active[0], rng)]
        for n in active[1:]:
            columns.append(self._states(columns[-1][:n], n, rng))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        states = np.empty(offsets[-1], np.int64)
        for t, column in enumerate(columns):
            states[offsets[: len(column)] + t] = column
        drawn = Sequences(self._emit(states, rng), offsets)
        return drawn.take(rng.permutation(n_sequences))

    def _states(
        self, before: NDArray[np.int64] | None, n: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        u = rng.random(n)
        last = len(self.start) - 1  # rounding may leave the last cumulative sum below one
        if before is None:
            return np.minimum(np.searchsorted(self.start, u, side="right"), last)
        states = np.empty(n, np.int64)
        for k, chosen in _by_state(before, len(self.start)):
            states[chosen] = np.searchsorted(self.transitions[k], u[chosen], side="right")
        return np.minimum(states, last)

    def _emit(self, states: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int32]:
        words = np.empty(len(states), np.int32)
        for k, chosen in _by_state(states, len(self.start)):
            cumulative = self.words[k]
            u = rng.random(len(chosen)) * cumulative[-1]
            words[chosen] = np.searchsorted(cumulative, u, side="right")
        return np.minimum(words, len(self.words[0]) - 1)


def _by_state(states: NDArray[np.int64], n_states: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each state with the positions where it occurs."""
    order = np.argsort(states.astype(np.int16), kind="stable")
    ends = np.cumsum(np.bincount(states, minlength=n_states))
    for k in range(n_states):
        chosen = order[ends[k - 1] if k else 0 : ends[k]]
        if len(chosen):
            yield k, chosen


def truth_path(out: Path) -> Path:
    """Return the path of the parameters of a corpus."""
    return out.with_suffix(".truth.safetensors")


def generate(
    out: str | PathLike[str],
    *,
    n_sequences: int,
    n_states: int = 45,
    n_symbols: int = 200_000,
    seed: int = 0,
    n_held_out: int = 0,
    overwrite: bool = False,
    report: Report | None = None,
) -> Path:
    """Generate a corpus as a Parquet file, and write the true parameters next to it.

    Parameters
    ----------
    out : path
        ``corpus.parquet``; ``corpus.truth.safetensors`` and, if requested,
        ``corpus.held-out.parquet`` are written next to it.
    n_sequences : int
        Number of sentences, of 22 words on average.
    n_states, n_symbols : int
        Size of the model.
    seed : int
    n_held_out : int
        Number of further sentences from the same model, in a separate file.
    overwrite : bool
    report : callable, optional
        Called with "generating", the share done, and sentences so far.

    Returns
    -------
    Path
        `out`.

    Examples
    --------
    >>> import sojourn as sj, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = generate(f"{folder}/corpus.parquet", n_sequences=100, n_states=3, n_symbols=50)
    ...     sj.open(path).n_sequences
    100
    """
    out = Path(out)
    targets = {out: (n_sequences, seed), out.with_suffix(".held-out.parquet"): (n_held_out, ~seed)}
    for target in (*targets, truth_path(out)):
        check_target(target, overwrite)
    truth = draw_truth(n_states, n_symbols, seed)
    for target, (size, own_seed) in targets.items():
        if size == 0:
            continue
        n_drawn = 0
        with ParquetSink(target, COLUMN, overwrite=overwrite) as sink:
            for piece in draw_sentences(truth, size, own_seed % 2**32):
                sink.write(piece)
                n_drawn += len(piece)
                if report is not None:
                    report("generating", n_drawn / size, n_drawn)
    truth.save(truth_path(out))
    return out
