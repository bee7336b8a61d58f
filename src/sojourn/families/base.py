"""What an emission family must offer, and the maths that all of them share.

A family is an exponential family with its conjugate prior:

    p(x | φ)  = h(x) exp{ φᵀ t(x) − a_l(φ) }
    p(φ | λ)  ∝ exp{ λ₁ᵀ φ − λ₂ a_l(φ) − a_g(λ) }

Here λ and t(x) are written as one vector of S numbers: t(x) carries the constant coordinates
that go with λ₂.  One function, the log normaliser a_g, then gives both kinds of emission
potentials:

    collapsed   log φ̂(x) = log h(x) + a_g(λ + t(x)) − a_g(λ)        eq (2)
    mean-field  E[log p(x|φ)] = log h(x) + ⟨∇a_g(λ), t(x)⟩          eq (2')
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from sojourn.families.symbol_prior import SymbolPrior
from sojourn.families.table import DecayedTable, RowSums
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats, Integers
from sojourn.sequences import Sequences
from sojourn.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class EmissionRows:
    """Emission potentials of a batch as a table and an index into it, for a kernel.

    Attributes
    ----------
    table : (U, K) array
        Potentials up to a factor for each row.
    log_scale : (U,) array or None
        Logarithm of that factor.
    index : (T,) integer array
        Row of the table for each step.
    """

    table: Floats
    log_scale: Floats | None
    index: Integers


class Family(BaseEstimator, ABC):  # type: ignore[misc]
    """An emission family: what is observed at a step, given the state.

    A family is a value: parameters are only stored by ``__init__``, and `resolve` returns a new
    family in which everything that the data can tell has been filled in.

    Notes
    -----
    ``natural`` is λ for every state, shape (K, S).  Training calls `encode`, `emission_rows` and
    `sum_statistics`; they see the statistics as a `DecayedTable`, so that a family with many
    statistics touches only those of the batch.  ``x`` of the maths functions is what
    `observations` makes of validated data: the values themselves, or for a family that looks at
    the past a row of them with their past.

    The maths functions, `emission_rows` and `sum_statistics` take NumPy arrays, or PyTorch tensors
    for all of them (``encoded`` through `arrays.to_device`, a table whose `dense` gives a tensor);
    then they return tensors on the same device, and read no value.
    """

    statistics_are_counts: ClassVar[bool] = False
    """Whether the statistics are never negative."""

    @property
    def table_dtype(self) -> str | None:
        """Precision in which the statistics must be kept; None for the model's own."""
        return None

    @property
    @abstractmethod
    def step_ndim(self) -> int:
        """Dimensions of one observation: 0 for a symbol or number, 1 for a vector."""

    @property
    @abstractmethod
    def n_statistics(self) -> int:
        """Number of statistics S of a resolved family."""

    @abstractmethod
    def resolve(self, data: Sequences, n_states: int) -> Family:
        """Return the family with everything filled in that the data can tell."""

    def with_alphabet(self, n_symbols: int | None, vocabulary: Vocabulary | None) -> Family:
        """Return the family with what a data file tells of its symbols, before `resolve`.

        `resolve` then sees a sample.  Only families of symbols have an alphabet.
        """
        return self

    @abstractmethod
    def validate(self, data: Sequences) -> Sequences:
        """Return the data in the family's own dtype, or say which sequence and position is bad."""

    def as_steps(self, data: Sequences) -> Sequences:
        """Make numbers vectors of one where vectors are expected, and refuse other shapes."""
        shape = data.values.shape[1:]
        if self.step_ndim == 1 and not shape:
            return data.with_values(data.values[:, None])
        if len(shape) != self.step_ndim:
            takes = "one value" if self.step_ndim == 0 else "a vector"
            raise ValueError(
                f"{type(self).__name__} takes {takes} a step, and a step here has the shape "
                f"{shape}: choose the columns with column=, or another family"
            )
        return data

    def accept(self, data: Sequences) -> Sequences:
        """Check and validate data as it comes from a file."""
        return self.validate(self.as_steps(data))

    @abstractmethod
    def prior(self) -> Floats:
        """Return λ°, shape (S,), or (K, S) where states differ."""

    def learned_prior(self, *, seen: bool, new: bool) -> SymbolPrior | None:
        """Return a prior to be learned along with the statistics; None for what has none.

        `seen` and `new` say what of it is learned.
        """
        return None

    def with_prior(self, prior: Floats) -> Family:
        """Return the family with other prior counts, where `learned_prior` can learn them."""
        raise NotImplementedError(f"the prior of {type(self).__name__} is not learned")

    @abstractmethod
    def initial_statistics(
        self, data: Sequences, n_states: int, total_steps: float, rng: np.random.Generator
    ) -> Floats:
        """Draw statistics (K, S) with the mass of `total_steps` steps that tell states apart."""

    def segment_statistics(
        self, data: Sequences, n_states: int, total_steps: float, rng: np.random.Generator
    ) -> Floats:
        """Draw statistics (K, S) with the mass of `total_steps` steps from pieces of the data.

        As `initial_statistics`, except where single steps do not tell states apart.
        """
        return self.initial_statistics(data, n_states, total_steps, rng)

    @abstractmethod
    def log_base_measure(self, x: NDArray[Any]) -> Floats:
        """Return log h(x), shape (T,)."""

    @abstractmethod
    def statistics(self, x: NDArray[Any]) -> Floats:
        """Return t(x), shape (T, S): for tests and small data; training never builds it."""

    @abstractmethod
    def log_normalizer(self, natural: Floats) -> Floats:
        """Return a_g(λ), shape (K,)."""

    def divergence(self, natural: Floats) -> Floats:
        """Return KL(q(φ) || p(φ)) of every state for q with the parameter λ, shape (K,).

        It is ⟨λ − λ°, ∇a_g(λ)⟩ − a_g(λ) + a_g(λ°).  Only the derivative along one direction is
        needed, here by differences; a family that knows it in closed form says so.
        """
        xp = namespace(natural)
        prior = xp.asarray(self.prior(), like=natural) + xp.zeros_like(natural)
        h, along = 1e-3, natural - prior
        near, far = (
            self.log_normalizer(natural + s * h * along)
            - self.log_normalizer(natural - s * h * along)
            for s in (1, 2)
        )
        slope = (8.0 * near - far) / (12.0 * h)
        return slope - self.log_normalizer(natural) + self.log_normalizer(prior)

    @abstractmethod
    def log_predictive(self, x: NDArray[Any], natural: Floats) -> Floats:
        """Return the collapsed log potentials of eq (2) in closed form, shape (T, K)."""

    @abstractmethod
    def expected_log_likelihood(self, x: NDArray[Any], natural: Floats) -> Floats:
        """Return the mean-field log potentials of eq (2'), shape (T, K)."""

    @abstractmethod
    def observations(self, data: Sequences) -> NDArray[Any]:
        """Return x of the maths functions for every step of validated data."""

    @abstractmethod
    def encode(self, data: Sequences) -> Any:
        """Return what the potentials and the sums of a batch both need of it."""

    def rows_needed(self, encoded: Any) -> Integers | None:
        """Return which statistics the potentials of an encoded batch depend on; None for all.

        Totals over all statistics are known besides.
        """
        return None

    @abstractmethod
    def emission_rows(
        self, encoded: Any, table: DecayedTable, *, collapsed: bool, dtype: Any, n_threads: int
    ) -> EmissionRows:
        """Return the potentials of an encoded batch for the kernel, collapsed or mean-field.

        `dtype` is the precision that the kernel is to compute in.
        """

    @abstractmethod
    def sum_statistics(self, encoded: Any, responsibilities: Floats, *, n_threads: int) -> RowSums:
        """Return ``Σ_t responsibilities[t, k] t(x_t)`` of an encoded batch.

        It never builds (T, S).
        """

    @abstractmethod
    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw data for sequences of states, from the posterior mean parameters, shape (T, ...)."""

    @property
    @abstractmethod
    def parameter_names(self) -> tuple[str, ...]:
        """Names of what `parameters` returns."""

    @abstractmethod
    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return posterior means that a person reads, under hmmlearn's names."""

    @abstractmethod
    def config(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what `from_config` needs, as JSON values and as arrays, for model files."""

    @classmethod
    @abstractmethod
    def from_config(cls, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Family:
        """Rebuild a family from `config`."""
