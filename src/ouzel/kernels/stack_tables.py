"""Arrays of the stack kernel: what a query is (tables), what came (instances), what is remembered (state), what is
found (output). Nothing here needs numba.

An *instance* is an event in one component that it may fill; an event that may fill two stands twice, side by side.
Instances lie in stream order in buffers that the caller owns, and a *slot* is a place in them. Times are int64 ticks;
the smallest int64 is no time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum, IntFlag
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.predicate_tables import Alternative, Predicates, Values, build_predicates, new_values

# Stands for “no window”.
NO_WINDOW = 2**63 - 1
# Stands for “no limit”.
NO_LIMIT = 2**62
# The key of negative instances that forbid in every partition. No other instance has it where there are partitions.
EVERY_KEY = 0


class Push(IntFlag):
    """What is done early. The answers are the same with each of them off."""

    WINDOW_INTO_SCAN = 1  # “Windows in SS”, SASE 4.3
    WINDOW_INTO_CONSTRUCTION = 2  # “Windows in SC”, SASE 4.3
    NEGATION = 4  # during construction; else on finished matches, by the index over negative instances (SASE 3.3)
    ALL = 7


class Status(IntEnum):
    """How a call ended."""

    DONE = 0
    OUTPUT_FULL = 1  # room for more matches is needed, then go on at `position`
    WAITING_FULL = 2  # room for more waiting matches is needed, then go on at `position`
    MATCH_LIMIT = 3  # the instance at `position` would pass max_matches_per_moment
    WAITING_LIMIT = 4  # the instance at `position` would pass max_waiting


class Counter(IntEnum):
    """Places in `StackState.counters`."""

    WAITING = 0  # matches that wait for a negated end
    FREE = 1  # first free row of the waiting matches, -1 if none
    HEAP = 2  # how many first instances have waiting matches
    MOMENT = 3  # the tick of the latest matches
    AT_MOMENT = 4  # how many there were at it
    DROPPED = 5  # matches dropped because of a limit
    INSTANCES = 6  # seen
    PUSHED = 7  # put on a stack
    CONSTRUCTIONS = 8  # searches started
    EDGES = 9  # candidates looked at in these searches
    SEQUENCES = 10  # complete sequences, before the tests that are made on complete ones
    MATCHES = 11  # found, waiting ones included


class Instances(NamedTuple):
    """Instances in stream order: by end, then start. `new_instances` shows the exact types."""

    start: NDArray[np.int64]  # may be the same array as `end`
    end: NDArray[np.int64]
    key: NDArray[np.int32]  # dense code of the partition; 0 where there are none
    second_key: NDArray[np.int32]  # of Multi-PAIS; else of length 0
    component: NDArray[np.uint8]  # which component of SEQ it may fill, negatives counted
    int_lanes: NDArray[np.int64]  # [lane, slot]
    float_lanes: NDArray[np.float64]  # [lane, slot]
    lane_flags: NDArray[np.uint8]  # [int64 lanes, then float64 lanes; slot]: LaneFlag
    flagged: NDArray[np.uint8]  # per row of lane_flags: 1 if any live slot in it is not LaneFlag.VALUE


def new_instances(
    capacity: int, *, int_lanes: int = 0, float_lanes: int = 0, points: bool = True, second_key: bool = False
) -> Instances:
    """Empty buffers. With `points`, start and end are one array."""
    end = np.zeros(capacity, np.int64)
    return Instances(
        start=end if points else np.zeros(capacity, np.int64),
        end=end,
        key=np.zeros(capacity, np.int32),
        second_key=np.zeros(capacity if second_key else 0, np.int32),
        component=np.zeros(capacity, np.uint8),
        int_lanes=np.zeros((int_lanes, capacity), np.int64),
        float_lanes=np.zeros((float_lanes, capacity), np.float64),
        lane_flags=np.zeros((int_lanes + float_lanes, capacity), np.uint8),
        flagged=np.zeros(int_lanes + float_lanes, np.uint8),
    )


class StackConjunct(NamedTuple):
    """A conjunct between events. Not `early`: tested on complete matches only; a negative's tests go by Push."""

    alternatives: tuple[Alternative, ...]
    early: bool = True

    @property
    def components(self) -> frozenset[int]:
        return frozenset().union(*(alternative.components for alternative in self.alternatives))


class StackTables(NamedTuple):
    """A query. Positions count positive components, `length` of them; stages are the positions and then `length`,
    which is the complete match."""

    components: int
    length: int
    window: int  # in ticks, NO_WINDOW if there is none
    scan_window: int  # the window as the scan applies it
    construction_window: int  # the window as construction applies it
    second_equivalence: int  # 1: instances have a second key (Multi-PAIS)
    prune: int  # 1: keep the newest start that can be reached from each instance
    max_matches_per_moment: int
    max_waiting: int
    drop: int  # 1: drop and count what passes a limit; 0: stop with a status
    position_of: NDArray[np.int32]  # component -> position, -1 if negative
    component_at: NDArray[np.int32]  # position -> component
    tested: NDArray[np.uint8]  # stage -> 1 if anything is tested there
    first_conjunct: NDArray[np.int32]  # stage -> its conjuncts, one entry more than stages
    predicates: Predicates
    # Negative components, numbered by themselves.
    negative_component: NDArray[np.int32]
    negative_position: NDArray[np.int32]  # how many positive components stand before it
    negative_everywhere: NDArray[np.uint8]  # 1: some of its instances may have EVERY_KEY
    negative_first_conjunct: NDArray[np.int32]  # conjuncts that name it, one entry more than negatives
    # Which negatives are checked where: by guard at positions, by search at stages, at the end of the window.
    guarded_first: NDArray[np.int32]  # position -> entries of `guarded`
    guarded: NDArray[np.int32]
    searched_first: NDArray[np.int32]  # stage -> entries of `searched`
    searched: NDArray[np.int32]
    at_end: NDArray[np.int32]  # negatives behind the last positive: their matches wait


def build_tables(
    negated: Sequence[bool],
    window: int | None = None,
    conjuncts: Sequence[StackConjunct] = (),
    *,
    everywhere: Collection[int] = (),
    push: Push = Push.ALL,
    prune: bool = False,
    second_equivalence: bool = False,
    max_matches_per_moment: int = NO_LIMIT,
    max_waiting: int = NO_LIMIT,
    drop: bool = False,
) -> StackTables:
    """The tables of a query whose components are negative where `negated` says so.

    Conjuncts that name one event only belong into the choice of instances, not here. `everywhere` are the negative
    components some of whose instances have EVERY_KEY.

    >>> tables = build_tables([False, True, False], window=10)
    >>> tables.position_of.tolist(), tables.guarded.tolist()
    ([0, -1, 1], [0])
    """
    positives = [component for component, negative in enumerate(negated) if not negative]
    negatives = [component for component, negative in enumerate(negated) if negative]
    length = len(positives)
    assert length > 0 and len(negated) <= 127
    assert window is None or 0 < window < NO_WINDOW
    assert window is not None or not (negated[0] or negated[-1]), "a negated start or end needs a window"
    position_of = {component: position for position, component in enumerate(positives)}
    # How many positives stand before a negative.
    place = {component: sum(p < component for p in positives) for component in negatives}

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
        position = place[component]
        if position == length:
            continue
        if not push & Push.NEGATION:
            searched[length].append(number)
        elif not naming[component] and not second_equivalence:
            guarded[position].append(number)
        else:
            others = (position_of[c] for conjunct in naming[component] for c in conjunct.components if c != component)
            searched[min((max(position - 1, 0), *others))].append(number)

    ordered = [conjunct for stage in stages for conjunct in stage]
    ordered += [conjunct for component in negatives for conjunct in naming[component]]
    first_conjunct = _bounds(map(len, stages))
    negative_first = _bounds(len(naming[component]) for component in negatives) + first_conjunct[-1]
    # The last stage is also where windows that were not pushed, and the second key, are tested.
    ticks = NO_WINDOW if window is None else window
    construction_window = ticks if push & Push.WINDOW_INTO_CONSTRUCTION else NO_WINDOW
    tested = [bool(stages[stage] or searched[stage]) for stage in range(length + 1)]
    tested[length] |= second_equivalence or construction_window != ticks
    return StackTables(
        components=len(negated),
        length=length,
        window=ticks,
        scan_window=ticks if push & Push.WINDOW_INTO_SCAN else NO_WINDOW,
        construction_window=construction_window,
        second_equivalence=int(second_equivalence),
        prune=int(prune),
        max_matches_per_moment=max_matches_per_moment,
        max_waiting=max_waiting,
        drop=int(drop),
        position_of=np.array([position_of.get(component, -1) for component in range(len(negated))], np.int32),
        component_at=np.array(positives, np.int32),
        tested=np.array(tested, np.uint8),
        first_conjunct=first_conjunct,
        predicates=build_predicates([conjunct.alternatives for conjunct in ordered]),
        negative_component=np.array(negatives, np.int32),
        negative_position=np.array([place[component] for component in negatives], np.int32),
        negative_everywhere=np.array([component in everywhere for component in negatives], np.uint8),
        negative_first_conjunct=negative_first,
        guarded_first=_bounds(map(len, guarded)),
        guarded=np.array([number for group in guarded for number in group], np.int32),
        searched_first=_bounds(map(len, searched)),
        searched=np.array([number for group in searched for number in group], np.int32),
        at_end=np.array([n for n, component in enumerate(negatives) if place[component] == length], np.int32),
    )


def _bounds(sizes) -> NDArray[np.int32]:  # type: ignore[no-untyped-def]
    """Where each group starts, and where the last one ends."""
    return np.cumsum([0, *sizes]).astype(np.int32)


class StackState(NamedTuple):
    """What is remembered between calls: plain arrays, in slots unless said otherwise; -1 is none."""

    head: NDArray[np.int32]  # [key * components + component]: the newest instance of that stack
    below: NDArray[np.int32]  # the next older instance of the same stack
    # Of positives: the newest one of the same stack with a smaller end, so that simultaneous ones are passed in a step.
    # Of negatives: a jump pointer (Myers' skew-binary lists), so that a time is found in logarithmically many steps.
    skip: NDArray[np.int32]
    previous_top: NDArray[np.int32]  # RIP in SASE 4.1
    guard: NDArray[np.int64]  # newest start of negatives: before a positive that has any, at or below a negative
    height: NDArray[np.int64]  # of negatives, in their stack
    reach: NDArray[np.int64]  # newest start of a match's first event, over this instance and those below it
    second_head: NDArray[np.int32]  # of the second PAIS
    second_below: NDArray[np.int32]
    # Waiting matches: rows in rings, one ring for each first instance, and a heap of first instances by start.
    waiting_slots: NDArray[np.int32]  # [row, position]
    waiting_next: NDArray[np.int32]  # in rows: the next of the ring, or the next free row
    waiting_tail: NDArray[np.int32]  # per slot the newest row of its ring
    waiting_heap: NDArray[np.int32]
    counters: NDArray[np.int64]  # by Counter
    # Scratch of one search; nothing in it outlives a call.
    bound: NDArray[np.int32]  # per component
    cursor: NDArray[np.int32]  # per position
    oldest_end: NDArray[np.int64]  # per position
    values: Values


def new_state(tables: StackTables, slot_capacity: int, key_capacity: int = 1, *, second_keys: int = 0) -> StackState:
    """The state before the first instance."""
    counters = np.zeros(len(Counter), np.int64)
    counters[Counter.FREE] = -1
    counters[Counter.MOMENT] = -(2**63)
    empty = StackState(
        *(np.empty(0, np.int32) for _ in range(4)),
        *(np.empty(0, np.int64) for _ in range(3)),
        *(np.empty(0, np.int32) for _ in range(2)),
        waiting_slots=np.empty((0, tables.length), np.int32),
        waiting_next=np.empty(0, np.int32),
        waiting_tail=np.empty(0, np.int32),
        waiting_heap=np.empty(0, np.int32),
        counters=counters,
        bound=np.full(tables.components, -1, np.int32),
        cursor=np.full(tables.length, -1, np.int32),
        oldest_end=np.zeros(tables.length, np.int64),
        values=new_values(tables.predicates),
    )
    return reserve(tables, empty, slot_capacity, key_capacity, second_keys=second_keys)


def reserve(
    tables: StackTables, state: StackState, slot_capacity: int, key_capacity: int, *, second_keys: int = 0
) -> StackState:
    """A state with room for so many slots and keys at least; arrays that are large enough are kept."""
    guards = slot_capacity if tables.negative_component.size else 0
    second = slot_capacity if tables.second_equivalence else 0
    return state._replace(
        head=_enlarged(state.head, key_capacity * tables.components),
        below=_enlarged(state.below, slot_capacity),
        skip=_enlarged(state.skip, slot_capacity),
        previous_top=_enlarged(state.previous_top, slot_capacity),
        guard=_enlarged(state.guard, guards),
        height=_enlarged(state.height, guards),
        reach=_enlarged(state.reach, slot_capacity if tables.prune else 0),
        second_head=_enlarged(state.second_head, second_keys * tables.components),
        second_below=_enlarged(state.second_below, second),
        waiting_tail=_enlarged(state.waiting_tail, slot_capacity if tables.at_end.size else 0),
    )


def reserve_waiting(state: StackState, rows: int) -> StackState:
    """A state with room for so many waiting matches at least."""
    old = state.waiting_next.size
    if rows <= old:
        return state
    slots = np.full((rows, state.waiting_slots.shape[1]), -1, np.int32)
    slots[:old] = state.waiting_slots
    following = np.arange(1, rows + 1, dtype=np.int32)
    following[:old] = state.waiting_next
    following[-1] = state.counters[Counter.FREE]
    state.counters[Counter.FREE] = old
    return state._replace(
        waiting_slots=slots, waiting_next=following, waiting_heap=_enlarged(state.waiting_heap, rows)
    )


def _enlarged(array: NDArray, size: int) -> NDArray:  # type: ignore[type-arg]
    if array.size >= size:
        return array
    larger = np.full(size, -1, array.dtype)
    larger[: array.size] = array
    return larger


class StackOutput(NamedTuple):
    """Matches, a column of slots for each positive component. Take what is there, set count[0] to 0, use it again."""

    slots: NDArray[np.int32]  # [position, match]
    match_end: NDArray[np.int64]
    count: NDArray[np.int64]  # of length 1


def new_output(tables: StackTables, capacity: int = 1024) -> StackOutput:
    """Room for some matches; `scan` gives back a larger one when it needs to."""
    return StackOutput(
        np.empty((tables.length, capacity), np.int32), np.empty(capacity, np.int64), np.zeros(1, np.int64)
    )


def larger_output(output: StackOutput) -> StackOutput:
    """Twice the room, with the matches that are there."""
    count = int(output.count[0])
    length, capacity = output.slots.shape
    slots = np.empty((length, 2 * max(capacity, 512)), np.int32)
    slots[:, :count] = output.slots[:, :count]
    match_end = np.empty(slots.shape[1], np.int64)
    match_end[:count] = output.match_end[:count]
    return StackOutput(slots, match_end, output.count)
