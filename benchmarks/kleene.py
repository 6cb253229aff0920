"""SASE+'s section 6 on one core, against the same algorithm in plain Python and against backtracking.

    python -m benchmarks.kleene [--quick] [--only matching merging compressed enumeration memory figures] [--page]

Fixed seeds, 400,000 events, one warm-up, medians of 5 alternating runs, a ratio is the median of its rounds. Every part
checks its matches against the oracle on a sample, against the twins, or against a count that is had another way.
Prints readable tables, then JSON; `--page` writes the tables and plots into benchmarks/results/.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks import kleene_bars, kleene_figures
from benchmarks.report import FIGURES, RESULTS, Part, Report, write_json, write_page

FLINK = {
    "Flink CEP": (
        "[Flink CEP and Ouzel](flink-cep.md) compares both on the same prices (`python -m benchmarks.flink_cep`). "
        "Flink's `oneOrMore` does not answer the paper's query: it pairs every prefix of a[] with the first later b. "
        "In Ouzel a run takes every event that it can, and it may leave a[] at any later b. The paper calls this "
        "ignore-proceed. The page of the comparison also lists Flink patterns that give the same answers.",
    )
}
PARTS = ("matching", "merging", "compressed", "enumeration", "memory", "figures")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the events, three runs")
    parser.add_argument("--events", type=int, default=None)
    parser.add_argument("--runs", type=int, default=None)
    parser.add_argument("--only", nargs="*", choices=PARTS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", action="store_true", help="write benchmarks/results/kleene.md and its plots")
    asked = parser.parse_args(arguments)
    events = asked.events or (40_000 if asked.quick else 400_000)
    runs = asked.runs or (3 if asked.quick else 5)
    pa.set_cpu_count(1)
    parts = measured(events, runs, asked.only)
    write_json("kleene", events, runs, parts, asked.json)
    if asked.page:
        write_results(events, runs, parts)


def measured(events: int, runs: int, only: list[str] | None) -> list[Part]:
    """All parts that were asked for; each is printed as soon as it is there."""
    report = Report(only)
    if report.wants("matching"):
        note = (
            "p = 0.7; matches are found but not written. The column *kernel* reads staged events; *from Arrow* "
            "includes staging and numbering them, as the engine does; growth with the window is judged by it. "
            "The Python twin runs the same algorithm, with the same merging, over tuples, with predicates as "
            "functions."
        )
        report.add("Matching", note, lambda: kleene_bars.matching_bars(events, runs))
    if report.wants("merging"):
        note = (
            "The kernel; matches are not written, as in the paper. The bar asks for a gain if at least 45 % of "
            "all runs merge. With the smallest window an event meets one run instead of less than two, and "
            "reading the event costs about as much as a run, so merging can gain little there."
        )
        report.add("Figure 8(g) and Table 3: merging", note, lambda: kleene_bars.merging_bars(events, runs))
    if report.wants("compressed"):
        note = (
            "SEQ(A+ a[], B b) under skip_till_any_match; every event is an A or a B. First the graph that all "
            "rows share: the kernel alone, with every third event completing matches of the whole window, so "
            "that a row is a root of the graph. Then separate graphs per row: each holds a window and so grows "
            "with it; there is a B every 2,000 events, and the time is from Arrow. The last column is the exact"
            " counts, which are checked: 2^n - 1."
        )
        report.add("COMPRESSED", note, lambda: kleene_bars.compressed_bars(events, runs))
    if report.wants("enumeration"):
        note = "One row of 2^18 - 1 matches, and the same table written by pyarrow from arrays of event numbers."
        report.add("Listing", note, lambda: kleene_bars.enumeration_bars(runs))
    if report.wants("memory"):
        note = "W = 1,000 ticks, one push per window; the state is the size of a snapshot."
        report.add("Memory over 50 windows", note, kleene_bars.memory_bars)
    if report.wants("figures"):
        for figure in kleene_figures.FIGURES:
            report.add(figure.title, figure.note, lambda f=figure: (f.measure(events, runs), []))
    return report.parts


TITLES = (
    "Matching", "Figure 8(g) and Table 3: merging", "COMPRESSED", "Listing",
    "Memory over 50 windows",
)  # fmt: skip


def write_results(events: int, runs: int, parts: list[Part]) -> None:
    about = (
        "# SASE+'s experiments, measured",
        "",
        f"Written by `python -m benchmarks.kleene --page`: {events:,} events, one thread, medians of {runs} "
        "alternating runs, ratios of CPU time within one run. All rates and ratios are per core. Absolute rates depend "
        "on the machine and its load; ratios depend on them much less. Every run checks its matches against the oracle "
        "on a sample, against twins in plain Python, or against a count from another algorithm.",
        "",
        "The stream follows the paper's: two symbols, prices that rise by one with probability p, volumes from 1 to "
        "1,000. Only the first price of a symbol is in the paper's range, 1 to 1,000. Later ones rise beyond it, "
        "because the paper does not say what happens at 1,000, and with prices that stop there half of all runs could "
        "not continue. The queries are those of its template and Table 1 (`benchmarks/kleene_worlds.py`). Its p3 has "
        "three aggregates; p3 is min here, as in the paper's discussion, which found max like p2 and avg like min; "
        "these two were not measured here. The paper's s2 and s3 are partition_contiguity and skip_till_next_match; "
        "windows count the events of a symbol.",
    )
    titles = (*TITLES, *(figure.title for figure in kleene_figures.FIGURES))
    plot = partial(kleene_figures.plot, folder=FIGURES)
    write_page(RESULTS / "kleene.md", about, parts, titles, texts=FLINK.items(), plot=plot)


if __name__ == "__main__":
    main()
