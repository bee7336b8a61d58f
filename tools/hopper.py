"""Compile the kernels that fits launch for an H100 or H200, on a machine without a GPU.

``python -m tools.hopper FIT ...`` runs fits on data that are never looked at: what they launch is
noted, and nothing of it runs.  Triton compiles it as it would where there is such a GPU, up to the
machine code, one kernel after another, and a line of JSON says of each how long that took, and how
many registers and bytes of memory its threads need.  ``--write`` writes the result file.

So kernels are known to compile, which Triton's interpreter does not tell; that none keeps in memory
what should be in registers; and what a first fit has to compile.
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
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

RESULT = Path(__file__).parent.parent / "benchmarks" / "results" / "gpu_compile.json"
FIRST_FITS = ("HMM(45)", "HDPHMM(45)", "HDPHMM(45) with moves")
"""Fits of the benchmark, of which the result file has the whole."""

_SHARED_BYTES = 232_448  # that a program on such a GPU may have
_MULTIPROCESSORS = 132


class Compiled(NamedTuple):
    """A kernel, compiled for some types of its arguments.

    Attributes
    ----------
    kernel : str
    seconds : float
    registers : int
        Of a thread.
    stack : int
        Bytes of a thread in memory, where it has too few registers.
    shared : int
        Bytes of memory that the threads of a program share.
    """

    kernel: str
    seconds: float
    registers: int
    stack: int
    shared: int


class _Hopper:
    """What Triton asks a GPU for, answered without one."""

    def __init__(self) -> None:
        properties = {"max_shared_mem": _SHARED_BYTES, "multiprocessor_count": _MULTIPROCESSORS}
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: properties,
            load_binary=lambda *arguments: (object(), object(), 0, 0, 1024),
        )

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        return lambda *arguments: None

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)


def pretend() -> None:
    """Have Triton compile for Hopper, and sojourn compute on tensors in memory, in this process."""
    import torch
    from triton.runtime import driver

    from sojourn.backends.cuda import backend

    driver.set_active(_Hopper())
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    backend.find_device = lambda: torch.device("cpu")
    # What no kernel has written is random, or zero: numbers as they might be.
    random = torch.Generator().manual_seed(0)
    for name in ("empty", "empty_like"):
        make = getattr(torch, name)

        def filled(*sizes: Any, make: Any = make, **options: Any) -> Any:
            tensor = make(*sizes, **options)
            if not tensor.dtype.is_floating_point:
                return tensor.zero_()
            return tensor.copy_(torch.rand(tensor.shape, generator=random) + 0.1)

        setattr(torch, name, filled)


def fits() -> dict[str, Callable[[], Any]]:
    """Return fits by name: those of the benchmark, and one for every kind of kernel."""
    import sojourn as sj

    def sentences(n_sequences: int, n_symbols: int, length: int = 22) -> Any:
        rng = np.random.default_rng(0)
        lengths = rng.poisson(length - 1, n_sequences) + 1
        return sj.Sequences(
            rng.integers(n_symbols, size=lengths.sum()).astype(np.int32),
            np.concatenate([[0], np.cumsum(lengths)]),
        )

    def fit(kind: Any, n_states: int, emission: Any, x: Any, **options: Any) -> Any:
        own = {"device": "cuda", "random_state": 0, "moves": None, "n_passes": 2, "batch_size": 20}
        return kind(n_states, emission, **(own | options)).fit(x)

    def words(kind: Any, n_states: int, n_sequences: int = 60, **options: Any) -> Any:
        n_symbols = 50_000 if n_sequences == 20_000 else 40
        emission = sj.Categorical(n_symbols=n_symbols, concentration=0.1)
        return fit(kind, n_states, emission, sentences(n_sequences, n_symbols), **options)

    def used(n_states: int, kind: Any = sj.HMM, **options: Any) -> Any:
        model = words(kind, n_states, **options)
        x = sentences(30, 40)
        return model.score(x), model.predict(x), model.predict_proba(x)

    def numbers(emission: Any) -> Any:
        rng = np.random.default_rng(0)
        whole = isinstance(emission, sj.Poisson | sj.Bernoulli)
        x = [rng.integers(2, size=(9, 3)) if whole else rng.normal(size=(9, 3)) for _ in range(60)]
        return fit(sj.HMM, 8, emission, x)

    large = {"n_sequences": 20_000, "batch_size": 1000}
    return {
        "HMM(45)": lambda: words(sj.HMM, 45, **large),
        "HDPHMM(45)": lambda: words(sj.HDPHMM, 45, **large),
        "HDPHMM(45) with moves": lambda: words(sj.HDPHMM, 45, **large, n_passes=10, moves="auto"),
        "many sequences": lambda: words(sj.HMM, 45, 6000, batch_size=5000),
        "3 states": lambda: used(3),
        "20 states": lambda: used(20, sj.HDPHMM),
        "45 states": lambda: used(45, sj.HDPHMM),
        "100 states": lambda: used(100, sj.HDPHMM),
        "200 states": lambda: used(200),
        "300 states": lambda: used(300),
        "double precision": lambda: used(20, dtype="float64"),
        "states that last": lambda: used(8, duration=sj.NegativeBinomialDuration()),
        "Gaussian": lambda: numbers(sj.Gaussian()),
        "AutoregressiveGaussian": lambda: numbers(sj.AutoregressiveGaussian()),
        "Poisson": lambda: numbers(sj.Poisson()),
        "Bernoulli": lambda: numbers(sj.Bernoulli()),
    }


def compiled(fit: Callable[[], Any]) -> list[Compiled]:
    """Run a fit without its kernels; compile each of them, once for each of its types."""
    from sojourn.kernels.cuda import launch

    found: list[Compiled] = []
    seen = set()

    def compile_it(launch: tuple[Any, ...]) -> None:
        kernel, grid, arguments, options = launch
        before = time.perf_counter()
        made = kernel.run(*arguments, grid=grid, warmup=True, **options)
        seconds = time.perf_counter() - before
        if id(made) not in seen:
            seen.add(id(made))
            made.run  # noqa: B018  loaded: where a program shares too much memory this says so
            usage = _usage(made.asm["cubin"])
            found.append(Compiled(kernel.__name__, round(seconds, 3), *usage, made.metadata.shared))

    with launch.noting(compile_it):
        fit()
    return found


def _usage(code: bytes) -> tuple[int, int]:
    """Return the registers of a thread, and its bytes of memory."""
    import triton

    reader = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        run = subprocess.run(
            [reader, "--dump-resource-usage", file.name],
            stdout=subprocess.PIPE, check=True, text=True,
        )  # fmt: skip
    used = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", run.stdout))
    return int(used["REG"]), max(int(used["STACK"]), int(used["LOCAL"]))


def compile_apart(*names: str) -> dict[str, list[Compiled]]:
    """Compile what fits need in a new process, which finds nothing compiled."""
    with tempfile.TemporaryDirectory() as folder:
        own = os.environ | {"TRITON_CACHE_DIR": folder}
        own.pop("TRITON_INTERPRET", None)
        run = subprocess.run(
            [sys.executable, "-m", "tools.hopper", *names],
            env=own, stdout=subprocess.PIPE, check=True, text=True,
        )  # fmt: skip
    found: dict[str, list[Compiled]] = {name: [] for name in names}
    for line in run.stdout.splitlines():
        name, *one = json.loads(line)
        found[name].append(Compiled(*one))
    return found


def main() -> None:
    """Compile what some fits need, or write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fits", nargs="*")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.write:
        from benchmarks.results import write_result

        rows = {}
        for name in FIRST_FITS:
            found = compile_apart(name)[name]
            whole = round(sum(one.seconds for one in found), 2)
            rows[name] = {"kernels": len(found), "seconds": whole}
            print(name, rows[name], flush=True)
        write_result(RESULT, {"first_fits": rows}, ("torch", "triton"))
        return
    warnings.simplefilter("ignore")
    pretend()
    for name in given.fits:
        for one in compiled(fits()[name]):
            print(json.dumps([name, *one]), flush=True)


if __name__ == "__main__":
    main()
