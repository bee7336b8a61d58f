"""Figure 2 of the paper: SVI, SCVI and SCVI-HDP over minibatch sizes and forgetting rates.

Every fit is a cell.  Its points are written to a separate file as soon as it is done, so that an
interrupted run continues where it stopped; the figure is drawn from these files.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from experiments.reproduce.corpus import Corpus
from sojourn.families import Categorical
from sojourn.inference import Progress
from sojourn.models import HDPHMM, HMM
from sojourn.sources import open as open_source
from sojourn.transitions.options import HDPOptions
from sojourn.whole_files import write_whole

METHODS = ("SVI", "SCVI", "SCVI-HDP")
POINTS_PER_PASS = 5  # three times as many in the first pass

PAPER: dict[str, Any] = {
    "transition_concentration": 0.1,
    "emission_concentration": 0.1,
    "alpha_prior": (1.0, 0.1),
    "gamma_prior": (1.0, 0.1),
    "hdp_batch_size": 10_000,
    "delay": 1.0,
}
"""Settings of all cells, as in the paper."""

Report = Callable[[float, int, str], None]
"""Receives the share that is done, the number of cells done, and a line about the last one."""


@dataclass(frozen=True)
class Cell:
    """One fit.

    Attributes
    ----------
    method : str
        One of `METHODS`.
    batch_size : int
        M.
    forgetting_rate : float
        κ.
    n_states : int
        K.
    n_passes : int
    seed : int
    """

    method: str
    batch_size: int
    forgetting_rate: float
    n_states: int
    n_passes: int
    seed: int

    @property
    def name(self) -> str:
        """Name of its file."""
        return (
            f"{self.method.lower()}-M{self.batch_size}-kappa{self.forgetting_rate:g}"
            f"-K{self.n_states}-seed{self.seed}"
        )

    def model(self, n_symbols: int, n_jobs: int | None, device: str = "cpu") -> HMM | HDPHMM:
        """Make the model of the paper, without any of the later options."""
        emission = Categorical(n_symbols, concentration=PAPER["emission_concentration"])
        common: dict[str, Any] = {
            "batch_size": self.batch_size,
            "n_passes": self.n_passes,
            "forgetting_rate": self.forgetting_rate,
            "delay": PAPER["delay"],
            "init": "exponential",
            "moves": None,
            "tuned": False,
            "random_state": self.seed,
            "n_jobs": n_jobs,
            "device": device,
        }
        if self.method == "SCVI-HDP":
            return HDPHMM(
                self.n_states,
                emission,
                hdp_batch_size=PAPER["hdp_batch_size"],
                hdp=HDPOptions(
                    alpha_prior=PAPER["alpha_prior"],
                    gamma_prior=PAPER["gamma_prior"],
                    second_order_tables=False,
                    sort_states=False,
                    exchangeable_tables=False,
                ),
                **common,
            )
        return HMM(
            self.n_states,
            emission,
            inference="svi" if self.method == "SVI" else "scvi",
            transition_concentration=PAPER["transition_concentration"],
            **common,
        )


def small_grid(
    batch_sizes: tuple[int, ...] = (10, 100, 1000),
    forgetting_rates: tuple[float, ...] = (0.5, 0.7, 0.9),
    n_states: int = 45,
    n_passes: int = 10,
    n_seeds: int = 3,
) -> list[Cell]:
    """Return the cells of the upper rows: M by κ, score against passes."""
    return [
        Cell(method, batch_size, rate, n_states, n_passes, seed)
        for batch_size in sorted(batch_sizes, reverse=True)
        for rate in forgetting_rates
        for seed in range(n_seeds)
        for method in METHODS
    ]


def large_grid(
    states: tuple[int, ...] = (45, 100), n_seeds: int = 1, n_passes: int = 1
) -> list[Cell]:
    """Return the cells of the last row: K, score against wall-clock time."""
    return [
        Cell(method, 1000, 0.5, n_states, n_passes, seed)
        for n_states in states
        for seed in range(n_seeds)
        for method in METHODS
    ]


def run_small(
    corpus: Corpus,
    cells: list[Cell],
    out: Path,
    *,
    n_jobs: int | None = None,
    report: Report | None = None,
) -> dict[str, Any]:
    """Run the missing cells, and write all points to ``figure2.json``."""
    data = {"corpus": corpus.described(), "digest": corpus.fingerprint()}
    validation = corpus.held_out
    n_batches = {cell.batch_size: -(-len(corpus.train) // cell.batch_size) for cell in cells}

    def fit(cell: Cell, callback: Callable[[Progress], None]) -> list[list[float]]:
        model = cell.model(len(corpus.vocabulary), n_jobs)
        every = max(1, n_batches[cell.batch_size] // (3 * POINTS_PER_PASS))
        model.fit(corpus.train, validation=validation, validation_every=every, callback=callback)
        return thinned(_points(model))

    return _run(cells, fit, data, out / "figure2.json", report)


def run_large(
    data: Path,
    held_out: Path,
    cells: list[Cell],
    out: Path,
    *,
    name: str,
    device: str = "cpu",
    n_jobs: int | None = None,
    report: Report | None = None,
) -> dict[str, Any]:
    """Run the cells on a file that may be larger than memory; points to ``figure2-large.json``.

    On a GPU the data are read into memory first, and copied there.
    """
    source, validation = open_source(data), open_source(held_out).read_all()
    n_symbols = source.summary.n_symbols
    if n_symbols is None:
        raise ValueError(f"{data} does not say how many symbols it has: make it by ingest")
    described: dict[str, Any] = {
        "corpus": {
            "name": name,
            "sentences": source.n_sequences,
            "tokens": source.n_steps,
            "held_out_tokens": validation.n_steps,
            "words": n_symbols,
        },
        "digest": source.fingerprint(),
        "device": device,
    }
    learned_from: Any = data if device == "cpu" else source.read_all()
    n_batches = -(-source.n_sequences // 1000)

    def fit(cell: Cell, callback: Callable[[Progress], None]) -> list[list[float]]:
        model = cell.model(n_symbols, n_jobs, device)
        if device != "cpu":  # so that no time of compilation is in the figure
            few = learned_from[: 30 * cell.batch_size]
            cell.model(n_symbols, n_jobs, device).fit(few, validation=validation)
        every = max(1, n_batches // 25)
        model.fit(learned_from, validation=validation, validation_every=every, callback=callback)
        return _points(model)

    return _run(cells, fit, described, out / "figure2-large.json", report)


def _points(model: HMM | HDPHMM) -> list[list[float]]:
    """Return (passes, seconds, score) for every score."""
    return [
        [round(entry["passes"], 4), round(entry["seconds"], 3), round(entry["score"], 5)]
        for entry in model.history_
    ]


def thinned(points: list[list[float]]) -> list[list[float]]:
    """Keep every point of the first pass, and every third and the ends of passes later."""
    return [
        point
        for i, point in enumerate(points)
        if point[0] <= 1 or i % 3 == 0 or point[0] == round(point[0])
    ]


def _run(
    cells: list[Cell],
    fit: Callable[[Cell, Callable[[Progress], None]], list[list[float]]],
    data: dict[str, Any],
    path: Path,
    report: Report | None,
) -> dict[str, Any]:
    """Fit the cells that have no file yet, then write the collected points."""
    folder = path.parent / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    tell = report if report is not None else (lambda share, n_done, line: None)
    results = []
    for n_done, cell in enumerate(cells):

        def progress(now: Progress, n_done: int = n_done, n_passes: int = cell.n_passes) -> None:
            tell((n_done + now.passes / n_passes) / len(cells), n_done, "")

        wanted = fingerprint(cell, data)
        own = folder / f"{path.stem}-{cell.name}.json"
        points = _finished(own, wanted)
        if points is None:
            points = fit(cell, progress)
            _write_json(own, {"fingerprint": wanted, "points": points})
        results.append({**asdict(cell), "points": points})
        line = f"{cell.name}: {points[-1][2]:.4f} nats per token, {points[-1][1]:.1f} s"
        tell((n_done + 1) / len(cells), n_done + 1, line)
    result = {
        "date": date.today().isoformat(),
        "machine": {"cores": os.cpu_count()} | _device(data.get("device", "cpu")),
        "corpus": data["corpus"],
        "settings": PAPER,
        "columns": ["passes", "seconds", "nats a token"],
        "final": final_scores(results),
        "cells": results,
    }
    _write_json(path, result)
    return result


def _device(device: str) -> dict[str, str]:
    """Name the GPU, if there is one at work."""
    if device == "cpu":
        return {}
    import torch

    return {"device": torch.cuda.get_device_name()}


def fingerprint(cell: Cell, data: dict[str, Any]) -> str:
    """Return a digest of everything that determines the points of a cell."""
    content = json.dumps([asdict(cell), data["digest"], PAPER], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _finished(path: Path, wanted: str) -> list[list[float]] | None:
    """Return the points of a cell that is done with these settings, else None."""
    try:
        content = json.loads(path.read_text())
        return content["points"] if content["fingerprint"] == wanted else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_json(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=1)
    # A point takes a line, not one for every number.
    text = "".join(_joined(text.splitlines(keepends=True)))
    write_whole(path, text.encode())


def _joined(lines: list[str]) -> Iterator[str]:
    inside: list[str] = []
    for line in lines:
        stripped = line.strip()
        if inside or stripped == "[":
            inside.append(stripped if inside else line.rstrip())
            if stripped == "[" and len(inside) > 1:  # a list of lists: the outer one stays open
                yield inside[0] + "\n"
                inside = [line.rstrip()]
            elif stripped in ("]", "],"):
                yield inside[0] + " ".join(inside[1:-1]) + inside[-1] + "\n"
                inside = []
        else:
            yield line


def final_scores(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tabulate the last score of each method by M, κ and K: mean, least and largest of seeds."""
    table: dict[tuple[int, float, int], dict[str, list[float]]] = {}
    for cell in cells:
        key = (cell["batch_size"], cell["forgetting_rate"], cell["n_states"])
        table.setdefault(key, {}).setdefault(cell["method"], []).append(cell["points"][-1][2])
    return [
        {
            "batch_size": batch_size,
            "forgetting_rate": rate,
            "n_states": n_states,
            **{
                method: {
                    "mean": round(float(np.mean(scores)), 4),
                    "least": round(min(scores), 4),
                    "largest": round(max(scores), 4),
                }
                for method, scores in by_method.items()
            },
        }
        for (batch_size, rate, n_states), by_method in table.items()
    ]
