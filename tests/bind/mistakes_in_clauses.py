"""Mistakes in clauses, parameters and scripts: the query, its mistake between « and », the sentence, and the hint."""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tests.bind.mistakes_in_names import AB, KLEENE

LOST = "SEQUENCE (x, !y, z) "

CLAUSES = [
    (
        AB + "WHERE «[n]» OR a.n = 3",
        "[n] must be a condition of its own, joined to the rest by AND",
        "it cannot be under OR or NOT, or outside WHERE",
    ),
    (
        AB + "WHERE NOT «[n]»",
        "[n] must be a condition of its own, joined to the rest by AND",
        "it cannot be under OR or NOT, or outside WHERE",
    ),
    (AB + "WHERE «[m]»", "no event type has an attribute 'm'", None),
    (
        AB + "WHERE «[a.n]»",
        "an equivalence test must name an attribute without a variable",
        "write [n] to test it on all components",
    ),
    (
        "PATTERN SEQ(Register a, !(Shelf s), Exit b) WHERE «[weight]»",
        "no positive component has an attribute 'weight'",
        "the attribute of an equivalence test must be in a positive component",
    ),
    (
        "PATTERN SEQ(Shelf a, Odd b) WHERE «[n]»",
        "'n' is string in 'b' but integer in another component",
        "an equivalence test must compare values of one type",
    ),
    (
        AB + "WHERE [n = «a.n»]",
        "the value of an equivalence test must be a constant",
        "write a literal or a parameter: [n = 'x']",
    ),
    (
        AB + "WHERE [n = «null»]",
        "the value of an equivalence test cannot be null",
        "an event with a null never satisfies an equivalence test",
    ),
    (
        AB + "WHERE «[n = 'x']»",
        "cannot compare an integer with a string",
        "'x' is text, and the other side is a number; did you mean another column?",
    ),
    (
        "PATTERN Shelf WHERE «[tags]»",
        "a list cannot be compared",
        "write x IN v.list, any(v.list, t -> t > 3) or size(v.list)",
    ),
    (
        "PATTERN SEQ(Shelf a, Alarm b) WHERE «partition_contiguity(a, b)» { [tag] }",
        "partition_contiguity needs 'tag' in every positive component, but event type 'Alarm' of 'b' lacks it",
        None,
    ),
    (
        "PATTERN SEQ(Shelf a, Alarm b) WHERE contiguity(«b: partition») { [tag] }",
        "contiguity(… partition) needs 'tag' in every positive component, but event type 'Alarm' of 'b' lacks it",
        None,
    ),
    (AB + "WHERE contiguity(«z: next») { }", "there is no variable 'z'", "the variables are a and b"),
    (AB + "WHERE contiguity(«a: next») { }", "no event comes before 'a', the first component", None),
    (AB + "WHERE contiguity(«b[i]: next») { }", "'b' is not a repetition, so it has no further events", "write b: …"),
    (AB + "WHERE contiguity(b: next, «b[1]: any») { }", "a step can be named only once", None),
    (
        "PATTERN SEQ(Shelf a, !(Alarm n), Shelf b) WHERE contiguity(«n: strict») { }",
        "'n' is a negative component, not a step",
        "it forbids events between two steps; Flink's notNext is SEQ(A a, ANY n, B b) with n: strict",
    ),
    (
        "PATTERN SEQ(Shelf a, Alarm b) WHERE [tag] «WITHIN 5 EVENTS»",
        "WITHIN … EVENTS needs 'tag' in every positive component, but event type 'Alarm' of 'b' lacks it",
        None,
    ),
    (
        "PATTERN SEQ(Shelf a, Alarm b) WHERE [tag] «OUTPUT FIRST»",
        "OUTPUT FIRST needs 'tag' in every positive component, but event type 'Alarm' of 'b' lacks it",
        None,
    ),
    (
        "PATTERN SEQ(Shelf a, Alarm b) GROUP BY «tag» AGG COUNT",
        "GROUP BY tag needs 'tag' in every positive component, but event type 'Alarm' of 'b' lacks it",
        None,
    ),
    (
        "PATTERN SEQ(Shelf a, !(Exit c), !(Exit d), Exit b) WHERE «c.n = d.n»",
        "a condition may name one negated component, not 'c' and 'd'",
        "each negation is checked alone",
    ),
    (
        "PATTERN SEQ(Shelf a, «!(Exit b)»)",
        "a negation at the end needs WITHIN in time",
        "add WITHIN with a duration, such as WITHIN 12 hours",
    ),
    (
        "PATTERN SEQ(«!(Shelf a)», Exit b) WITHIN 10 EVENTS",
        "a negation at the start needs WITHIN in time",
        "add WITHIN with a duration, such as WITHIN 12 hours",
    ),
    (AB + "RETURN a.n, «b.n»", "two columns are named 'n'", "write AS and another name"),
    (
        AB + "RETURN «a.n AS start»",
        "two columns are named 'start'",
        "every match has a column of that name; write AS and another name",
    ),
    (
        "PATTERN SEQ(«Shelf start», Exit b)",
        "the variable 'start' cannot have the name of a column that every match has",
        "rename it, or name the columns with RETURN",
    ),
    ("PATTERN SEQ(Shelf a, !(Exit c), Exit b) RETURN «c.n»", "'c' is negated, so RETURN has no event of it", None),
    (AB + "GROUP BY n, «a.n» AGG COUNT", "two columns are named 'n'", "write AS and another name"),
    (AB + "AGG COUNT, «SUM(a.n) AS count»", "two columns are named 'count'", "write AS and another name"),
    (AB + "AGG «SPREAD(a.n)»", "there is no aggregate 'SPREAD' over matches", "there are COUNT, SUM, AVG, MIN or MAX"),
    (AB + "AGG «SUMM(a.n)»", "there is no aggregate 'SUMM' over matches", "did you mean 'sum'?"),
    (AB + "AGG «COUNTT»", "there is no aggregate 'COUNTT' over matches", "did you mean 'count'?"),
    (
        KLEENE + "AGG «SUM(a.n + b.n)»",
        "an aggregate must range over the events of one component with +",
        "an index chooses one event: [1] is the first, [LEN] the last",
    ),
    (AB + "AGG COUNT HAVING «cnt» > 3", "there is no column 'cnt' to filter by", "did you mean 'count'?"),
    (AB + "AGG COUNT HAVING «a.n» > 3", "there is no column 'a.n' to filter by", "the columns are count"),
    (AB + "AGG COUNT HAVING «sum(a.n, b.n)» > 3", "wrong number of arguments for 'sum'", None),
    (AB + "AGG COUNT HAVING «sum()» > 3", "SUM needs an attribute", "write SUM(v.x)"),
    (
        AB + "AGG COUNT «RETURN a.n»",
        "RETURN and AGG cannot be used together",
        "name the columns in AGG and GROUP BY with AS",
    ),
    (
        AB + "AGG COUNT «OUTPUT FIRST»",
        "OUTPUT FIRST and AGG cannot be used together",
        "leave AGG out and count the rows of the answer",
    ),
    (
        AB + "AGG COUNT «OUTPUT COMPRESSED»",
        "OUTPUT COMPRESSED and AGG cannot be used together",
        "leave AGG out and sum the column count of the answer",
    ),
    (AB + "AGG COUNT WITHIN 1 s «THRESHOLD 0.5»", "THRESHOLD and AGG cannot be used together", None),
    (AB + "AGG COUNT «WITHIN 5 EVENTS»", "AGG needs a window in time, not in events", None),
    (AB + "GROUP BY «n»", "GROUP BY needs AGG", "add AGG COUNT, or test [attr] in WHERE"),
    (AB + "HAVING «count > 3»", "HAVING needs AGG", "put a condition on single matches into WHERE"),
    ("«PATTERN SEQ(Shelf a, Exit b) EMIT ON CHANGE»", "EMIT ON CHANGE needs AGG", None),
    (
        "PATTERN SEQ(Shelf a, Exit? b) WITHIN 1 s «OUTPUT SKIP TO LAST b»",
        "'b' may be absent, so OUTPUT SKIP TO LAST cannot skip to it",
        None,
    ),
    (
        "PATTERN SEQ(Shelf a, OR(Exit b, ANY(Exit, Shelf) b)) WITHIN 1 s «OUTPUT COMPRESSED»",
        "OUTPUT COMPRESSED cannot have alternatives that may bind the same events to the same variables",
        "give the alternatives variables of their own, or ask for AGG COUNT",
    ),
    (
        "«PATTERN SEQ(Shelf a, Exit? b, Exit c)» WITHIN 1 s THRESHOLD 0.5",
        "THRESHOLD needs a pattern without optional parts, alternatives and negated sequences",
        "THRESHOLD itself reports matches with missing events",
    ),
    (
        "PATTERN SEQ(Shelf a, !(Exit b)) WITHIN 1 s «OUTPUT LATEST»",
        "OUTPUT LATEST needs matches that end with an event",
        "matches with a negation at the end wait for their window; use OUTPUT FIRST or NON_OVERLAPPING",
    ),
    (
        "PATTERN SEQ(Shelf a, Exit b) WITHIN 1 s «OUTPUT FURTHEST»",
        "OUTPUT FURTHEST needs skip_till_next_match or a contiguity",
        "write WHERE skip_till_next_match(a, b) { … }",
    ),
    (
        "PATTERN SEQ(Shelf a, Exit? b, Exit c) WITHIN 1 s «OUTPUT FURTHEST»",
        "OUTPUT FURTHEST needs a pattern without optional parts, alternatives and negated sequences",
        "write a query for each alternative",
    ),
    (
        "PATTERN SEQ(Shelf a, !(Exit b)) WITHIN 1 s «OUTPUT FURTHEST»",
        "OUTPUT FURTHEST needs matches that end with an event",
        "put the negation between components",
    ),
    ("PATTERN Shelf a WITHIN 1 s «OUTPUT FURTHEST»", "OUTPUT FURTHEST needs at least two positive components", None),
    (
        "PATTERN SEQ(Shelf a, Exit b) WHERE skip_till_next_match(a, b) { a.n = 1 } «OUTPUT FURTHEST»",
        "OUTPUT FURTHEST needs a window in time: a run that is not complete is returned when its window has passed",
        "add WITHIN with a duration, such as WITHIN 12 hours",
    ),
    (AB + "«OUTPUT BEST»", "OUTPUT BEST needs THRESHOLD", None),
    (
        "PATTERN SEQ(Shelf a, !(SEQ(Register r, Shelf b)), Exit c) «OUTPUT COMPRESSED»",
        "OUTPUT COMPRESSED needs a pattern without negated sequences",
        "AGG COUNT counts the matches",
    ),
    (
        "PATTERN SEQ(Shelf+ a[], !(SEQ(Register r, Shelf b)), Exit c) WHERE b.n > «a.n»",
        "a condition on a negated sequence cannot name 'a', which is several events",
        "name components of one event, or find the sequence by a query of its own with INTO",
    ),
]

INCOMPLETE = [
    (AB + "WITHIN 3 s THRESHOLD «2»", "a threshold must be a number from 0 to 1", None),
    (
        "PATTERN SEQ(Shelf a, Exit b) «WITHOUT Register r» WITHIN 3 s THRESHOLD 0.5",
        "with THRESHOLD a pattern cannot have WITHOUT",
        "use a negative component",
    ),
    ("PATTERN SEQ(«Shelf+ a[]», Exit b) WITHIN 3 s THRESHOLD 0.5", "with THRESHOLD a component cannot have +", None),
    (
        AB + "WHERE «skip_till_next_match(a, b)» {} WITHIN 3 s THRESHOLD 0.5",
        "with THRESHOLD the strategy must be skip_till_any_match",
        None,
    ),
    (
        AB + "WHERE a.n = b.n RETURN «[n]»",
        "[n] in RETURN must be a test of WHERE",
        "write [n] in WHERE too, or name an event: v.n",
    ),
    (
        "PATTERN ANY(Shelf, Register) a WHERE [weight] RETURN «[weight]»",
        "no component always has a value of [weight]",
        "name an event: v.weight",
    ),
    (AB + "«THRESHOLD 0.5»", "THRESHOLD needs WITHIN in time", "add WITHIN with a duration, such as WITHIN 12 hours"),
    (AB + "WITHIN 3 s THRESHOLD 0.5 «OUTPUT FIRST»", "OUTPUT FIRST cannot be used with THRESHOLD", None),
    (
        "SEQUENCE (x, «z») WHERE x.code = '1' WITHIN 3 s THRESHOLD 0.5",
        "'z' needs a type or a condition of its own that every alternative contains",
        "add one such as z.reader = 'exit'",
    ),
    (
        "SEQUENCE («x», z) WHERE (x.code = '1' OR z.code = '2') AND z.code = '3' WITHIN 3 s THRESHOLD 0.5",
        "'x' needs a type or a condition of its own that every alternative contains",
        "add one such as x.reader = 'exit'",
    ),
    (
        AB + "WHERE «a.tag» = b.tag WITHIN 3 s THRESHOLD 0.5",
        "'a' may be missing, so 'a.tag' needs a default here",
        "write it in brackets: a.tag[b.tag]",
    ),
    (
        AB + "WHERE «a.time» < b.time WITHIN 3 s THRESHOLD 0.5",
        "'a' may be missing, so 'a.end' needs a default here",
        "write it in brackets: a.end[b.end]",
    ),
    (
        AB + "WHERE «a.tag[a.tag]» = b.tag WITHIN 3 s THRESHOLD 0.5",
        "the default cannot depend on itself",
        "make it end at the last component, which is never missing",
    ),
    (
        AB + "WHERE a.tag[b.tag] = b.tag AND «a.tag['x']» = b.tag",
        "'a.tag' has two different defaults",
        "give it the same default everywhere",
    ),
    (
        AB + "WHERE «a.n[0]» = b.n",
        "an attribute cannot be indexed; a value in brackets is for an event that THRESHOLD finds missing",
        "for a list write any(v.list, t -> t = 'x') or contains(v.list, 'x'), for a null coalesce(v.x, 0)",
    ),
    (AB + "WHERE «a.tag[5]» = b.tag", "cannot combine a string with an integer", "write '5' in quotes"),
    (AB + "WHERE a.n[«1.5»] = b.n", "the default is a double, but the attribute is an integer", None),
    (
        "PATTERN SEQ(Shelf a, !(Exit c), Exit b) WHERE «c.tag[b.tag]» = b.tag",
        "a negated component cannot have a default in brackets",
        "a default is for one event that may be missing",
    ),
    (
        KLEENE + "WHERE «a.tag[b[1].tag]» = 'x'",
        "a component with + cannot have a default in brackets",
        "a default is for one event that may be missing",
    ),
    (
        AB + "WITHIN 3 s THRESHOLD 0.5 RETURN «a.n AS score»",
        "two columns are named 'score'",
        "every match has a column of that name; write AS and another name",
    ),
]

PARAMETERS: list[tuple[str, Any, str, str | None]] = [
    ("WHERE a.n > «:p»", {}, "there is no value for the parameter 'p'", "give it as params={'p': …}"),
    ("WHERE a.n > «:limit»", {"limits": 1}, "there is no value for the parameter 'limit'", "did you mean 'limits'?"),
    ("WHERE a.n > «:p»", {"p": 2**63}, "the value of the parameter 'p' is out of range", None),
    ("WHERE a.price > «:p»", {"p": Decimal("1234567890123456789")}, "the parameter 'p' has more than 18 digits", None),
    (
        "WHERE a.n > «:p»",
        {"p": [1]},
        "the parameter 'p' is of type list",
        "parameters are int, float, Decimal, str, bool, None, bytes, datetime, date or timedelta",
    ),
    (
        "WHERE a.n > «:p»",
        {"p": Fraction(1, 3)},
        "the parameter 'p' is of type Fraction",
        "parameters are int, float, Decimal, str, bool, None, bytes, datetime, date or timedelta",
    ),
    ("WHERE a.tag = «:p»", {"p": "\ud800"}, "the string has a character that is not Unicode text", None),
    (
        "WITHIN «:p»",
        {"p": 0},
        "a window must be positive",
        "the smallest window is 1, which holds matches of one event",
    ),
    (
        "WITHIN «:p»",
        {"p": 2**63 - 1},
        "the window does not fit into 64 bits",
        "leave WITHIN out",
    ),
    (
        "WITHIN «:p»",
        {"p": datetime.timedelta(seconds=-1)},
        "a window must be positive",
        "the smallest window is 1, which holds matches of one event",
    ),
    (
        "WITHIN «:p»",
        {"p": 1.5},
        "a window must be a duration or a whole number of ticks",
        "write WITHIN 12 hours, or a whole number of ticks",
    ),
    (
        "WITHIN «:p»",
        {"p": "half an hour"},
        "the value 'half an hour' of a window is not a duration",
        "give text such as '12 hours', a timedelta, or a whole number of ticks",
    ),
    (
        "WITHIN «:p»",
        {"p": "0 s"},
        "a window must be positive",
        "the smallest window is 1, which holds matches of one event",
    ),
    ("WITHIN «:p» EVENTS", {"p": "x"}, "a window in events must be a whole number", "write WITHIN 50 EVENTS"),
    ("WITHIN 5 THRESHOLD «:p»", {"p": "x"}, "a threshold must be a number from 0 to 1", None),
    ("WITHIN 5 THRESHOLD «:p»", {"p": float("nan")}, "a threshold must be a number from 0 to 1", None),
]

SCRIPTS = [
    (
        "«one: PATTERN SEQ(Shelf a, Exit b) INTO input»;",
        "'input' is the primary stream, so no query can write INTO it",
        "choose another name",
    ),
    (
        "one: PATTERN Shelf INTO s; «two: PATTERN Exit INTO s»;",
        "two queries write INTO 's'",
        "give each its own stream, and read both with FROM a, b",
    ),
    (
        "one: PATTERN Shelf INTO thefts; «two: PATTERN Pair FROM theft»;",
        "there is no stream 'theft'",
        "did you mean 'thefts'?",
    ),
    (
        "one: PATTERN Shelf; «two: PATTERN Pair FROM one»;",
        "there is no stream 'one'",
        "add INTO one to the query 'one'",
    ),
    (
        "one: PATTERN Shelf; «two: PATTERN Pair FROM elsewhere»;",
        "there is no stream 'elsewhere'",
        "a stream is named by INTO, and 'input' is the primary one",
    ),
    ("«one: PATTERN s FROM s INTO s»;", "the stream reads itself", "queries compose without cycles"),
    (
        "«one: PATTERN t FROM t INTO s»; two: PATTERN s FROM s INTO t;",
        "'s' and 't' read each other in a cycle",
        "queries compose without cycles",
    ),
    (
        "one: PATTERN Shelf OUTPUT COMPRESSED INTO s; «two: PATTERN s FROM s»;",
        "'s' is compressed and cannot be read by a query",
        "leave OUTPUT COMPRESSED out of the query that writes it",
    ),
    (
        "one: PATTERN Shelf RETURN P(n) INTO s; two: PATTERN Exit RETURN P(tag) INTO t; «three: PATTERN P FROM s, t»;",
        "two sources have different events of type 'P'",
        "give them different names with RETURN Name(…)",
    ),
]
