"""Staging: turns the rows of a batch into instances, the numbers that kernels read.

A row may fill a component if its type and all predicates of the component on single events allow it. The row becomes
one instance for each such component. Rows that fill no component are dropped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.model import Attribute, Bound, Kind, Operation
from ouzel.kernels.arrays import NO_NULLS, Numbers, Text, coded_of, text_of
from ouzel.kernels.events import EVERY_KEY, Instances
from ouzel.kernels.order import expand, gather
from ouzel.kernels.predicate_tables import LaneFlag
from ouzel.kernels.rows import Rows
from ouzel.kernels.staging import IN_ORDER, IS_NOT_NULL, select_rows
from ouzel.kernels.text import classify, constants_of, select, select_coded
from ouzel.plan.expressions import walk
from ouzel.plan.lowering import Domain, Lanes, LaneSpec
from ouzel.plan.model import KeyPart, KeyStrategy, Plan
from ouzel.runtime.buffer import Block
from ouzel.runtime.codes import Coder
from ouzel.runtime.expressions import any_holds, evaluate, holds
from ouzel.runtime.frames import EventFrame
from ouzel.runtime.inbox import GrowingRows, SmallBatch
from ouzel.runtime.layout import Layout
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.values import as_integers, numbers, one_array, split


class _Key(NamedTuple):
    """The key of a component and, if the schema allows that, the columns that its parts are."""

    parts: tuple[KeyPart, ...]
    coder: Coder
    columns: list[str] | None
    everywhere: list[int]  # negatives that forbid in every partition


class SmallStager:
    """Stages the rows of small pushes by compiled code alone. What depends only on the schema is computed once, as
    arrays.

    `roles` has the roles of each named type, and last those of all other types. In `tests`, (roles, column) means that
    a null in the column clears these roles. `key` has the columns of the key. `lanes` is the table for `write_lane`.
    """

    def __init__(
        self,
        source: GrowingRows,
        type_column: int,
        types: Sequence[str],
        roles: np.ndarray,
        tests: Sequence[tuple[int, int]],
        key: Sequence[int],
        lanes: Sequence[tuple[int, int, int, int, int]],
    ) -> None:
        self._type_column = type_column
        self._type_place = -1 if type_column < 0 else source.places[type_column]
        self._types = constants_of(types)
        self._roles_by_type = roles
        # The most roles of one event.
        self.roles_max = int(np.bitwise_count(roles).max())
        self._tests = np.array(tests, np.int64).reshape(-1, 2)
        self.key = list(key)
        self._floating = [pa.types.is_floating(source.types[column]) for column in key]
        self.lanes = np.array(lanes, np.int32).reshape(-1, 5)
        self.chosen = np.empty(0, np.int32)
        self.roles = np.empty(0, np.uint64)
        self.order = IN_ORDER
        # The columns of the key as kernels read them, of the arrays that the rows had last.
        self._views: list[Text | Numbers] = []
        self._viewed: Rows | None = None

    def select(self, batch: SmallBatch) -> int:
        """Find the rows that have roles, and return their number. They become the first of `chosen`, with their
        `roles`; `order` sorts them by time.
        """
        size = batch.last - batch.first
        if size > len(self.chosen):
            self.chosen, self.roles = np.empty(2 * size, np.int32), np.empty(2 * size, np.uint64)
        count, self.order = select_rows(
            batch.source.rows, batch.first, batch.last, self._type_place, self._type_column, self._types,
            self._roles_by_type, self._tests, self.chosen, self.roles,
        )  # fmt: skip
        return int(count)

    def has_null_keys(self, batch: SmallBatch) -> bool:
        """Whether a key may be null. Then rows are staged in the general way."""
        return any(batch.source.has_nulls(column) for column in self.key)

    def codes(self, batch: SmallBatch, count: int, coder: Coder) -> np.ndarray:
        """The keys of the chosen rows; empty if the query has no key."""
        if not self.key:
            return _NO_CODES
        source, rows = batch.source, batch.source.rows
        if self._viewed is not rows:
            self._views, self._viewed = self._view(source), rows
        return coder.encode_views(self._views, self.chosen[:count])

    def _view(self, source: GrowingRows) -> list[Text | Numbers]:
        rows = source.rows
        views: list[Text | Numbers] = []
        for column, floating in zip(self.key, self._floating, strict=True):
            place = source.places[column]
            if source.is_text[column]:
                views.append(Text(rows.offsets[place], rows.data[place], NO_NULLS, 0))
            else:
                views.append(Numbers(rows.numbers[place], NO_NULLS, 0, floating))
        return views


_NO_CODES = np.empty(0, np.int32)


class KeyStager(ABC):
    """Turns batches of one stream into events for one query. Keeps the codes of keys and texts between batches."""

    def __init__(self) -> None:
        # The key 0 is EVERY_KEY, so codes of values start at 1.
        self.keys = Coder(first_code=EVERY_KEY + 1)
        self.texts = Coder()

    @property
    def coders(self) -> Sequence[Coder]:
        """The mappings of values to codes that must be kept between batches."""
        return self.keys, self.texts

    def dump(self, writer: Writer) -> list[Any]:
        """Store the codes; `load` takes what this returns."""
        return [coder.dump(writer) for coder in self.coders]

    def load(self, reader: Reader, head: Sequence[Any]) -> None:
        """Restore what `dump` stored."""
        for coder, stored in zip(self.coders, head, strict=True):
            coder.load(reader, stored)

    def small(self, source: GrowingRows) -> SmallStager | None:
        """A stager of small pushes in compiled code; None if the query needs more."""
        return None

    @abstractmethod
    def stage(self, table: pa.Table, ticks: np.ndarray) -> tuple[np.ndarray, Block[Any]]:
        """(rows, events): the indexes of the rows that are needed, and their events. The row numbers of events count
        among these rows.
        """


class Stager(KeyStager):
    """Turns batches into instances."""

    def __init__(self, plan: Plan, lanes: Lanes, layout: Layout, *, takes_small: bool = True) -> None:
        super().__init__()
        self._query = plan.query
        self._layout = layout
        self._lanes = lanes
        self._plan = plan
        types = dict.fromkeys(t for c in plan.query.components for t in c.types or ())
        self._constants = constants_of(list(types))
        self._type_names = list(types)
        numbers = {name: number for number, name in enumerate(types)}
        self._roles_by_code = np.zeros(len(types) + 1, np.uint64)
        for component in plan.query.components:
            bit = np.uint64(1 << component.position)
            if component.types is None:
                self._roles_by_code |= bit
            for name in component.types or ():
                self._roles_by_code[numbers[name]] |= bit
        hashed = plan.key if plan.key_strategy is not KeyStrategy.DYNAMIC else plan.key[:1]
        is_double = plan.key_strategy is KeyStrategy.MULTI_PAIS
        self.second_keys = Coder(first_code=EVERY_KEY + 1)
        # What the schema decides once for all batches: tests of single events, with the columns without whose nulls
        # they hold anyway; keys that are columns; lanes that are columns, by the id of their specification.
        self._tests = [
            (np.uint64(1 << position), conjunct.comparisons, self._not_null(conjunct.comparisons))
            for position, conjuncts in plan.roles.items()
            for conjunct in conjuncts
        ]
        self._first_key = self._key_of(hashed[:1] if is_double else hashed, self.keys)
        self._second_key = self._key_of(hashed[1:] if is_double else (), self.second_keys)
        self._lane_columns: dict[int, tuple[str | None, list[str] | None]] = {}
        # The components, as bits, that forbid in every partition.
        self.everywhere = sum(1 << position for position in self._first_key.everywhere)
        # What stages small pushes; False if it is not made yet.
        self._small: SmallStager | Literal[False] | None = False if takes_small else None
        # Rows by type and the components as bits, if somebody else has found them.
        self.selected: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def coders(self) -> Sequence[Coder]:
        """The mappings of values to codes that must be kept between batches."""
        return self.keys, self.second_keys, self.texts

    # ── Small pushes ───────────────────────────────────────────────────────────────────────────────

    def small(self, source: GrowingRows) -> SmallStager | None:
        """A stager of small pushes in compiled code; None if the query needs more than types, tests for null, key
        columns and columns of numbers.
        """
        if self._small is False:
            self._small = self._make_small(source)
        return self._small or None

    def _make_small(self, source: GrowingRows) -> SmallStager | None:
        if self._second_key.parts or self._layout.start is not None:
            return None
        key = self._key_columns(source)
        tests = self._small_tests(source)
        lanes = self._small_lanes(source)
        is_typed = self._layout.type is not None
        column = source.schema.get_field_index(self._layout.type) if is_typed else -1
        if key is None or tests is None or lanes is None or (is_typed and not source.is_text[column]):
            return None
        roles, types = self._small_roles(), self._type_names
        if not is_typed:
            roles = roles[[types.index(self._layout.only_type) if self._layout.only_type in types else -1]]
        return SmallStager(source, column, types if is_typed else [], roles, tests, key, lanes)

    def _small_roles(self) -> np.ndarray:
        """The roles of events of each named type, and last those of all other types."""
        return self._roles_by_code

    def _key_columns(self, source: GrowingRows) -> list[int] | None:
        if not self._first_key.parts:
            return []
        return None if self._first_key.columns is None else _key_columns(source, self._first_key.columns)

    def _small_tests(self, source: GrowingRows) -> list[tuple[int, int]] | None:
        """Which roles a null in a column clears; None if some test is of another kind."""
        found = []
        for bit, _, not_null in self._tests:
            if not_null is None or len(not_null) != 1:
                return None
            found.append((int(bit), source.schema.get_field_index(not_null[0])))
        return found

    def _small_lanes(self, source: GrowingRows) -> list[tuple[int, int, int, int, int]] | None:
        found = []
        for floating, lanes in enumerate((self._lanes.ints, self._lanes.floats)):
            for position, specs in lanes.items():
                for number, spec in enumerate(specs):
                    lane = self._small_lane(source, spec)
                    if lane is None:
                        return None
                    found.append((position, floating, number, *lane))
        return found

    def _small_lane(self, source: GrowingRows, spec: LaneSpec) -> tuple[int, int] | None:
        """(position, column) of a lane that is a column of numbers, or that says whether a column is not null. None for
        other lanes.
        """
        name = self._lane_column(spec)
        if name is not None:
            column = source.schema.get_field_index(name)
            return source.places[column], column
        not_null = self._not_null((spec.expression,)) if spec.domain is not Domain.FLOAT else None
        if not_null is None or len(not_null) != 1:
            return None
        return IS_NOT_NULL, source.schema.get_field_index(not_null[0])

    # ── Tables ─────────────────────────────────────────────────────────────────────────────────────

    def stage(self, table: pa.Table, ticks: np.ndarray) -> tuple[np.ndarray, Block[Any]]:
        """(rows, instances): the indexes of the rows that fill a component, and their instances. The row numbers of
        instances count among these rows.
        """
        rows, roles = self.select(table) if self.selected is None else self.selected
        frame = EventFrame(self._query, self._layout, table, ticks, lambda component: rows, len(rows))
        roles = self._test_roles(frame, roles, table)
        if not roles.all():
            kept = roles != 0
            rows, roles = rows[kept], roles[kept]
            remaining = rows
            frame = EventFrame(self._query, self._layout, table, ticks, lambda component: remaining, len(rows))
        places, signed = expand(roles)
        as_they_are = len(places) == len(rows)
        component = signed.view(np.uint8)
        key = self._codes_of(self._first_key, frame, table, rows, places, component)
        second = key[:0]
        if self._second_key.parts:
            second = self._codes_of(self._second_key, frame, table, rows, places, component)
        if (key.size and key.min() < 0) or (second.size and second.min() < 0):
            # A null in a written equality: the event can neither match nor forbid.
            kept = key >= 0 if not self._second_key.parts else (key >= 0) & (second >= 0)
            # The same number of instances and rows does not mean one instance per row here.
            as_they_are = False
            places, component, key = places[kept], component[kept], key[kept]
            second = second[kept] if self._second_key.parts else second
        instance_rows = rows if as_they_are else rows[places]
        end = gather(ticks, instance_rows)
        start = end
        if self._layout.start is not None:
            start = gather(numbers(one_array(table.column(self._layout.start))), instance_rows)
        ints, floats, flags = self._lane_values(frame, table, instance_rows, places, component)
        instances = Instances(
            start=start,
            end=end,
            key=key,
            second_key=second,
            component=component,
            int_lanes=ints,
            float_lanes=floats,
            lane_flags=flags,
            flagged=np.asarray(flags.any(axis=1), np.uint8),
        )
        return rows, Block(places, instances)

    def select(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """(rows, bits): the rows whose types the query names, and the components that name each, one bit each."""
        layout = self._layout
        if layout.type is None:
            code = classify(text_of(pa.array([layout.only_type or ""], pa.large_string())), self._constants)[0]
            bits = self._roles_by_code[code]
            count = table.num_rows if bits else 0
            return np.arange(count, dtype=np.int32), np.full(count, bits, np.uint64)
        column = one_array(table.column(layout.type))
        if pa.types.is_dictionary(column.type):
            values = pc.cast(column.dictionary, pa.large_string())
            codes = classify(text_of(values), self._constants)
            rows, codes = select_coded(coded_of(column), codes, self._roles_by_code)
        else:
            if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
                column = pc.cast(column, pa.large_string())
            rows, codes = select(text_of(column), self._constants, self._roles_by_code)
        return rows, self._roles_by_code[codes]

    def _test_roles(self, frame: EventFrame, roles: np.ndarray, table: pa.Table) -> np.ndarray:
        decided: dict[tuple[Bound, ...], np.ndarray] = {}
        for bit, comparisons, not_null in self._tests:
            if not_null is not None and have_no_nulls(table, not_null):
                continue
            if comparisons not in decided:
                decided[comparisons] = any_holds(comparisons, frame)
            roles = np.where(decided[comparisons], roles, roles & ~bit)
        return roles

    def _not_null(self, comparisons: Sequence[Bound]) -> list[str] | None:
        """The columns of comparisons that are all of the form `x.id IS NOT NULL`, the most common test; None for other
        comparisons.
        """
        (first, *more) = comparisons
        if more or not isinstance(first, Operation) or first.operator != "not":
            return None
        inner = first.operands[0]
        if not isinstance(inner, Operation) or inner.operator != "is_null":
            return None
        attribute = inner.operands[0]
        if not isinstance(attribute, Attribute) or attribute.present_in is not None or len(attribute.path) != 1:
            return None
        types = self._query.types_of(attribute.component)
        columns = {self._layout.column(t, attribute.path[0]) for t in types}
        return sorted(columns) if columns <= set(self._layout.schema.names) else None

    def _key_of(self, parts: tuple[KeyPart, ...], coder: Coder) -> _Key:
        negatives = [component.position for component in self._plan.negatives]
        everywhere = [one for one in negatives if any(one not in part.expressions for part in parts)]
        return _Key(parts, coder, self._columns_of(parts), everywhere)

    def _codes_of(
        self,
        key: _Key,
        frame: EventFrame,
        table: pa.Table,
        rows: np.ndarray,
        places: np.ndarray,
        component: np.ndarray,
    ) -> np.ndarray:
        """The partition of each instance. -1 if a value is null; EVERY_KEY for negative components that have no such
        key.
        """
        if not key.parts:
            return np.zeros(len(places), np.int32)
        if key.columns is not None or all(self._is_one_column(part) for part in key.parts):
            if key.columns is not None:
                codes = key.coder.encode([one_array(table.column(name)) for name in key.columns], rows)
            else:
                codes = key.coder.encode([self._key_column(frame, part) for part in key.parts])
            found = codes if len(places) == len(codes) else codes[places]
        else:
            found = np.full(len(places), -1, np.int32)
            for position in range(len(self._query.components)):
                chosen = np.flatnonzero(component == position)
                if len(chosen) and position not in key.everywhere:
                    columns = [evaluate(part.expressions[position], frame) for part in key.parts]
                    found[chosen] = key.coder.encode(columns, places[chosen].astype(np.int32))
        for position in key.everywhere:
            found[component == position] = EVERY_KEY
        return found

    def _columns_of(self, parts: tuple[KeyPart, ...]) -> list[str] | None:
        """The columns of a key, if each part is one column for all components; otherwise None."""
        found = []
        for part in parts:
            columns = {self._column_of(expression) for expression in part.expressions.values()}
            name = columns.pop()
            if columns or name is None:
                return None
            # Of several columns, the needed rows are taken before dictionaries are decoded.
            if len(parts) > 1 and pa.types.is_dictionary(self._layout.schema.field(name).type):
                return None
            found.append(name)
        return found

    def _column_of(self, expression: Bound) -> str | None:
        """The column that holds an expression's value for all types of its component; None if there is none."""
        if not isinstance(expression, Attribute) or expression.present_in is not None or len(expression.path) != 1:
            return None
        types = self._query.types_of(expression.component)
        columns = {self._layout.column(event_type, expression.path[0]) for event_type in types}
        return columns.pop() if len(columns) == 1 else None

    def _is_one_column(self, part: KeyPart) -> bool:
        """Whether all components are partitioned by the same column of the input."""
        columns = set()
        for position, expression in part.expressions.items():
            if not isinstance(expression, Attribute) or expression.present_in is not None:
                return False
            for event_type in self._query.types_of(position):
                columns.add((self._layout.column(event_type, expression.path[0]), expression.path[1:]))
        return len(columns) == 1

    def _key_column(self, frame: EventFrame, part: KeyPart) -> pa.Array:
        """The values that partition all components, in their input type."""
        expression = next(iter(part.expressions.values()))
        assert isinstance(expression, Attribute)
        return frame.raw(expression)

    def _lane_values(
        self, frame: EventFrame, table: pa.Table, rows: np.ndarray, places: np.ndarray, component: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(integers, floats, flags): the lanes of instances, given their rows in the table and their places in the
        frame.
        """
        count = len(places)
        int_count, float_count = self._lanes.int_count, self._lanes.float_count
        ints = np.zeros((int_count, count), np.int64)
        floats = np.zeros((float_count, count), np.float64)
        flags = np.zeros((int_count + float_count, count), np.uint8)
        for lanes, values, first in ((self._lanes.ints, ints, 0), (self._lanes.floats, floats, int_count)):
            for position, specs in lanes.items():
                chosen = (component == position).nonzero()[0]
                for number, spec in enumerate(specs):
                    plain = self._plain_lane(table, spec, rows[chosen])
                    if plain is not None:
                        values[number, chosen] = plain
                        continue
                    local = places[chosen]
                    lane, flag = self._lane(frame, spec)
                    values[number, chosen] = lane[local]
                    if flag is not None:
                        flags[first + number, chosen] = flag[local]
        return ints, floats, flags

    def _plain_lane(self, table: pa.Table, spec: LaneSpec, rows: np.ndarray) -> np.ndarray | int | None:
        """The values of a lane that is a column of numbers without nulls, or that says whether a column without nulls
        is null. None for other lanes.
        """
        known = self._lane_columns.get(id(spec))
        if known is None:
            known = self._lane_columns[id(spec)] = self._lane_column(spec), self._not_null((spec.expression,))
        name, not_null = known
        if name is not None:
            column = one_array(table.column(name))
            if not column.null_count:
                values: np.ndarray = numbers(column, np.float64 if spec.domain is Domain.FLOAT else np.int64)[rows]
                return values
        return 1 if not_null is not None and have_no_nulls(table, not_null) else None

    def _lane_column(self, spec: LaneSpec) -> str | None:
        name = self._column_of(spec.expression)
        if name is None:
            return None
        kind, declared = self._layout.schema.field(name).type, spec.expression.type
        if spec.domain is Domain.INT:
            is_time = pa.types.is_timestamp(kind) and declared.kind is Kind.TIMESTAMP
            same = (declared.unit or "us") == kind.unit if is_time else pa.types.is_int64(kind)
            return name if same and (is_time or declared.kind is Kind.INT) else None
        floating = spec.domain is Domain.FLOAT and declared.kind is Kind.FLOAT and pa.types.is_float64(kind)
        return name if floating else None

    def _lane(self, frame: EventFrame, spec: LaneSpec) -> tuple[np.ndarray, np.ndarray | None]:
        if spec.domain is Domain.TRUTH:
            return holds(spec.expression, frame).astype(np.int64), None
        column = evaluate(spec.expression, frame)
        flags: np.ndarray | None = None
        if spec.domain in (Domain.CODE, Domain.RANK):
            values = self.texts.encode([column]).astype(np.int64)
            valid = values >= 0
        elif spec.domain is Domain.FLOAT:
            values, valid = split(column, np.float64)
        else:
            values, valid = as_integers(column)
        if not valid.all():
            flags = np.where(valid, LaneFlag.VALUE, LaneFlag.NULL).astype(np.uint8)
        if spec.absent_is_null:
            return values, flags
        for part in walk(spec.expression):
            absent = frame.lacks(part) if isinstance(part, Attribute) else None
            if absent is not None and absent.any():
                flags = np.zeros(frame.rows, np.uint8) if flags is None else flags
                flags[absent] = LaneFlag.ABSENT
        return values, flags


def _key_columns(source: GrowingRows, names: Sequence[str]) -> list[int] | None:
    """The columns of a key, if their stored 64-bit words can be compared directly; otherwise None."""
    columns = [source.schema.get_field_index(name) for name in names]
    narrow = [pa.types.is_floating(source.types[column]) and source.types[column].bit_width < 64 for column in columns]
    untyped = [pa.types.is_null(source.types[column]) for column in columns]
    return None if any(narrow) or any(untyped) else columns


def have_no_nulls(table: pa.Table, columns: Sequence[str]) -> bool:
    """Whether these columns have no nulls."""
    return not any(table.column(name).null_count for name in columns)
