import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sojourn as sj
from sojourn.forms import as_sequences
from sojourn.results import restore_layout
from sojourn.sequences import Sequences, position

# The first example of a test may have to load compiled code.
quick = settings(deadline=None, max_examples=60)

int64 = st.integers(-(2**63), 2**63 - 1)
ragged_integers = st.lists(st.lists(int64, max_size=6), max_size=8)
ragged_floats = st.lists(st.lists(st.floats(), max_size=6), max_size=8)
filled_integers = st.lists(st.lists(int64, min_size=1, max_size=6), min_size=1, max_size=8)
some_lengths = st.lists(st.integers(0, 5), max_size=8)


def numbered(lengths, dtype=np.int64):
    """Sequences whose steps are all different, so that no mix-up goes unseen."""
    return Sequences.from_lengths(np.arange(sum(lengths)).astype(dtype), lengths)


def assert_same(sequences, expected):
    np.testing.assert_array_equal(sequences.values, expected.values)
    np.testing.assert_array_equal(sequences.offsets, expected.offsets)
    assert sequences.values.dtype == expected.values.dtype


# ---- lists in, lists out ----------------------------------------------------------------------


@quick
@given(ragged_integers)
def test_integer_lists_come_back(lists):
    data = Sequences.from_list(lists)
    assert [sequence.tolist() for sequence in data] == lists
    assert len(data) == len(lists)
    assert data.n_steps == sum(map(len, lists))
    # An empty list among them must not turn whole numbers into floats.
    assert data.values.dtype == np.int64 or not any(lists)


@quick
@given(ragged_floats)
def test_float_lists_come_back(lists):
    data = Sequences.from_list(lists)
    assert len(data) == len(lists)
    assert data.values.dtype == np.float64
    for sequence, expected in zip(data, lists, strict=True):
        np.testing.assert_array_equal(sequence, expected)


@quick
@given(st.lists(st.lists(st.text(st.characters(exclude_characters="\0"))), max_size=5))
def test_string_lists_come_back(lists):
    assert [sequence.tolist() for sequence in Sequences.from_list(lists)] == lists


def test_an_empty_sequence_takes_the_type_of_the_others():
    assert Sequences.from_list([[], ["a"]]).values.dtype.kind == "U"
    assert Sequences.from_list([[], [[1.0, 2.0]]]).values.shape == (1, 2)
    # 2**53 + 1 is the first whole number that a float64 cannot hold.
    assert Sequences.from_list([[], [2**53 + 1]])[1][0] == 2**53 + 1


def test_lists_of_empty_lists_and_no_lists_at_all():
    assert len(Sequences.from_list([])) == 0
    assert Sequences.from_list([[], []]).lengths.tolist() == [0, 0]


def test_from_list_takes_any_iterable():
    data = Sequences.from_list(range(n) for n in (2, 0, 3))
    assert data.values.tolist() == [0, 1, 0, 1, 2]
    assert data.lengths.tolist() == [2, 0, 3]


# ---- one data set in many forms ---------------------------------------------------------------


@quick
@given(
    filled_integers,
    st.sampled_from([np.int64, np.float64, np.float32]),
    st.integers(0, 8),
    st.integers(0, 3),
)
def test_all_forms_agree(lists, dtype, cut, extra):
    arrays = [np.array(items).astype(dtype) for items in lists]
    flat, lengths = np.concatenate(arrays), [len(array) for array in arrays]
    expected, layout = as_sequences(flat, lengths)
    assert layout == "flat"
    assert expected.values.dtype == dtype

    kind = pa.from_numpy_dtype(dtype)
    junk = [np.zeros(1, dtype)] * extra
    padded = [array.tolist() for array in [*junk, *arrays, *junk]]
    wide = pa.array(padded, pa.list_(kind))
    large = pa.array(padded, pa.large_list(kind))
    inner = slice(extra, extra + len(arrays))
    objects = np.empty(len(arrays), dtype=object)
    objects[:] = arrays
    forms = {
        "arrays": arrays,
        "array of arrays": objects,
        "tuple": tuple(arrays),
        "generator": (array for array in arrays),
        "arrow list": wide[inner],
        "arrow large list": large[inner],
        "arrow chunked": pa.chunked_array([wide[inner][:cut], wide[inner][cut:]]),
        "arrow chunked large": pa.chunked_array([large[inner][:cut], large[inner][cut:]]),
    }
    for name, data in forms.items():
        sequences, layout = as_sequences(data)
        assert layout == "list", name
        assert_same(sequences, expected)
    same, layout = as_sequences(expected)
    assert same is expected
    assert layout == "sequences"


@quick
@given(st.integers(1, 5), st.integers(2, 5))
def test_rows_of_an_array_agree_with_a_list_of_rows(n, length):
    rows = np.arange(n * length).reshape(n, length)
    sequences, layout = as_sequences(rows)
    assert layout == "rows"
    assert np.shares_memory(sequences.values, rows)
    assert_same(sequences, as_sequences(list(rows))[0])
    assert_same(sequences, as_sequences(rows.tolist())[0])


def test_rows_need_not_be_contiguous():
    rows = np.arange(12).reshape(4, 3)
    sequences, _ = as_sequences(rows.T)
    assert [sequence.tolist() for sequence in sequences] == rows.T.tolist()


def test_one_sequence_alone():
    for data in ([3, 1, 4], (3, 1, 4), np.array([3, 1, 4]), np.array([[3], [1], [4]])):
        sequences, layout = as_sequences(data)
        assert layout == "flat"
        assert len(sequences) == 1
        assert sequences.values.tolist() == [3, 1, 4]
    words, layout = as_sequences(["a", "bc"])
    assert layout == "flat"
    assert words.values.tolist() == ["a", "bc"]


def test_hmmlearn_column_with_lengths():
    column, _ = as_sequences(np.array([[3], [1], [4]]), [2, 1])
    assert_same(column, as_sequences([3, 1, 4], [2, 1])[0])


def test_strings_agree_in_all_forms():
    lists = [["a", "bc"], ["ä"]]
    expected = ["a", "bc", "ä"]
    forms = [
        (lists, None),
        (pa.array(lists), None),
        (expected, [2, 1]),
        (np.array(expected), [2, 1]),
    ]
    forms += [(np.array(expected, dtype=object), [2, 1]), (Sequences.from_list(lists), None)]
    for data, lengths in forms:
        sequences, _ = as_sequences(data, lengths)
        assert sequences.values.tolist() == expected
        assert sequences.offsets.tolist() == [0, 2, 3]


def test_vectors_agree_in_all_forms():
    steps = np.arange(12.0).reshape(6, 2)
    expected, layout = as_sequences(steps, [3, 3], step_ndim=1)
    assert layout == "flat"
    parts, layout = as_sequences([steps[:3], steps[3:]], step_ndim=1)
    assert layout == "list"
    assert_same(parts, expected)
    rows, layout = as_sequences(steps.reshape(2, 3, 2), step_ndim=1)
    assert layout == "rows"
    assert_same(rows, expected)
    one, layout = as_sequences(steps, step_ndim=1)
    assert layout == "flat"
    assert one.lengths.tolist() == [6]


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.float32(), pa.float64()]
)
@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
def test_from_arrow_does_not_copy_numbers(make, kind):
    array = pa.array([[9], [3, 1, 4], [1, 5], [9]], make(kind))
    for view in (array, array[1:3], pa.chunked_array([array])):
        assert np.shares_memory(Sequences.from_arrow(view).values, array.values.to_numpy())
    assert [s.tolist() for s in Sequences.from_arrow(array[1:3])] == [[3, 1, 4], [1, 5]]


# ---- parts of a container ---------------------------------------------------------------------

bound = st.none() | st.integers(-10, 10)


@quick
@given(some_lengths, bound, bound)
def test_slices_are_views_with_the_meaning_of_list_slices(lengths, begin, end):
    data = numbered(lengths)
    part = data[begin:end]
    assert [s.tolist() for s in part] == [s.tolist() for s in data][begin:end]
    assert part.offsets[0] == 0
    if part.n_steps:
        assert np.shares_memory(part.values, data.values)


@quick
@given(some_lengths)
def test_one_sequence_is_a_view_and_counts_from_the_end_too(lengths):
    data = numbered(lengths)
    for n, length in enumerate(lengths):
        assert len(data[n]) == length
        np.testing.assert_array_equal(data[n], data[n - len(data)])
        assert length == 0 or np.shares_memory(data[n], data.values)
    for outside in (len(data), -len(data) - 1):
        with pytest.raises(IndexError, match=f"sequence {outside} of {len(data)}"):
            data[outside]


def test_a_slice_with_a_stride_is_refused():
    with pytest.raises(ValueError, match=r"use take\(\)"):
        numbered([1, 2, 3])[::2]


KINDS = {
    "int32": lambda n: np.arange(n, dtype=np.int32),
    "int64": lambda n: np.arange(n),
    "float32": lambda n: np.arange(n, dtype=np.float32),
    "float64": lambda n: np.arange(n) / 7,
    "strided": lambda n: np.arange(2 * n)[::2],
    "unsigned": lambda n: np.arange(n, dtype=np.uint16),
    "half": lambda n: np.arange(n, dtype=np.float16),
    "foreign byte order": lambda n: np.arange(n, dtype=np.dtype("i4").newbyteorder()),
    "bool": lambda n: np.arange(n) % 3 == 0,
    "strings": lambda n: np.array([f"word {i}" for i in range(n)], dtype="U16"),
    "objects": lambda n: np.array([f"word {i}" for i in range(n)], dtype=object),
    "vectors": lambda n: np.arange(3 * n).reshape(n, 3) / 7,
}


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_take_equals_indexing_one_by_one(kind, data):
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    n = len(lengths)
    indices = data.draw(st.lists(st.integers(-n, n - 1), max_size=10))
    sequences = Sequences.from_lengths(KINDS[kind](sum(lengths)), lengths)
    taken = sequences.take(indices)
    assert len(taken) == len(indices)
    assert taken.values.dtype == sequences.values.dtype
    for got, n in zip(taken, indices, strict=True):
        np.testing.assert_array_equal(got, sequences[n])


def test_take_copies():
    data = numbered([2, 3])
    taken = data.take([0, 1])
    assert not np.shares_memory(taken.values, data.values)


def test_take_from_read_only_arrow_memory():
    data = Sequences.from_arrow(pa.array([[3, 1], [4, 1, 5]]))
    assert not data.values.flags.writeable
    assert data.take([1, 0]).values.tolist() == [4, 1, 5, 3, 1]


@pytest.mark.parametrize("indices", [[2], [-3], [0, 1, 2]])
def test_take_refuses_numbers_out_of_range(indices):
    with pytest.raises(IndexError, match="out of bounds"):
        numbered([1, 2]).take(indices)


@pytest.mark.parametrize("indices", [[0.5], [True, False], [[0]], 0, ["a"]])
def test_take_refuses_what_are_no_numbers_of_sequences(indices):
    with pytest.raises(IndexError, match="one-dimensional array of integers"):
        numbered([1, 2]).take(indices)


@quick
@given(some_lengths, st.integers(0, 12))
def test_chunks_cover_everything_in_order_within_the_limit(lengths, max_steps):
    data = numbered(lengths)
    chunks = list(data.chunks(max_steps))
    together = [s.tolist() for chunk in chunks for s in chunk]
    assert together == [s.tolist() for s in data]
    for chunk, later in itertools.zip_longest(chunks, chunks[1:]):
        assert len(chunk) >= 1
        assert chunk.n_steps <= max_steps or len(chunk) == 1
        # No chunk could have taken one sequence more.
        assert later is None or chunk.n_steps + later.lengths[0] > max_steps
        assert chunk.n_steps == 0 or np.shares_memory(chunk.values, data.values)


def test_with_values_keeps_the_boundaries():
    data = numbered([2, 1])
    other = data.with_values(np.array(["x", "y", "z"]))
    assert [s.tolist() for s in other] == [["x", "y"], ["z"]]
    with pytest.raises(ValueError, match="there are 2 steps"):
        data.with_values([1, 2])


def test_repr_tells_the_size():
    assert repr(numbered([2, 1])) == "Sequences(2 sequences, 3 steps, int64 of shape (3,))"


@quick
@given(st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_position_names_every_step(lengths):
    offsets = numbered(lengths).offsets
    for n, length in enumerate(lengths):
        for i in range(length):
            assert position(int(offsets[n]) + i, offsets) == f"sequence {n}, position {i}"


# ---- results go back in the form of the data --------------------------------------------------


@pytest.mark.parametrize("tail", [(), (2,)], ids=["one value per step", "a row per step"])
def test_results_for_flat_data_are_flat(tail):
    results = np.arange(5 * int(np.prod(tail))).reshape(5, *tail)
    for data in (np.arange(5), np.arange(5)[:, None]):
        sequences, layout = as_sequences(data, [3, 2])
        assert restore_layout(results, sequences, layout) is results


@pytest.mark.parametrize("tail", [(), (2,)], ids=["one value per step", "a row per step"])
def test_results_for_a_list_are_a_list(tail):
    results = np.arange(5 * int(np.prod(tail))).reshape(5, *tail)
    sequences, layout = as_sequences([[1, 2, 3], [4, 5]])
    restored = restore_layout(results, sequences, layout)
    assert isinstance(restored, list)
    np.testing.assert_array_equal(restored[0], results[:3])
    np.testing.assert_array_equal(restored[1], results[3:])


@pytest.mark.parametrize("tail", [(), (2,)], ids=["one value per step", "a row per step"])
def test_results_for_rows_are_rows(tail):
    results = np.arange(6 * int(np.prod(tail))).reshape(6, *tail)
    sequences, layout = as_sequences(np.arange(6).reshape(2, 3))
    restored = restore_layout(results, sequences, layout)
    assert restored.shape == (2, 3, *tail)
    np.testing.assert_array_equal(restored[1], results[3:])


def test_results_for_sequences_are_sequences():
    sequences, layout = as_sequences(numbered([3, 2]))
    restored = restore_layout(np.arange(5) * 10, sequences, layout)
    assert isinstance(restored, Sequences)
    assert restored[1].tolist() == [30, 40]


# ---- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "offsets", "message"),
    [
        ([1, 2], [[0, 2]], "one-dimensional array of integers"),
        ([1, 2], [], "not empty"),
        ([1, 2], [0.0, 2.0], "integers"),
        ([1, 2], [False, True], "integers"),
        (5, [0, 1], "values must be an array of steps"),
        ([1, 2], [1, 2], "run from 1 to 2, but there are 2 steps"),
        ([1, 2], [0, 1], "run from 0 to 1, but there are 2 steps"),
        ([1, 2], [0, 3], "run from 0 to 3, but there are 2 steps"),
        ([1, 2, 3], [0, 2, 1, 3], "sequence 1 ends before it begins"),
    ],
)
def test_constructor_refuses(values, offsets, message):
    with pytest.raises(ValueError, match=message):
        Sequences(values, offsets)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([1, 1], "lengths add up to 2, but there are 3 steps"),
        ([2, 2], "lengths add up to 4, but there are 3 steps"),
        ([], "lengths add up to 0, but there are 3 steps"),
        ([4, -1], "sequence 1 has the negative length -1"),
        ([1.0, 2.0], "one-dimensional array of integers"),
        ([[1, 2]], "one-dimensional array of integers"),
        (3, "one-dimensional array of integers"),
        ([2, 0, 1], r"sequence 1 is empty \(1 empty in all\)"),
    ],
)
def test_bad_lengths_are_refused(lengths, message):
    with pytest.raises(ValueError, match=message):
        as_sequences([1, 2, 3], lengths)


def test_sequences_with_lengths_are_refused():
    with pytest.raises(ValueError, match="lengths are not accepted with Sequences"):
        as_sequences(numbered([3]), [3])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "no data: not one sequence"),
        (np.empty((0, 3)), "no data"),
        (pa.array([], pa.list_(pa.int64())), "no data"),
        (Sequences([], [0]), "no data"),
        ([[1], [], []], r"sequence 1 is empty \(2 empty in all\)"),
        (np.empty(0), "sequence 0 is empty"),
        (pa.array([[1], []]), "sequence 1 is empty"),
        ([[1], ["a"]], "sequence 1 holds strings, sequence 0 holds numbers"),
        ([[], [1], ["a"]], "sequence 2 holds strings, sequence 1 holds numbers"),
        ([["a"], ["b", 2]], "sequence 1, position 1: a number among strings"),
        (["a", 2], "sequence 0, position 1: 2 is a number"),
        ([["a"], ["b", None]], "sequence 1, position 1: None is neither a number nor a string"),
        ([[0], [1, None]], "sequence 1, position 1: None is neither a number nor a string"),
        (
            np.array([0, 1], dtype=object),
            "sequence 0, position 0: 0 is a number among objects",
        ),
        ([[1], [[2, 3]]], r"sequence 1 has steps of shape \(2,\), sequence 0 of \(\)"),
        ([[[1], [2, 3]]], "sequence 0 has steps of different shapes"),
        ([1, [2, 3]], "different shapes"),
        (np.zeros((2, 2, 2)), r"must have 0 dimensions here, .* shape \(2, 2\)"),
        ([[[1, 2]], [[3, 4]]], r"must have 0 dimensions here, .* shape \(2,\)"),
        (pa.array([[1], None]), "sequence 1 is null"),
        (pa.array([[0], [1, None]]), "sequence 1, position 1: null"),
        (pa.array([[9], [0], [1, None]])[1:], "sequence 1, position 1: null"),
    ],
)
def test_bad_data_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        as_sequences(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "expected sequences, got NoneType"),
        (3, "expected sequences, got int"),
        ("a b", "got the string 'a b'"),
        (b"a b", "got the string b'a b'"),
        ({0: [1, 2]}, "got a dict"),
        ({1, 2}, "got a set"),
        ([[1], 2], "sequence 1 is a single value"),
        ([["a"], "b c"], "sequence 1 is the string 'b c': split it"),
        (pa.array([1, 2]), "expected a PyArrow list array, got int64"),
        (pa.table({"a": [[1]]}), "expected a PyArrow list array, got Table"),
        (pa.array([[[1]]]), "a step must be a number or a string, not list"),
    ],
)
def test_data_of_the_wrong_type_is_refused(data, message):
    with pytest.raises(TypeError, match=message):
        as_sequences(data)


def test_flat_data_of_the_wrong_form_with_lengths_is_refused():
    with pytest.raises(TypeError, match="expected sequences, got str"):
        as_sequences("abc", [3])
    with pytest.raises(ValueError, match="pass flat steps with lengths"):
        as_sequences([[0, 1], [1]], [2, 1])
    with pytest.raises(ValueError, match="sequence 1, position 0: 2 is a number"):
        as_sequences(["a", "b", 2], [2, 1])


def test_vectors_of_the_wrong_dimension_are_refused():
    with pytest.raises(ValueError, match="must have 1 dimensions here"):
        as_sequences(np.zeros((2, 3, 4)), [2], step_ndim=1)


def test_numbers_where_vectors_are_expected_are_vectors_of_one():
    for data, lengths, n in (
        ([1.0, 2.0, 3.0], [2, 1], 2),
        (np.array([1.0, 2.0, 3.0]), None, 1),
        ([np.array([1.0, 2.0]), np.array([3.0])], None, 2),
        ([[1.0, 2.0], [3.0]], None, 2),
        (pa.array([[1.0, 2.0], [3.0]]), None, 2),
        (Sequences(np.array([1.0, 2.0, 3.0]), [0, 2, 3]), None, 2),
    ):
        sequences, _ = as_sequences(data, lengths, step_ndim=1)
        assert sequences.values.tolist() == [[1.0], [2.0], [3.0]]
        assert len(sequences) == n


def test_masked_entries_become_missing_values():
    symbols = np.ma.array([3, 1, 4], mask=[False, True, False])
    assert as_sequences(symbols)[0].values.tolist() == [3, -1, 4]
    assert as_sequences([symbols, symbols[:1]])[0].values.tolist() == [3, -1, 4, 3]
    counts = np.ma.array([[3, 1], [4, 1]], mask=[[False, True], [False, False]])
    np.testing.assert_array_equal(
        as_sequences(counts, [2], step_ndim=1)[0].values, [[3, np.nan], [4, 1]]
    )
    np.testing.assert_array_equal(as_sequences([symbols], step_ndim=1)[0].values[1], [np.nan])


# ---- numbers that would index beyond the data --------------------------------------------------

BIG = 2**63 - 1


@pytest.mark.parametrize(
    "lengths",
    [
        [BIG, BIG, 7],
        [2**62, 2**62, 2**62, 2**62, 5],
        np.array([2**64 - 1, 6], np.uint64),
        np.array([2**63, 2**63, 5], np.uint64),
        [5, BIG],
    ],
)
def test_lengths_that_overflow_are_refused(lengths):
    with pytest.raises(ValueError, match=r"lengths add up to \d+, but there are 5 steps"):
        Sequences.from_lengths(np.arange(5), lengths)
    model = sj.HMM(2, sj.Categorical(5))
    with pytest.raises(ValueError, match="add up"):
        model.fit(np.arange(5), lengths)


@pytest.mark.parametrize(
    "offsets",
    [
        [0, BIG, -BIG, 5],
        [0, -(2**63), 5],
        [0, 7, 5],
        np.array([0, 2**63, 5], np.uint64),
        np.array([0, 2**64 - 1, 5], np.uint64),
    ],
)
def test_offsets_that_overflow_are_refused(offsets, tmp_path):
    with pytest.raises(ValueError, match="ends before it begins"):
        Sequences(np.arange(5), offsets)
    np.save(tmp_path / "x.npy", np.arange(5))
    np.save(tmp_path / "x.offsets.npy", offsets)
    with pytest.raises(sj.DataFileError, match=r"x\.offsets\.npy.* ends before it begins"):
        sj.open(tmp_path / "x.npy")


def test_arrow_lists_that_point_beyond_their_values_are_refused():
    offsets = pa.array([0, 50, 3], pa.int32()).buffers()[1]
    values = pa.array([1, 2, 3])
    array = pa.Array.from_buffers(pa.list_(pa.int64()), 2, [None, offsets], children=[values])
    with pytest.raises(ValueError, match="lists are damaged"):
        Sequences.from_arrow(array)


def test_masked_complex_numbers_are_refused():
    with pytest.raises(ValueError, match="Complex data not supported"):
        as_sequences(np.ma.array([1 + 2j, 3j], mask=[False, True]), step_ndim=1)


@pytest.mark.parametrize("odd", ["M8[s]", "m8[s]", "S3", "V4"])
def test_what_is_neither_number_nor_string_is_refused_by_name(odd):
    dates = np.zeros(2, odd)
    for data in ([dates, np.arange(2)], [np.arange(2), dates], dates, np.ma.array(dates)):
        with pytest.raises((TypeError, ValueError), match="numbers or strings, got"):
            as_sequences(data)
