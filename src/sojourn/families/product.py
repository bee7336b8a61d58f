"""Several families side by side, each for its own columns."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from sojourn.estimator import clone
from sojourn.families.base import EmissionRows, Family
from sojourn.families.blocks import (
    LogPotentials,
    natural_parameters,
    potential_rows,
    weighted_sums,
)
from sojourn.families.categorical import MISSING, Categorical
from sojourn.families.dense import DenseFamily, current
from sojourn.families.joint_rows import joint_rows, part_potentials
from sojourn.families.parts import PART_FAMILIES
from sojourn.families.start import assign_steps
from sojourn.families.table import DecayedTable, RowSums
from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.interface import Floats, Integers
from sojourn.sequences import Sequences


def _past(family: Product) -> int:
    """Return the number of earlier steps that an observation depends on: the most of the parts."""
    return max(part.past for part in family.parts)


def _latent(family: Product) -> bool:
    """Whether a part has unknowns of single steps."""
    return any(part.latent for part in family.parts)


def _call_seconds(family: Product) -> float:
    """About how long potentials take: the sum over the parts."""
    return sum(part.call_seconds for part in family.parts)


def _potentials(family: Product, natural: Floats, *, collapsed: bool) -> list[LogPotentials]:
    """Return eq (2) or (2') of every part for given λ, as a function of its observations."""
    pairs = zip(family.parts, _naturals(family.parts, natural), strict=True)
    return [part_potentials(part, own, collapsed=collapsed) for part, own in pairs]


def _start_sums(family: Product, x: Any, weights: Floats, rng: np.random.Generator) -> Floats:
    """Return the sums of the parts."""
    if not family.latent:
        return np.asarray(family.sum_statistics(x, weights, n_threads=1).values)
    pairs = zip(family.parts, x, strict=True)
    return np.concatenate(
        [
            part.start_sums(own, weights, rng)
            if part.latent
            else weighted_sums(part.statistics, own, weights, part.n_statistics)
            for part, own in pairs
        ]
    )


def _sum_given(
    family: Product,
    encoded: Any,
    responsibilities: Floats,
    table: DecayedTable,
    *,
    collapsed: bool,
    n_threads: int,
    masses: Callable[[], Floats] | None = None,
    bound: bool = False,
) -> tuple[RowSums, Any]:
    """Return the sums of the parts; unknowns of steps of different parts are independent."""
    if not family.latent:
        return family.sum_statistics(encoded, responsibilities, n_threads=n_threads), 0.0
    found = []
    own_tables = _naturals(family.parts, table.dense())
    for part, own, statistics in zip(family.parts, encoded, own_tables, strict=True):
        if part.latent:
            given: Any = _Statistics(statistics)
            found.append(
                part.sum_given(
                    own,
                    responsibilities,
                    given,
                    collapsed=collapsed,
                    n_threads=n_threads,
                    bound=bound,
                )
            )
        else:
            sums = _sums(part, own, responsibilities, n_threads)
            found.append((RowSums(None, sums, part.n_statistics), 0.0))
    values = namespace(encoded[0]).concatenate([sums.dense() for sums, _ in found], axis=0)
    return RowSums(None, values, family.n_statistics), sum(local for _, local in found)


def _sums(part: Family, x: Any, responsibilities: Floats, n_threads: int) -> Any:
    """Return the weighted sums of the statistics of a part, (S, K)."""
    if isinstance(part, DenseFamily):
        return part.sum_statistics(x, responsibilities, n_threads=n_threads).values
    return weighted_sums(part.statistics, x, responsibilities, part.n_statistics, n_threads)


def _canonical(family: Product, statistics: Floats) -> Floats:
    """Return the statistics with interchangeable parts of parts in the same order."""
    pairs = zip(family.parts, _naturals(family.parts, statistics), strict=True)
    return np.concatenate([part.canonical(own) for part, own in pairs], axis=1)


class Product(Family):
    r"""Families side by side: each describes its own columns, independent given the state.

    .. math::

        p(x_t \mid z_t = k) = \prod_i p_i(x_t^{(i)} \mid \phi_k^{(i)})

    λ and t(x) are those of the parts, concatenated, and a_g is the sum over the parts.  Each part
    handles missing values in its own way; in a column of symbols NaN and −1 are missing.

    Parameters
    ----------
    *parts : Family
        The families, in the order of their columns.
    columns : sequence of int, optional
        Number of columns of each part.  By default ``n_features`` of the part, and one for
        `Categorical`.  If one part leaves it open, it takes the remaining columns; if several do,
        each takes one.

    Notes
    -----
    Fitted parameters keep the names that they have in the part, unless two parts share a name; then
    they are called ``part0_means_``, ``part1_means_`` and so on.

    Examples
    --------
    >>> import sojourn as sj
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.normal(size=60), rng.poisson(3.0, 60), rng.integers(4, size=60)])
    >>> family = sj.Product(sj.DiagonalGaussian(), sj.Poisson(), sj.Categorical(4))
    >>> model = sj.HMM(2, family, random_state=0).fit(X, [30, 30])
    >>> model.means_.shape, model.lambdas_.shape, model.emissionprob_.shape
    ((2, 1), (2, 1), (2, 4))
    """

    step_ndim = 1
    table_dtype = "float64"

    past = property(_past)
    call_seconds = property(_call_seconds)
    latent = property(_latent)
    start_sums = _start_sums
    sum_given = _sum_given
    canonical = _canonical

    def __init__(self, *parts: Family, columns: Sequence[int] | None = None) -> None:
        self.parts = parts
        self.columns = columns

    # scikit-learn reads the names of parameters from the signature, which has none for the parts.

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parts as part0, part1, ..., and the columns."""
        named: dict[str, Any] = {f"part{i}": part for i, part in enumerate(self.parts)}
        if deep:
            for name, part in list(named.items()):
                inner = part.get_params(deep=True)
                named |= {f"{name}__{key}": value for key, value in inner.items()}
        return named | {"columns": self.columns}

    def set_params(self, **params: Any) -> Self:
        """Set whole parts, parameters of parts such as ``part0__scale``, or the columns."""
        parts = list(self.parts)
        for name, value in params.items():
            if name == "columns":
                self.columns = value
                continue
            own, _, rest = name.partition("__")
            if own not in {f"part{i}" for i in range(len(parts))}:
                raise ValueError(f"Product has no parameter {name!r}")
            at = int(own.removeprefix("part"))
            if rest:
                parts[at].set_params(**{rest: value})
            else:
                parts[at] = value
        self.parts = tuple(parts)
        return self

    def __sklearn_clone__(self) -> Product:
        return Product(*(clone(part) for part in self.parts), columns=self.columns)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        inside = [repr(part) for part in self.parts]
        if self.columns is not None:
            inside.append(f"columns={list(self.columns)}")
        return f"Product({', '.join(inside)})"

    @property
    def n_statistics(self) -> int:
        """Number of statistics S of all parts together."""
        return sum(part.n_statistics for part in self.parts)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of what `parameters` returns."""
        return tuple(name for names in part_names(self.parts) for name in names.values())

    def resolve(self, data: Sequences, n_states: int) -> Product:
        """Assign the columns to the parts, and resolve every part with its own."""
        if not self.parts or not all(isinstance(part, Family) for part in self.parts):
            raise TypeError(f"Product needs emission families, got {self.parts!r}")
        if any(isinstance(part, Product) for part in self.parts):
            raise TypeError("a Product cannot be part of a Product: put all parts in one")
        columns = assigned_columns(self, int(data.values.shape[1]))
        pairs = zip(self.parts, _split(self.parts, columns, data), strict=True)
        return Product(*(part.resolve(own, n_states) for part, own in pairs), columns=columns)

    def validate(self, data: Sequences) -> Sequences:
        """Check the columns of every part."""
        columns = _known_columns(self)
        if data.values.shape[1] != sum(columns):
            raise ValueError(
                f"the model has {sum(columns)} columns, the data have {data.values.shape[1]}"
            )
        for part, own in zip(self.parts, _split(self.parts, columns, data), strict=True):
            part.validate(own)
        return data

    def prior(self) -> Floats:
        """Return λ° of the parts, concatenated, shape (S,), or (K, S) if states differ."""
        priors = [part.prior() for part in self.parts]
        states = max((prior.shape[:-1] for prior in priors), key=len)
        return np.concatenate(
            [np.broadcast_to(prior, (*states, prior.shape[-1])) for prior in priors], axis=-1
        )

    def initial_statistics(
        self, data: Sequences, n_states: int, total_steps: float, rng: np.random.Generator
    ) -> Floats:
        """Return statistics of soft assignments by k-means++ on all columns together."""
        columns = [data.values[:, c] for c in _slices(_known_columns(self))]
        rows, weights = assign_steps(
            data.with_values(np.arange(data.n_steps)[:, None]),
            lambda steps: _points(self.parts, columns, steps[:, 0].astype(np.intp)),
            n_states,
            rng,
        )
        chosen = rows[:, 0].astype(np.intp)
        x = [part[chosen] for part in self.observations(data)]
        return self.start_sums(x, weights, rng).T * (total_steps / len(chosen))

    def observations(self, data: Sequences) -> Any:
        """Return the observations of the parts, one array each."""
        pairs = zip(self.parts, _split(self.parts, _known_columns(self), data), strict=True)
        return [part.observations(part.validate(own)) for part, own in pairs]

    def encode(self, data: Sequences) -> Any:
        """Return the observations of the parts."""
        return self.observations(data)

    def log_base_measure(self, x: Any) -> Floats:
        """Return the sum over the parts."""
        return _total(p.log_base_measure(own) for p, own in zip(self.parts, x, strict=True))

    def statistics(self, x: Any) -> Floats:
        """Return the statistics of the parts, concatenated."""
        pairs = zip(self.parts, x, strict=True)
        own_statistics = [part.statistics(own) for part, own in pairs]
        return namespace(x[0]).concatenate(own_statistics, axis=1)

    def log_normalizer(self, natural: Floats) -> Floats:
        """Return the sum over the parts."""
        pairs = zip(self.parts, _naturals(self.parts, natural), strict=True)
        return _total(part.log_normalizer(own) for part, own in pairs)

    def log_predictive(self, x: Any, natural: Floats) -> Floats:
        """Return the sum over the parts of eq (2)."""
        parts = zip(self.parts, x, _naturals(self.parts, natural), strict=True)
        return _total(part.log_predictive(own, n) for part, own, n in parts)

    def expected_log_likelihood(self, x: Any, natural: Floats) -> Floats:
        """Return the sum over the parts of eq (2')."""
        parts = zip(self.parts, x, _naturals(self.parts, natural), strict=True)
        return _total(part.expected_log_likelihood(own, n) for part, own, n in parts)

    def emission_rows(
        self, encoded: Any, table: DecayedTable, *, collapsed: bool, dtype: Any, n_threads: int
    ) -> EmissionRows:
        """Return one row of potentials per step."""
        if not is_tensor(encoded[0]):
            symbols = [part.n_statistics if part.step_ndim == 0 else None for part in self.parts]
            potentials = current(self, table, partial(_potentials, self), collapsed)
            return joint_rows(potentials, symbols, encoded, table.n_states, dtype, n_threads)
        natural = natural_parameters(self, table)
        function = self.log_predictive if collapsed else self.expected_log_likelihood
        return potential_rows(
            lambda chosen: function([own[chosen] for own in encoded], natural),
            _steps(encoded),
            max(1 if own.ndim == 1 else own.shape[1] for own in encoded),
            table.n_states,
            dtype,
            n_threads,
        )

    def sum_statistics(
        self,
        encoded: Any,
        responsibilities: Floats,
        *,
        n_threads: int,
        masses: Callable[[], Floats] | None = None,
    ) -> RowSums:
        """Return the weighted sums of the statistics of every part."""
        if not is_tensor(encoded[0]):
            pairs = zip(self.parts, encoded, strict=True)
            found = [_sums(part, own, responsibilities, n_threads) for part, own in pairs]
            return RowSums(None, np.concatenate(found), self.n_statistics)
        sums = weighted_sums(
            lambda chosen: self.statistics([own[chosen] for own in encoded]),
            _steps(encoded),
            responsibilities,
            self.n_statistics,
            n_threads,
        )
        return RowSums(None, sums, self.n_statistics)

    def check_natural(self, natural: Floats) -> None:
        """Check λ of every part."""
        for part, own in zip(self.parts, _naturals(self.parts, natural), strict=True):
            part.check_natural(own)

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw the columns of every part."""
        pairs = zip(self.parts, _naturals(self.parts, natural), strict=True)
        drawn = [part.sample(own, states, rng) for part, own in pairs]
        return np.concatenate([d.reshape(states.n_steps, -1) for d in drawn], axis=1)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return the parameters of the parts, renamed if names clash."""
        parts = zip(self.parts, _naturals(self.parts, natural), part_names(self.parts), strict=True)
        return {
            names[key]: value
            for part, own, names in parts
            for key, value in part.parameters(own).items()
        }

    def config(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what `from_config` needs."""
        values: dict[str, Any] = {"columns": list(_known_columns(self)), "parts": []}
        arrays: dict[str, NDArray[Any]] = {}
        for i, part in enumerate(self.parts):
            own_values, own_arrays = part.config()
            values["parts"].append({"name": type(part).__name__, "values": own_values})
            arrays |= {f"part{i}.{name}": array for name, array in own_arrays.items()}
        return values, arrays

    @classmethod
    def from_config(cls, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Product:
        """Rebuild the family from `config`."""
        parts = []
        for i, part in enumerate(values["parts"]):
            prefix = f"part{i}."
            own = {
                name.removeprefix(prefix): array
                for name, array in arrays.items()
                if name.startswith(prefix)
            }
            parts.append(PART_FAMILIES[part["name"]].from_config(part["values"], own))
        return cls(*parts, columns=values["columns"])


class _Statistics(NamedTuple):
    """The statistics of a part, as a table."""

    statistics: Any

    @property
    def n_states(self) -> int:
        """Number of states."""
        return len(self.statistics)

    def dense(self) -> Any:
        """Return the statistics, shape (K, S)."""
        return self.statistics


def assigned_columns(product: Product, n_columns: int) -> list[int]:
    """Return how many of the data's columns each part takes."""
    if product.columns is not None:
        columns = [int(n) for n in product.columns]
    else:
        known = [_own_columns(part) for part in product.parts]
        unknown = known.count(None)
        left = n_columns - sum(n for n in known if n is not None)
        columns = [(left if unknown == 1 else 1) if n is None else n for n in known]
    if len(columns) != len(product.parts) or sum(columns) != n_columns or min(columns) < 1:
        raise ValueError(
            f"the data have {n_columns} columns, the parts of the Product take {columns}: "
            "set the number of columns of each with columns=[...]"
        )
    return columns


def _own_columns(part: Family) -> int | None:
    """Return the number of columns that a part asks for."""
    return 1 if part.step_ndim == 0 else part.n_features


def _known_columns(product: Product) -> Sequence[int]:
    assert product.columns is not None, "the family has not seen data yet"
    return product.columns


def _slices(columns: Sequence[int]) -> list[slice]:
    ends = np.cumsum(columns)
    return [slice(int(e - n), int(e)) for e, n in zip(ends, columns, strict=True)]


def _split(parts: Sequence[Family], columns: Sequence[int], data: Sequences) -> list[Sequences]:
    """Return the columns of every part; symbols as one column of whole numbers."""
    out = []
    for part, chosen in zip(parts, _slices(columns), strict=True):
        values = data.values[:, chosen]
        if part.step_ndim == 0:
            values = values[:, 0]
            if values.dtype.kind == "f":
                values = np.where(np.isnan(values), MISSING, values)
        out.append(data.with_values(values))
    return out


def _naturals(parts: Sequence[Family], natural: Floats) -> list[Floats]:
    """Return λ of every part."""
    ends = np.cumsum([0, *(part.n_statistics for part in parts)])
    return [natural[:, begin:end] for begin, end in pairwise(ends.tolist())]


def _points(
    parts: Sequence[Family], columns: list[NDArray[Any]], chosen: NDArray[np.intp]
) -> Floats:
    """Return coordinates for k-means++: indicators of symbols, numbers on a compressed scale."""
    out = []
    for part, own in zip(parts, columns, strict=True):
        values = np.asarray(own[chosen], dtype=np.float64)
        if isinstance(part, Categorical):
            shown = min(part.n_statistics, 50)
            out.append((values == np.arange(shown)).astype(np.float64))
        else:
            middle = _medians(values)
            size = _medians(np.abs(values - middle))
            scaled = (values - middle) / np.where(size > 0, size, 1.0)
            out.append(np.sign(scaled) * np.log1p(np.abs(scaled)))
    return np.concatenate(out, axis=1)


def _medians(values: Floats) -> Floats:
    """Return the median of each column, zero where all of it is missing."""
    medians, known = np.zeros(values.shape[1]), ~np.isnan(values).all(axis=0)
    if known.any():
        medians[known] = np.nanmedian(values[:, known], axis=0)
    return medians


def part_names(parts: Sequence[Family]) -> list[dict[str, str]]:
    """Map the parameter names of every part to those of the Product."""
    counts = Counter(name for part in parts for name in part.parameter_names)
    return [
        {name: name if counts[name] == 1 else f"part{i}_{name}" for name in part.parameter_names}
        for i, part in enumerate(parts)
    ]


def _total(terms: Iterable[Floats]) -> Floats:
    return reduce(operator.add, terms)


def _steps(x: Any) -> Integers:
    """Return the numbers of the steps, as an array of the same kind as the observations."""
    return namespace(x[0]).arange(len(x[0]), dtype="int64", like=x[0])
