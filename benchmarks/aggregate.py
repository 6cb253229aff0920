"""Aggregates over matches: how cost grows with the pattern, with first events, with negation, and beside others.

    python -m benchmarks.aggregate [--quick] [--events 1000000] [--runs 5] [--only length …] [--keep FILE] [--page]

`--keep` adds what is measured to a file, part by part, and `--page` writes the page from all that it holds; `--only`
without a part measures nothing. The part `spark` takes longest: what was measured of it last is kept beside this file,
and stands on the page until `--only spark --keep benchmarks/aggregate_spark.json` measures it again.

Streams are seeded: 20 types drawn evenly, one event a tick, where nothing else is said. Every contestant's answer is
checked against another algorithm's on the whole stream, in every run of this program. Times are CPU seconds, medians of
alternating runs.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

import ouzel
from benchmarks.aggregate_figures import FIGURES, plot
from benchmarks.aggregate_peers import duckdb_w4
from benchmarks.aggregate_sharing import Found, beside_negation, never_worse, sharing, whole_answers
from benchmarks.aggregate_streams import SEED, instances_of, mostly_first, query_text, table_of, thinned
from benchmarks.measure import Bar, alternate, machine, markdown
from benchmarks.report import BAR_HEADINGS
from ouzel.engines.aggregate.matrix import MatrixCounters
from ouzel.engines.aggregate.per_start import RowCounters
from ouzel.engines.aggregate.scan import Counters
from ouzel.engines.aggregate.tables import CounterInstances, Way, build_counter_tables, new_counter_output
from ouzel.runtime.engine import match_without

Rows = NDArray[np.int64]  # tick, group, count
RESULTS = Path(__file__).parent / "results"
LAST_ON_SPARK = Path(__file__).parent / "aggregate_spark.json"


# ── Contestants ────────────────────────────────────────────────────────────────────────────────────


def counted(instances: CounterInstances, negated: Sequence[bool], window: int, keys: int, way: Way) -> Rows:
    """Our kernel: a row for each key whenever it completes a match."""
    tables = build_counter_tables(negated, None, window, way=way)
    counters = MatrixCounters(tables)
    counters.output = new_counter_output(tables, max(1, int((instances.component == len(negated) - 1).sum())))
    return _rows(counters, instances, np.arange(keys + 1, dtype=np.int32))


def counted_by_rows(instances: CounterInstances, negated: Sequence[bool], window: int) -> Rows:
    """Our kernel with counters for each first event, of one key; it knows negation, as `per_start` does not."""
    counters = RowCounters(build_counter_tables(negated, None, window, way=Way.PER_START))
    return _rows(counters, instances, np.zeros(1, np.int32))


def _rows(counters: Counters, instances: CounterInstances, key_group: NDArray[np.int32]) -> Rows:
    used = len(instances.tick)
    counters.reserve(used, key_group, len(key_group))
    counters.count(instances, 0, used, int(instances.tick[-1]))
    output = counters.output
    written = int(output.written[0])
    return np.stack([output.tick[:written], output.group[:written], output.words[:written, 0].astype(np.int64)])


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


def same(left: Rows, right: Rows) -> None:
    assert left.shape == right.shape and (left == right).all(), "two algorithms count differently"


# ── Parts ──────────────────────────────────────────────────────────────────────────────────────────


def growth_with_length(events: int, runs: int) -> Found:
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


def growth_with_starts(events: int, runs: int) -> Found:
    bars, lines = [], []
    for length in (3, 10):
        # With ten components drawn evenly no count would fit 64 bits, so there the first one comes 40 times as often.
        instances = instances_of(events, 3, 1) if length == 3 else mostly_first(events // 5, length, 40)
        step = int(instances.tick[-1]) / int((instances.component == 0).sum())
        few, many = int(50 * step), int(5_000 * step)
        same(counted(instances, [False] * length, many, 1, Way.INVERSE), per_start(instances, length, many))
        work: dict[str, Callable[[], Any]] = {
            "50": lambda i=instances, n=length, w=few: counted(i, [False] * n, w, 1, Way.INVERSE),
            "5,000": lambda i=instances, n=length, w=many: counted(i, [False] * n, w, 1, Way.INVERSE),
            "50, per start": lambda i=instances, n=length, w=few: per_start(i, n, w),
            "5,000, per start": lambda i=instances, n=length, w=many: per_start(i, n, w),
        }
        seconds = alternate(work, runs)
        for name, taken in seconds.items():
            lines.append([f"length {length}, {name}", f"{taken / len(instances.tick) * 1e9:.1f} ns an event"])
        ratio = seconds["5,000"] / seconds["50"]
        bars.append(Bar(f"5,000 first events to 50, length {length}", ratio, 1.3, at_least=False))
        if length == 3:
            ratio = seconds["5,000, per start"] / seconds["5,000"]
            bars.append(Bar("against counters for each of 5,000 first events", ratio, 10, at_least=True))
    return bars, lines


def negated_start(events: int, runs: int) -> Found:
    """Few and many first events in the window, where negative ones are as frequent as any, and where they are rare."""
    negated = [True, False, False, False]
    bars, lines = [], []
    for name, every in (("frequent", 1), ("rare", 500)):
        instances = thinned(instances_of(events, 4, 1), every)
        step = int(instances.tick[-1]) / int((instances.component == 1).sum())
        few, many = int(50 * step), int(5_000 * step)
        same(counted(instances, negated, many, 1, Way.STACKS), counted_by_rows(instances, negated, many))
        work: dict[str, Callable[[], Any]] = {
            "50": lambda i=instances, w=few: counted(i, negated, w, 1, Way.STACKS),
            "5,000": lambda i=instances, w=many: counted(i, negated, w, 1, Way.STACKS),
            "50, per start": lambda i=instances, w=few: counted_by_rows(i, negated, w),
            "5,000, per start": lambda i=instances, w=many: counted_by_rows(i, negated, w),
        }
        seconds = alternate(work, runs)
        for way, taken in seconds.items():
            lines.append([f"{name}, {way}", f"{taken / len(instances.tick) * 1e9:.1f} ns an event"])
        ratio = seconds["5,000"] / seconds["50"]
        bars.append(Bar(f"5,000 first events to 50, a negated start, {name}", ratio, 1.3, at_least=False))
    return bars, lines


def negation(events: int, runs: int) -> Found:
    """The paper's q1 and q2: the same pattern without and with a negative type, over the same whole stream."""
    table = table_of(events, 100)
    plain, negative = query_text(3, 10_000), query_text(3, 10_000, negative=True)
    slow = match_without(["count_by_inverse", "count_by_stacks"], table, negative)
    assert ouzel.match(table, negative).equals(slow), "two algorithms count differently"
    seconds = alternate({"off": lambda: ouzel.match(table, plain), "on": lambda: ouzel.match(table, negative)}, runs)
    bars = [Bar("negation on to off", seconds["on"] / seconds["off"], 1.5, at_least=False)]
    return bars, [[f"negation {name}", f"{taken / events * 1e9:.1f} ns an event"] for name, taken in seconds.items()]


def _twin(table: pa.Table, follows: Callable[..., NDArray[np.bool_]], window: int) -> list[int]:
    """SEQ(E0 a, E1 b, E2 c) with a predicate on a and b: arrays of counters, one for each first event."""
    symbol, value = table["symbol"].to_numpy(), table["x"].to_numpy()
    seconds, thirds = np.zeros(len(symbol), np.int64), np.zeros(len(symbol), np.int64)
    first = last = 0
    ticks, compared = np.zeros(table.num_rows, np.int64), np.zeros(table.num_rows, value.dtype)
    found = []
    for now in range(table.num_rows):
        while first < last and now - ticks[first] >= window:
            first += 1
        if symbol[now] == 0:
            ticks[last], compared[last] = now, value[now]
            last += 1
        elif symbol[now] == 1:
            seconds[first:last] += follows(compared[first:last], value[now])
        elif symbol[now] == 2:
            gained = int(seconds[first:last].sum())
            thirds[first:last] += seconds[first:last]
            if gained:
                found.append(int(thirds[first:last].sum()))
    return found


def neighbours(events: int, runs: int) -> Found:
    """A predicate between the first two components that is no key, against the paper's counters for each first event in
    numpy."""
    bars, lines = [], []
    rng = np.random.default_rng(SEED)
    symbol = rng.integers(0, 3, events)
    types = pa.DictionaryArray.from_arrays(symbol.astype(np.int8), [f"E{n}" for n in range(3)])
    for name, condition, follows, x, limit in (
        ("equality", "a.x = b.x", np.equal, rng.integers(0, 50, events), 3),
        ("order", "a.x < b.x", np.less, rng.integers(0, 1_000_000, events), 6),
    ):
        table = pa.table({"ts": np.arange(events), "type": types, "x": x, "symbol": symbol})
        piece = table.slice(0, min(events, 100_000))
        cost = {}
        for window in (100, 1_000, 10_000):
            text = f"PATTERN SEQ(E0 a, E1 b, E2 c) WHERE {condition} AGG COUNT AS n WITHIN {window}"
            assert ouzel.match(piece, text)["n"].to_pylist() == _twin(piece, follows, window), "the twin differs"
            work: dict[str, Callable[[], Any]] = {
                "index": lambda t=table, q=text: ouzel.match(t, q, threads=1),
                "twin": lambda p=piece, f=follows, w=window: _twin(p, f, w),
            }
            seconds = alternate(work, runs)
            cost[window], twin = seconds["index"] / events * 1e9, seconds["twin"] / piece.num_rows * 1e9
            lines.append([f"{name}, window {window:,}", f"{cost[window]:.0f} ns an event, numpy {twin:,.0f}"])
            bars.append(
                Bar(f"{name} of neighbours over numpy, window {window:,}", twin / cost[window], 1, at_least=True)
            )
        ratio = cost[10_000] / cost[100]
        bars.append(Bar(f"{name} of neighbours, window 10,000 to 100", ratio, limit, at_least=False))
    return bars, lines


def groups(events: int, runs: int) -> Found:
    """Groups that one event of a match decides, ten of them, to the same count without groups."""
    bars, lines = [], []
    rng = np.random.default_rng(SEED)
    types = pa.DictionaryArray.from_arrays(rng.integers(0, 3, events).astype(np.int8), [f"E{n}" for n in range(3)])
    table = pa.table({"ts": np.arange(events), "type": types, "x": rng.integers(0, 10, events)})
    piece = table.slice(0, min(events, 60_000))
    for starts in (50, 15_000):
        text = f"PATTERN SEQ(E0 a, E1 b, E2 c) {{}} AGG COUNT AS n WITHIN {3 * starts}"
        plain = text.format("")
        work: dict[str, Callable[[], Any]] = {"": lambda t=table, q=plain: ouzel.match(t, q, threads=1)}
        order = [("end", "ascending"), ("x", "ascending")]
        for name, variable in (("first", "a"), ("middle", "b"), ("last", "c")):
            query = text.format(f"GROUP BY {variable}.x")
            slow = match_without(["count_by_inverse"], piece, query)
            assert ouzel.match(piece, query).sort_by(order).equals(slow.sort_by(order)), "two algorithms differ"
            work[name] = lambda t=table, q=query: ouzel.match(t, q, threads=1)
        seconds = alternate(work, runs)
        for name, taken in seconds.items():
            shown = f"by the {name} event" if name else "no groups"
            lines.append([f"{shown}, {starts:,} first events", f"{taken / events * 1e9:.0f} ns an event"])
            if name in ("first", "last"):
                ratio = taken / seconds[""]
                bars.append(
                    Bar(f"GROUP BY the {name} event to none, {starts:,} first events", ratio, 4, at_least=False)
                )
    return bars, lines


def loop(events: int, runs: int) -> Found:
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


def database(events: int, runs: int) -> Found:
    """W4 from the Arrow table, beside DuckDB's join of first and last events over running sums."""
    table = table_of(events, 100)
    bars, lines = [], []
    for window in (10_000, 100_000):
        text = query_text(4, window)
        order = [("end", "ascending"), ("id", "ascending")]
        ours, theirs = (t.sort_by(order) for t in (ouzel.match(table, text), duckdb_w4(table, window)))
        assert ours["count"].to_pylist() == theirs["count"].to_pylist(), "ours and DuckDB count differently"
        work: dict[str, Callable[[], Any]] = {
            "ours": lambda q=text: ouzel.match(table, q),
            "duckdb": lambda w=window: duckdb_w4(table, w),
        }
        seconds = alternate(work, runs)
        rates = [f"{events / seconds[name] / 1e6:.1f} M events a second" for name in ("ours", "duckdb")]
        lines.append([f"W4, window {window:,}", f"{rates[0]}, DuckDB {rates[1]}"])
        bars.append(Bar(f"W4 against DuckDB, window {window:,}", seconds["duckdb"] / seconds["ours"], 5, at_least=True))
    return bars, lines


def on_spark(events: int, runs: int) -> Found:
    """W4 on Spark, which is loaded only for this."""
    from benchmarks.aggregate_spark import spark

    return spark(events, runs)


PARTS: dict[str, Callable[[int, int], Found]] = {
    "length": growth_with_length,
    "starts": growth_with_starts,
    "negated_start": negated_start,
    "negation": negation,
    "neighbours": neighbours,
    "groups": groups,
    "loop": loop,
    "duckdb": database,
    "sharing": sharing,
    "beside_negation": beside_negation,
    "never_worse": never_worse,
    "whole_answers": whole_answers,
    "spark": on_spark,
}
NOTES = {
    "groups": "A match of the first event's group completes in all ten groups, so there are ten rows for one.",
    "never_worse": "The kernel alone: medians of the ratios of nine rounds. If the planner shares nothing, both"
    " runs use the same counters, and nothing is measured.",
    "beside_negation": "From the table to the counts, six queries in a funnel.",
    "whole_answers": "From the table to the counts: medians of the ratios of 25 rounds, because these ratios "
    "vary most. Single rounds of two equal runs differ by a tenth and more. Queries with "
    "nothing in common are answered separately in both runs, so a ratio above 1 there is "
    "planning and noise.",
}
NAMED_FIGURES = {figure.title.split(":")[0].lower().replace(" ", "-"): figure for figure in FIGURES}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.aggregate", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=[*PARTS, *NAMED_FIGURES], default=[*PARTS, *NAMED_FIGURES])
    parser.add_argument("--quick", action="store_true", help="a hundred thousand events, one run")
    parser.add_argument("--keep", type=Path, help="a file that collects the parts")
    parser.add_argument("--page", action="store_true", help="write the page from the parts")
    given = parser.parse_args(arguments)
    if given.quick:
        given.events, given.runs = 100_000, 1
    parts: dict[str, Any] = {}
    if given.keep and given.keep.exists():
        parts = json.loads(given.keep.read_text(encoding="utf-8"))
    bars: list[Bar] = []
    for name in given.only:
        found: list[Bar] = []
        runs = given.runs
        if name in PARTS:
            found, lines = PARTS[name](given.events, runs)
            table: Any = [[name, "measured"], lines]
        else:
            runs = min(runs, NAMED_FIGURES[name].runs_max)
            table = NAMED_FIGURES[name].measure(given.events, runs)
        bars += found
        parts[name] = {
            "machine": machine(),
            "events": given.events,
            "runs": runs,
            "bars": [bar.as_json() for bar in found],
            "table": table,
        }
        print(f"\n{markdown(*table)}", flush=True)
        if given.keep:
            given.keep.write_text(json.dumps(parts, indent=2) + "\n", encoding="utf-8")
    if bars:
        print(f"\n{markdown(BAR_HEADINGS, [bar.cells() for bar in bars])}")
    print(json.dumps({name: parts[name] for name in given.only}))
    if given.page:
        write_page(json.loads(LAST_ON_SPARK.read_text(encoding="utf-8")) | parts)
    return 0 if all(bar.passed for bar in bars) else 1


def write_page(parts: Mapping[str, Any]) -> None:
    """benchmarks/results/aggregate.md and its plots."""
    ordered = {name: parts[name] for name in (*PARTS, *NAMED_FIGURES) if name in parts}
    bars = [
        Bar(one["name"], one["measured"], one["limit"], one["at_least"], tuple(one["at"]))
        for part in ordered.values()
        for one in part["bars"]
    ]
    lines = [
        "# Aggregates over matches, measured",
        "",
        f"Written by `python -m benchmarks.aggregate`: at most {_between(ordered, 'events')} events, one thread,"
        f" {_runs(ordered)}, ratios of CPU time within one run. Absolute times depend on the machine and its "
        "load; ratios depend on them much less. Every answer is compared with that of another algorithm over "
        "the whole stream.",
        "",
        "## Bars",
        "",
        markdown(BAR_HEADINGS, [bar.cells() for bar in bars]),
        "",
        "## Beneath the bars",
    ]
    for name in PARTS:
        if name in ordered:
            notes = ordered[name].get("notes", [NOTES[name]] if name in NOTES else [])
            lines += [line for note in notes for line in ("", note)]
            lines += ["", markdown(*ordered[name]["table"])]
    folder = RESULTS / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in NAMED_FIGURES.items():
        if name in ordered:
            drawn = plot(figure, ordered[name]["table"], folder)
            lines += ["", f"## {figure.title}", "", figure.note, "", markdown(*ordered[name]["table"])]
            lines += ["", f"![{figure.title}](figures/{drawn.name})"]
    (RESULTS / "aggregate.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _between(parts: Mapping[str, Any], name: str) -> str:
    """The least and the most of the parts."""
    found = sorted({part[name] for part in parts.values()})
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"


def _runs(parts: Mapping[str, Any]) -> str:
    """How many runs medians are of: what most parts have, and which have others."""
    counts = Counter(part["runs"] for part in parts.values())
    ((most, _),) = counts.most_common(1)
    others = [f"{part['runs']} of {name}" for name, part in parts.items() if part["runs"] != most]
    return f"medians of {most} alternating runs" + (f" ({', '.join(others)})" if others else "")


if __name__ == "__main__":
    raise SystemExit(main())
