"""The tokens of the algebra's text. They are those of expressions, and the keywords of its clauses.

A word is such a keyword only after the end of an operand, where no expression can go on. So attributes may be called
`next`, `first` or `step`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from ouzel.lang.lexer import Lexer, Token
from ouzel.lang.vocabulary import CLAUSE_KEYWORDS

KEYWORDS = frozenset(
    {"WHERE", "PROJECT", "RENAME", "EXTEND", "UNION", "NEXT", "FOLD", "ON", "FIRST", "WHILE", "STEP", "START"}
)
# After these comes a stream.
_BEFORE_STREAMS = frozenset({"STREAM", "UNION", "NEXT", "FOLD", "OPEN"})
_BEFORE_KEYWORDS = frozenset(
    {"NAME", "NUMBER", "STRING", "PERCENT", "DURATION", "TEMPORAL", "PARAMETER", "TRUE", "FALSE", "NULL", "END"}
    | {"RPAR", "RSQB", "ANY", "STEP"}
)


def tokenize(text: str) -> Iterator[Token]:
    """The tokens of an expression of the algebra.

    >>> [token.type for token in tokenize("STREAM Stock a NEXT (Stock b) ON next > 3")]
    ['STREAM', 'NAME', 'NAME', 'NEXT', 'OPEN', 'NAME', 'NAME', 'RPAR', 'ON', 'NAME', 'COMPARE', 'NUMBER', '$END']
    """
    return _StreamLexer(text).tokens()


class _StreamLexer(Lexer):
    def __init__(self, text: str) -> None:
        super().__init__(text, queries=False)

    def _word(self) -> Token:
        token = super()._word()
        if token.type == "STEP":
            opening = self._after_blank(token.end)
            self._push("LPAR", opening)
            token.end = opening + 1
        return token

    def _keyword(self, word: str, end: int) -> str | None:
        upper = word.upper() if word.isascii() else word
        if upper == "STREAM" and not self.previous:
            return upper
        if upper == "ANY" and self._type_expected():
            return upper
        if upper == "STEP" and self._peek(end) != "(":
            return None
        if upper in KEYWORDS and self.previous in _BEFORE_KEYWORDS:
            return upper
        return None if upper in CLAUSE_KEYWORDS or self._type_expected() else super()._keyword(word, end)

    def _number(self) -> Token:
        # A keyword after the number is no unit.
        before, self.previous = self.previous, "NUMBER"
        try:
            return super()._number()
        finally:
            self.previous = before

    def _symbol(self) -> Token | None:
        start = self.position
        if self.text[start] == "(" and self._type_expected():
            self._push("LPAR", start)
            return Token("OPEN", "(", start, start + 1)
        return super()._symbol()

    def _clause_at(self, position: int) -> None:
        return None

    def _type_expected(self) -> bool:
        return self.previous in _BEFORE_STREAMS


# ── Hints ──────────────────────────────────────────────────────────────────────────────────────────

_INSTEAD = {
    "SELECT": "write WHERE for a condition, PROJECT for the attributes to keep",
    "FILTER": "write WHERE for a condition",
    "FROM": "an expression begins with STREAM Type",
    "RETURN": "write PROJECT for the attributes to keep, RENAME and EXTEND for others",
    "WITHIN": "write DUR <= 10 min in ON",
    "PUBLISH": "leave PUBLISH out; an expression has no name",
    ";": "leave out the ;",
}


def hint_for(before: str, written: str, accepted: set[str]) -> str | None:
    """The hint for an unexpected token of the algebra's text.

    >>> hint_for("STREAM Stock ", "AS", {"NAME", "WHERE"})
    'write the alias after the type: Stock a'
    """
    word = written.upper()
    if word == "AS" and "NAME" in accepted:
        last = re.search(r"([^\s()]+)\s*$", before)
        return f"write the alias after the type: {last[1] if last else '(…)'} a"
    if word == "STEP":
        return "write WHILE for a condition, STEP (…) for clauses"
    # A word that no clause begins with is read as an alias, and the token after it does not fit.
    last = re.search(r"(\w+)\s*$", before) if "WHERE" in accepted and "NAME" not in accepted else None
    for one in (word, last[1].upper() if last else ""):
        if one in _INSTEAD:
            return _INSTEAD[one]
    near = get_close_matches(last[1].upper(), KEYWORDS, 1, 0.7) if last else []
    return f"did you mean {near[0]}?" if near else None
