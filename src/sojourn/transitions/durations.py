"""How long states last: priors, expected counts, and what follows from both, eqs (60) to (65).

Steps within a state are on the diagonal of the counts of transitions, of which the rows know
nothing: see `RowConstraints.between`.  What is here says how they come about.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, digamma, gammaln

from sojourn import file_values
from sojourn.durations import StateDuration
from sojourn.kernels.arrays import namespace, to_host
from sojourn.kernels.interface import DurationCounts, DurationPotentials, Floats, Integers
from sojourn.random_state import draw_dirichlet
from sojourn.transitions.base import Rows, Transitions


@dataclass(frozen=True, eq=False)
class StateDurations(ABC):
    """The prior on durations, and expected counts within states.  An immutable value."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def n_states(self) -> int:
        """Number of states."""

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """Number of free parameters of one state."""

    @abstractmethod
    def potentials(self, transitions: Transitions, *, collapsed: bool = True) -> DurationPotentials:
        """Return the factors of q(z) within states: means, or exp E[log] if not collapsed."""

    @abstractmethod
    def blended(self, sums: DurationCounts, keep: float, weight: float) -> Self:
        """Return ``keep`` times the counts plus ``weight`` times those of a batch, eq (3)."""

    @abstractmethod
    def implied(self, counts: Rows) -> Self:
        """Return the counts that those between and within states suggest, to begin with."""

    @abstractmethod
    def regrouped(self, weights: Floats, counts: Rows) -> Self:
        """Return the durations of other states, each some of these, eq (21).

        Parameters
        ----------
        weights : (K', K) array
        counts : Rows
            Counts of the other states.
        """

    @abstractmethod
    def collapsed_bound(self, transitions: Transitions) -> float:
        """Return the evidence of the counts with the parameters integrated out, eq (64)."""

    @abstractmethod
    def merge_gains(
        self, transitions: Transitions, counts: Rows, first: Integers, second: Integers
    ) -> Floats:
        """Return the change of `collapsed_bound` when two states become one, for many pairs."""

    @abstractmethod
    def divergence(self, transitions: Transitions) -> float:
        """Return KL(q || p) of the parameters, for the mean-field bound."""

    @abstractmethod
    def drawn(self, transitions: Transitions, rng: np.random.Generator) -> DurationPotentials:
        """Draw parameters from their posterior at the expected counts."""

    @abstractmethod
    def described(self, transitions: Transitions) -> list[StateDuration]:
        """Return how long visits to each state last, by posterior means."""

    @abstractmethod
    def converted(self, convert: Callable[[Any], Any]) -> Self:
        """Return the same with `convert` applied to every array of counts."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return prior and counts as JSON values and as arrays."""

    @classmethod
    @abstractmethod
    def from_state(cls, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Undo `state`."""

    @abstractmethod
    def check(self, n_states: int) -> None:
        """Raise a ValueError unless types, sizes and values are those of K states."""

    def scaled(self, factor: float) -> Self:
        """Return counts of so many copies of the data."""
        return self.converted(lambda part: factor * part)


@dataclass(frozen=True, eq=False)
class NegativeBinomialDurations(StateDurations):
    r"""Visits are r_k geometric stretches with one probability of staying, eqs (60) to (62).

    .. math::

        d - r_k \sim \mathrm{NB}(r_k, 1 - p_k), \quad p_k \sim \mathrm{Beta}(a_k, b_k)

    Attributes
    ----------
    shapes : (K,) integer array
        r, in memory.
    stays, advances : (K,) arrays
        E[S] and E[A]: steps that stay in a stretch, and that end one.
    max_shape : int
    learned : bool
        Whether shapes are learned; see `sojourn.inference.shapes`.
    prior : (float, float) or None
        a and b of every state; None for those of `Transitions.stay_prior`.
    checked : int
        Passes after which training had converged and shapes were learned once more.
    """

    kind = "negative binomial"

    shapes: Integers
    stays: Floats
    advances: Floats
    max_shape: int
    learned: bool = True
    prior: tuple[float, float] | None = None
    checked: int = 0

    @property
    def n_states(self) -> int:
        """Number of states."""
        return len(self.shapes)

    @property
    def n_parameters(self) -> int:
        """The probability of staying, and the shape where it is learned."""
        return 2 if self.learned else 1

    def prior_of(self, transitions: Transitions) -> tuple[Floats, Floats]:
        """Return a and b of every state."""
        if self.prior is None:
            return transitions.stay_prior()
        ones = namespace(self.stays).ones_like(self.stays)
        return self.prior[0] * ones, self.prior[1] * ones

    def potentials(self, transitions: Transitions, *, collapsed: bool = True) -> DurationPotentials:
        """Return eq (61); a visit begins r stretches before its end."""
        a, b = self.prior_of(transitions)
        xp = namespace(self.stays)
        stay, leave = a + self.stays, b + self.advances
        total = stay + leave
        if collapsed:
            chances = stay / total, leave / total
        else:
            of_total = xp.digamma(total)
            chances = xp.exp(xp.digamma(stay) - of_total), xp.exp(xp.digamma(leave) - of_total)
        entry = np.zeros((self.n_states, int(self.shapes.max())))
        entry[np.arange(self.n_states), entry.shape[1] - self.shapes] = 1.0
        return DurationPotentials(xp.placed(entry, like=self.stays), *chances)

    def blended(self, sums: DurationCounts, keep: float, weight: float) -> Self:
        """Blend stays and advances; where visits begin is certain."""
        xp = namespace(self.stays)
        stays, advances = (
            xp.clip(keep * own + weight * part, 0.0, None)
            for own, part in ((self.stays, sums.stays), (self.advances, sums.advances))
        )
        return replace(self, stays=stays, advances=advances)

    def implied(self, counts: Rows) -> Self:
        """Return r advances for every visit that ends, and stays for the other steps."""
        total, left = _leaving(counts)
        xp = namespace(total)
        advances = xp.minimum(xp.asarray(self.shapes, like=total) * left, total)
        return replace(self, stays=total - advances, advances=advances)

    def regrouped(self, weights: Floats, counts: Rows) -> Self:
        """Return the sums of the parts; what led from one part to the other is within the whole.

        A state made of several has as many stretches as its visits had on average: twice as many
        where one part always followed the other.
        """
        own = np.asarray(to_host(weights), dtype=np.float64)
        stays, advances = (own @ to_host(part) for part in (self.stays, self.advances))
        shapes = np.asarray(self.shapes)[own.argmax(axis=1)]
        total, left = (to_host(part) for part in _leaving(counts))
        for k in np.flatnonzero((own > 0.0).sum(axis=1) > 1):
            visits = max(float(left[k]), 1e-300)
            shapes[k] = int(np.clip(np.rint(advances[k] / visits), 1, self.max_shape))
            if not self.learned:
                shapes[k] = self.shapes[int(own[k].argmax())]
            advances[k] = min(shapes[k] * left[k], advances[k], total[k])
            stays[k] = total[k] - advances[k]
        xp = namespace(self.stays)
        placed = (xp.placed(part, like=self.stays) for part in (stays, advances))
        return replace(self, shapes=shapes, **dict(zip(("stays", "advances"), placed, strict=True)))

    def reshaped(self, shapes: Integers) -> Self:
        """Return the same visits with other shapes: r advances each, of as many steps in all."""
        total = self.stays + self.advances
        xp = namespace(total)
        ratio = xp.asarray(shapes / self.shapes, like=total)
        advances = xp.minimum(ratio * self.advances, total)
        return replace(self, shapes=shapes, stays=total - advances, advances=advances)

    def checked_at(self, n_pass: int) -> Self:
        """Return the same after shapes were learned in a model that had converged."""
        return replace(self, checked=n_pass)

    def collapsed_bound(self, transitions: Transitions) -> float:
        """Return Σ_k log B(a + E[S], b + E[A]) / B(a, b)."""
        a, b = (to_host(part) for part in self.prior_of(transitions))
        stays, advances = to_host(self.stays), to_host(self.advances)
        return float((betaln(a + stays, b + advances) - betaln(a, b)).sum())

    def merge_gains(
        self, transitions: Transitions, counts: Rows, first: Integers, second: Integers
    ) -> Floats:
        """Return the change of the evidence; a merged state has the shape that `regrouped` says."""
        a, b = (to_host(part) for part in self.prior_of(transitions))
        stays, advances = to_host(self.stays), to_host(self.advances)
        alone = betaln(a + stays, b + advances) - betaln(a, b)
        total, left = (to_host(part) for part in _leaving(counts))
        cells = to_host(counts.transitions)
        both = total[first] + total[second]
        visits = left[first] + left[second] - cells[first, second] - cells[second, first]
        raw = advances[first] + advances[second]
        shape: Any = self.shapes[first]
        if self.learned:
            shape = np.clip(np.rint(raw / np.maximum(visits, 1e-300)), 1, self.max_shape)
        merged = np.minimum(np.minimum(shape * visits, raw), both)
        less, others = b, 0.0
        if self.prior is None and not transitions.shares_weights:  # one less to leave for
            less = np.maximum(b * (1.0 - 1.0 / max(1, len(b) - 1)), 1e-300)
            change = betaln(a + stays, less + advances) - betaln(a, less) - alone
            others = change.sum() - change[first] - change[second]
        rest = less[first]
        own = betaln(a[first] + both - merged, rest + merged) - betaln(a[first], rest)
        found: Floats = own - alone[first] - alone[second] + others
        return found

    def divergence(self, transitions: Transitions) -> float:
        """Return Σ_k KL(Beta(a + E[S], b + E[A]) || Beta(a, b))."""
        a, b = (to_host(part) for part in self.prior_of(transitions))
        stays, advances = to_host(self.stays), to_host(self.advances)
        of_total = digamma(a + b + stays + advances)
        expected = stays * (digamma(a + stays) - of_total)
        expected += advances * (digamma(b + advances) - of_total)
        return float(expected.sum()) - self.collapsed_bound(transitions)

    def drawn(self, transitions: Transitions, rng: np.random.Generator) -> DurationPotentials:
        """Draw the probabilities of staying."""
        a, b = self.prior_of(transitions)
        pairs = np.stack([a + self.stays, b + self.advances], axis=1)
        stay, advance = draw_dirichlet(pairs, rng).T
        return self.potentials(transitions)._replace(stay=stay, advance=advance)

    def described(self, transitions: Transitions) -> list[StateDuration]:
        """Return shape, probability of staying, and the distribution of each state."""
        stay = to_host(self.potentials(transitions).stay)
        pairs = zip(self.shapes, stay, strict=True)
        return [StateDuration.of_stretches(self.kind, int(r), float(p)) for r, p in pairs]

    def converted(self, convert: Callable[[Any], Any]) -> Self:
        """Return the same with stays and advances converted."""
        return replace(self, stays=convert(self.stays), advances=convert(self.advances))

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return prior, shapes and counts."""
        names = ("max_shape", "learned", "prior", "checked")
        values = {name: getattr(self, name) for name in names}
        shapes = np.asarray(self.shapes, dtype=np.int64)
        return values, {"shapes": shapes, "stays": self.stays, "advances": self.advances}

    @classmethod
    def from_state(cls, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Undo `state`."""
        given = values["prior"]
        own: dict[str, Any] = {**arrays, **values}
        return cls(**(own | {"prior": None if given is None else tuple(given)}))

    def check(self, n_states: int) -> None:
        """Check shapes, counts and prior."""
        file_values.whole("max_shape", self.max_shape, 1)
        file_values.flag("learned", self.learned)
        file_values.whole("checked", self.checked)
        shapes = file_values.array("shapes", self.shapes, (n_states,), kinds="i")
        if shapes.min() < 1 or shapes.max() > self.max_shape:
            raise ValueError("a shape of a duration is out of range")
        for name in ("stays", "advances"):
            file_values.array(name, getattr(self, name), (n_states,), least=0.0)
        if self.prior is not None:
            a, b = self.prior
            file_values.positive("prior", a)
            file_values.positive("prior", b)


@dataclass(frozen=True, eq=False)
class CategoricalDurations(StateDurations):
    r"""Visits of 1 to D steps, each length with a probability of its own, eq (63).

    .. math::

        d \sim \mathrm{Categorical}(w_k), \quad w_k \sim \mathrm{Dirichlet}(c, \dots, c)

    Attributes
    ----------
    entries : (K, D) array
        E[N]: visits that begin D, D − 1, ..., 1 steps before their end.
    concentration : float
        c.
    """

    kind = "categorical"

    entries: Floats
    concentration: float

    @property
    def n_states(self) -> int:
        """Number of states."""
        return len(self.entries)

    @property
    def n_parameters(self) -> int:
        """The probabilities of all lengths but one."""
        return int(self.entries.shape[1]) - 1

    def potentials(self, transitions: Transitions, *, collapsed: bool = True) -> DurationPotentials:
        """Return eq (63); a copy is never followed by itself."""
        xp, rows = namespace(self.entries), self.concentration + self.entries
        totals = rows.sum(axis=1)[:, None]
        entry = rows / totals if collapsed else xp.exp(xp.digamma(rows) - xp.digamma(totals))
        ones = xp.ones_like(self.entries[:, 0])
        return DurationPotentials(entry, 0.0 * ones, ones)

    def blended(self, sums: DurationCounts, keep: float, weight: float) -> Self:
        """Blend the visits by their lengths."""
        xp = namespace(self.entries)
        blended = xp.clip(keep * self.entries + weight * sums.entries, 0.0, None)
        return replace(self, entries=blended)

    def implied(self, counts: Rows) -> Self:
        """Return the visits that begin, alike for every length."""
        within = namespace(counts.start).diagonal(counts.transitions)
        begin = counts.start + counts.transitions.sum(axis=0) - within
        even = namespace(begin).zeros_like(self.entries) + 1.0 / self.entries.shape[1]
        return replace(self, entries=begin[:, None] * even)

    def regrouped(self, weights: Floats, counts: Rows) -> Self:
        """Return the sums of the parts; visits of parts that follow one another become one."""
        own = np.asarray(to_host(weights), dtype=np.float64)
        entries = own @ to_host(self.entries)
        begin = to_host(counts.start) + to_host(counts.transitions).sum(axis=0)
        begin = begin - np.diagonal(to_host(counts.transitions))
        for k in np.flatnonzero((own > 0.0).sum(axis=1) > 1):
            entries[k] = _joined(entries[k], float(begin[k]))
        return replace(self, entries=namespace(self.entries).placed(entries, like=self.entries))

    def collapsed_bound(self, transitions: Transitions) -> float:
        """Return Σ_k log Γ(Dc) / Γ(Dc + E[N_k·]) + Σ_kd log Γ(c + E[N_kd]) / Γ(c)."""
        return float(self._evidence(to_host(self.entries)).sum())

    def _evidence(self, entries: Floats) -> Floats:
        c, whole = self.concentration, self.concentration * entries.shape[1]
        found: Floats = (gammaln(c + entries) - gammaln(c)).sum(axis=1)
        return found + gammaln(whole) - gammaln(whole + entries.sum(axis=1))

    def merge_gains(
        self, transitions: Transitions, counts: Rows, first: Integers, second: Integers
    ) -> Floats:
        """Return the change of the evidence, with visits that follow one another made one."""
        entries, cells = to_host(self.entries), to_host(counts.transitions)
        begin = to_host(counts.start) + cells.sum(axis=0) - np.diagonal(cells)
        visits = begin[first] + begin[second] - cells[first, second] - cells[second, first]
        pairs = zip(first, second, visits, strict=True)
        both = [_joined(entries[i] + entries[j], float(n)) for i, j, n in pairs]
        alone = self._evidence(entries)
        return self._evidence(np.array(both)) - alone[first] - alone[second]

    def divergence(self, transitions: Transitions) -> float:
        """Return Σ_k KL(Dirichlet(c + E[N_k]) || Dirichlet(c))."""
        entries = to_host(self.entries)
        rows = self.concentration + entries
        expected = entries * (digamma(rows) - digamma(rows.sum(axis=1, keepdims=True)))
        return float(expected.sum()) - self.collapsed_bound(transitions)

    def drawn(self, transitions: Transitions, rng: np.random.Generator) -> DurationPotentials:
        """Draw the probabilities of all lengths."""
        entry = draw_dirichlet(self.concentration + self.entries, rng)
        return self.potentials(transitions)._replace(entry=entry)

    def described(self, transitions: Transitions) -> list[StateDuration]:
        """Return the distribution of each state."""
        chances = np.asarray(to_host(self.potentials(transitions).entry), np.float64)[:, ::-1]
        lengths = np.arange(1, chances.shape[1] + 1)
        means = chances @ lengths
        variances = chances @ lengths**2 - means**2
        own = zip(means, variances, chances, strict=True)
        return [StateDuration(self.kind, float(m), float(v), p.copy()) for m, v, p in own]

    def converted(self, convert: Callable[[Any], Any]) -> Self:
        """Return the same with the counts converted."""
        return replace(self, entries=convert(self.entries))

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return prior and counts."""
        return {"concentration": self.concentration}, {"entries": self.entries}

    @classmethod
    def from_state(cls, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Undo `state`."""
        own: dict[str, Any] = {**arrays, **values}
        return cls(**own)

    def check(self, n_states: int) -> None:
        """Check counts and prior."""
        n_lengths = self.entries.shape[1] if self.entries.ndim == 2 else 0
        file_values.whole("max_length", n_lengths, 1)
        file_values.array("entries", self.entries, (n_states, n_lengths), least=0.0)
        file_values.positive("concentration", self.concentration)


DURATIONS: dict[str, type[StateDurations]] = {
    kind.__name__: kind for kind in (NegativeBinomialDurations, CategoricalDurations)
}
"""Every distribution of durations by its name, for model files."""


def _leaving(counts: Rows) -> tuple[Floats, Floats]:
    """Return the steps from each state, and those of them that leave it."""
    total = counts.transitions.sum(axis=1)
    return total, total - namespace(total).diagonal(counts.transitions)


def _joined(entries: Floats, visits: float) -> Floats:
    """Return the lengths of fewer visits, some of which are two in a row.

    Examples
    --------
    Two visits of one step each and two of three become two of four, or stay as they are:

    >>> _joined(np.array([0.0, 2.0, 0.0, 2.0]), 4.0)
    array([0., 2., 0., 2.])
    >>> _joined(np.array([0.0, 2.0, 0.0, 2.0]), 2.0)
    array([1.5, 0. , 0.5, 0. ])
    """
    whole = float(entries.sum())
    if whole <= 0.0 or visits <= 0.0:
        return entries
    pairs = min(max(whole - visits, 0.0), visits)
    chances = entries[::-1] / whole
    longer = np.concatenate([[0.0], np.convolve(chances, chances)])
    n_lengths = len(chances)
    both = longer[:n_lengths].copy()
    both[-1] += longer[n_lengths:].sum()
    found: Floats = ((visits - pairs) * chances + pairs * both)[::-1].copy()
    return found
