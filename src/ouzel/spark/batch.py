"""Queries over bounded DataFrames: filter by roles, spread by key or by time, one session for each partition."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ouzel.errors import InputError
from ouzel.plan.model import Plan
from ouzel.runtime.engine import duration_ticks
from ouzel.spark.catalyst import wanted
from ouzel.spark.events import Events, key_column
from ouzel.spark.schema import quoted, spark_schema
from ouzel.spark.shares import SharePlan, plan_shares
from ouzel.spark.shipping import on_workers
from ouzel.spark.slices import Cut, cannot_be_cut, cut, is_about_single_events
from ouzel.spark.worker import PACKED, PART_COLUMN, BatchJob

log = logging.getLogger("ouzel.spark")

# The length of a slice; "auto": look at the data; False: never cut; None: cut what has no key.
SliceHint = int | str | timedelta | bool | None

# A key with this many times its even share of the events keeps one task busy while the others have nothing to do.
HOT_KEY_FACTOR = 2


@dataclass(frozen=True)
class Placement:
    """A share and how its events are spread."""

    part: SharePlan
    cut: Cut | None = None
    # Every match is a single event, which needs no others around it.
    alone: bool = False
    # Why all events go to one task, where they do.
    reason: str | None = None
    # How many events the keys were found to have, where they were counted.
    counted: str | None = None

    def describe(self) -> str:
        """One sentence for EXPLAIN."""
        return self._spreading() + (f"; {self.counted}" if self.counted else "")

    def _spreading(self) -> str:
        names = ", ".join(self.part.share.queries)
        if self.cut is not None:
            slices = self.cut.slices
            behind = f", look-behind {self.cut.behind_ticks:,}" if self.cut.behind_ticks else ""
            return (
                f"{names}: cut into time slices of {slices.ticks:,} ticks, "
                f"look-ahead {self.cut.ahead_ticks:,}{behind}; "
                f"{slices.parts} tasks take turns at them, and a match counts where it starts"
            )
        if self.alone:
            return f"{names}: every event is looked at where it lies"
        if self.part.keys:
            return f"{names}: spread by {', '.join('.'.join(path) for path in self.part.keys)}"
        return f"{names}: a single task sees all events, because {self.reason}"


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
    return _run("match_partition", events, placement, memory_limit, spark_schema(schema))


def match_several(
    events: Events, placements: Sequence[Placement], names: Sequence[str], memory_limit: int | None
) -> Matches:
    """The matches of several queries, which are computed together for each share."""
    frames: dict[str, DataFrame] = {}
    shared = []
    for placement in placements:
        part = placement.part
        packed = _run("match_partition_packed", events, placement, memory_limit, PACKED).persist()
        shared.append(packed)
        for number, (name, schema) in enumerate(part.outputs.items(), start=part.share.first_query):
            frames[name] = packed.mapInArrow(on_workers("unpack", number), spark_schema(schema))
    return Matches({name: frames[name] for name in names}, shared)


def _run(
    function: str, events: Events, placement: Placement, memory_limit: int | None, schema: StructType | str
) -> DataFrame:
    placed = _placed(events, placement, memory_limit)
    columns = tuple(placed.columns)
    slices = None if placement.cut is None else placement.cut.slices
    if any("." in name or "`" in name for name in columns):
        # PySpark's mapInArrow would take a dot for the way into a struct.
        run = on_workers(function, placement.part.share, BatchJob(slices, memory_limit, columns))
        return placed.toDF(*(f"column{number}" for number in range(len(columns)))).mapInArrow(run, schema)
    return placed.mapInArrow(on_workers(function, placement.part.share, BatchJob(slices, memory_limit)), schema)


# ── Spreading ──────────────────────────────────────────────────────────────────────────────────────


def plan_placements(events: Events, slices: SliceHint) -> list[Placement]:
    """How the queries are put together and their events spread."""
    parts = plan_shares(
        events.program, events.clock, apart=lambda plan: (cannot_be_cut(plan) is None, is_about_single_events(plan))
    )
    for part in parts:
        _check_names(events.frame, part.columns)
    found = [_placement(events, part, slices) for part in parts]
    for placement in found:
        if placement.reason is not None:
            log.warning(
                "a single task has to see all events of %s, because %s; an equivalence test, such as [id], would keep "
                "them apart",
                ", ".join(placement.part.share.queries),
                placement.reason,
            )
    return found


def _check_names(frame: DataFrame, columns: Sequence[str]) -> None:
    """Spark, unless told otherwise, takes names that differ in case for one."""
    if str(frame.sparkSession.conf.get("spark.sql.caseSensitive")).lower() == "true":
        return
    present = frame.columns
    for column in columns:
        other = next((name for name in present if name != column and name.lower() == column.lower()), None)
        if other is not None:
            raise InputError(
                f"Spark cannot tell the columns '{column}' and '{other}' apart; rename one of them, or set "
                "spark.sql.caseSensitive to true"
            )


def _placement(events: Events, part: SharePlan, hint: SliceHint) -> Placement:
    plans = part.plans
    if part.composed or plans is None:
        return Placement(part, reason=None if part.keys else "what its queries find is read by others")
    if all(map(is_about_single_events, plans)):
        return Placement(part, alone=True)
    uncut = next(filter(None, map(cannot_be_cut, plans)), None)
    if part.keys and (hint is None or hint is False or uncut is not None):
        if uncut is not None and hint not in (None, False, "auto"):
            log.warning("%s cannot be cut into time slices, because %s", ", ".join(part.share.queries), uncut)
        return Placement(part)
    if uncut is not None or hint is False:
        return Placement(part, reason=f"no equivalence test keeps them apart, and {uncut or 'slices=False'}")
    partitions = int(str(events.frame.sparkSession.conf.get("spark.sql.shuffle.partitions")))
    counted = None
    if hint == "auto" and part.keys:
        largest, total = _key_counts(events, part, plans)
        hot = largest * partitions > HOT_KEY_FACTOR * total
        counted = f"the largest key has {largest:,} of {total:,} events, which is {'' if hot else 'not '}too hot"
        if not hot:
            return Placement(part, counted=counted)
    length = None if hint in (None, True, "auto") else duration_ticks(hint, events.program.catalog, "slices")
    return Placement(part, cut(plans, partitions, length), counted=counted)


def _key_counts(events: Events, part: SharePlan, plans: Sequence[Plan]) -> tuple[int, int]:
    """The events of the largest key, and of all of them. Reads the key columns once."""
    keys = [key_column(path) for path in part.keys]
    counted = _filtered(events, plans).groupBy(F.hash(*keys).alias("key")).count()
    row = counted.agg(F.max("count").alias("largest"), F.sum("count").alias("total")).first()
    return (0, 0) if row is None or not row["total"] else (row["largest"], row["total"])


def _placed(events: Events, placement: Placement, memory_limit: int | None) -> DataFrame:
    """Only what the queries look at, with all events that can be in one match in one partition."""
    part = placement.part
    rows = _filtered(events, part.plans).select(*(quoted(column) for column in part.columns))
    if placement.cut is not None:
        placed = placement.cut.place(rows, events.layout)
    elif placement.alone:
        placed = rows
    else:
        placed = rows.repartition(*map(key_column, part.keys)) if part.keys else rows.repartition(1)
    if memory_limit is None:
        return placed
    if memory_limit <= 0:
        raise InputError(f"memory_limit={memory_limit} is not a number of bytes")
    order = [events.layout.time] if placement.cut is None else [PART_COLUMN, events.layout.time]
    return placed.sortWithinPartitions(*map(quoted, order))


def _filtered(events: Events, plans: Sequence[Plan] | None) -> DataFrame:
    rows = events.frame
    for condition in wanted(plans, events.layout, events.layout.time):
        rows = rows.where(condition)
    return rows
