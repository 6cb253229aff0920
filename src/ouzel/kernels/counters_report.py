"""Moments and rows: which moment comes next, which groups it touches, and which of them are told of it."""

from __future__ import annotations

import numpy as np

from ouzel.kernels.counters_tables import NO_WINDOW, ByMeasure, Counter, MeasureKind
from ouzel.kernels.jit import helper

_LATEST = np.int64(2**63 - 1)

# What `emit` wants next.
NOTHING_LEFT = -1
FULL = -2


@helper(inline=True)
def next_moment(tables, comes, event_tick, leaves, oldest_tick, until):
    """(whether there is one, the next moment at which something may be told).

    Expiry is a moment of its own only where EMIT ON CHANGE asks for it.
    """
    if tables.on_change and leaves and tables.window != NO_WINDOW and oldest_tick <= _LATEST - tables.window:
        expiry = oldest_tick + tables.window
        if expiry <= until and (not comes or expiry < event_tick):
            return True, expiry
    return comes, event_tick


@helper(inline=True)
def touch(tables, groups, counters, group):
    """Note that a moment may change a group: the place where its values before the moment belong, or -1 if nobody
    will ask for them."""
    if groups.mark[group] != 0:
        return -1
    groups.mark[group] = 1
    place = counters[Counter.TOUCHED]
    groups.touched[place] = group
    counters[Counter.TOUCHED] += 1
    return place if tables.on_change else -1


@helper(inline=True)
def complete(groups, group):
    """A match completes in a group that was touched."""
    groups.mark[group] = 2


@helper(inline=True)
def emit(tables, groups, counters, scratch, output):
    """The next group whose values are to be read into scratch, NOTHING_LEFT, or FULL if the output has no room.

    Called in turns with the reading: what was read is written down at the next call.
    """
    while counters[Counter.EMITTED] < 2 * counters[Counter.TOUCHED]:
        place = counters[Counter.EMITTED] // 2
        group = groups.touched[place]
        if counters[Counter.EMITTED] % 2 == 0:
            if output.written[0] == output.tick.size:
                return FULL
            if groups.mark[group] != 2 and not tables.on_change:
                groups.mark[group] = 0
                counters[Counter.EMITTED] += 2
                continue
            counters[Counter.EMITTED] += 1
            return group
        counters[Counter.EMITTED] += 1
        completed = groups.mark[group] == 2
        told = completed
        if not told:
            told = _differs(tables, groups.before_words[place], groups.before_reals[place], scratch)
        groups.mark[group] = 0
        if told:
            written = output.written[0]
            output.tick[written] = counters[Counter.MOMENT]
            output.group[written] = group
            output.completed[written] = completed
            for word in range(scratch.words.size):
                output.words[written, word] = scratch.words[word]
                if tables.on_change:
                    output.before_words[written, word] = groups.before_words[place, word]
            for real in range(scratch.reals.size):
                output.reals[written, real] = scratch.reals[real]
                if tables.on_change:
                    output.before_reals[written, real] = groups.before_reals[place, real]
            output.written[0] += 1
            counters[Counter.ROWS] += 1
    counters[Counter.TOUCHED] = 0
    counters[Counter.EMITTED] = 0
    return NOTHING_LEFT


@helper
def _differs(tables, words, reals, scratch):
    """Whether any value has changed. Two NaN are the same."""
    for place in range(words.size):
        if words[place] != scratch.words[place]:
            return True
    for measure in range(tables.by_measure.shape[0]):
        if tables.by_measure[measure, ByMeasure.KIND] == MeasureKind.FLOAT:
            before = reals[1 + measure]
            after = scratch.reals[1 + measure]
            if before != after and not (before != before and after != after):
                return True
    return False
