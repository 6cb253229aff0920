"""The embedded engine from outside: inputs of every kind, lateness, limits, snapshots, memory."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import ouzel
from ouzel.sealing import SNAPSHOT, seal, unseal

ROWS = [
    {"type": "A", "ts": 1, "id": 7},
    {"type": "A", "ts": 2, "id": 8},
    {"type": "B", "ts": 4, "id": 7},
    {"type": "B", "ts": 5, "id": 9},
]
PAIR = "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 10 RETURN Pair(a.id AS id)"
ANSWER = [{"start": 1, "end": 4, "id": 7}]


def test_every_kind_of_input_in_memory() -> None:
    import duckdb
    import pandas as pd
    import polars as pl

    table = pa.Table.from_pylist(ROWS)
    inputs = {
        "table": table,
        "batch": table.to_batches()[0],
        "reader": table.to_reader(),
        "dataset": ds.dataset(table),
        "dictionaries": ROWS,
        "iterator": iter(ROWS),
        "pandas": pd.DataFrame(ROWS),
        "polars": pl.DataFrame(ROWS),
        "lazy polars": pl.LazyFrame(ROWS),
        "duckdb": duckdb.connect().from_arrow(table),
        "chunks": pa.concat_tables([table.slice(0, 1), table.slice(1, 2), table.slice(3)]),
        "dictionary types": table.set_column(0, "type", table["type"].dictionary_encode()),
        "large types": table.set_column(0, "type", table["type"].cast(pa.large_string())),
        "view types": table.set_column(0, "type", table["type"].cast(pa.string_view())),
    }
    for name, events in inputs.items():
        assert ouzel.match(events, PAIR).to_pylist() == ANSWER, name


def test_files(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, tmp_path / "events.parquet")
    csv.write_csv(table, tmp_path / "events.csv")
    lines = "\n".join(json.dumps(row) for row in ROWS)
    (tmp_path / "events.jsonl").write_text(lines + "\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    pq.write_table(table.slice(0, 2), folder / "1.parquet")
    pq.write_table(table.slice(2), folder / "2.parquet")
    for path in (tmp_path / "events.parquet", str(tmp_path / "events.csv"), tmp_path / "events.jsonl", folder):
        assert ouzel.match(path, PAIR).to_pylist() == ANSWER, path


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (42, "events cannot be read from a int"),
        (
            [1, 2],
            "event 0 must be a dictionary such as {'ts': 1, 'type': 'A'}, got a int; to pass columns, use ",
        ),
        ({"ts": [1, 2], "type": ["A", "B"]}, "this looks like columns; make them a table with pyarrow.table"),
        (
            [{"type": "A", "ts": dt.datetime(2024, 5, 1)}, {"type": "A", "ts": dt.datetime(2024, 5, 1, tzinfo=dt.UTC)}],
            "some times in column 'ts' have a zone and some have none",
        ),
        (
            pd.DataFrame({"ts": [1, 2], "type": ["A", "A"], "id": ["x", 1]}),
            "a column has values of several types: Expected bytes, got a 'int' object Conversion failed for column id",
        ),
        ("no/such/file.parquet", "there is no file or folder"),
        ([{"type": "A", "ts": "1 o'clock"}], "the time in row 0"),
        ([{"type": "A", "ts": 1}, {"type": "A", "ts": None}], "the time in row 1 (column 'ts') is null"),
        ([{"type": "A", "when": 1}], "there is no time column 'ts'"),
        ([{"kind": "A", "ts": 1}], "there is no type column 'type'"),
        ([{"type": "A", "ts": 1.5}], "the time column 'ts' is of type double"),
        (
            [{"type": "A", "ts": 1, "id": 1}, {"type": "A", "ts": 2, "id": "x"}],
            "the values of 'id' do not have one type",
        ),
    ],
)
def test_bad_inputs_say_what_and_where(events: Any, words: str) -> None:
    with pytest.raises(ouzel.InputError) as raised:
        ouzel.match(events, "PATTERN SEQ(A a, B b) WITHIN 10")
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("first", "then", "words"),
    [
        (
            dt.datetime(2024, 5, 1),
            dt.datetime(2024, 5, 2, tzinfo=dt.UTC),
            "have a zone in this batch and none in earlier",
        ),
        (dt.datetime(2024, 5, 1, tzinfo=dt.UTC), dt.datetime(2024, 5, 2), "have a zone in earlier batches and none in"),
        (1, dt.datetime(2024, 5, 2), "in this batch and int64 in earlier ones"),
        (dt.datetime(2024, 5, 1), 2, "are int64 in this batch"),
    ],
)
def test_batches_keep_to_one_clock(first: Any, then: Any, words: str) -> None:
    engine = ouzel.Engine("PATTERN A a WITHIN 10")
    engine.push([{"type": "A", "ts": first}])
    with pytest.raises(ouzel.InputError, match=words):
        engine.push([{"type": "A", "ts": then}])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_times_come_out_as_they_went_in(unit: str, zone: str | None) -> None:
    kind = pa.timestamp(unit, zone)
    table = pa.table({"type": ["A", "B"], "ts": pa.array([10, 12], pa.int64()).cast(kind)})
    answer = ouzel.match(table, "PATTERN SEQ(A a, B b) WITHIN 1 hour RETURN P(b.time - a.time AS took, b.time AS at)")
    assert answer.schema.field("start").type == answer.schema.field("at").type == kind
    assert answer["end"].cast(pa.int64()).to_pylist() == [12]
    per_tick = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}[unit]
    assert answer.schema.field("took").type == pa.duration("ns" if unit == "ns" else "us")
    assert answer["took"].cast(pa.int64()).to_pylist() == [2 * per_tick]


def test_nanoseconds_are_never_truncated() -> None:
    table = pa.table({"type": ["A", "B"], "ts": pa.array([1_000, 1_001], pa.int64()).cast(pa.timestamp("ns"))})
    assert ouzel.match(table, "PATTERN SEQ(A a, B b) WITHIN 1 us").num_rows == 1


def test_iso_text_and_dates_are_times() -> None:
    rows = [{"type": "A", "ts": "2024-05-01T10:00:00"}, {"type": "B", "ts": "2024-05-01T10:00:05"}]
    answer = ouzel.match(rows, "PATTERN SEQ(A a, B b) WITHIN 6 s")
    assert answer["end"].to_pylist() == [dt.datetime(2024, 5, 1, 10, 0, 5)]
    days = [{"type": "A", "ts": dt.date(2024, 5, 1)}, {"type": "B", "ts": dt.date(2024, 5, 3)}]
    assert ouzel.match(days, "PATTERN SEQ(A a, B b) WITHIN 3 days").num_rows == 1


def test_output_has_the_types_of_the_input() -> None:
    table = pa.table(
        {
            "type": ["A", "B"],
            "ts": pa.array([1, 2], pa.int32()),
            "d": pa.array([Decimal("1.10"), Decimal("2.20")], pa.decimal128(10, 2)),
            "l": pa.array([[1], [2, 3]], pa.list_(pa.int8())),
            "s": pa.array([{"city": "Ulm"}, {"city": "Ulm"}]),
            "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
            "b": pa.array([b"x", b"y"]),
        }
    )
    answer = ouzel.match(table, "PATTERN SEQ(A a, B b) WHERE a.d < b.d AND a.s.city = b.s.city WITHIN 5")
    assert answer.schema.field("a").type == pa.struct(list(table.schema))
    assert answer.schema.field("start").type == pa.int32()
    assert answer["b"].to_pylist() == [table.to_pylist()[1]]


def test_inputs_by_type_with_different_schemas() -> None:
    shelf = pa.table({"ts": [1, 2], "tag": ["x", "y"], "weight": [1.5, 9.0]})
    exits = pa.table({"ts": [5, 6], "tag": ["y", "x"], "weight": pa.array(["heavy", "light"])})
    answer = ouzel.match({"Shelf": shelf, "Exit": exits}, "PATTERN SEQ(Shelf a, Exit b) WHERE [tag] AND a.weight > 3")
    assert answer.to_pylist() == [
        {
            "start": 2,
            "end": 5,
            "a": {"ts": 2, "tag": "y", "weight": 9.0},
            "b": {"ts": 5, "tag": "y", "weight": "heavy"},
        }
    ]


def test_no_type_column() -> None:
    rows = [{"ts": 1, "price": 5}, {"ts": 2, "price": 7}]
    rising = "PATTERN SEQ(Stock a, Stock b) WHERE a.price < b.price WITHIN 10"
    assert ouzel.match(rows, rising, type=None).num_rows == 1
    with pytest.raises(ouzel.InputError, match="several event types"):
        ouzel.match(rows, "PATTERN SEQ(Stock a, Bond b) WITHIN 10", type=None)


def test_several_queries_give_several_tables() -> None:
    answers = ouzel.match(ROWS, {"pairs": PAIR, "all": "PATTERN SEQ(A a, B b) WITHIN 10"})
    assert {name: table.num_rows for name, table in answers.items()} == {"pairs": 1, "all": 4}


def test_late_events_are_counted_and_can_be_had() -> None:
    engine = ouzel.Engine(PAIR, max_delay=2, keep_late=True)
    engine.push([{"type": "A", "ts": 10, "id": 1}])
    # The watermark is 10 - 2 - 1: a time of 7 is late, one of 8 is not.
    engine.push([{"type": "A", "ts": 7, "id": 1}, {"type": "A", "ts": 8, "id": 1}])
    assert engine.watermark == 7 and engine.late == 1
    late = engine.take_late()
    assert late is not None and late["ts"].to_pylist() == [7]
    answer = engine.push([{"type": "B", "ts": 12, "id": 1}])["query"].to_pylist() + engine.finish()["query"].to_pylist()
    assert answer == [{"start": 10, "end": 12, "id": 1}, {"start": 8, "end": 12, "id": 1}]


def test_a_negated_end_is_never_early() -> None:
    engine = ouzel.Engine("PATTERN SEQ(A a, !(B b)) WITHIN 10 RETURN Alone(a.ts AS at)")
    engine.push([{"type": "A", "ts": 5}])
    assert engine.advance(13)["query"].num_rows == 0
    assert engine.advance(14)["query"].to_pylist() == [{"start": 5, "end": 14, "at": 5}]


def test_max_delay_as_text_and_timedelta() -> None:
    for delay in ("2 s", dt.timedelta(seconds=2)):
        engine = ouzel.Engine("PATTERN SEQ(A a, B b) WITHIN 1 min", max_delay=delay)
        engine.push(pa.table({"type": ["A"], "ts": pa.array([10_000_000], pa.timestamp("us"))}))
        assert engine.watermark == 10_000_000 - 2_000_000 - 1
    engine = ouzel.Engine(PAIR, max_delay="2 s")
    with pytest.raises(ouzel.InputError, match="time_unit"):
        engine.push(ROWS)
    with pytest.raises(ouzel.InputError, match="negative"):
        ouzel.Engine(PAIR, max_delay=-1).push(ROWS)


def test_a_stream_needs_a_window() -> None:
    with pytest.raises(ouzel.QueryError, match="WITHIN"):
        ouzel.Engine("PATTERN SEQ(A a, B b)")


def test_a_finished_engine_is_finished() -> None:
    engine = ouzel.Engine(PAIR)
    engine.push(ROWS)
    engine.finish()
    with pytest.raises(ouzel.InputError, match="finished"):
        engine.push(ROWS)


def test_later_batches_may_differ_in_order_and_width_but_not_in_kind() -> None:
    engine = ouzel.Engine(PAIR)
    engine.push(pa.table({"type": ["A"], "ts": [1], "id": [7]}))
    engine.push(pa.table({"id": pa.array([7], pa.int32()), "extra": ["x"], "ts": [4], "type": ["B"]}))
    assert engine.finish()["query"].to_pylist() == ANSWER
    engine = ouzel.Engine(PAIR)
    engine.push(ROWS)
    with pytest.raises(ouzel.InputError, match="'id' is missing"):
        engine.push(pa.table({"type": ["A"], "ts": [9]}))
    with pytest.raises(ouzel.InputError, match="'type' is missing"):
        engine.push([{"ts": 9, "id": 7}])
    with pytest.raises(ouzel.InputError, match="no time column 'ts'"):
        engine.push([{"type": "A", "id": 7}])
    with pytest.raises(ouzel.InputError, match="cannot be converted"):
        engine.push([{"type": "A", "ts": 9, "id": "seven"}])


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        ({"max_matches_per_timestamp": 10}, "max_matches_per_timestamp"),
        ({"max_buffered_events": 15}, "max_buffered_events"),
    ],
)
def test_limits_are_errors_that_name_them(limits: dict[str, int], name: str) -> None:
    rows = [{"type": "A", "ts": t} for t in range(20)] + [{"type": "B", "ts": 30}]
    with pytest.raises(ouzel.LimitError) as raised:
        ouzel.match(rows, ouzel.query("PATTERN SEQ(A a, B b) WITHIN 100", name="many"), limits=limits)
    assert name in str(raised.value) and "'many'" in str(raised.value)


def test_the_limit_on_waiting_matches() -> None:
    rows = [{"type": "A", "ts": t} for t in range(20)]
    with pytest.raises(ouzel.LimitError, match="max_partial_matches"):
        ouzel.match(rows, "PATTERN SEQ(A a, !(B b)) WITHIN 100", limits={"max_partial_matches": 5})
    with pytest.raises(ouzel.InputError, match="there is no limit 'max_patience'"):
        ouzel.match(rows, PAIR, limits={"max_patience": 5})


UNTYPED = "PATTERN SEQ(A a, B b) WHERE [id] AND (a.note = b.note OR b.note IS NULL) WITHIN 10 RETURN R(a.note AS n)"
FIELDS = {"ts": pa.int64(), "id": pa.int64(), "note": pa.string()}
NULLS_FIRST = [
    {"type": "A", "ts": 1, "id": None, "note": None},
    {"type": "A", "ts": 2, "id": 7, "note": None},
    {"type": "B", "ts": 3, "id": 7},
    {"type": "A", "ts": 4, "id": 7, "note": "x"},
    {"type": "B", "ts": 5, "id": 7, "note": "x"},
    {"type": "B", "ts": 6, "id": 7},
]


def pushed(engine: ouzel.Engine, batches: list[Any]) -> list[dict[str, Any]]:
    found = [row for batch in batches for row in engine.push(batch)["query"].to_pylist()]
    return found + engine.finish()["query"].to_pylist()


def test_schema_gives_columns_types_before_their_first_value() -> None:
    wanted = ouzel.match(NULLS_FIRST, UNTYPED).to_pylist()
    assert len(wanted) == 4
    whole = pa.schema({"type": pa.string(), **FIELDS})
    assert pushed(ouzel.Engine(UNTYPED, schema=whole), [[row] for row in NULLS_FIRST]) == wanted
    by_type = [{row["type"]: [{k: v for k, v in row.items() if k != "type"}]} for row in NULLS_FIRST]
    schemas = {"A": pa.schema(FIELDS), "B": pa.schema(FIELDS)}
    assert pushed(ouzel.Engine(UNTYPED, schema=schemas), by_type) == wanted


def test_value_in_column_without_type_is_refused_if_a_query_reads_it() -> None:
    words = r"type of column 'id' must be known before its first value.*has int64\. Give schema="
    engine = ouzel.Engine(UNTYPED)
    engine.push(NULLS_FIRST[:1])
    restored = ouzel.Engine.restore(engine.snapshot())
    by_type = ouzel.Engine(UNTYPED)
    by_type.push({name: [{"ts": 1, "id": None, "note": None}] for name in "AB"})
    for one, batch in (
        (engine, NULLS_FIRST[1:2]),
        (restored, NULLS_FIRST[1:2]),
        (by_type, {"A": [{"ts": 2, "id": 7, "note": None}]}),
    ):
        with pytest.raises(ouzel.InputError, match=words):
            one.push(batch)
        assert not one.interrupted


def test_value_in_column_without_type_is_left_out_if_no_query_reads_it() -> None:
    query = "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 10 RETURN R(a.ts AS at)"
    rows = [{"type": "A", "ts": 1, "id": 7, "note": None}, {"type": "B", "ts": 2, "id": 7, "note": "x"}]
    assert pushed(ouzel.Engine(query), [rows[:1], rows[1:]]) == [{"start": 1, "end": 2, "at": 1}]
    # Late events are returned with all their columns.
    engine = ouzel.Engine(query, keep_late=True)
    engine.push(rows[:1])
    with pytest.raises(ouzel.InputError, match="type of column 'note' must be known"):
        engine.push(rows[1:])


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"ts": "int64"}, "schema= must be a pyarrow Schema.*got 'int64'"),
        (pa.schema({"type": pa.string()}), "no time column 'ts'"),
        (pa.schema({"type": pa.string(), "ts": pa.string()}), "'ts' in schema= must be a timestamp.*got text"),
        (pa.schema({"type": pa.string(), "ts": pa.int64(), "id": pa.int64()}), "no column 'note'"),
    ],
)
def test_wrong_schema_is_refused_before_the_first_event(schema: Any, words: str) -> None:
    with pytest.raises(ouzel.OuzelError, match=words):
        ouzel.Engine(UNTYPED, schema=schema)


def test_an_event_that_may_play_two_components_is_one_event() -> None:
    engine = ouzel.Engine("PATTERN SEQ(A a, A b) WITHIN 100", limits={"max_buffered_events": 10})
    engine.push([{"type": "A", "ts": t} for t in range(10)])
    assert engine.held_events == 10
    with pytest.raises(ouzel.LimitError, match="holds 11 events, more than max_buffered_events=10"):
        engine.push([{"type": "A", "ts": 10}])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"limits": 5}, "limits= must be a dictionary"),
        ({"limits": {"max_partial_matches": -1}}, "must be an integer >= 1, got -1"),
        ({"limits": {"max_partial_matches": "many"}}, "must be an integer >= 1, got 'many'"),
    ],
)
def test_wrong_options_are_errors_of_ours(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ouzel.InputError, match=words):
        ouzel.match(ROWS, PAIR, **wrong)
    with pytest.raises(ouzel.InputError, match=words):
        ouzel.Engine(PAIR, **wrong)


@pytest.mark.parametrize("wrong", [5, None, [5], {"a": 5}])
def test_what_is_no_query(wrong: Any) -> None:
    with pytest.raises(ouzel.InputError, match="a query must be text or made by"):
        ouzel.match(ROWS, wrong)


# ── Snapshots ──────────────────────────────────────────────────────────────────────────────────────


def running_engine() -> ouzel.Engine:
    engine = ouzel.Engine("PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 10", max_delay=3)
    engine.push(ROWS)
    return engine


def test_a_restored_engine_goes_on_as_the_old_one() -> None:
    engine = running_engine()
    twin = ouzel.Engine.restore(engine.snapshot())
    more = [{"type": "A", "ts": 6, "id": 8}, {"type": "B", "ts": 30, "id": 1}]
    assert twin.push(more)["query"].to_pylist() == engine.push(more)["query"].to_pylist()
    assert twin.finish()["query"].to_pylist() == engine.finish()["query"].to_pylist()


def test_damaged_snapshots_are_refused() -> None:
    blob = running_engine().snapshot()
    for place in range(0, len(blob), max(1, len(blob) // 97)):
        broken = blob[:place] + bytes([blob[place] ^ 0x40]) + blob[place + 1 :]
        with pytest.raises(ouzel.StateError):
            ouzel.Engine.restore(broken)
    for length in (0, 1, 20, len(blob) // 2, len(blob) - 1):
        with pytest.raises(ouzel.StateError):
            ouzel.Engine.restore(blob[:length])
    with pytest.raises(ouzel.StateError):
        ouzel.Engine.restore(blob + b"x")


def test_a_newer_snapshot_is_refused() -> None:
    blob = running_engine().snapshot()
    newer = seal(replace(SNAPSHOT, number=2**20), unseal(SNAPSHOT, blob))
    with pytest.raises(ouzel.StateError, match="newer Ouzel"):
        ouzel.Engine.restore(newer)


def test_numbers_that_do_not_fit_are_an_error() -> None:
    table = pa.table({"type": ["A", "B"], "ts": [1, 2], "u": pa.array([2**63, 5], pa.uint64())})
    with pytest.raises(ouzel.InputError, match="'u'"):
        ouzel.match(table, "PATTERN SEQ(A a, B b) WHERE a.u > 3 WITHIN 5")
    assert ouzel.match(table, "PATTERN SEQ(A a, B b) WITHIN 5")["a"].to_pylist()[0]["u"] == 2**63


def test_rows_are_counted_beyond_32_bits() -> None:
    """The 2^40th event is like any other."""
    engine = ouzel.Engine(PAIR)
    engine.push(ROWS[:1])
    assert engine._session is not None
    (operator,) = engine._session._operators
    operator._buffer.store._next = 2**40  # type: ignore[attr-defined]
    engine.push(ROWS[1:3])
    engine = ouzel.Engine.restore(engine.snapshot())
    assert engine.push(ROWS[3:])["query"].to_pylist() == ANSWER


# ── Memory ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.compiled  # thousands of events
def test_memory_follows_the_window_not_the_stream() -> None:
    """Fifty windows of ever new keys: what is held, and what a snapshot takes, stops growing after the first few."""
    window = 2_000
    query = "PATTERN SEQ(A a, !(C n), B b) WHERE [id] AND a.s < b.s WITHIN 2000 RETURN P(a.id AS id, a.s AS s)"
    engine = ouzel.Engine(query)
    rng = np.random.default_rng(5)
    sizes, held = [], []
    for turn in range(50):
        ticks = np.sort(rng.integers(turn * window, (turn + 1) * window, 4_000))
        ids = turn * 1_000 + rng.integers(0, 1_000, 4_000)
        table = pa.table(
            {
                "type": np.array(["A", "B", "C", "D"])[rng.integers(0, 4, 4_000)],
                "ts": ticks,
                "id": ids,
                "s": pa.array([f"text {i} of {turn}" for i in ids]),
            }
        )
        engine.push(table)
        held.append(engine.held_events)
        sizes.append(len(engine.snapshot()))
    assert max(held[25:]) <= 1.5 * max(held[2:8])
    assert max(sizes[25:]) <= 2 * max(sizes[4:12])


def test_compressed_rows_with_a_return_come_from_streams_too() -> None:
    text = "PATTERN SEQ(A+ a[], B b) WHERE [id] WITHIN 9 OUTPUT COMPRESSED RETURN R(a.x AS a)"
    rows = [{"type": kind, "ts": ts, "id": 1, "x": ts} for ts, kind in enumerate("AAB", start=1)]
    engine = ouzel.Engine(text)
    for row in rows:
        engine.push([row])
    assert (
        ouzel.expand(engine.finish()["query"], text).to_pylist()
        == ouzel.expand(ouzel.match(rows, text), text).to_pylist()
    )
