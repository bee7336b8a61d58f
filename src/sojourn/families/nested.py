"""What families that are made of another one share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sojourn.estimator import clone
from sojourn.families.dense import DenseFamily
from sojourn.families.matrix_normal import MatrixNormalFamily
from sojourn.families.registry import SINGLE_FAMILIES
from sojourn.families.table import RowSums
from sojourn.families.tied_gaussian import TiedGaussian
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences

_PREFIX = "family."


class NestedFamily(DenseFamily):
    """A family whose steps have unknowns, given which they follow another family."""

    family: DenseFamily

    @property
    def latent(self) -> bool:
        """True: the statistics of a step depend on λ."""
        return True

    @property
    def n_features(self) -> int | None:  # type: ignore[override]
        """Number of columns, those of the family inside."""
        return self.family.n_features

    @property
    def past(self) -> int:
        """Number of earlier steps that an observation depends on."""
        return self.family.past

    @property
    def call_seconds(self) -> float:  # type: ignore[override]
        """About how long potentials take: that of the family within."""
        return self.family.call_seconds

    def resolved_family(self, data: Sequences, n_states: int) -> DenseFamily:
        """Return the family inside, resolved; refuse one that cannot be inside."""
        name = type(self).__name__
        coupled = isinstance(self.family, TiedGaussian)
        if not isinstance(self.family, DenseFamily) or self.family.latent or coupled:
            raise TypeError(
                f"{name} takes a family of vectors without unknowns of single steps and with "
                f"parameters of every state's own, got {self.family!r}"
            )
        resolved = clone(self.family).resolve(data, n_states)
        assert isinstance(resolved, DenseFamily)
        return resolved

    def validate(self, data: Sequences) -> Sequences:
        """Check the data."""
        return self.family.validate(data)

    def present(self, x: Floats) -> Floats:
        """Return one for every step that is not missing, else zero."""
        xp = namespace(x)
        if isinstance(self.family, MatrixNormalFamily):  # whose steps may lack a past
            return xp.astype(self.family.design(x)[1], "float64")
        return 1.0 - xp.astype(xp.isnan(x), "float64").prod(1)

    def observations(self, data: Sequences) -> NDArray[Any]:
        """Return the observations of the family inside."""
        return self.family.observations(data)

    def log_base_measure(self, x: Floats) -> Floats:
        """Return log h(x) of the family inside."""
        return self.family.log_base_measure(x)

    def statistics(self, x: Floats) -> Floats:
        """Raise an error: statistics depend on λ."""
        raise NotImplementedError(_message(self))

    def sum_statistics(
        self,
        encoded: Any,
        responsibilities: Floats,
        *,
        n_threads: int,
        masses: Callable[[], Floats] | None = None,
    ) -> RowSums:
        """Raise an error: statistics depend on λ."""
        raise NotImplementedError(_message(self))

    def config(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the arguments, with those of the family inside."""
        values, arrays = self.family.config()
        own = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.get_params(deep=False).items()
            if name != "family"
        }
        mine = {name: np.asarray(value) for name, value in own.items() if np.ndim(value) > 0}
        rest = {name: value for name, value in own.items() if name not in mine}
        inside = {"name": type(self.family).__name__, "values": values}
        return (
            {**rest, "family": inside},
            {**mine, **{_PREFIX + name: array for name, array in arrays.items()}},
        )

    @classmethod
    def from_config(cls, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild the family from `config`."""
        inside = values["family"]
        own = {
            name.removeprefix(_PREFIX): array
            for name, array in arrays.items()
            if name.startswith(_PREFIX)
        }
        mine = {name: array for name, array in arrays.items() if not name.startswith(_PREFIX)}
        family = SINGLE_FAMILIES[inside["name"]].from_config(inside["values"], own)
        rest = {name: value for name, value in values.items() if name != "family"}
        return cls(family=family, **rest, **mine)


def _message(family: NestedFamily) -> str:
    return (
        f"the statistics of {type(family).__name__} depend on which unknowns a step has, and so on "
        "λ: use sum_given"
    )
