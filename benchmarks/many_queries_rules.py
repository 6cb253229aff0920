"""Rules that differ only in a threshold, a range or the beginning of a text: their cost by number, against scanning.

About ten rules fire at every event, however many there are. numpy computes how many answers there must be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pyarrow as pa

import ouzel
from benchmarks.many_queries_world import cpu_seconds
from benchmarks.measure import Bar
from ouzel.algebra import Stream, stream
from ouzel.engines.automata import indexes

Found = tuple[tuple[list[str], list[list[str]]], list[Bar]]
SIZES = (10_000, 100_000, 400_000)
FIRING = 10
NAMES = 4
S = stream()


def stock_events(count: int) -> pa.Table:
    rng = np.random.default_rng(7)
    return pa.table(
        {
            "ts": np.arange(count),
            "name": rng.choice([f"n{k}" for k in range(NAMES)], count),
            "price": rng.random(count),
            "word": [f"{word:06d}" for word in rng.integers(0, 1_000_000, count)],
        }
    )


class Rules(NamedTuple):
    """A template, the rows of its rules, and how many answers the rules must give."""

    template: Stream
    rows: pa.Table
    answers: int


def _above(size: int, events: pa.Table) -> Rules:
    """Thresholds most of which are above all prices."""
    price = events.column("price").to_numpy()
    limits = np.random.default_rng(1).random(size) * size / (2 * FIRING)
    answers = int(np.searchsorted(np.sort(limits), price, side="left").sum())
    return Rules(S.select("price > :limit"), pa.table({"id": np.arange(size), "limit": limits}), answers)


def _ranges(size: int) -> tuple[np.ndarray, np.ndarray]:
    low = np.random.default_rng(2).random(size)
    return low, low + FIRING / size


def _count(low: np.ndarray, high: np.ndarray, values: np.ndarray) -> int:
    begun = np.searchsorted(np.sort(low), values, side="right")
    return int((begun - np.searchsorted(np.sort(high), values, side="left")).sum())


def ranged_rules(size: int, events: pa.Table | None = None) -> Rules:
    low, high = _ranges(size)
    rows = pa.table({"id": np.arange(size), "low": low, "high": high})
    answers = 0 if events is None else _count(low, high, events.column("price").to_numpy())
    return Rules(S.select("price BETWEEN :low AND :high"), rows, answers)


def _named(size: int, events: pa.Table) -> Rules:
    """Ranges beside an equality that is the same for very many rules."""
    low, _ = _ranges(size)
    high = low + NAMES * FIRING / size
    names = np.array([f"n{k % NAMES}" for k in range(size)])
    rows = pa.table({"id": np.arange(size), "name": names, "low": low, "high": high})
    price, name = events.column("price").to_numpy(), np.array(events.column("name").to_pylist())
    answers = sum(_count(low[names == one], high[names == one], price[name == one]) for one in np.unique(names))
    return Rules(S.select("name = :name AND price BETWEEN :low AND :high"), rows, answers)


def _waiting(size: int, events: pa.Table) -> Rules:
    """Instances that wait for a range: every event starts one of each rule whose first range it is in."""
    low, high = _ranges(size)
    other = np.roll(low, 1)
    rows = pa.table({"id": np.arange(size), "low": low, "high": high, "other": other, "end": other + 0.02})
    first = S.select("price BETWEEN :low AND :high").rename(
        {"price": "first", "name": "first_name", "word": "first_word"}
    )
    price, answers = events.column("price").to_numpy(), 0
    by_low = np.argsort(low)
    lows = low[by_low]
    for k, one in enumerate(price.tolist()):
        begun = by_low[np.searchsorted(lows, one - FIRING / size) : np.searchsorted(lows, one, "right")]
        begun = begun[(low[begun] <= one) & (one <= high[begun])]
        later = price[k + 1 : k + 20]
        inside = (other[begun, None] <= later) & (later <= other[begun, None] + 0.02)
        answers += int(inside.any(axis=1).sum())
    return Rules(first.next(S, "price BETWEEN :other AND :end AND DUR <= 20"), rows, answers)


KINDS: dict[str, Callable[[int, pa.Table], Rules]] = {
    "price > :limit": _above,
    "price BETWEEN :low AND :high": ranged_rules,
    "name = :name AND price BETWEEN :low AND :high": _named,
    "next(price BETWEEN :low AND :high)": _waiting,
}


def _built(rules: Rules, schema: pa.Schema) -> ouzel.QuerySet:
    held = ouzel.QuerySet(type=None, schema=schema)
    held.add_template("rules", rules.template, rules.rows)
    held.explain()  # builds the index
    return held


def _read(rules: Rules, events: pa.Table, warm: int) -> float:
    """Microseconds an event, after a warm-up."""
    held = _built(rules, events.schema)
    found = sum(table.num_rows for table in held.push(events.slice(0, warm)).values())
    seconds, answers = cpu_seconds(lambda: [held.push(events.slice(warm)), held.finish()])
    found += sum(table.num_rows for answer in answers for table in answer.values())
    assert found == rules.answers, (found, rules.answers)
    return 1e6 * seconds / (len(events) - warm)


@contextmanager
def _scanning() -> Iterator[None]:
    before = indexes.RANGES_MIN
    indexes.RANGES_MIN = 2**62
    try:
        yield
    finally:
        indexes.RANGES_MIN = before


def ranges(quick: bool) -> Found:
    """Cost per event by number of rules, and against testing the ranges one by one."""
    sizes = (1_000, 4_000) if quick else SIZES
    many = stock_events(3_000 if quick else 20_000)
    few = many.slice(0, 300)
    rows, bars = [], []
    for kind, make in KINDS.items():
        rules = {size: make(size, many) for size in sizes}
        rounds = [{size: _read(rules[size], many, len(many) // 5) for size in sizes} for _ in range(3)]
        micros = {size: float(np.median([one[size] for one in rounds])) for size in sizes}
        ratio = float(np.median([one[sizes[-1]] / one[sizes[0]] for one in rounds]))
        bars.append(Bar(f"{kind}: {sizes[-1]:,} rules to {sizes[0]:,}", ratio, 4, at_least=False))
        middle = make(sizes[1], few)
        with _scanning():
            scanned = _read(middle, few, 100)
        factor = scanned / micros[sizes[1]]
        bars.append(Bar(f"{kind}: scanning to searching {sizes[1]:,} rules", factor, 100, at_least=True))
        cells = [f"{micros[size]:.2f}" for size in sizes]
        rows.append([kind, f"{rules[sizes[-1]].answers / len(many):.1f}", *cells, f"{scanned:,.0f}"])
    headings = ["rule", "firing an event", *(f"{size:,} rules, µs an event" for size in sizes)]
    return ([*headings, f"scanned, {sizes[1]:,} rules"], rows), bars
