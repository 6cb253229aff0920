"""Binds queries to the schema of their input, and converts each batch to one wide table of that schema.

The schema is given by `schema=`, or taken from the first batch. A column that has only nulls in the first batch has no
type. A later value in such a column is an error if a query reads the column; otherwise it is dropped.

A sample of the first batch gives the planner its statistics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.model import BoundQuery, Catalog
from ouzel.errors import InputError
from ouzel.plan.choose import check_rules, key_strategy_of
from ouzel.plan.model import Statistics
from ouzel.prepared import Query, bind_all
from ouzel.runtime.inbox import table_of
from ouzel.runtime.inputs import (
    as_table,
    check_inputs_by_type,
    is_rows,
    no_columns,
    with_missing_columns,
    with_readable_time,
)
from ouzel.runtime.layout import Layout, has_no_type, ticks_of, widen
from ouzel.runtime.program import Program, check_columns, check_model, columns_needed, make_program
from ouzel.runtime.values import empty_table, retyped

# Enough to distinguish hundreds of values from tens of thousands, and cheap compared with reading the batch.
_SAMPLE_ROWS = 20_000


def key_statistics(queries: Sequence[BoundQuery], table: pa.Table, layout: Layout) -> Statistics:
    """Statistics for queries with several equivalence tests: how many distinct values their attributes have, and the
    rate of events.

    They are taken from the first rows of the first batch. Bad statistics make a plan slower, never wrong.
    """
    paths = {test.path for query in queries if len(query.equivalences) > 1 for test in query.equivalences}
    distinct = {}
    for path in paths:
        if path[0] in table.column_names:
            column = table.column(path[0]).slice(0, _SAMPLE_ROWS)
            if pa.types.is_dictionary(column.type):
                column = retyped(column, column.type.value_type)
            if len(path) == 1 and not pa.types.is_nested(column.type) and not pa.types.is_null(column.type):
                distinct[".".join(path)] = pc.count_distinct(column).as_py()
    rate = None
    if distinct and table.num_rows > 1:
        ticks = ticks_of(table.slice(0, _SAMPLE_ROWS), layout)
        rate = len(ticks) / (int(ticks.max()) - int(ticks.min()) + 1)
    return Statistics(distinct, events_per_tick=rate, rates=_rates(queries, table, layout))


def _rates(queries: Sequence[BoundQuery], table: pa.Table, layout: Layout) -> dict[str, float]:
    """The share of all events that each type has; empty unless several aggregates might be counted together."""
    if layout.type is None or not table.num_rows or not any(query.aggregates for query in queries):
        return {}
    sample = table.column(layout.type).slice(0, _SAMPLE_ROWS)
    counted = pc.value_counts(sample.cast(pa.string())).to_pylist()
    return {one["values"]: one["counts"] / len(sample) for one in counted if one["values"] is not None}


Inputs: TypeAlias = Any  # a pyarrow Table (untyped for type checkers), or a dictionary of one for each type
Schemas: TypeAlias = dict[str | None, Any]  # by event type; None: all types


class InputBinder:
    """Binds queries to the schema of their input, and converts batches to that schema."""

    def __init__(
        self,
        queries: dict[str, Query],
        program: Program | None = None,
        *,
        schema: pa.Schema | Mapping[str, pa.Schema] | None = None,
        keeps_all_columns: bool = False,
        **options: Any,
    ) -> None:
        self._queries = queries
        self._options = options
        if program is None:
            options["order"] = check_columns(
                options["time"], options["type"], options.get("order", ()), options.get("time_unit")
            )
        self._program = program
        self._schemas: Schemas = {}
        self._time: str = program.layout.time if program is not None else options["time"]
        self._is_sampled = program is not None
        self._keeps_all_columns = keeps_all_columns
        # The columns that some query reads; None: not computed yet.
        self._needed: set[str] | None = None
        if schema is not None:
            self._bind(_given_schemas(schema, self._time))

    @property
    def program(self) -> Program:
        assert self._program is not None, "schema= or the first batch makes the program"
        return self._program

    @property
    def names(self) -> list[str]:
        """The names of the queries."""
        return list(self._queries)

    def check(self, *, streaming: bool) -> None:
        """Raise the errors of queries before any event is seen."""
        check_rules(self._options.get("rules_off", ()))
        key_strategy_of(self._options.get("hints"))
        for query in bind_all(self._queries, lambda query: Catalog(), streaming=streaming):
            check_model(query, self._options.get("model"))

    def table(self, events: Any) -> pa.Table:
        """A batch as a wide table."""
        inputs = self.read(events)
        if inputs is None:
            raise no_columns()
        return self.wide(inputs)

    def read(self, events: Any) -> Inputs | None:
        """A batch, or one for each event type, as Arrow tables whose times are readable. None for an empty batch before
        the columns are known.
        """
        if not isinstance(events, Mapping):
            known = None if self._program is None else self._program.layout.schema
            events = _listed(events)
            return None if self._program is None and _is_nothing(events) else self._readable(events, known)
        for name in events:
            if not isinstance(name, str):
                raise InputError(f"the name of an event type must be text, got {name!r}")
        check_inputs_by_type(events, self._time)
        events = {name: _listed(one) for name, one in events.items()}
        if self._program is None and all(map(_is_nothing, events.values())):
            return None
        return {name: self._readable(one, self._schemas.get(name)) for name, one in events.items()}

    def wide(self, inputs: Inputs) -> pa.Table:
        """Batches that `read` returned, as one wide table."""
        if self._program is None:
            self._bind(_schemas_of(inputs))
        if not self._is_sampled:
            self._sample(inputs)
        if not isinstance(inputs, dict):
            return self._without_untyped(inputs, None)
        return widen({name: self._without_untyped(one, name) for name, one in inputs.items()}, self.program.layout)

    def _readable(self, events: Any, known: pa.Schema | None) -> pa.Table:
        needed = (self._time, None if self._program is None else self._program.layout.type)
        if known is not None and isinstance(events, list) and known.names.count(self._time) == 1:
            table = table_of(events, known, [name for name in needed if name in known.names])
            if table is not None:
                return table
        table = as_table(events)
        if known is not None and is_rows(events):
            table = with_missing_columns(table, known, needed)
            if not len(table):
                return table
        return with_readable_time(table, self._time)

    def _bind(self, schemas: Schemas) -> None:
        only = schemas.get(None)
        program = make_program(self._queries, schemas if only is None else only, **self._options)
        self._schemas, self._program = schemas, program

    def _sample(self, first: Inputs) -> None:
        """Take statistics from the first events, which decide which column of a key partitions best."""
        if isinstance(first, pa.Table):
            asked = self.program.statistics.key_strategy
            statistics = key_statistics(self.program.queries, first, self.program.layout)
            self._program = replace(self.program, statistics=replace(statistics, key_strategy=asked))
        self._is_sampled = True

    def _without_untyped(self, table: pa.Table, event_type: str | None) -> pa.Table:
        """The table with nulls in columns that have no type, if no query reads them."""
        layout = self.program.layout
        for place, column in enumerate(table.schema):
            wide = layout.column(event_type, column.name)
            if (
                not pa.types.is_null(column.type)
                and has_no_type(layout, wide)
                and not self._keeps_all_columns
                and wide not in self._needed_columns()
            ):
                table = table.set_column(place, column.name, pa.nulls(table.num_rows))
        return table

    def _needed_columns(self) -> set[str]:
        if self._needed is None:
            self._needed = columns_needed(self.program)
        return self._needed


def _listed(events: Any) -> Any:
    """An iterator as a list, so that it can be inspected before it is read. Other inputs stay as they are."""
    return list(events) if isinstance(events, Iterator) and is_rows(events) else events


def _is_nothing(events: Any) -> bool:
    """Whether an input has neither events nor columns."""
    return is_rows(events) and not len(events)


def _schemas_of(inputs: Inputs) -> Schemas:
    if isinstance(inputs, dict):
        return {name: table.schema for name, table in inputs.items()}
    return {None: inputs.schema}


def _given_schemas(given: pa.Schema | Mapping[str, pa.Schema], time: str) -> Schemas:
    """The schemas of batches, from `schema=`."""
    schemas: Mapping[Any, Any] = given if isinstance(given, Mapping) else {None: given}
    found: Schemas = {}
    for event_type, schema in schemas.items():
        if not isinstance(schema, pa.Schema):
            raise InputError(
                f"schema= must be a pyarrow Schema, or a dictionary of one for each event type, got {schema!r}"
            )
        if time in schema.names and pa.types.is_string(schema.field(time).type):
            raise InputError(
                f"the time column '{time}' in schema= must be a timestamp, a date or an integer, got text, which "
                'does not say whether times have a zone; declare pa.timestamp("us") or pa.timestamp("us", "UTC")'
            )
        found[event_type] = with_readable_time(as_table(empty_table(schema)), time).schema
    return found
