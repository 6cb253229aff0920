"""Pattern queries that a query set can merge with others: short sequences as branches of the algebra.

Under skip_till_any_match, a sequence of two events is every first one with every later one: an instance that stays
where it waits. Longer sequences would need all their partial matches, which stacks never list. All other features of
patterns depend on the events in between.
"""

from __future__ import annotations

from collections.abc import Iterable

from ouzel.algebra.model import (
    CURRENT,
    BoundStream,
    Branch,
    Iteration,
    Operand,
    Operator,
    Source,
    Step,
    duration,
    moved,
)
from ouzel.algebra.streams import Base
from ouzel.bind.model import (
    BOOL,
    INT,
    Attribute,
    Bound,
    BoundQuery,
    Constant,
    EventField,
    Intrinsic,
    Operation,
    TimeWindow,
)
from ouzel.bind.script import INPUT
from ouzel.lang.syntax import OutputForm, Strategy
from ouzel.plan.expressions import components_of, walk

STEPS_MAX = 2


def merged_stream(query: BoundQuery, time: str) -> BoundStream | None:
    """The query as a stream of one branch; None if it cannot be merged. `time` is the time column."""
    components = query.components
    if query.readings:
        return None
    if len(components) > STEPS_MAX or any(c.kleene or c.negated or len(c.types or ("",)) > 1 for c in components):
        return None
    if len(components) > 1 and query.strategy is not Strategy.SKIP_TILL_ANY_MATCH:
        return None
    if query.aggregates or query.returns is None or query.threshold is not None:
        return None
    if query.into is not None or set(query.sources) != {INPUT}:
        return None
    window = query.window
    if query.output.form is not OutputForm.ALL or not isinstance(window, TimeWindow) or (window.ticks or 0) <= 0:
        return None
    assert window.ticks is not None
    conditions = [_either(conjunct.comparisons) for conjunct in query.conjuncts]
    columns = {column.name: _with_column_of_times(column.expression, time) for column in query.returns}
    if not all(_is_plain(one) for one in (*conditions, *columns.values())):
        return None
    tests = list(query.equivalences)
    if any(test.lacked_by for test in tests):
        return None
    bases = [Base(None if c.types is None else c.types[0]) for c in components]
    sources = [Source(base) for base in bases]
    for test in tests:
        attributes = [Attribute(c.position, test.path, type=test.type) for c in components]
        if test.value is not None:
            conditions += [Operation("=", (attribute, test.value), type=BOOL) for attribute in attributes]
        elif len(attributes) == 1:
            # An event with a null value satisfies no equivalence test, even alone.
            null = Operation("is_null", (attributes[0],), type=BOOL)
            conditions.append(Operation("not", (null,), type=BOOL))
        else:
            conditions.append(Operation("=", (attributes[1], attributes[0]), type=BOOL))
    first = tuple(moved(one, 0, CURRENT) for one in conditions if components_of(one) <= {0})
    steps: tuple[Step, ...] = ()
    if len(components) > 1:
        later = [moved(one, 1, CURRENT) for one in conditions if not components_of(one) <= {0}]
        steps = (_step(sources[1], later, window.ticks, query),)
    branch = Branch(Operand(sources[0], first), steps, columns)
    return BoundStream(bases[0], (branch,), {name: value.type for name, value in columns.items()})


def _step(source: Source, conditions: list[Bound], ticks: int, query: BoundQuery) -> Step:
    """The second event. Instances are found by equalities; all other tests are on the edges, so that queries that
    differ in them share a wait."""
    finding = [one for one in conditions if _is_equality(one, with_instance=True)]
    finding = finding or [one for one in conditions if _is_equality(one, with_instance=False)]
    rest = tuple(one for one in conditions if one not in finding)
    within = Operation("<=", (duration(0, CURRENT, query.catalog.time.type), Constant(ticks, type=INT)), type=BOOL)
    return Step(Operator.EACH, Operand(source), (Iteration((*finding, within), results=rest),))


def _is_equality(condition: Bound, *, with_instance: bool) -> bool:
    if not isinstance(condition, Operation) or condition.operator != "=":
        return False
    sides = [components_of(side) for side in condition.operands]
    return frozenset({CURRENT}) in sides and (frozenset({0}) if with_instance else frozenset()) in sides


def _either(comparisons: Iterable[Bound]) -> Bound:
    given = tuple(comparisons)
    return given[0] if len(given) == 1 else Operation("or", given, type=BOOL)


def _with_column_of_times(expression: Bound, time: str) -> Bound:
    """RETURN shows an event's own time from the time column of the input."""
    if isinstance(expression, Intrinsic) and expression.field is not EventField.TYPE:
        return Attribute(expression.component, (time,), type=expression.type, span=expression.span)
    return expression


def _is_plain(expression: Bound) -> bool:
    """It reads only attributes that all events of its components have, and their times."""
    for part in walk(expression):
        if isinstance(part, Attribute):
            if part.present_in is not None:
                return False
        elif isinstance(part, Intrinsic):
            if part.field is EventField.TYPE:
                return False
        elif not isinstance(part, Operation | Constant):
            return False
    return True
