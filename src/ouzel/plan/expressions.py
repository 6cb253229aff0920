"""Helpers for bound expressions: predicates on them, the equality conjuncts that equivalence tests mean, and
expressions as text for EXPLAIN and error messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from ouzel.bind.model import (
    BOOL,
    Aggregation,
    At,
    Attribute,
    Bound,
    BoundQuery,
    Conjunct,
    Constant,
    Edge,
    Element,
    EquivalenceTest,
    Intrinsic,
    Kind,
    Length,
    Operation,
    Presence,
    ResultColumn,
    Scope,
    parts,
    replaced,
)
from ouzel.bind.normal_form import is_junction
from ouzel.lang.syntax import Span

# An internal operator: its operand, or null if the event's type lacks an attribute in it.
IF_PRESENT = "if_present"
# How many bytes of a text a number can hold, and how many such numbers the beginning of a text may fill.
CHUNK = 8
CHUNKS_MAX = 4


def walk(expression: Bound) -> Iterator[Bound]:
    """The expression and all expressions inside it."""
    for part in parts(expression):
        yield part
        if isinstance(part, Aggregation) and part.operand is not None:
            yield from walk(part.operand)


def ranges_over_events(expression: Bound) -> bool:
    """Whether the expression has a value for each event of a Kleene component, and not one for each match."""
    return any(isinstance(part, Attribute | Intrinsic) and part.at is At.EVERY for part in parts(expression))


def names_an_index(expression: Bound) -> bool:
    """Whether the expression selects one event of a Kleene component."""
    return any(isinstance(part, Attribute | Intrinsic) and part.at is not At.SINGLE for part in walk(expression))


def components_of(expression: Bound) -> frozenset[int]:
    """The components whose events the expression reads."""
    return frozenset(
        part.component for part in walk(expression) if isinstance(part, Attribute | Intrinsic | Length | Aggregation)
    )


def attribute_of(query: BoundQuery, component: int, test: EquivalenceTest) -> Attribute:
    """The attribute of an equivalence test for one component."""
    lacking = test.lacked_by.get(component, frozenset())
    present = frozenset(query.types_of(component)) - lacking if lacking else None
    return Attribute(component, test.path, type=test.type, present_in=present)


def lacked_entirely(query: BoundQuery, component: int, test: EquivalenceTest) -> bool:
    """Whether no type of the component has the attribute, so that the test does not apply to its events."""
    return frozenset(query.types_of(component)) <= test.lacked_by.get(component, frozenset())


def pairwise_equalities(query: BoundQuery, test: EquivalenceTest) -> list[Conjunct]:
    """`[attr]` as equalities: one for each pair of components whose types have the attribute.

    Equalities of adjacent components are not enough, because an event that lacks the attribute would break the
    chain.
    """
    having = [c.position for c in query.components if not lacked_entirely(query, c.position, test)]
    # Each negative component is checked alone.
    pairs = [pair for pair in combinations(having, 2) if not all(query.components[p].negated for p in pair)]
    return [equal_values(query, {p: attribute_of(query, p, test) for p in pair}, test.span) for pair in pairs]


def equal_values(query: BoundQuery, values: Mapping[int, Bound], span: Span) -> Conjunct:
    """The conjunct that the values of two components are equal. They cannot both be negative."""
    left, right = sorted(values)
    equality = Operation("=", (values[left], values[right]), type=BOOL, span=span)
    negated = [position for position in (left, right) if query.components[position].negated]
    return Conjunct(
        (equality,), frozenset((left, right)), negated[0] if negated else None, right, Edge.BEGIN, span=span
    )


def not_null(query: BoundQuery, component: int, test: EquivalenceTest) -> Conjunct:
    """The conjunct that an event which fills the component has a value: a null satisfies no [attr], even if no other
    event is compared.
    """
    attribute = attribute_of(query, component, test)
    is_null = Operation("is_null", (attribute,), type=BOOL, span=test.span)
    return Conjunct(
        (Operation("not", (is_null,), type=BOOL, span=test.span),),
        frozenset((component,)),
        component if query.components[component].negated else None,
        component,
        Edge.BEGIN,
        span=test.span,
    )


def fixed_value(query: BoundQuery, component: int, test: EquivalenceTest) -> Conjunct:
    """The conjunct that `[attr = 'x']` means for one component."""
    assert test.value is not None
    equality = Operation("=", (attribute_of(query, component, test), test.value), type=BOOL, span=test.span)
    return Conjunct(
        (equality,),
        frozenset((component,)),
        component if query.components[component].negated else None,
        component,
        Edge.BEGIN,
        span=test.span,
    )


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
    """A conjunct on one event of a component, rewritten for events of the component at another index."""
    comparisons = (replaced(one, lambda reference: replace(reference, at=at)) for one in conjunct.comparisons)
    return replace(conjunct, comparisons=tuple(comparisons))


def render(query: BoundQuery, expression: Bound) -> str:
    """An expression as a user would write it. Casts that the binder has added are not shown."""
    return rendered(expression, lambda leaf: _leaf(query, leaf))


def rendered(expression: Bound, leaf: Callable[[Bound], str | None]) -> str:
    """An expression as text. `leaf` returns the text of references, and of any other part that it handles."""
    found = leaf(expression)
    if found is not None:
        return found
    if isinstance(expression, Constant):
        return _constant(expression)
    if isinstance(expression, Element):
        return ".".join((expression.name, *expression.path))
    if isinstance(expression, Operation) and expression.operator == "any":
        return _any_element(expression, leaf)
    if isinstance(expression, Operation):
        return _operation(expression, leaf)
    raise AssertionError(f"{type(expression).__name__} is not an expression")


def _leaf(query: BoundQuery, expression: Bound) -> str | None:
    match expression:
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
            if expression.function == "count_distinct":
                return f"count(DISTINCT {over})"
            return f"{expression.function}({over})"
        case ResultColumn():
            return expression.name
    return None


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


def _any_element(operation: Operation, leaf: Callable[[Bound], str | None]) -> str:
    listed, condition = operation.operands
    element = next((part for part in parts(condition) if isinstance(part, Element)), None)
    if element is not None and not element.name and isinstance(condition, Operation):
        return f"{rendered(condition.operands[1], leaf)} IN {rendered(listed, leaf)}"
    name = "t" if element is None else element.name
    return f"any({rendered(listed, leaf)}, {name} -> {rendered(condition, leaf)})"


def _operation(operation: Operation, leaf: Callable[[Bound], str | None]) -> str:
    operator = operation.operator
    parts = [rendered(operand, leaf) for operand in operation.operands]
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
            return f"{rendered(inner.operands[0], leaf)} IS NOT NULL"
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


def like_prefix(pattern: str, escape: str) -> str | None:
    """What all texts that match a LIKE pattern begin with; None if the pattern says anything else about them.

    >>> like_prefix("50!%%", "!"), like_prefix("a_%", "!"), like_prefix("a", "!")
    ('50%', None, None)
    """
    found, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            found.append(next(characters, escape))
        elif character == "%":
            return "".join(found) if all(rest == "%" for rest in characters) else None
        elif character == "_":
            return None
        else:
            found.append(character)
    return None
