"""Aggregates in EXPLAIN: which counters, what they count, and what is told when."""

from __future__ import annotations

from ouzel.kernels.counters_tables import Way
from ouzel.plan.aggregate import AggregatePlan
from ouzel.plan.automaton import label_of, window_of
from ouzel.plan.render import render, render_conjunct

_NAMES = {
    Way.UNBOUNDED: "counters, without a window",
    Way.INVERSE: "counters, by inverse matrices",
    Way.STACKS: "counters, by two stacks of products",
    Way.PER_START: "counters, a row for each first event",
    Way.GRAPH: "counters, along the edges between events",
}
_COSTS = {
    Way.UNBOUNDED: "a step for each event",
    Way.INVERSE: "as many steps for each event as the pattern is long",
    Way.STACKS: "as many steps for each event, on average, as the pattern is long",
    Way.PER_START: "as many steps for each event as its key has first events in the window",
    Way.GRAPH: "for each completing event as many steps as its key has pairs of neighbours in the window, at worst",
}


def counting_kernel(plan: AggregatePlan, inner_kernel: str | None) -> tuple[str, str]:
    """The kernel that answers an aggregate, and why. `inner_kernel` builds the matches, where they are built."""
    if plan.way is None:
        return f"{inner_kernel}, and adding up", f"matches are built: {plan.reason}"
    return _NAMES[plan.way], plan.reason


def counting_lines(plan: AggregatePlan) -> tuple[str, ...]:
    """What the counters do with events."""
    assert plan.way is not None
    lines = [f"count the prefixes of {', '.join(label_of(c) for c in plan.positives)}; no match is built"]
    if plan.key:
        lines.append(f"by {', '.join(part.label for part in plan.key)}")
    if plan.split is not None:
        lines.append(f"and by the group that each {label_of(plan.query.components[plan.split])} is of")
    lines += [f"test {render_conjunct(plan.query, conjunct)}" for conjunct in plan.construction]
    window = window_of(plan.query)
    if window is not None:
        lines.append(f"within {window}, counted from the first event")
    elif plan.key or plan.split is not None:
        lines.append("without WITHIN no key expires: there are counts for every key seen (max_buffered_events)")
    lines.append(_COSTS[plan.way])
    return tuple(lines)


def aggregation_lines(plan: AggregatePlan) -> tuple[str, ...]:
    """What is told, and when."""
    query = plan.query
    shown = []
    for column in query.aggregates:
        argument = "" if column.argument is None else f"({render(query, column.argument)})"
        hidden = ", for HAVING only" if column.hidden else ""
        shown.append(f"{column.function.upper()}{argument} AS {column.name}{hidden}")
    groups = [key.name for key in query.group_by]
    where = f"for each {', '.join(groups)}" if groups else "one total"
    if not groups and plan.key:
        where += " over all keys"
    when = "whenever a match completes" + (" or leaves the window" if query.emit_on_change else "")
    lines = [*shown, f"{where}, {when}"]
    if query.having is not None:
        lines.append(f"having {render(query, query.having)}")
    return tuple(lines)
