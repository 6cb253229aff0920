"""Learns loss rates, priors, gaps and background from a lossy stream by expectation maximisation.

The model is in docs/semantics.md, "Probabilities", and what is maximised in "Learning". The data are *bindings*: for
each last event, all ways to bind earlier events, including events of negative components. The expectation step has two
parts. `counted` computes the probability of each binding and adds these up by edge and length. Its result is small, and
the results for parts of a stream can be added. `completed` divides these sums among all that may have happened on each
edge.

Times are divided into *cells*, and lengths are numbers of cells. So sums over the times of lost events are convolutions
of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ouzel.errors import InputError
from ouzel.loss.fitting import AUTO, best_gap, binned, fit_gap
from ouzel.loss.gaps import Gamma, Gap, Histogram
from ouzel.loss.scoring import ENTRY

if TYPE_CHECKING:
    from ouzel.loss.model import LossModel

Array = NDArray[np.float64]
# From one positive component (by its place among them, or ENTRY) to another, the negatives observed between them, and
# whether a component between them was lost; None if that is not known.
EdgeKey = tuple[int, int, tuple[int, ...], bool | None]

_TAIL_CELLS = 60
_CELLS = 1_024
_TINY = 1e-300
_ROUNDS_MAX = 60
# Iteration ends if the log-likelihood of a last event grows by less.
_GAIN_MIN = 1e-6


@dataclass(frozen=True)
class Chain:
    """The components of a pattern, and its window in ticks, which is divided into cells."""

    names: tuple[str, ...]
    negated: tuple[bool, ...]
    window: float
    cells: int = _CELLS

    @cached_property
    def positives(self) -> tuple[int, ...]:
        """The positions of the positive components in the pattern."""
        return tuple(position for position, negated in enumerate(self.negated) if not negated)

    @property
    def width(self) -> float:
        return self.window / self.cells

    def name(self, place: int) -> str:
        """The name of a positive component, given its index among these."""
        return self.names[self.positives[place]]

    def negatives(self, source: int, target: int) -> tuple[int, ...]:
        """The negative components on an edge. On an edge from the start of the window, only those before the first
        component.
        """
        low = -1 if source == ENTRY else self.positives[source]
        high = self.positives[0 if source == ENTRY else target]
        return tuple(position for position in range(low + 1, high) if self.negated[position])

    @cached_property
    def bounds(self) -> Array:
        """The bounds of cells: around multiples of the cell width up to the window, then of increasing length."""
        inside = (np.arange(self.cells + 1) + 0.5) * self.width
        return np.concatenate([[0.0], inside, inside[-1] * 1.12 ** np.arange(1, _TAIL_CELLS), [np.inf]])

    @cached_property
    def lengths(self) -> Array:
        """The length that represents each cell."""
        bounds = self.bounds
        middle = (bounds[1:] + np.minimum(bounds[:-1], 1e300)) / 2
        middle[-1] = bounds[-2] * 1.12
        return middle


@dataclass(frozen=True)
class Bindings:
    """Bindings, one for each row. `lengths` has, for each component except the last, the number of cells from the start
    of the window to its event; -1 if it has none. Rows with the same last event have the same `group`. `ends` has the
    times of last events.
    """

    lengths: NDArray[np.int32]
    group: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, chain: Chain, times: Array, group: NDArray[np.int64], ends: NDArray[np.int64]) -> Bindings:
        """Bindings from `times` since the start of the window. NaN means that a component has no event."""
        cells = np.where(np.isnan(times), -1, np.rint(np.nan_to_num(times) / chain.width)).astype(np.int32)
        _, numbered = np.unique(group, return_inverse=True)
        return cls(np.minimum(cells, chain.cells), numbered, ends)

    @cached_property
    def groups(self) -> int:
        """The number of last events."""
        return int(self.group.max(initial=-1)) + 1

    def parts(self, rows_max: int) -> Iterator[Bindings]:
        """The bindings in parts of about this many rows. All rows of one last event are in the same part."""
        part = np.cumsum(np.bincount(self.group, minlength=self.groups))[self.group] // rows_max
        for number in np.unique(part):
            rows = part == number
            _, group = np.unique(self.group[rows], return_inverse=True)
            yield Bindings(self.lengths[rows], group, self.ends[rows])

    @cached_property
    def by_bound(self) -> list[tuple[tuple[int, ...], NDArray[np.int64]]]:
        """Each set of bound components, with the rows that bind exactly these."""
        bits = (self.lengths >= 0) @ (np.int64(1) << np.arange(self.lengths.shape[1]))
        return [
            (tuple(p for p in range(self.lengths.shape[1]) if found >> p & 1), np.flatnonzero(bits == found))
            for found in np.unique(bits)
        ]

    def without(self, dropped: NDArray[np.bool_]) -> Bindings:
        """The bindings without some rows. For each last event, the binding of no earlier events is kept."""
        return Bindings(self.lengths[~dropped], self.group[~dropped], self.ends[~dropped])


# ── Densities on cells ─────────────────────────────────────────────────────────────────────────────


class Cells:
    """A gap as a probability for each cell."""

    def __init__(self, gap: Gap, chain: Chain) -> None:
        below, above = gap.cdf(chain.bounds[:-1]), gap.survival(chain.bounds[:-1])
        # Each difference where it keeps its digits.
        falling = -np.diff(np.append(above, 0.0))
        self.mass = np.maximum(np.where(below < 0.5, np.diff(np.append(below, 1.0)), falling), 0.0)
        inside = slice(0, chain.cells + 1)
        self.inside = self.mass[inside]
        self.happened = (np.cumsum(self.mass) - self.mass / 2)[inside]
        self.survival = (np.cumsum(self.mass[::-1])[::-1] - self.mass / 2)[inside]

    def longer(self, weights: Array) -> Array:
        """Distribute weights over cells: the weight of a cell is for gaps that are longer than it."""
        share = np.divide(weights, self.survival, out=np.zeros_like(weights), where=self.survival > 0)
        before = np.concatenate([np.cumsum(share), np.full(len(self.mass) - len(share), share.sum())])
        return np.asarray(self.mass * (before - np.pad(share, (0, len(self.mass) - len(share))) / 2))

    def shorter(self, weights: Array) -> Array:
        """Distribute weights over cells: the weight of a cell is for gaps that are shorter than it."""
        share = np.divide(weights, self.happened, out=np.zeros_like(weights), where=self.happened > 0)
        found = np.zeros_like(self.mass)
        found[: len(share)] = self.inside * (np.cumsum(share[::-1])[::-1] - share / 2)
        return found


def convolved(first: Array, second: Array) -> Array:
    """The convolution of two arrays over cells: the distribution of the sum of two lengths."""
    return np.convolve(first, second)[: len(first)]


def _correlated(later: Array, first: Array) -> Array:
    """Σ over T of later[T] first[T - t], for each t."""
    return convolved(later[::-1], first)[::-1]


class Edges:
    """The probability of all that may have happened between two bound components, for each length in cells
    (`Weights.every`).
    """

    def __init__(self, chain: Chain, model: LossModel) -> None:
        self.chain, self.model = chain, model
        self._cells: dict[tuple[str, str], Cells] = {}
        self._steps: dict[tuple[int, int], Array] = {}
        self._every: dict[tuple[int, int], Array] = {}
        self._beside: dict[tuple[int, int, int], Array] = {}

    def cells(self, kind: str, name: str) -> Cells:
        """A gap of the model in cells. `kind` is gaps or skip_gaps."""
        if (kind, name) not in self._cells:
            self._cells[kind, name] = Cells(getattr(self.model, kind)[name], self.chain)
        return self._cells[kind, name]

    def gap(self, source: int, target: int) -> tuple[str, str]:
        """(kind, name) of the gap from one positive component to another, if none between them happened."""
        skipped = self.chain.name(target - 1)
        if target > source + 1 and skipped in self.model.skip_gaps:
            return "skip_gaps", skipped
        return "gaps", self.chain.name(target)

    def prior(self, place: int) -> float:
        return self.model.priors.get(self.chain.name(place), 1.0)

    def loss(self, position: int) -> float:
        return self.model.loss_of(self.chain.names[position], None)

    def lost(self, place: int) -> float:
        """The probability that a component happened and was lost."""
        return self.prior(place) * self.loss(self.chain.positives[place])

    def skipped(self, places: range) -> float:
        """The probability that none of some components happened."""
        return float(np.prod([1 - self.prior(place) for place in places]))

    def quiet(self, negative: int) -> Array:
        """The probability, by length, that a negative component did not happen or was lost."""
        cells = self.cells("gaps", self.chain.names[negative])
        return cells.survival + self.loss(negative) * cells.happened

    def step(self, source: int, target: int, observed: tuple[int, ...] = ()) -> Array:
        """The probability, by length, that none of the components between happened, and that no negative was observed
        except those given.
        """
        if source == ENTRY:
            found = np.full(self.chain.cells + 1, self.skipped(range(target)))
        else:
            found = self.skipped(range(source + 1, target)) * self.cells(*self.gap(source, target)).inside
        for negative in self.chain.negatives(source, target):
            if negative not in observed:
                found = found * self.quiet(negative)
        return found

    def before(self, source: int, target: int) -> Array:
        """The probability, by length, that the source happened before the window and the target is the next component
        that happened.
        """
        share = self.prior(source) * self.skipped(range(source + 1, target))
        return share * self.cells(*self.gap(source, target)).survival

    def nothing_lost(self, source: int, target: int) -> Array:
        """The probability, by length, that none of the components between was lost."""
        found = self.step(source, target)
        if source == ENTRY:
            for place in range(target):
                found = found + self.before(place, target)
        return found

    def every(self, source: int, target: int) -> Array:
        key = source, target
        if key not in self._every:
            found = self.nothing_lost(source, target)
            for last in range(source + 1, target):
                if self.lost(last) > 0:
                    found = found + self.lost(last) * convolved(self.every(source, last), self._step(last, target))
            self._every[key] = found
        return self._every[key]

    def _step(self, source: int, target: int) -> Array:
        if (source, target) not in self._steps:
            self._steps[source, target] = self.step(source, target)
        return self._steps[source, target]

    def step_seen(self, source: int, target: int, negative: int) -> Array:
        """Like `step`, if a negative component happened and was observed, at any time."""
        if negative not in self.chain.negatives(source, target):
            return np.zeros(self.chain.cells + 1)
        cells = self.cells("gaps", self.chain.names[negative])
        return self.step(source, target, (negative,)) * (1 - self.loss(negative)) * cells.happened

    def seen(self, source: int, target: int, negative: int) -> Array:
        """The probability, by length, that a negative component was observed at any time, with or without lost
        components.
        """
        return self.step_seen(source, target, negative) + self.seen_beside(source, target, negative)

    def when_seen(self, source: int, target: int, negative: int) -> Array:
        """The probability, by length, of the time of an observed negative if a component on the edge was lost. This is
        an approximation: exactly, it would also depend on the length of the edge, of which only that it ends later is
        used.
        """
        due = self.cells("gaps", self.chain.names[negative]).inside
        found = np.zeros(self.chain.cells + 1)
        for last in range(source + 1, target):
            is_after = negative in self.chain.negatives(last, target)
            found += self.lost(last) * (convolved(self.every(source, last), due) if is_after else due)
        return found

    def seen_beside(self, source: int, target: int, negative: int) -> Array:
        """The probability, by length, that a negative component was observed and a component between the bound ones was
        lost.
        """
        key = source, target, negative
        if key not in self._beside:
            found = np.zeros(self.chain.cells + 1)
            for last in range(source + 1, target):
                if self.lost(last) > 0:
                    found += self.lost(last) * (
                        convolved(self.seen(source, last, negative), self._step(last, target))
                        + convolved(self.every(source, last), self.step_seen(last, target, negative))
                    )
            self._beside[key] = found
        return self._beside[key]


# ── Expectation ────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Counts:
    """Sums over all last events, by edge and length. Those for two parts of a stream can be added."""

    edges: dict[EdgeKey, Array] = field(default_factory=dict)
    # Observed negatives by the length of their gap.
    seen: dict[int, Array] = field(default_factory=dict)
    bound: dict[int, float] = field(default_factory=dict)
    events: dict[int, float] = field(default_factory=dict)
    last_events: float = 0.0
    attempts: float = 0.0
    likelihood: float = 0.0

    def _add(self, edges: Edges, edge: _Edge, share: Array) -> None:
        cells = edges.chain.cells + 1
        if not edge.observed:
            _sum_into(self.edges, (edge.source, edge.target, (), None), np.bincount(edge.length, share, cells))
            return
        alone, beside = of_edge(edges, edge)
        lost = share * np.divide(beside, alone + beside, out=np.zeros_like(alone), where=beside > 0)
        for is_lost, own in ((False, share - lost), (True, lost)):
            key = edge.source, edge.target, edge.observed, is_lost
            _sum_into(self.edges, key, np.bincount(edge.length, own, cells))
        for negative, gap in zip(edge.observed, edge.gaps, strict=True):
            _sum_into(self.seen, negative, np.bincount(gap, share - lost, cells))

    def __iadd__(self, other: Counts) -> Counts:
        for name in ("edges", "seen", "bound", "events"):
            own = getattr(self, name)
            for key, value in getattr(other, name).items():
                _sum_into(own, key, value)
        for name in ("last_events", "attempts", "likelihood"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


def _sum_into(sums: dict[Any, Any], key: Any, value: Any) -> None:
    sums[key] = sums[key] + value if key in sums else value


def weights(edges: Edges, data: Bindings) -> Array:
    """The weight of each binding, relative to the weight of the explanation that all its events are background."""
    found = np.ones(len(data.lengths))
    for bound, rows in data.by_bound:
        weight = np.full(len(rows), _of_bound(edges, bound))
        for edge in edges_of(edges.chain, bound, data.lengths[rows]):
            weight *= np.add(*of_edge(edges, edge))
        found[rows] = weight
    return found


def _of_bound(edges: Edges, bound: Sequence[int]) -> float:
    """The product of the factors of bound components."""
    chain = edges.chain
    made = edges.prior(len(chain.positives) - 1)
    for position in bound:
        prior = 1.0 if chain.negated[position] else edges.prior(chain.positives.index(position))
        made *= prior * (1 - edges.loss(position)) * _background(edges, position)
    return made


@dataclass(frozen=True)
class _Edge:
    """The same edge in several bindings, with its lengths and the lengths of the gaps of observed negatives."""

    source: int
    target: int
    observed: tuple[int, ...]
    length: NDArray[np.int32]
    gaps: tuple[NDArray[np.int32], ...]


def edges_of(chain: Chain, bound: Sequence[int], lengths: NDArray[np.int32]) -> list[_Edge]:
    """The edges of bindings that bind the same components."""
    places = [p for p, position in enumerate(chain.positives[:-1]) if position in bound] + [len(chain.positives) - 1]
    found = []
    for source, target in zip([ENTRY, *places], places, strict=False):
        start = lengths[:, chain.positives[source]] if source != ENTRY else np.zeros(len(lengths), np.int32)
        is_last = target == len(chain.positives) - 1
        end = np.full(len(lengths), chain.cells, np.int32) if is_last else lengths[:, chain.positives[target]]
        low = chain.positives[source] if source != ENTRY else -1
        observed = tuple(n for n in bound if chain.negated[n] and low < n < chain.positives[target])
        gaps = tuple(np.clip(lengths[:, n] - start, 0, chain.cells) for n in observed)
        found.append(_Edge(source, target, observed, np.clip(end - start, 0, chain.cells), gaps))
    return found


def of_edge(edges: Edges, edge: _Edge) -> tuple[Array, Array]:
    """(without, with): the factors of an edge in several bindings, without and with a lost component on an edge with an
    observed negative.
    """
    chain, nothing = edges.chain, np.zeros(len(edge.length))
    width = chain.width if edge.source != ENTRY else 1.0
    if not edge.observed:
        return edges.every(edge.source, edge.target)[edge.length] / width, nothing
    alone, beside = nothing, nothing
    if set(edge.observed) <= set(chain.negatives(edge.source, edge.target)):
        alone = edges.step(edge.source, edge.target, edge.observed)[edge.length] / width
        for negative, gap in zip(edge.observed, edge.gaps, strict=True):
            alone = alone * edges.cells("gaps", chain.names[negative]).inside[gap] / chain.width
    if len(edge.observed) == 1:
        negative = edge.observed[0]
        weight = edges.seen_beside(edge.source, edge.target, negative) / (1 - edges.loss(negative))
        when = edges.when_seen(edge.source, edge.target, negative)
        share = when[edge.gaps[0]] / np.maximum(np.cumsum(when)[edge.length], _TINY)
        beside = weight[edge.length] / width * share / chain.width
    return alone, beside


def _background(edges: Edges, position: int) -> float:
    given = edges.model.background_of(edges.chain.names[position], None)
    return 1_000 * edges.chain.window if given is None else given


def posterior(edges: Edges, data: Bindings, weight: Array) -> tuple[Array, Array]:
    """(the probability of each binding, the sum of the weights for each last event)."""
    prior = edges.prior(len(edges.chain.positives) - 1)
    whole: Array = np.bincount(data.group, weight, data.groups).astype(np.float64) + 1 - prior
    return np.divide(weight, whole[data.group], out=np.zeros_like(weight), where=weight > 0), whole


def counted(edges: Edges, data: Bindings) -> Counts:
    """The first part of the expectation step: the probabilities of bindings, added up by edge and length."""
    chain = edges.chain
    share, whole = posterior(edges, data, weights(edges, data))
    made = Counts(last_events=float(data.groups), attempts=float(share.sum()))
    made.likelihood = float(np.log(np.maximum(whole, _TINY)).sum())
    for bound, rows in data.by_bound:
        own = share[rows]
        for position in bound:
            _sum_into(made.bound, position, float(own.sum()))
        if len(bound) == 1:
            made.events[bound[0]] = float(len(rows))
        for edge in edges_of(chain, bound, data.lengths[rows]):
            made._add(edges, edge, own)
    for position in range(len(chain.names) - 1):
        events, rate = made.events.get(position, 0.0), 1 / _background(edges, position)
        made.likelihood += events * np.log(rate) - made.last_events * chain.window * rate
    return made


@dataclass
class Completed:
    """The expected number of times that each thing happened. Gaps are weights of cells."""

    happened: dict[str, float] = field(default_factory=dict)
    absent: dict[str, float] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)
    gaps: dict[tuple[str, str], Array] = field(default_factory=dict)

    def add(self, what: str, name: str, amount: float) -> None:
        own = getattr(self, what)
        own[name] = own.get(name, 0.0) + float(amount)

    def add_gap(self, key: tuple[str, str], cells: Array) -> None:
        if key in self.gaps:
            self.gaps[key][: len(cells)] += cells
        else:
            self.gaps[key] = cells.copy()


def completed(edges: Edges, counts: Counts) -> Completed:
    """The second part of the expectation step: what happened on the edges."""
    chain, made = edges.chain, Completed()
    size = len(chain.lengths)

    def padded(cells: Array) -> Array:
        return np.pad(cells, (0, size - len(cells)))

    def step(source: int, target: int, observed: tuple[int, ...], amount: Array) -> None:
        for place in range(max(source, ENTRY) + 1, target):
            made.add("absent", chain.name(place), amount.sum())
        if source != ENTRY:
            made.add_gap(edges.gap(source, target), padded(amount))
        for negative in chain.negatives(source, target):
            if negative in observed:
                continue
            name = chain.names[negative]
            cells, quiet = edges.cells("gaps", name), edges.quiet(negative)
            of_lost = amount * edges.loss(negative) * cells.happened / np.maximum(quiet, _TINY)
            made.add_gap(("gaps", name), cells.longer(amount - of_lost))
            made.add_gap(("gaps", name), cells.shorter(of_lost))
            made.add("lost", name, of_lost.sum())

    def lose(last: int, amount: Array) -> None:
        made.add("happened", chain.name(last), amount.sum())
        made.add("lost", chain.name(last), amount.sum())

    def step_seen(source: int, target: int, negative: int, amount: Array) -> None:
        name = chain.names[negative]
        step(source, target, (negative,), amount)
        made.add_gap(("gaps", name), edges.cells("gaps", name).shorter(amount))

    left: dict[EdgeKey, Array] = {}
    for key, amount in counts.edges.items():
        if key[3] is False:
            step(key[0], key[1], key[2], amount)
        else:
            left[key] = amount
    for negative, cells in counts.seen.items():
        made.add_gap(("gaps", chain.names[negative]), padded(cells))

    for target in range(len(chain.positives) - 1, -1, -1):
        for source, _, observed, is_lost in [key for key in left if key[1] == target and key[3]]:
            # Beside a lost component, a negative was observed.
            amount, negative = left[source, target, observed, is_lost], observed[0]
            ratio = _ratio(amount, edges.seen_beside(source, target, negative))
            for last in range(source + 1, target):
                if edges.lost(last) == 0:
                    continue
                before, after = edges.every(source, last), edges.step_seen(last, target, negative)
                _sum_into(left, (source, last, (), None), edges.lost(last) * before * _correlated(ratio, after))
                lose(last, edges.lost(last) * before * _correlated(ratio, after))
                step_seen(last, target, negative, edges.lost(last) * after * _correlated(ratio, before))
                before, after = edges.seen(source, last, negative), edges.step(last, target)
                earlier = edges.lost(last) * before * _correlated(ratio, after)
                lose(last, earlier)
                step(last, target, (), edges.lost(last) * after * _correlated(ratio, before))
                direct = earlier * _ratio(edges.step_seen(source, last, negative), before)
                step_seen(source, last, negative, direct)
                _sum_into(left, (source, last, observed, True), earlier - direct)
        for source in range(ENTRY, target):
            if (source, target, (), None) not in left:
                continue
            ratio = _ratio(left[source, target, (), None], edges.every(source, target))
            step(source, target, (), ratio * edges.step(source, target))
            if source == ENTRY:
                for place in range(target):
                    own = ratio * edges.before(place, target)
                    made.add("happened", chain.name(place), own.sum())
                    for skipped in range(place + 1, target):
                        made.add("absent", chain.name(skipped), own.sum())
                    made.add_gap(edges.gap(place, target), edges.cells(*edges.gap(place, target)).longer(own))
            for last in range(source + 1, target):
                if edges.lost(last) == 0:
                    continue
                before, after = edges.every(source, last), edges.step(last, target)
                earlier = edges.lost(last) * before * _correlated(ratio, after)
                lose(last, earlier)
                step(last, target, (), edges.lost(last) * after * _correlated(ratio, before))
                _sum_into(left, (source, last, (), None), earlier)
    for position, times in counts.bound.items():
        if not chain.negated[position]:
            made.add("happened", chain.names[position], times)
    return made


def _ratio(amount: Array, whole: Array) -> Array:
    return np.divide(amount, whole, out=np.zeros_like(amount), where=whole > _TINY)


# ── Maximisation ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Known:
    """What the user has given, so that it is not learnt; and the families of gaps."""

    names: Mapping[str, frozenset[str]]
    loss: bool
    families: Mapping[tuple[str, str], str]
    each: bool = False  # a loss rate for each component

    def has(self, what: str, name: str) -> bool:
        return name in self.names.get(what, ())


def maximised(edges: Edges, counts: Counts, known: Known) -> LossModel:
    """The maximisation step: the most likely model, given how often each thing is expected to have happened."""
    chain, model, made = edges.chain, edges.model, completed(edges, counts)
    last = chain.names[-1] if not chain.negated[-1] else chain.name(-1)
    priors, losses = dict(model.priors), dict(model.component_loss)
    for position in chain.positives[:-1]:
        name = chain.names[position]
        whole = made.happened.get(name, 0.0) + made.absent.get(name, 0.0)
        if whole > 0 and not known.has("priors", name):
            priors[name] = min(made.happened.get(name, 0.0) / whole, 1.0)
    if not known.has("priors", last) and counts.last_events:
        priors[last] = min(counts.attempts / counts.last_events, 1.0)
    free = [
        p
        for p in range(len(chain.names))
        if p != chain.positives[-1] and chain.names[p] not in known.names["component_loss"]
    ]
    observations = {chain.names[p]: (made.lost.get(chain.names[p], 0.0), counts.bound.get(p, 0.0)) for p in free}
    if not known.loss:
        shared = np.sum(list(observations.values()), axis=0)
        for name, own in observations.items():
            missed, seen = own if known.each else shared
            if missed + seen > 0:
                losses[name] = min(float(missed / (missed + seen)), 0.999)
    background = {**model.background}
    for position, events in counts.events.items():
        name = chain.names[position]
        if not known.has("background", name):
            # Not more than one in all windows can be excluded.
            rate = max(events - counts.bound.get(position, 0.0), 1e-3) / (counts.last_events * chain.window)
            background[name] = 1 / rate
    gaps: dict[str, Any] = {"gaps": dict(model.gaps), "skip_gaps": dict(model.skip_gaps)}
    for (kind, name), cells in made.gaps.items():
        if not known.has(kind, name) and cells.sum() > 1e-6:
            gaps[kind][name] = _refitted(gaps[kind][name], chain.lengths, cells)
    return replace(model, priors=priors, component_loss=losses, background=background, **gaps)


def _refitted(gap: Gap, lengths: Array, cells: Array) -> Gap:
    """A gap fitted again, with the same family and the same bins."""
    if isinstance(gap, Histogram):
        return binned(lengths, cells, np.array(gap.edges, np.float64))
    return fit_gap(lengths, cells, gap.family)


def pairs(chain: Chain, data: Bindings) -> Counts:
    """The lengths between components, from bindings with one or two of them, by their positions (or ENTRY)."""
    found = Counts()
    last = chain.positives[-1]
    for bound, rows in data.by_bound:
        if not 1 <= len(bound) <= 2:
            continue
        for source, target in ((ENTRY, *bound), (*bound, last)) if len(bound) == 1 else (bound,):
            low = data.lengths[rows, source] if source != ENTRY else np.zeros(len(rows), np.int32)
            high = data.lengths[rows, target] if target != last else np.full(len(rows), chain.cells, np.int32)
            summed = np.bincount(np.maximum(high - low, 0), minlength=chain.cells + 1)
            _sum_into(found.edges, (source, target, (), None), summed.astype(np.float64))
    return found


def start(chain: Chain, found: Counts, given: LossModel, known: Known) -> LossModel:
    """A model to start with: gaps between the events of `pairs`, a loss of one in ten, and little background."""
    gaps, skips = dict(given.gaps), dict(given.skip_gaps)
    lengths = chain.lengths[: chain.cells + 1]
    for position, name in enumerate(chain.names):
        before = [p for p in chain.positives if p < position]
        if name in gaps or (not before and not chain.negated[position]):
            continue
        source = before[-1] if before else ENTRY
        cells = found.edges.get((source, position, (), None), np.zeros(chain.cells + 1))
        family = known.families.get(("gaps", name), "auto")
        if np.count_nonzero(cells) > 1:
            gaps[name] = fit_gap(lengths, cells, "gamma" if family == "auto" else family)
        else:
            gaps[name] = Gamma(1.0, chain.window / 4)
    if known.loss:
        # Otherwise the stream cannot tell who was lost from who did not happen.
        for earlier, position in zip(chain.positives[1:], chain.positives[2:], strict=False):
            skips.setdefault(chain.names[earlier], gaps[chain.names[position]])
    priors = {**{chain.name(place): 0.9 for place in range(len(chain.positives))}, **given.priors}
    losses = dict(given.component_loss)
    if not known.loss:
        losses = {**dict.fromkeys(chain.names, 0.1), **losses}
    background = {**dict.fromkeys(chain.names, 10 * chain.window), **given.background}
    return replace(given, gaps=gaps, skip_gaps=skips, priors=priors, component_loss=losses, background=background)


# ── Iteration ──────────────────────────────────────────────────────────────────────────────────────


def learnt(
    chain: Chain, count: Callable[[LossModel], Counts], first: LossModel, known: Known
) -> tuple[LossModel, list[float]]:
    """(model, log-likelihoods): the most likely model, and the log-likelihood after each step, which never falls.

    `count` does the first part of the expectation step for a model. Every third model is extrapolated from the two
    before it (Varadhan and Roland 2008), and kept if it is more likely.
    """
    model, counts = first, count(first)
    found = [counts.likelihood]
    for _ in range(_ROUNDS_MAX):
        once = maximised(Edges(chain, model), counts, known)
        counts_once = count(once)
        twice = maximised(Edges(chain, once), counts_once, known)
        further = _extrapolated(model, once, twice)
        counts_twice, counts_further = count(twice), count(further)
        likelier = counts_further.likelihood > counts_twice.likelihood
        made, counts_made = (further, counts_further) if likelier else (twice, counts_twice)
        gain = counts_made.likelihood - counts.likelihood
        if gain <= 0:
            break
        model, counts = made, counts_made
        found.append(counts.likelihood)
        if gain < _GAIN_MIN * counts.last_events:
            break
    return model, found


def with_families(chain: Chain, counts: Counts, model: LossModel, known: Known) -> LossModel:
    """The model with the family for each gap that best fits what is expected to have happened."""
    made = completed(Edges(chain, model), counts)
    changed: dict[str, Any] = {kind: dict(getattr(model, kind)) for kind in _GAPS}
    for (kind, name), cells in made.gaps.items():
        if not known.has(kind, name) and known.families.get((kind, name), "auto") == "auto" and cells.sum() >= 1:
            changed[kind][name] = best_gap(chain.lengths, cells, (*AUTO, "histogram"))
    return replace(model, **changed)


def _extrapolated(model: LossModel, once: LossModel, twice: LossModel) -> LossModel:
    points = [_packed(one) for one in (model, once, twice)]
    if len({len(point) for point in points}) > 1:
        return twice
    step = points[1] - points[0]
    change = points[2] - points[1] - step
    length = -max(float(np.linalg.norm(step)) / max(float(np.linalg.norm(change)), 1e-12), 1.0)
    return _unpacked(twice, points[0] - 2 * length * step + length**2 * change)


_RATES, _GAPS = ("priors", "component_loss"), ("gaps", "skip_gaps")


def _packed(model: LossModel) -> Array:
    """The parameters of a model on scales without limits, for extrapolation."""
    found = []
    for name in _RATES:
        share = np.clip(np.array(list(getattr(model, name).values())), 1e-9, 1 - 1e-9)
        found.append(np.log(share / (1 - share)))
    found.append(np.log(np.array(list(model.background.values()), np.float64)))
    for name in _GAPS:
        for gap in getattr(model, name).values():
            values = (
                list(gap.counts)
                if isinstance(gap, Histogram)
                else [v for k, v in gap.to_dict().items() if k != "family"]
            )
            found.append(np.log(np.maximum(values, 1e-12)))
    return np.concatenate(found)


def _unpacked(like: LossModel, point: Array) -> LossModel:
    """The model with other parameters. Parameters at their limits stay the same."""
    left = list(point)
    changed: dict[str, Any] = {}
    for name in _RATES:
        own = getattr(like, name)
        logits = [left.pop(0) for _ in own]
        changed[name] = {
            key: value
            if value in (0.0, 1.0)
            else float(np.clip(1 / (1 + np.exp(-np.clip(logit, -50, 50))), 0.0, 1 - 1e-9))
            for (key, value), logit in zip(own.items(), logits, strict=True)
        }
    changed["background"] = {key: float(np.exp(min(left.pop(0), 600))) for key in like.background}
    for name in _GAPS:
        changed[name] = {key: _moved(gap, left) for key, gap in getattr(like, name).items()}
    return replace(like, **changed)


def _moved(gap: Gap, left: list[float]) -> Gap:
    if isinstance(gap, Histogram):
        return Histogram(gap.edges, [float(np.exp(min(left.pop(0), 600))) for _ in gap.counts])
    stored = [key for key in gap.to_dict() if key != "family"]
    try:
        return type(gap)(**{key: float(np.exp(min(left.pop(0), 600))) for key in stored})
    except InputError:
        # Out of bounds.
        return gap


__all__ = [
    "Bindings",
    "Chain",
    "Counts",
    "Edges",
    "Known",
    "completed",
    "convolved",
    "counted",
    "edges_of",
    "learnt",
    "maximised",
    "of_edge",
    "pairs",
    "posterior",
    "start",
    "weights",
    "with_families",
]
