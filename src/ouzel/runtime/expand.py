"""`ouzel.expand`: matches listed out of the rows of OUTPUT COMPRESSED."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.errors import InputError
from ouzel.kernels.graph_paths import Listed, Row, events_of, list_paths, paths_to_cells
from ouzel.kernels.graph_state import STARTS
from ouzel.lang.syntax import OutputForm
from ouzel.prepared import Query, as_queries
from ouzel.runtime.compressed import GRAPH, graph_of, rows_of
from ouzel.runtime.inputs import as_table
from ouzel.runtime.layout import ticks_of
from ouzel.runtime.match_transform import Matches, transform_matches
from ouzel.runtime.program import make_program
from ouzel.runtime.transform import output_schema
from ouzel.runtime.values import one_array

_NO_LIMIT = 2**62


def expand(
    table: Any,
    query: Query | str,
    *,
    first: int | None = None,
    sample: int | None = None,
    seed: int | None = None,
    time: str = "ts",
    type: str | None = "type",
    order: Collection[str] = (),
    time_unit: str | None = None,
) -> pa.Table:
    """The matches that rows of OUTPUT COMPRESSED stand for: all, the first few, or a uniform sample of them.

    `table` is what the query answered, or some rows of it, perhaps stored and read back. The other arguments are those
    of `match`. Matches come row by row, within a row by the start of their first event and then by their events in
    stream order. A sample holds each match at most once.

    >>> import ouzel
    >>> text = "PATTERN SEQ(A+ a[], B b) WITHIN 9 OUTPUT COMPRESSED RETURN R(a.ts AS a, b.ts AS b)"
    >>> events = [{"type": "A", "ts": 1}, {"type": "A", "ts": 2}, {"type": "B", "ts": 3}]
    >>> rows = ouzel.match(events, text)
    >>> rows["count"].to_pylist()
    ['3']
    >>> [match["a"] for match in expand(rows, text).to_pylist()]
    [[1, 2], [1], [2]]
    """
    if first is not None and sample is not None:
        raise InputError("expand() takes first= or sample=, not both")
    for name, given in (("first", first), ("sample", sample)):
        if given is not None and given < 0:
            raise InputError(f"{name}={given} is negative")
    compressed = as_table(table)
    if GRAPH not in compressed.column_names:
        raise InputError("this table has no column 'graph'; expand() lists what OUTPUT COMPRESSED answered")
    column = one_array(compressed.column(GRAPH))
    events, graph = graph_of(column)
    prepared = as_queries(query)
    program = make_program(
        prepared, pa.schema(list(events.type)), time=time, type=type, order=order, time_unit=time_unit
    )
    (bound,) = program.queries
    if bound.output.form is not OutputForm.COMPRESSED:
        raise InputError(f"the query '{bound.name}' does not say OUTPUT COMPRESSED; this is not its answer")
    event_table = pa.table(events.flatten(), schema=program.layout.schema)
    ticks = ticks_of(event_table, program.layout)
    ends = ticks_of(compressed.select(["end"]).rename_columns([program.layout.time]), program.layout)
    rows = rows_of(graph)
    wanted = _sampled(rows, sample, seed) if sample is not None else None
    left = _NO_LIMIT if first is None else first
    lengths, event_rows, starts, match_ends = [], [], [], []
    places = len(bound.positives)
    for number, row in enumerate(rows):
        base = graph.event_bounds[number]
        listed = (
            list_paths(row, ticks[base : graph.event_bounds[number + 1]], left)
            if wanted is None
            else _unranked(row, wanted[number])
        )
        count = len(listed.bounds) - 1
        if not count:
            continue
        left -= count
        counted, chosen = events_of(row, listed.bounds, listed.cells, places, int(base))
        lengths.append(counted)
        event_rows.append(chosen)
        starts.append(ticks[event_rows[-1][listed.bounds[:-1]]])
        match_ends.append(np.full(count, ends[number]))
    if not lengths:
        return output_schema(bound, program.layout).empty_table()
    matches = Matches(
        event_table,
        ticks,
        np.concatenate(lengths),
        np.concatenate(event_rows),
        np.concatenate(starts),
        np.concatenate(match_ends),
    )
    return transform_matches(bound, program.layout, matches)


def _sampled(rows: list[Row], sample: int, seed: int | None) -> list[list[int]]:
    """For each row the numbers of the matches that are chosen, out of all matches of all rows."""
    totals = []
    for row in rows:
        counts = paths_to_cells(row)
        totals.append(sum(counts[root] for root in row.root_cell.tolist()))
    total = sum(totals)
    generator = random.Random(seed)
    if sample * 2 >= total:
        chosen = set(generator.sample(range(total), min(sample, total)))
    else:
        chosen = set()
        while len(chosen) < sample:
            chosen.add(generator.randrange(total))
    found: list[list[int]] = []
    ordered = iter(sorted(chosen))
    number = next(ordered, None)
    passed = 0
    for count in totals:
        own = []
        while number is not None and number < passed + count:
            own.append(number - passed)
            number = next(ordered, None)
        found.append(own)
        passed += count
    return found


def _unranked(row: Row, numbers: list[int]) -> Listed:
    """The matches of some numbers, counted backwards from the roots."""
    bounds, cells = [0], []
    counts = paths_to_cells(row) if numbers else []
    for number in numbers:
        path: list[int] = []
        for root in row.root_cell.tolist():
            if number < counts[root]:
                path = _path_to(row, counts, root, number)
                break
            number -= counts[root]
        cells += path
        bounds.append(len(cells))
    return Listed(np.array(bounds, np.int64), np.array(cells, np.int32))


def _path_to(row: Row, counts: list[int], cell: int, number: int) -> list[int]:
    """The way of a number to a cell, from the first cell to it."""
    path = [cell]
    while True:
        if row.cell_begin[cell] == STARTS:
            if number == 0:
                return path[::-1]
            number -= 1
        cell, number = _step_back(row, counts, cell, number)
        path.append(cell)


def _step_back(row: Row, counts: list[int], cell: int, number: int) -> tuple[int, int]:
    for link in (int(row.cell_begin[cell]), int(row.cell_take[cell])):
        while link >= 0:
            before = int(row.link_cell[link])
            if number < counts[before]:
                return before, number
            number -= counts[before]
            link = int(row.link_next[link])
    raise AssertionError("a cell has as many ways to it as were counted")
