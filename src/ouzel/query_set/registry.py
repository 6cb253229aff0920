"""Registrations that wait for the columns of the input, and checks of ids and of errors of one query."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.algebra.streams import Stream
from ouzel.errors import InputError, QueryError


@dataclass(frozen=True)
class PendingQuery:
    """One query that waits for the columns of the input."""

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
        """This query: it has only one row."""
        return self


@dataclass(frozen=True)
class PendingTemplate:
    """The queries of one template, one per row of the table, that wait for the columns of the input."""

    name: str
    template: Stream
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
        """The template with some of its rows."""
        ids = self.row_ids
        kept = ids[list(chosen)] if isinstance(ids, np.ndarray) else [ids[row] for row in chosen]
        owners = None if self.row_owners is None else [self.row_owners[row] for row in chosen]
        table = self.table.take(pa.array(chosen, pa.int64()))
        return replace(self, table=table, row_ids=kept, row_owners=owners)


Pending = PendingQuery | PendingTemplate


def without(pending: Sequence[Pending], *, id: Any = None, owner: Any = None) -> tuple[list[Pending], list[Any]]:
    """Pending registrations without one query, or without those of an owner, and the ids of the removed ones.

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


def check_id(id: Any) -> None:
    """Ids must be hashable, so that queries can be found by them."""
    if id is None or not isinstance(id, Hashable):
        raise InputError(f"the id of a query must be a text or a number, got {id!r}")


@contextmanager
def naming(query: str) -> Iterator[None]:
    """Put the name of a query before its error, if many are registered at once."""
    try:
        yield
    except QueryError as error:
        raise QueryError(
            f"{query}: {error.message}", text=error.text, start=error.start, end=error.end, hint=error.hint
        ) from None
    except InputError as error:
        raise InputError(f"{query}: {error}") from None
