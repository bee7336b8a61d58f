"""Several models of the same steps in one sweep, against each of them alone."""

import numpy as np
import pytest
from scipy.stats import nbinom

from sojourn.kernels import reference
from sojourn.kernels.cpu.clusters import lloyd, shared, spread_centres
from sojourn.kernels.cpu.counts import gamma_poisson_rows
from sojourn.kernels.cpu.together import Sweeps
from sojourn.kernels.interface import Potentials


def drawn(n_states, n_models, n_rows, rng):
    start = rng.dirichlet(np.ones(n_states), n_models).T
    rows = rng.dirichlet(np.ones(n_states), (n_models, n_states)).transpose(1, 2, 0)
    table = rng.random((n_rows, n_states * n_models + 2))  # wider than it need be
    return Potentials(start, rows, table, rng.normal(size=n_rows))


def alone(potentials, model):
    n_states, n_models = potentials.start.shape
    table = potentials.emissions[:, : n_states * n_models].reshape(-1, n_states, n_models)
    return potentials._replace(
        start=potentials.start[:, model],
        transitions=potentials.transitions[..., model],
        emissions=np.ascontiguousarray(table[..., model]),
    )


@pytest.mark.parametrize(("n_states", "n_models"), [(1, 2), (3, 10), (5, 16)])
def test_models_at_once_are_models_one_by_one(n_states, n_models):
    rng = np.random.default_rng([n_states, n_models])
    potentials = drawn(n_states, n_models, 7, rng)
    index, offsets = rng.integers(7, size=60), np.array([0, 1, 30, 60])
    sweeps = Sweeps(offsets)
    sweeps.smooth(drawn(n_states, n_models, 7, rng), index)  # nothing of it may be left
    found = sweeps.smooth(potentials, index)
    shares = found.responsibilities.reshape(60, n_states, n_models)
    for model in range(n_models):
        expected = reference.forward_backward(alone(potentials, model), index, offsets)
        total = expected.log_normalizers.sum()
        np.testing.assert_allclose(found.log_normalizers[model], total, rtol=1e-12)
        np.testing.assert_allclose(found.start[:, model], expected.start, rtol=1e-11)
        np.testing.assert_allclose(found.transitions[..., model], expected.transitions, rtol=1e-11)
        np.testing.assert_allclose(shares[..., model], expected.responsibilities, rtol=1e-11)


def test_a_product_of_many_totals_stays_in_range():
    potentials = Potentials(np.ones((1, 2)), np.ones((1, 1, 2)), np.array([[1e-100, 1e100]]))
    found = Sweeps(np.array([0, 500])).smooth(potentials, np.zeros(500, np.int64))
    np.testing.assert_allclose(found.log_normalizers, np.log([1e-100, 1e100]) * 500)


def test_a_model_without_a_path_does_not_touch_the_others():
    rng = np.random.default_rng(0)
    potentials = drawn(2, 3, 4, rng)
    potentials.emissions[1, [1, 4]] = 0.0  # both states of the second model
    index = np.array([0, 1, 2, 3])
    found = Sweeps(np.array([0, 4])).smooth(potentials, index)
    assert np.isnan(found.log_normalizers).tolist() == [False, True, False]
    expected = reference.forward_backward(alone(potentials, 2), index, np.array([0, 4]))
    np.testing.assert_allclose(found.transitions[..., 2], expected.transitions, rtol=1e-12)


def test_centres_are_the_means_of_what_is_nearest():
    rng = np.random.default_rng(1)
    points, centres = rng.normal(size=(40, 2)), rng.normal(size=(4, 2))
    expected = centres.copy()
    expected[3] = centres[3] = 1e3  # it has no points, and stays
    for _ in range(3):
        nearest = ((points[:, None] - expected) ** 2).sum(axis=2).argmin(axis=1)
        for k in set(nearest):
            expected[k] = points[nearest == k].mean(axis=0)
    lloyd(points, centres, 3)
    np.testing.assert_allclose(centres, expected, rtol=1e-12)


def test_centres_are_drawn_by_their_squared_distances():
    points = np.array([[0.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 0.0]])
    grid = (np.arange(1000) + 0.5) / 1000
    second = [spread_centres(points, 0, np.array([u]))[1].tolist() for u in grid]
    assert second.count([0.0, 1.0]) == 200
    assert second.count([2.0, 0.0]) == 800
    same = spread_centres(np.ones((3, 1)), 2, np.array([0.0, 0.999]))
    np.testing.assert_array_equal(same, np.ones((3, 1)))


def test_points_are_shared_by_their_distances_from_the_centres():
    rng = np.random.default_rng(2)
    points, centres = rng.normal(size=(30, 2)), rng.normal(size=(3, 2))
    squares = ((points[:, None] - centres) ** 2).sum(axis=2)
    expected = np.exp(-squares / squares.min(axis=1).mean())
    expected = 0.9 * expected / expected.sum(axis=1, keepdims=True) + 0.1 / 3
    np.testing.assert_allclose(shared(points, centres, 0.1), expected, rtol=1e-12)


def test_rows_of_counts_are_negative_binomial():
    rng = np.random.default_rng(3)
    a, b = 300.0 * rng.random(5) + 0.1, 20.0 * rng.random(5) + 0.1
    for x in (np.array([0.0, 1.0, 4.0, 40.0, 41.0, 3.0, 900.0]), rng.poisson(9.0, 50) * 1.0):
        rows, scale = gamma_poisson_rows(x, a, b, np.float64)
        expected = nbinom.logpmf(x[:, None], a, b / (1.0 + b))
        np.testing.assert_allclose(scale, expected.max(axis=1), rtol=1e-10, atol=1e-10)
        relative = np.exp(expected - expected.max(axis=1, keepdims=True))
        np.testing.assert_allclose(rows[:, :5], relative, rtol=1e-9, atol=1e-300)
    rows, scale = gamma_poisson_rows(np.array([np.nan, 2.0]), a, b, np.float32)
    assert (rows[0, :5] == 1.0).all()
    assert scale[0] == 0.0
    assert rows.dtype == np.float32
