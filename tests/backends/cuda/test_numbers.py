"""Numbers on a GPU: kernels of their own give the closed forms, and steps are recorded."""

import numpy as np
import pytest

import sojourn as sj
from sojourn.families.dense import DenseFamily
from tests.support.drawn import Table, drawn
from tests.support.families import EXAMPLES

torch = pytest.importorskip("torch", reason="PyTorch is the extra gpu: make test-gpu")
pytest.importorskip("triton", reason="Triton is the extra gpu: make test-gpu")

from sojourn.backends.cuda import backend, graphs  # noqa: E402
from sojourn.backends.cuda.backend import find_device  # noqa: E402
from sojourn.backends.cuda.windows import RowStore  # noqa: E402
from sojourn.families.fused import TensorRows  # noqa: E402
from sojourn.kernels import cuda  # noqa: E402
from sojourn.kernels.arrays import to_device, to_host  # noqa: E402
from sojourn.kernels.cuda import observations  # noqa: E402
from tests.support.quick import use_quick_recursions, use_recordings  # noqa: E402

# Triton's interpreter warns of what the GPU does not, and uses NumPy in ways that are going away.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
DEVICE = find_device() if torch.cuda.is_available() or cuda.INTERPRETED else None
FUSED = [
    name
    for name, example in EXAMPLES.items()
    if isinstance(example.resolve(3), DenseFamily) and example.resolve(3).fused
]


def placed(d, n_sequences=4):
    store = RowStore.of(d.family, d.data, DEVICE)
    return store.encoded(store.values, n_sequences)


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("collapsed", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 3e-7)])
def test_a_kernel_gives_the_potentials_of_the_closed_form(name, collapsed, dtype, tolerance):
    d = drawn(name, 1, n_steps=70)
    rows = placed(d)
    table = Table(to_device(d.natural - d.family.prior(), DEVICE))
    found = d.family.emission_rows(
        rows, table, collapsed=collapsed, dtype=np.dtype(dtype), n_threads=1
    )
    exact = (d.family.log_predictive if collapsed else d.family.expected_log_likelihood)(
        d.x, d.natural
    )
    largest = exact.max(axis=1)
    np.testing.assert_allclose(to_host(found.log_scale), largest, rtol=1e-10, atol=1e-10)
    exact = np.exp(exact - largest[:, None])
    np.testing.assert_allclose(to_host(found.table), exact, rtol=0, atol=tolerance)
    assert str(found.table.dtype) == f"torch.{dtype}"


@pytest.mark.parametrize("name", FUSED)
def test_a_kernel_gives_the_sums_of_the_closed_form(name):
    d = drawn(name, 2, n_steps=70)
    weights = np.random.default_rng(0).random((70, 3)).astype(np.float32)
    found = d.family.sum_statistics(placed(d), to_device(weights, DEVICE), n_threads=1)
    exact = d.family.statistics(d.x).T @ weights.astype(np.float64)
    np.testing.assert_allclose(to_host(found.dense()), exact, rtol=1e-12, atol=1e-12)


def test_steps_without_a_weight_change_no_bit_of_a_sum():
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(900, 2)), rng.random((900, 3))
    weights[500:] = 0.0
    places, factors = np.array([[0, 1], [1, 1], [0, 0]], np.int32), rng.normal(size=(3, 2))
    arguments = [to_device(part, DEVICE) for part in (np.zeros(2), places, factors)]
    one, other = (
        observations.quadratic_sums(
            to_device(x[:n], DEVICE), *arguments, to_device(weights[:n], DEVICE), 7
        )
        for n in (500, 900)
    )
    assert torch.equal(one, other)


@pytest.mark.parametrize("largest", [1023, 1024])
def test_large_counts_are_not_looked_up(largest):
    family = sj.Poisson(1, prior_shape=1.0, prior_rate=1.0)
    data = sj.Sequences.from_list([np.array([[0.0], [largest], [np.nan]])])
    rows = placed(drawn_with(family, data))
    assert isinstance(rows, TensorRows)
    assert (rows.range is None) == (largest > 1023)
    natural = np.array([[2.0, 3.0], [1.0, 400.0]])
    table = Table(to_device(natural - family.prior(), DEVICE))
    found = family.emission_rows(
        rows, table, collapsed=True, dtype=np.dtype(np.float64), n_threads=1
    )
    exact = family.log_predictive(family.observations(data), natural)
    largest = exact.max(axis=1)
    np.testing.assert_allclose(to_host(found.log_scale), largest, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(to_host(found.table), np.exp(exact - largest[:, None]), rtol=1e-9)


def drawn_with(family, data):
    d = drawn("Poisson", 0)
    d.family, d.data = family, data
    return d


RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(1, 9, 41)
LOC = 3.0 * RNG.integers(0, 2, len(LENGTHS))
REALS = [RNG.normal(at, 1.0, (n, 2)) for n, at in zip(LENGTHS, LOC, strict=True)]
COUNTS = [RNG.poisson(2.0 + at, (n, 2)).astype(float) for n, at in zip(LENGTHS, LOC, strict=True)]
BITS = [(count > 3.0).astype(float) for count in COUNTS]
COUNTS[3][0, 1] = np.nan


@pytest.mark.parametrize(
    ("emission", "data"),
    [
        (sj.Gaussian(), REALS),
        (sj.DiagonalGaussian(), REALS),
        (sj.AutoregressiveGaussian(), REALS),
        (sj.Poisson(), COUNTS),
        (sj.Bernoulli(), BITS),
        (sj.StudentT(), REALS),
        (sj.Mixture(sj.Poisson(), 2), COUNTS),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("kind", [sj.HMM, sj.HDPHMM])
def test_recorded_steps_of_numbers_learn_what_the_cpu_does(kind, emission, data, monkeypatch):
    use_quick_recursions(monkeypatch)
    use_recordings(monkeypatch)
    replays = []
    replay = graphs.Recorder.replay
    monkeypatch.setattr(
        backend.graphs.Recorder,
        "replay",
        lambda *arguments: replays.append(1) or replay(*arguments),
    )
    options = {"batch_size": 10, "n_passes": 3, "random_state": 0, "moves": None}
    here, there = (
        kind(3, emission, device=device, **options).fit(data) for device in ("cpu", "cuda")
    )
    assert len(replays) == 3 * 4  # and not the last minibatch of a pass, which is smaller
    for name in ("start", "transitions", "emissions"):
        exact, found = (getattr(model.statistics_, name) for model in (here, there))
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())
    assert there.score(data) == pytest.approx(here.score(data), rel=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU: make test-gpu")
@pytest.mark.parametrize("emission", [sj.Gaussian(), sj.DiagonalGaussian(), sj.Poisson()])
def test_a_recorded_step_of_numbers_is_the_step_to_the_bit(emission, monkeypatch):
    data = COUNTS if isinstance(emission, sj.Poisson) else REALS
    options = {"batch_size": 10, "n_passes": 3, "random_state": 0, "moves": None}
    recorded = sj.HMM(3, emission, device="cuda", **options).fit(data)
    monkeypatch.setattr(graphs.Recorder, "takes", lambda self, batch: False)
    plain = sj.HMM(3, emission, device="cuda", **options).fit(data)
    np.testing.assert_array_equal(recorded.transmat_, plain.transmat_)
    np.testing.assert_array_equal(recorded.statistics_.emissions, plain.statistics_.emissions)
