"""One example of each family, for the contract that all of them keep."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import sojourn as sj


@dataclass(frozen=True)
class Example:
    """A resolved family, with natural parameters and data drawn for it."""

    family: Any
    draw_natural: Any  # (rng, n_states) -> (K, S)
    draw_data: Any  # (rng, n) -> x
    support: Any  # every x, or None where there are infinitely many


def _categorical(concentration):
    return Example(
        sj.Categorical(6, concentration),
        lambda rng, k: rng.gamma(0.7, 3.0, (k, 6)) + 1e-3,
        lambda rng, n: rng.integers(6, size=n).astype(np.int32),
        np.arange(6, dtype=np.int32),
    )


EXAMPLES = {
    "categorical": _categorical(0.3),
    "categorical, a concentration a symbol": _categorical(np.linspace(0.1, 2.0, 6)),
    "categorical, a concentration a state and symbol": _categorical(
        np.linspace(0.1, 2.0, 18).reshape(3, 6)
    ),
}
