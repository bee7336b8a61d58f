"""Forecasts against enumeration of futures, definitions and simulation."""

import numpy as np
import pytest
from scipy import special, stats

import sojourn as sj
from sojourn.analysis.quantiles import mixture_quantiles
from sojourn.families.cdf import predictive_cdf
from sojourn.families.draws import MASS, draw_parameters
from tests.support import chains
from tests.support.families import EXAMPLES

X = np.array([0, 3, 3, 1, 2], np.int32)


def future_states(filtered, steps):
    """p(z_{T+h} | x) by summing over every path of the future."""
    n_states = len(filtered)
    out = np.zeros((steps, n_states))
    for h in range(1, steps + 1):
        # The path begins at the last step that was observed.
        paths, weights = chains.every_path(np.zeros((h + 1, n_states)), filtered, chains.MATRIX)
        out[h - 1] = np.bincount(paths[:, -1], weights, n_states)
    return out


def test_state_and_symbol_probabilities_equal_enumeration():
    model = chains.symbol_model()
    found = model.forecast([X, X[:2]], steps=4, n_draws=0)
    for n, x in enumerate([X, X[:2]]):
        expected = future_states(model.filter(x)[-1], 4)
        np.testing.assert_allclose(found.state_probabilities[n], expected, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.probabilities[n], expected @ chains.SYMBOLS, atol=1e-9)
    came = np.array([2, 0, 1], np.int32)
    expected = np.log((future_states(model.filter(X)[-1], 3) @ chains.SYMBOLS)[range(3), came])
    scores = found.log_score([came, [-1]])
    np.testing.assert_allclose(scores[0, :3], expected, rtol=1e-8)
    assert np.isnan(scores[0, 3])
    assert np.isnan(scores[1]).all()
    assert found.means is None
    assert found.quantiles is None


def test_quantiles_and_means_are_those_of_the_mixture():
    rates = np.array([1.0, 4.0, 20.0])
    model = chains.fitted_at(sj.Poisson(1, 1e-9, 1e-9), MASS * np.column_stack([np.ones(3), rates]))
    x = np.array([1, 0, 22])
    found = model.forecast(x, steps=3, n_draws=0, quantiles=(0.05, 0.5, 0.95))
    for h, weights in enumerate(future_states(model.filter(x)[-1], 3)):
        support = np.arange(200)
        cdf = weights @ stats.poisson.cdf(support, rates[:, None])
        for q, level in enumerate(found.levels):
            assert found.quantiles[q, 0, h, 0] == support[np.argmax(cdf >= level)]
        np.testing.assert_allclose(found.means[0, h, 0], weights @ rates, rtol=1e-7)


def test_quantiles_of_continuous_mixtures_solve_for_the_level():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(m, 0.3 + m, (30, 2)) for m in (0.0, 5.0, 0.0)])
    model = sj.HMM(2, sj.DiagonalGaussian(), random_state=0, n_init=1).fit(x)
    found = model.forecast(x, steps=2)
    natural = model.fitted_.evidence().natural
    for h in range(2):
        for q, level in enumerate(found.levels):
            cdf = predictive_cdf(model.emission_, found.quantiles[q, 0, h][None], natural)[1][0]
            reached = found.state_probabilities[0, h] @ cdf
            np.testing.assert_allclose(reached, level, rtol=0, atol=1e-8)


def test_quantiles_of_symbols_are_the_smallest_that_reach_the_level():
    symbols = np.array([[0.25, 0.25, 0.5], [0.5, 0.25, 0.25]])
    rates = np.array([[1.0, 2.0], [1.0, 2.0]])
    family = sj.Product(sj.Poisson(1, 1e-9, 1e-9), sj.Categorical(3, 1e-9), columns=[1, 1])
    emissions = MASS * np.concatenate([rates, symbols], axis=1)
    halves = np.full(2, 0.5)
    model = chains.fitted_at(family, emissions, halves, np.full((2, 2), 0.5))
    levels = (0.3, 0.375, 0.5, 0.625, 0.7)
    found = model.forecast(np.array([[1.0, 0.0]]), steps=1, n_draws=0, quantiles=levels)
    # The mixture has 0.375, 0.25 and 0.375; levels that are reached exactly count.
    assert found.quantiles[:, 0, 0, 1].tolist() == [0, 0, 1, 1, 2]


def test_transitions_are_averaged_over_their_posterior():
    # One visit each: θ is uncertain, and E[θ²] is not E[θ]².
    model = chains.fitted_at(sj.Categorical(4, 1e-9), MASS * chains.SYMBOLS, mass=0.3)
    filtered = model.filter(X)[-1]
    found = model.forecast(X, steps=2, n_draws=20_000, random_state=1).state_probabilities[0]
    np.testing.assert_allclose(found[0], filtered @ chains.MATRIX, atol=0.01)
    a, total = 0.3 * chains.MATRIX, 0.3
    # E[(θ²)_ij] of independent Dirichlet rows with small sums.
    expected = chains.MATRIX @ chains.MATRIX
    for i in range(3):
        for j in range(3):
            expected[i, j] = sum(
                (a[i, i] * (a[i, j] + (i == j)) / (total * (total + 1.0))) if k == i
                else chains.MATRIX[i, k] * chains.MATRIX[k, j]
                for k in range(3)
            )  # fmt: skip
    np.testing.assert_allclose(found[1], filtered @ expected, atol=0.01)
    plain = filtered @ chains.MATRIX @ chains.MATRIX
    assert np.abs(filtered @ expected - plain).max() > 0.03


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_family_forecasts(name):
    example = EXAMPLES[name]
    rng = np.random.default_rng(0)
    data = [example.draw_data(rng, n) for n in (40, 25)]
    model = sj.HMM(3, example.given, random_state=0, n_init=1).fit(data)
    found = model.forecast(data, steps=3, n_draws=50, random_state=0)
    again = model.forecast(data, steps=3, n_draws=50, random_state=0)
    np.testing.assert_allclose(found.state_probabilities.sum(axis=2), 1.0)
    assert found.draws.shape[:3] == (50, 2, 3)
    np.testing.assert_array_equal(found.draws, again.draws)
    scores = found.log_score([x[:2] for x in data])
    assert np.isfinite(scores[:, :2]).all()
    assert np.isnan(scores[:, 2]).all()
    if found.means is not None:
        assert found.means.shape[:2] == (2, 3)
        known = ~np.isnan(found.means)
        assert (np.diff(found.quantiles, axis=0) >= 0)[:, known].all()


def test_quantiles_of_angles_are_those_of_the_circle_cut_at_pi():
    direction, kappa, levels = 0.5, 3.0, np.array([0.1, 0.5, 0.9])
    length = special.i1e(kappa) / special.i0e(kappa)
    natural = 1e9 * np.array([[1.0, length * np.cos(direction), length * np.sin(direction)]])
    x = np.linspace(-np.pi, np.pi, 200_001)
    chances = np.cumsum(stats.vonmises(kappa, direction).pdf(x))
    expected = np.interp(levels, chances / chances[-1], x)
    got = mixture_quantiles(sj.VonMises(1), natural, np.ones((1, 1)), levels)
    np.testing.assert_allclose(got.ravel(), expected, atol=1e-4)


def test_forecasts_of_autoregressions_follow_their_definition():
    rng = np.random.default_rng(0)
    x = np.zeros((400, 1))
    for t in range(1, 400):  # two regimes that take turns every ten steps
        calm = t // 10 % 2 == 0
        x[t] = (0.9 * x[t - 1] if calm else 8.0 - 0.8 * x[t - 1]) + rng.normal() * (0.2 + calm)
    x = x[:395]
    model = sj.HMM(2, sj.AutoregressiveGaussian(), random_state=0, n_init=1).fit(x)
    found = model.forecast(x, steps=2, n_draws=3000, random_state=0)
    # One step ahead it is a mixture of t distributions around coefs_ · x_T.
    natural = model.fitted_.evidence().natural
    y = np.array([[2.4], [6.1]])
    first = found.log_score([y[:1]])[0, 0]
    together = np.concatenate([x, y[:1]])
    ahead = model.score(together) - model.score(x)
    np.testing.assert_allclose(first, ahead, atol=2e-2)
    # Two steps ahead: the mean over what may come in between.
    grid = np.linspace(-30, 40, 4001)[:, None]
    family = model.emission_
    between = family.observations(_after(x[-1], grid))[1::2]
    weights = model.filter(x)[-1] @ model.transmat_
    joint = weights * np.exp(family.log_predictive(between, natural))
    last = family.observations(_after(grid, np.broadcast_to(y[1], grid.shape)))[1::2]
    density = ((joint @ model.transmat_) * np.exp(family.log_predictive(last, natural))).sum()
    density *= grid[1, 0] - grid[0, 0]
    np.testing.assert_allclose(found.log_score([y])[0, 1], np.log(density), atol=0.05)
    np.testing.assert_allclose(found.means[0], found.draws.mean(axis=0)[0])


def _after(before, now):
    before = np.broadcast_to(before, now.shape)
    steps = np.stack([before, now], axis=1).reshape(-1, 1)
    return sj.Sequences.from_lengths(steps, [2] * len(now))


def test_continuations_have_the_distribution_of_the_forecast():
    model = chains.symbol_model()
    observations, states = model.sample(3000, 2, given=[X, X[:1]], random_state=0)
    assert len(observations) == 6000
    expected = model.forecast([X, X[:1]], steps=2, n_draws=0)
    for n in range(2):
        own = observations[3000 * n : 3000 * (n + 1)].values.reshape(3000, 2)
        for h in range(2):
            counts = np.bincount(own[:, h], minlength=4)
            p = stats.chisquare(counts, 3000 * expected.probabilities[n, h]).pvalue
            assert p > 1e-4
    assert states.lengths.tolist() == [2] * 6000
    lengths = [1, 2, 3, 1]
    assert model.sample(2, lengths, given=[X, X])[0].lengths.tolist() == lengths


def test_continuations_of_an_autoregression_begin_where_the_data_end():
    x = np.linspace(100.0, 200.0, 60)[:, None]
    rng = np.random.default_rng(0)
    x = x + 0.1 * rng.normal(size=x.shape)
    model = sj.HMM(1, sj.AutoregressiveGaussian(), random_state=0, n_init=1).fit(x)
    drawn, _ = model.sample(20, 3, given=x, random_state=0)
    assert np.abs(drawn.values - 200.0).max() < 20.0


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1"),
        ({"n_draws": -1}, "n_draws must be a whole number of at least 0"),
        ({"quantiles": (0.5, 1.0)}, "quantiles must be between 0 and 1"),
    ],
)
def test_wrong_arguments_are_refused(wrong, match):
    with pytest.raises(ValueError, match=match):
        chains.symbol_model().forecast(X, **wrong)


def test_what_came_must_fit_the_forecast():
    found = chains.symbol_model().forecast([X, X], steps=2)
    with pytest.raises(ValueError, match="1 sequences came, the forecast has 2"):
        found.log_score([[0]])
    with pytest.raises(ValueError, match="3 steps came, the forecast has 2"):
        found.log_score([[0], [1, 1, 1]])
    with pytest.raises(ValueError, match="n_draws must be at least 1"):
        _ = chains.symbol_model().forecast(X, n_draws=0).draws


def test_draws_of_futures_have_their_own_parameters():
    # One count: futures differ in their rate, so that their steps are correlated.
    rates = np.array([[1.0, 4.0]] * 3)
    model = chains.fitted_at(sj.Poisson(1, 1e-9, 1e-9), rates)
    drawn = model.forecast(np.array([4]), steps=2, n_draws=2000, random_state=0).draws[:, 0, :, 0]
    assert np.corrcoef(drawn.T)[0, 1] > 0.05
    natural = draw_parameters(model.family, rates, np.random.default_rng(0))
    assert np.ptp(model.family.parameters(natural)["lambdas_"]) > 0


def test_regressions_are_forecast_at_the_covariates_that_are_given():
    rng = np.random.default_rng(3)
    covariates = rng.normal(size=400)
    targets = np.where(np.arange(400) // 50 % 2, 5.0 * covariates + 20.0, -5.0 * covariates)
    X = np.stack([targets + 0.1 * rng.normal(size=400), covariates], axis=1)
    model = sj.HMM(2, sj.LinearGaussian(1), random_state=0).fit(X)
    ahead = np.array([[-3.0], [0.0], [3.0]])
    found = model.forecast(X, steps=3, n_draws=400, covariates=ahead, random_state=1)
    assert (found.draws[:, 0, :, 1:] == ahead).all()
    # In each state the target lies on that state's line, up to the noise and the draws' own lines.
    upper = found.state_draws[:, 0] == np.argmax(model.predict_proba(X)[-1])
    lines = np.where(upper, 5.0 * ahead[:, 0] + 20.0, -5.0 * ahead[:, 0])
    assert np.abs(found.draws[:, 0, :, 0] - lines).max() < 3.0
    expected = found.state_probabilities[0, 2]
    means = np.where(np.arange(2) == np.argmax(model.predict_proba(X)[-1]), 35.0, -15.0)
    assert found.means[0, 2, 0] == pytest.approx(expected @ means, abs=3.0)
    stream = model.stream()
    for row in X[:5]:
        stream.update(row)
    assert (stream.forecast(3, covariates=ahead).draws[:, 0, :, 1:] == ahead).all()


def test_covariates_of_the_parts_of_a_product_are_in_their_order():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 5))
    family = sj.Product(sj.LinearGaussian(1, n_features=2), sj.LinearGaussian(1, n_features=3))
    model = sj.HMM(1, family, n_passes=2, random_state=0).fit(X, [30, 30])
    ahead = rng.normal(size=(2, 2, 3))
    draws = model.forecast(X, [30, 30], steps=2, covariates=ahead).draws
    assert (draws[..., [1, 3, 4]] == ahead).all()


@pytest.mark.parametrize(
    ("covariates", "match"),
    [(np.zeros((3, 1)), r"\(2, 1\)"), ([[0.0], [np.nan]], r"covariates\[1, 0\] is nan")],
)
def test_covariates_that_do_not_fit_are_refused(covariates, match):
    X = np.random.default_rng(5).normal(size=(20, 2))
    model = sj.HMM(1, sj.LinearGaussian(1), n_passes=1, random_state=0).fit(X)
    with pytest.raises(ValueError, match=match):
        model.forecast(X, steps=2, covariates=covariates)
    with pytest.raises(ValueError, match="Gaussian is given no covariates"):
        sj.HMM(1, sj.Gaussian(), n_passes=1, random_state=0).fit(X).forecast(
            X, steps=2, covariates=covariates
        )
