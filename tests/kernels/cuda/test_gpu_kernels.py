"""The GPU kernels against the reference; without a GPU through Triton's interpreter."""

import ast
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.kernels import reference
from sojourn.kernels.interface import Potentials

torch = pytest.importorskip("torch", reason="PyTorch is the extra gpu: make test-gpu")
triton = pytest.importorskip("triton", reason="Triton is the extra gpu: make test-gpu")

import triton.language as tl  # noqa: E402

from sojourn.backends.cuda.backend import find_device  # noqa: E402
from sojourn.families import Categorical  # noqa: E402
from sojourn.families.table import DecayedTable, RowSums  # noqa: E402
from sojourn.families.tensors import PieceSums, TensorSymbols, TensorTable  # noqa: E402
from sojourn.inference import COLLAPSED  # noqa: E402
from sojourn.kernels import cuda  # noqa: E402
from sojourn.kernels.arrays import to_device  # noqa: E402
from sojourn.kernels.cuda import tiles, wide  # noqa: E402
from sojourn.kernels.cuda.squares import sum_squares  # noqa: E402
from sojourn.sequences import Sequences  # noqa: E402
from sojourn.transitions import Dirichlet, Rows  # noqa: E402
from tests.support.kernels import assert_signatures_are_those_declared  # noqa: E402

# Triton's interpreter warns of what the GPU does not, and uses NumPy in ways that are going away.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
DEVICE = find_device() if torch.cuda.is_available() or cuda.INTERPRETED else None
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}


def tensor(array):
    return torch.from_numpy(np.ascontiguousarray(array)).to(DEVICE)


def host(value):
    return value.cpu().numpy()


def problem(n_states, lengths, dtype="float32", n_rows=7, seed=0, scaled=True):
    rng = np.random.default_rng(seed)
    potentials = Potentials(
        rng.random(n_states).astype(dtype),
        (rng.random((n_states, n_states)) ** 3 + 0.01).astype(dtype),
        (rng.random((n_rows, n_states)) ** 3 + 0.01).astype(dtype),
        rng.normal(size=n_rows) if scaled else None,
    )
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return potentials, rng.integers(0, n_rows, offsets[-1]).astype(np.int32), offsets


def on_device(potentials):
    return Potentials(*(None if part is None else tensor(part) for part in potentials))


def assert_close(found, exact, tolerance):
    scale = max(1e-6, np.abs(exact).max())
    np.testing.assert_allclose(host(found), exact, rtol=0, atol=tolerance * scale)


SHAPES = [
    (1, [1], "float32"),
    (1, [3, 2], "float32"),
    (3, [1, 1, 1], "float32"),
    (5, [4, 1, 7], "float32"),
    (16, [5], "float32"),
    (17, [2, 9, 3], "float32"),
    (33, [3, 2] + 16 * [1], "float32"),
    (45, [12, 1, 6, 3], "float32"),
    (48, [3, 4], "float32"),
    (49, [3, 1, 4], "float32"),
    (64, [5, 2], "float32"),
    (60, [3, 2] + 8 * [1], "float32"),
    (130, [3, 1, 2], "float32"),
    (200, [1, 4], "float32"),
    (6, [1, 4, 3], "float64"),
    (70, [2, 3], "float64"),
]


@pytest.mark.parametrize("kernel", [cuda, cuda.PaddedKernel(8)], ids=["cuda", "padded"])
def test_all_kernels_have_the_declared_signatures(kernel):
    assert_signatures_are_those_declared(kernel)


def test_every_kernel_waits_for_the_one_before_as_the_first_thing():
    """It may be launched while that one still runs."""
    names = []
    for path in sorted(Path(cuda.__file__).parent.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and "Launched" in map(
                ast.unparse, node.decorator_list
            ):
                names.append(node.name)
                assert ast.unparse(node.body[1]) == "in_turn()", node.name
    assert {"warp_chains", "_sum_pieces_kernel", "_row_potentials_kernel"} <= set(names)


@pytest.mark.parametrize("as_tensors", [False, True])
def test_counts_are_blended_and_masses_summed_as_on_the_host(as_tensors):
    rng = np.random.default_rng(0)
    counts, sums = ((rng.random(19), rng.random((19, 19))) for _ in range(2))
    keep, weight = tensor(np.array([0.7, 12.5])) if as_tensors else (0.7, 12.5)
    # With rates that are tensors counts are replaced where they are.
    expected = reference.blend_counts(counts, sums, 0.7, 12.5)
    own = tuple(part.copy() for part in counts)
    found = cuda.blend_counts(tuple(map(tensor, own)), tuple(map(tensor, sums)), keep, weight)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(host(ours), theirs, rtol=1e-15)
    masses = cuda.state_masses(*map(tensor, counts))
    np.testing.assert_allclose(host(masses), reference.state_masses(*counts), rtol=1e-14)


@pytest.fixture(params=["few", "many"])
def few_or_many(request, monkeypatch):
    """Recursions for few sequences, and those for many whatever their number."""
    if request.param == "many":
        monkeypatch.setattr(cuda.recursions, "TILED", 0)


@pytest.mark.parametrize(("n_states", "lengths", "dtype"), SHAPES)
def test_expectations_are_the_reference_s(n_states, lengths, dtype, few_or_many):
    potentials, index, offsets = problem(n_states, lengths, dtype)
    exact = reference.forward_backward(potentials, index, offsets, squares=True)
    found = cuda.forward_backward(
        on_device(potentials), tensor(index), tensor(offsets), squares=True
    )
    # log Z is a sum of logarithms of either sign, and may be near zero.
    np.testing.assert_allclose(host(found[0]), exact[0], rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(found[1:4], exact[1:4], strict=True):
        assert_close(ours, theirs, TOLERANCE[dtype])
    # log(1 − q) magnifies rounding where q is near one; of a single state it is nothing else.
    if n_states > 1:
        for ours, theirs in zip(found.squares, exact.squares, strict=True):
            assert_close(ours, theirs, 100 * TOLERANCE[dtype])
    log_z = cuda.log_normalizers(on_device(potentials), tensor(index), tensor(offsets))
    np.testing.assert_allclose(host(log_z), exact[0], rtol=1e-5, atol=1e-5)


TILINGS = [
    wide.Tiling(1, 32, 32, "vector", 4, 1),
    wide.Tiling(16, 32, 32, "tf32x3", 4, 2),
    wide.Tiling(64, 64, 32, "tf32x3", 4, 3),
    wide.Tiling(16, 16, 32, "tf32", 4, 1),
]


@pytest.mark.parametrize("how", TILINGS, ids=lambda how: f"{how.product}-{how.block}-{how.tile}")
@pytest.mark.parametrize("n_states", [3, 70, 130])
def test_however_the_states_are_shared_out_expectations_are_the_reference_s(
    how, n_states, monkeypatch
):
    """Also of one sequence more than a block has, and of what is affine, missing or short."""
    lengths = [2, 1, 4] + [1] * (14 if how.block == 16 else 0)
    potentials, index, offsets = problem(n_states, lengths)
    index[1] = len(potentials.emissions)
    with_ones = potentials._replace(
        emissions=np.vstack([potentials.emissions, np.ones((1, n_states), np.float32)]),
        log_scale=np.append(potentials.log_scale, 0.0),
    )
    exact = reference.forward_backward(with_ones, index, offsets, squares=True)
    gain = np.linspace(0.5, 2.0, n_states).astype(np.float32)
    shift = np.full(n_states, 0.001, np.float32)
    table = cuda.AffineTable(
        *(tensor(part) for part in ((potentials.emissions - shift) / gain, gain, shift)),
        tensor((1.0 - shift) / gain),
    )
    monkeypatch.setattr(cuda.recursions, "is_narrow", lambda n_states, dtype: False)
    monkeypatch.setattr(wide, "tiling", lambda *shape, exact: how)
    moved = on_device(potentials)._replace(emissions=table)
    found = cuda.forward_backward(moved, tensor(index), tensor(offsets), squares=True)
    tolerance = 2e-3 if how.product == "tf32" else 2e-5
    np.testing.assert_allclose(host(found[0]), exact[0], rtol=tolerance, atol=tolerance)
    for ours, theirs in zip(found[1:4], exact[1:4], strict=True):
        assert_close(ours, theirs, tolerance)
    for ours, theirs in zip(found.squares, exact.squares, strict=True):
        assert_close(ours, theirs, 100 * tolerance)
    log_z = cuda.log_normalizers(moved, tensor(index), tensor(offsets))
    assert torch.equal(log_z, found[0])


@pytest.mark.parametrize(
    ("n_states", "n_sequences", "dtype", "exact", "product"),
    [
        (512, 4, torch.float32, True, "vector"),
        (512, 100, torch.float32, True, "tf32x3"),
        (512, 100, torch.float32, False, "tf32"),
        (3000, 1, torch.float32, True, "tf32x3"),
        (6, 1, torch.float64, False, "ieee"),
    ],
)
def test_the_way_is_chosen_by_shape_and_precision(n_states, n_sequences, dtype, exact, product):
    assert wide.tiling(n_states, n_sequences, dtype, exact=exact).product == product


@pytest.mark.parametrize(("n_states", "n_sequences"), [(50, 9), (130, 1), (260, 1), (260, 40)])
def test_an_impossible_sequence_adds_nothing_with_many_states_either(n_states, n_sequences):
    potentials, index, offsets = problem(n_states, [3] + [2] * n_sequences, scaled=False)
    potentials.emissions[6] = 0.0
    index[:] = 1
    index[:2] = 0, 6
    found = cuda.forward_backward(on_device(potentials), tensor(index), tensor(offsets))
    alone = reference.forward_backward(potentials, index[3:], offsets[1:] - 3)
    assert_close(found.transitions, alone.transitions, 2e-5)
    assert_close(found.start, alone.start, 2e-5)
    assert not np.isfinite(host(found.log_normalizers)[0])
    np.testing.assert_allclose(host(found.log_normalizers)[1:], alone.log_normalizers, rtol=1e-5)


@pytest.mark.parametrize("n_states", [50, 130])
def test_products_in_tf32_are_less_exact_and_close(n_states):
    potentials, index, offsets = problem(n_states, [4, 2, 3])
    exact = reference.forward_backward(potentials, index, offsets)
    torch.set_float32_matmul_precision("high")
    try:
        found = cuda.forward_backward(on_device(potentials), tensor(index), tensor(offsets))
    finally:
        torch.set_float32_matmul_precision("highest")
    np.testing.assert_allclose(host(found[0]), exact[0], rtol=2e-3, atol=2e-3)
    for ours, theirs in zip(found[1:4], exact[1:4], strict=True):
        assert_close(ours, theirs, 2e-3)


@pytest.mark.parametrize("n_rows", [0, 1, 8, 21])
def test_pairs_are_summed_over_all_steps(n_rows, monkeypatch):
    monkeypatch.setattr(wide, "SPAN", 8)
    before, behind = np.random.default_rng(0).random((2, n_rows, 5)).astype(np.float32)
    found = wide.sum_pairs(tensor(before), tensor(behind))
    assert_close(found, before.T.astype(float) @ behind, 1e-6)


@pytest.mark.parametrize("n_states", [3, 45, 50, 130])
def test_room_to_spare_and_missing_observations_change_nothing(n_states, few_or_many):
    """A step beyond the table says nothing; steps beyond the last sequence are not there."""
    potentials, index, offsets = problem(n_states, [4, 1, 6], scaled=False)
    index[[0, 7]] = len(potentials.emissions)
    with_ones = potentials._replace(
        emissions=np.vstack([potentials.emissions, np.ones((1, n_states), np.float32)])
    )
    exact = reference.forward_backward(with_ones, index, offsets)
    gain = np.linspace(0.5, 2.0, n_states).astype(np.float32)
    shift, one = 0.001 * gain, (1.0 / gain - 0.001).astype(np.float32)
    rows = (potentials.emissions / gain - 0.001).astype(np.float32)
    table = cuda.AffineTable(
        tensor(rows), tensor(gain), tensor(shift), tensor(np.pad(one, (0, 256 - n_states)))
    )
    factors = on_device(potentials)._replace(emissions=table)
    longer = np.concatenate([index, np.full(9, 2, np.int32)])
    found = cuda.forward_backward(factors, tensor(index), tensor(offsets))
    roomy = cuda.forward_backward(factors, tensor(longer), tensor(offsets))
    for ours, other, theirs in zip(found[:3], roomy[:3], exact[:3], strict=True):
        assert_close(ours, theirs, 2e-5)
        assert torch.equal(ours, other)
    used = roomy.responsibilities[: len(index)]
    assert torch.equal(used, found.responsibilities)


@pytest.mark.parametrize(("n_states", "lengths", "dtype"), SHAPES[::3])
def test_best_paths_are_the_reference_s(n_states, lengths, dtype):
    potentials, index, offsets = problem(n_states, lengths, dtype)
    scores, path = cuda.viterbi(on_device(potentials), tensor(index), tensor(offsets))
    exact_scores, exact_path = reference.viterbi(potentials, index, offsets)
    assert_close(scores, exact_scores, 1e-12)
    np.testing.assert_array_equal(host(path), exact_path)
    ends = cuda.last_scores(on_device(potentials), tensor(index), tensor(offsets))
    exact_ends = reference.last_scores(potentials, index, offsets)
    for own, exact in zip(host(ends), exact_ends, strict=True):  # up to a number of each sequence
        np.testing.assert_allclose(own - own.max(), exact - exact.max(), rtol=1e-12, atol=1e-11)


def test_an_impossible_sequence_adds_nothing_and_is_counted(few_or_many):
    potentials, index, offsets = problem(4, [3, 2], scaled=False)
    potentials.emissions[6] = 0.0
    index[:] = [0, 6, 1, 2, 3]
    found = cuda.forward_backward(on_device(potentials), tensor(index), tensor(offsets))
    alone = reference.forward_backward(potentials, index[3:], np.array([0, 2]))
    assert_close(found.transitions, alone.transitions, 1e-5)
    assert_close(found.start, alone.start, 1e-5)
    failures = torch.zeros((), dtype=torch.int64, device=DEVICE)
    logs = cuda.LogNormalizers(found.log_normalizers, failures, failures.double())
    cuda.collect_failures(logs)
    assert int(failures) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("n_steps", "n_states", "by_row"),
    [
        *((n_steps, n_states, False) for n_steps in (1, 3, 70, 400) for n_states in (1, 5, 20, 50)),
        *((5, 100, by_row) for by_row in (False, True)),
        *((5, n_states, True) for n_states in (1, 5, 20, 50)),
    ],
)
def test_squares_are_those_of_products_in_double_precision(
    n_steps, n_states, by_row, dtype, monkeypatch
):
    """Also where the square of one factor alone is beyond single precision, and as a GPU does."""
    if by_row:
        monkeypatch.setattr(cuda.settings, "BY_ROW", True)
    rng = np.random.default_rng(n_steps + n_states)
    width, n_room = n_states + 3, n_steps + 20
    size = 10.0 ** rng.integers(-28, 28, (n_room, 1))
    before = (rng.random((n_room, width)) * size).astype(dtype)
    behind = (rng.random((n_room, width)) / size).astype(dtype)
    theta, gain = rng.random((n_states, n_states)).astype(dtype), rng.random(n_states).astype(dtype)
    r = rng.random((n_room, n_states)).astype(dtype)
    first = np.arange(n_room) % 7 == 0
    offsets = np.append(np.flatnonzero(first[: n_steps + 1]), n_steps + 1)
    found = sum_squares(
        *(
            tensor(part)
            for part in (before, behind, theta, gain, r, first.astype(np.int8), offsets)
        ),
        1,
    )
    left, right = (part[:n_steps, :n_states].astype(float) for part in (before, behind))
    matrix = theta.astype(float) * gain
    exact = sum((np.outer(a, b) * matrix) ** 2 for a, b in zip(left, right, strict=True))
    np.testing.assert_allclose(host(found.pairs), exact, rtol=1e-12)
    rows = r[: n_steps + 1].astype(float) ** 2
    is_first, is_last = first[: n_steps + 1], np.append(first[1 : n_steps + 1], True)
    np.testing.assert_allclose(host(found.start), rows[is_first].sum(0), rtol=1e-12)
    np.testing.assert_allclose(host(found.rows), rows[~is_last].sum(0), rtol=1e-12, atol=1e-300)


@settings(max_examples=8, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=3),
    n_symbols=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_sums_by_symbol_are_those_of_a_loop(sizes, n_symbols, seed):
    rng = np.random.default_rng(seed)
    edges = np.concatenate([[0], np.cumsum(sizes)])
    symbols = rng.integers(0, n_symbols + 1, edges[-1])  # the last stands for a missing one
    rows = rng.random((edges[-1], 3)).astype(np.float32)
    found = cuda.find_segments(tensor(symbols), tensor(edges), n_symbols)
    for b, (begin, end) in enumerate(itertools.pairwise(edges)):
        segments = found.batch(b)
        own = symbols[begin:end]
        np.testing.assert_array_equal(host(segments.symbols), np.unique(own))
        there = TensorSymbols(tensor(own.astype(np.int32)), segments).places()
        np.testing.assert_array_equal(host(segments.symbols)[host(there)], own)
        sums = cuda.sum_by_symbol(segments, tensor(rows[begin:end]), n_symbols)
        exact = np.array(
            [rows[begin:end][own == w].sum(axis=0) * (w < n_symbols) for w in np.unique(own)]
        )
        np.testing.assert_allclose(host(sums), exact, rtol=1e-5, atol=1e-6)
        totals = cuda.sum_columns(sums, segments.symbols, n_symbols)
        np.testing.assert_allclose(host(totals), exact.sum(axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n_states", [1, 20, 45, 100])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("by_row", [False, True])
def test_sums_by_symbol_go_over_several_spans(n_states, dtype, by_row, monkeypatch):
    """Also as a GPU sums them, where the interpreter does."""
    if by_row:
        monkeypatch.setattr(cuda.settings, "BY_ROW", True)
    rng, n_steps = np.random.default_rng(n_states), 200 if by_row else 700
    x = np.minimum(rng.zipf(1.3, n_steps), 50) - 1
    rows = rng.random((n_steps, n_states)).astype(dtype)
    segments = cuda.find_segments(tensor(x), tensor(np.array([0, n_steps])), 50).batch(0)
    exact = np.stack([rows[x == w].sum(axis=0, dtype=float) for w in np.unique(x)])
    sums = cuda.sum_by_symbol(segments, tensor(rows), 50)
    np.testing.assert_allclose(host(sums), exact, rtol=1e-6 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("keep", [0.75, 0.0, 1e-16])
@pytest.mark.parametrize("way", ["sorted", "atomic"])
def test_a_table_on_the_device_is_blended_as_on_the_host(keep, way, monkeypatch):
    """Also where nothing is kept, and where the scale becomes too small."""
    monkeypatch.setattr(cuda.settings, "SUMS", way)
    rng = np.random.default_rng(0)
    table = DecayedTable(rng.random((5, 9)), "float64")
    moved = TensorTable.of(table, DEVICE)
    for rows in ([1, 7, 3], [0, 1]):
        values = rng.random((len(rows), 5))
        table.blend(RowSums(np.array(rows), values, 9), keep=keep, weight=2.5)
        numbers = tensor(np.array([*rows, 9], np.int32))  # 9 is no row
        padded = tensor(np.vstack([values, np.ones(5)]))
        moved.blend(RowSums(numbers, padded, 9), keep=keep, weight=2.5)
    back = moved.to_host()
    np.testing.assert_allclose(back.dense(), table.dense(), rtol=1e-12)
    np.testing.assert_allclose(back.totals, table.totals, rtol=1e-12)


@pytest.mark.parametrize("is_complete", [False, True])
@pytest.mark.parametrize("is_recorded", [False, True])
def test_counts_and_pieces_are_blended_together_as_apart(is_recorded, is_complete):
    rng, n_symbols = np.random.default_rng(0), 9
    table = TensorTable.of(DecayedTable(rng.random((5, n_symbols)), "float32"), DEVICE)
    apart = TensorTable.of(table.to_host(), DEVICE)
    x = rng.integers(n_symbols + (not is_complete), size=300)
    responsibilities = tensor(rng.dirichlet(np.ones(5), len(x)).astype(np.float32))
    segments = cuda.find_segments(tensor(x), tensor(np.array([0, len(x)])), n_symbols).batch(0)
    counts, own = (
        tuple(tensor(part) for part in (rng.random(5), rng.random((5, 5)))) for _ in range(2)
    )
    rates = tensor(np.array([0.7, 12.5]))
    keep, weight = rates if is_recorded else (0.7, 12.5)
    expected = cuda.blend_counts(tuple(part.clone() for part in counts), own, keep, weight)
    sums = cuda.sum_by_symbol(segments, responsibilities, n_symbols)
    masses = cuda.state_masses(*own)
    totals = masses if is_complete else None
    apart.blend(RowSums(segments.symbols, sums, n_symbols, totals), keep=keep, weight=weight)

    pieces = PieceSums(
        cuda.sum_pieces(segments, responsibilities, n_symbols),
        (lambda: masses) if is_complete else None,
    )
    found = table.blend_with(counts, own, pieces, keep=keep, weight=weight)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(host(one), host(other))
    assert (found[1] is counts[1]) == is_recorded
    for name in ("rows", "scale"):
        np.testing.assert_array_equal(host(getattr(table, name)), host(getattr(apart, name)))
    # A product and a sum may be one operation on a GPU, and are two of PyTorch's.
    np.testing.assert_allclose(host(table.totals), host(apart.totals), rtol=1e-15)
    # What is asked for is made anew, unless other sums have been added.
    np.testing.assert_array_equal(host(pieces.values), host(sums))
    pieces += RowSums(segments.symbols, sums, n_symbols)
    np.testing.assert_allclose(
        host(pieces.dense()), 2.0 * host(RowSums(segments.symbols, sums, n_symbols).dense())
    )


@pytest.mark.parametrize("n_steps", [1, 31, 32, 33, 2000, 32 * 2048, 32 * 2048 + 1, 2**17])
def test_sorted_steps_are_cut_into_spans_and_pieces(n_steps):
    x = np.minimum(np.random.default_rng(n_steps).zipf(1.3, n_steps), 400) - 1
    found = cuda.find_segments(tensor(x), tensor(np.array([0, n_steps])), 400).batch(0)
    steps, bounds = host(found.steps), host(found.bounds)
    is_last = steps < 0
    order = np.where(is_last, ~steps, steps)
    np.testing.assert_array_equal(order, np.argsort(x, kind="stable"))
    span = next(s for s in range(32, 257, 32) if s == 256 or -(-n_steps // 32) <= 2048 * s // 32)
    begins = np.flatnonzero(np.append(True, is_last[:-1]))
    wanted = np.union1d(
        np.arange(0, n_steps, span), np.flatnonzero(np.append(True, np.diff(x[order]) != 0))
    )
    np.testing.assert_array_equal(begins, wanted)
    n_spans = -(-n_steps // span)
    assert n_spans <= cuda.most_spans(n_steps)
    np.testing.assert_array_equal(
        host(found.spans)[:n_spans], np.searchsorted(begins, span * np.arange(n_spans))
    )
    np.testing.assert_array_equal(x[order][begins[bounds[:-1]]], np.unique(x))
    assert bounds[-1] == len(begins)


@pytest.mark.parametrize("n_steps", [1, 31, 33, 1000, 32 * 1584, 32 * 1584 + 1, 10**6, 10**7])
def test_spans_cover_all_steps_and_are_no_more_than_there_is_room_for(n_steps):
    out = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    _span[(1,)](out, n_steps, tiles.SPANS)
    (span,) = out.tolist()
    assert span % 8 == 0
    assert 32 <= span <= 192
    for room in (n_steps, n_steps + 1, 2 * n_steps):
        assert -(-n_steps // span) <= tiles.most_spans(room)


@triton.jit
def _span(out, n_steps, n_spans):
    tl.store(out, tiles.span_of(n_steps, n_spans))


@pytest.mark.parametrize("sums", ["sorted", "atomic"])
@pytest.mark.parametrize("is_complete", [False, True])
def test_the_state_masses_are_the_totals_of_symbols_of_which_none_is_missing(
    sums, is_complete, monkeypatch
):
    monkeypatch.setattr(cuda.settings, "SUMS", sums)
    family, rng = Categorical(5, 0.1), np.random.default_rng(0)
    x = rng.integers(5, size=40).astype(np.int32)
    responsibilities = rng.dirichlet(np.ones(3), len(x)).astype(np.float32)
    encoded = family.encode(Sequences(x, [0, len(x)]))
    here = family.sum_statistics(encoded, responsibilities, n_threads=1, masses=pytest.fail)
    assert here.totals is None
    symbols = TensorSymbols.of(to_device(encoded, DEVICE), 5)._replace(is_complete=is_complete)
    masses = tensor(responsibilities.sum(axis=0, dtype=np.float64))
    there = family.sum_statistics(
        symbols, tensor(responsibilities), n_threads=1, masses=lambda: masses
    )
    assert there.totals is None or there.totals() is masses
    assert (there.totals is not None) == is_complete
    np.testing.assert_allclose(host(there.dense()), here.dense(), rtol=1e-5)
    np.testing.assert_allclose(host(masses), here.dense().sum(axis=0), rtol=1e-5)


@pytest.mark.parametrize("total", [None, 3.0])
def test_rows_are_normalised_as_on_the_host(total):
    rng = np.random.default_rng(1)
    prior = Dirichlet.make(5, start=1.0, transitions=rng.random((5, 5)) + 0.1)
    counts = Rows(rng.random(5), rng.random((5, 5)))
    exact = COLLAPSED.transition_potentials(prior.prior_counts()._replace(total=total).plus(counts))
    arguments = (
        None if total is None else torch.tensor(total, dtype=torch.float64, device=DEVICE),
        tuple(tensor(part) for part in counts),
        "float64",
    )
    there = tuple(tensor(part) for part in prior.prior)
    start, matrices = cuda.row_potentials(*there, *arguments)
    np.testing.assert_allclose(host(start), exact.start, rtol=1e-12)
    np.testing.assert_allclose(host(matrices[0]), exact.transitions, rtol=1e-12)
    np.testing.assert_allclose(host(matrices[1]), exact.transitions.T, rtol=1e-12)
    for one, other in zip(
        cuda.transition_potentials(there, *arguments), (start, matrices[0]), strict=True
    ):
        assert torch.equal(one, other)


def test_minibatches_are_taken_out_of_a_window_one_by_one():
    symbols, edges = np.array([2, 0, 2, 1, 1, 3, 0]), np.array([0, 4, 7])
    found = cuda.find_segments(tensor(symbols), tensor(edges), 3, max(np.diff(edges)))
    offsets, order = tensor(np.array([0, 3, 4, 0, 1, 3])), tensor(np.array([0, 1, 1, 0]))
    rates = torch.arange(4, dtype=torch.float64, device=DEVICE)
    index = tensor(symbols.astype(np.int32))
    window = cuda.Minibatch(index, found.segments, offsets, order, rates)
    sizes = [5, 5, 1, 4, 5, 2, 3, 2, 2]
    target = cuda.Minibatch.of(
        torch.zeros(size, dtype=part.dtype, device=DEVICE)
        for size, part in zip(sizes, window.tensors(), strict=True)
    )
    number = torch.tensor([0, 0], dtype=torch.int32, device=DEVICE)
    source = tensor(cuda.addresses([*window.tensors(), found.begins]))
    for _ in range(2):  # the second
        cuda.load_minibatch(target, source, number, 3)
    own = found.batch(1)
    np.testing.assert_array_equal(host(target.index), [1, 3, 0, 3, 3])
    np.testing.assert_array_equal(host(target.segments.symbols), [0, 1, 3, 3])
    np.testing.assert_array_equal(host(target.segments.steps)[:3], host(own.steps))
    np.testing.assert_array_equal(host(target.segments.spans), host(own.spans))
    np.testing.assert_array_equal(host(target.segments.sizes), [3, 3])
    np.testing.assert_array_equal(host(target.segments.bounds)[:4], host(own.bounds))
    np.testing.assert_array_equal(host(target.offsets), [0, 1, 3])
    np.testing.assert_array_equal(host(target.order), [1, 0])
    np.testing.assert_array_equal(host(target.rates), [2.0, 3.0])
