"""The plan of a row pattern: its automaton, and which conditions are vectors and which are searched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ouzel.bind.model import BOOL, Aggregation, Attribute, Bound, EventField, Intrinsic, Operation, parts
from ouzel.bind.normal_form import with_not_pushed_in
from ouzel.bind.row_patterns import BoundRowPattern, Row, Rows
from ouzel.engines.rows.automaton import Automaton, build_automaton, build_tables
from ouzel.engines.rows.tables import Tables


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How a row pattern is answered.

    `near` has the conditions that read rows at fixed distances: they are computed for all rows at once. `searched` has
    those that read the match.
    """

    query: BoundRowPattern
    automaton: Automaton
    tables: Tables
    near: Mapping[int, Bound]
    searched: Mapping[int, tuple[Bound, ...]]

    @property
    def is_searched(self) -> bool:
        """Whether matches are searched row by row, because it depends on the match which rows it may take."""
        return bool(self.searched) or self.query.window is not None


def plan_row_pattern(query: BoundRowPattern) -> RowPlan:
    """The plan of a bound row pattern."""
    automaton = build_automaton(query.pattern, query.variables, query.text)
    near: dict[int, Bound] = {}
    searched: dict[int, tuple[Bound, ...]] = {}
    for variable, condition in query.conditions.items():
        conjuncts = _conjuncts(with_not_pushed_in(condition))
        plain = [one for one in conjuncts if not _reads_match(one, query.rows)]
        others = tuple(one for one in conjuncts if _reads_match(one, query.rows))
        if plain:
            near[variable] = plain[0] if len(plain) == 1 else Operation("and", tuple(plain), type=BOOL)
        if others:
            searched[variable] = others
    return RowPlan(query, automaton, build_tables(automaton, len(query.variables)), near, searched)


def _conjuncts(condition: Bound) -> list[Bound]:
    if isinstance(condition, Operation) and condition.operator == "and":
        return [part for operand in condition.operands for part in _conjuncts(operand)]
    return [condition]


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
