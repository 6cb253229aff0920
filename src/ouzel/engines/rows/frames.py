"""The rows of a table in the order of a row pattern, and frames over them to evaluate expressions on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.model import Aggregation, Attribute, Bound, EventField, Intrinsic, Length, Type, parts
from ouzel.bind.row_patterns import BoundRowPattern
from ouzel.errors import InputError
from ouzel.kernels.order import first_disorder, stable_order
from ouzel.runtime.expressions import evaluate
from ouzel.runtime.frames import take
from ouzel.runtime.values import Column, arrow, numbers, one_array, to_engine, valids


@dataclass(slots=True)
class SortedRows:
    """The rows of a table, one partition after the other, each in the order of ORDER BY."""

    table: pa.Table
    order: np.ndarray | None  # None: the rows are in that order already
    bounds: np.ndarray  # where each partition begins, and the number of rows
    _columns: dict[str, pa.Array] = field(default_factory=dict)
    _raw: dict[str, pa.Array] = field(default_factory=dict)
    _values: dict[tuple[str, ...], Column] = field(default_factory=dict)

    @classmethod
    def of(cls, table: pa.Table) -> SortedRows:
        """All rows of a table in the order of the table, as one partition."""
        return cls(table, None, np.array([0, table.num_rows]))

    @classmethod
    def chosen(cls, table: pa.Table, places: np.ndarray, bounds: np.ndarray | None = None) -> SortedRows:
        """The rows of a table with these indexes, in this order."""
        # As many places as rows, each after the one before: all rows as they are.
        is_same = len(places) == table.num_rows and bool((places[1:] > places[:-1]).all())
        return cls(table, None if is_same else places, np.array([0, len(places)]) if bounds is None else bounds)

    def input_row(self, row: int) -> int:
        """The index of a row in the table."""
        return row if self.order is None else int(self.order[row])

    @property
    def count(self) -> int:
        return int(self.bounds[-1])

    def raw(self, name: str) -> pa.Array:
        """A column in its input type."""
        if name not in self._raw:
            column = self._column(name)
            self._raw[name] = column if self.order is None else take(column, self.order)
        return self._raw[name]

    def raw_at(self, name: str, rows: np.ndarray) -> pa.Array:
        """A column in its input type, at some rows. Row -1 gives null. Only these rows are copied."""
        if self.order is None or not len(self.order) or name in self._raw:
            return picked(self.raw(name), rows)
        places = self.order[rows]
        places[rows < 0] = -1
        return picked(self._column(name), places)

    def _column(self, name: str) -> pa.Array:
        if name not in self._columns:
            self._columns[name] = _array(self.table.column(name))
        return self._columns[name]

    def values(self, path: tuple[str, ...], kind: Type) -> Column:
        """A column, or a field of one, in engine form."""
        if path not in self._values:
            column = self.raw(path[0])
            for name in path[1:]:
                column = pc.struct_field(column, name)
            self._values[path] = to_engine(column, kind, ".".join(path))
        return self._values[path]


@dataclass(frozen=True, slots=True)
class RowFrame:
    """A frame with one value for each of `rows` places. `rows_of` gives the row that a component means at each place:
    -1 for no row, None if it is the row of the place itself.
    """

    rows: int
    source: SortedRows
    rows_of: Callable[[int], np.ndarray | None]
    label: Callable[[int], Column] | None = None
    total: Callable[[Aggregation], Column] | None = None
    _picked: dict[tuple[int, tuple[str, ...]], Column] = field(default_factory=dict, init=False)

    def attribute(self, reference: Attribute) -> Column:
        place = (reference.component, reference.path)
        if place not in self._picked:
            column = self.source.values(reference.path, reference.type)
            rows = self.rows_of(reference.component)
            self._picked[place] = column if rows is None else picked(column, rows)
        return self._picked[place]

    def intrinsic(self, reference: Intrinsic) -> Column:
        if reference.field is EventField.TYPE:
            assert self.label is not None, "labels are read in the match only"
            return self.label(reference.component)
        rows = self.rows_of(reference.component)
        return arrow(np.arange(self.rows)) if rows is None else pa.array(rows, pa.int64(), mask=rows < 0)

    def lacks(self, reference: Attribute) -> np.ndarray | None:
        return None

    def aggregate(self, expression: Length | Aggregation) -> Column:
        assert self.total is not None and isinstance(expression, Aggregation), "aggregates are of matches only"
        return self.total(expression)


def reads_label(expression: Bound) -> bool:
    """Whether an expression reads the label of a row, which depends on the match."""
    return any(isinstance(part, Intrinsic) and part.field is EventField.TYPE for part in parts(expression))


def picked(column: Column, rows: np.ndarray) -> Column:
    """The values of a column at some rows. Row -1 gives null.

    >>> picked(pa.array([5, 6]), np.array([1, -1, 0])).to_pylist()
    [6, None, 5]
    """
    missing = rows < 0
    if not missing.any():
        return take(column, rows.astype(np.int32, copy=False))
    if missing.all() or not len(column):
        return pa.nulls(len(rows), column.type)
    kind = column.type
    if not (pa.types.is_primitive(kind) and kind.bit_width in (32, 64)):
        return column.take(pa.array(rows, pa.int64(), mask=missing))
    taken = take(column, np.maximum(rows, 0).astype(np.int32, copy=False))
    valid = valids(taken) & ~missing
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(rows), [bits, taken.buffers()[1]], offset=taken.offset)


def shifted(bounds: np.ndarray, shift: int) -> np.ndarray:
    """For each row, the row at a fixed distance in its partition; -1 if there is none.

    >>> shifted(np.array([0, 2, 3]), -1).tolist()
    [-1, 0, -1]
    """
    # Of each partition, the first rows or the last ones have none.
    without = np.minimum(np.diff(bounds), abs(shift))
    first = bounds[:-1] if shift < 0 else bounds[1:] - without
    rows = np.arange(bounds[-1], dtype=np.int32)
    rows += np.int32(max(-len(rows), min(len(rows), shift)))
    rows[np.repeat(first - (np.cumsum(without) - without), without) + np.arange(without.sum())] = -1
    return rows


def evaluated(expressions: Sequence[Bound], table: pa.Table) -> list[Column]:
    """The values of expressions for each row of a table, in the order of the table."""
    frame = RowFrame(table.num_rows, SortedRows.of(table), lambda component: None)
    return [evaluate(expression, frame) for expression in expressions]


def row_order(query: BoundRowPattern, plain: SortedRows) -> np.ndarray | None:
    """The order of all rows by ORDER BY, without regard to partitions; None if they are in that order already. Ties are
    ordered by the columns that the pattern reads, in the order of their names, then by the columns that it only
    returns.
    """
    if not query.order:
        return None
    frame = RowFrame(plain.count, plain, lambda component: None)
    if len(query.order) == 1 and not query.order[0].descending:
        column = evaluate(query.order[0].expression, frame)
        if column.type == pa.int64() and not column.null_count:
            return _time_order(numbers(column), query, plain)
    keys = []
    for sort in query.order:
        keys += _sort_keys(evaluate(sort.expression, frame), sort.descending, sort.nulls_first)
    for name in query.tie_breaks:
        keys += _sort_keys(plain.raw(name), False, True)
    return np.lexsort(keys[::-1]).astype(np.int32) if keys else None


def _time_order(times: np.ndarray, query: BoundRowPattern, plain: SortedRows) -> np.ndarray | None:
    is_sorted = first_disorder(times) < 0
    order = None if is_sorted else stable_order(times)
    in_order = times if order is None else times[order]
    equal = in_order[1:] == in_order[:-1]
    if not equal.any():
        return order
    # Only rows of one time need the other columns.
    tied = np.flatnonzero(np.concatenate([equal, [False]]) | np.concatenate([[False], equal]))
    if order is None:
        order = np.arange(len(times), dtype=np.int32)
    keys = [in_order[tied]]
    for name in query.tie_breaks:
        keys += _sort_keys(plain.raw(name).take(pa.array(order[tied])), False, True)
    order[tied] = order[tied][np.lexsort(keys[::-1])]
    return order


def _sort_keys(column: pa.Array, descending: bool, nulls_first: bool) -> list[np.ndarray]:
    """Arrays of numbers that sort as the column does: whether it is null, then the rank of the value."""
    if pa.types.is_null(column.type) or pa.types.is_nested(column.type):
        return []
    valid = valids(column)
    ranks = ranks_of(column)
    return [valid if nulls_first else ~valid, np.where(valid, -ranks if descending else ranks, 0)]


def ranks_of(column: pa.Array) -> np.ndarray:
    """Numbers in the order of the values. NaN is the largest, and -0.0 equals 0.0. The numbers of nulls are
    undefined.

    >>> ranks_of(pa.array(["b", "a", "b"])).tolist()
    [2, 1, 2]
    """
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float64())
    try:
        ranks = pc.rank(column, sort_keys="ascending", tiebreaker="dense")
    except pa.ArrowNotImplementedError:
        raise InputError(f"values of type {column.type} have no order; convert the column first") from None
    return numbers(ranks, np.uint64).astype(np.int64)


def _array(column: pa.ChunkedArray) -> pa.Array:
    array = one_array(column)
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
