"""Orders and gathers rows: test of sortedness, stable sort, groups of equal times, one instance for each role; and
numbers, texts and bits by row number.

Positions are 32 bits: a batch, or the buffer of a window, has fewer than 2^31 events.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import Bytes, ReadOnly, Text, frozen
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.text import EIGHT, load_word, store_word

Positions = NDArray[np.int32]
_Bits = NDArray[np.int32] | NDArray[np.int64]

BLOCK_ROWS = 1024
# Below this many rows, numpy costs less than the call of a kernel.
GATHERED_ROWS_MIN = 256
RADIX_ROWS_MIN = 4096
SAMPLED_ROWS = 1024
SHUFFLED_SHARE = 0.1
DIGIT_BITS_MAX = 11
COMPONENTS_MAX = 64


def first_disorder(times: NDArray[np.int64], *, strict: bool = False) -> int:
    """The first position whose time is smaller than the one before it or, with `strict`, not larger; -1 if there is
    none.

    >>> first_disorder(np.array([1, 3, 3, 2, 5])), first_disorder(np.array([1, 3, 3, 2, 5]), strict=True)
    (3, 2)
    """
    return int(_first_disorder(frozen(times), strict))


def stable_order(times: NDArray[np.int64]) -> Positions:
    """The positions sorted by time. Equal times keep their order.

    >>> stable_order(np.array([5, 1, 5, 0])).tolist()
    [3, 1, 0, 2]
    """
    assert times.size < 2**31
    times = frozen(times)
    if times.size >= RADIX_ROWS_MIN and _looks_shuffled(times):
        return _radix_order(times)
    # numpy merges the sorted runs that it finds, which was fastest on late rows, jitter and concatenated files.
    return np.argsort(times, kind="stable").astype(np.int32)


class Ties(NamedTuple):
    """The positions whose time also occurs at a neighbour, in ascending order, and for each the number of its group of
    equal times.
    """

    positions: Positions
    groups: Positions


def ties(times: NDArray[np.int64]) -> Ties:
    """Find the groups of equal times in a sorted column, so that further columns need to sort only these.

    To sort these also by columns `a` and `b`, which are in the order so far: `inner = np.lexsort((b[positions],
    a[positions], groups))`, then `order[positions] = order[positions[inner]]`.

    >>> found = ties(np.array([1, 2, 2, 3, 4, 4, 4]))
    >>> found.positions.tolist(), found.groups.tolist()
    ([1, 2, 4, 5, 6], [0, 0, 1, 1, 1])
    """
    times = frozen(times)
    count = _count_ties(times)
    positions = np.empty(count, dtype=np.int32)
    groups = np.empty(count, dtype=np.int32)
    if count:
        _write_ties(times, positions, groups)
    return Ties(positions, groups)


def expand(roles: NDArray[np.uint64]) -> tuple[Positions, NDArray[np.int8]]:
    """(positions, components): one instance for each role of each event, ordered by the event's position, then by
    component.

    >>> events, components = expand(np.array([0b101, 0, 0b010], dtype=np.uint64))
    >>> events.tolist(), components.tolist()
    ([0, 0, 2], [0, 2, 1])
    """
    roles = frozen(roles)
    instance_count, component_count, is_single = _count_roles(roles)
    assert instance_count < 2**31
    if is_single:
        events = np.arange(roles.size, dtype=np.int32)
        components = np.zeros(roles.size, dtype=np.int8)
        _single_components(roles, component_count, components)
        return events, components
    # One more, because the loop writes before it knows whether the role exists.
    events = np.empty(instance_count + 1, dtype=np.int32)
    components = np.empty(instance_count + 1, dtype=np.int8)
    _expand(roles, component_count, events, components)
    return events[:instance_count], components[:instance_count]


def gather(values: NDArray[Any], rows: Positions, gathered: NDArray[Any] | None = None) -> NDArray[Any]:
    """`values[rows]` for values of four or eight bytes, without converting the row numbers to 64 bits as numpy does.

    Writes the result to `gathered`, if it is given.

    >>> gather(np.array([1.5, 2.5, 3.5]), np.array([2, 0], dtype=np.int32)).tolist()
    [3.5, 1.5]
    """
    if rows.size < GATHERED_ROWS_MIN:
        return values.take(rows, out=gathered, mode="clip" if gathered is not None else "raise")
    bits = np.int64 if values.dtype.itemsize == 8 else np.int32
    if gathered is None:
        gathered = np.empty(rows.size, dtype=values.dtype)
    _gather(frozen(values.view(bits)), frozen(rows), gathered.view(bits))
    return gathered


@kernel(allocates=True)
def _first_disorder(times: ReadOnly[NDArray[np.int64]], strict: bool) -> Any:
    for start in range(0, times.size - 1, BLOCK_ROWS):
        end = min(start + BLOCK_ROWS, times.size - 1)
        before = times[start:end]
        after = times[start + 1 : end + 1]
        # Without an early exit the compiler can compare several values at once.
        descents = 0
        for index in range(end - start):
            descents += (after[index] < before[index]) | (strict & (after[index] == before[index]))
        if descents:
            for index in range(end - start):
                if after[index] < before[index] or (strict and after[index] == before[index]):
                    return start + index + 1
    return -1


def _looks_shuffled(times: NDArray[np.int64]) -> bool:
    """Whether, in a sample, many times are later than that of the next row, and many are later than that of a row far
    behind.
    """
    stride = times.size // SAMPLED_ROWS
    far = times.size // 8
    sample = times[:-far:stride]
    near_share = np.mean(times[1 : 1 - far : stride][: sample.size] < sample)
    far_share = np.mean(times[far::stride][: sample.size] < sample)
    return bool(min(near_share, far_share) > SHUFFLED_SHARE)


def _radix_order(times: NDArray[np.int64]) -> Positions:
    lowest, highest = int(times.min()), int(times.max())
    bits = (highest - lowest).bit_length()
    passes = -(-bits // DIGIT_BITS_MAX)
    # Distances from the smallest time; in 64 bits they wrap to the right unsigned number.
    keys = times.view(np.uint64) - np.array([lowest], dtype=np.int64).view(np.uint64)
    order = np.arange(times.size, dtype=np.int32)
    if passes == 0:
        return order
    digit_bits = -(-bits // passes)
    other_keys, other_order = np.empty_like(keys), np.empty_like(order)
    for index in range(passes):
        _radix_pass(keys, order, index * digit_bits, digit_bits, other_keys, other_order)
        keys, other_keys = other_keys, keys
        order, other_order = other_order, order
    return order


@kernel(allocates=True)
def _radix_pass(
    keys: NDArray[np.uint64],
    order: NDArray[np.int32],
    shift: int,
    digit_bits: int,
    sorted_keys: NDArray[np.uint64],
    sorted_order: NDArray[np.int32],
) -> None:
    digit_shift = np.uint64(shift)
    digit_mask = np.uint64((1 << digit_bits) - 1)
    places = np.zeros((1 << digit_bits) + 1, dtype=np.uint64)
    for position in range(keys.size):
        places[((keys[position] >> digit_shift) & digit_mask) + np.uint64(1)] += np.uint64(1)
    for digit in range(1 << digit_bits):
        places[digit + 1] += places[digit]
    for position in range(keys.size):
        digit = (keys[position] >> digit_shift) & digit_mask
        place = places[digit]
        places[digit] = place + np.uint64(1)
        sorted_keys[place] = keys[position]
        sorted_order[place] = order[position]


@kernel(allocates=True)
def _count_ties(times: ReadOnly[NDArray[np.int64]]) -> Any:
    if times.size < 2:
        return 0
    before = times[:-1]
    after = times[1:]
    count = 0
    for index in range(after.size):
        count += after[index] == before[index]
    if count == 0:
        return 0
    # A run of n has n - 1 equal neighbours: also count its first position, whose predecessor differs.
    count += after[0] == before[0]
    earlier = before[:-1]
    for index in range(earlier.size):
        count += (after[index + 1] == before[index + 1]) & (before[index + 1] != earlier[index])
    return count


@kernel(allocates=True)
def _write_ties(times: ReadOnly[NDArray[np.int64]], positions: NDArray[np.int32], groups: NDArray[np.int32]) -> None:
    written = 0
    group = -1
    for position in range(1, times.size):
        if times[position] != times[position - 1]:
            continue
        if position == 1 or times[position - 1] != times[position - 2]:
            group += 1
            positions[written] = position - 1
            groups[written] = group
            written += 1
        positions[written] = position
        groups[written] = group
        written += 1


@kernel(allocates=True)
def _count_roles(roles: ReadOnly[NDArray[np.uint64]]) -> Any:
    """(number of roles, number of components among them, whether every event has exactly one role)."""
    together = np.uint64(0)
    several = np.uint64(0)
    none = 0
    for position in range(roles.size):
        bits = roles[position]
        together |= bits
        several |= bits & (bits - np.uint64(bits != 0))
        none += bits == 0
    counted = roles.size - none
    if several != 0:
        counted = _count_bits(roles)
    component_count = 0
    while component_count < COMPONENTS_MAX and together >> np.uint64(component_count) != 0:
        component_count += 1
    return counted, component_count, several == 0 and none == 0


@helper(allocates=True)
def _count_bits(words: Any) -> Any:
    counted = np.uint64(0)
    for position in range(words.size):
        bits = words[position]
        # Add neighbouring bits, then pairs, then groups of four and so on.
        bits = bits - ((bits >> np.uint64(1)) & np.uint64(0x5555555555555555))
        bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
        bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        bits += bits >> np.uint64(8)
        bits += bits >> np.uint64(16)
        bits += bits >> np.uint64(32)
        counted += bits & np.uint64(0x7F)
    return np.int64(counted)


@kernel(allocates=True)
def _single_components(roles: ReadOnly[NDArray[np.uint64]], component_count: int, components: NDArray[np.int8]) -> None:
    for component in range(1, component_count):
        smallest = np.uint64(1) << np.uint64(component)
        for position in range(roles.size):
            components[position] += roles[position] >= smallest


@kernel(allocates=True)
def _expand(
    roles: ReadOnly[NDArray[np.uint64]], component_count: int, events: NDArray[np.int32], components: NDArray[np.int8]
) -> None:
    written = np.int64(0)
    for position in range(roles.size):
        bits = roles[position]
        for component in range(component_count):
            events[written] = position
            components[written] = component
            written += np.int64((bits >> np.uint64(component)) & np.uint64(1))


@kernel(allocates=True)
def _gather(values: ReadOnly[_Bits], rows: ReadOnly[NDArray[np.int32]], gathered: _Bits) -> None:
    for position in range(rows.size):
        gathered[position] = values[np.uint32(rows[position])]


_Offsets = NDArray[np.int32] | NDArray[np.int64]

# Texts are written sixteen bytes at a time, so a buffer has room for so many more.
PADDING = 16
SIXTEEN = np.uint64(PADDING)


def gather_offsets(text: Text, rows: NDArray[np.int32], offsets: NDArray[Any]) -> int:
    """Write the offsets of some texts once they are concatenated. Returns their total length.

    >>> import pyarrow
    >>> from ouzel.kernels.arrays import text_of
    >>> offsets = np.empty(3, np.int32)
    >>> gather_offsets(text_of(pyarrow.array(["ab", "c"])), np.array([1, 0], np.int32), offsets), offsets.tolist()
    (3, [0, 1, 3])
    """
    return int(_gather_offsets(text.offsets, frozen(rows), offsets))


def gather_bytes(text: Text, rows: NDArray[np.int32], offsets: NDArray[Any], data: Bytes) -> None:
    """Write some texts, each at its offset. `data` must be PADDING bytes longer than the texts."""
    _gather_bytes(text.offsets, text.data, frozen(rows), frozen(offsets), data)


def gather_bits(bits: Bytes, offset: int, rows: NDArray[np.int32], gathered: Bytes) -> int:
    """Write some bits of a bitmap whose first bit is at `offset`. Returns how many of them are 1.

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
