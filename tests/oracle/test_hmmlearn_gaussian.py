"""SVI in one batch with ρ = 1 is variational Bayes: hmmlearn's, iteration by iteration."""

import numpy as np
import pytest
from hmmlearn.vhmm import VariationalGaussianHMM
from scipy.special import digamma

import sojourn as sj

A = 0.3  # concentration of transitions
KAPPA = 0.6  # strength of the prior mean, hmmlearn's beta
N_STATES = 3


class IndependentColumns(VariationalGaussianHMM):
    """hmmlearn's model with the expected log determinant of independent variances.

    hmmlearn takes E[log|Σ⁻¹|] of its "diag" and "spherical" models from a Wishart distribution of
    full matrices, Σ_d ψ((ν − d)/2) with d = 0..D−1.  Variances that are independent gamma variables
    have D ψ(ν/2), and one common variance D ψ(ν D/2) (less log D, as its scale is a mean).  For a
    single column there is no difference, and hmmlearn's own class is the oracle.  Everything else,
    the quadratic terms, statistics and updates, is hmmlearn's.
    """

    def _compute_subnorm_log_likelihood(self, X):
        nf, dof = self.n_features, self.dof_posterior_
        theirs = digamma(0.5 * (dof - np.arange(nf)[:, None])).sum(axis=0)
        if self.covariance_type == "diag":
            exact = nf * digamma(0.5 * dof)
        else:
            exact = nf * (digamma(0.5 * nf * dof) - np.log(nf))
        return super()._compute_subnorm_log_likelihood(X) + 0.5 * (exact - theirs)


def ragged_vectors(seed, n_features):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 25, 20)
    clusters = rng.integers(3, size=lengths.sum())
    spread = np.array([0.5, 1.0, 2.0])[clusters, None]
    return 4.0 * clusters[:, None] + spread * rng.normal(size=(lengths.sum(), n_features)), lengths


def first_statistics(X, seed):
    """Statistics of a random soft assignment, by hand."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(N_STATES, 0.3), len(X))
    counts = weights.sum(axis=0)
    sums = weights.T @ X
    products = np.einsum("tk,ti,tj->kij", weights, X, X)
    return counts, sums, products, rng.exponential(9.0, 3), rng.exponential(9.0, (3, 3))


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("n_features", [1, 3])
@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_three_passes_of_svi_are_three_iterations_of_variational_bayes(kind, n_features, device):
    d = n_features
    X, lengths = ragged_vectors(d, d)
    dof, mean = d + 1.5, np.linspace(1.0, 2.0, d)
    counts, sums, products, start, transitions = first_statistics(X, 5)
    upper = np.triu_indices(d)
    squares = np.einsum("kii->ki", products)
    settings = {"mean": mean, "mean_strength": KAPPA, "location": 0.0}
    if kind in ("full", "tied"):
        scale = 0.4 * np.eye(d) + 0.1
        family = (sj.Gaussian if kind == "full" else sj.TiedGaussian)(
            degrees_of_freedom=dof, scale=scale, **settings
        )
        emissions = [counts[:, None], counts[:, None], sums, products[:, *upper]]
        prior_scale = scale
    elif kind == "diag":
        prior_scale = np.linspace(0.4, 0.8, d)
        family = sj.DiagonalGaussian(degrees_of_freedom=dof, scale=prior_scale, **settings)
        column = np.repeat(counts[:, None], d, axis=1)
        emissions = [column, column, sums, squares]
    else:
        # hmmlearn's spherical scale is a mean over columns, and its ν counts steps, not entries.
        prior_scale = 0.4
        family = sj.SphericalGaussian(degrees_of_freedom=d * dof, scale=d * 0.4, **settings)
        column = np.repeat(counts[:, None], d, axis=1)
        emissions = [column, d * counts[:, None], sums, squares.sum(axis=1, keepdims=True)]
    statistics = sj.Statistics(start, transitions, np.concatenate(emissions, axis=1))

    theirs = (
        IndependentColumns if kind in ("diag", "spherical") and d > 1 else VariationalGaussianHMM
    )(N_STATES, covariance_type=kind, n_iter=3, tol=-np.inf, init_params="", params="stmc")
    theirs.n_features = d
    theirs.startprob_prior_ = np.full(3, A)
    theirs.transmat_prior_ = np.full((3, 3), A)
    theirs.means_prior_ = np.tile(mean, (3, 1))
    theirs.beta_prior_ = np.full(3, KAPPA)
    theirs.dof_prior_ = np.full(3, dof)
    theirs.scale_prior_ = np.broadcast_to(prior_scale, (3, *np.shape(prior_scale))).copy()
    if kind == "tied":
        theirs.dof_prior_, theirs.scale_prior_ = dof, prior_scale
    theirs.startprob_posterior_ = A + start
    theirs.transmat_posterior_ = A + transitions
    theirs.startprob_, theirs.transmat_ = np.full(3, 1 / 3), np.full((3, 3), 1 / 3)
    theirs._do_mstep(
        {
            "nobs": len(X),
            "start": start,
            "trans": transitions,
            "post": counts,
            "obs": sums,
            "obs**2": squares,
            "obs*obs.T": products,
        }
    )
    theirs.fit(X, lengths)

    ours = sj.HMM(
        N_STATES,
        family,
        inference="svi",
        transition_concentration=A,
        batch_size=None,
        n_passes=3,
        forgetting_rate=0.0,
        init=statistics,
        dtype="float64",
        device=device,
    ).fit(X, lengths)
    learned = ours.statistics_
    close = {"rtol": 1e-8, "atol": 1e-8}
    np.testing.assert_allclose(A + learned.start, theirs.startprob_posterior_, **close)
    np.testing.assert_allclose(A + learned.transitions, theirs.transmat_posterior_, **close)
    np.testing.assert_allclose(ours.means_, theirs.means_posterior_, **close)
    their_dof = theirs.dof_posterior_
    if kind == "tied":
        covariances = ours.covars_ * (their_dof - d - 1)
    elif kind == "full":
        covariances = ours.covars_ * (their_dof - d - 1)[:, None, None]
    elif kind == "diag":
        covariances = ours.covars_ * (their_dof - 2)[:, None]
    else:
        covariances = ours.covars_ * (d * their_dof - 2) / d
    np.testing.assert_allclose(covariances, theirs.scale_posterior_, **close)
