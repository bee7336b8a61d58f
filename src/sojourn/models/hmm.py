"""The finite hidden Markov model."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from sojourn.families import Family
from sojourn.inference import Statistics
from sojourn.models.base import BaseHMM, Inference
from sojourn.transitions import Dirichlet, Transitions


class HMM(BaseHMM):
    r"""Bayesian hidden Markov model with a fixed number of states.

    .. math::

        \theta_0, \dots, \theta_K \sim \mathrm{Dirichlet}(a), \quad
        z_1 \sim \theta_0, \quad z_t \mid z_{t-1} = k \sim \theta_k, \quad
        x_t \mid z_t = k \sim p(\cdot \mid \phi_k)

    Parameters
    ----------
    n_states : int
        Number of states K.
    emission : Family
        What is observed, for example ``Categorical(n_symbols=50)``.
    inference : {"scvi", "svi"}
        Stochastic collapsed variational inference, or the uncollapsed baseline.
    transition_concentration : float, (K,) array or (K, K) array
        Prior counts a of the transitions.
    start_concentration : float or (K,) array, optional
        Prior counts of the start; by default those of the transitions, of a matrix the mean row.
    batch_size : int or None
        Sequences a minibatch; None for the whole data set in one batch.
    n_passes : int
        Passes over the data.
    forgetting_rate, delay : float
        Step sizes (delay + n) ** -forgetting_rate of the updates n = 1, 2, ...; rate 0 means 1.
    init : "exponential" or Statistics
        Random initial statistics with the mass of the data, or given ones.
    n_init : int
        Restarts from different initial statistics, of which `fit` keeps the best by held-out
        score, or by training score without validation data.
    device : {"cpu", "reference"}
        The compiled kernels, or plain NumPy in float64 (slow; for checking).
    n_jobs : int or None
        Threads; None and -1 for all cores.  The result does not depend on it.
    dtype : {"float32", "float64"}
        Precision of the local step and of the emission statistics.
    random_state : int, Generator, RandomState or None
        Seed of the initial statistics and of the order of sequences.
    verbose : bool
        Show progress on standard error.

    Attributes
    ----------
    startprob_ : (K,) array
        Posterior mean of the start distribution.
    transmat_ : (K, K) array
        Posterior mean of the transition matrix.
    emissionprob_ and so on
        Posterior means of the emission parameters, as the family names them.
    statistics_ : Statistics
        Expected counts that the posterior is made of.
    emission_ : Family
        The family with everything filled in that the data told.
    history_ : list of dict
        One entry a pass: passes, sequences, steps, updates, seconds, score (held-out log
        likelihood a step, None without validation data).

    Examples
    --------
    >>> import sojourn as sj
    >>> X = [0, 1, 0, 1, 0, 1, 2, 2, 2]
    >>> model = sj.HMM(n_states=2, emission=sj.Categorical(n_symbols=3), batch_size=1,
    ...                random_state=0).fit(X, lengths=[6, 3])
    >>> model.predict([[0, 1, 0], [2, 2]])[0].shape
    (3,)
    >>> bool(model.score(X, [6, 3]) < 0)
    True
    """

    def __init__(
        self,
        n_states: int,
        emission: Family,
        *,
        inference: Inference = "scvi",
        transition_concentration: float | ArrayLike = 0.1,
        start_concentration: float | ArrayLike | None = None,
        batch_size: int | None = 1000,
        n_passes: int = 10,
        forgetting_rate: float = 0.5,
        delay: float = 1.0,
        init: str | Statistics = "exponential",
        n_init: int = 1,
        device: str = "cpu",
        n_jobs: int | None = None,
        dtype: str = "float32",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_states = n_states
        self.emission = emission
        self.inference = inference
        self.transition_concentration = transition_concentration
        self.start_concentration = start_concentration
        self.batch_size = batch_size
        self.n_passes = n_passes
        self.forgetting_rate = forgetting_rate
        self.delay = delay
        self.init = init
        self.n_init = n_init
        self.device = device
        self.n_jobs = n_jobs
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def _make_transitions(self) -> Transitions:
        return Dirichlet.make(
            self.n_states, self.start_concentration, self.transition_concentration
        )
