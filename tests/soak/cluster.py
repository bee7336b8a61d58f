"""SIGKILL in a local cluster: workers, the scheduler, and the client that trains."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import sojourn as sj
from tests.soak.harness import Outcome
from tests.support.cluster.data import PARTS, draw, model, write_parquet
from tests.support.cluster.processes import Processes

WHO = ("worker", "worker", "client", "worker", "client", "scheduler")


def train(folder):
    """Train on the cluster of a folder with checkpoints: what the client's process does."""
    from distributed import Client

    settings = json.loads((folder / "scheduler.json").read_text())
    with Client(settings["address"], timeout=60) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = _model().fit(
            folder / "data.parquet", checkpoint=folder / "checkpoints", checkpoint_every=1,
            resume=True, client=client, callback=lambda progress: print(".", flush=True),
        )  # fmt: skip
        fitted.save(folder / "resumed.sojourn")


def _model():
    return model(batch_size=100, n_passes=3)


class Cluster:
    """A scheduler with two workers, and a client in a process of its own."""

    def __init__(self, folder):
        self.folder = folder
        write_parquet(folder / "data.parquet", draw(1200, 400))
        self.processes = Processes(folder)
        self.processes.scale(2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.whole = _model().fit(folder / "data.parquet", client=self.processes.client)

    def start_client(self):
        return subprocess.Popen(
            [sys.executable, "-m", "tests.soak.cluster", str(self.folder)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def kill(self, who, rng):
        """Kill one process while the client trains; the training must end, or be resumed."""
        client = self.start_client()
        for _ in range(1 + rng.randrange(20)):
            if not client.stdout.readline():
                break
        if who == "client":
            os.killpg(client.pid, signal.SIGKILL)
        elif who == "worker":
            self.processes.kill(rng.choice(list(self.processes.workers)))
        else:
            self.processes.kill_scheduler()
            self.restart()
        client.stdout.close() if who != "worker" else client.stdout.read()
        if who == "scheduler":
            os.killpg(client.pid, signal.SIGKILL)  # it would wait for the old one
        code = client.wait(timeout=180)
        if who == "worker" and code != 0:
            raise AssertionError(f"the client failed after a worker was killed: {code}")
        self.processes.scale(2)

    def restart(self):
        self.processes.close()
        (self.folder / "scheduler.json").unlink(missing_ok=True)
        self.processes = Processes(self.folder)
        self.processes.scale(2)

    def finish(self):
        """Let the training end, and compare the bits."""
        if self.start_client().wait(timeout=300) != 0:
            raise AssertionError("the last client failed")
        resumed = sj.load(self.folder / "resumed.sojourn")
        for name in PARTS:
            ours, theirs = (getattr(m.statistics_, name) for m in (resumed, self.whole))
            if ours.tobytes() != theirs.tobytes():
                raise AssertionError(f"{name} differs after the kills")
        for path in (self.folder / "checkpoints").iterdir():
            if path.name.endswith(".part"):
                raise AssertionError(f"left behind: {path.name}")
            path.unlink()


def soak_part(seed, *, count=None, seconds=None, first=0):
    """Kill until there were so many kills, or so much time has passed."""
    outcome, begun, number = Outcome(), time.monotonic(), first
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder))
        try:
            while not (count is not None and outcome.cases >= count) and not (
                seconds is not None and time.monotonic() - begun >= seconds
            ):
                rng = random.Random(f"{seed}/cluster/{number}")
                who = WHO[number % len(WHO)]
                outcome.cases += 1
                try:
                    cluster.kill(who, rng)
                    if number % len(WHO) in (1, 5):
                        cluster.finish()
                    outcome.accepted += 1
                except Exception as error:
                    text = f"{who}: {type(error).__name__}: {error}"
                    outcome.failures.append({"number": number, "seed": seed, "error": text})
                number += 1
        finally:
            cluster.processes.close()
    outcome.seconds = round(time.monotonic() - begun, 1)
    return outcome


if __name__ == "__main__":
    train(Path(sys.argv[1]))
