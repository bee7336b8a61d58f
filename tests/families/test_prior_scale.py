"""The scale of a prior on covariances that nobody gave is learned by its evidence, eq (69)."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

import sojourn as sj
from sojourn.families.prior_scale import rescaled

FAMILIES = {
    "full": sj.Gaussian(),
    "diagonal": sj.DiagonalGaussian(),
    "spherical": sj.SphericalGaussian(),
    "zero mean": sj.ZeroMeanGaussian(),
    "tied": sj.TiedGaussian(),
    "Student": sj.StudentT(df=5.0),
    "log-normal": sj.LogNormal(),
    "autoregressive": sj.AutoregressiveGaussian(),
}


def example(family, n_states=6, seed=0):
    """Return a family that has seen some data, and statistics of four states."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 2)) + 5.0 * rng.integers(0, 3, 40)[:, None]
    data = sj.Sequences.from_lengths(np.exp(X / 4.0) if isinstance(family, sj.LogNormal) else X)
    resolved = family.resolve(data, n_states)
    return resolved, resolved.initial_statistics(resolved.validate(data), 4, 40.0, rng)


def factor_of(changed, family):
    return np.max(np.asarray(changed.scale) / np.where(family.scale, family.scale, np.inf))


@pytest.mark.parametrize("name", FAMILIES)
def test_evidence_is_highest_at_the_learned_scale(name):
    given = FAMILIES[name]
    family, statistics = example(given)

    def loss(log_factor):
        own = family.changed(scale=np.exp(log_factor) * np.asarray(family.scale))
        nothing = own.log_normalizer(own.prior() + 0.0 * statistics)
        return (nothing - own.log_normalizer(own.prior() + statistics)).sum()

    best = minimize_scalar(loss, bounds=(0.0, 20.0), method="bounded", options={"xatol": 1e-8})
    assert best.x > 0.1
    found = np.log(factor_of(rescaled(family, given, statistics), family))
    assert found == pytest.approx(best.x, abs=1e-4)


def test_evidence_is_that_of_every_step_given_those_before():
    """The long way: a product of t densities, by SciPy, over the steps of states that are known."""
    rng = np.random.default_rng(1)
    states = [rng.normal(mean, 1.0, (8, 2)) for mean in (0.0, 6.0, 12.0)]
    data = sj.Sequences.from_lengths(np.concatenate(states))
    given = sj.Gaussian()
    family = given.resolve(data, 6)
    mean, kappa, dof = family.mean, family.mean_strength, family.degrees_of_freedom

    def loss(log_factor):
        total = 0.0
        for state in states:
            m, k, nu, psi = mean, kappa, dof, np.exp(log_factor) * family.scale
            for x in state:
                shape = psi * (k + 1.0) / (k * (nu - 1.0))
                total -= stats.multivariate_t.logpdf(x, m, shape, df=nu - 1.0)
                psi = psi + np.outer(x - m, x - m) * k / (k + 1.0)
                m, k, nu = (k * m + x) / (k + 1.0), k + 1.0, nu + 1.0
        return total

    best = minimize_scalar(loss, bounds=(0.0, 20.0), method="bounded", options={"xatol": 1e-8})
    statistics = np.stack([family.statistics(state).sum(axis=0) for state in states])
    found = rescaled(family, given, statistics)
    assert np.log(factor_of(found, family)) == pytest.approx(best.x, abs=1e-4)


def test_the_scale_does_not_depend_on_the_states_allowed():
    few, statistics = example(sj.Gaussian(), 4)
    many, same = example(sj.Gaussian(), 8)
    np.testing.assert_array_equal(statistics, same)
    assert not np.allclose(few.scale, many.scale)
    found = (rescaled(family, sj.Gaussian(), statistics).scale for family in (few, many))
    np.testing.assert_allclose(*found, rtol=1e-3)


def test_a_state_whose_steps_are_all_equal_leaves_the_guess():
    given = sj.DiagonalGaussian()
    data = sj.Sequences.from_lengths(np.repeat([0.0, 1.0], 50)[:, None])
    family = given.resolve(data, 4)
    parts = (family.statistics(np.full((50, 1), value)).sum(axis=0) for value in (0.0, 1.0))
    assert rescaled(family, given, np.stack(list(parts))) is family


@pytest.mark.parametrize("given", [{"scale": 3.0}, {"degrees_of_freedom": 5.0}])
def test_what_is_given_stays(given):
    before = sj.Gaussian(**given)
    family, statistics = example(before)
    assert rescaled(family, before, statistics) is family
    counts = sj.Poisson(1)
    assert rescaled(counts, counts, np.ones((2, 2))) is counts


def test_parts_of_a_product_have_scales_of_their_own():
    parts = [sj.DiagonalGaussian(1), sj.Poisson(1), sj.Gaussian(1, scale=2.0), sj.Gaussian(1)]
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=30), rng.poisson(3, 30), rng.normal(size=(30, 2))])
    given, data = sj.Product(*parts), sj.Sequences.from_lengths(X)
    family = given.resolve(data, 4)
    statistics = family.initial_statistics(family.validate(data), 2, 30.0, rng)
    found = rescaled(family, given, statistics)
    assert found.parts[1:3] == family.parts[1:3]
    ends = np.cumsum([0, *(part.n_statistics for part in family.parts)])
    for n in (0, 3):
        alone = rescaled(family.parts[n], parts[n], statistics[:, ends[n] : ends[n + 1]])
        assert factor_of(alone, family.parts[n]) > 1.0
        np.testing.assert_array_equal(found.parts[n].scale, alone.scale)


# ---- models -------------------------------------------------------------------------------------


class StopError(Exception):
    pass


@pytest.fixture(scope="module")
def series():
    rng = np.random.default_rng(0)
    return rng.normal(np.repeat([-5.0, 5.0, -5.0, 5.0], 10))[:, None]


@pytest.fixture(scope="module")
def whole(series):
    return fitted(series)


def fitted(X, n_states=3, scale=None, n_init=1, **options):
    model = sj.HDPHMM(n_states, sj.Gaussian(scale=scale), random_state=0, n_init=n_init)
    return model.fit(X, **options)


def test_more_states_allowed_end_with_the_same_prior(series, whole):
    few = fitted(series, 2)
    assert few.n_states_ == whole.n_states_ == 2
    assert few.emission_.scale == pytest.approx(whole.emission_.scale, rel=0.01)
    assert few.score(series) == pytest.approx(whole.score(series), abs=0.05)
    guess = sj.Gaussian().resolve(sj.Sequences.from_lengths(series), 3)
    assert whole.emission_.scale > 2.0 * guess.scale


def test_restarts_learn_the_scale_too_but_none_that_is_given(series, whole):
    best = fitted(series, 2, n_init=2)
    assert best.emission_.scale == pytest.approx(whole.emission_.scale, rel=0.01)
    assert best.emission.scale is None
    assert fitted(series, 2, scale=2.0, n_init=2).emission_.scale == 2.0


def test_the_learned_scale_is_saved(series, whole, tmp_path):
    whole.save(tmp_path / "model.sojourn")
    loaded = sj.load(tmp_path / "model.sojourn")
    assert loaded.emission_.scale == whole.emission_.scale
    assert loaded.score(series) == whole.score(series)


@pytest.mark.parametrize("after", [-1, 1])
def test_a_fit_resumed_before_or_after_the_search_is_the_same(series, whole, tmp_path, after):
    n_search = 1 + next(n for n, entry in enumerate(whole.history_) if entry["moves"])

    def stop(progress):
        if progress.updates > n_search + after:
            raise StopError

    with pytest.raises(StopError):
        fitted(series, checkpoint=tmp_path / "c", checkpoint_every=1, callback=stop)
    resumed = fitted(series, checkpoint=tmp_path / "c", resume=True)
    assert resumed.emission_.scale == whole.emission_.scale
    assert (resumed.means_ == whole.means_).all()
    assert len(resumed.history_) == len(whole.history_)
