"""Counters whose cost per event depends neither on the number of matches nor on the number of first events.

The events of a key in the window are a product of small matrices, one for each moment. `Way.INVERSE`: the oldest event
leaves by the inverse of its own (counts and integer sums). `Way.STACKS`: two stacks of products, for negation, minima,
floats and Kleene plus. The newer events are one matrix; for each first event among the older ones the top row of the
product from there to where the newer ones begin is kept. When no older ones are left, the newer become the older.
`Way.UNBOUNDED`: nothing leaves, and the top row is all there is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.counters_columns import (
    close,
    extend,
    measure_bound,
    needs_widening,
    raise_bound,
    weigh,
)
from ouzel.kernels.counters_matrix_leaving import expire, flip, stands
from ouzel.kernels.counters_matrix_state import MatrixState, new_matrix_state, reserve_matrix, with_rows, with_trees
from ouzel.kernels.counters_matrix_totals import (
    add_to_total,
    fill_trees,
    is_held,
    keeps_totals,
    put_in_tree,
    read_group_of_matrix,
    touch_group,
)
from ouzel.kernels.counters_plain import is_plain, scan_plain
from ouzel.kernels.counters_products import identity, reaches
from ouzel.kernels.counters_report import complete, emit, next_moment
from ouzel.kernels.counters_tables import (
    NO_WINDOW,
    ByComponent,
    ByMeasure,
    Counter,
    CounterInstances,
    CounterOutput,
    CounterTables,
    Kind,
    MeasureKind,
    Phase,
    Status,
    Way,
    larger_counter_output,
    reals_per_column,
    words_per_column,
)
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.pauses import Pieces


class MatrixProgress(NamedTuple):
    state: MatrixState
    output: CounterOutput


def scan_matrix(
    tables: CounterTables,
    state: MatrixState,
    instances: CounterInstances,
    first: int,
    last: int,
    until: int,
    output: CounterOutput,
    largest_weight: float = 1.0,
    *,
    several: bool = True,
) -> MatrixProgress:
    """Read the instances in slots first to last - 1, none of them after `until`, and let time run on to there.

    `several` must be the same in every call: false only where no group can ever have two keys, which saves its total.
    Instances from the slot in `counters[OLDEST]` on must still lie in the buffer, unless nothing ever leaves.

    >>> from ouzel.kernels.counters_matrix_state import *
    >>> from ouzel.kernels.counters_tables import *
    >>> tables = build_counter_tables([False, False], window=10, way=Way.INVERSE)
    >>> instances = new_counter_instances(3)
    >>> instances.tick[:] = 1, 2, 11
    >>> instances.component[:] = 0, 1, 1
    >>> state = reserve_matrix(tables, new_matrix_state(tables), 3, 1)
    >>> found = scan_matrix(tables, state, instances, 0, 3, 11, new_counter_output(tables))
    >>> found.output.tick[: found.output.written[0]].tolist(), found.output.words[0].tolist()
    ([2], [1, 0])
    """
    position = first
    plain = is_plain(tables)
    if plain:
        _open_all(tables, state)
    pieces = Pieces(last, instances.tick)
    while True:
        end = pieces.end(position)
        reached = until if end == last else instances.tick[end - 1]
        if state.tree_stale[0]:
            fill_trees(tables, state)
        if plain and not state.counters[Counter.WIDE]:
            status, position = scan_plain(tables, state, instances, position, end, reached, several, output)
        else:
            status, position = _scan(tables, state, instances, position, end, reached, largest_weight, output)
        if status == Status.DONE:
            if end == last:
                return MatrixProgress(state, output)
        elif status == Status.OUTPUT_FULL:
            output = larger_counter_output(output)
        elif status == Status.WIDEN:
            state = widened_matrix(tables, state, instances, position)
        else:
            state = with_rows(tables, state)


def widened_matrix(
    tables: CounterTables, state: MatrixState, instances: CounterInstances, position: int
) -> MatrixState:
    """The same window in counters of 128 bits, each count as a float beside it: counted again, by two stacks."""
    assert not state.counters[Counter.WIDE]
    if tables.way == Way.UNBOUNDED:
        return _widened_rows(tables, state)
    keys = len(state.is_open)
    wide = new_matrix_state(tables, wide=True)
    wide.way[0] = Way.STACKS
    wide = reserve_matrix(tables, wide, len(instances.tick), keys, state.key_group)
    wide = wide._replace(groups=state.groups, next_of_group=state.next_of_group)
    wide.counters[:] = state.counters
    wide.counters[Counter.WIDE] = 1
    wide.is_open[:keys] = state.is_open
    wide.open_since[:keys] = state.open_since
    _replay(tables, wide, instances, int(state.counters[Counter.OLDEST]), position)
    return wide


def _widened_rows(tables: CounterTables, state: MatrixState) -> MatrixState:
    """Of counters that nothing leaves."""
    keys, columns = len(state.is_open), tables.columns
    narrow = state.words.reshape(keys, tables.word_fields, columns)
    words = np.zeros((keys, words_per_column(tables, 1), columns), np.uint64)
    words[:, : tables.word_fields] = narrow
    for measure in tables.by_measure:
        if measure[ByMeasure.KIND] == MeasureKind.INTEGER:
            sums = narrow[:, measure[ByMeasure.FIELD]].view(np.int64)
            words[:, measure[ByMeasure.HIGH_FIELD]] = (sums >> 63).view(np.uint64)
    reals = np.zeros((keys, reals_per_column(tables, 1), columns), np.float64)
    reals[:, : tables.real_fields] = state.reals.reshape(keys, tables.real_fields, columns)
    reals[:, tables.real_fields] = narrow[:, 0]
    state.counters[Counter.WIDE] = 1
    return with_trees(tables, state._replace(words=words.reshape(-1), reals=reals.reshape(-1)))


def take_over(tables: CounterTables, state: MatrixState, counts: NDArray[np.uint64]) -> None:
    """Counts and integer sums of [key, field, column] since the start, of which somebody else has kept account, take
    the place of none."""
    assert tables.way == Way.UNBOUNDED and tables.integers == len(tables.by_measure)
    assert not state.counters[Counter.WIDE]
    _open_all(tables, state)
    keys = len(counts)
    state.words.reshape(-1, tables.word_fields, tables.columns)[:keys] = counts
    state.bound[:keys] = counts[:, 0]
    # Totals have 128 bits: the halves of numbers are added up apart, then put together.
    for field in range(tables.word_fields):
        values = counts[:, field, tables.final].view(np.int64)
        halves = np.zeros((2, len(state.total)), np.int64)
        np.add.at(halves[0], state.key_group[:keys], values & (2**32 - 1))
        np.add.at(halves[1], state.key_group[:keys], values >> 32)
        halves[1] += halves[0] >> 32
        state.total[:, 2 * field] = ((halves[1] << 32) | (halves[0] & (2**32 - 1))).view(np.uint64)
        state.total[:, 2 * field + 1] = (halves[1] >> 32).view(np.uint64)


_ZERO = np.uint64(0)
# How far from too large counts must be after a flip that was made to learn how large they are.
_FAR = 16.0


@kernel
def _open_all(tables, state):
    for key in range(state.is_open.size):
        if not state.is_open[key]:
            _open(tables, state, key)


# ── The scan ───────────────────────────────────────────────────────────────────────────────────────


@kernel
def _scan(tables, state, instances, first, last, until, largest_weight, output):
    """(status, position). Everything about the instances at `position` is still to be done."""
    counters = state.counters
    tick = instances.tick
    position = first
    bounded = tables.window != NO_WINDOW
    lets_go = bounded and not tables.on_change and until < 2**63 - 1
    while True:
        if counters[Counter.PHASE] == Phase.EMIT:
            while True:
                group = emit(tables, state.groups, counters, state.scratch, output)
                if group == -1:
                    break
                if group == -2:
                    return Status.OUTPUT_FULL, position
                read_group_of_matrix(tables, state, group, state.scratch.words, state.scratch.reals)
            counters[Counter.PHASE] = Phase.CHOOSE
        if counters[Counter.PHASE] == Phase.CHOOSE:
            leaving = bounded and counters[Counter.OLDEST] < position
            found, moment = next_moment(
                tables,
                position < last,
                tick[position] if position < last else 0,
                leaving,
                tick[counters[Counter.OLDEST]] if leaving else 0,
                until,
            )
            if found:
                counters[Counter.MOMENT] = moment
                counters[Counter.PHASE] = Phase.WORK
            elif lets_go:
                moment = until
            else:
                break
        else:
            moment = counters[Counter.MOMENT]
        # Here alone: what is written out in place twice takes twice as long to compile.
        if bounded and not expire(tables, state, instances, position, moment, tables.on_change):
            return Status.ROOM, position
        if counters[Counter.PHASE] == Phase.CHOOSE:
            break
        while position < last and tick[position] == moment:
            behind = _together(tables, instances, position, last)
            status = _may_count(tables, state, instances, position, behind, largest_weight)
            if status != Status.DONE:
                return status, position
            _apply(tables, state, instances, position, behind)
            counters[Counter.INSTANCES] += behind - position
            position = behind
        counters[Counter.PHASE] = Phase.EMIT
    return Status.DONE, position


@helper(inline=True)
def _together(tables, instances, slot, last):
    """The slot behind the instances that are one with this one: simultaneous, of its component, with +, and key."""
    behind = slot + 1
    component = instances.component[slot]
    if tables.by_component[component, ByComponent.KLEENE]:
        while (
            behind < last
            and instances.tick[behind] == instances.tick[slot]
            and instances.component[behind] == component
            and instances.key[behind] == instances.key[slot]
        ):
            behind += 1
    return behind


@helper(inline=True)
def _may_count(tables, state, instances, slot, behind, largest_weight):
    """Whether narrow counters can take the instances: DONE, WIDEN, or ROOM if that is needed to find out."""
    component = instances.component[slot]
    if state.counters[Counter.WIDE] or tables.by_component[component, ByComponent.KIND] != Kind.POSITIVE:
        return Status.DONE
    key = instances.key[slot]
    bound = state.bound[key]
    if not needs_widening(raise_bound(tables, bound, component, behind - slot), largest_weight):
        return Status.DONE
    if not state.is_open[key]:
        return Status.WIDEN if needs_widening(1.0, largest_weight) else Status.DONE
    if tables.has_negated_start:
        # What is held back is in no matrix before the next flip, so that only a flip can tell. It must not be asked for
        # again with the next event.
        if state.free_count[0] < state.start_count[key]:
            return Status.ROOM
        flip(tables, state, instances, key)
        raised = raise_bound(tables, bound, component, behind - slot)
        return Status.WIDEN if needs_widening(_FAR * raised, largest_weight) else Status.DONE
    rows = 1 if state.way[0] == Way.UNBOUNDED else tables.columns
    measure_bound(tables, state.words, key * rows, rows, 0, rows, bound)
    if state.way[0] == Way.STACKS:
        start = state.oldest_start[key]
        if start >= 0 and state.older_row[start] >= 0:
            row = state.older_row[start]
            for column in range(tables.columns):
                reached = reaches(
                    tables, state.older_words[row], state.older_reals[row], state.words, state.reals, 0, key * rows,
                    column,
                )  # fmt: skip
                bound[column] = max(bound[column], reached)
    raised = raise_bound(tables, bound, component, behind - slot)
    return Status.WIDEN if needs_widening(raised, largest_weight) else Status.DONE


@helper(inline=True)
def _open(tables, state, key):
    """The first event of a key."""
    group = state.key_group[key]
    rows = 1 if state.way[0] == Way.UNBOUNDED else tables.columns
    identity(tables, state.words, state.reals, state.counters[Counter.WIDE], key * rows, rows)
    if not state.is_open[key]:
        state.is_open[key] = 1
        state.next_of_group[key] = state.groups.first_cell[group]
        state.groups.first_cell[group] = key
        if state.next_of_group[key] >= 0 and state.next_of_group[state.next_of_group[key]] < 0:
            # From now on the group has several keys, and its total is kept.
            for word in range(state.total.shape[1]):
                state.total[group, word] = _ZERO
            add_to_total(tables, state, state.next_of_group[key], 1)


@helper(inline=True)
def _apply(tables, state, instances, slot, behind):
    """Count the instances in slots slot to behind - 1, which are one."""
    component = instances.component[slot]
    key = instances.key[slot]
    kind = tables.by_component[component, ByComponent.KIND]
    if kind == Kind.NEGATIVE and key == 0 and state.way[0] == Way.UNBOUNDED:
        # Of no key, or everywhere.
        for one in range(state.is_open.size):
            if state.is_open[one]:
                close(
                    tables, state.words, state.reals, state.counters[Counter.WIDE], one, 1, 0, 1,
                    tables.by_component[component, ByComponent.OWN],
                )  # fmt: skip
        return
    if not state.is_open[key]:
        _open(tables, state, key)
    own = tables.by_component[component, ByComponent.OWN]
    completes = kind == Kind.POSITIVE and max(own, tables.by_component[component, ByComponent.GATE]) == tables.final
    if completes:
        completes = _has_prefix(tables, state, key, tables.by_component[component, ByComponent.FROM])
        if not completes and tables.by_component[component, ByComponent.KLEENE]:
            completes = _has_prefix(tables, state, key, own)
    group = state.key_group[key]
    if completes:
        touch_group(tables, state, group)
        complete(state.groups, group)
    summed = completes and keeps_totals(tables, state) and state.next_of_group[state.groups.first_cell[group]] >= 0
    if summed:
        add_to_total(tables, state, key, -1)
    _insert(tables, state, instances, slot, behind)
    if summed:
        add_to_total(tables, state, key, 1)
    elif completes:
        put_in_tree(tables, state, key)


@helper(inline=True)
def _has_prefix(tables, state, key, column):
    """Whether any prefix of the window ends at a column."""
    if is_held(tables, state, key):
        return False
    wide = state.counters[Counter.WIDE]
    rows = 1 if state.way[0] == Way.UNBOUNDED else tables.columns
    if state.way[0] == Way.STACKS:
        start = state.oldest_start[key]
        if start >= 0 and state.older_row[start] >= 0:
            row = state.older_row[start]
            return (
                reaches(
                    tables, state.older_words[row], state.older_reals[row], state.words, state.reals, wide, key * rows,
                    column,
                )
                > 0.0
            )  # fmt: skip
    if wide:
        width = tables.real_fields + 1
        return state.reals[(key * width * tables.columns + tables.real_fields * tables.columns + column) * rows] > 0.0
    return state.words[(key * tables.word_fields * tables.columns + column) * rows] != _ZERO


@helper(inline=True)
def _insert(tables, state, instances, slot, behind):
    """Multiply a key's window by its newest factor."""
    component = instances.component[slot]
    key = instances.key[slot]
    wide = state.counters[Counter.WIDE]
    rows = 1 if state.way[0] == Way.UNBOUNDED else tables.columns
    own = tables.by_component[component, ByComponent.OWN]
    kind = tables.by_component[component, ByComponent.KIND]
    if kind != Kind.POSITIVE:
        close(tables, state.words, state.reals, wide, key * rows, rows, 0, rows, own)
    else:
        if tables.by_measure.shape[0] > 0:
            weigh(tables, state.scratch, instances, slot, behind)
        touched = min(rows, own + 1)
        opened = touched if stands(tables, state, key, component, instances.tick[slot]) else 0
        extend(
            tables, state.words, state.reals, wide, key * rows, rows, 0, key * rows, rows, 0, touched, opened,
            component, behind - slot, state.scratch, 1,
        )  # fmt: skip
    if state.way[0] != Way.STACKS:
        return
    if tables.has_negated_start and kind == Kind.NEGATED_START:
        state.next_start[slot] = -1
        if state.oldest_negative[key] < 0:
            state.oldest_negative[key] = slot
        else:
            state.next_start[state.newest_negative[key]] = slot
        state.newest_negative[key] = slot
    for one in range(slot, behind):
        state.below[one] = state.newest[key]
        state.newest[key] = one
        if component == tables.first:
            state.counters[Counter.STARTS] += 1
            state.start_count[key] += 1
            state.next_start[one] = -1
            state.older_row[one] = -1
            if state.oldest_start[key] < 0:
                state.oldest_start[key] = one
            else:
                state.next_start[state.newest_start[key]] = one
            state.newest_start[key] = one


@kernel
def _replay(tables, state, instances, first, last):
    """Count again what is in the window."""
    for key in range(state.is_open.size):
        if state.is_open[key]:
            identity(
                tables, state.words, state.reals, state.counters[Counter.WIDE], key * tables.columns, tables.columns
            )
    slot = first
    while slot < last:
        behind = _together(tables, instances, slot, last)
        _insert(tables, state, instances, slot, behind)
        slot = behind
