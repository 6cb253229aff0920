"""The arrival kernel (AYAC sections 4 and 5): probabilistic arrival queues, upper bounds, matches found backwards.

Every instance enters the queue of its key and component. For positive ones an upper bound of the worth of all paths
that reach it is computed from the queues before it; those that cannot reach the threshold are passed over later. A
last component that can reach it starts a search backwards. Queues, bounds, tests and the search have modules of
their own, `arrival_*.py`.
"""

from __future__ import annotations

import numpy as np

from ouzel.kernels.arrival_bounds import upper_bound
from ouzel.kernels.arrival_queues import keep, push
from ouzel.kernels.arrival_search import search
from ouzel.kernels.arrival_tables import SLACK, ArrivalOutput, ArrivalState, ArrivalTables, Counter, Link, grown
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.pauses import Pieces
from ouzel.kernels.stack_tables import NO_LIMIT, Instances, Status


def scan(
    tables: ArrivalTables,
    state: ArrivalState,
    instances: Instances,
    first: int,
    last: int,
    output: ArrivalOutput,
    *,
    matches_max: int = NO_LIMIT,
) -> tuple[Status, int, ArrivalOutput]:
    """Take in the instances from `first` up to `last`; gives how it ended, where, and the output with its matches.

    OUTPUT_FULL: there are more than `matches_max` of them.
    """
    position = first
    pieces = Pieces(last)
    while True:
        status, position = _scan(tables, state, instances, position, pieces.end(position), output)
        if status == Status.OUTPUT_FULL and len(output.worth) <= matches_max:
            output = grown(tables, output)
        elif status != Status.DONE or position == last:
            return Status(status), position, output


@kernel
def _scan(tables, state, instances, first, last, output):
    end = instances.end
    links = state.links
    counters = state.counters
    last_position = tables.length - 1
    oldest = counters[Counter.OLDEST]
    status = Status.DONE
    slot = first
    while slot < last:
        component = instances.component[slot]
        place = tables.position[component]
        base = np.int64(instances.key[slot]) * tables.components
        window_start = _window_start(end[slot], tables.window)
        while end[oldest] < window_start:
            oldest += 1
        if place < 0:
            push(links, state.queues, base + component, slot)
            counters[Counter.INSTANCES] += 1
            slot += 1
            continue
        upper = 1.0
        if tables.bounds:
            upper = upper_bound(tables, state, instances, base, place, slot, oldest)
        reaches = upper > 0.0 and upper * SLACK >= tables.threshold
        if place < last_position:
            own = base + component
            below = push(links, state.queues, own, slot)
            state.upper[slot] = upper
            if reaches:
                links[slot, Link.KEPT] = slot
                keep(links, state.queues, state.upper, own, slot)
                counters[Counter.KEPT] += 1
            else:
                links[slot, Link.KEPT] = links[below, Link.KEPT] if below >= 0 else -1
        elif reaches:
            counters[Counter.OLDEST] = oldest
            counters[Counter.SEARCHES] += 1
            status = search(tables, state, instances, slot, base, oldest, window_start, output)
            if status != Status.DONE:
                break
        counters[Counter.INSTANCES] += 1
        slot += 1
    counters[Counter.OLDEST] = oldest
    return status, slot


@helper(inline=True)
def _window_start(now, window):
    """The earliest start that is still within the window of a match that ends now."""
    lowest = np.int64(-(2**63)) + 1
    return now - window + 1 if now >= lowest + window else lowest
