"""Draws from the posterior of parameters and paths, and intervals from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sojourn.analysis import markov
from sojourn.analysis.evidence import Evidence
from sojourn.analysis.forecast import draw_rows
from sojourn.families import DecayedTable, Family
from sojourn.families.draws import draw_parameters
from sojourn.families.unknowns import one_hot, path_statistics
from sojourn.inference import Posterior
from sojourn.inference.local import CHUNK_STEPS
from sojourn.kernels import cpu
from sojourn.kernels.cpu.sampling import sample_paths
from sojourn.kernels.interface import Floats, Integers, Potentials
from sojourn.sequences import Sequences
from sojourn.transitions import Rows

METHODS = ("gibbs", "surrogate")
_MONITORED = 64  # emission parameters whose autocorrelation is looked at
_NUMBERS = 2**28  # of emission parameters, or of states on paths, that are kept

CHAIN_QUANTITIES: dict[str, Callable[[Floats], Floats]] = {
    "dwell_times_": markov.dwell_times,
    "stationary_": markov.stationary_distribution,
    "timescales_": markov.timescales,
    "mean_first_passage": markov.all_passage_times,
    "dwell_distribution": lambda matrix: markov.dwell_distribution(matrix, 100),
}
"""Quantities of the chain that follow from the transitions, by name."""


@dataclass(frozen=True, eq=False)
class PosteriorSamples:
    """Draws of the parameters, and of the paths of the data.

    Attributes
    ----------
    startprob_ : (n, K) array
    transmat_ : (n, K, K) array
    paths : (n, T) int32 array or None
        States of the data, flat; None if they are not kept.
    n_effective : float
        How many independent draws they are worth, by the parameter that moves slowest.

    Examples
    --------
    >>> import sojourn as sj
    >>> X = [[0] * 9 + [1] * 9] * 9
    >>> model = sj.HMM(2, sj.Categorical(2), random_state=0).fit(X)
    >>> samples = model.posterior_samples(X, 50)
    >>> low, high = samples.interval("transmat_", 0.9)
    >>> bool((low < high).all()), samples.draws("stationary_").shape
    (True, (50, 2))
    """

    startprob_: Floats
    transmat_: Floats
    paths: Integers | None
    n_effective: float
    _naturals: Floats = field(repr=False)
    _family: Family = field(repr=False)

    def __len__(self) -> int:
        return len(self.startprob_)

    @property
    def names(self) -> tuple[str, ...]:
        """Names that `draws` and `interval` take."""
        return (
            "startprob_",
            "transmat_",
            *self._family.parameter_names,
            *CHAIN_QUANTITIES,
        )

    def draws(self, name: str) -> Floats:
        """Return the draws of a quantity, one per row.

        Parameters
        ----------
        name : str
            ``startprob_``, ``transmat_``, an emission parameter such as ``means_``, or a quantity
            of the chain: ``dwell_times_``, ``stationary_``, ``timescales_``,
            ``mean_first_passage`` (from every state to every other) or ``dwell_distribution``
            (up to 100 steps).
        """
        if name in ("startprob_", "transmat_"):
            return np.asarray(getattr(self, name))
        if name in CHAIN_QUANTITIES:
            return CHAIN_QUANTITIES[name](self.transmat_)
        if name not in self._family.parameter_names:
            raise ValueError(f"there is no quantity {name!r}, only {', '.join(self.names)}")
        found = [self._family.parameters(natural)[name] for natural in self._naturals]
        return np.array(found)

    def interval(self, name: str, level: float = 0.9) -> tuple[Floats, Floats]:
        """Return an interval that contains a quantity with the given probability.

        Equal shares of the probability are below and above it, for each entry by itself.

        Parameters
        ----------
        name : str
            As for `draws`.
        level : float
            Probability, between 0 and 1.

        Returns
        -------
        low, high : arrays
            Of the shape of the quantity.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {level!r}")
        tail = 0.5 * (1.0 - level)
        low, high = np.quantile(self.draws(name), [tail, 1.0 - tail], axis=0)
        return low, high


@dataclass(frozen=True, eq=False)
class Drawn:
    """Parameters that paths are drawn under.

    Attributes
    ----------
    rows : Rows
        Start and transitions.
    table : DecayedTable
        Emission statistics whose collapsed potentials are used.
    """

    rows: Rows
    table: DecayedTable


@dataclass(eq=False)
class _Counts:
    """Counts of paths: starts, transitions and emission statistics (K, S)."""

    start: Floats
    transitions: Floats
    emissions: Floats
    overlaps: Floats


class PathSampler:
    """Draws paths of data under given parameters, and parameters given the counts of paths.

    Parameters
    ----------
    evidence : Evidence
    rng : Generator
    """

    def __init__(self, evidence: Evidence, rng: np.random.Generator) -> None:
        self.evidence, self.rng = evidence, rng
        self.family = evidence.posterior.learned(evidence.family)
        self.prior = self.family.prior()
        table = evidence.posterior.emissions
        self.surrogate = Drawn(Rows(evidence.start, evidence.transitions), table)

    def empty(self) -> _Counts:
        """Return counts of nothing."""
        k = self.evidence.n_states
        size = self.family.n_statistics
        return _Counts(np.zeros(k), np.zeros((k, k)), np.zeros((k, size)), np.zeros((k, k)))

    def potentials(self, encoded: Any, drawn: Drawn) -> tuple[Potentials, Integers]:
        """Return the factors of q(z) under given parameters."""
        own = self.evidence.family if drawn is self.surrogate else self.family
        rows = own.emission_rows(
            encoded,
            drawn.table,
            collapsed=True,
            dtype=np.float64,
            n_threads=self.evidence.n_threads,
        )
        return Potentials(*drawn.rows, rows.table, rows.log_scale), rows.index

    def draw_paths(self, chunk: Sequences, encoded: Any, drawn: Drawn) -> NDArray[np.int32]:
        """Draw the path of every sequence: filter forward, sample backward."""
        potentials, index = self.potentials(encoded, drawn)
        k = self.evidence.n_states
        states = np.empty(chunk.n_steps, np.int32)
        codes, masks = np.empty(0, np.int32), np.empty((0, 0))
        if chunk.labels is not None:
            codes, masks = chunk.labels.compact(k)
        failed = sample_paths(
            self.rng,
            np.asarray(index, np.int32),
            chunk.offsets,
            np.concatenate([potentials.start[None], potentials.transitions]),
            np.ascontiguousarray(potentials.emissions[:, :k]),
            np.empty(0),
            states,
            np.empty((int(chunk.lengths.max()), k)),
            np.asarray(codes, np.int32),
            np.ascontiguousarray(masks),
        )
        if failed >= 0:
            raise FloatingPointError(f"sequence {failed} has no possible state path")
        return states

    def add(
        self, counts: _Counts, chunk: Sequences, encoded: Any, states: Integers, drawn: Drawn
    ) -> None:
        """Count a path of a chunk, with unknowns of steps drawn under given parameters."""
        k = self.evidence.n_states
        first = np.zeros(chunk.n_steps, np.bool_)
        first[chunk.offsets[:-1]] = True
        counts.start += np.bincount(states[first], minlength=k)
        later = np.flatnonzero(~first)
        cells = states[later - 1].astype(np.int64) * k + states[later]
        counts.transitions += np.bincount(cells, minlength=k * k).reshape(k, k)
        if self.family.latent:
            natural = self.prior + drawn.table.dense()
            counts.emissions += path_statistics(self.family, encoded, states, natural, self.rng)
            return
        chosen, threads = one_hot(states, k), self.evidence.n_threads
        sums = self.family.sum_statistics(encoded, chosen, n_threads=threads)
        counts.emissions += np.asarray(sums.dense(), np.float64).T

    def draw_rows(self, counts: _Counts) -> Rows:
        """Draw start and transitions given counts."""
        own = Posterior(
            Rows(counts.start, counts.transitions),
            self.evidence.posterior.emissions,
            self.evidence.posterior.transitions,
        )
        return draw_rows(own, self.rng)

    def draw_natural(self, counts: _Counts) -> Floats:
        """Draw emission parameters given counts."""
        drawn: Floats = draw_parameters(self.family, self.prior + counts.emissions, self.rng)
        if not self.family.latent:
            return drawn
        # What is interchangeable within states is in the same order in every draw.
        ordered: Floats = self.prior + self.family.canonical(drawn - self.prior)
        return ordered

    def drawn(self, rows: Rows, natural: Floats) -> Drawn:
        """Return drawn parameters in the form that potentials are computed from."""
        return Drawn(rows, DecayedTable(natural - self.prior, "float64"))


def draw_posterior(
    evidence: Evidence,
    pieces: Callable[[], Iterable[Sequences]],
    method: str,
    settings: Chain,
    seed: list[int],
) -> PosteriorSamples:
    """Draw parameters and paths from the posterior given data, eq (33).

    Parameters
    ----------
    evidence : Evidence
    pieces : callable
        Returns the validated data, piece by piece; called once per sweep.
    method : {"gibbs", "surrogate"}
        "surrogate" draws paths under the surrogates of training, and the parameters given their
        counts: one pass over the data, independent draws.  "gibbs" begins like that, and then draws
        paths given the drawn parameters, and so on: a blocked Gibbs sampler, started where training
        ended.
    settings : Chain
    seed : list of int
    """
    for name, least in (("n", 1), ("warmup", 0), ("thin", 1), ("max_sweeps", 1)):
        value = getattr(settings, name)
        if name == "thin" and value == "auto":
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if method not in METHODS:
        raise ValueError(f"method={method!r} is not one of {list(METHODS)}")
    sampler = PathSampler(evidence, np.random.default_rng(seed))
    n = settings.n
    if n * sampler.prior.size * evidence.n_states > _NUMBERS:
        raise ValueError(f"{n} draws of so many emission parameters do not fit: draw fewer")
    if method == "surrogate":
        kept = _independent(sampler, pieces(), n, settings.keep_paths)
    else:
        kept = _chain(sampler, pieces, settings)
    return PosteriorSamples(
        np.array(kept.starts),
        np.array(kept.matrices),
        np.array(kept.paths) if kept.paths else None,
        kept.effective(sampler.family),
        np.array(kept.naturals),
        sampler.family,
    )


@dataclass(eq=False)
class _Kept:
    """Draws that are kept, in the order of the chain."""

    starts: list[Floats] = field(default_factory=list)
    matrices: list[Floats] = field(default_factory=list)
    naturals: list[Floats] = field(default_factory=list)
    paths: list[Integers] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.starts)

    def thin(self) -> None:
        """Keep every other draw."""
        for name in ("starts", "matrices", "naturals", "paths"):
            setattr(self, name, getattr(self, name)[1::2])

    def effective(self, family: Family) -> float:
        """Return how many independent draws these are worth, by the quantity that moves slowest."""
        stay = np.array([np.diagonal(matrix) for matrix in self.matrices])
        shown = [next(iter(family.parameters(own).values())) for own in self.naturals]
        emissions = np.array(shown).reshape(len(self), -1)[:, :_MONITORED]
        return min(effective_size(trace) for trace in np.concatenate([stay, emissions], axis=1).T)


def effective_size(trace: Floats) -> float:
    """Return the number of independent draws that a correlated trace is worth, n / τ.

    τ = 1 + 2 Σ_k ρ_k is the integrated autocorrelation time, summed up to the first k above 5τ
    (Sokal 1997).

    Examples
    --------
    >>> effective_size(np.random.default_rng(0).normal(size=1000)) > 800
    True
    """
    n = len(trace)
    centred = trace - trace.mean()
    variance = float(centred @ centred)
    if n < 4 or variance <= 0.0:
        return float(n)
    transform = np.fft.rfft(centred, 2 * n)
    correlations = np.fft.irfft(transform * np.conj(transform))[:n] / variance
    times = 2.0 * np.cumsum(correlations) - 1.0
    far = np.flatnonzero(np.arange(n) >= 5.0 * times)
    time = times[far[0]] if len(far) else times[-1]
    return n / max(float(time), 1.0)


def _independent(
    sampler: PathSampler, pieces: Iterable[Sequences], n: int, keep_paths: bool
) -> _Kept:
    """Draw paths under the surrogates in one pass, and parameters given their counts."""
    every = [sampler.empty() for _ in range(n)]
    paths: list[list[Integers]] = [[] for _ in range(n)]
    for chunk, encoded in _encoded(sampler, pieces):
        for counts, path in zip(every, paths, strict=True):
            states = sampler.draw_paths(chunk, encoded, sampler.surrogate)
            sampler.add(counts, chunk, encoded, states, sampler.surrogate)
            if keep_paths:
                path.append(states)
    rows = [sampler.draw_rows(counts) for counts in every]
    naturals = [sampler.draw_natural(counts) for counts in every]
    whole = [np.concatenate(path) for path in paths] if keep_paths else []
    return _Kept([own.start for own in rows], [own.transitions for own in rows], naturals, whole)


@dataclass(frozen=True)
class Chain:
    """How a chain is run.

    Attributes
    ----------
    n : int
        Number of draws that are kept.
    warmup : int
        Sweeps before the first of them.
    thin : int or "auto"
        Sweeps from one kept draw to the next.  "auto" doubles them until the draws are worth half
        as many independent ones, 100 at most.
    max_sweeps : int
        Sweeps after which "auto" is content with what there is.
    keep_paths, in_memory : bool
    """

    n: int
    warmup: int
    thin: int | Literal["auto"]
    max_sweeps: int
    keep_paths: bool
    in_memory: bool


def _chain(
    sampler: PathSampler, pieces: Callable[[], Iterable[Sequences]], settings: Chain
) -> _Kept:
    """Draw paths given parameters and parameters given paths, in turn."""
    kept = _Kept()
    chunks = list(_encoded(sampler, pieces())) if settings.in_memory else None
    best: list[Integers] = []
    symmetric = sampler.evidence.posterior.transitions.is_symmetric and sampler.prior.ndim == 1
    now, sweep, thin = sampler.surrogate, 0, 1 if settings.thin == "auto" else settings.thin
    wanted = min(settings.n / 2.0, 100.0)
    while True:
        counts, own = sampler.empty(), []
        for at, (chunk, encoded) in enumerate(chunks or _encoded(sampler, pieces())):
            states = sampler.draw_paths(chunk, encoded, now)
            sampler.add(counts, chunk, encoded, states, now)
            if symmetric:
                if at == len(best):
                    best.append(_best_path(sampler, chunk, encoded))
                counts.overlaps += _overlaps(best[at], states, sampler.evidence.n_states)
            if settings.keep_paths:
                own.append(states)
        rows, natural = sampler.draw_rows(counts), sampler.draw_natural(counts)
        now, sweep = sampler.drawn(rows, natural), sweep + 1
        if sweep <= settings.warmup or (sweep - settings.warmup) % thin:
            continue
        order = _labels(counts.overlaps)
        kept.starts.append(rows.start[order])
        kept.matrices.append(rows.transitions[order][:, order])
        kept.naturals.append(natural[order])
        if settings.keep_paths:
            kept.paths.append(np.argsort(order).astype(np.int32)[np.concatenate(own)])
        if len(kept) < settings.n:
            continue
        if settings.thin != "auto" or kept.effective(sampler.family) >= wanted:
            return kept
        # As many sweeps again as so far fill the other half.
        if 2 * sweep - settings.warmup > settings.max_sweeps:
            return kept
        kept.thin()
        thin *= 2


def _encoded(sampler: PathSampler, pieces: Iterable[Sequences]) -> Iterable[tuple[Sequences, Any]]:
    for piece in pieces:
        for chunk in piece.chunks(CHUNK_STEPS):
            yield chunk, sampler.family.encode(chunk)


def _best_path(sampler: PathSampler, chunk: Sequences, encoded: Any) -> Integers:
    """Return the most probable states under the model, by which draws are labelled."""
    potentials, index = sampler.potentials(encoded, sampler.surrogate)
    threads = sampler.evidence.n_threads
    return cpu.viterbi(potentials, index, chunk.offsets, n_threads=threads)[1].astype(np.int32)


def _overlaps(best: Integers, states: Integers, k: int) -> Floats:
    """Count the steps that are in each state of the model and in each of the draw."""
    cells = best.astype(np.int64) * k + states
    return np.bincount(cells, minlength=k * k).reshape(k, k).astype(np.float64)


def _labels(overlaps: Floats) -> Integers:
    """Return the state of the draw for each state of the model; the same unless others agree more.

    Labels of the states of a chain may change in its course.
    """
    same = np.arange(len(overlaps))
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(overlaps, maximize=True)
    if overlaps[rows, columns].sum() > overlaps[same, same].sum():
        return np.asarray(columns)
    return same


def should_keep(n: int, n_steps: int) -> bool:
    """Return whether the paths of n draws of so many steps are kept."""
    return n * n_steps <= _NUMBERS
