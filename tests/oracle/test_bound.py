"""The collapsed bound and the gain of a merge, against sums over all paths."""

import itertools

import numpy as np
import pytest
from scipy.special import gammaln

import sojourn as sj
from sojourn.backends.cpu import CpuBackend
from sojourn.families.symbol_prior import SymbolPrior
from sojourn.inference import COLLAPSED, Posterior, Statistics
from sojourn.kernels import cpu, reference
from sojourn.moves.delete import dissolve
from sojourn.moves.judge import Judge
from sojourn.moves.merge import try_merge
from sojourn.moves.pairs import Merge, MergedStates, merge_weights, successive_merges
from sojourn.moves.restart import restart_transitions
from sojourn.moves.sample import Sample, SampleFitter
from sojourn.moves.settings import MoveSettings
from sojourn.moves.split import split_states
from sojourn.moves.workbench import Workbench
from sojourn.sequences import Sequences
from sojourn.transitions import HDP, Dirichlet, Rows, StickyDirichlet
from sojourn.transitions.hdp import prior_divergence
from sojourn.transitions.merging import merge_gains
from tests.support.enumeration import enumerate_paths

K = 3
DATA = Sequences.from_list([np.array([0, 1, 3, 1]), np.array([2, 2]), np.array([3, 0, 1])])
FAMILY = sj.Categorical(4, 0.3)
SETTINGS = MoveSettings()


def prior_of(kind, n_states, counts):
    priors = {
        "dirichlet": Dirichlet.make(n_states, 0.4, 0.7),
        "sticky": Dirichlet.make(n_states, 0.4, 0.7, 2.5),
        "learned": StickyDirichlet(Dirichlet.make(n_states, 0.4, 0.7)),
        "hdp": HDP.make(n_states),
        "sticky hdp": HDP.make(n_states, stickiness=2.5),
        "learned hdp": HDP.make(n_states, learn_stickiness=True),
    }
    return priors[kind].refitted(counts)


KINDS = ["dirichlet", "sticky", "learned", "hdp", "sticky hdp", "learned hdp"]


def posterior_of(kind, seed):
    rng = np.random.default_rng(seed)
    statistics = Statistics(
        rng.exponential(size=K), rng.exponential(size=(K, K)), rng.exponential(size=(K, 4))
    )
    counts = Rows(statistics.start, statistics.transitions)
    return Posterior.from_statistics(statistics, prior_of(kind, K, counts), "float64")


def judge_on(posterior, kernel=cpu, family=FAMILY, most_states=K):
    bench = Workbench(family, CpuBackend(kernel, 1, "float64"))
    sample = Sample.draw([DATA], 1e9, len(DATA), bench, most_states, SETTINGS)
    return Judge.begin(SampleFitter(sample, bench, SETTINGS, 1e18, most_states), posterior)


def all_paths(posterior):
    """Yield each sequence with the probabilities of its paths under q."""
    theta = COLLAPSED.transition_potentials(posterior.transitions.concentrations(posterior.counts))
    natural = FAMILY.prior() + posterior.emissions.dense()
    phi = natural / natural.sum(axis=1, keepdims=True)
    for x in DATA:
        paths = list(enumerate_paths(theta.start, theta.transitions, phi[:, x].T))
        total = sum(weight for _, weight in paths)
        yield x, [(path, weight / total) for path, weight in paths]


def definition(posterior):
    """Expected counts and entropy of q, one path after another."""
    start, transitions, emissions = np.zeros(K), np.zeros((K, K)), np.zeros((K, 4))
    entropy = 0.0
    for x, paths in all_paths(posterior):
        for path, q in paths:
            entropy -= q * np.log(q)
            start[path[0]] += q
            for before, after in itertools.pairwise(path):
                transitions[before, after] += q
            for state, symbol in zip(path, x, strict=True):
                emissions[state, symbol] += q
    return Statistics(start, transitions, emissions), entropy


def evidence(rows):
    """Σ log Γ(A)/Γ(A + C) + log Γ(a + c)/Γ(a), one Γ after another, of (a, A, c)."""
    total = 0.0
    for a, whole, c in rows:
        total += gammaln(whole) - gammaln(whole + c.sum())
        total += sum(gammaln(x + y) - gammaln(x) for x, y in zip(a, c, strict=True))
    return total


def rows_of(transitions, counts):
    cells, start_total, totals, _ = transitions.evidence_prior()
    yield cells.start, start_total, counts.start
    yield from zip(cells.transitions, totals, counts.transitions, strict=True)


def all_counts(posterior):
    """Counts of every way through all sequences, and its probability under q."""
    start, transitions, emissions = np.zeros((1, K)), np.zeros((1, K, K)), np.zeros((1, K, 4))
    weights = np.ones(1)
    for x, paths in all_paths(posterior):
        path, states = np.array([p for p, _ in paths]), np.eye(K)
        pairs = np.einsum("ptk,ptl->pkl", states[path[:, :-1]], states[path[:, 1:]])
        symbols = np.einsum("ptk,tw->pkw", states[path], np.eye(4)[x])
        start = (start[:, None] + states[path[:, 0]]).reshape(-1, K)
        transitions = (transitions[:, None] + pairs).reshape(-1, K, K)
        emissions = (emissions[:, None] + symbols).reshape(-1, K, 4)
        weights = (weights[:, None] * [q for _, q in paths]).ravel()
    return start, transitions, emissions, weights


def expected_evidence(posterior, transitions):
    """E_q[log p(z, x)] with all parameters integrated out, one path after another."""
    start, pairs, symbols, weights = all_counts(posterior)
    cells, start_total, totals, _ = transitions.evidence_prior()
    value = 0.0
    for a, whole, c in (
        (cells.start, start_total, start),
        (cells.transitions, totals, pairs),
        (FAMILY.prior(), 1.2, symbols),
    ):
        rows = gammaln(whole) - gammaln(whole + c.sum(-1))
        rows = rows + (gammaln(a + c) - gammaln(a)).sum(-1)
        value += weights @ rows.reshape(len(weights), -1).sum(1)
    return value


@pytest.mark.parametrize("kernel", [cpu, reference], ids=["cpu", "reference"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_is_its_definition_over_all_paths(kind, kernel):
    """Nine steps, none of them certain, are the worst case of eq (27)."""
    posterior = posterior_of(kind, 5)
    fit = judge_on(posterior, kernel).present
    counts, entropy = definition(posterior)
    rows = Rows(counts.start, counts.transitions)
    for found, expected in zip(fit.posterior.counts, rows, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    transitions = posterior.transitions.refitted(rows)
    divergence = {
        "learned": lambda t: t.stickiness.divergence(t.stickiness_prior),
        "hdp": prior_divergence,
        "sticky hdp": prior_divergence,
        "learned hdp": prior_divergence,
    }.get(kind, lambda t: 0.0)(transitions)
    exact = expected_evidence(posterior, transitions) + entropy - divergence
    emissions = evidence((FAMILY.prior(), 1.2, row) for row in counts.emissions)
    at_means = evidence(rows_of(transitions, rows)) + emissions + entropy - divergence
    assert abs(fit.bound - exact) < 0.1
    assert abs(at_means - exact) > 3.0


def test_the_bound_of_one_state_is_the_log_evidence():
    statistics = Statistics(np.ones(1), np.ones((1, 1)), np.ones((1, 4)))
    posterior = Posterior.from_statistics(statistics, Dirichlet.make(1, 0.4, 0.7), "float64")
    seen, predictive = np.full(4, 0.3), 0.0
    for x in DATA.values:  # the chain rule of the Pólya urn
        predictive += np.log(seen[x] / seen.sum())
        seen[x] += 1
    np.testing.assert_allclose(judge_on(posterior).present.bound, predictive, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_gain_is_the_difference_of_two_full_evaluations(kind):
    posterior = posterior_of(kind, 3)
    judge = judge_on(posterior)
    weights = merge_weights(K, [(0, 2)])
    try_merge(judge, Merge(0.0, 0.0, weights))
    bounds = [judge_on(p).present.bound for p in (posterior, posterior.regrouped(weights))]
    assert judge.moves[0].states == [[0, 2]]
    np.testing.assert_allclose(judge.moves[0].gain, bounds[1] - bounds[0], rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_transitions_part_of_a_merge_is_the_difference_of_two_evaluations(kind):
    rng = np.random.default_rng(2)
    counts = Rows(3 * rng.random(5), 9 * rng.random((5, 5)))
    prior = prior_of(kind, 5, counts)
    first, second = np.triu_indices(5, 1)
    before = evidence(rows_of(prior, counts))
    cells, start_total, totals, _ = prior.evidence_prior()
    for gain, i, j in zip(merge_gains(prior, counts, first, second), first, second, strict=True):
        weights = merge_weights(5, [(i, j)])
        stay = np.delete(np.arange(5), j)
        if prior.shares_weights:
            rows = [(weights @ cells.start, start_total)]
            rows += [(weights @ cells.transitions[k], totals[k]) for k in stay]
        else:  # the prior for four states, as it is made
            rows = [(cells.start[stay], start_total - cells.start[j])]
            rows += [(cells.transitions[k, stay], totals[k] - cells.transitions[k, j])
                     for k in stay]  # fmt: skip
        merged = [weights @ counts.start, *(weights @ counts.transitions @ weights.T)]
        after = evidence((a, whole, c) for (a, whole), c in zip(rows, merged, strict=True))
        np.testing.assert_allclose(gain, after - before, rtol=1e-9, atol=1e-9)


def exact_change(posterior, groups):
    """Change of the bound when states become one and nothing else, one path after another."""
    counts, entropy = definition(posterior)

    def total(transitions, parts):
        emissions = evidence((FAMILY.prior(), 1.2, row) for row in parts.emissions)
        rows = Rows(parts.start, parts.transitions)
        return evidence(rows_of(transitions, rows)) + emissions

    name = groups.argmax(axis=0)
    after = 0.0
    for _, paths in all_paths(posterior):
        merged = {}
        for path, q in paths:
            key = tuple(name[list(path)])
            merged[key] = merged.get(key, 0.0) + q
        after -= sum(q * np.log(q) for q in merged.values())
    pooled = Statistics(
        groups @ counts.start, groups @ counts.transitions @ groups.T, groups @ counts.emissions
    )
    change = total(posterior.transitions.regrouped(groups), pooled) + after
    return change - total(posterior.transitions, counts) - entropy


@pytest.mark.parametrize("kind", ["dirichlet", "sticky"])
@pytest.mark.parametrize("seed", range(4))
def test_the_change_by_definition_is_between_a_sure_gain_and_the_upper_bound(kind, seed):
    """Eq (22) takes off the most that the entropy of the path may change: it may be too much."""
    posterior = posterior_of(kind, seed)
    fit = judge_on(posterior).present
    states = MergedStates.of(FAMILY, fit.posterior, fit.shared, SETTINGS)
    for pair in itertools.combinations(range(K), 2):
        exact = exact_change(posterior, merge_weights(K, [pair]))
        assert states.gains[pair] - 1e-6 <= exact
        assert exact <= states.gains[pair] + states.entropy_bounds[pair] + 1e-6
        assert states.entropy_bounds[pair] < 5.0


@pytest.mark.parametrize("kind", ["dirichlet", "sticky"])
@pytest.mark.parametrize("seed", range(4))
def test_merges_one_after_another_are_sure_of_the_sum_of_their_gains(kind, seed):
    posterior = posterior_of(kind, seed)
    fit = judge_on(posterior).present
    merges = list(successive_merges(FAMILY, fit.posterior, fit.shared, SETTINGS))
    assert [len(merge.groups) for merge in merges] == [2, 1]
    assert (
        merges[0].gain == MergedStates.of(FAMILY, fit.posterior, fit.shared, SETTINGS).gains.max()
    )
    sure, most = 0.0, 0.0
    for merge in merges:
        sure, most = sure + merge.gain, most + merge.gain + merge.entropy_bound
        exact = exact_change(posterior, merge.groups)
        assert sure - 1e-6 <= exact <= most + 1e-6
    assert not list(successive_merges(FAMILY, fit.posterior, fit.shared, SETTINGS, range(K)))


def test_moves_under_a_learned_prior_are_those_under_the_same_counts_given():
    """A prior that is learned is held while moves are judged: then it is one that was given."""
    prior = SymbolPrior(4, 0.3)
    prior.of_seen, prior.of_new = 0.8, 0.05
    prior.times_seen[:] = [2, 1, 0, 2]
    prior.n_seen = 3
    given = sj.Categorical(4, np.array([0.8, 0.8, 0.05, 0.8]))
    learned = posterior_of("hdp", 5)
    learned.emissions.prior = prior
    judges = [judge_on(learned, most_states=6), judge_on(posterior_of("hdp", 5), family=given,
                                                         most_states=6)]  # fmt: skip
    found = [
        list(successive_merges(j.family, j.present.posterior, j.present.shared, SETTINGS))
        for j in judges
    ]
    assert [merge.states for merge in found[0]] == [merge.states for merge in found[1]]
    gains = [[merge.gain for merge in merges] for merges in found]
    np.testing.assert_allclose(*gains, rtol=1e-9)
    for judge in judges:
        try_merge(judge, Merge(0.0, 0.0, merge_weights(judge.n_states, [(0, 1)])))
        dissolve(judge)
        split_states(judge, np.random.default_rng(0))
        restart_transitions(judge)
    kinds = [[(m.kind, m.states, m.accepted) for m in judge.moves] for judge in judges]
    assert kinds[0] == kinds[1]
    assert {"merge", "split", "restart", "delete"} <= {kind for kind, *_ in kinds[0]}
    gains = [[m.gain for m in judge.moves] for judge in judges]
    np.testing.assert_allclose(gains[0], gains[1], rtol=1e-7, atol=1e-9)
    assert judges[0].present.posterior.emissions.prior is prior
