"""Arrays of the counter kernels (A-Seq): the query, instances, state and output, both for one query and for several
queries that share a tree of counters.

Nothing here needs numba. A *column* counts the prefixes of the pattern that end with one component. Column 0 counts the
empty prefix; then there is one column for each positive component, in order. A component may have a second column after
its own, its *gate*. The next component then extends the prefixes at the gate. A negative event clears the gate, but not
the prefixes that + may still extend.

A *measure* is a sum or a minimum over the events of one component in all matches. With each count of prefixes, the
measures of these prefixes are kept.

Several queries share a tree of the common parts of their patterns.

A pattern is a path of *parts* from the root. A part is a symbol, or a segment that several patterns contain. Patterns
with the same first parts share them (the paper's PreTree). A *symbol* is a type with the predicates on single events of
one component. An *element* is a place where a symbol is counted: a node of the tree, or a place in a segment.

Each key has one block of words. It begins with the *columns* of the tree's nodes. A column has one word for each level
on the path from the root: word r counts the paths from the prefix of level r to the prefix of the column. A segment of
m symbols is counted once for all its places in the tree. At each place it takes m + 1 levels, and the tree keeps a
*snapshot* there: m + 1 words for each level before the segment, which count the paths on which prefixes entered the
segment, relative to the segment at that time. `tree.py` explains how segments and snapshots are combined. Columns and
snapshots are padded with zeros to a multiple of `LANES`, so that several words are added and multiplied at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import INT64_MAX, INT64_MIN, Matrix, enlarged
from ouzel.kernels.events import NO_WINDOW
from ouzel.kernels.predicate_tables import Alternative, Atom, Comparison, Lane

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
    """Which events of a Kleene component a measure reads."""

    EVERY = 0  # also without +
    FIRST = 1
    LAST = 2


class Measure(NamedTuple):
    kind: MeasureKind
    component: int
    lane: int  # in `CounterInstances.ints` or, for FLOAT, in `.floats`
    over: Over = Over.EVERY


class Kind(IntEnum):
    """How counters treat a component."""

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
    """How counters remove events that leave the window."""

    UNBOUNDED = 0  # one row of counters, nothing ever leaves
    INVERSE = 1  # a matrix; the oldest event is removed by the inverse of its effect
    STACKS = 2  # two stacks of products
    PER_START = 3  # one row of counters for each first event, as in the paper (SEM, HPC)
    GRAPH = 4  # along the edges between neighbouring events, which predicates test
    INDEXED = 5  # by an index over the values of the first two events, which predicates compare
    CUMULATIVE = 6  # by products since the beginning and sums for each group that an event decides


class Status(IntEnum):
    """Why a call returned."""

    DONE = 0
    OUTPUT_FULL = 1
    WIDEN = 2  # 64 bits may no longer be enough
    ROOM = 3  # room for more rows of counters is needed


class CounterInstances(NamedTuple):
    """Instances ordered by tick; within a tick by component, the last one first; then by key."""

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
    """A query as arrays."""

    way: int  # kernels take the current one from the state
    wide: int  # likewise
    columns: int
    first: int  # the component of the first event
    final: int  # the column of complete matches
    window: int  # in ticks, NO_WINDOW if there is none
    on_change: int
    split: int  # the own column of the component whose events decide the group; 0 if keys do
    has_kleene: int
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
    """The tables of a query. `split` is the component whose events decide the group of a match; None if keys decide
    it.

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
        wide=0,
        columns=column + 1,
        first=positives[0],
        final=reached,
        window=NO_WINDOW if window is None else window,
        on_change=int(on_change),
        split=0 if split is None else int(by_component[split, ByComponent.OWN]),
        has_kleene=int(any(kleene)),
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
    """The number of floats in a column of one row. Wide counters also have a float for each count, of about the same
    size.
    """
    return tables.real_fields + wide


# Patterns of `Way.INDEXED` and `.CUMULATIVE`: up to this length no count of live events can pass 126 bits.
LENGTH_MAX = 4

ORDERS = (Comparison.LESS, Comparison.LESS_EQUAL, Comparison.GREATER, Comparison.GREATER_EQUAL)
_MIRRORED = {
    Comparison.EQUAL: Comparison.EQUAL,
    Comparison.LESS: Comparison.GREATER,
    Comparison.LESS_EQUAL: Comparison.GREATER_EQUAL,
    Comparison.GREATER: Comparison.LESS,
    Comparison.GREATER_EQUAL: Comparison.LESS_EQUAL,
}


def indexed_atoms(conjuncts: Sequence[Sequence[Alternative]], first: int, second: int) -> list[Atom] | None:
    """The predicates as comparisons of a lane of the first component with one of the second. All but the last must be
    equalities. None if the predicates have another form.

    >>> price = Atom(Lane(1, 0), Comparison.GREATER, Lane(0, 0))
    >>> indexed_atoms([[price]], 0, 1)[0].comparison.name, indexed_atoms([[price], [price]], 0, 1)
    ('LESS', None)
    """
    found = []
    for alternatives in conjuncts:
        atom = alternatives[0]
        if len(alternatives) != 1 or not isinstance(atom, Atom) or not isinstance(atom.right, Lane):
            return None
        if atom.comparison not in _MIRRORED:
            return None
        if atom.left.component == second:
            atom = Atom(atom.right, _MIRRORED[atom.comparison], atom.left)
        assert isinstance(atom.right, Lane)
        if (atom.left.component, atom.right.component) != (first, second):
            return None
        found.append(atom)
    found.sort(key=lambda atom: atom.comparison in ORDERS)
    return found if sum(atom.comparison in ORDERS for atom in found) <= 1 else None


ROWS_UNLIMITED = 2**62


class CounterOutput(NamedTuple):
    """Output rows: a timestamp, a group and its counts. After reading them, set written[0] to 0 to reuse the arrays."""

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
    """The answer has more rows than `CounterOutput.written[1]` allows."""


def larger_counter_output(output: CounterOutput) -> CounterOutput:
    """At least twice the room, with the current rows."""
    if output.written[0] > output.written[1]:
        raise TooManyRowsError
    size = max(len(output.tick), 256)
    # Rows move to new memory seldom. What is not written yet takes none.
    room = max(2 * size, min(8 * size, int(output.written[1]) + 1))
    grown = (enlarged(array, room if len(array) else 0, 0) for array in output[:-1])
    return CounterOutput._make([*grown, output.written])


class Counter(IntEnum):
    """Indexes into `counters` of the states."""

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
    """The statistics before the first event."""
    counters = np.zeros(len(Counter), np.int64)
    # A component with + may have many values in one match, which no bound on counts covers.
    counters[Counter.WIDE] = tables.integers > 0 and tables.has_kleene
    return counters


class Phase(IntEnum):
    CHOOSE = 0
    WORK = 1
    EMIT = 2


class Groups(NamedTuple):
    """The groups that the current timestamp may change. Group numbers are dense."""

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
    """Sums over simultaneous events of one component and key, and a row that is being read. Only valid during a
    call.
    """

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


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """A segment in a pattern, by its number."""

    segment: int


# The number of words of a segment that are processed at a time.
LANES = 4

# A symbol's number, or a segment. A pattern begins and ends with symbols, and no two segments touch.
Part = int | SegmentPart


class ElementKind(IntEnum):
    """Where in the tree an element is."""

    PLAIN = 0  # a node behind a node
    JOINT = 1  # a node next to a segment
    SEGMENT = 2  # a place in a segment
    CLOSE = 3  # a negative event that empties the column of a node


class ByElement(IntEnum):
    """Columns of `SharedTables.by_element`."""

    KIND = 0
    COORDINATE = 1  # the number of its column
    LEVEL = 2
    PARENT = 3  # the column before; for a node after a segment, that of the node before the segment
    END = 4  # after the last column below it, without those after segments that follow it
    FIRST_FINAL = 5  # in `finals`
    LAST_FINAL = 6
    FIRST_BELOW = 7  # in `finals_below`, of first nodes
    LAST_BELOW = 8
    FIRST_INNER = 9  # in `joints`: those below the columns up to END
    FIRST_JOINT = 10  # in `joints`: its own, and those below them
    LAST_JOINT = 11
    SNAPSHOT = 12  # after a segment: the number of the joint, otherwise -1
    SEGMENT = 13  # of a place in a segment
    PLACE = 14  # in its segment, from 1
    WEIGHT = 15  # see Weight; rows of sixteen are one line of memory


class Weight(IntEnum):
    """Whether a node is part of a sum."""

    NONE = 0
    OWN = 1  # its instances have weights; it has no segment next to it
    ABOVE = 2  # it is below such a node


class ByJoint(IntEnum):
    """Columns of `SharedTables.joints`: a segment after a node, in depth-first order."""

    SEGMENT = 0
    WORDS = 1  # where its snapshot begins in a key's block: level by level
    LEVEL = 2  # of the segment's entry; the snapshot has the levels before the node before it
    FIRST = 3  # the first column below the segment
    END = 4  # after the last one
    NEXT = 5  # after the joints below the segment


class BySegment(IntEnum):
    """Columns of `SharedTables.segments`. Words of four matrices follow each other: see `tree.py`."""

    LENGTH = 0
    WORDS = 1  # where they begin in a key's block
    BOUND = 2  # where its bounds begin in a key's bounds
    WIDTH = 3  # words of a row or column of a matrix, and of a level of a snapshot: m + 1, padded with zeros


class ByFinal(IntEnum):
    """Columns of `SharedTables.finals`."""

    PATTERN = 0  # where its total is
    QUERY = 1
    COLUMN = 2  # 0 for the count of a query; sums follow, each a separate pattern


class SharedTables(NamedTuple):
    """The patterns of several queries with one window, as arrays."""

    levels: int  # words of a column
    coordinates: int
    block: int  # words of a key
    bounds: int  # bounds of a key
    window: int  # NO_WINDOW if nothing ever leaves: a column is then one word
    on_change: int  # 1 if expiry is emitted, too; all queries only count
    by_element: Matrix[np.int32]  # [element, ByElement]
    joints: Matrix[np.int32]  # [joint, ByJoint]
    segments: Matrix[np.int32]  # [segment, BySegment]
    finals: Matrix[np.int32]  # [place, ByFinal]: the patterns that an element completes
    finals_below: Matrix[np.int32]  # [place, (coordinate, pattern, query)]: every pattern once
    columns: int  # of a row of the output
    summed: NDArray[np.uint8]  # [query]: 1 if a group may have several keys, whose total is kept; 2 if united


@dataclass(slots=True)
class _Node:
    part: Part | None
    children: list[_Node] = field(default_factory=list)
    patterns: list[int] = field(default_factory=list)

    def child(self, part: Part, *, merge: bool) -> _Node:
        for one in self.children:
            if merge and one.part == part:
                return one
        # Nodes before segments: the nodes below a node without a segment in between are contiguous.
        made = _Node(part)
        place = len(self.children)
        if not isinstance(part, SegmentPart):
            place = next((i for i, one in enumerate(self.children) if isinstance(one.part, SegmentPart)), place)
        self.children.insert(place, made)
        return made


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """The tables, and the elements of each symbol and of each query."""

    tables: SharedTables
    symbol: NDArray[np.int32]  # per element
    # The elements of each symbol, the later ones of a pattern first: `width[s]` of them from `first[s]` on.
    elements: NDArray[np.int32]
    first: NDArray[np.int64]
    width: NDArray[np.int64]
    rank: NDArray[np.int32]  # per element: within a timestamp a larger one comes first
    paths: tuple[tuple[int, ...], ...]  # per pattern the elements of its components
    closers: dict[int, dict[int, int]]  # per element of a node: by the symbol of what closes it, its element


def build_shared_tables(
    patterns: Sequence[Sequence[Part]],
    segments: Sequence[Sequence[int]] = (),
    *,
    window: int | None,
    summed: Sequence[bool],
    merge: bool = True,
    columns: Sequence[tuple[int, int]] | None = None,
    weighted: Collection[int] = (),
    symbols: int = 0,
    on_change: bool = False,
    united: bool = False,
    closes: Mapping[int, Collection[int]] | None = None,
) -> SharedLayout:
    """The tree of some patterns, one for each query. With `merge=False`, queries share the scan but no counters.
    Without a window there are no segments.

    If queries also sum, `columns` gives the query and the column (0: COUNT) of each pattern. A sum is the count of a
    pattern with one symbol in `weighted`, whose instances count with their weights. `symbols` is a lower bound of their
    number, because some may be in no pattern. `closes` maps a symbol to the symbols of negative components after it.
    With `united`, all patterns belong to one query, and those of the same column are added up.

    >>> layout = build_shared_tables([[0, 1, 2], [0, 1, 3]], window=10, summed=[False, False])
    >>> layout.paths, layout.tables.coordinates
    (((0, 1, 2), (0, 1, 3)), 5)
    """
    assert window is not None or not (segments or on_change)
    root = _Node(None)
    for number, pattern in enumerate(patterns):
        node = root
        for part in pattern:
            node = node.child(part, merge=merge)
        node.patterns.append(number)
    builder = _Builder(segments, columns or [(query, 0) for query in range(len(patterns))], weighted, united)
    builder.visit_children(root, 0, 0, ())
    paths = tuple(builder.paths[number] for number in range(len(patterns)))
    closers = builder.close(closes or {})
    symbol = np.array(builder.symbols, np.int32)
    between = {
        (earlier, closer, later)
        for path in paths
        for earlier, later in pairwise(path)
        for closer in closers.get(earlier, {}).values()
    }
    rank = _ranks([*paths, *between], len(symbol))
    order = np.lexsort((-rank, symbol)).astype(np.int32)
    first = np.searchsorted(symbol[order], np.arange(max(symbols, int(symbol.max()) + 1) + 1))
    return SharedLayout(
        tables=builder.tables(window, summed, on_change=on_change),
        symbol=symbol,
        elements=order,
        first=first[:-1],
        width=np.diff(first),
        rank=rank,
        paths=paths,
        closers=closers,
    )


class _Builder:
    """Walks the tree from the root and collects the rows of the tables."""

    def __init__(
        self,
        segments: Sequence[Sequence[int]],
        columns: Sequence[tuple[int, int]],
        weighted: Collection[int],
        united: bool,
    ) -> None:
        self.united = united
        # Where the totals of each pattern are added up.
        self.totals = [column if united else pattern for pattern, (_, column) in enumerate(columns)]
        self.segments = segments
        self.columns = columns
        self.weighted = weighted
        self.symbols: list[int] = []
        self.rows: list[list[int]] = []
        self.joints: list[list[int]] = []
        self.finals: list[tuple[int, int, int]] = []
        self.below: list[tuple[int, int, int]] = []
        self.paths: dict[int, tuple[int, ...]] = {}
        self.coordinates = self.levels = 1  # the root
        self.first_of_segment: list[int] = []
        for number, segment in enumerate(segments):
            self.first_of_segment.append(len(self.rows))
            for place, symbol in enumerate(segment, start=1):
                row = [0] * len(ByElement)
                row[ByElement.KIND], row[ByElement.SEGMENT], row[ByElement.PLACE] = ElementKind.SEGMENT, number, place
                row[ByElement.SNAPSHOT] = -1
                self.symbols.append(symbol)
                self.rows.append(row)

    def visit_children(self, node: _Node, coordinate: int, level: int, path: tuple[int, ...]) -> tuple[int, int]:
        """Visit what is below a node, without the segments that begin at it. Returns (the next free column, the next
        free joint).
        """
        nodes = [child for child in node.children if not isinstance(child.part, SegmentPart)]
        for child in nodes:
            self._visit(child, coordinate, level + 1, -1, path)
        end = self.coordinates, len(self.joints)
        for child in node.children:
            if isinstance(child.part, SegmentPart):
                self._visit_segment(child, child.part.segment, coordinate, level + 1, path)
        return end

    def _visit(self, node: _Node, parent: int, level: int, snapshot: int, path: tuple[int, ...]) -> None:
        assert isinstance(node.part, int)
        row = [0] * len(ByElement)
        self.symbols.append(node.part)
        path = (*path, len(self.rows))
        self.rows.append(row)
        coordinate = self.coordinates
        self.coordinates += 1
        self.levels = max(self.levels, level + 1)
        beside = snapshot >= 0 or any(isinstance(child.part, SegmentPart) for child in node.children)
        row[ByElement.KIND] = ElementKind.JOINT if beside else ElementKind.PLAIN
        row[ByElement.COORDINATE], row[ByElement.LEVEL], row[ByElement.PARENT] = coordinate, level, parent
        row[ByElement.SNAPSHOT] = snapshot
        row[ByElement.WEIGHT] = self._weight(node.part, path)
        assert row[ByElement.WEIGHT] != Weight.OWN or row[ByElement.KIND] == ElementKind.PLAIN, (
            "a segment beside a weight"
        )
        row[ByElement.FIRST_FINAL] = len(self.finals)
        self.finals += [(self.totals[pattern], *self.columns[pattern]) for pattern in node.patterns]
        self.paths |= dict.fromkeys(node.patterns, path)
        row[ByElement.LAST_FINAL] = len(self.finals)
        first_below = len(self.below)
        self.below += [(coordinate, self.totals[pattern], self.columns[pattern][0]) for pattern in node.patterns]
        row[ByElement.FIRST_INNER] = len(self.joints)
        row[ByElement.END], row[ByElement.FIRST_JOINT] = self.visit_children(node, coordinate, level, path)
        row[ByElement.LAST_JOINT] = len(self.joints)
        # Matches are lost only when their first event leaves.
        starts = level == 1
        row[ByElement.FIRST_BELOW], row[ByElement.LAST_BELOW] = first_below if starts else 0, len(self.below) * starts

    def close(self, closes: Mapping[int, Collection[int]]) -> dict[int, dict[int, int]]:
        """Add an element for each symbol that closes a node. The result maps the node's element to these."""
        closers: dict[int, dict[int, int]] = {}
        for element, symbol in enumerate(tuple(self.symbols)):
            for closer in sorted(closes.get(symbol, ())):
                row = list(self.rows[element])
                row[ByElement.KIND] = ElementKind.CLOSE
                for place in (ByElement.FIRST_FINAL, ByElement.LAST_FINAL, ByElement.FIRST_BELOW, ByElement.LAST_BELOW):
                    row[place] = 0
                closers.setdefault(element, {})[closer] = len(self.rows)
                self.symbols.append(closer)
                self.rows.append(row)
        return closers

    def _weight(self, symbol: int, path: tuple[int, ...]) -> Weight:
        if symbol in self.weighted:
            return Weight.OWN
        return Weight.ABOVE if any(self.symbols[above] in self.weighted for above in path) else Weight.NONE

    def _visit_segment(self, node: _Node, segment: int, parent: int, level: int, path: tuple[int, ...]) -> None:
        number = len(self.joints)
        joint = [segment, 0, level, self.coordinates, 0, 0]
        self.joints.append(joint)
        first, length = self.first_of_segment[segment], len(self.segments[segment])
        for child in node.children:
            self._visit(child, parent, level + length + 1, number, (*path, *range(first, first + length)))
        joint[ByJoint.END], joint[ByJoint.NEXT] = self.coordinates, len(self.joints)

    def tables(self, window: int | None, summed: Sequence[bool], *, on_change: bool) -> SharedTables:
        levels = 1 if window is None else self.levels
        words, bounds = self.coordinates * levels, self.coordinates
        placed = []
        for segment in self.segments:
            side = len(segment) + 1
            width = -(-side // LANES) * LANES
            placed.append((len(segment), words, bounds, width))
            words += 4 * side * width
            bounds += side
        for joint in self.joints:
            joint[ByJoint.WORDS] = words
            words += (joint[ByJoint.LEVEL] - 1) * placed[joint[ByJoint.SEGMENT]][BySegment.WIDTH]
        return SharedTables(
            levels=levels,
            coordinates=self.coordinates,
            block=words,
            bounds=bounds,
            window=NO_WINDOW if window is None else window,
            on_change=int(on_change),
            by_element=np.array(self.rows, np.int32).reshape(-1, len(ByElement)),
            joints=np.array(self.joints, np.int32).reshape(-1, len(ByJoint)),
            segments=np.array(placed, np.int32).reshape(-1, len(BySegment)),
            finals=np.array(self.finals, np.int32).reshape(-1, len(ByFinal)),
            finals_below=np.array(self.below, np.int32).reshape(-1, 3),
            columns=1 + max(column for _, column in self.columns),
            summed=np.array([2 if self.united else int(one) for one in summed], np.uint8),
        )


def _ranks(paths: Sequence[Sequence[int]], elements: int) -> NDArray[np.int32]:
    """Ranks of elements that increase along every path. Raises ValueError if two elements appear in both orders."""
    rank = np.zeros(elements, np.int32)
    for _ in range(elements + 1):
        before = rank.copy()
        for path in paths:
            for earlier, later in pairwise(path):
                rank[later] = max(rank[later], rank[earlier] + 1)
        if (rank == before).all():
            return rank
    raise ValueError("two segments stand in both orders")


# ── State ──────────────────────────────────────────────────────────────────────────────────────────


class SharedState(NamedTuple):
    """The state between calls. Slots are indexes into the caller's buffer of instances."""

    words: NDArray[np.uint64]  # a block for each key
    bound: Matrix[np.float64]  # [key, bound]: of each coordinate's word 0, and of the paths through each segment
    key_group: Matrix[np.int32]  # [query, key]
    total: Matrix[np.uint64]  # [pattern, group]
    last_row: Matrix[np.int64]  # [query, group]: where the output may have a row of the timestamp
    opened: NDArray[np.int64]  # of length 1: the number of keys with a block
    counters: NDArray[np.int64]  # by tables.Counter


class SharedOutput(NamedTuple):
    """Output rows: a query, a timestamp, a group and its columns. Only rows that are `completed` are emitted."""

    query: NDArray[np.int32]
    tick: NDArray[np.int64]
    group: NDArray[np.int32]
    completed: NDArray[np.uint8]
    value: Matrix[np.uint64]  # [row, column], modulo 2^64
    before: NDArray[np.uint64]  # [row]: the count before the timestamp, if expiry is emitted; otherwise empty
    written: NDArray[np.int64]


def new_shared_state(tables: SharedTables) -> SharedState:
    queries = len(tables.summed)
    return SharedState(
        np.zeros(0, np.uint64),
        np.zeros((0, tables.bounds), np.float64),
        np.zeros((queries, 0), np.int32),
        np.zeros((len(tables.finals), 0), np.uint64),
        np.zeros((queries, 0), np.int64),
        np.zeros(1, np.int64),
        np.zeros(len(Counter), np.int64),
    )


def new_shared_output(capacity: int = 1024, columns: int = 1, *, on_change: bool = False) -> SharedOutput:
    return SharedOutput(
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.uint8),
        np.empty((capacity, columns), np.uint64),
        np.empty(capacity if on_change else 0, np.uint64),
        np.zeros(1, np.int64),
    )


def larger_shared_output(output: SharedOutput) -> SharedOutput:
    room = 2 * max(512, len(output.tick))
    grown = (enlarged(array, room if len(array) else 0, 0) for array in output[:-1])
    return SharedOutput._make([*grown, output.written])


def reserve_shared(tables: SharedTables, state: SharedState, key_groups: Sequence[NDArray[np.int32]]) -> SharedState:
    """A state with room for all keys. `key_groups[query]` has the group of each key."""
    keys = max(len(groups) for groups in key_groups)
    groups = max(int(groups.max(initial=0)) for groups in key_groups) + 1
    if keys > state.key_group.shape[1]:
        room = max(keys, 2 * state.key_group.shape[1])
        state = state._replace(
            words=enlarged(state.words, room * tables.block, 0),
            bound=enlarged(state.bound, room, 1),
            key_group=np.zeros((len(key_groups), room), np.int32),
        )
    if groups > state.total.shape[1]:
        room = max(groups, 2 * state.total.shape[1])
        state = state._replace(
            total=enlarged(state.total, room, 0, axis=-1),
            last_row=enlarged(state.last_row, room, 0, axis=-1),
        )
    for query, listed in enumerate(key_groups):
        state.key_group[query, : len(listed)] = listed
    return state


def rekey_shared(
    tables: SharedTables, state: SharedState, live: NDArray[np.int32], key_groups: Sequence[NDArray[np.int32]]
) -> SharedState:
    """Keep only the keys in `live`: key `live[k]` becomes k + 1, and key 0 keeps its number. `key_groups` has the
    groups of the new keys.
    """
    old = np.concatenate([np.zeros(1, np.int64), live.astype(np.int64)])
    known = old[old < state.opened[0]]
    fresh = reserve_shared(tables, new_shared_state(tables), key_groups)
    fresh.words[: len(known) * tables.block] = state.words.reshape(-1, tables.block)[known].reshape(-1)
    fresh.bound[: len(known)] = state.bound[known]
    fresh.opened[0] = len(known)
    fresh.counters[:] = state.counters
    for coordinate, pattern, query in tables.finals_below:
        counts = fresh.words.reshape(-1, tables.block)[: len(known), coordinate * tables.levels]
        np.add.at(fresh.total[pattern], fresh.key_group[query, : len(known)], counts)
    return fresh
