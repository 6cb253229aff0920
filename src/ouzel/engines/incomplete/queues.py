"""The queues of the arrival kernel (AYAC 4 and 5.1): pushing, the largest bound, the last instance before a moment.

Every key and component has a queue of its instances in the order of their ends. Beside their neighbours instances know
one some way before, which finds a moment in logarithmic time. The kept ones, whose bound reaches the threshold, also
stand in a queue of falling maxima.
"""

from __future__ import annotations

import numpy as np

from ouzel.engines.incomplete.tables import ENTRY, ArrivalState, ByEdge, Counter, Link, Queue
from ouzel.kernels.jit import helper, kernel


@helper(inline=True)
def push(links, queues, own, slot):
    """Put an instance at the end of its queue; gives the one before it.

    The jumps are those of a skew-binary list: two neighbouring spans of equal length become one.
    """
    below = queues[own, Queue.NEWEST]
    links[slot, Link.BELOW] = below
    links[slot, Link.ABOVE] = -1
    links[slot, Link.OLDER] = -1
    links[slot, Link.NEWER] = -1
    links[slot, Link.JUMP] = below
    links[slot, Link.SPAN] = 1
    if below >= 0:
        links[below, Link.ABOVE] = slot
        middle = links[below, Link.JUMP]
        if middle >= 0 and links[middle, Link.JUMP] >= 0 and links[below, Link.SPAN] == links[middle, Link.SPAN]:
            links[slot, Link.JUMP] = links[middle, Link.JUMP]
            links[slot, Link.SPAN] = 2 * links[below, Link.SPAN] + 1
    else:
        queues[own, Queue.OLDEST] = slot
    queues[own, Queue.NEWEST] = slot
    return below


@helper(inline=True)
def keep(links, queues, upper, own, slot):
    """Put an arrival into the queue of falling maxima: those before it that are no larger will never matter again."""
    node = queues[own, Queue.LAST_MAXIMUM]
    while node >= 0 and upper[node] <= upper[slot]:
        node = links[node, Link.OLDER]
    links[slot, Link.OLDER] = node
    if node >= 0:
        links[node, Link.NEWER] = slot
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
        node = links[node, Link.NEWER]
    queues[own, Queue.MAXIMUM] = node
    if node >= 0:
        links[node, Link.OLDER] = -1
    else:
        queues[own, Queue.LAST_MAXIMUM] = -1
    return node


@helper(inline=True)
def next_kept(links, node):
    below = links[node, Link.BELOW]
    return links[below, Link.KEPT] if below >= 0 else -1


@helper(inline=True)
def last_before(end, links, node, oldest, moment):
    """The newest instance of a queue, from `node` down, that ends before a moment; below `oldest` if there is none."""
    while node >= oldest and end[node] >= moment:
        jump = links[node, Link.JUMP]
        node = jump if jump >= oldest and end[jump] >= moment else links[node, Link.BELOW]
    return node


def rebase(state: ArrivalState, dead: int, used: int) -> None:
    """The first `dead` of `used` slots are given up; all others move down by so many."""
    _rebase(state.queues, state.links, dead, used)
    state.upper[: used - dead] = state.upper[dead:used]
    state.counters[Counter.OLDEST] = max(0, int(state.counters[Counter.OLDEST]) - dead)


@kernel(allocates=True)
def _rebase(queues, links, dead, used):
    for own in range(queues.shape[0]):
        node = queues[own, Queue.OLDEST]
        while 0 <= node < dead:
            node = links[node, Link.ABOVE]
        queues[own, Queue.OLDEST] = node - dead if node >= 0 else -1
        node = queues[own, Queue.MAXIMUM]
        while 0 <= node < dead:
            node = links[node, Link.NEWER]
            if node >= dead:
                links[node, Link.OLDER] = -1
        queues[own, Queue.MAXIMUM] = node - dead if node >= 0 else -1
        queues[own, Queue.LAST_MAXIMUM] = max(queues[own, Queue.LAST_MAXIMUM] - dead, -1) if node >= 0 else -1
        queues[own, Queue.NEWEST] = max(queues[own, Queue.NEWEST] - dead, -1)
    for slot in range(dead, used):
        for link in range(links.shape[1]):
            value = links[slot, link]
            links[slot - dead, link] = value if link == Link.SPAN else max(value - dead, -1)


def rekey(state: ArrivalState, components: int, renamed: np.ndarray) -> ArrivalState:
    """Queues under the new names of keys; `renamed` has for each old code the new one, or -1 for those given up."""
    old = state.queues.reshape(-1, components, len(Queue))
    fresh = np.full_like(old, -1)
    known = np.flatnonzero(renamed[: len(old)] >= 0)
    fresh[renamed[known]] = old[known]
    return state._replace(queues=fresh.reshape(state.queues.shape))


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
