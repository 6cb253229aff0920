"""A set that changes: rules that are added and removed one by one, and a rule that passes its limit among others."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import ouzel
from benchmarks.many_queries_rules import Found, S, ranged_rules, stock_events
from benchmarks.many_queries_world import cpu_seconds
from benchmarks.measure import Bar

BLOCKS = 10


def _held(size: int, schema: pa.Schema) -> ouzel.QuerySet:
    held = ouzel.QuerySet(type=None, schema=schema)
    rules = ranged_rules(size)
    held.add_template("rules", rules.template, rules.rows)
    held.explain()  # builds the index
    return held


def _updates(held: ouzel.QuerySet, events: pa.Table, first: int, count: int) -> float:
    """Microseconds for an update: one rule is added and takes effect with the next event, the one before is removed."""
    rng = np.random.default_rng(first)
    lows = rng.random(count)
    texts = [S.select(f"price BETWEEN {low:.6f} AND {low + 1e-6:.6f}") for low in lows.tolist()]

    def run() -> None:
        for k, text in enumerate(texts, start=first):
            held.add(f"one {k}", text)
            held.push(events.slice(k, 1))
            if k:
                held.remove(f"one {k - 1}")

    return 1e6 * cpu_seconds(run)[0] / count


def updates(quick: bool) -> Found:
    """Adding a rule among few and among many, over many updates; and what removed rules leave."""
    few, many, count = (1_000, 10_000, 500) if quick else (1_000, 400_000, 10_000)
    events = stock_events(count)
    held = {size: _held(size, events.schema) for size in (few, many)}
    before = {size: one.bytes for size, one in held.items()}
    block = count // BLOCKS
    # The first block is a warm-up: the first texts of a shape are bound, and pieces of the set are built.
    micros: dict[int, list[float]] = {few: [], many: []}
    for number in range(BLOCKS):
        for size, one in held.items():
            micros[size].append(_updates(one, events, number * block, block))
    steady = {size: taken[1:] for size, taken in micros.items()}
    ratio = float(np.median([b / a for a, b in zip(steady[few], steady[many], strict=True)]))
    flat = float(np.median(steady[many][-3:]) / np.median(steady[many][:3]))
    bars = [
        Bar(f"updating one rule among {many:,}, of one among {few:,}", ratio, 2, at_least=False),
        Bar(f"updates among {many:,}: the last three tenths of {count:,} to the first", flat, 1.2, at_least=False),
    ]
    rows = []
    for size, one in held.items():
        after = one.bytes
        for number in range(0, size, 2):
            one.remove(number)
        one.push(events.slice(count - 1, 1))
        left = one.bytes / before[size]
        bars.append(
            Bar(f"bytes of {size:,} rules after half of them are removed, of before", left, 0.6, at_least=False)
        )
        cells = [f"{np.median(steady[size]):,.0f}", f"{min(steady[size]):,.0f}", f"{max(steady[size]):,.0f}"]
        rows.append([f"{size:,}", *cells, *(f"{part / size:,.0f}" for part in (before[size], after, one.bytes))])
    headings = ["rules", "µs an update", "fastest tenth", "slowest tenth", "bytes a rule before"]
    return ([*headings, "after the updates", "after half are removed"], rows), bars


def explosive(quick: bool) -> Found:
    """A push with a rule whose instances never end, against the same push without it."""
    size, limit = (1_000, 2_000) if quick else (10_000, 100_000)
    rows, bars = [], []
    for count in (5_000,) if quick else (200_000, 1_000_000):
        events = stock_events(count)
        seconds: dict[str, list[float]] = {"without": [], "with": []}
        found: dict[str, pa.Table] = {}
        for _ in range(3):
            for name, taken in seconds.items():
                held = ouzel.QuerySet(type=None, schema=events.schema, limits={"max_partial_matches": limit})
                rules = ranged_rules(size)
                held.add_template("rules", rules.template, rules.rows)
                if name == "with":
                    held.add("explosive", _explosive())
                held.explain()
                held.push(events.slice(0, 1))
                spent, answers = cpu_seconds(partial(_quietly, held, events.slice(1)))
                taken.append(spent)
                found[name] = answers["rules"]
                if name == "with":
                    (problem,) = held.problems()
                    assert problem.query == "explosive"
                    assert held.statistics["instances"] < limit / 2, "its instances are freed"
        assert found["with"].equals(found["without"]), "the others' answers are complete"
        ratio = float(np.median([b / a for a, b in zip(seconds["without"], seconds["with"], strict=True)]))
        bars.append(Bar(f"a push of {count:,} events with an explosive rule, of without", ratio, 1.5, at_least=False))
        cells = [f"{1e3 * np.median(taken):,.0f}" for taken in seconds.values()]
        rows.append([f"{count:,}", f"{size:,}", f"{limit:,}", f"{found['with'].num_rows:,}", *cells, f"{ratio:.2f}"])
    headings = ["events", "rules", "max_partial_matches", "answers of the others", "without, ms", "with, ms", "ratio"]
    return (headings, rows), bars


def _explosive() -> Any:
    """Every event starts an instance, which waits for a price that never comes."""
    first = S.rename({"price": "first", "name": "first_name", "word": "first_word"})
    return first.next(S, "price > 2 AND DUR <= 1000000000")


def _quietly(held: ouzel.QuerySet, events: pa.Table) -> dict[Any, pa.Table]:
    with warnings.catch_warnings(action="ignore", category=ouzel.ProblemWarning):
        return held.push(events)
