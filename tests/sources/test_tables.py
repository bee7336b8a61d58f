"""Tables of text and columns of tables: what separates cells, what cells are, ids, times, words."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sojourn as sj
from sojourn.sources import csv_table
from sojourn.sources.csv_text import looks_like_table, sniff
from sojourn.sources.profile import profile
from sojourn.sources.split import split, split_end
from sojourn.sources.tables import ParquetTable


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("decimal", [".", ","])
@settings(max_examples=10, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(-999, 999), st.integers(-9, 9)), min_size=2, max_size=9))
def test_any_delimiter_and_decimal_sign_gives_the_same_numbers(
    tmp_path_factory, delimiter, decimal, rows
):
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    cells = [(f"{a}{decimal}25", f"{b}{decimal}5") for a, b in rows]
    quote = '"' if decimal == delimiter else ""
    lines = [delimiter.join(f"{quote}{cell}{quote}" for cell in row) for row in cells]
    path.write_text("\n".join([delimiter.join("ab"), *lines]) + "\n")
    found = sj.open(path, column=["a", "b"], sequence=False).read_all().values
    expected = [[float(cell.replace(",", ".")) for cell in row] for row in cells]
    np.testing.assert_array_equal(found, expected)


def test_one_column_with_decimal_commas_has_no_delimiter(tmp_path):
    (tmp_path / "t.csv").write_text("temp\n12,5\n13,0\n-1,25\n")
    found = sj.open(tmp_path / "t.csv", column="temp", sequence=False).read_all()
    assert found.values.tolist() == [12.5, 13.0, -1.25]
    assert sniff(b"a,b\n1,2\n").delimiter == ","
    assert not looks_like_table(b"the cat, the dog\nand a bird\n")


def test_one_cell_that_is_no_number_is_named_and_may_be_missing(tmp_path):
    cells = [f"{n / 10}" for n in range(1000)]
    cells[500] = "-"
    (tmp_path / "t.csv").write_text("temp,word\n" + "".join(f"{c},a\n" for c in cells))
    with pytest.raises(sj.DataFileError, match=r"row 501, column 'temp': '-' is not a number, and "
                       r"999 of 1,000 cells are: .*missing='-'"):  # fmt: skip
        sj.open(tmp_path / "t.csv", column="temp", sequence=False)
    found = sj.open(tmp_path / "t.csv", column="temp", sequence=False, missing="-").read_all()
    assert np.flatnonzero(np.isnan(found.values)).tolist() == [500]
    # A column of which fewer are numbers is one of words.
    cells[:100] = ["x"] * 100
    (tmp_path / "w.csv").write_text("temp\n" + "\n".join(cells) + "\n")
    words = sj.open(tmp_path / "w.csv", column="temp", sequence=False).read_all()
    assert words.values[0] == "x"


def test_latin_1_comes_with_the_remedy(tmp_path):
    of_city = {"column": "city", "sequence": False}
    for name, text, options in (
        ("t.csv", "city;x\nZürich;1,5\nBern;2\n", of_city),
        ("t.txt", "in Zürich\n", {}),
    ):
        path = tmp_path / name
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(sj.DataFileError, match=r"0xfc is not UTF-8 .* encoding='latin-1'"):
            sj.open(path, **options).read_all()
    found = sj.open(tmp_path / "t.csv", column="city", sequence=False, encoding="latin-1")
    assert found.read_all().values.tolist() == ["Zürich", "Bern"]
    assert "Zürich" in sj.open(tmp_path / "t.txt", encoding="latin-1").read_all().values
    (tmp_path / "u.csv").write_bytes("a;b\n1,5;2\n".encode("utf-16"))
    assert sj.open(tmp_path / "u.csv", column="a", sequence=False).read_all().values == [1.5]


def test_a_table_of_text_is_converted_once(tmp_path, monkeypatch):
    """However often it is read afterwards, and also where it is kept in a temporary file."""
    path = tmp_path / "t.csv"
    path.write_text("i,x\n" + "".join(f"{n // 10},{n}.5\n" for n in range(100)))
    calls = []
    stream = csv_table.CsvTable._stream

    def counted(self, *args, **options):
        calls.append(self)
        return stream(self, *args, **options)

    monkeypatch.setattr(csv_table.CsvTable, "_stream", counted)
    kept = sj.open(path, column="x", sequence="i")
    monkeypatch.setattr(csv_table, "IN_MEMORY", 0)
    large = sj.open(path, column="x", sequence="i")
    n_calls = len(calls)
    for _ in range(3):
        for source in (kept, large):
            assert source.read_all().values.tolist() == [n + 0.5 for n in range(100)]
            assert source.n_sequences == 10
    assert len(calls) == n_calls
    calls.clear()
    folder = large._table._file.path.parent
    assert [file.name for file in folder.iterdir()] == ["table.arrow"]
    copy = pickle.loads(pickle.dumps(large))
    assert copy.read_all().n_steps == 100
    calls.clear()
    del large, source, copy
    assert not folder.exists()


def test_times_must_not_fall_within_a_sequence(tmp_path):
    pq.write_table(pa.table({"s": [0, 0, 1, 1], "t": [1, 2, 1, 0], "x": [1.0, 2, 3, 4]}),
                   tmp_path / "t.parquet")  # fmt: skip
    source = sj.open(tmp_path / "t.parquet", column="x", sequence="s", time="t")
    with pytest.raises(sj.DataFileError, match="row 4: 't' is 0, earlier than in the row before"):
        source.read_all()
    assert sj.open(tmp_path / "t.parquet", column="x", sequence="s", drop="t").n_steps == 4


def test_words_among_numbers_are_symbols_in_every_way_of_reading(tmp_path):
    rng = np.random.default_rng(0)
    z = np.repeat(np.arange(20) % 2, 10)
    table = pa.table({
        "s": np.repeat(np.arange(4), 50), "x": rng.normal(z * 6.0),
        "w": np.where(rng.random(200) < 0.1, "fog", np.where(z == 1, "sun", "rain")),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet")
    family = sj.Product(sj.Gaussian(), sj.Categorical())
    model = sj.HMM(2, family, random_state=0, n_passes=5, n_init=1)
    source = sj.open(tmp_path / "t.parquet", column=["x", "w"], sequence="s")
    by_file = model.fit(source).score(source)
    assert set(model.emission_.parts[1].vocabulary.words) == {"<unk>", "sun", "rain", "fog"}
    by_frame = model.fit(table, sequence="s").score(table)
    assert by_file == pytest.approx(by_frame, rel=1e-5)
    # The words of the model count, not those of the file: here they come in another order.
    turned = table.slice(100).append_column("n", pa.array(np.zeros(100)))
    pq.write_table(turned, tmp_path / "other.parquet")
    other = sj.open(tmp_path / "other.parquet", column=["x", "w"], sequence="s")
    assert model.score(other) == pytest.approx(model.score(table.slice(100)), rel=1e-6)
    model.save(tmp_path / "m.sojourn")
    assert sj.load(tmp_path / "m.sojourn").score(table) == pytest.approx(by_frame, rel=1e-6)
    with pytest.raises(TypeError, match="column 'w' has words, and Gaussian takes numbers"):
        sj.HMM(2, sj.Gaussian()).fit(source)
    numbers = sj.HMM(2, sj.Gaussian(), n_passes=2, n_init=1).fit(rng.normal(size=(20, 2)))
    with pytest.raises(ValueError, match="column 'w' has words, where the model has numbers"):
        numbers.score(source)


def test_columns_that_count_rows_or_do_not_change_are_found(tmp_path):
    n = np.arange(40)
    table = pa.table({
        "s": n // 20, "t": n % 20, "year": 1900 + n, "half": 0.1 * (n % 20), "group": n // 20 * 7,
        "uneven": n**2, "x": (n * 7) % 5,
    })  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=7)  # differences across batches
    found = profile(ParquetTable(tmp_path / "t.parquet"), table.column_names[1:], "s")
    assert [name for name, of in found.items() if of.is_constant] == ["group"]
    assert [n for n, of in found.items() if of.is_even] == ["t", "year", "half", "group"]
    assert [n for n, of in found.items() if of.is_rising] == ["t", "year", "half", "uneven"]
    assert profile(ParquetTable(tmp_path / "t.parquet"), ["s", "x"], None)["s"].is_id


@pytest.mark.parametrize("n_sequences", [2, 3, 7])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.99])
def test_each_part_of_few_sequences_has_one(tmp_path, n_sequences, share):
    pq.write_table(pa.table({"v": [[n, n] for n in range(n_sequences)]}), tmp_path / "t.parquet",
                   row_group_size=2)  # fmt: skip
    for seed in range(5):
        train, held_out = split(sj.open(tmp_path / "t.parquet"), share, seed)
        wanted = min(max(1, round(share * n_sequences)), n_sequences - 1)
        assert held_out.n_sequences == wanted
        together = [*train.read_all().values, *held_out.read_all().values]
        assert sorted(together) == sorted(2 * list(range(n_sequences)))


def test_the_end_of_a_single_sequence_is_split_off(tmp_path):
    pq.write_table(pa.table({"x": np.arange(50.0)}), tmp_path / "t.parquet", row_group_size=7)
    whole = sj.open(tmp_path / "t.parquet", column=["x"], sequence=False)
    train, held_out = split_end(whole, 12)
    assert train.read_all().values[:, 0].tolist() == list(range(38))
    assert held_out.read_all().values[:, 0].tolist() == list(range(38, 50))
    pieces = [block.sequences.values for block, _ in pickle.loads(pickle.dumps(train)).stretches()]
    assert np.concatenate(pieces)[:, 0].tolist() == list(range(38))
    assert [goes_on for _, goes_on in train.stretches()].count(False) == 1
