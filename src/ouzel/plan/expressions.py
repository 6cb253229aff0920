"""Predicates and helpers for bound expressions, and the equality conjuncts that equivalence tests mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from ouzel.bind.model import (
    BOOL,
    Aggregation,
    At,
    Attribute,
    Bound,
    BoundQuery,
    Conjunct,
    Edge,
    EquivalenceTest,
    Intrinsic,
    Length,
    Operation,
    parts,
)
from ouzel.lang.syntax import Span

# An internal operator: its operand, or null if the event's type lacks an attribute in it.
IF_PRESENT = "if_present"


def walk(expression: Bound) -> Iterator[Bound]:
    """The expression and everything in it."""
    for part in parts(expression):
        yield part
        if isinstance(part, Aggregation) and part.operand is not None:
            yield from walk(part.operand)


def ranges_over_events(expression: Bound) -> bool:
    """Whether the expression has one value per event of a component with +, instead of one per match."""
    return any(isinstance(part, Attribute | Intrinsic) and part.at is At.EVERY for part in parts(expression))


def names_an_index(expression: Bound) -> bool:
    """Whether the expression selects an event of a component with +."""
    return any(isinstance(part, Attribute | Intrinsic) and part.at is not At.SINGLE for part in walk(expression))


def components_of(expression: Bound) -> frozenset[int]:
    """The components whose events the expression reads."""
    return frozenset(
        part.component for part in walk(expression) if isinstance(part, Attribute | Intrinsic | Length | Aggregation)
    )


def attribute_of(query: BoundQuery, component: int, test: EquivalenceTest) -> Attribute:
    """The attribute of an equivalence test, read from one component."""
    types = query.components[component].types
    lacking = test.lacked_by.get(component, frozenset())
    present = None if types is None or not lacking else frozenset(types) - lacking
    return Attribute(component, test.path, type=test.type, present_in=present)


def lacked_entirely(query: BoundQuery, component: int, test: EquivalenceTest) -> bool:
    """No type of the component has the attribute, so the test does not apply to its events."""
    types = query.components[component].types
    return types is not None and frozenset(types) <= test.lacked_by.get(component, frozenset())


def pairwise_equalities(query: BoundQuery, test: EquivalenceTest) -> list[Conjunct]:
    """`[attr]` as equalities: one for each two components whose types have the attribute.

    Equalities of neighbours would do if every type had the attribute; an event that lacks it breaks the chain.
    """
    having = [c.position for c in query.components if not lacked_entirely(query, c.position, test)]
    # Each negative component is checked alone.
    pairs = [pair for pair in combinations(having, 2) if not all(query.components[p].negated for p in pair)]
    return [equal_values(query, {p: attribute_of(query, p, test) for p in pair}, test.span) for pair in pairs]


def equal_values(query: BoundQuery, values: Mapping[int, Bound], span: Span) -> Conjunct:
    """The equality of the values of two components, not both of them negative."""
    left, right = sorted(values)
    equality = Operation("=", (values[left], values[right]), type=BOOL, span=span)
    negated = [position for position in (left, right) if query.components[position].negated]
    return Conjunct(
        (equality,), frozenset((left, right)), negated[0] if negated else None, right, Edge.BEGIN, span=span
    )


def not_null(query: BoundQuery, component: int, test: EquivalenceTest) -> Conjunct:
    """A null satisfies no [attr], even alone: the condition on every event that fills the component."""
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
    """`[attr = 'x']` for one component."""
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
