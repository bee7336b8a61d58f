"""The factors of a matrix normal-inverse Wishart, and the densities that follow from them.

Formulas and layout are those of `sojourn.families.matrix_normal`.
"""

from __future__ import annotations

from functools import cache
from math import isqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.families.blocks import CompiledPotentials, LogPotentials
from sojourn.families.columns import log_rising
from sojourn.families.fused import SquaredPotentials
from sojourn.kernels.arrays import namespace
from sojourn.kernels.cpu.single import LEVERAGE
from sojourn.kernels.interface import Floats, Integers

_LOG_PI = float(np.log(np.pi))
_LOG_2 = float(np.log(2.0))
LOG_2_PI = _LOG_2 + _LOG_PI


class Factors(NamedTuple):
    """The factors of λ, for every state.

    Attributes
    ----------
    dof : (K,) array
        ν.
    lower : (K, R + D, R + D) array
        L.
    log_det_precision : (K,) array
        log|P|.
    log_det_scale : (K,) array
        log|Ψ|.
    """

    dof: Floats
    lower: Floats
    log_det_precision: Floats
    log_det_scale: Floats


@cache
def upper_triangle(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows and columns of the upper triangle of an n × n matrix, computed once."""
    rows, columns = np.triu_indices(n)
    rows.flags.writeable = columns.flags.writeable = False
    return rows, columns


def pack_prior(dof: float, mean: Floats, precision: Floats, scale: Floats) -> Floats:
    """Return λ° from ν°, M° (D, R), the diagonal of P° (R,) and Ψ° (D, D)."""
    r, side = len(precision), mean * precision
    joint = np.zeros((r + len(mean), r + len(mean)))
    joint[range(r), range(r)] = precision
    joint[:r, r:] = side.T
    joint[r:, r:] = scale + side @ mean.T
    return np.concatenate([[dof], joint[upper_triangle(len(joint))]])


def pack_joint(dof: Floats, precision: Floats, side: Floats, last: Floats) -> Floats:
    """Return λ of every state from ν (K,), P (K, R, R), M P (K, D, R) and Ψ + M P Mᵀ (K, D, D)."""
    xp = namespace(dof)
    above = xp.concatenate([precision, xp.transpose(side, (0, 2, 1))], axis=2)
    joint = xp.concatenate([above, xp.concatenate([side, last], axis=2)], axis=1)
    n = joint.shape[1]
    upper = np.ravel_multi_index(upper_triangle(n), (n, n))
    packed = xp.take(joint.reshape(len(joint), n * n), upper, 1)
    return xp.concatenate([dof[:, None], packed], axis=1)


def factorize(natural: Floats, n_regressors: int) -> Factors:
    """Factorise λ by a Cholesky decomposition."""
    xp = namespace(natural)
    lower = stable_cholesky(joint_matrices(natural))
    logs = 2.0 * xp.log(xp.diagonal(lower))
    return Factors(
        natural[:, 0], lower, logs[:, :n_regressors].sum(axis=1), logs[:, n_regressors:].sum(axis=1)
    )


def joint_matrices(natural: Floats) -> Floats:
    """Return the matrices whose upper triangles are packed in λ, shape (K, R + D, R + D)."""
    places = _places(natural.shape[1])
    side = isqrt(len(places))
    return namespace(natural).take(natural, places, 1).reshape(-1, side, side)


@cache
def _places(n_packed: int) -> NDArray[np.int64]:
    """Return where in λ the entries of the whole matrix are, row by row."""
    side = (isqrt(8 * (n_packed - 1) + 1) - 1) // 2
    place = np.zeros((side, side), dtype=np.int64)
    place[upper_triangle(side)] = np.arange(1, n_packed)
    found = np.maximum(place, place.T).ravel()
    found.flags.writeable = False
    return found


def stable_cholesky(matrices: Floats) -> Floats:
    """Return Cholesky factors, of a nearby matrix if rounding has made one indefinite.

    The matrices are first scaled to a unit diagonal, so that columns of very different scales are
    treated alike, and the correction is of the order of the rounding error.
    """
    xp = namespace(matrices)
    size = xp.sqrt(xp.clip(xp.diagonal(matrices), 1e-300, None))
    scaled = matrices / (size[:, :, None] * size[:, None, :])
    return xp.cholesky(scaled) * size[:, :, None]


def compiled(
    factors: Factors,
    n_regressors: int,
    n_targets: int,
    plain: LogPotentials,
    location: Floats,
    *,
    collapsed: bool,
) -> CompiledPotentials:
    """Return the same potentials for the compiled kernel."""
    inverse = np.linalg.inv(factors.lower)
    n_states, side, _ = inverse.shape
    dof, columns = factors.dof, columns_of_design(n_regressors, n_targets)
    first = min(n_regressors, 1)
    leverage = inverse[:, 0, 0] ** 2 if n_regressors else np.zeros(n_states)
    shares = None
    if collapsed:
        inner, powers = 1.0 / (1.0 + leverage), 0.5 * (dof + 1)
        constants = _student_constant(factors, n_targets) - 0.5 * n_targets * np.log1p(leverage)
    else:
        inner, powers = np.ones(n_states), 0.5 * dof
        constants = expected_constant(factors, n_targets) - 0.5 * n_targets * leverage
        # Coordinates of the leverage count n_targets / dof of one.
        inverse[:, first:n_regressors] *= np.sqrt(n_targets / dof)[:, None, None]
    weights = np.zeros((1 + columns.max(), side - first, n_states))
    weights[columns] = inverse[:, first:].transpose(2, 1, 0)
    ends = np.zeros(side - first, np.int64)
    ends[-1] = 1
    if collapsed and n_regressors > 1:
        # 1 + |u|² = (1 + u_0²)(1 + factor Σ u²), and with s = |v|² its logarithm counts
        # power log(1 + |u|² + s) − (power − n_targets / 2) log(1 + |u|²).
        ends[n_regressors - first - 1] = LEVERAGE
        shares = 0.5 * n_targets / powers - 1.0
    spans = np.array([_span(weights[:, e], end) for e, end in enumerate(ends)], dtype=np.int64)
    return CompiledPotentials(
        plain, True, location, weights, spans, inner, powers, constants, collapsed, shares
    )


def _span(weights: Floats, end: int) -> tuple[int, int, int]:
    """Return the first and the last row that are not zero for all states, and the end of a group.

    Row 0 does not count.
    """
    used = 1 + np.flatnonzero(weights[1:].any(axis=1))
    return (int(used[0]), int(used[-1]) + 1, end) if len(used) else (1, 1, end)


@cache
def columns_of_design(n_regressors: int, n_targets: int) -> NDArray[np.int64]:
    """Return what the coordinates of z are: 0 for the constant, 1 + d for column d of x.

    In x the targets come first; then there are regressors, of which the first, a one, is not there.

    Examples
    --------
    >>> columns_of_design(3, 2)
    array([0, 3, 4, 1, 2])
    """
    columns = np.roll(np.arange(1, n_targets + max(n_regressors, 1)), -n_targets)
    found = np.concatenate([np.zeros(min(n_regressors, 1), np.int64), columns])
    found.flags.writeable = False
    return found


def scale_log_normalizer(factors: Factors, n_targets: int) -> Floats:
    """Return the part of a_g that belongs to Σ."""
    return (
        0.5 * factors.dof * n_targets * _LOG_2
        + _multigammaln(0.5 * factors.dof, n_targets)
        - 0.5 * factors.dof * factors.log_det_scale
    )


def own_log_normalizer(factors: Factors, n_regressors: int, n_targets: int) -> Floats:
    """Return the part of a_g that belongs to W given Σ."""
    constant = 0.5 * n_regressors * n_targets * LOG_2_PI
    return constant - 0.5 * n_targets * factors.log_det_precision


def squared(
    factors: Factors,
    n_regressors: int,
    n_targets: int,
    plain: LogPotentials,
    columns: Integers,
    location: Floats,
    *,
    collapsed: bool,
) -> SquaredPotentials:
    """Return the same potentials for a kernel on a GPU."""
    xp = namespace(factors.lower)
    inverse, dof = xp.inv_lower(factors.lower), factors.dof
    side, half = n_regressors + n_targets, 0.5 * n_targets
    powers = 0.5 * (dof + 1) if collapsed else 0.5 * dof
    if collapsed:
        constants = _student_constant(factors, n_targets)
    else:
        constants = expected_constant(factors, n_targets)
    forms = np.arange(side)
    if n_regressors <= 1:  # all steps have the same leverage
        forms = forms[n_regressors:]
        leverage = inverse[:, 0, 0] ** 2 if n_regressors else xp.zeros_like(dof)
        inverse = inverse[:, n_regressors:]
        if collapsed:
            inverse = inverse * (1.0 + leverage[:, None, None]) ** -0.5
            constants = constants - half * xp.log1p(leverage)
        else:
            constants = constants - half * leverage
    weights = xp.transpose(inverse, (2, 1, 0))
    if not n_regressors:
        weights = xp.concatenate([xp.zeros_like(weights[:1]), weights])
    # The factor is lower triangular; the constant, if there is one, is not counted.
    last = forms + (n_regressors == 0)
    spans = np.column_stack([np.zeros_like(forms), last, forms == side - 1])
    return SquaredPotentials(
        plain,
        columns.astype(np.int32),
        location,
        weights,
        spans.astype(np.int32),
        powers[None],
        constants[None],
        collapsed,
        n_regressors if n_regressors > 1 else 0,
        half,
    )


def _multigammaln(a: Floats, n_targets: int) -> Floats:
    """Return log Γ_D(a)."""
    xp = namespace(a)
    body = sum(xp.gammaln(a - 0.5 * d) for d in range(n_targets))
    return 0.25 * n_targets * (n_targets - 1) * _LOG_PI + body


def _student_constant(factors: Factors, n_targets: int) -> Floats:
    """Return the constant of a t density with ν − D + 1 degrees of freedom and shape Ψ."""
    half, dof = 0.5 * n_targets, factors.dof
    risen = log_rising(0.5 * (dof - n_targets + 1), half + namespace(dof).zeros_like(dof))
    return risen - half * _LOG_PI - 0.5 * factors.log_det_scale


def expected_constant(factors: Factors, n_targets: int) -> Floats:
    """Return ½ E[log|Σ⁻¹|] − ½ D log 2π."""
    xp = namespace(factors.dof)
    log_det = sum(xp.digamma(0.5 * (factors.dof - d)) for d in range(n_targets))
    return 0.5 * (log_det - factors.log_det_scale - n_targets * _LOG_PI)


def predictive(factors: Factors, n_regressors: int, n_targets: int) -> LogPotentials:
    """Return eq (2): the log density of a t with ν − D + 1 degrees of freedom."""
    xp = namespace(factors.lower)
    dof = factors.dof
    half = 0.5 * n_targets
    constant = _student_constant(factors, n_targets)
    power = 0.5 * (dof + 1)
    residual, leverage = norms(factors, n_regressors)

    def potentials(z: Floats) -> Floats:
        stretch = 1.0 + leverage(z)
        rows = residual(z)
        rows /= stretch
        xp.log1p(rows, out=rows)
        rows *= -power
        rows += constant - half * xp.log(stretch)
        return rows

    return potentials


def expected(factors: Factors, n_regressors: int, n_targets: int) -> LogPotentials:
    """Return eq (2'): ½ E[log|Σ⁻¹|] − ½ ν |v|² − ½ D |u|² − ½ D log 2π."""
    dof = factors.dof
    constant = expected_constant(factors, n_targets)
    residual, leverage = norms(factors, n_regressors)

    def potentials(z: Floats) -> Floats:
        rows = residual(z)
        rows *= -0.5 * dof
        rows += constant - 0.5 * n_targets * leverage(z)
        return rows

    return potentials


def norms(factors: Factors, n_regressors: int) -> tuple[LogPotentials, LogPotentials]:
    """Return |v|² and |u|² as functions of z, by one matrix product each."""
    xp = namespace(factors.lower)
    inverse = xp.inv_lower(factors.lower)
    n_states, side, _ = inverse.shape
    n_targets = side - n_regressors
    # The columns of the product are (target, state), so that squares are summed over whole rows.
    to_residual = xp.transpose(inverse[:, n_regressors:], (2, 1, 0))
    to_residual = xp.ascontiguousarray(to_residual.reshape(side, n_targets * n_states))

    def residual(z: Floats) -> Floats:
        squares = z @ to_residual
        squares *= squares
        return squares.reshape(len(z), n_targets, n_states).sum(axis=1)

    if n_regressors == 0:
        return residual, lambda z: xp.zeros_like(factors.dof)[None]
    corner = inverse[:, :n_regressors, :n_regressors]
    if n_regressors == 1:  # the regressor is always one
        return residual, lambda z: (corner[:, 0, 0] ** 2)[None]
    to_leverage = xp.transpose(corner, (2, 1, 0)).reshape(n_regressors, n_regressors * n_states)
    to_leverage = xp.ascontiguousarray(to_leverage)

    def leverage(z: Floats) -> Floats:
        squares = z[:, :n_regressors] @ to_leverage
        squares *= squares
        return squares.reshape(len(z), n_regressors, n_states).sum(axis=1)

    return residual, leverage
