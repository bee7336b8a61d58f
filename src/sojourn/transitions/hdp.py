"""The nonparametric model: hierarchical Dirichlet process on the rows, eqs (4) to (8).

An update treats the data set as N/B copies of a large batch of B sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.cpu import tables as compiled
from sojourn.kernels.interface import Floats, Squares
from sojourn.transitions.base import (
    Concentrations,
    PriorCounts,
    Rows,
    RowSpread,
    Transitions,
    log_row_evidence,
    stacked,
)
from sojourn.transitions.checks import check_hdp
from sojourn.transitions.constraints import (
    RowConstraints,
    converted,
    regrouped,
    taken,
    with_constraints,
)
from sojourn.transitions.distributions import BetaDistribution, GammaDistribution, Sticks
from sojourn.transitions.hdp_updates import (
    compiled_changes,
    device_prior,
    overridden_tables,
    prior_divergence,
    renamed,
    row_totals,
    sticky_cells,
    tables_and_log_eta,
)
from sojourn.transitions.large_batch import added, pending_of, state_of, step_size_of
from sojourn.transitions.summary import HDPSummary, effective_states
from sojourn.transitions.tables import Occurrence

Prior = TypeVar("Prior", bound="HDP")
OccupancyForm = Literal["auto", "exact", "fast"]

_FIRST_CONCENTRATION = 0.1
_REFITS = 3  # rounds in which the posteriors are fitted to given counts
_FAST_FROM = 100.0  # copies N/B of the batch from which the fast form is used


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
    alpha_prior : GammaDistribution
        Prior on α.
    gamma_prior : GammaDistribution
        Prior on γ.
    batch_size : int
        Number of sequences B between two updates.
    forgetting_rate : float
        The n-th update has the step size (delay + n) ** -forgetting_rate.
    delay : float
        See `forgetting_rate`.
    second_order : bool
        Whether expected table counts include the second-order term.
    sort_states : bool
        Whether the largest state gets the first stick.
    normalize_rows : bool
        Whether the rows of the transition potentials are normalised to sum to one.
    occupancy : {"auto", "exact", "fast"}
        How the probability that a transition occurs at all is found; see `wants_squares`.
    exchangeable : bool
        Whether uncertain steps open tables like customers of one restaurant, eq (19), and not
        independently of one another, eq (5).  Takes effect only where the sums of q² are known.
    stickiness : float
        κ, if it is fixed: rows are θ_k ~ DP(α + κ, (απ + κδ_k) / (α + κ)).
    learn_stickiness : bool
        Whether to learn α + κ and κ / (α + κ) instead of α: `alpha` is then the posterior of
        α + κ, and the start row is θ_0 ~ DP(α + κ, π).
    override_prior : BetaDistribution
        Prior on κ / (α + κ), if it is learned.
    tables : (K,) array
        Blended expected number of tables of each state.
    stick_gamma : float
        Blended E[γ] of the sticks.
    alpha : GammaDistribution
        Posterior of α.
    gamma : GammaDistribution
        Posterior of γ.
    override : BetaDistribution
        Posterior of κ / (α + κ).
    n_updates : int
        Number of updates so far.
    pending : dict of arrays
        Sums over the large batch so far.
    n_pending : int
        Number of sequences in it.
    constraints : RowConstraints or None
        Probabilities that are given; the others of a row are θ_k without them, times what is left.

    Notes
    -----
    The parameters u and v of the sticks are not stored: both follow from the blended table counts
    of the states and the blended E[γ], so that no permutation is needed when the order changes.
    """

    shares_weights = True
    is_even = True  # the sticks follow the states

    n_states: int
    alpha_prior: GammaDistribution = GammaDistribution(1.0, 0.1)
    gamma_prior: GammaDistribution = GammaDistribution(1.0, 0.1)
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
    override_prior: BetaDistribution = BetaDistribution(1.0, 1.0)
    # The posterior, and the large batch.
    tables: Floats = field(default_factory=lambda: np.zeros(0))
    stick_gamma: float = 0.0
    alpha: GammaDistribution = GammaDistribution(1.0, 0.1)
    gamma: GammaDistribution = GammaDistribution(1.0, 0.1)
    override: BetaDistribution = BetaDistribution(1.0, 1.0)
    n_updates: int = 0
    pending: dict[str, Floats] = field(default_factory=dict)
    n_pending: int = 0
    constraints: RowConstraints | None = None

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
        """The state of the first stick, of the second, and so on."""
        return _order(self.tables, self.sort_states)

    @property
    def sticks(self) -> Sticks:
        """Posteriors of the sticks, in the order of the sticks."""
        return Sticks.from_tables(self.tables[self.order], self.stick_gamma)

    @property
    def update_prior(self) -> Floats:
        """G[α π_k], eq (8); 0.1 until the first update."""
        known = vars(self).get("_update_prior")
        if known is None:
            known = _update_prior(self)
            if not is_tensor(known):  # the numbers of a tensor may be replaced
                vars(self)["_update_prior"] = known
        return cast(Floats, known)

    @property
    def mean_prior(self) -> Floats:
        """E[α] E[π_k]; 0.1 until the first update."""
        xp = namespace(self.tables)
        if self.n_updates == 0:
            return xp.full_like(self.tables, _FIRST_CONCENTRATION)
        weights = self.alpha.mean * _by_state(self.sticks.mean_weights, self.order)
        return xp.clip(weights, 1e-30, None)

    @property
    def is_sticky(self) -> bool:
        """Whether staying in a state has a prior count beside the shared weights."""
        return self.learn_stickiness or self.stickiness != 0.0

    @property
    def update_cells(self) -> Rows:
        """Prior counts of every cell for the updates: eq (8), with stickiness eq (23)."""
        return sticky_cells(self, self.update_prior, *self.shares)

    @property
    def shares(self) -> tuple[float, float]:
        """Factor of the shared weights in G[τπ], and the extra count of staying, eq (23)."""
        if not self.learn_stickiness or self.n_updates == 0:
            return 1.0, self.stickiness
        log_over, log_keep = self.override.log_means
        xp = namespace(log_over)
        return xp.exp(log_keep), self.alpha.geometric_mean * xp.exp(log_over)

    def prior_counts(self) -> PriorCounts:
        """Return G[απ]; rows are normalised by their sums, or by E[α] + E[C_k·]."""
        known: PriorCounts | None = vars(self).get("_prior_counts")
        if known is not None:
            return known
        if self.constraints is not None:
            return PriorCounts(self.constraints.rows(self.update_cells), None, self.constraints)
        by_sum = self.normalize_rows or self.n_updates == 0
        totals: Any = row_totals(self) if self.is_sticky else self.alpha.mean
        return PriorCounts(self.update_cells, None if by_sum else totals)

    def means(self, counts: Rows) -> Rows:
        """Return E[α] E[π] + E[C], normalised over the K states."""
        keep, extra = 1.0, self.stickiness
        if self.learn_stickiness and self.n_updates > 0:
            over = self.override.mean
            keep, extra = 1.0 - over, self.alpha.mean * over
        prior = sticky_cells(self, self.mean_prior, keep, extra)
        rows = Rows(prior.start + counts.start, prior.transitions + counts.transitions)
        return with_constraints(self.constraints, rows)

    def wants_squares(self, total_sequences: int) -> bool:
        """Return whether the sums of q² are needed, or are taken to be zero.

        The fast form has L = −(N/B) Σ q, the limit of eq (4) without them.  With r = N/B ≥ 4
        copies of the batch this underestimates P = 1 − exp L, the probability that a transition
        occurs at all, by at most max_q (e^{−rq} − (1 − q)^r) < 0.3 / r; a single step is the worst
        case.  With "auto" the fast form is used if r ≥ 100.
        """
        if self.occupancy == "auto":
            return total_sequences < _FAST_FROM * min(self.batch_size, total_sequences)
        return self.occupancy == "exact"

    def observe(
        self,
        counts: Rows,
        squares: Squares | None,
        n_sequences: int,
        total_sequences: int,
        *,
        update: Callable[[Any, int], Any] | None = None,
    ) -> Self:
        """Add a minibatch to the large batch, and update the posteriors when that is full."""
        parts = {"start": counts.start, "transitions": counts.transitions}
        if squares is not None:
            parts["squares_start"], parts["squares_pairs"], parts["squares_rows"] = squares
        n_pending = self.n_pending + n_sequences
        # At least one update per pass, also if the data set is smaller than the large batch.
        is_full = n_pending >= min(self.batch_size, total_sequences)
        # The sums of a single minibatch that are used at once need not be kept.
        is_used = is_full and not self.pending and not is_tensor(counts.start)
        pending = parts if is_used else added(self.pending, parts)
        # What follows from the posterior alone stays known.
        collected = _changed(self, pending=pending, n_pending=n_pending)
        if not is_full:
            return collected
        updated: Self = (update or type(self).updated)(collected, total_sequences)
        return updated

    @property
    def step_size(self) -> float:
        """Step size of the next update."""
        return step_size_of(self.n_updates, forgetting_rate=self.forgetting_rate, delay=self.delay)

    def updated(self, total_sequences: int, step_size: Any = None) -> Self:
        """Update q(π̃), q(α) and q(γ) from the large batch, eqs (4) to (7)."""
        step_size = self.step_size if step_size is None else step_size
        copies = total_sequences / self.n_pending
        done: dict[str, Any] = {"n_updates": self.n_updates + 1, "pending": {}, "n_pending": 0}
        changes = compiled_changes(self, copies, step_size)
        if changes is not None:
            return _changed(self, **done, **changes)
        scaled = {name: copies * part for name, part in self.pending.items()}
        counts = stacked(Rows(scaled["start"], scaled["transitions"]))
        occurrence = None
        if "squares_pairs" in scaled:
            squares = stacked(Rows(scaled["squares_start"], scaled["squares_pairs"]))
            occurrence = Occurrence(squares, scaled["squares_rows"])
        blended = self.blended(counts, occurrence, step_size)
        return replace(blended, **done)

    def blended(self, counts: Floats, occurrence: Occurrence | None, step_size: Any) -> Self:
        """Blend all posteriors with those of given counts, eqs (5) to (7), (19) and (24).

        Without the sums of q², −E[C] is used: the fast form of eq (4).

        Parameters
        ----------
        counts : (K + 1, K) array
            E[C] of the whole data set, the start first.
        occurrence : Occurrence or None
            How certain it is that each transition occurs.
        step_size : float
            Weight of the new posteriors.
        """
        tables, log_eta = tables_and_log_eta(self, counts, occurrence)
        state_tables, override = tables.sum(axis=0), self.override
        if self.is_sticky:
            overridden = overridden_tables(self, tables)
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

    def evidence_prior(self) -> Concentrations:
        """Return G[απ] of every cell, and the mean concentrations of the rows."""
        start, rows = self.update_cells
        first, others = row_totals(self)
        none = namespace(start).zeros_like(start)
        cells = Rows(start, none[:, None] + rows)
        if self.constraints is not None:
            cells = self.constraints.rows(cells)
        return Concentrations(cells, first, none + others, self.constraints)

    def regrouped(self, weights: Floats) -> Self:
        """Return the prior for other states.

        A large batch that is not yet full is kept if the states are only reordered.  Otherwise it
        is discarded, because its sums of q² belong to the previous states.
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
            constraints=regrouped(self.constraints, weights),
        )

    def refitted(self, counts: Rows) -> Self:
        """Fit the posteriors to the counts of the whole data set, in the fast form of eq (4)."""
        fitted = self
        for _ in range(_REFITS):
            fitted = fitted.blended(stacked(counts), None, 1.0)
            fitted = replace(fitted, n_updates=max(1, self.n_updates))
        return fitted

    def summary(self) -> HDPSummary:
        """Return E[α], E[γ], E[π] and the effective number of states."""
        weights = _by_state(self.sticks.mean_weights, self.order)
        alpha, extra = self.alpha.mean, self.stickiness
        if self.learn_stickiness:
            alpha, extra = alpha * (1.0 - self.override.mean), alpha * self.override.mean
        return HDPSummary(alpha, self.gamma.mean, weights, effective_states(weights), extra)

    def divergence(self, counts: Rows) -> float:
        """Raise an error: the rows are integrated out; `PointHDP` has mean-field rows."""
        raise NotImplementedError("the HDP's rows are integrated out: it has no mean-field bound")

    def collapsed_bound(self, counts: Rows, spread: RowSpread | None = None) -> float:
        """Return the part of L(q) that depends on the transitions, eq (13).

        With optimal q(s | z) and q(η | z), the sums over tables and the integrals over η are
        ratios of Γ functions again, with G[απ] and E[α] in them.
        """
        cells, first, others, constraints = self.evidence_prior()
        evidence = log_row_evidence(cells, Rows(first, others), counts, spread, constraints)
        return evidence - prior_divergence(self)

    def converted(self, convert: Callable[[Any], Any]) -> Self:
        """Return the prior with its posterior and the large batch converted."""
        return replace(
            self,
            tables=convert(self.tables),
            stick_gamma=convert(self.stick_gamma),
            alpha=GammaDistribution(*(convert(part) for part in self.alpha)),
            gamma=GammaDistribution(*(convert(part) for part in self.gamma)),
            override=BetaDistribution(*(convert(part) for part in self.override)),
            pending={name: convert(part) for name, part in self.pending.items()},
            constraints=converted(self.constraints, convert),
        )

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return options, posterior and the large batch so far."""
        return state_of(self, "tables")

    @classmethod
    def from_state(cls, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Undo `state`."""
        gammas = ("alpha_prior", "gamma_prior", "alpha", "gamma")
        values = values | {name: GammaDistribution(*values[name]) for name in gammas}
        values |= {name: BetaDistribution(*values[name]) for name in ("override_prior", "override")}
        constraints, arrays = taken(arrays)
        pending = renamed(pending_of(arrays))
        return cls(**values, tables=arrays["tables"], pending=pending, constraints=constraints)

    def check(self, n_states: int) -> None:
        """Check options, posteriors and the large batch."""
        check_hdp(self, n_states)


def _changed(hdp: Prior, **changes: Any) -> Prior:
    """Return a prior with other values, and all else that it has; quicker than `replace`."""
    changed = object.__new__(type(hdp))
    vars(changed).update(vars(hdp), **changes)
    return changed


def _update_prior(hdp: HDP) -> Floats:
    xp = namespace(hdp.tables)
    if hdp.n_updates == 0:
        return cast(Floats, xp.full_like(hdp.tables, _FIRST_CONCENTRATION))
    if not is_tensor(hdp.tables):  # to the bit what `update_posteriors` gives
        by_state, write = np.empty(hdp.n_states), cast(Any, compiled.geometric_prior)
        known = np.asarray(hdp.tables, dtype=np.float64), float(hdp.stick_gamma)
        write(*known, *map(float, hdp.alpha), hdp.sort_states, by_state)
        return by_state
    return device_prior(hdp)


def _by_state(weights: Floats, order: NDArray[np.integer]) -> Floats:
    """Return weights of the sticks in the order of the states."""
    by_state = namespace(weights).empty_like(weights)
    by_state[order] = weights
    return by_state


def _order(tables: Floats, by_size: bool) -> NDArray[np.integer]:
    xp = namespace(tables)
    if by_size:
        return xp.argsort(-tables, kind="stable")
    return xp.arange(len(tables), dtype=np.int64, like=tables)
