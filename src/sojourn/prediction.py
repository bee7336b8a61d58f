"""`FittedModel`: a fitted model, and everything that is computed from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sojourn import results
from sojourn.analysis.decoding import check_algorithm
from sojourn.analysis.forecast import continuations
from sojourn.analysis.methods import AnalysisMixin
from sojourn.backends.compute import Compute
from sojourn.backends.dask import Cluster
from sojourn.data import Data, check_out
from sojourn.durations import StateDuration
from sojourn.families import Family, Product
from sojourn.families.words import words_of
from sojourn.inference import Posterior, Statistics, predict
from sojourn.inference.known import refuse_contradictions
from sojourn.inference.long import LongPrediction
from sojourn.inference.occupancy import n_used, state_shares
from sojourn.kernels.interface import Floats
from sojourn.labels import with_names
from sojourn.moves.budget import MoveState
from sojourn.random_state import PREDICTION_STREAM
from sojourn.sampling import Samples, averages
from sojourn.sequences import Sequences
from sojourn.sources.frames import Output, TableUse
from sojourn.sources.tiles import Steps
from sojourn.transitions import HDP, HDPSummary, PointHDP
from sojourn.vocabulary import Vocabulary


@dataclass(frozen=True)
class EstimatorRecord:
    """The estimator that a model was fitted with, and its parameters.

    Attributes
    ----------
    name : str
        Class of the estimator, "HMM" or "HDPHMM".
    parameters : mapping
        Its parameters without the emission family, flat, as model files store them: numbers,
        strings, tuples and arrays.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


def _durations(fitted: FittedModel) -> list[StateDuration]:
    """How long visits to each state last: mean, variance, probabilities."""
    posterior = fitted.posterior
    if posterior.durations is not None:
        return posterior.durations.described(posterior.transitions)
    stay = np.diagonal(fitted.transmat)
    return [StateDuration.of_stretches("geometric", 1, float(p)) for p in stay]


@dataclass
class FittedModel(AnalysisMixin):
    """A fitted model, which scores, decodes and predicts; independent of any estimator.

    A plain value: it is what is saved and loaded, and reports, plots and exports are functions of
    it.  Estimators hold one as ``model.fitted_`` and delegate prediction to it.

    Parameters
    ----------
    family : Family
        Emission family, completed with what was inferred from the data.
    posterior : Posterior
        Expected counts, and the transition prior with its own posterior.
    total_sequences : int
        Number of sequences in the data set.
    history : list of dict
        One entry per pass or sweep.
    provenance : dict
        Where the data came from, as far as recorded.
    samples : Samples or None
        Draws, if the model was fitted by a sampler.
    move_state : MoveState
        State that moves keep between rounds.
    estimator : EstimatorRecord
        Name and parameters of the estimator that was fitted.
    compute : Compute
        Where predictions are computed; not saved.
    converged : bool or None
        Whether training ended because the likelihood rose no more; None where it had a fixed
        number of passes.
    total_steps : int or None
        Number of steps in the data set, where `partial_fit` was given it; not saved.
    carried : (array, bool) or None
        Last steps of the last minibatch of `partial_fit`, which the next may continue, and whether
        they begin their sequence; not saved.
    state_names : tuple of str or None
        Names of the first states.

    Examples
    --------
    >>> import sojourn as sj
    >>> X = [[0, 1, 0, 1, 0, 1], [2, 2, 2]]
    >>> fitted = sj.HMM(2, sj.Categorical(3), random_state=0).fit(X).fitted_
    >>> fitted.transmat.shape
    (2, 2)
    >>> bool(fitted.score(X) < 0)
    True
    """

    family: Family
    posterior: Posterior
    total_sequences: int
    history: list[dict[str, Any]] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)
    samples: Samples | None = None
    move_state: MoveState = field(default_factory=MoveState)
    estimator: EstimatorRecord = field(default_factory=lambda: EstimatorRecord("HMM"))
    compute: Compute = field(default_factory=Compute)
    converged: bool | None = None
    total_steps: int | None = None
    carried: Any = None
    state_names: tuple[str, ...] | None = None

    # ---- prediction -----------------------------------------------------------------------

    def score(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        y: Any = None,
        per_step: bool = False,
        client: Any = None,
    ) -> float:
        """Log predictive likelihood of all sequences together, in nats; see `HMM.score`."""
        data = self.prepare(X, lengths, y)
        return self.score_data(data, per_step=per_step, cluster=results.connect(client, data))

    def score_data(self, data: Data, *, per_step: bool, cluster: Cluster | None = None) -> float:
        """Score prepared data, here or on a cluster."""
        if cluster is not None:
            files = results.remote_files(cluster, data, self.family, self.compute)
            total, n_steps = files.score(self._on_worker().log_likelihoods)
        else:
            total, n_steps = results.total_score(data, self.family, self.log_likelihoods)
        return total / n_steps if per_step else total

    def log_likelihood(self, X: Any, lengths: ArrayLike | None = None, *, y: Any = None) -> Floats:
        """Log predictive likelihood of each sequence, in nats, shape (N,)."""
        data = self.prepare(X, lengths, y)
        steps = data.long_steps(self.family)
        pieces = data.pieces(self.family) if steps is None else [steps]
        return np.concatenate([self.log_likelihoods(piece) for piece in pieces])

    def predict(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        y: Any = None,
        names: bool = False,
        out: str | PathLike[str] | None = None,
        overwrite: bool = False,
        client: Any = None,
        output: Output | None = None,
    ) -> Any:
        """Most probable state path (Viterbi), in the same form as the data; see `HMM.predict`."""
        if names and (out is not None or client is not None):
            raise ValueError("names=True returns paths in memory: without out and client")
        data = self.prepare(X, lengths, y)
        path = self._results(data, "paths", "states", out, overwrite, client, output)[1]
        return with_names(path, self.labels_of_states) if names else path

    def decode(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        y: Any = None,
        algorithm: str = "viterbi",
        k: int = 1,
        out: str | PathLike[str] | None = None,
        overwrite: bool = False,
        client: Any = None,
    ) -> tuple[Any, Any]:
        """Most probable state path and its log joint probability; see `HMM.decode`."""
        check_algorithm(algorithm, k)
        if k > 1:
            if out is not None or client is not None:
                raise ValueError("k best paths are returned in memory: out and client need k=1")
            if y is not None:
                raise ValueError("labels, y=, are for the best path alone: k=1")
            return self.best_paths(X, lengths, k=k)
        data = self.prepare(X, lengths, y)
        method = "paths" if algorithm == "viterbi" else "marginal_paths"
        return self._results(data, method, "states", out, overwrite, client)

    def predict_proba(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        y: Any = None,
        out: str | PathLike[str] | None = None,
        overwrite: bool = False,
        client: Any = None,
        output: Output | None = None,
    ) -> Any:
        """Posterior probability of each state at each step; see `HMM.predict_proba`."""
        data = self.prepare(X, lengths, y)
        return self._results(
            data, "probabilities", "probabilities", out, overwrite, client, output
        )[1]

    def sample(
        self,
        n_sequences: int = 1,
        length: int | ArrayLike | None = None,
        *,
        given: Any = None,
        given_lengths: ArrayLike | None = None,
        random_state: Any = None,
    ) -> tuple[Any, Any]:
        """Draw observations and states from the posterior means; see `HMM.sample`.

        Without a `random_state`, that of the estimator is used.
        """
        if length is None and n_sequences > 1:
            raise ValueError(
                f"sample({n_sequences}) could be {n_sequences} sequences or, as in hmmlearn, "
                f"{n_sequences} steps: sample(1, {n_sequences}) is one sequence of {n_sequences} "
                f"steps, sample({n_sequences}, 1) is {n_sequences} sequences of one step"
            )
        lengths = np.asarray(1 if length is None else length)
        if n_sequences < 1 or lengths.dtype.kind not in "iu" or (lengths < 1).any():
            raise ValueError("sample needs at least one sequence, and lengths of at least one")
        belief, evidence, n = None, self.evidence(), n_sequences
        if given is not None:
            belief = self.belief(self.prepare(given, given_lengths), evidence)
            n = n_sequences * len(belief.filtered)
        if lengths.shape not in ((), (n,)):
            raise ValueError(f"{lengths.shape} lengths for {n} sequences")
        lengths = np.broadcast_to(lengths, n).astype(np.int64)
        rng = np.random.default_rng([self.seed_of(random_state), PREDICTION_STREAM])
        if belief is None:
            return predict.draw(self.posterior, self.family, lengths, rng)
        each = np.repeat(np.arange(len(belief.filtered)), n_sequences)
        return continuations(evidence, belief.take(each), lengths, rng)

    def prepare(self, X: Any, lengths: ArrayLike | None = None, y: Any = None) -> Data:
        """Check a user's data, and return it in the form that the family expects."""
        data = read_data(self, X, lengths, y)
        data.label(self.state_names, self.posterior.n_states, all_states=True)
        refuse_contradictions(data.sequences, self.posterior.transitions.constraints)
        return data.validated(self.family)

    def _results(
        self,
        data: Data,
        method: str,
        column: str,
        out: str | PathLike[str] | None,
        overwrite: bool,
        client: Any,
        output: Output | None = None,
    ) -> tuple[float, Any]:
        """Compute one result per step, by a method that returns them with a score.

        Results are returned in the form of the data, or written to a file piece by piece, or
        written by the workers of a cluster to files in a folder.
        """
        target = check_out(out, data)
        cluster = results.connect(client, data)
        if cluster is not None:
            assert target is not None
            files = results.remote_files(cluster, data, self.family, self.compute)
            per_step = getattr(self._on_worker(), method)
            total = results.to_folder(files, per_step, column, target, overwrite=overwrite)
            return total, target
        per_step = getattr(self, method)
        if target is None:
            return results.in_memory(data, per_step, output, column)
        results.check_in_memory(output)
        groups = partial(_long_results, self, method)
        total = results.to_file(
            data, self.family, per_step, groups, column, target, overwrite=overwrite
        )
        return total, target

    def _on_worker(self) -> FittedModel:
        """Return a copy for workers of a cluster, without the history."""
        return replace(self, history=[], compute=self.compute.on_worker())

    # ---- the same for checked sequences in memory -----------------------------------------------

    def log_likelihoods(self, data: Any) -> Floats:
        """Log predictive likelihood of each sequence; for a sampler, the mean over its draws."""
        backend = self.compute.backend()
        if self.samples is not None:
            return averages.log_likelihoods(self.posteriors(), self.family, data, backend)
        return predict.log_likelihoods(self.posterior, self.family, data, backend)

    def paths(self, data: Sequences) -> tuple[Any, float]:
        """Most probable path, and its log joint probability summed over sequences."""
        backend = self.compute.backend()
        scores, path = predict.best_paths(self.posterior, self.family, data, backend)
        return path, float(scores.sum())

    def probabilities(self, data: Sequences) -> tuple[Any, float]:
        """State probabilities of each step, and no score."""
        backend = self.compute.backend()
        if self.samples is not None:
            values = averages.state_probabilities(
                self.samples, self.posteriors(), self.family, data, backend
            )
        else:
            values = predict.state_probabilities(self.posterior, self.family, data, backend)
        return values, 0.0

    def posteriors(self) -> Iterator[Posterior]:
        """Yield the posterior of each draw of a sampler, with the prior and precision of `fit`."""
        assert self.samples is not None
        prior, dtype = self.posterior.transitions, str(self.posterior.emissions.dtype)
        for draw in self.samples:
            own = None if draw.shares is not None else prior
            yield averages.posterior_of(self.samples, draw, own, dtype)

    # ---- fitted parameters ----------------------------------------------------------------

    @property
    def startprob(self) -> Floats:
        """Posterior mean of the initial state distribution, shape (K,)."""
        return self.posterior.transitions.means(self.posterior.counts).start

    @property
    def transmat(self) -> Floats:
        """Posterior mean of the transition matrix, shape (K, K).

        Where states last, which share of the steps from a state leads to each, eq (66).
        """
        between = self.posterior.transitions.means(self.posterior.counts).transitions
        durations = self.posterior.durations
        if durations is None:
            return between
        known = durations.described(self.posterior.transitions)
        leave = 1.0 / np.array([own.mean for own in known])
        return leave[:, None] * between + np.diag(1.0 - leave)

    durations = property(_durations)

    @property
    def statistics(self) -> Statistics:
        """Expected counts that determine the posterior, without the prior; a copy."""
        return self.posterior.statistics()

    @property
    def n_states(self) -> int:
        """Number of states in use: with more than half a per cent of the steps, and a step."""
        return n_used(self.posterior.counts)

    @property
    def state_shares(self) -> Floats:
        """Expected share of the steps in each state, shape (K,)."""
        return state_shares(self.posterior.counts)

    @property
    def dwell_times(self) -> Floats:
        """Expected number of steps that a visit to each state lasts, shape (K,)."""
        return 1.0 / np.maximum(1.0 - np.diag(self.transmat), 1e-300)

    @property
    def n_updates(self) -> int:
        """Minibatch updates so far."""
        return self.posterior.n_updates

    @property
    def hdp(self) -> HDPSummary | None:
        """E[α], E[γ], E[π] and the effective number of states; None for the finite model."""
        prior = self.posterior.transitions
        return prior.summary() if isinstance(prior, HDP | PointHDP) else None

    @property
    def parameters(self) -> dict[str, Any]:
        """Posterior means of the emission parameters, as the family names them."""
        learned = self.posterior.learned(self.family)
        return dict(self.family.parameters(learned.prior() + self.posterior.emissions.dense()))

    @property
    def n_features(self) -> int | None:
        """Number of columns, for families of vectors; None for one value per step."""
        family = self.family
        columns = family.columns if isinstance(family, Product) else None
        n = getattr(family, "n_features", None) if columns is None else sum(columns)
        return None if n is None else int(n)

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Words that the symbols represent, if the data are words."""
        return getattr(self.family, "vocabulary", None)


def _long_results(fitted: FittedModel, method: str, steps: Steps) -> Iterator[tuple[Any, float]]:
    """Yield results of the steps of a long file, group by group, and scores."""
    if fitted.samples is not None:
        raise ValueError(
            "draws of a sampler predict sequences in memory only: sj.open(path).read_all()"
        )
    long = LongPrediction(fitted.posterior, fitted.family, steps, fitted.compute.backend())
    if method == "paths":
        yield from ((path, float(each.sum())) for path, each, _ in long.best_paths())
    else:
        yield from ((values, 0.0) for values in long.state_probabilities())


def as_fitted(model: Any) -> FittedModel:
    """Return the `FittedModel` of an estimator, or the argument if it is one itself.

    Raises
    ------
    TypeError
        For anything else.
    NotFittedError
        For an estimator that has not been fitted.
    """
    if isinstance(model, FittedModel):
        return model
    if not hasattr(type(model), "fitted_"):
        raise TypeError(f"expected a fitted model, got {type(model).__name__}")
    fitted: FittedModel = model.fitted_
    return fitted


def read_data(fitted: FittedModel, X: Any, lengths: ArrayLike | None = None, y: Any = None) -> Data:
    """Return a user's data as they are; of a table the columns that the model was fitted to."""
    use = TableUse.of(fitted.provenance, words_of(fitted.family))
    return Data(X, lengths, fitted.family, y, use=use)
