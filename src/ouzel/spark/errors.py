"""Errors that were raised on Spark's workers, as the user gets them on the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from ouzel import errors

# Spark passes on only the text, between a heading of its own and, from streams, the stack of the JVM.
_OURS = re.compile(r"\bouzel\.errors\.(\w+): (.*?)(?=\s*(?:SQLSTATE|\n\tat |=== Streaming Query|\Z))", re.DOTALL)


@contextmanager
def unwrap_errors() -> Iterator[None]:
    """Raise Ouzel's errors from workers as themselves, without Spark's stack around them.

    >>> with unwrap_errors():
    ...     raise PySparkException("Python worker failed: ouzel.errors.LimitError: too many matches SQLSTATE: 38000")
    Traceback (most recent call last):
    ouzel.errors.LimitError: too many matches
    """
    try:
        yield
    except PySparkException as failure:
        error = error_in(str(failure))
        if error is None:
            raise
        raise error from None


def error_in(message: str) -> errors.OuzelError | None:
    """The error of Ouzel inside a message of Spark."""
    found = _OURS.search(message)
    if found is None:
        return None
    kind = getattr(errors, found.group(1), errors.OuzelError)
    error: errors.OuzelError = kind(found.group(2))
    return error
