"""k-means, in numba: centres that are spread, Lloyd's iterations, and soft assignments."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def lloyd(points, centres, n_rounds):
    """Move centres to the means of the points that are nearest to them, in place.

    Ties go to the first centre; one without points stays where it is.

    Examples
    --------
    >>> centres = np.array([[0.0], [9.0]])
    >>> lloyd(np.array([[1.0], [2.0], [6.0]]), centres, 2)
    >>> centres.ravel()
    array([1.5, 6. ])
    """
    n_points, n_columns = points.shape
    n_centres = centres.shape[0]
    sums, sizes = np.empty((n_centres, n_columns)), np.empty(n_centres)
    for _ in range(n_rounds):
        for k in range(n_centres):
            sizes[k] = 0.0
            for d in range(n_columns):
                sums[k, d] = 0.0
        for t in range(n_points):
            nearest, least = 0, np.inf
            for k in range(n_centres):
                distance = 0.0
                for d in range(n_columns):
                    distance += (points[t, d] - centres[k, d]) ** 2
                if distance < least:
                    nearest, least = k, distance
            sizes[nearest] += 1.0
            for d in range(n_columns):
                sums[nearest, d] += points[t, d]
        moved = False
        for k in range(n_centres):
            if sizes[k] > 0.0:
                for d in range(n_columns):
                    mean = sums[k, d] / sizes[k]
                    moved |= mean != centres[k, d]
                    centres[k, d] = mean
        if not moved:
            break


@njit(nogil=True, cache=True)
def spread_centres(points, first, uniforms):
    """Draw centres by k-means++, with probabilities proportional to squared distances.

    Parameters
    ----------
    points : (T, D) array
    first : int
        Number of the point that is the first centre.
    uniforms : (K - 1,) array
        Numbers in [0, 1), one for each of the others.

    Examples
    --------
    >>> spread_centres(np.array([[0.0], [1.0], [3.0]]), 0, np.array([0.05])).ravel()
    array([0., 1.])
    >>> spread_centres(np.array([[0.0], [1.0], [3.0]]), 0, np.array([0.15])).ravel()
    array([0., 3.])
    """
    n_points, n_columns = points.shape
    centres = np.empty((uniforms.shape[0] + 1, n_columns))
    for d in range(n_columns):  # a row assigned whole takes two seconds to compile
        centres[0, d] = points[first, d]
    distances = np.empty(n_points)
    for t in range(n_points):
        distances[t] = np.inf
    for k in range(uniforms.shape[0]):
        total = 0.0
        for t in range(n_points):
            distance = 0.0
            for d in range(n_columns):
                distance += (points[t, d] - centres[k, d]) ** 2
            distances[t] = min(distances[t], distance)
            total += distances[t]
        at = n_points - 1
        if total > 0.0:
            sought, reached = uniforms[k] * total, 0.0
            for t in range(n_points):
                reached += distances[t]
                if reached >= sought and distances[t] > 0.0:
                    at = t
                    break
        else:  # every point coincides with a centre
            at = min(int(uniforms[k] * n_points), n_points - 1)
        for d in range(n_columns):
            centres[k + 1, d] = points[at, d]
    return centres


@njit(nogil=True, cache=True)
def shared(points, centres, softness):
    """Share points among centres that are about equally far; spread `softness` over all, (T, K)."""
    n_points, n_columns = points.shape
    n_centres = centres.shape[0]
    shares = np.empty((n_points, n_centres))
    spread = 0.0
    for t in range(n_points):
        least = np.inf
        for k in range(n_centres):
            distance = 0.0
            for d in range(n_columns):
                distance += (points[t, d] - centres[k, d]) ** 2
            shares[t, k] = distance
            least = min(least, distance)
        for k in range(n_centres):
            shares[t, k] -= least
        spread += least
    factor = -0.5 * n_columns / max(spread / n_points, 1e-12)
    for t in range(n_points):
        total = 0.0
        for k in range(n_centres):
            shares[t, k] = np.exp(factor * shares[t, k])
            total += shares[t, k]
        for k in range(n_centres):
            shares[t, k] = (1.0 - softness) * shares[t, k] / total + softness / n_centres
    return shares
