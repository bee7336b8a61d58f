"""The finite model: independent Dirichlet priors on the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, xlogy

from sojourn import file_values
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
from sojourn.transitions.constraints import (
    RowConstraints,
    arrays_of,
    converted,
    regrouped,
    taken,
    with_constraints,
)


@dataclass(frozen=True, eq=False)
class Dirichlet(Transitions):
    r"""Rows :math:`\theta_k \sim \mathrm{Dirichlet}(a_k)` for k = 0, ..., K.

    Attributes
    ----------
    prior : Rows
        Prior counts, expanded to (K,) and (K, K), with the stickiness on the diagonal.
    stickiness : float
        Extra prior count κ of staying in a state.
    constraints : RowConstraints or None
        Probabilities that are given; the others of a row are a Dirichlet times what is left.

    Examples
    --------
    >>> prior = Dirichlet.make(2, start=1.0, transitions=[0.5, 1.5])
    >>> prior.means(Rows(np.zeros(2), np.array([[0.0, 0.0], [2.0, 0.0]]))).transitions
    array([[0.25 , 0.75 ],
           [0.625, 0.375]])
    """

    shares_weights = False

    prior: Rows
    stickiness: float = 0.0
    constraints: RowConstraints | None = None

    @classmethod
    def make(
        cls,
        n_states: int,
        start: ArrayLike | None,
        transitions: ArrayLike,
        stickiness: float = 0.0,
        constraints: RowConstraints | None = None,
    ) -> Dirichlet:
        """Check and expand concentrations.

        Parameters
        ----------
        n_states : int
        start : float, (K,) array or None
            By default the mean row of the transition concentrations.
        transitions : float, (K,) or (K, K) array
        stickiness : float
        constraints : RowConstraints, optional
        """
        matrix = _expand("transition_concentration", transitions, (n_states, n_states))
        first = matrix.mean(axis=0)
        if start is not None:
            first = _expand("start_concentration", start, (n_states,))
        prior = Rows(first, matrix + stickiness * np.eye(n_states))
        return cls(prior, stickiness, constraints)

    @property
    def learned(self) -> Rows:
        """Prior counts of what is learned, and zeros elsewhere."""
        return self.prior if self.constraints is None else self.constraints.rows(self.prior)

    def prior_counts(self) -> PriorCounts:
        """Return a, and zeros where nothing is learned."""
        return PriorCounts(self.learned, None, self.constraints)

    def means(self, counts: Rows) -> Rows:
        """Return (a + E[C]) / normaliser, within the constraints."""
        return with_constraints(self.constraints, self._posterior(counts))

    def _posterior(self, counts: Rows) -> Rows:
        return Rows(self.prior.start + counts.start, self.prior.transitions + counts.transitions)

    def wants_squares(self, total_sequences: int) -> bool:
        """Return False: the prior has no parameters to learn."""
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
        """Return the prior itself: it has no parameters to learn."""
        return self

    def evidence_prior(self) -> Concentrations:
        """Return a and the sums of its rows."""
        prior = self.learned
        return Concentrations(
            prior, prior.start.sum(), prior.transitions.sum(axis=1), self.constraints
        )

    def stay_prior(self) -> tuple[Floats, Floats]:
        """Return the prior count of staying, and those of the rest of the row, eq (61)."""
        matrix = self.prior.transitions
        stay = namespace(matrix).diagonal(matrix)
        return stay, matrix.sum(axis=1) - stay

    @property
    def is_even(self) -> bool:
        """Whether all prior counts except those of staying are equal."""
        matrix = self.prior.transitions - self.stickiness * np.eye(len(self.prior.start))
        return all(bool(np.ptp(part) <= 1e-9 * np.max(part)) for part in (self.prior.start, matrix))

    def regrouped(self, weights: Floats) -> Self:
        """Return the same prior counts for another number of states."""
        n_states, (start, matrix) = len(weights), self.prior
        xp = namespace(start)
        none, eye = xp.zeros(n_states, "float64", like=start), xp.eye(n_states, like=start)
        row = none + (matrix[0, 0] - self.stickiness)
        return replace(
            self,
            prior=Rows(none + start[0], row + self.stickiness * eye),
            constraints=regrouped(self.constraints, weights),
        )

    def refitted(self, counts: Rows) -> Self:
        """Return the prior itself: it has no parameters to learn."""
        return self

    def divergence(self, counts: Rows) -> float:
        """Return Σ_k KL(Dirichlet(a_k + E[C_k]) || Dirichlet(a_k))."""
        total = -self.collapsed_bound(counts)
        if self.constraints is not None:
            return total + _expected_log_chances(self.learned, counts, self.constraints)
        for a, c in zip(self.prior, counts, strict=True):
            rows = a + c
            total += float((c * (digamma(rows) - digamma(rows.sum(-1, keepdims=True)))).sum())
        return total

    def collapsed_bound(self, counts: Rows, spread: RowSpread | None = None) -> float:
        """Return E[Σ_k log p(C_k)] with the rows integrated out."""
        prior = self.learned
        totals = Rows(*(a.sum(axis=-1) for a in prior))
        return log_row_evidence(prior, totals, counts, spread, self.constraints)

    def converted(self, convert: Callable[[Any], Any]) -> Self:
        """Return the prior with its counts converted."""
        return replace(
            self,
            prior=Rows(*(convert(part) for part in self.prior)),
            constraints=converted(self.constraints, convert),
        )

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the prior counts and the constraints."""
        return {"stickiness": self.stickiness}, self.prior._asdict() | arrays_of(self.constraints)

    @classmethod
    def from_state(cls, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild the prior from `state`."""
        constraints, own = taken(arrays)
        return cls(Rows(**own), **values, constraints=constraints)

    def check(self, n_states: int) -> None:
        """Check the prior counts."""
        for name, part in self.prior._asdict().items():
            file_values.array(f"prior.{name}", part, (n_states,) * part.ndim, least=0.0)
            if part.min() <= 0:
                raise ValueError(f"prior.{name} has counts that are not positive")
        file_values.array("prior.transitions", self.prior.transitions, (n_states, n_states))
        file_values.array("prior.start", self.prior.start, (n_states,))
        file_values.number("stickiness", self.stickiness, 0.0)
        if self.constraints is not None:
            self.constraints.check(n_states)


def _expected_log_chances(prior: Rows, counts: Rows, constraints: RowConstraints) -> float:
    """Return Σ C E[log θ] within constraints: of what is learned, and of what is given."""
    total = 0.0
    counts = constraints.counted(counts)
    parts = zip(prior, counts, *constraints[:2], constraints.left, strict=True)
    for a, c, free, given, left in parts:
        rows = (a + c) * free
        sums = rows.sum(-1, keepdims=True)
        whole = np.where(sums > 0.0, sums, 1.0)
        share = np.where(sums > 0.0, np.asarray(left)[..., None], 1.0)
        learned = digamma(np.where(free > 0.0, rows, 1.0)) - digamma(whole) + np.log(share)
        total += float((c * free * learned).sum() + xlogy(c * (1.0 - free), given).sum())
    return total


def _expand(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Floats:
    try:
        array = np.asarray(value, dtype=np.float64)
        expanded = np.array(np.broadcast_to(array, shape))
    except (TypeError, ValueError):
        found = f"has the shape {np.shape(value)}" if np.ndim(value) else f"is {value!r}"
        raise ValueError(f"{name} {found}; a number or an array {shape} was expected") from None
    if not (np.isfinite(expanded).all() and (expanded > 0).all()):
        raise ValueError(f"{name} must be positive and finite")
    return expanded
