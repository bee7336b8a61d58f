"""The compiler of kernels: which versions of numba it is for, and that others do as well."""

import json
import os
import subprocess
import sys

import numba
import pytest

from sojourn.kernels.cpu import inner
from tools.source import ROOT

# The bits of two fits of symbols, and which modules were imported that build on what is private to
# numba.  Other processes would ask numba for its real version.
FITS = """
import json, sys
import numba
numba.__version__ = sys.argv[1]
import numpy as np
import sojourn as sj
from sojourn.kernels.cpu import aside
aside._MOST_PROCESSES = 0
rng = np.random.default_rng(3)
x = rng.integers(0, 9, size=600)
found = [sj.HMM(k, sj.Categorical(), random_state=k).fit(x).score(x) for k in (2, 3)]
private = [name for name in sys.modules if name.endswith(("cpu.passes", "cpu.compilers"))]
print(json.dumps([[one.hex() for one in found], private]))
"""


def fits(version, **environment):
    """Return what fits give if numba says it has this version."""
    run = subprocess.run(
        [sys.executable, "-c", FITS, version],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.slow  # numba compiles everything
def test_with_an_unknown_version_of_numba_nothing_private_is_used_and_bits_are_the_same(tmp_path):
    bits, private = fits("0.99.0", NUMBA_CACHE_DIR=str(tmp_path))
    assert private == []
    expected, private = fits(numba.__version__)
    assert bool(private) == numba.__version__.startswith(inner.TESTED)
    assert bits == expected


def test_the_version_that_tests_run_with_is_one_of_those_tested():
    # If not: all tests have to pass before it is added to `TESTED`.
    lines = (ROOT / "requirements-dev.lock").read_text().splitlines()
    (version,) = (line.removeprefix("numba==") for line in lines if line.startswith("numba=="))
    assert version.startswith(inner.TESTED)
