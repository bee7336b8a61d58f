"""Merge states: how many successive merges of pairs to make at once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from sojourn.moves.budget import search_work
from sojourn.moves.judge import Judge, Verdict
from sojourn.moves.pairs import Merge, successive_merges
from sojourn.moves.sample import Fit


class Trial(NamedTuple):
    """A proposal to merge states that may yet be accepted.

    Attributes
    ----------
    fit : Fit
    verdict : Verdict
    number : int
        Its position in the list of moves.
    """

    fit: Fit
    verdict: Verdict
    number: int

    def is_better_than(self, other: Trial | None) -> bool:
        """Whether it is safe and gains more, or gains anything if there is no other."""
        highest = 0.0 if other is None else other.verdict.gain
        return self.verdict.is_safe and self.verdict.gain > highest


def merge_states(judge: Judge) -> None:
    """Merge states, as many together as the bound wants.

    All merges that may gain something are tried first, or else that of the pair that loses least.
    """
    settings = judge.settings
    while judge.n_states > 1:
        fit, kept = judge.present, judge.unseen_states()
        assert fit.shared is not None
        work = search_work(judge.n_states, judge.family.n_statistics, settings)
        judge.fitter.spend(work)
        rank = partial(
            successive_merges,
            judge.family,
            fit.posterior,
            fit.shared,
            settings,
            kept,
            uncertain=fit.uncertain,
        )
        merges = list(rank(promising_only=True))
        if not merges:
            return
        if judge.sample.is_all:
            # A look at all the data costs a pass: only for what may gain.
            if merges[0].gain + merges[0].entropy_bound < 0.0 or not merge_likely(judge, merges):
                return
        elif not merge_best(judge, merges):
            if judge.ran_out or judge.changed:
                return
            # States that take turns need time to become one, and share much entropy until then.
            least = -settings.hopeless_cost * settings.held_out_tolerance
            slow = [] if judge.moves[-1].fresh < least else merges[:1]
            judge.fitter.spend(work)
            likeliest = next(rank(at_best=True))
            if likeliest.states != merges[0].states:
                slow.append(likeliest)
            if not any(merge_slowly(judge, merge) for merge in slow):
                return


def merge_best(judge: Judge, merges: list[Merge]) -> bool:
    """Make the first of successive merges, up to the number with the highest bound.

    The bound rises slowly with their number, and falls fast as soon as states differ.
    """
    fewest, most, size = 0, len(merges) + 1, len(merges)
    best: Trial | None = None
    while most - fewest > 1 and (trial := try_merge(judge, merges[size - 1])):
        if trial.is_better_than(best):
            fewest, best = size, trial
        else:
            most = size
        size = (fewest + most) // 2
    # All of them may be one too many.
    while best is not None and 1 < fewest == len(merges):
        fewer = try_merge(judge, merges[fewest - 2])
        if fewer is None or not fewer.is_better_than(best):
            break
        merges, fewest, best = merges[:-1], fewest - 1, fewer
    if best is None:
        return False
    _accept(judge, best, merges[fewest - 1])
    return True


def merge_likely(judge: Judge, merges: list[Merge]) -> bool:
    """Make the first of successive merges, as many as are expected to gain most, or fewer.

    A look at all the data costs a pass, so that few are tried.
    """
    sizes, best = _likely_sizes(judge, merges), None
    for size in sizes:
        trial = try_merge(judge, merges[size - 1])
        if trial is not None and trial.is_better_than(best):
            best, chosen = trial, size
    size = min(sizes, default=0) // 2
    while best is None and size and (trial := try_merge(judge, merges[size - 1])):
        if trial.is_better_than(None):
            best, chosen = trial, size
        size //= 2
    if best is None:
        return False
    _accept(judge, best, merges[chosen - 1])
    return True


def _likely_sizes(judge: Judge, merges: list[Merge]) -> list[int]:
    """Return how many of successive merges to try together.

    What they would lose is seen without a look, so that all of them are safe.  Their evidence is
    known on paper.  The entropy that they take away, which eq (22) overestimates most where one
    state takes in many others, is estimated from a sample where that is possible, eq (70).
    Elsewhere those that are likely to gain are tried too.
    """
    safe = bisect_left(
        range(len(merges)), True, key=lambda n: not judge.may_merge(merges[n].groups)
    )
    assert judge.groups is not None
    parameters, bench = judge.start.regrouped(judge.groups), judge.fitter.bench
    if (entropy := bench.entropies(parameters, judge.present.posterior)) is not None:
        evidence = np.cumsum([merge.gain + merge.entropy_bound for merge in merges])
        before = entropy(np.eye(judge.n_states))
        size, expected = highest(
            lambda n: float(evidence[n - 1]) + entropy(merges[n - 1].groups) - before, max(1, safe)
        )
        return [size] if expected > 0.0 else []
    doubtful = (n for n, merge in enumerate(merges) if merge.gain + merge.entropy_bound / 2 < 0.0)
    likely = next(doubtful, len(merges))
    return list(dict.fromkeys(n for n in (likely, max(likely, safe)) if n))


def highest(value: Callable[[int], float], last: int) -> tuple[int, float]:
    """Return where of 1 to `last` a function is highest, which rises and then falls, and its value.

    Examples
    --------
    >>> highest(lambda n: -abs(n - 70), 82)
    (70, 0)
    """
    step = max(1, last // 8)
    known = {n: value(n) for n in {last, *range(step, last, step), 1}}
    while True:
        best = max(known, key=lambda n: (known[n], -n))
        if step == 1:
            return best, known[best]
        step = (step + 1) // 2
        for n in (best - step, best + step):
            if 1 <= n <= last and n not in known:
                known[n] = value(n)


def _accept(judge: Judge, best: Trial, merge: Merge) -> None:
    judge.accept(best.fit, best.verdict, merge.groups)
    made = judge.moves[best.number]
    judge.moves[best.number] = made._replace(accepted=True, n_states=judge.n_states)


def try_merge(judge: Judge, merge: Merge) -> Trial | None:
    """Compare the model after a merge with the present one, and record that, as refused."""
    tried = judge.fit_regrouped(merge.groups)
    if tried is None:
        judge.ran_out = True
        return None
    verdict = judge.compare(*tried)
    judge.record("merge", merge.states, verdict, accepted=False)
    return Trial(tried[0], verdict, len(judge.moves) - 1)


def merge_slowly(judge: Judge, merge: Merge) -> bool:
    """Propose a merge with more local steps."""
    tried = judge.fit_regrouped(merge.groups, judge.settings.long_proposal_steps - 1)
    return tried is not None and judge.decide("merge", merge.states, *tried, merge.groups)


def prune(judge: Judge, proposed: Fit, n_local: int) -> tuple[Fit, int]:
    """Merge states of a proposal that do not differ, or hardly; count its local steps."""
    settings, sample = judge.settings, judge.sample
    least = -settings.held_out_tolerance * sample.copies * sample.n_steps
    for _ in range(settings.pruning_rounds):
        assert proposed.shared is not None
        groups = None
        for merge in successive_merges(judge.family, proposed.posterior, proposed.shared, settings):
            if merge.gain <= least:
                break
            groups = merge.groups
        if groups is None:
            break
        proposed = judge.fitter.fit(proposed.posterior.regrouped(groups), 1, shared=True)
        n_local += 1
    return proposed, n_local
