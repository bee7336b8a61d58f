"""Real data with known answers: what is learned from them, beside what is published.

nice -n 19 python -m experiments.real DATA      (make real DATA=folder)

The earthquakes are part of the package.  The other data have licences of their own: DATA is a
folder that has some of them, each in the files that its authors publish, in any folder below:

    sensor_data_per_tstep.csv,
    actions_per_tstep.csv           mocap6, github.com/michaelchughes/mocap6dataset
    *_chr*.txt.gz                   binarised marks, as ChromHMM writes them
    speed.csv                       depmixS4's reaction times, in the columns rt and corr
    biofam3c.csv                    seqHMM's life courses: id, age, married, children, left
    train.txt, dev.txt, train.upos  sentences, and the tags of their words
"""

from __future__ import annotations

import csv
import gzip
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import sojourn as sj
from benchmarks.results import write_result
from experiments import real_likelihoods as likelihoods
from sojourn.demo import EARTHQUAKES

RESULTS = Path(__file__).parent / "results" / "real.json"
PICTURES = Path(__file__).parent.parent / "docs" / "gallery"

PUBLISHED: dict[str, dict[str, Any]] = {
    "earthquakes": {
        "log_likelihood": -328.5275,
        "rates": [13.134, 19.713, 29.710],
        "source": "W. Zucchini and I. L. MacDonald, Hidden Markov Models for Time Series, 2009",
    },
    "mocap6": {
        "hamming_distance": [0.3, 0.4],
        "source": "Fox, Hughes, Sudderth and Jordan, Annals of Applied Statistics, 2014",
        "bnpy": {"hamming_distance": 0.41, "seconds": 62},
    },
    **likelihoods.PUBLISHED,
}
"""What others have found."""


class Recordings(NamedTuple):
    """Numbers with a label for every step.

    Attributes
    ----------
    X : (T, D) array
    lengths : list of int
    labels : (T,) integer array
    columns, actions : list of str
        Names of the columns, and of the labels.
    """

    X: np.ndarray
    lengths: list[int]
    labels: np.ndarray
    columns: list[str]
    actions: list[str]


# ---- reading ------------------------------------------------------------------------------------


def find(folder: Path, pattern: str) -> Path | None:
    """Return the first file of a name in a folder or below."""
    return next(iter(sorted(folder.rglob(pattern))), None)


def read_recordings(sensors: Path, actions: Path) -> Recordings:
    """Read mocap6: numbers and actions by sequence and step."""
    with sensors.open() as file:
        head, *rows = csv.reader(file)
    with actions.open() as file:
        labels = [row["action_name"] for row in csv.DictReader(file)]
    if len(labels) != len(rows):
        raise ValueError(f"{sensors} has {len(rows)} steps, {actions} has {len(labels)}")
    ids = [row[head.index("seq_id")] for row in rows]
    used = [i for i, name in enumerate(head) if name not in ("seq_id", "tstep_id")]
    X = np.array([[float(row[i]) for i in used] for row in rows])
    starts = [i for i, one in enumerate(ids) if i == 0 or one != ids[i - 1]]
    names, numbers = np.unique(labels, return_inverse=True)
    lengths = np.diff([*starts, len(ids)]).tolist()
    return Recordings(X, lengths, numbers, [head[i] for i in used], names.tolist())


def read_marks(path: Path) -> tuple[list[str], np.ndarray]:
    """Read binarised marks: a line with cell and chromosome, names, then zeros and ones."""
    with gzip.open(path, "rt") as file:
        file.readline()
        names = file.readline().split()
        table = np.loadtxt(file, dtype=np.int8, ndmin=2)
    if table.shape[1] != len(names) or not np.isin(table, (0, 1)).all():
        raise ValueError(f"{path}: expected {len(names)} columns of zeros and ones")
    return names, table


# ---- learning -----------------------------------------------------------------------------------


def earthquakes() -> dict[str, Any]:
    """Three Poisson states of the earthquakes; posterior means, and the prior outweighed."""
    model = sj.HMM(3, sj.Poisson(), random_state=0).fit(EARTHQUAKES)
    most = sj.HMM(3, sj.Poisson(), batch_size=None, init=model.statistics_, n_passes=50)
    most.fit([EARTHQUAKES] * 100)
    aic = {str(k): sj.HMM(k, sj.Poisson(), random_state=0).fit(EARTHQUAKES).aic(EARTHQUAKES)
           for k in (1, 2, 3, 4)}  # fmt: skip
    return {
        "steps": len(EARTHQUAKES),
        "log_likelihood": round(model.score(EARTHQUAKES), 4),
        "rates": np.sort(model.lambdas_[:, 0]).round(3).tolist(),
        "prior_outweighed": {
            "log_likelihood": round(most.score(EARTHQUAKES), 4),
            "rates": np.sort(most.lambdas_[:, 0]).round(3).tolist(),
        },
        "aic": {k: round(value, 2) for k, value in aic.items()},
    }


def mocap6(data: Recordings, seeds: tuple[int, ...], n_states: int) -> tuple[dict[str, Any], Any]:
    """Label recordings without labels; return the Hamming distances, and the first model."""
    runs, models = [], []
    for seed in seeds:
        begin = time.perf_counter()
        model = sj.HDPHMM(n_states, sj.AutoregressiveGaussian(), random_state=seed)
        model.fit(data.X, data.lengths)
        seconds = time.perf_counter() - begin
        path = model.predict(data.X, data.lengths)
        runs.append(
            {
                "seed": seed,
                "states": model.n_states_,
                "hamming_distance": round(1.0 - sj.match_states(path, data.labels).agreement, 4),
                "seconds": round(seconds, 1),
            }
        )
        models.append(model)
    result = {
        "sequences": len(data.lengths),
        "steps": len(data.X),
        "columns": len(data.columns),
        "actions": len(data.actions),
        "model": f"HDPHMM({n_states}, AutoregressiveGaussian())",
        "runs": runs,
    }
    return result, models[0]


def chromatin(marks: list[str], table: np.ndarray, n_states: int) -> tuple[dict[str, Any], Any]:
    """Find combinations of marks along a chromosome, one very long sequence."""
    begin = time.perf_counter()
    model = sj.HMM(n_states, sj.Bernoulli(), random_state=0).fit(table)
    seconds = time.perf_counter() - begin
    order = np.argsort(-model.state_shares_)
    result = {
        "steps": len(table),
        "marks": marks,
        "model": f"HMM({n_states}, Bernoulli())",
        "log_likelihood_per_step": round(model.score(table, per_step=True), 5),
        "independent_marks": round(_independent(table), 5),
        "seconds": round(seconds, 1),
        "states": [
            {
                "share": round(float(model.state_shares_[k]), 4),
                "bins_in_a_row": round(float(model.dwell_times_[k]), 1),
                "marks": _likely(marks, model.emissionprob_[k]),
            }
            for k in order
        ],
    }
    return result, model


def _likely(marks: list[str], probabilities: np.ndarray) -> list[str]:
    """Return the likeliest marks of a state, at most four."""
    order = np.argsort(-probabilities, kind="stable")[:4]
    return [marks[d] for d in order if probabilities[d] > 0.1]


def _independent(table: np.ndarray) -> float:
    """Return the log likelihood per step if marks and steps are independent."""
    p = np.clip(table.mean(axis=0), 1e-12, 1.0 - 1e-12)
    return float((p * np.log(p) + (1 - p) * np.log1p(-p)).sum())


def words(train: Path, dev: Path, tags: Path, n_states: int) -> dict[str, Any]:
    """Learn word classes, and compare them with parts of speech."""
    sentences, held_out, true = (
        [line.split() for line in path.read_text().lower().splitlines() if line.strip()]
        for path in (train, dev, tags)
    )
    vocabulary = sj.Vocabulary.from_sequences(sentences, min_count=3)
    model = sj.HDPHMM(n_states, sj.Categorical(vocabulary=vocabulary), random_state=0)
    model.fit(sentences, validation=held_out)
    path = np.concatenate(model.predict(sentences))
    numbers = np.unique(np.concatenate(true), return_inverse=True)[1]
    if len(numbers) != len(path):
        raise ValueError(f"{train} has {len(path)} words, {tags} has {len(numbers)} tags")
    overlaps = sj.match_states(path, numbers).overlaps
    return {
        "sentences": len(sentences),
        "words": len(path),
        "model": f"HDPHMM({n_states}, Categorical())",
        "held_out_score": round(model.history_[-1]["score"], 4),
        "many_to_one_accuracy": round(float(overlaps.max(axis=1).sum() / len(path)), 4),
    }


def measure(
    folder: Path, pictures: Path | None, seeds: tuple[int, ...] = (0, 1, 2), n_states: int = 20
) -> dict[str, Any]:
    """Learn from all data that there are, with at most `n_states`; draw a picture of each."""
    from experiments import real_pictures as draw

    found: dict[str, Any] = {"earthquakes": earthquakes()}
    sensors, actions = (
        find(folder, f"{name}_per_tstep.csv") for name in ("sensor_data", "actions")
    )
    if sensors is not None and actions is not None:
        recordings = read_recordings(sensors, actions)
        found["mocap6"], model = mocap6(recordings, seeds, n_states)
        if pictures is not None:
            draw.recordings(model, recordings, pictures / "mocap6.png")
    marks = find(folder, "*_chr*.txt.gz")
    if marks is not None:
        names, table = read_marks(marks)
        found["chromatin"], model = chromatin(names, table, n_states // 2)
        if pictures is not None:
            draw.marks(model, names, pictures / "chromatin.png")
    reactions = find(folder, "speed.csv")
    if reactions is not None:
        found["speed"] = likelihoods.speed(*likelihoods.read_speed(reactions))
    courses = find(folder, "biofam3c.csv")
    if courses is not None:
        lives = likelihoods.read_life_courses(courses)
        found["biofam3c"], model = likelihoods.biofam3c(*lives)
        if pictures is not None:
            draw.life_courses(model, *lives, pictures / "published.png")
    files = [find(folder, name) for name in ("train.txt", "dev.txt", "train.upos")]
    if None not in files:
        found["words"] = words(*[path for path in files if path is not None], n_states)
    return found


def main() -> None:
    """Learn from the data of a folder, and write the results and the pages about them."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    from experiments.real_tables import read_result, write_pages

    known = read_result()["found"] if RESULTS.exists() else {}
    found = measure(Path(sys.argv[1]), PICTURES)
    for result in found.values():
        result["date"] = date.today().isoformat()
    write_result(
        RESULTS,
        {
            "command": "python -m experiments.real DATA",
            "published": PUBLISHED,
            "found": known | found,  # data that are not in the folder keep what they had
        },
    )
    write_pages()
    for name, result in found.items():
        print(name, result, flush=True)
    likelihoods.check(found)


if __name__ == "__main__":
    main()
