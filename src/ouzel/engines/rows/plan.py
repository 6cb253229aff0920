"""The engine for row patterns. A plan has the automaton, and says which conditions are searched."""

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
from ouzel.engines.rows.tables import Tables
from ouzel.lang import row_syntax
from ouzel.plan.model import Plan, Statistics

if TYPE_CHECKING:
    from ouzel.loss import LossModel
    from ouzel.plan.explain import Explanation
    from ouzel.runtime.layout import Layout
    from ouzel.runtime.limits import Limits
    from ouzel.runtime.operator import QueryOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan(Plan):
    """How a row pattern is answered.

    `near` has the conditions that read rows at fixed distances: they are computed for all rows at once. `searched` has
    those that read the match.
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
        """Whether matches are searched row by row, because it depends on the match which rows it may take."""
        return bool(self.searched) or self.query.window is not None

    @property
    def rows_before(self) -> int:
        """The number of rows that must be held before the first one whose match is not decided."""
        starts_differ = self.automaton.follow[-1] != self.automaton.follow[-2]
        return max(self.query.shifts[0], int(starts_differ))

    @property
    def rows_after(self) -> int:
        """The number of rows behind a row that must be there before the row is known."""
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
    """The conditions that a condition joins by AND."""
    if isinstance(condition, Operation) and condition.operator == "and":
        return [part for operand in condition.operands for part in conjuncts(operand)]
    return [] if condition is None else [condition]


def _reads_match(expression: Bound, rows: tuple[Row | Rows, ...]) -> bool:
    """Whether a condition needs the match so far. It does not if it reads only rows at a fixed distance from the tested
    row."""
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
    """Refuse what a stream cannot decide, or what would hold its rows without end."""
    mistake = Source(query.text).mistake
    first = query.order[0] if query.order else None
    expression = first.expression if first is not None else None
    is_time = isinstance(expression, Attribute) and expression.path == (query.time,)
    if first is None or first.descending or not is_time:
        where = query.pattern.span if expression is None else expression.span
        raise mistake(
            f"over a stream the first column of ORDER BY must be the time column {quoted(query.time or '')}, ascending",
            where,
            f"write ORDER BY {query.time}, or name another column with time=",
        )
    for node in nodes(query.pattern):
        if isinstance(node, row_syntax.Anchor) and node.at_end:
            raise mistake("$ cannot be used over a stream: more rows may always come", node.span)
    for expression in (*query.conditions.values(), *(measure.expression for measure in query.measures)):
        for part in parts(expression):
            if isinstance(part, Aggregation) and part.function == MATCH_NUMBER:
                raise mistake(
                    "MATCH_NUMBER cannot be used over a stream: it would hold a number for every partition for ever",
                    part.span,
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
        from ouzel.engines.rows.explain import explain

        return explain(plan)

    def operator(self, plan: RowPlan, layout: Layout, limits: Limits) -> QueryOperator:
        from ouzel.engines.rows.operator import RowOperator

        return RowOperator(plan, layout, limits)


ENGINE = _Rows()
