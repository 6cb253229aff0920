"""The arrival kernel (AYAC sections 4 and 5): queues of probabilistic arrivals, upper bounds of scores, and the
backward search for matches. The entry function is `scan`.

Every instance enters the queue of its key and component. For a positive instance, `upper_bound` computes an upper bound
of the scores of all paths that end with it. Searches skip instances whose bound is below the threshold. An instance of
the last component whose bound reaches the threshold starts a backward search.

A queue is ordered by end, and stored as a skew-binary list. Instances whose bound reaches the threshold are *kept*:
they are also in a monotonic queue with decreasing bounds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.incomplete.tables import (
    ALWAYS,
    ENTRY,
    SLACK,
    ArrivalCounter,
    ArrivalOutput,
    ArrivalState,
    ArrivalTables,
    AtEnd,
    ByBeside,
    ByEdge,
    ByNegative,
    ByPair,
    ByTest,
    NegativeWeight,
    Queue,
    QueueLink,
    grown,
)
from ouzel.kernels.arrays import INT64_MIN, Matrix
from ouzel.kernels.events import (
    EVERY_KEY,
    LATEST,
    NO_LIMIT,
    Instances,
    Status,
    add_jump,
    deadline,
    newest_slot_before,
)
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.pauses import Pieces
from ouzel.kernels.predicates import holds


@helper(inline=True)
def push(links, queues, own, slot):
    """Append an instance to its queue. Returns the instance before it."""
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
    """Add an arrival to the monotonic queue, and remove the earlier ones whose bounds are not larger, because they
    cannot matter any more.
    """
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
    """The kept arrival of a queue with the largest bound, among those from slot `oldest` on; -1 if there is none. Takes
    amortised constant time (AYAC 5.1).
    """
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
    """The newest instance of a queue, from `node` down, that ends before a time. The result is below `oldest` if there
    is none.
    """
    return newest_slot_before(end, links[:, QueueLink.JUMP], links[:, QueueLink.BELOW], node, oldest, before)


def rebase(state: ArrivalState, dead: int, used: int) -> None:
    """Drop the first `dead` of `used` slots. The others move down."""
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
    """Queues under new keys. `renamed` has the new key for each old one; -1 drops the key."""
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
def weight_at(curves, curve, ticks):
    piece = _piece(curves, curve, ticks)
    coefficients = curves.coefficients
    if curves.half[piece] == 0.0:
        return coefficients[piece, ticks - curves.low[piece]]
    x = (ticks - curves.middle[piece]) / curves.half[piece]
    value = coefficients[piece, 7]
    for power in range(6, -1, -1):
        value = value * x + coefficients[piece, power]
    return max(value, 0.0)


@helper(inline=True)
def value_at(curves, curve, ticks):
    return min(weight_at(curves, curve, ticks), 1.0)


@helper(inline=True)
def upper_bound(tables, state, instances, base, place, slot, oldest):
    """The upper bound v of AYAC 5.1: the best product, over all edges into a component, of the largest bound in the
    queue at the source of the edge and the best value of the edge.

    The best value of an edge is that from the oldest arrival if the score rises with time, and from the newest if it
    falls. Otherwise the curve's ceiling is taken.
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
            curve = tables.by_edge[edge, ByEdge.SCORE]
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


@helper(inline=True)
def tests_pass(tables, state, instances, first, last):
    """Whether tests hold. Each is made in its variant for the missing components."""
    for test in range(first, last):
        missing = 0
        first_named = tables.by_test[test, ByTest.FIRST_NAMED]
        for place in range(first_named, tables.by_test[test + 1, ByTest.FIRST_NAMED]):
            missing |= np.int64(state.missing[tables.named[place]]) << (place - first_named)
        conjunct = tables.variants[tables.by_test[test, ByTest.FIRST_VARIANT] + missing]
        if conjunct != ALWAYS and not holds(tables.predicates, instances, state.bound, state.values, conjunct):
            return False
    return True


@helper(inline=True)
def _forbids_in(tables, state, instances, component, own, oldest, after, before):
    end = instances.end
    first = tables.by_negative[component, ByNegative.FIRST_TEST]
    last = tables.by_negative[component, ByNegative.AFTER_TEST]
    node = last_before(end, state.links, state.queues[own, Queue.NEWEST], oldest, before)
    while node >= oldest and end[node] > after:
        if instances.start[node] > after:
            state.bound[component] = node
            if tests_pass(tables, state, instances, first, last):
                return True
        node = state.links[node, QueueLink.BELOW]
    return False


@helper
def is_forbidden(tables, state, instances, component, base, oldest, after, before):
    """Whether some instance of a negative component is completely between two times and passes its tests."""
    if _forbids_in(tables, state, instances, component, base + component, oldest, after, before):
        return True
    if base != EVERY_KEY and tables.by_negative[component, ByNegative.EVERYWHERE]:
        everywhere = EVERY_KEY * tables.components + component
        return _forbids_in(tables, state, instances, component, everywhere, oldest, after, before)
    return False


_UNSET = -2
# Explanations whose weight is below this share of the sum are left out of it.
NEGLIGIBLE = 1e-15


@helper(inline=True)
def _observed_in(tables, state, instances, component, own, oldest, after, before):
    end = instances.end
    first = tables.by_negative[component, ByNegative.FIRST_TEST]
    last = tables.by_negative[component, ByNegative.AFTER_TEST]
    curve = tables.negative_weights[component, NegativeWeight.OBSERVED]
    found = 0.0
    node = last_before(end, state.links, state.queues[own, Queue.NEWEST], oldest, before)
    while node >= oldest and end[node] > after:
        if instances.start[node] > after:
            state.bound[component] = node
            if tests_pass(tables, state, instances, first, last):
                found += weight_at(tables.curves, curve, instances.start[node] - after)
        node = state.links[node, QueueLink.BELOW]
    return found


@helper
def observed(tables, state, instances, component, base, oldest, after, before):
    """The weight of those events of a negative component between two times that were observed."""
    found = _observed_in(tables, state, instances, component, base + component, oldest, after, before)
    if base != EVERY_KEY and tables.by_negative[component, ByNegative.EVERYWHERE]:
        everywhere = EVERY_KEY * tables.components + component
        found += _observed_in(tables, state, instances, component, everywhere, oldest, after, before)
    return found


@helper(inline=True)
def _pair(source, target):
    """`tables.pair_of` for kernels."""
    return target * (target + 1) // 2 + source + 1


@helper
def evidence(tables, state, instances, slot, base, oldest, window_start):
    """The total weight of all explanations of a last event (docs/semantics.md, "Probabilities").

    Explanations are grouped by the events that they bind. Each level of the search holds a bound event and the position
    that is tried before it. At a position, events are tried from the newest down; the start of the window is tried
    last.
    """
    start = instances.start
    end = instances.end
    links = state.links
    last_position = tables.length - 1
    has_negatives = tables.negatives_between.shape[0] > 0
    total = 0.0
    level = 0
    state.node[0] = slot
    state.place[0] = last_position
    state.edge[0] = last_position - 1
    state.candidate[0] = _UNSET
    state.weight[0] = 1.0
    state.bound[tables.component_at[last_position]] = slot
    state.missing[last_position] = 0
    if not tests_pass(tables, state, instances, tables.first_test[last_position], tables.first_test[last_position + 1]):
        return 0.0
    while level >= 0:
        place = state.place[level]
        source = state.edge[level]
        node = state.node[level]
        # Observed negatives may add to a weight, which has no bound then.
        is_negligible = not has_negatives and state.weight[level] * tables.best_ahead[place] < total * NEGLIGIBLE
        if source < ENTRY or is_negligible:
            level -= 1
            if level >= 0:
                state.candidate[level] = links[state.candidate[level], QueueLink.BELOW]
            continue
        candidate = -1
        after = window_start - 1
        if source != ENTRY:
            if state.candidate[level] == _UNSET:
                own = base + tables.component_at[source]
                candidate = last_before(end, links, state.queues[own, Queue.NEWEST], oldest, start[node])
            else:
                candidate = state.candidate[level]
            while candidate >= oldest and start[candidate] < window_start:
                candidate = links[candidate, QueueLink.BELOW]
            if candidate < oldest:
                state.edge[level] = source - 1
                state.candidate[level] = _UNSET
                continue
            state.candidate[level] = candidate
            after = end[candidate]
            state.bound[tables.component_at[source]] = candidate
            state.missing[source] = 0
        for between in range(source + 1, place):
            state.missing[between] = 1
        weight = weight_at(tables.curves, tables.pairs[_pair(source, place), ByPair.EVERY], start[node] - after)
        weight *= state.weight[level]
        passes = tests_pass(tables, state, instances, tables.first_test[max(source, 0)], tables.first_test[place])
        if source != ENTRY:
            if passes:
                level += 1
                state.node[level] = candidate
                state.place[level] = source
                state.edge[level] = source - 1
                state.candidate[level] = _UNSET
                state.weight[level] = weight
            else:
                state.candidate[level] = links[candidate, QueueLink.BELOW]
            continue
        state.edge[level] = source - 1
        if passes:
            if has_negatives:
                weight = _with_negatives(tables, state, instances, level, base, oldest, window_start)
            total += weight
    return total


@helper(inline=True)
def _sampled(tables, function, t):
    """A function between its samples."""
    cells = tables.densities.shape[1] // 2
    place = t * cells / tables.window
    cell = min(max(np.int64(place), 0), cells - 1)
    share = place - cell
    return tables.densities[function, 2 * cell] * (1.0 - share) + tables.densities[function, 2 * cell + 1] * share


@helper(inline=True)
def _points(tables, length, most):
    """How many points an integral over a length has: one for each cell, if these are not too many."""
    return min(max(np.int64(length * (tables.densities.shape[1] // 2) / tables.window), 64), most)


@helper
def _after_due(tables, term, begin, due, total, most):
    """∫ of the ways from a component at `begin` to the next one after the negative, and on to the end of the edge."""
    slot = tables.beside[term, ByBeside.SLOT]
    right = tables.beside[term, ByBeside.RIGHT]
    if right < 0:
        return _sampled(tables, slot, total - begin)
    points = _points(tables, total - due, most)
    step = (total - due) / points
    found = 0.0
    for point in range(points):
        t = due + (point + 0.5) * step
        found += _sampled(tables, slot, t - begin) * _sampled(tables, right, total - t)
    return found * step


@helper
def _beside_at(tables, term, due, total):
    """The weight of a term for a negative that was observed at a time of an edge."""
    left = tables.beside[term, ByBeside.LEFT]
    happened = tables.beside[term, ByBeside.DUE]
    if left < 0:
        # A density may jump at a whole tick, where a table is exact.
        curve = tables.negative_weights[tables.beside[term, ByBeside.NEGATIVE], NegativeWeight.OBSERVED]
        exact = weight_at(tables.curves, curve, np.int64(due))
        return exact * _after_due(tables, term, 0.0, due, total, _POINTS)
    # Two integrals, one in the other, have fewer points.
    most = _POINTS if tables.beside[term, ByBeside.RIGHT] < 0 else _POINTS_OF_TWO
    points = _points(tables, due, most)
    step = due / points
    found = 0.0
    for point in range(points):
        t = (point + 0.5) * step
        ahead = _after_due(tables, term, t, due, total, most)
        found += _sampled(tables, left, t) * _sampled(tables, happened, due - t) * ahead
    return found * step


_POINTS = 1_024
_POINTS_OF_TWO = 64


@helper
def _beside_in(tables, state, instances, term, own, oldest, after, before):
    """The weight of the explanations of an edge in which a negative was observed beside a lost component."""
    end = instances.end
    component = tables.beside[term, ByBeside.NEGATIVE]
    first = tables.by_negative[component, ByNegative.FIRST_TEST]
    last = tables.by_negative[component, ByNegative.AFTER_TEST]
    found = 0.0
    node = last_before(end, state.links, state.queues[own + component, Queue.NEWEST], oldest, before)
    while node >= oldest and end[node] > after:
        if instances.start[node] > after:
            state.bound[component] = node
            if tests_pass(tables, state, instances, first, last):
                due = np.float64(instances.start[node] - after)
                found += _beside_at(tables, term, due, np.float64(before - after))
        node = state.links[node, QueueLink.BELOW]
    return found * tables.beside_scale[term]


@helper
def _with_negatives(tables, state, instances, level, base, oldest, window_start):
    """The weight of the explanations that bind the events of all levels, including the observed negative events between
    them.
    """
    weight = 1.0
    for depth in range(level + 1):
        target = state.place[depth]
        source = state.place[depth + 1] if depth < level else ENTRY
        after = instances.end[state.node[depth + 1]] if depth < level else window_start - 1
        before = instances.start[state.node[depth]]
        pair = _pair(source, target)
        factor = weight_at(tables.curves, tables.pairs[pair, ByPair.EVERY], before - after)
        unobserved = 1.0
        either = 1.0
        for entry in range(tables.negatives_between.shape[0]):
            position = tables.negatives_between[entry, 1]
            is_between = source < position <= target if source != ENTRY else position == 0
            if is_between:
                negative = tables.negatives_between[entry, 0]
                curve = tables.negative_weights[negative, NegativeWeight.UNOBSERVED]
                quiet = weight_at(tables.curves, curve, before - after)
                seen = observed(tables, state, instances, negative, base, oldest, after, before)
                unobserved *= quiet
                either *= quiet + seen
        if either > unobserved:
            curve = tables.pairs[pair, ByPair.NOTHING_BETWEEN]
            factor += weight_at(tables.curves, curve, before - after) * (either - unobserved)
        for term in range(tables.first_beside[pair], tables.first_beside[pair + 1]):
            factor += _beside_in(tables, state, instances, term, base, oldest, after, before)
            component = tables.beside[term, ByBeside.NEGATIVE]
            if base != EVERY_KEY and tables.by_negative[component, ByNegative.EVERYWHERE]:
                everywhere = EVERY_KEY * tables.components
                factor += _beside_in(tables, state, instances, term, everywhere, oldest, after, before)
        weight *= factor
    return weight


@helper
def search(tables, state, instances, slot, base, oldest, window_start, output):
    """Write all paths that end with an instance of the last component (AYAC 4.2); none if there is no room for all."""
    total = 0.0
    least_weight = 0.0
    if tables.least_probability > 0.0:
        total = evidence(tables, state, instances, slot, base, oldest, window_start)
        # Silence behind the last component, where a negated end demands it, makes no path likelier.
        whole = tables.last_prior * total + 1.0 - tables.last_prior
        least_weight = tables.least_probability * whole / SLACK
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
    room = tables.max_matches_per_timestamp
    if state.counters[ArrivalCounter.LATEST_TICK] == now:
        room -= state.counters[ArrivalCounter.AT_LATEST]
    state.bound[tables.component_at[last_position]] = slot
    state.missing[last_position] = 0
    if not tests_pass(tables, state, instances, tables.first_test[last_position], tables.first_test[last_position + 1]):
        return Status.DONE
    seen = 0
    level = 0
    state.node[0] = slot
    state.place[0] = last_position
    state.edge[0] = tables.first_edge[last_position]
    state.candidate[0] = _UNSET
    state.score[0] = 1.0
    state.weight[0] = tables.last_prior
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
                        or state.score[level] * tables.edge_best[edge] * state.upper[largest] * SLACK < threshold
                    ):
                        state.edge[level] += 1
                        continue
                candidate = last_before(end, links, queues[own, Queue.NEWEST], oldest, start[node])
                if candidate >= 0:
                    candidate = links[candidate, QueueLink.KEPT]
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
        score = state.score[level] * tables.edge_score[edge]
        if by_edge[edge, ByEdge.SCORE] >= 0:
            score *= value_at(curves, by_edge[edge, ByEdge.SCORE], gap)
        ahead = state.upper[candidate] * SLACK if source != ENTRY else 1.0
        passes = (score > 0.0 or tables.on_probability == 1) and score * ahead >= threshold
        weight = np.nan
        if passes and tables.knows_probability:
            weight = state.weight[level] * weight_at(curves, tables.pairs[_pair(source, place), ByPair.PATH], gap)
            ahead = tables.best_path_ahead[source] if source != ENTRY else 1.0
            passes = (weight > 0.0 or tables.on_probability == 0) and weight * ahead >= least_weight
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
                state.score[level] = score
                state.weight[level] = weight
            else:
                state.candidate[level] = next_kept(links, candidate)
            continue
        state.edge[level] += 1
        if not passes or _late_forbidden(tables, state, instances, level, base, oldest, window_start):
            continue
        completes = now
        if tables.negatives_at_end.size > 0:
            completes = deadline(start[node], tables.window)
            score *= value_at(curves, tables.at_end[AtEnd.SCORE], completes - now + 1)
            if not ((score > 0.0 or tables.on_probability == 1) and score >= threshold):
                continue
        if written - begun >= room:
            return Status.MATCH_LIMIT
        if written == output.score.size:
            return Status.OUTPUT_FULL
        for position in range(tables.length):
            output.slots[position, written] = -1
        for depth in range(level + 1):
            output.slots[state.place[depth], written] = state.node[depth]
        output.score[written] = score
        output.probability[written] = weight
        output.match_end[written] = completes
        written += 1
    if tables.knows_probability and written > begun:
        if tables.least_probability == 0.0:
            total = evidence(tables, state, instances, slot, base, oldest, window_start)
        written = _with_shares(tables, output, begun, written, total, now)
    output.written[0] = written
    found = written - begun
    state.counters[ArrivalCounter.EDGES] += seen
    state.counters[ArrivalCounter.MATCHES] += found
    if found > 0:
        state.counters[ArrivalCounter.AT_LATEST] = found + (
            state.counters[ArrivalCounter.AT_LATEST] if state.counters[ArrivalCounter.LATEST_TICK] == now else 0
        )
        state.counters[ArrivalCounter.LATEST_TICK] = now
    return Status.DONE


@helper
def _with_shares(tables, output, begun, written, total, now):
    """Turn weights into probabilities, and keep only the paths that reach the threshold. Returns the row after the last
    path that is kept. `total` is the weight of all explanations in which the last event, at `now`, ends an attempt.
    """
    kept = begun
    for path in range(begun, written):
        weight = output.probability[path]
        every = total
        if tables.negatives_at_end.size > 0:
            left = output.match_end[path] - now + 1
            weight *= weight_at(tables.curves, tables.at_end[AtEnd.PATH], left)
            every *= weight_at(tables.curves, tables.at_end[AtEnd.EVERY], left)
        whole = tables.last_prior * every + 1.0 - tables.last_prior
        probability = min(weight / whole, 1.0) if whole > 0.0 else 0.0
        if probability >= tables.least_probability and (probability > 0.0 or tables.on_probability == 0):
            for position in range(tables.length):
                output.slots[position, kept] = output.slots[position, path]
            output.score[kept] = output.score[path]
            output.probability[kept] = probability
            output.match_end[kept] = output.match_end[path]
            kept += 1
    return kept


@helper
def _late_forbidden(tables, state, instances, level, base, oldest, window_start):
    """Whether a negative event forbids a complete path. Only for negative components whose tests read components before
    their interval.
    """
    for depth in range(level + 1):
        # Below the last level an edge is still being tried; at the last it has already advanced.
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


def scan(
    tables: ArrivalTables,
    state: ArrivalState,
    instances: Instances,
    first: int,
    last: int,
    output: ArrivalOutput,
    *,
    matches_max: int = NO_LIMIT,
) -> tuple[Status, int, ArrivalOutput]:
    """Read the instances in slots `first` to `last` - 1. Returns the status, the position, and the output with the
    matches.

    The status is OUTPUT_FULL if there are more than `matches_max` matches.
    """
    position = first
    pieces = Pieces(last)
    while True:
        status, position = _scan(tables, state, instances, position, pieces.end(position), output)
        if status == Status.OUTPUT_FULL and len(output.score) <= matches_max:
            output = grown(tables, output)
        elif status != Status.DONE or position == last:
            return Status(status), position, output


@kernel
def _scan(
    tables: ArrivalTables, state: ArrivalState, instances: Instances, first: int, last: int, output: ArrivalOutput
):
    end = instances.end
    links = state.links
    counters = state.counters
    last_position = tables.length - 1
    oldest = counters[ArrivalCounter.OLDEST]
    status = Status.DONE
    slot = first
    while slot < last:
        component = instances.component[slot]
        place = tables.position[component]
        base = np.int64(instances.key[slot]) * tables.components
        window_start = _window_start(end[slot], tables.window)
        while end[oldest] < window_start:
            oldest += 1
        if place < 0:
            push(links, state.queues, base + component, slot)
            counters[ArrivalCounter.INSTANCES] += 1
            slot += 1
            continue
        upper = 1.0
        if tables.bounds:
            upper = upper_bound(tables, state, instances, base, place, slot, oldest)
        reaches = (upper > 0.0 or tables.on_probability == 1) and upper * SLACK >= tables.threshold
        if place < last_position:
            own = base + component
            below = push(links, state.queues, own, slot)
            state.upper[slot] = upper
            if reaches:
                links[slot, QueueLink.KEPT] = slot
                keep(links, state.queues, state.upper, own, slot)
                counters[ArrivalCounter.KEPT] += 1
            else:
                links[slot, QueueLink.KEPT] = links[below, QueueLink.KEPT] if below >= 0 else -1
        elif reaches:
            counters[ArrivalCounter.OLDEST] = oldest
            counters[ArrivalCounter.SEARCHES] += 1
            status = search(tables, state, instances, slot, base, oldest, window_start, output)
            if status != Status.DONE:
                break
        counters[ArrivalCounter.INSTANCES] += 1
        slot += 1
    counters[ArrivalCounter.OLDEST] = oldest
    return status, slot


@kernel
def allowed_at_end(
    tables: ArrivalTables,
    state: ArrivalState,
    instances: Instances,
    slots: Matrix[np.int32],
    allowed: NDArray[np.uint8],
):
    """For each path, write whether no event of a negated end was observed before its window ended."""
    last_position = tables.length - 1
    for path in range(slots.shape[1]):
        for position in range(tables.length):
            slot = slots[position, path]
            state.missing[position] = slot < 0
            if slot >= 0:
                state.bound[tables.component_at[position]] = slot
        last = slots[last_position, path]
        base = np.int64(instances.key[last]) * tables.components
        last_tick = deadline(instances.start[slots[0, path]], tables.window)
        before = last_tick + 1 if last_tick < LATEST else LATEST
        allowed[path] = 1
        for entry in range(tables.negatives_at_end.size):
            negative = tables.negatives_at_end[entry]
            if is_forbidden(tables, state, instances, negative, base, 0, instances.end[last], before):
                allowed[path] = 0
                break


@helper(inline=True)
def _window_start(now, window):
    """The earliest start that is still within the window of a match that ends now."""
    lowest = np.int64(INT64_MIN) + 1
    return now - window + 1 if now >= lowest + window else lowest


@kernel
def describe(
    slots: Matrix[np.int32],
    count: int,
    described: Matrix[np.int32],
    offsets: NDArray[np.int32],
    missing: NDArray[np.int64],
) -> int:
    """Write two things about the first `count` matches: `described`, their slots with one more row for the first event;
    and `missing`, their missing positions match by match, with offsets. Returns the number of missing positions.
    """
    last = slots.shape[0]
    total = 0
    for match in range(count):
        offsets[match] = total
        described[last, match] = -1
        for position in range(last):
            slot = slots[position, match]
            described[position, match] = slot
            if slot < 0:
                missing[total] = position
                total += 1
            elif described[last, match] < 0:
                described[last, match] = slot
    offsets[count] = total
    return total
