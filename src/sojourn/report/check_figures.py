"""Figures of residuals, as SVG."""

from __future__ import annotations

import numpy as np

from sojourn.analysis.residuals import Residuals, normal_scores
from sojourn.report.figures import label_text, nice_ticks, svg
from sojourn.report.markup import Markup, tag
from sojourn.report.text import signed

_POINTS = 300


def quantiles(found: Residuals, column: int) -> Markup:
    """Draw sorted residuals against what the model expects (Q–Q plot)."""
    width, height, left, bottom, top = 300.0, 290.0, 40.0, 42.0, 10.0
    scores = found.normal[:, column]
    scores = np.sort(scores[~np.isnan(scores)])
    shown = np.unique(np.linspace(0, len(scores) - 1, min(len(scores), _POINTS)).astype(int))
    expected, seen = normal_scores(len(scores))[shown], scores[shown]
    far = float(np.clip(max(np.abs(expected).max(), np.abs(seen).max(), 2.0), 0.0, 8.0)) * 1.05

    def across(value: float) -> float:
        return left + (value + far) / (2.0 * far) * (width - left - 10.0)

    def up(value: float) -> float:
        return top + (far - value) / (2.0 * far) * (height - top - bottom)

    drawn = []
    for tick in nice_ticks(-far, far):
        drawn.append(tag("line", x1=left, x2=width - 10, y1=up(tick), y2=up(tick), class_="grid"))
        drawn.append(label_text(left - 6, up(tick) + 4, signed(f"{tick:g}"), "end"))
        drawn.append(label_text(across(tick), height - bottom + 16, signed(f"{tick:g}"), "middle"))
    drawn.append(
        tag("line", x1=across(-far), y1=up(-far), x2=across(far), y2=up(far), class_="seen")
    )
    for x, y in zip(np.clip(expected, -far, far), np.clip(seen, -far, far), strict=True):
        drawn.append(tag("circle", cx=across(float(x)), cy=up(float(y)), r=2, class_="mark"))
    name = label_text((left + width) / 2, height - 6, "expected normal scores", "middle", "axis")
    return svg(width, height, *drawn, name, label="residuals against what the model expects")


def autocorrelation(found: Residuals, column: int, n_lags: int = 20) -> Markup:
    """Draw the autocorrelation of residuals, and the band in which 95% are expected."""
    width, height, left, bottom, top = 420.0, 220.0, 50.0, 42.0, 10.0
    values = np.nan_to_num(found.autocorrelation(n_lags)[:, column])
    band = 1.96 / np.sqrt(max(1, int((~np.isnan(found.uniform[:, column])).sum())))
    far = float(max(np.abs(values).max(), 2.0 * band, 0.05)) * 1.1
    wide = (width - left - 10.0) / n_lags

    def up(value: float) -> float:
        return top + (far - value) / (2.0 * far) * (height - top - bottom)

    drawn = [
        tag("rect", x=left, y=up(band), width=width - left - 10.0, height=up(-band) - up(band),
            class_="track")
    ]  # fmt: skip
    for tick in nice_ticks(-far, far):
        drawn.append(tag("line", x1=left, x2=width - 10, y1=up(tick), y2=up(tick), class_="grid"))
        drawn.append(label_text(left - 6, up(tick) + 4, signed(f"{tick:.3g}"), "end"))
    for lag, value in enumerate(values.tolist()):
        high, low = up(max(value, 0.0)), up(min(value, 0.0))
        drawn.append(
            tag("rect", x=left + (lag + 0.2) * wide, y=high, width=0.6 * wide,
                height=max(low - high, 0.5), class_="stick",
                data_tip=signed(f"lag {lag + 1}: {value:.3f}"))
        )  # fmt: skip
    name = label_text((left + width) / 2, height - 6, "lag in steps", "middle", "axis")
    return svg(width, height, *drawn, name, label="autocorrelation of residuals")
