"""What a benchmark with several parts tells: tables as soon as they are there, then JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from benchmarks.measure import Bar, machine, markdown

DOCS = Path(__file__).parent.parent / "docs"
BAR_HEADINGS = ["bar", "measured", "limit", ""]
# Title, note, table, bars.
Part = tuple[str, str, tuple[list[str], list[list[str]]], list[Bar]]


class Report:
    """The parts that were asked for, in the order in which they were measured."""

    def __init__(self, only: Collection[str] | None) -> None:
        self._only = only
        self.parts: list[Part] = []

    def wants(self, name: str) -> bool:
        return not self._only or name in self._only

    def add(self, title: str, note: str, work: Callable[[], Any]) -> None:
        """Measure a part and print it."""
        table, bars = work()
        print(f"\n{title}\n\n{markdown(*table)}\n", flush=True)
        if bars:
            print(markdown(BAR_HEADINGS, [bar.cells() for bar in bars]), flush=True)
        self.parts.append((title, note, table, bars))


def verdict(parts: Collection[Part]) -> str:
    """All bars in one table."""
    return markdown(BAR_HEADINGS, [bar.cells() for _, _, _, found in parts for bar in found])


def write_json(benchmark: str, events: int, runs: int, parts: Collection[Part], file: Path | None) -> None:
    """Everything that was measured, into a file or onto standard output."""
    content = {
        "benchmark": benchmark,
        "events": events,
        "runs": runs,
        "machine": machine(),
        "bars": [bar.as_json() for _, _, _, found in parts for bar in found],
        "tables": {title: {"columns": table[0], "rows": table[1]} for title, _, table, _ in parts},
    }
    text = json.dumps(content, indent=1, ensure_ascii=False)
    if file:
        file.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
