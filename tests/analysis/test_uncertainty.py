"""Draws from the posterior against its enumeration, and intervals against their definition."""

import numpy as np
import pytest

import sojourn as sj
from sojourn.analysis.uncertainty import _labels, effective_size
from tests.support.exact import count, finite_posterior
from tests.support.families import EXAMPLES

LENGTHS = [4, 3]
SYMBOLS = np.array([0, 1, 1, 0, 2, 2, 1], np.int32)
ROWS = np.array([[1.5, 0.7], [2.0, 0.5], [0.4, 1.8]])  # prior counts, the start first
EMISSIONS = np.array([[2.0, 0.5, 0.3], [0.3, 0.6, 1.7]])


@pytest.fixture(scope="module")
def tiny():
    """A model of seven symbols, whose posterior has 128 paths."""
    family = sj.Categorical(3, concentration=EMISSIONS)
    model = sj.HMM(
        2,
        family,
        start_concentration=ROWS[0],
        transition_concentration=ROWS[1:],
        random_state=0,
        n_init=1,
    )
    return model.fit(SYMBOLS, LENGTHS)


def exact_means():
    paths, weights = finite_posterior(SYMBOLS, LENGTHS, ROWS, EMISSIONS)
    transitions, emissions = np.zeros((3, 2)), np.zeros((2, 3))
    for path, weight in zip(paths, weights, strict=True):
        rows, symbols = count(path, LENGTHS, SYMBOLS, 2, 3)
        rows, symbols = rows + ROWS, symbols + EMISSIONS
        transitions += weight * rows / rows.sum(axis=1, keepdims=True)
        emissions += weight * symbols / symbols.sum(axis=1, keepdims=True)
    states = np.array([weights[paths[:, t] == 1].sum() for t in range(len(SYMBOLS))])
    return transitions, emissions, states


def test_the_chain_has_the_exact_posterior(tiny):
    samples = tiny.posterior_samples(SYMBOLS, 6000, LENGTHS, thin=1, random_state=1)
    transitions, emissions, states = exact_means()
    np.testing.assert_allclose(samples.transmat_.mean(axis=0), transitions[1:], atol=0.025)
    np.testing.assert_allclose(samples.startprob_.mean(axis=0), transitions[0], atol=0.025)
    np.testing.assert_allclose(samples.draws("emissionprob_").mean(axis=0), emissions, atol=0.025)
    np.testing.assert_allclose(samples.paths.mean(axis=0), states, atol=0.03)


def test_surrogate_draws_have_the_smoothed_states(tiny):
    samples = tiny.posterior_samples(SYMBOLS, 4000, LENGTHS, method="surrogate", random_state=1)
    expected = tiny.predict_proba(SYMBOLS, LENGTHS)[:, 1]
    np.testing.assert_allclose(samples.paths.mean(axis=0), expected, atol=0.04)


def test_intervals_are_quantiles_of_the_draws(tiny):
    samples = tiny.posterior_samples(SYMBOLS, 100, LENGTHS)
    assert len(samples) == 100
    for name in samples.names:
        draws = samples.draws(name)
        assert len(draws) == 100
        low, high = samples.interval(name, 0.5)
        np.testing.assert_allclose(low, np.quantile(draws, 0.25, axis=0))
        np.testing.assert_allclose(high, np.quantile(draws, 0.75, axis=0))
    np.testing.assert_allclose(
        samples.draws("dwell_times_")[:, 0], 1.0 / samples.transmat_[:, 0, 1]
    )
    np.testing.assert_allclose(
        samples.draws("mean_first_passage")[:, 0, 1], 1.0 / samples.transmat_[:, 0, 1]
    )
    again = tiny.posterior_samples(SYMBOLS, 100, LENGTHS)
    np.testing.assert_array_equal(again.transmat_, samples.transmat_)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_family_has_draws(name):
    example = EXAMPLES[name]
    rng = np.random.default_rng(0)
    data = [example.draw_data(rng, n) for n in (40, 25)]
    model = sj.HMM(3, example.given, random_state=0, n_init=1).fit(data)
    for method in ("gibbs", "surrogate"):
        samples = model.posterior_samples(data, 20, method=method, warmup=5)
        for parameter in model.emission_.parameter_names:
            found = samples.draws(parameter)
            assert found.shape == (20, *np.shape(getattr(model, parameter)))
            assert np.isfinite(found).all()
        assert samples.paths.shape == (20, 65)


def test_draws_narrow_with_the_data():
    rng = np.random.default_rng(0)
    widths = []
    for n in (10, 1000):
        data = [np.concatenate([rng.poisson(2.0, 10), rng.poisson(30.0, 10)]) for _ in range(n)]
        model = sj.HMM(2, sj.Poisson(), random_state=0, n_init=1).fit(data)
        samples = model.posterior_samples(data, 100, warmup=5)
        low, high = samples.interval("lambdas_")
        widths.append(float((high - low).sum()))
        assert (low < model.lambdas_).all()
        assert (model.lambdas_ < high).all()
    np.testing.assert_allclose(widths[0] / widths[1], 10.0, rtol=0.4)


def test_files_have_the_draws_of_memory(tiny, tmp_path):
    np.save(tmp_path / "x.npy", SYMBOLS)
    np.save(tmp_path / "x.offsets.npy", np.array([0, 4, 7]))
    one = tiny.posterior_samples(SYMBOLS, 20, LENGTHS)
    other = tiny.posterior_samples(tmp_path / "x.npy", 20)
    np.testing.assert_array_equal(one.transmat_, other.transmat_)
    assert other.paths is None


def test_effective_sizes_are_those_of_autoregressions():
    rng = np.random.default_rng(0)
    for rho in (0.0, 0.5, 0.9):
        noise, x = rng.normal(size=20_000), np.zeros(20_000)
        for t in range(1, len(x)):
            x[t] = rho * x[t - 1] + noise[t]
        expected = len(x) * (1.0 - rho) / (1.0 + rho)
        np.testing.assert_allclose(effective_size(x), expected, rtol=0.35)
    assert effective_size(np.ones(10)) == 10


def test_chains_that_move_slowly_are_thinned(tiny):
    rng = np.random.default_rng(0)
    data = [np.where(rng.random(20) < 0.6, 0, 1) for _ in range(30)]  # nothing tells states apart
    model = sj.HMM(2, sj.Categorical(2, EMISSIONS[:, :2]), random_state=0, n_init=1).fit(data)
    every = model.posterior_samples(data, 40, thin=1)
    spaced = model.posterior_samples(data, 40)
    assert len(spaced) == 40
    assert spaced.n_effective > every.n_effective
    assert spaced.n_effective >= 20
    short = model.posterior_samples(data, 40, max_sweeps=60)
    np.testing.assert_array_equal(short.transmat_, every.transmat_)


def test_labels_that_have_changed_are_undone():
    np.testing.assert_array_equal(_labels(np.array([[1.0, 9.0], [7.0, 2.0]])), [1, 0])
    np.testing.assert_array_equal(_labels(np.array([[5.0, 5.0], [5.0, 5.0]])), [0, 1])
    cycle = np.array([[0.0, 9.0, 0.0], [0.0, 0.0, 8.0], [7.0, 0.0, 0.0]])
    np.testing.assert_array_equal(_labels(cycle), [1, 2, 0])


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"n": 0}, "n must be a whole number"),
        ({"warmup": -1}, "warmup must be a whole number"),
        ({"method": "exact"}, "not one of"),
        ({"thin": 0}, "thin must be a whole number"),
        ({"max_sweeps": 0}, "max_sweeps must be a whole number"),
    ],
)
def test_wrong_arguments_are_refused(tiny, wrong, match):
    with pytest.raises(ValueError, match=match):
        tiny.posterior_samples(SYMBOLS, lengths=LENGTHS, **wrong)


def test_unknown_quantities_are_refused(tiny):
    samples = tiny.posterior_samples(SYMBOLS, 3, LENGTHS)
    with pytest.raises(ValueError, match=r"no quantity 'means_', only startprob_"):
        samples.interval("means_")
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        samples.interval("transmat_", 90)
