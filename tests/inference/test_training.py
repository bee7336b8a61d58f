import threading
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sojourn as sj
from sojourn.backends import cpu as cpu_backend
from sojourn.backends.cpu import CpuBackend
from sojourn.families import DecayedTable, RowSums
from sojourn.inference import (
    COLLAPSED,
    MEAN_FIELD,
    Posterior,
    Problem,
    Schedule,
    local,
    step,
)
from sojourn.inference.local import expected_statistics, prepare
from sojourn.kernels import cpu, reference
from sojourn.kernels.threads import Alongside, run_units
from sojourn.models.start import initial_posterior
from sojourn.sources import MemorySource
from sojourn.transitions import Dirichlet

BACKENDS = {"cpu": CpuBackend(cpu, 2), "reference": CpuBackend(reference, 1)}


def ragged(seed, n_sequences, n_symbols=9, longest=12):
    rng = np.random.default_rng(seed)
    data = [rng.integers(n_symbols, size=n) for n in rng.integers(1, longest, n_sequences)]
    return sj.Sequences.from_list(data).with_values(np.concatenate(data).astype(np.int32))


def posterior_for(n_states, n_symbols, seed=0, dtype="float64"):
    rng = np.random.default_rng(seed)
    statistics = sj.Statistics(
        rng.exponential(5.0, n_states),
        rng.exponential(5.0, (n_states, n_states)),
        rng.exponential(5.0, (n_states, n_symbols)),
    )
    return Posterior.from_statistics(statistics, Dirichlet.make(n_states, 0.1, 0.1), dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("objective", [COLLAPSED, MEAN_FIELD])
def test_minibatch_statistics_are_unbiased(backend, objective):
    # The mean over every possible minibatch is the full batch, exactly.
    data = ragged(0, 6)
    family = sj.Categorical(9, 0.2)
    posterior = posterior_for(3, 9)

    def statistics(batch):
        chunks = prepare(family, batch)
        return expected_statistics(
            posterior, family, objective, chunks, BACKENDS[backend]
        ).statistics()

    subsets = [data.take(list(chosen)) for chosen in combinations(range(6), 2)]
    mean = sum(
        (statistics(b) * (6 / 2 / len(subsets)) for b in subsets[1:]),
        start=statistics(subsets[0]) * (6 / 2 / len(subsets)),
    )
    full = statistics(data)
    np.testing.assert_allclose(mean.start, full.start, rtol=1e-10)
    np.testing.assert_allclose(mean.transitions, full.transitions, rtol=1e-10)
    np.testing.assert_allclose(mean.emissions, full.emissions, rtol=1e-10, atol=1e-12)


def test_a_short_last_batch_counts_with_its_real_size():
    data = ragged(1, 10)
    posterior = posterior_for(3, 9)
    schedule = Schedule(forgetting_rate=0.0, delay=1.0)
    for batch in MemorySource(data, 4, seed=0).batches(0):
        family = sj.Categorical(9)
        chunks = prepare(family, batch)
        step(Problem(family, COLLAPSED, schedule, 10), posterior, chunks, BACKENDS["cpu"])
        assert posterior.counts.start.sum() == pytest.approx(10)
        share = 10 / len(batch)
        assert posterior.emissions.totals.sum() == pytest.approx(share * batch.n_steps)


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 3), st.integers(0, 5))
def test_a_pass_sees_every_sequence_once_in_a_new_order(n, batch_size, n_pass, seed):
    data = sj.Sequences.from_list([[i] * (1 + i % 3) for i in range(n)])
    source = MemorySource(data, batch_size, seed)
    batches = list(source.batches(n_pass))
    seen = [int(sequence[0]) for batch in batches for sequence in batch]
    assert sorted(seen) == list(range(n))
    assert all(len(batch) == min(batch_size, n) for batch in batches[:-1])
    again = [int(sequence[0]) for batch in source.batches(n_pass) for sequence in batch]
    assert seen == again


def test_passes_differ_and_follow_from_the_seed():
    data = sj.Sequences.from_list([[i] for i in range(50)])
    orders = [
        tuple(int(s[0]) for batch in MemorySource(data, 7, seed).batches(n) for s in batch)
        for seed, n in ((0, 0), (0, 1), (1, 0))
    ]
    assert len(set(orders)) == 3


@pytest.mark.parametrize("objective", [COLLAPSED, MEAN_FIELD])
def test_chunks_add_to_the_same_statistics(objective, monkeypatch):
    data = ragged(2, 40, n_symbols=500)
    family = sj.Categorical(500, 0.2)
    posterior = posterior_for(4, 500)

    def collect():
        chunks = prepare(family, data)
        return expected_statistics(
            posterior, family, objective, chunks, BACKENDS["cpu"], squares=True
        )

    whole = collect()
    monkeypatch.setattr(local, "CHUNK_STEPS", 30)
    parts = collect()
    assert (parts.n_sequences, parts.n_steps) == (whole.n_sequences, whole.n_steps)
    assert parts.log_normalizer == pytest.approx(whole.log_normalizer)
    for name in ("start", "transitions", "emissions"):
        np.testing.assert_allclose(
            getattr(parts.statistics(), name), getattr(whole.statistics(), name), atol=1e-12
        )
    for a, b in zip(parts.squares, whole.squares, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 2e-3)])
def test_lazily_scaled_table_equals_the_dense_one_after_thousands_of_steps(dtype, tolerance):
    rng = np.random.default_rng(3)
    n_states, n_rows = 5, 60
    dense = rng.exponential(100.0, (n_states, n_rows))
    table = DecayedTable(dense, dtype)
    schedule = Schedule(0.5, 1.0)
    renormalised = 0
    for n in range(1, 4001):
        rows = rng.choice(n_rows, size=6, replace=False)
        values = rng.exponential(size=(6, n_states))
        rho = schedule(n)
        before = table.scale
        table.blend(RowSums(rows, values.astype(dtype), n_rows), keep=1 - rho, weight=rho * 30)
        renormalised += table.scale > before
        dense = (1 - rho) * dense
        dense[:, rows] += rho * 30 * values.T
    assert renormalised >= 2, "the test must cross renormalisations"
    np.testing.assert_allclose(table.dense(), dense, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(table.totals, dense.sum(axis=1), rtol=1e-6)


def test_a_step_size_of_one_forgets_everything():
    table = DecayedTable(np.ones((2, 4)), "float64")
    table.blend(RowSums(np.array([3]), np.array([[1.0, 2.0]]), 4), keep=0.0, weight=5.0)
    np.testing.assert_array_equal(table.dense(), [[0, 0, 0, 5], [0, 0, 0, 10]])
    np.testing.assert_array_equal(table.totals, [5, 10])


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(st.none(), st.lists(st.integers(0, 39), unique=True, max_size=9)),
        min_size=1,
        max_size=6,
    )
)
def test_row_sums_add_sparse_and_dense_alike(parts):
    rng = np.random.default_rng(0)
    expected = np.zeros((40, 3))
    total = RowSums(np.array([7]), np.zeros((1, 3)), 40)
    for rows in parts:
        values = rng.random((40 if rows is None else len(rows), 3))
        expected[slice(None) if rows is None else rows] += values
        chosen = None if rows is None else np.array(rows, dtype=np.int64)
        total += RowSums(chosen, values, 40)
    np.testing.assert_allclose(total.dense(), expected)


def test_step_sizes():
    schedule = Schedule(forgetting_rate=0.7, delay=2.0)
    assert schedule(1) == pytest.approx(3.0**-0.7)
    assert [Schedule(0.0, 5.0)(n) for n in (1, 9)] == [1.0, 1.0]


@pytest.mark.parametrize("model", [sj.HMM, sj.HDPHMM])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_seed_same_bits_on_any_number_of_threads(model, dtype):
    data = ragged(4, 300, n_symbols=400, longest=30)
    fits = [
        model(
            7, sj.Categorical(400), batch_size=64, n_passes=3, random_state=5, n_jobs=n, dtype=dtype
        ).fit(data)
        for n in (1, 2, 4, 2)
    ]
    first = fits[0].statistics_
    for other in fits[1:]:
        for name in ("start", "transitions", "emissions"):
            assert getattr(first, name).tobytes() == getattr(other.statistics_, name).tobytes()
    another = model(7, sj.Categorical(400), batch_size=64, n_passes=3, random_state=6).fit(data)
    assert not np.array_equal(another.statistics_.transitions, first.transitions)


@pytest.mark.parametrize("inference", ["scvi", "svi"])
def test_compiled_and_reference_training_agree(inference):
    data = ragged(5, 40)
    fits = [
        sj.HMM(
            4,
            sj.Categorical(9),
            inference=inference,
            batch_size=8,
            n_passes=3,
            random_state=0,
            dtype="float64",
            device=device,
        ).fit(data)
        for device in ("cpu", "reference")
    ]
    np.testing.assert_allclose(fits[0].transmat_, fits[1].transmat_, rtol=1e-8)
    np.testing.assert_allclose(fits[0].emissionprob_, fits[1].emissionprob_, rtol=1e-8)


def test_single_precision_stays_close_to_double():
    data = ragged(6, 200, n_symbols=30, longest=25)
    scores = [
        sj.HMM(5, sj.Categorical(30), batch_size=20, n_passes=5, random_state=0, dtype=dtype)
        .fit(data)
        .score(data, per_step=True)
        for dtype in ("float32", "float64")
    ]
    assert scores[0] == pytest.approx(scores[1], abs=2e-3)


def test_initial_statistics_have_the_mass_of_the_data():
    data = ragged(7, 400, n_symbols=50)
    model = sj.HMM(6, sj.Categorical(50), batch_size=None, n_passes=1, random_state=0)
    posterior = initial_posterior(model, model.emission, data, len(data), data.n_steps, 0)
    assert posterior.counts.start.sum() == pytest.approx(400, rel=1.0)
    assert posterior.counts.transitions.sum() == pytest.approx(data.n_steps, rel=0.5)
    assert posterior.emissions.totals.sum() == pytest.approx(data.n_steps, rel=0.2)


def generated(seed, n_sequences, n_states=4, n_symbols=20, length=25):
    """Sequences from a known model, with its parameters."""
    rng = np.random.default_rng(seed)
    start = np.full(n_states, 1 / n_states)
    matrix = 0.7 * np.eye(n_states) + 0.3 * rng.dirichlet(np.ones(n_states), n_states)
    emission = rng.dirichlet(np.full(n_symbols, 0.15), n_states)
    data = []
    for _ in range(n_sequences):
        state = rng.choice(n_states, p=start)
        symbols = []
        for _ in range(length):
            symbols.append(rng.choice(n_symbols, p=emission[state]))
            state = rng.choice(n_states, p=matrix[state])
        data.append(symbols)
    return data, (start, matrix, emission)


@pytest.mark.parametrize(
    ("model", "inference"), [(sj.HMM, "scvi"), (sj.HDPHMM, "scvi"), (sj.HMM, "svi")]
)
def test_learning_comes_close_to_the_truth_and_never_beats_it(model, inference):
    data, (start, matrix, emission) = generated(8, 500)
    train, held_out = data[:400], data[400:]
    fitted = max(
        (
            model(
                4,
                sj.Categorical(20),
                inference=inference,
                batch_size=50,
                n_passes=20,
                random_state=seed,
            ).fit(train)
            for seed in range(4)
        ),
        key=lambda m: m.score(train),
    )
    big = 1e9  # counts so large that the prior does not matter: the true parameters
    truth = sj.HMM(
        4, sj.Categorical(20), init=sj.Statistics(big * start, big * matrix, big * emission),
        forgetting_rate=1.0, delay=1e12,
    ).partial_fit(train[:1], total_sequences=1)  # fmt: skip
    best = truth.score(held_out, per_step=True)
    got = fitted.score(held_out, per_step=True)
    assert best - 0.05 < got < best + 0.005


def test_collapsed_potentials_are_never_below_mean_field():
    posterior = posterior_for(4, 9)
    concentrations = posterior.transitions.concentrations(posterior.counts)
    collapsed, mean_field = (
        objective.transition_potentials(concentrations) for objective in (COLLAPSED, MEAN_FIELD)
    )
    assert (collapsed.transitions >= mean_field.transitions).all()
    assert (collapsed.start >= mean_field.start).all()
    assert (mean_field.transitions.sum(axis=1) < 1).all()


def test_fit_is_the_steps_of_every_pass_in_its_own_order():
    data = ragged(9, 30)
    model = sj.HMM(3, sj.Categorical(9), batch_size=7, n_passes=3, random_state=4, dtype="float64")
    model.fit(data)
    posterior = initial_posterior(model, model.emission_, data, 30, data.n_steps, 4)
    problem = Problem(model.emission_, COLLAPSED, Schedule(0.5, 1.0), 30)
    for n_pass in range(3):
        for batch in MemorySource(data, 7, seed=4).batches(n_pass):
            step(problem, posterior, prepare(model.emission_, batch), BACKENDS["cpu"])
    assert posterior.counts.transitions.tobytes() == model.statistics_.transitions.tobytes()
    assert posterior.n_updates == model.n_updates_ == 15


def test_minibatches_made_ahead_change_nothing(monkeypatch):
    data = ragged(10, 60, n_symbols=200)
    options = {"batch_size": 7, "n_passes": 3, "random_state": 2, "n_jobs": 2}
    plain = sj.HMM(4, sj.Categorical(200), **options).fit(data)
    monkeypatch.setattr(cpu_backend, "_WORTH_A_THREAD", 1)
    ahead = sj.HMM(4, sj.Categorical(200), **options).fit(data)
    for name in ("start", "transitions", "emissions"):
        a, b = (getattr(model.statistics_, name) for model in (plain, ahead))
        assert a.tobytes() == b.tobytes()
    assert ahead.n_updates_ == plain.n_updates_ == 27


def test_what_goes_wrong_ahead_is_raised_in_its_place():
    def batches():
        yield ragged(11, 5)
        yield ragged(12, 5)
        raise OSError("the disk is gone")

    for helped in (False, True):
        whole = cpu_backend._Whole()
        prepared = cpu_backend._ReadAhead(sj.Categorical(9), batches(), whole, 20)
        iterator = iter(prepared)
        for _ in range(2):
            assert next(iterator)
            prepared.start_next()
            if helped:
                run_units(lambda counter, n_units: None, 2, 2)
        with pytest.raises(OSError, match="the disk is gone"):
            next(iterator)


def test_a_call_alongside_is_made_by_another_thread_once():
    """Units do not wait for it, and it does not wait for units."""
    begun, may_end, made = threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        assert may_end.wait(10)
        made.append(threading.current_thread())
        return 7

    call = Alongside(slow)
    run_units(lambda counter, n_units: begun.wait(10), 2, 2)  # ends while the call goes on
    assert begun.is_set()
    assert not made
    run_units(lambda counter, n_units: None, 2, 2)
    may_end.set()
    assert call.result() == 7
    assert len(made) == 1
    assert made[0] is not threading.main_thread()
    alone = Alongside(threading.current_thread)
    run_units(lambda counter, n_units: None, 1, 2)  # nobody helps
    assert alone.result() is threading.main_thread()
    Alongside(may_end.clear).discard()
    assert may_end.is_set()


def test_a_score_in_a_pass_waits_for_the_device_first(monkeypatch):
    """Else the time of steps that are still being computed would count as that of the score."""
    events = []
    monkeypatch.setattr(CpuBackend, "finish_pass", lambda self: events.append("waited"))
    model = sj.HMM(2, sj.Categorical(3), batch_size=2, n_passes=1, moves=None, random_state=0)
    data = [np.array([0, 1, 2]), np.array([2, 1]), np.array([0, 0]), np.array([1, 2])]
    scored = model.fit(
        data,
        validation=data,
        validation_every=1,
        callback=lambda now: events.append("scored") if now.score is not None else None,
    )
    assert len(scored.history_) == 3  # after two steps, and at the end of the pass
    assert events == ["waited", "scored", "waited", "scored", "waited", "scored"]
