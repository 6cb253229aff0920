"""Limits that keep memory bounded (docs/semantics.md, "Limits"), and what was dropped because of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

import numpy as np

from ouzel.errors import InputError, LimitError

_COUNTED_MAX = 2**63 - 1
# The matches of one answer may have so many events together, and so many more for each match that a moment may have.
_ANSWER_EVENTS_MIN = 1 << 20
_ANSWER_EVENTS_PER_MATCH = 8


class WhenPassed(StrEnum):
    """What happens where a limit is passed."""

    STOP = "stop"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Limits:
    """What keeps memory bounded, for each query. Passing one is an error that names it; or, with
    `when_passed="drop"`, the newest events, runs or matches are dropped and counted. Never a silent loss."""

    max_matches_per_moment: int = 10_000_000
    max_partial_matches: int = 10_000_000
    max_buffered_events: int = 100_000_000
    when_passed: WhenPassed = WhenPassed.STOP

    def __post_init__(self) -> None:
        # Stored programs have it as text.
        object.__setattr__(self, "when_passed", WhenPassed(self.when_passed))

    @property
    def drops(self) -> bool:
        """Whether the newest are dropped where a limit is passed."""
        return self.when_passed is WhenPassed.DROP

    @property
    def max_answer_events(self) -> int:
        """How many events the matches that one call returns may have together: a moment has few matches, but a long
        input has many moments."""
        return _ANSWER_EVENTS_MIN + _ANSWER_EVENTS_PER_MATCH * self.max_matches_per_moment

    def check_answer(self, query: str, events: int) -> None:
        """Refuse an answer whose matches have too many events together, before it is built."""
        if events > self.max_answer_events:
            raise LimitError(
                f"the matches of query '{query}' that one call returns have more than {self.max_answer_events:,} "
                f"events together, the most that max_matches_per_moment={self.max_matches_per_moment:,} allows; push "
                "fewer events at a time, ask for OUTPUT COMPRESSED or AGG COUNT, give a smaller WITHIN window or a "
                "more selective WHERE, or raise the limit"
            )

    def check_keys(self, queries: str, keys: int) -> None:
        """Refuse more keys than events may be held, where a query counts for every key and none expires."""
        if keys > self.max_buffered_events:
            raise LimitError(
                f"{queries} without WITHIN counts for each of {keys:,} keys, and no key expires; that is more than "
                f"max_buffered_events={self.max_buffered_events:,}; give a WITHIN window, a key or group with fewer "
                "values, or a higher limit"
            )

    def drop(self, limit: str, count: int) -> None:
        """Count what was dropped because of a limit."""
        assert not count, "only an allowance can count"

    def fitting(self, rows: np.ndarray, ticks: np.ndarray, held: int, queries: int = 1) -> np.ndarray | None:
        """Which of new events there is room for, beside those held: the earliest of them; None where all fit or
        nothing is to be dropped. `rows` numbers the events that matter among all that came, some of them repeatedly."""
        room = max(0, self.max_buffered_events * queries - held)
        if not self.drops or len(rows) <= room:
            return None
        rows = np.unique(rows)
        if len(rows) <= room:
            return None
        self.drop("max_buffered_events", len(rows) - room)
        return np.sort(rows[np.argsort(ticks[rows], kind="stable")[:room]])


@dataclass(frozen=True, slots=True)
class Allowance(Limits):
    """The limits of one query, and how much was dropped because of each of them.

    >>> allowance = Allowance.of(Limits(max_buffered_events=5, when_passed=WhenPassed.DROP))
    >>> allowance.drop("max_buffered_events", 2)
    >>> allowance.dropped
    {'max_buffered_events': 2}
    """

    dropped: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, limits: Limits) -> Allowance:
        """What one query may hold, before its first event."""
        return cls(
            limits.max_matches_per_moment, limits.max_partial_matches, limits.max_buffered_events, limits.when_passed
        )

    def drop(self, limit: str, count: int) -> None:
        """Count what was dropped because of a limit, up to the largest number that a column can hold."""
        if count:
            self.dropped[limit] = min(self.dropped.get(limit, 0) + count, _COUNTED_MAX)


def limits_of(given: Limits | Mapping[str, int | str] | None) -> Limits:
    """Limits as an object, from one or from a dictionary of those that differ from the defaults."""
    if given is None:
        return Limits()
    if not isinstance(given, Limits | Mapping):
        raise InputError(f"limits are given as a dictionary, {{'max_buffered_events': 1000}}, not as {given!r}")
    named = asdict(given) if isinstance(given, Limits) else dict(given)
    for name, value in named.items():
        if name not in Limits.__slots__:
            raise InputError(f"there is no limit {name!r}; there are {', '.join(Limits.__slots__)}")
        if name == "when_passed":
            if value not in list(WhenPassed):
                raise InputError(f"when_passed is 'stop' or 'drop', not {value!r}")
        elif not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise InputError(f"the limit {name} is a whole number from 1 on, not {value!r}")
        else:
            named[name] = int(value)
    return Limits(**named)
