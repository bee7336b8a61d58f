"""One symbol out of a finite alphabet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn import memory
from sojourn.families.base import CompiledPasses
from sojourn.families.checks import LARGEST
from sojourn.families.symbol_prior import SymbolPrior
from sojourn.families.symbol_rows import SymbolRows, SymbolsPresent
from sojourn.families.table import RowSums
from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.cpu import symbols
from sojourn.kernels.cpu.together_values import ValueSweeps
from sojourn.kernels.interface import Floats, Integers
from sojourn.sequences import Sequences, position
from sojourn.vocabulary import Vocabulary

SEGMENT = 4
"""Number of steps of a segment in `Categorical.segment_statistics`."""

MISSING = -1
"""The symbol of a step that was not observed."""

_COUNTED_AT_ONCE = 2**20  # symbols


CONCENTRATION = 0.1
"""Prior count of a symbol, where none is given."""


class Categorical(SymbolRows):
    r"""Symbols 0, ..., V−1, with a Dirichlet prior on each state's distribution.

    .. math::

        \phi_k \sim \mathrm{Dirichlet}(\lambda^\circ), \qquad
        x_t \mid z_t = k \sim \mathrm{Categorical}(\phi_k)

    The symbol −1 is missing: such a step gives no evidence about its state.

    t(x) is the one-hot vector of x and a_g(λ) = Σ_w log Γ(λ_w) − log Γ(Σ_w λ_w), so that the
    collapsed potential (2) is the posterior mean (λ° + E[t_kw]) / (V λ° + E[t_k·]).

    Parameters
    ----------
    n_symbols : int, optional
        Size V of the alphabet.  By default that of the vocabulary, or one more than the largest
        symbol in the training data.
    concentration : float, (V,) array or (K, V) array
        Prior count λ° of every symbol.
    vocabulary : Vocabulary, optional
        For data given as strings.  By default `fit` builds one from string data.

    Examples
    --------
    >>> family = Categorical(n_symbols=3, concentration=1.0)
    >>> natural = np.array([[1.0, 1.0, 2.0]])
    >>> np.exp(family.log_predictive(np.array([2]), natural))
    array([[0.5]])
    """

    step_ndim = 0
    statistics_are_counts = True
    sums_rows = True
    parameter_names = ("emissionprob_",)

    def __init__(
        self,
        n_symbols: int | None = None,
        concentration: float | ArrayLike = CONCENTRATION,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self.n_symbols = n_symbols
        self.concentration = concentration
        self.vocabulary = vocabulary

    @property
    def n_statistics(self) -> int:
        """Number of statistics S, the size V of the alphabet."""
        return int(self.n_symbols)  # type: ignore[arg-type]

    def resolve(self, data: Sequences, n_states: int) -> Categorical:
        """Fill in the alphabet, and check the prior against it."""
        vocabulary, n_symbols = self.vocabulary, self.n_symbols
        source = f"n_symbols={n_symbols}"
        if vocabulary is None and data.values.dtype.kind in "UTO":
            vocabulary = Vocabulary.from_sequences(data)
        if n_symbols is None:
            if vocabulary is not None:
                n_symbols = len(vocabulary)
            else:
                # Negative symbols are left to `validate`, which reports their position.
                whole = _whole_numbers(data)
                at = int(whole.argmax())
                n_symbols = max(1, int(whole[at]) + 1)
                source = f"{position(at, data.offsets)}: symbol {whole[at]}"
        if isinstance(n_symbols, bool) or not isinstance(n_symbols, int | np.integer):
            raise TypeError(f"n_symbols must be a whole number, got {n_symbols!r}")
        if vocabulary is not None and len(vocabulary) > n_symbols:
            raise ValueError(f"n_symbols={n_symbols}, but the vocabulary has {len(vocabulary)}")
        if not 1 <= n_symbols < 2**31:
            raise ValueError(f"n_symbols must lie between 1 and 2**31 - 1, got {n_symbols}")
        if not memory.fits(n_symbols * n_states, 4):
            size = memory.gigabytes(n_symbols * n_states, 4)
            raise ValueError(
                f"{source} makes a table of {n_symbols} symbols for each of {n_states} states, "
                f"{size}, more than a quarter of the memory: number symbols from 0 without gaps, "
                "or give a vocabulary"
            )
        concentration = np.asarray(self.concentration, dtype=np.float64)
        if concentration.shape not in ((), (n_symbols,), (n_states, n_symbols)):
            raise ValueError(
                f"concentration has the shape {concentration.shape}; a number, ({n_symbols},) "
                f"or ({n_states}, {n_symbols}) was expected"
            )
        if not ((concentration > 0).all() and (concentration <= LARGEST).all()):
            raise ValueError(f"concentration must be positive and finite, at most {LARGEST:g}")
        return Categorical(
            int(n_symbols),
            float(concentration) if concentration.ndim == 0 else concentration.copy(),
            vocabulary,
        )

    def with_alphabet(self, n_symbols: int | None, vocabulary: Vocabulary | None) -> Categorical:
        """Take size and words of the alphabet from a file, unless they were given."""
        if self.vocabulary is not None:
            return self
        if self.n_symbols is None and n_symbols is None and vocabulary is None:
            raise ValueError(
                "the number of symbols is not known before the data are read: give n_symbols or "
                "a vocabulary"
            )
        known = self.n_symbols if self.n_symbols is not None else n_symbols
        return Categorical(known, self.concentration, vocabulary)

    def validate(self, data: Sequences) -> Sequences:
        """Return symbols as int32; strings are encoded by the vocabulary."""
        if data.values.dtype.kind in "UTO":
            if self.vocabulary is None:
                raise ValueError("the data are strings, but the model has no vocabulary")
            return self.vocabulary.encode(data)
        whole = _whole_numbers(data)
        outside = (whole < MISSING) | (whole >= self.n_statistics)
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            raise ValueError(
                f"{position(at, data.offsets)}: symbol {whole[at]} is outside the alphabet "
                f"0..{self.n_statistics - 1} (n_symbols={self.n_symbols})"
            )
        return data.with_values(np.ascontiguousarray(whole, dtype=np.int32))

    def prior(self) -> Floats:
        """Return λ°, shape (V,) or (K, V)."""
        prior = np.asarray(self.concentration, dtype=np.float64)
        return np.full(self.n_statistics, float(prior)) if prior.ndim == 0 else prior

    @property
    def has_usual_prior(self) -> bool:
        """Whether `concentration` is the default."""
        return np.ndim(self.concentration) == 0 and bool(self.concentration == CONCENTRATION)

    def learned_prior(self, *, seen: bool, new: bool) -> SymbolPrior | None:
        """Return a prior to be learned, if `concentration` is one number for all symbols."""
        if not (seen or new) or np.ndim(self.concentration) > 0:
            return None
        return SymbolPrior(self.n_statistics, float(self.prior()[0]), seen=seen, new=new)

    def with_prior(self, prior: Floats) -> Categorical:
        """Return the family with other prior counts."""
        return Categorical(self.n_symbols, prior, self.vocabulary)

    def initial_statistics(
        self, data: Sequences, n_states: int, total_steps: float, rng: np.random.Generator
    ) -> Floats:
        """Draw E[t_kw] from an exponential distribution with mean ΣT / (K V)."""
        shape = (self.n_statistics, n_states)
        draws = rng.standard_exponential(shape, dtype=np.float32)
        draws *= total_steps / (n_states * self.n_statistics)
        return draws.T

    def segment_statistics(
        self, data: Sequences, n_states: int, total_steps: float, rng: np.random.Generator
    ) -> Floats:
        """Return the symbols of a short segment for each state, mixed with those of all the data.

        Successive steps often are in one state, or in few: such states differ more than those from
        exponential draws, and reach better optima.
        """
        symbols = np.asarray(data.values)
        counts = _occurrences(symbols, self.n_statistics)
        overall = counts / max(1, int(counts.sum()))
        chosen = rng.integers(len(data), size=n_states)
        begins = data.offsets[chosen]
        room = np.maximum(data.lengths[chosen] - SEGMENT, 0)
        begins = begins + rng.integers(room + 1)
        ends = np.minimum(begins + SEGMENT, data.offsets[chosen + 1])
        shares = np.tile(0.5 * overall, (n_states, 1))
        for k, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            own = symbols[begin:end]
            own = own[own != MISSING]
            # If all symbols of the segment are missing, the state has those of all the data.
            np.add.at(shares[k], own, 0.5 / max(1, len(own)))
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
        return shares * (total_steps / n_states)

    def log_base_measure(self, x: NDArray[Any]) -> Floats:
        """Return log h(x) = 0."""
        return namespace(x).zeros(len(x), "float64", like=x)

    def statistics(self, x: NDArray[Any]) -> Floats:
        """Return one-hot rows, zeros for a missing symbol."""
        xp = namespace(x)
        alphabet = xp.arange(self.n_statistics, dtype="int32", like=x)
        return xp.astype(x[:, None] == alphabet, "float64")

    def log_predictive(self, x: NDArray[Any], natural: Floats) -> Floats:
        """Return log(λ_x / Σ_w λ_w)."""
        xp = namespace(natural)
        log = (xp.log(natural[:, x]) - xp.log(natural.sum(axis=1))[:, None]).T
        return log * (x != MISSING)[:, None]

    def expected_log_likelihood(self, x: NDArray[Any], natural: Floats) -> Floats:
        """Return ψ(λ_x) − ψ(Σ_w λ_w)."""
        xp = namespace(natural)
        log = (xp.digamma(natural[:, x]) - xp.digamma(natural.sum(axis=1))[:, None]).T
        return log * (x != MISSING)[:, None]

    def observations(self, data: Sequences) -> NDArray[Any]:
        """Return the symbols."""
        return data.values

    def encode(self, data: Sequences) -> SymbolsPresent:
        """Return the distinct symbols, and the index of every step among them."""
        # numba would compile once more for a read-only array, which is another type.
        x = data.values if data.values.flags.writeable else data.values.copy()
        least = x.min()
        if least < MISSING or x.max() >= self.n_statistics:  # compiled code does not check again
            raise ValueError(f"a symbol is outside the alphabet 0..{self.n_statistics - 1}")
        if least >= 0:
            return SymbolsPresent(*symbols.distinct(x, self.n_statistics), False)
        missing = x == MISSING
        rows, places = symbols.distinct(np.where(missing, 0, x), self.n_statistics)
        n_rows = self.n_statistics if rows is None else len(rows)
        return SymbolsPresent(rows, np.where(missing, n_rows, places).astype(np.int32), True)

    def compiled_passes(self, encoded: SymbolsPresent, offsets: Integers) -> CompiledPasses | None:
        """Return compiled passes, where there are more steps than symbols."""
        n_symbols = self.n_statistics
        if len(encoded.places) < n_symbols:
            return None
        rows = np.arange(n_symbols) if encoded.rows is None else encoded.rows
        prior, missing = self.prior(), int(encoded.has_missing)
        log_scale = np.zeros(len(rows) + missing)

        def tables(counts: Floats) -> tuple[Floats, Floats]:
            natural = prior + counts
            table = (natural / natural.sum(axis=1, keepdims=True)).T[rows]
            ones = np.ones((missing, len(counts)))
            return np.concatenate([table, ones]) if missing else table, log_scale

        own = np.concatenate([np.eye(n_symbols)[rows], np.zeros((missing, n_symbols))])
        return ValueSweeps(offsets, encoded.places, own, tables)

    def sum_statistics(
        self,
        encoded: Any,
        responsibilities: Floats,
        *,
        n_threads: int,
        masses: Callable[[], Floats] | None = None,
    ) -> RowSums:
        """Return the responsibilities summed by symbol.

        Without a missing symbol the totals of the sums are the state masses; tensors use them.
        """
        if is_tensor(responsibilities):
            from sojourn.families import tensors

            return tensors.sum_statistics(self, encoded, responsibilities, masses)
        n_rows = self.n_statistics if encoded.rows is None else len(encoded.rows)
        n_sums = n_rows + encoded.has_missing
        sums = symbols.sum_by_row(encoded.places, responsibilities, n_sums, n_threads=n_threads)
        return RowSums(encoded.rows, sums[:n_rows], self.n_statistics)

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw a symbol for each state, by inversion."""
        drawn = np.empty(states.n_steps, dtype=np.int32)
        for k in np.unique(states.values):
            steps = np.flatnonzero(states.values == k)
            cumulative = np.cumsum(natural[k])
            u = rng.random(len(steps)) * cumulative[-1]
            drawn[steps] = np.searchsorted(cumulative, u, side="right")
        return np.minimum(drawn, self.n_statistics - 1)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``emissionprob_``, shape (K, V)."""
        return {"emissionprob_": natural / natural.sum(axis=1, keepdims=True)}

    def config(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the alphabet, the prior and the vocabulary."""
        values: dict[str, Any] = {"n_symbols": self.n_symbols}
        arrays: dict[str, NDArray[Any]] = {
            "concentration": np.asarray(self.concentration, dtype=np.float64)
        }
        if self.vocabulary is not None:
            values["unknown"] = self.vocabulary.unknown
            arrays["words"], arrays["word_offsets"] = self.vocabulary.to_arrays()
        return values, arrays

    @classmethod
    def from_config(cls, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild the family from `config`."""
        vocabulary = None
        if "words" in arrays:
            vocabulary = Vocabulary.from_arrays(
                arrays["words"], arrays["word_offsets"], values["unknown"]
            )
        prior = arrays["concentration"]
        concentration = float(prior) if prior.ndim == 0 else prior
        return cls(values["n_symbols"], concentration, vocabulary)


def _whole_numbers(data: Sequences) -> NDArray[np.integer]:
    """Return the data as whole numbers; errors name the sequence and the position."""
    values = data.values
    if values.dtype.kind in "iub":
        return values
    if values.dtype.kind != "f":
        raise TypeError(f"symbols must be whole numbers or strings, got {values.dtype}")
    values = values.astype(np.float64, copy=False)
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(values) < 2**53) | (values != np.floor(values))
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"{position(at, data.offsets)}: {values[at]} is not a symbol, which is a whole number "
            "or a word; for measurements there is Gaussian"
        )
    return values.astype(np.int64)


def _occurrences(symbols: NDArray[Any], n_symbols: int) -> NDArray[np.int64]:
    """Count symbols, without those missing; in blocks that stay in the cache, as it copies."""
    counts = np.zeros(n_symbols - MISSING, dtype=np.int64)
    for begin in range(0, len(symbols), _COUNTED_AT_ONCE):
        block = symbols[begin : begin + _COUNTED_AT_ONCE] - MISSING
        counts += np.bincount(block, minlength=len(counts))
    return counts[-MISSING:]
