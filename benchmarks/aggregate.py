"""Aggregates over matches: how cost grows with the pattern, with first events, with negation, and beside others.

    python -m benchmarks.aggregate [--events 1000000] [--runs 5] [--only length starts negation building loop]

Streams are seeded: 20 types drawn evenly, one event a tick. Every contestant's answer is checked against another
algorithm's on the whole stream, in every run of this program. Times are CPU seconds, medians of alternating runs.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

import ouzel
from benchmarks.measure import Bar, alternate, machine, markdown
from ouzel.kernels.counters_matrix import new_matrix_state, reserve_matrix, scan_matrix
from ouzel.kernels.counters_tables import (
    CounterInstances,
    Way,
    build_counter_tables,
    new_counter_instances,
    new_counter_output,
)

TYPES = 20
SEED = 20260714
NAMES = [f"E{number}" for number in range(TYPES)]
Rows = NDArray[np.int64]  # tick, group, count

# The paper's own figure for building against counting at length 5.
PAPER_RATIO_AT_LENGTH_5 = 16_736


# ── Streams ────────────────────────────────────────────────────────────────────────────────────────


def instances_of(events: int, types: int, keys: int) -> CounterInstances:
    """Events of the first types, ready for a kernel."""
    rng = np.random.default_rng(SEED)
    drawn = rng.integers(0, TYPES, events)
    ids = rng.integers(1, keys + 1, events)
    chosen = np.flatnonzero(drawn < types)
    made = new_counter_instances(len(chosen))
    return made._replace(
        tick=chosen.astype(np.int64),
        key=(ids[chosen] if keys > 1 else np.zeros(len(chosen))).astype(np.int32),
        component=drawn[chosen].astype(np.uint8),
    )


def table_of(events: int, keys: int) -> pa.Table:
    """The same stream as users have it."""
    rng = np.random.default_rng(SEED)
    drawn = rng.integers(0, TYPES, events).astype(np.int8)
    ids = rng.integers(1, keys + 1, events)
    types = pa.DictionaryArray.from_arrays(pa.array(drawn), pa.array(NAMES))
    return pa.table({"type": types, "ts": pa.array(np.arange(events)), "id": pa.array(ids)})


# ── Contestants ────────────────────────────────────────────────────────────────────────────────────


def counted(instances: CounterInstances, negated: Sequence[bool], window: int, keys: int, way: Way) -> Rows:
    """Our kernel: a row for each key whenever it completes a match."""
    tables = build_counter_tables(negated, None, window, way=way)
    groups = np.arange(keys + 1, dtype=np.int32)
    used = len(instances.tick)
    state = reserve_matrix(tables, new_matrix_state(tables), used, keys + 1, groups)
    output = new_counter_output(tables, max(1, int((instances.component == len(negated) - 1).sum())))
    _, output = scan_matrix(tables, state, instances, 0, used, int(instances.tick[-1]), output)
    told = int(output.written[0])
    return np.stack([output.tick[:told], output.group[:told], output.words[:told, 0].astype(np.int64)])


@njit(cache=True)
def _per_start(tick: Any, component: Any, length: Any, window: Any, counters: Any, ticks: Any, told: Any) -> Any:
    """The paper's SEM for one key: counters[j, s] of the s-th first event, side by side so that they are added fast."""
    first = last = written = 0
    for slot in range(tick.size):
        now = tick[slot]
        while first < last and now - ticks[first] >= window:
            first += 1
        own = component[slot]
        if own == 0:
            counters[0, last] = 1
            ticks[last] = now
            last += 1
            continue
        shorter = counters[own - 1]
        longer = counters[own]
        for start in range(first, last):
            longer[start] += shorter[start]
        if own == length - 1:
            total = 0
            fresh = 0
            for start in range(first, last):
                total += longer[start]
                fresh += shorter[start]
            if fresh > 0:
                told[0, written] = now
                told[2, written] = total
                written += 1
    return written


def per_start(instances: CounterInstances, length: int, window: int) -> Rows:
    starts = int((instances.component == 0).sum())
    told = np.zeros((3, len(instances.tick)), np.int64)
    counters = np.zeros((length, starts + 1), np.int64)
    ticks = np.zeros(starts + 1, np.int64)
    written = _per_start(instances.tick, instances.component, length, window, counters, ticks, told)
    return told[:, :written]


def python_loop(rows: Sequence[tuple[int, int, int]], length: int, window: int) -> int:
    """Counters for each key and first event in plain Python, over tuples (type, tick, key); the sum of all counts."""
    starts: dict[int, deque[list[int]]] = {}
    told = 0
    for kind, tick, key in rows:
        if kind >= length:
            continue
        mine = starts.get(key)
        if kind == 0:
            if mine is None:
                mine = starts[key] = deque()
            mine.append([tick, 1] + [0] * (length - 1))
            continue
        if not mine:
            continue
        while mine and tick - mine[0][0] >= window:
            mine.popleft()
        if kind < length - 1:
            for start in mine:
                start[kind + 1] += start[kind]
            continue
        total = fresh = 0
        for start in mine:
            fresh += start[kind]
            start[kind + 1] += start[kind]
            total += start[kind + 1]
        if fresh:
            told += total
    return told


def query_text(length: int, window: int, *, negative: bool = False, grouped: bool = True) -> str:
    parts = [f"E{number} v{number}" for number in range(length)]
    if negative:
        parts.insert(length - 1, f"!(E{length} n)")
    group = "GROUP BY id " if grouped else ""
    return f"PATTERN SEQ({', '.join(parts)}) {group}AGG COUNT WITHIN {window}"


def same(left: Rows, right: Rows) -> None:
    assert left.shape == right.shape and (left == right).all(), "two algorithms count differently"


# ── Parts ──────────────────────────────────────────────────────────────────────────────────────────


def growth_with_length(events: int, runs: int) -> tuple[list[Bar], list[list[str]]]:
    window, keys = 10_000, 100
    work: dict[str, Callable[[], Any]] = {}
    relevant = {}
    for length in (2, 5, 10):
        instances = instances_of(events, length, keys)
        relevant[length] = len(instances.tick)
        inverse = counted(instances, [False] * length, window, keys, Way.INVERSE)
        same(inverse, counted(instances, [False] * length, window, keys, Way.STACKS))
        work[str(length)] = lambda i=instances, n=length: counted(i, [False] * n, window, keys, Way.INVERSE)
    seconds = alternate(work, runs)
    cost = {length: seconds[str(length)] / relevant[length] * 1e9 for length in relevant}
    bars = [
        Bar("cost per event, length 5 to 2", cost[5] / cost[2], 1.8, at_least=False),
        Bar("cost per event, length 10 to 2", cost[10] / cost[2], 5, at_least=False),
    ]
    return bars, [[f"length {length}", f"{cost[length]:.1f} ns an event"] for length in cost]


def growth_with_starts(events: int, runs: int) -> tuple[list[Bar], list[list[str]]]:
    bars, lines = [], []
    # One first event in twenty.
    few, many = 50 * TYPES, 5_000 * TYPES
    instances = instances_of(events, 3, 1)
    same(counted(instances, [False] * 3, many, 1, Way.INVERSE), per_start(instances, 3, many))
    seconds = alternate(
        {
            "few": lambda: counted(instances, [False] * 3, few, 1, Way.INVERSE),
            "many": lambda: counted(instances, [False] * 3, many, 1, Way.INVERSE),
            "few, per start": lambda: per_start(instances, 3, few),
            "many, per start": lambda: per_start(instances, 3, many),
        },
        runs,
    )
    lines += [[name, f"{taken / len(instances.tick) * 1e9:.1f} ns an event"] for name, taken in seconds.items()]
    bars.append(Bar("5,000 first events to 50, length 3", seconds["many"] / seconds["few"], 1.3, at_least=False))
    ratio = seconds["many, per start"] / seconds["many"]
    bars.append(Bar("against counters for each of 5,000 first events", ratio, 10, at_least=True))
    return bars, lines


def negation(events: int, runs: int) -> tuple[list[Bar], list[list[str]]]:
    """The paper's q1 and q2: the same pattern without and with a negative type, over the same whole stream."""
    table = table_of(events, 100)
    plain, negative = query_text(3, 10_000), query_text(3, 10_000, negative=True)
    slow = ouzel.match(table, negative, rules_off=["count_by_inverse", "count_by_stacks"])
    assert ouzel.match(table, negative).equals(slow), "two algorithms count differently"
    seconds = alternate({"off": lambda: ouzel.match(table, plain), "on": lambda: ouzel.match(table, negative)}, runs)
    bars = [Bar("negation on to off", seconds["on"] / seconds["off"], 1.5, at_least=False)]
    return bars, [[f"negation {name}", f"{taken / events * 1e9:.1f} ns an event"] for name, taken in seconds.items()]


def building(events: int, runs: int) -> tuple[list[Bar], list[list[str]]]:
    """Figure 12: counting against building and counting, as the pattern grows. Told, not barred."""
    # Small, since what is built grows by an order of magnitude with each component.
    table, window = table_of(min(events, 4_000), 1), 200
    off = ["count_without_matches"]
    lines = []
    for length in (2, 3, 4, 5):
        text = query_text(length, window, grouped=False)
        assert ouzel.match(table, text).equals(ouzel.match(table, text, rules_off=off)), "counting and building differ"
        work: dict[str, Callable[[], Any]] = {
            "ours": lambda q=text: ouzel.match(table, q),
            "built": lambda q=text: ouzel.match(table, q, rules_off=off),
        }
        seconds = alternate(work, min(runs, 3))
        ratio = seconds["built"] / seconds["ours"]
        note = f", the paper's is {PAPER_RATIO_AT_LENGTH_5:,}" if length == 5 else ""
        lines.append([f"length {length}, window {window:,}", f"building takes {ratio:.1f} times as long{note}"])
    return [], lines


def loop(events: int, runs: int) -> tuple[list[Bar], list[list[str]]]:
    """W4: a sliding count of SEQ of four over 100 ids, from the Arrow table; the loop has its tuples ready."""
    table = table_of(events, 100)
    kinds = table["type"].combine_chunks().indices.to_pylist()
    rows = list(zip(kinds, table["ts"].to_pylist(), table["id"].to_pylist(), strict=True))
    bars, lines = [], []
    for window in (10_000, 100_000):
        text = query_text(4, window)
        found = ouzel.match(table, text)
        assert sum(found["count"].to_pylist()) == python_loop(rows, 4, window), "ours and the loop count differently"
        seconds = alternate(
            {"ours": lambda q=text: ouzel.match(table, q), "loop": lambda w=window: python_loop(rows, 4, w)}, runs
        )
        lines.append(
            [f"W4, window {window:,}", f"{events / seconds['ours'] / 1e6:.1f} M events a second, the loop "
             f"{events / seconds['loop'] / 1e6:.1f} M"]
        )  # fmt: skip
        bars.append(
            Bar(f"W4 against a Python loop, window {window:,}", seconds["loop"] / seconds["ours"], 4, at_least=True)
        )
    return bars, lines


PARTS: dict[str, Callable[[int, int], tuple[list[Bar], list[list[str]]]]] = {
    "length": growth_with_length,
    "starts": growth_with_starts,
    "negation": negation,
    "building": building,
    "loop": loop,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.aggregate", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--json", type=Path, help="write the bars here too")
    given = parser.parse_args(arguments)
    bars: list[Bar] = []
    for name in given.only:
        found, lines = PARTS[name](given.events, given.runs)
        bars += found
        print(f"\n{markdown([name, 'measured'], lines)}")
    print(f"\n{markdown(['bar', 'measured', 'limit', 'result'], [bar.cells() for bar in bars])}")
    content = {"machine": machine(), "events": given.events, "bars": [bar.as_json() for bar in bars]}
    if given.json is not None:
        given.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(content))
    return 0 if all(bar.passed for bar in bars) else 1


if __name__ == "__main__":
    raise SystemExit(main())
