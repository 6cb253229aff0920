"""Scores of the edges of a path, as functions of the time between the two events of an edge (AYAC section 3;
docs/semantics.md, "Scores").

An *edge* leads from one bound component to the next, or from the start of the window to the first bound one. On it are
the missing positive components and the unobserved negative ones between the two. The score of a path is the product of
the scores of its edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ouzel.loss.curves import Function, Panels, breaks_for
from ouzel.loss.gaps import Gap

Array = NDArray[np.float64]

# The source of an edge from the start of the window (V_0 in AYAC).
ENTRY = -1


@dataclass(frozen=True)
class LossyComponent:
    """The model's data about one component, with lengths in ticks."""

    name: str
    negated: bool
    loss: float  # ε in AYAC
    gap: Gap | None = None  # f; None for the first positive means F = 1
    prior: float | None = None  # π in docs/semantics.md, "Probabilities"
    skip_gap: Gap | None = None  # g there; None: the next component's gap
    background: float | None = None  # the mean time between background events; None: rare


@dataclass(frozen=True)
class Edge:
    """An edge from one positive component, or from ENTRY, to another. Both are given by their indexes among the
    positives.
    """

    source: int
    target: int
    missing: tuple[int, ...]
    negatives: tuple[LossyComponent, ...]


class Scoring:
    """The scores of a pattern's edges, for times in (0, window]."""

    def __init__(self, components: Sequence[LossyComponent], window: float) -> None:
        self._components = tuple(components)
        self.positives = tuple(c for c in components if not c.negated)
        self._places = [place for place, c in enumerate(components) if not c.negated]
        self._window = window
        self._nested: dict[tuple[int, int], Panels] = {}

    def edge(self, source: int, target: int) -> Edge:
        """The edge between two positives."""
        first = self._places[source] if source != ENTRY else -1
        between = self._components[first + 1 : self._places[target]]
        return Edge(source, target, tuple(range(source + 1, target)), tuple(c for c in between if c.negated))

    # ── Score ──────────────────────────────────────────────────────────────────────────────────────

    def best_losses(self, edge: Edge) -> float:
        """Π ε of the missing components: an upper bound of the score of an edge."""
        return float(np.prod([self.positives[i].loss for i in edge.missing])) if edge.missing else 1.0

    def score(self, edge: Edge, t: Array) -> Array:
        """The score H of an edge (AYAC section 4): the product of ε of each missing component, their nested integral,
        and S^N of each negative.
        """
        found = self.unobserved(edge, t)
        losses = self.best_losses(edge)
        if edge.missing and losses > 0:
            found = found * self._happened(edge.missing, t)
        return found * losses

    def unobserved(self, edge: Edge, t: Array) -> Array:
        """Π S^N over the negatives of an edge: the probability that none happened, given that none was observed (AYAC
        3.2).
        """
        return self._none_of(edge.negatives, t)

    @property
    def at_end(self) -> tuple[LossyComponent, ...]:
        """The negative components after the last positive one."""
        return self._components[self._places[-1] + 1 :]

    def not_at_end(self, t: Array) -> Array:
        """Π S^N over the negative components at the end, for times from the last positive event to the end of the
        window.
        """
        return self._none_of(self.at_end, t)

    def _none_of(self, negatives: Sequence[LossyComponent], t: Array) -> Array:
        found = np.ones(len(t))
        for negative in negatives:
            if negative.loss > 0:
                assert negative.gap is not None, "checked when the plan is made"
                left = negative.gap.survival(t)
                denominator = negative.loss * negative.gap.cdf(t) + left
                found = found * np.where(denominator > 0, left / np.where(denominator > 0, denominator, 1.0), 0.0)
        return found

    def _happened(self, missing: tuple[int, ...], t: Array) -> Array:
        """The probability that all missing components happened within a time t: F for one, ∫ f_{i+1} F_i for two
        (S^PP), and so on.
        """
        if len(missing) == 1:
            return self._cdf(missing[0], t)
        return self._nest(missing[0], missing[-1])(t)

    def _cdf(self, place: int, t: Array) -> Array:
        gap = self.positives[place].gap
        if gap is None:
            assert place == 0, "checked when the plan is made"
            return np.ones(len(t))
        return gap.cdf(t)

    def _nest(self, first: int, last: int) -> Panels:
        if (first, last) not in self._nested:
            if first == last:
                made = Panels.of(lambda t: self._cdf(first, t), self._breaks)
            else:
                density = self._density(last)(Panels.nodes(self._breaks).ravel())
                inner = self._nest(first, last - 1)
                made = inner.antiderivative_of_product(density.reshape(inner.values.shape))
            self._nested[first, last] = made
        return self._nested[first, last]

    def _density(self, place: int) -> Function:
        gap = self.positives[place].gap
        assert gap is not None, "checked when the plan is made"
        return gap.density

    @cached_property
    def _breaks(self) -> Array:
        gaps = [c.gap for c in self.positives if c.gap is not None]
        return breaks_for({point for gap in gaps for point in gap.landmarks()}, self._window)

    def kinks(self, edge: Edge) -> set[float]:
        """The times at which the score of an edge has no derivative."""
        gaps = [c.gap for c in (*(self.positives[place] for place in edge.missing), *edge.negatives)]
        return {kink for gap in gaps if gap is not None for kink in gap.kinks}
