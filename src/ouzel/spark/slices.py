"""Time cut into slices, for queries that no key spreads and for keys that are too hot.

A match that starts at t depends on nothing outside (t - window, t + window). So an event is sent to the slice of its
own time and to the neighbours whose matches it may be part of, or forbid, and a match counts where it starts. At ten
windows a slice, about one event in ten travels twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ouzel.bind.model import TimeWindow
from ouzel.errors import InputError
from ouzel.lang.syntax import OutputForm
from ouzel.plan.model import Plan
from ouzel.runtime.composition import is_composed
from ouzel.runtime.layout import Layout
from ouzel.spark.buckets import DIVISIBLE, bucket_names
from ouzel.spark.catalyst import INT_MAX, INT_MIN, ticks
from ouzel.spark.schema import quoted
from ouzel.spark.worker import PART_COLUMN, Slices

WINDOWS_PER_SLICE = 10
PLACE_COLUMN = "ouzel place"


def cannot_be_cut(plan: Plan) -> str | None:
    """Why the matches of a query are not a matter of the events around their start; None where they are."""
    query = plan.query
    if is_composed(query):
        return "it reads what other queries find"
    if query.aggregates:
        return "an aggregate is over all matches of a moment, wherever they start"
    if query.threshold is not None:
        return "what is missing before a match starts counts in its score"
    if query.output.form not in (OutputForm.ALL, OutputForm.FIRST):
        return f"OUTPUT {query.output.form.value.replace('_', ' ')} decides by what was found before"
    if not isinstance(query.window, TimeWindow) or query.window.ticks is None:
        return "only a window in time, WITHIN, says how far a match may reach"
    return None


def is_about_single_events(plan: Plan) -> bool:
    """Whether every match is one event, whatever the others are."""
    query = plan.query
    if len(query.components) > 1 or query.components[0].kleene or is_composed(query):
        return False
    return not query.aggregates and query.threshold is None and query.output.form is OutputForm.ALL


@dataclass(frozen=True)
class Cut:
    """How a share is cut: events reach `behind_ticks` ahead of and `ahead_ticks` back from their own time."""

    slices: Slices
    ahead_ticks: int
    behind_ticks: int

    def place(self, rows: DataFrame, layout: Layout) -> DataFrame:
        """Each event once for each part that needs it, with all of a part in one partition."""
        time = ticks(F.col(quoted(layout.time)), layout.schema.field(layout.time).type)
        earliest = F.coalesce(F.try_subtract(time, _long(self.ahead_ticks)), _only_where(time, INT_MIN))
        latest = F.coalesce(F.try_add(time, _long(self.behind_ticks)), _only_where(time, INT_MAX))
        parts = F.array_distinct(F.array(self._part(earliest), self._part(latest)))
        spread = rows.select("*", F.explode(parts).alias(PART_COLUMN))
        # Spark places rows by a hash, and bare numbers would leave some partitions empty.
        names = F.array(*(F.lit(name) for name in bucket_names(self.slices.parts)))
        place = F.element_at(names, F.col(quoted(PART_COLUMN)) + F.lit(1))
        placed = spread.withColumn(PLACE_COLUMN, place)
        return placed.repartition(self.slices.parts, quoted(PLACE_COLUMN)).drop(PLACE_COLUMN)

    def _part(self, tick: Column) -> Column:
        length = _long(self.slices.ticks)
        # Exact, and towards the earlier: div alone rounds towards zero, and a tick may be near the end of 64 bits.
        number = F.call_function("div", tick, length) - F.when(F.pmod(tick, length) == _long(0), _long(0)).when(
            tick < _long(0), _long(1)
        ).otherwise(_long(0))
        return F.pmod(number, _long(self.slices.parts)).cast("int")


def cut(plans: Sequence[Plan], partitions: int, length_ticks: int | None = None) -> Cut:
    """How queries that can all be cut are cut into slices, of ten windows unless told otherwise."""
    windows = [plan.window_ticks for plan in plans if plan.window_ticks is not None]
    assert len(windows) == len(plans), "what has no window cannot be cut"
    ahead_ticks = max(windows) - 1
    behind_ticks = max((w - 1 for plan, w in zip(plans, windows, strict=True) if _starts_negated(plan)), default=0)
    # No event may reach over a whole slice.
    shortest = max(1, ahead_ticks + behind_ticks)
    if length_ticks is not None and length_ticks < shortest:
        raise InputError(
            f"slices of {length_ticks:,} ticks are shorter than the {shortest:,} that a match may reach; "
            f"{WINDOWS_PER_SLICE} windows, {WINDOWS_PER_SLICE * max(windows):,} ticks, are a good length"
        )
    length = length_ticks or min(INT_MAX, max(shortest, WINDOWS_PER_SLICE * max(windows)))
    return Cut(Slices(length, _even(partitions)), ahead_ticks, behind_ticks)


def _starts_negated(plan: Plan) -> bool:
    return plan.query.components[0].negated


def _even(partitions: int) -> int:
    """The largest number of parts, no larger than asked for, that Spark's hash spreads evenly."""
    return max(count for count in range(1, max(1, min(partitions, DIVISIBLE)) + 1) if DIVISIBLE % count == 0)


def _long(number: int) -> Column:
    return F.lit(number).cast("bigint")


def _only_where(value: Column, number: int) -> Column:
    """A number, but null where the value is."""
    return F.when(value.isNotNull(), _long(number))
