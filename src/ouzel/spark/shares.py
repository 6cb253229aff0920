"""Queries grouped by the key that their events can be spread by: each group is a share, a program of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from ouzel.bind.model import Attribute, Bound, BoundQuery, EventWindow
from ouzel.bind.script import INPUT
from ouzel.lang.syntax import Strategy
from ouzel.plan.expressions import walk
from ouzel.plan.model import KeyPart, Plan
from ouzel.runtime.layout import Layout
from ouzel.runtime.program import Program, dump
from ouzel.runtime.transform import output_schema
from ouzel.spark.worker import Share

KeyPath = tuple[str, ...]  # a column, and the fields to follow inside it


@dataclass(frozen=True)
class SharePlan:
    """A share, with what the driver has to know of it."""

    share: Share
    keys: tuple[KeyPath, ...]  # equal in all events of one match; none: no event can be kept from any other
    columns: tuple[str, ...]
    types: frozenset[str] | None  # the only event types that can change an answer; None: all may
    outputs: dict[str, pa.Schema]


def plan_shares(program: Program) -> list[SharePlan]:
    """Split a program so that each part can be spread by its own key.

    Queries that read one another's results stay together.
    """
    plans = program.plans()
    composed = any(set(query.sources) - {INPUT} for query in program.queries)
    groups: dict[tuple[KeyPath, ...], list[BoundQuery]] = {}
    for query in program.queries:
        keys = () if composed else _keys(plans[query.name], program.layout)
        groups.setdefault(keys, []).append(query)
    shares = []
    first_query = 0
    for keys, queries in groups.items():
        shares.append(_share(program, keys, tuple(queries), first_query))
        first_query += len(queries)
    return shares


def _share(program: Program, keys: tuple[KeyPath, ...], queries: tuple[BoundQuery, ...], first_query: int) -> SharePlan:
    layout = _narrow(program.layout, queries)
    return SharePlan(
        share=Share(
            program=dump(replace(program, queries=queries, layout=layout)),
            columns=layout.schema.serialize().to_pybytes(),
            time=layout.time,
            queries=tuple(query.name for query in queries),
            first_query=first_query,
        ),
        keys=keys,
        columns=tuple(layout.schema.names),
        types=_types(queries) if layout.type is not None else None,
        outputs={query.name: output_schema(query, layout) for query in queries},
    )


# ── Keys ───────────────────────────────────────────────────────────────────────────────────────────


def _keys(plan: Plan, layout: Layout) -> tuple[KeyPath, ...]:
    """The columns that are equal in all events, negative ones included, that have to do with one match."""
    paths = (_common_path(plan, part, layout) for part in plan.key)
    return tuple(sorted({path for path in paths if path is not None}))


def _common_path(plan: Plan, part: KeyPart, layout: Layout) -> KeyPath | None:
    found = set()
    for component in plan.query.components:
        expression = part.expressions.get(component.position)
        if not isinstance(expression, Attribute) or expression.present_in is not None:
            # A negative that forbids in every partition, or a value that has to be computed first.
            return None
        for event_type in component.types or tuple(plan.query.catalog.declared or ("",)):
            found.add((layout.column(event_type, expression.path[0]), *expression.path[1:]))
    return found.pop() if len(found) == 1 else None


# ── What has to travel ─────────────────────────────────────────────────────────────────────────────


def _types(queries: Iterable[BoundQuery]) -> frozenset[str] | None:
    found: set[str] = set()
    for query in queries:
        counts_every_event = isinstance(query.window, EventWindow) or query.strategy in (
            Strategy.STRICT_CONTIGUITY,
            Strategy.PARTITION_CONTIGUITY,
        )
        for component in query.components:
            if counts_every_event or component.types is None:
                return None
            found.update(component.types)
    return frozenset(found)


def _narrow(layout: Layout, queries: Iterable[BoundQuery]) -> Layout:
    """The layout without the columns that no query looks at."""
    used = {layout.time, *layout.order, *([layout.type] if layout.type is not None else [])}
    for query in queries:
        used |= _columns(query, layout)
    return replace(layout, schema=pa.schema([field for field in layout.schema if field.name in used]))


def _columns(query: BoundQuery, layout: Layout) -> set[str]:
    if query.returns is None and not query.aggregates:
        # The whole event is shown.
        return set(layout.schema.names)
    used = set()
    for attribute in _attributes(query):
        component = query.components[attribute.component]
        for event_type in component.types or tuple(query.catalog.declared or ("",)):
            used.add(layout.column(event_type, attribute.path[0]))
    for path in (*(test.path for test in query.equivalences), *(key.path for key in query.group_by if key.path)):
        for event_type in query.catalog.declared or ("",):
            used.add(layout.column(event_type, path[0]))
    return used


def _attributes(query: BoundQuery) -> Iterator[Attribute]:
    expressions: list[Bound | None] = [
        *(comparison for conjunct in query.conjuncts for comparison in conjunct.comparisons),
        *(column.expression for column in query.returns or ()),
        *(aggregate.argument for aggregate in query.aggregates),
        *(key.expression for key in query.group_by),
        *(side for default in query.defaults.items() for side in default),
        query.having,
    ]
    for expression in expressions:
        if expression is not None:
            yield from (part for part in walk(expression) if isinstance(part, Attribute))
