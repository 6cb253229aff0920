"""Calls before the first event and options that cannot be meant: the right answer, or an error at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ouzel

PAIR = "PATTERN SEQ(A a, B b) WITHIN 10 RETURN Pair(a.ts AS a, b.ts AS b)"
EVENTS = [{"type": "A", "ts": 1}, {"type": "B", "ts": 3}]
WANTED = [(1, 3)]


def engine(**options: Any) -> ouzel.Engine:
    return ouzel.Engine({"pair": PAIR}, **options)


def query_set(**options: Any) -> ouzel.QuerySet:
    made = ouzel.QuerySet(**options)
    made.add("pair", PAIR)
    return made


Make = Callable[..., Any]
MAKERS = pytest.mark.parametrize("make", [engine, query_set])


def pairs(*answers: dict[Any, pa.Table]) -> list[tuple[int, int]]:
    tables = [answer["pair"] for answer in answers if "pair" in answer]
    return [(row["a"], row["b"]) for table in tables for row in table.to_pylist()]


@MAKERS
@pytest.mark.parametrize("nothing", [[], (), iter([]), {}, {"A": [], "B": []}])
def test_nothing_before_the_first_events(make: Make, nothing: Any) -> None:
    if isinstance(nothing, dict) and make is query_set:
        with pytest.raises(ouzel.InputError):
            make().push(nothing)  # A set reads one table.
        return
    running = make()
    empty = running.push(nothing)
    assert all(table.num_rows == 0 for table in empty.values())
    assert list(empty) == (["pair"] if make is engine else [])
    # It said nothing about columns, so the first events do.
    assert pairs(running.push(EVENTS), running.push([]), running.finish()) == WANTED


def test_empty_answers_have_the_columns_that_are_known() -> None:
    running = engine()
    assert running.push([])["pair"].column_names == []
    columns = ["start", "end", "a", "b"]
    assert running.push(EVENTS)["pair"].column_names == columns
    assert running.push([])["pair"].column_names == columns
    assert engine().push(pa.Table.from_pylist(EVENTS).slice(0, 0))["pair"].column_names == columns


@MAKERS
def test_finish_before_the_first_events(make: Make) -> None:
    running = make()
    ended = running.finish()
    assert list(ended) == (["pair"] if make is engine else [])
    assert all(table.num_rows == 0 for table in ended.values())
    for call in (running.finish, lambda: running.push(EVENTS), lambda: running.advance(5)):
        with pytest.raises(ouzel.InputError, match="finished"):
            call()


@MAKERS
def test_calls_that_need_events_say_so(make: Make) -> None:
    with pytest.raises(ouzel.InputError, match="after the first push"):
        make().advance(5)
    with pytest.raises(ouzel.InputError, match="after the first push"):
        make().snapshot()


WRONG_DELAYS: list[Any] = [
    *(-1, -1.0, 1.5, float("nan"), float("inf"), True, None, [], timedelta(seconds=-1), np.int64(-1)),
    *("", "5", "-5 s", "x"),
]


@MAKERS
@pytest.mark.parametrize("delay", WRONG_DELAYS, ids=repr)
def test_a_wrong_delay_is_refused_at_once(make: Make, delay: Any) -> None:
    with pytest.raises(ouzel.InputError, match="max_delay"):
        make(max_delay=delay)


@MAKERS
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": None}, "time= must be text"),
        ({"time": 5}, "time= must be text"),
        ({"type": 5}, "type= must be text"),
        ({"time_unit": 5}, "time_unit= must be text"),
        ({"time_unit": "fortnight"}, "no unit of time 'fortnight'"),
        ({"order": None}, "order= must be a list of column names"),
        ({"order": 5}, "order= must be a list of column names"),
        ({"order": [5]}, "order= must be a list of column names"),
        ({"limits": {"max_buffered_events": float("nan")}}, "max_buffered_events"),
        ({"limits": {"max_buffered_events": -1}}, "max_buffered_events"),
        ({"limits": {"max_buffered_events": True}}, "max_buffered_events"),
        ({"limits": {"max_buffered_events": "7"}}, "max_buffered_events"),
    ],
    ids=repr,
)
def test_wrong_options_are_refused_at_once(make: Make, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ouzel.InputError, match=message):
        make(**options)


@MAKERS
def test_numbers_of_numpy_are_numbers(make: Make) -> None:
    running = make(max_delay=np.int64(2), limits={"max_buffered_events": np.int32(5)}, order="type")
    first = running.push(EVENTS)
    assert pairs(first) == []
    assert pairs(running.advance(np.int64(3))) == WANTED
    restored = type(running).restore(running.snapshot())
    assert pairs(restored.finish()) == []


def test_names_are_texts() -> None:
    for name in (5, None):
        with pytest.raises(ouzel.InputError, match="name of a query must be text"):
            ouzel.Engine({name: PAIR})  # type: ignore[dict-item]
        with pytest.raises(ouzel.InputError, match="name of an event type must be text"):
            ouzel.match({name: EVENTS}, PAIR)


@pytest.mark.parametrize("events", [[], {}, {"A": [], "B": []}, pa.table({})], ids=repr)
def test_match_needs_columns(events: Any) -> None:
    with pytest.raises(ouzel.InputError, match="the input has no columns"):
        ouzel.match(events, PAIR)


def test_an_unnamed_index_of_pandas_is_no_column() -> None:
    """Frames have one after `sample()` or a filter. An index with a name is a column."""
    frame = pd.DataFrame(EVENTS, index=[7, 3])
    query = "PATTERN SEQ(A a, B b) WITHIN 10"
    (row,) = ouzel.match(frame, query).to_pylist()
    assert row["a"] == EVENTS[0]
    (row,) = ouzel.match(frame.rename_axis("number"), query).to_pylist()
    assert row["a"] == {**EVENTS[0], "number": 7}


def test_a_misspelt_time_column_gets_the_nearest_one() -> None:
    words = "there is no time column 'tss'; did you mean 'ts'? The columns are 'type', 'ts'. Name it with time="
    with pytest.raises(ouzel.InputError, match=re.escape(words)):
        ouzel.match(EVENTS, PAIR, time="tss")


def test_an_empty_path_is_not_this_folder() -> None:
    with pytest.raises(ouzel.InputError, match="path of the events is empty"):
        ouzel.match("", PAIR)


def test_what_is_not_a_query_is_named() -> None:
    text = "PATTERN SEQ(A a, B b) WITHIN 2"
    events = [{"ts": 1, "type": "A"}]
    for call, words in (
        (lambda: ouzel.match(text, events), "got a dict; the events come first"),
        (lambda: ouzel.match(text, pa.Table.from_pylist(events)), "got a Table; the events come first"),
        (lambda: ouzel.match(text, pd.DataFrame(events)), "got a DataFrame; the events come first"),
        (lambda: ouzel.match(text, pl.DataFrame(events)), "got a DataFrame; the events come first"),
        (lambda: ouzel.match(events, Path("theft.query")), r"got a PosixPath; read the file with read_text\(\)"),
        (lambda: ouzel.match(events, text, params=[1]), "params= must be a dictionary of values by name, got a list"),
        (lambda: list(ouzel.stream("events.jsonl", text)), "batches must be an iterable of batches, got a str"),
        (lambda: list(ouzel.stream(pa.Table.from_pylist(events), text)), "got a Table; use ouzel.match"),
    ):
        with pytest.raises(ouzel.InputError, match=words):
            call()
    with pytest.raises(KeyError, match="there is no query 'q' in these answers, which are of 'query'"):
        ouzel.Engine(text).push(events)["q"]


def test_lists_of_lists_and_globs_of_uris_are_read(tmp_path: Path) -> None:
    text = "PATTERN SEQ(A a, B b) WITHIN 2"
    events = [{"ts": number, "type": "AB"[number % 2]} for number in range(8)]
    assert ouzel.match(([event] for event in events), text).num_rows == 4
    (tmp_path / "deep").mkdir()
    for number, folder in enumerate((tmp_path, tmp_path / "deep")):
        pq.write_table(pa.Table.from_pylist(events[4 * number : 4 * number + 4]), folder / f"part{number}.parquet")
    assert ouzel.match(f"file://{tmp_path}/part*.parquet", text).num_rows == 2
    assert ouzel.match(f"file://{tmp_path}/**/part*.parquet", text).num_rows == 4
    with pytest.raises(ouzel.InputError, match=r"no file matches 'file://.*x\*.parquet'"):
        ouzel.match(f"file://{tmp_path}/x*.parquet", text)
