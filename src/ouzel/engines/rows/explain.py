"""Row patterns in EXPLAIN: the automaton, conditions computed for all rows at once, and conditions on the match."""

from __future__ import annotations

from ouzel.bind.model import Bound
from ouzel.engines.rows.plan import RowPlan
from ouzel.engines.rows.tables import ACCEPT
from ouzel.plan.diagram import Arrow, Automaton, State
from ouzel.plan.explain import Explanation, OperatorLine


def explain(plan: RowPlan) -> Explanation:
    """Describe the plan of a row pattern."""
    query = plan.query
    lines = [OperatorLine("partition", (", ".join(column.name for column in query.partition) or "all rows",))]
    if query.order:
        lines.append(OperatorLine("order", tuple(_text(plan, sort.expression) for sort in query.order)))
    near = [f"{query.variables[number]} if {_text(plan, one)}" for number, one in plan.near.items()]
    if near:
        lines.append(OperatorLine("conditions of rows, for all rows at once", tuple(near)))
    searched = [
        f"{query.variables[number]} if {_text(plan, one)}" for number, own in plan.searched.items() for one in own
    ]
    if query.window is not None:
        searched.append(f"every variable: within {query.window:,} of the first row")
    if searched:
        lines.append(OperatorLine("conditions on the match, for each way that is tried", tuple(searched)))
    lines.append(OperatorLine("after a match", (f"skip {query.skip.value.lower()}",)))
    columns = [*query.partition, *query.measures]
    lines.append(OperatorLine("rows", (query.output.value.lower(), ", ".join(column.name for column in columns))))
    if plan.is_searched:
        kernel, because = "search", "conditions read the match: ways are tried in order of preference, and taken back"
    else:
        kernel = "walk"
        because = "conditions read rows at fixed distances: one pass backwards and one forwards take nothing back"
    return Explanation(
        name=query.name,
        engine=plan.engine,
        text=query.text.strip(),
        automaton=_automaton(plan),
        operators=tuple(lines),
        notes=(),
        kernel=kernel,
        because=because,
    )


def _text(plan: RowPlan, expression: Bound) -> str:
    """A condition as it is written."""
    spans = [part.span for part in (expression, *getattr(expression, "operands", ())) if part.span.end]
    if not spans:
        return "its condition"
    return plan.query.text[min(span.start for span in spans) : max(span.end for span in spans)]


def _automaton(plan: RowPlan) -> Automaton:
    """A state for each position, with arrows to what may come next, in order of preference."""
    automaton, variables = plan.automaton, plan.query.variables
    count = automaton.positions
    names = [variables[number] for number in automaton.variable]
    states = [State("start"), *map(State, names), State("F", final=True)]
    arrows = []
    for source, following in [(0, automaton.follow[-1]), *((p + 1, automaton.follow[p]) for p in range(count))]:
        for place, position in enumerate(following, 1):
            target = count + 1 if position == ACCEPT else position + 1
            label = "" if position == ACCEPT else names[position]
            kind = "take" if source == target else "begin"
            arrows.append(Arrow(kind, source, target, f"{place}. {label}".rstrip(". ") if label else f"{place}. end"))
    return Automaton(tuple(states), tuple(arrows))
