import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.kernels import cpu, reference
from sojourn.kernels.cpu import narrow, recursions
from sojourn.kernels.interface import NARROW
from tests.support.potentials import assert_same, long_chain, random_batch

TOLERANCE = {np.float32: 5e-5, np.float64: 1e-8}


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**20),
    n_states=st.integers(1, 2 * NARROW),
    lengths=st.lists(st.sampled_from([1, 2, 15, 16, 17, 33, 90]), min_size=1, max_size=30),
    tile=st.sampled_from([None, 16, 32, 48]),
    dense=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_strips_agree_with_the_reference_wherever_tiles_are_cut(
    seed, n_states, lengths, tile, dense, dtype
):
    potentials, index, offsets = random_batch(
        seed, n_states, lengths, scaled=seed % 2 == 0, dtype=dtype
    )
    if dense:  # a row of its own for every step
        scale = potentials.log_scale
        potentials = potentials._replace(
            emissions=np.ascontiguousarray(potentials.emissions[index]),
            log_scale=None if scale is None else scale[index],
        )
        index = np.arange(len(index), dtype=np.int32)
    batch = potentials, index, offsets
    got = narrow.smooth(*batch, squares=True, tile=tile)
    assert got is not None
    assert_same(got, reference.forward_backward(*batch, squares=True), TOLERANCE[dtype])
    alone = narrow.log_normalizers(*batch, tile=tile)
    np.testing.assert_array_equal(alone, got.log_normalizers)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**20),
    n_states=st.integers(1, 2 * NARROW),
    lengths=st.lists(st.sampled_from([1, 2, 15, 16, 17, 33, 90]), min_size=1, max_size=30),
    tile=st.sampled_from([None, 16, 32, 48]),
    n_rows=st.sampled_from([1, 11, 80]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_sums_by_row_are_those_of_responsibilities(seed, n_states, lengths, tile, n_rows, dtype):
    batch = random_batch(seed, n_states, lengths, n_rows=n_rows, dtype=dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(narrow, "_WORTH_SUMMING", 0)
        got = narrow.smooth(*batch, summed=True, tile=tile)
    assert got.responsibilities.shape == (0, n_states)
    assert got.row_sums.dtype == dtype
    one = reference.forward_backward(*batch)
    expected = np.zeros((n_rows, n_states))
    np.add.at(expected, batch[1], one.responsibilities)
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(got.row_sums, expected, rtol=tolerance, atol=10 * tolerance)
    np.testing.assert_allclose(got.transitions, one.transitions, rtol=tolerance, atol=tolerance)


def test_sums_by_row_are_left_to_others_where_steps_are_few_beside_rows():
    batch = random_batch(0, 3, [40, 30], n_rows=11)
    assert cpu.forward_backward(*batch, summed=True).row_sums is not None
    batch = random_batch(0, 3, [40, 30], n_rows=50)
    assert cpu.forward_backward(*batch, summed=True).row_sums is None


@pytest.mark.parametrize(("stay", "doubt"), [(0.6, 0.1), (0.95, 0.5), (0.99, 0.9)])
@pytest.mark.parametrize("n_states", [2, 3, 10, 45])
def test_the_edges_of_tiles_of_a_long_sequence_are_exact(n_states, stay, doubt):
    batch = long_chain(40_000, n_states, stay=stay, doubt=doubt)
    one = recursions.smooth(*batch, squares=True)  # step by step
    got = narrow.smooth(*batch, squares=True, tile=512, n_threads=2)
    assert_same(got, one, 1e-10)
    single = long_chain(40_000, n_states, stay=stay, doubt=doubt, dtype=np.float32)
    counts = narrow.smooth(*single).transitions
    np.testing.assert_allclose(counts, one.transitions, rtol=1e-6, atol=1e-6 * 40_000)


def test_what_is_never_forgotten_is_computed_step_by_step():
    # Two states that are never left, and say nothing: all depends on the start.
    potentials, index, offsets = long_chain(9000, 2, stay=1.0, doubt=1.0)
    batch = potentials._replace(transitions=np.eye(2)), index, offsets
    assert narrow.smooth(*batch) is None
    expected = reference.forward_backward(*batch, squares=True)
    assert_same(cpu.forward_backward(*batch, squares=True), expected, 1e-8)
    np.testing.assert_allclose(cpu.log_normalizers(*batch), expected.log_normalizers, atol=1e-9)


def test_an_impossible_sequence_does_not_harm_the_others():
    potentials, index, offsets = random_batch(3, 3, [20, 7, 40])
    emissions = potentials.emissions.copy()
    emissions[index[22]] = 0.0
    batch = potentials._replace(emissions=emissions), index, offsets
    got, expected = (kernel.log_normalizers(*batch) for kernel in (cpu, reference))
    assert np.isneginf(expected).any()
    np.testing.assert_allclose(got, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_do_not_change_a_bit_of_one_long_sequence(dtype):
    batch = long_chain(30_000, 5, dtype=dtype)
    one, two, five = (narrow.smooth(*batch, squares=True, n_threads=n) for n in (1, 2, 5))
    for other in (two, five):
        for a, b in zip((*one[:4], *one.squares), (*other[:4], *other.squares), strict=True):
            assert a.tobytes() == b.tobytes()


def test_threads_do_not_change_a_bit_of_sums_by_row():
    lengths = np.random.default_rng(0).integers(1, 60, 1500)
    batch = random_batch(0, 5, lengths, n_rows=90, dtype=np.float32)
    one, two, five = (
        narrow.smooth(*batch, summed=True, n_threads=n, tile=240).row_sums for n in (1, 2, 5)
    )
    assert one.tobytes() == two.tobytes() == five.tobytes()


def test_tiles_cover_all_steps_and_begin_at_blocks():
    for n_steps in (1, 16, 511, 10_000, 999_999, 7_000_000):
        tile = narrow.tile_length(n_steps)
        assert tile % narrow.STEPS == 0
        assert tile <= 4096
        # Tiles of a power of two of steps would begin in the same lines of the cache.
        assert n_steps < 100_000 or tile // narrow.STEPS % 2 == 1


@pytest.mark.parametrize(
    ("n_states", "n_sequences", "length", "in_strips"),
    [
        (20, 10, 60, True),  # blocks would not be full
        (20, 100, 60, False),
        (20, 300, 60, True),  # there is work for two cores
        (40, 300, 60, False),
        (40, 1, 1000, False),
        (40, 1, 2500, True),
        (40, 30, 60, False),
        (40, 8, 900, False),
        (40, 8, 1100, True),
        (40, 30, 600, True),
        (100, 2, 5000, True),
        (300, 1, 2500, False),
    ],
)
def test_many_states_go_to_strips_where_blocks_would_not_be_full(
    n_states, n_sequences, length, in_strips, monkeypatch
):
    taken = []
    smooth = narrow.smooth

    def noted(potentials, index, offsets, **options):
        taken.append(len(index))
        return smooth(potentials, index, offsets, **options)

    monkeypatch.setattr(narrow, "smooth", noted)
    batch = random_batch(1, n_states, [length] * n_sequences, dtype=np.float32)
    got, one = (
        way(*batch, squares=1, n_threads=2)[:4] for way in (cpu.forward_backward, recursions.smooth)
    )
    for ours, theirs in zip(got, one, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=5e-5, atol=5e-4)
    assert bool(taken) == in_strips


def test_threads_do_not_change_a_bit_with_many_states():
    batch = random_batch(0, 45, [3000, 17, 9000, 1], dtype=np.float32)
    one, two, five = (cpu.forward_backward(*batch, squares=8, n_threads=n) for n in (1, 2, 5))
    for other in (two, five):
        for a, b in zip((*one[:4], *one.squares), (*other[:4], *other.squares), strict=True):
            assert a.tobytes() == b.tobytes()
