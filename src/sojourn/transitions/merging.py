"""The change of the evidence of the transitions when two states are merged."""

from __future__ import annotations

from typing import Any

import numpy as np

from sojourn.kernels.arrays import namespace, to_host
from sojourn.kernels.interface import Floats, Integers
from sojourn.transitions.base import Rows, Transitions, log_row_evidence


def merge_gains(
    transitions: Transitions, counts: Rows, first: Integers, second: Integers
) -> Floats:
    """Return the change of the evidence of start and transitions for many pairs, eq (22).

    The prior's own posterior is held fixed.  If it shares weights among the states, a merged state
    has the weights of both; otherwise it has those of one, and the totals of the rows decrease.
    """
    constraints = transitions.evidence_prior().constraints
    if constraints is not None:
        alike = constraints.are_alike(first, second)
        if not alike.all():
            return _one_by_one(transitions, counts, first, second, alike)
        counts = constraints.rows(counts)
    return _gains_of_alike(transitions, counts, first, second)


def _gains_of_alike(transitions: Transitions, counts: Rows, first: Any, second: Any) -> Floats:
    """Return the same for states that are alike, and counts of what is learned."""
    (start, cells), start_total, totals, constraints = transitions.evidence_prior()
    shares, rows = transitions.shares_weights, counts.transitions
    xp, masses = namespace(rows), counts.transitions.sum(axis=1)
    every = xp.arange(len(first), dtype=np.int64, like=rows)
    first, second = xp.placed(first, like=rows), xp.placed(second, like=rows)

    def pooled(a: Floats, b: Floats) -> Floats:
        return a + b if shares else a

    def counted(prior: Floats) -> Floats:
        """Return prior counts, or one where there is nothing to learn and to count."""
        return prior if constraints is None else xp.where(prior > 0.0, prior, xp.ones_like(prior))

    def evidence(count: Floats, prior: Floats) -> Floats:
        prior = counted(prior)
        return xp.gammaln(prior + count) - xp.gammaln(prior)

    def of_row(total: Any, count: Any) -> Floats:
        total = counted(total)
        return xp.gammaln(total) - xp.gammaln(total + count)

    less, start_less = _rest(transitions, first, second)
    alone, start_alone = evidence(rows, cells), evidence(counts.start, start)
    # Columns: every other row, and the start, has one target instead of two.
    columns = evidence(rows[:, first] + rows[:, second], pooled(cells[:, first], cells[:, second]))
    columns -= alone[:, first] + alone[:, second]
    if less.ndim == 1:
        columns += (of_row(less, masses) - of_row(totals, masses))[:, None]
        own = less[first]
    else:
        columns += of_row(less, masses[:, None]) - of_row(totals, masses)[:, None]
        own = less[first, every]
    columns[first, every] = columns[second, every] = 0.0
    gains = columns.sum(axis=0)
    joined, alike = counts.start[first] + counts.start[second], pooled(start[first], start[second])
    gains += evidence(joined, alike) - start_alone[first] - start_alone[second]
    gains += of_row(start_less, counts.start.sum()) - of_row(start_total, counts.start.sum())
    # Rows: one instead of two, and in it one cell of staying instead of two.
    joint = rows[first] + rows[second]
    cell = evidence(joint, cells[first])
    cell[every, first] = cell[every, second] = 0.0
    gains += cell.sum(axis=1) - alone[first].sum(axis=1) - alone[second].sum(axis=1)
    stays, both = joint[every, first] + joint[every, second], masses[first] + masses[second]
    if constraints is not None and constraints.lasting:  # a row has nothing of staying
        both = both - stays
    else:
        stay = cells[first, second]
        if constraints is not None:
            stay, dropped, less_own = _staying(transitions, first, second)
            both, stays = both - dropped * stays, (1.0 - dropped) * stays
            own = less_own if shares else own
        gains += evidence(stays, pooled(cells[first, first], stay))
    gains += of_row(own, both)
    gains -= of_row(totals[first], masses[first]) + of_row(totals[second], masses[second])
    return gains


def _rest(transitions: Transitions, first: Any, second: Any) -> tuple[Any, Any]:
    """Return the totals of prior counts of rows, and of the start, when two states are merged."""
    (start, cells), start_total, totals, constraints = transitions.evidence_prior()
    if transitions.shares_weights:
        return totals, start_total
    if constraints is None:
        return totals - cells[first[0], second[0]], start_total - start[0]
    # A row has less prior counts where it may go to the two, whose prior counts are equal.
    less = totals[:, None] - cells[:, second]
    return namespace(less).clip(less, 0.0, None), start_total - start[second]


def _staying(transitions: Transitions, first: Any, second: Any) -> tuple[Any, Any, Any]:
    """Return what becomes of going from one to the other, where states have constraints.

    Its prior counts, 1.0 where neither state follows itself and else 0.0, and the total of the row.
    """
    (_, cells), _, totals, constraints = transitions.evidence_prior()
    assert constraints is not None
    stay, back = cells[first, second], cells[second, first]
    xp = namespace(cells)
    stay = xp.where(back > stay, back, stay)
    own = xp.where(totals[second] > totals[first], totals[second], totals[first])
    dropped = 1.0 - constraints.free.transitions[first, first]
    return (1.0 - dropped) * stay, dropped, own - dropped * stay


def _one_by_one(
    transitions: Transitions, counts: Rows, first: Integers, second: Integers, alike: Any
) -> Floats:
    """Return the same where some states are not alike: theirs are differences of two evidences."""
    gains = np.zeros(len(first))
    if alike.any():
        gains[alike] = to_host(merge_gains(transitions, counts, first[alike], second[alike]))
    present = _evidence(transitions, counts)
    for n in np.flatnonzero(~alike):
        weights = np.eye(len(to_host(counts.start)))
        weights[first[n]] += weights[second[n]]
        weights = np.delete(weights, second[n], axis=0)
        merged = transitions.regrouped(weights)
        own = namespace(counts.start).placed(weights, like=counts.start)
        pooled = Rows(own @ counts.start, own @ counts.transitions @ own.T)
        gains[n] = _evidence(merged, pooled) - present
    return gains


def _evidence(transitions: Transitions, counts: Rows) -> float:
    cells, start_total, totals, constraints = transitions.evidence_prior()
    return log_row_evidence(cells, Rows(start_total, totals), counts, None, constraints)


def choice_entropies(counts: Rows, first: Integers, second: Integers) -> Floats:
    """Return upper bounds on the entropy of which of two states a path is in, eq (22).

    For each state that leads to either of the two, and for the start, this is the entropy of the
    average choice between them; the choices of individual paths are never more uncertain.
    """
    start, rows = counts
    xp = namespace(rows)
    first, second = xp.placed(first, like=rows), xp.placed(second, like=rows)

    def entropy(a: Floats, b: Floats) -> Floats:
        return xp.xlogy(a + b, a + b) - xp.xlogy(a, a) - xp.xlogy(b, b)

    return entropy(start[first], start[second]) + entropy(rows[:, first], rows[:, second]).sum(
        axis=0
    )
