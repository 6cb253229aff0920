"""The papers' queries parse in the papers' notation and survive the round trip; some are compared in full."""

from __future__ import annotations

from collections import Counter

import pytest

from ouzel.lang import format_expression, format_query, parse, parse_expression
from ouzel.lang.syntax import Index, IndexKind, Logical, Notation, Percent, Reference, Strategy
from tests.lang.papers import FORMULAS, QUERIES, Origin, PaperQuery

BY_PLACE = {(query.paper, query.place): query.text for query in QUERIES}


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: f"{query.paper} {query.place} ({query.origin.value})")
def test_query(query: PaperQuery) -> None:
    tree = parse(query.text)
    assert parse(format_query(tree)) == tree


@pytest.mark.parametrize(
    "formula", FORMULAS, ids=lambda formula: f"{formula.paper} {formula.place} ({formula.origin.value})"
)
def test_formula(formula: PaperQuery) -> None:
    tree = parse_expression(formula.text)
    assert parse_expression(format_expression(tree)) == tree


def test_how_much_of_the_list_the_papers_print() -> None:
    counts = Counter((query.paper, query.origin) for query in [*QUERIES, *FORMULAS])
    assert counts == {
        ("SASE", Origin.PRINTED): 9,
        ("SASE", Origin.COMPLETED): 6,
        ("SASE+", Origin.PRINTED): 13,
        ("SASE+", Origin.COMPLETED): 2,
        ("SASE+", Origin.RECONSTRUCTED): 6,
        ("A-Seq", Origin.PRINTED): 2,
        ("A-Seq", Origin.COMPLETED): 19,
        ("AYAC", Origin.RECONSTRUCTED): 1,
        ("CESAR", Origin.PRINTED): 33,
        ("CESAR", Origin.COMPLETED): 1,
        ("CESAR", Origin.RECONSTRUCTED): 11,
    }
    assert len(BY_PLACE) == len(QUERIES)


@pytest.mark.parametrize(
    ("paper", "place", "canonical"),
    [
        ("SASE", "2.2.1 Q1", "PATTERN SHELF-READING\nWHERE   category = 'food' AND manufacturer_id = '1'"),
        (
            "SASE",
            "2.2.1 Q2",
            "PATTERN SEQ(SHELF-READING x, !(COUNTER-READING y), EXIT-READING z)\n"
            "WHERE   x.id = y.id AND x.id = z.id\n"
            "WITHIN  12 h",
        ),
        (
            "SASE",
            "2.3 misplaced inventory",
            "PATTERN SEQ(SHELF-READING x, SHELF-READING y, !(ANY(COUNTER-READING, SHELF-READING) z))\n"
            "WHERE   [id] AND x.shelf_id != y.shelf_id AND x.shelf_id = z.shelf_id\n"
            "WITHIN  1 h",
        ),
        (
            "SASE",
            "2.3 overdose",
            "PATTERN SEQ(MEDICINE-TAKEN x, MEDICINE-TAKEN y)\n"
            "WHERE   [name = 'John'] AND [medicine = 'Antibiotics'] AND x.amount + y.amount > 1000\n"
            "WITHIN  4 h",
        ),
        (
            "SASE",
            "3.1 Q3",
            "PATTERN SEQ(A x₁, B x₂, !(C x₃), D x₄)\n"
            "WHERE   [attr₁] AND [attr₂] AND x₁.attr₃ = '1' AND x₁.attr₄ < x₄.attr₄\n"
            "WITHIN  :T",
        ),
        (
            "A-Seq",
            "1 application I",
            "PATTERN SEQ(TypeUsername, TypePassword, ClickSubmit)\n"
            "WHERE   TypePassword.value != TypeUsername.Password\n"
            "GROUP BY IP\n"
            "AGG     COUNT\n"
            "WITHIN  10 s",
        ),
        (
            "A-Seq",
            "1 application II",
            "PATTERN SEQ(Kindle, KindleCase, Stylus)\n"
            "WHERE   Kindle.userId = KindleCase.userId AND KindleCase.userId = Stylus.userId\n"
            "AGG     COUNT\n"
            "WITHIN  1 h",
        ),
        (
            "SASE+",
            "6 template, p3 avg over the range, skip_till_next_match",
            "PATTERN SEQ(STOCK+ a[], STOCK b)\n"
            "WHERE   skip_till_next_match {\n"
            "            [symbol]\n"
            "        AND a[1].price % 500 = 0\n"
            "        AND a[i].price > avg(a[..i-1].price)\n"
            "        AND b.volume < 150\n"
            "        }\n"
            "WITHIN  500 EVENTS",
        ),
    ],
)
def test_canonical(paper: str, place: str, canonical: str) -> None:
    assert format_query(parse(BY_PLACE[paper, place])) == canonical


def test_kleene_query_of_sase_plus() -> None:
    query = parse(BY_PLACE["SASE+", "Figure 1(c) Query 3"])
    assert [(part.variable, part.kleene) for part in query.pattern.components] == [("a", True), ("b", False)]
    assert query.selection is not None
    assert query.selection.strategy is Strategy.SKIP_TILL_NEXT_MATCH
    assert query.selection.variables == ("a", "b")
    assert isinstance(query.where, Logical)
    volume = query.where.operands[3].right
    assert volume.left == Percent(80)
    assert volume.right == Reference(("a", "volume"), Index(IndexKind.LAST, of="a"))


def test_shoplifting_of_ayac() -> None:
    query = parse(BY_PLACE["AYAC", "2.2 shoplifting"])
    assert query.pattern.notation is Notation.SEQUENCE
    assert [(part.types, part.variable, part.negated) for part in query.pattern.components] == [
        ((), "x", False),
        ((), "y", True),
        ((), "z", False),
    ]
    assert isinstance(query.where, Logical)
    assert query.where.operands[3].left == Reference(("x", "id"), default=Reference(("z", "id")))
