"""Pages from scripts: prose in comments, code, what it prints, and the pictures that it makes."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

PAGES = ("how-scvi-works.py", "gallery/*.py")
"""Scripts that are pages, below the folder of the documentation."""


OPTIONAL = {
    "Guides": {
        "The number of states": "number-of-states.md",
        "On a GPU": "gpu.md",
        "On a cluster": "cluster.md",
    },
    "How it works": {"The paper's experiments": "reproduction.md"},
}
"""Pages that are added to the navigation where they exist, by section and title."""


class Page(NamedTuple):
    """A page made by running a script.

    Attributes
    ----------
    markdown : str
    pictures : dict of bytes
        PNG files by their names, which the page refers to.
    names : dict
        What the script has defined in the end.
    """

    markdown: str
    pictures: dict[str, bytes]
    names: dict[str, Any]


def find(docs: Path) -> list[Path]:
    """Return the scripts that are pages."""
    return [path for pattern in PAGES for path in sorted(docs.glob(pattern))]


def split(text: str) -> list[tuple[str, str]]:
    """Cut a script into ("prose", ...) and ("code", ...), in order."""
    pieces: list[tuple[str, str]] = []
    for line in text.splitlines():
        kind = "prose" if line.startswith("#") else "code"
        if line.strip() and pieces and pieces[-1][0] == kind:
            pieces[-1] = (kind, f"{pieces[-1][1]}\n{line}")
        elif line.strip():
            pieces.append((kind, line))
        elif pieces:
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + "\n")
    return [
        (kind, _uncommented(part) if kind == "prose" else part.strip("\n")) for kind, part in pieces
    ]


def _uncommented(text: str) -> str:
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.splitlines())


def run(path: Path) -> Page:
    """Run a script and write down what comes of it."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    names: dict[str, Any] = {"__name__": path.stem}
    written: list[str] = []
    pictures: dict[str, bytes] = {}
    for kind, text in split(path.read_text()):
        if kind == "prose":
            written.append(text)
            continue
        said = io.StringIO()
        with redirect_stdout(said):
            exec(compile(text, str(path), "exec"), names)
        written.append(f"```python\n{text}\n```")
        if said.getvalue():
            written.append(f"```text\n{said.getvalue().rstrip()}\n```")
        for number in plt.get_fignums():
            name = f"{path.stem}-{len(pictures) + 1}.png"
            picture = io.BytesIO()
            plt.figure(number).savefig(picture, dpi=144)
            pictures[name] = picture.getvalue()
            written.append(f"![what the code above draws]({name})")
        plt.close("all")
    return Page("\n\n".join(written) + "\n", pictures, names)
