"""Arrays of Arrow and numpy over the same memory.

pyarrow's own `to_numpy` and `array` load pandas first wherever it is installed, which takes longer than everything else
that a small query does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_ARROW_TYPES = {
    np.dtype(np.int32): pa.int32(),
    np.dtype(np.int64): pa.int64(),
    np.dtype(np.uint8): pa.uint8(),
    np.dtype(np.float64): pa.float64(),
}


def numbers(array: pa.Array, dtype: Any = np.int64) -> np.ndarray:
    """The memory behind an array of numbers, dates or times of the width of `dtype`. Behind a null stands anything.

    >>> numbers(pa.array([3, 1, 2]).slice(1)).tolist()
    [1, 2]
    """
    assert array.type.bit_width == 8 * np.dtype(dtype).itemsize, f"{array.type} is not as wide as {np.dtype(dtype)}"
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype=dtype, count=array.offset + len(array))[array.offset :]


def truths(array: pa.Array) -> np.ndarray:
    """Where an array of booleans is true; null is not.

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
    """An Arrow array over the memory of numbers, as numbers or as another type of the same width.

    >>> arrow(np.array([1, 2])).type, arrow(np.array([1, 2]), pa.timestamp("us")).type
    (DataType(int64), TimestampType(timestamp[us]))
    """
    type_ = type_ or _ARROW_TYPES[values.dtype]
    assert type_.bit_width == 8 * values.dtype.itemsize, f"{values.dtype} is not as wide as {type_}"
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def array_of(values: Sequence[Any]) -> pa.Array | pa.ChunkedArray:
    """Python values as Arrow infers their type. Those of one plain type, nulls among them, do not load pandas.

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
        # An integer beyond 64 signed bits, half a character: Arrow knows what to do or to say.
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
    """A table without rows. Arrow's own `empty_table` knows no unions and no extension types inside of structs.

    >>> empty_table(pa.schema({"x": pa.struct({"id": pa.uuid()})})).num_rows
    0
    """
    return pa.table([pa.nulls(0, field.type) for field in schema], schema=schema)


def repeated(value: Any, type_: pa.DataType, rows: int) -> pa.Array:
    """A value so many times.

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
