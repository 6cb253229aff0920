"""Queries that stopped because of their own errors, while the other queries of their engine continue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from html import escape
from types import MappingProxyType
from typing import Any, Self, TypeVar

import pyarrow as pa

from ouzel import errors
from ouzel.errors import InputError, OuzelError
from ouzel.notebook import table_html
from ouzel.runtime.layout import Layout

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Problem:
    """A query that stopped: the time of the newest event then, and the reason. `error` is the kind of error."""

    query: Any
    time: int | datetime | None
    reason: str
    error: str = "OuzelError"

    @classmethod
    def of(cls, query: Any, time: int | datetime | None, error: Exception) -> Problem:
        """The problem of a query, from its error."""
        known = isinstance(error, OuzelError)
        kind, reason = type(error).__name__, str(error)
        return cls(query, time, reason if known else f"query '{query}' failed with {kind}: {reason}", kind)

    def raised(self) -> OuzelError:
        """The error to raise if a caller asks for the rows of the query."""
        kind = getattr(errors, self.error, None)
        made = kind if isinstance(kind, type) and issubclass(kind, OuzelError) else OuzelError
        return made(f"{self.reason} (query '{self.query}' stopped at time {self.time} and returns no more rows)")

    def plain(self) -> dict[str, Any]:
        """As plain data, for snapshots."""
        time = self.time.isoformat() if isinstance(self.time, datetime) else self.time
        return {**asdict(self), "time": time}

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any]) -> Problem:
        """What `plain` stored."""
        time = stored["time"]
        return cls(**{**stored, "time": datetime.fromisoformat(time) if isinstance(time, str) else time})


class Answers(dict[K, pa.Table]):
    """Rows by query. A query that stopped is not among them, and asking for its rows raises its error.

    The answer of the only query converts to other tables.
    """

    # Set only if a query has stopped: every push makes answers, and an __init__ would be most of their cost.
    _problems: Mapping[K, Problem] = MappingProxyType({})

    def stopped(self, problems: Mapping[K, Problem]) -> Self:
        """These answers, with the queries that stopped."""
        self._problems = problems
        return self

    def arrow(self) -> pa.Table:
        """The rows of the only query, as a pyarrow Table."""
        if len(self) + len(self._problems) != 1:
            names = ", ".join(map(repr, list(self)[:5]))
            raise InputError(f"the answers of {len(self)} queries are not one table; choose one of them: {names}")
        return self[next(iter(self or self._problems))]

    def to_pandas(self) -> Any:
        """The rows of the only query, as a pandas DataFrame."""
        return self.arrow().to_pandas()

    def df(self) -> Any:
        """`to_pandas` by the name that DuckDB has for it."""
        return self.to_pandas()

    def pl(self) -> Any:
        """The rows of the only query, as a polars DataFrame."""
        import polars

        return polars.from_arrow(self.arrow())

    def _repr_html_(self) -> str:
        return "".join(f"<b>{escape(str(name))}</b>{table_html(table)}" for name, table in self.items())

    def __missing__(self, name: K) -> pa.Table:
        if name in self._problems:
            raise self._problems[name].raised()
        names = ", ".join(map(repr, list(self)[:5]))
        raise KeyError(f"there is no query {name!r} in these answers, which are of {names}")


def shown_time(tick: int, layout: Layout) -> int | datetime | None:
    """A tick in the format of users' times."""
    kind = layout.schema.field(layout.time).type
    if not pa.types.is_timestamp(kind):
        return tick
    try:
        shown: datetime = pa.scalar(tick if kind.unit != "ns" else tick // 1000, pa.timestamp("us", kind.tz)).as_py()
    except (OverflowError, ValueError):
        return tick
    return shown
