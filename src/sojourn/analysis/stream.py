"""Streams: a model that follows sequences step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.analysis.evidence import Evidence, Past
from sojourn.analysis.forecast import Belief, Forecast, forecast_from
from sojourn.families import Categorical, Family
from sojourn.families.blocks import CompiledPotentials
from sojourn.families.cdf import is_discrete
from sojourn.families.dense import DenseFamily
from sojourn.kernels.cpu.filtering import filter_steps, student_row, update_streams
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences

_CACHED = 2**16  # distinct observations whose potentials are kept
_TABLE_NUMBERS = 2**24  # potentials of an alphabet that are computed once


class Stream:
    """Follows one sequence, or many side by side, in constant memory and O(K²) a step.

    Made by `FittedModel.stream`.

    Parameters
    ----------
    evidence : Evidence
    n_streams : int or None
        Number of sequences side by side; None for one, whose results have no axis for it.
    seed : int
        Of the draws of forecasts.

    Examples
    --------
    >>> import sojourn as sj
    >>> model = sj.HMM(2, sj.Categorical(2), random_state=0).fit([[0] * 9 + [1] * 9] * 9)
    >>> stream = model.stream()
    >>> for symbol in [0, 0, 1]:
    ...     _ = stream.update(symbol)
    >>> stream.n_steps, stream.probabilities.shape
    (3, (2,))
    >>> stream.surprise > 1.0
    True
    """

    def __init__(self, evidence: Evidence, n_streams: int | None = None, seed: int = 0) -> None:
        if n_streams is not None and (
            isinstance(n_streams, bool)
            or not isinstance(n_streams, int | np.integer)
            or n_streams < 1
        ):
            raise ValueError(f"n_streams must be a whole number of at least 1, got {n_streams!r}")
        n = 1 if n_streams is None else int(n_streams)
        self._evidence, self._seed = evidence, seed
        self._many = n_streams is not None
        self._past = Past(evidence.family, n)
        self._filtered = np.tile(evidence.start, (n, 1))
        self._predicted = self._filtered.copy()
        self._fresh = np.ones(n, np.bool_)
        self._surprise = np.zeros(n)
        self._log_scale = np.zeros(n)
        self._cache: dict[Any, tuple[Floats, float]] = {}
        self._keeps = all(is_discrete(evidence.family))
        self._table = self._alphabet()
        self._compiled = None if self._many else _CompiledStep.make(evidence)
        self.n_steps = 0

    def update(self, x: Any) -> Floats:
        """Take in the next observation, and return the state probabilities.

        Parameters
        ----------
        x : one step, or (n_streams, ...) array
            Symbols and words are allowed, and missing values (NaN; −1 for symbols).

        Returns
        -------
        (K,) or (n_streams, K) array
            p(z_t | x_1, ..., x_t).
        """
        weights = self._weights(x)
        evidence = self._evidence
        update_streams(
            self._predicted,
            self._fresh,
            evidence.start,
            evidence.transitions,
            weights,
            self._log_scale,
            self._filtered,
            self._surprise,
        )
        self.n_steps += 1
        return self.probabilities

    def extend(self, X: Any) -> Floats:
        """Take in many steps of one stream, and return the surprise of each, shape (T,)."""
        if self._many:
            raise ValueError("extend is for one stream: use update for many")
        family = self._evidence.family
        data = family.validate(family.as_steps(Sequences.from_lengths(np.asarray(X))))
        values = data.values[None]
        window, before = self._past.window(values)
        potentials, index = self._evidence.potentials(window)
        first = self._evidence.start[None] if self._fresh[0] else self._predicted
        found, densities, _ = filter_steps(
            potentials, index[before:], np.array([0, data.n_steps]), first=first
        )
        self._filtered[0] = found[-1]
        self._predicted[0] = found[-1] @ self._evidence.transitions
        self._fresh[0] = False
        self._surprise[0] = -densities[-1]
        self._past.advance(values)
        self.n_steps += data.n_steps
        return -densities

    def reset(self, which: Any = None) -> None:
        """Begin anew: all streams, or those with the given numbers."""
        chosen = slice(None) if which is None else which
        self._fresh[chosen] = True
        self._filtered[chosen] = self._evidence.start
        self._surprise[chosen] = 0.0
        self._past.rows[chosen] = np.nan
        if which is None:
            self.n_steps = 0

    @property
    def family(self) -> Family:
        """Emission family of the model."""
        return self._evidence.family

    @property
    def probabilities(self) -> Floats:
        """p(z_t | x_1, ..., x_t), shape (K,) or (n_streams, K); the start before the first step."""
        found = self._evidence.folded(self._filtered)
        return found.copy() if self._many else found[0].copy()

    @property
    def surprise(self) -> Any:
        """−log p(x_t | x_1, ..., x_{t−1}) of the last step, in nats; one number per stream."""
        return self._surprise.copy() if self._many else float(self._surprise[0])

    def forecast(
        self,
        steps: int = 1,
        *,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        n_draws: int = 100,
        covariates: ArrayLike | None = None,
    ) -> Forecast:
        """Forecast from here; see `FittedModel.forecast`.  The stream does not change."""
        family = self._evidence.family
        past = self._past.observed()
        if self._past.length and past is None:
            raise ValueError(f"a forecast of {type(family).__name__} needs an observation first")
        belief = Belief(self._filtered.copy(), self._fresh.copy(), past)
        seed = [self._seed, self.n_steps]
        return forecast_from(self._evidence, belief, steps, quantiles, n_draws, seed, covariates)

    # ---- potentials of one step -----------------------------------------------------------------

    def _alphabet(self) -> Floats | None:
        """Return the potentials of all symbols, one row each, and a row of ones for missing."""
        family, k = self._evidence.family, self._evidence.n_inner
        if not isinstance(family, Categorical) or family.n_statistics * k > _TABLE_NUMBERS:
            return None
        symbols = np.append(np.arange(family.n_statistics, dtype=np.int32), np.int32(-1))
        rows = self._evidence.rows(Sequences(symbols, [0, len(symbols)]))
        return np.ascontiguousarray(rows.table[rows.index, :k], np.float64)

    def _weights(self, x: Any) -> Floats:
        """Return the potentials of the next step of every stream, and set their log scale."""
        if self._table is not None and isinstance(x, int) and not self._many:
            if not -1 <= x < len(self._table) - 1:
                self._validated(x)  # raises the error that names the symbol
            return self._table[x][None]
        if self._compiled is not None:
            found = self._compiled(x, self._log_scale)
            if found is not None:
                return self._evidence.spread(found)
        if not self._many and not self._past.length:
            return self._cached(x)
        data = self._validated(x)
        if self._table is not None:
            return self._table[data.values]
        return self._computed(data.values[:, None] if self._many else data.values[None])

    def _cached(self, x: Any) -> Floats:
        """Return the potentials of one observation; those of discrete ones are kept."""
        key: Any = None
        if self._keeps:
            plain = isinstance(x, int | float | str)
            key = x if plain else ((own := np.asarray(x)).dtype.str, own.tobytes())
            found = self._cache.get(key)
            if found is not None:
                self._log_scale[0] = found[1]
                return found[0]
        data = self._validated(x)
        weights = self._computed(data.values[None])
        if key is not None:
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            self._cache[key] = weights, float(self._log_scale[0])
        return weights

    def _computed(self, values: NDArray[Any]) -> Floats:
        window, before = self._past.window(values)
        rows = self._evidence.rows(window)
        index = rows.index[before :: before + 1]
        if rows.log_scale is not None:
            self._log_scale[:] = rows.log_scale[index]
        self._past.advance(values)
        return np.ascontiguousarray(rows.table[index, : self._evidence.n_inner], np.float64)

    def _validated(self, x: Any) -> Sequences:
        """Return one step of every stream in the family's form; each is a sequence by itself."""
        family, n = self._evidence.family, len(self._filtered)
        values = np.asarray(x)
        if not self._many:
            values = values[None]
        if family.step_ndim == 1 and values.ndim == 1:
            one = getattr(family, "n_features", None) == 1
            values = values[:, None] if self._many or one else values[None]
        if values.dtype == object:
            values = values.astype(str if isinstance(family, Categorical) else np.float64)
        if len(values) != n:
            raise ValueError(f"{len(values)} observations for {n} streams")
        return family.validate(family.as_steps(Sequences.from_lengths(values, [1] * n)))


class _CompiledStep:
    """Potentials of one observation by a compiled function, for Gaussian families."""

    def __init__(self, compiled: CompiledPotentials, location: Floats) -> None:
        n_states = len(compiled.powers)
        self.location = np.ascontiguousarray(location, np.float64)
        self.weights = np.ascontiguousarray(compiled.weights)
        self.spans = np.ascontiguousarray(compiled.spans)
        self.factors = np.ascontiguousarray(compiled.factors)
        self.powers = np.ascontiguousarray(compiled.powers)
        self.constants = np.ascontiguousarray(compiled.constants)
        self.out = np.empty((1, n_states))

    @classmethod
    def make(cls, evidence: Evidence) -> _CompiledStep | None:
        """Return it for a family that has a compiled form and no memory; None for others."""
        family = evidence.family
        if not isinstance(family, DenseFamily):
            return None
        found = family.potentials(evidence.natural, collapsed=True)
        if not isinstance(found, CompiledPotentials) or found.shares is not None:
            return None
        location = getattr(family, "location", 0.0)
        return cls(found, np.broadcast_to(np.asarray(location, np.float64), family.features))

    def __call__(self, x: Any, log_scale: Floats) -> Floats | None:
        """Return the potentials, and set the log scale; None for what is not plain numbers."""
        try:
            values = np.asarray(x, np.float64).reshape(-1)
        except (TypeError, ValueError):
            return None
        if len(values) != len(self.location):
            return None
        scale: float = student_row(
            values,
            self.location,
            self.weights,
            self.spans,
            self.factors,
            self.powers,
            self.constants,
            self.out,
        )
        if scale != scale:
            return None
        log_scale[0] = scale
        return self.out
