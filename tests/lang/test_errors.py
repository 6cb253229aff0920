"""What is said about a text that is no query: the sentence, the place, the hint."""

from __future__ import annotations

import pickle
import re
import time
from itertools import product

import pytest

from ouzel.errors import QueryError
from ouzel.lang import format_expression, format_query, parse, parse_expression, parse_script
from ouzel.lang.parser import parse_row_pattern
from ouzel.lang.syntax import QUERY_CHARACTERS_MAX, Binary, Literal
from ouzel.lang.vocabulary import CLAUSE_KEYWORDS


def refusal(text: str) -> QueryError:
    with pytest.raises(QueryError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "message", "marked", "hint"),
    [
        # The text as a whole
        ("", "the text is empty", None, "PATTERN"),
        (" -- nothing\n", "the text is empty", None, "PATTERN"),
        ("WHERE a.x = 1", "there is no PATTERN clause", "WHERE a.x = 1", "SEQ"),
        ("PATTERN A a; PATTERN B b", "text after the end of the query", "PATTERN B b", "script"),
        ("PATTERN A a;;", "there is no query before this ;", ";", None),
        ("SELECT * FROM t", "unexpected 'SELECT'; expected PATTERN", "SELECT", "begins with PATTERN SEQ("),
        ("SEQ(A a, B b)", "unexpected 'SEQ'; expected PATTERN", "SEQ", "begins with PATTERN SEQ("),
        ("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A))", "unexpected 'SELECT'", "SELECT", "ouzel.sql"),
        ("days/theft.query", "unexpected 'days'; expected PATTERN", "days", "read_text()"),
        ("PATTERN SEQ(A a) foo", "unexpected 'foo' after the end of the clause; expected another clause", "foo", None),
        ("PATTERN SEQ(A a) WITIN 3", "unexpected 'WITIN'", "WITIN", "did you mean WITHIN?"),
        ("PATTERN SEQ(A a) GROUP ip", "unexpected 'GROUP'", "GROUP", "write GROUP BY"),
        ("PATTERN SEQ(A a) EMIT ON", "unexpected 'EMIT'", "EMIT", "write EMIT ON CHANGE"),
        ("PATTERN A a WITHIN 3 s LIMIT 5", "unexpected 'LIMIT' after", "LIMIT", "there is no LIMIT"),
        ("PATTERN A a WITHIN 3 s ORDER BY x", "unexpected 'ORDER' after", "ORDER", "there is no ORDER BY"),
        ("PATTERN A a WHERE a.x WHERE a.y", "WHERE is written twice", "WHERE", None),
        ("PATTERN A a EVENT B b", "EVENT is written twice", "EVENT", None),
        ("PATTERN A a GROUP BY x GROUP BY y", "GROUP BY is written twice", "GROUP BY", None),
        ("PATTERN A a EMIT ON CHANGE EMIT ON CHANGE", "EMIT ON CHANGE is written twice", "EMIT ON CHANGE", None),
        (
            "PATTERN SEQ(A a, B b) WHERE skip_till_next_match(a, b) { [x] } AND b.y > 5",
            "unexpected 'AND' after the end of the clause",
            "AND",
            "put all conditions into the { } of the strategy",
        ),
        (
            "PATTERN SEQ(A a, B b) WITHIN 3 s STRATEGY skip_till_next_match",
            "unexpected 'STRATEGY' after the end of the clause",
            "STRATEGY",
            "a strategy is written WHERE skip_till_next_match { … }",
        ),
        (
            "PATTERN SEQ(A a, B b) WITHIN 3 STRATEGY skip_till_next_match",
            "there is no unit of time 'STRATEGY'",
            "STRATEGY",
            "a strategy is written WHERE skip_till_next_match { … }",
        ),
        # Brackets
        ("PATTERN SEQ(A a, B b", "this ( is never closed", "(", "it needs a )"),
        ("PATTERN SEQ(A a, B b WHERE a.x = 1", "unexpected 'WHERE'; expected ) or a comma", "WHERE", "column 12 is"),
        ("PATTERN SEQ(A a) WHERE (a.x = 1 WITHIN 3 s", "unexpected 'WITHIN'; expected )", "WITHIN", "still open"),
        ("PATTERN SEQ(A a))", "this ) closes nothing", ")", None),
        ("PATTERN A a WHERE (a.x]", "this ] closes nothing", "]", None),
        ("PATTERN A a WHERE [(a.x]", "unexpected '('", "(", None),
        ("PATTERN A a WHERE f(a.x[(1])", "this ( is never closed", "(", "it needs a )"),
        ("PATTERN A a WHERE <a.x = 1 WITHIN 3 s", "this < is never closed", "<", "it needs a >"),
        ("PATTERN A a [WITHIN 3 s", "this [ is never closed", "[", "it needs a ]"),
        ("PATTERN A a WHERE CASE WHEN a.x THEN 1", "this CASE is never closed", "CASE", "it needs a END"),
        # Quotes, comments, characters
        ("PATTERN A a WHERE a.x = 'abc", "this string is never closed", "'", "second '"),
        ('PATTERN A a WHERE "abc', "this name is never closed", '"', 'second "'),
        ('PATTERN A a WHERE "" = 1', "a name cannot be empty", '""', None),
        ("PATTERN A a /* WITHIN 3 s", "this comment is never closed", "/*", "*/"),
        ("PATTERN A a WHERE a.x = ‘b’", "unexpected character '‘'", "‘", "straight quotes"),
        # What is written so elsewhere
        ("PATTERN A a, B b", "unexpected ','", ",", "SEQ(A a, B+ b[], C c)"),
        ("PATTERN A -> B", "unexpected '->'", "->", "SEQ(A a, B+ b[], C c)"),
        ("PATTERN (A B+ C)", "unexpected '+'", "+", "SEQ(A a, B+ b[], C c)"),
        ("PATTERN A a SKIP_TILL_NEXT_MATCH", "unexpected 'SKIP_TILL_NEXT_MATCH'", "SKIP_TILL_NEXT_MATCH",
         "in the braces"),
        ("PATTERN A a WITHIN '5 min'", "unexpected ''5 min''", "'5 min'", "without quotes, such as 5 min"),
        ("PATTERN A a WITHIN 5m", "there is no unit of time 'm'", "m", "write min for minutes"),
        ("PATTERN A a WITHIN 1 month", "there is no unit of time 'month'", "month", "write 30 days"),
        ("PATTERN A a WHERE a.x = $n", "unexpected character '$'", "$", "a parameter is written :name"),
        ("PATTERN A a WHERE a.x = {n}", "unexpected '{'", "{", "a parameter is written :name"),
        ("PATTERN A a WHERE a.x IN [1]", "unexpected '['", "[", "in parentheses: IN (1, 2)"),
        ("PATTERN A a # first", "unexpected character '#'", "#", "a comment begins with --"),
        ("PATTERN A a // first", "unexpected '/'", "/", "a comment begins with --"),
        ("PATTERN A a WHERE a.x = ?", "unexpected '?'", "?", "a parameter is written :name"),
        ("PATTERN A a WHERE a.x = 1 | a.x = 2", "unexpected '|'", "|", "conditions are joined by OR"),
        ("PATTERN SEQ(A|B a)", "unexpected '|'", "|", "ANY(A, B) v"),
        ("PATTERN SEQ(A a, B b | C c)", "unexpected '|'; expected ), WITHOUT or a comma", "|", "write (B b | C c)"),
        ("PATTERN A a | B b", "unexpected '|'", "|", "write (A a | B b)"),
        ("PATTERN SEQ(A a, (B b){2,3})", "unexpected ')'", ")", "write SEQ(A a, B b) for a group"),
        ("PATTERN SEQ(A a, (SEQ(B b, C c))?)", "unexpected ')'", ")", "parentheses hold alternatives"),
        (
            "PATTERN SEQ(A a, B b) WHERE contiguity(b: next) { } AND skip_till_next_match { }",
            "unexpected 'AND'",
            "AND",
            "put all conditions into the { } of the strategy",
        ),
        ("PATTERN SEQ(A+ a[] | B b)", "unexpected '|'", "|", "write (A a | B b) for one of two steps"),
        ("PATTERN A a?", "unexpected '?'", "?", "write A? a"),
        ("PATTERN SEQ(A a, B b?)", "unexpected '?'; expected ), WITHOUT or a comma", "?", "write B? b"),
        ("PATTERN SEQ(A a, B+ b[]?)", "unexpected '?'", "?", "B* b[] for any number"),
        ("PATTERN SEQ(A+? a[], B b)", "unexpected '?'", "?", "the strategy decides"),
        ("PATTERN A a WHERE a.x IN :names", "unexpected ':names'", ":names", "IN (:names_1, :names_2)"),
        ("PATTERN A a WHERE any(a.x, (t) -> t = 1)", "unexpected '->'", "->", "any(v.list, t -> t > 3)"),
        ("PATTERN A a WHERE all(a.x, t -> t = 1)", "all(…) takes no condition on elements", "t ->", "NOT any(v.list"),
        ("PATTERN SEQ(A a, B b) AGG COUNT(DISTINCT a.x)", "unexpected 'DISTINCT'", "DISTINCT", "AGG has no DISTINCT"),
        ("PATTERN A+ a[] WITHIN 5 WITHOUT C c", "there is no unit of time 'WITHOUT'", "WITHOUT", "the units are"),
        ("PATTERN SEQ(A a, B b) WHERE a.x > b.x WITHOUT C c", "unexpected 'WITHOUT'", "WITHOUT", "after SEQ(…)"),
        ("PATTERN SEQ(A a, B b WITHOUT C c)", "WITHOUT cannot be after a component", "B b WITHOUT C c", "SEQ(…)"),
        ("PATTERN SEQ(A a, !(B b) WITHOUT C c)", "WITHOUT cannot be after a negation", "!(B b) WITHOUT C c", "between"),
        ("PATTERN A+ a[] WITHOUT C+ c[]", "WITHOUT needs a component of one event", "WITHOUT C+ c[]", "every such"),
        ('Pattern.<Event>begin("a").followedBy("b")', "unexpected '.'", ".", "contiguity(b: next)"),
        ('begin("a").next("b")', "unexpected 'begin'", "begin", "contiguity(b: next)"),
        ("PATTERN SEQ(A a followedBy B b)", "unexpected 'followedBy'", "followedBy", "contiguity(b: next)"),
        ("PATTERN SEQ(A a, next B b)", "unexpected 'b'", "b", "contiguity(b: strict)"),
        ("PATTERN SEQ(A a).followedByAny(B b)", "unexpected '.'", ".", "contiguity(b: any)"),
        ("PATTERN SEQ(A a, notFollowedBy B b, C c)", "unexpected 'b'", "b", "!(B b)"),
        ("PATTERN SEQ(A a, notNext(B b), C c)", "unexpected '('", "(", "there is no notNext"),
        ("PATTERN SEQ(A.oneOrMore() a, B b)", "unexpected '.'", ".", "B+ b[]"),
        ("PATTERN SEQ(A times(3) a, B b)", "unexpected '('", "(", "B{3} b[]"),
        ("PATTERN SEQ(A+ a[].greedy(), B b)", "unexpected '.'", ".", "skip_till_next_match takes all"),
        ("PATTERN SEQ(A+ a[] consecutive, B b)", "unexpected 'consecutive'", "consecutive", "b[i]: strict"),
        ("PATTERN SEQ(A+ a[].allowCombinations(), B b)", "unexpected '.'", ".", "b[i]: any"),
        ("PATTERN SEQ(A a optional, B b)", "unexpected 'optional'", "optional", "B? b"),
        ("PATTERN SEQ(A a, B+ b[] until C c)", "unexpected 'until'", "until", "WITHOUT C c"),
        ("sequence by user [process where true] [file where true]", "unexpected 'process'", "process", "OUTPUT LATEST"),
        ("PATTERN SEQ([any where true], B b)", "unexpected '['", "[", "ANY v"),
        ("PATTERN SEQ(A a, B b) with maxspan 5m", "unexpected 'with'", "with", "WITHIN 5 min"),
        ("PATTERN SEQ(A a, B b) BY user", "unexpected 'BY'", "BY", "[attr] in WHERE"),
        ("PATTERN A a WHERE a.x like~ 'b'", "unexpected '~'", "~", "ILIKE"),
        ("select * from pattern [every a=A -> b=B]", "unexpected 'select'", "select", "SEQ(A a, B b)"),
        ("PATTERN every A a -> B b", "unexpected 'a'", "a", "every event may start"),
        ("PATTERN [every a=A -> b=B]", "unexpected '['", "[", "every event may start"),
        ("PATTERN SEQ(a=A, b=B)", "unexpected '='", "=", "the type and then the variable"),
        ("PATTERN SEQ(A a, B[2:5] b)", "unexpected '['", "[", "B{2,5} b[]"),
        ("PATTERN SEQ(A a & B b)", "unexpected character '&'", "&", "AND(A a, B b)"),
        ("PATTERN SEQ(A a, not B b for 5 min)", "unexpected 'for'", "for", "!(B b)) WITHIN 5 min"),
        ("PATTERN SEQ(A a) PARTITION BY user", "unexpected 'PARTITION'", "PARTITION", "[attr] in WHERE"),
        ("PATTERN SEQ(A a) MEASURES a.x AS x", "unexpected 'MEASURES'", "MEASURES", "RETURN Name"),
        ("PATTERN SEQ(A a) DEFINE A AS a.x > 3", "unexpected 'DEFINE'", "DEFINE", "in WHERE"),
        ("PATTERN SEQ(A a) AFTER MATCH SKIP TO NEXT ROW", "unexpected 'AFTER'", "AFTER", "OUTPUT FIRST"),
        ("PATTERN SEQ(A a) ONE ROW PER MATCH", "unexpected 'ONE'", "ONE", "one row per match"),
        ("PATTERN SEQ(A a) SELECT a.x", "unexpected 'SELECT'", "SELECT", "RETURN Name"),
        ("SELECT a.x FROM SEQ(A a)", "unexpected 'SELECT'", "SELECT", "RETURN Name"),
        ("PATTERN SEQ(A a OR B b)", "unexpected 'OR'", "OR", "OR(A a, B b)"),
        ("PATTERN SEQ(A? a[], B b)", "a variable with ? cannot have brackets", "a[]", "or a alone"),
        ("PATTERN SEQ(A{2} a, B b)", "a variable with {…} must have brackets", "a", "write a[]"),
        ("PATTERN SEQ(A{3,2} a[], B b)", "{3,2} holds no number of events", "{3,2}", "m <= n"),
        ("PATTERN SEQ(A{0} a[], B b)", "a component needs an event", "{0}", "negate it"),
        ("PATTERN SEQ(A{1.5} a[], B b)", "a number of events must be a whole number", "{1.5}", "T{2,3}"),
        ("PATTERN SEQ(A a, !(B? b))", "a component under a negation cannot be optional", "B? b", "leave it out"),
        ("PATTERN OR(A a)", "OR needs two parts or more", "OR(A a)", None),
        ("PATTERN SEQ(A a, OR(B b, !(C c)))", "a part of OR cannot be negated", "!(C c)", "between steps of SEQ"),
        ("PATTERN A a RETURN a.x IS ABSENT", "IS ABSENT asks about a variable", "a.x IS ABSENT", "a.x IS NULL"),
        ("PATTERN A a WITHIN 3 ORDER BY ts", "there is no unit of time 'ORDER'", "ORDER", "matches come in the order"),
        ("PATTERN A a WITHIN 3 limit 5", "there is no unit of time 'limit'", "limit", "there is no LIMIT"),
        ("PATTERN A a WHERE a.ok IS TRUE", "unexpected 'TRUE'", "TRUE", "a null satisfies none"),
        ("PATTERN A a WHERE a.ok IS NOT false", "unexpected 'false'", "false", "a null satisfies none"),
        ("PATTERN A a RETURN *", "unexpected '*'", "*", "leave RETURN out"),
        ("PATTERN A a WHERE a.x = \u202e1", "unexpected character U+202E", "\u202e", None),
        ("PATTERN A a WHERE a.x = '\0'", "unexpected character U+0000", "\ufffd", None),
        ("PATTERN A a WHERE a.x = '\ud800'", "unexpected character U+D800", "\ufffd", None),
        ("PATTERN A a WHERE a.x = : w", "unexpected ':'", ":", ":name"),
        # Patterns
        ("PATTERN", "the text ends too early; expected an event type", "", None),
        ("PATTERN SEQ()", "unexpected ')'; expected an event type", ")", None),
        ("PATTERN SEQ(A a,)", "unexpected ')'; expected an event type", ")", None),
        ("PATTERN SEQ(A from)", "unexpected 'from'", "from", 'a name is quoted: "from"'),
        ("PATTERN SEQ(A a, !(OR(B b, C c)))", "a negated sequence must be made of", "OR(B b, C c)", "with INTO"),
        ("PATTERN SEQ(A a, !(SEQ(B b, C* c[])))", "a component under a negation cannot be", "C* c[]", "leave it out"),
        ("PATTERN SEQ(A a, !(SEQ(B b, !(C c))))", "a negation cannot be negated", "!(SEQ(B b, !(C c)))", None),
        ("PATTERN SEQ(A a, !(!B b))", "a negation cannot be negated", "!(!B b)", None),
        ("PATTERN SEQ(A+ a, B b)", "a variable with + must have brackets", "a", "write a[]"),
        ("PATTERN SEQ(A a[], B b)", "a variable without + cannot have brackets", "a[]", "or a alone"),
        ("SEQUENCE (x+)", "+ needs a type after SEQUENCE", "x+", "Type+ v[]"),
        # Clauses
        ("PATTERN A a WHERE", "the text ends too early; expected an expression", "", None),
        ("PATTERN A a WHERE from = 1", "unexpected 'from'; expected an expression", "from", '"from"'),
        ("PATTERN A a WHERE skip_til_any_match {}", "there is no strategy 'skip_til_any_match'", "skip_til_any_match",
         "did you mean skip_till_any_match?"),
        ("PATTERN A a WHERE greedy {}", "there is no strategy 'greedy'", "greedy", "strict_contiguity, partition"),
        ("PATTERN A a WHERE a.x = 1 {}", "only a strategy can come before {", "a.x = 1", "skip_till_next_match(a, b)"),
        ("PATTERN A a WHERE strict_contiguity(a.x) {}", "a strategy must list the pattern's", "a.x", "(a, b[]"),
        ("PATTERN A a WHERE contiguity(a) {}", "contiguity must have a rule for each step that it names",
         "contiguity(a)", "contiguity(b: next"),
        ("PATTERN A a WHERE contiguity {}", "contiguity must have a rule for each step", "contiguity", "(b: next"),
        ("PATTERN A a WHERE contiguity(a: near) {}", "there is no contiguity 'near'", "near", "a step is strict"),
        ("PATTERN A a WHERE contiguity(a[]: next) {}", "a step cannot have this index", "[]", "a[i]: for each further"),
        ("PATTERN A a WHERE greedy(a: next) {}", "'greedy' cannot have a rule for each step", "greedy(a: next)",
         "contiguity(b: next"),
        ("PATTERN A a WHERE a.x = 1 AND contiguity(a: next)", "unexpected ':'", ":", "in place of a strategy"),
        ("PATTERN A a WHERE strict_contiguity(a)", "a strategy needs a body", "strict_contiguity(a)", "{ … }"),
        ("PATTERN A a WITHIN 3 fortnights", "there is no unit of time 'fortnights'", "fortnights", "us, ms, s, min"),
        ("PATTERN A a WITHIN -3", "unexpected '-'; expected a duration, a number or a parameter", "-", None),
        ("PATTERN A a WITHIN T", "unexpected 'T'; expected a duration, a number or a parameter", "T", None),
        ("PATTERN A a WITHIN 3 EVENT OUTPUT FIRST", "unexpected 'OUTPUT'", "OUTPUT", "write WITHIN 3 EVENTS"),
        ("PATTERN A a WITHIN 3 event", "the text ends too early", "", "write WITHIN 3 EVENTS"),
        ("PATTERN A a WITHIN 1.5 EVENTS", "a window in events must be a whole number", "1.5", "50 EVENTS"),
        ("PATTERN A a WITHIN 3 s EVENTS", "a window in events must be a whole number", "3 s", "50 EVENTS"),
        ("PATTERN A a THRESHOLD 0.5 ON score", "a threshold cannot be on 'score'", "score", "ON probability"),
        ("PATTERN A a OUTPUT FRST", "there is no OUTPUT form 'FRST'", "FRST", "did you mean FIRST?"),
        ("PATTERN A a OUTPUT everything", "there is no OUTPUT form 'EVERYTHING'", "everything", "ALL, BEST, COMPR"),
        ("PATTERN A a OUTPUT SKIP TO LAST", "OUTPUT SKIP TO LAST needs a variable", "OUTPUT SKIP TO LAST", "LAST v"),
        ("PATTERN A a AGG SUM", "SUM needs an attribute", "SUM", "SUM(v.attribute)"),
        ("PATTERN A a AGG SUM(a.x) AS DECIMAL", "only COUNT can be AS DECIMAL", "SUM(a.x) AS DECIMAL", "AS \""),
        ("PATTERN A a AGG COUNT AS n AS m", "an aggregate cannot have two names", "COUNT AS n AS m", None),
        # Expressions
        ("PATTERN A a WHERE a.x < b.x < c.x", "only = can be chained", "a.x < b.x < c.x", "a < b AND b < c"),
        ("PATTERN A a WHERE a.x = b.x > c.x", "only = can be chained", "a.x = b.x > c.x", "a < b AND b < c"),
        ("PATTERN A a WHERE a.x = ", "the text ends too early; expected an expression", "", None),
        ("PATTERN A a WHERE a.x IN ()", "unexpected ')'; expected an expression", ")", None),
        ("PATTERN A a WHERE a[j].x = 1", "'j' is not an index", "[j]", "v[1], v[i], v[i-1]"),
        ("PATTERN A a WHERE a[i*2].x = 1", "unexpected '*'", "*", "v[1], v[i], v[i-1]"),
        ("PATTERN A a WHERE a[..i].x = 1", "unexpected ']'", "]", "v[..i-1]"),
        ("PATTERN A a WHERE a[..i-2].x = 1", "a range of a Kleene variable must end at i-1", "[..i-2]", "v[..i-1]"),
        ("PATTERN A a WHERE a[1.5].x = 1", "an index must be a whole number", "[1.5]", "v[1]"),
        ("PATTERN A a WHERE a[b.size].x = 1", "this is not an index", "[b.size]", "v[LEN]"),
        ("PATTERN A a WHERE a.x = 10 lightyears", "there is no unit of time 'lightyears'", "lightyears", "weeks"),
        ("PATTERN A a WHERE a.x > INTERVAL 'soon'", "'soon' is not an interval", "'soon'", "INTERVAL '12 hours'"),
        ("PATTERN A a WHERE a.x > INTERVAL '5'", "an interval needs a unit", "INTERVAL '5'", "weeks"),
        ("PATTERN A a WHERE a.x > DATE '2024-13-01'", "'2024-13-01' is not a date", "'2024-13-01'", "DATE '2024"),
        ("PATTERN A a WHERE a.x > TIMESTAMP '12:00'", "'12:00' is not a timestamp", "'12:00'", "TIMESTAMP '2024"),
        ("PATTERN A a WHERE a.x : 'b'", "unexpected ':'", ":", "a.x ILIKE"),
        ("PATTERN A a WHERE a.x =~ 'b'", "unexpected '~'", "~", "lower(a.x) = 'text'"),
        ("PATTERN A a WHERE a.x has 'b'", "unexpected 'has'", "has", "contains(a.x, 'text')"),
        ("PATTERN A a WHERE a.x startswith 'b'", "unexpected 'startswith'", "startswith", "a.x LIKE '%text%'"),
        ("PATTERN A a WHERE a.x BETWEEN (1 .. 5)", "unexpected '..'", "..", "BETWEEN 1 AND 5"),
        ("PATTERN A a WHERE a.x IS NOT DISTINCT FROM 3", "unexpected 'DISTINCT'", "DISTINCT", "a.x IS NULL AND b.x"),
        ("PATTERN PERMUTE(A a, B b)", "unexpected '('", "(", "AND(A a, B b)"),
        ("PATTERN SEQ(A a, B b) AND NOT C c", "unexpected 'AND'", "AND", "WITHOUT C c"),
        ("PATTERN SEQ(A a, ![C c], B b)", "unexpected '['", "[", "!(B b)"),
        ("transaction user startswith='x'", "unexpected 'transaction'", "transaction", "SEQ(A a, ANY* v[], B b)"),
        ("index=web | transaction user", "unexpected 'index'", "index", "SEQ(A a, ANY* v[], B b)"),
        ("T | scan with (step s: x > 1)", "unexpected 'T'", "T", "skip_till_next_match"),
        ("process where true", "unexpected 'process'", "process", "PATTERN ANY a"),
        ("PATTERN A a WHERE a.x LIKE 'b' ESCAPE 'cd'", "ESCAPE takes one character", "'cd'", "ESCAPE"),
        ("PATTERN A a WHERE abs(*) = 1", "* can be used only in COUNT(*)", "*", None),
        ('PATTERN A a WHERE "abs"(a.x) = 1', "the name of a function cannot be quoted", '"abs"', None),
        ("PATTERN A a WHERE a.x = " + "9" * 101, "a number may have at most 100 digits", "9" * 101, None),
        ("PATTERN A a WHERE a.x = 1e999", "an exponent may be at most 400", "1e999", None),
        ("PATTERN A a WHERE a.x = 1e9999999999999999", "an exponent may be at most 400", "1e9999999999999999", None),
    ],
)  # fmt: skip
def test_refusal(text: str, message: str, marked: str | None, hint: str | None) -> None:
    error = refusal(text)
    assert error.message.startswith(message)
    if marked is not None:
        assert error.text is not None
        assert error.text[error.start : error.end] == marked
        assert f"line 1, column {(error.start or 0) + 1}" in str(error)
    if hint is None:
        assert error.hint is None
    else:
        assert hint in (error.hint or "")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    str(error).encode()  # Every terminal can print it.


# fmt: off
TERMINALS = {"LPAR", "RPAR", "RSQB", "EQUIVALENCE", "INDEX", "NAME", "COMMA", "$END", "DEFAULT", "QUERY_NAME"}
WORDS = [*"()Aa,!+[].1={}", *CLAUSE_KEYWORDS, "'s'", "SEQ", "AND", "EVENTS", "AS", "GROUP BY", "CASE", "WHEN", "IN"]
# fmt: on


@pytest.mark.parametrize("prefix", ["", "PATTERN", "PATTERN SEQ (", "PATTERN A a WHERE", "PATTERN A a WHERE a.x"])
def test_no_name_of_a_terminal_is_ever_shown(prefix: str) -> None:
    for first, second in product(WORDS, WORDS):
        try:
            parse(f"{prefix} {first} {second}")
        except QueryError as error:
            assert not set(re.findall(r"[A-Z_$]+", error.message)) & TERMINALS


def test_scripts() -> None:
    with pytest.raises(QueryError, match="two queries are named 'up'") as caught:
        parse_script("up: PATTERN A a;\nup: PATTERN B b;")
    assert (caught.value.line, caught.value.column) == (2, 1)
    with pytest.raises(QueryError, match="this query has no name"):
        parse_script("up: PATTERN A a;\nPATTERN B b;")
    with pytest.raises(QueryError, match="the text is empty"):
        parse_script("-- nothing")
    with pytest.raises(QueryError, match="unexpected 'WITIN'") as caught:
        parse_script("up: PATTERN A a;\ndown: PATTERN B b WITIN 3;")
    assert caught.value.line == 2


def test_expressions() -> None:
    with pytest.raises(QueryError, match="unexpected ';'"):
        parse_expression("a = 1;")
    with pytest.raises(QueryError, match="unexpected 'WITHIN'"):
        parse_expression("a = 1 WITHIN 3 s")
    with pytest.raises(QueryError, match="the text is empty"):
        parse_expression("")


@pytest.mark.parametrize("value", [None, 1, b"PATTERN A a", ["PATTERN A a"]])
def test_only_text(value: object) -> None:
    for function in (parse, parse_script, parse_expression):
        with pytest.raises(QueryError, match="a query must be a str, got"):
            function(value)  # type: ignore[arg-type]


# ── Limits ─────────────────────────────────────────────────────────────────────────────────────────


def test_too_long() -> None:
    with pytest.raises(QueryError, match="too long"):
        parse("PATTERN A a" + " " * QUERY_CHARACTERS_MAX)
    with pytest.raises(QueryError, match="too long"):
        parse_expression("1" + " " * QUERY_CHARACTERS_MAX)


@pytest.mark.parametrize("operator", ["AND", "OR"])
def test_long_chains_of_logic_work(operator: str) -> None:
    text = f" {operator} ".join(f"a.x = {number}" for number in range(2_000))
    tree = parse_expression(text)
    assert parse_expression(format_expression(tree)) == tree
    assert hash(tree) == hash(parse_expression(text))
    assert len(repr(tree)) > 2_000


def test_long_lists_work() -> None:
    tree = parse_expression(f"a.x IN ({', '.join(str(number) for number in range(5_000))})")
    assert parse_expression(format_expression(tree)) == tree


def test_sums_work_up_to_the_limit_and_are_refused_beyond() -> None:
    tree = parse_expression(" + ".join("x" * 90))
    assert parse_expression(format_expression(tree)) == tree
    assert pickle.loads(pickle.dumps(tree)) == tree
    assert hash(tree) == hash(parse_expression(" + ".join("x" * 90)))
    assert len(repr(tree)) > 90
    with pytest.raises(QueryError, match="nested too deep: more than 100 levels"):
        parse_expression(" + ".join("x" * 5_000))


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5_000 + "x" + ")" * 5_000,
        "(" * 100_000,
        "f(" * 5_000 + "x" + ")" * 5_000,
        "NOT " * 20_000 + "x",
        "- " * 30_000 + "x",
        "x." * 20_000 + "x + " * 200 + "x",
        "CASE WHEN " * 10_000 + "x",
        "x.a[" * 20_000,
        "[a = " * 20_000,
        "x * " * 10_000 + "x",
        "NOT x = -(" * 90 + "x" + ")" * 90,
    ],
    ids=lambda text: text[:12],
)
def test_too_deep(text: str) -> None:
    began = time.process_time()
    with pytest.raises(QueryError):
        parse_expression(text)
    with pytest.raises(QueryError):
        parse(f"PATTERN A a WHERE {text}")
    assert time.process_time() - began < 2


def test_formatter_refuses_what_is_too_deep() -> None:
    tree = Literal(1)
    for _ in range(3_000):
        tree = Binary("+", tree, Literal(1))  # type: ignore[assignment]
    with pytest.raises(QueryError, match="nested too deep"):
        format_expression(tree)


def test_large_script() -> None:
    script = parse_script(
        "".join(f"q{number}: PATTERN SEQ(A a, B b) WHERE a.x = {number};\n" for number in range(1_000))
    )
    assert len(script.queries) == 1_000
    assert format_query(script.queries[7]).startswith("q7:")


@pytest.mark.parametrize(
    ("clause", "hint"),
    [
        ("MEASURES SUM(DISTINCT x) AS n PATTERN (A)", "count(DISTINCT …)"),
        ("MEASURES ARRAY_AGG(x ORDER BY t) AS n PATTERN (A)", "in the order of the rows"),
        ("MEASURES SUM(x) OVER () AS n PATTERN (A)", "no window functions"),
        ("MEASURES FINAL x AS n PATTERN (A)", "write FINAL LAST(x)"),
        ("MEASURES LAST(x) PATTERN (A)", "name the measure"),
        ("MEASURES LAST(x) n PATTERN (A)", "name the measure"),
        ("SKIP TO NEXT ROW PATTERN (A)", "write AFTER MATCH SKIP"),
        ("ALL ROWS PER MATCH WITH EMPTY MATCHES PATTERN (A)", "SHOW EMPTY MATCHES"),
        ("PATTERN (A) DEFINE A = x > 0", "write DEFINE A AS x > 0"),
        ("PATTERN (A) DEFINE A AS x > ?", "a parameter is written :name"),
        ("MEASURES SUM(x) FILTER (WHERE x > 1) AS n PATTERN (A)", "take no FILTER"),
        ("MEASURES EXTRACT(DAY FROM t) AS n PATTERN (A)", "there is no EXTRACT; write year(t)"),
        ("PATTERN (A) DEFINE A AS x > (SELECT max(x) FROM t)", "has no subqueries"),
        ("MEASURES x AS n SEEK PATTERN (A)", "belong to row patterns in windows"),
        ("MEASURES x AS n ONE ROW PATTERN (A)", "write ONE ROW PER MATCH"),
        ("PATTERN (A, B)", "write A B for B directly after A"),
        ("PATTERN (A+*)", "(A+)*"),
        ("PATTERN (A);", "leave out the ;"),
        ("PATTERN (A B)+", "PATTERN ((A B)+)"),
        ("PATTERN (A B) DEFINE A AS x > 0 AND B AS x < 0", "separated by commas"),
        ("MEASURES LAST(x IGNORE NULLS) AS n PATTERN (A)", "leave out IGNORE NULLS"),
        ("MEASURES CAST(x AS VARCHAR(10)) AS n PATTERN (A)", "write VARCHAR"),
        ("MEASURES x::int AS n PATTERN (A)", "write CAST(x AS INTEGER)"),
        ("PATTERN (A) DEFINE A AS x IS NOT TRUE", "write x or NOT x"),
        ("PATTERN (A) DEFINE A AS x IS DISTINCT FROM 3", "IS NOT DISTINCT FROM y means"),
    ],
)
def test_syntax_of_sql_that_row_patterns_lack_has_hints(clause: str, hint: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_row_pattern(clause)
    assert hint in (caught.value.hint or "")
    assert caught.value.line == 1


def test_keywords_of_several_words_are_written_so_in_errors() -> None:
    with pytest.raises(QueryError, match="expected PAST LAST ROW, TO, TO FIRST, TO LAST or TO NEXT ROW"):
        parse_row_pattern("AFTER MATCH SKIP PAST ROW PATTERN (A)")
