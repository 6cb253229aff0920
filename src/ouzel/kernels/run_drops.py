"""Dropping the newest runs and matches where a limit is passed, for users who prefer that to an error.

The limit is looked at after each event, so what is too much was made by the event read last; where a limit was lowered
there may be more, and then the most recently moved runs of all go.
"""

from __future__ import annotations

import numpy as np

from ouzel.kernels.jit import kernel
from ouzel.kernels.run_state import Counter, RunOutput, RunState
from ouzel.kernels.run_tables import RunTables


def drop_newest_runs(tables: RunTables, state: RunState, key: int, slot: int) -> int:
    """Keep as many runs and waiting matches as there may be; how many were dropped. `slot` is the event that was read
    last, `key` its partition.

    >>> from ouzel.kernels.run_state import new_run_output, new_run_state
    >>> from ouzel.kernels.run_tables import RunPlace, build_run_tables, new_events
    >>> from ouzel.kernels.runs import scan
    >>> tables = build_run_tables([RunPlace(), RunPlace()], max_runs=1)
    >>> events = new_events(tables, 4)
    >>> events.end[1:] = 1, 2, 3
    >>> events.roles[1:] = 0b01, 0b01, 0b100
    >>> stopped = scan(tables, new_run_state(tables, 1, 4), events, 1, 4, new_run_output())
    >>> stopped.status.name, drop_newest_runs(tables, stopped.state, key=0, slot=stopped.position - 1)
    ('RUN_LIMIT', 1)
    >>> scan(tables, stopped.state, events, stopped.position, 4, stopped.output).output.written.tolist()
    [1]
    """
    excess = int(state.counters[Counter.RUNS] + state.counters[Counter.WAITING]) - tables.max_runs
    left = _drop_runs_of(state, key, slot, excess)
    if left > 0:
        left = _drop_waiting(state, left)
    if left > 0:
        left = _drop_moved_last(state, left)
    return excess - int(left)


def drop_newest_matches(tables: RunTables, state: RunState, output: RunOutput) -> int:
    """Keep as many matches of the moment at hand as there may be; how many were dropped."""
    excess = int(state.counters[Counter.AT_MOMENT]) - tables.max_matches_per_moment
    state.counters[Counter.AT_MOMENT] = tables.max_matches_per_moment
    if tables.at_end:
        return excess - _drop_waiting(state, excess)
    # Those of a moment stand behind all others.
    dropped = min(excess, int(output.written[0] - state.counters[Counter.SETTLED]))
    output.written[0] -= dropped
    return dropped


@kernel
def _drop_runs_of(state, key, slot, excess):
    """Drop runs of a key that an event has moved or begun; how many more are to go."""
    runs = state.runs
    previous = np.int32(-1)
    run = state.key_head[key]
    while run >= 0 and excess > 0:
        following = runs.next[run]
        if state.arena.event[runs.node[run]] == slot:
            if previous < 0:
                state.key_head[key] = following
            else:
                runs.next[previous] = following
            runs.next[run] = state.counters[Counter.FREE]
            state.counters[Counter.FREE] = run
            state.counters[Counter.RUNS] -= 1
            state.key_runs[key] -= 1
            excess -= 1
        else:
            previous = run
        run = following
    return excess


def _drop_waiting(state: RunState, excess: int) -> int:
    """Drop the waiting matches whose windows end last; how many more are to go."""
    count = int(state.counters[Counter.WAITING])
    dropped = min(count, excess)
    waiting = state.waiting
    # In order of their deadlines they are a heap again.
    order = np.argsort(waiting.deadline[:count], kind="stable")
    for array in waiting:
        array[:count] = array[:count][order]
    state.counters[Counter.WAITING] = count - dropped
    return excess - dropped


def _drop_moved_last(state: RunState, excess: int) -> int:
    """Drop the runs that were moved last, of any key; how many more are to go."""
    moved = []
    for key in np.flatnonzero(state.key_head >= 0).tolist():
        run = int(state.key_head[key])
        while run >= 0:
            moved.append((int(state.arena.event[state.runs.node[run]]), key))
            run = int(state.runs.next[run])
    # A later slot is a later event.
    for slot, key in sorted(set(moved), reverse=True):
        if excess <= 0:
            break
        excess = int(_drop_runs_of(state, key, slot, excess))
    return excess
