r"""Columns with an unknown that no conjugate prior fits: it is integrated numerically.

The shape of a gamma distribution, the dispersion of counts, the concentration of angles: given such
a number s, a column is an exponential family with a conjugate prior for everything else.  Then

    a_g(λ) = log ∫ p(s) exp a_g(λ | s) ds                                        eq (50)

is again a function of sums of statistics, so that everything that holds for conjugate families
holds here: potentials (2) and (2'), bounds, merges and draws.

The integral is a sum over a grid that is narrowed, round by round, around the posterior of s.  The
trapezoidal rule converges exponentially for such peaks: with a distance of 0.7 standard deviations
between nodes its relative error is below 1e-8, and what lies outside the grid, beyond 5.5 standard
deviations, has about the same size unless the posterior is skewed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, reduce
from typing import ClassVar, NamedTuple

import numpy as np

from sojourn.families.blocks import LogPotentials
from sojourn.families.columns import ColumnFamily
from sojourn.families.interpolated import InterpolatedPotentials, SmoothIn
from sojourn.families.tabled import TabledPotentials
from sojourn.kernels.arrays import is_tensor, maybe_any, namespace
from sojourn.kernels.interface import Floats

_ROUNDS = 12  # the grid becomes several times narrower in each
_DEPTH = 15.0  # nodes whose logarithm is farther below the largest do not count
_STILL = 1e-6  # distances between nodes by which a grid may move that is narrow enough
_SHORT_SUM, _MANY_SUMS = (
    16,
    512,
)  # terms up to which, and sums from which, adding them one by one pays
_SAME = 1e-6  # share of the posterior that potentials may leave out
_LOG_2PI = float(np.log(2.0 * np.pi))


class Nodes(NamedTuple):
    """A grid over the unknowns that are integrated, for every state and column.

    Attributes
    ----------
    at : tuple of (..., J) arrays
        The coordinates of the nodes, one array per unknown.
    log_weights : (..., J) array
        Logarithms of their posterior probabilities.
    log_total : (...) array
        Logarithm of the integral.
    widths : tuple of (...) arrays
        Distances between nodes.
    """

    at: tuple[Floats, ...]
    log_weights: Floats
    log_total: Floats
    widths: tuple[Floats, ...]

    def mean(self, values: Floats) -> Floats:
        """Return the posterior mean of a function, given its values at the nodes."""
        return (namespace(values).exp(self.log_weights) * values).sum(axis=-1)

    def of(self, column: int) -> Nodes:
        """Return the nodes of one column."""
        return Nodes(
            tuple(part[:, column] for part in self.at),
            self.log_weights[:, column],
            self.log_total[:, column],
            tuple(part[:, column] for part in self.widths),
        )


class IntegratedFamily(ColumnFamily):
    """A family of columns with one or two unknowns s that are integrated numerically.

    Subclasses define the mathematics given s, which they take with a last axis for the nodes.
    """

    ranges: ClassVar[tuple[tuple[float, float], ...]]
    """Lowest and highest value of each unknown."""

    n_nodes: ClassVar[int] = 25
    """Number of nodes along each unknown."""

    call_seconds = 3e-3  # on an AMD EPYC, 8 states, one column

    smooth_in: ClassVar[SmoothIn]
    """Of which function of an entry log potentials are smooth functions."""

    @abstractmethod
    def log_joint(self, at: tuple[Floats, ...], *parts: Floats) -> Floats:
        """Return log p(s) + a_g(λ | s)."""

    @abstractmethod
    def log_given(self, x: Floats, at: tuple[Floats, ...], *parts: Floats) -> Floats:
        """Return the log potential (2) given s: a_g(λ + t(x) | s) − a_g(λ | s) + log h(x)."""

    @abstractmethod
    def slopes(self, at: tuple[Floats, ...], *parts: Floats) -> tuple[Floats, ...]:
        """Return the derivatives of a_g(λ | s) with respect to the coordinates of λ."""

    def integrate(self, *parts: Floats) -> Nodes:
        """Return nodes for λ of any shape."""
        inner = tuple(part[..., None] for part in parts)
        return narrowed(
            lambda at: self.log_joint(at, *inner), self.ranges, self.n_nodes, 0.0 * parts[0]
        )

    def entry_log_normalizer(self, *parts: Floats) -> Floats:
        """Return a_g of every state and column, eq (50)."""
        return self.integrate(*parts).log_total

    def divergence(self, natural: Floats) -> Floats:
        """Return KL(q(φ) || p(φ)) of every state, with the derivatives of a_g in closed form."""
        prior = namespace(natural).asarray(self.prior(), like=natural) + 0.0 * natural
        own, before = self.parts(natural), self.parts(prior)
        along = 0.0 * own[0]
        for slope, part, old in zip(self._mean_slopes(*own), own, before, strict=True):
            along = along + slope * (part - old)
        return along.sum(axis=1) - self.log_normalizer(natural) + self.log_normalizer(prior)

    def entry_log_predictive(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return eq (2): the mean of the potentials given s."""
        return self._mixed(x, self.integrate(*parts), *parts)

    def entry_expected(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return eq (2'), which is linear in t(x)."""
        return self._linear(x, self._mean_slopes(*parts))

    def potentials(self, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return eq (2) or (2') as a function of x, with nodes that are computed once."""
        if self.discrete and not is_tensor(natural):
            tabled = super().potentials(natural, collapsed=collapsed)
            if not collapsed:
                return tabled
            assert isinstance(tabled, TabledPotentials)
            smooth, every = self._interpolated(natural), range(len(natural))
            return replace(tabled, plain=smooth, column=lambda x, d: smooth.column(x, d, every))
        if collapsed and not is_tensor(natural):
            return self._interpolated(natural)
        parts = self.parts(natural)
        if not collapsed:
            slopes = self._mean_slopes(*parts)
            return self._by_column(
                lambda x, d: self._linear(x, tuple(slope[:, d] for slope in slopes))
            )
        nodes = self.integrate(*parts)
        return self._by_column(
            lambda x, d: self._mixed(x, nodes.of(d), *(part[:, d] for part in parts))
        )

    def _interpolated(self, natural: Floats) -> InterpolatedPotentials:
        """Return eq (2) as a function of x, with as few nodes as each state and column needs."""
        parts, every = self.parts(natural), range(len(natural))

        @cache
        def few() -> list[list[tuple[tuple[Floats, ...], Floats]]]:
            nodes = self.integrate(*parts)
            return [[self._few_nodes(nodes, k, d) for k in every] for d in range(self.features)]

        def column(x: Floats, d: int, states: Sequence[int]) -> Floats:
            out = np.empty((len(x), len(states)))
            for i, k in enumerate(states):
                at, log_weights = few()[d][k]
                logs = self.log_given(x, at, *(part[k, d] for part in parts))
                logs += log_weights
                out[:, i] = log_sum_exp(logs)
            return out

        plain = self._by_column(lambda x, d: column(x, d, every))
        return InterpolatedPotentials(plain, column, len(natural), self.smooth_in)

    def _few_nodes(self, nodes: Nodes, k: int, d: int) -> tuple[tuple[Floats, ...], Floats]:
        """Return the nodes that one state and column needs, and their log weights.

        Every other node along each unknown, if these have the same sum, and of them the likeliest.
        """
        shape = [self.n_nodes] * len(self.ranges)
        at = [part[k, d].reshape(shape) for part in nodes.at]
        logs = nodes.log_weights[k, d].reshape(shape)
        other = tuple(slice(None, None, 2) for _ in shape)
        share = np.exp(logs[other]).sum() * 2.0 ** len(shape)
        if abs(share - 1.0) < _SAME:
            at, logs = [part[other] for part in at], logs[other]
        logs = logs.ravel()
        order = np.argsort(-logs)
        sums = np.cumsum(np.exp(logs[order]))
        order = order[: 1 + int((sums < (1.0 - _SAME) * sums[-1]).sum())]
        kept = logs[order]
        return tuple(part.ravel()[order] for part in at), kept - np.log(np.exp(kept).sum())

    def _by_column(self, column: Callable[[Floats, int], Floats]) -> LogPotentials:
        """Return the sum of the log potentials of the columns, without missing entries."""

        def plain(x: Floats) -> Floats:
            missing, filled = self._fill(x)
            rows = [column(filled[:, d, None], d) for d in range(self.features)]
            for d, own in enumerate(rows):
                if maybe_any(missing[:, d]):
                    rows[d] = own * ~missing[:, d, None]
            return sum(rows[1:], rows[0])

        return plain

    def numbers_per_step(self, n_columns: int) -> int:
        """Return how many numbers a step takes for every state: one for each node."""
        return max(n_columns, self.n_nodes ** len(self.ranges))

    def _mixed(self, x: Floats, nodes: Nodes, *parts: Floats) -> Floats:
        """Return the logarithm of the mean of the potentials given s."""
        logs = self.log_given(x[..., None], nodes.at, *(part[..., None] for part in parts))
        return log_sum_exp(logs + nodes.log_weights)

    def _mean_slopes(self, *parts: Floats) -> tuple[Floats, ...]:
        nodes = self.integrate(*parts)
        slopes = self.slopes(nodes.at, *(part[..., None] for part in parts))
        return tuple(nodes.mean(slope) for slope in slopes)

    def _linear(self, x: Floats, slopes: tuple[Floats, ...]) -> Floats:
        terms = zip(slopes, self.entry_statistics(x), strict=True)
        return sum((slope * part for slope, part in terms), self.entry_log_base(x))


def narrowed(
    log_joint: Callable[[tuple[Floats, ...]], Floats],
    ranges: tuple[tuple[float, float], ...],
    n_nodes: int,
    zeros: Floats,
) -> Nodes:
    """Return a grid over unknowns, narrowed step by step to where a log density is large.

    Parameters
    ----------
    log_joint : callable
        The log density at nodes (..., J).
    ranges : tuple of pairs
        Lowest and highest value of each unknown.
    n_nodes : int
        Number of nodes along each unknown.
    zeros : (...) array
        Zeros of the shape of what there is a density for.
    """
    xp = namespace(zeros)
    lows = [zeros + low for low, _ in ranges]
    highs = [zeros + high for _, high in ranges]
    units = np.meshgrid(*[np.linspace(0.0, 1.0, n_nodes)] * len(lows), indexing="ij")
    along = [xp.asarray(unit.ravel(), like=zeros) for unit in units]
    n = 0
    while True:
        at = tuple(
            low[..., None] + (high - low)[..., None] * unit
            for low, high, unit in zip(lows, highs, along, strict=True)
        )
        logs = log_joint(at)
        top = xp.amax(logs, axis=-1)
        widths = tuple(
            (high - low) / (n_nodes - 1.0) for low, high in zip(lows, highs, strict=True)
        )
        if n == _ROUNDS - 1:
            break
        likely = logs >= (top - _DEPTH)[..., None]
        # On a coarse grid the best node may not be next to the peak.
        margin = 2.0 if n < _ROUNDS // 2 else 1.0
        before = lows + highs
        for i, (lowest, highest) in enumerate(ranges):
            first = -xp.amax(xp.where(likely, -at[i], -np.inf), axis=-1)
            last = xp.amax(xp.where(likely, at[i], -np.inf), axis=-1)
            lows[i] = xp.clip(first - margin * widths[i], lowest, highest)
            highs[i] = xp.clip(last + margin * widths[i], lowest, highest)
        n += 1
        if _are_same(before, lows + highs, widths * 2):
            if n > _ROUNDS // 2:
                break
            n = _ROUNDS // 2
    total = log_sum_exp(logs)
    volume = sum(xp.log(width) for width in widths)
    return Nodes(at, logs - total[..., None], total + volume, widths)


def _are_same(before: list[Floats], after: list[Floats], widths: tuple[Floats, ...]) -> bool:
    """Whether a grid in memory has not moved; looking at tensors takes longer than a round."""
    if is_tensor(widths[0]):
        return False
    moved = (abs(new - old) / width for old, new, width in zip(before, after, widths, strict=True))
    return all(bool((part <= _STILL).all()) for part in moved)


def log_sum_exp(logs: Floats) -> Floats:
    """Return log Σ exp over the last axis.

    Examples
    --------
    >>> log_sum_exp(np.log([[1.0, 3.0]])).round(4)
    array([1.3863])
    """
    xp = namespace(logs)
    n = logs.shape[-1]
    if not is_tensor(logs) and n <= _SHORT_SUM and logs.size >= _MANY_SUMS * n > 0:
        # NumPy takes long to reduce a short last axis: 10,240 sums of two take 57 µs like this, and
        # 552 µs as below, on an AMD EPYC.
        parts = np.moveaxis(logs, -1, 0)
        top = reduce(np.maximum, parts)
        return top + np.log(sum(np.exp(part - top) for part in parts))
    top = xp.amax(logs, axis=-1)
    return top + xp.log(xp.exp(logs - top[..., None]).sum(axis=-1))


def log_normal(x: Floats, mean: float | Floats, deviation: float) -> Floats:
    """Return the log density of a normal distribution."""
    return -0.5 * ((x - mean) / deviation) ** 2 - float(np.log(deviation)) - 0.5 * _LOG_2PI


def draw_nodes(nodes: Nodes, rng: np.random.Generator) -> tuple[Floats, ...]:
    """Draw the unknowns of every state and column from their posterior.

    A node is drawn, and a place near it from a triangle of one distance on each side: this is the
    density that interpolates the nodes.
    """
    chances = np.cumsum(np.exp(nodes.log_weights), axis=-1)
    u = rng.random(chances.shape[:-1]) * chances[..., -1]
    chosen = np.minimum((chances < u[..., None]).sum(axis=-1), chances.shape[-1] - 1)
    drawn = []
    for at, width in zip(nodes.at, nodes.widths, strict=True):
        centre = np.take_along_axis(at, chosen[..., None], axis=-1)[..., 0]
        off = rng.random(centre.shape) + rng.random(centre.shape) - 1.0
        drawn.append(np.clip(centre + width * off, at.min(axis=-1), at.max(axis=-1)))
    return tuple(drawn)
