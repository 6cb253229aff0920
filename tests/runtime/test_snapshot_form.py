"""State that another version kept is not readable by this version is refused before a kernel reads it."""

from __future__ import annotations

import numpy as np
import pytest

import ouzel
from ouzel.engines.readings import operator as readings
from ouzel.errors import StateError
from ouzel.runtime.snapshot import Reader, Writer

FRESH = (np.zeros(3, np.int64), np.zeros((2, 3), np.int32))


def stored(*arrays: np.ndarray) -> tuple[Reader, list[int]]:
    writer = Writer()
    numbers = [writer.add_array(array) for array in arrays]
    return Reader(writer.finish({})), numbers


def test_arrays_of_the_same_form_are_taken() -> None:
    reader, numbers = stored(np.arange(7), np.ones((2, 9), np.int32))
    first, second = reader.arrays_like(numbers, FRESH)
    assert first.tolist() == list(range(7)) and second.shape == (2, 9)


@pytest.mark.parametrize(
    "arrays",
    [
        (np.arange(7),),
        (np.arange(7), np.ones((2, 9), np.int64)),
        (np.arange(7), np.ones(9, np.int32)),
        (np.arange(7), np.ones((2, 9), np.int32), np.arange(2)),
    ],
    ids=["one is missing", "another type", "another number of axes", "one too many"],
)
def test_arrays_of_another_form_are_refused(arrays: tuple[np.ndarray, ...]) -> None:
    reader, numbers = stored(*arrays)
    with pytest.raises(StateError, match="is not readable by this version"):
        reader.arrays_like(numbers, FRESH)


@pytest.mark.parametrize("form", ["ALL", "NON_OVERLAPPING", "LATEST"])
def test_another_layout_of_readings_is_refused(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    engine = ouzel.Engine(f"PATTERN SEQ(A a, B? b, C c) WITHIN 9 OUTPUT {form}")
    engine.push([{"type": "A", "ts": 1}, {"type": "B", "ts": 2}])
    state = engine.snapshot()
    assert ouzel.Engine.restore(state).finish()["query"].num_rows == 0
    monkeypatch.setattr(readings, "_LAYOUT", readings._LAYOUT + 1)
    with pytest.raises(StateError, match="is not readable by this version"):
        ouzel.Engine.restore(state)
