"""Aggregates that share: the same kernel over one scan, with what patterns have in common counted once or not at all.

Streams are seeded, one event a tick, over 100 ids. In a *funnel* the shared types are 60 % of all events, as views are
commoner than purchases; in an *even* stream all types are alike. Segments are those that the planner cuts out for these
rates; every row of every query is compared between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Bar, alternate
from ouzel.kernels.counters_shared import SharedInstances, expand, scan_shared
from ouzel.kernels.counters_shared_tables import (
    Part,
    SharedLayout,
    SharedOutput,
    build_shared_tables,
    new_shared_output,
    new_shared_state,
    reserve_shared,
)
from ouzel.plan.sharing import choose_segments

SEED = 20260714
KEYS = 100
WINDOW = 10_000
FUNNEL_SHARE = 0.6
Patterns = list[tuple[int, ...]]
Found = tuple[list[Bar], list[list[str]]]


def with_prefix(queries: int, length: int) -> Patterns:
    """Queries that begin alike and end each with a type of its own."""
    return [(*range(length), length + query) for query in range(queries)]


def with_substring(queries: int, length: int) -> Patterns:
    """Queries that begin and end each with a type of its own."""
    return [(length + 2 * query, *range(length), length + 2 * query + 1) for query in range(queries)]


def rates_of(patterns: Patterns, shared: int, *, funnel: bool) -> list[float]:
    types = max(map(max, patterns)) + 1
    if not funnel:
        return [1 / types] * types
    return [FUNNEL_SHARE / shared] * shared + [(1 - FUNNEL_SHARE) / (types - shared)] * (types - shared)


class Contest:
    """One set of patterns, shared and not."""

    def __init__(self, patterns: Patterns, rates: Sequence[float], events: int) -> None:
        rng = np.random.default_rng(SEED)
        self._symbol = rng.choice(len(rates), events, p=np.array(rates) / sum(rates))
        self._key = rng.integers(0, KEYS, events).astype(np.int32)
        self._queries = len(patterns)
        self.parts, self.segments = choose_segments(patterns, rates)
        self.shared = self._work(self.parts, self.segments, merge=True)
        self.unshared = self._work(patterns, (), merge=False)

    def _work(
        self, patterns: Sequence[Sequence[Part]], segments: Sequence[Sequence[int]], *, merge: bool
    ) -> Callable[[], SharedOutput]:
        summed = [False] * self._queries
        layout = build_shared_tables(patterns, segments, window=WINDOW, summed=summed, merge=merge)
        instances = self._instances(layout)
        tables, count = layout.tables, len(instances.tick)
        groups = [np.arange(KEYS, dtype=np.int32)] * self._queries

        def run() -> SharedOutput:
            state = reserve_shared(tables, new_shared_state(tables), groups)
            done = scan_shared(
                tables, state, instances, 0, count, int(instances.tick[-1]), KEYS, new_shared_output(count)
            )
            assert done.widen_at < 0
            return done.output

        return run

    def _instances(self, layout: SharedLayout) -> SharedInstances:
        symbols = SharedInstances(
            np.arange(len(self._symbol)), self._key, self._symbol.astype(np.uint16), np.empty(0, np.int64)
        )
        return expand(layout, symbols).instances

    def ratio(self, runs: int) -> float:
        """How many times the shared counters are faster; their rows are the same."""
        assert np.array_equal(_rows(self.shared()), _rows(self.unshared())), "sharing has changed an answer"
        seconds = alternate({"shared": self.shared, "unshared": self.unshared}, runs)
        return seconds["unshared"] / seconds["shared"]


def _rows(output: SharedOutput) -> NDArray[Any]:
    told = int(output.written[0])
    found = np.stack([output.tick, output.query, output.group, output.value[:, 0].view(np.int64)])[:, :told]
    return found[:, np.lexsort(found[::-1])]


def ratio_of(patterns: Patterns, shared: int, events: int, runs: int, *, funnel: bool) -> float:
    return Contest(patterns, rates_of(patterns, shared, funnel=funnel), events).ratio(runs)


# ── Parts ──────────────────────────────────────────────────────────────────────────────────────────


def sharing(events: int, runs: int) -> Found:
    """The bars, in a funnel; the same in an even stream beside them."""
    sets: list[tuple[str, Patterns, int, float]] = [
        ("3 queries with a common prefix of 6", with_prefix(3, 6), 6, 1.5),
        ("20 queries with a common prefix of 6", with_prefix(20, 6), 6, 5),
        ("20 queries with a common substring of 6", with_substring(20, 6), 6, 2),
    ]
    events = min(events, 400_000)
    bars, lines = [], []
    for name, patterns, shared, limit in sets:
        funnel = ratio_of(patterns, shared, events, runs, funnel=True)
        even = ratio_of(patterns, shared, events, runs, funnel=False)
        bars.append(Bar(name, funnel, limit, at_least=True))
        lines.append([name, f"{funnel:.2f} times as fast in a funnel, {even:.2f} in an even stream"])
    return bars, lines


def never_worse(events: int, runs: int) -> Found:
    """Sets in which there is little or nothing to share: what the planner leaves must cost no more than 1.05."""
    events = min(events, 200_000)
    rare = [0.002] * 3 + [0.994 / 12] * 12
    sets: list[tuple[str, Patterns, list[float]]] = [
        ("nothing in common", [(3 * q, 3 * q + 1, 3 * q + 2) for q in range(5)], [1 / 15] * 15),
        ("a common prefix of 1", [(0, 1 + 2 * q, 2 + 2 * q) for q in range(5)], [1 / 11] * 11),
        ("a common substring of 3, rare", [(3 + 2 * q, 0, 1, 2, 4 + 2 * q) for q in range(6)], rare),
        ("a common substring of 3, even", [(3 + 2 * q, 0, 1, 2, 4 + 2 * q) for q in range(6)], [1 / 15] * 15),
    ]
    bars, lines = [], []
    for name, patterns, rates in sets:
        ratio = 1 / Contest(patterns, rates, events).ratio(runs)
        bars.append(Bar(f"shared to unshared, {name}", ratio, 1.05, at_least=False))
        lines.append([name, f"{ratio:.2f} of the time"])
    return bars, lines
