"""Rows of arrays: whatever the type, the nulls and the offset, as Arrow takes them."""

from __future__ import annotations

import datetime
import random

import numpy as np
import pyarrow as pa
import pytest

from ouzel.kernels import order as kernels
from ouzel.runtime.frames import take

pytestmark = pytest.mark.quick

MOMENT = datetime.datetime(2024, 5, 1)
VALUES = {
    pa.int64(): lambda n: n - 5,
    pa.int32(): lambda n: n - 5,
    pa.int16(): lambda n: n,
    pa.uint8(): lambda n: n,
    pa.float64(): lambda n: n / 4,
    pa.float32(): lambda n: n / 4,
    pa.bool_(): lambda n: n % 3 == 0,
    pa.timestamp("us", "UTC"): lambda n: MOMENT + datetime.timedelta(hours=n),
    pa.date32(): lambda n: MOMENT.date() + datetime.timedelta(days=n),
    pa.duration("ns"): lambda n: datetime.timedelta(microseconds=n),
    pa.decimal128(12, 2): lambda n: n,
    pa.string(): lambda n: "é" * n,
    pa.large_string(): lambda n: f"text {n}" * (n % 5),
    pa.binary(): lambda n: b"\0x" * n,
    pa.dictionary(pa.int32(), pa.string()): lambda n: f"value {n % 4}",
    pa.dictionary(pa.int8(), pa.string(), ordered=True): lambda n: f"value {n % 4}",
    pa.list_(pa.int64()): lambda n: [n] * (n % 3),
    pa.struct([("x", pa.int64())]): lambda n: {"x": n},
    pa.null(): lambda n: None,
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
@pytest.mark.parametrize("null_share", [0.0, 0.4, 1.0])
def test_rows_are_those_that_arrow_takes(kind: pa.DataType, null_share: float) -> None:
    drawn = random.Random(f"{kind} {null_share}")
    values = [None if drawn.random() < null_share else VALUES[kind](n) for n in range(41)]
    whole = pa.array(values, kind)
    for array in (whole, whole[3:], whole[9:30], whole[:0]):
        for count in (0, 1, 7, 8, 9, 100):
            if not len(array) and count:
                continue
            rows = np.array([drawn.randrange(len(array)) for _ in range(count)], np.int32)
            found = take(array, rows)
            found.validate(full=True)
            assert found.type == array.type  # of pyarrow 19, an array that pa.array makes is never ordered
            assert found.equals(array.take(pa.array(rows))), (count, array.offset)
            assert found.null_count == array.take(pa.array(rows)).null_count


def test_last_bytes_of_the_buffer_are_not_passed() -> None:
    array = pa.array(["a", "bc", "d" * 30, "e"])
    rows = np.array([3, 2, 2, 3, 0, 1], np.int32)
    assert take(array, rows).to_pylist() == ["e", "d" * 30, "d" * 30, "e", "a", "bc"]


def test_texts_that_need_larger_offsets_are_left_to_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_gather_offsets", lambda *arguments: 2**31)
    assert take(pa.array(["a", "b"]), np.array([1, 0], np.int32)).to_pylist() == ["b", "a"]
