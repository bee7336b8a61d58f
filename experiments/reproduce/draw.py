"""Drawing of Figure 2, as PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, distinguishable with all kinds of colour vision; a thin dark line is
# visible on top of the broad light one.
LOOKS: dict[str, dict[str, Any]] = {
    "SVI": {"color": "#D55E00", "linestyle": (0, (4, 1.5)), "linewidth": 1.6},
    "SCVI": {"color": "#56B4E9", "linestyle": "-", "linewidth": 3.4},
    "SCVI-HDP": {"color": "#1A1A1A", "linestyle": (0, (1, 1.4)), "linewidth": 1.3},
}
GREY = "#555555"
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "sojourn",
}


def draw_small(result: dict[str, Any], out: Path) -> list[Path]:
    """Draw M by κ against passes, and write ``figure2.png`` and ``figure2.svg``."""
    batch_sizes = sorted({cell["batch_size"] for cell in result["cells"]})
    rates = sorted({cell["forgetting_rate"] for cell in result["cells"]})
    corpus = result["corpus"]
    return _draw(
        result,
        out / "figure2",
        rows=[("batch_size", m, f"M = {m:,} sentences") for m in batch_sizes],
        columns=[("forgetting_rate", rate, f"κ = {rate:g}") for rate in rates],
        against=0,
        x_label="passes over the data",
        title=(
            f"{corpus['name']}: {corpus['sentences']:,} sentences, {corpus['words']:,} words, "
            f"K = {result['cells'][0]['n_states']}"
        ),
    )


def draw_large(result: dict[str, Any], out: Path) -> list[Path]:
    """Draw K against wall-clock time, and write ``figure2-large.png`` and ``.svg``."""
    states = sorted({cell["n_states"] for cell in result["cells"]})
    n_passes = result["cells"][0]["n_passes"]
    passes = "one pass" if n_passes == 1 else f"{n_passes} passes"
    where = result["machine"].get("device", f"{result['machine']['cores']} cores")
    corpus = result["corpus"]
    return _draw(
        result,
        out / "figure2-large",
        rows=[("batch_size", 1000, "")],
        columns=[("n_states", k, f"K = {k}") for k in states],
        against=1,
        x_label=f"seconds of training, {where}",
        title=(
            f"{corpus['name']}: {corpus['sentences']:,} sentences, {passes}, M = 1,000, κ = 0.5"
        ),
    )


def _draw(
    result: dict[str, Any],
    path: Path,
    *,
    rows: list[tuple[str, Any, str]],
    columns: list[tuple[str, Any, str]],
    against: int,
    x_label: str,
    title: str,
) -> list[Path]:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        # Title and legend share a line, which needs some width.
        width, height = max(8.4, 2.55 * len(columns) + 0.9), max(3.6, 1.75 * len(rows) + 1.15)
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(
            len(rows), len(columns), sharex=against == 0, sharey=True, squeeze=False
        )
        for i, (row_key, row, row_title) in enumerate(rows):
            for j, (column_key, column, column_title) in enumerate(columns):
                cells = [
                    cell
                    for cell in result["cells"]
                    if cell[row_key] == row and cell[column_key] == column
                ]
                _panel(axes[i, j], cells, against)
                if i == 0:
                    axes[i, j].set_title(column_title, fontsize=9.5)
                if j == len(columns) - 1 and row_title:
                    axes[i, j].annotate(
                        row_title, (1.03, 0.5), xycoords="axes fraction", rotation=-90,
                        va="center", ha="left", fontsize=9.5,
                    )  # fmt: skip
        _frame(figure, axes, result, x_label, title)
        written = []
        for suffix, options in ((".png", {"dpi": 160}), (".svg", {"metadata": {"Date": None}})):
            target = path.with_suffix(suffix)
            figure.savefig(target, **options)
            written.append(target)
    return written


def _panel(axis: Axes, cells: list[dict[str, Any]], against: int) -> None:
    """Draw the mean of the seeds with a band from the least to the largest, and the margin."""
    last: dict[str, float] = {}
    for method, look in LOOKS.items():
        curves = [cell["points"] for cell in cells if cell["method"] == method]
        if not curves:
            continue
        x, scores = _aligned(curves, against)
        axis.plot(x, scores.mean(axis=0), label=method, **look)
        if len(curves) > 1:
            low, high = scores.min(axis=0), scores.max(axis=0)
            axis.fill_between(x, low, high, color=look["color"], alpha=0.22, linewidth=0)
        last[method] = float(scores[:, -1].mean())
    if {"SVI", "SCVI"} <= set(last):
        lines = [f"SCVI − SVI  {_signed(last['SCVI'] - last['SVI'])}"]
        if "SCVI-HDP" in last:
            lines.append(f"HDP − SCVI  {_signed(last['SCVI-HDP'] - last['SCVI'])}")
        axis.text(
            0.97, 0.06, "\n".join(lines), transform=axis.transAxes, ha="right", va="bottom",
            fontsize=7.5, color=GREY, linespacing=1.35,
        )  # fmt: skip
    axis.grid(color="#E3E3E3", linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.tick_params(length=2.5, color=GREY)


def _signed(margin: float) -> str:
    """Write a margin with its sign, and zero without one."""
    text = f"{margin:+.3f}".replace("-", "−")
    return text if text[1:] != "0.000" else "0.000"


def _aligned(
    curves: list[list[list[float]]], against: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Average the positions of the curves of several seeds, which have equally many points."""
    points = np.array(curves)
    return points[..., against].mean(axis=0), points[..., 2]


def _frame(figure: Figure, axes: Any, result: dict[str, Any], x_label: str, title: str) -> None:
    scores = np.array([point[2] for cell in result["cells"] for point in cell["points"]])
    ends = np.array([cell["points"][-1][2] for cell in result["cells"]])
    # The first moments of training are far below all that follows: they may leave the panel.
    low = max(scores.min(), ends.min() - 0.5 * (ends.max() - ends.min()) - 0.05)
    axes[0, 0].set_ylim(low, ends.max() + 0.06 * (ends.max() - low))
    figure.supxlabel(x_label, fontsize=9.5)
    figure.supylabel("held-out log likelihood, nats per word", fontsize=9.5)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper right", ncols=3, frameon=False, handlelength=2.6
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=9.5)
