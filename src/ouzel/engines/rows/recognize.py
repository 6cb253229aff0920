"""`ouzel.match_recognize`: SQL's row pattern recognition over tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ouzel.bind.row_patterns import BoundRowPattern, bind_row_pattern
from ouzel.bind.schema import attributes_of
from ouzel.engines.rows.operator import STEPS_MAX, recognize
from ouzel.engines.rows.plan import plan_row_pattern
from ouzel.errors import InputError
from ouzel.lang.parser import parse_row_pattern
from ouzel.runtime.inputs import as_table


def match_recognize(
    table: Any,
    clause: str,
    *,
    params: Mapping[str, Any] | None = None,
    max_steps_per_match: int = STEPS_MAX,
) -> pa.Table:
    """The rows that SQL's `table MATCH_RECOGNIZE (clause)` gives.

    `table` is any input that `ouzel.match` takes. `clause` is the text in the parentheses. `params` has the values of
    its `:name` parameters. A search for one match that takes more than `max_steps_per_match` steps stops with an error;
    only conditions that read the match, such as `SUM(A.x) < 100`, are searched.

    >>> import ouzel
    >>> ticks = [{"ts": 1, "price": 5}, {"ts": 2, "price": 3}, {"ts": 3, "price": 4}]
    >>> ouzel.match_recognize(ticks, '''
    ...     ORDER BY ts
    ...     MEASURES FIRST(DOWN.ts) AS began, LAST(UP.price) AS price
    ...     PATTERN (DOWN+ UP+)
    ...     DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)''').to_pylist()
    [{'began': 2, 'price': 4}]
    """
    if type(max_steps_per_match) is not int or not 0 < max_steps_per_match < 2**63:
        raise InputError(f"max_steps_per_match={max_steps_per_match!r} must be a positive integer")
    events = as_table(table)
    bound = bound_row_pattern(clause, events.schema, params)
    return recognize(events, plan_row_pattern(bound), steps_max=max_steps_per_match)


def bound_row_pattern(clause: str, schema: pa.Schema, params: Mapping[str, Any] | None = None) -> BoundRowPattern:
    """A row pattern over tables of a schema."""
    return bind_row_pattern(parse_row_pattern(clause), clause, attributes_of(schema), params)
