"""Queries over bounded DataFrames: filter, distribute by key or by time, one session for each partition."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta

from pyspark.sql import DataFrame

from ouzel.plan.model import Plan
from ouzel.runtime.feeder import duration_ticks
from ouzel.runtime.program import Program, dump
from ouzel.spark.distribution import (
    ByKey,
    Distribution,
    InRanges,
    InSlices,
    MergePartials,
    NoShuffle,
    SingleTask,
)
from ouzel.spark.input import Events, check_names
from ouzel.spark.partitioning import QueryGroupPlan, plan_query_groups, why_single_task
from ouzel.spark.ranges import Ranges, span_in_events
from ouzel.spark.schema import PROBLEM, spark_schema, with_extra_columns
from ouzel.spark.tasks import on_workers
from ouzel.spark.time_slices import (
    INT_MAX,
    PART_COLUMN,
    WINDOWS_PER_SLICE,
    cannot_be_cut,
    cut,
    is_about_single_events,
)
from ouzel.spark.totals import TotalsJob
from ouzel.spark.worker import Memory, unpack, unpack_wide

log = logging.getLogger("ouzel.spark")

# The length of a slice; True: ten windows; False: never cut; None: cut queries without a key.
SliceHint = int | str | timedelta | bool | None


class Matches(dict[str, DataFrame]):
    """The DataFrames of several queries, by name. They share one computation, which Spark keeps until `release`."""

    def __init__(self, frames: Mapping[str, DataFrame], shared: Sequence[DataFrame]) -> None:
        super().__init__(frames)
        self._shared = list(shared)

    def release(self) -> None:
        """Remove the computed matches from Spark's cache; the DataFrames stay usable and are computed again."""
        for frame in self._shared:
            frame.unpersist()

    def __enter__(self) -> Matches:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def match_one(events: Events, distributions: Sequence[Distribution], memory: Memory) -> DataFrame:
    """The matches of the one query."""
    (distribution,) = distributions
    if distribution.plan.group.reports:
        (frame,) = _unpacked(distribution.plan, distribution.packed_matches(events, memory)).values()
        return frame
    return distribution.matches(events, memory)


def match_several(
    events: Events, distributions: Sequence[Distribution], names: Sequence[str], memory: Memory
) -> Matches:
    """The matches of several queries; those of one group are computed together."""
    frames: dict[str, DataFrame] = {}
    shared = []
    for distribution in distributions:
        packed = distribution.packed_matches(events, memory).persist()
        shared.append(packed)
        frames |= _unpacked(distribution.plan, packed)
    return Matches({name: frames[name] for name in names}, shared)


def _unpacked(plan: QueryGroupPlan, packed: DataFrame) -> dict[str, DataFrame]:
    """The rows of each query of a group, and its problems where they are reported."""
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
    """How the queries are grouped and their events distributed. `reports`: as `QueryGroup.reports`."""
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
    if group.composed or plans is None:
        return ByKey(group) if group.keys else SingleTask(group, "queries read its results")
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


def _totals(program: Program, group: QueryGroupPlan, plans: Sequence[Plan], partitions: int) -> TotalsJob:
    windows = [plan.window_ticks for plan in plans]
    bucket = None if None in windows else WINDOWS_PER_SLICE * max(window for window in windows if window is not None)
    if bucket is not None and bucket >= INT_MAX:
        bucket = None
    tasks = partitions if bucket is not None else 1
    return TotalsJob(dump(program), group.group.first_query, bucket, tasks, group.group.reports)
