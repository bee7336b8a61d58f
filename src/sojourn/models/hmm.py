"""The finite hidden Markov model."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from sojourn.families import Family
from sojourn.inference import Statistics
from sojourn.models.base import BaseHMM, Inference
from sojourn.models.deprecated import accepts_old_names
from sojourn.models.parameters import (
    fixed_stickiness,
    inference_name,
    schedule_of,
    stickiness_prior,
)
from sojourn.models.sampled import symbol_prior
from sojourn.moves.settings import MoveSettings
from sojourn.sampling import BlockedGibbs, CollapsedGibbs, Sampler
from sojourn.sampling.finite import FiniteSampler
from sojourn.sampling.settings import Sampling
from sojourn.transitions import Dirichlet, StickyDirichlet

SAMPLERS: dict[str, type[FiniteSampler]] = {
    "gibbs": CollapsedGibbs,
    "blocked-gibbs": BlockedGibbs,
}


class HMM(BaseHMM):
    r"""Bayesian hidden Markov model with a fixed number of states.

    .. math::

        \theta_0, \dots, \theta_K \sim \mathrm{Dirichlet}(a), \quad
        z_1 \sim \theta_0, \quad z_t \mid z_{t-1} = k \sim \theta_k, \quad
        x_t \mid z_t = k \sim p(\cdot \mid \phi_k)

    Parameters
    ----------
    n_states : int
        Number of states K; with ``moves="auto"`` the most there may be.
    emission : Family
        What is observed, for example ``Categorical(n_symbols=50)``.
    inference : {"scvi", "svi", "cvb0", "vb", "em", "gibbs", "blocked-gibbs"} or Sampling
        Stochastic collapsed variational inference, or another method for the same model:

        - "svi": the uncollapsed baseline;
        - "cvb0": collapsed, one sequence at a time, whose own statistics are taken out first
          (Wang & Blunsom 2013).  Keeps K² numbers a sequence and K a step, ignores `batch_size`,
          and needs at least two sequences;
        - "vb": variational Bayes (Beal 2003): SVI with all data in one batch and step size one;
        - "em": Baum-Welch for the maximum of the posterior under Dirichlet(a + 1), with a the
          concentrations: prior counts are added to expected counts, as hmmlearn does with priors
          of a + 1.  Concentrations near zero (1e-300) give maximum likelihood.  For
          `Categorical` emissions;
        - "gibbs": draws of the states one by one, parameters integrated out;
        - "blocked-gibbs": draws of parameters and of whole paths in turn.

        ``Sampling("gibbs", n_samples=500)`` sets the number of draws, chains and sweeps of a
        sampler; `n_passes` and the like play no part in it.
    transition_concentration : float, (K,) array or (K, K) array
        Prior counts a of the transitions.
    start_concentration : float or (K,) array, optional
        Prior counts of the start; by default those of the transitions, of a matrix the mean row.
    stickiness : float, "learned" or (float, float)
        Extra prior count κ of staying in a state, for recordings whose states last (Fox et al.
        2011).  "learned" estimates it by "scvi" under a Gamma prior with shape 1 and rate 0.1; a
        pair is the shape and rate of another Gamma prior.
    batch_size : int or None
        Sequences a minibatch; None for the whole data set in one batch.
    n_passes : int
        Passes over the data.
    forgetting_rate, delay : float
        Step sizes (delay + n) ** -forgetting_rate of the updates n = 1, 2, ...; rate 0 means 1.
    tuned : bool or collection of str
        Improvements on the paper, for "scvi" and "svi": all of them, or those that are named.

        - "steps": step sizes that fall in a straight line over `n_passes` passes, eq (20), in
          place of `forgetting_rate` and `delay`;
        - "concentration": the prior count of `Categorical` symbols is learned, eq (17), from the
          number given on;
        - "base": symbols that were never seen have a count of their own, eq (18).

        False is the paper's algorithm.  A concentration given as an array is kept.
    moves : "auto", MoveSettings or None
        Merge, delete and split states at the ends of passes, where that raises the collapsed
        bound; with `partial_fit` after minibatches of at least 8,192 steps, or an eighth of the
        data.  For "scvi".  All states are kept by other inference methods, and where priors differ
        between states.  ``MoveSettings(init_states=2)`` begins with two states, and lets splits
        create more.
    init : {"auto", "exponential", "segments"} or Statistics
        Random initial statistics with the mass of the data, or given ones.  "exponential" is the
        paper's; "segments" gives each state the symbols of a short piece of the data, and is what
        "auto" takes where states may move.  Families other than `Categorical` begin alike.  With
        "auto", states that may move first part in smaller minibatches, in passes before those
        asked for, where a pass has fewer than 100 minibatches.
    n_init : int
        Restarts from different initial statistics, of which `fit` keeps the best by held-out
        score, or by training score without validation data.
    device : {"cpu", "reference"}
        The compiled kernels, or plain NumPy in float64 (slow; for checking).
    n_jobs : int or None
        Threads; None and -1 for all cores.  The result does not depend on it.
    dtype : {"float32", "float64"}
        Precision of the local step and of the emission statistics.
    track_bound : bool or None
        Whether ``history_`` has the evidence lower bound (for "em" the log likelihood).  It costs
        a pass over the emission statistics; None tracks it where a pass is one update, or
        remembers every sequence: "em", "vb" and "cvb0".
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
    n_states_ : int
        Number of states in use: those with more than half a per cent of the steps.  After a `fit`
        with moves the largest state comes first; without, states are in the order of the initial
        statistics.
    dwell_times_ : (K,) array
        Expected number of steps that a visit to each state lasts.
    emission_ : Family
        The family with everything filled in that the data told.
    history_ : list of dict
        One entry a pass (a sweep, for the samplers): passes, sequences, steps, updates, seconds,
        score (held-out log likelihood a step, None without validation data), bound (see
        `track_bound`), states, moves (every proposal, see `Progress`), move_seconds.
    samples_ : Samples
        Draws of the samplers.  `score` and `predict_proba` average over them; paths, samples and
        parameters are those of the draw with the highest joint probability.

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

    _samplers = frozenset(SAMPLERS)
    _values = ("inference", "moves", "stickiness")

    @accepts_old_names(*_values)
    def __init__(
        self,
        n_states: int,
        emission: Family,
        *,
        inference: Inference | Sampling = "scvi",
        transition_concentration: float | ArrayLike = 0.1,
        start_concentration: float | ArrayLike | None = None,
        stickiness: float | Literal["learned"] | tuple[float, float] = 0.0,
        batch_size: int | Literal["auto"] | None = "auto",
        n_passes: int | Literal["auto"] = "auto",
        tol: float = 1e-6,
        forgetting_rate: float = 0.5,
        delay: float = 1.0,
        tuned: bool | Collection[str] = False,
        moves: Literal["auto"] | MoveSettings | None = None,
        init: str | Statistics = "auto",
        n_init: int | Literal["auto"] = "auto",
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
        self.stickiness = stickiness
        self.batch_size = batch_size
        self.n_passes = n_passes
        self.tol = tol
        self.forgetting_rate = forgetting_rate
        self.delay = delay
        self.tuned = tuned
        self.moves = moves
        self.init = init
        self.n_init = n_init
        self.device = device
        self.n_jobs = n_jobs
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def _make_sampler(self, family: Family) -> Sampler:
        transitions = self._make_transitions()
        assert isinstance(transitions, Dirichlet)
        prior, name = transitions.prior, inference_name(self)
        symbols = np.broadcast_to(symbol_prior(family, name), (self.n_states, family.n_statistics))
        rows = np.vstack([prior.start, prior.transitions])
        return SAMPLERS[name](rows, np.ascontiguousarray(symbols.T))

    def _make_transitions(self) -> Dirichlet | StickyDirichlet:
        fixed = fixed_stickiness(self.stickiness, inference_name(self), takes_prior=True)
        rows = Dirichlet.make(
            self.n_states,
            self.start_concentration,
            self.transition_concentration,
            0.0 if fixed is None else fixed,
        )
        if fixed is not None:
            return rows
        schedule, prior = schedule_of(self), stickiness_prior(self.stickiness)
        return StickyDirichlet(rows, prior, prior, schedule.forgetting_rate, schedule.delay)
