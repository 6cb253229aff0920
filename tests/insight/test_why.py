"""`ouzel.why` tells the truth: it agrees with the oracle about every event of random streams, and names the cause."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

import ouzel
from ouzel.lang import parse
from tests.agreement import case_count
from tests.generate import random_case
from tests.generate.cases import COLUMNS, RandomCase
from tests.oracle.conditions import Conditions
from tests.oracle.events import EventTypes, in_stream_order
from tests.oracle.expressions import Settings
from tests.oracle.negation import stands
from tests.oracle.oracle import passes_some_component, used
from tests.oracle.selection import Run, Selection

CASES = min(case_count(150), 5_000)


def selection_of(case: RandomCase) -> Selection:
    conditions = Conditions(parse(case.text), Settings(EventTypes(case.types), {}, 1_000_000))
    ordered = in_stream_order(case.events, (), lambda e: passes_some_component(conditions, e), used(conditions))
    return Selection(conditions, tuple(ordered))


def runs_from(selection: Selection, start: int) -> Iterator[Run]:
    """Every run that begins with an event, by the oracle's own moves."""
    begun = selection._begun((), start)
    runs = set() if begun is None else {begun}
    yield from runs
    for position in range(start + 1, len(selection.events)):
        moved = {run for old in runs for run in selection._after_reading(old, position)}
        yield from moved - runs
        runs = moved


@pytest.mark.parametrize("profile", ["sase", "kleene"])
def test_it_agrees_with_the_oracle_about_every_event(profile: str) -> None:
    complete = stopped = 0
    for number in range(CASES):
        case = random_case(random.Random(f"why {profile} {number}"), profile)
        selection = selection_of(case)
        table, query = case.table, case.query
        by_number = {event.attributes["n"]: row for row, event in enumerate(case.events)}
        for place, event in enumerate(selection.events):
            runs = list(runs_from(selection, place))
            matches = [run for run in runs if selection._accepts(run) and stands(selection, run)]
            told = ouzel.why(table, query, by_number[event.attributes["n"]], **COLUMNS, search_limit=100_000)
            where = f"case {number}, event {event.attributes['n']}:\n{case.text}\n{told}"
            assert told.complete == bool(matches), where
            assert told.reached == max(map(len, runs), default=0), where
            forbidden = any(selection._accepts(run) for run in runs) and not matches
            assert (told.stopped_by == "negation") == forbidden, where
            complete += bool(matches)
            stopped += not matches
    assert min(complete, stopped) > CASES / 10, "too few of either for their agreement to mean much"


EVENTS = [
    {"ts": 1, "type": "Login", "user": "ann", "n": 1},
    {"ts": 2, "type": "Fail", "user": "bob", "n": 2},
    {"ts": 3, "type": "Fail", "user": "ann", "n": 3},
    {"ts": 4, "type": "Noise", "user": "ann", "n": 0},
    {"ts": 5, "type": "Fail", "user": "ann", "n": 1},
    {"ts": 30, "type": "Logout", "user": "ann", "n": 9},
]


@pytest.mark.parametrize(
    ("text", "stopped_by", "said"),
    [
        ("PATTERN SEQ(Login a, Fail b) WHERE a.n > 5 WITHIN 10", "start", "a: a.n > 5 is not true: a.n is 1"),
        ("PATTERN SEQ(Fail a, Login b) WITHIN 10", "start", "a: it is of type Login, not Fail"),
        ("PATTERN SEQ(Login a, Logout b) WITHIN 10", "window", "no events of type Logout until the window closes"),
        ("PATTERN SEQ(Login a, Logout b) WITHIN 10", "window", "Logout at 30 would fit, but is outside the window"),
        ("PATTERN SEQ(Login a, Fail b) WHERE [user] AND b.n > 7 WITHIN 10", "condition", "differs, 'bob' is not 'ann'"),
        ("PATTERN SEQ(Login a, Fail b) WHERE [user] AND b.n > a.n + 7 WITHIN 10", "condition", "b.n is 3, a.n is 1"),
        (
            "PATTERN SEQ(Login a, Fail b) WHERE strict_contiguity(a, b) { [user] } WITHIN 10",
            "strategy",
            "b: the next event is Fail at 2 (user='bob'); [user] differs",
        ),
        (
            "PATTERN SEQ(Login a, Fail b, Fail c) WHERE partition_contiguity(a, b, c) { [user] } WITHIN 10",
            "strategy",
            "c: the next event is Noise at 4",
        ),
        (
            "PATTERN SEQ(Login a, Fail+ b[]) WHERE skip_till_next_match(a, b[]) { [user] AND b.LEN > 2 } WITHIN 10",
            "condition",
            "b[] continues: b.LEN > 2 is not true: b.LEN is 2",
        ),
        (
            "PATTERN SEQ(Login a, Fail+ b[], Logout c) WHERE skip_till_next_match(a, b[], c) "
            "{ [user] AND b[i].n > b[i-1].n } WITHIN 90 ",
            "nothing",
            "c = Logout at 30",
        ),
        (
            "PATTERN SEQ(Login a, !(Noise x), Logout b) WHERE [user] WITHIN 90",
            "negation",
            "Noise at 4 (user='ann') is between 1 and 30",
        ),
        ("PATTERN SEQ(Login a, !(Noise x), Fail b) WHERE [user] WITHIN 90", "nothing", "no such event between 1 and 3"),
        ("PATTERN SEQ(Login a, Logout b) WITHIN 3 EVENTS", "no event", "within 3 events of the partition"),
    ],
)  # fmt: skip
def test_it_names_what_stopped_a_match(text: str, stopped_by: str, said: str) -> None:
    told = ouzel.why(EVENTS, text, start=0)
    assert told.stopped_by == stopped_by, str(told)
    assert said in str(told), str(told)


def test_without_a_start_it_tells_of_the_event_that_got_furthest() -> None:
    told = ouzel.why(EVENTS, "PATTERN SEQ(Fail a, Fail b, Noise c) WHERE [user] WITHIN 10")
    assert told.row == 2 and told.reached == 2
    assert "got furthest of 3" in told.title
    assert "no event is of type Payment" in str(ouzel.why(EVENTS, "PATTERN SEQ(Payment a, Fail b) WITHIN 9"))


def test_misspelt_names_get_the_nearest_one() -> None:
    first = ouzel.why(EVENTS, "PATTERN SEQ(Fial a, Logout b) WITHIN 9")
    assert "no event is of type Fial; did you mean 'Fail'?" in str(first)
    later = ouzel.why(EVENTS, "PATTERN SEQ(Fail a, Logut b) WITHIN 9")
    assert "no match: nothing of type Logut came in time; did you mean 'Logout'?" in str(later)
    with pytest.raises(ouzel.InputError, match="there is no column 'usr'; did you mean 'user'"):
        ouzel.why(EVENTS, "PATTERN SEQ(Fail a, Logout b) WITHIN 9", start={"usr": "ann"})


def test_a_start_can_be_told_by_its_values() -> None:
    text = "PATTERN SEQ(Fail a, Logout b) WHERE [user] WITHIN 100"
    told = ouzel.why(EVENTS, text, start={"user": "ann"})
    assert told.complete and told.row == 2 and "the first of 2 such events" in told.title
    for start, said in (
        ({"who": 1}, "no column 'who'"),
        ({"user": "eve"}, "no event with user=eve"),
        (99, "rows 0 to 5"),
    ):
        with pytest.raises(ouzel.InputError, match=said):
            ouzel.why(EVENTS, text, start=start)  # type: ignore[arg-type]


def test_a_search_that_is_cut_off_says_so() -> None:
    events = [{"ts": n, "type": "A"} for n in range(30)]
    told = ouzel.why(events, "PATTERN SEQ(A a, A b, A c, B d) WITHIN 100", start=0, search_limit=50)
    assert told.complete is None and told.stopped_by == "search limit"


def test_matches_that_may_be_left_out_are_told_so() -> None:
    said = str(ouzel.why(EVENTS, "PATTERN SEQ(Fail a, Fail b) WITHIN 9 OUTPUT NON_OVERLAPPING", start=1))
    assert "OUTPUT NON_OVERLAPPING returns it unless" in said
    assert "the aggregate counts" in str(ouzel.why(EVENTS, "PATTERN SEQ(Fail a, Fail b) AGG COUNT WITHIN 9", start=1))


def test_an_event_without_a_type_is_no_component() -> None:
    events = [{"ts": 1, "type": None}, {"ts": 2, "type": "A"}]
    assert "a: it has no type, where A is needed" in str(ouzel.why(events, "PATTERN SEQ(A a, A b) WITHIN 9", start=0))


def test_what_it_cannot_tell_is_refused() -> None:
    with pytest.raises(ouzel.QueryError, match="missing events cannot be shown"):
        ouzel.why(EVENTS, "PATTERN SEQ(Login a, Logout b) WITHIN 9 THRESHOLD 0.1", start=0)
    with pytest.raises(ouzel.QueryError, match="another query"):
        ouzel.why(EVENTS, "PATTERN SEQ(Login a, Logout b) FROM others WITHIN 9", start=0)
    with pytest.raises(ouzel.InputError, match="no events"):
        empty = pa.table({"ts": pa.array([], pa.int64()), "type": pa.array([], pa.string())})
        ouzel.why(empty, "PATTERN A a WITHIN 1")
