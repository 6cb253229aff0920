"""Gives values dense codes that stay the same from batch to batch, for partition keys and for texts that are compared
between events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.kernels.arrays import Numbers, Text, column_of, numbers_of
from ouzel.kernels.keys import (
    NO_KEY,
    KeyTable,
    NumberKeys,
    TextKeys,
    compact,
    encode,
    key_count,
    new_keys,
    restore,
    snapshot,
)
from ouzel.runtime.snapshot import Reader, Writer

# With fewer, moving events or renaming codes costs more than the memory is worth.
COMPACT_MIN = 4096


def is_mostly_dead(dead: int, held: int) -> bool:
    """Whether so many of the held entries are dead that moving the others is worth its cost."""
    return dead > max(COMPACT_MIN, held - dead)


def may_be_mostly_dead(held: int) -> bool:
    """Whether so many entries are held that moving some of them may be worth its cost."""
    return held > COMPACT_MIN


def is_sparse(codes: int, held: int) -> bool:
    """Whether most of this many codes are unused, given the number of values that are held."""
    return codes > 2 * max(COMPACT_MIN, held)


class Coder:
    """Gives codes to the values of one column, or of several columns together. Null has the code -1.

    >>> coder = Coder()
    >>> coder.encode([pa.array(["x", "y", None, "x"])]).tolist()
    [0, 1, -1, 0]
    """

    def __init__(self, first_code: int = 0) -> None:
        self._first_code = first_code
        self._keys: KeyTable | None = None

    @property
    def count(self) -> int:
        """The largest code so far plus one."""
        return self._first_code if self._keys is None else key_count(self._keys)

    @property
    def capacity(self) -> int:
        """The length of an array indexed by code: the count, rounded up so that such arrays seldom grow.

        >>> coder = Coder(first_code=1000)
        >>> coder.capacity
        1024
        """
        bits = max(0, self.count.bit_length() - 3)
        return -(-self.count >> bits) << bits

    def encode(self, columns: Sequence[pa.Array], rows: np.ndarray | None = None) -> np.ndarray:
        """The codes of all rows or, with `rows`, of these rows.

        >>> Coder().encode([pa.array(["x", "y", "x"]).dictionary_encode()], np.array([1, 2], np.int32)).tolist()
        [0, 1]
        """
        if len(columns) == 1 and pa.types.is_dictionary(columns[0].type):
            return self._encode_dictionary(columns[0], rows)
        if rows is None:
            rows = np.arange(len(columns[0]), dtype=np.int32)
        return self.encode_views([_view(column) for column in columns], rows)

    def encode_views(self, views: Sequence[Text | Numbers], rows: np.ndarray) -> np.ndarray:
        """The codes of some rows of columns that kernels can read."""
        if self._keys is None:
            self._keys = new_keys([isinstance(view, Text) for view in views], self._first_code)
        self._keys, codes = encode(self._keys, views, rows)
        return codes

    def _encode_dictionary(self, column: pa.DictionaryArray, rows: np.ndarray | None) -> np.ndarray:
        """Like `encode`, for a dictionary column. Each value that occurs is encoded once."""
        if rows is None:
            rows = np.arange(len(column), dtype=np.int32)
        if len(rows) < len(column.dictionary):
            return self.encode([column.take(pa.array(rows)).dictionary_decode()])
        # Places in the order in which they occur, so codes have that order, too.
        found, numbers = encode(new_keys([False]), [numbers_of(column.indices)], rows)
        places = found.columns[0]
        assert isinstance(places, NumberKeys)
        codes = self.encode([column.dictionary.take(pa.array(places.values[: key_count(found)]))])
        # The last one is that of nulls.
        return np.append(codes, np.int32(NO_KEY))[numbers]

    def compact(self, live: np.ndarray) -> np.ndarray:
        """Drop all codes except the live ones. Returns the new code of each old one."""
        assert self._keys is not None
        self._keys, renamed = compact(self._keys, live)
        return renamed

    @property
    def may_be_sparse(self) -> bool:
        """Whether there are so many codes that it is worth counting the unused ones."""
        return self._keys is not None and is_sparse(key_count(self._keys), 0)

    def is_sparse(self, held: int) -> bool:
        """Whether most codes are unused, given the number of held events."""
        return is_sparse(self.count, held)

    def compact_lanes(self, lanes: Sequence[np.ndarray], also: Sequence[np.ndarray] = ()) -> np.ndarray:
        """Drop all codes except those in lanes or in `also`. The lanes get the new codes. Returns the new code of each
        old one; -1 for dropped ones.
        """
        renamed = self.compact(np.unique(np.concatenate([*lanes, *also])).astype(np.int32))
        for lane in lanes:
            lane[:] = np.where(lane >= 0, renamed[np.maximum(lane, 0)], lane)
        return renamed

    def values(self, codes: np.ndarray) -> list[tuple[int | str, ...]]:
        """The values of some codes, one for each column. A float is given as the bits that are compared.

        >>> coder = Coder()
        >>> coder.values(coder.encode([pa.array(["x", "y"]), pa.array([7, 8])]))
        [('x', 7), ('y', 8)]
        """
        assert self._keys is not None
        left = codes.astype(np.int64) - self._first_code
        columns: list[np.ndarray] = []
        for pairs in reversed(self._keys.pairs):
            both = pairs.values[left]
            columns.insert(0, both & 0xFFFFFFFF)
            left = both >> 32
        return list(
            zip(
                *(_values(table, own) for table, own in zip(self._keys.columns, [left, *columns], strict=True)),
                strict=True,
            )
        )

    def ranks(self) -> np.ndarray:
        """For each code, the rank of its text in byte order."""
        if self._keys is None:
            return np.empty(0, np.int64)
        table = self._keys.columns[0]
        assert isinstance(table, TextKeys) and len(self._keys.columns) == 1
        count = key_count(self._keys) - self._first_code
        arena = table.arena.tobytes()
        texts = [arena[table.starts[code] : table.starts[code + 1]] for code in range(count)]
        ranks = np.empty(count, np.int64)
        ranks[sorted(range(count), key=texts.__getitem__)] = np.arange(count)
        return ranks

    def dump(self, writer: Writer) -> list[Any]:
        """Store all codes; `load` takes what this returns."""
        if self._keys is None:
            return [[], []]
        is_text = [isinstance(table, TextKeys) for table in self._keys.columns]
        return [is_text, [writer.add_array(array) for array in self.arrays()]]

    def arrays(self) -> list[np.ndarray]:
        """The values in the order of their codes, as arrays."""
        return [] if self._keys is None else snapshot(self._keys)

    def load(self, reader: Reader, head: Sequence[Any]) -> None:
        """Restore what `dump` stored."""
        is_text, arrays = head
        self._keys = restore(reader.arrays(arrays), is_text, self._first_code) if is_text else None


def _values(table: NumberKeys | TextKeys, codes: np.ndarray) -> list[int | str]:
    if isinstance(table, TextKeys):
        arena = table.arena.tobytes()
        texts = [arena[table.starts[code] : table.starts[code + 1]] for code in codes]
        return [text.decode("utf-8", "replace") for text in texts]
    return [int(value) for value in table.values[codes]]


def _view(column: pa.Array) -> Text | Numbers:
    if pa.types.is_null(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_decimal256(column.type):
        column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    return column_of(column)
