"""States that last, held by enumeration of all segmentations."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.inference.long import _Along
from sojourn.kernels import cpu, lasting, reference
from sojourn.kernels.cpu import durations
from sojourn.kernels.cpu.filtering import best_paths, filter_steps, path_probabilities
from sojourn.kernels.durations import expanded
from sojourn.kernels.edges import TileKernel
from sojourn.kernels.interface import DurationPotentials, Potentials
from sojourn.kernels.tiles import Tiles, stationary
from tests.support.durations import assert_same, batch, model


def segmentations(n_steps, n_states):
    """Yield all ways to cut a sequence into segments of alternating states; the last may go on."""
    for cuts in itertools.product((False, True), repeat=n_steps - 1):
        ends = [t + 1 for t, cut in enumerate(cuts) if cut] + [n_steps]
        for states in itertools.product(range(n_states), repeat=len(ends)):
            if all(a != b for a, b in itertools.pairwise(states)):
                yield list(zip(states, np.diff([0, *ends]), strict=True))


def length_weights(durations, state, n_steps):
    """Potential of a segment of exactly, and of at least, so many steps, by walks over copies."""
    entry, stay, advance = (part[state] for part in durations)
    at = entry.astype(float)
    for _ in range(n_steps - 1):
        moved = stay * at
        moved[1:] += advance * at[:-1]
        at = moved
    return at[-1] * advance, at.sum()


def by_segments(potentials, index):
    """Return Z, and expected numbers of steps, starts and changes of state."""
    n_states = len(potentials.start)
    total, start = 0.0, np.zeros(n_states)
    steps, changes = np.zeros((len(index), n_states)), np.zeros((n_states, n_states))
    for segments in segmentations(len(index), n_states):
        path = np.repeat(*zip(*segments, strict=True))
        weight = potentials.start[path[0]] * potentials.emissions[index, path].prod()
        weight *= np.exp(potentials.log_scale[index].sum())
        for n, (state, length) in enumerate(segments):
            exact, open_end = length_weights(potentials.durations, state, length)
            weight *= open_end if n + 1 == len(segments) else exact
        for (a, _), (b, _) in itertools.pairwise(segments):
            weight *= potentials.transitions[a, b]
        total += weight
        start[path[0]] += weight
        steps[np.arange(len(index)), path] += weight
        for (a, _), (b, _) in itertools.pairwise(segments):
            changes[a, b] += weight
    return total, start / total, steps / total, changes / total


@pytest.mark.parametrize("kind", ["negative binomial", "explicit", "both"])
@pytest.mark.parametrize(("n_states", "n_copies"), [(2, 1), (2, 3), (3, 2)])
def test_expectations_are_those_of_all_segmentations(kind, n_states, n_copies):
    rng = np.random.default_rng(n_states * 10 + n_copies)
    potentials = model(rng, n_states, n_copies, kind)
    lengths = [1, 2, 6]
    index = rng.integers(4, size=sum(lengths))
    offsets = np.cumsum([0, *lengths])
    found = reference.forward_backward(potentials, index, offsets, squares=True)
    pieces = [by_segments(potentials, index[a:b]) for a, b in itertools.pairwise(offsets)]
    total, start, steps, changes = zip(*pieces, strict=True)
    np.testing.assert_allclose(found.log_normalizers, np.log(total), rtol=1e-12)
    np.testing.assert_allclose(found.responsibilities, np.concatenate(steps), atol=1e-12)
    np.testing.assert_allclose(found.start, sum(start), atol=1e-12)
    np.testing.assert_allclose(found.transitions, sum(changes), atol=1e-12)
    counts = found.durations
    np.testing.assert_allclose(
        counts.entries.sum(axis=1), found.start + found.transitions.sum(axis=0), atol=1e-12
    )
    # Every step but the first of a sequence is a stay or an advance.
    after = sum(lengths) - len(lengths)
    assert counts.stays.sum() + counts.advances.sum() == pytest.approx(after)


def test_one_copy_is_the_plain_model_with_the_same_chances_of_staying():
    rng = np.random.default_rng(0)
    potentials = model(rng, 3, 1, "negative binomial")
    entry, stay, advance = potentials.durations
    matrix = advance[:, None] * potentials.transitions + np.diag(stay)
    plain = potentials._replace(transitions=matrix, durations=None)
    index, offsets = rng.integers(4, size=12), np.array([0, 1, 12])
    lasting = reference.forward_backward(potentials, index, offsets)
    without = reference.forward_backward(plain, index, offsets)
    np.testing.assert_allclose(lasting.log_normalizers, without.log_normalizers, rtol=1e-12)
    np.testing.assert_allclose(lasting.responsibilities, without.responsibilities, atol=1e-12)
    np.testing.assert_allclose(lasting.durations.stays, np.diag(without.transitions), atol=1e-12)
    assert (entry == 1.0).all()


def only(path, potentials, index, offsets):
    """Return a batch in which no other path is possible."""
    table = np.where(np.arange(potentials.emissions.shape[1]) == path[:, None], 1.0, 0.0)
    table = table * potentials.emissions[index]
    own = potentials._replace(emissions=table, log_scale=potentials.log_scale[index])
    return own, np.arange(len(index)), offsets


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**20),
    n_states=st.sampled_from([1, 2, 3, 5, 8, 17]),
    n_copies=st.sampled_from([1, 2, 3, 5]),
    kind=st.sampled_from(["negative binomial", "explicit", "both"]),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=20),
    chunk_elements=st.sampled_from([1, 4000, 2**17]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_the_compiled_kernel_does_what_the_reference_does(
    seed, n_states, n_copies, kind, lengths, chunk_elements, dtype
):
    data = batch(seed, n_states, n_copies, lengths, kind, dtype)
    tolerance = 5e-5 if dtype is np.float32 else 1e-9
    expected = reference.forward_backward(*data, squares=True)
    if not np.isfinite(expected.log_normalizers).all():  # longer than its one state lasts
        assert n_states == 1
        return
    got = durations.forward_backward(
        *data, squares=True, n_threads=2, chunk_elements=chunk_elements
    )
    assert_same(got, expected, tolerance)
    log_z = cpu.log_normalizers(*data)
    np.testing.assert_allclose(log_z, expected.log_normalizers, rtol=tolerance, atol=tolerance)
    scores, path = cpu.viterbi(*data)
    best, _ = reference.viterbi(*data)
    np.testing.assert_allclose(scores, best, rtol=tolerance, atol=tolerance)
    along, _ = reference.viterbi(*only(path, *data))  # another path may be as good
    np.testing.assert_allclose(along, best, rtol=tolerance, atol=tolerance)


def test_number_of_threads_does_not_change_a_bit():
    lengths = np.random.default_rng(0).integers(1, 30, 100)
    data = batch(2, 7, 4, lengths, dtype=np.float32)
    one, two, four = (cpu.forward_backward(*data, squares=True, n_threads=n) for n in (1, 2, 4))
    for other in (two, four):
        for a, b in zip(one[:4], other[:4], strict=True):
            assert a.tobytes() == b.tobytes()
        for name in ("squares", "durations"):
            for a, b in zip(getattr(one, name), getattr(other, name), strict=True):
                assert a.tobytes() == b.tobytes()


def test_counts_in_single_precision_are_those_in_double_precision():
    lengths = np.random.default_rng(1).integers(50, 200, 64)
    single = batch(3, 20, 8, lengths, dtype=np.float32)
    potentials = single[0]
    wide = Potentials(
        *(part.astype(np.float64) for part in potentials[:3]),
        potentials.log_scale,
        DurationPotentials(*(part.astype(np.float64) for part in potentials.durations)),
    )
    got, expected = (cpu.forward_backward(p, *single[1:]) for p in (potentials, wide))
    for ours, theirs in zip(
        (got.start, got.transitions, *got.durations),
        (expected.start, expected.transitions, *expected.durations),
        strict=True,
    ):
        assert abs(ours - theirs).max() <= 1e-6 * theirs.max()


def test_sequences_that_underflow_are_redone_in_the_log_domain():
    # The first three are forced through states of potential 1e-30 twice in a row.
    potentials, index, offsets = batch(4, 4, 2, [6, 4, 5, 7, 3], "explicit", np.float32)
    table = np.full((4, 4), 1e-30, np.float32)
    table[:, 0] = 1.0
    table[3] = 0.5
    forced = np.diag(np.ones(3, np.float32), 1)
    start = np.eye(4, dtype=np.float32)[0]
    potentials = potentials._replace(start=start, transitions=forced, emissions=table)
    index[15:] = 3
    index[:15] = index[:15] % 3
    data = potentials, index, offsets
    expected = reference.forward_backward(*data, squares=True)
    assert np.isfinite(expected.log_normalizers).all()
    got = cpu.forward_backward(*data, squares=True)
    assert_same(got, expected, 1e-5)
    np.testing.assert_allclose(cpu.log_normalizers(*data), expected.log_normalizers, rtol=1e-6)


@pytest.mark.parametrize("kernel", [reference, cpu], ids=["reference", "cpu"])
def test_a_sequence_without_a_possible_path_has_no_log_z(kernel):
    potentials, index, offsets = batch(4, 2, 2, [2, 8], "explicit")
    potentials = potentials._replace(transitions=np.zeros((2, 2)))  # eight steps are too many
    log_z = kernel.log_normalizers(potentials, index, offsets)
    assert np.isfinite(log_z[0])
    assert log_z[1] == -np.inf
    found = kernel.forward_backward(potentials, index, offsets)
    np.testing.assert_array_equal(found.log_normalizers, log_z)
    assert kernel.viterbi(potentials, index, offsets)[0][1] == -np.inf


@pytest.mark.parametrize("kernel", [reference, cpu], ids=["reference", "cpu"])
def test_log_potential_has_what_lies_within_states(kernel):
    data = batch(2, 3, 3, [7, 1, 12])
    plain = expanded(data[0]), *data[1:]
    found, copies = (kernel.forward_backward(*each) for each in (data, plain))
    assert kernel.log_potential(found, *data[:2]) == pytest.approx(
        kernel.log_potential(copies, *plain[:2]), rel=1e-10
    )


@pytest.mark.parametrize("kind", ["negative binomial", "both"])
@pytest.mark.parametrize("kernel", [reference, cpu], ids=["reference", "cpu"])
def test_tiles_are_parts_of_the_whole(kernel, kind):
    potentials, index, offsets = batch(3, 3, 3, [40, 7], kind)
    expected = reference.forward_backward(potentials, index, offsets, squares=True)
    # Buffers that reach both ends, so that edges are exact.
    counted = np.array([[0, 11, 0, 0], [11, 12, 0, 0], [12, 40, 0, 0], [0, 7, 0, 0]])
    pieces = np.concatenate([index[:40]] * 3 + [index[40:]])
    tiles = Tiles.of(np.array([0, 40, 80, 120, 127]), counted)
    tiled = TileKernel(kernel, tiles, 1)
    got = tiled.forward_backward(potentials, pieces, squares=True)
    parts = got.log_normalizers
    own = got._replace(
        log_normalizers=np.array([parts[:3].sum(), parts[3]]),
        responsibilities=got.responsibilities[tiles.steps.on(pieces)],
    )
    assert_same(own, expected, 1e-10)
    np.testing.assert_allclose(tiled.log_normalizers(potentials, pieces), parts, rtol=1e-10)
    best, _ = reference.viterbi(potentials, index, offsets)
    found = tiled.best_copies(potentials, pieces) // 3
    along, _ = reference.viterbi(*only(found, potentials, index, offsets))
    np.testing.assert_allclose(along, best, rtol=1e-10)
    assert tiled.are_settled(potentials, pieces, 1e-10)


def test_edges_of_tiles_are_exact_where_buffers_are_long_enough():
    potentials, index, offsets = batch(6, 3, 3, [1000])
    expected = reference.forward_backward(potentials, index, offsets)
    for buffer, settled in ((4, False), (400, True)):
        piece = index[500 - buffer : 510 + buffer]
        ends = np.array([0, len(piece)])
        counted = np.array([[buffer, buffer + 10, 500 - buffer, 490 - buffer]])
        tiled = TileKernel(cpu, Tiles.of(ends, counted), 1)
        assert tiled.are_settled(potentials, piece, 1e-9) == settled
        rows = tiled.forward_backward(potentials, piece).responsibilities
        error = abs(rows[buffer : buffer + 10] - expected.responsibilities[500:510]).max()
        assert (error < 1e-9) == settled


def test_inside_a_sequence_copies_have_their_stationary_distribution():
    potentials, *_ = batch(7, 4, 3, [1], "both")
    entry, stay, _ = potentials.durations
    rows = potentials.transitions / potentials.transitions.sum(axis=1, keepdims=True)
    proper = DurationPotentials(entry / entry.sum(axis=1, keepdims=True), stay, 1.0 - stay)
    potentials = potentials._replace(transitions=rows, durations=proper)
    found = lasting._inside(potentials)
    expected = stationary(expanded(potentials).transitions).reshape(4, 3)
    np.testing.assert_allclose(found / found.sum(), expected, rtol=1e-9)


def test_filtering_of_copies_is_smoothing_of_every_prefix():
    potentials, index, _ = batch(4, 3, 3, [9])
    found, densities, _ = filter_steps(expanded(potentials), index, np.array([0, 9]))
    found = found.reshape(9, 3, 3).sum(axis=2)
    for t in range(1, 10):
        prefix = index[:t], np.array([0, t])
        expected = reference.forward_backward(potentials, *prefix)
        np.testing.assert_allclose(found[t - 1], expected.responsibilities[-1], atol=1e-12)
        assert densities[:t].sum() == pytest.approx(expected.log_normalizers[0])


@pytest.mark.parametrize("kind", ["negative binomial", "both"])
def test_the_score_of_a_path_is_that_of_its_best_copies(kind):
    potentials, index, offsets = batch(8, 3, 3, [30, 1, 9], kind)
    best, states = reference.viterbi(potentials, index, offsets)
    for cuts in ([0, 40], [0, 1, 4, 5, 17, 30, 31, 33, 40]):  # groups of steps
        along, steps = _Along(), []
        for begin, end in itertools.pairwise(cuts):
            starts = offsets[:-1][(offsets[:-1] >= begin) & (offsets[:-1] < end)] - begin
            own = index[begin:end], states[begin:end], starts, end in offsets
            steps.append(along.log_joint(potentials, *own))
        found = np.add.reduceat(np.concatenate(steps), offsets[:-1])
        np.testing.assert_allclose(found, best, rtol=1e-12)


def test_what_takes_copies_refuses_states_that_last():
    data = batch(5, 2, 2, [5])
    with pytest.raises(NotImplementedError):
        filter_steps(*data)
    with pytest.raises(NotImplementedError):
        best_paths(*data, 2)
    with pytest.raises(NotImplementedError):
        path_probabilities(*data, np.zeros(5, np.int32))
