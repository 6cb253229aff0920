"""The automaton kernel with its state. It holds events and instances, and stores both as arrays in snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ouzel.engines.automata import advance as kernel
from ouzel.engines.automata.plan import EventLanes
from ouzel.engines.automata.tables import (
    MEMBERS_MIN,
    Automata,
    Counter,
    Events,
    Link,
    Node,
    Place,
    Results,
    State,
    Status,
    Time,
    larger_results,
    new_events,
    new_results,
    new_state,
    with_room,
)
from ouzel.errors import LimitError
from ouzel.kernels.arrays import INT64_MAX, INT64_MIN, enlarged
from ouzel.kernels.pauses import Pieces
from ouzel.runtime.codes import is_mostly_dead, may_be_mostly_dead
from ouzel.runtime.limits import Limits
from ouzel.runtime.snapshot import Reader, Writer

# The first room for instances and for results. Limits are checked when there is no room left.
ROOM_MIN = 1024
_MEMBERS_NEAR = 1 << 16
# A result takes as much room as this many events of a match.
_EVENTS_PER_RESULT = 4
# The counters in a snapshot; the others are about lists, which are rebuilt.
_LASTING_COUNTERS = (
    Counter.SERIAL,
    Counter.EVENTS,
    Counter.STATIC_MATCHES,
    Counter.WAITS_READ,
    Counter.INSTANCES_READ,
    Counter.BUNDLES_READ,
    Counter.CREATED,
    Counter.RESULTS,
    Counter.EXPIRED,
    Counter.FIRED,
)


LimitMessage = Callable[[Limits, str], LimitError]


def _too_many_results(limits: Limits, name: str) -> LimitError:
    return LimitError(
        f"query '{name}' found more than max_matches_per_timestamp={limits.max_matches_per_timestamp:,} "
        "results that complete at one timestamp; give it a more selective condition, or raise the limit"
    )


def _too_many_instances(limits: Limits, name: str) -> LimitError:
    return LimitError(
        f"query '{name}' has more than max_partial_matches={limits.max_partial_matches:,} instances "
        "that wait for further events; give it a smaller bound on DUR or a more selective condition, "
        "or raise the limit"
    )


class Machine:
    """The kernel with its state: automata, instances, and the events that the instances refer to."""

    def __init__(self, automata: Automata, lanes: EventLanes, *, slots: int, registers: int, limits: Limits) -> None:
        self.automata = automata
        self._limits = limits
        self._registers = registers
        self._slots = slots
        self.state = new_state(automata, slots=slots, registers=registers, capacity=ROOM_MIN)
        self.results = new_results(ROOM_MIN, slots=slots + 1, registers=registers)
        # The events that instances may refer to, and their rows: the first `count`, and room behind them.
        self.events = new_events(0, len(lanes.ints), len(lanes.floats))
        self.rows = np.empty(0, np.int64)
        self.count = 0
        self._stamp = 0
        self.position = 0  # the first event that was not read

    def feed(self, events: Events, rows: np.ndarray, rank: Callable[[Events], None], name: str) -> Results:
        """Read events that are ordered by end. Returns the results, which the next call overwrites."""
        first = self.count
        if first:
            self._append(events, rows)
        else:
            self.events, self.rows, self.count = events, rows, len(rows)
        rank(self.events)
        return self.read(first, self.count, name)

    def _append(self, events: Events, rows: np.ndarray) -> None:
        first, last = self.count, self.count + len(rows)
        if last > len(self.rows):
            room = new_events(max(last, 2 * first), len(events.ints), len(events.floats))
            _write(room, 0, chosen_events(self.events, slice(first)))
            self.events, self.rows = room, enlarged(self.rows, len(room.end))
        _write(self.events, first, events)
        self.rows[first:last] = rows
        self.count = last

    def read(self, first: int, last: int, name: str) -> Results:
        """Read some of the machine's events. When a limit is exceeded, the results before `position` are complete."""
        self.results.count[0] = 0
        pieces = Pieces(last, self.events.times[:, Time.END])
        while True:
            first, status, self._stamp = kernel.advance(
                self.automata, self.state, self.events, first, pieces.end(first), self.results, self._stamp
            )
            self.position = first
            if status == Status.DONE:
                if first == last:
                    break
                continue
            if status == Status.OUTPUT_FULL:
                self._more_results(name)
            else:
                self._more_instances(name, only_members=status == Status.MEMBERS_FULL)
        return self.results

    def _more_results(self, name: str) -> None:
        before, limits = int(self.results.count[0]), self._limits
        if len(self.results.node) - before > limits.max_matches_per_timestamp:
            self._passed(name, self.results.node[before:], limits.max_matches_per_timestamp, _too_many_results)
        # A result is a row of numbers, for any number of events.
        if _EVENTS_PER_RESULT * before > limits.max_answer_events:
            most = limits.max_answer_events // _EVENTS_PER_RESULT
            self._passed(name, self.results.node[:before], most, Limits.answer_error)
        self.results = larger_results(self.results)

    def _more_instances(self, name: str, *, only_members: bool) -> None:
        live = self.live
        if live >= self._limits.max_partial_matches:
            nodes = instances_of(self.state, np.flatnonzero(self.state.links[:, Link.NODE] >= 0))["links"][:, Link.NODE]
            self._passed(name, nodes, self._limits.max_partial_matches, _too_many_instances)
        if only_members:
            self._put_members_anew(4 * live)
            return
        self.state = with_room(self.state, 2 * len(self.state.links))
        self._put_members_anew(4 * live)
        if len(self.automata.ai_lanes) and len(self.state.links) > 2 * len(self.state.ai_heads):
            self.relink()

    def _passed(self, name: str, nodes: np.ndarray, most: int, error: LimitMessage) -> None:
        """Raise the error of an exceeded limit: a query with one of these nodes has at least `most` results or
        instances.
        """
        raise error(self._limits, name)

    def _put_members_anew(self, wanted: int) -> None:
        """Remove the members of dead instances from the array of members."""
        # Twice the size of before, so that it is needed less and less often, up to the size of a near cache.
        room = min(2 * len(self.state.members), _MEMBERS_NEAR)
        members = np.empty((max(wanted, room, MEMBERS_MIN), 2), np.int32)
        self.state.counters[Counter.MEMBERS] = kernel.gather_members(self.state.links, self.state.members, members)
        self.state = self.state._replace(members=members)

    def relink(self) -> None:
        """Rebuild all lists, with room for the current instances."""
        state = self.state
        buckets = 1 << max(8, (len(state.links) - 1).bit_length())
        self.state = state._replace(ai_heads=np.full(buckets, -1, np.int32))
        self.state.an_highest[:] = INT64_MIN
        self.state.places[:, Place.HEAD] = -1
        self.state.places[:, Place.COUNT] = 0
        self.state.counters[Counter.ACTIVE_WAITS] = 0
        kernel.relink(self.automata, self.state, self.events)

    @property
    def live(self) -> int:
        """The number of instances. One that waits at several nodes counts once for each node."""
        links = self.state.links
        return int(links[links[:, Link.NODE] >= 0, Link.MEMBER_COUNT].sum())

    def evict(self, now: int, life: int) -> None:
        """Drop what can lead to no result after tick `now`: first instances, then the events before all that remain."""
        if life == INT64_MAX or not may_be_mostly_dead(self.count):
            return
        ends = self.events.end[: self.count]
        dead = int(np.searchsorted(ends, max(INT64_MIN, now + 1 - life), side="right"))
        if is_mostly_dead(dead, self.count):
            kernel.sweep(self.automata, self.state, min(now + 1, INT64_MAX - 1))
            # An instance refers to no event that ended before it began. Slots that it has not filled hold anything.
            starts = self.state.times[self.state.links[:, Link.NODE] >= 0, Time.START]
            self.drop_front(min(dead, int(np.searchsorted(ends, starts.min(initial=INT64_MAX)))))

    def drop_front(self, dead: int) -> None:
        self.state.slots[:] = np.maximum(self.state.slots - dead, 0)
        self.events = chosen_events(self.events, slice(dead, self.count))
        self.rows = self.rows[dead : self.count].copy()
        self.count = len(self.rows)


def _write(target: Events, at: int, events: Events) -> None:
    """Write events into buffers, from index `at` on."""
    last = at + len(events.end)
    target.times[at:last] = events.times
    for name in ("ints", "floats", "int_nulls", "float_nulls"):
        getattr(target, name)[:, at:last] = getattr(events, name)


def chosen_events(events: Events, which: Any) -> Events:
    """The events with some indexes, in the order of these."""
    return Events(
        times=np.ascontiguousarray(events.times[which]),
        ints=np.ascontiguousarray(events.ints[:, which]),
        floats=np.ascontiguousarray(events.floats[:, which]),
        int_nulls=np.ascontiguousarray(events.int_nulls[:, which]),
        float_nulls=np.ascontiguousarray(events.float_nulls[:, which]),
    )


def joined_events(parts: Sequence[Events]) -> Events:
    """Events of several buffers, concatenated."""
    if len(parts) == 1:
        return parts[0]
    return Events(
        *(
            np.concatenate(arrays, axis=0 if name == "times" else 1)
            for name, arrays in ((n, [getattr(part, n) for part in parts]) for n in Events._fields)
        )
    )


def longest_life(automata: Automata) -> int:
    """The greatest DUR at which an instance can still lead to a result."""
    # An event without duration is still needed until then.
    return int(automata.life[1:].max(initial=1))


def dump_machine(machine: Machine, writer: Writer) -> dict[str, Any]:
    """Store the instances and the events that they refer to. Lists are not stored, but rebuilt."""
    live = np.flatnonzero(machine.state.links[:, Link.NODE] >= 0)
    return {
        "instances": {name: writer.add_array(array) for name, array in instances_of(machine.state, live).items()},
        "events": [writer.add_array(array) for array in chosen_events(machine.events, slice(machine.count))],
        "rows": writer.add_array(machine.rows[: machine.count]),
        "counters": writer.add_array(machine.state.counters),
    }


def instances_of(state: State, live: np.ndarray) -> dict[str, np.ndarray]:
    """Some instances as arrays by name. One that waits at several nodes appears once for each node."""
    count = int(state.links[live, Link.MEMBER_COUNT].sum())
    rows, nodes = np.empty(count, np.int64), np.empty(count, np.int32)
    kernel.members_of(state.links, state.members, live.astype(np.int64), rows, nodes)
    arrays = {"times": state.times, "links": state.links, "slots": state.slots, **state.registers._asdict()}
    chosen = {name: array[rows] for name, array in arrays.items()}
    chosen["links"][:, Link.NODE] = nodes
    return chosen


def load_machine(machine: Machine, reader: Reader, head: Mapping[str, Any]) -> None:
    machine.events = Events(*reader.arrays(head["events"]))
    machine.rows = reader.array(head["rows"])
    machine.count = len(machine.rows)
    instances = {name: reader.array(number) for name, number in head["instances"].items()}
    put_instances(machine, instances)
    counters = reader.array(head["counters"])
    for counter in _LASTING_COUNTERS:
        machine.state.counters[counter] = counters[counter]


def put_instances(machine: Machine, instances: Mapping[str, np.ndarray]) -> None:
    """Add instances. The machine must already have their events."""
    count = len(instances["links"])
    state: State = new_state(
        machine.automata,
        slots=machine.state.slots.shape[1],
        registers=machine.state.registers.ints.shape[1],
        capacity=max(ROOM_MIN, 2 * count),
    )
    for name, values in instances.items():
        if name != "links":
            target = getattr(state if name in ("times", "slots") else state.registers, name)
            # The parts that only removed queries needed are cut off.
            width = min(target.shape[1], values.shape[1])
            target[:count, :width] = values[:, :width]
    state.times[:, Time.STAMP] = 0
    nodes = instances["links"][:, Link.NODE]
    state.links[:count, Link.NODE] = nodes
    state.links[:count, Link.WAIT] = machine.automata.nodes[nodes, Node.WAIT]
    state.links[:count, Link.MEMBER_HEAD] = np.arange(count)
    state.links[:count, Link.MEMBER_COUNT] = 1
    members = np.full((max(MEMBERS_MIN, 2 * count), 2), -1, np.int32)
    members[:count, 0] = nodes
    state.counters[Counter.FREE] -= count
    state.counters[Counter.MEMBERS] = count
    machine.state = state._replace(members=members)
    machine.relink()
