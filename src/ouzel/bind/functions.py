"""The functions of the language, which mean what they mean in Spark. All other code and docs follow this list.

The binder checks calls against it, the evaluators implement each of its names, and `functions_page()` makes
`docs/functions.md` from it. A null argument gives null, except in coalesce, greatest, least, if, nullif and isnan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from ouzel.bind.literals import DECIMAL_DIGITS_MAX
from ouzel.bind.model import BOOL, DATE, FLOAT, INT, STRING, UNKNOWN, Bound, Constant, Kind, Type


class Accepts(Enum):
    """Which types an argument may have."""

    STRING = "a string"
    LIKE_PATTERN = "a pattern as a literal or parameter"
    REGULAR_EXPRESSION = "a regular expression as a literal or parameter"
    NETWORK = "a network as a literal or parameter, such as '10.0.0.0/8'"
    VALUE = "a string, number, boolean, date or timestamp"
    NUMBER = "a number"
    NUMBER_OR_DURATION = "a number or a duration"
    DOUBLE = "a number, made a double"
    INTEGER = "an integer"
    INTEGER_CONSTANT = "an integer literal or parameter"
    DATE_OR_TIMESTAMP = "a date or timestamp"
    TIMESTAMP = "a timestamp"
    CONDITION = "a condition"
    LIST = "a list"
    ELEMENT = "a value of the type of the list's elements"
    ALIKE = "of the same type as the others"  # brought to the common type of all such arguments
    ORDERED = "of the same type as the others, with an order"


@dataclass(frozen=True, slots=True)
class Function:
    """One function. The `arguments` after the first `required` are optional. The last one may be repeated if
    `repeats`.
    """

    name: str
    signature: str
    arguments: tuple[Accepts, ...]
    result: Callable[[Sequence[Bound]], Type]
    doc: str
    required: int
    repeats: bool = False
    aliases: tuple[str, ...] = ()


def _always(kind: Type) -> Callable[[Sequence[Bound]], Type]:
    return lambda operands: kind


def _as_first(operands: Sequence[Bound]) -> Type:
    return operands[0].type


def _as_second(operands: Sequence[Bound]) -> Type:
    return operands[1].type


def _whole(operands: Sequence[Bound]) -> Type:
    """The type of floor and ceil: an integer, or for decimals a decimal of scale 0."""
    kind = operands[0].type
    if kind.kind is Kind.UNKNOWN:
        return UNKNOWN
    if kind.kind is Kind.DECIMAL:
        return Type(Kind.DECIMAL, precision=min(DECIMAL_DIGITS_MAX, kind.precision - kind.scale + 1), scale=0)
    return INT


def _rounded(operands: Sequence[Bound]) -> Type:
    kind = operands[0].type
    if kind.kind is not Kind.DECIMAL:
        return kind
    digits = operands[1] if len(operands) > 1 else None
    value = digits.value if isinstance(digits, Constant) and isinstance(digits.value, int) else 0
    scale = min(kind.scale, max(0, value))
    precision = max(kind.precision - kind.scale + 1, 1 - value if value < 0 else 0) + scale
    return Type(Kind.DECIMAL, precision=min(DECIMAL_DIGITS_MAX, precision), scale=scale)


def _function(
    signature: str,
    arguments: Sequence[Accepts],
    result: Type | Callable[[Sequence[Bound]], Type],
    doc: str,
    *,
    required: int | None = None,
    repeats: bool = False,
    aliases: tuple[str, ...] = (),
) -> Function:
    return Function(
        name=signature.partition("(")[0],
        signature=signature,
        arguments=tuple(arguments),
        result=_always(result) if isinstance(result, Type) else result,
        doc=doc,
        required=len(arguments) if required is None else required,
        repeats=repeats,
        aliases=aliases,
    )


_TEXT, _NUMBER, _DOUBLE = Accepts.STRING, Accepts.NUMBER, Accepts.DOUBLE
_MOMENT, _ALIKE = Accepts.DATE_OR_TIMESTAMP, Accepts.ALIKE

FUNCTION_GROUPS: dict[str, tuple[Function, ...]] = {
    "Strings": (
        _function("lower(text)", [_TEXT], STRING, "the text in lower case"),
        _function("upper(text)", [_TEXT], STRING, "the text in upper case"),
        _function(
            "length(text)", [_TEXT], INT, "the number of characters", aliases=("char_length", "character_length")
        ),
        _function("concat(text, …)", [_TEXT], STRING, "the texts one after the other", repeats=True),
        _function(
            "substring(text, position[, length])",
            [_TEXT, Accepts.INTEGER, Accepts.INTEGER],
            STRING,
            "the characters from a position on, counted from 1, from the end if negative; without a length, all",
            required=2,
            aliases=("substr",),
        ),
        _function("trim(text)", [_TEXT], STRING, "the text without spaces at either end"),
        _function("ltrim(text)", [_TEXT], STRING, "the text without spaces at its start"),
        _function("rtrim(text)", [_TEXT], STRING, "the text without spaces at its end"),
        _function(
            "replace(text, search, replacement)",
            [_TEXT, _TEXT, _TEXT],
            STRING,
            "the text with every occurrence replaced; an empty search changes nothing",
        ),
        _function("startswith(text, prefix)", [_TEXT, _TEXT], BOOL, "whether the text begins so"),
        _function("endswith(text, suffix)", [_TEXT, _TEXT], BOOL, "whether the text ends so"),
        _function("contains(text, part)", [_TEXT, _TEXT], BOOL, "whether the part occurs in the text"),
        _function(
            "instr(text, part)", [_TEXT, _TEXT], INT, "where the part first occurs, counted from 1; 0 if nowhere"
        ),
        _function(
            "rlike(text, expression)",
            [_TEXT, Accepts.REGULAR_EXPRESSION],
            BOOL,
            "whether a part of the text matches a regular expression, in the syntax of RE2",
            aliases=("regexp_like", "regexp"),
        ),
        _function(
            "ilike(text, pattern)",
            [_TEXT, Accepts.LIKE_PATTERN],
            BOOL,
            "LIKE, where upper and lower case are the same",
        ),
        _function(
            "cidr_match(address, network, …)",
            [_TEXT, Accepts.NETWORK],
            BOOL,
            "whether an IPv4 or IPv6 address is in one of the networks; false for a text that is not an address",
            repeats=True,
        ),
        _function(
            "string(x)",
            [Accepts.VALUE],
            STRING,
            "the value as text, as `cast(x AS string)` does; a timestamp is in its own zone",
        ),
    ),
    "Lists": (
        _function(
            "any(list, t -> condition)",
            [Accepts.LIST, Accepts.CONDITION],
            BOOL,
            "whether the condition holds for an element, which it names t; a field of a struct is t.x",
            aliases=("exists",),
        ),
        _function(
            "array_contains(list, x)",
            [Accepts.LIST, Accepts.ELEMENT],
            BOOL,
            "whether an element is x; also written `x IN list` or `contains(list, x)`",
        ),
        _function("size(list)", [Accepts.LIST], INT, "the number of elements", aliases=("array_size",)),
    ),
    "Numbers": (
        _function(
            "abs(x)", [Accepts.NUMBER_OR_DURATION], _as_first, "the absolute value; null for the smallest integer"
        ),
        _function("sign(x)", [_DOUBLE], FLOAT, "-1.0, 0.0 or 1.0", aliases=("signum",)),
        _function(
            "round(x[, digits])",
            [_NUMBER, Accepts.INTEGER_CONSTANT],
            _rounded,
            "rounded to digits after the point, 0 by default, halves away from zero",
            required=1,
        ),
        _function("floor(x)", [_NUMBER], _whole, "the largest whole number not above x; null beyond 64 bits"),
        _function(
            "ceil(x)",
            [_NUMBER],
            _whole,
            "the smallest whole number not below x; null beyond 64 bits",
            aliases=("ceiling",),
        ),
        _function("sqrt(x)", [_DOUBLE], FLOAT, "the square root; NaN for negative numbers"),
        _function("exp(x)", [_DOUBLE], FLOAT, "e to the power of x"),
        _function("ln(x)", [_DOUBLE], FLOAT, "the natural logarithm; null for zero and below"),
        _function("log10(x)", [_DOUBLE], FLOAT, "the logarithm to base 10; null for zero and below"),
        _function("power(x, y)", [_DOUBLE, _DOUBLE], FLOAT, "x to the power of y", aliases=("pow",)),
        _function("isnan(x)", [_DOUBLE], BOOL, "whether x is NaN; false for null"),
        _function("double(x)", [_DOUBLE], FLOAT, "the number as a double"),
        _function(
            "bigint(x)",
            [_NUMBER],
            INT,
            "the number as an integer, as `cast(x AS integer)` does: cut at the point; null beyond 64 bits",
        ),
    ),
    "Dates and times": (
        _function("year(t)", [_MOMENT], INT, "the year"),
        _function("month(t)", [_MOMENT], INT, "the month, 1 to 12"),
        _function("day(t)", [_MOMENT], INT, "the day of the month", aliases=("dayofmonth",)),
        _function("dayofweek(t)", [_MOMENT], INT, "the day of the week, 1 for Sunday to 7 for Saturday"),
        _function("hour(t)", [Accepts.TIMESTAMP], INT, "the hour, 0 to 23"),
        _function("minute(t)", [Accepts.TIMESTAMP], INT, "the minute"),
        _function("second(t)", [Accepts.TIMESTAMP], INT, "the whole second"),
        _function("to_date(t)", [_MOMENT], DATE, "the day of a timestamp"),
    ),
    "Conditions and nulls": (
        _function(
            "coalesce(x, …)", [_ALIKE], _as_first, "the first that is not null", repeats=True, aliases=("nvl", "ifnull")
        ),
        _function("nullif(x, y)", [_ALIKE, _ALIKE], _as_first, "null if the two are equal, else x"),
        _function(
            "if(condition, x, y)", [Accepts.CONDITION, _ALIKE, _ALIKE], _as_second, "x if the condition is true, else y"
        ),
        _function(
            "greatest(x, y, …)",
            [Accepts.ORDERED, Accepts.ORDERED],
            _as_first,
            "the largest that is not null; NaN is largest",
            repeats=True,
        ),
        _function(
            "least(x, y, …)",
            [Accepts.ORDERED, Accepts.ORDERED],
            _as_first,
            "the smallest that is not null",
            repeats=True,
        ),
    ),
}

FUNCTIONS: dict[str, Function] = {
    name: function
    for group in FUNCTION_GROUPS.values()
    for function in group
    for name in (function.name, *function.aliases)
}

_ELAPSED = "subtract the times: b.time - a.time < 5 min"
LENGTHS_HINT = "v.LEN is the number of events of v, length(text) the number of characters, size(list) of elements"
_CLOCK = "a query reads no clock; give the time as a parameter"
# Hints for functions of other languages.
OTHER_NAMES = {
    "len": LENGTHS_HINT,
    **dict.fromkeys(("prev", "previous", "lag"), "v[i-1].x is the event before v[i] in a repetition v[]"),
    **dict.fromkeys(("std", "stdev", "stddev_samp", "stddev_pop"), "stddev(v[].x) is the sample standard deviation"),
    **dict.fromkeys(("strlen", "char_count"), "did you mean 'length'?"),
    **dict.fromkeys(("datediff", "date_diff", "timediff", "timestampdiff"), _ELAPSED),
    **dict.fromkeys(("now", "current_timestamp", "getdate"), _CLOCK),
}
EVENT_FUNCTIONS = {
    "time": "the time at which the event occurs, which is its end",
    "start": "when the event starts",
    "end": "when the event ends",
    "type": "the name of the event's type",
}

AGGREGATES = {
    "count": "how many events, or how many values that are not null",
    "sum": "the sum of the values, added left to right",
    "avg": "the mean of the values, a double",
    "min": "the smallest value",
    "max": "the largest value",
    "first": "the first value that is not null",
    "last": "the last value that is not null",
    "count_distinct": "how many different values",
    "stddev": "the sample standard deviation of the values, a double; null for fewer than two",
}


def functions_page() -> str:
    """The text of `docs/functions.md`.

    >>> functions_page().splitlines()[0]
    '# Functions'
    """
    lines = [
        "# Functions",
        "",
        "Functions have the meaning that they have in Spark. A null argument gives null, except in `coalesce`,",
        "`greatest`, `least`, `if`, `nullif` and `isnan`. Overflow gives null. Parts of a timestamp with a zone, such",
        "as the hour, are in that zone. Function names are case-insensitive.",
    ]
    for title, group in FUNCTION_GROUPS.items():
        lines += ["", f"## {title}", "", "| function | gives |", "| --- | --- |"]
        for function in group:
            also = f" (also `{'`, `'.join(function.aliases)}`)" if function.aliases else ""
            lines.append(f"| `{function.signature}`{also} | {function.doc} |")
    lines += ["", "## Events", ""]
    lines += [
        "For an event `v`, or `v[1]`, `v[i]`, `v[i-1]`, `v[v.LEN]` of a component with `+`; also where its type has an"
    ]
    lines += ["attribute of that name, which `v.type` would mean.", "", "| function | gives |", "| --- | --- |"]
    lines += [f"| `{name}(v)` | {doc} |" for name, doc in EVENT_FUNCTIONS.items()]
    lines += ["", "## Aggregates over a component with `+`", ""]
    lines += [
        "Over `v[].attr`, all events of `v`, or `v[..i-1].attr`, those chosen before this one. Nulls are skipped, by"
    ]
    lines += [
        "`first` and `last` too. Over no values the counts are 0 and the others are null.",
        "",
        "| function | gives |",
        "| --- | --- |",
    ]
    written = {"count_distinct": "count(DISTINCT v[].attr)"}
    lines += [f"| `{written.get(name, f'{name}(v[].attr)')}` | {doc} |" for name, doc in AGGREGATES.items()]
    return "\n".join(lines) + "\n"
