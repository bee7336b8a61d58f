"""The commands on files of all kinds: no traceback, no raw escape characters."""

import base64
import os
import warnings
from functools import cache

import numpy as np
from click.testing import CliRunner
from typer.main import get_command

import sojourn as sj
from sojourn.cli.app import app
from tests.soak import data_files
from tests.soak.harness import Part, WrongError, scratch, soak

FAMILIES = ("auto", "auto", "auto", "categorical", "poisson", "gaussian", "gamma", "bernoulli", "x")
MODELS = ("words", "symbols", "numbers", "broken")


@cache
def folder():
    """A folder with models to use."""
    here = scratch()
    options = {"n_passes": 1, "n_init": 1, "random_state": 0, "n_jobs": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        words = [["the", "cat", "\x1b[2Jsleeps"], ["a", "dog"]]
        sj.HDPHMM(2, sj.Categorical(), **options).fit(words).save(here / "words.sojourn")
        symbols = [[0, 1, 2], [1, 2], [2]]
        sj.HMM(2, sj.Categorical(3), **options).fit(symbols).save(here / "symbols.sojourn")
        numbers = np.array([[0.5], [1.5], [-1.0], [2.0]])
        sj.HMM(2, sj.Gaussian(), **options).fit(numbers, [2, 2]).save(here / "numbers.sojourn")
    raw = (here / "words.sojourn").read_bytes()
    (here / "broken.sojourn").write_bytes(raw[:200] + bytes(8) + raw[208:])
    return here


@cache
def _command():
    return get_command(app)


def make(rng):
    """Return a case: a data file and a command line."""
    case = data_files.make(rng)
    if rng.random() < 0.3:  # a sound one
        suffix, content = list(data_files.bases().values())[rng.randrange(len(data_files.bases()))]
        case |= {"suffix": suffix, "content": base64.b64encode(content).decode()}
        case |= {"offsets": [0, 3, 8]}
    model = MODELS[rng.randrange(len(MODELS))]
    command = rng.choices(("fit", "score", "decode", "ingest", "inspect", "sample", "report"),
                          (6, 30, 30, 30, 4, 4, 1))[0]  # fmt: skip
    extra = ["--json"] if rng.random() < 0.3 else []
    if command == "fit":
        arguments = ["fit", "DATA", "--states", "2", "--passes", "1", "--restarts", "1", "--jobs",
                     "1", "--min-count", "1", "--out", rng.choice(["OUT", "OUT", "DATA"]),
                     "--family", FAMILIES[rng.randrange(len(FAMILIES))]]  # fmt: skip
        extra += ["--force"] if rng.random() < 0.8 else []
    elif command == "ingest":
        arguments = ["ingest", "DATA", "OUT.parquet", "--force"]
    elif command in ("inspect", "sample"):
        arguments = [command, model]
    elif command == "report":
        arguments = ["report", model, "--data", "DATA", "--out", "OUT.html", "--force"]
    else:
        arguments = [command, model, "DATA"]
        if command == "decode":
            extra += rng.choice([[], ["--words"], ["--proba"], ["OUT.parquet", "--force"]])
    if rng.random() < 0.15 and command not in ("inspect", "sample"):
        extra += rng.choice([["--column", "x"], ["--sequence", "sequence"], ["--column", "a"],
                             ["--pattern", "("], ["--max-bytes", "30"]])  # fmt: skip
    return case | {"arguments": arguments + extra, "options": {}}


def run(case):
    """Run the command line in this process."""
    here = folder()
    path = here / f"data{case['suffix']}"
    content = base64.b64decode(case["content"])
    path.write_bytes(content)
    if case["suffix"] == ".npy":
        np.save(here / "data.offsets.npy", np.array(case["offsets"], dtype=np.int64))
    names = {name: here / f"{name}.sojourn" for name in (*MODELS, "OUT")}
    names |= {"DATA": path, "OUT.parquet": here / "out.parquet", "OUT.html": here / "out.html"}
    result = CliRunner().invoke(_command(), [str(names.get(a, a)) for a in case["arguments"]])
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        raise error
    if result.exit_code not in (0, 1, 2):
        raise WrongError(f"exit code {result.exit_code}")
    if any(ord(c) < 32 and c not in "\n\t" for c in result.output):
        raise WrongError("control characters on the terminal")
    if path.read_bytes() != content:
        raise WrongError("the input was changed")
    left = [name for name in os.listdir(here) if name.endswith(".part")]
    if left:
        raise WrongError(f"left behind: {left}")
    return result.exit_code == 0


def warm():
    case = {"suffix": ".txt", "content": base64.b64encode(data_files.TEXT).decode(), "offsets": []}
    for arguments in (
        ["fit", "DATA", "--states", "2", "--passes", "1", "--out", "OUT", "--force"],
        ["score", "words", "DATA"],
        ["decode", "words", "DATA"],
        ["report", "words", "--data", "DATA", "--out", "OUT.html", "--force"],
        ["ingest", "DATA", "OUT.parquet", "--force"],
        ["inspect", "words"],
    ):
        run(case | {"arguments": arguments})


PART = Part("commands", make, run, ())


def soak_part(seed, **limits):
    """Run cases of this part."""
    warm()
    return soak(PART, seed, **limits)
