"""Collapsed or mean-field: how posterior parameters become potentials.

SCVI and SVI share everything except this value.
"""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.kernels.arrays import namespace
from sojourn.transitions.base import Concentrations, RowConstraints, Rows


@dataclass(frozen=True)
class Objective:
    """Which expectation of the parameters enters the local step.

    Attributes
    ----------
    collapsed : bool
        True: parameters are integrated out, and their posterior means (1) and predictive
        densities (2) are the potentials.  False: the potentials are exp E[log θ] and
        exp E[log p(x|φ)], whose rows do not sum to one.
    point : bool
        Whether parameters of emissions other than symbols are estimated, and not integrated out:
        then the posterior is replaced by `Family.point` after every update.
    """

    collapsed: bool
    point: bool = False

    def transition_potentials(self, concentrations: Concentrations) -> Rows:
        """Return the potentials of start and transitions, eq (1) or its mean-field form."""
        rows, start_total, totals, constraints = concentrations
        if constraints is not None:
            return self._constrained(concentrations, constraints)
        if self.collapsed:
            return Rows(rows.start / start_total, rows.transitions / totals[:, None])
        xp = namespace(totals)
        return Rows(
            xp.exp(xp.digamma(rows.start) - xp.digamma(start_total)),
            xp.exp(xp.digamma(rows.transitions) - xp.digamma(totals)[:, None]),
        )

    def _constrained(self, concentrations: Concentrations, constraints: RowConstraints) -> Rows:
        """Return the same where some probabilities are given, and only the others are learned."""
        found = []
        parts = zip(
            concentrations.rows,
            (concentrations.start_total, concentrations.totals[:, None]),
            constraints.free,
            constraints.given,
            (constraints.left.start, constraints.left.transitions[:, None]),
            strict=True,
        )
        for rows, total, free, given, left in parts:
            xp = namespace(rows)
            some, whole = (xp.where(a > 0.0, a, xp.ones_like(a)) for a in (rows, total))
            if self.collapsed:
                learned = some / whole
            else:
                learned = xp.exp(xp.digamma(some) - xp.digamma(whole))
            found.append(given + free * left * learned)
        return Rows(*found)


COLLAPSED = Objective(collapsed=True)
MEAN_FIELD = Objective(collapsed=False)
POINT = Objective(collapsed=True, point=True)
