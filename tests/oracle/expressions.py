"""docs/semantics.md, "Nulls" and "Absent attributes": the value of a syntax tree over bound events."""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ouzel.lang import syntax
from ouzel.lang.syntax import Expr, IndexKind, Reference
from tests.oracle import functions
from tests.oracle.events import Event, EventTypes
from tests.oracle.values import EXACT, MICROSECONDS_PER_SECOND, Elapsed, Lasting, Point, arithmetic, compare, negated

AGGREGATES = frozenset({"count", "sum", "avg", "min", "max", "first", "last", "count_distinct", "stddev"})
OWN_TIMES_AND_TYPE: Mapping[str, Callable[[Event], Any]] = {
    "time": lambda event: event.end,
    "start": lambda event: event.start,
    "end": lambda event: event.end,
    "type": lambda event: event.type,
}
UNIT_SECONDS = {
    "us": Fraction(1, 1_000_000),
    "ms": Fraction(1, 1_000),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3_600),
    "days": Fraction(86_400),
    "weeks": Fraction(604_800),
}
COMPARISONS: Mapping[str, Callable[[int], bool]] = {
    "=": lambda order: order == 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


@dataclass(frozen=True)
class Settings:
    """What is given beside the query: event types, parameters, and how long a tick is (None: ticks have no unit)."""

    types: EventTypes
    params: Mapping[str, Any]
    ticks_per_second: int | None


@dataclass(frozen=True)
class Scope:
    """The bound events that an expression sees: one event of a single component, a tuple of a Kleene component; None
    or an empty tuple of an absent one.

    `iteration` is i in v[i], counted from 1 as on the page. `element` is the event that an aggregate looks at.
    `bare_variable` is the component that bare attribute names mean, in a pattern of one component.
    """

    settings: Settings
    bound: Mapping[str, Event | tuple[Event, ...] | None]
    bare_variable: str | None = None
    iteration: int | None = None
    element: Event | None = None
    # The elements of lists that the conditions of any(…) name.
    named: Mapping[str, Any] = dataclasses.field(default_factory=dict)


# ── Trees ──────────────────────────────────────────────────────────────────────────────────────────


def children(node: syntax.Node) -> Iterator[syntax.Node]:
    """The expressions in an expression. In any(list, t -> …) t is no event, so it is left out."""
    if isinstance(node, syntax.AnyElement):
        local = node.variable
        yield node.operand
        yield rewritten(node.condition, lambda found: syntax.Literal(None) if found.names[0] == local else found)
        return
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, syntax.Expr | syntax.When):
                yield item


def references(node: syntax.Node) -> Iterator[Reference]:
    """Every reference in the expression."""
    if isinstance(node, Reference):
        yield node
    for child in children(node):
        yield from references(child)


def rewritten(node: Any, change: Callable[[Reference], Expr]) -> Any:
    """The expression with every reference changed."""
    if isinstance(node, Reference):
        return change(node)
    if isinstance(node, tuple):
        return tuple(rewritten(item, change) for item in node)
    if not isinstance(node, syntax.Expr | syntax.When):
        return node
    if isinstance(node, syntax.AnyElement):
        event, local = change, node.variable  # In any(list, t -> …) t is no event.
        change = lambda reference: reference if reference.names[0] == local else event(reference)  # noqa: E731
    fields = {field.name: getattr(node, field.name) for field in dataclasses.fields(node) if field.name != "span"}
    return dataclasses.replace(node, **{name: rewritten(value, change) for name, value in fields.items()})


def variable_of(reference: Reference, variables: Mapping[str, Any], bare_variable: str | None) -> str:
    """ "A pattern of one component needs no SEQ and may use bare attribute names." """
    name = reference.names[0]
    is_variable = name in variables and (len(reference.names) > 1 or reference.index is not None)
    if is_variable or bare_variable is None:
        return name
    return bare_variable


def attribute_path(reference: Reference, variable: str) -> tuple[str, ...]:
    """The names after the variable, or all of them where it is bare: a name alone is an attribute, never an event."""
    is_bare = reference.names[0] != variable or (len(reference.names) == 1 and reference.index is None)
    return reference.names if is_bare else reference.names[1:]


def is_length(reference: Reference, is_kleene: bool) -> bool:
    """`v.LEN`, "how many". LEN stands in any case."""
    return is_kleene and reference.index is None and len(reference.names) == 2 and reference.names[1].upper() == "LEN"


def is_aggregate(node: syntax.Node) -> bool:
    return isinstance(node, syntax.Call) and node.function in AGGREGATES and len(node.arguments) == 1


def is_own(node: syntax.Node) -> bool:
    """ "`time(v)`, `start(v)`, `end(v)`, `type(v)` always give the event's own." """
    return isinstance(node, syntax.Call) and node.function in OWN_TIMES_AND_TYPE


# ── Attributes ─────────────────────────────────────────────────────────────────────────────────────


def lacks(event: Event, path: tuple[str, ...], types: EventTypes) -> bool:
    """Is it "an attribute that the event's type does not have"? Every event has time, start, end and type; a field
    that a struct does not have is absent too."""
    if not types.has(event, path[0]):
        return path[0] not in OWN_TIMES_AND_TYPE
    value = event.attributes.get(path[0])
    for name in path[1:]:
        if value is not None and name not in value:
            return True
        value = None if value is None else value[name]
    return False


def attribute(event: Event, path: tuple[str, ...], types: EventTypes) -> Any:
    """ "v.time is v.end; v.start, v.end, v.type likewise, unless the event type has an attribute of that name." An
    absent attribute is null here, as in RETURN; `truth` asks about absence first."""
    if types.has(event, path[0]):
        value = event.attributes.get(path[0])
    elif path[0] in OWN_TIMES_AND_TYPE:
        value = OWN_TIMES_AND_TYPE[path[0]](event)
    else:
        value = None
    for name in path[1:]:
        value = None if value is None else value.get(name)
    if isinstance(value, datetime.timedelta):
        microseconds = value // datetime.timedelta(microseconds=1)
        return Elapsed.of(Fraction(microseconds, MICROSECONDS_PER_SECOND), MICROSECONDS_PER_SECOND)
    return value


def referred_events(reference: Reference, scope: Scope) -> tuple[Event, ...]:
    """The event or, for an array, the events that the reference means."""
    bound = scope.bound[variable_of(reference, scope.bound, scope.bare_variable)]
    index = reference.index
    if not bound:
        return ()
    if isinstance(bound, Event):
        return (bound,)
    if index is None or index.kind in (IndexKind.ALL, IndexKind.BEFORE):
        if scope.element is not None:
            return (scope.element,)
        return bound
    if index.kind is IndexKind.NUMBER:
        assert index.offset == 1, "only v[1] has a number"
        return (bound[0],)
    if index.kind is IndexKind.LAST:
        return (bound[-1],)
    assert scope.iteration is not None and index.offset in (0, -1), "v[i] and v[i-1] stand in WHERE only"
    return (bound[scope.iteration - 1 + index.offset],)


def _reference(reference: Reference, scope: Scope) -> Any:
    variable = variable_of(reference, scope.bound, scope.bare_variable)
    bound = scope.bound[variable]
    if is_length(reference, isinstance(bound, tuple)):
        assert isinstance(bound, tuple)
        return len(bound)
    path = attribute_path(reference, variable)
    values = [attribute(event, path, scope.settings.types) for event in referred_events(reference, scope)]
    is_array = (
        isinstance(bound, tuple)
        and scope.element is None
        and (reference.index is None or reference.index.kind is IndexKind.ALL)
    )
    # "In RETURN v.attr is an array."
    return values if is_array else next(iter(values), None)


def _own(node: syntax.Call, scope: Scope) -> Any:
    (argument,) = node.arguments
    assert isinstance(argument, Reference)
    values = [OWN_TIMES_AND_TYPE[node.function](event) for event in referred_events(argument, scope)]
    bound = scope.bound[variable_of(argument, scope.bound, scope.bare_variable)]
    is_array = isinstance(bound, tuple) and argument.index is None and scope.element is None
    return values if is_array else next(iter(values), None)


# ── Aggregates over a Kleene variable ──────────────────────────────────────────────────────────────


def _aggregate(node: syntax.Call, scope: Scope) -> Any:
    """ "`count sum avg min max first last` over `v[..i-1]` (those chosen before this one) or `v[]` (all)." """
    (argument,) = node.arguments
    reference = next(references(argument))
    bound = scope.bound[variable_of(reference, scope.bound, scope.bare_variable)]
    assert isinstance(bound, tuple), "aggregates range over Kleene variables"
    if reference.index is not None and reference.index.kind is IndexKind.BEFORE:
        assert scope.iteration is not None
        bound = bound[: scope.iteration - 1]
    if node.function == "count" and argument == reference and len(reference.names) == 1:
        return len(bound)
    values = []
    for event in bound:
        element_scope = dataclasses.replace(scope, element=event)
        value = None if mentions_absent(argument, element_scope) else evaluate(argument, element_scope)
        # "Aggregates skip such events", whose type lacks the attribute, and nulls.
        if value is not None:
            values.append(value)
    return _folded(node.function, values, scope.settings.ticks_per_second)


def _folded(function: str, values: list[Any], ticks_per_second: int | None) -> Any:
    if function == "count":
        return len(values)
    if function == "count_distinct":
        different: list[Any] = []
        for value in values:
            if all(compare(value, other, ticks_per_second) != 0 for other in different):
                different.append(value)
        return len(different)
    if function == "stddev":
        return _deviation([float(value) for value in values])
    if not values:
        return None
    if function == "first":
        return values[0]
    if function == "last":
        return values[-1]
    if function in ("min", "max"):
        return functions.call("least" if function == "min" else "greatest", values, ticks_per_second)
    if function == "avg":
        # "`/` and AVG are double. Running aggregates add left to right."
        values = [float(value) for value in values]
    total = values[0]
    for value in values[1:]:
        total = arithmetic("+", total, value, ticks_per_second)
    return total / len(values) if function == "avg" else total


def _deviation(values: list[float]) -> float | None:
    """ "The sample standard deviation", left to right: each value adds the square of its distance from the mean of
    those before it, n / (n + 1) times."""
    if len(values) < 2:
        return None
    squares, total = 0.0, values[0]
    for count, value in enumerate(values[1:], 1):
        distance = value - total / count
        squares += distance * distance * (count / (count + 1))
        total += value
    return math.sqrt(squares / (len(values) - 1)) if squares == squares else math.nan


# ── Values ─────────────────────────────────────────────────────────────────────────────────────────


def evaluate(node: Expr, scope: Scope) -> Any:
    """The value of an expression; None is null, and unknown for a condition."""
    ticks_per_second = scope.settings.ticks_per_second
    match node:
        case syntax.Literal(value=value):
            return Point(value) if isinstance(value, Decimal) else value
        case syntax.Percent(value=value):
            return Point(Decimal(value).scaleb(-2, EXACT))
        case syntax.Temporal(kind=kind, text=text):
            return temporal(text).date() if kind is syntax.TemporalKind.DATE else temporal(text)
        case syntax.Duration(amount=amount, unit=unit):
            return ticks(amount, unit, ticks_per_second)
        case syntax.Parameter(name=name):
            return parameter(scope.settings.params[name], ticks_per_second)
        case Reference(names=(name, *path)) if name in scope.named:
            found = scope.named[name]
            for field in path:
                found = None if found is None else found[field]
            return found
        case Reference():
            return _reference(node, scope)
        case syntax.Call() if is_own(node):
            return _own(node, scope)
        case syntax.Call() if is_aggregate(node):
            return _aggregate(node, scope)
        case syntax.Call(function="array_contains", arguments=arguments):
            return _contains([evaluate(argument, scope) for argument in arguments], scope)
        case syntax.Call(function="contains", arguments=arguments) if _asks_a_list(arguments, scope):
            return _contains([evaluate(argument, scope) for argument in arguments], scope)
        case syntax.Call(function=function, arguments=arguments):
            return functions.call(function, [evaluate(a, scope) for a in arguments], ticks_per_second)
        case syntax.Unary(operator="-", operand=operand):
            return negated(evaluate(operand, scope))
        case syntax.Unary(operator="NOT", operand=operand):
            return _not(evaluate(operand, scope))
        case syntax.Binary(operator=operator, left=left, right=right) if operator in COMPARISONS:
            return _compared(operator, evaluate(left, scope), evaluate(right, scope), scope)
        case syntax.Binary(operator=operator, left=left, right=right):
            return arithmetic(operator, evaluate(left, scope), evaluate(right, scope), ticks_per_second)
        case syntax.Logical(operator=operator, operands=operands):
            values = [evaluate(operand, scope) for operand in operands]
            return _and(values) if operator == "AND" else _or(values)
        case syntax.In(operand=operand, items=items, negated=is_negated):
            value = evaluate(operand, scope)
            found = _or([_compared("=", value, evaluate(item, scope), scope) for item in items])
            return _not(found) if is_negated else found
        case syntax.Between(operand=operand, low=low, high=high, negated=is_negated):
            value = evaluate(operand, scope)
            above = _compared(">=", value, evaluate(low, scope), scope)
            below = _compared("<=", value, evaluate(high, scope), scope)
            return _not(_and([above, below])) if is_negated else _and([above, below])
        case syntax.Like(operand=operand, pattern=pattern, negated=is_negated, escape=escape):
            found = functions.like(evaluate(operand, scope), evaluate(pattern, scope), escape or "\\")
            return _not(found) if is_negated else found
        case syntax.IsNull(operand=operand, negated=is_negated):
            return (evaluate(operand, scope) is None) != is_negated
        case syntax.Presence(variable=variable, absent=absent):
            return bool(scope.bound[variable]) is not absent
        case syntax.AnyElement(operand=operand, variable=variable, condition=condition):
            elements = evaluate(operand, scope)
            if elements is None:
                return None
            inner = [dataclasses.replace(scope, named={**scope.named, variable: element}) for element in elements]
            return _or([evaluate(condition, each) for each in inner])
        case syntax.Case(operand=operand, whens=whens, otherwise=otherwise):
            for when in whens:
                condition = evaluate(when.condition, scope)
                if operand is not None:
                    condition = _compared("=", evaluate(operand, scope), condition, scope)
                if condition is True:
                    return evaluate(when.result, scope)
            return None if otherwise is None else evaluate(otherwise, scope)
    raise TypeError(f"no meaning for {node!r}")


def ticks(amount: int | Decimal, unit: str, ticks_per_second: int | None) -> Lasting:
    """A duration, in ticks beside ticks; without a unit of ticks it can only meet timestamps, which have one."""
    return Lasting.of(Fraction(amount) * UNIT_SECONDS[unit], ticks_per_second or MICROSECONDS_PER_SECOND)


def parameter(value: Any, ticks_per_second: int | None) -> Any:
    if isinstance(value, datetime.timedelta):
        return ticks(value // datetime.timedelta(microseconds=1), "us", ticks_per_second)
    return value


def temporal(text: str) -> datetime.datetime:
    """`2024-5-1`, `2024-05-01 12:00`, `2024-05-01T12:00:00.5+02:00`, `2024-05-01 12:00:00 Europe/Oslo`."""
    found = re.fullmatch(r"(\d+)-(\d+)-(\d+)(?:[T ]+(\d+):(\d+)(?::(\d+)(?:\.(\d{1,6}))?)? *(\S+)?)?", text.strip())
    assert found is not None, f"{text!r} is not a moment in whole microseconds"
    *numbers, fraction, zone = found.groups()
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    moment = datetime.datetime(year, month, day, hour, minute, second, int((fraction or "").ljust(6, "0")))
    if zone is None:
        return moment
    offset = re.fullmatch(r"([+-])(\d{1,2}):?(\d{2})?", zone)
    if offset is None:
        return moment.replace(tzinfo=zoneinfo.ZoneInfo("UTC" if zone == "Z" else zone))
    ahead = datetime.timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
    return moment.replace(tzinfo=datetime.timezone(-ahead if offset[1] == "-" else ahead))


def _compared(operator: str, left: Any, right: Any, scope: Scope) -> bool | None:
    order = compare(left, right, scope.settings.ticks_per_second)
    return None if order is None else COMPARISONS[operator](order)


def _asks_a_list(arguments: tuple[Expr, ...], scope: Scope) -> bool:
    return isinstance(evaluate(arguments[0], scope), list)


def _contains(arguments: list[Any], scope: Scope) -> bool | None:
    """As Spark's array_contains."""
    elements, value = arguments
    if elements is None or value is None:
        return None
    return _or([_compared("=", element, value, scope) for element in elements])


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _and(values: list[bool | None]) -> bool | None:
    if any(value is False for value in values):
        return False
    return None if any(value is None for value in values) else True


def _or(values: list[bool | None]) -> bool | None:
    return _not(_and([_not(value) for value in values]))


# ── Truth of one comparison ────────────────────────────────────────────────────────────────────────


def mentions_absent(node: syntax.Node, scope: Scope) -> bool:
    """Does the expression look at an attribute that the event's type does not have? Aggregates do not: they skip."""
    if is_aggregate(node) or is_own(node):
        return False
    if isinstance(node, Reference):
        variable = variable_of(node, scope.bound, scope.bare_variable)
        if is_length(node, isinstance(scope.bound[variable], tuple)):
            return False
        path = attribute_path(node, variable)
        return any(lacks(event, path, scope.settings.types) for event in referred_events(node, scope))
    return any(mentions_absent(child, scope) for child in children(node))


def comparison_holds(node: Expr, scope: Scope) -> bool:
    """ "A comparison on it is true. The unit is one comparison." And "unknown is not a match"."""
    return mentions_absent(node, scope) or evaluate(node, scope) is True
