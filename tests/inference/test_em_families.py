"""Maximum likelihood of Gaussian and Poisson families, held by hmmlearn."""

import warnings

import numpy as np
import pytest

import sojourn as sj

hmm = pytest.importorskip("hmmlearn.hmm")

LENGTHS = [100] * 6
STATES = np.repeat(np.random.default_rng(5).integers(3, size=60), 10)


def drawn(kind):
    rng = np.random.default_rng(0)
    if kind == "poisson":
        return rng.poisson(np.array([[1.0, 9.0], [6.0, 2.0], [15.0, 15.0]])[STATES])
    means = np.array([[0.0, 0.0], [4.0, 1.0], [-3.0, 5.0]])
    return means[STATES] + rng.normal(size=(600, 2)) @ [[1.0, 0.5], [0.0, 0.8]]


PRIOR = {"mean_strength": 1e-200}
CASES = {
    "full": (sj.Gaussian(scale=0.01, **PRIOR), "full"),
    "tied": (sj.TiedGaussian(scale=0.01, **PRIOR), "tied"),
    "diag": (sj.DiagonalGaussian(scale=0.01, **PRIOR), "diag"),
    "poisson": (sj.Poisson(prior_shape=1e-200, prior_rate=1e-200), None),
}


@pytest.mark.parametrize("kind", CASES)
def test_em_stops_where_hmmlearns_stays(kind):
    family, covariance = CASES[kind]
    x = drawn(kind)
    tiny = 1e-200
    ours = sj.HMM(
        3, family, inference="em", n_passes=200, dtype="float64", random_state=0, n_init=2,
        transition_concentration=tiny, start_concentration=tiny,
    ).fit(x, LENGTHS)  # fmt: skip
    scores = [entry["bound"] for entry in ours.history_]
    assert (np.diff(scores) > -1e-6 * abs(scores[0])).all()
    arguments = {"n_iter": 1, "init_params": "", "tol": 0.0}
    if kind == "poisson":
        theirs = hmm.PoissonHMM(3, **arguments)
        theirs.lambdas_ = ours.lambdas_
        names = ["lambdas_"]
    else:
        theirs = hmm.GaussianHMM(
            3, covariance, covars_prior=0.01 * (1.0 if covariance == "diag" else np.eye(2)),
            covars_weight=1.0, min_covar=0.0, **arguments,
        )  # fmt: skip
        theirs.means_ = ours.means_
        theirs.covars_ = ours.covars_
        names = ["means_", "covars_"]
    theirs.startprob_, theirs.transmat_ = ours.startprob_, ours.transmat_
    theirs.n_features = 2
    assert theirs.score(x, LENGTHS) == pytest.approx(ours.score(x, LENGTHS), rel=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs.fit(x, LENGTHS)
    for name in names:
        found = np.asarray(getattr(theirs, name))
        if name == "covars_":
            full = {"diag": np.diagonal(found, axis1=1, axis2=2), "tied": found[0]}
            found = full.get(kind, found)
        np.testing.assert_allclose(found, getattr(ours, name), rtol=2e-3, atol=2e-3)


def test_families_without_a_point_estimate_say_so():
    x = drawn("full")
    with pytest.raises(ValueError, match="'vb' or 'scvi' for StudentT"):
        sj.HMM(2, sj.StudentT(), inference="em").fit(x, LENGTHS)
