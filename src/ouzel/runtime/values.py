"""The engine form of values: the type of a column while expressions are computed, and conversions to and from it.

Integers, dates (days), timestamps and durations (ticks) are int64; floats are float64; decimals, strings, binaries and
booleans are Arrow's own.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.literals import DECIMAL_DIGITS_MAX
from ouzel.bind.model import Kind, Type
from ouzel.errors import InputError
from ouzel.runtime.arrays import arrow, numbers, valids

Column: TypeAlias = Any  # a pyarrow Array (untyped for type checkers)

# The context for decimals, independent of the user's own; large enough for every double.
EXACT = Context(prec=400, rounding=ROUND_HALF_UP)
_EXACT_DOUBLE_MAX = 2**53


def is_computed(declared: Type) -> bool:
    """Whether values of a type are computed with; others are only returned and tested for null.

    >>> is_computed(Type(Kind.DECIMAL, precision=30))
    False
    """
    too_wide = declared.kind is Kind.DECIMAL and declared.precision > DECIMAL_DIGITS_MAX
    return declared.kind not in (Kind.STRUCT, Kind.OTHER) and not too_wide


def engine_type(declared: Type) -> pa.DataType:
    """The Arrow type in which values of a type are computed.

    >>> from ouzel.bind.model import INT
    >>> engine_type(INT)
    DataType(int64)
    """
    kind = declared.kind
    if kind in (Kind.INT, Kind.DATE, Kind.TIMESTAMP, Kind.DURATION):
        return pa.int64()
    if kind is Kind.DECIMAL:
        return pa.decimal128(max(declared.precision, 1), declared.scale)
    return {
        Kind.BOOL: pa.bool_(),
        Kind.FLOAT: pa.float64(),
        Kind.STRING: pa.large_string(),
        Kind.BINARY: pa.large_binary(),
        Kind.NULL: pa.null(),
    }[kind]


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column as a single array, without a copy if it has a single chunk."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def to_engine(column: pa.Array | pa.ChunkedArray, declared: Type, name: str = "") -> Column:
    """An input column in engine form; its name is for the error about a value that does not fit."""
    array = one_array(column)
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not is_computed(declared):
        return array
    try:
        return _converted(array, declared)
    except pa.ArrowInvalid as error:
        what = f"of '{name}' " if name else ""
        raise InputError(
            f"a value {what}does not fit the 64 bits or 18 digits in which {declared} values are computed: {error}"
        ) from None


def _converted(array: pa.Array, declared: Type) -> Column:
    wanted = engine_type(declared)
    if array.type == wanted:
        return array
    if declared.kind is Kind.TIMESTAMP:
        unit = declared.unit or "us"
        if array.type.unit != unit:
            array = pc.cast(array, pa.timestamp(unit, array.type.tz))
        return array.view(pa.int64())
    if declared.kind is Kind.DURATION:
        return pc.cast(array, pa.duration(declared.unit or "us")).view(pa.int64())
    if declared.kind is Kind.DATE:
        return pc.cast(pc.cast(array, pa.date32()).view(pa.int32()), pa.int64())
    return pc.cast(array, wanted)


def unscaled(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """The digits of decimals that fit 64 bits, without their point and with zeros for nulls, and where there is a
    value.

    >>> from decimal import Decimal
    >>> [part.tolist() for part in unscaled(pa.array([Decimal("1.50"), None]))]
    [[150, 0], [True, False]]
    """
    valid = valids(column)
    if not len(column):
        return np.zeros(0, np.int64), valid
    words = np.frombuffer(column.buffers()[1], dtype=np.int64)[::2][column.offset : column.offset + len(column)]
    return np.where(valid, words, 0), valid


def as_integers(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """The column as int64, and where it is not null. Decimals become their unscaled digits."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return unscaled(column)
    if pa.types.is_boolean(kind):
        column = pc.cast(column, pa.int64())
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64), np.zeros(len(column), bool)
    return split(column, np.int64)


def to_float(column: Column) -> Column:
    """Numbers as the nearest doubles. Arrow's own cast of decimals is sometimes off by one bit.

    >>> from decimal import Decimal
    >>> to_float(pa.array([Decimal("99999.99999"), None])).to_pylist()
    [99999.99999, None]
    """
    if pa.types.is_float64(column.type):
        return column
    if not pa.types.is_decimal(column.type):
        return pc.cast(column, pa.float64(), safe=False)
    if not len(column):
        return pa.nulls(0, pa.float64())
    digits, valid = unscaled(column)
    # Both numbers are exact, so their quotient is rounded once.
    values = digits / 10.0**column.type.scale
    for row in np.flatnonzero(np.abs(digits) > _EXACT_DOUBLE_MAX):
        values[row] = float(column[int(row)].as_py())
    return join(values, valid, pa.float64())


def from_engine(column: Column, declared: Type) -> Column:
    """A computed column in its output type: ticks and days become timestamps, durations and dates again."""
    if declared.kind is Kind.TIMESTAMP:
        return column.cast(pa.timestamp(declared.unit or "us", declared.zone))
    if declared.kind is Kind.DURATION:
        return column.view(pa.duration(declared.unit or "us"))
    if declared.kind is Kind.DATE:
        return column.cast(pa.int32()).view(pa.date32())
    if declared.kind is Kind.STRING and column.type == pa.large_string():
        return column.cast(pa.string())
    if declared.kind is Kind.BINARY and column.type == pa.large_binary():
        return column.cast(pa.binary())
    return column


def output_type(declared: Type) -> pa.DataType:
    """The Arrow type of a computed output column."""
    return from_engine(pa.nulls(0, engine_type(declared)), declared).type


def split(column: Column, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Values, with zeros for nulls, and the mask of those that are not null."""
    valid = valids(column)
    filled = pc.fill_null(column, 0) if column.null_count else column
    if filled.type not in (pa.int64(), pa.float64()):
        filled = pc.cast(filled, pa.int64() if dtype is np.int64 else pa.float64())
    return numbers(filled, np.int64 if filled.type == pa.int64() else np.float64).astype(dtype, copy=False), valid


def join(values: np.ndarray, valid: np.ndarray, type_: pa.DataType) -> Column:
    """The inverse of `split`."""
    if valid.all() and values.dtype != bool and type_.bit_width == 8 * values.dtype.itemsize:
        return arrow(values, type_)
    return pa.array(values, type=type_, mask=None if valid.all() else ~valid)


COMPARISONS: dict[str, Callable[[Column, Column], Column]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def compare(operator: str, left: Column, right: Column) -> Column:
    """A comparison; among floats NaN equals NaN and is greater than every number, as in Spark."""
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return pa.nulls(len(left), pa.bool_())
    result = COMPARISONS[operator](left, right)
    if not pa.types.is_floating(left.type):
        return result
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    if not pc.any(pc.or_kleene(left_nan, right_nan)).as_py():
        return result
    fixed = {
        "=": lambda: pc.and_(left_nan, right_nan),
        "!=": lambda: pc.xor(left_nan, right_nan),
        "<": lambda: pc.and_(pc.invert(left_nan), right_nan),
        "<=": lambda: right_nan,
        ">": lambda: pc.and_(left_nan, pc.invert(right_nan)),
        ">=": lambda: left_nan,
    }[operator]()
    return pc.if_else(pc.or_(left_nan, right_nan), fixed, result)
