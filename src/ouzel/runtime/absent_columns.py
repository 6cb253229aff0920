"""Columns that have no value in any event of a type: perhaps attributes that the type lacks, which nobody declared.

With no types declared, every type has every column of its input. An attribute that a type lacks then counts as null,
and a comparison on it is not true, where the meaning of absent attributes would make it true (semantics 1).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.mistakes import quoted
from ouzel.bind.script import INPUT
from ouzel.plan.assumptions import attributes_read
from ouzel.runtime.program import Program

# A stream that goes on is watched for this many events, so that it costs nothing afterwards.
EVENTS_WATCHED = 100_000
_FIRST_ROWS = 1_000


class AbsentColumns:
    """Watches the events of one table whose types are not declared, and says which columns a type never fills."""

    def __init__(self, program: Program) -> None:
        self._layout = program.layout
        # Pairs of a type and a column for which no value was seen yet.
        self._waiting: dict[tuple[str, str], str] = {}
        self._occurring: set[str] = set()
        self._filled: set[str] = set()
        self._events = 0
        if program.layout.type is None or not program.queries:
            return
        for query in program.queries:
            if query.sources == (INPUT,) and query.catalog.declared is None:
                for type_name, paths in attributes_read(query).items():
                    for path in paths:
                        column = program.layout.column(type_name, path[0])
                        self._waiting.setdefault((type_name, column), query.name)

    def is_watching(self) -> bool:
        """Whether more events may change what is said."""
        return bool(self._waiting) and self._events < EVENTS_WATCHED

    def look_at(self, events: pa.Table) -> None:
        """Take note of which types have values in which columns: nearly always a few rows show all there is."""
        self._events += events.num_rows
        first = 0
        while first < events.num_rows and self._waiting:
            rows = events.num_rows if first else _FIRST_ROWS
            self._look_at(events.slice(first, rows))
            first += rows

    def _look_at(self, events: pa.Table) -> None:
        assert self._layout.type is not None
        types = events[self._layout.type]
        if not pa.types.is_string(types.type):
            types = types.cast(pa.string())
        for type_name, column in list(self._waiting):
            values = events[column]
            if values.null_count < len(values):
                self._filled.add(column)
            own = pc.equal(types, pa.scalar(type_name))
            if values.null_count == 0:
                found = pc.any(own).as_py()
            else:
                found = pc.any(pc.and_(own, pc.is_valid(values))).as_py()
            if found:
                del self._waiting[type_name, column]
            elif type_name not in self._occurring and pc.any(own).as_py():
                self._occurring.add(type_name)

    def warnings(self) -> Iterator[str]:
        """A sentence for each type and column, where other types have values; each is given once."""
        for (type_name, column), query in self._waiting.items():
            if type_name in self._occurring and column in self._filled:
                yield (
                    f"query {quoted(query)} reads {quoted(column)} of {quoted(type_name)} events, but none of them has "
                    f"a value there: it counts as null, so a comparison on it is not true. If {quoted(type_name)} does "
                    "not have this attribute, declare with types= which attributes each type has"
                )
        self._waiting = {}
