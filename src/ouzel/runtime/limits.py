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
    """Report a query that has many matches before it lists them."""
    report = on_many_matches.get()
    if report is not None:
        report(query, what)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the memory of each query. Exceeding one stops the query with an error that names it."""

    max_matches_per_timestamp: int = 10_000_000
    max_partial_matches: int = 10_000_000
    max_buffered_events: int = 100_000_000

    @property
    def max_answer_events(self) -> int:
        """How many events the matches of one call may have in total: a timestamp has few matches, but a long input has
        many timestamps."""
        return _ANSWER_EVENTS_MIN + _ANSWER_EVENTS_PER_MATCH * self.max_matches_per_timestamp

    def share(self, parts: int) -> Limits | None:
        """Limits that the whole keeps if each of some parts keeps them; None if there is too little to share."""
        # The events of all answers together have a part that does not depend on the limit.
        fixed = _ANSWER_EVENTS_MIN // _ANSWER_EVENTS_PER_MATCH
        matches = (self.max_matches_per_timestamp - (parts - 1) * fixed) // parts
        partial, buffered = self.max_partial_matches // parts, self.max_buffered_events // parts
        return Limits(matches, partial, buffered) if min(matches, partial, buffered) >= 1 else None

    def check_answer(self, query: str, events: int) -> None:
        """Refuse an answer whose matches have too many events in total, before it is built."""
        if events > self.max_answer_events:
            raise self.answer_error(query)

    def answer_error(self, query: str) -> LimitError:
        """The error for an answer whose matches have too many events in total."""
        return LimitError(
            f"the matches of query '{query}' that one call returns have more than {self.max_answer_events:,} "
            f"events together, the most that max_matches_per_timestamp={self.max_matches_per_timestamp:,} allows; "
            "push fewer events at a time, ask for OUTPUT NON_OVERLAPPING, OUTPUT COMPRESSED or AGG COUNT, give a "
            "smaller WITHIN window or a more selective WHERE, or raise the limit"
        )

    def check_held(self, queries: Sequence[str], held: int, *, of_keys: str = "", advice: str = _ADVICE) -> None:
        """Refuse to hold more events than the queries that are answered together may hold, each as many as alone."""
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
        """Refuse more keys than events may be held, if a query counts per key and keys never expire."""
        if keys > self.max_buffered_events:
            raise LimitError(
                f"{queries} keeps a count for each of {keys:,} keys, more than "
                f"max_buffered_events={self.max_buffered_events:,}; without WITHIN no key expires. Add WITHIN, use a "
                "key or group with fewer values, or raise the limit"
            )


def limits_of(given: Limits | Mapping[str, int] | None) -> Limits:
    """A `Limits` object, from one or from a dictionary of the limits that differ from the defaults."""
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
