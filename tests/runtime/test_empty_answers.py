"""Plain reasons for an empty answer are told: misspelt types, windows without a unit."""

from __future__ import annotations

import warnings

import pyarrow as pa
import pytest

import ouzel

TIMED = pa.table(
    {"type": ["Shelf", "Exit"], "ts": pa.array([0, 5_000_000], pa.timestamp("us")), "id": [1, 1]},
)
COUNTED = pa.table({"type": ["Shelf", "Exit"], "ts": [1, 5], "id": [1, 1]})


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (
            "PATTERN SEQ(Shlef a, Exit b) WITHIN 30 s",
            r"no event has the type 'Shlef' in its column 'type'; did you mean",
        ),
        ("PATTERN SEQ(ANY(X, Y) a, Exit b) WITHIN 30 s", r"the type 'X' or 'Y' .* the types are 'Exit' and 'Shelf'"),
        ("PATTERN SEQ(Shelf a, Exit b) WITHIN 30", r"WITHIN 30 is 30 us here, .* write the unit, as in WITHIN 30 s"),
        ("PATTERN SEQ(Shelf a, Till b) WITHIN 30 s AGG COUNT HAVING COUNT > 0", "no event has the type 'Till'"),
    ],
)
def test_what_is_plainly_in_the_way_is_told(query: str, reason: str) -> None:
    with pytest.warns(ouzel.EmptyAnswerWarning, match=reason):
        assert ouzel.match(TIMED, query).num_rows == 0


def test_events_without_a_type_are_counted() -> None:
    """They play no component, as a filter on a null column would have it."""
    events = pa.table({"type": pa.array(["A", None, None], pa.string()), "ts": [1, 2, 3]})
    with pytest.warns(
        ouzel.EmptyAnswerWarning, match=r"in its column 'type' \(2 events have no type at all\); the types"
    ):
        assert ouzel.match(events, "PATTERN SEQ(A a, Boat b) WITHIN 9").num_rows == 0
    with pytest.warns(ouzel.EmptyAnswerWarning, match=r"\(1 event has no type at all\)$"):
        assert ouzel.match(events.slice(1, 1), "PATTERN SEQ(A a, Boat b) WITHIN 9").num_rows == 0
    assert ouzel.match(events, "PATTERN SEQ(A a, A b) WITHIN 9").num_rows == 0


@pytest.mark.parametrize(("unit", "tick"), [("s", "us"), ("ms", "us"), ("us", "us"), ("ns", "ns")])
def test_window_without_unit_is_in_ticks(unit: str, tick: str) -> None:
    # pyarrow reads the times of a CSV file as seconds.
    timed = TIMED.set_column(1, "ts", TIMED["ts"].cast(pa.timestamp(unit)))
    with pytest.warns(ouzel.EmptyAnswerWarning, match=f"WITHIN 3 is 3 {tick} here"):
        assert ouzel.match(timed, "PATTERN SEQ(Shelf a, Exit b) WITHIN 3").num_rows == 0


@pytest.mark.parametrize(
    ("events", "query"),
    [
        (TIMED, "PATTERN SEQ(Shelf a, Exit b) WHERE a.id > 1 WITHIN 30 s"),
        (TIMED, "PATTERN SEQ(Shelf a, !(Till t), Exit b) WITHIN 30 s"),
        (TIMED, "PATTERN SEQ(Shelf a, ANY(Till, Exit) b) WITHIN 1 s"),
        (COUNTED, "PATTERN SEQ(Shelf a, Exit b) WITHIN 3"),
        (TIMED.slice(0, 0), "PATTERN SEQ(Shlef a, Exit b) WITHIN 30 s"),
    ],
)
def test_nothing_is_said_where_nothing_is_plainly_wrong(events: pa.Table, query: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ouzel.match(events, query)


@pytest.mark.parametrize(
    "pattern",
    [
        "SEQ(Shelf a, !(Registr r), Exit b)",
        "SEQ(Shelf a, Exit b) WITHOUT Registr r",
        "SEQ(Shelf a, Registr? r, Exit b)",
        "SEQ(Shelf a, (Registr r | Exit b))",
        "SEQ(Shelf a, ANY(Registr, Exit) b)",
    ],
)
@pytest.mark.parametrize("rows", [1, 2_000])
def test_a_misspelt_type_is_reported_if_the_answer_is_not_empty(pattern: str, rows: int) -> None:
    """The type may be forbidden, optional or an alternative."""
    types = ["Shelf", "Exit"] * rows + ["Register"]
    events = pa.table({"type": types, "ts": list(range(len(types)))})
    words = "query 'query' names the type 'Registr', which no event has; did you mean 'Register'"
    with pytest.warns(ouzel.TypesWarning, match=words) as caught:
        assert ouzel.match(events, f"PATTERN {pattern} WITHIN 2").num_rows
    assert [one.filename for one in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ouzel.match(events, f"PATTERN {pattern.replace('Registr', 'Register')} WITHIN 2")


def test_a_type_is_no_misspelling_of_one_that_the_query_names() -> None:
    events = pa.table({"type": ["Door1", "Door3", "Shop"], "ts": [1, 2, 3]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ouzel.match(events, "PATTERN SEQ(Door1 a, !(Door2 b), Door3 c) WITHIN 9").num_rows == 1


def test_an_empty_answer_has_one_reason() -> None:
    with pytest.warns(UserWarning) as caught:
        ouzel.match(TIMED, "PATTERN SEQ(Shlef a, Exit b) WITHIN 30 s")
    assert [one.category for one in caught] == [ouzel.EmptyAnswerWarning]


def test_the_name_in_a_dictionary_is_the_query_s_name() -> None:
    found = ouzel.match(COUNTED, {"mine": "its_own: PATTERN SEQ(Shelf a, Exit b) WITHIN 9"})
    assert list(found) == ["mine"] and found["mine"].num_rows == 1


def test_one_name_of_an_order_column_is_not_a_list_of_letters() -> None:
    query = "PATTERN SEQ(Shelf a, Exit b) WITHIN 9"
    assert ouzel.match(COUNTED, query, order="id").equals(ouzel.match(COUNTED, query, order=["id"]))
