"""Answers over a bounded input on several threads. The work is divided by time or, if that is not possible, by query or
by key.

By time: a row of the answer depends only on events of the window before its end. If the input is sorted by time, each
thread reads a slice of it, and in addition the window before the slice. A thread returns the rows that end in its
slice.

By key: events of one match agree on the columns of `Plan.shared_columns`. Rows are selected by type in ranges of the
input, then divided by a hash of these columns. Each part has its own operator, which reads the same table. Matches of
all parts are merged by their last events before columns are built. This costs more than division by time, but needs
neither a sorted input nor a window.

Each part has an equal share of every limit. If a part fails, one thread does all the work again, and its answer or
error counts. The whole may keep a limit that one part exceeds.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.model import Attribute
from ouzel.errors import OuzelError
from ouzel.kernels.arrays import Text, column_of, numbers_of
from ouzel.kernels.keys import add_hashes, divide, merge
from ouzel.kernels.order import first_disorder
from ouzel.kernels.pauses import pause
from ouzel.plan.choose import not_by_key, reach_ticks
from ouzel.plan.model import Plan
from ouzel.runtime.calls import EVENTS_MIN, run_tasks
from ouzel.runtime.layout import NEVER, Layout, conform, ticks_of, unchecked_ticks
from ouzel.runtime.limits import Limits
from ouzel.runtime.moments import scale_for
from ouzel.runtime.operator import Divisible, Found, Operator, operator_for, operators_for
from ouzel.runtime.program import Program, is_composed
from ouzel.runtime.session import LATEST, Session
from ouzel.runtime.values import empty_table, one_array

_SAMPLED_ROWS = 1024
# Slices of time may read at most this share of the rows twice.
OVERLAP_MAX = 1 / 8
# Rows of an answer that one task builds, if parts by key are merged.
_CHUNK_ROWS = 1 << 17


def answers(program: Program, table: pa.Table, threads: int) -> dict[str, pa.Table]:
    """The rows of each query over a bounded input, the same as with one thread."""
    if program.layout.is_ordered:
        scale = scale_for(conform(table, program.layout), program.layout)
        if scale is not None or not _is_simple(program):
            return _in_one_thread(replace(program, layout=replace(program.layout, scale=scale)), table)
        # There is nothing to order.
        program = replace(program, layout=replace(program.layout, order=(), by_arrival=False))
    if threads > 1 and table.num_rows >= EVENTS_MIN and _is_simple(program):
        table = conform(table, program.layout)
        # One thread decides what the error is. Any other exception is a fault of this module, and is raised.
        with contextlib.suppress(OuzelError, pa.ArrowException):
            slices = _slices(program, table, threads)
            try:
                return _in_threads(program, table, threads, slices)
            except _UnorderedError:
                return _in_threads(program, table, threads, None)
    return _in_one_thread(program, table)


def _is_simple(program: Program) -> bool:
    """Whether a program has only queries, and none reads the matches of another."""
    return (
        not program.algebra
        and not program.row_patterns
        and not any(is_composed(query) or query.into for query in program.queries)
    )


def _in_one_thread(program: Program, table: pa.Table) -> dict[str, pa.Table]:
    session = Session(program)
    session.push(table, True)
    return session.finish()


def _in_threads(program: Program, table: pa.Table, threads: int, slices: _Slices | None) -> dict[str, pa.Table]:
    rest = program if slices is None else program.of(program.plans().keys() - slices.program.plans().keys())
    groups = [[query.name] for query in rest.queries]
    if len(groups) > 1:
        # Some queries are counted together.
        groups = [list(operator.schemas) for operator in _operators(rest, rest.limits)]
    if len(groups) >= threads:
        # Each query reads all events, so whole queries need no merging.
        alone, divided = groups, []
    else:
        divided = [names for names in groups if len(names) == 1 and not not_by_key(program.plans()[names[0]])]
        alone = [names for names in groups if names not in divided]
    tasks: list[Callable[[], Mapping[str, pa.Table]]]
    tasks = [partial(_in_one_thread, program.of(names), table) for names in alone]
    if slices is not None:
        tasks += [partial(slices.rows_of, number) for number in range(len(slices.bounds))]
    parts: dict[str, list[pa.Table]] = {query.name: [] for query in program.queries}
    for found in run_tasks(tasks, threads):
        for name, rows in found.items():
            parts[name].append(rows)
    for (name,) in divided:
        parts[name].append(_divided(program, name, table, threads))
    return {name: tables[0] if len(tables) == 1 else pa.concat_tables(tables) for name, tables in parts.items()}


def _operators(program: Program, limits: Limits) -> list[Operator]:
    plans = program.plans()
    layouts = dict.fromkeys(plans, program.layout)
    return operators_for(plans, layouts, limits, program.statistics, program.rules_off)


# ── Queries divided by time ───────────────────────────────────────────────────────────────────────


class _UnorderedError(Exception):
    """Raised if the input is not sorted, so that slices of rows are not slices of time."""


class _Bounds(NamedTuple):
    """The rows that a slice reads, `first` to `last` - 1. Those before `own` belong to earlier slices."""

    first: int
    own: int
    last: int


class _Slices(NamedTuple):
    """Slices of an input that is sorted by time. Each cut is between two ticks."""

    program: Program
    limits: Limits
    table: pa.Table
    ticks: np.ndarray
    bounds: Sequence[_Bounds]

    def rows_of(self, number: int) -> dict[str, pa.Table]:
        """The rows of each query that end in the slice with this number."""
        first, own, last = self.bounds[number]
        self._check_order(own, last)
        table = _in_one_chunk(self.table.slice(first, last - first))
        answers: dict[str, pa.Table] = {}
        for operator in _operators(self.program, self.limits):
            pause()
            operator.stage(table, self.ticks[first:last], zero_copy=True)
            for name, answer in operator.advance(LATEST).items():
                if isinstance(answer, OuzelError):
                    raise answer
                answers[name] = answer.table if first == own else self._from(answer.table, int(self.ticks[own]))
        return answers

    def _check_order(self, own: int, last: int) -> None:
        # The first row of the next slice is not before this one either.
        ticks = self.ticks[own : last + 1]
        # Groups with the same end have the order in which they were first seen, in the whole stream.
        strict = any(query.group_by for query in self.program.queries)
        if ticks[0] == NEVER or first_disorder(ticks, strict=strict) >= 0:
            raise _UnorderedError

    def _from(self, rows: pa.Table, tick: int) -> pa.Table:
        """The rows that end at tick `tick` or later."""
        layout, field = self.program.layout, self.program.layout.schema.field(self.program.layout.time)
        ends = rows.column("end")

        def end_of(row: int) -> int:
            return int(unchecked_ticks(pa.table([ends.slice(row, 1)], schema=pa.schema([field])), layout)[0])

        return rows.slice(bisect.bisect_left(range(len(ends)), tick, key=end_of))


def _slices(program: Program, table: pa.Table, threads: int) -> _Slices | None:
    """One slice for each thread, if the queries can be divided by time. None if they cannot, or if too many rows would
    be read twice.
    """
    reaches = {name: reach_ticks(plan) for name, plan in program.plans().items()}
    own = program.of(name for name, reach in reaches.items() if reach is not None)
    limits = program.limits.share(threads)
    if not own.queries or limits is None or _relevant_share(own, table) * table.num_rows < EVENTS_MIN:
        return None
    ticks = unchecked_ticks(table, program.layout)
    reach = max(reach for reach in reaches.values() if reach is not None)
    # If ticks are not in order, which the slices will find, a tick may seem to be behind the last one.
    cuts = [ticks[len(ticks) * number // threads] for number in range(1, threads)]
    starts = {0, *np.searchsorted(ticks, cuts).tolist()} - {len(ticks)}
    bounds = []
    for start, end in itertools.pairwise([*sorted(starts), len(ticks)]):
        bound = max(int(ticks[start]) - reach, NEVER)
        bounds.append(_Bounds(int(np.searchsorted(ticks[:start], bound)), start, end))
    overlap = sum(one.own - one.first for one in bounds)
    if len(bounds) == 1 or overlap > OVERLAP_MAX * len(ticks):
        return None
    return _Slices(own, limits, table, ticks, bounds)


def _relevant_share(program: Program, table: pa.Table) -> float:
    """The share of events in a sample that have a type which some query names."""
    named = [component.types for query in program.queries for component in query.components]
    if program.layout.type is None or None in named:
        return 1.0
    step = max(1, table.num_rows // _SAMPLED_ROWS)
    sample = table.column(program.layout.type).take(pa.array(np.arange(0, table.num_rows, step)))
    known = pa.array({name for types in named for name in types or ()}, pa.string())
    return float(pc.mean(pc.is_in(sample.cast(pa.string()), value_set=known)).as_py())


# ── One query, divided by key ─────────────────────────────────────────────────────────────────────


def _divided(program: Program, name: str, table: pa.Table, threads: int) -> pa.Table:
    plan, layout = program.plans()[name], program.layout
    columns = _hashed_columns(plan, layout)
    limits = program.limits.share(threads)
    if not columns or limits is None:
        return _in_one_thread(program.of([name]), table)[name]
    table = _in_one_chunk(table)
    ticks = ticks_of(table, layout)
    parts = _selected(plan, layout, table, columns, threads)
    if len(parts) == 1:
        limits = program.limits
    made = run_tasks([partial(_search, plan, layout, limits, table, ticks, part) for part in parts], threads)
    return _rows(made[0][0], [found for _, found in made], table, ticks, threads)


def _in_one_chunk(table: pa.Table) -> pa.Table:
    if any(column.num_chunks > 1 for column in table.columns):
        return pa.table([one_array(column) for column in table.columns], schema=table.schema)
    return table


def _hashed_columns(plan: Plan, layout: Layout) -> list[str]:
    """The input columns by which the events of a query are divided. Empty if event types have them in different
    columns, or if one has floats, because equal floats may have different bits.
    """
    if layout.start is not None:
        return []
    found = []
    types = {name for component in plan.query.components for name in plan.query.types_of(component.position)}
    for name in plan.shared_columns():
        columns = {layout.column(event_type, name) for event_type in types}
        if len(columns) > 1 or _lacks_some(plan, name):
            continue
        (column,) = columns
        kind = layout.schema.field(column).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        is_plain = pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind)
        if is_plain or pa.types.is_string(kind) or pa.types.is_large_string(kind):
            found.append(column)
    return found


def _lacks_some(plan: Plan, name: str) -> bool:
    """Whether some event type lacks an attribute."""
    return any(
        isinstance(expression, Attribute) and expression.path == (name,) and expression.present_in is not None
        for part in plan.key
        for expression in part.expressions.values()
    )


Selected = tuple[np.ndarray, np.ndarray]


def _selected(plan: Plan, layout: Layout, table: pa.Table, columns: Sequence[str], threads: int) -> list[Selected]:
    """For each part, its rows and the components that they may fill, as bits. One part if the rows are few."""
    stager = cast(Divisible, operator_for(plan, layout, Limits())).stager
    bounds = [table.num_rows * number // threads for number in range(threads + 1)]
    ranges = [table.slice(first, last - first) for first, last in itertools.pairwise(bounds)]
    found = run_tasks([partial(stager.select, part) for part in ranges], threads)
    if sum(len(rows) for rows, _ in found) < EVENTS_MIN:
        rows = np.concatenate([rows + np.int32(first) for (rows, _), first in zip(found, bounds, strict=False)])
        return [(rows, np.concatenate([roles for _, roles in found]))]
    divided = run_tasks(
        [
            partial(_divide, part, columns, rows, roles, first, threads)
            for part, (rows, roles), first in zip(ranges, found, bounds, strict=False)
        ],
        threads,
    )
    return [
        (np.concatenate([one[part][0] for one in divided]), np.concatenate([one[part][1] for one in divided]))
        for part in range(threads)
    ]


def _divide(
    table: pa.Table, columns: Sequence[str], rows: np.ndarray, roles: np.ndarray, first: int, parts: int
) -> list[Selected]:
    hashes = np.zeros(len(rows), np.uint64)
    for name in columns:
        column = one_array(table.column(name))
        if pa.types.is_dictionary(column.type):
            # Different places of a dictionary may hold equal values.
            values = column_of(pc.cast(column.dictionary, pa.large_string()))
            assert isinstance(values, Text)
            by_value = np.zeros(len(column.dictionary) + 1, np.uint64)
            add_hashes(values, np.arange(len(column.dictionary), dtype=np.int32), by_value[:-1])
            indices = numbers_of(pc.fill_null(column.indices, len(column.dictionary))).values[rows]
            hashes = hashes * np.uint64(3) + by_value[indices]
        else:
            add_hashes(column_of(column), rows, hashes)
    rows, roles, bounds = divide(rows + np.int32(first), roles, hashes, parts)
    return [(rows[a:b], roles[a:b]) for a, b in itertools.pairwise(bounds)]


def _search(
    plan: Plan, layout: Layout, limits: Limits, table: pa.Table, ticks: np.ndarray, selected: Selected
) -> tuple[Divisible, Found]:
    operator = cast(Divisible, operator_for(plan, layout, limits))
    operator.stager.selected = selected
    operator.stage(table, ticks, zero_copy=True)
    return operator, operator.search()


def _rows(operator: Divisible, parts: Sequence[Found], table: pa.Table, ticks: np.ndarray, threads: int) -> pa.Table:
    """The rows of all parts in the order of a single thread."""
    found = [part for part in parts if len(part.ticks)]
    if not found:
        return empty_table(operator.schema)
    total = sum(len(part.ticks) for part in found)
    chunks = threads * -(-total // (threads * _CHUNK_ROWS)) if total > _CHUNK_ROWS // 4 else 1
    longest = max((part.ticks for part in found), key=len)
    # Rows of one tick stay together.
    cuts = np.unique(longest[len(longest) * np.arange(1, chunks) // chunks])
    bounds = [[0, *np.searchsorted(part.ticks, cuts), len(part.ticks)] for part in found]
    tasks = []
    for number in range(len(cuts) + 1):
        ends = [(part, own[number], own[number + 1]) for part, own in zip(found, bounds, strict=True)]
        # Nothing is before the first cut if the first tick has many rows.
        if slices := [one for one in ends if one[1] < one[2]]:
            tasks.append(partial(_merged, operator, slices, table, ticks))
    tables = run_tasks(tasks, threads)
    return pa.concat_tables(tables)


def _merged(
    operator: Divisible, slices: Sequence[tuple[Found, int, int]], table: pa.Table, ticks: np.ndarray
) -> pa.Table:
    contents = [(part.content, first, last) for part, first, last in slices]
    if len(slices) == 1:
        return operator.rows_of(contents, None)
    times = np.concatenate([part.ticks[first:last] for part, first, last in slices])
    order, has_ties = merge(times, np.cumsum([last - first for _, first, last in slices]))
    if has_ties:
        ties = np.concatenate([part.ties[first:last] for part, first, last in slices])
        order = np.lexsort((operator.tie_ranks(table, ticks, ties), times)).astype(np.int32)
    return operator.rows_of(contents, order)
