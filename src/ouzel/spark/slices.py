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
from ouzel.spark.catalyst import INT_MAX, ticks
from ouzel.spark.schema import quoted
from ouzel.spark.worker import PART_COLUMN, Slices

WINDOWS_PER_SLICE = 10

# Columns of our own, with names that no query can speak of.
OWN_COLUMN, OTHER_COLUMN, WHICH_COLUMN = "ouzel own part", "ouzel other part", "ouzel which part"


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
        slices = self.slices
        kept = tuple(F.col(quoted(name)) for name in rows.columns)
        time = ticks(F.col(quoted(layout.time)), layout.schema.field(layout.time).type)
        # The parts take their turns in rounds. Within a round all is positive and small, wherever the tick may be.
        in_round = F.pmod(time, _long(slices.ticks * slices.parts))
        own = F.call_function("div", in_round, _long(slices.ticks)).cast("int")
        if slices.parts == 1:
            return rows.select(*kept, F.lit(0).alias(PART_COLUMN)).repartition(1)
        in_slice = F.pmod(time, _long(slices.ticks))
        other = F.when(in_slice < _long(self.ahead_ticks), (own + F.lit(slices.parts - 1)) % F.lit(slices.parts))
        if self.behind_ticks:
            near_end = in_slice >= _long(slices.ticks - self.behind_ticks)
            other = other.when(near_end, (own + F.lit(1)) % F.lit(slices.parts))
        # An event without a time is an error that the workers tell of.
        marked = rows.select(*kept, F.coalesce(own, F.lit(0)).alias(OWN_COLUMN), other.alias(OTHER_COLUMN))
        # Much cheaper than to explode an array of one or two.
        parts = (F.col(quoted(OWN_COLUMN)), F.col(quoted(OTHER_COLUMN)))
        both = marked.unpivot(kept, parts, WHICH_COLUMN, PART_COLUMN)
        part = F.col(quoted(PART_COLUMN))
        return both.where(part.isNotNull()).select(*kept, part).repartitionById(slices.parts, part)


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
    # A round of all parts fits 64 bits.
    return Cut(Slices(length, max(1, min(partitions, INT_MAX // length))), ahead_ticks, behind_ticks)


def _starts_negated(plan: Plan) -> bool:
    return plan.query.components[0].negated


def _long(number: int) -> Column:
    return F.lit(number).cast("bigint")
