"""Columns: Arrow arrays as numpy arrays over the same memory, Arrow's encodings as plain columns, and the *engine form*
of values, which is the form in which expressions are computed.

In engine form, integers, dates (days), timestamps and durations (ticks) are int64, and floats are float64. Decimals,
strings, binaries and booleans keep their Arrow types.

pyarrow's own `to_numpy` and `array` are not used, because they import pandas if it is installed, and that takes longer
than a small query. Dictionaries, run ends and views become plain columns here, so that other code need not handle them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.literals import DECIMAL_DIGITS_MAX
from ouzel.bind.model import WHOLE, Kind, Type
from ouzel.errors import InputError

_ARROW_TYPES = {
    np.dtype(np.int32): pa.int32(),
    np.dtype(np.int64): pa.int64(),
    np.dtype(np.uint8): pa.uint8(),
    np.dtype(np.float64): pa.float64(),
}


def numbers(array: pa.Array, dtype: Any = np.int64) -> np.ndarray:
    """The memory of an array of numbers, dates or times with the width of `dtype`. The value at a null is undefined.

    >>> numbers(pa.array([3, 1, 2]).slice(1)).tolist()
    [1, 2]
    """
    assert array.type.bit_width == 8 * np.dtype(dtype).itemsize, f"{array.type} is not as wide as {np.dtype(dtype)}"
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype=dtype, count=array.offset + len(array))[array.offset :]


def truths(array: pa.Array) -> np.ndarray:
    """Where an array of booleans is true. Null is not true.

    >>> truths(pa.array([True, None, False])).tolist()
    [True, False, False]
    """
    if not len(array):
        return np.zeros(0, bool)
    validity, data = array.buffers()
    found = _bits(data, array)
    return found if validity is None else found & _bits(validity, array)


def valids(array: pa.Array) -> np.ndarray:
    """Where an array is not null.

    >>> valids(pa.array([1, None])).tolist()
    [True, False]
    """
    if not array.null_count:
        return np.ones(len(array), bool)
    validity = array.buffers()[0]
    return np.zeros(len(array), bool) if validity is None else _bits(validity, array)


def arrow(values: np.ndarray, type_: pa.DataType | None = None) -> pa.Array:
    """An Arrow array over the memory of a numpy array, as numbers or as another type of the same width.

    >>> arrow(np.array([1, 2])).type, arrow(np.array([1, 2]), pa.timestamp("us")).type
    (DataType(int64), TimestampType(timestamp[us]))
    """
    type_ = type_ or _ARROW_TYPES[values.dtype]
    assert type_.bit_width == 8 * values.dtype.itemsize, f"{values.dtype} is not as wide as {type_}"
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def array_of(values: Sequence[Any]) -> pa.Array | pa.ChunkedArray:
    """Python values in the type that Arrow infers. Values of one simple type, even with nulls, do not load pandas.

    >>> array_of(["x", None]).to_pylist(), array_of([1, 2]).type, array_of([None]).type
    (['x', None], DataType(int64), DataType(null))
    """
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return pa.nulls(len(values))
    kind = kinds.pop()
    if kinds or kind not in (bool, int, float, str):
        return pa.array(values)
    present = np.fromiter((value is not None for value in values), bool, len(values))
    validity = None if present.all() else _packed(present)
    try:
        if kind is str:
            return _texts(values, validity)
        filled = values if validity is None else [kind() if value is None else value for value in values]
        data = np.fromiter(filled, {bool: bool, int: np.int64, float: np.float64}[kind], len(values))
    except (OverflowError, UnicodeEncodeError):
        # An integer beyond 64 signed bits, or half of a surrogate pair: leave it to Arrow.
        return pa.array(values)
    if kind is bool:
        return pa.Array.from_buffers(pa.bool_(), len(values), [validity, _packed(data)])
    return pa.Array.from_buffers(_ARROW_TYPES[data.dtype], len(values), [validity, pa.py_buffer(data)])


def _texts(values: Sequence[str | None], validity: pa.Buffer | None) -> pa.Array:
    encoded = [b"" if value is None else value.encode("utf-8") for value in values]
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    type_, width = (pa.string(), np.int32) if ends[-1] < 2**31 else (pa.large_string(), np.int64)
    offsets = np.concatenate([np.zeros(1, width), ends.astype(width)])
    return pa.Array.from_buffers(type_, len(values), [validity, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))])


def _packed(bits: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def empty_table(schema: pa.Schema) -> pa.Table:
    """A table without rows. Arrow's own `empty_table` fails for unions and for extension types inside structs.

    >>> empty_table(pa.schema({"x": pa.struct({"id": pa.uuid()})})).num_rows
    0
    """
    return pa.table([pa.nulls(0, field.type) for field in schema], schema=schema)


def repeated(value: Any, type_: pa.DataType, rows: int) -> pa.Array:
    """A value repeated `rows` times.

    >>> repeated("x", pa.large_string(), 2).to_pylist()
    ['x', 'x']
    """
    if type_ in (pa.int64(), pa.float64()):
        return arrow(np.full(rows, value, np.int64 if type_ == pa.int64() else np.float64))
    if type_ == pa.large_string():
        data = value.encode("utf-8")
        offsets = np.array([0, len(data)], np.int64)
        return pa.repeat(pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])[0], rows)
    return pa.repeat(pa.scalar(value, type_), rows)


def _bits(buffer: pa.Buffer, array: pa.Array) -> np.ndarray:
    packed = np.frombuffer(buffer, np.uint8)
    return np.unpackbits(packed, bitorder="little", count=array.offset + len(array))[array.offset :].view(bool)


# The largest number of digits of Arrow's decimals.
_DECIMAL128_DIGITS_MAX, _DECIMAL256_DIGITS_MAX = 38, 76


def plain_table(table: pa.Table) -> pa.Table:
    """The table with every column in its plain form.

    >>> plain_table(pa.table({"x": pa.array([7, 7]).dictionary_encode()})).schema.field("x").type
    DataType(int64)
    """
    for number, field in enumerate(table.schema):
        column = table.column(number)
        try:
            made = _plain_column(column)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise InputError(
                f"the column '{field.name}' is of type {field.type}, which cannot be read: {error}; "
                "leave it out, or convert it first"
            ) from None
        if made is not column:
            table = table.set_column(number, field.name, made)
    return table


def retyped(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """A plain column in another plain type. Raises Arrow's errors if its values do not fit.

    >>> retyped(pa.chunked_array([["x"]]), pa.dictionary(pa.int32(), pa.large_string())).type.value_type
    DataType(large_string)
    """
    if column.type == wanted:
        return column
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    if not pa.types.is_dictionary(wanted):
        return pc.cast(column, wanted)
    return pa.chunked_array(
        [
            pa.DictionaryArray.from_arrays(coded.indices, coded.dictionary, ordered=wanted.ordered)
            for coded in (chunk.dictionary_encode() for chunk in pc.cast(column, wanted.value_type).chunks)
        ],
        wanted,
    )


def _plain_type(kind: pa.DataType, *, nested: bool = False) -> pa.DataType:
    """The plain form of a type. Dictionaries inside it are decoded too."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_run_end_encoded(kind):
        return _plain_type(kind.value_type, nested=nested)
    if pa.types.is_dictionary(kind):
        value = _plain_type(kind.value_type, nested=True)
        is_text = pa.types.is_string(value) or pa.types.is_large_string(value)
        return pa.dictionary(pa.int32(), value, kind.ordered) if is_text and not nested else value
    if pa.types.is_decimal(kind) and kind.scale < 0:
        # A negative scale (12 hundreds) becomes the integer 1,200.
        digits = kind.precision - kind.scale
        return pa.decimal128(digits, 0) if digits <= _DECIMAL128_DIGITS_MAX else pa.decimal256(digits, 0)
    if pa.types.is_union(kind):
        if any(_plain_type(field.type, nested=True) != field.type for field in kind):
            raise pa.ArrowNotImplementedError("a union of encoded values")
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type, nested=True)) for field in kind])
    if pa.types.is_map(kind):
        key, item = (_plain_type(inner, nested=True) for inner in (kind.key_type, kind.item_type))
        same = (key, item) == (kind.key_type, kind.item_type)
        return kind if same else pa.map_(key, item, kind.keys_sorted)
    if isinstance(kind, pa.BaseExtensionType):
        storage = _plain_type(kind.storage_type, nested=True)
        return kind if storage == kind.storage_type else storage
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type, nested=True)), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type, nested=True)))
    if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(kind.value_field.with_type(_plain_type(kind.value_type, nested=True)))
    return kind


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_decimal(column.type) and column.type.precision - column.type.scale > _DECIMAL256_DIGITS_MAX:
        raise pa.ArrowInvalid(f"it has more than {_DECIMAL256_DIGITS_MAX} digits before the point")
    wanted = _plain_type(column.type)
    if wanted == column.type and not any(_has_null_values(chunk) for chunk in column.chunks):
        return column
    return pa.chunked_array([_plain(chunk, wanted) for chunk in column.chunks], wanted)


def _has_null_values(array: pa.Array) -> bool:
    """Whether a dictionary has a null among its values; Arrow cannot unify such a dictionary with another."""
    return bool(pa.types.is_dictionary(array.type) and array.dictionary.null_count)


def _plain(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """An array in its plain type. Each encoding has its own code, because Arrow's casts support few nested
    encodings."""
    kind = array.type
    if kind == wanted and not _has_null_values(array):
        return array
    if pa.types.is_run_end_encoded(kind):
        places = np.arange(array.offset, array.offset + len(array))
        runs = np.searchsorted(numbers(array.run_ends.cast(pa.int64())), places, side="right")
        return _plain(array.values, wanted).take(arrow(runs))
    if pa.types.is_dictionary(kind):
        return _plain_dictionary(array, wanted)
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(array.storage, wanted)
    if pa.types.is_struct(kind):
        fields = [_plain(array.field(number), field.type) for number, field in enumerate(wanted)]
        return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=array.is_null())
    if pa.types.is_fixed_size_list(kind):
        inside = array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)
        return pa.FixedSizeListArray.from_arrays(_plain(inside, wanted.value_type), type=wanted, mask=array.is_null())
    if pa.types.is_map(kind):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        keys, items = (inside.slice(first, last - first) for inside in (array.keys, array.items))
        offsets = pc.subtract(array.offsets, first)
        keys, items = _plain(keys, wanted.key_type), _plain(items, wanted.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=wanted, mask=array.is_null())
    if pa.types.is_list(wanted) or pa.types.is_large_list(wanted):
        is_large = pa.types.is_large_list(wanted)
        lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(numbers(lengths))])
        offsets = arrow(ends).cast(pa.int64() if is_large else pa.int32())
        # Values behind nulls and between views are left out.
        inside = _plain(array.flatten(), wanted.value_type)
        made = pa.LargeListArray if is_large else pa.ListArray
        return made.from_arrays(offsets, inside, type=wanted, mask=array.is_null())
    return pc.cast(array, wanted)


def _plain_dictionary(array: pa.DictionaryArray, wanted: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(wanted):
        return _plain(array.dictionary, wanted).take(array.indices)
    values, indices = _plain(array.dictionary, wanted.value_type), array.indices.cast(pa.int32())
    if values.null_count:
        # A null among the values and a null index mean the same.
        indices = pc.if_else(values.is_null().take(indices), pa.scalar(None, pa.int32()), indices)
        values = pc.fill_null(values, "")
    return pa.DictionaryArray.from_arrays(indices, values, ordered=wanted.ordered)


Column: TypeAlias = Any  # a pyarrow Array (untyped for type checkers)

# The context for decimals, independent of the user's own; large enough for every double.
EXACT = Context(prec=400, rounding=ROUND_HALF_UP)
_EXACT_DOUBLE_MAX = 2**53


def is_computed(declared: Type) -> bool:
    """Whether expressions can compute with values of a type. Other values can only be returned and tested for null.

    >>> is_computed(Type(Kind.DECIMAL, precision=30))
    False
    """
    too_wide = declared.kind is Kind.DECIMAL and declared.precision > DECIMAL_DIGITS_MAX
    return declared.kind not in WHOLE and not too_wide


def engine_type(declared: Type) -> pa.DataType:
    """The Arrow type of values in engine form; null for values that can only be returned.

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
    }.get(kind, pa.null())


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column as a single array, without a copy if it has a single chunk."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def to_engine(column: pa.Array | pa.ChunkedArray, declared: Type, name: str = "") -> Column:
    """An input column in engine form. `name` is for the error if a value does not fit."""
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
    """(digits, valid): the digits of decimals as integers, and where they are not null. They must fit 64 bits. Nulls
    have the digits 0.

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
    """(values, valid): the column as int64, and where it is not null. Decimals become their unscaled digits."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return unscaled(column)
    if pa.types.is_boolean(kind):
        column = pc.cast(column, pa.int64())
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64), np.zeros(len(column), bool)
    return split(column, np.int64)


def to_float(column: Column) -> Column:
    """Numbers as the nearest floats. Arrow's own cast of decimals is sometimes off by one bit.

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
    """A computed column in its output type: ticks and days become timestamps, durations and dates."""
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
    """(values, valid): the values, with zeros for nulls, and where they are not null."""
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
    """A comparison. NaN equals NaN and is greater than every number, as in Spark."""
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


def ranks(column: pa.Array) -> np.ndarray:
    """For each value, its rank among the distinct values: nulls first, NaN last.

    >>> ranks(pa.array([2.0, None, float("nan"), -0.0, 0.0])).tolist()
    [2, 0, 3, 1, 1]
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        values = np.asarray(pc.fill_null(pc.cast(column, pa.float64()), 0.0).to_numpy(zero_copy_only=False))
        _, places = np.unique(values, return_inverse=True)
        valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
        return np.where(valid, places + 1, 0)
    if _is_ranked_by_python(column.type):
        keys = [_sort_key(value) for value in column.to_pylist()]
        known = {key: place for place, key in enumerate(sorted(set(keys)))}
        return np.array([known[key] for key in keys], np.int64)
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    if pa.types.is_decimal32(column.type) or pa.types.is_decimal64(column.type):
        column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    distinct = pc.unique(column)
    ordered = distinct.take(pc.array_sort_indices(distinct, null_placement="at_start"))
    return np.asarray(pc.index_in(column, value_set=ordered).to_numpy(zero_copy_only=False), dtype=np.int64)


def _is_ranked_by_python(kind: pa.DataType) -> bool:
    """Whether values of a type must be sorted in Python, because Arrow cannot."""
    return pa.types.is_nested(kind) or pa.types.is_interval(kind) or isinstance(kind, pa.BaseExtensionType)


def _sort_key(value: Any) -> tuple[Any, ...]:
    """A sort key: lists elementwise, maps by sorted key, structs field by field."""
    if value is None:
        return (0,)
    if isinstance(value, dict):
        return (1, tuple((name, _sort_key(field)) for name, field in value.items()))
    if isinstance(value, list):
        items = [_sort_key(item) for item in value]
        is_map = bool(value) and all(isinstance(item, tuple) for item in value)
        return (1, tuple(sorted(items) if is_map else items))
    if isinstance(value, tuple):
        return (1, tuple(_sort_key(item) for item in value))
    if isinstance(value, float):
        return (1, "float", value != value, 0.0 if value != value else value)
    if isinstance(value, str):
        return (1, "str", value.encode("utf-8", "surrogatepass"))
    # A union has values of several types.
    return (1, type(value).__name__, value)
