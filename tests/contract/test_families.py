"""What every family promises, held by the definition in natural parameters."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sojourn as sj
from sojourn.families import FAMILIES, DecayedTable
from tests.support.families import EVERY, EXAMPLES, N_STATES, increases

every_family = pytest.mark.parametrize("name", EXAMPLES)
latent_too = pytest.mark.parametrize("name", EVERY)
any_seed = given(seed=st.integers(0, 2**20))
RESOLVED = {name: example.resolve() for name, example in EVERY.items()}


def sequences(values, lengths=None):
    return sj.Sequences.from_lengths(values, lengths)


def drawn(name, seed, n=5, fewest=3):
    """A family, λ and data: the values, and x of the maths functions."""
    example, family = EVERY[name], RESOLVED[name]
    rng = np.random.default_rng(seed)
    natural = example.draw_natural(family, rng, N_STATES, fewest)
    data = sequences(example.draw_data(rng, n))
    return family, natural, data, family.observations(data)


def rows_of(x, k):
    """Row k of x; a Product's x is one array a part."""
    return [own[k : k + 1] for own in x] if isinstance(x, list) else x[k : k + 1]


def is_inside(family, natural):
    try:
        family.check_natural(natural)
    except ValueError:
        return False
    return True


@every_family
@any_seed
@settings(deadline=None, max_examples=25)
def test_collapsed_potentials_are_differences_of_log_normalisers(name, seed):
    example = EXAMPLES[name]
    family, natural, _, x = drawn(name, seed, fewest=example.inside)
    base = family.log_normalizer(natural)
    expected = [increases(family, natural, t) for t in family.statistics(x)]
    expected = np.array(expected) + family.log_base_measure(x)[:, None]
    # The long way takes the difference of two large numbers.
    lost = 1e-13 * np.abs(base).max()
    got = family.log_predictive(x, natural)
    error = min(example.error, 0.01)  # integrals are more accurate with more steps
    np.testing.assert_allclose(got, expected, rtol=max(1e-8, error), atol=error + lost)


@every_family
@any_seed
@settings(deadline=None, max_examples=25)
def test_mean_field_potentials_are_gradients_of_the_log_normaliser(name, seed):
    example = EXAMPLES[name]
    family, natural, _, x = drawn(name, seed, fewest=example.inside)
    error = min(example.error, 0.01)  # integrals are more accurate with more steps
    # The derivative of a_g along t(x), by central differences that are extrapolated.
    got = family.expected_log_likelihood(x, natural)
    expected = np.empty((5, N_STATES))
    for t, direction in enumerate(family.statistics(x)):

        def slope(step, direction=direction):
            ahead = increases(family, natural, step * direction)
            return (ahead - increases(family, natural, -step * direction)) / (2 * step)

        step = max(3e-3, error**0.5) / (1.0 + np.abs(got[t]).max())
        while not is_inside(family, natural - 16.0 * step * direction):
            step /= 4.0  # a_g is steep next to where it ends, as for numbers nearly all equal
        expected[t] = (4.0 * slope(step) - slope(2 * step)) / 3.0
    expected += family.log_base_measure(x)[:, None]
    tolerance = max(1e-4, 10.0 * error)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@every_family
@any_seed
@settings(deadline=None, max_examples=25)
def test_collapsed_is_never_below_mean_field_and_the_gap_closes(name, seed):
    family, natural, _, x = drawn(name, seed)

    def gap(parameters):
        return family.log_predictive(x, parameters) - family.expected_log_likelihood(x, parameters)

    size = np.abs(family.expected_log_likelihood(x, natural))
    assert (gap(natural) >= -1e-12 * (1.0 + size)).all()
    # The gap is half the variance of log p(x | φ), which is of the order of its square over the
    # number of steps seen: that matters where x is very improbable.
    many = 1e9 * natural
    far = family.expected_log_likelihood(x, many) ** 2 / 1e9
    assert (gap(many) < 0.01 + far).all()


@pytest.mark.parametrize("name", [n for n, e in EXAMPLES.items() if e.support is not None])
def test_predictive_sums_to_one(name):
    family, natural, _, _ = drawn(name, 0)
    total = np.exp(family.log_predictive(EXAMPLES[name].support, natural)).sum(axis=0)
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)


COUNTS = ["Poisson", "negative binomial", "geometric"]


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("column", [0, 1])
def test_predictive_of_counts_sums_to_one(name, column):
    family, natural, _, _ = drawn(name, 3)
    values = np.full((2_000_000, 2), np.nan)  # the other column is missing, so integrated out
    values[:, column] = np.arange(len(values)) + (name == "geometric")
    total = np.exp(family.log_predictive(values, natural)).sum(axis=0)
    np.testing.assert_allclose(total, 1.0, rtol=1e-4)


POSITIVE = ["exponential", "gamma", "log-normal"]
REAL = ["diagonal Gaussian", "spherical Gaussian", "Gaussian of one column", *POSITIVE]


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("seed", [0, 1])
def test_predictive_integrates_to_one(name, seed):
    family, natural, data, _ = drawn(name, seed)
    width = data.values.shape[1]
    nodes, weights = np.polynomial.legendre.leggauss(40)
    reach = np.logspace(-3, 2 if name in POSITIVE else 4, 60)
    for column in range(width):
        middle = np.median(data.values[:, column])
        middle = np.log(middle) if name in POSITIVE else middle
        edges = middle + np.concatenate([-reach[::-1], reach])
        half = np.diff(edges)[:, None] / 2
        points = (edges[:-1, None] + half + half * nodes).ravel()
        x = np.full((len(points), width), np.nan)  # other columns are missing: integrated out
        x[:, column] = np.exp(points) if name in POSITIVE else points
        log = family.log_predictive(x, natural)
        if name in POSITIVE:
            log += points[:, None]
        total = (half * weights).ravel() @ np.exp(log)
        np.testing.assert_allclose(total, 1.0, atol=1e-5)


@every_family
@any_seed
@settings(deadline=None, max_examples=25)
def test_sums_are_weighted_sums_of_statistics(name, seed):
    family, _, data, x = drawn(name, seed, n=12)
    weights = np.random.default_rng(seed).random((12, N_STATES))
    got = family.sum_statistics(family.encode(data), weights, n_threads=1).dense()
    np.testing.assert_allclose(got, family.statistics(x).T @ weights, rtol=1e-11, atol=1e-12)


@every_family
@any_seed
@settings(deadline=None, max_examples=15)
def test_a_missing_entry_is_exactly_one_left_out(name, seed):
    example = EXAMPLES[name]
    family, natural, data, _ = drawn(name, seed, n=6, fewest=example.inside)
    rng = np.random.default_rng(seed)
    kind = example.missing
    values = data.values.copy()
    if kind == "symbols":
        values[2] = -1
    elif kind == "rows":
        values[2] = np.nan
    else:
        values[2, rng.integers(values.shape[1])] = np.nan
        values[4] = np.nan
    x = family.observations(family.validate(sequences(values)))
    empty = 4 if kind == "entries" else 2
    # A step without evidence: no statistics, and the same potential for every state.
    alone = rows_of(x, empty)
    assert not family.statistics(alone).any()
    assert family.log_base_measure(alone) == 0.0
    assert not family.log_predictive(alone, natural).any()
    assert not family.expected_log_likelihood(alone, natural).any()
    # The definition still holds where a part of the step is missing.
    base = family.log_normalizer(natural)
    expected = [increases(family, natural, t) for t in family.statistics(x)]
    expected = np.array(expected) + family.log_base_measure(x)[:, None]
    error = min(example.error, 0.01)
    lost = error + 1e-13 * np.abs(base).max()
    got = family.log_predictive(x, natural)
    np.testing.assert_allclose(got, expected, rtol=max(1e-8, error), atol=lost)


@pytest.mark.parametrize("name", [n for n, e in EXAMPLES.items() if e.missing == "entries"])
def test_columns_that_are_there_count_as_if_the_others_were_not(name):
    family, _, data, _ = drawn(name, 5, n=40)
    values = data.values.copy()
    hidden = np.random.default_rng(0).random(values.shape) < 0.3
    values[hidden] = np.nan
    x = family.observations(sequences(values))
    total = family.statistics(x).sum(axis=0)
    # Column by column, only from the rows that have it.
    by_column = np.zeros_like(total)
    for d in range(values.shape[1]):
        alone = np.full_like(values, np.nan)
        alone[:, d] = values[:, d]
        kept = alone[~hidden[:, d]]
        by_column += family.statistics(family.observations(sequences(kept))).sum(axis=0)
    np.testing.assert_allclose(total, by_column, rtol=1e-12)


@latent_too
@pytest.mark.parametrize("collapsed", [True, False])
@pytest.mark.parametrize("n", [3, 200, 5000])
def test_rows_for_the_kernel_are_the_potentials(name, collapsed, n):
    family, natural, data, x = drawn(name, 3, n=n)
    table = DecayedTable(natural - family.prior(), "float64")
    rows = family.emission_rows(
        family.encode(data), table, collapsed=collapsed, dtype=np.dtype("float64"), n_threads=2
    )
    with np.errstate(divide="ignore"):
        got = np.log(rows.table[rows.index][:, :N_STATES])
    assert not rows.table[:, N_STATES:].any()
    if rows.log_scale is not None:
        got += rows.log_scale[rows.index][:, None]
    closed_form = family.log_predictive if collapsed else family.expected_log_likelihood
    expected = closed_form(x, family.prior() + table.dense())
    seen = expected - expected.max(axis=1, keepdims=True) > -700  # exp(-745) is zero
    np.testing.assert_allclose(got[seen], expected[seen], rtol=1e-9, atol=1e-9)


@latent_too
@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("model", "inference"), [(sj.HMM, "scvi"), (sj.HMM, "svi"), (sj.HDPHMM, "scvi")]
)
def test_every_model_learns_with_every_family(name, device, model, inference, tmp_path):
    example = EVERY[name]
    x = example.draw_data(np.random.default_rng(0), 90)
    lengths = [1, 29, 40, 20]
    fitted = model(
        N_STATES,
        example.given,
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
    assert np.isfinite(fitted.score(observations))
    for parameter in fitted.emission_.parameter_names:
        assert np.isfinite(getattr(fitted, parameter)).all()
    fitted.save(tmp_path / "m.sojourn")
    loaded = sj.load(tmp_path / "m.sojourn")
    assert loaded.score(x, lengths) == fitted.score(x, lengths)
    assert repr(loaded.emission_) == repr(fitted.emission_)


@latent_too
@pytest.mark.parametrize("inference", ["scvi", "svi"])
def test_compiled_and_reference_training_agree(name, inference):
    example = EVERY[name]
    x = example.draw_data(np.random.default_rng(1), 60)
    scores = [
        sj.HMM(
            N_STATES,
            example.given,
            inference=inference,
            batch_size=2,
            n_passes=2,
            random_state=0,
            dtype="float64",
            device=device,
        )
        .fit(x, [20, 25, 15])
        .log_likelihood(x, [20, 25, 15])
        for device in ("cpu", "reference")
    ]
    np.testing.assert_allclose(*scores, rtol=1e-7)


@latent_too
@pytest.mark.parametrize("inference", ["scvi", "svi"])
def test_a_whole_missing_step_is_no_break_in_the_chain(name, inference):
    example = EVERY[name]
    x = example.draw_data(np.random.default_rng(2), 60)
    holes = x.copy()
    holes[[5, 6, 30]] = -1 if example.missing == "symbols" else np.nan
    fitted = sj.HMM(
        N_STATES, example.given, inference=inference, n_passes=3, random_state=0, dtype="float64"
    ).fit(holes, [30, 30])
    # A sequence that is nothing but missing steps has the likelihood one.
    nothing = np.full_like(holes[:4], -1 if example.missing == "symbols" else np.nan)
    assert fitted.score(nothing) == pytest.approx(0.0, abs=1e-9)
    # The states before and after a missing step are tied by two transitions.
    pair = holes[:3].copy()
    pair[1] = nothing[0]
    probabilities = fitted.predict_proba(pair)
    joint = fitted.predict_proba(pair[:1])[0][:, None] * (fitted.transmat_ @ fitted.transmat_)
    family = fitted.emission_
    data = family.validate(sequences(pair))
    natural = family.prior() + fitted.statistics_.emissions
    joint = joint * np.exp(family.log_predictive(family.observations(data), natural)[2])
    np.testing.assert_allclose(probabilities[2], joint.sum(axis=0) / joint.sum(), rtol=1e-6)


@pytest.mark.parametrize("name", [n for n in EXAMPLES if n.startswith("categorical")])
def test_samples_follow_the_posterior_mean(name):
    family, natural, _, _ = drawn(name, 1)
    states = np.repeat(np.arange(N_STATES), 40_000)
    x = family.sample(natural, sequences(states), np.random.default_rng(0))
    support = EXAMPLES[name].support
    expected = np.exp(family.log_predictive(support, natural)).T
    got = np.array([[np.mean(x[states == k] == v) for v in support] for k in range(N_STATES)])
    np.testing.assert_allclose(got, expected, atol=0.012)


@pytest.mark.parametrize("name", [n for n in EXAMPLES if not n.startswith("categorical")])
def test_samples_have_the_likelihood_of_the_posterior_mean(name):
    # With very large counts the posterior is its mean, and samples from it have the entropy that
    # their own log density says: estimated twice from independent draws, and near the parameters.
    family, natural, _, _ = drawn(name, 1)
    sharp = 1e9 * natural
    rng = np.random.default_rng(0)
    states = sequences(np.repeat(np.arange(N_STATES), 20_000), [20_000] * N_STATES)
    x = family.observations(sequences(family.sample(sharp, states, rng), [20_000] * N_STATES))
    log = family.log_predictive(x, sharp)
    own = log[np.arange(len(log)), states.values].reshape(N_STATES, -1).mean(axis=1)
    best = log.reshape(N_STATES, -1, N_STATES).mean(axis=1)
    # Gibbs: no other state's density explains a state's samples better.
    assert (own[:, None] >= best - 1e-9).all()
    # The statistics of the samples are the ones that the parameters promise: ∇a_g(λ) · t.
    sums = family.statistics(x).reshape(N_STATES, 20_000, -1)
    relearned = family.parameters(sharp + 1e12 * sums.mean(axis=1))
    for key, value in family.parameters(sharp).items():
        np.testing.assert_allclose(
            relearned[key], value, rtol=0.12, atol=0.05 * np.abs(value).max()
        )


def test_every_family_has_an_example():
    assert {type(example.given) for example in EVERY.values()} == set(FAMILIES.values())
