"""EXPLAIN in all its forms."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

import ouzel

THEFT = """PATTERN SEQ(Shelf a, !(Register b), Exit c)
WHERE [tag] AND a.weight > 3 AND c.door != a.shelf
WITHIN 12 hours RETURN Theft(a.tag AS tag)"""

TEXT = """\
query theft
  PATTERN SEQ(Shelf a, !(Register b), Exit c)
  WHERE [tag] AND a.weight > 3 AND c.door != a.shelf
  WITHIN 12 hours RETURN Theft(a.tag AS tag)

automaton
  (a) → (c)  begin Shelf a  if a.weight > 3
  (c) → ((F))  begin Exit c  if [tag] AND c.door != a.shelf
  (c)  ignore anything
  (c)  forbid Register b  if [tag]

plan, in the order events pass it
  roles
    Shelf a if a.tag IS NOT NULL AND a.weight > 3
    !Register b if b.tag IS NOT NULL
    Exit c if c.tag IS NOT NULL
  sequence scan
    one stack for each of Shelf a, Exit c
    partitioned by tag
    events whose latest predecessor has left the window are not stacked
  sequence construction
    backwards from each Exit c
    test c.door != a.shelf
    stop at the edge of the window
  window
    within 12 h, already checked
  negation
    no Register b between a and c
    checked during construction
  transformation
    Theft(a.tag AS tag)

kernel stacks
  no Kleene component and skip_till_any_match: every match is a path through stacks of single events
  no types= are declared, so Ouzel assumes that Exit, Register and Shelf have tag, with null where an event has no value
  threads: by tag

rules
  predicates_into_roles: 1 single-event predicate decided before the scan
  equivalence_into_key: partitioned by tag
  predicates_into_construction: 1 predicate tested as soon as the events are bound
  window_into_scan: an event whose latest predecessor has left the window is not stacked
  window_into_construction: the backward search stops at the window's edge
  negation_into_construction: a forbidden event cuts the backward search short"""


def test_text() -> None:
    assert ouzel.explain(ouzel.query(THEFT, name="theft")) == TEXT


# SASE+ 3.2 for its Query 3: the window on every edge of a state that has begun (step 5), and a run leaves a[] only
# together with an event that begins b (step 6).
RALLY = """\
automaton
  (a[1]) → (a[i])  begin Stock+ a[]  if a[1].volume > 1000
  (a[i])  take Stock+ a[]  if [symbol] AND within 1 h AND a[i].price > avg(a[..i-1].price)
  (a[i]) → (b)  proceed  if the event begins b
  (a[i])  ignore what does not match  if within 1 h
  (b) → ((F))  begin Stock b  if [symbol] AND within 1 h AND b.volume < (0.8 * a[LEN].volume)
  (b)  ignore what does not match  if within 1 h
"""


def test_the_edges_of_a_kleene_query_show_its_compilation() -> None:
    text = (
        "PATTERN SEQ(Stock+ a[], Stock b) WHERE skip_till_next_match { [symbol] AND a[1].volume > 1000 AND "
        "a[i].price > avg(a[..i-1].price) AND b.volume < 0.8 * a[a.LEN].volume } WITHIN 1 hour"
    )
    assert RALLY in ouzel.explain(text)
    assert "(b)  ignore nothing\n" in ouzel.explain(text.replace("skip_till_next_match", "strict_contiguity"))


def test_rules_that_are_off_show() -> None:
    shown = ouzel.explain(THEFT, off=["negation_into_construction", "equivalence_into_key"])
    assert "checked on finished matches, by the index over negative events" in shown
    assert "partitioned" not in shown


def test_json_has_the_same() -> None:
    shown = json.loads(ouzel.explain(THEFT, format="json"))
    assert shown["kernel"] == "stacks"
    assert [state["name"] for state in shown["automaton"]["states"]] == ["a", "c", "F"]
    assert {arrow["kind"] for arrow in shown["automaton"]["arrows"]} == {"begin", "ignore", "forbid"}


@pytest.mark.parametrize(
    "text",
    [
        THEFT,
        "PATTERN SEQ(!(A n), B b, !(ANY(C, D) m)) WHERE b.x < 3 & b.y > 4 WITHIN 5".replace("&", "AND"),
        "PATTERN SEQ(A a) WHERE a.s = '<b>&\"quoted\"' WITHIN 5",
    ],
)
def test_pictures_are_well_formed(text: str) -> None:
    root = ElementTree.fromstring(ouzel.explain(text, format="svg"))
    assert root.tag.endswith("svg")


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ouzel.InputError, match="text, json and svg"):
        ouzel.explain(THEFT, format="poem")


def test_pictures_show_the_kernel_and_what_each_rule_did() -> None:
    picture = ouzel.explain("PATTERN SEQ(A a, !(C c), B b) WHERE [id] WITHIN 5", "svg")
    assert "kernel stacks" in picture and "every match is a path through stacks" in picture
    assert "equivalence_into_key: partitioned by id" in picture


def roles(text: str) -> list[str]:
    lines = ouzel.explain(text).splitlines()
    first = lines.index("  roles") + 1
    return [line.strip() for line in lines[first:] if line.startswith("    ")][: 3 if "[1]" in text else 2]


def test_the_roles_of_a_repetition_are_told_once_where_they_are_alike() -> None:
    alike = "PATTERN SEQ(A+ a[], B b) WHERE [id] AND a.price > 3 WITHIN 10"
    for text in (alike, alike + " AGG COUNT"):
        assert roles(text) == ["A+ a[] if a.id IS NOT NULL AND a.price > 3", "B b if b.id IS NOT NULL"]
    differ = "PATTERN SEQ(A+ a[], B b) WHERE a[1].price > 3 AND a[i].price > 5 WITHIN 10"
    for text in (differ, differ + " AGG COUNT"):
        assert roles(text) == ["A a[1] if a[1].price > 3", "A a[i] if a[i].price > 5", "B b"]
        assert "begin A+ a[]  if a[1].price > 3\n" in ouzel.explain(text)


def test_a_compressed_answer_has_its_own_columns() -> None:
    text = ouzel.explain("PATTERN SEQ(A a, B b) WHERE [id] WITHIN 10 OUTPUT COMPRESSED")
    assert "transformation\n    end, id, count, graph\n" in text and "OUTPUT COMPRESSED gives a graph" in text


def test_what_is_assumed_without_types_is_told() -> None:
    text = "PATTERN SEQ(A a, B b) WHERE a.id = b.id AGG SUM(b.x), MIN(a.x), COUNT(a.x) AS n WITHIN 10"
    assumed = "EXPLAIN assumes that a.id = b.id makes no key, that b.x is a float, that a.x is no text; a run knows the"
    assert assumed in ouzel.explain(text)
    columns = {"id": "int64", "x": "int64"}
    assert "EXPLAIN assumes" not in ouzel.explain(text, types={"A": columns, "B": columns})
    # Types decide nothing here.
    assert "EXPLAIN assumes" not in ouzel.explain("PATTERN SEQ(A a, B b) WHERE [id] AND a.x > 1 AGG COUNT WITHIN 10")
    assert "EXPLAIN assumes" not in ouzel.explain(
        "PATTERN SEQ(A a, B b, C c) WHERE a.id = b.id AND a.x < c.x WITHIN 10"
    )


def test_the_hint_for_several_equivalence_tests_shows() -> None:
    text = "PATTERN SEQ(A a, B b) WHERE [id] AND [shop] WITHIN 5"
    shown = ouzel.explain(text, hints={"key": "dynamic"})
    assert "    partitioned by id\n" in shown and "    test [shop]\n" in shown
    assert "  way_of_second_equivalence: dynamic filtering, as the hint asks\n" in shown
    # The test that distinguishes most events partitions them.
    shown = ouzel.explain(text, hints={"key": "multi-pais"}, distinct={"id": 5, "shop": 9})
    assert "Multi-PAIS, as the hint asks" in shown and "    partitioned by shop, id\n" in shown


@pytest.mark.parametrize(
    ("hints", "message"),
    [
        ({"key": "fast"}, "'composite', 'dynamic', 'multi-pais', got 'fast'"),
        ({"keys": "dynamic"}, "there is no hint 'keys'"),
        ("dynamic", "hints= must be a dictionary"),
    ],
)
def test_unknown_hints_are_refused(hints: Any, message: str) -> None:
    events = [{"type": "A", "ts": 1, "id": 1, "shop": 1}]
    text = "PATTERN SEQ(A a, B b) WHERE [id] AND [shop] WITHIN 5"
    for refused in (
        lambda: ouzel.explain(text, hints=hints),
        lambda: ouzel.match(events, text, hints=hints),
        lambda: ouzel.Engine(text, hints=hints),
    ):
        with pytest.raises(ouzel.InputError, match=message):
            refused()
