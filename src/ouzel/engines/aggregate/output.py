"""Turns counters into rows of aggregates: columns, HAVING, the rows that EMIT ON CHANGE skips, and totals over parts of
a stream that are counted separately.

A part counts the keys that were sent to it, and emits its total whenever that changes. The total over all keys is the
sum of the latest totals of all parts. HAVING, averages and EMIT are applied to that sum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.model import (
    AggregateColumn,
    Aggregation,
    Attribute,
    Bound,
    BoundQuery,
    EventField,
    GroupKey,
    Intrinsic,
    Kind,
    Length,
    ResultColumn,
    Type,
    rewritten,
)
from ouzel.engines.aggregate.columns import ChangeKind, Changes, total_changes
from ouzel.engines.aggregate.plan import AggregatePlan, Form, MeasureSpec, needed_measures
from ouzel.engines.aggregate.tables import NOTHING, CounterOutput
from ouzel.errors import LimitError
from ouzel.plan.expressions import attribute_of
from ouzel.plan.model import Plan
from ouzel.runtime.buffer import NO_ROWS
from ouzel.runtime.codes import Coder
from ouzel.runtime.expressions import evaluate
from ouzel.runtime.frames import ticks_to_time
from ouzel.runtime.layout import Layout, MomentScale, end_type
from ouzel.runtime.operator import Answer
from ouzel.runtime.output import attribute_type
from ouzel.runtime.values import (
    Column,
    arrow,
    engine_type,
    from_engine,
    join,
    numbers,
    one_array,
    output_type,
    ranks,
    to_engine,
    truths,
)


def aggregate_schema(query: BoundQuery, layout: Layout) -> pa.Schema:
    """`end`, the GROUP BY columns, and a column for each aggregate that is shown."""
    time = layout.schema.field(layout.time).type
    fields = [pa.field("end", end_type(layout, query))]
    for key in query.group_by:
        expression = key_expression(query, key)
        if isinstance(expression, Attribute):
            fields.append(pa.field(key.name, attribute_type(query, layout, expression)))
        else:
            fields.append(pa.field(key.name, time if _is_time(expression) else output_type(key.type)))
    for column in query.aggregates:
        if not column.hidden:
            is_time = column.function in ("min", "max") and _is_time(column.argument)
            fields.append(pa.field(column.name, time if is_time else output_type(column.type)))
    return pa.schema(fields)


def _is_time(expression: Bound | None) -> bool:
    return isinstance(expression, Intrinsic) and expression.field is not EventField.TYPE


def key_expression(query: BoundQuery, key: GroupKey) -> Bound:
    """The value of a GROUP BY column. For `GROUP BY attr` it is the attribute of the first event, because all events
    have the same value.
    """
    if key.expression is not None:
        return key.expression
    test = next(test for test in query.equivalences if test.path == key.path)
    return attribute_of(query, query.positives[0].position, test)


def answer(
    query: BoundQuery,
    schema: pa.Schema,
    ticks: np.ndarray,
    keys: Sequence[pa.Array],
    values: Mapping[str, Column],
    starts: np.ndarray | None = None,
    scale: MomentScale | None = None,
) -> Answer:
    """The rows for which HAVING holds. Each row ends at its tick, and starts there too unless `starts` are given. With
    a scale, `ticks` are moments, and only the last row of a tick and group is kept.

    `keys` are the GROUP BY columns in their output types, `values` the aggregates by name in engine form.
    """
    starts = ticks if starts is None else starts
    time = schema.field("end").type
    shown = ticks if scale is None else scale.ticks(ticks)
    if scale is not None and (shown[1:] <= shown[:-1]).any():
        kept = _last_of_ticks(shown, keys)
        places = pa.array(kept)
        ticks, shown, starts, keys = ticks[kept], shown[kept], starts[kept], [column.take(places) for column in keys]
        values = {name: column.take(places) for name, column in values.items()}
    if query.having is not None and len(ticks):
        known = {key.name: (column, key.type) for key, column in zip(query.group_by, keys, strict=True)}
        known |= {column.name: (values[column.name], column.type) for column in query.aggregates}
        kept = np.flatnonzero(truths(evaluate(_over_columns(query.having), _ResultFrame(known, len(ticks)))))
        places = pa.array(kept)
        ticks, shown, starts, keys = ticks[kept], shown[kept], starts[kept], [column.take(places) for column in keys]
        values = {name: column.take(places) for name, column in values.items()}
    columns = [ticks_to_time(shown, time), *keys]
    for column in query.aggregates:
        if column.hidden:
            continue
        value = values[column.name]
        if column.function in ("min", "max") and _is_time(column.argument):
            columns.append(_times(value, schema.field(column.name).type))
        else:
            columns.append(from_engine(value, column.type))
    return Answer(pa.Table.from_arrays(columns, schema=schema), starts, ticks)


def _last_of_ticks(ticks: np.ndarray, keys: Sequence[pa.Array]) -> np.ndarray:
    """The last row of each tick and group, in the given order."""
    columns = [ticks, *(ranks(one_array(key)) for key in keys)]
    order = np.lexsort(columns[::-1])
    is_last = np.zeros(len(ticks), bool)
    is_last[-1:] = True
    for column in columns:
        ordered = column[order]
        is_last[:-1] |= ordered[1:] != ordered[:-1]
    return np.sort(order[is_last])


def emitted(
    plan: AggregatePlan,
    needed: Mapping[str, Sequence[int]],
    after: tuple[np.ndarray, np.ndarray],
    before: tuple[np.ndarray, np.ndarray],
    completed: np.ndarray,
    largest: Sequence[float],
) -> tuple[np.ndarray, dict[str, Column]]:
    """The rows to emit, and their aggregates. With EMIT ON CHANGE, a row of expiry is skipped if it changes no visible
    value.

    `needed` are the measures of each aggregate. `after` has the words and reals of each row, and `before` those before
    the row's timestamp, which only EMIT ON CHANGE uses.
    """
    query, values = plan.query, columns_of(plan, needed, *after, largest)
    expiry = np.flatnonzero(completed == 0) if query.emit_on_change else NO_ROWS
    if not len(expiry):
        return np.arange(len(completed)), values
    earlier = columns_of(plan, needed, before[0][expiry], before[1][expiry], largest)
    changed = np.zeros(len(expiry), bool)
    for column in query.aggregates:
        if not column.hidden:
            changed |= ~_same(values[column.name].take(pa.array(expiry)), earlier[column.name])
    kept = completed != 0
    kept[expiry[changed]] = True
    rows = np.flatnonzero(kept)
    return rows, {name: column.take(pa.array(rows)) for name, column in values.items()}


def _same(one: Column, other: Column) -> np.ndarray:
    """Where two columns have equal values, both null, or both NaN."""
    same = pc.fill_null(pc.equal(one, other), False)
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False))
    return truths(pc.or_(same, pc.and_(pc.is_null(one), pc.is_null(other))))


def _times(value: Column, wanted: pa.DataType) -> pa.Array:
    """Ticks, some of them null, as values of the input's time column."""
    made = ticks_to_time(numbers(value), wanted)
    if not value.null_count:
        return made
    return pa.Array.from_buffers(wanted, len(made), [value.buffers()[0], made.buffers()[1]], offset=made.offset)


def _over_columns(expression: Bound) -> Bound:
    """A HAVING condition whose columns are attributes, so that it can be evaluated over rows."""

    def change(part: Bound) -> Bound | None:
        return Attribute(-1, (part.name,), type=part.type) if isinstance(part, ResultColumn) else None

    return rewritten(expression, change)


class _ResultFrame:
    """A frame of result rows, for HAVING."""

    def __init__(self, columns: Mapping[str, tuple[pa.Array, Type]], rows: int) -> None:
        self._columns = columns
        self.rows = rows

    def attribute(self, reference: Attribute) -> Column:
        column, type_ = self._columns[reference.path[0]]
        return column if column.type == engine_type(type_) else to_engine(column, type_)

    def intrinsic(self, reference: Intrinsic) -> Column:
        raise AssertionError("HAVING sees columns only")

    def lacks(self, reference: Attribute) -> np.ndarray | None:
        return None

    def aggregate(self, expression: Length | Aggregation) -> Column:
        raise AssertionError("HAVING sees columns only")


INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
# Below this a number modulo 2^128 is the number itself.
_KNOWN_MAX = 2.0**126
_SIGN = np.int64(INT64_MAX)
# Wide enough that nothing is ever rounded.
_EXACT = Context(prec=80)


def overflow(query: BoundQuery, column: AggregateColumn) -> LimitError:
    """The error for a number that does not fit its column."""
    if column.function == "count" and column.type.kind is not Kind.DECIMAL:
        hint = "write COUNT AS DECIMAL for up to 38 digits, give a smaller WITHIN window, or group it"
    elif column.function == "count":
        hint = "give a smaller WITHIN window, or group it"
    else:
        hint = "give a smaller WITHIN window, group it, or cast the values to double"
    return LimitError(f"query '{query.name}': {column.name} does not fit {column.type} any more; {hint}")


def checked_integer(query: BoundQuery, column: AggregateColumn, value: int) -> int | Decimal:
    """An exact integer in the form of its column: int64, or the unscaled digits of a decimal."""
    if column.type.kind is Kind.DECIMAL:
        if abs(value) >= 10**column.type.precision:
            raise overflow(query, column)
        return Decimal(value).scaleb(-column.type.scale, _EXACT)
    if not INT64_MIN <= value <= INT64_MAX:
        raise overflow(query, column)
    return value


# ── Order of floats ────────────────────────────────────────────────────────────────────────────────


def ordered(values: np.ndarray) -> np.ndarray:
    """Floats as integers in the same order. NaN is the greatest, and both zeros are equal.

    >>> ordered(np.array([-1.5, -0.0, 0.0, 2.0])).tolist() == sorted(ordered(np.array([-1.5, -0.0, 0.0, 2.0])))
    True
    """
    plain = np.where(np.isnan(values), np.nan, values + 0.0)
    bits = np.ascontiguousarray(plain).view(np.int64)
    # One positive NaN, whatever the hardware made.
    bits = np.where(np.isnan(values), np.float64("nan").view(np.int64) & _SIGN, bits)
    return np.where(bits >= 0, bits, bits ^ _SIGN)


def unordered(keys: np.ndarray) -> np.ndarray:
    """The inverse of `ordered`."""
    return np.ascontiguousarray(np.where(keys >= 0, keys, keys ^ _SIGN)).view(np.float64)


# ── Columns out of words ───────────────────────────────────────────────────────────────────────────


def columns_of(
    plan: AggregatePlan,
    needed_by: Mapping[str, Sequence[int]],
    words: np.ndarray,
    reals: np.ndarray,
    largest: Sequence[float],
) -> dict[str, Column]:
    """The aggregates of some rows, by name, in engine form.

    `needed_by` are the measures of each aggregate. `largest` is, for each measure, an upper bound of what one match may
    add.
    """
    query, measures = plan.query, plan.measures
    found: dict[str, Column] = {}
    for column in query.aggregates:
        if column.type.kind is Kind.NULL:
            found[column.name] = pa.nulls(len(words))
            continue
        if column.argument is None:
            found[column.name] = _integers(query, column, words[:, 0], words[:, 1], reals[:, 0], None)
            continue
        needed = needed_by[column.name]
        place = 2 + 2 * needed[0]
        sizes = reals[:, 0] * max(1.0, largest[needed[0]])
        if column.function == "count":
            found[column.name] = _integers(query, column, words[:, place], words[:, place + 1], sizes, None)
            continue
        empty = (words[:, place] == 0) & (words[:, place + 1] == 0)
        measure = measures[needed[1]]
        place = 2 + 2 * needed[1]
        if measure.form in (Form.LEAST, Form.GREATEST):
            found[column.name] = _extremes(column, measure, words[:, place], empty)
        elif measure.floating:
            totals = reals[:, 1 + needed[1]]
            if column.function == "avg":
                totals = totals / np.where(
                    empty, 1.0, _floats(words[:, 2 + 2 * needed[0]], words[:, 3 + 2 * needed[0]])
                )
            found[column.name] = join(totals.copy(), ~empty, pa.float64())
        else:
            sizes = reals[:, 0] * max(1.0, largest[needed[1]])
            low, high = words[:, place], words[:, place + 1]
            if column.function == "sum":
                found[column.name] = _integers(query, column, low, high, sizes, empty)
            else:
                if (sizes >= _KNOWN_MAX).any():
                    raise overflow(query, column)
                counts = _floats(words[:, 2 + 2 * needed[0]], words[:, 3 + 2 * needed[0]])
                scale = 10.0**column.argument.type.scale if column.argument.type.kind is Kind.DECIMAL else 1.0
                averages = _floats(low, high) / np.where(empty, 1.0, counts) / scale
                found[column.name] = pa.array(averages, pa.float64(), mask=empty)
    return found


def _floats(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Signed 128-bit numbers as floats."""
    if (high.view(np.int64) == (low.view(np.int64) >> 63)).all():
        return low.view(np.int64).astype(np.float64)
    return np.array([float(_signed(int(a), int(b))) for a, b in zip(low, high, strict=True)], np.float64)


def _signed(low: int, high: int) -> int:
    value = low | (high << 64)
    return value - 2**128 if value >= 2**127 else value


def _integers(
    query: BoundQuery,
    column: AggregateColumn,
    low: np.ndarray,
    high: np.ndarray,
    sizes: np.ndarray,
    empty: np.ndarray | None,
) -> Column:
    """Exact integers. Raises an error if one does not fit its column, or is too large for 128 bits."""
    # The words are written again for the next answer.
    low, high = low.copy(), np.ascontiguousarray(high)
    fits = (high.view(np.int64) == (low.view(np.int64) >> 63)) & (sizes < _KNOWN_MAX)
    if column.type.kind is not Kind.DECIMAL and fits.all():
        return arrow(low.view(np.int64)) if empty is None else join(low.view(np.int64), ~empty, pa.int64())
    if not (sizes < 2 * _KNOWN_MAX).all():
        raise overflow(query, column)
    values = [checked_integer(query, column, _signed(int(a), int(b))) for a, b in zip(low, high, strict=True)]
    shown = values if empty is None else [None if none else v for v, none in zip(values, empty, strict=True)]
    return pa.array(shown, engine_type(column.type))


def _extremes(column: AggregateColumn, measure: MeasureSpec, words: np.ndarray, empty: np.ndarray) -> Column:
    keys = np.ascontiguousarray(words).view(np.int64)
    if measure.form is Form.GREATEST:
        keys = ~keys
    if measure.floating:
        return pa.array(unordered(keys), pa.float64(), mask=empty)
    if column.type.kind is Kind.DECIMAL:
        decimals = [
            None if none else Decimal(int(key)).scaleb(-column.type.scale, _EXACT)
            for key, none in zip(keys, empty, strict=True)
        ]
        return pa.array(decimals, engine_type(column.type))
    return pa.array(keys, pa.int64(), mask=empty).cast(engine_type(column.type))


def measured(measure: MeasureSpec, values: np.ndarray, present: np.ndarray) -> np.ndarray:
    """What the events of a component add to a measure. Values that are not `present` add nothing."""
    if measure.form in (Form.LEAST, Form.GREATEST):
        keys = ordered(values) if measure.floating else values
        if measure.form is Form.GREATEST:
            keys = ~keys
        return np.where(present, keys, NOTHING)
    return np.where(present, values, np.zeros(1, values.dtype))


# Stored states have the names of these columns.
TICK, KIND, WORDS, REALS = "tick", "told", "words", "reals"
# The time bucket of a change, and the part that emits it.
TIME_BUCKET, PART = "time bucket", "part"
_GROUP = "group "
_MOST = b"one match adds at most"


def changes_schema(plan: AggregatePlan, shown: pa.Schema) -> pa.Schema:
    """The columns of a table of changes: a time, the groups in their output types, and the totals from that time on."""
    measures = len(plan.measures)
    return pa.schema(
        [
            pa.field(TICK, pa.int64()),
            *(shown.field(key.name).with_name(_group(number)) for number, key in enumerate(plan.query.group_by)),
            pa.field(KIND, pa.uint8()),
            pa.field(WORDS, pa.binary(8 * (2 + 2 * measures))),
            pa.field(REALS, pa.binary(8 * (1 + measures))),
        ]
    )


def _group(number: int) -> str:
    return f"{_GROUP}{number}"


def changes_table(
    schema: pa.Schema, output: CounterOutput, count: int, groups: Sequence[pa.Array], adds_at_most: Sequence[float]
) -> pa.Table:
    """The rows of a kernel's output as a table of changes."""
    kind = np.where(output.completed[:count] != 0, ChangeKind.COMPLETED, ChangeKind.CHANGED).astype(np.uint8)
    columns = [pa.array(output.tick[:count]), *groups, pa.array(kind)]
    columns += [_bytes(output.words[:count]), _bytes(output.reals[:count])]
    return pa.table(columns, schema=schema.with_metadata({_MOST: json.dumps(list(adds_at_most))}))


def _bytes(rows: np.ndarray) -> pa.Array:
    count, width = rows.shape
    kind = pa.binary(8 * width)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(np.ascontiguousarray(rows).tobytes())])


def _numbers(column: pa.ChunkedArray, dtype: type) -> np.ndarray:
    array = one_array(column)
    width = array.type.byte_width
    data = array.buffers()[1]
    flat: np.ndarray = np.frombuffer(data, dtype, len(array) * width // 8, array.offset * width)
    return flat.reshape(len(array), width // 8)


def joined(changes: Sequence[pa.Table]) -> pa.Table:
    """Tables of changes, concatenated."""
    bounds = [json.loads(table.schema.metadata[_MOST]) for table in changes]
    most = [max(several) for several in zip(*bounds, strict=True)]
    whole = pa.concat_tables([table.replace_schema_metadata() for table in changes])
    return whole.replace_schema_metadata({_MOST: json.dumps(most)})


# ── Time buckets ──────────────────────────────────────────────────────────────────────────────


def in_time_buckets(changes: pa.Table, length: int | None) -> pa.Table:
    """Changes with a column of time buckets, each of `length` ticks. Without a window there is only one bucket."""
    bucket = np.zeros(changes.num_rows, np.int64) if length is None else changes[TICK].to_numpy() // length
    return changes.append_column(TIME_BUCKET, pa.array(bucket))


def with_carried(changes: pa.Table) -> pa.Table:
    """All changes of a part in some buckets, and for each following bucket the state carried over to it.

    No match counts for longer than a window, and a bucket is at least as long as a window. So a bucket needs state only
    from the one before it.
    """
    lasts = last_of_groups(changes, [TIME_BUCKET])
    behind = pa.array(lasts[TIME_BUCKET].to_numpy() + 1)
    return pa.concat_tables(
        [changes, as_carried(lasts).set_column(lasts.column_names.index(TIME_BUCKET), TIME_BUCKET, behind)]
    )


def last_of_groups(changes: pa.Table, within: Sequence[str]) -> pa.Table:
    """The last change of each group, unless the group is empty after it. Separately for different values of the columns
    `within`.
    """
    names = [*within, *(name for name in changes.column_names if name.startswith(_GROUP))]
    numbered = changes.select(names).append_column("row", pa.array(np.arange(changes.num_rows)))
    last = np.sort(numbered.group_by(names).aggregate([("row", "max")])["row_max"].to_numpy())
    count = _numbers(changes[WORDS], np.uint64)[last, :2]
    return changes.take(pa.array(last[count.any(axis=1)]))


def as_carried(changes: pa.Table) -> pa.Table:
    """Changes, marked as state carried over from an earlier bucket."""
    kind = pa.array(np.full(changes.num_rows, ChangeKind.CARRIED, np.uint8))
    return changes.set_column(changes.column_names.index(KIND), KIND, kind)


# ── Totals ─────────────────────────────────────────────────────────────────────────────────────────


def totals_of(plan: Plan, shown_schema: pa.Schema, changes: Sequence[pa.Table]) -> pa.Table:
    """The answer of a query, from the changes of all parts in some buckets. The changes have the columns TIME_BUCKET
    and PART.
    """
    assert isinstance(plan, AggregatePlan)
    query = plan.query
    whole = joined(changes)
    adds_at_most = json.loads(whole.schema.metadata[_MOST])
    groups = [one_array(whole[_group(number)]) for number in range(len(query.group_by))]
    codes = [numbers(one_array(whole[TIME_BUCKET]))]
    for column, key in zip(groups, query.group_by, strict=True):
        codes.append(Coder().encode([to_engine(column, key.type)]).astype(np.int64))
    ticks = numbers(one_array(whole[TICK]))
    order = np.lexsort((ticks, *codes[::-1]))
    arranged = [code[order] for code in codes]
    first = np.zeros(len(order), bool)
    for code in arranged:
        first[1:] |= code[1:] != code[:-1]
    parts, part = np.unique(numbers(one_array(whole[PART])), return_inverse=True)
    found = total_changes(
        Changes(
            np.cumsum(first),
            ticks[order],
            part[order].astype(np.int32),
            numbers(one_array(whole[KIND]), np.uint8)[order],
            _numbers(whole[WORDS], np.uint64)[order],
            _numbers(whole[REALS], np.float64)[order],
        ),
        np.array([measure.kind for measure in plan.measures], np.int64),
        len(parts),
        on_change=query.emit_on_change,
    )
    rows = order[found.row]
    after, before = (found.words, found.reals), (found.before_words, found.before_reals)
    shown, values = emitted(plan, needed_measures(plan), after, before, found.completed, adds_at_most)
    by_tick = np.argsort(ticks[rows[shown]], kind="stable")
    rows = rows[shown[by_tick]]
    values = {name: column.take(pa.array(by_tick)) for name, column in values.items()}
    return answer(query, shown_schema, ticks[rows], [column.take(pa.array(rows)) for column in groups], values)[0]
