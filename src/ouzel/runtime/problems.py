"""Queries that have stopped because of their own errors, while the other queries of their engine continue."""

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
    """A query that has stopped, with the time of the newest event at that moment and the reason. `error` is the name of
    the error class.
    """

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
        """The problem as plain data, for snapshots."""
        time = self.time.isoformat() if isinstance(self.time, datetime) else self.time
        return {**asdict(self), "time": time}

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any]) -> Problem:
        """The problem from the data that `plain` returned."""
        time = stored["time"]
        return cls(**{**stored, "time": datetime.fromisoformat(time) if isinstance(time, str) else time})


class Answers(dict[K, pa.Table]):
    """Rows by query. A query that has stopped is not included, and asking for its rows raises its error.

    If there is only one query, its rows can be converted to other kinds of tables.
    """

    # Set only if a query has stopped: every push makes answers, and an __init__ would be most of their cost.
    _problems: Mapping[K, Problem] = MappingProxyType({})

    def stopped(self, problems: Mapping[K, Problem]) -> Self:
        """These answers, which also know the queries that have stopped."""
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
        """`to_pandas` under the name that DuckDB uses."""
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
    """A tick as users write times."""
    kind = layout.schema.field(layout.time).type
    if not pa.types.is_timestamp(kind):
        return tick
    try:
        shown: datetime = pa.scalar(tick if kind.unit != "ns" else tick // 1000, pa.timestamp("us", kind.tz)).as_py()
    except (OverflowError, ValueError):
        return tick
    return shown
