"""Families with data drawn for them, and a table of their statistics, for tests with tensors."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import sojourn as sj
from tests.support.families import EXAMPLES, N_STATES

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


@dataclass
class Drawn:
    """A family, λ, validated data with holes in them, and x of the maths functions."""

    family: Any
    natural: Any
    data: Any
    x: Any
    tolerance: Any


def drawn(name, seed, n_states=N_STATES, n_steps=40, holes=True):
    example, rng = EXAMPLES[name], np.random.default_rng(seed)
    family = example.resolve(n_states)
    natural = example.draw_natural(family, rng, n_states)
    values = example.draw_data(rng, n_steps)
    if holes and n_steps > 1:
        values = values.copy()
        where = rng.random(values.shape if example.missing == "entries" else n_steps) < 0.2
        where[3] = True  # a whole step
        values[where] = -1 if example.missing == "symbols" else np.nan
    data = family.validate(sj.Sequences.from_lengths(values, None))
    # A sum over nodes leaves out those that hardly count, as many as are worth it on a CPU: two
    # sums agree as well as each agrees with the integral, and a thousandth at least.
    close = min(1e-3, example.error)
    near = {"rtol": close, "atol": close} if example.error > 1e-9 else TOLERANCE
    return Drawn(family, natural, data, family.observations(data), near)


@dataclass
class Table:
    """What the families ask of a table of statistics on a device."""

    statistics: Any

    @property
    def n_states(self):
        return len(self.statistics)

    def dense(self):
        return self.statistics.clone()
