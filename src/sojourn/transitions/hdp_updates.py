"""The parts of an update of the hierarchical Dirichlet process, eqs (4) to (8), (23) and (24)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sojourn.kernels.arrays import is_tensor, namespace, to_host
from sojourn.kernels.cpu import tables as compiled
from sojourn.kernels.interface import Floats
from sojourn.transitions.base import PriorCounts
from sojourn.transitions.constraints import RowConstraints
from sojourn.transitions.distributions import GammaDistribution
from sojourn.transitions.rows import Rows, stacked
from sojourn.transitions.tables import Occurrence
from sojourn.transitions.tables import tables_and_log_eta as expected_tables_and_log_eta

_SUMS = ("start", "transitions", "squares_start", "squares_pairs", "squares_rows")

if TYPE_CHECKING:
    from sojourn.transitions.hdp import HDP


def prior_divergence(hdp: HDP) -> float:
    """Return KL(q || p) of sticks, α and γ together; the prior of the sticks is averaged over γ."""
    if is_tensor(hdp.tables):  # a few numbers, and many functions of them
        hdp = hdp.converted(to_host)
    u, v = hdp.sticks
    xp = namespace(u)
    log_gamma = xp.log(hdp.gamma.geometric_mean)
    entropy = (xp.betaln(u, v) - (u - 1) * xp.digamma(u) - (v - 1) * xp.digamma(v)).sum()
    entropy += ((u + v - 2) * xp.digamma(u + v)).sum()
    prior = hdp.n_states * log_gamma + (hdp.gamma.mean - 1) * hdp.sticks.log_rest.sum()
    above = hdp.alpha.divergence(hdp.alpha_prior) + hdp.gamma.divergence(hdp.gamma_prior)
    if hdp.learn_stickiness:
        above += hdp.override.divergence(hdp.override_prior)
    return float(above - prior - entropy)


def tables_and_log_eta(
    hdp: HDP, counts: Floats, occurrence: Occurrence | None
) -> tuple[Floats, Floats]:
    """Return E[s] of every cell, eq (5) or (19), and E[log η] of every row, eq (6)."""
    constraints = hdp.constraints
    if constraints is not None:
        counts, occurrence = learned_part(constraints, counts, occurrence)
    has_cells = hdp.is_sticky or constraints is not None
    prior = stacked(hdp.update_cells) if has_cells else hdp.update_prior
    tables, log_eta = expected_tables_and_log_eta(
        prior,
        counts,
        occurrence,
        row_totals(hdp),
        exchangeable=hdp.exchangeable,
        second_order=hdp.second_order,
    )
    if constraints is not None:
        # What a row cannot choose has auxiliary tables in it, so that π and α stay conjugate.
        tables = tables - (1.0 - stacked(constraints.free)) * prior * log_eta[:, None]  # eq (41)
    return tables, log_eta


def compiled_changes(hdp: HDP, copies: float, step_size: Any) -> dict[str, Any] | None:
    """Return what an update from the large batch changes, by compiled code; None where it cannot.

    It can with one vector of weights for all rows, in memory with the sums of q² alone.  As NumPy
    computes it, the update of a few states takes as long as forward-backward of a few hundred short
    sequences; as PyTorch does on a GPU, as long as that of seven thousand.
    """
    if hdp.is_sticky or hdp.constraints is not None:
        return None
    on_device, is_exact = is_tensor(hdp.tables), "squares_pairs" in hdp.pending
    is_able = hdp.exchangeable if is_exact else on_device
    if not is_able:
        return None
    changes, weights = (_device_changes if on_device else _host_changes)(hdp, copies, step_size)
    changes["_update_prior"] = weights
    if hdp.normalize_rows:  # what `HDP.prior_counts` would return
        changes["_prior_counts"] = PriorCounts(Rows(weights, weights))
    return changes


def _host_changes(hdp: HDP, copies: float, step_size: float) -> tuple[dict[str, Any], Floats]:
    pending = hdp.pending
    shared = np.array([*hdp.alpha_prior, *hdp.gamma_prior, hdp.stick_gamma, *hdp.alpha, *hdp.gamma])
    tables, weights = hdp.tables.copy(), np.empty(hdp.n_states)
    update: Any = compiled.update_posteriors
    update(
        copies,
        *(np.ascontiguousarray(pending[name]) for name in _SUMS),
        step_size,
        hdp.sort_states,
        hdp.update_prior,
        shared,
        tables,
        weights,
    )
    _, _, _, _, stick_gamma, a, b, c, d = shared.tolist()
    changes = {
        "tables": tables,
        "stick_gamma": stick_gamma,
        "alpha": GammaDistribution(a, b),
        "gamma": GammaDistribution(c, d),
    }
    return changes, weights


def _device_changes(hdp: HDP, copies: float, step_size: Any) -> tuple[dict[str, Any], Floats]:
    from sojourn.kernels.cuda import hdp as kernels

    prior = hdp.update_prior
    if not is_tensor(step_size):
        step_size = namespace(prior).asarray(step_size, like=prior)
    after, weights = kernels.update_posteriors(
        hdp.pending,
        copies,
        prior,
        kernels.HdpPosterior(hdp.tables, cast(Any, hdp.stick_gamma), hdp.alpha, hdp.gamma),
        (*hdp.alpha_prior, *hdp.gamma_prior),
        step_size,
        by_size=hdp.sort_states,
        second_order=hdp.second_order,
    )
    changes = {
        "tables": after.tables,
        "stick_gamma": after.stick_gamma,
        "alpha": GammaDistribution(*after.alpha),
        "gamma": GammaDistribution(*after.gamma),
    }
    return changes, weights


def device_prior(hdp: HDP) -> Floats:
    """Return G[α π] of every state, eq (8), as a tensor."""
    from sojourn.kernels.cuda import hdp as kernels

    prior: Floats = kernels.geometric_prior(hdp.tables, hdp.stick_gamma, hdp.alpha, hdp.sort_states)
    return prior


def sticky_cells(hdp: HDP, prior: Floats, keep: float, extra: float) -> Rows:
    """Return the prior counts of every cell, `keep` times the prior and `extra` to stay, eq (23).

    Without stickiness and constraints one vector stands for all rows.
    """
    if not hdp.is_sticky:
        none = 0.0 if hdp.constraints is None else namespace(prior).zeros_like(prior)[:, None]
        return Rows(prior, prior if hdp.constraints is None else none + prior)
    eye = namespace(prior).eye(hdp.n_states, like=prior)
    return Rows(prior, keep * prior + extra * eye)


def row_totals(hdp: HDP) -> Rows:
    """Return the mean concentration of the start row, and of every other row.

    With constraints, that of what is learned: one for every row, eq (40).
    """
    alpha: Any = hdp.alpha.mean
    fixed = hdp.is_sticky and not hdp.learn_stickiness
    whole = Rows(alpha, alpha + hdp.stickiness if fixed else alpha)
    if hdp.constraints is None:
        return whole
    cells, free = hdp.update_cells, hdp.constraints.free
    xp, found = namespace(cells.start), []
    for total, own, learned in zip(whole, cells, free, strict=True):
        rest = total - ((1.0 - learned) * own).sum(axis=-1)
        # Before the first update the cells do not belong to α.
        found.append(xp.maximum(rest, (learned * own).sum(axis=-1)))
    return Rows(*found)


def learned_part(
    constraints: RowConstraints, counts: Floats, occurrence: Occurrence | None
) -> tuple[Floats, Occurrence | None]:
    """Return the counts of what is learned, and how certain it is that these occur."""
    free = stacked(constraints.free)
    rest = counts * free
    if occurrence is None:
        return rest, None
    squares, row_squares = occurrence
    if constraints.fixes:
        # As if what is learned were the same share of every step.
        xp, whole = namespace(counts), counts.sum(axis=1)[1:]
        share = rest.sum(axis=1)[1:] / xp.where(whole > 0.0, whole, xp.ones_like(whole))
        row_squares = row_squares * share * share
    return rest, Occurrence(squares * free, row_squares)


def overridden_tables(hdp: HDP, tables: Floats) -> Floats:
    """Return the expected tables of staying that do not come from the shared weights, eq (24)."""
    keep, extra = hdp.shares
    diagonal = namespace(tables).diagonal(tables[1:])
    return diagonal * extra / (extra + keep * hdp.update_prior)


def renamed(pending: dict[str, Floats]) -> dict[str, Floats]:
    """Return the large batch of a file, also of one that has sums of log(1 − q) beside those of q².

    Such a file has no squares of rows: those of their pairs, which are at most as large, stand in.
    """
    if "absent_pairs" not in pending:
        return pending
    kept = {name: part for name, part in pending.items() if not name.startswith("absent_")}
    return kept | {
        "squares_start": pending["absent_start_squares"],
        "squares_pairs": pending["absent_pair_squares"],
        "squares_rows": pending["absent_pair_squares"].sum(axis=1),
    }
