"""Tiles of long sequences on a GPU: what the CPU counts and predicts."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import sojourn as sj
from sojourn.backends.compute import Compute
from sojourn.inference.long import LongPrediction

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

RNG = np.random.default_rng(0)
SYMBOLS = RNG.integers(-1, 4, size=70)
NUMBERS = RNG.normal(size=(70, 2))


@pytest.mark.parametrize(
    ("emission", "data"), [(sj.Categorical(4), SYMBOLS), (sj.DiagonalGaussian(), NUMBERS)]
)
def test_tiles_count_and_predict_as_on_the_cpu(emission, data):
    options = {"tile_length": 16, "batch_size": 2, "buffer": 5, "n_passes": 1}
    here, there = (
        sj.HMM(3, emission, dtype="float64", random_state=0, device=device, **options).fit(data)
        for device in ("cpu", "cuda")
    )
    for name in ("start", "transitions", "emissions"):
        ours, theirs = (getattr(model.statistics_, name) for model in (there, here))
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    fitted = here.fitted_
    own = fitted.prepare(data).sequences
    on_cpu, on_gpu = (
        LongPrediction(
            fitted.posterior, fitted.family, own, Compute(device, 1, "float64").backend(), 35
        )
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(on_gpu.log_likelihoods(), on_cpu.log_likelihoods(), rtol=1e-9)
    rows, expected = (np.concatenate(list(f.state_probabilities())) for f in (on_gpu, on_cpu))
    np.testing.assert_allclose(rows, expected, atol=1e-9)
    paths = [np.concatenate([path for path, _, _ in f.best_paths()]) for f in (on_gpu, on_cpu)]
    np.testing.assert_array_equal(*paths)
