"""Arrays of the automaton kernel (Cayuga): merged automata, events, state and results.

All automata form one graph. Instances wait at nodes, and events move them along edges. Node 0 is the start of all
automata. Nodes with the same filter predicate have the same *wait*. An event that reaches several nodes of one wait
makes a single instance with several members, one for each node.

Every predicate is in disjunctive form. The static part of a conjunct is a list of ranges over int64 lanes of the event
that is read, so that an index can find it. The part that reads the instance is a program. Nothing here needs numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import INT64_MIN, Matrix, enlarged
from ouzel.kernels.predicate_tables import OPERANDS, Instruction, Opcode, Values

# More than any expression of the language needs.
STACK_HEIGHT = 2048
MEMBERS_MIN = 4096
# Fewer instances than this are not searched for expired ones.
SWEEP_MIN = 256
# As many numbers as a cache line has.
BLOCK = 8
# Components of programs that are not slots of the instance.
CURRENT, REGISTERS, PARAMETERS = -1, -2, -3


class Finding(IntEnum):
    """How events find the instances of a wait."""

    STATIC = 0  # through the AN index, by values that the filter predicate allows
    DYNAMIC = 1  # through the AI index, by a value of the instance


class Status(IntEnum):
    """Why a call returned."""

    DONE = 0
    OUTPUT_FULL = 1  # more room for results is needed; then continue at the same timestamp
    INSTANCES_FULL = 2  # more room for instances is needed; then continue at the same timestamp
    MEMBERS_FULL = 3  # more room for members of instances is needed; then continue at the same timestamp


class Counter(IntEnum):
    """Indexes into `State.counters`."""

    FREE = 0  # free instances
    SERIAL = 1  # events read; stamps show what was seen for this event
    SWEEP_AT = 2  # with this many instances, expired ones are searched
    ACTIVE_WAITS = 3  # those that have instances
    EVENTS = 4
    STATIC_MATCHES = 5  # edges whose static part an event satisfied
    WAITS_READ = 6  # active waits visited
    INSTANCES_READ = 7  # members of instances that an event affected
    CREATED = 8  # members
    RESULTS = 9
    EXPIRED = 10
    FIRED = 11  # identifies edges already taken by one instance for one event
    MEMBERS = 12  # the used part of `State.members`, including freed members
    BUNDLES_READ = 13  # instances that an event affected, with any number of members


class Node(IntEnum):
    """Columns of `Automata.nodes`. A range that begins at a column FIRST ends where the next row's begins."""

    EDGE_FIRST = 0
    SIGNATURE_FIRST = 1
    SLOT = 2  # where edges from the node put the event
    WAIT = 3  # -1: the node is final


class Wait(IntEnum):
    """Columns of `Automata.waits`. Row 0 belongs to the start, where no instance waits."""

    CONJUNCT_FIRST = 0  # of the filter predicate
    AN_FIRST = 1
    FINDING = 2
    KEY_LANE = 3  # of DYNAMIC: the lane of the event
    KEY_COMPONENT = 4  # and where the instance has the value
    KEY_VALUE_LANE = 5
    STAYS = 6  # an event that takes an instance leaves it there for later events
    STEADY = 7  # an instance that loops there is found as before


class Edge(IntEnum):
    """Columns of `Automata.edges`."""

    TARGET = 0
    REGISTER_FIRST = 1


class Entry(IntEnum):
    """Columns of `Automata.fr_entries`. An entry holds, in 64 bytes, the part of an edge's conjunct that decides about
    most events.
    """

    EDGE = 0
    CONJUNCT = 1  # times 16, plus flags for further tests
    LANES = 2  # of the two tests, plus one: in the lower half and in the upper one; 0: no test
    LOW = 3
    HIGH = 4
    OTHER_LOW = 5
    OTHER_HIGH = 6
    TARGET = 7  # of the edge; its wait is in the upper half


class EntryFlag(IntEnum):
    """Bits of `Entry.CONJUNCT`: what must be tested in addition to the entry."""

    ATOMS = 1  # more than the two tests
    PROGRAMS = 2  # or bounds of DUR
    SIBLINGS = 4  # other conjuncts of the same edge
    REGISTERS = 8  # that the edge sets


class Signature(IntEnum):
    """Columns of `Index.signatures`: the lanes that conjuncts compare; -1 for none."""

    LANE = 0  # for equality; if SCANNED, the first entry
    OTHER_LANE = 1  # for equality; if SCANNED, the entry after the last one
    RANGE_LANE = 2  # the entries of a key are sorted by the low end of this range
    SCANNED = 3  # 1: entries are not found by a key but tested one by one


class Slot(IntEnum):
    """Columns of `Index.table`, a hash table with open addressing."""

    SIGNATURE = 0  # its row plus one; 0: free
    VALUE = 1
    OTHER_VALUE = 2
    ENTRIES = 3  # from the upper 32 bits to the lower ones


class Conjunct(IntEnum):
    """Columns of `Automata.conjuncts`."""

    ATOM_FIRST = 0  # for edges only the atoms that do not fit their entry
    PROGRAM_FIRST = 1
    PARAMETER_ROW = 2
    LEAST = 3  # bounds of DUR
    GREATEST = 4
    ATOM_LAST = 5  # the first that is not of the conjunct


class Time(IntEnum):
    """Columns of `times`, for events, instances and results. Only instances have KEY and STAMP."""

    START = 0
    END = 1
    FIRST_END = 2  # the end of the first input row in it
    PRINT = 3  # two words that identify its input rows
    OTHER_PRINT = 4
    KEY = 5  # the value by which the AI index finds it
    STAMP = 6  # the timestamp at which an event took it


class Link(IntEnum):
    """Columns of `State.links`. A list is doubly linked; -1 ends it."""

    NODE = 0  # of its first member; -1: the instance is free
    BUCKET = 1  # the AI bucket it is in; -1: in its wait's list; -2: in none
    FOLLOWING = 2
    PRECEDING = 3
    FREE = 4  # a stack of free instances
    TAKEN = 5  # those that events of this timestamp took
    MADE = 6  # those made at this timestamp
    WAIT = 7
    MEMBER_HEAD = 8  # the list of its members
    MEMBER_COUNT = 9


class Place(IntEnum):
    """Columns of `State.places`, by wait."""

    HEAD = 0  # the list of its instances
    COUNT = 1
    STAMP = 2  # the event for which MASK was computed
    MASK = 3
    OPEN_FOR = 4  # what may still add members to INSTANCE: one instance and one event, by `Counter.FIRED`
    INSTANCE = 5
    # Of a wait with one conjunct, so that no further cache line is read: its entry in the AN index plus one, and the
    # high end of that entry's range. 0: it has none or several.
    AN_ENTRY = 6
    AN_HIGH = 7


class Code(NamedTuple):
    """Programs, and the parameters of queries that they read."""

    plain: NDArray[np.int8]  # by program: 1 compares two loaded integers, 2 two floats, 0 is anything else
    first: NDArray[np.int32]
    steps: Matrix[np.int32]  # rows: opcode, component or constant or comparison, lane
    int_constants: NDArray[np.int64]
    float_constants: NDArray[np.float64]
    parameter_ints: Matrix[np.int64]  # [row, parameter]
    parameter_floats: Matrix[np.float64]
    parameter_nulls: Matrix[np.uint8]


class Registers(NamedTuple):
    """The values that a fold keeps between iterations, as [instance, register]."""

    ints: Matrix[np.int64]
    floats: Matrix[np.float64]
    nulls: Matrix[np.uint8]


class Index(NamedTuple):
    """Finds the conjuncts whose constants an event satisfies: first by equalities, with a hash table, then by one
    range.

    An *entry* is a conjunct in the index. Entries with the same signature and the same values are adjacent. Those with
    a range are sorted by its low end, so the entries whose range begins at or before a value come first. Among them,
    `highest` finds those whose range ends at or after the value. Its first level has the high end of each entry; each
    further level has the greatest number of each block of `BLOCK` numbers of the level before.
    """

    signatures: Matrix[np.int32]
    words: NDArray[np.uint64]  # the initial hash of a signature's values
    bits: NDArray[np.uint64]  # one bit for some bits of every key's hash: most events without a key stop here
    table: Matrix[np.int64]
    lows: NDArray[np.int64]  # entries with ranges come first
    highest: NDArray[np.int64]
    levels: NDArray[np.int32]  # where each level begins in `highest`


class Automata(NamedTuple):
    """Merged automata."""

    nodes: Matrix[np.int32]  # one row more than nodes
    # [node, 2]: bits of which an event must have at least one to take any edge, by the values of some of its lanes.
    gates: Matrix[np.uint64]
    gate_lanes: NDArray[np.int32]
    waits: Matrix[np.int32]  # one row more than waits
    life: NDArray[np.int64]  # by wait: the longest DUR with which an instance can still lead to a result
    edges: Matrix[np.int32]  # sorted by source; one row more than edges
    registers: Matrix[np.int32]  # [row, 3]: register, program, whether it is a float
    conjuncts: Matrix[np.int64]  # first those of edges, then those of waits; one row more
    atoms: Matrix[np.int64]  # [atom, 4]: lane, negated, low, high
    programs: NDArray[np.int32]
    code: Code
    fr: Index
    fr_entries: Matrix[np.int64]
    an: Index
    an_waits: NDArray[np.int32]  # by entry of the AN index: its wait
    an_entries: NDArray[np.int32]  # sorted by wait: the entries of its filter predicate
    ai_lanes: NDArray[np.int32]
    # For automata that may make one instance in several ways: the lane that is equal for events that no later test can
    # distinguish. -1: every instance is made once.
    content_lane: int = -1

    @property
    def node_count(self) -> int:
        return len(self.nodes) - 1

    @property
    def wait_count(self) -> int:
        return len(self.life)

    @property
    def edge_count(self) -> int:
        return len(self.edges) - 1


class Events(NamedTuple):
    """Events ordered by their end. `new_events` shows the exact types."""

    times: Matrix[np.int64]  # [event, 5]
    ints: Matrix[np.int64]  # [lane, event]
    floats: Matrix[np.float64]
    int_nulls: Matrix[np.uint8]
    float_nulls: Matrix[np.uint8]

    @property
    def start(self) -> NDArray[np.int64]:
        return self.times[:, Time.START]

    @property
    def end(self) -> NDArray[np.int64]:
        return self.times[:, Time.END]


class State(NamedTuple):
    """Instances, and the lists through which events find them."""

    times: Matrix[np.int64]
    links: Matrix[np.int32]
    slots: Matrix[np.int32]
    registers: Registers
    # [member, 2]: its node, and the next member of the same instance, -1 for none. While a timestamp is read, an
    # instance of one member in a loop has -2 minus its next event there.
    members: Matrix[np.int32]
    places: Matrix[np.int64]
    an_highest: NDArray[np.int64]  # `Index.highest` of the AN index; waits without instances have INT64_MIN
    ai_heads: NDArray[np.int32]
    edge_stamps: NDArray[np.int64]
    values: Values
    counters: NDArray[np.int64]


class Results(NamedTuple):
    """Results: instances that have arrived at final nodes."""

    count: NDArray[np.int64]  # type: ignore[assignment]  # a field, not the tuple's method
    node: NDArray[np.int32]
    times: Matrix[np.int64]  # [result, 5]
    slots: Matrix[np.int32]
    registers: Registers


def aligned(rows: int, columns: int) -> NDArray[np.int64]:
    """An uninitialised table whose rows are aligned to cache lines, so that no row is in two of them.

    >>> aligned(3, 8).ctypes.data % 64
    0
    """
    room = np.empty(rows * columns + 8, np.int64)
    begin = -room.ctypes.data % 64 // 8
    return room[begin : begin + rows * columns].reshape(rows, columns)


def new_events(count: int, int_lanes: int, float_lanes: int) -> Events:
    """Buffers for this many events.

    >>> new_events(3, 2, 0).ints.shape
    (2, 3)
    """
    return Events(
        times=np.zeros((count, 5), np.int64),
        ints=np.zeros((int_lanes, count), np.int64),
        floats=np.zeros((float_lanes, count), np.float64),
        int_nulls=np.zeros((int_lanes, count), np.uint8),
        float_nulls=np.zeros((float_lanes, count), np.uint8),
    )


def new_state(automata: Automata, *, slots: int, registers: int, capacity: int = 64) -> State:
    """A state without instances, with room for some."""
    places = aligned(automata.wait_count, len(Place))
    places[:] = 0
    places[:, Place.HEAD] = -1
    first = automata.waits[:, Wait.AN_FIRST]
    only = np.flatnonzero(np.diff(first) == 1)
    entries = automata.an_entries[first[only]]
    places[only, Place.AN_ENTRY] = entries + 1
    places[only, Place.AN_HIGH] = automata.an.highest[entries]
    size = STACK_HEIGHT
    state = State(
        times=np.empty((0, len(Time)), np.int64),
        links=np.empty((0, len(Link)), np.int32),
        slots=np.empty((0, max(slots, 1)), np.int32),
        registers=new_registers(0, registers),
        members=np.empty((MEMBERS_MIN, 2), np.int32),
        places=places,
        an_highest=np.full_like(automata.an.highest, INT64_MIN),
        ai_heads=np.full(256, -1, np.int32),
        edge_stamps=np.zeros(automata.edge_count, np.int64),
        values=Values(np.zeros(size, np.int64), np.zeros(size, np.float64), np.zeros(size, np.uint8)),
        counters=np.zeros(len(Counter), np.int64),
    )
    state.counters[Counter.SWEEP_AT] = SWEEP_MIN
    return with_room(state, capacity)


def with_room(state: State, capacity: int) -> State:
    """The same state with room for `capacity` instances."""
    used = len(state.links)
    grown = {}
    for name in ("times", "links", "slots"):
        grown[name] = enlarged(getattr(state, name), capacity, 0)
    grown["links"][used:, Link.NODE] = -1
    free = int(state.counters[Counter.FREE])
    # The smallest numbers are used first.
    grown["links"][free : free + capacity - used, Link.FREE] = np.arange(capacity - 1, used - 1, -1)
    state.counters[Counter.FREE] = free + capacity - used
    registers = Registers(*(enlarged(array, capacity, 0) for array in state.registers))
    return state._replace(times=grown["times"], links=grown["links"], slots=grown["slots"], registers=registers)


def new_registers(rows: int, registers: int) -> Registers:
    shape = (rows, registers)
    return Registers(np.zeros(shape, np.int64), np.zeros(shape, np.float64), np.zeros(shape, np.uint8))


def new_results(capacity: int, *, slots: int, registers: int) -> Results:
    return Results(
        count=np.zeros(1, np.int64),
        node=np.zeros(capacity, np.int32),
        times=np.zeros((capacity, 5), np.int64),
        slots=np.zeros((capacity, max(slots, 1)), np.int32),
        registers=new_registers(capacity, registers),
    )


def larger_results(results: Results) -> Results:
    """The same results with twice the capacity."""
    rows = 2 * len(results.node)
    return Results(
        count=results.count,
        node=enlarged(results.node, rows, 0),
        times=enlarged(results.times, rows, 0),
        slots=enlarged(results.slots, rows, 0),
        registers=Registers(*(enlarged(array, rows, 0) for array in results.registers)),
    )


# ── Programs ───────────────────────────────────────────────────────────────────────────────────────


class ProgramTable:
    """The different programs of some automata."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Instruction, ...], int] = {}
        self._programs: list[tuple[Instruction, ...]] = []

    def number(self, instructions: Sequence[Instruction]) -> int:
        program = tuple(instructions)
        if program not in self._numbers:
            self._numbers[program] = len(self._programs)
            self._programs.append(program)
        return self._numbers[program]

    def arrays(
        self,
    ) -> tuple[NDArray[np.int8], NDArray[np.int32], NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]:
        """(which programs are plain comparisons, where each begins, steps, integer constants, float constants)."""
        first, rows = [0], []
        ints: list[int] = []
        floats: list[float] = []
        for program in self._programs:
            height = 0
            for step in program:
                rows.append(_row(step, ints, floats))
                height += 1 - OPERANDS[step.opcode]
                assert height < STACK_HEIGHT, "the language limits how deep expressions nest"
            first.append(len(rows))
        code = np.array(rows, np.int32).reshape(len(rows), 3)
        plain = np.array([_plainness(program) for program in self._programs], np.int8)
        return plain, np.array(first, np.int32), code, np.array(ints, np.int64), np.array(floats, np.float64)


def _plainness(program: tuple[Instruction, ...]) -> int:
    opcodes = [step.opcode for step in program]
    if opcodes == [Opcode.LOAD_INT, Opcode.LOAD_INT, Opcode.COMPARE_INT]:
        return 1
    return 2 if opcodes == [Opcode.LOAD_FLOAT, Opcode.LOAD_FLOAT, Opcode.COMPARE_FLOAT] else 0


def _row(step: Instruction, ints: list[int], floats: list[float]) -> tuple[int, int, int]:
    match step.opcode:
        case Opcode.LOAD_INT | Opcode.LOAD_FLOAT:
            assert step.lane is not None
            return (step.opcode, step.lane.component, step.lane.lane)
        case Opcode.INT:
            ints.append(int(step.constant))
            return (step.opcode, len(ints) - 1, 0)
        case Opcode.FLOAT:
            floats.append(float(step.constant))
            return (step.opcode, len(floats) - 1, 0)
        case Opcode.COMPARE_INT | Opcode.COMPARE_FLOAT:
            return (step.opcode, step.comparison, 0)
        case _:
            return (step.opcode, 0, 0)
