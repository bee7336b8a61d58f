"""Checks of a family and of its statistics that come from a file."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from sojourn import file_values
from sojourn.families.base import Family
from sojourn.families.product import Product
from sojourn.families.table import DecayedTable
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences

_WHOLE = ("n_symbols", "n_features", "order", "n_targets", "n_components")
_BLOCK = 2**16
_WORDS = ("words", "word_offsets")  # the vocabulary has checked itself


def check_family(family: Family, n_states: int, n_rows: int) -> None:
    """Raise an error unless types, sizes, signs and values of a family fit together.

    A family that is complete does not change when it is completed again, which checks all of it.

    Parameters
    ----------
    family : Family
    n_states : int
        K.
    n_rows : int
        Number of statistics that there are for it.
    """
    parts = family.parts if isinstance(family, Product) else (family,)
    for part in parts:
        for name in _WHOLE:
            if hasattr(part, name):
                file_values.whole(name, getattr(part, name), 1, 2**31)
    if family.n_statistics != n_rows:
        raise ValueError(f"the family has {family.n_statistics} statistics, the file {n_rows}")
    again = family.resolve(_any_data(family), n_states)
    (values, arrays), (values_again, arrays_again) = family.config(), again.config()
    if json.dumps(values) != json.dumps(values_again) or arrays.keys() != arrays_again.keys():
        raise ValueError("the parameters of the family do not fit together")
    for name, array in arrays.items():
        other = arrays_again[name]
        if name.rpartition(".")[2] in _WORDS:
            continue
        if array.dtype != other.dtype or not np.array_equal(array, other):
            raise ValueError(f"the family's {name} has the wrong type, shape or values")
    prior = family.prior()
    if prior.shape not in ((n_rows,), (n_states, n_rows)) or not np.isfinite(prior).all():
        raise ValueError("the prior of the family has the wrong shape, or is not finite")
    family.check_natural(np.atleast_2d(prior))


def _any_data(family: Family) -> Sequences:
    """Return two steps that every family accepts: ones."""
    if family.step_ndim == 0:
        return Sequences(np.zeros(2, np.int32), [0, 2])
    columns: Any = family.columns if isinstance(family, Product) else [family.n_features]
    n_columns = sum(file_values.whole("columns", n, 1, 2**31) for n in columns)
    if n_columns > family.n_statistics:
        raise ValueError(f"{n_columns} columns have more than {family.n_statistics} statistics")
    return Sequences(np.ones((2, n_columns)), [0, 2])


def check_table(family: Family, table: DecayedTable, prior: Floats) -> None:
    """Raise an error unless expected statistics are those of data of the family.

    Parameters
    ----------
    family : Family
        A sound one.
    table : DecayedTable
    prior : array
        λ°, as it is or as it was learned.
    """
    n_states, n_rows = table.n_states, family.n_statistics
    least = 0.0 if family.statistics_are_counts else None
    file_values.array("emissions", table.rows[:, :n_states], (n_rows, n_states), least=least)
    file_values.number("scale", table.scale, 1e-18, 1.0)
    file_values.array("totals", table.totals, (n_states,), least=least)
    kept_in = ("float32", "float64") if family.table_dtype is None else (family.table_dtype,)
    if str(table.dtype) not in kept_in:
        raise ValueError(f"the statistics of this family are not kept in {table.dtype}")
    if family.statistics_are_counts:
        _check_counts(family, table, prior)
        return
    natural = prior + table.dense()
    if not np.isfinite(natural).all():
        raise ValueError("the statistics are not finite")
    family.check_natural(natural)
    results = [family.log_normalizer(natural), *family.parameters(natural).values()]
    if not all(np.isfinite(result).all() for result in results):
        raise ValueError("the statistics give parameters that are not finite")


def _check_counts(family: Family, table: DecayedTable, prior: Floats) -> None:
    """Check counts of symbols, of which there may be very many, in blocks."""
    sums = np.zeros(table.n_states)
    for begin in range(0, len(table.rows), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        own = table.scale * table.rows[block, : table.n_states].astype(np.float64)
        sums += own.sum(axis=0)
        family.check_natural(prior[..., block] + own.T)
    # Totals are added up separately: rounding makes them differ a little.
    if (np.abs(sums - table.totals) > 1.0 + 0.1 * sums).any():
        raise ValueError("the totals of the statistics are not their sums")
