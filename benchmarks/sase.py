"""SASE's section 5 on one core, against what a user would write or pick instead.

    python -m benchmarks.sase [--quick] [--only PART …] [--json FILE] [--page]

Fixed seeds, 4 M events, one warm-up, medians of 5 alternating runs, ratios of CPU time within one run. Every part
checks its matches against the oracle on a sample and against a count that is computed another way on the whole. Prints
readable tables, then JSON; `--page` writes the tables and plots into benchmarks/results/.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path

# One core for everybody; read when the libraries are loaded.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pyarrow as pa

from benchmarks import sase_bars, sase_figures
from benchmarks.report import FIGURES, RESULTS, Part, Report, write_json, write_page

PARTS = ("kernel", "peers", "matches", "growth", "start", "snapshots", "figures")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the events, three runs")
    parser.add_argument("--events", type=int, default=None)
    parser.add_argument("--runs", type=int, default=None)
    parser.add_argument("--only", nargs="*", choices=PARTS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", action="store_true", help="write benchmarks/results/sase.md and its plots")
    asked = parser.parse_args(arguments)
    events = asked.events or (400_000 if asked.quick else 4_000_000)
    runs = asked.runs or (3 if asked.quick else 5)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    parts = measured(events, runs, asked.only)
    write_json("sase", events, runs, parts, asked.json)
    if asked.page:
        write_results(events, runs, parts)


def measured(events: int, runs: int, only: list[str] | None) -> list[Part]:
    """All parts that were asked for; each is printed as soon as it is there."""
    report = Report(only)
    if report.wants("kernel"):
        note = (
            "L = 3, W = 10,000. The kernel finds the relevant events, encodes their keys, pushes them on stacks"
            " and writes all matches. The reference reads the type and counts by the hash of the id."
        )
        report.add("The kernel alone", note, lambda: sase_bars.kernel_bars(events, runs))
    if report.wants("peers"):
        note = (
            "From an Arrow table with string types to an Arrow table with all matches; the loop runs over "
            "tuples. One thread each. In brackets: Ouzel's rate divided by the peer's. The stream has one attribute; "
            "that of the paper has five, of which the queries read one."
        )
        report.add("End to end", note, lambda: sase_bars.peer_bars(events, runs))
    if report.wants("matches"):
        note = (
            "A day in a shop, string tags, no RETURN: each match has eight columns for each of its two readings"
            " at shelves and its reading at an exit. The loop runs over tuples and returns a list of tuples."
        )
        report.add("Many matches", note, lambda: sase_bars.many_matches_bars(events, runs))
    if report.wants("growth"):
        note = (
            "The cost per match is that of the densest query of its group, minus the time at L = 2 with the "
            "same window."
        )
        report.add("Growth with length and window", note, lambda: sase_bars.growth_bars(events, runs))
    if report.wants("start"):
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder) / "events.arrow")
            note = "Whole processes, including the interpreter; compiled kernels are in their cache."
            report.add("Start-up", note, lambda: sase_bars.start_bars(runs, file))
    if report.wants("snapshots"):
        note = "The copy is numpy's, of the same number of bytes into new memory."
        report.add("Snapshots", note, lambda: sase_bars.snapshot_bars(runs))
    if report.wants("figures"):
        for figure in sase_figures.FIGURES:
            report.add(figure.title, figure.note, lambda f=figure: (f.measure(events, runs), []))
    return report.parts


TITLES = ("The kernel alone", "End to end", "Many matches", "Growth with length and window", "Start-up", "Snapshots")


def write_results(events: int, runs: int, parts: list[Part]) -> None:
    about = (
        "# SASE's experiments, measured",
        "",
        f"Written by `python -m benchmarks.sase --page`: {events:,} events, one thread, medians of {runs} "
        "alternating runs, ratios of CPU time within one run. All rates and ratios are per core; "
        "`benchmarks/results/all-cores.md` has the same with all cores. Absolute rates depend on the machine and its "
        "load; ratios depend on them much less. Every run checks its matches against the oracle on a sample, "
        "and against a count from another algorithm on the whole stream.",
    )
    titles = (*TITLES, *(figure.title for figure in sase_figures.FIGURES))
    plot = partial(sase_figures.plot, folder=FIGURES)
    write_page(RESULTS / "sase.md", about, parts, titles, plot=plot)


if __name__ == "__main__":
    main()
