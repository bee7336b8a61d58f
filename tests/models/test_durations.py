"""States that last, as a user meets them."""

import itertools
from copy import deepcopy

import numpy as np
import pytest
from scipy.special import betaln, gammaln, logsumexp
from scipy.stats import binom, nbinom
from typer.testing import CliRunner

import sojourn as sj
from sojourn.analysis.segments import _begins
from sojourn.cli import app
from sojourn.inference.shapes import (
    LearnedShapes,
    ShapeSample,
    Visits,
    better_shapes,
    moment_shapes,
)
from sojourn.kernels import cpu
from sojourn.kernels.interface import DurationPotentials, Potentials
from sojourn.transitions import HDP, Dirichlet, RowConstraints, Rows
from sojourn.transitions.durations import CategoricalDurations, NegativeBinomialDurations

SHAPES, STAYS = (5, 3, 8), (0.5, 0.5, 0.3)
LEAVE = np.array([[0.0, 0.5, 0.5], [0.3, 0.0, 0.7], [0.6, 0.4, 0.0]])
NEGATIVE_BINOMIAL = sj.NegativeBinomialDuration(max_shape=10)
CATEGORICAL = sj.CategoricalDuration(max_length=30)
ONE = sj.NegativeBinomialDuration(shape=1)


def draw(n_sequences, n_steps, seed, durations):
    """Simulate segments: states, and Gaussian observations around 0, 3 and 6."""
    rng = np.random.default_rng(seed)
    paths = []
    for _ in range(n_sequences):
        state, path = rng.integers(3), []
        while len(path) < n_steps:
            path += [state] * durations(state, rng)
            state = rng.choice(3, p=LEAVE[state])
        paths.append(np.array(path[:n_steps]))
    return [rng.normal(3.0 * path)[:, None] for path in paths], paths


def lasting(state, rng):
    return SHAPES[state] + rng.negative_binomial(SHAPES[state], 1.0 - STAYS[state])


@pytest.fixture(scope="module")
def data():
    return draw(12, 150, 0, lasting)[0]


def fit(data, duration, kind=sj.HMM, **options):
    usual = {"n_states": 3, "random_state": 0, "dtype": "float64", "n_init": 1}
    model = kind(emission=sj.DiagonalGaussian(), duration=duration, **(usual | options))
    return model.fit(data)


@pytest.fixture(scope="module")
def fitted(data):
    return {kind: fit(data, own) for kind, own in DURATIONS.items()}


DURATIONS = {"negative binomial": NEGATIVE_BINOMIAL, "categorical": CATEGORICAL}
KINDS = list(DURATIONS)


# ---- what a shape of one, and a length of one, are ----------------------------------------------


@pytest.mark.parametrize(
    ("inference", "options"),
    [
        ("scvi", {}),
        ("scvi", {"batch_size": 4, "n_passes": 3, "stickiness": 2.0}),
        ("svi", {"batch_size": 4, "n_passes": 3}),
        ("vb", {"n_passes": 3}),
        ("cvb0", {"n_passes": 2}),
        ("em", {"n_passes": 3}),
    ],
)
def test_a_shape_of_one_is_the_plain_model(data, inference, options):
    plain = fit(data, None, inference=inference, **options)
    ours = fit(data, ONE, inference=inference, **options)
    np.testing.assert_allclose(ours.transmat_, plain.transmat_, atol=1e-10)
    np.testing.assert_allclose(ours.startprob_, plain.startprob_, atol=1e-10)
    np.testing.assert_allclose(ours.means_, plain.means_, atol=1e-10)
    assert ours.score(data) == pytest.approx(plain.score(data), rel=1e-10)
    if inference in ("vb", "em"):
        bounds = [model.history_[-1]["bound"] for model in (ours, plain)]
        assert bounds[0] == pytest.approx(bounds[1], rel=1e-10)


def test_visits_of_one_step_are_rows_that_never_stay(data):
    begin = fit(data, None, transition_constraints="no-self", n_passes=1, batch_size=None)
    options = {"init": begin.statistics_, "n_passes": 3, "batch_size": 4}
    plain = fit(data, None, transition_constraints="no-self", **options)
    ours = fit(data, sj.CategoricalDuration(1), **options)
    np.testing.assert_allclose(ours.transmat_, plain.transmat_, atol=1e-10)
    assert ours.score(data) == pytest.approx(plain.score(data), rel=1e-10)


def test_one_state_is_a_plain_model():
    X = np.random.default_rng(0).normal(size=(50, 1))
    for duration in (None, NEGATIVE_BINOMIAL):
        model = sj.HMM(1, sj.DiagonalGaussian(), duration=duration, random_state=0).fit(X)
        assert model.durations_[0].kind == "geometric"


# ---- what is learned ----------------------------------------------------------------------------


def test_shapes_means_and_variances_are_found():
    X, paths = draw(25, 400, 1, lasting)
    model = fit(X, NEGATIVE_BINOMIAL)
    truth = np.argsort(np.argsort(model.means_[:, 0]))
    for own, k in zip(model.durations_, truth, strict=True):
        assert (own.kind, own.shape) == ("negative binomial", SHAPES[k])
        visits = Visits.along(np.concatenate(paths), sj.Sequences.from_list(X))
        lengths = visits.lengths[(visits.states == k) & visits.whole]
        assert own.mean == pytest.approx(lengths.mean(), rel=0.05)
        assert own.variance == pytest.approx(SHAPES[k] * STAYS[k] / (1.0 - STAYS[k]) ** 2, rel=0.15)
        assert own.stay == pytest.approx(STAYS[k], abs=0.05)


def test_lengths_of_two_kinds_are_found():
    def two(state, rng):
        return int(rng.choice([3, 9])) if state == 0 else int(rng.integers(4, 7))

    X, _ = draw(20, 300, 2, two)
    model = fit(X, sj.CategoricalDuration(12))
    own = model.durations_[int(np.argmin(model.means_[:, 0]))]
    assert own.probabilities[[2, 8]].sum() > 0.9
    assert own.mean == pytest.approx(6.0, rel=0.05)
    assert own.variance == pytest.approx(9.0, rel=0.1)


def test_moments_propose_and_the_likelihood_decides(data):
    plain = fit(data, ONE)
    posterior = plain.fitted_.posterior
    learned = NegativeBinomialDurations(
        posterior.durations.shapes, posterior.durations.stays, posterior.durations.advances, 10
    )
    posterior.durations = learned
    sequences = plain.emission_.validate(sj.Sequences.from_list(data))
    sample = ShapeSample.of(posterior, plain.emission_, sequences)
    found = better_shapes(sample, 0)
    assert sample.log_likelihood(found) > sample.log_likelihood(learned)
    for k, shape in itertools.product(range(3), (-1, 1)):
        other = np.array(found.shapes)
        other[k] += shape
        if 1 <= other[k] <= 10:
            worse = sample.log_likelihood(found.reshaped(other))
            assert worse <= sample.log_likelihood(found) + 5.0
    few = Visits(np.zeros(1, int), np.array([4]), np.ones(1, bool))
    assert moment_shapes(few, np.array([3, 2]), 8).tolist() == [3, 2]


def test_an_hdp_finds_states_that_last():
    X, _ = draw(15, 250, 3, lasting)
    model = fit(X, NEGATIVE_BINOMIAL, sj.HDPHMM, n_states=6)
    assert model.n_states_ == 3
    order = np.argsort(model.means_[:3, 0])
    assert [model.durations_[k].shape for k in order] == pytest.approx(SHAPES, abs=2)


# ---- likelihoods, the long way ------------------------------------------------------------------


def segmentations(n_steps, n_states):
    for cuts in itertools.product((False, True), repeat=n_steps - 1):
        ends = [t + 1 for t, cut in enumerate(cuts) if cut] + [n_steps]
        for states in itertools.product(range(n_states), repeat=len(ends)):
            if all(a != b for a, b in itertools.pairwise(states)):
                yield list(zip(states, np.diff([0, *ends]), strict=True))


def log_lengths(own, n_steps):
    """Log probability that a visit lasts 1, ..., n steps, and that it lasts at least as long."""
    lengths = np.arange(1, n_steps + 1)
    with np.errstate(divide="ignore"):
        if own.shape is not None:
            law = nbinom(own.shape, 1.0 - own.stay, loc=own.shape)
            return law.logpmf(lengths), np.log(law.sf(lengths - 1))
        chances = np.append(own.probabilities, np.zeros(n_steps))[:n_steps]
        longer = 1.0 - np.concatenate([[0.0], np.cumsum(chances)[:-1]])
        return np.log(chances), np.log(np.maximum(longer, 0.0))


def by_segments(model, x):
    """Return log p(x), the state of every step, and the probability of every segmentation."""
    posterior, n_steps = model.fitted_.posterior, x.n_steps
    start, between = posterior.transitions.means(posterior.counts)
    natural = model.emission_.prior() + posterior.emissions.dense()
    emitted = model.emission_.log_predictive(model.emission_.observations(x), natural)
    lengths = [log_lengths(own, n_steps) for own in model.durations_]
    logs, paths = [], []
    with np.errstate(divide="ignore"):
        log_start, log_between = np.log(start), np.log(between)
    for segments in segmentations(n_steps, 3):
        path = np.repeat(*zip(*segments, strict=True))
        value = log_start[path[0]] + emitted[np.arange(n_steps), path].sum()
        for n, (state, length) in enumerate(segments):
            value += lengths[state][n + 1 == len(segments)][length - 1]
        value += sum(log_between[a, b] for (a, _), (b, _) in itertools.pairwise(segments))
        logs.append(value)
        paths.append(path)
    logs, paths = np.array(logs), np.array(paths)
    total = logsumexp(logs)
    return total, paths, np.exp(logs - total), logs


def tiny(model, n_steps=6):
    x = np.array([0.2, 0.1, 2.6, 3.3, 5.5, 6.1])[:n_steps, None]
    return x, model.emission_.validate(sj.Sequences.from_lengths(x))


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_sums_over_all_segmentations(fitted, kind):
    model = deepcopy(fitted[kind])
    if kind == "negative binomial":  # so that visits of few steps are possible
        durations = model.fitted_.posterior.durations
        durations.shapes[:] = 2, 1, 3
    x, sequences = tiny(model)
    total, paths, chances, logs = by_segments(model, sequences)
    assert model.score(x) == pytest.approx(total, abs=1e-9)
    states = np.stack([(chances[:, None] * (paths == k)).sum(axis=0) for k in range(3)], axis=1)
    np.testing.assert_allclose(model.predict_proba(x), states, atol=1e-9)
    # Of all copies of the best path the most probable one counts: a path that is best by far.
    np.testing.assert_array_equal(model.predict(x), paths[logs.argmax()])
    filtered = model.filter(x)
    np.testing.assert_allclose(filtered[-1], states[-1], atol=1e-9)
    for n in (1, 3):
        short = by_segments(model, tiny(model, n)[1])
        own = [short[2][short[1][:, -1] == k].sum() for k in range(3)]
        np.testing.assert_allclose(filtered[n - 1], own, atol=1e-9)
    table = model.segments(x)
    for segment in table:
        inside = (paths[:, segment.start : segment.end] == segment.state).all(axis=1)
        assert segment.probability == pytest.approx(chances[inside].sum(), abs=1e-9)
    assert len(table) == len(_begins(model.predict(x), np.array([0, 6])))


@pytest.mark.parametrize("kind", KINDS)
def test_streams_and_forecasts_go_on_from_the_copies(fitted, kind):
    model = fitted[kind]
    x, _ = tiny(model)
    stream = model.stream()
    surprises = [(stream.update(row), stream.surprise)[1] for row in x]
    np.testing.assert_allclose(stream.probabilities, model.filter(x)[-1], atol=1e-12)
    assert -sum(surprises) == pytest.approx(model.score(x), abs=1e-9)
    ahead = model.forecast(x, steps=2, n_draws=0)
    longer = np.concatenate([x, np.full((2, 1), np.nan)])
    np.testing.assert_allclose(ahead.state_probabilities[0], model.filter(longer)[-2:], atol=1e-9)
    drawn = model.forecast(x, steps=3, n_draws=20)
    assert drawn.state_draws.max() < 3
    np.testing.assert_allclose(drawn.state_probabilities.sum(axis=2), 1.0)
    assert model.residuals(x).uniform.shape == (6, 1)
    assert len(model.sample(2, 5, given=x)[0]) == 2


def ssm_matrix(between, shapes, stays):
    """Transitions of ssm's NegativeBinomialSemiMarkovTransitions, as its documentation has them."""
    first = np.concatenate([[0], np.cumsum(shapes)])
    matrix = np.zeros((first[-1], first[-1]))
    for k, (shape, stay) in enumerate(zip(shapes, stays, strict=True)):
        for i in range(shape):
            for j in range(i, shape):
                matrix[first[k] + i, first[k] + j] = (1.0 - stay) ** (j - i) * stay
            for other in range(len(shapes)):
                if other != k:
                    leave = (1.0 - stay) ** (shape - i)
                    matrix[first[k] + i, first[other]] = leave * between[k, other]
    return matrix, first


def test_the_likelihood_is_that_of_ssm_for_its_durations():
    """Its visits last 1 + NB(r, p) steps: ours with a shape of 1 + Binomial(r − 1, p)."""
    rng = np.random.default_rng(5)
    shapes, stays = np.array([4, 2, 3]), np.array([0.7, 0.4, 0.5])
    start, rows = np.array([0.2, 0.5, 0.3]), rng.random((40, 3))
    matrix, first = ssm_matrix(LEAVE, shapes, stays)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0)
    message, log_z = np.zeros(len(matrix)), 0.0
    message[first[:-1]] = start  # a visit begins at its first sub-state
    table = np.repeat(rows, shapes, axis=1)
    for t in range(len(rows)):
        message = (message if t == 0 else message @ matrix) * table[t]
        log_z += np.log(message.sum())
        message /= message.sum()
    entry = np.zeros((3, 4))
    for k in range(3):
        own = np.arange(1, shapes[k] + 1)
        entry[k, 4 - own] = binom.pmf(own - 1, shapes[k] - 1, stays[k])
    durations = DurationPotentials(entry, stays, 1.0 - stays)
    found = cpu.log_normalizers(
        Potentials(start, LEAVE, rows, None, durations), np.arange(40), np.array([0, 40])
    )
    # ssm replicates the start over all sub-states, where a visit may begin at any of them.
    assert found[0] == pytest.approx(log_z, abs=1e-9)


# ---- the bound ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_with_certain_states_the_bound_is_the_evidence(kind):
    """Labels fix the path; one-step visits fix the copies too."""
    path = np.array([0, 1, 2, 0, 2, 1, 0, 1])
    X = 3.0 * path[:, None] + np.random.default_rng(0).normal(size=(8, 1))
    duration = sj.CategoricalDuration(2) if kind == "categorical" else ONE
    model = sj.HMM(3, sj.DiagonalGaussian(), duration=duration, batch_size=None, n_passes=2,
                   random_state=0, dtype="float64", transition_concentration=0.5,
                   start_concentration=0.5, forgetting_rate=0.0)  # fmt: skip
    model.fit(X, y=path, track_bound=True)
    plain = sj.HMM(3, sj.DiagonalGaussian(), transition_constraints="no-self", batch_size=None,
                   n_passes=2, random_state=0, dtype="float64", transition_concentration=0.5,
                   start_concentration=0.5, forgetting_rate=0.0)  # fmt: skip
    plain.fit(X, y=path, track_bound=True)
    leaves = np.bincount(path[:-1], minlength=3)
    if kind == "negative binomial":
        expected = (betaln(0.5, 1.0 + leaves) - betaln(0.5, 1.0)).sum()
    else:  # the last visit may have had one step more: q is as sure of that as the prior
        begins = np.bincount(path, minlength=3).astype(float)
        posterior = model.fitted_.posterior
        np.testing.assert_allclose(posterior.durations.entries.sum(axis=1), begins)
        c, entries = 0.01, posterior.durations.entries
        expected = (gammaln(c + entries) - gammaln(c)).sum()
        expected += (gammaln(2 * c) - gammaln(2 * c + begins)).sum()
        longer = entries[path[-1], 0]
        expected -= longer * np.log(longer) + (1.0 - longer) * np.log1p(-longer)
    difference = model.history_[-1]["bound"] - plain.history_[-1]["bound"]
    assert difference == pytest.approx(expected, abs=1e-3)


def priors():
    counts = Rows(np.array([3.0, 5.0, 2.0]), np.array([[30, 2, 5], [3, 20, 8], [9, 1, 40.0]]))
    known = RowConstraints.between(3)
    return counts, {
        "dirichlet": Dirichlet.make(3, 0.4, 0.7, 1.5, known),
        "hdp": HDP.make(3, constraints=known).refitted(counts),
    }


@pytest.mark.parametrize("name", ["dirichlet", "hdp"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_gain_of_a_merge_is_the_difference_of_two_evaluations(name, kind):
    counts, made = priors()
    transitions = made[name]
    if kind == "categorical":
        durations = CategoricalDurations(np.random.default_rng(0).random((3, 4)) * 9, 0.3)
    else:
        none = np.zeros(3)
        durations = NegativeBinomialDurations(np.array([2, 1, 3]), none, none, 8).implied(counts)
    weights = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    merged = Rows(weights @ counts.start, weights @ counts.transitions @ weights.T)
    after = durations.regrouped(weights, merged)
    gain = durations.merge_gains(transitions, counts, np.array([0]), np.array([2]))[0]
    exact = after.collapsed_bound(transitions.regrouped(weights))
    exact -= durations.collapsed_bound(transitions)
    assert gain == pytest.approx(exact, abs=1e-9)


# ---- what people do with it ---------------------------------------------------------------------


def test_drawn_sequences_have_the_durations(fitted):
    for model in fitted.values():
        X, states = model.sample(100, 500, random_state=1)
        visits = Visits.along(states.values, X)
        for k, own in enumerate(model.durations_):
            lengths = visits.lengths[(visits.states == k) & visits.whole]
            assert lengths.mean() == pytest.approx(own.mean, rel=0.05)
            assert lengths.var() == pytest.approx(own.variance, rel=0.15)


def test_quantities_of_the_chain_follow_from_the_durations(fitted):
    for model in fitted.values():
        means = np.array([own.mean for own in model.durations_])
        np.testing.assert_allclose(model.dwell_times_, means)
        between = model.transmat_ * (1.0 - np.eye(3))
        between /= between.sum(axis=1, keepdims=True)
        values, vectors = np.linalg.eig(between.T)
        visits = np.real(vectors[:, np.argmax(np.real(values))])
        shares = visits * means / (visits * means).sum()
        np.testing.assert_allclose(model.stationary_, shares, atol=1e-12)
        chances = model.fitted_.dwell_distribution(400)
        np.testing.assert_allclose(chances @ np.arange(1, 401), means, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_brings_it_back(fitted, data, tmp_path, kind):
    fitted[kind].save(tmp_path / "model")
    same = sj.load(tmp_path / "model")
    assert same.duration == DURATIONS[kind]
    assert same.score(data) == fitted[kind].score(data)
    again = [model.partial_fit(data[:3], total_sequences=12).transmat_ for model in (same,)]
    assert np.isfinite(again).all()


def test_resuming_is_as_if_it_had_never_stopped(data, tmp_path):
    options = {"batch_size": 4, "n_passes": 5}
    whole = fit(data, NEGATIVE_BINOMIAL, **options)

    def stop(progress):
        if progress.updates == 7:
            raise KeyboardInterrupt

    model = sj.HMM(3, sj.DiagonalGaussian(), duration=NEGATIVE_BINOMIAL, random_state=0,
                   dtype="float64", n_init=1, **options)  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        model.fit(data, checkpoint=tmp_path, callback=stop)
    model.fit(data, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(model.transmat_, whole.transmat_)
    assert [own.shape for own in model.durations_] == [own.shape for own in whole.durations_]


def test_labels_and_missing_values_are_as_for_any_model(data):
    X = [part.copy() for part in data]
    for part in X:
        part[10:13] = np.nan
    y = np.full(sum(map(len, X)), -1)
    y[:150] = np.clip(np.rint(data[0][:, 0] / 3.0), 0, 2)
    model = fit(X, NEGATIVE_BINOMIAL)
    assert np.isfinite(model.score(X))
    known = sj.HMM(3, sj.DiagonalGaussian(), duration=NEGATIVE_BINOMIAL, random_state=0, n_init=1)
    known.fit(X, y=y)
    np.testing.assert_allclose(known.means_[:, 0], [0.0, 3.0, 6.0], atol=0.5)


def test_long_sequences_are_learned_by_tiles():
    X, _ = draw(2, 2500, 4, lasting)
    options = {"tile_length": 250, "batch_size": 5, "n_passes": 9}
    model = fit(X, NEGATIVE_BINOMIAL, **options)
    order = np.argsort(model.means_[:, 0])
    assert [model.durations_[k].shape for k in order] == pytest.approx(SHAPES, abs=2)
    plain, ours = fit(X, None, **options), fit(X, ONE, **options)
    np.testing.assert_allclose(ours.transmat_, plain.transmat_, atol=1e-8)


def test_states_to_begin_with_are_as_free_as_those_asked_for():
    """Long data begin with more states than asked for; sequences may start with any of them."""
    known = RowConstraints.between(2).regrouped(np.eye(5, 2))
    np.testing.assert_array_equal(known.free.start, 1.0)
    np.testing.assert_array_equal(known.free.transitions, 1.0 - np.eye(5))
    pairs = np.triu_indices(5, 1)
    assert known.may_merge(*pairs).all()


def test_shapes_are_learned_once_there_are_as_many_states_as_asked_for(monkeypatch):
    learned = []
    monkeypatch.setattr(LearnedShapes, "_learn", lambda self, _, n_pass: learned.append(n_pass))
    for first, expected in ((0, [1, 2, 3, 4, 6, 8]), (4, [5, 6, 7, 8])):
        shapes = LearnedShapes(None, None, 0, 1, first)
        for n_pass in range(10):
            shapes.before_pass(None, n_pass)
        assert learned == expected
        learned.clear()


def test_people_see_the_durations(fitted, data, tmp_path):
    for kind, model in fitted.items():
        axes = sj.plot.durations(model)
        assert len(axes.lines) == 3
        sj.write_report(model, tmp_path / f"{kind}.html", data)
        page = (tmp_path / f"{kind}.html").read_text()
        assert f"Durations are {kind}" in page
        assert "standard deviation" in page


def test_the_command_line_takes_durations(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savetxt("x.csv", data[0], header="x", comments="")
    common = ["fit", "x.csv", "--states", "3", "--model", "hmm", "--held-out", "0", "--force"]
    run = CliRunner()
    shape = run.invoke(app, [*common, "--duration", "negative-binomial", "--max-shape", "5"])
    assert shape.exit_code == 0, shape.output
    assert sj.load("x.sojourn").duration == sj.NegativeBinomialDuration(5)
    length = run.invoke(app, [*common, "--duration", "categorical", "--max-length", "25"])
    assert length.exit_code == 0, length.output
    assert sj.load("x.sojourn").duration == sj.CategoricalDuration(25)
    for wrong in (["--duration", "long"], ["--max-shape", "3"], ["--duration", "categorical"]):
        assert run.invoke(app, [*common, *wrong]).exit_code != 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"duration": 3}, "neither None nor"),
        ({"duration": sj.NegativeBinomialDuration(0)}, "max_shape must be"),
        ({"duration": sj.NegativeBinomialDuration(4, shape=5)}, "shape must be"),
        ({"duration": sj.NegativeBinomialDuration(4, stay_prior=(1.0, 0.0))}, "stay_prior"),
        ({"duration": sj.CategoricalDuration(2.5)}, "max_length must be"),
        ({"duration": sj.CategoricalDuration(2, 0.0)}, "concentration must be"),
        ({"inference": "gibbs"}, "not for samplers"),
        ({"stickiness": "learned"}, "stickiness is a number"),
        ({"transition_constraints": "left-right"}, "no transition_constraints"),
        ({"n_passes": 1}, "n_passes of at least 2"),
    ],
)
def test_what_is_not_known_of_states_that_last_is_refused(data, options, problem):
    given = {"duration": NEGATIVE_BINOMIAL, "random_state": 0} | options
    model = sj.HMM(3, sj.DiagonalGaussian(), **given)
    with pytest.raises(ValueError, match=problem):
        model.fit(data)
    assert not hasattr(model, "transmat_")


def test_what_cannot_be_asked_of_them_is_refused(fitted, data):
    model = fitted["categorical"]
    with pytest.raises(ValueError, match="draws of the posterior"):
        model.posterior_samples(data, 2)
    with pytest.raises(ValueError, match="k best paths"):
        model.decode(data, k=2)
    with pytest.raises(ValueError, match="how long states last"):
        sj.HMM.from_parameters([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]], sj.Poisson(),
                               lambdas=[1.0, 2.0], duration=ONE)  # fmt: skip
