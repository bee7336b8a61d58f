"""How long states last, as users say it, and as they are told: `duration` and `durations_`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sojourn.kernels.interface import Floats, Integers


@dataclass(frozen=True)
class GeometricDuration:
    """Visits of geometric length, as in every plain hidden Markov model; the default.

    Examples
    --------
    >>> import sojourn as sj
    >>> model = sj.HMM(2, sj.Categorical(3), duration=sj.GeometricDuration())
    """


@dataclass(frozen=True)
class NegativeBinomialDuration:
    """Visits that last a negative binomial number of steps, with a shape for every state.

    A visit to state k is r_k geometric stretches in a row: at least r_k steps, and the larger r_k,
    the less visits vary around their mean.  A shape of 1 is geometric.

    Parameters
    ----------
    max_shape : int
        Largest shape; those of all states are learned on 1, ..., max_shape.
    shape : int, optional
        One shape for all states, which is not learned then.
    stay_prior : (float, float), optional
        Parameters of the Beta prior on the probability of staying in a stretch.  By default the
        prior counts of staying and of leaving in `HMM`, with which a shape of 1 is exactly the
        plain model; Beta(1 + stickiness, 1) in `HDPHMM`.

    Examples
    --------
    >>> import sojourn as sj
    >>> X = ([0] * 5 + [1] * 7 + [0] * 6 + [1] * 8) * 30
    >>> model = sj.HMM(2, sj.Categorical(2), duration=sj.NegativeBinomialDuration(8),
    ...                random_state=0).fit(X)
    >>> sorted(round(float(own.mean), 1) for own in model.durations_)
    [5.5, 7.5]
    """

    max_shape: int = 8
    shape: int | None = None
    stay_prior: tuple[float, float] | None = None


@dataclass(frozen=True)
class CategoricalDuration:
    """Visits of any length up to a largest one, each with a probability of its own.

    Parameters
    ----------
    max_length : int
        Largest number of steps that a visit lasts.
    concentration : float
        Prior count of every length.

    Examples
    --------
    >>> import sojourn as sj
    >>> X = ([0] * 3 + [1] * 2 + [0] * 3 + [1] * 4) * 50
    >>> model = sj.HMM(2, sj.Categorical(2), duration=sj.CategoricalDuration(6),
    ...                random_state=0).fit(X)
    >>> max(float(own.probabilities[2].round(2)) for own in model.durations_)
    1.0
    """

    max_length: int
    concentration: float = 0.01


Duration = GeometricDuration | NegativeBinomialDuration | CategoricalDuration
"""What `duration` may be, beside None."""

LARGEST = 4096
"""Most copies that a state may be written as."""


def check_duration(value: Any) -> None:
    """Refuse what is not a duration, and durations with bad parameters."""
    if value is None or isinstance(value, GeometricDuration):
        return
    if isinstance(value, NegativeBinomialDuration):
        _check_whole("max_shape", value.max_shape, LARGEST)
        if value.shape is not None:
            _check_whole("shape", value.shape, value.max_shape)
        if value.stay_prior is not None:
            pair = value.stay_prior
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise ValueError(f"duration: stay_prior must be two numbers, got {pair!r}")
            for number in pair:
                _check_positive("stay_prior", number)
        return
    if isinstance(value, CategoricalDuration):
        _check_whole("max_length", value.max_length, LARGEST)
        _check_positive("concentration", value.concentration)
        return
    raise ValueError(
        f"duration={value!r} is neither None nor GeometricDuration(), "
        "NegativeBinomialDuration(...) or CategoricalDuration(...)"
    )


def _check_whole(name: str, value: Any, most: int) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__") or not 1 <= value <= most:
        raise ValueError(f"duration: {name} must be a whole number from 1 to {most}, got {value!r}")


def _check_positive(name: str, value: Any) -> None:
    is_number = isinstance(value, int | float) or hasattr(value, "__float__")
    if isinstance(value, bool | str) or not is_number or not 0.0 < float(value) < float("inf"):
        raise ValueError(f"duration: {name} must be positive and finite, got {value!r}")


_TAIL = 1e-3  # probability of longer visits than those whose probabilities are listed
_DEVIATIONS = 9.0  # standard deviations above the mean that less than this lies beyond
_LONGEST = 1e5  # steps of visits whose probabilities are listed, at most


class StateDuration(NamedTuple):
    """How long visits to one state last.

    Parameters
    ----------
    kind : {"geometric", "negative binomial", "categorical"}
    mean : float
        Of the number of steps of a visit.
    variance : float
        Of that number.
    probabilities : (D,) array
        Of 1, ..., D steps; longer visits have a probability below 0.001, or more than 100,000
        steps.
    shape : int or None
        Number r of stretches in a visit; 1 if it is geometric, None if it is categorical.
    stay : float or None
        Probability of one more step in a stretch; None if it is categorical.
    """

    kind: str
    mean: float
    variance: float
    probabilities: Floats
    shape: int | None = None
    stay: float | None = None

    @classmethod
    def of_stretches(cls, kind: str, shape: int, stay: float) -> StateDuration:
        """Return the duration of so many geometric stretches in a row, eq (60).

        Examples
        --------
        >>> own = StateDuration.of_stretches("negative binomial", 2, 0.5)
        >>> own.mean, own.variance, own.probabilities[:3]
        (4.0, 4.0, array([0.  , 0.25, 0.25]))
        """
        from scipy.stats import nbinom

        leave = max(1.0 - stay, 1e-100)
        mean, variance = shape / leave, shape * stay / leave**2
        longest = min(mean + _DEVIATIONS * np.sqrt(variance), _LONGEST)
        chances = nbinom.pmf(np.arange(1, int(longest) + 1) - shape, shape, leave)
        n_listed = 1 + int(np.searchsorted(np.cumsum(chances), 1.0 - _TAIL))
        return cls(kind, mean, variance, chances[:n_listed], shape, stay)

    def probability_of(self, lengths: Integers) -> Floats:
        """Return the probability that a visit lasts so many steps, of any number of steps."""
        if self.shape is not None and self.stay is not None:
            from scipy.stats import nbinom

            chances: Floats = nbinom.pmf(lengths - self.shape, self.shape, 1.0 - self.stay)
            return chances
        padded = np.append(self.probabilities, 0.0)
        return padded[np.minimum(lengths, len(padded)) - 1]
