"""Row patterns in EXPLAIN: the automaton, and which conditions are vectors and which are searched."""

from __future__ import annotations

from ouzel.bind.model import Aggregation, Attribute, Bound, EventField, Intrinsic, Operation, parts
from ouzel.bind.row_patterns import BoundRowPattern
from ouzel.engines.rows.plan import RowPlan, conjuncts
from ouzel.engines.rows.tables import ACCEPT
from ouzel.plan.diagram import Arrow, Automaton, State
from ouzel.plan.explain import Explanation, OperatorLine
from ouzel.plan.expressions import rendered

# Counts are written out, so a pattern may have thousands of positions.
POSITIONS_SHOWN = 30


def explain(plan: RowPlan) -> Explanation:
    """Describe the plan of a row pattern."""
    query = plan.query
    lines = [OperatorLine("partition", (", ".join(column.name for column in query.partition) or "all rows",))]
    if query.order:
        lines.append(OperatorLine("order", tuple(written(query, sort.expression) for sort in query.order)))
    vectors = [
        f"{query.variables[number]} if {written(query, one)}"
        for number, condition in plan.near.items()
        for one in conjuncts(condition)
    ]
    if vectors:
        lines.append(OperatorLine("conditions that are vectors, computed for all rows at once", tuple(vectors)))
    searched = [
        f"{query.variables[number]} if {written(query, one)}" for number, own in plan.searched.items() for one in own
    ]
    if query.window is not None:
        searched.append(f"every variable: within {query.window_written} of the first row")
    if searched:
        lines.append(OperatorLine("conditions that are searched, because they read the match", tuple(searched)))
    free = [name for number, name in enumerate(query.variables) if number not in query.conditions]
    if free:
        lines.append(OperatorLine("without a condition, every row may be", (", ".join(free),)))
    lines.append(OperatorLine("after a match", (_skipping(plan),)))
    columns = [*query.partition, *query.measures]
    lines.append(OperatorLine("rows", (query.output.value.lower(), ", ".join(column.name for column in columns))))
    if plan.is_searched:
        kernel = "search"
        because = "conditions read the match: ways are tried in order of preference, and taken back if they end"
    else:
        kernel = "walk"
        because = (
            "conditions read rows at fixed distances: one pass backwards marks the rows from which the pattern can be "
            "completed, one forwards takes the preferred ones. Nothing is taken back, so the time is linear"
        )
    hidden = plan.automaton.positions - POSITIONS_SHOWN
    return Explanation(
        name=query.name,
        engine=plan.engine,
        text=query.text.strip(),
        automaton=_automaton(plan),
        operators=tuple(lines),
        notes=(("positions", f"{hidden:,} more positions are not shown"),) if hidden > 0 else (),
        kernel=kernel,
        because=because,
    )


def written(query: BoundRowPattern, expression: Bound) -> str:
    """An expression as a user would write it, in one line. NOT is pushed into conditions, so these are rendered;
    references, navigations and aggregates are as in the text."""

    def leaf(part: Bound) -> str | None:
        is_navigation = isinstance(part, Operation) and part.operator == "case" and _is_there(part.operands[0])
        if isinstance(part, Attribute | Intrinsic | Aggregation) or is_navigation:
            return " ".join(query.text[part.span.start : part.span.end].split())
        return None

    return rendered(expression, leaf)


def _is_there(condition: Bound) -> bool:
    """Whether a condition says that the row of a navigation exists."""
    return any(isinstance(part, Intrinsic) and part.field is EventField.END for part in parts(condition))


def _skipping(plan: RowPlan) -> str:
    query = plan.query
    names = " or ".join(query.variables[number] for number in sorted(query.skip_to))
    return f"skip {query.skip.value.lower()} {names}".rstrip()


def _automaton(plan: RowPlan) -> Automaton:
    """A state for each position, with arrows to the positions that may come next. Arrows are numbered in order of
    preference."""
    automaton, variables = plan.automaton, plan.query.variables
    shown = min(automaton.positions, POSITIONS_SHOWN)
    names = [variables[number] for number in automaton.variable[:shown]]
    states = [State("start"), *map(State, names), State("F", final=True)]
    arrows = []
    for source, following in [(0, automaton.follow[-1]), *((p + 1, automaton.follow[p]) for p in range(shown))]:
        for place, position in enumerate(following, 1):
            target = shown + 1 if position == ACCEPT else position + 1
            if position < shown:
                label = f"{place}. end" if position == ACCEPT else f"{place}. {names[position]}"
                arrows.append(Arrow("take" if source == target else "begin", source, target, label))
    return Automaton(tuple(states), tuple(arrows))
