"""A program: all that a session needs to run queries, as bytes with a checksum. Its queries may read each other's
results (INTO, FROM).

It is built once, where the queries and the schema are known, and opened where the events are. It is plain data: JSON
and an Arrow schema, no pickles.

Queries read matches as events with a duration, in one wide table. It has a column for the event type, two for start and
end in ticks, and the columns of each derived type under unique names. If the query also reads the primary stream, the
table has that stream's columns too.
"""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.algebra.binding import AlgebraQuery
from ouzel.algebra.model import BoundAlgebra
from ouzel.algebra.text import from_text
from ouzel.bind import catalog_for
from ouzel.bind.diagnostics import listed, nearest, quoted
from ouzel.bind.model import BoundQuery, Catalog, decode, encode
from ouzel.bind.row_patterns import BoundRowPattern
from ouzel.bind.schema import attributes_of, nanoseconds_of
from ouzel.bind.script import INPUT
from ouzel.errors import LOSS_MODEL, InputError, ModelWarning, argument
from ouzel.loss import LossModel
from ouzel.plan.choose import check_rules, choose, key_strategy_of, make_plan
from ouzel.plan.model import KeyStrategy, Plan, Statistics
from ouzel.prepared import Query, RowPatternQuery, bind_all
from ouzel.runtime.layout import (
    ARRIVAL,
    Layout,
    MomentScale,
    Order,
    catalog_of,
    columns_of_rows,
    layout_of_inputs,
    layout_of_table,
    needed_columns,
)
from ouzel.runtime.limits import Limits
from ouzel.sealing import PROGRAM, decoding, seal, unseal

EVENT_TYPE = "event type"
EVENT_START = "event start"
EVENT_END = "event end"


AnyQuery = BoundQuery | BoundAlgebra | BoundRowPattern
_INPUT_ALONE = (INPUT,)


def reads_input(query: AnyQuery) -> bool:
    """Whether a query reads the primary stream."""
    return not query.sources or INPUT in query.sources


def is_composed(query: AnyQuery) -> bool:
    """Whether a query reads the results of other queries."""
    # Every push asks this, and most queries read the input alone.
    return query.sources not in ((), _INPUT_ALONE) and any(source != INPUT for source in query.sources)


def layouts(queries: Sequence[AnyQuery], primary: Layout) -> dict[str, Layout]:
    """The layout of the events that each query reads, in an order in which queries come after those that they read."""
    found: dict[str, Layout] = {}
    producers = {query.into: query for query in queries if isinstance(query, BoundQuery) and query.into}
    for query in queries:
        if not isinstance(query, BoundQuery) or not is_composed(query):
            found[query.name] = primary
            continue
        feeding = [producers[source] for source in query.sources if source != INPUT]
        found[query.name] = _composed_layout(query, feeding, found, primary)
    return found


def _composed_layout(
    query: BoundQuery, feeding: Sequence[BoundQuery], known: Mapping[str, Layout], primary: Layout
) -> Layout:
    time = primary.schema.field(primary.time).type
    derived = {producer.name: choose(producer).derived_schema(producer, known[producer.name]) for producer in feeding}
    # A match that ends with its window may need a finer unit than the input.
    finer = [schema.field("end").type for schema in derived.values() if schema.field("end").type != time]
    fields = {
        EVENT_TYPE: pa.field(EVENT_TYPE, pa.string()),
        EVENT_START: pa.field(EVENT_START, pa.int64()),
        EVENT_END: pa.field(EVENT_END, finer[0] if finer else time),
    }
    physical = dict(primary.physical) if reads_input(query) else {}
    if reads_input(query):
        fields |= {column.name: column for column in primary.schema}
    for producer in feeding:
        for column in derived[producer.name]:
            if column.name not in ("start", "end"):
                wide = f"{column.name} of {producer.result_type}"
                fields[wide] = pa.field(wide, column.type)
                physical[(producer.result_type, column.name)] = wide
    return Layout(
        pa.schema(list(fields.values())),
        EVENT_END,
        EVENT_TYPE,
        physical=physical,
        start=EVENT_START,
        scale=primary.scale,
    )


def widen_input(table: pa.Table, ticks: np.ndarray, primary: Layout, layout: Layout) -> pa.Table:
    """Events of the primary stream in the layout of a query that also reads results of other queries."""
    if primary.type is None:
        types: pa.Array | pa.ChunkedArray = pa.repeat(pa.scalar(primary.only_type), table.num_rows)
    else:
        types = pc.cast(table.column(primary.type), pa.string())
    derived = {event_type for event_type, _ in layout.physical} - {event_type for event_type, _ in primary.physical}
    shared = pc.unique(types.filter(pc.is_in(types, value_set=pa.array(sorted(derived), pa.string()))))
    if len(shared):
        raise InputError(
            f"the input has events of type '{shared[0]}', and so has another stream that a query reads; "
            "give those another name with RETURN Name(…)"
        )
    return _filled(
        layout,
        table.num_rows,
        {
            **{name: table.column(name) for name in table.column_names},
            EVENT_TYPE: types,
            EVENT_START: pa.array(ticks),
            EVENT_END: table.column(primary.time),
        },
    )


def widen_matches(matches: pa.Table, starts: np.ndarray, producer: BoundQuery, layout: Layout) -> pa.Table:
    """The rows of a query's answer in the layout of a query that reads them."""
    name = producer.result_type
    columns = {
        layout.column(name, column): matches.column(column)
        for column in matches.column_names
        if (name, column) in layout.physical
    }
    return _filled(
        layout,
        matches.num_rows,
        {
            **columns,
            EVENT_TYPE: pa.repeat(pa.scalar(name), matches.num_rows),
            EVENT_START: pa.array(starts, pa.int64()),
            EVENT_END: matches.column("end"),
        },
    )


def _filled(layout: Layout, count: int, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """A wide table in which columns that are not given are null."""
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in layout.schema]
    place = layout.schema.names.index(EVENT_END)
    arrays[place] = pc.cast(arrays[place], layout.schema.field(EVENT_END).type)
    return pa.table(arrays, schema=layout.schema)


@dataclass(frozen=True, slots=True)
class Program:
    """Bound queries, the layout of their events, and the options with which they run."""

    queries: tuple[BoundQuery, ...]
    layout: Layout
    limits: Limits = field(default_factory=Limits)
    rules_off: tuple[str, ...] = ()
    statistics: Statistics = field(default_factory=Statistics)
    # Expressions of the algebra, in addition to the queries.
    algebra: tuple[BoundAlgebra, ...] = ()
    # The loss model, for queries with THRESHOLD.
    model: LossModel | None = None
    # Row patterns, in addition to the queries.
    row_patterns: tuple[BoundRowPattern, ...] = ()
    # Only a part of the stream is seen, and aggregates emit partial results, which are merged elsewhere.
    partial: bool = False
    _plans: dict[str, Plan] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def members(self) -> tuple[BoundQuery | BoundAlgebra | BoundRowPattern, ...]:
        """All queries, then all expressions of the algebra, then all row patterns."""
        return (*self.queries, *self.algebra, *self.row_patterns)

    def of(self, names: Iterable[str]) -> Program:
        """A program with only these queries and expressions."""
        kept = set(names)
        return replace(
            self,
            queries=tuple(one for one in self.queries if one.name in kept),
            algebra=tuple(one for one in self.algebra if one.name in kept),
            row_patterns=tuple(one for one in self.row_patterns if one.name in kept),
        )

    def joined(self, others: Sequence[Program]) -> Program:
        """A program that also has the queries and expressions of others, over the same input."""
        programs = (self, *others)
        return replace(
            self,
            queries=tuple(one for program in programs for one in program.queries),
            algebra=tuple(one for program in programs for one in program.algebra),
            row_patterns=tuple(one for program in programs for one in program.row_patterns),
        )

    @property
    def catalog(self) -> Catalog:
        """The catalog that the binder used."""
        return self.members[0].catalog

    def plans(self) -> dict[str, Plan]:
        """The plan of each query and expression, by name. Plans are made once, and not stored with the program:
        planning takes half the time of decoding a bound query, and so checkpoints do not depend on the form of plans.
        """
        if not self._plans:
            for one in self.members:
                self._plans[one.name] = make_plan(one, self.statistics, off=self.rules_off, model=self.model)
        return dict(self._plans)


def make_program(
    queries: Mapping[str, Any],
    schema: pa.Schema | Mapping[str, pa.Schema],
    *,
    time: str,
    type: str | None,
    order: Collection[str] = (),
    time_unit: str | None = None,
    limits: Limits | None = None,
    rules_off: Collection[str] = (),
    statistics: Statistics | None = None,
    model: LossModel | None = None,
    hints: Mapping[str, str] | None = None,
    streaming: bool = False,
    warn_of_names: bool = True,
) -> Program:
    """Bind queries to an input of one schema, or of one schema for each event type.

    `warn_of_names`: warn of names in the model that no component of these queries has.
    """
    if not queries:
        raise InputError("there is no query to run; give at least one")
    check_rules(rules_off)
    statistics = replace(statistics or Statistics(), key_strategy=key_strategy_of(hints))
    order = check_columns(time, type, order, time_unit)
    patterns = [query for query in queries.values() if isinstance(query, RowPatternQuery)]
    if isinstance(schema, pa.Schema):
        schemas = None
        if len(patterns) == len(queries) and type not in schema.names:
            # Row patterns know no event types.
            type = None
        only_type = _only_type(queries) if type is None else None
        layout = layout_of_table(schema, time=time, type=type, only_type=only_type, order=order)
    else:
        schemas = schema
        if patterns:
            raise InputError("MATCH_RECOGNIZE reads one table, and the input has one for each event type; combine them")
        layout = layout_of_inputs(schemas, time=time, order=order)

    def catalog(query: Query) -> Catalog:
        return catalog_of(layout, schemas=schemas, declared=query.types, time_unit=time_unit)

    algebra = tuple(
        query.bind(catalog_of(layout, schemas=schemas, time_unit=time_unit), time=time, type=layout.type)
        for query in queries.values()
        if isinstance(query, AlgebraQuery)
    )
    bound = bind_all(queries, catalog, streaming=streaming)
    plain = Catalog(common=attributes_of(layout.schema), time=catalog_of(layout, time_unit=time_unit).time)
    row_patterns = tuple(query.bind(plain, time=layout.time) for query in patterns)
    if streaming:
        for query in (*algebra, *bound, *row_patterns):
            choose(query).check_stream(query, rules_off)
    for query in bound:
        check_model(query, model)
        check_order(query, layout)
    unused = names_without_use(bound, model) if warn_of_names else ()
    for sentence in (*unused, *_lacking(bound, model)):
        warnings.warn(sentence, ModelWarning, stacklevel=6)
    return Program(bound, layout, limits or Limits(), tuple(rules_off), statistics, algebra, model, row_patterns)


def check_order(query: BoundQuery, layout: Layout) -> None:
    """Raise an error for a query that is not defined if `order=` orders events of one time."""
    if layout.is_ordered and query.emit_on_change:
        raise InputError(
            f"query '{query.name}' has EMIT ON CHANGE, which reads the events of one time together, so ",
            argument("order"),
            " cannot order them; leave one of the two out",
        )


def check_is_model(model: LossModel | None) -> None:
    """Raise an error if `model=` is not a loss model."""
    if model is not None and not isinstance(model, LossModel):
        raise InputError(f"model= must be an ouzel.LossModel, not {model!r}; LossModel.from_json reads a stored one")


def check_model(query: BoundQuery, model: LossModel | None) -> None:
    """Raise an error if a query has THRESHOLD and there is no model."""
    check_is_model(model)
    if query.threshold is not None and model is None:
        raise InputError(
            f"query '{query.name}' has THRESHOLD, so it must know what the stream loses; give ",
            LOSS_MODEL,
        )


def _lacking(queries: Iterable[BoundQuery], model: LossModel | None) -> Iterator[str]:
    """A sentence for each query whose probabilities are null because of what a model lacks, if it has priors."""
    if model is None or not model.priors:
        return
    for query in queries:
        sentence = choose(query).lacking_in_model(query, model)
        if sentence is not None:
            yield sentence


def names_without_use(queries: Iterable[BoundQuery], model: LossModel | None) -> Iterator[str]:
    """A warning for each name in a model that no component has. A misspelt name would silently change scores. It is no
    error, because a model may be for several queries.
    """
    lossy = [query for query in queries if query.threshold is not None]
    known = {component.variable for query in lossy for component in query.components}
    if model is None or not lossy:
        return
    for where in ("gaps", "priors", "skip_gaps", "background", "component_loss"):
        for name in getattr(model, where):
            if name not in known:
                hint = nearest(name, known) or f"the components are {listed(sorted(known), 'and')}"
                yield f"{where} of the loss model has {quoted(name)}, which is not a component of these queries; {hint}"


def check_columns(time: Any, type: Any, order: Any, time_unit: Any) -> Order:
    """Raise an error for wrong options about columns, before any event is seen. Returns the names in `order`, or
    ARRIVAL.
    """
    for name, value in (("time", time), ("type", type), ("time_unit", time_unit)):
        if not isinstance(value, str) and (value is not None or name == "time"):
            raise InputError(f"{name}= must be text, got {value!r}")
    if time_unit is not None:
        nanoseconds_of(time_unit)
    if isinstance(order, str) and order == ARRIVAL:
        return ARRIVAL
    # One name is a list of one, not a list of its letters.
    names = (order,) if isinstance(order, str) else tuple(order) if isinstance(order, Iterable) else (None,)
    if not all(isinstance(name, str) for name in names):
        raise InputError(f"order= must be a list of column names, got {order!r}")
    return names


def _only_type(queries: Mapping[str, Any]) -> str:
    """The only event type that the queries name, for an input without a type column. Raises an error if there are
    several.
    """
    named = [query for query in queries.values() if not isinstance(query, RowPatternQuery)]
    names = set().union(*(event_types(query) for query in named))
    if len(names) > 1:
        raise InputError(
            f"the queries name several event types ({', '.join(sorted(names))}), and ",
            argument("type", None),
            " says that the input has no type column; name the column with ",
            argument("type"),
            ", or give one input for each type",
        )
    return next(iter(names), "event")


def checked_expression(text: str, types: Mapping[str, Any] | None, params: Mapping[str, Any]) -> AlgebraQuery:
    """The query for an algebra expression in text form, after checking it against the declared types."""
    query = AlgebraQuery("query", from_text(text), params)
    query.bind(catalog_for(types))
    return query


def event_types(query: Query | AlgebraQuery) -> set[str]:
    """The event types that a query names."""
    if isinstance(query, AlgebraQuery):
        return query.event_types
    return {t.name for c in query.tree.pattern.components for t in c.types}


def columns_needed(program: Program) -> set[str]:
    """The columns that some query reads. Names of columns that are not in the input may be among them."""
    if program.algebra:
        # An expression of the algebra passes on all columns of its events.
        return set(program.layout.schema.names)
    found, plans = layouts(program.queries, program.layout), program.plans()
    needed = [needed_columns(plans[query.name], found[query.name]) for query in program.queries]
    needed += [columns_of_rows(pattern, program.layout) for pattern in program.row_patterns]
    return set[str]().union(*needed)


def dump(program: Program) -> bytes:
    """The program as bytes."""
    layout = program.layout
    body = json.dumps(
        {
            "queries": [encode(query) for query in program.queries],
            "row_patterns": [encode(pattern) for pattern in program.row_patterns],
            "algebra": [
                [AlgebraQuery(q.name, q.expression, q.params).encoded(), encode(q.catalog)] for q in program.algebra
            ],
            "layout": {
                "schema": base64.b64encode(layout.schema.serialize().to_pybytes()).decode("ascii"),
                "time": layout.time,
                "type": layout.type,
                "only_type": layout.only_type,
                "order": list(layout.order),
                "by_arrival": layout.by_arrival,
                "scale": None if layout.scale is None else [layout.scale.bits, layout.scale.base],
                "physical": [[event_type, name, wide] for (event_type, name), wide in layout.physical.items()],
            },
            "limits": asdict(program.limits),
            "rules_off": list(program.rules_off),
            "distinct": dict(program.statistics.distinct),
            "key_way": program.statistics.key_strategy.name if program.statistics.key_strategy is not None else None,
            "events_per_tick": program.statistics.events_per_tick,
            "rates": dict(program.statistics.rates),
            "model": program.model.to_json() if program.model is not None else None,
            "partial": program.partial,
        },
        separators=(",", ":"),
    ).encode("utf-8")
    return seal(PROGRAM, body)


def load(blob: bytes) -> Program:
    """The program from the bytes of `dump`. Raises StateError if they are damaged or from another version."""
    body = unseal(PROGRAM, blob)
    with decoding(PROGRAM):
        return _loaded(json.loads(bytes(body)))


def _loaded(data: dict[str, Any]) -> Program:
    layout = data["layout"]
    algebra = [
        AlgebraQuery.decoded(query).bind(decode(catalog), time=layout["time"], type=layout["type"])
        for query, catalog in data.get("algebra", ())
    ]
    return Program(
        queries=tuple(decode(query) for query in data["queries"]),
        row_patterns=tuple(decode(pattern) for pattern in data.get("row_patterns", ())),
        layout=Layout(
            schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(layout["schema"]))),
            time=layout["time"],
            type=layout["type"],
            only_type=layout["only_type"],
            order=tuple(layout["order"]),
            by_arrival=layout.get("by_arrival", False),
            scale=None if layout.get("scale") is None else MomentScale(*layout["scale"]),
            physical={(event_type, name): wide for event_type, name, wide in layout["physical"]},
        ),
        algebra=tuple(algebra),
        limits=Limits(**data["limits"]),
        rules_off=tuple(data["rules_off"]),
        statistics=Statistics(
            data["distinct"],
            KeyStrategy[data["key_way"]] if data["key_way"] else None,
            data.get("events_per_tick"),
            data.get("rates", {}),
        ),
        model=LossModel.from_json(data["model"]) if data.get("model") else None,
        partial=data.get("partial", False),
    )
