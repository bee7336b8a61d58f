"""Pictures of what was learned from real data, for the gallery."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import sojourn as sj
from experiments.real_likelihoods import CHANNELS
from sojourn.report.colors import PALETTE
from sojourn.report.layout import stays

if TYPE_CHECKING:
    from experiments.real import Recordings


def recordings(model: Any, data: Recordings, path: Path) -> None:
    """Draw one recording: its columns, the actions as labelled, and the states as found."""
    plt = _pyplot()
    n = data.lengths[0]
    found = model.predict(data.X, data.lengths)
    matching = sj.match_states(found, data.labels).states
    # A state has the colour of the action that it is matched with; others come after these.
    free = iter(range(len(data.actions), 99))
    color = {k: int(a) if a >= 0 else next(free) for k, a in enumerate(matching)}
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(9, 6), layout="constrained", sharex=True, height_ratios=[5, 1]
    )
    X = data.X[:n]
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    for d in range(len(data.columns)):
        top.plot(0.35 * scaled[:, d] - 1.6 * d, color="0.25", lw=0.8)
    top.set_yticks(-1.6 * np.arange(len(data.columns)), data.columns, fontsize=8)
    top.tick_params(length=0, labelbottom=False)
    top.spines[:].set_visible(False)
    named = set()
    for label, begin, end in stays(data.labels[:n]):
        bottom.barh(1, end - begin, left=begin, color=PALETTE[label % len(PALETTE)])
        if end - begin > 14 or label not in named:
            place = ((begin + end) / 2, 1.55)
            bottom.annotate(data.actions[label], place, ha="center", fontsize=7)
            named.add(label)
    for state, begin, end in stays(found[:n]):
        bottom.barh(0, end - begin, left=begin, color=PALETTE[color[state] % len(PALETTE)])
    bottom.set_yticks([0, 1], ["found", "labelled"])
    bottom.set_ylim(-0.5, 1.9)
    bottom.set_xlim(0, n)
    bottom.set_xlabel("step")
    bottom.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def marks(model: Any, names: list[str], path: Path) -> None:
    """Draw the probability of each mark in each state, and how long states last."""
    plt = _pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    order = np.argsort(-model.state_shares_)
    shades = left.imshow(model.emissionprob_[order], cmap="Blues", vmin=0, vmax=1, aspect="auto")
    left.set_xticks(range(len(names)), names, rotation=40, ha="right")
    left.set_yticks(
        range(len(order)), [f"state {k}, {model.state_shares_[k]:.1%} of the bins" for k in order]
    )
    figure.colorbar(shades, ax=left, label="probability of the mark")
    sj.plot.dwell_times(model, ax=right)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def life_courses(model: Any, X: np.ndarray, lengths: list[int], path: Path) -> None:
    """Draw how many people are in each state at each age, and what the states are."""
    plt = _pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    ages = 15 + np.concatenate([np.arange(n) for n in lengths])
    states = model.predict_proba(X, lengths)
    years = np.unique(ages)
    shares = np.array([states[ages == age].mean(axis=0) for age in years])
    colors = [PALETTE[k] for k in range(model.n_states)]
    left.stackplot(years, shares.T, colors=colors)
    left.set(xlabel="age", ylabel="share of people", xlim=(years[0], years[-1]), ylim=(0, 1))
    for c in range(len(CHANNELS)):
        chances = getattr(model, f"part{c}_emissionprob_")[:, 1]
        at = c + 0.2 * (np.arange(model.n_states) - 0.5 * (model.n_states - 1))
        right.bar(at, chances, 0.18, color=colors)
    right.set_xticks(range(len(CHANNELS)), [names[1] for names in CHANNELS.values()])
    right.set(ylabel="probability", ylim=(0, 1))
    for k, color in enumerate(colors):
        right.bar(0, 0, color=color, label=f"state {k}")
    right.legend(frameon=False, fontsize=8, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    return plt
