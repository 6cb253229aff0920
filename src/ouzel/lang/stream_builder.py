"""From the rules of the grammar of the algebra to the syntax tree; expressions are built as those of queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ouzel.lang.builder import Builder, nodes_of, refusal, span_of, values_of
from ouzel.lang.lexer import Token, shorten
from ouzel.lang.stream_syntax import Operation, Pipeline, Source, name_of
from ouzel.lang.syntax import Expr, Item, Reference


class StreamBuilder(Builder):
    def stream(self, children: list[Any]) -> Pipeline:
        whole: Pipeline = children[1]
        return replace(whole, span=span_of(children))

    def pipeline(self, children: list[Any]) -> Pipeline:
        first: Pipeline = children[0]
        operations = children[1:]
        return replace(first, operations=(*first.operations, *operations), span=span_of(children))

    def operand(self, children: list[Any]) -> Pipeline:
        found: Pipeline = children[0]
        return found

    def base(self, children: list[Any]) -> Pipeline:
        type_, *rest = children
        columns = next((child for child in rest if isinstance(child, tuple)), ())
        start = next(nodes_of(rest, Reference), None)
        alias = next(values_of(rest, "NAME"), None)
        name = None if type_.type == "ANY" else type_.value
        source = Source(name, columns, None if start is None else name_of(start), span=span_of([type_]))
        return Pipeline(source, alias, span=source.span)

    def columns(self, children: list[Any]) -> tuple[tuple[str, str], ...]:
        found: dict[str, str] = {}
        for child in children:
            if isinstance(child, Token):
                continue
            name, kind = child
            if name.value in found:
                raise refusal(f"two columns are named {shorten(name.value)}", span_of([name]))
            found[name.value] = kind.value
        return tuple(found.items())

    def column(self, children: list[Token]) -> list[Token]:
        return children

    def group(self, children: list[Any]) -> Pipeline:
        inner: Pipeline = children[1]
        alias = next(values_of(children, "NAME"), None)
        made = inner if alias is None else Pipeline(inner, alias)
        return replace(made, span=span_of(children))

    # ── Clauses ────────────────────────────────────────────────────────────────────────────────────

    def where(self, children: list[Any]) -> Operation:
        return Operation("WHERE", condition=children[1], span=span_of(children))

    def project(self, children: list[Any]) -> Operation:
        return Operation("PROJECT", tuple(Item(path) for path in nodes_of(children, Reference)), span=span_of(children))

    def rename(self, children: list[Any]) -> Operation:
        _check_apart([name_of(item.expression) for item in nodes_of(children, Item)], children, "is renamed twice")
        return Operation("RENAME", tuple(nodes_of(children, Item)), span=span_of(children))

    def extend(self, children: list[Any]) -> Operation:
        return Operation("EXTEND", _values(children), span=span_of(children))

    def value(self, children: list[Any]) -> Item:
        expression, _, name = children
        return Item(expression, name_of(name), span=span_of(children))

    renaming = value

    def path(self, children: list[Token]) -> Reference:
        return Reference(tuple(values_of(children, "NAME")), span=span_of(children))

    def union(self, children: list[Any]) -> Operation:
        return Operation("UNION", operand=children[1], span=span_of(children))

    def next(self, children: list[Any]) -> Operation:
        return Operation("NEXT", condition=_on(children), operand=children[1], span=span_of(children))

    def on(self, children: list[Any]) -> Operation:
        return Operation("ON", condition=children[1], span=span_of(children))

    def first(self, children: list[Any]) -> Operation:
        return Operation("FIRST", _values(children), span=span_of(children))

    def fold(self, children: list[Any]) -> Operation:
        clauses = list(nodes_of(children, Operation))
        first = next((clause.items for clause in clauses if clause.keyword == "FIRST"), ())
        step = tuple(clause for clause in clauses if clause.keyword not in ("ON", "FIRST"))
        kept = next(nodes_of(children, Expr), None)
        if kept is not None:
            step = (Operation("WHERE", condition=kept, span=kept.span),)
        return Operation("FOLD", first, _on(children), children[1], step, span=span_of(children))


def _on(children: list[Any]) -> Expr | None:
    return next((clause.condition for clause in nodes_of(children, Operation) if clause.keyword == "ON"), None)


def _values(children: list[Any]) -> tuple[Item, ...]:
    items = tuple(nodes_of(children, Item))
    _check_apart([item.alias or "" for item in items], children, "is given twice")
    return items


def _check_apart(names: Sequence[str], children: list[Any], what: str) -> None:
    for name, item in zip(names, nodes_of(children, Item), strict=True):
        if names.count(name) > 1:
            raise refusal(f"{shorten(name)} {what}", item.span)
