"""The kernel that finds matches: a depth-first search over the rows of one match, in order of preference.

`can` says from which rows the pattern can be completed, if only conditions on rows at fixed distances count. Without
other conditions, the first path that can be completed is the preferred one. Then there is no backtracking, and the
search is linear in the number of rows for every pattern.

Conditions that read the match (other variables, FIRST, offsets, aggregates, labels) are tested row by row. Rows and
aggregates are stored for each depth, so the cost of a step does not depend on the length of the match, and backtracking
costs nothing. The number of steps of an attempt is limited.

If the search reaches the last known row of a partition and more rows may come, the match is not decided yet, because
the preferred path depends on these rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.rows.partitions import is_in
from ouzel.engines.rows.tables import ACCEPT, At, Ended, Matches, Partitions, Path, Reading, Skipping, Tables, Total
from ouzel.kernels.arrays import INT64_MAX, INT64_MIN, Matrix
from ouzel.kernels.events import Instances
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.predicate_tables import LaneFlag, Predicates, Values
from ouzel.kernels.predicates import holds, order_of_floats

# After so many steps the caller may be interrupted.
STEPS_UNPAUSED = 1_000_000
# Instead of the length of a match.
_NO_MATCH = -1
_OPEN = -2
# The first number with more digits than a decimal has.
_DECIMAL_LIMIT = np.int64(10**18)


@kernel
def search(
    state: NDArray[np.int64],
    can: Matrix[np.uint64],
    partitions: Partitions,
    tables: Tables,
    ends: NDArray[np.bool_],
    reading: Reading,
    predicates: Predicates,
    instances: Instances,
    values: Values,
    bound: NDArray[np.int32],
    path: Path,
    skipping: int,
    targets: NDArray[np.bool_],
    steps_max: int,
    matches: Matches,
) -> Any:
    """Find all matches that no later row can change, from the place in `state` on. Returns how the call ended."""
    follow = tables.follow
    follow_at = tables.follow_at
    count = tables.variable.size
    reads_no_match = reading.asks.size == 0
    ended = Ended.DONE
    while state[At.PARTITION] < partitions.start.size:
        partition = state[At.PARTITION]
        first = partitions.bounds[partition]
        held = partitions.bounds[partition + 1]
        last = partitions.known[partition]
        is_open = False
        while partitions.start[partition] < last:
            start = partitions.start[partition]
            state[At.ROW] = start
            stop = last
            may_grow = not partitions.complete[partition]
            if reading.window_end.size > 0:
                stop = min(last, reading.window_end[start])
                # The last known row may be before the last one that is there.
                may_grow = may_grow and (reading.window_end[start] > held or stop < reading.window_end[start])
            begins = count if start == partitions.origin[partition] else count + 1
            result = np.int64(_NO_MATCH)
            if reads_no_match:
                if state[At.UNPAUSED] >= STEPS_UNPAUSED:
                    state[At.UNPAUSED] = 0
                    ended = Ended.PAUSE
                    break
                result = _walk(can, follow, follow_at, path.position, start, last, begins, may_grow)
                state[At.UNPAUSED] += max(result, 1)
                is_open = result == _OPEN
            elif state[At.DEPTH] < 0:
                state[At.DEPTH] = 0
                state[At.STEPS] = 0
                state[At.ATTEMPT] += 1
                path.place[0] = follow_at[begins]
            depth = state[At.DEPTH]
            answer = state[At.ANSWER]
            state[At.ANSWER] = -1
            while depth >= 0 and result < 0 and not is_open and ended == Ended.DONE:
                row = start + depth
                entries = path.position[depth - 1] if depth > 0 else begins
                if row >= stop:
                    if may_grow and row == last:
                        # The first way is preferred: only if it is to end here, no later row matters.
                        if follow[follow_at[entries]] == ACCEPT:
                            result = depth
                        else:
                            is_open = True
                    elif depth > 0 and (ends[entries] if row == held else _may_end(follow, follow_at, entries)):
                        result = depth
                    else:
                        depth = _back(path, depth, state[At.ATTEMPT])
                    continue
                if depth + 2 > path.position.size:
                    ended = Ended.PATH_FULL
                    break
                goes_on = False
                while path.place[depth] < follow_at[entries + 1]:
                    entry = follow[path.place[depth]]
                    if entry == ACCEPT:
                        result = depth
                        break
                    if answer < 0:
                        if not is_in(can, row, entry) or (
                            path.failed.size > 0 and path.failed[entry, depth] == state[At.ATTEMPT]
                        ):
                            path.place[depth] += 1
                            continue
                        if state[At.UNPAUSED] >= STEPS_UNPAUSED:
                            state[At.UNPAUSED] = 0
                            ended = Ended.PAUSE
                            break
                        state[At.UNPAUSED] += 1
                        state[At.STEPS] += 1
                        if state[At.STEPS] > steps_max:
                            ended = Ended.STEP_LIMIT
                            break
                        variable = tables.variable[entry]
                        path.position[depth] = entry
                        _take(reading, instances, path, row, depth, variable)
                        holding = True
                        asks = reading.asks[variable]
                        if asks or reading.conjunct_at[variable] < reading.conjunct_at[variable + 1]:
                            _bind(reading, instances, path, bound, tables, state, first, held, start, depth)
                            for conjunct in range(reading.conjunct_at[variable], reading.conjunct_at[variable + 1]):
                                if not holds(predicates, instances, bound, values, conjunct):
                                    holding = False
                                    break
                            if holding and asks:
                                ended = Ended.TEST
                                break
                    else:
                        holding = answer == 1
                        answer = np.int64(-1)
                    path.place[depth] += 1
                    if holding:
                        depth += 1
                        path.place[depth] = follow_at[entry]
                        goes_on = True
                        break
                if not goes_on and result < 0 and ended == Ended.DONE:
                    depth = _back(path, depth, state[At.ATTEMPT])
            if is_open:
                state[At.DEPTH] = -1
                break
            state[At.DEPTH] = depth
            if ended != Ended.DONE:
                break
            if result < 0:
                partitions.start[partition] += 1
                state[At.DEPTH] = -1
                continue
            ended = _write(state, path, matches, result)
            if ended != Ended.DONE:
                # The answer is kept: the attempt ends at once when it is called again.
                state[At.DEPTH] = result
                break
            written = state[At.POSITIONS]
            target = _next_start(
                matches.positions, written - result, written, start, tables.variable, skipping, targets
            )
            state[At.DEPTH] = -1
            if target <= start:
                ended = Ended.NO_TARGET if target < 0 else Ended.TARGET_IS_FIRST
                break
            partitions.start[partition] = target
        if ended != Ended.DONE:
            break
        state[At.PARTITION] += 1
        state[At.NUMBER] = 1
    return ended


@helper
def _walk(can, follow, follow_at, positions, start, last, begins, may_grow):
    """The length of the match at a row, if no condition reads the match. The first position that is alive is the
    preferred one, so there is no backtracking.
    """
    row = start
    entries = begins
    while row < last:
        position = np.int64(_NO_MATCH)
        for place in range(follow_at[entries], follow_at[entries + 1]):
            entry = follow[place]
            if entry == ACCEPT:
                return row - start
            if is_in(can, row, entry):
                position = np.int64(entry)
                break
        if position < 0:
            return np.int64(_NO_MATCH)
        positions[row - start] = position
        entries = position
        row += 1
    # The first way is preferred: only if it is to end here, no later row matters.
    if may_grow and follow[follow_at[entries]] != ACCEPT:
        return np.int64(_OPEN)
    return row - start


@helper
def _next_start(positions, begin, end, start, variable, skipping, targets):
    """The row at which the search continues after a match; -1 if SKIP TO names a variable that has no row in the
    match.
    """
    if begin == end or skipping == Skipping.TO_NEXT_ROW:
        return start + 1
    if skipping == Skipping.PAST_LAST_ROW:
        return start + end - begin
    found = np.int64(-1)
    for place in range(begin, end):
        if targets[variable[positions[place]]]:
            found = start + place - begin
            if skipping == Skipping.TO_FIRST:
                break
    return found


@helper
def _may_end(follow, follow_at, entries):
    # What comes after ACCEPT is left out, so it is the last.
    last = follow_at[entries + 1] - 1
    return last >= follow_at[entries] and follow[last] == ACCEPT


@helper
def _back(path, depth, attempt):
    """Backtrack by one row, because what was taken there leads to no match."""
    depth -= 1
    if depth >= 0 and path.failed.size > 0:
        path.failed[path.position[depth], depth] = attempt
    return depth


@helper
def _write(state, path, matches, length):
    """Add a match, or return which array is full."""
    found = state[At.MATCHES]
    used = state[At.POSITIONS]
    if found == matches.start.size:
        return Ended.MATCHES_FULL
    if used + length > matches.positions.size:
        return Ended.POSITIONS_FULL
    matches.partition[found] = state[At.PARTITION]
    matches.start[found] = state[At.ROW]
    matches.length[found] = length
    matches.number[found] = state[At.NUMBER]
    for depth in range(length):
        matches.positions[used + depth] = path.position[depth]
    state[At.MATCHES] += 1
    state[At.NUMBER] += 1
    state[At.POSITIONS] += length
    return Ended.DONE


@helper
def _take(reading, instances, path, row, depth, variable):
    """Store rows and aggregates of the match including this row, at the next depth."""
    for number in range(reading.sets.shape[0]):
        members = path.counts[number, depth]
        if reading.sets[number, variable]:
            path.members[number, members] = row
            members += 1
        path.counts[number, depth + 1] = members
    int_lanes = instances.int_lanes.shape[0]
    for register in range(reading.register.size):
        kind = reading.register[register]
        if kind >= Total.LABEL or kind == Total.ROWS:
            continue
        total = path.ints[register, depth]
        mean = path.floats[register, depth]
        seen = path.values[register, depth]
        if seen >= 0 and reading.sets[reading.register_set[register], variable]:
            lane = reading.register_lane[register]
            floating = kind in (Total.SUM_FLOAT, Total.MEAN, Total.LEAST_FLOAT, Total.GREATEST_FLOAT)
            flag_row = int_lanes + lane if floating else lane
            if instances.lane_flags[flag_row, row] == LaneFlag.VALUE:
                if floating:
                    real = instances.float_lanes[lane, row]
                    if kind == Total.SUM_FLOAT or kind == Total.MEAN:
                        mean = mean + real if seen > 0 else real
                    else:
                        order = order_of_floats(real, mean)
                        if seen == 0 or (order < 0 if kind == Total.LEAST_FLOAT else order > 0):
                            mean = real
                    seen += 1
                else:
                    value = instances.int_lanes[lane, row]
                    if kind == Total.SUM_INT or kind == Total.SUM_DECIMAL:
                        if (value > 0 and total > INT64_MAX - value) or (value < 0 and total < INT64_MIN - value):
                            seen = -2
                        else:
                            total += value
                    elif kind != Total.VALUES and (
                        seen == 0 or (value < total if kind == Total.LEAST_INT else value > total)
                    ):
                        total = value
                    seen += 1
        path.ints[register, depth + 1] = total
        path.floats[register, depth + 1] = mean
        path.values[register, depth + 1] = seen


@helper
def _row(reading, path, number, depth, first, last):
    """The row that a condition reads if the match has `depth` rows before the tested one; -1 if there is none."""
    members = path.counts[reading.row_set[number], depth + 1]
    offset = reading.row_offset[number]
    if offset >= members:
        return np.int64(-1)
    place = offset if reading.row_first[number] else members - 1 - offset
    row = path.members[reading.row_set[number], place] + reading.row_shift[number]
    return row if first <= row < last else np.int64(-1)


@helper
def _bind(reading, instances, path, bound, tables, state, first, last, start, depth):
    """Set the slots of all rows and registers that conditions read. The slot after those of the rows is null; the
    registers follow it.
    """
    rows = reading.row_set.size
    nothing = instances.int_lanes.shape[1] - 1 - reading.register.size
    for number in range(rows):
        row = _row(reading, path, number, depth, first, last)
        bound[number] = row if row >= 0 else nothing
    int_lanes = instances.int_lanes.shape[0]
    for register in range(reading.register.size):
        slot = nothing + 1 + register
        bound[rows + register] = slot
        kind = reading.register[register]
        integer = np.int64(0)
        real = 0.0
        null = False
        if kind == Total.NUMBER:
            integer = state[At.NUMBER]
        elif kind == Total.ROWS:
            integer = path.counts[reading.register_set[register], depth + 1]
        elif kind == Total.LABEL:
            row = _row(reading, path, reading.register_set[register], depth, first, last)
            label = reading.label_ints.shape[1] - 1
            if start <= row <= start + depth:
                label = tables.variable[path.position[row - start]]
            integer = reading.label_ints[register, label]
            real = reading.label_floats[register, label]
            null = reading.label_nulls[register, label] != 0
        else:
            seen = path.values[register, depth + 1]
            integer = path.ints[register, depth + 1]
            real = path.floats[register, depth + 1]
            null = seen <= 0
            if kind == Total.SUM_DECIMAL and (integer >= _DECIMAL_LIMIT or integer <= -_DECIMAL_LIMIT):
                null = True
            if kind == Total.VALUES:
                integer = seen
                null = False
            elif kind == Total.MEAN and seen > 0:
                real = real / seen
        instances.int_lanes[0, slot] = integer
        instances.float_lanes[0, slot] = real
        instances.lane_flags[0, slot] = LaneFlag.NULL if null else LaneFlag.VALUE
        instances.lane_flags[int_lanes, slot] = LaneFlag.NULL if null else LaneFlag.VALUE
