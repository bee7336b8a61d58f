import gzip
import re
import tracemalloc
from collections import Counter
from itertools import islice
from threading import active_count

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sojourn as sj
from sojourn.sources import ShuffledSource, base, shuffle, text
from sojourn.sources.ahead import read_ahead
from sojourn.sources.generate import Truth, draw_sentences, draw_truth, generate
from sojourn.sources.ingest import ingest, vocabulary_of
from sojourn.sources.iterable import IterableSource
from sojourn.sources.many import ManySource
from sojourn.sources.write import ParquetSink


def numbers(seed=0, n=300, n_symbols=30):
    rng = np.random.default_rng(seed)
    return [rng.integers(n_symbols, size=k).tolist() for k in rng.integers(1, 12, n)]


def as_lists(source):
    return [list(sequence) for piece in source for sequence in piece]


def as_words(data):
    return [[f"w{symbol}" for symbol in sequence] for sequence in data]


def write_text(path, data, compression=None):
    raw = "".join(" ".join(map(str, line)) + "\n" for line in data).encode()
    if compression == "gzip":
        raw = gzip.compress(raw)
    elif compression == "zstd":
        with pa.CompressedOutputStream(str(path), "zstd") as stream:
            stream.write(raw)
        return path
    path.write_bytes(raw)
    return path


def write_long(path, data, *, row_group_size=64):
    ids = np.repeat(np.arange(len(data)), [len(sequence) for sequence in data])
    table = pa.table({"id": ids, "x": np.concatenate(data)})
    pq.write_table(table, path, row_group_size=row_group_size)
    return path


def write_npy(path, data):
    np.save(path, np.concatenate(data).astype(np.int32))
    offsets = np.concatenate([[0], np.cumsum([len(sequence) for sequence in data])])
    np.save(path.with_suffix(".offsets.npy"), offsets)
    return path


def write_many(path, data):
    path.mkdir()
    pq.write_table(pa.table({"x": data[:100]}), path / "a.parquet", row_group_size=13)
    feather.write_feather(pa.table({"x": data[100:200]}), path / "b.feather", chunksize=7)
    write_npy(path / "c.npy", data[200:])
    (path / "_SUCCESS").touch()
    return path


def write_stream(path, data):
    table = pa.table({"x": data})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=17)
    return path


FORMATS = {
    "parquet": lambda p, d: pq.write_table(pa.table({"x": d}), p, row_group_size=32),
    "no statistics": lambda p, d: pq.write_table(pa.table({"x": d}), p, write_statistics=False),
    "one row group": lambda p, d: pq.write_table(pa.table({"x": d}), p),
    "large lists": lambda p, d: pq.write_table(
        pa.table({"x": pa.array(d, pa.large_list(pa.int64()))}), p
    ),
    "feather": lambda p, d: feather.write_feather(pa.table({"x": d}), p, chunksize=50),
    "lz4 feather": lambda p, d: feather.write_feather(pa.table({"x": d}), p, compression="lz4"),
    "arrow stream": write_stream,
    "npy": lambda p, d: write_npy(p.with_suffix(".npy"), d),
    "folder": write_many,
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_agree_with_one_another(tmp_path, name, monkeypatch):
    monkeypatch.setattr(base, "PIECE_STEPS", 100)
    data = numbers()
    path = tmp_path / "data"
    path = FORMATS[name](path, data) or path
    source = sj.open(path)
    assert as_lists(source) == data
    assert (source.n_sequences, source.n_steps) == (len(data), sum(map(len, data)))
    assert source.summary.n_symbols == 30
    whole = sj.HMM(3, sj.Categorical(), batch_size=None, n_passes=2, random_state=0)
    initial = sj.Statistics(np.ones(3), np.ones((3, 3)), np.eye(3, 30) + 1)
    whole.set_params(init=initial, dtype="float64")
    fitted = whole.fit(path)
    expected = sj.HMM(3, sj.Categorical(), batch_size=None, n_passes=2, init=initial,
                      dtype="float64", random_state=0).fit(data)  # fmt: skip
    np.testing.assert_allclose(fitted.transmat_, expected.transmat_, rtol=1e-9)
    assert fitted.score(source) == pytest.approx(expected.score(data), rel=1e-12)
    np.testing.assert_allclose(fitted.log_likelihood(path), expected.log_likelihood(data))


@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
def test_text_agrees_with_words_in_memory(tmp_path, compression, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 100)
    words = as_words(numbers())
    source = sj.open(write_text(tmp_path / "t", words, compression))
    assert as_lists(source) == words
    assert source.n_sequences == len(words)
    assert source.summary.vocabulary == sj.Vocabulary.from_sequences(words)
    fitted = sj.HMM(3, sj.Categorical(), batch_size=50, n_passes=2, random_state=0).fit(source)
    assert fitted.emission_.vocabulary == source.summary.vocabulary
    assert fitted.score(source) == pytest.approx(fitted.score(words))


def test_long_format_is_cut_where_the_id_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "PIECE_SEQUENCES", 5)
    data = [*numbers(), [1] * 500, [2]]
    path = write_long(tmp_path / "l.parquet", data)
    assert as_lists(sj.open(path, sequence="id")) == data
    assert as_lists(sj.open(path, sequence="id", column="x")) == data
    assert sj.open(path, sequence="id").n_sequences == len(data)


def test_several_columns_make_vectors(tmp_path):
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(k, 2)) for k in (3, 1, 4)]
    lists = {name: [list(x[:, c]) for x in data] for c, name in enumerate("ab")}
    pq.write_table(pa.table(lists), tmp_path / "v.parquet")
    found = sj.open(tmp_path / "v.parquet", column=["a", "b"]).read_all()
    np.testing.assert_array_equal(found.values, np.concatenate(data))
    flat = np.concatenate(data)
    ids = np.repeat([7, 5, 9], [3, 1, 4])
    pq.write_table(pa.table({"id": ids, "a": flat[:, 0], "b": flat[:, 1]}), tmp_path / "l.parquet")
    found = sj.open(tmp_path / "l.parquet", sequence="id", column=["a", "b"]).read_all()
    np.testing.assert_array_equal(found.values, flat)
    assert list(found.lengths) == [3, 1, 4]
    with ParquetSink(tmp_path / "w.parquet", "x") as sink:
        sink.write(found)
    again = sj.open(tmp_path / "w.parquet").read_all()
    np.testing.assert_array_equal(again.values, flat)
    np.testing.assert_array_equal(again.offsets, found.offsets)


def test_vectors_are_learned_from_a_file_as_from_memory(tmp_path):
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(k, 2)) + rng.integers(3) for k in rng.integers(2, 9, 200)]
    lists = {name: [list(x[:, c]) for x in data] for c, name in enumerate("ab")}
    pq.write_table(pa.table(lists), tmp_path / "v.parquet", row_group_size=30)
    source = sj.open(tmp_path / "v.parquet", column=["a", "b"])
    initial = sj.HMM(3, sj.Gaussian(), n_passes=1, random_state=0).fit(data).statistics_
    options = {"batch_size": None, "n_passes": 2, "init": initial, "dtype": "float64"}
    a, b = (sj.HMM(3, sj.Gaussian(), **options).fit(X) for X in (data, source))
    np.testing.assert_allclose(a.means_, b.means_, rtol=1e-9)
    assert a.score(data) == pytest.approx(b.score(source))


def test_a_pattern_and_lower_case(tmp_path):
    (tmp_path / "t.txt").write_bytes(b"\xef\xbb\xbfThe cat, the DOG.\r\n\r\n  \nEnd")
    assert as_lists(sj.open(tmp_path / "t.txt", pattern=r"\w+|[,.]", lower=True)) == [
        ["the", "cat", ",", "the", "dog", "."],
        ["end"],
    ]


def test_globs_and_folders_open_the_same(tmp_path):
    data = as_words(numbers())
    write_text(tmp_path / "a.txt", data[:100])
    write_text(tmp_path / "b.txt.gz", data[100:], "gzip")
    (tmp_path / ".hidden").write_text("no")
    assert isinstance(sj.open(tmp_path), ManySource)
    assert as_lists(sj.open(tmp_path)) == as_lists(sj.open(f"{tmp_path}/*.txt*")) == data


# ---- shuffling ----------------------------------------------------------------------------


def order_of_pass(path, n_pass, *, seed=0, batch_size=50, **options):
    batches = ShuffledSource(sj.open(path), batch_size, seed, **options).batches(n_pass)
    return [int(sequence[0]) for batch in batches for sequence in batch]


@pytest.fixture
def ordered(tmp_path):
    """Sequence n is [n]: a pass shows its order."""
    with ParquetSink(tmp_path / "n.parquet", "x") as sink:
        sink.write(sj.Sequences(np.arange(40_000), np.arange(40_001)))
    return tmp_path / "n.parquet"


def test_passes_are_permutations_that_follow_from_seed_and_pass(ordered):
    orders = [order_of_pass(ordered, n, seed=s) for s, n in ((0, 0), (0, 1), (1, 0))]
    for order in orders:
        assert sorted(order) == list(range(40_000))
    assert len(set(map(tuple, orders))) == 3
    assert order_of_pass(ordered, 1) == orders[1]


@pytest.mark.parametrize("start", [0, 1, 7, 100, 799, 800])
def test_a_pass_goes_on_in_the_middle(ordered, start):
    source = ShuffledSource(sj.open(ordered), 50, 0, buffer_sequences=5000)
    whole = [batch.values for batch in source.batches(3)]
    rest = [batch.values for batch in source.batches(3, start)]
    assert len(whole) == 800
    assert len(rest) == 800 - start
    for a, b in zip(whole[start:], rest, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_buffer_that_holds_everything_is_uniform(ordered):
    # Places of all sequences over many passes: the mean place of each tenth is the middle.
    places = np.argsort([order_of_pass(ordered, n) for n in range(20)], axis=1)
    tenths = places.reshape(20, 10, -1).mean(axis=(0, 2)) / 40_000
    np.testing.assert_allclose(tenths, 0.5, atol=0.005)
    steps = np.abs(np.diff(places, axis=1)).mean() / 40_000
    assert steps == pytest.approx(1 / 3, abs=0.005)  # neighbours are as far apart as any two


def test_a_small_buffer_on_sorted_data_is_close_to_uniform(ordered):
    """A buffer of 1/5 of the data, row groups of 1/40: the worst case, data in order."""
    options = {"buffer_sequences": 8_000, "batch_size": 500}
    orders = np.array([order_of_pass(ordered, n, **options) for n in range(40)])
    # Over passes, every sequence may come at any time.
    places = np.argsort(orders, axis=1) / 40_000
    # Row groups move as a whole, and there are 40: a correlation of 0.16 is one standard deviation.
    assert abs(np.corrcoef(np.arange(40_000), places.mean(axis=0))[0, 1]) < 0.5
    tenths = places.reshape(40, 10, -1).mean(axis=(0, 2))
    np.testing.assert_allclose(tenths, 0.5, atol=0.1)
    # Within a pass, a minibatch draws on at least 8 row groups: its mean varies as if that many
    # blocks had been drawn, and not as a run of the sorted file would (standard deviation 0.29).
    means = orders.reshape(40, 80, 500).mean(axis=2) / 40_000
    assert means.std() < 0.29 / np.sqrt(8)
    # Neighbours in the file land as far from one another as a third of what the buffer spans.
    apart = np.abs(np.diff(places, axis=1)).mean()
    assert apart > 0.2 / 3


def test_long_sequences_fill_the_buffer_by_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(shuffle, "BUFFER_BYTES", 10_000)
    path = tmp_path / "x.parquet"
    with ParquetSink(path, "x") as sink:
        for n in range(50):
            sink.write(sj.Sequences(np.full(1000, n), [0, 1000]))
    assert sorted(order_of_pass(path, 0, batch_size=3)) == list(range(50))


def peak_of_a_pass(path):
    source = sj.open(path)
    _ = source.summary
    tracemalloc.start()
    for _ in ShuffledSource(source, 100, 0, buffer_sequences=4000).batches(0):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_the_data(tmp_path):
    peaks = []
    for n in (20_000, 20_000, 160_000):  # the first one pays for what is loaded once
        path = generate(
            tmp_path / "g.parquet", n_sequences=n, n_states=2, n_symbols=9, overwrite=True
        )
        peaks.append(peak_of_a_pass(path))
    # Eight times the data; the longest of more fillings of the buffer is a little longer.
    assert peaks[2] < 1.25 * peaks[1]
    assert peaks[2] < 0.2 * sj.open(path).n_steps * 4


# ---- property tests -----------------------------------------------------------------------

# What whitespace separates cannot be in a word, and a lone surrogate is no UTF-8.
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(
    lambda word: len(word.split()) == 1 and word.split()[0] == word and "\ufeff" not in word
)
CORPORA = st.lists(st.lists(WORDS, min_size=1, max_size=6), min_size=1, max_size=30)
SLOW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SLOW
@given(
    CORPORA,
    st.sampled_from([None, "gzip", "zstd"]),
    st.integers(1, 40),
    st.integers(1, 10),
    st.integers(0, 3),
)
def test_any_sequences_survive_text_ingest_parquet_and_batches(
    tmp_path_factory, data, compression, batch_size, buffer_size, seed
):
    folder = tmp_path_factory.mktemp("ingest")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "BLOCK_BYTES", 16)
        patch.setattr("sojourn.sources.write.GROUP_SEQUENCES", 3)
        patch.setattr(base, "PIECE_SEQUENCES", 2)
        done = ingest(write_text(folder / "t", data, compression), folder / "t.parquet")
        assert done.n_sequences == len(data)
        source = sj.open(done.path)
        assert source.vocabulary == done.vocabulary == sj.Vocabulary.from_sequences(data)
        assert done.vocabulary.decode(source.read_all()) == data
        minibatches = ShuffledSource(source, batch_size, seed, buffer_sequences=buffer_size)
        for n_pass in range(3):
            pieces = []
            for batch in minibatches.batches(n_pass):
                pieces += [batch] if isinstance(batch, sj.Sequences) else list(batch)
            seen = [line for piece in pieces for line in done.vocabulary.decode(piece)]
            assert Counter(map(tuple, seen)) == Counter(map(tuple, data))


@SLOW
@given(st.lists(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), min_size=1))
def test_any_numbers_survive_every_format(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("numbers")
    pq.write_table(pa.table({"x": data}), folder / "a", row_group_size=4)
    feather.write_feather(pa.table({"x": data}), folder / "b")
    write_npy(folder / "c.npy", data)
    write_long(folder / "d", data, row_group_size=3)
    for source in (
        sj.open(folder / "a"),
        sj.open(folder / "b"),
        sj.open(folder / "c.npy"),
        sj.open(folder / "d", sequence="id"),
    ):
        assert as_lists(source) == data
        assert source.summary.n_symbols == max(map(max, data)) + 1
        ingest(source, folder / "out.parquet", overwrite=True)
        assert as_lists(sj.open(folder / "out.parquet")) == data


# ---- ingest -------------------------------------------------------------------------------


def test_ingest_keeps_the_vocabulary_that_was_asked_for(tmp_path):
    (tmp_path / "t.txt").write_text("The the a\nTHE b\na c\n")
    seen = []
    done = ingest(
        tmp_path / "t.txt", tmp_path / "t.parquet", lower=True, min_count=2, max_size=3,
        report=lambda *progress: seen.append(progress),
    )  # fmt: skip
    assert done.vocabulary.words == ("<unk>", "the", "a")
    assert [s[:1] for s in seen] == [("counting",), ("encoding",)]
    assert all(share == 1.0 and n == 3 for _, share, n in seen)
    assert vocabulary_of(done.path) == done.vocabulary
    (tmp_path / "h.txt").write_text("a b the\n")
    held_out = ingest(
        tmp_path / "h.txt", tmp_path / "h.parquet", vocabulary=done.vocabulary, lower=True
    )
    assert sj.open(held_out.path).read_all().values.tolist() == [2, 0, 1]
    model = sj.HMM(2, sj.Categorical(), n_passes=1, random_state=0)
    model.fit(done.path, validation=held_out.path)
    assert model.emission_.vocabulary == done.vocabulary
    assert model.history_[-1]["score"] == pytest.approx(
        model.score(["a", "b", "the"], per_step=True)
    )
    other = ingest(tmp_path / "h.txt", tmp_path / "o.parquet")
    with pytest.raises(sj.DataFileError, match="a different vocabulary from the model"):
        model.score(other.path)


def test_ingest_does_not_overwrite(tmp_path):
    (tmp_path / "t.txt").write_text("a b\n")
    ingest(tmp_path / "t.txt", tmp_path / "t.parquet")
    with pytest.raises(FileExistsError, match=r"t\.parquet exists already"):
        ingest(tmp_path / "t.txt", tmp_path / "t.parquet")
    ingest(tmp_path / "t.txt", tmp_path / "t.parquet", overwrite=True)
    with pytest.raises(ValueError, match="is the input file"):
        ingest(tmp_path / "t.parquet", tmp_path / "t.parquet", overwrite=True)


def test_row_groups_are_small_enough_to_shuffle(tmp_path):
    with ParquetSink(tmp_path / "x.parquet", "x") as sink:
        for _ in range(7):
            sink.write(sj.Sequences(np.zeros(3000, np.int32), np.arange(3001)))
    groups = pq.ParquetFile(tmp_path / "x.parquet").metadata
    sizes = [groups.row_group(g).num_rows for g in range(groups.num_row_groups)]
    assert sizes == [1024] * 20 + [520]


def test_counting_words_takes_bounded_memory(monkeypatch):
    monkeypatch.setattr(base, "MAX_WORDS", 100)
    counter = base.WordCounter()
    for n in range(200):
        counter.update(["the", "the", "cat", f"rare{n}", f"rarer{n}"])
        assert len(counter.counts) <= 100
    assert counter.counts["the"] == 400
    assert counter.counts["cat"] == 200


# ---- iterables ----------------------------------------------------------------------------


def test_an_iterable_is_learned_from_in_one_pass():
    data = numbers(n=3000)
    emission = sj.Categorical(30)
    model = sj.HMM(3, emission, batch_size=100, n_passes=1, random_state=0)
    model.fit(sj.open((line for line in data), total_sequences=3000))
    assert model.n_updates_ == 30
    assert model.history_[-1]["sequences"] == 3000
    assert model.statistics_.start.sum() == pytest.approx(3000, rel=1e-4)
    assert model.score(sj.open(iter(data), total_sequences=3000)) == pytest.approx(
        model.score(data)
    )


def test_iterables_need_their_total_and_one_pass():
    data = numbers(n=20)
    with pytest.raises(TypeError, match="an iterable needs total_sequences"):
        sj.open(iter(data))
    with pytest.raises(ValueError, match="give n_symbols or a vocabulary"):
        sj.HMM(2, sj.Categorical(), n_passes=1).fit(sj.open(iter(data), total_sequences=20))
    with pytest.raises(sj.DataFileError, match="read only once: set n_passes=1"):
        sj.HMM(2, sj.Categorical(30), n_passes=2).fit(sj.open(iter(data), total_sequences=20))
    with pytest.warns(UserWarning, match="gave 20 sequences, but total_sequences is 25"):
        sj.HMM(2, sj.Categorical(30), n_passes=1, batch_size=5).fit(
            sj.open(iter(data), total_sequences=25)
        )
    with pytest.raises(sj.DataFileError, match="from sequence 0: sequence 1 is a single value"):
        sj.open(iter([[1], 2]), total_sequences=2).read_all()
    assert isinstance(sj.open(data, total_sequences=20), IterableSource)


# ---- results to files ---------------------------------------------------------------------


def test_results_go_to_a_file_in_the_order_of_the_data(tmp_path, monkeypatch):
    monkeypatch.setattr("sojourn.results.CHUNK_STEPS", 16)
    monkeypatch.setattr("sojourn.data.CHUNK_STEPS", 16)
    data = numbers()
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"x": data}), path, row_group_size=32)
    model = sj.HMM(3, sj.Categorical(), n_passes=2, random_state=0).fit(path)
    expected_score, expected = model.decode(data)
    score, out = model.decode(path, out=tmp_path / "s.parquet")
    assert score == pytest.approx(expected_score)
    assert pq.read_table(out)["states"].to_pylist() == [list(states) for states in expected]
    out = model.predict_proba(sj.open(path), out=tmp_path / "p.parquet")
    found = sj.open(out).read_all()
    np.testing.assert_allclose(found.values, np.concatenate(model.predict_proba(data)), atol=1e-6)
    assert found.values.dtype == np.float32
    model.predict(data, out=tmp_path / "m.parquet")
    assert as_lists(sj.open(tmp_path / "m.parquet")) == [list(states) for states in expected]
    with pytest.raises(FileExistsError):
        model.predict(path, out=tmp_path / "s.parquet")
    with pytest.raises(ValueError, match="write them to a file with out="):
        model.predict(path)


def test_validation_within_a_pass(tmp_path):
    data = numbers()
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"x": data}), path)
    model = sj.HMM(3, sj.Categorical(), batch_size=50, n_passes=2, random_state=0)
    model.fit(path, validation=path, validation_every=4)
    assert [entry["updates"] for entry in model.history_] == [4, 6, 8, 12, 12]
    assert [round(entry["passes"], 2) for entry in model.history_] == [0.67, 1.0, 1.33, 2.0, 2.0]
    assert all(entry["score"] < 0 for entry in model.history_)


# ---- errors name the file and the place ---------------------------------------------------


def bad_parquet(path):
    pq.write_table(pa.table({"x": numbers()}), path)
    path.write_bytes(path.read_bytes()[:-100])


def broken_page(path):
    pq.write_table(pa.table({"x": numbers(n=3000)}), path, row_group_size=500, compression="zstd")
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 200] = bytes(200)
    path.write_bytes(raw)


def cut_gzip(path):
    write_text(path, as_words(numbers(n=5000)), "gzip")
    path.write_bytes(path.read_bytes()[:-50])


def cut_zstd(path):
    write_text(path, as_words(numbers(n=5000)), "zstd")
    path.write_bytes(path.read_bytes()[:-50])


def cut_npy(path):
    write_npy(path.with_suffix(".npy"), numbers())
    path.with_suffix(".npy").rename(path)
    path.with_suffix(".offsets.npy").rename(path.parent / "offsets.npy")
    path.write_bytes(path.read_bytes()[:-40])


def cut_arrow(path):
    feather.write_feather(pa.table({"x": numbers()}), path)
    path.write_bytes(path.read_bytes()[:-40])


def save_npy(path, array):
    with path.open("wb") as file:
        np.save(file, array)


def table(**columns):
    return lambda path: pq.write_table(pa.table(columns), path)


BAD = {
    "empty": (lambda p: p.touch(), {}, "bad is empty: 0 bytes"),
    "blank lines": (lambda p: p.write_text("\n \n"), {}, "bad: there is no data"),
    "bad bytes": (lambda p: p.write_bytes(b"a b\nc \xe9t\xe9\n"), {}, "bad, line 2, byte 6: 0xe9"),
    "UTF-16": (lambda p: p.write_text("a b", "utf-16"), {}, "bad, line 1, byte 0: 0xff is not"),
    "bad bytes, gzip": (
        lambda p: p.write_bytes(gzip.compress(b"a\n" * 200_000 + b"\xff")), {},
        "bad, line 200001, byte 400000: 0xff is not UTF-8",
    ),
    "cut Parquet": (bad_parquet, {}, r"bad: .*[Pp]arquet"),
    "damaged Parquet": (broken_page, {}, r"bad, row group \d: "),
    "cut gzip": (cut_gzip, {}, r"bad, after byte \d+ of the text: Truncated"),
    "cut zstd": (cut_zstd, {}, r"bad, after byte \d+ of the text: Truncated"),
    "cut npy": (cut_npy, {"offsets": "offsets.npy"}, "bad: "),
    "cut Arrow": (cut_arrow, {}, "bad: "),
    "npy alone": (lambda p: save_npy(p, np.arange(3)), {}, "bad has no offsets next to"),
    "objects": (
        lambda p: save_npy(p, np.array([None], object)), {"offsets": "bad"},
        "bad: .*[Oo]bject",
    ),
    "no such column": (table(x=[[1]]), {"column": "y"}, "bad has no column 'y': there are x"),
    "no such id": (table(x=[1]), {"sequence": "y"}, "bad has no column 'y': there are x"),
    "two list columns": (table(x=[[1]], y=[[1]]), {}, r"bad has 2 columns that could .*\(x, y\)"),
    "no list column": (table(x=[1]), {}, "bad has 0 columns that could"),
    "no list": (table(x=[1]), {"column": "x"}, "bad, column 'x': int64 is not a list"),
    "an empty sequence": (table(x=[[1], []]), {}, "bad, row group 0: sequence 1 is empty"),
    "a null": (table(x=[[1], None]), {}, "bad, row group 0: sequence 1 is null"),
    "a null step": (table(x=[[1, None]]), {}, "bad, row group 0: sequence 0, position 1: null"),
    "a null id": (table(i=[1, None], x=[1, 1]), {"sequence": "i"}, "column 'i' has missing values"),
    "ids in turns": (
        table(i=["a", "b", "a"], x=[1, 2, 3]), {"sequence": "i"},
        "row group 0: the rows of sequence 'a' are not adjacent",
    ),
    "nested": (table(x=[[[1]]]), {}, "bad, row group 0: a step must be a number"),
    "other lengths": (
        table(x=[[1]], y=[[1, 2]]), {"column": ["x", "y"]},
        "row group 0: column 'y' has different lengths from 'x'",
    ),
    "text options": (lambda p: p.write_text("a"), {"column": "x"}, "bad is read as text, for"),
    "zip": (lambda p: p.write_bytes(b"PK\x03\x04...."), {}, "bad is a zip archive"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_errors_name_the_file_and_the_place(tmp_path, name, monkeypatch):
    make, options, message = BAD[name]
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "bad")
    with pytest.raises(sj.DataFileError, match=message):
        list(sj.open("bad", **options).summary and sj.open("bad", **options))
    with pytest.raises(sj.DataFileError, match=message):
        ingest("bad", "out.parquet", **options)
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_files_of_different_kinds_do_not_mix(tmp_path):
    write_text(tmp_path / "a.txt", [["x"]])
    pq.write_table(pa.table({"x": [[1]]}), tmp_path / "b.parquet")
    with pytest.raises(sj.DataFileError, match=r"b\.parquet, row group 0: numbers, but words in"):
        list(sj.open(tmp_path))
    (tmp_path / "c").mkdir()
    with pytest.raises(sj.DataFileError, match="has no data files"):
        sj.open(tmp_path / "c")
    for name, word in (("a", "x"), ("b", "y")):
        write_text(tmp_path / "t.txt", [[word]])
        ingest(tmp_path / "t.txt", tmp_path / "c" / f"{name}.parquet")
    with pytest.raises(sj.DataFileError, match=r"b\.parquet has a different vocabulary from"):
        sj.HMM(2, sj.Categorical()).fit(tmp_path / "c")


@pytest.mark.parametrize("method", ["fit", "score", "predict", "predict_proba"])
def test_a_file_that_is_not_there(tmp_path, method):
    model = sj.HMM(2, sj.Categorical(3), n_passes=1).fit([[0, 1]])
    for path in (tmp_path / "none", "no/such.parquet"):
        with pytest.raises(FileNotFoundError, match="there is no file, folder or pattern"):
            getattr(model, method)(path)


def test_vectors_are_no_symbols(tmp_path):
    pq.write_table(pa.table({"x": [[0.5]], "y": [[1.5]]}), tmp_path / "v")
    with pytest.raises(sj.DataFileError, match=r"v, row group 0: Categorical takes one value"):
        sj.HMM(2, sj.Categorical()).fit(sj.open(tmp_path / "v", column=["x", "y"]))
    with pytest.raises(ValueError, match="number of symbols is not known"):
        sj.HMM(2, sj.Categorical()).fit(sj.open(tmp_path / "v", column="x"))
    with pytest.raises(sj.DataFileError, match=r"v, row group 0: .*0\.5 is not a symbol"):
        sj.HMM(2, sj.Categorical(3)).fit(sj.open(tmp_path / "v", column="x"))


def test_partial_fit_takes_no_files(tmp_path):
    path = write_text(tmp_path / "t.txt", [["a"]])
    for data in (path, str(path), sj.open(path)):
        with pytest.raises(TypeError, match="fit takes files and sources"):
            sj.HMM(2, sj.Categorical()).partial_fit(data, total_sequences=1)


def test_a_bad_symbol_in_a_file_is_named(tmp_path):
    pq.write_table(pa.table({"x": [[0]] * 100 + [[1, 7]]}), tmp_path / "d", row_group_size=100)
    model = sj.HMM(2, sj.Categorical(5), batch_size=10)
    with pytest.raises(
        sj.DataFileError, match="d, row group 1: sequence 0, position 1: symbol 7 is outside"
    ):
        model.fit(tmp_path / "d")


def test_a_text_that_grows_is_noticed(tmp_path):
    path = write_text(tmp_path / "t", as_words(numbers()))
    source = sj.open(path)
    _ = source.summary
    with path.open("a") as file:
        file.write("more\n")
    with pytest.raises(sj.DataFileError, match="t has changed since it was opened"):
        list(source)


# ---- reading ahead ------------------------------------------------------------------------


def test_reading_ahead_is_bounded_and_its_thread_ends():
    made = []

    def items():
        for n in range(1000):
            made.append(n)
            yield n

    before = active_count()
    ahead = read_ahead(items(), depth=3)
    assert list(islice(ahead, 2)) == [0, 1]
    ahead.close()
    assert len(made) <= 2 + 3 + 2
    assert active_count() == before


def test_what_goes_wrong_ahead_is_raised():
    def items():
        yield 1
        raise ValueError("no more")

    ahead = read_ahead(items())
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="no more"):
        next(ahead)


def test_fit_leaves_no_thread_behind_when_it_fails(tmp_path):
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"x": numbers(n=5000)}), path)

    def fail(progress):
        raise RuntimeError("stop")

    sj.HMM(2, sj.Categorical(), batch_size=10, n_passes=1).fit(path)
    before = active_count()
    with pytest.raises(RuntimeError, match="stop"):
        sj.HMM(2, sj.Categorical(), batch_size=10, n_passes=1).fit(path, callback=fail)
    assert active_count() == before


# ---- the generator ------------------------------------------------------------------------


def test_generated_sentences_follow_the_truth(tmp_path):
    path = generate(
        tmp_path / "g.parquet",
        n_sequences=20_000,
        n_states=3,
        n_symbols=200,
        n_held_out=500,
        seed=4,
    )
    truth = Truth.load(tmp_path / "g.truth.safetensors")
    data = sj.open(path).read_all()
    assert len(data) == 20_000
    assert data.lengths.mean() == pytest.approx(22, rel=0.02)
    assert (data.lengths.min(), data.lengths.max() <= 120) == (1, True)
    first = np.bincount(data.values[data.offsets[:-1]], minlength=200) / 20_000
    np.testing.assert_allclose(first, truth.start @ truth.emissions, atol=0.012)
    long = data.lengths > 1
    second = np.bincount(data.values[data.offsets[:-1][long] + 1], minlength=200) / long.sum()
    expected = truth.start @ truth.transitions @ truth.emissions
    np.testing.assert_allclose(second, expected, atol=0.012)
    held_out = sj.open(tmp_path / "g.held-out.parquet").read_all()
    assert len(held_out) == 500
    assert not np.array_equal(held_out.values[:100], data.values[:100])


def test_words_are_distributed_as_zipf_says():
    truth = draw_truth(45, 20_000, seed=0)
    frequencies = np.sort(truth.emissions.mean(axis=0))[::-1]
    ranks = np.arange(10, 3000)
    slope = np.polyfit(np.log(ranks), np.log(frequencies[ranks]), 1)[0]
    assert -1.3 < slope < -0.8


def test_a_seed_gives_the_same_sentences():
    truth = draw_truth(3, 50, seed=0)
    a, b, c = (next(draw_sentences(truth, 50, seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a.values, b.values)
    assert not np.array_equal(a.values[:50], c.values[:50])


def test_messages_hold_no_object_addresses():
    assert not re.search("0x[0-9a-f]{6}", repr(sj.open([[1]], total_sequences=1)))
