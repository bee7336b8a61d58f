"""Streams: every update equals filtering what came so far."""

import numpy as np
import pytest

import sojourn as sj
from tests.support import chains
from tests.support.families import EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_updates_equal_filtering(name):
    example = EXAMPLES[name]
    rng = np.random.default_rng(1)
    data = [example.draw_data(rng, 30), example.draw_data(rng, 30)]
    if example.missing == "rows" and data[0].dtype.kind == "f":
        data[0] = data[0].copy()
        data[0][[0, 7]] = np.nan
    model = sj.HMM(3, example.given, random_state=0, n_init=1, dtype="float64").fit(data)
    expected = model.filter(data)
    whole = model.score(data[0])
    stream, total = model.stream(), 0.0
    for t, x in enumerate(data[0]):
        np.testing.assert_allclose(stream.update(x), expected[0][t], rtol=0, atol=1e-9)
        total += stream.surprise
    np.testing.assert_allclose(total, -whole, rtol=1e-7, atol=1e-7)
    many = model.stream(2)
    for t in range(30):
        found = many.update(np.stack([data[0][t], data[1][t]]))
        for n in range(2):
            np.testing.assert_allclose(found[n], expected[n][t], rtol=0, atol=1e-9)
    first = stream.forecast(2, n_draws=5).state_probabilities[0]
    np.testing.assert_allclose(first, many.forecast(2, n_draws=5).state_probabilities[0])


def test_extending_equals_updating():
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.normal(size=(20, 1)), axis=0)
    model = sj.HMM(2, sj.AutoregressiveGaussian(order=2), random_state=0, n_init=1).fit(x)
    one, other = model.stream(), model.stream()
    for part in (x[:1], x[1:4], x[4:]):
        surprises = []
        for value in part:
            one.update(value)
            surprises.append(one.surprise)
        np.testing.assert_allclose(other.extend(part), surprises, rtol=0, atol=1e-9)
        np.testing.assert_allclose(other.probabilities, one.probabilities, rtol=0, atol=1e-9)
    assert one.n_steps == other.n_steps == 20


def test_words_and_missing_symbols():
    model = sj.HMM(2, sj.Categorical(), random_state=0).fit([["a", "b", "a", "a", "b"]] * 9)
    stream = model.stream()
    stream.update("a")
    before = stream.probabilities
    code = model.emission_.vocabulary.encode(sj.Sequences(np.array(["a"]), [0, 1])).values[0]
    other = model.stream()
    np.testing.assert_array_equal(other.update(int(code)), before)
    stream.update(-1)
    assert abs(stream.surprise) < 1e-12
    np.testing.assert_allclose(stream.probabilities, before @ model.transmat_, atol=1e-6)
    with pytest.raises(ValueError, match="symbol 7 is outside the alphabet"):
        stream.update(7)


def test_a_stream_before_its_first_step_begins_at_the_start():
    model = chains.symbol_model()
    stream = model.stream()
    np.testing.assert_allclose(stream.probabilities, chains.START)
    found = stream.forecast(2, n_draws=0).state_probabilities[0]
    np.testing.assert_allclose(found, [chains.START, chains.START @ chains.MATRIX])
    stream.update(0)
    stream.update(3)
    stream.reset()
    assert stream.n_steps == 0
    np.testing.assert_allclose(stream.update(3), model.filter([3])[0])


def test_one_of_many_streams_begins_anew():
    model = chains.symbol_model()
    many = model.stream(3)
    many.update([0, 1, 2])
    many.reset([1])
    found = many.update([3, 3, 3])
    np.testing.assert_allclose(found[1], model.filter([3])[0])
    np.testing.assert_allclose(found[2], model.filter([2, 3])[1])


def test_bad_observations_are_refused_before_anything_changes():
    rng = np.random.default_rng(0)
    model = sj.HMM(2, sj.Gaussian(), random_state=0, n_init=1).fit(rng.normal(size=(40, 2)))
    stream = model.stream()
    stream.update([0.1, 0.2])
    before = stream.probabilities
    for wrong in ([np.inf, 0.0], [1.0], "x", [np.nan, 1.0]):
        with pytest.raises((ValueError, TypeError)):
            stream.update(wrong)
    np.testing.assert_array_equal(stream.probabilities, before)
    assert stream.n_steps == 1
    stream.update([np.nan, np.nan])
    assert abs(stream.surprise) < 1e-12
    with pytest.raises(ValueError, match="observations for 3 streams"):
        model.stream(3).update([[0.0, 0.0]])
    with pytest.raises(ValueError, match="n_streams must be"):
        model.stream(0)
