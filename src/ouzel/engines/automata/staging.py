"""Turns the rows of a source into events for automata, with times and with lanes of numbers that kernels compare.

In other engines an event becomes an instance for each component that it may fill. Merged queries have thousands of
operands, so here an event is staged once, and its lanes say which operands accept it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.algebra.model import Source
from ouzel.bind.model import Attribute, EventField, Intrinsic, Kind
from ouzel.engines.automata.columns import ordered
from ouzel.engines.automata.plan import EventLane, EventLanes, Form
from ouzel.engines.automata.tables import (
    Events,
    Time,
    new_events,
)
from ouzel.errors import InputError
from ouzel.kernels.staging import IS_TRUE
from ouzel.runtime.codes import Coder
from ouzel.runtime.expressions import evaluate, holds
from ouzel.runtime.inbox import GrowingRows
from ouzel.runtime.layout import Layout
from ouzel.runtime.staging import SmallStager
from ouzel.runtime.values import Column, as_integers, one_array, split, to_engine


class Batch(NamedTuple):
    """Events of one source: their rows, their start and end, and their input rows."""

    table: pa.Table
    start: np.ndarray
    end: np.ndarray
    first_end: np.ndarray
    fingerprint: np.ndarray  # [event, 2]


class RowFrame:
    """A frame for expressions about the current event, with one row of a source each."""

    def __init__(self, batch: Batch, column_of: Callable[[str], str]) -> None:
        self._batch = batch
        self._column_of = column_of
        self.rows = len(batch.end)

    def attribute(self, reference: Attribute) -> Column:
        name, *inner = reference.path
        column = one_array(self._batch.table.column(self._column_of(name)))
        for field in inner:
            column = pc.struct_field(column, field)
        return to_engine(column, reference.type)

    def intrinsic(self, reference: Intrinsic) -> Column:
        return pa.array(self._batch.start if reference.field is EventField.START else self._batch.end)

    def lacks(self, reference: Attribute) -> None:
        return None


class LaneMaker:
    """Makes the lanes of events: numbers that kernels compare."""

    def __init__(self, lanes: EventLanes, texts: Coder, type_codes: Coder) -> None:
        self._lanes = lanes
        self._texts = texts
        self._type_codes = type_codes

    def events(self, batch: Batch, source: Source | None, frame: RowFrame, types: Column | None = None) -> Events:
        """The events of a batch with their lanes. Lanes of other sources are null."""
        events = new_events(len(batch.end), len(self._lanes.ints), len(self._lanes.floats))
        for place, column in ((Time.START, batch.start), (Time.END, batch.end), (Time.FIRST_END, batch.first_end)):
            events.times[:, place] = column
        events.times[:, Time.PRINT :] = batch.fingerprint
        for number, lane in enumerate(self._lanes.ints):
            if lane.source != source:
                events.int_nulls[number] = 1
            elif lane.form is Form.TYPE:
                assert types is not None
                events.ints[number] = self._type_codes.encode([types])
            elif lane.form is not Form.RANK:
                values, valid = self._ints(lane, frame)
                events.ints[number] = values
                if valid is not None:
                    events.int_nulls[number] = ~valid
        for number, lane in enumerate(self._lanes.floats):
            if lane.source != source:
                events.float_nulls[number] = 1
            else:
                values, valid = split(evaluate(lane.expressions[0], frame), np.float64)
                events.floats[number], events.float_nulls[number] = values, ~valid
        return events

    def _ints(self, lane: EventLane, frame: RowFrame) -> tuple[np.ndarray, np.ndarray | None]:
        if lane.form is Form.TRUTH:
            passes = np.ones(frame.rows, bool)
            for condition in lane.expressions:
                passes &= holds(condition, frame)
            return passes.astype(np.int64), None
        column = evaluate(lane.expressions[0], frame)
        if lane.form is Form.CODE:
            codes = self._texts.encode([column]).astype(np.int64)
            return codes, codes >= 0
        if lane.form is Form.ORDERED:
            values, valid = split(column, np.float64)
            return ordered(values), valid
        return as_integers(column)

    def rank(self, events: Events) -> None:
        """Write the current ranks of texts into lanes of ordered texts."""
        ranked = [(k, lane) for k, lane in enumerate(self._lanes.ints) if lane.form is Form.RANK]
        if ranked and len(events.end):
            ranks = self._texts.ranks()
            for number, lane in ranked:
                code = self._lanes.number(lane._replace(form=Form.CODE))
                nulls = events.int_nulls[code]
                events.int_nulls[number] = nulls
                if len(ranks):
                    events.ints[number] = np.where(nulls, 0, ranks[np.where(nulls, 0, events.ints[code])])


def small_stager(
    source: GrowingRows,
    layout: Layout,
    sources: Sequence[Source],
    every_lanes: Sequence[tuple[EventLanes, Sequence[int]]],
) -> tuple[SmallStager, list[np.ndarray]] | None:
    """The stager of small pushes in compiled code, and for several automata the tables of their lanes; None if a lane
    is more than a column of numbers. Sources are given by number.
    """
    bases = [one.base for one in sources]
    if len(bases) > 64 or any(base is None or base.start is not None for base in bases):
        return None
    column = -1 if layout.type is None else source.schema.get_field_index(layout.type)
    if column >= 0 and not source.is_text[column]:
        return None
    types = list(dict.fromkeys(base.type for base in bases if base is not None and base.type is not None))
    types = types if column >= 0 else []
    roles = np.zeros(len(types) + 1, np.uint64)
    for number, base in enumerate(bases):
        assert base is not None
        # Without a column of types every event is of every source.
        which: Any = slice(None) if base.type is None or not types else types.index(base.type)
        roles[which] |= np.uint64(1 << number)
    tables = []
    for lanes, numbers in every_lanes:
        table = _lane_table(source, layout, [sources[number] for number in numbers], lanes)
        if table is None:
            return None
        tables.append(np.array(table, np.int32).reshape(-1, 5))
    return SmallStager(source, column, types, roles, (), (), ()), tables


def _lane_table(
    rows: GrowingRows, layout: Layout, sources: Sequence[Source], lanes: EventLanes
) -> list[tuple[int, int, int, int, int]] | None:
    found = []
    some_role = set()
    for floating, known in enumerate((lanes.ints, lanes.floats)):
        for number, lane in enumerate(known):
            if lane.source is None or lane.source not in sources:
                return None
            source = sources.index(lane.source)
            if lane.form is Form.TRUTH and not lane.expressions:
                some_role.add(source)
                found.append((source, 0, number, IS_TRUE, 0))
                continue
            column = _column(rows, layout, lane)
            if column is None:
                return None
            found.append((source, floating, number, rows.places[column], column))
    return found if len(some_role) == len(sources) else None


def _column(rows: GrowingRows, layout: Layout, lane: EventLane) -> int | None:
    """The column of numbers that a lane is; None if it must be computed."""
    expression = lane.expressions[0]
    if not isinstance(expression, Attribute) or expression.present_in is not None or len(expression.path) > 1:
        return None
    assert lane.source is not None and lane.source.base is not None
    column = rows.schema.get_field_index(layout.column(lane.source.base.type, expression.path[0]))
    if column < 0:
        return None
    wanted = {Form.INT: (Kind.INT, pa.int64()), Form.FLOAT: (Kind.FLOAT, pa.float64())}.get(lane.form)
    return column if wanted == (expression.type.kind, rows.types[column]) else None


def fingerprints(numbers: np.ndarray) -> np.ndarray:
    """Two hash words for each input row. Their sum over several rows identifies the set of rows."""
    from ouzel.engines.automata.columns import mixed

    seeds = (np.uint64(0x452821E638D01377), np.uint64(0xBE5466CF34E90C6C))
    return np.stack([mixed(np.full(len(numbers), seed), numbers).view(np.int64) for seed in seeds], axis=1)


def start_ticks(table: pa.Table, name: str, layout: Layout, ends: np.ndarray) -> np.ndarray:
    """The start times of events, from a column in the unit of the time column."""
    from dataclasses import replace

    from ouzel.runtime.layout import ticks_of

    if name not in table.column_names:
        raise InputError(f"there is no column '{name}' with the start of events")
    time = layout.schema.field(layout.time).type
    column = table.column(name)
    try:
        column = column if column.type == time else pc.cast(column, time)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"the column '{name}' must be a time like '{layout.time}': {error}") from None
    starts = ticks_of(pa.table({name: column}), replace(layout, time=name))
    if (starts > ends).any():
        row = int(np.argmax(starts > ends))
        raise InputError(f"the event in row {row} begins (column '{name}') after its end (column '{layout.time}')")
    return starts
