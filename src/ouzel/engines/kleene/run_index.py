"""An index of runs: finds the runs that an event can move without testing all of them.

Runs are kept in search trees. Each key and place has two trees: one for the take edge and one for the begin edge out of
the place. A tree is ordered by the value of the run that the edge compares with. An event visits the runs whose value
passes the comparison. Runs without a value are kept in a separate list, and every event visits them.

The trees are treaps whose nodes are runs; runs of equal value form a list at one node. Runs made at the current
timestamp are not in the trees yet, because no event of that timestamp can follow them.

A list is faster for few runs, so trees are built only when a key has many. The lists always hold all runs, so the trees
can be dropped at any time (`RunIndex.on`).
"""

from __future__ import annotations

import numpy as np

from ouzel.engines.kleene.edges import CLOSED, OPEN, load_edge, set_anchors, set_guard
from ouzel.engines.kleene.state import RunState, free_run, reserve_index
from ouzel.engines.kleene.tables import ORDERS, ByEdge, ByGuard, ByPlace, Guard, RunEvents, RunTables
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.predicate_tables import Comparison, LaneFlag
from ouzel.kernels.predicates import order_of_floats

_VALUE = np.uint8(LaneFlag.VALUE)
_NULL = np.uint8(LaneFlag.NULL)
# By comparison: the orders of the event's value and the run's for which it holds.
_ORDERS = np.array([ORDERS[comparison] for comparison in Comparison], np.int32)

# Columns of RunIndex.tree.
_LEFT = 0
_RIGHT = 1
_UP = 2
_TWIN = 3  # the next run of equal value
_BEFORE = 4  # the one before it; -1: this run is the node of the tree
_WEIGHT = 5  # a random number, less than that of the parent
_NONE = np.int32(-1)
# Classes of runs, each with its own root.
_COMPARED = 0
_ALWAYS = 1
_CLASSES = 2


def build_index(tables: RunTables, state: RunState, events: RunEvents) -> RunState:
    """Build the trees of all runs."""
    state = reserve_index(tables, state)
    _build(tables, state, events)
    return state


@kernel
def _build(tables: RunTables, state: RunState, events: RunEvents):
    index = state.trees
    index.root[:] = -1
    index.fresh[:] = -1
    index.on[0] = 1
    for key in range(state.key_head.size):
        before = _NONE
        run = state.key_head[key]
        while run >= 0:
            following = state.runs.next[run]
            if state.runs.since[run] < state.key_oldest[key]:
                # Earlier trees did not show it the event with which it left the window. Its nodes may be reclaimed.
                if before >= 0:
                    state.runs.next[before] = following
                else:
                    state.key_head[key] = following
                state.key_runs[key] -= 1
                free_run(state, run)
            else:
                index.key[run] = key
                index.previous[run] = before
                before = run
                _insert(tables, state, events, run)
            run = following


@kernel
def end_expired(tables: RunTables, state: RunState, oldest: int):
    """End the runs that started before tick `oldest`, which is where the window begins. Returns their number."""
    ended = 0
    for key in range(state.key_head.size):
        if tables.in_events:
            oldest = state.key_oldest[key]
        run = state.key_head[key]
        while run >= 0:
            following = state.runs.next[run]
            if state.runs.since[run] < oldest:
                take_out(tables, state, run)
                free_run(state, run)
                ended += 1
            run = following
    return ended


@kernel
def place_all(tables: RunTables, state: RunState, events: RunEvents):
    """Insert the runs of the current timestamp into the trees."""
    for key in range(state.key_head.size):
        _place(tables, state, events, key)


@helper
def find_runs(tables, state, events, slot, key, roles):
    """Write the runs that an event may move to `index.found`. Returns their number."""
    index = state.trees
    if index.fresh[key] >= 0 and events.end[slot] > index.moment[key]:
        _place(tables, state, events, key)
    one = np.uint64(1)
    count = 0
    for place in range(tables.length):
        ahead = roles >> np.uint64(2 * place + 1)
        if ahead == 0:
            break
        for edge in range(2):
            if (ahead >> np.uint64(edge)) & one != 0:
                count = _find(tables, state, events, slot, place, edge, key, count)
    for number in range(count):
        index.asked[index.found[number]] = 0
    return count


@helper
def put_in(state, key, run, moment):
    """Add a run of a key. The event that is read has made or moved it."""
    index = state.trees
    head = state.key_head[key]
    state.runs.next[run] = head
    if head >= 0:
        index.previous[head] = run
    index.previous[run] = -1
    index.key[run] = key
    state.key_head[key] = run
    state.key_runs[key] += 1
    index.tree[run, 0, _TWIN] = index.fresh[key]
    index.fresh[key] = run
    index.moment[key] = moment


@helper
def take_out(tables, state, run):
    """Remove a run from the trees, because it moves or ends. It must be in them."""
    index = state.trees
    key = index.key[run]
    previous = index.previous[run]
    following = state.runs.next[run]
    if previous >= 0:
        state.runs.next[previous] = following
    else:
        state.key_head[key] = following
    if following >= 0:
        index.previous[following] = previous
    state.key_runs[key] -= 1
    for edge in range(2):
        take_edge_out(tables, state, run, edge)


@helper
def take_edge_out(tables, state, run, edge):
    """Remove a run from the tree of an edge, if it is there."""
    if state.runs.guard[run, edge] != CLOSED:
        row = np.int64(state.trees.key[run]) * tables.length + state.runs.place[run]
        column = edge * _CLASSES + _class_of(state.runs, run, edge)
        _remove(state.trees.tree, state.trees.root, row, column, edge, run)


# ── Trees ──────────────────────────────────────────────────────────────────────────────────────────


@helper
def _place(tables, state, events, key):
    run = state.trees.fresh[key]
    while run >= 0:
        following = state.trees.tree[run, 0, _TWIN]
        _insert(tables, state, events, run)
        run = following
    state.trees.fresh[key] = -1


@helper
def _edge_of(tables, place, edge):
    """(kind, lane of the event, orders that pass) of an edge out of a place."""
    test = tables.by_place[place, ByPlace.INDEXED + edge]
    if test < 0:
        return np.int32(Guard.NONE), np.int32(0), np.int32(0)
    row = tables.by_guard[test]
    return row[ByGuard.KIND], row[ByGuard.LANE], _ORDERS[row[ByGuard.COMPARISON]]


@helper
def _class_of(runs, run, edge):
    return _COMPARED if runs.guard[run, edge] >= 0 else _ALWAYS


@helper
def _insert(tables, state, events, run):
    """Put a run into the trees of its place."""
    place = state.runs.place[run]
    row = np.int64(state.trees.key[run]) * tables.length + place
    for edge in range(2):
        if state.runs.guard[run, edge] == CLOSED:
            continue
        kind = _edge_of(tables, place, edge)[0]
        # In a loop a run has its values already.
        if tables.loop.shape[0] == 0:
            state.runs.guard[run, edge] = OPEN
            if kind != Guard.NONE:
                _set_value(tables, state, events, run, place, edge)
        _insert_into(state, row, edge, _class_of(state.runs, run, edge), kind == Guard.FLOAT, run)


@helper
def _set_value(tables, state, events, run, place, edge):
    """Store the value of a run that orders it in the tree of an edge."""
    number = tables.by_place[place + 1, ByPlace.BEGIN] if edge else tables.by_place[place, ByPlace.TAKE]
    if state.runs.since[run] < state.key_oldest[state.trees.key[run]]:
        # Earlier nodes may be reclaimed; then the run ends when it is next visited.
        return
    node = state.runs.node[run]
    set_anchors(state.arena.parent, state.arena.first, state.anchor, node, place, tables.by_edge[number, ByEdge.LOWEST])
    load_edge(tables, state, events, number)
    state.failed[0] = tables.by_place[place, ByPlace.INDEXED + edge]
    set_guard(tables, state, events, run, edge)


@helper
def _order(runs, floating, edge, left, right):
    """Compare the values of two runs: -1 if the left one is less, 0 if equal, 1 if greater."""
    if floating:
        return order_of_floats(runs.float_bounds[left, edge], runs.float_bounds[right, edge])
    here = runs.int_bounds[left, edge]
    there = runs.int_bounds[right, edge]
    return int(here > there) - int(here < there)


@helper
def _insert_into(state, row, edge, kinds, floating, run):
    tree = state.trees.tree
    root = state.trees.root
    own = tree[run, edge]
    own[_LEFT] = -1
    own[_RIGHT] = -1
    own[_UP] = -1
    own[_TWIN] = -1
    own[_BEFORE] = -1
    own[_WEIGHT] = np.int32((np.int64(run) * np.int64(2654435761) + np.int64(edge) * 97) & np.int64(0x7FFFFFFF))
    above = _NONE
    side = 0
    column = edge * _CLASSES + kinds
    here = root[row, column]
    while here >= 0:
        order = _order(state.runs, floating, edge, run, here) if kinds == _COMPARED else 0
        if order == 0:
            own[_BEFORE] = here
            own[_TWIN] = tree[here, edge, _TWIN]
            if own[_TWIN] >= 0:
                tree[own[_TWIN], edge, _BEFORE] = run
            tree[here, edge, _TWIN] = run
            return
        above = here
        side = _LEFT if order < 0 else _RIGHT
        here = tree[here, edge, side]
    own[_UP] = above
    if above < 0:
        root[row, column] = run
        return
    tree[above, edge, side] = run
    while own[_UP] >= 0 and tree[own[_UP], edge, _WEIGHT] < own[_WEIGHT]:
        _rotate_up(tree, root, row, column, edge, run)


@helper
def _replace(tree, root, row, column, edge, old, new):
    """Replace a node of a tree by another node or, if `new` is -1, by none."""
    above = tree[old, edge, _UP]
    if above < 0:
        root[row, column] = new
    elif tree[above, edge, _LEFT] == old:
        tree[above, edge, _LEFT] = new
    else:
        tree[above, edge, _RIGHT] = new
    if new >= 0:
        tree[new, edge, _UP] = above


@helper
def _rotate_up(tree, root, row, column, edge, run):
    """Rotate a node with its parent, so that it takes the parent's place."""
    above = tree[run, edge, _UP]
    side = _LEFT if tree[above, edge, _LEFT] == run else _RIGHT
    other = _RIGHT if side == _LEFT else _LEFT
    _replace(tree, root, row, column, edge, above, run)
    child = tree[run, edge, other]
    tree[above, edge, side] = child
    if child >= 0:
        tree[child, edge, _UP] = above
    tree[run, edge, other] = above
    tree[above, edge, _UP] = run


@helper
def _remove(tree, root, row, column, edge, run):
    before = tree[run, edge, _BEFORE]
    twin = tree[run, edge, _TWIN]
    if before >= 0:
        tree[before, edge, _TWIN] = twin
        if twin >= 0:
            tree[twin, edge, _BEFORE] = before
        return
    if twin >= 0:
        # The next run of equal value becomes the node.
        _replace(tree, root, row, column, edge, run, twin)
        for side in range(2):
            child = tree[run, edge, side]
            tree[twin, edge, side] = child
            if child >= 0:
                tree[child, edge, _UP] = twin
        tree[twin, edge, _BEFORE] = -1
        tree[twin, edge, _WEIGHT] = tree[run, edge, _WEIGHT]
        return
    while True:
        left = tree[run, edge, _LEFT]
        right = tree[run, edge, _RIGHT]
        if left < 0 or right < 0:
            _replace(tree, root, row, column, edge, run, left if right < 0 else right)
            return
        heavier = left if tree[left, edge, _WEIGHT] > tree[right, edge, _WEIGHT] else right
        _rotate_up(tree, root, row, column, edge, heavier)


@helper
def _find(tables, state, events, slot, place, edge, key, count):
    """Add the runs of a place whose values pass the comparison of an edge with an event."""
    index = state.trees
    runs = state.runs
    tree = index.tree
    column = edge * _CLASSES
    row = np.int64(key) * tables.length + place
    count = _add_twins(index, edge, index.root[row, column + _ALWAYS], count)
    here = index.root[row, column]
    kind, lane, orders = _edge_of(tables, place, edge)
    if kind == Guard.NONE:
        return count
    value = np.int64(0)
    real = 0.0
    if kind == Guard.FLOAT:
        flag = events.lane_flags[lane + events.int_lanes.shape[0], slot]
        real = events.float_lanes[lane, slot]
    else:
        flag = events.lane_flags[lane, slot]
        value = events.int_lanes[lane, slot]
    if flag != _VALUE:
        # A comparison with an absent attribute is true, also if the other value is null.
        run = state.key_head[key] if flag != _NULL else _NONE
        while run >= 0:
            count = _add(index, run, count)
            run = runs.next[run]
        return count
    waiting = 0
    while True:
        if here < 0:
            if waiting == 0:
                return count
            waiting -= 1
            here = index.ahead[waiting]
        if kind == Guard.FLOAT:
            order = order_of_floats(real, runs.float_bounds[here, edge])
        else:
            bound = runs.int_bounds[here, edge]
            order = int(value > bound) - int(value < bound)
        if (orders >> (order + 1)) & 1 != 0:
            count = _add_twins(index, edge, here, count)
        left = tree[here, edge, _LEFT]
        right = tree[here, edge, _RIGHT]
        here = left if order < 0 or orders & 4 != 0 else _NONE
        if right >= 0 and (order > 0 or orders & 1 != 0):
            if here < 0:
                here = right
            else:
                index.ahead[waiting] = right
                waiting += 1


@helper
def _add_twins(index, edge, run, count):
    """Add the runs with the same value as a run."""
    while run >= 0:
        count = _add(index, run, count)
        run = index.tree[run, edge, _TWIN]
    return count


@helper(inline=True)
def _add(index, run, count):
    """Add a run, unless it has been found before."""
    if index.asked[run] == 0:
        index.asked[run] = 1
        index.found[count] = run
        count += 1
    return count
