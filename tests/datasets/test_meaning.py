"""The papers' queries find in the small worlds exactly what really happened there: by the oracle, and by the engine."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ouzel
from benchmarks.medicine import medicine
from benchmarks.sase_generators import sase_events, sase_matches_per_event, sase_query
from ouzel.datasets import shop_day
from tests.oracle.events import Event
from tests.oracle.oracle import answer

SHOPLIFTING = "PATTERN SEQ(Shelf x, !(Register y), Exit z) WHERE [tag_id] WITHIN 12 hours RETURN Theft(x.tag_id AS tag)"
MISPLACED = """
PATTERN SEQ(Shelf x, Shelf y, !(ANY(Register, Shelf) z))
WHERE [tag_id] AND x.shelf_id != y.shelf_id AND x.shelf_id = z.shelf_id
WITHIN 1 hour
RETURN Misplaced(x.tag_id AS tag, y.shelf_id AS found_on)
"""
OVERDOSE = """
PATTERN SEQ(MedicineTaken x, MedicineTaken y)
WHERE [name] AND [medicine] AND x.amount + y.amount > 1000
WITHIN 4 hours
RETURN Overdose(x.name AS name, x.medicine AS medicine, x.amount + y.amount AS amount)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_the_shop(seed: int) -> None:
    day = shop_day(10_000, seed=seed)
    # The oracle is slow: a slice of the shop, with every case and every twentieth item besides.
    cases = day.thefts.column("tag_id").to_pylist() + day.misplaced.column("tag_id").to_pylist()
    some = [f"tag-{number:07d}" for number in range(0, 1_200, 20)]
    rows = day.events.filter(pc.is_in(day.events.column("tag_id"), pa.array(cases + some)))
    types = {name: schema.names for name, schema in day.types.items()}
    assert len(rows) > 250

    thefts = _rows(SHOPLIFTING, rows, types)
    assert {row["tag"] for row in thefts} == set(day.thefts.column("tag_id").to_pylist())
    misplaced = _rows(MISPLACED, rows, types)
    truth = day.misplaced.select(["tag_id", "found_on"]).to_pylist()
    assert {(row["tag"], row["found_on"]) for row in misplaced} == {(row["tag_id"], row["found_on"]) for row in truth}


def test_the_medicine_log() -> None:
    log = medicine(400, patients=4, seed=6)
    found = _rows(OVERDOSE, log.events, None)
    truth = log.overdoses.select(["name", "medicine", "amount"]).to_pylist()
    assert truth
    assert sorted(map(_values, ({key: row[key] for key in truth[0]} for row in found))) == sorted(map(_values, truth))


@pytest.mark.compiled  # thousands of events
def test_the_engine_on_a_whole_day() -> None:
    day = shop_day(100_000, seed=5)
    thefts = ouzel.match(day.events, ouzel.query(SHOPLIFTING, types=day.types))
    assert set(thefts.column("tag").to_pylist()) == set(day.thefts.column("tag_id").to_pylist())
    misplaced = ouzel.match(day.events, ouzel.query(MISPLACED, types=day.types))
    assert set(misplaced.column("tag").to_pylist()) == set(day.misplaced.column("tag_id").to_pylist())
    # The same as separate inputs, each with the columns that it has.
    again = ouzel.match(day.by_type(), ouzel.query(MISPLACED), type=None)
    assert sorted(map(str, again.to_pylist())) == sorted(map(str, misplaced.to_pylist()))


@pytest.mark.compiled  # thousands of events
def test_the_engine_on_a_long_log() -> None:
    log = medicine(50_000, seed=7)
    found = ouzel.match(log.events, OVERDOSE).select(["name", "medicine", "start", "end", "amount"])
    truth = log.overdoses.rename_columns(["name", "medicine", "start", "end", "amount"])
    order = [(name, "ascending") for name in found.column_names]
    assert found.sort_by(order).to_pylist() == truth.sort_by(order).to_pylist()


@pytest.mark.compiled  # thousands of events
@pytest.mark.parametrize(
    "arguments", [{"negations": 1}, {"equivalence_tests": 2, "inequalities": 1, "simple_predicates": 1}]
)
def test_the_engine_finds_as_many_as_the_formula_says(arguments: dict[str, int]) -> None:
    values = (20, 5, 10, 10)
    query = sase_query(3, **arguments, values=values, window=2_000, seed=2)
    events = sase_events(400_000, values=values, seed=3)
    expected = sase_matches_per_event(query, values=values)
    assert ouzel.match(events, query.text).num_rows / len(events) == pytest.approx(expected, rel=0.1)


def _rows(query: str, table: pa.Table, types: dict[str, list[str]] | None) -> list[dict[str, Any]]:
    results = answer(query, list(_events(table)), types=types)
    return [result.row for results_of_query in results.values() for result in results_of_query]


def _events(table: pa.Table) -> Iterable[Event]:
    epoch = datetime.datetime(1970, 1, 1)
    for row in table.to_pylist():
        time_us = (row["ts"] - epoch) // datetime.timedelta(microseconds=1)
        yield Event(row["type"], time_us, time_us, row)


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.values())
