"""Scores and probabilities of the edges of a path, as functions of the time between their ends.

AYAC section 3; docs/semantics.md, "Scores" and "Probabilities".

An *edge* leads from one bound component to the next, or from the start of the window to the first bound one. It covers
missing positives and unobserved negatives. A path's score and its probability are products over its edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ouzel.loss.curves import Function, Panels, breaks_for, convolution
from ouzel.loss.gaps import Gap

Array = NDArray[np.float64]

# The source of an edge from the start of the window (V_0 in AYAC).
ENTRY = -1


@dataclass(frozen=True)
class LossyComponent:
    """What the model says about one component, with lengths in ticks."""

    name: str
    negated: bool
    loss: float  # ε in AYAC
    gap: Gap | None = None  # f; None for the first positive means F = 1
    prior: float | None = None  # π in docs/semantics.md, "Probabilities"
    skip_gap: Gap | None = None  # g there; None: the next component's gap


@dataclass(frozen=True)
class Edge:
    """From one positive (by its place among the positives, or ENTRY) to another."""

    source: int
    target: int
    missing: tuple[int, ...]
    negatives: tuple[LossyComponent, ...]


class Scoring:
    """The edges of a pattern, and their functions of the time between, for times in (0, window]."""

    def __init__(self, components: Sequence[LossyComponent], window: float) -> None:
        self._components = tuple(components)
        self.positives = tuple(c for c in components if not c.negated)
        self._places = [place for place, c in enumerate(components) if not c.negated]
        self._window = window
        self._nested: dict[tuple[int, int], Panels] = {}
        self._missing_weights: dict[int, _MissingWeights] = {}

    def edge(self, source: int, target: int) -> Edge:
        """The edge between two positives."""
        first = self._places[source] if source != ENTRY else -1
        between = self._components[first + 1 : self._places[target]]
        return Edge(source, target, tuple(range(source + 1, target)), tuple(c for c in between if c.negated))

    # ── Score ──────────────────────────────────────────────────────────────────────────────────────

    def best_losses(self, edge: Edge) -> float:
        """Π ε of the missing ones: an upper bound of the scores on the edge."""
        return float(np.prod([self.positives[i].loss for i in edge.missing])) if edge.missing else 1.0

    def score(self, edge: Edge, t: Array) -> Array:
        """H of an edge (AYAC section 4): ε of every missing one, their nested integral, S^N of every negative."""
        found = self.unobserved(edge, t)
        losses = self.best_losses(edge)
        if edge.missing and losses > 0:
            found = found * self._happened(edge.missing, t)
        return found * losses

    def unobserved(self, edge: Edge, t: Array) -> Array:
        """Π S^N over the negatives of an edge: each did not happen, given that none was observed (AYAC 3.2)."""
        found = np.ones(len(t))
        for negative in edge.negatives:
            if negative.loss > 0:
                assert negative.gap is not None, "checked when the plan is made"
                left = negative.gap.survival(t)
                denominator = negative.loss * negative.gap.cdf(t) + left
                found = found * np.where(denominator > 0, left / np.where(denominator > 0, denominator, 1.0), 0.0)
        return found

    def _happened(self, missing: tuple[int, ...], t: Array) -> Array:
        """F of one missing component, ∫ f_{i+1} F_i of two (S^PP), and so on."""
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

    # ── Probability ────────────────────────────────────────────────────────────────────────────────

    def probability(self, edge: Edge, t: Array) -> Array:
        """The factor of an edge in a path's probability (docs/semantics.md, "Probabilities")."""
        found = self.unobserved(edge, t)
        if edge.missing:
            found = found * (self._led(edge, t) if edge.source == ENTRY else self._between(edge, t))
        return found

    def _led(self, edge: Edge, t: Array) -> Array:
        """Leading missing components: each happened and was lost, and the first of them is in the window."""
        share = 1.0
        for place in edge.missing:
            lost = self.positives[place].loss * self._prior(place)
            below = lost + 1 - self._prior(place)
            share *= lost / below if below > 0 else 0.0
        if share == 0:
            return np.zeros(len(t))
        # Between the first missing and the first bound component: the gaps of the other missing ones and of the bound
        # one.
        gaps = [self._density(place) for place in range(1, edge.target + 1)]
        if len(gaps) == 1:
            return share * self._cdf(edge.target, t)
        density: Function = gaps[0]
        for following in gaps[1:-1]:
            density = self._convolved(density, following)
        # P(sum < t) = ∫ density of all but the last gap, times the cdf of the last.
        return share * convolution(density, lambda rest: self._cdf(edge.target, rest), self._breaks, t)

    def _between(self, edge: Edge, t: Array) -> Array:
        """Missing components between two bound ones: weight(all happened) / sum over all subsets."""
        if edge.source not in self._missing_weights:
            self._missing_weights[edge.source] = _MissingWeights(self, edge.source)
        whole, every = self._missing_weights[edge.source].weights(edge.target, t)
        return np.where(every > 0, whole / np.where(every > 0, every, 1.0), 0.0)

    def _prior(self, place: int) -> float:
        prior = self.positives[place].prior
        assert prior is not None, "checked when the plan is made"
        return prior

    def _density(self, place: int) -> Function:
        gap = self.positives[place].gap
        assert gap is not None, "checked when the plan is made"
        return gap.density

    def _skip_density(self, place: int) -> Function:
        """The gap density g (AYAC) of a component that did not happen."""
        gap = self.positives[place].skip_gap
        return self._density(place + 1) if gap is None else gap.density

    def _convolved(self, first: Function, second: Function) -> Panels:
        return Panels.of(lambda t: convolution(first, second, self._breaks, t), self._breaks)

    @cached_property
    def _breaks(self) -> Array:
        gaps = [gap for c in self.positives for gap in (c.gap, c.skip_gap) if gap is not None]
        landmarks = {point for gap in gaps for point in gap.landmarks()}
        return breaks_for(landmarks, sorted({kink for gap in gaps for kink in gap.kinks}), self._window)


class _MissingWeights:
    """The weights of missing components after one bound component, by forward recursion.

    Summing over subsets one by one would double with every component. Instead, `every[e]` is the weighted density that
    e happened at t, summed over all that may have happened before it. A gap depends only on whether the component right
    before it happened.
    """

    def __init__(self, scoring: Scoring, source: int) -> None:
        self._scoring = scoring
        self._source = source
        # For each missing component so far: all before it happened; any subset before it happened.
        self._whole: dict[int, Function] = {}
        self._every: dict[int, Function] = {}

    def weights(self, target: int, t: Array) -> tuple[Array, Array]:
        """At the bound component that ends them: the weight of all happened, and of every subset."""
        return self._whole_at(target, t), self._every_at(target, t)

    def _whole_at(self, place: int, t: Array) -> Array:
        scoring = self._scoring
        if place == self._source + 1:
            return scoring._density(place)(t)
        return self._share(place - 1) * convolution(
            self._function(self._whole, self._whole_at, place - 1), scoring._density(place), scoring._breaks, t
        )

    def _every_at(self, place: int, t: Array) -> Array:
        scoring = self._scoring
        if place == self._source + 1:
            return scoring._density(place)(t)
        # The component before it happened …
        found = self._share(place - 1) * convolution(
            self._function(self._every, self._every_at, place - 1), scoring._density(place), scoring._breaks, t
        )
        # … or it was skipped, with all between the last that happened and this one.
        skipped = scoring._skip_density(place - 1)
        absent = 1.0
        for last in range(place - 2, self._source - 1, -1):
            absent *= 1 - scoring._prior(last + 1)
            if absent == 0:
                break
            if last == self._source:
                found = found + absent * skipped(t)
            else:
                before = self._function(self._every, self._every_at, last)
                found = found + absent * self._share(last) * convolution(before, skipped, scoring._breaks, t)
        return found

    def _share(self, place: int) -> float:
        """Its factor if it happened and was lost."""
        return self._scoring.positives[place].loss * self._scoring._prior(place)

    def _function(self, made: dict[int, Function], at: object, place: int) -> Function:
        if place not in made:
            if place == self._source + 1:
                made[place] = self._scoring._density(place)
            else:
                made[place] = Panels.of(lambda t: at(place, t), self._scoring._breaks)  # type: ignore[operator]
        return made[place]
