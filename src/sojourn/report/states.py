"""What each state stands for, in words and numbers that a person reads."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from sojourn.families import Categorical, Family, Multinomial, Product
from sojourn.kernels.interface import Floats
from sojourn.prediction import as_fitted


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
        Likeliest symbols, or parameters.
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
    """Return one line per state: its most probable symbols, or its parameters."""
    fitted = as_fitted(model)
    names = column_names(fitted)
    family = fitted.family
    natural = family.prior() + fitted.posterior.emissions.dense()
    return _describe(family, natural, names, n_symbols)


def top_symbols(model: Any, n_symbols: int = 8) -> list[list[tuple[str, float]]]:
    """Return the most probable symbols of each state with probabilities; none for numbers."""
    fitted = as_fitted(model)
    if not isinstance(fitted.family, Categorical):
        return [[] for _ in range(len(fitted.state_shares))]
    probabilities: Floats = fitted.parameters["emissionprob_"]
    words = symbol_names(fitted.family)
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :n_symbols]
    return [
        [(words[w], float(row[w])) for w in top]
        for row, top in zip(probabilities, order, strict=True)
    ]


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


def _describe(family: Family, natural: Floats, names: list[str], n_symbols: int) -> list[str]:
    if isinstance(family, Product):
        return _describe_product(family, natural, names, n_symbols)
    parameters = family.parameters(natural)
    if isinstance(family, Categorical | Multinomial):
        words = symbol_names(family) if isinstance(family, Categorical) else names
        order = np.argsort(-parameters["emissionprob_"], axis=1, kind="stable")[:, :n_symbols]
        return [" ".join(words[w] for w in row) for row in order]
    if "means_" in parameters:
        spread = np.sqrt(_variances(parameters["covars_"], parameters["means_"].shape))
        pairs = zip(parameters["means_"], spread, strict=True)
        return [
            _named(names, [_measured(m, s) for m, s in zip(mean, sd, strict=True)])
            for mean, sd in pairs
        ]
    if "intercepts_" in parameters:
        spread = np.sqrt(np.diagonal(parameters["covars_"], axis1=1, axis2=2))
        targets = names[: spread.shape[1]]
        return [_named(targets, [f"noise {s:.2g}" for s in row]) for row in spread]
    if "covars_" in parameters:
        spread = np.sqrt(np.diagonal(parameters["covars_"], axis1=1, axis2=2))
        return [_named(names, [f"± {s:.3g}" for s in row]) for row in spread]
    (values,) = parameters.values()
    return [_named(names, [f"{value:.3g}" for value in row]) for row in values]


def _describe_product(
    family: Product, natural: Floats, names: list[str], n_symbols: int
) -> list[str]:
    assert family.columns is not None
    texts: list[list[str]] = []
    at = column = 0
    for part, n in zip(family.parts, family.columns, strict=True):
        own = natural[:, at : at + part.n_statistics]
        texts.append(_describe(part, own, names[column : column + n], n_symbols))
        at, column = at + part.n_statistics, column + n
    return ["; ".join(parts) for parts in zip(*texts, strict=True)]


def _variances(covars: Floats, shape: tuple[int, ...]) -> Floats:
    """Return variances of every column for full, diagonal or spherical covariances."""
    if covars.ndim == 3:
        return np.diagonal(covars, axis1=1, axis2=2)
    return np.broadcast_to(covars[:, None] if covars.ndim == 1 else covars, shape)


def _measured(mean: float, spread: float) -> str:
    """Write a mean to the place that its spread makes sense of.

    Examples
    --------
    >>> _measured(0.00016, 0.79), _measured(1234.567, 21.0), _measured(2.0, 0.0)
    ('0.00 ± 0.79', '1235 ± 21', '2 ± 0')
    """
    if not 1e-9 < spread < 1e9:
        return f"{mean:.4g} ± {spread:.2g}"
    places = max(0, 1 - math.floor(math.log10(spread)))
    return f"{mean:.{places}f} ± {spread:.{places}f}".replace("-", "−")


def _named(names: list[str], values: list[str]) -> str:
    if not names:
        return values[0]
    return ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))
