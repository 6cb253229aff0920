"""Totals over parts of a stream that were counted separately; each part emits its total whenever it changes.

The parts of a group are the leaves of a tree whose inner nodes are sums, so a change takes as many steps as the tree is
high.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.aggregate.columns import climb
from ouzel.engines.aggregate.tables import NOTHING, MeasureKind
from ouzel.kernels.arrays import Matrix
from ouzel.kernels.jit import helper, kernel


class ChangeKind(IntEnum):
    """What a row of a part means."""

    CARRIED = 0  # its state before the time bucket
    CHANGED = 1
    COMPLETED = 2  # a match was completed


class Changes(NamedTuple):
    """The totals of parts over time, in order of segment and tick. A segment is a group in a time bucket; a part
    without rows in a segment is empty there."""

    segment: NDArray[np.int64]
    tick: NDArray[np.int64]
    part: NDArray[np.int32]
    kind: NDArray[np.uint8]
    words: Matrix[np.uint64]  # [row, word], as in CounterOutput
    reals: Matrix[np.float64]


class Totals(NamedTuple):
    """The totals over all parts of a segment after a timestamp, and before it."""

    row: NDArray[np.int64]  # the last change of the timestamp
    completed: NDArray[np.uint8]
    words: Matrix[np.uint64]
    reals: Matrix[np.float64]
    before_words: Matrix[np.uint64]  # empty unless changes are emitted
    before_reals: Matrix[np.float64]


def total_changes(changes: Changes, kinds: NDArray[np.int64], parts: int, *, on_change: bool) -> Totals:
    """The totals at every timestamp at which a match completes or, with `on_change`, anything changes.

    `kinds` has the MeasureKind of each measure.

    >>> words = np.array([[2, 0], [3, 0], [0, 0]], np.uint64)
    >>> kind = np.array([ChangeKind.COMPLETED, ChangeKind.COMPLETED, ChangeKind.CHANGED], np.uint8)
    >>> changes = Changes(np.zeros(3, np.int64), np.array([5, 6, 7]), np.array([0, 1, 0], np.int32), kind, words,
    ...                   words[:, :1].astype(np.float64))
    >>> total_changes(changes, np.zeros(0, np.int64), 2, on_change=False).words.tolist()
    [[2, 0], [5, 0]]
    """
    leaves = 1
    while leaves < parts:
        leaves *= 2
    rows, (_, words), (_, reals) = len(changes.tick), changes.words.shape, changes.reals.shape
    kept = rows if on_change else 0
    totals = Totals(
        np.empty(rows, np.int64),
        np.empty(rows, np.uint8),
        np.empty((rows, words), np.uint64),
        np.empty((rows, reals), np.float64),
        np.empty((kept, words), np.uint64),
        np.empty((kept, reals), np.float64),
    )
    tree_words, tree_reals = np.zeros((2 * leaves, words), np.uint64), np.zeros((2 * leaves, reals), np.float64)
    count = _total(changes, kinds, leaves, tree_words, tree_reals, on_change, totals)
    return Totals._make(array[:count] for array in totals)


_NOTHING = np.uint64(NOTHING)


@kernel
def _total(
    changes: Changes,
    kinds: NDArray[np.int64],
    leaves: int,
    tree_words: Matrix[np.uint64],
    tree_reals: Matrix[np.float64],
    on_change: bool,
    totals: Totals,
):
    written = 0
    row = 0
    while row < changes.tick.size:
        if row == 0 or changes.segment[row] != changes.segment[row - 1]:
            _clear(kinds, tree_words, tree_reals)
        first = row
        kind = np.int64(ChangeKind.CARRIED)  # Numba has no max of an enum member.
        if on_change:
            _copy(tree_words[1], tree_reals[1], totals.before_words[written], totals.before_reals[written])
        while (
            row < changes.tick.size
            and changes.segment[row] == changes.segment[first]
            and changes.tick[row] == changes.tick[first]
        ):
            kind = max(kind, changes.kind[row])
            leaf = leaves + changes.part[row]
            _copy(changes.words[row], changes.reals[row], tree_words[leaf], tree_reals[leaf])
            climb(kinds, tree_words, tree_reals, leaf)
            row += 1
        if kind == ChangeKind.COMPLETED or (on_change and kind != ChangeKind.CARRIED):
            totals.row[written] = row - 1
            totals.completed[written] = kind == ChangeKind.COMPLETED
            _copy(tree_words[1], tree_reals[1], totals.words[written], totals.reals[written])
            written += 1
    return written


@helper
def _clear(kinds, tree_words, tree_reals):
    tree_words[:] = np.uint64(0)
    tree_reals[:] = 0.0
    for measure in range(kinds.size):
        if kinds[measure] == MeasureKind.LEAST:
            tree_words[:, 2 + 2 * measure] = _NOTHING


@helper
def _copy(words, reals, to_words, to_reals):
    for place in range(words.size):
        to_words[place] = words[place]
    for place in range(reals.size):
        to_reals[place] = reals[place]
