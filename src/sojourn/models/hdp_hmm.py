"""The nonparametric hidden Markov model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from numpy.typing import ArrayLike

from sojourn.durations import Duration
from sojourn.families import Family
from sojourn.inference import METHODS, Statistics
from sojourn.models.attributes import Learned
from sojourn.models.base import BaseHMM, Inference
from sojourn.models.deprecated import accepts_old_names
from sojourn.models.parameters import (
    COMMON,
    OneOf,
    Whole,
    as_gamma,
    fixed_stickiness,
    inference_name,
    method_of,
    row_constraints,
    schedule_of,
)
from sojourn.models.sampled import symbol_prior
from sojourn.moves.settings import MoveSettings
from sojourn.sampling import Beam, DirectAssignment, Sampler
from sojourn.sampling.infinite import InfiniteSampler
from sojourn.sampling.settings import Sampling
from sojourn.transitions import HDP, HDPSummary, PointHDP, Transitions
from sojourn.transitions.options import HDPOptions

SAMPLERS: dict[str, type[InfiniteSampler]] = {"gibbs": DirectAssignment, "beam": Beam}


class HDPHMM(BaseHMM):
    r"""Hierarchical Dirichlet process hidden Markov model, truncated at K states.

    .. math::

        \tilde\pi_k \sim \mathrm{Beta}(1, \gamma), \quad
        \pi_k = \tilde\pi_k \textstyle\prod_{l<k}(1 - \tilde\pi_l), \quad
        \theta_0, \dots, \theta_K \sim \mathrm{DP}(\alpha, \pi), \quad
        z_t \mid z_{t-1} = k \sim \theta_k, \quad x_t \mid z_t = k \sim p(\cdot \mid \phi_k)

    with Gamma priors on α and γ.

    Parameters
    ----------
    n_states : int
        Truncation level K, the maximum number of states; ``n_states_`` is the number in use.  For
        the samplers, the number of states that a chain starts with.
    emission : Family
        Distribution of the observations, for example ``Categorical(n_symbols=50)``.
    inference : {"scvi", "svi", "cvb0", "vb", "gibbs", "beam"} or Sampling
        Inference method:

        - "scvi": stochastic collapsed variational inference;
        - "svi", "vb": uncollapsed, with a point estimate of π (Johnson & Willsky 2014), and α and γ
          at the means of their priors; in minibatches, or with all data in one batch;
        - "cvb0": collapsed, one sequence at a time, as in `HMM`;
        - "gibbs": direct assignment (Teh et al. 2006), states one by one, no truncation;
        - "beam": beam sampling (Van Gael et al. 2008), complete paths, no truncation.

        There is no "em": with free row weights the maximum is unbounded.
        ``Sampling("beam", n_samples=500)`` sets the number of draws, chains and sweeps of a
        sampler.
    hdp : HDPOptions, optional
        Priors of α and γ, and how the posterior of π is approximated; None for the defaults.
    hdp_batch_size : int
        Sequences between two updates of q(π), q(α) and q(γ); at most one pass over the data.
    stickiness : float or "learned"
        Extra concentration κ of self-transitions, for recordings whose states last long: rows are
        θ_k ~ DP(α + κ, (απ + κδ_k) / (α + κ)) (Fox et al. 2011).  If learned, α + κ has the prior
        `alpha_prior` of `hdp`, and κ / (α + κ) a uniform prior.  For "scvi"; a number also for
        "cvb0".
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
        Not for the samplers, which have no fixed number of states.
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
        Improvements on the paper: True for all of them, or names among "steps", "concentration"
        and "base", as described for `HMM`.  "auto" learns the prior on many symbols.
    moves : "auto", MoveSettings or None
        Merge, delete and split states during training, as described for `HMM`.  None is the
        algorithm of the paper, which keeps all K states.
    init : {"auto", "exponential", "segments"} or Statistics
        Initial statistics: random or given, as described for `HMM`.
    n_init : int or "auto"
        Number of restarts from different initial statistics; the best is kept: by held-out score,
        or without validation data by the bound where the number of states may change, otherwise by
        training score.  "auto" restarts on small data, as often as takes about two seconds.
    device : {"cpu", "cuda", "reference"}
        Where to compute: compiled kernels on the CPU; an NVIDIA GPU, for "scvi", "svi" and "vb";
        or plain NumPy in float64, which is slow and meant for checking.
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
    hdp_ : HDPSummary
        E[α], E[γ], E[π] and the effective number of states.
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
    >>> X = [0, 1, 0, 1, 0, 1, 2, 2, 2] * 100
    >>> model = sj.HDPHMM(n_states=6, emission=sj.Categorical(n_symbols=3), random_state=0)
    >>> model.fit(X, lengths=[6, 3] * 100).n_states_
    3
    >>> model.hdp_.weights.shape
    (3,)
    """

    _methods = frozenset(METHODS) - {"em"}  # with the weights free, its maximum has no bound
    _samplers = frozenset(SAMPLERS)
    _values = ("inference", "moves", "hdp")
    _constraints = COMMON | {
        "hdp": OneOf((), "neither HDPOptions nor None", (HDPOptions, type(None))),
        "hdp_batch_size": Whole(1),
    }

    hdp_ = Learned[HDPSummary]("hdp")

    @accepts_old_names(*_values)
    def __init__(
        self,
        n_states: int,
        emission: Family,
        *,
        inference: Inference | Sampling = "scvi",
        hdp: HDPOptions | None = None,
        hdp_batch_size: int = 10_000,
        stickiness: float | Literal["learned"] = 0.0,
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
        moves: Literal["auto"] | MoveSettings | None = "auto",
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
        self.hdp = hdp
        self.hdp_batch_size = hdp_batch_size
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

    @property
    def _options(self) -> HDPOptions:
        return HDPOptions() if self.hdp is None else self.hdp

    def _make_sampler(self, family: Family) -> Sampler:
        name, options = inference_name(self), self._options
        if self.stickiness != 0.0:
            raise ValueError(f"inference={name!r} has no stickiness; 'scvi' has")
        prior = symbol_prior(family, name)
        if prior.ndim != 1:
            raise ValueError(
                f"inference={name!r} makes new states, which need the same emission "
                "concentration as the others: a number, or one per symbol"
            )
        return SAMPLERS[name](
            prior,
            as_gamma("alpha_prior", options.alpha_prior),
            as_gamma("gamma_prior", options.gamma_prior),
        )

    def _make_transitions(self) -> Transitions:
        options, name = self._options, inference_name(self)
        alpha_prior = as_gamma("alpha_prior", options.alpha_prior)
        gamma_prior = as_gamma("gamma_prior", options.gamma_prior)
        schedule = schedule_of(self)
        fixed = fixed_stickiness(self.stickiness, name)
        if not method_of(self).objective.collapsed:
            if fixed != 0.0:
                raise ValueError(f"inference={name!r} has no stickiness; 'scvi' has")
            return PointHDP.make(
                int(self.n_states),
                alpha=alpha_prior.mean,
                gamma=gamma_prior.mean,
                batch_size=int(self.hdp_batch_size),
                forgetting_rate=schedule.forgetting_rate,
                delay=schedule.delay,
                constraints=row_constraints(self),
            )
        return HDP.make(
            int(self.n_states),
            alpha_prior=alpha_prior,
            gamma_prior=gamma_prior,
            batch_size=int(self.hdp_batch_size),
            forgetting_rate=schedule.forgetting_rate,
            delay=schedule.delay,
            second_order=bool(options.second_order_tables),
            sort_states=bool(options.sort_states),
            normalize_rows=bool(options.normalize_rows),
            occupancy=options.occupancy,
            exchangeable=bool(options.exchangeable_tables),
            stickiness=0.0 if fixed is None else fixed,
            learn_stickiness=fixed is None,
            constraints=row_constraints(self),
        )
