"""What keeps events apart: the columns that are equal in all events of one match, and of matches of matches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ouzel.bind.model import At, Attribute, BoundQuery, EventWindow
from ouzel.lang.syntax import OutputForm, Strategy
from ouzel.plan.model import KeyPart, Plan
from ouzel.runtime.composition import is_composed, reads_input
from ouzel.runtime.layout import Layout
from ouzel.runtime.program import Program, describe, dump
from ouzel.spark.tasks import Clock, Share

KeyPath = tuple[str, ...]  # a column, and the fields to follow inside it


def keys_of(plan: Plan, layout: Layout) -> tuple[KeyPath, ...]:
    """The columns that are equal in all events, negative ones included, that have to do with one match."""
    paths = {_common_path(plan, part, layout) for part in plan.key}
    made = _partitioning(plan.query)
    if made is not None:
        paths &= {path for attribute in made for path in _columns_of(plan.query, attribute, layout)}
    return tuple(sorted(path for path in paths if path is not None))


def total_keys_of(plan: Plan, layout: Layout) -> tuple[KeyPath, ...]:
    """The columns that are equal in all events of one match, though a total goes over all their values."""
    return keys_of(replace(plan, query=replace(plan.query, aggregates=(), group_by=())), layout)


def _partitioning(query: BoundQuery) -> set[KeyPath] | None:
    """The attributes by which answers fall apart, where not every equality between events will do; None: it will."""
    if query.strategy is Strategy.STRICT_CONTIGUITY:
        # An event of any partition ends a run.
        return set()
    if query.aggregates:
        # Without GROUP BY the total is over all keys.
        return {key.path for key in query.group_by if key.path is not None}
    if query.output.form is not OutputForm.ALL or counts_every_event(query):
        # Equalities that are written out make no partition in the sense of the language.
        return {test.path for test in query.equivalences}
    return None


def _columns_of(query: BoundQuery, attribute: KeyPath, layout: Layout) -> set[KeyPath]:
    types = query.catalog.declared or ("",)
    return {(layout.column(event_type, attribute[0]), *attribute[1:]) for event_type in types}


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


def counts_every_event(query: BoundQuery) -> bool:
    """An event that no component wants may still change the answer: it ends a run, or takes a position."""
    contiguous = query.strategy in (Strategy.STRICT_CONTIGUITY, Strategy.PARTITION_CONTIGUITY)
    return contiguous or isinstance(query.window, EventWindow)


# ── Composition ────────────────────────────────────────────────────────────────────────────────────


def families(queries: Sequence[BoundQuery]) -> list[list[BoundQuery]]:
    """Queries that read each other's results, directly or through others, together; in the order given."""
    found: list[list[BoundQuery]] = []
    for query in queries:
        # Queries stand after those whose output they read, so what belongs together meets here.
        related = [
            family for family in found if any(one.into is not None and one.into in query.sources for one in family)
        ]
        joined = [one for family in related for one in family]
        found = [family for family in found if family not in related]
        found.append([*joined, query])
    order = {query.name: place for place, query in enumerate(queries)}
    return [sorted(family, key=lambda query: order[query.name]) for family in found]


def family_keys(family: Sequence[BoundQuery], plans: Mapping[str, Plan], layout: Layout) -> tuple[KeyPath, ...]:
    """The columns of the primary stream that are equal in everything that leads to one match of any of the queries."""
    own: dict[str, set[KeyPath]] = {}
    for query in family:
        plan = plans[query.name]
        if is_composed(query):
            found = {_traced(plan, part, family, own, layout) for part in plan.key}
            own[query.name] = {path for path in found if path is not None}
        else:
            own[query.name] = set(keys_of(plan, layout))
    return tuple(sorted(set.intersection(*own.values())))


def _traced(
    plan: Plan, part: KeyPart, family: Sequence[BoundQuery], own: Mapping[str, set[KeyPath]], layout: Layout
) -> KeyPath | None:
    """The one column of the primary stream that a key of a composed query comes from."""
    made = _partitioning(plan.query)
    found: set[KeyPath | None] = set()
    for component in plan.query.components:
        expression = part.expressions.get(component.position)
        if not isinstance(expression, Attribute) or expression.present_in is not None or component.types is None:
            return None
        if made is not None and expression.path not in made:
            return None
        found |= {_origin(plan.query, t, expression.path, family, own, layout) for t in component.types}
    return found.pop() if len(found) == 1 else None


def _origin(
    query: BoundQuery,
    event_type: str,
    path: KeyPath,
    family: Sequence[BoundQuery],
    own: Mapping[str, set[KeyPath]],
    layout: Layout,
) -> KeyPath | None:
    """Where an attribute of an event that a query reads comes from, if it keeps the matches of its producer apart."""
    producers = [one for one in family if one.into in query.sources and one.result_type == event_type]
    if not producers:
        return (layout.column(event_type, path[0]), *path[1:])
    found: set[KeyPath | None] = set()
    for producer in producers:
        reference = _returned(producer, path)
        if reference is None:
            return None
        component, inner = reference
        for one in producer.components[component].types or ("",):
            origin = _origin(producer, one, inner, family, own, layout)
            found.add(origin if origin in own[producer.name] else None)
    return found.pop() if len(found) == 1 else None


def _returned(producer: BoundQuery, path: KeyPath) -> tuple[int, KeyPath] | None:
    """The component and the attribute of it that a column of a match was copied from."""
    if producer.returns is None:
        for component in producer.positives:
            if component.variable == path[0] and not component.kleene and len(path) > 1:
                return component.position, path[1:]
        return None
    for column in producer.returns:
        expression = column.expression
        if column.name == path[0] and isinstance(expression, Attribute) and expression.present_in is None:
            copied = expression.at is At.SINGLE
            return (expression.component, (*expression.path, *path[1:])) if copied else None
    return None


@dataclass(frozen=True)
class SharePlan:
    """A share, with what the driver has to know of it."""

    share: Share
    keys: tuple[KeyPath, ...]  # equal in all events of one match; none: no event can be kept from any other
    columns: tuple[str, ...]
    types: frozenset[str] | None  # the only event types that can change an answer; None: all may
    outputs: dict[str, pa.Schema]
    # The plans whose roles say which events matter; None: all of them do.
    plans: tuple[Plan, ...] | None = None
    # Some of its queries read what others find.
    composed: bool = False
    # The queries are aggregates over all keys: the share tells changes, of which this program makes the totals.
    totals: Program | None = None


def plan_shares(
    program: Program,
    clock: Clock,
    apart: Callable[[Plan], Hashable] = lambda plan: None,
    *,
    spread_totals: bool = False,
    reports: bool = False,
) -> list[SharePlan]:
    """Split a program so that each part can be spread by its own key.

    Queries for which `apart` gives different values are never put together. With `spread_totals` aggregates over all
    keys are spread by key, too, and somebody has to add up what the parts tell. With `reports` a query that fails is
    reported, and the others run on.
    """
    if program.algebra:
        # What one expression finds another reads, wherever in the stream that was.
        return [_share(program, clock, keys=(), types=None, reports=reports)]
    plans = program.plans()
    groups: dict[tuple[tuple[KeyPath, ...], Hashable, bool], list[BoundQuery]] = {}
    for family in families(program.queries):
        if len(family) > 1:
            groups[family_keys(family, plans, program.layout), family[0].name, False] = family
        else:
            plan = plans[family[0].name]
            keys = keys_of(plan, program.layout)
            total_keys: tuple[KeyPath, ...] = ()
            if spread_totals and not keys and plan.counts_only and not is_composed(plan.query):
                total_keys = total_keys_of(plan, program.layout)
            group = (total_keys or keys, apart(plan), bool(total_keys))
            groups.setdefault(group, []).append(plan.query)
    shares = []
    first_query = 0
    for (keys, _, has_totals), queries in groups.items():
        part = replace(program, queries=tuple(queries))
        needed = describe(part).needed_columns
        narrow = pa.schema([field for field in program.layout.schema if field.name in needed])
        part = replace(part, layout=replace(program.layout, schema=narrow))
        composed = [query for query in queries if is_composed(query)]
        mixed = any(reads_input(query) for query in composed)
        primary = [query for query in queries if not is_composed(query)]
        types = None if mixed else _types(primary)
        made = replace(part, partial=True) if has_totals else part
        share = _share(made, clock, keys=keys, types=types, first_query=first_query, reports=reports)
        own_plans = None if mixed else tuple(plans[query.name] for query in primary)
        if has_totals:
            telling = replace(share.share, tells_changes=True)
            share = replace(share, share=telling, totals=part, outputs=dict(describe(part).output_schemas))
        shares.append(replace(share, plans=own_plans, composed=bool(composed)))
        first_query += len(queries)
    return shares


def _share(
    program: Program,
    clock: Clock,
    *,
    keys: tuple[KeyPath, ...],
    types: frozenset[str] | None,
    first_query: int = 0,
    reports: bool = False,
) -> SharePlan:
    layout = program.layout
    outputs = dict(describe(program).output_schemas)
    return SharePlan(
        share=Share(
            program=dump(program),
            columns=layout.schema.serialize().to_pybytes(),
            time=layout.time,
            queries=tuple(outputs),
            first_query=first_query,
            clock=clock,
            reports=reports,
        ),
        keys=keys,
        columns=tuple(layout.schema.names),
        types=None if layout.type is None else types,
        outputs=outputs,
    )


# ── Types ──────────────────────────────────────────────────────────────────────────────────────────


def _types(queries: Iterable[BoundQuery]) -> frozenset[str] | None:
    found: set[str] = set()
    for query in queries:
        for component in query.components:
            if counts_every_event(query) or component.types is None:
                return None
            found.update(component.types)
    return frozenset(found)
