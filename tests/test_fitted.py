"""What was learned as a value, and options as values: parameters, old names, old files."""

import inspect
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import sojourn as sj
from sojourn import persist
from sojourn.interop import read_hmmlearn, to_hmmlearn
from sojourn.model_selection import aic, bic
from sojourn.models.deprecated import OLD_NAMES
from sojourn.prediction import FittedModel, as_fitted
from sojourn.report.states import summarize
from tests.support.architecture import CONSTRUCTOR_PARAMETERS

X = [[0, 1, 0, 1], [1, 0, 1], [2, 2, 2, 0]]
COMMON = {"n_passes": 2, "batch_size": 2, "random_state": 3, "n_jobs": 1}
OLD_FILES = Path(__file__).parent / "old_files"

# Old spelling, new spelling.
SPELLINGS = [
    (sj.HDPHMM, {"alpha_prior": (2.0, 0.5)}, {"hdp": sj.HDPOptions(alpha_prior=(2.0, 0.5))}),
    (sj.HDPHMM, {"gamma_prior": (2.0, 0.5)}, {"hdp": sj.HDPOptions(gamma_prior=(2.0, 0.5))}),
    (
        sj.HDPHMM,
        {"second_order_tables": False},
        {"hdp": sj.HDPOptions(second_order_tables=False)},
    ),
    (sj.HDPHMM, {"sort_states": False}, {"hdp": sj.HDPOptions(sort_states=False)}),
    (sj.HDPHMM, {"normalize_rows": False}, {"hdp": sj.HDPOptions(normalize_rows=False)}),
    (sj.HDPHMM, {"occupancy": "fast"}, {"hdp": sj.HDPOptions(occupancy="fast")}),
    (
        sj.HDPHMM,
        {"exchangeable_tables": False},
        {"hdp": sj.HDPOptions(exchangeable_tables=False)},
    ),
    (
        sj.HMM,
        {"inference": "gibbs", "n_samples": 3, "burn_in": 2, "thin": 2, "n_chains": 2},
        {"inference": sj.Sampling("gibbs", n_samples=3, burn_in=2, thin=2, n_chains=2)},
    ),
    (
        sj.HDPHMM,
        {"inference": "beam", "n_samples": 3, "burn_in": 2},
        {"inference": sj.Sampling("beam", n_samples=3, burn_in=2)},
    ),
    (sj.HDPHMM, {"init_states": 2}, {"moves": sj.MoveSettings(init_states=2)}),
    (
        sj.HMM,
        {"moves": "auto", "init_states": 2},
        {"moves": sj.MoveSettings(init_states=2)},
    ),
    (
        sj.HMM,
        {"stickiness": "learned", "stickiness_prior": (2.0, 1.0)},
        {"stickiness": (2.0, 1.0)},
    ),
]
NAMES = [f"{case[0].__name__} {', '.join(case[1])}" for case in SPELLINGS]
spellings = pytest.mark.parametrize(("model", "old", "new"), SPELLINGS, ids=NAMES)


def make(model, **options):
    return model(4, sj.Categorical(3), **COMMON | options)


def old_spelled(model, **options):
    n = len(options.keys() & OLD_NAMES)
    with pytest.warns(FutureWarning) as caught:
        made = make(model, **options)
    assert len([entry for entry in caught if entry.category is FutureWarning]) == n
    assert {entry.filename for entry in caught} == {__file__}
    return made


def stored(path):
    """What a model file holds beside its arrays, and the names and shapes of those."""
    description, arrays = persist._unpack(path)
    return description, {name: (array.shape, array.dtype) for name, array in arrays.items()}


# ---- parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [sj.HMM, sj.HDPHMM])
def test_constructors_have_no_more_parameters_than_users_can_choose(model):
    parameters = [name for name in inspect.signature(model).parameters if name != "self"]
    assert len(parameters) <= CONSTRUCTOR_PARAMETERS
    assert sorted(parameters) == sorted(make(model).get_params(deep=False))
    assert not set(parameters) & set(OLD_NAMES)


@spellings
def test_old_names_warn_and_mean_the_same(model, old, new):
    before, now = old_spelled(model, **old), make(model, **new)
    for name, value in now.get_params(deep=False).items():
        if name != "emission":
            assert getattr(before, name) == value
    np.testing.assert_array_equal(before.fit(X).transmat_, now.fit(X).transmat_)


@spellings
def test_values_are_cloned_and_set_like_other_parameters(model, old, new):
    one = make(model, **new)
    for other in (clone(one), make(model).set_params(**one.get_params(deep=False))):
        for name, value in new.items():
            assert getattr(other, name) == value
            assert other.get_params()[name] == value


@spellings
def test_values_come_back_from_files_under_their_old_names(model, old, new, tmp_path):
    fitted = make(model, **new).fit(X)
    fitted.save(tmp_path / "m.sojourn")
    parameters = stored(tmp_path / "m.sojourn")[0]["parameters"]
    for name, value in old.items():
        assert parameters[name] == (list(value) if isinstance(value, tuple) else value)
    assert not set(parameters) & {"hdp"}
    same = sj.load(tmp_path / "m.sojourn")
    for name, value in new.items():
        assert getattr(same, name) == value
    assert same.score(X) == fitted.score(X)


def test_warnings_say_the_new_spelling():
    with pytest.warns(FutureWarning, match=r"moves=sj.MoveSettings\(init_states=...\)"):
        sj.HDPHMM(4, sj.Categorical(3), init_states=2)
    with pytest.warns(FutureWarning, match=r"hdp=sj.HDPOptions\(alpha_prior=...\)"):
        sj.HDPHMM(4, sj.Categorical(3), alpha_prior=(1.0, 1.0))


def test_old_names_go_with_new_values():
    some = sj.HDPOptions(sort_states=False)
    both = old_spelled(sj.HDPHMM, hdp=some, occupancy="fast")
    assert both.hdp == sj.HDPOptions(sort_states=False, occupancy="fast")
    assert old_spelled(sj.HMM, n_samples=7).inference == "scvi"  # had no effect before either


def test_names_that_never_were_are_refused():
    with pytest.raises(TypeError, match="alpha_prior"):
        sj.HMM(2, sj.Categorical(3), alpha_prior=(1.0, 1.0))
    with pytest.raises(TypeError, match="stickiness_prior"):
        sj.HDPHMM(2, sj.Categorical(3), stickiness_prior=(1.0, 1.0))
    with pytest.raises(TypeError, match="n_sates"):
        sj.HMM(n_sates=2, emission=sj.Categorical(3))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_small_start_needs_moves():
    with pytest.raises(ValueError, match="needs moves='auto'"):
        sj.HDPHMM(4, sj.Categorical(3), moves=None, init_states=2)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (sj.HMM, {"stickiness": (1.0, 0.0)}, "positive shape and rate"),
        (sj.HMM, {"stickiness": (1.0, 0.1), "inference": "svi"}, "needs inference='scvi'"),
        (sj.HDPHMM, {"stickiness": (1.0, 0.1)}, "a finite number"),
        (sj.HMM, {"inference": sj.Sampling("beam")}, "is not one of"),
        (sj.HDPHMM, {"inference": sj.Sampling("scvi")}, "is not one of"),
        (sj.HMM, {"inference": sj.Sampling("gibbs", n_samples=0)}, "n_samples must be a whole"),
    ],
)
def test_bad_values_are_refused(model, options, message):
    with pytest.raises(ValueError, match=message):
        make(model, **options).fit(X)


# ---- old files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters", "score"),
    [
        (
            "hdp_hmm",
            {
                "hdp": sj.HDPOptions(alpha_prior=(2.0, 0.5), sort_states=False, occupancy="fast"),
                "moves": sj.MoveSettings(init_states=2),
                "tuned": ("steps",),
            },
            -11.678962617745517,
        ),
        ("hmm", {"stickiness": (2.0, 1.0), "moves": None}, -10.038614588723625),
        (
            "gibbs",
            {"inference": sj.Sampling("gibbs", n_samples=3, burn_in=2, n_chains=2)},
            -9.593560979746606,
        ),
    ],
)
def test_files_written_before_are_read_and_written_alike(name, parameters, score, tmp_path):
    path = OLD_FILES / f"{name}.safetensors"
    model = sj.load(path)
    for parameter, value in parameters.items():
        assert getattr(model, parameter) == value
    assert model.score(X) == pytest.approx(score, rel=1e-5)
    model.save(tmp_path / "again.sojourn")
    (then, arrays), (now, same_arrays) = stored(path), stored(tmp_path / "again.sojourn")
    # What came later, and what is an argument of `fit` now.
    assert (now.pop("converged"), now["parameters"].pop("tol")) == (None, 1e-6)
    assert [now["parameters"].pop(name) for name in ("tile_length", "buffer")] == ["auto"] * 2
    later = ("transition_constraints", "start_constraints", "fixed")
    assert [now["parameters"].pop(name) for name in later] == [None] * 3
    assert then["parameters"].pop("track_bound") is None
    assert (now, same_arrays) == (then, arrays)
    assert list(now["parameters"]) == list(then["parameters"])


def test_training_goes_on_from_a_checkpoint_written_before(tmp_path):
    name = "checkpoint-00002-000000000004.sojourn"
    shutil.copy(OLD_FILES / "checkpoint.safetensors", tmp_path / name)
    options = {
        "hdp": sj.HDPOptions(gamma_prior=(2.0, 0.5)),
        "moves": sj.MoveSettings(init_states=2),
    }
    model = make(sj.HDPHMM, **options).fit(X, checkpoint=tmp_path, resume=True)
    assert model.score(X) == pytest.approx(-11.259956232947964, rel=1e-5)
    shutil.copy(OLD_FILES / "checkpoint.safetensors", tmp_path / name)
    with pytest.raises(ValueError, match="gamma_prior was"):
        make(sj.HDPHMM, moves=options["moves"]).fit(X, checkpoint=tmp_path, resume=True)


# ---- what was learned ---------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[sj.HMM, sj.HDPHMM])
def model(request):
    return make(request.param).fit(X, validation=X)


def test_a_fitted_model_predicts_as_its_estimator(model):
    fitted = model.fitted_
    assert isinstance(fitted, FittedModel)
    assert fitted.score(X) == model.score(X)
    np.testing.assert_array_equal(fitted.log_likelihood(X), model.log_likelihood(X))
    assert fitted.decode(X)[0] == model.decode(X)[0]
    for a, b in zip(fitted.predict_proba(X), model.predict_proba(X), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(fitted.transmat, model.transmat_)
    np.testing.assert_array_equal(fitted.parameters["emissionprob_"], model.emissionprob_)
    drawn, same = fitted.sample(3, 5)[0], model.sample(3, 5)[0]
    np.testing.assert_array_equal(drawn.values, same.values)


def test_what_is_made_of_a_model_takes_both(model, tmp_path):
    fitted = model.fitted_
    assert summarize(fitted) == summarize(model)
    assert sj.match_states(fitted, model, X).agreement == 1.0
    pages = [
        sj.write_report(either, tmp_path / f"{n}.html", X).read_text()
        for n, either in enumerate((model, fitted))
    ]
    assert pages[0] == pages[1]
    np.testing.assert_array_equal(to_hmmlearn(fitted).transmat_, to_hmmlearn(model).transmat_)
    if isinstance(model, sj.HMM):
        assert (aic(fitted, X), bic(fitted, X)) == (model.aic(X), model.bic(X))


def test_a_fitted_model_is_written_and_read_without_an_estimator(model, tmp_path):
    path = tmp_path / "m.sojourn"
    persist.save(model.fitted_, path)
    fitted, training = persist.read(path)
    assert training is None
    assert fitted.score(X) == model.score(X)
    assert fitted.estimator.name == type(model).__name__
    persist.save(model, tmp_path / "same.sojourn")
    assert stored(tmp_path / "same.sojourn") == stored(path)


def test_parameters_set_after_fit_are_those_that_count(model):
    copy = clone(model).fit(X)
    copy.set_params(device="reference", n_jobs=2, n_passes=7)
    assert copy.fitted_.compute.device == "reference"
    assert copy.fitted_.estimator.parameters["n_passes"] == 7
    assert copy.score(X) == pytest.approx(model.score(X), rel=1e-5)


def test_a_fitted_model_of_hmmlearn_needs_no_estimator(tmp_path):
    hmm = pytest.importorskip("hmmlearn.hmm")
    theirs = hmm.PoissonHMM(2, random_state=0).fit(np.array([[1], [9], [8], [2], [1]]))
    fitted = read_hmmlearn(theirs)
    np.testing.assert_allclose(fitted.transmat, theirs.transmat_)
    assert sj.write_report(fitted, tmp_path / "r.html").exists()
    persist.save(fitted, tmp_path / "m.sojourn")
    np.testing.assert_allclose(sj.load(tmp_path / "m.sojourn").transmat_, theirs.transmat_)


def test_what_is_no_fitted_model_is_refused(model, tmp_path):
    assert as_fitted(model) is model.fitted_ is as_fitted(model.fitted_)
    with pytest.raises(TypeError, match="expected a fitted model, got list"):
        as_fitted([1, 2])
    with pytest.raises(NotFittedError):
        as_fitted(clone(model))
    for refused in (
        lambda: persist.save(clone(model), tmp_path / "m.sojourn"),
        lambda: summarize(clone(model)),
        lambda: sj.match_states(clone(model), model, X),
        lambda: sj.write_report(clone(model), tmp_path / "r.html"),
        lambda: clone(model).transmat_,
        lambda: clone(model).history_,
    ):
        with pytest.raises(NotFittedError):
            refused()
    assert not list(tmp_path.iterdir())


def test_attributes_of_the_posterior_cannot_be_set(model):
    with pytest.raises(AttributeError, match="cannot be set"):
        model.transmat_ = np.eye(4)
    model.provenance_ = {"data": "mine"}
    assert json.dumps(model.fitted_.provenance) == '{"data": "mine"}'
    model.provenance_ = {}
