"""What stands between users' inputs and a session: the program, settled by the first batch.

A column of which the first batches know nothing but nulls has no type yet. What was pushed so far is remembered until
it gets one, within a limit: then the program is settled again, and a new session goes through the same events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from ouzel.bind.model import Catalog
from ouzel.engines.incomplete.plan import check_model
from ouzel.errors import InputError
from ouzel.plan.rules import check_rules
from ouzel.prepared import Query, bind_all
from ouzel.runtime.inputs import as_table, is_rows, no_columns, with_missing_columns, with_readable_time
from ouzel.runtime.layout import widen
from ouzel.runtime.program import Program, check_columns, make_program
from ouzel.runtime.statistics import key_statistics

Inputs: TypeAlias = Any  # a pyarrow Table, of which type checkers know nothing, or a dictionary of one for each type
# Their schemas, by event type; None stands for all types.
Schemas: TypeAlias = dict[str | None, Any]
# So many events are remembered while some column has no type.
REMEMBERED_EVENTS_MAX = 100_000


class Feed:
    """Turns inputs into wide tables of events. The first one settles what later ones must look like."""

    def __init__(self, queries: dict[str, Query], program: Program | None = None, **options: Any) -> None:
        self._queries = queries
        self._options = options
        if program is None:
            options["order"] = check_columns(**{name: options[name] for name in ("time", "type", "order", "time_unit")})
        self._program = program
        self._schemas: Schemas = {}
        self._time: str = program.layout.time if program is not None else options["time"]

    @property
    def program(self) -> Program:
        assert self._program is not None, "the first batch settles the program"
        return self._program

    @property
    def names(self) -> list[str]:
        """The names of the queries."""
        return list(self._queries)

    def check(self, *, streaming: bool) -> None:
        """Find what is wrong with the queries before any event is seen."""
        check_rules(self._options["rules_off"])
        for query in bind_all(self._queries, lambda query: Catalog(), streaming=streaming):
            check_model(query, self._options.get("model"))

    def table(self, events: Any) -> pa.Table:
        """A batch as a wide table."""
        inputs = self.read(events)
        if inputs is None:
            raise no_columns()
        return self.wide(inputs)

    def read(self, events: Any) -> Inputs | None:
        """A batch, or one for each event type, as Arrow with readable times; None for a batch without any events that
        comes before the columns are known."""
        if not isinstance(events, Mapping):
            known = None if self._program is None else self._program.layout.schema
            events = _listed(events)
            return None if self._program is None and _is_nothing(events) else self._readable(events, known)
        for name in events:
            if not isinstance(name, str):
                raise InputError(f"the name of an event type must be text, not {name!r}")
        events = {name: _listed(one) for name, one in events.items()}
        if self._program is None and all(map(_is_nothing, events.values())):
            return None
        return {name: self._readable(one, self._schemas.get(name)) for name, one in events.items()}

    def wide(self, inputs: Inputs) -> pa.Table:
        """What was read as one wide table."""
        if self._program is None:
            self.settle(_schemas(inputs), inputs)
        return widen(inputs, self.program.layout) if isinstance(inputs, dict) else inputs

    @property
    def waits_for_types(self) -> bool:
        """Whether some column had nothing but nulls so far."""
        return any(pa.types.is_null(field.type) for schema in self._schemas.values() for field in schema)

    def learnt(self, inputs: Inputs) -> Schemas | None:
        """The schemas with the types of columns that had none before; None where there are no such columns."""
        learnt = dict(self._schemas)
        for name, schema in _schemas(inputs).items():
            if name not in learnt:
                continue
            known = learnt[name]
            for field in schema:
                place = known.get_field_index(field.name)
                if place >= 0 and pa.types.is_null(known.field(place).type) and not pa.types.is_null(field.type):
                    known = known.set(place, known.field(place).with_type(field.type))
            learnt[name] = known
        return None if learnt == self._schemas else learnt

    def _readable(self, events: Any, known: pa.Schema | None) -> pa.Table:
        table = as_table(events)
        if known is not None and is_rows(events):
            needed = (self._time, None if self._program is None else self._program.layout.type)
            table = with_missing_columns(table, known, needed)
            if not len(table):
                return table
        return with_readable_time(table, self._time)

    def settle(self, schemas: Schemas, sample: Inputs) -> None:
        """Bind the queries to these schemas; the sample tells what is worth while."""
        only = schemas.get(None)
        self._program = make_program(self._queries, schemas if only is None else only, **self._options)
        self._schemas = schemas
        if isinstance(sample, pa.Table):
            statistics = key_statistics(self._program.queries, sample, self._program.layout)
            self._program = replace(self._program, statistics=statistics)


def _listed(events: Any) -> Any:
    """An iterator as a list, which can be looked at before it is read."""
    return list(events) if isinstance(events, Iterator) and is_rows(events) else events


def _is_nothing(events: Any) -> bool:
    """Whether an input has neither events nor columns."""
    return is_rows(events) and not len(events)


def _schemas(inputs: Inputs) -> Schemas:
    if isinstance(inputs, dict):
        return {name: table.schema for name, table in inputs.items()}
    return {None: inputs.schema}


class Memory:
    """What was done so far, while it may have to be done again."""

    def __init__(self) -> None:
        self._steps: list[tuple[Inputs | None, int]] = []
        self._events = 0

    def add(self, inputs: Inputs | None, watermark: int) -> None:
        """Events were taken in, or none, and time moved on to a watermark."""
        tables = inputs.values() if isinstance(inputs, dict) else [] if inputs is None else [inputs]
        self._events += sum(table.num_rows for table in tables)
        if self._events <= REMEMBERED_EVENTS_MAX:
            self._steps.append((inputs, watermark))

    def must_be_whole(self) -> None:
        """Refuse to go on if there was too much to remember."""
        if self._events > REMEMBERED_EVENTS_MAX:
            raise InputError(
                f"a column had nothing but nulls in the first {REMEMBERED_EVENTS_MAX:,} events, and now has a value; "
                "give the first batch as an Arrow table with a schema that says its type"
            )

    def forget(self) -> None:
        """Nothing will have to be done again."""
        self._steps, self._events = [], 0

    def again(self, push: Callable[[Inputs], None], advance: Callable[[int], Any]) -> None:
        """Do it all again."""
        for inputs, watermark in self._steps:
            if inputs is not None:
                push(inputs)
            advance(watermark)
