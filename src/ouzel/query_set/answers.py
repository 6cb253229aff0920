"""The results of merged automata as answers of queries: each names its query, and may show that query's parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ouzel.algebra.model import PARAMETERS, Source, may_repeat
from ouzel.bind.model import Attribute
from ouzel.engines.automata.output import Host, ResultFrame, output_type_of, without_repetitions
from ouzel.engines.automata.staging import Batch, fingerprints
from ouzel.engines.automata.tables import Results, Time
from ouzel.query_set.groups import Group
from ouzel.query_set.segments import Segment
from ouzel.runtime.frames import ticks_to_time
from ouzel.runtime.values import one_array, to_engine


class SetHost(Host, Protocol):
    """Holds the events that answers refer to, and knows the types of their columns."""

    @property
    def time_type(self) -> pa.DataType:
        """The type of the time column."""

    def column_type(self, source: Source, path: tuple[str, ...]) -> pa.DataType:
        """The type of an attribute, as the input has it."""


def collect(host: SetHost, segment: Segment, results: Results, answers: dict[Any, list[pa.Table]]) -> None:
    """Add the results of a segment to the answers, by template or by query."""
    places, tags = segment.expanded(results)
    for number in np.unique(tags[:, 0]).tolist():
        group, _ = segment.members[number]
        mine = tags[:, 0] == number
        rows, branches, where = tags[mine, 2], tags[mine, 1], places[mine]
        # Merged nodes have instances from before a younger query was registered.
        seen = group.alive[rows] & (results.times[where, Time.FIRST_END] > group.registered[rows])
        rows, branches, where = rows[seen], branches[seen], where[seen]
        if not len(rows):
            continue
        if group.is_template:
            answers.setdefault(group.name, []).append(_answer(host, group, results, where, rows, branches))
            continue
        for alike in _of_one_type(group.ids[rows]):
            table = _answer(host, group, results, where[alike], rows[alike], branches[alike])
            for id, part in _by_query(table):
                answers.setdefault(id, []).append(part)


def _of_one_type(ids: np.ndarray) -> Iterable[slice | np.ndarray]:
    """The places of the ids of each type: 7 and '7' are different queries, which one column could not distinguish."""
    kinds = [type(id) for id in ids.tolist()]
    if len(set(kinds)) == 1:
        return [slice(None)]
    return [np.array([one is kind for one in kinds]) for kind in dict.fromkeys(kinds)]


def _answer(
    host: SetHost, group: Group, results: Results, where: np.ndarray, rows: np.ndarray, branches: np.ndarray
) -> pa.Table:
    """The answers of a group's queries as one table."""
    time = host.time_type
    parts = []
    for branch in np.unique(branches).tolist():
        mine = branches == branch
        bound = group.stream.branches[branch]
        frame = _TaggedFrame(host, bound, results, where[mine], group.table, rows[mine])
        columns = {
            name: frame.shown(value, output_type_of(bound, name, host.column_type), value.type)
            for name, value in ((n, bound.columns[n]) for n in group.stream.columns)
        }
        times = results.times[where[mine]]
        ids = id_array(group.ids[rows[mine]])
        made = {"query": ids, "start": ticks_to_time(times[:, Time.START].copy(), time)}
        made["end"] = ticks_to_time(times[:, Time.END].copy(), time)
        table = pa.table({**made, **columns})
        if not may_repeat(group.stream):
            return table
        parts.append((table, times, rows[mine]))
    schema = parts[0][0].schema
    whole = pa.concat_tables([t.cast(schema) for t, _, _ in parts]).combine_chunks()
    times = np.concatenate([t for _, t, _ in parts])
    # Two queries may have the same result; then each of them gets it.
    marks = fingerprints(np.concatenate([r for _, _, r in parts]).astype(np.int64))
    batch = Batch(whole, times[:, 0], times[:, 1], times[:, 2], times[:, Time.PRINT :] + marks)
    return without_repetitions(batch).table


class _TaggedFrame(ResultFrame):
    """Results of a template's queries; RETURN may also name their parameters."""

    def __init__(
        self, host: SetHost, branch: Any, results: Results, places: np.ndarray, table: pa.Table, rows: np.ndarray
    ) -> None:
        super().__init__(host, branch, results, places)
        self._parameters = table
        self._rows = rows

    def attribute(self, reference: Attribute) -> pa.Array:
        if reference.component == PARAMETERS:
            return to_engine(self._parameters.column(reference.path[0]).take(pa.array(self._rows)), reference.type)
        return super().attribute(reference)


def id_array(ids: Iterable[Any]) -> pa.Array:
    """Ids as a column: of their own type, or as text if they have no common type."""
    values = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([str(value) for value in values])


def _by_query(table: pa.Table) -> Iterable[tuple[Any, pa.Table]]:
    """A table with the answers of several queries, split by query."""
    coded = one_array(table.column("query")).dictionary_encode()
    codes = coded.indices.to_numpy()
    if (codes[1:] < codes[:-1]).any():
        order = np.argsort(codes, kind="stable")
        table, codes = table.take(pa.array(order)), codes[order]
    first = np.searchsorted(codes, np.arange(len(coded.dictionary) + 1))
    for number, value in enumerate(coded.dictionary.to_pylist()):
        yield value, table.slice(first[number], first[number + 1] - first[number])
