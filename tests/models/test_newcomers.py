"""What those write who try something for the first time."""

import copy
import pickle
import sys

import numpy as np
import pytest

import sojourn as sj

QUICK = {"random_state": 0, "n_passes": 2, "n_init": 1}
X = np.random.default_rng(0).normal(size=(30, 1))


def test_lines_of_text_as_symbols_are_noticed():
    model = sj.HMM(2, sj.Categorical(), **QUICK)
    with pytest.warns(sj.FitWarning, match=r"such as 'the cat sleeps'.*line\.split\(\) for line"):
        model.fit(["the cat sleeps", "a dog barks"] * 5)


@pytest.mark.parametrize("stickiness", ["learn", -1.0, np.nan, None])
def test_stickiness_mentions_learned(stickiness):
    with pytest.raises(ValueError, match='neither a finite number from 0 nor "learned"'):
        sj.HMM(2, sj.Gaussian(), stickiness=stickiness, **QUICK).fit(X)


def test_nothing_but_public_names_is_visible():
    assert {name for name in dir(sj) if not name.startswith("__")} == {*sj.__all__, "plot"}
    for name in ("Any", "TYPE_CHECKING", "import_module", "get_data"):
        assert not hasattr(sj, name)


def test_one_series_has_no_folds_of_sequences():
    model = sj.HMM(2, sj.Gaussian(), **QUICK)
    with pytest.raises(ValueError, match='hold_out="entries"'):
        sj.select_n_states(model, X, n_states=[1], hold_out="sequences")


def test_from_hmmlearn_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "hmmlearn", None)
    with pytest.raises(ImportError, match="pip install hmmlearn"):
        sj.from_hmmlearn(object())


def test_more_states_than_steps_warning_and_number_agree():
    model = sj.HMM(60, sj.Gaussian(), **QUICK)
    with pytest.warns(sj.FitWarning, match="would be enough") as caught:
        model.fit(X)
    said = [str(entry.message) for entry in caught if "would be enough" in str(entry.message)]
    assert said[0].endswith(f"n_states={model.n_states_} would be enough")
    assert model.n_states_ <= 30


def test_a_model_without_a_family_says_which_there_are():
    for kind in (sj.HMM, sj.HDPHMM):
        with pytest.raises(TypeError, match=r"needs an emission family: for numbers .*Gaussian"):
            kind(3)
    assert copy.deepcopy(sj.HMM(3, sj.Gaussian())).n_states == 3
    assert pickle.loads(pickle.dumps(sj.HMM(3, emission=sj.Poisson()))).n_states == 3


def test_measurements_that_are_taken_for_symbols_are_told_of():
    with pytest.raises(ValueError, match=r"0\.5 is not a symbol.*there is Gaussian"):
        sj.HMM(2, sj.Categorical()).fit([0.5, 1.0])


def test_the_way_to_open_a_table_is_in_the_error(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("day;temp\n" + "".join(f"{t};{t % 7},5\n" for t in range(40)))
    model = sj.HMM(2, sj.Gaussian(), n_init=1, n_passes=3)
    with pytest.raises(sj.DataFileError, match="reads a column as one sequence") as caught:
        model.fit(path)
    way = str(caught.value).split("; ")[-1].split(" reads")[0]
    source = eval(way.replace("'t.csv'", repr(str(path))), {"sj": sj})
    assert model.fit(source).means_.shape == (2, 1)
