"""Train, be killed at random moments, resume: run by test_checkpoints.py in a process of its own.

Children are forked from a process that has everything loaded, so that 20 of them take seconds.
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

KILLS = 20


def train(folder, resume, beat=None):
    model = sj.HDPHMM(
        4, sj.Categorical(), batch_size=40, n_passes=8, hdp_batch_size=300, n_jobs=2, random_state=3
    )

    def slow(progress):
        if beat is not None:
            os.write(beat, b".")
            time.sleep(0.01)  # twenty kills must come before the end

    data = folder / "data.parquet"
    checkpoint = {} if beat is None else {"checkpoint": folder / "checkpoints", "resume": resume}
    every = {} if beat is None else {"checkpoint_every": 2}
    model.fit(data, validation=data, callback=slow, **checkpoint, **every)
    return model


def child(folder):
    """Fork a child that trains; return its number and a pipe that it writes to as it learns."""
    listen, beat = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(listen)
        train(folder, True, beat).save(folder / "resumed.sojourn")
        os._exit(0)
    os.close(beat)
    return pid, listen


def main(folder):
    shuffle.BUFFER_SEQUENCES = 400  # several fillings a pass
    rng = random.Random(int(sys.argv[2]))
    kills, at = 0, []
    data = sj.open(folder / "data.parquet").read_all()
    sj.HDPHMM(4, sj.Categorical(), n_passes=1, n_jobs=1, batch_size=40).fit(data)  # loads kernels
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
    train(folder, False).save(folder / "whole.sojourn")
    print(json.dumps({"kills": kills, "checkpoints": at}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
