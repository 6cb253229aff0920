"""The queues of the arrival kernel (AYAC 4 and 5.1): pushing, the largest bound, the last instance before a moment.

Every key and component has a queue of its instances in the order of their ends. Beside their neighbours instances know
one some way before, which finds a moment in logarithmic time. The kept ones, whose bound reaches the threshold, also
stand in a queue of falling maxima.
"""

from __future__ import annotations

from ouzel.kernels.arrival_tables import Link, Queue
from ouzel.kernels.jit import helper

_BELOW, _ABOVE, _JUMP, _SPAN = int(Link.BELOW), int(Link.ABOVE), int(Link.JUMP), int(Link.SPAN)
_KEPT, _OLDER, _NEWER = int(Link.KEPT), int(Link.OLDER), int(Link.NEWER)
_NEWEST, _OLDEST = int(Queue.NEWEST), int(Queue.OLDEST)
_MAXIMUM, _LAST_MAXIMUM = int(Queue.MAXIMUM), int(Queue.LAST_MAXIMUM)


@helper(inline=True)
def push(links, queues, own, slot):
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


@helper(inline=True)
def keep(links, queues, upper, own, slot):
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


@helper(inline=True)
def largest_kept(links, queues, own, oldest):
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


@helper(inline=True)
def next_kept(links, node):
    below = links[node, _BELOW]
    return links[below, _KEPT] if below >= 0 else -1


@helper(inline=True)
def last_before(end, links, node, oldest, moment):
    """The newest instance of a queue, from `node` down, that ends before a moment; below `oldest` if there is none."""
    while node >= oldest and end[node] >= moment:
        jump = links[node, _JUMP]
        node = jump if jump >= oldest and end[jump] >= moment else links[node, _BELOW]
    return node
