"""Groups of aggregates: finds the group of an event or a key, and stores the values of the GROUP BY columns.

Groups are numbered in order of appearance. With `GROUP BY attr` the key decides the group, and GROUP BY is evaluated
once for each new key. With `GROUP BY v.attr` the events of component v decide, and it is evaluated for each of them.
Null is a group like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.bind.model import Attribute, Bound, EventField, Intrinsic
from ouzel.engines.aggregate.plan import AggregatePlan
from ouzel.engines.aggregate.tables import CounterInstances
from ouzel.kernels.events import EVERY_KEY, Instances
from ouzel.plan.expressions import attribute_of
from ouzel.runtime.codes import Coder
from ouzel.runtime.expressions import evaluate
from ouzel.runtime.frames import EventFrame, ticks_to_time
from ouzel.runtime.layout import Layout
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.values import from_engine, numbers, one_array, to_engine


class GroupIndex:
    """The groups of one query."""

    def __init__(self, plan: AggregatePlan, layout: Layout, schema: pa.Schema) -> None:
        self._plan = plan
        self._query = plan.query
        self._layout = layout
        self._types = [schema.field(key.name).type for key in plan.query.group_by]
        self._coders = [Coder() for _ in plan.query.group_by]
        self._together = Coder()
        # The values of each group, column by column.
        self._shown: list[pa.Array] = [pa.nulls(0, kind) for kind in self._types]
        self._reading: list[int] = []
        # The group of each key; without groups, the key of no partition is group 0.
        self.key_group = np.zeros(EVERY_KEY + 1, np.int32)

    @property
    def count(self) -> int:
        """The number of groups, at least one."""
        return max(1, len(self._shown[0]) if self._shown else 1)

    def show(self, groups: np.ndarray) -> list[pa.Array]:
        """The GROUP BY columns of some groups."""
        return [column.take(pa.array(groups)) for column in self._shown]

    # ── By key ─────────────────────────────────────────────────────────────────────────────────────

    def note_keys(
        self,
        frame_of: Callable[[np.ndarray], EventFrame],
        rows: np.ndarray,
        instances: Instances | CounterInstances,
        key_count: int,
    ) -> None:
        """Find the groups of new keys. `frame_of` reads some of the instances' `rows`."""
        known = len(self.key_group)
        if key_count <= known:
            return
        self.key_group = np.concatenate([self.key_group, np.zeros(key_count - known, np.int32)])
        if not self._query.group_by or self._plan.split is not None:
            return
        # The first instance represents its key: the last write wins, so the order is reversed.
        representative = np.full(key_count, -1, np.int64)
        representative[instances.key[::-1]] = np.arange(len(rows) - 1, -1, -1)
        keys = np.flatnonzero(representative >= 0)
        keys = keys[keys >= known]
        chosen = representative[keys]
        component = instances.component[chosen]
        reading = np.array([self._same_columns(position) for position in range(len(self._query.components))])[component]
        for position in np.unique(reading):
            mine = np.flatnonzero(reading == position)
            frame = frame_of(rows[chosen[mine]])
            columns = [self._column(frame, self._of_component(key.path, int(position)), i) for i, key in self._keys()]
            self.key_group[keys[mine]] = self._number(columns)

    def _same_columns(self, position: int) -> int:
        """The first component whose groups come from the same columns of the input as those of this component."""
        if not self._reading:
            first: dict[object, int] = {}
            for component in self._query.components:
                read: list[object] = []
                for _, key in self._keys():
                    attribute = self._of_component(key.path, component.position)
                    name, *inner = attribute.path
                    columns = {self._layout.column(kind, name) for kind in self._query.types_of(component.position)}
                    alone = attribute.present_in is not None or len(columns) > 1
                    read.append(component.position if alone else (*columns, *inner))
                self._reading.append(first.setdefault(tuple(read), component.position))
        return self._reading[position]

    def _keys(self) -> list[tuple[int, Any]]:
        return list(enumerate(self._query.group_by))

    def _of_component(self, path: tuple[str, ...] | None, position: int) -> Attribute:
        test = next(test for test in self._query.equivalences if test.path == path)
        return attribute_of(self._query, position, test)

    # ── By an event ────────────────────────────────────────────────────────────────────────────────

    def of_events(self, frame: EventFrame, rows: np.ndarray, instances: Instances) -> np.ndarray:
        """The group of each instance of the component that decides the group; 0 for all other instances."""
        groups = np.zeros(len(rows), np.int32)
        mine = np.flatnonzero(instances.component == self._plan.split)
        if not len(mine):
            return groups
        columns = []
        for number, key in self._keys():
            assert self._plan.split is not None
            expression = key.expression or self._of_component(key.path, self._plan.split)
            columns.append(self._column(frame, expression, number).take(pa.array(rows[mine])))
        groups[mine] = self._number(columns)
        return groups

    # ── Numbers ────────────────────────────────────────────────────────────────────────────────────

    def _number(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """The group of each row. New groups get the next numbers, in order of appearance."""
        known = len(self._shown[0])
        found = self._encode(columns)
        codes, first = np.unique(found, return_index=True)
        self._append(columns, first[codes >= known])
        return found

    def _encode(self, columns: Sequence[pa.Array]) -> np.ndarray:
        # Null has the code -1, and is a group.
        codes = [
            pa.array(coder.encode([to_engine(column, key.type)]).astype(np.int64) + 1)
            for coder, column, key in zip(self._coders, columns, self._query.group_by, strict=True)
        ]
        return self._together.encode(codes)

    def _column(self, frame: EventFrame, expression: Bound, number: int) -> pa.Array:
        """A GROUP BY column in its output type, for every row of a frame."""
        if isinstance(expression, Attribute):
            return frame.raw(expression).cast(self._types[number])
        value = evaluate(expression, frame)
        if isinstance(expression, Intrinsic) and expression.field is not EventField.TYPE:
            return ticks_to_time(numbers(value), self._types[number])
        return from_engine(value, self._query.group_by[number].type)

    def _append(self, columns: Sequence[pa.Array], rows: np.ndarray) -> None:
        if len(rows):
            places = pa.array(rows)
            self._shown = [
                pa.concat_arrays([old, column.take(places)]) for old, column in zip(self._shown, columns, strict=True)
            ]

    # ── Eviction ───────────────────────────────────────────────────────────────────────────────────

    def keep_keys(self, keys: np.ndarray) -> np.ndarray:
        """Keep only these keys, in this order, and key 0, which events without a partition have. Returns the new number
        of each old group.
        """
        renamed = np.arange(self.count, dtype=np.int32)
        if self._plan.split is None and self._query.group_by:
            renamed = self._rename(np.unique(self.key_group[keys]))
        nothing = np.zeros(EVERY_KEY + 1, np.int32)
        self.key_group = np.concatenate([nothing, renamed[self.key_group[keys]]]).astype(np.int32)
        return renamed

    def keep_groups(self, live: np.ndarray) -> np.ndarray:
        """Keep only these groups, if events decide them. Returns the new number of each old group; 0 for dropped
        ones.
        """
        assert self._plan.split is not None
        return self._rename(live)

    def _rename(self, live: np.ndarray) -> np.ndarray:
        """Keep only these groups. Returns the new number of each old group; 0 for dropped ones."""
        renamed = np.zeros(self.count, np.int32)
        renamed[live] = np.arange(len(live), dtype=np.int32)
        self._shown = [column.take(pa.array(live)) for column in self._shown]
        self._coders = [Coder() for _ in self._coders]
        self._together = Coder()
        assert (self._encode(self._shown) == np.arange(len(live))).all(), "groups keep their order"
        return renamed

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def dump(self, writer: Writer) -> dict[str, Any]:
        names = [f"column {number}" for number in range(len(self._shown))]
        return {
            "shown": writer.add_table(pa.table(self._shown, names=names)) if names else None,
            "key_group": writer.add_array(self.key_group),
            "coders": [coder.dump(writer) for coder in (*self._coders, self._together)],
        }

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        self.key_group = reader.array(head["key_group"])
        for coder, stored in zip((*self._coders, self._together), head["coders"], strict=True):
            coder.load(reader, stored)
        if head["shown"] is None:
            return
        columns = reader.table(head["shown"]).columns
        self._shown = [one_array(column) for column in columns]
