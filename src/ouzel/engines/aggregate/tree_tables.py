"""Arrays of counters that several queries share: a tree of the common parts of their patterns, and its state.

A pattern is a path of *parts* from the root: single symbols, and segments that several patterns contain at any place.
Patterns with the same first parts share them (the paper's PreTree). A *symbol* is a role of an event: its type and the
predicates on it alone. An *element* is a place where a symbol counts: a node of the tree, or a place in a segment.

Each key has one block of words. Its first words are the *columns* of the tree's nodes, with one word for each level on
the path from the root: word r of a column counts the paths from the prefix of level r to that of the column. A segment
of m symbols is counted once for all its places in the tree. At each place it takes m + 1 levels, and the tree keeps a
*snapshot*: for each level before it m + 1 words, which count the paths on which prefixes entered the segment, relative
to the segment at that time. `tree.py` explains how the two are connected. All of them are padded with zeros to a
multiple of `LANES`, so that several words are added and multiplied at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.aggregate.tables import Counter
from ouzel.kernels.arrays import Matrix, enlarged
from ouzel.kernels.events import NO_WINDOW


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """A place in a pattern with a shared segment, by its number."""

    segment: int


# The number of words of a segment that are processed at a time.
LANES = 4

# A symbol's number, or a segment. A pattern begins and ends with symbols, and no two segments touch.
Part = int | SegmentPart


class Kind(IntEnum):
    """What an element is."""

    PLAIN = 0  # a node behind a node
    JOINT = 1  # a node next to a segment
    SEGMENT = 2  # a place in a segment


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
    """Of nodes: whether they are part of a sum."""

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

    PATTERN = 0
    QUERY = 1
    COLUMN = 2  # 0 for the count of a query; sums follow, each a separate pattern


class SharedTables(NamedTuple):
    """Patterns of several queries over one window."""

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
    summed: NDArray[np.uint8]  # [query]: 1 if a group may have several keys, whose total is kept


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
    """The tables, and the elements of each symbol and query."""

    tables: SharedTables
    symbol: NDArray[np.int32]  # per element
    # The elements of each symbol, the later ones of a pattern first: `width[s]` of them from `first[s]` on.
    elements: NDArray[np.int32]
    first: NDArray[np.int64]
    width: NDArray[np.int64]
    rank: NDArray[np.int32]  # per element: within a timestamp a larger one comes first
    paths: tuple[tuple[int, ...], ...]  # per pattern the elements of its components


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
) -> SharedLayout:
    """The tree of some patterns, one for each query. Without `merge` only the scan is shared. Without a window there
    are no segments.

    If queries also sum, `columns` has the query and the column (0: COUNT) of each pattern, and `weighted` the symbols
    that count with the weight of their instances: a sum is the count of a pattern with one such symbol. There are at
    least this many `symbols`, though some may be in none of the patterns.

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
    builder = _Builder(segments, columns or [(query, 0) for query in range(len(patterns))], weighted)
    builder.visit_children(root, 0, 0, ())
    paths = tuple(builder.paths[number] for number in range(len(patterns)))
    symbol = np.array(builder.symbols, np.int32)
    rank = _ranks(paths, len(symbol))
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
    )


class _Builder:
    """Walks down the tree and collects the rows of the tables."""

    def __init__(
        self, segments: Sequence[Sequence[int]], columns: Sequence[tuple[int, int]], weighted: Collection[int]
    ) -> None:
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
                row[ByElement.KIND], row[ByElement.SEGMENT], row[ByElement.PLACE] = Kind.SEGMENT, number, place
                row[ByElement.SNAPSHOT] = -1
                self.symbols.append(symbol)
                self.rows.append(row)

    def visit_children(self, node: _Node, coordinate: int, level: int, path: tuple[int, ...]) -> tuple[int, int]:
        """(the column after the last one, the joint after the last one) below a node without segments of its own."""
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
        row[ByElement.KIND] = Kind.JOINT if beside else Kind.PLAIN
        row[ByElement.COORDINATE], row[ByElement.LEVEL], row[ByElement.PARENT] = coordinate, level, parent
        row[ByElement.SNAPSHOT] = snapshot
        row[ByElement.WEIGHT] = self._weight(node.part, path)
        assert row[ByElement.WEIGHT] != Weight.OWN or row[ByElement.KIND] == Kind.PLAIN, "a segment beside a weight"
        row[ByElement.FIRST_FINAL] = len(self.finals)
        self.finals += [(pattern, *self.columns[pattern]) for pattern in node.patterns]
        self.paths |= dict.fromkeys(node.patterns, path)
        row[ByElement.LAST_FINAL] = len(self.finals)
        first_below = len(self.below)
        self.below += [(coordinate, pattern, self.columns[pattern][0]) for pattern in node.patterns]
        row[ByElement.FIRST_INNER] = len(self.joints)
        row[ByElement.END], row[ByElement.FIRST_JOINT] = self.visit_children(node, coordinate, level, path)
        row[ByElement.LAST_JOINT] = len(self.joints)
        # Matches are lost only when their first event leaves.
        starts = level == 1
        row[ByElement.FIRST_BELOW], row[ByElement.LAST_BELOW] = first_below if starts else 0, len(self.below) * starts

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
            summed=np.array(summed, np.uint8),
        )


def _ranks(paths: Sequence[Sequence[int]], elements: int) -> NDArray[np.int32]:
    """Numbers that increase along every path. Raises ValueError if two paths have two elements in both orders."""
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
    """The memory between calls. Slots are places in the caller's buffer of instances."""

    words: NDArray[np.uint64]  # a block for each key
    bound: Matrix[np.float64]  # [key, bound]: of each coordinate's word 0, and of the paths through each segment
    key_group: Matrix[np.int32]  # [query, key]
    total: Matrix[np.uint64]  # [pattern, group]
    last_row: Matrix[np.int64]  # [query, group]: where the output may have a row of the timestamp
    opened: NDArray[np.int64]  # of length 1: the number of keys with a block
    counters: NDArray[np.int64]  # by tables.Counter


class SharedOutput(NamedTuple):
    """Rows: a query, a timestamp, a group and its columns. Only `completed` rows are emitted."""

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
    """Room for all keys; `key_groups` has the group of each key for each query."""
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
    """Key 0 stays, key `live[k]` becomes k + 1, all others are dropped; `key_groups` has the groups of the new ones."""
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
