"""The plan of a query over an incomplete stream (THRESHOLD, AYAC), and its EXPLAIN. It says which tests apply when
components are missing.

Equalities become keys as in any plan, if the defaults make them true for missing components too. All other conjuncts
become tests, with a variant for every set of missing components that changes them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from ouzel.bind.model import Attribute, Bound, BoundQuery, Conjunct, Constant, Intrinsic, Operation, replaced
from ouzel.bind.normal_form import is_junction
from ouzel.engines import Engine
from ouzel.engines.incomplete.scores import lacking_for_probability
from ouzel.engines.incomplete.tables import ArrivalTest
from ouzel.errors import QueryError
from ouzel.kernels.predicate_tables import Alternative, Atom, Comparison
from ouzel.loss import LossModel
from ouzel.plan.diagram import label_of, window_of
from ouzel.plan.explain import Explanation, OperatorLine, explained, key_labels, role_lines, transformation_line
from ouzel.plan.expressions import components_of, render_conjunct, walk
from ouzel.plan.lowering import Domain, Inexpressible, Lanes, LaneSpec, alternative_of
from ouzel.plan.model import Plan, Statistics, build
from ouzel.plan.rules import (
    EQUIVALENCE_INTO_KEY,
    PREDICATES_INTO_ROLES,
    WRITTEN_EQUALITIES,
    Rule,
    equivalence_into_key,
    predicates_into_roles,
    spell_out_equivalences,
    written_equalities_into_key,
)

if TYPE_CHECKING:
    from ouzel.runtime.layout import Layout
    from ouzel.runtime.limits import Limits
    from ouzel.runtime.operator import QueryOperator


UPPER_BOUNDS = "upper_bounds"
Defaults = Mapping[Attribute | Intrinsic, Bound]


@dataclass(frozen=True, slots=True)
class IncompletePlan(Plan):
    """A plan for the arrival kernel. `selection` and `forbidding` have the conjuncts as written, before they become
    tests.
    """

    engine: ClassVar[str] = "incomplete"

    model: LossModel | None = None
    # [attr] tests that are not a key, as equalities between bound events; they need no defaults.
    equalities: tuple[Conjunct, ...] = ()
    forbidding_equalities: Mapping[int, tuple[Conjunct, ...]] = field(default_factory=dict)
    bounds: bool = True


def build_incomplete(query: BoundQuery, model: LossModel | None = None, off: Collection[str] = ()) -> IncompletePlan:
    """The plan of a query with THRESHOLD. `off` names the rules that are switched off."""
    assert query.threshold is not None
    _check_defaults(query)
    plan = build(query)
    statistics = Statistics()
    if PREDICATES_INTO_ROLES not in off:
        plan = predicates_into_roles(plan, statistics)
    if WRITTEN_EQUALITIES not in off:
        plan = _hash_written_equalities(plan)
    # Kept apart from the conjuncts as written: these equalities concern bound events only and need no defaults.
    nothing = {negative.position: () for negative in query.negatives}
    alone = replace(plan, selection=(), forbidding=nothing, key=(), notes=())
    if EQUIVALENCE_INTO_KEY not in off:
        alone = equivalence_into_key(alone, statistics)
    alone = spell_out_equivalences(alone, statistics)
    bounds = UPPER_BOUNDS not in off
    made = IncompletePlan(
        query=query,
        roles=plan.roles,
        key=(*plan.key, *alone.key),
        selection=plan.selection,
        forbidding=plan.forbidding,
        notes=(*plan.notes, *alone.notes),
        model=model,
        equalities=alone.selection,
        forbidding_equalities=alone.forbidding,
        bounds=bounds,
    )
    if bounds:
        text = "edges and arrivals that cannot reach the threshold are not followed"
        return made.with_note(UPPER_BOUNDS, text)  # type: ignore[return-value]
    return made


def _check_defaults(query: BoundQuery) -> None:
    for default in query.defaults.values():
        for part in walk(default):
            if isinstance(part, Attribute | Intrinsic) and query.components[part.component].negated:
                raise QueryError(
                    f"a default cannot come from '{query.components[part.component].variable}', which is negated",
                    text=query.text,
                    start=part.span.start,
                    end=part.span.end,
                    hint="take it from a positive component",
                )


# ── Keys ───────────────────────────────────────────────────────────────────────────────────────────


def _hash_written_equalities(plan: Plan) -> Plan:
    """Make written equalities with defaults, such as `x.id[z.id] = z.id`, part of the key. This is done only if every
    default is equal to the key too, so that the key implies the equality for every set of missing components.
    """
    query = plan.query
    last = query.positives[-1].position
    usable = list(plan.selection)
    while True:
        classes = _classes(usable)
        kept = []
        for conjunct in usable:
            sides = _sides(conjunct)
            own = next((group for group in classes if sides and sides[0] in group), set())
            optional = [side for side in sides or () if _component(side) != last]
            if sides is None or all(_default_in(query, side, own) for side in optional):
                kept.append(conjunct)
        if len(kept) == len(usable):
            break
        usable = kept
    withheld = [conjunct for conjunct in plan.selection if conjunct not in usable]
    hashed = written_equalities_into_key(replace(plan, selection=tuple(usable)), Statistics())
    return replace(hashed, selection=(*hashed.selection, *withheld))


def _default_in(query: BoundQuery, side: Bound, group: Collection[Bound]) -> bool:
    return isinstance(side, Attribute | Intrinsic) and query.defaults.get(side) in group


def _sides(conjunct: Conjunct) -> tuple[Bound, Bound] | None:
    """The two sides of a conjunct that is a single equality between two components; None for others."""
    if len(conjunct.comparisons) != 1 or len(conjunct.components) != 2:
        return None
    comparison = conjunct.comparisons[0]
    if not isinstance(comparison, Operation) or comparison.operator != "=":
        return None
    left, right = comparison.operands
    if len(components_of(left)) != 1 or len(components_of(right)) != 1:
        return None
    return left, right


def _component(side: Bound) -> int:
    (component,) = components_of(side)
    return component


def _classes(conjuncts: Collection[Conjunct]) -> list[set[Bound]]:
    classes: list[set[Bound]] = []
    for conjunct in conjuncts:
        sides = _sides(conjunct)
        if sides is not None:
            joined = set(sides)
            for group in [group for group in classes if group & joined]:
                classes.remove(group)
                joined |= group
            classes.append(joined)
    return classes


# ── What is missing ────────────────────────────────────────────────────────────────────────────────


def with_defaults(expression: Bound, missing: Collection[int], defaults: Defaults) -> Bound:
    """An expression in which missing components are replaced: their attributes by the defaults, or by null if there is
    no default.
    """

    def change(reference: Attribute | Intrinsic) -> Bound:
        if reference.component not in missing:
            return reference
        default = defaults.get(reference)
        if default is None:
            return Constant(None, type=reference.type)
        return with_defaults(default, missing, defaults)

    return replaced(expression, change)


def reached_by(expression: Bound, defaults: Defaults) -> frozenset[int]:
    """The components that an expression may read, either directly or through defaults."""
    reached: set[int] = set()
    waiting = [expression]
    while waiting:
        for part in walk(waiting.pop()):
            if isinstance(part, Attribute | Intrinsic):
                reached.add(part.component)
                if part in defaults:
                    waiting.append(defaults[part])
    return frozenset(reached)


# ── Tests ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LoweredTests:
    """The tests of a plan in the form of the kernel, and the lanes that they read."""

    lanes: Lanes
    tests: tuple[ArrivalTest, ...]
    negative_tests: Mapping[int, tuple[ArrivalTest, ...]]


def lower_incomplete(plan: IncompletePlan) -> LoweredTests:
    """The tests of all conjuncts that no key or role implies, with a variant for each set of missing components."""
    lanes = Lanes()
    tests = [_test(plan, conjunct, lanes) for conjunct in plan.selection]
    tests += [_test(plan, conjunct, lanes, written=False) for conjunct in plan.equalities]
    negative_tests = {}
    for negative in plan.negatives:
        position = negative.position
        own = [_test(plan, conjunct, lanes) for conjunct in plan.forbidding.get(position, ())]
        own += [_test(plan, c, lanes, written=False) for c in plan.forbidding_equalities.get(position, ())]
        negative_tests[position] = tuple(own)
    return LoweredTests(lanes, tuple(tests), negative_tests)


def _test(plan: IncompletePlan, conjunct: Conjunct, lanes: Lanes, *, written: bool = True) -> ArrivalTest:
    query = plan.query
    places = {component.position: place for place, component in enumerate(plan.positives)}
    defaults: Defaults = query.defaults if written else {}
    reached = frozenset().union(*(reached_by(comparison, defaults) for comparison in conjunct.comparisons))
    looked_at = sorted(position for position in reached if position in places)
    optional = [position for position in looked_at if position != plan.positives[-1].position]
    variants = []
    for bits in range(1 << len(optional)):
        missing = frozenset(position for bit, position in enumerate(optional) if bits >> bit & 1)
        try:
            variants.append(_variant(plan, conjunct, missing, lanes, written=written))
        except Inexpressible:
            raise QueryError(
                "this condition combines text of several events, which THRESHOLD cannot test",
                text=query.text,
                start=conjunct.span.start,
                end=conjunct.span.end,
                hint="compare attributes of events as they are, or compute the combined text as a column beforehand",
            ) from None
    nothing = len(places) if conjunct.negative is not None else len(places) - 1
    lowest = min((places[position] for position in looked_at), default=nothing)
    return ArrivalTest(lowest, tuple(places[position] for position in optional), tuple(variants))


def _variant(
    plan: IncompletePlan, conjunct: Conjunct, missing: frozenset[int], lanes: Lanes, *, written: bool
) -> tuple[Alternative, ...] | None:
    """A conjunct if these components are missing; None if it then always holds."""
    alternatives = []
    for comparison in conjunct.comparisons:
        form = _where_missing(comparison, missing, plan.query.defaults, written=written)
        if form is None:
            return None
        alternatives.append(_alternative(plan, form, lanes))
    return tuple(alternatives)


def _where_missing(condition: Bound, missing: frozenset[int], defaults: Defaults, *, written: bool) -> Bound | None:
    """A condition if these components are missing; None if it then always holds."""
    if is_junction(condition):
        forms = [_where_missing(operand, missing, defaults, written=written) for operand in condition.operands]
        left = [form for form in forms if form is not None]
        if not left or (condition.operator == "or" and len(left) < len(forms)):
            return None
        return replace(condition, operands=tuple(left)) if len(left) > 1 else left[0]
    named = components_of(condition)
    if named & missing and (not written or len(named) == 1):
        # The own predicates of a missing component are not tested, and [attr] compares bound events only.
        return None
    return with_defaults(condition, missing, defaults) if written else condition


def _alternative(plan: IncompletePlan, comparison: Bound, lanes: Lanes) -> Alternative:
    if not components_of(comparison):
        # Constants only: decided once for each event of the component that is always there.
        lane = lanes.lane(plan.positives[-1].position, LaneSpec(comparison, Domain.TRUTH))
        return Atom(lane, Comparison.EQUAL, 1)
    return alternative_of(comparison, lanes)


# ── The engine ─────────────────────────────────────────────────────────────────────────────────────


class _Incomplete(Engine):
    rules = (Rule(UPPER_BOUNDS, "paths that cannot reach the threshold are not followed (AYAC 5.1)"),)

    def applies(self, query: BoundQuery) -> bool:
        return query.threshold is not None

    def plan(
        self, query: BoundQuery, statistics: Statistics, off: Collection[str], model: LossModel | None
    ) -> IncompletePlan:
        return build_incomplete(query, model, off)

    def lacking_in_model(self, query: BoundQuery, model: LossModel) -> str | None:
        lacking = lacking_for_probability(query, model)
        return None if lacking is None else f"the probabilities of '{query.name}' are null: the model needs {lacking}"

    def explain(self, plan: IncompletePlan) -> Explanation:
        return explain(plan)

    def operator(self, plan: IncompletePlan, layout: Layout, limits: Limits) -> QueryOperator:
        from ouzel.engines.incomplete.operator import IncompleteOperator

        return IncompleteOperator(plan, layout, limits)


ENGINE = _Incomplete()


def explain(plan: IncompletePlan) -> Explanation:
    """Describe AYAC's operators: arrivals with upper bounds, then the search for paths backwards from each last
    component.
    """
    query, threshold = plan.query, plan.query.threshold
    assert threshold is not None
    arrivals = [f"one queue for each of {', '.join(label_of(c) for c in query.components)}"]
    if plan.key:
        arrivals.append(f"hashed by {key_labels(plan)}")
    if plan.bounds:
        arrivals.append("with an upper bound of the score of all paths to each arrival")
    # The first event decides when a window with a negated end has passed.
    optional = [c.variable for c in plan.positives[query.negated_end : -1]]
    paths = [f"backwards from each {label_of(plan.positives[-1])}"]
    if optional:
        paths.append(f"{', '.join(optional)} may be missing")
    paths += [f"test {render_conjunct(query, c)}" for c in (*plan.selection, *plan.equalities)]
    lines = [
        OperatorLine("roles", tuple(role_lines(plan))),
        OperatorLine("arrivals", tuple(arrivals)),
        OperatorLine("paths", tuple(paths)),
        OperatorLine("window", (f"within {window_of(query)}",)),
    ]
    if plan.negatives:
        forbidding = []
        for negative in plan.negatives:
            tests = [render_conjunct(query, c) for c in plan.forbidding.get(negative.position, ())]
            condition = f" with {' AND '.join(tests)}" if tests else ""
            is_last = negative.position > plan.positives[-1].position
            where = (
                "from the last component to the end of the window"
                if is_last
                else "between its nearest bound components"
            )
            forbidding.append(f"no {label_of(negative)}{condition} {where}")
        lines.append(OperatorLine("negation", tuple(forbidding)))
    on = "probability" if threshold.on_probability else "score"
    known = [f"{on} of {threshold.value:g} or more"]
    lacking = None if plan.model is None else lacking_for_probability(query, plan.model)
    if lacking is not None:
        known.append(f"probability is null: the model needs {lacking}")
    lines.append(OperatorLine("threshold", tuple(known)))
    lines.append(OperatorLine("transformation", (f"{transformation_line(plan)}, missing, score, probability",)))
    because = "THRESHOLD: components may be missing, and every path has a score"
    return explained(plan, "arrivals", because, lines)
