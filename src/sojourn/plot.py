"""Plots of fitted models on Matplotlib axes.

Every function takes the axes to draw on (by default new ones) and returns them, so that plots can
be combined in one figure.  They need Matplotlib: ``pip install 'sojourn[plot]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sojourn.analysis.residuals import normal_scores
from sojourn.kernels.interface import Floats
from sojourn.prediction import FittedModel, as_fitted, read_data
from sojourn.report.colors import PALETTE, ranks, state_color
from sojourn.report.layout import run_lengths, stays, strong_transitions
from sojourn.report.states import column_names, summarize, top_symbols
from sojourn.sequences import Sequences

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sojourn.analysis.residuals import Residuals
    from sojourn.model_selection import Selection

__all__ = [
    "autocorrelation",
    "durations",
    "dwell_times",
    "forecast",
    "graph",
    "learning_curve",
    "residuals",
    "selection",
    "sequence",
    "states",
    "sticks",
    "transitions",
]


def learning_curve(*models: Any, labels: list[str] | None = None, ax: Axes | None = None) -> Axes:
    """Plot held-out scores over passes; if there are none, the bound.

    Parameters
    ----------
    *models : HMM or HDPHMM that were fitted, or FittedModel
        Fitted with ``validation=``.
    labels : list of str, optional
        One per model; by default the inference method.
    ax : matplotlib.axes.Axes, optional

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import sojourn as sj
    >>> data = [[0, 1] * 5] * 40
    >>> model = sj.HMM(2, sj.Categorical(2), batch_size=4, random_state=0)
    >>> ax = sj.plot.learning_curve(model.fit(data, validation=data))
    >>> ax.get_xlabel()
    'passes'
    """
    ax = _axes(ax, (5.5, 3.2))
    curves = [as_fitted(model) for model in models]
    names = labels or [
        f"{fitted.estimator.name} by {fitted.estimator.parameters['inference']}"
        for fitted in curves
    ]
    what = "score"
    for i, (fitted, name) in enumerate(zip(curves, names, strict=True)):
        if all(entry["score"] is None for entry in fitted.history):
            what = "bound"
        points = [(e["passes"], e[what]) for e in fitted.history if e[what] is not None]
        if not points:
            raise ValueError(
                "nothing to plot: fit with validation=, or with track_bound=True for the bound"
            )
        ax.plot(*zip(*points, strict=True), marker="o", ms=3, color=PALETTE[i % 10], label=name)
    ax.set_xlabel("passes")
    ax.set_ylabel("held-out log likelihood per step" if what == "score" else "bound")
    if len(models) > 1:
        ax.legend(frameon=False)
    return _tidy(ax)


def states(model: Any, n_states: int = 12, n_symbols: int = 6, ax: Axes | None = None) -> Axes:
    """Plot the largest states: share of the steps, and most typical observations.

    Parameters
    ----------
    model : HMM or HDPHMM that was fitted, or FittedModel
    n_states, n_symbols : int
        Maximum number of states, and number of symbols to show for each.
    ax : matplotlib.axes.Axes, optional
    """
    fitted = as_fitted(model)
    shown = summarize(fitted, n_states, n_symbols)
    ax = _axes(ax, (7.0, 0.5 + 0.34 * len(shown)))
    place = np.arange(len(shown))
    colors = [state_color(rank) for rank in range(len(shown))]
    ax.barh(place, [100.0 * entry.share for entry in shown], color=colors, height=0.7)
    for y, entry in zip(place, shown, strict=True):
        ax.annotate(
            _verbatim(entry.text), (100.0 * entry.share, y), xytext=(5, 0),
            textcoords="offset points", va="center", fontsize=9,
        )  # fmt: skip
    ax.set_yticks(place, [_verbatim(fitted.name_of(entry.state)) for entry in shown])
    ax.invert_yaxis()
    most = 100.0 * max(entry.share for entry in shown)
    ax.set_xlim(0, 2.2 * most)
    ax.set_xticks([tick for tick in ax.get_xticks() if 0 <= tick <= most])
    ax.set_xlabel("% of the steps")
    return _tidy(ax)


def transitions(model: Any, n_states: int = 30, ax: Axes | None = None) -> Axes:
    """Plot the transition matrix of the largest states; shades are on a square-root scale.

    Parameters
    ----------
    model : HMM or HDPHMM that was fitted, or FittedModel
    n_states : int
        Maximum number of states.
    ax : matplotlib.axes.Axes, optional
    """
    fitted = as_fitted(model)
    from matplotlib.colors import PowerNorm

    chosen = [entry.state for entry in summarize(fitted, n_states, 1)]
    ax = _axes(ax, (5.0, 4.4))
    shades = ax.imshow(
        fitted.transmat[np.ix_(chosen, chosen)], cmap="Blues", norm=PowerNorm(0.5, 0.0, 1.0)
    )
    firsts = [f" {symbols[0][0]}" if symbols else "" for symbols in top_symbols(fitted, 1)]
    names = [_verbatim(name) for name in fitted.labels_of_states]
    rows = [f"{names[k]}{_verbatim(firsts[k])}" for k in chosen]
    ax.set_yticks(range(len(chosen)), rows, fontsize=8)
    ax.set_xticks(range(len(chosen)), [names[k] for k in chosen], fontsize=8)
    ax.set_xlabel("to state")
    ax.set_ylabel("from state")
    ax.figure.colorbar(shades, ax=ax, label="probability", shrink=0.8)
    return ax


def graph(model: Any, n_states: int = 14, least: float = 0.1, ax: Axes | None = None) -> Axes:
    """Draw the strong transitions between the largest states.

    Parameters
    ----------
    model : HMM or HDPHMM that was fitted, or FittedModel
    n_states : int
        Maximum number of states.
    least : float
        Smallest probability of a transition to be drawn, among those that leave the state.
    ax : matplotlib.axes.Axes, optional
    """
    fitted = as_fitted(model)
    ax = _axes(ax, (6.0, 6.0))
    found = strong_transitions(fitted, n_states, least)
    place = {int(k): (x, y) for k, x, y in zip(found.states, found.x, found.y, strict=True)}
    shares, rank = fitted.state_shares, ranks(fitted.state_shares)
    largest = shares.max()
    for edge in found.edges:
        ax.annotate(
            "", place[edge.target], place[edge.source],
            arrowprops={
                "arrowstyle": "-|>", "connectionstyle": "arc3,rad=0.18", "shrinkA": 17,
                "shrinkB": 17, "lw": 0.6 + 3.5 * edge.probability,
                "color": state_color(rank[edge.source]), "alpha": 0.75,
            },
        )  # fmt: skip
    firsts = [symbols[0][0] if symbols else "" for symbols in top_symbols(fitted, 1)]
    firsts[: len(fitted.state_names or ())] = fitted.state_names or ()
    for k, (x, y) in place.items():
        size = 260.0 + 700.0 * shares[k] / largest
        ax.scatter([x], [y], s=size, color=state_color(rank[k]), zorder=3, edgecolor="white")
        ax.annotate(str(k), (x, y), ha="center", va="center", color="white", zorder=4,
                    fontsize=9, fontweight="bold")  # fmt: skip
        ax.annotate(_verbatim(firsts[k]), (1.22 * x, 1.22 * y), ha="center", va="center",
                    fontsize=9)  # fmt: skip
    ax.set_xlim(-1.45, 1.45)
    ax.set_ylim(-1.35, 1.35)
    ax.set_aspect("equal")
    ax.set_axis_off()
    return ax


def dwell_times(
    model: Any,
    X: Any = None,
    lengths: ArrayLike | None = None,
    *,
    n_states: int = 12,
    ax: Axes | None = None,
) -> Axes:
    """Plot how long the largest states last: in the model and, if given, in decoded data.

    Parameters
    ----------
    model : HMM or HDPHMM that was fitted, or FittedModel
    X, lengths
        Data to decode, as for `fit`: a data frame too.  Optional.
    n_states : int
        Maximum number of states.
    ax : matplotlib.axes.Axes, optional
    """
    fitted = as_fitted(model)
    shown = summarize(fitted, n_states, 1)
    ax = _axes(ax, (5.5, 0.8 + 0.3 * len(shown)))
    place = np.arange(len(shown))
    colors = [state_color(rank) for rank in range(len(shown))]
    means = [entry.dwell for entry in shown]
    ax.hlines(place, 1.0, means, color=colors, lw=3, alpha=0.6)
    ax.scatter(means, place, color=colors, s=45, zorder=3, label="expected by the fitted")
    if X is not None:
        data = _in_memory(fitted, X, lengths)
        runs = run_lengths(list(fitted.predict(data)), len(fitted.state_shares))
        seen = [(y, runs[e.state].mean()) for y, e in enumerate(shown) if len(runs[e.state])]
        if seen:
            ys, values = zip(*seen, strict=True)
            ax.scatter(values, ys, marker="|", s=120, color="black", zorder=4,
                       label="mean in the decoded data")  # fmt: skip
        ax.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    if max(means) > 30:
        ax.set_xscale("log")
    ax.set_yticks(place, [_verbatim(fitted.name_of(entry.state)) for entry in shown])
    ax.invert_yaxis()
    ax.set_xlabel("steps in a row")
    return _tidy(ax)


def durations(model: Any, n_states: int = 8, ax: Axes | None = None) -> Axes:
    """Plot the distribution of how long the largest states last.

    Parameters
    ----------
    model : HMM or HDPHMM that was fitted, or FittedModel
    n_states : int
        Maximum number of states.
    ax : matplotlib.axes.Axes, optional
    """
    fitted = as_fitted(model)
    ax, known = _axes(ax, (5.5, 3.2)), fitted.durations
    for rank, entry in enumerate(summarize(fitted, n_states, 1)):
        own = known[entry.state]
        shape = "" if own.shape is None else f", shape {own.shape}"
        ax.plot(np.arange(1, len(own.probabilities) + 1), own.probabilities, drawstyle="steps-mid",
                color=state_color(rank),
                label=f"{_verbatim(fitted.name_of(entry.state))}{shape}")  # fmt: skip
    ax.set_xlabel("steps in a row")
    ax.set_ylabel("probability")
    ax.legend(frameon=False, fontsize=8)
    return _tidy(ax)


def sticks(model: Any, ax: Axes | None = None) -> Axes:
    """Plot the weights E[π_k] of an HDP-HMM, largest first, and the effective number of states.

    Parameters
    ----------
    model : HDPHMM
    ax : matplotlib.axes.Axes, optional
    """
    fitted = as_fitted(model)
    if fitted.hdp is None:
        raise TypeError(f"{fitted.estimator.name} has no sticks: they belong to HDPHMM")
    ax = _axes(ax, (5.5, 3.0))
    weights = np.sort(fitted.hdp.weights)[::-1]
    ax.bar(np.arange(1, len(weights) + 1), weights, color=PALETTE[0], width=0.8)
    effective = fitted.hdp.effective_states
    ax.axvline(effective, color=PALETTE[5], lw=1.2)
    ax.annotate(f"{effective:.1f} effective states", (effective, ax.get_ylim()[1]),
                xytext=(5, -10), textcoords="offset points", color=PALETTE[5])  # fmt: skip
    ax.set_xlabel("state, by weight")
    ax.set_ylabel("E[π]")
    return _tidy(ax)


def sequence(
    model: Any, X: Any, *, columns: list[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Plot one sequence of numbers with its decoded states as bands behind it.

    Parameters
    ----------
    model : HMM or HDPHMM that was fitted, or FittedModel
    X : (T,) or (T, D) array, or data frame
        One sequence.
    columns : list of str, optional
        Names of the columns.
    ax : matplotlib.axes.Axes, optional
    """
    fitted = as_fitted(model)
    from matplotlib.patches import Patch

    ax = _axes(ax, (9.0, 3.0))
    data = _in_memory(fitted, X)
    values = _one_of_numbers(data)
    (path,) = fitted.predict(data)
    rank = ranks(fitted.state_shares)
    for state, begin, end in stays(path):
        ax.axvspan(begin - 0.5, end - 0.5, color=state_color(rank[state]), alpha=0.25, lw=0)
    names = columns or column_names(fitted)
    lines = values.T
    for name, line, dash in zip(names or [""], lines, ["-", "--", ":", "-."] * len(lines),
                                strict=False):  # fmt: skip
        ax.plot(line, color="black", lw=0.9, ls=dash, label=name)
    used = sorted(set(path.tolist()), key=lambda k: rank[k])
    called = {k: _verbatim(fitted.name_of(k)) for k in used}
    patches = [Patch(color=state_color(rank[k]), alpha=0.4, label=called[k]) for k in used]
    own = ax.get_legend_handles_labels()[0] if len(lines) > 1 else []
    ax.legend(handles=[*own, *patches], frameon=False, ncols=6, fontsize=8, loc="lower left",
              bbox_to_anchor=(0, 1))  # fmt: skip
    ax.set_xlim(-0.5, len(path) - 0.5)
    ax.set_xlabel("step")
    return _tidy(ax)


def forecast(
    model: Any,
    X: Any,
    steps: int = 20,
    *,
    column: int = 0,
    n_past: int = 60,
    level: float = 0.9,
    n_draws: int = 100,
    ax: Axes | None = None,
) -> Axes:
    """Plot the end of a sequence of numbers, and the forecast after it as bands.

    Parameters
    ----------
    model : HMM or HDPHMM that was fitted, or FittedModel
    X : (T,) or (T, D) array, or data frame
        One sequence.
    steps : int
        Number of steps ahead.
    column : int
        Column to plot.
    n_past : int
        Number of past steps to plot.
    level : float
        Probability of the wide band; a darker one has half of it.
    n_draws : int
        As for `HMM.forecast`.
    ax : matplotlib.axes.Axes, optional

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import sojourn as sj
    >>> X = np.random.default_rng(0).poisson([2.0] * 50 + [9.0] * 50)
    >>> ax = sj.plot.forecast(sj.HMM(2, sj.Poisson(), random_state=0).fit(X), X, 10)
    >>> ax.get_xlabel()
    'step'
    """
    fitted = as_fitted(model)
    ax = _axes(ax, (9.0, 3.0))
    tails = (0.5 * (1.0 - level), 0.5 * (1.0 - 0.5 * level))
    levels = (tails[0], tails[1], 0.5, 1.0 - tails[1], 1.0 - tails[0])
    data = _in_memory(fitted, X)
    found = fitted.forecast(data, steps=steps, quantiles=levels, n_draws=n_draws)
    if found.quantiles is None:
        raise TypeError("a forecast of symbols has no bands: plot its probabilities instead")
    line = _one_of_numbers(data)[:, column]
    now = len(line)
    seen = np.arange(max(0, now - n_past), now)
    ahead = np.arange(now, now + steps)
    bands = found.quantiles[:, 0, :, column]
    ax.plot(seen, line[seen], color="black", lw=0.9, label="data")
    ax.fill_between(ahead, bands[0], bands[4], color=PALETTE[0], alpha=0.2, lw=0,
                    label=f"{level:.0%}")  # fmt: skip
    ax.fill_between(ahead, bands[1], bands[3], color=PALETTE[0], alpha=0.35, lw=0,
                    label=f"{0.5 * level:.0%}")  # fmt: skip
    ax.plot(ahead, bands[2], color=PALETTE[0], label="median")
    ax.axvline(now - 0.5, color="grey", lw=0.8, ls=":")
    ax.set_xlabel("step")
    names = column_names(fitted)
    if names:
        ax.set_ylabel(_verbatim(names[column]))
    ax.legend(frameon=False, ncols=4, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
    return _tidy(ax)


def residuals(found: Residuals, column: int = 0, ax: Axes | None = None) -> Axes:
    """Plot residuals against what the model expects (Q–Q plot of their normal scores).

    Parameters
    ----------
    found : Residuals
        From `HMM.residuals`.
    column : int
    ax : matplotlib.axes.Axes, optional
    """
    ax = _axes(ax, (3.6, 3.4))
    scores = found.normal[:, column]
    scores = np.sort(scores[~np.isnan(scores)])
    shown = np.unique(np.linspace(0, len(scores) - 1, min(len(scores), 2000)).astype(int))
    expected = normal_scores(len(scores))[shown]
    ends = (min(expected[0], scores[0]), max(expected[-1], scores[-1]))
    ax.plot(ends, ends, color="grey", lw=0.8)
    ax.plot(expected, scores[shown], ".", color=PALETTE[0], ms=3)
    ax.set_xlabel("expected normal scores")
    ax.set_ylabel("residuals")
    return _tidy(ax)


def autocorrelation(
    found: Residuals, column: int = 0, n_lags: int = 20, ax: Axes | None = None
) -> Axes:
    """Plot the autocorrelation of residuals, with the band in which 95% are expected.

    Parameters
    ----------
    found : Residuals
        From `HMM.residuals`.
    column : int
    n_lags : int
    ax : matplotlib.axes.Axes, optional
    """
    ax = _axes(ax, (4.6, 3.0))
    lags = np.arange(1, n_lags + 1)
    ax.bar(lags, found.autocorrelation(n_lags)[:, column], color=PALETTE[0], width=0.6)
    band = 1.96 / np.sqrt(max(1, int((~np.isnan(found.uniform[:, column])).sum())))
    ax.axhspan(-band, band, color="grey", alpha=0.2, lw=0)
    ax.axhline(0.0, color="black", lw=0.6)
    ax.set_xlabel("lag in steps")
    ax.set_ylabel("autocorrelation")
    return _tidy(ax)


def selection(found: Selection, ax: Axes | None = None) -> Axes:
    """Plot held-out and training scores over the number of states; see `select_n_states`.

    Parameters
    ----------
    found : Selection
    ax : matplotlib.axes.Axes, optional
    """
    ax = _axes(ax, (5.5, 3.2))
    ks = [candidate.n_states for candidate in found]
    scores = [candidate.score for candidate in found]
    errors = [candidate.error for candidate in found]
    ax.plot(ks, [c.train_score for c in found], color=PALETTE[8], ls="--", label="training")
    ax.errorbar(ks, scores, errors, color=PALETTE[0], marker="o", ms=4, capsize=3, label="held out")
    best = found.simplest
    ax.axvline(best.n_states, color=PALETTE[5], lw=1.0)
    ax.annotate(f"{best.n_states} states are enough", (best.n_states, min(scores)), xytext=(5, 2),
                textcoords="offset points", color=PALETTE[5])  # fmt: skip
    ax.set_xlabel("number of states")
    ax.set_ylabel("log likelihood per step")
    ax.legend(frameon=False)
    return _tidy(ax)


def _in_memory(fitted: FittedModel, X: Any, lengths: ArrayLike | None = None) -> Sequences:
    """Return data as sequences, whatever their form: arrays, lists, a data frame, a file."""
    data = read_data(fitted, X, lengths)
    if data.sequences is not None:
        return data.sequences
    assert data.source is not None
    return data.source.read_all()


def _one_of_numbers(data: Sequences) -> Floats:
    """Return the steps of the only sequence, (T, D)."""
    if len(data) != 1:
        raise ValueError(f"plot one sequence, not {len(data)}: pass the steps or rows of one")
    if data.values.dtype.kind not in "biuf":
        raise TypeError("a sequence of words is no line: sj.plot.states shows what states mean")
    return np.asarray(data.values, np.float64).reshape(data.n_steps, -1)


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise ImportError("plots need Matplotlib: pip install 'sojourn[plot]'") from error
    return plt.subplots(figsize=size, layout="constrained")[1]


def _tidy(ax: Axes) -> Axes:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def _verbatim(text: str) -> str:
    """Escape dollar signs, so that Matplotlib does not parse words as formulas."""
    return text.replace("$", r"\$")
