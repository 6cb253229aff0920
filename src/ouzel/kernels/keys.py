"""Maps keys to dense codes 0, 1, 2, …, in order of first appearance, which stay the same from batch to batch. Also
divides rows into parts by a hash of their keys; the rows of a part keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import NO_NULLS, Numbers, ReadOnly, Text, frozen
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.text import (
    EIGHT,
    EXACT_LENGTH_MAX,
    HALF,
    ONE,
    THREE,
    TWO,
    equal_bytes,
    fold,
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
# Rows to inspect before a directory is made or widened.
RANGE_ROWS = 4096
# A few hundred keys rarely collide in this many slots; each collision is a mispredicted branch.
SLOT_BITS_MIN = 10
KEY_WORDS = 4
# The bits of a hash that a slot has. The highest ones choose the slot.
FRAGMENT_SHIFT = np.uint64(16)
FRAGMENT = np.uint64(0xFFFFFFFF)
EMPTY = np.uint64(0)

# How a 64-bit number is read as a key.
AS_INTEGER = 0
AS_FLOAT = 1
AS_PAIR = 2  # two codes; negative if one of them is missing

FLOAT_MAGNITUDE = np.int64(0x7FFFFFFFFFFFFFFF)
FLOAT_INFINITY = np.int64(0x7FF0000000000000)
FLOAT_NAN = np.int64(0x7FF8000000000000)
FLOAT_NEGATIVE_ZERO = np.int64(-0x8000000000000000)

Codes = NDArray[np.int32]
NO_ROWS: Codes = frozen(np.empty(0, dtype=np.int32))


class NumberKeys(NamedTuple):
    """A table of distinct 64-bit numbers. Only the first `counts[COUNT]` values are in use."""

    values: NDArray[np.int64]  # by code
    directory: Codes  # the code of lowest + i, or -1; empty if the values are too far apart
    slots: NDArray[np.int64]  # value, code + 1 (0: empty); empty if there is a directory
    counts: NDArray[np.int64]  # count, lowest of the directory, slot bits, range of the next rows, first code


class TextKeys(NamedTuple):
    """A table of distinct byte strings: code c is arena[starts[c]:starts[c+1]].

    Slots of the hash table are small, so that those of many keys fit the cache. The strings to compare with are found
    by code.
    """

    starts: NDArray[np.int64]
    arena: NDArray[np.uint8]
    words: NDArray[np.uint64]  # by code: first word (longer strings: a hash), last word, length, hash
    slots: NDArray[np.uint64]  # 32 bits of the hash, then code + 1 (0: empty)
    counts: NDArray[np.int64]  # count, unused, slot bits, two unused, first code


COUNT = 0
LOWEST = 1
SLOT_BITS = 2
REST_LOWEST = 3
REST_HIGHEST = 4
FIRST_CODE = 5  # what is added to codes
_COUNTS = 6


# Numbers


def new_numbers() -> NumberKeys:
    return NumberKeys(
        values=np.empty(0, dtype=np.int64),
        directory=np.empty(0, dtype=np.int32),
        slots=np.empty(0, dtype=np.int64),
        counts=np.zeros(_COUNTS, dtype=np.int64),
    )


def numbers_from(values: NDArray[np.int64]) -> NumberKeys:
    column = Numbers(frozen(values), NO_NULLS, 0, False)
    table, _ = encode_numbers(new_numbers(), column, NO_ROWS, AS_INTEGER, values.size)
    assert table.counts[COUNT] == values.size, "keys are distinct"
    return table


def encode_numbers(
    table: NumberKeys, column: Numbers, rows: Codes, reading: int, count: int | None = None
) -> tuple[NumberKeys, Codes]:
    """Encode the given rows or, with `count`, the first `count` rows of the column."""
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
    """A table with the same codes and with room for more keys. The range of the next rows decides its form."""
    count = int(table.counts[COUNT])
    lowest, highest = int(table.counts[REST_LOWEST]), int(table.counts[REST_HIGHEST])
    if table.directory.size:
        lowest = min(lowest, int(table.counts[LOWEST]))
        highest = max(highest, int(table.counts[LOWEST]) + table.directory.size - 1)
    counts = np.zeros(_COUNTS, dtype=np.int64)
    span = highest - lowest + 1
    if not table.slots.size and span <= max(DIRECTORY_MIN, 4 * (count + rows_left)):
        # With room on both sides, so that widening is rare over a whole stream.
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
    counts[FIRST_CODE] = table.counts[FIRST_CODE]
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
    first_code: Any,
    column: Any,
    rows: Any,
    all_rows: Any,
    begin: Any,
    codes: Any,
) -> Any:
    """(end, number of keys): encode the most common case, integers close together without nulls.

    Indexes are unsigned, because for signed ones numba checks whether they count from the end.
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
        codes[np.uint64(done)] = code + first_code
    return codes.size, count


@kernel(allocates=True)
def _number_codes(
    table: NumberKeys,
    column: ReadOnly[NDArray[np.int64]],
    validity: ReadOnly[NDArray[np.uint8]],
    validity_offset: int,
    rows: ReadOnly[NDArray[np.int32]],
    all_rows: bool,
    reading: int,
    begin: int,
    codes: NDArray[np.int32],
) -> Any:
    """Encode from `begin` on, and return where it stopped: at the end, or where the table has no room. The range of the
    next rows then decides the size of a directory.
    """
    values, directory, slots, counts = table
    count = counts[COUNT]
    lowest = counts[LOWEST]
    highest = lowest + (directory.size - 1)
    slot_shift = np.uint64(64 - counts[SLOT_BITS])
    slot_mask = np.uint64(max(slots.size // 2, 1) - 1)
    first_code = counts[FIRST_CODE]
    done = begin
    if directory.size and validity.size == 0 and reading == AS_INTEGER:
        done, count = _codes_by_directory(
            values, directory, lowest, count, np.int32(first_code), column, rows, all_rows, begin, codes
        )
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
        codes[done] = code + first_code
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
    """An empty table with room for `count` keys of `byte_count` bytes in total."""
    slot_bits = max(SLOT_BITS_MIN, (2 * count - 1).bit_length())
    room = 1 << (slot_bits - 1)
    counts = np.zeros(_COUNTS, dtype=np.int64)
    counts[SLOT_BITS] = slot_bits
    return TextKeys(
        np.zeros(room + 1, dtype=np.int64),
        np.empty(max(64, byte_count), dtype=np.uint8),
        np.empty(KEY_WORDS * room, dtype=np.uint64),
        np.zeros(1 << slot_bits, dtype=np.uint64),
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
    """A table with the same codes and with room for more keys. The next key has length `length`."""
    count = int(table.counts[COUNT])
    used = int(table.starts[count])
    if used + length > table.arena.size:
        arena = np.empty(2 * (used + length), dtype=np.uint8)
        arena[:used] = table.arena[:used]
        return table._replace(arena=arena)
    larger = new_text(2 * count)._replace(arena=table.arena)
    larger.starts[: count + 1] = table.starts[: count + 1]
    larger.words[: KEY_WORDS * count] = table.words[: KEY_WORDS * count]
    larger.counts[COUNT] = count
    larger.counts[FIRST_CODE] = table.counts[FIRST_CODE]
    _fill_slots(larger)
    return larger


@kernel
def _fill_slots(table: TextKeys) -> None:
    """Write the slots of all keys, which are distinct."""
    slots = table.slots
    slot_shift = np.uint64(64 - table.counts[SLOT_BITS])
    slot_mask = np.uint64(slots.size - 1)
    for code in range(table.counts[COUNT]):
        hashed = table.words[KEY_WORDS * code + 3]
        slot = hashed >> slot_shift
        while slots[slot] != EMPTY:
            slot = (slot + ONE) & slot_mask
        slots[slot] = (((hashed >> FRAGMENT_SHIFT) & FRAGMENT) << HALF) | np.uint64(code + 1)


@kernel(allocates=True)
def _text_codes(
    table: TextKeys,
    offsets: ReadOnly[NDArray[np.int32] | NDArray[np.int64]],
    data: ReadOnly[NDArray[np.uint8]],
    validity: ReadOnly[NDArray[np.uint8]],
    validity_offset: int,
    rows: ReadOnly[NDArray[np.int32]],
    begin: int,
    codes: NDArray[np.int32],
) -> Any:
    """Encode from `begin` on, and stop if the table has no room."""
    starts, arena, words, slots, counts = table
    count = counts[COUNT]
    slot_shift = np.uint64(64 - counts[SLOT_BITS])
    slot_mask = np.uint64(slots.size - 1)
    first_code = counts[FIRST_CODE]
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
        hashed = hash_text(first_word, last_word, length)
        fragment = (hashed >> FRAGMENT_SHIFT) & FRAGMENT
        slot = hashed >> slot_shift
        code = np.int64(-1)
        while True:
            entry = slots[slot]
            if entry == EMPTY:
                break
            if entry >> HALF == fragment:
                stored = (entry & FRAGMENT) - ONE
                place = stored << TWO
                equal = (
                    (words[place] == first_word) & (words[place + ONE] == last_word) & (words[place + TWO] == length)
                )
                if equal and length > EXACT_LENGTH_MAX:
                    equal = equal_bytes(data, string_begin, arena, np.uint64(starts[stored]), length)
                if equal:
                    code = np.int64(stored)
                    break
            slot = (slot + ONE) & slot_mask
        if code < 0:
            arena_begin = starts[count]
            if count + 1 == starts.size or arena_begin + np.int64(length) > arena.size:
                break
            code = count
            place = np.uint64(code) << TWO
            words[place] = first_word
            words[place + ONE] = last_word
            words[place + TWO] = length
            words[place + THREE] = hashed
            slots[slot] = (fragment << HALF) | np.uint64(code + 1)
            for index in range(np.int64(length)):
                arena[arena_begin + index] = data[np.int64(string_begin) + index]
            starts[code + 1] = arena_begin + np.int64(length)
            count += 1
        codes[done] = code + first_code
        done += 1
    counts[COUNT] = count
    return done


class KeyTable(NamedTuple):
    """The keys of one partitioning: a table for each column and, from the second column on, a table for pairs of
    codes.

    The first pairs have the codes of the first two columns. Each further pair has the code of the pair before and that
    of the next column.
    """

    columns: tuple[NumberKeys | TextKeys, ...]
    pairs: tuple[NumberKeys, ...]
    first_code: int


def new_keys(is_text: Sequence[bool], first_code: int = 0) -> KeyTable:
    """An empty table for keys with these columns, each text or numbers. Codes below `first_code` are reserved for the
    caller.
    """
    assert is_text, "a key has at least one column"
    tables = tuple(new_text() if text else new_numbers() for text in is_text)
    return _key_table(tables, tuple(new_numbers() for _ in is_text[1:]), first_code)


def _key_table(columns: tuple[NumberKeys | TextKeys, ...], pairs: tuple[NumberKeys, ...], first_code: int) -> KeyTable:
    made = KeyTable(columns, pairs, first_code)
    _last(made).counts[FIRST_CODE] = first_code
    return made


def key_count(keys: KeyTable) -> int:
    """The largest code so far plus one."""
    return keys.first_code + int(_last(keys).counts[COUNT])


def encode(keys: KeyTable, columns: Sequence[Text | Numbers], rows: Codes) -> tuple[KeyTable, Codes]:
    """(table, codes): the table with the keys of the given rows, and their codes; NO_KEY if a column is null.

    The old table shares memory with the new one, and must not be used again.

    >>> import pyarrow
    >>> from ouzel.kernels.arrays import column_of
    >>> columns = [column_of(pyarrow.array(["x", "y", None, "x"])), column_of(pyarrow.array([7, 7, 7, 7]))]
    >>> keys, codes = encode(new_keys([True, False]), columns, np.arange(4, dtype=np.int32))
    >>> codes.tolist(), key_count(keys)
    ([0, 1, -1, 0], 2)
    """
    assert len(columns) == len(keys.columns)
    rows = frozen(rows)
    tables: list[NumberKeys | TextKeys] = []
    pairs: list[NumberKeys] = []
    codes = np.empty(0, dtype=np.int32)
    for index, (table, column) in enumerate(zip(keys.columns, columns, strict=True)):
        if isinstance(table, TextKeys):
            assert isinstance(column, Text)
            table, column_codes = encode_text(table, column, rows)
        else:
            assert isinstance(column, Numbers)
            reading = AS_FLOAT if column.is_float else AS_INTEGER
            table, column_codes = encode_numbers(table, column, rows, reading)
        tables.append(table)
        if index == 0:
            codes = column_codes
        else:
            pair_table, codes = encode_pairs(keys.pairs[index - 1], codes, column_codes)
            pairs.append(pair_table)
    return KeyTable(tuple(tables), tuple(pairs), keys.first_code), codes


def compact(keys: KeyTable, live_codes: NDArray[Any]) -> tuple[KeyTable, Codes]:
    """(table, new codes): a table of only the live keys, and the new code of each old one; NO_KEY for dropped ones.

    `live_codes` may have any order, and repetitions. The live keys keep their order.

    >>> import pyarrow
    >>> from ouzel.kernels.arrays import column_of
    >>> columns = [column_of(pyarrow.array(["x", "y", "z"]))]
    >>> keys, _ = encode(new_keys([True]), columns, np.arange(3, dtype=np.int32))
    >>> keys, new_code = compact(keys, np.array([2]))
    >>> new_code.tolist(), key_count(keys)
    ([-1, -1, 0], 1)
    """
    first_code = keys.first_code
    live = np.zeros(key_count(keys) - first_code, dtype=bool)
    live[live_codes[live_codes >= first_code] - first_code] = True
    moved = _renumber(live)
    columns = list(keys.columns)
    pairs = list(keys.pairs)
    for index in reversed(range(len(pairs))):
        # The live pairs show which codes of the column, and which earlier pairs, are still needed.
        kept = pairs[index].values[: live.size][live]
        left, right = kept >> 32, kept & 0xFFFFFFFF
        left_count = int((pairs[index - 1] if index else columns[0]).counts[COUNT])
        left_live = np.zeros(left_count, dtype=bool)
        left_live[left] = True
        right_live = np.zeros(int(columns[index + 1].counts[COUNT]), dtype=bool)
        right_live[right] = True
        columns[index + 1] = _kept(columns[index + 1], right_live)
        renumbered = _renumber(left_live)[left].astype(np.int64) << 32 | _renumber(right_live)[right]
        pairs[index] = numbers_from(renumbered)
        live = left_live
    columns[0] = _kept(columns[0], live)
    reserved = np.arange(first_code, dtype=np.int32)
    new_code = np.concatenate([reserved, np.where(moved >= 0, moved + np.int32(first_code), np.int32(NO_KEY))])
    return _key_table(tuple(columns), tuple(pairs), first_code), new_code


def snapshot(keys: KeyTable) -> list[NDArray[Any]]:
    """The arrays of a table to store, in a fixed order."""
    arrays: list[NDArray[Any]] = []
    for table in (*keys.columns, *keys.pairs):
        count = int(table.counts[COUNT])
        if isinstance(table, TextKeys):
            arrays += [table.starts[: count + 1].copy(), table.arena[: table.starts[count]].copy()]
        else:
            arrays.append(table.values[:count].copy())
    return arrays


def restore(arrays: Sequence[NDArray[Any]], is_text: Sequence[bool], first_code: int = 0) -> KeyTable:
    """The table that `snapshot` stored.

    >>> column = Numbers(frozen(np.array([5, 9])), NO_NULLS, 0, False)
    >>> keys, _ = encode(new_keys([False]), [column], np.array([1, 0], dtype=np.int32))
    >>> restore(snapshot(keys), [False]).columns[0].values[:2].tolist()
    [9, 5]
    """
    remaining = iter(arrays)
    columns = tuple(
        text_from(next(remaining), next(remaining)) if text else numbers_from(next(remaining)) for text in is_text
    )
    return _key_table(columns, tuple(numbers_from(next(remaining)) for _ in is_text[1:]), first_code)


def _last(keys: KeyTable) -> NumberKeys | TextKeys:
    return keys.pairs[-1] if keys.pairs else keys.columns[0]


def _renumber(live: NDArray[np.bool_]) -> Codes:
    return np.where(live, np.cumsum(live) - 1, NO_KEY).astype(np.int32)


def _kept(table: NumberKeys | TextKeys, live: NDArray[np.bool_]) -> NumberKeys | TextKeys:
    if isinstance(table, NumberKeys):
        return numbers_from(table.values[: live.size][live])
    offsets = frozen(table.starts[: live.size + 1])
    rows = np.nonzero(live)[0].astype(np.int32)
    kept, _ = encode_text(new_text(rows.size), Text(offsets, frozen(table.arena), NO_NULLS, 0), rows)
    return kept


Rows = NDArray[np.int32]


def add_hashes(column: Text | Numbers, rows: Rows, hashes: NDArray[np.uint64]) -> None:
    """Mix the values of a column, at some rows, into the hashes of these rows. Equal values have equal hashes, except
    for the two zeros and different NaN of floats.

    >>> hashes = np.zeros(3, np.uint64)
    >>> add_hashes(Numbers(np.array([7, 8, 7]), np.empty(0, np.uint8), 0, False), np.arange(3, dtype=np.int32), hashes)
    >>> bool(hashes[0] == hashes[2]), bool(hashes[0] == hashes[1])
    (True, False)
    """
    if isinstance(column, Text):
        _add_text(column.offsets, column.data, frozen(rows), hashes)
    else:
        _add_numbers(frozen(column.values), frozen(rows), hashes)


def divide(
    rows: Rows, roles: NDArray[np.uint64], hashes: NDArray[np.uint64], parts: int
) -> tuple[Rows, NDArray[np.uint64], NDArray[np.int64]]:
    """(rows, roles, bounds): rows and roles sorted by part, and where each part begins, with the number of rows at the
    end.

    >>> hashes = np.array([2**63, 0, 2**63], np.uint64)
    >>> rows, _, bounds = divide(np.array([4, 5, 6], np.int32), np.ones(3, np.uint64), hashes, 2)
    >>> rows.tolist(), bounds.tolist()
    ([5, 4, 6], [0, 1, 3])
    """
    divided, divided_roles = np.empty_like(rows), np.empty_like(roles)
    bounds = np.zeros(parts + 1, np.int64)
    _divide(frozen(rows), frozen(roles), frozen(hashes), divided, divided_roles, bounds)
    return divided, divided_roles, bounds


def merge(times: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[Rows, bool]:
    """(order, has ties): the order of all times, given sorted parts that are concatenated, each up to its entry in
    `ends`; and whether two parts have equal times. Of equal times, that of the earlier part comes first.

    >>> order, has_ties = merge(np.array([1, 4, 0, 4, 9]), np.array([2, 5]))
    >>> order.tolist(), has_ties
    ([2, 0, 1, 3, 4], True)
    """
    order = np.empty(times.size, np.int32)
    return order, bool(_merge_parts(frozen(times), frozen(ends), order))


@kernel(allocates=True)
def _merge_parts(
    times: ReadOnly[NDArray[np.int64]], ends: ReadOnly[NDArray[np.int64]], order: NDArray[np.int32]
) -> Any:
    nexts = np.zeros(ends.size, np.int64)
    nexts[1:] = ends[:-1]
    has_ties = False
    for place in range(order.size):
        best = -1
        time = np.int64(0)
        for part in range(ends.size):
            at = nexts[part]
            if at < ends[part]:
                other = times[at]
                if best < 0 or other < time:
                    best = part
                    time = other
                elif other == time:
                    has_ties = True
        order[place] = nexts[best]
        nexts[best] += 1
    return has_ties


@kernel(allocates=True)
def _add_numbers(
    values: ReadOnly[NDArray[np.int64]], rows: ReadOnly[NDArray[np.int32]], hashes: NDArray[np.uint64]
) -> None:
    for place in range(rows.size):
        hashes[place] = fold(hashes[place], hash_integer(values[np.uint32(rows[place])]))


@kernel(allocates=True)
def _add_text(
    offsets: ReadOnly[NDArray[np.int32] | NDArray[np.int64]],
    data: ReadOnly[NDArray[np.uint8]],
    rows: ReadOnly[NDArray[np.int32]],
    hashes: NDArray[np.uint64],
) -> None:
    for place in range(rows.size):
        row = np.uint32(rows[place])
        begin = np.uint64(offsets[row])
        end = np.uint64(offsets[row + np.uint32(1)])
        length = end - begin
        first_word = load_first_word(data, begin, length)
        last_word = load_word(data, end - EIGHT) if length > EIGHT else first_word
        if length > EXACT_LENGTH_MAX:
            first_word = fold_middle(data, begin, end, first_word)
        hashes[place] = fold(hashes[place], hash_text(first_word, last_word, length))


@kernel(allocates=True)
def _divide(
    rows: ReadOnly[NDArray[np.int32]],
    roles: ReadOnly[NDArray[np.uint64]],
    hashes: ReadOnly[NDArray[np.uint64]],
    divided: NDArray[np.int32],
    divided_roles: NDArray[np.uint64],
    bounds: NDArray[np.int64],
) -> None:
    parts = np.uint64(bounds.size - 1)
    places = np.zeros(bounds.size, np.int64)
    for row in range(rows.size):
        part = ((hashes[row] >> HALF) * parts) >> HALF
        bounds[part + np.uint64(1)] += 1
    for part in range(bounds.size - 1):
        bounds[part + 1] += bounds[part]
        places[part] = bounds[part]
    for row in range(rows.size):
        part = ((hashes[row] >> HALF) * parts) >> HALF
        place = places[part]
        places[part] = place + 1
        divided[place] = rows[row]
        divided_roles[place] = roles[row]
