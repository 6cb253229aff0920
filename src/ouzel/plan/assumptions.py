"""What EXPLAIN assumes while the types of attributes are not known. A run knows them, and may plan otherwise."""

from __future__ import annotations

from ouzel.bind.model import Attribute, Bound, Conjunct, Kind, Operation
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


def _has_unknown(expression: Bound) -> bool:
    return any(isinstance(part, Attribute) and part.type.kind is Kind.UNKNOWN for part in walk(expression))


def _is_equality(conjunct: Conjunct) -> bool:
    return all(isinstance(one, Operation) and one.operator == "=" for one in conjunct.comparisons)
