"""Binds WHERE: equivalence tests, and conjuncts with the edges on which they are tested (docs/semantics.md, "Event
selection").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ouzel.bind.diagnostics import listed, quoted
from ouzel.bind.expressions import Expressions, nodes
from ouzel.bind.model import (
    BOOL,
    UNKNOWN,
    Aggregation,
    At,
    Attribute,
    Bound,
    Component,
    Conjunct,
    Constant,
    Edge,
    EquivalenceTest,
    Intrinsic,
    Length,
    Operation,
    Scope,
    Type,
    parts,
    replaced,
)
from ouzel.bind.names import Names
from ouzel.bind.normal_form import conjunctive_form
from ouzel.bind.typing import common_type
from ouzel.lang import syntax
from ouzel.lang.syntax import NOWHERE, Span

Named = Attribute | Intrinsic | Length | Aggregation

# As many as the components of a pattern: plans hold one expression for each component and test.
EQUIVALENCES_MAX = 64

_ORDER_OF_EDGES = (Edge.BEGIN, Edge.TAKE, Edge.PROCEED)
_EDGE_OF_EVENT = {
    At.SINGLE: Edge.BEGIN,
    At.FIRST: Edge.BEGIN,
    At.CURRENT: Edge.TAKE,
    At.PREVIOUS: Edge.TAKE,
    At.LAST: Edge.PROCEED,
}


def split_where(where: syntax.Expr | None) -> tuple[list[syntax.Equivalence], list[syntax.Expr]]:
    """(equivalence tests, other conditions) that AND joins in a WHERE clause."""
    tests: list[syntax.Equivalence] = []
    rest: list[syntax.Expr] = []
    stack = [] if where is None else [where]
    while stack:
        node = stack.pop()
        if isinstance(node, syntax.Logical) and node.operator == "AND":
            stack.extend(reversed(node.operands))
        elif isinstance(node, syntax.Equivalence):
            tests.append(node)
        else:
            rest.append(node)
    return tests, rest


# ── Conjuncts ──────────────────────────────────────────────────────────────────────────────────────


def bind_conjuncts(rest: Sequence[syntax.Expr], expressions: Expressions) -> tuple[Conjunct, ...]:
    """The conjuncts of WHERE except the [attr] tests, each with the place where it is tested."""
    if not rest:
        return ()
    conditions = tuple(expressions.condition(part) for part in rest)
    span = Span(min(part.span.start for part in rest), max(part.span.end for part in rest))
    whole = Operation("and", conditions, type=BOOL, span=span) if len(conditions) > 1 else conditions[0]
    conjuncts = [
        _conjunct(indexed, expressions.names)
        for comparisons in conjunctive_form(whole, expressions.source)
        for indexed in _with_unindexed_made_two(comparisons, expressions.names)
    ]
    return tuple(dict.fromkeys(conjuncts))


def named_in(comparisons: Sequence[Bound]) -> Iterator[Named]:
    for comparison in comparisons:
        for part in parts(comparison):
            if isinstance(part, Attribute | Intrinsic | Length | Aggregation):
                yield part


def _is_iterated(part: Named) -> bool:
    """Whether a reference is v[i], v[i-1] or v[..i-1]."""
    if isinstance(part, Attribute | Intrinsic):
        return part.at in (At.CURRENT, At.PREVIOUS)
    return isinstance(part, Aggregation) and part.scope is Scope.BEFORE


def _with_unindexed_made_two(comparisons: Sequence[Bound], names: Names) -> Iterator[tuple[Bound, ...]]:
    """The conjuncts that a conjunct with v.attr means: one with v[1] and one with v[i]."""
    named = list(named_in(comparisons))
    every = [part for part in named if isinstance(part, Attribute | Intrinsic) and part.at is At.EVERY]
    if not every:
        yield tuple(comparisons)
        return
    variables = [names.components[part.component].variable for part in every]
    if len(set(variables)) > 1:
        both = listed(dict.fromkeys(quoted(variable) for variable in variables), "and")
        raise names.source.mistake(
            f"{both} cannot each be several events in one condition",
            every[1].span,
            f"an index chooses one event: {variables[1]}[1] is the first, {variables[1]}[LEN] the last",
        )
    iterated = next((part for part in named if _is_iterated(part)), None)
    if iterated is not None:
        raise names.source.mistake(
            f"{quoted(variables[0])} without an index cannot be in one condition with [i]",
            every[0].span,
            f"write {variables[0]}[1], {variables[0]}[i] or {variables[0]}[LEN]",
        )
    for at in (At.FIRST, At.CURRENT):
        yield tuple(_with_every_at(comparison, at) for comparison in comparisons)


def _with_every_at(expression: Bound, at: At) -> Bound:
    return replaced(expression, lambda named: replace(named, at=at) if named.at is At.EVERY else named)


def _identifier(part: Named) -> tuple[int, int]:
    """(component, edge) where the event or number that a reference names is known."""
    if isinstance(part, Attribute | Intrinsic):
        edge = _EDGE_OF_EVENT[part.at]
    elif isinstance(part, Aggregation) and part.scope is Scope.BEFORE:
        edge = Edge.TAKE
    else:
        edge = Edge.PROCEED
    return part.component, _ORDER_OF_EDGES.index(edge)


def _conjunct(comparisons: tuple[Bound, ...], names: Names) -> Conjunct:
    named = list(named_in(comparisons))
    span = Span(min(c.span.start for c in comparisons), max(c.span.end for c in comparisons))
    iterated = {part.component: part for part in named if _is_iterated(part)}
    if len(iterated) > 1:
        both = listed((quoted(names.components[position].variable) for position in sorted(iterated)), "and")
        raise names.source.mistake(f"a condition may index one variable by i, not {both}", span)
    negatives = sorted({part.component for part in named if names.components[part.component].negated})
    # The components of a negated SEQ are one negation.
    if len({names.components[position].nested for position in negatives}) > 1 or (
        len(negatives) > 1 and names.components[negatives[0]].nested is None
    ):
        both = listed((quoted(names.components[position].variable) for position in negatives), "and")
        raise names.source.mistake(
            f"a condition may name one negated component, not {both}", span, "each negation is checked alone"
        )
    return placed(comparisons, names.components, span)


def placed(comparisons: tuple[Bound, ...], components: Sequence[Component], span: Span = NOWHERE) -> Conjunct:
    """A conjunct with the place where it is tested."""
    named = list(named_in(comparisons))
    found = frozenset(part.component for part in named)
    negative = next((position for position in sorted(found) if components[position].negated), None)
    if negative is not None:
        return Conjunct(comparisons, found, negative, negative, Edge.BEGIN, span=span)
    first_positive = next(component.position for component in components if not component.negated)
    tested_at, edge = max((_identifier(part) for part in named), default=(first_positive, 0))
    return Conjunct(comparisons, found, None, tested_at, _ORDER_OF_EDGES[edge], span=span)


# ── Equivalence tests ──────────────────────────────────────────────────────────────────────────────


def bind_equivalences(tests: Sequence[syntax.Equivalence], expressions: Expressions) -> tuple[EquivalenceTest, ...]:
    """The [attr] tests without duplicates. A test with a value replaces the same test without a value."""
    bound: dict[tuple[tuple[str, ...], Constant | None], EquivalenceTest] = {}
    for test in tests:
        found = _equivalence(test, expressions)
        bound.setdefault((found.path, found.value), found)
        if len(bound) > EQUIVALENCES_MAX:
            raise expressions.source.mistake(
                f"a query may have {EQUIVALENCES_MAX} equivalence tests at most, those of GROUP BY included",
                test.span,
                "combine columns into one first",
            )
    valued = {path for path, value in bound if value is not None}
    return tuple(test for (path, value), test in bound.items() if value is not None or path not in valued)


def _equivalence(test: syntax.Equivalence, expressions: Expressions) -> EquivalenceTest:
    names, path, written = expressions.names, test.names, ".".join(test.names)
    kind: Type | None = None
    lacked_by: dict[int, frozenset[str]] = {}
    positive_has_it = False
    for component in names.components:
        found = names.found(component, path, test.span)
        if found is None:
            lacked_by[component.position] = frozenset(name for name, _ in names.types_of(component))
            continue
        if found.lacking:
            lacked_by[component.position] = found.lacking
        merged = found.type if kind is None else common_type(kind, found.type)
        if merged is None:
            message = (
                f"{quoted(written)} is {found.type} in {quoted(component.variable)} but {kind} in another component"
            )
            raise names.source.mistake(message, test.span, "an equivalence test must compare values of one type")
        kind = merged
        positive_has_it = positive_has_it or not component.negated
    if kind is None or not positive_has_it:
        raise _untestable(names, path, test.span, kind is not None)
    expressions.typing.check_comparable(kind, test.span)
    if test.value is None:
        return EquivalenceTest(path, kind, None, lacked_by, span=test.span)
    kind, value = _fixed_value(test, kind, expressions)
    return EquivalenceTest(path, kind, value, lacked_by, span=test.span)


def _untestable(names: Names, path: tuple[str, ...], span: Span, only_negative: bool) -> Exception:
    if only_negative:
        return names.source.mistake(
            f"no positive component has an attribute {quoted(path[0])}",
            span,
            "the attribute of an equivalence test must be in a positive component",
        )
    if path[0] in names.variables and len(path) > 1:
        hint = f"write [{'.'.join(path[1:])}] to test it on all components"
        return names.source.mistake("an equivalence test must name an attribute without a variable", span, hint)
    return names.unknown_attribute([c for c in names.components if not c.negated], path, span)


def _fixed_value(test: syntax.Equivalence, kind: Type, expressions: Expressions) -> tuple[Type, Constant]:
    assert test.value is not None
    is_constant = not any(isinstance(node, syntax.Reference) for node in nodes(test.value))
    value = expressions.bound(test.value) if is_constant else None
    if not isinstance(value, Constant):
        hint = f"write a literal or a parameter: [{'.'.join(test.names)} = 'x']"
        raise expressions.source.mistake("the value of an equivalence test must be a constant", test.value.span, hint)
    if value.value is None:
        hint = "an event with a null never satisfies an equivalence test"
        raise expressions.source.mistake("the value of an equivalence test cannot be null", test.value.span, hint)
    attribute = Attribute(0, test.names, type=kind, span=test.span)
    constant = expressions.typing.lone(expressions.typing.unified([attribute, value], test.span, "compare")[1])
    assert isinstance(constant, Constant)
    return (UNKNOWN if kind == UNKNOWN else constant.type), constant


def lacking_positive(test: EquivalenceTest, components: Sequence[Component]) -> tuple[Component, str] | None:
    """(component, type): a positive component with a type that lacks the tested attribute. None if all have it."""
    for position, types in sorted(test.lacked_by.items()):
        if not components[position].negated and types:
            return components[position], min(types)
    return None
