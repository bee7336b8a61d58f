"""Models whose states last, on a GPU as on the CPU."""

import numpy as np
import pytest

import sojourn as sj

torch = pytest.importorskip("torch", reason="PyTorch is the extra gpu: make test-gpu")
pytest.importorskip("triton", reason="Triton is the extra gpu: make test-gpu")

from sojourn.kernels import cuda  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::sojourn.FitWarning"),
    pytest.mark.skipif(not (torch.cuda.is_available() or cuda.INTERPRETED), reason="needs a GPU"),
]


def drawn(n_sequences, n_steps):
    """Draw symbols of two states that last at least three steps."""
    rng = np.random.default_rng(0)
    states = np.empty((n_sequences, n_steps), np.int64)
    for row in states:
        first = rng.integers(2)
        visits = 3 + rng.negative_binomial(3, 0.6, size=n_steps)
        row[:] = np.repeat((first + np.arange(n_steps)) % 2, visits)[:n_steps]
    return np.where(rng.random(states.shape) < 0.8, states, 2).ravel(), [n_steps] * n_sequences


@pytest.mark.parametrize(
    ("model", "duration"),
    [
        (sj.HMM, sj.NegativeBinomialDuration(3)),
        (sj.HDPHMM, sj.CategoricalDuration(4)),
    ],
)
def test_durations_are_learned_as_on_the_cpu(model, duration):
    X, lengths = drawn(8, 10)
    one, other = (
        model(
            2,
            sj.Categorical(3),
            duration=duration,
            device=device,
            dtype="float64",
            batch_size=4,
            n_passes=2,
            random_state=0,
        ).fit(X, lengths)
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(other.transmat_, one.transmat_, rtol=1e-10)
    for ours, theirs in zip(other.durations_, one.durations_, strict=True):
        np.testing.assert_allclose(ours.probabilities, theirs.probabilities, rtol=1e-9, atol=1e-12)
    assert other.score(X, lengths) == pytest.approx(one.score(X, lengths), rel=1e-10)
    np.testing.assert_allclose(
        other.predict_proba(X, lengths), one.predict_proba(X, lengths), atol=1e-10
    )
    np.testing.assert_array_equal(other.predict(X, lengths), one.predict(X, lengths))
