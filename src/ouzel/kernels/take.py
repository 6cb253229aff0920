"""Rows of Arrow buffers: texts and bits, gathered by row number. Numbers are gathered by `order.gather`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import ReadOnly
from ouzel.kernels.columns import Bytes, Text, frozen
from ouzel.kernels.jit import kernel
from ouzel.kernels.words import EIGHT, load_word, store_word

_Offsets = NDArray[np.int32] | NDArray[np.int64]

# Texts are written sixteen bytes at a time, so a buffer has room for so many more.
PADDING = 16
SIXTEEN = np.uint64(PADDING)


def gather_offsets(text: Text, rows: NDArray[np.int32], offsets: NDArray[Any]) -> int:
    """Write where each of some texts begins once they are side by side; gives their length together.

    >>> import pyarrow
    >>> from ouzel.kernels.columns import text_of
    >>> offsets = np.empty(3, np.int32)
    >>> gather_offsets(text_of(pyarrow.array(["ab", "c"])), np.array([1, 0], np.int32), offsets), offsets.tolist()
    (3, [0, 1, 3])
    """
    return int(_gather_offsets(text.offsets, frozen(rows), offsets))


def gather_bytes(text: Text, rows: NDArray[np.int32], offsets: NDArray[Any], data: Bytes) -> None:
    """Write some texts side by side, each where `offsets` says, into PADDING bytes more than they have."""
    _gather_bytes(text.offsets, text.data, frozen(rows), frozen(offsets), data)


def gather_bits(bits: Bytes, offset: int, rows: NDArray[np.int32], gathered: Bytes) -> int:
    """Write some bits of a bitmap whose first one is at `offset`; gives how many of them are 1.

    >>> bits = np.empty(1, np.uint8)
    >>> gather_bits(np.array([0b10110], np.uint8), 1, np.array([0, 2, 3], np.int32), bits), bits.tolist()
    (2, [5])
    """
    return int(_gather_bits(frozen(bits), offset, frozen(rows), gathered))


@kernel(allocates=True)
def _gather_offsets(source: ReadOnly[_Offsets], rows: ReadOnly[NDArray[np.int32]], offsets: _Offsets) -> Any:
    total = np.int64(0)
    offsets[0] = 0
    for place in range(rows.size):
        row = np.uint32(rows[place])
        total += np.int64(source[row + np.uint32(1)]) - np.int64(source[row])
        # Wraps around in 32 bits; the caller sees by the total that the texts do not fit.
        offsets[place + 1] = total
    return total


@kernel(allocates=True)
def _gather_bytes(
    source: ReadOnly[_Offsets],
    data: ReadOnly[NDArray[np.uint8]],
    rows: ReadOnly[NDArray[np.int32]],
    offsets: ReadOnly[_Offsets],
    gathered: NDArray[np.uint8],
) -> None:
    size = np.uint64(data.size)
    for place in range(rows.size):
        begin = np.uint64(source[np.uint32(rows[place])])
        target = np.uint64(offsets[place])
        length = np.uint64(offsets[place + 1]) - target
        if begin + length + SIXTEEN <= size:
            # Two words at least, since a branch for short texts is often guessed wrong. What they write behind the text
            # is overwritten by the next one.
            store_word(gathered, target, load_word(data, begin))
            store_word(gathered, target + EIGHT, load_word(data, begin + EIGHT))
            done = SIXTEEN
            while done < length:
                store_word(gathered, target + done, load_word(data, begin + done))
                done += EIGHT
        else:
            for index in range(length):
                gathered[target + np.uint64(index)] = data[begin + np.uint64(index)]


@kernel(allocates=True)
def _gather_bits(
    bits: ReadOnly[NDArray[np.uint8]], offset: int, rows: ReadOnly[NDArray[np.int32]], gathered: NDArray[np.uint8]
) -> Any:
    first = np.uint64(offset)
    ones = np.int64(0)
    for byte in range(gathered.size):
        start = byte * 8
        found = np.uint64(0)
        for index in range(min(8, rows.size - start)):
            bit = first + np.uint64(rows[start + index])
            one = (np.uint64(bits[bit >> np.uint64(3)]) >> (bit & np.uint64(7))) & np.uint64(1)
            found |= one << np.uint64(index)
            ones += np.int64(one)
        gathered[byte] = found
    return ones
