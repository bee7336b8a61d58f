"""``device="cuda"`` gives what the CPU gives; without a GPU through Triton's interpreter."""

import numpy as np
import pytest

import sojourn as sj
from sojourn.inference import COLLAPSED, trainer
from sojourn.inference.local import prepare
from sojourn.inference.step import step

torch = pytest.importorskip("torch", reason="PyTorch is the extra gpu: make test-gpu")
pytest.importorskip("triton", reason="Triton is the extra gpu: make test-gpu")

from sojourn.backends.cuda import windows  # noqa: E402
from sojourn.backends.cuda.backend import CudaBackend  # noqa: E402
from sojourn.backends.cuda.graphs import Recorder  # noqa: E402
from sojourn.kernels import cuda as gpu  # noqa: E402
from sojourn.models.parameters import compute_of  # noqa: E402

# Triton's interpreter warns of what the GPU does not, and uses NumPy in ways that are going away.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
RNG = np.random.default_rng(0)
LENGTHS = [1, 5, 3, 8, 2, 4, 6, 1, 3]
SYMBOLS = [RNG.integers(0, 6, n) for n in LENGTHS]
REALS = [RNG.normal(size=(n, 2)) for n in LENGTHS]
COUNTS = [RNG.poisson(3.0, (n, 2)) for n in LENGTHS]
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="CUDA graphs need a GPU: make test-gpu there"
)


def model(kind=sj.HMM, emission=None, **options):
    settings = {"n_states": 3, "batch_size": 4, "n_passes": 2, "random_state": 0, "moves": None}
    emission = sj.Categorical(n_symbols=6) if emission is None else emission
    return kind(emission=emission, **(settings | options))


def both(data, validation=None, **options):
    here = model(**options).fit(data, validation=validation)
    there = model(device="cuda", **options).fit(data, validation=validation)
    return here, there


def assert_same(here, there, rtol=1e-4):
    for name in ("start", "transitions", "emissions"):
        exact = getattr(here.statistics_, name)
        found = getattr(there.statistics_, name)
        np.testing.assert_allclose(found, exact, rtol=rtol, atol=rtol * np.abs(exact).max())


WAYS = [
    {"inference": "scvi"},
    {"inference": "svi"},
    {"inference": "vb"},
    {"inference": "scvi", "emission": sj.Categorical(6, concentration=np.linspace(0.1, 0.6, 6))},
    {"kind": sj.HDPHMM, "inference": "scvi"},
    {"kind": sj.HDPHMM, "inference": "svi"},
    {"kind": sj.HDPHMM, "inference": "scvi", "dtype": "float64"},
    {"batch_size": None},
    {"batch_size": 100},
]


@pytest.mark.parametrize("options", WAYS)
def test_symbols_are_learned_as_on_the_cpu(options):
    data = [sequence.copy() for sequence in SYMBOLS]
    data[1][2] = -1
    here, there = both(data, validation=data[:3], **options)
    assert_same(here, there)
    assert there.history_[-1]["score"] == pytest.approx(here.history_[-1]["score"], rel=1e-5)
    if here.history_[-1]["bound"] is not None:
        assert there.history_[-1]["bound"] == pytest.approx(here.history_[-1]["bound"], rel=1e-4)


@pytest.mark.parametrize(
    ("emission", "data"),
    [
        (sj.Gaussian(), REALS),
        (sj.DiagonalGaussian(), REALS),
        (sj.Poisson(), COUNTS),
        (sj.AutoregressiveGaussian(), REALS),
    ],
)
def test_other_families_are_learned_as_on_the_cpu(emission, data):
    here, there = both(data, emission=emission)
    assert_same(here, there)
    assert there.score(data) == pytest.approx(here.score(data), rel=1e-5)


def test_every_minibatch_has_its_likelihood_also_a_smaller_last_one(monkeypatch):
    found = {"cpu": [], "cuda": []}
    for device, own in found.items():

        def seen(*arguments, own=own, **options):
            info = step(*arguments, **options)
            own.append((info.n_sequences, float(info.log_normalizer)))
            return info

        monkeypatch.setattr(trainer, "step", seen)
        model(device=device).fit(SYMBOLS)
    assert len({n_sequences for n_sequences, _ in found["cpu"]}) == 2
    np.testing.assert_allclose(found["cuda"], found["cpu"], rtol=1e-5)


def test_prediction_is_the_cpu_s():
    here = model().fit(SYMBOLS)
    there = model(device="cuda").fit(SYMBOLS)
    there.fitted_.posterior = here.fitted_.posterior
    np.testing.assert_allclose(there.log_likelihood(SYMBOLS), here.log_likelihood(SYMBOLS), 1e-5)
    for found, exact in zip(there.predict(SYMBOLS), here.predict(SYMBOLS), strict=True):
        np.testing.assert_array_equal(found, exact)
    found, exact = (np.concatenate(m.predict_proba(SYMBOLS)) for m in (there, here))
    np.testing.assert_allclose(found, exact, atol=1e-5)


def test_partial_fit_is_the_cpu_s():
    here, there = (
        model(device=where).partial_fit(SYMBOLS[:4], total_sequences=9) for where in ("cpu", "cuda")
    )
    here.partial_fit(SYMBOLS[4:])
    there.partial_fit(SYMBOLS[4:])
    assert_same(here, there)
    assert there.n_updates_ == 2


def test_a_file_is_streamed_to_the_device(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(" ".join(f"w{x}" for x in s) for s in SYMBOLS) + "\n")
    here, there = both(sj.open(path), emission=sj.Categorical())
    assert_same(here, there)


def test_large_minibatches_go_in_several_chunks(monkeypatch):
    monkeypatch.setattr(windows, "CHUNK_NUMBERS", 10 * 3)
    here, there = both(SYMBOLS, batch_size=None)
    assert_same(here, there)


def test_resume_is_the_same_as_no_stop(tmp_path):
    options = {"kind": sj.HDPHMM, "device": "cuda"}
    whole = model(**options, n_passes=3).fit(SYMBOLS)
    model(**options, n_passes=1).fit(SYMBOLS, checkpoint=tmp_path)
    resumed = model(**options, n_passes=3).fit(SYMBOLS, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(resumed.statistics_.emissions, whole.statistics_.emissions)
    np.testing.assert_array_equal(resumed.transmat_, whole.transmat_)


def test_a_fitted_model_is_on_the_host_and_can_be_saved(tmp_path):
    fitted = model(device="cuda").fit(SYMBOLS)
    fitted.save(tmp_path / "m.sojourn")
    loaded = sj.load(tmp_path / "m.sojourn")
    np.testing.assert_array_equal(loaded.transmat_, fitted.transmat_)


@pytest.mark.parametrize("kind", [sj.HMM, sj.HDPHMM])
def test_a_worker_of_a_cluster_has_its_own_device(kind):
    """It gets potentials of the symbols that it has, and gives sums back on the host."""
    fitted = model(kind).fit(SYMBOLS)
    there = compute_of(model(kind, device="cuda")).backend()
    data = sj.Sequences.from_list([s for s in SYMBOLS if 3 not in s])
    data = fitted.emission_.validate(data)
    chunks = list(prepare(fitted.emission_, data))
    numbers = np.unique(data.values)
    wanted = {"squares": kind is sj.HDPHMM, "entropy": True}
    rest = (fitted.emission_, COLLAPSED, chunks)
    posterior, backend = fitted.fitted_.posterior, fitted.fitted_.compute.backend()
    exact = backend.statistics(posterior, *rest, **wanted)
    extract = posterior.extract(numbers)
    found = there.host_statistics(extract, *rest, **wanted)
    np.testing.assert_allclose(found.transitions, exact.transitions, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.emissions.dense(), exact.emissions.dense(), atol=1e-4)
    assert isinstance(found.emissions.values, np.ndarray)
    assert found.entropy == pytest.approx(exact.entropy, rel=1e-4)
    if wanted["squares"]:
        for ours, theirs in zip(found.squares, exact.squares, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


def test_what_runs_on_the_cpu_only_is_refused():
    with pytest.raises(ValueError, match="device='cpu'"):
        model(inference="cvb0", device="cuda").fit(SYMBOLS)


def test_without_a_device_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setattr(gpu.settings, "INTERPRETED", False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    unfitted = model(device="cuda")
    with pytest.raises(ValueError, match="finds no CUDA device"):
        unfitted.fit(SYMBOLS)
    assert not hasattr(unfitted, "emission_")


def test_a_full_device_says_what_to_change(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 2**31))
    with (
        pytest.raises(MemoryError, match=r"1\.0 of 2\.0 GiB free.*batch_size"),
        CudaBackend(1, "float32").running(),
    ):
        raise torch.cuda.OutOfMemoryError


def test_impossible_data_ends_the_fit_and_says_how_often():
    backend = CudaBackend(1, "float32")
    backend._failures += 3
    with pytest.raises(FloatingPointError, match="3 times"):
        backend.finish_pass()
    backend.finish_pass()


@needs_gpu
@pytest.mark.parametrize("kind", [sj.HMM, sj.HDPHMM])
def test_a_recorded_step_is_the_step_to_the_bit(kind, monkeypatch):
    rng = np.random.default_rng(1)
    data = [rng.integers(0, 50, n) for n in rng.integers(1, 30, 300)]
    options = {"kind": kind, "emission": sj.Categorical(50), "batch_size": 20, "device": "cuda"}
    recorded = model(**options).fit(data)
    monkeypatch.setattr(Recorder, "takes", lambda self, batch: False)
    monkeypatch.setattr(
        Recorder, "update", lambda self, transitions, total: transitions.updated(total)
    )
    plain = model(**options).fit(data)
    np.testing.assert_array_equal(recorded.transmat_, plain.transmat_)
    np.testing.assert_array_equal(recorded.statistics_.emissions, plain.statistics_.emissions)


@needs_gpu
def test_the_same_seed_gives_the_same_bits_on_a_gpu():
    one, other = (model(device="cuda").fit(SYMBOLS) for _ in range(2))
    np.testing.assert_array_equal(one.statistics_.emissions, other.statistics_.emissions)
