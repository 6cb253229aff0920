"""Types and columns that queries of a set name, and that no event so far has had."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ouzel.algebra.model import PARAMETERS, REGISTERS, BoundStream, Branch
from ouzel.bind.diagnostics import listed, nearest, quoted
from ouzel.bind.model import Attribute, Bound
from ouzel.plan.expressions import walk
from ouzel.query_set.groups import Group
from ouzel.runtime.layout import Layout
from ouzel.runtime.program import Program
from ouzel.runtime.values import one_array


class Named(NamedTuple):
    """The event types that a query names, and the columns that its conditions name."""

    types: frozenset[str]
    columns: frozenset[str]


def named_by(part: Group | Program) -> Named:
    """What a query, or the queries of one shape, name."""
    streams: list[BoundStream] = []
    types: set[str] = set()
    conditions: list[Bound] = []
    if isinstance(part, Group):
        streams = [part.stream]
    else:
        streams = [stream for expression in part.algebra for stream in expression.streams]
        for query in part.queries:
            types |= {one for component in query.components for one in component.types or ()}
            conditions += [one for conjunct in query.conjuncts for one in conjunct.comparisons]
    for branch in (branch for stream in streams for branch in stream.branches):
        for source in (branch.start.source, *(step.operand.source for step in branch.steps)):
            if source.base is not None and source.base.type is not None:
                types.add(source.base.type)
        conditions += _conditions(branch)
    attributes = [p for one in conditions for p in walk(one) if isinstance(p, Attribute)]
    columns = {one.path[0] for one in attributes if one.component not in (PARAMETERS, REGISTERS)}
    return Named(frozenset(types), frozenset(columns))


def _conditions(branch: Branch) -> Iterator[Bound]:
    yield from branch.start.conditions
    for step in branch.steps:
        yield from step.operand.conditions
        for each in step.iterations:
            yield from (*each.theta, *each.keeps, *each.results)


class Unseen:
    """Watches events for the types and columns that queries name."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._any_event = False
        self._types: set[str] = set()
        self._columns: set[str] = set()
        self._came: set[str] = set()

    def expect(self, named: Named) -> None:
        """Register what a new query names."""
        if self._layout.type is not None:
            self._types |= named.types - self._came
        self._columns |= {one for one in named.columns if one in self._layout.schema.names} - self._came

    def look_at(self, table: pa.Table) -> None:
        """Record the types and columns of events. Once all that queries name has been seen, this costs nothing."""
        self._any_event |= table.num_rows > 0
        found: set[Any] = set()
        if self._types:
            found = self._types.intersection(pc.unique(one_array(table.column(self._layout.type))).to_pylist())
            self._types -= found
        came = {one for one in self._columns if table.column(one).null_count < table.num_rows}
        self._columns -= came
        self._came |= found | came

    def dump(self) -> list[Any]:
        """What `load` needs."""
        return [self._any_event, sorted(self._types), sorted(self._columns), sorted(self._came)]

    def load(self, stored: list[Any] | None) -> None:
        """Restore what `dump` stored. In older snapshots it is missing; then everything counts as seen."""
        if stored is not None:
            self._any_event = stored[0]
            self._types, self._columns, self._came = map(set, stored[1:])

    def reason(self, named: Named) -> str | None:
        """Why a query cannot have answers yet; None if there is no simple reason."""
        if not self._any_event:
            return None
        if missing := named.types & self._types:
            hint = nearest(min(missing), self._came)
            return f"no event of type {listed(map(quoted, sorted(missing)))} has come{f'; {hint}' if hint else ''}"
        if missing := named.columns & self._columns:
            return f"no event has had a value in column {listed(map(quoted, sorted(missing)))}"
        return None
