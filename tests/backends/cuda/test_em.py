"""Maximum likelihood on a device: the estimates of the CPU."""

import numpy as np
import pytest

import sojourn as sj

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
STATES = [np.repeat(RNG.integers(2, size=3), 4) for _ in range(6)]
NUMBERS = [RNG.normal(size=(len(s), 2)) + 5.0 * s[:, None] for s in STATES]
COUNTS = [RNG.poisson(3.0 + 9.0 * s).astype(float) for s in STATES]
FAMILIES = {
    "Gaussian": (sj.Gaussian(), NUMBERS),
    "TiedGaussian": (sj.TiedGaussian(), NUMBERS),
    "DiagonalGaussian": (sj.DiagonalGaussian(), NUMBERS),
    "SphericalGaussian": (sj.SphericalGaussian(), NUMBERS),
    "Poisson": (sj.Poisson(), COUNTS),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_estimates_are_those_of_the_cpu(name):
    family, data = FAMILIES[name]
    ours, theirs = (
        sj.HMM(
            2, family, inference="em", n_passes=3, n_init=1, random_state=0, device=device,
            tile_length=None, dtype="float32",
        ).fit(data)
        for device in ("cuda", "cpu")
    )  # fmt: skip
    for parameter in (*family.parameter_names, "transmat_", "startprob_"):
        np.testing.assert_allclose(
            getattr(ours, parameter), getattr(theirs, parameter), rtol=2e-4, atol=2e-4
        )
