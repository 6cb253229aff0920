"""Queries over bounded DataFrames: filter by roles, spread by key or by time, one session for each partition."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from ouzel.errors import InputError
from ouzel.plan.model import Plan
from ouzel.runtime.engine import duration_ticks
from ouzel.runtime.program import dump
from ouzel.spark.catalyst import INT_MAX, thinned, wanted
from ouzel.spark.events import Events, check_names, key_column
from ouzel.spark.jobs import TotalsJob
from ouzel.spark.packing import PACKED, PACKED_NUMBER
from ouzel.spark.ranges import join_ranges, place_in_ranges, reach_in_events, why_together
from ouzel.spark.schema import quoted, spark_schema
from ouzel.spark.seams import RANGED, Ranges
from ouzel.spark.shares import SharePlan, plan_shares
from ouzel.spark.shipping import in_arrow, on_workers
from ouzel.spark.slices import WINDOWS_PER_SLICE, cannot_be_cut, cut, is_about_single_events
from ouzel.spark.spreading import PART_COLUMN, Slices
from ouzel.spark.totals import CHANGES, CHANGES_TASK
from ouzel.spark.worker import BatchJob

log = logging.getLogger("ouzel.spark")

# The length of a slice; "auto": look at the data; False: never cut; None: cut what has no key.
SliceHint = int | str | timedelta | bool | None

# A key with this many times its even share of the events keeps one task busy while the others have nothing to do.
HOT_KEY_FACTOR = 2


@dataclass(frozen=True)
class Placement:
    """A share and how its events are spread."""

    part: SharePlan
    cut: Slices | None = None
    # Every match is a single event, which needs no others around it.
    alone: bool = False
    # Ranges of time for matches that reach a number of events.
    ranges: Ranges | None = None
    # Why all events go to one task, where they do, and what would keep them apart.
    reason: str | None = None
    advice: str = ""
    # How totals over all keys are made, where the keys are spread.
    totals: TotalsJob | None = None
    # How many events the keys were found to have, where they were counted.
    counted: str | None = None

    def describe(self) -> str:
        """One sentence for EXPLAIN."""
        return self._spreading() + (f"; {self.counted}" if self.counted else "")

    def _spreading(self) -> str:
        names = ", ".join(self.part.share.queries)
        if self.cut is not None:
            slices = self.cut
            behind = f", look-behind {slices.behind_ticks:,}" if slices.behind_ticks else ""
            return (
                f"{names}: cut into time slices of {slices.ticks:,} ticks, "
                f"look-ahead {slices.ahead_ticks:,}{behind}; "
                f"{slices.parts} tasks take turns at them, and "
                + ("a row counts where its end is" if slices.by_end else "a match counts where it starts")
            )
        if self.ranges is not None:
            return (
                f"{names}: cut into {self.ranges.parts} ranges of time with about as many events each; a match reaches "
                f"{self.ranges.reach:,} events at most, and one that reaches over a seam is found among those beside it"
            )
        if self.alone:
            return f"{names}: every event is looked at where it lies"
        if self.part.keys:
            return f"{names}: spread by {', '.join('.'.join(path) for path in self.part.keys)}{self._adding_up()}"
        return f"{names}: a single task sees all events, because {self.reason}"

    def _adding_up(self) -> str:
        if self.totals is None:
            return ""
        if self.totals.stretch_ticks is None:
            return "; what each task counts is added up in order of time, by one task since there is no window"
        return (
            f"; what each task counts is added up in order of time, in slices of {self.totals.stretch_ticks:,} ticks "
            f"at which {self.totals.tasks} tasks take turns"
        )


class Matches(dict[str, DataFrame]):
    """The DataFrames of several queries, by name. They share one computation, which Spark keeps until `release`."""

    def __init__(self, frames: Mapping[str, DataFrame], shared: Sequence[DataFrame]) -> None:
        super().__init__(frames)
        self._shared = list(shared)

    def release(self) -> None:
        """Let Spark forget the computed matches; the DataFrames stay usable and are computed anew."""
        for frame in self._shared:
            frame.unpersist()

    def __enter__(self) -> Matches:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def match_one(events: Events, placements: Sequence[Placement], memory_limit: int | None) -> DataFrame:
    """The matches of the one query."""
    (placement,) = placements
    (schema,) = placement.part.outputs.values()
    if placement.totals is not None:
        return _added_up("total_partition", events, placement, memory_limit, spark_schema(schema))
    if placement.ranges is not None:
        return _in_ranges("match_seams", events, placement, memory_limit, spark_schema(schema))
    return _run("match_partition", events, placement, memory_limit, spark_schema(schema))


def match_several(
    events: Events, placements: Sequence[Placement], names: Sequence[str], memory_limit: int | None
) -> Matches:
    """The matches of several queries, which are computed together for each share."""
    frames: dict[str, DataFrame] = {}
    shared = []
    for placement in placements:
        part = placement.part
        if part.totals is not None:
            packed = _added_up("total_partition_packed", events, placement, memory_limit, PACKED).persist()
        elif placement.ranges is not None:
            packed = _in_ranges("match_seams_packed", events, placement, memory_limit, PACKED).persist()
        else:
            packed = _run("match_partition_packed", events, placement, memory_limit, PACKED).persist()
        shared.append(packed)
        for number, (name, schema) in enumerate(part.outputs.items(), start=part.share.first_query):
            frames[name] = packed.mapInArrow(on_workers("unpack", number), spark_schema(schema))
    return Matches({name: frames[name] for name in names}, shared)


def _added_up(
    function: str, events: Events, placement: Placement, memory_limit: int | None, schema: StructType | str
) -> DataFrame:
    """Totals over all keys: what each task tells, dealt out by time and added up."""
    totals = placement.totals
    assert totals is not None
    told = _run("tell_changes", events, placement, memory_limit, CHANGES, totals)
    return told.repartitionById(totals.tasks, F.col(CHANGES_TASK)).mapInArrow(on_workers(function, totals), schema)


def _in_ranges(
    function: str, events: Events, placement: Placement, memory_limit: int | None, schema: StructType | str
) -> DataFrame:
    """The matches inside ranges of time, and those over the seams between them."""
    assert placement.ranges is not None
    told = _run("match_range", events, placement, memory_limit, RANGED, placement.ranges)
    return join_ranges(told, function, placement.ranges, placement.part.share, schema)


def _run(
    function: str,
    events: Events,
    placement: Placement,
    memory_limit: int | None,
    schema: StructType | str,
    *arguments: object,
) -> DataFrame:
    placed = _placed(events, placement, memory_limit)
    job = BatchJob(placement.cut, memory_limit, packed=placement.cut is not None and memory_limit is None)
    return in_arrow(placed, schema, function, *arguments, placement.part.share, job)


# ── Spreading ──────────────────────────────────────────────────────────────────────────────────────


def plan_placements(events: Events, slices: SliceHint) -> list[Placement]:
    """How the queries are put together and their events spread."""
    parts = plan_shares(
        events.program,
        events.clock,
        apart=lambda plan: (
            cannot_be_cut(plan) is None,
            is_about_single_events(plan),
            reach_in_events(plan) is None,
            # Slices own matches by their start, and rows of aggregates by their end.
            bool(plan.query.aggregates),
        ),
        # Whoever asks for slices gets them for totals, too.
        spread_totals=slices is None or slices is False,
    )
    for part in parts:
        check_names(events.frame, part.columns, own=[PART_COLUMN])
    found = [_placement(events, part, slices) for part in parts]
    for placement in found:
        if placement.reason is not None:
            log.warning(
                "a single task has to see all events of %s, because %s%s",
                ", ".join(placement.part.share.queries),
                placement.reason,
                placement.advice,
            )
    return found


def _placement(events: Events, part: SharePlan, hint: SliceHint) -> Placement:
    plans = part.plans
    if part.composed or plans is None:
        return Placement(part, reason=None if part.keys else "what its queries find is read by others")
    if all(map(is_about_single_events, plans)):
        return Placement(part, alone=True)
    partitions = int(str(events.frame.sparkSession.conf.get("spark.sql.shuffle.partitions")))
    if part.totals is not None:
        return Placement(part, totals=_totals(part, plans, partitions))
    uncut = next(filter(None, map(cannot_be_cut, plans)), None)
    if part.keys and (hint is None or hint is False or uncut is not None):
        if uncut is not None and hint is not None and hint is not False and hint != "auto":
            log.warning("%s cannot be cut into time slices, because %s", ", ".join(part.share.queries), uncut)
        return Placement(part)
    reaches = [reach_in_events(plan) for plan in plans]
    if uncut is not None and hint is not False and None not in reaches:
        return Placement(part, ranges=Ranges(max(reach for reach in reaches if reach is not None), partitions))
    if uncut is not None or hint is False:
        reason, advice = why_together(plans)
        return Placement(part, reason=f"{reason}, and {uncut or 'slices=False'}", advice=advice)
    counted = None
    if hint == "auto" and part.keys:
        largest, total = _key_counts(events, part, plans)
        hot = largest * partitions > HOT_KEY_FACTOR * total
        counted = f"the largest key has {largest:,} of {total:,} events, which is {'' if hot else 'not '}too hot"
        if not hot:
            return Placement(part, counted=counted)
    # 1 is a length, though Python takes it for True.
    if hint is None or hint is True or hint == "auto":
        length = None
    else:
        length = duration_ticks(hint, events.program.catalog, "slices")
    return Placement(part, cut(plans, partitions, length), counted=counted)


def _totals(part: SharePlan, plans: Sequence[Plan], partitions: int) -> TotalsJob:
    assert part.totals is not None
    windows = [plan.window_ticks for plan in plans]
    stretch = None if None in windows else WINDOWS_PER_SLICE * max(window for window in windows if window is not None)
    if stretch is not None and stretch >= INT_MAX:
        stretch = None
    tasks = partitions if stretch is not None else 1
    return TotalsJob(dump(part.totals), part.share.first_query, stretch, tasks)


def _key_counts(events: Events, part: SharePlan, plans: Sequence[Plan]) -> tuple[int, int]:
    """The events of the largest key, and of all of them. Reads the key columns once."""
    keys = [key_column(path) for path in part.keys]
    counted = _filtered(events, plans).groupBy(F.hash(*keys).alias("key")).count()
    row = counted.agg(F.max("count").alias("largest"), F.sum("count").alias("total")).first()
    return (0, 0) if row is None or not row["total"] else (row["largest"], row["total"])


def _placed(events: Events, placement: Placement, memory_limit: int | None) -> DataFrame:
    """Only what the queries look at, with all events that can be in one match in one partition."""
    part = placement.part
    rows = _filtered(events, part.plans).select(*thinned(part.plans, events.layout, part.columns))
    if placement.cut is not None:
        placed = _dealt_out(rows, part, placement.cut, packed=memory_limit is None)
    elif placement.ranges is not None:
        placed = place_in_ranges(rows, events.layout, placement.ranges)
    elif placement.alone:
        placed = rows
    else:
        placed = rows.repartition(*map(key_column, part.keys)) if part.keys else rows.repartition(1)
    if memory_limit is None:
        return placed
    if not isinstance(memory_limit, int) or isinstance(memory_limit, bool) or memory_limit <= 0:
        raise InputError(f"memory_limit={memory_limit!r} is not a number of bytes; write it like 1 << 30")
    order = [events.layout.time] if placement.cut is None else [PART_COLUMN, events.layout.time]
    return placed.sortWithinPartitions(*map(quoted, order))


def _dealt_out(rows: DataFrame, part: SharePlan, slices: Slices, *, packed: bool) -> DataFrame:
    """Each event once for each part of time that needs it, with all of a part in one partition."""
    if packed:
        dealt = in_arrow(rows, PACKED, "spread", part.share, slices)
        return dealt.repartitionById(slices.parts, F.col(PACKED_NUMBER))
    columns = spark_schema(pa.ipc.read_schema(pa.py_buffer(part.share.columns)))
    marked = StructType([*columns.fields, StructField(PART_COLUMN, IntegerType())])
    dealt = in_arrow(rows, marked, "mark", part.share, slices)
    return dealt.repartitionById(slices.parts, F.col(quoted(PART_COLUMN)))


def _filtered(events: Events, plans: Sequence[Plan] | None) -> DataFrame:
    rows = events.frame
    for condition in wanted(plans, events.layout, events.layout.time):
        rows = rows.where(condition)
    return rows
