"""The measures of overlapping matches (AFTER MATCH SKIP TO NEXT ROW with ONE ROW PER MATCH). They are computed for all
starts at once, not match by match.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ouzel.bind.model import Aggregation, Attribute, Bound, EventField, Intrinsic, Kind, parts
from ouzel.bind.row_patterns import MATCH_NUMBER, Row, Rows
from ouzel.engines.rows.frames import RowFrame, SortedRows, picked, ranks_of
from ouzel.engines.rows.plan import RowPlan
from ouzel.engines.rows.tables import Matches, Suffix
from ouzel.engines.rows.views import every_start
from ouzel.lang import row_syntax
from ouzel.runtime.expressions import evaluate
from ouzel.runtime.values import Column, arrow, as_integers, join, valids

# Sums below this are exact as integers and as doubles.
_EXACT_SUM_MAX = 2**53
# Each smaller offset takes room too.
_OFFSET_MAX = 8
_EXTREMES = {"min": Suffix.LEAST, "max": Suffix.GREATEST}
_Key = tuple[object, ...]


class _Unsupported(Exception):
    """Raised for a measure that can only be computed match by match."""


@dataclass(slots=True)
class _Quantities:
    """The quantities that the kernel computes for each match."""

    plan: RowPlan
    rows: SortedRows
    kinds: list[Suffix] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    members: list[np.ndarray] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)
    valid: list[np.ndarray] = field(default_factory=list)
    numbers: dict[_Key, int] = field(default_factory=dict)
    operands: dict[Bound, Column] = field(default_factory=dict)

    def add_row(self, row: Row) -> None:
        """Add the row that a variable means, without a shift such as PREV."""
        key = (row.variables, row.first, row.offset)
        if row.offset > _OFFSET_MAX:
            raise _Unsupported
        if key in self.numbers:
            return
        # The row with an offset from the first one is found from those with smaller offsets.
        for offset in range(row.offset + 1) if row.first else [row.offset]:
            self._add(Suffix.FIRST if row.first else Suffix.LAST, offset, row.variables, -1)
        self.numbers[key] = len(self.kinds) - 1

    def add_total(self, expression: Aggregation) -> None:
        """Add an aggregate. Raises _Unsupported if its value depends on the order of additions."""
        rows = self.plan.query.rows[expression.component]
        assert isinstance(rows, Rows)
        operand = expression.operand
        if operand is None:
            kind, column = Suffix.COUNT, -1
        else:
            kind, column = self._kind(expression, operand)
        key = (expression.function, rows.variables, operand)
        if key not in self.numbers:
            self._add(kind, 0, rows.variables, column)
            self.numbers[key] = len(self.kinds) - 1

    def _kind(self, expression: Aggregation, operand: Bound) -> tuple[Suffix, int]:
        if any(isinstance(part, Intrinsic) for part in parts(operand)):
            raise _Unsupported
        frame = RowFrame(self.rows.count, self.rows, lambda component: None)
        column = evaluate(operand, frame)
        self.operands[operand] = column
        if pa.types.is_null(column.type):
            raise _Unsupported
        if expression.function == "count":
            return Suffix.COUNT, self._column(np.zeros(len(column), np.int64), valids(column))
        if expression.function in _EXTREMES:
            return _EXTREMES[expression.function], self._column(ranks_of(column), valids(column))
        if operand.type.kind is not Kind.INT or expression.function not in ("sum", "avg"):
            raise _Unsupported
        values, valid = as_integers(column)
        if np.abs(values.astype(np.float64)).sum() >= _EXACT_SUM_MAX:
            raise _Unsupported
        return Suffix.SUM, self._column(values, valid)

    def _column(self, values: np.ndarray, valid: np.ndarray) -> int:
        self.values.append(values)
        self.valid.append(valid)
        return len(self.values) - 1

    def _add(self, kind: Suffix, offset: int, variables: frozenset[int] | None, column: int) -> None:
        owner = self.plan.tables.variable
        member = np.ones(len(owner), bool) if variables is None else np.isin(owner, list(variables))
        self.kinds.append(kind)
        self.offsets.append(offset)
        self.members.append(member)
        self.columns.append(column)


@dataclass(slots=True)
class SuffixView:
    """What MEASURES reads of the matches: rows and aggregates, one entry for each match."""

    plan: RowPlan
    rows: SortedRows
    quantities: _Quantities
    matches: Matches
    found: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        return self.matches.start

    def rows_of(self, row: Row) -> np.ndarray:
        """For each match, the table row that a navigation means; -1 if there is none."""
        found: np.ndarray = self.found[self.quantities.numbers[row.variables, row.first, row.offset], :, 0]
        if not row.shift:
            return found
        moved = found + row.shift
        low, high = (self.rows.bounds[self.matches.partition + end] for end in (0, 1))
        return np.where((found < 0) | (moved < low) | (moved >= high), -1, moved)

    def labels(self, row: Row) -> Column:
        raise AssertionError("labels need the rows of each match")

    def total(self, expression: Aggregation) -> Column:
        """An aggregate over all rows of each match."""
        if expression.function == MATCH_NUMBER:
            return arrow(self.matches.number)
        rows = self.plan.query.rows[expression.component]
        number = self.quantities.numbers[expression.function, rows.variables, expression.operand]
        value, count = (np.ascontiguousarray(self.found[number, :, part]) for part in (0, 1))
        if expression.function == "count":
            return arrow(value)
        if expression.function in _EXTREMES:
            assert expression.operand is not None
            return picked(self.quantities.operands[expression.operand], value)
        if expression.function == "avg":
            return join(value / np.maximum(count, 1), count > 0, pa.float64())
        return join(value, count > 0, pa.int64())


def suffix_view(plan: RowPlan, rows: SortedRows, can: np.ndarray) -> SuffixView | None:
    """The measures of all matches, computed for all starts at once; None if matches cannot overlap or a measure does
    not allow it.
    """
    query = plan.query
    is_overlapping = query.skip is row_syntax.Skip.TO_NEXT_ROW and query.output is row_syntax.Rows.ONE
    if not is_overlapping or plan.is_searched:
        return None
    quantities = _Quantities(plan, rows)
    try:
        for measure in query.measures:
            for part in parts(measure.expression):
                if isinstance(part, Aggregation) and part.function != MATCH_NUMBER:
                    quantities.add_total(part)
                elif isinstance(part, Attribute | Intrinsic):
                    if isinstance(part, Intrinsic) and part.field is EventField.TYPE:
                        raise _Unsupported
                    row = query.rows[part.component]
                    assert isinstance(row, Row)
                    quantities.add_row(row)
    except _Unsupported:
        return None
    count, positions = len(quantities.kinds), plan.automaton.positions
    partition, start, length, number = np.zeros((4, rows.count), np.int64)
    matches = Matches(partition, start, length, number, np.zeros(0, np.int32))
    found = np.empty((count, rows.count, 2), np.int64)
    none = np.zeros((0, rows.count))
    written = every_start(
        can,
        rows.bounds,
        plan.tables,
        np.array(quantities.kinds, np.int32),
        np.array(quantities.offsets, np.int64),
        np.array(quantities.members, bool).reshape(count, positions),
        np.array(quantities.columns, np.int32),
        np.array(quantities.values, np.int64) if quantities.values else none.astype(np.int64),
        np.array(quantities.valid, bool) if quantities.valid else none.astype(bool),
        np.empty((2, count + 1, 2 * positions + 2), np.int64),
        matches,
        found,
    )
    # They were found from the last row to the first.
    partition, start, length = (array[:written][::-1].copy() for array in (partition, start, length))
    first = np.searchsorted(partition, np.arange(len(rows.bounds) - 1))
    number = np.arange(written) - first[partition] + 1
    matches = Matches(partition, start, length, number, matches.positions)
    return SuffixView(plan, rows, quantities, matches, found[:, :written][:, ::-1])
