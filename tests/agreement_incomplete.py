"""Comparing the engine with the oracle of incomplete streams: the same paths, with scores and probabilities alike."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

import ouzel
from tests.generate.incomplete import IncompleteCase
from tests.oracle import incomplete

SCHEMA = pa.schema(
    {
        "type": pa.string(),
        "reader": pa.string(),
        "time": pa.int64(),
        "n": pa.int64(),
        "id": pa.int64(),
        "x": pa.int64(),
        "s": pa.string(),
    }
)
COLUMNS = {"time": "time", "type": "type"}
RELATIVE, ABSOLUTE = 1e-6, 1e-9

Rows = dict[str, tuple[float, float | None]]


def table_of(case: IncompleteCase) -> pa.Table:
    return pa.Table.from_pylist([dict(event.attributes) for event in case.events], schema=SCHEMA)


def expected(case: IncompleteCase) -> Rows:
    return keyed(one.row for one in incomplete.answer(case.text, case.events, json.loads(case.model.to_json())))


def keyed(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """Score and probability by everything else in the row."""
    found: Rows = {}
    for row in rows:
        rest = {name: value for name, value in row.items() if name not in ("score", "probability")}
        key = repr(rest)
        while key in found:
            key += " again"
        found[key] = (row["score"], row["probability"])
    return found


def matched(case: IncompleteCase, **options: Any) -> Rows:
    return keyed(ouzel.match(table_of(case), case.text, model=case.model, **COLUMNS, **options).to_pylist())


def streamed(case: IncompleteCase, rng: random.Random) -> Rows:
    """In batches of random sizes, restored from snapshots in between."""
    table = table_of(case).sort_by("time")
    engine = ouzel.Engine(case.text, model=case.model, **COLUMNS)
    rows: list[Any] = []
    start = 0
    while start < table.num_rows:
        size = rng.choice([1, 1, 2, 4])
        rows += engine.push(table.slice(start, size))["query"].to_pylist()
        start += size
        if rng.random() < 0.4:
            engine = ouzel.Engine.restore(engine.snapshot())
    rows += engine.finish()["query"].to_pylist()
    return keyed(rows)


def difference(case: IncompleteCase, found: Rows, want: Rows) -> str | None:
    """What is wrong, in words. Paths that lie on the threshold to within the tables' error may go either way."""
    threshold = float(case.text.split("THRESHOLD ")[1].split()[0])
    on_probability = "ON probability" in case.text
    for key in found.keys() ^ want.keys():
        score, probability = found.get(key) or want[key]
        worth = probability if on_probability else score
        if worth is None or not close(worth, threshold):
            return f"{'found, not expected' if key in found else 'expected, not found'}: {key} {score} {probability}"
    for key in found.keys() & want.keys():
        for one, other in zip(found[key], want[key], strict=True):
            if (one is None) != (other is None) or (one is not None and other is not None and not close(one, other)):
                return f"{key}: found {found[key]}, expected {want[key]}"
    return None


def close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
