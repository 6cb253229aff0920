"""Registrations as users make them: those that must wait until the columns of the input are known, and checks of ids
and of errors.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from ouzel.algebra.binding import AlgebraQuery
from ouzel.algebra.streams import Stream, encode
from ouzel.algebra.text import from_text
from ouzel.bind import parameter_names
from ouzel.errors import InputError, QueryError
from ouzel.lang import parse, syntax
from ouzel.lang.parser import is_row_pattern, is_stream
from ouzel.prepared import Query, RowPatternQuery, as_queries, query

# An expression with parameters, or a query.
Template: TypeAlias = Stream | Query


@dataclass(frozen=True)
class PendingQuery:
    """One query, pending until the columns of the input are known."""

    id: Any
    query: Any
    owner: Any
    params: Mapping[str, Any]

    @property
    def label(self) -> str:
        return f"query '{self.id}'"

    @property
    def ids(self) -> list[Any]:
        return [self.id]

    @property
    def owners(self) -> list[Any]:
        return [self.owner]

    def rows(self, chosen: Sequence[int]) -> PendingQuery:
        """The same query, which counts as having one row."""
        return self


@dataclass(frozen=True)
class PendingTemplate:
    """The queries of one template, one for each row of a table, pending until the columns of the input are known."""

    name: str
    template: Template
    table: pa.Table
    row_ids: Any  # a sequence or an array
    row_owners: Sequence[Any] | None

    @property
    def label(self) -> str:
        return f"template '{self.name}'"

    @property
    def ids(self) -> list[Any]:
        return plain_ids(self.row_ids)

    @property
    def owners(self) -> list[Any]:
        return [None] * len(self.row_ids) if self.row_owners is None else list(self.row_owners)

    def rows(self, chosen: Sequence[int]) -> PendingTemplate:
        """The template with only some of its rows."""
        ids = self.row_ids
        kept = ids[list(chosen)] if isinstance(ids, np.ndarray) else [ids[row] for row in chosen]
        owners = None if self.row_owners is None else [self.row_owners[row] for row in chosen]
        table = self.table.take(pa.array(chosen, pa.int64()))
        return replace(self, table=table, row_ids=kept, row_owners=owners)


Pending = PendingQuery | PendingTemplate


def without(pending: Sequence[Pending], *, id: Any = None, owner: Any = None) -> tuple[list[Pending], list[Any]]:
    """(remaining, removed ids): pending registrations without one query, or without those of an owner.

    >>> first, second = (PendingQuery(id, "PATTERN A a", owner, {}) for id, owner in (("high", 1), ("low", 2)))
    >>> kept, removed = without([first, second], owner=2)
    >>> [one.id for one in kept], removed
    (['high'], ['low'])
    """
    kept: list[Pending] = []
    removed: list[Any] = []
    for one in pending:
        stays = [
            own_id != id if owner is None else own_owner != owner
            for own_id, own_owner in zip(one.ids, one.owners, strict=True)
        ]
        removed += [own_id for own_id, stay in zip(one.ids, stays, strict=True) if not stay]
        if all(stays):
            kept.append(one)
        elif any(stays):
            kept.append(one.rows([row for row, stay in enumerate(stays) if stay]))
    return kept, removed


def plain_ids(ids: Sequence[Any] | np.ndarray) -> list[Any]:
    """Ids as Python values.

    >>> plain_ids(np.array([1, 2]))
    [1, 2]
    """
    return ids.tolist() if isinstance(ids, np.ndarray) else list(ids)


def share_of(pending: Pending, number: int, slices: int) -> Pending | None:
    """The rows of a pending registration that belong to a slice; None if there are none."""
    if slices == 1:
        return pending
    rows = [row for row, one in enumerate(pending.ids) if slice_of(one, slices) == number]
    return pending.rows(rows) if rows else None


def slice_of(id: Any, slices: int) -> int:
    """The number of the slice to which a query belongs, which is the same in every process and version.

    >>> slice_of(7, 4) == slice_of("7", 4)
    True
    """
    return zlib.crc32(str(id).encode("utf-8", "surrogatepass")) % slices


def digest_of(registrations: Sequence[Pending], model: str = "") -> str:
    """A digest of pending registrations and their loss model. It is equal for registrations with the same texts."""
    mark = sha256(model.encode())
    for one in registrations:
        if isinstance(one, PendingQuery):
            prepared = prepared_query(one.query, one.params)
            text = encode(prepared.expression) if isinstance(prepared, AlgebraQuery) else prepared.text
            parts = [one.id, text, one.owner, sorted(one.params.items())]
        else:
            template = encode(one.template) if isinstance(one.template, Stream) else one.template.text
            parts = [one.name, template, one.table.to_pylist(), one.ids, one.row_owners]
        mark.update(json.dumps(parts, default=repr).encode())
    return mark.hexdigest()[:32]


def is_expression(text: str) -> bool:
    """Whether a text is an expression of the algebra. It may be in JSON."""
    return text.lstrip().startswith("{") or is_stream(text)


def prepared_query(given: Any, params: Mapping[str, Any] | None) -> Any:
    """A query from any form that a set accepts, parsed, with its parameters."""
    if isinstance(given, RowPatternQuery) or (isinstance(given, str) and is_row_pattern(given)):
        raise QueryError(
            "a QuerySet takes queries and expressions of the algebra, not MATCH_RECOGNIZE",
            hint="ouzel.Engine takes MATCH_RECOGNIZE (…) over a stream, several of them by name",
        )
    if isinstance(given, str):
        if not is_expression(given):
            return query(given, params=params)
        given = from_text(given)
    if isinstance(given, AlgebraQuery):
        return replace(given, params={**given.params, **(params or {})})
    (prepared,) = as_queries(given, params).values()
    return prepared


def template_of(name: str, given: Any, rows: pa.Table) -> Template:
    """A template from any form that a set accepts, checked with the parameters of the first row."""
    if isinstance(given, Stream):
        return given
    if not isinstance(given, str):
        raise InputError(
            "a template must be an expression of ouzel.algebra, or the text of one or of a query, "
            f"got a {type(given).__name__}"
        )
    (first,) = rows.slice(0, 1).to_pylist()
    if is_expression(given):
        return from_text(given)
    query = prepared_query(given, _used(parse(given), first))
    assert isinstance(query, Query)
    return replace(query, name=name)


def filled(template: Template, id: str, row: Mapping[str, Any]) -> Query | AlgebraQuery:
    """The query for one row of parameters."""
    if isinstance(template, Stream):
        return AlgebraQuery(id, template, row)
    return replace(template, params=_used(template.tree, row), filled=None)


def _used(tree: syntax.Query, row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of those parameters in a row that a query names."""
    names = parameter_names(tree)
    return {name: value for name, value in row.items() if name in names}


def stored_id(value: Any) -> Any:
    """An id or an owner for JSON. Raises an error if JSON cannot store it."""
    if isinstance(value, np.integer):
        return int(value)
    if value is None or isinstance(value, str | int | float):
        return value
    raise InputError(f"ids and owners in a snapshot must be texts or numbers, got {value!r}, a {type(value).__name__}")


def id_array(ids: Iterable[Any]) -> pa.Array:
    """Ids as a column: in their own type, or as text if they have no common type."""
    values = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([str(value) for value in values])


def check_id(id: Any) -> None:
    """Raise an error for an id that is not hashable, because queries are found by their ids."""
    if id is None or not isinstance(id, Hashable):
        raise InputError(f"the id of a query must be a text or a number, got {id!r}")


@contextmanager
def naming(query: str) -> Iterator[None]:
    """Add the id of a query to its error, for calls that register many queries."""
    try:
        yield
    except QueryError as error:
        raise QueryError(
            f"{query}: {error.message}", text=error.text, start=error.start, end=error.end, hint=error.hint
        ) from None
    except InputError as error:
        raise InputError(f"{query}: {error}") from None
