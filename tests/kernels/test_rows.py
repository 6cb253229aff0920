"""Rows in typed arrays: both readers give what Arrow makes of the same events, and rows are appended and dropped."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ouzel.kernels import rows as kernel_rows
from ouzel.runtime.inbox import GrowingRows

pytestmark = pytest.mark.quick

SCHEMA = pa.schema(
    {
        "ts": pa.int64(),
        "x": pa.float64(),
        "text": pa.string(),
        "ok": pa.bool_(),
        "at": pa.timestamp("us"),
        "zoned": pa.timestamp("us", "UTC"),
        "nothing": pa.null(),
        "other": pa.string(),
    }
)
# Python has no type of its own for these values.
WIDE = pa.schema(
    [
        *SCHEMA,
        ("small", pa.int8()),
        ("day", pa.date32()),
        ("real", pa.float32()),
        ("large", pa.large_string()),
        ("short", pa.int16()),
    ]
)


@pytest.fixture(params=["library", "python"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the process has no library, both are the reader in Python."""
    if request.param == "python":
        monkeypatch.setattr(kernel_rows, "LIBRARY", None)


def drawn(draw: random.Random, count: int) -> list[dict[str, Any]]:
    made = []
    for _ in range(count):
        at = datetime(1969, 12, 30) + timedelta(microseconds=draw.randrange(10**12))
        row = {
            "ts": draw.randrange(-(2**63), 2**63),
            "x": draw.choice((0.0, -0.0, 1.5, float("inf"))),
            "text": draw.choice(("", "a", "né", "日本", "x" * 700)),
            "ok": draw.random() < 0.5,
            "at": at,
            "zoned": at.replace(tzinfo=UTC),
            "nothing": None,
            "other": draw.choice(("p", "q" * 40)),
        }
        optional = [name for name in row if name != "ts"]
        for name in draw.sample(optional, draw.choice((0, 0, 1, 3))):
            if draw.random() < 0.5:
                row[name] = None
            else:
                del row[name]
        made.append(row)
    return made


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("seed", range(5))
def test_dictionaries_are_read_as_arrow_reads_them(seed: int) -> None:
    draw = random.Random(seed)
    rows, wanted = GrowingRows.of(SCHEMA, "ts"), []
    assert rows is not None
    for count in (1, 3, 1, 100, 300, 2):
        part = drawn(draw, count)
        if draw.random() < 0.3:
            rows.drop(dropped := draw.randrange(rows.count + 1))
            wanted = wanted[dropped:]
        # What is refused leaves nothing behind.
        assert not rows.read([*part, {**part[0], "ts": 1.0}], count + 1)
        assert rows.read(part, count)
        assert rows.rows.memory[kernel_rows.OLDEST] == min(row["ts"] for row in part)
        assert rows.rows.memory[kernel_rows.NEWEST] == max(row["ts"] for row in part)
        rows.keep(count)
        wanted += part
        assert rows.table(0, rows.count).equals(pa.Table.from_pylist(wanted, SCHEMA))
        assert rows.whole().equals(pa.Table.from_pylist(wanted, SCHEMA))
        first = draw.randrange(rows.count)
        assert rows.table(first, rows.count).equals(pa.Table.from_pylist(wanted[first:], SCHEMA))


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize(
    "bad",
    [
        {"ts": True},
        {"ts": "1"},
        {"ts": 2**63},
        {"ts": -(2**63) - 1},
        {"ts": 1, "x": 1},
        {"ts": 1, "text": b"a"},
        {"ts": 1, "text": "\ud800"},
        {"ts": 1, "ok": 1},
        {"ts": 1, "at": datetime(2020, 1, 1, tzinfo=UTC)},
        {"ts": 1, "zoned": datetime(2020, 1, 1)},
        {"ts": 1, "at": date(2020, 1, 1)},
        {"ts": 1, "nothing": 1},
        {"ts": 1, "unknown": 1},
        {"ts": 1, 7: 1},
        [("ts", 1)],
        None,
    ],
)
def test_values_of_other_types_are_refused(bad: Any) -> None:
    rows = GrowingRows.of(SCHEMA, "ts")
    assert rows is not None
    assert not rows.read([{"ts": 1}, bad], 2)
    assert rows.read([{"ts": 1}], 1)


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("seed", range(5))
def test_batches_are_read_with_slices_and_nulls(seed: int) -> None:
    draw = random.Random(seed)
    rows, whole = GrowingRows.of(WIDE, "ts"), pa.Table.from_pylist([], WIDE)
    assert rows is not None
    for count in (1, 9, 200, 40):
        values = drawn(draw, count + 5)
        for row in values:
            row.setdefault("text", "t")
            row |= {"small": -7, "day": date(1960, 5, 4), "real": 2.5, "large": row["text"], "short": -300}
            row[draw.choice(("small", "day", "real", "short"))] = None
        batch = pa.RecordBatch.from_pylist(values, WIDE).slice(draw.randrange(6), count)
        assert rows.read(batch, count)
        rows.keep(count)
        whole = pa.concat_tables([whole, pa.Table.from_batches([batch])])
        assert rows.whole().equals(whole)
        assert rows.table(3 % count, rows.count).equals(whole.slice(3 % count))


def test_chosen_rows_of_chosen_columns_are_appended() -> None:
    draw = random.Random(1)
    source = GrowingRows.of(SCHEMA, "ts")
    names = ["other", "ok", "ts", "text"]
    target = GrowingRows.of(pa.schema([SCHEMA.field(name) for name in names]))
    assert source is not None and target is not None
    columns = [SCHEMA.get_field_index(name) for name in names]
    wanted: list[dict[str, Any]] = []
    times: list[int] = []
    for _ in range(30):
        part = drawn(draw, 20)
        assert source.read(part, 20)
        source.keep(20)
        chosen = sorted(draw.sample(range(20), 7))
        target.append(source, columns, np.array([*chosen, 19], np.int32), 7, source.ticks)
        times += [part[row]["ts"] for row in chosen]
        assert target.newest == max(times)
        wanted += [part[row] for row in chosen]
        source.drop(20)
    assert target.whole().equals(pa.Table.from_pylist(wanted, target.schema))
    assert target.appended_ticks[: target.count].tolist() == times


@pytest.mark.usefixtures("reader")
def test_rows_may_have_no_numbers() -> None:
    rows = GrowingRows.of(pa.schema({"name": pa.string()}))
    assert rows is not None
    batch = pa.record_batch({"name": ["a", None]})
    assert rows.read(batch, 2)
    rows.keep(2)
    assert rows.whole().to_batches()[0].equals(batch)
