"""Tiles of long sequences on a cluster: the model is that of a single process."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

import sojourn as sj
from sojourn import results
from sojourn.backends.compute import Compute
from sojourn.backends.dask import Setup, batches, tiles, work
from sojourn.sources import npy
from sojourn.sources.tiles import Spans
from tests.support.cluster.data import assert_identical, assert_same
from tests.support.cluster.here import Here

LENGTHS = [1500, 1, 300]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(batches, "PART_STEPS", 250)
    monkeypatch.setattr(tiles, "WINDOW", 5)
    monkeypatch.setattr(results, "Cluster", Here)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same recording in a file that workers read runs of steps from, and in one that is not."""
    folder, rng = tmp_path_factory.mktemp("long"), np.random.default_rng(0)
    states = np.repeat(rng.integers(3, size=sum(LENGTHS)), 20)[: sum(LENGTHS)]
    values = rng.normal(3.0 * states[:, None], 1.0, (len(states), 2))
    np.save(folder / "x.npy", values)
    np.save(folder / "x.offsets.npy", np.cumsum([0, *LENGTHS]))
    ids = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    table = pa.table({"id": ids, "a": values[:, 0], "b": values[:, 1]})
    pq.write_table(table, folder / "x.parquet", row_group_size=700)
    return folder


def opened(folder, kind):
    if kind == "npy":
        return sj.open(folder / "x.npy")
    return sj.open(folder / "x.parquet", column=["a", "b"], sequence="id")


def model(cls=sj.HMM, **options):
    usual = {"tile_length": 40, "batch_size": 12, "n_passes": 2, "dtype": "float64"}
    emission = options.pop("emission", sj.DiagonalGaussian())
    return cls(3, emission, random_state=0, n_jobs=1, **usual | options)


@pytest.mark.parametrize("kind", ["npy", "parquet"])
@pytest.mark.parametrize(
    "options",
    [
        {"cls": sj.HDPHMM},
        {"batch_size": None},
        {"emission": sj.AutoregressiveGaussian(order=2), "buffer": 10},
        {"batch_size": "auto", "n_passes": "auto"},
    ],
    ids=["minibatches", "all at once", "with a past", "defaults"],
)
def test_a_cluster_learns_what_one_process_does(folder, kind, options):
    data = opened(folder, kind)
    alone, together = model(**options).fit(data), model(**options).fit(data, client="here")
    assert_same(together, alone, tolerance=1e-9)
    for name in ("buffer", "states", "steps"):
        found, expected = ([entry[name] for entry in m.history_] for m in (together, alone))
        assert found == expected


def test_every_step_counts_once_a_pass_and_no_sequence_is_read_whole(folder, monkeypatch):
    read, taken = npy.NpyValues.read, []

    def watched(self, begins, lengths):
        taken.append(int(np.sum(lengths)))
        return read(self, begins, lengths)

    seen = []
    count = work.part_statistics

    def counted(part, *arguments, **wanted):
        seen.extend(int(chunk.sequences.n_counted) for chunk in part)
        return count(part, *arguments, **wanted)

    monkeypatch.setattr(npy.NpyValues, "read", watched)
    monkeypatch.setattr(npy.NpySource, "opened", lambda self: pytest.fail("a whole sequence"))
    monkeypatch.setattr(npy, "PIECE_STEPS", 512)
    monkeypatch.setattr(work, "part_statistics", counted)
    fitted = model(buffer=10, n_passes=3).fit(opened(folder, "npy"), client="here")
    assert sum(seen) == 3 * sum(LENGTHS)
    assert fitted.statistics_.transitions.sum() == pytest.approx(sum(LENGTHS) - 3, rel=0.1)
    assert max(taken) < 600


@pytest.mark.parametrize("options", [{}, {"batch_size": None, "n_passes": 4}])
def test_a_run_resumes_exactly_on_a_cluster_or_without(folder, tmp_path, options):
    data = opened(folder, "npy")
    straight = model(**options).fit(data, client="here")

    def stop(progress):
        if progress.updates == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        model(**options).fit(
            data, client="here", checkpoint=tmp_path, checkpoint_every=1, callback=stop
        )
    resumed = model(**options).fit(data, client="here", checkpoint=tmp_path, resume=True)
    assert_identical(resumed, straight)


def test_a_step_that_is_lost_is_taken_again(folder, monkeypatch):
    lose = {3: True}

    def persistently(self, attempt):
        found = attempt()
        n = self.attempts = getattr(self, "attempts", 0) + 1
        if lose.pop(n, False):  # what the workers had is gone
            self.generation += 1
            return attempt()
        return found

    data = opened(folder, "npy")
    alone = model().fit(data)
    monkeypatch.setattr(Here, "persistently", persistently)
    assert_same(model().fit(data, client="here"), alone)
    assert not lose


def test_a_bad_step_is_named_with_its_sequence(folder, tmp_path):
    bad = np.load(folder / "x.npy")
    bad[1600] = np.inf
    np.save(tmp_path / "x.npy", bad)
    np.save(tmp_path / "x.offsets.npy", np.cumsum([0, *LENGTHS]))
    family = sj.DiagonalGaussian(2)
    setup = Setup(sj.__version__, family, Compute().backend)
    file = work.RemoteFile.of(opened(tmp_path, "npy"))
    spans = Spans(np.array([0, 1550]), np.array([9, 100]), np.array([[0, 9, 0, 9], [0, 100, 9, 0]]))
    with pytest.raises(sj.DataFileError, match=r"from step 49 of sequence 2: .*position 50.*inf"):
        work.take_tiles(setup, work.FileTiles(file, spans))


@pytest.mark.parametrize("duration", [sj.NegativeBinomialDuration(4), sj.CategoricalDuration(30)])
@pytest.mark.parametrize("tile_length", [40, None])
def test_states_that_last_are_learned_on_a_cluster(folder, duration, tile_length):
    given = model(duration=duration, tile_length=tile_length, n_passes=3)
    if tile_length is None:
        given.set_params(batch_size=2)
    data = opened(folder, "npy")
    alone, together = clone(given).fit(data), clone(given).fit(data, client="here")
    assert_same(together, alone, tolerance=1e-9)
    for ours, theirs in zip(together.durations_, alone.durations_, strict=True):
        assert ours.shape == theirs.shape
        assert ours.mean == pytest.approx(theirs.mean, rel=1e-9)
        assert ours.variance == pytest.approx(theirs.variance, rel=1e-8)
    assert max(own.mean for own in alone.durations_) > 5.0
