"""Which compiled functions fits need, for `sojourn.kernels.cpu.aside`.

``python -m tools.companions --write`` runs typical first fits, each in new processes, and writes
what they needed and how long it takes to compile; without ``--write`` it says what has changed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

FITS = [
    "HMM(3, Gaussian()) one",
    "HMM(8, Gaussian()) several",
    "HMM(8, Gaussian()) long",
    "HMM(3, DiagonalGaussian()) several",
    "HMM(8, DiagonalGaussian()) long",
    "HMM(3, Poisson()) one",
    "HMM(8, Poisson()) several",
    "HMM(8, Poisson()) long",
    "HMM(3, Bernoulli()) several",
    "HMM(10, Categorical()) sentences",
    "HMM(45, Categorical()) sentences",
    "HMM(3, Categorical()) one",
    "HMM(8, Categorical()) long",
    "HMM(45, Categorical()) corpus",
    "HDPHMM(20, Gaussian()) one",
    "HDPHMM(20, Gaussian()) several",
    "HDPHMM(20, Gaussian()) long",
    "HDPHMM(20, DiagonalGaussian()) several",
    "HDPHMM(20, Poisson()) one",
    "HDPHMM(20, Poisson()) several",
    "HDPHMM(20, Bernoulli()) several",
    "HDPHMM(20, Categorical()) sentences",
    "HDPHMM(45, Categorical()) sentences",
    "HDPHMM(45, Categorical()) corpus",
    "HDPHMM(20, Categorical()) corpus",
]
"""Fits: a model and what its data are."""

_MOST_RUNS = 3  # after which a fit needs nothing else
_N_STEPS = {"one": 1200, "several": 1200, "long": 200_000}


def data_of(family: str, form: str) -> Any:
    """Return data: one column in one sequence with three regimes, several in eight, or words.

    Of the form "long" there are two hundred thousand steps of one column, in regimes of fifty.
    """
    rng = np.random.default_rng(0)
    if form in ("sentences", "corpus"):
        n_sequences, n_symbols = (1000, 200) if form == "sentences" else (4000, 20_000)
        lengths = rng.integers(3, 30, size=n_sequences)
        return [list(rng.integers(0, n_symbols, size=length)) for length in lengths]
    n_steps, n_columns = _N_STEPS[form], 3 if form == "several" else 1
    length = 50 if form == "long" else n_steps // 3
    levels = np.resize([1.0, 5.0, 20.0], n_steps // length)
    means = np.repeat(levels, length)[:, None] + np.zeros(n_columns)
    draws: dict[str, Callable[[], Any]] = {
        "Poisson": lambda: rng.poisson(means),
        "Bernoulli": lambda: (rng.random(means.shape) < means / 25.0).astype(int),
        "Categorical": lambda: rng.poisson(means[:, 0]).astype(int),
    }
    x = draws.get(family, lambda: rng.normal(means))()
    return list(np.split(x, 8)) if form == "several" else [x]


def run_fit(fit: str) -> None:
    """Run a fit here."""
    import sojourn

    found = re.fullmatch(r"(\w+)\((\d+), (\w+)\(\)\) (\w+)", fit)
    assert found is not None
    model, n_states, family, form = found.groups()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        emission = getattr(sojourn, family)()
        options: dict[str, Any] = {"batch_size": 200} if form == "corpus" else {}
        options["random_state"] = 0  # others may need more, or less
        getattr(sojourn, model)(int(n_states), emission, **options).fit(data_of(family, form))


def watch_fit(fit: str) -> dict[str, Any]:
    """Run a fit here; return its kind, the functions needed, and the time of those compiled."""
    from sojourn.kernels.cpu import aside, notice

    seconds: dict[str, float] = {}
    notice.notice.said = True
    aside._companions = aside.Companions([], {}, 0)
    _time_compiling(seconds)
    run_fit(fit)
    return {"kind": aside._kind, "needed": sorted(_loaded()), "seconds": seconds}


def key_of(name: str, arguments: str) -> str:
    """Return what the time of a function with some arguments is kept under."""
    return f"{name}{arguments}"


def _time_compiling(seconds: dict[str, float]) -> None:
    """Write the processor time of functions that are compiled from now on."""
    from numba.core import event

    from sojourn.kernels.cpu.aside import text_of

    class Timer(event.Listener):  # type: ignore[misc]
        def __init__(self) -> None:
            self.begins: list[float] = []

        def on_start(self, event: Any) -> None:
            self.begins.append(time.thread_time())

        def on_end(self, event: Any) -> None:
            took = time.thread_time() - self.begins.pop()
            function = event.data["dispatcher"].py_func
            name = f"{function.__module__}.{function.__name__}"
            seconds.setdefault(key_of(name, text_of(event.data.get("args", ()))), round(took, 1))

    event.register("numba:compile", Timer())


def _loaded() -> list[tuple[str, str]]:
    """Return the functions kept on disk that this process has loaded, and their arguments."""
    from numba.core.caching import NullCache
    from numba.core.dispatcher import Dispatcher
    from numba.core.sigutils import normalize_signature

    from sojourn.kernels.cpu.aside import text_of

    return [
        (f"{module}.{name}", text_of(tuple(kinds)))
        for module in [one for one in sys.modules if one.startswith("sojourn.")]
        for name, value in vars(sys.modules[module]).items()
        if isinstance(value, Dispatcher)
        and value.py_func.__module__ == module
        and not isinstance(value._cache, NullCache)
        for kinds in value.signatures
        if normalize_signature(text_of(tuple(kinds)))[0] == tuple(kinds)
    ]


def watch_apart(fit: str, folder: str | None = None) -> dict[str, Any]:
    """Watch a fit in a process of its own, with compiled code in a folder."""
    command = [sys.executable, "-m", "tools.companions", "--fit", fit]
    environment = os.environ | ({} if folder is None else {"NUMBA_CACHE_DIR": folder})
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(run.stdout.splitlines()[-1]))


def needed_apart(fit: str, folder: str | None = None) -> tuple[str, list[tuple[str, str]]]:
    """Return the kind of a fit, and the functions that it needs in a process of its own."""
    kind, needed, _ = watch_until_compiled(fit, folder)
    return kind, needed


def watch_until_compiled(
    fit: str, folder: str | None = None
) -> tuple[str, list[tuple[str, str]], dict[str, float]]:
    """Return the kind of a fit, the functions that it needs, and how long each took to compile.

    Where some have to be compiled it runs again: then what these call is not among them.
    """
    found = watch_apart(fit, folder)
    seconds = found["seconds"]
    for _ in range(_MOST_RUNS):
        if not found["seconds"]:
            break
        found = watch_apart(fit, folder)
        seconds = found["seconds"] | seconds
    return found["kind"], [(name, arguments) for name, arguments in found["needed"]], seconds


def record() -> dict[str, Any]:
    """Run all fits: to compile, and once more to see what is loaded."""
    seconds: dict[str, float] = {}
    fits = []
    with tempfile.TemporaryDirectory() as folder:
        for fit in FITS:
            kind, needed, own = watch_until_compiled(fit, folder)
            fits.append((kind, needed))
            seconds = own | seconds
    functions = sorted({one for _, needed in fits for one in needed})
    return {
        "functions": [[*one, seconds[key_of(*one)]] for one in functions],
        "fits": [
            {"kind": kind, "functions": [functions.index(one) for one in needed]}
            for kind, needed in fits
        ],
    }


def text_of_record(found: dict[str, Any]) -> str:
    """Write a record, one function or fit a line."""
    parts = [
        f'"{key}": [\n' + ",\n".join(json.dumps(one) for one in found[key]) + "\n]" for key in found
    ]
    return "{" + ",\n".join(parts) + "}\n"


def main() -> int:
    """Record, or run one fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--fit")
    options = parser.parse_args()
    if options.fit:
        print(json.dumps(watch_fit(options.fit)))
        return 0
    from sojourn.kernels.cpu.aside import RECORD

    found = record()
    if options.write:
        RECORD.write_text(text_of_record(found))
        return 0
    known = json.loads(RECORD.read_text())
    new = {tuple(one[:2]) for one in found["functions"]}
    old = {tuple(one[:2]) for one in known["functions"]}
    print(
        "\n".join(
            [f"- {one}" for one in sorted(old - new)] + [f"+ {one}" for one in sorted(new - old)]
        )
    )
    return int(old != new)


if __name__ == "__main__":
    sys.exit(main())
