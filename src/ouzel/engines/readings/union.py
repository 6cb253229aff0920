"""The matches of all readings as arrays: rows of one table, and the positions of these rows in stream order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from ouzel.bind.model import BoundQuery
from ouzel.engines.readings.plan import POSITION
from ouzel.kernels.order import COMPONENTS_MAX, first_disorder
from ouzel.runtime.output import Matches, Places, UnitedMatches
from ouzel.runtime.values import numbers, one_array

_INT64_MIN = np.iinfo(np.int64).min
_BLOCK_MATCHES = 1 << 16


@dataclass(frozen=True)
class Union:
    """The matches of several readings, one reading after the other."""

    matches: UnitedMatches
    # The same matches with the numbers of their readings, as rows of the same table.
    parts: Sequence[tuple[int, Places | Matches]]

    @cached_property
    def readings(self) -> np.ndarray:
        """For each match, the number of its reading."""
        return np.repeat([number for number, _ in self.parts], [part.count for _, part in self.parts])

    @cached_property
    def positions(self) -> np.ndarray:
        """The position of each row of the table in stream order."""
        return numbers(one_array(self.matches.table.column(POSITION)))

    @cached_property
    def first_rows(self) -> np.ndarray:
        """The row of the first event of each match."""
        return np.concatenate([part.first_rows(0) for _, part in self.parts])

    def picked(self, kept: np.ndarray) -> Union:
        """Some of the matches, in the order of the union."""
        kept = np.sort(kept)
        parts: list[tuple[int, Places | Matches]] = []
        first = 0
        for number, part in self.parts:
            low, high = np.searchsorted(kept, (first, first + part.count))
            parts.append((number, part.picked(kept[low:high] - first)))
            first += part.count
        return Union(self.matches.picked(kept), parts)

    @cached_property
    def events(self) -> tuple[np.ndarray, np.ndarray]:
        """(offsets, positions) of the events of all matches."""
        lengths = [part.listed[0].sum(axis=1, dtype=np.int64) for _, part in self.parts]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths))])
        return offsets, self.positions[np.concatenate([part.listed[1] for _, part in self.parts])]

    @cached_property
    def ranks(self) -> np.ndarray:
        """The ranks of the matches by their positions, then by their component numbers."""
        offsets, positions = self.events
        # A match that is a beginning of another comes first, so numbers are smaller than positions.
        items = np.empty(2 * len(positions), np.int64)
        lengths = np.diff(offsets)
        at = np.arange(len(positions)) + np.repeat(offsets[:-1], lengths)
        items[at] = positions
        items[at + np.repeat(lengths, lengths)] = self._components - COMPONENTS_MAX
        return list_ranks(2 * offsets, items)

    @property
    def _components(self) -> np.ndarray:
        """For each event, the number of its component in its reading."""
        found = []
        for _, part in self.parts:
            lengths, _ = part.listed
            found.append(np.repeat(np.tile(np.arange(lengths.shape[1]), len(lengths)), lengths.reshape(-1)))
        return np.concatenate(found)


class Unite:
    """Combines the matches of all readings in one union."""

    def __init__(self, query: BoundQuery, fields: Sequence[pa.Field]) -> None:
        self._fields = fields
        self._components = query.positives
        # The place of each positive component in each reading.
        self._places: list[dict[int, int]] = []
        for reading in query.readings:
            own = [step.component for step in reading if not query.components[step.component].negated]
            self._places.append({component: place for place, component in enumerate(own)})
        # The first positive component that every reading has.
        in_all = (p for p, c in enumerate(query.positives) if all(c.position in places for places in self._places))
        self._common = next(in_all, None)

    def __call__(self, found: Sequence[tuple[int, Places | Matches]]) -> Union:
        """All matches."""
        return self._united(*self._in_one_table(found))

    def in_blocks(self, found: Sequence[tuple[int, Places | Matches]]) -> Iterator[Union]:
        """The matches in blocks of time, of which one uses the memory of the one before it. Matches of one end are in
        one block."""
        table, ticks, parts = self._in_one_table(found)
        ends = [part.ends for _, part in parts if part.ends is not None]
        assert len(ends) == len(parts), "readings give the ends of their matches"
        if sum(map(len, ends)) <= _BLOCK_MATCHES or any(first_disorder(one) >= 0 for one in ends):
            yield self._united(table, ticks, parts)
            return
        # Every so many ends of each part.
        sample = np.sort(np.concatenate([one[:: _BLOCK_MATCHES >> 6] for one in ends]))
        lasts = np.unique(sample[64::64]).tolist()
        bounds = [[0, *np.searchsorted(one, lasts, side="right").tolist(), len(one)] for one in ends]
        for block in range(len(lasts) + 1):
            slices = [
                (number, part.sliced(*at[block : block + 2]))
                for (number, part), at in zip(parts, bounds, strict=True)
                if at[block] < at[block + 1]
            ]
            if slices:
                yield self._united(table, ticks, slices)

    def _united(self, table: pa.Table, ticks: np.ndarray, parts: Sequence[tuple[int, Places | Matches]]) -> Union:
        places = [(self._lists if c.kleene else self._rows)(c.position, parts) for c in self._components]
        starts, ends = (np.concatenate([getattr(part, name) for _, part in parts]) for name in ("starts", "ends"))
        return Union(UnitedMatches(table, ticks, places, starts, ends, self._common), parts)

    def _rows(self, component: int, parts: Sequence[tuple[int, Places | Matches]]) -> np.ndarray:
        found = []
        for number, part in parts:
            place = self._places[number].get(component)
            found.append(np.full(part.count, -1, np.int32) if place is None else part.all_rows(place))
        return np.concatenate(found)

    def _lists(self, component: int, parts: Sequence[tuple[int, Places | Matches]]) -> tuple[np.ndarray, np.ndarray]:
        counts, rows = [np.zeros(1, np.int64)], [np.empty(0, np.int32)]
        for number, part in parts:
            place = self._places[number].get(component)
            if place is None:
                counts.append(np.zeros(part.count, np.int64))
            else:
                counts.append(part.listed[0][:, place].astype(np.int64))
                rows.append(part.all_rows(place))
        return np.cumsum(np.concatenate(counts)), np.concatenate(rows)

    def _in_one_table(
        self, found: Sequence[tuple[int, Places | Matches]]
    ) -> tuple[pa.Table, np.ndarray, list[tuple[int, Places | Matches]]]:
        """The rows of all matches in one table. The readings of an input that is not copied have the same one."""
        first: dict[int, int] = {}
        tables, ticks = [], []
        moved: list[tuple[int, Places | Matches]] = []
        rows = 0
        for number, part in found:
            if id(part.table) not in first:
                first[id(part.table)] = rows
                tables.append(self._with_columns(part.table, len(part.ticks)))
                ticks.append(part.ticks)
                rows += len(part.ticks)
            base = first[id(part.table)]
            moved.append((number, part.moved(base) if base else part))
        if len(tables) == 1:
            return tables[0], ticks[0], moved
        return pa.concat_tables(tables).combine_chunks(), np.concatenate(ticks), moved

    def _with_columns(self, table: pa.Table, rows: int) -> pa.Table:
        """The columns of a reading's variables, with nulls for those of other readings."""
        names = table.column_names
        if all(field.name in names for field in self._fields):
            return table.select([field.name for field in self._fields])
        columns = [
            table.column(field.name) if field.name in names else pa.nulls(rows, field.type) for field in self._fields
        ]
        return pa.table(columns, schema=pa.schema(self._fields))


def list_ranks(offsets: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For each list the number of lists before it in lexicographic order; equal lists have one rank.

    >>> list_ranks(np.array([0, 2, 3, 5, 7]), np.array([1, 5, 1, 0, 9, 1, 5])).tolist()
    [2, 1, 0, 2]
    """
    found = np.zeros(len(offsets) - 1, np.int64)
    # Lists that are equal so far, of which some may go on.
    tied = np.arange(len(found))
    step = 0
    while len(tied):
        at = offsets[tied] + step
        goes_on = at < offsets[tied + 1]
        items = np.where(goes_on, values[np.minimum(at, len(values) - 1)], _INT64_MIN)
        order = np.lexsort((items, found[tied]))
        tied, items, goes_on = tied[order], items[order], goes_on[order]
        groups = found[tied]
        is_new_group = np.concatenate([[True], groups[1:] != groups[:-1]])
        is_new = is_new_group | np.concatenate([[True], items[1:] != items[:-1]])
        places = np.arange(len(tied))
        starts = np.maximum.accumulate(np.where(is_new, places, 0))
        found[tied] = groups + starts - np.maximum.accumulate(np.where(is_new_group, places, 0))
        is_alone = is_new & np.concatenate([is_new[1:], [True]])
        tied = tied[~is_alone & goes_on]
        step += 1
    return found
