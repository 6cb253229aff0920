"""A query without a strategy that finds several matches for each last event is warned of, others are not."""

from __future__ import annotations

import warnings

import pyarrow as pa
import pytest

import ouzel

# Ten items are read three times on a shelf and leave; the exits of two items are simultaneous.
READINGS = [{"ts": ts, "type": "Shelf", "tag": tag} for ts in (1, 2, 3) for tag in range(10)]
EXITS = [{"ts": 10 + tag // 2, "type": "Exit", "tag": tag} for tag in range(10)]
THEFT = "PATTERN SEQ(Shelf a, Exit b) WHERE [tag] WITHIN 100"
ADVICE = (
    r"query 'query' found 30 matches, 3\.0 for each last event: .* OUTPUT NON_OVERLAPPING .* skip_till_next_match"
    r".* AGG COUNT counts the matches in the window"
)


def warned(query: str, events: list[dict[str, object]]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ouzel.match(events, query)
    return [str(one.message) for one in caught if one.category is ouzel.ManyMatchesWarning]


def test_every_combination_is_warned_of() -> None:
    with pytest.warns(ouzel.ManyMatchesWarning, match=ADVICE):
        assert ouzel.match(READINGS + EXITS, THEFT).num_rows == 30


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_any_unit(unit: str) -> None:
    rows = pa.Table.from_pylist(READINGS + EXITS)
    times = rows["ts"].cast(pa.timestamp("s")).cast(pa.timestamp(unit))
    with pytest.warns(ouzel.ManyMatchesWarning, match=ADVICE):
        ouzel.match(rows.set_column(0, "ts", times), THEFT + " s")


@pytest.mark.parametrize(
    "query",
    [
        THEFT + " OUTPUT ALL",
        THEFT + " OUTPUT NON_OVERLAPPING",
        "PATTERN SEQ(Shelf a, Exit b) WHERE skip_till_any_match(a, b) { [tag] } WITHIN 100",
        THEFT + " AGG COUNT",
        # One match for each last event.
        "PATTERN SEQ(Shelf a, Exit b) WHERE [tag] AND a.ts = 3 WITHIN 100",
    ],
)
def test_what_was_asked_for_is_not(query: str) -> None:
    assert warned(query, READINGS + EXITS) == []


def test_simultaneous_last_events_are_counted_apart() -> None:
    """Thirty matches end at one time, each with an event of its own."""
    events = [{"ts": ts, "type": kind, "tag": tag} for ts, kind in ((1, "Shelf"), (2, "Exit")) for tag in range(30)]
    assert warned(THEFT, events) == []
    assert warned(THEFT, [*READINGS, *({"ts": 50, "type": "Exit", "tag": tag} for tag in range(10))]) != []


def test_few_matches_are_not() -> None:
    assert warned(THEFT, READINGS + EXITS[:6]) == []


def test_a_stream_is_warned_of_once() -> None:
    engine = ouzel.Engine(THEFT, max_delay=0)
    engine.push(READINGS)
    with pytest.warns(ouzel.ManyMatchesWarning, match=r"24 matches, 3\.0 for each last event"):
        engine.push(EXITS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.push([{**one, "ts": one["ts"] + 20} for one in READINGS])
        engine.push([{**one, "ts": one["ts"] + 40} for one in EXITS])
        engine.finish()


def test_matches_that_end_before_the_events_of_a_push() -> None:
    engine = ouzel.Engine("PATTERN SEQ(A a, B b) WITHIN 100", max_delay=10)
    engine.push([{"type": "A", "ts": ts} for ts in range(30)] + [{"type": "B", "ts": 31}])
    assert len(engine.push([{"type": "C", "ts": 60}])["query"]) == 30


# Subsets of eighteen clicks before a purchase: listed from the graph, from runs with equal sums, or run by run because
# all sums differ.
CLICKS = [{"ts": ts, "type": "Click", "cost": 1, "bit": 1 << ts} for ts in range(18)]
BUY = [{"ts": 18, "type": "Buy", "cost": 0}]
SUBSETS = "PATTERN SEQ(Click+ a[], Buy b) WITHIN 1000"
SUMMED = "PATTERN SEQ(Click+ a[], Buy b) WHERE sum(a[].cost) < 15 WITHIN 1000"
ALL_DIFFERENT = "PATTERN SEQ(Click+ a[], Buy b) WHERE sum(a[].bit) < 262000 WITHIN 1000"


class _Stop(Exception):
    """Ends a call where it warns, before anything is listed."""


def _stop(*warning: object, **more: object) -> None:
    raise _Stop(str(warning[0]))


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("query", "what"),
    [
        (SUBSETS, "262,143 matches that end with one event"),
        (SUMMED, "more than 100,000 matches that end with one event"),
        (ALL_DIFFERENT, "partial"),
    ],
)
def test_a_repetition_is_warned_of_before_it_lists_its_subsets(
    query: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", _stop)
        with pytest.raises(_Stop, match=what):
            ouzel.match(CLICKS + BUY, query)


@pytest.mark.compiled
@pytest.mark.parametrize("query", [SUBSETS, SUMMED, ALL_DIFFERENT])
def test_an_early_warning_is_the_only_one_and_has_the_place_of_the_call(query: str) -> None:
    engine = ouzel.Engine(query)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ouzel.match(CLICKS + BUY, query)
        engine.push(CLICKS)
        engine.push(BUY)
        engine.finish()
    assert [one.category for one in caught] == [ouzel.ManyMatchesWarning] * 2
    assert {one.filename for one in caught} == {__file__}
    assert all("OUTPUT ALL" in str(one.message) for one in caught)


@pytest.mark.compiled
def test_an_early_warning_as_an_error_loses_no_match() -> None:
    engine = ouzel.Engine(SUBSETS)
    engine.push(CLICKS)
    engine.push(BUY)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ouzel.ManyMatchesWarning, match="every subset"):
            engine.advance(to=18)
        assert len(engine.finish()["query"]) == 2**18 - 1
        with pytest.raises(ouzel.ManyMatchesWarning, match="every subset"):
            ouzel.match(CLICKS + BUY, SUBSETS)


@pytest.mark.compiled
def test_subsets_that_were_asked_for_are_not_warned_of() -> None:
    assert warned(SUBSETS + " OUTPUT ALL", CLICKS + BUY) == []
