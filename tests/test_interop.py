"""Models of hmmlearn and of sojourn, turned into one another."""

import numpy as np
import pytest
from hmmlearn import hmm

import sojourn as sj

K, D = 3, 2


def parameters(rng):
    return rng.dirichlet(np.ones(K)), rng.dirichlet(np.ones(K), K)


def theirs_of(kind, seed=0):
    """A model of hmmlearn with random parameters, and data drawn from it."""
    rng = np.random.default_rng(seed)
    start, transitions = parameters(rng)
    if kind == "categorical":
        model = hmm.CategoricalHMM(K, random_state=1)
        model.n_features = 5
        model.emissionprob_ = rng.dirichlet(np.ones(5), K)
    elif kind == "multinomial":
        model = hmm.MultinomialHMM(K, n_trials=6, random_state=1)
        model.n_features = 4
        model.emissionprob_ = rng.dirichlet(np.ones(4), K)
    elif kind == "poisson":
        model = hmm.PoissonHMM(K, random_state=1)
        model.n_features = D
        model.lambdas_ = rng.uniform(0.5, 9.0, (K, D))
    else:
        model = hmm.GaussianHMM(K, covariance_type=kind, random_state=1)
        model.n_features = D
        model.means_ = rng.normal(size=(K, D)) * 3.0
        root = rng.normal(size=(K, D, D)) + 2 * np.eye(D)
        full = root @ root.swapaxes(-1, -2)
        model.covars_ = {
            "full": full,
            "tied": full[0],
            "diag": np.diagonal(full, axis1=1, axis2=2),
            "spherical": full[:, 0, 0],
        }[kind]
    model.startprob_, model.transmat_ = start, transitions
    X = np.concatenate([model.sample(n, random_state=n)[0] for n in (40, 1, 25)])
    return model, X, [40, 1, 25]


KINDS = ["categorical", "multinomial", "poisson", "full", "tied", "diag", "spherical"]


@pytest.mark.filterwarnings("ignore:.*MultinomialHMM:UserWarning", "ignore:Mean of empty slice")
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_hmmlearn_scores_and_decodes_the_same(kind):
    theirs, X, lengths = theirs_of(kind)
    ours = sj.from_hmmlearn(theirs)
    assert ours.score(X, lengths) == pytest.approx(theirs.score(X, lengths), rel=1e-6)
    log_probability, path = theirs.decode(X, lengths)
    assert ours.decode(X, lengths)[0] == pytest.approx(log_probability, rel=1e-6)
    np.testing.assert_array_equal(ours.predict(X, lengths), path)
    np.testing.assert_allclose(
        ours.predict_proba(X, lengths), theirs.predict_proba(X, lengths), atol=1e-5
    )


@pytest.mark.filterwarnings("ignore:.*MultinomialHMM:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back_again(kind):
    theirs, X, lengths = theirs_of(kind)
    again = sj.from_hmmlearn(theirs).to_hmmlearn()
    assert type(again) is type(theirs)
    if kind == "multinomial":
        again.n_trials = theirs.n_trials
    names = ["startprob_", "transmat_"]
    names += [n for n in ("emissionprob_", "lambdas_", "means_", "covars_") if hasattr(theirs, n)]
    for name in names:
        np.testing.assert_allclose(getattr(again, name), getattr(theirs, name), rtol=1e-6)
    assert again.score(X, lengths) == pytest.approx(theirs.score(X, lengths), rel=1e-6)


def test_a_fitted_model_becomes_one_of_hmmlearn():
    X = np.random.default_rng(0).integers(5, size=300)
    ours = sj.HDPHMM(4, sj.Categorical(5), dtype="float64", random_state=0).fit(X, [100] * 3)
    theirs = ours.to_hmmlearn()
    assert theirs.score(X[:, None], [100] * 3) == pytest.approx(ours.score(X, [100] * 3))


def test_a_lighter_model_learns_on():
    theirs, X, lengths = theirs_of("full")
    far = X + 10.0
    ours = sj.from_hmmlearn(theirs, weight=20.0)
    before = ours.score(far, lengths)
    for _ in range(5):
        ours.partial_fit(far, lengths, total_sequences=3)
    assert ours.score(far, lengths) > before + 100.0


def test_what_has_no_counterpart_is_refused():
    with pytest.raises(TypeError, match="GMMHMM has no counterpart in sojourn"):
        sj.from_hmmlearn(hmm.GMMHMM(2))
    with pytest.raises(ValueError, match="weight must be positive"):
        sj.from_hmmlearn(theirs_of("poisson")[0], weight=0.0)
    model = sj.HMM(1, sj.Bernoulli()).fit(np.eye(4))
    with pytest.raises(TypeError, match="hmmlearn has no Bernoulli emissions"):
        model.to_hmmlearn()


@pytest.mark.parametrize("kind", ["categorical", "poisson", "full", "tied", "diag", "spherical"])
def test_criteria_are_those_of_hmmlearn(kind):
    theirs, X, lengths = theirs_of(kind)
    ours = sj.from_hmmlearn(theirs)
    assert ours.aic(X, lengths) == pytest.approx(theirs.aic(X, lengths), rel=1e-6)
    assert ours.bic(X, lengths) == pytest.approx(theirs.bic(X, lengths), rel=1e-6)


@pytest.mark.parametrize(
    ("family", "per_state"),
    [
        (sj.Bernoulli(), 2),
        (sj.LogNormal(), 4),
        (sj.ZeroMeanGaussian(), 3),
        (sj.AutoregressiveGaussian(order=2), 2 * 5 + 3),
        (sj.LinearGaussian(n_targets=1), 2 + 1),
        (sj.Product(sj.Exponential(1), sj.Gamma()), 2),
    ],
)
def test_parameters_are_counted(family, per_state):
    from sojourn.model_selection import n_parameters

    X = np.random.default_rng(0).integers(2, size=(30, 2)).astype(float)
    if not isinstance(family, sj.Bernoulli):
        X += 0.5
    model = sj.HMM(2, family, random_state=0).fit(X)
    assert n_parameters(model) == 1 + 2 + 2 * per_state


def test_an_hdp_has_no_fixed_number_of_parameters():
    model = sj.HDPHMM(2, sj.Categorical(2), random_state=0).fit([[0, 1]])
    with pytest.raises(ValueError, match="HDPHMM has no fixed number of parameters"):
        model.bic([[0, 1]])
