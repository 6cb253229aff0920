"""Every encoding of Arrow as one of the few plain forms that the engine computes with.

All inputs pass here first, so nothing behind it has to know views, run ends, or dictionaries of anything but text. A
column that is plain already is not copied. Dictionaries of text stay dictionaries, which makes them fast.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.errors import InputError
from ouzel.runtime.arrays import arrow, numbers

# Arrow's decimals have so many digits at most.
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
    """A plain column in another plain type; raises Arrow's errors where its values do not fit.

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
    """The plain type of a column of a type; inside of other types dictionaries are decoded, too."""
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
        # 12 hundreds are the whole number 1,200.
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
    """Whether a dictionary has a null among its values, with which Arrow joins no other dictionary."""
    return bool(pa.types.is_dictionary(array.type) and array.dictionary.null_count)


def _plain(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """An array in its plain type. Written out for each encoding: Arrow's casts know few of them inside of others."""
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
        # What is hidden behind nulls and between views is left out.
        inside = _plain(array.flatten(), wanted.value_type)
        made = pa.LargeListArray if is_large else pa.ListArray
        return made.from_arrays(offsets, inside, type=wanted, mask=array.is_null())
    return pc.cast(array, wanted)


def _plain_dictionary(array: pa.DictionaryArray, wanted: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(wanted):
        return _plain(array.dictionary, wanted).take(array.indices)
    values, indices = _plain(array.dictionary, wanted.value_type), array.indices.cast(pa.int32())
    if values.null_count:
        # A null among the values and a null index say the same.
        indices = pc.if_else(values.is_null().take(indices), pa.scalar(None, pa.int32()), indices)
        values = pc.fill_null(values, "")
    return pa.DictionaryArray.from_arrays(indices, values, ordered=wanted.ordered)
