"""Potentials, forward-backward and sums in one sweep, beside the closed forms in float64."""

import numpy as np
import pytest

import sojourn as sj
from sojourn.families.table import DecayedTable
from sojourn.inference import COLLAPSED
from sojourn.inference.local import expected_statistics, prepare
from sojourn.kernels import Potentials, cpu, reference
from sojourn.kernels.cpu import narrow, recursions
from sojourn.kernels.interface import SQUARE_EVERY
from tests.support.potentials import assert_same, long_chain

N_STEPS = 2100
FAMILIES = {
    "one column": (sj.DiagonalGaussian, 1),
    "three columns": (sj.DiagonalGaussian, 3),
    "full": (sj.Gaussian, 2),
    "zero mean": (sj.ZeroMeanGaussian, 2),
}


def drawn(make, n_columns, n_states, *, seed=0, n_steps=N_STEPS):
    """Return a family, its data, λ of states near them, and potentials of a chain."""
    rng = np.random.default_rng(seed)
    states = rng.integers(n_states, size=-(-n_steps // 8)).repeat(8)[:n_steps]
    means = rng.normal(3.0, 2.0, (n_states, n_columns))
    x = means[states] + rng.normal(size=(n_steps, n_columns))
    family = make().resolve(sj.Sequences.from_list([x]), n_states)
    softly = 0.9 * np.eye(n_states)[states] + 0.1 / n_states
    natural = family.prior() + softly.T @ family.statistics(x)
    transitions = 0.9 * np.eye(n_states) + rng.dirichlet(np.ones(n_states), n_states)
    return family, x, natural, (rng.dirichlet(np.ones(n_states)), transitions)


def swept(family, x, natural, chain, offsets, *, collapsed=True, **options):
    table = DecayedTable(natural - family.prior(), "float64")
    numbers = family.numbers(x, table, collapsed=collapsed)
    start, transitions = (part.astype(np.float32) for part in chain)
    return narrow.sweep(start, transitions, numbers, offsets, **options)


def one_after_another(family, x, natural, chain, offsets, *, collapsed=True):
    """By NumPy in float64: log densities, forward-backward in logarithms, a matrix product."""
    log_rows = (family.log_predictive if collapsed else family.expected_log_likelihood)(x, natural)
    scale = log_rows.max(axis=1)
    potentials = Potentials(*chain, np.exp(log_rows - scale[:, None]), scale)
    index = np.arange(len(x), dtype=np.int32)
    smoothed = reference.forward_backward(potentials, index, offsets, squares=True)
    return smoothed, family.statistics(x).T @ smoothed.responsibilities


def assert_near(got, expected, family, x):
    smoothed, products = got
    theirs, sums = expected
    np.testing.assert_allclose(
        smoothed.log_normalizers, theirs.log_normalizers, rtol=1e-6, atol=1e-4
    )
    n_steps = len(x)
    for ours, other in (
        (smoothed.start, theirs.start),
        (smoothed.transitions, theirs.transitions),
        *zip(smoothed.squares, theirs.squares, strict=True),
    ):
        np.testing.assert_allclose(ours, other, rtol=1e-5, atol=1e-6 * n_steps)
    largest = np.abs(family.statistics(x)).sum(axis=0).max()
    np.testing.assert_allclose(family.of_products(products), sums, rtol=1e-5, atol=1e-6 * largest)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    ("n_states", "tile", "collapsed"), [(2, None, False), (5, 48, True), (3, 16, True)]
)
def test_a_sweep_computes_what_the_parts_compute(name, n_states, tile, collapsed):
    batch = drawn(*FAMILIES[name], n_states, seed=n_states)
    for lengths in ([N_STEPS], [1, 17, 2, 1080, 16, 984]):
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        got = swept(*batch, offsets, collapsed=collapsed, squares=True, tile=tile)
        expected = one_after_another(*batch, offsets, collapsed=collapsed)
        assert_near(got, expected, *batch[:2])


def test_threads_do_not_change_a_bit_of_a_sweep():
    batch = drawn(sj.DiagonalGaussian, 2, 4, n_steps=40_000)
    offsets = np.array([0, 30_000, 40_000])
    one, two, five = (swept(*batch, offsets, tile=256, squares=8, n_threads=n) for n in (1, 2, 5))
    for other in (two, five):
        ours, theirs = ((*each[0][:3], *each[0].squares, each[1]) for each in (one, other))
        for a, b in zip(ours, theirs, strict=True):
            assert a.tobytes() == b.tobytes()


def test_a_sweep_has_the_sampled_squares_of_a_batch_that_is_not_swept():
    family, x, natural, chain = drawn(sj.DiagonalGaussian, 2, 12)
    offsets = np.array([0, 17, 1200, N_STEPS])
    log_rows = family.log_predictive(x, natural)
    emissions = np.exp(log_rows - log_rows.max(axis=1)[:, None]).astype(np.float32)
    start, transitions = (part.astype(np.float32) for part in chain)
    table = DecayedTable(natural - family.prior(), "float64")
    numbers = family.numbers(x, table, collapsed=True)
    index = np.arange(N_STEPS, dtype=np.int32)
    for wanted in (1, SQUARE_EVERY):
        got, _ = narrow.sweep(start, transitions, numbers, offsets, squares=wanted, n_threads=1)
        batch = Potentials(start, transitions, emissions), index, offsets
        expected = narrow.smooth(*batch, squares=wanted)
        for a, b in zip(got.squares, expected.squares, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)


def test_outliers_are_computed_in_double_precision():
    family, x, natural, chain = drawn(sj.Gaussian, 2, 3)
    x[[5, 6, 700, 2099]] += [[80.0, 0.0], [0.0, -90.0], [1e4, 1e4], [-200.0, 100.0]]
    offsets = np.array([0, 1200, N_STEPS])
    got = swept(family, x, natural, chain, offsets, squares=True)
    expected = one_after_another(family, x, natural, chain, offsets)
    assert_near(got, expected, family, x)
    np.testing.assert_allclose(
        got[0].log_normalizers, expected[0].log_normalizers, rtol=1e-7, atol=1e-3
    )


@pytest.mark.parametrize("value", [np.nan, 1e35])
def test_numbers_that_are_missing_or_too_large_are_left_to_the_parts(value):
    family, x, natural, chain = drawn(sj.DiagonalGaussian, 1, 2)
    x[1321] = value
    assert swept(family, x, natural, chain, np.array([0, N_STEPS])) is None


def test_a_sweep_needs_many_steps_near_their_location():
    family, x, natural, chain = drawn(sj.DiagonalGaussian, 1, 2)
    assert swept(family, x[:100], natural, chain, np.array([0, 100])) is None
    far = family.changed(location=np.array([1e5]))
    natural = far.prior() + far.statistics(x).T.sum(axis=1) * np.ones((2, 1))
    assert swept(far, x, natural, chain, np.array([0, N_STEPS])) is None


@pytest.mark.parametrize("lengths", [[6000], [3000, 3000], [20] * 300])
def test_training_sweeps_and_sums_the_same(lengths, monkeypatch):
    x = drawn(sj.Gaussian, 2, 3, n_steps=6000)[1]
    model = sj.HMM(3, sj.Gaussian(), n_passes=1, random_state=0, moves=None).fit(x, lengths)
    backend, data = model.fitted_.compute.backend(), sj.Sequences.from_lengths(x, lengths)
    given = model.fitted_.posterior, model.emission_, COLLAPSED

    def sums():
        return expected_statistics(*given, prepare(model.emission_, data, 3), backend)

    calls, sweep = [], cpu.sweep
    monkeypatch.setattr(cpu, "sweep", lambda *a, **k: calls.append(sweep(*a, **k)) or calls[-1])
    one = sums()
    assert len(calls) == 1
    assert calls[0] is not None
    monkeypatch.setattr(cpu, "sweep", lambda *a, **k: None)
    other = sums()
    for name in ("log_normalizer", "start", "transitions"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-6, atol=1e-3)
    np.testing.assert_allclose(one.emissions.dense(), other.emissions.dense(), rtol=1e-6, atol=1e-2)
    assert (one.n_sequences, one.n_steps) == (other.n_sequences, other.n_steps)


def test_walks_are_found_again_where_states_are_remembered_longer(monkeypatch):
    n_steps = 20_000
    potentials, index, offsets = long_chain(n_steps, 3, stay=0.5, doubt=0.1)
    emissions = potentials.emissions.copy()
    emissions[12_000:] = 0.95 + 0.05 * emissions[12_000:]
    transitions = 0.03 * potentials.transitions + 0.97 * np.eye(3)
    batch = potentials._replace(emissions=emissions, transitions=transitions), index, offsets
    calls, call = [], narrow._Strips._call
    monkeypatch.setattr(
        narrow._Strips,
        "_call",
        lambda self, *rest: calls.append(rest[3].copy()) or call(self, *rest),
    )
    got = narrow.smooth(*batch, squares=True, tile=128)
    probed, taken, again = calls
    assert taken.all()
    assert not probed.any()
    assert not again.any()
    assert_same(got, recursions.smooth(*batch, squares=True), 1e-10)
