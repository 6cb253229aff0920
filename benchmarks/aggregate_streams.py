"""Seeded streams and queries for the benchmarks of aggregates: 20 types drawn evenly, one event a tick."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ouzel.engines.aggregate.tables import CounterInstances, new_counter_instances

TYPES = 20
SEED = 20260714
NAMES = [f"E{number}" for number in range(TYPES)]

# The paper's own figure for building against counting at length 5.
PAPER_RATIO_AT_LENGTH_5 = 16_736


# ── Streams ────────────────────────────────────────────────────────────────────────────────────────

# Of W4, in the SQL of DuckDB and of Spark: for each event, how many parts of a match stand before it.
RUNNING_SUMS = """
WITH relevant AS (SELECT ts, id, type FROM {events} WHERE type IN ('E0', 'E1', 'E2', 'E3')),
once AS (
    SELECT *, sum(CAST(type = 'E1' AS BIGINT)) OVER w AS b, sum(CAST(type = 'E2' AS BIGINT)) OVER w AS c
    FROM relevant WINDOW w AS (PARTITION BY id ORDER BY ts ROWS UNBOUNDED PRECEDING)
),
twice AS (
    SELECT *, sum(CASE WHEN type = 'E2' THEN b ELSE 0 END) OVER w AS bc
    FROM once WINDOW w AS (PARTITION BY id ORDER BY ts ROWS UNBOUNDED PRECEDING)
),
summed AS (
    SELECT *,
        sum(CAST(type = 'E3' AS BIGINT)) OVER w AS d,
        sum(CASE WHEN type = 'E3' THEN bc ELSE 0 END) OVER w AS dbc,
        sum(CASE WHEN type = 'E3' THEN c ELSE 0 END) OVER w AS dc
    FROM twice WINDOW w AS (PARTITION BY id ORDER BY ts ROWS UNBOUNDED PRECEDING)
)
"""


def instances_of(events: int, types: int, keys: int) -> CounterInstances:
    """Events of the first types, ready for a kernel."""
    rng = np.random.default_rng(SEED)
    drawn = rng.integers(0, TYPES, events)
    ids = rng.integers(1, keys + 1, events)
    chosen = np.flatnonzero(drawn < types)
    made = new_counter_instances(len(chosen))
    return made._replace(
        tick=chosen.astype(np.int64),
        key=(ids[chosen] if keys > 1 else np.zeros(len(chosen))).astype(np.int32),
        component=drawn[chosen].astype(np.uint8),
    )


def mostly_first(events: int, types: int, times: int) -> CounterInstances:
    """Events of one key, of which the first type comes so many times as often as each other."""
    rng = np.random.default_rng(SEED)
    rates = np.array([times] + [1] * (types - 1), np.float64)
    made = new_counter_instances(events)
    component = rng.choice(types, events, p=rates / rates.sum()).astype(np.uint8)
    return made._replace(tick=np.arange(events, dtype=np.int64), component=component)


def thinned(instances: CounterInstances, every: int) -> CounterInstances:
    """The same with one in so many events of component 0."""
    kept = instances.component != 0
    kept[np.flatnonzero(~kept)[::every]] = True
    return instances._replace(tick=instances.tick[kept], key=instances.key[kept], component=instances.component[kept])


def table_of(events: int, keys: int) -> pa.Table:
    """The same stream as users have it."""
    rng = np.random.default_rng(SEED)
    drawn = rng.integers(0, TYPES, events).astype(np.int8)
    ids = rng.integers(1, keys + 1, events)
    types = pa.DictionaryArray.from_arrays(pa.array(drawn), pa.array(NAMES))
    return pa.table({"type": types, "ts": pa.array(np.arange(events)), "id": pa.array(ids)})


def query_text(length: int, window: int, *, negative: bool = False, grouped: bool = True) -> str:
    parts = [f"E{number} v{number}" for number in range(length)]
    if negative:
        parts.insert(length - 1, f"!(E{length} n)")
    group = "GROUP BY id " if grouped else ""
    return f"PATTERN SEQ({', '.join(parts)}) {group}AGG COUNT WITHIN {window}"
