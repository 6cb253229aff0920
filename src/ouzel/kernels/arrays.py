"""The types of arrays that kernels take, arrays that grow, and Arrow arrays as numpy arrays, without a copy if their
layout allows it.

All views of Arrow arrays are read-only. Kernels never write their input, and numba would compile a kernel again for
writable arguments.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

# The annotations of a kernel and of its tuples are its signature in machine code. `NDArray[dtype]` has one dimension,
# is contiguous in memory and can be written to.
_Item = TypeVar("_Item", bound=np.generic)
_Array = TypeVar("_Array")
Matrix = Annotated[NDArray[_Item], "2"]
Cube = Annotated[NDArray[_Item], "3"]
Strided = Annotated[NDArray[_Item], "strided"]  # one dimension, at any distance
ReadOnly = Annotated[_Array, "read-only"]  # writable arrays are accepted, too


def enlarged(array: NDArray, length: int, fill: int = -1, *, axis: int = 0) -> NDArray:  # type: ignore[type-arg]
    """The array itself if it is long enough along an axis; otherwise a longer copy, with `fill` in the new entries.

    >>> enlarged(np.array([5, 6]), 4).tolist()
    [5, 6, -1, -1]
    """
    if array.shape[axis] >= length:
        return array
    shape = list(array.shape)
    shape[axis] = length
    # Zeros take no memory until they are written to.
    larger = np.full(shape, fill, array.dtype) if fill else np.zeros(shape, array.dtype)
    larger[tuple(slice(old) for old in array.shape)] = array
    return larger


Bytes = NDArray[np.uint8]


class Text(NamedTuple):
    """Strings or byte strings. Value r is data[offsets[r]:offsets[r+1]]; it is null if bit validity_offset + r is 0."""

    offsets: ReadOnly[NDArray[np.int32] | NDArray[np.int64]]  # one more than there are values
    data: ReadOnly[NDArray[np.uint8]]
    validity: ReadOnly[NDArray[np.uint8]]  # empty: nothing is null
    validity_offset: int


class Numbers(NamedTuple):
    """Numbers as 64-bit integers. Floats are stored as their bits."""

    values: NDArray[np.int64]
    validity: Bytes
    validity_offset: int
    is_float: bool


class Coded(NamedTuple):
    """Dictionary-encoded values: indices into a dictionary."""

    indices: ReadOnly[NDArray[np.int32]]
    validity: ReadOnly[NDArray[np.uint8]]
    validity_offset: int


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory as a contiguous, aligned, read-only array."""
    flags = array.flags
    # `np.require` costs more than most kernels on a small batch.
    view = array.view() if flags.c_contiguous and flags.aligned else np.require(array, requirements=("C", "A")).view()
    view.flags.writeable = False
    return view


NO_NULLS: Bytes = frozen(np.empty(0, dtype=np.uint8))


def text_of(array: Any) -> Text:
    """A view of a pyarrow string or binary array, with 32-bit or 64-bit offsets.

    >>> import pyarrow
    >>> text_of(pyarrow.array(["ab", "c"])).offsets.tolist()
    [0, 2, 3]
    """
    layout = str(array.type)
    if layout in ("string", "binary"):
        offset_type: Any = np.int32
    elif layout in ("large_string", "large_binary"):
        offset_type = np.int64
    else:
        raise TypeError(f"{layout} has no offsets; cast it to large_string first")
    _, offsets, data = array.buffers()
    if len(array) == 0:
        return Text(frozen(np.zeros(1, dtype=offset_type)), NO_NULLS, NO_NULLS, 0)
    window = slice(array.offset, array.offset + len(array) + 1)
    return Text(_view(offsets, offset_type)[window], _view(data, np.uint8), *_validity(array))


def numbers_of(array: Any) -> Numbers:
    """A view of a pyarrow array of integers, floats, booleans, dates, times, durations or decimals up to 18 digits.

    >>> import pyarrow
    >>> numbers_of(pyarrow.array([1.5, None])).is_float
    True
    """
    layout = str(array.type)
    window = slice(array.offset, array.offset + len(array))
    is_float = layout in ("halffloat", "float", "double")
    data = array.buffers()[1]
    if layout == "bool":
        bits = np.unpackbits(_view(data, np.uint8), bitorder="little", count=window.stop)
        values = bits[window].astype(np.int64)
    elif layout.startswith("decimal128"):
        # Two words per value, the low one first; with at most 18 digits the low word holds the whole number.
        values = _view(data, np.int64)[::2][window]
    else:
        width = array.type.bit_width
        kind = "f" if is_float else "u" if layout.startswith("uint") else "i"
        stored = _view(data, np.dtype(f"{kind}{width // 8}"))[window]
        if is_float:
            values = stored.astype(np.float64, copy=False).view(np.int64)
        else:
            values = stored.view(np.int64) if width == 64 else stored.astype(np.int64)
    return Numbers(frozen(values), *_validity(array), is_float)


def coded_of(array: Any) -> Coded:
    """A view of the indices of a pyarrow dictionary array. Its values are `array.dictionary`."""
    indices = numbers_of(array.indices)
    return Coded(frozen(indices.values.astype(np.int32)), indices.validity, indices.validity_offset)


def column_of(array: Any) -> Text | Numbers:
    """A view of any array that can be a key. Dictionaries are decoded and string views are cast, both of which copy.

    >>> import pyarrow
    >>> type(column_of(pyarrow.array(["a"]).dictionary_encode())).__name__
    'Text'
    """
    layout = str(array.type)
    if layout.startswith("dictionary"):
        return column_of(array.dictionary_decode())
    if layout in ("string_view", "binary_view"):
        return text_of(array.cast("large_" + layout.removesuffix("_view")))
    if layout.endswith(("string", "binary")):
        return text_of(array)
    return numbers_of(array)


def _view(buffer: Any, dtype: Any) -> NDArray[Any]:
    if buffer is None:
        return frozen(np.empty(0, dtype=dtype))
    item_size = np.dtype(dtype).itemsize
    return frozen(np.frombuffer(buffer, dtype=dtype, count=buffer.size // item_size))


def _validity(array: Any) -> tuple[Bytes, int]:
    bitmap = array.buffers()[0]
    if bitmap is None or array.null_count == 0:
        return NO_NULLS, 0
    return _view(bitmap, np.uint8), array.offset
