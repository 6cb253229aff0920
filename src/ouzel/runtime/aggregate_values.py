"""Numbers out of counters: exact integers from their words, minima from their order, and the errors where none fits."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa

from ouzel.bind.model import AggregateColumn, BoundQuery, Kind
from ouzel.errors import LimitError
from ouzel.kernels.counters_tables import NOTHING
from ouzel.plan.aggregate import Form, MeasureSpec, measures_of
from ouzel.runtime.values import Column, engine_type

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
# Below this a number modulo 2^128 is the number itself.
_KNOWN_MAX = 2.0**126
_SIGN = np.int64(INT64_MAX)
# Wide enough that nothing is ever rounded.
_EXACT = Context(prec=80)


def overflow(query: BoundQuery, column: AggregateColumn) -> LimitError:
    """The error for a number that has no room in its column."""
    if column.function == "count" and column.type.kind is not Kind.DECIMAL:
        hint = "write COUNT AS DECIMAL for up to 38 digits, give a smaller WITHIN window, or group it"
    elif column.function == "count":
        hint = "give a smaller WITHIN window, or group it"
    else:
        hint = "give a smaller WITHIN window, group it, or cast the values to double"
    return LimitError(f"query '{query.name}': {column.name} does not fit {column.type} any more; {hint}")


def checked_integer(query: BoundQuery, column: AggregateColumn, value: int) -> int | Decimal:
    """An exact integer as its column holds it: int64, or the unscaled digits of a decimal."""
    if column.type.kind is Kind.DECIMAL:
        if abs(value) >= 10**column.type.precision:
            raise overflow(query, column)
        return Decimal(value).scaleb(-column.type.scale, _EXACT)
    if not INT64_MIN <= value <= INT64_MAX:
        raise overflow(query, column)
    return value


# ── Order of floats ────────────────────────────────────────────────────────────────────────────────


def ordered(values: np.ndarray) -> np.ndarray:
    """Doubles as integers in the same order: NaN above all, the zeros one.

    >>> ordered(np.array([-1.5, -0.0, 0.0, 2.0])).tolist() == sorted(ordered(np.array([-1.5, -0.0, 0.0, 2.0])))
    True
    """
    plain = np.where(np.isnan(values), np.nan, values + 0.0)
    bits = np.ascontiguousarray(plain).view(np.int64)
    # The one NaN that is positive, whatever the hardware made.
    bits = np.where(np.isnan(values), np.float64("nan").view(np.int64) & _SIGN, bits)
    return np.where(bits >= 0, bits, bits ^ _SIGN)


def unordered(keys: np.ndarray) -> np.ndarray:
    """The doubles that `ordered` was given."""
    return np.ascontiguousarray(np.where(keys >= 0, keys, keys ^ _SIGN)).view(np.float64)


# ── Columns out of words ───────────────────────────────────────────────────────────────────────────


def columns_of(
    query: BoundQuery,
    measures: Sequence[MeasureSpec],
    words: np.ndarray,
    reals: np.ndarray,
    largest: Sequence[float],
) -> dict[str, Column]:
    """The aggregates of some rows, by name, in engine form.

    `largest` is for each measure a bound on what one match may add to it.
    """
    found: dict[str, Column] = {}
    for column in query.aggregates:
        if column.type.kind is Kind.NULL:
            found[column.name] = pa.nulls(len(words))
            continue
        if column.argument is None:
            found[column.name] = _integers(query, column, words[:, 0], words[:, 1], reals[:, 0], None)
            continue
        needed = [measures.index(measure) for measure in measures_of(column.function, column.argument)]
        place = 2 + 2 * needed[0]
        sizes = reals[:, 0] * max(1.0, largest[needed[0]])
        if column.function == "count":
            found[column.name] = _integers(query, column, words[:, place], words[:, place + 1], sizes, None)
            continue
        empty = (words[:, place] == 0) & (words[:, place + 1] == 0)
        measure = measures[needed[1]]
        place = 2 + 2 * needed[1]
        if measure.form in (Form.LEAST, Form.GREATEST):
            found[column.name] = _extremes(column, measure, words[:, place], empty)
        elif measure.floating:
            totals = reals[:, 1 + needed[1]]
            if column.function == "avg":
                totals = totals / np.where(
                    empty, 1.0, _floats(words[:, 2 + 2 * needed[0]], words[:, 3 + 2 * needed[0]])
                )
            found[column.name] = pa.array(totals, pa.float64(), mask=empty)
        else:
            sizes = reals[:, 0] * max(1.0, largest[needed[1]])
            low, high = words[:, place], words[:, place + 1]
            if column.function == "sum":
                found[column.name] = _integers(query, column, low, high, sizes, empty)
            else:
                if (sizes >= _KNOWN_MAX).any():
                    raise overflow(query, column)
                counts = _floats(words[:, 2 + 2 * needed[0]], words[:, 3 + 2 * needed[0]])
                scale = 10.0**column.argument.type.scale if column.argument.type.kind is Kind.DECIMAL else 1.0
                averages = _floats(low, high) / np.where(empty, 1.0, counts) / scale
                found[column.name] = pa.array(averages, pa.float64(), mask=empty)
    return found


def _floats(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Numbers of 128 bits, with sign, as doubles."""
    if (high.view(np.int64) == (low.view(np.int64) >> 63)).all():
        return low.view(np.int64).astype(np.float64)
    return np.array([float(_signed(int(a), int(b))) for a, b in zip(low, high, strict=True)], np.float64)


def _signed(low: int, high: int) -> int:
    value = low | (high << 64)
    return value - 2**128 if value >= 2**127 else value


def _integers(
    query: BoundQuery,
    column: AggregateColumn,
    low: np.ndarray,
    high: np.ndarray,
    sizes: np.ndarray,
    empty: np.ndarray | None,
) -> Column:
    """Exact integers; the error where one has no room, or is too large to be known."""
    low, high = np.ascontiguousarray(low), np.ascontiguousarray(high)
    fits = (high.view(np.int64) == (low.view(np.int64) >> 63)) & (sizes < _KNOWN_MAX)
    if column.type.kind is not Kind.DECIMAL and fits.all():
        return pa.array(low.view(np.int64), pa.int64(), mask=empty)
    if not (sizes < 2 * _KNOWN_MAX).all():
        raise overflow(query, column)
    values = [checked_integer(query, column, _signed(int(a), int(b))) for a, b in zip(low, high, strict=True)]
    shown = values if empty is None else [None if none else v for v, none in zip(values, empty, strict=True)]
    return pa.array(shown, engine_type(column.type))


def _extremes(column: AggregateColumn, measure: MeasureSpec, words: np.ndarray, empty: np.ndarray) -> Column:
    keys = np.ascontiguousarray(words).view(np.int64)
    if measure.form is Form.GREATEST:
        keys = ~keys
    if measure.floating:
        return pa.array(unordered(keys), pa.float64(), mask=empty)
    if column.type.kind is Kind.DECIMAL:
        decimals = [
            None if none else Decimal(int(key)).scaleb(-column.type.scale, _EXACT)
            for key, none in zip(keys, empty, strict=True)
        ]
        return pa.array(decimals, engine_type(column.type))
    return pa.array(keys, pa.int64(), mask=empty).cast(engine_type(column.type))


def measured(measure: MeasureSpec, values: np.ndarray, present: np.ndarray) -> np.ndarray:
    """What a measure makes of the values of its component's events; what is not `present` adds nothing."""
    if measure.form in (Form.LEAST, Form.GREATEST):
        keys = ordered(values) if measure.floating else values
        if measure.form is Form.GREATEST:
            keys = ~keys
        return np.where(present, keys, NOTHING)
    return np.where(present, values, np.zeros(1, values.dtype))
