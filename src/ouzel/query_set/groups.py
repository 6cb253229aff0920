"""Queries of one shape: their automata differ only in constants, with one row for each query. Also decides which
patterns can be merged, by writing short sequences as branches of the algebra.

A template with a table of parameters is one group. If a query is added by itself, parameters replace its constants, and
it joins the group of its shape.

Under skip_till_any_match, a sequence of two events pairs each first event with each later one, so an instance stays
where it waits. In longer sequences every partial match is an instance. So each of their events must be equal, in some
attribute, to an earlier event or to a constant. Other features of patterns cannot be merged, because they depend on the
events in between.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from ouzel.algebra.binding import AlgebraQuery, bind
from ouzel.algebra.model import (
    CURRENT,
    PARAMETERS,
    BoundStream,
    Branch,
    Iteration,
    Operand,
    Operator,
    Source,
    Step,
    duration,
    moved,
)
from ouzel.algebra.streams import Base, Stream, decode, encode
from ouzel.bind.model import (
    BOOL,
    INT,
    Attribute,
    Bound,
    BoundQuery,
    Catalog,
    Constant,
    EventField,
    Intrinsic,
    Operation,
    TimeWindow,
    parts,
)
from ouzel.bind.model import decode as decode_bound
from ouzel.bind.model import encode as encode_bound
from ouzel.bind.schema import type_of_arrow
from ouzel.bind.script import INPUT
from ouzel.engines.automata.columns import PatternColumns
from ouzel.engines.automata.constants import ConstantKey, Constants, ParameterFrame, PatternWriter, StoredConstants
from ouzel.engines.automata.plan import Form, PlannedBranch, PlannedConjunct, Planner
from ouzel.errors import InputError
from ouzel.lang.syntax import OutputForm, Strategy
from ouzel.plan.expressions import components_of, walk
from ouzel.query_set.registry import stored_id
from ouzel.runtime.codes import Coder
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.values import empty_table

# Partial matches of longer patterns are too many.
STEPS_MAX = 8


def merged_stream(query: BoundQuery, time: str) -> BoundStream | None:
    """The query as a stream with one branch; None if it cannot be merged. `time` is the time column."""
    components = query.components
    if query.readings:
        return None
    if len(components) > STEPS_MAX or any(c.kleene or c.negated or len(c.types or ("",)) > 1 for c in components):
        return None
    if len(components) > 1 and query.strategy is not Strategy.SKIP_TILL_ANY_MATCH:
        return None
    if query.aggregates or query.returns is None or query.threshold is not None:
        return None
    if query.into is not None or set(query.sources) != {INPUT}:
        return None
    window = query.window
    if query.output.form is not OutputForm.ALL or not isinstance(window, TimeWindow) or (window.ticks or 0) <= 0:
        return None
    assert window.ticks is not None
    conditions = [_either(conjunct.comparisons) for conjunct in query.conjuncts]
    columns = {column.name: _with_column_of_times(column.expression, time) for column in query.returns}
    if not all(_is_plain(one) for one in (*conditions, *columns.values())):
        return None
    tests = list(query.equivalences)
    if any(test.lacked_by for test in tests):
        return None
    bases = [Base(None if c.types is None else c.types[0]) for c in components]
    sources = [Source(base) for base in bases]
    for test in tests:
        attributes = [Attribute(c.position, test.path, type=test.type) for c in components]
        if test.value is not None:
            conditions += [Operation("=", (attribute, test.value), type=BOOL) for attribute in attributes]
        elif len(attributes) == 1:
            # An event with a null value satisfies no equivalence test, even alone.
            null = Operation("is_null", (attributes[0],), type=BOOL)
            conditions.append(Operation("not", (null,), type=BOOL))
        else:
            # Each with the one before it, because instances are found by the value of the newest event.
            pairs = zip(attributes[1:], attributes, strict=False)
            conditions += [Operation("=", pair, type=BOOL) for pair in pairs]
    by_step: list[list[Bound]] = [[] for _ in components]
    for one in conditions:
        newest = max(components_of(one), default=0)
        by_step[newest].append(moved(one, newest, CURRENT))
    first = tuple(by_step[0])
    steps = []
    for source, later in zip(sources[1:], by_step[1:], strict=True):
        finding = _finding(later)
        if not finding and len(components) > 2:
            return None
        steps.append(_step(source, finding, later, window.ticks, query))
    branch = Branch(Operand(sources[0], first), tuple(steps), columns)
    return BoundStream(bases[0], (branch,), {name: value.type for name, value in columns.items()})


def _finding(conditions: list[Bound]) -> list[Bound]:
    """The equalities by which the instances of a step are found: with an attribute of an earlier event, or with a
    constant.
    """
    found = [one for one in conditions if _is_equality(one, with_instance=True)]
    return found or [one for one in conditions if _is_equality(one, with_instance=False)]


def _step(source: Source, finding: list[Bound], conditions: list[Bound], ticks: int, query: BoundQuery) -> Step:
    """The step for a later event. Its instances are found by equalities. All other tests are on the edges, so that
    queries share a wait even if they differ in these tests.
    """
    rest = tuple(one for one in conditions if one not in finding)
    within = Operation("<=", (duration(0, CURRENT, query.catalog.time.type), Constant(ticks, type=INT)), type=BOOL)
    return Step(Operator.EACH, Operand(source), (Iteration((*finding, within), results=rest),))


def _is_equality(condition: Bound, *, with_instance: bool) -> bool:
    if not isinstance(condition, Operation) or condition.operator != "=":
        return False
    sides = [components_of(side) for side in condition.operands]
    if frozenset({CURRENT}) not in sides:
        return False
    (other,) = [side for side in sides if side != {CURRENT}] or [frozenset({CURRENT})]
    return (len(other) == 1 and min(other) >= 0) if with_instance else not other


def _either(comparisons: Iterable[Bound]) -> Bound:
    given = tuple(comparisons)
    return given[0] if len(given) == 1 else Operation("or", given, type=BOOL)


def _with_column_of_times(expression: Bound, time: str) -> Bound:
    """An expression of RETURN in which the time column of the input replaces an event's own time."""
    if isinstance(expression, Intrinsic) and expression.field is not EventField.TYPE:
        return Attribute(expression.component, (time,), type=expression.type, span=expression.span)
    return expression


def _is_plain(expression: Bound) -> bool:
    """Whether an expression reads only times of events, and attributes that all events of its components have."""
    for part in walk(expression):
        if isinstance(part, Attribute):
            if part.present_in is not None:
                return False
        elif isinstance(part, Intrinsic):
            if part.field is EventField.TYPE:
                return False
        elif not isinstance(part, Operation | Constant):
            return False
    return True


Known = dict[ConstantKey, tuple[np.ndarray, np.ndarray]]
# An expression, or a pattern query that is translated to one.
Origin: TypeAlias = AlgebraQuery | BoundQuery


Planned = tuple[PlannedBranch, ...]


@dataclass
class Group:
    """Queries of one shape."""

    # The source of the shape: the template, or its first query.
    origin: Origin
    stream: BoundStream
    planned: Planned
    parameters: tuple[Attribute, ...]  # those that programs read
    known: Known
    parameter_columns: tuple[np.ndarray, np.ndarray, np.ndarray]
    table: pa.Table  # the parameters that results show
    ids: np.ndarray
    owners: np.ndarray | None
    registered: np.ndarray  # the tick after which each query sees events
    # The columns of a template's parameters.
    parameter_schema: pa.Schema | None = None
    alive: np.ndarray = field(init=False)
    suspended: np.ndarray = field(init=False)  # those that passed a limit
    # The rows of ids, for queries that were added one by one; and the order of a template's ids, once it is needed.
    _rows: dict[Any, int] = field(init=False, default_factory=dict)
    _order: np.ndarray | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.alive = np.ones(len(self.ids), bool)
        self.suspended = np.zeros(len(self.ids), bool)
        if self.ids.dtype == object:
            self._rows = {id: row for row, id in enumerate(self.ids)}

    @property
    def name(self) -> str:
        return self.origin.name

    @property
    def is_template(self) -> bool:
        return self.parameter_schema is not None

    def append(self, identity: Any, owner: Any, registered: int, values: Known) -> None:
        """Add a query of this shape."""
        assert self.owners is not None
        for key, (more, valid) in values.items():
            known, known_valid = self.known[key]
            self.known[key] = (_appended(known, more[0]), _appended(known_valid, valid[0]))
        self._rows[identity] = len(self.ids)
        self.ids = _appended(self.ids, identity)
        self.owners = _appended(self.owners, owner)
        self.registered = _appended(self.registered, registered)
        self.alive = _appended(self.alive, True)
        self.suspended = _appended(self.suspended, False)

    def running(self, rows: Any = slice(None)) -> np.ndarray:
        """Which queries are neither removed nor suspended."""
        running: np.ndarray = self.alive[rows] & ~self.suspended[rows]
        return running

    def row_of(self, id: Any) -> int | None:
        """The row of a query; None if it is not in this group or was removed."""
        if self.ids.dtype == object:
            row = self._rows.get(id)
        else:
            # A table of ids for 400,000 integers would take more memory than their constants.
            if self._order is None:
                self._order = np.argsort(self.ids, kind="stable")
            row = None
            if isinstance(id, int | float | np.number):
                place = int(np.searchsorted(self.ids, id, sorter=self._order))
                if place < len(self.ids) and self.ids[self._order[place]] == id:
                    row = int(self._order[place])
        return None if row is None or not self.alive[row] else row

    def compact(self) -> np.ndarray:
        """Free the rows of removed queries. Returns the new row of each remaining query."""
        kept = np.flatnonzero(self.alive)
        place = np.cumsum(self.alive) - 1
        self.known = {key: _compact((values[kept], valid[kept])) for key, (values, valid) in self.known.items()}
        ints, floats, nulls = (array[kept] if array.shape[1] else array for array in self.parameter_columns)
        self.parameter_columns = ints, floats, nulls
        if self.table.num_columns:
            self.table = self.table.take(pa.array(kept))
        self.owners = None if self.owners is None else self.owners[kept]
        self.ids, self.registered, suspended = self.ids[kept], self.registered[kept], self.suspended[kept]
        self._rows, self._order = {}, None
        self.__post_init__()
        self.suspended = suspended
        return place

    def patterns(self, planner: Planner, rows: np.ndarray) -> list[PatternColumns]:
        """The automata of some of the queries."""
        writer = PatternWriter(planner.lanes, StoredConstants(self.known, self.parameter_columns, rows, len(self.ids)))
        return [writer.pattern(branch, self.parameters) for branch in self.planned]

    @property
    def bytes(self) -> int:
        arrays = [self.ids, self.registered, self.alive, *self.parameter_columns]
        arrays += [] if self.owners is None else [self.owners]
        arrays += [array for pair in self.known.values() for array in pair]
        return sum(array.nbytes for array in arrays)

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store the live queries; `GroupMaker.load` takes what this returns. Automata are not stored, but rebuilt."""
        rows, origin, schema = np.flatnonzero(self.alive), self.origin, self.parameter_schema
        stored: dict[str, Any] = {"name": origin.name}
        if isinstance(origin, BoundQuery):
            stored["pattern"] = encode_bound(origin)
        else:
            # JSON has no dates and decimals.
            params = writer.add_table(pa.Table.from_pylist([dict(origin.params)])) if origin.params else None
            stored |= {"expression": encode(origin.expression), "params": params}
        is_integer = self.ids.dtype.kind in "iu"
        return {
            "origin": stored,
            "parameter_schema": None if schema is None else writer.add_table(empty_table(schema)),
            "known": [[writer.add_array(array[rows]) for array in pair] for pair in self.known.values()],
            "parameter_columns": [
                writer.add_array(array[rows] if array.shape[1] else array) for array in self.parameter_columns
            ],
            "table": writer.add_table(self.table.take(pa.array(rows)) if self.table.num_columns else self.table),
            "ids": writer.add_array(self.ids[rows]) if is_integer else [stored_id(one) for one in self.ids[rows]],
            "owners": None if self.owners is None else [stored_id(one) for one in self.owners[rows]],
            "registered": writer.add_array(self.registered[rows]),
            "suspended": writer.add_array(self.suspended[rows]),
        }


def is_indexable(streams: Sequence[BoundStream]) -> bool:
    """Whether an expression is linear-plus over the input, so that it can be merged with others."""
    sources = [s for b in streams[-1].branches for s in (b.start.source, *(h.operand.source for h in b.steps))]
    return len(streams) == 1 and all(s.base is not None and s.base.start is None for s in sources)


@dataclass
class GroupMaker:
    """Binds and plans expressions over one input. They all share lanes, programs and codes."""

    catalog: Catalog
    time: str
    type: str | None
    planner: Planner
    texts: Coder
    type_codes: Coder
    shapes: dict[Hashable, Group] = field(default_factory=dict)

    def template(
        self,
        name: str,
        expression: Stream,
        table: pa.Table,
        ids: Sequence[Any],
        owners: Sequence[Any] | None,
        registered: int,
    ) -> Group | None:
        """The group with all queries of a template; None if they cannot be merged with others."""
        origin = AlgebraQuery(name, expression)
        made = self._template(origin, table, len(ids))
        if made is None:
            return None
        stream, planned, parameters, constants = made
        shown = {
            part.path[0]
            for branch in stream.branches
            for value in branch.columns.values()
            for part in parts(value)
            if isinstance(part, Attribute) and part.component == PARAMETERS
        }
        return Group(
            origin,
            stream,
            planned,
            parameters,
            {key: _compact(pair) for key, pair in constants.known.items()},
            constants.parameters(parameters),
            table.select([column for column in table.column_names if column in shown]),
            _identities(ids),
            None if owners is None else objects(owners),
            np.full(len(ids), registered, np.int64),
            table.schema,
        )

    def _template(
        self, origin: AlgebraQuery, table: pa.Table, count: int
    ) -> tuple[BoundStream, Planned, tuple[Attribute, ...], Constants] | None:
        """For a template: its automata, the parameters that programs read, and the constants of its queries. None if it
        cannot be merged with others.
        """
        types = {column.name: type_of_arrow(column.type) for column in table.schema}
        bound = bind(
            origin.expression, self.catalog, name=origin.name, time=self.time, type=self.type, parameter_types=types
        )
        if not is_indexable(bound.streams):
            return None
        stream = bound.streams[-1]
        planned = self._planned(stream)
        parameters = tuple(Attribute(PARAMETERS, (n,), type=types[n]) for n in self.planner.parameters)
        constants = Constants(ParameterFrame(table, count), self.texts, self.type_codes)
        for branch in planned:
            constants.ask(branch)
        return stream, planned, parameters, constants

    def single(self, identity: Any, origin: Origin, owner: Any, registered: int) -> tuple[Group, bool] | None:
        """(group, is new): the group of a query's shape, with the query added. None if it cannot be merged with
        others.
        """
        read = self._shape(origin)
        if read is None:
            return None
        stream, lifted, constants, shape = read
        frame = ParameterFrame(pa.table({}), 1)
        computed = Constants(frame, self.texts, self.type_codes)
        values = {
            (form, placeholder): computed.values(form, value) if form is not None else _pair(computed.truth(value))
            for (form, placeholder), value in constants.items()
        }
        if shape in self.shapes:
            self.shapes[shape].append(identity, owner, registered, values)
            return self.shapes[shape], False
        ids, owners, ticks = objects([identity]), objects([owner]), np.array([registered], np.int64)
        group = Group(origin, stream, lifted, (), values, computed.parameters(()), pa.table({}), ids, owners, ticks)
        self.shapes[shape] = group
        return group, True

    def discard(self, group: Group) -> None:
        """Drop a group that was refused, so that no query joins it."""
        self.shapes = {shape: one for shape, one in self.shapes.items() if one is not group}

    def _shape(self, origin: Origin) -> tuple[BoundStream, Planned, dict[ConstantKey, Bound], Hashable] | None:
        """A query with parameters in place of constants; the constants; and a key that is equal for queries that differ
        only in constants.
        """
        if isinstance(origin, BoundQuery):
            found = merged_stream(origin, self.time)
            if found is None:
                return None
            stream = found
        else:
            streams = origin.bind(self.catalog, time=self.time, type=self.type).streams
            if not is_indexable(streams):
                return None
            stream = streams[-1]
        lifted, constants = _lifted(self._planned(stream))
        shape = (
            tuple((branch.nodes, branch.edges) for branch in lifted),
            tuple(tuple(branch.columns.items()) for branch in stream.branches),
        )
        return stream, lifted, constants, shape

    def _planned(self, stream: BoundStream) -> Planned:
        self.planner.parameters = []
        return tuple(self.planner.branch(branch) for branch in stream.branches)

    def load(self, reader: Reader, head: Mapping[str, Any]) -> Group:
        """The group that `Group.dump` has stored. Codes of texts and types must be the same as when it was stored."""
        origin, schema = _loaded_origin(reader, head["origin"]), None
        parameters: tuple[Attribute, ...] = ()
        shape: Hashable = None
        if head["parameter_schema"] is None:
            read = self._shape(origin)
            assert read is not None, "only what can be merged is stored as a group"
            stream, planned, lifted, shape = read
            keys = list(lifted)
        else:
            assert isinstance(origin, AlgebraQuery), "templates are expressions"
            schema = reader.table(head["parameter_schema"]).schema
            # The set of constants does not depend on their values.
            nothing = pa.table([pa.nulls(1, column.type) for column in schema], schema=schema)
            made = self._template(origin, nothing, 1)
            assert made is not None, "only what can be merged is stored as a group"
            stream, planned, parameters, constants = made
            keys = list(constants.known)
        known = [(reader.array(values), reader.array(valid)) for values, valid in head["known"]]
        ids, owners = head["ids"], head["owners"]
        ints, floats, nulls = reader.arrays(head["parameter_columns"])
        group = Group(
            origin,
            stream,
            planned,
            parameters,
            dict(zip(keys, known, strict=True)),
            (ints, floats, nulls),
            reader.table(head["table"]),
            objects(ids) if isinstance(ids, list) else reader.array(ids),
            None if owners is None else objects(owners),
            reader.array(head["registered"]),
            schema,
        )
        if "suspended" in head:
            group.suspended = reader.array(head["suspended"]).copy()
        if shape is not None:
            self.shapes[shape] = group
        return group


def _loaded_origin(reader: Reader, head: Mapping[str, Any]) -> Origin:
    if "pattern" in head:
        found = decode_bound(head["pattern"])
        assert isinstance(found, BoundQuery)
        return found
    values = {} if head["params"] is None else reader.table(head["params"]).to_pylist()[0]
    return AlgebraQuery(head["name"], decode(head["expression"]), values)


def _compact(pair: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The same values in less memory: one byte for the whole mask if nothing is null, and one value if a constant is
    the same for all queries.
    """
    values, valid = pair
    if len(valid) and valid.all():
        valid = np.broadcast_to(np.ones(1, bool), valid.shape)
    if len(values) > 1 and (values[:8] == values[0]).all() and (values == values[0]).all():
        values = np.broadcast_to(values[:1].copy(), values.shape)
    return values, valid


def _appended(array: np.ndarray, value: Any) -> np.ndarray:
    """The array with one more value. If its memory has room after the array, the value is written there, so most calls
    copy nothing.

    >>> longer = _appended(np.array([1, 2]), 3)
    >>> longer.tolist(), _appended(longer, 4).base is longer.base
    ([1, 2, 3], True)
    """
    count = len(array)
    room: Any = array.base
    has_room = isinstance(room, np.ndarray) and room.dtype == array.dtype and len(room) > count
    if not has_room or array.strides != room.strides or array.ctypes.data != room.ctypes.data:
        room = np.empty(2 * count + 8, array.dtype)
        room[:count] = array
    room[count] = value
    longer: np.ndarray = room[: count + 1]
    return longer


def _pair(truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return truth, truth


def objects(values: Sequence[Any]) -> np.ndarray:
    """Values of any kind as a numpy array."""
    found = np.empty(len(values), object)
    found[:] = list(values)
    return found


def _identities(ids: Sequence[Any]) -> np.ndarray:
    """Ids as an array. Integers stay integers, which take eight bytes each."""
    array = np.asarray(ids)
    return array if array.dtype.kind in "iu" else objects(list(ids))


def _lifted(planned: Planned) -> tuple[Planned, dict[ConstantKey, Bound]]:
    """(automata with placeholders for their constants, the constants)."""
    constants: dict[ConstantKey, Bound] = {}

    def placeholder(form: Form | None, value: Bound) -> Bound:
        if form is Form.TYPE:
            constants[form, value] = value
            return value
        made = Attribute(PARAMETERS, (f"constant {len(constants)}",), type=value.type)
        constants[form, made] = value
        return made

    def conjunct(one: PlannedConjunct) -> PlannedConjunct:
        static = tuple(atom._replace(constant=placeholder(atom.lane.form, atom.constant)) for atom in one.static)
        durations = tuple(bound._replace(constant=placeholder(Form.INT, bound.constant)) for bound in one.durations)
        enabled = tuple(placeholder(None, condition) for condition in one.enabled)
        return replace(one, static=static, durations=durations, enabled=enabled)

    branches = []
    for branch in planned:
        nodes = tuple(
            replace(node, conjuncts=tuple(map(conjunct, node.conjuncts)), conditions=()) for node in branch.nodes
        )
        edges = tuple(
            replace(edge, conjuncts=tuple(map(conjunct, edge.conjuncts)), conditions=()) for edge in branch.edges
        )
        branches.append(PlannedBranch(branch.branch, nodes, edges))
    return tuple(branches), constants


def parameter_table(rows: Any, id_column: str) -> tuple[pa.Table, list[Any]]:
    """(table of parameters without its column of ids, ids)."""
    from ouzel.runtime.inputs import as_table

    table = as_table(rows)
    if not table.num_columns and not table.num_rows:
        return table, []  # a list of no rows
    if id_column not in table.column_names:
        raise InputError(
            f"the table of queries has no column '{id_column}'; the columns are "
            f"{', '.join(map(repr, table.column_names))}. Say which one holds the ids with id="
        )
    ids = table.column(id_column)
    if ids.null_count:
        raise InputError(f"the column '{id_column}' of the table of queries has a null; every query needs an id")
    if pa.types.is_nested(ids.type):
        raise InputError(
            f"the column '{id_column}' is of type {ids.type}; the id of a query must be a text or a number"
        )
    values: Any = ids.to_numpy() if pa.types.is_integer(ids.type) else ids.to_pylist()
    return table.drop_columns([id_column]), values
