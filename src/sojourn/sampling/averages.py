"""Posteriors from the draws of a sampler, and predictions averaged over them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import logsumexp

from sojourn.families import Family
from sojourn.inference import LocalBackend, Posterior, Statistics, predict
from sojourn.kernels.interface import Floats
from sojourn.sampling.draws import Draw, Samples
from sojourn.sequences import Sequences
from sojourn.transitions import PointHDP, Transitions
from sojourn.transitions.point_hdp import logits_of


def posterior_of(samples: Samples, draw: Draw, prior: Transitions | None, dtype: str) -> Posterior:
    """Return the counts of a draw as a posterior; `prior` is None for the infinite model."""
    counts = samples.counts(draw)
    if prior is None:
        assert draw.shares is not None
        prior = PointHDP(
            draw.n_states, alpha=draw.alpha, gamma=draw.gamma, logits=logits_of(draw.shares)
        )
    statistics = Statistics(counts.transitions[0], counts.transitions[1:], counts.symbols.T)
    return Posterior.from_statistics(statistics, prior, dtype)


def log_likelihoods(
    posteriors: Iterator[Posterior], family: Family, data: Sequences, backend: LocalBackend
) -> Floats:
    """Return the log of the mean likelihood of each sequence over draws, shape (N,)."""
    each = [predict.log_likelihoods(posterior, family, data, backend) for posterior in posteriors]
    return logsumexp(np.array(each, dtype=np.float64), axis=0) - np.log(len(each))


def state_probabilities(
    samples: Samples,
    posteriors: Iterator[Posterior],
    family: Family,
    data: Sequences,
    backend: LocalBackend,
) -> Floats:
    """Return the mean over draws of the state probabilities, under the best draw's labels."""
    best = samples.best
    total = np.zeros((data.n_steps, best.n_states))
    for draw, posterior in zip(samples, posteriors, strict=True):
        part = predict.state_probabilities(posterior, family, data, backend)
        for k, label in enumerate(samples.relabeling(draw, best)):
            total[:, label] += part[:, k]
    return total / len(samples)
