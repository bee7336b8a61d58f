"""What is known beside the values: labels and weights in training and prediction."""

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sojourn as sj
from sojourn.models import prepare
from tests.support.enumeration import smooth
from tests.support.families import EXAMPLES

ONE_PASS = {"batch_size": None, "n_passes": 1, "forgetting_rate": 0.0, "tile_length": None}


def counted(states, n_states):
    start = np.bincount(states[:, 0], minlength=n_states)
    pairs = np.zeros((n_states, n_states))
    np.add.at(pairs, (states[:, :-1].ravel(), states[:, 1:].ravel()), 1.0)
    return start, pairs


@pytest.mark.parametrize("name", [name for name in EXAMPLES if "a state" not in name])
def test_fully_labelled_data_give_prior_and_counts_in_one_pass(name):
    rng = np.random.default_rng(4)
    values = EXAMPLES[name].draw_data(rng, 60)
    states = rng.integers(3, size=(4, 15))
    data = sj.Sequences.from_lengths(values, [15] * 4)
    model = sj.HMM(3, EXAMPLES[name].given, dtype="float64", random_state=0, **ONE_PASS)
    model.fit(data, y=states.ravel())
    family = model.emission_
    own = family.statistics(family.observations(family.validate(data)))
    found, (start, pairs) = model.statistics_, counted(states, 3)
    np.testing.assert_allclose(found.start, start, atol=1e-12)
    np.testing.assert_allclose(found.transitions, pairs, atol=1e-12)
    expected = np.eye(3)[states.ravel()].T @ own
    np.testing.assert_allclose(found.emissions, expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("inference", ["svi", "vb", "em", "cvb0"])
def test_every_method_counts_what_is_labelled(inference):
    rng = np.random.default_rng(4)
    X, states = rng.integers(5, size=(9, 12)), rng.integers(3, size=(9, 12))
    passes = {"n_passes": 3} if inference == "cvb0" else ONE_PASS
    model = sj.HMM(3, sj.Categorical(5), inference=inference, random_state=0, **passes)
    model.fit(list(X), y=states)
    start, pairs = counted(states, 3)
    np.testing.assert_allclose(model.statistics_.start, start, atol=1e-5)
    np.testing.assert_allclose(model.statistics_.transitions, pairs, atol=1e-4)


def labelled_forms(rng, n_states, n_steps):
    """Masks of all kinds, and the labels that mean them."""
    weights = rng.random((n_steps, n_states))
    yield weights, weights
    some = [set(rng.choice(n_states, 2, replace=False).tolist()) for _ in range(n_steps - 1)]
    masks = [[float(k in own) for k in range(n_states)] for own in some]
    yield np.array([*masks, [1.0] * n_states]), [*some, None]


@pytest.mark.parametrize(("n_states", "n_steps"), [(3, 5), (17, 3)])  # the two kernels
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_masks_multiply_the_potentials_of_every_path(n_states, n_steps, device):
    rng = np.random.default_rng(1)
    X = [rng.integers(4, size=9) for _ in range(20)]
    model = sj.HMM(n_states, sj.Categorical(4), random_state=0, dtype="float64", device=device)
    model.set_params(**ONE_PASS | {"n_passes": 3}).fit(X)
    x = rng.integers(4, size=n_steps)
    rows = model.emissionprob_[:, x].T
    for masks, y in labelled_forms(rng, n_states, n_steps):
        log_z, marginals, _, path, best = smooth(model.startprob_, model.transmat_, rows * masks)
        assert model.score(x, y=y) == pytest.approx(log_z, abs=1e-9)
        np.testing.assert_allclose(model.predict_proba(x, y=y), marginals, atol=1e-9)
        score, states = model.decode(x, y=y)
        assert score == pytest.approx(best, abs=1e-9)
        np.testing.assert_array_equal(states, path)


def test_a_label_far_from_its_state_is_not_lost_to_rounding():
    """Relative to the other state its density is smaller than any number."""
    X = np.concatenate([np.zeros(50), np.full(50, 900.0)]) + np.tile([-1.0, 1.0], 50)
    X = np.stack([X] * 3, axis=1)
    model = sj.HMM(2, sj.DiagonalGaussian(), random_state=0).fit(X, y=[0] * 50 + [1] * 50)
    x, y = np.outer([0.0, 900.0, 0.0], np.ones(3)), [0, 0, 0]
    natural = model.emission_.prior() + model.statistics_.emissions
    logs = model.emission_.log_predictive(x, natural)[:, 0]
    steps = np.log(model.startprob_[0]) + 2 * np.log(model.transmat_[0, 0])
    assert logs[1] < -100.0
    assert model.score(x, y=y) == pytest.approx(logs.sum() + steps, rel=1e-5)
    np.testing.assert_array_equal(model.predict(x, y=y), [0, 0, 0])


def two_kinds(seed=0, n=40):
    rng = np.random.default_rng(seed)
    states = np.cumsum(rng.random((n, 30)) < 0.1, axis=1) % 3
    return states, 4.0 * states + rng.normal(size=states.shape)


def test_states_with_labels_keep_their_places_and_others_are_found_beside_them():
    states, X = two_kinds()
    known = np.where(states == 2, 0, -1)
    known[10:] = -1
    model = sj.HDPHMM(8, sj.DiagonalGaussian(), random_state=0, state_names=["high"])
    model.fit(list(X), y=known)
    assert model.means_[0, 0] == pytest.approx(8.0, abs=0.4)
    assert model.n_states_ == 3
    assert model.state_names_[:2] == ["high", "1"]
    assert model.fitted_.posterior.held == 1
    merged = [pair for move in model.history_ for made in move["moves"] for pair in made["states"]]
    assert all(0 not in pair for pair in merged)


def test_every_state_with_a_label_is_there_even_if_the_data_have_it_never():
    states, X = two_kinds()
    model = sj.HDPHMM(9, sj.DiagonalGaussian(), random_state=0, state_names=list("abcdef"))
    model.fit(list(X), y=np.where(states < 1, 5, -1))
    assert len(model.startprob_) >= 6
    assert model.means_[5, 0] == pytest.approx(0.0, abs=0.4)


@pytest.mark.parametrize("model", [sj.HMM(3, sj.DiagonalGaussian(), random_state=0)])
def test_a_few_labels_say_which_state_is_which(model):
    states, X = two_kinds()
    known = np.full(states.shape, -1)
    known[:2] = 2 - states[:2]
    fitted = model.fit(list(X), y=list(known))
    assert np.mean(np.array(fitted.predict(list(X))) == 2 - states) > 0.97


@pytest.mark.parametrize(
    "y",
    [np.full((3, 5), 3), np.full((3, 4), 0), [["a"] * 5] * 3, np.full((3, 5), np.nan)],
)
def test_bad_labels_are_refused_before_anything_changes(y):
    X = np.random.default_rng(0).integers(3, size=(3, 5))
    model = sj.HMM(3, sj.Categorical(3), random_state=0, batch_size=2, n_passes=2)
    names = {"state_names": ["x", "y"]} if isinstance(y, list) else {}
    model.set_params(**names).fit(X)
    before = model.transmat_.copy()
    for call in (model.fit, model.score, model.predict, model.predict_proba):
        with pytest.raises(ValueError, match=r"label"):
            call(X, y=y)
    with pytest.raises(ValueError, match=r"label"):
        model.partial_fit(X, y=y, total_sequences=3)
    np.testing.assert_array_equal(model.transmat_, before)


CONTRADICTIONS = {  # of labels in a model whose states come in order
    "back": ([0, -1, 2, -1, 1], 4),
    "too far": ([0, -1, -1, -1, 4], None),
    "too soon": ([0, -1, -1, 4, -1], 3),
    "not the first": ([2, -1, -1, -1, -1], 0),
    "sets": ([{0}, {0, 2}, {2, 3}, {0, 1}, None], 2),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_labels_that_constraints_make_impossible_are_refused_with_their_place(case, tmp_path):
    bad, position = CONTRADICTIONS[case]
    X = np.random.default_rng(0).integers(3, size=(3, 5))
    y = [[None] * 5, [0, 1, 2, 3, 4], bad]
    model = sj.HMM(5, sj.Categorical(3), random_state=0, batch_size=2, n_passes=2)
    model.set_params(transition_constraints="left-right").fit(X)
    before = model.statistics_
    calls = [model.fit, model.score, model.decode, model.predict_proba]
    calls.append(partial(model.partial_fit, total_sequences=3))
    if position is None:
        for call in calls:
            call(X, y=y)
        return
    place = f"sequence 2, position {position}: no path of states that the labels allow"
    for call in calls:
        with pytest.raises(ValueError, match=place):
            call(X, y=y)
    if case != "sets":
        numbers = [[-1 if label is None else label for label in own] for own in y]
        pq.write_table(pa.table({"x": X.tolist(), "tag": numbers}), tmp_path / "x.parquet")
        source = sj.open(tmp_path / "x.parquet", column="x", label="tag")
        with pytest.raises(ValueError, match=place):
            model.fit(source)
        once = source.read_all()
        with pytest.raises(ValueError, match=f"position {position}: no path"):
            model.score(source)
        with pytest.raises(ValueError, match=place):
            model.predict(once)
    for name in ("start", "transitions", "emissions"):
        np.testing.assert_array_equal(getattr(model.statistics_, name), getattr(before, name))


def test_a_label_that_all_but_never_happens_is_not_a_contradiction():
    # The first of two states is left at every other step: far below the smallest number.
    x, y = np.zeros(3000, dtype=int), np.full(3000, -1)
    y[-2] = 0
    model = sj.HMM(2, sj.Categorical(2), random_state=0, **ONE_PASS)
    model.set_params(transition_constraints="left-right").fit(x[:, None], [3000], y=y)
    assert (model.predict(x[:, None], y=y)[:-1] == 0).all()


def test_names_are_checked():
    for names, message in ((["a", "a"], "twice"), ("ab", "names"), (["a", ""], "empty")):
        with pytest.raises(ValueError, match=message):
            sj.HMM(2, sj.Categorical(2), state_names=names).fit([[0, 1]])
    with pytest.raises(ValueError, match="3 state_names for n_states=2"):
        sj.HMM(2, sj.Categorical(2), state_names=["a", "b", "c"]).fit([[0, 1]])


def test_partial_fit_learns_from_labels():
    states, X = two_kinds()
    model = sj.HMM(3, sj.DiagonalGaussian(), random_state=0)
    for part in range(0, 40, 10):
        own = slice(part, part + 10)
        model.partial_fit(list(X[own]), y=states[own], total_sequences=40)
    np.testing.assert_allclose(model.means_[:, 0], [0.0, 4.0, 8.0], atol=0.3)


def test_states_are_given_other_numbers_with_their_names():
    states, X = two_kinds(n=9)
    model = sj.HMM(3, sj.DiagonalGaussian(), random_state=0, state_names=["a", "b"])
    model.fit(list(X), y=np.where(states < 2, states, -1))
    before, path = model.score(list(X)), model.predict(list(X), names=True)
    model.relabel([1, 0, 2])
    np.testing.assert_allclose(model.means_[:, 0], [4.0, 0.0, 8.0], atol=0.5)
    assert model.state_names_ == ["b", "a", "2"]
    assert model.score(list(X)) == pytest.approx(before)
    np.testing.assert_array_equal(model.predict(list(X), names=True), path)
    for order, message in (([0, 0, 1], "once"), ([2, 0, 1], "stay before")):
        with pytest.raises(ValueError, match=message):
            model.relabel(order)


def test_a_model_file_keeps_names_and_places(tmp_path):
    states, X = two_kinds(n=9)
    model = sj.HMM(3, sj.DiagonalGaussian(), random_state=0)
    model.fit(list(X), y=[[("low", "mid")[k] if k < 2 else None for k in row] for row in states])
    model.save(tmp_path / "m.sojourn")
    same = sj.load(tmp_path / "m.sojourn")
    assert same.state_names_ == ["low", "mid", "2"]
    assert same.fitted_.posterior.held == 2


def test_states_match_labels_by_name():
    states, X = two_kinds(n=9)
    words = np.array(["mid", "high", "low"])[states]  # of what lies at 0, 4 and 8
    model = sj.HMM(3, sj.DiagonalGaussian(), random_state=0, state_names=["high", "mid"])
    model.fit(list(X), y=[[w if w != "low" else None for w in row] for row in words.tolist()])
    found = sj.match_states(model, words.tolist(), list(X))
    np.testing.assert_array_equal(found.states, [0, 1, 2])
    assert found.agreement > 0.9
    wrong = np.array(["high", "mid", "low"])[states].tolist()
    assert sj.match_states(model, wrong, list(X)).agreement < 0.6
    unnamed = sj.HMM(3, sj.DiagonalGaussian(), random_state=0).fit(list(X))
    assert sj.match_states(unnamed, wrong, list(X)).agreement > 0.9
    some = [[w if t < 9 else None for t, w in enumerate(row)] for row in wrong]
    assert sj.match_states(unnamed, some, list(X)).overlaps.sum() == 81


# ---- weights ------------------------------------------------------------------------------------

POISSON = sj.Poisson(1.0, 1.0)


def weighted(seed=0, n=12):
    rng = np.random.default_rng(seed)
    X = rng.poisson(3.0 + 9.0 * rng.integers(2, size=(n, 1)), (n, 8))
    return list(X), rng.integers(0, 4, n)


def repeated(X, weights):
    return [x for x, n in zip(X, weights, strict=True) for _ in range(n)]


def values_of(model):
    found = model.statistics_
    return np.concatenate([found.start, found.transitions.ravel(), found.emissions.ravel()])


@pytest.mark.parametrize("model", [sj.HMM(2, POISSON), sj.HDPHMM(4, POISSON)])
def test_whole_weights_are_repetition_to_the_bit(model):
    X, weights = weighted()
    model = model.set_params(random_state=0, n_init=1)
    one = values_of(model.fit(X, sample_weight=weights))
    np.testing.assert_array_equal(one, values_of(model.fit(repeated(X, weights))))


@pytest.mark.parametrize("model", [sj.HMM(2, POISSON), sj.HDPHMM(4, POISSON)])
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_weights_multiply_the_sums_of_a_sequence(model, device, monkeypatch):
    monkeypatch.setattr(prepare, "FULL_STEPS", 0)  # nothing is small enough to be repeated
    X, weights = weighted()
    n_states = model.n_states
    first = sj.Statistics(
        np.ones(n_states),
        np.ones((n_states, n_states)),
        np.outer(np.arange(1.0, n_states + 1), [9, 2]),
    )
    model = model.set_params(random_state=0, init=first, device=device, dtype="float64", **ONE_PASS)
    model = model.set_params(emission=sj.Poisson(1.0, 1.0), moves=None)
    one = model.fit(X, sample_weight=weights, track_bound=True)
    got, bound = values_of(one), one.history_[-1]["bound"]
    same = model.set_params(emission=one.emission_).fit(repeated(X, weights), track_bound=True)
    np.testing.assert_allclose(got, values_of(same), rtol=1e-10)
    assert bound == pytest.approx(same.history_[-1]["bound"], rel=1e-10)


def test_a_weight_of_zero_leaves_a_sequence_out(monkeypatch):
    X, weights = weighted()
    weights = weights.astype(float) + np.where(weights > 0, 0.5, 0.0)
    model = sj.HMM(2, POISSON, random_state=0, batch_size=3, n_passes=4)
    one = values_of(model.fit(X, sample_weight=weights))
    some = np.flatnonzero(weights)
    two = values_of(model.fit([X[n] for n in some], sample_weight=weights[some]))
    np.testing.assert_array_equal(one, two)


def test_minibatches_are_unbiased():
    """The sums of minibatches of equal size, times N/M, average to the weighted sums of all."""
    X, weights = weighted()
    weights = 0.3 + weights
    states = np.random.default_rng(5).integers(2, size=(12, 8))
    model = sj.HMM(2, sj.Poisson(1.0, 1.0), random_state=0, forgetting_rate=0.0)
    found = []
    for at in range(0, 12, 3):
        own = slice(at, at + 3)
        model.partial_fit(X[own], y=states[own], sample_weight=weights[own], total_sequences=12)
        found.append(values_of(model))
    start = np.array([weights[states[:, 0] == k].sum() for k in range(2)])
    np.testing.assert_allclose(np.mean(found, axis=0)[:2], start, rtol=1e-6)
    sums = (weights[:, None] * np.where(states == 1, np.array(X), 0)).sum()
    assert np.isclose(np.mean(found, axis=0)[-2:], sums, rtol=1e-6).any()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], "one number for each"),
        ([1, 2, -1], "weight -1"),
        ([1, np.nan, 1], "nan"),
        ([0] * 3, "all"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        sj.HMM(2, sj.Categorical(2)).fit([[0, 1]] * 3, sample_weight=weights)


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_labels_of_one_recording_name_states_of_the_others(seed):
    """Recordings differ by an offset; states without a name must not take what belongs to one."""
    rng = np.random.default_rng(seed)
    means = 3.0 * rng.normal(size=(4, 6))
    X, states = [], []
    for _ in range(6):
        own = np.repeat(rng.integers(4, size=20), 6)
        own[:24] = np.repeat(np.arange(4), 6)
        offset, noise = 0.6 * rng.normal(size=6), 0.25 * rng.normal(size=(120, 6))
        X.append(means[own] + offset + noise)
        states.append(own)
    y = [np.where(states[0] < 2, states[0], -1), *(np.full(120, -1) for _ in X[1:])]
    full = {"batch_size": None, "forgetting_rate": 0.0, "n_passes": 30, "n_init": 1}
    model = sj.HMM(4, sj.Gaussian(), random_state=0, **full).fit(X, y=y)
    found, truth = (np.minimum(np.concatenate(s[1:]), 2) for s in (model.predict(X), states))
    assert (found == truth).mean() > 0.95
