"""What must be settled before tests are collected: a GPU or none, and compiled code on disk."""

import functools
import importlib.util
import os
from pathlib import Path

from tools.source import imports_of, module_edges, reachable, read_modules

HAS_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "triton"))


def modules_of_tensors():
    """Paths of the modules that load PyTorch or Triton as soon as they are imported."""
    modules = read_modules()
    needs = {
        name
        for name, module in modules.items()
        for found in imports_of(module.tree)
        if not found.late and found.module.split(".")[0] in ("torch", "triton")
    }
    edges = module_edges(modules, {}, late=False)
    for targets in edges.values():  # a package is loaded before its modules
        targets |= {target.rsplit(".", 1)[0] for target in targets if target.count(".") > 1}
    for name, module in modules.items():
        if name in needs or reachable(name, edges) & needs:
            folder = Path("src", *name.split("."))
            yield str(folder if module.is_package else folder.with_suffix(".py"))


# `make test-gpu` installs what they need.
collect_ignore = [] if HAS_TORCH else [*modules_of_tensors(), "tests/support/quick.py"]

if HAS_TORCH:
    import torch

    if not torch.cuda.is_available():
        # Before Triton is loaded: the kernels then run on the CPU, slowly.
        os.environ.setdefault("TRITON_INTERPRET", "1")


LONG = set((Path(__file__).parent / "tests" / "long.txt").read_text().splitlines())


def pytest_collection_modifyitems(items):
    """Mark the tests that take too long for every day; `tools.long_tests` writes their list."""
    for item in items:
        module = getattr(item, "module", None)
        if module is not None and f"{module.__name__}::{item.name}" in LONG:
            item.add_marker("long")


def save_one_at_a_time(save):
    """Let one process at a time add to numba's files of compiled code.

    Otherwise two that compile the same function for different types could give both the same
    file name, and the one would load what the other compiled.
    """
    import fcntl

    @functools.wraps(save)
    def saved(self, key, data):
        folder = Path(self._cache_path)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return save(self, key, data)

    return saved


if os.environ.get("PYTEST_XDIST_WORKER"):
    from numba.core import caching

    caching.IndexDataCacheFile.save = save_one_at_a_time(caching.IndexDataCacheFile.save)
