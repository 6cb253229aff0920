"""Arrays of the stack kernel: the query (tables), events (instances), state and matches (output). Nothing here needs
numba.

An *instance* is an event in one component that it may fill. An event that may fill two components becomes two adjacent
instances. Instances are in stream order in buffers that the caller owns, and a *slot* is an index into these. Times are
int64 ticks, without the smallest int64.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum, IntFlag
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import INT64_MIN, Matrix, enlarged
from ouzel.kernels.events import NO_LIMIT, NO_WINDOW, Link, Mark
from ouzel.kernels.predicate_tables import Alternative, Predicates, Values, build_predicates, new_values


class Push(IntFlag):
    """Which tests are made early. This never changes the answers."""

    WINDOW_INTO_SCAN = 1  # “Windows in SS”, SASE 4.3
    WINDOW_INTO_CONSTRUCTION = 2  # “Windows in SC”, SASE 4.3
    NEGATION = 4  # during construction; otherwise on complete matches, by the index over negative instances (SASE 3.3)
    ALL = 7


class Counter(IntEnum):
    """Indexes into `StackState.counters`."""

    WAITING = 0  # matches that wait for a negated end
    FREE = 1  # first free row of the waiting matches, -1 if none
    HEAP = 2  # how many first instances have waiting matches
    LATEST_TICK = 3  # the tick of the latest matches
    AT_LATEST = 4  # how many there were at it
    OLDEST = 5  # a slot before which all events have left the window; updated from time to time
    # Work counters for the tables of SASE section 5; the answer does not depend on them.
    INSTANCES = 6  # seen
    PUSHED = 7  # put on a stack
    CONSTRUCTIONS = 8  # searches started
    EDGES = 9  # candidates visited in these searches
    SEQUENCES = 10  # complete sequences, before the tests on complete sequences
    MATCHES = 11  # found, waiting ones included
    STACKED = 12  # of the plain kernel: slots before this one are on their stacks


class StackConjunct(NamedTuple):
    """A conjunct between events. Unless `early`, it is tested only on complete matches. For a negative component, Push
    decides when.
    """

    alternatives: tuple[Alternative, ...]
    early: bool = True

    @property
    def components(self) -> frozenset[int]:
        return frozenset().union(*(alternative.components for alternative in self.alternatives))


class ByComponent(IntEnum):
    """Columns of `StackTables.by_component`."""

    POSITION = 0  # among the positive components; -1 if negative
    BEFORE = 1  # the positive component before it; itself if there is none
    GUARDED_BY = 2  # the last of the negative components directly before it; itself if there is none


class ByStage(IntEnum):
    """Columns of `StackTables.by_stage`. The tests of a stage end where those of the next row begin."""

    COMPONENT = 0  # at this position
    TESTED = 1  # 1 if this stage has conjuncts or searched negatives
    FIRST_CONJUNCT = 2
    FIRST_GUARDED = 3  # in `checks`: negatives directly before this position that are checked by guard
    FIRST_SEARCHED = 4  # in `checks`: negatives that are searched for at this stage


class ByNegative(IntEnum):
    """Columns of `StackTables.by_negative`."""

    COMPONENT = 0
    AFTER = 1  # the position of the event after which it forbids; -1: the window
    BEFORE = 2  # the position of the event before which it forbids; `length`: the window
    EVERYWHERE = 3  # 1 if some of its instances may have EVERY_KEY
    FIRST_CONJUNCT = 4  # those that name it; they end where the next row's begin


class StackTables(NamedTuple):
    """A query as arrays. Positions count the `length` positive components. There is a stage for each position, bound
    from the last to the first, and stage `length` for the complete match.
    """

    components: int
    length: int
    window: int  # in ticks, NO_WINDOW if there is none
    scan_window: int  # the window as the scan applies it
    construction_window: int  # the window as construction applies it
    second_equivalence: int  # 1: instances have a second key (Multi-PAIS)
    max_matches_per_timestamp: int
    max_waiting: int
    # 1: only types, key, order, window and a negative between two positives: if events are points, the plain kernel is
    # enough.
    plain: int
    by_component: Matrix[np.int32]  # [component, ByComponent]
    by_stage: Matrix[np.int32]  # [stage, ByStage], one row more than stages
    by_negative: Matrix[np.int32]  # [negative, ByNegative], one row more than negatives
    checks: NDArray[np.int32]  # negatives: guarded ones, searched ones, those after the last positive
    first_at_end: int  # where the last of these begin; if there are any, matches wait
    predicates: Predicates


def build_tables(
    negated: Sequence[bool],
    window: int | None = None,
    conjuncts: Sequence[StackConjunct] = (),
    *,
    across: Mapping[int, tuple[int, int]] | None = None,
    everywhere: Collection[int] = (),
    push: Push = Push.ALL,
    second_equivalence: bool = False,
    max_matches_per_timestamp: int = NO_LIMIT,
    max_waiting: int = NO_LIMIT,
) -> StackTables:
    """The tables of a query. `negated` says which components are negative.

    Conjuncts on a single event are not passed, because they decide which instances there are. `across` has the negative
    components that forbid between two given positions; the others forbid between their neighbours. `everywhere` has the
    negative components that have instances with EVERY_KEY.

    >>> tables = build_tables([False, True, False], window=10)
    >>> tables.by_component[:, ByComponent.POSITION].tolist()
    [0, -1, 1]
    """
    positives = [component for component, negative in enumerate(negated) if not negative]
    negatives = [component for component, negative in enumerate(negated) if negative]
    length = len(positives)
    assert length > 0 and len(negated) <= 127
    assert window is None or 0 < window < NO_WINDOW
    position_of = {component: position for position, component in enumerate(positives)}
    # The positions of the events between which a negative forbids.
    interval = {}
    for component in negatives:
        place = sum(p < component for p in positives)
        interval[component] = (across or {}).get(component, (place - 1, place))
        is_open = interval[component][0] < 0 or interval[component][1] == length
        assert window is not None or not is_open, "a negated start or end needs a window"

    stages: list[list[StackConjunct]] = [[] for _ in range(length + 1)]
    naming: dict[int, list[StackConjunct]] = {component: [] for component in negatives}
    for conjunct in conjuncts:
        named = [component for component in conjunct.components if negated[component]]
        if named:
            assert len(named) == 1, "a conjunct names one negative component at most"
            naming[named[0]].append(conjunct)
        else:
            lowest = min((position_of[component] for component in conjunct.components), default=length - 1)
            stages[lowest if conjunct.early else length].append(conjunct)

    guarded: list[list[int]] = [[] for _ in range(length)]
    searched: list[list[int]] = [[] for _ in range(length + 1)]
    for number, component in enumerate(negatives):
        after, before = interval[component]
        if before == length:
            continue
        if not push & Push.NEGATION:
            searched[length].append(number)
        elif not naming[component] and not second_equivalence and before == after + 1:
            guarded[before].append(number)
        else:
            others = (position_of[c] for conjunct in naming[component] for c in conjunct.components if c != component)
            searched[min((max(after, 0), *others))].append(number)

    # A window that was not pushed down, and the second key, are also tested at the last stage.
    ticks = NO_WINDOW if window is None else window
    first_searched = sum(map(len, guarded))
    at_end = [number for number, component in enumerate(negatives) if interval[component][1] == length]
    by_stage = np.zeros((length + 2, len(ByStage)), np.int32)
    by_stage[:length, ByStage.COMPONENT] = positives
    by_stage[:-1, ByStage.TESTED] = [bool(stages[stage] or searched[stage]) for stage in range(length + 1)]
    by_stage[:, ByStage.FIRST_CONJUNCT] = _bounds(stages)
    by_stage[: length + 1, ByStage.FIRST_GUARDED] = _bounds(guarded)
    by_stage[:, ByStage.FIRST_SEARCHED] = first_searched + _bounds(searched)
    by_negative = np.zeros((len(negatives) + 1, len(ByNegative)), np.int32)
    by_negative[:-1, ByNegative.COMPONENT] = negatives
    by_negative[:-1, ByNegative.AFTER] = [interval[component][0] for component in negatives]
    by_negative[:-1, ByNegative.BEFORE] = [interval[component][1] for component in negatives]
    by_negative[:-1, ByNegative.EVERYWHERE] = [component in everywhere for component in negatives]
    by_negative[:, ByNegative.FIRST_CONJUNCT] = sum(map(len, stages)) + _bounds(list(naming.values()))
    return StackTables(
        components=len(negated),
        length=length,
        window=ticks,
        scan_window=ticks if push & Push.WINDOW_INTO_SCAN else NO_WINDOW,
        construction_window=ticks if push & Push.WINDOW_INTO_CONSTRUCTION else NO_WINDOW,
        second_equivalence=int(second_equivalence),
        max_matches_per_timestamp=max_matches_per_timestamp,
        max_waiting=max_waiting,
        plain=int(
            length > 1
            and not (conjuncts or second_equivalence or everywhere or across)
            and all(after >= 0 and before < length for after, before in interval.values())
            and len(set(interval.values())) == len(negatives)
            and (not negatives or Push.NEGATION in push)
            and (window is None or Push.WINDOW_INTO_SCAN | Push.WINDOW_INTO_CONSTRUCTION in push)
        ),
        by_component=np.array(
            [
                (
                    position_of.get(c, -1),
                    max((p for p in positives if p < c), default=c),
                    c - 1 if c > 0 and negated[c - 1] and not negated[c] else c,
                )
                for c in range(len(negated))
            ],
            np.int32,
        ),
        by_stage=by_stage,
        by_negative=by_negative,
        checks=np.array([number for group in (*guarded, *searched, at_end) for number in group], np.int32),
        first_at_end=first_searched + sum(map(len, searched)),
        predicates=build_predicates(
            [conjunct.alternatives for group in (*stages, *naming.values()) for conjunct in group]
        ),
    )


def _bounds(groups: Sequence[Sequence[object]]) -> NDArray[np.int32]:
    """Where each group begins when the groups are concatenated, and the total length."""
    return np.cumsum([0, *map(len, groups)]).astype(np.int32)


class StackState(NamedTuple):
    """The state between calls: plain arrays."""

    head: NDArray[np.int32]  # [key * components + component]: the newest instance of that stack, -1 if it is empty
    second_head: NDArray[np.int32]  # the same by the second key
    links: Matrix[np.int32]  # [Link, slot]
    marks: Matrix[np.int64]  # [Mark, slot]
    # Waiting matches: rows in rings, one ring for each first instance, and a heap of first instances by start.
    waiting_slots: Matrix[np.int32]  # [row, position]
    waiting_next: NDArray[np.int32]  # in rows: the next of the ring, or the next free row
    waiting_tail: NDArray[np.int32]  # per slot the newest row of its ring
    waiting_heap: NDArray[np.int32]
    counters: NDArray[np.int64]  # by Counter
    # Scratch of one search; its content is only valid during a call.
    bound: NDArray[np.int32]  # per component
    cursor: NDArray[np.int32]  # per position
    barrier: NDArray[np.int64]  # per position
    values: Values


def new_state(tables: StackTables, slot_capacity: int, key_capacity: int = 1, *, second_keys: int = 0) -> StackState:
    """The state before the first instance."""
    counters = np.zeros(len(Counter), np.int64)
    counters[Counter.FREE] = -1
    counters[Counter.LATEST_TICK] = INT64_MIN
    empty = StackState(
        head=np.empty(0, np.int32),
        second_head=np.empty(0, np.int32),
        links=np.empty((len(Link), 0), np.int32),
        marks=np.empty((len(Mark), 0), np.int64),
        waiting_slots=np.empty((0, tables.length), np.int32),
        waiting_next=np.empty(0, np.int32),
        waiting_tail=np.empty(0, np.int32),
        waiting_heap=np.empty(0, np.int32),
        counters=counters,
        bound=np.full(tables.components, -1, np.int32),
        cursor=np.full(tables.length, -1, np.int32),
        barrier=np.zeros(tables.length, np.int64),
        values=new_values(tables.predicates),
    )
    return reserve(tables, empty, slot_capacity, key_capacity, second_keys=second_keys)


def reserve(
    tables: StackTables, state: StackState, slot_capacity: int, key_capacity: int, *, second_keys: int = 0
) -> StackState:
    """A state with room for at least this many slots and keys; arrays that are large enough are kept."""
    if (
        slot_capacity <= state.links.shape[-1]
        and key_capacity * tables.components <= len(state.head)
        and second_keys * tables.components <= len(state.second_head)
    ):
        return state
    marked = len(tables.by_negative) > 1
    return state._replace(
        head=enlarged(state.head, key_capacity * tables.components),
        second_head=enlarged(state.second_head, second_keys * tables.components),
        links=enlarged(state.links, slot_capacity, axis=-1),
        marks=enlarged(state.marks, slot_capacity if marked else 0, axis=-1),
        waiting_tail=enlarged(
            state.waiting_tail, slot_capacity if tables.first_at_end < tables.checks.size else 0, axis=-1
        ),
    )


def reserve_waiting(state: StackState, rows: int) -> StackState:
    """A state with room for at least this many waiting matches."""
    old, length = state.waiting_slots.shape
    if rows <= old:
        return state
    following = np.arange(1, rows + 1, dtype=np.int32)
    following[:old] = state.waiting_next
    following[-1] = state.counters[Counter.FREE]
    state.counters[Counter.FREE] = old
    return state._replace(
        waiting_slots=np.concatenate([state.waiting_slots, np.full((rows - old, length), -1, np.int32)]),
        waiting_next=following,
        waiting_heap=enlarged(state.waiting_heap, rows),
    )


class StackOutput(NamedTuple):
    """Matches, one column of slots for each positive component. After reading them, set written[0] to 0 to reuse the
    arrays.
    """

    slots: Matrix[np.int32]  # [position, match]
    match_end: NDArray[np.int64]
    written: NDArray[np.int64]  # of length 1: how many there are


def new_output(tables: StackTables, capacity: int = 1024) -> StackOutput:
    """An empty output; `scan` returns a larger one if needed."""
    return StackOutput(
        np.empty((tables.length, capacity), np.int32), np.empty(capacity, np.int64), np.zeros(1, np.int64)
    )


def larger_output(output: StackOutput) -> StackOutput:
    """The same output with twice the room."""
    size = 2 * max(output.match_end.size, 512)
    return StackOutput(enlarged(output.slots, size, 0, axis=-1), enlarged(output.match_end, size, 0), output.written)
