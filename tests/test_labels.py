"""Labels of steps in every form, and how they travel with the data."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sojourn as sj
from sojourn.labels import Labels, Naming, flattened, from_masks, kind_of
from sojourn.sources.base import joined

NAMES = ("rest", "walk", "run")
OFFSETS = np.array([0, 2, 5])


def one_hot(states, n_states):
    """The masks that labels mean, step by step."""
    rows = [np.ones(n_states) if k < 0 else np.eye(n_states)[k] for k in states]
    return np.array(rows)


@pytest.mark.parametrize(
    "given",
    [
        [2, -1, 0, 1, -1],
        np.array([2.0, -1.0, 0.0, 1.0, -1.0]),
        ["run", None, "rest", "walk", None],
        np.array(["run", "", "rest", "walk", ""]),
        ["run", -1, 0, {1}, frozenset(NAMES)],
    ],
)
def test_numbers_names_and_sets_mean_the_same_masks(given):
    labels = Naming(NAMES).encode(flattened(given, np.diff(OFFSETS)), OFFSETS)
    np.testing.assert_array_equal(labels.masks(3), one_hot([2, -1, 0, 1, -1], 3))


def test_states_beyond_those_with_labels_are_possible_where_nothing_is_known_alone():
    labels = Naming(NAMES).encode(np.array([1, -1]))
    np.testing.assert_array_equal(labels.masks(5), [[0, 1, 0, 0, 0], [1, 1, 1, 1, 1]])
    labels = Naming(NAMES).encode(np.array([{0, 1}], dtype=object))
    np.testing.assert_array_equal(labels.masks(5), [[1, 1, 0, 0, 0]])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0, 1, 3, 0, 0], "sequence 1, position 0: the label 3 is not a state"),
        ([0, -2, 1, 0, 0], "sequence 0, position 1: the label -2 is not a state"),
        ([0, 0.5, 1, 0, 0], "sequence 0, position 1: the label 0.5 is not a whole number"),
        ([0, 1, 1, 0, float("nan")], "sequence 1, position 2: the label nan is not a whole"),
        (["rest", "walk", "rest", "jump", "run"], "sequence 1, position 1: the label 'jump' is"),
        ([0, set(), 1, 1, 1], "sequence 0, position 1: .* an empty set"),
        ([0, {7}, 1, 1, 1], "sequence 0, position 1: .* not a set of states"),
        ([0, True, 1, None, 1], "sequence 0, position 1: the label True"),
    ],
)
def test_a_bad_label_is_refused_with_its_place(given, message):
    with pytest.raises(ValueError, match=message):
        Naming(NAMES).encode(flattened(given, np.diff(OFFSETS)), OFFSETS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0, 1], "there are 5 steps, and 2 labels"),
        ([[0, 1], [0, 1]], "sequence 1 has 3 steps, and 2 labels"),
        ([[0, 1], [0, 1], [1]], "labels of 3 sequences, and 2"),
        (3, "one label per step"),
        ("abcde", "one label per step"),
    ],
)
def test_labels_of_another_length_are_refused(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        flattened(given, np.diff(OFFSETS))


def test_labels_come_flat_or_in_the_form_of_the_data():
    lengths = np.array([2, 2])
    for form in ([0, 1, 1, 0], [[0, 1], [1, 0]], np.array([[0, 1], [1, 0]]), ((0, 1), (1, 0))):
        np.testing.assert_array_equal(flattened(form, lengths), [0, 1, 1, 0])
    masks = np.arange(12.0).reshape(2, 2, 3)
    for form in (masks, masks.reshape(4, 3), list(masks), masks.reshape(4, 3).tolist()):
        np.testing.assert_array_equal(flattened(form, lengths), masks.reshape(4, 3))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ((3, 1, 1.5), r"sequence 1, position 1: the mask has a weight outside"),
        ((3, 1, np.nan), r"sequence 1, position 1: the mask has a weight outside"),
        ((1, slice(None), 0.0), r"sequence 0, position 1: the mask allows no state"),
    ],
)
def test_a_bad_mask_is_refused_with_its_place(changed, message):
    masks = np.random.default_rng(0).random((5, 3))
    np.testing.assert_array_equal(from_masks(masks, 3, OFFSETS).masks(3), masks)
    with pytest.raises(ValueError, match="shape"):
        from_masks(masks, 4, OFFSETS)
    masks[changed[0], changed[1]] = changed[2]
    with pytest.raises(ValueError, match=message):
        from_masks(masks, 3, OFFSETS)


def test_masks_that_repeat_are_kept_once():
    labels = from_masks(np.tile([[0.2, 1.0], [1.0, 0.0]], (50, 1)), 2, np.array([0, 100]))
    assert len(labels.table) == 3
    assert labels.codes.dtype == np.int32


def test_names_and_the_largest_number_are_found():
    assert kind_of(np.array([0, 4, -1])) == (5, set())
    assert kind_of(np.array(["b", "", "a"])) == (0, {"a", "b"})


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    seed=st.integers(0, 1000),
    data=st.data(),
)
@settings(deadline=None, max_examples=40)
def test_labels_and_weights_travel_with_their_steps(lengths, seed, data):
    """The values say which label and weight a step must have, whatever is done to the data."""
    total = sum(lengths)
    labels = Labels(np.arange(total, dtype=np.int32) % 7, np.ones((7, 3)))
    weights = np.arange(1.0, len(lengths) + 1)
    known = sj.Sequences.from_lengths(np.arange(total), lengths).with_known(labels, weights)
    of_step = np.repeat(weights, lengths)
    rng = np.random.default_rng(seed)

    def check(part):
        assert part.labels is not None
        np.testing.assert_array_equal(part.labels.codes, part.values % 7)
        np.testing.assert_array_equal(part.weights, of_step[part.values[part.offsets[:-1]]])

    numbers = rng.integers(len(lengths), size=data.draw(st.integers(1, 9)))
    begin = data.draw(st.integers(0, len(lengths) - 1))
    check(known.take(numbers))
    check(known[begin:])
    for chunk in known.chunks(4):
        check(chunk)
    check(joined([known[: begin + 1], known.take(numbers)]))
    firsts = known.offsets[:-1][numbers]
    check(known.spans(firsts, np.ones(len(numbers), np.int64)))
    check(known.with_offsets(np.arange(total + 1)))
    check(known.with_values(known.values))


def test_labels_with_different_tables_are_joined_with_both():
    one = Naming(NAMES).encode(np.array([0, -1]))
    two = Naming(NAMES).encode(np.array([{0, 2}, 1], dtype=object))
    together = Labels.joined([one, two])
    np.testing.assert_array_equal(together.masks(3), np.vstack([one.masks(3), two.masks(3)]))


def test_states_with_names_are_called_by_them():
    X = [[0, 1, 0, 1, 1, 1], [2, 2]]
    y = [["b", "a", "b", "a", "a", None], ["b", "b"]]
    model = sj.HMM(3, sj.Categorical(3), random_state=0).fit(X, y=y)
    assert model.state_names_ == ["a", "b", "2"]
    paths = model.predict(X, y=y, names=True)
    assert [list(path[:5]) for path in paths] == [["b", "a", "b", "a", "a"], ["b", "b"]]
    with pytest.raises(ValueError, match="names=True returns paths in memory"):
        model.predict(X, names=True, out="x.parquet")


def test_equal_rows_of_masks_are_kept_once():
    rng = np.random.default_rng(0)
    some = np.vstack([rng.random((6, 3)), [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0]]])
    masks = some[rng.integers(len(some), size=200)]
    found = from_masks(masks, 3, np.array([0, 200]))
    np.testing.assert_array_equal(found.masks(3), masks)
    assert len(found.table) == 1 + len(some)


@pytest.mark.parametrize("n_kinds", [1, 3, 40, 400])
@pytest.mark.parametrize("n_states", [1, 2, 9])
def test_distinct_masks_are_those_of_numpy(n_kinds, n_states):
    from sojourn.kernels.cpu.masks import distinct_masks

    rng = np.random.default_rng(n_kinds)
    kinds = rng.integers(0, 11, (n_kinds, n_states)) / 10.0 + 1e-9 * rng.random((n_kinds, 1))
    kinds = np.clip(kinds, 1e-12, 1.0)
    weights = kinds[rng.integers(n_kinds, size=300)]
    numbers, firsts, outside, empty = distinct_masks(weights)
    np.testing.assert_array_equal(weights[firsts][numbers], weights)
    expected = len(np.unique(weights, axis=0))
    assert len(firsts) == (expected if 2 * expected <= len(weights) + 1 else len(weights))
    assert (outside, empty) == (-1, -1)
    for odd in (np.nan, np.inf, -0.1, 1.1):
        weights[200:, 0], weights[100] = odd, 0.0
        assert distinct_masks(weights)[2:] == (200, 100)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_states", [1, 2, 7, 8, 13, 16])
def test_rows_are_multiplied_by_masks_and_what_is_lost_is_found(n_states, dtype):
    from sojourn.kernels.cpu.masks import mask_all_pairs, mask_in_place

    rng = np.random.default_rng(n_states)
    masks = rng.random((5, n_states))
    masks[0], masks[2] = 1.0, 0.0
    for width in (n_states, n_states + 3):
        for n_rows in (1, 6, 9000):  # of one unit of work, and of several
            table = rng.random((n_rows, width)).astype(dtype)
            codes = rng.integers(5, size=n_rows).astype(np.int32)
            expected = table.copy()
            expected[:, :n_states] *= masks.astype(dtype)[codes]
            lost = mask_in_place(table, masks, codes, n_threads=2)
            np.testing.assert_array_equal(table, expected)
            np.testing.assert_array_equal(lost, np.flatnonzero(codes == 2))
    table, index = rng.random((4, n_states)).astype(dtype), rng.integers(4, size=50)
    codes = rng.integers(5, size=50)
    products, numbers, lost = mask_all_pairs(table, index, masks, codes)
    expected = table[index] * masks.astype(dtype)[codes]
    np.testing.assert_array_equal(products[numbers], expected)
    np.testing.assert_array_equal(lost, np.arange(8, 12))
