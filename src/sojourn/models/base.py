"""What `HMM` and `HDPHMM` share: everything but the prior on transitions."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext
from copy import copy
from os import PathLike
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from sojourn import __version__, kernels, persist
from sojourn.backends.accelerator import gpu_engine, memory_advice
from sojourn.backends.dask import Cluster, ClusterEngine, ClusterSource, RemoteFiles, Setup
from sojourn.families import Categorical, Family, Product
from sojourn.inference import (
    METHODS,
    Engine,
    Method,
    Position,
    Posterior,
    Progress,
    Schedule,
    Statistics,
    StepSizes,
    predict,
    step,
    train,
)
from sojourn.inference.local import CHUNK_STEPS, Place
from sojourn.inference.occupancy import n_used, state_shares
from sojourn.inference.posterior import initial_counts
from sojourn.inference.schedule import LinearDecay
from sojourn.kernels.interface import Floats
from sojourn.kernels.threads import resolve_jobs
from sojourn.models import sampled
from sojourn.models.advice import warn_of_fit, warn_of_whole_numbers
from sojourn.models.checkpoints import Checkpoints, checked_position
from sojourn.models.data import Data, check_out, is_source
from sojourn.moves.budget import MoveState
from sojourn.moves.rounds import Moves, by_size
from sojourn.moves.warmup import warm_up
from sojourn.progress import LiveProgress
from sojourn.sampling import Chains, Sampler, Samples
from sojourn.sequences import Sequences, as_sequences, restore_layout
from sojourn.sources import Minibatches, RememberingSource
from sojourn.sources.write import ParquetSink, whole_folder
from sojourn.transitions import Gamma, Transitions
from sojourn.warnings import FitWarning

Inference = Literal["scvi", "svi", "cvb0", "vb", "em", "gibbs", "blocked-gibbs", "beam"]
KERNELS = {"cpu": kernels.cpu, "reference": kernels.reference}
DEVICES = ("cpu", "cuda", "reference")
TUNINGS = ("steps", "concentration", "base")
_INITIAL_DRAW = 2**32  # a stream of random numbers that no pass uses


class BaseHMM(BaseEstimator, ABC):  # type: ignore[misc]
    """A hidden Markov model fitted by stochastic variational inference.

    Subclasses declare their parameters and make the prior on transitions; nothing else.
    """

    n_states: int
    emission: Family
    inference: Inference
    batch_size: int | None
    n_passes: int
    forgetting_rate: float
    delay: float
    tuned: bool | Collection[str]
    moves: Literal["auto"] | None
    init_states: int | None
    init: str | Statistics
    n_init: int
    device: str
    n_jobs: int | None
    dtype: str
    track_bound: bool | None
    random_state: Any
    verbose: bool
    n_samples: int
    burn_in: int
    thin: int
    n_chains: int

    emission_: Family
    total_sequences_: int
    history_: list[dict[str, Any]]
    provenance_: dict[str, Any]
    samples_: Samples
    _posterior: Posterior
    _move_state: MoveState

    _samplers: ClassVar[frozenset[str]] = frozenset()
    """Samplers that the model offers beside the variational methods."""

    @abstractmethod
    def _make_transitions(self) -> Transitions:
        """Check the subclass's own parameters and make its prior."""

    @abstractmethod
    def _make_sampler(self, family: Family) -> Sampler:
        """Check the subclass's own parameters and make the sampler that `inference` names."""

    # ---- learning -------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        validation: Any = None,
        validation_every: int | None = None,
        callback: Callable[[Progress], None] | None = None,
        checkpoint: str | PathLike[str] | None = None,
        checkpoint_every: int | None = None,
        resume: bool = False,
        client: Any = None,
    ) -> Self:
        """Learn from sequences, forgetting what was learned before.

        Parameters
        ----------
        X : array, list of arrays, Sequences, PyArrow list array, path or source
            With `lengths`, the steps of all sequences one after another, as hmmlearn's.  A list
            of sequences, an array whose rows are sequences of equal length, or one sequence.  A
            file, folder or pattern, or what `sojourn.open` gives: read in minibatches, in memory
            that does not grow with the data.
        lengths : (N,) integer array, optional
            Length of each sequence in `X`.
        validation : data like X, or a pair (X, lengths), optional
            Held-out sequences, scored after each pass into ``history_``.
        validation_every : int, optional
            Score them within a pass too, after so many updates.
        callback : callable, optional
            Called with a `Progress` after each update and each pass.
        checkpoint : path, optional
            Folder for checkpoints; the last two are kept.  Ctrl-C writes one and then raises
            `KeyboardInterrupt`.
        checkpoint_every : int, optional
            Updates between two checkpoints; by default there is one a minute, and at the end.
        resume : bool
            Go on from the newest checkpoint in the folder, to the same bits as without a stop.
            With none there, begin.
        client : distributed.Client, optional
            Run the local step on a Dask cluster, whose workers open the files of `X` themselves.
            The model is the same.

        Returns
        -------
        self

        Notes
        -----
        With ``n_init`` above 1 it learns that many times from different initial statistics, and
        keeps the model with the best score: held-out where there is validation data, otherwise on
        the training data.
        """
        self._check_parameters()
        if client is None:
            self._engine()  # a missing device is told before anything happens
        if validation_every is not None:
            check_whole("validation_every", validation_every, 1)
        checkpoints = _checkpoints(checkpoint, checkpoint_every, resume)
        if checkpoints is not None and not self._resumes:
            raise ValueError(
                f"inference={self.inference!r} keeps more than a checkpoint holds, and cannot "
                "resume"
            )
        if self.n_init > 1:
            if checkpoints is not None:
                raise ValueError("checkpoints are for a single run: n_init=1")
            return self._fit_best(X, lengths, validation, validation_every, callback, client)
        data = Data(X, lengths, self.emission)
        warn_of_whole_numbers(self.emission, data)
        cluster = self._cluster(client, data)
        family, sample = data.resolve(self.emission, self.n_states)
        held_out = None
        if validation is not None:
            is_pair = isinstance(validation, tuple)
            X_held_out, its_lengths = validation if is_pair else (validation, None)
            held_out = Data(X_held_out, its_lengths, family).validated(family)
        found = checkpoints.newest() if checkpoints is not None and resume else None
        seed = self._seed() if found is None else self._seed_of(found[1])
        if self.inference in self._samplers:
            return self._fit_by_sampling(family, self._in_memory(data), held_out, seed, callback)
        identity = {} if checkpoints is None else self._identity(family, data, seed)
        if found is None:
            posterior, position, state = self._start(family, sample, data, seed)
        else:
            position = checked_position(*found, identity)
            posterior, state = found[0]._posterior, found[0]._move_state
        self._begin(family, posterior, data.n_sequences)
        self._move_state = state
        if checkpoints is not None:
            checkpoints.begin(self, identity)
        minibatches = self._minibatches(data, family, seed, cluster)
        sampled_from = minibatches
        if data.sequences is None:
            # Files are read by whoever needs them, here and not in a cluster.
            sampled_from = data.minibatches(family, self._batch_size, seed)
        moves = self._moves(
            family, posterior, seed, sampled_from, state, on_host=cluster is not None
        )
        with memory_advice(self.device):
            try:
                history = self._train(
                    minibatches,
                    data.n_steps,
                    moves,
                    position,
                    checkpoints,
                    held_out,
                    validation_every,
                    callback,
                    cluster,
                )
            finally:
                self._posterior = self._posterior.to_host()
        self.history_ = [entry._asdict() | {"moves": list(entry.moves)} for entry in history]
        if moves is not None:
            # After the last checkpoint: further passes go on from states in their old order.
            self._posterior.become(by_size(self._posterior))
        warn_of_fit(self)
        return self

    def _train(
        self,
        minibatches: Minibatches,
        n_steps: int,
        moves: Moves | None,
        position: Position,
        checkpoints: Checkpoints | None,
        held_out: Data | None,
        validation_every: int | None,
        callback: Callable[[Progress], None] | None,
        cluster: Cluster | None,
    ) -> list[Progress]:
        """Run the training loop from a position on, with everything that looks on."""

        def evaluate() -> float:
            assert held_out is not None
            remote = None if held_out.source is None else cluster
            return self._score(held_out, per_step=True, cluster=remote)

        engine: Place
        if cluster is not None:
            engine = ClusterEngine(cluster, resolve_jobs(self.n_jobs))
        else:
            engine = self._engine()
            if engine.device is not None:
                self._posterior = self._posterior.to_device(engine.device)
        title = f"{type(self).__name__} {self.inference}"
        with (
            LiveProgress(self.n_passes, title) if self.verbose else nullcontext() as live,
            checkpoints if checkpoints is not None else nullcontext(),
        ):
            reporters = [report for report in (callback, live) if report is not None]

            def report(progress: Progress) -> None:
                for reporter in reporters:
                    reporter(progress)

            return train(
                self._posterior,
                self.emission_,
                self._method.objective,
                self._step_sizes(minibatches.n_sequences, n_steps, self.batch_size),
                minibatches,
                engine,
                n_passes=self.n_passes,
                moves=moves,
                bound=self._method.bound if self._tracks_bound else None,
                evaluate=None if held_out is None else evaluate,
                evaluate_every=validation_every,
                callback=report if reporters else None,
                position=position,
                checkpoint=checkpoints,
            )

    def _fit_best(
        self,
        X: Any,
        lengths: ArrayLike | None,
        validation: Any,
        validation_every: int | None,
        callback: Callable[[Progress], None] | None,
        client: Any,
    ) -> Self:
        """Fit `n_init` copies from different seeds, and become the best of them."""
        if isinstance(X, Iterator):
            X = list(X)  # it is read more than once
        if isinstance(validation, Iterator):
            validation = list(validation)
        seed = self._seed()
        best, best_score = None, -np.inf
        for restart in range(self.n_init):
            # The first restart is what a single fit with this seed would be.
            own = (
                seed
                if restart == 0
                else int(np.random.default_rng([seed, restart]).integers(2**32))
            )
            model = clone(self).set_params(n_init=1, random_state=own)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FitWarning)  # once, of the best, is enough
                model.fit(
                    X,
                    lengths,
                    validation=validation,
                    validation_every=validation_every,
                    callback=callback,
                    client=client,
                )
            if validation is None:
                score = model.score(X, lengths, per_step=True, client=client)
            else:
                score = model.history_[-1]["score"]
            if best is None or score > best_score:
                best, best_score = model, score
        assert best is not None
        history = best.history_
        self._begin(best.emission_, best._posterior, best.total_sequences_)
        self._move_state = best._move_state
        self.history_ = history
        if "samples_" in vars(best):
            self.samples_ = best.samples_
        else:
            warn_of_fit(self)
        return self

    def _fit_by_sampling(
        self,
        family: Family,
        data: Sequences,
        held_out: Data | None,
        seed: int,
        callback: Callable[[Progress], None] | None,
    ) -> Self:
        """Draw from the posterior in place of approximating it."""
        sampler = self._make_sampler(family)
        chains = Chains(self.n_samples, self.burn_in, self.thin, self.n_chains)
        title = f"{type(self).__name__} {self.inference}"
        with LiveProgress(chains.n_sweeps, title) if self.verbose else nullcontext() as live:
            reporters = [report for report in (callback, live) if report is not None]

            def report(progress: Progress) -> None:
                for reporter in reporters:
                    reporter(progress)

            samples, history = sampled.sample_posterior(
                sampler,
                data,
                family.n_statistics,
                chains,
                n_states=self.n_states,
                seed=seed,
                n_threads=self._engine().n_threads,
                callback=report if reporters else None,
            )
        prior = None if samples.best.shares is not None else self._make_transitions()
        best = sampled.posterior_of(samples, samples.best, prior, self.dtype)
        self._begin(family, best, len(data))
        self.samples_ = samples
        if held_out is not None:
            score = self._score(held_out, per_step=True)
            history[-1] = history[-1]._replace(score=score)
        self.history_ = [entry._asdict() for entry in history]
        return self

    def partial_fit(
        self, X: Any, lengths: ArrayLike | None = None, *, total_sequences: int | None = None
    ) -> Self:
        """Learn from one minibatch: one update, whatever its size.

        Parameters
        ----------
        X, lengths
            As for `fit`.
        total_sequences : int
            How many sequences the whole data set has.  Needed at the first call; later calls keep
            it unless it is given again.

        Returns
        -------
        self
        """
        self._check_parameters()
        if self.inference in self._samplers or not self._method.is_stochastic:
            raise ValueError(
                f"partial_fit needs a stochastic way of inference, 'scvi' or 'svi': "
                f"inference={self.inference!r} needs all the data at every update"
            )
        fitted = self.__sklearn_is_fitted__()
        if total_sequences is None:
            if not fitted:
                raise ValueError(
                    "partial_fit needs total_sequences, the size of the whole data set, at the "
                    "first call: each minibatch stands for its share of it"
                )
            total_sequences = self.total_sequences_
        check_whole("total_sequences", total_sequences, 1)
        family = self.emission_ if fitted else self.emission
        if is_source(X):
            raise TypeError(
                "partial_fit takes one minibatch in memory; fit takes files and sources"
            )
        data, _ = as_sequences(X, lengths, step_ndim=family.step_ndim)
        if total_sequences < len(data):
            raise ValueError(
                f"the minibatch has {len(data)} sequences, total_sequences={total_sequences}"
            )
        if not fitted:
            family = family.resolve(data, self.n_states)
        data = family.validate(data)
        total_steps = data.n_steps / len(data) * total_sequences
        if fitted:
            posterior = self._posterior
        else:
            posterior = self._initial_posterior(
                family, data, total_sequences, total_steps, self._seed()
            )
        engine = self._engine()
        with memory_advice(self.device):
            moved = posterior if engine.device is None else posterior.to_device(engine.device)
            step(
                moved,
                family,
                self._method.objective,
                self._step_sizes(total_sequences, total_steps, len(data)),
                engine.chunks(family, data, moved.n_states),
                total_sequences,
                engine,
            )
            engine.check()
            if fitted:
                self._posterior = moved.to_host()
            else:
                self._begin(family, moved.to_host(), total_sequences)
            self.total_sequences_ = total_sequences
            state = self._move_state
            moves = self._moves(family, moved, state.n_rounds, state=state)
            if moves is not None:
                moves.observe(data.n_steps, len(data), moved.n_states)
            if moves is not None and moves.can_judge_on(data.n_steps, moved):
                made = moves.run_round(moved, family, [data], total_sequences)
                self._posterior = moved.to_host()
                self._record(made)
        return self

    def _record(self, made: list[dict[str, Any]]) -> None:
        """Tell of proposals on a minibatch that came alone: passes and times are those of `fit`."""
        if made:
            before = Progress(0.0, 0, 0, 0, 0.0, None)._asdict()
            before |= self.history_[-1] if self.history_ else {}
            after = self._posterior
            now = {"updates": after.n_updates, "states": after.n_states, "moves": made}
            unknown = {"score": None, "bound": None, "move_seconds": 0.0}
            self.history_.append(before | now | unknown)

    def _begin(self, family: Family, posterior: Posterior, total_sequences: int) -> None:
        self.emission_ = family
        self.total_sequences_ = total_sequences
        self.history_ = []
        self.provenance_ = {}
        self._posterior = posterior
        self._move_state = MoveState()
        self.__dict__.pop("samples_", None)

    def _start(
        self, family: Family, sample: Sequences, data: Data, seed: int
    ) -> tuple[Posterior, Position, MoveState]:
        """Draw a posterior, and warm it up where the passes to come have few updates."""
        n_sequences, n_steps = data.n_sequences, data.n_steps
        posterior = self._initial_posterior(family, sample, n_sequences, n_steps, seed)
        moves = self._moves(family, posterior, seed, on_host=True)
        is_once = data.source is not None and not data.source.is_repeatable
        if moves is None or self.init != "auto" or is_once:
            return posterior, Position(), MoveState()
        title = f"{type(self).__name__} warm-up"
        warmed = warm_up(
            posterior,
            family,
            moves,
            self._make_transitions(),
            sequences=data.sequences,
            minibatches=lambda size: data.minibatches(family, size, seed),
            n_sequences=n_sequences,
            n_steps=n_steps,
            n_batches=-(-n_sequences // (self.batch_size or n_sequences)),
            seed=seed,
            monitor=lambda n: LiveProgress(n, title) if self.verbose else nullcontext(),
        )
        return (posterior, Position(), MoveState()) if warmed is None else warmed

    def _initial_posterior(
        self,
        family: Family,
        data: Sequences,
        total_sequences: float,
        total_steps: float,
        seed: int,
    ) -> Posterior:
        transitions = self._make_transitions()
        dtype = family.table_dtype or self.dtype
        if isinstance(self.init, Statistics):
            expected = (self.n_states, family.n_statistics)
            if self.init.emissions.shape != expected:
                raise ValueError(
                    f"init has emission statistics of shape {self.init.emissions.shape}, "
                    f"the model needs {expected}"
                )
            parts = (self.init.start, self.init.transitions, self.init.emissions)
            if not all(np.isfinite(part).all() for part in parts):
                raise ValueError("init holds values that are not finite")
            counts_only = parts if family.statistics_are_counts else parts[:2]
            if any((part < 0).any() for part in counts_only):
                raise ValueError("init holds a negative count")
            return self._tuned(Posterior.from_statistics(self.init, transitions, dtype), family)
        rng = np.random.default_rng([seed, _INITIAL_DRAW])
        n_states = int(self.init_states or self.n_states)
        if n_states < self.n_states:
            if not _is_symmetric(family, transitions):
                raise ValueError(
                    "init_states needs priors that are the same for all states: concentrations "
                    "that are numbers, or for emissions one row for all states"
                )
            transitions = transitions.regrouped(np.eye(n_states, self.n_states))
        counts = initial_counts(n_states, total_sequences, total_steps, rng)
        by_segments = self.init == "segments" or (self.init == "auto" and self._may_move)
        draw = family.segment_statistics if by_segments else family.initial_statistics
        statistics = Statistics(*counts, draw(data, n_states, total_steps, rng))
        return self._tuned(Posterior.from_statistics(statistics, transitions, dtype), family)

    def _tuned(self, posterior: Posterior, family: Family) -> Posterior:
        """Let the emission prior be learned, where that is asked for."""
        posterior.emissions.prior = family.learned_prior(
            seen="concentration" in self._tunings, new="base" in self._tunings
        )
        return posterior

    # ---- prediction -----------------------------------------------------------------------

    def score(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        per_step: bool = False,
        client: Any = None,
    ) -> float:
        """Log predictive likelihood of all sequences together, in nats.

        Parameters
        ----------
        X, lengths
            As for `fit`.
        per_step : bool
            Divide by the number of time steps.
        client : distributed.Client, optional
            Compute on a Dask cluster, whose workers open the files of `X` themselves.
        """
        data = self._prepare(X, lengths)
        return self._score(data, per_step=per_step, cluster=self._cluster(client, data))

    def log_likelihood(self, X: Any, lengths: ArrayLike | None = None) -> Floats:
        """Log predictive likelihood of each sequence, in nats, shape (N,)."""
        pieces = self._prepare(X, lengths).pieces(self.emission_)
        return np.concatenate([self._log_likelihoods(piece) for piece in pieces])

    def predict(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        out: str | PathLike[str] | None = None,
        overwrite: bool = False,
        client: Any = None,
    ) -> Any:
        """Most probable state path (Viterbi), in the form in which the data came.

        Parameters
        ----------
        X, lengths
            As for `fit`.
        out : path, optional
            Parquet file to write the paths to, one list a sequence; needed when X is a file or
            source.
        overwrite : bool
            Whether `out` may exist already.
        client : distributed.Client, optional
            Compute on a Dask cluster, whose workers open the files of `X` themselves.  `out` is
            then a folder, which they write files to: its files in the order of their names are
            the sequences in the order of `X`.

        Returns
        -------
        array, list of arrays, Sequences, or Path
            States; with `out`, where they are.
        """
        return self.decode(X, lengths, out=out, overwrite=overwrite, client=client)[1]

    def decode(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        out: str | PathLike[str] | None = None,
        overwrite: bool = False,
        client: Any = None,
    ) -> tuple[float, Any]:
        """Most probable state path and its log joint probability, summed over sequences.

        Parameters
        ----------
        X, lengths, out, overwrite, client
            As for `predict`.

        Returns
        -------
        log_probability : float
        path : array, list of arrays, Sequences, or Path
            States, in the form in which the data came; with `out`, where they are.
        """
        data = self._prepare(X, lengths)
        return self._results(data, "_paths", "states", out, overwrite, client)

    def _paths(self, piece: Sequences) -> tuple[Any, float]:
        scores, path = predict.best_paths(self._posterior, self.emission_, piece, self._engine())
        return path, float(scores.sum())

    def predict_proba(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        out: str | PathLike[str] | None = None,
        overwrite: bool = False,
        client: Any = None,
    ) -> Any:
        """Posterior probability of each state at each step, in the form in which the data came.

        Parameters
        ----------
        X, lengths, out, overwrite, client
            As for `predict`; in the file a step is a list of K numbers.
        """
        data = self._prepare(X, lengths)
        return self._results(data, "_probabilities", "probabilities", out, overwrite, client)[1]

    def _probabilities(self, piece: Sequences) -> tuple[Any, float]:
        family, engine = self.emission_, self._engine()
        if "samples_" in vars(self):
            values = sampled.state_probabilities(
                self.samples_, self._posteriors(), family, piece, engine
            )
        else:
            values = predict.state_probabilities(self._posterior, family, piece, engine)
        return values, 0.0

    def _results(
        self,
        data: Data,
        method: str,
        column: str,
        out: str | PathLike[str] | None,
        overwrite: bool,
        client: Any,
    ) -> tuple[float, Any]:
        """Compute one result a step, by a method that gives them with a score, and the total score.

        Results come back in the form of the data, or go to a file piece by piece, or from the
        workers of a cluster to files in a folder.
        """
        target = check_out(out, data)
        cluster = self._cluster(client, data)
        if cluster is not None:
            assert target is not None
            with whole_folder(target, overwrite=overwrite) as folder:
                compute = getattr(self._for_workers(), method)
                total = self._files(cluster, data, self.emission_).write(compute, column, folder)
            return total, target
        compute = getattr(self, method)
        if target is None:
            assert data.sequences is not None
            assert data.layout is not None
            values, total = compute(data.sequences)
            return total, restore_layout(values, data.sequences, data.layout)
        total = 0.0
        with ParquetSink(target, column, overwrite=overwrite) as sink:
            for piece in data.pieces(self.emission_):
                for part in piece.chunks(4 * CHUNK_STEPS):
                    values, score = compute(part)
                    sink.write(part.with_values(values))
                    total += score
        return total, target

    def sample(
        self,
        n_sequences: int = 1,
        length: int | ArrayLike = 1,
        *,
        random_state: Any = None,
    ) -> tuple[Sequences, Sequences]:
        """Draw sequences from the posterior mean parameters.

        Parameters
        ----------
        n_sequences : int
        length : int or (n_sequences,) array
            Length of every sequence, or of each.
        random_state : int, Generator, RandomState or None
            None draws on the model's own ``random_state``.

        Returns
        -------
        observations, states : Sequences
        """
        check_is_fitted(self)
        lengths = np.asarray(length)
        if n_sequences < 1 or lengths.dtype.kind not in "iu" or (lengths < 1).any():
            raise ValueError("sample needs at least one sequence, and lengths of at least one")
        if lengths.shape not in ((), (n_sequences,)):
            raise ValueError(f"{lengths.shape} lengths for {n_sequences} sequences")
        lengths = np.broadcast_to(lengths, n_sequences).astype(np.int64)
        seed = _as_seed(self.random_state if random_state is None else random_state)
        rng = np.random.default_rng([seed, _INITIAL_DRAW + 1])
        return predict.draw(self._posterior, self.emission_, lengths, rng)

    def _prepare(self, X: Any, lengths: ArrayLike | None) -> Data:
        check_is_fitted(self)
        return Data(X, lengths, self.emission_).validated(self.emission_)

    def _score(self, data: Data, *, per_step: bool, cluster: Cluster | None = None) -> float:
        total, n_steps = 0.0, 0
        if cluster is not None:
            files = self._files(cluster, data, self.emission_)
            total, n_steps = files.score(self._for_workers()._log_likelihoods)
        else:
            for piece in data.pieces(self.emission_):
                total += float(self._log_likelihoods(piece).sum())
                n_steps += piece.n_steps
        return total / n_steps if per_step else total

    def _log_likelihoods(self, data: Sequences) -> Floats:
        if "samples_" in vars(self):
            return sampled.log_likelihoods(self._posteriors(), self.emission_, data, self._engine())
        return predict.log_likelihoods(self._posterior, self.emission_, data, self._engine())

    def _posteriors(self) -> Iterator[Posterior]:
        # The prior and precision of fit hold, whatever parameters were set since.
        prior, dtype = self._posterior.transitions, str(self._posterior.emissions.dtype)
        for draw in self.samples_:
            own = None if draw.shares is not None else prior
            yield sampled.posterior_of(self.samples_, draw, own, dtype)

    # ---- what was learned -----------------------------------------------------------------

    @property
    def startprob_(self) -> Floats:
        """Posterior mean of the start distribution, shape (K,)."""
        check_is_fitted(self)
        return self._posterior.transitions.means(self._posterior.counts).start

    @property
    def transmat_(self) -> Floats:
        """Posterior mean of the transition matrix, shape (K, K)."""
        check_is_fitted(self)
        return self._posterior.transitions.means(self._posterior.counts).transitions

    @property
    def statistics_(self) -> Statistics:
        """Expected counts that the posterior is made of, without the prior; a copy."""
        check_is_fitted(self)
        return self._posterior.statistics()

    @property
    def n_states_(self) -> int:
        """Number of states in use: those with more than half a per cent of the steps."""
        return n_used(self.state_shares_)

    @property
    def dwell_times_(self) -> Floats:
        """Expected number of steps that a visit to each state lasts, shape (K,)."""
        return 1.0 / np.maximum(1.0 - np.diag(self.transmat_), 1e-300)

    @property
    def state_shares_(self) -> Floats:
        """Expected share of the steps that each state has, shape (K,)."""
        check_is_fitted(self)
        return state_shares(self._posterior.counts)

    @property
    def n_updates_(self) -> int:
        """Minibatch updates so far."""
        check_is_fitted(self)
        return self._posterior.n_updates

    def __getattr__(self, name: str) -> Any:
        """Emission parameters under hmmlearn's names, such as ``emissionprob_``."""
        if isinstance(getattr(type(self), name, None), property):
            check_is_fitted(self)  # the property raised this error, and Python came here with it
        fitted = vars(self).get("emission_")
        if fitted is None or name not in fitted.parameter_names:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        learned = self._posterior.learned(fitted)
        natural = learned.prior() + self._posterior.emissions.dense()
        return fitted.parameters(natural)[name]

    def __sklearn_is_fitted__(self) -> bool:
        return "_posterior" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # missing values are integrated out
        return tags

    @property
    def n_features_in_(self) -> int:
        """Columns of the data, for families of vectors."""
        check_is_fitted(self)
        family = self.emission_
        columns = family.columns if isinstance(family, Product) else None
        n = getattr(family, "n_features", None) if columns is None else sum(columns)
        if n is None:
            raise AttributeError(f"{type(family).__name__} has one value a step, no columns")
        return int(n)

    def _repr_html_(self) -> str:
        """Show a fitted model in a notebook by its states, an unfitted one by its parameters."""
        if not self.__sklearn_is_fitted__():
            return str(estimator_html_repr(self))
        from sojourn.report.notebook import notebook_card

        return str(notebook_card(self))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def to_hmmlearn(self) -> Any:
        """Return a model of hmmlearn with the posterior means; see `sojourn.from_hmmlearn`."""
        from sojourn.interop import to_hmmlearn

        check_is_fitted(self)
        return to_hmmlearn(self)

    def aic(self, X: Any, lengths: ArrayLike | None = None) -> float:
        """Akaike's criterion on data; the lower the better.  For finite models only."""
        from sojourn.model_selection import aic

        return aic(self, X, lengths)

    def bic(self, X: Any, lengths: ArrayLike | None = None) -> float:
        """Schwarz's criterion on data; the lower the better.  For finite models only."""
        from sojourn.model_selection import bic

        return bic(self, X, lengths)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to one file, whole or not at all; `sojourn.load` reads it."""
        check_is_fitted(self)
        persist.save(self, path)

    # ---- parameters -----------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Refuse bad parameters before anything happens."""
        check_whole("n_states", self.n_states, 1)
        check_whole("n_passes", self.n_passes, 1)
        check_whole("n_init", self.n_init, 1)
        if self.batch_size is not None:
            check_whole("batch_size", self.batch_size, 1)
        if not isinstance(self.emission, Family):
            raise TypeError(f"emission must be an emission family, got {self.emission!r}")
        if self.inference not in self._inferences:
            raise ValueError(
                f"inference={self.inference!r} is not one of {sorted(self._inferences)} "
                f"for {type(self).__name__}"
            )
        if self.device == "cuda" and (self.inference in self._samplers or self._method.remembers):
            raise ValueError(
                f"inference={self.inference!r} goes sequence by sequence, and runs on the CPU "
                "only: device='cpu'"
            )
        if self.inference == "em" and not isinstance(self.emission, Categorical):
            raise ValueError(
                "inference='em' takes Categorical emissions: of other families the potentials (2) "
                "are predictive densities, not densities at the best parameters; "
                f"use 'vb' or 'scvi' for {type(self.emission).__name__}"
            )
        check_number("forgetting_rate", self.forgetting_rate, 0.0, 1.0)
        check_number("delay", self.delay, 0.0, np.inf)
        unknown = set(self._tunings) - set(TUNINGS)
        if unknown:
            raise ValueError(f"tuned={self.tuned!r} names more than {', '.join(TUNINGS)}")
        if self._tunings and not (self.inference in METHODS and self._method.is_stochastic):
            raise ValueError(
                f"tuned is for the stochastic ways, 'scvi' and 'svi', not {self.inference!r}"
            )
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype={self.dtype!r} is neither 'float32' nor 'float64'")
        named = isinstance(self.init, str) and self.init in ("auto", "exponential", "segments")
        if not (named or isinstance(self.init, Statistics)):
            raise ValueError(
                f"init={self.init!r} is neither 'auto', 'exponential', 'segments' nor Statistics"
            )
        if self.moves not in (None, "auto"):
            raise ValueError(f"moves={self.moves!r} is neither 'auto' nor None")
        if self.init_states is not None:
            check_whole("init_states", self.init_states, 1)
            if self.init_states > self.n_states:
                raise ValueError(
                    f"init_states={self.init_states} is more than n_states={self.n_states}"
                )
            if not self._may_move:
                raise ValueError(
                    "init_states needs moves='auto' and inference='scvi', by which the model grows"
                )
        for name, least in (("n_samples", 1), ("burn_in", 0), ("thin", 1), ("n_chains", 1)):
            check_whole(name, getattr(self, name), least)
        self._check_device()
        if self.n_jobs is not None:
            check_whole("n_jobs", self.n_jobs, -(2**31))

    @property
    def _may_move(self) -> bool:
        """Whether states may change: their moves are judged by the bound that SCVI has.

        A prior on symbols that is learned is held while they are judged.
        """
        return self.moves == "auto" and self.inference == "scvi"

    def _moves(
        self,
        family: Family,
        posterior: Posterior,
        seed: int,
        source: Minibatches | None = None,
        state: MoveState | None = None,
        *,
        on_host: bool = False,
    ) -> Moves | None:
        """Return how the states may change: not at all where priors tell them apart.

        `on_host` judges them on this machine's cores: only the workers may have a GPU.
        """
        if not (self._may_move and _is_symmetric(family, posterior.transitions)):
            return None
        grows = self.init_states is not None and self.init_states < self.n_states
        on_cpu = on_host and self.device == "cuda"
        engine = self._engine("cpu" if on_cpu else self.device)
        return Moves(int(self.n_states), seed, engine, source, grows, state or MoveState())

    @property
    def _inferences(self) -> frozenset[str]:
        """Ways of inference that the model offers."""
        return frozenset(METHODS) | self._samplers

    @property
    def _method(self) -> Method:
        return METHODS[self.inference]

    @property
    def _resumes(self) -> bool:
        return self.inference not in self._samplers and not self._method.remembers

    @property
    def _tracks_bound(self) -> bool:
        if self.track_bound is None:
            return not self._method.is_stochastic
        return bool(self.track_bound)

    @property
    def _batch_size(self) -> int | None:
        return None if self._method.whole else self.batch_size

    def _minibatches(
        self, data: Data, family: Family, seed: int, cluster: Cluster | None
    ) -> Minibatches:
        if cluster is not None:
            return ClusterSource(self._files(cluster, data, family), self._batch_size, seed)
        if not self._method.remembers:
            return data.minibatches(family, self._batch_size, seed)
        if data.n_sequences < 2:
            raise ValueError(
                f"inference={self.inference!r} takes a sequence out of the statistics before it "
                "is updated, and needs at least two"
            )
        return RememberingSource(self._in_memory(data), seed)

    def _in_memory(self, data: Data) -> Sequences:
        if data.sequences is None:
            raise ValueError(
                f"inference={self.inference!r} keeps something of every sequence, and takes data "
                "in memory only: sj.open(path).read_all()"
            )
        return data.sequences

    # ---- a cluster ------------------------------------------------------------------------

    def _cluster(self, client: Any, data: Data) -> Cluster | None:
        """Check a client, that the workers can have the data, and that the method allows it."""
        if client is None:
            return None
        if data.source is None:
            raise ValueError(
                "client= is for files that the workers open themselves: data in memory stays here"
            )
        if self.inference not in self._samplers and self._method.remembers:
            self._in_memory(data)
        return Cluster(client)

    def _files(self, cluster: Cluster, data: Data, family: Family) -> RemoteFiles:
        """Return the data as the workers of a cluster read it, in the form that a family takes."""
        assert data.source is not None
        worker = clone(self).set_params(init="exponential", n_jobs=self.n_jobs or 1)
        worker.emission = family
        return RemoteFiles(cluster, data.source, Setup(__version__, family, worker._engine))

    def _for_workers(self) -> Self:
        """Return the fitted model with one thread a task: a worker runs several tasks at once."""
        worker = copy(self)
        worker.n_jobs = self.n_jobs or 1
        return worker

    def _check_device(self) -> None:
        if self.device not in DEVICES:
            raise ValueError(f"device={self.device!r} is not one of {list(DEVICES)}")

    def _engine(self, device: str | None = None) -> Engine:
        self._check_device()
        device, n_threads = device or self.device, resolve_jobs(self.n_jobs)
        if device == "cuda":
            begins = self.n_states if self.init_states is None else self.init_states
            moves_from = int(begins) if self._may_move else None
            return gpu_engine(n_threads, self.dtype, moves_from=moves_from)
        return Engine(KERNELS[device], n_threads, self.dtype)

    def _schedule(self) -> Schedule:
        return self._method.schedule(float(self.forgetting_rate), float(self.delay))

    def _step_sizes(self, n_sequences: int, n_steps: float, batch_size: int | None) -> StepSizes:
        """Return the schedule asked for, for data of that size."""
        if "steps" not in self._tunings:
            return self._schedule()
        return LinearDecay.plan(
            self.n_states, self.n_passes, batch_size or n_sequences, n_sequences, n_steps
        )

    @property
    def _tunings(self) -> tuple[str, ...]:
        """What departs from the paper's algorithm."""
        if isinstance(self.tuned, bool | np.bool_):
            return TUNINGS if self.tuned else ()
        return (self.tuned,) if isinstance(self.tuned, str) else tuple(self.tuned)

    def _seed(self) -> int:
        return _as_seed(self.random_state)

    def _seed_of(self, training: dict[str, Any]) -> int:
        """Return the seed of a run to go on with, which a whole number must agree with."""
        seed = int(training["identity"]["seed"])
        if isinstance(self.random_state, int | np.integer) and self.random_state != seed:
            raise ValueError(
                f"the checkpoint's seed is {seed}, but random_state={self.random_state}"
            )
        return seed

    def _identity(self, family: Family, data: Data, seed: int) -> dict[str, Any]:
        """Return what a resumed run must agree in; threads and further passes are free."""
        parameters = persist.describe_parameters(self)
        free = {"n_passes", "n_jobs", "verbose", "random_state"}
        if "steps" in self._tunings:
            free.remove("n_passes")  # the step sizes follow from it
        for name in free:
            parameters.pop(name)
        return {
            "seed": seed,
            "parameters": parameters,
            "emission": persist.describe_family(family),
            "data": data.fingerprint(),
        }


def _is_symmetric(family: Family, transitions: Transitions) -> bool:
    """Whether the priors are the same for all states."""
    return family.prior().ndim == 1 and transitions.is_symmetric


def as_gamma(name: str, value: tuple[float, float]) -> Gamma:
    """Return a positive shape and rate, or refuse them."""
    pair = np.asarray(value, dtype=np.float64)
    if pair.shape != (2,) or not (np.isfinite(pair).all() and (pair > 0).all()):
        raise ValueError(f"{name} must be a positive shape and rate, got {value!r}")
    return Gamma(*pair.tolist())


def learns_stickiness(stickiness: float | str, inference: str) -> bool:
    """Check a stickiness, and say whether it is to be learned."""
    if stickiness != "learned":
        check_number("stickiness", stickiness, 0.0, np.finfo(np.float64).max)
        return False
    if inference != "scvi":
        raise ValueError(f"stickiness='learned' needs inference='scvi', not {inference!r}")
    return True


def check_whole(name: str, value: Any, least: int) -> None:
    """Refuse a parameter that is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def check_number(name: str, value: Any, least: float, most: float) -> None:
    """Refuse a parameter that is not a finite number between bounds."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (is_number and np.isfinite(value) and least <= value <= most):
        raise ValueError(f"{name}={value!r} is not a finite number between {least} and {most}")


def _checkpoints(
    folder: str | PathLike[str] | None, every: int | None, resume: bool
) -> Checkpoints | None:
    if folder is None:
        if resume or every is not None:
            raise ValueError("resume and checkpoint_every need a folder: checkpoint=...")
        return None
    if every is not None:
        check_whole("checkpoint_every", every, 1)
    checkpoints = Checkpoints(folder, every)
    if not resume:
        checkpoints.check_empty()
    return checkpoints


def _as_seed(random_state: Any) -> int:
    """Turn scikit-learn's and NumPy's ways to seed into one whole number."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**32))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, int | np.integer) and random_state >= 0:
        return int(random_state)
    raise ValueError(f"random_state={random_state!r} is no seed")
