"""Partition keys: which columns are equal in all events of a match, and how queries are grouped by key.

All events of a key are in one partition, so each partition can be matched independently.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ouzel.algebra.model import CURRENT, BoundAlgebra, BoundStream, Branch, Iteration, sources_of
from ouzel.bind.model import At, Attribute, Bound, BoundQuery, EventWindow, Kind, Operation
from ouzel.lang.syntax import OutputForm, Strategy
from ouzel.plan.model import KeyPart, Plan
from ouzel.query_set.groups import Group
from ouzel.query_set.unmerged import Registration
from ouzel.runtime.layout import Layout
from ouzel.runtime.program import Program, columns_needed, dump, is_composed, reads_input
from ouzel.runtime.session import Session
from ouzel.spark.payloads import Clock, QueryGroup
from ouzel.spark.time_slices import is_about_single_events

if TYPE_CHECKING:
    from ouzel.query_set.api import QuerySet

KeyPath = tuple[str, ...]  # a column, and the fields to follow inside it


def keys_of(plan: Plan, layout: Layout) -> tuple[KeyPath, ...]:
    """The columns that are equal in all events that can affect one match, including negative events."""
    paths = {_common_path(plan, part, layout) for part in plan.key}
    made = _partitioning(plan.query)
    if made is not None:
        paths &= {path for attribute in made for path in _columns_of(plan.query, attribute, layout)}
    return tuple(sorted(path for path in paths if path is not None))


def total_keys_of(plan: Plan, layout: Layout) -> tuple[KeyPath, ...]:
    """The columns that are equal in all events of one match, for an aggregate over all their values."""
    return keys_of(replace(plan, query=replace(plan.query, aggregates=(), group_by=())), layout)


def _partitioning(query: BoundQuery) -> set[KeyPath] | None:
    """The attributes that divide the answers, such as those of GROUP BY. None if every attribute that must be equal
    does.
    """
    if query.is_strict:
        # An event of any partition ends a run.
        return set()
    if query.aggregates:
        # Without GROUP BY the total is over all keys.
        return {key.path for key in query.group_by if key.path is not None}
    if query.output.form is not OutputForm.ALL or counts_every_event(query):
        # Written equalities are no partition in the sense of the language.
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
            # A negative component that forbids in every partition, or a value that must be computed first.
            return None
        for event_type in plan.query.types_of(component.position):
            found.add((layout.column(event_type, expression.path[0]), *expression.path[1:]))
    return found.pop() if len(found) == 1 else None


def counts_every_event(query: BoundQuery) -> bool:
    """Whether an event that fits no component can change the answer, because it ends a run or counts as a position."""
    return query.is_strict or query.is_partition_contiguous or isinstance(query.window, EventWindow)


def keys_of_expression(query: BoundAlgebra, layout: Layout) -> tuple[KeyPath, ...]:
    """The columns that are equal in all events of each result of an expression."""
    if len(query.streams) > 1:
        # One stream reads the results of another, from any part of the input.
        return ()
    (stream,) = query.streams
    names = _key_of_stream(stream)
    if names is None:
        # Every result is one event. Those of one time may be equal.
        return ((layout.time,),)
    bases = [source.base for branch in stream.branches for source in sources_of(branch)]
    types = {base.type for base in bases if base is not None}
    known = set(query.catalog.declared or ("",)) if None in types else {one for one in types if one is not None}
    columns = [{layout.column(one, name) for one in known} for name in sorted(names)]
    return tuple((one.pop(),) for one in columns if len(one) == 1)


# ── Composition ────────────────────────────────────────────────────────────────────────────────────


def families(queries: Sequence[BoundQuery]) -> list[list[BoundQuery]]:
    """Queries that read each other's results, directly or indirectly, are in one list. Queries keep the given order."""
    found: list[list[BoundQuery]] = []
    for query in queries:
        # Queries come after those whose output they read, so all related ones are known here.
        related = [
            family for family in found if any(one.into is not None and one.into in query.sources for one in family)
        ]
        joined = [one for family in related for one in family]
        found = [family for family in found if family not in related]
        found.append([*joined, query])
    order = {query.name: place for place, query in enumerate(queries)}
    return [sorted(family, key=lambda query: order[query.name]) for family in found]


def family_keys(family: Sequence[BoundQuery], plans: Mapping[str, Plan], layout: Layout) -> tuple[KeyPath, ...]:
    """The columns of the primary stream that are equal in all events that lead to one match of any query of a
    family.
    """
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
    """The one column of the primary stream from which a key of a composed query comes; None if there is none."""
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
    """The column of the primary stream from which an attribute of a query comes, if the query separates its producer's
    matches by it.
    """
    producers = [one for one in family if one.into in query.sources and one.result_type == event_type]
    if not producers:
        return (layout.column(event_type, path[0]), *path[1:])
    found: set[KeyPath | None] = set()
    for producer in producers:
        reference = _returned(producer, path)
        if reference is None:
            return None
        component, inner = reference
        for one in producer.types_of(component):
            origin = _origin(producer, one, inner, family, own, layout)
            found.add(origin if origin in own[producer.name] else None)
    return found.pop() if len(found) == 1 else None


def _returned(producer: BoundQuery, path: KeyPath) -> tuple[int, KeyPath] | None:
    """(component, attribute) from which a column of a match was copied; None if it is computed."""
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
class QueryGroupPlan:
    """A query group, and data about it that only the driver needs."""

    group: QueryGroup
    keys: tuple[KeyPath, ...]  # equal in all events of one match; none: any two events may be in one match
    columns: tuple[str, ...]
    types: frozenset[str] | None  # the only event types that can change an answer; None: all may
    outputs: dict[str, pa.Schema]
    # The plans whose roles decide which events matter; None: all events do.
    plans: tuple[Plan, ...] | None = None
    # Some of its queries read the results of others.
    composed: bool = False
    # Of a row pattern whose partitions only the workers can compute: the expressions of its PARTITION BY.
    computed_keys: tuple[Bound, ...] = ()
    # The queries are aggregates over all keys: the group emits partial results, which this program merges.
    totals: Program | None = None


def plan_query_groups(
    program: Program,
    clock: Clock,
    apart: Callable[[Plan], Hashable] = lambda plan: None,
    *,
    merge_totals: bool = False,
    reports: bool = False,
) -> list[QueryGroupPlan]:
    """Divide a program into groups of queries, each with its own key.

    Queries for which `apart` returns different values are never in one group. With `merge_totals`, aggregates over all
    keys are distributed by key too, and emit partial results, which must be merged. With `reports`, a query that fails
    is reported, and the others continue.
    """
    plans = program.plans()
    members: dict[tuple[tuple[KeyPath, ...], Hashable, bool], list[BoundQuery]] = {}
    for family in families(program.queries):
        if len(family) > 1:
            members[family_keys(family, plans, program.layout), family[0].name, False] = family
        else:
            plan = plans[family[0].name]
            keys = keys_of(plan, program.layout)
            total_keys: tuple[KeyPath, ...] = ()
            # Moments of different parts cannot be compared.
            merges = merge_totals and not program.layout.is_ordered
            if merges and not keys and plan.counts_only and not is_composed(plan.query):
                total_keys = total_keys_of(plan, program.layout)
            members.setdefault((total_keys or keys, apart(plan), bool(total_keys)), []).append(plan.query)
    found: list[QueryGroupPlan] = []
    first_query = 0
    for (keys, _, has_totals), queries in members.items():
        part = _narrowed(replace(program, queries=tuple(queries), algebra=(), row_patterns=()))
        composed = [query for query in queries if is_composed(query)]
        mixed = any(reads_input(query) for query in composed)
        primary = [query for query in queries if not is_composed(query)]
        types = None if mixed else _types(primary)
        made = replace(part, partial=True) if has_totals else part
        planned = _group(made, clock, keys=keys, types=types, first_query=first_query, reports=reports)
        own_plans = None if mixed else tuple(plans[query.name] for query in primary)
        if has_totals:
            partial = replace(planned.group, emits_partials=True)
            planned = replace(planned, group=partial, totals=part, outputs=Session(part).schemas)
        found.append(replace(planned, plans=own_plans, composed=bool(composed)))
        first_query += len(queries)
    expressions: dict[tuple[KeyPath, ...], list[BoundAlgebra]] = {}
    for expression in program.algebra:
        expressions.setdefault(keys_of_expression(expression, program.layout), []).append(expression)
    for keys, alike in expressions.items():
        made = replace(program, queries=(), algebra=tuple(alike), row_patterns=())
        found.append(_group(made, clock, keys=keys, types=None, first_query=first_query, reports=reports))
        first_query += len(alike)
    for pattern in program.row_patterns:
        part = _narrowed(replace(program, queries=(), algebra=(), row_patterns=(pattern,)))
        keys = tuple(sorted(pattern.partition_paths))
        planned = _group(part, clock, keys=keys, types=None, first_query=first_query, reports=reports)
        if pattern.time is None:
            # The workers add the time of a table's rows.
            planned = replace(planned, columns=tuple(name for name in planned.columns if name != program.layout.time))
        if not keys:
            planned = replace(planned, computed_keys=tuple(column.expression for column in pattern.partition))
        found.append(planned)
        first_query += 1
    return found


def _narrowed(program: Program) -> Program:
    """The program with only those columns that it needs."""
    needed = columns_needed(program)
    narrow = pa.schema([field for field in program.layout.schema if field.name in needed])
    return replace(program, layout=replace(program.layout, schema=narrow))


def _group(
    program: Program,
    clock: Clock,
    *,
    keys: tuple[KeyPath, ...],
    types: frozenset[str] | None,
    first_query: int = 0,
    reports: bool = False,
) -> QueryGroupPlan:
    layout = program.layout
    outputs = Session(program).schemas
    return QueryGroupPlan(
        group=QueryGroup(
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


# ── Sets of queries ────────────────────────────────────────────────────────────────────────────────


def shared_key(sets: Iterable[QuerySet]) -> frozenset[str] | None:
    """The columns that are equal in all events of each answer of every query. None if any column is suitable."""
    found: frozenset[str] | None = None
    for held in sets:
        for _, part in held.parts():
            own = key_of(part)
            if own is not None:
                found = own if found is None else found & own
    return found


def key_of(part: Group | Registration) -> frozenset[str] | None:
    """The columns that are equal in all events of each answer of some queries. None if every answer is a single
    event.
    """
    if isinstance(part, Group):
        return _key_of_stream(part.stream)
    program = part.program
    if program.algebra:
        (expression,) = program.algebra
        # One stream reads the results of another, from any part of the input.
        return _key_of_stream(expression.streams[0]) if len(expression.streams) == 1 else frozenset()
    (plan,) = program.plans().values()
    if is_about_single_events(plan):
        return None
    return frozenset(path[0] for path in keys_of(plan, program.layout) if len(path) == 1)


def _key_of_stream(stream: BoundStream) -> frozenset[str] | None:
    keys = [_key_of_branch(branch) for branch in stream.branches if branch.steps]
    return frozenset.intersection(*keys) if keys else None


def _key_of_branch(branch: Branch) -> frozenset[str]:
    """The columns that are equal in all events of each result of a branch: at each step, the event must equal an
    earlier one in them.
    """
    return frozenset.intersection(*(_equal_columns(each) for step in branch.steps for each in step.iterations))


def _equal_columns(each: Iteration) -> frozenset[str]:
    found = set()
    pending: list[Bound] = list(each.theta)
    while pending:
        one = pending.pop()
        if not isinstance(one, Operation):
            continue
        if one.operator == "and":
            pending += one.operands
        elif one.operator == "=":
            found |= _equal_column(*one.operands)
    return frozenset(found)


def _equal_column(left: Bound, right: Bound) -> set[str]:
    if not (isinstance(left, Attribute) and isinstance(right, Attribute)) or left.path != right.path:
        return set()
    both = {left.component, right.component}
    # Equal floats, such as the two zeros, may have different hashes.
    comparable = len(left.path) == 1 and left.type.kind is not Kind.FLOAT
    return {left.path[0]} if comparable and CURRENT in both and max(both) >= 0 else set()


def why_single_task(plans: Sequence[Plan]) -> tuple[str, str]:
    """(why no key divides the events of queries, what would divide them)."""
    tested = [plan.query for plan in plans if plan.query.equivalences]
    if not tested:
        return "no equivalence test separates them", "; add an equivalence test, such as [id]"
    query = tested[0]
    test = f"[{'.'.join(query.equivalences[0].path)}]"
    if query.is_strict:
        by_step = query.strategy is Strategy.CONTIGUITY
        strict, partition = ("strict", "partition") if by_step else ("strict_contiguity", "partition_contiguity")
        return (
            f"{strict} is about all events, not only those that agree on {test}",
            f"; {partition} looks at those of each {test} alone",
        )
    if query.aggregates:
        return f"a total is over all values of {test}", "; GROUP BY gives a total for each"
    return f"an event whose type lacks the attribute of {test} may join any other events", ""
