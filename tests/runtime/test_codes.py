"""Codes of dictionary columns: those of the same values as plain columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ouzel.runtime.codes import Coder

pytestmark = pytest.mark.quick

DICTIONARIES = {
    "texts": pa.array(["x", "a longer text than sixteen bytes", "", "y"]),
    "equal values": pa.array(["x", "y", "x", "y"]),
    "null value": pa.array(["x", None, "y", None]),
    "numbers": pa.array([7, 8, 7, None]),
}


@pytest.mark.parametrize("values", DICTIONARIES.values(), ids=DICTIONARIES)
@pytest.mark.parametrize("count", [2, 40])
@pytest.mark.parametrize("first_code", [0, 1])
def test_codes_of_dictionaries_are_those_of_their_values(values: pa.Array, count: int, first_code: int) -> None:
    plain, coded = Coder(first_code), Coder(first_code)
    for seed in range(6):
        drawn = np.random.default_rng(seed)
        # Another dictionary in each batch, and a slice of a larger array.
        batch = values.take(pa.array(drawn.permutation(4)))
        places = pa.array(drawn.integers(0, 4, count + 3), pa.int8(), mask=drawn.random(count + 3) < 0.2)
        column = pa.DictionaryArray.from_arrays(places, batch).slice(3)
        rows = None if seed % 2 else np.flatnonzero(drawn.random(count) < 0.7).astype(np.int32)
        expected = plain.encode([column.dictionary_decode()], rows)
        assert coded.encode([column], rows).tolist() == expected.tolist()
    assert plain.count == coded.count


def test_only_nulls_have_no_codes() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array([], pa.string()))
    assert Coder().encode([column]).tolist() == [-1, -1]
