"""The report: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from sojourn.report.colors import color_classes
from sojourn.report.gather import Contents, gather
from sojourn.report.markup import Markup, join, json_script, tag
from sojourn.report.sections import sections
from sojourn.report.text import signed
from sojourn.whole_files import write_whole


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
    style, script = _resource("style.css") + color_classes(), _resource("script.js")
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
        tag("main", *sections(contents)),
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
    left_out = "" if contents.decoded is None else contents.decoded.left_out
    tiles = [tag("div", tag("b", value), tag("span", name)) for name, value in _tiles(contents)]
    return join(
        tag("p", "sojourn report", class_="eyebrow"),
        tag("h1", heading),
        tag("p", sub, class_="sub"),
        tag("p", f"Data in this report: {left_out}.", class_="sub warn") if left_out else None,
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
        n = model.total_sequences
        tiles.append(("sequence" if n == 1 else "sequences", f"{n:,}"))
    if contents.curve and contents.curve_name.startswith("held-out"):
        score = contents.curve[-1][1]
        tiles.append(("held-out score per step", signed(f"{score:.3f}")))
        if type(model.family).__name__ == "Categorical":
            tiles.append(("perplexity", f"{np.exp(-score):.1f}"))
    if model.history:
        tiles.append(("seconds of training", f"{model.history[-1]['seconds']:.1f}"))
    return tiles


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
