"""`ouzel.match_recognize`: SQL's row pattern recognition over tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.bind.model import Catalog
from ouzel.bind.row_patterns import STEPS_MAX, BoundRowPattern
from ouzel.bind.schema import attributes_of
from ouzel.errors import InputError
from ouzel.lang.parser import parse_row_pattern
from ouzel.prepared import RowPatternQuery
from ouzel.runtime.calls import interruptible
from ouzel.runtime.inputs import as_table
from ouzel.runtime.layout import Layout
from ouzel.runtime.program import Program
from ouzel.runtime.session import Session

# The rows of a table have no time: a column says that all come at once.
ALL_AT_ONCE = "ouzel time"


def match_recognize(
    table: Any,
    clause: str,
    *,
    params: Mapping[str, Any] | None = None,
    max_steps_per_match: int = STEPS_MAX,
) -> pa.Table:
    """The rows that SQL's `table MATCH_RECOGNIZE (clause)` gives.

    `table` is any input that `ouzel.match` takes. `clause` is the text in the parentheses. `params` has the values of
    its `:name` parameters. If a search for one match takes more than `max_steps_per_match` steps, it stops with an
    error. Only patterns with conditions that read the match, such as `SUM(A.x) < 100`, need such a search.

    For a stream, pass the text with MATCH_RECOGNIZE around it to `ouzel.Engine`.

    >>> import ouzel
    >>> ticks = [{"ts": 1, "price": 5}, {"ts": 2, "price": 3}, {"ts": 3, "price": 4}]
    >>> ouzel.match_recognize(ticks, '''
    ...     ORDER BY ts
    ...     MEASURES FIRST(DOWN.ts) AS began, LAST(UP.price) AS price
    ...     PATTERN (DOWN+ UP+)
    ...     DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)''').to_pylist()
    [{'began': 2, 'price': 4}]
    """
    events = as_table(table)
    bound = bound_row_pattern(clause, events.schema, params, max_steps_per_match)
    return interruptible(recognize, events, bound)


def bound_row_pattern(
    clause: str, schema: pa.Schema, params: Mapping[str, Any] | None = None, steps_max: int = STEPS_MAX
) -> BoundRowPattern:
    """A row pattern, bound to tables with a schema."""
    check_steps(steps_max)
    query = RowPatternQuery("query", clause, parse_row_pattern(clause), dict(params or {}), steps_max)
    return query.bind(Catalog(common=attributes_of(schema)))


def check_steps(steps_max: Any) -> None:
    """Raise an error if the limit of steps is not a positive integer."""
    if type(steps_max) is not int or not 0 < steps_max < 2**63:
        raise InputError(f"max_steps_per_match={steps_max!r} must be a positive integer")


def recognize(table: pa.Table, pattern: BoundRowPattern) -> pa.Table:
    """The rows that a row pattern returns for a table."""
    program = table_program(table.schema, pattern)
    session = Session(program)
    session.push(all_at_once(table, program.layout.time), zero_copy=True)
    return session.finish()[pattern.name]


def table_program(schema: pa.Schema, pattern: BoundRowPattern) -> Program:
    """The program of a row pattern over tables with a schema. The program adds a column of times to them."""
    time = ALL_AT_ONCE
    while time in schema.names:
        time += "_"
    timed = schema.append(pa.field(time, pa.int64()))
    return Program((), Layout(timed, time, None), row_patterns=(pattern,))


def all_at_once(table: pa.Table, time: str) -> pa.Table:
    """The table with one more column, which gives all rows the same time."""
    return table.append_column(time, pa.array(np.zeros(table.num_rows, np.int64)))
