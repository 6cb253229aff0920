"""The words of the language, which the lexer recognises and the formatter must quote."""

from __future__ import annotations

import re

# Each begins a clause. GROUP and EMIT are keywords only before BY and ON CHANGE.
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
# Written like LIKE, between two operands; each is also a function.
LIKE_WORDS = {"LIKE": "like", "ILIKE": "ilike", "RLIKE": "rlike", "REGEXP": "rlike"}
# Keywords only between CASE and END, and in a pattern.
CASE_KEYWORDS = frozenset({"WHEN", "THEN", "ELSE", "END"})
PATTERN_KEYWORDS = frozenset({"SEQ", "ANY", "WITHOUT"})
# Keywords only after IS.
PRESENCE_WORDS = frozenset({"ABSENT", "PRESENT"})
# Names that the formatter quotes, unless a dot, AS or `[` comes before them; there every word is a name.
QUOTED_WORDS = frozenset(CLAUSE_KEYWORDS) | frozenset(LIKE_WORDS) | OPERATOR_KEYWORDS | CASE_KEYWORDS | PATTERN_KEYWORDS

# A name after RETURN and before parentheses names the event. These words are exceptions: they keep their usual meaning.
AGGREGATE_WORDS = frozenset({"count", "sum", "avg", "min", "max", "first", "last", "stddev"})

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
NANOSECONDS_OF_UNIT = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3_600 * 10**9,
    "days": 86_400 * 10**9,
    "weeks": 7 * 86_400 * 10**9,
}
UNITS_HINT = "the units are us, ms, s, min, h, days and weeks"

SYMBOLS = {
    "∧": "AND", "∨": "OR", "¬": "NOT", "&&": "AND", "||": "OR", "~": "NOT", "!": "NOT",
    "==": "EQUAL", "=": "EQUAL", "≠": "COMPARE", "!=": "COMPARE", "<>": "COMPARE", "≤": "COMPARE", "<=": "COMPARE",
    "≥": "COMPARE", ">=": "COMPARE", "<": "COMPARE", ">": "COMPARE",
    "(": "LPAR", ")": "RPAR", "{": "LBRACE", "}": "RBRACE", "[": "LSQB", "]": "RSQB",
    ",": "COMMA", "..": "DOTDOT", ".": "DOT", "+": "PLUS", "-": "MINUS", "−": "MINUS",
    "->": "ARROW", "*": "STAR", "×": "STAR", "/": "SLASH", "%": "MOD", ";": "SEMICOLON", "?": "QUESTION", "|": "BAR",
}  # fmt: skip
# Symbols whose spelling differs from the tree.
OPERATOR_OF_SYMBOL = {"==": "=", "≠": "!=", "<>": "!=", "≤": "<=", "≥": ">=", "−": "-", "×": "*"}

NAME = re.compile(r"[^\W\d]\w*")
TYPE_NAME = re.compile(r"[^\W\d]\w*(?:-\w+)*")
