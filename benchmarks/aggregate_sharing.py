"""Aggregates that share: the same kernel over one scan, with what patterns have in common counted once or not at all.

Streams are seeded, one event a tick, over 100 ids. In a *funnel* the shared types are 60 % of all events, as views are
commoner than purchases; in an *even* stream all types are alike. Segments are those that the planner cuts out for these
rates; every row of every query is compared between the two.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import ouzel
from benchmarks.measure import Bar, cpu_seconds
from ouzel.engines.aggregate.sharing import choose_segments
from ouzel.engines.aggregate.tables import (
    Part,
    SharedOutput,
    build_shared_tables,
    new_shared_output,
    new_shared_state,
    reserve_shared,
)
from ouzel.engines.aggregate.tree import SharedInstances, expand, scan_shared
from ouzel.runtime.engine import match_without

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


class Mix(NamedTuple):
    """Queries, and how often each of their types comes."""

    name: str
    patterns: Patterns
    rates: list[float]


def random_mix(number: int) -> Mix:
    """A mix of 2 to 40 queries with a common part of 2 to 8 types, wherever it stands, over any sort of stream."""
    rng = np.random.default_rng([SEED, number])
    queries, length = int(rng.integers(2, 41)), int(rng.integers(2, 9))
    before, behind = int(rng.integers(0, 3)), int(rng.integers(1, 3))
    own = length
    patterns: Patterns = []
    for _ in range(queries):
        patterns.append((*range(own, own + before), *range(length), *range(own + before, own + before + behind)))
        own += before + behind
    # Of some queries the common part is shorter, or none at all.
    for query in range(0, queries, int(rng.integers(2, 5))):
        patterns[query] = patterns[query][: before + 1] + patterns[query][-behind:]
    kinds = ("even", "skewed", "rare", "funnel")
    kind = kinds[int(rng.integers(len(kinds)))]
    rates = np.ones(own)
    if kind == "skewed":
        rates = 1 / rng.permutation(np.arange(1, own + 1))
    elif kind != "even":
        share = 0.02 if kind == "rare" else FUNNEL_SHARE
        rates[:length] = share / length
        rates[length:] = (1 - share) / (own - length)
    name = f"{queries} queries, {before} + {length} + {behind}, {kind}"
    return Mix(name, patterns, [float(rate) for rate in rates / rates.sum()])


class Contest:
    """One set of patterns, shared and not."""

    def __init__(self, patterns: Patterns, rates: Sequence[float], events: int) -> None:
        mix = Mix("", patterns, list(rates))
        self.parts, self.segments = choose_segments(patterns, rates)
        self.shared = self.work(mix, self.parts, self.segments, events, merge=True)
        self.unshared = self.work(mix, patterns, (), events, merge=False)

    @staticmethod
    def work(
        mix: Mix, patterns: Sequence[Sequence[Part]], segments: Sequence[Sequence[int]], events: int, *, merge: bool
    ) -> Callable[[], SharedOutput]:
        """One scan over the events of a mix."""
        rng = np.random.default_rng(SEED)
        drawn = rng.choice(len(mix.rates), events, p=np.array(mix.rates) / sum(mix.rates)).astype(np.uint16)
        keys = rng.integers(0, KEYS, events).astype(np.int32)
        queries = len(patterns)
        layout = build_shared_tables(patterns, segments, window=WINDOW, summed=[False] * queries, merge=merge)
        symbols = SharedInstances(np.arange(events), keys, drawn, np.empty(0, np.int64))
        instances, rows = expand(layout, symbols)
        tables, count = layout.tables, len(instances.tick)
        groups = [np.arange(KEYS, dtype=np.int32)] * queries

        def run() -> SharedOutput:
            state = reserve_shared(tables, new_shared_state(tables), groups)
            done = scan_shared(
                tables, state, instances, 0, count, int(instances.tick[-1]), KEYS, new_shared_output(rows)
            )
            assert done.widen_at < 0
            return done.output

        return run

    def ratio(self, runs: int) -> float:
        """How many times the shared counters are faster, the median of all rounds; their rows are the same."""
        assert np.array_equal(_rows(self.shared()), _rows(self.unshared())), "sharing has changed an answer"
        return statistics.median(cpu_seconds(self.unshared) / cpu_seconds(self.shared) for _ in range(runs))


def _rows(output: SharedOutput) -> NDArray[Any]:
    told = int(output.written[0])
    found = np.stack([output.tick, output.query, output.group, output.value[:, 0].view(np.int64)])[:, :told]
    return found[:, np.lexsort(found[::-1])]


def ratio_of(patterns: Patterns, shared: int, events: int, runs: int, *, funnel: bool) -> float:
    return Contest(patterns, rates_of(patterns, shared, funnel=funnel), events).ratio(runs)


# ── Parts ──────────────────────────────────────────────────────────────────────────────────────────


_STREAMS = ("an even stream", "a funnel")


def sharing(events: int, runs: int) -> Found:
    """The bars, in an even stream, which favours neither way, and in a funnel."""
    sets: list[tuple[str, Patterns, int, float]] = [
        ("3 queries with a common prefix of 6", with_prefix(3, 6), 6, 1.5),
        ("20 queries with a common prefix of 6", with_prefix(20, 6), 6, 5),
        ("20 queries with a common substring of 6", with_substring(20, 6), 6, 2),
    ]
    events = min(events, 400_000)
    bars, lines = [], []
    for name, patterns, shared, limit in sets:
        found = {kind: ratio_of(patterns, shared, events, runs, funnel=kind == "a funnel") for kind in _STREAMS}
        bars += [Bar(f"{name}, {kind}", ratio, limit, at_least=True) for kind, ratio in found.items()]
        lines.append([name, ", ".join(f"{ratio:.2f} times as fast in {kind}" for kind, ratio in found.items())])
    return bars, lines


# Where there is little or nothing to share, and at random: 2 to 40 queries, a common part of 2 to 8 types.
RANDOM_MIXES = 24


def little_to_share() -> list[Mix]:
    rare = [0.002] * 3 + [0.994 / 12] * 12
    substring = [(3 + 2 * q, 0, 1, 2, 4 + 2 * q) for q in range(6)]
    return [
        Mix("nothing in common", [(3 * q, 3 * q + 1, 3 * q + 2) for q in range(5)], [1 / 15] * 15),
        Mix("a common prefix of 1", [(0, 1 + 2 * q, 2 + 2 * q) for q in range(5)], [1 / 11] * 11),
        Mix("a common substring of 3, rare", substring, rare),
        Mix("a common substring of 3, even", substring, [1 / 15] * 15),
        *(Mix(f"{q} queries, a common substring of 6, even", with_substring(q, 6), [1 / (6 + 2 * q)] * (6 + 2 * q))
          for q in (2, 3, 4, 6, 12)),
    ]  # fmt: skip


def never_worse(events: int, runs: int) -> Found:
    """The kernel alone: what the planner chooses must cost no more than 1.05 of what counting one by one does."""
    events = min(events, 200_000)
    lines = []
    ratios = []
    for mix in [*little_to_share(), *map(random_mix, range(RANDOM_MIXES))]:
        contest = Contest(mix.patterns, mix.rates, events)
        merged = len({pattern[: n + 1] for pattern in contest.parts for n in range(len(pattern))})
        if not contest.segments and merged == sum(map(len, mix.patterns)):
            lines.append([mix.name, "the planner shares nothing: the same counters"])
            continue
        ratios.append(1 / contest.ratio(2 * runs - 1))
        shared = f", with {len(contest.segments)} segments" if contest.segments else ""
        lines.append([mix.name, f"{ratios[-1]:.2f} of the time{shared}"])
    return [Bar("shared to unshared counters, worst of the mixes that share", max(ratios), 1.05, at_least=False)], lines


def whole_answers(events: int, runs: int) -> Found:
    """From the Arrow table to tables of counts: queries given together, with sharing and with its rule switched off."""
    events = min(events, 500_000)
    mixes = [
        Mix("2 queries, nothing in common", [(0, 1, 2), (3, 4, 5)], [1 / 6] * 6),
        Mix("2 queries, nothing in common, 14 other types", [(0, 1, 2), (3, 4, 5)], [1 / 20] * 20),
        Mix("5 queries, nothing in common", [(3 * q, 3 * q + 1, 3 * q + 2) for q in range(5)], [1 / 15] * 15),
        Mix("20 queries, nothing in common", [(2 * q, 2 * q + 1) for q in range(20)], [1 / 40] * 40),
        Mix("2 queries with a common end", [(0, 1, 2), (3, 1, 2)], [1 / 4] * 4),
        Mix("2 queries, the same", [(0, 1, 2)] * 2, [1 / 6] * 6),
        Mix("3 queries with a rare common prefix of 1", [(0, 1 + 2 * q, 2 + 2 * q) for q in range(3)],
            [0.04] + [0.16] * 6),
        Mix("a long query whose types are rare, and 2 short ones", [tuple(range(12)), (12, 13), (14, 15)],
            [0.001] * 12 + [0.247] * 4),
        random_mix(0),
        random_mix(3),
    ]  # fmt: skip
    ratios, lines = [], []
    for mix in mixes:
        # Whole answers take memory from the system and give it back, which differs from call to call.
        queries = {
            f"q{number}": f"PATTERN SEQ({', '.join(f'E{symbol} v{place}' for place, symbol in enumerate(pattern))}) "
            f"GROUP BY id AGG COUNT WITHIN {WINDOW}"
            for number, pattern in enumerate(mix.patterns)
        }
        ratios.append(_ratio_of_answers(mix.rates, queries, events, 6 * runs - 5))
        lines.append([mix.name, f"{ratios[-1]:.2f} of the time"])
    return [Bar("whole answers, shared to unshared, worst of all mixes", max(ratios), 1.05, at_least=False)], lines


def beside_negation(events: int, runs: int) -> Found:
    """Six queries with a common prefix of 6 in a funnel: COUNT alone, and what counters cannot subtract."""
    events = min(events, 500_000)
    patterns = with_prefix(6, 6)
    rates = [*rates_of(patterns, 6, funnel=True), 0.02]
    negated = f"!(E{len(rates) - 1} n)"
    lines, found = [], {}
    for name, between, aggregates in (
        ("COUNT", "", "COUNT"),
        ("COUNT beside a negation", negated, "COUNT"),
        ("the least of the prefix", "", "MIN(v0.x) AS least"),
        ("the mean of doubles of the prefix", "", "AVG(v0.x) AS mean"),
    ):
        queries = {}
        for number, pattern in enumerate(patterns):
            steps = [f"E{symbol} v{place}" for place, symbol in enumerate(pattern)]
            steps[4:4] = [between] * bool(between)
            queries[f"q{number}"] = f"PATTERN SEQ({', '.join(steps)}) GROUP BY id AGG {aggregates} WITHIN {WINDOW}"
        found[name] = 1 / _ratio_of_answers(rates, queries, events, 2 * runs - 1)
        lines.append([name, f"{found[name]:.2f} times as fast"])
    beside = found["COUNT beside a negation"]
    return [Bar("6 queries with a prefix of 6 and a negation, whole answers", beside, 2.5, at_least=True)], lines


def _ratio_of_answers(rates: Sequence[float], queries: dict[str, str], events: int, rounds: int) -> float:
    """What the queries cost together, to what they cost without sharing, over a stream of types with these rates."""
    rng = np.random.default_rng(SEED)
    drawn = rng.choice(len(rates), events, p=np.array(rates) / sum(rates)).astype(np.int16)
    types = pa.DictionaryArray.from_arrays(pa.array(drawn), pa.array([f"E{number}" for number in range(len(rates))]))
    ids = pa.array(rng.integers(0, KEYS, events))
    # Sums of such doubles are exact.
    x = pa.array(rng.integers(0, 1000, events) / 4)
    table = pa.table({"type": types, "ts": pa.array(np.arange(events)), "id": ids, "x": x})

    def shared() -> Any:
        return ouzel.match(table, queries)

    def unshared() -> Any:
        return match_without(["share_counters"], table, queries)

    one, other = shared(), unshared()
    order = [("end", "ascending"), ("id", "ascending")]
    assert all(one[name].sort_by(order).equals(other[name].sort_by(order)) for name in queries), "an answer has changed"
    ratios = []
    for number in range(rounds):
        # In turns, since who comes second finds memory warmer.
        if number % 2:
            taken = cpu_seconds(shared)
            ratios.append(taken / cpu_seconds(unshared))
        else:
            taken = cpu_seconds(unshared)
            ratios.append(cpu_seconds(shared) / taken)
    return statistics.median(ratios)
