"""Counts along edges between neighbouring events, for predicates between adjacent components (an idea of GRETA).

When events complete matches, weights are propagated backwards from them. The weight of an event is the sum of the
weights of the events that may follow it. So each pair of neighbours is tested once, and no match is built. The weight
of a first event is added to its count. In the worst case, each completion takes as many steps as the window has pairs
of neighbours.

Negation between two components removes edges. For that, an event stores its *guard*: the timestamp of the newest
negative event before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.aggregate.columns import add_wide, clear_reading, multiply_wide, sign_extension
from ouzel.engines.aggregate.scan import Counters, alike, complete, has_left, oldest_slot, scan, touch_group
from ouzel.engines.aggregate.tables import (
    NEVER,
    NOTHING,
    ByComponent,
    ByMeasure,
    Counter,
    CounterInstances,
    CounterOutput,
    CounterTables,
    Groups,
    Kind,
    MeasureKind,
    Status,
    new_groups,
    reserve_groups,
)
from ouzel.kernels.arrays import Matrix, enlarged
from ouzel.kernels.events import EVERY_KEY
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.predicate_tables import Alternative, Predicates, Values, build_predicates, new_values
from ouzel.kernels.predicates import holds


class EdgeTables(NamedTuple):
    """A query and the predicates on its edges. Edge p leads from the component at position p to the next."""

    counted: CounterTables
    predicates: Predicates
    first_conjunct: NDArray[np.int32]  # of each edge; one entry more than edges
    position: NDArray[np.int32]  # per component among the positive ones; of a negative, the number before it
    component: NDArray[np.int32]  # per position


class Lanes(NamedTuple):
    """The values of events that predicates read, as `holds` takes them."""

    int_lanes: Matrix[np.int64]
    float_lanes: Matrix[np.float64]
    lane_flags: Matrix[np.uint8]
    flagged: NDArray[np.uint8]


class EdgeState(NamedTuple):
    """The state between calls: plain arrays. Slots are indexes into the caller's buffer of instances."""

    head: Matrix[np.int32]  # [key, position]: the newest event
    below: NDArray[np.int32]  # per slot: the one before it of the same key and position
    guard: NDArray[np.int64]  # per slot: the tick of the newest negative event before it
    last_negative: Matrix[np.int64]  # [key, position of the component after it]
    group_head: NDArray[np.int32]  # per group its newest first event
    group_below: NDArray[np.int32]  # per slot of a first event: the one before it of the same group
    held_words: Matrix[np.uint64]  # [slot, word]: the matches of a first event
    held_reals: Matrix[np.float64]
    weight_words: Matrix[np.uint64]  # [slot, word]: scratch of one completion
    weight_reals: Matrix[np.float64]
    reached: Matrix[np.int32]  # [2, slot]: scratch, the events of two neighbouring positions
    bound: NDArray[np.int32]  # per component
    key_group: NDArray[np.int32]
    groups: Groups
    counters: NDArray[np.int64]
    values: Values


class EdgeCounters(Counters):
    """Counts along the edges between neighbouring events. Each of `edges` is a conjunct with the position of the
    earlier of its two components.
    """

    state: EdgeState

    def __init__(self, counted: CounterTables, edges: Sequence[tuple[int, Sequence[Alternative]]]) -> None:
        kinds = counted.by_component[:, ByComponent.KIND]
        positives = np.flatnonzero(kinds == Kind.POSITIVE)
        ordered = sorted(edges, key=lambda edge: edge[0])
        bounds = np.searchsorted([edge for edge, _ in ordered], np.arange(len(positives) + 1)).astype(np.int32)
        predicates = build_predicates([alternatives for _, alternatives in ordered])
        position = np.searchsorted(positives, np.arange(len(kinds))).astype(np.int32)
        self._edges = EdgeTables(counted, predicates, bounds, position, positives.astype(np.int32))
        words, reals = 2 + 2 * len(counted.by_measure), 1 + len(counted.by_measure)
        state = EdgeState(
            head=np.zeros((0, len(positives)), np.int32),
            below=np.zeros(0, np.int32),
            guard=np.zeros(0, np.int64),
            last_negative=np.zeros((0, len(positives)), np.int64),
            group_head=np.zeros(0, np.int32),
            group_below=np.zeros(0, np.int32),
            held_words=np.zeros((0, words), np.uint64),
            held_reals=np.zeros((0, reals), np.float64),
            weight_words=np.zeros((0, words), np.uint64),
            weight_reals=np.zeros((0, reals), np.float64),
            reached=np.zeros((2, 0), np.int32),
            bound=np.full(len(kinds), -1, np.int32),
            key_group=np.zeros(0, np.int32),
            groups=new_groups(counted, 0),
            counters=np.zeros(len(Counter), np.int64),
            values=new_values(predicates),
        )
        super().__init__(counted, state)

    def reserve(self, slots: int, key_group: NDArray[np.int32], groups: int) -> None:
        state, keys = self.state, len(key_group)
        self.state = state._replace(
            head=enlarged(state.head, keys),
            below=enlarged(state.below, slots),
            guard=enlarged(state.guard, slots, NEVER),
            last_negative=enlarged(state.last_negative, keys, NEVER),
            group_head=enlarged(state.group_head, groups),
            group_below=enlarged(state.group_below, slots),
            held_words=enlarged(state.held_words, slots, 0),
            held_reals=enlarged(state.held_reals, slots, 0),
            weight_words=enlarged(state.weight_words, slots, 0),
            weight_reals=enlarged(state.weight_reals, slots, 0),
            reached=enlarged(state.reached, slots, 0, axis=1),
            key_group=key_group,
            groups=reserve_groups(self.tables, state.groups, groups),
        )

    def rebase(self, dead: int, used: int) -> None:
        state = self.state
        state.counters[Counter.OLDEST] -= dead
        for array in (state.below, state.guard, state.group_below, state.held_words, state.held_reals):
            array[: used - dead] = array[dead:used]
        for links in (state.head, state.below, state.group_head, state.group_below):
            np.copyto(links, np.where(links >= dead, links - dead, -1))

    def rekey(
        self, renamed: NDArray[np.int32], key_group: NDArray[np.int32], renamed_groups: NDArray[np.int32]
    ) -> None:
        state = self.state
        known = np.flatnonzero(renamed[: len(state.head)] > EVERY_KEY)
        kept = np.concatenate([np.zeros(1, np.int64), known])
        self.state = state._replace(
            head=enlarged(state.head[kept], len(key_group)),
            last_negative=enlarged(state.last_negative[kept], len(key_group), NEVER),
            key_group=key_group,
        )
        self.regroup(renamed_groups)

    def regroup(self, renamed_groups: NDArray[np.int32]) -> None:
        # A dropped group has the number 0 here, and no first event; a live one is written after it.
        heads = self.state.group_head
        kept = np.flatnonzero(heads >= 0)
        group_head = np.full(len(heads), -1, np.int32)
        group_head[renamed_groups[kept]] = heads[kept]
        groups = new_groups(self.tables, len(self.state.groups.mark))
        self.state = self.state._replace(group_head=group_head, groups=groups)

    def _scan(
        self, instances: CounterInstances, first: int, last: int, until: int, largest_weight: float
    ) -> tuple[int, int]:
        flagged = np.ones(len(instances.lane_flags), np.uint8)
        lanes = Lanes(instances.int_lanes, instances.float_lanes, instances.lane_flags, flagged)
        found: tuple[int, int] = _scan(self._edges, self.state, instances, lanes, first, last, until, self.output)
        return found


@kernel
def _scan(
    tables: EdgeTables,
    state: EdgeState,
    instances: CounterInstances,
    lanes: Lanes,
    first: int,
    last: int,
    until: int,
    output: CounterOutput,
):
    return scan(
        tables.counted, tables, state, instances, lanes, first, last, until, output, oldest_slot, _expire, _apply,
        _read_group,
    )  # fmt: skip


_ONE = np.uint64(1)


@helper
def _add(tables, words, reals, more_words, more_reals):
    """Add one reading to another."""
    words[0], words[1] = add_wide(words[0], words[1], more_words[0], more_words[1])
    reals[0] += more_reals[0]
    for measure in range(tables.by_measure.shape[0]):
        kind = tables.by_measure[measure, ByMeasure.KIND]
        place = 2 + 2 * measure
        if kind == MeasureKind.FLOAT:
            reals[1 + measure] += more_reals[1 + measure]
        elif kind == MeasureKind.INTEGER:
            words[place], words[place + 1] = add_wide(
                words[place], words[place + 1], more_words[place], more_words[place + 1]
            )
        else:
            words[place] = np.uint64(min(np.int64(words[place]), np.int64(more_words[place])))


@helper
def _weigh_in(tables, instances, slot, words, reals):
    """Add the measures of an event to the sums over the paths from it, once for each path."""
    own = tables.by_component[instances.component[slot], ByComponent.OWN]
    for measure in range(tables.by_measure.shape[0]):
        if tables.by_measure[measure, ByMeasure.COLUMN] != own:
            continue
        kind = tables.by_measure[measure, ByMeasure.KIND]
        lane = tables.by_measure[measure, ByMeasure.LANE]
        place = 2 + 2 * measure
        if kind == MeasureKind.FLOAT:
            reals[1 + measure] += instances.floats[lane, slot] * reals[0]
        elif kind == MeasureKind.INTEGER:
            value = np.uint64(instances.ints[lane, slot])
            low, high = multiply_wide(words[0], words[1], value, sign_extension(value))
            words[place], words[place + 1] = add_wide(words[place], words[place + 1], low, high)
        elif instances.ints[lane, slot] != NOTHING:
            words[place] = np.uint64(min(np.int64(words[place]), instances.ints[lane, slot]))


@helper
def _read_group(tables, state, group, words, reals):
    clear_reading(tables.counted, words, reals)
    slot = state.group_head[group]
    while slot >= state.counters[Counter.OLDEST]:
        if state.held_reals[slot, 0] > 0.0:
            _add(tables.counted, words, reals, state.held_words[slot], state.held_reals[slot])
        slot = state.group_below[slot]


@helper
def _group_of(tables, state, instances, slot):
    return instances.group[slot] if tables.counted.split else state.key_group[instances.key[slot]]


@helper
def _expire(tables, state, instances, position, now):
    counters = state.counters
    while counters[Counter.OLDEST] < position:
        slot = counters[Counter.OLDEST]
        if not has_left(tables.counted, now, instances.tick[slot]):
            break
        if instances.component[slot] == tables.counted.first:
            if tables.counted.on_change:
                touch_group(tables.counted, tables, state, _group_of(tables, state, instances, slot), _read_group)
            counters[Counter.EXPIRED] += 1
        counters[Counter.OLDEST] += 1
    return True


@helper
def _apply(tables, state, instances, lanes, slot, last):
    """Process the instances from a slot on that have the same timestamp, component and key."""
    component = instances.component[slot]
    key = instances.key[slot]
    place = tables.position[component]
    length = tables.component.size
    behind = alike(instances, slot, last)
    if tables.counted.by_component[component, ByComponent.KIND] != Kind.POSITIVE:
        state.last_negative[key, place] = instances.tick[slot]
        return Status.DONE, behind
    for one in range(slot, behind):
        state.guard[one] = max(state.last_negative[key, place], state.last_negative[0, place])
        state.below[one] = state.head[key, place]
        state.head[key, place] = one
        if place == 0:
            group = _group_of(tables, state, instances, one)
            state.group_below[one] = state.group_head[group]
            state.group_head[group] = one
            state.counters[Counter.STARTS] += 1
            clear_reading(tables.counted, state.held_words[one], state.held_reals[one])
    if place == length - 1:
        _run_back(tables, state, instances, lanes, slot, behind)
    return Status.DONE, behind


@helper
def _run_back(tables, state, instances, lanes, first, behind):
    """Propagate weights from the events that complete matches back to first events."""
    key = instances.key[first]
    now = instances.tick[first]
    counted = tables.counted
    tick = instances.tick
    oldest = state.counters[Counter.OLDEST]
    later = 0
    count = 0
    for slot in range(behind - 1, first - 1, -1):
        state.reached[later, count] = slot
        count += 1
        clear_reading(counted, state.weight_words[slot], state.weight_reals[slot])
        state.weight_words[slot, 0] = _ONE
        state.weight_reals[slot, 0] = 1.0
        _weigh_in(counted, instances, slot, state.weight_words[slot], state.weight_reals[slot])
    for place in range(tables.component.size - 2, -1, -1):
        found = 0
        slot = state.head[key, place]
        state_row = 1 - later
        while slot >= oldest and count > 0:
            state.bound[tables.component[place]] = slot
            words = state.weight_words[slot]
            reals = state.weight_reals[slot]
            clear_reading(counted, words, reals)
            for number in range(count):
                follower = state.reached[later, number]
                if tick[follower] <= tick[slot]:
                    # Newest first: all later ones are older.
                    break
                if state.guard[follower] > tick[slot]:
                    continue
                state.bound[tables.component[place + 1]] = follower
                passes = True
                for conjunct in range(tables.first_conjunct[place], tables.first_conjunct[place + 1]):
                    passes = passes and holds(tables.predicates, lanes, state.bound, state.values, conjunct)
                if passes:
                    _add(counted, words, reals, state.weight_words[follower], state.weight_reals[follower])
            if reals[0] > 0.0:
                _weigh_in(counted, instances, slot, words, reals)
                state.reached[state_row, found] = slot
                found += 1
            slot = state.below[slot]
        later = state_row
        count = found
    for number in range(count):
        slot = state.reached[later, number]
        guard = state.guard[slot]
        if counted.has_negated_start and guard > NEVER and not has_left(counted, now, guard):
            # A negated start forbids events back to the start of the window.
            continue
        group = _group_of(tables, state, instances, slot)
        touch_group(counted, tables, state, group, _read_group)
        complete(state.groups, group)
        _add(
            counted, state.held_words[slot], state.held_reals[slot], state.weight_words[slot], state.weight_reals[slot]
        )
