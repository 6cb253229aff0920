"""The meaning of the input's columns: the wide table with the events of all types, the catalog for the binder, and the
columns that a plan reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.model import Attribute, Bound, BoundQuery, Catalog, EventField, Intrinsic
from ouzel.bind.row_patterns import BoundRowPattern
from ouzel.bind.schema import catalog_for, type_of_arrow
from ouzel.errors import InputError, argument
from ouzel.lang.row_syntax import Rows
from ouzel.lang.syntax import OutputForm
from ouzel.plan.expressions import attribute_of, walk
from ouzel.plan.model import Plan
from ouzel.runtime.inputs import check_no_null_time
from ouzel.runtime.values import empty_table, numbers, one_array, retyped

# A watermark at this tick has seen nothing, so no event can be at it.
NEVER = -(2**63)
_LATEST = 2**63 - 1
# The value of order= that orders the events of one time as they arrive; a list of one column may have that name too.
ARRIVAL = "arrival"
Order: TypeAlias = Sequence[str]  # names of columns, or ARRIVAL
# The column that names the input of a row, if there are several inputs.
INPUT_TYPE = "event type"


_NO_ROWS = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class MomentScale:
    """Converts between ticks and moments. A moment is one number for the time of an event and its place among the
    events of that time (`order=`).

    A tick has 2^bits moments, of which events use the first half. So a window of T ticks is `T * 2^bits - half` moments
    for all places of its first and last event, and kernels can compare moments just like ticks.
    """

    bits: int
    base: int  # the tick of moment 0

    @property
    def half(self) -> int:
        """The number of different places that events of one tick may have."""
        return 1 << (self.bits - 1)

    def moments(self, ticks: np.ndarray, rows: np.ndarray = _NO_ROWS, places: np.ndarray = _NO_ROWS) -> np.ndarray:
        """The moments of events with these ticks. The events in `rows` have the given `places`; all others have the
        first place of their tick.
        """
        if len(places) and int(places.max()) >= self.half:
            raise InputError(
                f"the columns of order= must have at most {self.half:,} different values at one time here, and one "
                "time has more; give times in a finer unit, or with ouzel.match all events at once"
            )
        reach = 1 << (62 - self.bits)
        if len(ticks) and (int(ticks.max()) - self.base >= reach or self.base - int(ticks.min()) > reach):
            raise InputError(
                f"with order= the times of a stream must be less than {reach:,} ticks from its first ones, and one is "
                "not; give times in a coarser unit, such as microseconds"
            )
        moments: np.ndarray = ticks - self.base
        moments <<= self.bits
        moments[rows] += places
        return moments

    def ticks(self, moments: np.ndarray) -> np.ndarray:
        """The ticks of moments."""
        return (moments >> self.bits) + self.base

    def window(self, ticks: int) -> int:
        """The number of moments of a window of `ticks` ticks."""
        reach = 1 << (62 - self.bits)
        return (min(ticks, reach) << self.bits) - self.half

    def tick(self, moment: int) -> int:
        """The tick of one moment."""
        return (moment >> self.bits) + self.base

    def end_of(self, tick: int) -> int:
        """The last moment of a tick."""
        reach = 1 << (62 - self.bits)
        distance = tick - self.base
        if distance >= reach:
            return _LATEST
        return NEVER if distance < -reach else (distance + 1 << self.bits) - 1

    def after_events(self, moments: np.ndarray) -> np.ndarray:
        """For each moment, the last moment that an event of its tick may have."""
        return (moments >> self.bits << self.bits) + (self.half - 1)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a wide table has the events of a stream.

    `type` is the column that names the event type; None if every event has the type `only_type`. `physical` maps (event
    type, attribute) to a wide column, for attributes whose column has another name.
    """

    schema: pa.Schema
    time: str
    type: str | None
    only_type: str | None = None
    order: tuple[str, ...] = ()
    physical: Mapping[tuple[str, str], str] = dataclass_field(default_factory=dict)
    # The column with the start, in ticks, of events that last; None if every event starts at its time.
    start: str | None = None
    # Whether events of one time are ordered as they arrive.
    by_arrival: bool = False
    # How the events of one time are ordered; None if nothing orders them.
    scale: MomentScale | None = None

    @property
    def is_ordered(self) -> bool:
        """Whether `order=` orders the events of one time."""
        return bool(self.order) or self.by_arrival

    def ticks(self, moments: np.ndarray) -> np.ndarray:
        """The ticks of moments. Without a scale these are ticks already."""
        return moments if self.scale is None else self.scale.ticks(moments)

    def column(self, event_type: str | None, attribute: str) -> str:
        """The wide column that holds an attribute of an event type."""
        return self.physical.get((event_type or "", attribute), attribute)


def layout_of_table(
    schema: pa.Schema,
    *,
    time: str,
    type: str | None,
    only_type: str | None = None,
    order: Order = (),
) -> Layout:
    """The layout of one table whose `type` column names the event type of each row."""
    names = () if order == ARRIVAL else tuple(order)
    for name in (time, *names, *([type] if type is not None else [])):
        if name not in schema.names:
            what = "time" if name == time else "type" if name == type else "order"
            raise InputError(
                f"there is no {what} column '{name}'; the columns are {', '.join(map(repr, schema.names))}. "
                "Name it with ",
                argument(what),
                *(("; if all events are of one type, give ", argument("type", None)) if what == "type" else ()),
            )
    repeated = {name for name in schema.names if schema.names.count(name) > 1}
    if repeated:
        raise InputError(f"duplicate column '{sorted(repeated)[0]}' in the input; rename one")
    if type is not None and not _names_types(schema.field(type).type):
        raise InputError(f"the type column '{type}' is of type {schema.field(type).type}; it must be text")
    return Layout(schema, time, type, only_type, names, by_arrival=order == ARRIVAL)


def _names_types(kind: pa.DataType) -> bool:
    """Whether values of an Arrow type can be names of event types."""
    has_no_text = (pa.types.is_nested, pa.types.is_interval, pa.types.is_duration, pa.types.is_fixed_size_binary)
    if any(test(kind) for test in has_no_text) or isinstance(kind, pa.BaseExtensionType):
        return False
    return not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def layout_of_inputs(schemas: Mapping[str, pa.Schema], *, time: str, order: Order = ()) -> Layout:
    """The layout of several tables, one per event type, combined into one wide table.

    Columns with the same name and type share a wide column. If their types differ, each event type has a column of its
    own.
    """
    if order == ARRIVAL:
        raise InputError(
            argument("order", ARRIVAL),
            " needs one input, whose rows are in the order of arrival; of several tables, name columns that order them",
        )
    fields: dict[str, pa.Field] = {INPUT_TYPE: pa.field(INPUT_TYPE, pa.string())}
    physical: dict[tuple[str, str], str] = {}
    for event_type, schema in schemas.items():
        layout_of_table(schema, time=time, type=None, order=order)
        for column in schema:
            known = fields.setdefault(column.name, pa.field(column.name, column.type))
            if known.type != column.type:
                if column.name == time and (finer := _finer_time(known.type, column.type)) is not None:
                    fields[time] = pa.field(time, finer)
                    continue
                if column.name in (time, *order):
                    raise InputError(
                        f"the column '{column.name}' is of type {known.type} in one input and {column.type} in that of "
                        f"'{event_type}'; convert them to one type"
                    )
                wide = f"{column.name} of {event_type}"
                fields[wide] = pa.field(wide, column.type)
                physical[(event_type, column.name)] = wide
    return Layout(pa.schema(list(fields.values())), time, INPUT_TYPE, None, tuple(order), physical)


def _finer_time(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """A type for times of both types: the finer unit or the wider integer. None if they cannot be compared."""
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right) and left.tz == right.tz:
        units = ("s", "ms", "us", "ns")
        return left if units.index(left.unit) > units.index(right.unit) else right
    return pa.int64() if pa.types.is_integer(left) and pa.types.is_integer(right) else None


def end_type(layout: Layout, query: BoundQuery) -> pa.DataType:
    """The type of `end`: that of the input's times, or one with a finer unit if a match can end with its window,
    between two such times.
    """
    time = layout.schema.field(layout.time).type
    by_window = query.ends_with_window or query.emit_on_change
    if by_window and pa.types.is_timestamp(time) and time.unit in ("s", "ms"):
        return pa.timestamp("us", time.tz)
    return time


def catalog_of(
    layout: Layout,
    *,
    schemas: Mapping[str, pa.Schema] | None = None,
    declared: Mapping[str, Any] | None = None,
    time_unit: str | None = None,
) -> Catalog:
    """The binder's knowledge about the input.

    `schemas` has a schema for each event type, if there are several inputs. `declared` lists the columns of each
    type.
    """
    if schemas is not None:
        return catalog_for(declared, tables=schemas, time=layout.time, time_unit=time_unit)
    catalog = catalog_for(declared, schema=layout.schema, time=layout.time, time_unit=time_unit)
    if catalog.declared is None:
        return catalog
    # Every event has its type and time, even if not declared.
    own = {name: type_of_arrow(layout.schema.field(name).type) for name in (layout.type, layout.time) if name}
    return replace(catalog, declared={name: own | dict(columns) for name, columns in catalog.declared.items()})


def widen(inputs: Mapping[str, pa.Table], layout: Layout) -> pa.Table:
    """Inputs with one event type each, as one wide table."""
    parts = []
    for event_type, table in inputs.items():
        columns = {}
        for field in layout.schema:
            source = next((n for n in table.column_names if layout.column(event_type, n) == field.name), None)
            if field.name == INPUT_TYPE:
                columns[field.name] = pa.repeat(pa.scalar(event_type), table.num_rows)
            elif source is None:
                columns[field.name] = pa.nulls(table.num_rows, field.type)
            else:
                column = table.column(source)
                if pa.types.is_null(field.type) and not pa.types.is_null(column.type):
                    raise _untyped(source, column.type)
                columns[field.name] = retyped(column, field.type)
        parts.append(pa.table(columns, schema=layout.schema))
    return pa.concat_tables(parts) if parts else empty_table(layout.schema)


def has_no_type(layout: Layout, column: str) -> bool:
    """Whether a wide column had only nulls in the first batch."""
    place = layout.schema.get_field_index(column)
    return bool(place >= 0 and pa.types.is_null(layout.schema.field(place).type))


def _untyped(column: str, given: pa.DataType) -> InputError:
    return InputError(
        f"the type of column '{column}' must be known before its first value: the first batch had only nulls, and this "
        f"one has {given}. Give schema=, an Arrow schema with the types of all columns, or a first batch that has them"
    )


def conform(table: pa.Table, layout: Layout) -> pa.Table:
    """A later batch with the columns and types of the first one. Columns may come in another order, and extra columns
    are dropped.
    """
    if table.schema.equals(layout.schema):
        return table
    columns = []
    for field in layout.schema:
        if field.name not in table.column_names:
            raise InputError(
                f"the column '{field.name}' is missing in this batch; each batch must have the columns of the first "
                "one, or of schema="
            )
        column = table.column(field.name)
        if column.type != field.type:
            if pa.types.is_null(field.type):
                raise _untyped(field.name, column.type)
            if field.name == layout.time:
                _check_same_clock(field, column.type)
            try:
                column = retyped(column, field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise InputError(
                    f"the column '{field.name}' is of type {column.type} in this batch and {field.type} in earlier "
                    f"ones, and cannot be converted: {error}"
                ) from None
        columns.append(column)
    return pa.table(columns, schema=layout.schema)


def _check_same_clock(known: pa.Field, given: pa.DataType) -> None:
    """Raise an error if times are of another kind than before. Arrow would convert them: numbers as microseconds, and
    times without a zone as UTC.
    """
    moments = [pa.types.is_timestamp(one) for one in (known.type, given)]
    if moments[0] and moments[1] and (known.type.tz is None) != (given.tz is None):
        has, lacks = ("earlier batches", "this one") if known.type.tz else ("this batch", "earlier ones")
        raise InputError(
            f"the times in column '{known.name}' have a zone in {has} and none in {lacks}; convert them to one kind"
        )
    if (moments[0] and pa.types.is_integer(given)) or (moments[1] and pa.types.is_integer(known.type)):
        raise InputError(
            f"the times in column '{known.name}' are {given} in this batch and {known.type} in earlier ones; "
            "make them all alike"
        )


def ticks_of(table: pa.Table, layout: Layout) -> np.ndarray:
    """Event times as int64 ticks. For timestamps a tick is a microsecond, or a nanosecond if that is their unit.
    Integers are ticks already.
    """
    ticks = unchecked_ticks(table, layout)
    if len(ticks) and ticks.min() == NEVER:
        raise InputError(
            f"a time in column '{layout.time}' is the smallest number of 64 bits, which means no time; "
            "filter such events out"
        )
    return ticks


def unchecked_ticks(table: pa.Table, layout: Layout) -> np.ndarray:
    """Like `ticks_of`, but times may be NEVER."""
    column = table.column(layout.time)
    check_no_null_time(column, layout.time)
    array = one_array(column)
    if pa.types.is_timestamp(array.type) and array.type.unit in ("s", "ms"):
        try:
            array = pc.cast(array, pa.timestamp("us", array.type.tz))
        except pa.ArrowInvalid:
            raise InputError(
                f"a time in column '{layout.time}' does not fit 64 bits of microseconds; "
                "such times are about 300,000 years away; filter them out"
            ) from None
    if array.type != pa.int64():
        try:
            array = array.view(pa.int64()) if pa.types.is_timestamp(array.type) else pc.cast(array, pa.int64())
        except pa.ArrowInvalid as error:
            raise InputError(f"a time in column '{layout.time}' does not fit 64 bits: {error}") from None
    return numbers(array)


def tick_of(to: int | datetime, layout: Layout) -> int:
    """A time that a user passes to advance(), as a tick."""
    time = layout.schema.field(layout.time).type
    if isinstance(to, int | np.integer) and not isinstance(to, bool) and abs(int(to)) < 2**63:
        return int(to)
    if isinstance(to, datetime | date) and pa.types.is_timestamp(time):
        if (getattr(to, "tzinfo", None) is None) != (time.tz is None):
            if time.tz:
                given, wanted = "no time zone, but the time column has one", "with"
            else:
                given, wanted = "a time zone, but the time column has none", "without"
            raise InputError(f"advance() got {to!r}, which has {given}; pass a time {wanted} a time zone")
        unit = "ns" if time.unit == "ns" else "us"
        return int(pc.cast(pa.scalar(to, pa.timestamp(unit, time.tz)), pa.int64()).as_py())
    raise InputError(f"advance() must be given a time of type {time}, got {to!r}")


def columns_read(query: BoundQuery, layout: Layout, expressions: Iterable[Bound]) -> set[str]:
    """The columns that expressions read, including the type column if their values depend on the event's type."""
    found: set[str] = set()
    for expression in expressions:
        for part in walk(expression):
            if isinstance(part, Attribute):
                types = query.types_of(part.component)
                columns = {layout.column(event_type, part.path[0]) for event_type in types}
                found |= columns
                if layout.type is not None and (part.present_in is not None or len(columns) > 1):
                    found.add(layout.type)
            elif isinstance(part, Intrinsic) and part.field is EventField.TYPE and layout.type is not None:
                found.add(layout.type)
            elif isinstance(part, Intrinsic) and part.field is EventField.START and layout.start is not None:
                found.add(layout.start)
    return found


def output_columns(plan: Plan, layout: Layout) -> set[str]:
    """The columns that must be kept for the output, and for predicates that are tested on complete matches."""
    query = plan.query
    if query.aggregates:
        named = [column.argument for column in query.aggregates if column.argument is not None]
        named += [key.expression for key in query.group_by if key.expression is not None]
        return columns_read(query, layout, named)
    if query.returns is None:
        return set(layout.schema.names)
    expressions = [column.expression for column in query.returns]
    # Lowering decides later which of these stay residual; the rest are few.
    expressions += [c for conjunct in (*plan.construction, *plan.selection) for c in conjunct.comparisons]
    if query.threshold is not None:
        # Defaults replace missing values, and loss rates may depend on which alternative of WHERE holds.
        expressions += query.defaults.values()
        expressions += [comparison for conjunct in query.conjuncts for comparison in conjunct.comparisons]
    found = columns_read(query, layout, expressions)
    if query.output.form is OutputForm.COMPRESSED:
        # A graph keeps whole events; matches are built from it later.
        found |= {layout.time, *(name for name in (layout.type, layout.start) if name is not None)}
        found |= {test.path[0] for test in query.equivalences} & set(layout.schema.names)
    return found


def needed_columns(plan: Plan, layout: Layout) -> set[str]:
    """All columns that a plan reads."""
    conjuncts = [c for group in (*plan.roles.values(), *plan.forbidding.values()) for c in group]
    conjuncts += plan.query.conjuncts
    expressions = [comparison for conjunct in conjuncts for comparison in conjunct.comparisons]
    expressions += [expression for part in plan.key for expression in part.expressions.values()]
    expressions += plan.query.defaults.values()
    fixed = {layout.time, *layout.order, *([layout.type] if layout.type is not None else [])}
    return fixed | columns_read(plan.query, layout, expressions) | output_columns(plan, layout)


def columns_of_rows(pattern: BoundRowPattern, layout: Layout) -> set[str]:
    """All columns that a row pattern reads. With ALL ROWS PER MATCH, these are all columns of the input."""
    if pattern.output is not Rows.ONE:
        return set(layout.schema.names)
    return {layout.time, *pattern.columns}


def tie_break_columns(plan: Plan, layout: Layout) -> list[str]:
    """The columns that order simultaneous events after the order= columns: the type, then the columns that the query
    reads, by attribute name.
    """
    used = set(layout.schema.names)
    if plan.query.returns is not None:
        used &= _used(plan.query, layout)
    names = {wide: attribute for (_, attribute), wide in layout.physical.items()}
    first = [layout.type] if layout.type is not None else []
    hidden = {layout.start, *first}
    return first + sorted(used - hidden, key=lambda wide: (names.get(wide, wide), wide))


def _used(query: BoundQuery, layout: Layout) -> set[str]:
    """The columns that RETURN and WHERE read."""
    expressions = [column.expression for column in query.returns or ()]
    expressions += [comparison for conjunct in query.conjuncts for comparison in conjunct.comparisons]
    expressions += [
        attribute_of(query, component.position, test)
        for test in query.equivalences
        for component in query.components
        if not component.negated
    ]
    return columns_read(query, layout, expressions)
