"""The functions of expressions, "with the meaning that Spark gives them". All but coalesce, greatest, least, nullif, if
and isnan give null if an argument is null."""

from __future__ import annotations

import datetime
import functools
import ipaddress
import math
import re
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any

import numpy

from tests.oracle.values import EPOCH, EXACT, checked, compare, microseconds, settled


def call(function: str, arguments: Sequence[Any], ticks_per_second: int | None) -> Any:
    name = ALIASES.get(function, function)
    values = settled(*arguments)
    if name == "coalesce":
        return next((value for value in values if value is not None), None)
    if name in ("greatest", "least"):
        return _extreme(name, values, ticks_per_second)
    if name == "nullif":
        return None if compare(values[0], values[1], ticks_per_second) == 0 else values[0]
    if name == "if":
        return values[1] if values[0] is True else values[2]
    if name == "isnan":
        return isinstance(values[0], float) and math.isnan(values[0])
    if any(value is None for value in values):
        return None
    if name in CALENDAR:
        return CALENDAR[name](_moment(values[0], ticks_per_second))
    if name in DOUBLES:
        with numpy.errstate(all="ignore"):
            result = DOUBLES[name](*(numpy.float64(float(value)) for value in values))
        return None if result is None else float(result)
    return checked(FUNCTIONS[name](*values))


def _extreme(function: str, values: Sequence[Any], ticks_per_second: int | None) -> Any:
    """Nulls are skipped; null only if all are."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    if any(isinstance(value, float) for value in present):
        present = [float(value) for value in present]
    by_order = functools.cmp_to_key(lambda left, right: compare(left, right, ticks_per_second) or 0)
    return max(present, key=by_order) if function == "greatest" else min(present, key=by_order)


def like(text: str | None, pattern: str | None, escape: str) -> bool | None:
    """`%` any characters, `_` one character; the escape makes the next character plain."""
    if text is None or pattern is None:
        return None
    expression, characters = "", iter(pattern)
    for character in characters:
        if character == escape:
            expression += re.escape(next(characters))
        elif character in "%_":
            expression += ".*" if character == "%" else "."
        else:
            expression += re.escape(character)
    return re.fullmatch(expression, text, re.DOTALL) is not None


def _substring(text: str, position: int, length: int | None = None) -> str:
    """Positions count from 1, 0 is read as 1, negative ones count from the end."""
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = len(text) if length is None else start + length
    return text[max(start, 0) : max(end, 0)]


def _round(value: Any, digits: int = 0) -> Any:
    """Half away from zero. Doubles are rounded as they are written in decimal, decimals never get more digits."""
    if isinstance(value, float) and not math.isfinite(value):
        return value
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    exponent = exact.as_tuple().exponent
    assert isinstance(exponent, int)
    if -digits <= exponent:
        return value
    rounded = exact.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP, context=EXACT)
    return type(value)(rounded.quantize(Decimal(1), context=EXACT) if digits < 0 else rounded)


def _whole(rounding: str) -> Callable[[Any], Any]:
    """floor, ceil and bigint give integers of doubles (null where there is none); floor and ceil of a decimal are
    decimals."""

    def whole(value: Any) -> Any:
        if isinstance(value, int):
            return value
        if isinstance(value, float):
            return int(Decimal(value).to_integral_value(rounding)) if math.isfinite(value) else None
        return value.to_integral_value(rounding, context=EXACT)

    return whole


def _bits(text: str) -> str:
    """An address as a text of 32 or 128 bits."""
    return format(int(ipaddress.ip_address(text)), "032b" if "." in text and ":" not in text else "0128b")


def _is_inside(text: str, network: str) -> bool:
    """The first bits of the address are those of the network."""
    base, _, bits = network.partition("/")
    try:
        address = _bits(text)
    except ValueError:
        return False
    wanted = _bits(base)
    length = int(bits) if bits else len(wanted)
    return len(address) == len(wanted) and address[:length] == wanted[:length]


def _text(value: Any) -> str:
    """As Spark's cast to string: doubles as Java writes them, times without the zeros at the end of the fraction."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds").rstrip("0").rstrip(".")
    if not isinstance(value, float):
        return f"{value:f}" if isinstance(value, Decimal) else str(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return format(Decimal(repr(value)), "f")
    digits, _, exponent = f"{Decimal(repr(value)):E}".partition("E")
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{digits}{'' if '.' in digits else '.0'}E{int(exponent)}"


def _bigint(value: Any) -> int | None:
    whole = _whole(ROUND_DOWN)(value)
    return None if whole is None else int(whole)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "bigint": _bigint,
    "ceil": _whole(ROUND_CEILING),
    "concat": lambda *texts: "".join(texts),
    "contains": lambda text, part: part in text,
    "endswith": str.endswith,
    "floor": _whole(ROUND_FLOOR),
    "cidr_match": lambda text, *networks: any(_is_inside(text, network) for network in networks),
    "ilike": lambda text, pattern: like(text.lower(), pattern.lower(), "\\"),
    "rlike": lambda text, expression: re.search(expression, text) is not None,
    "string": lambda value: _text(value),
    "instr": lambda text, part: text.find(part) + 1,
    "length": len,
    "size": len,
    "lower": str.lower,
    "ltrim": lambda text: text.lstrip(" "),
    "replace": lambda text, search, replacement: text.replace(search, replacement) if search else text,
    "round": _round,
    "rtrim": lambda text: text.rstrip(" "),
    "startswith": str.startswith,
    "substring": _substring,
    "trim": lambda text: text.strip(" "),
    "upper": str.upper,
}

# Over numpy's doubles, which give NaN and infinity where Python raises errors.
DOUBLES: dict[str, Callable[..., Any]] = {
    "double": lambda x: x,
    "exp": numpy.exp,
    "ln": lambda x: None if x <= 0 else numpy.log(x),
    "log10": lambda x: None if x <= 0 else numpy.log10(x),
    "power": numpy.power,
    "sign": numpy.sign,
    "sqrt": numpy.sqrt,
}

CALENDAR: dict[str, Callable[[datetime.datetime], Any]] = {
    "year": lambda moment: moment.year,
    "month": lambda moment: moment.month,
    "day": lambda moment: moment.day,
    "dayofweek": lambda moment: moment.isoweekday() % 7 + 1,
    "hour": lambda moment: moment.hour,
    "minute": lambda moment: moment.minute,
    "second": lambda moment: moment.second,
    "to_date": lambda moment: moment.date(),
}

ALIASES = {
    "array_size": "size",
    "regexp": "rlike",
    "regexp_like": "rlike",
    "ceiling": "ceil",
    "char_length": "length",
    "character_length": "length",
    "dayofmonth": "day",
    "ifnull": "coalesce",
    "nvl": "coalesce",
    "pow": "power",
    "signum": "sign",
    "substr": "substring",
}


def _moment(value: Any, ticks_per_second: int | None) -> datetime.datetime:
    """The calendar of a time: in its own zone, or as written where it has none. Ticks count from 1970."""
    if isinstance(value, datetime.datetime):
        return value
    return EPOCH + datetime.timedelta(microseconds=int(microseconds(value, ticks_per_second) // 1))
