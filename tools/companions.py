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

FITS = {
    "HMM Gaussian": ["HMM(3, Gaussian()) one", "HMM(8, Gaussian()) several"],
    "HMM DiagonalGaussian": ["HMM(3, DiagonalGaussian()) several"],
    "HMM Poisson": ["HMM(3, Poisson()) one", "HMM(8, Poisson()) several"],
    "HMM Bernoulli": ["HMM(3, Bernoulli()) several"],
    "HMM Categorical": [
        "HMM(10, Categorical()) sentences",
        "HMM(45, Categorical()) sentences",
        "HMM(3, Categorical()) one",
        "HMM(45, Categorical()) corpus",
    ],
    "HDPHMM Gaussian": ["HDPHMM(20, Gaussian()) one", "HDPHMM(20, Gaussian()) several"],
    "HDPHMM DiagonalGaussian": ["HDPHMM(20, DiagonalGaussian()) several"],
    "HDPHMM Poisson": ["HDPHMM(20, Poisson()) one", "HDPHMM(20, Poisson()) several"],
    "HDPHMM Bernoulli": ["HDPHMM(20, Bernoulli()) several"],
    "HDPHMM Categorical": [
        "HDPHMM(20, Categorical()) sentences",
        "HDPHMM(45, Categorical()) sentences",
        "HDPHMM(45, Categorical()) corpus",
        "HDPHMM(20, Categorical()) corpus",
    ],
}
"""Kinds of fits, and fits of them: a model and what its data are."""


def data_of(family: str, form: str) -> Any:
    """Return data: one column in one sequence with three regimes, several in eight, or words."""
    rng = np.random.default_rng(0)
    if form in ("sentences", "corpus"):
        n_sequences, n_symbols = (1000, 200) if form == "sentences" else (4000, 20_000)
        lengths = rng.integers(3, 30, size=n_sequences)
        return [list(rng.integers(0, n_symbols, size=length)) for length in lengths]
    n_columns = 1 if form == "one" else 3
    means = np.repeat([1.0, 5.0, 20.0], 400)[:, None] + np.zeros(n_columns)
    draws: dict[str, Callable[[], Any]] = {
        "Poisson": lambda: rng.poisson(means),
        "Bernoulli": lambda: (rng.random(means.shape) < means / 25.0).astype(int),
        "Categorical": lambda: rng.poisson(means[:, 0]).astype(int),
    }
    x = draws.get(family, lambda: rng.normal(means))()
    return [x] if form == "one" else list(np.split(x, 8))


def run_fit(fit: str) -> dict[str, Any]:
    """Run a fit here; return the functions that it needed, and the time of those compiled."""
    import sojourn
    from sojourn.kernels.cpu import aside, notice

    found = re.fullmatch(r"(\w+)\((\d+), (\w+)\(\)\) (\w+)", fit)
    assert found is not None
    model, n_states, family, form = found.groups()
    seconds: dict[str, float] = {}
    notice.notice.said = True
    aside._companions = aside.Companions([], {}, 0)
    _time_compiling(seconds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        emission = getattr(sojourn, family)()
        options = {"batch_size": 200} if form == "corpus" else {}
        getattr(sojourn, model)(int(n_states), emission, **options).fit(data_of(family, form))
    return {"needed": sorted(_loaded()), "seconds": seconds}


def _time_compiling(seconds: dict[str, float]) -> None:
    """Write the processor time of functions that are compiled from now on."""
    from numba.core import event

    class Timer(event.Listener):  # type: ignore[misc]
        def __init__(self) -> None:
            self.begins: list[float] = []

        def on_start(self, event: Any) -> None:
            self.begins.append(time.thread_time())

        def on_end(self, event: Any) -> None:
            took, function = (
                time.thread_time() - self.begins.pop(),
                event.data["dispatcher"].py_func,
            )
            seconds.setdefault(f"{function.__module__}.{function.__name__}", round(took, 1))

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


def _apart(fit: str, folder: str | None = None) -> dict[str, Any]:
    """Run a fit in a process of its own, with compiled code in a folder."""
    command = [sys.executable, "-m", "tools.companions", "--fit", fit]
    environment = os.environ | ({} if folder is None else {"NUMBA_CACHE_DIR": folder})
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(run.stdout.splitlines()[-1]))


def needed_apart(fit: str, folder: str | None = None) -> list[tuple[str, str]]:
    """Return the functions that a fit in a process of its own needs, and their arguments.

    Where some have to be compiled it runs again: then what these call is not among them.
    """
    found = _apart(fit, folder)
    found = _apart(fit, folder) if found["seconds"] else found
    return [(name, arguments) for name, arguments in found["needed"]]


def record() -> dict[str, Any]:
    """Run all fits: once to compile, and once to see what is loaded."""
    seconds: dict[str, float] = {}
    fits = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, own in FITS.items():
            for fit in own:
                seconds = _apart(fit, folder)["seconds"] | seconds
                fits.append((kind, needed_apart(fit, folder)))
    functions = sorted({one for _, needed in fits for one in needed})
    return {
        "functions": [[*one, seconds[one[0]]] for one in functions],
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
        print(json.dumps(run_fit(options.fit)))
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
