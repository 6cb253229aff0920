"""Small pushes: events a second by engine, form of input and size of a push, against another checkout; and latency.

    python -m benchmarks.small_pushes [--old PATH] [--runs 3] [--only sequence …] [--sizes 1 100 …] [--latency EVENTS]
    python -m benchmarks.small_pushes --page

`--old` is a checkout to compare with. Both are measured in processes of their own, in turns; a rate is the best of the
runs by CPU time. Every run must give the rows that one `match` of the checkout itself gives. `--page` measures pushes
with order="arrival" and the latency of a million events, too, and writes benchmarks/results/small-pushes.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import ouzel

ROOT = Path(__file__).parent.parent
SIZES = {1: 2_000, 100: 20_000, 1_000: 100_000, 100_000: 500_000}
FORMS = ("dicts", "batch")
WANTED = {1: 12.0, 100: 10.0, 1_000: 3.0, 100_000: 1.0}
# No push of one event may take longer: milliseconds of the thread's CPU.
LONGEST_PUSH = 10.0
# With order="arrival", pushes of a hundred must have this share of the rate without it.
ORDERED_SHARE = 0.8
# Pushed before the clock starts: kernels are compiled and the window is full.
WARM = 3_000

QUERIES: dict[str, Any] = {
    "sequence": "PATTERN SEQ(A a, B b, C c) WHERE [k] AND a.x < c.x WITHIN 1000 RETURN R(a.k AS k, a.x AS x, c.x AS y)",
    "kleene": "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) { [k] AND b[i].x > b[i-1].x } "
    "WITHIN 1000 RETURN R(a.k AS k, COUNT(b[]) AS n, c.x AS cx)",
    "aggregate": "PATTERN SEQ(A a, B b, C c) WHERE [k] AGG COUNT(*) AS n, SUM(b.x) AS s WITHIN 1000",
    "automata": None,
    "incomplete": "PATTERN SEQ(A a, B b, C c) WHERE [k] WITHIN 1000 THRESHOLD 0.3 RETURN R(a.k AS k, c.x AS cx)",
}  # fmt: skip

SHOPLIFTING = """\
PATTERN SEQ(Shelf x, !(Register y), Exit z)
WHERE   [tag_id]
WITHIN  12 hours
RETURN  Theft(x.tag_id AS tag, x.shelf_id AS shelf, z.time AS left_at)"""


def query_of(engine: str) -> Any:
    if engine != "automata":
        return QUERIES[engine]
    later = ouzel.algebra.stream("C").rename({"k": "key", "x": "y"})
    return ouzel.algebra.stream("A").next(later, "k = key AND x < y AND DUR <= 1000")


def options_of(engine: str) -> dict[str, Any]:
    if engine != "incomplete":
        return {}
    gaps = {name: ouzel.loss.Exponential(300) for name in "bc"}
    return {"model": ouzel.LossModel(0.1, gaps=gaps)}


def events(count: int, seed: int = 7) -> pa.Table:
    """Five types, of which queries name three, 200 keys, and a number."""
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "type": pa.array(np.array(list("ABCDE"))[draw.integers(0, 5, count)].tolist()),
            "ts": np.arange(count),
            "k": draw.integers(0, 200, count),
            "x": draw.random(count),
        }
    )


def pushes(table: pa.Table, form: str, size: int) -> list[Any]:
    if form == "batch":
        return [
            part
            for first in range(0, table.num_rows, size)
            for part in table.slice(first, size).combine_chunks().to_batches()
        ]
    rows = table.to_pylist()
    return [rows[first : first + size] for first in range(0, len(rows), size)]


def digest(answers: list[pa.Table]) -> list[tuple[Any, ...]]:
    """The rows of answers, in one order: matches that complete at one timestamp come in any."""
    return sorted(tuple(row.values()) for table in answers for row in table.to_pylist())


def rate(engine: str, form: str, size: int, count: int, ordered: bool = False) -> dict[str, Any]:
    """Events a second of CPU, and whether the rows are right."""
    table = events(WARM + count)
    batches = pushes(table.slice(WARM), form, size)
    running = ouzel.Engine(query_of(engine), **options_of(engine), **({"order": "arrival"} if ordered else {}))
    answers = [running.push(table.slice(0, WARM))["query"]]
    gc.collect()
    gc.disable()
    began = time.process_time()
    for batch in batches:
        found = running.push(batch)["query"]
        if found.num_rows:
            answers.append(found)
    seconds = time.process_time() - began
    gc.enable()
    answers.append(running.finish()["query"])
    wanted = ouzel.match(table, query_of(engine), **options_of(engine))
    assert digest(answers) == digest([wanted]), f"{engine}: other rows in pushes of {size} {form}"
    return {"rate": count / seconds, "rows": wanted.num_rows}


def latency(engine: str, count: int) -> dict[str, float]:
    """Microseconds of the thread's CPU for a push of one event: quantiles over many."""
    table = events(WARM + count)
    running = ouzel.Engine(query_of(engine), **options_of(engine))
    running.push(table.slice(0, WARM))
    taken = np.empty(count, np.int64)
    clock = time.thread_time_ns
    for first in range(WARM, WARM + count, 50_000):
        for number, row in enumerate(table.slice(first, 50_000).to_pylist(), first - WARM):
            one = [row]
            began = clock()
            running.push(one)
            taken[number] = clock() - began
    taken = taken / 1_000
    found = dict(zip(("p50", "p99", "p99.9"), np.quantile(taken, [0.5, 0.99, 0.999]).round(1).tolist(), strict=True))
    return {**found, "max": float(taken.max().round(1))}


def shop(size: int | None) -> dict[str, Any]:
    """Readings of the demo's shop, with tags as text: a push at a time, or one call."""
    day = ouzel.datasets.shop_day(300_000, seed=7)
    query = ouzel.query(SHOPLIFTING, day.types, name="query")
    ouzel.match(day.events.slice(0, 1_000), query)
    count = day.events.num_rows if size is None or size > 1_000 else 60_000
    table = day.events.slice(0, count)
    running = ouzel.Engine(query)
    began = time.process_time()
    if size is None:
        found = ouzel.match(table, query)
    else:
        parts = [running.push(table.slice(first, size))["query"] for first in range(0, count, size)]
        found = pa.concat_tables([*parts, running.finish()["query"]])
    seconds = time.process_time() - began
    assert found.num_rows == ouzel.match(table, query).num_rows
    return {"rate": count / seconds, "rows": found.num_rows}


def child(path: Path, *task: Any) -> Any:
    """Do a task with a checkout, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": f"{path / 'src'}{os.pathsep}{ROOT}", "OUZEL_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.small_pushes", "--child", json.dumps(task)]
    done = subprocess.run(command, cwd=path, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def best(path: Path | None, runs: int, *task: Any) -> tuple[float, float]:
    """The best rate of this checkout and of another, alternating."""
    found: dict[str, float] = {"new": 0.0, "old": 0.0}
    for _ in range(runs):
        for name, one in (("old", path), ("new", ROOT)):
            if one is not None:
                found[name] = max(found[name], child(one, *task)["rate"])
    return found["new"], found["old"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=lambda text: Path(text).resolve(), help="a checkout to compare with")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[*QUERIES, "shop"])
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--forms", nargs="*", default=list(FORMS))
    parser.add_argument("--latency", type=int, default=0, metavar="EVENTS")
    parser.add_argument("--page", action="store_true", help="also write the page")
    parser.add_argument("--quick", action="store_true", help="one run of few events")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.child:
        kind, *task = json.loads(asked.child)
        assert Path(ouzel.__file__).is_relative_to(Path.cwd()), f"{Path.cwd()} is compared, but {ouzel.__file__} runs"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            print(json.dumps({"rate": rate, "latency": latency, "shop": shop}[kind](*task)))
        return 0
    if asked.page:
        write_page(asked.runs)
        return 0
    runs, share = (1, 10) if asked.quick else (asked.runs, 1)
    print(f"{'engine':<12}{'form':<8}{'size':>8}{'events/s':>12}{'before':>12}{'times':>8}  wanted")
    for engine in [one for one in asked.only if one in QUERIES]:
        for form in asked.forms:
            for size in asked.sizes:
                count = max(SIZES[size] // share, 2 * size)
                new, old = best(asked.old, runs, "rate", engine, form, size, count)
                show(engine, form, size, new, old, WANTED[size])
        if asked.latency:
            print(f"{engine:<12}latency of one event in µs: {child(ROOT, 'latency', engine, asked.latency)}")
    if "shop" in asked.only:
        one_call, one_call_old = best(asked.old, runs, "shop", None)
        show("shop", "one call", 0, one_call, one_call_old, 1.0)
        for size, wanted in ((50_000, 0.0), (1_000, 3.0)):
            new, old = best(asked.old, runs, "shop", size)
            show("shop", "table", size, new, old, wanted)
            print(f"{'':<20}share of one call: {new / one_call:.2f}")
    return 0


def write_page(runs: int) -> None:
    """Measure the rates by engine, form and size, what an order costs, and the latency of a million events."""
    # The other checkout may lack these.
    from benchmarks.measure import Bar, markdown
    from benchmarks.report import BAR_HEADINGS, RESULTS
    from ouzel.kernels import jit

    bars: list[Bar] = []
    rates: list[list[str]] = []
    latencies: list[list[str]] = []
    for engine in QUERIES:
        for form in FORMS:
            found = [best(None, runs, "rate", engine, form, size, SIZES[size])[0] for size in SIZES]
            ordered = best(None, runs, "rate", engine, form, 100, SIZES[100], True)[0]
            share = ordered / found[list(SIZES).index(100)]
            rates.append([engine, form, *(f"{one:,.0f}" for one in found), f"{share:.2f}"])
            bars.append(Bar(f'{engine}, {form}: 100 a push with order="arrival"', share, ORDERED_SHARE, True))
        taken = child(ROOT, "latency", engine, 1_000_000)
        latencies.append([engine, *(f"{value:,.1f}" for value in taken.values())])
        bars.append(Bar(f"{engine}: longest push of one event, ms", taken["max"] / 1_000, LONGEST_PUSH, False))
    lines = [
        "# Small pushes",
        "",
        f"Written by `python -m benchmarks.small_pushes --page`, kernels from {jit.MODE}, one thread. A rate is events "
        f"a second of CPU time, the best of {runs} runs. Every run checks that the rows are those of one `match`.",
        "",
        markdown(BAR_HEADINGS, [bar.cells() for bar in bars]),
        "",
        "Events a second, by engine, form of input and size of a push; last the share of the rate of pushes of 100 "
        'that is left with `order="arrival"`:',
        "",
        markdown(["engine", "form", *(f"{size:,}" for size in SIZES), "ordered"], rates),
        "",
        "A push of one event, a list of one dictionary, over a million events, in microseconds of the thread's CPU:",
        "",
        markdown(["engine", "p50", "p99", "p99.9", "max"], latencies),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    (RESULTS / "small-pushes.md").write_text(text, encoding="utf-8")


def show(engine: str, form: str, size: int, new: float, old: float, wanted: float) -> None:
    times = f"{new / old:8.1f}" if old else " " * 8
    print(f"{engine:<12}{form:<8}{size:>8}{new:>12,.0f}{old:>12,.0f}{times}  {wanted:g}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
