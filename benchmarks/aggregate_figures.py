"""Figures 12 to 16 of A-Seq, rebuilt as tables and plots: counting against building and counting, and sharing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ouzel
from benchmarks.aggregate_sharing import ratio_of, with_prefix, with_substring
from benchmarks.aggregate_streams import PAPER_RATIO_AT_LENGTH_5, query_text, table_of
from benchmarks.measure import alternate, cpu_seconds
from ouzel.runtime.engine import match_without

Table = tuple[list[str], list[list[str]]]
# Small, since what is built grows by an order of magnitude with each component.
EVENTS_MAX = 4_000
BUILT = ["count_without_matches"]


@dataclass(frozen=True, slots=True)
class Figure:
    title: str
    note: str
    measure: Callable[[int, int], Table]
    across: str
    # Building takes long, and is orders of magnitude away.
    runs_max: int = 100


def _peak_bytes(text: str, events: int, *, built: bool) -> int:
    """What answering a query adds to the largest size of a fresh process, after a first answer over few events."""
    program = (
        "import sys\n"
        "from ouzel.runtime.engine import match_without\n"
        "from benchmarks.aggregate_streams import table_of\n"
        "off = ['count_without_matches'] if sys.argv[2] == 'True' else []\n"
        "size = lambda: int(next(l for l in open('/proc/self/status') if l.startswith('VmHWM')).split()[1]) << 10\n"
        "match_without(off, table_of(300, 1), sys.argv[1])\n"
        "table = table_of(int(sys.argv[3]), 1)\n"
        "before = size()\n"
        "match_without(off, table, sys.argv[1])\n"
        "print(size() - before)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, text, str(built), str(events)], capture_output=True, text=True, check=True
    )
    return int(ended.stdout)


def _against_building(text: str, events: int, runs: int) -> list[str]:
    table = table_of(events, 1)
    counted, built = ouzel.match(table, text), match_without(BUILT, table, text)
    assert counted.equals(built), "counting and building differ"
    work: dict[str, Callable[[], Any]] = {
        "counted": lambda: ouzel.match(table, text),
        "built": lambda: match_without(BUILT, table, text),
    }
    seconds = alternate(work, runs)
    memory = [_peak_bytes(text, events, built=way) / 2**20 for way in (False, True)]
    return [
        f"{seconds['counted'] / events * 1e6:.2f}",
        f"{seconds['built'] / events * 1e6:.2f}",
        f"{seconds['built'] / seconds['counted']:.1f}",
        f"{memory[0]:.1f}",
        f"{memory[1]:.1f}",
    ]


_HEADINGS = ["counted, us an event", "built, us an event", "built to counted", "counted, peak MB", "built, peak MB"]


def by_length(events: int, runs: int) -> Table:
    events = min(events, EVENTS_MAX)
    rows = []
    for length in (2, 3, 4, 5):
        rows.append([str(length), *_against_building(query_text(length, 400, grouped=False), events, runs)])
    return ["length", *_HEADINGS], rows


def by_window(events: int, runs: int) -> Table:
    events = min(events, EVENTS_MAX)
    windows = (100, 400, 700, 1_000)
    rows = [[str(w), *_against_building(query_text(3, w, grouped=False), events, runs)] for w in windows]
    return ["window", *_HEADINGS], rows


def by_negation(events: int, runs: int) -> Table:
    events = min(events, EVENTS_MAX)
    rows = []
    for length in (2, 3, 4):
        text = query_text(length, 400, negative=True, grouped=False)
        rows.append([str(length), *_against_building(text, events, runs)])
    return ["length", *_HEADINGS], rows


def three_queries(events: int, runs: int) -> Table:
    """From the Arrow table: three queries with a common prefix, built and counted one by one, counted one by one, and
    counted together."""
    events = min(events, 200_000)
    table, few = table_of(events, 1), table_of(min(events, EVENTS_MAX), 1)
    rows = []
    for length in (2, 3, 4, 6):
        prefix = ", ".join(f"E{i} v{i}" for i in range(length))
        queries = {f"q{q}": f"PATTERN SEQ({prefix}, E{length + q} z) AGG COUNT WITHIN 400" for q in range(3)}
        together = ouzel.match(table, queries)
        assert all(ouzel.match(table, text).num_rows == together[name].num_rows for name, text in queries.items())
        work: dict[str, Callable[[], Any]] = {
            "alone": lambda q=queries: [ouzel.match(table, text) for text in q.values()],
            "together": lambda q=queries: ouzel.match(table, q),
        }
        seconds = alternate(work, runs)
        alone, shared = (seconds[name] / events * 1e6 for name in ("alone", "together"))
        built, ratio = "", ""
        if length < 4:
            spent = cpu_seconds(lambda q=queries: [match_without(BUILT, few, text) for text in q.values()])
            built, ratio = f"{spent / len(few) * 1e6:.1f}", f"{spent / len(few) * 1e6 / shared:,.0f}"
        rows.append([str(length), built, f"{alone:.3f}", f"{shared:.3f}", f"{alone / shared:.2f}", ratio])
    headings = ["prefix", "built one by one, us an event", "one by one, us an event", "together, us an event"]
    return [*headings, "alone to together", "built to together"], rows


def _sweep(make: Callable[[int, int], Any], points: list[tuple[int, int]], by_queries: bool) -> Callable[..., Table]:
    def measure(events: int, runs: int) -> Table:
        events = min(events, 200_000)
        rows = []
        for queries, length in points:
            ratios = [ratio_of(make(queries, length), length, events, runs, funnel=f) for f in (True, False)]
            rows.append([str(queries if by_queries else length), *(f"{ratio:.2f}" for ratio in ratios)])
        return ["queries" if by_queries else "length", "faster, funnel", "faster, even stream"], rows

    return measure


_PAPER = f"The paper has {PAPER_RATIO_AT_LENGTH_5:,} for built to counted at length 5"
FIGURES = (
    Figure(
        "A-Seq 12: longer patterns",
        (f"No key, window 400, at most {EVENTS_MAX:,} events, 20 types. {_PAPER}, against the paper's own engine."),
        by_length,
        "us an event",
        runs_max=3,
    ),
    Figure("A-Seq 13: wider windows", "Length 3.", by_window, "us an event", runs_max=3),
    Figure(
        "A-Seq 14: negation",
        "A negative type before the last component; window 400.",
        by_negation,
        "us an event",
        runs_max=3,
    ),
    Figure(
        "A-Seq 15: three queries with a common prefix",
        "End to end, from the Arrow table to three tables of counts: staging is shared too. No key, window 400. As in "
        "the paper, the first way builds all matches of each query and counts them; it reads at most 4,000 events, and "
        "longer prefixes take too long. ECube, the paper's fourth way, is not measured.",
        three_queries,
        "us an event",
    ),
    Figure(
        "A-Seq 16a: more queries with a common prefix of 6",
        "The kernel alone: shared against unshared counters over one scan. In a funnel the shared types are 60 "
        "% of all events.",
        _sweep(with_prefix, [(2, 6), (4, 6), (6, 6), (12, 6), (20, 6)], by_queries=True),
        "times as fast",
    ),
    Figure(
        "A-Seq 16b: longer common prefixes, 3 queries",
        "The same.",
        _sweep(with_prefix, [(3, 2), (3, 4), (3, 6)], by_queries=False),
        "times as fast",
    ),
    Figure(
        "A-Seq 16c: longer common substrings",
        "The same, with Chop-Connect wherever the planner expects a gain. The paper has 1.3 to 2.6 for its three "
        "queries. Where the planner shares nothing, both ways are the same and the ratio is 1 and noise.",
        _sweep(with_substring, [(3, 2), (3, 4), (3, 6)], by_queries=False),
        "times as fast",
    ),
    Figure(
        "A-Seq 16c with 20 queries: longer common substrings",
        "The same for more queries than in the paper.",
        _sweep(with_substring, [(20, 2), (20, 4), (20, 6)], by_queries=False),
        "times as fast",
    ),
    Figure(
        "A-Seq 16d: more queries with a common substring of 6",
        "The same.",
        _sweep(with_substring, [(2, 6), (6, 6), (12, 6), (20, 6)], by_queries=True),
        "times as fast",
    ),
)


def plot(figure: Figure, table: Table, folder: Path) -> Path:
    """A figure's measurements over its first column, as SVG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    headings, rows = table
    drawn, axes = pyplot.subplots(figsize=(6, 3.6))
    wanted = figure.across if "us" in figure.across else "faster"
    for column, heading in enumerate(headings):
        if wanted in heading:
            # What takes too long has no figure.
            points = [(float(row[0]), float(row[column])) for row in rows if row[column]]
            axes.plot(*zip(*points, strict=True), marker="o", label=heading.partition(", us")[0])
    if wanted != "faster":
        axes.set_yscale("log")
    # Lengths and numbers of queries are whole.
    axes.set_xticks([float(row[0]) for row in rows], [row[0] for row in rows])
    axes.set_xlabel(headings[0])
    axes.set_ylabel(figure.across)
    axes.set_title(figure.title, fontsize=9)
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)
    drawn.tight_layout()
    path = folder / (figure.title.split(":")[0].lower().replace(" ", "-") + ".svg")
    # No date and no random ids: the file changes only where the figures do.
    matplotlib.rcParams["svg.hashsalt"] = "ouzel"
    drawn.savefig(path, metadata={"Date": None})
    pyplot.close(drawn)
    return path
