"""The nonparametric model: hierarchical Dirichlet process on the rows, eqs (4) to (8).

The updates work on the data set that N/B copies of a large batch of B sequences would make.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln

from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Absences, Floats
from sojourn.transitions.base import (
    Concentrations,
    PriorCounts,
    Rows,
    Transitions,
    log_row_evidence,
    normalized,
    stacked,
)

OccupancyForm = Literal["auto", "exact", "fast"]

_FIRST_CONCENTRATION = 0.1
_REFITS = 3  # rounds in which the posteriors are fitted to given counts
_FAST_FROM = 100.0  # copies N/B of the batch from which the fast form is used


class Gamma(NamedTuple):
    """A Gamma(shape, rate) distribution."""

    shape: float
    rate: float

    @property
    def mean(self) -> float:
        """E[x]."""
        return self.shape / self.rate

    @property
    def geometric_mean(self) -> Any:
        """G[x] = exp E[log x]."""
        xp = namespace(self.shape)
        return xp.exp(xp.digamma(self.shape)) / self.rate

    def divergence(self, other: Gamma) -> float:
        """KL(self || other)."""
        (a, b), (c, d) = self, other
        xp = namespace(a)
        log_ratio = c * xp.log(b / d) + gammaln(c) - xp.gammaln(a)
        return float((a - c) * xp.digamma(a) + log_ratio + a * (d - b) / b)

    def blend(self, shape: float, rate: float, step_size: float) -> Gamma:
        """Move the parameters towards new ones, eq (7)."""
        keep = 1.0 - step_size
        return Gamma(keep * self.shape + step_size * shape, keep * self.rate + step_size * rate)


class Beta(NamedTuple):
    """A Beta(a, b) distribution."""

    a: float
    b: float

    @property
    def mean(self) -> float:
        """E[x]."""
        return self.a / (self.a + self.b)

    @property
    def log_means(self) -> tuple[float, float]:
        """E[log x] and E[log(1 − x)]."""
        xp = namespace(self.a)
        total = xp.digamma(self.a + self.b)
        return xp.digamma(self.a) - total, xp.digamma(self.b) - total

    def divergence(self, other: Beta) -> float:
        """KL(self || other)."""
        log_mean, log_rest = self.log_means
        return float(
            betaln(*other)
            - namespace(self.a).betaln(*self)
            + (self.a - other.a) * log_mean
            + (self.b - other.b) * log_rest
        )

    def blend(self, a: float, b: float, step_size: float) -> Beta:
        """Move the parameters towards new ones."""
        keep = 1.0 - step_size
        return Beta(keep * self.a + step_size * a, keep * self.b + step_size * b)


class Sticks(NamedTuple):
    """Beta(u_k, v_k) posteriors of the stick proportions, in the order of the sticks."""

    u: Floats
    v: Floats

    @classmethod
    def from_tables(cls, tables: Floats, gamma: float) -> Sticks:
        """u_k = 1 + s_k and v_k = γ + Σ_{l>k} s_l, eq (7)."""
        xp = namespace(tables)
        later = xp.flip(xp.cumsum(xp.flip(tables))) - tables
        return cls(1.0 + tables, gamma + later)

    @property
    def log_rest(self) -> Floats:
        """E[log(1 − π̃_k)]."""
        xp = namespace(self.u)
        return xp.digamma(self.v) - xp.digamma(self.u + self.v)

    @property
    def geometric_weights(self) -> Floats:
        """G[π_k], eq (8)."""
        xp = namespace(self.u)
        log_rest = self.log_rest
        before = xp.cumsum(log_rest) - log_rest
        return xp.exp(xp.digamma(self.u) - xp.digamma(self.u + self.v) + before)

    @property
    def mean_weights(self) -> Floats:
        """E[π_k]; what they leave of one belongs to states beyond the truncation."""
        mean = self.u / (self.u + self.v)
        xp = namespace(mean)
        return mean * xp.concatenate([xp.full_like(mean[:1], 1.0), xp.cumprod(1.0 - mean)[:-1]])


class _Absent(NamedTuple):
    """What tells how certainly each transition, of the rows and the start before them, occurs.

    Attributes
    ----------
    log_absent : (K + 1, K) array
        Σ log(1 − q) of every transition.
    log_row_absent : (K,) array
        The same of every state's row as a whole.
    variances : (K + 1, K) array
        Σ q (1 − q).
    """

    log_absent: Floats
    log_row_absent: Floats
    variances: Floats


class HDPSummary(NamedTuple):
    """What is known of the HDP's parameters.

    Attributes
    ----------
    alpha : float
        E[α], concentration of the rows around the shared weights.
    gamma : float
        E[γ], concentration of the sticks.
    weights : (K,) array
        E[π_k] of each state; the rest of one belongs to states beyond the truncation.
    effective_states : float
        Exponential of the entropy of the normalised weights: K for equal weights, 1 for a single
        state.
    stickiness : float
        κ, the extra concentration on staying in a state; E[κ] where it is learned.
    """

    alpha: float
    gamma: float
    weights: Floats
    effective_states: float
    stickiness: float = 0.0


@dataclass(frozen=True, eq=False)
class HDP(Transitions):
    r"""Rows that share their support through sticks.

    .. math::

        \tilde\pi_k \sim \mathrm{Beta}(1, \gamma), \quad
        \pi_k = \tilde\pi_k \prod_{l<k} (1 - \tilde\pi_l), \quad
        \theta_k \sim \mathrm{DP}(\alpha, \pi), \quad
        \alpha \sim \mathrm{Gamma}, \; \gamma \sim \mathrm{Gamma}

    Attributes
    ----------
    n_states : int
        Truncation level K.
    alpha_prior, gamma_prior : Gamma
    batch_size : int
        Sequences between two updates.
    forgetting_rate, delay : float
        Step sizes (delay + n) ** -forgetting_rate of the n-th update here.
    second_order : bool
        Whether table counts carry the second-order term.
    sort_states : bool
        Whether the largest state gets the first stick.
    normalize_rows : bool
        Whether the rows of the potentials are made to sum to one.
    occupancy : {"auto", "exact", "fast"}
        How the probability that a transition occurs at all is found; see `wants_absences`.
    exchangeable : bool
        Whether uncertain steps open tables as customers of one restaurant do, eq (19), not
        independently of one another, eq (5).  Needs the exact sums, and is left out without them.
    stickiness : float
        κ, where it is fixed: rows are θ_k ~ DP(α + κ, (απ + κδ_k) / (α + κ)).
    learn_stickiness : bool
        Learn α + κ and κ / (α + κ) in place of α: `alpha` is then the posterior of α + κ, and the
        start row is θ_0 ~ DP(α + κ, π).
    override_prior : Beta
        Prior on κ / (α + κ), where it is learned.

    Notes
    -----
    u and v are not stored: both follow from the blended table counts of the states and the
    blended E[γ], so that a change in the order of the states needs no permutation of v.
    """

    shares_weights = True

    n_states: int
    alpha_prior: Gamma = Gamma(1.0, 0.1)
    gamma_prior: Gamma = Gamma(1.0, 0.1)
    batch_size: int = 10_000
    forgetting_rate: float = 0.5
    delay: float = 1.0
    second_order: bool = True
    sort_states: bool = True
    normalize_rows: bool = True
    occupancy: OccupancyForm = "auto"
    exchangeable: bool = True
    stickiness: float = 0.0
    learn_stickiness: bool = False
    override_prior: Beta = Beta(1.0, 1.0)
    # The posterior, and the large batch so far.
    tables: Floats = field(default_factory=lambda: np.zeros(0))
    stick_gamma: float = 0.0
    alpha: Gamma = Gamma(1.0, 0.1)
    gamma: Gamma = Gamma(1.0, 0.1)
    override: Beta = Beta(1.0, 1.0)
    n_updates: int = 0
    pending: dict[str, Floats] = field(default_factory=dict)
    n_pending: int = 0

    @classmethod
    def make(cls, n_states: int, **options: Any) -> HDP:
        """Start from the prior: no tables, q(α) and q(γ) at their priors."""
        hdp = cls(n_states, **options)
        return replace(
            hdp,
            tables=np.zeros(n_states),
            stick_gamma=hdp.gamma_prior.mean,
            alpha=hdp.alpha_prior,
            gamma=hdp.gamma_prior,
            override=hdp.override_prior,
        )

    @property
    def order(self) -> NDArray[np.integer]:
        """State that has the first stick, the second, and so on."""
        return _order(self.tables, self.sort_states)

    @property
    def sticks(self) -> Sticks:
        """Posteriors of the sticks, in the order of the sticks."""
        return Sticks.from_tables(self.tables[self.order], self.stick_gamma)

    def _by_state(self, weights: Floats) -> Floats:
        by_state = namespace(weights).empty_like(weights)
        by_state[self.order] = weights
        return by_state

    @property
    def update_prior(self) -> Floats:
        """G[α π_k], eq (8); 0.1 until the first update."""
        xp = namespace(self.tables)
        if self.n_updates == 0:
            return xp.full_like(self.tables, _FIRST_CONCENTRATION)
        weights = self.alpha.geometric_mean * self._by_state(self.sticks.geometric_weights)
        # A stick that nothing was seen of has a weight that underflows; the rows stay positive.
        return xp.clip(weights, 1e-30, None)

    @property
    def mean_prior(self) -> Floats:
        """E[α] E[π_k]; 0.1 until the first update."""
        xp = namespace(self.tables)
        if self.n_updates == 0:
            return xp.full_like(self.tables, _FIRST_CONCENTRATION)
        weights = self.alpha.mean * self._by_state(self.sticks.mean_weights)
        return xp.clip(weights, 1e-30, None)

    @property
    def is_sticky(self) -> bool:
        """Whether staying has more than the shared weights give it."""
        return self.learn_stickiness or self.stickiness != 0.0

    def _cells(self, prior: Floats, keep: float, extra: float) -> Rows:
        """Give the rows of states their share of the prior, and staying the extra, eq (23).

        Without stickiness one vector stands for all rows.
        """
        if not self.is_sticky:
            return Rows(prior, prior)
        eye = namespace(prior).eye(self.n_states, like=prior)
        return Rows(prior, keep * prior + extra * eye)

    @property
    def update_cells(self) -> Rows:
        """Prior counts of every cell for the updates: eq (8), with stickiness eq (23)."""
        return self._cells(self.update_prior, *self._shares)

    @property
    def _shares(self) -> tuple[float, float]:
        """What of G[τπ] is left to the weights, and what staying has beside it, eq (23)."""
        if not self.learn_stickiness or self.n_updates == 0:
            return 1.0, self.stickiness
        log_over, log_keep = self.override.log_means
        xp = namespace(log_over)
        return xp.exp(log_keep), self.alpha.geometric_mean * xp.exp(log_over)

    @property
    def mean_cells(self) -> Rows:
        """Prior counts of every cell for prediction."""
        if not self.learn_stickiness or self.n_updates == 0:
            return self._cells(self.mean_prior, 1.0, self.stickiness)
        over = self.override.mean
        return self._cells(self.mean_prior, 1.0 - over, self.alpha.mean * over)

    @property
    def _row_totals(self) -> Rows:
        """Mean concentration of the start row, and that of every other."""
        alpha: Any = self.alpha.mean
        fixed = self.is_sticky and not self.learn_stickiness
        return Rows(alpha, alpha + self.stickiness if fixed else alpha)

    def prior_counts(self) -> PriorCounts:
        """Return G[απ]; rows are normalised by their sum, or by E[α] + E[C_k·]."""
        by_sum = self.normalize_rows or self.n_updates == 0
        totals: Any = self._row_totals if self.is_sticky else self.alpha.mean
        return PriorCounts(self.update_cells, None if by_sum else totals)

    def means(self, counts: Rows) -> Rows:
        """Return E[α] E[π] + E[C], normalised over the K states."""
        prior = self.mean_cells
        return normalized(Rows(prior.start + counts.start, prior.transitions + counts.transitions))

    def wants_absences(self, total_sequences: int) -> bool:
        """Whether the sums of log(1 − q) are needed, or −E[C] will do for them.

        The fast form replaces L = (N/B) Σ log(1 − q) by −(N/B) Σ q.  With r = N/B ≥ 4 copies of
        the batch the probability P = 1 − exp L that a transition occurs at all is then too small
        by at most max_q (e^{−rq} − (1 − q)^r) < 0.3 / r, the worst case being a single step.  The
        automatic choice takes it from r = 100 on: the exact sums make forward-backward four
        times as slow.
        """
        if self.occupancy == "auto":
            return total_sequences < _FAST_FROM * self._large_batch(total_sequences)
        return self.occupancy == "exact"

    def _large_batch(self, total_sequences: int) -> int:
        """Sequences between two updates: at least one update a pass."""
        return min(self.batch_size, total_sequences)

    def observe(
        self,
        counts: Rows,
        absences: Absences | None,
        n_sequences: int,
        total_sequences: int,
        *,
        update: Callable[[Any, int], Any] | None = None,
    ) -> Self:
        """Collect a minibatch, and update the posteriors when the large batch is full."""
        parts = {"start": counts.start, "transitions": counts.transitions}
        if absences is not None:
            parts |= {f"absent_{name}": value for name, value in absences._asdict().items()}
        # A sum is a value of its own, also of the first minibatch.
        parts = {name: self.pending.get(name, 0.0) + value for name, value in parts.items()}
        collected = replace(self, pending=parts, n_pending=self.n_pending + n_sequences)
        if collected.n_pending < self._large_batch(total_sequences):
            return collected
        updated: Self = (update or type(self).updated)(collected, total_sequences)
        return updated

    @property
    def step_size(self) -> float:
        """Step size of the next update."""
        return float((self.delay + self.n_updates + 1) ** -self.forgetting_rate)

    def updated(self, total_sequences: int, step_size: Any = None) -> Self:
        """Update q(π̃), q(α) and q(γ) from the large batch, eqs (4) to (7)."""
        step_size = self.step_size if step_size is None else step_size
        copies = total_sequences / self.n_pending
        scaled = {name: copies * part for name, part in self.pending.items()}
        xp = namespace(self.tables)

        def both(start: str, rows: str) -> Floats:
            return stacked(Rows(scaled[start], scaled[rows]))

        counts, absent = both("start", "transitions"), None
        if "absent_pairs" in scaled:
            squares = both("absent_start_squares", "absent_pair_squares")
            absent = _Absent(
                both("absent_start", "absent_pairs"),
                scaled["absent_rows"],
                xp.clip(counts - squares, 0.0, None),
            )
        moved = self._moved(counts, absent, step_size)
        return replace(moved, n_updates=self.n_updates + 1, pending={}, n_pending=0)

    def _moved(self, counts: Floats, absent: _Absent | None, step_size: Any) -> Self:
        """Move all posteriors towards those of given counts, eqs (5) to (7), (19) and (24).

        Without the exact sums of log(1 − q), −E[C] stands for them: the fast form of eq (4).
        """
        xp = namespace(counts)
        row_counts = counts.sum(axis=1)
        log_absent, log_row_absent, variances = absent or (-counts, -row_counts[1:], counts)
        prior = stacked(self.update_cells) if self.is_sticky else self.update_prior
        if self.exchangeable and absent is not None:
            tables = exchangeable_tables(prior, counts, log_absent, variances)
        else:
            tables = expected_tables(
                prior,
                counts,
                xp.minimum(log_absent, -counts),
                variances if self.second_order else None,
            )
        # Row 0 occurs with certainty, once a sequence.
        certain = xp.full_like(row_counts[:1], -np.inf)
        log_row_absent = xp.concatenate([certain, xp.minimum(log_row_absent, -row_counts[1:])])
        first, others = self._row_totals
        totals = xp.zeros_like(row_counts) + others
        totals[0] = first
        log_eta = expected_log_eta(totals, row_counts, log_row_absent)
        state_tables, override = tables.sum(axis=0), self.override
        if self.is_sticky:
            overridden = self._overridden(tables)
            state_tables = state_tables - overridden
        if self.learn_stickiness:
            override = self.override.blend(
                self.override_prior.a + overridden.sum(),
                self.override_prior.b + tables[1:].sum() - overridden.sum(),
                step_size,
            )
        keep = 1.0 - step_size
        fresh = Sticks.from_tables(
            state_tables[_order(state_tables, self.sort_states)], self.gamma.mean
        )
        n_tables = tables.sum() if self.learn_stickiness else state_tables.sum()
        return replace(
            self,
            tables=keep * self.tables + step_size * state_tables,
            stick_gamma=keep * self.stick_gamma + step_size * self.gamma.mean,
            alpha=self.alpha.blend(
                self.alpha_prior.shape + n_tables,
                self.alpha_prior.rate - log_eta.sum(),
                step_size,
            ),
            gamma=self.gamma.blend(
                self.gamma_prior.shape + self.n_states,
                self.gamma_prior.rate - fresh.log_rest.sum(),
                step_size,
            ),
            override=override,
        )

    def _overridden(self, tables: Floats) -> Floats:
        """Expected tables of staying that owe nothing to the shared weights, eq (24)."""
        keep, extra = self._shares
        diagonal = namespace(tables).diagonal(tables[1:])
        return diagonal * extra / (extra + keep * self.update_prior)

    def evidence_prior(self) -> Concentrations:
        """Return G[απ] and the mean concentrations of the rows."""
        start, rows = self.update_cells
        first, others = self._row_totals
        none = namespace(start).zeros_like(start)
        return Concentrations(Rows(start, none[:, None] + rows), first, none + others)

    @property
    def is_symmetric(self) -> bool:
        """Always: sticks follow the states."""
        return True

    def regrouped(self, weights: Floats) -> Self:
        """Return the prior for other states.

        A large batch that is not full is kept where states are only reordered, and begins anew
        where they are not: its sums of log(1 − q) belong to the states that there were.
        """
        order = weights.argmax(axis=1)
        reordered = weights.shape == (self.n_states, self.n_states) and np.array_equal(
            weights, np.eye(self.n_states)[order]
        )
        kept = self.pending if reordered else {}
        return replace(
            self,
            n_states=len(weights),
            tables=namespace(self.tables).placed(weights, like=self.tables) @ self.tables,
            pending={name: part[np.ix_(*[order] * part.ndim)] for name, part in kept.items()},
            n_pending=self.n_pending if reordered else 0,
        )

    def refitted(self, counts: Rows) -> Self:
        """Fit the posteriors to counts of the whole data set, in the fast form of eq (4)."""
        fitted = self
        for _ in range(_REFITS):
            fitted = fitted._moved(stacked(counts), None, 1.0)
            fitted = replace(fitted, n_updates=max(1, self.n_updates))
        return fitted

    def summary(self) -> HDPSummary:
        """Return E[α], E[γ], E[π] and the effective number of states."""
        weights = self._by_state(self.sticks.mean_weights)
        alpha, extra = self.alpha.mean, self.stickiness
        if self.learn_stickiness:
            alpha, extra = alpha * (1.0 - self.override.mean), alpha * self.override.mean
        return HDPSummary(alpha, self.gamma.mean, weights, effective_states(weights), extra)

    def divergence(self, counts: Rows) -> float:
        """Not there: the rows are integrated out; `PointHDP` goes with mean-field rows."""
        raise NotImplementedError("the HDP's rows are integrated out: it has no mean-field bound")

    def collapsed_bound(self, counts: Rows) -> float:
        """Return the part of L(q) that transitions have, at the expected counts, eq (13).

        With q(s | z) and q(η | z) at their best, the sums over tables and the integrals over η
        give the ratios of Γ functions back, with G[απ] and E[α] in them.
        """
        cells, first, others = self.evidence_prior()
        evidence = log_row_evidence(cells, Rows(first, others), counts)
        return evidence - self._prior_divergence()

    def _prior_divergence(self) -> float:
        """KL(q || p) of sticks, α and γ together; the prior of the sticks is averaged over γ."""
        u, v = self.sticks
        xp = namespace(u)
        log_gamma = xp.log(self.gamma.geometric_mean)
        entropy = (xp.betaln(u, v) - (u - 1) * xp.digamma(u) - (v - 1) * xp.digamma(v)).sum()
        entropy += ((u + v - 2) * xp.digamma(u + v)).sum()
        prior = self.n_states * log_gamma + (self.gamma.mean - 1) * self.sticks.log_rest.sum()
        above = self.alpha.divergence(self.alpha_prior) + self.gamma.divergence(self.gamma_prior)
        if self.learn_stickiness:
            above += self.override.divergence(self.override_prior)
        return float(above - prior - entropy)

    def converted(self, convert: Callable[[Any], Any]) -> Self:
        """Return the posterior, and the large batch so far, converted."""
        return replace(
            self,
            tables=convert(self.tables),
            stick_gamma=convert(self.stick_gamma),
            alpha=Gamma(*(convert(part) for part in self.alpha)),
            gamma=Gamma(*(convert(part) for part in self.gamma)),
            override=Beta(*(convert(part) for part in self.override)),
            pending={name: convert(part) for name, part in self.pending.items()},
        )

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return options, posterior and the large batch so far."""
        values = {
            entry.name: getattr(self, entry.name)
            for entry in fields(self)
            if entry.name not in ("tables", "pending")
        }
        pending = {f"pending.{name}": np.asarray(part) for name, part in self.pending.items()}
        return values, {"tables": self.tables, **pending}

    @classmethod
    def from_state(cls, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Undo `state`."""
        gammas = ("alpha_prior", "gamma_prior", "alpha", "gamma")
        values = values | {name: Gamma(*values[name]) for name in gammas}
        values |= {name: Beta(*values[name]) for name in ("override_prior", "override")}
        pending = {
            name.removeprefix("pending."): part
            for name, part in arrays.items()
            if name.startswith("pending.")
        }
        return cls(**values, tables=arrays["tables"], pending=pending)


def effective_states(weights: Floats) -> float:
    """Exponential of the entropy of the normalised weights."""
    shares = weights / weights.sum()
    return float(np.exp(-np.sum(shares * np.log(np.maximum(shares, 1e-300)))))


def _order(tables: Floats, by_size: bool) -> NDArray[np.integer]:
    xp = namespace(tables)
    if by_size:
        return xp.argsort(-tables, kind="stable")
    return xp.arange(len(tables), dtype=np.int64, like=tables)


def expected_tables(
    prior: Floats, counts: Floats, log_absent: Floats, variances: Floats | None
) -> Floats:
    r"""Expected number of tables E[s], eq (5).

    .. math::

        E[s] \approx G\,P\,\bigl(\psi(G + E_+) - \psi(G) + \tfrac12 V_+ \psi''(G + E_+)\bigr),
        \quad P = 1 - e^{L}, \; E_+ = E[C]/P, \; V_+ = V/P - (1 - P) E_+^2

    Parameters
    ----------
    prior : (K,) or (R, K) array
        G[α π].
    counts : (R, K) array
        E[C].
    log_absent : (R, K) array
        L = log q(C = 0), at most −E[C].
    variances : (R, K) array or None
        Var[C] for the second-order term; None leaves the term out.

    Examples
    --------
    With whole, certain counts the expectation is exact, here 1 + 1/2 + 1/3:

    >>> expected_tables(np.ones(1), np.full((1, 1), 3.0), np.full((1, 1), -np.inf), None).round(6)
    array([[1.833333]])
    """
    xp = namespace(counts)
    seen = counts > 1e-200
    occurs = xp.where(seen, -xp.expm1(log_absent), 1.0)
    given = xp.where(seen, counts, 1.0) / occurs
    excess = xp.digamma(prior + given) - xp.digamma(prior)
    if variances is not None:
        spread = xp.clip(variances / occurs - (1.0 - occurs) * given**2, 0.0, None)
        excess = excess + 0.5 * spread * xp.polygamma(2, prior + given)
    return xp.where(seen, prior * occurs * xp.clip(excess, 0.0, None), 0.0)


def exchangeable_tables(
    prior: Floats, counts: Floats, log_absent: Floats, variances: Floats
) -> Floats:
    r"""Expected number of tables when uncertain steps are exchangeable, eq (19).

    .. math::

        E[s] \approx G\,P_c\,\bigl(\psi(G + c/P_c) - \psi(G)\bigr)
        + G \log\Bigl(1 + \frac{V}{G + c}\Bigr), \quad c = E[C] - V

    Parameters
    ----------
    prior : (K,) or (R, K) array
        G[α π].
    counts, log_absent, variances : (R, K) arrays
        E[C] = Σ q, Σ log(1 − q) and V = Σ q (1 − q), so that c = Σ q² is the certain part of the
        count.

    Examples
    --------
    The same expected count in one certain step, and in a hundred that are hardly there:

    >>> counts, variances = np.ones((1, 2)), np.array([[0.0, 0.99]])
    >>> log_absent = np.array([[-np.inf, 100 * np.log(0.99)]])
    >>> exchangeable_tables(np.full(2, 0.1), counts, log_absent, variances).round(2)
    array([[1.  , 0.24]])
    """
    xp = namespace(counts)
    certain = xp.clip(counts - variances, 0.0, None)
    # Σ log(1 − q²), with log(1 + q) ≈ q − (1 − log 2) q², which is exact at 0 and 1.
    none_certain = log_absent + counts - (1.0 - np.log(2.0)) * certain
    settled = expected_tables(prior, certain, xp.minimum(none_certain, -certain), None)
    return settled + prior * xp.log1p(variances / (prior + certain))


def expected_log_eta(alpha: float | Floats, row_counts: Floats, log_absent: Floats) -> Floats:
    """E[log η_k] of every row, eq (6); `log_absent` is log q(C_k· = 0)."""
    xp = namespace(row_counts)
    seen = row_counts > 1e-200
    occurs = xp.where(seen, -xp.expm1(log_absent), 1.0)
    given = xp.where(seen, row_counts, 1.0) / occurs
    alpha = alpha + xp.zeros_like(row_counts)
    return xp.where(seen, occurs * (xp.digamma(alpha) - xp.digamma(alpha + given)), 0.0)
