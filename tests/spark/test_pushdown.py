"""Filters that are pushed into Spark keep the events that the engine would use."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ouzel
import ouzel.spark
from ouzel.plan.model import Plan
from ouzel.prepared import as_queries
from ouzel.runtime.expressions import holds
from ouzel.runtime.frames import EventFrame
from ouzel.runtime.layout import ticks_of
from ouzel.runtime.program import make_program
from ouzel.spark.pushdown import pushed, pushed_filters
from ouzel.spark.schema import spark_schema
from tests.generate import random_case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
NAN, INFINITY = float("nan"), float("inf")

SCHEMA = pa.schema(
    {
        "type": pa.string(),
        "ts": pa.int64(),
        "i": pa.int64(),
        "k": pa.int64(),
        "j": pa.int32(),
        "f": pa.float64(),
        "g": pa.float32(),
        "d": pa.decimal128(10, 2),
        "e": pa.decimal128(18, 4),
        "s": pa.string(),
        "u": pa.string(),
        "b": pa.bool_(),
        "raw": pa.binary(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "part": pa.struct({"x": pa.int32(), "name": pa.string()}),
    }
)

VALUES: dict[str, Sequence[object]] = {
    "type": ["A", "B", None],
    "i": [0, 1, -1, 7, 15, -25, 2**31, 2**40, INT_MIN, INT_MIN + 1, INT_MAX, None],
    "k": [0, 1, -1, 2, 3, -3, 10, INT_MIN, INT_MAX, None],
    "j": [0, 1, -1, 5, 2**31 - 1, -(2**31), None],
    "f": [0.0, -0.0, 1.0, -1.5, 2.5, 0.5, 1e300, -1e19, 9.3e18, 1e-320, NAN, INFINITY, -INFINITY, None],
    "g": [0.0, 0.1, -2.5, NAN, INFINITY, None],
    "d": [Decimal("0.00"), Decimal("2.50"), Decimal("-2.55"), Decimal("99999999.99"), None],
    "e": [Decimal("0.0001"), Decimal("2.5000"), Decimal("-99999999999999.9999"), Decimal("3.1415"), None],
    "s": ["", "a", "abc", "A%_b", "Straße", "ΑΣ", "İ", "a\nb", "é", "\U0001f600x", " pad ", "a\\b", None],
    "u": ["", "a", "b", "ß", "%", "x", "pad", None],
    "b": [True, False, None],
    "raw": [b"", b"a", b"\xff", None],
    "day": [date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31), None],
    "at": [datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2024, 3, 10, 7, 30), None],
    "local": [datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 1), datetime(2024, 3, 10, 2, 30, 7, 5), None],
    "part": [{"x": 1, "name": "n"}, {"x": None, "name": "m"}, None],
}

PUSHED = """
a.i > 3 | a.i <= 3 | a.i = 7 | a.i != 7 | a.j >= 5 | 5 < a.j | a.i IS NULL | a.i IS NOT NULL | a.i > NULL | a.s = NULL
a.f > 1 | a.f >= 1.0 | a.f < 1 | a.f <= 0 | a.f = 0 | a.f != 0 | 0 < a.f | 0 >= a.f | 0 != a.f | a.g > 0.1 | a.g = 0.1
a.d > 2.5 | a.d = 2.50 | a.e <= 3.1415 | a.d > 1 | 1 >= a.d | a.raw IS NULL
a.s = 'abc' | a.s != 'abc' | a.s < 'b' | a.s IN ('a', 'é', '') | a.s NOT IN ('a', 'é') | a.s IS NULL | 'b' > a.s
a.s LIKE 'a%' | a.s LIKE '_' | a.s LIKE '%\\%\\_%' | a.s NOT LIKE '%b' | a.s LIKE 'A!%!_b' ESCAPE '!' | a.s LIKE ''
a.b | NOT a.b | a.b = TRUE | a.b != FALSE
a.day > DATE '2000-01-01' | a.day = DATE '2024-02-29' | a.day <= DATE '1969-12-31'
a.at > TIMESTAMP '2000-01-01 00:00:00Z' | a.at = TIMESTAMP '2024-03-10 07:30:00Z'
a.local < TIMESTAMP '1970-01-01 00:00:00'
a.part.x = 1 | a.part.name > 'm' | a.part.x IS NULL
a.i BETWEEN 0 AND 10 | a.i NOT BETWEEN 0 AND 7 | a.f BETWEEN 0 AND 2 | a.f NOT BETWEEN 0 AND 2 | a.i IN (1, 7)
a.f NOT IN (0, 1.0) | a.f IN (0, 1.0) | a.i NOT IN (1, 7) | a.i IN (1, NULL) | a.i NOT IN (1, NULL)
a.time > 5 | a.type = 'A' | a.i > 3 OR a.s = 'a' | a.i > 3 AND a.s = 'a' | NOT (a.i > 3 OR a.f < 1)
"""

LEFT_TO_WORKERS = """
a.i = a.k | a.f > a.g | a.i + a.k > 0 | a.i % 2 = 1 | -a.i > 0 | a.d + a.e > 2 | a.i > a.d | a.raw = a.raw
a.i NOT BETWEEN 0 AND a.k | a.i IN (1, 7, a.k) | CASE WHEN a.i > 0 THEN a.k ELSE 1 END >= 1 | length(a.s) > 2
lower(a.s) = 'abc' | year(a.day) = 2024 | coalesce(a.i, a.k) > 0 | a.time % 3 = 1 | a.i + a.k IS NULL | isnan(a.f)
a.i > 3 OR length(a.s) > 2
"""


def conditions(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in re.split(r" \| ", line)]


def table(rows: int = 400) -> pa.Table:
    rng = random.Random(5)
    columns = {"ts": pa.array(range(rows), pa.int64())}
    for name, values in VALUES.items():
        columns[name] = pa.array([rng.choice(values) for _ in range(rows)], SCHEMA.field(name).type)
    return pa.table(columns).select(SCHEMA.names).cast(SCHEMA)


def plan_of(text: str) -> tuple[Plan, object]:
    program = make_program(as_queries(text), SCHEMA, time="ts", type="type")
    return program.plans()["query"], program.layout


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_conditions_mean_the_same_in_spark(spark: SparkSession, zone: str) -> None:
    from pyspark.sql import functions as F

    events = table()
    problems: list[str] = []
    spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.ansi.enabled", True)
    try:
        expected, columns = {}, {}
        for text in conditions(PUSHED):
            plan, layout = plan_of(f"PATTERN A a WHERE {text}")
            ticks_ = ticks_of(events, layout)
            rows = np.arange(events.num_rows, dtype=np.int32)
            frame = EventFrame(plan.query, layout, events, ticks_, lambda component, rows=rows: rows, len(rows))
            conjuncts = plan.roles[0]
            assert conjuncts, text
            masks = [np.logical_or.reduce([holds(c, frame) for c in conjunct.comparisons]) for conjunct in conjuncts]
            expected[text] = np.logical_and.reduce(masks)
            written = [pushed(conjunct, plan.query, layout) for conjunct in conjuncts]
            problems += [f"{text} is left to the workers" for column in written if column is None]
            columns[text] = reduce(lambda x, y: x & y, [F.lit(True) if one is None else one for one in written])
        source = spark.createDataFrame(events, spark_schema(SCHEMA)).coalesce(1)
        found = source.select("ts", *(column.alias(f"c{n}") for n, column in enumerate(columns.values()))).toArrow()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    found = found.sort_by("ts")
    for number, text in enumerate(columns):
        kept = found[f"c{number}"].fill_null(False).to_numpy()
        lost = np.flatnonzero(expected[text] & ~kept)
        if len(lost):
            problems.append(f"{text} loses {events.slice(int(lost[0]), 1).to_pylist()}")
        extra = np.flatnonzero(kept & ~expected[text])
        if len(extra):
            problems.append(f"{text} keeps {events.slice(int(extra[0]), 1).to_pylist()}")
    assert not problems, "\n".join(problems)


def test_other_conditions_are_left_to_the_workers(spark: SparkSession) -> None:
    for text in conditions(LEFT_TO_WORKERS):
        plan, layout = plan_of(f"PATTERN A a WHERE {text}")
        assert [pushed(conjunct, plan.query, layout) for conjunct in plan.roles[0]] == [None], text


def test_random_queries_keep_the_events_that_matter(spark: SparkSession) -> None:
    """The engine's answer over what Spark's filter keeps is its answer over everything."""
    from tests.generate.cases import COLUMNS, counted

    rng = random.Random(23)
    filtered = 0
    for _ in range(12):
        case = random_case(rng, rng.choice(["sase", "kleene"]))
        if "COMPRESSED" in case.text:
            continue
        events, query = case.table, case.query
        program = make_program(as_queries(query), events.schema, **COLUMNS)
        rows = spark.createDataFrame(events, spark_schema(events.schema)).coalesce(1)
        for condition in pushed_filters(list(program.plans().values()), program.layout, "time"):
            rows = rows.where(condition)
        kept = rows.toArrow().cast(events.schema)
        filtered += kept.num_rows < events.num_rows
        found = counted(ouzel.match(kept, query, **COLUMNS).to_pylist())
        assert found == counted(ouzel.match(events, query, **COLUMNS).to_pylist()), case.text
    assert filtered


def test_sources_get_the_filters_and_nothing_else_is_shuffled(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "events.parquet")
    events = spark.read.parquet(str(tmp_path))
    query = "PATTERN SEQ(A a, B b) WHERE [k] AND a.i > 100 AND b.s = 'abc' WITHIN 50 RETURN P(a.j AS j)"
    found = ouzel.spark.match(events, query)
    plan = _explained(found)
    (read,) = re.findall(r"ReadSchema: struct<(.*?)>", plan)
    assert {column.partition(":")[0] for column in read.split(",")} == {"type", "ts", "i", "k", "j", "s"}
    assert re.search(r"PushedFilters: .*In\(type, \[A,B\]\).*GreaterThan\(i,100\).*EqualTo\(s,abc\)", plan)
    # What Parquet cannot take does not keep it from taking the types.
    query = query.replace("a.i > 100", "length(a.s) > 2")
    assert re.search(r"PushedFilters: .*In\(type, \[A,B\]\)", _explained(ouzel.spark.match(events, query)))


def test_nan_is_not_lost_in_the_statistics_of_files(spark: SparkSession, tmp_path: Path) -> None:
    """NaN is above every number, and pyarrow leaves it out of the largest value of a row group."""
    events = pa.table({"type": ["A"] * 3, "ts": [1, 2, 3], "f": [0.5, NAN, 1.0]})
    pq.write_table(events, tmp_path / "events.parquet")
    for text in ("a.f > 5", "NOT a.f <= 5", "a.f NOT IN (0.5, 1.0)", "a.f >= 5 AND a.ts > 0", "5 < a.f"):
        found = ouzel.spark.match(spark.read.parquet(str(tmp_path)), f"PATTERN A a WHERE {text} RETURN R(a.ts AS t)")
        assert [row.t for row in found.collect()] == [2], text


def _explained(frame: object) -> str:
    import contextlib
    import io

    captured = io.StringIO()
    with contextlib.redirect_stdout(captured):
        frame.explain("formatted")  # type: ignore[attr-defined]
    return captured.getvalue()
