"""Every family that may be a part of a `Product`, by its name."""

from sojourn.families.base import Family
from sojourn.families.mixture import Mixture
from sojourn.families.registry import SINGLE_FAMILIES
from sojourn.families.zero_inflated import ZeroInflated

PART_FAMILIES: dict[str, type[Family]] = {
    **SINGLE_FAMILIES,
    "Mixture": Mixture,
    "ZeroInflated": ZeroInflated,
}
"""The families that consist of one, and those that another is inside of."""
