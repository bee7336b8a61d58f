"""Play a newcomer: a fresh clone, the demo, a model of a text of one's own, and its report.

python -m tests.newcomer        (make test-newcomer)

Everything happens in a temporary folder, with the commands that the README names.  Without
Chromium it says what is missing and stops with success: there is nothing to open the report with.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.browser import browser, look, problems, screenshot, why_no_browser

ROOT = Path(__file__).parent.parent

TEXT = """\
the old man and the sea
a young woman reads the old book
the sea is calm and the sky is clear
a man walks along the sea
the woman writes a long letter
the book tells of a young man
a letter comes from the sea
the sky and the sea are grey
"""


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
    clone = folder / "sojourn"
    run(["git", "clone", "--quiet", ROOT, clone], folder)
    said = run(["make", "demo"], clone)
    check("Learned word classes" in said, "the demo shows word classes")
    sojourn = clone / ".venv/bin/sojourn"
    (folder / "mine.txt").write_text(TEXT * 10)
    said = run([sojourn, "fit", "mine.txt", "--states", "6", "--out", "mine.sojourn"], folder)
    check("saved: mine.sojourn" in said, "fit says where the model is")
    check(bool(re.search(r"sojourn report mine\.sojourn", said)), "fit says what to do next")
    scored = json.loads(run([sojourn, "score", "mine.sojourn", "mine.txt", "--json"], folder))
    check(-3.5 < scored["per_step"] < 0.0, f"a score a word that makes sense: {scored['per_step']}")
    lines = run([sojourn, "decode", "mine.sojourn", "mine.txt", "--words"], folder).splitlines()
    check(len(lines) == 80 and lines[0].startswith("the/"), "a line of states for every sentence")
    page = folder / "mine.html"
    run([sojourn, "report", "mine.sojourn", "--data", "mine.txt", "-o", page], folder)
    look_at(page, folder)


def look_at(page: Path, folder: Path) -> None:
    """Open the report in a browser, at a desk and on a phone."""
    with browser(folder / "profile") as driver:
        for width in (1280, 390):
            look(driver, width, 844)
            driver.get(page.as_uri())
            count = "return document.querySelectorAll('.states .state').length"
            check(driver.execute_script(count) > 1, f"a table of states at {width} pixels")
            words = "return document.querySelector('.states').textContent"
            check("the" in driver.execute_script(words), "words of the text in it")
            screenshot(driver, folder / f"{width}.png")
            check((folder / f"{width}.png").stat().st_size > 10_000, "a picture of the page")
        said = problems(driver)
    check(not said, f"no error in the console {said or ''}")


def main() -> None:
    """Play, or say why not."""
    missing = why_no_browser()
    if missing is not None:
        say(f"skipped: {missing}")
        return
    with tempfile.TemporaryDirectory(prefix="newcomer-") as folder:
        play(Path(folder))
    say("all well")


if __name__ == "__main__":
    main()
