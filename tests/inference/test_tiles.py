"""Tiles with buffers count what uncut sequences count."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy

import sojourn as sj
from sojourn.backends.cpu import CpuBackend
from sojourn.inference import COLLAPSED, MEAN_FIELD, Posterior, Problem, Schedule, step
from sojourn.inference.local import expected_statistics, prepare
from sojourn.inference.problem import Tiled
from sojourn.kernels import cpu, reference
from sojourn.sources import TiledSource
from sojourn.transitions import Dirichlet
from tests.support.families import EXAMPLES

BACKENDS = {"cpu": CpuBackend(cpu, 2, "float64"), "reference": CpuBackend(reference, 1, "float64")}


def posterior_for(family, natural, n_states, rng):
    emissions = natural - family.prior()
    transitions = rng.exponential(5.0, (n_states, n_states)) + 20.0 * np.eye(n_states)
    given_ = sj.Statistics(rng.exponential(5.0, n_states), transitions, emissions)
    return Posterior.from_statistics(given_, Dirichlet.make(n_states, 0.1, 0.1), "float64")


def everything(posterior, family, data, backend, objective=COLLAPSED, **wanted):
    chunks = prepare(family, data)
    return expected_statistics(posterior, family, objective, chunks, backend, **wanted)


def flat(sums):
    """All numbers that a step takes from a batch, by name."""
    found = {
        "start": sums.start,
        "transitions": sums.transitions,
        "emissions": sums.emissions.dense(),
        "log_normalizer": sums.log_normalizer,
        "n_steps": sums.n_steps,
        "n_starts": sums.n_starts,
    }
    if sums.squares is not None:
        found |= sums.squares._asdict()
    if sums.uncertainty is not None:
        found |= {"entropy": sums.entropy, "log_base": sums.log_base}
        found |= {"uncertain": sums.uncertainty.emissions.dense()}
    return found


def assert_same(ours, theirs, rtol):
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        scale = np.abs(value).max()
        np.testing.assert_allclose(ours[name], value, rtol=rtol, atol=rtol * scale, err_msg=name)


def data_of(example, family, rng, lengths, *, missing=False):
    values = [example.draw_data(rng, n) for n in lengths]
    if missing:
        for part in values:
            gone = rng.random(len(part)) < 0.2
            gone[0] = False
            part[gone] = -1 if example.missing == "symbols" else np.nan
    return family.validate(sj.Sequences.from_list(values))


@pytest.mark.parametrize("name", EXAMPLES)
def test_tiles_whose_buffers_hold_the_sequences_count_what_these_count(name):
    rng = np.random.default_rng(3)
    example = EXAMPLES[name]
    family = example.resolve()
    posterior = posterior_for(family, example.draw_natural(family, rng, 3), 3, rng)
    whole = data_of(example, family, rng, [23, 1, 50], missing=True)
    source = TiledSource(whole, tile_length=4, batch_size=None, seed=1, buffer=50)
    assert source.n_sequences == 6 + 1 + 12
    tiles = next(source.batches(0))
    for objective in (COLLAPSED, MEAN_FIELD):
        wanted = {"squares": True, "entropy": objective is COLLAPSED}
        found, expected = (
            flat(everything(posterior, family, data, BACKENDS["cpu"], objective, **wanted))
            for data in (tiles, whole)
        )
        assert_same(found, expected, 1e-12)


def path_weights(posterior, family, sequence):
    """Probabilities of all paths of a sequence by eqs (1) and (2), one after another."""
    prior, counts = posterior.transitions.prior, posterior.counts
    start, transitions = prior.start + counts.start, prior.transitions + counts.transitions
    emissions = family.prior() + posterior.emissions.dense()
    start, transitions, emissions = (
        part / part.sum(axis=-1, keepdims=True) for part in (start, transitions, emissions)
    )
    weights = []
    for path in product(range(len(start)), repeat=len(sequence)):
        weight = start[path[0]] * emissions[path[0], sequence[0]]
        for t in range(1, len(sequence)):
            weight *= transitions[path[t - 1], path[t]] * emissions[path[t], sequence[t]]
        weights.append(weight)
    return np.array(weights) / np.sum(weights)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_entropies_of_tiles_add_up_to_that_of_all_paths(backend):
    rng = np.random.default_rng(5)
    family = sj.Categorical(3, 0.3)
    data = family.validate(sj.Sequences.from_list([rng.integers(3, size=n) for n in (7, 4)]))
    posterior = posterior_for(family, family.prior() + rng.gamma(0.5, 9.0, (2, 3)), 2, rng)
    expected = sum(entropy(path_weights(posterior, family, each)) for each in data)
    for tile in (1, 2, 3):
        source = TiledSource(data, tile, batch_size=2, seed=tile, buffer=7)
        found = sum(
            everything(posterior, family, batch, BACKENDS[backend], entropy=True).entropy
            for batch in source.batches(0)
        )
        assert found == pytest.approx(expected, rel=1e-12)


def test_the_bound_of_tiles_is_that_of_the_sequences():
    rng = np.random.default_rng(2)
    data = rng.integers(4, size=60)
    bounds = []
    for tile_length in (9, None):
        model = sj.HMM(2, sj.Categorical(4), tile_length=tile_length, buffer=60, batch_size=None)
        model.set_params(n_passes=3, random_state=0, dtype="float64")
        history = model.fit(data, track_bound=True).history_
        bounds.append([entry["bound"] for entry in history])
    np.testing.assert_allclose(*bounds, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
    st.integers(1, 12),
    st.integers(1, 60),
    st.integers(0, 2**32 - 1),
)
def test_every_step_and_transition_is_in_one_tile_of_a_pass(lengths, tile, buffer, seed):
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    data = sj.Sequences(np.arange(offsets[-1]), offsets)
    source = TiledSource(data, tile, batch_size=2, seed=seed, buffer=buffer)
    batches = list(source.batches(0))
    steps = np.concatenate([batch.values[batch.counted_steps] for batch in batches])
    assert sorted(steps) == list(range(offsets[-1]))
    assert sum(batch.n_starts for batch in batches) == len(lengths)
    assert sum(map(len, batches)) == source.n_sequences
    ends = []
    for batch in batches:
        for piece, (first, last, *_) in zip(batch, batch.counted, strict=True):
            assert 0 <= first < last <= len(piece)
            np.testing.assert_array_equal(np.diff(piece), 1)  # a piece has its neighbours
            sequence = np.searchsorted(offsets, piece[first], side="right") - 1
            assert offsets[sequence] <= piece[0] <= piece[-1] < offsets[sequence + 1]
            assert first == min(buffer, piece[first] - offsets[sequence])
            ends.append(piece[last - 1])
    # Cuts differ from pass to pass, and a pass can be resumed anywhere.
    again = list(source.batches(0, start=1))
    assert len(again) == len(batches) - 1
    for ours, theirs in zip(again, batches[1:], strict=True):
        np.testing.assert_array_equal(ours.values, theirs.values)
        np.testing.assert_array_equal(ours.counted, theirs.counted)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), buffer=st.integers(1, 30), tile=st.integers(1, 9))
def test_statistics_are_unbiased(backend, seed, buffer, tile):
    # The tiles of a pass add up to the data; with every tile as likely as another, so does the
    # mean of minibatches.  Only the edges are estimates.
    rng = np.random.default_rng(seed)
    family = sj.Categorical(5, 0.3)
    data = sj.Sequences.from_list([rng.integers(5, size=n) for n in (17, 30)])
    data = family.validate(data)
    posterior = posterior_for(family, family.prior() + rng.gamma(0.5, 9.0, (3, 5)), 3, rng)
    source = TiledSource(data, tile, batch_size=1, seed=seed % 1000, buffer=buffer)
    parts = [everything(posterior, family, b, BACKENDS[backend]) for b in source.batches(seed % 7)]
    total = {name: sum(flat(part)[name] for part in parts) for name in flat(parts[0])}
    whole = flat(everything(posterior, family, data, BACKENDS[backend]))
    assert total["n_steps"] == whole["n_steps"]
    assert total["n_starts"] == whole["n_starts"]
    np.testing.assert_allclose(total["transitions"].sum(), data.n_steps - 2, rtol=1e-12)
    np.testing.assert_allclose(total["start"].sum(), 2.0, rtol=1e-12)
    np.testing.assert_allclose(total["emissions"].sum(1), whole["emissions"].sum(1), rtol=1e-12)
    if buffer == 30:
        assert_same(total, whole, 1e-12)


def test_a_step_scales_tiles_by_steps_and_the_start_by_sequences():
    rng = np.random.default_rng(0)
    family = sj.Categorical(4, 0.3)
    data = family.validate(sj.Sequences.from_list([rng.integers(4, size=40) for _ in range(3)]))
    posterior = posterior_for(family, family.prior() + rng.gamma(0.5, 9.0, (2, 4)), 2, rng)
    source = TiledSource(data, 10, batch_size=3, seed=0, buffer=40)
    problem = Problem(family, COLLAPSED, Schedule(0.0, 1.0), source.n_sequences, Tiled(3, 120))
    backend = BACKENDS["cpu"]
    for batch in source.batches(0):
        start = posterior.counts.start
        expected = everything(posterior, family, batch, backend)
        step(problem, posterior, prepare(family, batch), backend)
        copies = 120 / batch.n_counted
        np.testing.assert_allclose(posterior.counts.transitions, copies * expected.transitions)
        np.testing.assert_allclose(
            posterior.emissions.dense().T, copies * expected.emissions.dense(), rtol=1e-6
        )
        if batch.n_starts:
            np.testing.assert_allclose(posterior.counts.start.sum(), 3.0)
        else:
            np.testing.assert_array_equal(posterior.counts.start, start)


def test_full_batches_are_cut_in_the_same_way():
    data = sj.Sequences(np.arange(1000.0)[:, None], np.array([0, 300, 1000]))
    source = TiledSource(data, 50, 4, seed=0, whole_from=2)
    cuts = [source.cuts(n_pass).begins.tolist() for n_pass in range(5)]
    assert cuts[0] != cuts[1] != cuts[2]
    assert cuts[2] == cuts[3] == cuts[4]
