"""`QuerySet`: very many standing queries over one stream. Most are merged into automata with indexes; others run in
sessions.

`merged` holds linear-plus expressions of the algebra and short sequences. `unmerged` runs all other queries in
sessions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.algebra.query import AlgebraQuery
from ouzel.algebra.streams import Stream, from_text
from ouzel.bind.model import BoundQuery
from ouzel.errors import InputError, OuzelError, ProblemWarning, QueryError
from ouzel.prepared import Query, as_queries, query
from ouzel.query_set.groups import Group, parameter_table
from ouzel.query_set.merged import Merged
from ouzel.query_set.registry import Pending, PendingQuery, PendingTemplate, check_id, naming, plain_ids, without
from ouzel.query_set.statistics import bytes_of, counted, explained, some
from ouzel.query_set.unmerged import Registration, UnmergedQueries
from ouzel.runtime.calls import Calls, exclusive
from ouzel.runtime.codes import Coder
from ouzel.runtime.engine import checked_delay, duration_ticks
from ouzel.runtime.inputs import as_table, is_rows, with_missing_columns, with_readable_time
from ouzel.runtime.layout import Layout, catalog_of, conform, layout_of_table, tick_of, ticks_of
from ouzel.runtime.limits import Limits, limits_of
from ouzel.runtime.problems import Answers, Problem, shown_time
from ouzel.runtime.program import check_columns, event_types, make_program
from ouzel.runtime.session import EARLIEST, LATEST, Session


class QuerySet:
    """Standing queries that are added and removed while events flow; every answer names its query.

    A query sees the events after the watermark at its registration. `bounded`: the input will end, so queries may wait
    without a bound on DUR. Several threads may call one set: each call waits for the one before it.

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
        limits: Limits | Mapping[str, int] | None = None,
        bounded: bool = False,
        merge: bool = True,
        schema: pa.Schema | None = None,
    ) -> None:
        order = check_columns(time, type, order, time_unit)
        self._options: dict[str, Any] = {"time": time, "type": type, "order": order, "time_unit": time_unit}
        self._max_delay = checked_delay(max_delay)
        self._limits = limits_of(limits)
        self._bounded = bounded
        self._merge = merge
        self._registrations: list[Pending] = []  # added before the columns were known
        self._places: dict[Any, tuple[Group, int]] = {}
        self._layout: Layout | None = None
        self._merged: Merged | None = None  # as soon as the columns are known
        self._unmerged = UnmergedQueries()
        self._pending_events: list[tuple[pa.Table, np.ndarray]] = []
        self._watermark = EARLIEST
        self._newest = EARLIEST
        self._delay_ticks = 0
        self._finished = False
        self._calls = Calls()
        self._problem: Problem | None = None  # of the merged queries together
        self._warned = 0
        self.late = 0
        if schema is not None:
            self._bind_schema(schema)

    # ── Queries ────────────────────────────────────────────────────────────────────────────────────

    @exclusive
    def add(
        self,
        id: Any,
        query: Stream | Query | AlgebraQuery | str,
        *,
        owner: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Register one query under an id, from text, prepared, or as an expression of the algebra."""
        self._calls.call(self._add, id, query, owner, params)

    def _add(
        self, id: Any, query: Stream | Query | AlgebraQuery | str, owner: Any, params: Mapping[str, Any] | None
    ) -> None:
        self._must_be_open()
        check_id(id)
        self._check_free([id])
        if self._layout is None:
            _prepared(query, params)
            self._places[id] = _NOWHERE
            self._registrations.append(PendingQuery(id, query, owner, dict(params or {})))
            return
        self._register(id, query, owner, dict(params or {}))

    @exclusive
    def add_table(self, rows: Any, *, id: str = "id", text: str = "query", owner: str | None = None) -> None:
        """Register the queries of a table, one per row, with a column of ids and one of texts; all of them or none."""
        self._calls.call(self._add_table, rows, id, text, owner)

    def _add_table(self, rows: Any, id: str, text: str, owner: str | None) -> None:
        table, ids = parameter_table(rows, id)
        if not len(ids):
            return
        _check_columns(table, (text, *([owner] if owner else [])))
        self._check_free(ids)
        owners = table.column(owner).to_pylist() if owner else [None] * len(ids)
        added: list[Any] = []
        try:
            for one, written, whose in zip(plain_ids(ids), table.column(text).to_pylist(), owners, strict=True):
                with naming(f"query '{one}'"):
                    self._add(one, written, whose, None)
                added.append(one)
        except OuzelError:
            for one in added:
                self._remove_one(one)
            raise

    @exclusive
    def add_template(self, name: str, template: Stream, rows: Any, *, id: str = "id", owner: str | None = None) -> None:
        """Register one query for each row of a table of parameters, which fill `:name` in the template.

        A test that only some of the queries make is written `(:low IS NULL OR price >= :low)`.
        """
        self._calls.call(self._add_template, name, template, rows, id, owner)

    def _add_template(self, name: str, template: Stream, rows: Any, id: str, owner: str | None) -> None:
        self._must_be_open()
        if not isinstance(name, str):
            raise InputError(f"the name of a template is a text, not {name!r}")
        if not isinstance(template, Stream):
            raise InputError(
                "a template is an expression of ouzel.algebra; queries as text are added with add(…, params=…), "
                "or as a table of texts with add_table"
            )
        table, ids = parameter_table(rows, id)
        if not len(ids):
            return
        owners = None
        if owner is not None:
            _check_columns(table, (owner,))
            owners = table.column(owner).to_pylist()
            table = table.drop_columns([owner])
        self._check_free(ids)
        if self._layout is None:
            self._places |= dict.fromkeys(plain_ids(ids), _NOWHERE)
            self._registrations.append(PendingTemplate(name, template, table, ids, owners))
            return
        self._register_template(name, template, table, ids, owners)

    @exclusive
    def remove(self, id: Any = None, *, owner: Any = None) -> int:
        """Remove a query, or all queries of an owner; returns how many there were. Parts shared with other queries
        stay."""
        if (id is None) == (owner is None):
            raise InputError("remove(…) takes the id of a query, or owner= for all queries of an owner")
        return self._calls.call(self._remove_one, id) if id is not None else self._calls.call(self._remove_of, owner)

    def _remove_of(self, owner: Any) -> int:
        self._registrations, removed = without(self._registrations, owner=owner)
        if self._merged is not None:
            removed += self._merged.remove_of(owner)
        for one in removed:
            self._places.pop(one, None)
        mine = [one for one, registration in self._unmerged.items() if registration.owner == owner]
        for one in mine:
            self._unmerged.remove(one)
        return len(removed) + len(mine)

    def _remove_one(self, id: Any) -> int:
        check_id(id)
        if id in self._unmerged:
            self._unmerged.remove(id)
            return 1
        self._registrations, removed = without(self._registrations, id=id)
        found = None if removed else self._find(id)
        if not removed and found is None:
            raise InputError(f"there is no query {id!r} in the set")
        if found is not None:
            group, row = found
            group.alive[row] = False
        self._places.pop(id, None)
        return 1

    def _find(self, id: Any) -> tuple[Group, int] | None:
        place = self._places.get(id)
        if place is not None and place is not _NOWHERE:
            return place
        return None if self._merged is None else self._merged.find(id)

    def _check_free(self, ids: Sequence[Any]) -> None:
        if len(ids) == 1:
            if ids[0] in self._unmerged or ids[0] in self._places or self._find(ids[0]) is not None:
                raise InputError(f"there is a query {plain_ids(ids)[0]!r} in the set already; remove it first")
            return
        if _has_repetition(ids):
            raise InputError("duplicate id in the table of queries; give each query its own id")
        groups = [] if self._merged is None else self._merged.groups
        taken = set(self._places) | {one for one, _ in self._unmerged.items()}
        if not taken and not groups:
            return
        for group in groups:
            taken |= set(group.ids[group.alive].tolist())
        both = taken & set(np.asarray(ids).tolist())
        if both:
            raise InputError(f"there is a query {sorted(map(repr, both))[0]} in the set already; remove it first")

    @exclusive
    def __len__(self) -> int:
        return self._length()

    def _length(self) -> int:
        pending = sum(len(one.ids) for one in self._registrations)
        return pending + len(self._unmerged) + (0 if self._merged is None else len(self._merged))

    def _register(self, id: Any, given: Any, owner: Any, params: Mapping[str, Any]) -> None:
        assert self._layout is not None and self._merged is not None
        if self._templates(id):
            raise InputError(f"there is a template {id!r} in the set, whose answers come by that name; take another id")
        prepared = _prepared(given, params)
        if isinstance(prepared, AlgebraQuery):
            origin = AlgebraQuery(str(id), prepared.expression, prepared.params)
            made = self._merged.maker.single(id, origin, owner, self._watermark)
            if made is not None:
                self._take_single(id, *made)
                return
        elif prepared.tree.threshold is not None:
            raise QueryError("a QuerySet cannot run a query with THRESHOLD", hint="use ouzel.Engine or ouzel.match")
        self._places.pop(id, None)
        program = make_program(
            as_queries({"query": prepared}), self._layout.schema, **self._options, limits=self._limits,
            streaming=not self._bounded,
        )  # fmt: skip
        if any("query" in _answer_columns(bound) for bound in program.queries):
            raise QueryError(
                f"the answers of a set have a column 'query' with the id, and query '{id}' gives another of that name",
                hint="write AS and another name for it in RETURN",
            )
        if program.queries and prepared.types is None:
            made = self._merged.pattern(id, program.queries[0], owner, self._watermark)
            if made is not None:
                self._take_single(id, *made)
                return
        self._unmerged.add(id, program, owner, self._watermark)

    def _take_single(self, id: Any, group: Group, is_new: bool) -> None:
        assert self._merged is not None
        if is_new:
            try:
                self._check_new(group)
            except QueryError:
                self._merged.maker.discard(group)
                raise
        row = len(group.ids) - 1
        self._places[id] = (group, row)
        self._merged.add(group, np.array([row]), is_new=is_new)

    def _register_template(
        self, name: str, template: Stream, table: pa.Table, ids: Sequence[Any], owners: Sequence[Any] | None
    ) -> None:
        assert self._merged is not None
        group = self._merged.maker.template(name, template, table, ids, owners, self._watermark)
        if group is None:
            whose = owners or [None] * len(ids)
            for one, row, owner in zip(ids, table.to_pylist(), whose, strict=True):
                self._register(one, AlgebraQuery(str(one), template, row), owner, {})
            return
        self._check_new(group)
        self._check_name(group)
        self._merged.add(group, np.arange(len(ids)), is_new=True)

    def _check_name(self, group: Group) -> None:
        """Refuse a name that is in use: answers come by the names of templates and the ids of other queries."""
        assert self._merged is not None
        if group.name in self._unmerged or group.name in self._places:
            raise InputError(f"there is a query {group.name!r} in the set already; give the template another name")
        schema, kind = self._merged.schema_of(group.stream), type(group.ids[0])
        for one in self._templates(group.name):
            if self._merged.schema_of(one.stream) != schema or type(one.ids[0]) is not kind:
                raise InputError(
                    f"there is a template {group.name!r} in the set already, whose answers have other columns or ids "
                    "of another type; give this one another name"
                )

    def _templates(self, name: Any) -> list[Group]:
        groups = [] if self._merged is None else self._merged.groups
        return [group for group in groups if group.is_template and group.name == name and group.alive.any()]

    def _check_new(self, group: Group) -> None:
        """Check that a new shape of queries waits for a bounded time, and that its columns do not collide with those of
        all answers."""
        assert self._merged is not None
        taken = {"query", "start", "end"} & set(group.stream.columns)
        if taken:
            raise QueryError(
                f"the answers have a column '{min(taken)}' of their own, and the stream an attribute of that name",
                hint="rename it or project it away",
            )
        if self._bounded or not isinstance(group.origin, AlgebraQuery) or self._merged.is_bounded(group):
            return
        raise QueryError(
            "on a stream next(…) and fold(…) need an upper bound on DUR",
            text=repr(group.stream.expression),
            hint="add to theta, for example: AND DUR <= 30 min; or make the set with bounded=True",
        )

    # ── Events ─────────────────────────────────────────────────────────────────────────────────────

    @exclusive
    def push(self, events: Any) -> dict[Any, pa.Table]:
        """Take in a batch of events and return the answers that it completes, by template or by query, without empty
        ones.

        A query that stops because of an error of its own is reported by a ProblemWarning and by `problems()`.
        """
        self._calls.complete()
        return self._answered(self._push, self._read(events))

    def _push(self, events: tuple[pa.Table, np.ndarray] | None) -> dict[Any, pa.Table]:
        newest = None if events is None else self._take(*events)
        if newest is None:
            return {}
        self._newest = max(self._newest, newest)
        return self._advance(max(self._watermark, self._newest - self._delay_ticks - 1))

    @exclusive
    def take(self, events: Any) -> int | None:
        """Take in a batch of events, which a later `advance` reads; returns the newest tick among them."""
        self._calls.complete()
        read = self._read(events)
        return None if read is None else self._calls.call(self._take, *read)

    def _read(self, events: Any) -> tuple[pa.Table, np.ndarray] | None:
        """A batch as the columns and ticks of this set; the first batch decides them."""
        self._must_be_open()
        table = as_table(events)
        if self._layout is None and not table.num_rows and not table.num_columns:
            return None
        if self._layout is not None and is_rows(events):
            table = with_missing_columns(table, self._layout.schema, (self._layout.time, self._layout.type))
            if not len(table):
                return None
        table = with_readable_time(table, self._options["time"])
        if self._layout is None:
            self._bind_schema(table.schema)
        assert self._layout is not None
        self._check_types_known(table.schema)
        table = conform(table, self._layout)
        return table, ticks_of(table, self._layout)

    def _take(self, table: pa.Table, ticks: np.ndarray) -> int | None:
        if not len(ticks):
            return None
        newest = int(ticks.max())
        on_time = ticks > self._watermark
        if not on_time.all():
            self.late += int((~on_time).sum())
            table, ticks = table.filter(pa.array(on_time)), ticks[on_time]
        self._pending_events.append((table, ticks))
        return newest

    def _answered(self, work: Callable[..., dict[Any, pa.Table]], *args: Any) -> dict[Any, pa.Table]:
        """Rows by query; a warning for each query that has stopped, and the error if no query is left."""
        rows = self._calls.run(work, *args)
        problems = self._problems()
        if not problems:
            return rows
        merged_run = self._merged is not None and bool(self._merged.segments)
        if not merged_run and sum(1 for _ in self._unmerged.problems()) == len(self._unmerged):
            raise problems[-1].raised()
        for problem in problems[self._warned :]:
            warnings.warn(f"{problem.reason}; the other queries run on", ProblemWarning, stacklevel=4)
        self._warned = len(problems)
        by_query = {problem.query: problem for problem in problems}
        if self._problem is not None and self._merged is not None:
            by_query |= dict.fromkeys(self._merged.names(), self._problem)
        return Answers(rows, by_query)

    @exclusive
    def problems(self) -> list[Problem]:
        """The queries that have stopped because of an error of their own: which, at what time, and why.

        The other queries continue. Merged queries run as one and stop together. If no other query is left, every call
        raises the error.
        """
        return self._problems()

    def _problems(self) -> list[Problem]:
        merged = [] if self._problem is None else [self._problem]
        return merged + list(self._unmerged.problems())

    @property
    def interrupted(self) -> bool:
        """Whether KeyboardInterrupt stopped a call that had begun to change the set. The next call first completes that
        work, and returns the rows of both. If this is false, the interrupted call has changed nothing."""
        return self._calls.interrupted

    def _check_types_known(self, schema: pa.Schema) -> None:
        assert self._layout is not None
        for known in self._layout.schema:
            place = schema.get_field_index(known.name)
            if place >= 0 and pa.types.is_null(known.type) and not pa.types.is_null(schema.field(place).type):
                raise InputError(
                    f"the column '{known.name}' had nothing but nulls in the first batch, and is of type "
                    f"{schema.field(place).type} now; make the set with schema=, an Arrow schema with the types "
                    "of all columns"
                )

    @exclusive
    def advance(self, to: int | datetime) -> dict[Any, pa.Table]:
        """Declare that all events up to a time have been seen, and return the answers that this completes."""
        self._calls.complete()
        self._must_be_open()
        if self._layout is None:
            raise InputError("advance() must come after the first push()")
        return self._answered(self._advance, max(self._watermark, tick_of(to, self._layout)))

    @exclusive
    def finish(self) -> dict[Any, pa.Table]:
        """End the stream and return all remaining answers."""
        self._calls.complete()
        if not self._finished or not self._calls.interrupted:  # An interrupted finish() may be called again.
            self._must_be_open()
        return self._answered(self._finish)

    def _finish(self) -> dict[Any, pa.Table]:
        if self._finished or self._layout is None:
            self._finished = True
            return {}
        self._finished = True
        return self._advance(LATEST)

    def _must_be_open(self) -> None:
        if self._finished:
            raise InputError("this set of queries is finished; make a new one for another stream")

    def _bind_schema(
        self, schema: pa.Schema, only: str | None = None, coders: tuple[Coder, Coder] | None = None
    ) -> None:
        """Bind the set to the columns of its input, and register the pending queries.

        `only` is the type of all events if there is no type column; None: the type that the queries name. `coders` of
        texts and types come from a stored set.
        """
        kind, time = self._options["type"], self._options["time"]
        if kind is None and only is None:
            only = next(iter(self.types_named()), "event")
        layout = layout_of_table(schema, time=time, type=kind, only_type=only, order=self._options["order"])
        catalog = catalog_of(layout, time_unit=self._options["time_unit"])
        self._layout = layout
        self._delay_ticks = duration_ticks(self._max_delay, catalog, "max_delay")
        texts, type_codes = coders or (Coder(), Coder())
        self._merged = Merged(layout, catalog, self._limits, merge=self._merge, texts=texts, type_codes=type_codes)
        pending, places, self._registrations, self._places = self._registrations, self._places, [], {}
        try:
            for one in pending:
                with naming(one.label):
                    if isinstance(one, PendingQuery):
                        self._register(one.id, one.query, one.owner, one.params)
                    else:
                        self._register_template(one.name, one.template, one.table, one.row_ids, one.row_owners)
        except BaseException:
            # Restore the pending registrations, so that the caller can remove the wrong query and keep the others.
            self._registrations, self._places, self._unmerged = pending, places, UnmergedQueries()
            self._layout = self._merged = None
            raise

    def types_named(self) -> set[str]:
        found: set[str] = set()
        for one in self._registrations:
            given, params = (one.query, one.params) if isinstance(one, PendingQuery) else (one.template, None)
            if isinstance(given, str | Stream | Query | AlgebraQuery):
                found |= event_types(_prepared(given, params))
        return found

    def _advance(self, until: int) -> dict[Any, pa.Table]:
        assert self._merged is not None
        self._watermark = until
        answers: dict[Any, list[pa.Table]] = {}
        ready = self._take_ready(until)
        self._merged.bring_up_to_date()
        self._unmerged.open()
        if ready is not None:
            self._unmerged.push(ready[0])
            self._read_merged(*ready, answers)
        for id, answer in self._unmerged.advance(until):
            answers.setdefault(id, []).append(answer)
        self._merged.evict(until)
        return {name: pa.concat_tables(parts) for name, parts in answers.items()}

    def _read_merged(self, table: pa.Table, ticks: np.ndarray, answers: dict[Any, list[pa.Table]]) -> None:
        assert self._merged is not None and self._layout is not None
        if self._problem is not None and not len(self._unmerged):
            raise self._problem.raised()
        try:
            self._merged.read(table, ticks, answers)
        except Exception as error:
            answers.clear()
            self._merged.stop()
            self._problem = Problem.of("merged queries", shown_time(int(ticks[-1]), self._layout), error)
            if not len(self._unmerged):
                raise

    def _take_ready(self, until: int) -> tuple[pa.Table, np.ndarray] | None:
        """Pending events at or before a tick, in order of time."""
        if not self._pending_events:
            return None
        table = pa.concat_tables([t for t, _ in self._pending_events]).combine_chunks()
        ticks = np.concatenate([k for _, k in self._pending_events])
        if (ticks[1:] < ticks[:-1]).any():
            order = np.argsort(ticks, kind="stable")
            table, ticks = table.take(pa.array(order)), ticks[order]
        ready = int(np.searchsorted(ticks, until, side="right"))
        self._pending_events = [(table.slice(ready), ticks[ready:])] if ready < len(ticks) else []
        return (table.slice(0, ready), ticks[:ready]) if ready else None

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    @exclusive
    def snapshot(self) -> bytes:
        """The whole set as bytes, including its queries; `QuerySet.restore` continues exactly here."""
        from ouzel.query_set.snapshot import dump

        self._calls.complete()
        return self._calls.call(dump, self)

    @classmethod
    def restore(cls, blob: bytes) -> QuerySet:
        """The set of a snapshot.

        >>> alerts = QuerySet()
        >>> alerts.add("high", "PATTERN Stock s WHERE s.price > 90 WITHIN 5 RETURN High(s.price AS price)")
        >>> alerts.push([{"type": "Stock", "ts": 1, "price": 93}])
        {}
        >>> QuerySet.restore(alerts.snapshot()).finish()["high"].to_pylist()
        [{'query': 'high', 'start': 1, 'end': 1, 'price': 93}]
        """
        from ouzel.query_set.snapshot import load

        return load(blob)

    # ── What is there ──────────────────────────────────────────────────────────────────────────────

    @property
    @exclusive
    def next_deadline(self) -> int | None:
        """The earliest tick at which time alone can complete something; None if there is none."""
        found = [int(ticks.min()) for _, ticks in self._pending_events if len(ticks)]
        deadline = self._unmerged.next_deadline
        return min(found if deadline is None else [*found, deadline], default=None)

    def parts(self, id: Any = None) -> Iterator[tuple[Any, Group | Registration]]:
        """For each template, and each query or shape of queries, a name and the parts that answer it; or for one query
        only."""
        for group in [] if self._merged is None else self._merged.groups:
            rows = group.alive if id is None else group.alive & (group.ids == id)
            if np.any(rows):
                yield group.name if group.is_template else group.ids[np.argmax(rows)], group
        for one, registration in self._unmerged.items():
            if id is None or one == id:
                yield one, registration

    def answer_schema(self, part: Group | Registration) -> pa.Schema:
        """The columns of the answers of a part, after `query`."""
        if isinstance(part, Registration):
            (schema,) = Session(part.program).schemas.values()
            return schema
        assert self._merged is not None
        return self._merged.schema_of(part.stream)

    @property
    @exclusive
    def statistics(self) -> dict[str, int]:
        """The counters of the kernel, over all segments."""
        segments = [] if self._merged is None else self._merged.segments
        sizes = {"queries": len(self), "segments": len(segments), "alone": len(self._unmerged)}
        return sizes | counted(segments)

    @property
    @exclusive
    def bytes(self) -> int:
        """The memory of queries in bytes: constants, automata and indexes, without events and instances."""
        if self._merged is None:
            return 0
        return bytes_of(self._merged.segments) + sum(group.bytes for group in self._merged.groups)

    @exclusive
    def explain(self) -> str:
        """The indexes and their sizes, and what else queries share."""
        return self._calls.call(self._explained)

    def _explained(self) -> str:
        lines = [some(self._length(), "query")]
        if self._merged is None:
            lines[0] += ", not bound to columns before the first batch"
        else:
            self._merged.bring_up_to_date()
            for number, segment in enumerate(self._merged.segments):
                title = "large segment" if number == 0 else "delta, merged into the large segment when it has grown"
                lines += ["", title, *explained(segment)]
        if len(self._unmerged):
            lines += ["", *self._unmerged.explained()]
        return "\n".join(lines)


_NOWHERE: Any = object()


def _check_columns(table: pa.Table, names: Sequence[str]) -> None:
    for name in names:
        if name not in table.column_names:
            raise InputError(
                f"the table of queries has no column '{name}'; besides the ids it has "
                f"{', '.join(map(repr, table.column_names)) or 'none'}"
            )


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


def _answer_columns(bound: BoundQuery) -> set[str]:
    """The names of a query's own columns, without `start` and `end`."""
    if bound.aggregates:
        return {key.name for key in bound.group_by} | {column.name for column in bound.aggregates}
    if bound.returns is not None:
        return {column.name for column in bound.returns}
    return {component.variable for component in bound.positives}
