"""What `tuned` adds: step sizes that fall in a line, and a prior on symbols that is learned."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import digamma, gammaln

import sojourn as sj
from sojourn.families.symbol_prior import SymbolPrior
from sojourn.families.table import DecayedTable, RowSums
from sojourn.inference.schedule import LinearDecay
from sojourn.kernels.cpu import symbols


def skewed_data(n_sequences=120, n_symbols=400, seed=0):
    """Draw from three states with few frequent symbols and many rare ones."""
    rng = np.random.default_rng(seed)
    emissions = rng.dirichlet(0.02 * np.ones(n_symbols) + 2.0 / np.arange(1, n_symbols + 1), 3)
    sequences = []
    for _ in range(n_sequences):
        state, steps = rng.integers(3), []
        for _ in range(rng.integers(1, 25)):
            steps.append(rng.choice(n_symbols, p=emissions[state]))
            state = (state + (rng.random() < 0.7)) % 3
        sequences.append(np.array(steps, dtype=np.int32))
    return sequences


def model(**options):
    options = {"batch_size": 20, "n_passes": 3, "random_state": 0, "tuned": True} | options
    return sj.HMM(options.pop("n_states", 5), sj.Categorical(400), **options)


# ---- the kernel -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_states", [1, 7, 8, 20, 45])
@pytest.mark.parametrize("scale", [1.0, 0.03, 1e4])
def test_table_counts_equal_the_formula(n_states, scale):
    rng = np.random.default_rng(3)
    counts = rng.gamma(0.5, 4.0, (50, n_states))
    counts[4] = 0.0
    table = DecayedTable(counts.T, "float64")
    found = symbols.expected_tables(table.rows, scale, 0.01, n_threads=1)
    n = scale * counts
    whole = np.maximum(n.sum(axis=1, keepdims=True), 1e-300)
    c = n**2 / whole
    p = np.where(c > 0, -np.expm1(-c), 1.0)
    first = p * (digamma(0.01 + np.where(c > 0, c, 1.0) / p) - digamma(0.01))
    cells = 0.01 * (np.where(c > 0, first, 0.0) + np.log1p((n - c) / (0.01 + c)))
    np.testing.assert_allclose(found, cells.sum(axis=1), atol=1e-3 * n_states * 1.01)
    large = (n > 1e-3).all(axis=1)
    np.testing.assert_allclose(found[large], cells.sum(axis=1)[large], rtol=1e-10)


def test_table_counts_do_not_depend_on_threads():
    table = DecayedTable(np.random.default_rng(0).gamma(0.3, 2.0, (45, 5000)), "float32")
    one = symbols.expected_tables(table.rows, 1.0, 1e-3, n_threads=1)
    many = symbols.expected_tables(table.rows, 1.0, 1e-3, n_threads=4)
    assert one.tobytes() == many.tobytes()


# ---- what the prior learns --------------------------------------------------------------------


def separate_counts(n_states=3, n_symbols=60, seed=1):
    """Draw counts that are certain: every symbol belongs to one state."""
    rng = np.random.default_rng(seed)
    counts = np.zeros((n_states, n_symbols))
    owner = np.arange(n_symbols) % n_states
    counts[owner, np.arange(n_symbols)] = rng.integers(20, 400, n_symbols)
    return counts


def test_the_count_of_seen_symbols_maximises_the_evidence():
    counts = separate_counts()
    table = DecayedTable(counts, "float64")
    prior = SymbolPrior(counts.shape[1], 0.5, new=False)
    sums = RowSums(None, counts.T, counts.shape[1])
    for _ in range(3000):
        prior.observe(sums, table, n_sequences=1, n_steps=10**9, total_sequences=1)

    def minus_log_evidence(a):
        total = a * counts.shape[1]
        rows = gammaln(total) - gammaln(total + counts.sum(axis=1))
        evidence = rows.sum() + (gammaln(a + counts) - gammaln(a)).sum()
        return a - np.log(a) - evidence

    # The update has the prior Gamma(2, 1) on λ at its mode: (1 + s) / (1 + rate).
    best = minimize_scalar(minus_log_evidence, bounds=(1e-4, 10), method="bounded")
    assert prior.of_seen == pytest.approx(best.x, rel=1e-3)
    assert prior.of_new == prior.of_seen


def test_the_count_of_new_symbols_maximises_the_leave_one_out_likelihood():
    counts = np.zeros((2, 50))
    counts[0, :10], counts[1, 10:20] = 30.0, 50.0
    counts[0, 20:27], counts[1, 27:33] = 1.0, 1.0  # thirteen that were seen once
    table = DecayedTable(counts, "float64")
    prior = SymbolPrior(50, 0.2, seen=False)
    sums = RowSums(None, counts.T, 50)
    for _ in range(200):
        prior.observe(sums, table, n_sequences=1, n_steps=10**9, total_sequences=1)
    assert (prior.n_seen, prior.n_once) == (33, 13)

    def minus_log_likelihood(new):
        mass = counts.sum(axis=1)
        total = 33 * 0.2 + 17 * new
        # Tokens that are not new without themselves do not depend on λ_new but by the total.
        return -(14 * np.log(new) - (mass * np.log(mass + total)).sum() - new)

    best = minimize_scalar(minus_log_likelihood, bounds=(1e-4, 10), method="bounded")
    assert prior.of_new == pytest.approx(best.x, rel=1e-3)
    assert prior.of_seen == 0.2


def test_symbols_are_counted_in_the_first_pass_only():
    data = skewed_data()
    counts = np.bincount(np.concatenate(data), minlength=400)
    for passes in (1, 3):
        prior = model(n_passes=passes).fit(data).fitted_.posterior.emissions.prior
        np.testing.assert_array_equal(prior.times_seen, np.minimum(counts, 2))
        assert prior.n_seen == (counts > 0).sum()
        assert prior.n_once == (counts == 1).sum()
        assert prior.total == pytest.approx(prior.of(None).sum())


def test_learned_counts_enter_scores_parameters_samples_and_bound():
    data = skewed_data()
    fitted = model(dtype="float64").fit(data, track_bound=True)
    prior = fitted.fitted_.posterior.emissions.prior
    natural = prior.of(None) + fitted.statistics_.emissions
    np.testing.assert_allclose(
        fitted.emissionprob_, natural / natural.sum(axis=1, keepdims=True), rtol=1e-12
    )
    unseen = int(np.flatnonzero(prior.times_seen == 0)[0])
    by_hand = fitted.startprob_ @ fitted.emissionprob_[:, unseen]
    assert fitted.score([[unseen]]) == pytest.approx(np.log(by_hand), rel=1e-9)
    assert np.isfinite(fitted.history_[-1]["bound"])
    assert fitted.sample(3, 4, random_state=0)[0].n_steps == 12


def test_a_prior_that_the_user_gave_for_each_symbol_is_kept():
    given_counts = np.linspace(0.01, 0.1, 400)
    kept = sj.HMM(3, sj.Categorical(400, given_counts), tuned=True, n_passes=1, random_state=0)
    assert kept.fit(skewed_data()).fitted_.posterior.emissions.prior is None


def test_other_families_take_the_steps_alone():
    fitted = sj.HMM(2, sj.Poisson(), tuned=True, n_passes=2, random_state=0)
    fitted.fit([np.array([1, 2, 9, 8]), np.array([2, 7])])
    assert fitted.fitted_.posterior.emissions.prior is None


# ---- the steps --------------------------------------------------------------------------------


@given(
    n_states=st.integers(1, 300),
    n_passes=st.integers(1, 20),
    batch_size=st.integers(1, 5000),
    n_sequences=st.integers(1, 4000),
    length=st.floats(1.0, 1e5),
)
def test_steps_fall_to_a_share_of_the_data(n_states, n_passes, batch_size, n_sequences, length):
    steps = LinearDecay.plan(n_states, n_passes, batch_size, n_sequences, n_sequences * length)
    last = min(batch_size, n_sequences) / n_sequences
    sizes = [steps(n) for n in range(1, steps.n_updates + 2)][:: max(1, steps.n_updates // 50)]
    assert all(size >= last - 1e-12 for size in sizes)
    assert all(later <= earlier + 1e-12 <= 1.0 + 1e-12 for earlier, later in pairwise(sizes))
    assert steps(steps.n_updates) == pytest.approx(last)
    assert steps(10 * steps.n_updates) == pytest.approx(last)


def test_one_batch_of_everything_replaces_what_was_known():
    data = skewed_data(10)
    tuned = model(batch_size=None, tuned=("steps",), n_passes=4, dtype="float64").fit(data)
    plain = model(
        batch_size=None, tuned=False, n_passes=4, forgetting_rate=0.0, dtype="float64"
    ).fit(data)
    np.testing.assert_allclose(tuned.transmat_, plain.transmat_, rtol=1e-12)


# ---- through the estimator --------------------------------------------------------------------


def same(one, other):
    assert one.statistics_.emissions.tobytes() == other.statistics_.emissions.tobytes()
    assert one.transmat_.tobytes() == other.transmat_.tobytes()
    mine, theirs = one.fitted_.posterior.emissions.prior, other.fitted_.posterior.emissions.prior
    assert mine.state()[0] == theirs.state()[0]
    np.testing.assert_array_equal(mine.times_seen, theirs.times_seen)


@pytest.mark.parametrize("stop", [1, 7, 13])
def test_resumed_is_never_stopped(tmp_path, stop):
    data = skewed_data()
    whole = model().fit(data)

    def interrupt(progress):
        if progress.updates == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model().fit(data, checkpoint=tmp_path, callback=interrupt)
    same(model().fit(data, checkpoint=tmp_path, resume=True), whole)


def test_another_number_of_passes_would_be_other_steps(tmp_path):
    data = skewed_data()
    model().fit(data, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="n_passes was 3, now it is 4"):
        model(n_passes=4).fit(data, checkpoint=tmp_path, resume=True)


@pytest.mark.parametrize("tuned", [True, ["concentration", "base"], {"steps", "base"}, "base"])
def test_saved_and_loaded_it_goes_on_the_same(tmp_path, tuned):
    data = skewed_data()
    first = model(tuned=tuned).fit(data)
    first.save(tmp_path / "m.sojourn")
    loaded = sj.load(tmp_path / "m.sojourn")
    same(loaded, first)
    assert loaded.score(data) == first.score(data)
    same(loaded.partial_fit(data[:20]), first.partial_fit(data[:20]))


def test_partial_fit_by_minibatches_is_fit():
    data = skewed_data(100)
    order = [data[i] for i in np.random.default_rng(5).permutation(100)]
    learner = model(n_passes=1)
    for begin in range(0, 100, 20):
        learner.partial_fit(order[begin : begin + 20], total_sequences=100)
    prior = learner.fitted_.posterior.emissions.prior
    counts = np.bincount(np.concatenate(data), minlength=400)
    np.testing.assert_array_equal(prior.times_seen, np.minimum(counts, 2))
    assert prior.of_seen != 0.1


def test_from_a_file(tmp_path):
    data = skewed_data()
    text = "\n".join(" ".join(f"w{x}" for x in sequence) for sequence in data)
    (tmp_path / "corpus.txt").write_text(text)
    fitted = sj.HMM(4, sj.Categorical(), tuned=True, batch_size=20, n_passes=2, random_state=0)
    fitted.fit(tmp_path / "corpus.txt")
    prior = fitted.fitted_.posterior.emissions.prior
    counts = np.bincount(np.concatenate(data))
    assert prior.n_once == (counts == 1).sum()
    assert prior.n_seen == (counts > 0).sum()


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_threads_change_nothing(n_jobs):
    data = skewed_data()
    same(model(n_jobs=n_jobs).fit(data), model(n_jobs=1).fit(data))


@settings(max_examples=15, deadline=None)
@given(
    n_states=st.sampled_from([1, 2, 5]),
    n_symbols=st.sampled_from([1, 3, 50]),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    batch_size=st.sampled_from([1, 2, 100, None]),
)
def test_awkward_shapes(n_states, n_symbols, lengths, batch_size):
    rng = np.random.default_rng(0)
    data = [rng.integers(n_symbols, size=length) for length in lengths]
    fitted = sj.HMM(
        n_states, sj.Categorical(n_symbols), tuned=True, batch_size=batch_size, random_state=0
    ).fit(data)
    assert np.isfinite(fitted.score(data))
    np.testing.assert_allclose(fitted.emissionprob_.sum(axis=1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("inference", ["em", "vb", "cvb0", "gibbs"])
def test_only_stochastic_ways_are_tuned(inference):
    with pytest.raises(ValueError, match="tuned is for"):
        model(inference=inference).fit(skewed_data(5))


@pytest.mark.parametrize("tuned", ["everything", ("steps", "luck")])
def test_an_unknown_name_is_refused(tuned):
    with pytest.raises(ValueError, match="has names other than steps, concentration, base"):
        model(tuned=tuned).fit(skewed_data(5))
