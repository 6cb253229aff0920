"""The bounds of int64, the types of arrays that kernels take, and arrays that grow."""

from __future__ import annotations

from typing import Annotated, TypeVar

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
    """The array itself if it is long enough along an axis, otherwise a longer copy filled with `fill`.

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
