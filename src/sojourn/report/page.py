"""The report: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from sojourn.prediction import FittedModel
from sojourn.report import check_figures, figures
from sojourn.report.gather import Contents, Context, gather
from sojourn.report.markup import Markup, join, json_script, tag
from sojourn.report.states import StateSummary
from sojourn.transitions import HDPSummary
from sojourn.whole_files import write_whole

_CHECKED_COLUMNS = 3  # columns whose residuals are shown


def write_report(
    model: Any,
    path: str | PathLike[str],
    X: Any = None,
    lengths: Any = None,
    *,
    title: str | None = None,
) -> Path:
    """Write a report on a model as one HTML file, for reading in a browser.

    The file needs no network and contains no code but its own: words of the data are always
    inserted as text.

    Parameters
    ----------
    model : HMM or HDPHMM that was fitted, or FittedModel
    path : path
        HTML file; written atomically.
    X, lengths
        Data for examples and observed dwell times, as for `fit`; the first 200,000 steps are used.
    title : str, optional

    Returns
    -------
    Path

    Examples
    --------
    >>> import sojourn as sj, tempfile, pathlib
    >>> model = sj.HMM(2, sj.Categorical(), random_state=0).fit([["a", "b"], ["b", "a"]] * 9)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     out = sj.write_report(model, pathlib.Path(folder) / "report.html", [["a", "b"]])
    ...     out.read_text().startswith("<!doctype html>")
    True
    """
    target = Path(path)
    write_whole(target, render(gather(model, X, lengths), title).encode())
    return target


def render(contents: Contents, title: str | None = None) -> str:
    """Return the page as a string."""
    heading = title or _title(contents)
    style, script = _resource("style.css"), _resource("script.js")
    policy = (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; "
        f"script-src 'sha256-{_digest(script)}'; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{heading} · sojourn"),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        tag("header", _header(contents, heading)),
        tag("main", *_sections(contents)),
        tag("footer", _footer()),
        tag("div", "", id="tip", role="tooltip", hidden="hidden"),
        json_script(_summary(contents), "summary"),
        tag("script", Markup(script)),
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en")


# ---- parts of the page --------------------------------------------------------------------------


def _title(contents: Contents) -> str:
    name = contents.model.provenance.get("data")
    return f"What {name} is made of" if name else "What the model has learned"


def _header(contents: Contents, heading: str) -> Markup:
    model = contents.model
    kind = {"HDPHMM": "HDP hidden Markov model", "HMM": "hidden Markov model"}
    sub = f"{kind[model.estimator.name]}, {type(model.family).__name__} emissions"
    inference = model.estimator.parameters.get("inference")
    if inference is not None:
        sub += f", learned by {inference.upper()}"
    tiles = [tag("div", tag("b", value), tag("span", name)) for name, value in _tiles(contents)]
    return join(
        tag("p", "sojourn report", class_="eyebrow"),
        tag("h1", heading),
        tag("p", sub, class_="sub"),
        tag("div", *tiles, class_="tiles"),
    )


def _tiles(contents: Contents) -> list[tuple[str, str]]:
    model = contents.model
    origin = model.provenance
    tiles = [("states in use", f"{model.n_states} of {len(model.state_shares)}")]
    if "sequences" in origin:
        tiles.append(("sequences", f"{origin['sequences']:,}"))
        tiles.append(("steps", f"{origin['steps']:,}"))
    else:
        tiles.append(("sequences", f"{model.total_sequences:,}"))
    if contents.curve and contents.curve_name.startswith("held-out"):
        score = contents.curve[-1][1]
        tiles.append(("held-out score per step", figures.signed(f"{score:.3f}")))
        if type(model.family).__name__ == "Categorical":
            tiles.append(("perplexity", f"{np.exp(-score):.1f}"))
    if model.history:
        tiles.append(("seconds of training", f"{model.history[-1]['seconds']:.1f}"))
    return tiles


def _sections(contents: Contents) -> list[Markup]:
    model = contents.model
    columns: list[Markup] = []
    sections = [_section("States", _states_text(contents), _state_table(contents), "states")]
    if contents.decoded is not None and contents.decoded.example is not None:
        figure = figures.decoded_sequence(contents, contents.decoded.example)
        text = "One sequence of the data, with the most probable state at each step below it."
        sections.append(_section("A sequence, decoded", text, _scroll(figure), "sequence"))
        sections.append(_segments(contents))
    if len(contents.states) > 1:
        text = (
            "Arrows are transitions with at least a tenth of the probability of leaving a state, "
            "thicker where more probable. A wider ring means that the state lasts longer. Touch "
            "a state to see its own transitions."
        )
        graph = tag("div", figures.graph(contents), class_="centred")
        columns.append(_section("Strong transitions", text, graph, "graph"))
    text = (
        "From row to column, with states in order of size. Shades follow the square root of the "
        "probability, so that rare transitions are visible."
    )
    if contents.intervals is not None:
        text += " Point at a cell for its interval."
    heat = _scroll(figures.heat_map(contents))
    columns.append(_section("All transitions", text, heat, "transitions"))
    text = "Mean number of consecutive steps in a state, according to the model."
    if contents.decoded is not None:
        text += " The vertical mark is the mean in the decoded data."
    if contents.intervals is not None:
        text += f" The line across a bar is its interval. {contents.intervals.text}"
    dwell = _scroll(figures.dwell_times(contents))
    columns.append(_section("How long states last", text, dwell, "dwell"))
    if len(contents.curve) > 1:
        figure = figures.learning_curve(contents)
        text = f"The {contents.curve_name}, after each pass. Higher is better."
        columns.append(_section("Learning curve", text, _scroll(figure), "curve"))
    if model.hdp is not None:
        columns.append(_hdp(model.hdp))
    sections.append(tag("div", *columns, class_="columns"))
    if contents.decoded is not None:
        sections.append(_residuals(contents))
    sections.append(_section("Model and data", "", _facts(contents), "about"))
    return sections


def _segments(contents: Contents) -> Markup:
    """Return a table of the first segments of the sequence shown."""
    assert contents.decoded is not None
    assert contents.decoded.example is not None
    names = ["state", "steps", "length", "probability", *contents.decoded.example.columns]
    rows = []
    for segment in contents.decoded.segments:
        means = [] if segment.mean is None else segment.mean.tolist()
        cells = [
            tag("span", str(segment.state),
                class_=f"badge {figures.color_class(contents, segment.state)}"),
            f"{segment.start} to {segment.end - 1}",
            f"{segment.length}",
            f"{segment.probability:.2f}",
            *(figures.signed(f"{mean:.3g}") for mean in means),
        ]  # fmt: skip
        rows.append(tag("tr", *(tag("td", cell) for cell in cells)))
    table = tag("table", tag("tr", *(tag("th", name) for name in names)), *rows, class_="segments")
    text = (
        "Runs of one state in this sequence, with the probability that the whole run is in that "
        "state, and the means of the columns."
    )
    return _section("Segments", text, _scroll(table), "segments")


def _residuals(contents: Contents) -> Markup:
    """Return plots of the residuals of the first columns, with a sentence for each."""
    assert contents.decoded is not None
    found, example = contents.decoded.residuals, contents.decoded.example
    names = [""] if example is None else example.columns
    parts = []
    for column in range(min(found.uniform.shape[1], _CHECKED_COLUMNS)):
        if np.isnan(found.uniform[:, column]).all():
            continue
        sentence = found.describe(column)
        if found.uniform.shape[1] > 1:
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
    )
    return _section("Does the model fit?", text, join(*parts), "residuals")


def _section(title: str, text: str, content: Markup, identifier: str) -> Markup:
    return tag(
        "section", tag("h2", title), tag("p", text) if text else None, content, id=identifier
    )


def _scroll(figure: Markup) -> Markup:
    return tag("div", figure, class_="scroll", tabindex=0)


def _hdp(summary: HDPSummary) -> Markup:
    text = (
        f"E[α] = {summary.alpha:.3g}, E[γ] = {summary.gamma:.3g}. The effective number of states "
        f"is the exponential of the weights' entropy, {summary.effective_states:.1f}."
    )
    figure = figures.sticks(np.asarray(summary.weights), summary.effective_states)
    return _section("Weights of the HDP", text, _scroll(figure), "sticks")


def _states_text(contents: Contents) -> str:
    what = "most probable symbols" if any(contents.symbols) else "parameters"
    text = (
        f"The largest first, with their {what}. A state is in use if it has more than 0.5% of the "
        "steps."
    )
    if any(contents.symbols) and contents.decoded is not None:
        text += " Open a state to see examples in context."
    return text


def _state_table(contents: Contents) -> Markup:
    largest = max(entry.share for entry in contents.states)
    rows = [_state_row(contents, entry, largest) for entry in contents.states]
    return tag("div", *rows, class_="states", role="list")


def _state_row(contents: Contents, entry: StateSummary, largest: float) -> Markup:
    kind = figures.color_class(contents, entry.state)
    bar = tag(
        "svg",
        tag("rect", x=0, y=0, width=100.0, height=6, rx=3, class_="track"),
        tag("rect", x=0, y=0, width=max(100.0 * entry.share / largest, 1.5), height=6, rx=3,
            class_=f"bar {kind}"),
        viewBox="0 0 100 6", class_="share", aria_hidden="true", preserveAspectRatio="none",
    )  # fmt: skip
    symbols = contents.symbols[entry.state]
    if symbols:
        what = tag("span", *(_chip(word, p) for word, p in symbols), class_="chips")
    else:
        what = tag("span", entry.text, class_="parameters")
    contexts = contents.decoded.contexts[entry.state] if contents.decoded else []
    names = contents.model.state_names or ()
    if entry.state < len(names):
        what = join(tag("strong", names[entry.state]), " ", what)
    summary = join(
        tag("span", str(entry.state), class_=f"badge {kind}"),
        tag("span", f"{entry.share:.1%}", bar, class_="size"),
        what,
        tag("span", f"lasts {entry.stay} steps", tag("br"),
            f"next: {contents.model.name_of(entry.following)}",
            class_="then"),
    )  # fmt: skip
    if not contexts:
        return tag("div", summary, class_="state", role="listitem", data_state=entry.state)
    return tag(
        "details",
        tag("summary", summary, class_="state"),
        tag("table", *(_context(context) for context in contexts), class_="contexts"),
        role="listitem", data_state=entry.state,
    )  # fmt: skip


def _chip(word: str, probability: float) -> Markup:
    level = min(4, int(probability * 12.0))
    return tag("span", word, class_=f"chip l{level}", data_tip=f"{word}: {probability:.1%}")


def _context(context: Context) -> Markup:
    return tag(
        "tr", tag("td", context.before), tag("td", tag("b", context.word)), tag("td", context.after)
    )


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
        facts.append(
            (
                "data in this report",
                f"{seen.n_sequences:,} sequences, {seen.n_steps:,} steps, "
                f"log likelihood per step {figures.signed(f'{seen.score:.4f}')}",
            )
        )
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


def _footer() -> Markup:
    from sojourn import __version__

    return tag("p", f"Made by sojourn {__version__}. This file needs no network.")


def _summary(contents: Contents) -> dict[str, Any]:
    """Return the states for programs that read the page."""
    return {
        "model": contents.model.estimator.name,
        "states_used": contents.model.n_states,
        "states": [entry._asdict() for entry in contents.states],
    }


def _resource(name: str) -> str:
    return files("sojourn.report").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
