"""Models with constraints and fixed parts: what is never to happen has the probability 0.0."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import sojourn as sj
from sojourn.model_selection import n_parameters
from sojourn.moves.rounds import Moves, RoundKind, propose
from sojourn.moves.workbench import Workbench
from sojourn.transitions import RowConstraints

NAN = np.nan
LEFT_RIGHT = np.array([[0.8, 0.2, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]])
RATES = np.array([2.0, 9.0, 25.0])


def drawn(n_sequences=30, length=25, matrix=LEFT_RIGHT, seed=0):
    """Draw counts of a chain that starts in its first state."""
    truth = sj.HMM.from_parameters(
        np.eye(len(matrix))[0],
        matrix,
        sj.Poisson(),
        lambdas=RATES[: len(matrix)],
        random_state=seed,
    )
    observations, states = truth.sample(n_sequences, length)
    return list(observations), states


def never_happens(model, constraints):
    """Assert that what is forbidden is 0.0 in parameters and expected counts."""
    allowed = constraints.allowed
    start, rows = model.startprob_, model.transmat_
    statistics = model.statistics_
    for found, may in (
        (start, allowed.start),
        (rows, allowed.transitions),
        (statistics.start, allowed.start),
        (statistics.transitions, allowed.transitions),
    ):
        assert (found[~may] == 0.0).all()
        assert np.isfinite(found).all()
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (sj.HMM, {}),
        (sj.HMM, {"inference": "svi", "batch_size": 5, "n_passes": 10}),
        (sj.HMM, {"inference": "vb"}),
        (sj.HMM, {"inference": "cvb0", "n_passes": 5}),
        (sj.HMM, {"stickiness": "learned", "batch_size": 10, "n_passes": 10}),
        (sj.HDPHMM, {}),
        (sj.HDPHMM, {"inference": "svi", "batch_size": 10, "n_passes": 10}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_left_right_model_is_recovered_by_every_method(kind, options):
    X, states = drawn()
    model = kind(
        3, sj.Poisson(), transition_constraints="left-right", random_state=0, n_init=1, **options
    ).fit(X)
    never_happens(model, RowConstraints.make(3, "left-right", None))
    assert model.startprob_.tolist() == [1.0, 0.0, 0.0]
    np.testing.assert_allclose(model.transmat_, LEFT_RIGHT, atol=0.08)
    np.testing.assert_allclose(model.lambdas_.ravel(), RATES, rtol=0.1)
    paths = np.concatenate(model.predict(X))
    assert (paths == states.values).mean() > 0.95
    assert all((np.diff(path) >= 0).all() for path in model.predict(X))
    assert all((np.diff(path) >= 0).all() for path in model.sample(20, 30)[1])
    draws = model.posterior_samples(X, 5, method="surrogate").draws("transmat_")
    assert (draws[:, LEFT_RIGHT == 0.0] == 0.0).all()


def test_symbols_by_a_blocked_sampler_and_by_em():
    X, _ = drawn()
    symbols = [np.minimum(x, 30).astype(int).ravel() for x in X]
    options = {"transition_constraints": "left-right", "random_state": 0}
    sampling = sj.Sampling("blocked-gibbs", n_samples=5, burn_in=10, n_chains=1)
    model = sj.HMM(3, sj.Categorical(31), inference=sampling, **options).fit(symbols)
    never_happens(model, RowConstraints.make(3, "left-right", None))
    for draw in model.samples_:
        steps = np.diff(draw.states)
        inside = np.setdiff1d(np.arange(len(steps)), np.cumsum([len(x) for x in X])[:-1] - 1)
        assert np.isin(steps[inside], (0, 1)).all()
    em = sj.HMM(3, sj.Categorical(31), inference="em", n_passes=5, **options).fit(symbols)
    never_happens(em, RowConstraints.make(3, "left-right", None))


def test_where_constraints_cannot_be_held_they_are_refused():
    X = [[0, 1, 1], [1, 0]]
    options = {"transition_constraints": "no-self"}
    with pytest.raises(ValueError, match=r"'gibbs' draws states one by one.*blocked-gibbs"):
        sj.HMM(2, sj.Categorical(2), inference="gibbs", **options).fit(X)
    for name in ("gibbs", "beam"):
        with pytest.raises(ValueError, match="makes states, and cannot hold constraints"):
            sj.HDPHMM(2, sj.Categorical(2), inference=name, **options).fit(X)
    moves = sj.MoveSettings(init_states=1)
    with pytest.raises(ValueError, match="init_states needs states that are free"):
        sj.HDPHMM(2, sj.Categorical(2), moves=moves, **options).fit(X)
    init = sj.Statistics([1, 1], np.ones((2, 2)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="never happen"):
        sj.HMM(2, sj.Categorical(2), init=init, **options).fit(X)
    with pytest.raises(ValueError, match="row 0 of transition_constraints"):
        sj.HMM(2, sj.Categorical(2), transition_constraints=np.zeros((2, 2))).fit(X)


def test_given_numbers_are_kept_to_the_bit_and_the_rest_is_learned():
    X, _ = drawn()
    known = np.array([[NAN, 0.2, NAN], [0.0, NAN, NAN], [0.0, 0.0, NAN]])
    model = sj.HMM(3, sj.Poisson(), transition_constraints=known, random_state=0).fit(X)
    assert model.transmat_[0, 1] == 0.2
    never_happens(model, RowConstraints.make(3, known, None))


def test_an_observation_that_only_an_impossible_state_explains_does_not_end_training():
    """In single precision no path would be left: the first state has to explain it."""
    X, _ = drawn()
    X[3] = X[3].copy()
    X[3][0] = 4_000
    X[3][1:] = 0
    model = sj.HMM(3, sj.Poisson(), transition_constraints="left-right", random_state=0)
    model.fit(X)
    assert np.isfinite(model.score(X))
    assert model.predict(X)[3][0] == 0
    np.testing.assert_allclose(model.predict_proba(X)[3][0], [1.0, 0.0, 0.0])


ALIKE = np.full((5, 5), NAN)
ALIKE[0, 4] = ALIKE[4, 1:4] = 0.0  # 1, 2 and 3 may do the same


@settings(max_examples=12, deadline=None)
@given(
    kind=st.sampled_from([sj.HMM, sj.HDPHMM]),
    constraints=st.sampled_from(["left-right", "upper-triangular", "no-self", "alike"]),
    what=st.lists(
        st.sampled_from(["update", "merge", "restart", "file", "fit"]), min_size=2, max_size=5
    ),
    seed=st.integers(0, 3),
)
def test_what_never_happens_never_does_whatever_comes(
    kind, constraints, what, seed, tmp_path_factory
):
    X, _ = drawn(12, 12, seed=seed)
    known = ALIKE if constraints == "alike" else constraints
    model = kind(
        5, sj.Poisson(), transition_constraints=known, moves="auto", random_state=seed, n_passes=2,
        batch_size=6, dtype="float32",
    )  # fmt: skip
    model.partial_fit(X, total_sequences=12)
    for step in what:
        if step == "update":
            model.partial_fit(X[:6], total_sequences=12)
        elif step == "fit":
            model.fit(X)
        elif step == "file":
            path = tmp_path_factory.mktemp("files") / "model.sojourn"
            model.save(path)
            model = sj.load(path)
        else:
            made = {"merge": RoundKind.MERGE, "restart": RoundKind.RESTART}[step]
            propose_once(model, X, made)
        now = model.fitted_.posterior.transitions.constraints
        never_happens(model, now)
        if isinstance(known, str):  # those of as many states as there are left
            expected = RowConstraints.make(len(model.startprob_), known, None)
            assert (now.allowed.transitions == expected.allowed.transitions).all()


@pytest.mark.parametrize("name", ["no-self", "left-right"])
def test_states_that_are_one_become_one_under_constraints(name):
    rng = np.random.default_rng(0)
    if name == "left-right":
        lasts = rng.geometric(0.15, (60, 3))
        X = [np.concatenate([*map(rng.poisson, RATES[:3], own)]) for own in lasts]
    else:
        matrix = [[0.0, 0.7, 0.3], [0.2, 0.0, 0.8], [0.5, 0.5, 0.0]]
        X, _ = drawn(60, 20, matrix=matrix)
    model = sj.HMM(
        5, sj.Poisson(), transition_constraints=name, moves="auto", random_state=0, n_init=1
    ).fit(X)
    assert len(model.startprob_) == 3
    never_happens(model, RowConstraints.make(3, name, None))
    np.testing.assert_allclose(sorted(model.lambdas_.ravel()), RATES[:3], rtol=0.1)


def propose_once(model, X, kind):
    """Make proposals of one kind on all of the data, as a round of moves does."""
    fitted = model.fitted_
    data = fitted.prepare(X).sequences
    moves = Moves(5, 0, fitted.compute.backend())
    bench = Workbench(fitted.family, moves.backend)
    plan = moves._plan(fitted.posterior, bench, len(X), 1e9, early=False, surveys=False)
    plan = plan._replace(kind=kind, n_steps=1e9)
    judge = moves._judge(plan, fitted.posterior, bench, [data], 12)
    propose(kind, judge, np.random.default_rng(0))
    fitted.posterior.become(judge.present.posterior)


def test_states_with_the_same_constraints_are_merged_and_keep_their_place():
    X, _ = drawn(40, 40, LEFT_RIGHT[:2, :2] / LEFT_RIGHT[:2, :2].sum(axis=1, keepdims=True))
    known = np.full((4, 4), NAN)
    known[1:, 0] = 0.0  # the first is never come back to
    model = sj.HDPHMM(4, sj.Poisson(), transition_constraints=known, random_state=0).fit(X)
    now = model.fitted_.posterior.transitions.constraints
    assert len(model.startprob_) < 4
    assert (model.transmat_[1:, 0] == 0.0).all()
    never_happens(model, now)


def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(tmp_path):
    X, _ = drawn()
    known = np.array([[NAN, 0.2, NAN], [0.0, NAN, NAN], [0.0, 0.0, NAN]])

    def make(n_passes):
        return sj.HDPHMM(
            3, sj.Poisson(), transition_constraints=known, batch_size=10, n_passes=n_passes,
            random_state=0,
        )  # fmt: skip

    whole = make(6).fit(X)
    make(3).fit(X, checkpoint=tmp_path)
    resumed = make(6).fit(X, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(whole.transmat_, resumed.transmat_)
    np.testing.assert_array_equal(whole.lambdas_, resumed.lambdas_)
    other = sj.HDPHMM(3, sj.Poisson(), batch_size=10, n_passes=6, random_state=0)
    with pytest.raises(ValueError, match="transition_constraints was"):
        other.fit(X, checkpoint=tmp_path, resume=True)


# ---- fixed parts, and models by their parameters ------------------------------------------------


def test_a_model_by_its_parameters_is_the_sum_over_all_paths():
    from scipy.stats import poisson

    start, x = np.array([0.7, 0.3, 0.0]), np.array([1, 9, 12, 30])
    model = sj.HMM.from_parameters(start, LEFT_RIGHT, sj.Poisson(), lambdas=RATES)
    np.testing.assert_allclose(model.transmat_, LEFT_RIGHT, atol=1e-12)
    assert (model.transmat_[LEFT_RIGHT == 0.0] == 0.0).all()
    total = 0.0
    for path in product(range(3), repeat=4):
        weight = start[path[0]]
        for before, after in pairwise(path):
            weight *= LEFT_RIGHT[before, after]
        total += weight * np.prod(poisson.pmf(x, RATES[list(path)]))
    assert model.score(x) == pytest.approx(np.log(total), rel=1e-6)
    assert model.predict(x).tolist() == [0, 1, 1, 2]
    np.testing.assert_allclose(model.filter(x)[-1], model.predict_proba(x)[-1])
    assert model.forecast(x, steps=2, n_draws=3).state_probabilities.shape == (1, 2, 3)


@pytest.mark.parametrize(
    ("family", "parameters"),
    [
        (sj.Bernoulli(), {"emissionprob": [[0.2], [0.9]]}),
        (sj.Exponential(), {"rates": [2.0, 5.0]}),
        (sj.Gamma(shape=2.0), {"rates": [[2.0], [5.0]]}),
        (sj.Geometric(), {"probs": [0.2, 0.5]}),
        (sj.NegativeBinomial(dispersion=3.0), {"probs": [0.2, 0.5]}),
        (sj.LogNormal(), {"means": [0.0, 1.0], "covars": [1.0, 2.0]}),
        (sj.Gaussian(), {"means": [[0.0, 1], [2, 3]], "covars": [[[2, 1], [1, 3.0]], np.eye(2)]}),
        (sj.DiagonalGaussian(), {"means": [[0.0, 1], [2, 3]], "covars": [[1.0, 2], [1, 1]]}),
        (sj.SphericalGaussian(), {"means": [[0.0, 1], [2, 3]], "covars": [1.0, 2.0]}),
        (sj.ZeroMeanGaussian(), {"covars": [[[1.0, 0.2], [0.2, 1]], [[2, 0], [0, 3]]]}),
        (sj.Multinomial(), {"emissionprob": [[0.2, 0.8], [0.9, 0.1]]}),
        (sj.Categorical(), {"emissionprob": [[0.2, 0.8], [0.9, 0.1]]}),
        (
            sj.Product(sj.Poisson(), sj.Categorical(2)),
            {"lambdas": [2.0, 9.0], "emissionprob": [[0.2, 0.8], [0.9, 0.1]]},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_family_has_the_parameters_that_it_is_given(family, parameters):
    model = sj.HMM.from_parameters([0.5, 0.5], [[0.9, 0.1], [0.3, 0.7]], family, **parameters)
    for name, value in parameters.items():
        found = getattr(model, f"{name}_")
        np.testing.assert_allclose(np.ravel(found), np.ravel(value), rtol=1e-5, atol=1e-6)
    assert len(model.sample(2, 3)[0].values) == 6


@pytest.mark.parametrize(
    ("start", "matrix", "given", "message"),
    [
        ([0.5, 0.6], np.eye(2), {"lambdas": [1, 2]}, "startprob must have probabilities"),
        ([0.5, 0.5], np.eye(3), {"lambdas": [1, 2]}, "transmat has the shape"),
        ([0.5, 0.5], np.eye(2), {}, "Poisson is given by lambdas"),
        ([0.5, 0.5], np.eye(2), {"lambdas": [1]}, "lambdas must have 2 rows"),
        ([0.5, 0.5], np.eye(2), {"lambdas": [1, 2], "weight": -1}, "weight must be positive"),
    ],
)
def test_parameters_that_are_none_are_refused(start, matrix, given, message):
    with pytest.raises(ValueError, match=message):
        sj.HMM.from_parameters(start, matrix, sj.Poisson(), **given)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fixed_parts_stay_as_they_are_to_the_bit(dtype, tmp_path):
    X, _ = drawn()
    model = sj.HMM.from_parameters(
        [0.5, 0.25, 0.25], np.full((3, 3), 1 / 3), sj.Poisson(), lambdas=[2.5, 9.5, 20.0],
        fixed={"emissions": [1], "transitions": [0], "start": True}, dtype=dtype, batch_size=7,
        n_passes=4, random_state=0,
    )  # fmt: skip
    before = model.statistics_.emissions, model.transmat_, model.startprob_

    def assert_same(now):
        np.testing.assert_array_equal(now.statistics_.emissions[1], before[0][1])
        np.testing.assert_array_equal(now.transmat_[0], before[1][0])
        np.testing.assert_array_equal(now.startprob_, before[2])

    model.fit(X)
    assert_same(model)
    assert abs(model.lambdas_[2, 0] - 25.0) < 2.0  # what is not fixed is learned
    model.save(tmp_path / "model.sojourn")
    loaded = sj.load(tmp_path / "model.sojourn")
    assert_same(loaded.partial_fit(X, total_sequences=len(X)))
    assert_same(loaded.fit(X))


def test_all_emissions_fixed_are_those_of_the_model_before(tmp_path):
    X, _ = drawn()
    model = sj.HMM(3, sj.Poisson(), random_state=0).fit(X[:15])
    rates = model.lambdas_
    model.set_params(fixed="emissions", random_state=1).fit(X)
    np.testing.assert_array_equal(model.lambdas_, rates)
    model.set_params(fixed="transitions")
    matrix = model.transmat_
    model.partial_fit(X[:9], total_sequences=30)
    np.testing.assert_array_equal(model.transmat_, matrix)


def test_fixed_parts_that_are_not_given_are_refused():
    X, _ = drawn()
    with pytest.raises(ValueError, match="needs parameters to fix"):
        sj.HMM(3, sj.Poisson(), fixed="emissions").fit(X)
    for fixed, message in (
        ("tables", "a part other than"),
        ({"emissions": [7]}, "states that are not 0 to 2"),
        ({"start": [0]}, "start must be True"),
        (3, "is not one or several"),
    ):
        with pytest.raises(ValueError, match=message):
            sj.HMM(3, sj.Poisson(), fixed=fixed).fit(X)
    with pytest.raises(ValueError, match="draws the emissions"):
        sj.HMM(2, sj.Categorical(2), inference="blocked-gibbs", fixed="emissions").fit([[0, 1]])


def test_hmmlearn_s_way_to_give_parameters_says_what_to_do():
    model = sj.HMM(2, sj.Gaussian())
    for name in ("startprob_", "transmat_", "means_", "covars_"):
        with pytest.raises(AttributeError, match=r"HMM.from_parameters\(startprob, transmat, Gau"):
            setattr(model, name, np.ones(2))


def test_what_is_given_is_no_free_parameter():
    X, _ = drawn()
    plain = sj.HMM(3, sj.Poisson(), random_state=0, n_passes=2).fit(X)
    ordered = sj.HMM(
        3, sj.Poisson(), transition_constraints="left-right", random_state=0, n_passes=2
    ).fit(X)
    assert n_parameters(plain) - n_parameters(ordered) == (2 + 6) - (0 + 2)
    np.testing.assert_allclose(ordered.stationary_, [0.0, 0.0, 1.0])
    assert ordered.mean_first_passage(1, 0) == np.inf


def test_an_excursion_does_not_lose_the_state_that_a_left_right_model_comes_back_to():
    rng = np.random.default_rng(0)

    def recording(*stretches):
        return np.concatenate([rng.normal(mean, 1.0, (n, 10)) for mean, n in stretches])

    usual = [recording((0.0, 120), (3.0, 80), (-3.0, 40)) for _ in range(6)]
    # For some steps the second state seems to have come, which nothing leads back from.
    odd = recording((0.0, 80), (3.0, 5), (0.0, 80), (3.0, 60), (-3.0, 40))
    model = sj.HMM(3, sj.Gaussian(), transition_constraints="left-right", random_state=0)
    model.set_params(n_passes=10).fit(usual)
    assert model.score([odd]) >= model.decode([odd])[0] - 1e-3
    scores = [
        clone(model).set_params(dtype=dtype).fit([*usual, odd]).score([*usual, odd])
        for dtype in ("float32", "float64")
    ]
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)
