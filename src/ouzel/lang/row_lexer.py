"""The tokens of a row pattern, the text in the parentheses of MATCH_RECOGNIZE.

They are the tokens of queries, with other keywords for clauses, the symbols of PATTERN, and `||`, which joins texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ouzel.lang.lexer import Lexer, Token
from ouzel.lang.vocabulary import CASE_KEYWORDS, OPERATOR_KEYWORDS

# Keywords of several words, and of one word where no expression can go on.
_CLAUSES = {
    "PARTITION BY": "PARTITION_BY",
    "ORDER BY": "ORDER_BY",
    "MEASURES": "MEASURES",
    "ONE ROW PER MATCH": "ONE_ROW_PER_MATCH",
    "ALL ROWS PER MATCH": "ALL_ROWS_PER_MATCH",
    "AFTER MATCH SKIP": "AFTER_MATCH_SKIP",
    "PATTERN": "PATTERN",
    "WITHIN": "WITHIN",
    "SUBSET": "SUBSET",
    "DEFINE": "DEFINE",
}
_EMPTY_MATCHES = {
    "SHOW EMPTY MATCHES": "SHOW_EMPTY_MATCHES",
    "OMIT EMPTY MATCHES": "OMIT_EMPTY_MATCHES",
    "WITH UNMATCHED ROWS": "WITH_UNMATCHED_ROWS",
}
# Keywords within one clause.
_WITHIN_CLAUSE = {
    "ORDER_BY": {"ASC": "ASC", "DESC": "DESC", "NULLS FIRST": "NULLS_FIRST", "NULLS LAST": "NULLS_LAST"},
    "ONE_ROW_PER_MATCH": _EMPTY_MATCHES,
    "ALL_ROWS_PER_MATCH": _EMPTY_MATCHES,
    "AFTER_MATCH_SKIP": {
        "PAST LAST ROW": "PAST_LAST_ROW",
        "TO NEXT ROW": "TO_NEXT_ROW",
        "TO FIRST": "TO_FIRST",
        "TO LAST": "TO_LAST",
        "TO": "TO",
    },
}


def _phrases(words: dict[str, str]) -> dict[str, re.Pattern[str]]:
    """A regular expression for each keyword. The longest keyword comes first."""
    blank = r"(?:\s|--[^\n]*\n|/\*.*?\*/)+"
    return {
        terminal: re.compile(blank.join(written.split()) + r"(?!\w)", re.IGNORECASE | re.DOTALL)
        for written, terminal in sorted(words.items(), key=lambda item: -len(item[0]))
    }


_CLAUSE_PHRASES = _phrases(_CLAUSES)
_PHRASES_WITHIN = {clause: _phrases(words) for clause, words in _WITHIN_CLAUSE.items()}
_PATTERN_SYMBOLS = {
    "{-": "EXCLUDE", "-}": "EXCLUDE_END", "{": "LBRACE", "}": "RBRACE", "(": "LPAR", ")": "RPAR", ",": "COMMA",
    "|": "BAR", "?": "QUESTION", "*": "STAR", "+": "PLUS", "^": "CARET", "$": "DOLLAR", ";": "SEMICOLON",
}  # fmt: skip
_CALL = re.compile(r"[^\W\d]\w*\s*\(")


def is_clause(words: str) -> bool:
    """Whether words begin a clause that only row patterns have.

    >>> is_clause("order  by"), is_clause("MEASURES x"), is_clause("WITHIN 5")
    (True, True, False)
    """
    first, second = words.upper().split()
    begins = {written.partition(" ")[0]: written.split()[1:2] for written in _CLAUSES}
    return first in begins and first not in ("PATTERN", "WITHIN") and begins[first] in ([], [second])


def tokenize(text: str) -> Iterator[Token]:
    """The tokens of a row pattern.

    >>> [token.type for token in tokenize("PATTERN (A+?) DEFINE A AS x > 0")][:6]
    ['PATTERN', 'LPAR', 'NAME', 'PLUS', 'QUESTION', 'RPAR']
    """
    return _RowLexer(text).tokens()


class _RowLexer(Lexer):
    def __init__(self, text: str) -> None:
        super().__init__(text, queries=False)

    def _word(self) -> Token:
        start = self.position
        found = self._phrase(start)
        if found is not None:
            terminal, end = found
            if terminal in _CLAUSES.values():
                self.clause = terminal
            return Token(terminal, self.text[start:end], start, end)
        if self.previous == "AS" and self.clause == "DEFINE" and not self.open:
            self.previous = "DEFINED"  # A condition follows, not a name.
        token = super()._word()
        in_pattern = self.clause == "PATTERN" and token.type == "NAME" and not token.quoted
        if in_pattern and token.value.upper() == "PERMUTE" and self._peek(token.end) == "(":
            token.type = "PERMUTE"
        return token

    def _phrase(self, position: int) -> tuple[str, int] | None:
        """(keyword, end) of the clause that begins here; None if none does. Inside brackets no clause begins."""
        if self.open or self.previous in ("DOT", "AS"):
            return None
        for phrases in (_PHRASES_WITHIN.get(self.clause, {}), _CLAUSE_PHRASES):
            for terminal, pattern in phrases.items():
                match = pattern.match(self.text, position)
                if match is not None:
                    return terminal, match.end()
        return None

    def _keyword(self, word: str, end: int) -> str | None:
        if not word.isascii() or self.clause == "PATTERN":
            return None
        upper = word.upper()
        found = self._phrase(end - len(word))
        if found is not None:
            return found[0]
        if upper in OPERATOR_KEYWORDS:
            return upper
        if self._is_operator(upper, end):
            return "LIKE"
        if upper == "DISTINCT" and self.previous == "LPAR" and self._operand_at(end):
            return upper
        if upper in CASE_KEYWORDS:
            return upper if self._inside("CASE") else None
        if upper in ("RUNNING", "FINAL") and _CALL.match(self.text, self._after_blank(end)):
            return upper
        if upper in ("DATE", "TIMESTAMP", "ESCAPE") and self._peek(end) == "'":
            return upper if upper == "ESCAPE" else "TEMPORAL"
        return None

    def _symbol(self) -> Token | None:
        start = self.position
        if self.clause == "PATTERN" and (self.open or self.previous == "PATTERN"):
            for width in (2, 1):
                symbol = self.text[start : start + width]
                kind = _PATTERN_SYMBOLS.get(symbol)
                if kind is not None:
                    if kind in ("LPAR", "LBRACE"):
                        self._push(kind, start)
                    elif kind in ("RPAR", "RBRACE"):
                        self._pop(kind, start, start + 1)
                    return Token(kind, symbol, start, start + width)
            raise self._unknown_character(start)
        if self.text.startswith("||", start):
            return Token("CONCAT", "||", start, start + 2)
        return super()._symbol()

    def _type_expected(self) -> bool:
        return False


# ── Hints ──────────────────────────────────────────────────────────────────────────────────────────

# The words before a token, the token, and what to write instead.
_IN_ROW_PATTERNS = [
    (re.compile(before, re.IGNORECASE | re.DOTALL), re.compile(written, re.IGNORECASE | re.DOTALL), hint)
    for before, written, hint in (
        ("", "FILTER", "aggregates of a row pattern take no FILTER; write SUM(CASE WHEN … THEN x END)"),
        ("", "IGNORE|RESPECT", "FIRST, LAST, PREV and NEXT read rows, also those with null; leave out IGNORE NULLS"),
        (r"\bCAST\s*\([^()]*\sAS\s+\w+$", r"\(", "a type has no length here; write VARCHAR or DOUBLE"),
        (r"\bIS(\s+NOT)?$", "TRUE|FALSE", "a condition that is null does not hold; write x or NOT x"),
        (r"\bIS(\s+NOT)?$", "DISTINCT", "x IS NOT DISTINCT FROM y means x = y OR x IS NULL AND y IS NULL"),
        (r"\bPATTERN\s*\(.*\)$", r"[+*?{]", "a quantifier of the whole pattern needs parentheses: PATTERN ((A B)+)"),
        (r"\bDEFINE\b.*\bAND\s+\w+$", "AS", "definitions are separated by commas: DEFINE A AS x > 0, B AS x < 0"),
        ("", "OVER", "a row pattern has no window functions; its aggregates range over the rows of the match"),
        (r"\bARRAY_AGG\s*\([^()]*$", "ORDER", "ARRAY_AGG has the values in the order of the rows; leave out ORDER BY"),
        (r"\b(FINAL|RUNNING)$", "", "FINAL and RUNNING belong before a call; write FINAL LAST(x)"),
        (r"(?<=[<>=])$", r"\?", "a parameter is written :name"),
        ("", "SKIP", "write AFTER MATCH SKIP …"),
        ("", "WITH|SHOW|OMIT", "write SHOW EMPTY MATCHES, OMIT EMPTY MATCHES or WITH UNMATCHED ROWS"),
        (r"\bEXTRACT\s*\(\s*\w+$", "FROM", "there is no EXTRACT; write year(t), month(t), day(t), hour(t) …"),
        (r"\bSELECT$", "", "a row pattern has no subqueries; join the value to the table before"),
        ("", "SEEK|INITIAL", "SEEK and INITIAL belong to row patterns in windows, which are not supported"),
        ("", "ONE|ALL", "write ONE ROW PER MATCH or ALL ROWS PER MATCH"),
        ("", ";", "leave out the ;"),
        (r"[+*?}]$", r"[+*?{]", "put the repetition into parentheses: (A+)*"),
    )
]


def hint_for(before: str, written: str, accepted: set[str]) -> str | None:
    """The hint for an unexpected token of a row pattern.

    >>> hint_for("PATTERN (A)", ";", {"DEFINE"})
    'leave out the ;'
    """
    if written == "," and "EXCLUDE" in accepted:
        return "write A B for B directly after A, A | B for one of them"
    for words, token, hint in _IN_ROW_PATTERNS:
        if words.search(before.rstrip()) and (not token.pattern or token.fullmatch(written)):
            return hint
    if "AS" in accepted:
        return "write DEFINE A AS x > 0" if accepted == {"AS"} else "name the measure: LAST(x) AS y"
    return None
