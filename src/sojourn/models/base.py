"""Base class of `HMM` and `HDPHMM`: scikit-learn's protocol; the work is delegated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from os import PathLike
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from sojourn import persist
from sojourn.analysis.relabel import relabel
from sojourn.durations import Duration, StateDuration
from sojourn.estimator import Estimator
from sojourn.families import Family
from sojourn.hmmlearn_names import refuse_names_of_hmmlearn
from sojourn.inference import METHODS, Progress, Statistics
from sojourn.kernels.interface import Floats
from sojourn.models import partial, run
from sojourn.models.attributes import Learned, refuse_assignment
from sojourn.models.fixed import Given
from sojourn.models.observers import Observers
from sojourn.models.parameters import COMMON, Constraint, check_parameters, compute_of, record_of
from sojourn.models.predicting import PredictionMixin
from sojourn.moves.settings import MoveSettings
from sojourn.prediction import FittedModel
from sojourn.sampling import Sampler, Samples
from sojourn.sampling.settings import Sampling
from sojourn.sources.arrow_arrays import Roles, listed
from sojourn.transitions import Transitions

Inference = Literal["scvi", "svi", "cvb0", "vb", "em", "gibbs", "blocked-gibbs", "beam"]


class BaseHMM(PredictionMixin, Estimator, ABC):  # type: ignore[misc]
    """A hidden Markov model as a scikit-learn estimator.

    Subclasses only declare their parameters and build the prior on transitions.  `fit` creates a
    `FittedModel`, and predictions, reports and files are computed from that.
    """

    n_states: int
    emission: Family
    inference: Inference | Sampling
    duration: Duration | None
    transition_constraints: ArrayLike | str | None
    start_constraints: ArrayLike | None
    fixed: str | Collection[str] | Mapping[str, Any] | None
    batch_size: int | Literal["auto"] | None
    tile_length: int | Literal["auto"] | None
    buffer: int | Literal["auto"] | None
    n_passes: int | Literal["auto"]
    tol: float
    forgetting_rate: float
    delay: float
    tuned: bool | str | Collection[str]
    moves: Literal["auto"] | MoveSettings | None
    init: str | Statistics
    n_init: int | Literal["auto"]
    device: str
    n_jobs: int | None
    dtype: str
    random_state: Any
    verbose: bool
    state_names: Sequence[str] | None

    startprob_ = Learned[Floats]("startprob")
    transmat_ = Learned[Floats]("transmat")
    statistics_ = Learned[Statistics]("statistics")
    n_states_ = Learned[int]("n_states")
    state_shares_ = Learned[Floats]("state_shares")
    dwell_times_ = Learned[Floats]("dwell_times")
    durations_ = Learned[list[StateDuration]]("durations")
    stationary_ = Learned[Floats]("stationary")
    timescales_ = Learned[Floats]("timescales")
    n_updates_ = Learned[int]("n_updates")
    n_features_in_ = Learned[int]("n_features")
    emission_ = Learned[Family]("family")
    total_sequences_ = Learned[int]("total_sequences")
    converged_ = Learned[bool | None]("converged", or_none=True)
    history_ = Learned[list[dict[str, Any]]]("history")
    provenance_ = Learned[dict[str, Any]]("provenance")
    samples_ = Learned[Samples]("samples")
    state_names_ = Learned[list[str]]("labels_of_states")
    _fitted: FittedModel
    _track_bound: bool | None = None  # what a deprecated parameter says
    _given: Given | None = None  # what fixed parts are fixed to, while it is fitted
    _unresolved: Family | None = None  # `emission` before it saw data, where that has been replaced

    _methods: ClassVar[frozenset[str]] = frozenset(METHODS)
    """Variational methods that the model offers."""

    _samplers: ClassVar[frozenset[str]] = frozenset()
    """Samplers that the model offers."""

    _values: ClassVar[tuple[str, ...]] = ("inference", "moves")
    """Parameters that model files store as several values; see `sojourn.models.deprecated`."""

    _constraints: ClassVar[dict[str, Constraint]] = COMMON
    """Constraints on the parameters."""

    def __new__(cls, *args: Any, **parameters: Any) -> Any:
        """Make an estimator, or say what parameters of hmmlearn are called here."""
        refuse_names_of_hmmlearn(cls.__name__, parameters.keys())
        if args and len(args) < 2 and "emission" not in parameters:
            raise TypeError(
                f"{cls.__name__}(n_states, emission) needs an emission family: for numbers "
                f"{cls.__name__}({args[0]!r}, sj.Gaussian()), for counts sj.Poisson(), for words "
                "sj.Categorical()"
            )
        return super().__new__(cls)

    @classmethod
    @cache
    def _get_param_names(cls) -> list[str]:
        """Return the names of the parameters: looked up once, since every fit asks for them."""
        return list(super()._get_param_names())

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
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        sequence: str | None = None,
        time: str | None = None,
        drop: str | Sequence[str] | None = None,
        validation: Any = None,
        validation_every: int | None = None,
        callback: Callable[[Progress], None] | None = None,
        track_bound: bool | None = None,
        checkpoint: str | PathLike[str] | None = None,
        checkpoint_every: int | None = None,
        resume: bool = False,
        client: Any = None,
    ) -> Self:
        """Fit the model to sequences; an earlier fit is discarded.

        Parameters
        ----------
        X : array, list of arrays, Sequences, PyArrow list array, path or source
            With `lengths`, the steps of all sequences concatenated, as in hmmlearn.  Without, a
            list of sequences, an array whose rows are sequences of equal length, or one sequence.
            A file, folder or pattern, or the result of `sojourn.open`, is read in minibatches,
            with memory use that does not grow with the data.  A data frame of pandas or polars, a
            PyArrow table, or groups of a frame's rows, has one row per step.
        lengths : (N,) integer array, optional
            Length of each sequence in `X`.
        sequence : str, optional
            Column of a data frame, or level of its index, with the id of the sequence; rows of a
            sequence need not be adjacent.  Without, all rows are one sequence.
        time : str, optional
            Column of a data frame by which the rows of a sequence are put in order.  Without, they
            are in the order of an index of dates, or of the rows.
        drop : str or sequence of str, optional
            Columns of a data frame that are left out.
        y : array, list of arrays, list of sets, optional
            What is known about the states, in the form of `X` or flat: a whole number per step, -1
            where nothing is known; names, see `state_names`, and None; sets of the states that are
            possible; or a weight in [0, 1] for every step and state, (T, K), which multiplies the
            emission potential (2).  States that labels name keep their places.  Files have a column
            for it: ``sj.open(path, label=...)``.
        sample_weight : (N,) array, optional
            What each sequence counts for: 2 is the same as having it twice, 0 as leaving it out.
            Files have a column for it: ``sj.open(path, weight=...)``.
        validation : data like X, or a pair (X, lengths), optional
            Held-out sequences, scored after each pass into ``history_``.
        validation_every : int, optional
            Number of updates after which they are also scored within a pass.
        callback : callable, optional
            Called with a `Progress` after each update and each pass.
        track_bound : bool, optional
            Whether ``history_`` has the evidence lower bound (for "em" the log likelihood).  It
            costs a pass over the emission statistics; by default it is tracked by "em", "vb" and
            "cvb0".
        checkpoint : path, optional
            Folder for checkpoints; the last two are kept.  Ctrl-C writes one and then raises
            `KeyboardInterrupt`.
        checkpoint_every : int, optional
            Updates between two checkpoints.  By default one per minute, and one at the end.
        resume : bool
            Continue from the newest checkpoint in the folder; the result is bitwise the same as
            without an interruption.  If there is no checkpoint, start from the beginning.
        client : distributed.Client, optional
            Run the local step on a Dask cluster, whose workers open the files of `X` themselves.
            The fitted model does not depend on it.

        Returns
        -------
        self

        Notes
        -----
        With ``n_init`` above 1, the model is fitted that many times from different initial
        statistics, and the fit with the best score is kept: on the validation data if given,
        otherwise on the training data.
        """
        run.fit(
            self,
            X,
            lengths,
            Observers(validation, validation_every, callback, track_bound),
            Roles(sequence, time, listed(drop)),
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            resume=resume,
            client=client,
            y=y,
            sample_weight=sample_weight,
        )
        return self

    def partial_fit(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        total_sequences: int | None = None,
        total_steps: int | None = None,
        continues: bool = False,
        sequence: str | None = None,
        time: str | None = None,
        drop: str | Sequence[str] | None = None,
    ) -> Self:
        """Update the model with one minibatch: one update, whatever its size.

        Parameters
        ----------
        X, lengths, y, sample_weight
            As for `fit`.
        total_sequences : int
            Number of sequences in the complete data set.  Required at the first call; later calls
            keep it unless it is given again.
        total_steps : int, optional
            Number of steps in the complete data set.  Required where sequences come in pieces, so
            that these are weighted by steps; kept like `total_sequences`.
        continues : bool
            Whether the first sequence of `X` goes on where the last of the previous call ended.
            Then its first step is not a start, and the transition to it is counted.
        sequence, time, drop
            Columns of data frames, as for `fit`; kept from the first call.

        Returns
        -------
        self
        """
        partial.partial_fit(
            self,
            X,
            lengths,
            total_sequences,
            total_steps,
            Roles(sequence, time, listed(drop)),
            continues=continues,
            y=y,
            sample_weight=sample_weight,
        )
        return self

    def relabel(self, order: ArrayLike) -> Self:
        """Give the states of a fitted model other numbers; names go with their states.

        Parameters
        ----------
        order : (K,) integer array
            The present number of each state, in the new order.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np, sojourn as sj
        >>> model = sj.HMM(2, sj.Poisson(), random_state=0).fit([[9, 8, 9, 1, 2, 1, 8, 9]] * 9)
        >>> model.relabel(np.argsort(model.lambdas_[:, 0])).predict([[9, 1, 2, 9]])[0]
        array([1, 0, 0, 1], dtype=int32)
        """
        relabel(self.fitted_, order)
        return self

    @property
    def fitted_(self) -> FittedModel:
        """The fitted model, with the current parameters."""
        self._check_is_fitted()
        fitted = self._fitted
        fitted.estimator, fitted.compute = record_of(self), compute_of(self)
        return fitted

    @property
    def feature_names_in_(self) -> Any:
        """Names of the columns, where the data were a table."""
        names = self.fitted_.provenance.get("columns")
        if not names:
            raise AttributeError(f"this {type(self).__name__} was not fitted to a table")
        return np.array(names, dtype=object)

    # ---- fitted attributes ----------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """Emission parameters under hmmlearn's names, such as ``emissionprob_``."""
        if isinstance(getattr(type(self), name, None), property | Learned):
            self._check_is_fitted()  # the attribute raised this error, and Python came here with it
        fitted = vars(self).get("_fitted")
        if fitted is None or name not in fitted.family.parameter_names:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return fitted.parameters[name]

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse hmmlearn's way of giving parameters, which would have no effect."""
        if name.endswith("_") and not name.startswith("_"):
            refuse_assignment(self, name)
        super().__setattr__(name, value)

    def __sklearn_is_fitted__(self) -> bool:
        return "_fitted" in vars(self)

    def _check_is_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            from sklearn.utils.validation import check_is_fitted

            check_is_fitted(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # missing values are integrated out
        return tags

    def _repr_html_(self) -> str:
        """Show a fitted model in a notebook by its states, an unfitted one by its parameters."""
        if not self.__sklearn_is_fitted__():
            from sklearn.utils import estimator_html_repr

            return str(estimator_html_repr(self))
        from sojourn.report.notebook import notebook_card

        return str(notebook_card(self.fitted_))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def to_hmmlearn(self) -> Any:
        """Return an hmmlearn model with the posterior means; see `sojourn.from_hmmlearn`."""
        from sojourn.interop import to_hmmlearn

        return to_hmmlearn(self.fitted_)

    def aic(self, X: Any, lengths: ArrayLike | None = None) -> float:
        """Akaike information criterion on data; lower is better.  For finite models only."""
        from sojourn.model_selection import aic

        return aic(self.fitted_, X, lengths)

    def bic(self, X: Any, lengths: ArrayLike | None = None) -> float:
        """Bayesian information criterion on data; lower is better.  For finite models only."""
        from sojourn.model_selection import bic

        return bic(self.fitted_, X, lengths)

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Save the model to one file, atomically; `sojourn.load` reads it.

        Parameters
        ----------
        path : path
            An existing model file is replaced.
        overwrite : bool
            Whether to replace a file of any other kind too.
        """
        check_parameters(self)  # a file with others would be refused
        persist.save(self.fitted_, path, overwrite=overwrite)
