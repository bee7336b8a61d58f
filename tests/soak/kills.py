"""SIGKILL at random moments of training, saving, ingest and prediction.

Children are forked from a process that has everything loaded, so that a kill takes a tenth of a
second.  After each one the files are whole, and in the end the bits are those of a run without.
"""

import os
import random
import signal
import tempfile
import time
import traceback
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import sojourn as sj
from sojourn.sources import shuffle
from sojourn.sources.ingest import ingest
from tests.soak.harness import Outcome
from tests.support.cluster.data import draw, write_parquet

ACTIONS = ("train", "train", "train", "save", "ingest", "predict")
KILLS_A_RUN = 25  # of one training, before it may end


def forked(action):
    """Fork a child that acts; return its number and a pipe that closes when it ends."""
    listen, beat = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(listen)
        try:
            warnings.simplefilter("ignore")
            action(beat)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(beat)
    return pid, listen


def killed(action, wait):
    """Run an action until it has begun and some more seconds have passed; say if it was killed."""
    pid, listen = forked(action)
    os.read(listen, 1)
    if wait is not None:
        time.sleep(wait)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(listen)
    if os.WIFSIGNALED(status):
        return True
    if os.waitstatus_to_exitcode(status) != 0:
        raise AssertionError(f"the child failed: {status}")
    return False


class Scene:
    """A folder with data, models and results to compare with."""

    def __init__(self, folder):
        self.folder = folder
        self.data = write_parquet(folder / "data.parquet", draw(400, 60))
        self.text = folder / "text.txt"
        rng = np.random.default_rng(0)
        lines = [" ".join(f"w{n}" for n in rng.integers(50, size=8)) for _ in range(3000)]
        self.text.write_text("\n".join(lines) + "\n")
        for n_passes in (1, 2):
            self.train(None, folder / "warm", n_passes)
        self.whole = self.train(None, None)
        self.models = [self.whole, self.train(None, None, 2)]
        self.bits = [model.statistics_.emissions.tobytes() for model in self.models]
        ingest(self.text, folder / "ingested.parquet")
        self.ingested = _content(folder / "ingested.parquet")
        self.whole.predict(self.data, out=folder / "states.parquet")
        self.states = _content(folder / "states.parquet")

    def train(self, beat, checkpoints, n_passes=5):
        """Train a model, by way of checkpoints if there is a folder for them."""
        model = sj.HDPHMM(
            4, sj.Categorical(), batch_size=40, n_passes=n_passes, hdp_batch_size=300, n_jobs=1,
            init="exponential", random_state=3,
        )  # fmt: skip

        def slow(progress):
            if beat is not None:
                os.write(beat, b".")
                time.sleep(0.004)  # the kills must come before the end

        options = {}
        if checkpoints is not None:
            options = {"checkpoint": checkpoints, "checkpoint_every": 2, "resume": True}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.fit(self.data, validation=self.data, callback=slow, **options)

    # ---- one kill of each kind, or several; they return how many --------------------------------

    def kill_train(self, rng):
        """Kill one training many times, let it end, and compare the bits."""
        place = Path(tempfile.mkdtemp(dir=self.folder))
        target, kills = place / "resumed.sojourn", 0

        def action(beat):
            self.train(beat, place / "checkpoints").save(target)

        while kills < KILLS_A_RUN:
            if not killed(action, rng.uniform(0.0, 0.09)):
                break  # it ended before the kill
            kills += 1
        if not target.exists():
            killed(action, None)
        resumed = sj.load(target)
        for name in ("start", "transitions", "emissions"):
            ours, theirs = (getattr(m.statistics_, name) for m in (resumed, self.whole))
            if ours.tobytes() != theirs.tobytes():
                raise AssertionError(f"{name} differs after {kills} kills")
        left = [p.name for p in (place / "checkpoints").iterdir() if p.name.endswith(".part")]
        if left:
            raise AssertionError(f"left behind: {left}")
        return kills

    def kill_save(self, rng):
        """Kill a process that saves one model over another."""
        target = self.folder / "saved.sojourn"

        def action(beat):
            for n in range(100_000):
                self.models[n % 2].save(target)
                os.write(beat, b".")

        killed(action, rng.uniform(0.0, 0.03))
        if sj.load(target).statistics_.emissions.tobytes() not in self.bits:
            raise AssertionError("a model file is neither of the two that were written")
        self.models[0].save(target)
        self._no_parts(target)
        return 1

    def kill_ingest(self, rng):
        """Kill an ingest that replaces a file."""
        return self._kill_write(
            rng,
            "ingested.parquet",
            self.ingested,
            lambda out: ingest(self.text, out, overwrite=True),
        )

    def kill_predict(self, rng):
        """Kill a prediction that replaces a file."""
        return self._kill_write(
            rng, "states.parquet", self.states,
            lambda out: self.whole.predict(self.data, out=out, overwrite=True),
        )  # fmt: skip

    def _kill_write(self, rng, name, expected, write):
        target = self.folder / name

        def action(beat):
            while True:
                os.write(beat, b".")
                write(target)

        killed(action, rng.uniform(0.0, 0.06))
        if _content(target) != expected:
            raise AssertionError(f"{name} is not whole")
        if rng.random() < 0.2:
            write(target)
            self._no_parts(target)
        return 1

    def _no_parts(self, target):
        prefix = f".{target.name}."
        if any(path.name.startswith(prefix) for path in target.parent.iterdir()):
            raise AssertionError(f"a part of {target.name} was left behind")


def _content(path):
    sequences = sj.open(path).read_all()
    return sequences.values.tobytes(), sequences.offsets.tobytes()


@contextmanager
def small_buffer(n_sequences):
    """Shuffle with a smaller buffer for a while."""
    before = shuffle.BUFFER_SEQUENCES
    shuffle.BUFFER_SEQUENCES = n_sequences
    try:
        yield
    finally:
        shuffle.BUFFER_SEQUENCES = before


def soak_part(seed, *, count=None, seconds=None, first=0):
    """Kill until there were so many kills, or so much time has passed."""
    outcome, begun = Outcome(), time.monotonic()
    # Several fillings a pass.
    with small_buffer(150), tempfile.TemporaryDirectory() as folder:
        scene, number = Scene(Path(folder)), first
        while True:
            is_enough = count is not None and outcome.cases >= count
            if is_enough or (seconds is not None and time.monotonic() - begun >= seconds):
                break
            rng = random.Random(f"{seed}/kills/{number}")
            kind = ACTIONS[number % len(ACTIONS)]
            if kind == "train" and number % (len(ACTIONS) * 5) >= 3:
                kind = "save"  # a training has many kills, the others one each
            try:
                kills = getattr(scene, f"kill_{kind}")(rng)
                outcome.cases += kills
                outcome.accepted += kills
            except Exception as error:
                outcome.cases += 1
                text = f"{kind}: {type(error).__name__}: {error}"
                outcome.failures.append({"number": number, "seed": seed, "error": text})
            number += 1
    outcome.seconds = round(time.monotonic() - begun, 1)
    return outcome
