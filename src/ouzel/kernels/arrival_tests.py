"""Tests of the arrival kernel: conjuncts in the form for what is missing, and negatives between two moments."""

from __future__ import annotations

import numpy as np

from ouzel.kernels.arrival_queues import last_before
from ouzel.kernels.arrival_tables import ALWAYS, ByNegative, ByTest, Link, Queue
from ouzel.kernels.jit import helper
from ouzel.kernels.predicates import holds
from ouzel.kernels.stack_tables import EVERY_KEY


@helper(inline=True)
def tests_pass(tables, state, instances, first, last):
    """Whether tests hold, each in the form for what is missing."""
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
        node = state.links[node, Link.BELOW]
    return False


@helper
def is_forbidden(tables, state, instances, component, base, oldest, after, before):
    """Whether an instance of a negative component lies wholly between two moments and passes its tests."""
    if _forbids_in(tables, state, instances, component, base + component, oldest, after, before):
        return True
    if base != EVERY_KEY and tables.by_negative[component, ByNegative.EVERYWHERE]:
        everywhere = EVERY_KEY * tables.components + component
        return _forbids_in(tables, state, instances, component, everywhere, oldest, after, before)
    return False
