"""Answers a row pattern over a table: orders the rows, finds the matches, computes the measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.literals import DECIMAL_DIGITS_MAX
from ouzel.bind.model import Aggregation, Attribute, Bound, Kind
from ouzel.bind.row_patterns import MATCH_NUMBER, Row, Rows
from ouzel.engines.rows.conditions import Conditions, build_conditions
from ouzel.engines.rows.frames import RowFrame, SortedRows, picked, ranks_of, reads_label, shifted, sort_rows
from ouzel.engines.rows.plan import RowPlan
from ouzel.engines.rows.search import search
from ouzel.engines.rows.suffixes import SuffixView, suffix_view
from ouzel.engines.rows.tables import At, Ended, Entries, Matches, Skipping
from ouzel.engines.rows.views import counts, extremes, float_sums, integer_sums, visible_rows
from ouzel.engines.rows.walk import alive, walk
from ouzel.errors import InputError, LimitError, argument
from ouzel.kernels.predicate_tables import new_values
from ouzel.lang import row_syntax
from ouzel.runtime.expressions import evaluate
from ouzel.runtime.values import (
    Column,
    arrow,
    as_integers,
    from_engine,
    is_computed,
    join,
    split,
    to_float,
    truths,
    valids,
)

_BYTE = 8
_SKIPPING = {
    row_syntax.Skip.PAST_LAST_ROW: Skipping.PAST_LAST_ROW,
    row_syntax.Skip.TO_NEXT_ROW: Skipping.TO_NEXT_ROW,
    row_syntax.Skip.TO_FIRST: Skipping.TO_FIRST,
    row_syntax.Skip.TO_LAST: Skipping.TO_LAST,
}
STEPS_MAX = 10_000_000
OVERLAPPING_ROWS_MAX = 50_000_000


def recognize(table: pa.Table, plan: RowPlan, *, steps_max: int = STEPS_MAX) -> pa.Table:
    """The matches of a row pattern in a table."""
    rows = sort_rows(table, plan.query)
    finder = _Finder(plan, rows, steps_max)
    view = suffix_view(plan, rows, finder.can) or _View(plan, rows, finder.matches())
    return _Output(plan, rows, view).table()


# ── Finding ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Finder:
    plan: RowPlan
    rows: SortedRows
    steps_max: int
    state: np.ndarray = field(init=False)
    can: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.can = np.empty((self.rows.count, len(self.plan.tables.accepting)), np.uint64)
        alive(self._symbols(), self.rows.bounds, self.plan.tables, self.can)
        self.state = np.zeros(len(At), np.int64)
        self.state[At.NUMBER] = 1
        self.state[[At.DEPTH, At.ANSWER]] = -1

    def matches(self) -> Matches:
        """All matches, in the order found."""
        plan, bounds = self.plan, self.rows.bounds
        tables = plan.tables
        targets = np.zeros(max(len(plan.query.variables), 1), bool)
        targets[list(plan.query.skip_to)] = True
        skipping = int(_SKIPPING[plan.query.skip])
        run: Callable[[Matches], int]
        if plan.is_searched:
            run = self._search(targets, skipping)
        else:

            def run(room: Matches) -> int:
                return int(walk(self.state, self.can, bounds, tables, skipping, targets, room))

        room = _room(max(self.rows.count // 4, 16), max(self.rows.count, 16))
        while True:
            ended = run(room)
            if ended == Ended.DONE:
                return _resized(room, int(self.state[At.MATCHES]), int(self.state[At.POSITIONS]))
            if ended == Ended.MATCHES_FULL:
                room = _resized(room, 2 * len(room.start), len(room.positions))
            elif ended == Ended.POSITIONS_FULL:
                self._check_overlaps(2 * len(room.positions))
                room = _resized(room, len(room.start), 2 * len(room.positions))
            else:
                raise self._stopped(ended)

    def _check_overlaps(self, positions: int) -> None:
        """Refuse matches that overlap so much that they do not fit memory."""
        if positions > max(2 * self.rows.count, OVERLAPPING_ROWS_MAX):
            raise LimitError(
                f"the matches overlap: together they have more than {OVERLAPPING_ROWS_MAX:,} rows. Write AFTER MATCH "
                "SKIP PAST LAST ROW, or make matches shorter with WITHIN"
            )

    def _symbols(self) -> np.ndarray:
        """The variables whose near conditions hold, one bit each."""
        rows, query = self.rows, self.plan.query
        dtype: Any = np.uint8 if len(query.variables) <= _BYTE else np.uint64
        near: dict[int, np.ndarray] = {}

        def rows_of(component: int) -> np.ndarray | None:
            row = query.rows[component]
            assert isinstance(row, Row) and row.is_near
            if not row.shift:
                return None
            if row.shift not in near:
                near[row.shift] = shifted(rows.bounds, row.shift)
            return near[row.shift]

        frame = RowFrame(rows.count, rows, rows_of)
        symbols: np.ndarray = np.zeros(rows.count, dtype)
        always = 0
        for variable in range(len(query.variables)):
            condition = self.plan.near.get(variable)
            if condition is None:
                always |= 1 << variable
                continue
            truth = evaluate(condition, frame)
            if not pa.types.is_null(truth.type):
                symbols |= truths(truth).astype(dtype) << dtype(variable)
        symbols |= dtype(always)
        return symbols

    def _search(self, targets: np.ndarray, skipping: int) -> Callable[[Matches], int]:
        plan, bounds = self.plan, self.rows.bounds
        window_end = self._window_end()
        conditions = build_conditions(plan, self.rows, window_end)
        longest = int(np.diff(bounds).max(initial=0))
        if window_end.size:
            longest = int((window_end - np.arange(len(window_end))).max(initial=0))
        bounded = plan.automaton.longest
        longest = longest if bounded is None else min(longest, bounded)
        path = conditions.path(longest, plan.automaton.positions)
        values = new_values(conditions.predicates)
        bound = np.zeros(len(plan.query.rows) + conditions.reading.register.size + 1, np.int32)

        def run(room: Matches) -> int:
            while True:
                ended = int(
                    search(
                        self.state, self.can, bounds, plan.tables, plan.automaton.ends, conditions.reading,
                        conditions.predicates, conditions.instances, values, bound, path, skipping, targets,
                        self.steps_max, room,
                    )
                )  # fmt: skip
                if ended != Ended.TEST:
                    return ended
                self.state[At.ANSWER] = self._holds(conditions, bound, path.position)

        return run

    def _window_end(self) -> np.ndarray:
        """For each row the first one that is outside its window."""
        query, bounds = self.plan.query, self.rows.bounds
        if query.window is None:
            return np.zeros(0, np.int64)
        frame = RowFrame(self.rows.count, self.rows, lambda component: None)
        kind = np.float64 if isinstance(query.window, float) else np.int64
        times, valid = split(evaluate(query.order[0].expression, frame), kind)
        if not valid.all():
            raise InputError("the first ORDER BY column has nulls, and WITHIN needs a value in every row")
        ends = np.empty(len(times), np.int64)
        for first, last in pairwise(bounds):
            part = times[first:last]
            # Times near the largest one: their window ends behind all rows.
            with np.errstate(over="ignore"):
                limits = part + query.window
            limits = np.where(limits < part, np.iinfo(np.int64).max, limits) if kind is np.int64 else limits
            found = np.searchsorted(part, limits, side="left")
            if kind is np.float64:
                found = _corrected(part, found, query.window)
            ends[first:last] = first + found
        return ends

    def _holds(self, conditions: Conditions, bound: np.ndarray, positions: np.ndarray) -> bool:
        """Whether the conditions hold that the kernel cannot test, for the row that it is at."""
        start, depth = int(self.state[At.ROW]), int(self.state[At.DEPTH])
        query, variables = self.plan.query, self.plan.tables.variable
        nothing = self.rows.count
        here = [int(row) if row < nothing else -1 for row in bound[: len(query.rows)]]

        def label(component: int) -> Column:
            at = here[component] - start
            name = query.variables[variables[positions[at]]] if 0 <= at <= depth else None
            return pa.array([name], pa.large_string())

        def total(expression: Aggregation) -> Column:
            if expression.function == MATCH_NUMBER:
                return pa.array([int(self.state[At.NUMBER])])
            here = [np.array([value], np.int64) for value in (0, start, depth + 1, 1)]
            one = Matches(here[0], here[1], here[2], here[3], positions[: depth + 1].copy())
            return _View(self.plan, self.rows, one).total(expression).slice(depth, 1)

        frame = RowFrame(1, self.rows, lambda component: np.array([here[component]]), label, total)
        variable = int(variables[positions[depth]])
        return all(truths(evaluate(condition, frame))[0] for condition in conditions.asked[variable])

    def _stopped(self, ended: int) -> Exception:
        row = int(self.state[At.ROW])
        query = self.plan.query
        names = ", ".join(query.variables[variable] for variable in sorted(query.skip_to))
        if ended == Ended.NO_TARGET:
            return InputError(
                f"AFTER MATCH SKIP TO {names}: the match that starts at row {self._place(row)} has no row of {names}"
            )
        if ended == Ended.TARGET_IS_FIRST:
            return InputError(
                f"AFTER MATCH SKIP TO {names}: the match that starts at row {self._place(row)} begins with {names}, so "
                "the search would find it again for ever"
            )
        searched = ", ".join(query.variables[variable] for variable in self.plan.searched) or "WITHIN"
        return LimitError(
            f"the search for a match from row {self._place(row)} takes more than {self.steps_max:,} steps to test "
            f"the conditions of {searched} on the match; make them stricter, or give a larger ",
            argument("max_steps_per_match"),
        )

    def _place(self, row: int) -> str:
        """The number of a row in the input, counted from 1."""
        place = row if self.rows.order is None else int(self.rows.order[row])
        return f"{place + 1:,} of the input"


def _corrected(times: np.ndarray, ends: np.ndarray, window: float) -> np.ndarray:
    """The ends by `time - first < window`: for doubles that may differ from `time < first + window` by a row."""
    while True:
        more = (ends < len(times)) & (times[np.minimum(ends, len(times) - 1)] - times < window)
        less = (ends > np.arange(len(times)) + 1) & (times[ends - 1] - times >= window)
        if not (more.any() or less.any()):
            return ends
        ends = ends + more - less


def _room(matches: int, positions: int) -> Matches:
    partition, start, length, number = np.empty((4, matches), np.int64)
    return Matches(partition, start, length, number, np.empty(positions, np.int32))


def _resized(room: Matches, matches: int, positions: int) -> Matches:
    """The same matches, with room for so many."""
    other = _room(matches, positions)
    for name in Matches._fields:
        new, old = getattr(other, name), getattr(room, name)
        size = min(len(new), len(old))
        new[:size] = old[:size]
    return other


# ── Measures ───────────────────────────────────────────────────────────────────────────────────────


class _View:
    """The rows of all matches one behind the other, and what each of them sees. An empty match has one row."""

    def __init__(self, plan: RowPlan, rows: SortedRows, matches: Matches) -> None:
        self._plan = plan
        self._rows = rows
        self._matches = matches
        self._variable = np.append(plan.tables.variable, -1)
        sizes = np.maximum(matches.length, 1)
        self.entry_at = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        self.entries = int(self.entry_at[-1])
        self.match = np.repeat(np.arange(len(sizes)), sizes)
        self.positions = matches.positions
        self.empty = matches.length == 0
        if self.empty.any():
            self.positions = np.full(self.entries, -1, np.int32)
            taken = np.ones(self.entries, bool)
            taken[self.entry_at[:-1][self.empty]] = False
            self.positions[taken] = matches.positions
        self.place = matches.start[self.match] + np.arange(self.entries) - self.entry_at[:-1][self.match]
        self.starts = matches.start
        self.last_entries = self.entry_at[1:] - 1
        self._found: dict[tuple[frozenset[int] | None, bool, int], np.ndarray] = {}

    def member(self, variables: frozenset[int] | None) -> np.ndarray:
        if variables is None:
            return np.ones(max(len(self._variable) - 1, 1), bool)
        return np.isin(self._plan.tables.variable, list(variables))

    def final(self, running: np.ndarray, final: bool) -> np.ndarray:
        """For each row the value of its own, or that of the last row of its match."""
        return running[(self.entry_at[1:] - 1)[self.match]] if final else running

    def rows_of(self, row: Row) -> np.ndarray:
        """The row of the table that a row of the pattern is, for each row of a match; -1 if there is none."""
        if row.variables is None and not row.first and not row.offset:
            found = np.where(self.positions < 0, -1, self.place) if self.empty.any() else self.place
        else:
            key = (row.variables, row.first, row.offset)
            if key not in self._found:
                longest = int((self.entry_at[1:] - self.entry_at[:-1]).max(initial=1))
                found = np.empty(self.entries, np.int64)
                visible_rows(
                    Entries(self.entry_at, self._matches.start, self.positions, self.member(row.variables)), row.first,
                    row.offset, np.empty(longest, np.int64), found,
                )  # fmt: skip
                self._found[key] = found
            found = self._found[key]
        found = self.final(found, row.final)
        if row.shift:
            bounds = self._rows.bounds
            partition = self._matches.partition[self.match]
            moved = found + row.shift
            outside = (found < 0) | (moved < bounds[partition]) | (moved >= bounds[partition + 1])
            found = np.where(outside, -1, moved)
        return found

    def labels(self, row: Row) -> Column:
        """The variable of a row; null if it is not in the match."""
        found = self.rows_of(row)
        at = found - self._matches.start[self.match]
        seen = self.entry_at[:-1][self.match] + at
        inside = (found >= 0) & (at >= 0) & (at < self._matches.length[self.match])
        position = np.where(inside, self.positions[np.where(inside, seen, 0)], -1)
        names = pa.array(list(self._plan.query.variables) or [""], pa.large_string())
        return picked(names, self._variable[position].astype(np.int64))

    def total(self, expression: Aggregation) -> Column:
        """An aggregate over the visible rows."""
        if expression.function == MATCH_NUMBER:
            return arrow(self._matches.number[self.match])
        rows = self._plan.query.rows[expression.component]
        assert isinstance(rows, Rows)
        member = self.member(rows.variables)
        entries = Entries(self.entry_at, self._matches.start, self.positions, member)
        if expression.operand is not None and reads_label(expression.operand):
            # A row may have another label in another match: the values are those of entries.
            entries = entries._replace(starts=self.entry_at[:-1].copy())
        if expression.operand is None:
            out = np.empty(self.entries, np.int64)
            counts(entries, np.zeros(0, bool), out)
            return arrow(self.final(out, rows.final))
        column = self._operand(expression.operand)
        if expression.function == "count":
            out = np.empty(self.entries, np.int64)
            counts(entries, np.ascontiguousarray(_valid(column)), out)
            return arrow(self.final(out, rows.final))
        if expression.function in ("min", "max"):
            places = np.empty(self.entries, np.int64)
            if pa.types.is_null(column.type):
                return pa.nulls(self.entries)
            extremes(entries, ranks_of(column), _valid(column), expression.function == "max", places)
            return picked(column, self.final(places, rows.final))
        return self._sum(expression, column, entries, rows.final)

    def _operand(self, operand: Bound) -> Column:
        """The values that an aggregate ranges over: for every row of the table, or for every entry if they depend on
        labels."""
        if not reads_label(operand):
            return evaluate(operand, RowFrame(self._rows.count, self._rows, lambda _: None))
        names = pa.array(list(self._plan.query.variables) or [""], pa.large_string())
        own = picked(names, self._variable[self.positions].astype(np.int64))
        return evaluate(operand, RowFrame(self.entries, self._rows, lambda _: self.place, lambda _: own))

    def _sum(self, expression: Aggregation, column: Column, entries: Entries, final: bool) -> Column:
        if pa.types.is_null(column.type):
            return pa.nulls(self.entries, pa.float64() if expression.function == "avg" else pa.null())
        exists = np.empty(self.entries, bool)
        if expression.function == "avg" or expression.type.kind is Kind.FLOAT:
            values, valid = split(to_float(column), np.float64)
            reals = np.empty(self.entries, np.float64)
            float_sums(entries, values, valid, reals, exists)
            if expression.function == "avg":
                number = np.empty(self.entries, np.int64)
                counts(entries, np.ascontiguousarray(valid), number)
                reals = reals / np.maximum(number, 1)
            return join(self.final(reals, final), self.final(exists, final), pa.float64())
        values, valid = as_integers(column)
        totals = np.empty(self.entries, np.int64)
        integer_sums(entries, values, valid, totals, exists)
        totals, exists = self.final(totals, final), self.final(exists, final)
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

    def lists(self, expression: Aggregation, entries: np.ndarray) -> Column:
        """ARRAY_AGG at some entries."""
        rows, operand = self._plan.query.rows[expression.component], expression.operand
        assert isinstance(rows, Rows) and operand is not None
        column = self._operand(operand)
        values = from_engine(column, operand.type)
        places = np.arange(self.entries) if reads_label(operand) else self.place
        counted = (self.positions >= 0) & _valid(column)[places]
        counted[counted] = self.member(rows.variables)[self.positions[counted]]
        flat = places[counted]
        seen = np.concatenate([np.zeros(1, np.int64), np.cumsum(counted)])
        match = self.match[entries]
        first = seen[self.entry_at[:-1][match]]
        last = seen[self.entry_at[1:][match]] if rows.final else seen[entries + 1]
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


class _Output:
    def __init__(self, plan: RowPlan, rows: SortedRows, view: _View | SuffixView) -> None:
        self._plan = plan
        self._rows = rows
        self._view = view

    def table(self) -> pa.Table:
        query = self._plan.query
        view = self._view
        if query.output is row_syntax.Rows.ONE:
            written, places = view.last_entries, view.starts
        else:
            assert isinstance(view, _View)
            excluded = np.append(self._plan.automaton.excluded, False)
            kept = ~excluded[view.positions]
            if query.output is row_syntax.Rows.OMIT_EMPTY:
                kept &= view.positions >= 0
            written = np.flatnonzero(kept)
            places = view.place[written]
        unmatched = np.zeros(0, np.int64)
        if query.output is row_syntax.Rows.WITH_UNMATCHED:
            assert isinstance(view, _View)
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
            return picked(self._rows.raw(expression.path[0]), places)
        frame = RowFrame(len(places), self._rows, lambda component: places)
        return from_engine(evaluate(expression, frame), expression.type)

    def _others(self, places: np.ndarray) -> tuple[list[tuple[str, Column]], list[tuple[str, Column]]]:
        """Of ALL ROWS PER MATCH, the columns of ORDER BY and the other columns of the input."""
        query = self._plan.query
        if query.output is row_syntax.Rows.ONE:
            return [], []
        taken = {column.name for column in (*query.partition, *query.measures)}
        ordering = [sort.expression.path[0] for sort in query.order if isinstance(sort.expression, Attribute)]
        ordering = [name for name in dict.fromkeys(ordering) if name not in taken]
        rest = [name for name in self._rows.table.column_names if name not in {*taken, *ordering}]
        first, last = ([(n, picked(self._rows.raw(n), places)) for n in names] for names in (ordering, rest))
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
                assert isinstance(view, _View)
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
            column = self._rows.raw(expression.path[0])
            for name in expression.path[1:]:
                column = pc.struct_field(column, name)
            rows = frame.rows_of(expression.component)
            return column if rows is None else picked(column, rows)
        return from_engine(evaluate(expression, frame), expression.type)
