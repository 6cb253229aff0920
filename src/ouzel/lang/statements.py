"""SQL statements that contain row patterns. They are divided into tokens, and not fully parsed.

Literals, quoted names and comments are skipped. A name replaces each part that Ouzel answers, such as `ticks
MATCH_RECOGNIZE (…)`. Another SQL engine runs the rest of the statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from ouzel.errors import QueryError

CLAUSE = "match_recognize"
_PAIRS = {"(": 1, ")": -1}
# A table in front of MATCH_RECOGNIZE begins behind one of these.
_BEFORE_TABLE = ("from", "join", ",", "lateral")


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a statement. `kind` is space, string, quoted, placeholder, word, number, arrow or other. It begins at
    character `at`.
    """

    kind: str
    text: str
    at: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words


@dataclass(frozen=True, slots=True)
class Clause:
    """`table MATCH_RECOGNIZE (text)` in a statement.

    `table` is the table before the clause, with its alias. `with_lists` has the WITH lists that this table may read,
    the outermost first. `text` begins at character `at` of `statement`.
    """

    table: tuple[Token, ...]
    with_lists: tuple[tuple[Token, ...], ...]
    text: str
    statement: str
    at: int

    @property
    def source(self) -> tuple[Token, ...]:
        """A statement that returns the rows of the table."""
        select = Token("word", "SELECT * FROM ", self.at)
        found = (select, *self.table)
        for one in reversed(self.with_lists):
            found = (*one, Token("space", "\n", self.at), *found)
            if one is not self.with_lists[0]:
                found = (select, Token("other", "(", self.at), *found, Token("other", ")", self.at))
        return found

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Give errors about the text of the clause their place in the statement."""
        try:
            yield
        except QueryError as error:
            raise (error.within(self.statement, self.at) if error.text == self.text else error) from None


# ── Tokens ─────────────────────────────────────────────────────────────────────────────────────────


@cache
def _token_pattern(backslashes: bool) -> re.Pattern[str]:
    escape, plain = (r"\\.|", r"\\") if backslashes else ("", "")
    prefix = "[rR]?" if backslashes else ""
    strings = rf"{prefix}(?:'(?:''|{escape}[^'{plain}])*'|\"(?:\"\"|{escape}[^\"{plain}])*\")"
    if not backslashes:
        strings += r"|[eE]'(?:''|\\.|[^'\\])*'|(?P<dollar>\$\w*\$).*?(?P=dollar)"
    # Comments nest, so their ends are found by counting.
    return re.compile(
        rf"""(?P<space>\s+|--[^\n]*)
          | (?P<comment>/\*)
          | (?P<string>{strings})
          | (?P<quoted>`(?:``|[^`])*`)
          | (?P<placeholder>\{{\s*\w+\s*\}})
          | (?P<word>[^\W\d]\w*)
          | (?P<number>\d+(?!\w))
          | (?P<arrow>=>)
          | (?P<other>.)""",
        re.VERBOSE | re.DOTALL,
    )


def tokens(statement: str, *, backslashes: bool) -> Iterator[Token]:
    """The tokens of a statement. With `backslashes`, strings have backslash escapes, as in Spark.

    >>> [token.kind for token in tokens("SELECT 'a''b' -- c", backslashes=False)]
    ['word', 'space', 'string', 'space', 'space']
    """
    at = 0
    pattern = _token_pattern(backslashes)
    while at < len(statement):
        found = pattern.match(statement, at)
        assert found is not None
        kind, end = next(name for name, text in found.groupdict().items() if text is not None), found.end()
        if kind == "comment":
            kind, end = "space", _end_of_comment(statement, at)
        yield Token(kind, statement[at:end], at)
        at = end


def _end_of_comment(statement: str, at: int) -> int:
    depth = 0
    for mark in re.finditer(r"/\*|\*/", statement[at:]):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return at + mark.end()
    return len(statement)


def after_spaces(found: list[Token], place: int) -> int:
    """The index of the next token that is not a space."""
    while place < len(found) and found[place].kind == "space":
        place += 1
    return place


def closing(found: list[Token], opening: int) -> int | None:
    """The index of the parenthesis that closes the one at index `opening`; None if there is none."""
    depth = 0
    for place in range(opening, len(found)):
        if found[place].kind == "other":
            depth += _PAIRS.get(found[place].text, 0)
        if depth == 0:
            return place
    return None


def called(found: list[Token], place: int, name: str) -> tuple[int, int] | None:
    """The indexes of the parentheses of `name (…)` at an index; None if that is not there."""
    if not found[place].is_word(name) or (place and found[place - 1].text == "."):
        return None  # A name in a schema is another name.
    opening = after_spaces(found, place + 1)
    if opening == len(found) or found[opening].text != "(":
        return None
    end = closing(found, opening)
    if end is None:
        statement = "".join(token.text for token in found)
        at = len("".join(token.text for token in found[:opening]))
        raise QueryError(f"the parenthesis of {name} is not closed", text=statement, start=at, end=at + 1)
    return opening, end


def is_statement(text: str) -> bool:
    """Whether a text is an SQL statement, and not a query or a clause.

    >>> is_statement("-- dips\\nSELECT * FROM t"), is_statement("PATTERN SEQ(A a, B b)")
    (True, False)
    """
    first = next((t for t in tokens(text, backslashes=False) if t.kind != "space" and t.text != "("), None)
    return first is not None and first.is_word("select", "with", "from", "values")


# ── Clauses ────────────────────────────────────────────────────────────────────────────────────────


def clauses_of(statement: str) -> list[Clause]:
    """The clauses of a statement, from left to right.

    >>> [clause.text for clause in clauses_of("SELECT * FROM a MATCH_RECOGNIZE (PATTERN (X))")]
    ['PATTERN (X)']
    """
    found: list[Clause] = []

    def kept(clause: Clause) -> Token:
        found.append(clause)
        return Token("word", f"clause_{len(found)}", clause.at)

    cut_clauses(statement, list(tokens(statement, backslashes=False)), kept)
    return found


def cut_clauses(statement: str, found: list[Token], answer: Callable[[Clause], Token]) -> list[Token]:
    """The tokens of a statement, with `answer(clause)` in place of each `table MATCH_RECOGNIZE (…)`.

    Clauses are answered from left to right. So the table of a clause may contain another clause, or a name in WITH that
    is made from one.

    >>> cut = cut_clauses("", list(tokens("FROM a t MATCH_RECOGNIZE (PATTERN (X)) m", backslashes=False)),
    ...                   lambda clause: Token("word", f"<{clause.text}>", 0))
    >>> "".join(token.text for token in cut)
    'FROM <PATTERN (X)> m'
    """
    found = list(found)
    place = 0
    while place < len(found):
        parentheses = called(found, place, CLAUSE)
        if parentheses is None:
            place += 1
            continue
        opening, end = parentheses
        begin = _table_begin(found, place)
        table = tuple(found[begin:place])
        if all(token.kind == "space" for token in table):
            at = found[place].at
            raise QueryError(
                "MATCH_RECOGNIZE needs a table before it",
                text=statement or None,
                start=at,
                end=at + len(CLAUSE),
                hint="write FROM ticks MATCH_RECOGNIZE (…)",
            )
        text = "".join(token.text for token in found[opening + 1 : end])
        clause = Clause(table, _with_lists(found, begin), text, statement, found[opening].at + 1)
        answered = answer(clause)
        # The host counts lines as the user does.
        lines = sum(token.text.count("\n") for token in found[begin : end + 1])
        begin = after_spaces(found, begin)
        found[begin : end + 1] = [answered, Token("space", "\n" * lines or " ", found[end].at)]
        place = begin + 1
    return found


def _table_begin(found: list[Token], place: int) -> int:
    """The index at which the table before an index begins."""
    depth = 0
    for at in range(place - 1, -1, -1):
        token = found[at]
        if token.kind == "other":
            depth -= _PAIRS.get(token.text, 0)
        if depth < 0:
            return at + 1
        if depth == 0 and (token.is_word(*_BEFORE_TABLE) or token.text == ","):
            return at + 1
    return 0


def _with_lists(found: list[Token], place: int) -> tuple[tuple[Token, ...], ...]:
    """The WITH lists that can be read at an index, the outermost first. Of a list that contains the index, only the
    part before it.
    """
    opened = [-1]  # the parentheses around the place
    for at in range(place):
        if found[at].kind == "other" and found[at].text == "(":
            opened.append(at)
        elif found[at].kind == "other" and found[at].text == ")" and len(opened) > 1:
            opened.pop()
    lists = (_with_list(found, after_spaces(found, outer + 1), place) for outer in opened)
    return tuple(one for one in lists if one)


def _with_list(found: list[Token], begin: int, place: int) -> tuple[Token, ...]:
    if begin >= place or not found[begin].is_word("with"):
        return ()
    read = 0  # behind the last definition that is complete before the place
    at = begin
    while at < place:
        if not found[at].is_word("as", "materialized") or found[after_spaces(found, at + 1)].text != "(":
            at += 1
            continue
        end = closing(found, after_spaces(found, at + 1))
        if end is None or end > place:
            break
        read = end + 1
        at = after_spaces(found, read)
        if at == len(found) or found[at].text != ",":
            break
    return tuple(found[begin:read])
