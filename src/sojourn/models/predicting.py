"""Prediction methods of the estimators, with their documentation for users."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal

from numpy.typing import ArrayLike

from sojourn.analysis.forecast import Forecast
from sojourn.analysis.residuals import Residuals
from sojourn.analysis.segments import SegmentTable
from sojourn.analysis.stream import Stream
from sojourn.analysis.uncertainty import PosteriorSamples
from sojourn.kernels.interface import Floats
from sojourn.prediction import FittedModel


class PredictionMixin:
    """Prediction methods of estimators: every call is delegated to their `FittedModel`."""

    random_state: Any

    @property
    @abstractmethod
    def fitted_(self) -> FittedModel:
        """The fitted model."""

    def score(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        y: Any = None,
        per_step: bool = False,
        client: Any = None,
    ) -> float:
        """Log predictive likelihood of all sequences together, in nats.

        Parameters
        ----------
        X, lengths, y
            As for `fit`; with labels it is the likelihood of the steps and of their labels.
        per_step : bool
            Divide by the number of time steps.
        client : distributed.Client, optional
            Compute on a Dask cluster, whose workers open the files of `X` themselves.
        """
        return self.fitted_.score(X, lengths, y=y, per_step=per_step, client=client)

    def log_likelihood(self, X: Any, lengths: ArrayLike | None = None, *, y: Any = None) -> Floats:
        """Log predictive likelihood of each sequence, in nats, shape (N,)."""
        return self.fitted_.log_likelihood(X, lengths, y=y)

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
        output: Literal["pandas", "polars"] | None = None,
    ) -> Any:
        """Most probable state path (Viterbi), in the same form as the data.

        Parameters
        ----------
        X, lengths, y
            As for `fit`; the path goes through states that the labels allow.
        names : bool
            Whether to return names of states in place of numbers, for data in memory; a state
            without a name is called by its number.
        out : path, optional
            Parquet file to write the paths to, one list per sequence; required if X is a file
            or source.
        overwrite : bool
            Whether an existing `out` may be overwritten.
        client : distributed.Client, optional
            Compute on a Dask cluster, whose workers open the files of `X` themselves.  `out` is
            then a folder to which they write files; sorted by name, the files contain the
            sequences in the order of `X`.
        output : {"pandas", "polars"}, optional
            Return a series or a data frame; with "pandas", with the index of a data frame `X`, or
            the numbers of sequence and step.

        Returns
        -------
        array, list of arrays, Sequences, series, or Path
            States; with `out`, the path that they were written to.  Those of a data frame are in
            the order of its rows.
        """
        return self.fitted_.predict(
            X,
            lengths,
            y=y,
            names=names,
            out=out,
            overwrite=overwrite,
            client=client,
            output=output,
        )

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
        """Most probable state path and its log joint probability, summed over sequences.

        Parameters
        ----------
        X, lengths, y, out, overwrite, client
            As for `predict`.
        algorithm : {"viterbi", "map"}
            "viterbi" finds the most probable path.  "map" finds the most probable state of each
            step by itself; the score is then the sum of their probabilities, as in hmmlearn.
        k : int
            Number of paths, the best first; for data in memory, and "viterbi" only.

        Returns
        -------
        log_probability : float, or (N, k) array for k > 1
        path : array, list of arrays, Sequences, or Path
            States, in the same form as the data; with `out`, the path that they were written to.
            For k > 1 a list of arrays (k, T_n), one per sequence; where a sequence has fewer paths,
            the others have the probability zero and states −1.

        Examples
        --------
        >>> import sojourn as sj
        >>> model = sj.HMM(2, sj.Categorical(2), random_state=0).fit([[0] * 9 + [1] * 9] * 9)
        >>> scores, paths = model.decode([0, 0, 1], k=3)
        >>> scores.shape, paths[0].shape
        ((1, 3), (3, 3))
        """
        return self.fitted_.decode(
            X, lengths, y=y, algorithm=algorithm, k=k, out=out, overwrite=overwrite, client=client
        )

    def predict_proba(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        y: Any = None,
        out: str | PathLike[str] | None = None,
        overwrite: bool = False,
        client: Any = None,
        output: Literal["pandas", "polars"] | None = None,
    ) -> Any:
        """Posterior probability of each state at each step, in the same form as the data.

        Parameters
        ----------
        X, lengths, y, out, overwrite, client, output
            As for `predict`; in the file, each step is a list of K numbers, in a data frame the
            columns are ``probability_0``, ``probability_1`` and so on.
        """
        return self.fitted_.predict_proba(
            X, lengths, y=y, out=out, overwrite=overwrite, client=client, output=output
        )

    def sample(
        self,
        n_sequences: int = 1,
        length: int | ArrayLike | None = None,
        *,
        given: Any = None,
        given_lengths: ArrayLike | None = None,
        random_state: Any = None,
    ) -> tuple[Any, Any]:
        """Draw sequences from the posterior mean parameters, or what comes after given ones.

        Parameters
        ----------
        n_sequences : int
            Number of sequences; with `given`, the number of continuations of each.
        length : int or (n_sequences,) array
            One length for all sequences, or the length of each.  It may be left out for a single
            sequence of one step: ``sample(500)``, which for hmmlearn is one sequence of 500 steps,
            is refused; here that is ``sample(1, 500)``.
        given, given_lengths : optional
            Data as for `fit`: the draws go on from the end of each sequence.  Those of the first
            come first.
        random_state : int, Generator, RandomState or None
            None uses the model's ``random_state``.

        Returns
        -------
        observations, states : Sequences
            ``np.asarray`` of either has the steps of all sequences, one after another.

        Examples
        --------
        >>> import sojourn as sj
        >>> model = sj.HMM(2, sj.Categorical(2), random_state=0).fit([[0] * 9 + [1] * 9] * 9)
        >>> observations, states = model.sample(3, 5, given=[[0, 0, 1]])
        >>> observations.lengths
        array([5, 5, 5])
        """
        own = self.random_state if random_state is None else random_state
        return self.fitted_.sample(
            n_sequences, length, given=given, given_lengths=given_lengths, random_state=own
        )

    # ---- now and next ---------------------------------------------------------------------

    def filter(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        lag: int = 0,
        out: str | PathLike[str] | None = None,
        overwrite: bool = False,
        output: Literal["pandas", "polars"] | None = None,
    ) -> Any:
        """Probability of each state given the steps so far, in the same form as the data.

        Unlike `predict_proba` and `predict`, it does not look into the future:
        p(z_t | x_1, ..., x_{t+lag}).

        Parameters
        ----------
        X, lengths
            As for `fit`.
        lag : int
            Number of later steps that are known too (fixed-lag smoothing).
        out : path, optional
            File to write to; required if X is a file or source.  A name that ends in ``.npy`` gets
            an array (T, K) of all steps, in memory that does not grow with a sequence; any other
            is a Parquet file with one list per sequence, as for `predict_proba`.
        overwrite : bool
            Whether an existing `out` may be overwritten.
        output : {"pandas", "polars"}, optional
            Return a data frame, as for `predict_proba`.

        Examples
        --------
        >>> import sojourn as sj
        >>> model = sj.HMM(2, sj.Categorical(2), random_state=0).fit([[0] * 9 + [1] * 9] * 9)
        >>> model.filter([0, 0, 1]).shape
        (3, 2)
        """
        return self.fitted_.filter(X, lengths, lag=lag, out=out, overwrite=overwrite, output=output)

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
        """Forecast states and observations up to H steps after each sequence.

        Parameters
        ----------
        X, lengths
            As for `fit`.
        steps : int
            Number of steps H.
        quantiles : sequence of float
            Levels of the quantiles, between 0 and 1.
        n_draws : int
            Draws of the parameters, over which the state probabilities are averaged, and of
            futures.  With 0, the posterior means are used alone.
        covariates : (H, C) or (N, H, C) array, optional
            What is known of the steps to come, for `LinearGaussian`: the same for all sequences, or
            for each.  Without it, covariates are drawn with the spread that they had in training.
        random_state : int, Generator, RandomState or None
            None uses the model's ``random_state``.

        Returns
        -------
        Forecast
            With ``state_probabilities``, ``means``, ``quantiles``, ``draws``, and ``log_score`` for
            what came.

        Examples
        --------
        >>> import sojourn as sj
        >>> import numpy as np
        >>> X = np.random.default_rng(0).poisson([2.0] * 50 + [9.0] * 50)
        >>> model = sj.HMM(2, sj.Poisson(), random_state=0).fit(X)
        >>> ahead = model.forecast(X, steps=3)
        >>> ahead.means.shape, ahead.quantiles.shape, ahead.draws.shape
        ((1, 3, 1), (3, 1, 3, 1), (100, 1, 3, 1))
        """
        own = self.random_state if random_state is None else random_state
        return self.fitted_.forecast(
            X,
            lengths,
            steps=steps,
            quantiles=quantiles,
            n_draws=n_draws,
            covariates=covariates,
            random_state=own,
        )

    def stream(self, n_streams: int | None = None, *, random_state: Any = None) -> Stream:
        """Follow a sequence step by step, or many side by side, in O(K²) a step.

        Parameters
        ----------
        n_streams : int, optional
            Number of sequences side by side; by default one.
        random_state : int, Generator, RandomState or None
            For the draws of forecasts; None uses the model's ``random_state``.

        Returns
        -------
        Stream
            With ``update(x)``, ``probabilities``, ``surprise`` and ``forecast(steps)``.

        Examples
        --------
        >>> import sojourn as sj
        >>> model = sj.HMM(2, sj.Categorical(2), random_state=0).fit([[0] * 9 + [1] * 9] * 9)
        >>> stream = model.stream()
        >>> stream.update(0).shape
        (2,)
        """
        own = self.random_state if random_state is None else random_state
        return self.fitted_.stream(n_streams, random_state=own)

    # ---- segments and the chain -----------------------------------------------------------

    def segments(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        y: Any = None,
        algorithm: str = "viterbi",
        names: Sequence[str] | None = None,
    ) -> SegmentTable:
        """Cut sequences into runs of one state, as a table.

        Parameters
        ----------
        X, lengths
            As for `fit`.
        algorithm : {"viterbi", "map"}
            How the path is found; see `decode`.
        names : sequence of str, optional
            Names of the states.

        Returns
        -------
        SegmentTable
            With the columns sequence, state, name, start, end, length, probability (that the whole
            segment is in the state) and mean (of the observations); ``to_pandas``, ``to_arrow`` and
            ``to_parquet`` convert it.
        """
        return self.fitted_.segments(X, lengths, algorithm=algorithm, names=names)

    def score_samples(self, X: Any, lengths: ArrayLike | None = None) -> tuple[float, Any]:
        """Return the log likelihood and the state probabilities, as in hmmlearn.

        Parameters
        ----------
        X, lengths
            Data in memory, as for `fit`.

        Returns
        -------
        log_likelihood : float
            Of all sequences together.
        probabilities : array, list of arrays or Sequences
            As from `predict_proba`.
        """
        return self.fitted_.score_samples(X, lengths)

    def get_stationary_distribution(self) -> Floats:
        """Return the stationary distribution of the chain, shape (K,), as in hmmlearn."""
        return self.fitted_.stationary

    def mean_first_passage(self, a: Any, b: Any) -> float:
        """Return the expected number of steps from states `a` to states `b`.

        Parameters
        ----------
        a, b : int or sequence of int
            From several states it is the mean over them by their stationary shares; to several, it
            is the time until the first of them.

        Examples
        --------
        >>> import sojourn as sj
        >>> model = sj.HMM(2, sj.Categorical(2), random_state=0).fit([[0] * 9 + [1] * 9] * 9)
        >>> model.mean_first_passage(0, 1) > 1.0
        True
        """
        return self.fitted_.mean_first_passage(a, b)

    def dwell_distribution(self, n_steps: int = 100) -> Floats:
        """Return the probability that a visit to each state lasts 1, ..., n steps, shape (K, n)."""
        return self.fitted_.dwell_distribution(n_steps)

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
        """Draw parameters and paths from the posterior given the training data.

        Parameters
        ----------
        X, lengths
            The data that the model was fitted to, in memory or in files.
        n : int
            Number of draws.
        method : {"gibbs", "surrogate"}
            "gibbs" draws paths given parameters and parameters given paths in turn, from where
            training ended: passes over the data for each draw, and intervals that are as wide as
            they should be.  "surrogate" draws paths under the potentials of training, and
            parameters given their counts: all draws in one pass, but intervals that are too narrow
            where the states overlap, because sequences do not influence one another.
        warmup : int
            Passes before the first draw, for "gibbs".
        thin : int or "auto"
            Passes from one draw to the next.  By default as many as it takes for the draws to be
            worth half as many independent ones, or 100; the more states overlap, the more passes.
        max_sweeps : int
            Limit on the passes of "auto"; ``n_effective`` of the result says what was reached.
        random_state : int, Generator, RandomState or None
            None uses the model's ``random_state``.

        Returns
        -------
        PosteriorSamples
            With ``interval(name, level)``, ``draws(name)`` and ``paths``.

        Notes
        -----
        The prior on the transitions of `HDPHMM` is taken as it was learned, without its own
        uncertainty.
        """
        own = self.random_state if random_state is None else random_state
        return self.fitted_.posterior_samples(
            X,
            n,
            lengths,
            method=method,
            warmup=warmup,
            thin=thin,
            max_sweeps=max_sweeps,
            random_state=own,
        )

    def residuals(
        self, X: Any, lengths: ArrayLike | None = None, *, random_state: Any = None
    ) -> Residuals:
        """Return where each step falls in the distribution predicted from the steps before it.

        Parameters
        ----------
        X, lengths
            Data in memory, as for `fit`.
        random_state : int, Generator, RandomState or None
            For counts and symbols, whose residuals are randomised; None uses the model's
            ``random_state``.

        Returns
        -------
        Residuals
            With ``uniform``, ``normal``, ``autocorrelation()``, ``check()``, and ``describe()``,
            which says in words what they show.
        """
        own = self.random_state if random_state is None else random_state
        return self.fitted_.residuals(X, lengths, random_state=own)
