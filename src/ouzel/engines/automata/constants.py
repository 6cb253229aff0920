"""Turns planned automata into columns for the kernel: the constants of each query of a template, as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.model import Attribute, Bound, Constant, Kind
from ouzel.engines.automata.columns import (
    ConjunctColumns,
    EdgeColumns,
    Key,
    NodeColumns,
    PatternColumns,
    RangeAtom,
    ordered,
)
from ouzel.engines.automata.plan import (
    DurationBound,
    EventLanes,
    Form,
    PlannedBranch,
    PlannedConjunct,
    StaticAtom,
    range_of,
)
from ouzel.kernels.arrays import INT64_MAX, INT64_MIN
from ouzel.runtime.codes import Coder
from ouzel.runtime.expressions import evaluate
from ouzel.runtime.values import Column, as_integers, split, to_engine, valids


class ParameterFrame:
    """A frame for expressions over parameters: a table with one query per row."""

    def __init__(self, table: pa.Table, count: int) -> None:
        self._table = table
        self.rows = count

    def attribute(self, reference: Attribute) -> Column:
        return to_engine(self._table.column(reference.path[0]), reference.type)

    def intrinsic(self, reference: object) -> Column:
        raise AssertionError("a parameter has no time of its own")

    def lacks(self, reference: Attribute) -> None:
        return None


# What a query provides: a constant in the form of a lane, or whether a condition on its parameters holds.
ConstantKey = tuple[Form | None, Bound]


class Constants:
    """The constants of each query of a template, as numbers, computed from its parameters on first use."""

    def __init__(self, frame: ParameterFrame, texts: Coder, type_codes: Coder) -> None:
        self._frame = frame
        self._texts = texts
        self._type_codes = type_codes
        self.known: dict[ConstantKey, tuple[np.ndarray, np.ndarray]] = {}
        self.count = frame.rows

    def ask(self, planned: PlannedBranch) -> None:
        """Compute all constants that the automaton of a branch needs."""
        predicates = [*(node.conjuncts for node in planned.nodes[1:-1]), *(edge.conjuncts for edge in planned.edges)]
        for conjunct in (one for conjuncts in predicates for one in conjuncts):
            for condition in conjunct.enabled:
                self.truth(condition)
            for bound in conjunct.durations:
                self.values(Form.INT, bound.constant)
            for atom in conjunct.static:
                self.values(atom.lane.form, atom.constant)
                if atom.unless is not None:
                    self.truth(atom.unless)

    def values(self, form: Form, constant: Bound) -> tuple[np.ndarray, np.ndarray]:
        """(values, valid): a constant of each query, in the form of the lane that it is compared with."""
        if (form, constant) not in self.known:
            self.known[form, constant] = self._computed(form, constant)
        return self.known[form, constant]

    def truth(self, condition: Bound) -> np.ndarray:
        """For each query, whether a condition on its parameters holds."""
        if (None, condition) not in self.known:
            column = evaluate(condition, self._frame)
            known = pc.fill_null(column, False) if column.null_count else column
            holds = np.asarray(known.to_numpy(zero_copy_only=False), dtype=bool)
            self.known[None, condition] = (holds, holds)
        return self.known[None, condition][0]

    def parameters(self, wanted: Sequence[Attribute]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(integers, floats, is null): the parameters that programs read, by query."""
        shape = (self.count if wanted else 0, len(wanted))
        ints, floats, nulls = np.zeros(shape, np.int64), np.zeros(shape, np.float64), np.zeros(shape, np.uint8)
        for k, parameter in enumerate(wanted):
            column = evaluate(parameter, self._frame)
            if parameter.type.kind is Kind.FLOAT:
                floats[:, k], valid = split(column, np.float64)
            else:
                ints[:, k], valid = as_integers(column)
            nulls[:, k] = ~valid
        return ints, floats, nulls

    def _computed(self, form: Form, constant: Bound) -> tuple[np.ndarray, np.ndarray]:
        if form is Form.TYPE:
            assert isinstance(constant, Constant)
            code = int(self._type_codes.encode([pa.array([constant.value], pa.large_string())])[0])
            return np.full(self.count, code, np.int64), np.ones(self.count, bool)
        column = evaluate(constant, self._frame)
        if form is Form.CODE:
            codes = self._texts.encode([column]).astype(np.int64)
            return codes, codes >= 0
        if form is Form.ORDERED:
            values, valid = _raw(column) if column.type == pa.float64() else split(column, np.float64)
            return ordered(values), valid
        return _raw(column) if column.type == pa.int64() else as_integers(column)


def _raw(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """The 64-bit values of a column, and where it is not null. The value at a null is undefined."""
    values = np.frombuffer(column.buffers()[1], np.int64 if column.type == pa.int64() else np.float64)
    return values[column.offset : column.offset + len(column)], valids(column)


class StoredConstants:
    """Constants that were computed before, for some of the queries."""

    def __init__(
        self,
        known: Mapping[ConstantKey, tuple[np.ndarray, np.ndarray]],
        parameters: tuple[np.ndarray, np.ndarray, np.ndarray],
        rows: np.ndarray,
        total: int,
    ) -> None:
        self._known = known
        self._parameters = parameters
        self.count = len(rows)
        # All of them, in order: no copy is needed.
        self._rows: Any = slice(None) if len(rows) == total and (np.diff(rows) == 1).all() else rows

    def values(self, form: Form, constant: Bound) -> tuple[np.ndarray, np.ndarray]:
        values, valid = self._known[form, constant]
        return values[self._rows], valid[self._rows]

    def truth(self, condition: Bound) -> np.ndarray:
        holds: np.ndarray = self._known[None, condition][0][self._rows]
        return holds

    def parameters(self, wanted: Sequence[Attribute]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ints, floats, nulls = self._parameters
        return (ints[self._rows], floats[self._rows], nulls[self._rows]) if wanted else (ints, floats, nulls)


class PatternWriter:
    """Writes the automata of one template, for all its queries."""

    def __init__(self, lanes: EventLanes, constants: Constants | StoredConstants) -> None:
        self._lanes = lanes
        self._constants = constants
        self._presence: dict[Bound, np.ndarray] = {}

    def pattern(self, planned: PlannedBranch, parameters: Sequence[Attribute]) -> PatternColumns:
        """The automata of one branch. `parameters` are those that programs read, in their order."""
        nodes = tuple(
            NodeColumns(
                self._conjuncts(node.conjuncts) if 0 < place < len(planned.nodes) - 1 else (),
                node.slot,
                None if node.key is None else Key(*node.key),
                node.stays,
            )
            for place, node in enumerate(planned.nodes)
        )
        edges = tuple(
            EdgeColumns(edge.source, edge.target, self._conjuncts(edge.conjuncts), edge.registers)
            for edge in planned.edges
        )
        return PatternColumns(self._constants.count, nodes, edges, *self._constants.parameters(parameters))

    def _conjuncts(self, conjuncts: Iterable[PlannedConjunct]) -> tuple[ConjunctColumns, ...]:
        return tuple(self._conjunct(one) for one in conjuncts)

    def _conjunct(self, planned: PlannedConjunct) -> ConjunctColumns:
        enabled = np.ones(self._constants.count, bool)
        for condition in planned.enabled:
            enabled &= self._constants.truth(condition)
        atoms: list[RangeAtom] = []
        for atom in planned.static:
            found, valid = self._atom(atom)
            enabled &= valid if found.present is None else valid | ~found.present
            atoms = _joined(atoms, found)
        if not any(atom.equality for atom in atoms):
            # Better than no key at all.
            atoms = [a._replace(equality=a.low is a.high and not a.negated) for a in atoms]
        least, greatest = self._durations(planned.durations, enabled)
        return ConjunctColumns(tuple(atoms), planned.programs, least, greatest, None if enabled.all() else enabled)

    def _atom(self, atom: StaticAtom) -> tuple[RangeAtom, np.ndarray]:
        values, valid = self._constants.values(atom.lane.form, atom.constant)
        low, high, negated = range_of(atom.operator, values)
        present = None if atom.unless is None else self._present(atom.unless)
        equality = atom.operator == "=" and not atom.weak
        return RangeAtom(self._lanes.number(atom.lane), negated, low, high, equality, present), valid

    def _present(self, unless: Bound) -> np.ndarray:
        """For each query, whether it makes a test. Equal conditions share one array."""
        if unless not in self._presence:
            self._presence[unless] = ~self._constants.truth(unless)
        return self._presence[unless]

    def _durations(
        self, bounds: Iterable[DurationBound], enabled: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        least, greatest = None, None
        for bound in bounds:
            values, valid = self._constants.values(Form.INT, bound.constant)
            enabled &= valid
            low, high, _ = range_of(bound.operator, values)
            least = low if least is None else np.maximum(least, low)
            greatest = high if greatest is None else np.minimum(greatest, high)
        if least is None or greatest is None:
            return None, None
        return (
            None if (least == INT64_MIN).all() else least,
            None if (greatest == INT64_MAX).all() else greatest,
        )


def _joined(atoms: list[RangeAtom], more: RangeAtom) -> list[RangeAtom]:
    """Atoms with one more. If the last one has the same lane as another atom, and neither is an equality, their ranges
    are intersected.
    """
    for k, atom in enumerate(atoms):
        alike = atom.lane == more.lane and not (atom.negated or more.negated or atom.equality or more.equality)
        if alike and atom.present is more.present:
            low = _narrower(np.maximum, INT64_MIN, atom.low, more.low)
            high = _narrower(np.minimum, INT64_MAX, atom.high, more.high)
            return [*atoms[:k], atom._replace(low=low, high=high), *atoms[k + 1 :]]
    return [*atoms, more]


def _narrower(narrow: np.ufunc, end: int, bounds: np.ndarray, others: np.ndarray) -> np.ndarray:
    """For each query, the narrower of two bounds. Often one of them is unbounded for all queries."""
    for known, other in ((bounds, others), (others, bounds)):
        if len(known) and known.strides == (0,) and known[0] == end:
            return other
    narrowed: np.ndarray = narrow(bounds, others)
    return narrowed
