"""Turns the rows of a batch into events for runs, with roles, partition, lanes and tie-break columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ouzel.bind.model import Attribute, Bound, Conjunct, Intrinsic, Kind
from ouzel.engines.kleene.lowering import RunLowered, lane_specs
from ouzel.engines.kleene.plan import RunPlan
from ouzel.engines.kleene.tables import RunEvents
from ouzel.kernels.events import EVERY_KEY
from ouzel.kernels.order import gather
from ouzel.kernels.predicate_tables import LaneFlag
from ouzel.kernels.staging import EVERY_COMPONENT
from ouzel.plan.lowering import Domain, Lanes, LaneSpec
from ouzel.runtime.buffer import Block
from ouzel.runtime.codes import Coder
from ouzel.runtime.expressions import any_holds, evaluate, holds
from ouzel.runtime.frames import EventFrame
from ouzel.runtime.inbox import GrowingRows
from ouzel.runtime.layout import Layout, tie_break_columns
from ouzel.runtime.staging import SmallStager, Stager, have_no_nulls
from ouzel.runtime.values import Column, engine_type, one_array


class RunStager(Stager):
    """Turns batches of one stream into events for one query."""

    def __init__(self, plan: RunPlan, lowered: RunLowered, layout: Layout) -> None:
        super().__init__(plan, Lanes(), layout)
        self._run_plan = plan
        self._lowered = lowered
        self.tie_breaks = [*layout.order, *tie_break_columns(plan, layout)]
        self._keyed = [*plan.partitioning, *plan.hashed]
        # Negatives that no written equality names forbid with any value.
        free = {c.position for c in plan.unguarded} if plan.hashed else set()
        bits = [2 * len(plan.positives) + n for n, c in enumerate(plan.negatives) if c.position in free]
        self.free_roles = np.uint64(sum(1 << bit for bit in bits))
        self.coded = [Coder() for _ in plan.coded]
        # Tests of single events by the id of their conjunct: its number, and the columns without whose nulls it holds.
        self._test_of: dict[int, tuple[int, list[str] | None]] = {}
        numbers: dict[tuple[Bound, ...], int] = {}
        for conjuncts in (*plan.roles.values(), *plan.later_roles.values()):
            for conjunct in conjuncts:
                number = numbers.setdefault(conjunct.comparisons, len(numbers))
                self._test_of[id(conjunct)] = (number, self._not_null(conjunct.comparisons))
        self._partition_columns = self._plain_partition()

    @property
    def coders(self) -> list[Coder]:
        """The mappings of values to codes that must be kept between batches."""
        return [self.keys, self.texts, *self.coded]

    def _make_small(self, source: GrowingRows) -> SmallStager | None:
        plan = self._run_plan
        if plan.needs_positions or self.coded or self._partition_columns is None:
            return None
        return super()._make_small(source)

    def _key_columns(self, source: GrowingRows) -> list[int] | None:
        assert self._partition_columns is not None
        return [source.schema.get_field_index(name) for name in self._partition_columns]

    def _small_roles(self) -> np.ndarray:
        by_component = self._roles_by_code
        roles = np.zeros(len(by_component), np.uint64)
        for bit, component, _ in self._role_tests():
            roles |= (by_component >> np.uint64(component) & np.uint64(1)) << np.uint64(bit)
        return roles

    def _small_tests(self, source: GrowingRows) -> list[tuple[int, int]] | None:
        found = []
        for bit, _, conjuncts in self._role_tests():
            for conjunct in conjuncts:
                _, not_null = self._test_of[id(conjunct)]
                if not_null is None or len(not_null) != 1:
                    return None
                found.append((1 << bit, source.schema.get_field_index(not_null[0])))
        return found

    def _small_lanes(self, source: GrowingRows) -> list[tuple[int, int, int, int, int]] | None:
        found = []
        for spec, row, floating in lane_specs(self._lowered):
            lane = self._small_lane(source, spec)
            if lane is None:
                return None
            found.append((EVERY_COMPONENT, int(floating), row, *lane))
        return found

    def stage(self, table: pa.Table, ticks: np.ndarray) -> tuple[np.ndarray, Block[RunEvents]]:
        """(rows, events): the indexes of the rows that may fill a component, and all events that matter. Events that
        only advance positions have no row. An event without a partition has key -1.
        """
        candidates, by_component = self.select(table) if self.selected is None else self.selected
        frame = self._frame(table, ticks, candidates)
        roles = self._roles(table, frame, by_component)
        places = candidates
        if not roles.all():
            playing = roles != 0
            places, roles = candidates[playing], roles[playing]
        rows = np.arange(len(places), dtype=np.int64)
        chosen = places
        if self._run_plan.needs_positions and len(places) < table.num_rows:
            numbers = np.full(table.num_rows, -1, np.int64)
            numbers[places] = rows
            bits = np.zeros(table.num_rows, np.uint64)
            bits[places] = roles
            chosen = np.arange(table.num_rows, dtype=np.int32)
            key = self._partition(table, ticks, chosen)
            if not self._query.is_strict:
                chosen = np.flatnonzero((bits != 0) | (key >= EVERY_KEY)).astype(np.int32)
            rows, roles, key = numbers[chosen], bits[chosen], key[chosen]
        else:
            key = self._partition(table, ticks, chosen)
        if self.free_roles:
            key[roles & self.free_roles != 0] = EVERY_KEY
        end = gather(ticks, chosen)
        start = end
        if self._layout.start is not None:
            start = gather(one_array(table.column(self._layout.start)).to_numpy(), chosen)
        ints, floats, flags = self._run_lanes(table, ticks, chosen, roles)
        events = RunEvents(
            start=start,
            end=end,
            key=key,
            roles=roles,
            position=np.empty(0, np.int64),
            sequence=np.empty(0, np.int64),
            codes=self._codes(self._frame(table, ticks, chosen)),
            int_lanes=ints,
            float_lanes=floats,
            lane_flags=flags,
            flagged=np.ones(len(flags), np.uint8),
        )
        return places, Block(rows, events, table.select(self.tie_breaks), chosen)

    def _frame(self, table: pa.Table, ticks: np.ndarray, rows: np.ndarray) -> EventFrame:
        return EventFrame(self._query, self._layout, table, ticks, lambda component: rows, len(rows))

    # ── Roles ──────────────────────────────────────────────────────────────────────────────────────

    def _roles(self, table: pa.Table, frame: EventFrame, by_component: np.ndarray) -> np.ndarray:
        """The bits of `RunEvents.roles` for rows whose types the query names."""
        decided: dict[int, np.ndarray] = {}
        roles = np.zeros(len(by_component), np.uint64)
        for bit, component, conjuncts in self._role_tests():
            own = by_component >> np.uint64(component) & np.uint64(1)
            roles |= self._satisfying(own, conjuncts, table, frame, decided) << np.uint64(bit)
        return roles

    def _role_tests(self) -> Iterator[tuple[int, int, tuple[Conjunct, ...]]]:
        """For each bit of `RunEvents.roles`: the bit, its component, and its conditions on one event."""
        bit = 0
        plan = self._run_plan
        for component in (*plan.positives, *plan.negatives):
            yield bit, component.position, plan.roles[component.position]
            if component.kleene and not component.negated:
                yield bit + 1, component.position, plan.later_roles[component.position]
            bit += 1 if component.negated else 2

    def _satisfying(
        self,
        own: np.ndarray,
        conjuncts: tuple[Conjunct, ...],
        table: pa.Table,
        frame: EventFrame,
        decided: dict[int, np.ndarray],
    ) -> np.ndarray:
        for conjunct in conjuncts:
            number, not_null = self._test_of[id(conjunct)]
            if not_null is not None and have_no_nulls(table, not_null):
                continue
            if number not in decided:
                decided[number] = any_holds(conjunct.comparisons, frame)
            own = own & decided[number]
        return own

    # ── Partition and [attr] tests ─────────────────────────────────────────────────────────────────

    def _partition(self, table: pa.Table, ticks: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The partition of each row; -1 if a value is null. EVERY_KEY if the row's type lacks an attribute, or if the
        query has no partitions.
        """
        if not self._keyed:
            return np.full(len(rows), EVERY_KEY, np.int32)
        if self._partition_columns is not None:
            return self.keys.encode([one_array(table.column(name)) for name in self._partition_columns], rows)
        columns, lacking = [], np.zeros(len(rows), bool)
        frame = self._frame(table, ticks, rows)
        for test in self._keyed:
            column, absent = frame.tested(test)
            columns.append(column)
            lacking |= absent
        key = self.keys.encode(columns)
        # An event in no partition does not count in any; one that may fill a negative component forbids in all.
        key[lacking] = EVERY_KEY
        return key

    def _plain_partition(self) -> list[str] | None:
        """The columns whose values are the partition key as they are; None if some type stores an attribute in another
        column or form.
        """
        layout, declared = self._layout, self._query.catalog.declared or {}
        found = []
        for test in self._keyed:
            name = test.path[0]
            is_one = len(test.path) == 1 and name in layout.schema.names
            is_one = is_one and all(attribute != name for _, attribute in layout.physical)
            if not is_one or any(name not in attributes for attributes in declared.values()):
                return None
            kind = layout.schema.field(name).type
            if not (pa.types.is_int64(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                return None
            found.append(name)
        return found

    def _codes(self, frame: EventFrame) -> np.ndarray:
        codes = np.full((len(self.coded), frame.rows), -1, np.int32)
        for number, (test, coder) in enumerate(zip(self._run_plan.coded, self.coded, strict=True)):
            column, absent = frame.tested(test)
            codes[number] = np.where(absent, -1, coder.encode([column]))
        return codes

    # ── Lanes ──────────────────────────────────────────────────────────────────────────────────────

    def _run_lanes(
        self, table: pa.Table, ticks: np.ndarray, rows: np.ndarray, roles: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        lowered = self._lowered
        ints = np.zeros((lowered.int_rows, len(rows)), np.int64)
        floats = np.zeros((lowered.float_rows, len(rows)), np.float64)
        flags = np.zeros((lowered.int_rows + lowered.float_rows, len(rows)), np.uint8)
        frame = self._frame(table, ticks, rows)
        for spec, row, floating in lane_specs(lowered):
            plain = self._plain_lane(table, spec, rows)
            if plain is not None:
                (floats if floating else ints)[row] = plain
                continue
            values, flag = self._lane(frame, spec)
            (floats if floating else ints)[row] = values
            if flag is not None:
                flags[row + lowered.int_rows if floating else row] = flag
        return ints, floats, flags

    def null_lanes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The lanes of the null event, in which every attribute is null. An aggregate over no value refers to this
        event.
        """
        lowered = self._lowered
        ints = np.zeros(lowered.int_rows, np.int64)
        floats = np.zeros(lowered.float_rows, np.float64)
        flags = np.full(lowered.int_rows + lowered.float_rows, LaneFlag.NULL, np.uint8)
        for spec, row, floating in lane_specs(lowered):
            if spec.domain in (Domain.CODE, Domain.RANK):
                continue
            if spec.domain is Domain.TRUTH:
                flags[row] = LaneFlag.VALUE
                ints[row] = holds(spec.expression, _NullFrame())[0]
                continue
            value = evaluate(spec.expression, _NullFrame())[0].as_py()
            if value is None:
                continue
            flags[row + lowered.int_rows if floating else row] = LaneFlag.VALUE
            if floating:
                floats[row] = value
            else:
                ints[row] = int(value.scaleb(spec.expression.type.scale)) if _is_decimal(spec) else int(value)
        return ints, floats, flags


class _NullFrame:
    """One event without any value."""

    rows = 1

    def attribute(self, reference: Attribute) -> Column:
        return pa.nulls(1, engine_type(reference.type))

    def intrinsic(self, reference: Intrinsic) -> Column:
        return pa.nulls(1, engine_type(reference.type))

    def lacks(self, reference: Attribute) -> np.ndarray | None:
        return None


def _is_decimal(spec: LaneSpec) -> bool:
    return spec.expression.type.kind is Kind.DECIMAL
