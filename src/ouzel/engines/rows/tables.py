"""The arrays of a row pattern: its automaton, the rows, the state of the search, and the matches."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import Cube, Matrix, ReadOnly

# In a list of what may come next: the match may end here.
ACCEPT = -1


class Tables(NamedTuple):
    """An automaton as arrays. Sets of positions are 64-bit words, and sets of variables are bytes."""

    taking: Cube[np.uint64]  # [byte of the variables, its value]: the positions of these variables
    before: Cube[np.uint64]  # [byte of the positions, its value]: the positions that one of these may follow
    accepting: NDArray[np.uint64]
    ending: NDArray[np.uint64]  # where no row is left
    continuing: NDArray[np.uint64]  # where it is not known which row comes next: all that may end or go on
    follow_at: NDArray[np.int32]  # where the list of each position begins; the two starts come last
    follow: NDArray[np.int32]
    variable: NDArray[np.int32]


class Skipping(IntEnum):
    """Where the search continues after a match."""

    PAST_LAST_ROW = 0
    TO_NEXT_ROW = 1
    TO_FIRST = 2
    TO_LAST = 3


class Ended(IntEnum):
    """Why a call returned."""

    DONE = 0
    MATCHES_FULL = 1  # more room is needed; then call again
    POSITIONS_FULL = 2
    NO_TARGET = 3  # the match has no row of the variable to skip to
    TARGET_IS_FIRST = 4  # it is the first row of the match: the search would never go on
    STEP_LIMIT = 5
    TEST = 6  # a condition that only the caller can test
    PATH_FULL = 7  # the attempt needs more room
    PAUSE = 8  # many steps were taken; the caller may be interrupted


class At(IntEnum):
    """The entries of the search state: where the search is."""

    PARTITION = 0
    ROW = 1  # the first row of the attempt; -1: a new partition
    NUMBER = 2  # of the next match of the partition
    MATCHES = 3
    POSITIONS = 4
    # Of a search that looks at the match:
    DEPTH = 5  # rows of the match so far; -1: a new attempt
    STEPS = 6  # of this attempt
    ANSWER = 7  # of the caller to a test: 0 or 1; -1: none
    ATTEMPT = 8  # the number of attempts so far
    UNPAUSED = 9  # steps since the last pause


class Partitions(NamedTuple):
    """The rows of partitions, one partition after the other. More rows of a partition may come, unless it is
    `complete`.

    A row is known if all rows that its conditions read have arrived. The search in a partition begins at its `start`,
    and then sets `start` to the first row whose match is not decided.
    """

    bounds: NDArray[np.int64]  # where each partition begins, and the number of rows
    known: NDArray[np.int64]  # behind the last known row of each
    origin: NDArray[np.int64]  # the first row that a partition ever had; -1 if it is not there any more
    start: NDArray[np.int64]
    complete: NDArray[np.bool_]


class RowEvents(NamedTuple):
    """The rows that an operator holds."""

    key: ReadOnly[NDArray[np.int32]]  # of the partition
    end: ReadOnly[NDArray[np.int64]]  # the tick; may be memory of the input
    is_tried: NDArray[np.bool_]  # whether it starts a match is decided; it is held for others, or is about to leave
    is_first: NDArray[np.bool_]  # of all rows that its partition ever had


class Matches(NamedTuple):
    """Matches in the order in which they are found. The positions of their rows are concatenated."""

    partition: NDArray[np.int64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]  # 0: an empty match
    number: NDArray[np.int64]
    positions: NDArray[np.int32]


class Total(IntEnum):
    """What a register holds."""

    ROWS = 0
    VALUES = 1
    SUM_INT = 2
    SUM_FLOAT = 3
    MEAN = 4
    LEAST_INT = 5
    GREATEST_INT = 6
    LEAST_FLOAT = 7
    GREATEST_FLOAT = 8
    SUM_DECIMAL = 9  # null beyond the digits of a decimal
    LABEL = 10  # a value of the label of a row
    NUMBER = 11  # of the match


class Reading(NamedTuple):
    """What conditions read of the match: rows, and registers with aggregates over the rows of the match."""

    sets: Matrix[np.bool_]  # [set, variable]
    row_set: NDArray[np.int32]  # of each row that conditions read
    row_first: NDArray[np.bool_]
    row_offset: NDArray[np.int64]
    row_shift: NDArray[np.int64]
    register: NDArray[np.int32]  # Total
    register_set: NDArray[np.int32]  # the set, or of LABEL the row
    register_lane: NDArray[np.int32]
    label_ints: Matrix[np.int64]  # [register, variable; the last: no label]
    label_floats: Matrix[np.float64]
    label_nulls: Matrix[np.uint8]
    conjunct_at: NDArray[np.int32]  # the first conjunct of each variable
    asks: NDArray[np.bool_]  # the variables with a condition that only the caller can test; empty: nothing is read
    # For each start the first row outside the window; the row behind the partition if that row is yet to come, and one
    # further if rows inside the window may still come. Empty without a window.
    window_end: NDArray[np.int64]


class Path(NamedTuple):
    """The current attempt, by depth."""

    place: NDArray[np.int64]  # of the next alternative
    position: NDArray[np.int32]
    members: Matrix[np.int64]  # [set, number]: the rows of a set
    counts: Matrix[np.int64]  # [set, depth]
    ints: Matrix[np.int64]  # [register, depth]
    floats: Matrix[np.float64]
    values: Matrix[np.int64]  # [register, depth]: how many values it has; -1 after an overflow
    failed: Matrix[
        np.int64
    ]  # [position, depth]: the attempt in which it led nowhere; empty if that depends on the path


class Suffix(IntEnum):
    """What is stored of the part of a match from a row on. The first four are rows; -1 if there is none."""

    FIRST = 0
    LAST = 1
    LEAST = 2
    GREATEST = 3
    COUNT = 4
    SUM = 5


class Entries(NamedTuple):
    """The rows of all matches, concatenated, as one aggregate or navigation reads them."""

    begin: NDArray[np.int64]  # the first entry of each match, and the number of entries
    starts: NDArray[np.int64]  # the row, or the value, of the first entry of each match
    positions: NDArray[np.int32]  # at which each was taken; -1: the one entry of an empty match
    member: NDArray[np.bool_]  # the positions that count
