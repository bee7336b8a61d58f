"""States that are mixtures of distributions of one family."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.families.base import EmissionRows
from sojourn.families.blocks import TENSOR_NUMBERS, LogPotentials, natural_parameters
from sojourn.families.checks import column_vector
from sojourn.families.dense import DenseFamily
from sojourn.families.integrated import log_sum_exp
from sojourn.families.nested import NestedFamily
from sojourn.families.start import sample_sequences, soft_assignments, standardized
from sojourn.families.table import DecayedTable, RowSums
from sojourn.families.tabled import TabledPotentials
from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences

_BLOCK_NUMBERS = 2**19  # responsibilities of components in memory at the same time, on a CPU


class Mixture(NestedFamily):
    r"""Steps of a state come from one of several distributions of a family, its components.

    .. math::

        w_k \sim \mathrm{Dirichlet}(\alpha^\circ, \dots, \alpha^\circ), \quad
        c_t \mid z_t = k \sim \mathrm{Categorical}(w_k), \quad
        x_t \mid z_t = k, c_t = c \sim p(x \mid \phi_{kc})

    λ has the counts of the components, and λ of each.  The potential of a state is
    Σ_c ŵ_kc φ̂_kc(x), collapsed or mean-field, and

    .. math:: \rho_{tkc} = \hat w_{kc} \hat\phi_{kc}(x_t) / \textstyle\sum_{c'}
              \hat w_{kc'} \hat\phi_{kc'}(x_t)

    the share of a step in state k that its component c takes: the statistics of components are
    Σ_t r_tk ρ_tkc t(x_t), eq (51).  A missing step has no component.

    Parameters
    ----------
    family : Family
        The family of the components.
    n_components : int
        Number of components C of each state.
    concentration : float
        α°.

    Examples
    --------
    >>> import sojourn as sj
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(10.0 * rng.integers(2, size=300), 1.0)
    >>> family = sj.Mixture(sj.DiagonalGaussian(), n_components=2)
    >>> model = sj.HMM(1, family, random_state=0).fit(X, [100] * 3)
    >>> model.means_.shape, np.sort(model.means_[0, :, 0]).round() + 0.0
    ((1, 2, 1), array([ 0., 10.]))
    """

    def __init__(
        self, family: DenseFamily, n_components: int = 2, concentration: float = 0.5
    ) -> None:
        self.family = family
        self.n_components = n_components
        self.concentration = concentration

    @property
    def n_statistics(self) -> int:
        """Number of statistics: a count, and those of the family, for every component."""
        return self.n_components * (1 + self.family.n_statistics)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the family's parameters, and of the weights."""
        return ("weights_", *self.family.parameter_names)

    def resolve(self, data: Sequences, n_states: int) -> Mixture:
        """Take what depends on the data from the data."""
        n = self.n_components
        if not isinstance(n, int | np.integer) or not 1 <= n <= 1000:
            raise ValueError(f"n_components must be a whole number from 1 to 1000, got {n!r}")
        concentration = float(column_vector("concentration", self.concentration, 1)[0])
        family = self.resolved_family(data, n_states * int(n))
        return self.changed(family=family, n_components=int(n), concentration=concentration)

    def prior(self) -> Floats:
        """Return λ°: the same for all components."""
        own = self.family.prior()
        if own.ndim != 1:
            raise ValueError("the family of a Mixture has one prior for all states")
        n = self.n_components
        return np.concatenate([np.full(n, self.concentration), np.tile(own, n)])

    def log_normalizer(self, natural: Floats) -> Floats:
        """Return the sum over components, and that of the Dirichlet distribution."""
        xp = namespace(natural)
        counts, inner = self.split(natural)
        own = self.family.log_normalizer(inner).reshape(-1, self.n_components).sum(axis=1)
        return own + xp.gammaln(counts).sum(axis=1) - xp.gammaln(counts.sum(axis=1))

    def split(self, natural: Floats) -> tuple[Floats, Floats]:
        """Return the counts of components (K, C), and λ of all components (K C, S)."""
        n = self.n_components
        return natural[:, :n], natural[:, n:].reshape(len(natural) * n, -1)

    def log_weights(self, counts: Floats, *, collapsed: bool) -> Floats:
        """Return log ŵ, or E[log w], of every component, shape (K C,)."""
        xp = namespace(counts)
        total = counts.sum(axis=1)[:, None]
        if collapsed:
            return (xp.log(counts) - xp.log(total)).reshape(-1)
        return (xp.digamma(counts) - xp.digamma(total)).reshape(-1)

    def components(self, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return log ŵ_kc φ̂_kc(x) as a function of x, shape (T, K C)."""
        counts, inner = self.split(natural)
        weights = self.log_weights(counts, collapsed=collapsed)
        function = self.family.potentials(inner, collapsed=collapsed)
        return lambda x: function(x) + weights

    def potentials(self, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return log Σ_c ŵ_kc φ̂_kc(x) as a function of x."""
        counts, inner = self.split(natural)
        n = (len(natural), self.n_components)
        weights = self.log_weights(counts, collapsed=collapsed)
        function = self.family.potentials(inner, collapsed=collapsed)

        def mixed(logs: Floats) -> Floats:
            return log_sum_exp((logs + weights).reshape(len(logs), *n))

        def plain(x: Floats) -> Floats:
            # A missing step has the potential one: mean-field weights do not sum to one.
            rows = mixed(function(x))
            return rows * self.present(x)[:, None]

        if is_tensor(natural) or self.features > 1:
            return plain
        if isinstance(function, TabledPotentials) and not function.totals:
            return TabledPotentials(plain, lambda x, d: mixed(function.column(x, d)), n[0])
        return plain

    def numbers_per_step(self, n_columns: int) -> int:
        """Return how many numbers a step takes for every state."""
        return self.n_components * self.family.numbers_per_step(n_columns)

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
        """Return the sums over components, eq (51), and the entropy of their choice."""
        n, n_states = self.n_components, responsibilities.shape[1]
        natural = natural_parameters(self, table)
        xp, function = namespace(natural), self.components(natural, collapsed=collapsed)
        sums, counts, entropy = None, xp.zeros((n_states * n,), "float64", like=natural), 0.0
        for x, r in self.blocks(encoded, responsibilities):
            logs = function(x).reshape(len(x), n_states, n)
            logs = logs - log_sum_exp(logs)[..., None]
            r = xp.astype(r, "float64") * self.present(x)[:, None]
            shares = r[..., None] * xp.exp(logs)
            if bound:
                entropy = entropy - (shares * xp.where(shares > 0.0, logs, 0.0)).sum()
            shares = shares.reshape(len(x), n_states * n)
            counts = counts + shares.sum(axis=0)
            own = self.family.sum_statistics(x, shares, n_threads=n_threads).dense()
            sums = own if sums is None else sums + own
        assert sums is not None, "a batch has at least one step"
        return RowSums(None, self.packed(counts, sums, n_states), self.n_statistics), entropy

    def blocks(self, x: Floats, responsibilities: Floats) -> Iterator[tuple[Floats, Floats]]:
        """Yield steps and responsibilities, as many as fit in memory with their components."""
        width = responsibilities.shape[1] * self.numbers_per_step(x.shape[1])
        size = max(64, (TENSOR_NUMBERS if is_tensor(x) else _BLOCK_NUMBERS) // width)
        for begin in range(0, len(x), size):
            yield x[begin : begin + size], responsibilities[begin : begin + size]

    def packed(self, counts: Floats, sums: Floats, n_states: int) -> Floats:
        """Return the statistics (S, K) from counts (K C,) and sums of the components (S', K C)."""
        xp, n = namespace(sums), self.n_components
        by_state = xp.transpose(sums.reshape(len(sums), n_states, n), (2, 0, 1))
        own = by_state.reshape(n * len(sums), n_states)
        return xp.concatenate([counts.reshape(n_states, n).T, own], axis=0)

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
        """Return Σ_t r ρ (1 − r ρ) (log φ̂ − E[log p(x|φ)]) of all components of a state."""
        natural = natural_parameters(self, table)
        xp, n = namespace(natural), self.n_components
        one, other = (self.components(natural, collapsed=flag) for flag in (True, False))
        total = xp.zeros((len(natural),), "float64", like=natural)
        for x, r in self.blocks(encoded, responsibilities):
            logs = one(x).reshape(len(x), -1, n)
            gaps = logs - other(x).reshape(len(x), -1, n)
            shares = xp.exp(logs - log_sum_exp(logs)[..., None])
            shares = shares * (xp.astype(r, "float64") * self.present(x)[:, None])[..., None]
            total = total + (shares * (1.0 - shares) * gaps).sum(axis=2).sum(axis=0)
        return RowSums(None, (masses * total)[None], 1)

    def initial_statistics(
        self, data: Sequences, n_states: int, total_steps: float, rng: np.random.Generator
    ) -> Floats:
        """Return statistics of clusters of steps; those that take turns become a state.

        Components of a state may be far from each other, and close to those of another: which
        belong together shows in how often one follows the other.
        """
        data = sample_sequences(data, rng)
        x = self.observations(data)
        n = self.n_components
        weights = soft_assignments(standardized(self.family.points(x)), n_states * n, rng)
        nearest = weights.argmax(axis=1)
        follows = np.ones(len(x), np.bool_)
        follows[data.offsets[:-1]] = False
        later = np.flatnonzero(follows)
        turns = np.zeros((n_states * n, n_states * n))
        np.add.at(turns, (nearest[later - 1], nearest[later]), 1.0)
        weights = weights[:, grouped_clusters(turns, n).ravel()] * self.present(x)[:, None]
        sums = self.family.sum_statistics(x, weights, n_threads=1).dense()
        packed = self.packed(weights.sum(axis=0), np.asarray(sums), n_states)
        return self.canonical(packed.T * (total_steps / len(x)))

    def start_sums(self, x: Any, weights: Floats, rng: np.random.Generator) -> Floats:
        """Return the sums of clusters of the steps of a state."""
        n, n_states = self.n_components, weights.shape[1]
        shares = np.full((len(x), n_states, n), 1.0 / n)
        points = standardized(self.family.points(x))
        nearest = weights.argmax(axis=1)
        for k in range(n_states):
            own = np.flatnonzero(nearest == k)
            if len(own):
                shares[own, k] = soft_assignments(points[own], n, rng)
        shares *= weights[:, :, None] * self.present(x)[:, None, None]
        flat = shares.reshape(len(x), n_states * n)
        sums = self.family.sum_statistics(x, flat, n_threads=1).dense()
        packed = self.packed(flat.sum(axis=0), np.asarray(sums), n_states)
        return self.canonical(packed.T).T

    def canonical(self, statistics: Floats) -> Floats:
        """Return statistics with the components of every state in the order of their parameters.

        States that are to be merged then have like components at the same place.
        """
        natural = statistics + self.prior()
        _, inner = self.split(natural)
        first = next(iter(self.family.parameters(inner).values())).reshape(len(inner), -1)
        size = np.abs(first).max(axis=0)
        keys = (first / np.where(size > 0.0, size, 1.0) / 1.7 ** np.arange(first.shape[1])).sum(1)
        order = np.argsort(keys.reshape(-1, self.n_components), axis=1, kind="stable")
        counts, own = self.split(statistics)
        own = own.reshape(len(statistics), self.n_components, -1)
        counts = np.take_along_axis(counts, order, axis=1)
        own = np.take_along_axis(own, order[:, :, None], axis=1)
        return np.concatenate([counts, own.reshape(len(statistics), -1)], axis=1)

    def check_natural(self, natural: Floats) -> None:
        """Check counts, and λ of every component."""
        counts, inner = self.split(natural)
        if counts.min() <= 0.0:
            raise ValueError("counts of components are not positive")
        self.family.check_natural(inner)

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw components, and data from them, at the posterior mean parameters."""
        counts, inner = self.split(natural)
        ends = np.cumsum(counts, axis=1)
        u = rng.random(states.n_steps) * ends[states.values, -1]
        chosen = (ends[states.values] < u[:, None]).sum(axis=1)
        chosen = np.minimum(chosen, self.n_components - 1)
        return self.family.sample(
            inner, states.with_values(states.values * self.n_components + chosen), rng
        )

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``weights_`` (K, C), and the family's parameters with an axis for components."""
        counts, inner = self.split(natural)
        shape = (len(natural), self.n_components)
        return {
            "weights_": counts / counts.sum(axis=1, keepdims=True),
            **{
                name: value.reshape(*shape, *value.shape[1:])
                for name, value in self.family.parameters(inner).items()
            },
        }


def grouped_clusters(turns: Floats, size: int) -> NDArray[np.intp]:
    """Put clusters that follow each other more often than by chance into groups of a size.

    Parameters
    ----------
    turns : (M, M) array
        How often a step in one cluster is followed by one in another.
    size : int
        Number of clusters in a group; M is a multiple of it.

    Returns
    -------
    (M / size, size) array
        The clusters of every group.

    Examples
    --------
    >>> grouped_clusters(np.array([[5, 1, 9, 0], [0, 5, 1, 8], [9, 1, 5, 0], [1, 9, 0, 5]]), 2)
    array([[0, 2],
           [1, 3]])
    """
    both = turns + turns.T
    mass = both.sum(axis=1) + 1e-9
    lift = both / (mass[:, None] * mass)
    left = list(range(len(turns)))
    groups = []
    while left:
        group = [max(left, key=lambda a: mass[a])]
        left.remove(group[0])
        while len(group) < size:
            own = list(group)
            nearest = max(left, key=lambda a: lift[a, own].mean())
            group.append(nearest)
            left.remove(nearest)
        groups.append(group)
    return np.array(groups)
