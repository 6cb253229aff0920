"""`ouzel.plot`: a mark for every event, an arc for every step of every match, and words for what is left out."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest

import ouzel
from ouzel.insight import timeline

SVG = "{http://www.w3.org/2000/svg}"
EVENTS = [
    {"ts": 1, "type": "Shelf", "tag": "soap & gin"},
    {"ts": 2, "type": "Shelf", "tag": "tea"},
    {"ts": 4, "type": "Exit", "tag": "tea"},
    {"ts": 5, "type": "Exit", "tag": "tea"},
]
THEFT = "PATTERN SEQ(Shelf a, Exit c) WHERE [tag] WITHIN 100 RETURN Theft(a.tag AS tag)"


def drawn(picture: str) -> tuple[int, list[str], list[str]]:
    """(marks, arcs, texts); the picture is well-formed XML."""
    root = ElementTree.fromstring(picture)
    marks = len(root.findall(f"{SVG}circle"))
    arcs = [path.attrib["d"] for path in root.findall(f"{SVG}path")]
    return marks, arcs, [text.text or "" for text in root.findall(f"{SVG}text")]


def test_every_event_and_every_match_is_drawn() -> None:
    marks, arcs, texts = drawn(ouzel.plot(EVENTS, THEFT, label="tag", title="a < b"))
    assert marks == 4 and len(arcs) == 2
    assert texts[:2] == ["a < b", "2 matches, 4 events"]
    assert {"Shelf", "Exit", "tea", "soap & gin"} <= set(texts)


def test_labels_never_lie_over_each_other() -> None:
    crowd = [{"ts": ts, "type": "A", "tag": f"tag-{ts:04}"} for ts in range(500)] + [
        {"ts": 499, "type": None, "tag": "x"}
    ]
    _, _, texts = drawn(
        ouzel.plot(crowd, "PATTERN SEQ(A a, A b) WHERE a.ts = 123 AND b.ts = 456 WITHIN 999", label="tag")
    )
    told = [text for text in texts if text.startswith("tag-")]
    assert {"tag-0123", "tag-0456"} <= set(told) and 10 < len(told) < 20 and "no type" in texts


def test_a_label_must_be_a_column() -> None:
    with pytest.raises(
        ouzel.InputError, match=r"there is no column 'tgg' to label the marks with; did you mean 'tag'\?"
    ):
        ouzel.plot(EVENTS, THEFT, label="tgg")


def test_a_picture_is_stored_as_svg(tmp_path: Path) -> None:
    picture = ouzel.plot(EVENTS, THEFT)
    picture.save(str(tmp_path / "theft.svg"))
    assert (tmp_path / "theft.svg").read_text() == picture
    with pytest.raises(ValueError, match=r"must end in \.svg, got '.*theft\.png'; name it \.svg"):
        picture.save(str(tmp_path / "theft.png"))
    assert [one.name for one in tmp_path.iterdir()] == ["theft.svg"]


def test_arcs_join_the_marks_of_a_match() -> None:
    picture = ouzel.plot(EVENTS[:3], THEFT)
    circles = [
        (float(c.attrib["cx"]), float(c.attrib["cy"])) for c in ElementTree.fromstring(picture).findall(f"{SVG}circle")
    ]
    (arc,) = drawn(picture)[1]
    start, end = arc.split()[0].removeprefix("M"), arc.split()[-1]
    ends = [tuple(map(float, point.split(","))) for point in (start, end)]
    assert set(ends) <= set(circles) and ends[0][1] != ends[1][1]


def test_a_kleene_match_goes_through_all_its_events() -> None:
    events = [{"ts": n, "type": "A" if n < 4 else "B"} for n in range(1, 5)]
    text = "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { } WITHIN 9 OUTPUT FIRST"
    _, arcs, _ = drawn(ouzel.plot(events, text))
    assert sorted(arc.count("M") for arc in arcs) == [1, 2, 3]


def test_inputs_by_type_and_times_with_a_clock() -> None:
    def at(second: int) -> pa.Array:
        return pa.array([second * 60_000_000]).cast(pa.timestamp("us"))

    inputs = {"A": pa.table({"ts": at(0), "x": [1]}), "B": pa.table({"ts": at(5), "x": ["text"]})}
    marks, arcs, texts = drawn(ouzel.plot(inputs, "PATTERN SEQ(A a, B b) WITHIN 1 hour"))
    start, end = arcs[0].split()[0], arcs[0].split()[-1]
    assert start != f"M{end}", "the two events are two marks"
    assert marks == 2 and len(arcs) == 1 and "00:05:00" in texts


def test_what_is_left_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "EVENTS_MAX", 10)
    events = [{"ts": n, "type": "AB"[n % 2], "n": n} for n in range(100)]
    query = "PATTERN SEQ(A a, B b) WHERE a.n < 6 WITHIN 2"
    marks, arcs, texts = drawn(ouzel.plot(events, query))
    assert (marks, len(arcs)) == (6, 3)
    assert texts[1] == "3 matches, 100 events; 6 events are drawn"


def test_compressed_matches_are_drawn_and_aggregates_are_refused() -> None:
    _, arcs, _ = drawn(ouzel.plot(EVENTS, "PATTERN SEQ(Shelf a, Exit c) WHERE [tag] WITHIN 9 OUTPUT COMPRESSED"))
    assert len(arcs) == 2
    with pytest.raises(ouzel.QueryError, match="not aggregates"):
        ouzel.plot(EVENTS, "PATTERN SEQ(Shelf a, Exit c) AGG COUNT WITHIN 9")


def visits(keys: int) -> list[dict[str, object]]:
    """Each key is seen five times as A and once as B, which makes five matches that share an event."""
    return [{"ts": 10 * key + n, "type": "B" if n == 5 else "A", "key": key} for key in range(keys) for n in range(6)]


VISIT = "PATTERN SEQ(A a, B b) WHERE [key] WITHIN 100"


@pytest.mark.parametrize(
    ("keys", "arcs", "note"),
    [
        (4, 20, "20 matches, 24 events"),
        (9, 9, "45 matches, 54 events; an arc for each of 9 incidents"),
        (60, 60, "300 matches, 360 events; an arc for each of 60 incidents"),
        (61, 0, "305 matches, 366 events; too many for arcs: each bar shows how many"),
    ],
)
def test_levels_of_detail(keys: int, arcs: int, note: str) -> None:
    picture = ouzel.plot(visits(keys), VISIT)
    _, paths, texts = drawn(picture)
    assert (len(paths), texts[1]) == (arcs, note)
    assert texts.count("×5") == (arcs if keys > 4 else 0)


def test_bars_count_events_and_matches() -> None:
    picture = ouzel.plot(visits(900), VISIT)
    bars = [bar.attrib for bar in ElementTree.fromstring(picture).findall(f"{SVG}rect") if "class" in bar.attrib]
    assert {bar["class"] for bar in bars} == {"density", "ends"} and 100 < len(bars) < 500
    assert "matches" in drawn(picture)[2] and len(picture) < 60_000
    tallest = max(float(bar["height"]) for bar in bars if bar["class"] == "ends")
    assert {float(bar["height"]) for bar in bars} and tallest == pytest.approx(58 * 0.55, abs=0.1)


def test_drawing_asks_for_every_match_and_is_not_warned(recwarn: pytest.WarningsRecorder) -> None:
    ouzel.plot(visits(9), VISIT)
    assert [str(one.message) for one in recwarn] == []
