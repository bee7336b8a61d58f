"""Take the pictures of the documentation: parts of two reports, and a model in a notebook.

python -m tools.pictures        (make pictures; needs Chromium)

The models are those of docs/getting-started.md.  Pictures depend on the fonts of the machine, so
no test compares them; a test holds that they are there.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path
from typing import Any

import sojourn as sj
from sojourn.demo import EARTHQUAKES, documentation_sentences
from tests.support.browser import browser, look, why_no_browser

DOCS = Path(__file__).parent.parent / "docs"
NAMES = ("report-words.png", "report-numbers.png", "notebook.png")
_WIDTH = 1100
_NOTEBOOK = "<!doctype html><meta charset=utf-8><style>body { font: 13px sans-serif }</style>"


def models() -> dict[str, tuple[Any, Any]]:
    """Fit a model of words and one of numbers; return both with their data."""
    found = documentation_sentences()
    sentences = [s for i, s in enumerate(found) if i % 10]
    vocabulary = sj.Vocabulary.from_sequences(sentences, min_count=2)
    words = sj.HDPHMM(12, sj.Categorical(vocabulary=vocabulary), random_state=0)
    words.fit(sentences, validation=found[::10])
    words.provenance_ = {"data": "corpus.txt"}
    numbers = sj.HMM(3, sj.Poisson(), random_state=0).fit(EARTHQUAKES)
    numbers.provenance_ = {"data": "earthquakes.csv", "columns": ["count"]}
    return {"words": (words, sentences), "numbers": (numbers, EARTHQUAKES)}


def take(driver: Any, page: Path, picture: Path, first: str, last: str) -> None:
    """Save a picture of a page, from the top of one element to the bottom of another."""
    driver.get(page.as_uri())
    script = "return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()"
    top = driver.execute_script(script, first)["top"]
    bottom = driver.execute_script(script, last)["bottom"]
    clip = {"x": 0, "y": max(0, top - 12), "width": _WIDTH, "height": bottom - top + 24, "scale": 1}
    options = {"captureBeyondViewport": True, "format": "png", "clip": clip}
    taken = driver.execute_cdp_cmd("Page.captureScreenshot", options)
    picture.write_bytes(base64.b64decode(taken["data"]))


def main() -> None:
    """Take all pictures."""
    missing = why_no_browser()
    if missing is not None:
        sys.exit(missing)
    fitted = models()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with browser(folder / "profile", _WIDTH) as driver:
            look(driver, _WIDTH, 900)
            for kind, (model, data) in fitted.items():
                sj.write_report(model, folder / f"{kind}.html", data)
            take(driver, folder / "words.html", DOCS / NAMES[0], "header", "#states")
            take(driver, folder / "numbers.html", DOCS / NAMES[1], "#distributions", "#sequence")
            page = folder / "notebook.html"
            page.write_text(_NOTEBOOK + fitted["words"][0]._repr_html_())
            take(driver, page, DOCS / NAMES[2], "body", "body > div")


if __name__ == "__main__":
    main()
