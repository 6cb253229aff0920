"""What `benchmarks/spark_stream.py` tells: tables, bars, and the page of the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.measure import Bar, markdown
from benchmarks.report import BAR_HEADINGS

PAGE = Path(__file__).parent / "results" / "spark-stream.md"
PARTS = ("ways", "keys", "state", "skew")
HEADINGS = ["part", "way", "open events", "CPU µs/row", "mean", "seconds/batch", "checkpoint MB/batch"]
# By part and way.
Results = dict[str, dict[str, dict[str, Any]]]

TEXT = """# Spark streams, measured

`python -m benchmarks.spark_stream --page` writes this page. One machine, two cores, `local[2]`; micro-batches of
{rows} rows, {keys} keys; one row of five has a type that the query names. The methods alternate batch by batch and
read the same files. CPU is the total of the JVM and all Python workers: the median and the mean of warm batches. The
matches of every stateful method are compared with a count that shares no code with the engine.

The query finds a reading at a shelf that no reading at a register follows. Other windows give more or fewer open
events:

    {query}

{bars}

{table}

- *stateless*: a `mapInArrow` that passes every row to Python and back.
- *packed*: `ouzel.spark.match`.
- *rows*: the same session, with Spark rows grouped by bucket; each batch writes the whole state.
- *by key*: a `transformWithStateInPandas` per tag that keeps the readings of the tag's window. A batch takes half a
  minute of CPU, so only three warm batches are measured.
- *skew*: the same stream with even keys, with one key that has half of all rows, and with keys by Zipf's law with
  exponent 1.2.

The query returns a column of random numbers, which cannot be compressed. A batch writes to the checkpoint only the
new events that the query names, whatever the number of open events. When this log has grown as large as the last
snapshot, a batch writes a new snapshot; the mean includes its share, the median does not. The number of open events
hardly affects the CPU of a batch: workers keep their sessions, and the kernel reads only what an event can affect.
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
