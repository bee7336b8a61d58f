"""What each state stands for, in words and numbers that a person reads."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sojourn.families import Categorical, Family, Multinomial, Product, TiedGaussian
from sojourn.kernels.interface import Floats
from sojourn.prediction import as_fitted
from sojourn.report.text import measured, readable

_MOST_COLUMNS = 6  # that a line of text names


class StateSummary(NamedTuple):
    """Description of a state.

    Attributes
    ----------
    state : int
    share : float
        Of the steps.
    dwell : float
        Mean number of steps that the chain stays, 1 / (1 − θ_kk).
    text : str
        Symbols that tell the state apart, or parameters.
    following : int
        Likeliest next state other than itself; itself where there is no other.
    """

    state: int
    share: float
    dwell: float
    text: str
    following: int

    @property
    def stay(self) -> str:
        """How long the chain stays, for people; "∞" where it never leaves."""
        return f"{self.dwell:.1f}" if self.dwell < 1e5 else "∞"


def summarize(model: Any, n_states: int | None = None, n_symbols: int = 8) -> list[StateSummary]:
    """Describe the states of a fitted model, the largest first.

    Parameters
    ----------
    model : HMM or HDPHMM that was fitted, or FittedModel
    n_states : int, optional
        Maximum number of states.
    n_symbols : int
        Number of symbols to show for each state.

    Examples
    --------
    >>> import sojourn as sj
    >>> data = [["a", "b", "a", "b"], ["b", "a", "b", "a"]] * 10
    >>> model = sj.HMM(2, sj.Categorical(), batch_size=5, random_state=0).fit(data)
    >>> sorted(state.text.split()[0] for state in summarize(model))
    ['a', 'b']
    """
    fitted = as_fitted(model)
    shares, transitions = fitted.state_shares, fitted.transmat
    stay = np.diagonal(transitions)
    texts = describe_states(fitted, n_symbols)
    away = transitions - np.diag(np.full(len(stay), 2.0))
    following = away.argmax(axis=1)
    return [
        StateSummary(
            int(k),
            float(shares[k]),
            float(1.0 / max(1.0 - stay[k], 1e-12)),
            texts[k],
            int(following[k]),
        )
        for k in np.argsort(-shares, kind="stable")[:n_states]
    ]


def describe_states(model: Any, n_symbols: int = 8) -> list[str]:
    """Return one line per state: the symbols that tell it apart, or its parameters."""
    fitted = as_fitted(model)
    names = column_names(fitted)
    family = fitted.family
    natural = family.prior() + fitted.posterior.emissions.dense()
    return _describe(family, natural, fitted.state_shares, names, n_symbols)


class Symbol(NamedTuple):
    """A symbol of a state.

    Attributes
    ----------
    word : str
    probability : float
        In the state.
    overall : float
        In all states.
    is_known : bool
        False for the word that stands for all that are not in the vocabulary.
    """

    word: str
    probability: float
    overall: float
    is_known: bool = True


def top_symbols(model: Any, n_symbols: int = 8) -> list[list[Symbol]]:
    """Return the symbols that tell each state from the others; none for numbers."""
    fitted = as_fitted(model)
    if not isinstance(fitted.family, Categorical):
        return [[] for _ in range(len(fitted.state_shares))]
    probabilities: Floats = fitted.parameters["emissionprob_"]
    return _telling(fitted.family, probabilities, fitted.state_shares, n_symbols)


def _telling(
    family: Categorical, probabilities: Floats, shares: Floats, n_symbols: int
) -> list[list[Symbol]]:
    """Order the symbols of each state by what they say about it.

    First those that are likelier in the state than elsewhere, by their part p log(p / p̄) of the
    divergence of the state from the mixture p̄ of all states; then the likeliest of the others.  The
    unknown word tells nothing apart, and is the last where it is likelier than the first.
    """
    words = symbol_names(family)
    unknown = _unknown(family)
    overall = shares @ probabilities
    found = []
    for row in probabilities:
        with np.errstate(divide="ignore", invalid="ignore"):
            telling = np.where(row > 0.0, row * np.log(row / overall), 0.0)
        # Whatever tells something comes before all that is merely likely.
        order = np.lexsort((-row, -np.maximum(np.nan_to_num(telling), 0.0)))[: n_symbols + 1]
        first = [int(w) for w in order if w != unknown][:n_symbols]
        if unknown is not None and (not first or row[unknown] > row[first[0]]):
            first = [*first[: n_symbols - 1], unknown]
        found.append(
            [Symbol(words[w], float(row[w]), float(overall[w]), w != unknown) for w in first]
        )
    return found


def _unknown(family: Categorical) -> int | None:
    vocabulary = family.vocabulary
    if vocabulary is None or vocabulary.unknown is None:
        return None
    return vocabulary.words.index(vocabulary.unknown)


def symbol_names(family: Categorical) -> list[str]:
    """Return the words of a family, or its symbols as they are written."""
    if family.vocabulary is not None:
        return list(family.vocabulary.words)
    return [str(symbol) for symbol in range(family.n_statistics)]


def column_names(model: Any) -> list[str]:
    """Return the names of the columns: those of the data file where they are known.

    A single column without a name needs none.
    """
    fitted = as_fitted(model)
    known = fitted.provenance.get("columns")
    n = getattr(fitted.family, "n_features", None)
    if isinstance(fitted.family, Product):
        assert fitted.family.columns is not None
        n = sum(fitted.family.columns)
    if n is not None and known and len(known) == n:
        return list(known)
    return [] if n in (None, 1) else [f"x{d}" for d in range(n)]


def _describe(
    family: Family, natural: Floats, shares: Floats, names: list[str], n_symbols: int
) -> list[str]:
    if isinstance(family, Product):
        return _describe_product(family, natural, shares, names, n_symbols)
    parameters = family.parameters(natural)
    if isinstance(family, TiedGaussian):
        shape = (len(natural), *parameters["covars_"].shape)
        parameters["covars_"] = np.broadcast_to(parameters["covars_"], shape)
    if isinstance(family, Categorical):
        states = _telling(family, parameters["emissionprob_"], shares, n_symbols)
        return [" ".join(symbol.word for symbol in symbols) for symbols in states]
    if isinstance(family, Multinomial):
        order = np.argsort(-parameters["emissionprob_"], axis=1, kind="stable")[:, :n_symbols]
        return [" ".join(names[w] for w in row) for row in order]
    if "means_" in parameters:
        means = parameters["means_"]
        spread = np.sqrt(_variances(parameters["covars_"], means.shape))
        texts = [
            [measured(m, s) for m, s in zip(mean, sd, strict=True)]
            for mean, sd in zip(means, spread, strict=True)
        ]
        return _named(names, texts, means)
    if "covars_" in parameters:
        spread = np.sqrt(np.diagonal(parameters["covars_"], axis1=1, axis2=2))
        sign = "noise" if "intercepts_" in parameters else "±"
        texts = [[f"{sign} {text}" for text in row] for row in _readable(spread)]
        return _named(names[: spread.shape[1]], texts, spread)
    values = next(iter(parameters.values()))
    values = np.asarray(values, np.float64).reshape(len(natural), -1)
    if "emissionprob_" in parameters:  # probabilities: a tiny one is as good as zero
        texts = [[readable(value) for value in row] for row in values.tolist()]
    else:
        texts = _readable(values)
    return _named(names if len(names) == values.shape[1] else [], texts, values)


def _describe_product(
    family: Product, natural: Floats, shares: Floats, names: list[str], n_symbols: int
) -> list[str]:
    assert family.columns is not None
    texts: list[list[str]] = []
    at = column = 0
    for part, n in zip(family.parts, family.columns, strict=True):
        own = natural[:, at : at + part.n_statistics]
        told = _describe(part, own, shares, names[column : column + n], n_symbols)
        if isinstance(part, Categorical):
            told = [f"{names[column]} {text}" for text in told]
        texts.append(told)
        at, column = at + part.n_statistics, column + n
    return ["; ".join(parts) for parts in zip(*texts, strict=True)]


def _variances(covars: Floats, shape: tuple[int, ...]) -> Floats:
    """Return variances of every column for full, diagonal or spherical covariances."""
    if covars.ndim == 3:
        return np.diagonal(covars, axis1=1, axis2=2)
    return np.broadcast_to(covars[:, None] if covars.ndim == 1 else covars, shape)


def _readable(values: Floats) -> list[list[str]]:
    """Write numbers (K, D) on the scale of their columns."""
    scales = np.minimum(np.abs(values).max(axis=0), 1.0)
    return [[readable(v, s) for v, s in zip(row, scales, strict=True)] for row in values.tolist()]


def _named(names: list[str], texts: list[list[str]], values: Floats) -> list[str]:
    """Join the columns of each state; of many only those in which it differs most."""
    if not names:
        return [", ".join(row) for row in texts]
    away = np.abs(values - np.median(values, axis=0))
    away = away / np.maximum(away.mean(axis=0), 1e-300)
    found = []
    for row, far in zip(texts, away, strict=True):
        shown = list(range(len(names)))
        if len(names) > _MOST_COLUMNS:
            shown = np.argsort(-far, kind="stable")[: _MOST_COLUMNS - 2].tolist()
        text = ", ".join(f"{names[d]} {row[d]}" for d in shown)
        left = len(names) - len(shown)
        found.append(f"{text}, and {left} more columns" if left else text)
    return found
