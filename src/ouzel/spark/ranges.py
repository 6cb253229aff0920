"""Queries about the whole stream whose matches reach a number of events: strict contiguity and WITHIN n EVENTS.

Spark cuts the stream into ranges of time with about as many events each. Every range is matched by a task of its own,
and what reaches from one into the next is found among the events beside the seam (`ouzel.spark.seams`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ouzel.bind.model import EventWindow, TimeWindow
from ouzel.lang.syntax import OutputForm, Strategy
from ouzel.plan.model import Plan
from ouzel.runtime.composition import is_composed
from ouzel.runtime.layout import Layout
from ouzel.spark.jobs import Share
from ouzel.spark.schema import quoted
from ouzel.spark.seams import RANGED_PART, Ranges
from ouzel.spark.shipping import on_workers


def reach_in_events(plan: Plan) -> int | None:
    """How many positions of the whole stream lie between the first and the last event of a match, at most.

    None where no such number is known, or where the matches are not a matter of the events in between alone.
    """
    query = plan.query
    if is_composed(query) or query.aggregates or query.threshold is not None:
        return None
    if query.output.form not in (OutputForm.ALL, OutputForm.FIRST) or isinstance(query.window, TimeWindow):
        return None
    contiguous = query.strategy is Strategy.STRICT_CONTIGUITY or (
        query.strategy is Strategy.PARTITION_CONTIGUITY and not query.equivalences
    )
    reaches = []
    if isinstance(query.window, EventWindow) and (contiguous or not query.equivalences):
        # A contiguous match is within one partition, so its positions there are those of the stream.
        reaches.append(query.window.count - 1)
    if contiguous and not any(component.kleene for component in query.components):
        reaches.append(len(query.positives) - 1)
    return min(reaches, default=None)


def place_in_ranges(rows: DataFrame, layout: Layout, ranges: Ranges) -> DataFrame:
    """All events of a moment, and the moments of a range, in one partition."""
    return rows.repartitionByRange(ranges.parts, quoted(layout.time))


def join_ranges(told: DataFrame, function: str, ranges: Ranges, share: Share, schema: StructType | str) -> DataFrame:
    """The matches out of what the ranges tell: those inside them, and those over their seams."""
    # Matches stay spread, and the edges of all ranges meet in one partition.
    dealt = told.repartitionById(ranges.parts, quoted(RANGED_PART))
    return dealt.mapInArrow(on_workers(function, ranges, share), schema)


def why_together(plans: Sequence[Plan]) -> tuple[str, str]:
    """Why no key keeps the events of queries apart, and what would."""
    tested = [plan.query for plan in plans if plan.query.equivalences]
    if not tested:
        return "no equivalence test keeps them apart", "; an equivalence test, such as [id], would keep them apart"
    query = tested[0]
    test = f"[{'.'.join(query.equivalences[0].path)}]"
    if query.strategy is Strategy.STRICT_CONTIGUITY:
        return (
            f"strict_contiguity is about all events, not only those that agree on {test}",
            f"; partition_contiguity looks at those of each {test} alone",
        )
    if query.aggregates:
        return f"a total is over all values of {test}", "; GROUP BY gives a total for each"
    return f"an event of a type without what {test} names may join any others", ""
