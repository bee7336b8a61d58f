"""Lloyd's iterations of k-means, in numba."""

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
        sums[:] = 0.0
        sizes[:] = 0.0
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
        for k in range(n_centres):
            if sizes[k] > 0.0:
                for d in range(n_columns):
                    centres[k, d] = sums[k, d] / sizes[k]
