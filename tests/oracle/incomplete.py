"""docs/semantics.md, "Incomplete streams": every path, its score (AYAC section 3) and its probability.

Paths are enumerated and integrals are done by scipy's quadrature. Nothing here is fast.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

from scipy import integrate, special

from ouzel.lang import parse, syntax
from ouzel.lang.syntax import Expr, OutputForm, Query, Reference
from tests.oracle import posterior
from tests.oracle.conditions import Component, Conditions, Conjunct
from tests.oracle.events import Event, EventTypes, follows, in_stream_order
from tests.oracle.expressions import (
    Settings,
    attribute_path,
    comparison_holds,
    evaluate,
    references,
    rewritten,
)
from tests.oracle.oracle import passes_some_component, used
from tests.oracle.output import column_name

NANOSECONDS_PER_SECOND = 1_000_000_000
Path = tuple[int | None, ...]  # for each positive component the place of its event in stream order, or None


@dataclass(frozen=True)
class Explanation:
    """A path that is reported."""

    path: Path
    start: int
    end: int
    row: Mapping[str, Any]
    missing: tuple[str, ...]
    score: float
    probability: float | None


def answer(
    query: Query | str,
    events: Iterable[Event],
    model: Mapping[str, Any],
    *,
    types: Mapping[str, Iterable[str]] | None = None,
    params: Mapping[str, Any] | None = None,
    order: Sequence[str] = (),
    ticks_per_second: int | None = 1_000_000,
) -> list[Explanation]:
    """What a query with THRESHOLD reports. `model` is a LossModel's JSON."""
    parsed = parse(query) if isinstance(query, str) else query
    settings = Settings(EventTypes(types), params or {}, ticks_per_second)
    conditions = Conditions(parsed, settings)
    ordered = in_stream_order(events, order, lambda event: passes_some_component(conditions, event), used(conditions))
    return Incomplete(conditions, tuple(ordered), model).explanations()


# ── Distributions ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Gap:
    """f and F of one gap; `kinks` tell the quadrature where f jumps."""

    density: Callable[[float], float]
    cdf: Callable[[float], float]
    kinks: tuple[float, ...] = ()


def ticks_of(value: Any, ticks_per_second: int | None) -> float:
    """A length out of a model's JSON, in ticks."""
    if isinstance(value, Mapping):
        assert ticks_per_second is not None
        return float(value["ns"] * ticks_per_second / NANOSECONDS_PER_SECOND)
    return float(value)


def gap_of(stored: Mapping[str, Any], ticks_per_second: int | None) -> Gap:
    """A gap out of a model's JSON, in ticks."""

    def ticks(value: Any) -> float:
        return ticks_of(value, ticks_per_second)

    family = stored["family"]
    if family == "exponential":
        mean = ticks(stored["mean"])
        return Gap(lambda t: math.exp(-t / mean) / mean, lambda t: -math.expm1(-t / mean))
    if family == "gamma":
        shape, scale = stored["shape"], ticks(stored["scale"])
        below = scale**shape * math.gamma(shape)
        return Gap(
            lambda t: t ** (shape - 1) * math.exp(-t / scale) / below,
            lambda t: float(special.gammainc(shape, t / scale)),
        )
    if family == "lognormal":
        median, sigma = ticks(stored["median"]), stored["sigma"]
        return Gap(
            lambda t: math.exp(-((math.log(t / median) / sigma) ** 2) / 2) / (t * sigma * math.sqrt(2 * math.pi)),
            lambda t: (1 + math.erf(math.log(t / median) / sigma / math.sqrt(2))) / 2,
        )
    edges = [ticks(edge) for edge in (stored["edges"] if family == "histogram" else (stored["low"], stored["high"]))]
    counts = stored["counts"] if family == "histogram" else [1]
    bins = [(low, high, count / sum(counts)) for (low, high), count in zip(pairwise(edges), counts, strict=True)]
    return Gap(
        lambda t: sum(share / (high - low) for low, high, share in bins if low <= t < high),
        lambda t: sum(share * min(max((t - low) / (high - low), 0.0), 1.0) for low, high, share in bins),
        tuple(edges),
    )


def integral(function: Callable[[float], float], end: float, kinks: Iterable[float] = ()) -> float:
    """∫ from 0 to `end`, piece by piece between kinks."""
    inside = sorted({kink for kink in kinks if 0 < kink < end})
    pieces = pairwise([0.0, *inside, end])
    return sum(integrate.quad(function, low, high, limit=200, epsabs=1e-13, epsrel=1e-10)[0] for low, high in pieces)


# ── Paths ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Incomplete:
    conditions: Conditions
    events: tuple[Event, ...]
    model: Mapping[str, Any]
    # Integrals that were done already: many paths share an edge.
    known: dict[Any, Any] = field(default_factory=dict, compare=False)

    @property
    def query(self) -> Query:
        return self.conditions.query

    @cached_property
    def positives(self) -> tuple[Component, ...]:
        return self.conditions.positives

    @cached_property
    def window(self) -> int:
        within = self.query.within
        assert within is not None and not within.in_events
        return int(evaluate(within.extent, self.conditions.scope({})))

    @cached_property
    def defaults(self) -> Mapping[tuple[str, tuple[str, ...]], Expr]:
        """ "x.id[z.id] is the value to use when x is [missing]", wherever x.id stands."""
        written = [self.query.where] if self.query.where is not None else []
        written += [item.expression for item in self.query.returns.items] if self.query.returns else []
        return {self._name(r): r.default for node in written for r in references(node) if r.default is not None}

    def _name(self, reference: Reference) -> tuple[str, tuple[str, ...]]:
        variable = self.conditions.component_of(reference).name
        return variable, attribute_path(reference, variable)

    def explanations(self) -> list[Explanation]:
        """ "A path is reported if its score is above 0 and at least THRESHOLD"; ON probability its probability."""
        threshold = self.query.threshold
        assert threshold is not None
        least = float(evaluate(threshold.value, self.conditions.scope({})))
        reported = []
        for path in self.paths():
            score, probability = self.score(path), self.probability(path)
            worth = probability if threshold.on_probability else score
            if worth is not None and worth > 0 and worth >= least:
                reported.append(self._explanation(path, score, probability))
        if self.query.output is not None and self.query.output.form is OutputForm.BEST:
            return list(self._best(reported, threshold.on_probability))
        return reported

    def paths(self) -> Iterator[Path]:
        """Every choice of events that satisfies order, types, predicates, window and negation. "Behind a negative last
        component the window must be known, so the first component is never missing"."""
        whole = (path for path in self.bindings if not self.negated_end or path[0] is not None)
        return (path for path in whole if not self._is_forbidden(self.bound(path)))

    @property
    def negated_end(self) -> bool:
        return self.conditions.components[-1].negated

    @cached_property
    def bindings(self) -> list[Path]:
        """The same without negation, where "any positive component but the last may be missing"."""
        return list(self._bindings())

    def _bindings(self) -> Iterator[Path]:

        def chosen(number: int, after: Event | None) -> Iterator[Path]:
            if number == len(self.positives):
                yield ()
                return
            if number < len(self.positives) - 1:
                for rest in chosen(number + 1, after):
                    yield (None, *rest)
            for place, event in enumerate(self.events):
                follows_on = after is None or follows(event, after)
                if follows_on and self.conditions.may_fill(self.positives[number], event):
                    for rest in chosen(number + 1, event):
                        yield (place, *rest)

        for path in chosen(0, None):
            bound = self.bound(path)
            first, last = next(iter(bound.values())), bound[self.positives[-1].name]
            # "WITHIN is strict, as everywhere."
            if last.end - first.start < self.window and self._holds(bound):
                yield path

    def bound(self, path: Path) -> dict[str, Event]:
        named = zip(self.positives, path, strict=True)
        return {component.name: self.events[place] for component, place in named if place is not None}

    # ── Predicates ─────────────────────────────────────────────────────────────────────────────────

    def _holds(self, bound: Mapping[str, Event]) -> bool:
        """ "[attr] tests bound events only and needs no default"; some disjunct holds if every conjunct does."""
        about_positives = [c for c in self.conditions.conjuncts if not self._negatives_in(c)]
        return self.conditions.are_equivalent(list(bound.values())) and all(
            any(self.comparison_holds(comparison, bound) for comparison in conjunct.comparisons)
            for conjunct in about_positives
        )

    def _negatives_in(self, conjunct: Conjunct) -> list[str]:
        return [name for name in conjunct.names if self.conditions.by_name[name].negated]

    def comparison_holds(self, comparison: Expr, bound: Mapping[str, Event]) -> bool:
        """ "A missing component's own predicates are not tested; any other predicate on it needs a default." """
        named = {self.conditions.component_of(reference).name for reference in references(without_defaults(comparison))}
        if len(named) == 1 and not named & set(bound):
            return True
        return comparison_holds(self.with_defaults(comparison, bound), self.conditions.scope(bound))

    def with_defaults(self, node: Any, bound: Mapping[str, Event]) -> Any:
        def filled(reference: Reference) -> Any:
            if self.conditions.component_of(reference).name in bound:
                return without_defaults(reference)
            default = self.defaults.get(self._name(reference))
            # Only RETURN may name what has no default, and shows null.
            return syntax.Literal(None) if default is None else self.with_defaults(default, bound)

        return rewritten(node, filled)

    # ── Negation ───────────────────────────────────────────────────────────────────────────────────

    def _is_forbidden(self, bound: Mapping[str, Event]) -> bool:
        """ "A negative's interval runs between the nearest bound components, and an observed negative event in it
        kills the path." """
        for component in self.conditions.components:
            if not component.negated:
                continue
            if self.observed(component, bound, *self._interval(component, bound)):
                return True
        return False

    def observed(self, component: Component, bound: Mapping[str, Event], after: int, before: int) -> list[Event]:
        """The events of a negative component between two times that satisfy its conditions."""
        about_it = [c for c in self.conditions.conjuncts if component.name in c.names]
        found = []
        for event in self.events:
            if not (component.is_of_right_type(event) and after < event.start and event.end < before):
                continue
            with_it = {**bound, component.name: event}
            if self.conditions.are_equivalent(list(with_it.values())) and all(
                any(self.comparison_holds(comparison, with_it) for comparison in conjunct.comparisons)
                for conjunct in about_it
            ):
                found.append(event)
        return found

    def _interval(self, component: Component, bound: Mapping[str, Event]) -> tuple[int, int]:
        number = {c.name: c.number for c in self.positives}
        before = [event for name, event in bound.items() if number[name] < component.number]
        after = [event for name, event in bound.items() if number[name] > component.number]
        last = bound[self.positives[-1].name]
        # "First in SEQ: the interval is (last.end - T, first.start)"; last in SEQ: (last.end, first.start + T).
        after_time = before[-1].end if before else last.end - self.window
        return after_time, after[0].start if after else before[0].start + self.window

    # ── Loss rates ─────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def disjuncts(self) -> list[frozenset[Expr]]:
        """ "The conjuncts of WHERE without negatives are put in disjunctive form"; what contains another is dropped."""
        conjuncts = [c.comparisons for c in self.conditions.conjuncts if not self._negatives_in(c)]
        made = {frozenset(choice) for choice in itertools.product(*conjuncts)}
        return [one for one in made if not any(other < one for other in made)]

    def loss(self, component: Component, conditions: Iterable[Iterable[Expr]]) -> float:
        """ "Loss rate one for all, per component or per reader." """
        if component.name in self.model["component_loss"]:
            return float(self.model["component_loss"][component.name])
        rates, general = self.model["reader_loss"], float(self.model["loss"])
        if not rates:
            return general
        readers = set(component.types) if self.model["reader"] == "type" and component.types else None
        for alternatives in conditions:
            named = [self._readers(component, comparison) for comparison in alternatives]
            if all(one is not None for one in named):
                together = set().union(*(one for one in named if one is not None))
                readers = together if readers is None else readers & together
        if readers is None:
            return general
        return max((float(rates.get(reader, general)) for reader in readers), default=0.0)

    def _readers(self, component: Component, comparison: Expr) -> set[str] | None:
        match comparison:
            case syntax.Binary(operator="=", left=Reference() as named, right=syntax.Literal(value=value)):
                values = [value]
            case syntax.Binary(operator="=", left=syntax.Literal(value=value), right=Reference() as named):
                values = [value]
            case syntax.In(operand=Reference() as named, items=items, negated=False):
                values = [item.value for item in items if isinstance(item, syntax.Literal)]
            case _:
                return None
        if self._name(named) != (component.name, tuple(self.model["reader"].split("."))):
            return None
        return {str(value) for value in values}

    def losses(self, disjunct: frozenset[Expr]) -> dict[str, float]:
        found = {}
        for component in self.conditions.components:
            own = [c.comparisons for c in self.conditions.conjuncts if component.name in c.names]
            conditions = own if component.negated else [(comparison,) for comparison in disjunct]
            found[component.name] = self.loss(component, conditions)
        return found

    # ── Score ──────────────────────────────────────────────────────────────────────────────────────

    def score(self, path: Path) -> float:
        """ "A path that satisfies several disjuncts is one, with the largest score"."""
        bound = self.bound(path)
        best = 0.0
        for disjunct in self.disjuncts:
            if all(self.comparison_holds(comparison, bound) for comparison in disjunct):
                losses = self.losses(disjunct)
                at_end = math.prod(self.not_happened(n, self.left(path), losses) for n in self.at_end)
                best = max(best, at_end * math.prod(self._edge_score(*edge, losses) for edge in self.edges(path)))
        return best

    @property
    def at_end(self) -> list[Component]:
        """The negatives behind the last positive."""
        return [c for c in self.conditions.components if c.number > self.positives[-1].number]

    def left(self, path: Path) -> int:
        """From the last event to the end of the window that begins with the first."""
        assert path[0] is not None and path[-1] is not None
        return self.events[path[0]].start + self.window - self.events[path[-1]].end

    def edges(self, path: Path) -> Iterator[tuple[int, int, int]]:
        """From one bound positive (-1: the beginning of the window) to the next, and the time between them. "A path
        with leading missing components enters at last.end - T and its first gap is measured from there." """
        last = self.events[path[-1]]  # type: ignore[index]
        before, moment = -1, last.end - self.window
        for number, place in enumerate(path):
            if place is not None:
                yield before, number, self.events[place].start - moment
                before, moment = number, self.events[place].end

    def _edge_score(self, source: int, target: int, time: int, losses: Mapping[str, float]) -> float:
        """S^P, S^PP and so on for the missing ones, times S^N of the whole time for each negative."""
        missing = self.positives[source + 1 : target]
        negatives = math.prod(self.not_happened(n, time, losses) for n in self._negatives_between(source, target))
        rates = math.prod(losses[component.name] for component in missing)
        if not rates:
            return 0.0
        names = tuple(c.name for c in missing)
        return rates * negatives * self._once((names, time), lambda: self._nested(names, float(time)))

    def _once(self, key: Any, compute: Callable[[], Any]) -> Any:
        if key not in self.known:
            self.known[key] = compute()
        return self.known[key]

    def _negatives_between(self, source: int, target: int) -> list[Component]:
        low = self.positives[source].number if source >= 0 else -1
        high = self.positives[target].number
        return [c for c in self.conditions.components if c.negated and low < c.number < high]

    def not_happened(self, component: Component, time: int, losses: Mapping[str, float]) -> float:
        """S^N(T) = (1 - F) / (εF + 1 - F); "S^N = 1 where the loss rate is 0"."""
        loss = losses[component.name]
        if loss == 0:
            return 1.0
        happened = self.gap(component.name).cdf(time)
        return (1 - happened) / (loss * happened + 1 - happened)

    def _nested(self, missing: tuple[str, ...], time: float) -> float:
        """F of one, ∫ f_2 F_1 of two, ∫ f_3 ∫ f_2 F_1 of three; "F of the first component is 1 unless given"."""
        if not missing:
            return 1.0
        *before, last = missing
        if not before:
            is_first = last == self.positives[0].name
            return 1.0 if is_first and last not in self.model["gaps"] else self.gap(last).cdf(time)
        kinks = [kink for name in missing for kink in (self.gap(name).kinks if name in self.model["gaps"] else ())]
        density = self.gap(last).density
        return integral(lambda t: density(t) * self._nested(tuple(before), t), time, kinks)

    def gap(self, name: str) -> Gap:
        return _cached_gap(json.dumps(self.model["gaps"][name]), self.conditions.settings.ticks_per_second)

    # ── Probability ────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def chain(self) -> posterior.Chain:
        """ "If alternatives of WHERE imply different loss rates, each component has its highest"."""
        rates = [self.losses(disjunct) for disjunct in self.disjuncts]
        return posterior.Chain(
            tuple(c.name for c in self.conditions.components),
            {c.name: c.negated for c in self.conditions.components},
            {c.name: max(losses[c.name] for losses in rates) for c in self.conditions.components},
            self.model,
            lambda stored: ticks_of(stored, self.conditions.settings.ticks_per_second),
            self.window,
        )

    def probability(self, path: Path) -> float | None:
        """The share of a path in the weight of all explanations of its last event."""
        if self.chain.lacks():
            return None
        last = self.events[path[-1]]  # type: ignore[index]
        explanations = self._once(
            ("explanations", path[-1]),
            lambda: list(
                posterior.choices(
                    self.chain,
                    [
                        {place: event for place, event in enumerate(other[:-1]) if event is not None}
                        for other in self.bindings
                        if other[-1] == path[-1]
                    ],
                )
            ),
        )

        def times(place: int, chosen: Any) -> tuple[int, int]:
            event = last if chosen == "last" else self.events[chosen]
            return event.start, event.end

        def observed(choice: posterior.Choice, name: str, after: int, before: int) -> list[int]:
            events = [*(event if isinstance(event, int) else None for event in choice), path[-1]]
            return [
                e.start for e in self.observed(self.conditions.by_name[name], self.bound(tuple(events)), after, before)
            ]

        chosen = tuple(posterior.LOST if event is None else event for event in path[:-1])
        left = float(self.left(path)) if self.negated_end else None
        return posterior.probability(self.chain, chosen, explanations, times, last.end - self.window, observed, left)

    # ── Output ─────────────────────────────────────────────────────────────────────────────────────

    def _explanation(self, path: Path, score: float, probability: float | None) -> Explanation:
        bound = self.bound(path)
        start, end = next(iter(bound.values())).start, bound[self.positives[-1].name].end
        if self.negated_end:
            end = start + self.window - 1
        missing = tuple(c.name for c, place in zip(self.positives, path, strict=True) if place is None)
        row: dict[str, Any] = {"start": start, "end": end}
        if self.query.returns is None:
            row |= {c.name: dict(bound[c.name].attributes) if c.name in bound else None for c in self.positives}
        else:
            scope = self.conditions.scope(bound)
            for item in self.query.returns.items:
                row[column_name(item)] = evaluate(self.with_defaults(item.expression, bound), scope)
        row |= {"missing": list(missing), "score": score, "probability": probability}
        return Explanation(path, start, end, row, missing, score, probability)

    def _best(self, reported: Sequence[Explanation], on_probability: bool) -> Iterator[Explanation]:
        """ "Per completing event and key, only the most likely explanation"; ties go as in section 2."""

        def rank(one: Explanation) -> tuple[Any, ...]:
            worth = one.probability if on_probability else one.score
            assert worth is not None
            positions = [place for place in one.path if place is not None]
            numbers = [number for number, place in enumerate(one.path) if place is not None]
            return -worth, one.start, positions, numbers

        # With a negated end, a match completes when its window ends.
        for last in sorted({(one.path[-1], one.end) for one in reported if one.path[-1] is not None}):
            yield min((one for one in reported if (one.path[-1], one.end) == last), key=rank)


def without_defaults(node: Any) -> Any:
    return rewritten(node, lambda reference: dataclasses.replace(reference, default=None))


@lru_cache(maxsize=256)
def _cached_gap(stored: str, ticks_per_second: int | None) -> Gap:
    return gap_of(json.loads(stored), ticks_per_second)


__all__ = ["Explanation", "answer"]
