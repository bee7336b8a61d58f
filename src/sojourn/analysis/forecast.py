"""Forecasts: the distribution of states and observations after the end of sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.analysis.evidence import Evidence, Past, inner_chain
from sojourn.analysis.quantiles import has_closed_form, mixture_quantiles
from sojourn.families import Categorical, Family
from sojourn.families.draws import draw_parameters, memory, n_covariates, sample_after
from sojourn.families.means import expected_values
from sojourn.forms import as_sequences
from sojourn.inference import Posterior
from sojourn.kernels.interface import Floats, Integers
from sojourn.random_state import draw_dirichlet
from sojourn.sequences import Sequences
from sojourn.transitions import Rows

_NUMBERS = 2**22  # of state probabilities under draws that are in memory at once


@dataclass(frozen=True, eq=False)
class Belief:
    """What is known at the end of N sequences.

    Attributes
    ----------
    filtered : (N, K) array
        p(z_T | x_1, ..., x_T); of the copies of states that last.
    fresh : (N,) bool array
        Whether nothing has been observed yet, so that the next step is the first.
    past : (N, L, D) array or None
        The last steps, for families that depend on them.
    covariates : (N, H, C) array or None
        What is known of the steps to come, for families that are given covariates.
    """

    filtered: Floats
    fresh: NDArray[np.bool_]
    past: Floats | None = None
    covariates: Floats | None = None

    def take(self, chosen: Integers) -> Belief:
        """Return what is known of some of the sequences, each as often as it is chosen."""
        past = None if self.past is None else self.past[chosen]
        covariates = None if self.covariates is None else self.covariates[chosen]
        return Belief(self.filtered[chosen], self.fresh[chosen], past, covariates)


@dataclass(frozen=True, eq=False)
class Forecast:
    """What comes after N sequences, up to H steps ahead.

    Attributes
    ----------
    state_probabilities : (N, H, K) array
        p(z_{T+h} | x_1, ..., x_T).
    levels : tuple of float
        Levels of the quantiles.
    means : (N, H, D) array or None
        E[x_{T+h} | x_1, ..., x_T]; None for symbols.
    quantiles : (Q, N, H, D) array or None
        Quantiles of x_{T+h} at `levels`; None for symbols.

    Notes
    -----
    With draws, transitions are averaged over their posterior: E[θ^h] is not E[θ]^h.  Predictive
    distributions of the states have the uncertainty of their parameters in any case, eq (2).

    Means and quantiles are exact for a given state distribution, except for families whose
    distribution depends on more than the state (`AutoregressiveGaussian`, `LinearGaussian`,
    `Multinomial`), where they come from the draws.
    """

    state_probabilities: Floats
    levels: tuple[float, ...]
    means: Floats | None
    quantiles: Floats | None
    _futures: Futures = field(repr=False)

    @property
    def draws(self) -> NDArray[Any]:
        """Drawn futures, shape (n_draws, N, H, D), or (n_draws, N, H) for symbols.

        Every future has its own draw of the parameters.
        """
        return self._futures.drawn[0]

    @property
    def state_draws(self) -> Integers:
        """States of the drawn futures, shape (n_draws, N, H)."""
        return self._futures.drawn[1] // self._futures.evidence.n_copies

    @cached_property
    def probabilities(self) -> Floats:
        """Probability of every symbol, shape (N, H, V); for symbols only."""
        family, natural = self._futures.family, self._futures.evidence.natural
        if not isinstance(family, Categorical):
            raise AttributeError(f"{type(family).__name__} has no symbols")
        return self.state_probabilities @ (natural / natural.sum(axis=1, keepdims=True))

    def log_score(self, X: Any, lengths: ArrayLike | None = None) -> Floats:
        """Return log p(x_{T+h} | x_1, ..., x_T) of what came, shape (N, H).

        Parameters
        ----------
        X, lengths
            One sequence after each of those that the forecast goes on from, as for `fit`.  Steps
            that it does not have are NaN in the result, and so are missing ones; steps beyond H
            are an error.
        """
        family = self._futures.family
        data = as_sequences(X, lengths, step_ndim=family.step_ndim)[0]
        n, steps, _ = self.state_probabilities.shape
        if len(data) != n:
            raise ValueError(f"{len(data)} sequences came, the forecast has {n}")
        if data.lengths.max() > steps:
            raise ValueError(f"{data.lengths.max()} steps came, the forecast has {steps}")
        return self._futures.log_score(family.validate(data), self.state_probabilities)


class Futures:
    """Draws of futures, made when they are asked for, and densities given them."""

    def __init__(
        self, evidence: Evidence, belief: Belief, steps: int, rows: RowDraws, seed: list[int]
    ) -> None:
        self.evidence, self.belief, self.steps, self.rows = evidence, belief, steps, rows
        self.family, self.seed = evidence.family, seed

    @cached_property
    def drawn(self) -> tuple[NDArray[Any], Integers]:
        """Observations and states of every future."""
        if self.rows.n_draws == 0:
            raise ValueError("no futures were drawn: n_draws must be at least 1")
        rng = np.random.default_rng(self.seed)
        natural, belief, n = self.evidence.natural, self.belief, len(self.belief.filtered)
        offsets = np.arange(n + 1) * self.steps
        given = belief.covariates
        if given is not None:
            given = given.reshape(n * self.steps, -1)
        values, paths = [], []
        for s in range(self.rows.n_draws):
            path = draw_states(
                belief, self.rows.start[s], self.rows.transitions[s], self.steps, rng
            )
            own = draw_parameters(self.family, natural, rng)
            states = Sequences(path.ravel() // self.evidence.n_copies, offsets)
            found = sample_after(self.family, own, states, belief.past, rng, given)
            values.append(found.reshape(n, self.steps, *found.shape[1:]))
            paths.append(path)
        return np.array(values), np.array(paths)

    def log_score(self, data: Sequences, state_probabilities: Floats) -> Floats:
        """Return the log predictive density of what came; NaN where nothing did."""
        out = np.full(state_probabilities.shape[:2], np.nan)
        natural = self.evidence.natural
        if memory(self.family):
            for n, values in enumerate(data):
                for h, value in enumerate(values):
                    out[n, h] = self._density_after(n, h, value, natural)
            return out
        x = self.family.observations(data)
        with np.errstate(divide="ignore"):
            logs = self.family.log_predictive(x, natural)
            rows = np.concatenate(
                [state_probabilities[n, : len(values)] for n, values in enumerate(data)]
            )
            largest = logs.max(axis=1, keepdims=True)
            found = np.log((rows * np.exp(logs - largest)).sum(axis=1)) + largest[:, 0]
        missing = ~np.array([_is_observed(value) for value in data.values])
        found[missing] = np.nan
        for n, (begin, end) in enumerate(zip(data.offsets[:-1], data.offsets[1:], strict=True)):
            out[n, : end - begin] = found[begin:end]
        return out

    def _density_after(self, n: int, h: int, value: Floats, natural: Floats) -> float:
        """Return the log density of a step after drawn ones, averaged over the draws."""
        if not _is_observed(value) or self.belief.past is None:
            return float("nan")
        values, paths = self.drawn
        n_draws = len(values)
        past = np.repeat(self.belief.past[n][None], n_draws, axis=0)
        before = np.concatenate([past, values[:, n, :h]], axis=1)[:, -past.shape[1] :]
        # The first of a sequence is conditioned on; a copy of the past's stands for it.
        window = np.concatenate(
            [before[:, :1], before, np.broadcast_to(value, (n_draws, 1, before.shape[2]))], axis=1
        )
        length = window.shape[1]
        flat = Sequences.from_lengths(window.reshape(-1, window.shape[2]), [length] * n_draws)
        x = self.family.observations(flat)
        last = slice(length - 1, None, length)
        x = [own[last] for own in x] if isinstance(x, list) else x[last]
        if h == 0:
            first = self.rows.transitions if not self.belief.fresh[n] else None
            weights = self.rows.start if first is None else self.belief.filtered[n] @ first
        else:
            weights = self.rows.transitions[np.arange(n_draws), paths[:, n, h - 1]]
        logs, weights = self.family.log_predictive(x, natural), self.evidence.folded(weights)
        largest = logs.max()
        return float(np.log((weights * np.exp(logs - largest)).sum(axis=1).mean()) + largest)


def _is_observed(value: Any) -> bool:
    """Return whether any entry of a step was observed."""
    if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iu":
        return bool(value >= 0)
    return not bool(np.isnan(np.asarray(value, np.float64)).all())


@dataclass(frozen=True, eq=False)
class RowDraws:
    """Draws of start and transitions; without any, their posterior means.

    Attributes
    ----------
    start : (S, K) array
    transitions : (S, K, K) array
    n_draws : int
        Number of draws; zero for the means, which are then the only ones.
    """

    start: Floats
    transitions: Floats
    n_draws: int

    @classmethod
    def make(cls, evidence: Evidence, n_draws: int, rng: np.random.Generator) -> RowDraws:
        """Draw rows from the Dirichlet distributions at the expected counts."""
        if n_draws == 0:
            return cls(evidence.start[None], evidence.transitions[None], 0)
        rows, durations = draw_rows(evidence.posterior, rng, (n_draws,)), None
        if evidence.posterior.durations is None:
            return cls(*rows, n_draws)
        durations = evidence.posterior.durations
        chains = [
            inner_chain(Rows(*own), durations.drawn(evidence.posterior.transitions, rng))[:2]
            for own in zip(*rows, strict=True)
        ]
        starts, matrices = zip(*chains, strict=True)
        return cls(np.array(starts), np.array(matrices), n_draws)


def draw_rows(posterior: Posterior, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> Rows:
    """Draw start and transitions from Dirichlets: their means times their weight.

    What is given stays as it is, and what never happens has the probability 0.0.
    """
    means = posterior.transitions.means(posterior.counts)
    weights = posterior.transitions.concentrations(posterior.counts)
    constraints = posterior.transitions.constraints
    if constraints is not None:  # of what is learned, whose shares sum to one
        own = constraints._replace(given=Rows(*(np.zeros_like(part) for part in means)))
        means = own.probabilities(means)
    start = np.maximum(means.start * weights.start_total, 1e-290)
    rows = np.maximum(means.transitions * np.asarray(weights.totals)[:, None], 1e-290)
    free = (None, None) if constraints is None else constraints.free
    drawn = Rows(
        draw_dirichlet(np.broadcast_to(start, (*shape, *start.shape)), rng, free[0]),
        draw_dirichlet(np.broadcast_to(rows, (*shape, *rows.shape)), rng, free[1]),
    )
    if constraints is None:
        return drawn
    given, left = constraints.given, constraints.left
    return Rows(
        given.start + left.start * drawn.start,
        given.transitions + left.transitions[:, None] * drawn.transitions,
    )


def forecast_from(
    evidence: Evidence,
    belief: Belief,
    steps: int,
    levels: Sequence[float],
    n_draws: int,
    seed: list[int],
    covariates: ArrayLike | None = None,
) -> Forecast:
    """Forecast from what is known at the end of sequences.

    Parameters
    ----------
    evidence : Evidence
    belief : Belief
    steps : int
        Number of steps H ahead.
    levels : sequence of float
        Levels of the quantiles.
    n_draws : int
        Draws of the parameters, and of futures; 0 for the posterior means.
    seed : list of int
        Of the draws.
    covariates : (N, H, C) or (H, C) array, optional
        What is known of the steps to come.
    """
    levels = check_levels(levels)
    for name, value, least in (("steps", steps, 1), ("n_draws", n_draws, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    family = evidence.family
    closed = has_closed_form(family)
    if not closed and n_draws == 0:
        raise ValueError(
            f"forecasts of {type(family).__name__} are drawn: n_draws must be at least 1"
        )
    if covariates is not None:
        belief = replace(belief, covariates=_checked(covariates, family, belief, int(steps)))
    rows = RowDraws.make(evidence, int(n_draws), np.random.default_rng([*seed, 0]))
    probabilities = evidence.folded(propagate(belief, rows, int(steps)))
    futures = Futures(evidence, belief, int(steps), rows, [*seed, 1])
    means = quantiles = None
    if not isinstance(family, Categorical):
        means, quantiles = _numbers(family, probabilities, levels, futures, closed=closed)
    return Forecast(probabilities, levels, means, quantiles, futures)


def _checked(covariates: ArrayLike, family: Family, belief: Belief, steps: int) -> Floats:
    """Return covariates of every sequence's future."""
    n_columns = n_covariates(family)
    if n_columns == 0:
        raise ValueError(f"{type(family).__name__} is given no covariates")
    found = np.asarray(covariates, np.float64)
    shape = (len(belief.filtered), steps, n_columns)
    if found.shape not in (shape, shape[1:]):
        raise ValueError(
            f"covariates must have shape {shape[1:]}, or {shape} with those of every sequence; "
            f"they have {found.shape}"
        )
    if not np.isfinite(found).all():
        at = tuple(map(int, np.argwhere(~np.isfinite(found))[0]))
        raise ValueError(f"covariates{list(at)} is {found[at]}: they must be known")
    return np.broadcast_to(found, shape)


def _numbers(
    family: Family,
    probabilities: Floats,
    levels: tuple[float, ...],
    futures: Futures,
    *,
    closed: bool,
) -> tuple[Floats, Floats]:
    """Return means and quantiles, of the mixture or of the draws."""
    if not closed:
        drawn = futures.drawn[0]
        return drawn.mean(axis=0), np.quantile(drawn, levels, axis=0)
    natural = futures.evidence.natural
    n, steps, n_states = probabilities.shape
    found = mixture_quantiles(
        family, natural, probabilities.reshape(-1, n_states), np.array(levels)
    )
    means = probabilities @ expected_values(family, natural)
    return means, found.reshape(len(levels), n, steps, -1)


def check_levels(levels: Sequence[float]) -> tuple[float, ...]:
    """Return levels of quantiles as a tuple; raise an error if one is not between 0 and 1."""
    found = tuple(float(level) for level in np.atleast_1d(np.asarray(levels, np.float64)))
    if not found or not all(0.0 < level < 1.0 for level in found):
        raise ValueError(f"quantiles must be between 0 and 1, got {levels!r}")
    return found


def propagate(belief: Belief, rows: RowDraws, steps: int) -> Floats:
    """Return p(z_{T+h} | x), averaged over draws of the transitions, shape (N, H, K)."""
    n, n_states = belief.filtered.shape
    out = np.empty((n, steps, n_states))
    size = max(1, _NUMBERS // (len(rows.start) * n_states))
    for at in range(0, n, size):
        part = slice(at, at + size)
        now = belief.filtered[None, part] @ rows.transitions
        fresh = belief.fresh[part]
        if fresh.any():
            now[:, fresh] = rows.start[:, None]
        for h in range(steps):
            if h:
                now = now @ rows.transitions
            out[part, h] = now.mean(axis=0)
    return out


def draw_states(
    belief: Belief, start: Floats, transitions: Floats, steps: int, rng: np.random.Generator
) -> Integers:
    """Draw a path of every sequence after its end, shape (N, H)."""
    n, n_states = belief.filtered.shape
    first = np.where(belief.fresh[:, None], start, belief.filtered @ transitions)
    sums, cumulative = np.cumsum(first, axis=1), np.cumsum(transitions, axis=1)
    path = np.empty((n, steps), np.int32)
    for h in range(steps):
        # Rounding may leave the last sum below one.
        u = rng.random(n) * sums[:, -1]
        path[:, h] = np.minimum((sums <= u[:, None]).sum(axis=1), n_states - 1)
        sums = cumulative[path[:, h]]
    return path


def belief_of(family: Family, data: Sequences, filtered: Floats) -> Belief:
    """Return what is known at the end of sequences, given the filtered last step of each."""
    past = None
    length = memory(family)
    if length:
        pasts = []
        for values in data:
            own = Past(family)
            own.advance(np.asarray(values, np.float64)[None])
            found = own.observed()
            if found is None:
                raise ValueError("a sequence without a single observation cannot be forecast")
            pasts.append(found[0])
        past = np.array(pasts)
    return Belief(filtered, np.zeros(len(data), np.bool_), past)


def continuations(
    evidence: Evidence,
    belief: Belief,
    lengths: NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[Sequences, Sequences]:
    """Draw what comes after sequences from the posterior means: observations and states.

    Parameters
    ----------
    evidence : Evidence
    belief : Belief
        Of as many sequences as there are lengths.
    lengths : (N,) array
        Number of steps to draw after each.
    rng : Generator
    """
    path = draw_states(belief, evidence.start, evidence.transitions, int(lengths.max()), rng)
    path = path // np.int32(evidence.n_copies)
    kept = np.arange(path.shape[1]) < lengths[:, None]
    states = Sequences.from_lengths(path[kept], lengths)
    values = sample_after(evidence.family, evidence.natural, states, belief.past, rng)
    return states.with_values(values), states
