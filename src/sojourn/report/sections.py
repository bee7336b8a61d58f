"""The sections of the report."""

from __future__ import annotations

import numpy as np

from sojourn.inference.occupancy import USED_SHARE
from sojourn.prediction import FittedModel
from sojourn.report import check_figures, figures, profile_figures
from sojourn.report.examples import Example
from sojourn.report.gather import Contents
from sojourn.report.markup import Markup, join, tag
from sojourn.report.state_rows import state_table
from sojourn.report.text import readable, signed
from sojourn.transitions import HDPSummary

_CHECKED_COLUMNS = 3  # columns whose residuals are shown
_OPEN_SEGMENTS = 12  # the others unfold
_MEANS = 4  # columns whose means the table of segments has


def sections(contents: Contents) -> list[Markup]:
    """Return all sections, in order."""
    found = [_section("States", _states_text(contents), state_table(contents), "states")]
    found += _columns(contents)
    examples = [] if contents.decoded is None else contents.decoded.examples
    if examples:
        found += [_sequence(contents, examples), _segments(contents, examples)]
    found.append(tag("div", *_transitions(contents), class_="columns"))
    if contents.decoded is not None:
        found.append(_residuals(contents))
    found.append(_section("Model and data", "", _facts(contents), "about"))
    return found


def _section(title: str, text: str, content: Markup, identifier: str) -> Markup:
    return tag(
        "section", tag("h2", title), tag("p", text) if text else None, content, id=identifier
    )


def _scroll(figure: Markup) -> Markup:
    return tag("div", figure, class_="scroll", tabindex=0)


def _of(shown: int, all_of_them: int, what: str) -> str:
    """Say what is left out, if anything is."""
    return f" Shown: {shown:,} of {all_of_them:,} {what}." if shown < all_of_them else ""


# ---- states -------------------------------------------------------------------------------------


def _states_text(contents: Contents) -> str:
    if any(contents.symbols):
        what = "the symbols that tell them apart"
    elif contents.profile is not None and len(contents.profile.names) > _MEANS:
        what = "the columns in which they differ most from the average (↑ above, ↓ below)"
    else:
        what = "their parameters"
    text = f"The largest first, with {what}."
    small = len(contents.model.state_shares) - len(contents.states)
    if small > 0:
        others = "1 other has" if small == 1 else f"{small} others have"
        text += f" {others} at most {USED_SHARE:.1%} of the steps and are left out."
    if any(contents.symbols) and contents.decoded is not None:
        text += " Open a state to see examples in context."
    elif contents.profile is not None and len(contents.profile.names) > _MEANS:
        text += " Open a state to see all columns."
    return text


def _columns(contents: Contents) -> list[Markup]:
    """Return what compares the states column by column: nothing for symbols."""
    profile = contents.profile
    if profile is None:
        return []
    found = []
    n = len(profile.names)
    if n > 2 and len(contents.states) > 1:
        text = (
            "How far the mean of a column in a state (rows) is from its mean over all steps, in "
            "standard deviations: orange above, blue below, full colour from two on."
        ) + _of(profile_figures.MOST_COLUMNS, n, "columns, those in which states differ most")
        figure = _scroll(profile_figures.profile_map(contents, profile))
        found.append(_section("States and columns", text, figure, "profile"))
    if profile.histograms:
        whose = "in the model" if profile.histograms[0].is_model else "in the decoded data"
        text = (
            f"Bars are the data, and a line is the part of each state {whose}, in its colour."
        ) + _of(profile_figures.MOST_HISTOGRAMS, n, "columns, those in which states differ most")
        figure = profile_figures.histograms(contents, profile)
        found.append(_section("Distributions", text, figure, "distributions"))
    return found


# ---- a sequence ---------------------------------------------------------------------------------


def _sequence(contents: Contents, examples: list[Example]) -> Markup:
    n_columns = examples[0].values.shape[1]
    text = (
        "The stretch with the most changes of state, and the most probable state at each step "
        "below it."
    ) + _of(figures.MOST_PANELS, n_columns, "columns, those in which states differ most")
    figures_of = [_scroll(figures.decoded_sequence(contents, one)) for one in examples]
    titles = [tag("option", one.title, value=i) for i, one in enumerate(examples)]
    title = tag("span", examples[0].title)
    if len(examples) > 1:
        title = tag("select", *titles, id="choose", aria_label="sequence to show")
    assert contents.decoded is not None
    left = _of(len(examples), contents.decoded.n_sequences, "sequences, the liveliest")
    content = join(tag("p", title, left, class_="choose"), *_choices(figures_of))
    return _section("A sequence, decoded", text, content, "sequence")


def _choices(content: list[Markup]) -> list[Markup]:
    """Return contents of which the page shows one, at first the first."""
    return [
        tag("div", one, data_choice=i, hidden="hidden" if i else None)
        for i, one in enumerate(content)
    ]


def _segments(contents: Contents, examples: list[Example]) -> Markup:
    """Return a table of the first segments of each stretch."""
    text = (
        "Runs of one state in this stretch, with the probability that the whole run is in that "
        "state, and the means of the columns"
    )
    many = examples[0].values.shape[1] > _MEANS
    text += " in which it differs most from the average." if many else "."
    tables = [_segment_table(contents, one) for one in examples]
    return _section("Segments", text, join(*_choices(tables)), "segments")


def _segment_table(contents: Contents, example: Example) -> Markup:
    names = example.columns if example.values.shape[1] <= _MEANS else ["differs in"]
    heads = ["state", "steps", "length", "probability", *names]
    known = np.abs(example.values[~np.isnan(example.values)])
    scale = float(known.max()) if len(known) else 1.0
    rows = []
    for segment in example.segments:
        cells = [
            tag("span", str(segment.state),
                class_=f"badge {figures.color_class(contents, segment.state)}"),
            f"{segment.start:,} to {segment.end - 1:,}",
            f"{segment.length:,}",
            f"{segment.probability:.2f}",
            *_segment_means(contents, segment.mean, scale),
        ]  # fmt: skip
        rows.append(tag("tr", *(tag("td", cell) for cell in cells)))
    head = tag("tr", *(tag("th", name) for name in heads))
    first = _scroll(tag("table", head, *rows[:_OPEN_SEGMENTS], class_="segments"))
    others = rows[_OPEN_SEGMENTS:]
    if not others:
        return first
    table = _scroll(tag("table", head, *others, class_="segments"))
    left = _of(len(rows), example.n_segments, "segments")
    return join(first, tag("details", tag("summary", f"{len(others)} more segments"), table),
                tag("p", left, class_="aside") if left else None)  # fmt: skip


def _segment_means(contents: Contents, mean: np.ndarray | None, scale: float) -> list[str]:
    if mean is None:
        return []
    if len(mean) <= _MEANS:
        return [readable(float(value), min(scale, 1.0)) for value in mean]
    profile = contents.profile
    if profile is None or len(profile.names) != len(mean):
        return [""]
    away = np.nan_to_num((mean - profile.centre) / np.where(profile.scale > 0, profile.scale, 1.0))
    order = np.argsort(-np.abs(away), kind="stable")[:3]
    parts = [
        f"{profile.names[d]} {'↑' if away[d] > 0 else '↓'} {readable(float(mean[d]))}"
        for d in order.tolist()
    ]
    return [", ".join(parts)]


# ---- transitions and learning -------------------------------------------------------------------


def _transitions(contents: Contents) -> list[Markup]:
    found = []
    n = len(contents.states)
    if n > 1:
        text = (
            "Arrows are transitions with at least a tenth of the probability of leaving a state, "
            "thicker where more probable. A wider ring means that the state lasts longer. Touch "
            "a state to see its own transitions."
        ) + _of(figures.MOST_RING, n, "states, the largest")
        graph = tag("div", figures.graph(contents), class_="centred")
        found.append(_section("Strong transitions", text, graph, "graph"))
    text = (
        "From row to column, with states in order of size. Shades follow the square root of the "
        "probability, so that rare transitions are visible."
    ) + _of(figures.MOST_CELLS, n, "states, the largest")
    if contents.intervals is not None:
        text += " Point at a cell for its interval."
    heat = _scroll(figures.heat_map(contents))
    found.append(_section("All transitions", text, heat, "transitions"))
    text = "Mean number of consecutive steps in a state, according to the model."
    lasting = contents.model.posterior.durations
    if lasting is not None:
        text += f" Durations are {lasting.kind}: point at a bar for how much they vary."
    if contents.decoded is not None:
        text += " The vertical mark is the mean in the decoded data."
    if contents.intervals is not None:
        text += f" The line across a bar is its interval. {contents.intervals.text}"
    text += _of(figures.MOST_DWELL, n, "states, the largest")
    dwell = _scroll(figures.dwell_times(contents))
    found.append(_section("How long states last", text, dwell, "dwell"))
    if len(contents.curve) > 1:
        figure = figures.learning_curve(contents)
        text = f"The {contents.curve_name}, after each pass. Higher is better."
        found.append(_section("Learning curve", text, _scroll(figure), "curve"))
    if contents.model.hdp is not None:
        found.append(_hdp(contents.model.hdp))
    return found


def _hdp(summary: HDPSummary) -> Markup:
    text = (
        f"E[α] = {readable(summary.alpha)}, E[γ] = {readable(summary.gamma)}. The effective number "
        f"of states is the exponential of the weights' entropy, {summary.effective_states:.1f}."
    )
    figure = figures.sticks(np.asarray(summary.weights), summary.effective_states)
    return _section("Weights of the HDP", text, _scroll(figure), "sticks")


# ---- checks and facts ---------------------------------------------------------------------------


def _residuals(contents: Contents) -> Markup:
    """Return plots of the residuals of some columns, with a sentence for each."""
    assert contents.decoded is not None
    found, examples = contents.decoded.residuals, contents.decoded.examples
    n = found.uniform.shape[1]
    names = examples[0].columns if examples else [""]
    parts = []
    for column in range(min(n, _CHECKED_COLUMNS)):
        if np.isnan(found.uniform[:, column]).all():
            continue
        sentence = found.describe(column)
        if n > 1:
            sentence = f"{names[column]}: {sentence}"
        parts.append(tag("p", sentence))
        pair = (
            check_figures.quantiles(found, column),
            check_figures.autocorrelation(found, column),
        )
        parts.append(_scroll(tag("div", *pair, class_="pair")))
    text = (
        "Where each step falls in the distribution that the model predicts from the steps before "
        "it. If the model is right, the points lie on the line, and the bars within the band."
    ) + _of(_CHECKED_COLUMNS, n, "columns, the first")
    checked = len(found.uniform)
    text += _of(checked, contents.decoded.n_steps, "steps, the first")
    return _section("Does the model fit?", text, join(*parts), "residuals")


def _facts(contents: Contents) -> Markup:
    model = contents.model
    origin = model.provenance
    facts: list[tuple[str, str]] = []
    if "data" in origin:
        facts.append(("data", str(origin["data"])))
    if "held_out" in origin:
        facts.append(("held out", str(origin["held_out"])))
    if contents.decoded is not None:
        seen = contents.decoded
        many = "sequence" if seen.n_sequences == 1 else "sequences"
        facts.append(
            (
                "data in this report",
                f"{seen.n_sequences:,} {many}, {seen.n_steps:,} steps, "
                f"log likelihood per step {signed(f'{seen.score:.4f}')}",
            )
        )
        if seen.left_out:
            facts.append(("left out", f"this report has {seen.left_out}"))
    facts.append(("model", f"{model.estimator.name}, {len(model.state_shares)} states"))
    if "reason" in origin:
        facts.append(("emissions", f"{type(model.family).__name__}: {origin['reason']}"))
    facts += _learning(model)
    if "date" in origin:
        facts.append(("when", f"{origin['date']}, {origin.get('version', '')}"))
    pairs = [part for name, value in facts for part in (tag("dt", name), tag("dd", value))]
    return tag("dl", *pairs)


def _learning(model: FittedModel) -> list[tuple[str, str]]:
    """Say how the model was learned, unless it was not learned here."""
    asked = model.estimator.parameters
    if "inference" not in asked:
        return []
    size = asked["batch_size"]
    batch = f"{size:,} sequences" if isinstance(size, int) else "all sequences"
    if isinstance(size, str) and model.converged is None:
        batch = "minibatches"
    text = (
        f"{asked['inference']}, {model.n_updates:,} updates of {batch}, forgetting rate "
        f"{asked['forgetting_rate']:g}, delay {asked['delay']:g}, seed {asked['random_state']}"
    )
    return [("learning", text)]
