"""Matching of states between models or labels, and how long visits to states last."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.forms import as_sequences
from sojourn.labels import Naming, flat_array, kind_of
from sojourn.prediction import FittedModel, as_fitted
from sojourn.sequences import Sequences


class Matching(NamedTuple):
    """States matched one to one.

    Attributes
    ----------
    states : (K,) integer array
        For each state of the first, the matching state of the second, or -1 for none.
    agreement : float
        Share of the steps on which matched states agree.
    overlaps : (K, L) integer array
        Steps that are in state k of the first and state l of the second.
    """

    states: NDArray[np.int64]
    agreement: float
    overlaps: NDArray[np.int64]


def match_states(a: Any, b: Any, X: Any = None, lengths: ArrayLike | None = None) -> Matching:
    """Match states one to one such that as many steps as possible agree (Hungarian algorithm).

    Parameters
    ----------
    a, b : fitted estimator, FittedModel, or state paths or labels
        A model is decoded on `X`.  Paths and labels are integers from 0, or names, flat or as
        sequences; steps labelled -1 or None are left out.  Names are numbered as the states of a
        model that have them, others after these in alphabetical order; a state with a name matches
        that name and no other.
    X, lengths
        Data as for `fit`; required if `a` or `b` is a model.

    Returns
    -------
    Matching

    Examples
    --------
    >>> import sojourn as sj
    >>> match = sj.match_states([0, 0, 1, 1, 2], [1, 1, 0, 0, 0])
    >>> match.states
    array([ 1,  0, -1])
    >>> match.agreement
    0.8
    """
    a, b = (_fitted_or_path(part) for part in (a, b))
    models = [part for part in (a, b) if isinstance(part, FittedModel)]
    names = list(next((part.state_names for part in models if part.state_names), ()))
    first, second = (_path(part, X, lengths, names) for part in (a, b))
    if len(first) != len(second):
        raise ValueError(f"the paths have {len(first)} and {len(second)} steps")
    known = (first >= 0) & (second >= 0)
    first, second = first[known], second[known]
    if not len(first):
        raise ValueError("no step has a label")
    shape = tuple(
        max(int(path.max()) + 1, len(part.state_shares) if isinstance(part, FittedModel) else 0)
        for path, part in ((first, a), (second, b))
    )
    overlaps = np.bincount(first * shape[1] + second, minlength=shape[0] * shape[1])
    overlaps = overlaps.reshape(shape)
    wanted = overlaps.astype(np.float64)
    if len(models) == 1:  # what has a name keeps to it
        held = min(len(models[0].state_names or ()), *shape)
        wanted[:held] = wanted[:, :held] = 0.0
        wanted[range(held), range(held)] = overlaps.sum() + 1.0
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(-wanted)
    states = np.full(shape[0], -1)
    states[rows] = columns
    return Matching(states, float(overlaps[rows, columns].sum() / len(first)), overlaps)


class Dwell(NamedTuple):
    """How long visits to a state last, in steps.

    Attributes
    ----------
    state : int
    visits : int
        Number of uninterrupted runs of the state.
    mean, median : float
    longest : int
    """

    state: int
    visits: int
    mean: float
    median: float
    longest: int


def dwell_summary(states: Any, lengths: ArrayLike | None = None) -> list[Dwell]:
    """Summarize how long visits to each state last, from paths as `predict` returns them.

    A visit ends with its sequence.  ``model.dwell_times_`` are the times that the model expects.

    Parameters
    ----------
    states, lengths
        Paths, flat with `lengths` or as sequences.

    Returns
    -------
    list of Dwell
        One entry for each state that occurs.

    Examples
    --------
    >>> import sojourn as sj
    >>> for dwell in sj.dwell_summary([[0, 0, 0, 1], [0, 1, 1]]):
    ...     print(*dwell)
    0 2 2.0 2.0 3
    1 2 1.5 1.5 2
    """
    data, _ = as_sequences(states, lengths, step_ndim=0)
    path = _checked(data)
    begins = np.ones(len(path), dtype=bool)
    begins[1:] = path[1:] != path[:-1]
    begins[data.offsets[:-1]] = True
    at = np.flatnonzero(begins)
    runs, of_run = np.diff(np.append(at, len(path))), path[at]
    return [
        Dwell(
            int(state),
            int(own.size),
            float(own.mean()),
            float(np.median(own)),
            int(own.max()),
        )
        for state in np.unique(of_run)
        for own in [runs[of_run == state]]
    ]


def _fitted_or_path(part: Any) -> Any:
    is_model = isinstance(part, FittedModel) or hasattr(type(part), "fitted_")
    return as_fitted(part) if is_model else part


def _path(part: Any, X: Any, lengths: ArrayLike | None, names: list[str]) -> NDArray[np.int64]:
    """Return the states of all steps, sequences concatenated; -1 for an unknown label.

    Names that are not among `names` are added to them.
    """
    if isinstance(part, FittedModel):
        if X is None:
            raise ValueError("a model needs data X to be decoded")
        prepared = part.prepare(X, lengths)
        if prepared.frame is not None:
            return np.asarray(part.predict(X, lengths), np.int64)  # in the order of the rows
        assert prepared.sequences is not None
        return _checked(part.predict(prepared.sequences))
    if isinstance(part, list | tuple) and part and isinstance(part[0], list | tuple | np.ndarray):
        items = flat_array([item for own in part for item in own])
    else:
        items = flat_array(part) if isinstance(part, list | tuple) else np.empty(0)
    if items.dtype.kind not in "UTO":
        data, _ = as_sequences(part, None, step_ndim=0)
        if data.values.dtype.kind not in "UTO":
            return _checked(data, least=-1)
        items = data.values
    names.extend(sorted(kind_of(items)[1] - set(names)))
    return Naming(tuple(names)).encode(items).codes.astype(np.int64) - 1


def _checked(data: Sequences, least: int = 0) -> NDArray[np.int64]:
    path = np.asarray(data.values)
    if path.dtype.kind not in "iu" or (path < least).any():
        raise ValueError("paths and labels must be integers from 0, or -1 where they are unknown")
    return path.astype(np.int64)
