"""Which queries the kernels that exist can run; the others are refused with a clear word, never run wrongly."""

from __future__ import annotations

from ouzel.bind.model import BoundQuery
from ouzel.errors import QueryError


def missing_support(query: BoundQuery) -> str | None:
    """What this version cannot run yet in a query, in one sentence; None where it can run all of it."""
    return None


def require_runnable(query: BoundQuery) -> None:
    """Raise QueryError for a query that this version can check but not run."""
    reason = missing_support(query)
    if reason is not None:
        raise QueryError(
            f"query '{query.name}' is well formed, but {reason} in this version of Ouzel",
            hint="ouzel check tells whether a query is well formed; running it needs a later version",
        )
