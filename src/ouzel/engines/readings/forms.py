"""The forms of OUTPUT over the matches of several readings (docs/semantics.md, "Output"), and removal of equal
matches.

Each reading returns all its matches, and a form chooses among them within each partition. Matches with the same end are
ordered by reading, then by start, positions and component numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.bind.clauses import REACHED
from ouzel.bind.model import BoundQuery, TimeWindow
from ouzel.bind.patterns import overlapping
from ouzel.engines.readings.choose import choose
from ouzel.engines.readings.union import Union, list_ranks
from ouzel.lang.syntax import OutputForm
from ouzel.runtime.buffer import LATEST
from ouzel.runtime.frames import EventFrame, ticks_to_time
from ouzel.runtime.layout import Layout
from ouzel.runtime.operator import Answer
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.values import Column, ranks


class Distinct:
    """Removes equal matches. If two readings bind the same events to the same variables, only the match of the first
    reading remains.
    """

    def __init__(self, query: BoundQuery) -> None:
        # For each reading the first one with the same variables, -1 if no other reading can give its matches.
        self._alike = np.full(len(query.readings), -1)
        components = [
            tuple(step.component for step in reading if not query.components[step.component].negated)
            for reading in query.readings
        ]
        for later in overlapping(query.readings, query.components):
            for reading, own in enumerate(components):
                if own == components[later]:
                    self._alike[reading] = components.index(own)
        self._applies = bool((self._alike >= 0).any())

    def among(self, union: Union, kept: np.ndarray) -> np.ndarray:
        """The matches without those that an earlier reading has returned too."""
        if not self._applies:
            return kept
        asked = np.sort(kept[self._alike[union.readings[kept]] >= 0])
        again = union.picked(asked)
        keys = np.stack([self._alike[again.readings], again.matches.ends, again.ranks])
        order = np.lexsort(keys)
        is_new = np.ones(len(order), bool)
        is_new[1:] = (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)
        is_kept = np.ones(union.matches.count, bool)
        is_kept[asked[order[~is_new]]] = False
        found: np.ndarray = kept[is_kept[kept]]
        return found


class Form(ABC):
    """A form of OUTPUT."""

    @abstractmethod
    def chosen(self, union: Union, kept: np.ndarray, until: int) -> np.ndarray:
        """Which matches the form chooses. They must be ordered by end; the result is in the order in which a form
        chooses.
        """

    def dump(self) -> Any:
        """The state on which later choices depend."""
        return None

    def load(self, head: Any) -> None:
        """Restore what `dump` stored."""
        assert head is None


def _ranked(union: Union, kept: np.ndarray) -> np.ndarray:
    """Matches in the order in which a form considers them."""
    kept = np.sort(kept)
    few = union.picked(kept)
    return kept[np.lexsort((few.ranks, few.matches.starts, few.readings, few.matches.ends))]


class _Latest(Form):
    """OUTPUT LATEST. It needs no state, because all matches with the same last event end at the same time."""

    def chosen(self, union: Union, kept: np.ndarray, until: int) -> np.ndarray:
        kept = np.sort(kept)
        offsets, positions = union.picked(kept).events
        # Each list backwards: its last event first.
        backwards = np.repeat(offsets[:-1] + offsets[1:] - 1, np.diff(offsets)) - np.arange(len(positions))
        recency = list_ranks(offsets, positions[backwards])
        lasts = positions[offsets[1:] - 1]
        order = np.lexsort((-recency, -positions[offsets[:-1]], lasts))
        is_best = np.ones(len(order), bool)
        is_best[1:] = lasts[order][1:] != lasts[order][:-1]
        return _ranked(union, kept[order[is_best]])


class _InTurn(Form):
    """Forms that choose a match if it comes after all that the matches chosen earlier in its group cover. The covered
    range of a group is kept for a window.
    """

    def __init__(self, query: BoundQuery, layout: Layout) -> None:
        self._query = query
        self._layout = layout
        self._form = query.output.form
        self._window = query.window.ticks if isinstance(query.window, TimeWindow) else None
        self._place = 0
        if query.output.component is not None:
            self._place = [c.position for c in query.positives].index(query.output.component)
        # By group: up to where it is covered, and since when.
        self._covered: dict[Any, tuple[int, int]] = {}

    def chosen(self, union: Union, kept: np.ndarray, until: int) -> np.ndarray:
        at, reach, since = self._extent(union)
        names, groups = self._groups(union)
        bounds = np.array([self._covered.get(name, (_NOTHING, 0))[0] for name in names], np.int64)
        # Most matches start before what others of an earlier end cover, whichever of those are kept: no need to rank
        # them.
        may = self._choose(union.matches.ends, groups, at, reach, bounds.copy(), kept)
        ranked = _ranked(union, may)
        found = self._choose(None, groups, at, reach, bounds, ranked)
        # The last match of each group, which has the latest end.
        last = np.full(len(names), -1)
        last[groups[found]] = found
        for group in np.flatnonzero(last >= 0).tolist():
            self._covered[names[group]] = int(bounds[group]), int(since[last[group]])
        if self._window is not None:
            before = until - self._window
            self._covered = {name: found for name, found in self._covered.items() if found[1] > before}
        return found

    def _extent(self, union: Union) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(at, reach, since) of each match. A match can be chosen if `at` is after the covered range. If it is chosen,
        it extends this range to `reach`. The range is kept for a window from `since` on.
        """
        matches = union.matches
        if self._form is OutputForm.NON_OVERLAPPING:
            return matches.starts, matches.ends, matches.ends
        if self._form is OutputForm.FIRST:
            nothing = np.zeros(matches.count, np.int64)
            return nothing, nothing, matches.starts
        rows = (matches.first_rows if self._form is OutputForm.SKIP_TO_FIRST else matches.last_rows)(self._place)
        return union.positions[union.first_rows], union.positions[rows] - 1, matches.ends

    def _choose(
        self,
        classes: np.ndarray | None,
        groups: np.ndarray,
        at: np.ndarray,
        reach: np.ndarray,
        bounds: np.ndarray,
        asked: np.ndarray,
    ) -> np.ndarray:
        """Choose among the matches in `asked`. Without classes, the order of all matches is known."""
        kept = np.zeros(len(asked), np.bool_)
        choose(
            np.arange(len(asked)) if classes is None else classes[asked].astype(np.int64),
            groups[asked].astype(np.int64),
            at[asked].astype(np.int64),
            reach[asked].astype(np.int64),
            bounds,
            np.empty(len(bounds), np.int64),
            kept,
        )
        found: np.ndarray = asked[kept]
        return found

    def _groups(self, union: Union) -> tuple[list[Any], np.ndarray]:
        """(names of the groups, the group of each match)."""
        first_rows = union.first_rows
        if self._form is not OutputForm.FIRST and not self._query.equivalences:
            return [()], np.zeros(len(first_rows), np.int64)
        table, ticks = union.matches.table, union.matches.ticks
        # The first events, of which there are fewer than matches.
        is_first = np.zeros(len(ticks), bool)
        is_first[first_rows] = True
        rows = np.flatnonzero(is_first)
        number = np.zeros(len(ticks), np.int64)
        if self._form is OutputForm.FIRST:
            positions, number[rows] = np.unique(union.positions[rows], return_inverse=True)
            return positions.tolist(), number[first_rows]
        frame = EventFrame(self._query, self._layout, table, ticks, lambda _: rows, len(rows))
        columns = [frame.tested(test)[0] for test in self._query.equivalences]
        _, named, groups = np.unique(
            np.stack([ranks(column) for column in columns], axis=1), axis=0, return_index=True, return_inverse=True
        )
        number[rows] = groups.reshape(-1)
        values = [_storable(column.take(pa.array(named))) for column in columns]
        return list(zip(*values, strict=True)), number[first_rows]

    def dump(self) -> Any:
        """The state on which later choices depend."""
        return [[name, *found] for name, found in self._covered.items()]

    def load(self, head: Any) -> None:
        """Restore what `dump` stored."""
        self._covered = {tuple(name) if isinstance(name, list) else name: (bound, since) for name, bound, since in head}


_NOTHING = np.iinfo(np.int64).min


def _storable(values: Column) -> list[Any]:
    """Values of an equivalence test in a form that JSON can store, and in which they are equal if the test says so."""
    kind = values.type
    if pa.types.is_temporal(kind):
        values = values.cast(pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64())
    elif pa.types.is_decimal(kind):
        values = values.cast(pa.string())
    return [_comparable(value) for value in values.to_pylist()]


def _comparable(value: Any) -> Any:
    """A value for which NaN equals NaN, and -0.0 equals 0.0."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


class Furthest:
    """OUTPUT FURTHEST: of the runs that start with one event, the one that binds the most components. A complete run is
    returned at once, an incomplete one when its window has passed.

    For each length there is a reading, which finds the first run of this length from each event.
    """

    def __init__(self, query: BoundQuery, layout: Layout) -> None:
        assert isinstance(query.window, TimeWindow) and query.window.ticks is not None
        self._length = len(query.positives)
        self._layout = layout
        self._window = query.window.ticks
        # The runs that wait, the position of the first event of each, and when they start and end.
        self._held: pa.Table | None = None
        self._firsts = self._starts = self._ends = np.empty(0, np.int64)

    def chosen(self, table: pa.Table, starts: np.ndarray, ends: np.ndarray, firsts: np.ndarray, until: int) -> Answer:
        """The complete runs, and the incomplete runs whose window has passed. `firsts` are the positions of the first
        events.
        """
        firsts = np.concatenate([self._firsts, firsts])
        starts, ends = np.concatenate([self._starts, starts]), np.concatenate([self._ends, ends])
        table = table if self._held is None else pa.concat_tables([self._held, table])
        reached = table.column(REACHED).to_numpy()
        order = np.lexsort((-reached, firsts))
        is_best = np.ones(len(order), bool)
        is_best[1:] = firsts[order][1:] != firsts[order][:-1]
        best = order[is_best]
        complete = reached[best] == self._length
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
        """The tick at which the window of the oldest incomplete run has passed; None if there is none."""
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


def form_of(query: BoundQuery, layout: Layout) -> Form | None:
    """The form that chooses among the matches of a query; None if all are kept, or if OUTPUT FURTHEST chooses."""
    if query.output.form in (OutputForm.ALL, OutputForm.COMPRESSED, OutputForm.FURTHEST):
        return None
    return _Latest() if query.output.form is OutputForm.LATEST else _InTurn(query, layout)
