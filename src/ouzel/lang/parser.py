"""From text to syntax tree: lexer, LALR parser, builder, and the errors for wrong texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from ouzel.errors import QueryError
from ouzel.lang import row_lexer, stream_lexer
from ouzel.lang.hints import BEGINNING, hint_for
from ouzel.lang.lexer import END_OF_TEXT, Token, shorten, tokenize
from ouzel.lang.row_syntax import RowPattern
from ouzel.lang.stream_syntax import Pipeline
from ouzel.lang.syntax import QUERY_CHARACTERS_MAX, SCRIPT_CHARACTERS_MAX, Expr, Query, Script, Span, check_depth
from ouzel.lang.vocabulary import CLAUSE_KEYWORDS

if TYPE_CHECKING:
    from lark import Lark

_FORBIDDEN = re.compile("[\x00\ud800-\udfff]")


def parse(text: str) -> Query:
    """The tree of one query. Raises QueryError, with position and hint, if the text is not a query.

    >>> query = parse("PATTERN SEQ(Shelf a, Exit b) WHERE [tag] WITHIN 12 hours")
    >>> [component.variable for component in query.pattern.components], query.within.extent.unit
    (['a', 'b'], 'h')
    """
    queries = _parsed(text, "query", QUERY_CHARACTERS_MAX)
    first: Query = next(queries)
    second = next(queries, None)
    if second is not None:
        span = second.span
        raise QueryError(
            "text after the end of the query",
            text=text,
            start=span.start,
            end=span.end,
            hint="several queries make a script; ouzel.queries(text) reads one",
        )
    return first


def parse_script(text: str) -> Script:
    """The tree of several queries, `name: PATTERN … ;`. A script of one query needs no name.

    >>> script = parse_script("up: PATTERN Rise r; down: PATTERN Fall f;")
    >>> [query.name for query in script.queries]
    ['up', 'down']
    """
    queries = tuple(_parsed(text, "query", SCRIPT_CHARACTERS_MAX))
    names: set[str] = set()
    for query in queries:
        start = query.span.start
        if query.name is None and len(queries) > 1:
            raise QueryError(
                "this query has no name",
                text=text,
                start=start,
                end=start + 1,
                hint="in a script write name: PATTERN …;",
            )
        if query.name in names:
            raise QueryError(
                f"two queries are named {shorten(query.name or '')}",
                text=text,
                start=start,
                end=start + len(query.name or ""),
            )
        names.add(query.name or "")
    return Script(queries, span=Span(0, len(text)))


def parse_expression(text: str) -> Expr:
    """The tree of an expression alone, in the language of WHERE.

    >>> parse_expression("DUR >= 30 min").right
    Duration(amount=30, unit='min')
    """
    expression: Expr = next(_parsed(text, "expression", QUERY_CHARACTERS_MAX))
    return expression


def is_row_pattern(text: str) -> bool:
    """Whether a text is a row pattern and not a query, because it begins with MATCH_RECOGNIZE ( or with a clause that
    queries do not have.

    >>> is_row_pattern("match_recognize (PATTERN (A))"), is_row_pattern("ORDER BY ts PATTERN (A)")
    (True, True)
    >>> is_row_pattern("PATTERN SEQ(A a)"), is_row_pattern("define: PATTERN SEQ(A a)")
    (False, False)
    """
    first = _FIRST_WORDS.match(text)
    return _MATCH_RECOGNIZE.match(text) is not None or (first is not None and row_lexer.is_clause(first[1]))


def parse_row_pattern(text: str) -> RowPattern:
    """The tree of a row pattern: the text in the parentheses of MATCH_RECOGNIZE, with or without MATCH_RECOGNIZE ( )
    around it.

    >>> parse_row_pattern("ORDER BY ts PATTERN (A B+) DEFINE B AS price > PREV(price)").pattern.items[1].greedy
    True
    """
    opening = _MATCH_RECOGNIZE.match(text) if isinstance(text, str) else None
    if opening is None:
        found: RowPattern = next(_parsed(text, "row_pattern", QUERY_CHARACTERS_MAX))
        return found
    last = len(text.rstrip()) - 1
    if text[last] != ")":
        raise QueryError(
            "the text must end with the ) of MATCH_RECOGNIZE (",
            text=text,
            start=opening.end() - 1,
            end=opening.end(),
            hint="close it, and leave out what comes after it",
        )
    # Blanks instead of what is around the clauses, so that positions stay the same.
    inner = " " * opening.end() + text[opening.end() : last]
    try:
        return parse_row_pattern(inner)
    except QueryError as error:
        raise QueryError(error.message, text=text, start=error.start, end=error.end, hint=error.hint) from None


def is_stream(text: str) -> bool:
    """Whether a text is an expression of the algebra and not a query.

    >>> is_stream("-- rises\\nstream Stock a"), is_stream("STREAM: PATTERN SEQ(A a)")
    (True, False)
    """
    return _STREAM.match(text) is not None


def parse_stream(text: str) -> Pipeline:
    """The tree of an expression of the algebra.

    >>> [one.keyword for one in parse_stream("STREAM Stock a WHERE a.price > 3 NEXT Stock b").operations]
    ['WHERE', 'NEXT']
    """
    stream: Pipeline = next(_parsed(text, "stream", QUERY_CHARACTERS_MAX))
    return stream


def _parsed(text: str, start: str, characters_max: int) -> Iterator[Any]:
    """The trees of all statements in a text, one after another."""
    if not isinstance(text, str):
        raise QueryError(f"a query must be a str, got {type(text).__name__}")
    if len(text) > characters_max:
        raise QueryError(f"the text is too long: {len(text):,} characters, at most {characters_max:,}")
    forbidden = _FORBIDDEN.search(text)
    if forbidden:
        # Shown in characters that every terminal can print.
        text = _FORBIDDEN.sub("\ufffd", text)
        position = forbidden.start()
        raise QueryError(f"unexpected character U+{ord(forbidden[0]):04X}", text=text, start=position, end=position + 1)
    try:
        found = False
        for tree in _statements(text, start):
            check_depth(tree)
            found = True
            yield tree
        if not found:
            hint = _BEGINNINGS.get(start, BEGINNING)
            raise QueryError("the text is empty", hint=hint)
    except QueryError as error:
        if error.text is not None or error.start is None:
            raise
        raise QueryError(error.message, text=text, start=error.start, end=error.end, hint=error.hint) from None


def _statements(text: str, start: str) -> Iterator[Any]:
    from lark.exceptions import UnexpectedToken

    lexers = {"row_pattern": row_lexer.tokenize, "stream": stream_lexer.tokenize}
    tokens = lexers[start](text) if start in lexers else tokenize(text, queries=start == "query")
    for token in tokens:
        if token.type == END_OF_TEXT:
            return
        if token.type == "SEMICOLON":
            raise QueryError("there is no query before this ;", start=token.start, end=token.end)
        statement = _grammar(start).parse_interactive("", start=start)
        fed: list[Token] = []
        while True:
            ends = token.type == END_OF_TEXT or (token.type == "SEMICOLON" and start == "query")
            try:
                tree = statement.feed_token(replace(token, type=END_OF_TEXT) if ends else token)  # type: ignore[arg-type]
            except UnexpectedToken:
                _refuse(text, token, _accepted(fed, start), _still_open(fed), start)
            if ends:
                yield tree
                break
            fed.append(token)
            token = next(tokens)


@cache
def _grammar(start: str) -> Lark:
    # Lark and the builder are loaded when the first text is parsed, so that importing the language costs nothing.
    from ouzel.lang.tables import LANGUAGES, load_parser

    return load_parser(next(language for language in LANGUAGES if start in language.starts))


# ── What is said about a token that does not fit ───────────────────────────────────────────────────

_FIRST_WORDS = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(\w+\s+\w+)", re.DOTALL)
_MATCH_RECOGNIZE = re.compile(r"\s*MATCH_RECOGNIZE\s*\(", re.IGNORECASE)
_STREAM = re.compile(r"\ufeff?(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*STREAM\b(?!\s*:)", re.IGNORECASE | re.DOTALL)
_BEGINNINGS = {"row_pattern": "write PATTERN (A B+)", "stream": "an expression begins with STREAM Type"}
_OPENERS = frozenset({"LPAR", "LBRACE", "INDEX", "DEFAULT", "EQUIVALENCE", "OPEN", "STEP"})
_CLOSERS = frozenset({"RPAR", "RBRACE", "RSQB"})
_OPERANDS = frozenset(
    {"NAME", "NUMBER", "STRING", "PERCENT", "DURATION", "TEMPORAL", "PARAMETER", "TRUE", "FALSE", "NULL", "CASE"}
    | {"LPAR", "MINUS", "NOT", "EQUIVALENCE", "RUNNING", "FINAL"}
)
_CLAUSES = frozenset(CLAUSE_KEYWORDS.values()) | stream_lexer.KEYWORDS
# Keywords that users may have meant as the name of an attribute or a type.
_NAMELIKE = _CLAUSES | {"IN", "IS", "LIKE", "BETWEEN", "AS"}
_WORDS = {
    "NAME": "a name", "NUMBER": "a number", "STRING": "a string", "DURATION": "a duration", "PERCENT": "a percentage",
    "PARAMETER": "a parameter", "EQUAL": "=", "LPAR": "(", "RPAR": ")", "LBRACE": "{", "RBRACE": "}", "RSQB": "]",
    "COMMA": "a comma", "DOT": ".", "DOTDOT": "..", "PLUS": "+", "MINUS": "-", "STAR": "*", "EVENT_NAME": "a name",
    "OPEN": "(", "QUESTION": "?", "BAR": "|", "CARET": "^", "DOLLAR": "$", "EXCLUDE": "{-", "EXCLUDE_END": "-}",
    END_OF_TEXT: "the end",
}  # fmt: skip
# These can always follow an operand; naming them would hide the others.
_OPERATORS = frozenset(
    {"AND", "OR", "NOT", "EQUAL", "COMPARE", "PLUS", "MINUS", "STAR", "SLASH", "MOD", "IN", "BETWEEN", "LIKE", "IS"}
    | {"DOT", "LPAR", "CONCAT", "COLON"}
)


def _accepted(fed: list[Token], start: str) -> set[str]:
    """The tokens that could have followed. A second parser finds this, because the first one has already reduced rules
    for the wrong token.
    """
    parser = _grammar(start).parse_interactive("", start=start)
    for token in fed:
        parser.feed_token(token)  # type: ignore[arg-type]
    accepted: set[str] = parser.accepts()  # type: ignore[no-untyped-call]
    return accepted


def _still_open(fed: list[Token]) -> list[Token]:
    opened: list[Token] = []
    for token in fed:
        if token.type in _OPENERS:
            opened.append(token)
        elif token.type in _CLOSERS:
            opened.pop()
    return opened


def _refuse(text: str, token: Token, accepted: set[str], opened: list[Token], start: str) -> NoReturn:
    written = text[token.start : token.end]
    hint = None
    forgotten = bool(opened and accepted & _CLOSERS) and token.type in _CLAUSES | {END_OF_TEXT}
    if forgotten:  # Of all tokens that could follow, the bracket is missing.
        accepted = accepted & (_CLOSERS | {"COMMA", "NAME"})
    if token.type == END_OF_TEXT:
        message = "the text ends too early"
    elif (END_OF_TEXT in accepted or "QUERY_NAME" in accepted) and not opened:
        place = "" if "QUERY_NAME" in accepted else " after the end of the clause"
        message = f"unexpected {shorten(written)}{place}"
        keywords = stream_lexer.KEYWORDS if start == "stream" else CLAUSE_KEYWORDS
        near = get_close_matches(written.upper(), keywords, 1, 0.7)
        if near and written.upper() != near[0]:
            hint = f"did you mean {near[0]}?"
        elif near:
            hint = {"GROUP": "write GROUP BY", "EMIT": "write EMIT ON CHANGE"}.get(near[0])
    else:
        message = f"unexpected {shorten(written)}"
    expected = _expected(accepted)
    if expected:
        message += f"; expected {expected}"
    if opened and opened[-1].type == "INDEX":
        hint = "a Kleene variable is indexed as v[1], v[i], v[i-1], v[LEN], v[..i-1] or v[]"
    elif token.type == "COLON":
        hint = "contiguity(b: next) { … } comes directly after WHERE, in place of a strategy"
    elif "NAME" in accepted and token.type in _NAMELIKE and written.isalpha():
        hint = f'{written} is a keyword; a name is quoted: "{written}"'
    elif forgotten:
        opening = opened[-1].end - 1
        bracket, error = text[opening], QueryError("", text=text, start=opening)
        hint = f"the {bracket} of line {error.line}, column {error.column} is still open"
    before, after = text[: token.start], text[token.end :]
    if start == "row_pattern":
        hint = row_lexer.hint_for(before, written, accepted) or hint
    elif start == "stream":
        hint = stream_lexer.hint_for(before, written, accepted) or hint
    else:
        hint = hint_for(before, written, after, accepted) or hint
    if "QUERY_NAME" in accepted:
        hint = hint or BEGINNING
    raise QueryError(message, start=token.start, end=token.end, hint=hint)


def _expected(accepted: set[str]) -> str:
    words: list[str] = []
    accepted = accepted - {"INDEX", "DEFAULT"}  # An index is never what is missing.
    if accepted >= {"AS", "RPAR"}:  # Only a cast has AS inside its parentheses.
        accepted = accepted - {"AS"}
    if "QUERY_NAME" in accepted:  # at the start of a query, where clauses may come in any order but one is required
        return "PATTERN"
    if accepted >= {"STRING", "CASE", "NAME"}:
        words.append("an expression")
        accepted = accepted - _OPERANDS
    elif accepted >= {"AND", "PLUS"}:
        words.append("an operator")
        accepted = accepted - _OPERATORS
    if accepted >= {"WITHIN", "RETURN"} or accepted >= {"WHERE", "UNION"}:
        words.append("another clause")
        accepted = accepted - _CLAUSES
    if accepted >= {"NAME", "ANY"}:
        words.append("an event type")
        accepted = accepted - {"NAME", "ANY", "NOT", "SEQ", "OR", "AND", "LPAR"}
    if accepted >= {"PLUS", "STAR", "QUESTION"}:
        words.append("a quantifier")
        accepted = accepted - {"PLUS", "STAR", "QUESTION", "LBRACE"}
    rest = sorted({_WORDS.get(name, name.replace("_", " ")) for name in accepted})
    words += rest if len(rest) <= 8 else []
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
