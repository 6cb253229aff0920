"""Hints for syntax from SQL, regular expressions and other systems: what to write in Ouzel."""

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
    "&": "conditions are joined by AND; AND(A a, B b) is a pattern of both in any order",
    **dict.fromkeys("‘’“”´„«»", "strings are in straight quotes: 'text'"),
}
# In expressions.
_SYMBOLS = {"?": _PARAMETER, "|": "conditions are joined by OR", "{": _PARAMETER}

_FLINK = "in Ouzel: PATTERN SEQ(A a, B b) WHERE contiguity(b: next) { … }; followedBy is next, next is strict"
_EQL = "in Ouzel: PATTERN SEQ(process a, file b) WHERE skip_till_next_match { [user] } WITHIN 5 min OUTPUT LATEST"
_ESPER = "in Ouzel: PATTERN SEQ(A a, B b) WHERE b.id = a.id WITHIN 5 min; every event may start a match"
_SKIPPING = "write OUTPUT NON_OVERLAPPING to skip past the last event, OUTPUT FIRST to skip to the next one"
_SPLUNK = (
    "in Ouzel: PATTERN SEQ(A a, ANY* v[], B b) WHERE skip_till_next_match(a, v[], b) { [user] } WITHIN 10 min "
    "OUTPUT NON_OVERLAPPING"
)
_KQL = "in Ouzel: PATTERN SEQ(A a, B b) WHERE skip_till_next_match { [user] AND b.x > a.x } WITHIN 10 min"
_TEXT = "write a.x LIKE '%text%', contains(a.x, 'text') or a.x RLIKE 'expression'"
# Operators of EQL and KQL on texts.
_TEXT_OPERATORS = frozenset({"HAS", "CONTAINS", "STARTSWITH", "ENDSWITH", "MATCHES", "REGEX"})
_OPTIONAL = "write B? b for an optional step"
_ALTERNATIVES = "write (A a | B b) for one of two steps, ANY(A, B) v for one event of two types"
_NO_ROWS = "this is MATCH_RECOGNIZE's; a query has one row per match, and [attr] in WHERE partitions it"
# Words of Flink CEP, EQL, Esper, Siddhi and MATCH_RECOGNIZE, where a component or a clause is expected.
_ELSEWHERE = {
    **dict.fromkeys(("begin", "followedby"), _FLINK),
    "next": "write SEQ(A a, B b) and WHERE contiguity(b: strict) { … }; partition instead of strict after a keyBy",
    "followedbyany": "write SEQ(A a, B b); without a strategy, or with contiguity(b: any), any events may be skipped",
    "notfollowedby": "write !(B b) between two components, or at the end with WITHIN",
    "notnext": "there is no notNext; write SEQ(A a, ANY n, B b) and WHERE contiguity(n: strict) { type(n) != 'C' }",
    **dict.fromkeys(("oneormore", "times", "timesormore"), "write B+ b[], B{3} b[] or B{3,} b[]"),
    "greedy": "leave greedy out: skip_till_next_match takes all that it can",
    "consecutive": "write contiguity(b[i]: strict) { … }",
    "allowcombinations": "write contiguity(b[i]: any) { … }, or no strategy",
    "optional": _OPTIONAL,
    "permute": "write AND(A a, B b) for all of them in any order",
    "until": "write B+ b[] WITHOUT C c, or SEQ(A a, B b) WITHOUT C c for the whole pattern",
    **dict.fromkeys(("with", "maxspan"), "write WITHIN 5 min"),
    "by": "write [attr] in WHERE: all events have the same value of it",
    "every": _ESPER,
    "partition": "write [attr] in WHERE: all events have the same value of it",
    "measures": "write RETURN Name(a.x AS x)",
    "define": "write the conditions in WHERE, with variables: PATTERN SEQ(A a, B b) WHERE a.x > 3",
    **dict.fromkeys(("after", "skip"), _SKIPPING),
    **dict.fromkeys(("one", "all"), _NO_ROWS),
    "select": "write RETURN Name(a.x AS x) after the pattern",
    "for": "write SEQ(A a, !(B b)) WITHIN 5 min: no B until the window ends",
}

# What may follow the type of a component, its quantifier or its variable.
_AFTER_A_TYPE = frozenset({"QUESTION", "PLUS", "STAR", "LBRACE", "NAME", "INDEX", "COMMA", "RPAR", "BAR", "WITHOUT"})
_ONE_COMPONENT = re.compile(r"\bPATTERN\s+\w+[+*?]?(\s+\w+(\[\])?)?\s*$", re.I)
_ONE_EVENT = re.compile(r"\bWITHIN\s+(\d+)\s+EVENT\s*$", re.I)
_STRATEGY = re.compile(r"skip_till|contiguity", re.I)
_LAST_COMPONENT = re.compile(r"\b(?!PATTERN\b)(\w+)\s+(\w+)\s*$")
_NEXT_COMPONENT = re.compile(r"\s*(\w+\s+\w+)\s*([,)|]|$)")


_COUNT = "the count follows the type: B{2,3} b[]"


def strategy_hint(name: str) -> str | None:
    """The hint for a name that looks like a strategy, at a place where there can be none.

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
    if written == "[" and before.endswith("!"):
        return "write !(B b) between two components, and its conditions in WHERE"
    if written == "/" and after.startswith("/"):
        return _COMMENT
    if re.match(r"\s*(sequence|sample)\b.*\[\s*\w+\s+where\b", before + written + after, re.I | re.S):
        return _EQL
    if written.upper() in ("AND", "OR") and before.rstrip().endswith("}"):
        return "put all conditions into the { } of the strategy"
    if written in (")", ",") and "BAR" in accepted:
        return "parentheses hold alternatives, (A a | B b); write SEQ(A a, B b) for a group, B{2,3} b[] for one step"
    if _begins_a_step(accepted) and written.upper() not in _CLAUSES:
        found = _from_elsewhere(before, written, after)
        if found is not None:
            return found
    singular = _ONE_EVENT.search(before)
    if singular:
        return f"write WITHIN {singular[1]} EVENTS"
    if written.upper() == "WITHOUT":
        return "WITHOUT T v comes after a component of the pattern, or after SEQ(…)"
    in_pattern = accepted <= _AFTER_A_TYPE
    if in_pattern and written == "?" and before.rstrip()[-1:] in tuple("+*?}"):
        return "the strategy decides which events a repetition takes; SEQ(B{2,3} b[])? may be absent as a whole"
    if written in ("?", "|") and (in_pattern or _ONE_COMPONENT.search(before)):
        return _after_a_component(before, written, after)
    if in_pattern and written == "{":
        component = _LAST_COMPONENT.search(before)
        return f"the count follows the type: {component[1]}{{2,3}} {component[2]}[]" if component else _COUNT
    if in_pattern and written in ("&", "&&", "AND", "OR", "||"):
        return "write AND(A a, B b) for both in any order, OR(A a, B b) for one of them"
    if (in_pattern and written in ("+", "*")) or (written in (",", "-") and _ONE_COMPONENT.search(before)):
        return _SEQUENCE
    if written == "~" and before.endswith("="):
        return "write lower(a.x) = 'text', which ignores case"
    if written == ".." and re.search(r"\bbetween\s*\(", before, re.I):
        return "write BETWEEN 1 AND 5"
    if written == "~" and re.search(r"\b(like|in)$", before, re.I):
        return "write a.x ILIKE 'text%' or lower(a.x) IN ('text'), which ignore case"
    if not in_pattern and written in _SYMBOLS:
        return _SYMBOLS[written]
    last = before.split()[-1].upper() if before.split() else ""
    if last in ("IS", "NOT") and "NULL" in accepted and written.upper() in ("TRUE", "FALSE"):
        return "there is no IS TRUE; write v.ok, NOT v.ok or v.ok = TRUE, a null satisfies none of them"
    if last == "RETURN" and written == "*":
        return "leave RETURN out: a match then has all its events with all their attributes"
    if last == "WITHIN" and written.startswith("'"):
        return "write the duration without quotes, such as 5 min"
    if last == "IN" and written.startswith(":"):
        return f"a parameter is one value: IN ({written}_1, {written}_2)"
    if written == "->":
        return "write any(v.list, t -> t > 3), with one name before the arrow"
    if written.upper() == "DISTINCT" and last in ("IS", "NOT"):
        return "write a.x = b.x OR (a.x IS NULL AND b.x IS NULL)"
    if written.upper() in _TEXT_OPERATORS:
        return _TEXT
    if written.upper() == "DISTINCT":
        return "count(DISTINCT v[].x) counts within a match; AGG has no DISTINCT"
    if last == "IN" and written == "[":
        return "write a list in parentheses: IN (1, 2)"
    word = written.upper()
    return _CLAUSES.get(word) or strategy_hint(written)


def _after_a_component(before: str, written: str, after: str) -> str:
    """The hint for `B b?`, and for `B b | C c` without parentheses."""
    component, following = _LAST_COMPONENT.search(before), _NEXT_COMPONENT.match(after)
    if written == "?":
        return f"write {component[1]}? {component[2]}" if component else f"{_OPTIONAL}, B* b[] for any number of events"
    return f"write ({component[0].rstrip()} | {following[1]})" if component and following else _ALTERNATIVES


def _begins_a_step(accepted: set[str]) -> bool:
    """Whether no expression can continue here, so that the grammar expects a component, something after a component, or
    a clause.
    """
    return accepted <= _AFTER_A_TYPE or bool(accepted & {"ANY", "WHERE"})


def _from_elsewhere(before: str, written: str, after: str) -> str | None:
    """The hint for words of another system at or next to the unexpected token."""
    if re.match(r"\s*Pattern\s*\.", before + written, re.I):
        return _FLINK
    if written == "[":
        if re.match(r"\s*every\b", after, re.I):
            return _ESPER
        if re.match(r"\s*\w+\s+where\b", after, re.I):
            return "write a component: ANY v for any event, process p for one of type process, its conditions in WHERE"
    if written in ("[", "<") and re.match(r"\s*\d*\s*:", after):
        return "write B{2,5} b[] for 2 to 5 events"
    if written.upper() == "AND" and re.match(r"\s*not\b", after, re.I):
        return "write SEQ(A a, !(C c), B b), or SEQ(A a, B b) WITHOUT C c for no C between the first and the last event"
    words = [written, *re.findall(r"^\s*(\w+)", after)[:1], *reversed(re.findall(r"\w+", before)[-2:])]
    found = next((_ELSEWHERE[word.lower()] for word in words if word.lower() in _ELSEWHERE), None)
    if found is None and written == "->":
        return _SEQUENCE
    if found is None and written in ("=", "AS", "as"):
        return "write the type and then the variable: SEQ(A a, B b)"
    return found


def _for_another_language(text: str) -> str | None:
    """The hint for a text that does not begin like a query."""
    if re.match(r"STREAM\b", text, re.I):
        return "ouzel.algebra.from_text reads an expression of the algebra; match, Engine and QuerySet take its text"
    if re.search(r"\bMATCH_RECOGNIZE\b", text, re.I):
        return "ouzel.sql runs SQL with MATCH_RECOGNIZE"
    if re.search(r"\bbegin\s*\(|\bPattern\s*\.", text):
        return _FLINK
    if re.search(r"\bevery\b|->", text, re.I):
        return _ESPER
    if re.match(r"(\|\s*)?transaction\b", text, re.I) or re.search(r"\|\s*transaction\b", text, re.I):
        return _SPLUNK
    if re.match(r"\w+\s*\|\s*\w+", text):
        return _KQL
    if re.match(r"\w+\s+where\b", text, re.I):
        return "in Ouzel: PATTERN process a WHERE a.name = 'text', or PATTERN ANY a for events of any type"
    if re.match(r"select\b", text, re.I):
        return f"{BEGINNING}, and RETURN Name(a.x AS x) chooses columns"
    if re.fullmatch(r"[\w./\\-]+\.\w+", text.strip()):
        return "give the text of the query; pathlib.Path(…).read_text() reads it from a file"
    return None
