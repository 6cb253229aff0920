"""The queues of the arrival kernel (AYAC 4 and 5.1): pushing, the largest bound, the last instance before a moment.

Every key and component has a queue of its instances in the order of their ends. Beside their neighbours instances know
one some way before, which finds a moment in logarithmic time. The kept ones, whose bound reaches the threshold, also
stand in a queue of falling maxima.
"""

from __future__ import annotations

from ouzel.kernels.arrival_tables import Link, Queue
from ouzel.kernels.jit import helper


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
