"""Errors that were raised on Spark's workers, given back to the user as what they were."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from ouzel import errors

# Spark hands on the text alone, between a heading of its own and, from streams, the stack of the JVM.
_OURS = re.compile(r"\bouzel\.errors\.(\w+): (.*?)(?=\s*(?:SQLSTATE|\n\tat |=== Streaming Query|\Z))", re.DOTALL)


@contextmanager
def clear_errors() -> Iterator[None]:
    """Raise Ouzel's errors from workers as themselves, without Spark's stack around them.

    >>> with clear_errors():
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
    """The error of Ouzel's that a message of Spark's tells of."""
    found = _OURS.search(message)
    if found is None:
        return None
    kind = getattr(errors, found.group(1), errors.OuzelError)
    error: errors.OuzelError = kind(found.group(2))
    return error
