"""Turns matches, given as row numbers, into composite events in an Arrow table (the TF operator of SASE)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.clauses import REACHED
from ouzel.bind.model import (
    Aggregation,
    At,
    Attribute,
    Bound,
    BoundQuery,
    Component,
    EventField,
    Intrinsic,
    Kind,
    Length,
    Presence,
    Type,
    parts,
)
from ouzel.errors import InputError
from ouzel.kernels.groups import (
    FIRST,
    LAST,
    LENGTH,
    count_valid,
    deviations,
    of_place,
    pick,
    pick_of_each,
    sum_floats,
    sum_integers,
)
from ouzel.kernels.order import gather
from ouzel.kernels.rows import ITSELF, TICKS
from ouzel.lang.syntax import OutputForm
from ouzel.plan.expressions import ranges_over_events
from ouzel.runtime.expressions import Frame, cast, evaluate
from ouzel.runtime.frames import Alike, EventFrame, take, ticks_to_time, without
from ouzel.runtime.inbox import GrowingRows
from ouzel.runtime.layout import Layout, end_type
from ouzel.runtime.small_answers import SmallAnswer, Taken
from ouzel.runtime.values import (
    EXACT,
    Column,
    arrow,
    engine_type,
    from_engine,
    is_computed,
    join,
    numbers,
    one_array,
    output_type,
    ranks,
    split,
)

# So many rows of a constant are kept for the next answer.
_REPEATED_MAX = 1 << 18


def output_schema(query: BoundQuery, layout: Layout) -> pa.Schema:
    """The columns of a query's matches, known before any event is seen."""
    time = _time_type(layout)
    fields = [pa.field("start", time), pa.field("end", end_type(layout, query))]
    if query.returns is None:
        fields += [pa.field(c.variable, _variable_type(query, layout, c)) for c in query.positives]
    else:
        for column in query.returns:
            fields.append(pa.field(column.name, _column_type(query, layout, column.expression)))
    if query.output.form is OutputForm.FURTHEST:
        fields.append(pa.field(REACHED, pa.int64()))
    if query.threshold is not None:
        fields += [pa.field("missing", pa.list_(pa.string()))]
        fields += [pa.field("score", pa.float64()), pa.field("probability", pa.float64())]
    return pa.schema(fields)


def _variable_type(query: BoundQuery, layout: Layout, component: Component) -> pa.DataType:
    """The type of a returned variable: a struct for a single event, a list of structs for a Kleene variable."""
    one = pa.struct(_struct_fields(query, layout, component))
    return pa.list_(one) if component.kleene else one


class Output:
    """Turns matches into composite events. What is the same for every answer of a query is computed once."""

    def __init__(self, query: BoundQuery, layout: Layout) -> None:
        self._query = query
        self._layout = layout
        self.schema = output_schema(query, layout)
        self._time = _time_type(layout)
        # An event of an incomplete match may be missing, and then its column is null.
        self._alike = _alike(query, layout) if query.threshold is None else frozenset()
        self._attributes: dict[int, list[Attribute]] = {}
        # The name of an event type as many times as it was needed so far.
        self._repeated: dict[str, pa.Array] = {}
        # The columns of RETURN, if none is computed: the place of the event, and the column of the input.
        self.taken = self._plain_columns()
        self._returns = [(column.expression, self._quick_column(column.expression)) for column in query.returns or ()]
        # What is picked of each match for the columns of a small answer: first the first event of each place.
        self._picks = [(place, FIRST) for place in range(len(query.positives))]
        self._small = self._small_answer()

    def _plain_columns(self) -> list[tuple[int, str]] | None:
        """For each column of RETURN, its positive component and its column of the input; None if some column is
        computed.
        """
        found = []
        for column in self._query.returns or ():
            quick = self._quick_column(column.expression)
            if quick is None or quick.name is None or quick.at is not At.SINGLE:
                return None
            found.append((0 if quick.name in self._alike else quick.place, quick.name))
        return None if self._query.returns is None else found

    def _quick_column(self, expression: Bound) -> _QuickColumn | None:
        """How to read a column of RETURN that needs no evaluation: a column of the input for one event of each match,
        or a number of events. None for other columns.
        """
        places = {c.position: i for i, c in enumerate(self._query.positives)}
        if isinstance(expression, Length) or (isinstance(expression, Aggregation) and expression.operand is None):
            return _QuickColumn(places[expression.component], None, At.EVERY)
        if not isinstance(expression, Attribute) or expression.present_in is not None or len(expression.path) > 1:
            return None
        types = self._query.types_of(expression.component)
        names = {self._layout.column(one, expression.path[0]) for one in types}
        if len(names) > 1 or expression.at not in (At.SINGLE, At.FIRST, At.LAST):
            return None
        return _QuickColumn(places[expression.component], names.pop(), expression.at)

    def of_places(self, matches: Places) -> pa.Table:
        """The composite events of matches that have one event for each positive component."""
        if self.taken is not None:
            return self._of_columns(matches, self.taken)
        query = self._query
        table, ticks, rows, starts, ends = matches.table, matches.ticks, matches.rows, matches.starts, matches.ends
        to_ticks = self._layout.ticks
        place = {c.position: i for i, c in enumerate(query.positives)}
        alike = Alike(self._alike, table, lambda: rows[0])
        frame = EventFrame(query, self._layout, table, ticks, lambda c: rows[place[c]], len(rows[0]), alike=alike)
        first, last = query.positives[0].position, query.positives[-1].position
        columns: list[pa.Array] = [
            frame.time(first) if starts is None else ticks_to_time(to_ticks(starts), self._time),
            frame.time(last) if ends is None else ticks_to_time(to_ticks(ends), self.schema.field("end").type),
        ]
        if query.returns is None:
            columns += [self.structs(frame, c, self.schema.field(c.variable).type) for c in query.positives]
        else:
            columns += [returned(frame, column.expression, self._time) for column in query.returns]
        return pa.table(columns, schema=self.schema)

    def _of_columns(self, matches: Places, taken: Sequence[tuple[int, str]]) -> pa.Table:
        """The composite events of matches, if all columns of RETURN are columns of the input."""
        table, ticks, rows = matches.table, matches.ticks, matches.rows
        starts = gather(ticks, rows[0]) if matches.starts is None else matches.starts
        ends = gather(ticks, rows[-1]) if matches.ends is None else matches.ends
        starts, ends = self._layout.ticks(starts), self._layout.ticks(ends)
        columns = [ticks_to_time(starts, self._time), ticks_to_time(ends, self.schema.field(1).type)]
        columns += [take(one_array(table.column(name)), rows[place]) for place, name in taken]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _small_answer(self) -> SmallAnswer | None:
        """How the columns of small answers are read. None if a column is computed, or if a match may end later than its
        last event.
        """
        query = self._query
        ends_later = query.components[-1].negated or self._layout.start is not None
        if (
            query.returns is None
            or query.threshold is not None
            or ends_later
            or len(self.schema) > 2 + len(self._returns)
        ):
            return None
        columns: list[Taken] = [(0, TICKS), (self._pick(len(query.positives) - 1, LAST), TICKS)]
        for _, quick in self._returns:
            if quick is None:
                return None
            if quick.name is None:
                columns.append((self._pick(quick.place, LENGTH), ITSELF))
            else:
                place = 0 if quick.name in self._alike else quick.place
                columns.append((self._pick(place, LAST if quick.at is At.LAST else FIRST), quick.name))
        made = SmallAnswer(columns, self.schema, self._layout.scale)
        return made if made.writes_times else None

    def _pick(self, place: int, what: int) -> int:
        """The number of a pick, which is added if it is new."""
        if what == LAST and not self._query.positives[place].kleene:
            what = FIRST
        if (place, what) not in self._picks:
            self._picks.append((place, what))
        return self._picks.index((place, what))

    def of_slots(
        self, growing: GrowingRows, base: int, numbers: np.ndarray, slots: np.ndarray, count: int
    ) -> pa.Table | None:
        """Like `of_places`, for rows of small pushes; see `SmallAnswer.batch`. None if that returns None, if a column
        is computed, or if a match may end later than its last event.
        """
        made = None if self._small is None else self._small.batch(growing, base, numbers, slots, count)
        return None if made is None else pa.Table.from_batches([made], self.schema)

    def of_slot_lists(
        self, growing: GrowingRows, base: int, numbers: np.ndarray, slots: np.ndarray, lengths: np.ndarray
    ) -> pa.Table | None:
        """Like `of_slots`, for matches with any number of events at a place, `lengths[match, place]`."""
        if self._small is None:
            return None
        picked = np.empty((len(self._picks), len(lengths)), np.int32)
        pick_of_each(slots, lengths, self._pick_table, picked)
        return self.of_slots(growing, base, numbers, picked, len(lengths))

    @cached_property
    def _pick_table(self) -> np.ndarray:
        return np.array(self._picks, np.int32)

    def of_matches(self, matches: AnyMatches) -> pa.Table:
        """The composite events of matches that may have Kleene variables."""
        query, schema, time = self._query, self.schema, self._time
        frame = MatchFrame(query, self._layout, matches, alike=self._alike)
        columns: list[pa.Array] = [
            ticks_to_time(self._layout.ticks(matches.starts), time),
            ticks_to_time(self._layout.ticks(matches.ends), schema.field("end").type),
        ]
        if query.returns is not None:
            for expression, quick in self._returns:
                if quick is None:
                    columns.append(_returned(frame, expression, time))
                elif quick.name is None:
                    columns.append(arrow(matches.counts(quick.place)))
                else:
                    rows = matches.last_rows if quick.at is At.LAST else matches.first_rows
                    taken = take(one_array(matches.table.column(quick.name)), rows(quick.place))
                    columns.append(without(taken, _absent(matches, quick.place)))
            return pa.Table.from_arrays(columns, schema=schema)
        for component in query.positives:
            wanted = schema.field(component.variable).type
            if component.kleene:
                events = frame.events(component.position, At.EVERY)
                structs = self.structs(events, component, wanted.value_type)
                columns.append(_lists(frame.offsets(component.position), structs, wanted))
            else:
                events = frame.events(component.position, At.SINGLE)
                columns.append(self.structs(events, component, wanted))
        return pa.table(columns, schema=schema)

    def structs(self, frame: EventFrame, component: Component, type_: pa.StructType) -> pa.Array:
        """The events of a component, as an array of structs."""
        if component.position not in self._attributes:
            self._attributes[component.position] = _attributes(self._query, self._layout, component)
        mask = None if frame.absent is None else pa.array(frame.absent)
        # What is under a null need not be null itself.
        frame = frame.unmasked
        children = []
        for attribute, field in zip(self._attributes[component.position], type_, strict=True):
            if attribute.path[0] == self._layout.type and component.types is not None and len(component.types) == 1:
                # Every event of the component has the same type: no need to gather its name.
                children.append(self._repeat(component.types[0], frame.rows, field.type))
            else:
                children.append(frame.raw(attribute))
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)

    def _repeat(self, text: str, count: int, wanted: pa.DataType) -> pa.Array:
        """An array with the same text `count` times. Answers share its memory."""
        known = self._repeated.get(text)
        if known is None or len(known) < count:
            known = _constant_text(text, count, wanted)
            if count <= _REPEATED_MAX:
                self._repeated[text] = known
        return known.slice(0, count)


class _QuickColumn(NamedTuple):
    """A column of RETURN that is a column of the input or, if it has no name, the number of events at a place."""

    place: int  # among the positive components
    name: str | None
    at: At


def _alike(query: BoundQuery, layout: Layout) -> frozenset[str]:
    """The columns of equivalence tests. They are read only once for each match, which makes large answers much
    cheaper.
    """
    found = set()
    for test in query.equivalences:
        if len(test.path) > 1 or any(test.lacked_by.get(c.position) for c in query.positives):
            continue
        columns = {layout.column(t, test.path[0]) for c in query.positives for t in query.types_of(c.position)}
        # Zeros of both signs are equal, and so are all NaN, but their bits differ.
        if len(columns) == 1 and not pa.types.is_floating(layout.schema.field(*columns).type):
            found |= columns
    return frozenset(found)


def _time_type(layout: Layout) -> pa.DataType:
    return layout.schema.field(layout.time).type


def _struct_fields(query: BoundQuery, layout: Layout, component: Component) -> list[pa.Field]:
    return [
        pa.field(attribute.path[0], attribute_type(query, layout, attribute))
        for attribute in _attributes(query, layout, component)
    ]


def _attributes(query: BoundQuery, layout: Layout, component: Component) -> list[Attribute]:
    """The attributes of a component's types, in column order. For ANY, the attributes of all its types."""
    catalog = query.catalog
    owners: dict[str, list[str]] = {}
    kinds: dict[str, Type] = {}
    assert not catalog.open, "a query is bound to a schema before it runs"
    if catalog.declared is None and catalog.common is not None:
        return [Attribute(component.position, (name,), type=type_) for name, type_ in catalog.common.items()]
    types = query.types_of(component.position)
    for event_type in types:
        for name, type_ in (catalog.attributes(event_type) or {}).items():
            owners.setdefault(name, []).append(event_type)
            kinds.setdefault(name, type_)
    return [
        Attribute(
            component.position,
            (name,),
            type=kinds[name],
            present_in=None if len(having) == len(types) else frozenset(having),
        )
        for name, having in owners.items()
    ]


def attribute_type(query: BoundQuery, layout: Layout, attribute: Attribute) -> pa.DataType:
    """The type that an attribute has in the input."""
    types = query.types_of(attribute.component)
    owners = [t for t in types if attribute.present_in is None or t in attribute.present_in]
    columns = sorted({layout.column(owner, attribute.path[0]) for owner in owners})
    found = layout.schema.field(columns[0]).type
    for column in columns[1:]:
        found = _common_type(found, layout.schema.field(column).type, attribute.path[0])
    for name in attribute.path[1:]:
        found = found.field(name).type
    return found


def _common_type(one: pa.DataType, other: pa.DataType, name: str) -> pa.DataType:
    """The type of an attribute that is in columns of two types, as `EventFrame.raw` puts them together."""
    if one == other:
        return one
    try:
        return pc.if_else(pa.array([], pa.bool_()), pa.array([], one), pa.array([], other)).type
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            f"the attribute '{name}' is of type {one} in events of one type and {other} in those of another, so one "
            "column cannot have both; convert them to one type, or name the columns of the answer with RETURN"
        ) from None


def _column_type(query: BoundQuery, layout: Layout, expression: Bound) -> pa.DataType:
    if isinstance(expression, Attribute | Intrinsic) and expression.at is At.EVERY:
        return pa.list_(_column_type(query, layout, replace(expression, at=At.SINGLE)))
    if isinstance(expression, Attribute):
        return attribute_type(query, layout, expression)
    if isinstance(expression, Intrinsic) and expression.field is not EventField.TYPE:
        return _time_type(layout)
    if ranges_over_events(expression):
        return pa.list_(output_type(expression.type))
    if isinstance(expression, Aggregation) and not is_computed(expression.type):
        # The first or last of values that are not computed with.
        assert isinstance(expression.operand, Attribute)
        return attribute_type(query, layout, expression.operand)
    return output_type(expression.type)


def _constant_text(text: str, count: int, wanted: pa.DataType) -> pa.Array:
    """The same text `count` times; Arrow's own `repeat` is several times slower."""
    data = text.encode("utf-8")
    if wanted != pa.string() or len(data) * count >= 2**31:
        return pa.repeat(pa.scalar(text), count).cast(wanted)
    offsets = np.arange(0, len(data) * (count + 1), max(len(data), 1), dtype=np.int32) if data else None
    if offsets is None:
        return pa.repeat(pa.scalar(text), count)
    return pa.Array.from_buffers(wanted, count, [None, pa.py_buffer(offsets), pa.py_buffer(data * count)])


class RawFrame(Frame, Protocol):
    """A frame that also returns attributes in their input types."""

    def raw(self, reference: Attribute) -> pa.Array: ...


def returned(frame: RawFrame, expression: Bound, time: pa.DataType) -> pa.Array:
    """A column of RETURN, in its output type."""
    if isinstance(expression, Attribute):
        return frame.raw(expression)
    value = evaluate(expression, frame)
    if isinstance(expression, Intrinsic) and expression.field is not EventField.TYPE:
        return ticks_to_time(numbers(value), time)
    return from_engine(value, expression.type)


@dataclass(frozen=True)
class Places:
    """Matches with one event for each positive component. `rows[component]` has the row in `table` of its event in each
    match. `starts` and `ends` are None if they are the times of the first and last events.
    """

    table: pa.Table
    ticks: np.ndarray
    rows: Sequence[np.ndarray]
    starts: np.ndarray | None = None
    ends: np.ndarray | None = None

    @property
    def count(self) -> int:
        return len(self.rows[0])

    @property
    def listed(self) -> tuple[np.ndarray, np.ndarray]:
        """(lengths, rows): the number of events of each match at each place, and the rows of all events match by
        match.
        """
        rows = np.stack(self.rows, axis=1)
        return np.ones(rows.shape, np.int32), rows.reshape(-1)

    def picked(self, order: np.ndarray) -> Places:
        """The matches with these indexes, in this order."""
        starts, ends = (None if ticks is None else ticks[order] for ticks in (self.starts, self.ends))
        return replace(self, rows=[rows[order] for rows in self.rows], starts=starts, ends=ends)

    def sliced(self, first: int, last: int) -> Places:
        """The matches from one to another."""
        starts, ends = (None if ticks is None else ticks[first:last] for ticks in (self.starts, self.ends))
        return replace(self, rows=[rows[first:last] for rows in self.rows], starts=starts, ends=ends)

    def moved(self, base: int) -> Places:
        """The same matches after their table has become part of another one, where it begins at row `base`."""
        return replace(self, rows=[rows + np.int32(base) for rows in self.rows])

    def all_rows(self, place: int) -> np.ndarray:
        return self.rows[place]

    def first_rows(self, place: int) -> np.ndarray:
        return self.rows[place]


@dataclass(frozen=True)
class Matches:
    """Matches as rows of a table. `lengths[match, place]` is the number of events of a positive component. `rows` are
    the row numbers of all events in `table`, match by match and place by place.
    """

    table: pa.Table
    ticks: np.ndarray
    lengths: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @property
    def count(self) -> int:
        return len(self.starts)

    def picked(self, order: np.ndarray) -> Matches:
        """The matches with these indexes, in this order."""
        _, rows = picked_lists(self.bounds, self.rows, order)
        return replace(self, lengths=self.lengths[order], rows=rows, starts=self.starts[order], ends=self.ends[order])

    @cached_property
    def _side_by_side(self) -> np.ndarray | None:
        """The rows as an array [match, place], if each place has one event; otherwise None."""
        return self.rows.reshape(self.lengths.shape) if self.rows.size == self.lengths.size else None

    def sliced(self, first: int, last: int) -> Matches:
        """The matches from one to another."""
        # The first events of all places of a match, one after the other.
        places = self.lengths.shape[1]
        rows = self.rows[self.firsts[first * places] : self.firsts[last * places]]
        return replace(
            self,
            lengths=self.lengths[first:last],
            rows=rows,
            starts=self.starts[first:last],
            ends=self.ends[first:last],
        )

    def moved(self, base: int) -> Matches:
        """The same matches after their table has become part of another one, where it begins at row `base`."""
        return replace(self, rows=self.rows + np.int32(base))

    @property
    def listed(self) -> tuple[np.ndarray, np.ndarray]:
        """(lengths, rows): the number of events of each match at each place, and the rows of all events match by
        match.
        """
        return self.lengths, self.rows

    @property
    def bounds(self) -> np.ndarray:
        """Where the events of each match begin in `rows`, and the total number of events."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths.sum(axis=1, dtype=np.int64))])

    @cached_property
    def firsts(self) -> np.ndarray:
        """Where the events of each place of each match begin in `rows`, and the total number of events."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths, dtype=np.int64)])

    def counts(self, place: int) -> np.ndarray:
        """The number of events of each match at a place."""
        return self.lengths[:, place].astype(np.int64)

    def offsets(self, place: int) -> np.ndarray:
        """Where the events of each match begin in `all_rows(place)`."""
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
        first: np.ndarray = self.rows[self.firsts[place :: self.lengths.shape[1]][: self.count]]
        return first

    def last_rows(self, place: int) -> np.ndarray:
        if self._side_by_side is not None:
            return np.ascontiguousarray(self._side_by_side[:, place])
        last: np.ndarray = self.rows[self.firsts[place + 1 :: self.lengths.shape[1]][: self.count] - 1]
        return last


def picked_lists(offsets: np.ndarray, values: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lists with some indexes, in this order, as offsets and values.

    >>> offsets, values = picked_lists(np.array([0, 2, 2, 3]), np.array([7, 8, 9]), np.array([2, 0]))
    >>> offsets.tolist(), values.tolist()
    ([0, 1, 3], [9, 7, 8])
    """
    firsts, lengths = offsets[order], np.diff(offsets)[order]
    ends = np.cumsum(lengths)
    # The values of a list lie side by side: its first one, moved by how many came before.
    moved = np.repeat(firsts - (ends - lengths), lengths)
    moved += np.arange(len(moved))
    return np.concatenate([np.zeros(1, np.int64), ends]), values[moved]


def joined_matches(slices: Sequence[tuple[Matches, int, int]]) -> Matches:
    """The matches of slices of several ones of the same table, each from one match to another."""
    parts = [matches.sliced(first, last) for matches, first, last in slices]
    arrays = ((part.lengths, part.rows, part.starts, part.ends) for part in parts)
    lengths, rows, starts, ends = (np.concatenate(one) for one in zip(*arrays, strict=True))
    return Matches(slices[0][0].table, slices[0][0].ticks, lengths, rows, starts, ends)


@dataclass(frozen=True)
class MatchesByPlace:
    """Matches whose events are stored by place: (offsets, rows) of each place, match by match."""

    table: pa.Table
    ticks: np.ndarray
    places: list[tuple[np.ndarray, np.ndarray]]
    starts: np.ndarray
    ends: np.ndarray

    @property
    def count(self) -> int:
        return len(self.starts)

    def counts(self, place: int) -> np.ndarray:
        return np.diff(self.places[place][0]).astype(np.int64)

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


class UnitedMatches:
    """The matches of several readings. A place has one row for each match; -1 if the match has no event there. For a
    repetition it has the offsets and rows of a list for each match. `common` is a place at which every match has an
    event; None if there is none.
    """

    def __init__(
        self,
        table: pa.Table,
        ticks: np.ndarray,
        places: Sequence[np.ndarray | tuple[np.ndarray, np.ndarray]],
        starts: np.ndarray,
        ends: np.ndarray,
        common: int | None = None,
    ) -> None:
        self.table = table
        self.ticks = ticks
        self.places = places
        self.starts = starts
        self.ends = ends
        self.common = common

    @property
    def count(self) -> int:
        return len(self.starts)

    def picked(self, order: np.ndarray) -> UnitedMatches:
        """The matches with these indexes, in this order."""
        places = [
            picked_lists(*rows, order) if isinstance(rows, tuple) else gather(rows, order) for rows in self.places
        ]
        starts, ends = gather(self.starts, order), gather(self.ends, order)
        return UnitedMatches(self.table, self.ticks, places, starts, ends, self.common)

    def absent(self, place: int) -> np.ndarray | None:
        """Which matches have no event at a place; None if all have one."""
        rows = self.places[place]
        found: np.ndarray = rows < 0 if isinstance(rows, np.ndarray) else self.counts(place) == 0
        return found if found.any() else None

    def counts(self, place: int) -> np.ndarray:
        rows = self.places[place]
        return (rows >= 0).astype(np.int64) if isinstance(rows, np.ndarray) else np.diff(rows[0])

    def offsets(self, place: int) -> np.ndarray:
        rows = self.places[place]
        if isinstance(rows, tuple):
            return rows[0]
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.counts(place))])

    def all_rows(self, place: int) -> np.ndarray:
        rows = self.places[place]
        return rows[rows >= 0] if isinstance(rows, np.ndarray) else rows[1]

    def first_rows(self, place: int) -> np.ndarray:
        rows = self.places[place]
        return self._rows_of(rows) if isinstance(rows, np.ndarray) else _rows_at(rows[1], rows[0][:-1])

    def last_rows(self, place: int) -> np.ndarray:
        rows = self.places[place]
        return self._rows_of(rows) if isinstance(rows, np.ndarray) else _rows_at(rows[1], rows[0][1:] - 1)

    def _rows_of(self, rows: np.ndarray) -> np.ndarray:
        """The rows of a place. A match without an event there gets the first row of the table."""
        return np.maximum(rows, 0) if len(rows) and rows.min() < 0 else rows


def _rows_at(rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The rows at some places. A match without an event gets any row."""
    if not len(rows):
        return np.zeros(len(places), np.int32)
    found: np.ndarray = rows[np.clip(places, 0, len(rows) - 1)]
    return found


AnyMatches = Matches | MatchesByPlace | UnitedMatches


def _absent(matches: AnyMatches, place: int) -> np.ndarray | None:
    """Which matches have no event at a place; None if all have one."""
    return matches.absent(place) if isinstance(matches, UnitedMatches) else None


class MatchFrame:
    """A frame with one match per row."""

    def __init__(
        self, query: BoundQuery, layout: Layout, matches: AnyMatches, *, alike: frozenset[str] = frozenset()
    ) -> None:
        self._query = query
        self._layout = layout
        self._matches = matches
        self._place = {component.position: number for number, component in enumerate(query.positives)}
        self._frames: dict[tuple[int, At], EventFrame] = {}
        # A place at which every match has an event.
        common = matches.common if isinstance(matches, UnitedMatches) else 0
        self._alike = None if common is None else Alike(alike, matches.table, lambda: matches.first_rows(common))
        self.rows = matches.count

    def events(self, component: int, at: At) -> EventFrame:
        """A frame of the events of a component: the first or last of each match, or with EVERY all of them."""
        if (component, at) not in self._frames:
            place = self._place[component]
            absent = None if at is At.EVERY else _absent(self._matches, place)
            if at is At.EVERY:
                rows = self._matches.all_rows(place)
            elif at is At.LAST:
                rows = self._matches.last_rows(place)
            else:
                rows = self._matches.first_rows(place)
            self._frames[component, at] = EventFrame(
                self._query,
                self._layout,
                self._matches.table,
                self._matches.ticks,
                lambda _: rows,
                len(rows),
                alike=None if at is At.EVERY else self._alike,
                absent=absent,
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

    def aggregate(self, expression: Length | Presence | Aggregation) -> Column:
        """For each match, a length or an aggregate over all events of a component, or whether there are any."""
        offsets = self.offsets(expression.component)
        if isinstance(expression, Presence):
            return pa.array(np.diff(offsets) > 0)
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
    if function == "count_distinct":
        return arrow(_count_distinct(values, valid, offsets))
    if function == "sum" and kind.kind is Kind.DECIMAL:
        return _decimal_sum(expression, values, offsets)
    if function in ("sum", "avg", "stddev"):
        if function == "sum" and kind.kind in (Kind.INT, Kind.DURATION):
            sums, exists = sum_integers(offsets, *split(values, np.int64))
            return join(sums, exists, pa.int64())
        floats, valid = split(cast(values, kind, replace(kind, kind=Kind.FLOAT)), np.float64)
        totals, exists = (deviations if function == "stddev" else sum_floats)(offsets, floats, valid)
        if function == "avg":
            totals = totals / np.maximum(count_valid(offsets, valid), 1)
        return join(totals, exists, pa.float64())
    if function in ("min", "max"):
        order = ranks(values)
        picked = pick(offsets, order if function == "min" else -order, valid, False)
    else:
        picked = pick(offsets, np.zeros(len(valid), np.int64), valid, function == "last")
    return values.take(pa.array(picked, mask=picked < 0))


def _count_distinct(values: Column, valid: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The number of different values in each match, without nulls."""
    if pa.types.is_null(values.type):
        return np.zeros(len(offsets) - 1, np.int64)
    matches = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[valid]
    order = ranks(values)[valid]
    by_value = np.lexsort((order, matches))
    matches, order = matches[by_value], order[by_value]
    is_first = np.ones(len(matches), bool)
    is_first[1:] = (matches[1:] != matches[:-1]) | (order[1:] != order[:-1])
    return np.bincount(matches[is_first], minlength=len(offsets) - 1).astype(np.int64)


def _decimal_sum(expression: Aggregation, values: Column, offsets: np.ndarray) -> Column:
    """The exact sums of decimals. Null if a sum exceeds 18 digits at any step."""
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


def _returned(frame: MatchFrame, expression: Bound, time: pa.DataType) -> pa.Array:
    if isinstance(expression, Attribute | Intrinsic) and expression.at is At.EVERY:
        events = frame.events(expression.component, At.EVERY)
        values = returned(events, expression, time)
        return _lists(frame.offsets(expression.component), values, pa.list_(values.type))
    if ranges_over_events(expression):
        # An aggregate over matches may read an expression of each event.
        every = _EveryEvent(frame, expression)
        values = from_engine(evaluate(expression, every), expression.type)
        return _lists(every.offsets, values, pa.list_(values.type))
    return returned(frame, expression, time)


class _EveryEvent:
    """A frame with all events of one component of the matches, one per row. Other values of a match are repeated for
    each of its events.
    """

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

    def aggregate(self, expression: Length | Presence | Aggregation) -> Column:
        return self._in_rows(self._frame.aggregate(expression), At.SINGLE)

    def _in_rows(self, column: Column, at: At) -> Column:
        return column if at is At.EVERY else column.take(arrow(self._matches))


def _lists(offsets: np.ndarray, values: pa.Array, wanted: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=wanted)


# ── Readings ───────────────────────────────────────────────────────────────────────────────────────


# The column of OUTPUT COMPRESSED with the number of the reading, counted from 1.
READING = "reading"


def conformed(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A column in another type. Structs may get other fields, with nulls for those that they lack."""
    if column.type == wanted:
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), wanted)
    if pa.types.is_struct(wanted):
        fields = [
            conformed(column.field(one.name), one.type)
            if column.type.get_field_index(one.name) >= 0
            else pa.nulls(len(column), one.type)
            for one in wanted
        ]
        return pa.StructArray.from_arrays(
            fields, fields=list(wanted), mask=column.is_null() if column.null_count else None
        )
    if pa.types.is_list(wanted):
        offsets = column.offsets
        values = conformed(column.values, wanted.value_type)
        return pa.ListArray.from_arrays(offsets, values, type=wanted)
    return column.cast(wanted)
