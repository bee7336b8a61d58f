from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn import Sequences, Vocabulary

quick = settings(deadline=None, max_examples=60)

# Any string Python can hold: NUL, lone surrogates and the empty string too.
words = st.text(st.characters(exclude_categories=()), max_size=6)
sentences = st.lists(st.lists(words, max_size=6), max_size=6)
short_words = st.text("abc", min_size=1, max_size=2)  # few of them, so that they recur
short_sentences = st.lists(st.lists(short_words, max_size=8), max_size=6)


@quick
@given(sentences)
def test_encoding_and_decoding_gives_the_words_back(lists):
    vocabulary = Vocabulary.from_sequences(lists, unknown=None)
    encoded = vocabulary.encode(lists)
    assert encoded.values.dtype == np.int32
    assert vocabulary.decode(encoded) == lists
    assert [vocabulary.decode(sequence) for sequence in encoded] == lists


@quick
@given(st.lists(words, unique=True, max_size=8))
def test_every_word_has_its_place_as_symbol(unique):
    vocabulary = Vocabulary(unique)
    assert vocabulary.words == tuple(unique)
    assert len(vocabulary) == len(unique)
    assert [vocabulary[word] for word in unique] == list(range(len(unique)))
    assert all(word in vocabulary for word in unique)


@quick
@given(sentences, words)
def test_what_is_not_in_the_vocabulary_becomes_the_unknown_word(lists, unknown):
    vocabulary = Vocabulary([unknown], unknown)
    encoded = vocabulary.encode(lists)
    assert encoded.lengths.tolist() == [len(sentence) for sentence in lists]
    assert (encoded.values == 0).all()
    assert vocabulary.decode(encoded) == [[unknown] * len(sentence) for sentence in lists]


def test_an_unknown_word_has_the_symbol_of_the_unknown():
    vocabulary = Vocabulary(["a", "?", "b"], unknown="?")
    assert vocabulary["zebra"] == 1
    assert "zebra" not in vocabulary
    assert vocabulary.encode([["b", "zebra"]]).values.tolist() == [2, 1]


def test_without_unknown_word_the_error_names_sequence_and_position():
    vocabulary = Vocabulary(["a", "b"])
    with pytest.raises(ValueError, match="sequence 1, position 2: 'zebra' is not in the vocab"):
        vocabulary.encode([["a"], ["b", "a", "zebra"], ["b"]])
    with pytest.raises(KeyError, match="zebra"):
        vocabulary["zebra"]


@quick
@given(
    short_sentences, st.integers(1, 4), st.none() | st.integers(0, 5), st.sampled_from(["a", None])
)
def test_words_are_the_most_frequent_first_and_ties_alphabetical(
    lists, min_count, max_size, unknown
):
    vocabulary = Vocabulary.from_sequences(
        lists, min_count=min_count, max_size=max_size, unknown=unknown
    )
    counts = Counter(word for sentence in lists for word in sentence)
    expected = [word for word, n in counts.items() if n >= min_count and word != unknown]
    expected.sort(key=lambda word: (-counts[word], word))
    if unknown is not None:
        expected.insert(0, unknown)
    if max_size is not None:
        # The unknown word stays, whatever the size.
        expected = expected[: max(max_size, unknown is not None)]
    assert list(vocabulary.words) == expected
    assert vocabulary.unknown == unknown


def test_order_and_limits_by_hand():
    lists = [["c", "b", "a"], ["c", "b", "d"], ["c"]]
    assert Vocabulary.from_sequences(lists).words == ("<unk>", "c", "b", "a", "d")
    assert Vocabulary.from_sequences(lists, min_count=2).words == ("<unk>", "c", "b")
    assert Vocabulary.from_sequences(lists, max_size=2).words == ("<unk>", "c")
    assert Vocabulary.from_sequences(lists, max_size=2, unknown=None).words == ("c", "b")


def test_the_unknown_word_in_the_data_is_not_counted_twice():
    vocabulary = Vocabulary.from_sequences([["<unk>", "a"], ["<unk>"]])
    assert vocabulary.words == ("<unk>", "a")


@quick
@given(st.lists(words, unique=True, max_size=8), st.booleans())
def test_arrays_and_back(unique, with_unknown):
    unknown = unique[-1] if with_unknown and unique else None
    vocabulary = Vocabulary(unique, unknown)
    text, offsets = vocabulary.to_arrays()
    assert text.dtype == np.uint8
    assert offsets.dtype == np.int64
    assert offsets[-1] == len(text)
    assert Vocabulary.from_arrays(text, offsets, unknown) == vocabulary


def test_arrays_by_hand():
    # One, two, three and four bytes in UTF-8, and none.
    vocabulary = Vocabulary(["a", "", "ä", "語", "𝛼"])
    text, offsets = vocabulary.to_arrays()
    assert text.tobytes() == "aä語𝛼".encode()
    assert offsets.tolist() == [0, 1, 1, 3, 6, 10]
    assert Vocabulary.from_arrays(text, offsets, None).words == vocabulary.words


def test_a_word_twice_is_refused():
    with pytest.raises(ValueError, match="the word 'b' is in the vocabulary twice"):
        Vocabulary(["a", "b", "c", "b"])


def test_an_unknown_word_outside_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match=r"unknown word '\?' is not in the vocabulary"):
        Vocabulary(["a"], unknown="?")


def test_only_strings_are_words():
    with pytest.raises(TypeError, match="consists of strings, not 2"):
        Vocabulary(["a", 2])


def test_numbers_are_not_taken_for_unknown_words():
    vocabulary = Vocabulary(["a", "?"], unknown="?")
    with pytest.raises(ValueError, match="sequence 0, position 1: 2 is a number"):
        vocabulary.encode([["a", 2]])
    with pytest.raises(TypeError, match="expected strings, got int64"):
        vocabulary.encode(Sequences.from_list([[1, 2]]))


def test_a_string_in_place_of_a_sequence_is_refused():
    with pytest.raises(TypeError, match="sequence 1 is the string 'a b'"):
        Vocabulary(["a"], unknown="a").encode([["a"], "a b"])


@pytest.mark.parametrize("symbols", [[0, 2], [-1]])
def test_symbols_outside_the_vocabulary_are_refused(symbols):
    with pytest.raises(IndexError, match=f"symbol {symbols[-1]} is not one of the 2"):
        Vocabulary(["a", "b"]).decode(symbols)


def test_words_are_plain_strings_whatever_they_come_from():
    vocabulary = Vocabulary.from_sequences(Sequences.from_list([["a", "b"]]))
    assert {type(word) for word in vocabulary.words} == {str}


def test_sequences_of_all_kinds_of_strings_encode_alike():
    vocabulary = Vocabulary(["a", "ä"])
    lists = [["a", "ä"], ["ä"]]
    for data in (
        lists,
        [np.array(sentence) for sentence in lists],
        Sequences.from_list(lists),
        Sequences.from_arrow(pa.array(lists)),
    ):
        assert vocabulary.encode(data).values.tolist() == [0, 1, 1]
        assert vocabulary.encode(data).offsets.tolist() == [0, 2, 3]


def test_equality_and_hash_follow_words_and_unknown():
    one, same = Vocabulary(["a", "b"], "a"), Vocabulary(["a", "b"], "a")
    assert one == same
    assert hash(one) == hash(same)
    assert one != Vocabulary(["b", "a"], "a")
    assert one != Vocabulary(["a", "b"])
    assert one != ("a", "b")


def test_repr_is_short():
    assert repr(Vocabulary(["a", "b"], "a")) == "Vocabulary(2 words, unknown='a')"
