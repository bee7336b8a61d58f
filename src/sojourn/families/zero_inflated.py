"""Columns with more zeros than a family has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.families.blocks import LogPotentials, natural_parameters
from sojourn.families.checks import check_positive, column_vector
from sojourn.families.columns import ColumnFamily, log_beta
from sojourn.families.nested import NestedFamily
from sojourn.families.table import DecayedTable, RowSums
from sojourn.families.tabled import TabledPotentials
from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class ZeroInflated(NestedFamily):
    r"""An entry is zero with a probability π, and otherwise follows a family of columns.

    .. math::

        \pi_{kd} \sim \mathrm{Beta}(\tfrac12, \tfrac12), \qquad
        p(x_{td} \mid z_t = k) = \pi_{kd} [x_{td} = 0] + (1 - \pi_{kd})\, p(x_{td} \mid \phi_{kd})

    A zero comes from the point mass with the probability ρ = π̂ / (π̂ + (1 − π̂) φ̂(0)), the same
    for all zeros of a state and column, so that the statistics are those of the family less
    ρ times those of its zeros, eq (52).  Families of positive numbers have no zeros of their own:
    then ρ = 1, and a state knows how often, and by how much, something is positive (rainfall, for
    example).  NaN is a missing entry.

    Parameters
    ----------
    family : Family
        A family of columns: `Poisson`, `NegativeBinomial`, `Gamma`, `Exponential`, `LogNormal` and
        so on.
    prior_count : float
        ½ by default: the prior counts of both kinds of entries.

    Examples
    --------
    >>> import sojourn as sj
    >>> rng = np.random.default_rng(0)
    >>> X = rng.poisson(5.0, 400) * (rng.random(400) < 0.6)
    >>> model = sj.HMM(1, sj.ZeroInflated(sj.Poisson()), random_state=0).fit(X, [200, 200])
    >>> model.zero_probs_.round(1), model.lambdas_.round()
    (array([[0.4]]), array([[5.]]))
    """

    def __init__(self, family: ColumnFamily, prior_count: float = 0.5) -> None:
        self.family: ColumnFamily = family
        self.prior_count = prior_count

    @property
    def n_statistics(self) -> int:
        """Number of statistics: two counts per column, and those of the family."""
        return 2 * self.features + self.family.n_statistics

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the family's parameters, and of π."""
        return ("zero_probs_", *self.family.parameter_names)

    def resolve(self, data: Sequences, n_states: int) -> ZeroInflated:
        """Take what depends on the data from entries that are not zero."""
        if not isinstance(self.family, ColumnFamily):
            raise TypeError(f"ZeroInflated takes a family of columns, got {self.family!r}")
        count = float(column_vector("prior_count", self.prior_count, 1)[0])
        positive = self.family.discrete or _is_positive(self.family)
        if not positive:
            raise TypeError(f"ZeroInflated takes counts or positive numbers, not {self.family!r}")
        resolved = self.resolved_family(_without_zeros(data), n_states)
        assert isinstance(resolved, ColumnFamily)
        return self.changed(family=resolved, prior_count=count)

    def validate(self, data: Sequences) -> Sequences:
        """Check the entries that are not zero."""
        data = check_positive(data, self.features, zero=True)
        return self.family.validate(_without_zeros(data)).with_values(data.values)

    def observations(self, data: Sequences) -> NDArray[Any]:
        """Return the values in double precision."""
        return np.asarray(data.values, dtype=np.float64)

    def points(self, x: Floats) -> Floats:
        """Return logarithms, with zeros below all others."""
        return np.log1p(x) if self.family.discrete else np.log(np.where(x > 0.0, x, _least(x)))

    def prior(self) -> Floats:
        """Return λ°."""
        return np.concatenate([np.full(2 * self.features, self.prior_count), self.family.prior()])

    def log_base_measure(self, x: Floats) -> Floats:
        """Return log h(x) of the entries that are not zero."""
        return self.family.log_base_measure(_hidden(x))

    def log_normalizer(self, natural: Floats) -> Floats:
        """Return the sum over columns."""
        zeros, others, inner = self.split(natural)
        return log_beta(zeros, others).sum(axis=1) + self.family.log_normalizer(inner)

    def split(self, natural: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the counts of zeros and others (K, D), and λ of the family."""
        n = self.features
        return natural[:, :n], natural[:, n : 2 * n], natural[:, 2 * n :]

    def at_zero(self, natural: Floats, *, collapsed: bool) -> tuple[Floats, Floats, Floats]:
        """Return log potentials of a zero, log ρ and log(1 − π̂), shape (K, D) each."""
        xp = namespace(natural)
        zeros, others, inner = self.split(natural)
        total = zeros + others
        if collapsed:
            log_zero, log_other = xp.log(zeros / total), xp.log(others / total)
        else:
            log_zero = xp.digamma(zeros) - xp.digamma(total)
            log_other = xp.digamma(others) - xp.digamma(total)
        if not self.has_zeros:
            return log_zero, xp.zeros_like(log_zero), log_other
        own = log_other + self._own_zeros(inner, collapsed=collapsed)
        top = xp.maximum(log_zero, own)
        both = top + xp.log(xp.exp(log_zero - top) + xp.exp(own - top))
        return both, log_zero - both, log_other

    @property
    def has_zeros(self) -> bool:
        """Whether zero is in the support of the family inside."""
        return self.family.discrete

    def _own_zeros(self, inner: Floats, *, collapsed: bool) -> Floats:
        """Return the family's log potential of a zero, shape (K, D)."""
        xp, n = namespace(inner), self.features
        entry = self.family.entry_log_predictive if collapsed else self.family.entry_expected
        zero = xp.zeros((1, 1, n), "float64", like=inner)
        return entry(zero, slice(None), *self.family.parts(inner))[0]

    def potentials(self, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return eq (2) or (2') as a function of x."""
        zero, _, log_other = self.at_zero(natural, collapsed=collapsed)
        function = self.family.potentials(self.split(natural)[2], collapsed=collapsed)

        def plain(x: Floats) -> Floats:
            xp = namespace(x)
            zeros = xp.astype(x == 0.0, "float64")
            others = xp.astype(x > 0.0, "float64")
            return function(_hidden(x)) + zeros @ zero.T + others @ log_other.T

        if not isinstance(function, TabledPotentials) or is_tensor(natural):
            return plain

        def column(values: Floats, d: int) -> Floats:
            return np.where(values == 0.0, zero[:, d], function.column(values, d) + log_other[:, d])

        return TabledPotentials(plain, column, len(natural))

    def numbers_per_step(self, n_columns: int) -> int:
        """Return how many numbers a step takes for every state."""
        return self.family.numbers_per_step(n_columns)

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
        """Return the family's sums less those of zeros from the point mass, eq (52)."""
        natural = natural_parameters(self, table)
        _, log_share, _ = self.at_zero(natural, collapsed=collapsed)
        return self.sums_at(encoded, responsibilities, log_share, n_threads, bound=bound)

    def sums_at(
        self, x: Floats, r: Floats, log_share: Floats, n_threads: int, *, bound: bool
    ) -> tuple[RowSums, Any]:
        """Return the sums, given which share of the zeros is of the point mass (K, D)."""
        xp = namespace(x)
        weights = xp.astype(r, "float64")
        zeros = xp.astype(x == 0.0, "float64").T @ weights
        others = xp.astype(x > 0.0, "float64").T @ weights
        share = xp.exp(log_share).T  # (D, K)
        own = self.family.sum_statistics(_hidden(x), weights, n_threads=n_threads).dense()
        local: Any = 0.0
        if self.has_zeros:
            kept = zeros * (1.0 - share)
            row = xp.zeros((1, self.features), "float64", like=weights)
            at_zero = self.family.statistics(row).reshape(-1, self.features)
            own = own + (at_zero[:, :, None] * kept[None]).reshape(own.shape)
            others = others + kept
            if bound:
                entropy = -_xlogx(share) - _xlogx(1.0 - share)
                local = (zeros * entropy).sum() + (kept * self.family.entry_log_base(row).T).sum()
        sums = xp.concatenate([zeros * share, others, own], axis=0)
        return RowSums(None, sums, self.n_statistics), local

    def start_sums(self, x: Any, weights: Floats, rng: np.random.Generator) -> Floats:
        """Return sums in which half of the zeros are the family's, if it has any."""
        share = np.log(0.5 if self.has_zeros else 1.0)
        log_share = np.full((weights.shape[1], self.features), share)
        return self.sums_at(x, weights, log_share, 1, bound=False)[0].values

    def check_natural(self, natural: Floats) -> None:
        """Check counts, and λ of the family."""
        zeros, others, inner = self.split(natural)
        if min(zeros.min(), others.min()) <= 0.0:
            raise ValueError("counts of zeros and others are not positive")
        self.family.check_natural(inner)

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw entries at the posterior mean parameters."""
        drawn = np.asarray(self.family.sample(self.split(natural)[2], states, rng), np.float64)
        chances = self.parameters(natural)["zero_probs_"][states.values]
        return np.where(rng.random(drawn.shape) < chances, 0.0, drawn)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``zero_probs_`` (π, shape (K, D)), and the family's parameters."""
        zeros, others, inner = self.split(natural)
        return {"zero_probs_": zeros / (zeros + others), **self.family.parameters(inner)}


def _is_positive(family: ColumnFamily) -> bool:
    """Whether the data of a family are positive numbers."""
    values = Sequences(np.full((1, 1), -1.0), [0, 1])
    try:
        type(family)().resolve(values, 1)
    except ValueError:
        return True
    return False


def _without_zeros(data: Sequences) -> Sequences:
    """Return the data with zeros as missing entries."""
    values = np.asarray(data.values)
    return data.with_values(np.where(values == 0, np.nan, values.astype(np.float64)))


def _hidden(x: Floats) -> Floats:
    """Return x with zeros as missing entries."""
    return namespace(x).where(x == 0.0, np.nan, x)


def _least(x: Floats) -> Floats:
    """Return a number below the positive ones of each column."""
    positive = np.where(x > 0.0, x, np.inf).min(axis=0)
    return np.where(np.isfinite(positive), positive, 1.0) * 0.1


def _xlogx(p: Floats) -> Floats:
    return namespace(p).xlogy(p, p)
