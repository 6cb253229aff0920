"""Column pruning: the columns of the input that a plan reads."""

from __future__ import annotations

from collections.abc import Iterable

from ouzel.bind.model import Attribute, Bound, BoundQuery, EventField, Intrinsic
from ouzel.lang.syntax import OutputForm
from ouzel.plan.expressions import walk
from ouzel.plan.model import Plan
from ouzel.runtime.layout import Layout


def columns_read(query: BoundQuery, layout: Layout, expressions: Iterable[Bound]) -> set[str]:
    """The columns that expressions read; the type column if an answer depends on the event's type."""
    found: set[str] = set()
    for expression in expressions:
        for part in walk(expression):
            if isinstance(part, Attribute):
                types = query.components[part.component].types or ("",)
                columns = {layout.column(event_type, part.path[0]) for event_type in types}
                found |= columns
                if layout.type is not None and (part.present_in is not None or len(columns) > 1):
                    found.add(layout.type)
            elif isinstance(part, Intrinsic) and part.field is EventField.TYPE and layout.type is not None:
                found.add(layout.type)
            elif isinstance(part, Intrinsic) and part.field is EventField.START and layout.start is not None:
                found.add(layout.start)
    return found


def output_columns(plan: Plan, layout: Layout) -> set[str]:
    """The columns that must be kept for the output and for predicates that are tested on complete matches."""
    query = plan.query
    if query.aggregates:
        named = [column.argument for column in query.aggregates if column.argument is not None]
        named += [key.expression for key in query.group_by if key.expression is not None]
        return columns_read(query, layout, named)
    if query.returns is None:
        return set(layout.schema.names)
    expressions = [column.expression for column in query.returns]
    # Lowering decides later which of these stay residual; the rest are few.
    expressions += [c for conjunct in (*plan.construction, *plan.selection) for c in conjunct.comparisons]
    if query.threshold is not None:
        # Defaults replace missing values, and loss rates may depend on which alternative of WHERE holds.
        expressions += query.defaults.values()
        expressions += [comparison for conjunct in query.conjuncts for comparison in conjunct.comparisons]
    found = columns_read(query, layout, expressions)
    if query.output.form is OutputForm.COMPRESSED:
        # A graph keeps whole events; matches are built from it later.
        found |= {layout.time, *(name for name in (layout.type, layout.start) if name is not None)}
        found |= {test.path[0] for test in query.equivalences} & set(layout.schema.names)
    return found


def needed_columns(plan: Plan, layout: Layout) -> set[str]:
    """Every column that the plan reads, anywhere."""
    conjuncts = [c for group in (*plan.roles.values(), *plan.forbidding.values()) for c in group]
    conjuncts += plan.query.conjuncts
    expressions = [comparison for conjunct in conjuncts for comparison in conjunct.comparisons]
    expressions += [expression for part in plan.key for expression in part.expressions.values()]
    expressions += plan.query.defaults.values()
    fixed = {layout.time, *layout.order, *([layout.type] if layout.type is not None else [])}
    return fixed | columns_read(plan.query, layout, expressions) | output_columns(plan, layout)
