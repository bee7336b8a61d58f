"""What every family promises, held by the definition in natural parameters."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sojourn as sj
from sojourn.families import FAMILIES, DecayedTable
from tests.contract.families import EXAMPLES

N_STATES = 3
every_family = pytest.mark.parametrize("name", EXAMPLES)
any_seed = given(seed=st.integers(0, 2**20))


def drawn(name, seed, n=5):
    example = EXAMPLES[name]
    rng = np.random.default_rng(seed)
    return example.family, example.draw_natural(rng, N_STATES), example.draw_data(rng, n)


@every_family
@any_seed
@settings(deadline=None, max_examples=25)
def test_collapsed_potentials_are_differences_of_log_normalisers(name, seed):
    family, natural, x = drawn(name, seed)
    base = family.log_normalizer(natural)
    expected = [family.log_normalizer(natural + t) - base for t in family.statistics(x)]
    expected = np.array(expected) + family.log_base_measure(x)[:, None]
    np.testing.assert_allclose(family.log_predictive(x, natural), expected, rtol=1e-8, atol=1e-9)


@every_family
@any_seed
@settings(deadline=None, max_examples=25)
def test_mean_field_potentials_are_gradients_of_the_log_normaliser(name, seed):
    family, natural, x = drawn(name, seed)
    statistics = family.statistics(x)
    gradient = np.empty_like(natural)
    for s in range(natural.shape[1]):
        step = 1e-5 * np.maximum(np.abs(natural[:, s]), 1e-3)
        shift = np.zeros_like(natural)
        shift[:, s] = step
        difference = family.log_normalizer(natural + shift) - family.log_normalizer(natural - shift)
        gradient[:, s] = difference / (2 * step)
    expected = statistics @ gradient.T + family.log_base_measure(x)[:, None]
    got = family.expected_log_likelihood(x, natural)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@every_family
@any_seed
@settings(deadline=None, max_examples=25)
def test_collapsed_is_never_below_mean_field_and_the_gap_closes(name, seed):
    family, natural, x = drawn(name, seed)

    def gap(parameters):
        return family.log_predictive(x, parameters) - family.expected_log_likelihood(x, parameters)

    assert (gap(natural) >= -1e-12).all()
    assert gap(1e6 * natural).max() < 0.01


@every_family
def test_predictive_sums_to_one(name):
    family, natural, _ = drawn(name, 0)
    total = np.exp(family.log_predictive(EXAMPLES[name].support, natural)).sum(axis=0)
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)


@every_family
@any_seed
@settings(deadline=None, max_examples=25)
def test_sums_are_weighted_sums_of_statistics(name, seed):
    family, _, x = drawn(name, seed, n=12)
    weights = np.random.default_rng(seed).random((12, N_STATES))
    got = family.sum_statistics(family.encode(x), weights, n_threads=1).dense()
    np.testing.assert_allclose(got, family.statistics(x).T @ weights, rtol=1e-12)


@every_family
@pytest.mark.parametrize("collapsed", [True, False])
@pytest.mark.parametrize("n", [3, 200])
def test_rows_for_the_kernel_are_the_potentials(name, collapsed, n):
    family, natural, x = drawn(name, 3, n=n)
    counts = np.random.default_rng(3).gamma(1.0, 5.0, natural.shape)
    table = DecayedTable(counts, "float64")
    rows = family.emission_rows(family.encode(x), table, collapsed=collapsed, n_threads=2)
    got = np.log(rows.table[rows.index][:, :N_STATES])
    if rows.log_scale is not None:
        got += rows.log_scale[rows.index][:, None]
    parameters = family.prior() + counts
    closed_form = family.log_predictive if collapsed else family.expected_log_likelihood
    np.testing.assert_allclose(got, closed_form(x, parameters), rtol=1e-9, atol=1e-10)


@every_family
@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("model", "inference"), [(sj.HMM, "scvi"), (sj.HMM, "svi"), (sj.HDPHMM, "scvi")]
)
def test_every_model_learns_with_every_family(name, device, model, inference, tmp_path):
    example = EXAMPLES[name]
    x = example.draw_data(np.random.default_rng(0), 90)
    lengths = [1, 29, 40, 20]
    fitted = model(
        N_STATES,
        example.family,
        inference=inference,
        batch_size=3,
        n_passes=4,
        random_state=0,
        device=device,
    ).fit(x, lengths)
    assert np.isfinite(fitted.score(x, lengths))
    assert fitted.predict(x, lengths).shape == (90,)
    np.testing.assert_allclose(fitted.predict_proba(x, lengths).sum(axis=1), 1.0, rtol=1e-5)
    observations, states = fitted.sample(2, 5, random_state=0)
    assert len(observations) == len(states) == 2
    for parameter in fitted.emission_.parameter_names:
        assert np.isfinite(getattr(fitted, parameter)).all()
    fitted.save(tmp_path / "m.sojourn")
    assert sj.load(tmp_path / "m.sojourn").score(x, lengths) == fitted.score(x, lengths)


@every_family
def test_samples_follow_the_posterior_mean(name):
    family, natural, _ = drawn(name, 1)
    states = np.repeat(np.arange(N_STATES), 40_000)
    x = family.sample(natural, states, np.random.default_rng(0))
    support = EXAMPLES[name].support
    expected = np.exp(family.log_predictive(support, natural)).T
    got = np.array([[np.mean(x[states == k] == v) for v in support] for k in range(N_STATES)])
    np.testing.assert_allclose(got, expected, atol=0.012)


def test_every_family_has_an_example():
    assert {type(example.family) for example in EXAMPLES.values()} == set(FAMILIES.values())
