"""Data that the arithmetic cannot hold are refused, and what it can hold gives finite results."""

import warnings

import numpy as np
import pytest

import sojourn as sj
from sojourn import memory
from sojourn.families.checks import LARGEST, SMALLEST
from sojourn.inference import Posterior, Statistics
from sojourn.prediction import FittedModel
from sojourn.transitions import Dirichlet
from tests.support.families import EXAMPLES

OF_NUMBERS = [name for name in EXAMPLES if not name.startswith("categorical")]
POSITIVE = ("gamma", "log-normal", "exponential")
LENGTHS = [12, 12, 12]


def drawn(name, seed=0):
    return np.asarray(EXAMPLES[name].draw_data(np.random.default_rng(seed), 36), float)


def model(name):
    return sj.HMM(2, EXAMPLES[name].given, n_passes=2, batch_size=2, random_state=0)


@pytest.mark.parametrize("value", [1e155, -1e155, 1e300, 1.7e308, -1.7e308])
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_too_large_a_number_is_refused_with_its_place(name, value):
    x = drawn(name)
    x[14, 0] = value
    fitted = model(name).fit(drawn(name, 1), LENGTHS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="sequence 1, position 2"):
            model(name).fit(x, LENGTHS)
        for method in ("score", "log_likelihood", "predict", "predict_proba", "partial_fit"):
            with pytest.raises(ValueError, match="sequence 1, position 2"):
                getattr(fitted, method)(x, LENGTHS)


@pytest.mark.parametrize("name", POSITIVE)
def test_too_small_a_positive_number_is_refused(name):
    x = drawn(name)
    x[14, 0] = 1e-310
    with pytest.raises(ValueError, match=r"position 2, column 0: .* is too small"):
        model(name).fit(x, LENGTHS)


@pytest.mark.parametrize(
    ("name", "extreme"),
    [
        *((name, e) for name in OF_NUMBERS if "aussian" in name for e in (LARGEST, -LARGEST)),
        *(
            (name, e)
            for name in ("gamma", "log-normal", "exponential")
            for e in (LARGEST, SMALLEST)
        ),
        *((name, 2.0**53) for name in ("Poisson", "negative binomial", "geometric", "multinomial")),
        ("Gaussian", 1e-150),
        ("diagonal Gaussian", 1e-150),
        ("zero-mean Gaussian", 1e-150),
    ],
)
def test_the_largest_number_that_is_accepted_gives_finite_results(name, extreme):
    x = drawn(name)
    x[14] = extreme
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", sj.FitWarning)
        fitted = model(name).fit(x, LENGTHS)
        assert np.isfinite(fitted.log_likelihood(x, LENGTHS)).all()
        assert np.isfinite(fitted.predict_proba(x, LENGTHS)).all()
        for parameters in fitted.fitted_.parameters.values():
            assert np.isfinite(parameters).all()


def test_a_number_too_far_from_a_small_model_is_refused():
    tiny = np.array([[1e-140], [2e-140], [1.5e-140], [3e-140]] * 5)
    for family in (sj.Gaussian(), sj.DiagonalGaussian(), sj.SphericalGaussian()):
        fitted = sj.HMM(2, family, n_passes=2, random_state=0).fit(tiny, [10, 10])
        far = tiny.copy()
        far[13] = 1e119
        with pytest.raises(ValueError, match=r"position 3, column 0: 1e.119"):
            fitted.score(far, [10, 10])


def test_prediction_does_not_return_what_is_not_finite():
    # In single precision no path leads from one state of this model to the other: where that is
    # so, double precision is used.
    statistics = Statistics(np.ones(2), np.eye(2) * 10, np.eye(2) * 10)
    prior, family = Dirichlet.make(2, 1.0, 1e-300), sj.Categorical(2, 1e-300)
    single, double = (
        FittedModel(family, Posterior.from_statistics(statistics, prior, dtype), 1)
        for dtype in ("float32", "float64")
    )
    x = [[0, 0], [0, 1]]
    assert np.isfinite(single.log_likelihood(x)).all()
    np.testing.assert_allclose(single.log_likelihood(x), double.log_likelihood(x), rtol=1e-6)
    assert single.decode(x)[0] == pytest.approx(double.decode(x)[0], rel=1e-6)
    for own, expected in zip(single.predict_proba(x), double.predict_proba(x), strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-6)
        np.testing.assert_allclose(own.sum(axis=1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("missing", [np.s_[:], np.s_[:, :1], np.s_[12:24]])
def test_much_that_is_missing_gives_finite_results_without_warnings(name, missing):
    x = np.asarray(EXAMPLES[name].draw_data(np.random.default_rng(0), 36), float).reshape(36, -1)
    x[missing] = np.nan
    if name.startswith("categorical"):
        x = np.where(np.isnan(x), -1, x)[:, 0].astype(int)
    elif EXAMPLES[name].missing == "rows" and missing == np.s_[:, :1] and x.shape[1] > 1:
        pytest.skip("only whole steps may be missing in this family")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", sj.FitWarning)
        fitted = sj.HMM(3, EXAMPLES[name].given, n_passes=2, n_init=1, random_state=0)
        fitted.fit(x, LENGTHS)
        assert np.isfinite(fitted.score(x, LENGTHS))
        for parameters in fitted.fitted_.parameters.values():
            assert np.isfinite(parameters).all()


# ---- tables that no memory holds -----------------------------------------------------------------


def test_one_stray_symbol_is_refused_with_its_place():
    for data in ([[0, 1, 1_700_000_000]], [[0, 1], [2, 0, 1_700_000_000]]):
        n = len(data) - 1
        with pytest.raises(ValueError, match=f"sequence {n}, position 2: symbol 1700000000 makes"):
            sj.HMM(8, sj.Categorical()).fit(data)


def test_the_limit_is_a_share_of_the_memory(monkeypatch):
    monkeypatch.setattr(memory, "total_memory", lambda: 16_000)
    sj.Categorical().resolve(sj.Sequences.from_list([[0, 499]]), 2)
    with pytest.raises(ValueError, match="position 1: symbol 500 makes"):
        sj.Categorical().resolve(sj.Sequences.from_list([[0, 500]]), 2)
    with pytest.raises(ValueError, match="n_symbols=501 makes a table"):
        sj.Categorical(501).resolve(sj.Sequences.from_list([[0, 1]]), 2)


def test_more_states_than_the_memory_holds_are_refused():
    with pytest.raises(ValueError, match="n_states=10000000 needs a transition matrix of 800,000"):
        sj.HMM(10**7, sj.Categorical(3)).fit([[0, 1, 2]])


@pytest.mark.parametrize("symbol", [3, 10**9, -2, -(2**31)])
def test_symbols_that_were_not_validated_do_not_reach_compiled_code(symbol):
    fitted = sj.HMM(2, sj.Categorical(3), n_passes=1, n_init=1).fit([[0, 1, 2]]).fitted_
    data = sj.Sequences(np.array([0, symbol, 1], np.int32), [0, 3])
    for method in (fitted.log_likelihoods, fitted.paths, fitted.probabilities):
        with pytest.raises(ValueError, match="outside the alphabet"):
            method(data)


@pytest.mark.parametrize("family", [sj.Gaussian, sj.DiagonalGaussian])
def test_units_do_not_matter_where_single_precision_would_do(family):
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(2, size=100), 50)
    x = rng.normal(3.0 * states[:, None], 1.0, (len(states), 2))

    def score(unit):
        model = sj.HMM(2, family(), n_passes=2, batch_size=None, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sj.FitWarning)
            model.fit(unit * x, [2500, 2500])
        return model.score(unit * x, [2500, 2500]) + x.size * np.log(unit)

    for unit in (1e-140, 1e-40, 1e-20, 1e20, 1e40, 1e100):
        assert score(unit) == pytest.approx(score(1.0), rel=1e-5)
