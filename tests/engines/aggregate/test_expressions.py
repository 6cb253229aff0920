"""Expressions as arguments of aggregates, by both ways of answering: counters, and matches that are built."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import ouzel
from ouzel.errors import QueryError
from tests.oracle import oracle
from tests.oracle.events import Event
from tests.runtime.test_input_types import counted

TYPES = {"A": ["x", "f", "s"], "B": ["x", "f", "s"], "C": ["f", "s"]}
KINDS = {"x": pa.int64(), "f": pa.float64(), "s": pa.string()}
EXPRESSIONS = (
    "a.x * 2", "a.x + b.x", "b.x * 2", "a[1].x", "a[1].x + a.x", "a[LEN].x - b.x", "a.LEN", "a.x + a.LEN",
    "count(a[].x)", "a.x * sum(a[].x)", "min(a[].x) + b.x", "a.f * 2", "-a.x", "abs(a.x)", "a.x % 2", "a.x / 2",
    "length(a.s)", "upper(a.s)", "a.s", "CASE WHEN a.x > 1 THEN a.x ELSE 0 END", "coalesce(a.x, 7)",
    "coalesce(a.x, b.x)", "b.time - a.time", "time(a)", "least(a.x, b.x)", "a.x > 1", "a.x IS NULL",
)  # fmt: skip
# The first is answered by counters, the others by building matches.
CONDITIONS = ("", "WHERE a[i].f >= a[i-1].f", "WHERE skip_till_next_match(a, b) { b.f >= 0 }")


def answers(text: str, rows: list[dict[str, Any]]) -> tuple[Any, Any]:
    table = pa.Table.from_pylist(rows, schema=pa.schema({"type": pa.string(), "ts": pa.int64(), **KINDS}))
    declared = {name: {column: KINDS[column] for column in columns} for name, columns in TYPES.items()}
    found = ouzel.match(table, ouzel.query(text, declared)).to_pylist()
    events = [Event(row["type"], row["ts"], row["ts"], row) for row in rows]
    ((_, results),) = oracle.answer(text, events, types=TYPES, ticks_per_second=None).items()
    return counted(found), counted(result.row for result in results)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_over_every_event(expression: str) -> None:
    rng = random.Random(expression)
    for condition in CONDITIONS:
        for function in ("SUM", rng.choice(("AVG", "MIN", "MAX")), "COUNT"):
            rows: list[dict[str, Any]] = []
            for time in range(1, 7):
                name = rng.choice("AACB") if time < 6 else "B"
                row = {"x": rng.choice((1, 2, 3, None)), "f": rng.choice((0.5, 1.0, 2.0)), "s": rng.choice(("u", "vw"))}
                rows.append({"type": name, "ts": time, **{k: v if k in TYPES[name] else None for k, v in row.items()}})
            text = f"PATTERN SEQ(ANY(A, C)+ a[], B b) {condition} AGG {function}({expression}) AS r WITHIN 6"
            try:
                found, right = answers(text, rows)
            except QueryError as error:
                assert "cannot add up" in error.message or "have no order" in error.message, text
                continue
            assert found == right, text
