"""What EXPLAIN assumes while the types of attributes are not known. A run knows them, and may plan otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ouzel.bind.mistakes import listed
from ouzel.bind.model import Attribute, Bound, BoundQuery, Conjunct, Kind, Operation
from ouzel.plan.expressions import walk
from ouzel.plan.model import Plan
from ouzel.plan.render import render, render_conjunct


def assumptions(plan: Plan) -> str:
    """What the choice of keys and counters takes for granted, in one line; nothing where types decide nothing."""
    query = plan.query
    between = [
        conjunct
        for conjunct in (*plan.construction, *plan.selection)
        if len(conjunct.components) > 1 and any(_has_unknown(one) for one in conjunct.comparisons)
    ]
    equalities = [conjunct for conjunct in between if _is_equality(conjunct)]
    found: dict[str, None] = {}
    # Events can be told apart by what all of them have.
    if {c.position for c in query.positives} <= {c for conjunct in equalities for c in conjunct.components}:
        shown = " AND ".join(render_conjunct(query, conjunct) for conjunct in equalities)
        found[f"{shown} makes no key"] = None
    if query.aggregates:
        others = [conjunct for conjunct in between if not _is_equality(conjunct)]
        found |= {f"{render_conjunct(query, conjunct)} compares numbers": None for conjunct in others}
    for column in query.aggregates:
        if column.argument is not None and column.function != "count" and _has_unknown(column.argument):
            taken = "no text" if column.function in ("min", "max") else "a float"
            found[f"{render(query, column.argument)} is {taken}"] = None
    if not found:
        return ""
    return f"without types= it is assumed that {', that '.join(found)}; a run knows the types and may plan otherwise"


def attributes_read(query: BoundQuery) -> dict[str, tuple[tuple[str, ...], ...]]:
    """The attributes that conditions read of each event type, where they read the same ones of another type, too. Who
    tests for null knows of nulls, so IS NULL and functions for nulls do not count."""
    found: dict[str, dict[tuple[str, ...], None]] = {}
    for conjunct in query.conjuncts:
        for comparison in conjunct.comparisons:
            for attribute in _compared(comparison):
                for name in query.components[attribute.component].types or ():
                    found.setdefault(name, {})[attribute.path] = None
    for test in query.equivalences:
        for component in query.components:
            for name in component.types or ():
                found.setdefault(name, {})[test.path] = None
    readers = Counter(path for paths in found.values() for path in paths)
    return {
        name: shared
        for name, paths in sorted(found.items())
        if (shared := tuple(sorted(path for path in paths if readers[path] > 1)))
    }


def _compared(expression: Bound) -> Iterator[Attribute]:
    if isinstance(expression, Attribute):
        yield expression
    elif isinstance(expression, Operation) and expression.operator not in _OF_NULLS:
        for operand in expression.operands:
            yield from _compared(operand)


_OF_NULLS = ("is_null", "coalesce", "nullif", "if", "case")


def attributes_taken(query: BoundQuery) -> str:
    """Which types are taken to have which attributes, in one line; nothing where no two types share a condition."""
    read = attributes_read(query)
    if not read:
        return ""
    if query.catalog.declared is None:
        having: dict[tuple[tuple[str, ...], ...], list[str]] = {}
        for name, paths in read.items():
            having.setdefault(paths, []).append(name)
        said = [
            f"{listed(names, 'and')} {'have' if len(names) > 1 else 'has'} {listed(map('.'.join, paths), 'and')}"
            for paths, names in having.items()
        ]
        return (
            f"no types= are declared, so it is taken that {', that '.join(said)}, with null where an event has no value"
        )
    said = []
    for name, paths in read.items():
        known = query.catalog.attributes(name) or {}
        lacking = [".".join(path) for path in paths if path[0] not in known]
        own = [".".join(path) for path in paths if path[0] in known]
        parts = [f"has {listed(own, 'and')}"] if own else []
        parts += [f"lacks {listed(lacking, 'and')}, so that comparisons on it are true"] if lacking else []
        said.append(f"{name} {' and '.join(parts)}")
    return f"by the declared types, {'; '.join(said)}"


def _has_unknown(expression: Bound) -> bool:
    return any(isinstance(part, Attribute) and part.type.kind is Kind.UNKNOWN for part in walk(expression))


def _is_equality(conjunct: Conjunct) -> bool:
    return all(isinstance(one, Operation) and one.operator == "=" for one in conjunct.comparisons)
