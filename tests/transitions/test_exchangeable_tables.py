"""Table counts of uncertain steps, eq (19), against sums over all counts."""

import numpy as np
import pytest
from scipy.special import digamma
from scipy.stats import nbinom

import sojourn as sj
from sojourn.transitions.tables import exchangeable_tables, expected_tables


def tables_of_count(prior, count):
    """Expected tables of a whole count: customer i + 1 opens one with probability G/(G + i)."""
    return sum(prior / (prior + i) for i in range(count))


@pytest.mark.parametrize("prior", [0.01, 0.3, 2.0])
@pytest.mark.parametrize("mean", [0.05, 1.0, 20.0])
def test_wholly_uncertain_counts_are_negative_binomial(prior, mean):
    """An urn's count of unknown size with mean m: sum over every count that it may have."""
    counts = np.arange(20_000 if mean > 5 else 4000)
    weights = nbinom.pmf(counts, prior, prior / (prior + mean))
    expected = weights @ (prior * (digamma(prior + counts) - digamma(prior)))
    m = np.full((1, 1), mean)
    # Steps that are hardly there: Σ q² = 0.
    found = exchangeable_tables(np.full(1, prior), m, 0.0 * m)
    assert found[0, 0] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("settled", "mean"), [(1, 0.5), (3, 2.0), (40, 7.0)])
def test_uncertain_steps_join_those_that_are_certain(settled, mean):
    """After `settled` customers an urn goes on with the shape G + settled."""
    prior = 0.4
    shape = prior + settled
    counts = np.arange(4000)
    weights = nbinom.pmf(counts, shape, shape / (shape + mean))
    grown = prior * (digamma(prior + settled + counts) - digamma(prior + settled))
    expected = tables_of_count(prior, settled) + weights @ grown
    counts_, squares = np.full((1, 1), settled + mean), np.full((1, 1), float(settled))
    found = exchangeable_tables(np.full(1, prior), counts_, squares)
    # Two moments do not say that some steps are certain: of one or three and as many uncertain
    # ones, P_c = 1 − exp L is 0.67 or 0.98 where it should be 1.
    assert found[0, 0] == pytest.approx(expected, rel={1: 0.2, 3: 0.02, 40: 1e-3}[settled])


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_certain_counts_are_exact(count):
    counts = np.full((1, 1), float(count))
    found = exchangeable_tables(np.full(1, 0.7), counts, counts)
    # 1 − q is at least 1e-8, which leaves a single step that much short of certain.
    assert found[0, 0] == pytest.approx(tables_of_count(0.7, count), abs=1e-7)


def test_uncertainty_never_adds_tables():
    rng = np.random.default_rng(0)
    q = rng.beta(0.1, 2.0, (200, 4, 5))
    counts, squares = q.sum(axis=0), (q**2).sum(axis=0)
    log_absent, prior = np.log1p(-q).sum(axis=0), rng.gamma(0.5, 0.2, 5) + 1e-3
    ours = exchangeable_tables(prior, counts, squares)
    independent = expected_tables(prior, counts, log_absent, None)
    assert (ours <= independent * 1.001).all()
    assert (ours > 0).all()


def test_few_data_from_an_hdp_hmm_do_not_inflate_alpha():
    rng = np.random.default_rng(2)
    rows = rng.dirichlet(np.full(6, 0.3), 7)
    symbols = rng.dirichlet(np.full(12, 0.2), 6)
    data = []
    for _ in range(60):
        state, steps = rng.choice(6, p=rows[0]), []
        for _ in range(15):
            steps.append(rng.choice(12, p=symbols[state]))
            state = rng.choice(6, p=rows[state + 1])
        data.append(np.array(steps))
    alphas = [
        sj.HDPHMM(
            20, sj.Categorical(12), batch_size=20, n_passes=20, random_state=0,
            hdp=sj.HDPOptions(exchangeable_tables=exchangeable), moves=None,
        ).fit(data).hdp_.alpha
        for exchangeable in (False, True)
    ]  # fmt: skip
    assert alphas[1] < 0.6 * alphas[0]
