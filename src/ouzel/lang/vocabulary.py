"""The words of the language: what the lexer recognises and the formatter must quote."""

from __future__ import annotations

import re

# Each begins a clause. GROUP and EMIT count only before BY and ON CHANGE.
CLAUSE_KEYWORDS = {
    "PATTERN": "PATTERN",
    "EVENT": "PATTERN",
    "SEQUENCE": "SEQUENCE",
    "FROM": "FROM",
    "WHERE": "WHERE",
    "GROUP": "GROUP_BY",
    "AGG": "AGG",
    "HAVING": "HAVING",
    "WITHIN": "WITHIN",
    "THRESHOLD": "THRESHOLD",
    "OUTPUT": "OUTPUT",
    "EMIT": "EMIT_ON_CHANGE",
    "RETURN": "RETURN",
    "INTO": "INTO",
}
OPERATOR_KEYWORDS = frozenset(
    {"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE", "CASE", "AS"}
)
# Keywords only between CASE and END, and in a pattern.
CASE_KEYWORDS = frozenset({"WHEN", "THEN", "ELSE", "END"})
PATTERN_KEYWORDS = frozenset({"SEQ", "ANY"})
# Names that the formatter quotes, unless a dot, an AS or a `[` before them makes every word a name.
QUOTED_WORDS = frozenset(CLAUSE_KEYWORDS) | OPERATOR_KEYWORDS | CASE_KEYWORDS | PATTERN_KEYWORDS

# A name that RETURN and parentheses follow is that of an event, but for these: they are what they are everywhere else.
AGGREGATE_WORDS = frozenset({"count", "sum", "avg", "min", "max", "first", "last"})

UNIT_OF_WORD = {
    word: unit
    for unit, words in {
        "us": "us microsecond microseconds",
        "ms": "ms millisecond milliseconds",
        "s": "s sec secs second seconds",
        "min": "min mins minute minutes",
        "h": "h hr hrs hour hours",
        "days": "d day days",
        "weeks": "w week weeks",
    }.items()
    for word in words.split()
}
UNITS_HINT = "the units are us, ms, s, min, h, days and weeks"

SYMBOLS = {
    "∧": "AND", "∨": "OR", "¬": "NOT", "&&": "AND", "||": "OR", "~": "NOT", "!": "NOT",
    "==": "EQUAL", "=": "EQUAL", "≠": "COMPARE", "!=": "COMPARE", "<>": "COMPARE", "≤": "COMPARE", "<=": "COMPARE",
    "≥": "COMPARE", ">=": "COMPARE", "<": "COMPARE", ">": "COMPARE",
    "(": "LPAR", ")": "RPAR", "{": "LBRACE", "}": "RBRACE", "[": "LSQB", "]": "RSQB",
    ",": "COMMA", "..": "DOTDOT", ".": "DOT", "+": "PLUS", "-": "MINUS", "−": "MINUS",
    "*": "STAR", "×": "STAR", "/": "SLASH", "%": "MOD", ";": "SEMICOLON",
}  # fmt: skip
# What a symbol means where its look differs from what the tree holds.
OPERATOR_OF_SYMBOL = {"==": "=", "≠": "!=", "<>": "!=", "≤": "<=", "≥": ">=", "−": "-", "×": "*"}

NAME = re.compile(r"[^\W\d]\w*")
TYPE_NAME = re.compile(r"[^\W\d]\w*(?:-\w+)*")
