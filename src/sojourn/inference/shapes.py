"""The shapes of negative binomial durations: learned on a grid, by the likelihood.

Given a path they could be learned from how long its visits last.  But one visit of a single step
excludes every shape above one, and paths drawn with a shape of one have such visits wherever the
data leave room for them: shapes would stay where they are.  So shapes are compared by the
likelihood of data, summed over all paths, eq (65).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.families import Family
from sojourn.inference.known import masked
from sojourn.inference.posterior import Posterior
from sojourn.kernels import cpu
from sojourn.kernels.arrays import namespace
from sojourn.kernels.cpu.sampling import sample_paths
from sojourn.kernels.durations import expanded
from sojourn.kernels.interface import Integers, Potentials
from sojourn.random_state import SHAPE_STREAM
from sojourn.sequences import Sequences
from sojourn.sources import Minibatches
from sojourn.sources.base import first_steps
from sojourn.sources.tiles import TiledSource
from sojourn.transitions.durations import NegativeBinomialDurations

SAMPLE_STEPS = 2**15
"""Steps of the data on which shapes are compared, at most.  No experiment: a limit."""


class Visits(NamedTuple):
    """Visits to states along a path.

    Attributes
    ----------
    states : (V,) array
    lengths : (V,) array
        Number of steps of each.
    whole : (V,) array of bool
        Whether its end was seen; otherwise it may have lasted longer.
    """

    states: Integers
    lengths: Integers
    whole: NDArray[np.bool_]

    @classmethod
    def along(cls, path: Integers, data: Sequences) -> Visits:
        """Cut the paths of sequences into visits.

        Examples
        --------
        >>> Visits.along(np.array([1, 1, 0, 1]), Sequences(np.zeros(4), [0, 3, 4])).lengths
        array([2, 1, 1])
        """
        begins = np.ones(len(path), np.bool_)
        begins[1:] = path[1:] != path[:-1]
        begins[data.offsets[:-1]] = True
        at = np.flatnonzero(begins)
        ends = np.append(at[1:], len(path))
        return cls(path[at], ends - at, ~np.isin(ends, data.offsets[1:]))


def moment_shapes(visits: Visits, shapes: Integers, max_shape: int) -> Integers:
    """Return the shapes whose variance is that of drawn visits; as they are where there are few.

    A negative binomial number of steps with the mean m and the variance v has the shape
    m² / (m + v), eq (65).

    Examples
    --------
    >>> lengths = np.array([6, 7, 6, 8, 7, 6])
    >>> visits = Visits(np.zeros(6, int), lengths, np.ones(6, bool))
    >>> moment_shapes(visits, np.array([1, 3]), 8)
    array([6, 3])
    """
    found = np.array(shapes)
    for k in range(len(found)):
        own = visits.lengths[(visits.states == k) & visits.whole]
        if len(own) > 1:
            mean, variance = own.mean(), own.var(ddof=1)
            found[k] = int(np.clip(np.rint(mean**2 / (mean + variance)), 1, max_shape))
    return found


@dataclass(frozen=True)
class ShapeSample:
    """Some data, on which shapes are compared by the likelihood, eq (65).

    Attributes
    ----------
    data : Sequences
    posterior : Posterior
        In memory, of states that last.
    potentials : Potentials
        Of the data under posterior means, without durations, in double precision.
    index : (T,) integer array
        Row of the emission table for each step.
    n_threads : int
    """

    data: Sequences
    posterior: Posterior
    potentials: Potentials
    index: Integers
    n_threads: int = 1

    @classmethod
    def of(
        cls, posterior: Posterior, family: Family, data: Sequences, n_threads: int = 1
    ) -> ShapeSample:
        """Compute the potentials of the first steps of some data."""
        data, posterior = few_steps(data), posterior.fetched()
        rows = family.emission_rows(
            family.encode(data),
            posterior.emissions,
            collapsed=True,
            dtype=np.float64,
            n_threads=n_threads,
        )
        if data.labels is not None:
            rows = masked(
                rows, data.labels, data, posterior, family, collapsed=True, n_threads=n_threads
            )
        means = posterior.transitions.means(posterior.counts)
        factors = Potentials(*means, rows.table[:, : posterior.n_states], rows.log_scale)
        return cls(data, posterior, factors, rows.index, n_threads)

    def under(self, durations: NegativeBinomialDurations) -> Potentials:
        """Return the potentials under some durations."""
        own = durations.potentials(self.posterior.transitions)
        return self.potentials._replace(durations=own)

    def log_likelihood(self, durations: NegativeBinomialDurations) -> float:
        """Return the log likelihood of the data."""
        found = cpu.log_normalizers(
            self.under(durations), self.index, self.data.offsets, n_threads=self.n_threads
        )
        return float(found.sum())

    def better(
        self, durations: NegativeBinomialDurations, most: float, state: int, shape: int
    ) -> tuple[NegativeBinomialDurations, float]:
        """Return another shape of a state and its log likelihood, if that is above `most`."""
        shape = min(shape, durations.max_shape)
        if shape < 1 or shape == durations.shapes[state]:
            return durations, most
        shapes = np.array(durations.shapes)
        shapes[state] = shape
        found = durations.reshaped(shapes)
        value = self.log_likelihood(found)
        return (found, value) if value > most else (durations, most)

    def adapted(self, durations: NegativeBinomialDurations) -> NegativeBinomialDurations:
        """Return durations after two local steps on the data, with as many steps in all."""
        for _ in range(2):
            found = cpu.forward_backward(
                self.under(durations), self.index, self.data.offsets, n_threads=self.n_threads
            ).durations
            if found is None or not np.isfinite(found.stays).all():
                return durations
            whole = float((durations.stays + durations.advances).sum())
            own = float((found.stays + found.advances).sum())
            durations = durations.blended(found, 0.0, whole / max(own, 1e-300))
        return durations

    def visits(self, durations: NegativeBinomialDurations, rng: np.random.Generator) -> Visits:
        """Draw a path of every sequence, forward filtering and backward sampling, and cut it."""
        plain = expanded(self.under(durations)._replace(log_scale=None))
        states = np.empty(self.data.n_steps, np.int32)
        failed = sample_paths(
            rng,
            np.asarray(self.index, np.int32),
            self.data.offsets,
            np.concatenate([plain.start[None], plain.transitions]),
            np.ascontiguousarray(plain.emissions),
            np.empty(0),
            states,
            np.empty((int(self.data.lengths.max()), len(plain.start))),
            np.empty(0, np.int32),
            np.empty((0, 0)),
        )
        # A sequence may underflow: what was drawn before it is enough.
        drawn = self.data if failed < 0 else self.data[: max(failed, 1)]
        path = states[: drawn.n_steps] // np.int32(plain.start.size // self.posterior.n_states)
        if failed == 0:
            path = np.zeros_like(path)
        return Visits.along(path, drawn)


def better_shapes(
    sample: ShapeSample, seed: int, *, one_by_one: bool = True
) -> NegativeBinomialDurations | None:
    """Return durations with shapes under which data are more likely; None where there are none.

    Those of the moments of a drawn path are tried first, for all states together.  Then they and
    twice the shape are tried for each state, and one more or one less as long as that helps;
    without `one_by_one` only for those whose moments say that they change.  The same seed draws
    the same numbers each time, so that shapes settle as the model does.
    """
    durations = sample.posterior.durations
    if not (isinstance(durations, NegativeBinomialDurations) and durations.learned):
        return None
    best, most = durations, sample.log_likelihood(durations)
    if not np.isfinite(most):
        return None
    rng = np.random.default_rng([seed, SHAPE_STREAM])
    tried = moment_shapes(sample.visits(best, rng), best.shapes, best.max_shape)
    if not np.array_equal(tried, best.shapes):
        # How often states are visited depends on the shapes: both get time to find that out.
        found, own = sample.adapted(best.reshaped(tried)), sample.adapted(best)
        if (value := sample.log_likelihood(found)) > max(most, sample.log_likelihood(own)):
            best, most = found, value
    unsure = np.flatnonzero((tried != durations.shapes) | one_by_one)
    for k in map(int, unsure):
        for shape in (int(tried[k]), 2 * int(best.shapes[k])):
            best, most = sample.better(best, most, k, shape)
        for direction in (1, -1):
            before = most
            while True:
                found, value = sample.better(best, most, k, int(best.shapes[k]) + direction)
                if found is best:
                    break
                best, most = found, value
            if most > before:
                break
    return None if best is durations else best


def learns_shapes(posterior: Posterior) -> bool:
    """Whether states have shapes to learn."""
    durations = posterior.durations
    return isinstance(durations, NegativeBinomialDurations) and durations.learned


def learn_shapes(
    posterior: Posterior,
    family: Family,
    data: Sequences,
    seed: int,
    *,
    one_by_one: bool = True,
    n_threads: int = 1,
) -> bool:
    """Learn the shapes of durations on some data, in place; return whether any has changed."""
    begun = from_the_start(data)
    if begun is None or not learns_shapes(posterior):
        return False
    sample = ShapeSample.of(posterior, family, begun, n_threads)
    found = better_shapes(sample, seed, one_by_one=one_by_one)
    if found is None:
        return False
    like = posterior.counts.start
    posterior.durations = found.converted(lambda part: namespace(like).placed(part, like=like))
    return True


def learn_after_update(
    posterior: Posterior, family: Family, data: Sequences, n_threads: int
) -> None:
    """Learn shapes on the minibatch of an update, after 1, 2, 4, ... of these."""
    n = posterior.n_updates
    if n & (n - 1) == 0:
        learn_shapes(posterior, family, data, 0, n_threads=n_threads)


def from_the_start(data: Sequences) -> Sequences | None:
    """Return the sequences that begin in the data; None if there are none.

    What a tile begins with is not the beginning of a visit.
    """
    if data.counted is None:
        return data
    begin = np.flatnonzero((data.counted[:, 2] == 0) & (data.counted[:, 0] == 0))
    if not len(begin):
        return None
    own = data.take(begin)
    return Sequences(own.values, own.offsets, None, own.labels)


def few_steps(data: Sequences, most: int = SAMPLE_STEPS) -> Sequences:
    """Return the first sequences with about so many steps; a part of the first if that is long."""
    if data.n_steps <= most:
        return data
    n = max(1, int(np.searchsorted(data.offsets, most, side="right")) - 1)
    taken = data[:n]
    if taken.n_steps <= most or taken.labels is not None:
        return taken
    return Sequences(taken.values[:most], np.array([0, most]))


@dataclass
class LearnedShapes:
    """Learns shapes before passes 1, 2, 3, 4, 6, 8, 12, ..., and where training would end.

    Passes are counted from the first one with as many states as asked for: before, one thing may be
    several states in a row, each with a small shape, and what they are merged to keeps it.

    Attributes
    ----------
    source : Minibatches
        Where the data come from; the first minibatches of a pass are looked at.
    family : Family
    seed : int
    n_threads : int
    first : int
        The pass that counts as number 0: the last one with more states, if there is one.
    """

    source: Minibatches
    family: Family
    seed: int
    n_threads: int
    first: int = 0

    def before_pass(self, posterior: Posterior, n_pass: int) -> bool:
        """Learn shapes before pass `n_pass`, counted from 0; return whether any has changed."""
        n = max(0, n_pass - self.first)
        odd = n // (n & -n) if n else 0
        return odd in (1, 3) and self._learn(posterior, n_pass)

    def when_converged(self, posterior: Posterior, n_pass: int) -> bool:
        """Learn shapes after a pass with which training would end; whether it is to go on.

        Not again before as many passes, so that two shapes that are alike do not take turns.
        """
        durations = posterior.durations
        if not isinstance(durations, NegativeBinomialDurations) or n_pass < 2 * durations.checked:
            return False
        if not self._learn(posterior, n_pass):
            return False
        assert isinstance(posterior.durations, NegativeBinomialDurations)
        posterior.durations = posterior.durations.checked_at(n_pass)
        return True

    def _learn(self, posterior: Posterior, n_pass: int) -> bool:
        if not learns_shapes(posterior):
            return False
        data = first_sequences(self.source, n_pass)
        return learn_shapes(posterior, self.family, data, self.seed, n_threads=self.n_threads)


def first_sequences(source: Minibatches, n_pass: int) -> Sequences:
    """Return sequences of a pass with about as many steps as shapes are compared on.

    Where sequences are dealt in tiles, from their beginnings: what a tile begins with is not the
    beginning of a visit.
    """
    if isinstance(source, TiledSource):
        offsets = np.asarray(source.data.offsets, dtype=np.int64)
        few = max(1, int(np.searchsorted(offsets, SAMPLE_STEPS, side="right")) - 1)
        return source.data.spans(offsets[:few], np.minimum(np.diff(offsets)[:few], SAMPLE_STEPS))
    return first_steps(source.batches(n_pass), SAMPLE_STEPS)
