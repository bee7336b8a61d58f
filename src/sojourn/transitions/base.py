"""The interface of a prior on start and transitions.

The start distribution, row 0 in the mathematics, is a separate vector here: ``start`` (K,) beside
``transitions`` (K, K).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self, cast

from numpy.typing import NDArray

from sojourn.kernels.arrays import namespace
from sojourn.kernels.expectations import Spread, expected_log_gamma
from sojourn.kernels.interface import Floats, Squares
from sojourn.transitions.constraints import RowConstraints
from sojourn.transitions.rows import Rows, normalized, stacked

__all__ = [
    "Concentrations",
    "PriorCounts",
    "RowConstraints",
    "RowSpread",
    "Rows",
    "Transitions",
    "log_row_evidence",
    "normalized",
    "stacked",
]


class RowSpread(NamedTuple):
    """How far the counts of start and transitions may be from their expectations, eq (27).

    Attributes
    ----------
    start : Spread of (K,) arrays
        Of the sequences that begin in each state; how many there are is certain.
    transitions : Spread of (K, K) arrays
        Of the steps from state k to state l.
    totals : Spread of (K,) arrays
        Of all steps from state k.
    """

    start: Spread
    transitions: Spread
    totals: Spread


class Concentrations(NamedTuple):
    """Dirichlet parameters of every row, and the normalisers of the rows.

    Attributes
    ----------
    rows : Rows
        Prior counts plus expected counts.
    start_total : float
        Normaliser of the start vector.
    totals : (K,) array
        Normalisers of the transition rows.
    constraints : RowConstraints or None
        Where there are any, `rows` are zero except for what is learned.
    """

    rows: Rows
    start_total: Any
    totals: Floats
    constraints: RowConstraints | None = None


class PriorCounts(NamedTuple):
    """Prior counts: what is added to the expected counts of every row.

    Attributes
    ----------
    rows : Rows
        Added to the counts; ``transitions`` may be one vector for all rows.
    total : float, Rows or None
        If given, rows are normalised by this plus the sum of their counts; `Rows` has a number for
        the start and one for the others.  If None, rows are normalised by their own sums.
    constraints : RowConstraints or None
        Where there are any, `rows` are zero except for what is learned.
    """

    rows: Rows
    total: Any = None
    constraints: RowConstraints | None = None

    def plus(self, counts: Rows) -> Concentrations:
        """Return the parameters of the update, eq (1), given expected counts."""
        if self.constraints is not None:
            counts = self.constraints.rows(counts)
        rows = Rows(self.rows.start + counts.start, self.rows.transitions + counts.transitions)
        sums, extra = (rows, 0.0) if self.total is None else (counts, self.total)
        first, others = extra if isinstance(extra, Rows) else (extra, extra)
        return Concentrations(
            rows,
            first + sums.start.sum(),
            others + sums.transitions.sum(axis=1),
            self.constraints,
        )


def log_row_evidence(
    prior: Rows,
    prior_totals: Rows,
    counts: Rows,
    spread: RowSpread | None = None,
    constraints: RowConstraints | None = None,
) -> float:
    """Return E[Σ_k log Γ(A_k) / Γ(A_k + C_k·) + Σ_kl log Γ(a_kl + C_kl) / Γ(a_kl)].

    Without a spread the counts are certain.  How many sequences begin is certain in any case.  With
    constraints both sums are over what is learned, and the given probabilities are added, eq (39).
    """
    xp = namespace(counts.start)
    total: Any = 0.0
    if constraints is not None:
        counts = constraints.counted(counts)
        total = total + _log_given(constraints, counts)
        if spread is not None and constraints.fixes:
            spread = spread._replace(totals=_spread_of_rest(constraints, counts, spread.totals))
        counts, prior = constraints.rows(counts), _without_zeros(prior, constraints)
        prior_totals = Rows(
            *(xp.where(part > 0.0, part, xp.ones_like(part)) for part in prior_totals)
        )
    certain = (None, None, None)
    of_start, of_cells, of_totals = certain if spread is None else spread
    for a, sums, c, own, of_sums in (
        (prior.start, prior_totals.start, counts.start, of_start, None),
        (prior.transitions, prior_totals.transitions, counts.transitions, of_cells, of_totals),
    ):
        whole = c.sum(axis=-1)
        totals = sums + xp.zeros_like(whole)
        total = total + (xp.gammaln(totals) - _log_gamma(totals, whole, of_sums)).sum()
        total = total + (_log_gamma(a, c, own) - xp.gammaln(a)).sum()
    return float(total)


def _log_given(constraints: RowConstraints, counts: Rows) -> Any:
    """Return what the given probabilities say of the counts: Σ C log θ of them and of the rest."""
    rest, total = constraints.rows(counts), 0.0
    for c, free, given, left in zip(counts, rest, constraints.given, constraints.left, strict=True):
        xp = namespace(c)
        own = free.sum(axis=-1)
        learned = own > 0.0
        share = xp.where(learned, left, xp.ones_like(own))
        total = total + xp.xlogy(c - free, given).sum() + xp.xlogy(own, share).sum()
    return total


def _without_zeros(prior: Rows, constraints: RowConstraints) -> Rows:
    """Return prior counts with a one where nothing is learned, and so nothing is counted."""
    return Rows(*(a + (1.0 - free) for a, free in zip(prior, constraints.free, strict=True)))


def _spread_of_rest(constraints: RowConstraints, counts: Rows, whole: Spread) -> Spread:
    """Return the spread of the steps to what is learned, as if they were a share of each step."""
    xp = namespace(counts.start)
    sums = counts.transitions.sum(axis=1)
    rest = constraints.rows(counts).transitions.sum(axis=1)
    share = rest / xp.where(sums > 0.0, sums, xp.ones_like(sums))
    squares = share * share * xp.clip(sums - whole.variances, 0.0, None)
    return Spread(xp.minimum(share * whole.log_absent, -rest), xp.clip(rest - squares, 0.0, None))


def _log_gamma(prior: Floats, counts: Floats, spread: Spread | None) -> Floats:
    """Return E[log Γ(a + C)]; without a spread the counts are certain."""
    if spread is None:
        gammas: Floats = namespace(counts).gammaln(prior + counts)
        return gammas
    return expected_log_gamma(prior, counts, spread)


class Transitions(ABC):
    """A prior on start and transitions, with the posterior of its own parameters, if it has any.

    It is an immutable value: `observe` returns a new one.
    """

    n_updates: int = 0
    """Number of updates of the prior's own posterior; prior counts change only with an update."""

    constraints: RowConstraints | None = None
    """What is known of start and transitions; None where all of it is learned."""

    stickiness: Any = 0.0
    """Extra prior count of staying in a state."""

    shares_weights: ClassVar[bool]
    """Whether a merged state has the prior counts of both its parts together, or those of one."""

    @abstractmethod
    def prior_counts(self) -> PriorCounts:
        """Return what the update of eq (1) adds to the expected counts."""

    def concentrations(self, counts: Rows) -> Concentrations:
        """Return the parameters of the update, eq (1), given expected counts."""
        return self.prior_counts().plus(counts)

    @abstractmethod
    def means(self, counts: Rows) -> Rows:
        """Return posterior mean probabilities for prediction; rows sum to one."""

    @abstractmethod
    def wants_squares(self, total_sequences: int) -> bool:
        """Return whether `observe` needs the sums of q² for a data set of that size."""

    @abstractmethod
    def observe(
        self,
        counts: Rows,
        squares: Squares | None,
        n_sequences: int,
        total_sequences: int,
        *,
        update: Callable[[Any, int], Any] | None = None,
    ) -> Self:
        """Return the prior after a minibatch.

        Parameters
        ----------
        counts : Rows
            Expected counts of the minibatch.
        squares : Squares or None
            Sums of q², if `wants_squares` asks for them.
        n_sequences : int
            Number of sequences in the minibatch.
        total_sequences : int
            Number of sequences in the data set.
        update : callable, optional
            Called as ``update(prior, total_sequences)`` instead of the prior's own update.
        """

    @abstractmethod
    def evidence_prior(self) -> Concentrations:
        """Return the parameters of the evidence of the rows, eq (13), before any counts."""

    def constrained(self, constraints: RowConstraints | None) -> Self:
        """Return the same prior with other constraints."""
        return replace(cast(Any, self), constraints=constraints)

    @property
    @abstractmethod
    def is_even(self) -> bool:
        """Whether the prior counts treat all states alike, whatever the constraints do."""

    @property
    def is_symmetric(self) -> bool:
        """Whether the prior treats all states alike, so that their number may change."""
        known = self.constraints
        if known is not None and known.lasting:
            known = None if bool((known.free.start > 0.0).all()) else known
        return self.is_even and known is None

    def stay_prior(self) -> tuple[Floats, Floats]:
        """Return the parameters of the Beta of staying in a state that lasts, eq (61)."""
        start = self.prior_counts().rows.start
        ones = namespace(start).ones_like(start)
        return ones + self.stickiness, ones

    @abstractmethod
    def regrouped(self, weights: Floats) -> Self:
        """Return the prior for new states, each a weighted sum of these; `weights` is (K', K)."""

    @abstractmethod
    def refitted(self, counts: Rows) -> Self:
        """Return the prior with its own posterior fitted to the counts of the whole data set."""

    @abstractmethod
    def divergence(self, counts: Rows) -> float:
        """Return KL(q || p) of the rows and of all above them, for the mean-field bound."""

    @abstractmethod
    def collapsed_bound(self, counts: Rows, spread: RowSpread | None = None) -> float:
        """Return the part of the collapsed bound that depends on the transitions.

        This is E[Σ_k log p(C_k)] with the rows integrated out, minus the KL divergence of the
        parameters above the rows.

        Parameters
        ----------
        counts : Rows
            Expected counts.
        spread : RowSpread, optional
            How far the counts may be from them; by default they are certain.
        """

    @abstractmethod
    def converted(self, convert: Callable[[Any], Any]) -> Self:
        """Return the prior with `convert` applied to every array and learned number in it."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the prior and what it has learned, as JSON values and as arrays."""

    @classmethod
    @abstractmethod
    def from_state(cls, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild the prior from `state`."""

    @abstractmethod
    def check(self, n_states: int) -> None:
        """Raise a ValueError unless types, sizes and values are those of a prior on K states."""
