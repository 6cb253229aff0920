"""Division by time, for queries without a key and for keys with most of the work: into slices of time, or into ranges
with about as many events each.

A match that starts at t depends only on events in (t - window, t + window). So an event is sent to the slice of its own
time, and to adjacent slices whose matches it may join or forbid. A match counts in the slice where it starts. With ten
windows in a slice, about one event in ten is sent twice. An aggregate at t depends on one window before t, and its row
counts in the slice of t.

If matches span a number of events (strict contiguity, WITHIN n EVENTS), Spark divides the stream into ranges of time
with about as many events each. Each range is matched by its own task. Another task finds the matches across range
boundaries among the events near them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ouzel.bind.model import EventWindow, TimeWindow
from ouzel.errors import InputError
from ouzel.lang.syntax import OutputForm, Strategy
from ouzel.plan.model import Plan
from ouzel.runtime.program import is_composed
from ouzel.runtime.session import Session
from ouzel.runtime.values import one_array
from ouzel.spark.payloads import FIRST_PROBLEM, QueryGroup, from_payload, payloads_of

INT_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Slices:
    """Time divided into slices of `ticks` ticks. Slice k belongs to part k mod parts.

    A part has all events on which a match that starts in one of its slices can depend, so it finds these matches
    correctly. Other matches that it finds belong to another part, and may be wrong. Rows of aggregates have no start,
    so their end decides.
    """

    ticks: int
    parts: int
    # The rows of a slice may depend on events up to this many ticks after it, and before it.
    ahead_ticks: int = 0
    behind_ticks: int = 0
    by_end: bool = False

    def owned(self, part: int, answers: Iterable[tuple[int, pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
        """The matches that start in a slice of the part, or the rows that end there. Problems are passed on.

        >>> answers = [(0, pa.table({"start": [-1, 5, 12, 25]}))]
        >>> [rows["start"].to_pylist() for _, rows in Slices(10, 2).owned(0, answers)]
        [[5, 25]]
        """
        for number, rows in answers:
            if number < FIRST_PROBLEM:
                ticks = as_ticks(rows.column("end" if self.by_end else "start"))
                rows = rows.filter(pa.array(ticks // self.ticks % self.parts == part))
            if rows.num_rows:
                yield number, rows


def as_ticks(times: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Times as integers: microseconds, or the integers that Spark passes. A null becomes 0 here, and
    `QueryGroup.events` refuses it.
    """
    whole = one_array(times)
    ticks = whole.view(pa.int64()) if pa.types.is_timestamp(whole.type) else whole.cast(pa.int64())
    return np.asarray(ticks.fill_null(0).to_numpy(zero_copy_only=False))


WINDOWS_PER_SLICE = 10


def cannot_be_cut(plan: Plan) -> str | None:
    """Why the matches of a query depend on events far from their start, so that time slices are impossible; None if
    they do not.
    """
    query = plan.query
    if is_composed(query):
        return "it reads the results of other queries"
    if query.threshold is not None:
        return "events missing before the start of a match affect its score"
    if query.output.form not in (OutputForm.ALL, OutputForm.FIRST):
        return f"OUTPUT {query.output.form.value.replace('_', ' ')} depends on earlier matches"
    if not isinstance(query.window, TimeWindow) or query.window.ticks is None:
        return "it needs WITHIN in time, which bounds a match"
    return None


def is_about_single_events(plan: Plan) -> bool:
    """Whether every match is one event, independent of all others."""
    query = plan.query
    if len(query.components) > 1 or query.components[0].kleene or is_composed(query):
        return False
    return not query.aggregates and query.threshold is None and query.output.form is OutputForm.ALL


def cut(plans: Sequence[Plan], partitions: int, length_ticks: int | None = None) -> Slices:
    """The slices for queries that can all be divided by time. By default a slice has ten windows."""
    windows = [plan.window_ticks for plan in plans if plan.window_ticks is not None]
    assert len(windows) == len(plans), "a query without a window cannot be cut"
    reaches = [_reach(plan, window) for plan, window in zip(plans, windows, strict=True)]
    ahead_ticks, behind_ticks = (max(ticks) for ticks in zip(*reaches, strict=True))
    # No event may affect more than the neighbouring slice.
    shortest = max(1, ahead_ticks + behind_ticks)
    if length_ticks is not None and length_ticks < shortest:
        raise InputError(
            f"slices= is {length_ticks:,} ticks, but these queries need slices of at least {shortest:,} ticks; "
            f"{WINDOWS_PER_SLICE * max(windows):,} ticks ({WINDOWS_PER_SLICE} windows) is a good length"
        )
    length = length_ticks or min(INT_MAX, max(shortest, WINDOWS_PER_SLICE * max(windows)))
    # A round of all parts fits 64 bits.
    parts = max(1, min(partitions, INT_MAX // length))
    return Slices(length, parts, ahead_ticks, behind_ticks, by_end=bool(plans[0].query.aggregates))


def _reach(plan: Plan, window: int) -> tuple[int, int]:
    """(after, before): how far outside a slice the events may be on which its rows depend."""
    negated = any(order[0].negated for order in plan.query.orders)
    if plan.query.aggregates:
        # An event that expires at a tick counted until one tick before; a negated start may forbid it from up to a
        # window earlier.
        return 0, 2 * window if negated else window
    return window - 1, window - 1 if negated else 0


RANGED_PART = "part"
# In rows of edges, the first tick of their range; null in rows with matches.
RANGED_FIRST = "first"
RANGED = f"{RANGED_PART} INT, query INT, {RANGED_FIRST} BIGINT, payload BINARY"
_RANGED = pa.schema({RANGED_PART: pa.int32(), "query": pa.int32(), RANGED_FIRST: pa.int64(), "payload": pa.binary()})
_HEAD, _TAIL = -1, -2
_BOUNDARIES_PART = 0


class Edges:
    """The first and the last events of a range, which are enough for every match across one of its boundaries.

    >>> edges = Edges("ts", span=1)
    >>> for times in ([5, 9], [3, 3], [9, 7]):
    ...     edges.add(pa.record_batch({"ts": times}))
    >>> edges.head["ts"].to_pylist(), edges.tail["ts"].to_pylist()
    ([3, 3], [9, 9])
    """

    def __init__(self, time: str, span: int) -> None:
        self._time = time
        self._span = span
        self._head: list[pa.RecordBatch] = []
        self._tail: list[pa.RecordBatch] = []
        self._held = 0
        # Once there are enough, later (or earlier) events cannot be among them.
        self._head_max: int | None = None
        self._tail_min: int | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add events, in any order."""
        ticks = as_ticks(batch.column(self._time))
        for kept, wanted in (
            (self._head, None if self._head_max is None else ticks <= self._head_max),
            (self._tail, None if self._tail_min is None else ticks >= self._tail_min),
        ):
            if wanted is None or wanted.all():
                kept.append(batch)
            elif wanted.any():
                kept.append(batch.filter(pa.array(wanted)))
        self._held += batch.num_rows
        if self._held > max(50_000, 4 * self._span):
            self._trim()

    @property
    def is_empty(self) -> bool:
        """Whether the range has no events."""
        return not self._head

    @property
    def head(self) -> pa.Table:
        """All events of the first timestamps, as many timestamps as give at least `span` events."""
        self._trim()
        return pa.Table.from_batches(self._head)

    @property
    def tail(self) -> pa.Table:
        """All events of the last timestamps, as many timestamps as give at least `span` events."""
        self._trim()
        return pa.Table.from_batches(self._tail)

    def _trim(self) -> None:
        self._head, self._head_max = _first(self._head, self._time, self._span)
        self._tail, last = _first(self._tail, self._time, self._span, backwards=True)
        self._tail_min = None if last is None else ~last
        self._held = 0


def _first(
    batches: list[pa.RecordBatch], time: str, count: int, *, backwards: bool = False
) -> tuple[list[pa.RecordBatch], int | None]:
    """(batches, time): the `count` first events, with all events simultaneous with the last of them, and the time of
    that one.
    """
    table = pa.Table.from_batches(batches)
    ticks = as_ticks(table.column(time))
    if len(ticks) <= count:
        return batches, None
    if backwards:
        ticks = ~ticks  # like -ticks, but also defined for the smallest 64-bit integer
    limit = int(np.partition(ticks, count - 1)[count - 1])
    return table.filter(pa.array(ticks <= limit)).combine_chunks().to_batches(), limit


@dataclass(frozen=True, slots=True)
class Ranges:
    """How a query group is divided into ranges. A match spans at most `span` positions after its first event."""

    span: int
    parts: int


def watched(edges: Edges, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches. Each is also added to `edges`."""
    for batch in batches:
        if batch.num_rows:
            edges.add(batch)
        yield batch


def ranged(
    ranges: Ranges, group: QueryGroup, part: int, edges: Edges, answers: Iterable[tuple[int, pa.Table]]
) -> Iterator[pa.RecordBatch]:
    """The output of a range: the matches inside it, and its edges."""
    for number, table in answers:
        for payload in payloads_of(table):
            yield _row(part % ranges.parts, number, None, payload)
    if not ranges.span or edges.is_empty:
        return
    head, tail = group.events(edges.head), group.events(edges.tail)
    first = int(as_ticks(head[group.time]).min())
    for kind, table in ((_HEAD, head), (_TAIL, tail)):
        for payload in payloads_of(table):
            yield _row(_BOUNDARIES_PART, kind, first, payload)


def _row(part: int, number: int, first: int | None, payload: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{RANGED_PART: part, "query": number, RANGED_FIRST: first, "payload": payload}], schema=_RANGED
    )


def joined(ranges: Ranges, group: QueryGroup, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """The matches inside ranges, then those across range boundaries, each with the number of its query."""
    heads: dict[int, list[pa.Table]] = {}
    tails: dict[int, list[pa.Table]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            table = from_payload(row["payload"])
            if row[RANGED_FIRST] is None:
                yield row["query"], table
            else:
                (heads if row["query"] == _HEAD else tails).setdefault(row[RANGED_FIRST], []).append(table)
    order = sorted(heads)
    for place, first in enumerate(order[:-1]):
        tail = pa.concat_tables(tails[first])
        last = int(as_ticks(tail[group.time]).max())
        pieces, following = [tail], 0
        for later in order[place + 1 :]:
            pieces += heads[later]
            following += sum(table.num_rows for table in heads[later])
            # If there are fewer, the range has no more, and a match may extend into the next one.
            if following >= ranges.span:
                break
        session = Session.open(group.program, isolates=group.reports)
        session.push(pa.concat_tables(pieces), zero_copy=True)
        for number, table in group.numbered(session.finish()):
            start, end = (as_ticks(table[name]) for name in ("start", "end"))
            crossing = table.filter(pa.array((start <= last) & (end > last)))
            if crossing.num_rows:
                yield number, crossing
        yield from group.problems(session.problems, "the events around one range boundary")


def span_in_events(plan: Plan) -> int | None:
    """The largest possible number of positions in the whole stream from the first to the last event of a match.

    None if there is no limit, or if matches also depend on events before or after these.
    """
    query = plan.query
    if is_composed(query) or query.aggregates or query.threshold is not None:
        return None
    if query.output.form not in (OutputForm.ALL, OutputForm.FIRST) or isinstance(query.window, TimeWindow):
        return None
    contiguous = query.strategy is Strategy.STRICT_CONTIGUITY or (
        query.strategy is Strategy.PARTITION_CONTIGUITY and not query.equivalences
    )
    spans = []
    if isinstance(query.window, EventWindow) and (contiguous or not query.equivalences):
        # A contiguous match is within one partition, so its positions there are those of the stream.
        spans.append(query.window.count - 1)
    if contiguous and not any(component.kleene for component in query.components):
        spans.append(len(query.positives) - 1)
    return min(spans, default=None)
