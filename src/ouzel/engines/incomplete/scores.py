"""Edges of a query over an incomplete stream and their scores: loss rates by disjunct, curves, pruned edges."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ouzel.bind.model import BOOL, Attribute, Bound, BoundQuery, Constant, Operation
from ouzel.bind.normal_form import is_junction
from ouzel.engines.incomplete.tables import SLACK, ArrivalEdge, CurveTables
from ouzel.errors import InputError
from ouzel.loss import LossModel
from ouzel.loss.curves import COEFFICIENTS, Curve, Trend, build_curve
from ouzel.loss.scoring import ENTRY, Edge, LossyComponent, Scoring

# Queries with loss rates by reader need the disjunctive form, which grows quickly.
DISJUNCTS_MAX = 5_000

Disjunct = frozenset[Bound]


# ── Loss rates ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Rates:
    """The loss rate of every component under some disjuncts of WHERE; `disjuncts` is None if all have the same
    rates."""

    losses: tuple[float, ...]
    disjuncts: tuple[Disjunct, ...] | None = None


def rates_of(query: BoundQuery, model: LossModel) -> tuple[Rates, ...]:
    """The loss rates that the disjuncts of WHERE imply: one entry if readers make no difference."""
    if not model.reader_loss:
        return (Rates(tuple(model.loss_of(c.variable, None) for c in query.components)),)
    found: dict[tuple[float, ...], list[Disjunct]] = {}
    for disjunct in _disjuncts(query):
        losses = tuple(
            _loss(query, model, position, _own_conditions(query, position) if c.negated else disjunct)
            for position, c in enumerate(query.components)
        )
        found.setdefault(losses, []).append(disjunct)
    if len(found) == 1:
        return (Rates(next(iter(found))),)
    return tuple(Rates(losses, tuple(disjuncts)) for losses, disjuncts in found.items())


def best_rates(rates: Sequence[Rates], query: BoundQuery) -> tuple[float, ...]:
    """For upper bounds: a path scores higher if its missing events are lost more often, and its negatives less
    often."""
    columns = zip(*(one.losses for one in rates), strict=True)
    return tuple(min(c) if query.components[p].negated else max(c) for p, c in enumerate(columns))


def _disjuncts(query: BoundQuery) -> list[Disjunct]:
    """The disjunctive form of the conjuncts without negatives; if one disjunct contains another, only the smaller one
    counts."""
    found: set[Disjunct] = {frozenset()}
    # Those that name most components first; weaker conjuncts then add nothing.
    conjuncts = [conjunct for conjunct in query.conjuncts if conjunct.negative is None]
    for conjunct in sorted(conjuncts, key=lambda one: -len(one.components)):
        alternatives = _alternatives(query, _either(conjunct.comparisons))
        joined: set[Disjunct] = set()
        for disjunct in found:
            # Then the disjunct itself is one of the joined ones, and all others contain it.
            holds_already = any(alternative <= disjunct for alternative in alternatives)
            joined |= {disjunct} if holds_already else {disjunct | alternative for alternative in alternatives}
            _check_number(query, len(joined))
        found = joined
    return _smallest(found)


def _alternatives(query: BoundQuery, condition: Bound) -> list[Disjunct]:
    """The disjunctive form of one condition."""
    if not is_junction(condition):
        return [frozenset((condition,))]
    forms = [_alternatives(query, operand) for operand in condition.operands]
    if condition.operator == "or":
        found = {disjunct for form in forms for disjunct in form}
        _check_number(query, len(found))
        return _smallest(found)
    found = {frozenset()}
    for form in forms:
        _check_number(query, len(found) * len(form))
        found = {left | right for left in found for right in form}
    return _smallest(found)


def _smallest(disjuncts: Collection[Disjunct]) -> list[Disjunct]:
    smallest: list[Disjunct] = []
    for disjunct in sorted(disjuncts, key=len):
        if not any(kept <= disjunct for kept in smallest):
            smallest.append(disjunct)
    return smallest


def _check_number(query: BoundQuery, disjuncts: int) -> None:
    if disjuncts > DISJUNCTS_MAX:
        raise InputError(
            f"query '{query.name}' has more than {DISJUNCTS_MAX:,} alternatives in WHERE, too many for loss rates by "
            "reader; give them by component with component_loss, or write several queries"
        )


def _either(conditions: tuple[Bound, ...]) -> Bound:
    return conditions[0] if len(conditions) == 1 else Operation("or", conditions, type=BOOL)


def _own_conditions(query: BoundQuery, negative: int) -> list[Bound]:
    """The conjuncts of a negative."""
    return [_either(conjunct.comparisons) for conjunct in query.conjuncts if conjunct.negative == negative]


def _loss(query: BoundQuery, model: LossModel, position: int, conditions: Iterable[Bound]) -> float:
    """The loss rate of a component whose readers satisfy all of some conditions."""
    component = query.components[position]
    readers: set[str] | None = None
    if model.reader == "type" and component.types is not None:
        readers = set(component.types)
    path = tuple(model.reader.split("."))
    for condition in conditions:
        named = _readers_in(condition, position, path)
        if named is not None:
            readers = named if readers is None else readers & named
    return model.loss_of(component.variable, None if readers is None else sorted(readers))


def _readers_in(comparison: Bound, position: int, path: tuple[str, ...]) -> set[str] | None:
    """The readers that `x.reader = 'shelf'` or `x.reader IN ('shelf', 'door')` names; None if it may be any."""
    if is_junction(comparison):
        found = [_readers_in(operand, position, path) for operand in comparison.operands]
        known = [readers for readers in found if readers is not None]
        if comparison.operator == "and":
            return set.intersection(*known) if known else None
        return set.union(*known) if len(known) == len(found) else None
    if not isinstance(comparison, Operation) or comparison.operator not in ("=", "in"):
        return None
    attributes = [o for o in comparison.operands if isinstance(o, Attribute)]
    constants = [o for o in comparison.operands if isinstance(o, Constant)]
    if len(attributes) != 1 or len(constants) != len(comparison.operands) - 1:
        return None
    if attributes[0].component != position or attributes[0].path != path:
        return None
    return {str(constant.value) for constant in constants if constant.value is not None}


# ── Components ─────────────────────────────────────────────────────────────────────────────────────


def lossy_components(query: BoundQuery, model: LossModel, losses: Sequence[float]) -> tuple[LossyComponent, ...]:
    """The model's data about each component, in ticks; InputError if something needed is missing."""
    tick_ns = query.catalog.time.tick_ns
    last = query.components[-1].position
    made = []
    for component, loss in zip(query.components, losses, strict=True):
        gap, skip = model.gaps.get(component.variable), model.skip_gaps.get(component.variable)
        made.append(
            LossyComponent(
                component.variable,
                component.negated,
                loss,
                None if gap is None else gap.in_ticks(tick_ns),
                model.priors.get(component.variable),
                None if skip is None else skip.in_ticks(tick_ns),
            )
        )
    first = query.positives[0].position
    for component, lossy in zip(query.components, made, strict=True):
        may_be_missing = lossy.loss > 0 and component.position != last
        if lossy.gap is None and may_be_missing and (component.negated or component.position != first):
            what = "cannot be learnt from matches" if component.negated else "or fit the model from a history"
            raise InputError(
                f"query '{query.name}' needs the distribution of the gap before '{component.variable}'; "
                f"give gaps={{'{component.variable}': …}} to the LossModel ({what})"
            )
    assert query.threshold is not None
    if query.threshold.on_probability and not knows_probability(made):
        lacking = _lacking_for_probability(made)
        raise InputError(f"query '{query.name}' has its threshold on probability, so the LossModel needs {lacking}")
    return tuple(made)


def knows_probability(components: Sequence[LossyComponent]) -> bool:
    """Whether the model has enough data for the probability of paths with missing components."""
    return _lacking_for_probability(components) is None


def _lacking_for_probability(components: Sequence[LossyComponent]) -> str | None:
    positives = [c for c in components if not c.negated]
    if all(c.loss == 0 for c in positives[:-1]):
        return None
    for component in positives[:-1]:
        if component.loss > 0 and component.prior is None:
            return f"a prior of '{component.name}': priors={{'{component.name}': …}}"
    for component in positives[1:]:
        if component.gap is None:
            return f"the gap before '{component.name}': gaps={{'{component.name}': …}}"
    return None


# ── Curves ─────────────────────────────────────────────────────────────────────────────────────────


class EdgeCurves:
    """The curves of a pattern's edges, made on first use."""

    def __init__(self, components: tuple[LossyComponent, ...], window: int) -> None:
        self.scoring = Scoring(components, float(window))
        self.knows_probability = knows_probability(components)
        self._window = window
        self._scores: dict[tuple[int, int], Curve] = {}
        self._probabilities: dict[tuple[int, int], Curve] = {}

    def score(self, source: int, target: int) -> Curve:
        """The score of an edge as a function of the ticks between its ends."""
        if (source, target) not in self._scores:
            edge = self.scoring.edge(source, target)
            made = build_curve(lambda t: self.scoring.score(edge, t), self._window, _trend(edge))
            self._scores[source, target] = made
        return self._scores[source, target]

    def probability(self, source: int, target: int) -> Curve | None:
        """Its factor in the probability; None if the model has too little data."""
        edge = self.scoring.edge(source, target)
        if not edge.missing:
            return self.score(source, target)
        if not self.knows_probability:
            return None
        if (source, target) not in self._probabilities:
            made = build_curve(lambda t: self.scoring.probability(edge, t), self._window)
            self._probabilities[source, target] = made
        return self._probabilities[source, target]


def _trend(edge: Edge) -> Trend:
    """S^P and S^PP rise with time, S^N falls (AYAC 3.1, 3.2)."""
    falls = any(negative.loss > 0 for negative in edge.negatives)
    if edge.missing and falls:
        return Trend.NEITHER
    return Trend.FALLING if falls else Trend.RISING


@lru_cache(maxsize=64)
def edge_curves(components: tuple[LossyComponent, ...], window: int) -> EdgeCurves:
    """The curves of a query. All sessions of a process that run the same query share them."""
    return EdgeCurves(components, window)


def edges_of(
    query: BoundQuery, curves: EdgeCurves, *, threshold: float, on_probability: bool, bounds: bool
) -> tuple[list[ArrivalEdge], CurveTables]:
    """The edges that a path may take, without those that no path above the threshold can take (AYAC section 4)."""
    length = len(query.positives)
    listed: list[Curve] = []
    edges = []
    for target in range(length):
        for source in range(ENTRY, target):
            edge = curves.scoring.edge(source, target)
            losses = curves.scoring.best_losses(edge)
            if losses == 0 or (bounds and not on_probability and losses * SLACK < threshold):
                continue
            score, probability = curves.score(source, target), curves.probability(source, target)
            criterion, other = (probability, score) if on_probability else (score, probability)
            assert criterion is not None, "checked when the plan is made"
            if criterion.best == 0 or score.best == 0 or (bounds and criterion.best * SLACK < threshold):
                continue
            before = query.positives[source].position if source != ENTRY else -1
            negatives = [n.position for n in query.negatives if before < n.position < query.positives[target].position]
            edges.append(
                ArrivalEdge(
                    source, target, _number(criterion, listed), _number(other, listed), criterion.best, tuple(negatives)
                )
            )
    return edges, _curve_tables(listed)


def _number(curve: Curve | None, listed: list[Curve]) -> int | float:
    """A constant as it is, otherwise the number of the curve in the list; NaN if it is not known."""
    if curve is None:
        return float("nan")
    if curve.constant is not None:
        return curve.constant
    for number, known in enumerate(listed):
        if known is curve:
            return number
    listed.append(curve)
    return len(listed) - 1


def _curve_tables(curves: Sequence[Curve]) -> CurveTables:
    lengths = [len(curve.low) for curve in curves]

    def joined(name: str, dtype: type) -> np.ndarray:
        parts = [getattr(curve, name) for curve in curves]
        return np.concatenate(parts).astype(dtype) if parts else np.empty(0, dtype)

    coefficients = [curve.coefficients for curve in curves]
    return CurveTables(
        first_piece=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        low=joined("low", np.int64),
        middle=joined("middle", np.float64),
        half=joined("half", np.float64),
        coefficients=np.concatenate(coefficients) if coefficients else np.empty((0, COEFFICIENTS)),
        ceiling=joined("ceiling", np.float64),
        trend=np.array([curve.trend for curve in curves], np.uint8),
    )
