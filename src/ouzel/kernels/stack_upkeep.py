"""Moving the state of the stack kernel when its buffers or keys move."""

from __future__ import annotations

import numpy as np

from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.stack_tables import Counter


@kernel
def rebase(state, shift, used):
    """Forget the oldest `shift` of `used` slots: they are dropped from the front of the buffers, the rest move down.

    Only slots that no match can use any more may go: those with end <= newest end - window.
    """
    left = used - shift
    links = state.links
    for link in range(links.shape[0]):
        for slot in range(left):
            links[link, slot] = max(links[link, slot + shift] - shift, -1)
    marks = state.marks
    if marks.shape[1] > 0:
        for mark in range(marks.shape[0]):
            for slot in range(left):
                marks[mark, slot] = marks[mark, slot + shift]
    state.counters[Counter.OLDEST] = max(state.counters[Counter.OLDEST] - shift, 0)
    state.counters[Counter.STACKED] = max(state.counters[Counter.STACKED] - shift, 0)
    _lower(state.head, shift)
    _lower(state.second_head, shift)
    _lower(state.waiting_heap[: state.counters[Counter.HEAP]], shift)
    tails = state.waiting_tail
    if tails.size > 0:
        for slot in range(left):
            tails[slot] = tails[slot + shift]
        tails[left:used] = -1
    # Free rows hold what they like.
    _lower(state.waiting_slots.reshape(state.waiting_slots.size), shift)


@helper
def _lower(slots, shift):
    for place in range(slots.size):
        slots[place] = max(slots[place] - shift, -1)


@kernel
def rekey(head, components, new_code):
    """Move stacks to new keys: new_code[key] is where a key goes, never a larger one, or -1 to forget it.

    Give it `state.head`, or `state.second_head` with the new codes of second keys.

    >>> head = np.array([5, 6, 7], np.int32)
    >>> rekey(head, 1, np.array([-1, 0, 1], np.int32))
    >>> head.tolist()
    [6, 7, -1]
    """
    for key in range(min(head.size // components, new_code.size)):
        target = np.int64(new_code[key])
        if target != key:
            for component in range(components):
                newest = head[key * components + component]
                head[key * components + component] = -1
                if target >= 0:
                    head[target * components + component] = newest
