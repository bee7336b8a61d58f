"""Play a newcomer: a fresh clone, the demo, and the journey of each data set that comes along.

python -m tests.newcomer        (make test-newcomer)

Everything happens in a temporary folder, with the commands that the README and "Getting started"
name: word classes from Python's documentation, and the earthquakes of 1900 to 2006.  Any step that
fails ends it with an error.  Where Chromium is missing it says so: then nobody has seen the pages.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tests.support.browser import browser, look, problems, screenshot, why_no_browser

ROOT = Path(__file__).parent.parent


def say(text: str) -> None:
    """Tell what is happening."""
    print(f"newcomer: {text}", flush=True)


def run(command: list[str | Path], folder: Path) -> str:
    """Run a command as a newcomer would, show what it says, and stop where it fails."""
    say(" ".join(map(str, command)))
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"newcomer: it failed ({done.returncode}):\n{done.stdout}\n{done.stderr}")
    return done.stdout


def check(holds: bool, what: str) -> None:
    """Stop where something is not as a newcomer expects it."""
    if not holds:
        sys.exit(f"newcomer: expected {what}")
    say(f"yes: {what}")


def play(folder: Path) -> None:
    """Go through the first half hour."""
    clone, mine = folder / "sojourn", folder / "mine"
    mine.mkdir()
    run(["git", "clone", "--quiet", ROOT, clone], folder)
    said = run(["make", "demo"], clone)
    check("Learned word classes" in said, "the demo shows word classes")
    sojourn = clone / ".venv/bin/sojourn"
    said = run([sojourn, "demo", "--files"], mine)
    for name in ("corpus.txt", "held-out.txt", "earthquakes.csv"):
        check(name in said and (mine / name).exists(), f"a file {name}")
    missing = why_no_browser()
    with nullcontext() if missing else browser(folder / "profile") as driver:
        words(sojourn, mine, driver)
        earthquakes(sojourn, mine, driver)
        said_by_console = [] if driver is None else problems(driver)
    if missing is not None:
        say(f"the reports were made, but nobody has looked at them: {missing}")
        return
    check(not said_by_console, f"no error in the console {said_by_console or ''}")


def words(sojourn: Path, folder: Path, driver: Any) -> None:
    """Learn word classes, and look at them."""
    model = "words.sojourn"
    said = run([sojourn, "fit", "corpus.txt", "--states", "12", "--out", model], folder)
    check(f"saved: {model}" in said, "fit says where the model is")
    check(bool(re.search(r"sojourn report words\.sojourn", said)), "fit says what to do next")
    articles = re.search(r"\bthe an?\b|\ban? the\b", said)
    check(articles is not None, "a state of articles among the largest")
    scored = json.loads(run([sojourn, "score", model, "held-out.txt", "--json"], folder))
    check(-5.0 < scored["per_step"] < -4.0, f"a held-out score as usual: {scored['per_step']:.3f}")
    lines = run([sojourn, "decode", model, "held-out.txt", "--words"], folder).splitlines()
    n_lines = len((folder / "held-out.txt").read_text().splitlines())
    check(len(lines) == n_lines, "a line of states for every sentence")
    run([sojourn, "report", model, "--data", "corpus.txt", "-o", "words.html"], folder)
    look_at(driver, folder / "words.html", {".states .state": 12, ".contexts tr": 24, ".node": 10})
    if driver is None:
        return
    labels = driver.execute_script(
        "return [...document.querySelectorAll('.states .chips')]"
        ".map(chips => chips.children[0].textContent)"
    )
    check("<unk>" not in labels, f"states that are told apart by known words: {labels}")


def earthquakes(sojourn: Path, folder: Path, driver: Any) -> None:
    """Find the three published rates, forecast, and look at the phases."""
    model, data = "quakes.sojourn", "earthquakes.csv"
    options = ["--column", "count", "--model", "hmm", "--states", "3", "--held-out", "0"]
    said = run([sojourn, "fit", data, *options, "--out", model], folder)
    check("Poisson" in said, "counts are recognised")
    scored = json.loads(run([sojourn, "score", model, data, "--json"], folder))
    total = scored["log_likelihood"]
    check(total > -328.9, f"a log likelihood of at least -328.9, published: -328.53: {total:.2f}")
    shown = json.loads(run([sojourn, "inspect", model, "--json"], folder))
    rates = sorted(float(entry["text"].split()[-1]) for entry in shown["top_states"])
    near = all(abs(a - b) < 0.15 for a, b in zip(rates, (13.13, 19.71, 29.71), strict=True))
    check(near, f"the published rates 13.13, 19.71 and 29.71: {rates}")
    run([sojourn, "decode", model, data, "states.parquet"], folder)
    said = run([sojourn, "forecast", model, data, "--steps", "3"], folder)
    check(said.count("+") >= 3, "three years of forecast")
    run([sojourn, "report", model, "--data", data, "-o", "quakes.html"], folder)
    look_at(driver, folder / "quakes.html", {".states .state": 3, ".density": 3, ".band": 5})


def look_at(driver: Any, page: Path, least: dict[str, int]) -> None:
    """Open a report at a desk and on a phone, in light and dark; count what must be there."""
    if driver is None:
        return
    for width in (1280, 390):
        for dark in (False, True):
            look(driver, width, 844, dark=dark)
            driver.get(page.as_uri())
            for selector, n in least.items():
                count = "return document.querySelectorAll(arguments[0]).length"
                found = driver.execute_script(count, selector)
                if found < n:
                    sys.exit(f"newcomer: {page.name} at {width}: {found} of {n} {selector}")
            across = driver.execute_script("return document.documentElement.scrollWidth")
            where = f"{page.name} at {width} pixels, {'dark' if dark else 'light'}"
            check(across <= width, f"{where}: nothing hangs over the edge")
            picture = page.with_name(f"{page.stem}-{width}-{'dark' if dark else 'light'}.png")
            screenshot(driver, picture)
            check(picture.stat().st_size > 10_000, f"{where}: a picture of the page")


def main() -> None:
    """Play."""
    with tempfile.TemporaryDirectory(prefix="newcomer-") as folder:
        play(Path(folder))
    say("all well")


if __name__ == "__main__":
    main()
