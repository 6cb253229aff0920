"""The shop and the medicine log: the truth that comes with them is what a plain search over the events finds."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.medicine import medicine
from ouzel.datasets import ShopDay, shop_day
from ouzel.errors import InputError

Row = dict[str, Any]


@pytest.fixture(scope="module", params=[1, 2])
def day(request: pytest.FixtureRequest) -> ShopDay:
    return shop_day(60_000, seed=request.param)


def test_a_day_has_exactly_the_events_asked_for_in_order_of_time() -> None:
    for events in (1_000, 1_001, 4_321, 50_000):
        day = shop_day(events, seed=events)
        times = day.events.column("ts").to_pylist()
        assert len(times) == events and times == sorted(times)
        assert times[0].date() == times[-1].date()
        assert day.thefts.num_rows and day.misplaced.num_rows


def test_a_day_is_the_same_for_the_same_seed() -> None:
    assert shop_day(5_000, seed=9).events.equals(shop_day(5_000, seed=9).events)
    assert not shop_day(5_000, seed=9).events.equals(shop_day(5_000, seed=10).events)


def test_readings_have_the_attributes_of_their_type_and_no_others(day: ShopDay) -> None:
    for name, table in day.by_type().items():
        assert table.schema.equals(day.types[name])
        assert all(column.null_count == 0 for column in table.columns)
        assert table.num_rows > 500
    everywhere = {"ts", "type", "tag_id"}
    for row in day.events.slice(0, 5_000).to_pylist():
        present = {column for column, value in row.items() if value is not None}
        assert present - everywhere == set(day.types[row["type"]].names) - everywhere


def test_the_shoplifting_query_would_find_exactly_the_thefts(day: ShopDay) -> None:
    found = set()
    for tag, rows in _by_tag(day).items():
        shelf, register, door = (_of_type(rows, name) for name in ("Shelf", "Register", "Exit"))
        for x in shelf:
            for z in door:
                in_time = timedelta(0) < z["ts"] - x["ts"] < timedelta(hours=12)
                if in_time and not any(x["ts"] < y["ts"] < z["ts"] for y in register):
                    found.add(tag)
    assert found == set(day.thefts.column("tag_id").to_pylist())


def test_misplaced_inventory_query_finds_the_misplaced(day: ShopDay) -> None:
    hour = timedelta(hours=1)
    found = set()
    for tag, rows in _by_tag(day).items():
        shelf, register = _of_type(rows, "Shelf"), _of_type(rows, "Register")
        for x in shelf:
            for y in shelf:
                if timedelta(0) < y["ts"] - x["ts"] < hour and x["shelf_id"] != y["shelf_id"]:
                    back = [z for z in shelf if z["shelf_id"] == x["shelf_id"]]
                    if not any(y["ts"] < z["ts"] < x["ts"] + hour for z in back + register):
                        found.add(tag)
    assert found == set(day.misplaced.column("tag_id").to_pylist())


def test_what_looks_like_a_case_at_first_is_there(day: ShopDay) -> None:
    """Without its negation each query would find many more: the world is no trap that anything falls into."""
    carried = strangers = repeated = 0
    for rows in _by_tag(day).values():
        shelf = _of_type(rows, "Shelf")
        carried += len({row["shelf_id"] for row in shelf}) > 1 and bool(_of_type(rows, "Register"))
        strangers += not shelf and bool(_of_type(rows, "Exit"))
        repeated += any(b["ts"] - a["ts"] < timedelta(seconds=4) and a["type"] == b["type"] for a, b in pairwise(rows))
    assert carried > day.misplaced.num_rows and strangers > 50 and repeated > 500


def test_the_truth_about_a_theft_is_in_the_readings(day: ShopDay) -> None:
    by_tag = _by_tag(day)
    for theft in day.thefts.to_pylist():
        rows = by_tag[theft["tag_id"]]
        assert any(row["ts"] == theft["taken_at"] and row["shelf_id"] == theft["shelf_id"] for row in rows)
        assert any(row["ts"] == theft["left_at"] and row["type"] == "Exit" for row in rows)
        assert {row["price"] for row in _of_type(rows, "Shelf")} == {theft["price"]}
    for item in day.misplaced.to_pylist():
        rows = by_tag[item["tag_id"]]
        assert any(row["ts"] == item["put_at"] and row["shelf_id"] == item["found_on"] for row in rows)
        assert item["found_on"] != item["shelf_id"]


def test_days_too_small_are_refused() -> None:
    with pytest.raises(InputError, match="at least 1,000 events, not 999"):
        shop_day(999)
    with pytest.raises(InputError, match="1 shelves"):
        shop_day(1_000, shelves=1)


@pytest.mark.parametrize(("events", "patients"), [(0, 10), (1, 1), (30_000, 40), (30_000, 5_000)])
def test_the_overdose_query_would_find_exactly_the_overdoses(events: int, patients: int) -> None:
    log = medicine(events, patients=patients, seed=4)
    assert log.events.num_rows == events
    times = log.events.column("ts").to_pylist()
    assert times == sorted(times)
    courses: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in log.events.to_pylist():
        courses[row["name"], row["medicine"]].append(row)
    found = set()
    for (name, what), rows in courses.items():
        for number, x in enumerate(rows):
            for y in rows[number + 1 :]:
                if y["ts"] - x["ts"] >= timedelta(hours=4):
                    break
                if x["ts"] < y["ts"] and x["amount"] + y["amount"] > 1000:
                    found.add((name, what, x["ts"], y["ts"], x["amount"] + y["amount"]))
    truth = [tuple(row.values()) for row in log.overdoses.to_pylist()]
    assert len(truth) == len(set(truth))
    assert found == set(truth)
    assert not events > 1_000 or ("John" in log.events.column("name").to_pylist() and len(truth) > 100)


def test_doses_are_positive_and_some_pairs_reach_the_limit_exactly() -> None:
    log = medicine(20_000, patients=100, seed=8)
    assert log.events.schema.field("amount").type == pa.int64()
    assert min(log.events.column("amount").to_pylist()) > 0
    courses: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in log.events.to_pylist():
        courses[row["name"], row["medicine"]].append(row)
    sums = [x["amount"] + y["amount"] for rows in courses.values() for x, y in pairwise(rows)]
    assert sums.count(1000) > 50


def _by_tag(day: ShopDay) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in day.events.to_pylist():
        rows[row["tag_id"]].append(row)
    return rows


def _of_type(rows: list[Row], name: str) -> list[Row]:
    return [row for row in rows if row["type"] == name]
