"""Minibatches of references and sums of parts are those of a single process."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import sojourn as sj
from benchmarks.cluster import DOCS, RESULT, STATES, fill, fit_cost_model, step_seconds
from sojourn import results
from sojourn.backends.dask import batches, work
from sojourn.backends.dask.batches import Groups
from sojourn.backends.dask.client import FAN_IN, Cluster
from sojourn.families import DecayedTable, RowSums
from sojourn.inference.statistics import BatchSums
from sojourn.sources import shuffle
from tests.support.cluster.data import (
    assert_same,
    draw,
    make_small,
    model,
    write_known,
    write_parquet,
)
from tests.support.cluster.here import Here
from tests.support.families import EXAMPLES
from tests.support.proposals import moves_of


@pytest.fixture(autouse=True)
def small(monkeypatch):
    make_small(monkeypatch)
    monkeypatch.setattr(results, "Cluster", Here)


@pytest.fixture
def path(tmp_path):
    return write_parquet(tmp_path / "a.parquet", draw(900))


def write_npy(folder):
    data = draw(700)
    np.save(folder / "x.npy", data.values)
    np.save(folder / "x.offsets.npy", data.offsets)
    return folder / "x.npy"


def write_text(folder):
    lines = (" ".join(f"w{symbol}" for symbol in sequence) for sequence in draw(700))
    (folder / "x.txt").write_text("\n".join(lines) + "\n")
    return folder / "x.txt"


def write_folder(folder):
    (folder / "many").mkdir()
    for n in range(3):
        write_parquet(folder / "many" / f"{n}.parquet", draw(200 + n, seed=n))
    return folder / "many"


@pytest.mark.parametrize("write", [write_npy, write_text, write_folder])
def test_every_kind_of_file_is_learned_from(write, tmp_path):
    data = write(tmp_path)
    assert_same(model().fit(data, client="here"), model().fit(data))


@pytest.mark.parametrize("batch_size", [1, 7, 899, 900, 2000, None])
def test_batches_of_any_size(path, batch_size):
    options = {"batch_size": batch_size, "n_passes": 1 if batch_size == 1 else 2}
    if batch_size == 1:
        path = write_parquet(path.with_name("few.parquet"), draw(40))
    assert_same(model(**options).fit(path, client="here"), model(**options).fit(path))


def test_merges_of_much_data_are_judged_by_the_sums_of_the_workers(tmp_path):
    path = write_parquet(tmp_path / "b.parquet", draw(900, n_symbols=12, seed=1))
    much = sj.MoveSettings(sample_max_steps=2**9)  # the data are more than a sample stands for
    options = {"moves": much, "n_passes": 6, "batch_size": 100, "init": "segments"}
    alone, together = model(**options).fit(path), model(**options).fit(path, client="here")
    made = moves_of(alone)
    assert any(move["accepted"] for move in made)
    assert [move["states"] for move in moves_of(together)] == [move["states"] for move in made]
    gains = [[move["gain"] for move in moves_of(fitted)] for fitted in (together, alone)]
    np.testing.assert_allclose(*gains, rtol=1e-7, atol=1e-6)
    assert_same(together, alone, tolerance=1e-9)


def test_constraints_hold_on_a_cluster(path):
    known = np.full((5, 5), np.nan)
    known[0, 1], known[2, 0] = 0.3, 0.0
    given = model(transition_constraints=known, moves=None)
    alone, together = clone(given).fit(path), clone(given).fit(path, client="here")
    assert_same(together, alone)
    assert (together.transmat_[0, 1], together.transmat_[2, 0]) == (0.3, 0.0)
    assert together.statistics_.transitions[2, 0] == 0.0


def test_labels_and_weights_count_on_a_cluster(tmp_path):
    source = write_known(tmp_path / "known.parquet", draw(500))
    given = model(moves=None, n_passes=1)
    alone, together = clone(given).fit(source), clone(given).fit(source, client="here")
    assert_same(together, alone)
    without = clone(given).fit(sj.open(tmp_path / "known.parquet", column="x"))
    assert np.abs(without.statistics_.transitions - alone.statistics_.transitions).max() > 1.0


@pytest.mark.parametrize("inference", ["scvi", "svi", "vb", "em"])
def test_every_way_of_inference_with_its_bound(path, inference):
    given = sj.HMM(
        3,
        sj.Categorical(),
        inference=inference,
        batch_size=200,
        n_passes=2,
        dtype="float64",
        n_jobs=1,
        random_state=0,
    )
    alone, together = clone(given), clone(given)
    alone.fit(path, track_bound=True)
    together.fit(path, track_bound=True, client="here")
    assert_same(together, alone)
    bounds = [[entry["bound"] for entry in fitted.history_] for fitted in (together, alone)]
    np.testing.assert_allclose(*bounds, rtol=1e-10)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_family(name, tmp_path):
    example = EXAMPLES[name]
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 12, 300))])
    data = sj.Sequences(example.draw_data(rng, int(offsets[-1])), offsets)
    path = write_parquet(tmp_path / "a.parquet", data)
    given = sj.HMM(3, example.given, batch_size=120, n_passes=2, dtype="float64", n_jobs=1)
    given.set_params(random_state=0)
    alone, together = clone(given).fit(path), clone(given).fit(path, client="here")
    assert_same(together, alone, tolerance=1e-9)
    assert alone.score(path, client="here") == pytest.approx(alone.score(path), rel=1e-12)


def test_probabilities_and_paths_are_written_by_the_workers(path, tmp_path):
    fitted = model().fit(path)
    for method in (fitted.predict, fitted.predict_proba):
        one = method(path, out=tmp_path / "one.parquet", overwrite=True)
        there = method(path, out=tmp_path / "many", overwrite=True, client="here")
        assert there == tmp_path / "many"
        ours, theirs = (sj.open(place).read_all() for place in (there, one))
        np.testing.assert_array_equal(ours.values, theirs.values)
        np.testing.assert_array_equal(ours.offsets, theirs.offsets)
    with pytest.raises(FileExistsError, match="many exists already"):
        fitted.predict(path, out=tmp_path / "many", client="here")
    assert not list(tmp_path.glob(".*.part"))


def test_nothing_is_left_of_results_that_fail(path, tmp_path):
    fitted = sj.HMM(2, sj.Categorical(4000), random_state=0).fit(path)
    bad = write_parquet(tmp_path / "bad.parquet", sj.Sequences.from_list([[1, 2], [3, 4000]]))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"bad.parquet, row group 0: sequence 1, position 1"):
        fitted.predict(bad, out=tmp_path / "many", client="here")
    assert sorted(tmp_path.iterdir()) == before


def test_samples_predict_on_a_cluster_too(path):
    fitted = sj.HMM(
        2,
        sj.Categorical(),
        inference=sj.Sampling("gibbs", n_samples=3, burn_in=1),
        random_state=0,
        n_jobs=1,
    ).fit(sj.open(path).read_all())
    assert fitted.score(path, client="here") == pytest.approx(fitted.score(path), rel=1e-12)


@pytest.mark.parametrize("inference", ["cvb0", "gibbs"])
def test_what_keeps_something_of_every_sequence_is_refused(path, inference):
    with pytest.raises(ValueError, match="takes data in memory only"):
        sj.HMM(2, sj.Categorical(), inference=inference).fit(path, client="here")


def test_data_in_memory_is_refused():
    with pytest.raises(ValueError, match="needs files, which the workers open themselves"):
        sj.HMM(2, sj.Categorical()).fit([[0, 1], [1]], client="here")
    iterable = sj.open(iter([[0, 1], [1, 0]]), total_sequences=2)
    with pytest.raises(ValueError, match="cannot be opened by the workers"):
        sj.HMM(2, sj.Categorical(2)).fit(iterable, client="here")


def test_a_client_of_another_kind_is_refused(path, monkeypatch):
    monkeypatch.setattr(results, "Cluster", Cluster)
    with pytest.raises(TypeError, match=r"must be a synchronous dask\.distributed\.Client"):
        sj.HMM(2, sj.Categorical()).fit(path, client="tcp://127.0.0.1:8786")


class FakeClient:
    """Says what workers answer."""

    scheduler = None

    def __init__(self, answers):
        self.answers = answers

    def sync(self, function, callback_timeout):
        return function()

    def run(self, function, on_error, asynchronous):
        return self.answers


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({}, "has no workers"),
        ({"a": OSError("gone")}, "has no workers"),
        ({"a": sj.__version__, "b": "0.0.9"}, r"1 of 2 workers .* b has sojourn 0\.0\.9"),
        ({"b": ModuleNotFoundError("sojourn")}, r"b has no sojourn \(sojourn\)"),
    ],
)
def test_what_workers_answer(answers, problem):
    cluster = Cluster.__new__(Cluster)
    cluster.client, cluster.patience = FakeClient(answers), 1.0
    with pytest.raises(sj.ClusterError, match=problem):
        cluster._check_workers()


def test_a_worker_that_is_gone_has_no_say():
    cluster = Cluster.__new__(Cluster)
    cluster.client, cluster.patience = FakeClient({"a": sj.__version__, "b": OSError("gone")}), 1.0
    cluster._check_workers()


def test_bad_data_is_refused_before_anything_is_learned(tmp_path):
    data = [[1, 2]] * 300
    data[123] = [1, 99]
    bad = write_parquet(tmp_path / "bad.parquet", sj.Sequences.from_list(data))
    updates = []
    with pytest.raises(ValueError, match=r"row group 2: sequence 3, position 1: symbol 99"):
        sj.HMM(2, sj.Categorical(40), batch_size=100).fit(
            bad, client="here", callback=updates.append
        )
    assert not updates


def test_a_worker_refuses_a_client_of_another_version(path):
    setup = work.Setup("0.0.9", sj.Categorical(3), None)
    with pytest.raises(RuntimeError, match=r"the client 0\.0\.9: install the same version"):
        work.load(setup, [])


def test_a_worker_refuses_another_file_and_one_that_is_not_there(path):
    source = sj.open(path)
    file = work.RemoteFile.of(source)
    with pytest.raises(ValueError, match="not the same file for the worker"):
        work._opened(file._replace(fingerprint="0"))
    path.rename(path.with_name("b.parquet"))
    with pytest.raises(ValueError, match="does not exist for the worker"):
        work._opened(file)


def test_a_group_is_read_once_and_let_go_when_it_is_used_up(tmp_path, monkeypatch):
    clusters = []

    class Watched(Here):
        def __init__(self, client):
            super().__init__(client)
            clusters.append(self)

    monkeypatch.setattr(results, "Cluster", Watched)
    held = []
    submit = batches.RemotePass.submit

    def watched(remote_pass, parts, *, again):
        futures = submit(remote_pass, parts, again=again)
        held.append((len(remote_pass._loaded), len(remote_pass.groups.begins) - 1))
        return futures

    monkeypatch.setattr(batches.RemotePass, "submit", watched)
    monkeypatch.setattr(shuffle, "BUFFER_SEQUENCES", 200)
    path = write_parquet(tmp_path / "a.parquet", draw(3000))
    model(batch_size=50, n_passes=1).fit(path, client="here")
    n_groups = held[0][1]
    assert n_groups > 10
    seen = len(held)
    assert clusters[0].calls.count("load") == n_groups
    assert held[-1][0] == 0
    assert max(n_held for n_held, _ in held) < 0.6 * n_groups  # the buffer is not the data

    stopped = []

    def stop(progress):
        stopped.append(progress.updates)
        if progress.updates == 40:
            raise KeyboardInterrupt

    options = {"checkpoint": tmp_path / "checkpoints", "client": "here"}
    with pytest.raises(KeyboardInterrupt):
        model(batch_size=50, n_passes=1).fit(path, callback=stop, **options)
    model(batch_size=50, n_passes=1).fit(path, resume=True, **options)
    assert len(held) > seen + 40
    assert held[-1][0] == 0  # also of what was given out before the stop


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 50))
def test_parts_cover_a_minibatch_and_keep_to_groups(seed, n_blocks, size):
    rng = np.random.default_rng(seed)
    sequences = rng.integers(0, 30, n_blocks)
    sequences[0] = 1
    n_bytes = sequences * int(rng.integers(1, 10_000))
    groups = Groups.of(rng.permutation(n_blocks), sequences, n_bytes)
    total = int(sequences.sum())
    chosen = rng.permutation(total)[: rng.integers(1, total + 1)]
    parts = list(groups.parts(chosen, size))
    back = [groups.begins[group] + rows for part in parts for group, rows in part]
    np.testing.assert_array_equal(np.concatenate(back), np.sort(chosen))
    for part in parts:
        assert 0 < sum(len(rows) for _, rows in part) <= size
        for group, rows in part:
            assert rows.max() < groups.begins[group + 1] - groups.begins[group]


def sums(*numbers):
    rows = np.array([numbers[0] % 5])
    values = RowSums(rows, np.full((1, 2), float(numbers[0])), 5)
    return BatchSums(np.ones(2), np.ones((2, 2)), values, 1.0, 1, 1, None)


def test_adding_changes_no_argument():
    parts = [sums(n) for n in range(1, 8)]
    parts[0].emissions.rows, parts[0].emissions.values = None, parts[0].emissions.dense()
    total = work.add([None, *parts])
    np.testing.assert_array_equal(total.emissions.dense()[:, 0], [5.0, 7.0, 9.0, 3.0, 4.0])
    assert parts[0].emissions.values.sum() == 2.0
    assert work.add([None, None]) is None


@pytest.mark.parametrize("n", [1, 2, FAN_IN, FAN_IN + 1, FAN_IN**2 + 3])
def test_the_tree_keeps_the_order(n):
    here = Here(None)
    futures = [here.share([number]) for number in range(n)]
    tree = here.reduce(lambda lists: [x for part in lists for x in part], futures)
    assert tree[-1].fetch() == list(range(n))
    assert len(here.calls) <= n - 1 or n == 1


def test_an_extract_of_a_table_gives_the_same_potentials():
    rng = np.random.default_rng(0)
    table = DecayedTable(rng.exponential(3.0, (3, 50)), "float64")
    table.blend(RowSums(np.array([7]), np.ones((1, 3)), 50), keep=0.3, weight=2.0)
    rows = np.array([40, 7, 21], np.int32)
    options = {"collapsed": True, "n_threads": 1}
    prior, totals = np.full((1, 1), 0.1), np.array(5.0)
    whole = table.potentials(rows, prior, totals, **options)
    part = table.extract(np.array([3, 7, 21, 40, 44]))
    assert part.rows.shape[0] == 5
    assert part.potentials(rows, prior, totals, **options).tobytes() == whole.tobytes()


def test_the_documentation_has_the_figures_of_the_result_file():
    text = DOCS.read_text()
    assert fill(text, json.loads(RESULT.read_text())) == text


def test_the_cost_model_finds_the_costs_that_steps_were_made_with():
    costs = {
        "token_seconds": {"45": 2e-7, "100": 8e-7, "256": 4e-6},
        "task_seconds": 1e-3,
        "step_seconds": 5e-3,
        "byte_seconds": 2e-9,
    }
    steps = []
    for n_states, sizes in STATES.items():
        for batch_size in sizes:
            tokens = 22 * batch_size
            parts = step_seconds(costs, tokens, n_states, 2)
            steps.append(
                {
                    "states": n_states,
                    "tokens": tokens,
                    "work_seconds": costs["token_seconds"][str(n_states)] * tokens,
                    "seconds": parts["compute"] + parts["tasks"] + parts["moving"],
                }
            )
    model = fit_cost_model(steps, 1e-3, 2)
    assert model["largest_error"] < 0.01
    for name in ("step_seconds", "byte_seconds"):
        assert model[name] == pytest.approx(costs[name], rel=0.01)
    assert model["token_seconds"] == pytest.approx(costs["token_seconds"], rel=0.01)
