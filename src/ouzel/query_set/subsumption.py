"""Thresholds in patterns: the matches of a stricter query are among those of a weaker one.

Under skip_till_any_match, the matches with `a.price > 95` are those with `a.price > 90` whose price is above 95. So one
query can run for many that differ in such constants, if it is the weakest of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ouzel.bind.model import BOOL, Bound, BoundQuery, Conjunct, Constant, Kind, Operation, TimeWindow
from ouzel.engines.automata.columns import ordered
from ouzel.engines.automata.plan import range_of
from ouzel.lang.syntax import OutputForm, Strategy
from ouzel.plan.expressions import components_of
from ouzel.runtime.values import one_array, split

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Limit(NamedTuple):
    """A comparison of a value of one event with a constant: the values that pass, as integers of the same order."""

    value: Bound
    operator: str
    low: int
    high: int


def without_limits(query: BoundQuery) -> tuple[BoundQuery, tuple[Limit, ...]]:
    """The query without the constants of its thresholds, and the thresholds; none if they must stay."""
    if not _is_filtered_afterwards(query):
        return query, ()
    found = []
    conjuncts = []
    for conjunct in query.conjuncts:
        limit = _limit_of(conjunct)
        if limit is not None:
            found.append(limit)
            nothing = Constant(None, type=limit.value.type)
            conjunct = replace(conjunct, comparisons=(Operation(limit.operator, (limit.value, nothing), type=BOOL),))
        conjuncts.append(conjunct)
    return replace(query, conjuncts=tuple(conjuncts)), tuple(found)


def _is_filtered_afterwards(query: BoundQuery) -> bool:
    """Whether matches are independent, so that a filter on complete matches can decide which ones to show."""
    plain = query.returns is not None and not query.aggregates and query.threshold is None and query.into is None
    alone = query.strategy is Strategy.SKIP_TILL_ANY_MATCH and query.output.form is OutputForm.ALL
    # A condition on an absent variable holds, and is null afterwards.
    alone = alone and not query.readings
    return plain and alone and isinstance(query.window, TimeWindow) and not any(c.kleene for c in query.components)


def _limit_of(conjunct: Conjunct) -> Limit | None:
    if conjunct.negative is not None or len(conjunct.comparisons) != 1:
        return None
    (comparison,) = conjunct.comparisons
    if not isinstance(comparison, Operation) or comparison.operator not in _MIRRORED:
        return None
    left, right = comparison.operands
    operator = comparison.operator
    if isinstance(left, Constant):
        left, right, operator = right, left, _MIRRORED[operator]
    if not isinstance(right, Constant) or len(components_of(left)) != 1:
        return None
    if left.type.kind not in (Kind.INT, Kind.FLOAT) or right.type != left.type:
        return None
    constant = right.value
    if isinstance(constant, bool) or not isinstance(constant, int | float) or math.isnan(constant):
        return None
    constants = np.array([constant])
    numbers = ordered(constants) if left.type.kind is Kind.FLOAT else constants.astype(np.int64)
    low, high, _ = range_of(operator, numbers)
    return Limit(left, operator, int(low[0]), int(high[0]))


def asks_for_more(own: Sequence[Limit], other: Sequence[Limit]) -> bool:
    """Whether every value that passes these limits also passes the others, which are on the same values."""
    return all(mine.low >= theirs.low and mine.high <= theirs.high for mine, theirs in zip(own, other, strict=True))


class Within:
    """Values of matches, which many queries compare with their limits."""

    def __init__(self, answer: pa.Table) -> None:
        self._answer = answer
        self._numbers: dict[int, np.ndarray] = {}

    def rows(self, asked: Sequence[tuple[int, Limit]]) -> np.ndarray:
        """The rows whose columns with these numbers pass these limits. No value is null, because the running query
        compares them too."""
        passes = np.ones(self._answer.num_rows, bool)
        for place, limit in asked:
            if place not in self._numbers:
                column = one_array(self._answer.column(place))
                is_float = limit.value.type.kind is Kind.FLOAT
                values, _ = split(column, np.float64 if is_float else np.int64)
                self._numbers[place] = ordered(values) if is_float else values
            passes &= (self._numbers[place] >= limit.low) & (self._numbers[place] <= limit.high)
        return np.flatnonzero(passes)
