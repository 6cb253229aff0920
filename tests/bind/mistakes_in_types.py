"""Mistakes in types and values: the query with its mistake between « and », the sentence, and the hint."""

from __future__ import annotations

from ouzel.bind.functions import LENGTHS_HINT
from tests.bind.mistakes_in_names import AB, KLEENE

TEXT = "if you mean numbers, convert the column first: one value that is not a number makes it text"
TYPES = [
    (
        AB + "WHERE «a.n > 'x'»",
        "cannot compare an integer with a string",
        "'x' is text, and the other side is a number; did you mean another column?",
    ),
    (AB + "WHERE «a.n > '7'»", "cannot compare an integer with a string", "write 7 without quotes"),
    (AB + "WHERE «a.tag = 5»", "cannot compare a string with an integer", f"write '5' in quotes; {TEXT}"),
    (AB + "WHERE «a.tag = a.n»", "cannot compare a string with an integer", "convert one of the columns first"),
    (AB + "WHERE «a.tag IN ('x', 5)»", "cannot compare a string with an integer", f"write '5' in quotes; {TEXT}"),
    (AB + "WHERE «a.tag BETWEEN 1 AND 2»", "cannot compare a string with an integer", f"write '1' in quotes; {TEXT}"),
    (AB + "WHERE «a.ok = 1»", "cannot compare a boolean with an integer", "write TRUE or FALSE"),
    (AB + "WHERE «a.ok = 'true'»", "cannot compare a boolean with a string", "write TRUE or FALSE"),
    (AB + "WHERE «a.weight > '-7.5'»", "cannot compare a double with a string", "write -7.5 without quotes"),
    (AB + "WHERE «1 = 'x'»", "cannot compare an integer with a string", None),
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
    (
        AB + "WHERE «a.tags» = b.n",
        "a list cannot be compared",
        "write x IN v.list, any(v.list, t -> t > 3) or size(v.list)",
    ),
    (AB + "WHERE «a.odd» = b.n", "a map or time of day cannot be compared, only returned", None),
    (
        AB + "WHERE any(«a.n», t -> t > 1)",
        "any takes a list here, got an integer",
        "write single values in parentheses: x IN (1, 2)",
    ),
    (
        AB + "WHERE 1 IN «a.n»",
        "IN takes a list here, got an integer",
        "write single values in parentheses: x IN (1, 2)",
    ),
    (AB + "WHERE size(«a.tag») > 1", "size takes a list here, got a string", LENGTHS_HINT),
    (AB + "WHERE «any(a.tags)»", "any takes a list and a condition on its elements", "write any(v.list, t -> t > 3)"),
    (AB + "WHERE «any(a.tags, b -> b = 'x')»", "'b' is already a variable", "give the element another name"),
    (AB + "WHERE any(a.tags, t -> «t.x» = 1)", "'t' is a string and has no field 'x'", None),
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
    (AB + "WHERE «a.n»", "a condition must be true or false, got an integer", None),
    (AB + "WHERE NOT «a.tag»", "a condition must be true or false, got a string", None),
    (AB + "WHERE «a.tag» + 1 > 2", "cannot compute with a string", "concat(…) joins strings"),
    (AB + "WHERE a.n * «a.ok» > 2", "cannot compute with a boolean", None),
    (AB + "WHERE «-a.tag» = 2", "cannot negate a string", None),
    (
        AB + "WHERE «a.at * 2» = a.at",
        "cannot compute a timestamp * an integer",
        "subtract two times, or add a duration or a whole number of ticks to one",
    ),
    (AB + "WHERE lower(«a.n») = 'x'", "lower takes a string here, got an integer", None),
    (AB + "WHERE hour(«a.day») = 1", "hour takes a timestamp here, got a date", None),
    (AB + "WHERE round(a.weight, «a.n») = 1", "round takes a literal from -30 to 30 here", None),
    (AB + "WHERE a.tag LIKE «b.tag»", "the pattern of LIKE must be a literal or a parameter", None),
    (AB + "WHERE ilike(a.tag, «b.tag»)", "ilike takes a pattern as a literal or parameter here", None),
    (AB + "WHERE rlike(a.tag, «'('»)", "rlike cannot read '(': missing ): (", None),
    (
        AB + "WHERE cidr_match(a.tag, «'10.0.0.0/99'»)",
        "cidr_match cannot read '10.0.0.0/99': a network is an address and a number of bits, such as '10.0.0.0/8' or "
        "'2001:db8::/32'",
        None,
    ),
    (AB + "WHERE a.tag LIKE «'a\\b'»", "in LIKE the escape '\\' must come before %, _ or itself", None),
    (AB + "WHERE «CASE WHEN a.ok THEN 1 ELSE 'x' END» = 1", "cannot combine an integer with a string", None),
    (
        AB + "WHERE a.n = «9223372036854775808»",
        "the integer does not fit into 64 bits",
        "write it with a point to make it a double",
    ),
    (AB + "WHERE a.weight = «1e309»", "the number is too large for a double", None),
    (
        AB + "WHERE a.price = «1234567890123456789.5»",
        "a number with a decimal can have at most 18 digits",
        None,
    ),
    (
        AB + "WHERE «a.price * 0.12345678901234567» > 1",
        "the product of decimals would have 19 digits after the point",
        "use double(…) on one of them",
    ),
    (
        AB + "WHERE «a.at - b.at > 5»",
        "cannot compare a duration with an integer",
        "write the number with a unit, such as 5 min; a parameter is a timedelta",
    ),
    (
        AB + "WHERE «(a.at - b.at) * 1.5» > 5 s",
        "cannot compute a duration * a double",
        "divide a duration by another one to get a number, as in (b.time - a.time) / 1 s",
    ),
    (
        AB + "WHERE sqrt(«a.at - b.at») > 5",
        "sqrt takes a number, made a double here, got a duration",
        "divide a duration by another one to get a number, as in (b.time - a.time) / 1 s",
    ),
    (
        KLEENE + "WHERE avg(«a[].at - a[].at») > 5 s",
        "cannot add up a duration in avg(…)",
        "divide a duration by another one to get a number, as in (b.time - a.time) / 1 s",
    ),
    (AB + "WHERE a.at - b.at > «0.0001 ms»", "the duration must be a whole number of ticks", None),
    (AB + "WHERE a.day + «5 h» > b.at", "the duration must be a whole number of ticks", None),
    (AB + "WHERE a.at - b.at > «0.0000000001 s»", "the duration must be a whole number of nanoseconds", None),
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
