"""The bars of Kleene closure: matching against plain Python, growth with the window, merging, compressed answers.

Every function checks its answers before it measures, and gives rows for a table and the bars that follow from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import ouzel
from benchmarks.kleene_twins import all_runs, template_of, ticks_of
from benchmarks.kleene_worlds import (
    NAMES,
    Matching,
    check_sample,
    compressed_world,
    expected_counts,
    matching,
    shared_graph,
    stock_events,
    template,
)
from benchmarks.measure import Bar, alternate
from ouzel.engines.kleene.compressed import expand, graph_of
from ouzel.engines.kleene.graph_paths import Row, count_matches, rows_of
from ouzel.engines.kleene.state import Counter
from ouzel.runtime.values import one_array

Table = tuple[list[str], list[list[str]]]
WINDOWS = (500, 2_000)
# So many runs of a query must merge for the gain to be asked for.
MERGED_SHARE = 0.45
# Plain Python is given fewer events; what it costs per event does not depend on their number.
PYTHON_EVENTS = 40_000


# ── Matching ───────────────────────────────────────────────────────────────────────────────────────


def matching_bars(events: int, runs: int) -> tuple[Table, list[Bar]]:
    """Matching without writing out, against the same algorithm in plain Python, and as the window grows."""
    rows, bars = [], []
    table = stock_events(events)
    short = table.slice(0, min(events, PYTHON_EVENTS))
    ticks = ticks_of(short)
    for name in NAMES:
        check_sample(template(name, 40, begins="a[1].price % 5 = 0"))
        contestants: dict[str, Callable[[], Any]] = {}
        for window in WINDOWS:
            text, query = template(name, window), template_of(name, window)
            whole, part = matching(text, table), matching(text, short)
            _check(part, matching(text, short, merge=False), ticks, query)
            contestants |= {
                f"staged {window}": lambda m=whole, t=table: m.staged(t).run(),
                f"kernel {window}": whole.run,
                f"Python {window}": lambda t=ticks, q=query: all_runs(t, q, merge=True),
                f"not merging {window}": lambda t=ticks, q=query: all_runs(t, q),
            }
        seconds = alternate(contestants, runs)
        shorter = len(ticks) / events
        for window in WINDOWS:
            gains = [
                seconds.ratio(f"{who} {window}", f"kernel {window}") / shorter for who in ("Python", "not merging")
            ]
            rows.append(
                [name, f"{window:,}"]
                + [_nanoseconds(seconds[f"{who} {window}"] / events) for who in ("staged", "kernel")]
                + [_nanoseconds(seconds[f"{who} {window}"] / len(ticks)) for who in ("Python", "not merging")]
                + [f"{gain:.1f}" for gain in gains]
            )
            limit = 10.0 if window == WINDOWS[0] else 40.0
            bars.append(Bar(f"{name}, W={window:,}: kernel over plain Python", gains[0], limit, at_least=True))
        growth, alone = (seconds.ratio(f"{way} {WINDOWS[1]}", f"{way} {WINDOWS[0]}") for way in ("staged", "kernel"))
        bars.append(Bar(f"{name}: cost per event at W=2,000, of W=500", growth, 2.0, at_least=False))
        rows[-1].append(f"{growth:.2f} / {alone:.2f}")
        rows[-2].append("")
    headings = ["query", "W", "from Arrow, ns/event", "kernel", "Python", "Python, not merging", "Python / kernel"]
    return ([*headings, "not merging / kernel", "W=2,000 / W=500: from Arrow / kernel"], rows), bars


def _check(merging: Matching, basic: Matching, ticks: list[Any], query: Any) -> None:
    """The kernel with and without merging and both twins find the same."""
    twin = all_runs(ticks, query, write_out=True)
    assert merging.written_out() == basic.written_out() == (twin.matches, twin.length)
    combined = int(merging.run().counters[Counter.MATCHES])
    assert all_runs(ticks, query, merge=True).matches == combined


# ── Merging ────────────────────────────────────────────────────────────────────────────────────────


def merging_bars(events: int, runs: int) -> tuple[Table, list[Bar]]:
    """Figure 8(g) and Table 3: what merging gains in matching, and how many runs merge."""
    rows, bars = [], []
    for increase in (0.7, 0.55):
        table = stock_events(events, increase)
        ticks = ticks_of(table.slice(0, min(events, PYTHON_EVENTS)))
        for name in ("p1s3", "p2s3", "p3s3"):
            for window in (500, 1_000, 1_500, 2_000):
                on, off = (matching(template(name, window), table, merge=merge) for merge in (True, False))
                tally = all_runs(ticks, template_of(name, window), merge=True)
                share = tally.merged / max(tally.started, 1)
                seconds = alternate({"on": on.run, "off": off.run}, runs)
                gain = seconds.ratio("off", "on")
                moves = [int(m.run().counters[Counter.MOVES]) / events for m in (on, off)]
                rows.append(
                    [f"{increase}", name, f"{window:,}", f"{100 * share:.1f}"]
                    + [_nanoseconds(seconds[state] / events) for state in ("on", "off")]
                    + [f"{move:.2f}" for move in moves]
                    + [f"{gain:.2f}"]
                )
                if share >= MERGED_SHARE:
                    bars.append(Bar(f"merging, {name}, p={increase}, W={window:,}", gain, 1.4, at_least=True))
    headings = ["p", "query", "W", "runs merged, %", "merging, ns/event", "not", "nodes/event", "not merging", "gain"]
    return (headings, rows), bars


# ── Compressed answers ─────────────────────────────────────────────────────────────────────────────


def compressed_bars(events: int, runs: int) -> tuple[Table, list[Bar]]:
    """skip_till_any_match with Kleene closure, OUTPUT COMPRESSED."""
    rows, bars = [], []
    windows = (20, 200, 2_000)
    contestants: dict[str, Callable[[], Any]] = {}
    answers: dict[int, pa.Table] = {}
    cells: dict[int, int] = {}
    counts: dict[int, list[int]] = {}
    words: dict[int, float] = {}
    size = min(events, 200_000)
    for window in windows:
        world = compressed_world(size, window)
        answers[window] = answer = ouzel.match(world.table, world.text)
        graphs = _graphs(answer)
        counts[window] = [count_matches(graph) for graph in graphs]
        assert counts[window] == expected_counts(world), "the counts disagree"
        cells[window] = sum(len(graph.cell_event) for graph in graphs)
        words[window] = float(np.mean([-(-count.bit_length() // 64) for count in counts[window]]))
        few = compressed_world(window + 100, window, dense=True)
        dense = [count_matches(graph) for graph in _graphs(ouzel.match(few.table, few.text))]
        assert dense == expected_counts(few), "the counts of the dense stream disagree"
        prepared = compressed_world(size, window, dense=True).prepared()
        contestants |= {
            f"update {window}": world.update,
            f"shared {window}": lambda p=prepared: shared_graph(*p),
            f"count {window}": lambda g=graphs: [count_matches(row) for row in g],
        }
    seconds = alternate(contestants, runs)
    for window, answer in answers.items():
        rows.append(
            [
                f"{window:,}",
                f"{answer.num_rows:,}",
                f"{len(str(max(counts[window])))} digits",
                f"{words[window]:.1f}",
                _nanoseconds(seconds[f"shared {window}"] / size),
                _nanoseconds(seconds[f"update {window}"] / size),
                _nanoseconds(seconds[f"count {window}"] / cells[window]),
            ]
        )
    for way, name in (("shared", "every third event completes, shared graph"), ("update", "a graph a row")):
        growth = seconds.ratio(f"{way} 2000", f"{way} 20")
        bars.append(Bar(f"COMPRESSED, without the count: W=2,000, of W=20, {name}", growth, 2.0, at_least=False))
    allowed = words[2_000] / words[20]
    growth = seconds.ratio("count 2000", "count 20") / (cells[2_000] / cells[20])
    bars.append(Bar("the count, per cell, W=2,000 of W=20, of the words", growth / allowed, 1.0, at_least=False))
    headings = ["W", "rows", "largest count", "words", "shared graph, ns/event", "graphs of rows, ns/event"]
    headings.append("count, ns/cell")
    return (headings, rows), bars


def _graphs(answer: pa.Table) -> list[Row]:
    return rows_of(graph_of(one_array(answer.column("graph")))[1])


def enumeration_bars(runs: int) -> tuple[Table, list[Bar]]:
    """Listing what a compressed row holds, against writing the same rows from ready arrays."""
    text = "PATTERN SEQ(A+ a[], B b) WITHIN 1000 OUTPUT COMPRESSED RETURN R(a.x AS a, b.x AS b)"
    length = 18
    events = pa.table({"type": ["A"] * length + ["B"], "ts": range(length + 1), "x": range(length + 1)})
    query = ouzel.query(text)
    compressed = ouzel.match(events, query)
    ready = expand(compressed, query)
    assert ready.num_rows == int(compressed["count"][0].as_py()) == 2**length - 1
    lists = one_array(ready.column("a"))
    offsets = np.concatenate([[0], np.cumsum(pa.compute.list_value_length(lists).to_numpy())]).astype(np.int32)
    source = events.column("x").combine_chunks()
    chosen = lists.flatten().to_numpy()
    last = np.full(ready.num_rows, length)
    first = chosen[offsets[:-1]]

    def write() -> pa.Table:
        """The same table from arrays that say which events each match has."""
        time = events.column("ts").combine_chunks()
        return pa.table(
            {
                "start": time.take(pa.array(first)),
                "end": time.take(pa.array(last)),
                "a": pa.ListArray.from_arrays(pa.array(offsets), source.take(pa.array(chosen))),
                "b": source.take(pa.array(last)),
            }
        )

    assert write().to_pydict() == ready.to_pydict()
    seconds = alternate({"expand": lambda: expand(compressed, query), "write": write}, runs)
    ratio = seconds.ratio("write", "expand")
    rows = [[f"{ready.num_rows:,}", *(f"{ready.num_rows / seconds[who] / 1e6:.2f}" for who in ("expand", "write"))]]
    bars = [Bar("listing matches, of writing them from ready arrays", ratio, 0.3, at_least=True)]
    return (["matches", "listed, M/s", "written from ready arrays, M/s"], rows), bars


# ── Memory ─────────────────────────────────────────────────────────────────────────────────────────


def memory_bars() -> tuple[Table, list[Bar]]:
    """Nodes, runs and events held over fifty windows."""
    rows, bars = [], []
    window = 1_000
    queries = {
        "runs": f"PATTERN SEQ(Stock+ a[], Stock b) WHERE skip_till_next_match {{ [symbol] AND a[1].price % 50 = 0 AND "
        f"a[i].price > a[i-1].price AND b.volume < 150 }} WITHIN {window}",
        "graph": f"PATTERN SEQ(Stock+ a[], Stock b) WHERE [symbol] AND a[i].price > a[i-1].price + 2 AND "
        f"b.volume < 3 WITHIN {window} OUTPUT COMPRESSED",
    }
    table = stock_events(50 * window)
    for kind, text in queries.items():
        engine = ouzel.Engine(text, max_delay=0)
        held, sizes = [], []
        for number in range(50):
            engine.push(table.slice(number * window, window))
            held.append(engine.held_events)
            sizes.append(len(engine.snapshot()))
        early, late = max(sizes[5:15]), max(sizes[40:])
        rows.append([kind, f"{max(held[5:15]):,}", f"{max(held[40:]):,}", f"{early:,}", f"{late:,}"])
        bars.append(Bar(f"{kind}: bytes of state in windows 41 to 50, of 6 to 15", late / early, 1.3, at_least=False))
    headings = ["kernel", "held events, windows 6-15", "41-50", "bytes of state, windows 6-15", "41-50"]
    return (headings, rows), bars


def _nanoseconds(seconds: float) -> str:
    return f"{seconds * 1e9:.0f}"
