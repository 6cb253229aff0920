"""Aggregates that need the matches: builds the matches, adds them to totals, and subtracts them when they expire.

This is slower than counting, but exact: integers are Python integers, and sums of floats are computed without rounding,
so no error accumulates.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.bind.model import AggregateColumn, Kind, Type
from ouzel.engines.aggregate.output import INT64_MAX, aggregate_schema, answer, checked_integer
from ouzel.engines.aggregate.plan import AggregatePlan
from ouzel.errors import LimitError
from ouzel.plan.expressions import ranges_over_events
from ouzel.runtime.buffer import OpenKey
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.operator import Answer, QueryOperator, operator_for
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.values import engine_type, from_engine, one_array, to_engine

Group = tuple[Any, ...]
# Matches read at a time: as Python objects they take much more memory than in arrays.
_PIECE = 65_536


class _Down:
    """A value that sorts in descending order."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Down) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Down) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value)


class _Extreme:
    """The least, or the greatest, of values that are added and removed."""

    def __init__(self, *, greatest: bool) -> None:
        self._greatest = greatest
        self._heap: list[Any] = []
        # How often a value of the heap was removed; it stays in the heap until it is on top, or until most values of
        # the heap are removed.
        self._gone: Counter[Any] = Counter()
        self._gone_count = 0

    def change(self, value: Any, sign: int) -> None:
        key = _Down(_order(value)) if self._greatest else _order(value)
        if sign > 0:
            heapq.heappush(self._heap, key)
        else:
            self._gone[key] += 1
            self._gone_count += 1
            if 2 * self._gone_count > len(self._heap):
                self._heap = [key for key in self._heap if not self._is_gone(key)]
                heapq.heapify(self._heap)

    def _is_gone(self, key: Any) -> bool:
        """Whether a value at the top of the heap has been removed, so that it must be popped."""
        count = self._gone.get(key, 0)
        if count == 1:
            del self._gone[key]
        elif count:
            self._gone[key] = count - 1
        self._gone_count -= count > 0
        return count > 0

    def value(self) -> Any:
        while self._is_gone(self._heap[0]):
            heapq.heappop(self._heap)
        found = self._heap[0].value if self._greatest else self._heap[0]
        is_nan, key = found
        if is_nan:
            return math.nan
        return key.decode("utf-8", "surrogatepass") if isinstance(key, bytes) and is_nan is None else key


def _order(value: Any) -> tuple[Any, Any]:
    """A sort key with the order of the query language: NaN last, texts by their bytes."""
    if isinstance(value, str):
        return (None, value.encode("utf-8", "surrogatepass"))
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return (False, value)


class _Total:
    """One aggregate over values that are added and removed."""

    def __init__(self, column: AggregateColumn) -> None:
        self._function = column.function
        self._count = 0
        self._sum: Any = 0
        self._unusual: Counter[str] = Counter()
        self._extreme = _Extreme(greatest=column.function == "max")

    def change(self, values: Sequence[Any], sign: int) -> None:
        self._count += sign * len(values)
        for value in values:
            if self._function in ("min", "max"):
                self._extreme.change(value, sign)
            elif isinstance(value, float) and not math.isfinite(value):
                self._unusual[repr(value)] += sign
            elif self._function in ("sum", "avg"):
                self._sum += sign * (Fraction(value) if isinstance(value, float) else value)

    def value(self) -> Any:
        """The value of the aggregate; None if it has no values."""
        if self._function == "count":
            return self._count
        if not self._count:
            return None
        if self._function in ("min", "max"):
            return self._extreme.value()
        odd = {name for name, count in self._unusual.items() if count}
        if odd:
            return math.nan if "nan" in odd or len(odd) > 1 else float(odd.pop())
        return self._sum if self._function == "sum" else _float(Fraction(self._sum) / self._count)


def _float(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


class _GroupTotals:
    """The totals of one group."""

    def __init__(self, group: Group, columns: Sequence[AggregateColumn]) -> None:
        self.group = group
        self.count = 0
        self.totals = [_Total(column) for column in columns]

    def change(self, values: Sequence[Sequence[Any]], sign: int) -> None:
        self.count += sign
        for total, some in zip(self.totals, values, strict=True):
            total.change(some, sign)


class MatchesOperator(QueryOperator):
    """Aggregates over the matches that another operator builds."""

    def __init__(self, plan: AggregatePlan, layout: Layout, limits: Limits) -> None:
        assert plan.inner is not None
        self._query = plan.query
        self.name = plan.query.name
        self._limits = limits
        self._scale = layout.scale
        self._window = plan.window_ticks
        self._inner = operator_for(plan.inner, layout, limits)
        self._groups: dict[Group, _GroupTotals] = {}
        # (when it leaves, number, group, values): in the order in which matches leave.
        self._leaving: list[tuple[int, int, Group, list[list[Any]]]] = []
        self._number = 0
        # The current matches, as they were built, for snapshots: table, starts, ends.
        self._standing: list[tuple[pa.Table, np.ndarray, np.ndarray]] = []
        self._now = -(2**63)
        self.schema = aggregate_schema(self._query, layout)

    def stage(self, table: pa.Table, ticks: np.ndarray, *, zero_copy: bool = False) -> None:
        """Add rows, in any order."""
        self._inner.stage(table, ticks, zero_copy=zero_copy)

    def answer(self, until: int) -> Answer:
        """The rows of all changes up to tick `until`."""
        matches, starts, ends = self._inner.answer(until)
        if self._scale is not None:
            # Matches that end with their windows complete with the events of that tick.
            ends = np.minimum(ends, self._scale.after_events(ends))
        if matches.num_rows:
            self._standing.append((matches, starts, ends))
        rows = self._rows(self._read(matches, starts, ends), until)
        self._now = max(self._now, until)
        self._evict(until)
        return self._answer(rows)

    # ── Coming and going ───────────────────────────────────────────────────────────────────────────

    def _read(
        self, matches: pa.Table, starts: np.ndarray, ends: np.ndarray
    ) -> Iterator[tuple[int, int, Group, list[list[Any]]]]:
        """(end, start, group, values of each aggregate) for each match, ordered by end."""
        order = np.argsort(ends, kind="stable")
        for first in range(0, len(order), _PIECE):
            rows = order[first : first + _PIECE]
            piece = matches.take(pa.array(rows))
            groups = [
                _values(piece.column(f"group_{number}"), key.type) for number, key in enumerate(self._query.group_by)
            ]
            values: list[Sequence[list[Any]]] = []
            for number, column in enumerate(self._query.aggregates):
                if column.argument is None:
                    values.append([[1]] * len(rows))
                else:
                    read = _lists if ranges_over_events(column.argument) else _singles
                    values.append(read(piece.column(f"value_{number}"), column.argument.type))
            for place, row in enumerate(rows.tolist()):
                group = tuple(column[place] for column in groups)
                yield int(ends[row]), int(starts[row]), group, [v[place] for v in values]

    def _add(self, start: int, group: Group, values: list[list[Any]]) -> None:
        """Count a match until it leaves the window."""
        if group not in self._groups:
            self._groups[group] = _GroupTotals(group, self._query.aggregates)
        totals = self._groups[group]
        totals.change(values, 1)
        if self._window is None:
            return
        heapq.heappush(self._leaving, (min(start + self._window, INT64_MAX), self._number, totals.group, values))
        self._number += 1
        if len(self._leaving) > self._limits.max_partial_matches:
            raise LimitError(
                f"query '{self._query.name}' must build the matches that it aggregates, and more than "
                f"max_partial_matches={self._limits.max_partial_matches:,} of them are within the window at once; "
                "EXPLAIN shows why they must be built; give a smaller WITHIN window or a more selective WHERE, or "
                "raise the limit"
            )

    def _rows(self, coming: Iterator[Any], until: int) -> list[tuple[int, Group, list[Any]]]:
        """(timestamp, group, values) of each row to emit."""
        rows: list[tuple[int, Group, list[Any]]] = []
        following = next(coming, None)
        while True:
            tick = None if following is None else following[0]
            if self._query.emit_on_change and self._leaving and self._leaving[0][0] <= until:
                expiry = self._leaving[0][0]
                tick = expiry if tick is None else min(tick, expiry)
            if tick is None:
                return rows
            before: dict[Group, list[Any]] = {}
            completed = set()
            self._expire(tick, before)
            while following is not None and following[0] == tick:
                _, start, key, values = following
                following = next(coming, None)
                group = _as_key(key)
                before.setdefault(group, [])
                completed.add(group)
                self._add(start, group, values)
            rows += [
                (tick, group, self._values_of(group))
                for group in sorted(before, key=repr)
                if group in completed or not _same(before[group], self._shown(group))
            ]
            for group in before:
                if not self._groups[group].count:
                    del self._groups[group]

    def _expire(self, tick: int, before: dict[Group, list[Any]]) -> None:
        """Subtract the matches that have left the window at `tick`."""
        while self._leaving and self._leaving[0][0] <= tick:
            _, _, group, values = heapq.heappop(self._leaving)
            if self._query.emit_on_change:
                before.setdefault(group, self._shown(group))
            self._groups[group].change(values, -1)
            if not self._query.emit_on_change and not self._groups[group].count:
                del self._groups[group]

    def _values_of(self, group: Group) -> list[Any]:
        return [total.value() for total in self._groups[group].totals]

    def _shown(self, group: Group) -> list[Any]:
        """The values of a group's visible aggregates."""
        values = self._values_of(group)
        return [value for value, column in zip(values, self._query.aggregates, strict=True) if not column.hidden]

    def _evict(self, until: int) -> None:
        if self._window is None:
            return
        alive = [(t, s, e) for t, s, e in self._standing if int(s.max()) + self._window > until]
        self._standing = alive

    # ── Output ─────────────────────────────────────────────────────────────────────────────────────

    def _answer(self, rows: Sequence[tuple[int, Group, list[Any]]]) -> Answer:
        ticks = np.array([tick for tick, _, _ in rows], np.int64)
        keys = []
        for number, key in enumerate(self._query.group_by):
            wanted = self.schema.field(key.name).type
            made = pa.array([_plain(group[number]) for _, group, _ in rows], engine_type(key.type))
            keys.append(from_engine(made, key.type).cast(wanted))
        values = {}
        for number, column in enumerate(self._query.aggregates):
            found = [self._engine_value(column, values[number]) for _, _, values in rows]
            values[column.name] = pa.array(found, engine_type(column.type))
        return answer(self._query, self.schema, ticks, keys, values, scale=self._scale)

    def _engine_value(self, column: AggregateColumn, value: Any) -> Any:
        if value is None or column.function in ("avg", "min", "max"):
            return value
        if column.type.kind is Kind.FLOAT:
            return _float(value) if isinstance(value, Fraction) else float(value)
        if column.type.kind is Kind.DECIMAL:
            unscaled = value * 10**column.type.scale if isinstance(value, int) else value.scaleb(column.type.scale)
            return checked_integer(self._query, column, int(unscaled))
        return checked_integer(self._query, column, value)

    @property
    def next_deadline(self) -> int | None:
        """The earliest tick at which rows are due without a further event; None if there is none."""
        ticks = [self._inner.next_deadline]
        if self._query.emit_on_change and self._leaving:
            ticks.append(self._leaving[0][0])
        return min((tick for tick in ticks if tick is not None), default=None)

    @property
    def held_events(self) -> int:
        """The number of pending and live events."""
        return self._inner.held_events

    @property
    def room(self) -> int:
        """At least this many events can be read before a limit must be checked, if they return no rows."""
        return self._inner.room

    def open_by_key(self, watermark: int) -> list[OpenKey] | None:
        """The keys of events that may still be in a match."""
        return self._inner.open_by_key(watermark)

    @property
    def statistics(self) -> dict[str, int]:
        """The counters of the kernel that builds the matches."""
        return dict(self._inner.statistics)

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; `load` takes what this returns."""
        standing = []
        for table, starts, ends in self._standing:
            alive = np.arange(len(starts))
            if self._window is not None:
                alive = np.flatnonzero(starts > self._now - self._window)
            parts = (writer.add_table(table.take(pa.array(alive))), writer.add_array(starts[alive]))
            standing.append([*parts, writer.add_array(ends[alive])])
        return {"inner": self._inner.dump(writer), "standing": standing, "now": self._now}

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Restore what `dump` stored."""
        self._inner.load(reader, head["inner"])
        self._now = head["now"]
        for table, starts, ends in head["standing"]:
            part = (reader.table(table), reader.array(starts), reader.array(ends))
            if len(part[1]):
                self._standing.append(part)
        for matches, starts, ends in self._standing:
            for _, start, key, values in self._read(matches, starts, ends):
                self._add(start, _as_key(key), values)


def _values(column: pa.ChunkedArray, type_: Type) -> list[Any]:
    return list(to_engine(column, type_).to_pylist())


def _singles(column: pa.ChunkedArray, type_: Type) -> list[list[Any]]:
    """For each match a list of its value, empty if that is null."""
    return [[] if value is None else [value] for value in _values(column, type_)]


def _lists(column: pa.ChunkedArray, type_: Type) -> list[list[Any]]:
    """For each match, the values over all events of a component that are not null."""
    array = one_array(column)
    inside = _values(pa.chunked_array([array.flatten()]), type_)
    lengths = [0 if length is None else length for length in pa.compute.list_value_length(array).to_pylist()]
    found, first = [], 0
    for length in lengths:
        found.append([value for value in inside[first : first + length] if value is not None])
        first += length
    return found


def _as_key(group: Group) -> Group:
    """A group as a dictionary key, in which all NaN are equal and both zeros are equal."""
    return tuple(_NAN if isinstance(v, float) and math.isnan(v) else v for v in group)


_NAN = ("nan",)


def _plain(value: Any) -> Any:
    return math.nan if value == _NAN else value


def _same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and all(
        a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))
        for a, b in zip(left, right, strict=True)
    )
