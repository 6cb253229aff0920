"""Runs the operators of all readings over one stream, and merges their matches: by end, then by reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.clauses import REACHED
from ouzel.bind.model import BoundOutput, Component
from ouzel.engines.readings.forms import Distinct, Furthest, form_of
from ouzel.engines.readings.nested import NestedSequence
from ouzel.engines.readings.plan import POSITION, ReadingsPlan
from ouzel.engines.readings.union import Union, Unite
from ouzel.errors import InputError, LimitError
from ouzel.kernels.order import gather, stable_order
from ouzel.lang.syntax import OutputForm
from ouzel.plan.lowering import Lanes
from ouzel.plan.model import Plan
from ouzel.runtime.expressions import any_holds
from ouzel.runtime.frames import EventFrame
from ouzel.runtime.layout import Layout, output_columns, tie_break_columns
from ouzel.runtime.limits import Limits
from ouzel.runtime.moments import stream_order
from ouzel.runtime.operator import NO_TICKS, Answer, MatchOperator, QueryOperator, operator_for
from ouzel.runtime.output import READING, Matches, Output, Places, conformed, output_schema
from ouzel.runtime.snapshot import Reader, Writer, check_layout
from ouzel.runtime.staging import Stager
from ouzel.runtime.values import empty_table, one_array

# Rows of one piece of an answer.
_BLOCK_ROWS = 1 << 16
# Of stored state: 1 had tables of matches, 2 has no types of events beside their partitions.
_LAYOUT = 3


class ReadingsOperator(QueryOperator):
    """The operator of a query with several readings."""

    def __init__(self, plan: ReadingsPlan, layout: Layout, limits: Limits) -> None:
        query = plan.query
        self.name = query.name
        self._limits = limits
        self._has_reader = query.into is not None
        self._scale = layout.scale
        self._order = _StreamOrder(plan, layout) if plan.is_ordered else None
        self._plan = plan
        self._distinct = Distinct(query)
        self._furthest = Furthest(query, layout) if query.output.form is OutputForm.FURTHEST else None
        self._form = form_of(query, layout)
        inner = layout if self._order is None else self._order.layout
        read = {name for part in plan.parts for name in output_columns(part, inner)}
        self._unite = Unite(query, [field for field in inner.schema if field.name in read])
        self._parts = [_operator_for(part, inner, limits) for part in plan.parts]
        self._nested = [
            [NestedSequence(one, _operator_for(one.plan, inner, limits), query) for one in plans]
            for plans in plan.nested
        ]
        self._window = plan.window_ticks
        self._is_compressed = query.output.form is OutputForm.COMPRESSED
        self.schema = self._compressed_schema(layout) if self._is_compressed else output_schema(query, layout)
        self._output = Output(replace(query, output=BoundOutput(OutputForm.ALL)), layout)

    def stage(self, table: pa.Table, ticks: np.ndarray, *, zero_copy: bool = False) -> None:
        """Add rows, in any order."""
        if self._order is not None:
            self._order.stage(table, ticks)
            return
        for part in self._parts:
            part.stage(table, ticks, zero_copy=zero_copy)

    def answer(self, until: int) -> Answer:
        """The matches that events up to tick `until` complete, over all readings."""
        if self._order is not None:
            ready = self._order.take_ready(until)
            if ready is not None:
                for part in self._operators:
                    part.stage(*ready)
        if self._is_compressed:
            return self._of_graphs([part.answer(until).table for part in self._parts])
        found = [(number, one) for number, part in enumerate(self._parts) for one in part.matches(until) if one.count]
        for sequences in self._nested:
            for sequence in sequences:
                sequence.advance(until)
        answer = self._answer(found, until) if found else self._without_matches(until)
        for sequences in self._nested:
            for sequence in sequences:
                sequence.evict(until, self._window)
        return answer

    def _answer(self, found: Sequence[tuple[int, Places | Matches]], until: int) -> Answer:
        if self._form is not None or self._furthest is not None or self._scale is not None or any(self._nested):
            # What a match has to do with those of other ends.
            return self._answer_of(self._unite(found), until)
        answers = [self._answer_of(union, until) for union in self._unite.in_blocks(found)]
        if len(answers) == 1:
            return answers[0]
        starts, ends = (np.concatenate([getattr(one, name) for one in answers]) for name in ("starts", "ends"))
        return Answer(pa.concat_tables(one.table for one in answers), starts, ends)

    def _answer_of(self, union: Union, until: int) -> Answer:
        if self._scale is not None and self._furthest is None:
            # Matches that end with their windows, in one tick, end together after all events of the tick.
            ends = union.matches.ends
            union.matches.ends = np.minimum(ends, self._scale.after_events(ends))
        # Matches are in order of their readings.
        order = self._distinct.among(union, self._allowed(union, stable_order(union.matches.ends)))
        if self._furthest is None:
            self._check_matches(union.matches.ends, order)
        if self._form is not None:
            order = self._form.chosen(union, order, until)
        # In pieces, whose memory is used again.
        blocks = [order[first : first + _BLOCK_ROWS] for first in range(0, max(len(order), 1), _BLOCK_ROWS)]
        rows = pa.concat_tables(self._output.of_matches(union.matches.picked(block)) for block in blocks)
        if self._furthest is None and not self._has_reader:
            return Answer(rows, NO_TICKS, NO_TICKS)
        starts, ends = gather(union.matches.starts, order), gather(union.matches.ends, order)
        if self._furthest is None:
            return Answer(rows, starts, ends)
        bound = np.array([len(part.positives) for part in self._plan.parts], np.int64)
        rows = rows.append_column(self.schema.field(REACHED), pa.array(bound[union.readings[order]]))
        firsts = union.positions[union.first_rows[order]]
        return self._furthest.chosen(rows, starts, ends, firsts, until)

    def _without_matches(self, until: int) -> Answer:
        if self._furthest is None:
            return self.nothing
        return self._furthest.chosen(empty_table(self.schema), NO_TICKS, NO_TICKS, NO_TICKS, until)

    def _allowed(self, union: Union, order: np.ndarray) -> np.ndarray:
        """The matches that no negated sequence forbids."""
        for number, sequences in enumerate(self._nested):
            for sequence in sequences:
                own = np.flatnonzero(union.readings[order] == number)
                order = np.delete(order, own[sequence.forbidden(union, order[own])])
        return order

    def _compressed_schema(self, layout: Layout) -> pa.Schema:
        """The columns that all readings have, and the number of the reading. Graphs have the event columns of all
        readings.
        """
        keys = {field.name: field for part in self._parts for field in list(part.schema)[:-2]}
        graph = self._parts[0].schema.field("graph").type
        shown = {field.name for part in self._parts for field in _events(part.schema)}
        events = pa.list_(pa.struct([field for field in layout.schema if field.name in shown]))
        fields = [("events", events), *((field.name, field.type) for field in graph if field.name != "events")]
        count = self._parts[0].schema.field("count")
        return pa.schema([*keys.values(), pa.field(READING, pa.int32()), count, pa.field("graph", pa.struct(fields))])

    def _of_graphs(self, tables: list[pa.Table]) -> Answer:
        """Rows of OUTPUT COMPRESSED: one for each end, partition and reading."""
        found = [empty_table(self.schema)]
        for number, table in enumerate(tables, 1):
            if table.num_rows:
                own = {field.name: one_array(table.column(field.name)) for field in table.schema}
                own[READING] = pa.repeat(pa.scalar(number, pa.int32()), table.num_rows)
                nothing = pa.nulls(table.num_rows)
                columns = [conformed(own.get(field.name, nothing), field.type) for field in self.schema]
                found.append(pa.table(columns, schema=self.schema))
        table = pa.concat_tables(found)
        order = pc.sort_indices(table.column("end")) if len(found) > 2 else None
        return Answer(table if order is None else table.take(order), NO_TICKS, NO_TICKS)

    @property
    def _operators(self) -> list[MatchOperator]:
        """The operators of all readings and of their negated sequences."""
        return [*self._parts, *(one.operator for sequences in self._nested for one in sequences)]

    def _check_matches(self, ends: np.ndarray, order: np.ndarray) -> None:
        """Raise an error if all readings together have more matches at a timestamp than one pattern may have."""
        most = self._limits.max_matches_per_timestamp
        if len(order) > most and (ends[order[most:]] == ends[order[:-most]]).any():
            raise LimitError(
                f"query '{self.name}' completes more than max_matches_per_timestamp={most:,} matches at one time, over "
                "all its readings; give a smaller WITHIN window or a more selective WHERE, ask for AGG COUNT, or raise "
                "the limit"
            )

    def _ticks(self, name: str) -> int | None:
        ticks = [getattr(part, name) for part in self._operators]
        if self._furthest is not None:
            ticks.append(self._furthest.deadline)
        if self._order is not None and name == "next_deadline":
            ticks.append(self._order.deadline)
        return min((tick for tick in ticks if tick is not None), default=None)

    @property
    def next_deadline(self) -> int | None:
        """The earliest tick at which matches are due without a further event; None if there is none."""
        return self._ticks("next_deadline")

    @property
    def timer(self) -> int | None:
        """The tick at which a kernel returns matches even if no event comes; None if there is none."""
        return self._ticks("timer")

    @property
    def held_events(self) -> int:
        """The largest number of pending and live events that one reading holds."""
        pending = 0 if self._order is None else self._order.held
        return pending + max(part.held_events for part in self._operators)

    @property
    def room(self) -> int:
        """At least this many events can be read before a limit must be checked, if they return no matches."""
        return 0 if self._order is not None else min(part.room for part in self._parts)

    @property
    def statistics(self) -> dict[str, int]:
        """The counters of the kernels, over all readings."""
        total: dict[str, int] = {}
        for part in self._operators:
            for name, count in part.statistics.items():
                total[name] = total.get(name, 0) + count
        return total

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; returns what `load` needs."""
        return {
            "layout": _LAYOUT,
            "parts": [part.dump(writer) for part in self._parts],
            "nested": [[one.dump(writer) for one in sequences] for sequences in self._nested],
            "order": None if self._order is None else self._order.dump(writer),
            "form": None if self._form is None else self._form.dump(),
            "furthest": None if self._furthest is None else self._furthest.dump(writer),
        }

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Restore what `dump` stored."""
        check_layout(head, _LAYOUT)
        for part, stored in zip(self._parts, head["parts"], strict=True):
            part.load(reader, stored)
        for sequences, heads in zip(self._nested, head["nested"], strict=True):
            for one, stored in zip(sequences, heads, strict=True):
                one.load(reader, stored)
        if self._order is not None:
            self._order.load(reader, head["order"])
        if self._form is not None:
            self._form.load(head["form"])
        if self._furthest is not None:
            self._furthest.load(reader, head["furthest"])


def _operator_for(plan: Plan, layout: Layout, limits: Limits) -> MatchOperator:
    operator = operator_for(plan, layout, limits)
    assert isinstance(operator, MatchOperator)
    return operator


def _events(schema: pa.Schema) -> pa.StructType:
    """The columns of the events in a graph."""
    return schema.field("graph").type.field("events").type.value_type


class _StreamOrder:
    """Holds events until the watermark has passed them, and then numbers them in the stream order of the whole query.
    So all readings read simultaneous events in the same order.
    """

    def __init__(self, plan: ReadingsPlan, layout: Layout) -> None:
        self._plan = plan
        self._given = layout
        self._stager = Stager(plan, Lanes(), layout)
        self._deciding = [*layout.order, *tie_break_columns(plan, layout)]
        if POSITION in layout.schema.names:
            raise InputError(f"the column '{POSITION}' has a name that patterns with several readings need; rename it")
        field = pa.field(POSITION, pa.int64())
        self.layout = replace(layout, schema=layout.schema.append(field), order=(POSITION,))
        self._pending: list[tuple[pa.Table, np.ndarray]] = []
        self._next = 0

    @property
    def held(self) -> int:
        return sum(len(ticks) for _, ticks in self._pending)

    @property
    def deadline(self) -> int | None:
        return min((int(ticks.min()) for _, ticks in self._pending if len(ticks)), default=None)

    def stage(self, table: pa.Table, ticks: np.ndarray) -> None:
        if len(ticks):
            self._pending.append((table, ticks))

    def take_ready(self, until: int) -> tuple[pa.Table, np.ndarray] | None:
        """The pending events at or before tick `until`, with their positions. Removes them."""
        if not self._pending:
            return None
        table = pa.concat_tables([table for table, _ in self._pending])
        ticks = np.concatenate([ticks for _, ticks in self._pending])
        ready = ticks <= until
        self._pending = []
        if not ready.all():
            self._pending = [(table.filter(pa.array(~ready)), ticks[~ready])]
            if not ready.any():
                return None
            table, ticks = table.filter(pa.array(ready)), ticks[ready]
        starts = ticks
        if self._given.start is not None:
            starts = table.column(self._given.start).to_numpy()
        order = stream_order(
            ticks,
            starts,
            self._plays(table, ticks),
            table.select(self._deciding),
            np.arange(len(ticks), dtype=np.int32),
            len(self._given.order),
        )
        if order is not None:
            table, ticks = table.take(pa.array(order)), ticks[order]
        positions = pa.array(np.arange(self._next, self._next + len(ticks)))
        self._next += len(ticks)
        return pa.table([*table.columns, positions], schema=self.layout.schema), ticks

    def _plays(self, table: pa.Table, ticks: np.ndarray) -> np.ndarray:
        """Which events may fill a component of some reading."""
        rows, bits = self._stager.select(table)
        frame = EventFrame(self._plan.query, self._given, table, ticks, lambda component: rows, len(rows))
        may_fill = np.zeros(len(rows), bool)
        for component in self._plan.query.components:
            typed = (bits & np.uint64(1 << component.position)) != 0
            may_fill |= typed & self._satisfies(component, frame)
        plays = np.zeros(table.num_rows, bool)
        plays[rows] = may_fill
        return plays

    def _satisfies(self, component: Component, frame: EventFrame) -> np.ndarray:
        first, later = self._plan.roles_of(component)
        found = np.zeros(frame.rows, bool)
        for conjuncts in (first, later) if component.kleene else (first,):
            held = np.ones(frame.rows, bool)
            for conjunct in conjuncts:
                held &= any_holds(conjunct.comparisons, frame)
            found |= held
        return found

    def dump(self, writer: Writer) -> dict[str, Any]:
        return {
            "pending": [[writer.add_table(table), writer.add_array(ticks)] for table, ticks in self._pending],
            "next": self._next,
        }

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        self._pending = [(reader.table(table), reader.array(ticks)) for table, ticks in head["pending"]]
        self._next = head["next"]
