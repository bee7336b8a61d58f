"""Compiled potentials and sums against the closed forms in NumPy that define them."""

import numpy as np
import pytest

import sojourn as sj
from sojourn.families.dense import DenseFamily
from sojourn.families.table import DecayedTable, RowSums
from sojourn.kernels.cpu.counts import product_rows
from sojourn.kernels.cpu.moments import sum_moments
from sojourn.kernels.cpu.single import single_weights
from tests.support.families import EXAMPLES

DENSE = [name for name, example in EXAMPLES.items() if isinstance(example.given, DenseFamily)]


def with_gaps(values, kind, rng):
    """Return the data with some entries or rows missing."""
    values = values.astype(np.float64)
    gaps = rng.random(values.shape if kind == "entries" else (len(values), 1)) < 0.1
    return np.where(gaps, np.nan, values)


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing"])
@pytest.mark.parametrize("collapsed", [True, False], ids=["collapsed", "mean-field"])
@pytest.mark.parametrize("n_states", [1, 3, 17])
@pytest.mark.parametrize("n_steps", [5, 700])
@pytest.mark.parametrize("name", DENSE)
def test_rows_and_sums_equal_the_closed_form(name, n_steps, n_states, collapsed, missing):
    example = EXAMPLES[name]
    rng = np.random.default_rng(n_steps + n_states)
    family = example.resolve(n_states)
    values = example.draw_data(rng, n_steps)
    if missing:
        values = with_gaps(values, example.missing, rng)
    data = family.validate(sj.Sequences(values, [0, n_steps]))
    natural = example.draw_natural(family, rng, n_states)
    table = DecayedTable(natural - family.prior(), "float64")
    encoded = family.encode(data)
    x = family.observations(data)
    plain = (family.log_predictive if collapsed else family.expected_log_likelihood)(x, natural)
    for dtype, tolerance in ((np.float64, 1e-9), (np.float32, 1e-6)):
        rows, other = (
            family.emission_rows(encoded, table, collapsed=collapsed, dtype=dtype, n_threads=n)
            for n in (1, 3)
        )
        assert rows.table.dtype == dtype
        got = rows.table[rows.index, :n_states]
        # Potentials may differ by a factor, which the scale has.
        wanted = np.exp(plain - rows.log_scale[rows.index][:, None])
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)
        assert rows.table.tobytes() == other.table.tobytes()
        weights = rng.random((n_steps, n_states)).astype(dtype)
        sums, again = (family.sum_statistics(encoded, weights, n_threads=n).dense() for n in (1, 3))
        expected = family.statistics(x).T @ weights.astype(np.float64)
        np.testing.assert_allclose(sums, expected, rtol=1e-9, atol=1e-7)
        assert sums.tobytes() == again.tobytes()


@pytest.mark.parametrize("n_states", [4, 12])
def test_densities_that_are_almost_gaussian(n_states):
    # With many data the logarithm of one plus a small number is taken; not for the outlier.
    rng = np.random.default_rng(0)
    x = rng.normal(0.0, 3.0, (500, 3))
    x[100] = 1e4
    family = sj.DiagonalGaussian().resolve(sj.Sequences(x, [0, 500]), n_states)
    weights = rng.gamma(1.0, 1e3, (n_states, 500))
    weights[:, 100] = 0.0
    natural = family.prior() + weights @ family.statistics(x)
    function = family.potentials(natural, collapsed=True)
    rows, plain = function.rows(x, np.float64, 1), function.plain(x)
    wanted = np.exp(plain - plain.max(axis=1, keepdims=True))
    np.testing.assert_allclose(rows.table, wanted, rtol=1e-10, atol=1e-300)


@pytest.mark.parametrize("collapsed", [True, False], ids=["collapsed", "mean-field"])
@pytest.mark.parametrize("n_columns", [1, 3, 12])
@pytest.mark.parametrize("family", [sj.Gaussian(), sj.DiagonalGaussian()])
def test_densities_in_single_precision(family, n_columns, collapsed):
    # Many steps are computed in single precision; outliers and missing steps are not.
    rng, n_states = np.random.default_rng(n_columns), 5
    means = rng.normal(0.0, 2.0, (n_states, n_columns))
    states = rng.integers(n_states, size=4001)
    x = means[states] + rng.normal(size=(4001, n_columns))
    family = family.resolve(sj.Sequences(x, [0, len(x)]), n_states)
    x[1000], x[1001], x[2500] = 1e5, -1e60, np.nan
    weights = 50.0 * (np.arange(n_states)[:, None] == states)
    weights[:, [1000, 1001, 2500]] = 0.0
    natural = family.prior() + weights @ family.statistics(x)
    function = family.potentials(natural, collapsed=collapsed)
    if not function.whole_rows:
        x = np.delete(x, 2500, axis=0)
    arguments = function.weights, *function._of_states
    single = single_weights(*arguments, collapsed=collapsed)
    assert single.are_enough_for(x, function.location)
    rows, plain = function.rows(x, np.float32, 2), function.plain(x)
    wanted = np.exp(plain - plain.max(axis=1, keepdims=True))
    np.testing.assert_allclose(rows.table, wanted, atol=5e-6)
    near = np.arange(len(x)) != 1001  # beyond single precision, and cut off, but not missing
    assert rows.log_scale[1001] < -1e5
    scale = plain.max(axis=1)
    np.testing.assert_allclose(rows.log_scale[near], scale[near], rtol=1e-6, atol=1e-5)
    # Rounding has no direction: sums are better than single steps.
    both = rows.table.astype(np.float64), wanted
    shares, exact = (table / table.sum(axis=1, keepdims=True) for table in both)
    np.testing.assert_allclose(shares.sum(axis=0), exact.sum(axis=0), rtol=2e-7)


@pytest.mark.parametrize("collapsed", [True, False], ids=["collapsed", "mean-field"])
def test_regressions_in_single_precision(collapsed):
    rng, n_states = np.random.default_rng(0), 4
    values = np.cumsum(rng.normal(size=(4000, 3)), axis=0) % 7.0
    data = sj.Sequences.from_lengths(values, [40] * 100)
    family = sj.AutoregressiveGaussian(order=2).resolve(data, n_states)
    x = family.observations(data)
    weights = rng.gamma(0.3, 100.0, (n_states, len(x)))
    natural = family.prior() + weights @ family.statistics(x)
    function = family.potentials(natural, collapsed=collapsed)
    assert function._single.are_enough_for(x, function.location)
    rows, plain = function.rows(x, np.float32, 2), function.plain(x)
    wanted = np.exp(plain - plain.max(axis=1, keepdims=True))
    np.testing.assert_allclose(rows.table, wanted, atol=5e-6)
    np.testing.assert_allclose(rows.log_scale, plain.max(axis=1), rtol=1e-6, atol=1e-5)


def test_the_past_of_complete_sequences():
    lengths, order = [1, 2, 5, 40], 3
    values = np.random.default_rng(0).normal(size=(sum(lengths), 2))
    data = sj.Sequences.from_lengths(values, lengths)
    family = sj.AutoregressiveGaussian(order=order).resolve(data, 2)
    wanted = []
    for sequence in data:
        for t in range(len(sequence)):
            past = [sequence[max(0, t - lag)] for lag in range(1, order + 1)]
            wanted.append(np.concatenate([sequence[t] if t else [np.nan] * 2, *past]))
    np.testing.assert_array_equal(family.observations(data), wanted)


def test_single_precision_is_not_taken_far_from_the_location():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(0.0, 1e-3, (2000, 1)), rng.normal(9.0, 1e-3, (2000, 1))])
    family = sj.DiagonalGaussian().resolve(sj.Sequences(x, [0, 4000]), 2)
    weights = np.repeat(np.eye(2), 2000, axis=1)
    natural = family.prior() + weights @ family.statistics(x)
    function = family.potentials(natural, collapsed=True)
    rows, plain = function.rows(x, np.float32, 1), function.plain(x)
    np.testing.assert_allclose(rows.log_scale, plain.max(axis=1), rtol=1e-10)


@pytest.mark.parametrize("n_columns", [1, 2, 7, 16, 19])
@pytest.mark.parametrize("n_steps", [1, 6, 300, 2500])
def test_sums_of_columns(n_steps, n_columns):
    rng = np.random.default_rng(n_steps)
    x = rng.normal(5.0, 1.0, (n_steps, n_columns))
    location = rng.normal(5.0, 1.0, n_columns)
    y = x - location
    for n_states, dtype in ((1, np.float32), (2, np.float64), (7, np.float32)):
        weights = rng.random((n_steps, n_states)).astype(dtype)
        wide = weights.astype(np.float64)
        wanted = wide.sum(axis=0)[None], y.T @ wide, (y**2).T @ wide
        for n_threads in (1, 2):
            found = sum_moments(x, location, weights, squares=True, n_threads=n_threads)
            for got, expected in zip(found, wanted, strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-11)
        found = sum_moments(x, location, weights, squares=False, n_threads=1)
        np.testing.assert_allclose(found[1], wanted[1], rtol=1e-12, atol=1e-11)
    x[-1, -1] = np.nan
    assert sum_moments(x, location, weights, squares=True, n_threads=1) is None


def test_columns_of_many_values_are_multiplied_from_several_tables():
    rng = np.random.default_rng(0)
    values = rng.poisson(rng.gamma(2.0, 20.0, (5000, 5)))
    family = sj.Poisson().resolve(sj.Sequences(values, [0, 5000]), 4)
    x = values.astype(np.float64)
    natural = family.prior() + rng.gamma(1.0, 1.0, (4, 5000)) @ family.statistics(x)
    function = family.potentials(natural, collapsed=True)
    rows = function.rows(x, np.float32, 2)
    assert len(rows.table) == 5000
    plain = function.plain(x)
    found = np.log(np.maximum(rows.table, 1e-38)) + rows.log_scale[:, None]
    near = plain > plain.max(axis=1, keepdims=True) - 20.0
    np.testing.assert_allclose(found[near], plain[near], atol=2e-6)


def test_products_of_rows_keep_states_that_all_but_one_column_rule_out():
    # Columns favour different states by factors that together leave the range of numbers.
    rng = np.random.default_rng(0)
    logs = np.log(rng.random((30, 3)))
    logs[:10] -= [0.0, 200.0, 400.0]
    logs[10:20] -= [400.0, 200.0, 0.0]
    top = logs.max(axis=1)
    table = np.zeros((30, 8))
    table[:, :3] = np.exp(logs - top[:, None])
    firsts = np.array([0, 10, 0, 10, 20, 20])
    index = (firsts + rng.integers(10, size=(500, 6))).astype(np.int32)
    rows, scale = product_rows(index, table, top, 3, np.float64, n_threads=1)
    with np.errstate(divide="ignore"):
        found = np.log(rows) + scale[:, None]
    expected = logs[index].sum(axis=1)
    near = expected > expected.max(axis=1, keepdims=True) - 500.0
    assert near.sum() > 500
    np.testing.assert_allclose(found[near], expected[near], rtol=1e-12)
    # Those of columns that agree are scaled once, at the end.
    agreeing = (20 + rng.integers(10, size=(500, 6))).astype(np.int32)
    table[20:, :3] *= 1e-5
    rows, scale = product_rows(agreeing, table, top, 3, np.float64, n_threads=1)
    found, expected = np.log(rows) + scale[:, None], logs[agreeing].sum(axis=1)
    np.testing.assert_allclose(found, expected - 6 * 5 * np.log(10.0), rtol=1e-12)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)


def test_tables_are_made_anew_where_values_are_new():
    rng = np.random.default_rng(0)
    values = rng.poisson(rng.gamma(2.0, 20.0, (5000, 5))).astype(np.float64)
    family = sj.Poisson().resolve(sj.Sequences(values, [0, 5000]), 4)
    natural = family.prior() + rng.gamma(1.0, 1.0, (4, 5000)) @ family.statistics(values)
    function = family.potentials(natural, collapsed=True)
    # The second part has larger values, the third smaller ones, the last the same.
    values[1000:2000] += 40.0
    values[:2000] += 3.0
    for part in (values[:1000], values[1000:2000], values[2000:], values[2000:]):
        rows = function.rows(part, np.float64, 1)
        found = np.log(np.maximum(rows.table[:, :4], 1e-300)) + rows.log_scale[:, None]
        plain = function.plain(part)
        near = plain > plain.max(axis=1, keepdims=True) - 20.0
        np.testing.assert_allclose(found[near], plain[near], atol=1e-9)


def test_few_combinations_become_symbols():
    rng = np.random.default_rng(0)
    values = rng.integers(2, size=(3000, 8))
    family = sj.Bernoulli().resolve(sj.Sequences(values, [0, 3000]), 2)
    natural = family.prior() + rng.random((2, 16))
    rows = family.potentials(natural, collapsed=True).rows(values.astype(float), np.float64, 1)
    assert len(rows.table) == 2**8


def test_totals_of_statistics_that_are_replaced_as_a_whole_are_summed_in_double_precision():
    values = np.random.default_rng(0).random((3000, 3)).astype(np.float32)
    table = DecayedTable(np.zeros((3, 3000)), "float32")
    table.blend(RowSums(None, values, 3000), keep=0.0, weight=1.0)
    assert table.totals.dtype == np.float64
    np.testing.assert_allclose(table.totals, values.astype(np.float64).sum(axis=0), rtol=1e-14)
