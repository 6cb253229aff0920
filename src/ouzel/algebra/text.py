"""Expressions as text, for files and for tables of queries. Each operator is one clause.

A clause applies to everything before it. In `NEXT Stock b`, the alias renames every attribute `x` of the stream to
`b.x`.
"""

from __future__ import annotations

import json
from typing import Any

from ouzel.algebra.streams import (
    UNARY,
    Alias,
    Base,
    Extend,
    Fold,
    Iteration,
    Next,
    Placed,
    Project,
    Rename,
    Select,
    Stream,
    Union,
    checked,
    checked_stream,
    decode,
    parsed,
    stream,
)
from ouzel.errors import InputError, QueryError
from ouzel.lang import format_expression, format_stream, parse_stream
from ouzel.lang.stream_syntax import Operation, Pipeline, Source, name_of, reference_to
from ouzel.lang.syntax import DEPTH_MAX, Expr, Item


def to_text(expression: Stream) -> str:
    """The expression as text, with one clause on each line. Conditions are formatted as in queries.

    >>> quotes = stream("Stock").alias("a").next(stream("Stock").alias("b"), "b.name = a.name AND DUR <= 10")
    >>> print(to_text(quotes.select("b.price > a.price")))
    STREAM  Stock a
    NEXT    Stock b ON b.name = a.name AND DUR <= 10
    WHERE   b.price > a.price
    """
    return format_stream(_syntax(checked_stream(expression, "to_text")))


def from_text(text: str) -> Stream:
    """The expression from the text of `to_text`, or from the JSON that earlier versions wrote.

    >>> from_text("STREAM Stock WHERE price > 3 PROJECT name")
    Stock.select('price > 3').project(['name'])
    """
    if isinstance(text, str) and text.lstrip().startswith("{"):
        return _from_json(text)
    made, _ = _composed(parse_stream(text), text)
    return checked(made)


# ── Syntax tree to expression ──────────────────────────────────────────────────────────────────────


def _composed(pipeline: Pipeline, text: str) -> tuple[Stream, int]:
    """(expression, depth) of a syntax tree."""
    source, depth = pipeline.source, 1
    if isinstance(source, Source):
        type_ = None if source.type is None else Placed.of(source.type, text, source.span)
        made: Stream = Base(type_, source.columns or None, source.start)
    else:
        made, depth = _composed(source, text)
    if pipeline.alias is not None:
        made, depth = Alias(made, pipeline.alias), depth + 1
    for operation in pipeline.operations:
        other: Stream | None = None
        if operation.operand is not None:
            other, below = _composed(operation.operand, text)
            depth = max(depth, below)
        depth += 1
        if depth > DEPTH_MAX:
            message = f"nested too deep: more than {DEPTH_MAX} operators"
            raise QueryError(message, text=text, start=operation.span.start, end=operation.span.end)
        made = _applied(operation, made, other, text)
    return made, depth


def _applied(operation: Operation, made: Stream, other: Stream | None, text: str) -> Stream:
    def said(expression: Expr) -> str:
        return Placed.of(format_expression(expression), text, expression.span, expression)

    def named(item: Item) -> str:
        return Placed.of(name_of(item.expression), text, item.expression.span)

    values = tuple((item.alias or "", said(item.expression)) for item in operation.items if item.alias is not None)
    theta = None if operation.condition is None else said(operation.condition)
    match operation.keyword:
        case "WHERE":
            assert theta is not None
            return Select(made, theta)
        case "PROJECT":
            return Project(made, tuple(map(named, operation.items)))
        case "RENAME":
            return Rename(made, tuple((named(item), item.alias or "") for item in operation.items))
        case "EXTEND":
            return Extend(made, values)
    assert other is not None
    match operation.keyword:
        case "UNION":
            return Union(made, other)
        case "NEXT":
            return Next(made, other, theta)
    step: Stream = Iteration()
    for one in operation.step:
        step = _applied(one, step, None, text)
    return Fold(made, other, theta, step, values)


# ── Expression to syntax tree ──────────────────────────────────────────────────────────────────────


def _syntax(expression: Stream) -> Pipeline:
    operations: list[Operation] = []
    below: Any = expression
    alias = None
    while not isinstance(below, Base | Alias):
        operations.append(_operation(below))
        below = below.input if isinstance(below, UNARY) else below.left
    if isinstance(below, Alias):
        below, alias = below.input, below.name
    if isinstance(below, Base):
        source: Source | Pipeline = Source(below.type, below.columns or (), below.start)
    else:
        source = _syntax(below)
    return Pipeline(source, alias, tuple(reversed(operations)))


def _operation(expression: Stream) -> Operation:
    match expression:
        case Select(condition=condition):
            return Operation("WHERE", condition=parsed(condition))
        case Project(names=names):
            return Operation("PROJECT", tuple(Item(reference_to(name)) for name in names))
        case Rename(names=names):
            return Operation("RENAME", tuple(Item(reference_to(old), new) for old, new in names))
        case Extend(values=values):
            return Operation("EXTEND", _items(values))
        case Union(right=right):
            return Operation("UNION", operand=_syntax(right))
        case Next(right=right, theta=theta):
            return Operation("NEXT", condition=None if theta is None else parsed(theta), operand=_syntax(right))
        case Fold(right=right, theta=theta, step=step, first=first):
            on = None if theta is None else parsed(theta)
            return Operation("FOLD", _items(first), on, _syntax(right), tuple(_step(step)))
    raise AssertionError(f"{type(expression).__name__} is not an operator")


def _items(values: tuple[tuple[str, str], ...]) -> tuple[Item, ...]:
    return tuple(Item(parsed(text), name) for name, text in values)


def _step(step: Stream) -> list[Operation]:
    if isinstance(step, Iteration):
        return []
    assert isinstance(step, UNARY)
    return [*_step(step.input), _operation(step)]


# ── The JSON of earlier versions ───────────────────────────────────────────────────────────────────


def _from_json(text: str) -> Stream:
    """The expression from JSON, which is checked because anyone may have written it."""
    try:
        return checked_stream(_again(decode(json.loads(text))), "from_text")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"this text is not the JSON of an expression of the algebra: {error}") from None


def _again(node: Stream) -> Stream:
    """A decoded expression, composed again with the public methods, which check it."""
    match node:
        case Select(input=below, condition=condition):
            return _again(below).select(condition)
        case Project(input=below, names=names):
            return _again(below).project(map(str, names))
        case Rename(input=below, names=pairs):
            return _again(below).rename({str(old): str(new) for old, new in pairs})
        case Alias(input=below, name=name):
            return _again(below).alias(name)
        case Extend(input=below, values=values):
            return _again(below).extend(**dict(values))
        case Union(left=left, right=right):
            return _again(left).union(_again(right))
        case Next(left=left, right=right, theta=theta):
            return _again(left).next(_again(right), theta)
        case Fold(left=left, right=right, theta=theta, step=each, first=first):
            return _again(left).fold(_again(right), theta, _again(each), dict(first))
        case Base(type=type_, columns=columns, start=start):
            given = [value for value in (type_, start) if value is not None]
            if not all(isinstance(value, str) for value in given):
                raise TypeError("the event type and start= must be text")
            return stream(type_, start=start, **dict(columns or ()))
        case Iteration():
            return node
    raise TypeError(f"a {type(node).__name__} is not a stream")
