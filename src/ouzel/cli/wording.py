"""Errors name arguments as one writes them in Python; on the command line these are options."""

from __future__ import annotations

import re

from ouzel.errors import OuzelError, QueryError

_OPTIONS = tuple(
    (re.compile(written), option)
    for written, option in (
        (r"params=\{'([^']+)': …\}", r"--param \1=…"),
        (r"give time_unit=, for example time_unit='s',", "give --time-unit, for example --time-unit s,"),
        (r"give time_unit= to say", "give --time-unit to say"),
        (r"Say which one it is with (time|type)=", r"Say which one it is with --\1"),
        (r"and type=None says", "and --type none says"),
        (r"name the column with type=", "name the column with --type"),
        (r"give model=ouzel\.LossModel\(.*\)", "give --model with a file that LossModel.to_json wrote"),
        (r"^max_delay=", "--max-delay="),
        (r"sample=10 beside seed=", "--sample 10 beside --seed"),
        (r"expand\(\)", "ouzel expand"),
    )
)


def as_options(error: OuzelError) -> str:
    """What an error says, with options in the place of arguments. The excerpt of a query stays as it is.

    >>> print(as_options(OuzelError("there is no time column 'ts'. Say which one it is with time=")))
    there is no time column 'ts'. Say which one it is with --time
    """
    if not isinstance(error, QueryError):
        return _translated(str(error))
    hint = None if error.hint is None else _translated(error.hint)
    message = _translated(error.message)
    return str(QueryError(message, text=error.text, start=error.start, end=error.end, hint=hint))


def _translated(text: str) -> str:
    for written, option in _OPTIONS:
        text = written.sub(option, text)
    return text
