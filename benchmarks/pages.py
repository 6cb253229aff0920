"""All benchmarks in one run, and the page for users: `make bench`.

    python -m benchmarks.pages [--quick] [--only sase aggregate …] [--assemble]

Each benchmark measures, checks its answers and writes its tables into benchmarks/results/; a benchmark that fails does
not stop the others. `--assemble` measures nothing and only writes docs/benchmarks.md and its chart from these tables.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import markdown
from benchmarks.report import RESULTS, sections_of, table_of

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGE = DOCS / "benchmarks.md"


@dataclass(frozen=True)
class Benchmark:
    """A module of this folder, what it measures, and the peers it is compared with."""

    name: str
    about: str
    peers: tuple[str, ...] = ()


BENCHMARKS = (
    Benchmark("sase", "sequences: SASE's section 5, against a Python loop, DuckDB and polars", ("duckdb", "polars")),
    Benchmark("all_cores", "one core and all cores, beside DuckDB and polars on all cores", ("duckdb", "polars")),
    Benchmark("kleene", "repetition: SASE+'s section 6"),
    Benchmark("flink_cep", "sequences and repetition, against Flink CEP", ("pyflink",)),
    Benchmark("aggregate", "counting without building: A-Seq's section 6", ("duckdb",)),
    Benchmark("many_queries", "hundreds of thousands of standing queries: Cayuga's section 5"),
    Benchmark("probabilistic", "missing events: recall, precision, calibration and cost", ("scipy",)),
    Benchmark("patterns", "patterns with several readings, and repetitions of bounded length"),
    Benchmark("match_recognize", "row patterns, against DuckDB and polars", ("duckdb", "polars")),
    Benchmark("blow_ups", "queries whose cost could grow faster than their input"),
    Benchmark("first_query", "CPU time and memory of a new process until its first answer, and installed size"),
    Benchmark("small_pushes", "pushes of one event, of a hundred and of a thousand: rates and latency"),
    Benchmark("spark_batch", "Spark batches, against Spark SQL", ("pyspark",)),
    Benchmark("spark_stream", "Spark streams, against a stateless pass over the same rows", ("pyspark",)),
)
VERSIONS = ("pyarrow", "numpy", "numba", "duckdb", "polars", "pyspark", "scipy", "apache-flink-libraries")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small worlds, to see that everything runs")
    parser.add_argument("--only", nargs="*", choices=[one.name for one in BENCHMARKS])
    parser.add_argument("--assemble", action="store_true", help="measure nothing, only write the page")
    asked = parser.parse_args(arguments)
    failed = []
    for benchmark in BENCHMARKS:
        if not asked.assemble and (not asked.only or benchmark.name in asked.only) and not run(benchmark, asked.quick):
            failed.append(benchmark.name)
    # A quick run is no result.
    if not asked.quick:
        PAGE.write_text(assembled(), encoding="utf-8")
        draw(comparisons())
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def run(benchmark: Benchmark, quick: bool) -> bool:
    """Run one benchmark in a process of its own, so that none warms up the next."""
    path = Path(__file__).parent / f"{benchmark.name}.py"
    missing = [peer for peer in benchmark.peers if importlib.util.find_spec(peer) is None]
    if not path.exists() or missing:
        reason = f"without {', '.join(missing)}" if missing else "it is not there"
        print(f"== {benchmark.name}: SKIPPED, {reason}")
        return True
    options = [
        option
        for option, wanted in (("--quick", quick), ("--page", not quick))
        if wanted and f'"{option}"' in path.read_text(encoding="utf-8")
    ]
    print(f"== {benchmark.name}: {benchmark.about}", flush=True)
    done = subprocess.run([sys.executable, "-m", f"benchmarks.{benchmark.name}", *options], cwd=ROOT, check=False)
    return done.returncode == 0


@dataclass(frozen=True)
class Rival:
    """Bars that compare with another system: their page, a pattern whose group is the question, and the stream."""

    page: str
    bar: str
    system: str
    stream: str


RIVALS = (
    Rival("sase", r"(W\d, .*), over the Python loop", "a Python loop", "4,000,000 events"),
    Rival("sase", r"(W\d, .*), over DuckDB", "DuckDB", "4,000,000 events"),
    Rival("aggregate", r"(W4) against a Python loop(, .*)", "a Python loop", "at most 2,000,000 events"),
    Rival("aggregate", r"(W4) against DuckDB(, .*)", "DuckDB", "at most 2,000,000 events"),
    Rival("spark-batch", r"(.*): less CPU than Spark SQL", "Spark SQL", "2,500,000 to 10,000,000 events"),
    Rival("match-recognize", r"(V shapes): DuckDB's .*", "DuckDB", "2,000,000 rows"),
    Rival("match-recognize", r"(V shapes): polars .*", "polars", "2,000,000 rows"),
    Rival("flink-cep", r"(.*): Flink's CPU time over Ouzel's, equal answers", "Flink CEP", ""),
)
HEADINGS = ["question", "beside", "stream", "times as fast, per core", "date", "commit"]


def comparisons() -> list[list[str]]:
    """A row for each bar that compares with another system, and for polars, which has no bars."""
    rows = []
    ends = table_of(sections_of(RESULTS / "sase.md")["End to end"])
    when = _bars(RESULTS / "sase.md")[0][4:6]
    for row in ends[1:]:
        ratio = row[ends[0].index("polars")].partition("(")[2].removesuffix("x)")
        rows.append([f"{row[0]}, {row[1]} ids", "polars", "4,000,000 events", ratio, *when])
    for rival in RIVALS:
        for bar in _bars(RESULTS / f"{rival.page}.md"):
            if found := re.fullmatch(rival.bar, bar[0]):
                question = "".join(found.groups())
                stream = rival.stream or _flink_stream(question)
                rows.append([question, rival.system, stream, f"{float(bar[1]):.1f}", *bar[4:6]])
    return rows


def _flink_stream(question: str) -> str:
    about, _, window = question.rpartition(", W = ")
    for row in table_of(sections_of(RESULTS / "flink-cep.md")["Side by side"])[1:]:
        if row[:2] == [about, window]:
            return f"{row[2]} events"
    raise AssertionError(f"{question} is not on the page of Flink")


def _on_all_cores() -> list[list[str]]:
    """Times by the clock on all cores, and the ratios of the peers."""
    tables = [table_of(lines) for lines in _blocks(RESULTS / "all-cores.md")]
    heading, *rows = next(table for table in tables if table and table[0][0] == "query")
    mine, *theirs = (heading.index(name) for name in ("all cores, ms", "DuckDB, all cores", "polars, all cores"))

    def ratio(row: list[str], column: int) -> str:
        return f"{float(row[column]) / float(row[mine]):.1f}" if row[column] else ""

    return [[row[0], row[mine], *(ratio(row, column) for column in theirs)] for row in rows]


def _blocks(page: Path) -> list[list[str]]:
    return [block.splitlines() for block in page.read_text(encoding="utf-8").split("\n\n")]


def assembled() -> str:
    """The page for users: beside other systems, on all cores, and where the rest is."""
    rows = comparisons()
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench` from the tables in `benchmarks/results/`. Each benchmark checks its answers on every "
        "run, and compares the CPU time of alternating runs in one process or one script: absolute rates depend on the "
        "machine and its load, ratios depend on them much less. Dates and commits are those at which a row was "
        "recorded.",
        "",
        f"This page was written on {platform.system()} ({platform.machine()}, {os.cpu_count()} cores) with "
        f"Python {platform.python_version()} and {versions()}. `make bench` runs all benchmarks, `make bench "
        'ARGS="--only sase"` one of them, `make bench ARGS="--quick"` a small version of each. A benchmark '
        "whose peers are not installed is skipped with a message.",
        "",
        "## Beside other systems, per core",
        "",
        "One thread each: the CPU time of the other system divided by that of Ouzel. From an Arrow table to an Arrow "
        "table of all answers; the Python loop reads tuples that are ready. W1 is a sequence of three events with "
        "one equal attribute, W2 has a negation in the middle, W4 counts sequences of four. The streams of W1 and W2 "
        "have one attribute, those of the paper have five. Spark: the CPU time of the JVM and all Python workers. The "
        "ratios with Flink CEP hold for the sizes of streams that are given, and only one of these has several million "
        "events: they grow with the window and change with the size. Flink's condition on the previous price reads "
        "the whole repetition; an expert would keep the last price, which was not measured.",
        "",
        markdown(HEADINGS, rows),
        "",
        "![Ratios beside other systems](figures/beside-others.svg)",
        "",
        "## The same on all cores",
        "",
        f"By the clock, on {_cores()} cores. Cores share memory, so the gain is less than the number of cores.",
        "",
        markdown(["query", "Ouzel, ms", "DuckDB's time, of Ouzel's", "polars' time, of Ouzel's"], _on_all_cores()),
        "",
        "## All results",
        "",
        "The files have all tables, how they were measured, and targets of our own, with those that are missed.",
        "",
        markdown(["file", "what it measures", "targets reached"], _all_results()),
    ]
    return "\n".join(lines) + "\n"


def _cores() -> str:
    found = re.search(r"(\d+) cores, load", (RESULTS / "all-cores.md").read_text(encoding="utf-8"))
    assert found is not None, "the page says on how many cores it was measured"
    return found[1]


def _all_results() -> list[list[str]]:
    rows = []
    for benchmark in BENCHMARKS:
        page = RESULTS / f"{benchmark.name.replace('_', '-')}.md"
        if page.exists():
            bars = _bars(page)
            reached = f"{sum(row[3] == 'PASS' for row in bars)} of {len(bars)}"
            rows.append([f"`benchmarks/results/{page.name}`", _sentence(benchmark.about), reached])
        else:
            rows.append([f"`python -m benchmarks.{benchmark.name}` prints them", _sentence(benchmark.about), ""])
    return rows


def _bars(page: Path) -> list[list[str]]:
    """The rows of the first table of bars of a page."""
    tables = (table_of(lines) for lines in _blocks(page))
    return next((table[1:] for table in tables if table and table[0][0] == "bar"), [])


def draw(rows: list[list[str]]) -> None:
    """The ratios as bars, on a logarithmic scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn, axes = pyplot.subplots(figsize=(7, 0.28 * len(rows) + 1))
    systems = list(dict.fromkeys(row[1] for row in rows))
    for place, row in enumerate(reversed(rows)):
        axes.barh(place, float(row[3]), color=f"C{systems.index(row[1])}")
    axes.set_yticks(range(len(rows)), [f"{row[0]}, {row[1]}" for row in reversed(rows)], fontsize=7)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("times as fast, per core")
    drawn.tight_layout()
    # No date and no random ids: the file changes only where the ratios do.
    matplotlib.rcParams["svg.hashsalt"] = "ouzel"
    drawn.savefig(DOCS / "figures" / "beside-others.svg", metadata={"Date": None})
    pyplot.close(drawn)


def versions() -> str:
    found = []
    for name in VERSIONS:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


if __name__ == "__main__":
    sys.exit(main())
