"""The rows behind live events, whatever the sizes and types of the batches that brought them."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ouzel.runtime import buffer as row_store
from ouzel.runtime.buffer import RowStore
from ouzel.runtime.snapshot import Reader, Writer
from tests.agreement import case_count

KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "int": (pa.int64(), lambda draw: draw.randrange(-5, 5)),
    "short": (pa.int32(), lambda draw: draw.randrange(-5, 5)),
    "float": (pa.float64(), lambda draw: draw.random()),
    "time": (pa.timestamp("ms", "UTC"), lambda draw: draw.randrange(10**12)),
    "text": (pa.string(), lambda draw: draw.choice(("", "a", "né", "a long text of many letters"))),
    "large": (pa.large_binary(), lambda draw: draw.choice((b"", b"\xff", b"abc"))),
    "decimal": (pa.decimal128(9, 2), lambda draw: Decimal(draw.randrange(100)).scaleb(-2)),
    "truth": (pa.bool_(), lambda draw: draw.random() < 0.5),
    "list": (pa.list_(pa.int64()), lambda draw: [1] * draw.randrange(3)),
}


def batch(draw: random.Random, kinds: list[str], first: int, count: int) -> pa.Table:
    """Rows that may be a slice of a larger table, in one chunk or several."""
    columns = {}
    for kind in kinds:
        type_, value = KINDS[kind]
        nulls = draw.choice((0, 0, 0.3))
        columns[kind] = pa.array([None if draw.random() < nulls else value(draw) for _ in range(count + 4)], type_)
    table = pa.table({"number": pa.array(range(first - 2, first + count + 2)), **columns}).slice(2, count)
    if count > 2 and draw.random() < 0.2:
        table = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    return table


def agrees(store: RowStore, wanted: dict[int, dict[str, Any]], ticks: dict[int, int], draw: random.Random) -> None:
    asked = np.array([draw.choice(list(wanted)) for _ in range(20)], np.int64)
    table, found_ticks, places = store.fetch(asked)
    listed = table.to_pylist()
    assert [listed[place] for place in places] == [wanted[number] for number in asked.tolist()]
    assert [int(found_ticks[place]) for place in places] == [ticks[number] for number in asked.tolist()]


@pytest.mark.parametrize(
    "kinds", [["int", "short", "float", "time"], ["text", "large"], ["int", "decimal"], ["truth"], ["list", "text"]]
)
def test_rows_are_found_by_number(kinds: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "_SMALL_ROWS", 16)
    for seed in range(case_count(20)):
        draw = random.Random(seed)
        store, wanted, ticks = RowStore(), {}, {}
        tick = 0
        for _ in range(60):
            count = draw.choice((0, 1, 1, 2, 5, 16, 40))
            table = batch(draw, kinds, len(ticks), count)
            times = np.array([tick + draw.randrange(3) for _ in range(count)], np.int64)
            tick += count
            base = store.append(table, times)
            for place, row in enumerate(table.to_pylist()):
                wanted[base + place], ticks[base + place] = row, int(times[place])
            if draw.random() < 0.3 and wanted:
                bound = tick - draw.choice((5, 20, 60))
                store.evict(bound)
                wanted = {number: row for number, row in wanted.items() if ticks[number] > bound}
            if draw.random() < 0.05 and wanted:
                kept = np.array(sorted(draw.sample(list(wanted), min(5, len(wanted)))), np.int64)
                renamed = store.keep(kept).tolist()
                old = dict(zip(kept.tolist(), renamed, strict=True))
                wanted = {new: wanted[number] for number, new in old.items()}
                ticks = {new: ticks[number] for number, new in old.items()}
            if draw.random() < 0.1:
                writer = Writer()
                head = {"store": store.dump(writer)}
                reader = Reader(writer.finish(head))
                store = RowStore.load(reader, reader.head["store"])
            if wanted:
                agrees(store, wanted, ticks, draw)


def test_small_batches_are_one_table_that_forgets_expired_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "_SMALL_ROWS", 64)
    store = RowStore()
    for tick in range(1000):
        store.append(pa.table({"x": [tick]}), np.array([tick]))
        store.evict(tick - 50)
        assert store.is_whole
        assert store.rows < 200
