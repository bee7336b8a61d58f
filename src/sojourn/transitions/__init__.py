"""Priors on start and transitions: finite (`Dirichlet`) and nonparametric (`HDP`)."""

from sojourn.transitions.base import Concentrations, PriorCounts, Rows, RowSpread, Transitions
from sojourn.transitions.constraints import RowConstraints
from sojourn.transitions.dirichlet import Dirichlet
from sojourn.transitions.distributions import BetaDistribution, GammaDistribution
from sojourn.transitions.hdp import HDP
from sojourn.transitions.point_hdp import PointHDP
from sojourn.transitions.sticky import StickyDirichlet
from sojourn.transitions.summary import HDPSummary

TRANSITIONS: dict[str, type[Transitions]] = {
    kind.__name__: kind for kind in (Dirichlet, HDP, PointHDP, StickyDirichlet)
}
"""Every prior by its name, for model files."""

__all__ = [
    "HDP",
    "TRANSITIONS",
    "BetaDistribution",
    "Concentrations",
    "Dirichlet",
    "GammaDistribution",
    "HDPSummary",
    "PointHDP",
    "PriorCounts",
    "RowConstraints",
    "RowSpread",
    "Rows",
    "StickyDirichlet",
    "Transitions",
]
