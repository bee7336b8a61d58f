"""Priors on start and transitions: finite (`Dirichlet`) and nonparametric (`HDP`)."""

from sojourn.transitions.base import Concentrations, Rows, Transitions
from sojourn.transitions.dirichlet import Dirichlet
from sojourn.transitions.hdp import HDP, Gamma, HDPSummary

__all__ = ["HDP", "Concentrations", "Dirichlet", "Gamma", "HDPSummary", "Rows", "Transitions"]
