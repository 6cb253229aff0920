"""SASE+'s section 6 on one core, against the same algorithm in plain Python and against backtracking.

    python -m benchmarks.kleene [--quick] [--only matching merging compressed enumeration memory figures] [--page]

Fixed seeds, 400,000 events, one warm-up, medians of 5 alternating runs, ratios of CPU time within one run. Every part
checks its matches against the oracle on a sample, against the twins, or against a count that is had another way.
Prints readable tables, then JSON; `--page` writes the tables and plots into docs/.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import kleene_bars, kleene_figures
from benchmarks.measure import Bar, machine, markdown

DOCS = Path(__file__).parent.parent / "docs"
BAR_HEADINGS = ["bar", "measured", "limit", ""]
PARTS = ("matching", "merging", "compressed", "enumeration", "memory", "figures")
Part = tuple[str, str, tuple[list[str], list[list[str]]], list[Bar]]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the events, three runs")
    parser.add_argument("--events", type=int, default=None)
    parser.add_argument("--runs", type=int, default=None)
    parser.add_argument("--only", nargs="*", choices=PARTS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", action="store_true", help="write docs/benchmarks-kleene.md and its plots")
    asked = parser.parse_args(arguments)
    events = asked.events or (40_000 if asked.quick else 400_000)
    runs = asked.runs or (3 if asked.quick else 5)
    pa.set_cpu_count(1)
    parts = measured(events, runs, asked.only)
    bars = [bar for _, _, _, found in parts for bar in found]
    content = {
        "benchmark": "kleene",
        "events": events,
        "runs": runs,
        "machine": machine(),
        "bars": [bar.as_json() for bar in bars],
        "tables": {title: {"columns": table[0], "rows": table[1]} for title, _, table, _ in parts},
    }
    text = json.dumps(content, indent=1, ensure_ascii=False)
    if asked.json:
        asked.json.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    if asked.page:
        write_page(DOCS / "benchmarks-kleene.md", events, runs, parts)


def measured(events: int, runs: int, only: list[str] | None) -> list[Part]:
    """All parts that were asked for; each is printed as soon as it is there."""
    parts: list[Part] = []

    def add(title: str, note: str, work: Callable[[], Any]) -> None:
        table, bars = work()
        print(f"\n{title}\n\n{markdown(*table)}\n", flush=True)
        if bars:
            print(markdown(BAR_HEADINGS, [bar.cells() for bar in bars]), flush=True)
        parts.append((title, note, table, bars))

    def wanted(name: str) -> bool:
        return not only or name in only

    if wanted("matching"):
        note = (
            "p = 0.7, matches found but not written out. The kernel reads staged events; from Arrow means staging and "
            "numbering them too, as the engine does, and growth with the window is judged by that. The Python twin "
            "runs the same algorithm, merging as the kernel does, over ready-made tuples, with predicates as functions."
        )
        add("Matching", note, lambda: kleene_bars.matching_bars(events, runs))
    if wanted("merging"):
        note = "Kernel, matches not written out, as in the paper. A gain is asked for where 45 % of all runs merge."
        add("Figure 8(g) and Table 3: merging", note, lambda: kleene_bars.merging_bars(events, runs))
    if wanted("compressed"):
        note = (
            "SEQ(A+ a[], B b) under skip_till_any_match, a B every 2,000 events: from Arrow to the graphs of all rows, "
            "and the exact counts beside them. The counts are checked: 2^n - 1."
        )
        add("COMPRESSED", note, lambda: kleene_bars.compressed_bars(events, runs))
    if wanted("enumeration"):
        note = "One row of 2^18 - 1 matches; the same table written by pyarrow from arrays that name the events."
        add("Listing", note, lambda: kleene_bars.enumeration_bars(runs))
    if wanted("memory"):
        note = "W = 1,000 ticks, a push for each window; the state is a snapshot's size."
        add("Memory over 50 windows", note, kleene_bars.memory_bars)
    if wanted("figures"):
        for figure in kleene_figures.FIGURES:
            add(figure.title, figure.note, lambda f=figure: (f.measure(events, runs), []))
    return parts


def write_page(path: Path, events: int, runs: int, parts: list[Part]) -> None:
    bars = [bar.cells() for _, _, _, found in parts for bar in found]
    lines = [
        "# SASE+'s experiments, measured",
        "",
        f"Written by `python -m benchmarks.kleene --page`: {events:,} events, one thread, medians of {runs} alternate "
        "runs, ratios of CPU time within one run. Single rates depend on the machine and on what else it does; ratios "
        "do so less. Every run checks its matches against the oracle on a sample, against twins in plain Python, or "
        "against a count that is had another way.",
        "",
        "The stream is the paper's: two symbols, prices that rise by one with probability p; the queries are those of "
        "its template and Table 1 (`benchmarks/kleene_worlds.py`). What the paper calls s2 and s3 is "
        "partition_contiguity and skip_till_next_match; windows count a symbol's events.",
        "",
        "## Bars",
        "",
        markdown(BAR_HEADINGS, bars),
    ]
    (path.parent / "figures").mkdir(parents=True, exist_ok=True)
    for title, note, table, found in parts:
        lines += ["", f"## {title}", "", note, "", markdown(*table)]
        plot = kleene_figures.plot(title, table, path.parent / "figures") if not found else None
        if plot is not None:
            lines += ["", f"![{title}](figures/{plot.name})"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
