"""States that last on a GPU against the reference; without one through Triton's interpreter."""

import numpy as np
import pytest

from sojourn.kernels import reference
from sojourn.kernels.edges import TileKernel
from sojourn.kernels.tiles import Tiles
from tests.support.durations import assert_same, batch

torch = pytest.importorskip("torch", reason="PyTorch is the extra gpu: make test-gpu")
pytest.importorskip("triton", reason="Triton is the extra gpu: make test-gpu")

from sojourn.backends.cuda.backend import find_device  # noqa: E402
from sojourn.kernels import cuda  # noqa: E402
from sojourn.kernels.arrays import to_device, to_host  # noqa: E402
from sojourn.kernels.cuda import durations  # noqa: E402

# Triton's interpreter warns of what the GPU does not, and uses NumPy in ways that are going away.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
DEVICE = find_device() if torch.cuda.is_available() or cuda.INTERPRETED else None
TOLERANCE = {np.float32: 2e-5, np.float64: 1e-10}
SHAPES = [
    (1, 1, [1], "both", np.float32),
    (2, 1, [3, 1], "negative binomial", np.float32),
    (3, 4, [5, 2, 1], "explicit", np.float64),
    (5, 3, [4, 3], "both", np.float32),
]


@pytest.mark.parametrize("kernel", [cuda, cuda.PaddedKernel(2)], ids=["cuda", "padded"])
@pytest.mark.parametrize(("n_states", "n_copies", "lengths", "kind", "dtype"), SHAPES)
def test_the_gpu_does_what_the_reference_does(n_states, n_copies, lengths, kind, dtype, kernel):
    data = batch(1, n_states, n_copies, lengths, kind, dtype)
    there, tolerance = to_device(data, DEVICE), TOLERANCE[dtype]
    expected = reference.forward_backward(*data, squares=True)
    got = kernel.forward_backward(*there, squares=True)
    assert_same(got, expected, tolerance)
    assert kernel.forward_backward(*there).squares is None
    np.testing.assert_allclose(
        to_host(kernel.log_normalizers(*there)), expected.log_normalizers, rtol=tolerance
    )
    score, path = kernel.viterbi(*there)
    best, best_path = reference.viterbi(*data)
    np.testing.assert_allclose(to_host(score), best, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(to_host(path), best_path)
    found = kernel.log_potential(got, *there[:2])
    assert float(found) == pytest.approx(
        reference.log_potential(expected, *data[:2]), rel=tolerance
    )


def test_programs_that_have_several_sequences_add_them_up(monkeypatch):
    monkeypatch.setattr(durations, "PROGRAMS", 2)
    data = batch(2, 3, 2, [2, 5, 1, 3, 4])
    got = cuda.forward_backward(*to_device(data, DEVICE), squares=True)
    assert_same(got, reference.forward_backward(*data, squares=True), 1e-10)


@pytest.mark.parametrize("most", [128, 0], ids=["copies", "expanded"])
def test_a_missing_observation_has_a_row_beyond_the_table(most, monkeypatch):
    monkeypatch.setattr(durations, "_STATES", most)  # more are written as K·J states
    potentials, index, offsets = batch(3, 3, 2, [6])
    ones = potentials._replace(
        emissions=np.concatenate([potentials.emissions, np.ones((1, 3))]),
        log_scale=np.append(potentials.log_scale, 0.0),
    )
    index[2:4] = len(potentials.emissions)
    expected = reference.forward_backward(ones, index, offsets, squares=True)
    got = cuda.forward_backward(*to_device((potentials, index, offsets), DEVICE), squares=True)
    assert_same(got, expected, 1e-10)
    log_z = cuda.log_normalizers(*to_device((potentials, index, offsets), DEVICE))
    np.testing.assert_allclose(to_host(log_z), expected.log_normalizers)


def test_a_sequence_without_a_possible_path_adds_nothing():
    potentials, index, offsets = batch(4, 2, 2, [2, 8], "explicit")
    potentials = potentials._replace(transitions=np.zeros((2, 2)))  # eight steps are too many
    got = cuda.forward_backward(*to_device((potentials, index, offsets), DEVICE), squares=True)
    alone = reference.forward_backward(potentials, index[:2], offsets[:2], squares=True)
    assert to_host(got.log_normalizers)[1] == -np.inf
    for name in ("start", "transitions"):
        np.testing.assert_allclose(to_host(getattr(got, name)), getattr(alone, name), atol=1e-12)
    for ours, theirs in zip(got.durations, alone.durations, strict=True):
        np.testing.assert_allclose(to_host(ours), theirs, atol=1e-12)


@pytest.mark.parametrize("kernel", [cuda, cuda.PaddedKernel(2)], ids=["cuda", "padded"])
def test_tiles_are_parts_of_the_whole(kernel):
    potentials, index, offsets = batch(3, 3, 2, [12])
    expected = reference.forward_backward(potentials, index, offsets, squares=True)
    counted = np.array([[0, 4, 0, 0], [4, 5, 0, 0], [5, 12, 0, 0]])
    tiles = Tiles.of(np.array([0, 12, 24, 36]), counted)
    there = to_device((potentials, np.concatenate([index] * 3)), DEVICE)
    tiled = TileKernel(kernel, tiles, 1)
    got = tiled.forward_backward(*there, squares=True)
    parts = to_host(got.log_normalizers)
    np.testing.assert_allclose(to_host(tiled.log_normalizers(*there)), parts, rtol=1e-10)
    rows = to_host(got.responsibilities)[tiles.steps.on(index)]
    got = got._replace(log_normalizers=parts.sum(keepdims=True), responsibilities=rows)
    assert_same(got, expected, 1e-10)
