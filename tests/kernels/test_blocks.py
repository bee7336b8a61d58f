"""Sums by row of the emission table inside of blocks, and potentials that blocks compute."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.kernels import cpu, reference
from sojourn.kernels.cpu import recursions, symbols
from sojourn.kernels.cpu.block_sums import StrandSums
from sojourn.kernels.interface import CountRows, aligned, padded_states
from tests.support.potentials import random_batch

TOLERANCE = {np.float32: 5e-5, np.float64: 1e-8}


def sums_of(smoothed, index, n_rows):
    sums = np.zeros((n_rows, smoothed.responsibilities.shape[1]))
    np.add.at(sums, index, smoothed.responsibilities)
    return sums


def row_sums(smoothed):
    """Return the sums by row, of both strands together."""
    sums = smoothed.row_sums
    return sums.joined(n_threads=2) if isinstance(sums, StrandSums) else sums


def from_counts(potentials, seed, *, chosen, own_priors):
    """Put the emission table into counts: some rows of a larger table, and a prior and factors."""
    rng = np.random.default_rng(seed)
    n_rows, n_states = potentials.emissions.shape
    dtype = potentials.emissions.dtype
    n_all = 3 * n_rows if chosen else n_rows
    rows = rng.permutation(n_all)[:n_rows].astype(np.int32) if chosen else np.empty(0, np.int32)
    table = aligned((n_all, padded_states(n_states)), dtype, zeros=True)
    table[:, :n_states] = rng.gamma(0.5, size=(n_all, n_states))
    prior = rng.gamma(1.0, size=(n_rows if own_priors else 1, 1)).astype(dtype)
    factor = np.zeros(table.shape[1], dtype)
    factor[:n_states] = rng.gamma(1.0, size=n_states)
    counts = CountRows(table, rows, prior, 0.5, factor)
    plain = (prior + 0.5 * table[rows if chosen else slice(None)]) * factor
    return potentials._replace(emissions=counts), potentials._replace(
        emissions=plain[:, :n_states].astype(dtype)
    )


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**20),
    n_states=st.sampled_from([1, 5, 8, 17, 45, 67]),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=40),
    block_rows=st.sampled_from([None, 1, 2, 7, 32]),
    chunk_elements=st.sampled_from([500, 2**22]),
    n_rows=st.sampled_from([1, 11, 80]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_sums_by_row_are_those_of_responsibilities(
    seed, n_states, lengths, block_rows, chunk_elements, n_rows, dtype
):
    batch = random_batch(seed, n_states, lengths, n_rows=n_rows, dtype=dtype)
    shape = {"block_rows": block_rows, "chunk_elements": chunk_elements, "squares": 1}
    got = recursions.smooth(*batch, summed=True, n_threads=2, **shape)
    whole = reference.forward_backward(*batch, squares=True)
    expected, tolerance = sums_of(whole, batch[1], n_rows), TOLERANCE[dtype]
    if got.row_sums is None:  # several chunks, or long sums
        assert len(got.responsibilities) == len(batch[1])
    else:
        assert row_sums(got).dtype == dtype
        assert got.responsibilities.shape == (0, n_states)
        np.testing.assert_allclose(row_sums(got), expected, rtol=tolerance, atol=10 * tolerance)
    for name in ("log_normalizers", "start", "transitions"):
        np.testing.assert_allclose(
            getattr(got, name), getattr(whole, name), rtol=tolerance, atol=10 * tolerance
        )
    for ours, theirs in zip(got.squares, whole.squares, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("own_priors", [False, True])
@pytest.mark.parametrize("n_states", [3, 20, 45])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("summed", [False, True])
def test_potentials_from_counts_are_those_of_their_table(
    chosen, own_priors, n_states, dtype, summed
):
    lengths = np.random.default_rng(1).integers(1, 40, 60)
    potentials, index, offsets = random_batch(3, n_states, lengths, n_rows=200, dtype=dtype)
    counts, plain = from_counts(potentials, 5, chosen=chosen, own_priors=own_priors)
    written = symbols.with_table(counts, n_threads=2)
    assert written.emissions[:, :n_states].tobytes() == plain.emissions.tobytes()
    options = {"squares": True, "summed": summed, "n_threads": 2}
    got = cpu.forward_backward(counts, index, offsets, **options)
    same = cpu.forward_backward(written, index, offsets, **options)
    expected = reference.forward_backward(plain, index, offsets, squares=True)
    if summed:
        assert row_sums(got).tobytes() == row_sums(same).tobytes()
    assert got.responsibilities.tobytes() == same.responsibilities.tobytes()
    for name in ("log_normalizers", "start", "transitions"):
        assert getattr(got, name).tobytes() == getattr(same, name).tobytes()
        tolerance = TOLERANCE[dtype]
        np.testing.assert_allclose(getattr(got, name), getattr(expected, name), rtol=tolerance)


@pytest.mark.parametrize("n_states", [20, 45])
def test_threads_do_not_change_a_bit_of_sums_by_row(n_states):
    lengths = np.random.default_rng(0).integers(1, 60, 1500)
    batch = random_batch(0, n_states, lengths, n_rows=2000, dtype=np.float32)
    one, two, five = (
        recursions.smooth(*batch, summed=True, squares=8, n_threads=n) for n in (1, 2, 5)
    )
    for other in (two, five):
        assert row_sums(one).tobytes() == row_sums(other).tobytes()
        for a, b in zip((*one[:3], *one.squares), (*other[:3], *other.squares), strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("n_wanted", [700, 699])
@pytest.mark.parametrize("dtypes", [(np.float32, np.float32), (np.float64, np.float32)])
def test_strands_are_added_to_a_table_as_their_joined_sums(n_threads, chosen, n_wanted, dtypes):
    rng = np.random.default_rng(0)
    n_rows, n_states, n_all = 700, 397, 900 if chosen else 700
    sums = aligned((2 * n_rows, padded_states(n_states)), dtypes[1], zeros=True)
    has_sum = rng.integers(2, size=2 * n_rows).astype(np.uint8)
    sums[:, :n_states] = np.where(has_sum, 1.0, np.nan)[:, None] * rng.random(n_states)
    rows = rng.permutation(n_all)[:n_wanted].astype(np.int32) if chosen else None
    own, other = (aligned((n_all, sums.shape[1]), dtypes[0], zeros=True) for _ in range(2))
    own[:, :n_states] = other[:, :n_states] = rng.random((n_all, n_states))
    strands = StrandSums(sums, has_sum, n_states, n_rows).first(n_wanted)
    there = np.where(has_sum[:, None], sums[:, :n_states], 0.0).reshape(2, n_rows, n_states)
    both = there.sum(axis=0, dtype=dtypes[1])[:n_wanted]
    totals = strands.add_to(own, rows, 0.25, n_threads=n_threads)
    joined = strands.joined(n_threads=n_threads)
    np.testing.assert_allclose(joined, both, rtol=1e-6)
    expected = symbols.add_rows(other, rows, joined, 0.25, n_threads=1)
    assert own.tobytes() == other.tobytes()
    assert totals.tobytes() == expected.tobytes()
    # Once joined they are still the same sums.
    assert strands.joined().tobytes() == joined.tobytes()
    strands.add_to(own, rows, -0.25, n_threads=n_threads)
    symbols.add_rows(other, rows, joined, -0.25, n_threads=1)
    assert own.tobytes() == other.tobytes()


@pytest.mark.parametrize("counted", [False, True])
def test_a_sequence_that_underflows_leaves_no_sums_by_row(counted):
    potentials, index, offsets = random_batch(0, 20, [40] * 20, n_rows=300, dtype=np.float32)
    counts, plain = from_counts(potentials, 5, chosen=True, own_priors=False)
    factor = counts.emissions.factor * np.float32(1e-38)
    counts = counts._replace(emissions=counts.emissions._replace(factor=factor))
    plain = plain._replace(emissions=symbols.with_table(counts, n_threads=1).emissions[:, :20])
    chosen = counts if counted else plain
    got = recursions.smooth(chosen, index, offsets, summed=True)
    expected = reference.forward_backward(plain, index, offsets)
    assert got.row_sums is None
    np.testing.assert_allclose(got.log_normalizers, expected.log_normalizers, rtol=1e-5)
    np.testing.assert_allclose(got.responsibilities, expected.responsibilities, atol=1e-4)


def test_long_sums_are_left_to_others():
    few_rows = random_batch(0, 40, [40] * 20, n_rows=11, dtype=np.float32)
    assert recursions.smooth(*few_rows, summed=True).row_sums is None
    more = random_batch(0, 40, [40] * 20, n_rows=13, dtype=np.float32)
    assert recursions.smooth(*more, summed=True).row_sums is not None


def test_many_sequences_with_many_states_have_few_blocks():
    # What blocks leave to one another would otherwise take 1.8 GB here.
    batch = random_batch(0, 600, [1] * 20_000, n_rows=400, dtype=np.float32)
    blocks = recursions._Blocks(*batch)
    room = blocks.n_blocks * (2 * blocks.width + 3) * blocks.width
    assert room <= recursions._BLOCK_SUMS
    got = recursions.smooth(*batch, squares=8, summed=True, n_threads=2)
    start = batch[0].start * batch[0].emissions
    shares = start / start.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(got.start, shares[batch[1]].sum(axis=0), rtol=1e-4)
