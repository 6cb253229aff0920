"""Queries over bounded DataFrames: filter by roles, spread by key or by time, one session for each partition."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ouzel.plan.model import Plan
from ouzel.runtime.engine import duration_ticks
from ouzel.runtime.program import Program, dump
from ouzel.spark.distribution import AddedUp, ByKey, InPlace, InRanges, InSlices, Placement, Together, filtered
from ouzel.spark.input import Events, check_names, key_column
from ouzel.spark.partitioning import SharePlan, plan_shares
from ouzel.spark.ranges import Ranges, reach_in_events, why_together
from ouzel.spark.schema import PROBLEM, beside_others, spark_schema
from ouzel.spark.tasks import TotalsJob, on_workers
from ouzel.spark.time_slices import (
    INT_MAX,
    PART_COLUMN,
    WINDOWS_PER_SLICE,
    cannot_be_cut,
    cut,
    is_about_single_events,
)

log = logging.getLogger("ouzel.spark")

# The length of a slice; "auto": look at the data; False: never cut; None: cut what has no key.
SliceHint = int | str | timedelta | bool | None

# A key with this many times its even share of the events keeps one task busy while the others have nothing to do.
HOT_KEY_FACTOR = 2


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
    if placement.part.share.reports:
        (frame,) = _unpacked(placement.part, placement.packed_matches(events, memory_limit)).values()
        return frame
    return placement.matches(events, memory_limit)


def match_several(
    events: Events, placements: Sequence[Placement], names: Sequence[str], memory_limit: int | None
) -> Matches:
    """The matches of several queries, which are computed together for each share."""
    frames: dict[str, DataFrame] = {}
    shared = []
    for placement in placements:
        packed = placement.packed_matches(events, memory_limit).persist()
        shared.append(packed)
        frames |= _unpacked(placement.part, packed)
    return Matches({name: frames[name] for name in names}, shared)


def _unpacked(part: SharePlan, packed: DataFrame) -> dict[str, DataFrame]:
    """The rows of each query of a share, and its problems where they are reported."""
    frames = {}
    for number, (name, schema) in enumerate(part.outputs.items(), start=part.share.first_query):
        if part.share.reports:
            wide = beside_others(schema, [PROBLEM])
            unpack = on_workers("unpack_beside", number, wide.serialize().to_pybytes())
            frames[name] = packed.mapInArrow(unpack, spark_schema(wide))
        else:
            frames[name] = packed.mapInArrow(on_workers("unpack", number), spark_schema(schema))
    return frames


# ── Spreading ──────────────────────────────────────────────────────────────────────────────────────


def plan_placements(events: Events, slices: SliceHint, *, reports: bool = False) -> list[Placement]:
    """How the queries are put together and their events spread. `reports`: as `Share.reports`."""
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
        reports=reports,
    )
    for part in parts:
        check_names(events.frame, part.columns, own=[PART_COLUMN])
    found = [_placement(events, part, slices) for part in parts]
    for placement in found:
        if isinstance(placement, Together):
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
        return ByKey(part) if part.keys else Together(part, "what its queries find is read by others")
    if all(map(is_about_single_events, plans)):
        return InPlace(part)
    partitions = int(str(events.frame.sparkSession.conf.get("spark.sql.shuffle.partitions")))
    if part.totals is not None:
        return AddedUp(part, _totals(part.totals, part, plans, partitions))
    uncut = next(filter(None, map(cannot_be_cut, plans)), None)
    if part.keys and (hint is None or hint is False or uncut is not None):
        if uncut is not None and hint is not None and hint is not False and hint != "auto":
            log.warning("%s cannot be cut into time slices, because %s", ", ".join(part.share.queries), uncut)
        return ByKey(part)
    reaches = [reach_in_events(plan) for plan in plans]
    if uncut is not None and hint is not False and None not in reaches:
        return InRanges(part, Ranges(max(reach for reach in reaches if reach is not None), partitions))
    if uncut is not None or hint is False:
        reason, advice = why_together(plans)
        return Together(part, f"{reason}, and {uncut or 'slices=False'}", advice)
    counted = None
    if hint == "auto" and part.keys:
        largest, total = _key_counts(events, part, plans)
        hot = largest * partitions > HOT_KEY_FACTOR * total
        counted = f"the largest key has {largest:,} of {total:,} events, which is {'' if hot else 'not '}too hot"
        if not hot:
            return ByKey(part, counted)
    # 1 is a length, though Python takes it for True.
    if hint is None or hint is True or hint == "auto":
        length = None
    else:
        length = duration_ticks(hint, events.program.catalog, "slices")
    return InSlices(part, cut(plans, partitions, length), counted)


def _totals(program: Program, part: SharePlan, plans: Sequence[Plan], partitions: int) -> TotalsJob:
    windows = [plan.window_ticks for plan in plans]
    stretch = None if None in windows else WINDOWS_PER_SLICE * max(window for window in windows if window is not None)
    if stretch is not None and stretch >= INT_MAX:
        stretch = None
    tasks = partitions if stretch is not None else 1
    return TotalsJob(dump(program), part.share.first_query, stretch, tasks, part.share.reports)


def _key_counts(events: Events, part: SharePlan, plans: Sequence[Plan]) -> tuple[int, int]:
    """The events of the largest key, and of all of them. Reads the key columns once."""
    keys = [key_column(path) for path in part.keys]
    counted = filtered(events, plans).groupBy(F.hash(*keys).alias("key")).count()
    row = counted.agg(F.max("count").alias("largest"), F.sum("count").alias("total")).first()
    return (0, 0) if row is None or not row["total"] else (row["largest"], row["total"])
