"""What `benchmarks/spark_stream.py` tells: tables, bars, and the page of the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.measure import Bar, markdown
from benchmarks.report import BAR_HEADINGS

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks-spark-stream.md"
PARTS = ("ways", "keys", "state")
HEADINGS = ["part", "way", "open events", "CPU µs/row", "mean", "seconds/batch", "checkpoint MB/batch"]
# By part and way.
Results = dict[str, dict[str, dict[str, Any]]]

TEXT = """# Spark streams, measured

`python -m benchmarks.spark_stream --page` writes this page. One machine, two cores, `local[2]`; micro-batches of
{rows} rows, {keys} keys; one row of five is of a type that the query names. The ways take turns batch by batch and
read the same files. CPU is that of the JVM and all Python workers together: the median of warm batches, and beside
it their mean. The matches of every stateful way are compared with a count that shares no code with the engine.

The query, a reading at a shelf that no reading at a register follows, with other windows where more or less is open:

    {query}

{bars}

{table}

- *stateless*: a `mapInArrow` that hands every row to Python and back.
- *packed*: `ouzel.spark.match`.
- *rows*: the same session, fed by Spark's own rows grouped by bucket, its state written whole with each batch.
- *by key*: a processor by tag that keeps the readings of the tag's window, in `transformWithStateInPandas`. One
  batch takes it half a minute of CPU, so it is measured over three warm ones.

A column of random numbers, which the query shows, cannot be compressed. What a batch writes to the checkpoint is
the new events that the query names, whatever is open. When these steps have grown as large as the last snapshot, a
batch writes a snapshot of all that is open; the mean has its part of that, the median has not. What is open hardly
shows in the CPU of a batch: workers keep their sessions, and the kernel looks only at what an event can touch.
"""


def bars_of(results: Results) -> list[Bar]:
    """What must hold, of the parts that were measured."""
    bars = []
    if "ways" in results:
        ways = results["ways"]
        stateless, packed, unpacked = (ways[name]["cpu_seconds"] for name in ("stateless", "packed", "rows"))
        bars.append(Bar("CPU of a stateless pass", packed / stateless, 2.0, at_least=False))
        bars.append(Bar("unpacked rows by bucket, times ours", unpacked / packed, 2.0, at_least=True))
    if "keys" in results:
        ways = results["keys"]
        ratio = ways["by key"]["cpu_seconds"] / ways["packed"]["cpu_seconds"]
        bars.append(Bar("transformWithStateInPandas by key, times ours", ratio, 10.0, at_least=True))
    if "state" in results:
        seconds = [result["cpu_seconds"] for result in results["state"].values()]
        bars.append(Bar("CPU at 1 M open events, times that at 10 K", seconds[-1] / seconds[0], 1.2, at_least=False))
    return bars


def told(results: Results, rows: int) -> str:
    """The tables for reading."""
    return f"{_table(results, rows)}\n{_bars(results)}"


def page(results: Results, rows: int, keys: int, query: str) -> str:
    """The page of the documentation."""
    tables = {"bars": _bars(results), "table": _table(results, rows)}
    return TEXT.format(rows=f"{rows:,}", keys=f"{keys:,}", query=query, **tables)


def _bars(results: Results) -> str:
    return markdown(BAR_HEADINGS, [bar.cells() for bar in bars_of(results)])


def _table(results: Results, rows: int) -> str:
    lines = [
        [
            part,
            name,
            f"{result['open_events']:,}",
            f"{result['cpu_seconds'] / rows * 1e6:.2f}",
            f"{result['cpu_seconds_mean'] / rows * 1e6:.2f}",
            f"{result['wall_seconds']:.2f}",
            f"{result['checkpoint_bytes'] / 1e6:.1f}",
        ]
        for part in PARTS
        for name, result in results.get(part, {}).items()
    ]
    return markdown(HEADINGS, lines)
