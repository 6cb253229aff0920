"""Rows of a known schema in typed arrays: a 64-bit word for each number, bytes for texts, and a byte that says what is
null.

Readers take Python dictionaries or Arrow batches, with one call for all rows and columns. The library has readers in C
(`kernel_build/rows.c`); without it, equal readers run in Python. `give_batch` works only with the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import INT64_MAX, INT64_MIN, Matrix, ReadOnly
from ouzel.kernels.jit import LIBRARY, kernel

# Words of `Rows.memory`.
COUNT, TIME, OLDEST, NEWEST, MOMENT, NULLS = 6, 7, 8, 9, 10, 11
# The place of a column that is the time of events, and of one that is a number of the match itself.
TICKS, ITSELF = -1, -2
# How a reader ends.
DONE, DATA_FULL, REFUSED = 0, 1, 2
_MICROSECOND = timedelta(microseconds=1)


class Rows(NamedTuple):
    """Rows. A column has either numbers or texts, and each kind is numbered separately."""

    numbers: Matrix[np.int64]  # [column of numbers, row]: floats by their bits
    offsets: Matrix[np.int32]  # [column of texts, row]: text r is data[offsets[r]:offsets[r + 1]]
    data: Matrix[np.uint8]  # [column of texts, byte]
    valid: Matrix[np.uint8]  # [column, row]: 0 if it is null
    # Addresses of the four arrays, their capacity in rows, that of `data`, the number of rows, the place of the time or
    # -1, the oldest and the newest tick of the rows that were read last, or the newest of all rows that were appended,
    # the place of the moments that kernels compare, and for each column whether a row is null.
    memory: NDArray[np.int64]


def new_rows(numbers: int, texts: int, capacity: int, data_capacity: int, time: int = -1) -> Rows:
    """Empty rows."""
    made = Rows(
        np.empty((numbers, capacity), np.int64),
        np.zeros((texts, capacity + 1), np.int32),
        np.empty((texts, data_capacity), np.uint8),
        np.empty((numbers + texts, capacity), np.uint8),
        np.zeros(NULLS + numbers + texts, np.int64),
    )
    made.memory[:COUNT] = [*(one.ctypes.data for one in made[:4]), capacity, data_capacity]
    made.memory[[TIME, MOMENT]] = time
    made.memory[NEWEST] = INT64_MIN
    return made


def enlarged_rows(rows: Rows, capacity: int, data_capacity: int) -> Rows:
    """The same rows with more room."""
    count = int(rows.memory[COUNT])
    made = new_rows(len(rows.numbers), len(rows.offsets), capacity, data_capacity, int(rows.memory[TIME]))
    made.numbers[:, :count] = rows.numbers[:, :count]
    made.offsets[:, : count + 1] = rows.offsets[:, : count + 1]
    used = int(rows.offsets[:, count].max(initial=0))
    made.data[:, :used] = rows.data[:, :used]
    made.valid[:, :count] = rows.valid[:, :count]
    made.memory[COUNT:] = rows.memory[COUNT:]
    return made


@kernel
def drop_rows(rows: Rows, dropped: int) -> None:
    """Drop the first `dropped` rows. The others move to the front."""
    left = rows.memory[COUNT] - dropped
    for column in range(rows.numbers.shape[0]):
        for row in range(left):
            rows.numbers[column, row] = rows.numbers[column, dropped + row]
    for column in range(rows.valid.shape[0]):
        rows.memory[NULLS + column] = 0
        for row in range(left):
            rows.valid[column, row] = rows.valid[column, dropped + row]
            if not rows.valid[column, row]:
                rows.memory[NULLS + column] = 1
    for column in range(rows.offsets.shape[0]):
        begin = rows.offsets[column, dropped]
        for row in range(left + 1):
            rows.offsets[column, row] = rows.offsets[column, dropped + row] - begin
        for place in range(rows.offsets[column, left]):
            rows.data[column, place] = rows.data[column, begin + place]
    rows.memory[COUNT] = left


@kernel
def append_rows(
    target: Rows,
    source: Rows,
    numbers: NDArray[np.int32],
    texts: NDArray[np.int32],
    columns: NDArray[np.int32],
    chosen: NDArray[np.int32],
    count: int,
    ticks: ReadOnly[NDArray[np.int64]],
    kept_ticks: NDArray[np.int64],
) -> Any:
    """Append the first `count` of some rows. There must be room for the rows; returns the number of bytes that a column
    of texts lacks. `numbers`, `texts` and `columns` are the indexes of the target's columns in the source. `ticks` are
    the times of the source's rows, `kept_ticks` those of the target's.
    """
    at = target.memory[COUNT]
    for column in range(texts.size):
        offsets = source.offsets[texts[column]]
        used = np.int64(target.offsets[column, at])
        for place in range(count):
            used += offsets[chosen[place] + 1] - offsets[chosen[place]]
        if used > target.data.shape[1]:
            return used - target.data.shape[1]
    for column in range(numbers.size):
        source_column = numbers[column]
        for place in range(count):
            target.numbers[column, at + place] = source.numbers[source_column, chosen[place]]
    for column in range(texts.size):
        source_column = texts[column]
        used = np.int64(target.offsets[column, at])
        for place in range(count):
            first = source.offsets[source_column, chosen[place]]
            for byte in range(first, source.offsets[source_column, chosen[place] + 1]):
                target.data[column, used] = source.data[source_column, byte]
                used += 1
            target.offsets[column, at + place + 1] = used
    for column in range(columns.size):
        source_column = columns[column]
        if not source.memory[NULLS + source_column]:
            for place in range(count):
                target.valid[column, at + place] = 1
            continue
        for place in range(count):
            valid = source.valid[source_column, chosen[place]]
            target.valid[column, at + place] = valid
            if not valid:
                target.memory[NULLS + column] = 1
    newest = target.memory[NEWEST]
    for place in range(count):
        tick = ticks[chosen[place]]
        kept_ticks[at + place] = tick
        newest = max(newest, tick)
    target.memory[NEWEST] = newest
    target.memory[COUNT] = at + count
    return 0


@kernel
def number_moments(
    rows: Rows,
    first: int,
    last: int,
    place: int,
    order: NDArray[np.int32],
    by_arrival: bool,
    bits: int,
    base: int,
    before: NDArray[np.int64],
) -> bool:
    """Write the moments of some rows (see MomentScale). Returns False if the rows are not in order, or have too many
    places in one tick.

    `place` is the index at which moments are written, and `order` has the indexes of the columns of `order=`. On entry,
    `before` describes the event before the first row: its tick, its place among the events of that tick (-1 if there is
    no such event), and its values of these columns. On return, it describes the last row.
    """
    ticks = rows.numbers[rows.memory[TIME]]
    moments = rows.numbers[place]
    reach = np.int64(1) << (62 - bits)
    tick = before[0]
    number = before[1]
    for row in range(first, last):
        distance = ticks[row] - base
        if distance >= reach or -distance > reach:
            return False
        sign = 0
        if number >= 0 and ticks[row] == tick:
            sign = 1 if by_arrival else 0
            for column in range(order.size):
                value = rows.numbers[order[column], row]
                if sign == 0 and value != before[2 + column]:
                    sign = 1 if value > before[2 + column] else -1
            # An event that equals one of an earlier call is late.
            if sign < 0 or (sign == 0 and row == first):
                return False
            number += sign
        elif number >= 0 and ticks[row] < tick:
            return False
        else:
            number = 0
        if number >= np.int64(1) << (bits - 1):
            return False
        tick = ticks[row]
        for column in range(order.size):
            before[2 + column] = rows.numbers[order[column], row]
        moments[row] = (distance << bits) + number
    before[0] = tick
    before[1] = number
    return True


@kernel
def leading(rows: Rows, until: int) -> Any:
    """The number of rows at or before tick `until`, if they come before all others; otherwise the number of all
    rows.
    """
    ticks = rows.numbers[rows.memory[TIME]]
    count = rows.memory[COUNT]
    first = count
    while first and ticks[first - 1] > until:
        first -= 1
    for row in range(first):
        if ticks[row] > until:
            return count
    return first if first else count


# Readers


class _Read(NamedTuple):
    """A column that was read: words of numbers, or ends and bytes of texts."""

    valid: NDArray[np.bool_]
    words: NDArray[np.int64] | None
    ends: NDArray[np.int64]
    data: NDArray[np.uint8]


_NO_ENDS: NDArray[np.int64] = np.empty(0, np.int64)
_NO_DATA: NDArray[np.uint8] = np.empty(0, np.uint8)


def _read_dicts(
    given: list[Any], names: tuple[str, ...], kinds: bytes, rows: Rows, kind_of_time: type, epochs: tuple[Any, ...]
) -> int:
    if any(type(row) is not dict for row in given):
        return REFUSED
    if any(len(row) != sum(name in row for name in names) for row in given):
        return REFUSED
    columns = []
    for name, kind, epoch in zip(names, kinds.decode(), epochs, strict=True):
        values = [row.get(name) for row in given]
        wanted = {"q": int, "d": float, "b": bool, "s": str, "t": kind_of_time}.get(kind, type(None))
        if not {type(value) for value in values} <= {wanted, type(None)}:
            return REFUSED
        valid = np.array([value is not None for value in values], bool)
        try:
            if kind == "s":
                texts = [b"" if value is None else value.encode("utf-8") for value in values]
                columns.append(_Read(valid, None, np.cumsum([0, *map(len, texts)])[1:], _bytes(b"".join(texts))))
                continue
            if kind == "t":
                values = [None if value is None else (value - epoch) // _MICROSECOND for value in values]
            filled = [0 if value is None else value for value in values]
            words = np.array(filled, np.float64 if kind == "d" else np.int64).view(np.int64)
            columns.append(_Read(valid, words, _NO_ENDS, _NO_DATA))
        except (OverflowError, UnicodeEncodeError, TypeError):
            return REFUSED
    return _write(columns, rows, len(given))


def _read_batch(batch: Any, kinds: bytes, rows: Rows) -> int:
    columns = []
    for kind, column in zip(kinds.decode(), batch.columns, strict=True):
        first, last = column.offset, column.offset + len(column)
        validity, *buffers = [_NO_DATA if one is None else _bytes(one) for one in column.buffers()]
        valid = np.full(len(column), kind != "n")
        if column.null_count and kind != "n":
            valid = _bits(validity, first, last)
        if kind in "sS":
            offsets = buffers[0].view(np.int32 if kind == "s" else np.int64)[first : last + 1]
            data = buffers[1][offsets[0] : offsets[-1]]
            columns.append(_Read(valid, None, offsets[1:].astype(np.int64) - offsets[0], data))
            continue
        if kind == "n":
            words = np.zeros(len(column), np.int64)
        elif kind == "b":
            words = _bits(buffers[0], first, last).astype(np.int64)
        else:
            words = np.frombuffer(buffers[0], f"i{kind}", last)[first:].astype(np.int64)
        columns.append(_Read(valid, words, _NO_ENDS, _NO_DATA))
    return _write(columns, rows, batch.num_rows)


def _bytes(buffer: Any) -> NDArray[np.uint8]:
    return np.frombuffer(buffer, np.uint8)


def _bits(bits: NDArray[np.uint8], first: int, last: int) -> NDArray[np.bool_]:
    return np.unpackbits(bits, bitorder="little", count=last)[first:].view(bool)


def _write(columns: Sequence[_Read], rows: Rows, count: int) -> int:
    at = int(rows.memory[COUNT])
    number = text = 0
    for place, column in enumerate(columns):
        rows.valid[place, at : at + count] = column.valid
        if not column.valid.all():
            rows.memory[NULLS + place] = 1
        if column.words is not None:
            rows.numbers[number, at : at + count] = column.words
            number += 1
            continue
        begin = int(rows.offsets[text, at])
        if begin + len(column.data) > rows.data.shape[1]:
            return DATA_FULL
        rows.data[text, begin : begin + len(column.data)] = column.data
        rows.offsets[text, at + 1 : at + count + 1] = begin + column.ends
        text += 1
    if rows.memory[TIME] >= 0:
        ticks = rows.numbers[rows.memory[TIME], at : at + count]
        rows.memory[OLDEST] = ticks.min(initial=INT64_MAX)
        rows.memory[NEWEST] = ticks.max(initial=INT64_MIN)
    return DONE


def read_dicts(given: list[Any], names: tuple[str, ...], kinds: bytes, rows: Rows, epochs: tuple[Any, ...]) -> int:
    """Write dictionaries after the existing rows, for which there must be room. Refuses unknown names, and values that
    do not have exactly the type of their column. A time is the number of microseconds since its epoch.
    """
    if LIBRARY is None:
        return _read_dicts(given, names, kinds, rows, datetime, epochs)
    status: int = LIBRARY.read_dicts(given, names, kinds, rows.memory, datetime, epochs)
    return status


def read_batch(batch: Any, kinds: bytes, rows: Rows) -> int:
    """Write a record batch after the existing rows, for which there must be room."""
    if LIBRARY is None:
        return _read_batch(batch, kinds, rows)
    status: int = LIBRARY.read_batch(batch.__arrow_c_array__()[1], kinds, rows.memory)
    return status


def give_batch(
    rows: Rows,
    ticks: NDArray[np.int64],
    numbers: NDArray[np.int64],
    base: int,
    slots: Matrix[np.int32],
    count: int,
    columns: Matrix[np.int32],
    kinds: bytes,
    bits: int,
    first_tick: int,
) -> int:
    """The address of an array of Arrow's C data interface, with columns of matches. Each column belongs to one
    position. Returns 0 without the library, or if texts are too long for one batch.

    The event of match m at position p has slot `slots[p, m]` and row `numbers[slot] - base`. A negative slot means that
    there is no event. Each column of `columns` gives a position, the index among the numbers or texts, and the column
    of the rows that says which are null; `kinds` has the kind of each column. The index TICKS means the time of the
    event: `ticks` has moments, 2^bits for each tick since `first_tick`. The index ITSELF means the number in `slots`.
    """
    if LIBRARY is None:
        return 0
    address: int = LIBRARY.give_batch(rows.memory, ticks, numbers, base, slots, count, columns, kinds, bits, first_tick)
    return address
