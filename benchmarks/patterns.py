"""Patterns with several readings, and repetitions of bounded length: what they cost beside what they are made of.

    python -m benchmarks.patterns [--quick] [--runs 5] [--only readings counts bounds order]

All figures are ratios of CPU time within one run. Every answer is checked: readings against the queries that they mean,
bounded repetitions against binomial coefficients, `order=` against the order of arrival.
"""

from __future__ import annotations

import argparse
import math
import warnings
from functools import partial

import numpy as np
import pyarrow as pa

import ouzel
from benchmarks.measure import Bar, alternate
from benchmarks.report import Report, verdict

PARTS = ("readings", "counts", "bounds", "order")
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


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the events, three runs")
    parser.add_argument("--runs", type=int, default=None)
    parser.add_argument("--only", nargs="*", choices=PARTS)
    asked = parser.parse_args(arguments)
    runs = asked.runs or (3 if asked.quick else 5)
    count = 20_000 if asked.quick else 200_000
    warnings.simplefilter("ignore")
    pa.set_cpu_count(1)
    report = Report(asked.only)
    if report.wants("readings"):
        report.add("Readings", "", lambda: readings(count, runs))
    if report.wants("counts"):
        report.add("Counts", "", lambda: counts(count // 10, runs))
    if report.wants("bounds"):
        report.add("Bounds", "", lambda: bounds(runs))
    if report.wants("order"):
        report.add("Order", "", lambda: order(count, runs))
    print(f"\n{verdict(report.parts)}")


if __name__ == "__main__":
    main()
