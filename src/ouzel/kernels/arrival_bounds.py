"""What edges are worth: curves looked up, and upper bounds of all paths that reach an arrival (AYAC 5.1)."""

from __future__ import annotations

from ouzel.kernels.arrival_queues import largest_kept
from ouzel.kernels.arrival_tables import ENTRY, ByEdge, Link, Queue
from ouzel.kernels.jit import helper

# `Trend` of the loss room.
_RISING, _FALLING = 1, 2


@helper(inline=True)
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


@helper(inline=True)
def value_at(curves, curve, ticks):
    piece = _piece(curves, curve, ticks)
    coefficients = curves.coefficients
    if curves.half[piece] == 0.0:
        return coefficients[piece, ticks - curves.low[piece]]
    x = (ticks - curves.middle[piece]) / curves.half[piece]
    value = coefficients[piece, 7]
    for power in range(6, -1, -1):
        value = value * x + coefficients[piece, power]
    return min(max(value, 0.0), 1.0)


@helper(inline=True)
def upper_bound(tables, state, instances, base, place, slot, oldest):
    """v of AYAC 5.1: for each edge the largest bound in the queue before, times the best worth of the edge.

    A rising worth is best from the oldest arrival, a falling one from the newest, any other by its ceiling.
    """
    links = state.links
    queues = state.queues
    curves = tables.curves
    begin = instances.start[slot]
    best = 0.0
    for edge in range(tables.first_edge[place], tables.first_edge[place + 1]):
        source = tables.by_edge[edge, ByEdge.SOURCE]
        value = tables.edge_best[edge]
        if source != ENTRY:
            own = base + tables.component_at[source]
            largest = largest_kept(links, queues, own, oldest)
            if largest < 0 or state.upper[largest] * value <= best:
                continue
            curve = tables.by_edge[edge, ByEdge.WORTH]
            if curve >= 0:
                node = queues[own, Queue.OLDEST]
                while node < oldest:
                    node = links[node, Link.ABOVE]
                queues[own, Queue.OLDEST] = node
                longest = begin - instances.end[node]
                if longest < 1:
                    continue
                if curves.trend[curve] == _RISING:
                    value = value_at(curves, curve, longest)
                elif curves.trend[curve] == _FALLING:
                    shortest = begin - instances.end[queues[own, Queue.NEWEST]]
                    value = value_at(curves, curve, shortest) if shortest >= 1 else value
                else:
                    value = curves.ceiling[_piece(curves, curve, longest)]
            value *= state.upper[largest]
        best = max(best, value)
    return best
