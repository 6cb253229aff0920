"""Tables that give dense codes to numbers or strings: the structures behind `keys`, and the kernels that fill them.

A table remembers the distinct values by code; the rest of it, a directory over a small range of integers or an
open-addressing hash table, can be made again from them. So growing, compacting and restoring are all the same thing:
encode the remembered values into a fresh table.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.columns import NO_NULLS, Numbers, Text, frozen
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.words import (
    EIGHT,
    EXACT_LENGTH_MAX,
    ONE,
    THREE,
    TWO,
    equal_bytes,
    fold_middle,
    hash_integer,
    hash_text,
    is_valid,
    load_first_word,
    load_word,
)

NO_KEY = -1
# A directory of this many integers fits the second-level cache and is never wasteful.
DIRECTORY_MIN = 1 << 16
# So many rows are looked at before a directory is made or widened.
RANGE_ROWS = 4096
# A few hundred keys hardly ever collide in so many slots, and each collision is a branch guessed wrong.
SLOT_BITS_MIN = 10
SLOT_WORDS = 4

# How a 64-bit number is read as a key.
AS_INTEGER = 0
AS_FLOAT = 1
AS_PAIR = 2  # two codes; negative where one of them is missing

FLOAT_MAGNITUDE = np.int64(0x7FFFFFFFFFFFFFFF)
FLOAT_INFINITY = np.int64(0x7FF0000000000000)
FLOAT_NAN = np.int64(0x7FF8000000000000)
FLOAT_NEGATIVE_ZERO = np.int64(-0x8000000000000000)

Codes = NDArray[np.int32]
NO_ROWS: Codes = frozen(np.empty(0, dtype=np.int32))


class NumberKeys(NamedTuple):
    """Distinct 64-bit numbers. Only the first `counts[COUNT]` values are in use."""

    values: NDArray[np.int64]  # by code
    directory: Codes  # the code of lowest + i, or -1; empty where the values are too far apart
    slots: NDArray[np.int64]  # value, code + 1 (0: empty); empty where there is a directory
    counts: NDArray[np.int64]  # count, lowest of the directory, slot bits, then the range of the next rows


class TextKeys(NamedTuple):
    """Distinct byte strings: code c is arena[starts[c]:starts[c+1]]."""

    starts: NDArray[np.int64]
    arena: NDArray[np.uint8]
    slots: NDArray[np.uint64]  # first word (longer strings: a hash), last word, length, code + 1 (0: empty)
    counts: NDArray[np.int64]  # count, unused, slot bits


COUNT = 0
LOWEST = 1
SLOT_BITS = 2
REST_LOWEST = 3
REST_HIGHEST = 4


# Numbers


def new_numbers() -> NumberKeys:
    return NumberKeys(
        values=np.empty(0, dtype=np.int64),
        directory=np.empty(0, dtype=np.int32),
        slots=np.empty(0, dtype=np.int64),
        counts=np.zeros(5, dtype=np.int64),
    )


def numbers_from(values: NDArray[np.int64]) -> NumberKeys:
    column = Numbers(frozen(values), NO_NULLS, 0, False)
    table, _ = encode_numbers(new_numbers(), column, NO_ROWS, AS_INTEGER, values.size)
    assert table.counts[COUNT] == values.size, "keys are distinct"
    return table


def encode_numbers(
    table: NumberKeys, column: Numbers, rows: Codes, reading: int, count: int | None = None
) -> tuple[NumberKeys, Codes]:
    """Encode the given rows, or if `count` is given the first so many values."""
    codes = np.empty(rows.size if count is None else count, dtype=np.int32)
    all_rows = count is not None
    done = 0
    while done < codes.size:
        done = _number_codes(
            table, column.values, column.validity, column.validity_offset, rows, all_rows, reading, done, codes
        )
        if done < codes.size:
            table = _widened(table, codes.size - done)
    return table, codes


def encode_pairs(table: NumberKeys, left: Codes, right: Codes) -> tuple[NumberKeys, Codes]:
    pairs = left.astype(np.int64)
    pairs <<= 32
    pairs |= right
    return encode_numbers(table, Numbers(frozen(pairs), NO_NULLS, 0, False), NO_ROWS, AS_PAIR, pairs.size)


def _widened(table: NumberKeys, rows_left: int) -> NumberKeys:
    """A table with the same codes and room for more keys, given the range of the next rows."""
    count = int(table.counts[COUNT])
    lowest, highest = int(table.counts[REST_LOWEST]), int(table.counts[REST_HIGHEST])
    if table.directory.size:
        lowest = min(lowest, int(table.counts[LOWEST]))
        highest = max(highest, int(table.counts[LOWEST]) + table.directory.size - 1)
    counts = np.zeros(5, dtype=np.int64)
    span = highest - lowest + 1
    if not table.slots.size and span <= max(DIRECTORY_MIN, 4 * (count + rows_left)):
        # With room on both sides: then widening costs little over a whole stream.
        counts[LOWEST] = lowest = max(lowest - span // 2, -(2**63))
        size = min(highest + span, 2**63 - 1) - lowest + 1
        directory, slots = np.full(size, NO_KEY, dtype=np.int32), np.empty(0, dtype=np.int64)
    else:
        # Between an eighth and a half full.
        counts[SLOT_BITS] = slot_bits = max(SLOT_BITS_MIN, (4 * count).bit_length())
        directory, slots = np.empty(0, dtype=np.int32), np.zeros(2 << slot_bits, dtype=np.int64)
        size = 1 << (slot_bits - 1)
    wider = NumberKeys(np.empty(size, dtype=np.int64), directory, slots, counts)
    done = _number_codes(
        wider, frozen(table.values), NO_NULLS, 0, NO_ROWS, True, AS_INTEGER, 0, np.empty(count, dtype=np.int32)
    )
    assert done == count
    return wider


@helper(allocates=True)
def _key_value(value: Any, reading: Any) -> Any:
    if reading == AS_FLOAT:
        if (value & FLOAT_MAGNITUDE) > FLOAT_INFINITY:
            return FLOAT_NAN
        if value == FLOAT_NEGATIVE_ZERO:
            return np.int64(0)
    return value


@helper(allocates=True)
def _codes_by_directory(
    values: Any,
    directory: Any,
    lowest: Any,
    count: Any,
    column: Any,
    rows: Any,
    all_rows: Any,
    begin: Any,
    codes: Any,
) -> Any:
    """(how far it came, how many keys there are): the common case of integers close together, none of them null.

    Unsigned indices are not tested for counting from the end.
    """
    highest = lowest + (directory.size - 1)
    for done in range(begin, codes.size):
        row = np.uint64(done) if all_rows else np.uint64(rows[np.uint64(done)])
        value = column[row]
        if value < lowest or value > highest:
            return done, count
        place = np.uint64(value - lowest)
        code = directory[place]
        if code < 0:
            code = np.int32(count)
            directory[place] = code
            values[count] = value
            count += 1
        codes[np.uint64(done)] = code
    return codes.size, count


@kernel(allocates=True)
def _number_codes(
    table: Any,
    column: Any,
    validity: Any,
    validity_offset: Any,
    rows: Any,
    all_rows: Any,
    reading: Any,
    begin: Any,
    codes: Any,
) -> Any:
    """Encode from `begin` on, and stop where there is no room; the range of the next rows tells a directory's size."""
    values, directory, slots, counts = table
    count = counts[COUNT]
    lowest = counts[LOWEST]
    highest = lowest + (directory.size - 1)
    slot_shift = np.uint64(64 - counts[SLOT_BITS])
    slot_mask = np.uint64(max(slots.size // 2, 1) - 1)
    done = begin
    if directory.size and validity.size == 0 and reading == AS_INTEGER:
        done, count = _codes_by_directory(values, directory, lowest, count, column, rows, all_rows, begin, codes)
    while done < codes.size:
        row = np.int64(done) if all_rows else np.int64(rows[done])
        value = _key_value(column[row], reading)
        if not is_valid(validity, validity_offset + row) or (reading == AS_PAIR and value < 0):
            codes[done] = NO_KEY
            done += 1
            continue
        if directory.size:
            if value < lowest or value > highest:
                break
            code = np.int64(directory[value - lowest])
            if code < 0:
                code = count
                directory[value - lowest] = code
                values[code] = value
                count += 1
        elif slots.size:
            slot = hash_integer(value) >> slot_shift
            code = slots[(slot << ONE) + ONE] - 1
            while code >= 0 and slots[slot << ONE] != value:
                slot = (slot + ONE) & slot_mask
                code = slots[(slot << ONE) + ONE] - 1
            if code < 0:
                if count == values.size:
                    break
                code = count
                slots[slot << ONE] = value
                slots[(slot << ONE) + ONE] = code + 1
                values[code] = value
                count += 1
        else:
            break
        codes[done] = code
        done += 1
    counts[COUNT] = count
    if done < codes.size and not slots.size:
        rest_lowest = np.int64(0x7FFFFFFFFFFFFFFF)
        rest_highest = np.int64(-0x8000000000000000)
        for position in range(done, min(done + RANGE_ROWS, codes.size)):
            row = np.int64(position) if all_rows else np.int64(rows[position])
            value = _key_value(column[row], reading)
            if is_valid(validity, validity_offset + row) and not (reading == AS_PAIR and value < 0):
                rest_lowest = min(rest_lowest, value)
                rest_highest = max(rest_highest, value)
        counts[REST_LOWEST] = rest_lowest
        counts[REST_HIGHEST] = rest_highest
    return done


# Text


def new_text(count: int = 0, byte_count: int = 0) -> TextKeys:
    """An empty table with room for `count` keys of `byte_count` bytes in all."""
    slot_bits = max(SLOT_BITS_MIN, (2 * count).bit_length())
    starts = np.zeros((1 << (slot_bits - 1)) + 1, dtype=np.int64)
    counts = np.zeros(5, dtype=np.int64)
    counts[SLOT_BITS] = slot_bits
    return TextKeys(
        starts,
        np.empty(max(64, byte_count), dtype=np.uint8),
        np.zeros(SLOT_WORDS << slot_bits, dtype=np.uint64),
        counts,
    )


def text_from(starts: NDArray[np.int64], arena: NDArray[np.uint8]) -> TextKeys:
    rows = np.arange(starts.size - 1, dtype=np.int32)
    table, _ = encode_text(new_text(rows.size, arena.size), Text(frozen(starts), frozen(arena), NO_NULLS, 0), rows)
    assert table.counts[COUNT] == rows.size, "keys are distinct"
    return table


def encode_text(table: TextKeys, text: Text, rows: Codes) -> tuple[TextKeys, Codes]:
    codes = np.empty(rows.size, dtype=np.int32)
    rows = frozen(rows)
    done = 0
    while True:
        done = _text_codes(table, text.offsets, text.data, text.validity, text.validity_offset, rows, done, codes)
        if done == rows.size:
            return table, codes
        length = int(text.offsets[rows[done] + 1]) - int(text.offsets[rows[done]])
        table = _enlarged(table, length)


def _enlarged(table: TextKeys, length: int) -> TextKeys:
    """A table with the same codes and room for more keys, the next of which has the given length."""
    count = int(table.counts[COUNT])
    used = int(table.starts[count])
    if used + length > table.arena.size:
        arena = np.empty(2 * (used + length), dtype=np.uint8)
        arena[:used] = table.arena[:used]
        return table._replace(arena=arena)
    larger = new_text(2 * count, table.arena.size)
    rows = np.arange(count, dtype=np.int32)
    done = _text_codes(
        larger, frozen(table.starts), frozen(table.arena), NO_NULLS, 0, frozen(rows), 0, np.empty(count, dtype=np.int32)
    )
    assert done == count
    return larger


@kernel(allocates=True)
def _text_codes(
    table: Any, offsets: Any, data: Any, validity: Any, validity_offset: Any, rows: Any, begin: Any, codes: Any
) -> Any:
    """Encode from `begin` on, and stop where the table has no room."""
    starts, arena, slots, counts = table
    count = counts[COUNT]
    slot_shift = np.uint64(64 - counts[SLOT_BITS])
    slot_mask = np.uint64(slots.size // SLOT_WORDS - 1)
    done = begin
    while done < codes.size:
        row = np.int64(rows[done])
        if not is_valid(validity, validity_offset + row):
            codes[done] = NO_KEY
            done += 1
            continue
        string_begin = np.uint64(offsets[row])
        string_end = np.uint64(offsets[row + 1])
        length = string_end - string_begin
        first_word = load_first_word(data, string_begin, length)
        last_word = load_word(data, string_end - EIGHT) if length > EIGHT else first_word
        if length > EXACT_LENGTH_MAX:
            first_word = fold_middle(data, string_begin, string_end, first_word)
        slot = hash_text(first_word, last_word, length) >> slot_shift
        code = np.int64(-1)
        while True:
            place = slot << TWO
            stored = np.int64(slots[place + THREE]) - 1
            if stored < 0:
                break
            equal = (slots[place] == first_word) & (slots[place + ONE] == last_word) & (slots[place + TWO] == length)
            if equal and length > EXACT_LENGTH_MAX:
                equal = equal_bytes(data, string_begin, arena, np.uint64(starts[stored]), length)
            if equal:
                code = stored
                break
            slot = (slot + ONE) & slot_mask
        if code < 0:
            arena_begin = starts[count]
            if count + 1 == starts.size or arena_begin + np.int64(length) > arena.size:
                break
            code = count
            place = slot << TWO
            slots[place] = first_word
            slots[place + ONE] = last_word
            slots[place + TWO] = length
            slots[place + THREE] = code + 1
            for index in range(np.int64(length)):
                arena[arena_begin + index] = data[np.int64(string_begin) + index]
            starts[code + 1] = arena_begin + np.int64(length)
            count += 1
        codes[done] = code
        done += 1
    counts[COUNT] = count
    return done
