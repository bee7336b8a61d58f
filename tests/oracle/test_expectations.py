"""Eq (27), the bound as an expectation: against sums of steps, all paths and drawn paths."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln, polygamma

import sojourn as sj
from sojourn.backends.cpu import CpuBackend
from sojourn.families.table import DecayedTable
from sojourn.inference import COLLAPSED, Posterior, Statistics
from sojourn.inference.bound import COLLAPSED_BOUND
from sojourn.inference.statistics import BatchSums
from sojourn.kernels import cpu
from sojourn.kernels.expectations import Spread, expected_log_gamma, trigamma
from sojourn.moves.sample import Sample, SampleFitter
from sojourn.moves.settings import MoveSettings
from sojourn.moves.workbench import Workbench
from sojourn.sequences import Sequences
from sojourn.transitions import HDP, Dirichlet, Rows
from tests.support.earthquakes import EARTHQUAKES
from tests.support.enumeration import enumerate_paths
from tests.support.families import EXAMPLES, increases

# ---- the formula, against sums of steps that happen or not -----------------------------------


def spread_of(q):
    """L and V of one count, the sum of steps with the probabilities q."""
    log_absent = np.log(np.maximum(1.0 - q, 1e-8)).sum(keepdims=True)
    return Spread(log_absent, (q * (1.0 - q)).sum(keepdims=True))


def exact_log_gamma(prior, q):
    """E[log Γ(a + C)] by the distribution of the sum, one step after another."""
    chances = np.ones(1)
    for chance in q:
        chances = np.convolve(chances, [1.0 - chance, chance])
    return chances @ gammaln(prior + np.arange(len(chances)))


def test_the_expectation_is_that_of_a_sum_of_steps_to_hundredths_of_a_nat():
    rng = np.random.default_rng(0)
    errors, at_means = [], []
    for _ in range(500):
        prior = rng.choice([0.01, 0.1, 1.0, 5.0])
        q = rng.beta(*rng.choice([0.05, 0.3, 1.0, 5.0], 2), rng.integers(1, 40))
        exact = exact_log_gamma(prior, q)
        found = expected_log_gamma(np.array([prior]), np.array([q.sum()]), spread_of(q))
        errors.append(abs(found[0] - exact))
        at_means.append(abs(gammaln(prior + q.sum()) - exact))
    assert max(errors) < 0.025
    assert np.median(errors) < 0.002
    assert np.median(at_means) > 0.05
    assert max(at_means) > 1.0


@pytest.mark.parametrize("q", [0.0, 1e-250, 1e-9, 0.3, 1.0 - 1e-9, 1.0])
def test_a_single_step_is_exact(q):
    prior = 0.2
    exact = (1.0 - q) * gammaln(prior) + q * gammaln(prior + 1.0)
    found = expected_log_gamma(np.array([prior]), np.array([q]), spread_of(np.array([q])))
    np.testing.assert_allclose(found, exact, rtol=1e-9)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 5000])
def test_certain_steps_are_exact(n):
    q = np.repeat([1.0, 0.0], [n, 20])
    found = expected_log_gamma(np.array([0.2]), np.array([float(n)]), spread_of(q))
    np.testing.assert_allclose(found, gammaln(0.2 + n), rtol=1e-12)


def test_sums_of_other_data_than_the_counts_are_kept_within_what_is_possible():
    counts, prior = np.array([5.0, 0.02, 30.0]), np.full(3, 0.1)
    spread = Spread(np.array([0.0, -50.0, -0.1]), np.array([0.0, 0.0, 90.0]))
    found = expected_log_gamma(prior, counts, spread)
    assert np.isfinite(found).all()
    certain = 0.98 * gammaln(0.1) + 0.02 * gammaln(1.1)
    np.testing.assert_allclose(found[:2], [gammaln(5.1), certain], rtol=1e-2)


def test_trigamma_is_that_of_scipy():
    x = np.concatenate([np.logspace(-8, 0, 50), np.linspace(0.5, 30.0, 200), [1e4, 1e9]])
    np.testing.assert_allclose(trigamma(x), polygamma(1, x), rtol=1e-9)


# ---- the gap between potentials is the second-order term -------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_gap_of_potentials_is_half_the_second_derivative(name):
    """a_g(λ + t) − a_g(λ) − ⟨∇a_g, t⟩ = ½ tᵀ∇²a_g t, and inversely proportional to the mass."""
    example, rng = EXAMPLES[name], np.random.default_rng(1)
    family = example.resolve()
    data = Sequences(example.draw_data(rng, 60), [0, 60])
    x = family.observations(data)
    t = family.statistics(x)
    means = np.tile(t.mean(axis=0), (3, 1))
    r = rng.dirichlet(np.full(3, 0.5), 60)
    sums = []
    for mass in (4000.0, 8000.0):
        natural = family.prior() + mass * means
        gaps = family.log_predictive(x, natural) - family.expected_log_likelihood(x, natural)
        h = 1e-3 * mass
        second = np.stack(
            [
                (increases(family, natural, h * one) + increases(family, natural, -h * one)) / h**2
                for one in t
            ]
        )
        weights = r * (1.0 - r)
        sums.append((weights * gaps).sum())
        np.testing.assert_allclose(sums[-1], 0.5 * (weights * second).sum(), rtol=0.02)
    np.testing.assert_allclose(sums[0], 2.0 * sums[1], rtol=0.02)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [name for name in EXAMPLES if "categorical" not in name])
def test_a_family_sums_the_gaps_of_its_potentials(name, dtype):
    example, rng = EXAMPLES[name], np.random.default_rng(2)
    family = example.resolve()
    values = example.draw_data(rng, 80)
    if example.missing in ("entries", "rows"):
        values = np.asarray(values, dtype=float)
        values[10:14] = np.nan
    data = family.validate(Sequences(values, [0, 80]))
    x = family.observations(data)
    natural = example.draw_natural(family, rng, 3)
    table = DecayedTable(natural - family.prior(), "float64")
    encoded = family.encode(data)
    rows = family.emission_rows(encoded, table, collapsed=True, dtype=np.dtype(dtype), n_threads=1)
    r, masses = rng.dirichlet(np.full(3, 0.5), 80), np.array([1.0, 2.0, 3.0])
    found = family.uncertainty(encoded, r, rows, table, masses, n_threads=1)
    gaps = family.log_predictive(x, natural) - family.expected_log_likelihood(x, natural)
    assert found.dense().shape == (1, 3)
    exact = masses * (r * (1.0 - r) * gaps).sum(axis=0)
    np.testing.assert_allclose(found.dense()[0], exact, rtol=1e-4 if dtype == "float32" else 1e-8)
    value = family.expected_log_normalizer(natural - family.prior(), found.dense(), masses)
    np.testing.assert_allclose(
        value - family.log_normalizer(natural), exact / masses, rtol=1e-3, atol=1e-9
    )


def test_symbols_that_do_not_occur_add_what_they_have_before_the_data():
    rng = np.random.default_rng(5)
    counts, unseen = rng.gamma(1.0, 3.0, (3, 8)), np.array([1, 2, 6])
    counts[:, unseen] = 0.0
    prior = rng.gamma(1.0, 1.0, 8)
    log_absent, variances = -1.5 * counts, 0.3 * counts
    family = sj.Categorical(8, prior)
    uncertainty = np.concatenate([log_absent, variances]).T
    found = family.expected_log_normalizer(counts, uncertainty, counts.sum(axis=1))
    cells = expected_log_gamma(prior, counts, Spread(log_absent, variances)).sum(axis=1)
    sums = (part.sum(axis=1) for part in (counts, log_absent, variances))
    total, *spread = sums
    whole = expected_log_gamma(np.full(3, prior.sum()), total, Spread(*spread))
    np.testing.assert_allclose(found, cells - whole, rtol=1e-12)


def test_the_term_of_poisson_counts_is_its_closed_form():
    """½ V_S ψ′(α + S) − Cov_SN / (β + N) + ½ V_N (α + S) / (β + N)²."""
    rng = np.random.default_rng(3)
    x = rng.poisson(9.0, (4000, 1)).astype(float)
    family = sj.Poisson().resolve(Sequences(x, [0, len(x)]), 2)
    r = rng.dirichlet(np.full(2, 0.5), len(x))
    t = family.statistics(x)
    natural = family.prior() + r.T @ t
    shape, rate = (part[:, 0] for part in family.shape_and_rate(*family.parts(natural)))
    q = r * (1.0 - r)
    of_sums, of_steps, both = (x**2).T @ q, q.sum(axis=0), x.T @ q
    exact = 0.5 * of_sums * polygamma(1, shape) - both / rate + 0.5 * of_steps * shape / rate**2
    gaps = family.log_predictive(x, natural) - family.expected_log_likelihood(x, natural)
    np.testing.assert_allclose((q * gaps).sum(axis=0), exact[0], rtol=2e-3)


# ---- the bound, against all paths ----------------------------------------------------------------

TINY = {
    "categorical": (
        sj.Categorical(3, 0.3),
        [np.array([0, 1, 1]), np.array([2, 2, 0]), np.array([1, 0])],
    ),
    "Poisson": (
        sj.Poisson(),
        [np.array([[2.0], [9.0], [3.0], [11.0]]), np.array([[8.0], [1.0], [np.nan], [10.0]])],
    ),
}


def fitter_of(family, data, n_states):
    bench = Workbench(family, CpuBackend(cpu, 1, "float64"))
    sample = Sample.draw([data], 1e9, len(data), bench, n_states, MoveSettings())
    assert not sample.held_out
    assert sample.copies == 1.0
    return SampleFitter(sample, bench, MoveSettings(), 1e18, n_states)


def drawn_posterior(family, data, n_states, seed, prior):
    rng = np.random.default_rng(seed)
    n, mass = len(data), data.n_steps
    statistics = Statistics(
        n * rng.dirichlet(np.ones(n_states)),
        mass * rng.dirichlet(np.ones(n_states**2)).reshape(n_states, n_states),
        family.initial_statistics(data, n_states, mass, rng),
    )
    return Posterior.from_statistics(statistics, prior, "float64")


def log_joint(family, transitions, start, pairs, statistics):
    """Return log p(z, x) without Σ log h(x), parameters integrated out; one row per path."""
    cells, start_total, totals, _ = transitions.evidence_prior()
    value = np.zeros(len(start))
    for a, whole, c in ((cells.start, start_total, start), (cells.transitions, totals, pairs)):
        rows = gammaln(whole) - gammaln(whole + c.sum(-1)) + (gammaln(a + c) - gammaln(a)).sum(-1)
        value += rows.reshape(len(start), -1).sum(1)
    n_states = start.shape[1]
    for k in range(n_states):
        value += family.log_normalizer(family.prior() + statistics[:, k])
    return value - n_states * family.log_normalizer(family.prior()[None])[0]


def counts_of(paths, t, n_states):
    """Return the counts of paths (P, T) through a sequence with statistics t (T, S)."""
    states = np.eye(n_states)[paths]
    pairs = np.einsum("ptk,ptl->pkl", states[:, :-1], states[:, 1:])
    return states[:, 0], pairs, np.einsum("ptk,ts->pks", states, t)


@pytest.mark.parametrize("prior", ["dirichlet", "hdp"])
@pytest.mark.parametrize("n_states", [2, 3])
@pytest.mark.parametrize("name", TINY)
def test_the_bound_is_the_sum_over_all_paths(name, n_states, prior):
    """To 0.35 nats; evidence at expected counts misses it by 0.6 to 6."""
    given, values = TINY[name]
    data = Sequences.from_list(values)
    family = given.resolve(data, n_states)
    data = family.validate(data)
    made = {"dirichlet": Dirichlet.make(n_states, 0.4, 0.7), "hdp": HDP.make(n_states)}[prior]
    fitter = fitter_of(family, data, n_states)
    posterior = drawn_posterior(family, data, n_states, 4, made)
    posterior = fitter.fit(posterior, 2).posterior
    fit = fitter.fit(posterior, 1)
    theta = COLLAPSED.transition_potentials(posterior.transitions.concentrations(posterior.counts))
    natural = family.prior() + posterior.emissions.dense()
    entropy, weights = 0.0, np.ones(1)
    totals = [np.zeros((1, *shape)) for shape in ((n_states,), (n_states, n_states))]
    totals.append(np.zeros((1, n_states, family.n_statistics)))
    for sequence in data:
        x = family.observations(Sequences(sequence, [0, len(sequence)]))
        rows = np.exp(family.log_predictive(x, natural))
        paths = list(enumerate_paths(theta.start, theta.transitions, rows))
        q = np.array([weight for _, weight in paths])
        q /= q.sum()
        entropy -= q @ np.log(q)
        own = counts_of(np.array([path for path, _ in paths]), family.statistics(x), n_states)
        totals = [
            (a[:, None] + b).reshape(-1, *b.shape[1:]) for a, b in zip(totals, own, strict=True)
        ]
        weights = np.outer(weights, q).ravel()
    base = family.log_base_measure(family.observations(data)).sum()
    transitions = fit.posterior.transitions
    local = entropy + base - divergence_of(transitions)
    exact = weights @ log_joint(family, transitions, *totals) + local
    means = [np.tensordot(weights, part, 1)[None] for part in totals]
    at_means = log_joint(family, transitions, *means)[0] + local
    assert abs(fit.bound - exact) < (0.35 if name == "Poisson" else 0.15)
    assert abs(fit.bound - exact) < 0.2 * abs(at_means - exact)


def divergence_of(transitions):
    """Return what the bound subtracts for the parameters above the rows."""
    nothing = type(transitions.evidence_prior().rows)(
        *(np.zeros_like(part) for part in transitions.evidence_prior().rows)
    )
    return -transitions.collapsed_bound(nothing)


@pytest.mark.parametrize("name", TINY)
def test_what_the_bound_needs_adds_up_over_parts_of_a_batch(name):
    given, values = TINY[name]
    data = Sequences.from_list(values * 3)
    family = given.resolve(data, 2)
    data = family.validate(data)
    posterior = drawn_posterior(family, data, 2, 0, Dirichlet.make(2, 0.4, 0.7))
    bench = Workbench(family, CpuBackend(cpu, 1, "float64"))

    def sums_of(part):
        return bench.statistics(posterior, bench.chunks(part, 2), entropy=True)

    whole, parts = sums_of(data), [sums_of(data[:2]), sums_of(data[2:3]), sums_of(data[3:])]
    copies = [BatchSums.total(parts), parts[0].fetched()]
    for part in parts[1:]:
        copies[1] += part
    posterior = replace(
        posterior,
        counts=Rows(whole.start, whole.transitions),
        emissions=DecayedTable(whole.emissions.dense().T, "float64"),
    )
    exact = COLLAPSED_BOUND.compute(posterior, family, whole, 1.0)
    for sums in copies:
        np.testing.assert_allclose(
            COLLAPSED_BOUND.compute(posterior, family, sums, 1.0), exact, rtol=1e-12
        )
    assert bench.statistics(posterior, bench.chunks(data, 2)).uncertainty is None


def test_with_certain_states_the_bound_is_the_evidence():
    """Two Gaussians so far apart that every responsibility is 0 or 1."""
    rng = np.random.default_rng(0)
    z = np.array([0, 0, 1, 1, 1, 0, 1, 0, 0, 0])
    x = (1e4 * z + rng.normal(size=10))[:, None]
    data = Sequences(x, [0, 10])
    family = sj.DiagonalGaussian().resolve(data, 2)
    states = np.eye(2)[z]
    pairs = np.einsum("tk,tl->kl", states[:-1], states[1:])
    statistics = Statistics(states[0], 1e3 * pairs, 1e3 * states.T @ family.statistics(x))
    prior = Dirichlet.make(2, 0.4, 0.7)
    posterior = Posterior.from_statistics(statistics, prior, "float64")
    fit = fitter_of(family, data, 2).fit(posterior, 1)
    exact = log_joint(
        family, prior, states[:1], pairs[None], (states.T @ family.statistics(x))[None]
    )
    exact += family.log_base_measure(x).sum()
    np.testing.assert_allclose(fit.bound, exact, rtol=1e-9)


# ---- the bound, against drawn paths -----------------------------------------------------------

"""Earthquakes of magnitude 7 or more in the world, 1900 to 2006."""


def drawn_paths(start, transitions, rows, n_paths, rng):
    """Filter forwards and sample backwards, all paths at once."""
    n_steps, n_states = rows.shape
    forward = np.empty((n_steps, n_states))
    forward[0] = start * rows[0] / (start @ rows[0])
    for t in range(1, n_steps):
        forward[t] = (forward[t - 1] @ transitions) * rows[t]
        forward[t] /= forward[t].sum()
    paths = np.empty((n_paths, n_steps), int)
    weights = np.tile(forward[-1], (n_paths, 1))
    for t in range(n_steps - 1, -1, -1):
        shares = np.cumsum(weights, axis=1)
        below = rng.random((n_paths, 1)) * shares[:, -1:] >= shares
        paths[:, t] = np.minimum(below.sum(axis=1), n_states - 1)
        weights = forward[t - 1] * transitions[:, paths[:, t]].T
    return paths


def test_the_bound_of_the_earthquakes_is_that_of_drawn_paths_and_prefers_three_states():
    data = Sequences(EARTHQUAKES[:, None], [0, 107])
    bounds = {}
    for n_states in (1, 2, 3, 4, 6, 10):
        family = sj.Poisson().resolve(data, n_states)
        fitter = fitter_of(family, data, n_states)
        prior = Dirichlet.make(n_states, 0.1, 0.1)
        fits = [
            fitter.fit(drawn_posterior(family, data, n_states, seed, prior), 150)
            for seed in range(4)
        ]
        posterior = max(fits, key=lambda fit: fit.bound).posterior
        sums = fitter.bench.statistics(posterior, fitter.sample.fitted, entropy=True)
        fit = fitter.fit(posterior, 1)
        potentials = COLLAPSED.transition_potentials(prior.concentrations(posterior.counts))
        rows = np.exp(
            family.log_predictive(data.values, family.prior() + posterior.emissions.dense())
        )
        rng = np.random.default_rng(n_states)
        paths = drawn_paths(*potentials, rows, 1000, rng)
        counts = counts_of(paths, family.statistics(data.values), n_states)
        values = log_joint(family, prior, *counts)
        drawn = values.mean() + sums.entropy + sums.log_base
        error = values.std() / np.sqrt(len(values))
        assert abs(fit.bound - drawn) < 3.0 * error + 1.5
        bounds[n_states] = fit.bound
    assert max(bounds, key=bounds.get) == 3
    assert bounds[3] > bounds[2] + 2.0
    assert bounds[3] > bounds[4] + 2.0
