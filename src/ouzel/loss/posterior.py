"""The weights of explanations, as functions of the times between bound components.

See docs/semantics.md, "Probabilities". The weight of an explanation is a product over its edges, like its score. An
edge leads from one bound component to the next, or from the start of the window to the first bound one. The weight of
an edge has a factor for each component between the two, and one for its source: π(1 - ε) · background.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ouzel.loss.curves import Function, Panels, Pieces, breaks_for, convolution
from ouzel.loss.gaps import Gap
from ouzel.loss.scoring import ENTRY, LossyComponent

Array = NDArray[np.float64]
Keyed = tuple[tuple[object, ...], Function]
# With more sums of kinks than this, panels are halved where it matters instead.
_KINKS_MAX = 64
_MARKS_MAX = 6
_PIECES_MAX = 48


@dataclass(frozen=True)
class Beside:
    """Explanations of an edge in which components were lost and one negative was observed: its density `due` after the
    last component before it, `left` and `right` of the way from the source to that one and from the next one to the
    target, if these were lost, and `slot` of the time between the two. Functions come with a key."""

    negative: int  # its place among all components
    scale: float
    left: Keyed | None
    slot: Keyed
    right: Keyed | None
    due: Keyed


class Weights:
    """The weights of a pattern's edges, for times in (0, window]."""

    def __init__(self, components: Sequence[LossyComponent], window: float) -> None:
        self.positives = tuple(c for c in components if not c.negated)
        self._window = window
        self._places = {component.name: place for place, component in enumerate(components)}
        # The negatives before each positive.
        self._negatives: list[list[LossyComponent]] = [[]]
        for component in components:
            if component.negated:
                self._negatives[-1].append(component)
            else:
                self._negatives.append([])
        self._made: dict[tuple[object, ...], Pieces] = {}

    # ── What an edge weighs ────────────────────────────────────────────────────────────────────────

    def path(self, source: int, target: int) -> Pieces:
        """The weight that all components between two happened and were lost, and that no negative happened."""
        if source == ENTRY and target == 0:
            return self._pieces(lambda t: self._absent(self._negatives[0], t), self._gaps(self._negatives[0]))
        if target == source + 1 and source != ENTRY:
            return self._scaled(source, self._next(source))
        lost = self._lost(target - 1)
        before = self._unscaled(self.path, source, target - 1)
        return self._scaled(source, self._convolved(before, self._next(target - 1), lost))

    def every(self, source: int, target: int) -> Pieces:
        """The weight of all that may have happened to the components between two, except that a negative was
        observed.
        """
        key = ("every", source, target)
        if key not in self._made:
            direct = self._entry(target) if source == ENTRY else self._step(source, target)
            terms = [
                (self._unscaled(self.every, source, last), self._step(last, target), self._lost(last))
                for last in range(source + 1, target)
                if self._lost(last) > 0
            ]
            terms = [term for term in terms if not isinstance(term[1], _Never)]
            if terms:
                self._made[key] = self._resolved(
                    lambda t: sum((f * convolution(a, b, t) for a, b, f in terms), direct(t)),
                    [(direct,), *((a, b) for a, b, _ in terms)],
                )
            else:
                self._made[key] = direct
        return self._scaled(source, self._made[key])

    def beside(self, source: int, target: int) -> Iterator[Beside]:
        """Some components between them were lost, and one negative was observed."""
        scale = 1.0 if source == ENTRY else self._bound(source)
        for last, following in itertools.combinations(range(source, target + 1), 2):
            ends = [place for place in (last, following) if place not in (source, target)]
            # Before the first component that happened, only the negatives before all components are due.
            between = range(1) if last == ENTRY else range(last + 1, following + 1)
            if not ends or any(self._lost(place) == 0 for place in ends):
                continue
            own = [negative for place in between for negative in self._negatives[place]]
            for negative in own:
                if negative.gap is None:
                    continue
                others = [one for one in own if one is not negative]
                yield Beside(
                    self._places[negative.name],
                    scale * float(np.prod([self._lost(place) for place in ends])),
                    None if last == source else (("every", source, last), self._unscaled(self.every, source, last)),
                    (("slot", last, following, negative.name), self._slot(last, following, others)),
                    None
                    if following == target
                    else (("every", following, target), self._unscaled(self.every, following, target)),
                    (("due", negative.name), lambda t, n=negative: self.observed(n, t)),  # type: ignore[misc]
                )

    def _slot(self, last: int, following: int, negatives: Sequence[LossyComponent]) -> Function:
        """Nothing happened between two that did, except for one negative."""
        share = self._skipped(range(last + 1, following))
        if last == ENTRY:
            return lambda t: share * self._quiet(negatives, t)
        gap = self._gap(last, following)
        return lambda t: share * gap.density(t) * self._quiet(negatives, t)

    def nothing_between(self, source: int, target: int) -> Pieces:
        """The weight that no component between two happened, without the factors of negatives."""
        if source != ENTRY:
            return self._scaled(source, self._step(source, target, negatives=False))
        share = self._skipped(range(target))
        return self._pieces(lambda t: np.full(len(t), share), [])

    @property
    def path_at_end(self) -> Pieces:
        """The probability that no negative after the last positive event happened before the window ended."""
        own = self._negatives[-1]
        return self._pieces(lambda t: self._absent(own, t), self._gaps(own))

    @property
    def every_at_end(self) -> Pieces:
        """The probability that none of these negatives was observed."""
        own = self._negatives[-1]
        return self._pieces(lambda t: self._quiet(own, t), self._gaps(own))

    def unobserved(self, negative: LossyComponent, t: Array) -> Array:
        """The probability that a negative did not happen within a time t, or was lost."""
        if negative.loss == 0 and negative.gap is None:
            return np.ones(len(t))
        assert negative.gap is not None, "checked when the plan is made"
        return np.asarray(negative.gap.survival(t) + negative.loss * negative.gap.cdf(t))

    def observed(self, negative: LossyComponent, t: Array) -> Array:
        """The density that a negative happened after a time t and was observed."""
        if negative.gap is None:
            return np.zeros(len(t))
        return np.asarray((1 - negative.loss) * self._background(negative) * negative.gap.density(t))

    # ── Factors ────────────────────────────────────────────────────────────────────────────────────

    def _prior(self, place: int) -> float:
        prior = self.positives[place].prior
        assert prior is not None or self.positives[place].loss == 0, "checked when the plan is made"
        return 1.0 if prior is None else prior

    def _lost(self, place: int) -> float:
        return self._prior(place) * self.positives[place].loss

    def _skipped(self, places: Iterable[int]) -> float:
        return float(np.prod([1 - self._prior(place) for place in places]))

    def _background(self, component: LossyComponent) -> float:
        return component.background or DEFAULT_WINDOWS * self._window

    def _bound(self, place: int) -> float:
        component = self.positives[place]
        return self._prior(place) * (1 - component.loss) * self._background(component)

    def _absent(self, negatives: Sequence[LossyComponent], t: Array) -> Array:
        found = np.ones(len(t))
        for negative in negatives:
            if negative.gap is not None:
                found = found * negative.gap.survival(t)
        return found

    def _quiet(self, negatives: Sequence[LossyComponent], t: Array) -> Array:
        found = np.ones(len(t))
        for negative in negatives:
            found = found * self.unobserved(negative, t)
        return found

    def _gap(self, source: int, target: int) -> Gap:
        """The distribution of the time from a component to the next one that happened."""
        skipped = self.positives[target - 1].skip_gap if target > source + 1 else None
        gap = self.positives[target].gap if skipped is None else skipped
        assert gap is not None, "checked when the plan is made"
        return gap

    # ── Functions ──────────────────────────────────────────────────────────────────────────────────

    def _next(self, source: int) -> Pieces:
        """The weight that the next component happened, and no negative between the two."""
        key = ("next", source)
        if key not in self._made:
            gap, negatives = self._gap(source, source + 1), self._negatives[source + 1]
            if not any(negative.gap for negative in negatives):
                self._made[key] = self._step(source, source + 1)
            else:
                self._made[key] = self._pieces(
                    lambda t: gap.density(t) * self._absent(negatives, t), [gap, *self._gaps(negatives)]
                )
        return self._made[key]

    def _step(self, source: int, target: int, *, negatives: bool = True) -> Pieces:
        """The weight that none of the components between two happened, and that no negative was observed."""
        between = [n for place in range(source + 1, target + 1) for n in self._negatives[place]] if negatives else []
        between = [n for n in between if n.gap is not None]
        key = ("step", source, target, tuple(n.name for n in between))
        if key not in self._made:
            share = self._skipped(range(source + 1, target))
            gap = self._gap(source, target)
            if share == 0:
                self._made[key] = _Never(self._window)
            else:
                made = self._pieces(
                    lambda t: share * gap.density(t) * self._quiet(between, t), [gap, *self._gaps(between)]
                )
                if gap.steps is not None and not between:
                    made = replace(made, steps=(gap.steps[0], share * gap.steps[1]))
                self._made[key] = made
        return self._made[key]

    def _entry(self, target: int) -> Pieces:
        """The weight of the first component that happened in the window, as a function of the time since the start of
        the window.
        """
        terms = []
        for source in range(target):
            share = self._prior(source) * self._skipped(range(source + 1, target))
            if share > 0:
                terms.append((share, self._gap(source, target)))
        none, leading = self._skipped(range(target)), self._negatives[0]

        def function(t: Array) -> Array:
            found = none * self._quiet(leading, t)
            for share, gap in terms:
                found = found + share * gap.survival(t)
            return found

        return self._pieces(function, [*(gap for _, gap in terms), *self._gaps(leading)])

    def _gaps(self, negatives: Sequence[LossyComponent]) -> list[Gap]:
        return [negative.gap for negative in negatives if negative.gap is not None]

    def _pieces(self, function: Callable[[Array], Array], gaps: Sequence[Gap]) -> Pieces:
        points = {point for gap in gaps for point in gap.landmarks()}
        kinks = tuple(sorted({kink for gap in gaps for kink in gap.kinks}))
        return Pieces(function, breaks_for(points, self._window), kinks, _few(sorted(points), _MARKS_MAX))

    def _unscaled(self, edge: Callable[[int, int], Pieces], source: int, target: int) -> Pieces:
        made = edge(source, target)
        return made.inner if isinstance(made, _Scaled) else made

    def _scaled(self, source: int, inner: Pieces) -> Pieces:
        return inner if source == ENTRY else _Scaled(inner, self._bound(source))

    def _convolved(self, first: Pieces, second: Pieces, factor: float) -> Pieces:
        key = ("convolved", id(first), id(second), factor)
        if key not in self._made:
            if factor == 0 or isinstance(first, _Never):
                self._made[key] = _Never(self._window)
            else:
                self._made[key] = self._resolved(lambda t: factor * convolution(first, second, t), [(first, second)])
            # Keeps both alive, so that their ids stay theirs.
            self._made["parts", id(first), id(second)] = first
        return self._made[key]

    def _resolved(self, function: Callable[[Array], Array], parts: Sequence[tuple[Pieces, ...]]) -> Pieces:
        """A function on panels that are fine enough for it. The function is a sum of convolutions of `parts`."""
        kinks: set[float] = set()
        marks: set[float] = set()
        for part in parts:
            kinks |= _sums([piece.kinks for piece in part])
            marks |= _sums([piece.marks for piece in part])
        exact = sorted(kinks) if len(kinks) <= _KINKS_MAX else _few(sorted(kinks), _KINKS_MAX)
        points = {*exact, *_few(sorted(marks), 4 * _MARKS_MAX)}
        made = Panels.resolving(function, breaks_for(points, self._window))
        # Convolved functions are continuous, so that integrals over them need fewer pieces than they have panels.
        return Pieces(
            made, np.array(_few(made.breaks.tolist(), _PIECES_MAX)), tuple(exact), _few(sorted(marks), _MARKS_MAX)
        )


def _few(points: Sequence[float], most: int) -> tuple[float, ...]:
    """At most `most` of the points, evenly chosen."""
    if len(points) <= most:
        return tuple(points)
    return tuple(points[round(place)] for place in np.linspace(0, len(points) - 1, most))


def _sums(points: Sequence[tuple[float, ...]]) -> set[float]:
    """The points at which a convolution has kinks or marks: the points of each function, and all their sums."""
    found = {0.0}
    for own in points:
        found |= {before + point for before in found for point in own}
    return found - {0.0}


class _Scaled(Pieces):
    """A function times a constant factor."""

    def __init__(self, inner: Pieces, factor: float) -> None:
        super().__init__(lambda t: factor * inner(t), inner.breaks, inner.kinks, inner.marks)
        object.__setattr__(self, "inner", inner)

    inner: Pieces


class _Never(Pieces):
    """The function that is zero everywhere."""

    def __init__(self, window: float) -> None:
        super().__init__(lambda t: np.zeros(len(t)), np.array([0.0, window]))


# Background events are rare unless the model says how rare: one in so many windows.
DEFAULT_WINDOWS = 1_000.0
