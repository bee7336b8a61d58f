"""Long sequences: tiles in training, in memory, from files, resumed, and piece by piece."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sojourn as sj
from sojourn.kernels import Potentials, reference
from sojourn.moves.judge import Move
from sojourn.sources.npy import NpyValues
from sojourn.sources.steps import file_steps

LENGTHS = [3000, 400]


class KilledError(Exception):
    """Ends a training."""


def kill_at(updates):
    def callback(progress):
        if progress.updates == updates:
            raise KilledError

    return callback


def chain(rng, n_steps, n_states=3, stay=0.95):
    states = np.empty(n_steps, int)
    states[0] = 0
    moves = rng.random(n_steps) > stay
    for t in range(1, n_steps):
        states[t] = rng.integers(n_states) if moves[t] else states[t - 1]
    return states


@pytest.fixture(scope="module")
def recording():
    rng = np.random.default_rng(0)
    states = chain(rng, sum(LENGTHS))
    return rng.normal(4.0 * states[:, None], 1.0, (len(states), 2))


def tiled(cls=sj.HMM, **options):
    usual = {"tile_length": 64, "batch_size": 8, "n_passes": 3, "random_state": 0}
    return cls(3, options.pop("emission", sj.DiagonalGaussian()), **usual | options)


def same(one, other):
    np.testing.assert_array_equal(one.transmat_, other.transmat_)
    np.testing.assert_array_equal(one.statistics_.emissions, other.statistics_.emissions)


def test_history_has_the_size_of_the_buffers(recording):
    model = tiled().fit(recording, LENGTHS)
    assert all(entry["buffer"] >= 8 for entry in model.history_)
    assert tiled(buffer=5).fit(recording, LENGTHS).history_[-1]["buffer"] == 5
    assert tiled(buffer=None).fit(recording, LENGTHS).history_[-1]["buffer"] == 1
    assert model.n_updates_ == 3 * -(-(47 + 6) // 8)
    assert model.history_[-1]["steps"] == 3 * sum(LENGTHS)
    assert model.statistics_.start.sum() == pytest.approx(2.0, rel=0.1)
    assert model.statistics_.transitions.sum() == pytest.approx(sum(LENGTHS) - 2, rel=0.1)
    uncut = tiled(tile_length=None, batch_size=None).fit(recording, LENGTHS)
    assert uncut.history_[-1]["buffer"] is None


def test_a_buffer_grows_where_states_are_remembered_for_long():
    rng = np.random.default_rng(1)
    symbols = (rng.random(6000) < 0.4 + 0.2 * chain(rng, 6000, 2, stay=0.98)).astype(int)
    sizes = []
    for stay in (0.6, 0.98):
        rows = 1000.0 * np.array([[stay, 1.0 - stay], [1.0 - stay, stay]])
        known = sj.Statistics([1.0, 1.0], rows, [[600.0, 400.0], [400.0, 600.0]])
        model = sj.HMM(2, sj.Categorical(2), tile_length=64, n_passes=1, init=known)
        sizes.append(model.fit(symbols).history_[0]["buffer"])
    assert sizes[0] == 8
    assert sizes[1] >= 32


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cls": sj.HDPHMM},
        {"cls": sj.HDPHMM, "stickiness": "learned", "tuned": True},
        {"stickiness": "learned", "moves": "auto"},
        {"inference": "svi"},
        {"inference": "vb", "batch_size": "auto", "n_passes": 3},
        {"emission": sj.AutoregressiveGaussian(order=2)},
        {"batch_size": "auto", "n_passes": "auto"},
    ],
)
def test_it_learns_and_does_not_depend_on_threads(recording, options):
    missing = recording.copy()
    missing[50:60] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sj.FitWarning)
        one, two = (tiled(**options, n_jobs=n).fit(missing, LENGTHS) for n in (1, 2))
    same(one, two)
    alone = recording.var(axis=0)
    if "emission" not in options:
        gaussians = -0.5 * np.log(2 * np.pi * np.e * alone).sum()
        assert one.score(missing, LENGTHS) / sum(LENGTHS) > gaussians + 0.3


def test_training_begins_with_more_states_and_ends_with_those_asked_for(recording):
    model = tiled(batch_size="auto", n_passes="auto").fit(recording, LENGTHS)
    sizes = [entry["states"] for entry in model.history_]
    assert (sizes[0], sizes[-1], len(model.transmat_)) == (9, 3, 3)
    assert sizes == sorted(sizes, reverse=True)
    moves = [move for entry in model.history_ for move in entry["moves"]]
    assert [move["n_states"] for move in moves] == [8, 7, 6, 5, 4, 3, 3]
    assert [move["kind"] for move in moves] == ["merge"] * 6 + ["exchange"]
    assert not moves[-1]["accepted"]
    assert model.converged_
    np.testing.assert_allclose(np.sort(model.means_[:, 0]), [0.0, 4.0, 8.0], atol=0.3)


def test_an_exchange_that_lowers_a_given_score_is_refused(recording, monkeypatch):
    def all_alike(data, posterior, *rest, **more):
        move = Move("exchange", [[0], [1, 2]], 1.0, 0.0, True, posterior.n_states)
        return posterior.regrouped(np.full((3, 3), 1 / 3)), [move]

    def fit(exchange):
        monkeypatch.setattr("sojourn.moves.narrow.exchange_on", exchange)
        known = sj.Sequences.from_lengths(recording, LENGTHS)
        model = tiled(batch_size="auto", n_passes="auto")
        return model.fit(recording, LENGTHS, validation=known)

    refused, untried = fit(all_alike), fit(lambda *_, **__: (None, []))
    same(refused, untried)
    (move,) = [m for entry in refused.history_ for m in entry["moves"] if m["kind"] == "exchange"]
    assert not move["accepted"]


def test_a_resumed_run_is_the_same(recording, tmp_path):
    for options in ({}, {"cls": sj.HDPHMM, "batch_size": "auto", "n_passes": "auto"}):
        straight = tiled(**options).fit(recording, LENGTHS)
        for updates in (2, 5, straight.n_updates_ - 3):
            folder = tmp_path / f"{len(options)}-{updates}"
            with pytest.raises(KilledError):
                tiled(**options).fit(
                    recording,
                    LENGTHS,
                    checkpoint=folder,
                    checkpoint_every=1,
                    callback=kill_at(updates),
                )
            resumed = tiled(**options).fit(recording, LENGTHS, checkpoint=folder, resume=True)
            same(straight, resumed)
            buffers = [entry["buffer"] for entry in straight.history_]
            assert buffers == [entry["buffer"] for entry in resumed.history_]


@pytest.fixture
def files(recording, tmp_path):
    """The recording in every form of which parts can be read, and how to open it."""
    np.save(tmp_path / "x.npy", recording)
    np.save(tmp_path / "x.offsets.npy", np.cumsum([0, *LENGTHS]))
    np.save(tmp_path / "columns.npy", np.asfortranarray(recording))
    np.save(tmp_path / "columns.offsets.npy", np.cumsum([0, *LENGTHS]))
    ids = np.repeat([0, 1], LENGTHS)
    table = pa.table({"id": ids, "a": recording[:, 0], "b": recording[:, 1]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=700)
    with pa.ipc.new_file(tmp_path / "x.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=700)
    rows = zip(ids.tolist(), *recording.T.tolist(), strict=True)
    lines = ["id,a,b", *(f"{i},{a!r},{b!r}" for i, a, b in rows)]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize("name", ["x.npy", "columns.npy", "x.parquet", "x.arrow", "x.csv"])
def test_files_give_what_memory_gives(recording, files, name):
    options = {} if name.endswith("npy") else {"column": ["a", "b"], "sequence": "id"}
    source = sj.open(files / name, **options)
    assert (source.n_sequences, source.n_steps) == (2, sum(LENGTHS))
    found, expected = tiled().fit(source), tiled().fit(recording, LENGTHS)
    np.testing.assert_allclose(found.statistics_.emissions, expected.statistics_.emissions)
    if name != "columns.npy":  # sums over other memory layouts differ in the last bit
        same(found, expected)


def test_all_steps_of_a_file_are_one_sequence(recording, tmp_path):
    np.save(tmp_path / "one.npy", recording)
    source = sj.open(tmp_path / "one.npy", sequence=False)
    assert source.n_sequences == 1
    same(tiled().fit(source), tiled().fit(recording))
    with pytest.raises(sj.DataFileError, match="no column 'id'"):
        sj.open(tmp_path / "one.npy", sequence="id")


def test_a_file_is_read_by_parts(recording, files, monkeypatch):
    read, largest = NpyValues.read, []

    def watched(self, begins, lengths):
        largest.append(int(np.sum(lengths)))
        return read(self, begins, lengths)

    monkeypatch.setattr(NpyValues, "read", watched)
    monkeypatch.setattr("sojourn.sources.npy.PIECE_STEPS", 512)
    monkeypatch.setattr(
        "sojourn.sources.npy.NpySource.opened", lambda self: pytest.fail("a whole sequence")
    )
    tiled(buffer=10).fit(sj.open(files / "x.npy"))
    assert 0 < max(largest) <= 8 * (96 + 20)


def test_a_bad_step_of_a_file_is_named(recording, files):
    bad = recording.copy()
    bad[3200] = np.inf
    np.save(files / "x.npy", bad)
    steps = file_steps(sj.open(files / "x.npy"), sj.DiagonalGaussian(2).accept)
    assert len(steps.spans(np.array([3190]), np.array([10]))) == 1
    with pytest.raises(sj.DataFileError, match=r"from step 150 of sequence 1: .*position 50.*inf"):
        steps.spans(np.array([0, 3150]), np.array([10, 100]))


def test_tiles_need_data_that_can_be_read_again(recording):
    source = sj.open(iter([recording]), total_sequences=1)
    with pytest.raises(ValueError, match="can be read once"):
        tiled().fit(source)


# ---- piece by piece -----------------------------------------------------------------------------


def test_a_piece_that_continues_counts_what_it_adds_to_the_sequence():
    rng = np.random.default_rng(0)
    whole, n = rng.integers(4, size=90), 50
    options = {"emission": sj.Categorical(4, 0.1), "forgetting_rate": 0.0, "dtype": "float64"}
    model = tiled(**options).partial_fit(whole[:n], total_sequences=1, total_steps=90)
    before = model.statistics_
    assert before.transitions.sum() == pytest.approx((n - 1) * 90 / n)
    model.partial_fit(whole[n:], continues=True)
    rows = [0.1 + part for part in (before.start, before.transitions, before.emissions)]
    start, transitions, emissions = (row / row.sum(axis=-1, keepdims=True) for row in rows)
    potentials = Potentials(start, transitions, emissions.T)
    own = reference.forward_backward(potentials, whole, np.array([0, 90])).responsibilities[n:]
    expected = own.T @ np.eye(4)[whole[n:]] * 90 / 40
    found = model.statistics_
    np.testing.assert_allclose(found.emissions, expected, rtol=1e-10)
    np.testing.assert_allclose(found.transitions.sum(axis=0), expected.sum(axis=1), rtol=1e-10)
    np.testing.assert_array_equal(found.start, before.start)


def test_a_piece_that_continues_has_its_past(recording):
    options = {"emission": sj.AutoregressiveGaussian(order=2), "forgetting_rate": 0.0}
    model = tiled(**options).partial_fit(recording[:300], total_sequences=1, total_steps=400)
    model.partial_fit(recording[300:400], continues=True)
    assert model.statistics_.emissions[:, 0].sum() == pytest.approx(400.0)  # no step without a past


def test_pieces_say_what_they_need(recording):
    with pytest.raises(ValueError, match="needs a call of partial_fit before"):
        tiled().partial_fit(recording, total_sequences=1, total_steps=9999, continues=True)
    model = tiled().partial_fit(recording[:100], total_sequences=1)
    with pytest.raises(ValueError, match="needs total_steps"):
        model.partial_fit(recording[100:], continues=True)
    with pytest.raises(ValueError, match="total_steps=10"):
        model.partial_fit(recording[100:], continues=True, total_steps=10)
