"""The GPU kernels compile for Hopper, here: Triton's interpreter looks at less than its compiler.

It takes what the compiler refuses, and does not see the assembler that kernels contain.
"""

import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is the extra gpu: make test-gpu")
pytest.importorskip("triton", reason="Triton is the extra gpu: make test-gpu")

from tools.hopper import compile_apart

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton runs on Linux alone")
NEEDED = {
    "3 states": {"warp_chains", "tile_combine", "_viterbi_kernel"},
    "20 states": {"warp_chains", "tile_combine", "_sum_squares_kernel"},
    "45 states": {"warp_chains", "tile_combine", "_sum_pieces_kernel", "_decay_kernel"},
    "many sequences": {"warp_chains", "tile_chains", "tile_combine"},
    "100 states": {"panel_chains", "combine_rows", "sum_pairs", "gather_spans"},
    "200 states": {"panel_chains", "sum_pairs"},
    "300 states": {"shared_chains", "split", "score", "combine"},
    "double precision": {"shared_chains", "_viterbi_kernel"},
    "states that last": {"copy_chains"},
    "Gaussian": {"_squared_rows_kernel", "_quadratic_sums_kernel"},
    "AutoregressiveGaussian": {"_squared_rows_kernel", "_quadratic_sums_kernel"},
    "Poisson": {"_tabled_rows_kernel", "_quadratic_sums_kernel"},
    "Bernoulli": {"_tabled_rows_kernel", "_sum_columns_kernel"},
}
"""Some of the kernels that fits need, which tell that it is they that are compiled."""

IN_MEMORY = {
    "warp_chains": 0,
    "tile_chains": 16,
    "tile_combine": 0,
    "panel_chains": 0,
    "sum_pairs": 0,
}
"""Bytes that a thread may keep in memory, of kernels with matrices in registers, which would wait.

Some versions of the assembler find no room for two addresses."""


@pytest.fixture(scope="module")
def compiled():
    return compile_apart(*NEEDED)


@pytest.mark.parametrize("fit", NEEDED)
def test_all_kernels_of_a_fit_compile(fit, compiled):
    assert {one.kernel for one in compiled[fit]} >= NEEDED[fit]


@pytest.mark.parametrize("fit", NEEDED)
def test_what_should_be_in_registers_is_there(fit, compiled):
    for one in compiled[fit]:
        assert one.stack <= IN_MEMORY.get(one.kernel, 512), one


def test_one_kernel_alone_differs_with_squares_and_without(compiled):
    # Training needs them, and scores do not.  A branch in it took it a fifth more registers.
    names = [one.kernel for one in compiled["45 states"]]
    assert names.count("tile_combine") == 2
    assert {names.count(name) for name in ("warp_chains", "gather_tiles", "_decay_kernel")} == {1}


def test_a_smaller_last_minibatch_needs_no_kernels_of_its_own(compiled):
    names = [one.kernel for one in compiled["many sequences"]]
    assert "_collect_failures_kernel" not in names
    assert {names.count(name) for name in ("_decay_kernel", "_sum_segments_kernel")} == {1}
