"""Moving the arrival kernel's state when the front of the buffer, or codes of keys, are given up."""

from __future__ import annotations

import numpy as np

from ouzel.kernels.arrival_tables import ArrivalState, Counter, Link, Queue
from ouzel.kernels.jit import kernel


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
