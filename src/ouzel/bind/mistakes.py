"""How the binder says what is wrong: one sentence about a place in the text, and the nearest name as a hint."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from ouzel.errors import QueryError
from ouzel.lang.syntax import Span

# Longer names are shown cut, and no nearest name is sought for them: difflib takes quadratic time.
NAME_LENGTH_MAX = 80


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a query, which every mistake is a place in."""

    text: str

    def mistake(self, message: str, where: Span, hint: str | None = None) -> QueryError:
        return QueryError(message, text=self.text, start=where.start, end=where.end, hint=hint)


def quoted(name: str) -> str:
    """A user's name in quotes, cut where it is endless."""
    return f"'{name}'" if len(name) <= NAME_LENGTH_MAX else f"'{name[:NAME_LENGTH_MAX]}…'"


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The hint for a name that does not exist.

    >>> nearest("Shef", ["Exit", "Shelf"])
    "did you mean 'Shelf'?"
    """
    known = sorted(candidates)
    if len(name) > NAME_LENGTH_MAX:
        return None
    close = [candidate for candidate in known if candidate.lower() == name.lower()]
    close = close or difflib.get_close_matches(name, known, n=1)
    return f"did you mean {quoted(close[0])}?" if close else None


def listed(names: Iterable[str], last: str = "or") -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b or c'
    """
    items = list(names)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}" if items else ""
