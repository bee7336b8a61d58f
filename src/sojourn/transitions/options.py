"""Options of the hierarchical Dirichlet process, as users give them."""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.transitions.hdp import OccupancyForm


@dataclass(frozen=True)
class HDPOptions:
    """Priors and approximations of the hierarchical Dirichlet process of an `HDPHMM`.

    Parameters
    ----------
    alpha_prior : (float, float)
        Shape and rate of the Gamma prior on the concentration α of the rows.
    gamma_prior : (float, float)
        Shape and rate of the Gamma prior on the concentration γ of the weights π.
    second_order_tables : bool
        Keep the second-order term in the expected table counts (5), which the paper drops.
    sort_states : bool
        Give the first stick to the state with the most tables, and so on: sticks are size-biased.
    normalize_rows : bool
        Make the rows of the transition potentials sum to one.  False divides by E[α] + E[C_k·],
        the exact normaliser, which leaves the mass of states beyond K out.
    occupancy : {"auto", "exact", "fast"}
        How the probability that a transition occurs at all is computed: from the sums of
        q and q² ("exact"), from −E[C] alone ("fast"), or from the former for small and the latter
        for large data.
    exchangeable_tables : bool
        Count the tables of uncertain steps as those of customers who share a restaurant, eq (19),
        in place of the paper's independent steps, eq (5), which overestimate the number of tables
        where states are uncertain.  Needs the exact sums of `occupancy`; with the fast form, (5)
        holds.

    Examples
    --------
    The algorithm of the paper:

    >>> import sojourn as sj
    >>> paper = sj.HDPOptions(
    ...     second_order_tables=False, sort_states=False, exchangeable_tables=False
    ... )
    >>> model = sj.HDPHMM(10, sj.Categorical(50), hdp=paper, moves=None)
    """

    alpha_prior: tuple[float, float] = (1.0, 0.1)
    gamma_prior: tuple[float, float] = (1.0, 0.1)
    second_order_tables: bool = True
    sort_states: bool = True
    normalize_rows: bool = True
    occupancy: OccupancyForm = "auto"
    exchangeable_tables: bool = True
