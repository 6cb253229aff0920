"""The rows of the answer: what MEASURES reads of each match, and the columns computed from that."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.literals import DECIMAL_DIGITS_MAX
from ouzel.bind.model import Aggregation, Attribute, Bound, Kind
from ouzel.bind.row_patterns import MATCH_NUMBER, Row, Rows
from ouzel.engines.rows.frames import RowFrame, SortedRows, picked, ranks_of, reads_label
from ouzel.engines.rows.overlaps import SuffixView
from ouzel.engines.rows.plan import RowPlan
from ouzel.engines.rows.tables import Entries, Matches, Total
from ouzel.engines.rows.views import running_totals, visible_rows
from ouzel.errors import LimitError
from ouzel.lang import row_syntax
from ouzel.runtime.expressions import evaluate
from ouzel.runtime.values import (
    Column,
    arrow,
    as_integers,
    from_engine,
    is_computed,
    join,
    ranks,
    split,
    to_float,
    valids,
)

OVERLAPPING_ROWS_MAX = 50_000_000


class MatchView:
    """The matches as MEASURES reads them. An *entry* is a row of a match; entries are concatenated match by match, and
    an empty match has one. The output has a row for each entry, or with ONE ROW PER MATCH only for the last entry of
    each match.
    """

    def __init__(self, plan: RowPlan, rows: SortedRows, matches: Matches) -> None:
        self._plan = plan
        self._rows = rows
        self._matches = matches
        self._variable = np.append(plan.tables.variable, -1)
        self._is_one = plan.query.output is row_syntax.Rows.ONE
        self._sizes = np.maximum(matches.length, 1)
        self.entry_at = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._sizes)])
        self.entries = int(self.entry_at[-1])
        self.positions = matches.positions
        self.empty = matches.length == 0
        if self.empty.any():
            self.positions = np.full(self.entries, -1, np.int32)
            taken = np.ones(self.entries, bool)
            taken[self.entry_at[:-1][self.empty]] = False
            self.positions[taken] = matches.positions
        self.starts = matches.start
        self._found: dict[tuple[frozenset[int] | None, bool, int, bool], np.ndarray] = {}

    @cached_property
    def place(self) -> np.ndarray:
        """The table row of each entry."""
        place: np.ndarray = np.repeat(self.starts - self.entry_at[:-1], self._sizes)
        place += np.arange(self.entries)
        return place

    @cached_property
    def _match_of_entry(self) -> np.ndarray:
        return np.repeat(np.arange(len(self._sizes)), self._sizes)

    @cached_property
    def match(self) -> np.ndarray:
        """The number of the match for each row of the output."""
        return np.arange(len(self._sizes)) if self._is_one else self._match_of_entry

    def member(self, variables: frozenset[int] | None) -> np.ndarray:
        """For each position of the automaton, whether it belongs to one of the variables."""
        chosen = np.full(len(self._plan.query.variables), variables is None)
        if variables is not None:
            chosen[list(variables)] = True
        return chosen[self._plan.tables.variable]

    def _shown(self, values: np.ndarray, per_match: bool) -> np.ndarray:
        """Values of all entries, or of the last entry of each match, reduced to the rows of the output."""
        return values[self.match] if per_match and not self._is_one else values

    def rows_of(self, row: Row) -> np.ndarray:
        """For each row of the output, the table row that a navigation such as FIRST(A.x) means; -1 if there is none."""
        per_match = row.final or self._is_one
        if row.variables is None and not row.first and not row.offset:
            found = self.starts + self._matches.length - 1 if per_match else self.place
            if self.empty.any():
                found = np.where(self.empty if per_match else self.positions < 0, -1, found)
        else:
            key = (row.variables, row.first, row.offset, per_match)
            if key not in self._found:
                found = np.empty(len(self._sizes) if per_match else self.entries, np.int64)
                visible_rows(
                    Entries(self.entry_at, self.starts, self.positions, self.member(row.variables)), row.first,
                    row.offset, per_match, np.empty(int(self._sizes.max(initial=1)), np.int64), found,
                )  # fmt: skip
                self._found[key] = found
            found = self._found[key]
        found = self._shown(found, per_match)
        if row.shift:
            bounds = self._rows.bounds
            partition = self._matches.partition[self.match]
            moved = found + row.shift
            outside = (found < 0) | (moved < bounds[partition]) | (moved >= bounds[partition + 1])
            found = np.where(outside, -1, moved)
        return found

    def labels(self, row: Row) -> Column:
        """The variable to which a row is mapped; null if the row is not in the match."""
        found = self.rows_of(row)
        at = found - self._matches.start[self.match]
        seen = self.entry_at[:-1][self.match] + at
        inside = (found >= 0) & (at >= 0) & (at < self._matches.length[self.match])
        position = np.where(inside, self.positions[np.where(inside, seen, 0)], -1)
        names = pa.array(list(self._plan.query.variables) or [""], pa.large_string())
        return picked(names, self._variable[position].astype(np.int64))

    def total(self, expression: Aggregation) -> Column:
        """An aggregate over the rows that each row of the output can see."""
        if expression.function == MATCH_NUMBER:
            return arrow(self._matches.number[self.match])
        rows = self._plan.query.rows[expression.component]
        assert isinstance(rows, Rows)
        member = self.member(rows.variables)
        entries = Entries(self.entry_at, self._matches.start, self.positions, member)
        operand, function = expression.operand, expression.function
        if operand is None:
            return arrow(self._running(entries, Total.ROWS, None, np.zeros(0, bool), rows.final)[1])
        if reads_label(operand):
            # A row may have another label in another match: the values are those of entries.
            entries = entries._replace(starts=self.entry_at[:-1].copy())
        column = self._operand(operand)
        if function == "count_distinct":
            return arrow(self._distinct(column, rows, reads_label(operand)))
        if function == "count":
            return arrow(self._running(entries, Total.VALUES, None, _valid(column), rows.final)[1])
        if pa.types.is_null(column.type):
            return pa.nulls(len(self.match), pa.float64() if function == "avg" else pa.null())
        if function in ("min", "max"):
            kind = Total.LEAST_INT if function == "min" else Total.GREATEST_INT
            return picked(column, self._running(entries, kind, ranks_of(column), _valid(column), rows.final)[0])
        return self._sum(expression, column, entries, rows.final)

    def _running(
        self, entries: Entries, kind: Total, values: np.ndarray | None, valid: np.ndarray, final: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """The result of `running_totals`, for each row of the output."""
        none: np.ndarray = np.zeros(0, np.int64)
        ints, floats = none, none.astype(np.float64)
        if values is not None and values.dtype == np.float64:
            floats = values
        elif values is not None:
            ints = values
        per_match = final or self._is_one
        totals, reals, counts = np.empty((3, len(self._sizes) if per_match else self.entries), np.int64)
        running_totals(
            entries, kind, ints, floats, np.ascontiguousarray(valid), per_match, totals, reals.view(np.float64), counts
        )
        found = reals.view(np.float64) if kind is Total.SUM_FLOAT else totals
        return self._shown(found, per_match), self._shown(counts, per_match)

    def _counted(self, column: Column, rows: Rows, of_entries: bool) -> tuple[np.ndarray, np.ndarray]:
        """(which entries an aggregate counts, where the value of each entry is in the column)."""
        places = np.arange(self.entries) if of_entries else self.place
        counted = (self.positions >= 0) & _valid(column)[places]
        counted[counted] = self.member(rows.variables)[self.positions[counted]]
        return counted, places

    def _distinct(self, column: Column, rows: Rows, of_entries: bool) -> np.ndarray:
        """For each row of the output, the number of different values in the rows that it can see."""
        counted, places = self._counted(column, rows, of_entries)
        entries = np.flatnonzero(counted)
        values = ranks(column)[places[entries]]
        order = np.lexsort((values, self._match_of_entry[entries]))
        matches, values = self._match_of_entry[entries][order], values[order]
        is_new = np.ones(len(order), bool)
        is_new[1:] = (matches[1:] != matches[:-1]) | (values[1:] != values[:-1])
        seen = np.zeros(self.entries + 1, np.int64)
        seen[entries[order][is_new] + 1] = 1
        seen = np.cumsum(seen)
        found: np.ndarray = self._last_seen(seen, rows) - seen[self.entry_at[:-1]][self.match]
        return found

    def _last_seen(self, seen: np.ndarray, rows: Rows) -> np.ndarray:
        """For each row of the output, a running count of entries at the last entry that it can see."""
        return seen[self.entry_at[1:]][self.match] if rows.final or self._is_one else seen[1:]

    def _operand(self, operand: Bound) -> Column:
        """The values that an aggregate ranges over: one for each row of the table or, if they depend on labels, for
        each entry.
        """
        if not reads_label(operand):
            return evaluate(operand, RowFrame(self._rows.count, self._rows, lambda _: None))
        names = pa.array(list(self._plan.query.variables) or [""], pa.large_string())
        own = picked(names, self._variable[self.positions].astype(np.int64))
        return evaluate(operand, RowFrame(self.entries, self._rows, lambda _: self.place, lambda _: own))

    def _sum(self, expression: Aggregation, column: Column, entries: Entries, final: bool) -> Column:
        if expression.function == "avg" or expression.type.kind is Kind.FLOAT:
            values, valid = split(to_float(column), np.float64)
            reals, counts = self._running(entries, Total.SUM_FLOAT, values, valid, final)
            if expression.function == "avg":
                reals = reals / np.maximum(counts, 1)
            return join(reals, counts > 0, pa.float64())
        values, valid = as_integers(column)
        totals, counts = self._running(entries, Total.SUM_INT, values, valid, final)
        exists = counts > 0
        if expression.type.kind is not Kind.DECIMAL:
            return join(totals, exists, pa.int64())
        exists &= np.abs(totals) < 10**DECIMAL_DIGITS_MAX
        made = pc.cast(join(totals, exists, pa.int64()), pa.decimal128(DECIMAL_DIGITS_MAX + 1, 0))
        scale = expression.type.scale
        words = np.zeros((len(totals), 2), np.int64)
        words[:, 0], words[:, 1] = totals, np.where(totals < 0, -1, 0)
        kind = pa.decimal128(DECIMAL_DIGITS_MAX, scale)
        valid_bits = pa.py_buffer(np.packbits(exists, bitorder="little"))
        return pa.Array.from_buffers(kind, len(made), [valid_bits, pa.py_buffer(words)])

    def lists(self, expression: Aggregation, written: np.ndarray) -> Column:
        """ARRAY_AGG for some rows of the output."""
        rows, operand = self._plan.query.rows[expression.component], expression.operand
        assert isinstance(rows, Rows) and operand is not None
        column = self._operand(operand)
        values = from_engine(column, operand.type)
        counted, places = self._counted(column, rows, reads_label(operand))
        flat = places[counted]
        seen = np.concatenate([np.zeros(1, np.int64), np.cumsum(counted)])
        first = seen[self.entry_at[:-1]][self.match[written]]
        last = self._last_seen(seen, rows)[written]
        sizes = last - first
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        if offsets[-1] > OVERLAPPING_ROWS_MAX:
            raise LimitError(f"the lists of ARRAY_AGG have more than {OVERLAPPING_ROWS_MAX:,} values together")
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - first, sizes)
        made = pa.ListArray.from_arrays(arrow(offsets).cast(pa.int32()), values.take(arrow(flat[within])))
        # Over no rows an aggregate other than COUNT is null.
        return pc.if_else(pa.array(sizes == 0), pa.scalar(None, made.type), made)


def _valid(column: Column) -> np.ndarray:
    """Where a column is not null."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), bool)
    found: np.ndarray = valids(column)
    return found


# ── Output ─────────────────────────────────────────────────────────────────────────────────────────


def written(plan: RowPlan, rows: SortedRows, view: MatchView | SuffixView) -> pa.Table:
    """The rows of the answer."""
    return _Output(plan, rows, view).table()


class _Output:
    def __init__(self, plan: RowPlan, rows: SortedRows, view: MatchView | SuffixView) -> None:
        self._plan = plan
        self._rows = rows
        self._view = view

    def table(self) -> pa.Table:
        query = self._plan.query
        view = self._view
        if query.output is row_syntax.Rows.ONE:
            written, places = np.arange(len(view.starts)), view.starts
        else:
            assert isinstance(view, MatchView)
            excluded = np.append(self._plan.automaton.excluded, False)
            kept = ~excluded[view.positions]
            if query.output is row_syntax.Rows.OMIT_EMPTY:
                kept &= view.positions >= 0
            written = np.flatnonzero(kept)
            places = view.place[written]
        unmatched = np.zeros(0, np.int64)
        if query.output is row_syntax.Rows.WITH_UNMATCHED:
            assert isinstance(view, MatchView)
            is_matched = np.zeros(self._rows.count, bool)
            is_matched[view.place] = True
            unmatched = np.flatnonzero(~is_matched)
        names, columns = [], []
        all_rows = np.concatenate([places, unmatched])
        keys, others = self._keys(all_rows), self._others(all_rows)
        for name, column in [*keys, *others[0], *self._measures(written, len(unmatched)), *others[1]]:
            names.append(name)
            columns.append(column)
        if not columns:
            # MEASURES and PARTITION BY may both be left out: rows without columns.
            return pa.table({"": pa.nulls(len(written))}).select([])
        return pa.table(columns, names=names)

    def _keys(self, places: np.ndarray) -> list[tuple[str, Column]]:
        """The PARTITION BY columns."""
        return [(column.name, self._value(column.expression, places)) for column in self._plan.query.partition]

    def _value(self, expression: Bound, places: np.ndarray) -> Column:
        if isinstance(expression, Attribute) and len(expression.path) == 1:
            return self._rows.raw_at(expression.path[0], places)
        frame = RowFrame(len(places), self._rows, lambda component: places)
        return from_engine(evaluate(expression, frame), expression.type)

    def _others(self, places: np.ndarray) -> tuple[list[tuple[str, Column]], list[tuple[str, Column]]]:
        """With ALL ROWS PER MATCH: (the columns of ORDER BY, the other columns of the input)."""
        query = self._plan.query
        if query.output is row_syntax.Rows.ONE:
            return [], []
        taken = {column.name for column in (*query.partition, *query.measures)}
        ordering = [sort.expression.path[0] for sort in query.order if isinstance(sort.expression, Attribute)]
        ordering = [name for name in dict.fromkeys(ordering) if name not in taken]
        rest = [name for name in query.catalog.common or () if name not in {*taken, *ordering}]
        first, last = ([(name, self._rows.raw_at(name, places)) for name in names] for names in (ordering, rest))
        return first, last

    def _measures(self, written: np.ndarray, unmatched: int) -> list[tuple[str, Column]]:
        view, query = self._view, self._plan.query

        def rows_of(component: int) -> np.ndarray:
            row = query.rows[component]
            assert isinstance(row, Row)
            found: np.ndarray = view.rows_of(row)[written]
            return found

        def label(component: int) -> Column:
            row = query.rows[component]
            assert isinstance(row, Row)
            return view.labels(row).take(arrow(written))

        def total(expression: Aggregation) -> Column:
            if expression.function == "array_agg":
                assert isinstance(view, MatchView)
                return view.lists(expression, written)
            return view.total(expression).take(arrow(written))

        frame = RowFrame(len(written), self._rows, rows_of, label, total)
        found = []
        for measure in query.measures:
            column = self._measure(measure.expression, frame)
            if unmatched:
                column = pa.concat_arrays([column, pa.nulls(unmatched, column.type)])
            found.append((measure.name, column))
        return found

    def _measure(self, expression: Bound, frame: RowFrame) -> Column:
        if isinstance(expression, Attribute) and (len(expression.path) == 1 or not is_computed(expression.type)):
            # A column in its own type, as it is in the input.
            rows = frame.rows_of(expression.component)
            assert rows is not None, "measures are of matches"
            column = self._rows.raw_at(expression.path[0], rows)
            for name in expression.path[1:]:
                column = pc.struct_field(column, name)
            return column
        return from_engine(evaluate(expression, frame), expression.type)
