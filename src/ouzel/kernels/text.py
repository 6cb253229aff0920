"""Strings to small numbers: the constant that each value equals, and the rows that matter.

A value is represented by its first eight bytes, its last eight bytes and its length. A block of rows is processed at a
time, so that the compiler can use vector gathers and compares. Constants are compared one after another, which costs
0.3 ns per row for each: a query names few types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import ReadOnly
from ouzel.kernels.columns import Coded, Text, frozen
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.words import (
    EIGHT,
    EXACT_LENGTH_MAX,
    equal_bytes,
    is_valid,
    load_first_word,
    load_word,
    word_mask,
)

# The loops below read no field of a tuple: numba counts a reference each time, which costs more than the work. The
# scratch arrays of a block stay in the first-level cache.
BLOCK_ROWS = 512


# One byte, unless there are many constants.
Codes = NDArray[np.uint8] | NDArray[np.int32]


class Constants(NamedTuple):
    """Distinct strings, made by `constants_of`. The code of a constant is its index; the code of any other string is
    their number."""

    first_words: ReadOnly[NDArray[np.uint64]]
    last_words: ReadOnly[NDArray[np.uint64]]
    lengths: ReadOnly[NDArray[np.uint64]]
    offsets: ReadOnly[NDArray[np.int64]]
    data: ReadOnly[NDArray[np.uint8]]
    longest: int


def constants_of(values: Sequence[str | bytes]) -> Constants:
    """Prepare constants for `classify` and `select`.

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
    """The type of codes: one byte if the codes fit."""
    return np.uint8 if constants.lengths.size < 256 else np.int32


def classify(text: Text, constants: Constants) -> NDArray[Any]:
    """The code of every value: the index of the equal constant, or the number of constants. A null equals no constant.

    >>> import pyarrow
    >>> from ouzel.kernels.columns import text_of
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
    >>> from ouzel.kernels.columns import text_of
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
