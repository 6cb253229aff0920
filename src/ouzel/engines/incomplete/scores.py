"""Edges of a query over an incomplete stream: loss rates for each disjunct of WHERE, curves of scores and weights, and
which edges are pruned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ouzel.bind.model import BOOL, Attribute, Bound, BoundQuery, Constant, Operation
from ouzel.bind.normal_form import is_junction
from ouzel.engines.incomplete.tables import SLACK, ArrivalEdge, ArrivalWeights, ByBeside, CurveTables, pair_of
from ouzel.errors import InputError
from ouzel.loss import LossModel
from ouzel.loss.curves import COEFFICIENTS, Curve, Pieces, Trend, build_curve
from ouzel.loss.posterior import Keyed, Weights
from ouzel.loss.scoring import ENTRY, Edge, LossyComponent, Scoring

# Queries with loss rates by reader need the disjunctive form, which grows quickly.
DISJUNCTS_MAX = 5_000

Disjunct = frozenset[Bound]


# ── Loss rates ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Rates:
    """The loss rate of each component if one of `disjuncts` of WHERE holds; None if all disjuncts imply the same
    rates.
    """

    losses: tuple[float, ...]
    disjuncts: tuple[Disjunct, ...] | None = None


def rates_of(query: BoundQuery, model: LossModel) -> tuple[Rates, ...]:
    """The loss rates that the disjuncts of WHERE imply, one entry for each different result. There is one entry if loss
    does not depend on readers.
    """
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
    """The rates for upper bounds of scores. A path scores higher if its missing events are lost more often, and its
    negative events less often.
    """
    columns = zip(*(one.losses for one in rates), strict=True)
    return tuple(min(c) if query.components[p].negated else max(c) for p, c in enumerate(columns))


def highest_rates(rates: Sequence[Rates]) -> tuple[float, ...]:
    """The highest rate of each component, for probabilities."""
    return tuple(max(column) for column in zip(*(one.losses for one in rates), strict=True))


def _disjuncts(query: BoundQuery) -> list[Disjunct]:
    """The disjunctive form of all conjuncts on positive components. If one disjunct contains another, only the smaller
    one is kept.
    """
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
    """The conditions on a negative component."""
    return [_either(conjunct.comparisons) for conjunct in query.conjuncts if conjunct.negative == negative]


def _loss(query: BoundQuery, model: LossModel, position: int, conditions: Iterable[Bound]) -> float:
    """The loss rate of a component, for readers that satisfy all of some conditions."""
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
    """The readers that a condition such as `x.reader = 'shelf'` or `x.reader IN ('shelf', 'door')` allows; None if it
    allows any.
    """
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
    """The model's data about each component, in ticks. Raises InputError if the query needs something that the model
    lacks.
    """
    tick_ns = query.catalog.time.tick_ns
    last = query.positives[-1].position
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
                model.background_of(component.variable, tick_ns),
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
    lacking = lacking_for_probability(query, model)
    if query.threshold.on_probability and lacking is not None:
        raise InputError(f"query '{query.name}' has its threshold on probability, so the LossModel needs {lacking}")
    return tuple(made)


def lacking_for_probability(query: BoundQuery, model: LossModel) -> str | None:
    """What the model lacks that probabilities need; None if it lacks nothing."""
    losses = highest_rates(rates_of(query, model))
    names = [(component.variable, losses[component.position]) for component in query.positives]
    for name, loss in names[:-1]:
        if loss > 0 and name not in model.priors:
            return f"a prior of '{name}': priors={{'{name}': …}}"
    for name, _ in names[1:]:
        if name not in model.gaps:
            return f"the gap before '{name}': gaps={{'{name}': …}}"
    return None


# ── Curves ─────────────────────────────────────────────────────────────────────────────────────────


class EdgeCurves:
    """The curves of a pattern's edges, computed on first use."""

    def __init__(self, components: tuple[LossyComponent, ...], window: int) -> None:
        self.scoring = Scoring(components, float(window))
        self._components = components
        self._window = window
        self._scores: dict[tuple[int, int], Curve] = {}

    def score(self, source: int, target: int) -> Curve:
        """The score of an edge as a function of the ticks between its two events."""
        if (source, target) not in self._scores:
            edge = self.scoring.edge(source, target)
            kinks = self.scoring.kinks(edge)
            made = build_curve(lambda t: self.scoring.score(edge, t), self._window, _trend(edge), kinks=kinks)
            self._scores[source, target] = made
        return self._scores[source, target]

    @cached_property
    def at_end(self) -> Curve:
        """The score of the time from the last component to the end of the window, of a query with a negated end."""
        negatives = [n for n in self.scoring.at_end if n.gap is not None]
        kinks = {kink for negative in negatives for kink in negative.gap.kinks}  # type: ignore[union-attr]
        return build_curve(self.scoring.not_at_end, self._window, Trend.FALLING, kinks=kinks)

    @cached_property
    def weights(self) -> WeightCurves:
        """The curves of the weights of explanations."""
        return WeightCurves(self._components, self._window)


class WeightCurves:
    """The weights of a pattern's edges, and of its negatives by component, as curves."""

    def __init__(self, components: Sequence[LossyComponent], window: int) -> None:
        weights = Weights(components, float(window))
        length = len(weights.positives)
        self.edges: list[tuple[Curve, ...]] = []
        for target in range(length):
            for source in range(ENTRY, target):
                made = (weights.path, weights.every, weights.nothing_between)
                self.edges.append(tuple(_weight_curve(edge(source, target), window) for edge in made))
        self.negatives: dict[int, tuple[Curve, ...]] = {}
        for position, component in enumerate(components):
            if component.negated:
                kinks = () if component.gap is None else component.gap.kinks
                functions = (weights.unobserved, weights.observed)
                self.negatives[position] = tuple(
                    build_curve(
                        lambda t, f=function, c=component: f(c, t),  # type: ignore[misc]
                        window,
                        kinks=kinks,
                        largest=np.inf,
                        absolute=_WEIGHT_ERROR,
                    )
                    for function in functions
                )
        self.at_end: tuple[Curve, ...] = ()
        if components[-1].negated:
            self.at_end = tuple(_weight_curve(part, window) for part in (weights.path_at_end, weights.every_at_end))
        # Explanations in which a negative was observed beside a lost component, by edge, with sampled functions.
        # Each cell has its own value at both ends, and no cell of a small window crosses a whole tick: densities jump.
        cells = window * max(1, -(-_CELLS // window)) if window < _CELLS else _CELLS
        width = window / cells
        ends = np.arange(cells)[:, None] * width + np.array([1e-6, 1 - 1e-6]) * width
        # A density may be infinite at 0.
        ends[0, 0] = width / 4
        grid = ends.ravel()
        rows: dict[tuple[object, ...], int] = {}
        sampled: list[np.ndarray] = []

        def row(function: Keyed | None) -> int:
            if function is None:
                return -1
            key, values = function
            if key not in rows:
                rows[key] = len(sampled)
                sampled.append(values(grid))
            return rows[key]

        self.beside: list[list[tuple[int, ...]]] = []
        self.beside_scale: list[float] = []
        for target in range(length):
            for source in range(ENTRY, target):
                own = list(weights.beside(source, target))
                self.beside.append([(b.negative, row(b.left), row(b.slot), row(b.right), row(b.due)) for b in own])
                self.beside_scale += [b.scale for b in own]
        self.densities = np.array(sampled).reshape(-1, 2 * cells)
        last = weights.positives[-1].prior
        self.last_prior = 1.0 if last is None else last
        # An upper bound of the weight of everything before a bound component.
        self.best_path_ahead, self.best_ahead = np.zeros(length), np.zeros(length)
        for kind, best in enumerate((self.best_path_ahead, self.best_ahead)):
            for target in range(length):
                best[target] = max(
                    self.edges[pair_of(source, target)][kind].best * (1.0 if source == ENTRY else best[source])
                    for source in range(ENTRY, target)
                )


# Weights of unlikely explanations are small, and their ratios count.
_WEIGHT_ERROR = 1e-25
_CELLS = 2_048


def _weight_curve(weight: Pieces, window: int) -> Curve:
    return build_curve(weight, window, kinks=weight.kinks, largest=np.inf, absolute=_WEIGHT_ERROR)


def _trend(edge: Edge) -> Trend:
    """Whether a score rises or falls with time: S^P and S^PP rise, S^N falls (AYAC 3.1, 3.2)."""
    falls = any(negative.loss > 0 for negative in edge.negatives)
    if edge.missing and falls:
        return Trend.NEITHER
    return Trend.FALLING if falls else Trend.RISING


@lru_cache(maxsize=64)
def edge_curves(components: tuple[LossyComponent, ...], window: int) -> EdgeCurves:
    """The curves of a query. All sessions in a process that run the same query share them."""
    return EdgeCurves(components, window)


def edges_of(
    query: BoundQuery, curves: EdgeCurves, listed: list[Curve], *, threshold: float, bounds: bool
) -> list[ArrivalEdge]:
    """The edges that a path may take. Edges that no path above the threshold can take are pruned (AYAC section 4). The
    curves of the others are added to `listed`.
    """
    length = len(query.positives)
    assert query.threshold is not None
    on_probability = query.threshold.on_probability
    edges = []
    for target in range(length):
        for source in range(ENTRY, target):
            if source == ENTRY and target > 0 and query.negated_end:
                # Without its first event nobody knows when the window ends.
                continue
            edge = curves.scoring.edge(source, target)
            losses = curves.scoring.best_losses(edge)
            # A score may be 0 where a probability is not: it demands that no negative was due on the whole edge.
            if losses == 0 or (bounds and losses * SLACK < threshold):
                continue
            score = curves.score(source, target)
            if (score.best == 0 and not on_probability) or (bounds and score.best * SLACK < threshold):
                continue
            before = query.positives[source].position if source != ENTRY else -1
            negatives = [n.position for n in query.negatives if before < n.position < query.positives[target].position]
            edges.append(ArrivalEdge(source, target, _number(score, listed), score.best, tuple(negatives)))
    return edges


def weights_of(query: BoundQuery, curves: EdgeCurves, listed: list[Curve]) -> ArrivalWeights:
    """The weights of all edges. Their curves are added to `listed`."""
    weights = curves.weights

    def numbered(curves: Iterable[Curve]) -> list[int]:
        listed.extend(curves := tuple(curves))
        return list(range(len(listed) - len(curves), len(listed)))

    negatives = np.full((len(query.components), 2), -1, np.int32)
    for position, own in weights.negatives.items():
        negatives[position] = numbered(own)
    return ArrivalWeights(
        np.array([numbered(own) for own in weights.edges], np.int32),
        weights.best_path_ahead,
        weights.best_ahead,
        negatives,
        np.cumsum([0, *map(len, weights.beside)]).astype(np.int32),
        np.array([term for own in weights.beside for term in own], np.int32).reshape(-1, len(ByBeside)),
        np.array(weights.beside_scale, np.float64),
        weights.densities,
        weights.last_prior,
        tuple(numbered(weights.at_end)),
    )


def _number(curve: Curve, listed: list[Curve]) -> int | float:
    """A constant for a constant curve; otherwise the number of the curve in `listed`."""
    if curve.constant is not None:
        return curve.constant
    for number, known in enumerate(listed):
        if known is curve:
            return number
    listed.append(curve)
    return len(listed) - 1


def curve_tables(curves: Sequence[Curve]) -> CurveTables:
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
