"""Fitting by a sampler: draws from the posterior instead of an approximation to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from sojourn.data import Data
from sojourn.families import Categorical, Family
from sojourn.inference import Progress
from sojourn.kernels.interface import Floats
from sojourn.models.parameters import compute_of, inference_name, sampling_of
from sojourn.models.start import Callback, new_fitted, reporting
from sojourn.sampling import Chains, Sampler, Samples, SamplingProgress, SymbolData
from sojourn.sampling import run_chains as run
from sojourn.sampling.averages import posterior_of
from sojourn.sampling.finite import FiniteSampler
from sojourn.sequences import Sequences, position

if TYPE_CHECKING:
    from sojourn.models.base import BaseHMM


def fit(
    model: BaseHMM,
    family: Family,
    data: Sequences,
    held_out: Data | None,
    seed: int,
    callback: Callback | None,
    names: tuple[str, ...] | None = None,
) -> None:
    """Draw from the posterior; parameters come from the draw of highest joint probability."""
    sampler = model._make_sampler(family)
    _refuse_known(data, sampler, inference_name(model))
    _refuse_missing(data, inference_name(model))
    chains = sampling_of(model).chains
    with reporting(model, chains.n_sweeps, callback) as report:
        samples, history = sample_posterior(
            sampler,
            data,
            family.n_statistics,
            chains,
            n_states=model.n_states,
            seed=seed,
            n_threads=compute_of(model).backend().n_threads,
            callback=report,
        )
    prior = None if samples.best.shares is not None else model._make_transitions()
    best = posterior_of(samples, samples.best, prior, model.dtype)
    fitted = new_fitted(model, family, best, len(data))
    fitted.samples, fitted.state_names = samples, names
    model._fitted = fitted
    if held_out is not None:
        score = fitted.score_data(held_out, per_step=True)
        history[-1] = history[-1]._replace(score=score)
    fitted.history = [entry._asdict() for entry in history]


def _refuse_known(data: Sequences, sampler: Sampler, inference: str) -> None:
    """Refuse labels and weights that a sampler has no place for."""
    if data.weights is not None:
        raise ValueError(
            f"inference={inference!r} takes whole weights only, as repetitions of a sequence; "
            "'scvi', 'svi', 'vb' and 'em' take any"
        )
    if data.labels is not None and not isinstance(sampler, FiniteSampler):
        raise ValueError(
            f"inference={inference!r} of HDPHMM numbers states as it finds them, and takes no "
            "labels; HMM does, and HDPHMM with inference='scvi'"
        )


def _refuse_missing(data: Sequences, inference: str) -> None:
    """Refuse missing symbols, which the samplers would have to draw."""
    missing = np.flatnonzero(data.values < 0)
    if len(missing):
        raise ValueError(
            f"{position(int(missing[0]), data.offsets)}: inference={inference!r} does not take "
            "missing symbols; 'scvi', 'svi', 'vb' and 'em' do"
        )


def symbol_prior(family: Family, inference: str) -> Floats:
    """Return λ°, shape (V,) or (K, V), of a family that the samplers support."""
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
    """Run the chains; one `Progress` per sweep, as passes over the data."""
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
        SymbolData.make(data, n_symbols, n_states),
        chains,
        n_states=n_states,
        seed=seed,
        n_threads=n_threads,
        callback=report,
    )
    return samples, history
