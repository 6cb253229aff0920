"""The conditions that read the match, in the form in which the search kernel tests them: predicates over lanes, rows
and registers.

Values of single rows are lanes, which are computed for all rows before the search. Aggregates, labels and the match
number are registers, which the kernel computes during the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.model import (
    BOOL,
    FLOAT,
    INT,
    Aggregation,
    Attribute,
    Bound,
    Constant,
    Intrinsic,
    Kind,
    Operation,
    replaced,
)
from ouzel.bind.row_patterns import MATCH_NUMBER, Row, Rows
from ouzel.engines.rows.frames import RowFrame, SortedRows, reads_label
from ouzel.engines.rows.plan import RowPlan
from ouzel.engines.rows.tables import Path, Reading, Total
from ouzel.kernels.events import Instances, new_instances
from ouzel.kernels.predicate_tables import Alternative, Lane, LaneFlag, Predicates, build_predicates
from ouzel.plan.expressions import walk
from ouzel.plan.lowering import Domain, Inexpressible, LaneSpec, alternative_of
from ouzel.runtime.expressions import evaluate, holds
from ouzel.runtime.values import Column, as_integers, split

_TOTALS = {
    ("sum", False): Total.SUM_INT,
    ("sum", True): Total.SUM_FLOAT,
    ("min", False): Total.LEAST_INT,
    ("min", True): Total.LEAST_FLOAT,
    ("max", False): Total.GREATEST_INT,
    ("max", True): Total.GREATEST_FLOAT,
}


@dataclass(slots=True)
class _Registers:
    """Numbers lanes and registers for lowering. A value has the same lane, whichever row it is read from."""

    plan: RowPlan
    ints: list[LaneSpec] = field(default_factory=list)
    floats: list[LaneSpec] = field(default_factory=list)
    registers: list[tuple[Bound, Domain]] = field(default_factory=list)

    def lane(self, component: int, spec: LaneSpec) -> Lane:
        rows = len(self.plan.query.rows)
        floating = spec.domain is Domain.FLOAT
        if isinstance(spec.expression, Aggregation):
            operand = spec.expression.operand
            if spec.domain is Domain.TRUTH or (operand is not None and reads_label(operand)):
                raise Inexpressible
            return Lane(rows + self._register(spec), 0, floating)
        if reads_label(spec.expression):
            if any(isinstance(part, Attribute) for part in walk(spec.expression)):
                raise Inexpressible
            return Lane(rows + self._register(spec), 0, floating)
        return Lane(component, self.value(spec), floating)

    def value(self, spec: LaneSpec) -> int:
        """The number of the lane for a value of one row."""
        of_row = replace(spec, expression=replaced(spec.expression, lambda part: replace(part, component=0)))
        known = self.floats if spec.domain is Domain.FLOAT else self.ints
        if of_row not in known:
            known.append(of_row)
        return known.index(of_row)

    def _register(self, spec: LaneSpec) -> int:
        register = (spec.expression, spec.domain)
        if register not in self.registers:
            self.registers.append(register)
        return self.registers.index(register)


@dataclass(slots=True)
class Conditions:
    """What the search kernel reads of the match, and, by variable, the conditions that only Python can test."""

    reading: Reading
    predicates: Predicates
    instances: Instances
    asked: dict[int, tuple[Bound, ...]]

    def path(self, longest: int, positions: int) -> Path:
        """Arrays for an attempt of up to `longest` rows."""
        sets, registers = self.reading.sets.shape[0], self.reading.register.size
        # Without conditions on the match, what failed once in an attempt fails again.
        plain = not self.predicates.first_alternative[-1] and not self.asked
        return Path(
            np.zeros(longest + 2, np.int64),
            np.zeros(longest + 1, np.int32),
            np.zeros((sets, longest + 1), np.int64),
            np.zeros((sets, longest + 2), np.int64),
            np.zeros((registers, longest + 2), np.int64),
            np.zeros((registers, longest + 2), np.float64),
            np.zeros((registers, longest + 2), np.int64),
            np.zeros((positions, longest + 1) if plain else (0, 0), np.int64),
        )


def enlarged_path(path: Path) -> Path:
    """The same attempt, in arrays for twice as many rows."""
    return Path(*(np.concatenate([array, np.zeros_like(array)], axis=-1) for array in path))


def build_conditions(plan: RowPlan, rows: SortedRows, window_end: np.ndarray) -> Conditions:
    """The conditions of a plan over some rows."""
    query = plan.query
    registers = _Registers(plan)
    alternatives: list[list[Alternative]] = []
    conjunct_at = [0]
    asked: dict[int, tuple[Bound, ...]] = {}
    for variable in range(len(query.variables)):
        left = []
        for conjunct in plan.searched.get(variable, ()):
            try:
                alternatives.append([alternative_of(conjunct, registers)])
            except Inexpressible:
                left.append(conjunct)
        if left:
            asked[variable] = tuple(left)
        conjunct_at.append(len(alternatives))
    sets: dict[frozenset[int] | None, int] = {}

    def set_of(row: Row | Rows) -> int:
        return sets.setdefault(row.variables, len(sets))

    row_sets = [set_of(row) for row in query.rows]
    kinds, register_sets, lanes = [], [], []
    for expression, domain in registers.registers:
        kind, lane = _total(expression, domain, registers)
        kinds.append(kind)
        lanes.append(lane)
        register_sets.append(_label_row(expression) if kind is Total.LABEL else row_sets[_component(expression)])
    texts = _Texts()
    instances = _instances(registers, rows, len(kinds), texts, query.variables)
    labels = _labels(registers, query.variables, texts)
    steps = [row if isinstance(row, Row) else Row() for row in query.rows]
    reading = Reading(
        sets=np.array(
            [[chosen is None or v in chosen for v in range(len(query.variables))] for chosen in sets], bool
        ).reshape(len(sets), len(query.variables)),
        row_set=np.array(row_sets, np.int32),
        row_first=np.array([row.first for row in steps], bool),
        row_offset=np.array([row.offset for row in steps], np.int64),
        row_shift=np.array([row.shift for row in steps], np.int64),
        register=np.array(kinds, np.int32),
        register_set=np.array(register_sets, np.int32),
        register_lane=np.array(lanes, np.int32),
        label_ints=labels[0],
        label_floats=labels[1],
        label_nulls=labels[2],
        conjunct_at=np.array(conjunct_at, np.int32),
        asks=np.array([variable in asked for variable in range(len(query.variables))], bool),
        window_end=window_end,
    )
    return Conditions(reading, build_predicates(alternatives), instances, asked)


@cache
def no_conditions() -> Conditions:
    """`Conditions` of a pattern without any condition that reads the match."""
    none = np.zeros(0, np.int64)
    places, flags = none.astype(np.int32), none.astype(bool)
    ints, floats = np.zeros((0, 0), np.int64), np.zeros((0, 0))
    reading = Reading(
        np.zeros((0, 0), bool), places, flags, none, none, places, places, places, ints, floats,
        ints.astype(np.uint8), np.zeros(1, np.int32), flags, none,
    )  # fmt: skip
    return Conditions(reading, build_predicates([]), new_instances(0), {})


def _component(expression: Bound) -> int:
    assert isinstance(expression, Aggregation)
    return expression.component


def _label_row(expression: Bound) -> int:
    """The number of the row whose label an expression reads."""
    return next(part.component for part in walk(expression) if isinstance(part, Intrinsic))


def _total(expression: Bound, domain: Domain, registers: _Registers) -> tuple[Total, int]:
    """(what a register holds, the lane of the values that it aggregates)."""
    if not isinstance(expression, Aggregation):
        return Total.LABEL, 0
    if expression.function == MATCH_NUMBER:
        return Total.NUMBER, 0
    operand = expression.operand
    if operand is None:
        return Total.ROWS, 0
    if expression.function == "count":
        # Null where the operand is.
        missing = Operation("is_null", (operand,), type=BOOL)
        counted = Operation("case", (missing, Constant(None, type=INT), Constant(1, type=INT)), type=INT)
        return Total.VALUES, registers.value(LaneSpec(counted, Domain.INT))
    if expression.function == "avg":
        real = operand if operand.type.kind is Kind.FLOAT else Operation("cast", (operand,), type=FLOAT)
        return Total.MEAN, registers.value(LaneSpec(real, Domain.FLOAT))
    floating = operand.type.kind is Kind.FLOAT
    if expression.function == "sum" and operand.type.kind is Kind.DECIMAL:
        return Total.SUM_DECIMAL, registers.value(LaneSpec(operand, Domain.INT))
    return _TOTALS[expression.function, floating], registers.value(LaneSpec(operand, _own_domain(operand)))


def _own_domain(expression: Bound) -> Domain:
    if expression.type.kind is Kind.FLOAT:
        return Domain.FLOAT
    return Domain.RANK if expression.type.kind in (Kind.STRING, Kind.BINARY) else Domain.INT


class _Texts:
    """Ranks of all texts of lanes and labels, so that kernels can compare texts."""

    def __init__(self) -> None:
        self.known: pa.Array | None = None

    def learn(self, columns: Sequence[Column]) -> None:
        texts = [pc.unique(column.drop_null()).cast(pa.large_binary()) for column in columns]
        together = pc.unique(pa.concat_arrays(texts)) if texts else pa.array([], pa.large_binary())
        self.known = together.take(pc.sort_indices(together))

    def ranks(self, column: Column) -> tuple[np.ndarray, np.ndarray]:
        found = pc.index_in(column.cast(pa.large_binary()), value_set=self.known)
        return as_integers(pc.cast(found, pa.int64()))


def _instances(
    registers: _Registers, rows: SortedRows, register_count: int, texts: _Texts, variables: Sequence[str]
) -> Instances:
    """The lanes as arrays: a slot for each row, then one for the null row, then one for each register."""
    # The rows are read in place. The null row has values of its own: COALESCE(x, 0) is 0 there.
    parts = [
        (slice(0, rows.count), RowFrame(rows.count, rows, lambda component: None)),
        (slice(rows.count, rows.count + 1), RowFrame(1, rows, lambda component: np.array([-1]))),
    ]
    slots = rows.count + 1 + register_count
    columns: dict[int, list[Column]] = {}
    for number, spec in enumerate(registers.ints):
        if spec.domain in (Domain.CODE, Domain.RANK):
            columns[number] = [evaluate(spec.expression, frame) for _, frame in parts]
    learnt = [column for both in columns.values() for column in both]
    texts.learn([*learnt, pa.array(list(variables), pa.large_string())])
    int_count, float_count = max(len(registers.ints), 1), max(len(registers.floats), 1)
    ints = np.zeros((int_count, slots), np.int64)
    floats = np.zeros((float_count, slots), np.float64)
    flags = np.zeros((int_count + float_count, slots), np.uint8)
    for part, (place, frame) in enumerate(parts):
        for number, spec in enumerate(registers.ints):
            if spec.domain is Domain.TRUTH:
                ints[number, place] = holds(spec.expression, frame)
                continue
            if number in columns:
                values, valid = texts.ranks(columns[number][part])
            else:
                values, valid = as_integers(evaluate(spec.expression, frame))
            ints[number, place] = values
            flags[number, place] = np.where(valid, LaneFlag.VALUE, LaneFlag.NULL)
        for number, spec in enumerate(registers.floats):
            reals, valid = split(evaluate(spec.expression, frame), np.float64)
            floats[number, place] = reals
            flags[int_count + number, place] = np.where(valid, LaneFlag.VALUE, LaneFlag.NULL)
    empty = np.zeros(0, np.int64)
    # The registers write their flags while the kernel runs.
    flagged = np.ones(int_count + float_count, np.uint8)
    return Instances(
        empty, empty, np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.uint8), ints, floats, flags, flagged
    )


def _labels(
    registers: _Registers, variables: Sequence[str], texts: _Texts
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The values of each register of a label, for each variable, and for a row without a variable."""
    shape = (len(registers.registers), len(variables) + 1)
    ints, floats, nulls = np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape, np.uint8)
    names = pa.array([*variables, None], pa.large_string())
    none = SortedRows(pa.table({}), None, np.array([0, 0]))
    frame = RowFrame(len(variables) + 1, none, lambda component: None, lambda component: names)
    for number, (expression, domain) in enumerate(registers.registers):
        if isinstance(expression, Aggregation):
            continue
        if domain is Domain.TRUTH:
            ints[number] = holds(expression, frame)
            continue
        column = evaluate(expression, frame)
        if domain is Domain.FLOAT:
            floats[number], valid = split(column, np.float64)
        elif domain in (Domain.CODE, Domain.RANK):
            ints[number], valid = texts.ranks(column)
        else:
            ints[number], valid = as_integers(column)
        nulls[number] = ~valid
    return ints, floats, nulls
