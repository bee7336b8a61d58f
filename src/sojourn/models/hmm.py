"""The finite hidden Markov model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from sojourn.durations import Duration
from sojourn.families import Family
from sojourn.inference import Statistics
from sojourn.models.base import BaseHMM, Inference
from sojourn.models.deprecated import accepts_old_names
from sojourn.models.from_parameters import from_parameters
from sojourn.models.parameters import (
    fixed_stickiness,
    inference_name,
    row_constraints,
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
        Number of states K.  With `moves`, the maximum number.
    emission : Family
        Distribution of the observations, for example ``Categorical(n_symbols=50)``.
    inference : {"scvi", "svi", "cvb0", "vb", "em", "gibbs", "blocked-gibbs"} or Sampling
        Inference method:

        - "scvi": stochastic collapsed variational inference;
        - "svi": stochastic variational inference, the uncollapsed baseline;
        - "cvb0": collapsed, one sequence at a time, whose own statistics are subtracted first
          (Wang & Blunsom 2013).  Stores K² numbers per sequence and K per step, ignores
          `batch_size`, and needs at least two sequences;
        - "vb": variational Bayes (Beal 2003): SVI with all data in one batch and step size one;
        - "em": Baum-Welch for the maximum of the posterior under Dirichlet(a + 1), with a the
          concentrations: prior counts are added to expected counts, as hmmlearn does with priors
          of a + 1.  Concentrations near zero (1e-300) give maximum likelihood.  For
          `Categorical`, for families of counts, waiting times and probabilities such as
          `Poisson`, and for the Gaussian families, whose covariance is (Ψ° + S) / n with the sums
          of squares S of n steps; potentials are then densities at these parameters;
        - "gibbs": collapsed Gibbs sampling, which draws the states one by one with the parameters
          integrated out;
        - "blocked-gibbs": Gibbs sampling that alternates between the parameters and complete
          state paths.

        ``Sampling("gibbs", n_samples=500)`` sets the number of draws, chains and sweeps of a
        sampler.  Samplers ignore `n_passes`, `batch_size` and the step sizes.
    transition_concentration : float, (K,) array or (K, K) array
        Prior counts a of the transitions.
    start_concentration : float or (K,) array, optional
        Prior counts of the initial state.  By default those of the transitions; for a matrix, the
        mean of its rows.
    stickiness : float, "learned" or (float, float)
        Extra prior count κ of self-transitions, for recordings whose states last long (Fox et al.
        2011).  "learned" estimates it with "scvi" under a Gamma prior with shape 1 and rate 0.1; a
        pair is the shape and rate of another Gamma prior.
    duration : GeometricDuration, NegativeBinomialDuration, CategoricalDuration or None
        How long visits to a state last: geometrically, as in any hidden Markov model, by default;
        or by a distribution that is learned for every state.  The transitions are then those from
        a state to others, and `stickiness` is a prior count of staying.
    transition_constraints : (K, K) array, {"left-right", "upper-triangular", "no-self"}, optional
        What is known of the transitions: 0 for what never happens, NaN for what is learned, and
        another number for a probability that is given; the rest of a row shares what is left.
        "left-right" stays or goes on to the next state, and starts in the first; "upper-triangular"
        never goes back; "no-self" never stays.  What never happens has exactly the probability 0.
        States keep their place, and only those with the same constraints are merged.
        Not for "gibbs", which draws states one by one.
    start_constraints : (K,) array, optional
        The same for the first state of a sequence.
    fixed : {"start", "transitions", "emissions"}, collection of these, or dict, optional
        Parts that are given and not learned.  A dict names states: ``{"emissions": [0, 2]}``; True
        stands for all of them.  They are given by `HMM.from_parameters`, by a `Statistics` as
        `init`, or by the model as it was fitted or loaded before.
    batch_size : int, "auto" or None
        Sequences, or tiles of them, per minibatch; None for all data in one batch.  "auto" chooses
        by the size of the data: with `n_passes` "auto" too, up to 32,768 steps are taken in full
        batches with step size one, which is EM for the maximum of the posterior; long sequences
        (see `tile_length`) in minibatches of 4,096 to 16,384 steps, with step sizes that decrease
        linearly, eq (20), and at first up to three times as many states, which are merged until
        `n_states` are left; otherwise it is 1,000.
    tile_length : int, "auto" or None
        About how many steps a tile has: sequences that are longer are cut into tiles, at other
        places in each pass, and minibatches consist of tiles, weighted by their steps.  Every step
        and every transition is in one tile of a pass, and only true starts count as starts.
        "auto" cuts where `batch_size` and `n_passes` are "auto", sequences have 256 steps or more
        on average, and there are more than 32,768 steps, or 262,144 for 32 states or more; None
        never cuts.
    buffer : int, "auto" or None
        Steps before and after a tile from which the states at its edges are estimated.  "auto"
        doubles it, before each pass, until the edges no longer depend on it; ``history_`` has the
        size.  None and 0 are the least that is needed, one step and the family's past.
    n_passes : int or "auto"
        Number of passes over the data.  "auto" takes full batches until convergence (`tol`), at
        most 500; in minibatches it is 10, or up to 50 for long sequences, and up to as many in
        full batches after that, until convergence.
    tol : float
        Rise of the log likelihood from one pass to the next, in nats per step, below which
        training in full batches has converged, where `n_passes` is "auto".
    forgetting_rate : float
        Exponent of the step sizes (delay + n) ** -forgetting_rate of the updates n = 1, 2, ...,
        from 0 to 1.  0 makes every step size 1.
    delay : float
        Offset of the update number n in the step sizes; larger values make early updates smaller.
    tuned : "auto", bool or collection of str
        Improvements on the paper, for "scvi" and "svi": True for all of them, or a collection of
        names.

        - "steps": step sizes that decrease linearly over `n_passes` passes, eq (20), in place of
          `forgetting_rate` and `delay`;
        - "concentration": the prior count of `Categorical` symbols is learned, eq (17), starting
          from the given number;
        - "base": symbols that have not been seen get a separate prior count, eq (18).

        False is the paper's algorithm.  A concentration given as an array is not changed.  "auto"
        learns "concentration" and "base" of `Categorical` where `inference`, `concentration`,
        `batch_size` and `n_passes` have their defaults, and nothing else; but not where a fixed
        number of states is learned in full batches.
    moves : "auto", MoveSettings or None
        Merge, delete and split states at the end of passes, where that raises the collapsed bound;
        with `partial_fit`, after minibatches of at least 8,192 steps or an eighth of the data.
        For "scvi".  None keeps all states, as do other inference methods and priors that differ
        between states.  ``MoveSettings(init_states=2)`` starts with two states and lets splits
        add more.
    init : {"auto", "exponential", "segments"} or Statistics
        Initial statistics: random, with the total mass of the data, or given.  "exponential" is
        the paper's choice; "segments" gives each state the symbols of a short segment of the data;
        "auto" is "segments" where states may change, "exponential" otherwise.  The two differ for
        `Categorical` emissions only; other families start from a clustering of the data.  With
        "auto", where states may change and a pass has fewer than 100 minibatches, a warm-up with
        smaller minibatches before the first pass lets states differentiate.
    n_init : int or "auto"
        Number of restarts from different initial statistics; the best is kept: by held-out score,
        or without validation data by the bound where the number of states may change, otherwise by
        training score.  "auto" restarts on small data, as often as takes about two seconds.
    device : {"cpu", "cuda", "reference"}
        Where to compute: compiled kernels on the CPU; an NVIDIA GPU, for "scvi", "svi", "vb" and
        "em"; or plain NumPy in float64, which is slow and meant for checking.
    n_jobs : int or None
        Number of threads; None and -1 for all cores.  The result does not depend on it.
    dtype : {"float32", "float64"}
        Precision of the local step and of the emission statistics.
    random_state : int, Generator, RandomState or None
        Seed of the initial statistics and of the order of sequences.
    verbose : bool
        Whether to show progress on standard error.
    state_names : sequence of str, optional
        Names of the first states, for labels and for everything that people read.  States with
        names keep their places: moves leave them alone, and look for further states beside them.
        By default the names among the labels given to `fit`, sorted.

    Attributes
    ----------
    startprob_ : (K,) array
        Posterior mean of the initial state distribution.
    transmat_ : (K, K) array
        Posterior mean of the transition matrix.
    emissionprob_ : (K, V) array
        Posterior mean of the emission probabilities, for `Categorical` emissions.  Other families
        have attributes of their own, such as ``means_`` and ``covars_``.
    statistics_ : Statistics
        Expected counts that determine the posterior.
    n_states_ : int
        Number of states in use: those with more than half a per cent of the steps.  After `fit`
        with `moves`, states are sorted by size, largest first; without, they keep the order of
        the initial statistics.
    dwell_times_ : (K,) array
        Expected number of steps that a visit to each state lasts.
    durations_ : list of StateDuration
        Distribution of that number, for each state.
    emission_ : Family
        The emission family, completed with what was inferred from the data.
    converged_ : bool or None
        Whether training ended because the likelihood rose no more; None after a fixed number of
        passes.
    history_ : list of dict
        One entry per pass, or per sweep of a sampler: passes, sequences, steps, updates, seconds,
        score (held-out log likelihood per step, None without validation data), bound (see
        `track_bound`), states, moves (every proposal, see `Progress`), move_seconds.
    samples_ : Samples
        Draws of a sampler.  `score` and `predict_proba` average over them; paths, samples and
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
        duration: Duration | None = None,
        transition_constraints: ArrayLike | str | None = None,
        start_constraints: ArrayLike | None = None,
        fixed: str | Collection[str] | Mapping[str, Any] | None = None,
        batch_size: int | Literal["auto"] | None = "auto",
        tile_length: int | Literal["auto"] | None = "auto",
        buffer: int | Literal["auto"] | None = "auto",
        n_passes: int | Literal["auto"] = "auto",
        tol: float = 1e-6,
        forgetting_rate: float = 0.5,
        delay: float = 1.0,
        tuned: bool | str | Collection[str] = "auto",
        moves: Literal["auto"] | MoveSettings | None = None,
        init: str | Statistics = "auto",
        n_init: int | Literal["auto"] = "auto",
        device: str = "cpu",
        n_jobs: int | None = None,
        dtype: str = "float32",
        random_state: Any = None,
        verbose: bool = False,
        state_names: Sequence[str] | None = None,
    ) -> None:
        self.n_states = n_states
        self.emission = emission
        self.inference = inference
        self.transition_concentration = transition_concentration
        self.start_concentration = start_concentration
        self.stickiness = stickiness
        self.duration = duration
        self.transition_constraints = transition_constraints
        self.start_constraints = start_constraints
        self.fixed = fixed
        self.batch_size = batch_size
        self.tile_length = tile_length
        self.buffer = buffer
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
        self.state_names = state_names

    @classmethod
    def from_parameters(
        cls,
        startprob: ArrayLike,
        transmat: ArrayLike,
        emission: Family,
        *,
        weight: float = 1e8,
        **given: Any,
    ) -> Self:
        """Make a model by its parameters, which scores, decodes and samples at once.

        `partial_fit` goes on learning from it, and `fit` begins with its parameters.

        Parameters
        ----------
        startprob : (K,) array
            Probabilities of the first state.
        transmat : (K, K) array
            Transition probabilities.  What is 0, here and in `startprob`, stays 0, unless
            constraints are given.
        emission : Family
            Without what follows from the parameters: ``sj.Gaussian()`` is enough.
        weight : float
            Weight of the given parameters against the prior, and against new data in
            `partial_fit`, in steps per state.  `fit` gives them the weight of its data.
        **given
            Parameters of the emissions under their names without the underscore, such as
            ``means=..., covars=...``; and parameters of `HMM`, such as ``fixed="emissions"``.

        Returns
        -------
        HMM

        Examples
        --------
        >>> import sojourn as sj
        >>> model = sj.HMM.from_parameters(
        ...     [0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], sj.Poisson(), lambdas=[2.0, 9.0]
        ... )
        >>> model.predict([1, 2, 1, 8, 11, 9])
        array([0, 0, 0, 1, 1, 1], dtype=int32)
        >>> model.set_params(fixed="emissions").fit([1, 2, 1, 8, 11, 9]).lambdas_.ravel().round(6)
        array([2., 9.])
        """
        return from_parameters(cls, startprob, transmat, emission, weight, given)

    def _make_sampler(self, family: Family) -> Sampler:
        transitions = self._make_transitions()
        assert isinstance(transitions, Dirichlet)
        prior, name = transitions.prior, inference_name(self)
        symbols = np.broadcast_to(symbol_prior(family, name), (self.n_states, family.n_statistics))
        rows = np.vstack([prior.start, prior.transitions])
        return SAMPLERS[name](rows, np.ascontiguousarray(symbols.T), transitions.constraints)

    def _make_transitions(self) -> Dirichlet | StickyDirichlet:
        fixed = fixed_stickiness(self.stickiness, inference_name(self), takes_prior=True)
        rows = Dirichlet.make(
            self.n_states,
            self.start_concentration,
            self.transition_concentration,
            0.0 if fixed is None else fixed,
            row_constraints(self),
        )
        if fixed is not None:
            return rows
        schedule, prior = schedule_of(self), stickiness_prior(self.stickiness)
        return StickyDirichlet(rows, prior, prior, schedule.forgetting_rate, schedule.delay)
