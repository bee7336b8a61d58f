"""em, vb, cvb0 and svi for the HDP: settings of the one loop, each held to another's answer."""

import numpy as np
import pytest
from hmmlearn.hmm import CategoricalHMM
from hmmlearn.vhmm import VariationalCategoricalHMM
from scipy import integrate, stats
from scipy.optimize import approx_fprime
from scipy.special import digamma, gammaln

import sojourn as sj
from sojourn.backends.cpu import CpuBackend
from sojourn.families.coupled import couples_states
from sojourn.inference import COLLAPSED, Problem
from sojourn.inference.local import expected_statistics, prepare
from sojourn.inference.posterior import Posterior
from sojourn.inference.schedule import Schedule
from sojourn.inference.step import step
from sojourn.kernels import cpu
from sojourn.sources import RememberingSource
from sojourn.transitions import HDP, Dirichlet, GammaDistribution, PointHDP, Rows
from sojourn.transitions.hdp import prior_divergence
from sojourn.transitions.point_hdp import best_logits, stick_bound, stick_gradient, stick_weights
from tests.support.families import EXAMPLES
from tests.support.ragged import A, B, first_statistics, normalize, ragged_symbols

ITERATIONS = 5
SMALLEST = 1e-300  # a prior count that adds nothing to any count: maximum likelihood


def fit(inference, statistics, symbols, lengths, model=sj.HMM, **options):
    return model(
        len(statistics.start),
        options.pop("emission", sj.Categorical(6, concentration=B)),
        inference=inference,
        init=statistics,
        dtype="float64",
        **options,
    ).fit(symbols, lengths)


@pytest.mark.parametrize(("a", "b"), [(A, B), (SMALLEST, SMALLEST)], ids=["MAP", "likelihood"])
def test_em_is_hmmlearns_iteration_by_iteration(a, b):
    symbols, lengths = ragged_symbols(0)
    statistics = first_statistics(1, 4)
    for n in range(1, ITERATIONS + 1):
        ours = fit(
            "em",
            statistics,
            symbols,
            lengths,
            emission=sj.Categorical(6, b),
            transition_concentration=a,
            n_passes=n,
        )
        theirs = CategoricalHMM(
            4,
            startprob_prior=a + 1,
            transmat_prior=a + 1,
            emissionprob_prior=b + 1,
            n_iter=n,
            tol=-np.inf,
            init_params="",
        )
        theirs.n_features = 6
        theirs.startprob_ = normalize(a + statistics.start)
        theirs.transmat_ = normalize(a + statistics.transitions)
        theirs.emissionprob_ = normalize(b + statistics.emissions)
        theirs.fit(symbols[:, None], lengths)
        for name in ("startprob_", "transmat_", "emissionprob_"):
            np.testing.assert_allclose(
                getattr(ours, name), getattr(theirs, name), rtol=1e-9, atol=1e-12
            )
        np.testing.assert_allclose(
            [entry["bound"] for entry in ours.history_], list(theirs.monitor_.history)[-n:]
        )


def test_vb_is_hmmlearns_iteration_by_iteration_bound_included():
    symbols, lengths = ragged_symbols(2)
    statistics = first_statistics(3, 4)
    for n in range(1, ITERATIONS + 1):
        ours = fit(
            "vb", statistics, symbols, lengths, transition_concentration=A, n_passes=n, batch_size=7
        )
        theirs = VariationalCategoricalHMM(
            4,
            startprob_prior=A,
            transmat_prior=A,
            emissionprob_prior=B,
            n_iter=n,
            tol=-np.inf,
            init_params="",
        )
        theirs.n_features = 6
        theirs.startprob_prior_ = np.full(4, A)
        theirs.transmat_prior_ = np.full((4, 4), A)
        theirs.emissionprob_prior_ = np.full((4, 6), B)
        theirs.startprob_posterior_ = A + statistics.start
        theirs.transmat_posterior_ = A + statistics.transitions
        theirs.emissionprob_posterior_ = B + statistics.emissions
        theirs.fit(symbols[:, None], lengths)
        learned = ours.statistics_
        np.testing.assert_allclose(A + learned.start, theirs.startprob_posterior_, rtol=1e-9)
        np.testing.assert_allclose(A + learned.transitions, theirs.transmat_posterior_, rtol=1e-9)
        np.testing.assert_allclose(B + learned.emissions, theirs.emissionprob_posterior_, rtol=1e-9)
        np.testing.assert_allclose(
            [entry["bound"] for entry in ours.history_],
            list(theirs.monitor_.history)[-n:],
            rtol=1e-10,
        )


@pytest.mark.parametrize("model", [sj.HMM, sj.HDPHMM])
@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("seed", [0])
def test_the_bound_of_vb_never_falls(model, name, seed):
    example = EXAMPLES[name]
    rng = np.random.default_rng(seed)
    data = [example.draw_data(rng, n) for n in rng.integers(1, 12, 25)]
    fitted = model(
        3, example.given, inference="vb", n_passes=60, dtype="float64", random_state=seed
    ).fit(data)
    bounds = np.array([entry["bound"] for entry in fitted.history_])
    assert np.isfinite(bounds).all()
    # Rounding: of the terms, and of the slope of a_g where it is found by differences over 1e-3.
    assert (np.diff(bounds) >= -1e-10 * np.abs(bounds[1:]) - 1e-8).all()
    assert bounds[-1] > bounds[0]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_familys_divergence_follows_from_its_expected_log_likelihood(name):
    # λ − λ° is a sum of statistics t(x), and ⟨∇a_g(λ), t(x)⟩ is E[log p(x|φ)] − log h(x).
    family = EXAMPLES[name].resolve()
    rng = np.random.default_rng(0)
    x = family.observations(sj.Sequences(EXAMPLES[name].draw_data(rng, 30), [0, 30]))
    weights = rng.gamma(0.7, 1.0, (3, 30))
    prior = np.broadcast_to(family.prior(), (3, family.n_statistics))
    natural = prior + weights @ family.statistics(x)
    slopes = family.expected_log_likelihood(x, natural) - family.log_base_measure(x)[:, None]
    expected = (weights.T * slopes).sum(axis=0)
    expected += family.log_normalizer(prior) - family.log_normalizer(natural)
    found = family.divergence(natural)
    if couples_states(family):  # then only that of all states means something
        found, expected = found.sum(), expected.sum()
    np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize("model", [sj.HMM, sj.HDPHMM])
@pytest.mark.parametrize("inference", ["svi", "scvi"])
def test_the_bound_on_a_minibatch_is_near_the_bound_of_everything(model, inference):
    rng = np.random.default_rng(0)
    data = rng.integers(5, size=(400, 8))
    options = {"inference": inference, "dtype": "float64", "n_passes": 1}
    init = sj.Statistics(
        400 * np.ones(3) / 3, 2800 * np.ones((3, 3)) / 9, 3200 * rng.dirichlet(np.ones(5), 3) / 3
    )
    still = {"forgetting_rate": 1.0, "delay": 1e12, "init": init, "random_state": 0}
    part = model(3, sj.Categorical(5), batch_size=100, **still, **options)
    part.fit(data, track_bound=True)
    whole = model(3, sj.Categorical(5), batch_size=None, **still, **options)
    whole.fit(data, track_bound=True)
    assert part.history_[0]["bound"] == pytest.approx(whole.history_[0]["bound"], rel=0.02)


def test_the_bound_is_not_computed_where_it_was_not_asked_for():
    data = [[0, 1, 2], [1, 1]]
    assert sj.HMM(2, sj.Categorical(3)).fit(data).history_[0]["bound"] is None
    off = sj.HMM(2, sj.Categorical(3), inference="vb").fit(data, track_bound=False)
    assert off.history_[0]["bound"] is None


def test_the_collapsed_bound_of_certain_states_is_the_log_joint():
    # With counts that are whole and q(z) certain, the entropy is zero and L(q) = log p(x, z).
    counts = Rows(np.array([2.0, 1.0]), np.array([[3.0, 1.0], [0.0, 2.0]]))
    prior = Dirichlet.make(2, 0.3, [0.5, 1.5])
    expected = sum(
        _log_polya(row, c)
        for row, c in zip(
            [prior.prior.start, *prior.prior.transitions],
            [counts.start, *counts.transitions],
            strict=True,
        )
    )
    assert prior.collapsed_bound(counts) == pytest.approx(expected)


def _log_polya(prior, counts):
    """Probability of an ordered sequence with these counts, one urn draw after another."""
    urn, total = prior.copy(), 0.0
    for k, n in enumerate(counts):
        for _ in range(int(n)):
            total += np.log(urn[k] / urn.sum())
            urn[k] += 1
    return total


def test_the_divergence_of_gammas_is_the_integral():
    q, p = GammaDistribution(3.2, 1.4), GammaDistribution(1.0, 0.1)
    first, second = (stats.gamma(g.shape, scale=1 / g.rate) for g in (q, p))
    integral, _ = integrate.quad(
        lambda x: first.pdf(x) * (first.logpdf(x) - second.logpdf(x)), 0, 60
    )
    assert q.divergence(p) == pytest.approx(integral, rel=1e-6)


def test_the_divergence_of_the_sticks_is_the_integral():
    # q(γ) is all but a point, so that the divergence of the sticks alone is left.
    hdp = HDP.make(
        2, alpha_prior=GammaDistribution(1.0, 0.1), gamma_prior=GammaDistribution(1e8, 0.5e8)
    )
    hdp = HDP(
        2,
        tables=np.array([3.0, 1.5]),
        stick_gamma=2.0,
        alpha=hdp.alpha,
        gamma=hdp.gamma,
        alpha_prior=hdp.alpha_prior,
        gamma_prior=hdp.gamma_prior,
    )
    total = 0.0
    for u, v in zip(*hdp.sticks, strict=True):
        q, p = stats.beta(u, v), stats.beta(1, 2)
        total += integrate.quad(lambda x, q=q, p=p: q.pdf(x) * (q.logpdf(x) - p.logpdf(x)), 0, 1)[0]
    assert prior_divergence(hdp) == pytest.approx(total, rel=1e-5)


# ---- a point estimate of π ------------------------------------------------------------------


def drawn_counts(seed, k=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=k), rng.exponential(3.0, (k + 1, k))


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_of_the_bound_by_finite_differences(seed):
    logits, _ = drawn_counts(seed)
    alpha, gamma = 2.5, 1.7
    log_sums = np.random.default_rng(seed).normal(-20, 5, 5)
    analytic = stick_gradient(logits, log_sums, 5, alpha, gamma)
    numeric = approx_fprime(logits, lambda y: stick_bound(y, log_sums, 5, alpha, gamma), 1e-7)
    np.testing.assert_allclose(analytic, numeric, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_is_that_of_the_whole_divergence(seed):
    # The part of the bound that is kept for π must not have lost a term: −KL(q(θ) || p(θ|π))
    # + log p(π) with q(θ) held, where only its gradient matters.
    logits, counts = drawn_counts(seed)
    alpha, gamma = 2.5, 1.7
    q = alpha * stick_weights(logits) + np.hstack([counts, np.zeros((5, 1))])
    log_sums = (digamma(q) - digamma(q.sum(axis=1, keepdims=True))).sum(axis=0)

    def minus_divergence(y):
        prior = alpha * stick_weights(y)
        total = sum(_dirichlet_cross(row, prior) for row in q)
        v = 1 / (1 + np.exp(-y))
        return total + stats.beta(1, gamma).logpdf(v).sum()

    numeric = approx_fprime(logits, minus_divergence, 1e-7)
    analytic = stick_gradient(logits, log_sums, 5, alpha, gamma)
    np.testing.assert_allclose(analytic, numeric, rtol=1e-4, atol=1e-4)

    # With q(θ) at its best for every π the gradient is the same, and `divergence` has every term.
    def profile(y):
        q = alpha * stick_weights(y) + np.hstack([counts, np.zeros((5, 1))])
        expected_log = digamma(q) - digamma(q.sum(axis=1, keepdims=True))
        prior = PointHDP(4, alpha=alpha, gamma=gamma, logits=y)
        loss = prior.divergence(Rows(counts[0], counts[1:]))
        return (counts * expected_log[:, :-1]).sum() - loss

    np.testing.assert_allclose(analytic, approx_fprime(logits, profile, 1e-7), rtol=1e-4, atol=1e-4)


def _dirichlet_cross(posterior, prior):
    """E[log Dirichlet(θ; prior)] under Dirichlet(posterior)."""
    expected = digamma(posterior) - digamma(posterior.sum())
    return gammaln(prior.sum()) - gammaln(prior).sum() + ((prior - 1) * expected).sum()


@pytest.mark.parametrize("seed", range(5))
def test_the_best_weights_are_a_maximum_where_the_gradient_is_zero(seed):
    logits, counts = drawn_counts(seed)
    best = best_logits(logits, counts, 2.5, 1.7)
    prior = 2.5 * stick_weights(best)
    q = prior + np.hstack([counts, np.zeros((5, 1))])
    log_sums = (digamma(q) - digamma(q.sum(axis=1, keepdims=True))).sum(axis=0)
    np.testing.assert_allclose(stick_gradient(best, log_sums, 5, 2.5, 1.7), 0.0, atol=2e-3)


def test_a_point_estimate_learns_on_minibatches_and_shows_its_weights():
    rng = np.random.default_rng(0)
    data = rng.integers(4, size=(60, 6))
    model = sj.HDPHMM(
        5, sj.Categorical(4), inference="svi", batch_size=10, hdp_batch_size=30, random_state=0
    ).fit(data)
    assert model.hdp_.weights.shape == (5,)
    assert 0 < model.hdp_.weights.sum() < 1
    assert model.hdp_.alpha == 10.0
    assert model.fitted_.posterior.transitions.n_updates == 20
    np.testing.assert_allclose(model.transmat_.sum(axis=1), 1.0)


# ---- cvb0 -----------------------------------------------------------------------------------


def test_cvb0_takes_a_sequence_out_before_its_update():
    # One update, written out: the statistics of all others alone make the potentials.
    data = sj.Sequences.from_list([[0, 1, 1], [2, 0], [1, 2, 2, 0]])
    family = sj.Categorical(3, 0.4)
    data = family.validate(data)
    backend = CpuBackend(cpu, 1)
    rng = np.random.default_rng(0)
    init = sj.Statistics(rng.exponential(1, 2), rng.exponential(1, (2, 2)), rng.random((2, 3)))
    prior = Dirichlet.make(2, 0.3, 0.3)
    source = RememberingSource(data, seed=0)
    kept = {}
    for batch in source.batches(0):
        start = Posterior.from_statistics(init, prior, "float64")
        sums = expected_statistics(start, family, COLLAPSED, prepare(family, batch), backend)
        source.remember(sums)
        kept[int(batch.values[0])] = sums.statistics()
    total = kept[0] + kept[1] + kept[2]
    posterior = Posterior.from_statistics(total, prior, "float64")
    first = next(iter(source.batches(1)))
    problem = Problem(family, COLLAPSED, Schedule(0.5, 1.0), 3)
    info = step(problem, posterior, prepare(family, first), backend, memory=source)
    key = int(first.values[0])
    others = total + -1.0 * kept[key]
    alone = Posterior.from_statistics(others, prior, "float64")
    fresh = expected_statistics(alone, family, COLLAPSED, prepare(family, first), backend)
    expected = others + fresh.statistics()
    assert info.log_normalizer == pytest.approx(fresh.log_normalizer)
    for name in ("start", "transitions", "emissions"):
        np.testing.assert_allclose(
            getattr(posterior.statistics(), name), getattr(expected, name), atol=1e-12
        )


@pytest.mark.parametrize("model", [sj.HMM, sj.HDPHMM])
def test_cvb0_keeps_the_mass_of_the_data_and_ends_where_updates_change_nothing(model):
    rng = np.random.default_rng(1)
    states = rng.integers(2, size=(40, 1))
    data = (2 * states + rng.integers(2, size=(40, 10))).astype(int)
    fitted = model(
        2, sj.Categorical(4), inference="cvb0", n_passes=40, dtype="float64", random_state=0
    ).fit(data)
    learned = fitted.statistics_
    assert learned.start.sum() == pytest.approx(40)
    assert learned.transitions.sum() == pytest.approx(360)
    np.testing.assert_allclose(learned.emissions.sum(axis=0), np.bincount(data.ravel()), rtol=1e-9)
    bounds = [entry["bound"] for entry in fitted.history_]
    assert bounds[-1] > bounds[0]
    assert bounds[-1] == pytest.approx(bounds[-2], rel=1e-6)


@pytest.mark.parametrize("name", EXAMPLES)
def test_cvb0_learns_from_every_family(name):
    rng = np.random.default_rng(0)
    data = [EXAMPLES[name].draw_data(rng, n) for n in rng.integers(1, 12, 25)]
    fitted = sj.HMM(
        3, EXAMPLES[name].given, inference="cvb0", n_passes=10, dtype="float64", random_state=0
    ).fit(data)
    assert fitted.statistics_.start.sum() == pytest.approx(25)
    assert np.isfinite([entry["bound"] for entry in fitted.history_]).all()


@pytest.mark.parametrize("inference", ["cvb0", "gibbs"])
def test_what_keeps_more_than_a_checkpoint_holds_refuses_one(inference, tmp_path):
    model = sj.HMM(2, sj.Categorical(3), inference=inference)
    with pytest.raises(ValueError, match="cannot be resumed"):
        model.fit([[0, 1], [2]], checkpoint=tmp_path)


@pytest.mark.parametrize("inference", ["cvb0", "gibbs"])
def test_what_keeps_something_of_every_sequence_refuses_files(inference, tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("a b a\nb b\n")
    with pytest.raises(ValueError, match="takes data in memory only"):
        sj.HMM(2, sj.Categorical(), inference=inference).fit(path)


def test_restarts_keep_the_draws_of_the_best():
    model = sj.HMM(2, sj.Categorical(3), inference=sj.Sampling("gibbs", 3, 2), n_init=2)
    assert len(model.fit([[0, 1, 1], [2, 0]]).samples_) == 3


def test_cvb0_refuses_a_single_sequence():
    with pytest.raises(ValueError, match="at least two"):
        sj.HMM(2, sj.Categorical(3), inference="cvb0").fit([[0, 1, 2]])


@pytest.mark.parametrize("inference", ["em", "vb", "cvb0"])
def test_partial_fit_is_for_stochastic_inference(inference):
    with pytest.raises(ValueError, match="needs a stochastic inference method"):
        sj.HMM(2, sj.Categorical(3), inference=inference).partial_fit([[0]], total_sequences=3)


def test_a_failed_update_leaves_cvb0s_posterior_whole():
    data = sj.Sequences.from_list([[0, 1, 1], [2, 0]])
    family = sj.Categorical(3, 0.4)
    data = family.validate(data)
    posterior = Posterior.from_statistics(
        sj.Statistics([1, 1], np.ones((2, 2)), np.ones((2, 3))),
        Dirichlet.make(2, 0.3, 0.3),
        "float64",
    )
    source = RememberingSource(data, seed=0)
    batch = next(iter(source.batches(0)))
    backend = CpuBackend(cpu, 1)
    source.remember(
        expected_statistics(posterior, family, COLLAPSED, prepare(family, batch), backend)
    )
    before = posterior.statistics()

    def interrupted():
        raise KeyboardInterrupt
        yield

    problem = Problem(family, COLLAPSED, Schedule(0.5, 1.0), 2)
    with pytest.raises(KeyboardInterrupt):
        step(problem, posterior, interrupted(), backend, memory=source)
    after = posterior.statistics()
    for name in ("start", "transitions", "emissions"):
        np.testing.assert_allclose(getattr(after, name), getattr(before, name), atol=1e-12)
