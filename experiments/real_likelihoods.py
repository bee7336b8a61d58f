"""Real data on which other packages publish likelihoods: reaction times, and life courses.

The files are written by R, see docs/gallery/published.md.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

import sojourn as sj

PUBLISHED: dict[str, dict[str, Any]] = {
    "speed": {
        "one_state": -305.33,
        "two_states": -88.73,
        "given_parameters": -296.115107,
        "source": "depmixS4: its test1speed.R, and I. Visser and M. Speekenbrink, Journal of "
        "Statistical Software 36(7), 2010",
    },
    "biofam3c": {
        "four_states": -16854.163,
        "bic": 33967.66,
        "source": "seqHMM: its manual; S. Helske and J. Helske, Journal of Statistical Software "
        "88(3), 2019",
    },
}
"""What others have found: log likelihoods, and a BIC."""

NO_PRIOR = {"start_concentration": 1e-9, "transition_concentration": 1e-9}
WEIGHT = 1e5
"""Times that every sequence counts, so that what is learned is the maximum of the likelihood."""

SPEED_SERIES = (168, 134, 137)  # as depmixS4 gives them: the file has no column for it

CHANNELS = {
    "married": ["single", "married", "divorced"],
    "children": ["childless", "children"],
    "left": ["with parents", "left home"],
}
# The start that seqHMM's manual gives: probabilities, what is added to the percentages of each
# quarter of the ages, and the first state's share.
LIFE_START = (0.90, 0.07, 0.02, 0.01)
LIFE_TRANSITIONS = (
    (0.90, 0.06, 0.03, 0.01),
    (0.00, 0.90, 0.07, 0.03),
    (0.00, 0.00, 0.90, 0.10),
    (0.00, 0.00, 0.00, 1.00),
)
LIFE_ADDED = (1.0, 1.0, 0.1)


# ---- reading ------------------------------------------------------------------------------------


def read_speed(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read reaction times, and whether answers were correct."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    correct = {"cor": 1, "inc": 0, "1": 1, "0": 0}
    return (
        np.array([float(row["rt"]) for row in rows]),
        np.array([correct[row["corr"]] for row in rows]),
    )


def read_life_courses(path: Path) -> tuple[np.ndarray, list[int]]:
    """Read one row per person and age, in any order; return symbols (T, 3) and lengths."""
    with path.open() as file:
        rows = sorted(csv.DictReader(file), key=lambda row: (int(row["id"]), int(row["age"])))
    symbols = [[names.index(row[name]) for name, names in CHANNELS.items()] for row in rows]
    _, lengths = np.unique([int(row["id"]) for row in rows], return_counts=True)
    return np.array(symbols), lengths.tolist()


# ---- learning -----------------------------------------------------------------------------------


def speed(rt: np.ndarray, correct: np.ndarray) -> dict[str, Any]:
    """Fit Gaussian states to reaction times; score both columns at depmixS4's parameters."""
    most, posterior = {}, {}
    for k, name in ((1, "one_state"), (2, "two_states")):
        point = sj.HMM(k, sj.Gaussian(), inference="em", tol=1e-9, random_state=0, **NO_PRIOR)
        most[name] = round(point.fit(rt[:, None]).score(rt[:, None]), 3)
        model = sj.HMM(k, sj.Gaussian(), random_state=0).fit(rt[:, None])
        posterior[name] = round(model.score(rt[:, None]), 3)
    given = sj.HMM.from_parameters(
        [0.0, 1.0],
        [[0.899, 0.101], [0.084, 0.916]],
        sj.Product(sj.Gaussian(), sj.Categorical(2), columns=[1, 1]),
        means=[[5.52], [6.39]],
        covars=[[[0.202**2]], [[0.24**2]]],
        emissionprob=[[0.472, 0.528], [0.098, 0.902]],
        weight=1e12,
    )
    lengths = SPEED_SERIES if sum(SPEED_SERIES) == len(rt) else None
    return {
        "steps": len(rt),
        **most,
        "given_parameters": round(given.score(np.column_stack([rt, correct]), lengths), 6),
        "posterior": posterior,
    }


def biofam3c(
    X: np.ndarray, lengths: list[int], n_passes: int = 300, n_init: int = 20
) -> tuple[dict[str, Any], Any]:
    """Fit four states, none of which goes back, from seqHMM's start and from random ones.

    Returns the likelihoods, and the model from seqHMM's start.
    """
    family = sj.Product(*(sj.Categorical(len(names)) for names in CHANNELS.values()))
    model = sj.HMM.from_parameters(
        LIFE_START,
        LIFE_TRANSITIONS,
        family,
        batch_size=None,
        n_passes=n_passes,
        **{f"part{c}_emissionprob": _by_age(X, lengths, c) for c in range(len(CHANNELS))},
    )
    model.fit(X, lengths, sample_weight=np.full(len(lengths), WEIGHT))
    free = sj.HMM(
        4, family, transition_constraints="upper-triangular", n_init=n_init, random_state=0
    )
    result = {
        "sequences": len(lengths),
        "steps": len(X),
        "four_states": round(model.score(X, lengths), 3),
        "bic": round(model.bic(X, lengths), 2),
        "startprob": model.startprob_.round(3).tolist(),
        "transmat": model.transmat_.round(3).tolist(),
        "posterior": {"four_states": round(free.fit(X, lengths).score(X, lengths), 3)},
    }
    return result, model


def _by_age(X: np.ndarray, lengths: list[int], channel: int) -> np.ndarray:
    """Return shares of the symbols in each quarter of the ages, (4, V)."""
    place = np.concatenate([4 * np.arange(n) // n for n in lengths])
    size = len(list(CHANNELS.values())[channel])
    counts = np.array([np.bincount(X[place == q, channel], minlength=size) for q in range(4)])
    per_cent = 100.0 * counts / counts.sum(axis=1, keepdims=True) + LIFE_ADDED[channel]
    return per_cent / per_cent.sum(axis=1, keepdims=True)


# ---- as published -------------------------------------------------------------------------------


def check(found: dict[str, Any]) -> None:
    """Raise an error where what was found is not what is published, by more than its last digit."""
    for name in PUBLISHED.keys() & found.keys():
        for key, known in PUBLISHED[name].items():
            if isinstance(known, str):
                continue
            digits = len(str(known).partition(".")[2])
            if abs(found[name][key] - known) > 1.5 * 10.0**-digits:
                raise ValueError(f"{name}, {key}: {found[name][key]}, but {known} is published")
