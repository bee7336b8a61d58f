"""Choosing the number of states: held-out scores and information criteria."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from sojourn.families import (
    AutoregressiveGaussian,
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    DiagonalGaussian,
    Exponential,
    Family,
    Gamma,
    Gaussian,
    Geometric,
    LearnedGamma,
    LearnedNegativeBinomial,
    LinearGaussian,
    LogNormal,
    Mixture,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Product,
    SphericalGaussian,
    StudentT,
    TiedGaussian,
    VonMises,
    ZeroInflated,
    ZeroMeanGaussian,
)
from sojourn.families.nested import NestedFamily
from sojourn.families.product import assigned_columns
from sojourn.forms import as_sequences
from sojourn.prediction import as_fitted
from sojourn.sequences import Sequences

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class SequenceKFold(BaseCrossValidator):  # type: ignore[misc]
    """Cross-validation folds of complete sequences, with about the same number of steps in each.

    For `GridSearchCV` and the like, with a list of sequences or `Sequences` as X: each item is a
    sequence, which is never split.  Sequences of the same group (a person, a document) are kept
    together.

    Parameters
    ----------
    n_splits : int
    shuffle : bool
        Whether to order sequences of the same length at random; otherwise as in the data.
    random_state : int, RandomState or None
        For `shuffle`.

    Examples
    --------
    >>> X = [[0, 1, 2, 3], [1, 0], [2, 2], [3]]
    >>> for train, test in SequenceKFold(2).split(X, groups=["a", "b", "b", "c"]):
    ...     print(train, test)
    [1 2] [0 3]
    [0 3] [1 2]
    """

    def __init__(
        self, n_splits: int = 5, *, shuffle: bool = False, random_state: Any = None
    ) -> None:
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits

    def split(
        self, X: Any, y: Any = None, groups: ArrayLike | None = None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield the indices of the training sequences and of the test sequences."""
        lengths = np.array([len(sequence) for sequence in X])
        labels = np.arange(len(lengths)) if groups is None else np.asarray(groups)
        if len(labels) != len(lengths):
            raise ValueError(f"{len(labels)} groups for {len(lengths)} sequences")
        names, members = np.unique(labels, return_inverse=True)
        if not 2 <= self.n_splits <= len(names):
            what = "sequences" if groups is None else "groups"
            one = (
                ""
                if len(names) > 1
                else ': of one series, select_n_states(..., hold_out="entries")'
            )
            also = one and f"{one} holds out single steps, or cut it into several sequences"
            raise ValueError(
                f"n_splits={self.n_splits} is not between 2 and the {len(names)} {what}{also}"
            )
        steps = np.bincount(members, lengths)
        order = np.arange(len(names))
        if self.shuffle:
            order = check_random_state(self.random_state).permutation(len(names))
        fold_of = np.empty(len(names), np.int64)
        filled = np.zeros(self.n_splits)
        for name in order[np.argsort(-steps[order], kind="stable")]:
            fold_of[name] = filled.argmin()
            filled[fold_of[name]] += steps[name]
        for fold in range(self.n_splits):
            is_test = fold_of[members] == fold
            yield np.flatnonzero(~is_test), np.flatnonzero(is_test)


class PerStep(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Apply a scikit-learn transformer to the steps of sequences.

    Parameters
    ----------
    transformer : transformer
        Transformer of (T, D) arrays, for example ``StandardScaler()``.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> import sojourn as sj
    >>> walks = [np.arange(8.0).reshape(4, 2), np.arange(6.0).reshape(3, 2)]
    >>> pipe = make_pipeline(PerStep(StandardScaler()), sj.HMM(2, sj.Gaussian(), random_state=0))
    >>> [len(states) for states in pipe.fit(walks).predict(walks)]
    [4, 3]
    """

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the transformer to all steps of all sequences."""
        data, _ = as_sequences(X, step_ndim=1)
        self.transformer_ = clone(self.transformer).fit(data.values)
        return self

    def transform(self, X: Any) -> list[NDArray[Any]]:
        """Return the transformed sequences as a list of arrays."""
        data, _ = as_sequences(X, step_ndim=1)
        return list(data.with_values(self.transformer_.transform(data.values)))


class Candidate(NamedTuple):
    """Scores for one number of states.

    Attributes
    ----------
    n_states : int
    score, error : float
        Held-out log likelihood per step, mean over folds, and its standard error.
    train_score : float
        The same on the training data.
    states_used : float
        States with more than half a per cent of the steps, mean over folds.
    """

    n_states: int
    score: float
    error: float
    train_score: float
    states_used: float


class Selection(tuple[Candidate, ...]):
    """Candidates in the given order; see `select_n_states`."""

    __slots__ = ()

    @property
    def best(self) -> Candidate:
        """The candidate with the highest held-out score."""
        return max(self, key=lambda candidate: candidate.score)

    @property
    def simplest(self) -> Candidate:
        """The smallest number of states within one standard error of the best score."""
        enough = self.best.score - self.best.error
        good = [candidate for candidate in self if candidate.score >= enough]
        return min(good, key=lambda candidate: candidate.n_states)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot held-out and training scores over the number of states."""
        from sojourn.plot import selection

        return selection(self, ax=ax)


def select_n_states(
    model: Any,
    X: Any,
    lengths: ArrayLike | None = None,
    *,
    n_states: Sequence[int],
    n_splits: int = 3,
    groups: ArrayLike | None = None,
    hold_out: Literal["auto", "sequences", "entries"] = "auto",
    random_state: Any = 0,
) -> Selection:
    """Score several numbers of states on held-out sequences, or on held-out entries of them.

    Parameters
    ----------
    model : HMM or HDPHMM
        Cloned for each number of states; not fitted itself.
    X, lengths
        Data in memory, as for `fit`.
    n_states : sequence of int
        The numbers to try.
    n_splits : int
        Number of folds: of complete sequences, or of entries.
    groups : (N,) array, optional
        Sequences of the same group are held out together.
    hold_out : {"auto", "sequences", "entries"}
        What a fold leaves out.  "entries" masks entries at random places, which the model then
        treats as missing, and scores them given all others, log p(x) − log p(x without them): the
        way for one long series.  "auto" does so if there are fewer sequences than folds.
    random_state : int, RandomState or None
        For the places of masked entries.

    Notes
    -----
    Families in which only whole steps may be missing are masked by steps.  Scores are per held-out
    entry where entries are held out.  `AutoregressiveGaussian` cannot be scored in that way,
    because a missing step leaves those after it without evidence.

    Examples
    --------
    >>> import sojourn as sj
    >>> data = [[0, 1] * 5, [1, 0] * 5, [0, 1] * 4] * 5
    >>> model = sj.HMM(2, sj.Categorical(2), batch_size=5, random_state=0)
    >>> select_n_states(model, data, n_states=[1, 2]).best.n_states
    2
    """
    data, _ = as_sequences(X, lengths, step_ndim=model.emission.step_ndim)
    if hold_out not in ("auto", "sequences", "entries"):
        raise ValueError(f"hold_out={hold_out!r} is not one of ['auto', 'sequences', 'entries']")
    few = hold_out == "auto" and groups is None and len(data) < n_splits
    if few or hold_out == "entries":
        masks = list(entry_folds(model.emission, data, n_splits, random_state))
        return Selection(_masked_candidate(model, data, masks, k) for k in n_states)
    folds = list(SequenceKFold(n_splits).split(data, groups=groups))
    return Selection(_candidate(model, data, folds, k) for k in n_states)


def _candidate(
    model: Any, data: Sequences, folds: list[tuple[Any, Any]], n_states: int
) -> Candidate:
    rows = []
    for train, test in folds:
        fitted = clone(model).set_params(n_states=n_states).fit(data.take(train))
        rows.append(
            (
                fitted.score(data.take(test), per_step=True),
                fitted.score(data.take(train), per_step=True),
                fitted.n_states_,
            )
        )
    return _averaged(n_states, rows)


def _averaged(n_states: int, rows: list[tuple[float, float, int]]) -> Candidate:
    """Return the means over folds of held-out score, training score and states in use."""
    scores, train_scores, used = np.array(rows, dtype=np.float64).T
    error = float(scores.std(ddof=1) / np.sqrt(len(scores)))
    return Candidate(
        int(n_states), float(scores.mean()), error, float(train_scores.mean()), float(used.mean())
    )


# ---- entries held out ---------------------------------------------------------------------------


def entry_folds(
    family: Family, data: Sequences, n_splits: int, random_state: Any = 0
) -> Iterator[NDArray[np.bool_]]:
    """Yield masks, one per fold, in which every entry is held out once.

    Parameters
    ----------
    family : Family
    data : Sequences
    n_splits : int
    random_state : int, RandomState or None

    Examples
    --------
    >>> import sojourn as sj
    >>> data = Sequences.from_lengths([[0.5], [1.5], [2.5], [3.5]])
    >>> sum(mask.astype(int) for mask in entry_folds(sj.DiagonalGaussian(), data, 2)).tolist()
    [[1], [1], [1], [1]]
    """
    if not 2 <= n_splits <= data.n_steps:
        raise ValueError(f"n_splits={n_splits} is not between 2 and the {data.n_steps} steps")
    rng = check_random_state(random_state)
    fold = np.empty(data.values.shape, np.int64)
    flat = fold.reshape(data.n_steps, -1)
    for columns, together in _units(family, flat.shape[1]):
        for group in [columns] if together else [[column] for column in columns]:
            # Folds of equal size, at random places.
            flat[:, group] = (rng.permutation(data.n_steps) % n_splits)[:, None]
    for column in range(flat.shape[1]):
        if column in _covariates(family, flat.shape[1]):
            flat[:, column] = -1
    yield from (fold == n for n in range(n_splits))


def _units(family: Family, n_columns: int) -> list[tuple[list[int], bool]]:
    """Return groups of columns, and whether those of a group can be missing only together."""
    every = list(range(n_columns))
    if isinstance(family, AutoregressiveGaussian):
        raise ValueError(
            "entries of AutoregressiveGaussian cannot be held out, because steps after a missing "
            "one give no evidence: cut the series into several sequences"
        )
    if isinstance(family, Product):
        found, at = [], 0
        for part, n in zip(family.parts, assigned_columns(family, n_columns), strict=True):
            found += [([at + c for c in own], both) for own, both in _units(part, n)]
            at += n
        return found
    if isinstance(family, NestedFamily):
        return _units(family.family, n_columns)
    whole = isinstance(
        family, Gaussian | StudentT | ZeroMeanGaussian | LinearGaussian | Multinomial
    )
    return [(every, whole)]


def _covariates(family: Family, n_columns: int) -> set[int]:
    """Return the columns that are not modelled."""
    if isinstance(family, LinearGaussian):
        return set(range(family.n_targets, n_columns))
    if not isinstance(family, Product):
        return set()
    found, at = set(), 0
    for part, n in zip(family.parts, assigned_columns(family, n_columns), strict=True):
        found |= {at + column for column in _covariates(part, n)}
        at += n
    return found


def _masked_candidate(
    model: Any, data: Sequences, masks: list[NDArray[np.bool_]], n_states: int
) -> Candidate:
    rows = []
    for mask in masks:
        family, values = model.emission, data.values
        if isinstance(family, Categorical):
            # Words become numbers first, so that the alphabet does not depend on the mask.
            family = family.resolve(data, n_states)
            values = np.where(mask, -1, family.validate(data).values)
        else:
            values = np.where(mask, np.nan, np.asarray(values, np.float64))
        own = clone(model).set_params(n_states=n_states, emission=family)
        fitted = own.fit(data.with_values(values))
        rest = fitted.score(data.with_values(values))
        held_out = fitted.score(data) - rest
        rows.append((held_out / int(mask.sum()), rest / data.n_steps, fitted.n_states_))
    return _averaged(n_states, rows)


# ---- criteria -----------------------------------------------------------------------------------


def n_parameters(model: Any) -> int:
    """Count the free parameters of a finite model: start, transitions, emissions.

    What is given, by constraints or as a fixed part, is not counted.

    Parameters
    ----------
    model : HMM that was fitted, or its FittedModel

    Examples
    --------
    >>> import sojourn as sj
    >>> n_parameters(sj.HMM(2, sj.Categorical(3), random_state=0).fit([[0, 1, 2]] * 3))
    7
    """
    fitted = as_fitted(model)
    if fitted.hdp is not None:
        raise ValueError(
            f"{fitted.estimator.name} has no fixed number of parameters: compare held-out scores, "
            "with select_n_states or GridSearchCV"
        )
    k = len(fitted.startprob)
    constraints, held = fitted.posterior.transitions.constraints, fitted.posterior.emissions.held
    learned = k - (0 if held is None else len(held.states))
    chain = k - 1 + k * (k - 1)
    if constraints is not None:  # what is learned of a row sums to what is left
        n_free = np.append(constraints.free.start.sum(), constraints.free.transitions.sum(axis=1))
        chain = int(np.maximum(n_free - 1, 0).sum())
    durations = fitted.posterior.durations
    if durations is not None:
        chain += k * durations.n_parameters
    shared = _shared_parameters(fitted.family) if learned else 0
    return chain + learned * _emission_parameters(fitted.family) + shared


def _shared_parameters(family: Family) -> int:
    """Count the free emission parameters that all states share."""
    if isinstance(family, Product):
        return sum(map(_shared_parameters, family.parts))
    return family.features * (family.features + 1) // 2 if isinstance(family, TiedGaussian) else 0


def _emission_parameters(family: Family) -> int:
    """Count the free parameters of one state alone."""
    if isinstance(family, Product):
        return sum(map(_emission_parameters, family.parts))
    if isinstance(family, Categorical | Multinomial):
        return family.n_statistics - 1
    if isinstance(family, Mixture):
        n_components = family.n_components
        return n_components * _emission_parameters(family.family) + n_components - 1
    if isinstance(family, ZeroInflated):
        return family.features + _emission_parameters(family.family)
    if isinstance(family, StudentT):
        return _emission_parameters(family.gaussian) + (family.df is None)
    if isinstance(family, Binomial):
        return family.n_successes
    assert hasattr(family, "features")
    n: int = family.features
    if isinstance(family, TiedGaussian):
        return n
    if isinstance(family, Bernoulli | Poisson | NegativeBinomial | Geometric | Exponential | Gamma):
        return n
    two = DiagonalGaussian | LogNormal | Beta | VonMises | LearnedGamma | LearnedNegativeBinomial
    if isinstance(family, two):
        return 2 * n
    if isinstance(family, SphericalGaussian):
        return n + 1
    if isinstance(family, ZeroMeanGaussian):
        return n * (n + 1) // 2
    if isinstance(family, Gaussian):
        return n + n * (n + 1) // 2
    if isinstance(family, AutoregressiveGaussian):
        return n * (1 + family.order * n) + n * (n + 1) // 2
    if isinstance(family, LinearGaussian):
        m = family.n_targets
        return m * (1 + n - m) + m * (m + 1) // 2
    raise TypeError(f"the parameters of {type(family).__name__} are not known")


def aic(model: Any, X: Any, lengths: ArrayLike | None = None) -> float:
    """Akaike information criterion, −2 log likelihood + 2 parameters; lower is better.

    It is defined at the maximum likelihood; here the posterior means are used instead.
    """
    fitted = as_fitted(model)
    return -2.0 * fitted.score(X, lengths) + 2.0 * n_parameters(fitted)


def bic(model: Any, X: Any, lengths: ArrayLike | None = None) -> float:
    """Bayesian information criterion, −2 log likelihood + parameters × log steps; lower is better.

    It is defined at the maximum likelihood; here the posterior means are used instead.
    """
    fitted = as_fitted(model)
    n_steps = fitted.prepare(X, lengths).n_steps
    return -2.0 * fitted.score(X, lengths) + n_parameters(fitted) * float(np.log(n_steps))
