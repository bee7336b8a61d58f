"""The finite model with a learned prior count of staying in a state, eqs (23) and (24)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from numpy.typing import NDArray

from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats, Squares
from sojourn.transitions.base import (
    Concentrations,
    PriorCounts,
    Rows,
    RowSpread,
    Transitions,
    log_row_evidence,
)
from sojourn.transitions.checks import check_steps
from sojourn.transitions.constraints import RowConstraints, arrays_of, taken, with_constraints
from sojourn.transitions.dirichlet import Dirichlet
from sojourn.transitions.distributions import GammaDistribution
from sojourn.transitions.large_batch import step_size_of
from sojourn.transitions.tables import expected_log_eta, expected_tables

_REFITS = 3  # rounds in which the posterior is fitted to given counts


@dataclass(frozen=True, eq=False)
class StickyDirichlet(Transitions):
    r"""Rows :math:`\theta_k \sim \mathrm{Dirichlet}(a_k + \kappa\delta_k)`, κ ~ Gamma.

    Attributes
    ----------
    plain : Dirichlet
        The prior counts a, without stickiness.
    stickiness_prior : GammaDistribution
        Prior of κ.
    stickiness : GammaDistribution
        Posterior of κ.
    forgetting_rate : float
        The n-th update has the step size (delay + n) ** -forgetting_rate.
    delay : float
        See `forgetting_rate`.
    n_updates : int
        Number of updates so far.
    pending : (K, K) array or None
        Expected transition counts of the minibatch during an update.
    n_pending : int
        Number of sequences in it.

    Examples
    --------
    >>> import numpy as np
    >>> prior = StickyDirichlet(Dirichlet.make(2, None, 1.0))
    >>> stays = prior.refitted(Rows(np.ones(2), np.array([[90.0, 1.0], [1.0, 90.0]])))
    >>> leaves = prior.refitted(Rows(np.ones(2), np.array([[1.0, 90.0], [90.0, 1.0]])))
    >>> bool(stays.stickiness.mean > leaves.stickiness.mean)
    True
    """

    shares_weights = False

    plain: Dirichlet
    stickiness_prior: GammaDistribution = GammaDistribution(1.0, 0.1)
    stickiness: GammaDistribution = GammaDistribution(1.0, 0.1)
    forgetting_rate: float = 0.5
    delay: float = 1.0
    n_updates: int = 0
    pending: Floats | None = None
    n_pending: int = 0

    @property
    def constraints(self) -> RowConstraints | None:  # type: ignore[override]
        """What is known of start and transitions."""
        return self.plain.constraints

    def constrained(self, constraints: RowConstraints | None) -> Self:
        """Return the same prior with other constraints."""
        return replace(self, plain=self.plain.constrained(constraints))

    def _cells(self, extra: float) -> Rows:
        start, matrix = self.plain.prior
        cells = Rows(start, matrix + extra * namespace(start).eye(len(start), like=start))
        return cells if self.constraints is None else self.constraints.rows(cells)

    def prior_counts(self) -> PriorCounts:
        """Return a + G[κ]δ, and zeros where nothing is learned."""
        return PriorCounts(self._cells(self.stickiness.geometric_mean), None, self.constraints)

    def means(self, counts: Rows) -> Rows:
        """Return (a + E[κ]δ + E[C]) / normaliser, within the constraints."""
        start, matrix = self._cells(self.stickiness.mean)
        rows = Rows(start + counts.start, matrix + counts.transitions)
        return with_constraints(self.constraints, rows)

    def wants_squares(self, total_sequences: int) -> bool:
        """Return False: staying is frequent, so that it certainly occurs."""
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
        """Blend the posterior of κ with that of N/M copies of the minibatch."""
        taken = replace(self, pending=counts.transitions, n_pending=n_sequences)
        updated: Self = (update or type(self).updated)(taken, total_sequences)
        return updated

    @property
    def step_size(self) -> float:
        """Step size of the next update."""
        return step_size_of(self.n_updates, forgetting_rate=self.forgetting_rate, delay=self.delay)

    def updated(self, total_sequences: int, step_size: Any = None) -> Self:
        """Update q(κ) from the minibatch."""
        assert self.pending is not None
        step_size = self.step_size if step_size is None else step_size
        blended = self._blended((total_sequences / self.n_pending) * self.pending, step_size)
        return replace(blended, n_updates=self.n_updates + 1, pending=None, n_pending=0)

    def _blended(self, counts: Floats, step_size: Any) -> Self:
        """Blend q(κ) with that of given counts: overridden tables of staying and η, eq (24)."""
        xp = namespace(counts)
        if self.constraints is not None:
            counts = counts * self.constraints.free.transitions
        extra, plain = self.stickiness.geometric_mean, xp.diagonal(self.plain.prior.transitions)
        stays = xp.diagonal(counts)
        tables = expected_tables(plain + extra, stays[None], -stays[None], stays[None])[0]
        overridden = tables * extra / (plain + extra)
        masses = counts.sum(axis=1)
        log_eta = expected_log_eta(self.evidence_prior().totals, masses, -masses)
        if self.constraints is not None:  # where staying is not learned, κ is not in the row
            log_eta = log_eta * xp.diagonal(self.constraints.free.transitions)
        stickiness = self.stickiness.blend(
            self.stickiness_prior.shape + overridden.sum(),
            self.stickiness_prior.rate - log_eta.sum(),
            step_size,
        )
        return replace(self, stickiness=stickiness)

    def evidence_prior(self) -> Concentrations:
        """Return a + G[κ]δ, and A + E[κ] for the rows."""
        start, matrix = self.plain.learned
        extra: Any = self.stickiness.mean
        if self.constraints is not None:
            extra = extra * namespace(start).diagonal(self.constraints.free.transitions)
        totals = matrix.sum(axis=1) + extra
        cells = self._cells(self.stickiness.geometric_mean)
        return Concentrations(cells, start.sum(), totals, self.constraints)

    @property
    def is_even(self) -> bool:
        """Whether all prior counts except those of staying are equal."""
        return self.plain.is_even

    def regrouped(self, weights: Floats) -> Self:
        """Return the same prior for another number of states."""
        return replace(self, plain=self.plain.regrouped(weights))

    def refitted(self, counts: Rows) -> Self:
        """Fit q(κ) to the counts of the whole data set."""
        fitted = self
        for _ in range(_REFITS):
            fitted = fitted._blended(counts.transitions, 1.0)
        return fitted

    def divergence(self, counts: Rows) -> float:
        """Raise an error: κ is learned with the rows integrated out."""
        raise NotImplementedError("learned stickiness requires collapsed inference")

    def collapsed_bound(self, counts: Rows, spread: RowSpread | None = None) -> float:
        """Return E[Σ_k log p(C_k)] minus KL(q(κ) || p(κ))."""
        cells, first, totals, constraints = self.evidence_prior()
        evidence = log_row_evidence(cells, Rows(first, totals), counts, spread, constraints)
        return evidence - self.stickiness.divergence(self.stickiness_prior)

    def converted(self, convert: Callable[[Any], Any]) -> Self:
        """Return prior counts, posterior and minibatch converted."""
        return replace(
            self,
            plain=self.plain.converted(convert),
            stickiness=GammaDistribution(*(convert(part) for part in self.stickiness)),
            pending=None if self.pending is None else convert(self.pending),
        )

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return options and posterior, and the prior counts."""
        values = {
            "stickiness_prior": self.stickiness_prior,
            "stickiness": self.stickiness,
            "forgetting_rate": self.forgetting_rate,
            "delay": self.delay,
            "n_updates": self.n_updates,
        }
        return values, self.plain.prior._asdict() | arrays_of(self.constraints)

    @classmethod
    def from_state(cls, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild the prior from `state`."""
        gammas = {
            name: GammaDistribution(*values[name]) for name in ("stickiness_prior", "stickiness")
        }
        constraints, own = taken(arrays)
        return cls(Dirichlet(Rows(**own), 0.0, constraints), **(values | gammas))

    def check(self, n_states: int) -> None:
        """Check prior counts, the posterior of κ, and the step sizes."""
        self.plain.check(n_states)
        self.stickiness_prior.check("stickiness_prior")
        self.stickiness.check("stickiness")
        check_steps(self)
