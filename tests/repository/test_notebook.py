"""Queries, explanations, pictures, tables and errors show themselves in notebooks."""

from __future__ import annotations

import itertools
import re
import sys
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import ouzel
from ouzel import notebook

EVENTS = [{"ts": 1, "type": "A", "id": "<x>"}, {"ts": 2, "type": "B", "id": "<x>"}]
QUERY = "PATTERN SEQ(A a, B b) WHERE [id] AND a.ts < b.ts WITHIN 10"


def test_texts_are_shown_in_a_fixed_width_and_escaped() -> None:
    for shown in (ouzel.query(QUERY), ouzel.explain(QUERY), ouzel.why(EVENTS, QUERY)):
        html = shown._repr_html_()
        assert "<pre" in html and "<x>" not in html
    assert "a.ts &lt; b.ts" in ouzel.query(QUERY)._repr_html_()


def test_pictures_are_shown_and_are_still_text() -> None:
    for picture in (ouzel.plot(EVENTS, QUERY), ouzel.explain(QUERY, "svg")):
        assert isinstance(picture, str) and picture._repr_svg_().startswith("<svg")


def test_errors_end_in_their_caret_without_frames_of_ours() -> None:
    with pytest.raises(ouzel.QueryError) as caught:
        ouzel.query("PATTERN SEQ(A a, B b) WITHIN 5 hors")
    lines = caught.value._render_traceback_()
    shown = "\n".join(lines)
    assert "ouzel/lang" not in shown and lines[-1].startswith("QueryError: there is no unit of time 'hors'")
    assert "^^^^" in lines[-1]


def test_long_work_at_a_prompt_shows_how_many_events_it_has_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each call of the clock takes ten seconds here, so the work is long."""
    ticks = itertools.count(step=10.0)
    monkeypatch.setattr(notebook, "perf_counter", lambda: next(ticks))
    events = pa.table({"ts": range(60_000), "type": ["A", "B"] * 30_000})
    text = "PATTERN SEQ(A a, B b) WHERE a.ts + 1 < b.ts WITHIN 4 RETURN R(a.ts AS a)"
    wanted = ouzel.match(events, text)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert ouzel.match(events, text).equals(wanted)
    shown = capsys.readouterr().out
    numbers = [int(found.replace(",", "")) for found in re.findall(r"ouzel: ([\d,]+) events read in \d+ s", shown)]
    assert numbers == sorted(numbers) and 0 < numbers[-1] <= 60_000
    assert shown.endswith("\r") and not shown.rstrip("\r").rpartition("\r")[2].strip()


class Formatter:
    """What IPython keeps for one kind of output."""

    def __init__(self) -> None:
        self.made: dict[type, Any] = {}

    def lookup_by_type(self, kind: type) -> Any:
        return self.made[kind]

    def for_type(self, kind: type, made: Any) -> None:
        self.made[kind] = made


def test_answers_are_shown_as_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    formatter = Formatter()
    shell = SimpleNamespace(display_formatter=SimpleNamespace(formatters={"text/html": formatter}))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    answer = ouzel.match(EVENTS, QUERY)
    shown = formatter.made[pa.Table](answer)
    assert shown.startswith("<table>") and "id=&lt;x&gt;" in shown and shown.endswith("<p>1 row</p>")
    formatter.made[pa.Table] = str
    ouzel.match(EVENTS, QUERY)
    assert formatter.made[pa.Table] is str, "another way of showing tables stays"


def test_answers_of_an_engine_are_shown_as_tables() -> None:
    engine = ouzel.Engine(QUERY)
    engine.push(EVENTS)
    shown = engine.finish()._repr_html_()
    assert shown.startswith("<b>query</b><table>") and "1 row" in shown
