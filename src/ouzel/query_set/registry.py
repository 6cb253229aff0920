"""Queries of a set that wait until the columns of its input are known, and what is said of one that is wrong."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.errors import InputError, QueryError

# ("one", id, query, owner, params) or ("template", name, template, table, ids, owners)
Waiting = tuple[Any, ...]


def waiting_ids(one: Waiting) -> list[Any]:
    """The ids of what waits.

    >>> waiting_ids(("one", "high", "PATTERN A", None, {}))
    ['high']
    """
    return [one[1]] if one[0] == "one" else plain_ids(one[4])


def without(waiting: Sequence[Waiting], *, id: Any = None, owner: Any = None) -> tuple[list[Waiting], list[Any]]:
    """What waits, without a query or without those of an owner, and the ids of those that go."""
    kept: list[Waiting] = []
    gone: list[Any] = []
    for one in waiting:
        ids = waiting_ids(one)
        owners = [one[3]] if one[0] == "one" else one[5] or [None] * len(ids)
        keep = [mine != id if owner is None else whose != owner for mine, whose in zip(ids, owners, strict=True)]
        gone += [mine for mine, stays in zip(ids, keep, strict=True) if not stays]
        if all(keep):
            kept.append(one)
        elif any(keep):
            kept.append(rows_of(one, [row for row, stays in enumerate(keep) if stays]))
    return kept, gone


def rows_of(one: Waiting, rows: list[int]) -> Waiting:
    """Some of the queries of a template."""
    kind, name, template, table, ids, owners = one
    own = [owners[row] for row in rows] if owners is not None else None
    kept = ids[rows] if isinstance(ids, np.ndarray) else [ids[row] for row in rows]
    return kind, name, template, table.take(pa.array(rows)), kept, own


def plain_ids(ids: Sequence[Any] | np.ndarray) -> list[Any]:
    """Ids as Python has them.

    >>> plain_ids(np.array([1, 2]))
    [1, 2]
    """
    return ids.tolist() if isinstance(ids, np.ndarray) else list(ids)


def check_id(id: Any) -> None:
    """An id can be told from others."""
    if id is None or not isinstance(id, Hashable):
        raise InputError(f"the id of a query is a text or a number, not {id!r}")


@contextmanager
def told_of(whose: str) -> Iterator[None]:
    """What is wrong with one of many queries says which one it is."""
    try:
        yield
    except QueryError as error:
        raise QueryError(
            f"{whose}: {error.message}", text=error.text, start=error.start, end=error.end, hint=error.hint
        ) from None
    except InputError as error:
        raise InputError(f"{whose}: {error}") from None
