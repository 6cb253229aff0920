"""Turns results of automata into columns: the values of their attributes, from the rows of their events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.algebra.model import REGISTERS, Branch, Source, sources_of
from ouzel.bind.model import Attribute, Bound, EventField, Intrinsic, Kind
from ouzel.engines.automata.staging import Batch
from ouzel.engines.automata.tables import (
    Events,
    Results,
)
from ouzel.runtime.codes import Coder
from ouzel.runtime.expressions import evaluate
from ouzel.runtime.frames import take
from ouzel.runtime.values import Column, from_engine, one_array, output_type, to_engine


class Host(Protocol):
    """An object that holds the events of results."""

    texts: Coder

    def fetch(self, source: Source, events: np.ndarray) -> tuple[pa.Table, np.ndarray]:
        """A table with the rows of some events, and for each event its row in the table."""

    def column_of(self, source: Source, name: str) -> str:
        """The column that holds an attribute in the table of `fetch`."""

    def times(self, events: np.ndarray, field: EventField) -> np.ndarray:
        """The start or end times of events."""


class ResultFrame:
    """A frame for the expressions of attributes, with one result of a branch per row."""

    def __init__(self, host: Host, branch: Branch, results: Results, places: np.ndarray) -> None:
        self._host = host
        self._branch = branch
        self._results = results
        self._places = places
        self._fetched: dict[int, tuple[pa.Table, np.ndarray]] = {}
        self.rows = len(places)

    def _source(self, slot: int) -> Source:
        return sources_of(self._branch)[slot]

    def _events(self, slot: int) -> np.ndarray:
        events: np.ndarray = self._results.slots[self._places, slot]
        return events

    def raw(self, reference: Attribute) -> pa.Array:
        slot = reference.component
        source = self._source(slot)
        if slot not in self._fetched:
            self._fetched[slot] = self._host.fetch(source, self._events(slot))
        table, rows = self._fetched[slot]
        name, *inner = reference.path
        value = take(one_array(table.column(self._host.column_of(source, name))), rows)
        for field in inner:
            value = pc.struct_field(value, field)
        return value

    def attribute(self, reference: Attribute) -> Column:
        if reference.component == REGISTERS:
            return self._register(reference)
        return to_engine(self.raw(reference), reference.type)

    def _register(self, reference: Attribute) -> Column:
        number, kind = int(reference.path[0]), reference.type
        nulls = self._results.registers.nulls[self._places, number].astype(bool)
        if kind.kind is Kind.FLOAT:
            return pa.array(self._results.registers.floats[self._places, number], mask=nulls)
        values = self._results.registers.ints[self._places, number]
        if kind.kind in (Kind.STRING, Kind.BINARY):
            texts = decoded(self._host.texts, kind.kind is Kind.BINARY)
            return texts.take(pa.array(np.where(nulls, 0, values), mask=nulls))
        if kind.kind is Kind.BOOL:
            return pa.array(values != 0, mask=nulls)
        if kind.kind is Kind.DECIMAL:
            whole = pa.array(
                [None if null else int(v) for v, null in zip(values, nulls, strict=True)], pa.decimal128(19, 0)
            )
            scaled = pa.Array.from_buffers(pa.decimal128(19, kind.scale), len(whole), whole.buffers())
            return scaled.cast(pa.decimal128(max(kind.precision, 1), kind.scale))
        return pa.array(values, mask=nulls)

    def intrinsic(self, reference: Intrinsic) -> Column:
        return pa.array(self._host.times(self._events(reference.component), reference.field))

    def lacks(self, reference: Attribute) -> None:
        return None

    def shown(self, value: Bound, wanted: pa.DataType) -> pa.Array:
        """A value in the type of its output column: of the input for attributes, its own for computed values."""
        if isinstance(value, Attribute) and value.component >= 0:
            column = self.raw(value)
            if pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(wanted):
                column = column.dictionary_decode()
        else:
            column = from_engine(evaluate(value, self), value.type)
        return column if column.type == wanted else pc.cast(column, wanted)


def decoded(texts: Coder, binary: bool) -> pa.Array:
    """The texts that codes stand for, by code."""
    arrays = texts.arrays()
    kind = pa.large_binary() if binary else pa.large_string()
    if not arrays:
        return pa.array([], kind)
    starts, arena = arrays
    buffers = [None, pa.py_buffer(np.ascontiguousarray(starts, np.int64)), pa.py_buffer(arena)]
    return pa.Array.from_buffers(kind, len(starts) - 1, buffers)


def without_repetitions(batch: Batch) -> Batch:
    """The results without duplicates. Duplicates have the same sources, values, start and end."""
    order = np.lexsort((batch.start, batch.end, batch.fingerprint[:, 1], batch.fingerprint[:, 0]))
    prints = batch.fingerprint[order]
    same = np.zeros(len(order), bool)
    same[1:] = (prints[1:] == prints[:-1]).all(axis=1)
    same[1:] &= (batch.start[order][1:] == batch.start[order][:-1]) & (batch.end[order][1:] == batch.end[order][:-1])
    if not same.any():
        return batch
    suspect = same.copy()
    suspect[:-1] |= same[1:]
    places = order[suspect]
    group = np.cumsum(~same)[suspect]
    rows = batch.table.take(pa.array(places)).to_pylist()
    seen: set[Any] = set()
    dropped = []
    for number, place, row in zip(group.tolist(), places.tolist(), rows, strict=True):
        identity = (number, repr([_plain(value) for value in row.values()]))
        if identity in seen:
            dropped.append(place)
        seen.add(identity)
    kept = np.delete(np.arange(len(order)), dropped)
    return Batch(
        batch.table.take(pa.array(kept)),
        batch.start[kept],
        batch.end[kept],
        batch.first_end[kept],
        batch.fingerprint[kept],
    )


def alike(table: pa.Table, rows: np.ndarray, events: Events, by_start: bool) -> np.ndarray:
    """For each event, the first event with the same end and values and, if `by_start`, the same start."""
    times = [events.end, events.start] if by_start else [events.end]
    columns = [*times, *(_codes(one_array(column), rows) for column in table.columns)]
    _, first, which = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    found: np.ndarray = first[which.reshape(-1)]
    return found


def _codes(column: pa.Array, rows: np.ndarray) -> np.ndarray:
    """Integers that are equal for equal values."""
    values = take(column, rows.astype(np.int32))
    if pa.types.is_nested(values.type):
        values = pa.array([repr(value) for value in values.to_pylist()])
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    return np.asarray(pc.fill_null(values.indices, -1).to_numpy(zero_copy_only=False), np.int64)


def _plain(value: Any) -> Any:
    return 0.0 if isinstance(value, float) and value == 0 else value


def output_type_of(branch: Branch, name: str, column_type: Callable[..., pa.DataType | None]) -> pa.DataType:
    value = branch.columns[name]
    if isinstance(value, Attribute) and value.component >= 0:
        found = column_type(sources_of(branch)[value.component], value.path)
        if found is not None:
            return found.value_type if pa.types.is_dictionary(found) else found
    return output_type(value.type)
