"""All benchmarks in one run, and the page that leads to their results: `make bench`.

    python -m benchmarks.pages [--quick] [--only sase aggregate …] [--assemble]

Each benchmark measures, checks its answers and writes its own page where it has one; what fails is told and does not
stop the others. `--assemble` measures nothing and only writes docs/benchmarks.md from the pages that are there.
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


def assembled() -> str:
    """The page: how it was measured, the bars of every benchmark, and where the rest stands."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench` from the pages of the benchmarks. Each benchmark checks its answers on every "
        "run. It compares the CPU time of alternating runs, as the median of ratios: absolute rates depend on "
        "the machine and its load, ratios depend on them much less.",
        "",
        f"This page was written on {platform.system()} ({platform.machine()}, {os.cpu_count()} cores) with "
        f"Python {platform.python_version()} and {versions()}. `make bench` runs all benchmarks, `make bench "
        'ARGS="--only sase"` one of them, `make bench ARGS="--quick"` a small version of each. A benchmark '
        "whose peers are not installed is skipped with a message.",
    ]
    for benchmark in BENCHMARKS:
        page = _page(benchmark)
        lines += ["", f"## {benchmark.name.replace('_', ' ')}", "", _sentence(benchmark.about)]
        if page is None:
            lines += ["", f"No page yet: `python -m benchmarks.{benchmark.name}` prints the results."]
            continue
        lines[-1] += f" [All figures]({page.name})."
        bars = _bars(page.read_text(encoding="utf-8"))
        if bars:
            lines += ["", *bars]
    return "\n".join(lines) + "\n"


def versions() -> str:
    found = []
    for name in VERSIONS:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def _page(benchmark: Benchmark) -> Path | None:
    for name in (benchmark.name, benchmark.name.replace("_", "-")):
        if (DOCS / f"benchmarks-{name}.md").exists():
            return DOCS / f"benchmarks-{name}.md"
    return None


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _bars(text: str) -> list[str]:
    """The first table of a page that holds bars.

    >>> _bars("# A\\n\\n| bar | measured |\\n| --- | --- |\\n| x | 1 |\\n\\nMore.")
    ['| bar | measured |', '| --- | --- |', '| x | 1 |']
    """
    found = re.search(r"^\| bar .*(?:\n\|.*)*", text, re.MULTILINE)
    return found[0].splitlines() if found else []


if __name__ == "__main__":
    sys.exit(main())
