"""One covariance for all states: textbook updates, hmmlearn, and what merges gain by definition."""

import itertools

import numpy as np
import pytest
from hmmlearn.hmm import GaussianHMM
from scipy import stats
from scipy.special import multigammaln

import sojourn as sj
from sojourn.families.draws import draw_parameters
from sojourn.inference import Posterior, Statistics
from sojourn.moves.pairs import MergedStates, merge_weights
from sojourn.moves.settings import MoveSettings
from sojourn.transitions import Dirichlet

K, D = 3, 2
MEAN, STRENGTH, DOF = np.array([1.0, 2.0]), 0.7, 3.5
SCALE = np.array([[0.5, 0.1], [0.1, 0.9]])
FAMILY = sj.TiedGaussian(
    mean=MEAN, mean_strength=STRENGTH, degrees_of_freedom=DOF, scale=SCALE, location=[5.0, 4.0]
)


def seen(seed=0, n=40):
    rng = np.random.default_rng(seed)
    states = rng.integers(K, size=n)
    return 3.0 * states[:, None] + rng.normal(5.0, 1.0, (n, D)), states


def learned(x, states, n_states=K):
    """The family, and the statistics of every state."""
    family = FAMILY.resolve(sj.Sequences(x, [0, len(x)]), n_states)
    return family, np.eye(n_states)[states].T @ family.statistics(x)


def by_hand(x, states, n_states=K):
    """The shared degrees of freedom and scale; strength and mean of every state."""
    scale, strengths, means = SCALE.copy(), [], []
    for k in range(n_states):
        own = x[states == k]
        n, average = len(own), own.mean(axis=0)
        scale += (own - average).T @ (own - average)
        scale += STRENGTH * n / (STRENGTH + n) * np.outer(average - MEAN, average - MEAN)
        strengths.append(STRENGTH + n)
        means.append((STRENGTH * MEAN + n * average) / (STRENGTH + n))
    return DOF + len(x), scale, np.array(strengths), np.array(means)


def log_evidence(x, states, n_states=K):
    """log p(x | z), the parameters integrated out (Murphy 2012, section 4.6, with a common Σ)."""
    dof, scale, strengths, _ = by_hand(x, states, n_states)
    dets = [0.5 * d * np.linalg.slogdet(s)[1] for d, s in ((DOF, SCALE), (dof, scale))]
    return (
        dets[0] - dets[1] + multigammaln(dof / 2, D) - multigammaln(DOF / 2, D)
        - 0.5 * D * (np.log(strengths) - np.log(STRENGTH)).sum() - 0.5 * D * len(x) * np.log(np.pi)
    )  # fmt: skip


def test_the_predictive_distribution_is_a_t_with_the_scatter_of_all_states():
    x, states = seen()
    family, statistics = learned(x, states)
    dof, scale, strengths, means = by_hand(x, states)
    new = np.random.default_rng(1).normal(7.0, 4.0, (20, D))
    df = dof - D + 1
    expected = [
        stats.multivariate_t(means[k], scale / df * (1 + 1 / strengths[k]), df).logpdf(new)
        for k in range(K)
    ]
    found = family.log_predictive(new, family.prior() + statistics)
    np.testing.assert_allclose(found, np.transpose(expected), rtol=1e-10)


def test_the_evidence_of_given_states_is_that_of_textbooks():
    x, states = seen(2)
    family, statistics = learned(x, states)
    normalizers = [
        family.log_normalizer(family.prior() + s).sum() for s in (statistics, 0.0 * statistics)
    ]
    found = normalizers[0] - normalizers[1] + family.log_base_measure(x).sum()
    assert found == pytest.approx(log_evidence(x, states), rel=1e-12)


def test_a_merge_gains_what_the_evidence_gains():
    x, states = seen(3)
    family, statistics = learned(x, states)
    pairs = list(itertools.combinations(range(K), 2))
    found = family.merge_gains(statistics, *np.transpose(pairs))
    before = log_evidence(x, states)
    for gain, (one, other) in zip(found, pairs, strict=True):
        groups = merge_weights(K, [(one, other)]).argmax(axis=0)
        after = log_evidence(x, groups[states], K - 1)
        assert gain == pytest.approx(after - before, rel=1e-9)


def test_after_a_merge_all_other_pairs_are_compared_again():
    x, states = seen(4)
    family, statistics = learned(x, states)
    counts = Statistics(np.ones(K), np.full((K, K), 5.0), statistics)
    posterior = Posterior.from_statistics(counts, Dirichlet.make(K, 1.0, 1.0), "float64")
    merging = MergedStates.of(family, posterior, np.zeros((K, K)), MoveSettings())
    groups = merging.merge((0, 1))
    fresh = MergedStates.of(
        family, posterior.regrouped(groups), np.zeros((K - 1, K - 1)), MoveSettings()
    )
    np.testing.assert_allclose(merging.gains, fresh.gains, rtol=1e-9)
    # The pool keeps what scatters within the merged state.
    again, merged = learned(x, groups.argmax(axis=0)[states], K - 1)
    found = family.parameters(family.prior() + posterior.regrouped(groups).emissions.dense())
    for name, value in again.parameters(again.prior() + merged).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9)


def test_hmmlearn_has_the_same_score_at_fixed_parameters():
    rng = np.random.default_rng(5)
    theirs = GaussianHMM(K, covariance_type="tied")
    theirs.startprob_, theirs.transmat_ = rng.dirichlet(np.ones(K)), rng.dirichlet(np.ones(K), K)
    theirs.means_, theirs.covars_ = 3.0 * rng.normal(size=(K, D)), SCALE
    theirs.n_features = D
    x = np.concatenate([theirs.sample(n, random_state=n)[0] for n in (60, 1, 30)])
    for covars in (SCALE, np.repeat(SCALE[None], K, axis=0)):
        ours = sj.HMM.from_parameters(
            theirs.startprob_, theirs.transmat_, sj.TiedGaussian(), means=theirs.means_,
            covars=covars, fixed="emissions",
        )  # fmt: skip
        assert ours.score(x, [60, 1, 30]) == pytest.approx(theirs.score(x, [60, 1, 30]), rel=1e-8)
        np.testing.assert_allclose(ours.covars_, SCALE, rtol=1e-6)
    again = ours.to_hmmlearn()
    assert again.covariance_type == "tied"
    assert again.score(x, [60, 1, 30]) == pytest.approx(theirs.score(x, [60, 1, 30]), rel=1e-8)
    with pytest.raises(ValueError, match="must be one matrix"):
        sj.HMM.from_parameters(
            theirs.startprob_, theirs.transmat_, sj.TiedGaussian(), means=theirs.means_,
            covars=np.arange(1.0, 4.0)[:, None, None] * SCALE,
        )  # fmt: skip


def test_draws_share_a_covariance_whose_mean_is_the_posteriors():
    x, states = seen(6)
    family, statistics = learned(x, states)
    natural, rng = family.prior() + statistics, np.random.default_rng(0)
    each = [family.parameters(draw_parameters(family, natural, rng)) for _ in range(2000)]
    expected = family.parameters(natural)
    for name in ("means_", "covars_"):
        found = np.array([own[name] for own in each])
        error = found.std(axis=0) / np.sqrt(len(found))
        assert (np.abs(found.mean(axis=0) - expected[name]) < 5.0 * error).all()


def test_extra_states_are_merged_and_the_covariance_is_found():
    rng = np.random.default_rng(7)
    states = np.repeat(rng.integers(4, size=300), 8)
    means = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0], [5.0, 5.0]])
    truth = np.array([[1.0, 0.6], [0.6, 1.5]])
    x = means[states] + rng.multivariate_normal(np.zeros(2), truth, len(states))
    model = sj.HDPHMM(12, sj.TiedGaussian(), random_state=0).fit(x, [240] * 10)
    assert model.n_states_ == 4
    np.testing.assert_allclose(model.covars_, truth, atol=0.12)


def test_parts_of_states_cannot_share_what_states_share():
    with pytest.raises(TypeError, match="parameters of every state's own"):
        sj.HMM(2, sj.Mixture(sj.TiedGaussian(), 2)).fit(seen()[0])
