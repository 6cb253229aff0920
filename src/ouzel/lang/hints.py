"""Hints for syntax of SQL and of regular expressions: what to write instead."""

from __future__ import annotations

# A unit follows WITHIN and a number, so a clause of SQL after them is read as a unit.
CLAUSES = {
    "ORDER": "there is no ORDER BY: matches come in the order in which they complete",
    "LIMIT": "there is no LIMIT: cut the answer instead",
}
CHARACTERS = {
    "?": "a parameter is written :name; there is no component that may be left out",
    "|": "alternatives are written ANY(A, B) v, and conditions are joined by OR",
}
# After the type of a component.
_QUANTIFIERS = {
    "*": "there is no form for none or more events; T+ v[] means one or more",
    "{": "write T+ v[], and how many of them in WHERE: v.LEN = 3",
}


def hint_for(before: str, written: str, accepted: set[str]) -> str | None:
    """The hint for an unexpected token, from the text before it and the tokens that the grammar accepts.

    >>> hint_for("PATTERN SEQ(A", "*", {"PLUS", "NAME", "COMMA", "RPAR"})
    'there is no form for none or more events; T+ v[] means one or more'
    """
    if {"PLUS", "NAME"} <= accepted and "STAR" not in accepted and written in _QUANTIFIERS:
        return _QUANTIFIERS[written]
    last = before.split()[-1].upper() if before.split() else ""
    if last in ("IS", "NOT") and "NULL" in accepted and written.upper() in ("TRUE", "FALSE"):
        return "there is no IS TRUE; write v.ok, NOT v.ok or v.ok = TRUE, a null satisfies none of them"
    if last == "RETURN" and written == "*":
        return "leave RETURN out: a match then has all its events with all their attributes"
    return None
