"""The arrival kernel (AYAC sections 4 and 5): probabilistic arrival queues, upper bounds, matches found backwards.

Every instance enters the queue of its key and component. For positive ones an upper bound of the worth of all paths
that reach it is computed from the queues before it; those that cannot reach the threshold are passed over later. A
last component that can reach it starts a search backwards, which follows only edges whose worth so far, times the
bound of what lies before, reaches the threshold.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ouzel.kernels.arrival_tables import (
    ALWAYS,
    ENTRY,
    SLACK,
    ArrivalOutput,
    ArrivalState,
    ArrivalTables,
    ByEdge,
    ByNegative,
    ByTest,
    Counter,
    Link,
    Queue,
    grown,
)
from ouzel.kernels.predicates import holds
from ouzel.kernels.stack_tables import EVERY_KEY, Instances, Status

_SOURCE, _WORTH, _OTHER = int(ByEdge.SOURCE), int(ByEdge.WORTH), int(ByEdge.OTHER)
_FIRST_NEGATIVE = int(ByEdge.FIRST_NEGATIVE)
_EVERYWHERE, _READY = int(ByNegative.EVERYWHERE), int(ByNegative.READY)
_FIRST_TEST, _AFTER_TEST = int(ByNegative.FIRST_TEST), int(ByNegative.AFTER_TEST)
_FIRST_NAMED, _FIRST_VARIANT = int(ByTest.FIRST_NAMED), int(ByTest.FIRST_VARIANT)
_BELOW, _ABOVE, _JUMP, _SPAN = int(Link.BELOW), int(Link.ABOVE), int(Link.JUMP), int(Link.SPAN)
_KEPT, _OLDER, _NEWER = int(Link.KEPT), int(Link.OLDER), int(Link.NEWER)
_NEWEST, _OLDEST = int(Queue.NEWEST), int(Queue.OLDEST)
_MAXIMUM, _LAST_MAXIMUM = int(Queue.MAXIMUM), int(Queue.LAST_MAXIMUM)
_MOMENT, _AT_MOMENT, _OLDEST_ALIVE = int(Counter.MOMENT), int(Counter.AT_MOMENT), int(Counter.OLDEST)
_INSTANCES, _KEPT_COUNT, _SEARCHES = int(Counter.INSTANCES), int(Counter.KEPT), int(Counter.SEARCHES)
_EDGES, _MATCHES = int(Counter.EDGES), int(Counter.MATCHES)
_DONE, _OUTPUT_FULL, _MATCH_LIMIT = int(Status.DONE), int(Status.OUTPUT_FULL), int(Status.MATCH_LIMIT)
_RISING, _FALLING = 1, 2
_UNSET = -2


def scan(
    tables: ArrivalTables,
    state: ArrivalState,
    instances: Instances,
    first: int,
    last: int,
    output: ArrivalOutput,
) -> tuple[Status, int, ArrivalOutput]:
    """Take in the instances from `first` up to `last`; gives how it ended, where, and the output with its matches."""
    position = first
    while True:
        status, position = _scan(tables, state, instances, position, last, output)
        if status != _OUTPUT_FULL:
            return Status(status), position, output
        output = grown(tables, output)


@njit(cache=True, nogil=True, _nrt=False)
def _scan(tables, state, instances, first, last, output):
    end = instances.end
    links = state.links
    counters = state.counters
    last_position = tables.length - 1
    oldest = counters[_OLDEST_ALIVE]
    status = _DONE
    slot = first
    while slot < last:
        component = instances.component[slot]
        place = tables.position[component]
        base = np.int64(instances.key[slot]) * tables.components
        window_start = _window_start(end[slot], tables.window)
        while end[oldest] < window_start:
            oldest += 1
        if place < 0:
            _push(links, state.queues, base + component, slot)
            counters[_INSTANCES] += 1
            slot += 1
            continue
        upper = 1.0
        if tables.bounds:
            upper = _upper_bound(tables, state, instances, base, place, slot, oldest)
        reaches = upper > 0.0 and upper * SLACK >= tables.threshold
        if place < last_position:
            own = base + component
            below = _push(links, state.queues, own, slot)
            state.upper[slot] = upper
            if reaches:
                links[slot, _KEPT] = slot
                _keep(links, state.queues, state.upper, own, slot)
                counters[_KEPT_COUNT] += 1
            else:
                links[slot, _KEPT] = links[below, _KEPT] if below >= 0 else -1
        elif reaches:
            counters[_OLDEST_ALIVE] = oldest
            counters[_SEARCHES] += 1
            status = _search(tables, state, instances, slot, base, oldest, window_start, output)
            if status != _DONE:
                break
        counters[_INSTANCES] += 1
        slot += 1
    counters[_OLDEST_ALIVE] = oldest
    return status, slot


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _window_start(now, window):
    """The earliest start that is still within the window of a match that ends now."""
    lowest = np.int64(-(2**63)) + 1
    return now - window + 1 if now >= lowest + window else lowest


# ── Queues ─────────────────────────────────────────────────────────────────────────────────────────


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _push(links, queues, own, slot):
    """Put an instance at the end of its queue; gives the one before it.

    The jumps are those of a skew-binary list: two neighbouring spans of equal length become one.
    """
    below = queues[own, _NEWEST]
    links[slot, _BELOW] = below
    links[slot, _ABOVE] = -1
    links[slot, _OLDER] = -1
    links[slot, _NEWER] = -1
    links[slot, _JUMP] = below
    links[slot, _SPAN] = 1
    if below >= 0:
        links[below, _ABOVE] = slot
        middle = links[below, _JUMP]
        if middle >= 0 and links[middle, _JUMP] >= 0 and links[below, _SPAN] == links[middle, _SPAN]:
            links[slot, _JUMP] = links[middle, _JUMP]
            links[slot, _SPAN] = 2 * links[below, _SPAN] + 1
    else:
        queues[own, _OLDEST] = slot
    queues[own, _NEWEST] = slot
    return below


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _keep(links, queues, upper, own, slot):
    """Put an arrival into the queue of falling maxima: those before it that are no larger will never matter again."""
    node = queues[own, _LAST_MAXIMUM]
    while node >= 0 and upper[node] <= upper[slot]:
        node = links[node, _OLDER]
    links[slot, _OLDER] = node
    if node >= 0:
        links[node, _NEWER] = slot
    else:
        queues[own, _MAXIMUM] = slot
    queues[own, _LAST_MAXIMUM] = slot


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _largest(links, queues, own, oldest):
    """The live kept arrival of a queue with the largest bound, in amortised constant time (AYAC 5.1); -1 if none."""
    node = queues[own, _MAXIMUM]
    if node >= oldest or node < 0:
        return node
    while 0 <= node < oldest:
        node = links[node, _NEWER]
    queues[own, _MAXIMUM] = node
    if node >= 0:
        links[node, _OLDER] = -1
    else:
        queues[own, _LAST_MAXIMUM] = -1
    return node


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _last_before(end, links, node, oldest, moment):
    """The newest instance of a queue, from `node` down, that ends before a moment; below `oldest` if there is none."""
    while node >= oldest and end[node] >= moment:
        jump = links[node, _JUMP]
        node = jump if jump >= oldest and end[jump] >= moment else links[node, _BELOW]
    return node


# ── Worths ─────────────────────────────────────────────────────────────────────────────────────────


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _piece(curves, curve, ticks):
    low = curves.first_piece[curve]
    high = curves.first_piece[curve + 1]
    while high - low > 1:
        middle = (low + high) >> 1
        if curves.low[middle] <= ticks:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _value(curves, curve, ticks):
    piece = _piece(curves, curve, ticks)
    coefficients = curves.coefficients
    if curves.half[piece] == 0.0:
        return coefficients[piece, ticks - curves.low[piece]]
    x = (ticks - curves.middle[piece]) / curves.half[piece]
    value = coefficients[piece, 7]
    for power in range(6, -1, -1):
        value = value * x + coefficients[piece, power]
    return min(max(value, 0.0), 1.0)


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _upper_bound(tables, state, instances, base, place, slot, oldest):
    """v of AYAC 5.1: for each edge the largest bound in the queue before, times the best worth of the edge.

    A rising worth is best from the oldest arrival, a falling one from the newest, any other by its ceiling.
    """
    links = state.links
    queues = state.queues
    curves = tables.curves
    begin = instances.start[slot]
    best = 0.0
    for edge in range(tables.first_edge[place], tables.first_edge[place + 1]):
        source = tables.by_edge[edge, _SOURCE]
        value = tables.edge_best[edge]
        if source != ENTRY:
            own = base + tables.component_at[source]
            largest = _largest(links, queues, own, oldest)
            if largest < 0 or state.upper[largest] * value <= best:
                continue
            curve = tables.by_edge[edge, _WORTH]
            if curve >= 0:
                node = queues[own, _OLDEST]
                while node < oldest:
                    node = links[node, _ABOVE]
                queues[own, _OLDEST] = node
                longest = begin - instances.end[node]
                if longest < 1:
                    continue
                if curves.trend[curve] == _RISING:
                    value = _value(curves, curve, longest)
                elif curves.trend[curve] == _FALLING:
                    shortest = begin - instances.end[queues[own, _NEWEST]]
                    value = _value(curves, curve, shortest) if shortest >= 1 else value
                else:
                    value = curves.ceiling[_piece(curves, curve, longest)]
            value *= state.upper[largest]
        best = max(best, value)
    return best


# ── Tests ──────────────────────────────────────────────────────────────────────────────────────────


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _pass(tables, state, instances, first, last):
    """Whether tests hold, each in the form for what is missing."""
    for test in range(first, last):
        missing = 0
        first_named = tables.by_test[test, _FIRST_NAMED]
        for place in range(first_named, tables.by_test[test + 1, _FIRST_NAMED]):
            missing |= np.int64(state.missing[tables.named[place]]) << (place - first_named)
        conjunct = tables.variants[tables.by_test[test, _FIRST_VARIANT] + missing]
        if conjunct != ALWAYS and not holds(tables.predicates, instances, state.bound, state.values, conjunct):
            return False
    return True


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _forbids_in(tables, state, instances, component, own, oldest, after, before):
    end = instances.end
    first = tables.by_negative[component, _FIRST_TEST]
    last = tables.by_negative[component, _AFTER_TEST]
    node = _last_before(end, state.links, state.queues[own, _NEWEST], oldest, before)
    while node >= oldest and end[node] > after:
        if instances.start[node] > after:
            state.bound[component] = node
            if _pass(tables, state, instances, first, last):
                return True
        node = state.links[node, _BELOW]
    return False


@njit(cache=True, nogil=True, _nrt=False)
def _forbidden(tables, state, instances, component, base, oldest, after, before):
    """Whether an instance of a negative component lies wholly between two moments and passes its tests."""
    if _forbids_in(tables, state, instances, component, base + component, oldest, after, before):
        return True
    if base != EVERY_KEY and tables.by_negative[component, _EVERYWHERE]:
        everywhere = EVERY_KEY * tables.components + component
        return _forbids_in(tables, state, instances, component, everywhere, oldest, after, before)
    return False


# ── Search ─────────────────────────────────────────────────────────────────────────────────────────


@njit(cache=True, nogil=True, _nrt=False)
def _search(tables, state, instances, slot, base, oldest, window_start, output):
    """All paths that end with an instance of the last component (AYAC 4.2), or none where there is no room for all."""
    start = instances.start
    end = instances.end
    links = state.links
    queues = state.queues
    by_edge = tables.by_edge
    curves = tables.curves
    threshold = tables.threshold
    last_position = tables.length - 1
    written = output.written[0]
    begun = written
    now = end[slot]
    room = tables.max_matches_per_moment
    if state.counters[_MOMENT] == now:
        room -= state.counters[_AT_MOMENT]
    state.bound[tables.component_at[last_position]] = slot
    state.missing[last_position] = 0
    if not _pass(tables, state, instances, tables.first_test[last_position], tables.first_test[last_position + 1]):
        return _DONE
    seen = 0
    level = 0
    state.node[0] = slot
    state.place[0] = last_position
    state.edge[0] = tables.first_edge[last_position]
    state.candidate[0] = _UNSET
    state.worth[0] = 1.0
    state.other[0] = 1.0
    while level >= 0:
        place = state.place[level]
        edge = state.edge[level]
        if edge == tables.first_edge[place + 1]:
            level -= 1
            if level >= 0:
                state.candidate[level] = _next_kept(links, state.candidate[level])
            continue
        node = state.node[level]
        source = by_edge[edge, _SOURCE]
        if state.candidate[level] == _UNSET:
            for between in range(source + 1, place):
                state.missing[between] = 1
            if source == ENTRY:
                gap = start[node] - (window_start - 1)
                candidate = -1
            else:
                own = base + tables.component_at[source]
                if tables.bounds:
                    largest = _largest(links, queues, own, oldest)
                    if (
                        largest < 0
                        or state.worth[level] * tables.edge_best[edge] * state.upper[largest] * SLACK < threshold
                    ):
                        state.edge[level] += 1
                        continue
                candidate = _last_before(end, links, queues[own, _NEWEST], oldest, start[node])
                if candidate >= 0:
                    candidate = links[candidate, _KEPT]
        else:
            candidate = state.candidate[level]
        if source != ENTRY:
            if candidate < oldest:
                state.edge[level] += 1
                state.candidate[level] = _UNSET
                continue
            state.candidate[level] = candidate
            gap = start[node] - end[candidate]
        seen += 1
        worth = state.worth[level] * tables.edge_worth[edge]
        if by_edge[edge, _WORTH] >= 0:
            worth *= _value(curves, by_edge[edge, _WORTH], gap)
        other = state.other[level] * tables.edge_other[edge]
        if by_edge[edge, _OTHER] >= 0:
            other *= _value(curves, by_edge[edge, _OTHER], gap)
        ahead = state.upper[candidate] * SLACK if source != ENTRY else 1.0
        passes = worth > 0.0 and worth * ahead >= threshold
        if passes and tables.worth_is_probability:
            passes = other > 0.0
        if passes and source != ENTRY:
            passes = start[candidate] >= window_start
            state.bound[tables.component_at[source]] = candidate
            state.missing[source] = 0
        if passes:
            passes = _pass(tables, state, instances, tables.first_test[max(source, 0)], tables.first_test[place])
        if passes:
            after = end[candidate] if source != ENTRY else window_start - 1
            for entry in range(by_edge[edge, _FIRST_NEGATIVE], by_edge[edge + 1, _FIRST_NEGATIVE]):
                negative = tables.edge_negatives[entry]
                if tables.by_negative[negative, _READY] >= source and _forbidden(
                    tables, state, instances, negative, base, oldest, after, start[node]
                ):
                    passes = False
                    break
        if source != ENTRY:
            if passes:
                level += 1
                state.node[level] = candidate
                state.place[level] = source
                state.edge[level] = tables.first_edge[source]
                state.candidate[level] = _UNSET
                state.worth[level] = worth
                state.other[level] = other
            else:
                state.candidate[level] = _next_kept(links, candidate)
            continue
        state.edge[level] += 1
        if not passes or _late_forbidden(tables, state, instances, level, base, oldest, window_start):
            continue
        for position in range(tables.length):
            state.chosen[position] = -1
        for depth in range(level + 1):
            state.chosen[state.place[depth]] = state.node[depth]
        fuller = False
        if tables.find_fuller and level < last_position:
            fuller = _is_part_of_fuller(tables, state, instances, base, oldest, window_start)
            for position in range(tables.length):
                state.missing[position] = state.chosen[position] < 0
                state.bound[tables.component_at[position]] = max(state.chosen[position], 0)
            if fuller and tables.worth_is_probability:
                continue
        if written - begun >= room:
            return _MATCH_LIMIT
        if written == output.worth.size:
            return _OUTPUT_FULL
        for position in range(tables.length):
            output.slots[position, written] = state.chosen[position]
        output.worth[written] = worth
        output.other[written] = other
        output.fuller[written] = fuller
        output.match_end[written] = now
        written += 1
    output.written[0] = written
    found = written - begun
    state.counters[_EDGES] += seen
    state.counters[_MATCHES] += found
    if found > 0:
        state.counters[_AT_MOMENT] = found + (state.counters[_AT_MOMENT] if state.counters[_MOMENT] == now else 0)
        state.counters[_MOMENT] = now
    return _DONE


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _next_kept(links, node):
    below = links[node, _BELOW]
    return links[below, _KEPT] if below >= 0 else -1


@njit(cache=True, nogil=True, _nrt=False)
def _late_forbidden(tables, state, instances, level, base, oldest, window_start):
    """Negatives whose tests look at components before their interval, once all of the path is known."""
    for depth in range(level + 1):
        # Below the last level an edge is still being tried; at the last it has been counted on already.
        edge = state.edge[depth] - (depth == level)
        source = tables.by_edge[edge, _SOURCE]
        after = instances.end[state.node[depth + 1]] if depth < level else window_start - 1
        for entry in range(tables.by_edge[edge, _FIRST_NEGATIVE], tables.by_edge[edge + 1, _FIRST_NEGATIVE]):
            negative = tables.edge_negatives[entry]
            if tables.by_negative[negative, _READY] < source and _forbidden(
                tables, state, instances, negative, base, oldest, after, instances.start[state.node[depth]]
            ):
                return True
    return False


@njit(cache=True, nogil=True, _nrt=False)
def _is_part_of_fuller(tables, state, instances, base, oldest, window_start):
    """Whether a path exists that binds what `chosen` binds and more, whatever its worth.

    Positions are decided from the last down: bound ones stay, missing ones are tried with every event that fits
    between their neighbours, and then left missing.
    """
    start = instances.start
    end = instances.end
    links = state.links
    chosen = state.chosen
    tried = state.tried
    last_position = tables.length - 1
    tried[last_position] = chosen[last_position]
    place = last_position - 1
    entering = True
    while True:
        if place < 0:
            if _adds_and_stands(tables, state, instances, base, oldest, window_start):
                return True
            place = 0
            entering = False
        above = place + 1
        while tried[above] < 0:
            above += 1
        moment = start[tried[above]]
        if chosen[place] >= 0:
            # It stays as it is; what was inserted above it cannot have gone below it.
            candidate = chosen[place] if entering else _UNSET
        elif entering:
            own = base + tables.component_at[place]
            candidate = _last_before(end, links, state.queues[own, _NEWEST], oldest, moment)
        elif tried[place] >= 0:
            candidate = links[tried[place], _BELOW]
        else:
            candidate = _UNSET
        if chosen[place] < 0 and candidate != _UNSET:
            below = place - 1
            while below >= 0 and chosen[below] < 0:
                below -= 1
            after = end[chosen[below]] if below >= 0 else window_start - 1
            while candidate >= oldest and end[candidate] > after and start[candidate] <= after:
                candidate = links[candidate, _BELOW]
            if candidate < oldest or end[candidate] <= after:
                candidate = -1
        if candidate == _UNSET:
            place += 1
            if place >= last_position:
                return False
            entering = False
            continue
        tried[place] = candidate
        state.missing[place] = candidate < 0
        state.bound[tables.component_at[place]] = max(candidate, 0)
        if _pass(tables, state, instances, tables.first_test[place], tables.first_test[place + 1]):
            place -= 1
            entering = True
        else:
            entering = False


@njit(cache=True, nogil=True, _nrt=False)
def _adds_and_stands(tables, state, instances, base, oldest, window_start):
    """Whether what was tried binds more than the path, and no negative forbids it."""
    more = False
    for place in range(tables.length):
        more |= state.tried[place] >= 0 and state.chosen[place] < 0
    if not more:
        return False
    for entry in range(tables.negatives_between.shape[0]):
        place = tables.negatives_between[entry, 1]
        below = place - 1
        while below >= 0 and state.tried[below] < 0:
            below -= 1
        while state.tried[place] < 0:
            place += 1
        after = instances.end[state.tried[below]] if below >= 0 else window_start - 1
        before = instances.start[state.tried[place]]
        negative = tables.negatives_between[entry, 0]
        if _forbidden(tables, state, instances, negative, base, oldest, after, before):
            return False
    return True
