"""States differentiate in small minibatches where training would have too few updates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sojourn as sj
from experiments.number_of_states import without_moves
from sojourn.inference import Position, Progress
from sojourn.moves.settings import MoveSettings
from sojourn.moves.warmup import FirstMinibatches, WarmUp, in_pieces
from sojourn.progress import LiveProgress
from sojourn.sources import MemorySource
from tests.support.cluster.data import write_parquet
from tests.support.known_states import simulate
from tests.support.proposals import moves_of

SETTINGS = MoveSettings()


@pytest.fixture(scope="module")
def symbols():
    return simulate("categorical", 4, 1, n_train=600)


@pytest.fixture(scope="module")
def found(symbols):
    family, drawn = symbols
    # A number of passes asks for minibatches, where the library would take data so small whole.
    return sj.HDPHMM(8, family, n_passes=10, random_state=0).fit(drawn.train)


def plan(family, n_sequences=2000, n_states=30, n_steps=70_000, n_batches=2, *, grows=False):
    return WarmUp.plan(
        family, n_states, n_sequences, n_steps, n_batches, grows=grows, settings=SETTINGS
    )


# ---- the plan -----------------------------------------------------------------------------------


def test_little_data_are_seen_several_times_and_more_data_once():
    numbers, few = sj.Gaussian(n_features=2), sj.Categorical(100)
    assert plan(numbers) == WarmUp(10, 50, 40)
    assert plan(few) == WarmUp(20, 14, 143)
    assert plan(few, grows=True) == WarmUp(40, 14, 143)
    assert plan(few, n_states=90).batch_size == 21  # as many steps as eight a state have
    assert plan(few, 100_000, n_steps=3_500_000) == WarmUp(1, 34, 2942)
    # Of a large alphabet a small minibatch has too little.
    assert plan(sj.Categorical(20_000), 14_000, 45, 230_000).batch_size == 80


def test_what_has_enough_minibatches_needs_none():
    family = sj.Gaussian(n_features=2)
    assert plan(family, n_batches=39) is not None
    assert plan(family, n_batches=40) is None  # ten passes have 400 updates
    assert plan(family, 20_000, n_steps=700_000, n_batches=40) is None
    assert plan(family, 50, n_steps=255, n_states=2, n_batches=1) is None
    assert plan(family, 50, n_steps=256, n_states=2, n_batches=1) is not None


def test_of_much_data_a_part_is_enough():
    family = sj.Gaussian(n_features=2)
    whole = plan(family, 10**6, n_steps=SETTINGS.warmup_max_steps)
    part = plan(family, 10**7, n_steps=10 * SETTINGS.warmup_max_steps)
    assert part == whole
    assert part.n_batches * part.batch_size < 1.01e6


def test_only_the_first_minibatches_of_every_pass_are_seen():
    data = sj.Sequences.from_list([[n] for n in range(10)])
    whole = MemorySource(data, 2, 0)
    first = FirstMinibatches(whole, 3, 6)
    for n_pass in range(2):
        expected = [batch.values.tolist() for batch in whole.batches(n_pass)][:3]
        assert [batch.values.tolist() for batch in first.batches(n_pass)] == expected
        assert [batch.values.tolist() for batch in first.batches(n_pass, 2)] == expected[2:]
    assert first.n_sequences == 6


@given(
    st.integers(1, 3000),
    st.integers(1, 200),
    st.integers(1, 40),
    st.integers(1, 120),
    st.booleans(),
    st.integers(2, 5000),
)
def test_a_minibatch_has_eight_steps_a_state_and_a_warm_up_more_updates_than_ten_passes(
    n_sequences, n_states, length, n_batches, grows, n_symbols
):
    family = sj.Categorical(n_symbols)
    n_steps = n_sequences * length
    found = plan(family, n_sequences, n_states, n_steps, n_batches, grows=grows)
    if found is not None:
        assert found.batch_size * length >= 8 * n_states
        assert found.n_passes * n_sequences > 10 * n_batches * found.batch_size
        assert 1 <= found.n_passes <= 40


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(1, 12))
def test_pieces_are_the_same_steps(lengths, most):
    data = sj.Sequences.from_lengths(np.arange(sum(lengths)), lengths)
    pieces = in_pieces(data, most)
    assert pieces.lengths.max() <= most
    assert set(data.offsets) <= set(pieces.offsets)
    np.testing.assert_array_equal(pieces.values, data.values)
    assert len(pieces) == sum(-(-n // most) for n in lengths)


# ---- in training --------------------------------------------------------------------------------


def test_the_defaults_find_the_states_of_a_few_hundred_sequences(symbols, found):
    _, drawn = symbols
    assert found.n_states_ == 4
    assert found.score(drawn.test, per_step=True) > drawn.truth_score - 0.02
    family = found.emission
    cold = sj.HDPHMM(8, family, init="segments", n_passes=10, random_state=0)
    cold.fit(drawn.train)
    assert cold.score(drawn.test, per_step=True) < drawn.truth_score - 0.1


def test_passes_and_updates_are_those_asked_for_and_the_first_tells_of_the_warm_up(found):
    assert [entry["passes"] for entry in found.history_] == list(range(1, 11))
    assert found.history_[-1]["updates"] == found.n_updates_ == 10
    first = found.history_[0]
    assert any(move["accepted"] for move in first["moves"])
    assert 0.0 < first["move_seconds"] < first["seconds"]
    assert found.fitted_.move_state.warmed_up


def test_the_first_pass_tells_of_its_own_proposals_too():
    early, late = ({"kind": kind} for kind in ("merge", "split"))
    warm = [
        Progress(1.0, 5, 9, 3, 0.5, None, states=4, moves=[early], move_seconds=0.25),
        Progress(2.0, 10, 18, 6, 1.0, None, states=3),
    ]
    at = Position.warmed_up(warm)
    assert (at.seconds, at.n_pass, at.updates) == (1.0, 0, 0)
    entry = Progress(1.0, 5, 9, 1, 2.0, None, states=3, moves=[late], move_seconds=0.5)
    ended = at.ended_pass(entry).ended_pass(entry._replace(passes=2.0))
    assert ended.n_pass == 2
    assert [part.moves for part in ended.history] == [[early, late], [late]]
    assert [part.move_seconds for part in ended.history] == [0.75, 0.5]


def test_a_start_that_is_given_stays_as_it_is(symbols):
    family, drawn = symbols
    for start in ("segments", "exponential"):
        model = sj.HDPHMM(8, family, init=start, n_passes=2, random_state=0).fit(drawn.train)
        assert not model.fitted_.move_state.warmed_up
    plain = sj.HDPHMM(8, family, moves=None, n_passes=2, random_state=0).fit(drawn.train)
    assert not plain.fitted_.move_state.warmed_up


def test_a_training_that_is_stopped_in_its_first_pass_goes_on_to_the_same_bits(
    symbols, found, tmp_path
):
    family, drawn = symbols
    options = {"batch_size": 300, "n_passes": 4, "random_state": 0}
    whole = sj.HDPHMM(8, family, **options).fit(drawn.train)

    def stop(progress):
        raise KeyboardInterrupt

    again = {"checkpoint": tmp_path, "checkpoint_every": 1}
    with pytest.raises(KeyboardInterrupt):
        sj.HDPHMM(8, family, **options).fit(drawn.train, callback=stop, **again)
    resumed = sj.HDPHMM(8, family, **options).fit(drawn.train, resume=True, **again)
    assert moves_of(whole)
    assert moves_of(resumed) == moves_of(whole)
    np.testing.assert_array_equal(resumed.transmat_, whole.transmat_)


def test_threads_make_no_difference(symbols, found):
    family, drawn = symbols
    other = sj.HDPHMM(8, family, n_passes=10, n_jobs=3, random_state=0).fit(drawn.train)
    np.testing.assert_array_equal(other.transmat_, found.transmat_)


def test_files_are_enough(symbols, tmp_path):
    family, drawn = symbols
    path = write_parquet(tmp_path / "data.parquet", drawn.train)
    assert sj.HDPHMM(8, family, random_state=0).fit(path).n_states_ == 4


def test_what_is_read_once_is_not_read_for_it(symbols):
    family, drawn = symbols
    source = sj.open(iter(drawn.train), total_sequences=len(drawn.train))
    model = sj.HDPHMM(8, family, n_passes=1, random_state=0).fit(source)
    assert not model.fitted_.move_state.warmed_up


def test_one_long_sequence_is_learned_in_pieces():
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(0, 3, 800), rng.geometric(0.1, 800))
    steps = rng.normal(np.array([-4.0, 0.0, 4.0])[states], 1.0)
    model = sj.HDPHMM(9, sj.Gaussian(), random_state=0).fit(steps)
    assert model.n_states_ == 3
    assert 1.0 - sj.match_states(model, states, steps).agreement < 0.02
    assert model.statistics_.start.sum() == pytest.approx(1.0)


def test_an_error_or_a_stop_leaves_the_model_as_it_was(symbols, found, monkeypatch):
    _, drawn = symbols
    before = found.transmat_.copy()

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("sojourn.moves.warmup.train", stopped)
    monkeypatch.setattr("sojourn.models.run.train", stopped)
    with pytest.raises(KeyboardInterrupt):
        found.fit(drawn.train[:100])
    np.testing.assert_array_equal(found.transmat_, before)


def test_people_are_told(symbols, monkeypatch):
    titles = []

    class Told(LiveProgress):
        def __init__(self, n_passes, title):
            titles.append((n_passes, title))
            super().__init__(n_passes, title)

    monkeypatch.setattr("sojourn.models.start.LiveProgress", Told)
    family, drawn = symbols
    sj.HDPHMM(4, family, n_passes=1, random_state=0, verbose=True).fit(drawn.train[:100])
    assert titles == [(20, "HDPHMM warm-up"), (1, "HDPHMM scvi")]


def test_moves_are_compared_with_the_same_warm_up(symbols):
    family, drawn = symbols
    kept = without_moves(8, family, drawn.train, 0)
    assert len(kept.transmat_) == 8
    assert kept.score(drawn.test, per_step=True) > drawn.truth_score - 0.05
