"""Ways of running golden cases on the embedded engine: whole, event by event, restored half-way, with rules off."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa

import ouzel
from ouzel.algebra.binding import AlgebraQuery
from ouzel.bind.expressions import nodes
from ouzel.engines.aggregate.plan import SHARE_COUNTERS
from ouzel.engines.aggregate.sharing import plan_sharing
from ouzel.engines.rows.automaton import build_automaton
from ouzel.lang import row_syntax, syntax
from ouzel.plan.choose import all_rules
from ouzel.plan.explain import explanation
from ouzel.prepared import RowPatternQuery, as_queries
from ouzel.runtime.engine import match_without
from ouzel.runtime.program import Program, make_program
from tests.golden.answers import Answer, Answers
from tests.golden.format import NONE, Case
from tests.oracle.values import sort_key

# Longer than any case lasts, so that it changes no answer.
ENDLESS_TICKS = 2**60


@cache
def prepared(case: Case) -> dict[str, Any]:
    if case.is_row_pattern or case.is_expression:
        return as_queries(case.text, case.params)
    if case.is_script:
        return ouzel.queries(case.text, types=case.types, params=case.params)
    return {"query": ouzel.query(case.text, types=case.types, params=case.params)}


def options(case: Case) -> dict[str, Any]:
    found = {
        "time": case.time_column,
        "type": case.type_column if None in case.inputs else None,
        "order": case.order,
        "time_unit": case.options.get("time_unit"),
    }
    if "model" in case.options:
        found["model"] = ouzel.LossModel.from_json(case.options["model"])
    return found


def batches_of_one(case: Case) -> Iterator[Any]:
    """The events one by one in order of time, and of the order= columns or of their rows; with separate tables, every
    batch has all of them."""
    order = () if case.order == "arrival" else case.order
    places = sorted(
        (time.as_py(), [sort_key(table.column(column)[row].as_py()) for column in order], str(name), row, name)
        for name, table in case.inputs.items()
        for row, time in enumerate(table.column(case.time_column))
    )
    for *_, row, owner in places:
        parts = {name: table.slice(row, 1 if name == owner else 0) for name, table in case.inputs.items()}
        yield parts.get(None, parts)


def _windowed(query: Any) -> Any:
    """Streams refuse a query without WITHIN, so a window longer than the case stands in for none."""
    if isinstance(query, AlgebraQuery) or query.tree.within is not None:
        return query
    if isinstance(query, RowPatternQuery):
        names = [node.name for node in nodes(query.tree.pattern) if isinstance(node, row_syntax.Variable)]
        if build_automaton(query.tree.pattern, tuple(dict.fromkeys(names))).longest is not None:
            return query
        return replace(query, tree=replace(query.tree, within=syntax.Literal(ENDLESS_TICKS)))
    return replace(query, tree=replace(query.tree, within=syntax.Within(syntax.Literal(ENDLESS_TICKS))))


class Embedded:
    """`ouzel.match` on the whole input, with some rules of the planner switched off."""

    def __init__(self, name: str = "embedded", rules_off: Collection[str] = ()) -> None:
        self.name = name
        self.rules_off = rules_off

    def gap(self, case: Case) -> str | None:
        if case.expected_error is not None:
            return "mistakes are found by the binder, before anything runs"
        return None

    def run(self, case: Case) -> Answers:
        events = case.inputs.get(None, case.inputs)
        tables = match_without(self.rules_off, events, prepared(case), **options(case))
        return {name: answer_of(case, name, [table]) for name, table in tables.items()}


def answer_of(case: Case, name: str, tables: Sequence[pa.Table]) -> Answer:
    """What a query answered, in any number of tables; compressed rows with the matches that their graphs hold."""
    rows = [row for table in tables for row in table.to_pylist()]
    if not tables or "graph" not in tables[0].column_names:
        return Answer.of_rows(rows)
    whole = pa.concat_tables([table.cast(tables[0].schema) for table in tables])
    read_as = {key: value for key, value in options(case).items() if key != "model"}
    listed = ouzel.expand(whole, prepared(case)[name], **read_as)
    return Answer([{key: row[key] for key in row if key != "graph"} for row in rows], listed.to_pylist())


def stream_gap(case: Case) -> str | None:
    """Why a stream refuses a row pattern or an expression, or None."""
    if not case.is_row_pattern and not case.is_expression:
        return None
    queries = {name: _windowed(query) for name, query in prepared(case).items()}
    try:
        make_program(queries, case.inputs[None].schema, streaming=True, **options(case))
    except ouzel.QueryError as error:
        return error.message
    return None


class OneByOne(Embedded):
    """`ouzel.Engine`, one event a push; `restored` takes a snapshot half-way and goes on from it."""

    def __init__(self, name: str, *, restored: bool = False) -> None:
        super().__init__(name)
        self.restored = restored

    def gap(self, case: Case) -> str | None:
        return super().gap(case) or stream_gap(case)

    def run(self, case: Case) -> Answers:
        engine = ouzel.Engine({name: _windowed(query) for name, query in prepared(case).items()}, **options(case))
        batches = list(batches_of_one(case))
        found: dict[str, list[pa.Table]] = {}
        for number, batch in enumerate(batches):
            if self.restored and number and number == len(batches) // 2:
                engine = ouzel.Engine.restore(engine.snapshot())
            self._collect(found, engine.push(batch))
        self._collect(found, engine.finish())
        return {name: answer_of(case, name, tables) for name, tables in found.items()}

    @staticmethod
    def _collect(found: dict[str, list[pa.Table]], tables: dict[str, pa.Table]) -> None:
        for name, table in tables.items():
            found.setdefault(name, []).append(table)


class InSet(OneByOne):
    """`ouzel.QuerySet`, one event a push, restored half-way."""

    def gap(self, case: Case) -> str | None:
        reason = Embedded.gap(self, case)
        if reason is None and case.is_row_pattern:
            return "a set has no row patterns"
        if reason is None and None not in case.inputs:
            return "a set reads one table"
        if reason is None and case.is_expression:
            return None
        if reason is None and any(q.tree.into or q.tree.sources for q in prepared(case).values()):
            return "queries of a set do not read each other"
        return reason

    def run(self, case: Case) -> Answers:
        queries = ouzel.QuerySet(bounded=True, **options(case))
        for name, query in prepared(case).items():
            queries.add(name, query)
        batches = list(batches_of_one(case))
        found: dict[str, list[pa.Table]] = {name: [] for name in prepared(case)}
        for number, batch in enumerate(batches):
            if number and number == len(batches) // 2:
                queries = ouzel.QuerySet.restore(queries.snapshot())
            self._collect(found, queries.push(batch))
        self._collect(found, queries.finish())
        return {
            name: answer_of(case, name, [table.drop_columns("query") for table in tables])
            for name, tables in found.items()
        }


@cache
def program_of(case: Case) -> Program:
    schemas = {name: table.schema for name, table in case.inputs.items()}
    return make_program(prepared(case), schemas.get(None, schemas), **options(case))


@cache
def rules_that_act(case: Case) -> frozenset[str]:
    """The rules without which a query of the case has another plan, or is counted alone."""
    program = program_of(case)
    plans = program.plans()
    names = [rule.name for rule in all_rules()]
    found = {name for name in names if replace(program, rules_off=(name,)).plans() != plans}
    return frozenset(found | ({SHARE_COUNTERS} if plan_sharing(plans) else set()))


def explained(case: Case, of: str | None = None) -> list[str]:
    """How a query of the case is run: the lines of an `explain` block."""
    plans = program_of(case).plans()
    name = next(iter(plans)) if of is None else of
    found = explanation(plans[name])
    rules = [rule for rule, _ in found.notes]
    if any(name in shared.names for shared in plan_sharing(plans)):
        rules.append(SHARE_COUNTERS)
    return [f"engine {found.engine}", f"kernel {found.kernel}", f"rules {' '.join(rules) or NONE}"]


def embedded_ways() -> tuple[Embedded, ...]:
    return (
        Embedded(),
        Embedded("embedded, rules off", [rule.name for rule in all_rules()]),
        OneByOne("engine, one by one"),
        OneByOne("engine, restored", restored=True),
        InSet("query set"),
    )
