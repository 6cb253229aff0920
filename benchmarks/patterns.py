"""Patterns with several readings, repetitions of bounded length, contiguity by step and `order=`: what they cost beside
what they are made of.

    python -m benchmarks.patterns [--quick] [--runs 5] [--only readings counts bounds steps order pushes] [--page]

All figures are ratios of CPU time within one run. Every answer is checked: readings against the queries that they mean,
bounded repetitions against binomial coefficients, contiguity by step against the strategy that it equals, `order=`
against the order of arrival. `--page` writes benchmarks/results/patterns.md.
"""

from __future__ import annotations

import argparse
import math
import os
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import ouzel
from benchmarks import sase_worlds, small_pushes
from benchmarks.measure import Bar, alternate, markdown
from benchmarks.report import RESULTS, Part, Report, verdict

Found = tuple[tuple[list[str], list[list[str]]], list[Bar]]
# A pattern and the linear patterns that it means.
READINGS = {
    "SEQ(A a, B? b, C c)": ("SEQ(A a, B b, C c)", "SEQ(A a, C c)"),
    "SEQ(A a, OR(B b, C c), D d)": ("SEQ(A a, B b, D d)", "SEQ(A a, C c, D d)"),
}
REST = "WHERE [id] WITHIN 400"


def events(count: int) -> pa.Table:
    """Types and keys at random, with a fixed seed."""
    rng = np.random.default_rng(24)
    types = pa.array(list("ABCD")).take(pa.array(rng.integers(0, 4, count)))
    return pa.table({"type": types, "ts": np.arange(count), "id": rng.integers(0, 50, count)})


def readings(count: int, runs: int) -> Found:
    """A pattern against the sum of its readings, each run alone."""
    table = events(count)
    rows, bars = [], []
    for whole, parts in READINGS.items():
        together = partial(_matches, table, [whole])
        alone = partial(_matches, table, list(parts))
        assert together() == alone(), whole
        times = alternate({"whole": together, "alone": alone}, runs)
        ratio = times.ratio("whole", "alone")
        rows.append([whole, f"{together():,}", f"{times['whole']:.3f}", f"{times['alone']:.3f}", f"{ratio:.2f}"])
        bars.append(Bar(f"{whole}: cost over the sum of its readings", ratio, 1.2, False))
    return (["pattern", "matches", "whole, s", "readings alone, s", "ratio"], rows), bars


def _matches(table: pa.Table, patterns: list[str]) -> int:
    return sum(ouzel.match(table, f"PATTERN {pattern} {REST}").num_rows for pattern in patterns)


def counts(count: int, runs: int) -> Found:
    """Counting several readings with a common prefix against counting one of them."""
    table = events(count)
    cases = {
        3: ("SEQ(A a, B b, OR(C c, D d, A e))", 1.5),
        16: ("SEQ(A a, B b, (C c | D d), (A e | B f), (C g | D h), (A j | B k))", 4.0),
    }
    rows, bars = [], []
    for number, (whole, limit) in cases.items():
        steps = {3: ["SEQ(A a, B b, C c)"], 16: ["SEQ(A a, B b, C c, A e, C g, A j)"]}[number]
        times = alternate({"all": partial(_count, table, whole), "one": partial(_count, table, steps[0])}, runs)
        ratio = times.ratio("all", "one")
        rows.append([whole, str(number), f"{times['all']:.3f}", f"{times['one']:.3f}", f"{ratio:.2f}"])
        bars.append(Bar(f"counting {number} readings with a common prefix, over one", ratio, limit, False))
    return (["pattern", "readings", "all, s", "one, s", "ratio"], rows), bars


def _count(table: pa.Table, pattern: str) -> int:
    return ouzel.match(table, f"PATTERN {pattern} WHERE [id] AGG COUNT WITHIN 100").num_rows


def bounds(runs: int) -> Found:
    """Choices of k events out of n: time for each match, from the fewest to the most."""
    rows, bars = [], []
    for k, sizes in {3: (60, 120, 240), 2: (250, 500, 1_000)}.items():
        for written in (f"SEQ(A+ a[], B b) WHERE a.LEN = {k}", f"SEQ(A{{{k}}} a[], B b)"):
            per_match = {}
            for n in sizes:
                table = pa.table({"type": ["A"] * n + ["B"], "ts": np.arange(n + 1)})
                query = f"PATTERN {written} RETURN R(a[1].ts AS first)"
                found = ouzel.match(table, query).num_rows
                assert found == math.comb(n, k), f"{found} matches of {written} over {n}"
                per_match[n] = alternate({"run": partial(ouzel.match, table, query)}, runs)["run"] / found
                rows.append([written, f"{n:,}", f"{found:,}", f"{per_match[n] * 1e9:.0f}"])
            # The two larger sizes: with few matches the fixed cost of a call decides.
            ratio = per_match[sizes[-1]] / per_match[sizes[-2]]
            bars.append(
                Bar(f"{written}: time for each match, {sizes[-1]:,} over {sizes[-2]} events", ratio, 1.3, False)
            )
    return (["pattern", "events", "matches", "ns for each match"], rows), bars


def steps(count: int, runs: int) -> Found:
    """W1 with a rule for each step, against skip_till_next_match, which gives the same answer."""
    rows, bars = [], []
    pattern = "PATTERN SEQ(E1 a, E2 b, E3 c) WHERE {} {{ [attr1] }} WITHIN {}"
    by_strategy, by_step = "skip_till_next_match(a, b, c)", "contiguity(b: next, c: next)"
    sase_worlds.check_sample(pattern.format(by_step, sase_worlds.SAMPLE_WINDOW), sase_worlds.SAMPLE_WINDOW)
    for ids in (100, 10_000):
        table = sase_worlds.events_for(count, ids)
        texts = {name: pattern.format(name, sase_worlds.WINDOW) for name in (by_strategy, by_step)}
        answers = [ouzel.match(table, text, threads=1) for text in texts.values()]
        columns = [("end", "ascending"), ("start", "ascending")]
        assert answers[0].num_rows > 0 and answers[0].sort_by(columns) == answers[1].sort_by(columns)
        seconds = alternate(
            {name: lambda t=table, q=text: ouzel.match(t, q, threads=1) for name, text in texts.items()}, runs
        )
        cost = seconds.ratio(by_step, by_strategy)
        each = [f"{seconds[name] / count * 1e9:.0f}" for name in texts]
        rows.append([f"{ids:,}", f"{answers[0].num_rows:,}", *each, f"{cost:.2f}"])
        bars.append(Bar(f"{by_step} over {by_strategy}, {ids:,} ids", cost, 1.3, at_least=False))
    return (["ids", "matches", f"ns per event, {by_strategy}", by_step, "ratio"], rows), bars


def order(count: int, runs: int) -> Found:
    """`order=` against none, over events of different times and over events of which every tenth has the time of the
    one before it."""
    rows, bars = [], []
    table = events(count)
    ticks = np.arange(count)
    for ties, limit in ((0, 1.1), (10, 1.3)):
        times = ticks if not ties else ticks - (ticks % ties == 1)
        given = table.set_column(1, "ts", pa.array(times)).append_column("seq", pa.array(ticks))
        for form in ("SEQ(A a, B b, C c)", "SEQ(A a, B+ b[], C c)", "SEQ(A a, !(D d), B b)"):
            strategy = "WHERE skip_till_next_match(a, b[], c) { [id] }" if "+" in form else "WHERE [id]"
            query = f"PATTERN {form} {strategy} WITHIN 400 RETURN R(a.ts AS a)"
            ordered = partial(ouzel.match, given, query, order=["seq"])
            plain = partial(ouzel.match, given, query)
            assert ordered().num_rows == ouzel.match(given, query, order="arrival").num_rows, form
            assert ties or ordered().num_rows == plain().num_rows, form
            spent = alternate({"ordered": ordered, "plain": plain}, runs)
            ratio = spent.ratio("ordered", "plain")
            what = f"a tie in every {ties} events" if ties else "no ties"
            rows.append([form, what, f"{spent['ordered']:.3f}", f"{spent['plain']:.3f}", f"{ratio:.2f}"])
            bars.append(Bar(f"{form}, {what}: order= over none", ratio, limit, False))
    return (["pattern", "events", "order=, s", "none, s", "ratio"], rows), bars


def pushes(count: int, runs: int) -> Found:
    """Small pushes in order of arrival, and by a column, against those without an order."""
    orders: dict[str, dict[str, Any]] = {
        "none": {},
        'order="arrival"': {"order": "arrival"},
        'order=["seq"]': {"order": ["seq"]},
    }
    rows, bars = [], []
    for size, total in {1: count // 100, 100: count // 10}.items():
        table = small_pushes.events(small_pushes.WARM + total)
        table = table.append_column("seq", table["ts"])
        for form in small_pushes.FORMS:
            given = small_pushes.pushes(table.slice(small_pushes.WARM), form, size)
            contestants = {name: partial(_pushed, table, given, options) for name, options in orders.items()}
            answers = [run() for run in contestants.values()]
            assert answers[0] and answers[1:] == answers[:-1], form
            spent = alternate(contestants, runs)
            rates = [f"{total / spent[name]:,.0f}" for name in orders]
            rows.append([form, str(size), *rates])
            for name in list(orders)[1:]:
                ratio = spent.ratio("none", name)
                bar = Bar(f"{size} a push, {form}: rate with {name} over none", ratio, small_pushes.ORDERED_SHARE, True)
                bars.append(bar)
    return (["form", "events a push", *(f"events a second, {name}" for name in orders)], rows), bars


def _pushed(table: pa.Table, given: list[Any], options: dict[str, Any]) -> int:
    running = ouzel.Engine(small_pushes.QUERIES["sequence"], **options)
    running.push(table.slice(0, small_pushes.WARM))
    found = sum(running.push(one)["query"].num_rows for one in given)
    return found + running.finish()["query"].num_rows


PARTS: dict[str, tuple[str, str, Callable[[int, int], Found]]] = {
    "readings": ("Readings", "A pattern, and the sum of its readings, each run alone.", readings),
    "counts": ("Counts", "AGG COUNT of all readings, and of one of them.", lambda n, runs: counts(n // 10, runs)),
    "bounds": (
        "Bounds",
        "All choices of two or three events. The time for each match must not grow with their number.",
        lambda n, runs: bounds(runs),
    ),
    "steps": (
        "Contiguity by step",
        "A rule for each step, and skip_till_next_match, which gives the same answer.",
        steps,
    ),
    "order": ("Order", "`order=` with a column, and none.", order),
    "pushes": (
        "Small pushes with an order",
        "With an order, a push returns what its events complete; without one, a match waits for the next time.",
        pushes,
    ),
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the events, three runs")
    parser.add_argument("--runs", type=int, default=None)
    parser.add_argument("--only", nargs="*", choices=PARTS)
    parser.add_argument("--page", action="store_true", help="write benchmarks/results/patterns.md")
    asked = parser.parse_args(arguments)
    runs = asked.runs or (3 if asked.quick else 5)
    count = 20_000 if asked.quick else 200_000
    warnings.simplefilter("ignore")
    pa.set_cpu_count(1)
    report = Report(asked.only)
    for name, (title, note, measure) in PARTS.items():
        if report.wants(name):
            report.add(title, note, partial(measure, count, runs))
    print(f"\n{verdict(report.parts)}")
    if asked.page:
        write_page(report.parts, runs)


def write_page(parts: list[Part], runs: int) -> None:
    lines = [
        "# Patterns",
        "",
        f"Written by `python -m benchmarks.patterns --page`: CPU time of one thread, medians of {runs} alternating "
        f"runs, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores. Every run checks the answers.",
        "",
        verdict(parts),
    ]
    for title, note, table, _ in parts:
        lines += ["", f"## {title}", "", note, "", markdown(*table)]
    (RESULTS / "patterns.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
