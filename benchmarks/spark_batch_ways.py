"""The streams of `benchmarks/spark_batch.py`, its queries, and how people would answer them without Ouzel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.sase_generators import sase_events

Way = Callable[[DataFrame], DataFrame]

WINDOW = 10_000
HOUR_US = 3_600_000_000
VALUES = (1_000, 20, 100, 1_000)  # attr1 … attr4; with type and ts, six columns

SELECTIVE = f"PATTERN SEQ(E1 a, E2 b, E3 c) WHERE [attr1] WITHIN {WINDOW} RETURN M(a.attr1 AS id, c.attr4 AS v)"
NEGATED = f"PATTERN SEQ(E1 a, !(E2 b), E3 c) WHERE [attr1] WITHIN {WINDOW} RETURN M(a.attr1 AS id, c.attr4 AS v)"
FUNNEL = (
    "PATTERN SEQ(view v, cart c, !(remove r), purchase p) WHERE [user] WITHIN 1 hour "
    "RETURN M(v.user AS id, p.item AS v)"
)
VISIT = "PATTERN SEQ(view v, cart c, purchase p) WHERE [user] WITHIN 1 hour RETURN M(v.user AS id, p.item AS v)"
VIEWS = (
    "PATTERN SEQ(cart c, view+ v[], purchase p) WHERE skip_till_next_match(c, v[], p) { [user] } WITHIN 1 hour "
    "RETURN M(c.user AS id, v.LEN AS v)"
)
# Thousands of pairs for each event: most of the CPU is matching.
KEYLESS = "PATTERN SEQ(E1 a, E2 b, E3 c) WHERE a.attr4 + b.attr4 = c.attr4 + 7 WITHIN 3000 RETURN M(a.attr1 AS id)"
HOT = KEYLESS.replace("WHERE ", "WHERE [attr1] AND ")


# ── Worlds ─────────────────────────────────────────────────────────────────────────────────────────


def selective_world(events: int) -> pa.Table:
    return sase_events(events, types=20, values=VALUES, seed=1)


def dense_world(events: int) -> pa.Table:
    """Every event is of a type that the query names."""
    return sase_events(events, types=3, values=(20_000, *VALUES[1:]), seed=2)


def clicks_world(events: int) -> pa.Table:
    """Clicks of users, 50 each, over a week."""
    rng = np.random.default_rng(3)
    kinds = np.array(["view", "cart", "remove", "purchase"])
    moments = np.sort(rng.integers(0, 7 * 24 * HOUR_US, events)) + 1_700_000_000_000_000
    return pa.table(
        {
            "type": pa.array(kinds[rng.choice(4, events, p=[0.7, 0.15, 0.05, 0.1])]),
            "ts": pa.array(moments, pa.timestamp("us", "UTC")),
            "user": pa.array(rng.integers(0, max(1, events // 50), events)),
            "item": pa.array(rng.integers(0, 10_000, events)),
            "price": pa.array(rng.random(events)),
            "page": pa.array(rng.integers(0, 500, events)),
        }
    )


def users_world(events: int) -> pa.Table:
    """Events of ten columns by 100,000 users, or fewer if there are few events: about fifty each, over a week."""
    rng = np.random.default_rng(6)

    def drawn(values: list[str], shares: list[float] | None = None) -> pa.Array:
        codes = pa.array(rng.choice(len(values), events, p=shares).astype(np.int32))
        return pa.DictionaryArray.from_arrays(codes, pa.array(values)).cast(pa.string())

    moments = np.sort(rng.integers(0, 7 * 24 * HOUR_US, events)) + 1_700_000_000_000_000
    return pa.table(
        {
            "type": drawn(["view", "search", "cart", "remove", "purchase"], [0.3, 0.45, 0.1, 0.05, 0.1]),
            "ts": pa.array(moments, pa.timestamp("us", "UTC")),
            "user": pa.array(rng.integers(0, min(100_000, max(1, events // 50)), events)),
            "item": pa.array(rng.integers(0, 10_000, events)),
            "price": pa.array(rng.random(events)),
            "page": pa.array(rng.integers(0, 500, events)),
            "country": drawn([f"country {number}" for number in range(50)]),
            "device": drawn(["phone", "tablet", "desktop", "television"]),
            "referrer": drawn([f"https://example.org/{number}" for number in range(200)]),
            "session": pa.array(rng.integers(0, 10**9, events)),
        }
    )


def hot_world(events: int) -> pa.Table:
    """Half of all events have one key."""
    table = sase_events(events, types=20, values=VALUES, seed=4)
    hot = np.random.default_rng(5).random(events) < 0.5
    return table.set_column(2, "attr1", pa.array(np.where(hot, 0, table["attr1"].to_numpy())))


# ── Ways ───────────────────────────────────────────────────────────────────────────────────────────


def shuffled(columns: list[str], types: list[str] | None, key: str) -> Way:
    """What any answer by key has to pay for: read, filter, shuffle and sort."""

    def run(events: DataFrame) -> DataFrame:
        rows = events if types is None else events.where(F.col("type").isin(types))
        return rows.select(*columns).repartition(key).sortWithinPartitions(key, "ts")

    return run


def first_steps(columns: list[str], types: list[str], key: str) -> dict[str, Way]:
    """Where the CPU goes before Ouzel sees a row."""

    def kept(events: DataFrame) -> DataFrame:
        return events.where(F.col("type").isin(types)).select(*columns)

    def swallow(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        return iter(())

    return {
        "read, filter": kept,
        "read, filter, shuffle": lambda events: kept(events).repartition(key),
        "read, filter, shuffle, hand to Python": lambda events: (
            kept(events).repartition(key).mapInArrow(swallow, "nothing LONG")
        ),
    }


def joined_sequence(events: DataFrame) -> DataFrame:
    """W1: equi-joins on the id and on time cut into windows, so that pairs far apart never meet."""
    near = F.explode(F.array(F.floor(F.col("ts") / WINDOW), F.floor(F.col("ts") / WINDOW) - 1)).alias("bucket")
    first = events.where("type = 'E1'").select(
        F.col("attr1").alias("id"), F.col("ts").alias("a"), F.floor(F.col("ts") / WINDOW).alias("bucket")
    )
    second = events.where("type = 'E2'").select(F.col("attr1").alias("id"), F.col("ts").alias("b"), near)
    third = events.where("type = 'E3'").select(
        F.col("attr1").alias("id"), F.col("ts").alias("c"), F.col("attr4").alias("v"), near
    )
    pairs = first.join(second, ["id", "bucket"]).where(f"a < b AND b - a < {WINDOW}")
    return pairs.join(third, ["id", "bucket"]).where(f"b < c AND c - a < {WINDOW}").select("id", "v")


def _last(kind: str, key: str, type_column: str = "type") -> Any:
    from pyspark.sql import Window

    # Strictly before: simultaneous events forbid nothing.
    window = Window.partitionBy(key).orderBy("ts").rangeBetween(Window.unboundedPreceding, -1)
    return F.max(F.when(F.col(type_column) == kind, F.col("ts"))).over(window)


def joined_negation(events: DataFrame) -> DataFrame:
    """W2: a window function finds the last E2 before each E3, then one bucketed join."""
    near = F.explode(F.array(F.floor(F.col("ts") / WINDOW), F.floor(F.col("ts") / WINDOW) - 1)).alias("bucket")
    marked = events.where("type IN ('E2', 'E3')").withColumn("last", _last("E2", "attr1"))
    last = marked.where("type = 'E3'").select(
        F.col("attr1").alias("id"), F.col("ts").alias("c"), "last", F.col("attr4").alias("v"), near
    )
    first = events.where("type = 'E1'").select(
        F.col("attr1").alias("id"), F.col("ts").alias("a"), F.floor(F.col("ts") / WINDOW).alias("bucket")
    )
    pairs = first.join(last, ["id", "bucket"]).where(f"a < c AND c - a < {WINDOW}")
    return pairs.where("last IS NULL OR last <= a").select("id", "v")


def joined_funnel(events: DataFrame) -> DataFrame:
    """W5: the last removal before each purchase by a window function, then joins on user and hour."""
    ticks = events.withColumn("ts", F.unix_micros("ts"))
    marked = ticks.where("type IN ('remove', 'purchase')").withColumn("last", _last("remove", "user"))
    return _joined_steps(ticks, marked).where("last IS NULL OR last <= c").select("id", "v")


def joined_visit(events: DataFrame) -> DataFrame:
    """The same without the removal."""
    ticks = events.withColumn("ts", F.unix_micros("ts"))
    return _joined_steps(ticks, ticks.withColumn("last", F.lit(None))).select("id", "v")


def _joined_steps(ticks: DataFrame, marked: DataFrame) -> DataFrame:
    """Views, then carts, then purchases with what is marked on them, within an hour."""
    hour = F.floor(F.col("ts") / HOUR_US)
    near = F.explode(F.array(hour, hour - 1)).alias("bucket")
    bought = marked.where("type = 'purchase'").select(
        F.col("user").alias("id"), F.col("ts").alias("p"), "last", F.col("item").alias("v"), near
    )
    seen = ticks.where("type = 'view'").select(F.col("user").alias("id"), F.col("ts").alias("a"), hour.alias("bucket"))
    put = ticks.where("type = 'cart'").select(F.col("user").alias("id"), F.col("ts").alias("c"), near)
    pairs = seen.join(put, ["id", "bucket"]).where(f"a < c AND c - a < {HOUR_US}")
    return pairs.join(bought, ["id", "bucket"]).where(f"c < p AND p - a < {HOUR_US}")


def counted_views(events: DataFrame) -> DataFrame:
    """Views are counted by a window function; a join of carts and purchases subtracts the counts."""
    from pyspark.sql import Window

    # Strictly before: simultaneous events do not follow each other.
    before = Window.partitionBy("user").orderBy("ts").rangeBetween(Window.unboundedPreceding, -1)
    up_to = Window.partitionBy("user").orderBy("ts").rangeBetween(Window.unboundedPreceding, 0)
    view = F.when(F.col("type") == "view", 1)
    rows = events.where("type IN ('view', 'cart', 'purchase')").select("user", "type", F.unix_micros("ts").alias("ts"))
    marked = rows.withColumn("before", F.count(view).over(before)).withColumn("up_to", F.count(view).over(up_to))
    hour = F.floor(F.col("ts") / HOUR_US)
    near = F.explode(F.array(hour, hour - 1)).alias("bucket")
    carts = marked.where("type = 'cart'").select("user", F.col("ts").alias("c"), "up_to", hour.alias("bucket"))
    bought = marked.where("type = 'purchase'").select("user", F.col("ts").alias("p"), "before", near)
    pairs = carts.join(bought, ["user", "bucket"]).where(f"c < p AND p - c < {HOUR_US} AND before > up_to")
    return pairs.select(F.col("user").alias("id"), (F.col("before") - F.col("up_to")).alias("v"))


def per_key(
    steps: list[str], negative: int | None, key: str, value: str, window: int, *, filtered: bool = False
) -> Way:
    """applyInPandas: a hand-written search for each key, over all its events or those that Spark was told to keep."""

    def search(events: Any) -> Any:
        import pandas

        ordered = events.sort_values("ts", kind="stable")
        moments = ordered["ts"].astype("int64").tolist()
        kinds = ordered["type"].tolist()
        values = ordered[value].tolist()
        stacks: list[list[int]] = [[] for _ in steps]
        found = []
        positive = [number for number in range(len(steps)) if number != negative]

        def extend(place: int, after: int, first_allowed: int) -> Iterator[int]:
            """Starts of the sequences whose place-th event lies before `after`."""
            step = positive[place]
            for moment in reversed(stacks[step]):
                if moment >= after:
                    continue
                if moment < first_allowed:
                    break
                if negative == step + 1 and any(moment < other < after for other in stacks[negative]):
                    continue
                if place == 0:
                    yield moment
                else:
                    yield from extend(place - 1, moment, first_allowed)

        for moment, kind, own in zip(moments, kinds, values, strict=True):
            for step, name in enumerate(steps):
                if kind == name and step == positive[-1]:
                    found += [own] * sum(1 for _ in extend(len(positive) - 2, moment, moment - window + 1))
                elif kind == name:
                    stacks[step].append(moment)
        return pandas.DataFrame({"id": [ordered[key].iloc[0]] * len(found), "v": found}).astype("int64")

    def run(events: DataFrame) -> DataFrame:
        rows = events.where(F.col("type").isin(steps)) if filtered else events
        rows = rows.select("type", "ts", key, value)
        if dict(rows.dtypes)["ts"] == "timestamp":
            rows = rows.withColumn("ts", F.unix_micros("ts"))
        return rows.groupBy(key).applyInPandas(search, "id long, v long")

    return run
