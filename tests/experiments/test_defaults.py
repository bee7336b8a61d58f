"""The experiment on defaults: its data are what the page says, and so are its tables."""

import json

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import multivariate_normal

from experiments import few_words, optima
from experiments.defaults import Task, run_cell, with_others
from experiments.defaults_data import (
    EARTHQUAKES,
    GROUPS,
    KINDS,
    SIZES,
    draw_problem,
    gaussian,
    state_shares,
    transition_rows,
)
from experiments.defaults_peers import PEERS, compare
from experiments.defaults_tables import (
    PAGE,
    SECTIONS,
    between_marks,
    is_right,
    read_cells,
    updated,
)


def test_the_tables_in_the_docs_are_those_of_the_result_file():
    page = PAGE.read_text()
    assert updated(page, read_cells()) == page


@pytest.mark.parametrize(
    ("mark", "path", "table"),
    [
        (few_words.MARK, few_words.RESULT, few_words.table),
        (optima.MARK, optima.RESULT, optima.table),
        (optima.MARK_MANY, optima.RESULT_MANY, optima.table_many),
    ],
)
def test_the_tables_of_other_experiments_are_those_of_their_result_files(mark, path, table):
    page = PAGE.read_text()
    assert between_marks(page, mark, table(json.loads(path.read_text()))) == page


@pytest.mark.parametrize(
    ("states", "truth", "accepted", "right"),
    [
        (3, 4, [], True),
        (6, 4, [], False),
        (29, 30, [], True),
        (28, 30, [], False),
        (97, 100, [], True),
        (104, 100, [], False),
        (41, 40, [], True),
        (4, 3, [2, 3], False),
        (2, 3, [2, 3], True),
    ],
)
def test_what_counts_as_right(states, truth, accepted, right):
    assert is_right(states, truth, accepted) is right


@pytest.mark.parametrize("n_states", [2, 4, 20, 40])
def test_transitions_have_the_shares_that_were_drawn(n_states):
    rng = np.random.default_rng(n_states)
    shares = state_shares(n_states, rng, even=False)
    rows = transition_rows(shares, rng)
    assert np.isclose(shares.min(), min(0.02, 0.4 / n_states))
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    np.testing.assert_allclose(shares @ rows, shares, atol=1e-6)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_seed_draws_the_same_data_again_and_another_seed_others(kind):
    name = next(name for name, cell in SIZES.items() if cell.kind == kind)
    problem = draw_problem(name, SIZES[name], seed=0)
    again, other = (draw_problem(name, SIZES[name], seed=seed) for seed in (0, 1))
    np.testing.assert_array_equal(problem.train.values, again.train.values)
    assert not np.array_equal(problem.train.values, other.train.values)
    assert len(problem.train) == SIZES[name].n_sequences
    assert np.isfinite(problem.truth_score)


@pytest.mark.parametrize("apart", [3.0, 5.0])
def test_gaussian_states_are_as_far_apart_as_said_and_their_density_is_scipys(apart):
    rng = np.random.default_rng(0)
    _, draw, density = gaussian(20, rng, apart)
    centres = draw(np.random.default_rng(1), np.arange(20)) - np.random.default_rng(1).normal(
        size=(20, 2)
    )
    assert pdist(centres).min() == pytest.approx(apart)
    x = rng.normal(size=(7, 2))
    expected = [multivariate_normal(centre, np.eye(2)).logpdf(x) for centre in centres]
    np.testing.assert_allclose(density(x), np.transpose(expected))


def test_cells_leave_enough_steps_for_every_state():
    assert all(cell.n_steps >= 50 * cell.true_states for cell in SIZES.values())
    assert len(EARTHQUAKES) == 107
    names = [name for cells in (*GROUPS.values(), PEERS) for name in cells]
    assert len(set(names)) == len(names)


def test_a_cell_and_a_comparison_make_a_row_each():
    name = "100 steps, Poisson 2"
    ours = Task("sizes", name, [0, 1], None, 1, "cpu")
    theirs = Task("peers", "earthquakes, 3 states", [0], None, 1, "cpu")
    where = {"date": "2026-01-01", "machine": {"cores": 2, "processor": "x"}, "jobs": 1}
    cells = {
        task.name: {"group": task.group, "settings": task.settings(), **where, **found}
        for task, found in ((ours, run_cell(ours)), (theirs, compare(theirs.name, [0], 1)))
    }
    # Ten random starts of hmmlearn, run to the end, find the maximum that is published.
    assert cells[theirs.name]["theirs_best_long"] == pytest.approx(-328.5275, abs=2e-4)
    page = "".join(f"<!-- {mark}: begin -->\n<!-- {mark}: end -->\n" for mark in SECTIONS)
    text = updated(page, cells)
    assert f"| {name} | 2 | 4 | 50 | " in text
    assert "| earthquakes, 3 states | −328.6 | " in text
    assert text.count("Not measured yet.") == 2
    assert updated(text, cells) == text


def test_seeds_of_a_cell_add_up_unless_something_else_differs():
    def cell(seeds, **changes):
        each = [{"seed": seed} for seed in seeds]
        same = {"group": "sizes", "package": "a", "settings": {}, "jobs": 1, "machine": {}}
        return {**same, "each": each, **changes}

    both = with_others(cell([2]), cell([3, 1, 2]))
    assert [run["seed"] for run in both["each"]] == [1, 2, 3]
    assert with_others(cell([2]), cell([1], package="b")) == cell([2])
    assert with_others(cell([2], group="peers"), cell([1])) == cell([2], group="peers")
    assert with_others(cell([2]), {}) == cell([2])
