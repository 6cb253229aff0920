"""Every error that Ouzel raises at its users: what was wrong, where, and what to do about it."""

from __future__ import annotations

import re

# A message quotes names, values and lists of its user's, which may be of any length.
WORD_CHARACTERS_MAX = 200
MESSAGE_CHARACTERS_MAX = 10_000
_ENDLESS_WORD = re.compile(rf"\S{{{WORD_CHARACTERS_MAX + 1},}}")


def shortened(message: str) -> str:
    """A message in which endless words are cut in the middle, and which is not endless itself.

    >>> len(shortened("there is no type '" + "x" * 50_000 + "'")) < 250
    True
    """
    message = _ENDLESS_WORD.sub(lambda word: f"{word[0][:100]}…{word[0][-20:]}", message)
    return message if len(message) <= MESSAGE_CHARACTERS_MAX else message[:MESSAGE_CHARACTERS_MAX] + "…"


class OuzelError(Exception):
    """The root of all errors that Ouzel raises on purpose."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(shortened(one) if isinstance(one, str) else one for one in arguments))


class QueryError(OuzelError):
    """A query is wrong: one sentence, its place in the text with a caret, and a hint where one can be given.

    >>> text = "PATTERN SEQ(Shef a)"
    >>> print(QueryError("there is no event type 'Shef'", text=text, start=12, end=16, hint="did you mean 'Shelf'?"))
    there is no event type 'Shef' (line 1, column 13)
      PATTERN SEQ(Shef a)
                  ^^^^
    hint: did you mean 'Shelf'?
    """

    def __init__(
        self,
        message: str,
        *,
        text: str | None = None,
        start: int | None = None,
        end: int | None = None,
        hint: str | None = None,
    ) -> None:
        self.message = shortened(message)
        self.text = text
        self.start = start
        self.end = end
        self.hint = hint and shortened(hint)
        super().__init__(self._render())

    def __reduce__(self) -> tuple[object, ...]:
        # Spark carries errors from executors to the driver by pickling them.
        return (_rebuild_query_error, (self.message, self.text, self.start, self.end, self.hint))

    @property
    def line(self) -> int | None:
        """The line of the mistake, counted from 1."""
        if self.text is None or self.start is None:
            return None
        return self.text.count("\n", 0, self.start) + 1

    @property
    def column(self) -> int | None:
        """The column of the mistake, counted from 1."""
        if self.text is None or self.start is None:
            return None
        return self.start - (self.text.rfind("\n", 0, self.start) + 1) + 1

    def _render(self) -> str:
        lines = [self.message]
        if self.text is not None and self.start is not None:
            lines[0] += f" (line {self.line}, column {self.column})"
            lines += self._excerpt(self.text, self.start, self.start if self.end is None else self.end)
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    @staticmethod
    def _excerpt(text: str, start: int, end: int) -> list[str]:
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", start)
        line_end = len(text) if line_end < 0 else line_end
        # A window around the mistake, so that a query on one endless line stays readable.
        left = max(line_start, start - 70)
        right = min(line_end, max(start + 40, left + 110))
        shown = text[left:right].replace("\t", " ").replace("\r", " ")
        head = "…" if left > line_start else ""
        tail = "…" if right < line_end else ""
        caret = " " * (len(head) + start - left) + "^" * max(1, min(end, right) - start)
        return [f"  {head}{shown}{tail}", f"  {caret}"]


def _rebuild_query_error(
    message: str, text: str | None, start: int | None, end: int | None, hint: str | None
) -> QueryError:
    return QueryError(message, text=text, start=start, end=end, hint=hint)


class InputError(OuzelError):
    """The events are not what the query or the engine needs: a null time, a missing column, an unusable type."""


class LimitError(OuzelError):
    """A limit that keeps memory bounded was passed; the message names the query, the limit and what to do."""


class LimitWarning(UserWarning):
    """Something was dropped where a limit was passed, as asked for with `when_passed="drop"`; the message counts it."""


class EmptyAnswerWarning(UserWarning):
    """A query found nothing in an input that ends, for a plain reason such as a misspelt type; the message tells it."""


class ModelWarning(UserWarning):
    """A loss model speaks of a component that no query has, perhaps by a misspelt name; the message tells which."""


class TypesWarning(UserWarning):
    """No event of a type has a value in a column that a query reads, and no types were declared; the message names
    both."""


class ProblemWarning(UserWarning):
    """A query of several stopped because of an error of its own; the message has its name and the reason."""


class StateError(OuzelError):
    """A snapshot cannot be read: damaged, cut short, of a newer version, or of another query."""
