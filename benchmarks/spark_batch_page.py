"""The page of the documentation that `benchmarks/spark_batch.py` writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import Bar, markdown
from benchmarks.report import BAR_HEADINGS
from benchmarks.spark_batch_ways import FUNNEL, HOT, KEYLESS, NEGATED, SELECTIVE, VIEWS, VISIT

PAGE = Path(__file__).parent / "results" / "spark-batch.md"
HEADINGS = ["way", "CPU s", "of it Python s", "wall s"]

TEXT = """# Spark batches, measured

`python -m benchmarks.spark_batch --page` writes this page. One machine, two cores, `local[2]`, four partitions of
shuffles, events of six columns from Parquet, answers written to a noop sink.
Events: {events}; the funnel W5 has a fifth as many clicks. *sequence*, *negation* and *Kleene* have half as many
events, with ten columns, of 100,000 users.
CPU is the total of the JVM and all Python workers: medians of alternating runs, after three warm-up runs. Runs: {runs};
a method that takes more than fifteen times the CPU of Ouzel was run once. Wall seconds are from a shared machine.
Every method gives the answer of the embedded engine. Ratios are within one part.

The queries: W1, with three relevant types of twenty (or of three); W2, with a negation; W5, a funnel, which
is also *negation*; *sequence*; *Kleene*; one without a key; one with a key of which one value has half of all events.
The last two run with time slices of ten windows, and without.

{queries}

{bars}

{table}

- *filter, shuffle, sort* is the baseline of the first bars: the same columns, filtered by the same types,
  repartitioned by the key and sorted by key and time. Ouzel does not need Spark's sort. The steps below it add up to
  nearly all of Ouzel's CPU; the kernels have a small part of it.
- *Spark SQL* is the best formulation we found: equi-joins on the key and on time slices, with a window function for
  the last forbidden event. A join on the key alone takes far longer. A job in Python also pays for reading, shuffling
  and passing rows to Python. That alone is more than a third of the CPU of these joins, so W1 and W2 cannot reach a
  ratio of three.
- *a function that does nothing* has the plan of Ouzel with its filter, columns and shuffle, and a Python function that
  reads all rows and returns none. Spark SQL for *Kleene* counts views by a window
  function and joins carts with purchases.
- *applyInPandas* is a hand-written search per key: once as users write it, and once after a filter by types, which
  Ouzel applies by itself.
- *V shapes* is MATCH_RECOGNIZE over 1,000 interleaved partitions with text keys. Its baseline reads, shuffles and sorts
  all rows. With PARTITION BY upper(sym) the tasks compute the key first, so rows go through Python twice.
- Tried for *negation* with 5 million events, on a busy machine, and not kept. Arrow batches of 50,000 rows, 200,000
  rows and without a limit took 1.07, 0.99 and 1.07 times the CPU of 10,000 rows. A semi-join with the keys that have a
  purchase took 0.61 times the CPU if one user in a hundred purchases, and 1.45 times if all do, and no source has
  statistics to choose by. Text keys took 1.42 times the CPU of integers; a 64-bit hash in their place took 1.22 times,
  without the text that an exact answer needs.
- Earlier runs had one warm-up and gave 1.34 for *negation*. With two warm-ups it was 1.04: we believe that Java still
  compiled the plan that ran first. Then the tasks of Ouzel and of the function that does nothing took the same CPU in
  Java (1.16 s by Spark's event log), planning took about 0.1 s for both, and the rest of the difference was Python.
- The CPU of a task is that of its Java thread, from Spark's event log, and of its Python process.
"""


def page(parts: Mapping[str, Any]) -> str:
    queries = "\n".join(f"    {query}" for query in (SELECTIVE, NEGATED, FUNNEL, VISIT, VIEWS, KEYLESS, HOT))
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
