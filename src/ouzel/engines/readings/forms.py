"""The union of the matches of several readings, and the forms of OUTPUT over it (docs/semantics.md, "Output").

Matches of one end are ranked by the reading, then by their start, positions and component numbers. The readings give
all their matches; a form chooses among them within a partition.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.clauses import REACHED
from ouzel.bind.model import BoundQuery, TimeWindow
from ouzel.bind.patterns import overlapping
from ouzel.engines.readings.plan import POSITION, partition_column, position_column
from ouzel.lang.syntax import OutputForm
from ouzel.runtime.buffer import LATEST
from ouzel.runtime.frames import ticks_to_time
from ouzel.runtime.layout import Layout
from ouzel.runtime.operator import Answer
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.values import numbers, one_array

Partition = tuple[Any, ...]


class _Found(NamedTuple):
    """A match: its rank among those of one answer, its partition, and the positions of its events by variable."""

    row: int
    start: int
    end: int
    reading: int
    partition: Partition
    places: dict[str, list[int]]

    @property
    def positions(self) -> list[int]:
        return [position for positions in self.places.values() for position in positions]

    @property
    def rank(self) -> tuple[Any, ...]:
        numbers = [number for number, positions in enumerate(self.places.values()) for _ in positions]
        return (self.end, self.reading, self.start, self.positions, numbers)


class Union:
    """Two readings that bind the same events to the same variables give one match, of the first reading."""

    def __init__(self, query: BoundQuery) -> None:
        self._query = query
        # By their variables; readings whose variables no other reading has cannot give a match again.
        self._alike: dict[int, tuple[str, ...]] = {}
        variables = [_variables(query, reading) for reading in range(len(query.readings))]
        for later in overlapping(query.readings, query.components):
            for reading, names in enumerate(variables):
                if names == variables[later]:
                    self._alike[reading] = names

    def distinct(self, tables: Sequence[tuple[int, pa.Table]], ends: np.ndarray) -> np.ndarray | None:
        """The rows of the matches, without those that an earlier reading has given; None for all of them."""
        if not any(reading in self._alike for reading, _ in tables):
            return None
        kept: list[int] = []
        seen: set[object] = set()
        row = 0
        for reading, table in tables:
            names = self._alike.get(reading)
            if names is None:
                kept += range(row, row + table.num_rows)
            else:
                columns = [position_lists(table, name) for name in names]
                for number, places in enumerate(zip(*columns, strict=True), row):
                    match = int(ends[number]), names, tuple(map(tuple, places))
                    if match not in seen:
                        seen.add(match)
                        kept.append(number)
            row += table.num_rows
        return np.array(kept, np.int64)


def _variables(query: BoundQuery, reading: int) -> tuple[str, ...]:
    """The variables of the positive components of a reading."""
    components = [query.components[step.component] for step in query.readings[reading]]
    return tuple(component.variable for component in components if not component.negated)


class Forms(ABC):
    """A form of OUTPUT. It keeps what later choices depend on, for a window."""

    def __init__(self, query: BoundQuery) -> None:
        self._query = query
        self._window = query.window.ticks if isinstance(query.window, TimeWindow) else None

    def chosen(
        self,
        tables: Sequence[tuple[int, pa.Table]],
        starts: np.ndarray,
        ends: np.ndarray,
        rows: np.ndarray | None,
        until: int,
    ) -> np.ndarray:
        """The rows of the matches that the form keeps, in order, out of the tables of some readings. `rows` are those
        of the union, None for all."""
        among = None if rows is None else set(rows.tolist())
        given = (match for match in self._matches(tables, starts, ends) if among is None or match.row in among)
        found = sorted(given, key=lambda match: match.rank)
        kept = self._keep(found)
        if self._window is not None:
            self._evict(until - self._window)
        return np.array([match.row for match in kept], np.int64)

    @abstractmethod
    def _keep(self, ranked: list[_Found]) -> list[_Found]: ...

    @abstractmethod
    def _evict(self, before: int) -> None:
        """No later match starts at or before this tick."""

    def dump(self) -> Any:
        return None

    def load(self, head: Any) -> None:
        return

    def _matches(
        self, tables: Sequence[tuple[int, pa.Table]], starts: np.ndarray, ends: np.ndarray
    ) -> Iterator[_Found]:
        row = 0
        for reading, table in tables:
            variables = _variables(self._query, reading)
            columns = [position_lists(table, variable) for variable in variables]
            partitions = self._partitions(table, variables[0])
            for number, places in enumerate(zip(*columns, strict=True)):
                yield _Found(
                    row,
                    int(starts[row]),
                    int(ends[row]),
                    reading,
                    partitions[number],
                    dict(zip(variables, places, strict=True)),
                )
                row += 1

    def _partitions(self, table: pa.Table, first: str) -> list[Partition]:
        if not self._query.equivalences:
            return [()] * table.num_rows
        columns = [
            partition_values(table, first, number, test.path) for number, test in enumerate(self._query.equivalences)
        ]
        return [tuple(map(_comparable, values)) for values in zip(*columns, strict=True)]


def position_lists(table: pa.Table, variable: str) -> list[list[int]]:
    """The positions of the events of a variable, match by match."""
    if position_column(variable) in table.column_names:
        found = table.column(position_column(variable)).to_pylist()
        return [one if isinstance(one, list) else [one] for one in found]
    events = one_array(table.column(variable))
    if not pa.types.is_list(events.type):
        return [[position] for position in pc.struct_field(events, POSITION).to_pylist()]
    positions = pc.struct_field(events.flatten(), POSITION).to_pylist()
    ends = np.cumsum(numbers(pc.list_value_length(events), np.int32))
    return [positions[end - size : end] for end, size in zip(ends, np.diff(ends, prepend=0), strict=True)]


def partition_values(table: pa.Table, first: str, number: int, path: tuple[str, ...]) -> list[Any]:
    """The value of an equivalence test in each match, as a value that can be stored as JSON."""
    if partition_column(number) in table.column_names:
        values = one_array(table.column(partition_column(number)))
    else:
        values = one_array(table.column(first))
        if pa.types.is_list(values.type):
            values = pc.list_element(values, 0)
        for name in path:
            values = pc.struct_field(values, name)
    kind = values.type
    if pa.types.is_temporal(kind):
        values = values.cast(pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64())
    elif pa.types.is_decimal(kind):
        values = values.cast(pa.string())
    return [value.hex() if isinstance(value, bytes) else value for value in values.to_pylist()]


def _comparable(value: Any) -> Any:
    """NaN equals NaN, and -0.0 equals 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


class _NonOverlapping(Forms):
    def __init__(self, query: BoundQuery) -> None:
        super().__init__(query)
        self._ends: dict[Partition, int] = {}

    def _keep(self, ranked: list[_Found]) -> list[_Found]:
        kept = []
        for match in ranked:
            last = self._ends.get(match.partition)
            if last is None or match.start > last:
                self._ends[match.partition] = match.end
                kept.append(match)
        return kept

    def _evict(self, before: int) -> None:
        self._ends = {partition: end for partition, end in self._ends.items() if end > before}

    def dump(self) -> Any:
        return [[list(partition), end] for partition, end in self._ends.items()]

    def load(self, head: Any) -> None:
        self._ends = {tuple(partition): end for partition, end in head}


class _First(Forms):
    def __init__(self, query: BoundQuery) -> None:
        super().__init__(query)
        self._starts: dict[int, int] = {}

    def _keep(self, ranked: list[_Found]) -> list[_Found]:
        kept = []
        for match in ranked:
            if match.positions[0] not in self._starts:
                self._starts[match.positions[0]] = match.start
                kept.append(match)
        return kept

    def _evict(self, before: int) -> None:
        self._starts = {position: start for position, start in self._starts.items() if start > before}

    def dump(self) -> Any:
        return list(self._starts.items())

    def load(self, head: Any) -> None:
        self._starts = dict(map(tuple, head))


class _SkipTo(Forms):
    def __init__(self, query: BoundQuery) -> None:
        super().__init__(query)
        assert query.output.component is not None
        self._variable = query.components[query.output.component].variable
        self._which = 0 if query.output.form is OutputForm.SKIP_TO_FIRST else -1
        # The position from which matches may start, and the end of the match that set it.
        self._resume: dict[Partition, tuple[int, int]] = {}

    def _keep(self, ranked: list[_Found]) -> list[_Found]:
        kept = []
        for match in ranked:
            resume, _ = self._resume.get(match.partition, (-1, 0))
            if match.positions[0] >= resume:
                kept.append(match)
                self._resume[match.partition] = max(resume, match.places[self._variable][self._which]), match.end
        return kept

    def _evict(self, before: int) -> None:
        self._resume = {partition: found for partition, found in self._resume.items() if found[1] > before}

    def dump(self) -> Any:
        return [[list(partition), *found] for partition, found in self._resume.items()]

    def load(self, head: Any) -> None:
        self._resume = {tuple(partition): (resume, end) for partition, resume, end in head}


class _Latest(Forms):
    """All matches of one last event end at one time, so nothing is kept for later."""

    def _keep(self, ranked: list[_Found]) -> list[_Found]:
        best: dict[tuple[Partition, int], _Found] = {}
        for match in ranked:
            last = match.partition, match.positions[-1]
            if last not in best or _recency(match) > _recency(best[last]):
                best[last] = match
        return sorted(best.values(), key=lambda match: match.rank)

    def _evict(self, before: int) -> None:
        return


def _recency(match: _Found) -> tuple[int, list[int]]:
    return match.positions[0], match.positions[::-1]


class Furthest:
    """OUTPUT FURTHEST: of the runs from one event, the one that binds the most components. A complete one is returned
    at once, another one when its window has passed.

    A reading gives the first run of each length from an event, so that a run is compared with shorter and longer ones.
    """

    def __init__(self, query: BoundQuery, layout: Layout) -> None:
        assert isinstance(query.window, TimeWindow) and query.window.ticks is not None
        self._query = query
        self._layout = layout
        self._window = query.window.ticks
        # The runs that wait, the position of the first event of each, and when they start and end.
        self._held: pa.Table | None = None
        self._firsts = self._starts = self._ends = np.empty(0, np.int64)

    def chosen(
        self,
        table: pa.Table,
        starts: np.ndarray,
        ends: np.ndarray,
        given: Sequence[tuple[int, pa.Table]],
        until: int,
    ) -> Answer:
        """What is complete, and what can no longer be. `given` are the same runs by reading, with their positions."""
        new = [
            [positions[0] for positions in position_lists(rows, _variables(self._query, reading)[0])]
            for reading, rows in given
        ]
        firsts = np.concatenate([self._firsts, *new]).astype(np.int64)
        starts, ends = np.concatenate([self._starts, starts]), np.concatenate([self._ends, ends])
        table = table if self._held is None else pa.concat_tables([self._held, table])
        reached = table.column(REACHED).to_numpy()
        order = np.lexsort((-reached, firsts))
        is_best = np.ones(len(order), bool)
        is_best[1:] = firsts[order][1:] != firsts[order][:-1]
        best = order[is_best]
        complete = reached[best] == len(self._query.positives)
        deadlines = self._deadlines(starts[best])
        due = complete | (deadlines <= until)
        waiting = best[~due]
        self._held = table.take(pa.array(waiting))
        self._firsts, self._starts, self._ends = firsts[waiting], starts[waiting], ends[waiting]
        ends = np.where(complete, ends[best], deadlines)[due]
        order = np.argsort(ends, kind="stable")
        ends, returned = ends[order], best[due][order]
        rows = table.take(pa.array(returned))
        field = rows.schema.field(1)
        rows = rows.set_column(1, field, ticks_to_time(self._layout.ticks(ends), field.type))
        return Answer(rows, starts[returned], ends)

    def _deadlines(self, starts: np.ndarray) -> np.ndarray:
        """The last tick of the window of each run."""
        deadlines: np.ndarray = np.minimum(starts, LATEST - (self._window - 1)) + (self._window - 1)
        return deadlines

    @property
    def deadline(self) -> int | None:
        """When the window of the oldest run has passed."""
        return int(self._deadlines(self._starts).min()) if len(self._starts) else None

    def dump(self, writer: Writer) -> dict[str, Any] | None:
        if self._held is None:
            return None
        arrays = (self._firsts, self._starts, self._ends)
        return {"held": writer.add_table(self._held), "arrays": [writer.add_array(array) for array in arrays]}

    def load(self, reader: Reader, head: dict[str, Any] | None) -> None:
        if head is not None:
            self._held = reader.table(head["held"])
            self._firsts, self._starts, self._ends = reader.arrays(head["arrays"])


_FORMS: dict[OutputForm, Callable[[BoundQuery], Forms]] = {
    OutputForm.NON_OVERLAPPING: _NonOverlapping,
    OutputForm.FIRST: _First,
    OutputForm.LATEST: _Latest,
    OutputForm.SKIP_TO_FIRST: _SkipTo,
    OutputForm.SKIP_TO_LAST: _SkipTo,
}


def form_of(query: BoundQuery) -> Forms | None:
    """What chooses among the matches of a query; None if all are kept, or by OUTPUT FURTHEST."""
    form = _FORMS.get(query.output.form)
    return None if form is None else form(query)
