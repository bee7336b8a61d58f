"""What labels of some sequences are worth, where the others have none.

python -m experiments.labels --treebank FOLDER --mocap FOLDER

The folder of the treebank has words and universal part-of-speech tags: train.txt, train.upos, and
so for dev and test; tags of 0, 10, 100 and 1,000 sentences are known, and those of the test set are
to be found.  The folder of the recordings has sensor_data_per_tstep.csv and
actions_per_tstep.csv; the actions of one recording are known, and those of the others are to be
found.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sojourn as sj
from benchmarks.results import write_result
from experiments.corpus import read_corpus

SENTENCES = (0, 10, 100, 1000)
SEEDS = 3
FULL: dict[str, Any] = {"batch_size": None, "forgetting_rate": 0.0, "n_passes": 3, "n_init": 1}
"""Full batches: a minibatch would have a labelled sentence now and then, and forget it."""

Found = dict[str, list[float]]


def treebank(folder: Path) -> dict[str, Any]:
    """Find the tags of the test set with tags of some sentences."""
    vocabulary, train, test = read_corpus(folder)
    tags = {part: _lines(folder / f"{part}.upos") for part in ("train", "dev", "test")}
    known, truth = tags["train"] + tags["dev"], [own.tolist() for own in tags["test"]]
    names = sorted({str(tag) for own in known for tag in own})
    if [len(own) for own in known] != train.lengths.tolist():
        raise ValueError("there is not one tag for every word")
    rows: dict[str, Found] = {str(n): {} for n in SENTENCES}
    for seed in range(SEEDS):
        plain = sj.HMM(17, sj.Categorical(len(vocabulary)), random_state=seed).fit(train)
        agreement = sj.match_states(plain, truth, test).agreement
        rows["0"].setdefault("matched_by_the_test_set", []).append(agreement)
        order = np.random.default_rng(seed).permutation(len(known))
        for n in SENTENCES[1:]:
            some = order[:n]
            y: list[Any] = [[None] * len(own) for own in known]
            for number in some:
                y[number] = known[number].tolist()
            alone = [y[number] for number in some]
            named = sj.match_states(plain, alone, train.take(some)).states
            model = sj.HMM(17, plain.emission_, state_names=names, random_state=seed, **FULL)
            weights = np.ones(len(known))
            weights[some] = len(known) / n
            found = {
                "named_afterwards": _named(
                    plain, named, sorted({tag for own in alone for tag in own}), test, truth
                ),
                "labelled_alone": _accuracy(model.fit(train.take(some), y=alone), test, truth),
                "with_the_others": _accuracy(model.fit(train, y=y), test, truth),
                "with_the_others_weighted": _accuracy(
                    model.fit(train, y=y, sample_weight=weights), test, truth
                ),
            }
            for name, value in found.items():
                rows[str(n)].setdefault(name, []).append(value)
            print(seed, n, {name: round(value, 3) for name, value in found.items()}, flush=True)
    sizes = {"sentences": len(train), "words": train.n_steps, "held_out_words": test.n_steps}
    table = {n: _summary(own) for n, own in rows.items()}
    return {"data": sizes | {"tags": len(names)}, "seeds": SEEDS, "accuracy": table}


def mocap(folder: Path) -> dict[str, Any]:
    """Find the actions of five recordings with those of the sixth, for each of the six.

    Actions that the sixth has not have no name, and their states are matched with them one to one.
    """
    X, actions = _recordings(folder)
    names = {str(name) for own in actions for name in own}
    found: Found = {}
    for shown in range(len(X)):
        others = [X[n] for n in range(len(X)) if n != shown]
        truth = [own.tolist() for n, own in enumerate(actions) if n != shown]
        seen = sorted(set(actions[shown].tolist()))
        y = [own.tolist() if n == shown else [None] * len(own) for n, own in enumerate(actions)]
        common = {"random_state": shown, **FULL, "n_passes": 50}
        plain = sj.HMM(len(names), sj.Gaussian(), **common).fit(X)
        anyhow = sj.match_states(plain, truth, others).agreement
        order = _by_name(plain, [X[shown]], [y[shown]])
        plain.relabel(order).fitted_.state_names = tuple(seen)
        model = sj.HMM(len(names), plain.emission_, state_names=seen, **common)
        from_start = model.fit(X, y=y).fitted_
        alone = sj.HMM(len(names), plain.emission_, state_names=seen, **common)
        alone.fit([X[shown]], y=[y[shown]])
        after = model.set_params(init=plain.statistics_).fit(X, y=y)
        for name, agreement in (
            ("no_labels_matched_by_the_truth", anyhow),
            ("no_labels_named_afterwards", sj.match_states(plain, truth, others).agreement),
            ("labelled_alone", sj.match_states(alone, truth, others).agreement),
            ("labels_from_the_start", sj.match_states(from_start, truth, others).agreement),
            ("labels_after_a_fit_without", sj.match_states(after, truth, others).agreement),
        ):
            found.setdefault(name, []).append(1.0 - agreement)
        print(shown, {name: round(values[-1], 3) for name, values in found.items()}, flush=True)
    sizes = {"recordings": len(X), "steps": sum(map(len, X)), "actions": len(names)}
    return {"data": sizes, "hamming_distance": _summary(found)}


def _by_name(model: Any, X: list[Any], labels: list[Any]) -> list[int]:
    """Return the states that match names, in the order of these, and then the others."""
    states = sj.match_states(model, labels, X).states
    n_names = len(set(labels[0]))
    order = [int(np.flatnonzero(states == name)[0]) for name in range(n_names)]
    return order + [k for k in range(len(states)) if k not in order]


def _named(model: Any, named: NDArray[Any], names: list[str], test: Any, truth: list[Any]) -> float:
    """Accuracy of a model without labels whose states were given names by some sentences."""
    table = np.array([*names, "no name"])
    path = table[named[model.predict(test).values]]
    return float((path == np.concatenate(truth)).mean())


def _lines(path: Path) -> list[NDArray[Any]]:
    return [np.array(line.split()) for line in path.read_text(encoding="utf-8").splitlines()]


def _recordings(folder: Path) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    sensors = np.genfromtxt(folder / "sensor_data_per_tstep.csv", delimiter=",", skip_header=1)
    table = (folder / "actions_per_tstep.csv").read_text(encoding="utf-8").splitlines()[1:]
    names = np.array([line.split(",")[2] for line in table])
    numbers = sensors[:, 0].astype(int)
    parts = [np.flatnonzero(numbers == n) for n in np.unique(numbers)]
    return [sensors[part, 2:] for part in parts], [names[part] for part in parts]


def _accuracy(model: Any, test: Any, truth: list[Any]) -> float:
    return float((model.predict(test, names=True).values == np.concatenate(truth)).mean())


def _summary(found: Found) -> dict[str, Any]:
    return {
        name: {"mean": round(float(np.mean(own)), 4), "spread": round(float(np.std(own)), 4)}
        for name, own in found.items()
        if own
    }


def main() -> None:
    """Run what data are given for, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--treebank", type=Path, help="by default the last result is kept")
    parser.add_argument("--mocap", type=Path, help="by default the last result is kept")
    given = parser.parse_args()
    out = Path(__file__).parent / "results" / "labels.json"
    before = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    write_result(
        out,
        {
            "command": "python -m experiments.labels --treebank FOLDER --mocap FOLDER",
            "treebank": treebank(given.treebank) if given.treebank else before["treebank"],
            "mocap": mocap(given.mocap) if given.mocap else before["mocap"],
        },
    )


if __name__ == "__main__":
    main()
