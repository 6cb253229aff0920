"""The engine for row patterns. The plan has the automaton, and says which conditions must be tested during the
search.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ouzel.bind.diagnostics import Source, quoted
from ouzel.bind.expressions import nodes
from ouzel.bind.model import BOOL, Aggregation, Attribute, Bound, EventField, Intrinsic, Operation, parts
from ouzel.bind.normal_form import with_not_pushed_in
from ouzel.bind.row_patterns import MATCH_NUMBER, BoundRowPattern, Row, Rows
from ouzel.engines import Engine
from ouzel.engines.rows.automaton import Automaton, build_automaton, build_tables
from ouzel.engines.rows.tables import ACCEPT, Tables
from ouzel.lang import row_syntax
from ouzel.plan import diagram
from ouzel.plan.diagram import Arrow, State
from ouzel.plan.explain import Explanation, OperatorLine
from ouzel.plan.expressions import rendered
from ouzel.plan.model import Plan, Statistics

if TYPE_CHECKING:
    from ouzel.loss import LossModel
    from ouzel.runtime.layout import Layout
    from ouzel.runtime.limits import Limits
    from ouzel.runtime.operator import QueryOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan(Plan):
    """The plan of a row pattern.

    The conditions in `near` read only rows at fixed distances, and are evaluated for all rows at once. Those in
    `searched` read the match.
    """

    engine: ClassVar[str] = "rows"

    query: BoundRowPattern  # type: ignore[assignment]
    # The pattern of the query in other forms.
    automaton: Automaton = field(compare=False)
    tables: Tables = field(compare=False)
    near: Mapping[int, Bound]
    searched: Mapping[int, tuple[Bound, ...]]

    @property
    def is_searched(self) -> bool:
        """Whether matches must be found by backtracking, because some condition reads the match."""
        return bool(self.searched) or self.query.window is not None

    @property
    def rows_before(self) -> int:
        """The number of rows that must be held before the first undecided row."""
        starts_differ = self.automaton.follow[-1] != self.automaton.follow[-2]
        return max(self.query.shifts[0], int(starts_differ))

    @property
    def rows_after(self) -> int:
        """The number of rows that must follow a row before its conditions can be evaluated."""
        return self.query.shifts[1]


def plan_row_pattern(query: BoundRowPattern) -> RowPlan:
    """The plan of a bound row pattern."""
    automaton = build_automaton(query.pattern, query.variables, query.text)
    near: dict[int, Bound] = {}
    searched: dict[int, tuple[Bound, ...]] = {}
    for variable, condition in query.conditions.items():
        tests = conjuncts(with_not_pushed_in(condition))
        plain = [one for one in tests if not _reads_match(one, query.rows)]
        others = tuple(one for one in tests if _reads_match(one, query.rows))
        if plain:
            near[variable] = plain[0] if len(plain) == 1 else Operation("and", tuple(plain), type=BOOL)
        if others:
            searched[variable] = others
    tables = build_tables(automaton, len(query.variables))
    return RowPlan(query=query, roles={}, automaton=automaton, tables=tables, near=near, searched=searched)


def conjuncts(condition: Bound | None) -> list[Bound]:
    """The parts of a condition that are joined by AND."""
    if isinstance(condition, Operation) and condition.operator == "and":
        return [part for operand in condition.operands for part in conjuncts(operand)]
    return [] if condition is None else [condition]


def _reads_match(expression: Bound, rows: tuple[Row | Rows, ...]) -> bool:
    """Whether a condition reads the match so far. It does not if it reads only rows at fixed distances from the tested
    row.
    """
    for part in parts(expression):
        if isinstance(part, Aggregation):
            return True
        if isinstance(part, Attribute | Intrinsic):
            row = rows[part.component]
            labelled = isinstance(part, Intrinsic) and part.field is EventField.TYPE
            if labelled or not isinstance(row, Row) or not row.is_near:
                return True
    return False


def check_stream(query: BoundRowPattern) -> None:
    """Raise an error for a pattern that a stream can never decide, or for which it would hold rows forever."""
    mistake = Source(query.text).mistake
    if not query.is_by_time:
        where = query.order[0].expression.span if query.order else query.pattern.span
        raise mistake(
            f"over a stream the first column of ORDER BY must be the time column {quoted(query.time or '')}, ascending",
            where,
            f"write ORDER BY {query.time}, or name another column with time=",
        )
    for node in nodes(query.pattern):
        if isinstance(node, row_syntax.Anchor) and node.at_end:
            raise mistake(
                "$ cannot be used over a stream: more rows may always come",
                node.span,
                "leave out $; WITHIN limits how long a match may take",
            )
    for expression in (*query.conditions.values(), *(measure.expression for measure in query.measures)):
        for part in parts(expression):
            if isinstance(part, Aggregation) and part.function == MATCH_NUMBER:
                raise mistake(
                    "MATCH_NUMBER cannot be used over a stream: it would hold a number for every partition for ever",
                    part.span,
                    f"tell matches of a partition apart by FIRST({query.time})",
                )
    if query.output is row_syntax.Rows.WITH_UNMATCHED:
        raise mistake(
            "WITH UNMATCHED ROWS cannot be used over a stream", query.pattern.span, "write SHOW EMPTY MATCHES or none"
        )
    if query.window is None and build_automaton(query.pattern, query.variables, query.text).longest is None:
        raise mistake(
            "over a stream this pattern needs WITHIN: a match may have any number of rows, and all would be held",
            query.pattern.span,
            "write WITHIN after PATTERN (…), as in WITHIN 1 hour",
        )


# ── EXPLAIN ────────────────────────────────────────────────────────────────────────────────────────

# Counts are written out, so a pattern may have thousands of positions.
POSITIONS_SHOWN = 30


def _explanation(plan: RowPlan) -> Explanation:
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
    because = (
        "conditions read the match: ways are tried in order of preference, and taken back if they end"
        if plan.is_searched
        else "conditions read rows at fixed distances: one pass backwards marks the rows from which the pattern can be "
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
        kernel="search",
        because=because,
    )


def written(query: BoundRowPattern, expression: Bound) -> str:
    """An expression as a user would write it, in one line. Conditions are rendered, because binding pushes NOT into
    them. References, navigations and aggregates are copied from the text.
    """

    def leaf(part: Bound) -> str | None:
        is_navigation = isinstance(part, Operation) and part.operator == "case" and _is_there(part.operands[0])
        if isinstance(part, Attribute | Intrinsic | Aggregation) or is_navigation:
            return " ".join(query.text[part.span.start : part.span.end].split())
        return None

    return rendered(expression, leaf)


def _is_there(condition: Bound) -> bool:
    """Whether a condition only says that the row of a navigation exists."""
    return any(isinstance(part, Intrinsic) and part.field is EventField.END for part in parts(condition))


def _skipping(plan: RowPlan) -> str:
    query = plan.query
    names = " or ".join(query.variables[number] for number in sorted(query.skip_to))
    return f"skip {query.skip.value.lower()} {names}".rstrip()


def _automaton(plan: RowPlan) -> diagram.Automaton:
    """The diagram of an automaton: a state for each position, with arrows to the positions that may come next. Arrows
    are numbered in order of preference.
    """
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
    return diagram.Automaton(tuple(states), tuple(arrows))


class _Rows(Engine):
    def applies(self, query: object) -> bool:
        return isinstance(query, BoundRowPattern)

    def plan(
        self, query: BoundRowPattern, statistics: Statistics, off: Collection[str], model: LossModel | None
    ) -> RowPlan:
        return plan_row_pattern(query)

    def check_stream(self, query: BoundRowPattern, off: Collection[str]) -> None:
        check_stream(query)

    def explain(self, plan: RowPlan) -> Explanation:
        return _explanation(plan)

    def operator(self, plan: RowPlan, layout: Layout, limits: Limits) -> QueryOperator:
        from ouzel.engines.rows.operator import RowOperator

        return RowOperator(plan, layout, limits)


ENGINE = _Rows()
