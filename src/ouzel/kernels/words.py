"""Bytes read eight at a time: loads, hashes and comparisons that the string kernels share.

Some have a second form for kernels that run as plain Python: numpy's scalars warn where 64-bit arithmetic wraps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ouzel.kernels.jit import helper, intrinsic

ONE = np.uint64(1)
TWO = np.uint64(2)
THREE = np.uint64(3)
EIGHT = np.uint64(8)
ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
HALF = np.uint64(32)

# Odd numbers without structure (the fraction of the golden ratio, and multipliers with good avalanche).
MULTIPLIER_FIRST = np.uint64(0x9E3779B97F4A7C15)
MULTIPLIER_SECOND = np.uint64(0xD6E8FEB86659FD93)

# Up to this length, the first word, the last word and the length identify a string; longer ones are also compared by
# bytes.
EXACT_LENGTH_MAX = 16


@intrinsic
def load_word(data: Any, position: Any) -> Any:
    """Eight bytes from any position on."""
    start = int(position)
    return np.uint64(int.from_bytes(data[start : start + 8].tobytes(), "little"))


@intrinsic
def store_word(data: Any, position: Any, word: Any) -> None:
    """Write eight bytes from any position on."""
    start = int(position)
    data[start : start + 8] = np.frombuffer(int(word).to_bytes(8, "little"), np.uint8)


def hash_integer_in_python(value: Any) -> Any:
    mixed = int(value) & int(ALL_BITS)
    mixed = (mixed ^ (mixed >> 32)) * int(MULTIPLIER_SECOND) & int(ALL_BITS)
    return np.uint64((mixed ^ (mixed >> 32)) * int(MULTIPLIER_SECOND) & int(ALL_BITS))


@helper(allocates=True, in_python=hash_integer_in_python)
def hash_integer(value: Any) -> Any:
    mixed = np.uint64(value)
    mixed = (mixed ^ (mixed >> HALF)) * MULTIPLIER_SECOND
    return (mixed ^ (mixed >> HALF)) * MULTIPLIER_SECOND


def hash_text_in_python(first_word: Any, last_word: Any, length: Any) -> Any:
    mixed = int(first_word) * int(MULTIPLIER_FIRST) & int(ALL_BITS)
    mixed ^= mixed >> 32
    return np.uint64((mixed + int(last_word) + int(length)) * int(MULTIPLIER_SECOND) & int(ALL_BITS))


@helper(allocates=True, in_python=hash_text_in_python)
def hash_text(first_word: Any, last_word: Any, length: Any) -> Any:
    mixed = first_word * MULTIPLIER_FIRST
    mixed ^= mixed >> HALF
    return (mixed + last_word + length) * MULTIPLIER_SECOND


def _fold_in_python(folded: Any, word: Any) -> Any:
    mixed = (int(folded) ^ int(word)) * int(MULTIPLIER_SECOND) & int(ALL_BITS)
    return np.uint64(mixed ^ (mixed >> 32))


@helper(allocates=True, in_python=_fold_in_python)
def fold(folded: Any, word: Any) -> Any:
    mixed = (folded ^ word) * MULTIPLIER_SECOND
    return mixed ^ (mixed >> HALF)


@helper(allocates=True)
def word_mask(length: Any) -> Any:
    """The bits of the first `length` bytes of a word; all bits for eight bytes or more."""
    return ALL_BITS if length >= EIGHT else (ONE << (length << THREE)) - ONE


@helper(allocates=True)
def load_first_word(data: Any, begin: Any, length: Any) -> Any:
    """The first eight bytes of a string, padded with zeros; never reads past the buffer."""
    if begin + EIGHT <= np.uint64(data.size):
        return load_word(data, begin) & word_mask(length)
    word = np.uint64(0)
    for index in range(min(length, EIGHT)):
        byte = np.uint64(data[begin + np.uint64(index)])
        word |= byte << (np.uint64(index) << THREE)
    return word


@helper(allocates=True)
def fold_middle(data: Any, begin: Any, end: Any, first_word: Any) -> Any:
    """A hash of all but the last eight bytes of a string longer than EXACT_LENGTH_MAX."""
    folded = fold(first_word, np.uint64(0))
    position = begin + EIGHT
    while position + EIGHT < end:
        folded = fold(folded, load_word(data, position))
        position += EIGHT
    return folded


@helper(allocates=True)
def equal_bytes(left: Any, left_begin: Any, right: Any, right_begin: Any, length: Any) -> Any:
    """Whether two strings of the same length, at least eight bytes, are equal."""
    last = length - EIGHT
    position = np.uint64(0)
    while position < last:
        if load_word(left, left_begin + position) != load_word(right, right_begin + position):
            return False
        position += EIGHT
    return load_word(left, left_begin + last) == load_word(right, right_begin + last)


@helper(allocates=True)
def is_valid(validity: Any, bit: Any) -> Any:
    """Reads Arrow's validity bitmap; an empty one means that nothing is null."""
    return validity.size == 0 or (validity[bit >> 3] >> (bit & 7)) & 1 != 0
