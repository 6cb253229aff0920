"""AGG, GROUP BY and HAVING: aggregates over all matches (docs/semantics.md, "Aggregates")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ouzel.bind.clauses import column_name, every_in
from ouzel.bind.diagnostics import listed, nearest, quoted
from ouzel.bind.expressions import Expressions, readable_name
from ouzel.bind.model import (
    FLOAT,
    INT,
    AggregateColumn,
    Bound,
    EquivalenceTest,
    GroupKey,
    Kind,
    Operation,
    ResultColumn,
    Type,
)
from ouzel.bind.names import Place
from ouzel.lang import syntax
from ouzel.lang.syntax import Reference

FUNCTIONS_OVER_MATCHES = ("count", "sum", "avg", "min", "max")
_COUNT_AS_DECIMAL = Type(Kind.DECIMAL, precision=38, scale=0)


def implied_tests(query: syntax.Query, expressions: Expressions) -> list[syntax.Equivalence]:
    """`GROUP BY attr` implies [attr]."""
    return [
        syntax.Equivalence(item.expression.names, span=item.span)
        for item in query.group_by
        if isinstance(item.expression, Reference) and _is_bare(item.expression, expressions)
    ]


def _is_bare(reference: Reference, expressions: Expressions) -> bool:
    """An attribute of all components, not of one variable. A single name here is never a variable."""
    is_variable = reference.names[0] in expressions.names.variables and len(reference.names) > 1
    return reference.index is None and reference.default is None and not is_variable


def bind_group_by(
    items: Sequence[syntax.Item], expressions: Expressions, equivalences: Sequence[EquivalenceTest]
) -> tuple[GroupKey, ...]:
    source = expressions.source
    keys: list[GroupKey] = []
    taken = {"end"}
    for number, item in enumerate(items, 1):
        name = item.alias or column_name(item.expression, number)
        if name in taken:
            hint = "write AS and another name"
            raise source.mistake(f"two columns are named {quoted(name)}", item.span, hint)
        taken.add(name)
        if isinstance(item.expression, Reference) and _is_bare(item.expression, expressions):
            path = item.expression.names
            kind = next(test.type for test in equivalences if test.path == path)
            keys.append(GroupKey(name, path, None, kind))
            continue
        expression = expressions.value(item.expression)
        for part in every_in(expression):
            hint = "write an index, [1] or [LEN]"
            raise source.mistake("GROUP BY needs one value per match, and this has one per event", part.span, hint)
        expressions.typing.check_comparable(expression.type, item.span)
        keys.append(GroupKey(name, None, expression, expression.type))
    return tuple(keys)


def bind_aggregates(
    aggregates: Sequence[syntax.Aggregate], expressions: Expressions, keys: Sequence[GroupKey]
) -> tuple[AggregateColumn, ...]:
    columns: list[AggregateColumn] = []
    taken = {"end", *(key.name for key in keys)}
    for number, aggregate in enumerate(aggregates, 1):
        column = aggregate_column(aggregate, expressions, number)
        if column.name in taken:
            hint = "write AS and another name"
            raise expressions.source.mistake(f"two columns are named {quoted(column.name)}", aggregate.span, hint)
        taken.add(column.name)
        columns.append(column)
    return tuple(columns)


def aggregate_column(aggregate: syntax.Aggregate, expressions: Expressions, number: int) -> AggregateColumn:
    """One aggregate. Without AS its name is the function and the argument in lower case."""
    source, function = expressions.source, aggregate.function
    if function not in FUNCTIONS_OVER_MATCHES:
        hint = (
            nearest(function, FUNCTIONS_OVER_MATCHES)
            or f"there are {listed(f.upper() for f in FUNCTIONS_OVER_MATCHES)}"
        )
        raise source.mistake(f"there is no aggregate {quoted(function.upper())} over matches", aggregate.span, hint)
    if aggregate.argument is None:
        if function != "count":
            hint = f"write {function.upper()}(v.x)"
            raise source.mistake(f"{function.upper()} needs an attribute", aggregate.span, hint)
        kind = _COUNT_AS_DECIMAL if aggregate.as_decimal else INT
        return AggregateColumn(aggregate.alias or "count", "count", None, kind)
    argument = expressions.value(aggregate.argument)
    every = every_in(argument)
    if len({part.component for part in every}) > 1:
        hint = "an index chooses one event: [1] is the first, [LEN] the last"
        raise source.mistake("an aggregate must range over the events of one component with +", aggregate.span, hint)
    kind = expressions.aggregate_type(function, argument)
    if function == "count" and aggregate.as_decimal:
        kind = _COUNT_AS_DECIMAL
    stem = readable_name(aggregate.argument) or str(number)
    return AggregateColumn(aggregate.alias or f"{function}_{stem}".lower(), function, argument, kind)


# ── HAVING ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Having(Expressions):
    """Binds HAVING. Names are columns of the result; calls are aggregates, even ones that the result does not show."""

    arguments: Expressions | None = None
    # The columns of the result, and all aggregates by what they compute.
    shown: Mapping[str, Type] = field(default_factory=dict)
    columns: dict[tuple[str, Bound | None], AggregateColumn] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def _reference(self, node: Reference) -> Bound:
        name = ".".join(node.names)
        types = self.shown
        if node.index is None and len(node.names) == 1 and name in types:
            return _comparable(ResultColumn(name, type=types[name], span=node.span))
        if len(node.names) == 1 and node.index is None and name.lower() == "count":
            return self._aggregate(syntax.Call("count", (), span=node.span))
        hint = nearest(name, types) or f"the columns are {listed(types, 'and')}"
        raise self.source.mistake(f"there is no column {quoted(name)} to filter by", node.span, hint)

    def _aggregate(self, node: syntax.Call) -> Bound:
        assert self.arguments is not None
        if len(node.arguments) > 1:
            raise self.source.mistake(f"wrong number of arguments for {quoted(node.function)}", node.span)
        argument = node.arguments[0] if node.arguments else None
        asked = aggregate_column(
            syntax.Aggregate(node.function, argument, span=node.span), self.arguments, len(self.columns) + 1
        )
        column = self.columns.get((asked.function, asked.argument))
        if column is not None:
            return _comparable(ResultColumn(column.name, type=column.type, span=node.span))
        name = asked.name
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        self.columns[asked.function, asked.argument] = replace(asked, name=name, hidden=True)
        return ResultColumn(name, type=asked.type, span=node.span)


def _comparable(column: ResultColumn) -> Bound:
    """A count of up to 38 digits is compared as a double, which is exact up to 2^53."""
    if column.type != _COUNT_AS_DECIMAL:
        return column
    return Operation("cast", (column,), type=FLOAT, span=column.span)


def bind_having(
    having: syntax.Expr | None,
    expressions: Expressions,
    keys: tuple[GroupKey, ...],
    aggregates: tuple[AggregateColumn, ...],
) -> tuple[Bound | None, tuple[AggregateColumn, ...]]:
    """The filter over result rows, and the aggregates including those that only the filter uses."""
    if having is None:
        return None, aggregates
    shown = {column.name: column.type for column in aggregates} | {key.name: key.type for key in keys}
    binder = _Having(
        expressions.source,
        expressions.names,
        expressions.typing,
        expressions.parameters,
        Place.HAVING,
        expressions.defaults,
        arguments=expressions,
        shown=shown,
        taken={"end", *shown},
    )
    for column in aggregates:
        binder.columns.setdefault((column.function, column.argument), column)
    condition = binder.condition(having)
    added = [column for column in binder.columns.values() if column.hidden]
    return condition, (*aggregates, *added)
