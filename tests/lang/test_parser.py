"""What each form of the language becomes."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from ouzel import lang
from ouzel.lang import parse, parse_expression, parse_script
from ouzel.lang.syntax import (
    Aggregate,
    Between,
    Binary,
    Call,
    Case,
    Component,
    Contiguity,
    Duration,
    Equivalence,
    Expr,
    In,
    Index,
    IndexKind,
    IsNull,
    Item,
    Like,
    Literal,
    Logical,
    Notation,
    Output,
    OutputForm,
    Parameter,
    Percent,
    Reference,
    Return,
    Selection,
    Step,
    Strategy,
    Temporal,
    TemporalKind,
    Threshold,
    TypeName,
    Unary,
    When,
    Within,
)

a, b, c, x, y = (Reference((name,)) for name in "abcxy")
one, two = Literal(1), Literal(2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Literals
        ("42", Literal(42)),
        ("1.50", Literal(Decimal("1.50"))),
        ("1e3", Literal(Decimal("1e3"))),
        (".5", Literal(Decimal("0.5"))),
        ("'it''s'", Literal("it's")),
        ("''", Literal("")),
        ("true", Literal(True)),
        ("NULL", Literal(None)),
        (":limit", Parameter("limit")),
        (":from", Parameter("from")),
        ("DATE '2024-05-01'", Temporal(TemporalKind.DATE, "2024-05-01")),
        ("timestamp '2024-05-01 12:00'", Temporal(TemporalKind.TIMESTAMP, "2024-05-01 12:00")),
        ("30 min", Duration(30, "min")),
        ("10s", Duration(10, "s")),
        ("1hour", Duration(1, "h")),
        ("1.5 HRS", Duration(Decimal("1.5"), "h")),
        ("INTERVAL '12 hours'", Duration(12, "h")),
        ("interval '12' hour", Duration(12, "h")),
        ("INTERVAL 3 days", Duration(3, "days")),
        # Percentages and remainders
        ("80%*x", Binary("*", Percent(80), x)),
        ("80% - x", Binary("-", Percent(80), x)),
        ("80%", Percent(80)),
        ("x %500", Binary("%", x, Literal(500))),
        ("5 % 2", Binary("%", Literal(5), two)),
        ("5 % x", Binary("%", Literal(5), x)),
        ("5 % (x)", Binary("%", Literal(5), x)),
        ("5 % case when a then 1 end", Binary("%", Literal(5), Case(None, (When(a, one),), None))),
        ("80% and a", Logical("AND", (Percent(80), a))),
        # Precedence
        ("1 + 2 * x", Binary("+", one, Binary("*", two, x))),
        ("a - b - c", Binary("-", Binary("-", a, b), c)),
        ("-a * b", Binary("*", Unary("-", a), b)),
        ("a or b and not c = 1", Logical("OR", (a, Logical("AND", (b, Unary("NOT", Binary("=", c, one))))))),
        ("a + 1 < b", Binary("<", Binary("+", a, one), b)),
        # Symbols
        ("a ∧ b", Logical("AND", (a, b))),
        ("a && b", Logical("AND", (a, b))),
        ("a ∨ b || c", Logical("OR", (a, b, c))),
        ("¬a", Unary("NOT", a)),
        ("!a", Unary("NOT", a)),
        ("a ≠ b", Binary("!=", a, b)),
        ("a <> b", Binary("!=", a, b)),
        ("a != b", Binary("!=", a, b)),
        ("a == b", Binary("=", a, b)),
        ("a ≤ b", Binary("<=", a, b)),
        ("a ≥ b", Binary(">=", a, b)),
        # Chained equality
        ("a = b = c", Logical("AND", (Binary("=", a, b), Binary("=", b, c)))),
        ("not a = b = c", Unary("NOT", Logical("AND", (Binary("=", a, b), Binary("=", b, c))))),
        ("a = b = c and x", Logical("AND", (Binary("=", a, b), Binary("=", b, c), x))),
        # SQL predicates
        ("a in (1, 2)", In(a, (one, two))),
        ("a NOT IN (1)", In(a, (one,), negated=True)),
        ("a between 1 and 2 and b", Logical("AND", (Between(a, one, two), b))),
        ("a not between 1 and 2", Between(a, one, two, negated=True)),
        ("a like 'x%' escape '\\'", Like(a, Literal("x%"), escape="\\")),
        ("a not like b", Like(a, b, negated=True)),
        ("a is null", IsNull(a)),
        ("a is not null", IsNull(a, negated=True)),
        ("case when a then 1 else 2 end", Case(None, (When(a, one),), two)),
        ("case a when 1 then b end", Case(a, (When(one, b),), None)),
        # Calls
        ("ABS(x)", Call("abs", (x,))),
        ("coalesce(a, b, 1)", Call("coalesce", (a, b, one))),
        ("count(*)", Call("count", ())),
        ("end(v) - start(v)", Binary("-", Call("end", (Reference(("v",)),)), Call("start", (Reference(("v",)),)))),
        # References
        ("a.address.city", Reference(("a", "address", "city"))),
        ("b.from", Reference(("b", "from"))),
        ("a.end", Reference(("a", "end"))),
        ('"from"', Reference(("from",))),
        ("`two words`.x", Reference(("two words", "x"))),
        ('"a""b"', Reference(('a"b',))),
        ("v[1].x", Reference(("v", "x"), Index(IndexKind.NUMBER, 1))),
        ("v[i].x", Reference(("v", "x"), Index(IndexKind.ITERATION))),
        ("v[i-1].x", Reference(("v", "x"), Index(IndexKind.ITERATION, -1))),
        ("v[i + 1].x", Reference(("v", "x"), Index(IndexKind.ITERATION, 1))),
        ("v[..i-1].x", Reference(("v", "x"), Index(IndexKind.BEFORE, -1))),
        ("v[].x", Reference(("v", "x"), Index(IndexKind.ALL))),
        ("v[]", Reference(("v",), Index(IndexKind.ALL))),
        ("v[v.LEN].x", Reference(("v", "x"), Index(IndexKind.LAST, of="v"))),
        ("v[len].x", Reference(("v", "x"), Index(IndexKind.LAST))),
        ("v.LEN", Reference(("v", "LEN"))),
        ("x.id[z.id]", Reference(("x", "id"), default=Reference(("z", "id")))),
        ("x.id[1 + 2]", Reference(("x", "id"), default=Binary("+", one, two))),
        ("S2.price.last", Reference(("S2", "price", "last"))),
        # Equivalence tests
        ("[id]", Equivalence(("id",))),
        ("[a.b]", Equivalence(("a", "b"))),
        ("[name='John']", Equivalence(("name",), Literal("John"))),
        ("[from]", Equivalence(("from",))),
        ("[group, event = 1]", Logical("AND", (Equivalence(("group",)), Equivalence(("event",), one)))),
        ("[a, b] and c", Logical("AND", (Equivalence(("a",)), Equivalence(("b",)), c))),
        # Words that are keywords only elsewhere
        ("end + first + events + on + seq", None),
        ("date > timestamp and interval < escape", None),
        ("group = emit", Binary("=", Reference(("group",)), Reference(("emit",)))),
        # Comments
        ("a -- and b\n + 1", Binary("+", a, one)),
        ("a /* + ; ' */ + 1", Binary("+", a, one)),
    ],
)
def test_expression(text: str, expected: Expr | None) -> None:
    tree = parse_expression(text)
    if expected is not None:
        assert tree == expected
        assert repr(tree) == repr(expected)


def components(text: str) -> tuple[Component, ...]:
    return parse(f"PATTERN {text}").pattern.components


def of(*names: str) -> tuple[TypeName, ...]:
    return tuple(TypeName(name) for name in names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A", [Component(of("A"), None)]),
        ("SHELF-READING x", [Component(of("SHELF-READING"), "x")]),
        ("SEQ(A a, B b)", [Component(of("A"), "a"), Component(of("B"), "b")]),
        ("(A a, B b)", [Component(of("A"), "a"), Component(of("B"), "b")]),
        ("SEQ(A+ a[])", [Component(of("A"), "a", kleene=True)]),
        ("SEQ(A+)", [Component(of("A"), None, kleene=True)]),
        ("SEQ(ANY(A, B-C) v)", [Component(of("A", "B-C"), "v", any_of=True)]),
        ("SEQ(ANY(A)+ v[])", [Component(of("A"), "v", kleene=True, any_of=True)]),
        ("SEQ(Order o, !Return r)", [Component(of("Order"), "o"), Component(of("Return"), "r", negated=True)]),
        ("SEQ(ANY v)", [Component((), "v", any_of=True)]),
        ("SEQ(ANY+ v[])", [Component((), "v", kleene=True, any_of=True)]),
        ("SEQ(A? a)", [Component(of("A"), "a", least=0)]),
        ("SEQ(A* a[])", [Component(of("A"), "a", kleene=True, least=0)]),
        ("SEQ(A{2} a[])", [Component(of("A"), "a", kleene=True, least=2, most=2)]),
        ("SEQ(A{2,3} a[])", [Component(of("A"), "a", kleene=True, least=2, most=3)]),
        ("SEQ(A{2,} a[])", [Component(of("A"), "a", kleene=True, least=2)]),
        ("SEQ(A{,3} a[])", [Component(of("A"), "a", kleene=True, least=0, most=3)]),
        ("SEQ(A{1,} a[])", [Component(of("A"), "a", kleene=True)]),
        ("SEQ(!A, !(B b), ~C, ~(D d), NOT E e, not (F), ¬G)",
         [Component(of(name), variable, negated=True) for name, variable in
          [("A", None), ("B", "b"), ("C", None), ("D", "d"), ("E", "e"), ("F", None), ("G", None)]]),
        ("SEQ(!(ANY(A, B) z))", [Component(of("A", "B"), "z", negated=True, any_of=True)]),
        ('SEQ("SEQ" "where", `Event` e)', [Component(of("SEQ"), "where"), Component(of("Event"), "e")]),
    ],
)  # fmt: skip
def test_components(text: str, expected: list[Component]) -> None:
    assert components(text) == tuple(expected)


def test_sequence_notation() -> None:
    pattern = parse("SEQUENCE (x, !y, Shelf z)").pattern
    assert pattern.notation is Notation.SEQUENCE
    assert pattern.components == (Component((), "x"), Component((), "y", negated=True), Component(of("Shelf"), "z"))


def test_bare() -> None:
    assert parse("PATTERN A a").pattern.bare
    assert not parse("PATTERN SEQ(A a)").pattern.bare
    assert not parse("PATTERN (A a)").pattern.bare


ALL_CLAUSES = [
    "PATTERN SEQ(A a, B+ b[])",
    "FROM input, other-stream",
    "WHERE skip_till_next_match(a, b[]) { [id] AND a.x > 1 }",
    "GROUP BY ip, a.x AS key",
    "AGG COUNT AS DECIMAL AS n, COUNT(*), SUM(b.x) AS total",
    "HAVING COUNT > 100",
    "WITHIN 12 hours",
    "THRESHOLD 0.5 ON probability",
    "OUTPUT SKIP TO LAST b",
    "EMIT ON CHANGE",
    "RETURN Theft(a.x AS group, b[1].y)",
    "INTO thefts",
]


def test_every_clause_in_any_order() -> None:
    query = parse("\n".join(ALL_CLAUSES))
    assert query.sources == ("input", "other-stream")
    assert query.selection == Selection(Strategy.SKIP_TILL_NEXT_MATCH, ("a", "b"))
    assert query.where == Logical("AND", (Equivalence(("id",)), Binary(">", Reference(("a", "x")), one)))
    assert query.group_by == (Item(Reference(("ip",))), Item(Reference(("a", "x")), "key"))
    assert query.aggregates == (
        Aggregate("count", None, "n", as_decimal=True),
        Aggregate("count"),
        Aggregate("sum", Reference(("b", "x")), "total"),
    )
    assert query.having == Binary(">", Reference(("COUNT",)), Literal(100))
    assert query.within == Within(Duration(12, "h"))
    assert query.threshold == Threshold(Literal(Decimal("0.5")), on_probability=True)
    assert query.output == Output(OutputForm.SKIP_TO_LAST, "b")
    assert query.emit_on_change
    assert query.returns == Return(
        "Theft", (Item(Reference(("a", "x")), "group"), Item(Reference(("b", "y"), Index(IndexKind.NUMBER, 1))))
    )
    assert query.into == "thefts"
    for turn in range(len(ALL_CLAUSES)):
        assert parse(" ".join(ALL_CLAUSES[turn:] + ALL_CLAUSES[:turn])) == query
    assert parse(" ".join(f"[{clause}]" for clause in ALL_CLAUSES)) == query
    assert parse(" ".join(ALL_CLAUSES).lower().replace("seq(a a, b+", "seq(A a, B+").replace("theft(", "Theft(")
                 .replace("count >", "COUNT >")) == query  # fmt: skip


def test_angle_brackets_and_comparisons() -> None:
    plain = parse("PATTERN SEQ(A a, B b) WHERE a.x > b.x AND a.y <> b.y GROUP BY ip AGG COUNT WITHIN 10 s")
    angled = "PATTERN <SEQ(A a, B b)> WHERE <a.x > b.x AND a.y <> b.y> [GROUP BY <ip>] [AGG <COUNT>] WITHIN <10 s>"
    assert parse(angled) == plain


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("WITHIN 100", Within(Literal(100))),
        ("WITHIN :w", Within(Parameter("w"))),
        ("WITHIN 50 EVENTS", Within(Literal(50), in_events=True)),
        ("WITHIN :n events", Within(Parameter("n"), in_events=True)),
        ("WITHIN INTERVAL '1 week'", Within(Duration(1, "weeks"))),
        ("WITHIN 1.5 h", Within(Duration(Decimal("1.5"), "h"))),
    ],
)
def test_within(text: str, expected: Within) -> None:
    assert parse(f"PATTERN A a {text}").within == expected


@pytest.mark.parametrize("form", [form for form in OutputForm if not form.value.startswith("SKIP")])
def test_output(form: OutputForm) -> None:
    assert parse(f"PATTERN A a OUTPUT {form.value.lower()}").output == Output(form)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Theft(a.x)", Return("Theft", (Item(Reference(("a", "x"))),))),
        ("Theft()", Return("Theft", ())),
        ('"my theft"(a.x)', Return("my theft", (Item(Reference(("a", "x"))),))),
        ("abs(a.x) AS z", Return(None, (Item(Call("abs", (Reference(("a", "x")),)), "z"),))),
        ("abs(a) + 1", Return(None, (Item(Binary("+", Call("abs", (a,)), one)),))),
        ("abs(a), b", Return(None, (Item(Call("abs", (a,))), Item(b)))),
        ("a, b AS end", Return(None, (Item(a), Item(b, "end")))),
    ],
)
@pytest.mark.parametrize("after", ["", " WITHIN 3 s", ";", " /* end */"])
def test_return(text: str, expected: Return, after: str) -> None:
    assert parse(f"PATTERN A a RETURN {text}{after}").returns == expected


def test_strategies() -> None:
    for strategy in [one for one in Strategy if one is not Strategy.CONTIGUITY]:
        assert parse(f"PATTERN A a WHERE {strategy.value.upper()}(a) {{}}").selection == Selection(strategy, ("a",))
    query = parse("PATTERN A a WHERE skip_till_any_match { a.x = 1 }")
    assert query.selection == Selection(Strategy.SKIP_TILL_ANY_MATCH, ())
    assert parse("PATTERN A a WHERE a.x = 1").selection is None


def test_contiguity_by_step() -> None:
    text = 'PATTERN SEQ(A a, B+ b[], C "c d") WHERE Contiguity(b:NEXT, b[1] : any, b[i]: strict, "c d": partition) {}'
    assert parse(text).selection == Selection(
        Strategy.CONTIGUITY,
        (),
        (
            Step("b", Contiguity.NEXT),
            Step("b", Contiguity.ANY),
            Step("b", Contiguity.STRICT, repeats=True),
            Step("c d", Contiguity.PARTITION),
        ),
    )
    assert parse("PATTERN A a WHERE a.x IN (:p) AND f(a.x, :p) = 1").where is not None


def test_scripts() -> None:
    script = parse_script('up:PATTERN Rise r; "to the ground": PATTERN Fall f WITHIN :w;\nevent : PATTERN Event-X e')
    assert [query.name for query in script.queries] == ["up", "to the ground", "event"]
    assert parse_script("PATTERN A a").queries[0].name is None
    assert parse("up: PATTERN Rise r;").name == "up"


def test_positions() -> None:
    text = "name: PATTERN SEQ(Shelf a, !(Exit b)) WHERE (a.x + 1) * 2 > b.id[a.id ] WITHIN 3 s"
    query = parse(text)
    assert isinstance(query.where, Binary)

    def cut(node: object) -> str:
        return text[node.span.start : node.span.end]  # type: ignore[attr-defined]

    assert cut(query) == text
    assert cut(query.pattern) == "PATTERN SEQ(Shelf a, !(Exit b))"
    assert [cut(component) for component in query.pattern.components] == ["Shelf a", "!(Exit b)"]
    assert cut(query.pattern.components[1].types[0]) == "Exit"
    assert text[query.pattern.components[0].variable_span.start] == "a"
    assert cut(query.where.left) == "(a.x + 1) * 2"
    assert cut(query.where.right) == "b.id[a.id ]"
    assert query.within is not None
    assert cut(query.within) == "WITHIN 3 s"
    assert cut(query.within.extent) == "3 s"


def test_byte_order_mark_and_odd_blanks() -> None:
    assert parse("\ufeffPATTERN\u00a0A\u2003a\r\n") == parse("PATTERN A a")


def test_importing_the_language_is_cheap() -> None:
    code = "import sys, ouzel.lang; sys.exit('lark' in sys.modules)"
    source = str(Path(lang.__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": source}
    assert subprocess.run([sys.executable, "-c", code], check=False, env=environment).returncode == 0
