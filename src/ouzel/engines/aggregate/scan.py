"""The scan that all counters of one query share. For each timestamp it expires events, counts new ones, and emits what
has changed.

Counters differ in how events expire and are counted, and in how the values of a group are read. So `matrix.py`,
`per_start.py`, `edges.py` and `indexed.py` each have a kernel that passes its own functions to `scan`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.aggregate.tables import (
    ByMeasure,
    Counter,
    CounterTables,
    MeasureKind,
    Phase,
    Status,
    larger_counter_output,
    new_counter_output,
)
from ouzel.kernels.arrays import INT64_MAX
from ouzel.kernels.events import NO_WINDOW
from ouzel.kernels.jit import helper
from ouzel.kernels.pauses import Pieces


class Counters(ABC):
    """The counters of one query, and the rows that they have emitted."""

    # Whether events leave the window one by one: then those from the slot in `state.counters[OLDEST]` on must stay in
    # the caller's buffer.
    keeps_events = True

    def __init__(self, tables: CounterTables, state: Any) -> None:
        self.tables = tables
        self.state = state
        self.output = new_counter_output(tables)

    @abstractmethod
    def reserve(self, slots: int, key_group: NDArray[np.int32], groups: int) -> None:
        """Make room for slots, keys and groups. `key_group` has the group of each key."""

    def count(self, instances: Any, first: int, last: int, until: int, largest_weight: float = 1.0) -> None:
        """Read slots first to last - 1, none of them after `until`, and advance time to there.

        `largest_weight` is the largest absolute value of a summed integer, at least 1.

        >>> from ouzel.engines.aggregate.matrix import MatrixCounters
        >>> from ouzel.engines.aggregate.tables import Way, build_counter_tables, new_counter_instances
        >>> counters = MatrixCounters(build_counter_tables([False, False], window=10, way=Way.INVERSE))
        >>> instances = new_counter_instances(3)
        >>> instances.tick[:] = 1, 2, 11
        >>> instances.component[:] = 0, 1, 1
        >>> counters.reserve(3, np.zeros(1, np.int32), 1)
        >>> counters.count(instances, 0, 3, 11)
        >>> counters.output.tick[: counters.output.written[0]].tolist(), counters.output.words[0].tolist()
        ([2], [1, 0])
        """
        position = first
        pieces = Pieces(last, instances.tick)
        while True:
            end = pieces.end(position)
            reached = until if end == last else int(instances.tick[end - 1])
            status, position = self._scan(instances, position, end, reached, largest_weight)
            if status == Status.OUTPUT_FULL:
                self.output = larger_counter_output(self.output)
            elif status != Status.DONE:
                self._grow(status, instances, position)
            elif end == last:
                return

    @abstractmethod
    def _scan(self, instances: Any, first: int, last: int, until: int, largest_weight: float) -> tuple[int, int]:
        """Call the kernel. Returns (status, position); the instances at `position` have not been counted yet."""

    def _grow(self, status: int, instances: Any, position: int) -> None:
        """Make room for more, or make the counters wide, as the status says."""
        raise AssertionError("the kernel has never asked for it")

    def rebase(self, dead: int, used: int) -> None:
        """Follow the caller, which drops its `dead` oldest slots and moves the others to the front. All dropped ones
        have left the window.
        """
        raise AssertionError("these counters keep no events")

    @abstractmethod
    def rekey(
        self, renamed: NDArray[np.int32], key_group: NDArray[np.int32], renamed_groups: NDArray[np.int32]
    ) -> None:
        """Give keys and groups new numbers; -1 drops a key. `key_group` has the group of each new key. Key 0 keeps its
        number.
        """

    def regroup(self, renamed_groups: NDArray[np.int32]) -> None:
        """Give groups new numbers, if events decide them. Keys keep their numbers."""
        raise AssertionError("keys decide the groups of these counters")

    def forget_codes(self) -> None:  # noqa: B027
        """React to new codes of texts in the lanes of events. Most counters keep no values of lanes, and do nothing."""

    # What is live without an event in the caller's buffer.

    def queued(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The keys and ticks of live first events that are not in the caller's buffer, in the order in which they
        expire.
        """
        return np.empty(0, np.int64), np.empty(0, np.int64)

    def queued_keys(self, since: int) -> NDArray[np.int64]:
        """The keys of such first events, and the keys that had a negative event after a tick."""
        return np.empty(0, np.int64)

    def queued_groups(self) -> NDArray[np.int64]:
        """The groups of such first events, if events decide groups."""
        return np.empty(0, np.int64)


# ── Changed groups ─────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def touch_group(counted, tables, state, group, read_group):
    """Note that the current timestamp may change a group, and store the values of the group before."""
    groups = state.groups
    if groups.mark[group] == 0:
        groups.mark[group] = 1
        place = state.counters[Counter.TOUCHED]
        groups.touched[place] = group
        state.counters[Counter.TOUCHED] += 1
        if counted.on_change:
            read_group(tables, state, group, groups.before_words[place], groups.before_reals[place])


@helper(inline=True)
def complete(groups, group):
    """Note that a match completes in a touched group."""
    groups.mark[group] = 2


@helper(inline=True)
def _emit(counted, tables, state, output, read_group):
    """Write the rows of changed groups. Returns False if the output is full; call again after it has grown."""
    groups = state.groups
    counters = state.counters
    while counters[Counter.EMITTED] < counters[Counter.TOUCHED]:
        place = counters[Counter.EMITTED]
        group = groups.touched[place]
        completed = groups.mark[group] == 2
        if completed or counted.on_change:
            row = output.written[0]
            if row == output.tick.size:
                return False
            read_group(tables, state, group, output.words[row], output.reals[row])
            if completed or _differs(counted, groups, place, output, row):
                output.tick[row] = counters[Counter.NOW]
                output.group[row] = group
                output.completed[row] = completed
                if counted.on_change:
                    for word in range(output.words.shape[1]):
                        output.before_words[row, word] = groups.before_words[place, word]
                    for real in range(output.reals.shape[1]):
                        output.before_reals[row, real] = groups.before_reals[place, real]
                output.written[0] += 1
                counters[Counter.ROWS] += 1
        groups.mark[group] = 0
        counters[Counter.EMITTED] += 1
    counters[Counter.TOUCHED] = 0
    counters[Counter.EMITTED] = 0
    return True


@helper
def _differs(counted, groups, place, output, row):
    """Whether a group has other values than before the timestamp. Two NaN are equal."""
    for word in range(output.words.shape[1]):
        if groups.before_words[place, word] != output.words[row, word]:
            return True
    for measure in range(counted.by_measure.shape[0]):
        if counted.by_measure[measure, ByMeasure.KIND] == MeasureKind.FLOAT:
            before = groups.before_reals[place, 1 + measure]
            after = output.reals[row, 1 + measure]
            if before != after and not (before != before and after != after):
                return True
    return False


# ── Timestamps ─────────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def _next_timestamp(counted, comes, event_tick, leaves, oldest_tick, until):
    """(whether there is one, the next timestamp at which a row may be emitted).

    Expiry counts as a timestamp only with EMIT ON CHANGE.
    """
    if counted.on_change and leaves and oldest_tick <= INT64_MAX - counted.window:
        expiry = oldest_tick + counted.window
        if expiry <= until and (not comes or expiry < event_tick):
            return True, expiry
    return comes, event_tick


@helper(inline=True)
def scan(
    counted, tables, state, instances, reading, first, last, until, output, oldest, expire, apply, read_group,
):  # fmt: skip
    """Read instances and emit rows. Returns (status, position); the instances at `position` have not been counted
    yet.

    The counters pass `reading`, from which they read events, and four functions. `oldest` returns whether anything may
    leave the window, and its tick. `expire` removes what has left at a tick, and returns False if it needs more room.
    `apply` counts the instances at a slot, and returns the status and the slot after them. `read_group` reads the
    values of a group.
    """
    counters = state.counters
    tick = instances.tick
    position = first
    bounded = counted.window != NO_WINDOW
    # A call that had no room ended within a timestamp.
    phase = counters[Counter.PHASE]
    now = counters[Counter.NOW]
    status = Status.DONE
    while True:
        if phase == Phase.EMIT:
            if not _emit(counted, tables, state, output, read_group):
                status = Status.OUTPUT_FULL
                break
            phase = Phase.CHOOSE
        if phase == Phase.CHOOSE:
            leaves, oldest_tick = oldest(state, instances, position)
            found, now = _next_timestamp(
                counted, position < last, tick[position] if position < last else 0, bounded and leaves, oldest_tick,
                until,
            )  # fmt: skip
            if found:
                phase = Phase.WORK
                counters[Counter.NOW] = now
            elif bounded and not counted.on_change and until < INT64_MAX:
                now = np.int64(until)
            else:
                break
        # Only here: code that is inlined twice takes twice as long to compile.
        if bounded and not expire(tables, state, instances, position, now):
            status = Status.ROOM
            break
        if phase == Phase.CHOOSE:
            break
        while position < last and tick[position] == now:
            status, behind = apply(tables, state, instances, reading, position, last)
            if status != Status.DONE:
                break
            position = behind
        if status != Status.DONE:
            break
        phase = Phase.CHOOSE
        if counters[Counter.TOUCHED] > 0:
            phase = Phase.EMIT
    counters[Counter.PHASE] = phase
    counters[Counter.INSTANCES] += position - first
    return status, position


@helper(inline=True)
def oldest_slot(state, instances, position):
    """(whether any event may leave the window, the tick of the oldest), for counters that keep events."""
    slot = state.counters[Counter.OLDEST]
    if slot < position:
        return True, instances.tick[slot]
    return False, np.int64(0)


@helper(inline=True)
def has_left(counted, now, tick):
    """Whether an event has left the window."""
    return now >= tick and np.uint64(now) - np.uint64(tick) >= np.uint64(counted.window)


@helper(inline=True)
def alike(instances, slot, last):
    """The slot after the instances that have the same timestamp, component and key as the one at `slot`."""
    behind = slot + 1
    while (
        behind < last
        and instances.tick[behind] == instances.tick[slot]
        and instances.component[behind] == instances.component[slot]
        and instances.key[behind] == instances.key[slot]
    ):
        behind += 1
    return behind
