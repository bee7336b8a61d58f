import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numba import njit
from scipy.special import digamma, xlogy

from sojourn.kernels import Potentials, cpu, reference
from sojourn.kernels.cpu import decoding, narrow, recursions, symbols
from sojourn.kernels.cpu.gemm import gemm
from sojourn.kernels.interface import SQUARE_EVERY, aligned, padded_states
from sojourn.transitions.base import PriorCounts, Rows
from tests.support import enumeration
from tests.support.kernels import assert_signatures_are_those_declared
from tests.support.potentials import random_batch

KERNELS = {
    "reference": (reference, np.float64, 1e-10),
    "reference32": (reference, np.float32, 2e-5),
    "cpu64": (cpu, np.float64, 1e-10),
    "cpu32": (cpu, np.float32, 2e-5),
}


@pytest.mark.parametrize("kernel", [reference, cpu], ids=["reference", "cpu"])
def test_all_kernels_have_the_declared_signatures(kernel):
    assert_signatures_are_those_declared(kernel)


def true_rows(potentials, index):
    rows = potentials.emissions[index].astype(np.float64)
    if potentials.log_scale is not None:
        rows *= np.exp(potentials.log_scale[index])[:, None]
    return rows


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(
    ("n_states", "lengths"),
    [
        (1, [1]),
        (1, [5, 1, 3]),
        (2, [1, 1, 1]),
        (2, [7, 1, 4, 6]),
        (3, [6, 6, 2, 1, 5]),
        (4, [5, 1, 6, 3]),
        (4, [2] * 20 + [1]),
    ],
)
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_agree_with_the_sum_over_all_paths(name, n_states, lengths, scaled):
    kernel, dtype, tolerance = KERNELS[name]
    batch = random_batch(1, n_states, lengths, scaled=scaled, dtype=dtype)
    potentials, index, offsets = batch
    start, transitions = (np.asarray(part, np.float64) for part in potentials[:2])
    smoothed = kernel.forward_backward(*batch, squares=True)
    best, path = kernel.viterbi(*batch)
    ends = kernel.last_scores(*batch)
    expected = dict.fromkeys(("start", "pairs"), 0.0)
    squares = dict.fromkeys(("start", "pairs", "rows"), 0.0)
    close = partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance)

    for n, (begin, end) in enumerate(itertools.pairwise(offsets)):
        rows = true_rows(potentials, index[begin:end])
        log_z, marginals, pairs, best_path, log_best = enumeration.smooth(start, transitions, rows)
        close(smoothed.log_normalizers[n], log_z)
        close(smoothed.responsibilities[begin:end], marginals)
        close(best[n], log_best)
        assert tuple(path[begin:end]) == best_path
        to_each = [
            max(weight for own, weight in paths if own[-1] == k)
            for paths in [list(enumeration.enumerate_paths(start, transitions, rows))]
            for k in range(n_states)
        ]
        close(ends[n], np.log(to_each))
        expected["start"] += marginals[0]
        expected["pairs"] += pairs.sum(axis=0)
        squares["start"] += marginals[0] ** 2
        squares["pairs"] += (pairs**2).sum(axis=0)
        squares["rows"] += (marginals[:-1] ** 2).sum(axis=0)
    close(smoothed.start, expected["start"], atol=tolerance * len(lengths))
    close(smoothed.transitions, expected["pairs"], atol=tolerance * len(lengths))
    close(kernel.log_normalizers(*batch), smoothed.log_normalizers)
    for name, value in squares.items():
        close(getattr(smoothed.squares, name), value, atol=tolerance * len(lengths))


@pytest.mark.parametrize("name", KERNELS)
def test_transitions_that_never_happen_are_never_counted(name):
    """A left-right chain: the sum over all paths, with zeros that stay 0.0 and no path through."""
    kernel, dtype, tolerance = KERNELS[name]
    potentials, index, offsets = random_batch(3, 3, [6, 1, 5, 2], scaled=True, dtype=dtype)
    theta = potentials.transitions * np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]], dtype)
    start = potentials.start * np.array([1, 0, 0], dtype)
    potentials = potentials._replace(start=start, transitions=theta)
    smoothed = kernel.forward_backward(potentials, index, offsets, squares=True)
    _, path = kernel.viterbi(potentials, index, offsets)
    pairs = np.zeros((3, 3))
    for begin, end in itertools.pairwise(offsets):
        rows = true_rows(potentials, index[begin:end])
        wide = (np.asarray(part, np.float64) for part in (start, theta))
        _, marginals, own, best_path, _ = enumeration.smooth(*wide, rows)
        pairs += own.sum(axis=0)
        np.testing.assert_allclose(
            smoothed.responsibilities[begin:end], marginals, rtol=tolerance, atol=tolerance
        )
        assert tuple(path[begin:end]) == best_path
    np.testing.assert_allclose(smoothed.transitions, pairs, rtol=tolerance, atol=4 * tolerance)
    assert (smoothed.transitions[theta == 0.0] == 0.0).all()
    assert (smoothed.squares.pairs[theta == 0.0] == 0.0).all()
    assert smoothed.start[1:].tolist() == [0.0, 0.0]


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**20),
    n_states=st.sampled_from([1, 2, 5, 8, 9, 17, 45, 67]),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=40),
    block_rows=st.sampled_from([None, 1, 2, 7, 32]),
    chunk_elements=st.sampled_from([1, 500, 2**22]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_compiled_kernel_agrees_with_reference_at_any_shape(
    seed, n_states, lengths, block_rows, chunk_elements, dtype
):
    batch = random_batch(seed, n_states, lengths, scaled=seed % 2 == 0, dtype=dtype)
    tolerance = 5e-5 if dtype is np.float32 else 1e-9
    expected = reference.forward_backward(*batch, squares=True)
    shape = {"block_rows": block_rows, "chunk_elements": chunk_elements}
    got = recursions.smooth(*batch, squares=1, n_threads=2, **shape)
    for ours, theirs in zip(got.squares, expected.squares, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=10 * tolerance)
    for name in ("log_normalizers", "start", "transitions", "responsibilities"):
        np.testing.assert_allclose(
            getattr(got, name), getattr(expected, name), rtol=tolerance, atol=10 * tolerance
        )


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**20),
    n_states=st.sampled_from([1, 2, 5, 15, 16, 17, 45]),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=10),
    chunk_elements=st.sampled_from([1, 100, 600, 2**22]),
    n_kinds=st.sampled_from([1, 2, 11]),
    n_threads=st.sampled_from([1, 2]),
)
def test_best_paths_are_those_of_the_reference_to_the_bit(
    seed, n_states, lengths, chunk_elements, n_kinds, n_threads
):
    potentials, index, offsets = random_batch(seed, n_states, lengths, scaled=seed % 2 == 0)
    # With few different numbers paths are equally good; the lower state is taken.
    kinds = np.array([0.0, 1.0]) if n_kinds == 2 else np.linspace(0.1, 1.0, n_kinds)
    rng = np.random.default_rng(seed)
    parts = (kinds[rng.integers(n_kinds, size=part.shape)] for part in potentials[:3])
    potentials = Potentials(*parts, potentials.log_scale)
    batch = potentials, index, offsets
    got = decoding.best_paths(*batch, n_threads=n_threads, chunk_elements=chunk_elements)
    for ours, theirs in zip(got, reference.viterbi(*batch), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(cpu.last_scores(*batch), reference.last_scores(*batch))


def left_right(n_states, n_sequences, excursion, dtype, *, costs=20.0):
    """Draw sequences that go from state to state for good, but for some steps seem to be ahead.

    A symbol costs other states than its own so many nats.
    """
    rng = np.random.default_rng(n_states)
    symbols, length = [], 60
    for n in range(n_sequences):
        states = np.sort(rng.integers(0, n_states, length))
        begin = rng.integers(0, length - excursion)
        if n % 3 == 0:
            states[begin : begin + excursion] += 1
        symbols.append(np.minimum(states, n_states - 1))
    theta = 0.95 * np.eye(n_states) + 0.05 * np.eye(n_states, k=1)
    theta[-1, -1] = 1.0
    table = np.exp(-costs * (1.0 - np.eye(n_states)))
    parts = np.eye(n_states)[0], theta, table
    offsets = np.arange(0, length * n_sequences + 1, length)
    potentials = Potentials(*(part.astype(dtype) for part in parts))
    return potentials, np.concatenate(symbols).astype(np.int32), offsets


@pytest.mark.parametrize("name", ["cpu32", "cpu64"])
@pytest.mark.parametrize(
    ("n_states", "n_sequences", "excursion", "costs"),
    [
        (2, 5, 12, 20.0),
        (3, 300, 9, 20.0),  # strips would be taken
        (20, 6, 12, 20.0),
        (40, 70, 12, 20.0),  # blocks are full
        (3, 9, 20, 60.0),  # more than double precision has
    ],
)
def test_states_that_vanish_for_a_while_are_not_lost(name, n_states, n_sequences, excursion, costs):
    kernel, dtype, tolerance = KERNELS[name]
    batch = left_right(n_states, n_sequences, excursion, dtype, costs=costs)
    expected = reference.forward_backward(*batch, squares=True)
    got = kernel.forward_backward(*batch, squares=True)
    close = partial(np.testing.assert_allclose, rtol=tolerance, atol=20 * tolerance)
    close(got.responsibilities, expected.responsibilities)
    for name in ("log_normalizers", "start"):
        close(getattr(got, name), getattr(expected, name))
    close(got.transitions, expected.transitions, atol=tolerance * batch[2][-1])
    if dtype is np.float64 and n_states <= 32:  # of others they are estimates
        close(got.squares.pairs, expected.squares.pairs, atol=tolerance * batch[2][-1])
    assert (got.squares.pairs <= got.transitions * (1.0 + tolerance)).all()
    close(kernel.log_normalizers(*batch), expected.log_normalizers)
    # Nothing can be likelier than the best path alone.
    assert (kernel.log_normalizers(*batch) >= kernel.viterbi(*batch)[0] - 1e-3).all()


def test_sums_by_row_of_states_that_vanish_for_a_while_are_left_to_responsibilities():
    batch = left_right(40, 70, 12, np.float32)
    got = cpu.forward_backward(*batch, summed=True)
    assert got.row_sums is None
    assert np.isfinite(got.responsibilities).all()


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 2**20),
    n_states=st.sampled_from([2, 9, 70, 130]),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=40),
    chunk_elements=st.sampled_from([1, 500, 2**22]),
)
def test_squares_of_probable_pairs_are_exact_where_others_are_sampled(
    seed, n_states, lengths, chunk_elements
):
    # Emissions that leave hardly a doubt: all that counts is probable.
    potentials, index, offsets = random_batch(seed, n_states, lengths)
    rows = np.full((11, n_states), 1e-30)
    rows[np.arange(11), np.arange(11) * 13 % n_states] = 1.0
    batch = potentials._replace(emissions=rows), index, offsets
    expected = reference.forward_backward(*batch, squares=True).squares
    in_blocks = recursions.smooth(*batch, squares=8, chunk_elements=chunk_elements)
    in_strips = narrow.smooth(*batch, squares=8, tile=16 if chunk_elements == 1 else None)
    for got in (in_blocks, in_strips):
        for ours, theirs in zip(got.squares, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("smooth", "n_states"),
    [
        (recursions.smooth, 40),
        (recursions.smooth, 70),
        (narrow.smooth, 28),
        (partial(narrow.smooth, tile=16), 28),
    ],
)
def test_sampled_squares_are_close_to_all_of_them(smooth, n_states):
    rng = np.random.default_rng(0)
    batch = random_batch(3, n_states, rng.integers(1, 40, 600), dtype=np.float32)
    every, sampled = (smooth(*batch, squares=n) for n in (1, SQUARE_EVERY))
    for a, b in zip(every.squares, sampled.squares, strict=True):
        # Four standard errors: 1,500 sampled steps whose Σ q² differ by half of their mean.
        assert b.sum() == pytest.approx(a.sum(), rel=0.05)
    for name in ("start", "rows"):  # only pairs are sampled
        np.testing.assert_allclose(*(getattr(x.squares, name) for x in (sampled, every)), rtol=1e-5)
    # A sampled square is at most 1/4 and stands for eight; most are far smaller.
    error = np.abs(sampled.squares.pairs - every.squares.pairs)
    assert (error <= 0.1 + 0.5 * np.sqrt(every.squares.pairs)).all()
    assert (sampled.squares.pairs <= sampled.transitions).all()


@pytest.mark.parametrize(("n_states", "wanted"), [(12, SQUARE_EVERY), (13, SQUARE_EVERY), (13, 1)])
def test_squares_are_sampled_with_more_than_12_states_where_that_is_enough(n_states, wanted):
    batch = random_batch(5, n_states, [30] * 40)
    got, all_of_them = (
        cpu.forward_backward(*batch, squares=wanted),
        narrow.smooth(*batch, squares=1),
    )
    is_sampled = not np.allclose(got.squares.pairs, all_of_them.squares.pairs, rtol=1e-4)
    assert is_sampled == (n_states > 12 and wanted > 1)


def test_squares_neither_overflow_nor_underflow_in_single_precision():
    # A path by transitions of potential 1e-30, forced by what is emitted.
    transitions = np.full((3, 3), 1e-30, np.float32) + np.eye(3, dtype=np.float32)
    emissions = np.eye(3, dtype=np.float32) + np.float32(1e-34)
    potentials = Potentials(np.full(3, 1 / 3, np.float32), transitions, emissions)
    batch = potentials, np.array([0, 0, 1, 1, 2], np.int32), np.array([0, 5])
    expected = reference.forward_backward(*batch, squares=True)
    got = cpu.forward_backward(*batch, squares=True)
    for ours, theirs in zip(got.squares, expected.squares, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n_states", [13, 75])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_number_of_threads_does_not_change_a_bit(dtype, n_states):
    lengths = np.random.default_rng(0).integers(1, 30, 300)
    batch = random_batch(2, n_states, lengths, dtype=dtype)
    one, two, four = (cpu.forward_backward(*batch, squares=True, n_threads=n) for n in (1, 2, 4))
    for other in (two, four):
        for a, b in zip(one[:4], other[:4], strict=True):
            assert a.tobytes() == b.tobytes()
        for a, b in zip(one.squares, other.squares, strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("kernel", [reference, cpu], ids=["reference", "cpu"])
def test_an_order_that_the_caller_knows_changes_nothing(kernel):
    lengths = np.random.default_rng(0).integers(1, 12, 40)
    batch = random_batch(4, 3, lengths)
    order = np.argsort(-lengths, kind="stable").astype(np.int32)
    one, other = (kernel.forward_backward(*batch, order=known) for known in (None, order))
    for a, b in zip(one[:4], other[:4], strict=True):
        assert a.tobytes() == b.tobytes()


def test_the_order_of_sequences_is_the_caller_s():
    batch = random_batch(4, 3, [5, 5, 5], dtype=np.float32)
    usual, other = (
        recursions.smooth(*batch, order=order, block_rows=2)
        for order in (None, np.array([2, 0, 1]))
    )
    assert usual.transitions.tobytes() != other.transitions.tobytes()  # other sums are rounded
    np.testing.assert_allclose(usual.transitions, other.transitions, rtol=1e-5)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("kernel", [reference, cpu], ids=["reference", "cpu"])
def test_log_potential_is_what_log_z_and_the_entropy_of_paths_leave(kernel, scaled):
    potentials, index, offsets = random_batch(5, 3, [4, 1, 5], scaled=scaled)
    smoothed = kernel.forward_backward(potentials, index, offsets)
    entropy = 0.0
    for begin, end in itertools.pairwise(offsets):
        rows = true_rows(potentials, index[begin:end])
        paths = np.array(list(itertools.product(range(3), repeat=end - begin)))
        weight = potentials.start[paths[:, 0]] * rows[0, paths[:, 0]]
        for t in range(1, end - begin):
            weight *= potentials.transitions[paths[:, t - 1], paths[:, t]] * rows[t, paths[:, t]]
        q = weight / weight.sum()
        entropy -= xlogy(q, q).sum()
    found = kernel.log_potential(smoothed, potentials, index)
    assert smoothed.log_normalizers.sum() - found == pytest.approx(entropy, rel=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("total", [None, 2.5, Rows(2.5, 4.0)], ids=["sums", "one", "apart"])
@pytest.mark.parametrize("one_row", [False, True])
@pytest.mark.parametrize("kernel", [reference, cpu], ids=["reference", "cpu"])
def test_transition_potentials_are_those_of_the_prior_to_the_bit(kernel, one_row, total, dtype):
    rng = np.random.default_rng(0)
    counts = Rows(rng.gamma(1.0, size=7), rng.gamma(1.0, size=(7, 7)))
    prior = Rows(rng.random(7), rng.random(7 if one_row else (7, 7)))
    rows, start_total, totals, *_ = PriorCounts(prior, total).plus(counts)
    start, transitions = kernel.transition_potentials(prior, total, counts, dtype)
    expected = (rows.start / start_total).astype(dtype)
    assert start.dtype == dtype
    assert start.tobytes() == expected.tobytes()
    expected = (rows.transitions / totals[:, None]).astype(dtype)
    assert transitions.tobytes() == expected.tobytes()


@pytest.mark.parametrize("kernel", [reference, cpu], ids=["reference", "cpu"])
def test_counts_are_blended_and_masses_summed(kernel):
    rng = np.random.default_rng(0)
    counts, sums = ((rng.random(5), rng.random((5, 5))) for _ in range(2))
    start, transitions = kernel.blend_counts(counts, sums, 0.7, 12.5)
    assert start.tobytes() == (0.7 * counts[0] + 12.5 * sums[0]).tobytes()
    assert transitions.tobytes() == (0.7 * counts[1] + 12.5 * sums[1]).tobytes()
    # Every step is a first one or is come to from another.
    batch = random_batch(6, 5, [3, 1, 8])
    smoothed = kernel.forward_backward(*batch)
    masses = kernel.state_masses(smoothed.start, smoothed.transitions)
    np.testing.assert_allclose(masses, smoothed.responsibilities.sum(axis=0), rtol=1e-12)


def test_likelihoods_of_1e_minus_300_and_smaller_survive():
    potentials, index, offsets = random_batch(3, 5, [40, 3], dtype=np.float32)
    tiny = potentials._replace(log_scale=np.full(11, -800.0))
    plain = cpu.forward_backward(potentials, index, offsets)
    scaled = cpu.forward_backward(tiny, index, offsets)
    np.testing.assert_allclose(
        scaled.log_normalizers, plain.log_normalizers - 800.0 * np.diff(offsets), rtol=1e-6
    )
    np.testing.assert_array_equal(scaled.responsibilities, plain.responsibilities)


def test_a_table_with_entries_of_1e_minus_300_survives_in_double_precision():
    potentials, index, offsets = random_batch(3, 4, [9, 5])
    tiny = potentials._replace(emissions=potentials.emissions * 1e-300)
    expected = reference.forward_backward(tiny, index, offsets)
    got = cpu.forward_backward(tiny, index, offsets)
    np.testing.assert_allclose(got.log_normalizers, expected.log_normalizers, rtol=1e-12)
    np.testing.assert_allclose(got.transitions, expected.transitions, rtol=1e-9)


def test_sequences_that_underflow_are_redone_in_the_log_domain():
    # States follow one another and none may be skipped, so the only possible path has steps of
    # potential 1e-30 beside 1, twice in a row: single precision has nothing left for it.
    transitions = np.diag(np.ones(3, np.float32), 1) + 1e-6 * np.eye(4, dtype=np.float32)
    emissions = np.full((2, 4), 1e-30, np.float32)
    emissions[:, 0] = 1.0
    potentials = Potentials(np.eye(4, dtype=np.float32)[0], transitions, emissions)
    index = np.array([0, 1, 0, 1, 0, 1], np.int32)
    offsets = np.array([0, 4, 6])
    expected = reference.forward_backward(potentials, index, offsets, squares=True)
    got = cpu.forward_backward(potentials, index, offsets, squares=True)
    assert np.isfinite(expected.log_normalizers).all()
    np.testing.assert_allclose(got.log_normalizers, expected.log_normalizers, rtol=1e-6)
    np.testing.assert_allclose(got.transitions, expected.transitions, rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(got.responsibilities, expected.responsibilities, atol=1e-6)
    np.testing.assert_allclose(got.squares.pairs, expected.squares.pairs, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        cpu.log_normalizers(potentials, index, offsets), expected.log_normalizers, rtol=1e-6
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_million_steps_do_not_drift(dtype):
    n_steps = 1_000_000
    rng = np.random.default_rng(5)
    # Steps of the second kind say where the chain is: between them it must be forgotten again.
    emissions = np.array([[0.5, 0.3, 0.2], [1.0, 1e-6, 1e-6]], dtype)
    potentials = Potentials(
        np.full(3, 1 / 3, dtype), np.array([[8, 1, 1], [2, 6, 2], [1, 1, 8]], dtype) / 10, emissions
    )
    index = np.zeros(n_steps, np.int32)
    index[rng.integers(n_steps, size=1000)] = 1
    index[-1] = 1
    offsets = np.array([0, n_steps])
    smoothed = recursions.smooth(potentials, index, offsets, chunk_elements=2**16)
    np.testing.assert_allclose(smoothed.responsibilities.sum(axis=1), 1.0, atol=1e-5)
    assert smoothed.transitions.sum() == pytest.approx(n_steps - 1, rel=1e-5)
    # The chain forgets within a hundred steps: its end smoothed alone gives the same answer.
    tail = np.concatenate([index[-300:]])
    alone = reference.forward_backward(potentials, tail, np.array([0, 300]))
    tolerance = 1e-4 if dtype is np.float32 else 1e-9
    np.testing.assert_allclose(
        smoothed.responsibilities[-150:], alone.responsibilities[-150:], atol=tolerance
    )
    # log Z against the plain scaled recursion in double precision.
    alpha, log_z = np.full(3, 1 / 3), 0.0
    rows = np.asarray(emissions, np.float64)
    matrix = np.asarray(potentials.transitions, np.float64)
    for t, row in enumerate(index):
        alpha = (alpha if t == 0 else alpha @ matrix) * rows[row]
        total = alpha.sum()
        log_z += np.log(total)
        alpha /= total
    assert smoothed.log_normalizers[0] == pytest.approx(log_z, rel=1e-6)
    best, path = cpu.viterbi(potentials, index, offsets)
    assert best[0] < log_z
    assert path[-1] == 0


@njit
def _gemm(*args):
    gemm(*args)


@settings(deadline=None, max_examples=60)
@given(
    n_rows=st.integers(1, 20),
    n_columns=st.sampled_from([8, 16, 24, 40, 48, 56, 104]),
    depth=st.integers(0, 30),
    transposed=st.booleans(),
    add=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_gemm_equals_numpy(n_rows, n_columns, depth, transposed, add, dtype):
    rng = np.random.default_rng(n_rows * 31 + depth)
    a = rng.normal(size=(depth, n_rows) if transposed else (n_rows, depth)).astype(dtype)
    b = rng.normal(size=(depth, n_columns)).astype(dtype)
    c = rng.normal(size=(n_rows, n_columns)).astype(dtype)
    expected = (a.T if transposed else a) @ b + add * c
    strides = (1, n_rows) if transposed else (depth, 1)
    _gemm(a, 0, *strides, b, 0, n_columns, c, 0, n_columns, n_rows, n_columns, depth, add)
    np.testing.assert_allclose(c, expected, rtol=1e-4 if dtype is np.float32 else 1e-12, atol=1e-4)


@settings(deadline=None)  # it may have to compile
@given(arrays(np.int32, st.integers(1, 60), elements=st.integers(0, 10**6)))
def test_distinct_numbers_the_symbols_present(values):
    present, index = symbols.distinct(values, 10**6 + 1)
    np.testing.assert_array_equal(present[index], values)
    assert len(np.unique(present)) == len(present) == len(np.unique(values))


def test_distinct_takes_all_symbols_where_there_are_few():
    present, index = symbols.distinct(np.array([2, 0, 2], np.int32), 3)
    assert present is None
    np.testing.assert_array_equal(index, [2, 0, 2])


@pytest.mark.parametrize("collapsed", [True, False])
@pytest.mark.parametrize("prior_shape", [(1, 1), (6, 1), (6, 5)])
def test_predictive_rows_are_ratios_or_exponentials_of_digamma(collapsed, prior_shape):
    rng = np.random.default_rng(0)
    table = np.zeros((30, padded_states(5)))
    table[:, :5] = rng.gamma(0.3, 20.0, size=(30, 5))
    rows = np.array([3, 1, 29, 0, 7, 11])
    prior = rng.gamma(1.0, size=prior_shape)
    totals = rng.gamma(5.0, size=5) + 100
    concentration = prior + 0.25 * table[rows, :5]
    got = symbols.predictive_rows(
        table, 0.25, rows, prior, totals, collapsed=collapsed, n_threads=2
    )
    if collapsed:
        expected = concentration / totals
    else:
        expected = np.exp(digamma(concentration) - digamma(totals))
    np.testing.assert_allclose(got[:, :5], expected, rtol=1e-12)
    assert (got[:, 5:] == 0).all()


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 4))
@example(2501, 2, 3)
def test_sum_by_row_is_the_same_on_any_number_of_threads(n_steps, n_rows, n_threads):
    rng = np.random.default_rng(n_steps)
    index = rng.integers(n_rows, size=n_steps)
    values = rng.random((n_steps, 16), dtype=np.float32)[:, :13]
    expected = np.zeros((n_rows, 13))
    np.add.at(expected, index, values)
    got = symbols.sum_by_row(index, values, n_rows, n_threads=n_threads)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert got.tobytes() == symbols.sum_by_row(index, values, n_rows, n_threads=1).tobytes()


def test_large_sums_use_all_threads_and_keep_their_bits():
    rng = np.random.default_rng(1)
    index = np.minimum(rng.zipf(1.3, size=20_000) - 1, 999)
    values = rng.random((20_000, 48), dtype=np.float32)
    one, four = (symbols.sum_by_row(index, values, 1000, n_threads=n) for n in (1, 4))
    assert one.tobytes() == four.tobytes()
    values = rng.random((30_000, 48), dtype=np.float32)
    tables = [np.ones((30_000, 48), np.float32) for _ in range(2)]
    order = rng.permutation(30_000)
    sums = [
        symbols.add_rows(table, order, values, 0.5, n_threads=n_threads)
        for table, n_threads in zip(tables, (1, 4), strict=True)
    ]
    np.testing.assert_array_equal(*tables)
    np.testing.assert_array_equal(*sums)
    np.testing.assert_allclose(tables[0][order], 1 + 0.5 * values, rtol=1e-6)
    np.testing.assert_allclose(sums[0], values.sum(axis=0, dtype=np.float64), rtol=1e-13)


@pytest.mark.parametrize("width", [3, 8, 21])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_added_whatever_their_layout(width, dtype):
    rng = np.random.default_rng(width)
    values, rows = rng.random((9, width)).astype(dtype), rng.permutation(20)[:9]
    expected = np.ones((20, width))
    expected[rows] += 0.25 * values
    cut = np.ones((1, 20, width + 4), dtype)[0, :, :width]  # of an array of another shape
    kept = [np.ones((20, width), dtype), np.ones((width, 20), dtype).T, cut]
    given_values = [values, np.asfortranarray(values), np.pad(values, ((0, 0), (0, 4)))[:, :width]]
    for table in kept:
        for given_as in given_values:
            table[:] = 1.0
            sums = symbols.add_rows(table, rows, given_as, 0.25)
            np.testing.assert_allclose(table, expected, rtol=1e-6)
            np.testing.assert_allclose(sums, values.sum(axis=0), rtol=1e-6)


def test_matrices_begin_at_a_line_of_memory():
    for zeros in (True, False):
        found = aligned((5, 48), np.float32, zeros=zeros)
        assert found.__array_interface__["data"][0] % 64 == 0
        assert found.flags.c_contiguous
        assert found.flags.writeable
        assert found.shape == (5, 48)
