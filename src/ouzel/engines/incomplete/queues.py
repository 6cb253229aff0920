"""The queues of the arrival kernel (AYAC 4 and 5.1), the scores of edges, and upper bounds of scores.

Every key and component has a queue of its instances ordered by end, stored as a skew-binary list. The kept instances,
whose bound reaches the threshold, are also in a monotonic queue with decreasing bounds. `upper_bound` computes the
bound of a new instance from the queues before it.
"""

from __future__ import annotations

import numpy as np

from ouzel.engines.incomplete.tables import ENTRY, ArrivalCounter, ArrivalState, ByEdge, Queue, QueueLink
from ouzel.kernels.arrays import Matrix
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.windows import add_jump, newest_slot_before


@helper(inline=True)
def push(links, queues, own, slot):
    """Append an instance to its queue; returns the one before it."""
    below = queues[own, Queue.NEWEST]
    links[slot, QueueLink.BELOW] = below
    links[slot, QueueLink.ABOVE] = -1
    links[slot, QueueLink.OLDER] = -1
    links[slot, QueueLink.NEWER] = -1
    add_jump(links[:, QueueLink.JUMP], links[:, QueueLink.SPAN], below, slot)
    if below >= 0:
        links[below, QueueLink.ABOVE] = slot
    else:
        queues[own, Queue.OLDEST] = slot
    queues[own, Queue.NEWEST] = slot
    return below


@helper(inline=True)
def keep(links, queues, upper, own, slot):
    """Add an arrival to the monotonic queue; earlier ones with no larger bound will never matter again."""
    node = queues[own, Queue.LAST_MAXIMUM]
    while node >= 0 and upper[node] <= upper[slot]:
        node = links[node, QueueLink.OLDER]
    links[slot, QueueLink.OLDER] = node
    if node >= 0:
        links[node, QueueLink.NEWER] = slot
    else:
        queues[own, Queue.MAXIMUM] = slot
    queues[own, Queue.LAST_MAXIMUM] = slot


@helper(inline=True)
def largest_kept(links, queues, own, oldest):
    """The live kept arrival of a queue with the largest bound, in amortised constant time (AYAC 5.1); -1 if none."""
    node = queues[own, Queue.MAXIMUM]
    if node >= oldest or node < 0:
        return node
    while 0 <= node < oldest:
        node = links[node, QueueLink.NEWER]
    queues[own, Queue.MAXIMUM] = node
    if node >= 0:
        links[node, QueueLink.OLDER] = -1
    else:
        queues[own, Queue.LAST_MAXIMUM] = -1
    return node


@helper(inline=True)
def next_kept(links, node):
    below = links[node, QueueLink.BELOW]
    return links[below, QueueLink.KEPT] if below >= 0 else -1


@helper(inline=True)
def last_before(end, links, node, oldest, before):
    """The newest instance of a queue, from `node` down, that ends before a time; the result is below `oldest` if there
    is none."""
    return newest_slot_before(end, links[:, QueueLink.JUMP], links[:, QueueLink.BELOW], node, oldest, before)


def rebase(state: ArrivalState, dead: int, used: int) -> None:
    """Drop the first `dead` of `used` slots; all others move down by as many."""
    _rebase(state.queues, state.links, dead, used)
    state.upper[: used - dead] = state.upper[dead:used]
    state.counters[ArrivalCounter.OLDEST] = max(0, int(state.counters[ArrivalCounter.OLDEST]) - dead)


@kernel(allocates=True)
def _rebase(queues: Matrix[np.int32], links: Matrix[np.int32], dead: int, used: int):
    for own in range(queues.shape[0]):
        node = queues[own, Queue.OLDEST]
        while 0 <= node < dead:
            node = links[node, QueueLink.ABOVE]
        queues[own, Queue.OLDEST] = node - dead if node >= 0 else -1
        node = queues[own, Queue.MAXIMUM]
        while 0 <= node < dead:
            node = links[node, QueueLink.NEWER]
            if node >= dead:
                links[node, QueueLink.OLDER] = -1
        queues[own, Queue.MAXIMUM] = node - dead if node >= 0 else -1
        queues[own, Queue.LAST_MAXIMUM] = max(queues[own, Queue.LAST_MAXIMUM] - dead, -1) if node >= 0 else -1
        queues[own, Queue.NEWEST] = max(queues[own, Queue.NEWEST] - dead, -1)
    for slot in range(dead, used):
        for link in range(links.shape[1]):
            value = links[slot, link]
            links[slot - dead, link] = value if link == QueueLink.SPAN else max(value - dead, -1)


def rekey(state: ArrivalState, components: int, renamed: np.ndarray) -> ArrivalState:
    """Queues under the new codes of keys; `renamed` has the new code for each old one, or -1 for dropped keys."""
    old = state.queues.reshape(-1, components, len(Queue))
    fresh = np.full_like(old, -1)
    known = np.flatnonzero(renamed[: len(old)] >= 0)
    fresh[renamed[known]] = old[known]
    return state._replace(queues=fresh.reshape(state.queues.shape))


# `Trend` of `ouzel.loss`.
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
    """v of AYAC 5.1: for each edge the largest bound in the queue before it, times the best value of the edge.

    A rising edge value is best from the oldest arrival, a falling one from the newest, any other by its ceiling.
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
            curve = tables.by_edge[edge, ByEdge.CRITERION]
            if curve >= 0:
                node = queues[own, Queue.OLDEST]
                while node < oldest:
                    node = links[node, QueueLink.ABOVE]
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
