"""Every mistake that the binder finds: the sentence, the place it points at, and the hint.

The tables are in the files beside this one: `«…»` around a part of a query marks what the caret must point at. A test
sees to it that no message in the sources is missing in them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import ouzel.bind
from ouzel.bind import Catalog, bind, catalog_for
from ouzel.bind import diagnostics as mistakes
from ouzel.bind.model import INT
from ouzel.bind.row_patterns import bind_row_pattern
from ouzel.errors import InputError, QueryError
from ouzel.lang import syntax
from ouzel.lang.parser import parse_row_pattern
from ouzel.lang.syntax import Component, Literal, Notation, Pattern, Query, Reference, Span, TypeName
from tests.bind.mistakes_in_clauses import CLAUSES, INCOMPLETE, PARAMETERS, SCRIPTS
from tests.bind.mistakes_in_names import AB, INDEXES, NAMES
from tests.bind.mistakes_in_row_patterns import COLUMNS, ROW_PATTERNS
from tests.bind.mistakes_in_types import TYPES
from tests.bind.shop import BARE_TICKS, SHOP, bound, bound_script


def marked(text: str) -> tuple[str, int, int]:
    start = text.index("«")
    return text.replace("«", "").replace("»", ""), start, text.index("»") - 1


def check(error: QueryError, message: str, hint: str | None, start: int, end: int) -> None:
    assert (error.message, error.hint) == (message, hint)
    assert (error.start, error.end) == (start, end)


@pytest.mark.parametrize(("text", "message", "hint"), [*NAMES, *INDEXES, *TYPES, *CLAUSES, *INCOMPLETE])
def test_mistakes_in_queries(text: str, message: str, hint: str | None) -> None:
    plain, start, end = marked(text)
    with pytest.raises(QueryError) as caught:
        bound(plain)
    check(caught.value, message, hint, start, end)


@pytest.mark.parametrize(("text", "params", "message", "hint"), PARAMETERS)
def test_mistakes_in_parameters(text: str, params: dict[str, Any], message: str, hint: str | None) -> None:
    plain, start, end = marked(AB + text)
    with pytest.raises(QueryError) as caught:
        bound(plain, params=params)
    check(caught.value, message, hint, start, end)


@pytest.mark.parametrize(("text", "message", "hint"), SCRIPTS)
def test_mistakes_in_scripts(text: str, message: str, hint: str | None) -> None:
    plain, start, end = marked(text)
    with pytest.raises(QueryError) as caught:
        bound_script(plain)
    check(caught.value, message, hint, start, end)


def test_unused_parameter() -> None:
    with pytest.raises(QueryError) as caught:
        bound(AB + "WHERE a.n > :limit", params={"limit": 3, "limits": 4})
    assert caught.value.message == "the parameter 'limits' is given but not used"
    assert caught.value.hint == "did you mean 'limit'?"


def test_mistakes_that_depend_on_the_input() -> None:
    one_table = catalog_for(schema={"n": "int", "ts": "int"}, time="ts")
    for text, catalog, message, hint in (
        (AB + "WHERE «a.m» > 3", one_table, "the input has no column 'm'", "the columns are n and ts"),
        (
            AB + "WITHIN «5 s»",
            Catalog(common={"n": INT}, time=BARE_TICKS),
            "a duration cannot be used where the time column is a bare number",
            "give time_unit=, for example time_unit='s', or a number of ticks",
        ),
        (
            "SEQUENCE (x, y) WHERE «x.n» = 3",
            Catalog(declared={"Pair": {"m": INT}}, common={"n": INT}),
            "event type 'Pair' has no attribute 'n', which other types have",
            "name the types of 'x' with ANY(…)",
        ),
    ):
        plain, start, end = marked(text)
        with pytest.raises(QueryError) as caught:
            bound(plain, catalog)
        check(caught.value, message, hint, start, end)
    with pytest.raises(QueryError, match="a query on a stream needs WITHIN, or its state grows without bound"):
        bound(AB, streaming=True)


def single(where: syntax.Expr) -> Query:
    pattern = Pattern(Notation.PATTERN, (Component((TypeName("Shelf"),), "a"),), bare=True)
    return Query(pattern, where=where)


def test_trees_that_the_parser_would_refuse() -> None:
    """The binder does not rely on the parser: trees may be built by hand."""
    deep: syntax.Expr = Literal(True)
    for _ in range(3_000):
        deep = syntax.Unary("NOT", deep)
    name = Reference(("a", "tag"))
    many = tuple(Component((TypeName("Shelf"),), f"v{i}") for i in range(65))
    pattern = single(Literal(True)).pattern
    kleene = Component((TypeName("Exit"),), "b", kleene=True, negated=True)
    cases: list[tuple[Query, str]] = [
        (single(deep), "nested too deep: more than 150 levels"),
        (single(syntax.Like(name, Literal("x"), escape="ab")), "the escape of LIKE must be one character"),
        (single(syntax.Binary("=", syntax.Duration(3, "parsecs"), Literal(1))), "there is no unit of time 'parsecs'"),
        (
            single(syntax.Binary("=", syntax.Temporal(syntax.TemporalKind.DATE, "2024-02-31"), Literal(None))),
            "'2024-02-31' is not a date",
        ),
        (single(syntax.Unary("-", syntax.Unary("-", Literal(2**63)))), "the integer does not fit into 64 bits"),
        (Query(Pattern(Notation.PATTERN, many)), "a pattern may have 64 components at most"),
        (
            Query(Pattern(Notation.PATTERN, (pattern.components[0], kleene))),
            "+ cannot be under a negation, which forbids single events",
        ),
        (Query(pattern, within=syntax.Within(name)), "this must be a literal or a parameter"),
        (
            Query(pattern, within=syntax.Within(Literal(Decimal("1.5")))),
            "a window must be a duration or a whole number of ticks",
        ),
        (Query(pattern, aggregates=(syntax.Aggregate("sum"),)), "SUM needs an attribute"),
    ]
    for query, message in cases:
        with pytest.raises(QueryError) as caught:
            bind(query, "", SHOP)
        assert caught.value.message == message


def test_two_queries_of_one_name() -> None:
    query = single(Literal(True))
    named = syntax.Script(
        (syntax.Query(query.pattern, name="q"), syntax.Query(query.pattern, name="q", span=Span(1, 2)))
    )
    with pytest.raises(QueryError, match="two queries are named 'q'"):
        ouzel.bind.bind_script(named, "   ", SHOP)


def test_conditions_that_explode() -> None:
    assert len(bound(AB + "WHERE " + " OR ".join(f"(a.n = {i} AND b.n = {i})" for i in range(200))).conjuncts) == 3
    many = ", ".join(f"Exit e{i}" for i in range(26))
    pairs = [f"(e{i}.n = 1 AND e{i + 1}.n = 1)" for i in range(0, 26, 2)]
    assert len(bound(f"PATTERN SEQ({many}) WHERE {' OR '.join(pairs[:12])}").conjuncts) == 2**12
    with pytest.raises(QueryError, match="in conjunctive form the condition names more than 5,000 different sets of"):
        bound(f"PATTERN SEQ({many}) WHERE {' OR '.join(pairs)}")
    nested = "a.n"
    for _ in range(20):
        nested = f"CASE {nested} WHEN 1 THEN 2 WHEN 2 THEN 3 END"
    with pytest.raises(QueryError, match="the operand of CASE is too large"):
        bound(AB + f"WHERE {nested} = 1")


def test_more_equivalence_tests_than_a_plan_can_hold() -> None:
    tests = " AND ".join(f"[x{i}]" for i in range(65))
    with pytest.raises(QueryError, match="a query may have 64 equivalence tests at most"):
        ouzel.query(f"PATTERN SEQ(A a, B b) WHERE {tests}")
    keys = ", ".join(f"x{i}" for i in range(65))
    with pytest.raises(QueryError, match="a query may have 64 equivalence tests at most"):
        ouzel.query(f"PATTERN SEQ(A a, B b) GROUP BY {keys} AGG COUNT WITHIN 10")


def test_endless_messages_are_cut() -> None:
    for error in (InputError("no column '" + "x" * 50_000 + "'"), QueryError("no " + "y" * 50_000, hint="z" * 50_000)):
        assert len(str(error)) < 500 and "…" in str(error)
    assert len(str(InputError("the columns are " + "x, " * 50_000))) < 10_100


def test_long_names_are_cut() -> None:
    with pytest.raises(QueryError) as caught:
        bound(AB + f"WHERE a.{'x' * 5_000} = 1")
    assert len(caught.value.message) < 200


# ── Row patterns ──────────────────────────────────────────────────────────────────────────────────


def bound_rows(clause: str) -> object:
    params = {"text": "x"} if ":text" in clause else {}
    return bind_row_pattern(parse_row_pattern(clause), clause, Catalog(common=COLUMNS), params)


@pytest.mark.parametrize(("text", "message"), ROW_PATTERNS)
def test_mistakes_in_row_patterns(text: str, message: str) -> None:
    clause, start, end = marked(text)
    with pytest.raises(QueryError) as caught:
        bound_rows(clause)
    assert (caught.value.message, caught.value.start, caught.value.end) == (message, start, end)


# ── No message is missing above ────────────────────────────────────────────────────────────────────


def places_of_mistakes() -> Iterator[tuple[str, int, int]]:
    """Every call of `mistake(…)` in the binder's sources, as file, first and last line."""
    for path in sorted(Path(ouzel.bind.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "mistake":
                yield path.name, node.lineno, node.end_lineno or node.lineno


def test_every_message_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    made: set[tuple[str, int]] = set()
    original = mistakes.Source.mistake

    def recording(self: mistakes.Source, message: str, where: Span, hint: str | None = None) -> QueryError:
        caller = sys._getframe(1)
        made.add((Path(caller.f_code.co_filename).name, caller.f_lineno))
        return original(self, message, where, hint)

    monkeypatch.setattr(mistakes.Source, "mistake", recording)
    for text, *_ in [*NAMES, *INDEXES, *TYPES, *CLAUSES, *INCOMPLETE]:
        with pytest.raises(QueryError):
            bound(marked(text)[0])
    for text, *_ in ROW_PATTERNS:
        with pytest.raises(QueryError):
            bound_rows(marked(text)[0])
    for text, params, *_ in PARAMETERS:
        with pytest.raises(QueryError):
            bound(marked(AB + text)[0], params=params)
    for text, *_ in SCRIPTS:
        with pytest.raises(QueryError):
            bound_script(marked(text)[0])
    for test in (
        test_mistakes_that_depend_on_the_input,
        test_trees_that_the_parser_would_refuse,
        test_two_queries_of_one_name,
        test_conditions_that_explode,
        test_more_equivalence_tests_than_a_plan_can_hold,
    ):
        test()
    silent = [
        f"{file}:{first}"
        for file, first, last in places_of_mistakes()
        if not any(name == file and first <= line <= last for name, line in made)
    ]
    assert silent == []


def test_declared_names_are_not_types() -> None:
    """With types declared by name only, attributes have no type yet and everything is allowed of them."""
    catalog = catalog_for({"Shelf": ["n"], "Exit": ["n"]})
    assert bound(AB + "WHERE a.n = 'x' AND b.n > 5", catalog).conjuncts
