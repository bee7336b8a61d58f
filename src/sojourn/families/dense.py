"""Families with few statistics and a row of potentials of its own for every step.

What differs between them is the maths; what training needs of it is written here once: blocks of
steps on several threads, rows for the kernel, sums of statistics as matrix products, the start
from k-means++, checks of the data, and configuration files.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.base import EmissionRows, Family
from sojourn.families.table import DecayedTable, RowSums
from sojourn.kernels.arrays import is_tensor, maybe_any, namespace
from sojourn.kernels.cpu.densities import student_rows
from sojourn.kernels.interface import Floats, padded_states
from sojourn.sequences import Sequences, position

BLOCK_STEPS = 512
"""Steps that are worked on at a time: they stay in the cache, and BLAS on one thread."""

TENSOR_NUMBERS = 2**24
"""Numbers in the largest array of the block of steps that a device works on: 128 MiB."""

WORTH_THREADS = 2**15
"""Steps from which several threads are faster than one."""

_SAMPLE_STEPS = 10_000  # steps that the start looks at
_SOFTNESS = 0.1  # share of a step's weight that the start spreads over all states


Booleans = NDArray[np.bool_]

LogPotentials = Callable[[Any], Floats]
"""Observations x of T steps to their log potentials, shape (T, K)."""


@dataclass(frozen=True, eq=False)
class CompiledPotentials:
    """Log potentials in NumPy, and what the compiled kernel needs for the same.

    Attributes
    ----------
    plain : LogPotentials
        The closed form, which says what is computed.
    design : callable
        x to the kernel's z and which steps are there, or None where only `plain` will do.
    weights, spans, factors, powers, constants, collapsed
        Arguments of `kernels.cpu.densities.student_rows`.
    """

    plain: LogPotentials
    design: Callable[[Floats], tuple[Floats, Booleans] | None]
    weights: Floats
    spans: NDArray[np.int64]
    factors: Floats
    powers: Floats
    constants: Floats
    collapsed: bool

    def __call__(self, x: Floats) -> Floats:
        """Return the log potentials, by the closed form."""
        return self.plain(x)

    def rows(self, x: Floats, dtype: Any, n_threads: int) -> EmissionRows | None:
        """Return rows for the kernel, or None where only `plain` will do."""
        designed = self.design(x)
        if designed is None:
            return None
        z, present = designed
        table, log_scale = student_rows(
            z,
            self.weights,
            self.spans,
            self.factors,
            self.powers,
            self.constants,
            dtype,
            collapsed=self.collapsed,
            n_threads=n_threads,
        )
        if not present.all():
            table[~present, : len(self.powers)] = 1.0
            log_scale[~present] = 0.0
        return EmissionRows(table, log_scale, np.arange(len(x), dtype=np.int32))


class DenseFamily(Family):
    """A family with one row of potentials a step.

    Subclasses give the maths, and say how the start tells states apart.  The statistics are kept
    in double precision, because those of real numbers cancel.
    """

    n_features: int | None

    @property
    def step_ndim(self) -> int:
        """Dimensions of one observation: a vector has one."""
        return 1

    @property
    def table_dtype(self) -> str:
        """Double precision, whatever the model's is."""
        return "float64"

    @property
    def features(self) -> int:
        """Number of columns D of a resolved family."""
        assert self.n_features is not None, "the family has not seen data yet"
        return self.n_features

    @abstractmethod
    def potentials(self, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return the closed form of eq (2) or (2') for given λ, as a function of x.

        What depends on λ alone is computed here, once for all blocks of steps.
        """

    @abstractmethod
    def assign(
        self, data: Sequences, n_states: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Draw observations x and assign them softly to states, for the start."""

    def encode(self, data: Sequences) -> NDArray[Any]:
        """Return the observations."""
        return self.observations(data)

    def emission_rows(
        self, encoded: Any, table: DecayedTable, *, collapsed: bool, dtype: Any, n_threads: int
    ) -> EmissionRows:
        """Return one row of potentials for every step."""
        function = self.potentials(natural_parameters(self, table), collapsed=collapsed)
        columns = encoded.shape[1]
        return potential_rows(function, encoded, columns, table.n_states, dtype, n_threads)

    def compiled_sums(self, x: Floats, weights: Floats, n_threads: int) -> Floats | None:
        """Return ``statistics(x).T @ weights`` by a compiled kernel, or None where none is."""
        return None

    def log_predictive(self, x: Floats, natural: Floats) -> Floats:
        """Return the collapsed log potentials of eq (2) in closed form, shape (T, K)."""
        return self.potentials(natural, collapsed=True)(x)

    def expected_log_likelihood(self, x: Floats, natural: Floats) -> Floats:
        """Return the mean-field log potentials of eq (2'), shape (T, K)."""
        return self.potentials(natural, collapsed=False)(x)

    def sum_statistics(self, encoded: Any, responsibilities: Floats, *, n_threads: int) -> RowSums:
        """Return the weighted sums of the statistics, as one matrix product a block."""
        n, sums = self.n_statistics, None
        if not is_tensor(encoded):
            sums = self.compiled_sums(encoded, responsibilities, n_threads)
        if sums is None:
            sums = weighted_sums(self.statistics, encoded, responsibilities, n, n_threads)
        return RowSums(None, sums, n)

    def initial_statistics(
        self, data: Sequences, n_states: int, total_steps: float, rng: np.random.Generator
    ) -> Floats:
        """Give statistics of soft assignments from k-means++, with the mass of `total_steps`."""
        x, weights = self.assign(data, n_states, rng)
        sums = weighted_sums(self.statistics, x, weights, self.n_statistics)
        return sums.T * (total_steps / len(x))

    def config(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the constructor's arguments: numbers as JSON values, the others as arrays."""
        parameters = self.get_params(deep=False)
        arrays = {name: value for name, value in parameters.items() if np.ndim(value) > 0}
        values = {
            name: value.item() if isinstance(value, np.generic | np.ndarray) else value
            for name, value in parameters.items()
            if name not in arrays
        }
        return values, {name: np.asarray(value) for name, value in arrays.items()}

    @classmethod
    def from_config(cls, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild the family from `config`."""
        return cls(**values, **arrays)

    def changed(self, **changes: Any) -> Self:
        """Return the family with some of its parameters changed."""
        return type(self)(**(self.get_params(deep=False) | changes))


# ---- blocks of steps ----------------------------------------------------------------------------


def natural_parameters(family: Family, table: DecayedTable) -> Floats:
    """Return λ = λ° + E[t], shape (K, S)."""
    statistics = table.dense()
    return namespace(statistics).asarray(family.prior(), like=statistics) + statistics


def potential_rows(
    log_potentials: LogPotentials,
    x: NDArray[Any],
    n_columns: int,
    n_states: int,
    dtype: Any,
    n_threads: int,
) -> EmissionRows:
    """Turn log potentials into rows for the kernel: the largest of each row becomes one.

    Blocks do not depend on the number of threads, so the result does not either.  They may hold
    `n_columns` numbers for each step and state.
    """
    if isinstance(log_potentials, CompiledPotentials):
        compiled = log_potentials.rows(x, dtype, n_threads)
        if compiled is not None:
            return compiled
    xp = namespace(x)
    width = n_states if is_tensor(x) else padded_states(n_states)
    table = xp.zeros((len(x), width), dtype, like=x)
    log_scale = xp.empty(len(x), "float64", like=x)

    def fill(steps: slice) -> None:
        rows = log_potentials(x[steps])
        largest = xp.amax(rows, axis=1)
        log_scale[steps] = largest
        rows -= largest[:, None]
        xp.exp(xp.astype(rows, dtype), out=table[steps, :n_states])

    for _ in in_blocks(fill, x, n_columns * n_states, n_threads):
        pass
    return EmissionRows(table, log_scale, xp.arange(len(x), dtype="int32", like=x))


def weighted_sums(
    statistics: Callable[[Any], Floats],
    x: NDArray[Any],
    weights: Floats,
    n_statistics: int,
    n_threads: int = 1,
) -> Floats:
    """Return ``statistics(x).T @ weights``, (S, K), without building all of ``statistics(x)``."""
    xp = namespace(x)
    parts = in_blocks(
        lambda steps: statistics(x[steps]).T @ xp.astype(weights[steps], "float64"),
        x,
        n_statistics,
        n_threads,
    )
    # In the order of the steps, whichever thread was first.
    total = next(parts)
    for part in parts:
        total += part
    return total


def in_blocks(
    work: Callable[[slice], Any], x: NDArray[Any], width: int, n_threads: int
) -> Iterator[Any]:
    """Yield ``work(steps)`` for every block of steps, in their order.

    Blocks fit the processor's cache, and few of them are faster one after another: between the
    array functions threads wait for the interpreter.  For a device they are as large as
    `TENSOR_NUMBERS` lets them be where a step takes `width` numbers, and follow one another.
    """
    size = max(1, TENSOR_NUMBERS // width) if is_tensor(x) else BLOCK_STEPS
    blocks = [slice(begin, begin + size) for begin in range(0, len(x), size)]
    if n_threads == 1 or len(x) < WORTH_THREADS or is_tensor(x):
        yield from map(work, blocks)
        return
    with ThreadPoolExecutor(min(n_threads, len(blocks))) as pool:
        yield from pool.map(work, blocks)


# ---- the start ----------------------------------------------------------------------------------


def assign_steps(
    data: Sequences,
    coordinates: Callable[[Floats], Floats],
    n_states: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Cluster single steps by some coordinates of theirs, each given the same spread."""
    x = plain_values(sample_sequences(data, rng))
    if len(x) > _SAMPLE_STEPS:
        x = x[np.sort(rng.choice(len(x), _SAMPLE_STEPS, replace=False))]
    return x, soft_assignments(standardized(coordinates(x)), n_states, rng)


def plain_values(data: Sequences) -> NDArray[Any]:
    """Return the values in double precision: x of the families that look at one step alone."""
    return np.asarray(data.values, dtype=np.float64)


def sample_sequences(data: Sequences, rng: np.random.Generator) -> Sequences:
    """Draw enough whole sequences for a sample of steps."""
    if data.n_steps <= 2 * _SAMPLE_STEPS:
        return data
    order = rng.permutation(len(data))
    enough = int(np.searchsorted(np.cumsum(data.lengths[order]), 2 * _SAMPLE_STEPS)) + 1
    return data.take(np.sort(order[:enough]))


def standardized(points: Floats) -> Floats:
    """Give columns mean zero and variance one; what is missing gets the mean."""
    moments = column_moments(points)
    scaled = (points - moments.mean) / np.sqrt(moments.variance)
    return np.where(np.isnan(scaled), 0.0, scaled)


def soft_assignments(points: Floats, n_states: int, rng: np.random.Generator) -> Floats:
    """Assign points softly to clusters from k-means++ and Lloyd's iterations, shape (T, K).

    A point is shared among clusters whose centres are about equally far, and a tenth of it goes to
    all alike, so that no state begins without mass.
    """
    centres = _spread_centres(points, n_states, rng)
    for _ in range(10):
        distances = _squared_distances(points, centres)
        nearest = distances.argmin(axis=1)
        sizes = np.bincount(nearest, minlength=n_states)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, points)
        filled = sizes > 0
        centres[filled] = sums[filled] / sizes[filled, None]
    distances = _squared_distances(points, centres)
    least = distances.min(axis=1)
    spread = max(float(least.mean()), 1e-12)
    weights = np.exp(-0.5 * points.shape[1] * (distances - least[:, None]) / spread)
    weights /= weights.sum(axis=1, keepdims=True)
    return (1.0 - _SOFTNESS) * weights + _SOFTNESS / n_states


def _spread_centres(points: Floats, n_states: int, rng: np.random.Generator) -> Floats:
    """Draw centres by k-means++: each with a probability that grows with its distance squared."""
    centres = [points[rng.integers(len(points))]]
    distances = _squared_distances(points, centres[0][None])[:, 0]
    for _ in range(n_states - 1):
        total = distances.sum()
        if total > 0:
            at = int(np.searchsorted(np.cumsum(distances), rng.random() * total))
        else:
            at = int(rng.integers(len(points)))  # every point has a centre already
        centres.append(points[min(at, len(points) - 1)])
        distances = np.minimum(distances, _squared_distances(points, centres[-1][None])[:, 0])
    return np.array(centres)


def _squared_distances(points: Floats, centres: Floats) -> Floats:
    """Return |p − c|² of every point and centre, shape (T, K)."""
    squares = (points**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1)
    return np.maximum(squares - 2.0 * points @ centres.T, 0.0)


# ---- what the data tell -------------------------------------------------------------------------


class Moments(NamedTuple):
    """Mean and variance of each column; where a column does not vary, the variance is one.

    Attributes
    ----------
    mean, variance : (D,) arrays
    """

    mean: Floats
    variance: Floats


def column_moments(values: NDArray[Any]) -> Moments:
    """Compute mean and variance of each column in two passes; NaN counts as missing.

    Examples
    --------
    >>> column_moments(np.array([[1.0, 5.0], [3.0, np.nan]]))
    Moments(mean=array([2., 5.]), variance=array([1., 1.]))
    """
    blocks = range(0, len(values), 2**16)

    def total(function: Callable[[Floats], Floats]) -> Floats:
        parts = (np.asarray(values[begin : begin + 2**16], dtype=np.float64) for begin in blocks)
        return np.sum([function(part) for part in parts], axis=0)

    counts = np.maximum(total(lambda part: (~np.isnan(part)).sum(axis=0)), 1)
    mean = total(lambda part: np.nansum(part, axis=0)) / counts
    variance = total(lambda part: np.nansum((part - mean) ** 2, axis=0)) / counts
    # Rounding makes a constant column vary in its last bits.
    varies = variance > (1e-14 * np.abs(mean)) ** 2
    return Moments(mean, np.where(varies, variance, 1.0))


def check_columns(data: Sequences, n_features: int | None, name: str) -> int:
    """Return the number of columns, or say that it is not what was asked for."""
    columns = int(data.values.shape[1])
    if columns == 0:
        raise ValueError(
            f"the data have no columns: 0 feature(s) (shape={data.values.shape}) while a minimum "
            "of 1 is required."
        )
    if n_features is not None and n_features != columns:
        raise ValueError(f"{name} has n_features={n_features}, but the data have {columns} columns")
    return columns


def column_vector(name: str, value: Any, n_features: int, *, positive: bool = True) -> Floats:
    """Return a parameter as one number a column."""
    vector = np.array(np.broadcast_to(np.asarray(value, dtype=np.float64), (n_features,)))
    if not np.isfinite(vector).all() or (positive and (vector <= 0).any()):
        raise ValueError(f"{name} must be {'positive and ' if positive else ''}finite, got {value}")
    return vector


def check_real(data: Sequences, n_features: int, *, whole_rows: bool = False) -> Sequences:
    """Check real numbers: finite, or NaN where missing (whole rows only, if asked for)."""
    values = _numbers(data, n_features)
    if values.dtype.kind != "f":
        return data.with_values(values)
    _refuse(np.isinf(values), data, lambda at: f"{values[at]} is not a finite number")
    if whole_rows:
        refuse_partly_missing(np.isnan(values), data)
    return data.with_values(values)


def check_positive(data: Sequences, n_features: int, *, zero: bool = False) -> Sequences:
    """Check positive numbers, or non-negative ones."""
    data = check_real(data, n_features)
    values, kind = data.values, "non-negative" if zero else "positive"
    with np.errstate(invalid="ignore"):
        bad = values < 0 if zero else values <= 0
    _refuse(bad, data, lambda at: f"{values[at]} is not a {kind} number")
    return data


def check_counts(
    data: Sequences, n_features: int, *, least: int = 0, most: int | None = None
) -> Sequences:
    """Check whole numbers of at least `least` and at most `most`."""
    data = check_real(data, n_features)
    values = data.values
    limit = np.inf if most is None else most
    what = f"a whole number of at least {least}" if most is None else f"{least} or {most}"
    with np.errstate(invalid="ignore"):
        bad = (values < least) | (values > limit)
        if values.dtype.kind == "f":
            bad |= (values != np.floor(values)) & ~np.isnan(values)
    _refuse(bad, data, lambda at: f"{values[at]} is not {what}")
    return data


def refuse_partly_missing(missing: NDArray[np.bool_], data: Sequences) -> None:
    """Say where a row is missing in part, for families in which only whole rows may be."""
    partly = missing.any(axis=1) & ~missing.all(axis=1)
    if partly.any():
        step = int(np.flatnonzero(partly)[0])
        column = int(np.flatnonzero(missing[step])[0])
        raise ValueError(
            f"{position(step, data.offsets)}: column {column} is missing and others are not; "
            "in this family only whole steps may be missing"
        )


def _numbers(data: Sequences, n_features: int) -> NDArray[Any]:
    values = data.values
    if values.dtype.kind not in "fiub":
        got = "words" if values.dtype.kind in "UTO" else str(values.dtype)
        raise TypeError(f"the data must be numbers, got {got}; for words use Categorical")
    if values.shape[1] != n_features:
        raise ValueError(
            f"the model has {n_features} columns (n_features), the data have {values.shape[1]}"
        )
    return values.astype(np.float64) if values.dtype == np.float16 else values


def _refuse(
    bad: NDArray[np.bool_], data: Sequences, problem: Callable[[tuple[int, int]], str]
) -> None:
    if bad.any():
        step, column = (int(part[0]) for part in np.nonzero(bad))
        raise ValueError(
            f"{position(step, data.offsets)}, column {column}: {problem((step, column))}"
        )


def present_rows(x: Floats) -> tuple[Floats, Booleans]:
    """Return x with zeros in place of missing rows, and which rows are there."""
    xp = namespace(x)
    present = ~xp.isnan(x[:, 0])
    return (xp.where(present[:, None], x, 0.0) if maybe_any(~present) else x), present


def as_given(value: ArrayLike | None, default: Any) -> Any:
    """Return a parameter, or its default where it was not given."""
    return default if value is None else value
