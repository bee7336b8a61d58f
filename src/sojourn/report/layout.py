"""Which transitions to draw, and where states stand in the graph of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from sojourn.kernels.interface import Floats, Integers
from sojourn.prediction import as_fitted


class Edge(NamedTuple):
    """A transition worth drawing.

    Attributes
    ----------
    source, target : int
        States, never the same.
    probability : float
    """

    source: int
    target: int
    probability: float


class Graph(NamedTuple):
    """The strong transitions among the largest states.

    Attributes
    ----------
    states : (n,) integer array
        In the order around the circle.
    x, y : (n,) arrays
        Where they stand, on the unit circle.
    edges : list of Edge
        The weakest first, so that the strongest are drawn on top.
    """

    states: Integers
    x: Floats
    y: Floats
    edges: list[Edge]


def strong_transitions(
    model: Any, n_states: int = 14, least: float = 0.1, per_state: int = 3
) -> Graph:
    """Find the transitions that carry the model, and a place for each state.

    Parameters
    ----------
    model : HMM or HDPHMM that was fitted, or FittedModel
    n_states : int
        Maximum number of states; the largest are kept.
    least : float
        Probability below which a transition is left out, given that the state is left.
    per_state : int
        Maximum number of transitions from each state.

    Notes
    -----
    States that follow one another stand side by side as far as a circle allows: they are ordered
    by the phase of the first two eigenvectors of the symmetric flow between them.

    Examples
    --------
    >>> import sojourn as sj
    >>> model = sj.HMM(2, sj.Categorical(2), batch_size=4, random_state=0).fit([[0, 1] * 9] * 40)
    >>> sorted((edge.source, edge.target) for edge in strong_transitions(model).edges)
    [(0, 1), (1, 0)]
    """
    fitted = as_fitted(model)
    shares = fitted.state_shares
    chosen = np.argsort(-shares, kind="stable")[: min(n_states, max(1, fitted.n_states))]
    transitions = fitted.transmat
    leaving = transitions.copy()
    np.fill_diagonal(leaving, 0.0)
    leaving /= np.maximum(leaving.sum(axis=1, keepdims=True), 1e-300)
    edges = []
    for k in chosen:
        best = [j for j in np.argsort(-leaving[k], kind="stable") if j in chosen and j != k]
        edges += [
            Edge(int(k), int(j), float(transitions[k, j]))
            for j in best[:per_state]
            if leaving[k, j] >= least
        ]
    edges.sort(key=lambda edge: edge.probability)
    flow = shares[chosen, None] * leaving[np.ix_(chosen, chosen)]
    order = chosen[_around(flow + flow.T)]
    angle = np.pi / 2 - 2.0 * np.pi * np.arange(len(order)) / len(order)
    return Graph(order, np.cos(angle), np.sin(angle), edges)


def _around(flow: Floats) -> Integers:
    """Order nodes around a circle: heavy flows are short ways."""
    if len(flow) < 4:
        return np.arange(len(flow), dtype=np.int64)
    scale = 1.0 / np.sqrt(np.maximum(flow.sum(axis=1), 1e-12))
    _, vectors = np.linalg.eigh(np.eye(len(flow)) - scale[:, None] * flow * scale)
    first = np.argmax(np.abs(vectors[:, 1:3]), axis=0)
    vectors = vectors[:, 1:3] * np.sign(vectors[first, [1, 2]])  # eigenvectors have no sign
    return np.argsort(np.arctan2(vectors[:, 1], vectors[:, 0]), kind="stable").astype(np.int64)


Point = tuple[float, float]


def arrow(
    begin: Point, end: Point, centre: Point, width: float, gaps: tuple[float, float]
) -> tuple[str, str]:
    """Return the paths of a curve that bends towards the centre, and of its head.

    Parameters
    ----------
    begin, end, centre : (x, y)
    width : float
        Of the curve; the head grows with it.
    gaps : (float, float)
        How far from both ends the curve keeps.
    """
    (x1, y1), (x2, y2) = begin, end
    mx, my = (x1 + x2) / 2, (y1 + y2) / 2
    dx, dy = x2 - x1, y2 - y1
    length = math.hypot(dx, dy) or 1.0
    # A transition and its opposite bend to different sides.
    bend = 0.12 * length
    cx = mx + 0.25 * (centre[0] - mx) - dy / length * bend
    cy = my + 0.25 * (centre[1] - my) + dx / length * bend
    x1, y1 = _towards((x1, y1), (cx, cy), gaps[0])
    x2, y2 = _towards((x2, y2), (cx, cy), gaps[1])
    angle = math.atan2(y2 - cy, x2 - cx)
    head = 5.0 + 1.4 * width
    wings = [
        (x2 - head * math.cos(angle + turn), y2 - head * math.sin(angle + turn))
        for turn in (0.45, -0.45)
    ]
    corners = " ".join(f"L{x:.1f} {y:.1f}" for x, y in wings)
    way = f"M{x1:.1f} {y1:.1f}Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}"
    return way, f"M{x2:.1f} {y2:.1f}{corners}Z"


def _towards(start: Point, end: Point, by: float) -> Point:
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy) or 1.0
    return start[0] + by * dx / length, start[1] + by * dy / length


def run_lengths(paths: list[Integers], n_states: int) -> list[Integers]:
    """Return how long each state lasted, time after time, in decoded sequences.

    Examples
    --------
    >>> [runs.tolist() for runs in run_lengths([np.array([0, 0, 1, 0])], 2)]
    [[2, 1], [1]]
    """
    found: list[list[int]] = [[] for _ in range(n_states)]
    for path in paths:
        for state, begin, end in stays(path):
            found[state].append(end - begin)
    return [np.array(runs, np.int64) for runs in found]


def stays(path: Integers) -> Iterator[tuple[int, int, int]]:
    """Yield the state, the first step and the end of each stay in a path.

    Examples
    --------
    >>> list(stays(np.array([3, 3, 1])))
    [(3, 0, 2), (1, 2, 3)]
    """
    cuts = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    for begin, end in pairwise(cuts):
        yield int(path[begin]), begin, end
