"""Key codes against a dictionary of Python values, over batches, compactions and restarts."""

from __future__ import annotations

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ouzel.kernels.arrays import column_of
from ouzel.kernels.keys import NO_KEY, compact, encode, key_count, new_keys, restore, snapshot
from ouzel.kernels.text import MULTIPLIER_SECOND, hash_integer_in_python

pytestmark = pytest.mark.compiled

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

integers = (
    st.integers(-3, 12)
    | st.sampled_from([INT64_MIN, INT64_MIN + 1, INT64_MAX, 0, 10**6, -(10**6)])
    | st.integers(0, 500_000)
)
doubles = st.sampled_from([0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, -math.nan, 5e-324]) | st.floats()
pieces = st.sampled_from(["", "a", "\0", "é", "abcdefgh", "äöü€", "0123456789", "x" * 17])
strings = st.lists(pieces, max_size=4).map("".join) | st.text(max_size=40)
KINDS = {
    "integer": (pa.int64(), integers),
    "double": (pa.float64(), doubles),
    "text": (pa.string(), strings),
    "large_text": (pa.large_string(), strings),
    "date": (pa.date32(), st.integers(-5, 40_000)),
}


class Twin:
    """The first appearance of each tuple of values, by a dictionary."""

    def __init__(self, first_code: int) -> None:
        self.first_code = first_code
        self.codes: dict[tuple[object, ...], int] = {}

    def encode(self, rows: list[tuple[object, ...]]) -> list[int]:
        return [
            NO_KEY if None in row else self.codes.setdefault(row, self.first_code + len(self.codes)) for row in rows
        ]

    def compact(self, live: set[int]) -> None:
        kept = [row for row, code in self.codes.items() if code in live]
        self.codes = {row: self.first_code + number for number, row in enumerate(kept)}


def same_value(value: object) -> object:
    """Values that are one key as one Python value."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("d", value + 0.0)
    return value


@st.composite
def histories(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3))
    row = st.tuples(*(st.none() | KINDS[kind][1] for kind in kinds))
    pool = draw(st.lists(row, min_size=1, max_size=30))
    batches = draw(st.lists(st.lists(st.sampled_from(pool) | row, max_size=40), min_size=1, max_size=5))
    return kinds, batches


@given(histories(), st.integers(0, 1), st.data())
def test_codes_are_those_of_a_dictionary(history, first_code, data):
    kinds, batches = history
    is_text = [kind.endswith("text") for kind in kinds]
    keys = new_keys(is_text, first_code)
    twin = Twin(first_code)
    for batch in batches:
        skipped = data.draw(st.integers(0, 2))
        padded = [batch[0]] * skipped + batch if batch else []
        columns = [
            column_of(pa.array([row[index] for row in padded], type=KINDS[kind][0]).slice(skipped if batch else 0))
            for index, kind in enumerate(kinds)
        ]
        rows = sorted(data.draw(st.sets(st.integers(0, len(batch) - 1)))) if batch else []
        keys, codes = encode(keys, columns, np.array(rows, dtype=np.int32))
        assert codes.dtype == np.int32
        assert codes.tolist() == twin.encode([tuple(map(same_value, batch[row])) for row in rows])
        assert key_count(keys) == first_code + len(twin.codes)

        action = data.draw(st.sampled_from(["go on", "compact", "restore"]))
        if action == "compact":
            before = dict(twin.codes)
            live = data.draw(st.lists(st.sampled_from(sorted(before.values())))) if before else []
            keys, new_code = compact(keys, np.array(live, dtype=np.int64))
            twin.compact(set(live))
            assert new_code[:first_code].tolist() == list(range(first_code))
            assert {row: new_code[code] for row, code in before.items() if code in live} == twin.codes
            assert all(new_code[code] == NO_KEY for code in before.values() if code not in live)
        elif action == "restore":
            keys = restore(snapshot(keys), is_text, first_code)


def first_appearance(values: np.ndarray) -> np.ndarray:
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    return rank[inverse]


@pytest.mark.parametrize("count", [10, 5_000, 200_000])
@pytest.mark.parametrize("spread", [1, 7, 2**20, 2**40, 10**13 + 1])
def test_many_integers_over_batches(count, spread):
    rng = np.random.default_rng(count)
    values = rng.integers(-count, count, 150_000) * spread
    expected = first_appearance(values)
    keys = new_keys([False])
    for begin in range(0, values.size, 40_000):
        batch = values[begin : begin + 40_000]
        keys, codes = encode(keys, [column_of(pa.array(batch))], np.arange(batch.size, dtype=np.int32))
        assert np.array_equal(codes, expected[begin : begin + 40_000])


@pytest.mark.parametrize("shape", ["{}", "user-{:08d}", "https://shop.test/items/{:07d}/details", "{:040d}"])
def test_many_strings_over_batches(shape):
    rng = np.random.default_rng(5)
    numbers = rng.integers(0, 20_000, 60_000)
    expected = first_appearance(numbers)
    keys = new_keys([True])
    for begin in range(0, numbers.size, 25_000):
        batch = [shape.format(number) for number in numbers[begin : begin + 25_000]]
        keys, codes = encode(keys, [column_of(pa.array(batch))], np.arange(len(batch), dtype=np.int32))
        assert np.array_equal(codes, expected[begin : begin + 25_000])


def test_hash_spreads_regular_numbers():
    # 2,048 keys into 4,096 slots: at random about 1,610 different ones.
    inverse = pow(int(MULTIPLIER_SECOND), -1, 2**64)
    steps = [1 << shift for shift in range(53)] + [10**6, inverse, inverse << 20, 2**32 + 1]
    for step in steps:
        values = (np.arange(2048, dtype=np.uint64) * np.uint64(step % 2**64)).view(np.int64)
        slots = {int(hash_integer_in_python(value)) >> 52 for value in values}
        assert len(slots) > 1_300, step


def test_range_that_widens_from_small_to_extremes():
    batches = [[5, 6, 5], [60_000, -60_000, 5], [INT64_MAX, INT64_MIN, 0], [6, -60_000, INT64_MIN, 1]]
    keys = new_keys([False])
    twin = Twin(0)
    for batch in batches:
        keys, codes = encode(keys, [column_of(pa.array(batch))], np.arange(len(batch), dtype=np.int32))
        assert codes.tolist() == twin.encode([(value,) for value in batch])


def test_directory_at_both_ends_of_the_number_line_extremes():
    for values in ([INT64_MIN, INT64_MIN + 3], [INT64_MAX, INT64_MAX - 3]):
        _, codes = encode(new_keys([False]), [column_of(pa.array(values))], np.array([0, 1, 0], dtype=np.int32))
        assert codes.tolist() == [0, 1, 0]


@settings(max_examples=20)
@given(st.lists(strings | st.none(), max_size=12), st.lists(integers, min_size=12, max_size=12))
def test_small_composite_keys(names, numbers):
    columns = [
        column_of(pa.array(names, type=pa.string())),
        column_of(pa.array(numbers[: len(names)], type=pa.int64())),
    ]
    keys, codes = encode(new_keys([True, False], first_code=1), columns, np.arange(len(names), dtype=np.int32))
    twin = Twin(1)
    assert codes.tolist() == twin.encode(list(zip(names, numbers, strict=False)))
    keys, _ = compact(keys, codes[-1:])
    assert key_count(keys) == 1 + (codes.size > 0 and codes[-1] != NO_KEY)


def test_memory_follows_the_window():
    keys = new_keys([True, False])
    largest = 0
    for batch in range(40):
        numbers = np.arange(batch * 1_000, batch * 1_000 + 2_000)
        columns = [column_of(pa.array([f"device number {number}" for number in numbers])), column_of(pa.array(numbers))]
        keys, codes = encode(keys, columns, np.arange(numbers.size, dtype=np.int32))
        largest = max(largest, sum(array.nbytes for table in (*keys.columns, *keys.pairs) for array in table))
        keys, new_code = compact(keys, codes[1_000:])
        assert new_code[codes[1_000:]].tolist() == list(range(1_000))
        assert key_count(keys) == 1_000
    assert largest < 8_000_000
