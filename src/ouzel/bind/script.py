"""Binds scripts: queries that read each other's results with INTO and FROM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any

from ouzel.bind import shapes
from ouzel.bind.binder import bind_with
from ouzel.bind.clauses import REACHED, SCORE_COLUMNS
from ouzel.bind.diagnostics import Source, listed, nearest, quoted
from ouzel.bind.literals import Parameters
from ouzel.bind.model import (
    FLOAT,
    INT,
    OTHER,
    UNKNOWN,
    At,
    Attribute,
    BoundQuery,
    Catalog,
    Component,
    Intrinsic,
    Kind,
    Type,
    list_type,
)
from ouzel.bind.typing import common_type
from ouzel.errors import QueryError
from ouzel.lang import syntax
from ouzel.lang.syntax import OutputForm

INPUT = "input"


def bind_script(
    script: syntax.Script,
    text: str,
    catalog: Catalog,
    params: Mapping[str, Any] | None = None,
    *,
    streaming: bool = False,
) -> tuple[BoundQuery, ...]:
    """Bind all queries of a script, in an order in which a query comes after those whose results it reads.

    `catalog` describes the primary stream, `input`. The columns of a derived stream declare its event type.

    >>> from ouzel.lang import parse_script
    >>> text = '''pair: PATTERN SEQ(A a, B b) WHERE [id] WITHIN 5 RETURN Pair(a.id AS id) INTO pairs;
    ...           twice: PATTERN SEQ(Pair p, Pair q) FROM pairs WHERE [id] WITHIN 50;'''
    >>> [query.name for query in bind_script(parse_script(text), text, Catalog())]
    ['pair', 'twice']
    """
    parameters = Parameters(params or {})
    names = _query_names(script.queries, Source(text))
    members = [
        Member(query, text, name, catalog, parameters) for query, name in zip(script.queries, names, strict=True)
    ]
    bound = bind_together(members, streaming=streaming)
    parameters.check_all_used(text)
    return bound


@dataclass(frozen=True, slots=True)
class Member:
    """One of several queries that may read each other's results. `catalog` describes the primary stream."""

    tree: syntax.Query
    text: str
    name: str
    catalog: Catalog
    parameters: Parameters
    # What the query has in common with earlier ones.
    filled: shapes.Filled | None = None

    @property
    def source(self) -> Source:
        return Source(self.text)


def bind_together(members: Sequence[Member], *, streaming: bool = False) -> tuple[BoundQuery, ...]:
    """Bind queries from one or several texts, in an order in which a query comes after those whose results it reads."""
    producers = _producers(members)
    bound: dict[int, BoundQuery] = {}
    for number in _in_order(members, producers):
        member = members[number]
        sources = member.tree.sources
        feeding = [bound[producers[stream]] for stream in sources if stream != INPUT]
        reads_input = INPUT in sources or not sources
        own_catalog = catalog_of_sources(member.catalog if reads_input else None, feeding, member)
        made = None
        if member.filled is not None:
            made = shapes.bound(member.filled, member.text, own_catalog, name=member.name, streaming=streaming)
        bound[number] = made or bind_with(
            member.tree, member.text, own_catalog, member.parameters, name=member.name, streaming=streaming
        )
    return tuple(bound.values())


def _query_names(queries: Sequence[syntax.Query], source: Source) -> list[str]:
    taken: set[str] = set()
    names = []
    for number, query in enumerate(queries, 1):
        name = query.name or (f"query_{number}" if len(queries) > 1 else "query")
        if name in taken:
            raise source.mistake(f"two queries are named {quoted(name)}", query.span, "give each its own name")
        taken.add(name)
        names.append(name)
    return names


# ── Streams ────────────────────────────────────────────────────────────────────────────────────────


def _producers(members: Sequence[Member]) -> dict[str, int]:
    """For each derived stream, the number of the query that writes it."""
    producers: dict[str, int] = {}
    for number, member in enumerate(members):
        stream = member.tree.into
        if stream is None:
            continue
        if stream == INPUT:
            raise member.source.mistake(
                "'input' is the primary stream, so no query can write INTO it", member.tree.span, "choose another name"
            )
        if stream in producers:
            hint = "give each its own stream, and read both with FROM a, b"
            raise member.source.mistake(f"two queries write INTO {quoted(stream)}", member.tree.span, hint)
        producers[stream] = number
    return producers


def _in_order(members: Sequence[Member], producers: Mapping[str, int]) -> list[int]:
    """The numbers of the queries in an order in which each comes after those that it reads; otherwise in the order of
    the text.
    """
    needs: list[set[int]] = []
    for member in members:
        for stream in member.tree.sources:
            if stream != INPUT and stream not in producers:
                raise _unknown_stream(stream, member, members, producers)
            compressed = syntax.Output(OutputForm.COMPRESSED)
            if stream in producers and members[producers[stream]].tree.output == compressed:
                hint = "leave OUTPUT COMPRESSED out of the query that writes it"
                raise member.source.mistake(
                    f"{quoted(stream)} is compressed and cannot be read by a query", member.tree.span, hint
                )
        needs.append({producers[stream] for stream in member.tree.sources if stream != INPUT})
    readers: dict[int, list[int]] = {}
    for number, needed in enumerate(needs):
        for one in needed:
            readers.setdefault(one, []).append(number)
    # One at a time, so that queries keep their order where possible.
    ready = [number for number, needed in enumerate(needs) if not needed]
    order: list[int] = []
    while ready:
        number = heappop(ready)
        order.append(number)
        for reader in readers.get(number, ()):
            needs[reader].discard(number)
            if not needs[reader]:
                heappush(ready, reader)
    if len(order) < len(members):
        raise _cycle(members, producers, set(order))
    return order


def _unknown_stream(stream: str, member: Member, members: Sequence[Member], producers: Mapping[str, int]) -> QueryError:
    if any(other.tree.name == stream and other.tree.into is None for other in members):
        hint: str | None = f"add INTO {stream} to the query {quoted(stream)}"
    else:
        hint = nearest(stream, [*producers, INPUT]) or "a stream is named by INTO, and 'input' is the primary one"
    return member.source.mistake(f"there is no stream {quoted(stream)}", member.tree.span, hint)


def _cycle(members: Sequence[Member], producers: Mapping[str, int], done: set[int]) -> QueryError:
    number = next(n for n in range(len(members)) if n not in done)
    trail: list[int] = []
    # Every remaining query waits for another remaining one, so following them must reach a cycle.
    while number not in trail:
        trail.append(number)
        number = next(producers[s] for s in members[number].tree.sources if s != INPUT and producers[s] not in done)
    streams = [quoted(members[n].tree.into or "") for n in trail[trail.index(number) :]]
    message = "the stream reads itself" if len(streams) == 1 else f"{listed(streams, 'and')} read each other in a cycle"
    return members[number].source.mistake(message, members[number].tree.span, "queries compose without cycles")


# ── Catalogs of derived streams ────────────────────────────────────────────────────────────────────


def catalog_of_sources(primary: Catalog | None, feeding: Sequence[BoundQuery], member: Member) -> Catalog:
    """The catalog of a query that reads the results of `feeding` and, if it is given, the stream `primary`."""
    if not feeding:
        return member.catalog
    declared: dict[str, Mapping[str, Type]] = {}
    if primary is not None:
        if primary.open:
            return primary
        declared.update(primary.declared or {})
    for producer in feeding:
        columns = output_attributes(producer)
        name = producer.result_type
        if name in declared and declared[name] != columns:
            hint = "give them different names with RETURN Name(…)"
            raise member.source.mistake(
                f"two sources have different events of type {quoted(name)}", member.tree.span, hint
            )
        declared[name] = columns
    return Catalog(declared=declared, common=None if primary is None else primary.common, time=member.catalog.time)


def output_attributes(query: BoundQuery) -> dict[str, Type]:
    """The attributes of a query's results, without their own start and end."""
    if query.aggregates:
        keys = {key.name: key.type for key in query.group_by}
        return keys | {column.name: column.type for column in query.aggregates if not column.hidden}
    scores = {} if query.threshold is None else dict.fromkeys(SCORE_COLUMNS, FLOAT)
    if query.output.form is OutputForm.FURTHEST:
        scores[REACHED] = INT
    if query.returns is None:
        return {c.variable: _struct_of(c, query.catalog) for c in query.positives} | scores
    columns: dict[str, Type] = {}
    for column in query.returns:
        expression = column.expression
        is_array = isinstance(expression, Attribute | Intrinsic) and expression.at is At.EVERY
        columns[column.name] = list_type(expression.type) if is_array else expression.type
    return columns | scores


def _struct_of(component: Component, catalog: Catalog) -> Type:
    """The type of a bound event as a struct with the attributes of all types of its component; for a Kleene component,
    a list of them.
    """
    if component.kleene:
        return list_type(_struct_of(replace(component, kleene=False), catalog))
    types = catalog.any_types if component.types is None else component.types
    attributes = [catalog.attributes(name) for name in types]
    fields: dict[str, Type] = {}
    for columns in attributes or [None]:
        if columns is None:
            return UNKNOWN
        for name, kind in columns.items():
            # Types that have no common column type cannot be compared, so they are left out.
            fields[name] = (common_type(fields[name], kind) or OTHER) if name in fields else kind
    return Type(Kind.STRUCT, fields=tuple(fields.items()))
