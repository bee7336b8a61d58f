"""Between estimators and samplers: priors as samplers take them, draws as posteriors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import logsumexp

from sojourn.families import Categorical, Family
from sojourn.inference import LocalBackend, Posterior, Progress, Statistics, predict
from sojourn.kernels.interface import Floats
from sojourn.sampling import Chains, Draw, Sampler, Samples, SamplingProgress, SymbolData
from sojourn.sampling import run_chains as run
from sojourn.sequences import Sequences
from sojourn.transitions import PointHDP, Transitions
from sojourn.transitions.point_hdp import logits_of


def symbol_prior(family: Family, inference: str) -> Floats:
    """Return λ°, shape (V,) or (K, V), of a family that the samplers take."""
    if not isinstance(family, Categorical):
        raise TypeError(
            f"inference={inference!r} samples categorical emissions only, "
            f"not {type(family).__name__}"
        )
    return family.prior()


def sample_posterior(
    sampler: Sampler,
    data: Sequences,
    n_symbols: int,
    chains: Chains,
    *,
    n_states: int,
    seed: int,
    n_threads: int,
    callback: Callable[[Progress], None] | None,
) -> tuple[Samples, list[Progress]]:
    """Run the chains; one `Progress` a sweep, as passes over the data."""
    history: list[Progress] = []

    def report(progress: SamplingProgress) -> None:
        sweeps = progress.sweeps
        history.append(
            Progress(
                float(sweeps),
                sweeps * len(data),
                sweeps * data.n_steps,
                sweeps,
                progress.seconds,
                None,
            )
        )
        if callback is not None:
            callback(history[-1])

    samples = run(
        sampler,
        SymbolData.make(data, n_symbols),
        chains,
        n_states=n_states,
        seed=seed,
        n_threads=n_threads,
        callback=report,
    )
    return samples, history


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
    posteriors: Iterator[Posterior], family: Family, data: Sequences, engine: LocalBackend
) -> Floats:
    """Return the log of the mean likelihood of each sequence over draws, shape (N,)."""
    each = [predict.log_likelihoods(posterior, family, data, engine) for posterior in posteriors]
    return logsumexp(np.array(each, dtype=np.float64), axis=0) - np.log(len(each))


def state_probabilities(
    samples: Samples,
    posteriors: Iterator[Posterior],
    family: Family,
    data: Sequences,
    engine: LocalBackend,
) -> Floats:
    """Return the mean over draws of the state probabilities, under the best draw's labels."""
    best = samples.best
    total = np.zeros((data.n_steps, best.n_states))
    for draw, posterior in zip(samples, posteriors, strict=True):
        part = predict.state_probabilities(posterior, family, data, engine)
        for k, label in enumerate(samples.relabeling(draw, best)):
            total[:, label] += part[:, k]
    return total / len(samples)
