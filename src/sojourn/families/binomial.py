"""Numbers of successes among known numbers of trials."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.blocks import LogPotentials
from sojourn.families.checks import (
    as_given,
    check_columns,
    check_counts,
    column_moments,
    column_vector,
)
from sojourn.families.columns import log_beta, log_rising
from sojourn.families.dense import DenseFamily
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences, position


class Binomial(DenseFamily):
    r"""Vectors of successes; the number of trials is given, or is the last column of the data.

    .. math::

        \phi_{kd} \sim \mathrm{Beta}(\alpha^\circ, \beta^\circ), \qquad
        x_{td} \mid z_t = k \sim \mathrm{Binomial}(n_t, \phi_{kd})

    t(x) = (x, n − x) for each column of successes and a_g(α, β) = log B(α, β), so that the
    collapsed potential (2) is a beta-binomial.  The trials are not modelled.  NaN is a missing
    entry; where the number of trials is missing, so is the step.

    Parameters
    ----------
    n_features : int, optional
        Number of columns of the data, that of the trials included; by default the data's.
    n_trials : float, optional
        The number of trials of every step; by default the last column of the data has it.
    alpha : float or array
        α° of each column of successes; ½ by default.
    beta : float or array
        β°, likewise.
    typical_trials : float, optional
        Trials of a step that is sampled; by default the mean of the last column, rounded.

    Examples
    --------
    >>> import sojourn as sj
    >>> rng = np.random.default_rng(0)
    >>> trials = rng.integers(5, 40, 400)
    >>> X = np.column_stack([rng.binomial(trials, np.repeat([0.2, 0.9], 200)), trials])
    >>> model = sj.HMM(2, sj.Binomial(), random_state=0).fit(X, [200, 200])
    >>> np.sort(model.probs_[:, 0]).round(1)
    array([0.2, 0.9])
    """

    parameter_names = ("probs_",)
    has_point = True

    def __init__(
        self,
        n_features: int | None = None,
        n_trials: float | None = None,
        alpha: float | ArrayLike = 0.5,
        beta: float | ArrayLike = 0.5,
        typical_trials: float | None = None,
    ) -> None:
        self.n_features = n_features
        self.n_trials = n_trials
        self.alpha = alpha
        self.beta = beta
        self.typical_trials = typical_trials

    @property
    def n_successes(self) -> int:
        """Number of columns of successes."""
        return self.features - (self.n_trials is None)

    @property
    def n_statistics(self) -> int:
        """Number of statistics: two for each column of successes."""
        return 2 * self.n_successes

    def resolve(self, data: Sequences, n_states: int) -> Binomial:
        """Take the number of columns and typical trials from the data."""
        n_features = check_columns(data, self.n_features, "Binomial")
        if self.n_trials is None and n_features < 2:
            raise ValueError("Binomial needs n_trials=, or the number of trials as the last column")
        n = n_features - (self.n_trials is None)
        if self.n_trials is None:
            seen = check_counts(data, n_features).values[:, -1:]
            typical = as_given(self.typical_trials, np.rint(column_moments(seen).mean[0]))
            trials = None
        else:
            typical = trials = float(column_vector("n_trials", self.n_trials, 1)[0])
        return self.changed(
            n_features=n_features,
            n_trials=trials,
            alpha=column_vector("alpha", self.alpha, n),
            beta=column_vector("beta", self.beta, n),
            typical_trials=float(max(typical, 0.0)),
        )

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are counts, and that no column exceeds the trials."""
        data = check_counts(data, self.features)
        values = np.asarray(data.values, np.float64)
        successes, trials = self._split(values)
        with np.errstate(invalid="ignore"):
            bad = successes > trials
        if bad.any():
            step, column = (int(part[0]) for part in np.nonzero(bad))
            raise ValueError(
                f"{position(step, data.offsets)}, column {column}: {successes[step, column]:g} "
                f"successes in {trials[step, 0]:g} trials"
            )
        return data

    def _split(self, x: Floats) -> tuple[Floats, Floats]:
        """Return successes and trials, (T, D) and (T, 1)."""
        if self.n_trials is None:
            return x[:, :-1], x[:, -1:]
        return x, namespace(x).full_like(x[:, :1], self.n_trials)

    def _entries(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """Return successes and failures, zeros where missing, and which are present."""
        xp = namespace(x)
        successes, trials = self._split(x)
        failures = trials - successes
        present = ~xp.isnan(failures)
        return (
            xp.where(present, successes, 0.0),
            xp.where(present, failures, 0.0),
            xp.astype(present, "float64"),
        )

    def points(self, x: Floats) -> Floats:
        """Return log odds."""
        successes, failures, present = self._entries(x)
        return np.where(present > 0, np.log((successes + 0.5) / (failures + 0.5)), np.nan)

    def prior(self) -> Floats:
        """Return λ° = (α°, β°)."""
        n = self.n_successes
        return np.concatenate(
            [column_vector("alpha", self.alpha, n), column_vector("beta", self.beta, n)]
        )

    def log_base_measure(self, x: Floats) -> Floats:
        """Return the logarithms of the binomial coefficients."""
        xp = namespace(x)
        one, other, _ = self._entries(x)
        each = xp.gammaln(one + other + 1.0) - xp.gammaln(one + 1.0) - xp.gammaln(other + 1.0)
        return each.sum(axis=1)

    def statistics(self, x: Floats) -> Floats:
        """Return (x, n − x)."""
        one, other, _ = self._entries(x)
        return namespace(x).concatenate([one, other], axis=1)

    def parts(self, natural: Floats) -> tuple[Floats, Floats]:
        """Return α and β, shape (K, D) both."""
        n = self.n_successes
        return natural[:, :n], natural[:, n:]

    def log_normalizer(self, natural: Floats) -> Floats:
        """Return log B(α, β), the sum over columns."""
        return log_beta(*self.parts(natural)).sum(axis=1)

    def potentials(self, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return the log probability of beta-binomials, or the expected one."""
        xp = namespace(natural)
        alpha, beta = self.parts(natural)
        both = xp.digamma(alpha + beta)
        log_one, log_other = xp.digamma(alpha) - both, xp.digamma(beta) - both

        def predictive(x: Floats) -> Floats:
            one, other, _ = self._entries(x)
            total = self.log_base_measure(x)[:, None]
            for d in range(self.n_successes):
                s, f = one[:, d, None], other[:, d, None]
                a, b = alpha[:, d] + 0.0 * s, beta[:, d] + 0.0 * s
                total = total + log_rising(a, s) + log_rising(b, f) - log_rising(a + b, s + f)
            return total

        def expected(x: Floats) -> Floats:
            one, other, _ = self._entries(x)
            return self.log_base_measure(x)[:, None] + one @ log_one.T + other @ log_other.T

        return predictive if collapsed else expected

    def point(self, natural: Floats) -> Floats:
        """Return λ times a large number."""
        return 1e9 * natural

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw successes in a typical number of trials, which is the last column if one is."""
        assert self.typical_trials is not None
        trials = int(self.typical_trials)
        drawn = rng.binomial(trials, self.parameters(natural)["probs_"][states.values])
        if self.n_trials is None:
            drawn = np.column_stack([drawn, np.full(len(drawn), trials)])
        return drawn.astype(np.float64)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``probs_``, the posterior mean of φ, shape (K, D)."""
        alpha, beta = self.parts(natural)
        return {"probs_": alpha / (alpha + beta)}
