"""docs/semantics.md, "Aggregates" and "EMIT ON CHANGE": build all matches, add up those that count at each time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ouzel.lang import syntax
from ouzel.lang.syntax import Expr, IndexKind, Reference
from tests.oracle import functions
from tests.oracle.conditions import Conditions
from tests.oracle.expressions import attribute, children, evaluate, is_aggregate, is_length, mentions_absent
from tests.oracle.output import Match
from tests.oracle.selection import Selection
from tests.oracle.values import EXACT, Elapsed, Point, arithmetic, sort_key

Group = tuple[Any, ...]


@dataclass(frozen=True)
class AggregateRow:
    """ "An aggregate's row has start = end = the moment." `row` has the columns that are shown."""

    start: int
    end: int
    row: Mapping[str, Any]


# ── GROUP BY ───────────────────────────────────────────────────────────────────────────────────────


def with_implied_tests(query: syntax.Query) -> syntax.Query:
    """ "`GROUP BY attr` implies [attr], negative components included." """
    tests = [syntax.Equivalence(item.expression.names) for item in query.group_by if _is_attribute(query, item)]
    if not tests:
        return query
    operands = (*((query.where,) if query.where is not None else ()), *tests)
    where = operands[0] if len(operands) == 1 else syntax.Logical("AND", operands)
    return dataclasses.replace(query, where=where)


def grouping_expressions(query: syntax.Query) -> list[Expr]:
    """What `GROUP BY v.attr` and the like look at; `GROUP BY attr` is an equivalence test."""
    return [item.expression for item in query.group_by if not _is_attribute(query, item)]


def _is_attribute(query: syntax.Query, item: syntax.Item) -> bool:
    """`GROUP BY attr`, as against `GROUP BY v.attr` or an expression."""
    reference = item.expression
    if not isinstance(reference, Reference) or reference.index is not None:
        return False
    components = query.pattern.components
    variables = {c.variable for c in components} | {t.name for c in components for t in c.types}
    return len(reference.names) == 1 or reference.names[0] not in variables


def _group(conditions: Conditions, match: Match) -> dict[str, Any]:
    """The GROUP BY columns of a match."""
    columns = {}
    for number, item in enumerate(conditions.query.group_by, start=1):
        if _is_attribute(conditions.query, item):
            assert isinstance(item.expression, Reference)
            first = next(iter(match.bound.values()))
            event = first[0] if isinstance(first, tuple) else first
            value = attribute(event, item.expression.names, conditions.settings.types)
        else:
            value = evaluate(item.expression, conditions.scope(match.bound))
        columns[_key_name(item, number)] = value
    return columns


def _key_name(item: syntax.Item, number: int) -> str:
    if item.alias is not None:
        return item.alias
    return item.expression.names[-1] if isinstance(item.expression, Reference) else f"column_{number}"


# ── Aggregates ─────────────────────────────────────────────────────────────────────────────────────


def _values(conditions: Conditions, argument: Expr, match: Match) -> list[Any]:
    """What one match has to give: one value, or over a Kleene variable one for each of its events. "Aggregates skip
    nulls", and events whose type lacks the attribute."""
    ranging = [
        component
        for component in map(conditions.component_of, _all_events_of(conditions, argument))
        if component.kleene
    ]
    scopes = [conditions.scope(match.bound)]
    if ranging:
        events = match.bound[ranging[0].name]
        assert isinstance(events, tuple)
        scopes = [dataclasses.replace(scopes[0], element=event) for event in events]
    found = [evaluate(argument, scope) for scope in scopes if not mentions_absent(argument, scope)]
    return [float(value) if isinstance(value, Point) else value for value in found if value is not None]


def _all_events_of(conditions: Conditions, argument: Expr) -> list[Reference]:
    """References to all events of a Kleene variable: `v.attr` without an index, or `v[].attr`."""
    return [
        reference
        for reference in _outside_aggregates(argument)
        if conditions.component_of(reference).kleene
        and not is_length(reference, True)
        and (reference.index is None or reference.index.kind is IndexKind.ALL)
    ]


def _outside_aggregates(node: syntax.Node) -> Iterator[Reference]:
    """The references that no count(v[].x), sum(v[].x) and the like makes one value of the match."""
    if isinstance(node, Reference):
        yield node
    if not is_aggregate(node):
        for child in children(node):
            yield from _outside_aggregates(child)


def aggregate(
    conditions: Conditions, function: str, argument: Expr | None, as_decimal: bool, matches: Sequence[Match]
) -> Any:
    """One aggregate over some matches."""
    if argument is None:
        return Decimal(len(matches)) if as_decimal else len(matches)
    values = [value for match in matches for value in _values(conditions, argument, match)]
    if function == "count":
        return Decimal(len(values)) if as_decimal else len(values)
    if not values:
        return None
    if function in ("min", "max"):
        extreme = "least" if function == "min" else "greatest"
        return functions.call(extreme, values, conditions.settings.ticks_per_second)
    total = _sum(values)
    # "AVG = SUM / number of those values."
    return float(total / len(values)) if function == "avg" else total


def _added(total: Any, value: Any) -> Any:
    return arithmetic("+", total, value, None) if isinstance(value, Elapsed) else total + value


def _sum(values: Sequence[Any]) -> Any:
    """Exact over integers and decimals; over doubles as exact as a double can be."""
    if not any(isinstance(value, float) for value in values):
        total = values[0]
        for value in values[1:]:
            total = EXACT.add(total, value) if isinstance(value, Decimal) else _added(total, value)
        return total
    infinite = {value for value in values if math.isinf(value)}
    if any(math.isnan(value) for value in values) or len(infinite) == 2:
        return math.nan
    return infinite.pop() if infinite else math.fsum(values)


# ── HAVING ─────────────────────────────────────────────────────────────────────────────────────────


def _passes(conditions: Conditions, row: Mapping[str, Any], matches: Sequence[Match]) -> bool:
    """ "HAVING filters what is emitted, never what is counted." Its names are columns, its calls are aggregates."""
    having = conditions.query.having
    if having is None:
        return True

    def filled_in(node: Any) -> Any:
        if isinstance(node, Reference):
            name = ".".join(node.names)
            return syntax.Literal(row[name] if name in row else len(matches))
        if isinstance(node, syntax.Call) and node.function in ("count", "sum", "avg", "min", "max"):
            argument = node.arguments[0] if node.arguments else None
            return syntax.Literal(aggregate(conditions, node.function, argument, False, matches))
        if isinstance(node, tuple):
            return tuple(filled_in(item) for item in node)
        if not isinstance(node, syntax.Expr | syntax.When):
            return node
        fields = {field.name: getattr(node, field.name) for field in dataclasses.fields(node) if field.name != "span"}
        return dataclasses.replace(node, **{name: filled_in(value) for name, value in fields.items()})

    return evaluate(filled_in(having), conditions.scope({})) is True


# ── Moments ────────────────────────────────────────────────────────────────────────────────────────


def rows_at_moments(selection: Selection, matches: Iterable[Match]) -> list[AggregateRow]:
    """ "At each moment at which at least one match completes: one row for each group in which one does." """
    conditions = selection.conditions
    groups: dict[Group, list[Match]] = {}
    for match in matches:
        key = tuple(sort_key(value) for value in _group(conditions, match).values())
        groups.setdefault(key, []).append(match)
    rows: list[tuple[int, Group, AggregateRow]] = []
    for key, members in groups.items():
        for moment in sorted(_moments(selection, members)):
            standing = _standing(selection, members, moment)
            columns = _columns(conditions, standing)
            completed = any(match.end == moment for match in members)
            before = _columns(conditions, _standing(selection, members, moment - 1))
            if not completed and _same(columns, before):
                continue
            row = {"end": moment, **_group(conditions, members[0]), **columns}
            if _passes(conditions, row, standing):
                row = {name: v.timedelta() if isinstance(v, Elapsed) else v for name, v in row.items()}
                rows.append((moment, key, AggregateRow(moment, moment, row)))
    return [row for _, _, row in sorted(rows, key=lambda found: found[:2])]


def _moments(selection: Selection, members: Sequence[Match]) -> set[int]:
    """ "`EMIT ON CHANGE` also emits when expiry changes the value, at time first.start + T." """
    moments = {match.end for match in members}
    if selection.conditions.query.emit_on_change and selection.window is not None:
        moments |= {match.start + selection.window for match in members}
    return moments


def _standing(selection: Selection, members: Sequence[Match], now: int) -> list[Match]:
    """ "All the group's matches whose events have all arrived and whose first event has not expired
    (now - first.start < T), those completed earlier included." """
    window = selection.window
    return [match for match in members if match.end <= now and (window is None or now - match.start < window)]


def _same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """NaN equals NaN."""
    return [sort_key(value) for value in left.values()] == [sort_key(value) for value in right.values()]


def _columns(conditions: Conditions, matches: Sequence[Match]) -> dict[str, Any]:
    """The aggregates' columns, "named in lower case or by AS"."""
    columns = {}
    for number, asked in enumerate(conditions.query.aggregates, start=1):
        name = asked.alias or _aggregate_name(asked, number)
        columns[name] = aggregate(conditions, asked.function, asked.argument, asked.as_decimal, matches)
    return columns


def _aggregate_name(asked: syntax.Aggregate, number: int) -> str:
    if asked.argument is None:
        return asked.function
    stem = "_".join(asked.argument.names) if isinstance(asked.argument, Reference) else str(number)
    return f"{asked.function}_{stem}".lower()
