"""Queries whose cost could grow faster than their input, and pairs of queries that must cost about the same.

    python -m benchmarks.blow_ups [--quick] [--runs 5] [--only growth]

Each case makes its events and query for a size and knows how many rows are right. All figures are ratios of CPU time.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from math import comb
from typing import NamedTuple

import numpy as np
import pyarrow as pa

import ouzel
from benchmarks.measure import Bar, alternate
from benchmarks.report import Report, verdict

NEXT = "skip_till_next_match"
FOREVER = 1_000_000_000
Found = tuple[tuple[list[str], list[list[str]]], list[Bar]]


class Case(NamedTuple):
    """Events, a query, how many rows it answers, and its work: events plus matches, or what else it must do."""

    events: pa.Table
    query: str
    rows: int
    work: int

    def run(self) -> None:
        rows = ouzel.match(self.events, self.query).num_rows
        assert rows == self.rows, f"{rows} rows instead of {self.rows}: {self.query}"


def stream(types: list[str], ts: np.ndarray | None = None, x: np.ndarray | None = None) -> pa.Table:
    count = np.arange(len(types))
    return pa.table({"type": types, "ts": count if ts is None else ts, "x": count if x is None else x})


# ── Growth: twice the events and matches ───────────────────────────────────────────────────────────


def open_runs(n: int) -> Case:
    """One event closes many open runs."""
    text = f"PATTERN SEQ(A a, B b) WHERE {NEXT}(a, b) {{ a.x >= 0 }} WITHIN {FOREVER}"
    return Case(stream(["A"] * n + ["B"]), text, n, 2 * n)


def open_runs_passed_over(n: int) -> Case:
    """Many open runs wait for one type while events of another arrive."""
    text = f"PATTERN SEQ(A a, B b, C c) WHERE {NEXT}(a, b, c) {{ a.x >= 0 }} WITHIN {FOREVER}"
    return Case(stream(["A", "C"] * (n // 2) + ["B", "C"]), text, n // 2, n + n // 2)


def falling_neighbours(n: int) -> Case:
    """No event satisfies a condition between neighbours."""
    text = f"PATTERN SEQ(A+ a[], B b) WHERE {NEXT}(a[], b) {{ a[i].x > a[i-1].x }} WITHIN {FOREVER}"
    return Case(stream(["A"] * n + ["B"], x=np.arange(n, -1, -1)), text, n, 2 * n)


def unequal_values(n: int) -> Case:
    """One of many open runs takes each event."""
    text = f"PATTERN SEQ(A a, B b) WHERE {NEXT}(a, b) {{ a.x = b.x }} WITHIN {FOREVER}"
    x = np.concatenate([np.arange(n), np.arange(n)[::-1]])
    return Case(stream(["A"] * n + ["B"] * n, x=x), text, n, 3 * n)


def _simultaneous(text: str, n: int) -> Case:
    return Case(stream(["A"] * n + ["B"], ts=np.array([1] * n + [2])), text, n, 2 * n)


simultaneous_next = partial(_simultaneous, f"PATTERN SEQ(A+ a[], B b) WHERE {NEXT}(a[], b) {{ b.x > 0 }} WITHIN 10")
simultaneous_any = partial(_simultaneous, "PATTERN SEQ(A+ a[], B b) WITHIN 10")
simultaneous_counted = partial(_simultaneous, "PATTERN SEQ(A+ a[], B b) WHERE count(a[..i-1].x) < 5 WITHIN 10")


def bounded_length(n: int) -> Case:
    rows = comb(n, 3)
    text = f"PATTERN SEQ(A+ a[], B b) WHERE a.LEN = 3 WITHIN {FOREVER}"
    return Case(stream(["A"] * n + ["B"]), text, rows, n + rows)


def compressed_with_negation(n: int) -> Case:
    text = "PATTERN SEQ(A+ a[], !(C c), B b) WITHIN 40 OUTPUT COMPRESSED"
    return Case(stream(["A", "C", "A", "B"] * n), text, n, 5 * n)


def compressed_with_negation_at_once(n: int) -> Case:
    """One row with 2^n matches. Their exact number is the last of n sums, which have 1 to n bits: work counts the
    64-bit words of all sums. Twice the events are four times as many words."""
    text = f"PATTERN SEQ(A+ a[], !(C c), B b) WITHIN {FOREVER} OUTPUT COMPRESSED"
    return Case(stream(["A"] * n + ["C", "A", "B"]), text, 1, n + n * n // 128)


def non_overlapping_of_many(n: int) -> Case:
    text = f"PATTERN SEQ(A+ a[], B b) WITHIN {FOREVER} OUTPUT NON_OVERLAPPING"
    return Case(stream((["A"] * 100 + ["B"]) * n), text, n, 102 * n)


def first_of_many(n: int) -> Case:
    text = f"PATTERN SEQ(A+ a[], B b) WITHIN {FOREVER} OUTPUT FIRST"
    return Case(stream((["A"] * 100 + ["B"]) * n), text, 100 * n, 201 * n)


def first_of_few(n: int) -> Case:
    return Case(stream(["A"] * n + ["B"] * n), f"PATTERN SEQ(A a, B b) WITHIN {FOREVER} OUTPUT FIRST", n, 3 * n)


def skip_to(n: int) -> Case:
    text = f"PATTERN SEQ(A a, B b, C c) WITHIN {FOREVER} OUTPUT SKIP TO FIRST b"
    return Case(stream(["A", "B"] * n + ["C"]), text, n, 3 * n)


def next_match_non_overlapping(n: int) -> Case:
    text = f"PATTERN SEQ(A+ a[], B b) WHERE {NEXT}(a[], b) {{ }} WITHIN {FOREVER} OUTPUT NON_OVERLAPPING"
    return Case(stream(["A", "A", "B"] * n), text, n, 4 * n)


GROWING: dict[str, tuple[Callable[[int], Case], int]] = {
    "open runs": (open_runs, 40_000),
    "open runs, passed over": (open_runs_passed_over, 40_000),
    "falling neighbours": (falling_neighbours, 40_000),
    "unequal values": (unequal_values, 40_000),
    "simultaneous, next match": (simultaneous_next, 40_000),
    "simultaneous, any match": (simultaneous_any, 40_000),
    "simultaneous, counted": (simultaneous_counted, 40_000),
    "a.LEN = 3": (bounded_length, 120),
    "COMPRESSED with negation": (compressed_with_negation, 4_000),
    "COMPRESSED with negation, one window": (compressed_with_negation_at_once, 20_000),
    "NON_OVERLAPPING of many": (non_overlapping_of_many, 1_000),
    "FIRST of many": (first_of_many, 4_000),
    "FIRST of few": (first_of_few, 40_000),
    "SKIP TO": (skip_to, 40_000),
    "NON_OVERLAPPING, next match": (next_match_non_overlapping, 40_000),
}


def growth(quick: bool, runs: int) -> Found:
    rows, bars = [], []
    for name, (make, size) in GROWING.items():
        once = make(size // 10 if quick else size)
        twice = make(size // 5 if quick else 2 * size)
        times = alternate({"once": once.run, "twice": twice.run}, runs)
        # What twice the work costs, where twice the size is more work than that.
        ratio = times.ratio("twice", "once") ** (math.log(2) / math.log(twice.work / once.work))
        rows.append([name, f"{once.work:,}", f"{times['once']:.3f}", f"{times['twice']:.3f}"])
        bars.append(Bar(f"{name}: twice the work", ratio, 2.3, at_least=False))
    return (["case", "work: events and matches", "seconds", "at twice the size"], rows), bars


# ── Pairs: two queries that must cost about the same ───────────────────────────────────────────────


def negative_that_never_occurs(n: int) -> tuple[Case, Case]:
    table = stream((["A"] * 9 + ["B"]) * (n // 10))
    matches = sum(min(199, at) - min(199, at) // 10 for at in range(9, n // 10 * 10, 10))
    text = f"PATTERN SEQ(A+ a[], {{}}B b) WHERE {NEXT}(a[], b) {{{{ a.x >= 0 }}}} WITHIN 200 RETURN R(b.ts AS at)"
    return Case(table, text.format(""), matches, 0), Case(table, text.format("!(N c), "), matches, 0)


def equalities_written_out(n: int) -> tuple[Case, Case]:
    """SASE's shoplifting query."""
    tags = np.arange(n // 2)
    parts = [("Shelf", tags), ("Register", tags[::2]), ("Exit", tags)]
    types = [name for name, own in parts for _ in own]
    table = stream(types, x=np.concatenate([own for _, own in parts]))
    text = f"PATTERN SEQ(Shelf a, !(Register b), Exit c) WHERE {NEXT}(a, b, c) {{{{ {{}} }}}} WITHIN {FOREVER}"
    matches = len(tags) - len(tags[::2])
    written_out = text.format("a.x = b.x AND a.x = c.x")
    return Case(table, text.format("[x]"), matches, 0), Case(table, written_out, matches, 0)


def form(clause: str, pattern: str, types: list[str], rows: Mapping[str, int]) -> tuple[Case, Case]:
    table = stream(types)
    return Case(table, pattern, rows["ALL"], 0), Case(table, f"{pattern} OUTPUT {clause}", rows[clause], 0)


def forms(n: int) -> dict[str, tuple[Case, Case]]:
    """Forms of output against ALL, where ALL has n rows: pairs, of which every other one overlaps the one before."""
    pairs = "PATTERN SEQ(A a, B b) WITHIN 2 RETURN R(a.ts AS a, b.ts AS b)"
    repeated = f"PATTERN SEQ(A+ a[], B b) WHERE {NEXT}(a[], b) {{ a.x >= 0 }} WITHIN {FOREVER} RETURN R(b.ts AS b)"
    found = {}
    for clause in ("NON_OVERLAPPING", "FIRST", "SKIP TO LAST b"):
        found[f"{clause}, pairs"] = form(clause, pairs, ["A", "B"] * n, {"ALL": n, clause: n})
    # Two runs reach each B: those that began with the first and with the second A.
    groups = ["A", "A", "B"] * (n // 2)
    keyed = {"FIRST": n, "NON_OVERLAPPING": n // 2}
    for clause, rows in keyed.items():
        text = repeated.replace(f"WITHIN {FOREVER}", "WITHIN 3")
        found[f"{clause}, repetition"] = form(clause, text, groups, {"ALL": n, clause: rows})
    return found


def pairs(quick: bool, runs: int) -> Found:
    size = 20_000 if quick else 200_000
    measured: dict[str, tuple[tuple[Case, Case], float]] = {
        "a negative that never occurs": (negative_that_never_occurs(size // 5), 1.2),
        "equalities written out": (equalities_written_out(size), 1.3),
        **{f"OUTPUT {name}, to ALL": (pair, 3.0) for name, pair in forms(size).items()},
    }
    rows, bars = [], []
    for name, ((under, over), limit) in measured.items():
        times = alternate({"under": under.run, "over": over.run}, runs)
        rows.append([name, f"{times['under']:.3f}", f"{times['over']:.3f}"])
        bars.append(Bar(name, times.ratio("over", "under"), limit, at_least=False))
    return (["case", "seconds of the plain query", "seconds"], rows), bars


# ── Conditions ─────────────────────────────────────────────────────────────────────────────────────

ALTERNATIVES = 200


def conditions(quick: bool, runs: int) -> Found:
    """An OR of 200 ANDs over one event against its comparisons in numpy."""
    count = 100_000 if quick else 1_000_000
    random = np.random.default_rng(19)
    x, y = random.integers(0, 1_000, count), random.integers(0, 1_000, count)
    types = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["A"])
    events = pa.table({"type": types, "ts": np.arange(count), "x": x, "y": y})
    where = " OR ".join(f"(a.x = {n} AND a.y >= {990 - n})" for n in range(ALTERNATIVES))
    text = f"PATTERN A a WHERE {where} WITHIN 10 RETURN R(a.ts AS ts)"
    plain = "PATTERN A a WHERE a.x < 0 WITHIN 10 RETURN R(a.ts AS ts)"

    def directly() -> np.ndarray:
        passing = np.zeros(count, bool)
        for n in range(ALTERNATIVES):
            passing |= (x == n) & (y >= 990 - n)
        return passing

    assert ouzel.match(events, text)["ts"].to_pylist() == np.flatnonzero(directly()).tolist()
    times = alternate(
        {
            "numpy": directly,
            "the query": lambda: ouzel.match(events, text),
            "the query without conditions": lambda: ouzel.match(events, plain),
        },
        runs,
    )
    started = time.process_time()
    ouzel.query(text)
    binding = time.process_time() - started
    ratio = times.ratio("the query", "numpy") - times.ratio("the query without conditions", "numpy")
    rows = [[name, f"{seconds:.3f}"] for name, seconds in times.items()]
    rows.append(["parsing and binding", f"{binding:.3f}"])
    return (["what", "seconds"], rows), [
        Bar("an OR of 200 ANDs to its comparisons in numpy", ratio, 1.5, at_least=False),
        Bar("parsing and binding it, in seconds", binding, 0.5, at_least=False),
    ]


PARTS: dict[str, tuple[str, Callable[[bool, int], Found]]] = {
    "growth": ("Twice the events and matches", growth),
    "pairs": ("Queries that must cost about the same", pairs),
    "conditions": ("An OR of 200 ANDs", conditions),
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small streams, to see that everything runs")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=PARTS)
    asked = parser.parse_args(arguments)
    # A negative that never occurs is named by a warning.
    warnings.simplefilter("ignore", ouzel.EmptyAnswerWarning)
    report = Report(asked.only)
    for name, (title, measure) in PARTS.items():
        if report.wants(name):
            report.add(title, "", partial(measure, asked.quick, asked.runs))
    print(f"\n{verdict(report.parts)}")


if __name__ == "__main__":
    main()
