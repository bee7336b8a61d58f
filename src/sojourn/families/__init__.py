"""Emission families: one a file, and the interface in `base`."""

from sojourn.families.base import EmissionRows, Family
from sojourn.families.categorical import Categorical
from sojourn.families.table import DecayedTable, RowSums

__all__ = ["FAMILIES", "Categorical", "DecayedTable", "EmissionRows", "Family", "RowSums"]

FAMILIES: dict[str, type[Family]] = {family.__name__: family for family in (Categorical,)}
"""Every family by its name, for model files."""
