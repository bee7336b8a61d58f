"""Words by compiled functions are those of Python."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sojourn as sj
from sojourn.kernels.cpu.words import WordList, WordTable
from sojourn.sources import base, text
from sojourn.sources.ingest import ingest
from sojourn.sources.tokens import CodedCounter, coded_words

BLANKS = " \t\r\v\f\x1c\x1f\x85\xa0\u2003\u2028\u3000\n\n"
TEXTS = st.text(st.sampled_from("aAbß\x00\u0130\ud800ſ\U0001f600" + BLANKS))


def plain(codes, words):
    words = words.strings()
    return [[words[code] for code in sequence] for sequence in codes]


@settings(deadline=None)
@given(TEXTS)
def test_words_are_those_of_split(lines):
    expected = [words for words in map(str.split, lines.split("\n")) if words]
    codes, words = coded_words(lines)
    assert plain(codes, words) == expected
    assert len(set(words.strings())) == len(words.strings())
    assert codes.values.dtype == np.int32


def test_every_character_is_a_blank_or_not_as_in_python():
    characters = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]
    for some in (characters, characters[:128], [c for c in characters[:128] if not c.isspace()]):
        line = "a".join(c for c in some if c != "\n")
        codes, words = coded_words(line)
        assert plain(codes, words) == [line.split()]


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("n_bytes", [1, 7, 2**22])
def test_blocks_of_any_size_count_and_encode_the_same_words(tmp_path, monkeypatch, lower, n_bytes):
    monkeypatch.setattr(text, "CODED_BYTES", n_bytes)
    monkeypatch.setattr(base, "_WORTH_COMPILING", 0)
    lines = "\ufeffThe cat\n\n ΟΔΟΣ İ\tthe \xa0 CAT\nthe"
    texts, folder = tmp_path / "texts", tmp_path
    texts.mkdir()
    (texts / "a.txt").write_bytes(lines.encode())
    (texts / "b.txt").write_bytes(b"cat dog\n")
    # A pattern is matched by Python, word by word.
    whole = ingest(texts, folder / "x.parquet", lower=lower, pattern=r"\S+")
    coded = ingest(texts, folder / "y.parquet", lower=lower)
    assert coded[1:] == whole[1:]
    found, expected = sj.open(coded.path).read_all(), sj.open(whole.path).read_all()
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.offsets, expected.offsets)


def test_a_word_that_is_not_in_the_vocabulary_is_named_with_its_place(tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_text("a b\na c b\n")
    for worth_compiling in (0, 2**20):
        monkeypatch.setattr(base, "_WORTH_COMPILING", worth_compiling)
        with pytest.raises(ValueError, match=r"t.txt, from byte 0: sequence 1, position 1: .c. is"):
            ingest(tmp_path / "t.txt", tmp_path / "o.parquet", vocabulary=sj.Vocabulary(["a", "b"]))
        assert not (tmp_path / "o.parquet").exists()


WORDS = st.text(st.sampled_from("ab\x00\ud800é"), min_size=1, max_size=20)


@settings(deadline=None)
@given(st.lists(st.lists(WORDS, unique=True), max_size=4))
def test_words_get_numbers_in_the_order_in_which_they_are_added(lists):
    table, known = WordTable(), {}
    for words in lists:
        expected = [known.get(word, -1) for word in words]
        assert table.numbers(WordList.of(words)).tolist() == expected
        expected = [known.setdefault(word, len(known)) for word in words]
        assert table.numbers(WordList.of(words), add=True).tolist() == expected
    assert table.words().strings() == list(known)


def test_a_table_grows_and_tells_long_words_apart():
    words = [f"{'x' * (n % 19)}{n}" for n in range(50_000)]
    codes, found = coded_words(" ".join(words + words[::-1]))
    assert found.strings() == words
    np.testing.assert_array_equal(codes.values[:50_000], codes.values[:-50_001:-1])
    table = WordTable()
    for part in (words[:10], words[10:20_000], words[20_000:]):
        table.numbers(WordList.of(part), add=True)
    np.testing.assert_array_equal(table.numbers(WordList.of(words)), np.arange(50_000))
    vocabulary = sj.Vocabulary(["", *words[:3]], unknown="")  # an empty word is one, if given
    assert vocabulary.coded_encoder()(codes[:1], found).values[:5].tolist() == [1, 2, 3, 0, 0]


def test_rare_words_are_dropped_where_there_are_too_many():
    counter = CodedCounter(max_words=2)
    for line in ("a b a", "c a", "d e f"):
        codes, words = coded_words(line)
        counter.update(codes.values, words)
    assert counter.counts == {"a": 3}
    assert counter.forgotten >= 1
