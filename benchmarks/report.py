"""What a benchmark with several parts writes: tables as soon as they are there, JSON, and a page of results.

A page keeps what was measured before: a part that is measured again replaces its section and its bars, and every bar
has the date and the commit at which it was measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from benchmarks.measure import Bar, machine, markdown, measured_at

RESULTS = Path(__file__).parent / "results"
FIGURES = RESULTS / "figures"
BAR_HEADINGS = ["bar", "measured", "limit", "", "date", "commit"]
Table = tuple[list[str], list[list[str]]]
# Title, note, table, bars.
Part = tuple[str, str, Table, list[Bar]]


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


# ── Pages ──────────────────────────────────────────────────────────────────────────────────────────

BARS = "Bars"
_CELL = re.compile(r"(?<!\\)\|")


def table_of(lines: Iterable[str]) -> list[list[str]]:
    """The first table among some lines: its heading and its rows, as cells.

    >>> table_of(["Before.", "| a | b |", "| - | - |", "| 1 | x \\\\| y |", "", "| c |"])
    [['a', 'b'], ['1', 'x \\\\| y']]
    """
    rows: list[list[str]] = []
    for line in lines:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in _CELL.split(line)[1:-1]])
        elif rows:
            break
    return [rows[0], *rows[2:]] if rows else []


def sections_of(path: Path) -> dict[str, list[str]]:
    """The lines of a page by the heading before them; '' has those before the first one."""
    found: dict[str, list[str]] = {"": []}
    title = ""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        if line.startswith("## "):
            title = line.removeprefix("## ")
            found[title] = []
        else:
            found[title].append(line)
    return found


def write_page(
    path: Path,
    about: Collection[str],
    parts: Collection[Part],
    titles: Iterable[str],
    *,
    texts: Iterable[tuple[str, Collection[str]]] = (),
    plot: Callable[[str, Table], Path | None] = lambda title, table: None,
) -> None:
    """Write a page: what it is about, all bars, and a section for each part in the order of `titles`.

    Parts that were not measured now stay as they are. `texts` are sections without measurements, which come first.
    """
    sections = sections_of(path)
    bars = {row[0]: row for row in table_of(sections.get(BARS, ()))[1:]}
    for title, note, table, found in parts:
        date, commit = measured_at()
        lines = ["", note, "", markdown(*table)]
        drawn = plot(title, table)
        if drawn is not None:
            lines += ["", f"![{title}](figures/{drawn.name})"]
        sections[title] = [*lines, "", f"Measured on {date} at {commit}.", ""]
        bars |= {bar.name: bar.cells() for bar in found}
    lines = [*about, "", f"## {BARS}", "", markdown(BAR_HEADINGS, list(bars.values()))]
    for title, written in texts:
        lines += ["", f"## {title}", "", *written]
    for title in titles:
        if title in sections:
            lines += ["", f"## {title}", *sections[title]]
            while not lines[-1]:
                lines.pop()
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
