"""Arrays of the run kernel: the query (tables) and the events. Nothing here needs numba.

A *place* is a positive component, counted from 0. An event has one bit for each role that it may have: it begins a
place, a Kleene place takes it, or it forbids matches as a negative event. Events are in stream order in buffers that
the caller owns. A *slot* is an index into these buffers, and the first `tables.reserved` slots belong to the kernel.

A run is a node of an arena of (event, parent) pairs, so runs share their common prefixes and no version numbers are
needed (SASE+ 5.1 has a shared buffer with Dewey numbers). The values of running aggregates, the paper's computation
state, are stored with the node for which they were computed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import Matrix
from ouzel.kernels.events import NO_LIMIT, NO_WINDOW
from ouzel.kernels.predicate_tables import Alternative, Atom, Comparison, Lane, LaneFlag, Predicates, build_predicates

# The slot of the event whose every attribute is null; an aggregate over no value refers to it.
NULL_SLOT = 0
# No bound on the events of a place.
NO_MOST = 2**31 - 1
# Up to this bound, the graph has a stage for each number of events of a place. With a larger one, each choice of events
# is a run.
LAYERS_MAX = 128
# Bits of `RunEvents.roles`.
ROLES_MAX = 64
# Up to this many runs of a key are tested with every event. With more, the runs that an event can move are looked up.
INDEX_MIN = 128


class Selection(IntEnum):
    """Which events a run may skip (docs/semantics.md, "Event selection")."""

    STRICT = 0  # none of the stream
    PARTITION = 1  # none of its partition
    NEXT_MATCH = 2
    ANY_MATCH = 3
    BY_STEP = 4  # as the rules of each place say


class Rule(IntEnum):
    """Which events may come between an event and the one that the run bound before it."""

    ANY = 0
    NEXT = 1  # none that could have been the event of the step
    PARTITION = 2  # none of the partition
    STRICT = 3  # none


class Numbering(IntEnum):
    """Which events may not be skipped before an edge is taken."""

    NONE = 0
    PARTITION = 1  # those of the partition, which `RunEvents.position` numbers
    STREAM = 2  # all, which `RunEvents.sequence` numbers


class Form(IntEnum):
    """Which matches are returned."""

    ALL = 0
    NON_OVERLAPPING = 1
    FIRST = 2
    SKIP_TO_FIRST = 3
    SKIP_TO_LAST = 4
    LATEST = 5  # on the graph: the matches with the last start of each last event


class Function(IntEnum):
    """What a register holds: an aggregate of the events of its place so far. Nulls and absent values are ignored."""

    COUNT = 0
    DISTINCT = 1  # the number of different values
    SUM = 2  # null once an integer sum has overflowed
    AVERAGE = 3
    DEVIATION = 4  # the sum of the squares of the distances from the mean
    # These hold a slot, so that any value of that event can be read.
    FIRST = 5
    LAST = 6
    LEAST = 7
    GREATEST = 8


class Register(NamedTuple):
    """A running aggregate of a Kleene place. Without a lane it counts every event. `lane.component` has no meaning. A
    DEVIATION also reads register `sum`, which is the AVERAGE of the same values.
    """

    function: Function
    lane: Lane | None = None
    sum: int = -1


_EVERY_EVENT = Register(Function.COUNT)


class Source(IntEnum):
    """How the value of a reference is found, starting from a node of a place."""

    FIRST = 0  # the first event of the place
    LAST = 1  # the event of the node
    SLOT = 2  # the event that a register holds
    NUMBER = 3  # the number that a register holds


class Load(NamedTuple):
    """Sets reference `target` from the `source` of a place, before a test.

    A NUMBER is written into the target's own slot, in lane `row`.
    """

    source: Source
    place: int
    target: int
    register: int = 0
    row: int = 0


class RunTest(NamedTuple):
    """A conjunct as a comparison of lanes of references, with the loads that set these references.

    If `iterated` is a place, the test must hold for each event of this place except the first. Each such event becomes
    reference `current`, and the `iterated_loads` start from the node before it.
    """

    alternatives: tuple[Alternative, ...]
    loads: tuple[Load, ...] = ()
    iterated: int = -1
    current: int = -1
    iterated_loads: tuple[Load, ...] = ()


class RunPlace(NamedTuple):
    """A positive component, with its tests by edge. The event that is read is reference `first` on the begin edge and
    `current` on the take edge.
    """

    kleene: bool = False
    first: int = 0
    current: int = 0
    begin: tuple[RunTest, ...] = ()
    take: tuple[RunTest, ...] = ()
    proceed: tuple[RunTest, ...] = ()
    registers: tuple[Register, ...] = ()
    most: int = NO_MOST  # the largest number of its events: the proceed tests never hold for more
    # For Selection.BY_STEP: the rules for its first event, and for each further one.
    entered: Rule = Rule.ANY
    repeated: Rule = Rule.ANY


class RunNegative(NamedTuple):
    """A negative component: the places between which its events forbid a match, and the reference of its event in its
    tests.

    Place -1 and place `length` are the ends of the window. If `across`, the interval is from the first event of place
    `after` to the last of place `before`; otherwise from the last event of `after` to the first of `before`.
    """

    after: int
    before: int
    across: bool = False
    reference: int = 0
    tests: tuple[RunTest, ...] = ()


class ByPlace(IntEnum):
    """Columns of `RunTables.by_place`."""

    KLEENE = 0
    FIRST = 1  # reference
    CURRENT = 2  # reference
    BEGIN = 3  # edge
    TAKE = 4  # edge
    PROCEED = 5  # edge
    FIRST_REGISTER = 6  # they end where those of the next row begin
    # What runs here must have in common to have the same future (the paper's mask M, SASE+ 5.2.2).
    MERGEABLE = 7  # 0: they are never equal, because a later test reads every event
    SAME_FIRST = 8  # the first event of the place
    SAME_PARENT = 9  # everything bound before the place
    MOST = 10  # of its events; NO_MOST: any number
    LENGTH = 11  # the register that counts its events, -1 if none does
    # In the graph; see `graph_state`.
    LAYER = 12  # the stage of its first event, if it has one for each number of events; otherwise -1
    NEGATED = 13  # 1: a negative is between it and the place before; 2: the negative has tests of its own
    # Pairs of columns, for the take edge and for the begin edge that leaves the place.
    INDEXED = 14  # the test by whose value runs are found, or -1
    NUMBERED = 16  # Numbering
    CLOSES = 18  # the edges that a run can no longer take after this one: 1: take, 2: begin


_PLACE_COLUMNS = 20


class ByEdge(IntEnum):
    """Columns of `RunTables.by_edge`. The loads and tests of an edge end where those of the next row begin."""

    LOWEST = 0  # the lowest place that a load reads
    FIRST_LOAD = 1
    FIRST_TEST = 2


class ByGuard(IntEnum):
    """Columns of `RunTables.by_guard`, which says for each test whether it can be a guard: a comparison of the event
    that is read with a value that does not change until the run moves. A run stores that value, so one comparison
    refuses most events.
    """

    KIND = 0  # Guard
    LANE = 1  # of the event read
    COMPARISON = 2  # of that lane with the value
    REFERENCE = 3  # whose lane the value is
    OTHER_LANE = 4
    DECIDES = 5  # 1: its edge has no other test
    SOURCE = 6  # where a run of the place that the edge leaves has the value, if not in an earlier place; otherwise -1
    REGISTER = 7


class Guard(IntEnum):
    NONE = 0
    INT = 1
    FLOAT = 2


class ByLoop(IntEnum):
    """Columns of `RunTables.loop`: one row for the take edge and one for the begin edge out of the Kleene place."""

    KIND = 0  # Guard; NONE: the edge has no test
    LANE = 1  # of the event read
    ORDERS = 2  # bit 0: less than the bound passes, bit 1: equal, bit 2: greater
    BOUND = 3  # Bound
    OTHER_LANE = 4  # of the bound


class Bound(IntEnum):
    """Which value of the events of a place an edge compares with."""

    FIRST = 0
    LAST = 1
    # Those below are aggregates, which ignore nulls.
    FIRST_VALUE = 2
    LAST_VALUE = 3
    LEAST = 4
    GREATEST = 5


class ByTest(IntEnum):
    """Columns of `RunTables.by_test`; a test's number is that of its conjunct."""

    ITERATED = 0
    CURRENT = 1
    FIRST_LOAD = 2  # in `iterated_loads`


class ByLoad(IntEnum):
    SOURCE = 0
    PLACE = 1
    TARGET = 2
    REGISTER = 3  # within the place
    ROW = 4


class ByRegister(IntEnum):
    FUNCTION = 0
    ROW = 1  # of lane_flags; -1: every event counts
    FLOATING = 2
    LANE = 3
    NEEDED = 4  # 1: some test of a run at this place may still need it
    SUM = 5  # of a DEVIATION: the register of the sum of its values


class ByNegative(IntEnum):
    AFTER = 0
    BEFORE = 1
    ACROSS = 2
    REFERENCE = 3
    EDGE = 4


class RunTables(NamedTuple):
    """A query as arrays."""

    length: int  # places
    negatives: int
    reserved: int  # slots
    numbers_keys: int  # 1: `RunEvents.position` is read
    numbers_stream: int  # 1: `RunEvents.sequence` is read
    form: int
    form_place: int
    window: int  # in ticks or events, NO_WINDOW if there is none
    in_events: int
    codes: int  # equivalence tests whose attribute some type lacks
    registers: int  # the largest number at a place
    at_end: int  # 1 if a negative is after the last place: matches wait
    late: int  # 1: negation is checked when matches are listed, so that runs may be merged before
    merge: int  # 1: runs with the same future are merged
    index_min: int  # if a key has more runs than this, they are found by the values they compare with
    max_matches_per_timestamp: int
    max_runs: int
    max_events: int  # of all matches of the output in total
    by_place: Matrix[np.int32]
    by_edge: Matrix[np.int32]
    by_guard: Matrix[np.int32]  # by test
    loop: Matrix[np.int32]  # [take or begin, ByLoop]; empty unless `scan_loop` is enough
    by_test: Matrix[np.int32]
    loads: Matrix[np.int32]  # [load, ByLoad]
    iterated_loads: Matrix[np.int32]  # [load, ByLoad]
    by_register: Matrix[np.int32]
    by_negative: Matrix[np.int32]
    stage_place: NDArray[np.int32]  # by stage of the graph
    predicates: Predicates


def build_run_tables(
    places: Sequence[RunPlace],
    negatives: Sequence[RunNegative] = (),
    *,
    selection: Selection = Selection.ANY_MATCH,
    window: int | None = None,
    in_events: bool = False,
    reserved: int = 1,
    codes: int = 0,
    form: Form = Form.ALL,
    form_place: int = 0,
    merge: bool = False,
    late: bool = False,
    index_min: int = INDEX_MIN,
    renumbered_lanes: Collection[int] = (),
    max_matches_per_timestamp: int = NO_LIMIT,
    max_runs: int = NO_LIMIT,
    max_events: int = NO_LIMIT,
) -> RunTables:
    """The tables of a query. `renumbered_lanes` are int64 lanes with codes that the caller may change between calls.

    With `late`, the kernel does not test negation. The caller expands all matches and drops those that
    `allowed_matches` refuses.

    >>> build_run_tables([RunPlace(kleene=True), RunPlace()], window=10).length
    2
    """
    length = len(places)
    assert length > 0 and 2 * length + len(negatives) <= ROLES_MAX
    assert window is None or 0 < window < NO_WINDOW
    assert window is not None or not any(n.after < 0 or n.before == length for n in negatives)
    late = late and selection != Selection.ANY_MATCH and codes == 0 and form == Form.ALL
    late = late and all(negative.before < length and _needs_slots_only(negative) for negative in negatives)
    late = late and len(negatives) > 0
    loop_rows: list[tuple[int, ...]] = []
    if (late or not negatives) and codes == 0 and selection < Selection.ANY_MATCH:
        loop_rows = _loop_rows(places, frozenset(renumbered_lanes))
    if loop_rows:
        # Runs store the values that they compare with.
        places = [place._replace(registers=()) for place in places]
    # Runs are compared for equivalence only if they are independent and every match is wanted.
    merge = merge and form == Form.ALL and (late or not negatives)
    edges = _Edges(frozenset(renumbered_lanes))
    by_place = np.zeros((length + 1, _PLACE_COLUMNS), np.int32)
    registers: list[Register] = []
    stages = list(range(length))
    for number, place in enumerate(places):
        by_place[number] = (
            place.kleene,
            place.first,
            place.current,
            edges.add(place.begin, number - 1, place.first),
            edges.add(place.take, number, place.current),
            edges.add(place.proceed, number),
            len(registers),
            *_same_future(places, number),
            place.most,
            place.registers.index(_EVERY_EVENT) if _EVERY_EVENT in place.registers else -1,
            len(stages) if place.most <= LAYERS_MAX else -1,
            max((2 if n.tests else 1 for n in negatives if n.after >= 0 and n.before == number), default=0),
            -1,
            -1,
            *_skipping(places, number, selection),
        )
        registers += place.registers
        if place.most <= LAYERS_MAX:
            stages += [number] * (place.most - 1)
    by_place[length, ByPlace.FIRST_REGISTER] = len(registers)
    for number in range(length):
        by_place[number, ByPlace.INDEXED] = edges.indexed(int(by_place[number, ByPlace.TAKE]))
        if number + 1 < length:
            by_place[number, ByPlace.INDEXED + 1] = edges.indexed(int(by_place[number + 1, ByPlace.BEGIN]))
    numbered = by_place[:, ByPlace.NUMBERED : ByPlace.NUMBERED + 2]
    by_negative = np.zeros((len(negatives), len(ByNegative)), np.int32)
    for number, negative in enumerate(negatives):
        edge = edges.add(negative.tests, length - 1)
        by_negative[number] = (negative.after, negative.before, negative.across, negative.reference, edge)
    # Flags of float64 lanes come after those of int64 lanes, whose number only the events know: -2 - lane.
    by_register = []
    for number, place in enumerate(places):
        needed = {load.register for load in _loads_ahead(places, number) if load.place == number}
        needed |= {register.sum for local, register in enumerate(place.registers) if local in needed}
        for local, (function, lane, total) in enumerate(place.registers):
            if lane is None:
                by_register.append((function, -1, 0, 0, local in needed, total))
            else:
                row = -2 - lane.lane if lane.floating else lane.lane
                by_register.append((function, row, lane.floating, lane.lane, local in needed, total))
    return RunTables(
        length=length,
        negatives=len(negatives),
        reserved=reserved,
        numbers_keys=int(in_events or (numbered == Numbering.PARTITION).any()),
        numbers_stream=int((numbered == Numbering.STREAM).any()),
        form=int(form),
        form_place=form_place,
        window=NO_WINDOW if window is None else window,
        in_events=int(in_events),
        codes=codes,
        registers=max(len(place.registers) for place in places),
        at_end=int(any(negative.before == length for negative in negatives)),
        late=int(late),
        merge=int(merge),
        # An event that may not be skipped must end runs that it does not move.
        index_min=NO_LIMIT if numbered.any() else index_min,
        # Their number is known late, too.
        max_matches_per_timestamp=NO_LIMIT if late else max_matches_per_timestamp,
        max_runs=max_runs,
        max_events=max_events,
        by_place=by_place,
        by_edge=edges.by_edge(),
        by_guard=_rows(edges.guards, ByGuard),
        loop=_rows(loop_rows, ByLoop),
        by_test=np.array([*edges.tests, (0, 0, len(edges.iterated_loads))], np.int32),
        loads=_rows(edges.loads, ByLoad),
        iterated_loads=_rows(edges.iterated_loads, ByLoad),
        by_register=_rows(by_register, ByRegister),
        by_negative=by_negative,
        stage_place=np.array(stages, np.int32),
        predicates=build_predicates(edges.conjuncts),
    )


def _needs_slots_only(negative: RunNegative) -> bool:
    """Whether the tests of a negative component read only events, and no value that a run keeps."""
    return all(test.iterated < 0 and all(load.source <= Source.LAST for load in test.loads) for test in negative.tests)


def _tests_ahead(places: Sequence[RunPlace], number: int) -> list[RunTest]:
    """The tests on all edges that a run at a place may still take."""
    own = places[number]
    tests = [*own.take, *own.proceed]
    for place in places[number + 1 :]:
        tests += [*place.begin, *place.take, *place.proceed]
    return tests


def _loads_ahead(places: Sequence[RunPlace], number: int) -> list[Load]:
    return [load for test in _tests_ahead(places, number) for load in test.loads if load.source >= Source.SLOT]


def _same_future(places: Sequence[RunPlace], number: int) -> tuple[int, int, int]:
    """The columns MERGEABLE, SAME_FIRST and SAME_PARENT of a place."""
    tests = _tests_ahead(places, number)
    loads = [load for test in tests for load in test.loads]
    mergeable = not any(0 <= test.iterated <= number for test in tests)
    first = places[number].kleene and any(load == Load(Source.FIRST, number, load.target) for load in loads)
    return int(mergeable), int(first), int(any(load.place < number for load in loads))


def _skipping(places: Sequence[RunPlace], number: int, selection: Selection) -> tuple[int, int, int, int]:
    """The columns NUMBERED and CLOSES of a place."""
    if selection == Selection.NEXT_MATCH:
        # A run that may repeat a place does so with the next event, and may leave it with any event before.
        return (0, 0, 3, 0) if places[number].kleene else (0, 0, 0, 3)
    rules = (_RULES.get(selection, Rule.ANY),) * 2
    if selection == Selection.BY_STEP:
        rules = (places[number].repeated, places[number + 1].entered if number + 1 < len(places) else Rule.ANY)
    take, begin = rules
    return (
        _NUMBERINGS.get(take, Numbering.NONE),
        _NUMBERINGS.get(begin, Numbering.NONE),
        int(take == Rule.NEXT),
        2 * int(begin == Rule.NEXT),
    )


_RULES = {Selection.STRICT: Rule.STRICT, Selection.PARTITION: Rule.PARTITION}
_NUMBERINGS = {Rule.STRICT: Numbering.STREAM, Rule.PARTITION: Numbering.PARTITION}


# ── Edges ──────────────────────────────────────────────────────────────────────────────────────────

# By comparison of an event's value with a run's: bits of ByLoop.ORDERS.
ORDERS = {
    Comparison.EQUAL: 0b010,
    Comparison.NOT_EQUAL: 0b101,
    Comparison.LESS: 0b001,
    Comparison.LESS_EQUAL: 0b011,
    Comparison.GREATER: 0b100,
    Comparison.GREATER_EQUAL: 0b110,
}
_BOUNDS = {
    Function.FIRST: Bound.FIRST_VALUE,
    Function.LAST: Bound.LAST_VALUE,
    Function.LEAST: Bound.LEAST,
    Function.GREATEST: Bound.GREATEST,
}
_NO_GUARD = (Guard.NONE, 0, 0, 0, 0)


def _loop_rows(places: Sequence[RunPlace], renumbered: frozenset[int]) -> list[tuple[int, ...]]:
    """The rows of `RunTables.loop`. None unless the pattern is T+ a[] with one component after it, and each edge has at
    most one comparison with a bound.
    """
    if [place.kleene for place in places] != [True, False] or places[0].begin or places[0].proceed:
        return []
    edges = ((places[0].take, places[0].current), (places[1].begin, places[1].first))
    rows = [_loop_edge(tests, event, places[0], renumbered) for tests, event in edges]
    return [row for row in rows if row is not None] if None not in rows else []


def _loop_edge(
    tests: Sequence[RunTest], event: int, place: RunPlace, renumbered: frozenset[int]
) -> tuple[int, ...] | None:
    """The columns of `ByLoop` for an edge; None if it needs more than one comparison with a bound."""
    if not tests:
        return _NO_GUARD
    kind, lane, comparison, reference, other_lane = _guard_of(tests[0], event, renumbered)
    loads = [load for load in tests[0].loads if load.target == reference]
    if len(tests) > 1 or kind == Guard.NONE or len(loads) != 1:
        return None
    source, bound = loads[0].source, Bound.FIRST
    if source == Source.LAST:
        bound = Bound.LAST
    elif source != Source.FIRST:
        function, of, _ = place.registers[loads[0].register]
        if source == Source.NUMBER or of is None or (of.lane, of.floating) != (other_lane, kind == Guard.FLOAT):
            return None
        bound = _BOUNDS[function]
    return (kind, lane, ORDERS[Comparison(comparison)], bound, other_lane)


_MIRRORED = {
    Comparison.LESS: Comparison.GREATER,
    Comparison.LESS_EQUAL: Comparison.GREATER_EQUAL,
    Comparison.GREATER: Comparison.LESS,
    Comparison.GREATER_EQUAL: Comparison.LESS_EQUAL,
}


def _guard_of(test: RunTest, event: int, renumbered: frozenset[int]) -> tuple[int, ...]:
    """The columns of `ByGuard` from KIND to OTHER_LANE for a test."""
    if test.iterated >= 0 or len(test.alternatives) != 1:
        return _NO_GUARD
    (atom,) = test.alternatives
    if not isinstance(atom, Atom) or not isinstance(atom.right, Lane):
        return _NO_GUARD
    left, comparison, right = atom.left, atom.comparison, atom.right
    if right.component == event:
        left, comparison, right = right, _MIRRORED.get(comparison, comparison), left
    if left.component != event or right.component == event:
        return _NO_GUARD
    if not left.floating and not renumbered.isdisjoint((left.lane, right.lane)):
        return _NO_GUARD
    return (Guard.FLOAT if left.floating else Guard.INT, left.lane, comparison, right.component, right.lane)


class _Edges:
    """Collects the edges of an automaton: all tests concatenated, and for each edge its loads without repetition."""

    def __init__(self, renumbered: frozenset[int]) -> None:
        self._renumbered = renumbered
        self.rows: list[tuple[int, int, int]] = []
        self.guards: list[tuple[int, ...]] = []
        self.loads: list[tuple[int, ...]] = []
        self.iterated_loads: list[tuple[int, ...]] = []
        self.tests: list[tuple[int, int, int]] = []
        self.conjuncts: list[tuple[Alternative, ...]] = []

    def add(self, tests: Sequence[RunTest], place: int, event: int = -1) -> int:
        """Add an edge whose tests start from a node of `place`. The event that is read is reference `event`. Returns
        its number.
        """
        loads = list(dict.fromkeys(load for test in tests for load in test.loads))
        looked_at = [load.place for load in loads] + [test.iterated for test in tests if test.iterated >= 0]
        self.rows.append((min(looked_at, default=place), len(self.loads), len(self.tests)))
        self.loads += [_load_row(load) for load in loads]
        for test in tests:
            self.tests.append((test.iterated, test.current, len(self.iterated_loads)))
            self.iterated_loads += [_load_row(load) for load in test.iterated_loads]
            self.conjuncts.append(test.alternatives)
            guard = _guard_of(test, event, self._renumbered)
            own = [load for load in test.loads if load.target == guard[ByGuard.REFERENCE] and load.place == place]
            source = (own[0].source, own[0].register) if guard[ByGuard.KIND] and own else (-1, 0)
            self.guards.append((*guard, len(tests) == 1, *source))
        return len(self.rows) - 1

    def indexed(self, edge: int) -> int:
        """The first test of an edge that the run index can use; -1 if there is none."""
        last = self.rows[edge + 1][2] if edge + 1 < len(self.rows) else len(self.tests)
        return next((test for test in range(self.rows[edge][2], last) if self.guards[test][0] != Guard.NONE), -1)

    def by_edge(self) -> NDArray[np.int32]:
        return np.array([*self.rows, (0, len(self.loads), len(self.tests))], np.int32)


def _load_row(load: Load) -> tuple[int, ...]:
    return (load.source, load.place, load.target, load.register, load.row)


def _rows(rows: Sequence[tuple[int, ...]], columns: type[IntEnum]) -> NDArray[np.int32]:
    return np.array(rows, np.int32).reshape(len(rows), len(columns))


class RunEvents(NamedTuple):
    """Buffers of events in stream order. `new_events` shows the exact types."""

    start: NDArray[np.int64]  # may be the same array as `end`
    end: NDArray[np.int64]
    key: NDArray[np.int32]  # code of the partition; EVERY_KEY without partitions, or for negatives of all of them
    roles: NDArray[np.uint64]  # bit 2p: may begin place p; 2p + 1: may be taken there; 2 * length + n: negative n
    position: NDArray[np.int64]  # in the partition, for windows in events and contiguity there; otherwise empty
    sequence: NDArray[np.int64]  # in the stream, for strict contiguity; otherwise empty
    codes: Matrix[np.int32]  # [test, slot]: a code for the value, -1 if the event's type lacks the attribute
    int_lanes: Matrix[np.int64]  # [lane, slot]
    float_lanes: Matrix[np.float64]  # [lane, slot]
    lane_flags: Matrix[np.uint8]  # [int64 lanes, then float64 lanes; slot]: LaneFlag
    flagged: NDArray[np.uint8]  # per row of lane_flags: 1 if any live slot in it is not LaneFlag.VALUE


def new_events(
    tables: RunTables, capacity: int, *, int_lanes: int = 0, float_lanes: int = 0, points: bool = True
) -> RunEvents:
    """Empty buffers, whose first slots are the kernel's own. With `points`, start and end are one array."""
    end = np.zeros(capacity, np.int64)
    flags = np.zeros((int_lanes + float_lanes, capacity), np.uint8)
    flags[:, :1] = LaneFlag.NULL
    return RunEvents(
        start=end if points else np.zeros(capacity, np.int64),
        end=end,
        key=np.zeros(capacity, np.int32),
        roles=np.zeros(capacity, np.uint64),
        position=np.zeros(capacity if tables.numbers_keys else 0, np.int64),
        sequence=np.zeros(capacity if tables.numbers_stream else 0, np.int64),
        codes=np.full((tables.codes, capacity), -1, np.int32),
        int_lanes=np.zeros((int_lanes, capacity), np.int64),
        float_lanes=np.zeros((float_lanes, capacity), np.float64),
        lane_flags=flags,
        # The kernel's own slots may hold nulls at any time.
        flagged=np.ones(int_lanes + float_lanes, np.uint8),
    )
