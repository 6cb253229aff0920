"""Very many standing queries over one stream: merged automata and indexes, and a place for queries that share nothing.

Linear-plus expressions of the algebra are merged into segments: one large, and a small one for what was added since,
which is merged into the large one when it has grown. All other queries run one by one beside them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.algebra.model import Source
from ouzel.algebra.query import AlgebraQuery
from ouzel.algebra.streams import Stream, from_text
from ouzel.bind.model import EventField
from ouzel.errors import InputError, QueryError
from ouzel.kernels.cayuga_tables import INT64_MAX, Time, new_events
from ouzel.plan.linear import Planner
from ouzel.prepared import Query, as_queries, query
from ouzel.runtime.automaton_events import Batch, LaneMaker, RowFrame, fingerprints
from ouzel.runtime.automaton_machine import (
    chosen_events,
    joined_events,
)
from ouzel.runtime.automaton_results import output_type_of
from ouzel.runtime.coding import Coder
from ouzel.runtime.inputs import as_table, with_readable_time
from ouzel.runtime.layout import Layout, catalog_of, conform, layout_of_table, ticks_of
from ouzel.runtime.limits import Limits, limits_of
from ouzel.runtime.payload import Payload
from ouzel.runtime.program import event_types, make_program
from ouzel.runtime.query_groups import Group, GroupMaker, parameter_table
from ouzel.runtime.queryset_answers import collect, id_array
from ouzel.runtime.queryset_figures import bytes_of, counted, explained
from ouzel.runtime.queryset_segments import Lineage, Members, Segment, with_lanes
from ouzel.runtime.session import EARLIEST, LATEST, Session
from ouzel.runtime.values import one_array

# A delta larger than this, and than this share of the large segment, is merged into it.
_DELTA_MIN = 2048
_DELTA_SHARE = 0.25
_COMPACT_MIN = 4096


class QuerySet:
    """Standing queries, added and removed while events flow; every answer says which query it belongs to.

    A query sees the events that are later than the watermark at its registration. `bounded`: the input ends some day,
    so queries may wait without a bound on DUR.

    >>> from ouzel.algebra import stream
    >>> quotes = stream("Stock")
    >>> alerts = QuerySet(time="ts")
    >>> alerts.add("rise", quotes.rename({"price": "low"}).next(quotes, "name = name.last AND DUR <= 10"))
    >>> alerts.add_template("above", quotes.select("name = :name AND price > :limit"),
    ...     [{"id": 1, "name": "IBM", "limit": 90}, {"id": 2, "name": "IBM", "limit": 95}])
    >>> alerts.push([{"type": "Stock", "ts": 1, "name": "IBM", "price": 93}])
    {}
    >>> answers = alerts.finish()
    >>> answers["above"].to_pylist()
    [{'query': 1, 'start': 1, 'end': 1, 'name': 'IBM', 'price': 93}]
    """

    def __init__(
        self,
        *,
        time: str = "ts",
        type: str | None = "type",
        order: Collection[str] = (),
        max_delay: int | str | timedelta = 0,
        time_unit: str | None = None,
        limits: Limits | Mapping[str, int | str] | None = None,
        bounded: bool = False,
        merge: bool = True,
        schema: pa.Schema | None = None,
    ) -> None:
        self._options: dict[str, Any] = {"time": time, "type": type, "order": tuple(order), "time_unit": time_unit}
        self._max_delay = max_delay
        self._limits = limits_of(limits)
        if self._limits.drops:
            raise InputError(
                "a QuerySet stops where a limit is passed and cannot drop; leave when_passed out, or run the query "
                "that passes it in an Engine of its own"
            )
        self._bounded = bounded
        self._merge = merge
        self._waiting: list[tuple[Any, ...]] = []  # what was added before the columns were known
        self._groups: list[Group] = []
        self._fresh: dict[int, list[np.ndarray]] = {}  # rows of groups that no segment has yet
        self._segments: list[Segment] = []
        self._alone: dict[Any, tuple[Session, Any, str]] = {}
        self._places: dict[Any, tuple[Group, int]] = {}
        self._layout: Layout | None = None
        self._watermark = EARLIEST
        self._newest = EARLIEST
        self._delay_ticks = 0
        self._next_row = 0
        self._finished = False
        self.late = 0
        self.texts = Coder()
        self._type_codes = Coder()
        if schema is not None:
            self._settle(schema)

    # ── Queries ────────────────────────────────────────────────────────────────────────────────────

    def add(
        self,
        id: Any,
        query: Stream | Query | AlgebraQuery | str,
        *,
        owner: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Register one query under an id, from text, prepared, or as an expression of the algebra."""
        self._check_free([id])
        if self._layout is None:
            self._places[id] = _NOWHERE
            self._waiting.append(("one", id, query, owner, dict(params or {})))
            if isinstance(query, str):
                _prepared(query, params)
            return
        self._register(id, query, owner, dict(params or {}))

    def add_table(self, rows: Any, *, id: str = "id", text: str = "query", owner: str | None = None) -> None:
        """Register the queries of a table, one row each, with a column of ids and one of texts."""
        table, ids = parameter_table(rows, id)
        for name in (text, *([owner] if owner else [])):
            if name not in table.column_names:
                raise InputError(f"the table of queries has no column '{name}'")
        owners = table.column(owner).to_pylist() if owner else [None] * len(ids)
        for one, written, whose in zip(ids, table.column(text).to_pylist(), owners, strict=True):
            try:
                self.add(one, written, owner=whose)
            except QueryError as error:
                raise QueryError(
                    f"query '{one}': {error.message}",
                    text=error.text,
                    start=error.start,
                    end=error.end,
                    hint=error.hint,
                ) from None

    def add_template(self, name: str, template: Stream, rows: Any, *, id: str = "id", owner: str | None = None) -> None:
        """Register one query for each row of a table of parameters, which fill `:name` in the template.

        A test that only some of the queries make is written `(:low IS NULL OR price >= :low)`.
        """
        table, ids = parameter_table(rows, id)
        owners = None
        if owner is not None:
            owners = table.column(owner).to_pylist()
            table = table.drop_columns([owner])
        self._check_free(ids)
        if self._layout is None:
            self._waiting.append(("template", name, template, table, ids, owners))
            return
        self._register_template(name, template, table, ids, owners)

    def remove(self, id: Any = None, *, owner: Any = None) -> int:
        """Remove a query, or all queries of an owner; gives how many there were. What others share stays."""
        if (id is None) == (owner is None):
            raise InputError("remove(…) takes the id of a query, or owner= for all queries of an owner")
        if id is not None:
            return self._remove_one(id)
        removed = 0
        self._waiting = [
            one for one in self._waiting if one[0] != "one" or one[3] != owner or self._forget_place(one[1])
        ]
        for group in self._groups:
            if group.owners is None:
                continue
            rows = np.flatnonzero(group.alive & (group.owners == owner))
            group.alive[rows] = False
            if not group.is_template:
                for one in group.ids[rows]:
                    self._forget_place(one)
            removed += len(rows)
        mine = [one for one, (_, whose, _) in self._alone.items() if whose == owner]
        for one in mine:
            del self._alone[one]
        return removed + len(mine)

    def _forget_place(self, id: Any) -> bool:
        self._places.pop(id, None)
        return False

    def _remove_one(self, id: Any) -> int:
        if id in self._alone:
            del self._alone[id]
            return 1
        waiting = [one for one in self._waiting if one[0] == "one" and one[1] == id]
        if waiting:
            self._waiting.remove(waiting[0])
            self._places.pop(id, None)
            return 1
        found = self._find(id)
        if found is None:
            raise InputError(f"there is no query {id!r} in the set")
        group, row = found
        group.alive[row] = False
        self._places.pop(id, None)
        return 1

    def _find(self, id: Any) -> tuple[Group, int] | None:
        place = self._places.get(id)
        if place is not None and place is not _NOWHERE:
            return place
        for group in self._groups:
            rows = np.flatnonzero((group.ids == id) & group.alive)
            if len(rows):
                return group, int(rows[0])
        return None

    def _check_free(self, ids: Sequence[Any]) -> None:
        if len(ids) == 1:
            if ids[0] in self._alone or ids[0] in self._places or self._find(ids[0]) is not None:
                raise InputError(f"there is a query {ids[0]!r} in the set already; remove it first")
            return
        if _has_repetition(ids):
            raise InputError("an id stands twice in the table of queries")
        taken = set(self._places) | set(self._alone)
        if not taken and not self._groups:
            return
        for group in self._groups:
            taken |= set(group.ids[group.alive].tolist())
        both = taken & set(np.asarray(ids).tolist())
        if both:
            raise InputError(f"there is a query {sorted(map(repr, both))[0]} in the set already; remove it first")

    def __len__(self) -> int:
        waiting = sum(1 if one[0] == "one" else len(one[4]) for one in self._waiting)
        return waiting + len(self._alone) + sum(int(group.alive.sum()) for group in self._groups)

    def _register(self, id: Any, given: Any, owner: Any, params: Mapping[str, Any]) -> None:
        prepared = _prepared(given, params)
        expression = prepared.expression if isinstance(prepared, AlgebraQuery) else None
        if expression is not None:
            made = self._maker.single(id, expression, prepared.params, owner, self._watermark)
            if made is not None:
                group, is_new = made
                if is_new:
                    self._check_bounded(group)
                    self._groups.append(group)
                row = len(group.ids) - 1
                self._places[id] = (group, row)
                self._fresh.setdefault(self._number_of(group), []).append(np.array([row]))
                return
        assert self._layout is not None
        self._places.pop(id, None)
        program = make_program(
            as_queries({"query": prepared}), self._layout.schema, **self._options, limits=self._limits,
            streaming=not self._bounded,
        )  # fmt: skip
        session = Session(program)
        session.advance(self._watermark)
        self._alone[id] = (session, owner, str(id))

    def _register_template(
        self, name: str, template: Stream, table: pa.Table, ids: Sequence[Any], owners: Sequence[Any] | None
    ) -> None:
        group = self._maker.template(name, template, table, ids, owners, self._watermark)
        if group is None:
            whose = owners or [None] * len(ids)
            for one, row, owner in zip(ids, table.to_pylist(), whose, strict=True):
                self._register(one, AlgebraQuery(str(one), template, row), owner, {})
            return
        self._check_bounded(group)
        self._groups.append(group)
        self._fresh[len(self._groups) - 1] = [np.arange(len(ids))]

    def _number_of(self, group: Group) -> int:
        return next(number for number, one in enumerate(self._groups) if one is group)

    def _check_bounded(self, group: Group) -> None:
        if self._bounded or not any(branch.hops for branch in group.stream.branches):
            return
        segment = Segment([(group, np.arange(min(len(group.ids), 64)))], self._planner, self._limits, merge=False)
        if (segment.automata.life[1:] == INT64_MAX).any():
            raise QueryError(
                "on a stream next(…) and fold(…) need an upper bound on DUR",
                text=repr(group.stream.expression),
                hint="add to theta, for example: AND DUR <= 30 min; or make the set with bounded=True",
            )

    # ── Events ─────────────────────────────────────────────────────────────────────────────────────

    def push(self, events: Any) -> dict[Any, pa.Table]:
        """Take a batch of events in; gives the answers that it completes, by template or by query, none left empty."""
        newest = self.take(events)
        if newest is None:
            return {}
        self._newest = max(self._newest, newest)
        return self._advance(max(self._watermark, self._newest - self._delay_ticks - 1))

    def take(self, events: Any) -> int | None:
        """Take a batch of events in, for a later `advance` to read; gives the newest tick among them."""
        self._must_be_open()
        table = with_readable_time(as_table(events), self._options["time"])
        if self._layout is None:
            self._settle(table.schema)
        assert self._layout is not None
        table = conform(table, self._layout)
        ticks = ticks_of(table, self._layout)
        if not len(ticks):
            return None
        newest = int(ticks.max())
        on_time = ticks > self._watermark
        if not on_time.all():
            self.late += int((~on_time).sum())
            table, ticks = table.filter(pa.array(on_time)), ticks[on_time]
        self._pending.append((table, ticks))
        return newest

    def advance(self, to: int) -> dict[Any, pa.Table]:
        """Declare that everything at or before a tick has been seen, and give what that completes."""
        self._must_be_open()
        return self._advance(max(self._watermark, to)) if self._layout is not None else {}

    def finish(self) -> dict[Any, pa.Table]:
        """The stream has ended: give everything that waits."""
        self._must_be_open()
        self._finished = True
        return self._advance(LATEST) if self._layout is not None else {}

    def _must_be_open(self) -> None:
        if self._finished:
            raise InputError("this set of queries is finished; make a new one for another stream")

    def _settle(self, schema: pa.Schema, only: str | None = None) -> None:
        """The columns are known: everything that waited for them is registered.

        `only` is the type of all events where no column tells it; None: what the queries name.
        """
        from ouzel.runtime.engine import duration_ticks

        kind, time = self._options["type"], self._options["time"]
        if kind is None and only is None:
            only = next(iter(self._types_waiting()), "event")
        layout = layout_of_table(schema, time=time, type=kind, only_type=only, order=self._options["order"])
        catalog = catalog_of(layout, time_unit=self._options["time_unit"])
        self._layout = layout
        self._delay_ticks = duration_ticks(self._max_delay, catalog, "max_delay")
        self._planner = Planner(catalog.time.type, indexed=True, many_types=kind is not None)
        self._maker = GroupMaker(catalog, time, kind, self._planner, self.texts, self._type_codes)
        self._lane_maker = LaneMaker(self._planner.lanes, self.texts, self._type_codes)
        self._payload = Payload()
        self._pending: list[tuple[pa.Table, np.ndarray]] = []
        self._events = new_events(0, 0, 0)
        self._rows = np.empty(0, np.int64)
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if one[0] == "one":
                _, id, given, owner, params = one
                self._places.pop(id, None)
                self._register(id, given, owner, params)
            else:
                self._register_template(*one[1:])

    def _types_waiting(self) -> set[str]:
        found: set[str] = set()
        for one in self._waiting:
            given = one[2]
            if isinstance(given, str | Stream | Query | AlgebraQuery):
                found |= event_types(_prepared(given, one[4] if one[0] == "one" else None))
        return found

    def _advance(self, until: int) -> dict[Any, pa.Table]:
        self._watermark = until
        answers: dict[Any, list[pa.Table]] = {}
        ready = self._take_ready(until)
        self._bring_up_to_date()
        if ready is not None:
            table, ticks = ready
            for session, _, _ in self._alone.values():
                session.push(table)
            if self._segments:
                self._read(table, ticks, answers)
        for id, (session, _, _) in self._alone.items():
            (answer,) = session.advance(until).values()
            if answer.num_rows:
                tagged = answer.add_column(0, "query", id_array([id] * answer.num_rows))
                answers.setdefault(id, []).append(tagged)
        self._forget(until)
        return {name: pa.concat_tables(parts) for name, parts in answers.items()}

    def _take_ready(self, until: int) -> tuple[pa.Table, np.ndarray] | None:
        """Pending events at or before a tick, in order of time."""
        if not self._pending:
            return None
        table = pa.concat_tables([t for t, _ in self._pending]).combine_chunks()
        ticks = np.concatenate([k for _, k in self._pending])
        if (ticks[1:] < ticks[:-1]).any():
            order = np.argsort(ticks, kind="stable")
            table, ticks = table.take(pa.array(order)), ticks[order]
        ready = int(np.searchsorted(ticks, until, side="right"))
        self._pending = [(table.slice(ready), ticks[ready:])] if ready < len(ticks) else []
        return (table.slice(0, ready), ticks[:ready]) if ready else None

    def _read(self, table: pa.Table, ticks: np.ndarray, answers: dict[Any, list[pa.Table]]) -> None:
        assert self._layout is not None
        numbers = np.arange(self._next_row, self._next_row + len(ticks))
        self._next_row += len(ticks)
        batch = Batch(table, ticks, ticks, ticks, fingerprints(numbers))
        frame = RowFrame(batch, lambda name: name)
        types = None
        if self._layout.type is not None:
            types = pc.cast(one_array(table.column(self._layout.type)), pa.large_string())
        events = self._lane_maker.events(batch, None, frame, types)
        base = self._payload.append(table, ticks)
        first = len(self._rows)
        self._events = joined_events([with_lanes(self._events, events), events]) if first else events
        self._rows = np.concatenate([self._rows, np.arange(base, base + len(ticks))])
        self._lane_maker.rank(self._events)
        for segment in self._segments:
            segment.machine.events = self._events
            results = segment.machine.read(first, len(self._rows), "of the set")
            if results.count[0]:
                collect(self, segment, results, answers)

    # ── Whom results ask for their events ──────────────────────────────────────────────────────────

    def fetch(self, source: Source, events: np.ndarray) -> tuple[pa.Table, np.ndarray]:
        """A table that holds the rows of some events, and where in it they stand."""
        table, _, rows = self._payload.fetch(self._rows[events])
        return table, rows

    def column_of(self, source: Source, name: str) -> str:
        """The column of that table that holds an attribute."""
        return name

    def times(self, events: np.ndarray, field: EventField) -> np.ndarray:
        """When events began or ended."""
        found: np.ndarray = self._events.times[events, Time.START if field is EventField.START else Time.END]
        return found

    def column_type(self, source: Source, path: tuple[str, ...]) -> pa.DataType:
        """The type of an attribute, as the input has it."""
        assert self._layout is not None
        found = self._layout.schema.field(path[0]).type
        for name in path[1:]:
            found = found.field(name).type
        return found

    @property
    def time_type(self) -> pa.DataType:
        """The type of the column of times."""
        assert self._layout is not None
        return self._layout.schema.field(self._layout.time).type

    # ── Segments ───────────────────────────────────────────────────────────────────────────────────

    def _bring_up_to_date(self) -> None:
        """Put what was added into the delta, and the delta into the large segment where it has grown."""
        self._shed()
        if not self._fresh:
            return
        fresh = [(self._groups[number], np.concatenate(rows)) for number, rows in self._fresh.items()]
        self._fresh = {}
        large = self._segments[0].size if self._segments else 0
        delta = self._segments[1].size if len(self._segments) > 1 else 0
        grown = delta + sum(len(rows) for _, rows in fresh)
        if not self._segments or grown > max(_DELTA_MIN, _DELTA_SHARE * large):
            self._segments = [self._rebuilt([segment.lineage() for segment in self._segments], fresh)]
        else:
            older = [segment.lineage() for segment in self._segments[1:]]
            self._segments = [self._segments[0], self._rebuilt(older, fresh)]

    def _shed(self) -> None:
        """Build anew, without them, where most queries of a segment were removed."""
        for number, segment in enumerate(self._segments):
            alive = sum(int(group.alive[rows].sum()) for group, rows in segment.members)
            if segment.size > 64 and 2 * alive < segment.size:
                self._segments[number] = self._rebuilt([segment.lineage()], [])

    def _rebuilt(self, older: Sequence[Lineage], fresh: Members) -> Segment:
        members: dict[int, tuple[Group, list[np.ndarray]]] = {}
        for group, rows in [pair for segment in older for pair in segment.members] + fresh:
            kept = rows[group.alive[rows]]
            if len(kept):
                members.setdefault(id(group), (group, []))[1].append(kept)
        joined = [(group, np.concatenate(rows)) for group, rows in members.values()]
        segment = Segment(joined, self._planner, self._limits, merge=self._merge)
        segment.machine.events = with_lanes(self._events, self._planner.lanes)
        self._events = segment.machine.events
        segment.inherit(older)
        return segment

    def _forget(self, until: int) -> None:
        if not self._segments:
            return
        life = max(segment.life for segment in self._segments)
        if life == INT64_MAX or until == LATEST:
            return
        dead_until = max(EARLIEST, until + 1 - life)
        self._payload.forget(dead_until)
        dead = int(np.searchsorted(self._events.end, dead_until, side="right"))
        if dead > _COMPACT_MIN and 2 * dead > len(self._rows):
            from ouzel.kernels import cayuga_lists

            for segment in self._segments:
                cayuga_lists.sweep(segment.automata, segment.machine.state, until + 1)
                state = segment.machine.state
                np.maximum(state.slots - dead, 0, out=state.slots)
            self._events = chosen_events(self._events, slice(dead, None))
            self._rows = self._rows[dead:].copy()
            for segment in self._segments:
                segment.machine.events = self._events

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def snapshot(self) -> bytes:
        """The whole set as bytes, queries and all, from which `QuerySet.restore` goes on exactly here."""
        from ouzel.runtime.queryset_state import dump

        return dump(self)

    @classmethod
    def restore(cls, blob: bytes) -> QuerySet:
        """The set that a snapshot was taken of.

        >>> alerts = QuerySet()
        >>> alerts.add("high", "PATTERN Stock s WHERE s.price > 90 WITHIN 5 RETURN High(s.price AS price)")
        >>> alerts.push([{"type": "Stock", "ts": 1, "price": 93}])
        {}
        >>> QuerySet.restore(alerts.snapshot()).finish()["high"].to_pylist()
        [{'query': 'high', 'start': 1, 'end': 1, 'price': 93}]
        """
        from ouzel.runtime.queryset_state import load

        return load(blob)

    # ── What is there ──────────────────────────────────────────────────────────────────────────────

    @property
    def next_deadline(self) -> int | None:
        """The earliest tick that must pass for something held here to move; None where nothing is held for time."""
        found = [int(ticks.min()) for _, ticks in self._pending if len(ticks)] if self._layout is not None else []
        found += [d for session, _, _ in self._alone.values() if (d := session.next_deadline) is not None]
        return min(found, default=None)

    def parts(self, id: Any = None) -> Iterator[tuple[Any, Group | Session]]:
        """For each template, and each query or shape of queries, a name and what answers it; or for one query alone."""
        for group in self._groups:
            rows = group.alive if id is None else group.alive & (group.ids == id)
            if np.any(rows):
                yield group.name if group.is_template else group.ids[np.argmax(rows)], group
        for one, (session, _, _) in self._alone.items():
            if id is None or one == id:
                yield one, session

    def answer_schema(self, part: Group | Session) -> pa.Schema:
        """The columns of the answers that a part gives, after `query`."""
        if isinstance(part, Session):
            (schema,) = part.schemas.values()
            return schema
        first = part.stream.branches[0]
        columns = [pa.field(n, output_type_of(first, n, self.column_type)) for n in part.stream.columns]
        return pa.schema([pa.field("start", self.time_type), pa.field("end", self.time_type), *columns])

    @property
    def statistics(self) -> dict[str, int]:
        """What the kernel counted, over all segments."""
        sizes = {"queries": len(self), "segments": len(self._segments), "alone": len(self._alone)}
        return sizes | counted(self._segments)

    @property
    def bytes(self) -> int:
        """How much memory queries take: constants, automata and indexes, without events and instances."""
        return bytes_of(self._segments) + sum(group.bytes for group in self._groups)

    def explain(self) -> str:
        """The indexes and how large they are."""
        if self._layout is not None:
            self._bring_up_to_date()
        lines = [f"{len(self):,} queries"]
        for number, segment in enumerate(self._segments):
            title = "large segment" if number == 0 else "delta, merged into the large segment when it has grown"
            lines += ["", title, *explained(segment)]
        if self._alone:
            lines += ["", f"{len(self._alone):,} queries that share nothing run one by one"]
        return "\n".join(lines)


_NOWHERE: Any = object()


def _has_repetition(ids: Sequence[Any]) -> bool:
    array = np.asarray(ids)
    if array.dtype.kind not in "iu":
        return len(set(ids)) < len(ids)
    ordered = np.sort(array)
    return bool((ordered[1:] == ordered[:-1]).any())


def _prepared(given: Any, params: Mapping[str, Any] | None) -> Any:
    if isinstance(given, str):
        if not given.lstrip().startswith("{"):
            return query(given, params=params)
        given = from_text(given)
    (prepared,) = as_queries(given).values()
    if params and isinstance(prepared, AlgebraQuery):
        return AlgebraQuery(prepared.name, prepared.expression, {**prepared.params, **params})
    return prepared
