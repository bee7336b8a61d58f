"""The same fit with real processes: any number of workers, some of which die, hang or come late."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import dask
import numpy as np
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

import sojourn as sj
from sojourn.backends.dask import ClusterError
from sojourn.cli import app
from tests.support.cluster.data import (
    assert_identical,
    assert_same,
    draw,
    make_small,
    model,
    write_known,
    write_parquet,
)
from tests.support.cluster.processes import Processes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    processes = Processes(tmp_path_factory.mktemp("cluster"))
    try:
        yield processes
    finally:
        processes.close()


@pytest.fixture(scope="module")
def small():
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        yield


@pytest.fixture(scope="module")
def path(tmp_path_factory, small):
    return write_parquet(tmp_path_factory.mktemp("data") / "a.parquet", draw(1500))


@pytest.fixture(scope="module")
def alone(path):
    """What a single process learns."""
    return model().fit(path, validation=path)


def run(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def at_update(number, action):
    """Make a callback that acts once."""
    done = []

    def callback(progress):
        if progress.updates == number and not done:
            done.append(number)
            action()

    return callback


def test_one_two_and_three_workers_learn_what_one_process_does(cluster, path, alone, tmp_path):
    models = []
    for n_workers in (1, 2, 3):
        cluster.scale(n_workers)
        models.append(model().fit(path, validation=path, client=cluster.client))
        assert_same(models[-1], alone)
        assert models[-1].history_[-1]["score"] == pytest.approx(alone.history_[-1]["score"])
    # Who computed what does not show in a single bit.
    assert_identical(models[0], models[1])
    assert_identical(models[0], models[2])
    counts = cluster.client.run(lambda dask_worker: dask_worker.state.executed_count)
    assert min(counts.values()) > 0
    assert alone.score(path, client=cluster.client) == pytest.approx(alone.score(path), rel=1e-12)
    score, there = alone.decode(path, out=tmp_path / "states", client=cluster.client)
    expected, one = alone.decode(path, out=tmp_path / "states.parquet")
    assert score == pytest.approx(expected, rel=1e-12)
    ours, theirs = (sj.open(place).read_all() for place in (there, one))
    assert len(list(there.iterdir())) == sj.open(path).n_blocks
    np.testing.assert_array_equal(ours.values, theirs.values)
    np.testing.assert_array_equal(ours.offsets, theirs.offsets)
    # Labels and weights travel with the sequences.
    known, given = write_known(tmp_path / "known.parquet", draw(500)), model(n_passes=1)
    assert_same(clone(given).fit(known, client=cluster.client), clone(given).fit(known))


def test_tiles_of_long_sequences_on_workers_that_come_and_go(cluster, tmp_path):
    rng = np.random.default_rng(0)
    np.save(
        tmp_path / "x.npy", np.repeat(rng.integers(3, size=200), 20) + rng.integers(2, size=4000)
    )
    data = sj.open(tmp_path / "x.npy", sequence=False)
    given = sj.HMM(3, sj.Categorical(), tile_length=100, batch_size=20, n_passes=3, random_state=0)
    given.set_params(dtype="float64", n_jobs=1)
    cluster.scale(2)
    callback = at_update(2, lambda: cluster.kill(next(iter(cluster.workers))))
    found = clone(given).fit(data, callback=callback, client=cluster.client)
    assert_same(found, clone(given).fit(data))


def test_a_worker_that_is_killed_is_replaced_by_another(cluster, path, alone):
    cluster.scale(2)
    callback = at_update(2, lambda: cluster.kill(next(iter(cluster.workers))))
    assert_same(model().fit(path, callback=callback, client=cluster.client), alone)
    assert len(cluster.workers) == 1


def test_a_late_worker_takes_over_when_the_only_one_is_killed(cluster, path, alone):
    cluster.scale(1)
    (first,) = cluster.workers
    late = []

    def replace():
        late.append(cluster.start_worker())
        cluster.kill(first)

    assert_same(model().fit(path, callback=at_update(2, replace), client=cluster.client), alone)
    assert list(cluster.known()) == late


def test_a_worker_that_hangs_is_replaced_by_another(cluster, path, alone):
    cluster.scale(2)
    name = next(iter(cluster.workers))
    callback = at_update(2, lambda: cluster.signal(name, signal.SIGSTOP))
    with dask.config.set({"sojourn.timeout": "10s"}):
        fitted = model().fit(path, callback=callback, client=cluster.client)
    cluster.kill(name)
    assert_same(fitted, alone)


ROOT = Path(__file__).parents[3]

CHILD = """
import sys, time
import pytest
from distributed import Client
from tests.support.cluster.data import make_small, model

def stop(progress):
    if progress.updates == 4:
        print("ready", flush=True)
        time.sleep(1000)

if __name__ == "__main__":
    data, checkpoints, address = sys.argv[1:]
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        model().fit(
            data, callback=stop, checkpoint=checkpoints, checkpoint_every=1, client=Client(address)
        )
"""


def test_a_client_that_is_killed_goes_on_from_its_checkpoint(cluster, path, tmp_path):
    cluster.scale(2)
    folder = tmp_path / "checkpoints"
    address = cluster.client.scheduler.address
    command = [sys.executable, "-c", CHILD, str(path), str(folder), address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        try:
            assert child.stdout.readline() == "ready\n"
        finally:
            child.kill()
    assert len(list(folder.glob("*.sojourn"))) == 2
    resumed = model().fit(path, checkpoint=folder, resume=True, client=cluster.client)
    whole = model().fit(path, client=cluster.client)
    assert resumed.n_updates_ == whole.n_updates_ == 8
    assert_identical(resumed, whole)


def test_a_worker_with_another_version_is_refused(cluster, path, tmp_path):
    cluster.scale(1)
    preload = tmp_path / "other_version.py"
    preload.write_text("import sojourn\nsojourn.__version__ = '0.0.9'\n")
    name = cluster.start_worker("--preload", str(preload))
    with pytest.raises(ClusterError, match=r"1 of 2 workers .* has sojourn 0\.0\.9"):
        model().fit(path, client=cluster.client)
    cluster.kill(name)


def test_a_lost_scheduler_is_an_error_and_leaves_the_checkpoint(path, alone, tmp_path):
    lost = Processes(tmp_path)
    folder = tmp_path / "checkpoints"
    options = {"checkpoint": folder, "checkpoint_every": 1}
    try:
        lost.scale(1)
        callback = at_update(3, lost.kill_scheduler)
        with pytest.raises(ClusterError, match="connection to the scheduler is lost"):
            model().fit(path, callback=callback, client=lost.client, **options)
    finally:
        lost.close()
    # The callback runs before the checkpoint of its update is written.
    resumed = model().fit(path, resume=True, **options)
    assert_same(resumed, alone)
    assert resumed.history_[-1]["updates"] == 8


def test_the_command_line_on_a_cluster(cluster, path, tmp_path):
    cluster.scale(2)
    where = ("--cluster", cluster.client.scheduler.address)
    target = tmp_path / "model.sojourn"
    run(
        "fit",
        path,
        "-k",
        3,
        "--passes",
        1,
        "--batch-size",
        500,
        "--held-out",
        0,
        "-o",
        target,
        *where,
    )
    fitted = sj.load(target)
    same = clone(fitted).set_params(emission=sj.Categorical()).fit(path, client=cluster.client)
    assert_identical(fitted, same)
    score = json.loads(run("score", target, path, "--json", *where))
    assert score["log_likelihood"] == pytest.approx(fitted.score(path), rel=1e-6)
    run("decode", target, path, tmp_path / "states", *where)
    assert sj.open(tmp_path / "states").n_steps == sj.open(path).n_steps


def test_the_command_line_starts_and_stops_workers(path, tmp_path):
    target = tmp_path / "model.sojourn"
    run("fit", path, "-k", 2, "--passes", 1, "--batch-size", 500, "-o", target, "--workers", 2)
    assert sj.load(target).total_sequences_ < 1500  # a tenth is held out


def test_the_command_line_says_in_a_line_what_is_wrong(path, tmp_path):
    assert "OUT is needed" in run("decode", "m", path, "--workers", 1, code=2)
    both = ("--workers", 1, "--cluster", "tcp://127.0.0.1:1")
    assert "has its workers" in run("score", "m", path, *both, code=2)
