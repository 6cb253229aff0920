"""Matches of the arrival kernel, found backwards from a last component (AYAC 4.2) with early pruning.

An edge is followed only where its worth so far, times the bound of what lies before, reaches the threshold.
"""

from __future__ import annotations

from ouzel.kernels.arrival_bounds import value_at
from ouzel.kernels.arrival_fuller import is_part_of_fuller
from ouzel.kernels.arrival_queues import largest_kept, last_before, next_kept
from ouzel.kernels.arrival_tables import ENTRY, SLACK, ByEdge, ByNegative, Counter, Link, Queue
from ouzel.kernels.arrival_tests import is_forbidden, tests_pass
from ouzel.kernels.jit import helper
from ouzel.kernels.stack_tables import Status

_UNSET = -2


@helper
def search(tables, state, instances, slot, base, oldest, window_start, output):
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
    if state.counters[Counter.MOMENT] == now:
        room -= state.counters[Counter.AT_MOMENT]
    state.bound[tables.component_at[last_position]] = slot
    state.missing[last_position] = 0
    if not tests_pass(tables, state, instances, tables.first_test[last_position], tables.first_test[last_position + 1]):
        return Status.DONE
    seen = 0
    dropped = 0
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
                state.candidate[level] = next_kept(links, state.candidate[level])
            continue
        node = state.node[level]
        source = by_edge[edge, ByEdge.SOURCE]
        if state.candidate[level] == _UNSET:
            for between in range(source + 1, place):
                state.missing[between] = 1
            if source == ENTRY:
                gap = start[node] - (window_start - 1)
                candidate = -1
            else:
                own = base + tables.component_at[source]
                if tables.bounds:
                    largest = largest_kept(links, queues, own, oldest)
                    if (
                        largest < 0
                        or state.worth[level] * tables.edge_best[edge] * state.upper[largest] * SLACK < threshold
                    ):
                        state.edge[level] += 1
                        continue
                candidate = last_before(end, links, queues[own, Queue.NEWEST], oldest, start[node])
                if candidate >= 0:
                    candidate = links[candidate, Link.KEPT]
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
        if by_edge[edge, ByEdge.WORTH] >= 0:
            worth *= value_at(curves, by_edge[edge, ByEdge.WORTH], gap)
        other = state.other[level] * tables.edge_other[edge]
        if by_edge[edge, ByEdge.OTHER] >= 0:
            other *= value_at(curves, by_edge[edge, ByEdge.OTHER], gap)
        ahead = state.upper[candidate] * SLACK if source != ENTRY else 1.0
        passes = worth > 0.0 and worth * ahead >= threshold
        if passes and tables.worth_is_probability:
            passes = other > 0.0
        if passes and source != ENTRY:
            passes = start[candidate] >= window_start
            state.bound[tables.component_at[source]] = candidate
            state.missing[source] = 0
        if passes:
            passes = tests_pass(tables, state, instances, tables.first_test[max(source, 0)], tables.first_test[place])
        if passes:
            after = end[candidate] if source != ENTRY else window_start - 1
            for entry in range(by_edge[edge, ByEdge.FIRST_NEGATIVE], by_edge[edge + 1, ByEdge.FIRST_NEGATIVE]):
                negative = tables.edge_negatives[entry]
                if tables.by_negative[negative, ByNegative.READY] >= source and is_forbidden(
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
                state.candidate[level] = next_kept(links, candidate)
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
            fuller = is_part_of_fuller(tables, state, instances, base, oldest, window_start)
            for position in range(tables.length):
                state.missing[position] = state.chosen[position] < 0
                state.bound[tables.component_at[position]] = max(state.chosen[position], 0)
            if fuller and tables.worth_is_probability:
                continue
        if written - begun >= room:
            if not tables.drop:
                return Status.MATCH_LIMIT
            dropped += 1
            continue
        if written == output.worth.size:
            return Status.OUTPUT_FULL
        for position in range(tables.length):
            output.slots[position, written] = state.chosen[position]
        output.worth[written] = worth
        output.other[written] = other
        output.fuller[written] = fuller
        output.match_end[written] = now
        written += 1
    output.written[0] = written
    found = written - begun
    state.counters[Counter.EDGES] += seen
    state.counters[Counter.MATCHES] += found
    state.counters[Counter.DROPPED] += dropped
    if found > 0:
        state.counters[Counter.AT_MOMENT] = found + (
            state.counters[Counter.AT_MOMENT] if state.counters[Counter.MOMENT] == now else 0
        )
        state.counters[Counter.MOMENT] = now
    return Status.DONE


@helper
def _late_forbidden(tables, state, instances, level, base, oldest, window_start):
    """Negatives whose tests look at components before their interval, once all of the path is known."""
    for depth in range(level + 1):
        # Below the last level an edge is still being tried; at the last it has been counted on already.
        edge = state.edge[depth] - (depth == level)
        source = tables.by_edge[edge, ByEdge.SOURCE]
        after = instances.end[state.node[depth + 1]] if depth < level else window_start - 1
        for entry in range(
            tables.by_edge[edge, ByEdge.FIRST_NEGATIVE], tables.by_edge[edge + 1, ByEdge.FIRST_NEGATIVE]
        ):
            negative = tables.edge_negatives[entry]
            if tables.by_negative[negative, ByNegative.READY] < source and is_forbidden(
                tables, state, instances, negative, base, oldest, after, instances.start[state.node[depth]]
            ):
                return True
    return False
