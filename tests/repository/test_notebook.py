"""Queries, explanations, pictures and errors show themselves in notebooks."""

from __future__ import annotations

import pytest

import ouzel

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
