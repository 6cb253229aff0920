"""`QuerySet`: many standing queries over one stream. They can be registered and removed while the stream runs.

All run in one session; see `session`. Linear-plus expressions of the algebra and short sequences are merged into
automata with indexes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.algebra.binding import AlgebraQuery
from ouzel.algebra.streams import Stream
from ouzel.algebra.text import to_text
from ouzel.bind.model import BoundQuery
from ouzel.errors import InputError, OuzelError, QueryError
from ouzel.loss import LossModel
from ouzel.prepared import Query, as_queries
from ouzel.query_set.groups import Group, parameter_table
from ouzel.query_set.merged import Merged
from ouzel.query_set.registry import (
    Pending,
    PendingQuery,
    PendingTemplate,
    Template,
    check_id,
    digest_of,
    filled,
    naming,
    plain_ids,
    prepared_query,
    share_of,
    stored_id,
    template_of,
    without,
)
from ouzel.query_set.segments import some
from ouzel.query_set.session import GrowingSession
from ouzel.query_set.unmerged import Registration
from ouzel.query_set.unseen import named_by
from ouzel.runtime.calls import completed, exclusive, thread_count
from ouzel.runtime.feeder import Feeder
from ouzel.runtime.inbox import table_of
from ouzel.runtime.inputs import as_table, check_inputs_by_type, is_rows, with_missing_columns, with_readable_time
from ouzel.runtime.layout import ARRIVAL, Layout, catalog_of, conform, layout_of_table, ticks_of
from ouzel.runtime.limits import Limits, limits_of
from ouzel.runtime.problems import Answers, Problem
from ouzel.runtime.program import Program, check_columns, check_is_model, event_types, make_program
from ouzel.runtime.session import Session
from ouzel.sealing import SNAPSHOT, decoding


class QuerySet(Feeder[Any]):
    """Standing queries that can be added and removed while events arrive. Each answer names its query.

    A query sees the events after the watermark at its registration. `bounded` means that the input will end, so queries
    need no bound on DUR. `model` has the loss rates for queries with THRESHOLD. Several threads may call one set. Each
    call waits until the call before it has ended.

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

    _noun = "set of queries"

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
        model: LossModel | None = None,
    ) -> None:
        order = check_columns(time, type, order, time_unit)
        self._options: dict[str, Any] = {"time": time, "type": type, "order": order, "time_unit": time_unit}
        super().__init__(max_delay)
        self._limits = limits_of(limits)
        check_is_model(model)
        self._model = model
        self._bounded = bounded
        self._merge = merge
        self._registrations: list[Pending] = []  # added before the columns were known
        # Groups of queries that were added one by one; None before the columns are known.
        self._places: dict[Any, Group | None] = {}
        self._session: GrowingSession | None = None  # as soon as the columns are known
        if schema is not None:
            self._bind_schema(schema)

    def _contents(self) -> str:
        return f"{len(self._places):,} queries"

    # ── Queries ────────────────────────────────────────────────────────────────────────────────────

    @completed
    def add(
        self,
        id: Any,
        query: Stream | Query | AlgebraQuery | str,
        *,
        owner: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Register one query under an id. It may be a text, a prepared query, or an expression of the algebra."""
        self._add(id, query, owner, params)

    def _add(
        self, id: Any, query: Stream | Query | AlgebraQuery | str, owner: Any, params: Mapping[str, Any] | None
    ) -> None:
        self._must_be_open()
        check_id(id)
        self._check_free([id])
        if self._session is None:
            prepared_query(query, params)
            self._places[id] = None
            self._registrations.append(PendingQuery(id, query, owner, dict(params or {})))
            return
        self._register(id, query, owner, dict(params or {}))

    @completed
    def add_table(self, rows: Any, *, id: str = "id", text: str = "query", owner: str | None = None) -> None:
        """Register all queries of a table, one for each row, with a column of ids and one of texts. If one is refused,
        none is registered.
        """
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
                self._remove(one)
            raise

    @completed
    def add_template(
        self, name: str, template: Stream | str, rows: Any, *, id: str = "id", owner: str | None = None
    ) -> None:
        """Register one query for each row of a table of parameters, which fill `:name` in the template.

        The template is an expression of the algebra, its text, or the text of a query. A test that only some of the
        queries make is written `(:low IS NULL OR price >= :low)`.
        """
        self._must_be_open()
        if not isinstance(name, str):
            raise InputError(f"the name of a template must be text, got {name!r}")
        table, ids = parameter_table(rows, id)
        if not len(ids):
            return
        owners = None
        if owner is not None:
            _check_columns(table, (owner,))
            owners = table.column(owner).to_pylist()
            table = table.drop_columns([owner])
        self._check_free(ids)
        made = template_of(name, template, table)
        if self._session is None:
            self._places |= dict.fromkeys(plain_ids(ids))
            self._registrations.append(PendingTemplate(name, made, table, ids, owners))
            return
        self._register_template(name, made, table, ids, owners)

    @completed
    def remove(self, id: Any = None, *, owner: Any = None) -> int:
        """Remove a query, or all queries of an owner. Returns their number. What they share with other queries
        stays.
        """
        if (id is None) == (owner is None):
            raise InputError("remove(…) takes the id of a query, or owner= for all queries of an owner")
        if id is not None:
            return self._remove(id)
        self._registrations, removed = without(self._registrations, owner=owner)
        mine: list[Any] = []
        if self._session is not None:
            removed += self._session.merged.remove_of(owner)
            mine = [one for one, registration in self._session.unmerged.items() if registration.owner == owner]
            for one in mine:
                self._session.remove(one)
        for one in removed:
            self._places.pop(one, None)
        return len(removed) + len(mine)

    def _remove(self, id: Any) -> int:
        check_id(id)
        if self._session is not None and id in self._session.unmerged:
            self._session.remove(id)
            return 1
        self._registrations, removed = without(self._registrations, id=id)
        found = None if removed else self._find(id)
        if not removed and found is None:
            raise InputError(f"there is no query {id!r} in the set")
        if found is not None:
            self._bound_session().merged.remove(*found)
        self._places.pop(id, None)
        return 1

    @exclusive
    def problems(self) -> list[Problem]:
        """The suspended queries, each with the time and the reason. Also the queries that name a type or a column which
        no event has had so far; these have no time.

        The other queries continue. Once all are suspended, every call raises the last error.
        """
        return [*self.suspended(), *([] if self._session is None else self._session.silent())]

    def suspended(self) -> list[Problem]:
        """The suspended queries."""
        return list(dict.fromkeys(self._stopped().values()))

    @completed
    def resume(self, id: Any) -> None:
        """Continue a query that has exceeded a limit. It sees the events after the watermark.

        >>> import warnings
        >>> from ouzel.algebra import stream
        >>> quotes, alerts = stream("Stock"), QuerySet(bounded=True, limits={"max_partial_matches": 1_000})
        >>> alerts.add("wide", quotes.next(quotes, "price > 100 * price.last"))
        >>> alerts.add("high", quotes.select("price > 2000"))
        >>> with warnings.catch_warnings(action="ignore"):
        ...     answers = alerts.push([{"type": "Stock", "ts": k, "price": k} for k in range(100, 3_000)])
        >>> [problem.query for problem in alerts.problems()]
        ['wide']
        >>> alerts.resume("wide")
        >>> alerts.problems()
        []
        """
        self._must_be_open()
        session = self._session
        if session is None or id not in session.stopped():
            raise InputError(f"the set has no suspended query {id!r}; problems() lists the suspended queries")
        if id in session.merged.problems:
            found = self._find(id)
            assert found is not None, "a suspended query is still registered"
            session.merged.resume(id, *found, session.watermark)
        elif not session.resume(id):
            raise InputError("merged queries that failed together cannot be resumed; make a new set")
        self._warned = len(self._stopped())

    def _find(self, id: Any) -> tuple[Group, int] | None:
        if (group := self._places.get(id)) is not None:
            row = group.row_of(id)
            assert row is not None, "a query leaves its group only when it is removed"
            return group, row
        return None if self._session is None else self._session.merged.find(id)

    def _check_free(self, ids: Sequence[Any]) -> None:
        if len(ids) == 1:
            if self._is_unmerged(ids[0]) or ids[0] in self._places or self._find(ids[0]) is not None:
                raise InputError(f"there is a query {plain_ids(ids)[0]!r} in the set already; remove it first")
            return
        if _has_repetition(ids):
            raise InputError("duplicate id in the table of queries; give each query its own id")
        taken = set(self._places)
        if self._session is not None:
            taken |= {one for one, _ in self._session.unmerged.items()}
            for group in self._session.merged.groups:
                taken |= set(group.ids[group.alive].tolist())
        if not taken:
            return
        both = taken & set(np.asarray(ids).tolist())
        if both:
            raise InputError(f"there is a query {sorted(map(repr, both))[0]} in the set already; remove it first")

    def _is_unmerged(self, id: Any) -> bool:
        return self._session is not None and id in self._session.unmerged

    @exclusive
    def __len__(self) -> int:
        return self._length()

    def _length(self) -> int:
        pending = sum(len(one.ids) for one in self._registrations)
        return pending if self._session is None else len(self._session.unmerged) + len(self._session.merged)

    def _register(self, id: Any, given: Any, owner: Any, params: Mapping[str, Any]) -> None:
        session = self._bound_session()
        if self._templates(id):
            raise InputError(
                f"there is a template {id!r} in the set; choose another id, because answers are returned by name"
            )
        prepared = prepared_query(given, params)
        if isinstance(prepared, AlgebraQuery):
            origin = AlgebraQuery(str(id), prepared.expression, prepared.params)
            made = session.merged.single(id, origin, owner, session.watermark)
            if made is not None:
                self._take_single(id, *made)
                return
        self._places.pop(id, None)
        program = make_program(
            as_queries({"query": prepared}), session.program.layout.schema, **self._options, limits=self._limits,
            streaming=not self._bounded, model=self._model, warn_of_names=False,
        )  # fmt: skip
        if any("query" in _answer_columns(bound) for bound in program.queries):
            raise QueryError(
                f"the answers of a set have a column 'query' with the id, and query '{id}' gives another of that name",
                hint="write AS and another name for it in RETURN",
            )
        # Merged automata read the events of one time together.
        if program.queries and prepared.types is None and not program.layout.is_ordered:
            made = session.merged.single(id, program.queries[0], owner, session.watermark)
            if made is not None:
                self._take_single(id, *made)
                return
        session.unmerged.add(id, program, owner, session.watermark, session.problems)
        session.unseen.expect(named_by(program))

    def _take_single(self, id: Any, group: Group, is_new: bool) -> None:
        merged = self._bound_session().merged
        if is_new:
            try:
                self._check_new(group)
            except QueryError:
                merged.maker.discard(group)
                raise
        self._places[id] = group
        merged.add(group, np.array([len(group.ids) - 1]), is_new=is_new)
        if is_new:
            self._bound_session().unseen.expect(named_by(group))

    def _register_template(
        self, name: str, template: Template, table: pa.Table, ids: Sequence[Any], owners: Sequence[Any] | None
    ) -> None:
        session = self._bound_session()
        group = None
        if isinstance(template, Stream):
            group = session.merged.template(name, template, table, ids, owners, session.watermark)
        if group is None:
            whose = owners or [None] * len(ids)
            for one, row, owner in zip(plain_ids(ids), table.to_pylist(), whose, strict=True):
                self._register(one, filled(template, str(one), row), owner, {})
            return
        self._check_new(group)
        self._check_name(group)
        session.merged.add(group, np.arange(len(ids)), is_new=True)
        session.unseen.expect(named_by(group))

    def _check_name(self, group: Group) -> None:
        """Raise an error if a name is in use. Answers are found by the names of templates and the ids of other
        queries.
        """
        merged = self._bound_session().merged
        if self._is_unmerged(group.name) or group.name in self._places:
            raise InputError(f"there is a query {group.name!r} in the set already; give the template another name")
        schema, kind = merged.schema_of(group.stream), type(group.ids[0])
        for one in self._templates(group.name):
            if merged.schema_of(one.stream) != schema or type(one.ids[0]) is not kind:
                raise InputError(
                    f"there is a template {group.name!r} in the set already, whose answers have other columns or ids "
                    "of another type; give this one another name"
                )

    def _templates(self, name: Any) -> list[Group]:
        groups = self._bound_session().merged.groups
        return [group for group in groups if group.is_template and group.name == name and group.alive.any()]

    def _check_new(self, group: Group) -> None:
        """Raise an error if a new shape of queries may wait without a bound, or if its columns collide with those of
        other answers.
        """
        taken = {"query", "start", "end"} & set(group.stream.columns)
        if taken:
            raise QueryError(
                f"the answers have a column '{min(taken)}' of their own, and the stream an attribute of that name",
                hint="rename it or project it away",
            )
        is_pattern = not isinstance(group.origin, AlgebraQuery)
        if self._bounded or is_pattern or self._bound_session().merged.is_bounded(group):
            return
        raise QueryError(
            "on a stream next(…) and fold(…) need an upper bound on DUR",
            text=to_text(group.stream.expression),
            hint="add to theta, for example: AND DUR <= 30 min; or make the set with bounded=True",
        )

    # ── Events ─────────────────────────────────────────────────────────────────────────────────────

    @exclusive
    def push(self, events: Any) -> Answers[Any]:
        """Add a batch of events, and return the answers that it completes, by template or by query. Empty answers are
        left out.

        A query that exceeds a limit is suspended, and a ProblemWarning and `problems()` report it. `resume` continues
        it. The answers of other queries are complete.
        """
        self._calls.complete()
        return self._answered(self._push, self._read(events))

    def _push(self, events: pa.Table | None) -> dict[Any, pa.Table]:
        if events is None or not events.num_rows:
            return {}
        return self._advance(self._pushed(self._bound_session(), events))

    @exclusive
    def take(self, events: Any) -> int | None:
        """Add a batch of events without reading them; a later `advance` does that. Returns the newest tick among
        them.
        """
        self._calls.complete()
        return self._calls.call(self._take, self._read(events))

    def _read(self, events: Any) -> pa.Table | None:
        """A batch as a table with the columns of this set, which the first batch decides."""
        self._must_be_open()
        if isinstance(events, Mapping):
            check_inputs_by_type(events, self._options["time"])
        layout = self.layout
        if layout is not None and isinstance(events, list):
            known = table_of(events, layout.schema, (layout.time, layout.type))
            if known is not None:
                return known
        table = as_table(events)
        if layout is None and not table.num_rows and not table.num_columns:
            return None
        if layout is not None and is_rows(events):
            table = with_missing_columns(table, layout.schema, (layout.time, layout.type))
            if not len(table):
                return None
        table = with_readable_time(table, self._options["time"])
        if layout is None:
            self._bind_schema(table.schema)
        return conform(table, self._bound_session().program.layout)

    def _take(self, table: pa.Table | None) -> int | None:
        if table is None or not table.num_rows:
            return None
        session = self._bound_session()
        session.push(table)
        return int(ticks_of(table, session.program.layout).max())

    def _nothing(self) -> dict[Any, pa.Table]:
        return {}

    def _stopped(self) -> Mapping[Any, Problem]:
        return {} if self._session is None else self._session.stopped()

    @property
    def layout(self) -> Layout | None:
        """The meaning of the input's columns; None before they are known."""
        return None if self._session is None else self._session.program.layout

    def _bound_session(self) -> GrowingSession:
        assert self._session is not None, "schema= or the first batch makes the session"
        return self._session

    def _bind_schema(self, schema: pa.Schema, only: str | None = None) -> None:
        """Bind the set to the columns of its input, and register the pending queries.

        `only` is the type of all events, if there is no type column. If None, it is the one type that the queries
        name.
        """
        kind, time = self._options["type"], self._options["time"]
        if kind is None and only is None:
            only = next(iter(self.types_named()), "event")
        layout = layout_of_table(schema, time=time, type=kind, only_type=only, order=self._options["order"])
        time_unit = self._options["time_unit"]
        merged = Merged(layout, self._limits, time_unit=time_unit, merge=self._merge)
        self._set_delay(catalog_of(layout, time_unit=time_unit))
        session = GrowingSession(Program((), layout, self._limits, model=self._model), merged)
        self._set_order(session)
        self._session = session
        self._session.threads = thread_count(None)
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
            self._registrations, self._places, self._session = pending, places, None
            raise

    def types_named(self) -> set[str]:
        found: set[str] = set()
        for one in self._registrations:
            given, params = (one.query, one.params) if isinstance(one, PendingQuery) else (one.template, None)
            if isinstance(given, str | Stream | Query | AlgebraQuery):
                found |= event_types(prepared_query(given, params))
        return found

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    @exclusive
    def snapshot(self) -> bytes:
        """The whole set as bytes, including its queries. `QuerySet.restore` continues from there."""
        self._calls.complete()
        if self._session is None:
            raise InputError("snapshot() must come after the first push(), unless the set was given schema=")
        self._must_be_open()
        feeder = {
            "time_unit": self._options["time_unit"],
            "bounded": self._bounded,
            "merge": self._merge,
            "delay_ticks": self._delay_ticks,
            "newest": self._newest,
        }
        owed = {stored_id(name): table for name, table in self._calls.rows.items()}
        return self._calls.call(self._session.snapshot, feeder, owed)

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
        session = GrowingSession.restore(blob)
        session.threads = thread_count(None)
        layout, feeder = session.program.layout, session.feeder
        assert feeder is not None
        with decoding(SNAPSHOT):
            held = cls(
                time=layout.time,
                type=layout.type,
                order=ARRIVAL if layout.by_arrival else layout.order,
                time_unit=feeder["time_unit"],
                max_delay=feeder["delay_ticks"],
                limits=session.program.limits,
                bounded=feeder["bounded"],
                merge=feeder["merge"],
                model=session.program.model,
            )
            held._newest = feeder["newest"]
        held._session, held._delay_ticks = session, feeder["delay_ticks"]
        for group in session.merged.groups:
            if not group.is_template:
                held._places |= dict.fromkeys(group.ids.tolist(), group)
        if session.owed:
            held._calls.owe(session.owed)
        held._warned = len(held._stopped())
        return held

    def slices(self, schema: pa.Schema, count: int, *, bounded: bool) -> list[QuerySet]:
        """The queries of this set, divided over several sets. This set must not have read any event, and the columns of
        the input must be known.
        """
        if self._session is not None:
            raise InputError(
                "the schema of this QuerySet is already fixed, by schema= or by events; make a new one, which takes "
                "the schema of the DataFrame"
            )
        made = []
        only = next(iter(self.types_named()), None) if self._options["type"] is None else None
        for number in range(count):
            part = QuerySet(**self._options, limits=self._limits, bounded=bounded, merge=self._merge, model=self._model)
            shares = (share_of(one, number, count) for one in self._registrations)
            part._registrations = [share for share in shares if share is not None]
            part._bind_schema(schema, only)
            made.append(part)
        return made

    # ── What is there ──────────────────────────────────────────────────────────────────────────────

    @property
    @exclusive
    def next_deadline(self) -> int | None:
        """The earliest tick at which answers are due without a further event; None if there is none."""
        return None if self._session is None else self._session.next_deadline

    def pending_ids(self) -> list[Any]:
        """The ids of all queries, for a set that does not know its columns yet."""
        return [id for one in self._registrations for id in one.ids]

    def digest(self) -> str:
        """A digest of all queries, for a set that does not know its columns yet."""
        return digest_of(self._registrations, "" if self._model is None else self._model.to_json())

    def parts(self, id: Any = None) -> Iterator[tuple[Any, Group | Registration]]:
        """(name, part) of each template, and of each query or shape of queries. With `id`, only of this query."""
        if self._session is None:
            return
        for group in self._session.merged.groups:
            rows = group.alive if id is None else group.alive & (group.ids == id)
            if np.any(rows):
                yield group.name if group.is_template else group.ids[np.argmax(rows)], group
        for one, registration in self._session.unmerged.items():
            if id is None or one == id:
                yield one, registration

    def answer_schema(self, part: Group | Registration) -> pa.Schema:
        """The columns of the answers of a part, after `query`."""
        if isinstance(part, Registration):
            (schema,) = Session(part.program).schemas.values()
            return schema
        return self._bound_session().merged.schema_of(part.stream)

    @property
    @exclusive
    def statistics(self) -> dict[str, int]:
        """The counters of the kernel, over all segments."""
        segments = [] if self._session is None else self._session.merged.segments
        alone = 0 if self._session is None else len(self._session.unmerged)
        total = Counter({"queries": len(self), "segments": len(segments), "alone": alone})
        for segment in segments:
            total.update(segment.counters)
        return dict(total)

    @property
    @exclusive
    def bytes(self) -> int:
        """The memory of queries in bytes: their constants, automata and indexes, without events and instances."""
        if self._session is None:
            return 0
        merged = self._session.merged
        return sum(one.bytes for one in merged.segments) + sum(one.bytes for one in merged.groups)

    @completed
    def explain(self) -> str:
        """The indexes with their sizes, and what else queries share."""
        lines = [some(self._length(), "query")]
        session = self._session
        if session is None:
            lines[0] += ", not bound to columns before the first batch"
            return lines[0]
        session.start()
        for number, segment in enumerate(session.merged.segments):
            lines += ["", f"segment {number + 1}", *segment.explained()]
        if len(session.unmerged):
            lines += ["", *session.unmerged.explained()]
        return "\n".join(lines)


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


def _answer_columns(bound: BoundQuery) -> set[str]:
    """The names of a query's own columns, without `start` and `end`."""
    if bound.aggregates:
        return {key.name for key in bound.group_by} | {column.name for column in bound.aggregates}
    if bound.returns is not None:
        return {column.name for column in bound.returns}
    return {component.variable for component in bound.positives}
