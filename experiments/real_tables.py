"""Tables of the gallery's pages on data that are not part of the repository.

python -m experiments.real_tables
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.real import PICTURES, RESULTS

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def mocap6(result: dict[str, Any]) -> str:
    """Tabulate Hamming distances."""
    found, published = result["found"]["mocap6"], result["published"]["mocap6"]
    low, high = published["hamming_distance"]
    rows = [
        "| | Hamming distance | states | seconds |",
        "|---|---|---|---|",
        f"| sticky HDP-HMM and beta-process HMM, published | {low} to {high} | | |",
        f"| bnpy | {published['bnpy']['hamming_distance']} | | {published['bnpy']['seconds']} |",
    ]
    rows += [
        f"| `{found['model']}`, seed {run['seed']} | {run['hamming_distance']:.2f} | "
        f"{run['states']} | {run['seconds']:.0f} |"
        for run in found["runs"]
    ]
    return "\n".join([_where(result, found), "", *rows])


def chromatin(result: dict[str, Any]) -> str:
    """Tabulate the states."""
    found = result["found"]["chromatin"]
    rows = ["| bins | in a row | likeliest marks, with a probability above 0.1 |", "|---|---|---|"]
    rows += [
        f"| {state['share']:.1%} | {state['bins_in_a_row']:.0f} | "
        f"{', '.join(state['marks']) or 'none'} |"
        for state in found["states"]
    ]
    text = (
        f"The log likelihood per bin is {found['log_likelihood_per_step']:.3f}; with independent "
        f"marks it is {found['independent_marks']:.3f}. No likelihood is published for these data."
    )
    return "\n".join([_where(result, found), "", *rows, "", text])


def published(result: dict[str, Any]) -> str:
    """Tabulate what other packages report, and what is found here."""
    known, found = result["published"], result["found"]
    earthquakes, speed, courses = (found[name] for name in ("earthquakes", "speed", "biofam3c"))
    rows = [
        "| data | model | published | maximum likelihood | posterior |",
        "|---|---|---|---|---|",
        _row(
            "earthquakes",
            "3 states, `Poisson`",
            known["earthquakes"]["log_likelihood"],
            earthquakes["prior_outweighed"]["log_likelihood"],
            earthquakes["log_likelihood"],
        ),
    ]
    models = {
        "one_state": "1 state, `Gaussian`",
        "two_states": "2 states, `Gaussian`",
        "given_parameters": "2 states, `Gaussian` × `Categorical`, parameters given",
        "four_states": "4 states, 3 × `Categorical`, none goes back",
    }
    for name, own in (("speed", speed), ("biofam3c", courses)):
        rows += [
            _row(name, text, known[name][key], own[key], own["posterior"].get(key))
            for key, text in models.items()
            if key in own
        ]
    bic = known["biofam3c"]["bic"]
    bics = f"The BIC of the last is {courses['bic']:,.2f}; {bic:,} is published."
    dates = {own.get("date", result["date"]) for own in (earthquakes, speed, courses)}
    measured = f"Log likelihoods, measured {max(dates)} by `{result['command']}`:"
    return "\n".join([measured, "", *rows, "", bics])


def _row(name: str, model: str, known: float, most: float, posterior: float | None) -> str:
    digits = len(str(known).partition(".")[2])
    own = "" if posterior is None else f"{posterior:,.3f}"
    return f"| {name} | {model} | {known:,} | {most:,.{digits}f} | {own} |".replace("-", "−")


def _where(result: dict[str, Any], found: dict[str, Any]) -> str:
    machine, date = result["machine"], found.get("date", result["date"])
    return (
        f"From {found['steps']:,} steps, on {machine['cores']} cores ({machine['processor']}, "
        f"{date}, `{result['command']}`):"
    )


PAGES: dict[str, Callable[[dict[str, Any]], str]] = {
    "mocap6": mocap6,
    "chromatin": chromatin,
    "published": published,
}


def updated(text: str, name: str, result: dict[str, Any]) -> str:
    """Return a page with the figures of the result file."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{PAGES[name](result)}\n{END}{after}"


def read_result(path: Path = RESULTS) -> dict[str, Any]:
    """Read the result file."""
    return json.loads(path.read_text())


def write_pages() -> None:
    """Write the figures into the pages whose data were measured."""
    result = read_result()
    for name in PAGES:
        if name == "published" or name in result["found"]:
            page = PICTURES / f"{name}.md"
            page.write_text(updated(page.read_text(), name, result))


if __name__ == "__main__":
    write_pages()
