"""docs/semantics.md, "Nulls" and "Values": NaN, int64 with overflow to null, exact decimals, and order.

None is null, and unknown as a truth value. Python values stand for themselves: bool, int (as int64), float (double),
Decimal, str, bytes, date, datetime (a zone is optional; without one it is read as UTC).
"""

from __future__ import annotations

import datetime
import math
import uuid
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any, Self

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
DECIMAL_DIGITS_MAX = 18
MICROSECONDS_PER_SECOND = 1_000_000
EXACT = Context(prec=200, rounding=ROUND_HALF_UP)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Point(Decimal):
    """A number literal with a point or an exponent: exact beside a decimal, in all other company a double."""


class Lasting(int):
    """A length of time that knows how long it is: its int is the ticks, which is what it is beside a plain number."""

    seconds: Fraction
    ticks_per_second: int

    @classmethod
    def of(cls, seconds: Fraction, ticks_per_second: int) -> Self:
        exact = seconds * ticks_per_second
        assert exact.denominator == 1, f"{seconds} s is not a whole number of ticks"
        lasting = cls(exact)
        lasting.seconds = seconds
        lasting.ticks_per_second = ticks_per_second
        return lasting

    def timedelta(self) -> datetime.timedelta:
        return datetime.timedelta(microseconds=int(self.seconds * MICROSECONDS_PER_SECOND))


class Elapsed(Lasting):
    """The difference of two timestamps, and what is computed from one: a duration in every company."""

    def __abs__(self) -> Elapsed:
        return Elapsed.of(abs(self.seconds), self.ticks_per_second)


class Moment(int):
    """The ticks of an event's own time, where time is a timestamp."""


Time = datetime.date | Moment


def settled(*values: Any) -> list[Any]:
    """The values with every literal become what its company makes of it."""
    beside_decimal = any(isinstance(v, Decimal) and not isinstance(v, Point) for v in values)
    return [(Decimal(v) if beside_decimal else float(v)) if isinstance(v, Point) else v for v in values]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def in_one_number_type(left: Any, right: Any) -> tuple[Any, Any]:
    """A double beside anything makes doubles of both, as in Spark; a decimal beside an integer makes decimals."""
    left, right = settled(left, right)
    if isinstance(left, float) or isinstance(right, float):
        return float(left), float(right)
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return Decimal(left), Decimal(right)
    return left, right


# ── Comparison ─────────────────────────────────────────────────────────────────────────────────────


def compare(left: Any, right: Any, ticks_per_second: int | None) -> int | None:
    """Negative, zero or positive; None, "a comparison with null is unknown"."""
    if left is None or right is None:
        return None
    if isinstance(left, Lasting) and isinstance(right, Lasting):
        left, right = left.seconds, right.seconds
    elif is_number(left) and is_number(right):
        left, right = in_one_number_type(left, right)
        if isinstance(left, float):
            return _compare_doubles(left, right)
    elif isinstance(left, str) and isinstance(right, str):
        left, right = utf8(left), utf8(right)
    elif isinstance(left, datetime.date) or isinstance(right, datetime.date):
        left, right = microseconds(left, ticks_per_second), microseconds(right, ticks_per_second)
    elif type(left) is not type(right):
        raise TypeError(f"cannot compare {left!r} with {right!r}")
    return int(left > right) - int(left < right)


def _compare_doubles(left: float, right: float) -> int:
    """ "NaN equals NaN, -0.0 equals 0.0"; NaN is greater than every number, as in Spark."""
    if math.isnan(left) or math.isnan(right):
        return int(math.isnan(left)) - int(math.isnan(right))
    return int(left > right) - int(left < right)


def utf8(text: str) -> bytes:
    """Strings are compared as Spark compares them: by their UTF-8 bytes."""
    return text.encode("utf-8", "surrogatepass")


def microseconds(value: Any, ticks_per_second: int | None) -> Fraction:
    """A moment as microseconds since 1970, so that ticks, dates and timestamps can be compared."""
    if isinstance(value, datetime.datetime):
        zoned = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        return Fraction((zoned - EPOCH) // datetime.timedelta(microseconds=1))
    if isinstance(value, datetime.date):
        return Fraction((value - EPOCH.date()).days) * 86_400_000_000
    if isinstance(value, int) and not isinstance(value, bool) and ticks_per_second is not None:
        return Fraction(value * 1_000_000, ticks_per_second)
    raise TypeError(f"{value!r} is no moment in time")


def sort_key(value: Any) -> tuple[Any, ...]:
    """For stream order: "nulls first, NaN last, lists elementwise, maps by sorted key". Structs field by field.

    The second member keeps columns of different types apart, which one column never mixes.
    """
    if value is None:
        return (0,)
    if isinstance(value, bool):
        return (1, "boolean", value)
    if is_number(value):
        is_nan = value != value
        return (1, "number", is_nan, 0 if is_nan else value)
    if isinstance(value, str):
        return (1, "string", utf8(value))
    if isinstance(value, bytes | bytearray):
        return (1, "binary", bytes(value))
    if isinstance(value, datetime.date):
        return (1, "time", microseconds(value, None))
    if isinstance(value, datetime.time | datetime.timedelta | uuid.UUID):
        return (1, type(value).__name__, value)
    if isinstance(value, dict):
        return (1, "struct", [(name, sort_key(field)) for name, field in value.items()])
    if all(isinstance(item, tuple) for item in value):
        return (1, "list", sorted((sort_key(key), sort_key(item)) for key, item in value))
    return (1, "list", [sort_key(item) for item in value])


# ── Arithmetic ─────────────────────────────────────────────────────────────────────────────────────


def checked(value: Any) -> Any:
    """ "Overflow inside an expression gives null." """
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int), "decimals are finite"
        return value if value == 0 or len(digits) + max(0, exponent) <= DECIMAL_DIGITS_MAX else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value if INT64_MIN <= value <= INT64_MAX else None
    return value


def arithmetic(operator: str, left: Any, right: Any, ticks_per_second: int | None) -> Any:
    """`+ - * / %`; null in, null out."""
    if left is None or right is None:
        return None
    if isinstance(left, Time) or isinstance(right, Time):
        return _time_arithmetic(operator, left, right, ticks_per_second)
    if isinstance(left, Elapsed) or isinstance(right, Elapsed):
        return _duration_arithmetic(operator, left, right)
    if operator == "/":
        # "`/` is double"; "division by zero gives null".
        left, right = (float(v) for v in settled(left, right))
        return None if right == 0 else left / right
    left, right = in_one_number_type(left, right)
    if operator == "%":
        return _remainder(left, right)
    if isinstance(left, Decimal):
        exact = {"+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply}[operator]
        return checked(exact(left, right))
    return checked({"+": left + right, "-": left - right, "*": left * right}[operator])


def _remainder(left: Any, right: Any) -> Any:
    """The sign is the dividend's, as in Spark; by zero it is null."""
    if right == 0:
        return None
    if isinstance(left, float):
        return math.nan if math.isinf(left) or math.isnan(left) or math.isnan(right) else math.fmod(left, right)
    if isinstance(left, Decimal):
        return EXACT.remainder(left, right)
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def negated(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, Elapsed):
        return _duration_arithmetic("*", value, -1)
    return Point(-value) if isinstance(value, Point) else checked(-value)


def _duration_arithmetic(operator: str, left: Any, right: Any) -> Any:
    """ "Durations are added and subtracted, times an integer they are durations, divided by each other doubles." """
    if operator == "*":
        duration, number = (left, right) if isinstance(left, Elapsed) else (right, left)
        return _checked_duration(duration.seconds * number, duration)
    assert isinstance(left, Lasting) and isinstance(right, Lasting), f"no meaning for {left!r} {operator} {right!r}"
    finer = left if isinstance(left, Elapsed) else right
    if operator in ("/", "%") and right.seconds == 0:
        return None
    if operator == "/":
        return float(left.seconds / right.seconds)
    if operator == "%":
        remainder = abs(left.seconds) % abs(right.seconds)
        return _checked_duration(-remainder if left.seconds < 0 else remainder, finer)
    seconds = left.seconds + right.seconds if operator == "+" else left.seconds - right.seconds
    return _checked_duration(seconds, finer)


def _checked_duration(seconds: Fraction, like: Elapsed) -> Elapsed | None:
    found: Elapsed | None = checked(Elapsed.of(seconds, like.ticks_per_second))
    return found


def _time_arithmetic(operator: str, left: Any, right: Any, ticks_per_second: int | None) -> Any:
    """The difference of two timestamps is a duration, in ticks of the time column or of microseconds, whichever is
    finer; that of two dates is a number of days. A time plus or minus a duration or ticks is a time."""
    if isinstance(right, Time) and not isinstance(left, Time):
        left, right = right, left
    is_date = type(left) is datetime.date
    if isinstance(right, Time):
        assert operator == "-"
        if is_date and type(right) is datetime.date:
            return (left - right).days
        difference = microseconds(left, ticks_per_second) - microseconds(right, ticks_per_second)
        per_second = max(MICROSECONDS_PER_SECOND, ticks_per_second or 0)
        return checked(Elapsed.of(difference / MICROSECONDS_PER_SECOND, per_second))
    sign = 1 if operator == "+" else -1
    if isinstance(left, Moment):
        assert ticks_per_second is not None
        ticks = right.seconds * ticks_per_second if isinstance(right, Lasting) else right
        return Moment(left + sign * int(ticks))
    if isinstance(right, Lasting):
        seconds = right.seconds
    else:
        seconds = Fraction(right) * 86_400 if is_date else Fraction(right, MICROSECONDS_PER_SECOND)
    return left + sign * datetime.timedelta(microseconds=int(seconds * MICROSECONDS_PER_SECOND))
