import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import sojourn as sj
from sojourn import persist
from sojourn.models import checkpoints
from sojourn.sources import ingest as ingest_module
from sojourn.sources import shuffle, text
from sojourn.sources.generate import generate

KILLED = Path(__file__).parents[1] / "support" / "killed.py"


@pytest.fixture
def corpus(tmp_path):
    return generate(tmp_path / "data.parquet", n_sequences=700, n_states=3, n_symbols=40)


def model(kind=sj.HDPHMM, **options):
    """Begin without a warm-up, of which there is nothing to go on from."""
    options = {"n_passes": 3, "random_state": 0, "init": "exponential", **options}
    return kind(4, sj.Categorical(), batch_size=50, **options)


def state(model):
    """Everything that training changes, by name."""
    posterior = model.fitted_.posterior
    values, arrays = posterior.transitions.state()
    return {
        "start": posterior.counts.start,
        "transitions": posterior.counts.transitions,
        "emissions": posterior.emissions.rows,
        "totals": posterior.emissions.totals,
        "scale": posterior.emissions.scale,
        "n_updates": posterior.n_updates,
        **values,
        **arrays,
    }


def same_bits(a, b):
    a, b = state(a), state(b)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def without_seconds(history):
    return [{k: v for k, v in entry.items() if "seconds" not in k} for entry in history]


class StopError(Exception):
    pass


def stop_after(n_updates):
    def callback(progress):
        if progress.updates == n_updates:
            raise StopError

    return callback


@pytest.mark.slow
def test_kills_at_random_moments_change_no_bit(tmp_path):
    generate(tmp_path / "data.parquet", n_sequences=1500, n_states=3, n_symbols=60)
    script = [sys.executable, str(KILLED), str(tmp_path), "0"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] == 8
    # Two, or one more when the kill fell between writing and tidying up.
    assert max(report["checkpoints"]) in (2, 3)
    resumed, whole = (sj.load(tmp_path / f"{n}.sojourn") for n in ("resumed", "whole"))
    assert same_bits(resumed, whole)
    assert without_seconds(resumed.history_) == without_seconds(whole.history_)
    left = [path.name for path in (tmp_path / "checkpoints").iterdir()]
    assert len(left) == 2
    assert not any(name.endswith(".part") for name in left)


@pytest.mark.parametrize("kind", [sj.HMM, sj.HDPHMM])
@pytest.mark.parametrize("place", ["file", "memory"])
@pytest.mark.parametrize("at", [1, 14, 17, 30])
def test_a_resumed_run_ends_in_the_same_bits(tmp_path, corpus, kind, place, at, monkeypatch):
    monkeypatch.setattr(shuffle, "BUFFER_SEQUENCES", 200)
    data = corpus if place == "file" else sj.open(corpus).read_all()
    folder = tmp_path / "checkpoints"
    whole = model(kind).fit(data, validation=data)
    with pytest.raises(StopError):
        model(kind).fit(
            data, validation=data, checkpoint=folder, checkpoint_every=1,
            callback=stop_after(at + 1),
        )  # fmt: skip
    resumed = model(kind, n_jobs=1).fit(data, validation=data, checkpoint=folder, resume=True)
    assert same_bits(whole, resumed)
    assert without_seconds(whole.history_) == without_seconds(resumed.history_)


def test_only_the_last_two_are_kept_and_each_is_a_model(tmp_path, corpus):
    # With moves the model has its states in order, which the last checkpoint has not yet.
    fitted = model(moves=None).fit(corpus, checkpoint=tmp_path / "c", checkpoint_every=5)
    files = sorted((tmp_path / "c").iterdir())
    assert len(files) == 2
    assert same_bits(sj.load(files[-1]), fitted)


def test_resume_after_the_end_gives_the_model_and_further_passes_go_on(tmp_path, corpus):
    folder = tmp_path / "c"
    model().fit(corpus, checkpoint=folder, checkpoint_every=100)
    again = model().fit(corpus, checkpoint=folder, resume=True)
    assert len(again.history_) == 3
    longer = model(n_passes=5).fit(corpus, checkpoint=folder, resume=True)
    assert same_bits(longer, model(n_passes=5).fit(corpus))


def test_resume_without_checkpoints_begins(tmp_path, corpus):
    resumed = model().fit(corpus, checkpoint=tmp_path / "c", resume=True)
    assert same_bits(resumed, model().fit(corpus))


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(tmp_path, corpus):
    folder = tmp_path / "c"
    with pytest.raises(StopError):
        model().fit(corpus, checkpoint=folder, checkpoint_every=1, callback=stop_after(20))
    newest = sorted(folder.iterdir())[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    with pytest.warns(UserWarning, match=f"{newest.name} is damaged and skipped"):
        resumed = model().fit(corpus, checkpoint=folder, resume=True)
    assert same_bits(resumed, model().fit(corpus))


def test_with_no_sound_checkpoint_nothing_begins_anew_in_silence(tmp_path, corpus):
    folder = tmp_path / "c"
    model().fit(corpus, checkpoint=folder, checkpoint_every=1)
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-7])
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(sj.ModelFileError, match=r"every checkpoint in .* is damaged"),
    ):
        model().fit(corpus, checkpoint=folder, resume=True)


def test_checkpoints_of_another_run_are_not_overwritten(tmp_path, corpus):
    folder = tmp_path / "c"
    model().fit(corpus, checkpoint=folder)
    with pytest.raises(FileExistsError, match="resume=True continues from them"):
        model().fit(corpus, checkpoint=folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 51}, "batch_size was 50, now it is 51"),
        ({"forgetting_rate": 0.6}, "forgetting_rate was 0.5, now it is 0.6"),
        ({"random_state": 1}, "seed is 0, but random_state=1"),
        ({"emission": sj.Categorical(41)}, "the emission has changed"),
    ],
)
def test_other_parameters_are_refused(tmp_path, corpus, change, message):
    folder = tmp_path / "c"
    model().fit(corpus, checkpoint=folder)
    with pytest.raises(ValueError, match=message):
        model().set_params(**change).fit(corpus, checkpoint=folder, resume=True)


def test_other_data_are_refused(tmp_path, corpus):
    folder = tmp_path / "c"
    model().fit(corpus, checkpoint=folder)
    other = generate(tmp_path / "b.parquet", n_sequences=700, n_states=3, n_symbols=40, seed=1)
    with pytest.raises(ValueError, match="the data has changed"):
        model().fit(other, checkpoint=folder, resume=True)
    copy = tmp_path / "copy.parquet"
    shutil.copy(corpus, copy)
    model().fit(copy, checkpoint=folder, resume=True)


def test_a_seed_that_was_drawn_is_kept(tmp_path, corpus):
    folder = tmp_path / "c"
    with pytest.raises(StopError):
        model(random_state=None).fit(
            corpus, checkpoint=folder, checkpoint_every=1, callback=stop_after(9)
        )
    seed = persist.read(sorted(folder.iterdir())[-1])[1]["identity"]["seed"]
    resumed = model(random_state=None).fit(corpus, checkpoint=folder, resume=True)
    assert same_bits(resumed, model(random_state=seed).fit(corpus))


@pytest.mark.parametrize("options", [{"resume": True}, {"checkpoint_every": 3}])
def test_options_without_a_folder_are_refused(corpus, options):
    with pytest.raises(ValueError, match="need a folder"):
        model().fit(corpus, **options)


def test_control_c_writes_a_checkpoint_and_leaves(tmp_path, corpus):
    folder = tmp_path / "c"

    def press(progress):
        if progress.updates == 7:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="the checkpoint is in"):
        model().fit(corpus, checkpoint=folder, callback=press)
    assert signal.getsignal(signal.SIGINT) is before
    assert sj.load(sorted(folder.iterdir())[-1]).n_updates_ == 7
    resumed = model().fit(corpus, checkpoint=folder, resume=True)
    assert same_bits(resumed, model().fit(corpus))


def test_a_callback_that_stops_writes_a_checkpoint_too(tmp_path, corpus):
    def stop(progress):
        if progress.updates == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model().fit(corpus, checkpoint=tmp_path / "c", callback=stop)
    assert sj.load(next((tmp_path / "c").iterdir())).n_updates_ == 7


def test_checkpoints_work_outside_the_main_thread(tmp_path, corpus):
    fitted = []
    thread = threading.Thread(
        target=lambda: fitted.append(model().fit(corpus, checkpoint=tmp_path / "c"))
    )
    thread.start()
    thread.join()
    assert same_bits(fitted[0], model().fit(corpus))


def test_without_a_number_there_is_one_a_minute(tmp_path, corpus, monkeypatch):
    monkeypatch.setattr(checkpoints, "_EVERY_SECONDS", 0.0)
    seen = []

    def count(progress):
        seen.append(len(list((tmp_path / "c").glob("*.sojourn"))))

    model().fit(corpus, checkpoint=tmp_path / "c", callback=count)
    assert seen[:4] == [0, 1, 2, 2]


# ---- what goes wrong ----------------------------------------------------------------------


def check_goes_on(folder, corpus):
    """The last checkpoint is intact, and training goes on from it."""
    files = list(folder.iterdir())
    assert files
    assert all(path.suffix == ".sojourn" for path in files)
    resumed = model().fit(corpus, checkpoint=folder, resume=True)
    assert same_bits(resumed, model().fit(corpus))


def test_a_full_disk_is_named_and_leaves_the_last_checkpoint(tmp_path, corpus, monkeypatch):
    folder = tmp_path / "c"
    sync, calls = os.fsync, []

    def full(number):
        calls.append(number)
        if len(calls) > 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(number)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"checkpoint-.* cannot be written: No space left on device"):
        model().fit(corpus, checkpoint=folder, checkpoint_every=1)
    monkeypatch.undo()
    check_goes_on(folder, corpus)


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk needs the right to mount a tmpfs, which this user has not")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill_up(path):
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_disk_that_is_really_full(small_disk, corpus):
    folder = small_disk / "c"
    n_written = 0

    def fill(progress):
        nonlocal n_written
        n_written = progress.updates
        if progress.updates == 10:
            fill_up(small_disk / "rubbish")

    with pytest.raises(OSError, match="No space left on device"):
        model().fit(corpus, checkpoint=folder, checkpoint_every=1, callback=fill)
    assert n_written == 10
    (small_disk / "rubbish").unlink()
    check_goes_on(folder, corpus)


def test_a_full_disk_while_results_are_written(small_disk, corpus):
    fitted = model().set_params(n_states=30).fit(corpus)
    out = small_disk / "p.parquet"
    with pytest.raises(OSError, match=r"p\.parquet cannot be written: .*No space left"):
        fitted.predict_proba(corpus, out=out)
    assert list(small_disk.iterdir()) == []


def test_a_read_error_in_the_middle(tmp_path, corpus, monkeypatch):
    import pyarrow.parquet as pq

    folder = tmp_path / "c"
    read, calls = pq.ParquetFile.read_row_group, []

    def failing(self, *args, **options):
        calls.append(args)
        if len(calls) > 3:
            raise OSError(errno.EIO, "Input/output error")
        return read(self, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(pq.ParquetFile, "read_row_group", failing)
        with pytest.raises(sj.DataFileError, match=r"data\.parquet, row group 0: .*Input/output"):
            model().fit(corpus, checkpoint=folder, checkpoint_every=1)
    check_goes_on(folder, corpus)


@pytest.mark.parametrize("change", ["rewritten", "touched", "gone"])
def test_a_file_that_changes_between_passes(tmp_path, corpus, change):
    folder = tmp_path / "c"
    kept = tmp_path / "kept"
    shutil.copy2(corpus, kept)

    def alter(progress):
        if progress.passes != 1.0 or progress.updates != 14:
            return
        if change == "rewritten":
            generate(corpus, n_sequences=9, n_states=3, n_symbols=40, overwrite=True)
        elif change == "touched":
            os.utime(corpus, ns=(0, 0))
        else:
            corpus.unlink(missing_ok=True)

    with pytest.raises(sj.DataFileError, match=r"data\.parquet (has changed|was removed)"):
        model().fit(corpus, checkpoint=folder, checkpoint_every=1, callback=alter)
    shutil.copy2(kept, corpus)
    check_goes_on(folder, corpus)


def test_ingest_leaves_nothing_when_it_fails(tmp_path, monkeypatch):
    source = tmp_path / "t.txt"
    source.write_bytes(b"a b c\n" * 200_000 + b"\xff\n")
    out = tmp_path / "t.parquet"
    with pytest.raises(sj.DataFileError, match=r"t\.txt, line 200001, byte 1200000: 0xff is not"):
        ingest_module.ingest(source, out)
    assert [path.name for path in tmp_path.iterdir()] == ["t.txt"]
    assert source.stat().st_size > text.BLOCK_BYTES  # the error is not in the first block
