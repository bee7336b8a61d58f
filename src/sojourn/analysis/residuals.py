"""Pseudo-residuals: where each step falls in the distribution that was predicted for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from sojourn.analysis.evidence import Evidence
from sojourn.analysis.filtering import filter_sequences
from sojourn.families.cdf import n_columns, predictive_cdf
from sojourn.kernels.interface import Floats, Integers
from sojourn.sequences import Sequences

_BLOCK_NUMBERS = 2**20  # values of distribution functions that are in memory at once
_EDGE = 1e-15  # residuals are kept this far from 0 and 1, so that their normal scores are finite


class Check(NamedTuple):
    """How well the residuals of a column agree with the model.

    Attributes
    ----------
    distance : float
        Largest distance between their distribution and the uniform one (Kolmogorov–Smirnov).
    p_value : float
        Probability of a distance as large as that if the model is right.
    extremes : float
        Share of the steps with a normal score beyond ±2.58, of which 1% are expected.
    largest_autocorrelation : float
        Of the normal scores, over the first ten lags; the one that is largest in size.
    n_steps : int
        Number of steps that were observed.
    """

    distance: float
    p_value: float
    extremes: float
    largest_autocorrelation: float
    n_steps: int


@dataclass(frozen=True, eq=False)
class Residuals:
    """One-step pseudo-residuals u_t = P(X ≤ x_t | x_1, ..., x_{t−1}) of every column.

    Where the model is right they are independent and uniform.  For counts and symbols they are
    drawn uniformly between P(X < x_t) and P(X ≤ x_t).

    Attributes
    ----------
    uniform : (T, D) array
        u, NaN for missing entries.
    offsets : (N + 1,) array
        Where each sequence begins.

    Examples
    --------
    >>> import sojourn as sj
    >>> x = np.random.default_rng(0).normal(size=(500, 1))
    >>> found = sj.HMM(1, sj.DiagonalGaussian(), random_state=0).fit(x).residuals(x)
    >>> found.uniform.shape, found.check().p_value > 0.01
    ((500, 1), True)
    """

    uniform: Floats
    offsets: Integers

    @property
    def normal(self) -> Floats:
        """Normal scores Φ⁻¹(u), shape (T, D): standard normal where the model is right."""
        scores: Floats = ndtri(np.clip(self.uniform, _EDGE, 1.0 - 1e-15))
        return scores

    def autocorrelation(self, n_lags: int = 20) -> Floats:
        """Return the autocorrelation of the normal scores at lags 1, ..., n, shape (n, D).

        Only pairs of steps within a sequence count.
        """
        scores = self.normal
        scores = scores - np.nanmean(scores, axis=0)
        variance = np.nanmean(scores**2, axis=0)
        place = np.arange(len(scores)) - np.repeat(self.offsets[:-1], np.diff(self.offsets))
        out = np.full((n_lags, scores.shape[1]), np.nan)
        for lag in range(1, n_lags + 1):
            later = np.flatnonzero(place >= lag)
            products = scores[later] * scores[later - lag]
            known = ~np.isnan(products)
            counts = known.sum(axis=0)
            sums = np.where(known, products, 0.0).sum(axis=0)
            enough = (counts > 1) & (variance > 0)
            scale = np.maximum(counts, 1) * np.where(variance > 0, variance, 1.0)
            out[lag - 1] = np.where(enough, sums / scale, np.nan)
        return out

    def check(self, column: int = 0) -> Check:
        """Compare the residuals of a column with what the model expects."""
        own = self.uniform[:, column]
        known = own[~np.isnan(own)]
        if len(known) == 0:
            raise ValueError(f"column {column} has no observations")
        from scipy.stats import kstest

        found = kstest(known, "uniform")
        extremes = float((np.abs(ndtri(np.clip(known, _EDGE, 1.0 - 1e-15))) > 2.576).mean())
        lags = self.autocorrelation(10)[:, column]
        lags = lags[~np.isnan(lags)]
        largest = float(lags[np.abs(lags).argmax()]) if len(lags) else 0.0
        return Check(float(found.statistic), float(found.pvalue), extremes, largest, len(known))

    def describe(self, column: int = 0) -> str:
        """Say in a sentence or two what the residuals of a column show."""
        found = self.check(column)
        if found.p_value >= 0.01:
            shape = "The residuals are as uniform as the model expects"
        elif found.extremes > 0.015:
            shape = (
                "The data have heavier tails than the model: "
                f"{found.extremes:.1%} of the steps are where 1% are expected"
            )
        else:
            shape = "The distribution of the data differs from that of the model"
        p_value = f"p = {found.p_value:.2g}" if found.p_value >= 1e-3 else "p < 0.001"
        text = f"{shape} (distance {found.distance:.3f}, {p_value})."
        if abs(found.largest_autocorrelation) > 3.3 / np.sqrt(found.n_steps):
            reached = f"{found.largest_autocorrelation:.2f}".replace("-", "−")
            text += (
                " Successive steps depend on one another more than the states explain: the "
                f"autocorrelation reaches {reached}."
            )
        else:
            text += " The states explain how successive steps depend on one another."
        return text


def normal_scores(n: int) -> Floats:
    """Return what n sorted values of a standard normal distribution are expected to be.

    Examples
    --------
    >>> normal_scores(3).round(2)
    array([-0.97,  0.  ,  0.97])
    """
    scores: Floats = ndtri((np.arange(n) + 0.5) / n)
    return scores


def residuals_of(evidence: Evidence, data: Sequences, rng: np.random.Generator) -> Residuals:
    """Compute the residuals of validated sequences.

    Parameters
    ----------
    evidence : Evidence
    data : Sequences
    rng : Generator
        For columns of whole numbers and symbols.
    """
    filtered = filter_sequences(evidence, data).probabilities
    family, natural = evidence.family, evidence.natural
    out = np.empty((data.n_steps, n_columns(family)))
    size = max(1, _BLOCK_NUMBERS // (evidence.n_inner * out.shape[1]))
    at = 0
    for chunk in data.chunks(max(size, 1)):
        x = family.observations(chunk)
        for begin in range(0, chunk.n_steps, size):
            end = min(begin + size, chunk.n_steps)
            steps = np.arange(at + begin, at + end)
            predicted: Floats = np.empty((len(steps), evidence.n_inner))
            first = np.isin(steps, data.offsets[:-1])
            predicted[first] = evidence.start
            predicted[~first] = filtered[steps[~first] - 1] @ evidence.transitions
            predicted = evidence.folded(predicted)
            below, upto = predictive_cdf(family, _slice(x, begin, end), natural)
            low = np.einsum("tk,tkd->td", predicted, below)
            high = np.einsum("tk,tkd->td", predicted, upto)
            out[steps] = low + rng.random(low.shape) * (high - low)
        at += chunk.n_steps
    return Residuals(np.clip(out, 0.0, 1.0), data.offsets)


def _slice(x: Any, begin: int, end: int) -> Any:
    return [own[begin:end] for own in x] if isinstance(x, list) else x[begin:end]
