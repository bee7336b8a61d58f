"""The objective of training: the evidence lower bound, eqs (12) and (13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sojourn.families import Family
from sojourn.families.coupled import couples_states
from sojourn.inference.posterior import Posterior
from sojourn.inference.statistics import BatchSums
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Squares
from sojourn.kernels.updates import state_masses
from sojourn.transitions.tables import row_spread

Compute = Callable[[Posterior, Family, BatchSums, float], float]


def _no_divergence(posterior: Posterior, family: Family) -> float:
    return 0.0


@dataclass(frozen=True)
class Bound:
    """How to estimate a bound from a batch with the weight of `copies` = N/M copies of itself.

    Its value is ``compute`` after the step minus ``divergence`` before it.

    Attributes
    ----------
    compute : callable
        ``compute(posterior, family, sums, copies)``, with the posterior that the batch has been
        blended into.
    divergence : callable
        ``divergence(posterior, family)``, with the posterior that the batch's potentials come from.
    needs_entropy : bool
        Whether the sums must have the entropy of q(z).
    """

    compute: Compute
    divergence: Callable[[Posterior, Family], float] = _no_divergence
    needs_entropy: bool = False


def _log_likelihood(posterior: Posterior, family: Family, sums: BatchSums, copies: float) -> float:
    return copies * sums.log_normalizer


def _divergence(posterior: Posterior, family: Family) -> float:
    family = posterior.learned(family)
    natural = family.prior() + posterior.emissions.dense().astype("float64")
    divergence = posterior.transitions.divergence(posterior.counts)
    if posterior.durations is not None:
        divergence += posterior.durations.divergence(posterior.transitions)
    return divergence + float(family.divergence(natural).sum())


def _collapsed(posterior: Posterior, family: Family, sums: BatchSums, copies: float) -> float:
    family = posterior.learned(family)
    statistics = posterior.emissions.dense()
    xp = namespace(statistics)
    statistics = xp.astype(statistics, "float64")
    # The batch is scaled to the mass of the posterior, which after blending is not exactly N/M
    # times its own; otherwise terms of unequal mass would not cancel.
    start, transitions = posterior.counts
    share = (start.sum() + transitions.sum()) / sums.mass
    assert sums.uncertainty is not None, "the local step was not asked for a bound"
    uncertain = share * xp.astype(sums.uncertainty.emissions.dense(), "float64")
    masses = state_masses(*posterior.counts)
    emissions = family.expected_log_normalizer(statistics, uncertain, masses).sum()
    prior = xp.placed(family.prior(), like=statistics)
    # Of a prior that all states have each for itself, one row is enough.
    every = couples_states(family) or (prior.ndim > 1 and len(prior) > 1)
    rows = statistics if every else statistics[:1]
    nothing = family.log_normalizer(prior + 0.0 * rows).sum()
    emissions -= nothing * (len(statistics) / len(rows))
    local = share * (sums.entropy + sums.log_base)
    spread = row_spread(
        posterior.between, Squares(*(share * part for part in sums.uncertainty.rows))
    )
    bound = posterior.transitions.collapsed_bound(posterior.counts, spread)
    if posterior.durations is not None:
        bound += posterior.durations.collapsed_bound(posterior.transitions)
    return float(local + emissions) + bound


LOG_LIKELIHOOD = Bound(_log_likelihood)
"""log p(x) under the parameters before the step, as EM reports it."""

MEAN_FIELD_BOUND = Bound(_log_likelihood, _divergence)
"""Σ log Z − KL(q(θ) || p(θ)) − KL(q(φ) || p(φ)), eq (12).

q(z) is optimal for the q(θ) and q(φ) that its potentials came from, and then its part of the bound
is log Z.
"""

COLLAPSED_BOUND = Bound(_collapsed, needs_entropy=True)
"""E[log p(x, z)] + H(q(z)), the parameters integrated out, eq (13).

The expectations of log Γ are those of eq (27), to second order in the counts that occur: an
estimate of the bound, which may lie above it.
"""
