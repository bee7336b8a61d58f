"""Real data with known answers: what is embedded, and made-up files in the formats of the rest."""

import gzip
from functools import partial

import numpy as np
import pytest

from experiments import real
from experiments import real_likelihoods as likelihoods
from experiments.real_tables import PAGES, read_result, updated


def test_the_earthquakes_are_as_published():
    found, published = real.earthquakes(), real.PUBLISHED["earthquakes"]
    assert published["log_likelihood"] >= found["log_likelihood"] > -328.9
    np.testing.assert_allclose(found["rates"], published["rates"], rtol=0.005)
    most = found["prior_outweighed"]
    assert most["log_likelihood"] == pytest.approx(published["log_likelihood"], abs=0.01)
    np.testing.assert_allclose(most["rates"], published["rates"], atol=0.005)
    assert min(found["aic"], key=found["aic"].get) == "3"
    measured = read_result()["found"]["earthquakes"]
    np.testing.assert_allclose(found["rates"], measured["rates"], rtol=1e-3)


def test_what_was_measured_is_as_good_as_what_is_published():
    result = read_result()
    found, published = result["found"], result["published"]
    assert published == real.PUBLISHED
    for run in found["mocap6"]["runs"]:
        assert run["hamming_distance"] <= published["mocap6"]["hamming_distance"][1]
    assert found["chromatin"]["log_likelihood_per_step"] > found["chromatin"]["independent_marks"]
    assert found["words"]["many_to_one_accuracy"] > 0.6
    assert found.keys() >= likelihoods.PUBLISHED.keys()
    likelihoods.check(found)


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_of_the_gallery_are_those_of_the_result_file(name):
    page = (real.PICTURES / f"{name}.md").read_text()
    assert updated(page, name, read_result()) == page
    assert (real.PICTURES / f"{name}.png").stat().st_size > 10_000


def life_courses(rng):
    """Thirty people who leave home, marry and have children, in the order that R writes."""
    rows = []
    leave, marry, child = np.sort(rng.integers(15, 31, (3, 30)), axis=0)
    for age in range(15, 31):
        for i in range(30):
            married = "married" if age >= marry[i] else "single"
            children = "children" if age >= child[i] else "childless"
            left = "left home" if age >= leave[i] else "with parents"
            rows.append(f'{i + 1},{age},"{married}","{children}","{left}"')
    return "\n".join(['"id","age","married","children","left"', *rows]) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Small made-up files in the formats of the real ones."""
    folder = tmp_path_factory.mktemp("real")
    rng = np.random.default_rng(0)
    sensors, actions = ["seq_id,tstep_id,root.ty,lowerback.rx"], ["seq_id,tstep_id,action_name"]
    for sequence in range(2):
        x, names = np.zeros(2), ["Jump", "Twist", "Jump", "Squat"]
        for t in range(80):
            action = names[(t // 20 + sequence) % 4]
            goal = {"Jump": (9.0, 0.0), "Twist": (0.0, 9.0), "Squat": (-9.0, -9.0)}[action]
            x = 0.2 * x + 0.8 * np.array(goal) + rng.normal(0.0, 0.3, 2)
            sensors.append(f"{sequence},{t},{x[0]:.5f},{x[1]:.5f}")
            actions.append(f"{sequence},{t},{action}")
    (folder / "mocap").mkdir()
    (folder / "mocap/sensor_data_per_tstep.csv").write_text("\n".join(sensors) + "\n")
    (folder / "mocap/actions_per_tstep.csv").write_text("\n".join(actions) + "\n")
    state = np.repeat(rng.integers(2, size=40), 25)
    marks = (rng.random((1000, 3)) < np.array([[0.02, 0.02, 0.9], [0.9, 0.8, 0.02]])[state]) * 1
    text = "K562\tchrX\nA\tB\tC\n" + "\n".join("\t".join(map(str, row)) for row in marks)
    with gzip.open(folder / "K562_chrX.txt.gz", "wt") as file:
        file.write(text + "\n")
    rt = rng.normal(np.where(state[:439], 5.5, 6.4), 0.2)
    answers = np.where(rng.random(439) < 0.9, "cor", "inc")
    lines = [f'{x:.4f},"{answer}",0.5' for x, answer in zip(rt, answers, strict=True)]
    (folder / "speed.csv").write_text("\n".join(['"rt","corr","Pacc"', *lines]) + "\n")
    (folder / "biofam3c.csv").write_text(life_courses(rng))
    sentences = ["the cat sleeps", "a dog barks", "the dog sleeps"] * 40
    for name, text in (("train.txt", sentences), ("dev.txt", sentences[:9])):
        (folder / name).write_text("\n".join(text) + "\n")
    (folder / "train.upos").write_text("DET NOUN VERB\n" * 120)
    return folder


def test_files_in_these_formats_are_found_and_learned_from(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(real, "earthquakes", dict)  # tested above
    few = partial(likelihoods.biofam3c, n_passes=20, n_init=1)
    monkeypatch.setattr(likelihoods, "biofam3c", few)
    found = real.measure(folder, tmp_path, seeds=(0,), n_states=6)
    assert set(found) == {"earthquakes", "mocap6", "chromatin", "speed", "biofam3c", "words"}
    assert (found["mocap6"]["sequences"], found["mocap6"]["steps"]) == (2, 160)
    assert found["mocap6"]["actions"] == 3
    assert min(run["hamming_distance"] for run in found["mocap6"]["runs"]) < 0.1
    assert found["chromatin"]["marks"] == ["A", "B", "C"]
    assert found["chromatin"]["log_likelihood_per_step"] > found["chromatin"]["independent_marks"]
    assert found["speed"]["two_states"] > found["speed"]["one_state"] + 100.0
    assert found["speed"]["given_parameters"] < 0.0
    courses = found["biofam3c"]
    assert (courses["sequences"], courses["steps"]) == (30, 480)
    assert (np.tril(courses["transmat"], -1) == 0.0).all()
    assert courses["four_states"] > -480.0
    assert courses["bic"] == pytest.approx(25 * np.log(480) - 2 * courses["four_states"], abs=0.1)
    with pytest.raises(ValueError, match="is published"):
        likelihoods.check(found)  # these are made up
    assert found["words"]["many_to_one_accuracy"] > 0.95
    assert {path.name for path in tmp_path.iterdir()} == {
        "mocap6.png",
        "chromatin.png",
        "published.png",
    }


def test_life_courses_are_put_in_order(folder):
    X, lengths = likelihoods.read_life_courses(folder / "biofam3c.csv")
    assert lengths == [16] * 30
    by_age = X.reshape(30, 16, 3)
    assert (np.diff(by_age, axis=1) >= 0).all()  # nobody goes back
    shares = likelihoods._by_age(X, lengths, 1)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    quarter = 100.0 * by_age[:, 4:8, 1].mean()
    assert shares[1, 1] == pytest.approx((quarter + 1.0) / 102.0)


def test_files_that_do_not_fit_together_are_refused(folder, tmp_path):
    sensors = folder / "mocap/sensor_data_per_tstep.csv"
    short = tmp_path / "actions.csv"
    short.write_text("seq_id,tstep_id,action_name\n0,0,Jump\n")
    with pytest.raises(ValueError, match="has 160 steps"):
        real.read_recordings(sensors, short)
    with gzip.open(tmp_path / "a_chr1.txt.gz", "wt") as file:
        file.write("K562\tchr1\nA\tB\n0\t2\n")
    with pytest.raises(ValueError, match="expected 2 columns of zeros and ones"):
        real.read_marks(tmp_path / "a_chr1.txt.gz")
