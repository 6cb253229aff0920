"""Partial results of aggregates over a stream whose parts are counted separately, and the totals over all parts.

A part sees the keys that were sent to it and emits its own total whenever it changes. The total over all keys is the
sum of the latest totals of the parts; HAVING, averages and the choice of rows come after that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ouzel.engines.aggregate.merge import ChangeKind, Changes, total_changes
from ouzel.engines.aggregate.output import answer, emitted
from ouzel.engines.aggregate.plan import AggregatePlan
from ouzel.engines.aggregate.tables import CounterOutput
from ouzel.plan.model import Plan
from ouzel.runtime.arrays import numbers
from ouzel.runtime.codes import Coder
from ouzel.runtime.values import one_array, to_engine

# Stored states have the names of these columns.
TICK, KIND, WORDS, REALS = "tick", "told", "words", "reals"
# The time bucket of a change, and the part that emits it.
TIME_BUCKET, PART = "time bucket", "part"
_GROUP = "group "
_MOST = b"one match adds at most"


def changes_schema(plan: AggregatePlan, shown: pa.Schema) -> pa.Schema:
    """The columns of changes: the timestamp, the groups in their output types, and the totals after it."""
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
    """The rows of a kernel's output as changes."""
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
    """Changes of several parts or times, concatenated."""
    bounds = [json.loads(table.schema.metadata[_MOST]) for table in changes]
    most = [max(several) for several in zip(*bounds, strict=True)]
    whole = pa.concat_tables([table.replace_schema_metadata() for table in changes])
    return whole.replace_schema_metadata({_MOST: json.dumps(most)})


# ── Time buckets ──────────────────────────────────────────────────────────────────────────────


def in_time_buckets(changes: pa.Table, length: int | None) -> pa.Table:
    """Changes with their time buckets of this many ticks; without a window all are in one bucket."""
    bucket = np.zeros(changes.num_rows, np.int64) if length is None else changes[TICK].to_numpy() // length
    return changes.append_column(TIME_BUCKET, pa.array(bucket))


def with_carried(changes: pa.Table) -> pa.Table:
    """All changes of some buckets by one part, and for the bucket after each of them the state before it.

    No match counts longer than a window, so a bucket that is not shorter needs only the one before it.
    """
    lasts = last_of_groups(changes, [TIME_BUCKET])
    behind = pa.array(lasts[TIME_BUCKET].to_numpy() + 1)
    return pa.concat_tables(
        [changes, as_carried(lasts).set_column(lasts.column_names.index(TIME_BUCKET), TIME_BUCKET, behind)]
    )


def last_of_groups(changes: pa.Table, within: Sequence[str]) -> pa.Table:
    """The state of each group after its last change, if it is not empty; separately for different values of
    `within`."""
    names = [*within, *(name for name in changes.column_names if name.startswith(_GROUP))]
    numbered = changes.select(names).append_column("row", pa.array(np.arange(changes.num_rows)))
    last = np.sort(numbered.group_by(names).aggregate([("row", "max")])["row_max"].to_numpy())
    count = _numbers(changes[WORDS], np.uint64)[last, :2]
    return changes.take(pa.array(last[count.any(axis=1)]))


def as_carried(changes: pa.Table) -> pa.Table:
    """Changes as the state carried over from before."""
    kind = pa.array(np.full(changes.num_rows, ChangeKind.CARRIED, np.uint8))
    return changes.set_column(changes.column_names.index(KIND), KIND, kind)


# ── Totals ─────────────────────────────────────────────────────────────────────────────────────────


def totals_of(plan: Plan, shown_schema: pa.Schema, changes: Sequence[pa.Table]) -> pa.Table:
    """The answer of a query from the changes of all parts in some buckets, with the columns TIME_BUCKET and PART."""
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
    shown, values = emitted(query, plan.measures, after, before, found.completed, adds_at_most)
    by_tick = np.argsort(ticks[rows[shown]], kind="stable")
    rows = rows[shown[by_tick]]
    values = {name: column.take(pa.array(by_tick)) for name, column in values.items()}
    return answer(query, shown_schema, ticks[rows], [column.take(pa.array(rows)) for column in groups], values)[0]
