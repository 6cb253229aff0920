"""Queries grouped by the key that their events can be spread by: each group is a share, a program of its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from ouzel.bind.model import Attribute, BoundQuery, EventWindow
from ouzel.lang.syntax import OutputForm, Strategy
from ouzel.plan.model import KeyPart, Plan
from ouzel.runtime.composition import is_composed
from ouzel.runtime.layout import Layout
from ouzel.runtime.program import Program, describe, dump
from ouzel.spark.worker import Clock, Share

KeyPath = tuple[str, ...]  # a column, and the fields to follow inside it


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


def plan_shares(
    program: Program, clock: Clock, apart: Callable[[Plan], Hashable] = lambda plan: None
) -> list[SharePlan]:
    """Split a program so that each part can be spread by its own key.

    Queries for which `apart` gives different values are never put together.
    """
    if program.algebra or any(is_composed(query) for query in program.queries):
        # What one query finds another reads, wherever in the stream that was.
        return [_share(program, clock, keys=(), types=None)]
    plans = program.plans()
    groups: dict[tuple[tuple[KeyPath, ...], Hashable], list[BoundQuery]] = {}
    for query in program.queries:
        plan = plans[query.name]
        groups.setdefault((_keys(plan, program.layout), apart(plan)), []).append(query)
    shares = []
    first_query = 0
    for (keys, _), queries in groups.items():
        part = replace(program, queries=tuple(queries))
        needed = describe(part).needed_columns
        narrow = pa.schema([field for field in program.layout.schema if field.name in needed])
        part = replace(part, layout=replace(program.layout, schema=narrow))
        share = _share(part, clock, keys=keys, types=_types(queries), first_query=first_query)
        shares.append(replace(share, plans=tuple(plans[query.name] for query in queries)))
        first_query += len(queries)
    return shares


def _share(
    program: Program,
    clock: Clock,
    *,
    keys: tuple[KeyPath, ...],
    types: frozenset[str] | None,
    first_query: int = 0,
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
        ),
        keys=keys,
        columns=tuple(layout.schema.names),
        types=None if layout.type is None else types,
        outputs=outputs,
    )


# ── Keys ───────────────────────────────────────────────────────────────────────────────────────────


def _keys(plan: Plan, layout: Layout) -> tuple[KeyPath, ...]:
    """The columns that are equal in all events, negative ones included, that have to do with one match."""
    paths = {_common_path(plan, part, layout) for part in plan.key}
    made = _partitioning(plan.query)
    if made is not None:
        paths &= {path for attribute in made for path in _columns_of(plan.query, attribute, layout)}
    return tuple(sorted(path for path in paths if path is not None))


def _partitioning(query: BoundQuery) -> set[KeyPath] | None:
    """The attributes by which answers fall apart, where not every equality between events will do; None: it will."""
    if query.strategy is Strategy.STRICT_CONTIGUITY:
        # An event of any partition ends a run.
        return set()
    if query.aggregates:
        # Without GROUP BY the total is over all keys.
        return {key.path for key in query.group_by if key.path is not None}
    if query.output.form is not OutputForm.ALL or _counts_every_event(query):
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


# ── Types ──────────────────────────────────────────────────────────────────────────────────────────


def _types(queries: Iterable[BoundQuery]) -> frozenset[str] | None:
    found: set[str] = set()
    for query in queries:
        for component in query.components:
            if _counts_every_event(query) or component.types is None:
                return None
            found.update(component.types)
    return frozenset(found)


def _counts_every_event(query: BoundQuery) -> bool:
    """An event that no component wants may still change the answer: it ends a run, or takes a position."""
    contiguous = query.strategy in (Strategy.STRICT_CONTIGUITY, Strategy.PARTITION_CONTIGUITY)
    return contiguous or isinstance(query.window, EventWindow)
