"""Partition keys to dense codes 0, 1, 2, …, in order of first appearance, that stay the same from batch to batch."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.columns import NO_NULLS, Numbers, Text, frozen
from ouzel.kernels.key_tables import (
    AS_FLOAT,
    AS_INTEGER,
    COUNT,
    NO_KEY,
    Codes,
    NumberKeys,
    TextKeys,
    encode_numbers,
    encode_pairs,
    encode_text,
    new_numbers,
    new_text,
    numbers_from,
    text_from,
)

__all__ = [
    "NO_KEY",
    "KeyTable",
    "NumberKeys",
    "TextKeys",
    "compact",
    "encode",
    "key_count",
    "new_keys",
    "restore",
    "snapshot",
]


class KeyTable(NamedTuple):
    """The keys of one partitioning: a table for each column, and from the second on one for pairs of codes.

    The first pairs are of the first two columns; the next pair the codes of those with the third column's, and so on.
    """

    columns: tuple[NumberKeys | TextKeys, ...]
    pairs: tuple[NumberKeys, ...]
    first_code: int


def new_keys(is_text: Sequence[bool], first_code: int = 0) -> KeyTable:
    """An empty table for keys of so many columns, each text or numbers. Codes below `first_code` stay the caller's."""
    assert is_text, "a key has at least one column"
    tables = tuple(new_text() if text else new_numbers() for text in is_text)
    return KeyTable(tables, tuple(new_numbers() for _ in is_text[1:]), first_code)


def key_count(keys: KeyTable) -> int:
    """One more than the largest code given so far."""
    return keys.first_code + int(_last(keys).counts[COUNT])


def encode(keys: KeyTable, columns: Sequence[Text | Numbers], rows: Codes) -> tuple[KeyTable, Codes]:
    """The table that knows the given rows' keys, and their codes, NO_KEY where a column is null.

    The old table shares memory with the new one and must not be used again.

    >>> import pyarrow
    >>> from ouzel.kernels.columns import column_of
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
    if keys.first_code:
        codes = np.where(codes >= 0, codes + np.int32(keys.first_code), np.int32(NO_KEY))
    return KeyTable(tuple(tables), tuple(pairs), keys.first_code), codes


def compact(keys: KeyTable, live_codes: NDArray[Any]) -> tuple[KeyTable, Codes]:
    """A fresh table of the live keys only, and the new code of every old one, NO_KEY for the dead.

    `live_codes` may repeat and stand in any order; the live keys keep theirs.

    >>> import pyarrow
    >>> from ouzel.kernels.columns import column_of
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
        # The live pairs tell which codes of the column, and which pairs before it, are still needed.
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
    return KeyTable(tuple(columns), tuple(pairs), first_code), new_code


def snapshot(keys: KeyTable) -> list[NDArray[Any]]:
    """All that must be stored of a table, as arrays in a fixed order."""
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
    return KeyTable(columns, tuple(numbers_from(next(remaining)) for _ in is_text[1:]), first_code)


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
