"""Arrays of the graph kernel: what it remembers between calls, and the matches or roots that it finds.

A *cell* is an event at a place. All cells of a place and partition are a chain, newest first, so a cell needs no list
of its predecessors: they are the chain from some cell down. (CORE's enumerable compact sets have union nodes for that;
here the chain is the union.) A query is described by the run kernel's tables.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.predicate_tables import Values, new_values
from ouzel.kernels.run_tables import RunTables

# In place of a chain: the cell begins the match.
STARTS = -2


class GraphCounter(IntEnum):
    """Places in `GraphState.counters`."""

    CELLS = 0
    MOMENT = 1  # the tick of the latest matches
    AT_MOMENT = 2  # how many there were at it
    EVENTS = 3  # read
    TESTS = 4  # predicates between neighbours
    ROOTS = 5  # cells that complete matches
    MATCHES = 6  # listed


class Cells(NamedTuple):
    """Cells in stream order."""

    event: NDArray[np.int32]  # slot
    place: NDArray[np.uint8]
    proceeds: NDArray[np.uint8]  # the proceed edge of its place holds here
    begin: NDArray[np.int32]  # the newest cell of the place before that it may follow; STARTS; or -1
    take: NDArray[np.int32]  # the newest cell of its own place that it may follow, or -1
    below: NDArray[np.int32]  # the next older cell of its chain
    newest: NDArray[np.int64]  # start (or position) of the youngest run that ends here
    reach: NDArray[np.int64]  # the largest `newest` from here down the chain


class GraphState(NamedTuple):
    """What is remembered between calls: plain arrays."""

    cells: Cells
    head: NDArray[np.int32]  # [key * length + place]: the newest cell of that chain
    counters: NDArray[np.int64]  # by GraphCounter
    # Scratch; nothing in it outlives a call.
    bound: NDArray[np.int32]  # per reference
    path: NDArray[np.int32]  # per depth: the cell
    cursor: NDArray[np.int32]  # per depth: the next candidate
    phase: NDArray[np.uint8]  # per depth
    values: Values


def new_graph_state(tables: RunTables, references: int, key_capacity: int = 1) -> GraphState:
    """The state before the first event."""
    empty = np.empty(0, np.int32)
    counters = np.zeros(len(GraphCounter), np.int64)
    counters[GraphCounter.MOMENT] = -(2**63)
    state = GraphState(
        cells=Cells(
            empty,
            np.empty(0, np.uint8),
            np.empty(0, np.uint8),
            empty,
            empty,
            empty,
            np.empty(0, np.int64),
            np.empty(0, np.int64),
        ),
        head=empty,
        counters=counters,
        bound=np.zeros(max(references, 1), np.int32),
        path=empty,
        cursor=empty,
        phase=np.empty(0, np.uint8),
        values=new_values(tables.predicates),
    )
    return reserve_heads(tables, reserve_cells(state, 256), key_capacity)


def reserve_heads(tables: RunTables, state: GraphState, keys: int) -> GraphState:
    """A state with room for so many keys at least."""
    return state._replace(head=_enlarged(state.head, keys * tables.length, -1))


def reserve_cells(state: GraphState, count: int) -> GraphState:
    """A state with room for so many cells at least."""
    if len(state.cells.event) >= count:
        return state
    return state._replace(
        cells=Cells(*(_enlarged(array, count, 0) for array in state.cells)),
        path=np.empty(count + 1, np.int32),
        cursor=np.empty(count + 1, np.int32),
        phase=np.empty(count + 1, np.uint8),
    )


def _enlarged(array: NDArray, length: int, fill: int) -> NDArray:  # type: ignore[type-arg]
    if len(array) >= length:
        return array
    larger = np.full((length, *array.shape[1:]), fill, array.dtype)
    larger[: len(array)] = array
    return larger


class GraphOutput(NamedTuple):
    """Matches, written out, or with OUTPUT COMPRESSED the cells that complete them.

    `found[0]` counts the rows, `found[1]` the slots in use; `found[2]` and `found[3]` are how many there would be had
    there been room.
    """

    end: NDArray[np.int64]  # per row
    key: NDArray[np.int32]  # per row
    root: NDArray[np.int32]  # per row: the cell that completes it
    oldest: NDArray[np.int64]  # per row: the earliest start (or position) within the window
    lengths: NDArray[np.int32]  # [row, place]
    slots: NDArray[np.int32]  # of all matches, one behind the other
    found: NDArray[np.int64]


def new_graph_output(tables: RunTables, rows: int = 1024, slots: int = 8192) -> GraphOutput:
    return GraphOutput(
        np.empty(rows, np.int64),
        np.empty(rows, np.int32),
        np.empty(rows, np.int32),
        np.empty(rows, np.int64),
        np.zeros((rows, tables.length), np.int32),
        np.empty(slots, np.int32),
        np.zeros(4, np.int64),
    )


def larger_graph_output(output: GraphOutput) -> GraphOutput:
    """Twice the room, or as much as was found to be needed, with what is there."""
    rows = max(2 * len(output.end), int(output.found[2]))
    slots = max(2 * len(output.slots), int(output.found[3]))
    return GraphOutput(
        _enlarged(output.end, rows, 0),
        _enlarged(output.key, rows, 0),
        _enlarged(output.root, rows, 0),
        _enlarged(output.oldest, rows, 0),
        _enlarged(output.lengths, rows, 0),
        _enlarged(output.slots, slots, 0),
        output.found,
    )
