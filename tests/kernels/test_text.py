"""Classification of strings against Python's own equality."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ouzel.kernels.arrays import coded_of, column_of, numbers_of, text_of
from ouzel.kernels.text import (
    classify,
    constants_of,
    select,
    select_coded,
)

pytestmark = pytest.mark.compiled

LAYOUTS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]

# Strings that agree at their beginning, at their end, in length or in all but a byte; empty, with zeros, not ASCII.
pieces = st.sampled_from(["", "a", "b", "\0", "é", "abcdefg", "abcdefgh", "äöü€", "0123456789", "x" * 17])
strings = st.lists(pieces, max_size=4).map("".join) | st.text(max_size=12)
columns = st.lists(st.none() | strings, max_size=60)


def array_of(values: list[str | None], layout: pa.DataType, skipped: int, dropped: int) -> pa.Array:
    """An array that begins and ends in the middle of its buffers."""
    padded = ["before", None, "é"][:skipped] + values + ["afterwards", None][:dropped]
    encoded = [None if value is None else value.encode() for value in padded]
    return pa.array(encoded, type=pa.large_binary()).cast(layout).slice(skipped, len(values))


def twin(values: list[str | None], constants: list[str]) -> list[int]:
    return [constants.index(value) if value in constants else len(constants) for value in values]


@given(columns, st.data(), st.sampled_from(LAYOUTS), st.integers(0, 3), st.integers(0, 2))
def test_codes_are_those_of_equal_constants(values, data, layout, skipped, dropped):
    known = [value for value in values if value is not None]
    candidates = st.sampled_from(known) | strings if known else strings
    constants = data.draw(st.lists(candidates, unique=True, max_size=14))
    text = text_of(array_of(values, layout, skipped, dropped))
    expected = twin(values, constants)
    assert classify(text, constants_of(constants)).tolist() == expected

    roles_by_code = np.array(
        [*data.draw(st.lists(st.integers(0, 3), min_size=len(constants), max_size=len(constants))), 0]
    )
    rows, codes = select(text, constants_of(constants), roles_by_code.astype(np.uint64))
    kept = [(row, code) for row, code in enumerate(expected) if roles_by_code[code]]
    assert list(zip(rows.tolist(), codes.tolist(), strict=True)) == kept
    assert rows.dtype == np.int32


@given(columns, st.lists(strings, unique=True, max_size=9), st.integers(0, 3))
def test_dictionary_codes_go_through_a_small_table(values, constants, skipped):
    array = array_of(values, pa.string(), skipped, 1).dictionary_encode()
    prepared = constants_of(constants)
    table = classify(text_of(array.dictionary), prepared)
    expected = twin(values, constants)
    roles_by_code = np.ones(len(constants) + 1, dtype=np.uint64)
    roles_by_code[-1] = 0
    rows, codes = select_coded(coded_of(array), table, roles_by_code)
    kept = [(row, code) for row, code in enumerate(expected) if code < len(constants)]
    assert list(zip(rows.tolist(), codes.tolist(), strict=True)) == kept


@pytest.mark.parametrize("count", [1, 6, 7, 128, 255, 256, 700])
@pytest.mark.parametrize("shape", ["E{}", "Event{:05d}Type", "{}.of.some.Company.Event", "same begin {:06d} same end"])
def test_any_number_of_constants(count, shape):
    names = [shape.format(number) for number in range(count + 50)]
    rng = np.random.default_rng(count)
    picks = rng.integers(0, len(names), 1500)
    values = [names[pick] for pick in picks]
    codes = classify(text_of(pa.array(values)), constants_of(names[:count]))
    assert codes.dtype == (np.uint8 if count < 256 else np.int32)
    assert codes.tolist() == np.minimum(picks, count).tolist()


def test_strings_with_the_same_ends_and_length_are_told_apart():
    names = [f"abcdefgh{middle:04d}abcdefgh" for middle in range(3)]
    values = [*names, "abcdefgh9999abcdefgh", names[0][:-1], names[1] + "x"]
    assert classify(text_of(pa.array(values)), constants_of(names)).tolist() == [0, 1, 2, 3, 3, 3]


def test_every_length_at_the_end_of_the_buffer():
    for length in range(41):
        value = "0123456789" * 4
        for constants in ([value[:length]], [value[:length], *(f"other{number}" for number in range(9))]):
            text = text_of(pa.array(["x", value[:length]]))
            assert classify(text, constants_of(constants)).tolist() == [len(constants), 0]


def test_no_constants_and_no_values():
    assert classify(text_of(pa.array(["a", None])), constants_of([])).tolist() == [0, 0]
    assert classify(text_of(pa.array([], type=pa.string())), constants_of(["a"])).tolist() == []
    assert classify(text_of(pa.array([None, None], type=pa.string())), constants_of(["", "a"])).tolist() == [2, 2]


def test_constants_must_be_distinct():
    with pytest.raises(ValueError, match="distinct"):
        constants_of(["a", b"a"])


def test_layouts_without_offsets_are_refused():
    with pytest.raises(TypeError, match="cast it to large_string"):
        text_of(pa.array(["a"], type=pa.string_view()))
    assert classify(column_of(pa.array(["a", "b" * 20], type=pa.string_view())), constants_of(["b" * 20])).tolist() == [
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([9, -1, 2], type=pa.int8()), [-1, 2]),
        (pa.array([9, 65535, 2], type=pa.uint16()), [65535, 2]),
        (pa.array([9, 2**64 - 1, 2], type=pa.uint64()), [-1, 2]),
        (pa.array([9, 5, 7], type=pa.date32()), [5, 7]),
        (pa.array([9, 5, 7], type=pa.timestamp("us", tz="UTC")), [5, 7]),
        (pa.array([False, True, False]), [1, 0]),
        (pa.array(["0.01", "-1.25", "99.99"]).cast(pa.decimal128(18, 2)), [-125, 9999]),
        (pa.array([0.0, 1.0, 2.0], type=pa.float32()), np.array([1.0, 2.0]).view(np.int64).tolist()),
    ],
)
def test_numbers_of_every_width(array, expected):
    assert numbers_of(array.slice(1)).values.tolist() == expected


def test_kernels_run_without_the_compiler():
    root = Path(__file__).parents[2]
    files = [str(Path(__file__).with_name(name)) for name in ("test_text.py", "test_keys.py", "test_order.py")]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(root / "src")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-W",
        "error::RuntimeWarning",
        *files,
    ]
    chosen = ["-k", "same_ends or every_length or no_constants or small or example or extremes"]
    run = subprocess.run([*command, *chosen], env=environment, cwd=root, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
