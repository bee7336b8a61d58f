"""Moves, stickiness and a learned prior on a device: what the CPU does, there."""

from dataclasses import replace

import numpy as np
import pytest

import sojourn as sj
from sojourn.families.symbol_prior import SymbolPrior
from sojourn.families.table import DecayedTable, RowSums
from sojourn.kernels import reference
from sojourn.kernels.expectations import Spread
from sojourn.kernels.interface import Potentials
from sojourn.kernels.overlap import shared_entropies
from sojourn.transitions import HDP, Dirichlet, Rows, RowSpread, StickyDirichlet
from sojourn.transitions.base import Transitions
from sojourn.transitions.merging import merge_gains

torch = pytest.importorskip("torch", reason="PyTorch is the extra gpu: make test-gpu")
pytest.importorskip("triton", reason="Triton is the extra gpu: make test-gpu")

from sojourn.backends.cuda import graphs  # noqa: E402
from sojourn.backends.cuda.backend import find_device  # noqa: E402
from sojourn.families.tensors import TensorTable  # noqa: E402
from sojourn.kernels import cuda as gpu  # noqa: E402
from sojourn.kernels.arrays import to_device, to_host  # noqa: E402
from sojourn.kernels.cuda import PaddedKernel  # noqa: E402
from tests.support.proposals import moves_of  # noqa: E402
from tests.support.quick import use_quick_recursions, use_recordings  # noqa: E402

# Triton's interpreter warns of what the GPU does not, and uses NumPy in ways that are going away.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
DEVICE = find_device() if torch.cuda.is_available() or gpu.INTERPRETED else None


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    use_quick_recursions(monkeypatch)


def sequences(n_sequences=60, n_symbols=6, seed=0):
    """Draw from three states that last, each with symbols of its own."""
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(n_sequences):
        state, steps = rng.integers(3), []
        for _ in range(rng.integers(4, 9)):
            state = rng.integers(3) if rng.random() < 0.5 else state
            own = rng.random() < 0.95
            steps.append(state + 3 * rng.integers(n_symbols // 3) if own else rng.integers(6))
        drawn.append(np.array(steps))
    return drawn


DATA = sequences()
DATA[1][2] = -1  # missing
MUCH = sj.MoveSettings(sample_max_steps=64)  # of which the data are more than a sample is
NOISE = np.random.default_rng(1)
REALS = [4.0 * (s % 3)[:, None] + NOISE.normal(size=(len(s), 1)) for s in sequences(300)]


def model(kind=sj.HDPHMM, emission=None, **options):
    """Begin on the device: a warm-up would be the host's."""
    settings = {"batch_size": 30, "n_passes": 40, "random_state": 0, "n_states": 6}
    settings["init"] = "segments"
    emission = sj.Categorical(6) if emission is None else emission
    return kind(emission=emission, **(settings | options))


def assert_same(here, there, tolerance=1e-4):
    exact, found = here.statistics_, there.statistics_
    for name in ("start", "transitions", "emissions"):
        one, other = getattr(exact, name), getattr(found, name)
        np.testing.assert_allclose(other, one, rtol=0, atol=tolerance * np.abs(one).max())


def on_device(value):
    return to_device(np.asarray(value, dtype=np.float64), DEVICE)


# ---- moves --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kind": sj.HMM, "moves": "auto", "n_passes": 20},
        {"stickiness": "learned"},
        {"dtype": "float64"},
        {"tuned": ["concentration", "base"], "n_passes": 20},
        {"emission": sj.Gaussian(), "batch_size": 100},
        {"moves": MUCH, "n_passes": 10},
        {"moves": MUCH, "n_passes": 10, "emission": sj.Gaussian(), "batch_size": 100},
    ],
)
def test_a_device_makes_the_moves_of_the_cpu(options):
    data = REALS if "emission" in options else DATA
    here, there = (
        model(device=where, **options).fit(data, track_bound=True) for where in ("cpu", "cuda")
    )
    made, found = moves_of(here), moves_of(there)
    assert made
    if not options or ("moves" in options and options["moves"] is MUCH):
        assert any(move["accepted"] for move in made)
    for name in ("kind", "states", "accepted", "n_states"):
        assert [move[name] for move in found] == [move[name] for move in made]
    for name in ("gain", "fresh"):
        exact = np.array([move[name] for move in made])
        np.testing.assert_allclose([move[name] for move in found], exact, atol=1e-2)
    assert there.n_states_ == here.n_states_ == len(there.transmat_)
    assert (np.diff(there.state_shares_) <= 0).all()
    assert_same(here, there)
    assert vars(there.fitted_.move_state) == pytest.approx(vars(here.fitted_.move_state), rel=1e-3)
    bounds = ([entry["bound"] for entry in fitted.history_] for fitted in (there, here))
    np.testing.assert_allclose(*bounds, rtol=1e-5)


def test_a_warm_up_on_a_device_begins_as_one_on_the_host():
    here, there = (
        model(device=where, init="auto", n_passes=3).fit(DATA) for where in ("cpu", "cuda")
    )
    assert there.fitted_.move_state.warmed_up
    (made, *_), (found, *_) = moves_of(here), moves_of(there)
    assert found == {
        **made,
        "gain": pytest.approx(made["gain"], rel=1e-5),
        "fresh": pytest.approx(made["fresh"], rel=1e-5),
    }
    assert there.n_states_ == here.n_states_
    assert_same(here, there)


def test_files_are_enough_for_moves_on_a_device(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(" ".join(f"w{x}" for x in s) for s in DATA) + "\n")
    here, there = (
        model(emission=sj.Categorical(), device=where).fit(path) for where in ("cpu", "cuda")
    )
    assert any(move["accepted"] for move in moves_of(here))
    assert [m["states"] for m in moves_of(there)] == [m["states"] for m in moves_of(here)]
    assert_same(here, there)


def test_a_small_start_grows_on_a_device():
    options = {"moves": sj.MoveSettings(init_states=1), "n_states": 3, "dtype": "float64"}
    options["random_state"] = 2  # some seeds try no split that so few data support
    here, there = (model(device=where, **options).fit(DATA) for where in ("cpu", "cuda"))
    assert "split" in {move["kind"] for move in moves_of(here) if move["accepted"]}
    assert [m["states"] for m in moves_of(there)] == [m["states"] for m in moves_of(here)]
    assert_same(here, there)


def test_a_minibatch_alone_is_judged_on_a_device():
    here, there = (model(device=where) for where in ("cpu", "cuda"))
    for learner in (here, there):
        for _ in range(30):
            learner.partial_fit(DATA, total_sequences=len(DATA))
    assert any(move["accepted"] for move in moves_of(here))
    assert [m["states"] for m in moves_of(there)] == [m["states"] for m in moves_of(here)]
    assert isinstance(there.fitted_.posterior.emissions, DecayedTable)
    assert_same(here, there)


def test_a_minibatch_that_has_no_possible_path_changes_nothing(monkeypatch):
    fitted = model(sj.HMM, n_passes=1, device="cuda").fit(DATA[:4])
    before = fitted.statistics_

    def collect_failures(logs):
        logs.failures.add_(1)

    monkeypatch.setattr(gpu, "collect_failures", collect_failures)
    with pytest.raises(FloatingPointError, match="no possible state path"):
        fitted.partial_fit(DATA[4:6])
    np.testing.assert_array_equal(fitted.statistics_.emissions, before.emissions)
    assert fitted.n_updates_ == 1


def test_a_stopped_training_makes_the_same_moves_on_a_device(tmp_path):
    options = {"device": "cuda"}
    whole = model(**options).fit(DATA)
    merged = [any(move["accepted"] for move in entry["moves"]) for entry in whole.history_]

    def stop(progress):
        if progress.updates == 2 * (merged.index(True) + 1) + 1:  # in the pass after
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model(**options).fit(DATA, checkpoint=tmp_path, callback=stop)
    resumed = model(**options).fit(DATA, checkpoint=tmp_path, resume=True)
    assert moves_of(resumed) == moves_of(whole)
    np.testing.assert_array_equal(resumed.transmat_, whole.transmat_)
    np.testing.assert_array_equal(resumed.statistics_.emissions, whole.statistics_.emissions)


@pytest.mark.parametrize(
    "options",
    [
        {"stickiness": "learned", "n_passes": 30},
        {
            "moves": None,
            "stickiness": 2.0,
            "hdp": sj.HDPOptions(normalize_rows=False),
            "n_passes": 3,
        },
        {"moves": None, "kind": sj.HMM, "stickiness": "learned", "n_passes": 3},
        {"moves": None, "kind": sj.HMM, "tuned": True, "n_passes": 3},
        {"moves": None, "tuned": ["concentration", "base"], "n_passes": 3},
    ],
)
def test_recorded_steps_are_the_steps_to_the_bit_after_moves_too(options, monkeypatch):
    """What was recorded has the number of states of its moment."""
    use_recordings(monkeypatch)
    sizes, replay = set(), graphs._Recording.replay

    def noted(self, posterior, batch):
        sizes.add(posterior.n_states)
        return replay(self, posterior, batch)

    monkeypatch.setattr(graphs._Recording, "replay", noted)
    options = options | {"batch_size": 25, "device": "cuda"}
    recorded = model(**options).fit(DATA)
    monkeypatch.setattr(graphs, "can_record", lambda device: False)
    plain = model(**options).fit(DATA)
    assert len(sizes) == 1 if "moves" in options else len(sizes) > 1
    assert moves_of(recorded) == moves_of(plain)
    np.testing.assert_array_equal(recorded.transmat_, plain.transmat_)
    np.testing.assert_array_equal(recorded.statistics_.emissions, plain.statistics_.emissions)


# ---- the pieces ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_states", "scaled"), [(1, True), (3, False), (8, True), (13, True)])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("exact", [3, 9])
def test_states_added_for_the_kernel_change_nothing(n_states, scaled, affine, exact, monkeypatch):
    monkeypatch.undo()  # these are the recursions
    kernel = PaddedKernel(exact)
    rng = np.random.default_rng(0)
    rows = rng.random((4, n_states)).astype(np.float32) + 0.1
    potentials = Potentials(
        rng.random(n_states).astype(np.float32),
        rng.random((n_states, n_states)).astype(np.float32),
        np.vstack([rows, np.ones_like(rows[:1])]),  # a missing observation is one beyond the table
        np.append(rng.normal(size=4), 0.0) if scaled else None,
    )
    index, offsets = np.array([1, 4, 3, 0, 4], np.int32), np.array([0, 3, 4, 5])
    exact = reference.forward_backward(potentials, index, offsets, squares=True)
    start, matrix, _, log_scale = to_device(potentials, DEVICE)[:4]
    table = to_device(rows, DEVICE)
    if affine:
        gain = torch.full((n_states,), 2.0, device=DEVICE)
        table = gpu.AffineTable(table / 2.0, gain, torch.zeros_like(gain), 1.0 / gain)
    factors = Potentials(start, matrix, table, None if log_scale is None else log_scale[:4])
    found = kernel.forward_backward(
        factors, to_device(index, DEVICE), to_device(offsets, DEVICE), squares=True
    )
    np.testing.assert_allclose(to_host(found[0]), exact[0], rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(found[1:4], exact[1:4], strict=True):
        np.testing.assert_allclose(to_host(ours), theirs, atol=2e-5)
    if n_states > 1:
        for ours, theirs in zip(found.squares, exact.squares, strict=True):
            assert to_host(ours).shape == theirs.shape
            np.testing.assert_allclose(to_host(ours), theirs, rtol=2e-3, atol=2e-3)
    scores, path = kernel.viterbi(factors, to_device(index, DEVICE), to_device(offsets, DEVICE))
    exact_scores, exact_path = reference.viterbi(potentials, index, offsets)
    np.testing.assert_allclose(to_host(scores), exact_scores, rtol=1e-6)
    np.testing.assert_array_equal(to_host(path), exact_path)


@pytest.mark.parametrize("n_states", [1, 5])
def test_shared_entropies_on_a_device_are_the_cpu_s(n_states, monkeypatch):
    monkeypatch.setattr("sojourn.kernels.overlap._NUMBERS", 200)  # several blocks
    rows = np.random.default_rng(0).dirichlet(np.full(n_states, 0.2), 99).astype(np.float32)
    found = shared_entropies(to_device(rows, DEVICE), n_threads=1)
    exact = shared_entropies(rows, n_threads=1)
    np.testing.assert_allclose(to_host(found), exact, rtol=1e-10, atol=1e-12)


def counts_of(n_states, seed=0):
    rng = np.random.default_rng(seed)
    return Rows(rng.gamma(0.3, 10.0, n_states), rng.gamma(0.3, 50.0, (n_states, n_states)))


PRIORS: dict[str, Transitions] = {
    "finite": Dirichlet.make(5, 0.3, 0.1, stickiness=2.0),
    "finite, sticky": StickyDirichlet(Dirichlet.make(5, 0.3, 0.1)),
    "hdp": HDP.make(5),
    "hdp, sticky": HDP.make(5, stickiness=3.0, normalize_rows=False),
    "hdp, learned": HDP.make(5, learn_stickiness=True),
}


@pytest.mark.parametrize("name", PRIORS)
def test_a_prior_on_transitions_is_the_same_of_tensors(name):
    prior, counts = PRIORS[name], counts_of(5)
    there, moved = prior.converted(on_device), Rows(*(on_device(part) for part in counts))
    weights = np.array([[1.0, 0, 0, 1, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0]])
    first, second = np.triu_indices(5, 1)

    def numbers(transitions, own):
        """Compute everything that training and moves ask for."""
        for _ in range(2):
            transitions = transitions.observe(own, None, 7, 7)
        fitted = transitions.refitted(own)
        small = fitted.regrouped(weights)
        for one in (fitted, small):
            rows, total, _ = one.prior_counts()
            yield from (*rows, *(total if isinstance(total, Rows) else (total,)))
        yield from fitted.means(own)
        yield fitted.collapsed_bound(own)
        likely = own.transitions / (1.0 + own.transitions)
        cells = Spread(-own.transitions - likely, likely)
        sums = Spread(*(part.sum(1) for part in cells))
        start = Spread(-own.start, own.start / (1.0 + own.start))
        yield fitted.collapsed_bound(own, RowSpread(start, cells, sums))
        yield merge_gains(fitted, own, first, second)
        yield from fitted.evidence_prior()[1:3]

    for found, exact in zip(numbers(there, moved), numbers(prior, counts), strict=True):
        assert (found is None) == (exact is None)
        if exact is not None:
            np.testing.assert_allclose(to_host(found), exact, rtol=1e-8, atol=1e-9)


def test_everything_learned_goes_to_a_device():
    """A number that stayed behind would be the same in every replay of a recorded update."""
    sticky = replace(PRIORS["finite, sticky"], pending=np.eye(5), n_pending=1)
    for prior, numbers in ((sticky, 2), (PRIORS["hdp, learned"], 7)):
        shapes = []
        prior.converted(lambda value, own=shapes: own.append(np.shape(value)))
        assert shapes.count(()) == numbers
        assert shapes.count((5, 5)) == (2 if prior is sticky else 0)


def test_rows_are_normalised_by_totals_of_their_own():
    prior, counts = PRIORS["hdp, sticky"].refitted(counts_of(5)), counts_of(5)
    exact = prior.prior_counts().plus(counts)
    there = replace(prior).converted(on_device)
    rows, total, _ = there.prior_counts()
    start, matrices = gpu.row_potentials(
        *rows, total, tuple(on_device(part) for part in counts), "float64"
    )
    assert exact.start_total != exact.totals[0]
    np.testing.assert_allclose(to_host(start), exact.rows.start / exact.start_total, rtol=1e-12)
    matrix = exact.rows.transitions / exact.totals[:, None]
    np.testing.assert_allclose(to_host(matrices[0]), matrix, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tables_are_regrouped_and_refilled_as_on_the_host(dtype):
    rng = np.random.default_rng(0)
    table = DecayedTable(rng.random((9, 4)), dtype)
    table.blend(RowSums(None, rng.random((4, 9)), 4), keep=0.3, weight=2.0)
    moved = TensorTable.of(table, DEVICE)
    weights, other = rng.random((3, 9)), rng.random((5, 4))
    for here, there in (
        (table.regrouped(weights), moved.regrouped(weights)),
        (table.refilled(other), moved.refilled(to_device(other, DEVICE))),
    ):
        back = there.to_host()
        np.testing.assert_allclose(back.dense(), here.dense(), rtol=1e-5)
        np.testing.assert_allclose(back.totals, here.totals, rtol=1e-6)
        assert back.rows.shape == here.rows.shape
        assert back.dtype == here.dtype


# ---- states that last ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [sj.HMM, sj.HDPHMM])
@pytest.mark.parametrize("stickiness", [3.0, "learned"])
def test_sticky_states_are_learned_as_on_the_cpu(kind, stickiness):
    options = {"moves": None, "n_states": 3, "n_passes": 2, "stickiness": stickiness}
    here, there = (model(kind, device=where, **options).fit(DATA) for where in ("cpu", "cuda"))
    assert_same(here, there)
    one, other = (fitted.fitted_.posterior.transitions.state()[0] for fitted in (here, there))
    assert set(one) == set(other)
    for name in ("stickiness", "alpha", "override"):
        if name in one:
            assert other[name] == pytest.approx(one[name], rel=1e-4)


# ---- a prior on symbols that is learned ---------------------------------------------------------


@pytest.mark.parametrize("way", ["sorted", "atomic"])
@pytest.mark.parametrize("learned", [(True, True), (True, False), (False, True)])
def test_the_prior_on_symbols_is_learned_as_on_the_cpu(learned, way, monkeypatch):
    monkeypatch.setattr(gpu.settings, "SUMS", way)
    rng = np.random.default_rng(2)
    seen, new = learned
    table = DecayedTable(np.zeros((3, 8)), "float64")
    table.prior = SymbolPrior(8, 0.2, seen=seen, new=new)
    moved = TensorTable.of(table, DEVICE)
    held = [moved.prior.of_seen, moved.prior.of_new, moved.prior.n_seen, moved.prior.times_seen]
    for batch in ([0, 1, 1, 4], [1, 0, 2, 2], [5]):
        q = (1.0 - 1e-7) * rng.dirichlet(np.ones(3), len(batch))  # rounding is in it
        rows, places = np.unique(batch, return_inverse=True)
        values = np.zeros((len(rows), 3))
        np.add.at(values, places, q)
        sums = RowSums(rows, values, 8)
        if way == "atomic":
            rows, values = np.array(batch), q
        # The missing symbol comes along with nothing.
        there = RowSums(
            to_device(np.append(rows, 8).astype(np.int32), DEVICE),
            to_device(np.vstack([values, np.zeros(3)]), DEVICE),
            8,
        )
        for own, added in ((table, sums), (moved, there)):
            own.blend(added, keep=0.7, weight=5.0)
            own.prior.observe(added, own, n_sequences=1, n_steps=len(batch), total_sequences=3)
    own = moved.prior
    now = [own.of_seen, own.of_new, own.n_seen, own.times_seen]
    assert all(one is other for one, other in zip(held, now, strict=True))  # for recorded steps
    values, arrays = table.prior.state()
    back = moved.to_host().prior
    assert back.state()[0] == pytest.approx(values, rel=1e-9)
    np.testing.assert_array_equal(back.times_seen, arrays["times_seen"])
    assert values["of_seen"] != 0.2 or not seen
    assert values["of_new"] != 0.2


@pytest.mark.parametrize("inference", ["scvi", "svi"])
def test_a_tuned_model_is_the_cpu_s(inference):
    data = [*DATA[:20], np.array([3, -1, 5])]
    options = {"tuned": True, "n_states": 3, "n_passes": 3, "batch_size": 8}
    options |= {"emission": sj.Categorical(9), "inference": inference, "kind": sj.HMM}
    here, there = (model(device=where, **options).fit(data) for where in ("cpu", "cuda"))
    assert_same(here, there, 1e-3)
    values, found = (
        fitted.fitted_.posterior.emissions.prior.state()[0] for fitted in (here, there)
    )
    assert values["of_new"] != values["of_seen"] != 0.1
    assert found == pytest.approx(values, rel=1e-2)  # the search for them goes ahead of itself
    assert isinstance(found["n_seen"], int)
    unseen = [[8, 0], [7]]
    assert there.score(unseen) == pytest.approx(here.score(unseen), rel=1e-3)


def test_a_tuned_training_goes_on_the_same_on_a_device(tmp_path):
    options = {"kind": sj.HMM, "tuned": ["concentration", "base"], "n_states": 3, "device": "cuda"}
    whole = model(**options, n_passes=3).fit(DATA)
    model(**options, n_passes=1).fit(DATA, checkpoint=tmp_path)
    resumed = model(**options, n_passes=3).fit(DATA, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(resumed.statistics_.emissions, whole.statistics_.emissions)
    one, other = (fitted.fitted_.posterior.emissions.prior for fitted in (resumed, whole))
    assert one.state()[0] == other.state()[0]
