"""All errors that Ouzel raises to its users. An error says what was wrong, where, and what to do.

A message consists of texts and arguments. Arguments are data, because the command line shows them as options.
"""

from __future__ import annotations

import re
import shlex
import traceback
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

# A message quotes names, values and lists of the user, which may be of any length.
WORD_CHARACTERS_MAX = 200
MESSAGE_CHARACTERS_MAX = 10_000
_ENDLESS_WORD = re.compile(rf"\S{{{WORD_CHARACTERS_MAX + 1},}}")


def shortened(message: str) -> str:
    """A message with long words cut in the middle, and cut itself if it is too long.

    >>> len(shortened("there is no type '" + "x" * 50_000 + "'")) < 250
    True
    """
    message = _ENDLESS_WORD.sub(lambda word: f"{word[0][:100]}…{word[0][-20:]}", message)
    return message if len(message) <= MESSAGE_CHARACTERS_MAX else message[:MESSAGE_CHARACTERS_MAX] + "…"


class Argument(NamedTuple):
    """An argument in a message, as it is written in Python and on the command line."""

    python: str
    option: str


Words: TypeAlias = "str | tuple[str | Argument, ...]"
_NO_VALUE = object()


def argument(name: str, value: Any = _NO_VALUE) -> Argument:
    """An argument with a name and perhaps a value.

    >>> argument("time_unit", "s")
    Argument(python="time_unit='s'", option='--time-unit s')
    """
    option = "--" + name.replace("_", "-")
    if value is _NO_VALUE:
        return Argument(f"{name}=", option)
    written = f"--no-{option[2:]}" if value is None else f"{option} {shlex.quote(str(value))}"
    return Argument(f"{name}={value!r}", written)


def parameter_value(name: str) -> Argument:
    """The value of a query's parameter `:name`."""
    return Argument(f"params={{{name!r}: …}}", f"--param {name}=…")


LOSS_MODEL = Argument("model=ouzel.LossModel(loss=…, gaps={…})", "--model with a file that LossModel.to_json wrote")


def written(words: Words, *, options: bool = False) -> str:
    """The parts of a message as one text. With `options`, arguments are written as command-line options."""
    if isinstance(words, str):
        return words
    return "".join(one if isinstance(one, str) else one.option if options else one.python for one in words)


class OuzelError(Exception):
    """The base class of all errors that Ouzel raises on purpose."""

    def __init__(self, *words: str | Argument) -> None:
        self._words = words
        super().__init__(self.render())

    def render(self, *, options: bool = False) -> str:
        """The message. With `options`, as the command line shows it."""
        return shortened(written(self._words, options=options))

    def _render_traceback_(self) -> list[str]:
        """The lines that notebooks show: the caller's frames and the message, without frames of this package."""
        ours = str(Path(__file__).parent)
        frames = [frame for frame in traceback.extract_tb(self.__traceback__) if not frame.filename.startswith(ours)]
        # The first frame is the one in which the notebook runs a cell.
        lines = "".join(traceback.format_list(frames[1:])).rstrip().splitlines()
        return [*lines, f"{type(self).__name__}: {self}"]


class QueryError(OuzelError):
    """An error in a query: a message, its place in the text with a caret, and often a hint.

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
        hint: Words | None = None,
    ) -> None:
        self.message = shortened(message)
        self.text = text
        self.start = start
        self.end = end
        self._hint = hint
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        # Spark carries errors from executors to the driver by pickling them.
        return (_rebuild_query_error, (self.message, self.text, self.start, self.end, self._hint))

    def within(self, text: str, at: int) -> QueryError:
        """The same error for a longer text, in which the query begins at character `at`."""
        start, end = (None if place is None else place + at for place in (self.start, self.end))
        return QueryError(self.message, text=text, start=start, end=end, hint=self._hint)

    @property
    def hint(self) -> str | None:
        """What to do about it."""
        return None if self._hint is None else shortened(written(self._hint))

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

    def render(self, *, options: bool = False) -> str:
        """The message, its place in the text and the hint."""
        lines = [self.message]
        if self.text is not None and self.start is not None:
            lines[0] += f" (line {self.line}, column {self.column})"
            lines += self._excerpt(self.text, self.start, self.start if self.end is None else self.end)
        if self._hint:
            lines.append(f"hint: {shortened(written(self._hint, options=options))}")
        return "\n".join(lines)

    @staticmethod
    def _excerpt(text: str, start: int, end: int) -> list[str]:
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", start)
        line_end = len(text) if line_end < 0 else line_end
        # Show a part around the mistake, so that a very long line stays readable.
        left = max(line_start, start - 70)
        right = min(line_end, max(start + 40, left + 110))
        shown = text[left:right].replace("\t", " ").replace("\r", " ")
        head = "…" if left > line_start else ""
        tail = "…" if right < line_end else ""
        caret = " " * (len(head) + start - left) + "^" * max(1, min(end, right) - start)
        return [f"  {head}{shown}{tail}", f"  {caret}"]


def _rebuild_query_error(
    message: str, text: str | None, start: int | None, end: int | None, hint: Words | None
) -> QueryError:
    return QueryError(message, text=text, start=start, end=end, hint=hint)


class InputError(OuzelError):
    """The events do not fit the query or the engine: for example a null time, a missing column, or an unusable type."""


class LimitError(OuzelError):
    """A limit on memory was exceeded. The message names the query, the limit and what to do."""


class EmptyAnswerWarning(UserWarning):
    """A query found nothing, for a simple reason that the message gives, such as a misspelt type."""


class ManyMatchesWarning(UserWarning):
    """A query that names no strategy has several matches for each last event, or a repetition is about to list very
    many. The message says how to get fewer.
    """


class ModelWarning(UserWarning):
    """A loss model names a component that no query has, perhaps because of a typing error; or a stream contradicts the
    model.
    """


class OrderWarning(UserWarning):
    """Many events of one key have the same time, so none of them comes after another. The message says how many."""


class TypesWarning(UserWarning):
    """A query names a type that no event has, and events have a similar type; or a query reads a column that has no
    value in any event of a type. Only given if no types were declared.
    """


class ProblemWarning(UserWarning):
    """One of several queries has stopped because of its own error. The message has its name and the reason."""


class StateError(OuzelError):
    """A snapshot cannot be read: it is damaged, cut off, from a newer version, or of another query."""
