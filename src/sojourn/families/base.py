"""The interface of an emission family, and the mathematics that all families share.

A family is an exponential family with its conjugate prior:

    p(x | φ)  = h(x) exp{ φᵀ t(x) − a_l(φ) }
    p(φ | λ)  ∝ exp{ λ₁ᵀ φ − λ₂ a_l(φ) − a_g(λ) }

Here λ and t(x) are written as one vector of S numbers each: t(x) includes the constant coordinates
that belong to λ₂.  The log normaliser a_g then gives both kinds of emission potentials:

    collapsed   log φ̂(x) = log h(x) + a_g(λ + t(x)) − a_g(λ)        eq (2)
    mean-field  E[log p(x|φ)] = log h(x) + ⟨∇a_g(λ), t(x)⟩          eq (2')
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from sojourn.estimator import Estimator
from sojourn.families.symbol_prior import SymbolPrior
from sojourn.families.table import DecayedTable, RowSums
from sojourn.hmmlearn_names import KnowsHmmlearn
from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.cpu.sweeps import Numbers
from sojourn.kernels.interface import Floats, Integers
from sojourn.sequences import Sequences
from sojourn.vocabulary import Vocabulary


class CompiledPasses(Protocol):
    """Computes passes of several models of the same steps; see `sojourn.inference.starts`."""

    def run(
        self, prior_start: Floats, prior_rows: Floats, start: Floats, rows: Floats, counts: Floats
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Return log Z (M,), E[C_0] (K, M), E[C] (K, K, M) and E[t] (S, K M).

        Parameters
        ----------
        prior_start, prior_rows : (K, 1) and (K, K, 1) arrays
            Prior counts.
        start, rows : (K, M) and (K, K, M) arrays
            Expected counts.
        counts : (K M, S) array
            E[t] of every state of every model.
        """


@dataclass(frozen=True, eq=False)
class EmissionRows:
    """Emission potentials of a batch for a kernel: a table, and an index into it.

    Attributes
    ----------
    table : (U, K) array
        Potentials, each row up to a factor; or what a kernel is to compute them from.
    log_scale : (U,) array or None
        Logarithm of that factor; None for one.
    index : (T,) integer array
        Row of the table for each step.
    """

    table: Floats
    log_scale: Floats | None
    index: Integers


POINT_STEPS = 1e9
"""Number of steps that a point estimate counts for."""

_GAP_NUMBERS = 2**22  # numbers in a temporary tensor with one row per step
_CACHED_NUMBERS = 2**16  # the same of an array, which stays in the processor's cache


def potential_gaps(
    collapsed: EmissionRows, mean_field: EmissionRows, responsibilities: Floats
) -> Floats:
    """Return Σ_t r (1 − r) (log φ̂ − E[log p(x|φ)]) of every state, shape (K,)."""
    xp, n_states = namespace(responsibilities), responsibilities.shape[1]
    total = xp.zeros(n_states, "float64", like=responsibilities)
    size = max(1, (_GAP_NUMBERS if is_tensor(total) else _CACHED_NUMBERS) // n_states)
    for begin in range(0, len(responsibilities), size):
        steps = slice(begin, begin + size)
        r = xp.astype(responsibilities[steps], "float64")
        one, other = (
            xp.astype(rows.table[rows.index[steps], :n_states], "float64")
            for rows in (collapsed, mean_field)
        )
        # Potentials of zero underflowed: states that are out of the question.
        known = (one > 0.0) & (other > 0.0)
        gaps = xp.log(xp.where(known, one, 1.0)) - xp.log(xp.where(known, other, 1.0))
        for rows, sign in ((collapsed, 1.0), (mean_field, -1.0)):
            if rows.log_scale is not None:
                gaps = gaps + sign * rows.log_scale[rows.index[steps]][:, None]
        total = total + (r * (1.0 - r) * xp.where(known, gaps, 0.0)).sum(axis=0)
    return total


class ExponentialFamily(ABC):
    """The mathematics of an exponential family with its conjugate prior.

    Notes
    -----
    ``natural`` is λ of every state, shape (K, S), and ``x`` holds the observations of T steps.
    All functions take NumPy arrays, or PyTorch tensors throughout; then they return tensors on the
    same device, and never read a value back.
    """

    @property
    @abstractmethod
    def n_statistics(self) -> int:
        """Number of statistics S of a resolved family."""

    @abstractmethod
    def prior(self) -> Floats:
        """Return λ°, shape (S,), or (K, S) if states differ."""

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

        This is ⟨λ − λ°, ∇a_g(λ)⟩ − a_g(λ) + a_g(λ°).  It needs the derivative along one direction
        only, computed here by finite differences; families may override it with a closed form.
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


class StepUnknowns(ExponentialFamily):
    """What a family with unknowns at single steps, a point estimate or compiled passes defines.

    The defaults are those of a family without them.
    """

    has_point: ClassVar[bool] = False
    """Whether `point` is defined, so that "em" can estimate the family's parameters."""

    @property
    def latent(self) -> bool:
        """Whether a step has unknowns of its own, so that its statistics depend on λ."""
        return False

    def sum_given(
        self,
        encoded: Any,
        responsibilities: Floats,
        table: DecayedTable,
        *,
        collapsed: bool,
        n_threads: int,
        masses: Callable[[], Floats] | None = None,
        bound: bool = False,
    ) -> tuple[RowSums, Any]:
        """Return the sums of a batch given the current statistics, and what unknowns of steps add.

        A family whose steps have unknowns of their own (which component a step comes from, say)
        sums expectations over them, and adds Σ r E[log h] and their entropy to the bound (13), if
        `bound` asks for it.  Other families need no more than `sum_statistics`, and add nothing.
        """
        family: Any = self
        sums = family.sum_statistics(encoded, responsibilities, n_threads=n_threads, masses=masses)
        return sums, 0.0

    sums_rows: ClassVar[bool] = False
    """Whether sums are responsibilities summed by row of `emission_rows`; see `rows_needed`."""

    def count_rows(self, encoded: Any, table: DecayedTable) -> EmissionRows | None:
        """Return collapsed potentials as `CountRows`, which a kernel computes; None by default."""
        return None

    sweeps: ClassVar[bool] = False
    """Whether potentials and sums of numbers may be computed in one sweep."""

    def numbers(self, encoded: Any, table: DecayedTable, *, collapsed: bool) -> Numbers | None:
        """Return what computes potentials and sums of numbers in one sweep; None by default."""
        return None

    def of_products(self, sums: Floats) -> Floats:
        """Return the sums of statistics (S, K) from those of such a sweep."""
        raise NotImplementedError(f"{type(self).__name__} has no such sums")

    def start_sums(self, x: Any, weights: Floats, rng: np.random.Generator) -> Floats:
        """Return sums (S, K) of steps with weights (T, K), before there is a λ to begin with."""
        family: Any = self
        return np.asarray(family.sum_statistics(x, weights, n_threads=1).dense())

    def compiled_passes(self, encoded: Any, offsets: Integers) -> CompiledPasses | None:
        """Return what computes passes of several models of the same data; None by default.

        It is for small data, where calls of functions take longer than the numbers.
        """
        return None

    def canonical(self, statistics: Floats) -> Floats:
        """Return statistics (K, S) with interchangeable parts in the same order in every state."""
        return statistics

    def point(self, natural: Floats) -> Floats:
        """Return λ of very many steps that have the statistics per step of λ: a point estimate.

        Potentials of it are densities at these parameters: the maximum of the likelihood if λ° is
        next to nothing.  Degrees of freedom of a prior do not count.
        """
        raise NotImplementedError(f"{type(self).__name__} has no point estimate")


class Family(Estimator, StepUnknowns, KnowsHmmlearn):  # type: ignore[misc]
    """An emission family: the distribution of the observation at a step, given the state.

    A family is a value: ``__init__`` only stores parameters, and `resolve` returns a new family
    with everything filled in that depends on the data.

    Notes
    -----
    Training calls `encode`, `emission_rows` and `sum_statistics`.  They see the statistics as a
    `DecayedTable`, so that a family with many statistics touches only those of the batch.  The
    observations ``x`` of the mathematics are what `observations` makes of validated data: the
    values themselves, or values with their past for a family that depends on it.

    `emission_rows` and `sum_statistics` also take tensors: ``encoded`` through `arrays.to_device`,
    and a table whose `dense` returns a tensor.
    """

    step_ndim: ClassVar[int]
    """Number of dimensions of one observation: 0 for a symbol or number, 1 for a vector."""

    table_dtype: ClassVar[str | None] = None
    """Precision in which the statistics must be kept; None for that of the model."""

    statistics_are_counts: ClassVar[bool] = False
    """Whether the statistics are never negative."""

    call_seconds: float = 0.0
    """About how long potentials take where that is long, however few the steps: restarts take it
    into account."""

    @property
    def past(self) -> int:
        """Number of earlier steps that an observation depends on."""
        return 0

    @property
    @abstractmethod
    def parameter_names(self) -> tuple[str, ...]:
        """Names of what `parameters` returns."""

    @abstractmethod
    def resolve(self, data: Sequences, n_states: int) -> Family:
        """Return the family with everything filled in that depends on the data."""

    def with_alphabet(self, n_symbols: int | None, vocabulary: Vocabulary | None) -> Family:
        """Return the family with the alphabet of a data file, before `resolve` sees a sample.

        Only families of symbols have an alphabet.
        """
        return self

    @abstractmethod
    def validate(self, data: Sequences) -> Sequences:
        """Return the data in the family's dtype; errors name the sequence and the position."""

    def as_steps(self, data: Sequences) -> Sequences:
        """Return numbers as vectors of length one if vectors are expected; refuse other shapes."""
        shape = data.values.shape[1:]
        if self.step_ndim == 1 and not shape:
            return data.with_values(data.values[:, None])
        if len(shape) != self.step_ndim:
            takes = "one value" if self.step_ndim == 0 else "a vector"
            raise ValueError(
                f"{type(self).__name__} takes {takes} per step, but the steps of the data have the "
                f"shape {shape}: choose the columns with column=, or another family"
            )
        return data

    def accept(self, data: Sequences) -> Sequences:
        """Check and validate data as read from a file."""
        return self.validate(self.as_steps(data))

    @property
    def has_usual_prior(self) -> bool:
        """Whether the prior is one that `learned_prior` can learn, and was not chosen."""
        return False

    def learned_prior(self, *, seen: bool, new: bool) -> SymbolPrior | None:
        """Return a prior that is learned along with the statistics; None if there is none.

        Parameters
        ----------
        seen : bool
            Whether to learn the prior count of symbols that occur in the data.
        new : bool
            Whether to learn the prior count of the other symbols.
        """
        return None

    def with_prior(self, prior: Floats) -> Family:
        """Return the family with other prior counts, if `learned_prior` can learn them."""
        raise NotImplementedError(f"the prior of {type(self).__name__} is not learned")

    @abstractmethod
    def initial_statistics(
        self, data: Sequences, n_states: int, total_steps: float, rng: np.random.Generator
    ) -> Floats:
        """Draw statistics (K, S) with the mass of `total_steps` steps that differ among states."""

    def segment_statistics(
        self, data: Sequences, n_states: int, total_steps: float, rng: np.random.Generator
    ) -> Floats:
        """Draw statistics (K, S) with the mass of `total_steps` steps from segments of the data.

        By default those of `initial_statistics`; families override it if single steps are not
        enough to distinguish states.
        """
        return self.initial_statistics(data, n_states, total_steps, rng)

    @abstractmethod
    def observations(self, data: Sequences) -> NDArray[Any]:
        """Return the observations x of the mathematics for every step of validated data."""

    @abstractmethod
    def encode(self, data: Sequences) -> Any:
        """Return what both the potentials and the sums of a batch need of its data."""

    def rows_needed(self, encoded: Any) -> Integers | None:
        """Return which statistics the potentials of an encoded batch depend on; None for all.

        Totals over all statistics are always available.
        """
        return None

    @abstractmethod
    def emission_rows(
        self, encoded: Any, table: DecayedTable, *, collapsed: bool, dtype: Any, n_threads: int
    ) -> EmissionRows:
        """Return the potentials of an encoded batch for the kernel, collapsed or mean-field.

        `dtype` is the precision in which the kernel computes.
        """

    @abstractmethod
    def sum_statistics(
        self,
        encoded: Any,
        responsibilities: Floats,
        *,
        n_threads: int,
        masses: Callable[[], Floats] | None = None,
    ) -> RowSums:
        """Return ``Σ_t responsibilities[t, k] t(x_t)`` of an encoded batch.

        It never builds (T, S).

        Parameters
        ----------
        encoded : object
            What `encode` returned.
        responsibilities : (T, K) array
        n_threads : int
        masses : callable, optional
            Returns the expected number of steps in each state, shape (K,), if the caller can
            compute it faster than by summing the responsibilities.  A family whose statistics sum
            to one at every step of the batch may take it for the totals of the sums.
        """

    def uncertainty(
        self,
        encoded: Any,
        responsibilities: Floats,
        rows: EmissionRows,
        table: DecayedTable,
        masses: Floats,
        *,
        n_threads: int,
    ) -> RowSums:
        """Return sums of a batch that say how far its statistics may be from their expectations.

        They add up over batches, and are what `expected_log_normalizer` takes.  By default they
        are one number per state, Σ_t r (1 − r) (log φ̂ − E[log p(x|φ)]) times its mass: the gap
        between the potentials (2) and (2') is ½ t(x)ᵀ ∇²a_g(λ) t(x) to second order, and ∇²a_g is
        inversely proportional to the mass in λ.

        Parameters
        ----------
        encoded : object
            What `encode` returned.
        responsibilities : (T, K) array
        rows : EmissionRows
            The collapsed potentials of the batch.
        table : DecayedTable
            The statistics that they come from.
        masses : (K,) array
            Expected number of steps of every state in these statistics.
        n_threads : int
        """
        other = self.emission_rows(
            encoded, table, collapsed=False, dtype=np.float64, n_threads=n_threads
        )
        gaps = masses * potential_gaps(rows, other, responsibilities)
        return RowSums(None, gaps[None], 1)

    def expected_log_normalizer(
        self, statistics: Floats, uncertainty: Floats, masses: Floats
    ) -> Floats:
        """Return E[a_g(λ° + T)] of uncertain statistics T, shape (K,), eq (27).

        Parameters
        ----------
        statistics : (K, S) array
            E[T].
        uncertainty : (U, K) array
            Sums of `uncertainty`, dense.
        masses : (K,) array
            Expected number of steps of every state.
        """
        xp = namespace(statistics)
        natural = xp.placed(self.prior(), like=statistics) + statistics
        used = masses > 1e-200
        return self.log_normalizer(natural) + xp.where(
            used, uncertainty[0] / xp.where(used, masses, 1.0), 0.0
        )

    def pooled_uncertainty(
        self, first: Floats, second: Floats, statistics: tuple[Floats, Floats], totals: Floats
    ) -> Floats:
        """Return about what `uncertainty` would be of states that are two of these each, eq (67).

        By default that of both.

        Parameters
        ----------
        first, second : (C, P, U) arrays
            Sums of `uncertainty` of the two states of P pairs, by state.
        statistics : two (P, S) arrays
            Their E[t].
        totals : (S,) array
            E[t] of all states together.
        """
        return first + second

    @abstractmethod
    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw data for sequences of states, from the posterior mean parameters, shape (T, ...)."""

    @abstractmethod
    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return posterior means under hmmlearn's names."""

    def check_natural(self, natural: Floats) -> None:
        """Raise a ValueError if λ is outside the domain of a_g; by default all must be positive."""
        if natural.min() <= 0.0:
            raise ValueError("statistics and prior are not positive together")

    @abstractmethod
    def config(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the arguments of `from_config`, as JSON values and as arrays, for model files."""

    @classmethod
    @abstractmethod
    def from_config(cls, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Family:
        """Rebuild a family from `config`."""
