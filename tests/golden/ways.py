"""The ways of running a golden case. A new runtime adds one class here and every case runs on it.

A way that cannot run a case says why in `gap`; gaps are counted and printed at the end of a test run, so that nothing
is left out silently.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa

import ouzel
from ouzel.algebra import from_text
from ouzel.bind import Catalog, bind, bind_script, catalog_for
from ouzel.bind.schema import attributes_of
from ouzel.lang import parse, parse_script, syntax
from ouzel.prepared import as_queries
from ouzel.runtime.layout import catalog_of, layout_of_table
from tests.golden.answers import Answer, Answers
from tests.golden.embedded import embedded_ways
from tests.golden.format import Case
from tests.oracle import algebra, incomplete, oracle, row_patterns
from tests.oracle.events import Event
from tests.oracle.values import Moment

TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class Way(Protocol):
    """One way of running a case."""

    name: str

    def gap(self, case: Case) -> str | None:
        """Why this way cannot run the case, or None."""

    def run(self, case: Case) -> Answers | None:
        """The answers by query name, or None where the way only checks the query. Raises QueryError on bad queries."""


def parsed(case: Case) -> tuple[syntax.Query, ...]:
    return parse_script(case.text).queries if case.is_script else (parse(case.text),)


class Oracle:
    """The naive evaluator of docs/semantics.md, incomplete streams aside."""

    name = "oracle"

    def gap(self, case: Case) -> str | None:
        if case.is_row_pattern and case.expected_error is None:
            return None
        if case.expected_error is not None:
            return "the oracle takes every query for valid; mistakes are found by the binder"
        if case.is_script and any(query.threshold for query in parsed(case)):
            return "the oracle of incomplete streams takes one query"
        return None

    def run(self, case: Case) -> Answers:
        if case.is_row_pattern:
            return {None: Answer.of_rows(row_patterns.answer(case.inputs[None].to_pylist(), case.text, case.params))}
        clock = Clock(case)
        if case.is_expression:
            return {None: _algebra_answer(case, clock)}
        if "model" in case.options:
            return {None: _incomplete_answer(case, clock)}
        results = oracle.answer(
            parsed(case),
            list(_oracle_events(case, clock)),
            types=_attributes_by_type(case),
            params=case.params,
            order=case.order,
            ticks_per_second=clock.ticks_per_second,
        )
        return {name: _oracle_answer(found, clock) for name, found in results.items()}


def _algebra_answer(case: Case, clock: Clock) -> Answer:
    (table,) = case.inputs.values()
    times = clock.ticks(table.column(case.time_column))
    rows = [{**row, case.time_column: time} for row, time in zip(table.to_pylist(), times, strict=True)]
    world = algebra.World(rows, case.time_column, case.type_column, case.params or {}, clock.ticks_per_second)
    found = algebra.answer(from_text(case.text), world)
    return Answer.of_rows(
        [{**one.values, "start": clock.moment(one.start), "end": clock.moment(one.end)} for one in found]
    )


def _incomplete_answer(case: Case, clock: Clock) -> Answer:
    found = incomplete.answer(
        case.text,
        list(_oracle_events(case, clock)),
        json.loads(ouzel.LossModel.from_json(case.options["model"]).to_json()),
        types=_attributes_by_type(case),
        params=case.params,
        order=tuple(case.order),
        ticks_per_second=clock.ticks_per_second,
    )
    rows = [{**one.row, "start": clock.moment(one.start), "end": clock.moment(one.end)} for one in found]
    return Answer.of_rows(rows)


class Clock:
    """How the case counts time: microseconds, nanoseconds where a time column has them, or bare numbers."""

    def __init__(self, case: Case) -> None:
        kinds = [table.schema.field(case.time_column).type for table in case.inputs.values()]
        self.is_timestamp = any(pa.types.is_timestamp(kind) for kind in kinds)
        if self.is_timestamp:
            unit = "ns" if any(kind.unit == "ns" for kind in kinds) else "us"
            self.ticks_per_second: int | None = TICKS_PER_SECOND[unit]
        else:
            self.ticks_per_second = TICKS_PER_SECOND.get(case.options.get("time_unit", ""))

    def ticks(self, column: pa.ChunkedArray) -> list[int]:
        """The times of events, as moments where they are timestamps."""
        if not self.is_timestamp:
            return [int(ticks) for ticks in column.to_pylist()]
        assert self.ticks_per_second is not None
        per_tick = self.ticks_per_second // TICKS_PER_SECOND[column.type.unit]
        return [Moment(ticks * per_tick) for ticks in column.cast(pa.int64()).to_pylist()]

    def moment(self, ticks: int) -> Any:
        """Ticks in the type of the input's time column."""
        if not self.is_timestamp:
            return ticks
        assert self.ticks_per_second is not None
        microseconds = ticks * 1_000_000 // self.ticks_per_second
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=microseconds)


def _oracle_events(case: Case, clock: Clock) -> Iterator[Event]:
    for type_name, table in case.inputs.items():
        times = clock.ticks(table.column(case.time_column))
        for row, time in zip(table.to_pylist(), times, strict=True):
            yield Event(type_name if type_name is not None else row[case.type_column], time, time, row)


def _attributes_by_type(case: Case) -> Mapping[str, list[str]] | None:
    if case.types is not None:
        return {name: list(attributes) for name, attributes in case.types.items()}
    separate = {name: table.column_names for name, table in case.inputs.items() if name is not None}
    return separate or None


def _oracle_answer(results: list[oracle.Result], clock: Clock) -> Answer:
    def timed(row: Mapping[str, Any]) -> dict[str, Any]:
        is_time = {name: name in ("start", "end") or isinstance(value, Moment) for name, value in row.items()}
        return {name: clock.moment(value) if is_time[name] else value for name, value in row.items()}

    rows = [timed(result.row) for result in results]
    if not any(isinstance(result, oracle.CompressedMatches) for result in results):
        return Answer.of_rows(rows)
    listed = [match for result in results if isinstance(result, oracle.CompressedMatches) for match in result.matches]
    return Answer(rows, [timed(match.row) for match in listed])


class Binder:
    """Checks the query against the case's event types: refuses with the expected text, and accepts everything else."""

    name = "binder"

    def gap(self, case: Case) -> str | None:
        return None

    def run(self, case: Case) -> None:
        if case.is_row_pattern:
            (pattern,) = as_queries(case.text, case.params).values()
            pattern.bind(Catalog(common=attributes_of(case.inputs[None].schema)))
            return
        if case.is_expression:
            (query,) = as_queries(case.text, case.params).values()
            options = {"time": case.time_column, "type": case.type_column}
            layout = layout_of_table(case.inputs[None].schema, **options)
            query.bind(catalog_of(layout, time_unit=case.options.get("time_unit")), **options)
            return
        separate = {name: table.schema for name, table in case.inputs.items() if name is not None}
        catalog = catalog_for(
            case.types,
            schema=case.inputs[None].schema if None in case.inputs else None,
            tables=separate or None,
            time=case.time_column if case.inputs else None,
            time_unit=case.options.get("time_unit"),
        )
        if case.is_script:
            bind_script(parse_script(case.text), case.text, catalog, case.params)
        else:
            bind(parse(case.text), case.text, catalog, case.params)


def all_ways() -> tuple[Way, ...]:
    """Every way, cheapest first."""
    return (Oracle(), Binder(), *embedded_ways())
