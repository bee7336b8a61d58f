"""Families with few statistics and a row of potentials for every step.

The families differ in their mathematics.  What training needs beside it is written here once: rows
for the kernel, sums of statistics, initial statistics, and configuration files.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sojourn.families.base import EmissionRows, Family
from sojourn.families.blocks import (
    CompiledPotentials,
    LogPotentials,
    natural_parameters,
    potential_rows,
    weighted_sums,
)
from sojourn.families.checks import plain_values
from sojourn.families.fused import QuadraticStatistics, TensorRows
from sojourn.families.start import assign_steps
from sojourn.families.table import DecayedTable, RowSums
from sojourn.kernels.arrays import is_tensor
from sojourn.kernels.cpu.sweeps import Numbers
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences

WORTH_COMPILING = 2**12
"""Entries times states from which compiled sums beat a matrix product of NumPy.

On an AMD EPYC, Poisson, one column, 3 states: 1,000 steps take 31 µs compiled and 19 µs by NumPy,
3,000 steps 37 and 56.
"""


def current(family: Family, table: DecayedTable, make: Callable[..., Any], collapsed: bool) -> Any:
    """Return ``make(λ, collapsed=collapsed)``; the table keeps it, as chunks of a batch share λ."""
    natural = natural_parameters(family, table)
    if is_tensor(natural):
        return make(natural, collapsed=collapsed)
    last = table.derived
    is_same = last is not None and last[0] is family and last[1] == collapsed
    if last is None or not is_same or not np.array_equal(last[2], natural):
        last = family, collapsed, natural, make(natural, collapsed=collapsed)
        table.derived = last
    return last[3]


class DenseFamily(Family):
    """A family with one row of potentials per step.

    Subclasses define the mathematics, and how initial states are distinguished.  Statistics are
    kept in double precision, because sums of real numbers cancel.
    """

    step_ndim = 1
    table_dtype = "float64"

    fused: ClassVar[bool] = False
    """Whether the sums of statistics are those of `quadratics`, for a kernel on a GPU."""

    n_features: int | None

    @property
    def features(self) -> int:
        """Number of columns D of a resolved family."""
        assert self.n_features is not None, "the family has not seen data yet"
        return self.n_features

    @abstractmethod
    def potentials(self, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return the closed form of eq (2) or (2') for given λ, as a function of x.

        Terms that depend on λ alone are computed here, once for all blocks of steps.
        """

    def points(self, x: Floats) -> Floats:
        """Return coordinates of observations for k-means++: by default their values."""
        return x

    def assign(
        self, data: Sequences, n_states: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Draw observations x and assign them softly to states: (T, ...) and (T, K)."""
        return assign_steps(data, self.points, n_states, rng)

    def observations(self, data: Sequences) -> NDArray[Any]:
        """Return the values in double precision."""
        return plain_values(data)

    def encode(self, data: Sequences) -> NDArray[Any]:
        """Return the observations."""
        return self.observations(data)

    def emission_rows(
        self, encoded: Any, table: DecayedTable, *, collapsed: bool, dtype: Any, n_threads: int
    ) -> EmissionRows:
        """Return one row of potentials per step."""
        function: LogPotentials = current(self, table, self.potentials, collapsed)
        numbers = self.numbers_per_step(encoded.shape[1])
        return potential_rows(function, encoded, numbers, table.n_states, dtype, n_threads)

    def numbers(self, encoded: Any, table: DecayedTable, *, collapsed: bool) -> Numbers | None:
        """Return what computes potentials and sums in one sweep; None if they are apart."""
        if not self.sweeps or not isinstance(encoded, np.ndarray):
            return None
        function = current(self, table, self.potentials, collapsed)
        if not isinstance(function, CompiledPotentials):
            return None
        return function.numbers(encoded, self.product_pairs())

    def product_pairs(self) -> NDArray[np.int64]:
        """Return pairs of columns of (1, x − c) whose products are what a sweep sums."""
        raise NotImplementedError(f"the statistics of {type(self).__name__} are not of that kind")

    def of_products(self, sums: Floats) -> Floats:
        """Return the sums of the statistics (S, K) from those of the products of pairs (P, K)."""
        return sums

    def numbers_per_step(self, n_columns: int) -> int:
        """Return how many numbers the potentials of a step take for every state."""
        return n_columns

    def compiled_sums(self, x: Floats, weights: Floats, n_threads: int) -> Floats | None:
        """Return ``statistics(x).T @ weights`` by a compiled kernel, or None if there is none."""
        return None

    def quadratics(self) -> QuadraticStatistics:
        """Return the statistics t(x) of a family that is `fused`."""
        raise NotImplementedError(f"the statistics of {type(self).__name__} are not of that kind")

    def log_predictive(self, x: Floats, natural: Floats) -> Floats:
        """Return the collapsed log potentials of eq (2) in closed form, shape (T, K)."""
        return self.potentials(natural, collapsed=True)(x)

    def expected_log_likelihood(self, x: Floats, natural: Floats) -> Floats:
        """Return the mean-field log potentials of eq (2'), shape (T, K)."""
        return self.potentials(natural, collapsed=False)(x)

    def sum_statistics(
        self,
        encoded: Any,
        responsibilities: Floats,
        *,
        n_threads: int,
        masses: Callable[[], Floats] | None = None,
    ) -> RowSums:
        """Return the weighted sums of the statistics, one matrix product per block."""
        n, sums = self.n_statistics, None
        if isinstance(encoded, TensorRows):
            return RowSums(None, self.quadratics().sums(encoded, responsibilities), n)
        if not is_tensor(encoded) and encoded.size * responsibilities.shape[1] >= WORTH_COMPILING:
            sums = self.compiled_sums(encoded, responsibilities, n_threads)
        if sums is None:
            sums = weighted_sums(self.statistics, encoded, responsibilities, n, n_threads)
        return RowSums(None, sums, n)

    def initial_statistics(
        self, data: Sequences, n_states: int, total_steps: float, rng: np.random.Generator
    ) -> Floats:
        """Return statistics of soft assignments, with the mass of `total_steps` steps."""
        x, weights = self.assign(data, n_states, rng)
        return self.start_sums(x, weights, rng).T * (total_steps / len(x))

    def config(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the constructor's arguments: numbers as JSON values, others as arrays."""
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
