"""Aggregates in EXPLAIN: the counters, what they count, and when rows are emitted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ouzel.engines.aggregate.plan import AggregatePlan
from ouzel.engines.aggregate.sharing import CounterTree, SharedPlan, plan_sharing, refusal
from ouzel.engines.aggregate.tables import Way
from ouzel.engines.aggregate.tree_tables import Part, SegmentPart
from ouzel.plan.diagram import label_of, window_of
from ouzel.plan.explain import Explanation, OperatorLine, explained, explanation, negation_lines, role_lines
from ouzel.plan.model import Statistics
from ouzel.plan.render import render, render_conjunct

NAMES = {
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


def explain(plan: AggregatePlan) -> Explanation:
    """Describe counters, instead of stacks and runs; or how matches are built and then aggregated."""
    if plan.way is None:
        found = explanation(plan.matching)
        kernel, because = f"{found.kernel}, and adding up", f"matches are built: {plan.reason}"
        lines = list(found.operators[:-1])
    else:
        kernel, because = NAMES[plan.way], plan.reason
        lines = [OperatorLine("roles", tuple(role_lines(plan))), OperatorLine("counters", counting_lines(plan))]
        if plan.negatives:
            lines.append(OperatorLine("negation", tuple(negation_lines(plan)[: len(plan.negatives)])))
    return explained(plan, kernel, because, [*lines, OperatorLine("aggregation", aggregation_lines(plan))])


def counting_lines(plan: AggregatePlan) -> tuple[str, ...]:
    """How the counters process events."""
    assert plan.way is not None
    lines = [f"count the prefixes of {', '.join(label_of(c) for c in plan.positives)}; no match is built"]
    if plan.key:
        lines.append(f"by {', '.join(part.label for part in plan.key)}")
    if plan.split is not None:
        lines.append(f"and by the group of each {label_of(plan.query.components[plan.split])}")
    lines += [f"test {render_conjunct(plan.query, conjunct)}" for conjunct in plan.construction]
    window = window_of(plan.query)
    if window is not None:
        lines.append(f"within {window}, counted from the first event")
    elif plan.key or plan.split is not None:
        lines.append("without WITHIN no key expires: there are counts for every key seen (max_buffered_events)")
    lines.append(_COSTS[plan.way])
    return tuple(lines)


def aggregation_lines(plan: AggregatePlan) -> tuple[str, ...]:
    """What is emitted, and when."""
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


def sharing_lines(plans: Mapping[str, AggregatePlan], statistics: Statistics | None, off: Collection[str]) -> list[str]:
    """What is counted together, and why the other queries are not."""
    shared = plan_sharing(plans, statistics, off=off)
    lines = []
    for one in shared:
        lines += _tree_lines(one, one.tree)
    together = {name for one in shared for name in one.names}
    for name, plan in plans.items():
        if name not in together:
            lines.append(f"{name} is answered alone: {refusal(plan) or 'it has too little in common with the others'}")
    return lines


def _tree_lines(shared: SharedPlan, tree: CounterTree) -> list[str]:
    def named(symbols: Sequence[int]) -> str:
        return ", ".join(shared.stage.query.components[symbol].variable for symbol in symbols)

    span = f"within {tree.window.written or tree.window.ticks}" if tree.window else "since the start"
    keys = f", by {', '.join(part.label for part in shared.stage.key)}" if shared.stage.key else ""
    expiry = ", rows on expiry too" if tree.on_change else ""
    lines = [f"{_listed(tree.names)} share counters{keys}, {span}{expiry}"]
    for prefix, members in _common_prefixes(tree):
        lines.append(f"  ({named(prefix)}) is counted once for {_listed(members)}")
    for number, segment in enumerate(tree.segments):
        users = {
            tree.names[query]: None
            for (query, _), pattern in zip(tree.columns, tree.patterns, strict=True)
            if SegmentPart(number) in pattern
        }
        lines.append(f"  ({named(segment)}) is counted once and connected by snapshots for {_listed(list(users))}")
    lines.append(f"  {tree.shared_updates / tree.alone_updates:.0%} of the counter updates without sharing")
    return lines


def _common_prefixes(tree: CounterTree) -> list[tuple[list[int], list[str]]]:
    """The longest prefixes that several queries share."""
    found: dict[tuple[Part, ...], list[str]] = {}
    for (query, _), pattern in zip(tree.columns, tree.patterns, strict=True):
        for length in range(1, len(pattern) + 1):
            members = found.setdefault(pattern[:length], [])
            if tree.names[query] not in members:
                members.append(tree.names[query])
    shown = []
    for prefix, members in found.items():
        longer = any(
            len(other) == len(prefix) + 1 and other[:-1] == prefix and names == members
            for other, names in found.items()
        )
        if len(members) > 1 and not longer:
            shown.append(([part for part in prefix if isinstance(part, int)], members))
    return shown


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
