"""Constraints on start and transitions: what they say, and the mathematics that follows."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln

from sojourn.inference import COLLAPSED
from sojourn.inference.objective import MEAN_FIELD
from sojourn.inference.posterior import regrouped_counts
from sojourn.moves.pairs import merge_weights
from sojourn.transitions import (
    HDP,
    Dirichlet,
    GammaDistribution,
    PointHDP,
    RowConstraints,
    Rows,
    StickyDirichlet,
)
from sojourn.transitions.base import log_row_evidence
from sojourn.transitions.hdp_updates import row_totals, tables_and_log_eta
from sojourn.transitions.merging import merge_gains
from sojourn.transitions.point_hdp import constrained_stick_loss
from sojourn.transitions.rows import stacked
from sojourn.transitions.tables import Occurrence

NAN = np.nan
MIXED = np.array(
    [[NAN, NAN, 0.2, 0.1], [0.0, NAN, NAN, 0.0], [NAN, 0.0, NAN, NAN], [0, 0, 0.5, 0.5]]
)


def mixed(n_states=4):
    made = RowConstraints.make(n_states, MIXED[:n_states, :n_states], None)
    assert made is not None
    return made


def drawn_counts(constraints, seed=0, n_states=4):
    rng = np.random.default_rng(seed)
    whole = Rows(rng.gamma(2.0, 3.0, n_states), rng.gamma(2.0, 3.0, (n_states, n_states)))
    return Rows(*(part * may for part, may in zip(whole, constraints.allowed, strict=True)))


def priors(constraints, n_states=4):
    hdp = HDP.make(n_states, constraints=constraints, batch_size=1, sort_states=False)
    counts = drawn_counts(constraints, 5, n_states)
    return {
        "dirichlet": Dirichlet.make(n_states, None, 0.3, 0.0, constraints),
        "kept": Dirichlet.make(n_states, None, 0.3, 1.5, constraints),
        "sticky": StickyDirichlet(Dirichlet.make(n_states, None, 0.3, 0.0, constraints)).refitted(
            counts
        ),
        "hdp": hdp.refitted(counts),
        "sticky hdp": HDP.make(n_states, constraints=constraints, stickiness=2.0).refitted(counts),
        "learned hdp": HDP.make(n_states, constraints=constraints, learn_stickiness=True).refitted(
            counts
        ),
    }


@pytest.mark.parametrize(
    ("transitions", "start", "message"),
    [
        ("right-left", None, "not one of left-right"),
        (np.zeros((2, 3)), None, r"shape \(2, 3\)"),
        ([[NAN, NAN, NAN], [0, 0, 0], [NAN, NAN, NAN]], None, "row 1 .* allows nothing"),
        ([[0.5, 0.6, NAN], [NAN] * 3, [NAN] * 3], None, "leaves nothing"),
        ([[0.5, 0.4, 0.0], [NAN] * 3, [NAN] * 3], None, "is not one"),
        ([[-1, 0.4, 0.0], [NAN] * 3, [NAN] * 3], None, r"transition_constraints\[\(0, 0\)\] is -1"),
        (None, [0, 0, 0], "start_constraints allows nothing"),
        (None, ["a", 1, 2], "not an array of numbers"),
    ],
)
def test_what_cannot_be_a_constraint_is_refused(transitions, start, message):
    with pytest.raises(ValueError, match=message):
        RowConstraints.make(3, transitions, start)


def test_names_stand_for_arrays():
    allowed = {
        name: RowConstraints.make(3, name, None).allowed.transitions.astype(int).tolist()
        for name in ("left-right", "upper-triangular", "no-self")
    }
    assert allowed == {
        "left-right": [[1, 1, 0], [0, 1, 1], [0, 0, 1]],
        "upper-triangular": [[1, 1, 1], [0, 1, 1], [0, 0, 1]],
        "no-self": [[0, 1, 1], [1, 0, 1], [1, 1, 0]],
    }
    assert RowConstraints.make(3, "left-right", None).allowed.start.tolist() == [True, False, False]
    assert RowConstraints.make(3, "upper-triangular", None).allowed.start.all()


@pytest.mark.parametrize(
    "kind", ["dirichlet", "kept", "sticky", "hdp", "sticky hdp", "learned hdp"]
)
def test_given_probabilities_are_kept_and_the_rest_is_shared_out(kind):
    constraints = mixed()
    prior, counts = priors(constraints)[kind], drawn_counts(constraints)
    free, given = constraints.free.transitions > 0, constraints.given.transitions
    concentrations = prior.concentrations(counts)
    found = [
        prior.means(counts).transitions,
        COLLAPSED.transition_potentials(concentrations).transitions,
    ]
    for matrix in found:
        np.testing.assert_array_equal(matrix[~free], given[~free])
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0)
    own = prior.prior_counts().rows.transitions + counts.transitions
    for k in range(3):  # the last row is given completely
        shares = own[k][free[k]] / own[k][free[k]].sum()
        np.testing.assert_allclose(found[1][k][free[k]], (1 - given[k].sum()) * shares)
    mean_field = MEAN_FIELD.transition_potentials(concentrations).transitions
    np.testing.assert_array_equal(mean_field[~free], given[~free])
    assert (mean_field <= found[1] + 1e-12).all()


@pytest.mark.parametrize("kind", ["dirichlet", "kept"])
def test_the_evidence_is_that_of_an_urn_from_which_steps_are_drawn_one_by_one(kind):
    constraints = mixed()
    prior, rng = priors(constraints)[kind], np.random.default_rng(1)
    counts, total, state = Rows(np.zeros(4), np.zeros((4, 4))), 0.0, 0
    counts.start[0] = 1.0
    total += np.log(prior.means(Rows(np.zeros(4), np.zeros((4, 4)))).start[0])
    for _ in range(40):
        chances = prior.means(counts).transitions[state]
        after = int(rng.choice(4, p=chances))
        total += np.log(chances[after])
        counts.transitions[state, after] += 1.0
        state = after
    assert prior.collapsed_bound(counts) == pytest.approx(total)


def test_the_mean_field_divergence_is_the_gap_of_the_evidence():
    """KL(q || p) = Σ C E[log θ] − log evidence for Dirichlet rows; here from draws of θ."""
    constraints = mixed()
    prior, counts = priors(constraints)["dirichlet"], drawn_counts(constraints)
    rng = np.random.default_rng(0)
    expected = 0.0
    for k in range(4):
        free = constraints.free.transitions[k] > 0
        given = constraints.given.transitions[k]
        expected += np.sum(counts.transitions[k][given > 0] * np.log(given[given > 0]))
        if free.any():
            cells = prior.prior.transitions[k][free] + counts.transitions[k][free]
            logs = np.log((1 - given.sum()) * rng.dirichlet(cells, 100_000))
            expected += counts.transitions[k][free] @ logs.mean(axis=0)
    cells = prior.prior.start + counts.start
    expected += counts.start @ np.log(rng.dirichlet(cells, 100_000)).mean(axis=0)
    found = prior.divergence(counts) + prior.collapsed_bound(counts)
    assert found == pytest.approx(expected, abs=0.2)


@pytest.mark.parametrize("kind", ["hdp", "sticky hdp"])
def test_tables_are_the_gradient_of_the_evidence(kind):
    """Fisher's identity: E[s_j] = ∂ log p(C) / ∂ log w_j, auxiliary tables included, eq (41)."""
    constraints = mixed()
    hdp, counts = priors(constraints)[kind], drawn_counts(constraints, 2)
    rounded = stacked(Rows(np.round(counts.start), np.round(counts.transitions)))
    certain = Occurrence(rounded, rounded[1:].sum(axis=1))
    tables, log_eta = tables_and_log_eta(hdp, rounded, certain)
    cells, free = stacked(hdp.update_cells), stacked(constraints.free)
    wholes = np.array([hdp.alpha.mean] + [hdp.alpha.mean + hdp.stickiness] * 4)

    def evidence(w, scale=1.0):
        """Return Σ_k log p(C_k) of rows with the concentrations w over what they may choose."""
        totals = scale * wholes - ((1 - free) * w).sum(axis=1)
        n = (free * rounded).sum(axis=1)
        rows = gammaln(totals) - gammaln(totals + n)
        return rows.sum() + (free * (gammaln(w + rounded * free) - gammaln(w))).sum()

    step = 1e-5
    numeric = np.zeros_like(cells)
    for at in np.ndindex(*cells.shape):
        up, down = cells.copy(), cells.copy()
        up[at] *= 1 + step
        down[at] *= 1 - step
        numeric[at] = (evidence(up) - evidence(down)) / (2 * step)
    np.testing.assert_allclose(tables, numeric, rtol=1e-4, atol=1e-6)
    # The derivative by all of α is −Σ E[log η], which the rate of its posterior needs.
    slope = (evidence(cells, 1 + step) - evidence(cells, 1 - step)) / (2 * step)
    assert (log_eta * wholes).sum() == pytest.approx(slope, rel=1e-4)
    first, others = row_totals(hdp)
    np.testing.assert_allclose(np.append(first, others), wholes - ((1 - free) * cells).sum(axis=1))


def test_the_gradient_of_the_weights_is_that_of_their_bound():
    constraints, rng = mixed(), np.random.default_rng(3)
    counts, free = stacked(drawn_counts(constraints)), stacked(constraints.free)
    logits = rng.normal(size=4)
    _, gradient = constrained_stick_loss(logits, counts, 4.0, 2.0, free)
    for i in range(4):
        step = np.eye(4)[i] * 1e-6
        up, down = (
            constrained_stick_loss(logits + sign * step, counts, 4.0, 2.0, free)[0]
            for sign in (1, -1)
        )
        assert gradient[i] == pytest.approx((up - down) / 2e-6, rel=1e-5, abs=1e-6)


def test_a_point_estimate_obeys_constraints_and_has_a_divergence():
    constraints = mixed()
    prior, counts = (
        PointHDP.make(4, constraints=constraints, batch_size=1),
        drawn_counts(constraints),
    )
    after = prior.observe(counts, None, 1, 1)
    matrix = after.means(counts).transitions
    np.testing.assert_array_equal(matrix[constraints.free.transitions == 0][:3], [0.2, 0.1, 0.0])
    # Without constraints on any cell it is what it was.
    open_ = RowConstraints.of(Rows(np.full(4, NAN), np.full((4, 4), NAN)))
    plain, same = PointHDP.make(4), PointHDP.make(4, constraints=open_)
    assert same.divergence(counts) == pytest.approx(plain.divergence(counts))
    one, two = (own.observe(counts, None, 1, 10_000_000) for own in (plain, same))
    np.testing.assert_allclose(one.logits, two.logits, atol=1e-3)


def test_constraints_that_constrain_nothing_change_nothing():
    open_ = RowConstraints.of(Rows(np.full(4, NAN), np.full((4, 4), NAN)))
    counts = drawn_counts(open_)
    for (name, one), two in zip(priors(open_).items(), priors(open_).values(), strict=True):
        plain = two.constrained(None)
        np.testing.assert_allclose(one.means(counts).transitions, plain.means(counts).transitions)
        assert one.collapsed_bound(counts) == pytest.approx(plain.collapsed_bound(counts)), name
        refitted = (own.refitted(counts).means(counts).transitions for own in (one, plain))
        np.testing.assert_allclose(*refitted, rtol=1e-6)


ALIKE = np.array([[NAN, NAN, 0.0, NAN], [NAN, NAN, 0.0, NAN], [0.2, 0.2, NAN, 0.0], [NAN] * 4])


def test_states_with_the_same_constraints_may_become_one():
    made = RowConstraints.make(4, ALIKE, None)
    first, second = np.triu_indices(4, 1)
    alike = made.may_merge(first, second)
    assert list(zip(first[alike], second[alike], strict=True)) == [(0, 1)]
    merged = made.regrouped(merge_weights(4, [(0, 1)])).values.transitions
    np.testing.assert_array_equal(merged, [[NAN, 0.0, NAN], [0.4, NAN, 0.0], [NAN] * 3])


NEIGHBOURS = [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("name", ["no-self", "left-right", "upper-triangular"])
def test_states_become_one_under_the_same_constraints_of_fewer(name):
    made = RowConstraints.make(4, name, None)
    first, second = np.triu_indices(4, 1)
    may = made.may_merge(first, second)
    pairs = list(zip(first[may].tolist(), second[may].tolist(), strict=True))
    assert pairs == (list(itertools.combinations(range(4), 2)) if name == "no-self" else NEIGHBOURS)
    expected = RowConstraints.make(3, name, None).values
    for pair in pairs:
        merged = made.regrouped(merge_weights(4, [pair])).values
        for one, two in zip(merged, expected, strict=True):
            np.testing.assert_array_equal(one, two)


def test_states_that_constraints_tell_apart_stay_two():
    def pairs(values, start=None):
        made = RowConstraints.make(len(values), values, start)
        first, second = np.triu_indices(len(values), 1)
        may = made.may_merge(first, second)
        return list(zip(first[may].tolist(), second[may].tolist(), strict=True))

    # One state in place of both would have nothing that follows it.
    assert pairs(np.array([[0.0, NAN], [NAN, 0.0]])) == []
    # They never follow each other, and stay: two that are kept apart on purpose.
    apart = np.full((3, 3), NAN)
    apart[0, 1] = apart[1, 0] = 0.0
    assert pairs(apart) == []
    # A way around the second, which the last does not lead to.
    assert pairs(np.array([[NAN, NAN, NAN], [0.0, NAN, NAN], [NAN, 0.0, NAN]])) == []
    given = np.array([[NAN, 0.1, 0.0], [0.0, NAN, NAN], [0.0, 0.0, NAN]])
    assert (0, 1) not in pairs(given)


@pytest.mark.parametrize("kind", ["dirichlet", "kept", "sticky"])
@pytest.mark.parametrize("name", ["alike", "no-self", "left-right", "upper-triangular"])
def test_the_gain_of_a_merge_is_the_difference_of_two_evaluations(kind, name):
    known = np.where(ALIKE == 0.2, 0.0, ALIKE) if name == "alike" else name
    made = RowConstraints.make(4, known, None)
    prior, counts = priors(made)[kind], drawn_counts(made)

    def evidence(transitions, counted):
        cells, first, totals, constraints = transitions.evidence_prior()
        return log_row_evidence(cells, Rows(first, totals), counted, None, constraints)

    first, second = np.triu_indices(4, 1)
    may = made.may_merge(first, second)
    gains = merge_gains(prior, counts, first[may], second[may])
    for gain, pair in zip(gains, zip(first[may], second[may], strict=True), strict=True):
        weights = merge_weights(4, [pair])
        after = prior.regrouped(weights)
        pooled = regrouped_counts(counts, weights, after.constraints)
        for count, allowed in zip(pooled, after.constraints.allowed, strict=True):
            assert (count[~allowed] == 0.0).all()
        assert gain == pytest.approx(evidence(after, pooled) - evidence(prior, counts)), pair


def test_a_state_that_others_need_is_not_deleted():
    left_right = RowConstraints.make(3, "left-right", None)
    assert [left_right.may_delete(k) for k in range(3)] == [False, False, True]
    upper = RowConstraints.make(3, "upper-triangular", None)
    assert [upper.may_delete(k) for k in range(3)] == [True, True, True]
    assert not mixed().may_delete(2)  # given probabilities lead to it


def test_files_have_the_constraints_and_refuse_bad_ones():
    for prior in [*priors(mixed()).values(), PointHDP.make(4, constraints=mixed())]:
        values, arrays = prior.state()
        same = type(prior).from_state(values, arrays)
        for one, two in zip(same.constraints.values, mixed().values, strict=True):
            np.testing.assert_array_equal(one, two)
        same.constraints.check(4)
        bad = arrays | {"constraints.transitions": np.full((4, 4), 2.0)}
        with pytest.raises(ValueError, match="not probabilities"):
            type(prior).from_state(values, bad)
    with pytest.raises(ValueError, match="never happen"):
        mixed().check(4, Rows(np.ones(4), np.ones((4, 4))))


# ---- the HDP with forbidden transitions against a sampler ---------------------------------------


def blocked_gibbs(counts, allowed, alpha_prior, gamma, n_sweeps, rng):
    """Draw π, α and θ given counts, with rejected steps as data (Johnson & Willsky 2013).

    Every step may have been preceded by steps that are not allowed, and were rejected; with their
    number the rows are plain Dirichlets around π again.
    """
    n_rows, k = counts.shape
    cells = np.hstack([counts, np.zeros((n_rows, 1))])
    may = np.hstack([allowed, np.ones((n_rows, 1), bool)])
    pi, alpha = np.full(k + 1, 1.0 / (k + 1)), 2.0
    weights, rows = [], []
    for sweep in range(n_sweeps):
        theta = np.array([rng.dirichlet(np.maximum(alpha * pi, 1e-8)) for _ in cells])
        # The rejected mass is a priori independent of the shares of what is allowed.
        rejected = np.zeros_like(cells)
        for row in range(n_rows):
            away = theta[row][~may[row]].sum()
            n = int(cells[row].sum())
            if n and away > 0:
                whole = rng.negative_binomial(n, max(1.0 - away, 1e-6))
                shares = theta[row][~may[row]] / away
                rejected[row, ~may[row]] = rng.multinomial(min(whole, 10**7), shares)
        full = cells + rejected
        tables = np.zeros_like(full)
        for at in zip(*np.nonzero(full), strict=True):
            base, n = alpha * pi[at[1]], int(full[at])
            tables[at] = (rng.random(n) < base / (base + np.arange(n))).sum()
        totals = full.sum(axis=1)
        eta = rng.beta(alpha, totals)
        alpha = rng.gamma(
            alpha_prior.shape + tables.sum(), 1 / (alpha_prior.rate - np.log(eta).sum())
        )
        s = tables.sum(axis=0)[:-1]
        later = np.cumsum(s[::-1])[::-1] - s
        sticks = rng.beta(1 + s, gamma + later)
        pi = np.append(sticks, 1.0) * np.append(1.0, np.cumprod(1 - sticks))
        if sweep >= n_sweeps // 5:
            weights.append(pi)
            base = np.where(may, alpha * pi + cells, 0.0)
            rows.append((base / base.sum(axis=1, keepdims=True))[:, :-1])
    return np.mean(weights, axis=0), np.mean(rows, axis=0)


def test_the_hdp_with_forbidden_transitions_agrees_with_a_blocked_gibbs_sampler():
    constraints = RowConstraints.make(3, "no-self", None)
    counts = Rows(np.array([8.0, 1.0, 1.0]), np.array([[0, 9, 9], [28, 0, 2.0], [22, 8, 0]]))
    prior, gamma = GammaDistribution(2.0, 0.5), 2.0
    hdp = HDP.make(
        3,
        alpha_prior=prior,
        gamma_prior=GammaDistribution(gamma * 1e6, 1e6),
        sort_states=False,
        constraints=constraints,
    )
    data = stacked(counts)
    certain = Occurrence(data, data[1:].sum(axis=1))
    for _ in range(200):
        hdp = hdp.blended(data, certain, 0.5)
        hdp = replace(hdp, n_updates=1)
    allowed = stacked(constraints.allowed)
    rng = np.random.default_rng(0)
    weights, rows = blocked_gibbs(data, allowed, prior, gamma, 1500, rng)
    found = hdp.means(counts)
    np.testing.assert_allclose(stacked(found), rows, atol=0.02)
    np.testing.assert_allclose(hdp.sticks.mean_weights, weights[:-1], atol=0.05)
    assert (np.diagonal(found.transitions) == 0.0).all()
