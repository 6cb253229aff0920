"""Answers of small pushes: one call of compiled code reads their columns from rows of small pushes into an Arrow
batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ouzel.kernels.rows import TICKS, give_batch
from ouzel.runtime.frames import stores_ticks
from ouzel.runtime.inbox import GrowingRows
from ouzel.runtime.layout import MomentScale

# A column of an answer: a position in each match, and the column of its event in the input, TICKS for the time of the
# event, or ITSELF for the number that is at the position.
Taken = tuple[int, str | int]


class SmallAnswer:
    """Makes the columns of small answers. What is the same for every answer of a query is computed once."""

    def __init__(self, columns: Sequence[Taken], schema: pa.Schema, scale: MomentScale | None) -> None:
        self._columns = columns
        self._schema = schema
        self._scale = (0, 0) if scale is None else (scale.bits, scale.base)
        # Whether times can be written as they are shown.
        self.writes_times = all(
            stores_ticks(type_) for (_, one), type_ in zip(columns, schema.types, strict=True) if one == TICKS
        )
        self._source: pa.Schema | None = None
        self._table = np.empty((0, 3), np.int32)
        self._kinds = b""

    def _read(self, growing: GrowingRows) -> None:
        """Find the columns in the rows of a new schema."""
        table, kinds = [], ""
        for position, name in self._columns:
            if isinstance(name, int):
                table.append((position, name, 0))
                kinds += "8"
                continue
            column = growing.schema.get_field_index(name)
            table.append((position, growing.places[column], column))
            kinds += growing.kinds[column]
        self._table = np.array(table, np.int32).reshape(-1, 3)
        self._kinds = kinds.encode()
        self._source = growing.schema

    def batch(
        self, growing: GrowingRows, base: int, numbers: np.ndarray, slots: np.ndarray, count: int
    ) -> pa.RecordBatch | None:
        """The columns of some matches; None if `give_batch` returns None. The event of match m at position p has slot
        `slots[p, m]` and row `numbers[slot] - base`. A negative slot means that there is no event.
        """
        if self._source is not growing.schema:
            self._read(growing)
        address = give_batch(
            growing.rows, growing.appended_ticks, numbers, base, slots, count, self._table, self._kinds, *self._scale
        )
        return pa.RecordBatch._import_from_c(address, self._schema) if address else None
