"""Vectors of counts of the symbols of an alphabet."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.blocks import LogPotentials
from sojourn.families.checks import (
    check_columns,
    check_counts,
    column_vector,
    present_rows,
    refuse_partly_missing,
)
from sojourn.families.columns import log_rising
from sojourn.families.dense import DenseFamily
from sojourn.families.scales import first_moments
from sojourn.families.tabled import TabledPotentials
from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.cpu.densities import sum_products
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class Multinomial(DenseFamily):
    r"""Counts of V symbols at every step, with a Dirichlet prior.

    .. math::

        \phi_k \sim \mathrm{Dirichlet}(\lambda^\circ), \qquad
        x_t \mid z_t = k \sim \mathrm{Multinomial}(n_t, \phi_k), \quad n_t = \textstyle\sum_w x_{tw}

    The number of trials n may differ from step to step and is not modelled.  t(x) = x and
    a_g(λ) = Σ_w log Γ(λ_w) − log Γ(Σ_w λ_w), so that the collapsed potential (2) is a
    Dirichlet-multinomial.  The columns are not independent, so only whole steps may be missing.

    Parameters
    ----------
    n_features : int, optional
        Number of symbols V; by default the number of columns of the data.
    concentration : float or (V,) array
        Prior count λ° of every symbol.

    Examples
    --------
    >>> family = Multinomial(n_features=2)
    >>> np.exp(family.log_predictive(np.array([[1.0, 1.0]]), np.array([[1.0, 1.0]])))
    array([[0.33333333]])
    """

    parameter_names = ("emissionprob_",)

    def __init__(
        self, n_features: int | None = None, concentration: float | ArrayLike = 0.1
    ) -> None:
        self.n_features = n_features
        self.concentration = concentration

    @property
    def n_statistics(self) -> int:
        """Number of symbols V."""
        return self.features

    def resolve(self, data: Sequences, n_states: int) -> Multinomial:
        """Take the number of columns from the data."""
        n_features = check_columns(data, self.n_features, "Multinomial")
        return Multinomial(
            n_features, column_vector("concentration", self.concentration, n_features)
        )

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are counts, and that rows are complete or missing."""
        data = check_counts(data, self.features)
        if data.values.dtype.kind == "f":
            refuse_partly_missing(np.isnan(data.values), data)
        return data

    def prior(self) -> Floats:
        """Return λ°, shape (V,)."""
        return column_vector("concentration", self.concentration, self.features)

    def points(self, x: Floats) -> Floats:
        """Return the square roots of the shares of the symbols."""
        return np.sqrt(x / np.maximum(x.sum(axis=1, keepdims=True), 1.0))

    def log_base_measure(self, x: Floats) -> Floats:
        """Return log n! − Σ_w log x_w!."""
        x, present = present_rows(x)
        xp = namespace(x)
        return (xp.gammaln(x.sum(axis=1) + 1.0) - xp.gammaln(x + 1.0).sum(axis=1)) * present

    def statistics(self, x: Floats) -> Floats:
        """Return the counts."""
        return present_rows(x)[0]

    def log_normalizer(self, natural: Floats) -> Floats:
        """Return Σ_w log Γ(λ_w) − log Γ(Σ_w λ_w)."""
        xp = namespace(natural)
        return xp.gammaln(natural).sum(axis=1) - xp.gammaln(natural.sum(axis=1))

    def potentials(self, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return the log probability of a Dirichlet-multinomial, or x E[log φ] + log h(x)."""
        totals = natural.sum(axis=1)
        xp = namespace(natural)
        weights = None
        if not collapsed:
            weights = (xp.digamma(natural) - xp.digamma(totals)[:, None]).T

        def plain(x: Floats) -> Floats:
            base = self.log_base_measure(x)[:, None]
            if weights is not None:
                return self.statistics(x) @ weights + base
            counts, _ = present_rows(x)
            total = log_rising(natural, counts[:, None]).sum(axis=2)
            return total - log_rising(totals, counts.sum(axis=1)[:, None]) + base

        def column(values: Floats, d: int) -> Floats:
            base = xp.gammaln(values + 1.0)
            if d == self.features:  # the number of trials
                return base - (log_rising(totals, values) if collapsed else 0.0 * totals)
            risen = log_rising(natural[:, d], values) if weights is None else values * weights[d]
            return risen - base

        if is_tensor(natural):  # a GPU prefers few and large operations
            return plain
        return TabledPotentials(plain, column, len(natural), totals=True)

    def compiled_sums(self, x: Floats, weights: Floats, n_threads: int) -> Floats | None:
        """Return the weighted sums of the counts, without missing steps."""
        found = first_moments(x, weights, n_threads)
        if found is not None:
            return found[1]
        n = self.features
        pairs = np.column_stack([np.zeros(n, np.int64), 1 + np.arange(n)])
        return sum_products(x, np.zeros(n), pairs, weights, n_threads=n_threads)[0]

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw one symbol per step: the number of trials is not part of the model."""
        chances = self.parameters(natural)["emissionprob_"]
        return rng.multinomial(1, chances[states.values])

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``emissionprob_``, shape (K, V)."""
        return {"emissionprob_": natural / natural.sum(axis=1, keepdims=True)}
