"""The nonparametric hidden Markov model."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from sklearn.utils.validation import check_is_fitted

from sojourn.families import Family
from sojourn.inference import Statistics
from sojourn.models.base import BaseHMM, Inference, as_gamma, check_whole, learns_stickiness
from sojourn.models.sampled import symbol_prior
from sojourn.sampling import Beam, DirectAssignment, Sampler
from sojourn.sampling.infinite import InfiniteSampler
from sojourn.transitions import HDP, HDPSummary, PointHDP, Transitions
from sojourn.transitions.hdp import OccupancyForm

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
        Truncation level K: the most states there may be; ``n_states_`` is the number in use.  For
        the samplers the number of states that a chain begins with.
    emission : Family
        What is observed, for example ``Categorical(n_symbols=50)``.
    inference : {"scvi", "svi", "cvb0", "vb", "gibbs", "beam"}
        Stochastic collapsed variational inference, or another way to learn the same model:

        - "svi", "vb": uncollapsed, with a point estimate of π (Johnson & Willsky 2014), α and γ at
          the means of their priors; in minibatches, or with all data at once;
        - "cvb0": as for `HMM`;
        - "gibbs": direct assignment (Teh et al. 2006), states one by one, no truncation;
        - "beam": beam sampling (Van Gael et al. 2008), whole paths, no truncation.

        There is no "em": with the weights of the rows free, the maximum is not bounded.
    batch_size, n_passes, forgetting_rate, delay, tuned, init, n_init, device, n_jobs, dtype, \
track_bound, n_samples, burn_in, thin, n_chains, random_state, verbose
        As for `HMM`.
    hdp_batch_size : int
        Sequences between two updates of q(π), q(α) and q(γ); at most a pass.
    alpha_prior, gamma_prior : (float, float)
        Shape and rate of the Gamma priors.
    second_order_tables : bool
        Keep the second-order term in the expected table counts (5), which the paper drops.
    sort_states : bool
        Give the first stick to the state with the most tables, and so on: sticks are size-biased.
    normalize_rows : bool
        Make the rows of the transition potentials sum to one.  False divides by E[α] + E[C_k·],
        the exact normaliser, which leaves the mass of states beyond K out.
    occupancy : {"auto", "exact", "fast"}
        How the probability that a transition occurs at all is found: by the sums of log(1 − q),
        by −E[C] in their place, or by the former for small and the latter for large data.
    exchangeable_tables : bool
        Count the tables of uncertain steps as those of customers who share a restaurant, eq (19),
        in place of the paper's independent steps, eq (5), which see too many tables where states
        are uncertain.  Needs the exact sums of `occupancy`; with the fast form (5) holds.
    stickiness : float or "learned"
        Extra concentration κ on staying in a state, for recordings whose states last: rows are
        θ_k ~ DP(α + κ, (απ + κδ_k) / (α + κ)) (Fox et al. 2011).  Learned, α + κ has the prior
        `alpha_prior`, and κ / (α + κ) a uniform one.  For "scvi", and fixed also for "cvb0".
    moves : "auto" or None
        As for `HMM`; None is the algorithm of the paper, which keeps all K states.
    init_states : int, optional
        As for `HMM`.

    Attributes
    ----------
    hdp_ : HDPSummary
        E[α], E[γ], E[π] and the effective number of states.
    n_states_, dwell_times_, startprob_, transmat_, statistics_, emission_, history_, samples_
        As for `HMM`.

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

    _samplers = frozenset(SAMPLERS)

    def __init__(
        self,
        n_states: int,
        emission: Family,
        *,
        inference: Inference = "scvi",
        batch_size: int | None = 1000,
        n_passes: int = 10,
        forgetting_rate: float = 0.5,
        delay: float = 1.0,
        tuned: bool | Collection[str] = False,
        hdp_batch_size: int = 10_000,
        alpha_prior: tuple[float, float] = (1.0, 0.1),
        gamma_prior: tuple[float, float] = (1.0, 0.1),
        second_order_tables: bool = True,
        sort_states: bool = True,
        normalize_rows: bool = True,
        occupancy: OccupancyForm = "auto",
        exchangeable_tables: bool = True,
        stickiness: float | Literal["learned"] = 0.0,
        moves: Literal["auto"] | None = "auto",
        init_states: int | None = None,
        init: str | Statistics = "auto",
        n_init: int = 1,
        device: str = "cpu",
        n_jobs: int | None = None,
        dtype: str = "float32",
        track_bound: bool | None = None,
        n_samples: int = 100,
        burn_in: int = 100,
        thin: int = 1,
        n_chains: int = 1,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_states = n_states
        self.emission = emission
        self.inference = inference
        self.batch_size = batch_size
        self.n_passes = n_passes
        self.forgetting_rate = forgetting_rate
        self.delay = delay
        self.tuned = tuned
        self.hdp_batch_size = hdp_batch_size
        self.alpha_prior = alpha_prior
        self.gamma_prior = gamma_prior
        self.second_order_tables = second_order_tables
        self.sort_states = sort_states
        self.normalize_rows = normalize_rows
        self.occupancy = occupancy
        self.exchangeable_tables = exchangeable_tables
        self.stickiness = stickiness
        self.moves = moves
        self.init_states = init_states
        self.init = init
        self.n_init = n_init
        self.device = device
        self.n_jobs = n_jobs
        self.dtype = dtype
        self.track_bound = track_bound
        self.n_samples = n_samples
        self.burn_in = burn_in
        self.thin = thin
        self.n_chains = n_chains
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _inferences(self) -> frozenset[str]:
        # EM needs rows with a known prior; with the weights free, its maximum has no bound.
        return super()._inferences - {"em"}

    @property
    def hdp_(self) -> HDPSummary:
        """E[α], E[γ], E[π] and the effective number of states."""
        check_is_fitted(self)
        prior = self._posterior.transitions
        assert isinstance(prior, HDP | PointHDP)
        return prior.summary()

    def _make_sampler(self, family: Family) -> Sampler:
        if self.stickiness != 0.0:
            raise ValueError(f"inference={self.inference!r} has no stickiness; 'scvi' has")
        prior = symbol_prior(family, self.inference)
        if prior.ndim != 1:
            raise ValueError(
                f"inference={self.inference!r} makes new states, which need the same emission "
                "concentration as the others: a number, or one a symbol"
            )
        return SAMPLERS[self.inference](
            prior,
            as_gamma("alpha_prior", self.alpha_prior),
            as_gamma("gamma_prior", self.gamma_prior),
        )

    def _make_transitions(self) -> Transitions:
        check_whole("hdp_batch_size", self.hdp_batch_size, 1)
        if self.occupancy not in ("auto", "exact", "fast"):
            raise ValueError(f"occupancy={self.occupancy!r} is not 'auto', 'exact' or 'fast'")
        alpha_prior = as_gamma("alpha_prior", self.alpha_prior)
        gamma_prior = as_gamma("gamma_prior", self.gamma_prior)
        schedule = self._schedule()
        learned = learns_stickiness(self.stickiness, self.inference)
        if not self._method.objective.collapsed:
            if self.stickiness != 0.0:
                raise ValueError(f"inference={self.inference!r} has no stickiness; 'scvi' has")
            return PointHDP.make(
                int(self.n_states),
                alpha=alpha_prior.mean,
                gamma=gamma_prior.mean,
                batch_size=int(self.hdp_batch_size),
                forgetting_rate=schedule.forgetting_rate,
                delay=schedule.delay,
            )
        return HDP.make(
            int(self.n_states),
            alpha_prior=alpha_prior,
            gamma_prior=gamma_prior,
            batch_size=int(self.hdp_batch_size),
            forgetting_rate=schedule.forgetting_rate,
            delay=schedule.delay,
            second_order=bool(self.second_order_tables),
            sort_states=bool(self.sort_states),
            normalize_rows=bool(self.normalize_rows),
            occupancy=self.occupancy,
            exchangeable=bool(self.exchangeable_tables),
            stickiness=0.0 if learned else float(self.stickiness),
            learn_stickiness=learned,
        )
