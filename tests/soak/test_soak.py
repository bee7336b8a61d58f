"""A short run of every part of the soak, and the cases that failed in longer ones."""

import json
import os
import random
import signal

import numpy as np
import pytest

from tests.soak import commands, data_files, figures, harness, inputs, kills, model_files

PARTS = {part.PART.name: part for part in (inputs, model_files, data_files, commands)}
SHORT = {"inputs": 300, "model_files": 300, "data_files": 200, "commands": 40}
KEPT = sorted(harness.CASES.glob("*.json"))


@pytest.mark.parametrize("name", PARTS)
def test_a_short_run_finds_nothing(name):
    outcome = PARTS[name].soak_part(1, count=SHORT[name], keep=False)
    assert [failure["error"] for failure in outcome.failures] == []
    assert outcome.cases == SHORT[name]
    assert outcome.accepted > 0
    assert outcome.refused > 0


def test_a_few_kills_lose_nothing():
    outcome = kills.soak_part(1, count=8)
    assert outcome.failures == []
    assert outcome.accepted >= 8


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_once_failed_does_so_no_more(path):
    kept = json.loads(path.read_text())
    harness.run_case(PARTS[kept["part"]].PART, kept["case"])


def test_the_page_has_the_figures_of_the_file():
    results, page = json.loads(figures.RESULTS.read_text()), figures.PAGE.read_text()
    assert results["totals"] == figures.totals(results["runs"])
    assert page == figures.page_with(page, results)


# ---- the soak itself finds what it is for --------------------------------------------------------


def part_that(run, allowed=(ValueError,)):
    return harness.Part("made_up", lambda rng: [rng.randrange(100) for _ in range(5)], run, allowed)


def test_a_crash_is_found_and_the_run_goes_on():
    def run(case):
        if case[0] == 7:
            os.kill(os.getpid(), signal.SIGSEGV)
        return True

    outcome = harness.soak(part_that(run), 0, count=300, keep=False)
    assert outcome.cases == 300
    crashed = [f for f in outcome.failures if f["error"].startswith("crash by SIGSEGV")]
    assert crashed
    assert all(f["case"][0] == 7 for f in crashed)


def test_errors_of_others_are_not_documented_ones():
    for run in (lambda case: np.zeros(3).reshape(2, 2), lambda case: int("x"), lambda case: 1 / 0):
        with pytest.raises((ValueError, ZeroDivisionError)):
            harness.run_case(part_that(run), [1])


def test_failures_are_shrunk():
    def run(case):
        if max(case) >= 50:
            raise harness.WrongError("too large")
        return True

    part = part_that(run)
    case = next(c for c in map(part.make, map(random.Random, range(99))) if max(c) >= 50)
    with pytest.raises(harness.WrongError) as raised:
        harness.run_case(part, case)
    small = harness.shrunk(part, case, harness.kind_of(harness.describe(raised.value)))
    assert sorted(small) == [0, 0, 0, 0, 50]
