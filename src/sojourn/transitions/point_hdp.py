"""The HDP with a point estimate of its weights, for mean-field inference, eqs (9) to (11).

Johnson and Willsky (2014) combine q(θ) with a point estimate of π.  With a truncation at K states a
row has K + 1 cells; the last is for all states beyond K, to which no data are assigned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, expit, gammaln

from sojourn import file_values
from sojourn.kernels.arrays import namespace, to_host
from sojourn.kernels.interface import Floats, Squares
from sojourn.transitions.base import (
    Concentrations,
    PriorCounts,
    Rows,
    RowSpread,
    Transitions,
)
from sojourn.transitions.checks import check_pending, check_steps
from sojourn.transitions.constraints import RowConstraints, converted, taken, with_constraints
from sojourn.transitions.large_batch import added, pending_of, state_of, step_size_of
from sojourn.transitions.summary import HDPSummary, effective_states

_LARGEST_LOGIT = 30.0  # keeps every weight, and the remainder, above zero


@dataclass(frozen=True, eq=False)
class PointHDP(Transitions):
    r"""Rows around shared weights, of which a point estimate is kept.

    .. math::

        v_k \sim \mathrm{Beta}(1, \gamma), \quad
        \pi_k = v_k \prod_{l<k} (1 - v_l), \quad
        \theta_k \sim \mathrm{Dirichlet}(\alpha\pi_1, \dots, \alpha\pi_K, \alpha\pi_{>K})

    Attributes
    ----------
    n_states : int
        Truncation level K.
    alpha : float
        Concentration of the rows around the weights; fixed, as in the paper.
    gamma : float
        Concentration of the sticks; fixed, as in the paper.
    batch_size : int
        Number of sequences between two updates of the weights.
    forgetting_rate : float
        The n-th update has the step size (delay + n) ** -forgetting_rate.
    delay : float
        See `forgetting_rate`.
    logits : (K,) array
        log(v_k / (1 − v_k)).
    n_updates : int
        Number of updates so far.
    pending : dict of arrays
        Sums over the large batch so far.
    n_pending : int
        Number of sequences in it.
    constraints : RowConstraints or None
        Probabilities that are given; the others of a row are θ_k without them, times what is left.
    """

    shares_weights = True
    is_even = False  # the sticks have the order of the states

    n_states: int
    alpha: float = 10.0
    gamma: float = 10.0
    batch_size: int = 10_000
    forgetting_rate: float = 0.5
    delay: float = 1.0
    logits: Floats = field(default_factory=lambda: np.zeros(0))
    n_updates: int = 0
    pending: dict[str, Floats] = field(default_factory=dict)
    n_pending: int = 0
    constraints: RowConstraints | None = None

    @classmethod
    def make(cls, n_states: int, **options: Any) -> PointHDP:
        """Start from equal weights for the K states and for the rest."""
        left = np.arange(n_states, 0, -1)  # v_k = 1 / (1 + number of later states and the rest)
        return cls(n_states, logits=-np.log(left.astype(np.float64)), **options)

    @property
    def weights(self) -> Floats:
        """π_1, ..., π_K and the weight of all states beyond K, shape (K + 1,)."""
        return stick_weights(self.logits)

    @property
    def _prior(self) -> Floats:
        return self.alpha * self.weights[:-1]

    def prior_counts(self) -> PriorCounts:
        """Return απ; the normalisers α + E[C_k·] include the cell beyond K."""
        prior, constraints = self._prior, self.constraints
        if constraints is None:
            return PriorCounts(Rows(prior, prior), self.alpha)
        free = constraints.free
        totals = Rows(*(self.alpha - ((1.0 - own) * prior).sum(axis=-1) for own in free))
        return PriorCounts(constraints.rows(Rows(prior, prior)), totals, constraints)

    def means(self, counts: Rows) -> Rows:
        """Return απ + E[C], normalised over the K states, within the constraints."""
        prior = self._prior
        rows = Rows(prior + counts.start, prior + counts.transitions)
        return with_constraints(self.constraints, rows)

    def wants_squares(self, total_sequences: int) -> bool:
        """Return False: the weights are estimated from the counts alone."""
        return False

    def observe(
        self,
        counts: Rows,
        squares: Squares | None,
        n_sequences: int,
        total_sequences: int,
        *,
        update: Callable[[Any, int], Any] | None = None,
    ) -> Self:
        """Add a minibatch to the large batch, and update the weights when that is full."""
        parts = added(self.pending, counts._asdict())
        n_pending = self.n_pending + n_sequences
        if n_pending < min(self.batch_size, total_sequences):
            return replace(self, pending=parts, n_pending=n_pending)
        copies = total_sequences / n_pending
        # The optimisation runs on the CPU, wherever the counts are.
        stacked = copies * np.vstack([to_host(parts["start"]), to_host(parts["transitions"])])
        logits = to_host(self.logits)
        free = None if self.constraints is None else _stacked_free(self.constraints)
        best = best_logits(logits, stacked, self.alpha, self.gamma, free)
        step_size = step_size_of(
            self.n_updates, forgetting_rate=self.forgetting_rate, delay=self.delay
        )
        return replace(
            self,
            logits=namespace(self.logits).asarray(
                (1.0 - step_size) * logits + step_size * best, like=self.logits
            ),
            n_updates=self.n_updates + 1,
            pending={},
            n_pending=0,
        )

    def evidence_prior(self) -> Concentrations:
        """Raise an error: moves on the states require collapsed inference."""
        raise NotImplementedError("moves on the states require collapsed inference")

    def regrouped(self, weights: Floats) -> Self:
        """Raise an error: moves on the states require collapsed inference."""
        raise NotImplementedError("moves on the states require collapsed inference")

    def refitted(self, counts: Rows) -> Self:
        """Raise an error: moves on the states require collapsed inference."""
        raise NotImplementedError("moves on the states require collapsed inference")

    def divergence(self, counts: Rows) -> float:
        """Return Σ_k KL(q(θ_k) || p(θ_k | π)) − log p(π), which the bound subtracts."""
        if self.constraints is not None:
            return _constrained_divergence(self, counts, self.constraints)
        stacked = np.vstack([counts.start, counts.transitions])
        prior = self.alpha * self.weights
        cells = np.hstack([prior[:-1] + stacked, np.full((len(stacked), 1), prior[-1])])
        expected_log = digamma(cells) - digamma(cells.sum(axis=1, keepdims=True))
        kl = np.sum((cells - prior) * expected_log)
        kl += np.sum(gammaln(cells.sum(axis=1)) - gammaln(cells).sum(axis=1))
        kl -= len(stacked) * (gammaln(prior.sum()) - gammaln(prior).sum())
        return float(kl) - log_stick_prior(self.logits, self.gamma)

    def collapsed_bound(self, counts: Rows, spread: RowSpread | None = None) -> float:
        """Raise an error: a point estimate of π requires mean-field rows."""
        raise NotImplementedError("a point estimate of the weights requires mean-field inference")

    def summary(self) -> HDPSummary:
        """Return α, γ, π and the effective number of states."""
        weights = self.weights[:-1]
        return HDPSummary(self.alpha, self.gamma, weights, effective_states(weights))

    def converted(self, convert: Callable[[Any], Any]) -> Self:
        """Return the prior with its weights and the large batch converted."""
        pending = {name: convert(part) for name, part in self.pending.items()}
        constraints = converted(self.constraints, convert)
        return replace(self, logits=convert(self.logits), pending=pending, constraints=constraints)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return options, weights and the large batch so far."""
        return state_of(self, "logits")

    @classmethod
    def from_state(cls, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild the prior from `state`."""
        constraints, arrays = taken(arrays)
        pending = pending_of(arrays)
        return cls(**values, logits=arrays["logits"], pending=pending, constraints=constraints)

    def check(self, n_states: int) -> None:
        """Check options, weights and the large batch."""
        check_steps(self)
        check_pending(self, n_states)
        file_values.positive("alpha", self.alpha)
        file_values.positive("gamma", self.gamma)
        logits = file_values.array("logits", self.logits, (n_states,))
        if np.abs(logits).max() > 2 * _LARGEST_LOGIT:
            raise ValueError("logits are too large")


def stick_weights(logits: Floats) -> Floats:
    """Return π_k = v_k ∏_{l<k}(1 − v_l) and the remaining weight, shape (K + 1,).

    Examples
    --------
    >>> stick_weights(np.zeros(2))
    array([0.5 , 0.25, 0.25])
    """
    xp = namespace(logits)
    left = xp.concatenate([xp.full_like(logits[:1], 1.0), xp.cumprod(xp.expit(-logits))])
    return xp.concatenate([xp.expit(logits) * left[:-1], left[-1:]])


def logits_of(weights: Floats) -> Floats:
    """Return the logits of given weights: the inverse of `stick_weights`.

    Examples
    --------
    >>> logits_of(np.array([0.5, 0.25, 0.25]))
    array([0., 0.])
    """
    after = np.cumsum(weights[::-1])[::-1][1:]
    return np.clip(np.log(weights[:-1] / after), -_LARGEST_LOGIT, _LARGEST_LOGIT)


def log_stick_prior(logits: Floats, gamma: float) -> float:
    """Return Σ_k log Beta(v_k; 1, γ), the log density of the sticks v."""
    return float(len(logits) * np.log(gamma) - (gamma - 1.0) * np.logaddexp(0.0, logits).sum())


def stick_bound(logits: Floats, log_sums: Floats, n_rows: int, alpha: float, gamma: float) -> float:
    r"""Return the terms of the mean-field bound that depend on π, for fixed q(θ), eq (9).

    .. math::

        \sum_k \log \mathrm{Beta}(v_k; 1, \gamma)
        + \sum_j \bigl( \alpha\pi_j S_j - R \log\Gamma(\alpha\pi_j) \bigr),
        \quad S_j = \sum_{k=0}^K E_q[\log\theta_{kj}], \; j = 1, \dots, K, {>}K

    Parameters
    ----------
    logits : (K,) array
    log_sums : (K + 1,) array
        S.
    n_rows : int
        R = K + 1, the number of rows including the start.
    alpha : float
    gamma : float
    """
    prior = alpha * stick_weights(logits)
    return float(prior @ log_sums - n_rows * gammaln(prior).sum()) + log_stick_prior(logits, gamma)


def stick_gradient(
    logits: Floats, log_sums: Floats, n_rows: int, alpha: float, gamma: float
) -> Floats:
    r"""Return the gradient of `stick_bound` with respect to the logits, eq (10).

    .. math::

        g_j = \alpha \bigl( S_j - R\,\psi(\alpha\pi_j) \bigr), \qquad
        \frac{\partial}{\partial y_i} =
        (1 - v_i)\, g_i \pi_i - v_i \sum_{j>i} g_j \pi_j - (\gamma - 1)\, v_i

    The last cell enters with its own weight, ψ(απ_{>K}).
    """
    weights = stick_weights(logits)
    return _along_sticks(
        logits, alpha * (log_sums - n_rows * digamma(alpha * weights)) * weights, gamma
    )


def _along_sticks(logits: Floats, pull: Floats, gamma: float) -> Floats:
    """Return the gradient with respect to the logits, given that with respect to π times π."""
    after = np.cumsum(pull[::-1])[::-1][1:]
    v = expit(logits)
    return (1.0 - v) * pull[:-1] - v * after - (gamma - 1.0) * v


def best_logits(
    logits: Floats, counts: Floats, alpha: float, gamma: float, free: Floats | None = None
) -> Floats:
    """Maximise the bound over π, with the optimal q(θ) for every π, eq (11).

    Inserting q(θ_k) = Dirichlet(απ + E[C_k]) turns eq (9) into Σ log Γ(απ + E[C]) − log Γ(απ).
    Its gradient is eq (10) at that q(θ), because the derivative with respect to q(θ) vanishes.

    Parameters
    ----------
    logits : (K,) array
        Starting point; the result is never worse.
    counts : (K + 1, K) array
        E[C], the start first.
    alpha : float
    gamma : float
    free : (K + 1, K) array, optional
        Which cells are learned, where others are not; see `constrained_stick_loss`.
    """
    row_totals = digamma(alpha + counts.sum(axis=1)).sum()

    def loss(y: Floats) -> tuple[float, Floats]:
        prior = alpha * stick_weights(y)
        value = (gammaln(prior[:-1] + counts) - gammaln(prior[:-1])).sum()
        rest = len(counts) * digamma(prior[-1:])
        sums = np.concatenate([digamma(prior[:-1] + counts).sum(axis=0), rest]) - row_totals
        gradient = stick_gradient(y, sums, len(counts), alpha, gamma)
        return -float(value) - log_stick_prior(y, gamma), -gradient

    def constrained(y: Floats) -> tuple[float, Floats]:
        assert free is not None
        return constrained_stick_loss(y, counts, alpha, gamma, free)

    of = loss if free is None else constrained
    limits = [(-_LARGEST_LOGIT, _LARGEST_LOGIT)] * len(logits)
    from scipy.optimize import minimize

    found = minimize(of, logits, jac=True, method="L-BFGS-B", bounds=limits)
    return found.x if found.fun <= of(logits)[0] else logits


def constrained_stick_loss(
    logits: Floats, counts: Floats, alpha: float, gamma: float, free: Floats
) -> tuple[float, Floats]:
    """Return minus the bound over π where only some cells are learned, and its gradient, eq (42).

    A row has the concentration A_k = α(1 − Σ π_j) over the cells j that it cannot choose, so that
    its normaliser depends on π too.
    """
    weights = stick_weights(logits)
    prior = alpha * weights[:-1]
    rest = counts * free
    n, totals = rest.sum(axis=1), alpha - (1.0 - free) @ prior
    value = (free * (gammaln(prior + rest) - gammaln(prior))).sum()
    value += (gammaln(totals) - gammaln(totals + n)).sum()
    pull = (free * (digamma(prior + rest) - digamma(prior))).sum(axis=0)
    pull += (digamma(totals + n) - digamma(totals)) @ (1.0 - free)
    gradient = _along_sticks(logits, np.append(pull * prior, 0.0), gamma)
    return -float(value) - log_stick_prior(logits, gamma), -gradient


def _stacked_free(constraints: RowConstraints) -> Floats:
    return np.vstack([to_host(part) for part in constraints.free])


def _constrained_divergence(hdp: PointHDP, counts: Rows, constraints: RowConstraints) -> float:
    """Return `PointHDP.divergence` where only some cells of the rows are learned."""
    free = np.hstack([_stacked_free(constraints), np.ones((hdp.n_states + 1, 1))])
    prior = np.where(free > 0.0, hdp.alpha * hdp.weights, 0.0)
    rest = np.vstack(constraints.rows(counts))
    cells = prior + np.hstack([rest, np.zeros((len(rest), 1))])
    safe, safe_prior = (np.where(free > 0.0, part, 1.0) for part in (cells, prior))
    expected_log = digamma(safe) - digamma(cells.sum(axis=1, keepdims=True))
    kl = np.sum((cells - prior) * expected_log)
    kl += np.sum(gammaln(cells.sum(axis=1)) - gammaln(safe).sum(axis=1))
    kl -= np.sum(gammaln(prior.sum(axis=1)) - gammaln(safe_prior).sum(axis=1))
    return float(kl) - log_stick_prior(hdp.logits, hdp.gamma)
