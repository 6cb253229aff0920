"""Transformation of matches with Kleene variables: lists of events, arrays and aggregates over them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ouzel.bind.model import Aggregation, At, Attribute, Bound, BoundQuery, Intrinsic, Kind, Length, parts
from ouzel.kernels.segments import count_valid, of_place, pick, sum_floats, sum_integers
from ouzel.plan.expressions import ranges_over_events
from ouzel.runtime.arrays import arrow
from ouzel.runtime.frames import EventFrame, ticks_to_time
from ouzel.runtime.layout import Layout
from ouzel.runtime.stream_order import ranks
from ouzel.runtime.transform import output_schema, returned, struct_column
from ouzel.runtime.values import EXACT, Column, engine_type, from_engine, join, split
from ouzel.runtime.vectors import cast, evaluate


@dataclass(frozen=True)
class Matches:
    """Matches as rows of a table. `lengths[match, place]` says how many events each positive component has; `rows`
    number their rows in `table`, match by match and place by place."""

    table: pa.Table
    ticks: np.ndarray
    lengths: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @property
    def count(self) -> int:
        return len(self.starts)

    @cached_property
    def _side_by_side(self) -> np.ndarray | None:
        """The rows as [match, place], if each place has one event."""
        return self.rows.reshape(self.lengths.shape) if self.rows.size == self.lengths.size else None

    @cached_property
    def _firsts(self) -> np.ndarray:
        """Where in `rows` the events of each place of each match begin, and where the last ones end."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths, dtype=np.int64)])

    def offsets(self, place: int) -> np.ndarray:
        """Where the events of a place begin, match by match, once they lie side by side."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths[:, place], dtype=np.int64)])

    def all_rows(self, place: int) -> np.ndarray:
        """The rows of all events of a place, match by match."""
        if self.lengths.shape[1] == 1:
            return self.rows
        if self._side_by_side is not None:
            return np.ascontiguousarray(self._side_by_side[:, place])
        found: np.ndarray = of_place(self.rows, self.lengths, place)
        return found

    def first_rows(self, place: int) -> np.ndarray:
        if self._side_by_side is not None:
            return np.ascontiguousarray(self._side_by_side[:, place])
        first: np.ndarray = self.rows[self._firsts[place :: self.lengths.shape[1]][: self.count]]
        return first

    def last_rows(self, place: int) -> np.ndarray:
        if self._side_by_side is not None:
            return np.ascontiguousarray(self._side_by_side[:, place])
        last: np.ndarray = self.rows[self._firsts[place + 1 :: self.lengths.shape[1]][: self.count] - 1]
        return last


@dataclass(frozen=True)
class MatchesByPlace:
    """The same where the events of each place lie side by side already: (offsets, rows), match by match."""

    table: pa.Table
    ticks: np.ndarray
    places: list[tuple[np.ndarray, np.ndarray]]
    starts: np.ndarray
    ends: np.ndarray

    @property
    def count(self) -> int:
        return len(self.starts)

    def offsets(self, place: int) -> np.ndarray:
        return self.places[place][0]

    def all_rows(self, place: int) -> np.ndarray:
        return self.places[place][1]

    def first_rows(self, place: int) -> np.ndarray:
        offsets, rows = self.places[place]
        first: np.ndarray = rows if len(rows) == self.count else rows[offsets[:-1]]
        return first

    def last_rows(self, place: int) -> np.ndarray:
        offsets, rows = self.places[place]
        last: np.ndarray = rows if len(rows) == self.count else rows[offsets[1:] - 1]
        return last


class MatchFrame:
    """Matches to evaluate over: one row a match."""

    def __init__(self, query: BoundQuery, layout: Layout, matches: Matches | MatchesByPlace) -> None:
        self._query = query
        self._layout = layout
        self._matches = matches
        self._place = {component.position: number for number, component in enumerate(query.positives)}
        self._frames: dict[tuple[int, At], EventFrame] = {}
        self.rows = matches.count

    def events(self, component: int, at: At) -> EventFrame:
        """The events of a component: the first or last of each match, or with EVERY all of them."""
        if (component, at) not in self._frames:
            place = self._place[component]
            if at is At.EVERY:
                rows = self._matches.all_rows(place)
            elif at is At.LAST:
                rows = self._matches.last_rows(place)
            else:
                rows = self._matches.first_rows(place)
            self._frames[component, at] = EventFrame(
                self._query, self._layout, self._matches.table, self._matches.ticks, lambda _: rows, len(rows)
            )
        return self._frames[component, at]

    def offsets(self, component: int) -> np.ndarray:
        return self._matches.offsets(self._place[component])

    def raw(self, reference: Attribute) -> pa.Array:
        return self.events(reference.component, reference.at).raw(reference)

    def attribute(self, reference: Attribute) -> Column:
        return self.events(reference.component, reference.at).attribute(reference)

    def intrinsic(self, reference: Intrinsic) -> Column:
        return self.events(reference.component, reference.at).intrinsic(reference)

    def lacks(self, reference: Attribute) -> np.ndarray | None:
        return self.events(reference.component, reference.at).lacks(reference)

    def aggregate(self, expression: Length | Aggregation) -> Column:
        """A length or an aggregate over all events of a component."""
        offsets = self.offsets(expression.component)
        if isinstance(expression, Length) or expression.operand is None:
            return pa.array(np.diff(offsets))
        frame = self.events(expression.component, At.EVERY)
        values = evaluate(expression.operand, frame)
        valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
        return _folded(expression, values, valid, offsets)


def _folded(expression: Aggregation, values: Column, valid: np.ndarray, offsets: np.ndarray) -> Column:
    function = expression.function
    if function == "count":
        return pa.array(count_valid(offsets, valid))
    assert expression.operand is not None
    kind = expression.operand.type
    if function == "sum" and kind.kind is Kind.DECIMAL:
        return _decimal_sum(expression, values, offsets)
    if function in ("sum", "avg"):
        if function == "sum" and kind.kind is Kind.INT:
            sums, exists = sum_integers(offsets, *split(values, np.int64))
            return join(sums, exists, pa.int64())
        floats, valid = split(cast(values, kind, replace(kind, kind=Kind.FLOAT)), np.float64)
        totals, exists = sum_floats(offsets, floats, valid)
        if function == "avg":
            totals = totals / np.maximum(count_valid(offsets, valid), 1)
        return join(totals, exists, pa.float64())
    if function in ("min", "max"):
        order = ranks(values)
        picked = pick(offsets, order if function == "min" else -order, valid, False)
    else:
        picked = pick(offsets, np.zeros(len(valid), np.int64), valid, function == "last")
    return values.take(pa.array(picked, mask=picked < 0))


def _decimal_sum(expression: Aggregation, values: Column, offsets: np.ndarray) -> Column:
    """Exact decimals, null where a sum passes 18 digits on the way."""
    limit = 10 ** (expression.type.precision - expression.type.scale)
    sums = []
    listed = values.to_pylist()
    for first, last in pairwise(offsets):
        total = None
        for value in listed[first:last]:
            if value is None:
                continue
            total = value if total is None else EXACT.add(total, value)
            if total.copy_abs() >= limit:
                total = None
                break
        sums.append(total)
    return pa.array(sums, engine_type(expression.type))


def transform_matches(query: BoundQuery, layout: Layout, matches: Matches | MatchesByPlace) -> pa.Table:
    """Composite events out of matches that may have Kleene variables."""
    schema = output_schema(query, layout)
    frame = MatchFrame(query, layout, matches)
    time = schema.field("start").type
    columns: list[pa.Array] = [
        ticks_to_time(matches.starts, time),
        ticks_to_time(matches.ends, schema.field("end").type),
    ]
    if query.returns is not None:
        columns += [_returned(frame, column.expression, time) for column in query.returns]
        return pa.table(columns, schema=schema)
    for component in query.positives:
        wanted = schema.field(component.variable).type
        if component.kleene:
            events = frame.events(component.position, At.EVERY)
            structs = struct_column(query, layout, events, component, wanted.value_type)
            columns.append(_lists(frame.offsets(component.position), structs, wanted))
        else:
            events = frame.events(component.position, At.SINGLE)
            columns.append(struct_column(query, layout, events, component, wanted))
    return pa.table(columns, schema=schema)


def _returned(frame: MatchFrame, expression: Bound, time: pa.DataType) -> pa.Array:
    if isinstance(expression, Attribute | Intrinsic) and expression.at is At.EVERY:
        events = frame.events(expression.component, At.EVERY)
        values = returned(events, expression, time)
        return _lists(frame.offsets(expression.component), values, pa.list_(values.type))
    if ranges_over_events(expression):
        # An aggregate over matches may look at an expression of each event.
        every = _EveryEvent(frame, expression)
        values = from_engine(evaluate(expression, every), expression.type)
        return _lists(every.offsets, values, pa.list_(values.type))
    return returned(frame, expression, time)


class _EveryEvent:
    """All events of one component to evaluate over, a row each; what else a match has is repeated for each of them."""

    def __init__(self, frame: MatchFrame, expression: Bound) -> None:
        self._frame = frame
        ranging = (
            part for part in parts(expression) if isinstance(part, Attribute | Intrinsic) and part.at is At.EVERY
        )
        self.offsets = frame.offsets(next(ranging).component)
        self._matches = np.repeat(np.arange(frame.rows), np.diff(self.offsets))
        self.rows = len(self._matches)

    def attribute(self, reference: Attribute) -> Column:
        return self._in_rows(self._frame.attribute(reference), reference.at)

    def intrinsic(self, reference: Intrinsic) -> Column:
        return self._in_rows(self._frame.intrinsic(reference), reference.at)

    def lacks(self, reference: Attribute) -> np.ndarray | None:
        absent = self._frame.lacks(reference)
        return absent if absent is None or reference.at is At.EVERY else absent[self._matches]

    def aggregate(self, expression: Length | Aggregation) -> Column:
        return self._in_rows(self._frame.aggregate(expression), At.SINGLE)

    def _in_rows(self, column: Column, at: At) -> Column:
        return column if at is At.EVERY else column.take(arrow(self._matches))


def _lists(offsets: np.ndarray, values: pa.Array, wanted: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=wanted)
