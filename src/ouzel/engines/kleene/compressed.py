"""The table of OUTPUT COMPRESSED, with one row for each timestamp and partition: the number of matches and a graph of
them. Also `ouzel.expand`, which lists the matches in such rows.

A graph is four plain lists, which any system can store and read. The events have all columns that the output shows. A
cell is an event at a place of the pattern. Links connect cells, and the roots are the last cells of matches. See
`graph_paths`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping
from dataclasses import replace
from decimal import Decimal
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.bind import parameter_names
from ouzel.bind.model import BoundQuery
from ouzel.bind.readings import linear
from ouzel.bind.schema import attributes_of
from ouzel.engines.kleene.graph import is_row_of
from ouzel.engines.kleene.graph_paths import (
    Compressed,
    Listed,
    ListedEvents,
    Row,
    count_matches,
    events_of,
    list_paths,
    paths_to_cells,
    rows_of,
)
from ouzel.engines.kleene.graph_state import STARTS
from ouzel.engines.kleene.kernels import FoundCompressed
from ouzel.engines.kleene.plan import RunPlan
from ouzel.errors import InputError, LimitError, argument
from ouzel.lang.syntax import OutputForm
from ouzel.prepared import Query, as_queries
from ouzel.runtime.frames import take, ticks_to_time
from ouzel.runtime.inputs import as_table
from ouzel.runtime.layout import INPUT_TYPE, Layout, end_type, output_columns, ticks_of
from ouzel.runtime.output import READING, Output, UnitedMatches
from ouzel.runtime.program import layouts, make_program
from ouzel.runtime.values import empty_table, one_array

GRAPH = "graph"
_COUNT = pa.decimal128(38, 0)
_COUNT_BOUND = 10**_COUNT.precision
_CELLS = pa.struct([("event", pa.int32()), ("place", pa.int32()), ("begin", pa.int32()), ("take", pa.int32())])
_LINKS = pa.struct([("cell", pa.int32()), ("next", pa.int32())])


def compressed_schema(plan: RunPlan, layout: Layout) -> pa.Schema:
    """The columns of the answer: the timestamp, the partition, the number of matches, and the graph."""
    fields = [pa.field("end", end_type(layout, plan.query))]
    fields += [pa.field(".".join(test.path), _tested_type(layout, test.path)) for test in plan.query.equivalences]
    graph = pa.struct(
        [
            ("events", pa.list_(pa.struct([layout.schema.field(name) for name in event_columns(plan, layout)]))),
            ("cells", pa.list_(_CELLS)),
            ("links", pa.list_(_LINKS)),
            ("roots", pa.list_(pa.int32())),
        ]
    )
    return pa.schema([*fields, pa.field("count", _COUNT), pa.field(GRAPH, graph)])


def event_columns(plan: RunPlan, layout: Layout) -> list[str]:
    """The columns of the input that a graph stores for its events."""
    kept = output_columns(plan, layout) | {layout.time, *([layout.type] if layout.type is not None else [])}
    kept |= {layout.start} if layout.start is not None else set()
    kept |= {path[0] for path in (test.path for test in plan.query.equivalences)}
    return [name for name in layout.schema.names if name in kept]


def _tested_type(layout: Layout, path: tuple[str, ...]) -> pa.DataType:
    wide = path[0]
    if wide not in layout.schema.names:
        wide = next(column for (_, attribute), column in layout.physical.items() if attribute == path[0])
    found = layout.schema.field(wide).type
    for name in path[1:]:
        found = found.field(name).type
    return found


def compressed_table(
    plan: RunPlan, layout: Layout, schema: pa.Schema, found: FoundCompressed, table: pa.Table, rows: np.ndarray
) -> pa.Table:
    """The answer for some timestamps. `rows` gives the place of each event of the graphs in `table`."""
    graph = found.graph
    columns: list[pa.Array] = [ticks_to_time(layout.ticks(found.ends), schema.field("end").type)]
    # All events of a row have the values of its partition.
    first_rows = rows[graph.event_bounds[:-1]]
    for number, test in enumerate(plan.query.equivalences):
        columns.append(_tested_column(table, layout, test.path, first_rows).cast(schema.field(1 + number).type))
    columns.append(_counts(rows_of(graph)))
    fields = schema.field(GRAPH).type
    events = pa.StructArray.from_arrays(
        [take(one_array(table.column(name)), rows) for name in event_columns(plan, layout)],
        fields=list(fields.field("events").type.value_type),
    )
    cells = pa.StructArray.from_arrays(
        [pa.array(a) for a in (graph.cell_event, graph.cell_place, graph.cell_begin, graph.cell_take)],
        fields=list(_CELLS),
    )
    links = pa.StructArray.from_arrays([pa.array(graph.link_cell), pa.array(graph.link_next)], fields=list(_LINKS))
    children = [
        _lists(graph.event_bounds, events, fields.field("events").type),
        _lists(graph.cell_bounds, cells, fields.field("cells").type),
        _lists(graph.link_bounds, links, fields.field("links").type),
        _lists(graph.root_bounds, pa.array(graph.root_cell), fields.field("roots").type),
    ]
    columns.append(pa.StructArray.from_arrays(children, fields=list(fields)))
    return pa.table(columns, schema=schema)


def _counts(rows: list[Row]) -> pa.Array:
    """The number of matches of each row, null where it has more digits than the column."""
    counts = [count_matches(row) for row in rows]
    return pa.array([Decimal(count) if count < _COUNT_BOUND else None for count in counts], _COUNT)


def _tested_column(table: pa.Table, layout: Layout, path: tuple[str, ...], rows: np.ndarray) -> pa.Array:
    """The values of an [attr] attribute in some rows, from the column of the wide table that holds it."""
    wide = [column for (_, attribute), column in layout.physical.items() if attribute == path[0]]
    names = [name for name in (path[0], *wide) if name in table.column_names]
    values = [take(one_array(table.column(name)), rows) for name in names]
    for field in path[1:]:
        values = [pa.compute.struct_field(value, field) for value in values]
    return values[0] if len(values) == 1 else pa.compute.coalesce(*values)


def _lists(bounds: np.ndarray, values: pa.Array, wanted: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), values, type=wanted)


def graph_of(column: pa.StructArray) -> tuple[pa.StructArray, Compressed]:
    """(events, graph): what a graph column contains, for any number of rows. The inverse of `compressed_table`."""
    parts = [pa.compute.struct_field(column, name) for name in ("events", "cells", "links", "roots")]
    bounds = [_bounds(part) for part in parts]
    events, cells, links, roots = (part.flatten() for part in parts)

    def numbers(struct: pa.StructArray, name: str) -> np.ndarray:
        return np.asarray(pa.compute.struct_field(struct, name).to_numpy(zero_copy_only=False), dtype=np.int32)

    return events, Compressed(
        event_bounds=bounds[0],
        event_slot=np.empty(0, np.int32),
        cell_bounds=bounds[1],
        cell_event=numbers(cells, "event"),
        cell_place=numbers(cells, "place"),
        cell_begin=numbers(cells, "begin"),
        cell_take=numbers(cells, "take"),
        link_bounds=bounds[2],
        link_cell=numbers(links, "cell"),
        link_next=numbers(links, "next"),
        root_bounds=bounds[3],
        root_cell=np.asarray(roots.to_numpy(zero_copy_only=False), dtype=np.int32),
    )


def _bounds(lists: pa.ListArray) -> np.ndarray:
    lengths = pa.compute.list_value_length(lists).to_numpy(zero_copy_only=False)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


_NO_LIMIT = 2**62
# The number of matches listed at once, unless the user sets it.
MATCHES_MAX = 50_000_000


def expand(
    table: Any,
    query: Query | str | Mapping[str, Query | str],
    *,
    params: Mapping[str, Any] | None = None,
    first: int | None = None,
    sample: int | None = None,
    seed: int | None = None,
    schema: pa.Schema | Mapping[str, pa.Schema] | None = None,
    max_matches: int = MATCHES_MAX,
    time: str = "ts",
    type: str | None = "type",
    order: Collection[str] = (),
    time_unit: str | None = None,
) -> pa.Table:
    """The matches in rows of OUTPUT COMPRESSED: all, the first few, or a uniform sample of them.

    `table` is the answer of the query, or some rows of it, perhaps stored and read back. With several queries, the one
    with OUTPUT COMPRESSED is meant. `schema` gives the columns of the input if the query reads several inputs (one
    schema for each) or the results of other queries; otherwise the rows are enough. At most `max_matches` are listed at
    once. The other arguments are those of `match`.

    Matches come row by row, within a row by the start of their first event, and always in the same order. A sample has
    each match at most once.

    >>> import ouzel
    >>> text = "PATTERN SEQ(A+ a[], B b) WITHIN 9 OUTPUT COMPRESSED RETURN R(a.ts AS a, b.ts AS b)"
    >>> events = [{"type": "A", "ts": 1}, {"type": "A", "ts": 2}, {"type": "B", "ts": 3}]
    >>> rows = ouzel.match(events, text)
    >>> rows["count"].to_pylist()
    [Decimal('3')]
    >>> [match["a"] for match in expand(rows, text).to_pylist()]
    [[1, 2], [1], [2]]
    """
    check_numbers(first, sample, seed)
    compressed = as_table(table.toArrow() if hasattr(table, "toArrow") else table)
    if GRAPH not in compressed.column_names:
        raise InputError("this table has no column 'graph'; expand() needs the answer of OUTPUT COMPRESSED")
    options = {"time": time, "type": type, "order": order, "time_unit": time_unit}
    bound, layout = reading(as_queries(query, params), compressed.schema, schema, options)
    return listed(bound, layout, compressed, first=first, sample=sample, seed=seed, max_matches=max_matches)


def listed(
    bound: BoundQuery,
    layout: Layout,
    compressed: pa.Table,
    *,
    first: int | None = None,
    sample: int | None = None,
    seed: int | None = None,
    max_matches: int = MATCHES_MAX,
) -> pa.Table:
    """The matches in compressed rows, like `expand`, for a query that is already bound."""
    if compressed.column(GRAPH).null_count:
        raise InputError(
            "some of these rows have no graph (null); expand() needs the unchanged rows of OUTPUT COMPRESSED"
        )
    events, graph = graph_of(one_array(compressed.column(GRAPH)))
    rows = rows_of(graph)
    queries = linear(bound) if bound.readings else (bound,)
    numbers = _reading_numbers(compressed, bound)
    _check_rows(rows, graph.event_bounds, [queries[number] for number in numbers])
    wanted = _sampled(rows, sample, seed) if sample is not None else None
    if first is None and sample is None:
        _check_total(rows, max_matches)
    columns = dict(zip((field.name for field in events.type), events.flatten(), strict=True))
    event_table = pa.table(
        [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(len(events), field.type)
            for field in layout.schema
        ],
        schema=layout.schema,
    )
    ticks = ticks_of(event_table, layout)
    event_starts = ticks if layout.start is None else event_table.column(layout.start).to_numpy()
    end = compressed.column("end").cast(end_type(layout, bound))
    ends = ticks_of(pa.table({layout.time: end}), layout)
    left: int = _NO_LIMIT if first is None else first
    output = Output(bound, layout)
    found = [empty_table(output.schema)]
    for number, together in groupby(range(len(rows)), key=lambda row: numbers[row]):
        places = len(queries[number].positives)
        by_row: list[ListedEvents] = []
        starts, match_ends = [], []
        for at in together:
            row, base = rows[at], int(graph.event_bounds[at])
            if wanted is None:
                one = list_paths(row, event_starts[base : graph.event_bounds[at + 1]], left, places, base)
            else:
                one = events_of(row, _unranked(row, wanted[at]), places, base)
            count = one.bounds.shape[1] - 1
            if not count:
                continue
            left -= count
            by_row.append(one)
            starts.append(event_starts[one.rows[0][one.bounds[0, :-1]]])
            match_ends.append(np.full(count, ends[at]))
        if by_row:
            joined = [_side_by_side(by_row, place) for place in range(places)]
            lists = dict(zip(_components(bound, number), joined, strict=True))
            united = [_place(lists.get(c.position), c.kleene, sum(map(len, starts))) for c in bound.positives]
            matches = UnitedMatches(event_table, ticks, united, _joined(starts), _joined(match_ends))
            found.append(output.of_matches(matches))
    return pa.concat_tables(found[1:]) if len(found) > 1 else found[0]


def _components(bound: BoundQuery, reading: int) -> list[int]:
    """The positive components of a reading."""
    steps = [step.component for step in bound.readings[reading]] if bound.readings else range(len(bound.components))
    return [component for component in steps if not bound.components[component].negated]


def _place(
    lists: tuple[np.ndarray, np.ndarray] | None, kleene: bool, matches: int
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """The events of a component in some matches. Either all these matches have the component or none does."""
    if lists is None:
        return (np.zeros(matches + 1, np.int64), np.zeros(0, np.int32)) if kleene else np.full(matches, -1, np.int32)
    return lists if kleene else lists[1]


def _reading_numbers(compressed: pa.Table, bound: BoundQuery) -> list[int]:
    """The reading of each row, counted from 0."""
    if not bound.readings:
        return [0] * compressed.num_rows
    given: list[Any] = compressed.column(READING).to_pylist() if READING in compressed.column_names else [None]
    if not all(isinstance(number, int) and 1 <= number <= len(bound.readings) for number in given):
        raise InputError(
            f"the column '{READING}' must have numbers of readings of query '{bound.name}', 1 to "
            f"{len(bound.readings)}; give expand() the query that made these rows"
        )
    return [number - 1 for number in given]


def _side_by_side(by_row: list[ListedEvents], place: int) -> tuple[np.ndarray, np.ndarray]:
    """(offsets, rows): the events at a place of the pattern, for the matches of all compressed rows in turn."""
    if len(by_row) == 1:
        return by_row[0].bounds[place], by_row[0].rows[place]
    lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(found.bounds[place]) for found in by_row)])
    return np.cumsum(lengths), np.concatenate([found.rows[place] for found in by_row])


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def check_numbers(first: int | None, sample: int | None, seed: int | None) -> None:
    """Refuse values of `first`, `sample` and `seed` that are out of range or contradict each other."""
    if seed is not None and sample is None:
        raise InputError(
            argument("seed"), " needs a sample; say how many matches to choose with ", argument("sample", 10)
        )
    if first is not None and sample is not None:
        raise InputError("expand() takes ", argument("first"), " or ", argument("sample"), ", not both")
    for name, given in (("first", first), ("sample", sample)):
        if given is not None and given < 0:
            raise InputError(f"{name}={given} is negative")


def reading(
    query: Query | str | Mapping[str, Query | str],
    compressed: pa.Schema,
    schema: pa.Schema | Mapping[str, pa.Schema] | None,
    options: Mapping[str, Any],
) -> tuple[BoundQuery, Layout]:
    """(query, layout): the query of compressed rows, and the layout of their events."""
    events = pa.schema(list(compressed.field(GRAPH).type.field("events").type.value_type))
    given = as_queries(query)
    names = [name for name, one in given.items() if _is_compressed(one)]
    if len(names) != 1:
        asked = ", ".join(map(repr, given))
        if not names:
            raise InputError(f"none of these queries has OUTPUT COMPRESSED, so the rows are not their answer: {asked}")
        raise InputError(
            f"{len(names)} of these queries have OUTPUT COMPRESSED: {', '.join(names)}; "
            "give the one whose rows these are, and those that it reads"
        )
    if schema is not None:
        program = make_program(given, schema, **options)
        (bound,) = (one for one in program.queries if one.name == names[0])
        return bound, layouts(program.queries, program.layout)[bound.name]
    if INPUT_TYPE in events.names:
        raise InputError(
            "these rows come from several inputs, or from the results of other queries; give the columns of the input: "
            "expand(rows, queries, schema=events.schema), or a schema for each of several inputs"
        )
    # The matches are already selected, so their conditions and the columns of those are not needed.
    tree = replace(given[names[0]].tree, where=None, selection=None, sources=(), into=None)
    used = parameter_names(tree)
    params = {name: value for name, value in given[names[0]].params.items() if name in used}
    types = given[names[0]].types
    if types is not None:
        declared = {name: attributes_of(attributes) for name, attributes in types.items()}
        types = {name: {k: v for k, v in own.items() if k in events.names} for name, own in declared.items()}
    asked_for = replace(given[names[0]], tree=tree, params=params, types=types)
    program = make_program({names[0]: asked_for}, events, **options)
    return program.queries[0], program.layout


def _check_rows(rows: list[Row], event_bounds: np.ndarray, queries: list[BoundQuery]) -> None:
    """Raise an error if the graph of a row cannot come from this query."""
    for number, (row, bound) in enumerate(zip(rows, queries, strict=True)):
        is_kleene = np.array([component.kleene for component in bound.positives])
        if not is_row_of(row, int(event_bounds[number + 1] - event_bounds[number]), is_kleene):
            raise InputError(
                f"row {number} is not an answer of query '{bound.name}': its graph does not fit the "
                "components of the pattern; give expand() the query that made these rows"
            )


def _check_total(rows: list[Row], max_matches: int) -> None:
    total = sum(count_matches(row) for row in rows)
    if total > max_matches:
        number = f"{total:,}" if total < 10**18 else f"about 10^{math.floor(math.log10(total))}"
        raise LimitError(
            f"these rows hold {number} matches, more than max_matches={max_matches:,}; ask for the first "
            "ones (first), for a sample of them (sample), or for some of the rows, or raise the limit"
        )


def _is_compressed(query: Any) -> bool:
    return (
        isinstance(query, Query) and query.tree.output is not None and query.tree.output.form is OutputForm.COMPRESSED
    )


def _sampled(rows: list[Row], sample: int, seed: int | None) -> list[list[int]]:
    """For each row the numbers of the sampled matches, out of all matches of all rows."""
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
    """The matches with the given numbers. Each is found by a walk backwards from a root."""
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
    """The path with a given number to a cell, from the first cell to it."""
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
    raise AssertionError("fewer paths lead to a cell than were counted")
