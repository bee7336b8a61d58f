"""Several starts trained at once, against each of them alone in the training loop."""

import numpy as np
import pytest

import sojourn as sj
from sojourn.backends.compute import Compute
from sojourn.inference import Problem, train
from sojourn.inference.local import prepare
from sojourn.inference.method import METHODS
from sojourn.inference.schedule import Schedule
from sojourn.inference.starts import best_start
from sojourn.models.start import initial_posterior
from sojourn.sources import MemorySource
from tests.support.earthquakes import EARTHQUAKES as COUNTS

TOL = 1e-4


def starts_of(family, data, seeds, n_states=3):
    model = sj.HMM(n_states, family, dtype="float64")
    family = family.resolve(data, n_states)
    data = family.validate(data)
    sizes = len(data), data.n_steps
    return family, data, [initial_posterior(model, family, data, *sizes, seed) for seed in seeds]


def trained_alone(family, data, posterior, n_passes):
    problem = Problem(family, METHODS["scvi"].objective, Schedule(0.0, 1.0), len(data))
    backend = Compute("reference", 1, "float64").backend()
    source = MemorySource(data, None, 0)
    return train(problem, posterior, source, backend, n_passes=n_passes, tol=TOL)


@pytest.mark.parametrize(
    ("family", "values"),
    [
        (sj.Poisson(), COUNTS[:, None]),
        (sj.Poisson(), np.where(np.arange(len(COUNTS)) % 9 == 4, np.nan, 5.0 * COUNTS)[:, None]),
        (sj.Poisson(), np.stack([COUNTS, COUNTS[::-1]], axis=1)),
        (sj.Categorical(), COUNTS // 10),
        (sj.Categorical(), np.where(np.arange(len(COUNTS)) % 9 == 4, -1, COUNTS // 10)),
        (sj.Categorical(200), COUNTS),
    ],
    ids=[
        "Poisson",
        "Poisson with gaps",
        "two columns",
        "Categorical",
        "Categorical with gaps",
        "more symbols than steps",
    ],
)
@pytest.mark.parametrize("n_passes", [4, 100])
def test_the_best_start_is_the_best_of_the_loop(family, values, n_passes):
    data = sj.Sequences.from_lengths(values, [60, len(values) - 60])
    family, data, starts = starts_of(family, data, range(5))
    (chunk,) = prepare(family, data)
    seen = []
    posterior, at, _ = best_start(
        family, starts, chunk, n_passes=n_passes, compare_after=100, tol=TOL, callback=seen.append
    )
    ends = [trained_alone(family, data, start, n_passes) for start in starts]
    best = max(range(5), key=lambda n: ends[n].log_likelihood)
    np.testing.assert_allclose(at.log_likelihood, ends[best].log_likelihood, rtol=1e-10)
    np.testing.assert_allclose(posterior.counts.start, starts[best].counts.start, rtol=1e-6)
    for found, expected in (
        (posterior.counts.transitions, starts[best].counts.transitions),
        (posterior.emissions.dense(), starts[best].emissions.dense()),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert (at.converged, at.n_pass) == (ends[best].converged, ends[best].n_pass)
    assert at.converged == (n_passes == 100)
    assert posterior.n_updates == at.updates == len(at.history) == at.n_pass
    assert at.steps == at.n_pass * data.n_steps
    assert [entry.updates for entry in seen[::2]] == list(range(1, len(seen) // 2 + 1))


def test_a_start_goes_on_where_the_loop_would_be():
    data = sj.Sequences.from_lengths(COUNTS[:, None], [len(COUNTS)])
    family, data, starts = starts_of(sj.Poisson(), data, [3, 3])
    (chunk,) = prepare(family, data)
    posterior, at, is_alone = best_start(
        family, starts, chunk, n_passes=100, compare_after=5, tol=TOL
    )
    assert not is_alone  # both are the same
    problem = Problem(family, METHODS["scvi"].objective, Schedule(0.0, 1.0), 1)
    backend = Compute("cpu", 1, "float64").backend()
    source = MemorySource(data, None, 0)
    ended = train(problem, posterior, source, backend, n_passes=100, tol=TOL, position=at)
    alone = trained_alone(family, data, starts[0], 100)
    assert (ended.n_pass, ended.converged) == (alone.n_pass, True)
    np.testing.assert_allclose(posterior.emissions.dense(), starts[0].emissions.dense(), rtol=1e-8)


def test_a_start_that_no_other_comes_near_is_alone():
    data = sj.Sequences.from_lengths(COUNTS[:, None], [len(COUNTS)])
    family, data, starts = starts_of(sj.Poisson(), data, range(2))
    (chunk,) = prepare(family, data)
    one = starts[0].regrouped(np.full((3, 3), 1 / 3))  # states that are all alike stay alike
    for order in ([one, starts[1]], [starts[1], one]):
        found = best_start(family, order, chunk, n_passes=100, compare_after=20, tol=TOL)
        assert found.is_alone


def test_restarts_at_once_find_what_restarts_one_by_one_do():
    at_once = sj.HMM(3, sj.Poisson(), random_state=0, n_init=5).fit(COUNTS)
    one_by_one = sj.HMM(3, sj.Poisson(), random_state=0, n_init=5).fit(COUNTS, track_bound=True)
    assert at_once.score(COUNTS) == pytest.approx(one_by_one.score(COUNTS), abs=1e-2)
    assert at_once.n_updates_ == len(at_once.history_)
    again = sj.HMM(3, sj.Poisson(), random_state=0, n_init=5, n_jobs=1).fit(COUNTS)
    assert (again.lambdas_ == at_once.lambdas_).all()


def test_the_best_start_goes_on_alone():
    data = sj.Sequences.from_lengths(COUNTS[:, None], [len(COUNTS)])
    family, data, starts = starts_of(sj.Poisson(), data, range(4))
    (chunk,) = prepare(family, data)
    options = {"n_passes": 100, "compare_after": 6, "tol": TOL}
    ahead, at, _ = best_start(family, starts, chunk, **options)
    posterior, ended, _ = best_start(family, starts, chunk, alone=True, **options)
    assert (at.n_pass, at.converged) == (6, False)
    assert ended.converged
    alone = trained_alone(family, data, ahead, 100)
    assert ended.n_pass == 6 + alone.n_pass
    np.testing.assert_allclose(posterior.emissions.dense(), ahead.emissions.dense(), rtol=1e-7)
