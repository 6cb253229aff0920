"""A type that never fills a column which a query reads: a warning names types=, and EXPLAIN says what is taken."""

from __future__ import annotations

import warnings

import pyarrow as pa
import pytest

import ouzel
from ouzel.runtime.engine import match_without

# SASE's misplaced inventory: a counter has no shelf_id, so that what is bought is not misplaced.
MISPLACED = (
    "EVENT SEQ(SHELF-READING x, SHELF-READING y, ! (ANY(COUNTER-READING, SHELF-READING) z)) "
    "WHERE [id] ∧ x.shelf_id ≠ y.shelf_id ∧ x.shelf_id = z.shelf_id WITHIN 100"
)
TYPES = {"SHELF-READING": {"id": "int", "shelf_id": "int"}, "COUNTER-READING": {"id": "int"}}
READINGS = [
    {"type": "SHELF-READING", "ts": 1, "id": 1, "shelf_id": 10},
    {"type": "SHELF-READING", "ts": 2, "id": 2, "shelf_id": 10},
    {"type": "SHELF-READING", "ts": 3, "id": 1, "shelf_id": 20},
    {"type": "SHELF-READING", "ts": 4, "id": 2, "shelf_id": 20},
    {"type": "COUNTER-READING", "ts": 5, "id": 2, "shelf_id": None},
]
SAID = "reads 'shelf_id' of 'COUNTER-READING' events, but none of them has a value there.*types="


def test_match_warns_once_and_types_make_it_silent() -> None:
    with pytest.warns(ouzel.TypesWarning, match=SAID) as caught:
        assert ouzel.match(READINGS, MISPLACED).num_rows == 2
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ouzel.match(READINGS, ouzel.query(MISPLACED, types=TYPES)).num_rows == 1


@pytest.mark.parametrize("rows", [5, 3_000])
def test_a_value_anywhere_makes_it_silent(rows: int) -> None:
    more = [{"type": "COUNTER-READING", "ts": 5 + n, "id": 9, "shelf_id": None} for n in range(rows)]
    more.append({"type": "COUNTER-READING", "ts": 5 + rows, "id": 9, "shelf_id": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ouzel.match([*READINGS, *more], MISPLACED)
    with pytest.warns(ouzel.TypesWarning, match=SAID):
        ouzel.match([*READINGS, *more[:-1]], MISPLACED)


def test_no_warning_where_nulls_are_no_surprise() -> None:
    quiet = [
        "PATTERN SEQ(SHELF-READING x, COUNTER-READING z) WHERE [id] WITHIN 100",
        "PATTERN SEQ(SHELF-READING x, COUNTER-READING z) WHERE x.shelf_id > 5 AND z.shelf_id IS NULL WITHIN 100",
        "PATTERN SEQ(SHELF-READING x, SHELF-READING y) WHERE x.shelf_id < y.shelf_id WITHIN 100",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ouzel.TypesWarning)
        for text in quiet:
            ouzel.match(READINGS, text)
        schema = pa.schema({"type": pa.string(), "ts": pa.int64(), "id": pa.int64(), "shelf_id": pa.int64()})
        nowhere = [{**row, "shelf_id": None} for row in READINGS]
        ouzel.match(pa.Table.from_pylist(nowhere, schema=schema), MISPLACED)


def test_an_engine_warns_when_it_has_seen_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ouzel.Engine(MISPLACED)
    for row in READINGS:
        engine.push([row])
    with pytest.warns(ouzel.TypesWarning, match=SAID):
        engine.finish()
    monkeypatch.setattr("ouzel.runtime.empty_answers.EVENTS_WATCHED", 5)
    engine = ouzel.Engine(MISPLACED)
    with pytest.warns(ouzel.TypesWarning, match=SAID):
        engine.push(pa.Table.from_pylist(READINGS))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ouzel.TypesWarning)
        engine.push([{**READINGS[0], "ts": 6}])
        engine.finish()


def test_explain_says_which_types_have_which_attributes() -> None:
    said = ouzel.explain(MISPLACED)
    assert (
        "no types= are declared, so Ouzel assumes that COUNTER-READING and SHELF-READING have id and shelf_id, "
        "with null where an event has no value" in said
    )
    said = ouzel.explain(MISPLACED, types=TYPES)
    assert (
        "by the declared types, COUNTER-READING has id and lacks shelf_id, so that comparisons on it are true; "
        "SHELF-READING has id and shelf_id" in said
    )


@pytest.mark.parametrize("lacking", ["type", "x"])
def test_a_batch_without_a_column_is_refused_while_an_engine_watches(lacking: str) -> None:
    engine = ouzel.Engine("PATTERN SEQ(A a, B b) WHERE [x] WITHIN 5")
    engine.push([{"type": "C", "ts": 0, "x": 1}])
    batch = pa.table({"type": ["A"], "ts": [1], "x": [1]}).drop_columns([lacking])
    with pytest.raises(ouzel.InputError, match=f"the column '{lacking}' is missing in this batch"):
        engine.push(batch)


@pytest.mark.parametrize("off", [(), ("count_without_matches",)], ids=["counted", "over matches"])
def test_values_of_a_type_declared_without_the_attribute_are_not_there(off: tuple[str, ...]) -> None:
    types = {"A": {"x": pa.int64()}, "C": {}}
    text = "PATTERN SEQ(ANY(A, C) a, A b) AGG COUNT(a.x) AS n, SUM(a.x) AS total, MAX(a.x) AS most WITHIN 8"
    events = pa.table({"type": ["C", "A"], "ts": [1, 2], "x": [7, 1]})
    found = match_without(off, events, ouzel.query(text, types)).to_pylist()
    assert found == [{"end": 2, "n": 0, "total": None, "most": None}]
