"""The ways in which the events of a share are spread over Spark's tasks, one class for each.

Whatever the way, only what the queries look at travels, and all events that can be in one match meet in one partition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from ouzel.errors import InputError
from ouzel.plan.model import Plan
from ouzel.spark.input import Events, key_column
from ouzel.spark.partitioning import SharePlan
from ouzel.spark.payloads import PACKED, PACKED_NUMBER
from ouzel.spark.pushdown import projected_columns, pushed_filters
from ouzel.spark.ranges import RANGED, Ranges, join_ranges, place_in_ranges
from ouzel.spark.schema import quoted, spark_schema
from ouzel.spark.tasks import TotalsJob, in_arrow, on_workers
from ouzel.spark.time_slices import PART_COLUMN, Slices
from ouzel.spark.totals import CHANGES, CHANGES_TASK
from ouzel.spark.worker import BatchJob

Schema = StructType | str


@dataclass(frozen=True)
class Placement(ABC):
    """A share and how its events are spread."""

    part: SharePlan

    @abstractmethod
    def describe(self) -> str:
        """How, for EXPLAIN: what follows the names of the queries in one sentence."""

    @abstractmethod
    def _spread(self, rows: DataFrame, events: Events, memory_limit: int | None) -> DataFrame:
        """The events, each in the partition in which it is matched."""

    def matches(self, events: Events, memory_limit: int | None) -> DataFrame:
        """The matches of the one query."""
        (schema,) = self.part.outputs.values()
        return self._answer("", spark_schema(schema), events, memory_limit)

    def packed_matches(self, events: Events, memory_limit: int | None) -> DataFrame:
        """The matches of all queries of the share, packed by query."""
        return self._answer("_packed", PACKED, events, memory_limit)

    def _answer(self, form: str, schema: Schema, events: Events, memory_limit: int | None) -> DataFrame:
        return self._run(f"match_partition{form}", schema, events, memory_limit)

    def _run(
        self, function: str, schema: Schema, events: Events, memory_limit: int | None, *arguments: object
    ) -> DataFrame:
        """What a function of the workers gives for the events where they lie."""
        part = self.part
        rows = filtered(events, part.plans).select(*projected_columns(part.plans, events.layout, part.columns))
        placed = self._spread(rows, events, memory_limit)
        if memory_limit is not None:
            if not isinstance(memory_limit, int) or isinstance(memory_limit, bool) or memory_limit <= 0:
                raise InputError(f"memory_limit={memory_limit!r} is not a number of bytes; write it like 1 << 30")
            placed = placed.sortWithinPartitions(*map(quoted, self._order(events)))
        return in_arrow(placed, schema, function, *arguments, part.share, self._job(memory_limit))

    def _order(self, events: Events) -> list[str]:
        """By which columns the workers read, where they must not hold all events at once."""
        return [events.layout.time]

    def _job(self, memory_limit: int | None) -> BatchJob:
        return BatchJob(None, memory_limit)


@dataclass(frozen=True)
class Together(Placement):
    """All events in one task."""

    reason: str
    advice: str = ""  # what would keep them apart

    def describe(self) -> str:
        return f"a single task sees all events, because {self.reason}"

    def _spread(self, rows: DataFrame, events: Events, memory_limit: int | None) -> DataFrame:
        return rows.repartition(1)


@dataclass(frozen=True)
class InPlace(Placement):
    """Every match is a single event, which needs no others around it."""

    def describe(self) -> str:
        return "every event is looked at where it lies"

    def _spread(self, rows: DataFrame, events: Events, memory_limit: int | None) -> DataFrame:
        return rows


@dataclass(frozen=True)
class ByKey(Placement):
    """All events of a key in one task."""

    counted: str | None = None  # how many events the keys were found to have, where they were counted

    def describe(self) -> str:
        return spread_by(self.part) + (f"; {self.counted}" if self.counted else "")

    def _spread(self, rows: DataFrame, events: Events, memory_limit: int | None) -> DataFrame:
        return by_key(rows, self.part)


@dataclass(frozen=True)
class AddedUp(Placement):
    """Totals over all keys: what each task tells of its keys is dealt out by time and added up."""

    totals: TotalsJob

    def describe(self) -> str:
        adding = f"{spread_by(self.part)}; what each task counts is added up in order of time, "
        if self.totals.stretch_ticks is None:
            return f"{adding}by one task since there is no window"
        return f"{adding}in slices of {self.totals.stretch_ticks:,} ticks at which {self.totals.tasks} tasks take turns"

    def _spread(self, rows: DataFrame, events: Events, memory_limit: int | None) -> DataFrame:
        return by_key(rows, self.part)

    def _answer(self, form: str, schema: Schema, events: Events, memory_limit: int | None) -> DataFrame:
        told = self._run("tell_changes", CHANGES, events, memory_limit, self.totals)
        dealt = told.repartitionById(self.totals.tasks, F.col(CHANGES_TASK))
        return dealt.mapInArrow(on_workers(f"total_partition{form}", self.totals), schema)


@dataclass(frozen=True)
class InRanges(Placement):
    """Ranges of time with about as many events each, for matches that reach a number of events."""

    ranges: Ranges

    def describe(self) -> str:
        return (
            f"cut into {self.ranges.parts} ranges of time with about as many events each; a match reaches "
            f"{self.ranges.reach:,} events at most, and one that reaches over a seam is found among those beside it"
        )

    def _spread(self, rows: DataFrame, events: Events, memory_limit: int | None) -> DataFrame:
        return place_in_ranges(rows, events.layout, self.ranges)

    def _answer(self, form: str, schema: Schema, events: Events, memory_limit: int | None) -> DataFrame:
        """The matches inside ranges of time, and those over the seams between them."""
        told = self._run("match_range", RANGED, events, memory_limit, self.ranges)
        return join_ranges(told, f"match_seams{form}", self.ranges, self.part.share, schema)


@dataclass(frozen=True)
class InSlices(Placement):
    """Slices of time; an event goes to each that needs it."""

    slices: Slices
    counted: str | None = None  # as `ByKey.counted`

    def describe(self) -> str:
        slices = self.slices
        behind = f", look-behind {slices.behind_ticks:,}" if slices.behind_ticks else ""
        return (
            f"cut into time slices of {slices.ticks:,} ticks, look-ahead {slices.ahead_ticks:,}{behind}; "
            f"{slices.parts} tasks take turns at them, and "
            + ("a row counts where its end is" if slices.by_end else "a match counts where it starts")
            + (f"; {self.counted}" if self.counted else "")
        )

    def _spread(self, rows: DataFrame, events: Events, memory_limit: int | None) -> DataFrame:
        share, slices = self.part.share, self.slices
        if memory_limit is None:
            dealt = in_arrow(rows, PACKED, "spread", share, slices)
            return dealt.repartitionById(slices.parts, F.col(PACKED_NUMBER))
        # Packets cannot be sorted.
        columns = spark_schema(pa.ipc.read_schema(pa.py_buffer(share.columns)))
        marked = StructType([*columns.fields, StructField(PART_COLUMN, IntegerType())])
        dealt = in_arrow(rows, marked, "mark", share, slices)
        return dealt.repartitionById(slices.parts, F.col(quoted(PART_COLUMN)))

    def _order(self, events: Events) -> list[str]:
        return [PART_COLUMN, events.layout.time]

    def _job(self, memory_limit: int | None) -> BatchJob:
        return BatchJob(self.slices, memory_limit, packed=memory_limit is None)


def by_key(rows: DataFrame, part: SharePlan) -> DataFrame:
    """All events of a key in one partition."""
    return rows.repartition(*map(key_column, part.keys))


def spread_by(part: SharePlan) -> str:
    return f"spread by {', '.join('.'.join(path) for path in part.keys)}"


def filtered(events: Events, plans: Sequence[Plan] | None) -> DataFrame:
    """Only the events that may matter to some plan; None: to all of them."""
    rows = events.frame
    for condition in pushed_filters(plans, events.layout, events.layout.time):
        rows = rows.where(condition)
    return rows
