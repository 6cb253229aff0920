"""The page of the documentation that `benchmarks/spark_batch.py` writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import Bar, markdown
from benchmarks.report import BAR_HEADINGS
from benchmarks.spark_batch_ways import FUNNEL, HOT, KEYLESS, NEGATED, SELECTIVE

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks-spark-batch.md"
HEADINGS = ["way", "CPU s", "of it Python s", "wall s"]

TEXT = """# Spark batches, measured

`python -m benchmarks.spark_batch --page` writes this page. One machine, two cores, `local[2]`, four partitions of
shuffles, events of six columns from Parquet, answers written to nowhere.
Events: {events}; the funnel W5 has a fifth as many clicks.
CPU is that of the JVM and all Python workers together: medians of runs that take turns, after one to warm up.
Runs: {runs}; a way that takes more than fifteen times what Ouzel takes was run once. Wall seconds are those of a
shared machine. Every way of answering a query gives the answer of the embedded engine. Ratios are of one part.

The queries: W1, where three types of twenty matter (or all three of three); W2, with a negation; W5, a funnel; one
without a key; one with a key, of which one value has half of all events. The last two are cut into slices of ten
windows, or not cut.

{queries}

{bars}

{table}

- *filter, shuffle, sort* is the floor that the first bars compare with: the same columns, filtered by the same types,
  repartitioned by the key and sorted by key and time. Ouzel needs no sort of Spark's. The steps below it add up to
  nearly all that Ouzel takes: the kernels have a small part of the CPU.
- *Spark SQL* is the best formulation that was found: equi-joins on the key and on time cut into windows, with the last
  forbidden event found by a window function. A join on the key alone takes far longer. Whatever goes through Python
  pays for reading, shuffling and the hand-over of rows, which is more than a third of what these joins take, so a
  ratio of three is out of reach for W1 and W2 in this way of running.
- *applyInPandas* is a search written by hand, for each key: once as people write it, and once after the filter by
  types that Ouzel finds by itself.
- A task's CPU is that of its thread in Java, as Spark's event log tells, and of its Python.
"""


def page(parts: Mapping[str, Any]) -> str:
    queries = "\n".join(f"    {query}" for query in (SELECTIVE, NEGATED, FUNNEL, KEYLESS, HOT))
    bars = [
        Bar(one["name"], one["measured"], one["limit"], one["at_least"])
        for part in parts.values()
        for one in part["bars"]
    ]
    rows = [row for part in parts.values() for row in part["rows"]]
    events, runs = (_told(parts, key) for key in ("events", "runs"))
    verdict = markdown(BAR_HEADINGS, [bar.cells() for bar in bars])
    return TEXT.format(events=events, runs=runs, queries=queries, bars=verdict, table=markdown(HEADINGS, rows))


def _told(parts: Mapping[str, Any], key: str) -> str:
    """A size that most parts have, and those that have another one.

    >>> _told({"a": {"runs": 5}, "b": {"runs": 5}, "c": {"runs": 3}}, "runs")
    '5 (c: 3)'
    """
    sizes = {name: part[key] for name, part in parts.items()}
    usual = max(sizes.values(), key=list(sizes.values()).count)
    others = ", ".join(f"{name}: {size:,}" for name, size in sizes.items() if size != usual)
    return f"{usual:,} ({others})" if others else f"{usual:,}"
