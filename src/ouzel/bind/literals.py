"""Literals and parameters as constants in the form that the engine uses: int64, float64, decimal, days, ticks,
nanoseconds.
"""

from __future__ import annotations

import datetime
import numbers
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ouzel.bind.diagnostics import Source, nearest, quoted
from ouzel.bind.model import BINARY, BOOL, DATE, DURATION, FLOAT, INT, NULL, STRING, Constant, Kind, Type
from ouzel.errors import QueryError, parameter_value
from ouzel.lang import syntax
from ouzel.lang.syntax import Span, TemporalKind
from ouzel.lang.vocabulary import NANOSECONDS_OF_UNIT

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
DECIMAL_DIGITS_MAX = 18
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_TEMPORAL = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"(?P<clock>[T ]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d{1,9}))?)?"
    r" *(?P<zone>Z|UTC|[+-]\d{1,2}(?::?\d{2})?)?)?",
    re.ASCII,
)


# ── Numbers ────────────────────────────────────────────────────────────────────────────────────────


def number(value: int | Decimal, span: Span, source: Source) -> Constant:
    """A number in the text. A number with a point is stored as a Decimal of type double until the other operand decides
    its type.
    """
    if isinstance(value, int):
        if not INT64_MIN <= value <= INT64_MAX:
            raise source.mistake(
                "the integer does not fit into 64 bits", span, "write it with a point to make it a double"
            )
        return Constant(value, type=INT, span=span)
    if not value.is_finite() or value.adjusted() > 308 or abs(float(value)) == float("inf"):
        raise source.mistake("the number is too large for a double", span)
    return Constant(value, type=FLOAT, span=span)


def decimal_type(value: int | Decimal) -> Type | None:
    """The decimal type with exactly these digits; None for more than 18 digits.

    >>> str(decimal_type(Decimal("3.140")))
    'decimal(4,3)'
    """
    _, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int), "only finite decimals come here"
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    return Type(Kind.DECIMAL, precision=precision, scale=scale) if precision <= DECIMAL_DIGITS_MAX else None


def percentage(value: int | Decimal) -> Decimal:
    """A hundredth of a number, exactly. Decimal's own arithmetic would round long numbers."""
    sign, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int), "the lexer makes finite numbers only"
    return Decimal((sign, digits, exponent - 2))


# ── Time ───────────────────────────────────────────────────────────────────────────────────────────


def duration(amount: int | Decimal, unit: str, span: Span, source: Source) -> Constant:
    """A duration such as `1.5 s` in nanoseconds."""
    if unit not in NANOSECONDS_OF_UNIT:
        raise source.mistake(
            f"there is no unit of time {quoted(unit)}", span, "units are us, ms, s, min, h, days, weeks"
        )
    if isinstance(amount, Decimal) and not (amount.is_finite() and -20 <= amount.adjusted() <= 20):
        raise source.mistake("the duration is out of range", span)
    nanoseconds = Fraction(amount) * NANOSECONDS_OF_UNIT[unit]
    if nanoseconds.denominator != 1:
        raise source.mistake("the duration must be a whole number of nanoseconds", span)
    if abs(nanoseconds.numerator) >= 10**27:
        raise source.mistake("the duration is out of range", span, "the longest is about 290,000 years")
    return Constant(nanoseconds.numerator, type=DURATION, span=span)


def temporal(kind: TemporalKind, text: str, span: Span, source: Source) -> Constant:
    """A date such as `DATE '2024-05-01'` in days, or a timestamp such as `TIMESTAMP '2024-05-01 12:00:00+02:00'` in
    ticks.
    """
    wrong = source.mistake(
        f"{quoted(text)} is not a {kind.value.lower()}",
        span,
        "write DATE '2024-05-31'"
        if kind is TemporalKind.DATE
        else "write TIMESTAMP '2024-05-31 12:00:00', with +02:00 or Z for a zone",
    )
    found = _TEMPORAL.fullmatch(text.strip())
    if found is None or (kind is TemporalKind.DATE and found["clock"]):
        raise wrong
    try:
        moment = datetime.datetime(
            int(found["year"]),
            int(found["month"]),
            int(found["day"]),
            int(found["hour"] or 0),
            int(found["minute"] or 0),
            int(found["second"] or 0),
            tzinfo=_zone(found["zone"]),
        )
        if kind is TemporalKind.DATE:
            return Constant(moment.toordinal() - _EPOCH_DAY, type=DATE, span=span)
        return _timestamp(moment, int((found["fraction"] or "").ljust(9, "0")), span, source)
    except (ValueError, OverflowError):
        raise wrong from None


def _zone(text: str | None) -> datetime.tzinfo | None:
    if text is None or text in ("Z", "UTC"):
        return None if text is None else datetime.UTC
    digits = text[1:].replace(":", "")
    hours, minutes = (digits[:-2], digits[-2:]) if len(digits) > 2 else (digits, "0")
    offset = datetime.timedelta(hours=int(hours), minutes=int(minutes))
    return datetime.timezone(-offset if text[0] == "-" else offset)


def _timestamp(moment: datetime.datetime, nanoseconds: int, span: Span, source: Source) -> Constant:
    """A timestamp in microseconds, or in nanoseconds if microseconds would lose digits."""
    zone = None if moment.tzinfo is None else "UTC"
    naive = moment.replace(tzinfo=None, microsecond=0, fold=0)
    # Subtract the offset from the ticks, not from the datetime, which may be the first or last one that Python can
    # hold.
    offset = moment.utcoffset() or datetime.timedelta(0)
    since = naive - datetime.datetime(1970, 1, 1) - offset
    seconds = since.days * 86_400 + since.seconds
    if nanoseconds % 1_000:
        ticks = seconds * 10**9 + nanoseconds
        if not INT64_MIN <= ticks <= INT64_MAX:
            raise source.mistake(
                "the timestamp is out of range for nanoseconds", span, "write at most six digits after the point"
            )
        return Constant(ticks, type=Type(Kind.TIMESTAMP, unit="ns", zone=zone), span=span)
    return Constant(seconds * 10**6 + nanoseconds // 1_000, type=Type(Kind.TIMESTAMP, unit="us", zone=zone), span=span)


def text_constant(value: str, span: Span, source: Source) -> Constant:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise source.mistake("the string has a character that is not Unicode text", span) from None
    return Constant(value, type=STRING, span=span)


# ── Parameters ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Parameters:
    """The values of parameters, and the names of those that have been used."""

    values: Mapping[str, Any]
    used: set[str] = field(default_factory=set)

    def constant(self, parameter: syntax.Parameter, source: Source) -> Constant:
        name, span = parameter.name, parameter.span
        if name not in self.values:
            hint = nearest(name, self.values) or ("give it as ", parameter_value(name))
            raise source.mistake(f"there is no value for the parameter {quoted(name)}", span, hint)
        self.used.add(name)
        return _given(name, self.values[name], span, source)

    def check_all_used(self, text: str) -> None:
        unused = [name for name in self.values if name not in self.used]
        if unused:
            name = str(unused[0])
            raise QueryError(
                f"the parameter {quoted(name)} is given but not used", text=text, hint=nearest(name, self.used)
            )


def _given(name: str, value: Any, span: Span, source: Source) -> Constant:
    out_of_range = source.mistake(f"the value of the parameter {quoted(name)} is out of range", span)
    match value:
        case None:
            return Constant(None, type=NULL, span=span)
        case bool():
            return Constant(value, type=BOOL, span=span)
        case str():
            return text_constant(value, span, source)
        case bytes():
            return Constant(value, type=BINARY, span=span)
        case Decimal():
            kind = decimal_type(value) if value.is_finite() else None
            if kind is None:
                raise source.mistake(f"the parameter {quoted(name)} has more than {DECIMAL_DIGITS_MAX} digits", span)
            return Constant(value, type=kind, span=span)
        case datetime.datetime() if value == value:  # pandas' NaT is a datetime that does not equal itself
            nanoseconds = value.microsecond * 1_000 + getattr(value, "nanosecond", 0)
            year, month, day, hour, minute, second = value.timetuple()[:6]
            plain = datetime.datetime(year, month, day, hour, minute, second, tzinfo=value.tzinfo, fold=value.fold)
            try:
                return _timestamp(plain, nanoseconds, span, source)
            except (ValueError, OverflowError):
                raise out_of_range from None
        case datetime.date() if not isinstance(value, datetime.datetime):
            return Constant(value.toordinal() - _EPOCH_DAY, type=DATE, span=span)
        case datetime.timedelta() if value == value:
            microseconds = (value.days * 86_400 + value.seconds) * 10**6 + value.microseconds
            return Constant(microseconds * 1_000 + getattr(value, "nanoseconds", 0), type=DURATION, span=span)
        case numbers.Integral():
            if not INT64_MIN <= int(value) <= INT64_MAX:
                raise out_of_range
            return Constant(int(value), type=INT, span=span)
        case numbers.Real() if not isinstance(value, Fraction):
            return Constant(float(value), type=FLOAT, span=span)
    raise source.mistake(
        f"the parameter {quoted(name)} is of type {type(value).__name__}",
        span,
        "parameters are int, float, Decimal, str, bool, None, bytes, datetime, date or timedelta",
    )
