"""Limits that keep memory bounded (docs/semantics.md, "Limits")."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass

import numpy as np

from ouzel.errors import InputError, LimitError

# The matches of one answer may have this many events in total, and this many more for each match of a timestamp.
_ANSWER_EVENTS_MIN = 1 << 20
_ANSWER_EVENTS_PER_MATCH = 8
_ADVICE = "a smaller WITHIN window, a more selective WHERE"

# Called with the name of a query and what it has many of, before it lists them. Threads that work together share it.
on_many_matches: ContextVar[Callable[[str, str], None] | None] = ContextVar("on_many_matches", default=None)


def report_many(query: str, what: str) -> None:
    """Report a query with very many matches, before it lists them."""
    report = on_many_matches.get()
    if report is not None:
        report(query, what)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the memory that each query may use. A query that exceeds one stops with an error that names the
    limit.
    """

    max_matches_per_timestamp: int = 10_000_000
    max_partial_matches: int = 10_000_000
    max_buffered_events: int = 100_000_000

    @property
    def max_answer_events(self) -> int:
        """The largest total number of events in the matches of one call. The limit on matches of a timestamp does not
        bound it, because a long input has many timestamps.
        """
        return _ANSWER_EVENTS_MIN + _ANSWER_EVENTS_PER_MATCH * self.max_matches_per_timestamp

    def share(self, parts: int) -> Limits | None:
        """The limits of one of several parts. If all parts keep them, the whole keeps these limits. None if there is
        too little to divide.
        """
        # The events of all answers together have a part that does not depend on the limit.
        fixed = _ANSWER_EVENTS_MIN // _ANSWER_EVENTS_PER_MATCH
        matches = (self.max_matches_per_timestamp - (parts - 1) * fixed) // parts
        partial, buffered = self.max_partial_matches // parts, self.max_buffered_events // parts
        return Limits(matches, partial, buffered) if min(matches, partial, buffered) >= 1 else None

    def check_answer(self, query: str, events: int) -> None:
        """Raise an error if the matches of an answer have too many events in total. Called before the answer is
        built.
        """
        if events > self.max_answer_events:
            raise self.answer_error(query)

    def answer_error(self, query: str) -> LimitError:
        """The error for matches that have too many events in total."""
        return LimitError(
            f"one call would return matches of query '{query}' with more than {self.max_answer_events:,} events in "
            f"total, the most that max_matches_per_timestamp={self.max_matches_per_timestamp:,} allows; "
            "push fewer events at a time, ask for OUTPUT NON_OVERLAPPING, OUTPUT COMPRESSED or AGG COUNT, give a "
            "smaller WITHIN window or a more selective WHERE, or raise the limit"
        )

    def check_held(self, queries: Sequence[str], held: int, *, of_keys: str = "", advice: str = _ADVICE) -> None:
        """Raise an error if more events are held than the queries that share an operator may hold, which is the sum of
        their limits.
        """
        most = self.max_buffered_events * len(queries)
        if held <= most:
            return
        if len(queries) == 1:
            raise LimitError(
                f"query '{queries[0]}' holds {held:,} events{of_keys}, more than max_buffered_events={most:,}; "
                f"give it {advice}, or a higher limit"
            )
        raise LimitError(
            f"the queries {', '.join(queries)} hold {held:,} events, more than {most:,}, which is "
            f"max_buffered_events={self.max_buffered_events:,} for each; "
            f"give them {advice}, or a higher limit"
        )

    def check_keys(self, queries: str, keys: int) -> None:
        """Raise an error if a query counts for each key, keys never expire, and there are more keys than events may be
        held.
        """
        if keys > self.max_buffered_events:
            raise LimitError(
                f"{queries} keeps a count for each of {keys:,} keys, more than "
                f"max_buffered_events={self.max_buffered_events:,}; without WITHIN no key expires. Add WITHIN, use a "
                "key or group with fewer values, or raise the limit"
            )


def limits_of(given: Limits | Mapping[str, int] | None) -> Limits:
    """A `Limits` object, from one or from a dictionary of limits that differ from the defaults."""
    if given is None:
        return Limits()
    if not isinstance(given, Limits | Mapping):
        raise InputError(f"limits= must be a dictionary such as {{'max_buffered_events': 1000}}, got {given!r}")
    named = asdict(given) if isinstance(given, Limits) else dict(given)
    for name, value in named.items():
        if name not in Limits.__slots__:
            raise InputError(f"there is no limit {name!r}; there are {', '.join(Limits.__slots__)}")
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name} must be an integer >= 1, got {value!r}")
        named[name] = int(value)
    return Limits(**named)
