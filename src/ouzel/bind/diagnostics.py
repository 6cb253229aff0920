"""Errors of the binder: a message, a place in the text, and a hint.

A hint is the most similar name, or what to write if two types do not fit together.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ouzel.bind.model import NUMBERS, Bound, Constant, Kind, Type
from ouzel.errors import QueryError, Words
from ouzel.lang.syntax import Span

# Longer names are cut, and get no suggestion: difflib takes quadratic time.
NAME_LENGTH_MAX = 80
NAMES_LISTED_MAX = 12


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a query, and errors at places in it."""

    text: str

    def mistake(self, message: str, where: Span, hint: Words | None = None) -> QueryError:
        return QueryError(message, text=self.text, start=where.start, end=where.end, hint=hint)


def quoted(name: str) -> str:
    """A user's name in quotes, cut off if it is very long."""
    return f"'{name}'" if len(name) <= NAME_LENGTH_MAX else f"'{name[:NAME_LENGTH_MAX]}…'"


def nearest(name: str, candidates: Iterable[str], *, similarity: float = 0.6) -> str | None:
    """The hint for a name that does not exist: the most similar candidate; None if none is similar enough.

    >>> nearest("Shef", ["Exit", "Shelf"])
    "did you mean 'Shelf'?"
    """
    known = sorted(candidates)
    if len(name) > NAME_LENGTH_MAX:
        return None
    close = [candidate for candidate in known if candidate.lower() == name.lower()]
    close = close or difflib.get_close_matches(name, known, n=1, cutoff=similarity)
    return f"did you mean {quoted(close[0])}?" if close else None


def nearest_or_all(name: str, candidates: Iterable[str], what: str) -> str | None:
    """A hint with the most similar name or, if none is similar, with all names if they are few.

    >>> nearest_or_all("tag", ["price", "item"], "columns")
    'the columns are item and price'
    """
    known = sorted(candidates)
    near = nearest(name, known)
    if near or not 0 < len(known) <= NAMES_LISTED_MAX:
        return near
    return f"the only one is {known[0]}" if len(known) == 1 else f"the {what} are {listed(known, 'and')}"


def listed(names: Iterable[str], last: str = "or") -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b or c'
    """
    items = list(names)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}" if items else ""


_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def hint_for(target: Type, found: Type, operands: Sequence[Bound], doing: str) -> str | None:
    """The hint for operands of two types that have no common type. `doing` is "compare" or "combine"."""
    kinds = {target.kind, found.kind}
    if kinds == {Kind.TIMESTAMP}:
        return "write the zone into the literal, as in TIMESTAMP '2024-05-31 12:00:00Z', or convert the column"
    if kinds == {Kind.DATE, Kind.TIMESTAMP}:
        return "a date has no zone: compare with TIMESTAMP '2024-05-31 00:00:00Z'"
    if Kind.STRING in kinds and kinds & {Kind.DATE, Kind.TIMESTAMP}:
        return "write DATE '2024-05-31' or TIMESTAMP '2024-05-31 12:00:00'"
    if Kind.DURATION in kinds and kinds & NUMBERS:
        return "write the number with a unit, such as 5 min; a parameter is a timedelta"
    if Kind.DURATION in kinds and Kind.STRING in kinds:
        return "write a duration without quotes, such as 5 min; a parameter is a timedelta"
    if doing == "compare" and Kind.BOOL in kinds:
        return "write TRUE or FALSE" if any(isinstance(operand, Constant) for operand in operands) else None
    if Kind.STRING in kinds and kinds & NUMBERS:
        return _between_text_and_numbers(operands, doing)
    return None


def _between_text_and_numbers(operands: Sequence[Bound], doing: str) -> str | None:
    text = next((str(o.value) for o in operands if isinstance(o, Constant) and isinstance(o.value, str)), None)
    number = next((o for o in operands if isinstance(o, Constant) and o.type.kind in NUMBERS), None)
    columns = {o.type.kind for o in operands if not isinstance(o, Constant)}
    if text is not None and columns & NUMBERS:
        if _NUMBER.fullmatch(text):
            return f"write {text} without quotes"
        return f"{quoted(text)} is text, and the other side is a number; did you mean another column?"
    if number is not None and Kind.STRING in columns:
        quotes = f"write '{number.value!s}' in quotes"
        if doing != "compare":
            return quotes
        # Quotes alone would be bad advice if one of the amounts is not a number: '9' > '10'.
        return f"{quotes}; if you mean numbers, convert the column first: one value that is not a number makes it text"
    if len(columns) > 1 and doing == "compare":
        return "convert one of the columns first"
    return None
