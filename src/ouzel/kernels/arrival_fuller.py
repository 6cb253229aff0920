"""Whether a path is part of a fuller one, which binds the same events and more: then its probability is not told."""

from __future__ import annotations

from ouzel.kernels.arrival_queues import last_before
from ouzel.kernels.arrival_tables import Link, Queue
from ouzel.kernels.arrival_tests import is_forbidden, tests_pass
from ouzel.kernels.jit import helper

_UNSET = -2


@helper
def is_part_of_fuller(tables, state, instances, base, oldest, window_start):
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
            candidate = last_before(end, links, state.queues[own, Queue.NEWEST], oldest, moment)
        elif tried[place] >= 0:
            candidate = links[tried[place], Link.BELOW]
        else:
            candidate = _UNSET
        if chosen[place] < 0 and candidate != _UNSET:
            below = place - 1
            while below >= 0 and chosen[below] < 0:
                below -= 1
            after = end[chosen[below]] if below >= 0 else window_start - 1
            while candidate >= oldest and end[candidate] > after and start[candidate] <= after:
                candidate = links[candidate, Link.BELOW]
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
        if tests_pass(tables, state, instances, tables.first_test[place], tables.first_test[place + 1]):
            place -= 1
            entering = True
        else:
            entering = False


@helper
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
        if is_forbidden(tables, state, instances, negative, base, oldest, after, before):
            return False
    return True
