"""Several models of the same steps in one sweep, against each of them alone."""

import numpy as np
import pytest

from sojourn.kernels import reference
from sojourn.kernels.cpu.clusters import lloyd
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
