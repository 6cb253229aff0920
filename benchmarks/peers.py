"""What a user would write or pick instead: a loop in Python, DuckDB, polars. The same two questions, one program each.

W1: E1, E2 and E3 of one id, in this order, within a window; all combinations. W2: E1, then E3, with no E2 in between.
The loop reads ready-made tuples and leaves a list of tuples; DuckDB and polars go from the Arrow table with its string
types to an Arrow table with everything that Ouzel's answer has.
"""

from __future__ import annotations

import os

# Read when polars is imported.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import sys
from collections import deque
from itertools import combinations
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa

Event = tuple[str, int, int]


def as_tuples(table: pa.Table) -> list[Event]:
    """(type, time, id); a type is one string object wherever it occurs, so that comparing is quick."""
    types = [sys.intern(name) for name in table.column("type").to_pylist()]
    return list(zip(types, table.column("ts").to_pylist(), table.column("attr1").to_pylist(), strict=True))


def loop_w1(events: list[Event], window: int) -> list[tuple[Event, Event, Event]]:
    found: list[tuple[Event, Event, Event]] = []
    firsts: dict[int, deque[Event]] = {}
    # Each second event with the first events before it.
    seconds: dict[int, deque[tuple[Event, list[Event]]]] = {}
    for event in events:
        kind = event[0]
        if kind == "E1":
            key = event[2]
            if key in firsts:
                firsts[key].append(event)
            else:
                firsts[key] = deque((event,))
                seconds[key] = deque()
        elif kind == "E2":
            before = firsts.get(event[2])
            if before:
                low = event[1] - window
                while before and before[0][1] <= low:
                    before.popleft()
                if before:
                    seconds[event[2]].append((event, list(before)))
        elif kind == "E3":
            pairs = seconds.get(event[2])
            if pairs:
                low = event[1] - window
                while pairs and pairs[0][0][1] <= low:
                    pairs.popleft()
                found += [(a, b, event) for b, before in pairs for a in before if a[1] > low]
    return found


def loop_w2(events: list[Event], window: int) -> list[tuple[Event, Event]]:
    found: list[tuple[Event, Event]] = []
    firsts: dict[int, deque[Event]] = {}
    for event in events:
        kind = event[0]
        if kind == "E1":
            key = event[2]
            if key in firsts:
                firsts[key].append(event)
            else:
                firsts[key] = deque((event,))
        elif kind == "E2":
            before = firsts.get(event[2])
            if before:
                before.clear()
        elif kind == "E3":
            before = firsts.get(event[2])
            if before:
                low = event[1] - window
                while before and before[0][1] <= low:
                    before.popleft()
                found += [(a, event) for a in before]
    return found


ShopReading = tuple[Any, ...]


def shop_tuples(table: pa.Table) -> list[ShopReading]:
    """(time, type, tag, …), all columns of a reading, times in microseconds."""
    columns = [table.column(name).to_pylist() for name in table.column_names]
    columns[0] = table.column(0).cast(pa.int64()).to_pylist()
    columns[1] = [sys.intern(name) for name in columns[1]]
    return list(zip(*columns, strict=True))


def loop_shop(events: list[ShopReading], window: int) -> list[tuple[ShopReading, ShopReading, ShopReading]]:
    """Two readings at shelves, then one at an exit, of one tag and within a window."""
    found: list[tuple[ShopReading, ShopReading, ShopReading]] = []
    shelves: dict[str, deque[ShopReading]] = {}
    for event in events:
        kind = event[1]
        if kind == "Shelf":
            tag = event[2]
            if tag in shelves:
                shelves[tag].append(event)
            else:
                shelves[tag] = deque((event,))
        elif kind == "Exit":
            before = shelves.get(event[2])
            if before:
                low = event[0] - window
                while before and before[0][0] <= low:
                    before.popleft()
                found += [(a, b, event) for a, b in combinations(before, 2)]
    return found


# Several ways of asking each question; the benchmark takes whichever is fastest at each size.
_EVENT = "{{'type': {0}.type, 'ts': {0}.ts, 'attr1': {0}.attr1}} AS {0}"
_W1_OUT = f'a.ts AS start, c.ts AS "end", {_EVENT.format("a")}, {_EVENT.format("b")}, {_EVENT.format("c")}'
_W2_OUT = f'a.ts AS start, c.ts AS "end", {_EVENT.format("a")}, {_EVENT.format("c")}'

DUCKDB_W1 = {
    # Equal ids and equal slices of time can be hashed; an event is looked for in its slice and the one before.
    "slices": f"""
        WITH a AS (SELECT events.*, ts // $window + later AS slice FROM events, (VALUES (0), (1)) AS t(later)
                   WHERE type = 'E1'),
             b AS (SELECT *, ts // $window AS slice FROM events WHERE type = 'E2'),
             ab AS (SELECT a, b, b.attr1 AS id, b.ts // $window + later AS slice
                    FROM a JOIN b ON a.attr1 = b.attr1 AND a.slice = b.slice
                         AND a.ts < b.ts AND a.ts > b.ts - $window, (VALUES (0), (1)) AS t(later)),
             c AS (SELECT *, ts // $window AS slice FROM events WHERE type = 'E3')
        SELECT {_W1_OUT}
        FROM ab JOIN c ON ab.id = c.attr1 AND ab.slice = c.slice AND ab.b.ts < c.ts AND ab.a.ts > c.ts - $window
    """,
    # The later events of an id and a window, as lists kept by a window function, then taken apart.
    "lists": """
        WITH relevant AS (SELECT * FROM events WHERE type IN ('E1', 'E2', 'E3')),
             seen AS (
                SELECT *, list(ts) FILTER (type = 'E1') OVER recent AS firsts,
                       list(ts) FILTER (type = 'E2') OVER recent AS seconds
                FROM relevant
                WINDOW recent AS (PARTITION BY attr1 ORDER BY ts RANGE BETWEEN $window - 1 PRECEDING AND CURRENT ROW)
             ),
             cs AS (SELECT type, ts, attr1, firsts, unnest(seconds) AS second FROM seen
                    WHERE type = 'E3' AND firsts IS NOT NULL AND seconds IS NOT NULL),
             bs AS (SELECT type, ts, attr1, second, unnest(list_filter(firsts, lambda x: x < second)) AS first FROM cs)
        SELECT first AS start, ts AS "end", {'type': 'E1', 'ts': first, 'attr1': attr1} AS a,
               {'type': 'E2', 'ts': second, 'attr1': attr1} AS b, {'type': type, 'ts': ts, 'attr1': attr1} AS c
        FROM bs
    """,
    # Events of an id and type are numbered; running counts say which numbers lie in the window.
    "numbers": f"""
        WITH relevant AS (SELECT * FROM events WHERE type IN ('E1', 'E2', 'E3')),
             seen AS (
                SELECT *, count(*) FILTER (type = 'E1') OVER before AS firsts,
                       count(*) FILTER (type = 'E1') OVER recent AS live,
                       count(*) FILTER (type = 'E2') OVER before AS seconds,
                       count(*) FILTER (type = 'E2') OVER recent AS live_seconds
                FROM relevant
                WINDOW before AS (PARTITION BY attr1 ORDER BY ts ROWS UNBOUNDED PRECEDING),
                       recent AS (PARTITION BY attr1 ORDER BY ts RANGE BETWEEN $window - 1 PRECEDING AND CURRENT ROW)
             ),
             a AS (SELECT type, ts, attr1, firsts AS number FROM seen WHERE type = 'E1'),
             b AS (SELECT type, ts, attr1, seconds AS number, firsts AS newest FROM seen WHERE type = 'E2'),
             c AS (SELECT type, ts, attr1, firsts - live + 1 AS oldest,
                          unnest(range(seconds - live_seconds + 1, seconds + 1)) AS second
                   FROM seen WHERE type = 'E3' AND live > 0 AND live_seconds > 0),
             bc AS (SELECT b, c, c.attr1 AS id, unnest(range(c.oldest, b.newest + 1)) AS first
                    FROM c JOIN b ON b.attr1 = c.attr1 AND b.number = c.second)
        SELECT {_W1_OUT} FROM bc JOIN a ON a.attr1 = bc.id AND a.number = bc.first
    """,
}

DUCKDB_W2 = {
    # Events between the same two E2 of an id have the same running number of E2.
    "numbers": f"""
        WITH relevant AS (SELECT * FROM events WHERE type IN ('E1', 'E2', 'E3')),
             seen AS (SELECT *, count(*) FILTER (type = 'E2') OVER
                             (PARTITION BY attr1 ORDER BY ts ROWS UNBOUNDED PRECEDING) AS number FROM relevant),
             a AS (SELECT * FROM seen WHERE type = 'E1'),
             c AS (SELECT * FROM seen WHERE type = 'E3')
        SELECT {_W2_OUT}
        FROM a JOIN c ON a.attr1 = c.attr1 AND a.number = c.number AND a.ts < c.ts AND a.ts > c.ts - $window
    """,
    "asof": f"""
        WITH b AS (SELECT attr1, ts FROM events WHERE type = 'E2'),
             guarded AS (SELECT c.*, coalesce(b.ts, -1) AS guard
                         FROM (SELECT * FROM events WHERE type IN ('E1', 'E3')) c
                              ASOF LEFT JOIN b ON c.attr1 = b.attr1 AND c.ts > b.ts),
             a AS (SELECT * FROM guarded WHERE type = 'E1'),
             c AS (SELECT * FROM guarded WHERE type = 'E3')
        SELECT {_W2_OUT}
        FROM a JOIN c ON a.attr1 = c.attr1 AND a.guard = c.guard AND a.ts < c.ts AND a.ts > c.ts - $window
    """,
}


class DuckDb:
    """One connection, reading the Arrow table in place."""

    def __init__(self, table: pa.Table, threads: int = 1) -> None:
        self._connection = duckdb.connect(":memory:", config={"threads": threads})
        self._connection.execute("SET preserve_insertion_order = false")
        self._connection.register("events", table)

    def ask(self, text: str, window: int) -> pa.Table:
        # A relation hands its rows to Arrow without the copy that a cursor makes.
        return self._connection.sql(text.replace("$window", str(window))).to_arrow_table()


def polars_w1(table: pa.Table, window: int) -> pa.Table:
    events = pl.from_arrow(table)
    assert isinstance(events, pl.DataFrame)
    lazy = events.lazy().with_columns(slice=pl.col("ts") // window)
    first = _in_two_slices(lazy.filter(pl.col("type") == "E1"))
    second = lazy.filter(pl.col("type") == "E2")
    third = lazy.filter(pl.col("type") == "E3")
    on = ["attr1", "slice"]
    pairs = first.join(second, on=on, suffix="_b").filter(
        (pl.col("ts") < pl.col("ts_b")) & (pl.col("ts") > pl.col("ts_b") - window)
    )
    pairs = _in_two_slices(pairs.with_columns(slice=pl.col("ts_b") // window))
    triples = pairs.join(third, on=on, suffix="_c").filter(
        (pl.col("ts_b") < pl.col("ts_c")) & (pl.col("ts") > pl.col("ts_c") - window)
    )
    return (
        triples.select(
            pl.col("ts").alias("start"),
            pl.col("ts_c").alias("end"),
            pl.struct("type", "ts", "attr1").alias("a"),
            pl.struct(type="type_b", ts="ts_b", attr1="attr1").alias("b"),
            pl.struct(type="type_c", ts="ts_c", attr1="attr1").alias("c"),
        )
        .collect()
        .to_arrow()
    )


def polars_w2(table: pa.Table, window: int) -> pa.Table:
    events = pl.from_arrow(table)
    assert isinstance(events, pl.DataFrame)
    seen = (
        events.lazy()
        .filter(pl.col("type").is_in(["E1", "E2", "E3"]))
        .with_columns(number=(pl.col("type") == "E2").cum_sum().over("attr1"))
    )
    joined = seen.filter(pl.col("type") == "E1").join(
        seen.filter(pl.col("type") == "E3"), on=["attr1", "number"], suffix="_c"
    )
    near = joined.filter((pl.col("ts") < pl.col("ts_c")) & (pl.col("ts") > pl.col("ts_c") - window))
    return (
        near.select(
            pl.col("ts").alias("start"),
            pl.col("ts_c").alias("end"),
            pl.struct("type", "ts", "attr1").alias("a"),
            pl.struct(type="type_c", ts="ts_c", attr1="attr1").alias("c"),
        )
        .collect()
        .to_arrow()
    )


def _in_two_slices(events: Any) -> Any:
    """Each event in its slice of time and in the next, where what follows it may lie."""
    return pl.concat([events, events.with_columns(slice=pl.col("slice") + 1)])
