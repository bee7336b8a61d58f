"""Methods of fitted models that look at the present, ahead, and at how sure they are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from sojourn import results
from sojourn.analysis import markov
from sojourn.analysis.decoding import check_algorithm, k_best
from sojourn.analysis.evidence import Evidence
from sojourn.analysis.filtering import filter_file, filter_sequences
from sojourn.analysis.forecast import Belief, Forecast, belief_of, forecast_from
from sojourn.analysis.residuals import Residuals, residuals_of
from sojourn.analysis.segments import SegmentTable, segments_of
from sojourn.analysis.stream import Stream
from sojourn.analysis.uncertainty import Chain, PosteriorSamples, draw_posterior, should_keep
from sojourn.backends.compute import Compute
from sojourn.data import Data, check_out
from sojourn.families import Family
from sojourn.inference import Posterior
from sojourn.kernels.interface import Floats, Integers
from sojourn.kernels.threads import resolve_jobs
from sojourn.random_state import FORECAST_STREAM, as_seed
from sojourn.sampling import Samples
from sojourn.sequences import Sequences
from sojourn.sources.frames import Output


class AnalysisMixin:
    """What `FittedModel` computes beyond scores and paths; it only prepares data and delegates.

    It is a class of its own because `FittedModel` has as many methods as a class may have.
    """

    family: Family
    posterior: Posterior
    samples: Samples | None
    compute: Compute
    estimator: Any
    state_names: tuple[str, ...] | None

    @abstractmethod
    def prepare(self, X: Any, lengths: ArrayLike | None = None, y: Any = None) -> Data:
        """Check a user's data."""

    @property
    def labels_of_states(self) -> list[str]:
        """Names of all states; those without one are called by their number."""
        names = list(self.state_names or ())
        return names + [str(k) for k in range(len(names), self.posterior.n_states)]

    def name_of(self, state: int) -> str:
        """What people call a state: its name, or "state 3"."""
        names = self.state_names or ()
        return names[state] if state < len(names) else f"state {state}"

    @abstractmethod
    def paths(self, data: Sequences) -> tuple[Any, float]:
        """Most probable path, and its log joint probability summed over sequences."""

    @abstractmethod
    def probabilities(self, data: Sequences) -> tuple[Any, float]:
        """State probabilities of each step, and no score."""

    @abstractmethod
    def log_likelihoods(self, data: Sequences) -> Floats:
        """Log predictive likelihood of each sequence."""

    @property
    @abstractmethod
    def transmat(self) -> Floats:
        """Posterior mean of the transition matrix."""

    @abstractmethod
    def posteriors(self) -> Iterator[Posterior]:
        """Yield the posterior of each draw of a sampler."""

    def evidence(self, posterior: Posterior | None = None) -> Evidence:
        """Return the model as the forward recursion sees it, on the CPU in double precision."""
        own = self.posterior if posterior is None else posterior
        return Evidence(own.fetched(), self.family, resolve_jobs(self.compute.n_jobs))

    def seed_of(self, random_state: Any) -> int:
        """Return a seed; without a `random_state`, that of the estimator is used."""
        if random_state is None:
            random_state = self.estimator.parameters.get("random_state")
        return as_seed(random_state)

    # ---- now and next ---------------------------------------------------------------------

    def filter(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        lag: int = 0,
        out: str | PathLike[str] | None = None,
        overwrite: bool = False,
        output: Output | None = None,
    ) -> Any:
        """State probabilities given the steps so far; see `HMM.filter`."""
        data = self.prepare(X, lengths)
        target = check_out(out, data)
        if target is None:
            return results.in_memory(
                data, lambda piece: (self.filtered(piece, lag), 0.0), output, "probabilities"
            )[1]
        results.check_in_memory(output)
        if target.suffix == ".npy":
            filter_file(self.evidence(), data, lag, target, overwrite=overwrite)
            return target
        results.to_file(
            data,
            self.family,
            lambda piece: (self.filtered(piece, lag), 0.0),
            None,
            "probabilities",
            target,
            overwrite=overwrite,
        )
        return target

    def filtered(self, data: Sequences, lag: int = 0) -> Floats:
        """Filter checked sequences in memory; for a sampler, the mean over its draws."""
        if self.samples is None:
            evidence = self.evidence()
            return evidence.folded(filter_sequences(evidence, data, lag).probabilities)
        best = self.samples.best
        total = np.zeros((data.n_steps, best.n_states))
        for draw, posterior in zip(self.samples, self.posteriors(), strict=True):
            part = filter_sequences(self.evidence(posterior), data, lag).probabilities
            for k, label in enumerate(self.samples.relabeling(draw, best)):
                total[:, label] += part[:, k]
        return total / len(self.samples)

    def forecast(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        steps: int = 1,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        n_draws: int = 100,
        covariates: ArrayLike | None = None,
        random_state: Any = None,
    ) -> Forecast:
        """Forecast states and observations after each sequence; see `HMM.forecast`."""
        evidence = self.evidence()
        belief = self.belief(self.prepare(X, lengths), evidence)
        seed = [self.seed_of(random_state), FORECAST_STREAM]
        return forecast_from(evidence, belief, steps, quantiles, n_draws, seed, covariates)

    def belief(self, data: Data, evidence: Evidence) -> Belief:
        """Return what is known at the end of each sequence."""
        parts = []
        for piece in data.pieces(self.family):
            last = filter_sequences(evidence, piece).last
            parts.append(belief_of(self.family, piece, last))
        pasts = [part.past for part in parts if part.past is not None]
        return Belief(
            np.concatenate([part.filtered for part in parts]),
            np.concatenate([part.fresh for part in parts]),
            np.concatenate(pasts) if pasts else None,
        )

    def stream(self, n_streams: int | None = None, *, random_state: Any = None) -> Stream:
        """Return a `Stream` that follows sequences step by step; see `HMM.stream`."""
        evidence = Evidence(self.posterior.fetched(), self.family)
        return Stream(evidence, n_streams, self.seed_of(random_state))

    # ---- paths and segments ---------------------------------------------------------------

    def marginal_paths(self, data: Sequences) -> tuple[Any, float]:
        """Most probable state of each step by itself, and the sum of its probabilities."""
        probabilities = self.probabilities(data)[0]
        path = probabilities.argmax(axis=1).astype(np.int32)
        return path, float(probabilities.max(axis=1).sum(dtype=np.float64))

    def best_paths(
        self, X: Any, lengths: ArrayLike | None = None, *, k: int
    ) -> tuple[Floats, list[Integers]]:
        """Return the k best paths of each sequence: log probabilities (N, k), and states."""
        check_algorithm("viterbi", k)
        self.posterior.refuse_durations("k best paths are")
        found = [
            k_best(self.evidence(), piece, k)
            for piece in self.prepare(X, lengths).pieces(self.family)
        ]
        scores = np.concatenate([part for part, _ in found])
        return scores, [path for _, paths in found for path in paths]

    def segments(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        algorithm: str = "viterbi",
        names: Sequence[str] | None = None,
    ) -> SegmentTable:
        """Cut sequences into runs of one state; see `HMM.segments`."""
        check_algorithm(algorithm, 1)
        decode = self.paths if algorithm == "viterbi" else self.marginal_paths
        pieces = iter(self.prepare(X, lengths).pieces(self.family))
        if names is None:
            names = [self.name_of(k) for k in range(self.posterior.n_states)]
        return segments_of(self.evidence(), pieces, lambda piece: decode(piece)[0], names)

    def score_samples(self, X: Any, lengths: ArrayLike | None = None) -> tuple[float, Any]:
        """Return the log likelihood, and the state probabilities; see `HMM.score_samples`."""
        data = self.prepare(X, lengths)
        check_out(None, data)
        assert data.sequences is not None
        total = float(self.log_likelihoods(data.sequences).sum())
        return total, results.in_memory(data, self.probabilities)[1]

    # ---- the chain ------------------------------------------------------------------------

    @property
    def stationary(self) -> Floats:
        """Stationary distribution of the posterior mean transition matrix, shape (K,)."""
        return markov.stationary_distribution(self.transmat)

    @property
    def timescales(self) -> Floats:
        """Implied time scales −1 / log|λ| in steps, the slowest first, shape (K − 1,)."""
        return markov.timescales(self.transmat)

    def mean_first_passage(self, a: Any, b: Any) -> float:
        """Expected number of steps from states `a` to states `b`; see `HMM.mean_first_passage`."""
        return float(markov.mean_first_passage(self.transmat, a, b))

    def dwell_distribution(self, n_steps: int = 100) -> Floats:
        """Probability that a visit to each state lasts 1, ..., n steps, shape (K, n)."""
        found = markov.dwell_distribution(self.transmat, n_steps)
        durations = self.posterior.durations
        if durations is None:
            return found
        for row, own in zip(found, durations.described(self.posterior.transitions), strict=True):
            row[:] = own.probability_of(np.arange(1, n_steps + 1))
        return found

    # ---- how sure -------------------------------------------------------------------------

    def posterior_samples(
        self,
        X: Any,
        n: int = 200,
        lengths: ArrayLike | None = None,
        *,
        method: str = "gibbs",
        warmup: int = 50,
        thin: int | Literal["auto"] = "auto",
        max_sweeps: int = 10_000,
        random_state: Any = None,
    ) -> PosteriorSamples:
        """Draw parameters and paths given the training data; see `HMM.posterior_samples`."""
        self.posterior.refuse_durations("draws of the posterior are")
        data = self.prepare(X, lengths)
        keep = data.sequences is not None and should_keep(n, data.sequences.n_steps)
        settings = Chain(n, warmup, thin, max_sweeps, keep, data.sequences is not None)
        seed = [self.seed_of(random_state), FORECAST_STREAM]
        pieces = partial(data.pieces, self.family)
        return draw_posterior(self.evidence(), pieces, method, settings, seed)

    def residuals(
        self, X: Any, lengths: ArrayLike | None = None, *, random_state: Any = None
    ) -> Residuals:
        """Pseudo-residuals of data in memory; see `HMM.residuals`."""
        data = self.prepare(X, lengths)
        check_out(None, data)
        assert data.sequences is not None
        rng = np.random.default_rng([self.seed_of(random_state), FORECAST_STREAM])
        return residuals_of(self.evidence(), data.sequences, rng)
