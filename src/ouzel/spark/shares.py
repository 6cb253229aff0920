"""Queries grouped by the key that their events can be spread by: each group is a share, a program of its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from ouzel.bind.model import BoundQuery
from ouzel.plan.aggregate import AggregatePlan
from ouzel.plan.model import Plan
from ouzel.runtime.composition import is_composed, reads_input
from ouzel.runtime.program import Program, describe, dump
from ouzel.spark.jobs import Clock, Share
from ouzel.spark.keys import KeyPath, counts_every_event, families, family_keys, keys_of, total_keys_of


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
            if spread_totals and not keys and isinstance(plan, AggregatePlan) and not is_composed(plan.query):
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
