"""The functions of expressions, "with the meaning that Spark gives them". All but coalesce, greatest and least give
null if an argument is null."""

from __future__ import annotations

import datetime
import functools
import math
import re
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any

from tests.oracle.values import EPOCH, EXACT, checked, compare, microseconds, settled


def call(function: str, arguments: Sequence[Any], ticks_per_second: int | None) -> Any:
    values = settled(*arguments)
    if function == "coalesce":
        return next((value for value in values if value is not None), None)
    if function in ("greatest", "least"):
        return _extreme(function, values, ticks_per_second)
    if any(value is None for value in values):
        return None
    if function in CALENDAR:
        return CALENDAR[function](_moment(values[0], ticks_per_second))
    return checked(FUNCTIONS[function](*values))


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
    """Half away from zero. Doubles are rounded as they are written in decimal."""
    if isinstance(value, float) and not math.isfinite(value):
        return value
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    rounded = exact.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP, context=EXACT)
    return type(value)(rounded)


def _whole(rounding: str) -> Callable[[Any], Any]:
    """floor and ceil give integers of doubles (null where there is none), and decimals of decimals."""

    def whole(value: Any) -> Any:
        if isinstance(value, int):
            return value
        if isinstance(value, float):
            return int(Decimal(value).to_integral_value(rounding)) if math.isfinite(value) else None
        return value.to_integral_value(rounding, context=EXACT)

    return whole


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "ceil": _whole(ROUND_CEILING),
    "concat": lambda *texts: "".join(texts),
    "floor": _whole(ROUND_FLOOR),
    "length": len,
    "lower": str.lower,
    "ltrim": lambda text: text.lstrip(" "),
    "round": _round,
    "rtrim": lambda text: text.rstrip(" "),
    "substring": _substring,
    "trim": lambda text: text.strip(" "),
    "upper": str.upper,
}

CALENDAR: dict[str, Callable[[datetime.datetime], int]] = {
    "year": lambda moment: moment.year,
    "month": lambda moment: moment.month,
    "day": lambda moment: moment.day,
    "hour": lambda moment: moment.hour,
    "minute": lambda moment: moment.minute,
    "second": lambda moment: moment.second,
}


def _moment(value: Any, ticks_per_second: int | None) -> datetime.datetime:
    """The calendar of a time, in UTC; ticks count from 1970."""
    return EPOCH + datetime.timedelta(microseconds=int(microseconds(value, ticks_per_second) // 1))
