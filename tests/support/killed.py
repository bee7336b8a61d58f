"""Train, be killed at random moments, resume: test_checkpoints.py runs it in its own process.

Children are forked from a process that has everything loaded, so that many of them take seconds.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import sojourn as sj
from sojourn.sources import shuffle

KILLS = 8


def train(folder, checkpoints=None, n_passes=9, beat=None):
    model = sj.HDPHMM(
        4,
        sj.Categorical(),
        batch_size=40,
        n_passes=n_passes,
        hdp_batch_size=300,
        n_jobs=2,
        init="exponential",  # there is nothing to go on from in a warm-up
        random_state=3,
    )

    def slow(progress):
        if beat is not None:
            os.write(beat, b".")
            time.sleep(0.01)  # all kills must come before the end

    options = {}
    if checkpoints is not None:
        options = {"checkpoint": folder / checkpoints, "checkpoint_every": 2, "resume": True}
    data = folder / "data.parquet"
    return model.fit(data, validation=data, callback=slow, **options)


def load_everything(folder):
    """Compile or load all that training needs, before and after a resume."""
    for n_passes in (1, 2):
        train(folder, "warm-up", n_passes)


def child(folder):
    """Fork a child that trains; return its number and a pipe that it writes to as it learns."""
    listen, beat = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(listen)
        train(folder, "checkpoints", beat=beat).save(folder / "resumed.sojourn")
        os._exit(0)
    os.close(beat)
    return pid, listen


def main(folder):
    shuffle.BUFFER_SEQUENCES = 400  # several fillings a pass
    rng = random.Random(int(sys.argv[2]))
    kills, at = 0, []
    load_everything(folder)
    while True:
        pid, listen = child(folder)
        os.read(listen, 1)  # it has begun to learn, or it has ended
        if kills < KILLS:
            time.sleep(rng.uniform(0.0, 0.12))
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(listen)
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0, status
            break
        kills += 1
        at.append(len(list((folder / "checkpoints").glob("*.sojourn"))))
    train(folder).save(folder / "whole.sojourn")
    print(json.dumps({"kills": kills, "checkpoints": at}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
