"""Queries over batch DataFrames: filters the events, distributes them by key or by time, and runs one session for each
partition.

Each class here is one method of distributing the events of a query group over Spark's tasks. Only the columns that the
queries read are sent, and all events of one match are in one partition.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType, TimestampNTZType, TimestampType

from ouzel.plan.model import Plan
from ouzel.runtime.feeder import duration_ticks
from ouzel.runtime.program import Program, dump
from ouzel.spark.input import Events, check_names, key_column
from ouzel.spark.partitioning import QueryGroupPlan, plan_query_groups, why_single_task
from ouzel.spark.payloads import PACKED
from ouzel.spark.pushdown import projected_columns, pushed_filters
from ouzel.spark.schema import PROBLEM, quoted, spark_schema, with_extra_columns
from ouzel.spark.tasks import WorkerFunction, in_arrow, on_workers
from ouzel.spark.time_slices import (
    INT_MAX,
    RANGED,
    RANGED_PART,
    WINDOWS_PER_SLICE,
    Ranges,
    Slices,
    cannot_be_cut,
    cut,
    is_about_single_events,
    span_in_events,
)
from ouzel.spark.totals import PARTIALS, PARTIALS_TASK, TotalsJob
from ouzel.spark.versions import by_number
from ouzel.spark.worker import (
    PART_COLUMN,
    Memory,
    emit_partials,
    mark_keys,
    match_boundaries,
    match_partition,
    match_range,
    match_slices,
    merge_partials,
    unpack,
    unpack_wide,
)

Schema = StructType | str


@dataclass(frozen=True)
class Distribution(ABC):
    """A query group and how its events are distributed."""

    plan: QueryGroupPlan

    @abstractmethod
    def describe(self) -> str:
        """The method for EXPLAIN, as the end of a sentence that begins with the names of the queries."""

    @abstractmethod
    def _spread(self, rows: DataFrame, events: Events) -> DataFrame:
        """The events, each in the partition where it is matched."""

    def matches(self, events: Events, memory: Memory) -> DataFrame:
        """The matches of the group's only query."""
        (schema,) = self.plan.outputs.values()
        return self._answer(False, spark_schema(schema), events, memory)

    def packed_matches(self, events: Events, memory: Memory) -> DataFrame:
        """The matches of all queries of the group, as payloads by query."""
        return self._answer(True, PACKED, events, memory)

    def _answer(self, packed: bool, schema: Schema, events: Events, memory: Memory) -> DataFrame:
        return self._run(match_partition, schema, events, memory, packed)

    def _run(
        self, function: WorkerFunction, schema: Schema, events: Events, memory: Memory, *arguments: object
    ) -> DataFrame:
        """The output of a worker function for each partition of the events."""
        plan = self.plan
        rows = filtered(events, plan.plans).select(*projected_columns(plan.plans, events.layout, plan.columns))
        placed = self._spread(rows, events)
        if memory.limit is not None:
            placed = placed.sortWithinPartitions(quoted(events.layout.time))
        return in_arrow(placed, schema, function, *arguments, plan.group, memory)


@dataclass(frozen=True)
class SingleTask(Distribution):
    """Sends all events to one task."""

    reason: str
    advice: str = ""  # how to separate them

    def describe(self) -> str:
        return f"a single task sees all events, because {self.reason}"

    def _spread(self, rows: DataFrame, events: Events) -> DataFrame:
        return rows.repartition(1)


@dataclass(frozen=True)
class NoShuffle(Distribution):
    """Needs no shuffle, because every match is a single event."""

    def describe(self) -> str:
        return "no shuffle, since every match is one event"

    def _spread(self, rows: DataFrame, events: Events) -> DataFrame:
        return rows


@dataclass(frozen=True)
class ByKey(Distribution):
    """Sends all events of a key to one task."""

    def describe(self) -> str:
        return partitioned_by(self.plan)

    def _spread(self, rows: DataFrame, events: Events) -> DataFrame:
        return by_key(rows, self.plan)


@dataclass(frozen=True)
class ByComputedKey(Distribution):
    """Sends all rows of a key to one task. Workers compute the key as a number before the shuffle."""

    def describe(self) -> str:
        return "partitioned by values that the tasks compute first"

    def _spread(self, rows: DataFrame, events: Events) -> DataFrame:
        marked = StructType([*rows.schema.fields, StructField(PART_COLUMN, IntegerType())])
        return in_arrow(rows, marked, mark_keys, self.plan.group, self.plan.computed_keys).repartition(PART_COLUMN)


@dataclass(frozen=True)
class MergePartials(Distribution):
    """Computes totals over all keys: shuffles the partial results of each task by time, and merges them."""

    totals: TotalsJob

    def describe(self) -> str:
        merging = f"{partitioned_by(self.plan)}; partial counts of the tasks are merged in order of time, "
        if self.totals.time_bucket_ticks is None:
            return f"{merging}by one task since there is no window"
        return f"{merging}in buckets of {self.totals.time_bucket_ticks:,} ticks by {self.totals.tasks} tasks"

    def _spread(self, rows: DataFrame, events: Events) -> DataFrame:
        return by_key(rows, self.plan)

    def _answer(self, packed: bool, schema: Schema, events: Events, memory: Memory) -> DataFrame:
        partials = self._run(emit_partials, PARTIALS, events, memory, self.totals)
        by_task = by_number(partials, self.totals.tasks, PARTIALS_TASK)
        return by_task.mapInArrow(on_workers(merge_partials, packed, self.totals), schema)


@dataclass(frozen=True)
class InRanges(Distribution):
    """Divides time into ranges with about as many events each, for matches that span a number of events."""

    ranges: Ranges

    def describe(self) -> str:
        return (
            f"cut into {self.ranges.parts} ranges of time with about as many events each; a match spans at most "
            f"{self.ranges.span:,} further events, and those across a range boundary are found among the events near it"
        )

    def _spread(self, rows: DataFrame, events: Events) -> DataFrame:
        # All events of a timestamp, and the timestamps of a range, in one partition.
        return rows.repartitionByRange(self.ranges.parts, quoted(events.layout.time))

    def _answer(self, packed: bool, schema: Schema, events: Events, memory: Memory) -> DataFrame:
        found = self._run(match_range, RANGED, events, memory, self.ranges)
        # Matches stay where they are, and the boundary events of all ranges go to one partition.
        by_part = by_number(found, self.ranges.parts, RANGED_PART)
        return by_part.mapInArrow(on_workers(match_boundaries, packed, self.ranges, self.plan.group), schema)


@dataclass(frozen=True)
class InSlices(Distribution):
    """Divides time into slices, and sends an event to each slice that needs it."""

    slices: Slices

    def describe(self) -> str:
        slices = self.slices
        behind = f", look-behind {slices.behind_ticks:,}" if slices.behind_ticks else ""
        return (
            f"cut into time slices of {slices.ticks:,} ticks, look-ahead {slices.ahead_ticks:,}{behind}; "
            f"{slices.parts} tasks take turns, and "
            + (
                "a row belongs to the slice of its end"
                if slices.by_end
                else "a match belongs to the slice of its start"
            )
        )

    def _spread(self, rows: DataFrame, events: Events) -> DataFrame:
        part = F.explode(parts_of(events.layout.time, rows, self.slices)).alias(PART_COLUMN)
        return by_number(rows.select("*", part), self.slices.parts, PART_COLUMN)

    def _answer(self, packed: bool, schema: Schema, events: Events, memory: Memory) -> DataFrame:
        return self._run(match_slices, schema, events, memory, packed, self.slices)


def parts_of(time: str, rows: DataFrame, slices: Slices) -> Column:
    """The parts that need an event: the part of its own slice, and that of an adjacent slice whose matches the event
    may affect.
    """
    tick = ticks_of_time(time, rows)
    in_slice = F.pmod(tick, F.lit(slices.ticks))
    # Division truncates, and ticks may be negative.
    number = F.call_function("div", tick, F.lit(slices.ticks)) - (tick % slices.ticks < 0).cast("long")
    # Workers refuse an event without a time.
    own = F.coalesce(F.pmod(number, F.lit(slices.parts)).cast("int"), F.lit(0))
    if slices.parts == 1:
        return F.array(own)
    earlier, later = (F.array(own, F.pmod(own + step, F.lit(slices.parts))) for step in (-1, 1))
    return (
        F.when(in_slice < slices.ahead_ticks, earlier)
        .when(in_slice >= slices.ticks - slices.behind_ticks, later)
        .otherwise(F.array(own))
    )


def ticks_of_time(time: str, rows: DataFrame) -> Column:
    """The time of events, in the numbers that `time_slices.as_ticks` returns."""
    column = F.col(quoted(time))
    kind = rows.schema[time].dataType
    if isinstance(kind, TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, TimestampNTZType):
        # Without a zone there is no function for it, and the session's zone would repeat or skip an hour.
        days = F.unix_date(column.cast("date")).cast("long")
        seconds = 86_400 * days + 3_600 * F.hour(column) + 60 * F.minute(column)
        return 1_000_000 * seconds + (1_000_000 * F.date_part(F.lit("SECOND"), column)).cast("long")
    return column.cast("long")


def by_key(rows: DataFrame, plan: QueryGroupPlan) -> DataFrame:
    """The events, with all events of a key in one partition."""
    return rows.repartition(*map(key_column, plan.keys))


def partitioned_by(plan: QueryGroupPlan) -> str:
    """The keys, for EXPLAIN."""
    return f"partitioned by {', '.join('.'.join(path) for path in plan.keys)}"


def filtered(events: Events, plans: Sequence[Plan] | None) -> DataFrame:
    """The events that can change an answer. If `plans` is None, these are all events."""
    rows = events.frame
    for condition in pushed_filters(plans, events.layout, events.layout.time):
        rows = rows.where(condition)
    return rows


log = logging.getLogger("ouzel.spark")

# The length of a slice; True: ten windows; False: never cut; None: cut queries without a key.
SliceHint = int | str | timedelta | bool | None


class Matches(dict[str, DataFrame]):
    """The DataFrames of several queries, by name. They share one computation, which Spark caches until `release`."""

    def __init__(self, frames: Mapping[str, DataFrame], shared: Sequence[DataFrame]) -> None:
        super().__init__(frames)
        self._shared = list(shared)

    def release(self) -> None:
        """Remove the computed matches from Spark's cache. The DataFrames can still be used, and are then computed
        again.
        """
        for frame in self._shared:
            frame.unpersist()

    def __enter__(self) -> Matches:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def match_one(events: Events, distributions: Sequence[Distribution], memory: Memory) -> DataFrame:
    """The matches of the only query."""
    (distribution,) = distributions
    if distribution.plan.group.reports:
        (frame,) = _unpacked(distribution.plan, distribution.packed_matches(events, memory)).values()
        return frame
    return distribution.matches(events, memory)


def match_several(
    events: Events, distributions: Sequence[Distribution], names: Sequence[str], memory: Memory
) -> Matches:
    """The matches of several queries. Those of one group are computed together."""
    frames: dict[str, DataFrame] = {}
    shared = []
    for distribution in distributions:
        packed = distribution.packed_matches(events, memory).persist()
        shared.append(packed)
        frames |= _unpacked(distribution.plan, packed)
    return Matches({name: frames[name] for name in names}, shared)


def _unpacked(plan: QueryGroupPlan, packed: DataFrame) -> dict[str, DataFrame]:
    """The rows of each query of a group and, if these are reported, its problems."""
    frames = {}
    for number, (name, schema) in enumerate(plan.outputs.items(), start=plan.group.first_query):
        if plan.group.reports:
            wide = with_extra_columns(schema, [PROBLEM])
            unpack_rows = on_workers(unpack_wide, number, wide.serialize().to_pybytes())
            frames[name] = packed.mapInArrow(unpack_rows, spark_schema(wide))
        else:
            frames[name] = packed.mapInArrow(on_workers(unpack, number), spark_schema(schema))
    return frames


# ── Distribution ───────────────────────────────────────────────────────────────────────────────────


def plan_distributions(events: Events, slices: SliceHint, *, reports: bool = False) -> list[Distribution]:
    """How queries are grouped, and how their events are distributed. For `reports` see `QueryGroup.reports`."""
    plans = plan_query_groups(
        events.program,
        events.clock,
        apart=lambda plan: (
            cannot_be_cut(plan) is None,
            is_about_single_events(plan),
            span_in_events(plan) is None,
            # Slices own matches by their start, and rows of aggregates by their end.
            bool(plan.query.aggregates),
        ),
        # If slices are asked for, totals use them too.
        merge_totals=slices is None or slices is False,
        reports=reports,
    )
    for plan in plans:
        check_names(events.frame, plan.columns, own=[PART_COLUMN])
    found = [_distribution(events, plan, slices) for plan in plans]
    for distribution in found:
        if isinstance(distribution, SingleTask):
            log.warning(
                "a single task must see all events of %s, because %s%s",
                ", ".join(distribution.plan.group.queries),
                distribution.reason,
                distribution.advice,
            )
    return found


def _distribution(events: Events, group: QueryGroupPlan, hint: SliceHint) -> Distribution:
    plans = group.plans
    if group.computed_keys:
        return ByComputedKey(group)
    if group.composed or plans is None:
        return ByKey(group) if group.keys else SingleTask(group, *_why_without_key(events.program, group))
    if all(map(is_about_single_events, plans)):
        return NoShuffle(group)
    partitions = int(str(events.frame.sparkSession.conf.get("spark.sql.shuffle.partitions")))
    if group.totals is not None:
        return MergePartials(group, _totals(group.totals, group, plans, partitions))
    uncut = next(filter(None, map(cannot_be_cut, plans)), None)
    if group.keys and (hint is None or hint is False or uncut is not None):
        if uncut is not None and hint is not None and hint is not False:
            log.warning("%s cannot be cut into time slices, because %s", ", ".join(group.group.queries), uncut)
        return ByKey(group)
    spans = [span_in_events(plan) for plan in plans]
    if uncut is not None and hint is not False and None not in spans:
        return InRanges(group, Ranges(max(span for span in spans if span is not None), partitions))
    if uncut is not None or hint is False:
        reason, advice = why_single_task(plans)
        return SingleTask(group, f"{reason}, and {uncut or 'slices=False'}", advice)
    # 1 is a length, though 1 == True in Python.
    if hint is None or hint is True:
        length = None
    else:
        length = duration_ticks(hint, events.program.catalog, "slices")
    return InSlices(group, cut(plans, partitions, length))


def _why_without_key(program: Program, group: QueryGroupPlan) -> tuple[str, str]:
    """For a group whose plans are not known: (why it has no key, what would divide its events)."""
    names = set(group.group.queries)
    if any(pattern.name in names for pattern in program.row_patterns):
        return "it has no PARTITION BY", ""
    for expression in program.algebra:
        if expression.name in names:
            if len(expression.streams) > 1:
                return "one of its streams reads the results of another", ""
            return (
                "no column is equal in all events of a result",
                "; add name = name.last to each condition of next and fold",
            )
    return "queries read its results", ""


def _totals(program: Program, group: QueryGroupPlan, plans: Sequence[Plan], partitions: int) -> TotalsJob:
    windows = [plan.window_ticks for plan in plans]
    bucket = None if None in windows else WINDOWS_PER_SLICE * max(window for window in windows if window is not None)
    if bucket is not None and bucket >= INT_MAX:
        bucket = None
    tasks = partitions if bucket is not None else 1
    return TotalsJob(dump(program), group.group.first_query, bucket, tasks, group.group.reports)
