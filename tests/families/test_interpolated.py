"""Potentials that polynomials replace are those of the closed form."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sojourn as sj
from sojourn.families.base import EmissionRows, Family
from sojourn.families.interpolated import (
    CHEBYSHEV,
    FOURIER,
    Basis,
    InterpolatedPotentials,
    SmoothIn,
)
from sojourn.families.table import DecayedTable

N_STEPS, N_STATES = 3000, 5


def angles(rng: np.random.Generator) -> Any:
    return rng.vonmises(rng.choice([0.3, 2.5], (N_STEPS, 2)), rng.choice([1.0, 300.0], (1, 2)))


def shares(rng: np.random.Generator) -> Any:
    return rng.beta(rng.choice([2.0, 40.0], (N_STEPS, 1)), 5.0)


def sizes(rng: np.random.Generator) -> Any:
    return rng.gamma(rng.choice([0.7, 20.0], (N_STEPS, 1)), rng.choice([0.1, 30.0], (1, 2)))


def counts(rng: np.random.Generator) -> Any:
    return rng.poisson(rng.gamma(3.0, rng.choice([1.0, 1000.0], (N_STEPS, 1)))).astype(float)


DRAWS = {
    sj.VonMises: angles,
    sj.Beta: shares,
    sj.LearnedGamma: sizes,
    sj.LearnedNegativeBinomial: counts,
}


def statistics_of(family: Family, x: Any, rng: np.random.Generator) -> Any:
    """Draw the statistics of states with much, little and no data, as a table."""
    weights = rng.dirichlet(np.full(N_STATES, 0.1), len(x))
    weights[:, 3] *= 1e-3
    weights[:, 4] = 0.0
    values = weights.T @ np.nan_to_num(family.statistics(x))
    return DecayedTable(values, "float64")


def log_rows(rows: EmissionRows) -> Any:
    assert rows.log_scale is not None
    with np.errstate(divide="ignore"):
        return np.log(rows.table[rows.index, :N_STATES]) + rows.log_scale[rows.index, None]


@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize("missing", [False, True])
def test_rows_of_many_steps_are_those_of_few(kind: Any, missing: bool) -> None:
    rng = np.random.default_rng(3)
    x = DRAWS[kind](rng)
    if missing:
        x[rng.random(x.shape) < 0.2] = np.nan
    family = kind().resolve(sj.Sequences.from_lengths(x, [len(x)]), N_STATES)
    table = statistics_of(family, x, rng)
    options: Any = {"collapsed": True, "dtype": np.float64, "n_threads": 1}
    many = log_rows(family.emission_rows(x, table, **options))
    few = [
        log_rows(family.emission_rows(x[t : t + 20], table, **options)) for t in range(0, 400, 20)
    ]
    there = few_rows = np.concatenate(few)
    assert np.isfinite(there).all()
    np.testing.assert_allclose(many[:400], few_rows, rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("kind", DRAWS)
def test_the_closed_form_is_computed_at_few_places(kind: Any, monkeypatch: Any) -> None:
    rng = np.random.default_rng(4)
    x = DRAWS[kind](rng)
    family = kind().resolve(sj.Sequences.from_lengths(x, [len(x)]), N_STATES)
    table, seen = statistics_of(family, x, rng), []
    closed = kind.log_given

    def counted(self: Any, x: Any, at: Any, *parts: Any) -> Any:
        seen.append(x.shape[0])
        return closed(self, x, at, *parts)

    monkeypatch.setattr(kind, "log_given", counted)
    family.emission_rows(x, table, collapsed=True, dtype=np.float64, n_threads=1)
    # A state without data has the prior's wide mixture, which may keep its closed form.
    of_all_steps = sum(n for n in seen if n > 256)
    assert of_all_steps <= x.size
    assert sum(seen) - of_all_steps < 0.25 * N_STATES * x.size


@pytest.mark.parametrize("basis", [CHEBYSHEV, FOURIER])
@pytest.mark.parametrize(("n", "most"), [(16, 0.1), (64, 1e-10), (256, 1e-10)])
def test_coefficients_give_back_a_function(basis: Basis, n: int, most: float) -> None:
    u = np.linspace(-1.0, 1.0, 101)

    def smooth(at: Any) -> Any:
        return np.exp(np.cos(np.pi * at) + 0.3 * np.sin(2.0 * np.pi * at))

    found = basis.coefficients(smooth(basis.places(n))[:, None])
    error = np.abs(basis.values(u, n).T @ found[:, 0] - smooth(u)).max()
    assert error < most


@given(st.integers(2, 40), st.floats(-1.0, 1.0))
@settings(max_examples=60, deadline=None)
def test_values_of_the_bases(n: int, u: float) -> None:
    at = np.array([u])
    degrees = np.arange(n)
    expected = np.cos(degrees * np.arccos(u))
    np.testing.assert_allclose(CHEBYSHEV.values(at, n)[:, 0], expected, atol=1e-12)
    even = 2 * ((n + 1) // 2)
    periods = (np.arange(even) + 1) // 2
    waves = np.where(
        np.arange(even) % 2 == 1, np.cos(np.pi * periods * u), np.sin(np.pi * periods * u)
    )
    waves[0] = 1.0
    np.testing.assert_allclose(FOURIER.values(at, even)[:, 0], waves, atol=1e-12)


def test_what_has_no_polynomial_keeps_its_closed_form() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(2000, 1))
    terms = [np.cos, np.abs, lambda v: np.exp(0.1 * v)]  # the second one has an edge

    def column(x: Any, d: int, states: Any) -> Any:
        return np.column_stack([terms[k](x[:, 0]) for k in states])

    closed = partial(column, d=0, states=range(3))
    own = SmoothIn(CHEBYSHEV, lambda v: v, lambda u: u)
    potentials = InterpolatedPotentials(closed, column, 3, own)
    assert potentials._column(x[:, 0], 0).left == [1]
    np.testing.assert_allclose(potentials.on(x)(x[:500]), closed(x[:500]), atol=1e-8)


@pytest.mark.parametrize("value", [0.25, np.nan])
def test_columns_of_one_value(value: float) -> None:
    x = np.full((200, 1), value)
    family = sj.Beta().resolve(sj.Sequences.from_lengths(np.full((200, 1), 0.3), [200]), 2)
    table = DecayedTable(np.zeros((2, family.n_statistics)), "float64")
    rows = family.emission_rows(x, table, collapsed=True, dtype=np.float64, n_threads=1)
    alone = family.emission_rows(x[:1], table, collapsed=True, dtype=np.float64, n_threads=1)
    np.testing.assert_allclose(log_rows(rows)[:, :2], np.repeat(log_rows(alone)[:, :2], 200, 0))


# ---- families side by side ----------------------------------------------------------------------


def test_rows_of_a_product_are_the_products_of_rows() -> None:
    rng = np.random.default_rng(6)
    n = 500
    x = np.column_stack([rng.normal(size=n), rng.poisson(3.0, n), rng.integers(4, size=n)])
    x[rng.random(x.shape) < 0.1] = np.nan
    family = sj.Product(sj.Gaussian(), sj.Poisson(), sj.Categorical(4))
    data = sj.Sequences.from_lengths(x, [n])
    family = family.resolve(data, N_STATES)
    encoded = family.encode(data)
    weights = rng.dirichlet(np.ones(N_STATES), n)
    sums = family.sum_statistics(encoded, weights, n_threads=1).dense()
    np.testing.assert_allclose(sums, family.statistics(encoded).T @ weights, rtol=1e-6, atol=1e-9)
    table = DecayedTable(np.ascontiguousarray(sums.T), "float64")
    options: Any = {"dtype": np.float64, "n_threads": 1}
    natural = family.prior() + sums.T
    for collapsed, closed in (
        (True, family.log_predictive),
        (False, family.expected_log_likelihood),
    ):
        rows = log_rows(family.emission_rows(encoded, table, collapsed=collapsed, **options))
        np.testing.assert_allclose(rows, closed(encoded, natural), rtol=1e-6, atol=1e-6)


def test_parts_that_contradict_each_other_leave_the_better_state() -> None:
    family = sj.Product(sj.DiagonalGaussian(), sj.DiagonalGaussian())
    rng = np.random.default_rng(7)
    states = np.repeat([0, 1], 2000)
    x = rng.normal(states[:, None] * 1e4, 1.0, (4000, 2))
    data = sj.Sequences.from_lengths(x, [4000])
    family = family.resolve(data, 2)
    sums = family.sum_statistics(family.encode(data), np.eye(2)[states], n_threads=1).dense()
    table = DecayedTable(np.ascontiguousarray(sums.T), "float64")
    odd = family.encode(sj.Sequences.from_lengths(np.array([[0.0, 1e4]] * 20), [20]))
    rows = family.emission_rows(odd, table, collapsed=False, dtype=np.float32, n_threads=1)
    logs = family.expected_log_likelihood(odd, family.prior() + sums.T)
    assert logs.max() < -1e4  # each part rules out the other's state
    table_rows = rows.table[rows.index, :2]
    np.testing.assert_allclose(table_rows.max(axis=1), 1.0)
    assert rows.log_scale is not None
    np.testing.assert_allclose(rows.log_scale[rows.index], logs.max(axis=1), rtol=1e-9)
