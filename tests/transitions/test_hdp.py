import itertools
from dataclasses import replace
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma

import sojourn as sj
from sojourn.kernels import reference
from sojourn.kernels.cpu import tables as compiled
from sojourn.transitions import HDP, Rows
from sojourn.transitions.distributions import GammaDistribution, Sticks
from sojourn.transitions.tables import expected_tables, log_absence
from tests.support.potentials import random_batch


def stirling_row(n):
    """Unsigned Stirling numbers of the first kind [n, 0..n], exact."""
    row = [1]
    for m in range(n):
        row = [
            (m * row[s] if s < len(row) else 0) + (row[s - 1] if s > 0 else 0)
            for s in range(len(row) + 1)
        ]
    return row


def exact_tables(count, prior):
    """E[s | C = count] with p(s) ∝ [count, s] prior^s."""
    weights = [number * prior**s for s, number in enumerate(stirling_row(count))]
    return sum(s * w for s, w in enumerate(weights)) / sum(weights)


@pytest.mark.parametrize("prior", [0.01, 0.1, 1.0, 7.5])
@pytest.mark.parametrize("count", [1, 2, 3, 10, 40])
@pytest.mark.parametrize("second_order", [False, True])
def test_tables_of_whole_certain_counts_are_exact(prior, count, second_order):
    got = expected_tables(
        np.array([prior]),
        np.array([[float(count)]]),
        np.array([[-np.inf]]),
        np.zeros((1, 1)) if second_order else None,
    )
    assert got[0, 0] == pytest.approx(exact_tables(count, prior), rel=1e-12)


@pytest.mark.parametrize(("prior", "n", "q"), [(1.0, 20, 0.1), (0.1, 20, 0.1), (0.1, 2, 0.5)])
def test_second_order_term_brings_uncertain_counts_close_to_the_exact_mean(prior, n, q):
    # C is binomial: the exact mean is a sum over its values.
    exact = sum(
        comb(n, c) * q**c * (1 - q) ** (n - c) * exact_tables(c, prior) for c in range(1, n + 1)
    )
    arguments = np.array([prior]), np.array([[n * q]]), np.array([[n * np.log1p(-q)]])
    first = expected_tables(*arguments, None)[0, 0]
    second = expected_tables(*arguments, np.array([[n * q * (1 - q)]]))[0, 0]
    assert abs(second - exact) < 0.35 * abs(first - exact)
    assert second == pytest.approx(exact, rel=0.005)


def test_tables_grow_by_the_logarithm_not_in_proportion():
    one = expected_tables(np.array([0.1]), np.array([[2.0]]), np.array([[-2.0]]), None)[0, 0]
    hundred = expected_tables(np.array([0.1]), np.array([[200.0]]), np.array([[-200.0]]), None)
    assert hundred[0, 0] < 3 * one


def test_nothing_expected_gives_no_tables():
    zero = np.zeros((2, 2))
    assert (expected_tables(np.full(2, 0.1), zero, zero, zero) == 0).all()


def transcribed_update(hdp, q_start, q_pairs, total):
    """Equations (4) to (7), number by number, from the marginals of each sequence and step."""
    n_states, batch = hdp.n_states, len(q_start)
    copies = total / batch
    prior = hdp.update_prior
    e_alpha, e_gamma = hdp.alpha.mean, hdp.gamma.mean

    def absence(probabilities):
        """L of eq (4), from the sums of q and q²."""
        sums, squares = sum(probabilities), sum(q * q for q in probabilities)
        return copies * sums**2 / squares * np.log(1 - squares / sums)

    def tables(prior_k, probabilities):
        count = copies * sum(probabilities)
        if hdp.exchangeable:
            certain = copies * sum(q * q for q in probabilities)
            occurs = 1 - np.exp(count**2 / certain * np.log(1 - (certain / count) ** 2))
            settled = occurs * (digamma(prior_k + certain / occurs) - digamma(prior_k))
            return prior_k * (settled + np.log(1 + (count - certain) / (prior_k + certain)))
        occurs = 1 - np.exp(absence(probabilities))
        given = count / occurs
        value = digamma(prior_k + given) - digamma(prior_k)
        if hdp.second_order:
            variance = copies * sum(q * (1 - q) for q in probabilities)
            spread = variance / occurs - (1 - occurs) * given**2
            x = prior_k + given
            step = 1e-4 * x  # ψ'' by central differences
            curvature = (digamma(x + step) - 2 * digamma(x) + digamma(x - step)) / step**2
            value += 0.5 * spread * curvature
        return prior_k * occurs * value

    steps = [pair for sequence in q_pairs for pair in sequence]
    s = np.zeros((n_states + 1, n_states))
    log_eta = np.zeros(n_states + 1)
    for l in range(n_states):  # noqa: E741
        s[0, l] = tables(prior[l], [start[l] for start in q_start])
        for k in range(n_states):
            s[k + 1, l] = tables(prior[l], [pair[k, l] for pair in steps])
    log_eta[0] = digamma(e_alpha) - digamma(e_alpha + total)
    for k in range(n_states):
        before = [pair[k].sum() for pair in steps]
        occurs = 1 - np.exp(absence(before))
        given = copies * sum(before) / occurs
        log_eta[k + 1] = occurs * (digamma(e_alpha) - digamma(e_alpha + given))
    state_tables = s.sum(axis=0)
    if hdp.sort_states:
        state_tables = np.sort(state_tables)[::-1]
    u = [1 + state_tables[k] for k in range(n_states)]
    v = [e_gamma + sum(state_tables[k + 1 :]) for k in range(n_states)]
    a_alpha = hdp.alpha_prior.shape + s.sum()
    b_alpha = hdp.alpha_prior.rate - log_eta.sum()
    a_gamma = hdp.gamma_prior.shape + n_states
    rest = sum(digamma(v[k]) - digamma(u[k] + v[k]) for k in range(n_states))
    return u, v, (a_alpha, b_alpha), (a_gamma, hdp.gamma_prior.rate - rest)


@pytest.mark.parametrize(
    "form",
    [
        {"exchangeable": False, "second_order": False},
        {"exchangeable": False, "second_order": True},
        {"exchangeable": True},
    ],
)
@pytest.mark.parametrize("sort_states", [False, True])
def test_update_is_the_equations_written_out(form, sort_states):
    potentials, index, offsets = random_batch(4, 3, [4, 1, 6, 3])
    smoothed = reference.forward_backward(potentials, index, offsets, squares=True)
    q_start, q_pairs = [], []
    for begin, end in itertools.pairwise(offsets):
        alone = np.array([0, end - begin])
        one = reference.forward_backward(potentials, index[begin:end], alone)
        q_start.append(one.start)
        # Pair marginals of each step: with the end cut off one step earlier they would change,
        # so take them from the joint of consecutive steps.
        q_pairs.append(pair_marginals(potentials, index[begin:end]))
    hdp = HDP.make(3, batch_size=4, sort_states=sort_states, forgetting_rate=0.0, **form)
    # A second update, so that G[απ] comes from sticks and not from the first value of 0.1.
    for _ in range(2):
        before = hdp
        hdp = hdp.observe(
            Rows(smoothed.start, smoothed.transitions), smoothed.squares, 4, total_sequences=40
        )
        u, v, alpha, gamma = transcribed_update(before, q_start, q_pairs, 40)
        np.testing.assert_allclose(hdp.sticks.u, u, rtol=1e-6)
        np.testing.assert_allclose(hdp.sticks.v, v, rtol=1e-6)
        np.testing.assert_allclose(hdp.alpha, alpha, rtol=1e-6)
        np.testing.assert_allclose(hdp.gamma, gamma, rtol=1e-6)
    # (8), written out
    g_pi, rest = [], 0.0
    for u_k, v_k in zip(*hdp.sticks, strict=True):
        g_pi.append(np.exp(digamma(u_k) - digamma(u_k + v_k) + rest))
        rest += digamma(v_k) - digamma(u_k + v_k)
    g_alpha = np.exp(digamma(hdp.alpha.shape)) / hdp.alpha.rate
    np.testing.assert_allclose(hdp.update_prior[hdp.order], g_alpha * np.array(g_pi), rtol=1e-12)


def pair_marginals(potentials, index):
    from tests.support.enumeration import smooth

    rows = potentials.emissions[index]
    return list(smooth(potentials.start, potentials.transitions, rows)[2])


def test_posteriors_are_blended_with_their_own_step_size():
    rng = np.random.default_rng(0)
    counts = Rows(rng.random(4), rng.random((4, 4)))
    fast = HDP.make(4, batch_size=1, occupancy="fast")
    free, damped = (
        replace(fast, forgetting_rate=rate).observe(counts, None, 1, 50) for rate in (0.0, 0.5)
    )
    step_size = 2.0**-0.5  # delay 1, first update
    np.testing.assert_allclose(damped.tables, step_size * free.tables)
    assert damped.alpha.shape == pytest.approx(
        (1 - step_size) * fast.alpha.shape + step_size * free.alpha.shape
    )
    assert damped.gamma.rate == pytest.approx(
        (1 - step_size) * fast.gamma.rate + step_size * free.gamma.rate
    )


def test_large_batch_fills_over_several_minibatches():
    rng = np.random.default_rng(1)
    parts = [Rows(rng.random(3), rng.random((3, 3))) for _ in range(4)]
    hdp = HDP.make(3, batch_size=8, occupancy="fast")
    for n, part in enumerate(parts):
        assert hdp.n_updates == 0
        hdp = hdp.observe(part, None, 2, 100)
        assert hdp.n_pending == (2 * (n + 1)) % 8
    whole = Rows(*(sum(column) for column in zip(*parts, strict=True)))
    at_once = HDP.make(3, batch_size=8, occupancy="fast").observe(whole, None, 8, 100)
    np.testing.assert_allclose(hdp.tables, at_once.tables)
    assert hdp.n_updates == 1


@given(
    st.lists(st.floats(0, 0.999), min_size=1, max_size=30),
    st.floats(4, 1e4),
)
def test_fast_form_is_within_its_bound_of_the_exact_one(probabilities, copies):
    q = np.array(probabilities)
    exact = -np.expm1(copies * np.log1p(-q).sum())
    fast = -np.expm1(-copies * q.sum())
    assert -1e-12 <= exact - fast <= 0.3 / copies


@given(st.lists(st.floats(1e-6, 0.999), min_size=1, max_size=30))
def test_log_absence_is_between_the_exact_value_and_the_fast_form(probabilities):
    q = np.array(probabilities)
    exact, found = np.log1p(-q).sum(), log_absence(q.sum(), (q**2).sum())
    assert exact - 1e-9 * abs(exact) <= found <= -q.sum() + 1e-9
    # P = 1 − e^L is at most 0.11 short of the exact one.
    assert np.exp(found) - np.exp(exact) <= 0.11


@given(st.floats(1e-9, 0.999), st.integers(1, 1000))
def test_log_absence_of_equal_events_is_exact(q, n):
    assert log_absence(np.array(n * q), np.array(n * q * q)) == pytest.approx(
        n * np.log1p(-q), rel=1e-9
    )


def test_log_absence_of_nothing_and_of_what_is_certain():
    found = log_absence(np.array([0.0, 1.0, 3.0, 2.0]), np.array([0.0, 1.0, 3.0, 0.0]))
    np.testing.assert_allclose(found, [0.0, np.log(1e-8), 3 * np.log(1e-8), -2.0], rtol=1e-6)


def test_a_half_full_batch_of_a_file_with_logarithms_is_read():
    names = {"start": (3,), "pairs": (3, 3), "rows": (3,)}
    rng = np.random.default_rng(0)
    arrays = {f"pending.absent_{name}": -rng.random(shape) for name, shape in names.items()}
    arrays |= {"pending.start": np.ones(3), "pending.transitions": np.ones((3, 3))}
    arrays |= {"pending.absent_start_squares": np.full(3, 0.5)}
    arrays |= {"pending.absent_pair_squares": np.full((3, 3), 0.2)}
    values, posterior = HDP.make(3, batch_size=4).state()
    hdp = HDP.from_state(values | {"n_pending": 2}, posterior | arrays)
    assert set(hdp.pending) == {
        "start", "transitions", "squares_start", "squares_pairs", "squares_rows",
    }  # fmt: skip
    assert hdp.updated(40).n_updates == 1


def test_fast_and_exact_forms_give_the_same_posteriors_where_the_fast_one_is_used():
    potentials, index, offsets = random_batch(6, 4, [5] * 50)
    smoothed = reference.forward_backward(potentials, index, offsets, squares=True)
    counts = Rows(smoothed.start, smoothed.transitions)
    hdp = HDP.make(4, batch_size=50, second_order=False, exchangeable=False)
    assert hdp.wants_squares(4999)
    assert not hdp.wants_squares(5000)
    exact = hdp.observe(counts, smoothed.squares, 50, 5000)
    fast = hdp.observe(counts, None, 50, 5000)
    np.testing.assert_allclose(fast.update_prior, exact.update_prior, rtol=1e-3)
    np.testing.assert_allclose(fast.alpha, exact.alpha, rtol=1e-3)


def test_order_of_states_does_not_matter_when_sticks_are_sorted():
    rng = np.random.default_rng(2)
    order = rng.permutation(5)
    counts = Rows(rng.gamma(0.5, size=5), rng.gamma(0.5, 10.0, size=(5, 5)))
    permuted = Rows(counts.start[order], counts.transitions[np.ix_(order, order)])
    a = HDP.make(5, batch_size=1, occupancy="fast").observe(counts, None, 1, 20)
    b = HDP.make(5, batch_size=1, occupancy="fast").observe(permuted, None, 1, 20)
    np.testing.assert_allclose(b.update_prior, a.update_prior[order])
    np.testing.assert_allclose(
        b.means(permuted).transitions, a.means(counts).transitions[np.ix_(order, order)]
    )
    unsorted = HDP.make(5, batch_size=1, occupancy="fast", sort_states=False)
    c = unsorted.observe(counts, None, 1, 20)
    assert not np.allclose(c.update_prior, a.update_prior)


def test_sticks_leave_mass_beyond_the_truncation():
    sticks = Sticks.from_tables(np.array([3.0, 1.0]), gamma=2.0)
    np.testing.assert_allclose(sticks.u, [4.0, 2.0])
    np.testing.assert_allclose(sticks.v, [3.0, 2.0])
    np.testing.assert_allclose(sticks.mean_weights, [4 / 7, 3 / 7 * 0.5])
    # E[log x] by Monte Carlo
    draws = np.random.default_rng(0).beta(sticks.u, sticks.v, size=(200_000, 2))
    weights = draws * np.concatenate([np.ones((200_000, 1)), 1 - draws[:, :1]], axis=1)
    alpha, prior = GammaDistribution(2.5, 0.7), np.empty(2)
    compiled.geometric_prior(np.array([3.0, 1.0]), 2.0, *alpha, False, prior)
    np.testing.assert_allclose(
        prior / alpha.geometric_mean, np.exp(np.log(weights).mean(axis=0)), rtol=0.01
    )


def test_geometric_mean_of_a_gamma():
    draws = np.random.default_rng(0).gamma(2.5, 1 / 0.7, size=400_000)
    assert GammaDistribution(2.5, 0.7).geometric_mean == pytest.approx(
        np.exp(np.log(draws).mean()), rel=0.01
    )


def test_rows_are_normalised_or_divided_by_the_exact_normaliser():
    counts = Rows(np.ones(3), np.ones((3, 3)))
    hdp = HDP.make(3, batch_size=1, occupancy="fast").observe(counts, None, 1, 10)
    rows, start_total, totals, _ = hdp.concentrations(counts)
    np.testing.assert_allclose(rows.transitions.sum(axis=1), totals)
    exact = replace(hdp, normalize_rows=False).concentrations(counts)
    np.testing.assert_allclose(exact.totals, hdp.alpha.mean + 3)
    assert (rows.transitions / exact.totals[:, None]).sum(axis=1).max() < 1
    assert start_total == pytest.approx(rows.start.sum())


def test_permuting_the_states_of_a_model_changes_no_likelihood():
    rng = np.random.default_rng(3)
    data = [rng.integers(7, size=n) for n in rng.integers(1, 12, 40)]
    first = sj.Statistics(
        rng.exponential(size=4), rng.exponential(size=(4, 4)), rng.exponential(size=(4, 7))
    )
    order = np.array([2, 0, 3, 1])
    second = sj.Statistics(
        first.start[order], first.transitions[np.ix_(order, order)], first.emissions[order]
    )
    scores, summaries = [], []
    for statistics in (first, second):
        model = sj.HDPHMM(
            4, sj.Categorical(7), init=statistics, batch_size=10, n_passes=3, hdp_batch_size=20,
            dtype="float64", moves=None, random_state=1,
        ).fit(data)  # fmt: skip
        scores.append(model.log_likelihood(data))
        summaries.append(model.hdp_)
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-9)
    np.testing.assert_allclose(summaries[1].weights, summaries[0].weights[order], rtol=1e-9)


def test_summary_says_how_many_states_there_are_in_effect():
    hdp = replace(HDP.make(3), tables=np.array([0.0, 1e9, 0.0]), stick_gamma=1e-9)
    assert hdp.summary().effective_states == pytest.approx(1.0, abs=0.05)
    model = sj.HDPHMM(3, sj.Categorical(2), moves=None, random_state=0).fit([[0, 1, 1], [1, 0]])
    assert model.hdp_.weights.shape == (3,)
    assert 1 <= model.hdp_.effective_states <= 3
    assert model.hdp_.weights.sum() < 1


def test_prediction_uses_means_and_not_geometric_means():
    counts = Rows(np.array([3.0, 1.0, 0.0]), np.ones((3, 3)))
    hdp = HDP.make(3, batch_size=1, occupancy="fast").observe(counts, None, 1, 30)
    weights, rest = np.empty(3), 1.0
    for k, u, v in zip(hdp.order, *hdp.sticks, strict=True):
        weights[k] = rest * u / (u + v)
        rest *= v / (u + v)
    prior = hdp.alpha.shape / hdp.alpha.rate * weights
    expected = (prior + counts.start) / (prior + counts.start).sum()
    np.testing.assert_allclose(hdp.means(counts).start, expected, rtol=1e-12)
    assert not np.allclose(hdp.update_prior, prior)
