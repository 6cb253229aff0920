"""The experiments of Cayuga's section 5 as tables, with the bars that they must reach."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import ouzel
from benchmarks.many_queries_peers import read_naively, self_joins
from benchmarks.many_queries_world import (
    EVENT_SKEW,
    TEMPLATES,
    affected,
    constants_of,
    cpu_seconds,
    events,
    parameters,
    prices,
    query_set,
    read,
)
from benchmarks.measure import Bar
from ouzel.algebra import stream

Found = tuple[tuple[list[str], list[list[str]]], list[Bar]]
BARRED = ("LinearStat", "LinearDyn", "Filter")
SMOOTHING = (1, 5, 10, 20, 30)
NOT_MEASURED = "not measured"
_COUNTED = ["events", "template", "queries", "µs an event", "events/s", "static matches an event"]
_COUNTED += ["affected instances an event", "nodes", "answers"]


def _round(name: str, size: int, table: pa.Table, **given: Any) -> tuple[float, dict[str, int], int]:
    """Microseconds an event, what the kernel counted, and how many answers there were."""
    held = query_set(name, parameters(size, **given)[0], table.schema)
    seconds, found = read(held, table)
    return seconds * 1e6, held.statistics, found


def _cells(micros: float, counted: dict[str, int], found: int, count: int) -> list[str]:
    cells = [f"{micros:.2f}", f"{1e6 / micros:,.0f}", f"{counted['static_matches'] / count:.1f}"]
    return [*cells, f"{counted['instances_read'] / count:.1f}", f"{counted['nodes']:,}", f"{found:,}"]


def _measured(name: str, size: int, skew: float, count: int, **given: Any) -> list[str]:
    """The cells of a row of the table."""
    table = events(count, skew=skew)
    rounds = [_round(name, size, table, **given) for _ in range(3)]
    return _cells(float(np.median([micros for micros, _, _ in rounds])), *rounds[0][1:], count)


def scale(quick: bool, skews: Sequence[float] = (0.0, EVENT_SKEW)) -> Found:
    """Cost per event by number of queries (figure 16(a))."""
    sizes = (10_000, 50_000) if quick else (10_000, 50_000, 100_000, 200_000, 400_000)
    rows, bars = [], []
    for skew in skews:
        kind = "skewed" if skew else "uniform"
        for name in TEMPLATES:
            # The non-deterministic ones have many answers where events are skewed.
            count = 4_000 if name.startswith("Non") and skew else 20_000
            table = events(count, skew=skew)
            # Sizes in turns: a machine that others use, too, is faster at one time than at another.
            rounds = [{size: _round(name, size, table) for size in sizes} for _ in range(3)]
            for size in sizes:
                micros = float(np.median([one[size][0] for one in rounds]))
                rows.append([kind, name, f"{size:,}", *_cells(micros, *rounds[0][size][1:], count)])
            if name in BARRED:
                first, last = (rounds[0][size][1]["instances_read"] for size in (sizes[0], sizes[-1]))
                title = f"{name}, {kind}: {sizes[-1]:,} queries to {sizes[0]:,}; affected instances grow "
                ratio = float(np.median([one[sizes[-1]][0] / one[sizes[0]][0] for one in rounds]))
                bars.append(Bar(f"{title}{last / max(first, 1):.1f}-fold", ratio, 12, at_least=False))
    return (_COUNTED, rows), bars


def uniform_scale(quick: bool) -> Found:
    return scale(quick, (0.0,))


def skewed_scale(quick: bool) -> Found:
    return scale(quick, (EVENT_SKEW,))


def zipf_1(quick: bool) -> Found:
    """Figure 16(b): how alike queries are."""
    size = 20_000 if quick else 200_000
    rows = []
    for name in TEMPLATES:
        for exponent in (0.8, 1.0, 1.2, 1.4):
            cells = _measured(name, size, 0.0, 10_000, zipf_1=exponent)
            rows.append(["uniform", name, f"{exponent}", *cells])
    return (["events", "template", "zipf_1", *_COUNTED[3:]], rows), []


def selectivity(quick: bool) -> Found:
    """Figure 16(c): how many values ranges select."""
    size = 20_000 if quick else 200_000
    rows = []
    for name in TEMPLATES:
        for share in (0.5, 0.6, 0.7, 0.8, 0.9):
            cells = _measured(name, size, 0.0, 10_000, selectivity=share)
            rows.append(["uniform", name, f"{share}", *cells])
    return (["events", "template", "selectivity", *_COUNTED[3:]], rows), []


def building(quick: bool) -> Found:
    """Building the index from a template and a table, against sorting the same constants."""
    size = 100_000 if quick else 400_000
    table, constants = parameters(size)
    numbers = constants_of(table)
    assert len(numbers) == constants
    schema = events(1).schema
    np.sort(numbers)
    query_set("Filter", table, schema)
    sorted_in, built_in = [], []
    for _ in range(9):
        sorted_in.append(cpu_seconds(lambda: np.sort(numbers))[0])
        seconds, held = cpu_seconds(lambda: query_set("Filter", table, schema))
        built_in.append(seconds)
    sorting, taken = float(np.median(sorted_in)), float(np.median(built_in))
    adding, _ = cpu_seconds(lambda: [held.add(f"one {k}", stream().select(f"d0 = {k}")) for k in range(200)])
    text = 'PATTERN "event" e WHERE e.d0 = {} WITHIN 20 RETURN Alert(e.d0 AS value)'
    alone, _ = cpu_seconds(lambda: [held.add(f"text {k}", text.format(k)) for k in range(20)])
    held.push(events(2_000, skew=EVENT_SKEW))
    storing, blob = cpu_seconds(held.snapshot)
    loading, again = cpu_seconds(lambda: ouzel.QuerySet.restore(blob))
    assert len(again) == len(held)
    rows = [
        [f"sort {constants:,} constants", f"{sorting:.3f} s"],
        [f"build the index of {size:,} Filter queries", f"{taken:.2f} s"],
        ["memory a query", f"{held.bytes / size:,.0f} bytes"],
        ["add one query of the algebra, from text", f"{adding / 200 * 1e3:.2f} ms"],
        ["add one pattern query, from text", f"{alone / 20 * 1e3:.2f} ms"],
        ["snapshot of all, after 2,000 skewed events", f"{storing:.2f} s, {len(blob) / 1e6:,.0f} MB"],
        ["restore", f"{loading:.2f} s"],
    ]
    bars = [
        Bar(f"building the index of {size:,} queries, of sorting their constants", taken / sorting, 20, at_least=False),
        Bar("memory a query, bytes", held.bytes / size, 2_000, at_least=False),
    ]
    return (["what", "measured"], rows), bars


def naive(quick: bool) -> Found:
    """Filter against the paper's naive extension, and with merging alone off (figure 17)."""
    rows, bars = [], []
    for skew in (0.0, EVENT_SKEW):
        kind = "skewed" if skew else "uniform"
        table = events(5_000 if quick else 12_500, skew=skew)
        for size in (10_000, 40_000) if quick else (10_000, 20_000, 40_000):
            given = parameters(size)[0]
            indexed, unmerged, slow = [], [], []
            for _ in range(1 if quick else 3):
                # The quick ones are over too soon to be measured once.
                for _ in range(3):
                    merged = query_set("Filter", given, table.schema)
                    seconds, found = read(merged, table)
                    indexed.append(seconds)
                    seconds, same = read(query_set("Filter", given, table.schema, merge=False), table)
                    assert same == found
                    unmerged.append(seconds)
                seconds, same = read_naively(given, table)
                assert same == found
                slow.append(seconds)
            counted = merged.statistics
            micros = [float(np.median(taken)) * 1e6 for taken in (indexed, unmerged, slow)]
            cells = [f"{counted[name] / table.num_rows:.2f}" for name in ("static_matches", "instances_read")]
            rows.append([kind, f"{size:,}", *cells, f"{found:,}", *(f"{one:.2f}" for one in micros)])
            bars.append(Bar(f"Filter, {kind}, {size:,} queries: naive to indexed", micros[2] / micros[0], 100, True))
    headings = ["events", "queries", "static matches an event", "affected instances an event", "answers"]
    return ([*headings, "indexed, µs", "no merging, µs", "naive, µs"], rows), bars


def double_top(quick: bool, *, with_spark: bool = True) -> Found:
    """Double-Top by folds and by resubscription over the smoothing windows of figure 20, and by self-joins."""
    from tests.engines.automata.paper import double_top_by_fold, double_top_by_resubscription

    windows = SMOOTHING[::2] if quick else SMOOTHING
    tables = {window: prices(window) for window in windows}
    has_spark = with_spark and importlib.util.find_spec("pyspark") is not None
    joined = self_joins(tables, 1) if has_spark else {}
    if not has_spark:
        print("Spark SQL: SKIPPED")
    rows, bars = [], []
    for window, table in tables.items():
        taken: dict[str, list[float]] = {"fold": [], "resubscription": []}
        results = {}
        for turn in range(12):
            for name, make in (("fold", double_top_by_fold), ("resubscription", double_top_by_resubscription)):
                seconds, answer = cpu_seconds(lambda make=make, table=table: ouzel.match(table, make()))
                results[name] = answer.num_rows
                if turn:
                    taken[name].append(seconds)
        fold, again = (float(np.median(taken[name])) for name in ("fold", "resubscription"))
        seconds, found = joined.get(window, (float("nan"), results["fold"]))
        assert found == results["fold"], "self-joins and folds agree on what five consecutive extrema are"
        cells = [f"{1e3 * fold:.0f}", f"{1e3 * again:.0f}", f"{1e3 * seconds:.0f}" if has_spark else NOT_MEASURED]
        cells += [f"{affected(table, make()):.2f}" for make in (double_top_by_fold, double_top_by_resubscription)]
        rates = [f"{table.num_rows / one / 1e6:.2f}" for one in (fold, again)]
        rows.append([f"{window}", *cells, *rates, f"{results['fold']:,}", f"{results['resubscription']:,}"])
        bars.append(Bar(f"Double-Top, smoothed over {window} days: resubscription to fold", again / fold, 2, True))
    headings = ["smoothing, days", "fold, ms", "resubscription, ms", "Spark SQL self-joins, ms"]
    headings += ["affected instances a quote, fold", "affected instances a quote, resubscription"]
    headings += ["fold, M events/s", "resubscription, M events/s", "results", "of resubscription"]
    return (headings, rows), bars
