"""Bound expressions as text, for EXPLAIN and error messages."""

from __future__ import annotations

from dataclasses import replace

from ouzel.bind.model import (
    Aggregation,
    At,
    Attribute,
    Bound,
    BoundQuery,
    Conjunct,
    Constant,
    Intrinsic,
    Kind,
    Length,
    Operation,
    Presence,
    ResultColumn,
    Scope,
    replaced,
)
from ouzel.bind.normal_form import is_junction

_INDEX = {
    At.SINGLE: "",
    At.FIRST: "[1]",
    At.CURRENT: "[i]",
    At.PREVIOUS: "[i-1]",
    At.LAST: "[LEN]",
    At.EVERY: "",
}
_INFIX = {"=", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%"}


def render_conjunct(query: BoundQuery, conjunct: Conjunct) -> str:
    """A conjunct as it would be written."""
    alternatives = conjunct.comparisons
    if len(alternatives) == 1:
        return render(query, alternatives[0])
    shown = ((render(query, one), is_junction(one)) for one in alternatives)
    return " OR ".join(f"({text})" if joined else text for text, joined in shown)


def said_of(conjunct: Conjunct, at: At) -> Conjunct:
    """A conjunct on one event of a component, rewritten for its events at another index."""
    comparisons = (replaced(one, lambda reference: replace(reference, at=at)) for one in conjunct.comparisons)
    return replace(conjunct, comparisons=tuple(comparisons))


def render(query: BoundQuery, expression: Bound) -> str:
    """An expression as a user would write it; casts that the binder added are not shown."""
    match expression:
        case Constant():
            return _constant(expression)
        case Attribute():
            return f"{_event(query, expression.component, expression.at)}.{'.'.join(expression.path)}"
        case Intrinsic():
            field = "time" if expression.field.value == "end" else expression.field.value
            return f"{_event(query, expression.component, expression.at)}.{field}"
        case Length():
            return f"{query.components[expression.component].variable}.LEN"
        case Presence():
            return f"{query.components[expression.component].variable} IS PRESENT"
        case Aggregation():
            over = query.components[expression.component].variable
            over += "[..i-1]" if expression.scope is Scope.BEFORE else "[]"
            if isinstance(expression.operand, Attribute):
                over += "." + ".".join(expression.operand.path)
            return f"{expression.function}({over})"
        case ResultColumn():
            return expression.name
        case Operation():
            return _operation(query, expression)
    raise AssertionError(f"{type(expression).__name__} is not an expression")


def _event(query: BoundQuery, component: int, at: At) -> str:
    return query.components[component].variable + _INDEX[at]


def _constant(constant: Constant) -> str:
    value = constant.value
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if constant.type.kind is Kind.STRING:
        return "'" + str(value).replace("'", "''") + "'"
    if constant.type.kind is Kind.BINARY:
        assert isinstance(value, bytes)
        return f"X'{value.hex()}'"
    return str(value)


def _operation(query: BoundQuery, operation: Operation) -> str:
    operator = operation.operator
    parts = [render(query, operand) for operand in operation.operands]
    wrapped = [
        f"({part})" if isinstance(operand, Operation) and operand.operator in _INFIX | {"and", "or"} else part
        for part, operand in zip(parts, operation.operands, strict=True)
    ]
    if operator in _INFIX:
        return f"{wrapped[0]} {operator} {wrapped[1]}"
    if operator in ("and", "or"):
        return f" {operator.upper()} ".join(wrapped)
    if operator == "not":
        inner = operation.operands[0]
        if isinstance(inner, Operation) and inner.operator == "is_null":
            return f"{render(query, inner.operands[0])} IS NOT NULL"
        return f"NOT {wrapped[0]}"
    if operator == "negate":
        return f"-{wrapped[0]}"
    if operator == "is_null":
        return f"{wrapped[0]} IS NULL"
    if operator == "in":
        return f"{wrapped[0]} IN ({', '.join(parts[1:])})"
    if operator == "like":
        return f"{wrapped[0]} LIKE {parts[1]}"
    if operator in ("cast", "saturate"):
        return parts[0]
    if operator == "case":
        whens = [f"WHEN {parts[i]} THEN {parts[i + 1]}" for i in range(0, len(parts) - 1, 2)]
        return f"CASE {' '.join(whens)} ELSE {parts[-1]} END"
    return f"{operator}({', '.join(parts)})"
