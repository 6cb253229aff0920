"""Every mistake that the binder finds: the sentence, the place it points at, and the hint.

`«…»` around a part of a query marks what the caret must point at. The last test sees to it that no message in the
sources is missing here.
"""

from __future__ import annotations

import ast
import datetime
import sys
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import ouzel.bind
from ouzel.bind import Catalog, bind, catalog_for, mistakes
from ouzel.bind.model import INT
from ouzel.errors import QueryError
from ouzel.lang import syntax
from ouzel.lang.syntax import Component, Literal, Notation, Pattern, Query, Reference, Span, TypeName
from tests.bind.shop import BARE_TICKS, SHOP, bound, bound_script

AB = "PATTERN SEQ(Shelf a, Exit b) "
KLEENE = "PATTERN SEQ(Shelf+ a[], Exit+ b[]) "
LOST = "SEQUENCE (x, !y, z) "

NAMES = [
    ("PATTERN SEQ(«Shef» a, Exit b)", "there is no event type 'Shef'", "did you mean 'Shelf'?"),
    (
        "PATTERN SEQ(«Zebu» a, Exit b)",
        "there is no event type 'Zebu'",
        "the event types are Alarm, Exit, Odd, Register and Shelf",
    ),
    ("PATTERN SEQ(ANY(Shelf, «exit») a, Exit b)", "there is no event type 'exit'", "did you mean 'Exit'?"),
    (AB + "WHERE «a.wieght» > 3", "event type 'Shelf' has no attribute 'wieght'", "did you mean 'weight'?"),
    (AB + "WHERE «a.Tag» = 'x'", "event type 'Shelf' has no attribute 'Tag'", "did you mean 'tag'?"),
    (
        "PATTERN SEQ(ANY(Exit, Register) a, Exit b) WHERE «a.wight» > 3",
        "no event type of 'a' has an attribute 'wight'",
        None,
    ),
    (AB + "WHERE «a.address.street» = 'x'", "'address' has no field 'street'", None),
    (AB + "WHERE «a.address.citi» = 'x'", "'address' has no field 'citi'", "did you mean 'city'?"),
    (AB + "WHERE «a.tag.x» = 'x'", "'tag' is string and has no field 'x'", None),
    (AB + "WHERE «c.n» > 3", "there is no variable 'c'", "the variables are a and b"),
    ("PATTERN SEQ(Shelf shelf, Exit b) WHERE «shel.n» > 3", "there is no variable 'shel'", "did you mean 'shelf'?"),
    (AB + "WHERE «n» > 3", "the bare name 'n' does not say whose attribute it is", "write a.n or b.n"),
    (
        AB + 'WHERE a.tag = «"soap"»',
        "there is no variable 'soap'",
        "in double quotes stands a name, in single quotes text: 'soap'",
    ),
    (AB + "WHERE «weigh» > 3", "there is no variable or attribute 'weigh'", "did you mean 'weight'?"),
    ("PATTERN SEQ(Shelf a, Exit «a»)", "the variable 'a' stands twice", "give each component its own variable"),
    ("PATTERN SEQ(Shelf Exit, «Exit»)", "the variable 'Exit' stands twice", "give each component its own variable"),
    (
        "PATTERN SEQ(Shelf, Shelf) WHERE «Shelf.n» > 3",
        "'Shelf' stands in the pattern more than once",
        "give each a variable: Shelf s1, Shelf s2",
    ),
    (AB + "WHERE «a» > 3", "'a' is an event, not a value", "name an attribute: a.x"),
    (
        "PATTERN SEQ(ANY(Shelf, Odd) v, Exit b) WHERE «v.n» > 3",
        "'n' is integer in event type 'Shelf' but string in 'Odd'",
        None,
    ),
    (
        "PATTERN SEQ(ANY(Shelf, Alarm) v, Exit b) WHERE «v.type» = 'x'",
        "'type' is an attribute of some types of 'v' but not of all",
        "type(v) always gives the event's own",
    ),
    (AB + "WHERE «lowr(a.tag)» = 'x'", "there is no function 'lowr'", "did you mean 'lower'?"),
    (AB + "WHERE «lower(a.tag, 3)» = 'x'", "wrong number of arguments for 'lower'", "write lower(text)"),
    (AB + "WHERE «greatest(a.n)» = 1", "wrong number of arguments for 'greatest'", "write greatest(x, y, …)"),
    (AB + "WHERE «time(1)» = 1", "time(…) takes one event", "write time(v) for a variable v"),
    (AB + "WHERE time(«a.n») = 1", "time(…) is asked of an event, not of a value", "write time(a)"),
    ("«PATTERN !(Shelf a)»", "the pattern has no positive component", "a match needs an event that happened"),
    (
        AB + "WHERE «skip_till_next_match(b, a)» {}",
        "'a' is listed out of the order of the pattern",
        "write skip_till_next_match(a, b)",
    ),
    (AB + "WHERE «skip_till_next_match(a, c)» {}", "there is no variable 'c'", "the variables are a and b"),
    (AB + "«OUTPUT SKIP TO FIRST c»", "there is no variable 'c'", "the variables are a and b"),
    (
        "PATTERN SEQ(Shelf a, !(Exit c), Exit b) «OUTPUT SKIP TO LAST c»",
        "'c' is negated, so no match has an event of it",
        None,
    ),
]

INDEXES = [
    (
        AB + "WHERE «a[i].n» > 3",
        "'a' is one event and takes no index",
        "write a.x, or a[] with + after its type in the pattern",
    ),
    (
        KLEENE + "WHERE «a» > 3",
        "'a' stands for several events, not for a value",
        "write a[1].x, a[i].x, a[a.LEN].x or an aggregate over a[]",
    ),
    (AB + "WHERE «a.LEN» > 3", "'a' is one event and has no length", None),
    (KLEENE + "WHERE a«[i+1]».n > 3", "a[i+1] refers to an event that is chosen later", "say it of a[i] and a[i-1]"),
    (
        KLEENE + "WHERE a«[2]».n > 3",
        "there is no index 'a[2]'",
        "the indexes are a[1], a[i], a[i-1], a[a.LEN], a[..i-1] and a[]",
    ),
    (
        KLEENE + "WHERE a«[i-2]».n > 3",
        "there is no index 'a[i-2]'",
        "the indexes are a[1], a[i], a[i-1], a[a.LEN], a[..i-1] and a[]",
    ),
    (KLEENE + "WHERE a«[b.LEN]».n > 3", "a[…] cannot be indexed by the length of 'b'", "write a[a.LEN]"),
    (
        KLEENE + "WHERE «a[].n» > 3",
        "a[] stands only inside count, sum, avg, min, max, first or last",
        "write a[1], a[i] or a[a.LEN]",
    ),
    (
        KLEENE + "WHERE «a[..i-1].n» > 3",
        "a[..i-1] stands only inside count, sum, avg, min, max, first or last",
        "write a[1], a[i] or a[a.LEN]",
    ),
    (
        AB + "WHERE sum(«a.n») > 3",
        "sum(…) ranges over a component with +, and 'a' is one event",
        None,
    ),
    (
        AB + "WHERE max(«a.n») > 3",
        "max(…) ranges over a component with +, and 'a' is one event",
        "the least and greatest of several values are least(…) and greatest(…)",
    ),
    (
        KLEENE + "WHERE sum(«a.n») > 3",
        "an aggregate ranges over all events or those before this one",
        "write a[] for all of them, a[..i-1] for those before this one",
    ),
    (KLEENE + "WHERE «sum(a[].n + b[].n)» > 3", "sum(…) ranges over one variable in one way", None),
    (KLEENE + "WHERE sum(«sum(a[].n)») > 3", "an aggregate cannot stand inside another", None),
    (
        KLEENE + "WHERE «sum(3)» > 3",
        "sum(…) takes the events of a component with +",
        "write sum(v[].x) or sum(v[..i-1].x)",
    ),
    (KLEENE + "WHERE «sum(a[])» > 3", "sum(…) needs an attribute", "name one: sum(a[].x)"),
    (
        KLEENE + "WHERE a.n > «b.n»",
        "'a' and 'b' stand for several events each in one condition",
        "write an index on one of them, such as b[1] or b[b.LEN]",
    ),
    (
        KLEENE + "WHERE «a.n» > a[i].n",
        "'a' without an index cannot stand in one condition with [i]",
        "write a[1], a[i] or a[a.LEN]",
    ),
    (
        KLEENE + "WHERE «a[i].n > b[i].n»",
        "a condition may index one variable by i, not 'a' and 'b'",
        "use [1] or [LEN] on one of them",
    ),
    (KLEENE + "RETURN a«[i]».n", "a[i] has no meaning in RETURN", "write a[1], a[a.LEN] or an aggregate over a[]"),
    (KLEENE + "RETURN P(count(«a[..i-1]»))", "a[..i-1] has no meaning in RETURN", "write a[]"),
    (
        KLEENE + "RETURN «a.n» + 1",
        "all events of a component with + make an array here, which cannot be computed with",
        "write an index, [1] or [LEN], or an aggregate over []",
    ),
    (
        KLEENE + "GROUP BY «a.n» AGG COUNT",
        "GROUP BY needs one value a match, and this has one for each event",
        "write an index, [1] or [LEN]",
    ),
]

TEXT = "if numbers are meant, convert the column first: one bad value makes a CSV column text"
TYPES = [
    (AB + "WHERE «a.n > 'x'»", "cannot compare an integer with a string", None),
    (AB + "WHERE «a.n > '7'»", "cannot compare an integer with a string", "write 7 without quotes"),
    (AB + "WHERE «a.tag = 5»", "cannot compare a string with an integer", f"write '5' in quotes; {TEXT}"),
    (AB + "WHERE «a.tag = a.n»", "cannot compare a string with an integer", None),
    (AB + "WHERE «a.tag IN ('x', 5)»", "cannot compare a string with an integer", None),
    (AB + "WHERE «a.tag BETWEEN 1 AND 2»", "cannot compare a string with an integer", f"write '1' in quotes; {TEXT}"),
    (AB + "WHERE «a.ok = 1»", "cannot compare a boolean with an integer", None),
    (
        AB + "WHERE «a.at > '2024-01-01'»",
        "cannot compare a timestamp with a string",
        "write DATE '2024-05-31' or TIMESTAMP '2024-05-31 12:00:00'",
    ),
    (
        AB + "WHERE «a.at > a.zoned_at»",
        "cannot compare a timestamp that has a zone with one that has none",
        "write the zone into the literal, as in TIMESTAMP '2024-05-31 12:00:00Z', or convert the column",
    ),
    (
        AB + "WHERE «a.day = a.zoned_at»",
        "cannot compare a date with a timestamp",
        "a date has no zone: compare with TIMESTAMP '2024-05-31 00:00:00Z'",
    ),
    (AB + "WHERE «a.tags» = b.n", "a list, map or time of day cannot be compared, only returned", None),
    (AB + "WHERE «a.address» = a.address", "a struct cannot be compared", "name one of its fields: city, zip"),
    (
        AB + "WHERE «a.huge» > 3",
        "a decimal(38,2) has more than 18 digits and can only be returned",
        "make it a double or a smaller decimal in the input",
    ),
    (
        AB + "WHERE «a.huge» + 1 > 3",
        "a decimal(38,2) has more than 18 digits and can only be returned",
        "make it a double or a smaller decimal in the input",
    ),
    (AB + "WHERE «a.ok < true»", "booleans have no order", "compare them with = or !="),
    (AB + "WHERE greatest(«a.ok», true)", "booleans have no order", None),
    (KLEENE + "WHERE max(«a[].ok»)", "booleans have no order", None),
    (KLEENE + "WHERE sum(«a[].tag») > 1", "cannot add up a string in sum(…)", None),
    (AB + "WHERE «a.n»", "a condition is true or false, and this is an integer", None),
    (AB + "WHERE NOT «a.tag»", "a condition is true or false, and this is a string", None),
    (AB + "WHERE «a.tag» + 1 > 2", "cannot compute with a string", "concat(…) joins strings"),
    (AB + "WHERE a.n * «a.ok» > 2", "cannot compute with a boolean", None),
    (AB + "WHERE «-a.tag» = 2", "cannot negate a string", None),
    (
        AB + "WHERE «a.at * 2» = a.at",
        "cannot compute a timestamp * an integer",
        "moments may be subtracted, and durations or whole numbers of ticks added to them",
    ),
    (AB + "WHERE lower(«a.n») = 'x'", "lower takes a string here, and this is an integer", None),
    (AB + "WHERE hour(«a.day») = 1", "hour takes a timestamp here, and this is a date", None),
    (AB + "WHERE round(a.weight, «a.n») = 1", "round takes a literal from -30 to 30 here", None),
    (AB + "WHERE a.tag LIKE «b.tag»", "the pattern of LIKE must be a literal or a parameter", None),
    (AB + "WHERE a.tag LIKE «'a\\b'»", "in LIKE the escape '\\' must stand before %, _ or itself", None),
    (AB + "WHERE «CASE WHEN a.ok THEN 1 ELSE 'x' END» = 1", "cannot combine an integer with a string", None),
    (
        AB + "WHERE a.n = «9223372036854775808»",
        "the integer does not fit into 64 bits",
        "write it with a point to make it a double",
    ),
    (AB + "WHERE a.weight = «1e309»", "the number is too large for a double", None),
    (
        AB + "WHERE a.price = «1234567890123456789.5»",
        "beside a decimal a number may have 18 digits at most",
        None,
    ),
    (
        AB + "WHERE «a.price * 0.12345678901234567» > 1",
        "the product of decimals would have 19 digits after the point",
        "use double(…) on one of them",
    ),
    (AB + "WHERE a.at - b.at > «0.0001 ms»", "the duration is not a whole number of ticks here", None),
    (AB + "WHERE a.day + «5 h» > b.at", "the duration is not a whole number of ticks here", None),
    (AB + "WHERE a.at - b.at > «0.0000000001 s»", "the duration is not a whole number of nanoseconds", None),
    (AB + "WHERE a.at - b.at > «1e30 s»", "the duration is out of range", None),
    (
        AB + "WHERE a.at - b.at > «99999999999999 weeks»",
        "the duration is out of range",
        "the longest is about 290,000 years",
    ),
    (AB + "WHERE a.at - b.at > «300000000 days»", "the duration is out of range", None),
    (
        AB + "WHERE a.at = «TIMESTAMP '9999-01-01 00:00:00.123456789'»",
        "the timestamp is out of range for nanoseconds",
        "write at most six digits after the point",
    ),
]

CLAUSES = [
    (
        AB + "WHERE «[n]» OR a.n = 3",
        "[n] must stand by itself, joined to the rest by AND",
        "it cannot stand under OR or NOT, nor outside WHERE",
    ),
    (
        AB + "WHERE NOT «[n]»",
        "[n] must stand by itself, joined to the rest by AND",
        "it cannot stand under OR or NOT, nor outside WHERE",
    ),
    (AB + "WHERE «[m]»", "no event type has an attribute 'm'", None),
    (
        AB + "WHERE «[a.n]»",
        "an equivalence test names an attribute without a variable",
        "write [n] to test it on all components",
    ),
    (
        "PATTERN SEQ(Register a, !(Shelf s), Exit b) WHERE «[weight]»",
        "no positive component has an attribute 'weight'",
        "an equivalence test needs one that does",
    ),
    (
        "PATTERN SEQ(Shelf a, Odd b) WHERE «[n]»",
        "'n' is string in 'b' but integer in another component",
        "an equivalence test compares values of one type",
    ),
    (
        AB + "WHERE [n = «a.n»]",
        "the value of an equivalence test must be a constant",
        "write a literal or a parameter: [n = 'x']",
    ),
    (
        AB + "WHERE [n = «null»]",
        "the value of an equivalence test cannot be null",
        "an event with a null satisfies no equivalence test",
    ),
    (AB + "WHERE «[n = 'x']»", "cannot compare an integer with a string", None),
    ("PATTERN Shelf WHERE «[tags]»", "a list, map or time of day cannot be compared, only returned", None),
    (
        "PATTERN SEQ(Shelf a, Alarm b) WHERE «partition_contiguity(a, b)» { [tag] }",
        "partition_contiguity needs 'tag' in every positive component, and event type 'Alarm' of 'b' lacks it",
        "leave it out, or write the equality out: a.id = b.id",
    ),
    (
        "PATTERN SEQ(Shelf a, Alarm b) WHERE [tag] «WITHIN 5 EVENTS»",
        "WITHIN … EVENTS needs 'tag' in every positive component, and event type 'Alarm' of 'b' lacks it",
        "leave it out, or write the equality out: a.id = b.id",
    ),
    (
        "PATTERN SEQ(Shelf a, Alarm b) WHERE [tag] «OUTPUT FIRST»",
        "OUTPUT FIRST needs 'tag' in every positive component, and event type 'Alarm' of 'b' lacks it",
        "leave it out, or write the equality out: a.id = b.id",
    ),
    (
        "PATTERN SEQ(Shelf a, Alarm b) GROUP BY «tag» AGG COUNT",
        "GROUP BY tag needs 'tag' in every positive component, and event type 'Alarm' of 'b' lacks it",
        "leave it out, or write the equality out: a.id = b.id",
    ),
    (
        "PATTERN SEQ(Shelf a, !(Exit c), !(Exit d), Exit b) WHERE «c.n = d.n»",
        "a condition may name one negated component, not 'c' and 'd'",
        "each negation is checked alone",
    ),
    (
        "PATTERN SEQ(Shelf a, «!(Exit b)»)",
        "a negation that stands last needs WITHIN in time",
        "add WITHIN with a duration, such as WITHIN 12 hours",
    ),
    (
        "PATTERN SEQ(«!(Shelf a)», Exit b) WITHIN 10 EVENTS",
        "a negation that stands first needs WITHIN in time",
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
        "the variable 'start' has the name of a column that every match has",
        "give it another name, or say with RETURN what the columns are",
    ),
    ("PATTERN SEQ(Shelf a, !(Exit c), Exit b) RETURN «c.n»", "'c' is negated, so RETURN has no event of it", None),
    (AB + "GROUP BY n, «a.n» AGG COUNT", "two columns are named 'n'", "write AS and another name"),
    (AB + "AGG COUNT, «SUM(a.n) AS count»", "two columns are named 'count'", "write AS and another name"),
    (AB + "AGG «SPREAD(a.n)»", "there is no aggregate 'SPREAD' over matches", "there are COUNT, SUM, AVG, MIN or MAX"),
    (AB + "AGG «SUMM(a.n)»", "there is no aggregate 'SUMM' over matches", "did you mean 'sum'?"),
    (AB + "AGG «COUNTT»", "there is no aggregate 'COUNTT' over matches", "did you mean 'count'?"),
    (
        KLEENE + "AGG «SUM(a.n + b.n)»",
        "an aggregate may range over the events of one component with +",
        "write an index, [1] or [LEN], on one of them",
    ),
    (AB + "AGG COUNT HAVING «cnt» > 3", "there is no column 'cnt' to filter by", "did you mean 'count'?"),
    (AB + "AGG COUNT HAVING «a.n» > 3", "there is no column 'a.n' to filter by", "HAVING knows count"),
    (AB + "AGG COUNT HAVING «sum(a.n, b.n)» > 3", "wrong number of arguments for 'sum'", None),
    (AB + "AGG COUNT HAVING «sum()» > 3", "SUM needs an attribute", "write SUM(v.x)"),
    (
        AB + "AGG COUNT «RETURN a.n»",
        "RETURN and AGG cannot stand together",
        "name the columns in AGG and GROUP BY with AS",
    ),
    (AB + "AGG COUNT «OUTPUT FIRST»", "OUTPUT FIRST and AGG cannot stand together", None),
    (AB + "AGG COUNT WITHIN 1 s «THRESHOLD 0.5»", "THRESHOLD and AGG cannot stand together", None),
    (AB + "AGG COUNT «WITHIN 5 EVENTS»", "AGG needs a window in time, not in events", "write WITHIN with a duration"),
    (AB + "GROUP BY «n»", "GROUP BY needs AGG", "add AGG COUNT, or test [attr] in WHERE"),
    (AB + "HAVING «count > 3»", "HAVING needs AGG", "a condition on single matches belongs into WHERE"),
    ("«PATTERN SEQ(Shelf a, Exit b) EMIT ON CHANGE»", "EMIT ON CHANGE needs AGG", None),
    (AB + "«OUTPUT BEST»", "OUTPUT BEST needs THRESHOLD", None),
]

INCOMPLETE = [
    (AB + "WITHIN 3 s THRESHOLD «2»", "a threshold is a number from 0 to 1", None),
    (
        "SEQUENCE (x, «!y») WHERE x.code = '1' AND y.code = '2' WITHIN 3 s THRESHOLD 0.5",
        "with THRESHOLD the last component must be positive",
        "it is the one that is always observed",
    ),
    ("PATTERN SEQ(«Shelf+ a[]», Exit b) WITHIN 3 s THRESHOLD 0.5", "with THRESHOLD a component cannot have +", None),
    (
        AB + "WHERE «skip_till_next_match(a, b)» {} WITHIN 3 s THRESHOLD 0.5",
        "with THRESHOLD the strategy is skip_till_any_match",
        "leave the strategy out",
    ),
    (AB + "«THRESHOLD 0.5»", "THRESHOLD needs WITHIN in time", "add WITHIN with a duration, such as WITHIN 12 hours"),
    (AB + "WITHIN 3 s THRESHOLD 0.5 «OUTPUT FIRST»", "OUTPUT FIRST cannot stand with THRESHOLD", None),
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
        "the default leads back to itself",
        "let it end at the last component, which is never missing",
    ),
    (
        AB + "WHERE a.tag[b.tag] = b.tag AND «a.tag['x']» = b.tag",
        "'a.tag' has two different defaults",
        "give it the same default everywhere",
    ),
    (AB + "WHERE «a.tag[5]» = b.tag", "cannot combine a string with an integer", "write '5' in quotes"),
    (AB + "WHERE a.n[«1.5»] = b.n", "the default is a double, and the attribute an integer", None),
    (
        "PATTERN SEQ(Shelf a, !(Exit c), Exit b) WHERE «c.tag[b.tag]» = b.tag",
        "a negated component takes no default in brackets",
        "a default is for one event that may be missing",
    ),
    (
        KLEENE + "WHERE «a.tag[b[1].tag]» = 'x'",
        "a component with + takes no default in brackets",
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
        "no two events lie as far apart as this window is long",
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
        "a window is a duration or a whole number of ticks",
        "write WITHIN 12 hours, or a whole number of ticks",
    ),
    ("WITHIN «:p» EVENTS", {"p": "x"}, "a window in events is a whole number", "write WITHIN 50 EVENTS"),
    ("WITHIN 5 THRESHOLD «:p»", {"p": "x"}, "a threshold is a number from 0 to 1", None),
    ("WITHIN 5 THRESHOLD «:p»", {"p": float("nan")}, "a threshold is a number from 0 to 1", None),
]

SCRIPTS = [
    (
        "«one: PATTERN SEQ(Shelf a, Exit b) INTO input»;",
        "'input' is the primary stream, so nothing can go INTO it",
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


def marked(text: str) -> tuple[str, int, int]:
    start = text.index("«")
    return text.replace("«", "").replace("»", ""), start, text.index("»") - 1


def check(error: QueryError, message: str, hint: str | None, start: int, end: int) -> None:
    assert (error.message, error.hint) == (message, hint)
    assert (error.start, error.end) == (start, end)


@pytest.mark.parametrize(("text", "message", "hint"), [*NAMES, *INDEXES, *TYPES, *CLAUSES, *INCOMPLETE])
def test_mistakes_in_queries(text: str, message: str, hint: str | None) -> None:
    plain, start, end = marked(text)
    with pytest.raises(QueryError) as caught:
        bound(plain)
    check(caught.value, message, hint, start, end)


@pytest.mark.parametrize(("text", "params", "message", "hint"), PARAMETERS)
def test_mistakes_in_parameters(text: str, params: dict[str, Any], message: str, hint: str | None) -> None:
    plain, start, end = marked(AB + text)
    with pytest.raises(QueryError) as caught:
        bound(plain, params=params)
    check(caught.value, message, hint, start, end)


@pytest.mark.parametrize(("text", "message", "hint"), SCRIPTS)
def test_mistakes_in_scripts(text: str, message: str, hint: str | None) -> None:
    plain, start, end = marked(text)
    with pytest.raises(QueryError) as caught:
        bound_script(plain)
    check(caught.value, message, hint, start, end)


def test_unused_parameter() -> None:
    with pytest.raises(QueryError) as caught:
        bound(AB + "WHERE a.n > :limit", params={"limit": 3, "limits": 4})
    assert caught.value.message == "the parameter 'limits' is given but not used"
    assert caught.value.hint == "did you mean 'limit'?"


def test_mistakes_that_depend_on_the_input() -> None:
    one_table = catalog_for(schema={"n": "int", "ts": "int"}, time="ts")
    for text, catalog, message, hint in (
        (AB + "WHERE «a.m» > 3", one_table, "the input has no column 'm'", None),
        (
            AB + "WITHIN «5 s»",
            Catalog(common={"n": INT}, time=BARE_TICKS),
            "a duration has no meaning where the time column is a bare number",
            "give time_unit=, for example time_unit='s', or write a number of ticks",
        ),
        (
            "SEQUENCE (x, y) WHERE «x.n» = 3",
            Catalog(declared={"Pair": {"m": INT}}, common={"n": INT}),
            "event type 'Pair' has no attribute 'n', which other types have",
            "name the types of 'x' with ANY(…)",
        ),
    ):
        plain, start, end = marked(text)
        with pytest.raises(QueryError) as caught:
            bound(plain, catalog)
        check(caught.value, message, hint, start, end)
    with pytest.raises(QueryError, match="a query on a stream needs WITHIN, else its state grows for ever"):
        bound(AB, streaming=True)


def single(where: syntax.Expr) -> Query:
    pattern = Pattern(Notation.PATTERN, (Component((TypeName("Shelf"),), "a"),), bare=True)
    return Query(pattern, where=where)


def test_trees_that_the_parser_would_refuse() -> None:
    """The binder does not rely on the parser: trees may be built by hand."""
    deep: syntax.Expr = Literal(True)
    for _ in range(3_000):
        deep = syntax.Unary("NOT", deep)
    name = Reference(("a", "tag"))
    many = tuple(Component((TypeName("Shelf"),), f"v{i}") for i in range(65))
    pattern = single(Literal(True)).pattern
    kleene = Component((TypeName("Exit"),), "b", kleene=True, negated=True)
    cases: list[tuple[Query, str]] = [
        (single(deep), "the query is nested more than 150 levels deep"),
        (single(syntax.Like(name, Literal("x"), escape="ab")), "the escape of LIKE must be one character"),
        (single(syntax.Binary("=", syntax.Duration(3, "parsecs"), Literal(1))), "there is no unit of time 'parsecs'"),
        (
            single(syntax.Binary("=", syntax.Temporal(syntax.TemporalKind.DATE, "2024-02-31"), Literal(None))),
            "'2024-02-31' is not a date",
        ),
        (single(syntax.Unary("-", syntax.Unary("-", Literal(2**63)))), "the integer does not fit into 64 bits"),
        (Query(Pattern(Notation.PATTERN, many)), "a pattern may have 64 components at most"),
        (Query(Pattern(Notation.PATTERN, (pattern.components[0], kleene))), "+ cannot stand under a negation"),
        (Query(pattern, within=syntax.Within(name)), "only a literal or a parameter can stand here"),
        (
            Query(pattern, within=syntax.Within(Literal(Decimal("1.5")))),
            "a window is a duration or a whole number of ticks",
        ),
        (Query(pattern, aggregates=(syntax.Aggregate("sum"),)), "SUM needs an attribute"),
    ]
    for query, message in cases:
        with pytest.raises(QueryError) as caught:
            bind(query, "", SHOP)
        assert caught.value.message == message


def test_two_queries_of_one_name() -> None:
    query = single(Literal(True))
    named = syntax.Script(
        (syntax.Query(query.pattern, name="q"), syntax.Query(query.pattern, name="q", span=Span(1, 2)))
    )
    with pytest.raises(QueryError, match="two queries are named 'q'"):
        ouzel.bind.bind_script(named, "   ", SHOP)


def test_conditions_that_explode() -> None:
    pair = "(a.n = 1 AND b.n = 1)"
    assert len(bound(AB + "WHERE " + " OR ".join(f"(a.n = {i} AND b.n = {i})" for i in range(10))).conjuncts) == 1_024
    with pytest.raises(QueryError, match="in conjunctive form the condition has more than 5,000 parts or 50,000 tests"):
        bound(AB + "WHERE " + " OR ".join([pair] * 20))
    nested = "a.n"
    for _ in range(20):
        nested = f"CASE {nested} WHEN 1 THEN 2 WHEN 2 THEN 3 END"
    with pytest.raises(QueryError, match="the operand of CASE is too large"):
        bound(AB + f"WHERE {nested} = 1")


def test_long_names_are_cut() -> None:
    with pytest.raises(QueryError) as caught:
        bound(AB + f"WHERE a.{'x' * 5_000} = 1")
    assert len(caught.value.message) < 200


# ── No message is missing above ────────────────────────────────────────────────────────────────────


def places_of_mistakes() -> Iterator[tuple[str, int, int]]:
    """Every call of `mistake(…)` in the binder's sources, as file, first and last line."""
    for path in sorted(Path(ouzel.bind.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "mistake":
                yield path.name, node.lineno, node.end_lineno or node.lineno


def test_every_message_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    made: set[tuple[str, int]] = set()
    original = mistakes.Source.mistake

    def recording(self: mistakes.Source, message: str, where: Span, hint: str | None = None) -> QueryError:
        caller = sys._getframe(1)
        made.add((Path(caller.f_code.co_filename).name, caller.f_lineno))
        return original(self, message, where, hint)

    monkeypatch.setattr(mistakes.Source, "mistake", recording)
    for text, *_ in [*NAMES, *INDEXES, *TYPES, *CLAUSES, *INCOMPLETE]:
        with pytest.raises(QueryError):
            bound(marked(text)[0])
    for text, params, *_ in PARAMETERS:
        with pytest.raises(QueryError):
            bound(marked(AB + text)[0], params=params)
    for text, *_ in SCRIPTS:
        with pytest.raises(QueryError):
            bound_script(marked(text)[0])
    for test in (
        test_mistakes_that_depend_on_the_input,
        test_trees_that_the_parser_would_refuse,
        test_two_queries_of_one_name,
        test_conditions_that_explode,
    ):
        test()
    silent = [
        f"{file}:{first}"
        for file, first, last in places_of_mistakes()
        if not any(name == file and first <= line <= last for name, line in made)
    ]
    assert silent == []


def test_declared_names_are_not_types() -> None:
    """With types declared by name only, attributes have no type yet and everything is allowed of them."""
    catalog = catalog_for({"Shelf": ["n"], "Exit": ["n"]})
    assert bound(AB + "WHERE a.n = 'x' AND b.n > 5", catalog).conjuncts
