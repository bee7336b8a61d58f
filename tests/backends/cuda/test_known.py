"""Labels and weights on a device: what the CPU does, and what all paths say, there."""

import numpy as np
import pytest

import sojourn as sj
from tests.support.enumeration import smooth

torch = pytest.importorskip("torch", reason="PyTorch is the extra gpu: make test-gpu")
pytest.importorskip("triton", reason="Triton is the extra gpu: make test-gpu")

from sojourn.kernels import cuda as gpu  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.skipif(
        not (torch.cuda.is_available() or gpu.INTERPRETED), reason="there is no GPU here"
    ),
]
RNG = np.random.default_rng(3)
STATES = [RNG.integers(2, size=n) for n in RNG.integers(3, 7, 12)]
SYMBOLS = [np.where(RNG.random(len(s)) < 0.8, s, 2) for s in STATES]
SYMBOLS[1][1] = -1  # missing
COUNTS = [RNG.poisson(3.0 + 9.0 * s).astype(float) for s in STATES]
LABELS = [np.where(RNG.random(len(s)) < 0.5, s, -1) for s in STATES]
WEIGHTS = RNG.choice([0.5, 2.0], 12)
FAMILIES = {"symbols": (sj.Categorical(3), SYMBOLS), "counts": (sj.Poisson(), COUNTS)}


def fitted(name, device, constraints=None, **known):
    family, data = FAMILIES[name]
    model = sj.HMM(3, family, random_state=0, batch_size=5, n_passes=2, device=device)
    model.set_params(dtype="float32", tile_length=None, transition_constraints=constraints)
    return model.fit(data, **known)


@pytest.mark.parametrize("name", FAMILIES)
def test_labels_and_weights_count_as_on_the_cpu(name):
    known = {"y": LABELS, "sample_weight": WEIGHTS}
    ours, theirs = (fitted(name, device, **known).statistics_ for device in ("cuda", "cpu"))
    for part in ("start", "transitions", "emissions"):
        got, expected = getattr(ours, part), getattr(theirs, part)
        np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("with_zeros", [False, True])
def test_masks_multiply_the_potentials_of_every_path(name, with_zeros):
    constraints = np.full((3, 3), np.nan)
    constraints[0, 2] = constraints[1, 0] = 0.0
    model = fitted(name, "cuda", constraints if with_zeros else None)
    if with_zeros:
        for found in (model.transmat_, model.statistics_.transitions):
            np.testing.assert_array_equal(found == 0.0, constraints == 0.0)
    x = FAMILIES[name][1][1][:3]
    natural = model.emission_.prior() + model.statistics_.emissions
    values = model.emission_.validate(sj.Sequences(x if name == "symbols" else x[:, None], [0, 3]))
    logs = model.emission_.log_predictive(model.emission_.observations(values), natural)
    masks = np.random.default_rng(0).random((3, 3))
    masks[2, :2] = 0.0
    rows = np.exp(logs) * masks
    log_z, marginals, _, path, best = smooth(model.startprob_, model.transmat_, rows)
    assert model.score(x, y=masks) == pytest.approx(log_z, abs=1e-3)
    np.testing.assert_allclose(model.predict_proba(x, y=masks), marginals, atol=1e-4)
    score, states = model.decode(x, y=masks)
    assert score == pytest.approx(best, abs=1e-3)
    np.testing.assert_array_equal(states, path)
