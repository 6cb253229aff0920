"""One core and all cores, beside DuckDB and polars on all cores.

    python -m benchmarks.all_cores [--quick] [--page]

4 M events, best of 9 alternating runs by the clock and by CPU time. Every run checks that both give the same rows in
the same order. Times by the clock need free cores, so the load of the machine is printed. The CPU time of the longest
thread, with all that is done before and after the threads, is what the clock shows if each has a core of its own.
Independent calls, one on each core, show what the machine gives to cores that share memory and caches.
"""

from __future__ import annotations

import argparse
import gc
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

# Read when polars is imported.
os.environ["POLARS_MAX_THREADS"] = str(len(os.sched_getaffinity(0)))

import ouzel
from benchmarks import peers
from benchmarks.measure import Bar, markdown
from benchmarks.report import BAR_HEADINGS, RESULTS
from benchmarks.sase_worlds import W1, W2, WINDOW, events_for
from ouzel.kernels import jit
from ouzel.runtime import threads as division

CORES = len(os.sched_getaffinity(0))
KLEENE = (
    "PATTERN SEQ(E1 a, E2+ b[], E3 c) WHERE skip_till_next_match(a, b[], c) { [attr1] } WITHIN {window} "
    "RETURN R(a.ts AS a, COUNT(b[]) AS n, c.ts AS c)"
)
COUNT = "PATTERN SEQ(E1 a, E2 b, E3 c) WHERE [attr1] AGG COUNT(*) GROUP BY attr1 WITHIN {window}"
QUERIES = {
    "W1, 100 ids": (W1, 100, peers.DUCKDB_W1["slices"], peers.polars_w1),
    "W1, 10,000 ids": (W1, 10_000, peers.DUCKDB_W1["slices"], peers.polars_w1),
    "W2, 1,000 ids": (W2, 1_000, peers.DUCKDB_W2["asof"], peers.polars_w2),
    "Kleene, 1,000 ids": (KLEENE, 1_000, None, None),
    "count by key, 1,000 ids": (COUNT, 1_000, None, None),
}
_POOL = ThreadPoolExecutor(CORES)
HEADINGS = [
    "query",
    "one core, ms",
    "all cores, ms",
    "gain",
    "gain by the longest thread",
    "gain of independent calls",
    "CPU, of one core's",
    "DuckDB, all cores",
    "polars, all cores",
]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the events, three runs")
    parser.add_argument("--page", action="store_true", help="write benchmarks/results/all-cores.md")
    asked = parser.parse_args(arguments)
    events, runs = (400_000, 3) if asked.quick else (4_000_000, 9)
    rows, bars = [], []
    for name, (text, ids, duck_text, polars) in QUERIES.items():
        table = events_for(events, ids)
        query = ouzel.query(text.replace("{window}", str(WINDOW)))
        contestants: dict[str, Callable[[], Any]] = {
            "one": lambda t=table, q=query: ouzel.match(t, q, threads=1),
            "all": lambda t=table, q=query: ouzel.match(t, q, threads=CORES),
            "independent": lambda t=table, q=query: at_once(lambda: ouzel.match(t, q, threads=1)),
        }
        assert contestants["all"]().equals(contestants["one"]()), f"{name}: the rows differ"
        if duck_text is not None and polars is not None:
            duck = peers.DuckDb(table, CORES)
            contestants["DuckDB"] = lambda d=duck, t=duck_text: d.ask(t, WINDOW)
            contestants["polars"] = lambda t=table, p=polars: p(t, WINDOW)
        best = best_of(contestants, runs)
        one, both = best["one"], best["all"]
        ceiling = CORES * one.clock / best["independent"].clock
        gain, free, work = one.clock / both.clock, one.cpu / both.longest, both.cpu / one.cpu
        peer_cells = [f"{best[who].clock * 1e3:.0f}" if who in best else "" for who in ("DuckDB", "polars")]
        rows.append([name, f"{one.clock * 1e3:.0f}", f"{both.clock * 1e3:.0f}"])
        rows[-1] += [f"{gain:.2f}", f"{free:.2f}", f"{ceiling:.2f}", f"{work:.2f}", *peer_cells]
        bars.append(Bar(f"{name}: all cores over one, by the clock", gain, 1.7, at_least=True))
        bars.append(Bar(f"{name}: CPU on all cores, of one core's", work, 1.15, at_least=False))
    load = f"{CORES} cores, load {os.getloadavg()[0]:.1f}, kernels from {jit.MODE}"
    tables = [markdown(BAR_HEADINGS, [bar.cells() for bar in bars]), markdown(HEADINGS, rows)]
    print(f"{load}\n\n{tables[1]}\n\n{tables[0]}")
    if asked.page:
        lines = [
            "# One core and all cores",
            "",
            f"Written by `python -m benchmarks.all_cores --page`: {events:,} events, best of {runs} alternating runs, "
            f"{load}. All cores give the same rows in the same order, which every run checks. Gains by the "
            "clock need cores that are free: under load they say more about other work. The CPU time of the longest "
            "thread, with all that is done before and after the threads, is what the clock shows if each thread has a "
            "core of its own. Independent calls, one on each core, show what the machine gives to cores that share "
            "memory and caches. Under a load of several times the cores, even ratios of CPU times are uncertain by a "
            "tenth or more; a gain above the number of cores, or less CPU than one core's, is such an error.",
            "",
            tables[0],
            "",
            tables[1],
        ]
        (RESULTS / "all-cores.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def at_once(call: Callable[[], Any]) -> list[Any]:
    """As many independent calls as there are cores: they share memory and caches, and nothing else."""
    return [one.result() for one in [_POOL.submit(call) for _ in range(CORES)]]


class Seconds(NamedTuple):
    """By the clock, of CPU, and of CPU of the thread that has most to do with what is done in one thread."""

    clock: float
    cpu: float
    longest: float


def best_of(contestants: Mapping[str, Callable[[], Any]], runs: int) -> dict[str, Seconds]:
    """The least seconds of each contestant."""
    found: dict[str, list[Seconds]] = {name: [] for name in contestants}
    taken: dict[int, float] = {}
    run_tasks = division.run_tasks

    def timed(task: Callable[[], Any]) -> Any:
        before = time.thread_time()
        answer = task()
        thread = threading.get_ident()
        taken[thread] = taken.get(thread, 0.0) + time.thread_time() - before
        return answer

    division.run_tasks = lambda tasks, threads: run_tasks([partial(timed, task) for task in tasks], threads)
    try:
        for _ in range(runs):
            for name, work in contestants.items():
                gc.collect()
                taken.clear()
                clock, spent = time.perf_counter(), time.process_time()
                answer = work()
                clock, spent = time.perf_counter() - clock, time.process_time() - spent
                del answer
                longest = spent - sum(taken.values()) + max(taken.values(), default=0.0)
                found[name].append(Seconds(clock, spent, longest))
    finally:
        division.run_tasks = run_tasks
    return {name: Seconds(*map(min, zip(*seconds, strict=True))) for name, seconds in found.items()}


if __name__ == "__main__":
    raise SystemExit(main())
