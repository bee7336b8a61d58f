"""Real vectors with outliers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.blocks import CompiledPotentials, LogPotentials, natural_parameters
from sojourn.families.dense import DenseFamily
from sojourn.families.gaussian import Gaussian
from sojourn.families.integrated import Nodes, log_normal, narrowed
from sojourn.families.matrix_factors import Factors, compiled, expected_constant, factorize, norms
from sojourn.families.table import DecayedTable, RowSums
from sojourn.kernels.arrays import is_tensor, maybe_any, namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences

_LOG_PI = float(np.log(np.pi))
_MEAN, _DEVIATION = 2.0, 1.0  # of the logarithm of the degrees of freedom
_RANGES = ((-1.0, 8.0),)  # of the same
_NODES = 25
_BLOCK_NUMBERS = 2**19


class StateBelief(NamedTuple):
    """What λ says about every state.

    Attributes
    ----------
    factors : Factors
        Those of the normal distribution.
    df : (K,) array
        E[ν].
    df_constant : (K,) array
        E[ν/2 log ν/2 − log Γ(ν/2)].
    """

    factors: Factors
    df: Floats
    df_constant: Floats


class StudentT(DenseFamily):
    r"""Real vectors from a multivariate t distribution: a `Gaussian` that outliers do not disturb.

    A t distribution is a normal distribution whose precision varies from step to step:

    .. math::

        u_t \sim \mathrm{Gamma}(\nu_k / 2, \nu_k / 2), \qquad
        x_t \mid z_t = k, u_t \sim \mathcal{N}(\mu_k, \Sigma_k / u_t)

    with the prior of `Gaussian` on μ and Σ, and log ν ~ N(2, 1).  Statistics are those of
    `Gaussian`, in which a step counts u-fold, and the sums of 1 and of log u − u, which determine
    ν.  Given the others, u is Gamma((ν + D) / 2, (ν + δ) / 2) with the expected squared distance
    δ = E[(x − μ)ᵀ Σ⁻¹ (x − μ)], so that E[u] = (ν + D) / (ν + δ): outliers count little, eq (53).

    The mean-field potential is exact.  The collapsed one is not in closed form: the precision of a
    step is the product of two Gamma variables, u and that of Σ⁻¹, which is replaced by one with the
    same mean and the same mean logarithm.  The potential is then that of `Gaussian`, a t
    distribution, with ν̂ degrees of freedom in place of its n: g(ν̂/2) = g(ν/2) + g(n/2) with
    g(a) = log a − ψ(a).  It is exact with many data, and as ν grows.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    df : float, optional
        The degrees of freedom ν of all states; by default every state learns its own.
    mean : float or (D,) array, optional
        The prior mean of μ; this and what follows as in `Gaussian`.
    mean_strength : float
        κ°: number of steps that the prior mean counts for.
    degrees_of_freedom : float, optional
        ν° of the prior on Σ.
    scale : float, (D,) or (D, D) array, optional
        Ψ° of the prior on Σ, or its diagonal.
    location : float or (D,) array, optional
        c, subtracted from the data to keep sums of squares accurate.

    Examples
    --------
    >>> import sojourn as sj
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.standard_t(3, 500), 20 + rng.standard_t(3, 500)])
    >>> model = sj.HMM(2, sj.StudentT(), random_state=0).fit(X, [500, 500])
    >>> np.sort(model.means_[:, 0]).round() + 0.0, bool((model.dfs_ < 5).all())
    (array([ 0., 20.]), True)
    """

    call_seconds = 2e-3  # on an AMD EPYC, 8 states
    parameter_names = ("means_", "scales_", "dfs_")

    def __init__(
        self,
        n_features: int | None = None,
        df: float | None = None,
        mean: float | ArrayLike | None = None,
        mean_strength: float = 0.01,
        degrees_of_freedom: float | None = None,
        scale: float | ArrayLike | None = None,
        location: float | ArrayLike | None = None,
    ) -> None:
        self.n_features = n_features
        self.df = df
        self.mean = mean
        self.mean_strength = mean_strength
        self.degrees_of_freedom = degrees_of_freedom
        self.scale = scale
        self.location = location

    @property
    def latent(self) -> bool:
        """True: how much a step counts depends on λ."""
        return True

    @property
    def gaussian(self) -> Gaussian:
        """The normal distribution of a step that counts once, with its prior."""
        inner = {name: value for name, value in self.get_params(deep=False).items() if name != "df"}
        return Gaussian(**inner)

    @property
    def n_statistics(self) -> int:
        """Number of statistics: two more than `Gaussian` has."""
        return 2 + self.gaussian.n_statistics

    def resolve(self, data: Sequences, n_states: int) -> StudentT:
        """Take columns, location and scale from the data."""
        if self.df is not None and not (np.isfinite(self.df) and 0.1 <= self.df <= 1e6):
            raise ValueError(f"df must be between 0.1 and 1e6, or None, got {self.df!r}")
        inner = self.gaussian.resolve(data, n_states)
        df = None if self.df is None else float(self.df)
        return self.changed(**inner.get_params(deep=False), df=df)

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are finite, and that rows are complete or missing."""
        return self.gaussian.validate(data)

    def prior(self) -> Floats:
        """Return λ° = (0, 0, λ° of the normal distribution)."""
        return np.concatenate([[0.0, 0.0], self.gaussian.prior()])

    def log_base_measure(self, x: Floats) -> Floats:
        """Return −½ D log 2π."""
        return self.gaussian.log_base_measure(x)

    def statistics(self, x: Floats) -> Floats:
        """Raise an error: statistics depend on λ."""
        raise NotImplementedError(
            "the statistics of StudentT depend on how much each step counts, and so on λ"
        )

    def log_normalizer(self, natural: Floats) -> Floats:
        """Return a_g of the normal distribution, and the evidence of ν."""
        own = self.gaussian.log_normalizer(natural[:, 2:])
        if self.df is not None:
            df = namespace(natural).full_like(natural[:, 0], self.df)
            return own + natural[:, 0] * _constant(df) + 0.5 * df * natural[:, 1]
        return own + self.nodes(natural).log_total

    def nodes(self, natural: Floats) -> Nodes:
        """Return the posterior of log ν, on a grid."""
        n, sums = natural[:, :1], natural[:, 1:2]
        xp = namespace(natural)

        def log_joint(at: tuple[Floats, ...]) -> Floats:
            df = xp.exp(at[0])
            return n * _constant(df) + 0.5 * df * sums + log_normal(at[0], _MEAN, _DEVIATION)

        return narrowed(log_joint, _RANGES, _NODES, 0.0 * natural[:, 0])

    def posterior(self, natural: Floats) -> StateBelief:
        """Return what λ says about every state."""
        factors = factorize(natural[:, 2:], 1)
        xp = namespace(natural)
        if self.df is not None:
            df = xp.full_like(natural[:, 0], self.df)
            return StateBelief(factors, df, _constant(df))
        nodes = self.nodes(natural)
        df = xp.exp(nodes.at[0])
        return StateBelief(factors, nodes.mean(df), nodes.mean(_constant(df)))

    def potentials(self, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return the log density of a t with ν̂ degrees of freedom, or the expected one."""
        found, n = self.posterior(natural), self.features
        inner, powers, constants = (_collapsed if collapsed else _expected)(found, n)
        residual, _ = norms(found.factors, 1)
        gaussian, xp = self.gaussian, namespace(natural)

        def plain(x: Floats) -> Floats:
            z, present = gaussian.design(x)
            rows = constants - powers * xp.log1p(inner * residual(z))
            return rows * present[:, None] if maybe_any(~present) else rows

        if is_tensor(natural):
            return plain
        like: CompiledPotentials = compiled(
            found.factors, 1, n, plain, gaussian.center(), collapsed=True
        )
        return CompiledPotentials(
            plain, True, like.location, like.weights, like.spans, inner, powers, constants, True
        )

    def weights(self, found: StateBelief, x: Floats) -> tuple[Floats, Floats, Floats]:
        """Return E[u] and E[log u] of every step and state, and ½ (ν + δ)."""
        xp, n = namespace(x), self.features
        residual, leverage = norms(found.factors, 1)
        z, _ = self.gaussian.design(x)
        distances = found.factors.dof * residual(z) + n * leverage(z)
        rates = 0.5 * (found.df + distances)
        shapes = 0.5 * (found.df + n)
        return shapes / rates, xp.digamma(shapes) - xp.log(rates), rates

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
        """Return the sums of steps that count u-fold, eq (53), and what q(u) adds."""
        found = self.posterior(natural_parameters(self, table))
        return self._sums(encoded, responsibilities, found, n_threads, bound=bound)

    def _sums(
        self, x: Floats, r: Floats, found: StateBelief | None, n_threads: int, *, bound: bool
    ) -> tuple[RowSums, Any]:
        """Sum up blocks of steps; without a posterior every step counts once."""
        gaussian, n = self.gaussian, self.features
        xp, total, local = namespace(x), None, 0.0
        size = len(x) if is_tensor(x) else max(64, _BLOCK_NUMBERS // r.shape[1])
        for begin in range(0, len(x), size):
            steps = slice(begin, begin + size)
            own = xp.astype(r[steps], "float64")
            _, present = gaussian.design(x[steps])
            own = own * xp.astype(present, "float64")[:, None]
            times, logs, counted = own, 0.0 * own - 0.2, own.sum(axis=0)[None]
            if found is not None:
                times, logs, rates = self.weights(found, x[steps])
                if bound:
                    shapes = 0.5 * (found.df + n)
                    entropy = shapes + xp.gammaln(shapes) + (1.0 - shapes) * xp.digamma(shapes)
                    local = local + (own * (entropy - xp.log(rates) + (0.5 * n - 1.0) * logs)).sum()
                logs = logs - times
                times = own * times
            else:
                logs = logs - 1.0
            sums = gaussian.sum_statistics(x[steps], times, n_threads=n_threads).dense()
            part = xp.concatenate(
                [counted, (own * logs).sum(axis=0)[None], counted, sums[1:]], axis=0
            )
            total = part if total is None else total + part
        assert total is not None, "a batch has at least one step"
        return RowSums(None, total, self.n_statistics), local

    def sum_statistics(
        self,
        encoded: Any,
        responsibilities: Floats,
        *,
        n_threads: int,
        masses: Callable[[], Floats] | None = None,
    ) -> RowSums:
        """Raise an error: statistics depend on λ."""
        return RowSums(None, self.statistics(encoded), self.n_statistics)

    def start_sums(self, x: Any, weights: Floats, rng: np.random.Generator) -> Floats:
        """Return sums in which every step counts once."""
        return self._sums(x, weights, None, 1, bound=False)[0].values

    def check_natural(self, natural: Floats) -> None:
        """Check the counts, and λ of the normal distribution."""
        n, sums = natural[:, 0], natural[:, 1]
        # log u − u is at most −1.
        if n.min() < 0.0 or (sums > -n * (1.0 - 1e-6) + 1e-9).any():
            raise ValueError("sums of log u - u are larger than the number of steps allows")
        self.gaussian.check_natural(natural[:, 2:])

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw vectors at the posterior mean parameters."""
        found = self.parameters(natural)
        drawn = self.gaussian.sample(natural[:, 2:], states, rng)
        means, df = found["means_"][states.values], found["dfs_"][states.values]
        u = rng.chisquare(df) / df
        return means + (drawn - means) / np.sqrt(u)[:, None]

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``means_`` (K, D), ``scales_`` (the matrices Σ, (K, D, D)) and ``dfs_`` (K,)."""
        inner = self.gaussian.parameters(natural[:, 2:])
        df = self.posterior(natural).df
        return {"means_": inner["means_"], "scales_": inner["covars_"], "dfs_": df}


def _constant(df: Floats) -> Floats:
    """Return ν/2 log ν/2 − log Γ(ν/2)."""
    xp = namespace(df)
    return 0.5 * df * xp.log(0.5 * df) - xp.gammaln(0.5 * df)


def _log_gap(shape: Floats) -> Floats:
    """Return log a − ψ(a): how far the mean logarithm of a Gamma variable is below that of 1."""
    xp = namespace(shape)
    return xp.log(shape) - xp.digamma(shape)


def effective(found: StateBelief, n: int) -> tuple[Floats, Floats, Floats]:
    """Return ν̂, the n of the normal distribution's predictive, and 1 + its leverage."""
    xp = namespace(found.df)
    dof = found.factors.dof - n + 1.0
    corner = found.factors.lower[:, 0, 0]
    gap = _log_gap(0.5 * found.df) + _log_gap(0.5 * dof)
    # Minka's approximation of the inverse, and Newton's method.
    half = (3.0 - gap + xp.sqrt((gap - 3.0) ** 2 + 24.0 * gap)) / (12.0 * gap)
    for _ in range(4):
        half = half - (_log_gap(half) - gap) / (1.0 / half - xp.polygamma(1, half))
    return 2.0 * half, dof, 1.0 + xp.ones_like(corner) / corner**2


def _collapsed(found: StateBelief, n: int) -> tuple[Floats, Floats, Floats]:
    """Return the factor of |v|², the power and the constant of the collapsed potential."""
    xp = namespace(found.df)
    df, dof, stretch = effective(found, n)
    power = 0.5 * (df + n)
    log_det = found.factors.log_det_scale + n * xp.log(stretch / dof)
    constant = xp.gammaln(power) - xp.gammaln(0.5 * df) - 0.5 * n * (_LOG_PI + xp.log(df))
    return dof / (df * stretch), power, constant - 0.5 * log_det


def _expected(found: StateBelief, n: int) -> tuple[Floats, Floats, Floats]:
    """Return the same of the mean-field potential."""
    xp = namespace(found.df)
    _, _, stretch = effective(found, n)
    power = 0.5 * (found.df + n)
    least = found.df + n * (stretch - 1.0)  # ν + δ at the mean
    constant = expected_constant(found.factors, n) + found.df_constant + xp.gammaln(power)
    return found.factors.dof / least, power, constant - power * xp.log(0.5 * least)
