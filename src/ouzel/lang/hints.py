"""Hints for syntax of SQL and of regular expressions: what to write instead."""

from __future__ import annotations

# A unit follows WITHIN and a number, so a clause of SQL after them is read as a unit.
CLAUSES = {
    "ORDER": "there is no ORDER BY: matches come in the order in which they complete",
    "LIMIT": "there is no LIMIT: cut the answer instead",
}
# In expressions.
_SYMBOLS = {"?": "a parameter is written :name", "|": "conditions are joined by OR"}

# What may follow the type of a component, its quantifier or its variable.
_AFTER_A_TYPE = frozenset({"QUESTION", "PLUS", "STAR", "LBRACE", "NAME", "INDEX", "COMMA", "RPAR", "BAR"})


def hint_for(before: str, written: str, accepted: set[str]) -> str | None:
    """The hint for an unexpected token, from the text before it and the tokens that the grammar accepts.

    >>> hint_for("PATTERN SEQ(A a) WHERE a.x = ", "?", {"NAME", "NUMBER", "STRING"})
    'a parameter is written :name'
    """
    in_pattern = accepted <= _AFTER_A_TYPE
    if in_pattern and written == "?" and before.rstrip()[-1:] in tuple("+*?}"):
        return "there is one way to repeat: which events a repetition takes is decided by the strategy"
    if in_pattern and written in ("&", "&&", "AND", "OR", "||"):
        return "write AND(A a, B b) for both in any order, OR(A a, B b) for one of them"
    if not in_pattern and written in _SYMBOLS:
        return _SYMBOLS[written]
    last = before.split()[-1].upper() if before.split() else ""
    if last in ("IS", "NOT") and "NULL" in accepted and written.upper() in ("TRUE", "FALSE"):
        return "there is no IS TRUE; write v.ok, NOT v.ok or v.ok = TRUE, a null satisfies none of them"
    if last == "RETURN" and written == "*":
        return "leave RETURN out: a match then has all its events with all their attributes"
    return None
