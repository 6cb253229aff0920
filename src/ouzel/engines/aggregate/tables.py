"""Arrays of the counter kernels (A-Seq): the query, the instances, the memory, the output.

Nothing here needs numba. A *column* counts the prefixes of the pattern that end with a component: column 0 the empty
one, then one for each positive component, in order. A component may have a *gate*, a second column after its own, which
the next component extends; a negative event closes the gate but not the prefixes that + may still extend.

A *measure* is a sum or a minimum over the events of one component in all matches. Each count of prefixes also has the
measures of these prefixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import INT64_MAX, INT64_MIN, Matrix, enlarged
from ouzel.kernels.events import NO_WINDOW

NEVER = INT64_MIN
# The minimum of nothing.
NOTHING = INT64_MAX
# Counts below this, times the largest weight, never wrap in 64 bits when a single event is added.
NARROW_MAX = 2.0**61


class MeasureKind(IntEnum):
    INTEGER = 0  # a sum of int64 values, exact
    FLOAT = 1  # a sum of float64 values
    LEAST = 2  # the least of int64 values; NOTHING for an event without a value


class Over(IntEnum):
    """Which events of a component with + are measured."""

    EVERY = 0  # also without +
    FIRST = 1
    LAST = 2


class Measure(NamedTuple):
    kind: MeasureKind
    component: int
    lane: int  # in `CounterInstances.ints` or, for FLOAT, in `.floats`
    over: Over = Over.EVERY


class Kind(IntEnum):
    """What a component is to the counters."""

    POSITIVE = 0
    NEGATIVE = 1  # between two positive ones: closes the gate
    NEGATED_START = 2


class ByComponent(IntEnum):
    """Columns of `CounterTables.by_component`."""

    KIND = 0
    FROM = 1  # the column that it extends
    OWN = 2  # of negatives: the column that is closed
    GATE = 3  # -1 if it has none
    KLEENE = 4


class ByMeasure(IntEnum):
    """Columns of `CounterTables.by_measure`."""

    KIND = 0
    COLUMN = 1  # the own column of its component
    LANE = 2
    OVER = 3
    FIELD = 4  # in words; of FLOAT in reals
    HIGH_FIELD = 5  # of INTEGER: the field of the upper 64 bits, if counters are wide


class Way(IntEnum):
    """How counters follow the window."""

    UNBOUNDED = 0  # one row of counters, nothing ever leaves
    INVERSE = 1  # a matrix; the oldest event is removed by the inverse of its effect
    STACKS = 2  # two stacks of products
    PER_START = 3  # one row of counters for each first event, as in the paper (SEM, HPC)
    GRAPH = 4  # along the edges between neighbouring events, which predicates test


class Status(IntEnum):
    """How a call ended."""

    DONE = 0
    OUTPUT_FULL = 1
    WIDEN = 2  # 64 bits may no longer be enough
    ROOM = 3  # room for more rows of counters is needed


class CounterInstances(NamedTuple):
    """Instances in order of tick; within a tick by component, last one first, then by key."""

    tick: NDArray[np.int64]
    key: NDArray[np.int32]
    component: NDArray[np.uint8]
    group: NDArray[np.int32]  # for instances that decide a match's group; otherwise empty
    ints: Matrix[np.int64]  # [lane, slot]; nulls are 0, or NOTHING for a minimum
    floats: Matrix[np.float64]  # [lane, slot]; nulls are 0
    # What predicates between events read; no lanes if there are none.
    int_lanes: Matrix[np.int64]  # [lane, slot]
    float_lanes: Matrix[np.float64]
    lane_flags: Matrix[np.uint8]  # [int64 lanes, then float64 lanes; slot]


def new_counter_instances(
    capacity: int,
    ints: int = 0,
    floats: int = 0,
    *,
    grouped: bool = False,
    int_lanes: int = 0,
    float_lanes: int = 0,
) -> CounterInstances:
    return CounterInstances(
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, np.uint8),
        np.zeros(capacity if grouped else 0, np.int32),
        np.zeros((ints, capacity), np.int64),
        np.zeros((floats, capacity), np.float64),
        np.zeros((int_lanes, capacity), np.int64),
        np.zeros((float_lanes, capacity), np.float64),
        np.zeros((int_lanes + float_lanes, capacity), np.uint8),
    )


class CounterTables(NamedTuple):
    """A query."""

    way: int
    columns: int
    first: int  # the component of the first event
    final: int  # the column of complete matches
    window: int  # in ticks, NO_WINDOW if there is none
    on_change: int
    split: int  # the own column of the component whose events decide the group; 0 if keys do
    has_negated_start: int
    word_fields: int
    integers: int
    real_fields: int
    by_component: Matrix[np.int32]  # [component, ByComponent]
    by_measure: Matrix[np.int32]  # [measure, ByMeasure]


def build_counter_tables(
    negated: Sequence[bool],
    kleene: Sequence[bool] | None = None,
    window: int | None = None,
    measures: Sequence[Measure] = (),
    *,
    way: Way,
    on_change: bool = False,
    split: int | None = None,
) -> CounterTables:
    """The tables of a query. `split` is the component whose events decide a match's group, if keys do not.

    >>> tables = build_counter_tables([False, True, False], window=10, way=Way.STACKS)
    >>> tables.columns, tables.by_component[:, ByComponent.OWN].tolist()
    (3, [1, 1, 2])
    """
    kleene = kleene or [False] * len(negated)
    positives = [component for component, negative in enumerate(negated) if not negative]
    assert positives and not negated[-1], "a negated end needs the matches themselves"
    assert not negated[0] or (window is not None and way in (Way.STACKS, Way.PER_START, Way.GRAPH))
    by_component = np.full((len(negated), len(ByComponent)), -1, np.int32)
    column = 0
    reached = 0
    for component in positives:
        column += 1
        is_last = component == positives[-1]
        gated = (kleene[component] and not is_last and negated[component + 1]) or (is_last and negated[0])
        by_component[component] = (Kind.POSITIVE, reached, column, column + 1 if gated else -1, kleene[component])
        column += int(gated)
        reached = column
    for component, negative in enumerate(negated):
        if negative:
            before = [by_component[p] for p in positives if p < component]
            closed = max(before[-1][ByComponent.OWN], before[-1][ByComponent.GATE]) if before else 0
            kind = Kind.NEGATIVE if before else Kind.NEGATED_START
            by_component[component] = (kind, -1, closed, -1, 0)
    by_measure = np.zeros((len(measures), len(ByMeasure)), np.int32)
    integers = sum(measure.kind is MeasureKind.INTEGER for measure in measures)
    word_fields = 1 + sum(measure.kind is not MeasureKind.FLOAT for measure in measures)
    words, reals, high = 1, 0, word_fields + 1
    for number, measure in enumerate(measures):
        own = by_component[measure.component, ByComponent.OWN]
        field = reals if measure.kind is MeasureKind.FLOAT else words
        by_measure[number] = (measure.kind, own, measure.lane, measure.over, field, high)
        reals += measure.kind is MeasureKind.FLOAT
        words += measure.kind is not MeasureKind.FLOAT
        high += measure.kind is MeasureKind.INTEGER
    return CounterTables(
        way=int(way),
        columns=column + 1,
        first=positives[0],
        final=reached,
        window=NO_WINDOW if window is None else window,
        on_change=int(on_change),
        split=0 if split is None else int(by_component[split, ByComponent.OWN]),
        has_negated_start=int(negated[0]),
        word_fields=word_fields,
        integers=integers,
        real_fields=reals,
        by_component=by_component,
        by_measure=by_measure,
    )


def words_per_column(tables: CounterTables, wide: int) -> int:
    """The number of 64-bit words in a column of one row. Wide counters have 128 bits."""
    return tables.word_fields + wide * (1 + tables.integers)


def reals_per_column(tables: CounterTables, wide: int) -> int:
    """The number of floats in a column of one row. Wide counters also keep each count as a float, which gives its
    size."""
    return tables.real_fields + wide


ROWS_UNLIMITED = 2**62


class CounterOutput(NamedTuple):
    """Rows: a timestamp, a group and its counts. Read them, set written[0] to 0, and use it again."""

    tick: NDArray[np.int64]
    group: NDArray[np.int32]
    # The count's lower and upper 64 bits, then each measure's: two words of INTEGER, one of LEAST, one unused of FLOAT.
    words: Matrix[np.uint64]  # [row, word]
    reals: Matrix[np.float64]  # [row]: the count as a float, then one for each measure, 0 except for FLOAT
    completed: NDArray[np.uint8]  # [row]: 0 if the row is only about expiry
    before_words: Matrix[np.uint64]  # [row, word]: the values before the timestamp; only for EMIT ON CHANGE
    before_reals: Matrix[np.float64]
    written: NDArray[np.int64]  # the number of rows, and the largest number allowed


def new_counter_output(tables: CounterTables, capacity: int = 1024) -> CounterOutput:
    measures = len(tables.by_measure)
    kept = capacity if tables.on_change else 0
    return CounterOutput(
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.zeros((capacity, 2 + 2 * measures), np.uint64),
        np.zeros((capacity, 1 + measures), np.float64),
        np.zeros(capacity, np.uint8),
        np.zeros((kept, 2 + 2 * measures), np.uint64),
        np.zeros((kept, 1 + measures), np.float64),
        np.array([0, ROWS_UNLIMITED]),
    )


class TooManyRowsError(Exception):
    """There are more rows than `CounterOutput.written[1]`."""


def larger_counter_output(output: CounterOutput) -> CounterOutput:
    """Twice the room, with the current rows."""
    if output.written[0] > output.written[1]:
        raise TooManyRowsError
    room = 2 * max(len(output.tick), 512)
    grown = (enlarged(array, room if len(array) else 0, 0) for array in output[:-1])
    return CounterOutput._make([*grown, output.written])


class Counter(IntEnum):
    """Places in the states' `counters`."""

    WIDE = 0
    NOW = 1  # the current tick
    PHASE = 2  # see Phase
    TOUCHED = 3  # the number of groups that the timestamp touched
    EMITTED = 4  # the number of these that were emitted
    OLDEST = 5  # the oldest slot, or queue entry, that has not left the window
    QUEUED = 6  # after the newest queue entry
    USED = 7  # used rows of the arena
    # Work counters; the answer does not depend on them.
    INSTANCES = 8
    STARTS = 9
    EXPIRED = 10
    FLIPS = 11
    ROWS = 12


def new_counters(tables: CounterTables) -> NDArray[np.int64]:
    """Counters before the first event."""
    counters = np.zeros(len(Counter), np.int64)
    # A component with + may have many values in one match, which no bound on counts covers.
    counters[Counter.WIDE] = tables.integers > 0 and tables.by_component[:, ByComponent.KLEENE].max() > 0
    return counters


class Phase(IntEnum):
    CHOOSE = 0
    WORK = 1
    EMIT = 2


class Groups(NamedTuple):
    """The groups that a timestamp touches. Group numbers are dense."""

    touched: NDArray[np.int32]  # those of the timestamp
    mark: NDArray[np.uint8]  # per group: 0 untouched, 1 touched, 2 completed in
    before_words: Matrix[np.uint64]  # [place in touched, word]: the values before the timestamp, for EMIT ON CHANGE
    before_reals: Matrix[np.float64]
    first_cell: NDArray[np.int32]  # per group the first of its cells, -1 if none


def new_groups(tables: CounterTables, capacity: int) -> Groups:
    measures = len(tables.by_measure)
    kept = capacity if tables.on_change else 1
    return Groups(
        np.zeros(capacity, np.int32),
        np.zeros(capacity, np.uint8),
        np.zeros((kept, 2 + 2 * measures), np.uint64),
        np.zeros((kept, 1 + measures), np.float64),
        np.full(capacity, -1, np.int32),
    )


def reserve_groups(tables: CounterTables, groups: Groups, capacity: int) -> Groups:
    if len(groups.mark) >= capacity:
        return groups
    kept = capacity if tables.on_change else 1
    return Groups(
        enlarged(groups.touched, capacity, 0),
        enlarged(groups.mark, capacity, 0),
        enlarged(groups.before_words, kept, 0),
        enlarged(groups.before_reals, kept, 0),
        enlarged(groups.first_cell, capacity),
    )


class Scratch(NamedTuple):
    """The sums over simultaneous events of one component and key, and a row being read. Only valid during a call."""

    low: NDArray[np.uint64]  # per measure
    high: NDArray[np.uint64]
    real: NDArray[np.float64]
    least: NDArray[np.int64]
    words: NDArray[np.uint64]
    reals: NDArray[np.float64]


def new_scratch(tables: CounterTables) -> Scratch:
    measures = len(tables.by_measure)
    return Scratch(
        np.zeros(measures, np.uint64),
        np.zeros(measures, np.uint64),
        np.zeros(measures, np.float64),
        np.zeros(measures, np.int64),
        np.zeros(2 + 2 * measures, np.uint64),
        np.zeros(1 + measures, np.float64),
    )
