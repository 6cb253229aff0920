"""What users give to `match` and `Engine`, and what they get back: types, parameters, conversions, mistakes."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ouzel
from ouzel.algebra import stream
from ouzel.runtime.engine import MatchOptions, StreamOptions

EVENTS = [{"ts": 1, "type": "A", "x": 1}, {"ts": 2, "type": "B", "x": 2}, {"ts": 5, "type": "B", "x": 3}]
PAIR = "PATTERN SEQ(A a, B b) WHERE b.x > :low WITHIN :window RETURN Pair(b.x AS x)"
PARAMS = {"low": 1, "window": 3}


def test_one_query_gives_a_table_and_several_a_dictionary() -> None:
    text = "PATTERN SEQ(A a, B b) WITHIN 9"
    for one in (text, ouzel.query(text), stream("A")):
        assert isinstance(ouzel.match(EVENTS, one), pa.Table)
    for several in ([text], {"q": text}, (ouzel.query(text), stream("A"))):
        assert isinstance(ouzel.match(EVENTS, several), dict)


@pytest.mark.parametrize(("function", "options"), [(ouzel.match, MatchOptions), (ouzel.stream, StreamOptions)])
def test_signatures_say_what_comes_back(function: Callable[..., Any], options: type) -> None:
    written = inspect.signature(function).parameters
    assert "rules_off" not in written
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in written.values())
    optional = [name for name, parameter in written.items() if parameter.kind is parameter.KEYWORD_ONLY]
    assert sorted(options.__annotations__) == sorted(optional)
    assert not options.__required_keys__
    for overload in typing.get_overloads(function):
        signature = inspect.signature(overload)
        assert "Any" not in str(signature.return_annotation)
        *positional, rest = signature.parameters.values()
        assert [parameter.name for parameter in positional] == [name for name in written if name not in optional]
        assert rest.annotation == f"Unpack[{options.__name__}]"


# ── Parameters ─────────────────────────────────────────────────────────────────────────────────────


def test_parameters_wherever_a_text_is_taken() -> None:
    found = ouzel.match(EVENTS, PAIR, params=PARAMS)
    assert found.to_pylist() == [{"start": 1, "end": 2, "x": 2}]
    assert [rows.to_pylist() for rows in ouzel.stream([EVENTS], PAIR, params=PARAMS)] == [found.to_pylist()]
    engine = ouzel.Engine(PAIR, params=PARAMS)
    assert engine.push(EVENTS)["query"].equals(found)
    assert "b.x > 1" in ouzel.explain(PAIR, params=PARAMS)
    assert "match" in str(ouzel.why(EVENTS, PAIR, params=PARAMS))
    assert ouzel.plot(EVENTS, PAIR, params=PARAMS).count('class="match"') == 1
    rows = ouzel.match(EVENTS, f"{PAIR.partition('RETURN')[0]} OUTPUT COMPRESSED", params=PARAMS)
    assert ouzel.expand(rows, f"{PAIR.partition('RETURN')[0]} OUTPUT COMPRESSED", params=PARAMS).num_rows == 1
    held = stream("A").select("x >= :low")
    assert ouzel.match(EVENTS, held, params={"low": 1}).num_rows == 1


def test_each_of_several_texts_gets_the_parameters_that_it_names() -> None:
    several = {"pair": PAIR, "one": "PATTERN A a WHERE a.x = :x WITHIN 5"}
    found = ouzel.match(EVENTS, several, params={**PARAMS, "x": 1})
    assert {name: rows.num_rows for name, rows in found.items()} == {"pair": 1, "one": 1}
    with pytest.raises(ouzel.QueryError, match=r"no query given as text uses the parameter 'y'"):
        ouzel.match(EVENTS, several, params={**PARAMS, "x": 1, "y": 2})
    with pytest.raises(ouzel.QueryError, match="has its own params"):
        ouzel.match(EVENTS, ouzel.query(PAIR, params=PARAMS), params=PARAMS)


def test_a_duration_is_a_parameter() -> None:
    began = pa.scalar(0, pa.timestamp("us")).as_py()
    events = [{**event, "ts": began + timedelta(minutes=event["ts"])} for event in EVENTS]
    text = "PATTERN SEQ(A a, B b) WHERE b.time - a.time > :pause WITHIN 1 hour"
    assert ouzel.match(events, text, params={"pause": timedelta(minutes=2)}).num_rows == 1


# ── Conversions ────────────────────────────────────────────────────────────────────────────────────


def test_the_answer_of_one_query_converts() -> None:
    engine = ouzel.Engine(PAIR, params=PARAMS)
    answers = engine.push(EVENTS)
    assert answers.arrow() is answers["query"]
    assert isinstance(answers.to_pandas(), pd.DataFrame) and answers.df().equals(answers.to_pandas())
    assert isinstance(answers.pl(), pl.DataFrame) and answers.pl()["x"].to_list() == [2]
    assert engine.finish().arrow().num_rows == 0


def test_the_answers_of_several_queries_are_not_one_table() -> None:
    engine = ouzel.Engine({"one": "PATTERN A a WITHIN 5", "two": "PATTERN B b WITHIN 5"})
    with pytest.raises(ouzel.InputError, match=r"the answers of 2 queries are not one table; .*: 'one', 'two'"):
        engine.push(EVENTS).to_pandas()


# ── Mistakes of the first minutes ──────────────────────────────────────────────────────────────────


def test_one_event_is_not_a_batch() -> None:
    alerts = ouzel.QuerySet()
    alerts.add("a", "PATTERN A a WITHIN 5")
    for push in (ouzel.Engine("PATTERN A a WITHIN 5").push, alerts.push):
        with pytest.raises(ouzel.InputError, match=r"this looks like one event; pass a list: \[\{…\}\]"):
            push(EVENTS[0])


def test_an_input_without_types_is_told_of_type_none() -> None:
    events = [{"ts": 1, "x": 1}]
    with pytest.raises(ouzel.InputError, match=r"Name it with type=; if all events are of one type, give type=None"):
        ouzel.match(events, "PATTERN A a WITHIN 5")
    assert ouzel.match(events, "PATTERN A a WITHIN 5", type=None).num_rows == 1
