"""Binds the clauses other than pattern and WHERE: WITHIN, the strategy's variables, OUTPUT, RETURN, AGG with GROUP BY
and HAVING (docs/semantics.md, "Aggregates"), and THRESHOLD (AYAC; docs/semantics.md, "Incomplete streams").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from ouzel.bind.conjuncts import lacking_positive, named_in
from ouzel.bind.diagnostics import Source, listed, nearest, quoted
from ouzel.bind.expressions import Expressions, readable_name
from ouzel.bind.literals import INT64_MAX, duration
from ouzel.bind.model import (
    DURATION,
    FLOAT,
    INT,
    STRING,
    AggregateColumn,
    At,
    Attribute,
    Bound,
    BoundOutput,
    BoundStep,
    BoundThreshold,
    Component,
    Conjunct,
    Constant,
    Edge,
    EquivalenceTest,
    EventWindow,
    GroupKey,
    Intrinsic,
    Kind,
    Operation,
    OutputColumn,
    ResultColumn,
    TimeWindow,
    Type,
    parts,
)
from ouzel.bind.names import Names, Place
from ouzel.bind.normal_form import comparisons_of, is_junction
from ouzel.bind.patterns import overlapping, with_forbidden
from ouzel.errors import QueryError
from ouzel.lang import format_expression, parse_expression, syntax
from ouzel.lang.syntax import OutputForm, Reference, Span, Strategy

# The columns that every match has in addition to its own.
SPAN_COLUMNS = ("start", "end")
SCORE_COLUMNS = ("missing", "score", "probability")
# Of OUTPUT FURTHEST: the number of positive components that are bound.
REACHED = "reached"


# ── Windows ────────────────────────────────────────────────────────────────────────────────────────


def bind_window(within: syntax.Within | None, expressions: Expressions) -> TimeWindow | EventWindow | None:
    """The window of `WITHIN`: a positive integer of ticks or of events."""
    if within is None:
        return None
    source = expressions.source
    extent = constant_of(within.extent, expressions)
    if extent.type == STRING and isinstance(within.extent, syntax.Parameter) and not within.in_events:
        extent = _duration_in_text(extent, within.extent.span, source)
    value = extent.value
    if within.in_events:
        if extent.type != INT or not isinstance(value, int):
            raise source.mistake(
                "a window in events must be a whole number", within.extent.span, "write WITHIN 50 EVENTS"
            )
        _check_positive(value, within.extent.span, source)
        return EventWindow(value)
    if extent.type == DURATION and isinstance(value, int):
        _check_positive(value, within.extent.span, source)
        ticks = expressions.typing.ticks(extent, None)
        assert isinstance(ticks, Constant)
        if ticks.type == DURATION:
            return TimeWindow(None, format_expression(within.extent))
        value = ticks.value
    elif extent.type != INT:
        hint = "write WITHIN 12 hours, or a whole number of ticks"
        raise source.mistake("a window must be a duration or a whole number of ticks", within.extent.span, hint)
    assert isinstance(value, int)
    _check_positive(value, within.extent.span, source)
    return TimeWindow(value, format_expression(within.extent))


def _duration_in_text(given: Constant, span: Span, source: Source) -> Constant:
    """The duration in a text parameter such as "30 min". The command line gives durations as text."""
    try:
        read = parse_expression(str(given.value))
    except QueryError:
        read = None
    if not isinstance(read, syntax.Duration):
        raise source.mistake(
            f"the value {quoted(str(given.value))} of a window is not a duration",
            span,
            "give text such as '12 hours', a timedelta, or a whole number of ticks",
        )
    return duration(read.amount, read.unit, span, source)


def constant_of(node: syntax.Expr, expressions: Expressions) -> Constant:
    """A literal or parameter, perhaps negated. Its final type may depend on how it is used."""
    literal = (syntax.Literal, syntax.Percent, syntax.Duration, syntax.Parameter)
    if isinstance(node, literal) or (isinstance(node, syntax.Unary) and isinstance(node.operand, literal)):
        bound = expressions.bound(node)
        if isinstance(bound, Constant):
            return bound
    raise expressions.source.mistake("this must be a literal or a parameter", node.span)


def _check_positive(value: int, span: Span, source: Source) -> None:
    if value <= 0:
        hint = "the smallest window is 1, which holds matches of one event"
        raise source.mistake("a window must be positive", span, hint)
    if value >= INT64_MAX:
        raise source.mistake("the window does not fit into 64 bits", span, "leave WITHIN out")


def check_negation_at_ends(names: Names, window: TimeWindow | EventWindow | None) -> None:
    """Raise an error if a negation at the start or end has no time window: it forbids events up to an end of the
    window.
    """
    if isinstance(window, TimeWindow):
        return
    ends = [(order[0], order[-1]) for order in names.written_orders]
    for place, component in [(place, one) for pair in ends for place, one in zip(("start", "end"), pair, strict=True)]:
        if component.negated:
            raise names.source.mistake(
                f"a negation at the {place} needs WITHIN in time",
                component.span,
                "add WITHIN with a duration, such as WITHIN 12 hours",
            )


# ── Strategy ───────────────────────────────────────────────────────────────────────────────────────


def bind_strategy(selection: syntax.Selection | None, names: Names) -> Strategy:
    """The strategy. Its variables must be in the order of the pattern, but some may be left out."""
    if selection is None:
        return Strategy.SKIP_TILL_ANY_MATCH
    position = 0
    for name in selection.variables:
        places = [
            c.position for c in names.components if name == c.variable or (name in names.shared and c.types == (name,))
        ]
        if not places:
            raise names.source.mistake(
                f"there is no variable {quoted(name)}", selection.span, names.variables_hint(name)
            )
        later = [place for place in places if place >= position]
        if not later:
            hint = f"write {selection.strategy.value}({', '.join(names.variables)})"
            raise names.source.mistake(
                f"{quoted(name)} must be listed in the order of the pattern", selection.span, hint
            )
        position = later[0] + 1
    return selection.strategy


def bind_steps(selection: syntax.Selection | None, names: Names) -> tuple[BoundStep, ...]:
    """The steps of contiguity(…)."""
    bound: list[BoundStep] = []
    for step in selection.steps if selection is not None else ():
        variable = quoted(step.variable)
        component = next((c for c in names.components if c.variable == step.variable), None)
        if component is None:
            raise names.source.mistake(
                f"there is no variable {variable}", step.span, names.variables_hint(step.variable)
            )
        if component.negated:
            hint = "it forbids events between two steps; Flink's notNext is SEQ(A a, ANY n, B b) with n: strict"
            raise names.source.mistake(f"{variable} is a negative component, not a step", step.span, hint)
        if step.repeats and not component.kleene:
            raise names.source.mistake(
                f"{variable} is not a repetition, so it has no further events", step.span, f"write {step.variable}: …"
            )
        firsts = [next(s for s in r if not names.components[s.component].negated).component for r in names.readings]
        if set(firsts) == {component.position} and not step.repeats:
            raise names.source.mistake(f"no event comes before {variable}, the first component", step.span)
        found = BoundStep(component.position, Edge.TAKE if step.repeats else Edge.BEGIN, step.contiguity)
        if any((found.component, found.edge) == (other.component, other.edge) for other in bound):
            raise names.source.mistake("a step can be named only once", step.span)
        bound.append(found)
    return tuple(bound)


# ── OUTPUT ─────────────────────────────────────────────────────────────────────────────────────────


def bind_output(output: syntax.Output | None, names: Names) -> BoundOutput:
    if output is None:
        return BoundOutput(OutputForm.ALL)
    if output.form is OutputForm.COMPRESSED and any(c.nested is not None for c in names.components):
        raise names.source.mistake(
            "OUTPUT COMPRESSED needs a pattern without negated sequences", output.span, "AGG COUNT counts the matches"
        )
    if output.form is OutputForm.COMPRESSED and overlapping(names.readings, names.components):
        raise names.source.mistake(
            "OUTPUT COMPRESSED cannot have alternatives that may bind the same events to the same variables",
            output.span,
            "give the alternatives variables of their own, or ask for AGG COUNT",
        )
    if output.form is OutputForm.LATEST:
        for order in names.written_orders:
            if order[-1].negated:
                raise names.source.mistake(
                    "OUTPUT LATEST needs matches that end with an event",
                    output.span,
                    "matches with a negation at the end wait for their window; use OUTPUT FIRST or NON_OVERLAPPING",
                )
    if output.form not in (OutputForm.SKIP_TO_FIRST, OutputForm.SKIP_TO_LAST):
        return BoundOutput(output.form)
    name = output.variable or ""
    if name not in names.variables:
        raise names.source.mistake(f"there is no variable {quoted(name)}", output.span, names.variables_hint(name))
    component = names.components[names.variables[name]]
    if component.negated:
        raise names.source.mistake(
            f"{quoted(component.variable)} is negated, so no match has an event of it", output.span
        )
    if any(all(step.component != component.position for step in reading) for reading in names.readings):
        raise names.source.mistake(
            f"{quoted(component.variable)} may be absent, so OUTPUT {output.form.value} cannot skip to it", output.span
        )
    return BoundOutput(output.form, component.position)


def with_furthest(query: syntax.Query, names: Names) -> Names:
    """Names with the readings of OUTPUT FURTHEST, which chooses among beginnings of the pattern. There is one reading
    that ends with each positive component, the whole pattern first.
    """
    output = query.output
    if output is None or output.form is not OutputForm.FURTHEST:
        return names
    if len(names.readings) > 1 or any(c.nested is not None for c in names.components):
        raise names.source.mistake(
            "OUTPUT FURTHEST needs a pattern without optional parts, alternatives and negated sequences",
            output.span,
            "write a query for each alternative",
        )
    reading = tuple(step for step in names.readings[0] if not names.components[step.component].across)
    ends = [place for place, step in enumerate(reading, 1) if not names.components[step.component].negated]
    if ends[-1] < len(reading):
        raise names.source.mistake(
            "OUTPUT FURTHEST needs matches that end with an event", output.span, "put the negation between components"
        )
    if len(ends) < 2:
        raise names.source.mistake("OUTPUT FURTHEST needs at least two positive components", output.span)
    if query.selection is None or query.selection.strategy is Strategy.SKIP_TILL_ANY_MATCH:
        raise names.source.mistake(
            "OUTPUT FURTHEST needs skip_till_next_match or a contiguity",
            output.span,
            f"write WHERE skip_till_next_match({', '.join(names.variables)}) {{ … }}",
        )
    if query.within is None or query.within.in_events:
        raise names.source.mistake(
            "OUTPUT FURTHEST needs a window in time: a run that is not complete is returned when its window has passed",
            output.span,
            "add WITHIN with a duration, such as WITHIN 12 hours",
        )
    beginnings = (with_forbidden(reading[:end], names.components) for end in reversed(ends))
    return replace(names, readings=tuple(beginnings))


def check_partitions(needs: Iterable[tuple[str, Span]], equivalences: Iterable[EquivalenceTest], names: Names) -> None:
    """Raise an error if a clause in `needs`, given with its place, needs a partition, and some positive component lacks
    a tested attribute.
    """
    for written, span in needs:
        for test in equivalences:
            lacking = lacking_positive(test, names.components)
            if lacking is not None:
                component, type_name = lacking
                attribute = quoted(".".join(test.path))
                variable = quoted(component.variable)
                what = f"event type {quoted(type_name)}" if type_name else "some event type"
                raise names.source.mistake(
                    f"{written} needs {attribute} in every positive component, but {what} of {variable} lacks it",
                    span,
                )


# ── RETURN ─────────────────────────────────────────────────────────────────────────────────────────


def bind_return(
    returns: syntax.Return | None,
    expressions: Expressions,
    equivalences: Sequence[EquivalenceTest],
    reserved: Iterable[str],
) -> tuple[OutputColumn, ...] | None:
    """The columns of RETURN, with unique names. `[attr]` is the value that all events of the match share."""
    if returns is None:
        return None
    columns: list[OutputColumn] = []
    taken = dict.fromkeys(reserved, "every match has a column of that name; write AS and another name")
    for number, item in enumerate(returns.items, 1):
        node = item.expression
        if isinstance(node, syntax.Equivalence) and node.value is None:
            expression = expressions.value(_key(node, expressions, equivalences))
            name = item.alias or node.names[-1]
        else:
            expression = expressions.value(node)
            name = item.alias or column_name(node, number)
        _check_array(expression, expressions.source)
        if name in taken:
            raise expressions.source.mistake(f"two columns are named {quoted(name)}", item.span, taken[name])
        taken[name] = "write AS and another name"
        columns.append(OutputColumn(name, expression))
    return tuple(columns)


def _key(key: syntax.Equivalence, expressions: Expressions, equivalences: Sequence[EquivalenceTest]) -> syntax.Expr:
    """The value of `[attr]`: from the first component whose types all have the attribute. If that component may be
    absent, from the first one that is present.
    """
    written = f"[{'.'.join(key.names)}]"
    test = next((test for test in equivalences if test.path == key.names), None)
    if test is None:
        hint = f"write {written} in WHERE too, or name an event: v.{'.'.join(key.names)}"
        raise expressions.source.mistake(f"{written} in RETURN must be a test of WHERE", key.span, hint)
    having = [c for c in expressions.names.components if not c.negated and c.position not in test.lacked_by]
    if not having:
        hint = f"name an event: v.{'.'.join(key.names)}"
        raise expressions.source.mistake(f"no component always has a value of {written}", key.span, hint)
    readings = expressions.names.readings
    always = [c for c in having if all(any(s.component == c.position for s in reading) for reading in readings)]
    first = syntax.Index(syntax.IndexKind.NUMBER, 1)
    values = tuple(
        syntax.Reference((c.variable, *key.names), first if c.kleene else None, span=key.span)
        for c in always[:1] or having
    )
    return values[0] if len(values) == 1 else syntax.Call("coalesce", values, span=key.span)


def column_name(node: syntax.Expr, number: int) -> str:
    """The name of a column without AS: the last name of a reference, or a name made from the expression."""
    if isinstance(node, syntax.Reference):
        return "len" if node.names[-1].upper() == "LEN" else node.names[-1]
    return readable_name(node) or f"column_{number}"


def every_in(expression: Bound) -> list[Attribute | Intrinsic]:
    """The references in an expression that mean all events of a Kleene component."""
    return [part for part in parts(expression) if isinstance(part, Attribute | Intrinsic) and part.at is At.EVERY]


def _check_array(expression: Bound, source: Source) -> None:
    if isinstance(expression, Attribute | Intrinsic):
        return
    for part in every_in(expression):
        raise source.mistake(
            "all events of a component with + are an array, and expressions cannot use arrays",
            part.span,
            "write an index, [1] or [LEN], or an aggregate over []",
        )


def check_default_columns(components: Iterable[Component], source: Source, reserved: Iterable[str]) -> None:
    """Check the names of columns without RETURN: each positive variable is a column, in addition to `start` and
    `end`.
    """
    reserved = set(reserved)
    for component in components:
        if not component.negated and component.variable in reserved:
            raise source.mistake(
                f"the variable {quoted(component.variable)} cannot have the name of a column that every match has",
                component.span,
                "rename it, or name the columns with RETURN",
            )


# ── THRESHOLD ──────────────────────────────────────────────────────────────────────────────────────


def bind_threshold(threshold: syntax.Threshold | None, expressions: Expressions) -> BoundThreshold | None:
    if threshold is None:
        return None
    value = constant_of(threshold.value, expressions).value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not 0 <= value <= 1:
        raise expressions.source.mistake("a threshold must be a number from 0 to 1", threshold.value.span)
    return BoundThreshold(float(value), threshold.on_probability)


FUNCTIONS_OVER_MATCHES = ("count", "sum", "avg", "min", "max")
_COUNT_AS_DECIMAL = Type(Kind.DECIMAL, precision=38, scale=0)


def implied_tests(query: syntax.Query, expressions: Expressions) -> list[syntax.Equivalence]:
    """The [attr] tests that `GROUP BY attr` implies."""
    return [
        syntax.Equivalence(item.expression.names, span=item.span)
        for item in query.group_by
        if isinstance(item.expression, Reference) and _is_bare(item.expression, expressions)
    ]


def _is_bare(reference: Reference, expressions: Expressions) -> bool:
    """Whether a reference is an attribute of all components and not of one variable. A single name in GROUP BY is never
    a variable.
    """
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
    """A column for one aggregate. Without AS, its name is made from the function and the argument in lower case."""
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
    """Binds HAVING. Names are columns of the result. Calls are aggregates, which may be missing from the result."""

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
    """A count of up to 38 digits as a float, for comparisons. It is exact up to 2^53."""
    if column.type != _COUNT_AS_DECIMAL:
        return column
    return Operation("cast", (column,), type=FLOAT, span=column.span)


def bind_having(
    having: syntax.Expr | None,
    expressions: Expressions,
    keys: tuple[GroupKey, ...],
    aggregates: tuple[AggregateColumn, ...],
) -> tuple[Bound | None, tuple[AggregateColumn, ...]]:
    """(condition, aggregates): the condition on result rows, and all aggregates, including those that only HAVING
    uses.
    """
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


Defaults = Mapping[Attribute | Intrinsic, Bound]


def check_defaults(defaults: Defaults, source: Source, *, may_miss: bool) -> None:
    """Raise an error for defaults that refer to each other in a cycle. Also for a constant in brackets if no event may
    be missing, because it was probably meant as an index.
    """
    for attribute in defaults:
        seen: set[Bound] = set()
        waiting = [attribute]
        while waiting:
            for part in parts(defaults[waiting.pop()]):
                if part == attribute:
                    raise source.mistake(
                        "the default cannot depend on itself",
                        attribute.span,
                        "make it end at the last component, which is never missing",
                    )
                if isinstance(part, Attribute | Intrinsic) and part in defaults and part not in seen:
                    seen.add(part)
                    waiting.append(part)
        if not may_miss and isinstance(defaults[attribute], Constant):
            raise source.mistake(
                "an attribute cannot be indexed; a value in brackets is for an event that THRESHOLD finds missing",
                attribute.span,
                "for a list write any(v.list, t -> t = 'x') or contains(v.list, 'x'), for a null coalesce(v.x, 0)",
            )


def check_threshold_query(
    query: syntax.Query,
    components: Sequence[Component],
    strategy: Strategy,
    window: TimeWindow | EventWindow | None,
    conjuncts: Sequence[Conjunct],
    defaults: Defaults,
    source: Source,
) -> None:
    """Raise an error for a query with THRESHOLD, unless it has skip_till_any_match, no Kleene component and a time
    window.
    """
    assert query.threshold is not None
    where = query.threshold.span
    last = components[-1]
    if last.across:
        raise source.mistake("with THRESHOLD a pattern cannot have WITHOUT", last.span, "use a negative component")
    for component in components:
        if component.kleene:
            raise source.mistake("with THRESHOLD a component cannot have +", component.span)
    if strategy is not Strategy.SKIP_TILL_ANY_MATCH:
        span = query.selection.span if query.selection else where
        raise source.mistake("with THRESHOLD the strategy must be skip_till_any_match", span)
    if not isinstance(window, TimeWindow):
        raise source.mistake(
            "THRESHOLD needs WITHIN in time", where, "add WITHIN with a duration, such as WITHIN 12 hours"
        )
    if query.output is not None and query.output.form not in (OutputForm.ALL, OutputForm.BEST):
        raise source.mistake(f"OUTPUT {query.output.form.value} cannot be used with THRESHOLD", query.output.span)
    _check_own_predicates(components, conjuncts, source)
    _check_defaults_given(components, conjuncts, defaults, source)


def _check_own_predicates(components: Sequence[Component], conjuncts: Sequence[Conjunct], source: Source) -> None:
    """Raise an error unless, for each component without a type, every disjunct of WHERE has a predicate on this
    component alone.

    This holds if some conjunct has only such predicates. Otherwise some disjunct takes another comparison from each
    conjunct.
    """
    for component in components:
        has_own = any(
            all(_demands_own(alternative, component.position) for alternative in conjunct.comparisons)
            for conjunct in conjuncts
        )
        if component.types is None and not has_own:
            name = component.variable
            raise source.mistake(
                f"{quoted(name)} needs a type or a condition of its own that every alternative contains",
                component.span,
                f"add one such as {name}.reader = 'exit'",
            )


def _demands_own(condition: Bound, position: int) -> bool:
    """Whether every disjunct of a condition has a comparison of one component alone."""
    if is_junction(condition):
        found = (_demands_own(operand, position) for operand in condition.operands)
        return any(found) if condition.operator == "and" else all(found)
    return {part.component for part in named_in([condition])} == {position}


def _check_defaults_given(
    components: Sequence[Component], conjuncts: Sequence[Conjunct], defaults: Defaults, source: Source
) -> None:
    """Raise an error if a component that may be missing is compared with another value and has no default for it."""
    last = [component for component in components if not component.negated][-1]
    needed: list[tuple[Bound, Span]] = []
    for conjunct in conjuncts:
        for comparison in comparisons_of(*conjunct.comparisons):
            named = list(named_in([comparison]))
            if len({part.component for part in named}) > 1:
                needed += [(part, part.span) for part in named]
    for default in defaults.values():
        needed += [(part, part.span) for part in named_in([default])]
    for part, span in needed:
        if not isinstance(part, Attribute | Intrinsic) or part in defaults:
            continue
        component = components[part.component]
        if component.position != last.position and not component.negated:
            name = ".".join(part.path) if isinstance(part, Attribute) else part.field.value
            raise source.mistake(
                f"{quoted(component.variable)} may be missing, so '{component.variable}.{name}' needs a default here",
                span,
                f"write it in brackets: {component.variable}.{name}[{last.variable}.{name}]",
            )
