"""Hints for syntax of SQL, of regular expressions and of other systems: what to write instead."""

from __future__ import annotations

import re

BEGINNING = "a query begins with PATTERN SEQ(Type variable, …)"
_WRITTEN_STRATEGY = "a strategy is written WHERE skip_till_next_match { … }, with all conditions in the braces"
_CLAUSES = {
    "ORDER": "there is no ORDER BY: matches come in the order in which they complete",
    "LIMIT": "there is no LIMIT: cut the answer instead",
    "STRATEGY": _WRITTEN_STRATEGY,
}
# A unit follows WITHIN and a number, so a clause after them is read as a unit.
UNITS = {
    **_CLAUSES,
    "M": "write min for minutes; the units are us, ms, s, min, h, days and weeks",
    "MONTH": "months differ in length; write 30 days",
    "MONTHS": "months differ in length; write 30 days",
}
_PARAMETER = "a parameter is written :name"
_COMMENT = "a comment begins with --"
_SEQUENCE = "write a sequence as SEQ(A a, B+ b[], C c)"
# Characters that no token begins with.
CHARACTERS = {
    **dict.fromkeys("$@", _PARAMETER),
    "#": _COMMENT,
    **dict.fromkeys("‘’“”´„«»", "strings are in straight quotes: 'text'"),
}
# In expressions.
_SYMBOLS = {"?": _PARAMETER, "|": "conditions are joined by OR", "{": _PARAMETER}
_OPERATORS = {
    "ILIKE": "write lower(v.name) LIKE 'text%'",
    "RLIKE": "there are no regular expressions; use LIKE, startswith, endswith or contains",
    "REGEXP": "there are no regular expressions; use LIKE, startswith, endswith or contains",
}

# What may follow the type of a component, its quantifier or its variable.
_AFTER_A_TYPE = frozenset({"QUESTION", "PLUS", "STAR", "LBRACE", "NAME", "INDEX", "COMMA", "RPAR", "BAR", "WITHOUT"})
_ONE_COMPONENT = re.compile(r"\bPATTERN\s+\w+[+*?]?(\s+\w+(\[\])?)?\s*$", re.I)
_STRATEGY = re.compile(r"skip_till|contiguity", re.I)


def strategy_hint(name: str) -> str | None:
    """The hint for a name that looks like a strategy in a place where none can be.

    >>> strategy_hint("skip_till_next")
    'a strategy is written WHERE skip_till_next_match { … }, with all conditions in the braces'
    """
    return _WRITTEN_STRATEGY if _STRATEGY.search(name) else None


def hint_for(before: str, written: str, after: str, accepted: set[str]) -> str | None:
    """The hint for an unexpected token, from the text around it and the tokens that the grammar accepts.

    >>> hint_for("PATTERN SEQ(A a) WHERE a.x = ", "?", "", {"NAME", "NUMBER", "STRING"})
    'a parameter is written :name'
    """
    if "QUERY_NAME" in accepted:
        return _for_another_language(written + after)
    if written == "/" and after.startswith("/"):
        return _COMMENT
    if written.upper() == "WITHOUT":
        return "WITHOUT T v comes after a component of the pattern, or after SEQ(…)"
    in_pattern = accepted <= _AFTER_A_TYPE
    if in_pattern and written == "?" and before.rstrip()[-1:] in tuple("+*?}"):
        return "there is one way to repeat: which events a repetition takes is decided by the strategy"
    if in_pattern and written in ("&", "&&", "AND", "OR", "||"):
        return "write AND(A a, B b) for both in any order, OR(A a, B b) for one of them"
    if (in_pattern and written in ("+", "*")) or (written in (",", "-") and _ONE_COMPONENT.search(before)):
        return _SEQUENCE
    if not in_pattern and written in _SYMBOLS:
        return _SYMBOLS[written]
    last = before.split()[-1].upper() if before.split() else ""
    if last in ("IS", "NOT") and "NULL" in accepted and written.upper() in ("TRUE", "FALSE"):
        return "there is no IS TRUE; write v.ok, NOT v.ok or v.ok = TRUE, a null satisfies none of them"
    if last == "RETURN" and written == "*":
        return "leave RETURN out: a match then has all its events with all their attributes"
    if last == "WITHIN" and written.startswith("'"):
        return "write the duration without quotes, such as 5 min"
    if last == "IN" and written == "[":
        return "write a list in parentheses: IN (1, 2)"
    word = written.upper()
    return _OPERATORS.get(word) or _CLAUSES.get(word) or strategy_hint(written)


def _for_another_language(text: str) -> str | None:
    """The hint for a text that does not begin as a query."""
    if re.search(r"\bMATCH_RECOGNIZE\b", text, re.I):
        return "ouzel.sql runs SQL with MATCH_RECOGNIZE"
    if re.fullmatch(r"[\w./\\-]+\.\w+", text.strip()):
        return "give the text of the query; pathlib.Path(…).read_text() reads it from a file"
    return None
