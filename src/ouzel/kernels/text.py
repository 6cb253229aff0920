"""Strings: reads their bytes eight at a time, finds the constant that each value equals, and selects rows by it.

A value is represented by its first eight bytes, its last eight bytes and its length. A block of rows is processed at a
time, so that the compiler can use vector gathers and compares. Constants are compared one after another, which costs
0.3 ns for each row and constant. This is enough because a query names few types.

Some functions have a second form for kernels that run as plain Python, because numpy's scalars warn when 64-bit
arithmetic wraps around.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import Coded, ReadOnly, Text, frozen
from ouzel.kernels.jit import helper, intrinsic, kernel

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
    """Eight bytes, from any position on."""
    start = int(position)
    return np.uint64(int.from_bytes(data[start : start + 8].tobytes(), "little"))


@intrinsic
def store_word(data: Any, position: Any, word: Any) -> None:
    """Write eight bytes, from any position on."""
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
    """The first eight bytes of a string, padded with zeros. It never reads past the buffer."""
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
    """Whether a value is not null, by Arrow's validity bitmap. An empty bitmap means that nothing is null."""
    return validity.size == 0 or (validity[bit >> 3] >> (bit & 7)) & 1 != 0


# The loops below read no field of a tuple: numba counts a reference each time, which costs more than the work. The
# scratch arrays of a block stay in the first-level cache.
BLOCK_ROWS = 512


# One byte, unless there are many constants.
Codes = NDArray[np.uint8] | NDArray[np.int32]


class Constants(NamedTuple):
    """Distinct strings, made by `constants_of`. The code of a constant is its index. The code of any other string is
    the number of constants.
    """

    first_words: ReadOnly[NDArray[np.uint64]]
    last_words: ReadOnly[NDArray[np.uint64]]
    lengths: ReadOnly[NDArray[np.uint64]]
    offsets: ReadOnly[NDArray[np.int64]]
    data: ReadOnly[NDArray[np.uint8]]
    longest: int


def constants_of(values: Sequence[str | bytes]) -> Constants:
    """Constants for `classify` and `select`.

    >>> constants_of(["Shelf", "Exit"]).lengths.tolist()
    [5, 4]
    """
    encoded = [value.encode() if isinstance(value, str) else bytes(value) for value in values]
    if len(set(encoded)) != len(encoded):
        raise ValueError("constants must be distinct")
    parts = np.array([_fingerprint(value) for value in encoded], dtype=np.uint64).reshape(-1, 3)
    return Constants(
        first_words=frozen(parts[:, 0]),
        last_words=frozen(parts[:, 1]),
        lengths=frozen(parts[:, 2]),
        offsets=frozen(np.cumsum([0, *map(len, encoded)], dtype=np.int64)),
        data=frozen(np.frombuffer(b"".join(encoded), dtype=np.uint8)),
        longest=max(map(len, encoded), default=0),
    )


def _fingerprint(value: bytes) -> tuple[int, int, int]:
    first_word = int.from_bytes(value[:8], "little")
    last_word = int.from_bytes(value[-8:], "little") if len(value) > 8 else first_word
    return first_word, last_word, len(value)


def code_type(constants: Constants) -> type[np.uint8] | type[np.int32]:
    """The integer type of codes: one byte if they fit."""
    return np.uint8 if constants.lengths.size < 256 else np.int32


def classify(text: Text, constants: Constants) -> NDArray[Any]:
    """The code of every value: the index of the equal constant, or the number of constants. A null equals no constant.

    >>> import pyarrow
    >>> from ouzel.kernels.arrays import text_of
    >>> classify(text_of(pyarrow.array(["Exit", None, "Door", "Shelf"])), constants_of(["Shelf", "Exit"])).tolist()
    [1, 2, 2, 0]
    """
    codes = np.empty(text.offsets.size - 1, dtype=code_type(constants))
    _classify(text, constants, codes)
    return codes


def select(
    text: Text, constants: Constants, roles_by_code: NDArray[np.uint64]
) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """The rows whose code has a role, in order, and their codes. `roles_by_code` has one entry for each code.

    >>> import pyarrow
    >>> from ouzel.kernels.arrays import text_of
    >>> roles = np.array([0b01, 0b10, 0], dtype=np.uint64)
    >>> rows, codes = select(text_of(pyarrow.array(["Exit", "Door", "Shelf"])), constants_of(["Shelf", "Exit"]), roles)
    >>> rows.tolist(), codes.tolist()
    ([0, 2], [1, 0])
    """
    assert roles_by_code.size == constants.lengths.size + 1
    rows, codes = _room(text.offsets.size - 1, code_type(constants))
    found = _select(text, constants, frozen(roles_by_code), rows, codes)
    return rows[:found], codes[:found]


def select_coded(
    coded: Coded, dictionary_codes: NDArray[Any], roles_by_code: NDArray[np.uint64]
) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Like `select`, for dictionary-encoded values: `dictionary_codes` is `classify` of the dictionary."""
    rows, codes = _room(coded.indices.size, dictionary_codes.dtype)
    # The last entry is the code of nulls.
    table = frozen(np.append(dictionary_codes, np.array([roles_by_code.size - 1], dtype=dictionary_codes.dtype)))
    is_relevant = frozen((roles_by_code[table] != 0).astype(np.uint8))
    found = _select_coded(coded, table, is_relevant, rows, codes)
    return rows[:found], codes[:found]


def _room(count: int, dtype: Any) -> tuple[NDArray[np.int32], NDArray[Any]]:
    assert count < 2**31, "row numbers are 32 bits; give larger columns in slices"
    return np.empty(count, dtype=np.int32), np.empty(count, dtype=dtype)


class _Block(NamedTuple):
    """The strings of one block of rows."""

    first_words: NDArray[np.uint64]
    last_words: NDArray[np.uint64]  # equal to the first words if no constant is longer than a word
    lengths: NDArray[np.uint64]


@helper(allocates=True)
def _new_block(constants: Any) -> Any:
    first_words = np.empty(BLOCK_ROWS, dtype=np.uint64)
    last_words = np.empty(BLOCK_ROWS, dtype=np.uint64) if constants.longest > 8 else first_words
    return _Block(first_words, last_words, np.empty(BLOCK_ROWS, dtype=np.uint64))


@helper(allocates=True)
def _read_first_words(text: Any, start: Any, count: Any, block: Any) -> None:
    first_words = block.first_words
    lengths = block.lengths
    offsets = text.offsets[start : start + count + 1]
    data = text.data
    # Offsets ascend: if eight bytes can be read at the last string, they can be read at every string.
    is_inside = np.int64(offsets[count - 1]) + 8 <= data.size
    if is_inside:
        for index in range(count):
            begin = np.uint64(offsets[index])
            length = np.uint64(offsets[index + 1]) - begin
            first_words[index] = load_word(data, begin) & word_mask(length)
            lengths[index] = length
    else:
        for index in range(count):
            begin = np.uint64(offsets[index])
            length = np.uint64(offsets[index + 1]) - begin
            first_words[index] = load_first_word(data, begin, length)
            lengths[index] = length


@helper(allocates=True)
def _read_last_words(text: Any, start: Any, count: Any, block: Any) -> None:
    first_words = block.first_words
    last_words = block.last_words
    lengths = block.lengths
    offsets = text.offsets[start : start + count + 1]
    data = text.data
    if data.size < 8:
        last_words[:count] = first_words[:count]
        return
    for index in range(count):
        is_long = lengths[index] > EIGHT
        # Short strings load from a safe place, so that the load needs no branch.
        word = load_word(data, np.uint64(offsets[index + 1]) - EIGHT if is_long else np.uint64(0))
        last_words[index] = word if is_long else first_words[index]


@helper(allocates=True)
def _compare_block(text: Any, constants: Any, start: Any, count: Any, block: Any, codes: Any) -> None:
    first_words = block.first_words
    last_words = block.last_words
    lengths = block.lengths
    none = constants.lengths.size
    for index in range(count):
        codes[index] = none
    for number in range(none):
        code = codes.dtype.type(number)
        first_word = constants.first_words[number]
        last_word = constants.last_words[number]
        length = constants.lengths[number]
        if length <= EIGHT:
            for index in range(count):
                equal = (first_words[index] == first_word) & (lengths[index] == length)
                codes[index] = code if equal else codes[index]
        elif length <= EXACT_LENGTH_MAX:
            for index in range(count):
                equal = (first_words[index] == first_word) & (last_words[index] == last_word)
                codes[index] = code if equal & (lengths[index] == length) else codes[index]
        else:
            offsets, data = text.offsets, text.data
            constant_data, constant_begin = constants.data, np.uint64(constants.offsets[number])
            for index in range(count):
                equal = (first_words[index] == first_word) & (last_words[index] == last_word)
                if equal & (lengths[index] == length):
                    # Texts with equal ends may differ between them.
                    begin = np.uint64(offsets[start + index])
                    if equal_bytes(data, begin, constant_data, constant_begin, length):
                        codes[index] = code


@helper(allocates=True)
def _code_block(text: Any, constants: Any, start: Any, count: Any, block: Any, codes: Any) -> None:
    _read_first_words(text, start, count, block)
    if constants.longest > 8:
        _read_last_words(text, start, count, block)
    _compare_block(text, constants, start, count, block, codes)
    if text.validity.size:
        none = constants.lengths.size
        for index in range(count):
            if not is_valid(text.validity, text.validity_offset + start + index):
                codes[index] = none


@kernel(allocates=True)
def _classify(text: Text, constants: Constants, codes: Codes) -> None:
    block = _new_block(constants)
    for start in range(0, codes.size, BLOCK_ROWS):
        count = min(BLOCK_ROWS, codes.size - start)
        _code_block(text, constants, start, count, block, codes[start : start + count])


@kernel(allocates=True)
def _select(
    text: Text,
    constants: Constants,
    roles_by_code: ReadOnly[NDArray[np.uint64]],
    rows: NDArray[np.int32],
    codes: Codes,
) -> Any:
    block = _new_block(constants)
    block_codes = np.empty(BLOCK_ROWS, dtype=codes.dtype)
    found = 0
    for start in range(0, rows.size, BLOCK_ROWS):
        count = min(BLOCK_ROWS, rows.size - start)
        _code_block(text, constants, start, count, block, block_codes)
        for index in range(count):
            # Always write, and keep only if relevant: no branch depends on the data.
            code = block_codes[index]
            rows[found] = start + index
            codes[found] = code
            found += roles_by_code[code] != 0
    return found


@kernel(allocates=True)
def _select_coded(
    coded: Coded,
    dictionary_codes: ReadOnly[Codes],
    is_relevant: ReadOnly[NDArray[np.uint8]],
    rows: NDArray[np.int32],
    codes: Codes,
) -> Any:
    indices = coded.indices
    validity = coded.validity
    validity_offset = coded.validity_offset
    # An unsigned index is not checked for counting from the end.
    none = np.uint64(dictionary_codes.size - 1)
    found = np.uint64(0)
    if validity.size == 0:
        for row in range(rows.size):
            index = np.uint64(indices[row])
            rows[found] = row
            codes[found] = dictionary_codes[index]
            found += np.uint64(is_relevant[index])
        return np.int64(found)
    for row in range(rows.size):
        index = np.uint64(indices[row]) if is_valid(validity, validity_offset + row) else none
        rows[found] = row
        codes[found] = dictionary_codes[index]
        found += np.uint64(is_relevant[index])
    return np.int64(found)
