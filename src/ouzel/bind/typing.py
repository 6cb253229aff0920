"""The types of expressions: which operands fit together, how they are converted, and the type of the result.

The rules:

- Integers are int64. `/` always gives a double. An integer combined with a double becomes a double. - A number with a
point or exponent is a double. Combined with a decimal, it is the decimal with the same digits. - Decimals follow
Spark's rules for precision and scale, with 18 digits in place of 38. The scale is kept, and a value that needs more
digits is null, like every overflow. An integer that is added to a decimal must fit into 18 digits at that scale.
Comparisons are exact at all scales. - Timestamps and durations are compared in the finer of their two units. `timestamp
- timestamp` is a duration in the unit of the time column, or of the timestamps if that is finer. timestamp ± integer
counts ticks of that unit. - Durations can be added and subtracted. Duration times integer is a duration, and duration
divided by duration is a double. - A duration in the text has no unit of ticks until it is combined. Combined with
integers, it becomes ticks: of the dates or times whose ticks these integers count, otherwise of the time column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal

from ouzel.bind.diagnostics import Source, hint_for
from ouzel.bind.literals import DECIMAL_DIGITS_MAX, INT64_MAX, INT64_MIN, decimal_type
from ouzel.bind.model import (
    BOOL,
    DATE,
    DURATION,
    FLOAT,
    INT,
    NULL,
    NUMBERS,
    UNKNOWN,
    WHOLE,
    Aggregation,
    Bound,
    CompoundComparison,
    Constant,
    EventField,
    Intrinsic,
    Kind,
    Operation,
    TimeDomain,
    Type,
    duration_type,
)
from ouzel.errors import argument
from ouzel.lang.syntax import Span
from ouzel.lang.vocabulary import NANOSECONDS_OF_UNIT

# What a duration may be combined with while the tick is not known.
_BESIDE_WAITING_DURATIONS = NUMBERS | {Kind.UNKNOWN, Kind.NULL}
_DAY_NS = NANOSECONDS_OF_UNIT["days"]
_EXACT = Context(prec=2 * DECIMAL_DIGITS_MAX)
IN_SECONDS = "divide a duration by another one to get a number, as in (b.time - a.time) / 1 s"
_ARTICLES = {Kind.INT: "an integer", Kind.NULL: "null", Kind.UNKNOWN: "of unknown type"}


def described(kind: Type) -> str:
    """
    >>> described(INT)
    'an integer'
    """
    return _ARTICLES.get(kind.kind, f"a {kind}")


def is_open_number(expression: Bound) -> bool:
    """Whether the other operand still decides if a number with a point is a double or a decimal."""
    return isinstance(expression, Constant) and expression.type == FLOAT and isinstance(expression.value, Decimal)


def as_double(expression: Bound) -> Bound:
    """The expression with its type decided: a number with a point is now a double."""
    if isinstance(expression, Constant) and is_open_number(expression):
        assert isinstance(expression.value, Decimal)
        return replace(expression, value=float(expression.value))
    return expression


def operation(operator: str, operands: Sequence[Bound], result: Type, span: Span) -> Operation:
    # A duration is a constant. While its ticks are not known, a result computed from it has no type either.
    result = UNKNOWN if result == DURATION else result
    return Operation(operator, tuple(as_double(operand) for operand in operands), type=result, span=span)


def common_type(left: Type, right: Type) -> Type | None:
    """The type in which values of both types can be compared or be in one column; None if there is none.

    >>> str(common_type(Type(Kind.DECIMAL, 5, 2), INT))
    'decimal(18,2)'
    """
    if left == right:
        return left
    if UNKNOWN in (left, right):
        return UNKNOWN
    if NULL in (left, right):
        return right if left == NULL else left
    kinds = {left.kind, right.kind}
    if kinds <= NUMBERS:
        if Kind.FLOAT in kinds:
            return FLOAT
        return _wider_decimal(_as_decimal(left), _as_decimal(right))
    if kinds == {Kind.DURATION}:
        # A written duration takes the unit of the other one.
        return duration_type("ns" if "ns" in (left.unit, right.unit) else "us")
    if kinds == {Kind.TIMESTAMP} and (left.zone is None) == (right.zone is None):
        zone = left.zone if left.zone == right.zone else "UTC"
        return Type(Kind.TIMESTAMP, unit="ns" if "ns" in (left.unit, right.unit) else "us", zone=zone)
    if kinds == {Kind.DATE, Kind.TIMESTAMP}:
        timestamp = left if left.kind is Kind.TIMESTAMP else right
        # Midnight of a date is a timestamp only without a time zone.
        return timestamp if timestamp.zone is None else None
    return None


def _as_decimal(kind: Type) -> Type:
    return kind if kind.kind is Kind.DECIMAL else Type(Kind.DECIMAL, precision=DECIMAL_DIGITS_MAX, scale=0)


def _whole_digits(operand: Bound) -> int:
    """The largest number of digits that a number may have before its point."""
    if isinstance(operand, Constant) and isinstance(operand.value, int | Decimal):
        return max(0, Decimal(operand.value).adjusted() + 1) if operand.value else 0
    if operand.type.kind is Kind.INT:
        return len(str(INT64_MAX))
    return operand.type.precision - operand.type.scale if operand.type.kind is Kind.DECIMAL else 0


def _wider_decimal(left: Type, right: Type) -> Type:
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return Type(Kind.DECIMAL, precision=min(DECIMAL_DIGITS_MAX, whole + scale), scale=scale)


@dataclass(frozen=True, slots=True)
class Typing:
    """Typing in one query. `time` gives the unit of ticks, which may come from an option."""

    source: Source
    time: TimeDomain
    has_unit_option: bool = True

    # ── Conversion ─────────────────────────────────────────────────────────────────────────────────

    def converted(self, expression: Bound, target: Type) -> Bound:
        """The expression in the target type. A constant is converted at once, and anything else by a cast."""
        have = expression.type
        if is_open_number(expression):
            assert isinstance(expression, Constant) and isinstance(expression.value, Decimal)
            if target.kind is Kind.DECIMAL:
                return replace(expression, value=_at_scale(expression.value, target), type=target)
            return as_double(expression)
        if have == target or UNKNOWN in (have, target):
            return expression
        if have.kind is Kind.TIMESTAMP and target.kind is Kind.TIMESTAMP and have.unit == target.unit:
            return expression  # zones are only shown: the ticks are the same
        both_decimals = have.kind is Kind.DECIMAL and target.kind is Kind.DECIMAL
        if both_decimals and have.scale == target.scale and have.precision <= target.precision:
            return expression
        if isinstance(expression, Constant):
            if have == DURATION:
                return replace(self.ticks(expression, NANOSECONDS_OF_UNIT[target.unit or "us"]), type=target)
            return replace(expression, value=_converted_value(expression, target), type=target)
        return Operation("cast", (expression,), type=target, span=expression.span)

    def unified(self, operands: Sequence[Bound], span: Span, doing: str) -> list[Bound]:
        """The operands in their common type. If there is none, raises an error; `doing` is "compare" or "combine"."""
        operands = self._durations_as_ticks(operands)
        target = NULL
        for operand in self._in_order_of_certainty(operands):
            if operand.type == DURATION and target.kind in _BESIDE_WAITING_DURATIONS:
                continue
            found = common_type(target, self._type_beside(operand, target))
            if found is None:
                raise self._mismatch(target, operand, operands, span, doing)
            target = found
        if target.kind is Kind.DECIMAL:
            self.check_digits(operands)
        is_open = target.kind is not Kind.DURATION
        return [o if o.type == DURATION and is_open else self.converted(o, target) for o in operands]

    def check_digits(self, operands: Sequence[Bound]) -> None:
        for operand in operands:
            if operand.type.kind is Kind.DECIMAL and operand.type.precision > DECIMAL_DIGITS_MAX:
                raise self.source.mistake(
                    f"a {operand.type} has more than {DECIMAL_DIGITS_MAX} digits and can only be returned",
                    operand.span,
                    "make it a double or a smaller decimal in the input",
                )

    def _in_order_of_certainty(self, operands: Sequence[Bound]) -> list[Bound]:
        # Literals adapt to operands that have a type, so they come last; integers before numbers with a point.
        return sorted(operands, key=lambda operand: 2 * is_open_number(operand) + isinstance(operand, Constant))

    def _type_beside(self, operand: Bound, other: Type) -> Type:
        """The type that a literal has when it is combined with an operand of type `other`."""
        if not isinstance(operand, Constant) or other.kind is not Kind.DECIMAL:
            return operand.type
        if is_open_number(operand) or (operand.type == INT and isinstance(operand.value, int)):
            assert isinstance(operand.value, int | Decimal)
            exact = decimal_type(operand.value)
            if exact is None:
                raise self.source.mistake(
                    f"a number with a decimal can have at most {DECIMAL_DIGITS_MAX} digits", operand.span
                )
            return exact
        return operand.type

    def _mismatch(self, target: Type, operand: Bound, operands: Sequence[Bound], span: Span, doing: str) -> Exception:
        found = operand.type
        hint = hint_for(target, found, operands, doing)
        if target.kind is found.kind is Kind.TIMESTAMP:
            return self.source.mistake(f"cannot {doing} a timestamp that has a zone with one that has none", span, hint)
        return self.source.mistake(f"cannot {doing} {described(target)} with {described(found)}", span, hint)

    # ── Durations and ticks ────────────────────────────────────────────────────────────────────────

    def ticks(self, duration: Constant, tick_ns: int | None) -> Bound:
        """A duration in ticks of `tick_ns` nanoseconds, by default of the time column. It stays as it is while the tick
        is not known.
        """
        assert isinstance(duration.value, int)
        tick_ns = self.time.tick_ns if tick_ns is None else tick_ns
        if tick_ns is None:
            if not self.time.known:
                return duration
            raise self.source.mistake(
                "a duration cannot be used where the time column is a bare number",
                duration.span,
                (
                    "give ",
                    argument("time_unit"),
                    ", for example ",
                    argument("time_unit", "s"),
                    ", or a number of ticks",
                )
                if self.has_unit_option
                else "write a number",
            )
        if duration.value % tick_ns:
            raise self.source.mistake("the duration must be a whole number of ticks", duration.span)
        ticks = duration.value // tick_ns
        if not INT64_MIN <= ticks <= INT64_MAX:
            raise self.source.mistake("the duration is out of range", duration.span)
        return replace(duration, value=ticks, type=INT)

    def lone(self, expression: Bound) -> Bound:
        """An expression that is not combined with another operand, so that its type is final."""
        if isinstance(expression, Constant) and expression.type == DURATION:
            if self.time.type.kind is Kind.TIMESTAMP:
                return self.converted(expression, duration_type(self.time.type.unit))
            return self.ticks(expression, None)
        return as_double(expression)

    def tick_ns_of(self, expression: Bound) -> int | None:
        """The length of the ticks that an integer expression counts; None if its parts do not show it."""
        match expression:
            # DUR of the algebra.
            case Operation(operator="-", operands=(left, right)) if left.type.kind is right.type.kind is Kind.TIMESTAMP:
                return NANOSECONDS_OF_UNIT[left.type.unit or "us"]
            case Operation(operator="-", operands=(left, right)) if left.type.kind is right.type.kind is Kind.DATE:
                return _DAY_NS
            case Operation(operands=operands):
                return next((found for o in operands if (found := self.tick_ns_of(o)) is not None), None)
            case Aggregation(operand=Bound() as operand):
                return self.tick_ns_of(operand)
            case Intrinsic(field=EventField.START | EventField.END) if expression.type == INT:
                return self.time.tick_ns
        return None

    def _durations_as_ticks(self, operands: Sequence[Bound]) -> Sequence[Bound]:
        if not any(operand.type == DURATION for operand in operands):
            return operands
        others = [operand for operand in operands if operand.type != DURATION and operand.type.kind is not Kind.NULL]
        if any(operand.type == UNKNOWN for operand in others):
            return operands
        if not others:
            return [replace(o, type=INT) if o.type == DURATION else o for o in operands]
        if not all(operand.type.kind in NUMBERS for operand in others):
            return operands  # beside times and durations the common type decides
        tick_ns = next((found for o in others if (found := self.tick_ns_of(o)) is not None), None)
        return [self.ticks(o, tick_ns) if isinstance(o, Constant) and o.type == DURATION else o for o in operands]

    # ── Comparison ─────────────────────────────────────────────────────────────────────────────────

    def comparison(self, operator: str, operands: Sequence[Bound], span: Span) -> Operation:
        """A comparison: `= != < <= > >=` of two operands, or `in` of two or more."""
        for operand in operands:
            self.check_comparable(operand.type, operand.span)
        given = self._durations_as_ticks(operands)
        operands = self.unified(given, span, "compare")
        target = next((o.type for o in operands if o.type.kind is Kind.DECIMAL), None)
        if target is not None and any(_whole_digits(o) + target.scale > DECIMAL_DIGITS_MAX for o in given):
            if len(given) > 2:
                # If two values saturate, the larger one is not known, so each pair is compared separately.
                pairs = [self.comparison("=", [given[0], item], span) for item in given[1:]]
                return CompoundComparison("or", tuple(pairs), type=BOOL, span=span)
            operands = [self._saturated(operand, target.scale) for operand in given]
        if operator not in ("=", "!=", "in") and any(operand.type == BOOL for operand in operands):
            raise self.source.mistake("booleans have no order", span, "compare them with = or !=")
        return operation(operator, operands, BOOL, span)

    def _saturated(self, operand: Bound, scale: int) -> Bound:
        """A number as a decimal of a finer scale, for comparisons only. A value that needs more than 18 digits at that
        scale becomes the first number that does, which compares correctly with every decimal of that scale.
        """
        if operand.type.kind is Kind.NULL or _whole_digits(operand) + scale <= DECIMAL_DIGITS_MAX:
            return self.converted(operand, Type(Kind.DECIMAL, precision=DECIMAL_DIGITS_MAX, scale=scale))
        target = Type(Kind.DECIMAL, precision=DECIMAL_DIGITS_MAX + 1, scale=scale)
        if not isinstance(operand, Constant):
            return Operation("saturate", (operand,), type=target, span=operand.span)
        assert isinstance(operand.value, int | Decimal)
        limit = Decimal(10 ** (DECIMAL_DIGITS_MAX - scale))
        value = max(-limit, min(limit, Decimal(operand.value)))
        return replace(operand, value=value.quantize(Decimal((0, (1,), -scale)), context=_EXACT), type=target)

    def check_comparable(self, kind: Type, span: Span) -> None:
        if kind.kind is Kind.STRUCT:
            names = ", ".join(name for name, _ in kind.fields[:5])
            raise self.source.mistake(
                "a struct cannot be compared", span, f"name one of its fields: {names}" if names else None
            )
        if kind.kind is Kind.LIST:
            raise self.source.mistake(
                "a list cannot be compared", span, "write x IN v.list, any(v.list, t -> t > 3) or size(v.list)"
            )
        if kind.kind is Kind.OTHER:
            raise self.source.mistake("a map or time of day cannot be compared, only returned", span)
        if kind.kind is Kind.DECIMAL and kind.precision > DECIMAL_DIGITS_MAX:
            self.check_digits([Constant(None, type=kind, span=span)])

    # ── Arithmetic ─────────────────────────────────────────────────────────────────────────────────

    def negated(self, operand: Bound, span: Span) -> Bound:
        is_number = operand.type.kind in NUMBERS or operand.type.kind is Kind.DURATION
        if is_number and isinstance(operand, Constant) and isinstance(operand.value, int | float | Decimal):
            if operand.type != DURATION and operand.value == INT64_MIN:
                raise self.source.mistake("the integer does not fit into 64 bits", span)
            # The minus of Decimal would round long numbers.
            value = operand.value.copy_negate() if isinstance(operand.value, Decimal) else -operand.value
            return replace(operand, value=value, span=span)
        if not is_number and operand.type.kind not in (Kind.UNKNOWN, Kind.NULL):
            raise self.source.mistake(f"cannot negate {described(operand.type)}", span)
        self.check_digits([operand])
        return operation("negate", [operand], operand.type, span)

    def arithmetic(self, operator: str, left: Bound, right: Bound, span: Span) -> Bound:
        """An arithmetic operation: `+ - * / %`."""
        kinds = left.type.kind, right.type.kind
        for operand in (left, right):
            if operand.type.kind in WHOLE | {Kind.BOOL, Kind.STRING, Kind.BINARY}:
                hint = "concat(…) joins strings" if operand.type.kind is Kind.STRING and operator == "+" else None
                raise self.source.mistake(f"cannot compute with {described(operand.type)}", operand.span, hint)
        if DURATION in (left.type, right.type):
            return self._with_written_duration(operator, left, right, span)
        if kinds[0] is Kind.DURATION or (kinds[1] is Kind.DURATION and kinds[0] not in (Kind.TIMESTAMP, Kind.DATE)):
            return self._of_durations(operator, left, right, span)
        if Kind.TIMESTAMP in kinds or Kind.DATE in kinds:
            return self._with_time(operator, left, right, span)
        if operator == "/":
            self.check_digits([left, right])
            return operation("/", [self.converted(o, FLOAT) for o in (left, right)], FLOAT, span)
        if Kind.UNKNOWN in kinds or Kind.NULL in kinds:
            known = right.type if kinds[0] is Kind.NULL else left.type
            result = UNKNOWN if Kind.UNKNOWN in kinds else known
            return operation(operator, [self.converted(o, result) for o in (left, right)], result, span)
        if operator != "*" or Kind.DECIMAL not in kinds:
            left, right = self.unified([left, right], span, "combine")
        else:
            left, right = self._factors(left, right)
        return operation(operator, [left, right], self._result(operator, left.type, right.type, span), span)

    def _factors(self, left: Bound, right: Bound) -> tuple[Bound, Bound]:
        """The operands of a product with a decimal: as decimals, each with its own scale, or both as doubles."""
        self.check_digits([left, right])
        types = self._type_beside(left, right.type), self._type_beside(right, left.type)
        if FLOAT in types:
            return self.converted(left, FLOAT), self.converted(right, FLOAT)
        return self.converted(left, _as_decimal(types[0])), self.converted(right, _as_decimal(types[1]))

    def _result(self, operator: str, left: Type, right: Type, span: Span) -> Type:
        if left.kind is not Kind.DECIMAL:
            return left
        scale = left.scale + right.scale if operator == "*" else max(left.scale, right.scale)
        if scale > DECIMAL_DIGITS_MAX:
            raise self.source.mistake(
                f"the product of decimals would have {scale} digits after the point",
                span,
                "use double(…) on one of them",
            )
        whole = (left.precision - left.scale, right.precision - right.scale)
        precision = {"*": left.precision + right.precision + 1, "%": min(whole) + scale}.get(
            operator, max(whole) + scale + 1
        )
        return Type(Kind.DECIMAL, precision=max(1, scale, min(DECIMAL_DIGITS_MAX, precision)), scale=scale)

    def _with_time(self, operator: str, left: Bound, right: Bound, span: Span) -> Bound:
        """An operation with at least one date or timestamp, and without a duration."""
        kinds = left.type.kind, right.type.kind
        temporal = (Kind.TIMESTAMP, Kind.DATE)
        if operator == "-" and kinds[0] in temporal and kinds[1] in temporal:
            left, right = self.unified([left, right], span, "combine")
            domain = self.time.type
            if left.type.unit == "us" and domain.unit == "ns":
                finer = replace(left.type, unit="ns")
                left, right = self.converted(left, finer), self.converted(right, finer)
            result = INT if left.type == DATE else duration_type(left.type.unit)
            return operation("-", [left, right], result, span)
        if kinds[1] in temporal and operator == "+" and kinds[0] not in temporal:
            left, right = right, left
            kinds = kinds[::-1]
        if operator in ("+", "-") and kinds == (Kind.TIMESTAMP, Kind.DURATION):
            unit = "ns" if "ns" in (left.type.unit, right.type.unit) else "us"
            left = self.converted(left, replace(left.type, unit=unit))
            return operation(operator, [left, self.converted(right, duration_type(unit))], left.type, span)
        if operator in ("+", "-") and kinds[0] in temporal and kinds[1] in (Kind.INT, Kind.UNKNOWN, Kind.NULL):
            # Subtracting an unknown type may give a difference of two times or a time.
            result = UNKNOWN if kinds[1] is Kind.UNKNOWN and operator == "-" else left.type
            return operation(operator, [left, self.converted(right, INT)], result, span)
        if operator == "-" and kinds[0] in (Kind.UNKNOWN, Kind.NULL):
            known = kinds[0] is Kind.NULL
            result = INT if kinds[1] is Kind.DATE else duration_type(right.type.unit) if known else UNKNOWN
            return operation("-", [self.converted(left, right.type), right], result, span)
        raise self.source.mistake(
            f"cannot compute {described(left.type)} {operator} {described(right.type)}",
            span,
            "subtract two times, or add a duration or a whole number of ticks to one",
        )

    def _of_durations(self, operator: str, left: Bound, right: Bound, span: Span) -> Bound:
        """An operation with at least one duration that has a unit. The other operand is neither a time nor a duration
        in the text.
        """
        kinds = left.type.kind, right.type.kind
        if kinds == (Kind.UNKNOWN, Kind.DURATION) or kinds == (Kind.DURATION, Kind.UNKNOWN):
            return operation(operator, [left, right], UNKNOWN, span)
        if operator == "+" and kinds[1] in (Kind.TIMESTAMP, Kind.DATE):
            return self._with_time(operator, right, left, span)
        if operator == "*" and kinds in ((Kind.DURATION, Kind.INT), (Kind.INT, Kind.DURATION)):
            return operation("*", [left, right], left.type if kinds[0] is Kind.DURATION else right.type, span)
        if {*kinds} <= {Kind.DURATION, Kind.NULL} and operator != "*":
            left, right = self.unified([left, right], span, "combine")
            if operator == "/":
                return operation("/", [self.converted(o, FLOAT) for o in (left, right)], FLOAT, span)
            return operation(operator, [left, right], left.type, span)
        raise self.source.mistake(
            f"cannot compute {described(left.type)} {operator} {described(right.type)}", span, IN_SECONDS
        )

    def _with_written_duration(self, operator: str, left: Bound, right: Bound, span: Span) -> Bound:
        """An operation with at least one duration from the text, which is a constant without a unit of ticks."""
        swapped = left.type == DURATION and right.type != DURATION
        other, duration = (right, left) if swapped else (left, right)
        assert isinstance(duration, Constant) and isinstance(duration.value, int)
        if other.type == DURATION and isinstance(other, Constant) and isinstance(other.value, int):
            if operator in ("+", "-"):
                total = other.value + duration.value if operator == "+" else other.value - duration.value
                return Constant(total, type=DURATION, span=span)
            return self.arithmetic(operator, replace(other, type=INT), replace(duration, type=INT), span)
        if operator == "*" and isinstance(other, Constant) and other.type == INT and isinstance(other.value, int):
            return Constant(other.value * duration.value, type=DURATION, span=span)
        if other.type.kind is Kind.UNKNOWN:
            return operation(operator, [left, right], FLOAT if operator == "/" else UNKNOWN, span)
        if other.type.kind is Kind.DURATION:
            left, right = (self.converted(operand, other.type) for operand in (left, right))
            return self._of_durations(operator, left, right, span)
        tick_ns = self.tick_ns_of(other)
        if other.type.kind is Kind.TIMESTAMP:
            tick_ns = NANOSECONDS_OF_UNIT[other.type.unit or "us"]
        elif other.type == DATE:
            tick_ns = _DAY_NS
        resolved = self.ticks(duration, tick_ns)
        if resolved.type == DURATION:
            return operation(operator, [left, right], FLOAT if operator == "/" else other.type, span)
        return self.arithmetic(operator, *((resolved, other) if swapped else (other, resolved)), span)


def _at_scale(value: Decimal, target: Type) -> Decimal | None:
    """The value with exactly as many digits after the point as the target type; None if it does not fit."""
    exact = decimal_type(value)
    fits = value == 0 or (exact is not None and exact.precision - exact.scale + target.scale <= DECIMAL_DIGITS_MAX)
    return value.quantize(Decimal((0, (1,), -target.scale)), context=_EXACT) if fits else None


def _converted_value(constant: Constant, target: Type) -> int | float | Decimal | str | bytes | bool | None:
    value, have = constant.value, constant.type
    if value is None:
        return None
    if target.kind is Kind.FLOAT and isinstance(value, int | float | Decimal):
        return float(value)
    if target.kind is Kind.DECIMAL and isinstance(value, int | Decimal):
        return _at_scale(Decimal(value), target)
    if target.kind is Kind.TIMESTAMP and isinstance(value, int):
        unit_ns = NANOSECONDS_OF_UNIT[target.unit or "us"]
        ticks = value * (_DAY_NS if have.kind is Kind.DATE else NANOSECONDS_OF_UNIT[have.unit or "us"]) // unit_ns
        return ticks if INT64_MIN <= ticks <= INT64_MAX else None
    if target.kind is Kind.DURATION and isinstance(value, int):
        ticks = value * NANOSECONDS_OF_UNIT[have.unit or "us"] // NANOSECONDS_OF_UNIT[target.unit or "us"]
        return ticks if INT64_MIN <= ticks <= INT64_MAX else None
    raise AssertionError(f"no conversion of {have} to {target}")
