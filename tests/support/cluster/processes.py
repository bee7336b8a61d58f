"""A Dask scheduler and workers as processes of their own, on loopback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from distributed import Client

LONG = 120.0  # seconds after which a test gives up: none of it is ever waited for in full
WORKER_TTL = "8s"  # much less, and workers are given up that are only slow


class Processes:
    """A scheduler, and workers that come and go."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.workers = {}  # process by name
        self._n_started = 0
        self._file = self.folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--port", "0", "--host", "127.0.0.1")
        self.client = None
        try:
            self._until(self._file.exists, "the scheduler does not start")
            self.client = Client(scheduler_file=str(self._file), timeout=LONG)
        except BaseException:
            self.close()
            raise

    def _start(self, kind, *options):
        command = [sys.executable, "-m", "dask", kind, "--scheduler-file", str(self._file)]
        environment = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": WORKER_TTL}
        with (self.folder / f"{kind}.log").open("ab") as log:
            return subprocess.Popen(
                [*command, "--no-dashboard", *options],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def start_worker(self, *options):
        """Start a worker with one thread, and return its name once the scheduler knows it."""
        name = f"worker-{self._n_started}"
        self._n_started += 1
        self.workers[name] = self._start(
            "worker", "--nthreads", "1", "--no-nanny", "--name", name, *options
        )
        self._until(lambda: name in self.known(), f"{name} does not start")
        return name

    def scale(self, n_workers):
        """Have so many workers."""
        known = self.known()
        for name in [name for name in self.workers if name not in known]:
            self.kill(name)  # the scheduler has given it up: the machine was busy
        for name in list(self.workers)[n_workers:]:
            self.kill(name)
        while len(self.workers) < n_workers:
            self.start_worker()
        self._until(lambda: len(self.known()) == n_workers, "workers do not come or go")

    def known(self):
        """Names of the workers that the scheduler knows of, with their addresses."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return {worker["name"]: address for address, worker in workers.items()}

    def signal(self, name, number):
        os.killpg(self.workers[name].pid, number)

    def kill(self, name):
        process = self.workers.pop(name)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def kill_scheduler(self):
        os.killpg(self.scheduler.pid, signal.SIGKILL)
        self.scheduler.wait()

    def close(self):
        if self.client is not None:
            self.client.close(timeout=1)
        for process in (*self.workers.values(), self.scheduler):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @staticmethod
    def _until(condition, problem):
        deadline = time.monotonic() + LONG
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(problem)
            time.sleep(0.02)
